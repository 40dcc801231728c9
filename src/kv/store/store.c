#include "kv/store/store.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct entry {
    struct kv_key key;
    uint32_t len;
    uint32_t used;
    union {
        uint8_t bytes[KV_STORE_INLINE]; /* len <= KV_STORE_INLINE */
        uint8_t *block;                 /* longer */
    } value;
};
_Static_assert(sizeof(struct entry) == HW_CACHE_LINE, "one line an entry");

struct kv_store {
    struct kv_store_config config;
    struct entry *table;
    uint32_t mask;
    uint32_t count;
    uint64_t bytes;
};

static uint32_t table_size(uint32_t entries)
{
    uint32_t size = KV_STORE_ENTRIES_MIN;
    while (size - size / 8 < entries)
        size *= 2;
    return size;
}

int kv_store_create(const struct kv_store_config *config, struct kv_store **out)
{
    if (config->entries == 0 || config->entries > KV_STORE_ENTRIES_MAX ||
        config->value_max > KV_VALUE_MAX)
        return -EINVAL;
    const struct kv_memory *m = &config->memory;
    struct kv_store *s = m->alloc(m->user, sizeof(*s));
    if (!s)
        return -ENOMEM;
    uint32_t size = table_size(config->entries);
    s->config = *config;
    s->mask = size - 1;
    s->table = m->alloc(m->user, (size_t)size * sizeof(struct entry));
    if (!s->table) {
        m->release(m->user, s);
        return -ENOMEM;
    }
    *out = s;
    return 0;
}

static void release_value(const struct kv_store *s, const struct entry *e)
{
    if (e->len > KV_STORE_INLINE)
        s->config.memory.release(s->config.memory.user, e->value.block);
}

void kv_store_destroy(struct kv_store *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; s->count > 0 && i <= s->mask; i++) {
        if (!s->table[i].used)
            continue;
        release_value(s, &s->table[i]);
        s->count--;
    }
    struct kv_memory m = s->config.memory;
    m.release(m.user, s->table);
    m.release(m.user, s);
}

static uint32_t home_of(const struct kv_store *s, struct kv_key key)
{
    uint64_t h = kv_mix(key.lo ^ s->config.secret);
    return (uint32_t)kv_mix(h + key.hi) & s->mask;
}

/* The key's entry, or the free one where it would go. */
static struct entry *find(const struct kv_store *s, struct kv_key key)
{
    uint32_t i = home_of(s, key);
    while (s->table[i].used && (s->table[i].key.lo != key.lo || s->table[i].key.hi != key.hi))
        i = (i + 1) & s->mask;
    return &s->table[i];
}

struct kv_outcome kv_store_execute(struct kv_store *s, enum kv_op op, struct kv_key key,
                                   const void *value, uint32_t len)
{
    struct kv_outcome out = {.result = KV_REFUSED};
    switch (op) {
    case KV_GET:
        out.result = kv_store_get(s, key, &out.value, &out.len);
        break;
    case KV_PUT:
        out.result = kv_store_put(s, key, value, len);
        break;
    case KV_DELETE:
        out.result = kv_store_delete(s, key);
        break;
    case KV_OP_END:
    case KV_BLOCK:
        break;
    }
    return out;
}

void kv_store_prefetch(const struct kv_store *s, struct kv_key key)
{
    __builtin_prefetch(&s->table[home_of(s, key)]);
}

enum kv_result kv_store_get(const struct kv_store *s, struct kv_key key, const void **value,
                            uint32_t *len)
{
    const struct entry *e = find(s, key);
    if (!e->used)
        return KV_MISS;
    *value = e->len > KV_STORE_INLINE ? e->value.block : e->value.bytes;
    *len = e->len;
    return KV_OK;
}

/* Where the new value goes: the entry itself, or a block of its own.  NULL when out of memory. */
static uint8_t *place_value(const struct kv_store *s, struct entry *e, uint32_t len)
{
    bool was_block = e->used && e->len > KV_STORE_INLINE;
    if (len <= KV_STORE_INLINE) {
        if (was_block)
            release_value(s, e);
        return e->value.bytes;
    }
    if (was_block && e->len == len)
        return e->value.block;
    uint8_t *block = s->config.memory.alloc(s->config.memory.user, len);
    if (!block)
        return NULL;
    if (was_block)
        release_value(s, e);
    e->value.block = block;
    return block;
}

enum kv_result kv_store_put(struct kv_store *s, struct kv_key key, const void *value, uint32_t len)
{
    if (len > s->config.value_max)
        return KV_TOO_LARGE;
    struct entry *e = find(s, key);
    uint64_t before = e->used ? e->len : 0;
    if (s->bytes - before + len > s->config.bytes || (!e->used && s->count >= s->config.entries))
        return KV_FULL;
    uint8_t *to = place_value(s, e, len);
    if (!to)
        return KV_FULL;
    if (len)
        memcpy(to, value, len);
    s->count += !e->used;
    s->bytes += len - before;
    e->key = key;
    e->len = len;
    e->used = 1;
    assert(s->count <= s->mask); /* one entry is always free, so searches end */
    return KV_OK;
}

/* Moves entries back into the hole, until the run ends. */
static void close_gap(struct kv_store *s, uint32_t hole)
{
    for (uint32_t i = (hole + 1) & s->mask; s->table[i].used; i = (i + 1) & s->mask) {
        uint32_t home = home_of(s, s->table[i].key);
        if (((i - home) & s->mask) < ((i - hole) & s->mask))
            continue; /* its home is behind the hole: a moved entry would not be found */
        s->table[hole] = s->table[i];
        hole = i;
    }
    s->table[hole].used = 0;
}

enum kv_result kv_store_delete(struct kv_store *s, struct kv_key key)
{
    struct entry *e = find(s, key);
    if (!e->used)
        return KV_MISS;
    release_value(s, e);
    assert(s->count > 0 && s->bytes >= e->len);
    s->count--;
    s->bytes -= e->len;
    close_gap(s, (uint32_t)(e - s->table));
    return KV_OK;
}

uint64_t kv_store_bytes(const struct kv_store *s)
{
    return s->bytes;
}

uint32_t kv_store_count(const struct kv_store *s)
{
    return s->count;
}
