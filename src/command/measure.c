#include "command/measure.h"

#include "rpc/methods.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sends what is pending, waits for the peer, takes what came.  0 or the endpoint's status; time
 * without any message is held against *quiet_since. */
static int step(struct rpc_ep *ep, uint64_t timeout_ns, uint64_t *quiet_since)
{
    int rc = rpc_flush(ep);
    if (rc && rc != -EAGAIN && rc != -EINPROGRESS)
        return rc;
    rc = rpc_wait(ep, timeout_ns);
    if (rc && rc != -ETIMEDOUT)
        return rc;
    int messages = rpc_poll(ep);
    if (messages < 0 && messages != -EINPROGRESS)
        return messages;
    if (messages > 0) {
        *quiet_since = 0;
        return 0;
    }
    uint64_t now = hw_now_ns();
    if (!*quiet_since)
        *quiet_since = now;
    return now - *quiet_since >= timeout_ns ? -ETIMEDOUT : 0;
}

int measure_ready(struct rpc_ep *ep, uint64_t timeout_ns)
{
    uint64_t quiet_since = 0;
    int rc = rpc_ep_status(ep);
    while (rc == -EINPROGRESS) {
        rc = step(ep, timeout_ns, &quiet_since);
        if (rc == 0)
            rc = rpc_ep_status(ep);
    }
    return rc;
}

/* ---- one call ---- */

struct one_call {
    void *reply;
    size_t size, len;
    int status;
    bool done;
};

static void one_done(void *user, int status, const struct rpc_msg *reply)
{
    struct one_call *c = user;
    c->done = true;
    c->status = status;
    if (status == 0) {
        c->len = reply->len;
        size_t kept = reply->len < c->size ? reply->len : c->size;
        if (kept)
            memcpy(c->reply, reply->data, kept);
    }
}

int measure_call(struct rpc_ep *ep, uint32_t method, void *reply, size_t size, size_t *len,
                 uint64_t timeout_ns)
{
    struct one_call c = {.reply = reply, .size = size};
    struct rpc_send send = {.method = method, .timeout_ns = timeout_ns};
    uint32_t id;
    uint64_t quiet_since = 0;
    int rc;
    while ((rc = rpc_call(ep, &send, one_done, &c, &id)) != 0) {
        if (rc == -EAGAIN || rc == -ENOBUFS)
            rc = step(ep, timeout_ns, &quiet_since);
        if (rc)
            return rc;
    }
    while (!c.done && rc == 0)
        rc = step(ep, timeout_ns, &quiet_since);
    if (!c.done) {
        (void)rpc_cancel(ep, id); /* c goes away: its callback must have run */
        return rc;
    }
    if (c.status == 0)
        *len = c.len;
    return c.status;
}

/* ---- many calls ---- */

struct slot {
    struct flight *flight;
    uint32_t id;
    bool busy;
};

struct flight {
    const struct measure_calls *m;
    struct slot *slots;
    struct slot **idle; /* a stack of them */
    uint32_t idle_count;
    uint64_t sent, done;
    uint64_t slice_ns; /* when the `depth` answers now awaited began: the first call, or the last
                        * answer of those before */
    int error;
};

static void call_done(void *user, int status, const struct rpc_msg *reply)
{
    struct slot *slot = user;
    struct flight *f = slot->flight;
    if (status == 0 && reply->len != f->m->expect_len)
        status = -EPROTO;
    if (status && !f->error)
        f->error = status;
    f->done++;
    if (f->m->hist && f->done % f->m->depth == 0) {
        uint64_t now = hw_now_ns();
        hw_hist_record(f->m->hist, now - f->slice_ns);
        f->slice_ns = now;
    }
    slot->busy = false;
    assert(f->idle_count < f->m->depth);
    f->idle[f->idle_count++] = slot;
}

