/* kv/redis/conn.h - a connection to a server that speaks Redis' protocol: requests out, answers in.
 *
 * After an error its place in the stream is not known any more: close it.
 *
 * Trust: the server may answer anything (kv/redis/reply.h).  Threads: one at a time.  Lifetime:
 * open/close. */
#ifndef HAWSER_KV_REDIS_CONN_H
#define HAWSER_KV_REDIS_CONN_H

#include "kv/redis/reply.h"
#include "rpc/security/security.h"
#include "rpc/transport/transport.h"

enum { KV_REDIS_ARGS_MAX = 7 }; /* of a request: two segments each, and the end */

struct kv_redis_arg {
    const void *data;
    size_t len;
};

struct kv_redis_conn {
    struct rpc_transport *transport;
    uint64_t timeout_ns;
    uint64_t deadline_ns; /* of what is under way */
    uint64_t number;      /* the owner's */
    struct kv_redis_reader reader;
};

/* Whom the server is to take us for. */
struct kv_redis_login {
    struct kv_redis_arg user; /* of no bytes: Redis' default user */
    struct kv_redis_arg password;
};

/* login may be NULL.  timeout_ns: to connect, then of each request.  0; -EACCES: the login is
 * refused; or another negative errno, with a sentence in why. */
int kv_redis_conn_open(const struct rpc_addr *addr, const struct rpc_security *security,
                       const struct kv_redis_login *login, uint64_t timeout_ns,
                       struct kv_redis_conn **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
void kv_redis_conn_close(struct kv_redis_conn *conn); /* NULL is fine */

/* What is under way has its whole time again. */
void kv_redis_extend(struct kv_redis_conn *conn);
/* Writes all; changes iov.  Its answer is due within the time from now on. */
int kv_redis_write(struct kv_redis_conn *conn, struct iovec *iov, int count) MUST_CHECK;
/* The same of a request. */
int kv_redis_ask(struct kv_redis_conn *conn, const struct kv_redis_arg *args,
                 unsigned count) MUST_CHECK;
/* Why a call failed: the transport may know more than its errno. */
const char *kv_redis_cause(const struct kv_redis_conn *conn, int rc);

#endif
