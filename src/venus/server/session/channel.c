/* The endpoint of a session and who waits on it; see channel.h. */
#include "venus/server/session/channel.h"

#include "base/clock.h"
#include "base/log.h"
#include "venus/common/protocol.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

/* The longest a thread beside the reader sleeps before it looks again: only a safety net, since
 * whoever polls wakes it. */
static const uint64_t slice_ns = 50 * HW_MS;
/* Four times in the second after which a client's silence may not be answered with our own. */
static const uint64_t keeper_every_ns = 250 * HW_MS;
static const uint64_t keeper_least_ns = 10 * HW_MS;
/* What a driver call may still take once the client is gone: with the keeper's interval this
 * leaves a quarter of the second in which a dead client's GPU memory is to come back. */
static const uint64_t leave_within_ns = 500 * HW_MS;

/* For a peer to read why it was turned away. */
static const uint64_t linger_ns = 200 * HW_MS;

/* Pieces of an upload follow each other within some 50 us, and to be woken takes longer than that;
 * so the thread that receives ahead is awake for several of them. */
static const uint64_t awake_ns = 300 * HW_US;
/* The executor looks for the next message as long. */
static const uint64_t awake_after_end_ns = VN_PATIENCE_NS;
/* A few times what one recv of a large message takes, and no more than a sleep costs. */
static const uint64_t let_go_ns = 100 * HW_US;

enum {
    /* An endpoint does not say whether it has something to parse, but a look at one that has, or
     * that has ended, returns 0 at once.  A large message comes in fewer reads than this; if not,
     * the rest of one is read under the lock. */
    LOOKS_IN_A_ROW = 32,
    RELAXES_A_LOOK = 64, /* a microsecond or so without the lock */
    TRIES_TO_LOCK = 500, /* some 20 us: past what parsing and a write of credit take */
};

static void sleep_on(struct vns_channel *c, pthread_cond_t *cond, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t at = (uint64_t)until.tv_nsec + ns;
    until.tv_sec += (time_t)(at / HW_SEC);
    until.tv_nsec = (long)(at % HW_SEC);
    pthread_cond_timedwait(cond, &c->lock, &until);
}

static void take_in(struct vns_channel *c)
{
    assert(!c->reading);
    (void)rpc_poll(c->ep); /* a failure is the endpoint's status */
    (void)rpc_flush(c->ep);
    pthread_cond_broadcast(&c->arrived);
}

static bool is_on(const struct vns_ahead *ahead)
{
    return atomic_load_explicit(&ahead->on, memory_order_relaxed);
}

static bool is_reading(const struct vns_ahead *ahead)
{
    return atomic_load_explicit(&ahead->reads, memory_order_relaxed);
}

/* True when the reader was the thread that receives ahead, the upload is over, and so nobody reads
 * any more: it is not worth a sleep. */
static bool await_ahead(struct vns_channel *c)
{
    if (!is_reading(&c->ahead) || is_on(&c->ahead))
        return false;
    vns_channel_unlock(c);
    uint64_t start = hw_now_ns();
    while (is_reading(&c->ahead) && hw_now_ns() - start < let_go_ns)
        hw_cpu_relax();
    vns_channel_lock(c);
    return !is_reading(&c->ahead);
}

/* Another thread reads; this one helps to get the send queue out, or sleeps. */
static void wait_beside_reader(struct vns_channel *c)
{
    if (await_ahead(c))
        return;
    if (!rpc_send_blocked(c->ep)) {
        sleep_on(c, &c->arrived, slice_ns);
        return;
    }
    struct rpc_transport *t = rpc_ep_transport(c->ep);
    vns_channel_unlock(c);
    (void)t->ops->wait(t, RPC_WAIT_SEND, slice_ns);
    vns_channel_lock(c);
    (void)rpc_flush(c->ep);
}