/* Starts calls until the depth is reached or the endpoint takes no more. */
static int fill(struct rpc_ep *ep, struct flight *f)
{
    const struct measure_calls *m = f->m;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)m->payload, .iov_len = m->payload_len};
    struct rpc_send send = {.method = m->method,
                            .iov = &iov,
                            .iov_count = m->payload_len ? 1 : 0,
                            .timeout_ns = m->timeout_ns};
    while (f->sent < m->count && f->idle_count > 0) {
        struct slot *slot = f->idle[f->idle_count - 1];
        if (m->hist && m->depth == 1)
            f->slice_ns = hw_now_ns();
        int rc = rpc_call(ep, &send, call_done, slot, &slot->id);
        if (rc == -EAGAIN || rc == -ENOBUFS)
            return 0;
        if (rc)
            return rc;
        slot->busy = true;
        f->idle_count--;
        f->sent++;
    }
    return 0;
}

static int fly(struct rpc_ep *ep, struct flight *f)
{
    uint64_t quiet_since = 0;
    int rc = 0;
    while (f->done < f->m->count && rc == 0 && f->error == 0) {
        rc = fill(ep, f);
        if (rc == 0)
            rc = step(ep, f->m->timeout_ns, &quiet_since);
    }
    /* The slots go away: no callback may come later. */
    for (uint32_t i = 0; i < f->m->depth; i++) {
        if (f->slots[i].busy)
            (void)rpc_cancel(ep, f->slots[i].id);
    }
    return rc ? rc : f->error;
}

int measure_calls(struct rpc_ep *ep, const struct measure_calls *m, uint64_t *elapsed_ns)
{
    assert(m->depth > 0 && m->depth <= MEASURE_DEPTH_MAX && m->payload_len <= MEASURE_BYTES_MAX);
    struct flight f = {.m = m, .idle_count = m->depth};
    f.slots = calloc(m->depth, sizeof(*f.slots));
    f.idle = calloc(m->depth, sizeof(struct slot *));
    int rc = f.slots && f.idle ? 0 : -ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < m->depth; i++) {
        f.slots[i].flight = &f;
        f.idle[i] = &f.slots[i];
    }
    uint64_t start = f.slice_ns = hw_now_ns();
    if (rc == 0)
        rc = fly(ep, &f);
    if (rc == 0)
        *elapsed_ns = hw_now_ns() - start;
    free(f.slots);
    free(f.idle);
    return rc;
}

/* ---- streams ---- */

/* The data outlives the endpoint's interest in it: callers keep it until they destroy it. */
static void nothing_to_do(void *user)
{
    (void)user;
}

/* The last post is followed by a ping on the same stream; its answer means all have arrived. */
int measure_upload(struct rpc_ep *ep, const void *data, size_t len, uint64_t count,
                   uint64_t timeout_ns, struct hw_hist *hist, uint64_t *elapsed_ns)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    uint64_t quiet_since = 0, last = 0, start = hw_now_ns();
    struct rpc_send send = {.method = RPC_METHOD_SINK,
                            .iov = &iov,
                            .iov_count = 1,
                            .sent = nothing_to_do,
                            .lasting = true};
    for (uint64_t i = 0; i < count;) {
        int rc = rpc_post(ep, &send);
        if (rc == 0)
            measure_slice(hist, i++, &last);
        else if (rc == -EAGAIN || rc == -ENOBUFS)
            rc = step(ep, timeout_ns, &quiet_since);
        if (rc)
            return rc;
    }
    size_t unused;
    int rc = measure_call(ep, RPC_METHOD_PING, NULL, 0, &unused, timeout_ns);
    if (rc == 0)
        *elapsed_ns = hw_now_ns() - start;
    return rc;
}

enum cmd_exit measure_print(const char *command, const struct hw_bench *bench, bool json,
                            bool check)
{
    int rc = hw_bench_print(bench, json, stdout);
    if (rc)
        return cmd_output_lost(rc);
    if (check && hw_bench_failed(bench))
        return cmd_fail(CMD_FAILED, "%s: a row missed its target or is invalid", command);
    return CMD_DONE;
}
