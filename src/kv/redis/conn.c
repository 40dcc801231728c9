#include "kv/redis/conn.h"

#include "base/clock.h"
#include "rpc/transport/net.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t time_left(const struct kv_redis_conn *c)
{
    uint64_t now = hw_now_ns();
    return c->deadline_ns > now ? c->deadline_ns - now : 0;
}

void kv_redis_extend(struct kv_redis_conn *c)
{
    c->deadline_ns = hw_now_ns() + c->timeout_ns;
}

static ssize_t read_some(void *user, void *to, size_t len)
{
    struct kv_redis_conn *c = user;
    struct iovec iov = {to, len};
    for (;;) {
        uint64_t left = time_left(c);
        ssize_t n = c->transport->ops->recv(c->transport, &iov, 1, left);
        if (n != -EAGAIN)
            return n;
        if (left == 0)
            return -ETIMEDOUT;
    }
}

int kv_redis_write(struct kv_redis_conn *c, struct iovec *iov, int count)
{
    assert(count <= RPC_IOV_MAX);
    kv_redis_extend(c);
    while (count > 0) {
        ssize_t n = c->transport->ops->send(c->transport, iov, count);
        if (n == -EAGAIN)
            n = c->transport->ops->wait(c->transport, RPC_WAIT_SEND, time_left(c));
        if (n < 0)
            return (int)n;
        int sent = rpc_iov_advance(iov, count, (size_t)n);
        iov += sent;
        count -= sent;
    }
    return 0;
}

int kv_redis_ask(struct kv_redis_conn *c, const struct kv_redis_arg *args, unsigned count)
{
    char heads[KV_REDIS_ARGS_MAX][48], end[] = "\r\n";
    struct iovec iov[2 * KV_REDIS_ARGS_MAX + 1];
    assert(count > 0 && count <= KV_REDIS_ARGS_MAX);
    for (unsigned i = 0; i < count; i++) {
        int n = i ? snprintf(heads[i], sizeof heads[i], "\r\n$%zu\r\n", args[i].len)
                  : snprintf(heads[i], sizeof heads[i], "*%u\r\n$%zu\r\n", count, args[i].len);
        iov[2 * i] = (struct iovec){heads[i], (size_t)n};
        iov[2 * i + 1] = (struct iovec){(void *)(uintptr_t)args[i].data, args[i].len};
    }
    iov[2 * count] = (struct iovec){end, sizeof end - 1};
    return kv_redis_write(c, iov, (int)(2 * count + 1));
}

const char *kv_redis_cause(const struct kv_redis_conn *c, int rc)
{
    const char *reason = c->transport->ops->reason ? c->transport->ops->reason(c->transport) : NULL;
    return reason ? reason : rc == -ESHUTDOWN ? "its end was closed" : strerror(-rc);
}

void kv_redis_conn_close(struct kv_redis_conn *c)
{
    if (c)
        rpc_transport_destroy(c->transport);
    free(c);
}

static int log_in(struct kv_redis_conn *c, const struct kv_redis_login *login,
                  char why[RPC_WHY_CHARS])
{
    struct kv_redis_reply reply;
    bool named = login->user.len > 0;
    struct kv_redis_arg args[3] = {{"AUTH", 4}, login->user};
    args[1 + named] = login->password;
    int rc = kv_redis_ask(c, args, 2 + named);
    if (rc == 0)
        rc = kv_redis_next(&c->reader, &reply);
    if (rc == 0 && reply.kind == KV_REDIS_STATUS)
        return 0;
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "%s", kv_redis_cause(c, rc));
    else
        snprintf(why, RPC_WHY_CHARS, "it refuses name and password: %.150s", reply.text);
    return rc ? rc : -EACCES;
}

int kv_redis_conn_open(const struct rpc_addr *addr, const struct rpc_security *security,
                       const struct kv_redis_login *login, uint64_t timeout_ns,
                       struct kv_redis_conn **out, char why[RPC_WHY_CHARS])
{
    struct rpc_net_options net = {.security = security, .timeout_ns = timeout_ns};
    struct kv_redis_conn *c = calloc(1, sizeof *c);
    snprintf(why, RPC_WHY_CHARS, "no memory");
    if (!c)
        return -ENOMEM;
    c->timeout_ns = timeout_ns;
    kv_redis_reader_init(&c->reader, read_some, c);
    int rc = rpc_dial(addr, &net, &c->transport, why);
    if (rc && rc != -EADDRNOTAVAIL) /* that one tells of the name */
        snprintf(why, RPC_WHY_CHARS, "%s", strerror(-rc));
    else if (rc == 0 && login && login->password.len > 0)
        rc = log_in(c, login, why);
    if (rc) {
        kv_redis_conn_close(c);
        return rc;
    }
    *out = c;
    return 0;
}