static void wait_once(struct vns_channel *c)
{
    if (c->reading) {
        wait_beside_reader(c);
        return;
    }
    struct rpc_transport *t = rpc_ep_transport(c->ep);
    uint64_t now = hw_now_ns(), tick = rpc_next_tick(c->ep);
    uint64_t left = tick > now ? tick - now : 0;
    uint64_t quiet = c->quiet_until_ns > now ? c->quiet_until_ns - now : 0;
    c->reading = true;
    vns_channel_unlock(c);
    if (quiet)
        (void)t->ops->wait(t, RPC_WAIT_RECV, quiet < left ? quiet : left);
    else
        (void)rpc_wait_bytes(c->ep, left);
    vns_channel_lock(c);
    c->reading = false;
    take_in(c);
}

/* A client that closed in order wants what it had sent to be done; of one that died nobody does. */
static bool may_execute(const struct vns_channel *c)
{
    int status = rpc_ep_status(c->ep);
    return status == 0 || status == -ESHUTDOWN;
}

struct rpc_msg *vns_channel_receive(struct vns_channel *c)
{
    struct rpc_msg *msg = NULL;
    vns_channel_lock(c);
    c->executing = false;
    (void)rpc_flush(c->ep);
    while (may_execute(c) && (msg = rpc_recv(c->ep)) == NULL && rpc_ep_status(c->ep) == 0)
        wait_once(c);
    c->executing = true;
    vns_channel_unlock(c);
    return msg;
}

void vns_channel_expect(struct vns_channel *c, uint64_t ns)
{
    vns_channel_lock(c);
    c->quiet_until_ns = ns;
    vns_channel_unlock(c);
}

struct rpc_msg *vns_channel_poll(struct vns_channel *c)
{
    vns_channel_lock(c);
    struct rpc_msg *msg = may_execute(c) ? rpc_recv(c->ep) : NULL;
    if (!msg && !c->reading) {
        take_in(c);
        msg = may_execute(c) ? rpc_recv(c->ep) : NULL;
    }
    vns_channel_unlock(c);
    return msg;
}

/* While one thread stores an upload and another receives, neither holds the lock for as long as it
 * takes to sleep and be woken. */
void vns_channel_lock(struct vns_channel *c)
{
    bool tries = atomic_load_explicit(&c->ahead.started, memory_order_relaxed);
    for (int i = 0; tries && i < TRIES_TO_LOCK; i++) {
        if (pthread_mutex_trylock(&c->lock) == 0)
            return;
        hw_cpu_relax();
    }
    pthread_mutex_lock(&c->lock);
}

void vns_channel_unlock(struct vns_channel *c)
{
    pthread_mutex_unlock(&c->lock);
}

void vns_channel_turn(struct vns_channel *c)
{
    pthread_mutex_lock(&c->turn);
}

void vns_channel_turn_end(struct vns_channel *c)
{
    pthread_mutex_unlock(&c->turn);
}

static int push(struct vns_channel *c, const struct rpc_send *send)
{
    for (;;) {
        int rc = rpc_push(c->ep, send);
        if (rc != -EAGAIN && rc != -ENOBUFS)
            return rc;
        (void)rpc_flush(c->ep);
        wait_once(c);
    }
}

/* The reader sleeps until bytes come, so nobody else waits for room. */
static void write_all(struct vns_channel *c)
{
    while (rpc_flush(c->ep) == -EAGAIN && rpc_ep_status(c->ep) == 0)
        wait_once(c);
}

int vns_channel_push(struct vns_channel *c, uint32_t method, const void *data, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)data, len};
    return push(c, &(struct rpc_send){.method = method, .iov = &iov, .iov_count = len ? 1 : 0});
}

static void on_sent(void *user)
{
    (void)user; /* write_all says so, too */
}

int vns_channel_push_bulk(struct vns_channel *c, uint32_t method, const struct iovec *iov,
                          int count)
{
    int rc = push(
        c, &(struct rpc_send){.method = method, .iov = iov, .iov_count = count, .sent = on_sent});
    if (rc == 0)
        write_all(c);
    return rc;
}

