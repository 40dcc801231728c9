/* wire/dec.h - bounded little-endian decoder with a sticky error.
 *
 * Trust: the input is a peer's and may hold anything.  No call reads outside it; after the first
 * error every get yields zero and every pointer NULL, so generated code decodes straight through
 * and asks once, with wire_dec_end, before it acts on anything.
 * Threads: one at a time per decoder.
 * Lifetime: the caller owns the input, which must neither move nor change while it is decoded:
 * bytes that a peer can still write (shared memory) are copied out first.  Blobs and strings
 * point into the input.
 *
 * Limits: a count is held against the bytes that remain and the caller's limit before anybody
 * allocates for it.
 *
 * Errors: -EPROTO for input that is short, malformed or not canonical, -EMSGSIZE for a count or
 * length past the caller's limit.  The first one sticks.
 *
 * Invariant: at <= end.  After an error at == end, which fails every later get of at least one
 * byte by the same comparison that guards the bounds. */
#ifndef HAWSER_WIRE_DEC_H
#define HAWSER_WIRE_DEC_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/attr.h"
#include "wire/le.h"
#include "wire/limits.h"

/* Fields are private; they stand here for the inline calls. */
struct wire_dec {
    const uint8_t *at;
    const uint8_t *end;
    const uint8_t *base;
    int err;
};

/* data may be NULL when len is 0. */
void wire_dec_init(struct wire_dec *d, const void *data, size_t len);

/* Sets the sticky error (a negative errno) unless one is set: for callers that find a value
 * out of its range. */
void wire_dec_fail(struct wire_dec *d, int err);

/* 0, or the first error. */
static inline int wire_dec_error(const struct wire_dec *d)
{
    return d->err;
}

/* 0 only when nothing failed and every byte was consumed; trailing bytes are -EPROTO. */
int wire_dec_end(const struct wire_dec *d) MUST_CHECK;

/* Bytes not yet consumed; 0 after an error. */
static inline size_t wire_dec_left(const struct wire_dec *d)
{
    return (size_t)(d->end - d->at);
}

/* The end of the input came too soon.  Inline, because a call here would make the compiler store
 * and reload the position around every get. */
static inline void wire_dec_short(struct wire_dec *d)
{
    if (!d->err)
        d->err = -EPROTO;
    d->at = d->end;
}

static inline uint8_t wire_get_u8(struct wire_dec *d)
{
    if (UNLIKELY(wire_dec_left(d) < 1)) {
        wire_dec_short(d);
        return 0;
    }
    return *d->at++;
}

static inline uint16_t wire_get_u16(struct wire_dec *d)
{
    if (UNLIKELY(wire_dec_left(d) < 2)) {
        wire_dec_short(d);
        return 0;
    }
    uint16_t v = wire_load16(d->at);
    d->at += 2;
    return v;
}

static inline uint32_t wire_get_u32(struct wire_dec *d)
{
    if (UNLIKELY(wire_dec_left(d) < 4)) {
        wire_dec_short(d);
        return 0;
    }
    uint32_t v = wire_load32(d->at);
    d->at += 4;
    return v;
}

static inline uint64_t wire_get_u64(struct wire_dec *d)
{
    if (UNLIKELY(wire_dec_left(d) < 8)) {
        wire_dec_short(d);
        return 0;
    }
    uint64_t v = wire_load64(d->at);
    d->at += 8;
    return v;
}

static inline int32_t wire_get_i32(struct wire_dec *d)
{
    return (int32_t)wire_get_u32(d);
}

static inline int64_t wire_get_i64(struct wire_dec *d)
{
    return (int64_t)wire_get_u64(d);
}

static inline float wire_get_f32(struct wire_dec *d)
{
    uint32_t bits = wire_get_u32(d);
    float v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

static inline double wire_get_f64(struct wire_dec *d)
{
    uint64_t bits = wire_get_u64(d);
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

/* LEB128 of 64 bits.  Only the shortest form is taken: an overlong or overflowing one is
 * -EPROTO, so that equal values have equal bytes. */
uint64_t wire_get_varint_long(struct wire_dec *d);

static inline uint64_t wire_get_varint(struct wire_dec *d)
{
    if (LIKELY(d->at != d->end && *d->at < 0x80))
        return *d->at++;
    return wire_get_varint_long(d);
}

/* The next n bytes, in place.  NULL only after an error, also when n is 0. */
static inline const uint8_t *wire_get_bytes(struct wire_dec *d, size_t n)
{
    if (UNLIKELY(wire_dec_left(d) < n || d->err)) {
        wire_dec_short(d);
        return NULL;
    }
    const uint8_t *p = d->at;
    d->at += n;
    return p;
}

/* The next n bytes, copied; zeros after an error. */
void wire_get_copy(struct wire_dec *d, void *dst, size_t n);

/* A varint length, at most limit, and its bytes in place.  NULL and *len 0 after an error; an
 * empty blob is not NULL. */
const uint8_t *wire_get_blob(struct wire_dec *d, size_t limit, size_t *len);

/* A blob of at most limit (and WIRE_STR_MAX) bytes that holds no NUL.  In place and therefore
 * not NUL-terminated; the encoding is not looked at. */
const char *wire_get_str(struct wire_dec *d, size_t limit, size_t *len);

/* The same, copied and terminated; cap is at least 1 and counts the NUL.  "" after an error. */
void wire_get_str_copy(struct wire_dec *d, char *dst, size_t cap);

/* A u32 element count that the rest of the input can hold when each element takes at least
 * min_elem_bytes, and that is at most limit.  0 after an error.  With min_elem_bytes 0 only the
 * limit holds. */
uint32_t wire_dec_count(struct wire_dec *d, size_t min_elem_bytes, uint32_t limit);

/* A decoder over the next n bytes, which are consumed here.  On a short input both decoders
 * carry the error.  An error inside the part stays in the part: that of a whole is checked with
 * wire_dec_end of each. */
struct wire_dec wire_dec_sub(struct wire_dec *d, size_t n);

#endif
