/* kv/cluster/etcd.h - the messages of etcd's v3 API that members need, in the JSON of its gateway.
 *
 *   KV_ETCD_GRANT    makes a lease: etcd deletes the keys of a lease that nobody renews
 *   KV_ETCD_RENEW    renews a lease
 *   KV_ETCD_REVOKE   ends a lease and deletes its keys
 *   KV_ETCD_TXN      puts a key unless another daemon has it, and reads all keys, atomically
 *   KV_ETCD_LOGIN    gives a token for a name and a password
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
#define KV_ETCD_LOGIN "/v3/auth/authenticate"

enum {
    KV_ETCD_KEY_MAX = 255,      /* ours have a cluster's and a member's name, 63 each */
    KV_ETCD_VALUE_MAX = 511,    /* an address has at most 271 */
    KV_ETCD_REQUEST_MAX = 4096, /* the longest has eight keys and a value in base64 */
    KV_ETCD_TOKEN_CHARS = 768,  /* with NUL; a simple one has 24, a signed one some 300 */
    KV_ETCD_LOGIN_MAX = 255     /* a name or a password */
};

/* ---- requests: text for the body ---- */

/* What an entry reads beside its own key: all keys of a prefix, the oldest first, and the era. */
struct kv_etcd_read {
    const char *prefix; /* ends in '/' */
    const char *era;    /* a key outside of it */
    uint32_t limit;
};

struct kv_etcd_enter {
    struct kv_etcd_read read;
    const char *key, *value;
    uint64_t lease;
    uint64_t guard; /* do it only if the key was last changed in this revision; 0: is not there */
};

void kv_etcd_grant_request(uint64_t ttl_s, char out[KV_ETCD_REQUEST_MAX]);
/* Also of a revocation. */
void kv_etcd_lease_request(uint64_t lease, char out[KV_ETCD_REQUEST_MAX]);
void kv_etcd_enter_request(const struct kv_etcd_enter *enter, char out[KV_ETCD_REQUEST_MAX]);
/* Only reads; answered as an entry is. */
void kv_etcd_read_request(const struct kv_etcd_read *read, char out[KV_ETCD_REQUEST_MAX]);
/* Puts a key without a lease, under the guard of struct kv_etcd_enter. */
void kv_etcd_put_request(const char *key, const char *value, uint64_t guard,
                         char out[KV_ETCD_REQUEST_MAX]);
/* 0, or -EINVAL for a name or password that is no UTF-8 or too long. */
int kv_etcd_login_request(const char *name, const char *password,
                          char out[KV_ETCD_REQUEST_MAX]) MUST_CHECK;
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
    bool done; /* false: the guard refused, and the pairs reported are the key's present one and
                  the era */
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
int kv_etcd_put_answer(const char *text, size_t len, bool *done_out) MUST_CHECK;
/* One line of a watch.  Pairs may have been reported before an error is found. */
int kv_etcd_watch_answer(const char *text, size_t len, kv_etcd_pair_fn *tell, void *user,
                         struct kv_etcd_news *out) MUST_CHECK;
int kv_etcd_login_answer(const char *text, size_t len,
                         char token_out[KV_ETCD_TOKEN_CHARS]) MUST_CHECK;
/* The error message in an answer; "": none. */
void kv_etcd_error_answer(const char *text, size_t len, char out[RPC_WHY_CHARS]);

#endif
