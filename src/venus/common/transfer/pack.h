/* venus/common/transfer/pack.h - commands made small by what was said before.
 *
 * What a program sends for one frame or token is nearly what it sent for the last.  Both ends keep
 * the last VN_PACK_WINDOW bytes of packed messages, and a message says only where it differs: one
 * zstd stream for the life of a connection, flushed at the end of every message.  A packed message
 * is {u32 bytes of what it unpacks to, zstd}.  Messages travel on one ordered stream, so both ends
 * have the same past; those above VN_PACK_MAX travel as they are and are no part of it.
 *
 * Trust: unpacking takes a peer's bytes: what they yield is bounded by what they say, and that by
 * VN_PACK_MAX; what does not fit together is -EPROTO.
 * Threads: one at a time.  Lifetime: create/destroy; outputs last until the next call. */
#ifndef HAWSER_VENUS_COMMON_TRANSFER_PACK_H
#define HAWSER_VENUS_COMMON_TRANSFER_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

enum {
    VN_PACK_WINDOW_LOG = 18, /* 256 KiB: a dozen tokens of llama.cpp */
    /* Bulk is bytes of mapped memory, which are packed by rules of their own (memory/delta.h). */
    VN_PACK_MAX = 128 << 10,
};

struct vn_bytes {
    const void *data;
    size_t len;
};

struct vn_packer;

/* 0 or -ENOMEM. */
int vn_packer_create(struct vn_packer **out) MUST_CHECK;
void vn_packer_destroy(struct vn_packer *packer);

/* in->len at most VN_PACK_MAX.  0, or -ENOMEM, after which the packer must not be used again. */
int vn_pack(struct vn_packer *packer, const struct vn_bytes *in, struct vn_bytes *out) MUST_CHECK;

struct vn_unpacker;

int vn_unpacker_create(struct vn_unpacker **out) MUST_CHECK;
void vn_unpacker_destroy(struct vn_unpacker *unpacker);

/* 0 or -EPROTO, after which the unpacker must not be used again. */
int vn_unpack(struct vn_unpacker *unpacker, const struct vn_bytes *in,
              struct vn_bytes *out) MUST_CHECK;

#endif
