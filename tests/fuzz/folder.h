/* tests/fuzz/folder.h - a folder of files that an input gives, for readers that want one.  It goes
 * when the program ends.  Threads: one. */
#ifndef HAWSER_TESTS_FUZZ_FOLDER_H
#define HAWSER_TESTS_FUZZ_FOLDER_H

#include <stddef.h>
#include <stdint.h>

/* Its path; made at the first call. */
const char *folder_path(void);

/* The path of a file in it, until the next call. */
const char *folder_file(const char *name);

void folder_put(const char *name, const uint8_t *data, size_t size);

/* Takes the bytes up to a NUL, or all, off the input as the file's content. */
void folder_take(const char *name, const uint8_t **data, size_t *size);

#endif