int vns_channel_send(struct vns_channel *c, uint32_t method, const void *data, size_t len)
{
    vns_channel_turn(c);
    vns_channel_lock(c);
    int rc = vns_channel_push(c, method, data, len);
    vns_channel_turn_end(c);
    write_all(c);
    vns_channel_unlock(c);
    return rc;
}

void vns_channel_flush(struct vns_channel *c)
{
    (void)rpc_flush(c->ep);
}

void vns_channel_end(struct vns_channel *c, int reason, const char *text)
{
    uint8_t scrap[4096];
    struct iovec iov = {scrap, sizeof(scrap)};
    struct rpc_transport *t = rpc_ep_transport(c->ep);
    vns_channel_lock(c);
    rpc_ep_shutdown(c->ep, reason, text);
    while (c->reading)
        sleep_on(c, &c->arrived, slice_ns);
    c->reading = true; /* for good */
    vns_channel_unlock(c);
    uint64_t start = hw_now_ns();
    ssize_t n = 0;
    while ((n >= 0 || n == -EAGAIN) && hw_now_ns() - start < linger_ns)
        n = t->ops->recv(t, &iov, 1, linger_ns);
}

/* One look of the keeper.  Exits the process when the client has gone and the executor is stuck in
 * the driver: the kernel then frees what a stuck driver would not. */
static void keep(struct vns_channel *c)
{
    if (!c->reading)
        take_in(c);
    int status = rpc_ep_status(c->ep);
    if (status == 0 || !c->executing)
        return;
    uint64_t now = hw_now_ns();
    if (!c->ended_ns)
        c->ended_ns = now;
    if (now - c->ended_ns < leave_within_ns)
        return;
    hw_warn(HW_CAT_VULKAN, "%s: gone while the driver was busy; its session ends now",
            rpc_ep_peer(c->ep));
    _exit(0);
}

/* Until the keeper's next look: a client with a short heartbeat wants its pings earlier. */
static uint64_t keeper_nap(const struct vns_channel *c)
{
    uint64_t now = hw_now_ns(), tick = rpc_next_tick(c->ep);
    uint64_t left = tick > now + keeper_least_ns ? tick - now : keeper_least_ns;
    return left < keeper_every_ns ? left : keeper_every_ns;
}

static void *keeper_main(void *arg)
{
    struct vns_channel *c = arg;
    vns_channel_lock(c);
    while (!c->stopping) {
        sleep_on(c, &c->keeper_wakes, keeper_nap(c));
        keep(c);
        if (!c->tick)
            continue;
        vns_channel_unlock(c);
        c->tick(c->user);
        vns_channel_lock(c);
    }
    vns_channel_unlock(c);
    return NULL;
}

/* ---- receiving ahead ---- */

/* Without the lock.  True: there seems to be something to parse; false: the upload is over. */
static bool receive_some(struct vns_channel *c)
{
    int row = 0;
    while (row < LOOKS_IN_A_ROW && is_on(&c->ahead))
        row = rpc_wait_bytes(c->ep, 0) == 0 ? row + 1 : 0;
    return row == LOOKS_IN_A_ROW;
}

/* With the lock.  At the end nothing is parsed: that might read on under the lock, which the
 * executor wants now, and whoever waits next begins with what is there. */
static void receive_ahead(struct vns_channel *c)
{
    atomic_store_explicit(&c->ahead.reads, true, memory_order_relaxed);
    while (is_on(&c->ahead) && rpc_ep_status(c->ep) == 0) {
        c->reading = true;
        vns_channel_unlock(c);
        bool has_more = receive_some(c);
        vns_channel_lock(c);
        c->reading = false;
        if (has_more)
            take_in(c);
    }
    atomic_store_explicit(&c->ahead.reads, false, memory_order_relaxed);
    pthread_cond_broadcast(&c->arrived);
}

/* With the lock, which others get meanwhile. */
static void look_again_soon(struct vns_channel *c)
{
    vns_channel_unlock(c);
    for (int i = 0; i < RELAXES_A_LOOK; i++)
        hw_cpu_relax();
    vns_channel_lock(c);
}

static bool is_expected(const struct vns_ahead *ahead, uint64_t now)
{
    return now < atomic_load_explicit(&ahead->awake_until_ns, memory_order_relaxed);
}

