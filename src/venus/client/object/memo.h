/* venus/client/object/memo.h - answers that depend on nothing but their question.
 *
 * Trust: keys and answers were encoded or checked before.
 * Threads: any.  Lifetime: init/fini. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_MEMO_H
#define HAWSER_VENUS_CLIENT_OBJECT_MEMO_H

#include "base/attr.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VN_MEMO_ENTRIES = 4096,     /* programs make a few hundred kinds of images */
    VN_MEMO_KEY_BYTES = 1 << 12 /* longer questions are rare and are asked again */
};

struct vn_memo { /* private */
    pthread_mutex_t lock;
    struct vn_memo_entry *buckets[256];
    size_t count;
};

void vn_memo_init(struct vn_memo *memo);
void vn_memo_fini(struct vn_memo *memo);

/* Copies the answer of len bytes to out.  False when there is none of that length. */
bool vn_memo_find(struct vn_memo *memo, const void *key, size_t key_len, void *out, size_t len);
/* Forgets nothing and does nothing when full or out of memory. */
void vn_memo_add(struct vn_memo *memo, const void *key, size_t key_len, const void *answer,
                 size_t len);

#endif
