#include "base/text/base64.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void hw_base64_encode(const void *data, size_t len, char *out)
{
    const uint8_t *in = data;
    for (; len > 0; in += 3) {
        size_t n = len < 3 ? len : 3;
        uint32_t bits = (uint32_t)in[0] << 16;
        bits |= n > 1 ? (uint32_t)in[1] << 8 : 0;
        bits |= n > 2 ? in[2] : 0;
        for (size_t i = 0; i < 4; i++)
            *out++ = i <= n ? alphabet[bits >> (18 - 6 * i) & 63] : '=';
        len -= n;
    }
    *out = '\0';
}

/* Four characters, the last `padding` of them '=', as 24 bits; -1: not base64. */
static int32_t quartet(const char *text, size_t padding)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < 4 - padding; i++) {
        const char *at = memchr(alphabet, text[i], 64);
        if (!at)
            return -1;
        bits |= (uint32_t)(at - alphabet) << (18 - 6 * i);
    }
    uint32_t unused = (UINT32_C(1) << (8 * padding)) - 1;
    return bits & unused ? -1 : (int32_t)bits;
}

int hw_base64_decode(const char *text, size_t len, void *out, size_t size, size_t *len_out)
{
    if (len % 4)
        return -EBADMSG;
    size_t padding = len == 0 || text[len - 1] != '=' ? 0 : text[len - 2] != '=' ? 1 : 2;
    size_t bytes = len / 4 * 3 - padding;
    if (bytes > size)
        return -EMSGSIZE;
    uint8_t *to = out;
    for (size_t at = 0; at < len; at += 4) {
        size_t missing = at + 4 == len ? padding : 0;
        int32_t bits = quartet(text + at, missing);
        if (bits < 0)
            return -EBADMSG;
        for (size_t i = 0; i < 3 - missing; i++)
            *to++ = (uint8_t)(bits >> (16 - 8 * i));
    }
    *len_out = bytes;
    return 0;
}
