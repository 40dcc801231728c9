#include "rpc/client.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/wait.h"
#include "rpc/patience.h"
#include "rpc/resume/attempt.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* A thread that sleeps while another reads.  The reader asks for it, so that only those wake whose
 * wait is over. */
struct waiter {
    struct waiter *next;
    bool (*done)(void *user); /* NULL: whatever arrives may end the wait */
    void *user;
    bool woken;
    pthread_cond_t wakes;
};

struct rpc_client {
    pthread_mutex_t lock; /* guards ep and all below */
    struct rpc_ep *ep;
    rpc_push_fn *on_push;
    rpc_end_fn *on_end; /* NULL before the handshake is done and after it was called */
    void *push_user;
    bool reading;           /* a thread is in rpc_wait_bytes, without the lock */
    struct waiter *waiters; /* the others */
    unsigned forks;         /* of this process, when it connected */
    bool stopping;
    bool heartbeat_runs;
    pthread_t heartbeat;
    pthread_cond_t heartbeat_wakes;
    uint64_t heartbeat_every_ns;
    /* To dial again; do not change. */
    bool resumes;
    struct rpc_addr addr;
    struct rpc_net_options net;
    struct rpc_config config;
    struct rpc_security security; /* of both */
    uint64_t patience_ns;         /* for the answer to a first attempt to resume */
};

/* The longest sleep.  Deadlines of calls that other threads make meanwhile are at most this late.
 */
static const uint64_t slice_ns = 50 * HW_MS;

/* The heartbeat thread's first sleep, doubling, after it found something to read: a program may be
 * waiting for it without a call, by looking at what pushes write. */
static const uint64_t found_ns = HW_MS;

/* After a cut: between two attempts to resume, doubling, and for the connection of one. */
static const uint64_t redial_first_ns = 20 * HW_MS;
static const uint64_t redial_most_ns = HW_SEC;
static const uint64_t redial_connect_ns = 2 * HW_SEC;
/* For the answer to an attempt: some handshakes of this connection, and at least so much, times
 * what rpc/patience.h says.  An attempt that falls into another cut must leave time for the next: a
 * server that was told of the cut waits RPC_RESUME_TOLD_NS. */
static const uint64_t redial_answer_ns = 250 * HW_MS;
enum { REDIAL_HANDSHAKES = 4 };

/* How long rpc_client_leave waits for the lock: callbacks under it are short, and a process that
 * ends should not be held up. */
static const uint64_t leave_ns = 100 * HW_MS;

/* After fork the lock may be held by a thread that does not exist here, so a child must know
 * before it takes it. */
static _Atomic unsigned forks;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

static bool is_foreign(const struct rpc_client *c)
{
    return c->forks != atomic_load_explicit(&forks, memory_order_relaxed);
}

static void tell_end(struct rpc_client *c)
{
    rpc_end_fn *on_end = c->on_end;
    int status = rpc_ep_status(c->ep);
    if (!on_end || status == 0)
        return;
    c->on_end = NULL;
    on_end(c->push_user, status, rpc_ep_reason(c->ep));
}

static void wake(struct waiter *w)
{
    w->woken = true;
    pthread_cond_signal(&w->wakes);
}

/* Something was read, or the connection has ended. */
static void wake_done(struct rpc_client *c)
{
    bool ended = rpc_ep_status(c->ep) != 0;
    for (struct waiter *w = c->waiters; w; w = w->next) {
        if (!w->woken && (ended || !w->done || w->done(w->user)))
            wake(w);
    }
}

/* Whoever has waited calls it before it leaves: somebody must read for those who remain. */
static void hand_over_reading(struct rpc_client *c)
{
    struct waiter *w = c->reading ? NULL : c->waiters;
    while (w && w->woken)
        w = w->next;
    if (w)
        wake(w);
}

static void take_in(struct rpc_client *c)
{
    (void)rpc_poll(c->ep); /* a failure is the endpoint's status */
    struct rpc_msg *msg;
    while ((msg = rpc_recv(c->ep)) != NULL) {
        if (msg->kind == RPC_PUSH && c->on_push)
            c->on_push(c->push_user, msg);
        else if (msg->kind == RPC_CALL)
            (void)rpc_reply(c->ep, msg, -ENOSYS, NULL);
        rpc_release(c->ep, msg);
    }
    (void)rpc_flush(c->ep);
    if (UNLIKELY(c->resumes) && rpc_ep_is_cut(c->ep))
        pthread_cond_signal(&c->heartbeat_wakes);
    tell_end(c);
    wake_done(c);
}

