/* kv/cluster/etcd.h - the messages of etcd's v3 API that members need, in the JSON of its gateway.
 *
 *   KV_ETCD_GRANT    makes a lease: etcd deletes the keys of a lease that nobody renews
 *   KV_ETCD_RENEW    renews a lease
 *   KV_ETCD_REVOKE   ends a lease and deletes its keys
 *   KV_ETCD_TXN      puts a key unless another daemon has it, and reads all keys, atomically
 *   KV_ETCD_WATCH    an endless answer: a line for every change
 *
 * In this JSON 64-bit numbers are strings, zeros are left out, and keys and values are base64.
 *
 * Trust: answers may hold anything.  Their size is bounded by the reader (KV_POST_BODY_MAX);
 * jansson parses them and nests at most 2048 deep; the limits below cut texts.  Threads: any.
 * Lifetime: no state; a pair is valid only during its callback. */
#ifndef HAWSER_KV_CLUSTER_ETCD_H
#define HAWSER_KV_CLUSTER_ETCD_H

#include "base/attr.h"
#include "rpc/transport/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_ETCD_GRANT "/v3/lease/grant"
#define KV_ETCD_RENEW "/v3/lease/keepalive"
#define KV_ETCD_REVOKE "/v3/lease/revoke"
#define KV_ETCD_TXN "/v3/kv/txn"
#define KV_ETCD_WATCH "/v3/watch"

enum {
    KV_ETCD_KEY_MAX = 255,     /* ours have a cluster's and a member's name, 63 each */
    KV_ETCD_VALUE_MAX = 511,   /* an address has at most 271 */
    KV_ETCD_REQUEST_MAX = 4096 /* the longest has four keys and a value in base64 */
};

/* ---- requests: text for the body ---- */

struct kv_etcd_enter {
    const char *prefix; /* of the keys to read; ends in '/' */
    const char *key, *value;
    uint64_t lease;
    uint64_t guard; /* do it only if the key was last changed in this revision; 0: is not there */
    uint32_t limit; /* keys to read, the oldest first */
};

void kv_etcd_grant_request(uint64_t ttl_s, char out[KV_ETCD_REQUEST_MAX]);
/* Also of a revocation. */
void kv_etcd_lease_request(uint64_t lease, char out[KV_ETCD_REQUEST_MAX]);
void kv_etcd_enter_request(const struct kv_etcd_enter *enter, char out[KV_ETCD_REQUEST_MAX]);
/* All changes under the prefix from `revision` on. */
void kv_etcd_watch_request(const char *prefix, uint64_t revision, char out[KV_ETCD_REQUEST_MAX]);

/* ---- answers: 0, or -EBADMSG for what is none, or when there is no memory to read it ---- */

/* A key and its value; texts, "" where they hold a NUL or are longer than ours can be. */
struct kv_etcd_pair {
    const char *key, *value;
    uint64_t lease, revision; /* of its last change */
    bool deleted;
};
typedef void kv_etcd_pair_fn(void *user, const struct kv_etcd_pair *pair);

struct kv_etcd_entered {
    bool done; /* false: the guard refused, and the one pair reported is the key's present one */
    uint64_t revision;
};

struct kv_etcd_news {
    uint64_t revision; /* etcd's own; 0: it does not say */
    bool ended;        /* the watch has ended */
    bool compacted;    /* because the revision was compacted: read all keys again */
};

int kv_etcd_grant_answer(const char *text, size_t len, uint64_t *lease_out,
                         uint64_t *ttl_s_out) MUST_CHECK;
/* The time is 0 when the lease is gone. */
int kv_etcd_renew_answer(const char *text, size_t len, uint64_t *ttl_s_out) MUST_CHECK;
int kv_etcd_enter_answer(const char *text, size_t len, kv_etcd_pair_fn *tell, void *user,
                         struct kv_etcd_entered *out) MUST_CHECK;
/* One line of a watch.  Pairs may have been reported before an error is found. */
int kv_etcd_watch_answer(const char *text, size_t len, kv_etcd_pair_fn *tell, void *user,
                         struct kv_etcd_news *out) MUST_CHECK;
/* The error message in an answer; "": none. */
void kv_etcd_error_answer(const char *text, size_t len, char out[RPC_WHY_CHARS]);

#endif
