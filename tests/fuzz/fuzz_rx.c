/* A whole endpoint under a hostile peer.  The peer's hello is a good one; everything after it is
 * the input, which arrives in pieces, between stalls, while the owner answers, holds and lets go
 * of messages as a generator seeded by the input says.  The first byte chooses the role, the next
 * the seed.  A sanitizer must stay quiet and what the peer makes us hold must stay within the
 * window it was given. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "rpc/endpoint/handshake.h"
#include "rpc/rpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WINDOW = RPC_WINDOW_MIN, CALLS = RPC_CALLS_MIN, HELD_MAX = 16, TURNS_MAX = 2000 };

static volatile uint8_t touched; /* keeps reads that only a sanitizer cares about */

static void require(int holds)
{
    if (!holds)
        abort();
}

/* ---- a transport that is the input ---- */

struct feed {
    struct rpc_transport base;
    struct hw_rng rng;
    uint64_t now_ns;
    uint8_t hello[RPC_HS_MESSAGE_MAX];
    size_t hello_len, hello_at;
    const uint8_t *data;
    size_t size, at;
    bool destroyed;
};

static ssize_t feed_send(struct rpc_transport *t, const struct iovec *iov, int count)
{
    struct feed *f = (struct feed *)t;
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        for (size_t k = 0; k < iov[i].iov_len; k += 97)
            touched ^= ((const uint8_t *)iov[i].iov_base)[k];
        total += iov[i].iov_len;
    }
    require(total > 0);
    if (hw_rng_below(&f->rng, 4) == 0)
        return -EAGAIN;
    return 1 + (ssize_t)hw_rng_below(&f->rng, total);
}

static ssize_t feed_recv(struct rpc_transport *t, const struct iovec *iov, int count,
                         uint64_t timeout_ns)
{
    (void)timeout_ns;
    struct feed *f = (struct feed *)t;
    bool hello = f->hello_at < f->hello_len;
    const uint8_t *from = hello ? f->hello + f->hello_at : f->data + f->at;
    size_t left = hello ? f->hello_len - f->hello_at : f->size - f->at;
    if (left == 0)
        return -ESHUTDOWN;
    if (hw_rng_below(&f->rng, 8) == 0)
        return -EAGAIN;
    size_t most = hw_rng_below(&f->rng, 3) == 0 ? 3 : left;
    size_t want = 1 + (size_t)hw_rng_below(&f->rng, most < left ? most : left), got = 0;
    for (int i = 0; i < count && got < want; i++) {
        size_t n = iov[i].iov_len < want - got ? iov[i].iov_len : want - got;
        memcpy(iov[i].iov_base, from + got, n);
        got += n;
    }
    *(hello ? &f->hello_at : &f->at) += got;
    return (ssize_t)got;
}

static int feed_wait(struct rpc_transport *t, unsigned events, uint64_t timeout_ns)
{
    (void)t, (void)events, (void)timeout_ns;
    return 0;
}

static int feed_poll_fd(struct rpc_transport *t)
{
    (void)t;
    return -1;
}

static void feed_destroy(struct rpc_transport *t)
{
    ((struct feed *)t)->destroyed = true;
}

static const struct rpc_transport_ops feed_ops = {
    .name = "input",
    .send = feed_send,
    .recv = feed_recv,
    .wait = feed_wait,
    .poll_fd = feed_poll_fd,
    .destroy = feed_destroy,
};

static uint64_t feed_now(void *user)
{
    return ((struct feed *)user)->now_ns;
}

static void feed_init(struct feed *f, bool accepting, const uint8_t *data, size_t size)
{
    static const uint8_t nonce[RPC_HS_NONCE];
    struct rpc_handshake peer;
    struct rpc_config config = {.accepting = !accepting,
                                .window_bytes = WINDOW,
                                .max_calls = CALLS,
                                .heartbeat_ns = HW_NEVER};
    *f = (struct feed){
        .base = {.ops = &feed_ops, .local = true}, .now_ns = HW_SEC, .data = data, .size = size};
    hw_rng_seed(&f->rng, size > 0 ? data[0] : 0);
    require(rpc_handshake_init(&peer, &config, nonce, true, RPC_USER_UNKNOWN) == 0);
    memcpy(f->hello, peer.out, peer.out_len);
    f->hello_len = peer.out_len;
}

/* ---- the endpoint's owner ---- */

struct owner {
    struct feed *feed;
    struct rpc_ep *ep;
    struct rpc_msg *held[HELD_MAX];
    unsigned calls_begun, calls_ended;
    unsigned placed, left;
};

