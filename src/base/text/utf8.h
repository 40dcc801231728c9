/* base/text/utf8.h - reads UTF-8 that may be malformed.
 *
 * Trust: any bytes.  Threads: any. */
#ifndef HAWSER_BASE_TEXT_UTF8_H
#define HAWSER_BASE_TEXT_UTF8_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { HW_UTF8_REPLACEMENT = 0xfffd };

/* The code point at text[0..len), len > 0, into *code_out; returns the bytes it takes.  A byte
 * that begins no valid sequence (overlong, surrogate, past U+10FFFF, cut short) takes 1 and reads
 * as HW_UTF8_REPLACEMENT. */
static inline size_t hw_utf8_next(const char *text, size_t len, uint32_t *code_out)
{
    assert(len > 0);
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    size_t need = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    *code_out = HW_UTF8_REPLACEMENT;
    if (need == 0 || s[0] > 0xf4 || need > len)
        return 1;
    uint32_t code = need == 1 ? s[0] : s[0] & (0x7fu >> need);
    for (size_t i = 1; i < need; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 1;
        code = code << 6 | (s[i] & 0x3f);
    }
    if (code < least[need] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 1;
    *code_out = code;
    return need;
}

/* Puts '?' for each byte that is of no character. */
static inline void hw_utf8_mend(char *text)
{
    uint32_t code;
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        n = hw_utf8_next(text, left, &code);
        if (n == 1 && (unsigned char)*text >= 0x80)
            *text = '?';
    }
}

#endif
