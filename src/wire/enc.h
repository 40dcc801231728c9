/* wire/enc.h - bounded little-endian encoder with a sticky error.
 *
 * Trust: encodes our own values; nothing here comes from a peer.
 * Threads: one at a time per encoder.
 * Lifetime: struct wire_enc lives in the caller's memory, init/fini.  A growing encoder owns its
 * bytes until fini; a fixed one writes into the caller's buffer and never allocates.  Pointers
 * into the bytes hold until the next put; offsets hold until the next trim or reset.
 *
 * Limits: the most bytes an encoder may ever hold is demanded at init.
 *
 * Errors: the first failure (-ENOMEM, or -EMSGSIZE past the maximum) sticks.  Later puts do
 * nothing, so callers put straight through and ask wire_enc_error once, before sending.
 *
 * Invariant: base <= at <= end.  After an error end == at, which sends every put of at least one
 * byte to the out-of-line path, so that the inline path needs no test of its own for errors. */
#ifndef HAWSER_WIRE_ENC_H
#define HAWSER_WIRE_ENC_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/attr.h"
#include "wire/le.h"
#include "wire/limits.h"

/* Fields are private; they stand here for the inline calls. */
struct wire_enc {
    uint8_t *at;
    uint8_t *end;
    uint8_t *base;
    size_t cap;
    size_t max;
    int err;
    bool fixed;
};

/* Grows up to max bytes.  Allocates nothing yet; free with wire_enc_fini. */
void wire_enc_init(struct wire_enc *e, size_t max);

/* Writes into buf[0..len), which must outlive the encoder and be read as bytes (see the puts). */
void wire_enc_init_fixed(struct wire_enc *e, void *buf, size_t len);

/* Frees what the encoder owns.  A second call is harmless. */
void wire_enc_fini(struct wire_enc *e);

/* Empty again and without error; the memory is kept for the next message. */
void wire_enc_reset(struct wire_enc *e);

/* Makes room for n more bytes, or sets the error.  True when the room is there.  The inline
 * calls use it when they run out; a caller uses it to pay for growth once, ahead of many puts. */
bool wire_enc_room(struct wire_enc *e, size_t n) __attribute__((cold));

/* Sets the sticky error (a negative errno) unless one is set. */
void wire_enc_fail(struct wire_enc *e, int err);

/* 0, or the first error. */
static inline int wire_enc_error(const struct wire_enc *e)
{
    return e->err;
}

/* Bytes put so far.  After an error this is the length of a message that must not be sent. */
static inline size_t wire_enc_len(const struct wire_enc *e)
{
    return (size_t)(e->at - e->base);
}

/* The bytes put so far; never NULL. */
static inline const uint8_t *wire_enc_data(const struct wire_enc *e)
{
    return e->base;
}

/* Appends n >= 1 bytes for the caller to fill, at once and completely.  NULL after an error.  For
 * runs of fixed-size fields: one check for all of them. */
static inline uint8_t *wire_enc_space(struct wire_enc *e, size_t n)
{
    if (UNLIKELY((size_t)(e->end - e->at) < n) && !wire_enc_room(e, n))
        return NULL;
    uint8_t *p = e->at;
    e->at += n;
    return p;
}

/* Forgets everything past the first len bytes; len is at most wire_enc_len. */
static inline void wire_enc_trim(struct wire_enc *e, size_t len)
{
    assert(len <= wire_enc_len(e));
    if (!e->err)
        e->at = e->base + len;
}

/* The puts store through integer types, not bytes: a byte store might, for all the compiler
 * knows, change the encoder's own pointers, and it would reload them after every put, at three
 * times the cost.  The bytes are for reading as bytes, by wire/dec.h or memcpy. */
typedef uint16_t wire_any16 __attribute__((aligned(1)));
typedef uint32_t wire_any32 __attribute__((aligned(1)));
typedef uint64_t wire_any64 __attribute__((aligned(1)));

static inline void wire_put_u8(struct wire_enc *e, uint8_t v)
{
    if (UNLIKELY(e->end == e->at) && !wire_enc_room(e, 1))
        return;
    *e->at++ = v;
}

static inline void wire_put_u16(struct wire_enc *e, uint16_t v)
{
    if (UNLIKELY((size_t)(e->end - e->at) < 2) && !wire_enc_room(e, 2))
        return;
    *(wire_any16 *)e->at = v;
    e->at += 2;
}

static inline void wire_put_u32(struct wire_enc *e, uint32_t v)
{
    if (UNLIKELY((size_t)(e->end - e->at) < 4) && !wire_enc_room(e, 4))
        return;
    *(wire_any32 *)e->at = v;
    e->at += 4;
}

static inline void wire_put_u64(struct wire_enc *e, uint64_t v)
{
    if (UNLIKELY((size_t)(e->end - e->at) < 8) && !wire_enc_room(e, 8))
        return;
    *(wire_any64 *)e->at = v;
    e->at += 8;
}

static inline void wire_put_i32(struct wire_enc *e, int32_t v)
{
    wire_put_u32(e, (uint32_t)v);
}

static inline void wire_put_i64(struct wire_enc *e, int64_t v)
{
    wire_put_u64(e, (uint64_t)v);
}

/* Floats travel as their IEEE 754 bits; NaN payloads survive. */
static inline void wire_put_f32(struct wire_enc *e, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    wire_put_u32(e, bits);
}

static inline void wire_put_f64(struct wire_enc *e, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    wire_put_u64(e, bits);
}

/* LEB128: 7 bits a byte, least significant group first, as few bytes as hold the value. */
void wire_put_varint_long(struct wire_enc *e, uint64_t v);

static inline void wire_put_varint(struct wire_enc *e, uint64_t v)
{
    if (LIKELY(v < 0x80))
        wire_put_u8(e, (uint8_t)v);
    else
        wire_put_varint_long(e, v);
}

/* n bytes as they are; the reader must know n. */
static inline void wire_put_bytes(struct wire_enc *e, const void *src, size_t n)
{
    if (n == 0 || (UNLIKELY((size_t)(e->end - e->at) < n) && !wire_enc_room(e, n)))
        return;
    memcpy(e->at, src, n);
    e->at += n;
}

/* Varint length, then the bytes. */
void wire_put_blob(struct wire_enc *e, const void *src, size_t n);

/* As a blob, without its NUL.  Past WIRE_STR_MAX: -EMSGSIZE. */
void wire_put_str(struct wire_enc *e, const char *s);

/* A u32 to be known later: put the hole, keep what it returns, fill it.  Holes nest in any
 * order.  After an error both calls do nothing. */
static inline size_t wire_put_hole_u32(struct wire_enc *e)
{
    size_t hole = wire_enc_len(e);
    wire_put_u32(e, 0);
    return hole;
}

static inline void wire_fill_u32(struct wire_enc *e, size_t hole, uint32_t v)
{
    if (UNLIKELY(e->err))
        return;
    assert(hole + 4 <= wire_enc_len(e));
    wire_store32(e->base + hole, v);
}

/* Fills the hole with the number of bytes put since it.  -EMSGSIZE sticks past UINT32_MAX. */
void wire_fill_len(struct wire_enc *e, size_t hole);

#endif
