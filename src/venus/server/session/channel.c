/* The endpoint of a session and who waits on it; see channel.h. */
#include "venus/server/session/channel.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/wait.h"
#include "rpc/resume/resume.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The longest a thread beside the reader sleeps before it looks again: only a safety net, since
 * whoever polls wakes it. */
static const uint64_t slice_ns = 50 * HW_MS;
/* Four times in the second after which a client's silence may not be answered with our own. */
static const uint64_t heartbeat_every_ns = 250 * HW_MS;
static const uint64_t heartbeat_least_ns = 10 * HW_MS;
/* What a driver call may still take once the client is gone: with the heartbeat thread's interval
 * this leaves a quarter of the second in which a dead client's GPU memory is to come back. */
static const uint64_t leave_within_ns = 500 * HW_MS;

/* For a peer to read why it was turned away, also from far away; it then closes. */
static const uint64_t linger_ns = 500 * HW_MS;
static const uint64_t room_every_ns = 5 * HW_MS; /* looks whether there is room for the goodbye */

static void sleep_on(struct vns_channel *c, pthread_cond_t *cond, uint64_t ns)
{
    (void)hw_cond_wait(cond, &c->lock, hw_after(ns));
}

static void take_in(struct vns_channel *c)
{
    assert(!c->reading);
    (void)rpc_poll(c->ep); /* a failure is the endpoint's status */
    (void)rpc_flush(c->ep);
    pthread_cond_broadcast(&c->arrived);
}

/* Another thread reads; this one helps to get the send queue out, or sleeps. */
static void wait_beside_reader(struct vns_channel *c)
{
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
    uint64_t now = hw_now_ns(), tick = rpc_next_tick(c->ep);
    uint64_t left = tick > now ? tick - now : 0;
    c->reading = true;
    vns_channel_unlock(c);
    (void)rpc_wait_bytes(c->ep, left);
    vns_channel_lock(c);
    c->reading = false;
    take_in(c);
}

/* A client that closed in order wants what it had sent to be done; of one that died nobody does. */
static bool may_execute(const struct vns_channel *c)
{
    int status = rpc_ep_status(c->ep);
    return status == 0 || (status == -ESHUTDOWN && !c->gave_up);
}

struct rpc_msg *vns_channel_receive(struct vns_channel *c)
{
    struct rpc_msg *msg = NULL;
    vns_channel_lock(c);
    c->executing = false;
    (void)rpc_flush(c->ep);
    while (may_execute(c) && (msg = rpc_recv(c->ep)) == NULL && rpc_ep_status(c->ep) == 0)
        wait_once(c);
    c->executing = msg != NULL; /* what follows the end may take its time */
    vns_channel_unlock(c);
    return msg;
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

void vns_channel_lock(struct vns_channel *c)
{
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

int vns_channel_reply(struct vns_channel *c, struct rpc_msg *call, const struct rpc_send *send)
{
    vns_channel_lock(c);
    int rc = rpc_reply(c->ep, call, 0, send);
    /* An answer with a descriptor does not wait in its stream by itself. */
    while ((rc == -EAGAIN || rc == -ENOBUFS) && rpc_ep_status(c->ep) == 0) {
        (void)rpc_flush(c->ep);
        wait_once(c);
        rc = rpc_reply(c->ep, call, 0, send);
    }
    vns_channel_flush(c);
    bool ended = rpc_ep_status(c->ep) != 0;
    vns_channel_unlock(c);
    return ended ? 0 : rc;
}

int vns_channel_push(struct vns_channel *c, uint32_t method, const void *data, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)data, len};
    return push(c, &(struct rpc_send){.method = method, .iov = &iov, .iov_count = len ? 1 : 0});
}

/* A goodbye stands behind the bulk, whose memory goes when we return: written for a while, or not.
 */
static void write_on(struct vns_channel *c)
{
    uint64_t start = hw_now_ns();
    while (c->owes && c->bulk && hw_now_ns() - start < linger_ns) {
        c->owes = rpc_ep_flush_goodbye(c->ep) == -EAGAIN;
        if (c->owes)
            sleep_on(c, &c->arrived, room_every_ns);
    }
    c->owes = c->owes && !c->bulk;
}

/* Under the lock, as whatever writes. */
static void on_sent(void *user)
{
    struct vns_channel *c = user;
    c->bulk = false;
}

