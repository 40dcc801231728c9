/* base/text/base64.h - base64 (RFC 4648, section 4).
 *
 * Decoding is strict, so that a text has one form: padding is required, its unused bits are zero,
 * and other characters are refused.
 *
 * Trust: text may be anything.  Threads: any.  Lifetime: no state. */
#ifndef HAWSER_BASE_TEXT_BASE64_H
#define HAWSER_BASE_TEXT_BASE64_H

#include "base/attr.h"

#include <stddef.h>

/* Room for `bytes` encoded, and the NUL. */
#define HW_BASE64_CHARS(bytes) (((bytes) + 2) / 3 * 4 + 1)

/* out has HW_BASE64_CHARS(len). */
void hw_base64_encode(const void *data, size_t len, char *out);

/* 0 with the bytes in out and their number; -EBADMSG when it is no base64, -EMSGSIZE when it does
 * not fit. */
int hw_base64_decode(const char *text, size_t len, void *out, size_t size,
                     size_t *len_out) MUST_CHECK;

#endif
