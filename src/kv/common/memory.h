/* kv/common/memory.h - where a daemon's memory comes from, so that tests can make it run out.
 *
 * Threads: the owner's.  Lifetime: the functions outlive what they allocated. */
#ifndef HAWSER_KV_COMMON_MEMORY_H
#define HAWSER_KV_COMMON_MEMORY_H

#include <stddef.h>
#include <stdlib.h>

struct kv_memory {
    void *(*alloc)(void *user, size_t bytes); /* zeroed, or NULL */
    void (*release)(void *user, void *block); /* NULL is fine */
    void *user;
};

static inline void *kv_heap_alloc(void *user, size_t bytes)
{
    (void)user;
    return calloc(1, bytes);
}

static inline void kv_heap_release(void *user, void *block)
{
    (void)user;
    free(block);
}

static inline struct kv_memory kv_heap(void)
{
    return (struct kv_memory){.alloc = kv_heap_alloc, .release = kv_heap_release};
}

#endif
