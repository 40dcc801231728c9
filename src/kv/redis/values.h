/* kv/redis/values.h - values by name at another host: a KV daemon's door for Redis clients
 * (kvd --resp), or a Redis.
 *
 * Results: 0; -ENOENT: there is no such value; else a negative errno and a sentence from
 * kv_values_why.  After -EACCES and errors of the connection every call fails.
 *
 * Trust: the server may answer anything.  Threads: one at a time.  Lifetime: open/close. */
#ifndef HAWSER_KV_REDIS_VALUES_H
#define HAWSER_KV_REDIS_VALUES_H

#include "kv/client/named.h"
#include "rpc/security/security.h"

struct kv_values;

struct kv_values_options {
    struct rpc_addr addr;                /* tcp or unix */
    const struct rpc_security *security; /* a token that was given, not found, is the password */
    bool tls;                            /* beyond this host a token needs it */
    uint64_t timeout_ns;                 /* for each request, and for each MiB of a value */
};

/* 0, or a negative errno with cause and remedy in why: -EPERM, -EACCES, those of rpc_dial. */
int kv_values_open(const struct kv_values_options *options, struct kv_values **out,
                   char why[RPC_WHY_CHARS]) MUST_CHECK;
void kv_values_close(struct kv_values *values); /* NULL is fine */
const char *kv_values_why(const struct kv_values *values);

/* Also -EEXIST, with only_new, and -EFBIG. */
int kv_values_set(struct kv_values *values, const struct kv_named_set *set) MUST_CHECK;
/* *data is the caller's to free. */
int kv_values_get(struct kv_values *values, const char *name, size_t name_len, uint8_t **data,
                  uint32_t *len) MUST_CHECK;
int kv_values_length(struct kv_values *values, const char *name, size_t name_len,
                     uint32_t *len) MUST_CHECK;
int kv_values_delete(struct kv_values *values, const char *name, size_t name_len) MUST_CHECK;
/* Names that fit the pattern (NULL: all).  *cursor is 0 at first, and again at the end. */
int kv_values_list(struct kv_values *values, const char *pattern, uint64_t *cursor,
                   kv_named_each *each, void *user) MUST_CHECK;
/* Figures of that host's daemons.  -EPERM: it tells none. */
int kv_values_stat(struct kv_values *values, struct kv_blocks_stat *out) MUST_CHECK;

#endif
