/* A chained hash table of byte strings; see memo.h. */
#include "venus/client/object/memo.h"

#include "venus/client/locks.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct vn_memo_entry {
    struct vn_memo_entry *next;
    uint64_t hash;
    size_t key_len, len;
    uint8_t bytes[]; /* key, then answer */
};

void vn_memo_init(struct vn_memo *memo)
{
    memset(memo, 0, sizeof(*memo));
    vn_lock_init(&memo->lock);
}

void vn_memo_fini(struct vn_memo *memo)
{
    for (size_t i = 0; i < ARRAY_LEN(memo->buckets); i++) {
        struct vn_memo_entry *entry = memo->buckets[i];
        while (entry) {
            struct vn_memo_entry *next = entry->next;
            free(entry);
            entry = next;
        }
    }
    vn_lock_fini(&memo->lock);
}

static struct vn_memo_entry **bucket_of(struct vn_memo *memo, uint64_t hash)
{
    return &memo->buckets[hash % ARRAY_LEN(memo->buckets)];
}

static struct vn_memo_entry *find(struct vn_memo *memo, uint64_t hash, const void *key,
                                  size_t key_len)
{
    struct vn_memo_entry *entry = *bucket_of(memo, hash);
    while (entry && (entry->hash != hash || entry->key_len != key_len ||
                     memcmp(entry->bytes, key, key_len) != 0))
        entry = entry->next;
    return entry;
}

bool vn_memo_find(struct vn_memo *memo, const void *key, size_t key_len, void *out, size_t len)
{
    uint64_t hash = XXH3_64bits(key, key_len);
    pthread_mutex_lock(&memo->lock);
    struct vn_memo_entry *entry = find(memo, hash, key, key_len);
    bool found = entry && entry->len == len;
    if (found)
        memcpy(out, entry->bytes + key_len, len);
    pthread_mutex_unlock(&memo->lock);
    return found;
}

void vn_memo_add(struct vn_memo *memo, const void *key, size_t key_len, const void *answer,
                 size_t len)
{
    if (key_len > VN_MEMO_KEY_BYTES)
        return;
    struct vn_memo_entry *entry = malloc(sizeof(*entry) + key_len + len);
    if (!entry)
        return;
    *entry =
        (struct vn_memo_entry){.hash = XXH3_64bits(key, key_len), .key_len = key_len, .len = len};
    memcpy(entry->bytes, key, key_len);
    memcpy(entry->bytes + key_len, answer, len);
    pthread_mutex_lock(&memo->lock);
    if (memo->count < VN_MEMO_ENTRIES && !find(memo, entry->hash, key, key_len)) {
        struct vn_memo_entry **bucket = bucket_of(memo, entry->hash);
        entry->next = *bucket;
        *bucket = entry;
        memo->count++;
        entry = NULL;
    }
    pthread_mutex_unlock(&memo->lock);
    free(entry);
}