int vns_channel_push_bulk(struct vns_channel *c, uint32_t method, const struct iovec *iov,
                          int count)
{
    c->bulk = true;
    int rc = push(
        c, &(struct rpc_send){
               .method = method, .iov = iov, .iov_count = count, .sent = on_sent, .sent_user = c});
    if (rc == 0)
        write_all(c);
    if (rc == 0 && c->bulk)
        write_on(c);
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

void vns_channel_resume(struct vns_channel *c, struct rpc_transport *connection, uint32_t call,
                        uint64_t received)
{
    vns_channel_lock(c);
    (void)!rpc_ep_resume_accept(c->ep, connection, call, received); /* the endpoint's status */
    if (!c->reading)
        take_in(c);
    pthread_cond_broadcast(&c->arrived);
    vns_channel_unlock(c);
}

void vns_channel_flush(struct vns_channel *c)
{
    (void)rpc_flush(c->ep);
}

/* Whether the goodbye is still behind something that the peer does not read. */
static bool owes_goodbye(struct vns_channel *c)
{
    vns_channel_lock(c);
    c->owes = c->owes && rpc_ep_flush_goodbye(c->ep) == -EAGAIN;
    bool owes = c->owes;
    vns_channel_unlock(c);
    return owes;
}

/* Under the lock. */
static void say_goodbye(struct vns_channel *c, int reason, const char *text)
{
    c->owes = rpc_ep_status(c->ep) == 0;
    rpc_ep_shutdown(c->ep, reason, text);
}

/* Until the peer has read why, and closed.  A socket that is closed on unread bytes resets the
 * connection, and what is under way to the peer then may never get there. */
static void linger(struct vns_channel *c)
{
    uint8_t scrap[4096];
    struct iovec iov = {scrap, sizeof(scrap)};
    struct rpc_transport *t = rpc_ep_transport(c->ep);
    vns_channel_lock(c);
    while (c->reading)
        sleep_on(c, &c->arrived, slice_ns);
    c->reading = true;    /* for good */
    c->executing = false; /* in no driver: the heartbeat thread need not end the process */
    vns_channel_unlock(c);
    uint64_t start = hw_now_ns();
    ssize_t n = 0;
    while ((n >= 0 || n == -EAGAIN) && hw_now_ns() - start < linger_ns)
        n = t->ops->recv(t, &iov, 1, owes_goodbye(c) ? room_every_ns : linger_ns);
}

void vns_channel_end(struct vns_channel *c, int reason, const char *text)
{
    vns_channel_lock(c);
    say_goodbye(c, reason, text);
    vns_channel_unlock(c);
    linger(c);
}

void vns_channel_leave(struct vns_channel *c)
{
    vns_channel_lock(c);
    bool gave_up = c->gave_up;
    vns_channel_unlock(c);
    if (gave_up)
        linger(c);
}

void vns_channel_give_up(struct vns_channel *c, int reason, const char *what)
{
    char text[128];
    snprintf(text, sizeof(text), "%s: %s", what, strerror(-reason));
    vns_channel_lock(c);
    if (rpc_ep_status(c->ep) == 0) {
        hw_warn(HW_CAT_VULKAN, "%s: session ended: %s", rpc_ep_peer(c->ep), text);
        say_goodbye(c, reason, text);
        c->gave_up = true;
        pthread_cond_broadcast(&c->arrived);
    }
    vns_channel_unlock(c);
}

/* One look of the heartbeat thread.  Exits the process when the client has gone and the executor is
 * stuck in the driver: the kernel then frees what a stuck driver would not. */
static void beat(struct vns_channel *c)
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

/* Until the heartbeat thread's next look: a client with a short heartbeat wants its pings earlier.
 */
static uint64_t heartbeat_nap(const struct vns_channel *c)
{
    uint64_t now = hw_now_ns(), tick = rpc_next_tick(c->ep);
    uint64_t left = tick > now + heartbeat_least_ns ? tick - now : heartbeat_least_ns;
    return left < heartbeat_every_ns ? left : heartbeat_every_ns;
}

static void *heartbeat_main(void *arg)
{
    struct vns_channel *c = arg;
    vns_channel_lock(c);
    while (!c->stopping) {
        sleep_on(c, &c->heartbeat_wakes, heartbeat_nap(c));
        beat(c);
        if (!c->tick)
            continue;
        vns_channel_unlock(c);
        c->tick(c->user);
        vns_channel_lock(c);
    }
    vns_channel_unlock(c);
    return NULL;
}

/* ---- life ---- */

int vns_channel_init(struct vns_channel *c, struct rpc_ep *ep, void (*tick)(void *user), void *user)
{
    *c = (struct vns_channel){.ep = ep, .executing = true, .tick = tick, .user = user};
    pthread_mutex_init(&c->turn, NULL);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->arrived, NULL);
    pthread_cond_init(&c->heartbeat_wakes, NULL);
    return -pthread_create(&c->heartbeat, NULL, heartbeat_main, c);
}

void vns_channel_fini(struct vns_channel *c)
{
    vns_channel_lock(c);
    c->stopping = true;
    pthread_cond_signal(&c->heartbeat_wakes);
    vns_channel_unlock(c);
    pthread_join(c->heartbeat, NULL);
    pthread_cond_destroy(&c->heartbeat_wakes);
    pthread_cond_destroy(&c->arrived);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->turn);
}
