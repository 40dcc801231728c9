#include "base/arena.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hw_arena_block {
    struct hw_arena_block *older;
    size_t size; /* header included */
};

void hw_arena_init(struct hw_arena *arena, size_t max_bytes)
{
    *arena = (struct hw_arena){.max = max_bytes};
}

static void free_blocks(struct hw_arena *arena, struct hw_arena_block *block)
{
    while (block) {
        struct hw_arena_block *older = block->older;
        assert(arena->held >= block->size);
        arena->held -= block->size;
        free(block);
        block = older;
    }
}

void hw_arena_fini(struct hw_arena *arena)
{
    free_blocks(arena, arena->blocks);
    assert(arena->held == 0);
    *arena = (struct hw_arena){0};
}

void hw_arena_reset(struct hw_arena *arena)
{
    if (!arena->blocks)
        return;
    free_blocks(arena, arena->blocks->older);
    arena->blocks->older = NULL;
    arena->used = sizeof(struct hw_arena_block);
}

/* A block with room for `need` bytes after its header. */
static struct hw_arena_block *grow(struct hw_arena *arena, size_t need)
{
    size_t left = arena->max - arena->held;
    if (need > left || left - need < sizeof(struct hw_arena_block))
        return NULL;
    need += sizeof(struct hw_arena_block);
    size_t size = arena->blocks ? arena->blocks->size * 2 : HW_ARENA_BLOCK_MIN;
    if (size > HW_ARENA_BLOCK_MAX)
        size = HW_ARENA_BLOCK_MAX;
    if (size < need)
        size = need;
    if (size > left)
        size = left;
    struct hw_arena_block *block = malloc(size);
    if (!block)
        return NULL;
    *block = (struct hw_arena_block){.older = arena->blocks, .size = size};
    arena->blocks = block;
    arena->used = sizeof *block;
    arena->held += size;
    return block;
}

/* NULL when the newest block has no room. */
static void *carve(struct hw_arena *arena, size_t size, size_t align)
{
    struct hw_arena_block *block = arena->blocks;
    if (!block)
        return NULL;
    uintptr_t at = (uintptr_t)block + arena->used;
    size_t padding = (size_t)(-at & (align - 1));
    size_t left = block->size - arena->used;
    if (padding > left || size > left - padding)
        return NULL;
    arena->used += padding + size;
    return (char *)at + padding;
}

void *hw_arena_alloc(struct hw_arena *arena, size_t size, size_t align)
{
    assert(align > 0 && align <= HW_ARENA_ALIGN_MAX && (align & (align - 1)) == 0);
    void *result = carve(arena, size, align);
    if (result)
        return result;
    if (size > SIZE_MAX - align || !grow(arena, size + align - 1))
        return NULL;
    return carve(arena, size, align);
}

void *hw_arena_calloc(struct hw_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    void *result = hw_arena_alloc(arena, bytes, _Alignof(max_align_t));
    if (result)
        memset(result, 0, bytes);
    return result;
}

char *hw_arena_strdup(struct hw_arena *arena, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = hw_arena_alloc(arena, size, 1);
    return copy ? memcpy(copy, text, size) : NULL;
}

char *hw_arena_vprintf(struct hw_arena *arena, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    char *text = len < 0 ? NULL : hw_arena_alloc(arena, (size_t)len + 1, 1);
    if (text)
        vsnprintf(text, (size_t)len + 1, fmt, again);
    va_end(again);
    return text;
}
