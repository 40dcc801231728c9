/* base/text/controls.h - text that steers no terminal and breaks no line.
 *
 * Trust: any bytes.  Threads: any. */
#ifndef HAWSER_BASE_TEXT_CONTROLS_H
#define HAWSER_BASE_TEXT_CONTROLS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether c, after the byte `before` (0 where none is), ends a control character: of ASCII, or
 * U+0080 to U+009F in UTF-8, which some terminals obey, too. */
static inline bool hw_ends_control(char before, char c)
{
    unsigned char byte = (unsigned char)c;
    return byte < 0x20 || byte == 0x7f || (before == '\xc2' && byte >= 0x80 && byte < 0xa0);
}

/* Puts '?' for each byte of a control character. */
static inline void hw_blank_controls(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (!hw_ends_control(i > 0 ? text[i - 1] : '\0', text[i]))
            continue;
        if ((unsigned char)text[i] >= 0x80)
            text[i - 1] = '?';
        text[i] = '?';
    }
}

static inline void hw_blank_controls_of(char *text)
{
    hw_blank_controls(text, strlen(text));
}

#endif