/* Another thread reads; this one helps to get the send queue out, or sleeps. */
static void wait_beside_reader(struct rpc_client *c, bool (*done)(void *), void *user,
                               uint64_t left_ns)
{
    uint64_t nap = left_ns < slice_ns ? left_ns : slice_ns;
    if (rpc_send_blocked(c->ep)) {
        struct rpc_transport *t = rpc_ep_transport(c->ep);
        pthread_mutex_unlock(&c->lock);
        (void)t->ops->wait(t, RPC_WAIT_SEND, nap);
        pthread_mutex_lock(&c->lock);
        (void)rpc_flush(c->ep);
        return;
    }
    struct waiter self = {.next = c->waiters, .done = done, .user = user};
    pthread_cond_init(&self.wakes, NULL);
    c->waiters = &self;
    (void)hw_cond_wait(&self.wakes, &c->lock, hw_after(nap));
    struct waiter **at = &c->waiters;
    while (*at != &self)
        at = &(*at)->next;
    *at = self.next;
    pthread_cond_destroy(&self.wakes);
}

/* One round of waiting: reads for all threads, or sleeps while another thread reads. */
static void wait_once(struct rpc_client *c, bool (*done)(void *), void *user, uint64_t deadline_ns)
{
    uint64_t now = hw_now_ns();
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    if (c->reading) {
        wait_beside_reader(c, done, user, left);
        return;
    }
    uint64_t tick = rpc_next_tick(c->ep);
    uint64_t until_tick = tick > now ? tick - now : 0;
    if (until_tick < left)
        left = until_tick;
    c->reading = true;
    pthread_mutex_unlock(&c->lock);
    (void)rpc_wait_bytes(c->ep, left < slice_ns ? left : slice_ns);
    pthread_mutex_lock(&c->lock);
    c->reading = false;
    take_in(c);
}

static int wait_until(struct rpc_client *c, bool (*done)(void *), void *user, uint64_t deadline_ns)
{
    int rc = 0;
    /* One look at least: what has arrived by the deadline is in time, also for who does not wait.
     */
    for (bool looked = false; rc == 0 && !done(user); looked = true) {
        int status = rpc_ep_status(c->ep);
        if (status && status != -EINPROGRESS)
            rc = status;
        else if (looked && hw_now_ns() >= deadline_ns)
            rc = -ETIMEDOUT;
        else
            wait_once(c, done, user, deadline_ns);
    }
    hand_over_reading(c);
    return rc;
}

/* ---- resuming, in the heartbeat thread ---- */

static bool may_try(struct rpc_client *c)
{
    pthread_mutex_lock(&c->lock);
    bool may = !c->stopping && rpc_ep_is_cut(c->ep);
    pthread_mutex_unlock(&c->lock);
    return may;
}

/* Without the lock: 0 with an attempt that was answered, or why there is none. */
static int try_once(struct rpc_client *c, const struct rpc_resume_request *request,
                    uint64_t patience_ns, struct rpc_attempt **out, char why[RPC_WHY_CHARS])
{
    struct rpc_transport *connection;
    struct rpc_net_options net = c->net;
    net.timeout_ns = redial_connect_ns;
    int rc = rpc_dial(&c->addr, &net, &connection, why);
    if (rc)
        return rc;
    rc = rpc_attempt_create(connection, &c->config, request, out);
    if (rc)
        return rc;
    uint64_t deadline = hw_after(patience_ns);
    bool late = false;
    while ((rc = rpc_attempt_poll(*out)) == -EINPROGRESS && may_try(c) && !late) {
        rpc_attempt_wait(*out, slice_ns);
        late = hw_now_ns() >= deadline;
    }
    if (rc) {
        snprintf(why, RPC_WHY_CHARS, "%s", late ? "no answer" : rpc_attempt_reason(*out));
        rpc_attempt_destroy(*out);
    }
    return rc;
}

/* Under the lock, which is given back meanwhile.  Dials again until the connection is resumed, the
 * server says that there is nothing to resume, or the window has passed. */
