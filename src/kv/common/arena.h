/* kv/common/arena.h - the memory of the blocks: the daemon writes it, its clients read it.
 *
 * The arena is a memfd that the daemon maps for writing and then seals: it cannot shrink or grow,
 * and later mappings and writes cannot change it (F_SEAL_FUTURE_WRITE).  So a client that gets the
 * descriptor can only read.
 *
 * Trust: a client checks seals and size before it maps.  Threads: any.  Lifetime: make or take,
 * then fini; the struct is the caller's. */
#ifndef HAWSER_KV_COMMON_ARENA_H
#define HAWSER_KV_COMMON_ARENA_H

#include "base/attr.h"

#include <stddef.h>
#include <stdint.h>

struct kv_arena {
    uint8_t *map; /* NULL: none */
    size_t bytes;
    int fd; /* -1: none; a client's is closed once mapped */
};

/* 0 or a negative errno. */
int kv_arena_make(size_t bytes, struct kv_arena *out) MUST_CHECK;
/* Takes the descriptor, also on failure.  0, -EPROTO when it is not sealed or has another size, or
 * the errno of mmap. */
int kv_arena_take(int fd, size_t bytes, struct kv_arena *out) MUST_CHECK;
void kv_arena_fini(struct kv_arena *arena);

#endif
