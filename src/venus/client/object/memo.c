/* A chained hash table of byte strings; see memo.h. */
#include "venus/client/object/memo.h"

#include "venus/client/locks.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct vnc_memo_entry {
    struct vnc_memo_entry *next;
    uint64_t hash;
    size_t key_len, len;
    uint8_t bytes[]; /* key, then answer */
};

void vnc_memo_init(struct vnc_memo *memo)
{
    memset(memo, 0, sizeof(*memo));
    vnc_lock_init(&memo->lock);
}

void vnc_memo_fini(struct vnc_memo *memo)
{
    for (size_t i = 0; i < ARRAY_LEN(memo->buckets); i++) {
        struct vnc_memo_entry *entry = memo->buckets[i];
        while (entry) {
            struct vnc_memo_entry *next = entry->next;
            free(entry);
            entry = next;
        }
    }
    vnc_lock_fini(&memo->lock);
}

static struct vnc_memo_entry **bucket_of(struct vnc_memo *memo, uint64_t hash)
{
    return &memo->buckets[hash % ARRAY_LEN(memo->buckets)];
}

static struct vnc_memo_entry *find(struct vnc_memo *memo, uint64_t hash, const void *key,
                                   size_t key_len)
{
    struct vnc_memo_entry *entry = *bucket_of(memo, hash);
    while (entry && (entry->hash != hash || entry->key_len != key_len ||
                     memcmp(entry->bytes, key, key_len) != 0))
        entry = entry->next;
    return entry;
}

bool vnc_memo_find(struct vnc_memo *memo, const void *key, size_t key_len, void *out, size_t len)
{
    uint64_t hash = XXH3_64bits(key, key_len);
    pthread_mutex_lock(&memo->lock);
    struct vnc_memo_entry *entry = find(memo, hash, key, key_len);
    bool found = entry && entry->len == len;
    if (found)
        memcpy(out, entry->bytes + key_len, len);
    pthread_mutex_unlock(&memo->lock);
    return found;
}

bool vnc_memo_has_room(struct vnc_memo *memo)
{
    pthread_mutex_lock(&memo->lock);
    bool has = memo->count + VNC_MEMO_ROOM <= VNC_MEMO_ENTRIES;
    pthread_mutex_unlock(&memo->lock);
    return has;
}

void vnc_memo_add(struct vnc_memo *memo, const void *key, size_t key_len, const void *answer,
                  size_t len)
{
    if (key_len > VNC_MEMO_KEY_BYTES)
        return;
    struct vnc_memo_entry *entry = malloc(sizeof(*entry) + key_len + len);
    if (!entry)
        return;
    *entry =
        (struct vnc_memo_entry){.hash = XXH3_64bits(key, key_len), .key_len = key_len, .len = len};
    memcpy(entry->bytes, key, key_len);
    memcpy(entry->bytes + key_len, answer, len);
    pthread_mutex_lock(&memo->lock);
    if (memo->count < VNC_MEMO_ENTRIES && !find(memo, entry->hash, key, key_len)) {
        struct vnc_memo_entry **bucket = bucket_of(memo, entry->hash);
        entry->next = *bucket;
        *bucket = entry;
        memo->count++;
        entry = NULL;
    }
    pthread_mutex_unlock(&memo->lock);
    free(entry);
}