static void resume(struct rpc_client *c)
{
    struct rpc_resume_request request;
    uint64_t nap = redial_first_ns;
    struct rpc_patience patience = RPC_PATIENCE;
    rpc_ep_resume_request(c->ep, &request);
    while (!c->stopping && rpc_ep_is_cut(c->ep)) {
        struct rpc_attempt *a;
        char why[RPC_WHY_CHARS] = "";
        pthread_mutex_unlock(&c->lock);
        int rc = try_once(c, &request, patience.units * c->patience_ns, &a, why);
        pthread_mutex_lock(&c->lock);
        if (rc == 0) {
            (void)!rpc_attempt_finish(a, c->ep); /* a failure is the endpoint's status */
        } else if (rc == -ENOENT || rc == -ENOSYS) {
            rpc_ep_resume_refused(c->ep, why);
        } else if (!c->stopping) {
            hw_debug(HW_CAT_NET, "not resumed yet: %s", why);
            rpc_ep_resume_failed(c->ep, rc);
            (void)hw_cond_wait(&c->heartbeat_wakes, &c->lock, hw_after(nap));
            nap = 2 * nap < redial_most_ns ? 2 * nap : redial_most_ns;
            rpc_patience_next(&patience); /* the endpoint of an attempt has a deadline of its own */
        }
        if (!c->reading)
            take_in(c);
    }
}

