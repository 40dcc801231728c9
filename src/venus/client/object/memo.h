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
    VNC_MEMO_ENTRIES =
        16384,           /* a few hundred kinds of images; some 60 questions about each format */
    VNC_MEMO_ROOM = 512, /* formats of Vulkan: some 300 */
    VNC_MEMO_KEY_BYTES = 1 << 12 /* longer questions are rare and are asked again */
};

struct vnc_memo { /* private */
    pthread_mutex_t lock;
    struct vnc_memo_entry *buckets[1024];
    size_t count;
};

void vnc_memo_init(struct vnc_memo *memo);
void vnc_memo_fini(struct vnc_memo *memo);

/* Copies the answer of len bytes to out.  False when there is none of that length. */
bool vnc_memo_find(struct vnc_memo *memo, const void *key, size_t key_len, void *out, size_t len);
/* Whether another VNC_MEMO_ROOM answers can be added. */
bool vnc_memo_has_room(struct vnc_memo *memo);
/* Forgets nothing and does nothing when full or out of memory. */
void vnc_memo_add(struct vnc_memo *memo, const void *key, size_t key_len, const void *answer,
                  size_t len);

#endif