static void await_upload(struct vns_channel *c)
{
    vns_channel_unlock(c);
    uint64_t start = hw_now_ns(), now = start;
    while (!is_on(&c->ahead) && (now - start < awake_ns || is_expected(&c->ahead, now))) {
        hw_cpu_relax();
        now = hw_now_ns();
    }
    vns_channel_lock(c);
    c->ahead.sleeps = true;
    while (!is_on(&c->ahead) && !c->stopping && !is_expected(&c->ahead, hw_now_ns()))
        pthread_cond_wait(&c->ahead.wakes, &c->lock);
    c->ahead.sleeps = false;
}

static void *ahead_main(void *arg)
{
    struct vns_channel *c = arg;
    vns_channel_lock(c);
    while (!c->stopping) {
        if (!is_on(&c->ahead))
            await_upload(c);
        else if (c->reading || rpc_ep_status(c->ep))
            look_again_soon(c);
        else
            receive_ahead(c);
    }
    vns_channel_unlock(c);
    return NULL;
}

/* Once: a thread that could not be had is not asked for again. */
static void start_ahead(struct vns_channel *c)
{
    c->ahead.allowed = pthread_create(&c->ahead.thread, NULL, ahead_main, c) == 0;
    atomic_store_explicit(&c->ahead.started, c->ahead.allowed, memory_order_relaxed);
}

void vns_channel_upload_begin(struct vns_channel *c)
{
    assert(!is_on(&c->ahead));
    if (!c->ahead.allowed)
        return;
    vns_channel_lock(c);
    atomic_store_explicit(&c->ahead.on, true, memory_order_relaxed);
    c->ahead.uploaded = true;
    if (c->ahead.sleeps)
        pthread_cond_signal(&c->ahead.wakes);
    vns_channel_unlock(c);
    if (!atomic_load_explicit(&c->ahead.started, memory_order_relaxed))
        start_ahead(c);
}

void vns_channel_upload_end(struct vns_channel *c)
{
    atomic_store_explicit(&c->ahead.on, false, memory_order_relaxed);
}

void vns_channel_told(struct vns_channel *c)
{
    vns_channel_lock(c);
    if (c->ahead.uploaded) {
        uint64_t until = hw_now_ns() + awake_after_end_ns;
        atomic_store_explicit(&c->ahead.awake_until_ns, until, memory_order_relaxed);
        if (c->ahead.sleeps)
            pthread_cond_signal(&c->ahead.wakes);
    }
    c->ahead.uploaded = false;
    vns_channel_unlock(c);
    if (c->arrivals)
        vns_arrivals_told(c->arrivals);
}

/* ---- life ---- */

int vns_channel_init(struct vns_channel *c, struct rpc_ep *ep, void (*tick)(void *user), void *user)
{
    pthread_condattr_t attr;
    *c = (struct vns_channel){.ep = ep, .executing = true, .tick = tick, .user = user};
    c->ahead.allowed = hw_cores() >= VNS_SPIN_CORES;
    pthread_mutex_init(&c->turn, NULL);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->arrived, &attr);
    pthread_cond_init(&c->keeper_wakes, &attr);
    pthread_cond_init(&c->ahead.wakes, &attr);
    pthread_condattr_destroy(&attr);
    return -pthread_create(&c->keeper, NULL, keeper_main, c);
}

void vns_channel_fini(struct vns_channel *c)
{
    vns_channel_lock(c);
    c->stopping = true;
    pthread_cond_signal(&c->keeper_wakes);
    pthread_cond_signal(&c->ahead.wakes);
    vns_channel_unlock(c);
    pthread_join(c->keeper, NULL);
    if (atomic_load_explicit(&c->ahead.started, memory_order_relaxed))
        pthread_join(c->ahead.thread, NULL);
    pthread_cond_destroy(&c->ahead.wakes);
    pthread_cond_destroy(&c->keeper_wakes);
    pthread_cond_destroy(&c->arrived);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->turn);
}
