#include "wire/dec.h"

#include <assert.h>

void wire_dec_init(struct wire_dec *d, const void *data, size_t len)
{
    static const uint8_t nothing[1]; /* pointer arithmetic on NULL is undefined even by zero */
    assert(data || len == 0);
    const uint8_t *base = data ? data : nothing;
    *d = (struct wire_dec){.at = base, .end = base + len, .base = base};
}

void wire_dec_fail(struct wire_dec *d, int err)
{
    assert(err < 0);
    if (!d->err)
        d->err = err;
    d->at = d->end;
}

int wire_dec_end(const struct wire_dec *d)
{
    if (d->err)
        return d->err;
    return d->at == d->end ? 0 : -EPROTO;
}

uint64_t wire_get_varint_long(struct wire_dec *d)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 7 * WIRE_VARINT_MAX; shift += 7) {
        uint8_t byte = wire_get_u8(d);
        uint64_t group = byte & 0x7f;
        if (shift == 63 && group > 1) /* only bit 63 is left */
            break;
        v |= group << shift;
        if (byte & 0x80)
            continue;
        if (byte == 0 && shift > 0) /* a last group of zero: a shorter form exists */
            break;
        return v;
    }
    wire_dec_fail(d, -EPROTO);
    return 0;
}

void wire_get_copy(struct wire_dec *d, void *dst, size_t n)
{
    const uint8_t *p = wire_get_bytes(d, n);
    if (n == 0)
        return;
    if (p)
        memcpy(dst, p, n);
    else
        memset(dst, 0, n);
}

const uint8_t *wire_get_blob(struct wire_dec *d, size_t limit, size_t *len)
{
    *len = 0;
    uint64_t n = wire_get_varint(d);
    if (n > limit)
        wire_dec_fail(d, -EMSGSIZE);
    else if (n > wire_dec_left(d))
        wire_dec_fail(d, -EPROTO);
    if (d->err)
        return NULL;
    *len = (size_t)n;
    return wire_get_bytes(d, (size_t)n);
}

const char *wire_get_str(struct wire_dec *d, size_t limit, size_t *len)
{
    const uint8_t *p = wire_get_blob(d, limit < WIRE_STR_MAX ? limit : WIRE_STR_MAX, len);
    if (p && memchr(p, 0, *len)) {
        wire_dec_fail(d, -EPROTO);
        *len = 0;
        return NULL;
    }
    return (const char *)p;
}

void wire_get_str_copy(struct wire_dec *d, char *dst, size_t cap)
{
    assert(cap >= 1);
    size_t len;
    const char *s = wire_get_str(d, cap - 1, &len);
    if (s)
        memcpy(dst, s, len);
    dst[len] = '\0';
}

uint32_t wire_dec_count(struct wire_dec *d, size_t min_elem_bytes, uint32_t limit)
{
    uint32_t n = wire_get_u32(d);
    if (n > limit)
        wire_dec_fail(d, -EMSGSIZE);
    else if (min_elem_bytes && n > wire_dec_left(d) / min_elem_bytes)
        wire_dec_fail(d, -EPROTO);
    return d->err ? 0 : n;
}

struct wire_dec wire_dec_sub(struct wire_dec *d, size_t n)
{
    struct wire_dec sub;
    const uint8_t *p = wire_get_bytes(d, n);
    wire_dec_init(&sub, p, p ? n : 0);
    if (!p)
        wire_dec_fail(&sub, d->err);
    return sub;
}
