#include "duet.h"
#include "unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "venus/common/protocol.h"

static void apply(struct duet *d, const struct rpc_msg *msg)
{
    struct vn_delta_in in;
    struct vn_change change;
    assert_non_null(d->bytes);
    assert_int_equal(vn_delta_open(d->codec, msg->data + 8, msg->len - 8, d->twin.size, &in), 0);
    while (vn_delta_next(&in, &change))
        vn_shadow_merge(&d->twin, d->bytes, &change);
}

static void on_push(void *user, const struct rpc_msg *msg)
{
    struct duet *d = user;
    assert_true(d->count < DUET_PUSHES_MAX);
    struct duet_push *push = &d->pushes[d->count++];
    *push = (struct duet_push){.method = msg->method, .len = msg->len};
    memcpy(push->head, msg->data, msg->len < sizeof(push->head) ? msg->len : sizeof(push->head));
    if (msg->method == VN_PUSH_DELTA)
        apply(d, msg);
}

/* The accepting end's half of the handshake. */
static void *shake_hands(void *arg)
{
    struct rpc_ep *ep = arg;
    while (rpc_ep_status(ep) == -EINPROGRESS) {
        (void)rpc_poll(ep);
        (void)rpc_flush(ep);
        if (rpc_ep_status(ep) == -EINPROGRESS)
            (void)rpc_wait(ep, 10 * HW_MS);
    }
    return NULL;
}

void duet_start(struct duet *d, uint32_t window, uint64_t heartbeat_ns)
{
    struct rpc_transport *ends[2];
    char why[RPC_WHY_CHARS] = "";
    pthread_t thread;
    *d = (struct duet){0};
    assert_int_equal(rpc_unix_pair(ends), 0);
    struct rpc_config server = {.accepting = true, .heartbeat_ns = heartbeat_ns};
    struct rpc_client_options client = {
        .config = {.window_bytes = window, .heartbeat_ns = heartbeat_ns},
        .on_push = on_push,
        .push_user = d};
    assert_int_equal(rpc_ep_create(ends[0], &server, &d->ep), 0);
    assert_int_equal(pthread_create(&thread, NULL, shake_hands, d->ep), 0);
    assert_int_equal(rpc_client_create(ends[1], &client, &d->client, why), 0);
    pthread_join(thread, NULL);
    assert_int_equal(rpc_ep_status(d->ep), 0);
    assert_int_equal(vns_channel_init(&d->channel, d->ep, NULL, NULL), 0);
}

void duet_share(struct duet *d, size_t bytes)
{
    d->bytes = calloc(1, bytes);
    assert_non_null(d->bytes);
    assert_int_equal(vn_shadow_init(&d->twin, bytes), 0);
    assert_int_equal(vn_delta_codec_create(VN_DELTA_ZSTD_MIN, &d->codec), 0);
}

void duet_end(struct duet *d)
{
    vns_channel_fini(&d->channel);
    rpc_client_destroy(d->client);
    rpc_ep_destroy(d->ep);
    vn_shadow_fini(&d->twin);
    vn_delta_codec_destroy(d->codec);
    free(d->bytes);
}

struct wanted {
    const struct duet *d;
    size_t count;
};

static bool came(void *user)
{
    const struct wanted *w = user;
    return w->d->count >= w->count;
}

void duet_wait(struct duet *d, size_t count)
{
    struct wanted w = {d, count};
    assert_int_equal(rpc_client_wait(d->client, came, &w, DUET_PATIENCE_MS * HW_MS), 0);
}

static bool done_came(void *user)
{
    struct wanted *w = user;
    while (w->count < w->d->count && w->d->pushes[w->count].method != VN_PUSH_DONE)
        w->count++;
    return w->count < w->d->count;
}

size_t duet_wait_done(struct duet *d)
{
    struct wanted w = {d, 0};
    assert_int_equal(rpc_client_wait(d->client, done_came, &w, DUET_PATIENCE_MS * HW_MS), 0);
    return w.count;
}

struct duet_done duet_done(const struct duet *d, size_t index)
{
    const struct duet_push *push = &d->pushes[index];
    assert_true(index < d->count);
    assert_int_equal(push->method, VN_PUSH_DONE);
    assert_int_equal(push->len, 20);
    return (struct duet_done){wire_load64(push->head), wire_load64(push->head + 8),
                              (VkResult)wire_load32(push->head + 16)};
}
