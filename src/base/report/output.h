/* base/report/output.h - a file that appears whole or not at all.
 *
 * Bytes go to a file without a name, or to PATH.<pid>.<random>.part where the file system has none;
 * finish gives it its name.
 *
 * Threads: one.  Lifetime: open, then finish. */
#ifndef HAWSER_BASE_REPORT_OUTPUT_H
#define HAWSER_BASE_REPORT_OUTPUT_H

#include "base/attr.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct hw_output { /* private, but for stream */
    FILE *stream;
    char *path, *part;
    bool is_named; /* part is there */
    bool overwrite;
};

enum { HW_OUTPUT_WHY_CHARS = 256 }; /* of each why, or NULL: a sentence with the path */

/* needed: bytes that the file will have, about.  A symbolic link stays; the file behind it is
 * replaced.  0; -EEXIST (path is there and overwrite is false); -EISDIR; -EINVAL (path is there and
 * no plain file); -ENOSPC (why says how much is needed and free); -ENOMEM, and the errors of
 * open. */
int hw_output_open(struct hw_output *output, const char *path, bool overwrite, uint64_t needed,
                   char *why) MUST_CHECK;

/* What was flushed can be read from there until finish.  Returns buf or a text that lives as long.
 */
enum { HW_OUTPUT_PLACE_CHARS = 32 };
const char *hw_output_place(const struct hw_output *output, char buf[HW_OUTPUT_PLACE_CHARS]);

/* err: of what was written.  0 gives the file its name; otherwise, and on errors here, nothing is
 * left behind.  Returns err, or -EEXIST, or the errors of writing and renaming. */
int hw_output_finish(struct hw_output *output, int err, char *why) MUST_CHECK;

#endif
