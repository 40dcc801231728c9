/* kv/client/client_impl.h - what blocks.c needs from client.c; private to the two.
 *
 * Threads: the client's.  Lifetime: the client's. */
#ifndef HAWSER_KV_CLIENT_CLIENT_IMPL_H
#define HAWSER_KV_CLIENT_CLIENT_IMPL_H

#include "kv/client/client.h"
#include "kv/common/arena.h"
#include "kv/store/extents.h"

enum { KV_UNDONE_MAX = 64 }; /* puts with one daemon; what is beyond is not used again */

/* The blocks of one daemon as a client sees them. */
struct kv_block_link {
    struct kv_arena arena;
    uint8_t *staging;
    struct kv_extents *staged; /* which parts of the staging area are in use; NULL: no blocks */
    /* Puts whose abort was not answered: the daemon may still read what they have staged. */
    struct kv_block_put undone[KV_UNDONE_MAX];
    uint32_t undone_count;
};

/* Of the daemon that is responsible for the key. */
struct kv_block_link *kv_client_block_link(struct kv_client *client, struct kv_key key);
/* The longest request about blocks. */
uint32_t kv_client_value_max(const struct kv_client *client);

/* A request about blocks and its answer; nothing else may be in flight.  *answer_len is set with
 * KV_OK only, *asked_ns always. */
enum kv_result kv_client_block_ask(struct kv_client *client, struct kv_key key, const void *payload,
                                   uint32_t len, void *answer, uint32_t size, uint32_t *answer_len,
                                   uint64_t *asked_ns);
/* A request without waiting for its answer.  False: no request slot is free, or the daemon is gone.
 */
bool kv_client_block_tell(struct kv_client *client, struct kv_key key, const void *payload,
                          uint32_t len);

#endif
