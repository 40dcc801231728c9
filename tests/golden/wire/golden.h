/* golden.h - reads the committed vectors: lines of fields between bars, # for comments. */
#ifndef HAWSER_TESTS_GOLDEN_WIRE_GOLDEN_H
#define HAWSER_TESTS_GOLDEN_WIRE_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

enum { GOLDEN_FIELDS_MAX = 8, GOLDEN_BYTES_MAX = 4096 };

typedef void golden_line(char *fields[], size_t count);

/* Calls fn with the trimmed fields of every vector and returns how many there were; fails the
 * running test when the file cannot be read. */
size_t golden_each(const char *path, golden_line *fn);

/* Hex digits, up to the end or a space, to bytes; fails the running test on anything else. */
size_t golden_hex(const char *hex, uint8_t bytes[GOLDEN_BYTES_MAX]);

/* Fails the running test, naming the vector, unless the bytes are the same. */
void golden_equal(const char *name, const uint8_t *got, size_t got_len, const uint8_t *want,
                  size_t want_len);

#endif
