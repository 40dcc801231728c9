/* base/text/controls.h - text that steers no terminal and breaks no line.
 *
 * Trust: any bytes.  Threads: any. */
#ifndef HAWSER_BASE_TEXT_CONTROLS_H
#define HAWSER_BASE_TEXT_CONTROLS_H

#include <stddef.h>

/* Puts '?' for each byte of a control character: of ASCII, or U+0080 to U+009F in UTF-8, which some
 * terminals obey, too. */
static inline void hw_blank_controls(char *text, size_t len)
{
    unsigned char *s = (unsigned char *)text;
    for (size_t i = 0; i < len; i++) {
        if (s[i] == 0xc2 && i + 1 < len && s[i + 1] >= 0x80 && s[i + 1] < 0xa0)
            s[i] = s[i + 1] = '?';
        else if (s[i] < 0x20 || s[i] == 0x7f)
            s[i] = '?';
    }
}

#endif
