/* base/text/ascii.h - compares words in any case.
 *
 * Only A to Z have two cases, whatever the locale of the program: strcasecmp takes "INFO" and
 * "info" for different words in a Turkish one.
 *
 * Threads: any. */
#ifndef HAWSER_BASE_TEXT_ASCII_H
#define HAWSER_BASE_TEXT_ASCII_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline char hw_ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Whether the first len bytes are the same, or all up to the NUL where that comes earlier. */
static inline bool hw_ascii_same_start(const char *a, const char *b, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (hw_ascii_lower(a[i]) != hw_ascii_lower(b[i]))
            return false;
        if (a[i] == '\0')
            break;
    }
    return true;
}

static inline bool hw_ascii_same(const char *a, const char *b)
{
    return hw_ascii_same_start(a, b, SIZE_MAX);
}

#endif