/* Some large pushes go to memory of their own. */
struct place {
    struct owner *owner;
    uint8_t bytes[];
};

static uint8_t *place(void *user, uint32_t method, const uint8_t *head, size_t len, void **owner)
{
    struct owner *o = user;
    (void)method;
    for (size_t i = 0; i < RPC_LANDING_HEAD; i++)
        touched ^= head[i];
    if (hw_rng_below(&o->feed->rng, 2))
        return NULL;
    struct place *p = malloc(sizeof *p + len);
    require(p != NULL);
    p->owner = o;
    *owner = p;
    o->placed++;
    return p->bytes;
}

static void leave(void *owner)
{
    struct place *p = owner;
    p->owner->left++;
    free(p);
}

static void on_reply(void *user, int status, const struct rpc_msg *reply)
{
    struct owner *o = user;
    require(status <= 0 && (status != 0 || reply != NULL));
    o->calls_ended++;
}

static void make_call(struct owner *o)
{
    static uint8_t payload[4096];
    struct iovec iov = {payload, hw_rng_below(&o->feed->rng, sizeof payload)};
    struct rpc_send send = {.method = 1,
                            .stream = (uint8_t)hw_rng_below(&o->feed->rng, RPC_STREAMS),
                            .iov = &iov,
                            .iov_count = 1,
                            .timeout_ns = HW_SEC};
    unsigned ended = o->calls_ended;
    if (rpc_call(o->ep, &send, on_reply, o, NULL) == 0)
        o->calls_begun++;
    else
        require(o->calls_ended == ended);
}

static void answer(struct owner *o, struct rpc_msg *msg)
{
    static uint8_t payload[RPC_INLINE_BYTES + 1];
    struct iovec iov = {payload, hw_rng_below(&o->feed->rng, sizeof payload)};
    bool fails = hw_rng_below(&o->feed->rng, 4) == 0;
    if (msg->kind == RPC_CALL)
        (void)rpc_reply(o->ep, msg, fails ? -EIO : 0,
                        fails ? NULL : &(struct rpc_send){.iov = &iov, .iov_count = 1});
    rpc_release(o->ep, msg);
}

static void deal_with(struct owner *o, struct rpc_msg *msg)
{
    size_t here = msg->placed ? RPC_LANDING_HEAD : msg->len;
    for (size_t i = 0; i < here; i++)
        touched ^= msg->data[i];
    for (size_t i = here; i < msg->len; i++)
        touched ^= msg->placed[i - here];
    size_t slot = hw_rng_below(&o->feed->rng, HELD_MAX);
    if (hw_rng_below(&o->feed->rng, 2)) {
        answer(o, msg);
        return;
    }
    if (o->held[slot])
        answer(o, o->held[slot]);
    o->held[slot] = msg;
    size_t bytes = 0;
    for (int i = 0; i < HELD_MAX; i++)
        bytes += o->held[i] ? o->held[i]->len + RPC_MESSAGE_COST : 0;
    require(bytes <= WINDOW);
}

static void run(struct owner *o)
{
    for (int turn = 0; turn < TURNS_MAX; turn++) {
        o->feed->now_ns += hw_rng_below(&o->feed->rng, 20 * HW_MS);
        if (hw_rng_below(&o->feed->rng, 8) == 0)
            make_call(o);
        int rc = rpc_poll(o->ep);
        struct rpc_msg *msg;
        while ((msg = rpc_recv(o->ep)) != NULL)
            deal_with(o, msg);
        if (rc < 0) {
            require(rpc_ep_status(o->ep) == rc && rpc_ep_reason(o->ep)[0] != '\0');
            return;
        }
        (void)rpc_flush(o->ep);
    }
}

static void drop_line(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    hw_log_set_sink(drop_line, NULL);
    struct feed feed;
    bool accepting = data[0] & 1;
    feed_init(&feed, accepting, data + 1, size - 1);
    feed.at = 1;
    struct owner owner = {.feed = &feed};
    struct rpc_config config = {.accepting = accepting,
                                .window_bytes = WINDOW,
                                .max_calls = CALLS,
                                .flush = data[0] / 2 % 3,
                                .clock = {feed_now, &feed},
                                .landing = {place, leave, &owner}};
    require(rpc_ep_create(&feed.base, &config, &owner.ep) == 0);
    run(&owner);
    for (int i = 0; i < HELD_MAX; i++)
        if (owner.held[i])
            rpc_release(owner.ep, owner.held[i]);
    rpc_ep_destroy(owner.ep);
    require(feed.destroyed && owner.calls_begun == owner.calls_ended);
    require(owner.placed == owner.left);
    return 0;
}
