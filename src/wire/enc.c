#include "wire/enc.h"

#include <errno.h>
#include <stdlib.h>

enum { GROW_MIN = 256 }; /* most commands fit, so that short messages allocate once */

/* Where an empty encoder points: pointer arithmetic on NULL is undefined even by zero.  Never
 * written, as the capacity there is 0. */
static uint8_t nowhere[1];

static void set_memory(struct wire_enc *e, uint8_t *base, size_t cap, size_t len)
{
    assert(len <= cap && cap <= e->max);
    e->base = base;
    e->cap = cap;
    e->at = base + len;
    e->end = base + cap;
}

void wire_enc_init(struct wire_enc *e, size_t max)
{
    *e = (struct wire_enc){.max = max};
    set_memory(e, nowhere, 0, 0);
}

void wire_enc_init_fixed(struct wire_enc *e, void *buf, size_t len)
{
    assert(buf || len == 0);
    *e = (struct wire_enc){.max = len, .fixed = true};
    set_memory(e, len ? buf : nowhere, len, 0);
}

void wire_enc_fini(struct wire_enc *e)
{
    if (!e->fixed && e->cap)
        free(e->base);
    wire_enc_init(e, 0);
}

void wire_enc_reset(struct wire_enc *e)
{
    e->err = 0;
    set_memory(e, e->base, e->cap, 0);
}

void wire_enc_fail(struct wire_enc *e, int err)
{
    assert(err < 0);
    if (!e->err)
        e->err = err;
    e->end = e->at;
}

static size_t next_cap(const struct wire_enc *e, size_t need)
{
    size_t cap = e->cap < GROW_MIN ? GROW_MIN : e->cap;
    while (cap < need && cap <= e->max / 2)
        cap *= 2;
    if (cap < need || cap > e->max)
        cap = e->max;
    return cap;
}

bool wire_enc_room(struct wire_enc *e, size_t n)
{
    size_t len = wire_enc_len(e);
    if (e->err)
        return false;
    if (n > e->max - len) {
        wire_enc_fail(e, -EMSGSIZE);
        return false;
    }
    if (n <= e->cap - len)
        return true;
    assert(!e->fixed);
    size_t cap = next_cap(e, len + n);
    uint8_t *base = realloc(e->cap ? e->base : NULL, cap);
    if (!base) {
        wire_enc_fail(e, -ENOMEM);
        return false;
    }
    set_memory(e, base, cap, len);
    return true;
}

void wire_put_varint_long(struct wire_enc *e, uint64_t v)
{
    uint8_t buf[WIRE_VARINT_MAX];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        buf[n++] = (uint8_t)(v | 0x80);
    buf[n++] = (uint8_t)v;
    wire_put_bytes(e, buf, n);
}

void wire_put_blob(struct wire_enc *e, const void *src, size_t n)
{
    wire_put_varint(e, n);
    wire_put_bytes(e, src, n);
}

void wire_put_str(struct wire_enc *e, const char *s)
{
    size_t n = strlen(s);
    if (n > WIRE_STR_MAX)
        wire_enc_fail(e, -EMSGSIZE);
    else
        wire_put_blob(e, s, n);
}

void wire_fill_len(struct wire_enc *e, size_t hole)
{
    if (e->err)
        return;
    assert(hole + 4 <= wire_enc_len(e));
    size_t n = wire_enc_len(e) - hole - 4;
    if (n > UINT32_MAX)
        wire_enc_fail(e, -EMSGSIZE);
    else
        wire_fill_u32(e, hole, (uint32_t)n);
}
