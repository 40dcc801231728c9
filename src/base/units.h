/* base/units.h - sizes, durations and numbers as people write them, from text and the environment.
 *
 * A size is bytes: "4096", "256KiB", "1.5MiB", "2 GiB".  K M G T and KiB MiB GiB TiB are powers of
 * 1024, as in dd; KB MB GB TB are powers of 1000, as on a disk's label; B is one.
 * A duration has a unit, ns us ms s m: "500us", "1.5s".  "0" alone is fine; any other number
 * without a unit is refused, because half of its readers would take it for milliseconds.
 * Units in any case, with at most one space before them.  A fraction is rounded to the nearest
 * byte or nanosecond.
 *
 * Trust: text may be anything.  Threads: any.  The locale of the program never matters: the driver
 * is loaded into programs that set one. */
#ifndef HAWSER_BASE_UNITS_H
#define HAWSER_BASE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

/* 0; -EINVAL for what is not a number of that form (negative, empty, trailing text included);
 * -ERANGE for a well-formed one that does not fit or lies outside [min, max]. */
int hw_parse_size(const char *text, uint64_t *bytes_out) MUST_CHECK;
int hw_parse_duration(const char *text, uint64_t *ns_out) MUST_CHECK;
int hw_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out) MUST_CHECK;
int hw_parse_double(const char *text, double min, double max, double *out) MUST_CHECK;

/* The longest result and its NUL, with room to spare. */
enum { HW_FORMAT_CHARS = 32 };

/* Each returns buf, so that it can stand in an argument list.
 * Sizes: "4096B", "256KiB", else two decimals: "1.46MiB".  Durations: "0s", "850ns", "12.3us".
 * Both read back by the parsers; an exact multiple reads back exactly. */
const char *hw_format_size(char buf[HW_FORMAT_CHARS], uint64_t bytes);
const char *hw_format_duration(char buf[HW_FORMAT_CHARS], uint64_t ns);
/* The shortest decimal that reads back as the same double, whole numbers below 1e15 without an
 * exponent; "nan", "inf", "-inf". */
const char *hw_format_double(char buf[HW_FORMAT_CHARS], double value);
/* For people: four significant digits, and all digits of the whole part; NaN is "-". */
const char *hw_format_figure(char buf[HW_FORMAT_CHARS], double value);

/* The variable when it is set and not empty, else def; 0.  A value that cannot be read or lies
 * outside [min, max] leaves def in *out, logs one warning that names the variable, the value and
 * the accepted form, and returns -EINVAL, which a caller may ignore: *out is always usable. */
int hw_env_size(const char *name, uint64_t def, uint64_t min, uint64_t max, uint64_t *out);
int hw_env_u64(const char *name, uint64_t def, uint64_t min, uint64_t max, uint64_t *out);
int hw_env_bool(const char *name, bool def, bool *out);

#endif
