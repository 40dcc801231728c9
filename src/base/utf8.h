/* base/utf8.h - reads UTF-8 that may be malformed.
 *
 * Trust: any bytes.  Threads: any. */
#ifndef HAWSER_BASE_UTF8_H
#define HAWSER_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { HW_UTF8_REPLACEMENT = 0xfffd };

/* The code point at text[0..len), len > 0, into *code_out; returns the bytes it takes.  A byte
 * that begins no valid sequence (overlong, surrogate, past U+10FFFF, cut short) takes 1 and reads
 * as HW_UTF8_REPLACEMENT. */
size_t hw_utf8_next(const char *text, size_t len, uint32_t *code_out);

#endif
