/* What a peer brings on two stripes, while a few uploads are open one after the other: take answers
 * 0 or what is wrong, and nothing changes but the range of an upload that was open.
 *
 * Two bytes say how much of the rest is the first stripe's, the third how it is received.  Both
 * stripes are closed once all is sent.  Chunks of uploads that never come would be waited for all
 * the same, as long as the client is there; so a third stripe closes soon, which is a fault. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "fuzz.h"
#include "rpc/transport/net.h"
#include "venus/common/transfer/stripe.h"
#include "venus/memory/pageset.h"
#include "venus/server/upload/arrivals.h"

enum {
    INPUT_MAX = 64 << 10, /* fits the sockets */
    INPUT_HEAD = 3,
    STORES = 1, /* of the third byte */
    SPINS = 2,
    MEMORY_BYTES = 8 * VN_PAGE_BYTES,
    GUARD_BYTES = VN_CHUNK_BYTES,
    IMAGE_BYTES = MEMORY_BYTES + 2 * GUARD_BYTES,
    BRINGING = 2, /* stripes */
    STRIPES,
};

static const uint64_t stuck_ns = 5 * HW_MS;

struct range {
    uint64_t memory, off, len;
};

static const struct range uploads[] = {
    {1, VN_PAGE_BYTES, VN_PAGE_BYTES + 50},
    {2, 0, VN_PAGE_BYTES + 100},
    {1, 4 * VN_PAGE_BYTES, 0},
    {1, 6 * VN_PAGE_BYTES, 16},
};

static uint8_t found[IMAGE_BYTES], before[IMAGE_BYTES]; /* guard, memory, guard */

struct rig {
    bool stores;
    const struct range *open;
};

static uint8_t *at(struct rig *r, uint64_t memory, uint64_t off, size_t len)
{
    const struct range *open = r->open;
    require(memory == open->memory && off >= open->off && off <= open->off + open->len &&
            len <= open->off + open->len - off && len <= VN_CHUNK_BYTES);
    return found + GUARD_BYTES + off;
}

static uint8_t *place(void *user, uint64_t memory, uint64_t off, size_t len)
{
    struct rig *r = user;
    uint8_t *to = at(r, memory, off, len);
    return r->stores ? NULL : to;
}

static int store(void *user, uint64_t memory, uint64_t off, const void *bytes, size_t len)
{
    memcpy(at(user, memory, off, len), bytes, len);
    return 0;
}

static const struct vns_arrival_ops ops = {.place = place, .store = store};

static void send_and_close(struct rpc_transport *t, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        struct iovec iov = {(void *)(uintptr_t)bytes, len};
        ssize_t n = t->ops->send(t, &iov, 1);
        require(n > 0);
        bytes += n;
        len -= (size_t)n;
    }
    rpc_transport_destroy(t);
}

/* ---- the third stripe ---- */

struct guard {
    struct rpc_transport *stripe;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over;
    pthread_t thread;
};

static void *guard_main(void *arg)
{
    struct guard *g = arg;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)stuck_ns;
    if (until.tv_nsec >= (long)HW_SEC) {
        until.tv_nsec -= (long)HW_SEC;
        until.tv_sec++;
    }
    pthread_mutex_lock(&g->lock);
    while (!g->over && pthread_cond_timedwait(&g->ended, &g->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&g->lock);
    rpc_transport_destroy(g->stripe);
    return NULL;
}

static void guard_start(struct guard *g, struct rpc_transport *stripe)
{
    *g = (struct guard){.stripe = stripe};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->ended, NULL);
    require(pthread_create(&g->thread, NULL, guard_main, g) == 0);
}

static void guard_end(struct guard *g)
{
    pthread_mutex_lock(&g->lock);
    g->over = true;
    pthread_cond_signal(&g->ended);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    pthread_cond_destroy(&g->ended);
    pthread_mutex_destroy(&g->lock);
}

/* ---- uploads ---- */

static void expect_unchanged(size_t from, size_t to)
{
    require(memcmp(found + from, before + from, to - from) == 0);
}

/* How many are taken before one is refused; that one included. */
static size_t take_all(struct vns_arrivals *arrivals, struct rig *r)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < ARRAY_LEN(uploads); i++) {
        size_t from = GUARD_BYTES + uploads[i].off;
        r->open = &uploads[i];
        memcpy(before, found, sizeof(before));
        int rc = vns_arrivals_take(arrivals, r->open->memory, r->open->off, r->open->len);
        if (rc) {
            require(rc == -EPROTO || rc == -ESHUTDOWN);
            require(vns_arrivals_take(arrivals, r->open->memory, r->open->off, 0) == rc);
            return i + 1;
        }
        bytes += r->open->len;
        require(vns_arrivals_bytes(arrivals) == bytes);
        expect_unchanged(0, from);
        expect_unchanged(from + r->open->len, IMAGE_BYTES);
    }
    return ARRAY_LEN(uploads);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rpc_transport *client[STRIPES], *server[STRIPES];
    struct vns_arrivals *arrivals;
    struct guard guard;
    if (size < INPUT_HEAD || size > INPUT_MAX)
        return 0;
    struct rig r = {.stores = data[2] & STORES};
    bool spins = data[2] & SPINS;
    size_t first = (size_t)(data[0] | data[1] << 8);
    data += INPUT_HEAD;
    size -= INPUT_HEAD;
    if (first > size)
        first = size;
    for (int i = 0; i < STRIPES; i++) {
        struct rpc_transport *ends[2];
        require(rpc_unix_pair(ends) == 0);
        client[i] = ends[0];
        server[i] = ends[1];
    }
    memset(found, 0xee, sizeof(found));
    require(vns_arrivals_create(server, STRIPES, spins, &ops, &r, &arrivals) == 0);
    send_and_close(client[0], data, first);
    send_and_close(client[1], data + first, size - first);
    guard_start(&guard, client[BRINGING]);
    size_t last = take_all(arrivals, &r) - 1;
    guard_end(&guard);
    vns_arrivals_destroy(arrivals);
    size_t from = GUARD_BYTES + uploads[last].off;
    expect_unchanged(0, from);
    expect_unchanged(from + uploads[last].len, IMAGE_BYTES);
    return 0;
}