static void *heartbeat_main(void *arg)
{
    struct rpc_client *c = arg;
    uint64_t nap = c->heartbeat_every_ns;
    pthread_mutex_lock(&c->lock);
    while (!c->stopping) {
        uint64_t before = hw_counter_load(&rpc_ep_stats(c->ep)->msgs_received);
        if (!c->reading)
            take_in(c);
        bool found = hw_counter_load(&rpc_ep_stats(c->ep)->msgs_received) != before;
        nap = found ? found_ns : 2 * nap;
        nap = nap < c->heartbeat_every_ns ? nap : c->heartbeat_every_ns;
        if (UNLIKELY(c->resumes) && rpc_ep_is_cut(c->ep))
            resume(c);
        if (!c->stopping)
            (void)hw_cond_wait(&c->heartbeat_wakes, &c->lock, hw_after(nap));
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static int start_heartbeat(struct rpc_client *c, const struct rpc_config *config)
{
    uint64_t heartbeat = config->heartbeat_ns ? config->heartbeat_ns : RPC_HEARTBEAT_DEFAULT_NS;
    if (heartbeat == HW_NEVER)
        return 0;
    c->heartbeat_every_ns = heartbeat / 8; /* twice for each ping that is due */
    int rc = hw_thread_start(&c->heartbeat, heartbeat_main, c);
    c->heartbeat_runs = rc == 0;
    return rc;
}

static bool handshake_over(void *user)
{
    struct rpc_client *c = user;
    return rpc_ep_status(c->ep) != -EINPROGRESS;
}

/* addr, net: where to dial again, or NULL. */
static int create(struct rpc_transport *transport, const struct rpc_client_options *options,
                  const struct rpc_addr *addr, const struct rpc_net_options *net,
                  struct rpc_client **out, char why[RPC_WHY_CHARS])
{
    assert(!options->config.accepting);
    uint64_t begun = hw_now_ns();
    struct rpc_client *c = calloc(1, sizeof *c);
    if (!c) {
        rpc_transport_destroy(transport);
        return -ENOMEM;
    }
    c->config = options->config;
    /* Who dials again is the heartbeat thread. */
    c->resumes = c->config.resumes && addr && c->config.heartbeat_ns != HW_NEVER;
    c->config.resumes = c->resumes;
    int rc = rpc_ep_create(transport, &c->config, &c->ep);
    if (c->resumes) {
        c->addr = *addr;
        c->net = net ? *net : (struct rpc_net_options){0};
        rpc_security_copy(&c->security, c->config.security);
        c->config.security = c->net.security = &c->security;
    }
    if (rc) {
        snprintf(why, RPC_WHY_CHARS, "cannot set up the connection: %s", strerror(-rc));
        rpc_security_fini(&c->security);
        free(c);
        return rc;
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->heartbeat_wakes, NULL);
    c->on_push = options->on_push;
    c->push_user = options->push_user;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    c->forks = atomic_load_explicit(&forks, memory_order_relaxed);
    pthread_mutex_lock(&c->lock);
    take_in(c);
    rc = wait_until(c, handshake_over, c, HW_NEVER); /* the endpoint has a deadline of its own */
    if (rc == 0)
        rc = rpc_ep_status(c->ep);
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "%s", rpc_ep_reason(c->ep));
    else
        c->on_end = options->on_end;
    pthread_mutex_unlock(&c->lock);
    c->patience_ns = REDIAL_HANDSHAKES * (hw_now_ns() - begun);
    c->patience_ns = c->patience_ns > redial_answer_ns ? c->patience_ns : redial_answer_ns;
    if (rc == 0)
        rc = start_heartbeat(c, &options->config);
    if (rc) {
        rpc_client_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

int rpc_client_create(struct rpc_transport *transport, const struct rpc_client_options *options,
                      struct rpc_client **out, char why[RPC_WHY_CHARS])
{
    return create(transport, options, NULL, NULL, out, why);
}

int rpc_client_connect(const struct rpc_addr *addr, const struct rpc_net_options *net,
                       const struct rpc_client_options *options, struct rpc_client **out,
                       char why[RPC_WHY_CHARS])
{
    struct rpc_transport *transport;
    int rc = rpc_dial(addr, net, &transport, why);
    return rc ? rc : create(transport, options, addr, net, out, why);
}

static void stop_heartbeat(struct rpc_client *c)
{
    if (!c->heartbeat_runs)
        return;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_signal(&c->heartbeat_wakes);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->heartbeat, NULL);
}

static void client_free(struct rpc_client *c)
{
    pthread_cond_destroy(&c->heartbeat_wakes);
    pthread_mutex_destroy(&c->lock);
    rpc_security_fini(&c->security);
    free(c);
}

void rpc_client_destroy(struct rpc_client *c)
{
    /* In a child nothing may be touched: a goodbye would go out on the parent's stream. */
    if (!c || is_foreign(c))
        return;
    stop_heartbeat(c);
    rpc_ep_shutdown(c->ep, 0, NULL);
    rpc_ep_destroy(c->ep);
    client_free(c);
}

struct rpc_transport *rpc_client_strip(struct rpc_client *c)
{
    stop_heartbeat(c);
    struct rpc_transport *transport = rpc_ep_strip(c->ep);
    client_free(c);
    return transport;
}

void rpc_client_leave(struct rpc_client *c)
{
    struct timespec until;
    if (is_foreign(c))
        return;
    clock_gettime(CLOCK_REALTIME, &until); /* what the call goes by */
    until = hw_timespec((uint64_t)until.tv_sec * HW_SEC + (uint64_t)until.tv_nsec + leave_ns);
    if (pthread_mutex_timedlock(&c->lock, &until))
        return;
    c->on_end = NULL; /* it does not end by itself */
    rpc_ep_shutdown(c->ep, 0, NULL);
    pthread_mutex_unlock(&c->lock);
}

static int enter(struct rpc_client *c)
{
    if (is_foreign(c))
        return -ESHUTDOWN;
    pthread_mutex_lock(&c->lock);
    return 0;
}

/* Sends with `attempt`, waiting for credit and room until the deadline. */
static int send_with_retry(struct rpc_client *c, int (*attempt)(struct rpc_client *, void *),
                           void *args, uint64_t deadline_ns)
{
    for (;;) {
        int rc = rpc_ep_status(c->ep);
        if (rc == 0)
            rc = attempt(c, args);
        if ((rc != -EAGAIN && rc != -ENOBUFS) || hw_now_ns() >= deadline_ns) {
            hand_over_reading(c);
            return rc;
        }
        (void)rpc_flush(c->ep);
        wait_once(c, NULL, NULL, deadline_ns);
    }
}

static uint64_t timeout_of(const struct rpc_send *send)
{
    return send->timeout_ns ? send->timeout_ns : RPC_TIMEOUT_DEFAULT_NS;
}

struct pending {
    const struct rpc_send *send;
    struct rpc_answer answer;
    uint32_t id;
    int status;
    bool done;
};

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    struct pending *p = user;
    p->done = true;
    p->status = status;
    if (status)
        return;
    p->answer.fd_count = reply->fd_count;
    for (int i = 0; i < reply->fd_count; i++)
        p->answer.fds[i] = rpc_msg_take_fd(reply, i);
    if (reply->len == 0)
        return;
    p->answer.data = malloc(reply->len);
    if (!p->answer.data) {
        p->status = -ENOMEM;
        return;
    }
    memcpy(p->answer.data, reply->data, reply->len);
    p->answer.len = reply->len;
}

static int attempt_call(struct rpc_client *c, void *args)
{
    struct pending *p = args;
    return rpc_call(c->ep, p->send, on_answer, p, &p->id);
}

static bool is_done(void *user)
{
    return ((struct pending *)user)->done;
}

int rpc_client_call(struct rpc_client *c, const struct rpc_send *send, struct rpc_answer *answer)
{
    struct pending p = {.send = send};
    uint64_t deadline = hw_after(timeout_of(send));
    int rc = enter(c);
    if (rc)
        return rc;
    rc = send_with_retry(c, attempt_call, &p, deadline);
    if (rc == 0) {
        (void)rpc_flush(c->ep);
        rc = wait_until(c, is_done, &p, deadline);
        if (!p.done) {
            (void)rpc_cancel(c->ep, p.id);
            assert(p.done);
        } else {
            rc = p.status;
        }
    }
    pthread_mutex_unlock(&c->lock);
    if (rc == 0 && answer)
        *answer = p.answer;
    else
        rpc_answer_fini(&p.answer);
    return rc;
}

struct async {
    const struct rpc_send *send;
    rpc_reply_fn *fn;
    void *user;
};

static int attempt_async(struct rpc_client *c, void *args)
{
    struct async *a = args;
    return rpc_call(c->ep, a->send, a->fn, a->user, NULL);
}

int rpc_client_call_async(struct rpc_client *c, const struct rpc_send *send, rpc_reply_fn *fn,
                          void *user)
{
    struct async a = {send, fn, user};
    int rc = enter(c);
    if (rc)
        return rc;
    rc = send_with_retry(c, attempt_async, &a, hw_after(timeout_of(send)));
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static int attempt_post(struct rpc_client *c, void *args)
{
    return rpc_post(c->ep, args);
}

int rpc_client_post(struct rpc_client *c, const struct rpc_send *send)
{
    int rc = enter(c);
    if (rc)
        return rc;
    rc = send_with_retry(c, attempt_post, (void *)send, hw_after(timeout_of(send)));
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static bool all_written(void *user)
{
    struct rpc_client *c = user;
    return rpc_flush(c->ep) != -EAGAIN;
}

int rpc_client_flush(struct rpc_client *c)
{
    int rc = enter(c);
    if (rc)
        return rc;
    rc = rpc_ep_status(c->ep);
    if (rc == 0)
        rc = wait_until(c, all_written, c, HW_NEVER);
    if (rc == 0)
        rc = rpc_ep_status(c->ep);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

int rpc_client_wait(struct rpc_client *c, bool (*done)(void *user), void *user, uint64_t timeout_ns)
{
    int rc = enter(c);
    if (rc)
        return rc;
    rc = rpc_ep_status(c->ep);
    if (rc == 0)
        (void)rpc_flush(c->ep);
    rc = wait_until(c, done, user, hw_after(timeout_ns));
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void rpc_client_poll(struct rpc_client *c)
{
    if (enter(c))
        return;
    if (!c->reading && rpc_ep_status(c->ep) == 0)
        take_in(c);
    pthread_mutex_unlock(&c->lock);
}

int rpc_client_status(struct rpc_client *c)
{
    int rc = enter(c);
    if (rc)
        return rc;
    rc = rpc_ep_status(c->ep);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void rpc_client_reason(struct rpc_client *c, char why[RPC_WHY_CHARS])
{
    if (enter(c)) {
        snprintf(why, RPC_WHY_CHARS, "the connection belongs to the process that forked this one");
        return;
    }
    snprintf(why, RPC_WHY_CHARS, "%s", rpc_ep_reason(c->ep));
    pthread_mutex_unlock(&c->lock);
}

const struct rpc_stats *rpc_client_stats(const struct rpc_client *c)
{
    return rpc_ep_stats(c->ep);
}

const struct rpc_ep *rpc_client_ep(const struct rpc_client *c)
{
    return c->ep;
}
