/* Connections that are cut and resumed, in virtual time: a cut at every byte, of frames, of the
 * handshake and of the resumption itself; then many cuts at random places of large traffic. */
#include "unit.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "duo.h"
#include "rpc/endpoint/ep.h"
#include "rpc/handover.h"
#include "rpc/methods.h"
#include "rpc/resume/attempt.h"
#include "rpc/resume/kept.h"
#include "rpc/resume/pipe.h"
#include "wire/le.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_SECONDS = 10, PAYLOAD_MAX = 600 << 10, CALLS = 24 };

/* ---- a network that is cut after so many bytes ---- */

struct fuse {
    uint64_t left; /* bytes, both ways together */
    bool closed;   /* by something between, in order: both ends find a FIN */
};

struct fused {
    struct rpc_transport base;
    struct rpc_transport *inner;
    struct fuse *fuse;
};

static ssize_t fused_send(struct rpc_transport *t, const struct iovec *iov, int count)
{
    struct fused *f = (struct fused *)t;
    struct iovec part[RPC_IOV_MAX];
    uint64_t left = f->fuse->left;
    int n = 0;
    if (f->fuse->closed)
        return f->fuse->left > 0 ? -EPIPE : -ECONNRESET;
    for (; n < count && left > 0; n++) {
        part[n] = iov[n];
        if (part[n].iov_len > left)
            part[n].iov_len = left;
        left -= part[n].iov_len;
    }
    ssize_t sent = n > 0 ? f->inner->ops->send(f->inner, part, n) : -ECONNRESET;
    if (sent > 0)
        f->fuse->left -= (uint64_t)sent;
    if (f->fuse->left == 0)
        rpc_loopnet_reset(f->inner);
    return sent;
}

static ssize_t fused_recv(struct rpc_transport *t, const struct iovec *iov, int count, uint64_t ns)
{
    struct fused *f = (struct fused *)t;
    return f->fuse->closed ? -ESHUTDOWN : f->inner->ops->recv(f->inner, iov, count, ns);
}

static int fused_wait(struct rpc_transport *t, unsigned events, uint64_t ns)
{
    struct rpc_transport *inner = ((struct fused *)t)->inner;
    return inner->ops->wait(inner, events, ns);
}

static int fused_poll_fd(struct rpc_transport *t)
{
    (void)t;
    return -1;
}

/* As of a network, whose ends do not see each other's processes. */
static bool fused_host_answers(struct rpc_transport *t, uint64_t within_ns)
{
    (void)t, (void)within_ns;
    return true;
}

static void fused_destroy(struct rpc_transport *t)
{
    rpc_transport_destroy(((struct fused *)t)->inner);
    free(t);
}

static const struct rpc_transport_ops fused_ops = {
    .name = "loopback",
    .send = fused_send,
    .recv = fused_recv,
    .wait = fused_wait,
    .poll_fd = fused_poll_fd,
    .host_answers = fused_host_answers,
    .destroy = fused_destroy,
};

static struct rpc_transport *fuse_in(struct rpc_transport *inner, struct fuse *fuse)
{
    struct fused *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->base = *inner;
    f->base.ops = &fused_ops;
    f->inner = inner;
    f->fuse = fuse;
    return &f->base;
}

/* ---- two ends, and what they do ---- */

struct world;

struct ask {
    struct world *world;
    uint64_t hash;
    uint64_t ended;
    int status;
};

struct world {
    struct rpc_loopnet *net;
    struct hw_rng rng;
    struct rpc_ep *ep[2];
    struct rpc_resume_key key;
    struct rpc_transport *wire; /* of the connection in use, as is the fuse */
    struct fuse fuse;
    uint64_t fuses[64]; /* of this and the next ones; then they hold */
    int fuse_at, fuse_count;
    struct ask asks[CALLS];
    int ask_count, ended;
    uint64_t pushed, got; /* numbers of pushes */
    uint32_t most;        /* bytes of a call's payload */
    uint8_t *lent;        /* payload by reference; overwritten once it is sent */
    size_t lent_len;
    bool lent_out;
    uint64_t resumes;
    uint64_t resumes_ns; /* the client's own limit */
    uint32_t window;     /* the server's; 0: as the client's */
};

static struct rpc_config config_of(struct world *w, bool accepting)
{
    return (struct rpc_config){.accepting = accepting,
                               .resumes = !accepting,
                               .resumes_ns = w->resumes_ns,
                               .window_bytes =
                                   accepting && w->window ? w->window : RPC_WINDOW_MIN << 5,
                               .clock = rpc_loopnet_clock(w->net)};
}

static void pair(struct world *w, struct rpc_transport *out[2])
{
    struct rpc_transport *ends[2];
    assert_int_equal(rpc_loopnet_pair(w->net, ends), 0);
    w->fuse.left = w->fuse_at < w->fuse_count ? w->fuses[w->fuse_at++] : UINT64_MAX;
    w->fuse.closed = false;
    w->wire = ends[0];
    for (int i = 0; i < 2; i++)
        out[i] = fuse_in(ends[i], &w->fuse);
}

static void world_open(struct world *w, uint64_t seed, uint32_t most)
{
    hw_rng_seed(&w->rng, seed);
    struct rpc_loopnet_options options = {.seed = seed,
                                          .delay_ns = 20 * HW_US,
                                          .buffer_bytes =
                                              1000 + (uint32_t)hw_rng_below(&w->rng, 300000),
                                          .stall_percent = (uint32_t)hw_rng_below(&w->rng, 20)};
    struct rpc_transport *ends[2];
    w->most = most;
    assert_int_equal(rpc_loopnet_create(&options, &w->net), 0);
    assert_int_equal(rpc_resume_key_make(7, &w->key), 0);
    pair(w, ends);
    for (int i = 0; i < 2; i++) {
        struct rpc_config config = config_of(w, i == SERVER);
        assert_int_equal(rpc_ep_create(ends[i], &config, &w->ep[i]), 0);
    }
    w->lent = malloc(PAYLOAD_MAX);
    assert_non_null(w->lent);
}

static void world_close(struct world *w)
{
    for (int i = 0; i < 2; i++)
        rpc_ep_destroy(w->ep[i]);
    rpc_loopnet_destroy(w->net);
    free(w->lent);
}

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    struct ask *ask = user;
    ask->ended++;
    ask->status = status;
    ask->world->ended++;
    if (status == 0)
        assert_true(pattern_hash(reply->data, reply->len) == ask->hash);
}

static void on_sent(void *user)
{
    struct world *w = user;
    memset(w->lent, 0xee, w->lent_len); /* whoever still needs it sees it */
    w->lent_out = false;
}

static void ask(struct world *w)
{
    static uint8_t data[PAYLOAD_MAX];
    if (w->ask_count == CALLS || rpc_ep_status(w->ep[CLIENT]))
        return;
    struct ask *a = &w->asks[w->ask_count];
    size_t len = (size_t)hw_rng_below(&w->rng, w->most);
    bool lend = hw_rng_below(&w->rng, 2) && !w->lent_out;
    uint8_t *payload = lend ? w->lent : data;
    pattern_fill(payload, len, (uint64_t)w->ask_count);
    *a = (struct ask){.world = w, .hash = pattern_hash(payload, len)};
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_ECHO, &iov, payload, len);
    send.stream = (uint8_t)hw_rng_below(&w->rng, 3);
    send.timeout_ns = HW_NEVER;
    if (lend) {
        w->lent_len = len;
        w->lent_out = true;
        send.sent = on_sent;
        send.sent_user = w;
        send.lasting = hw_rng_below(&w->rng, 2);
    }
    int rc = rpc_call(w->ep[CLIENT], &send, on_answer, a, NULL);
    if (rc == 0)
        w->ask_count++;
    else if (lend)
        w->lent_out = false;
}

static void serve(struct world *w, struct rpc_msg *msg)
{
    struct rpc_ep *ep = w->ep[SERVER];
    struct iovec iov = {(void *)(uintptr_t)msg->data, msg->len};
    struct rpc_send echo = {.stream = msg->stream, .iov = &iov, .iov_count = 1};
    assert_int_equal(msg->kind, RPC_CALL);
    assert_int_equal(rpc_reply(ep, msg, 0, &echo), 0);
    rpc_release(ep, msg);
    struct iovec number = {&w->pushed, sizeof w->pushed};
    struct rpc_send push = {.method = METHOD_SINK, .stream = 1, .iov = &number, .iov_count = 1};
    if (rpc_push(ep, &push) == 0)
        w->pushed++;
}

static void take_push(struct world *w, struct rpc_msg *msg)
{
    uint64_t number;
    assert_int_equal(msg->kind, RPC_PUSH);
    memcpy(&number, msg->data, sizeof number);
    assert_int_equal(number, w->got++);
    rpc_release(w->ep[CLIENT], msg);
}

static void turn(struct world *w)
{
    struct rpc_msg *msg;
    for (int i = 0; i < 2; i++) {
        (void)rpc_poll(w->ep[i]);
        while ((msg = rpc_recv(w->ep[i])) != NULL) {
            if (i == SERVER)
                serve(w, msg);
            else
                take_push(w, msg);
        }
        (void)rpc_flush(w->ep[i]);
    }
    rpc_loopnet_spend(w->net, 10 * HW_US);
}

/* ---- resuming, as a client and a server do it ---- */

static void accept_caller(struct world *w, struct rpc_ep **caller, struct rpc_msg *msg)
{
    struct rpc_resume_request request;
    uint32_t id;
    assert_int_equal(msg->method, RPC_METHOD_RESUME);
    assert_int_equal(rpc_resume_get_request(msg->data, msg->len, &request), 0);
    assert_true(rpc_resume_key_equal(&request.key, &w->key));
    assert_int_equal(rpc_ep_hand_over_resume(*caller, msg, &id), 0);
    rpc_release(*caller, msg);
    struct rpc_transport *connection = rpc_ep_strip(*caller);
    *caller = NULL;
    assert_int_equal(rpc_ep_resume_accept(w->ep[SERVER], connection, id, request.received), 0);
}

/* The server's side of an attempt.  True once it is over. */
static bool accept_turn(struct world *w, struct rpc_ep **caller)
{
    if (rpc_poll(*caller) < 0)
        return true;
    struct rpc_msg *msg = rpc_recv(*caller);
    if (msg)
        accept_caller(w, caller, msg);
    return msg != NULL;
}

/* One attempt.  True when the client goes on. */
static bool try_resume(struct world *w)
{
    struct rpc_transport *ends[2];
    struct rpc_resume_request request;
    struct rpc_attempt *attempt;
    struct rpc_ep *caller;
    rpc_ep_resume_request(w->ep[CLIENT], &request);
    pair(w, ends);
    struct rpc_config config = config_of(w, false), accepting = config_of(w, true);
    assert_int_equal(rpc_attempt_create(ends[CLIENT], &config, &request, &attempt), 0);
    assert_int_equal(rpc_ep_create(ends[SERVER], &accepting, &caller), 0);
    int rc;
    bool over = false;
    while ((rc = rpc_attempt_poll(attempt)) == -EINPROGRESS) {
        over = over || accept_turn(w, &caller);
        if (over && !caller)
            (void)rpc_poll(w->ep[SERVER]); /* which goes on at once */
        rpc_loopnet_spend(w->net, 10 * HW_US);
    }
    rpc_ep_destroy(caller);
    if (rc) {
        assert_int_not_equal(rc, -ENOENT);
        rpc_attempt_destroy(attempt);
        return false;
    }
    assert_int_equal(rpc_attempt_finish(attempt, w->ep[CLIENT]), 0);
    w->resumes++;
    return true;
}

static void open_and_offer(struct world *w)
{
    while (rpc_ep_status(w->ep[SERVER]) == -EINPROGRESS) {
        for (int i = 0; i < 2; i++)
            (void)rpc_poll(w->ep[i]);
        rpc_loopnet_spend(w->net, 10 * HW_US);
    }
    if (rpc_ep_status(w->ep[SERVER]) == 0)
        assert_int_equal(rpc_ep_offer_resume(w->ep[SERVER], &w->key, WINDOW_SECONDS * HW_SEC, 0),
                         0);
    for (int i = 0; i < 50; i++) /* for it to arrive, unless it is cut */
        turn(w);
}

/* All calls through all cuts.  False when the connection had ended before it could be resumed. */
static bool run_on(struct world *w)
{
    while (w->ended < CALLS) {
        ask(w);
        turn(w);
        if (rpc_ep_status(w->ep[CLIENT]) != 0 && rpc_ep_status(w->ep[CLIENT]) != -EINPROGRESS)
            return false;
        if (rpc_ep_is_cut(w->ep[CLIENT]))
            (void)try_resume(w);
    }
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(w->asks[i].ended, 1);
        assert_int_equal(w->asks[i].status, 0);
    }
    return true;
}

static bool run(struct world *w)
{
    open_and_offer(w);
    return run_on(w);
}

static uint64_t bytes_of(const struct rpc_ep *ep)
{
    return hw_counter_load(&rpc_ep_stats(ep)->bytes_sent);
}

/* ---- tests ---- */

/* A cut before the client has the offer is an end for both: at once, or when the window has
 * passed. */
static void expect_end(struct world *w)
{
    assert_int_not_equal(rpc_ep_status(w->ep[CLIENT]), -EPROTO);
    uint64_t start = rpc_loopnet_now(w->net);
    while (rpc_ep_status(w->ep[SERVER]) == 0) {
        (void)rpc_poll(w->ep[SERVER]);
        rpc_loopnet_spend(w->net, HW_SEC);
        assert_true(rpc_loopnet_now(w->net) - start < 4 * WINDOW_SECONDS * HW_SEC);
    }
    for (int i = 0; i < w->ask_count; i++)
        assert_int_equal(w->asks[i].ended, 1);
}

static void cut_at_every_byte(void **state)
{
    (void)state;
    struct world whole = {0};
    world_open(&whole, 1, 40);
    assert_true(run(&whole));
    uint64_t all = bytes_of(whole.ep[CLIENT]) + bytes_of(whole.ep[SERVER]);
    world_close(&whole);
    assert_true(all > 1000);
    uint64_t ended = 0, resumed = 0;
    for (uint64_t at = 0; at < all; at++) {
        struct world w = {.fuses = {at}, .fuse_count = 1};
        world_open(&w, 1, 40);
        if (run(&w)) {
            resumed += w.resumes;
        } else {
            ended++;
            expect_end(&w);
        }
        world_close(&w);
    }
    /* Two hellos and the offer; then every cut is survived. */
    assert_true(ended < 400 && ended > 100);
    assert_int_equal(resumed, all - ended);
}

/* The first connection is cut in the middle, the second at each byte of its handshake and of what
 * is sent again, until the third goes through. */
static void cut_at_every_byte_of_a_resumption(void **state)
{
    (void)state;
    for (uint64_t at = 0; at < 1500; at++) {
        struct world w = {.fuses = {1000, at}, .fuse_count = 2};
        world_open(&w, 2, 300);
        assert_true(run(&w));
        assert_true(w.resumes >= 1);
        assert_true(hw_counter_load(&rpc_ep_stats(w.ep[CLIENT])->resumes) == w.resumes);
        world_close(&w);
    }
}

static void many_cuts_of_large_traffic(void **state)
{
    (void)state;
    uint64_t replayed = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world w = {.fuse_count = ARRAY_LEN(w.fuses)};
        hw_rng_seed(&w.rng, seed);
        w.fuses[0] = 2000 + hw_rng_below(&w.rng, 100000); /* behind the offer */
        for (size_t i = 1; i < ARRAY_LEN(w.fuses); i++)
            w.fuses[i] = hw_rng_below(&w.rng, UINT64_C(1) << hw_rng_below(&w.rng, 21));
        world_open(&w, seed, PAYLOAD_MAX);
        assert_true(run(&w));
        for (int i = 0; i < 2; i++)
            replayed += hw_counter_load(&rpc_ep_stats(w.ep[i])->bytes_replayed);
        world_close(&w);
    }
    assert_true(replayed > 1 << 20);
}

/* Both look now and then. */
static void pass(struct world *w, uint64_t ns)
{
    uint64_t until = rpc_loopnet_now(w->net) + ns, now;
    while ((now = rpc_loopnet_now(w->net)) < until) {
        rpc_loopnet_spend(w->net, until - now < HW_SEC ? until - now : HW_SEC);
        turn(w);
    }
}

enum how { SILENTLY, BY_RESET, BY_FIN };

static void cut_again(struct world *w, enum how how)
{
    for (int i = 0; i < 20; i++) {
        ask(w);
        turn(w);
    }
    if (how == BY_FIN)
        w->fuse.closed = true;
    else
        (how == SILENTLY ? rpc_loopnet_cut : rpc_loopnet_reset)(w->wire);
    while (!rpc_ep_is_cut(w->ep[CLIENT]) || !rpc_ep_is_cut(w->ep[SERVER])) {
        rpc_loopnet_spend(w->net, how == SILENTLY ? 100 * HW_MS : HW_US);
        turn(w);
    }
    turn(w); /* from here on its time counts */
}

static void cut_both(struct world *w, enum how how)
{
    open_and_offer(w);
    cut_again(w, how);
}

/* Both ends are cut until just before this time, and have ended after it. */
static void expect_end_after(struct world *w, uint64_t ns, int status)
{
    pass(w, ns - 200 * HW_MS);
    assert_true(rpc_ep_is_cut(w->ep[CLIENT]) && rpc_ep_is_cut(w->ep[SERVER]));
    pass(w, 400 * HW_MS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(rpc_ep_status(w->ep[i]), status);
    for (int i = 0; i < w->ask_count; i++)
        assert_int_equal(w->asks[i].ended, 1);
}

static void after_silence_the_window_passes(void **state)
{
    (void)state;
    struct world w = {0};
    world_open(&w, 3, 300);
    cut_both(&w, SILENTLY);
    expect_end_after(&w, WINDOW_SECONDS * HW_SEC, -EHOSTDOWN);
    world_close(&w);
}

static void a_connector_may_give_up_before_the_window_passes(void **state)
{
    (void)state;
    struct world w = {.resumes_ns = WINDOW_SECONDS * HW_SEC / 2};
    world_open(&w, 3, 300);
    cut_both(&w, SILENTLY);
    pass(&w, w.resumes_ns - 200 * HW_MS);
    assert_true(rpc_ep_is_cut(w.ep[CLIENT]));
    pass(&w, 400 * HW_MS);
    assert_int_equal(rpc_ep_status(w.ep[CLIENT]), -EHOSTDOWN);
    assert_true(rpc_ep_is_cut(w.ep[SERVER]));
    world_close(&w);
}

/* A killed program's kernel resets the connection: what ends it in order, and says no goodbye, is
 * something between. */
static void an_end_in_order_without_a_goodbye_is_a_cut(void **state)
{
    (void)state;
    struct world w = {0};
    world_open(&w, 13, 300);
    cut_both(&w, BY_FIN);
    expect_end_after(&w, WINDOW_SECONDS * HW_SEC, -EHOSTDOWN);
    world_close(&w);
}

/* The kernel tells of a reset once.  A send that finds it leaves an end to recv that looks as if it
 * was in order. */
static void a_reset_that_a_send_finds_is_told(void **state)
{
    (void)state;
    struct world w = {0};
    world_open(&w, 14, 300);
    open_and_offer(&w);
    w.fuse = (struct fuse){.left = 0, .closed = true};
    for (int i = 0; i < 20 && !rpc_ep_is_cut(w.ep[CLIENT]); i++) {
        ask(&w);
        (void)rpc_flush(w.ep[CLIENT]);
        turn(&w);
    }
    pass(&w, RPC_RESUME_TOLD_NS - 200 * HW_MS);
    assert_true(rpc_ep_is_cut(w.ep[CLIENT]));
    pass(&w, 400 * HW_MS);
    assert_int_equal(rpc_ep_status(w.ep[CLIENT]), -ECONNRESET);
    world_close(&w);
}

/* A killed program's host says so, and its memory is not held for the whole window. */
static void an_end_that_was_told_is_waited_for_shortly(void **state)
{
    (void)state;
    struct world w = {0};
    world_open(&w, 9, 300);
    cut_both(&w, BY_RESET);
    expect_end_after(&w, RPC_RESUME_TOLD_NS, -ECONNRESET);
    world_close(&w);
}

static void come_back(struct world *w)
{
    while (!try_resume(w))
        ;
    turn(w);
}

/* Where connections are cut all the time, an end that is told is one more cut; where they were not
 * for as long as the window, it is not. */
static void an_end_soon_after_a_resumption_is_a_cut(void **state)
{
    (void)state;
    struct world w = {0};
    world_open(&w, 12, 300);
    cut_both(&w, BY_RESET);
    come_back(&w);
    for (int i = 0; i < 3; i++) {
        cut_again(&w, BY_RESET);
        pass(&w, WINDOW_SECONDS * HW_SEC - 200 * HW_MS);
        assert_true(rpc_ep_is_cut(w.ep[CLIENT]) && rpc_ep_is_cut(w.ep[SERVER]));
        come_back(&w);
    }
    pass(&w, WINDOW_SECONDS * HW_SEC + HW_SEC);
    cut_again(&w, BY_RESET);
    expect_end_after(&w, RPC_RESUME_TOLD_NS, -ECONNRESET);
    world_close(&w);
}

/* A connector learns more with each attempt: that the network is away, or that nobody listens. */
static void attempts_that_fail_say_how_long_to_wait(void **state)
{
    (void)state;
    static const struct {
        enum how how;
        int attempts[2];
        uint64_t ends_ns; /* after the cut; attempts are one second apart */
    } cases[] = {
        {SILENTLY, {-ETIMEDOUT, -ENETUNREACH}, WINDOW_SECONDS * HW_SEC},
        {SILENTLY, {-ETIMEDOUT, -ECONNREFUSED}, 2 * HW_SEC + RPC_RESUME_TOLD_NS},
        {BY_RESET, {-ECONNREFUSED, -ECONNREFUSED}, RPC_RESUME_TOLD_NS},
        {BY_RESET, {-ECONNREFUSED, -EHOSTUNREACH}, WINDOW_SECONDS * HW_SEC},
        {BY_RESET, {-ECONNRESET, -ESHUTDOWN}, WINDOW_SECONDS * HW_SEC}, /* cut in its handshake */
        {BY_RESET, {-EHOSTUNREACH, -ECONNREFUSED}, 2 * HW_SEC + RPC_RESUME_TOLD_NS},
        {BY_FIN, {-ETIMEDOUT, -ECONNREFUSED}, 2 * HW_SEC + RPC_RESUME_TOLD_NS},
        {BY_FIN, {-ECONNRESET, -ETIMEDOUT}, WINDOW_SECONDS * HW_SEC},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world w = {0};
        world_open(&w, 10 + i, 300);
        cut_both(&w, cases[i].how);
        for (int k = 0; k < 2; k++) {
            pass(&w, HW_SEC);
            rpc_ep_resume_failed(w.ep[CLIENT], cases[i].attempts[k]);
        }
        pass(&w, cases[i].ends_ns - 2 * HW_SEC - 200 * HW_MS);
        assert_true(rpc_ep_is_cut(w.ep[CLIENT]));
        pass(&w, 400 * HW_MS);
        assert_false(rpc_ep_is_cut(w.ep[CLIENT]));
        world_close(&w);
    }
}

/* A peer without the feature neither offers nor keeps: a cut is what it was. */
static void without_an_offer_a_cut_is_the_end(void **state)
{
    (void)state;
    struct world w = {.fuses = {3000}, .fuse_count = 1};
    world_open(&w, 4, 300);
    while (rpc_ep_status(w.ep[CLIENT]) == 0 || rpc_ep_status(w.ep[CLIENT]) == -EINPROGRESS) {
        ask(&w);
        turn(&w);
    }
    assert_int_equal(rpc_ep_status(w.ep[CLIENT]), -ECONNRESET);
    world_close(&w);
}

/* A connector keeps little for an acceptor that may never offer; what it then lacks it cannot send
 * again, so an offer that comes late changes nothing. */
static void an_offer_that_comes_late_is_declined(void **state)
{
    (void)state;
    struct world w = {0};
    world_open(&w, 8, PAYLOAD_MAX);
    while (w.ended < CALLS / 2) {
        ask(&w);
        turn(&w);
    }
    assert_int_equal(rpc_ep_offer_resume(w.ep[SERVER], &w.key, HW_SEC, 0), 0);
    assert_true(run_on(&w));
    assert_false(rpc_ep_can_resume(w.ep[CLIENT]));
    rpc_loopnet_reset(w.wire);
    turn(&w);
    assert_int_equal(rpc_ep_status(w.ep[CLIENT]), -ECONNRESET);
    world_close(&w);
}

/* Both ends notice by the heartbeat alone. */
static void silence_is_a_cut(void **state)
{
    (void)state;
    struct world w = {0};
    world_open(&w, 5, 300);
    cut_both(&w, SILENTLY);
    while (!try_resume(&w))
        ;
    assert_true(run_on(&w));
    world_close(&w);
}

/* As a laptop that sleeps, with both ends on it or not. */
static void a_pause_is_not_the_peers_silence(void **state)
{
    (void)state;
    struct world w = {0};
    world_open(&w, 8, 300);
    for (int i = 0; i < 2; i++) /* hellos are on their way */
        (void)rpc_poll(w.ep[i]);
    rpc_loopnet_spend(w.net, 3600 * HW_SEC);
    open_and_offer(&w);
    rpc_loopnet_spend(w.net, 3600 * HW_SEC);
    for (int i = 0; i < 6; i++) { /* the client runs for a moment now and then, the server never */
        (void)rpc_poll(w.ep[CLIENT]);
        rpc_loopnet_spend(w.net, 10 * HW_SEC);
    }
    assert_false(rpc_ep_is_cut(w.ep[CLIENT]));
    assert_true(run_on(&w));
    assert_int_equal(w.resumes, 0);
    world_close(&w);
}

static void a_pause_does_not_close_the_window(void **state)
{
    (void)state;
    struct world w = {0};
    world_open(&w, 9, 300);
    cut_both(&w, BY_RESET);
    for (int i = 0; i < 2; i++) {
        rpc_loopnet_spend(w.net, 3600 * HW_SEC);
        turn(&w);
    }
    assert_true(rpc_ep_is_cut(w.ep[CLIENT]) && rpc_ep_is_cut(w.ep[SERVER]));
    rpc_loopnet_spend(w.net, 3600 * HW_SEC);
    while (!try_resume(&w))
        ;
    assert_true(run_on(&w));
    world_close(&w);
}

static void impossible_numbers_end_the_session(void **state)
{
    (void)state;
    const uint64_t numbers[] = {UINT64_MAX, UINT64_MAX / 2, 1 << 20};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct world w = {.fuses = {3000}, .fuse_count = 1};
        struct rpc_transport *ends[2];
        world_open(&w, 6, 300);
        open_and_offer(&w);
        while (!rpc_ep_is_cut(w.ep[SERVER])) {
            ask(&w);
            turn(&w);
        }
        pair(&w, ends);
        assert_int_equal(rpc_ep_resume_accept(w.ep[SERVER], ends[SERVER], 1, numbers[i]), -EPROTO);
        assert_int_equal(rpc_ep_status(w.ep[SERVER]), -EPROTO);
        rpc_transport_destroy(ends[CLIENT]);
        world_close(&w);
    }
}

static void put_frame(struct world *w, int side, const struct rpc_frame *frame, const void *body)
{
    assert_int_equal(rpc_tx_control(&w->ep[side]->tx, frame, body), 0);
}

static void frames_out_of_turn_end_the_connection(void **state)
{
    (void)state;
    uint8_t body[RPC_RESUME_OFFER_BYTES] = {0};
    struct {
        int from;
        struct rpc_frame frame;
    } cases[] = {
        {CLIENT, {.kind = RPC_FRAME_ACK, .value = 1 << 30}},
        {SERVER, {.kind = RPC_FRAME_ACK, .value = 1 << 30}},
        {CLIENT, {.kind = RPC_FRAME_OFFER, .len = sizeof body}},
        {SERVER, {.kind = RPC_FRAME_OFFER, .len = sizeof body}},
        {SERVER, {.kind = RPC_FRAME_OFFER, .len = sizeof body - 1}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world w = {0};
        world_open(&w, 7, 300);
        open_and_offer(&w);
        for (int k = 0; k < 50; k++)
            turn(&w);
        put_frame(&w, cases[i].from, &cases[i].frame, body);
        int other = 1 - cases[i].from;
        for (int k = 0; k < 50; k++)
            turn(&w);
        assert_int_equal(rpc_ep_status(w.ep[other]), -EPROTO);
        world_close(&w);
    }
}

static void a_request_is_checked(void **state)
{
    (void)state;
    struct rpc_resume_request request = {.received = 5}, got;
    uint8_t bytes[RPC_RESUME_REQUEST_BYTES + 1] = {0};
    assert_int_equal(rpc_resume_key_make(9, &request.key), 0);
    rpc_resume_put_request(&request, bytes);
    assert_int_equal(rpc_resume_get_request(bytes, RPC_RESUME_REQUEST_BYTES, &got), 0);
    assert_true(rpc_resume_key_equal(&request.key, &got.key) && got.received == 5);
    for (size_t i = 0; i < 8 + RPC_RESUME_SECRET_BYTES; i++) {
        bytes[i] ^= 1;
        assert_int_equal(rpc_resume_get_request(bytes, RPC_RESUME_REQUEST_BYTES, &got), 0);
        assert_false(rpc_resume_key_equal(&request.key, &got.key));
        bytes[i] ^= 1;
    }
    assert_int_equal(rpc_resume_get_request(bytes, RPC_RESUME_REQUEST_BYTES - 1, &got), -EPROTO);
    assert_int_equal(rpc_resume_get_request(bytes, RPC_RESUME_REQUEST_BYTES + 1, &got), -EPROTO);
}

/* ---- pipes ---- */

struct plumbing {
    struct world w; /* of its net and fuses */
    struct rpc_transport *sender, *receiver;
    uint64_t dials;
};

static int dial_again(void *user, struct rpc_transport **out)
{
    struct plumbing *p = user;
    struct rpc_transport *ends[2];
    pair(&p->w, ends);
    *out = ends[CLIENT];
    rpc_pipe_give(p->receiver, ends[SERVER]);
    p->dials++;
    return 0;
}

static void plumb(struct plumbing *p)
{
    struct rpc_loopnet_options options = {
        .seed = 1, .delay_ns = 20 * HW_US, .buffer_bytes = 100000, .stall_percent = 10};
    struct rpc_transport *ends[2];
    assert_int_equal(rpc_loopnet_create(&options, &p->w.net), 0);
    pair(&p->w, ends);
    assert_int_equal(rpc_pipe_sender(ends[CLIENT], dial_again, p, &p->sender), 0);
    assert_int_equal(rpc_pipe_receiver(ends[SERVER], &p->receiver), 0);
}

static void unplumb(struct plumbing *p)
{
    rpc_transport_destroy(p->sender);
    rpc_transport_destroy(p->receiver);
    rpc_loopnet_destroy(p->w.net);
}

/* Sends all of it, and tends to the pipe until it has arrived. */
static void pour(struct plumbing *p, uint8_t *bytes, uint8_t *got, size_t len, size_t piece)
{
    for (size_t sent = 0, have = 0; have < len;) {
        struct iovec out = {bytes + sent, len - sent < piece ? len - sent : piece};
        ssize_t n =
            sent < len ? p->sender->ops->send(p->sender, &out, 1) : rpc_pipe_tend(p->sender, false);
        assert_true(n >= 0 || n == -EAGAIN);
        sent += sent < len && n > 0 ? (size_t)n : 0;
        struct iovec in = {got + have, len - have};
        n = p->receiver->ops->recv(p->receiver, &in, 1, 0);
        assert_true(n > 0 || n == -EAGAIN);
        have += n > 0 ? (size_t)n : 0;
        rpc_loopnet_spend(p->w.net, 10 * HW_US);
    }
    assert_memory_equal(bytes, got, len);
}

static void a_pipe_loses_nothing(void **state)
{
    (void)state;
    enum { SMALL = 600, LARGE = 9 << 20 };
    uint8_t *bytes = malloc(LARGE), *got = malloc(LARGE);
    assert_true(bytes && got);
    pattern_fill(bytes, LARGE, 11);
    for (uint64_t at = 0; at < SMALL; at++) { /* the first is cut here, the second soon after */
        struct plumbing p = {.w = {.fuses = {at, at % 23}, .fuse_count = 2}};
        plumb(&p);
        pour(&p, bytes, got, SMALL, 100);
        assert_true(p.dials >= 1);
        unplumb(&p);
    }
    struct plumbing p = {.w = {.fuse_count = ARRAY_LEN(p.w.fuses)}};
    hw_rng_seed(&p.w.rng, 12);
    for (size_t i = 0; i < ARRAY_LEN(p.w.fuses); i++)
        p.w.fuses[i] = hw_rng_below(&p.w.rng, UINT64_C(1) << hw_rng_below(&p.w.rng, 19));
    plumb(&p);
    pour(&p, bytes, got, LARGE, 128 << 10);
    assert_int_equal(p.dials, ARRAY_LEN(p.w.fuses));
    unplumb(&p);
    free(bytes);
    free(got);
}

/* What a receiver says is a peer's word. */
static void a_pipe_believes_no_number_that_cannot_be(void **state)
{
    (void)state;
    for (uint64_t number = 6; number != 0; number <<= 19) {
        struct plumbing p = {0};
        struct rpc_transport *ends[2];
        uint8_t said[8], hello[6] = "hello";
        struct iovec iov = {hello, 5};
        plumb(&p);
        rpc_transport_destroy(p.sender);
        pair(&p.w, ends);
        assert_int_equal(rpc_pipe_sender(ends[CLIENT], dial_again, &p, &p.sender), 0);
        assert_int_equal(p.sender->ops->send(p.sender, &iov, 1), 5);
        wire_store64(said, number);
        iov = (struct iovec){said, sizeof said};
        assert_int_equal(ends[SERVER]->ops->send(ends[SERVER], &iov, 1), sizeof said);
        int rc = 0;
        for (int i = 0; i < 50 && rc == 0; i++) {
            rpc_loopnet_spend(p.w.net, HW_MS);
            rc = rpc_pipe_tend(p.sender, false);
        }
        assert_int_equal(rc, -EPROTO);
        rpc_transport_destroy(ends[SERVER]);
        unplumb(&p);
    }
}

struct raw_end {
    struct world w;
    struct rpc_transport *receiver;
};

static int dial_raw(void *user, struct rpc_transport **out)
{
    struct raw_end *r = user;
    struct rpc_transport *ends[2];
    pair(&r->w, ends);
    *out = ends[CLIENT];
    rpc_transport_destroy(r->receiver);
    r->receiver = ends[SERVER];
    return 0;
}

static void say_number(struct rpc_transport *t, uint64_t number)
{
    uint8_t said[8];
    struct iovec iov = {said, sizeof said};
    wire_store64(said, number);
    assert_int_equal(t->ops->send(t, &iov, 1), sizeof said);
}

static void drain(struct rpc_transport *t)
{
    uint8_t scrap[4096];
    struct iovec iov = {scrap, sizeof scrap};
    while (t->ops->recv(t, &iov, 1, 0) > 0)
        ;
}

/* On a connection that has not brought them again: they were lost with the one before. */
static void a_pipe_believes_no_number_of_bytes_that_were_not_sent_again(void **state)
{
    (void)state;
    enum { TOTAL = 300000, BUFFER = 100000 };
    struct rpc_loopnet_options options = {
        .seed = 1, .delay_ns = 20 * HW_US, .buffer_bytes = BUFFER};
    struct raw_end r = {0};
    struct rpc_transport *first, *sender;
    static uint8_t bytes[TOTAL];
    assert_int_equal(rpc_loopnet_create(&options, &r.w.net), 0);
    (void)dial_raw(&r, &first);
    assert_int_equal(rpc_pipe_sender(first, dial_raw, &r, &sender), 0);
    for (size_t sent = 0; sent < TOTAL;) {
        struct iovec iov = {bytes + sent, TOTAL - sent};
        ssize_t n = sender->ops->send(sender, &iov, 1);
        sent += n > 0 ? (size_t)n : 0;
        drain(r.receiver);
        rpc_loopnet_spend(r.w.net, HW_MS);
    }
    assert_int_equal(rpc_pipe_tend(sender, true), 0);
    say_number(r.receiver, 0);
    for (int i = 0; i < 50; i++) { /* it sends what the connection takes */
        rpc_loopnet_spend(r.w.net, HW_MS);
        assert_int_equal(rpc_pipe_tend(sender, false), 0);
    }
    say_number(r.receiver, TOTAL - 1);
    int rc = 0;
    for (int i = 0; i < 50 && rc == 0; i++) {
        rpc_loopnet_spend(r.w.net, HW_MS);
        rc = rpc_pipe_tend(sender, false);
    }
    assert_int_equal(rc, -EPROTO);
    rpc_transport_destroy(sender);
    rpc_transport_destroy(r.receiver);
    rpc_loopnet_destroy(r.w.net);
}

/* ---- what is kept, beside a model of it ---- */

static uint64_t dropped;

static void count_drop(void *owner)
{
    (void)owner;
    dropped++;
}

static void check_gather(const struct rpc_kept *kept, const uint8_t *model, uint64_t from)
{
    while (from < rpc_kept_written(kept)) {
        struct iovec iov[3];
        int count = rpc_kept_gather(kept, from, iov, 3);
        assert_true(count > 0);
        for (int i = 0; i < count; i++) {
            assert_memory_equal(iov[i].iov_base, model + from, iov[i].iov_len);
            from += iov[i].iov_len;
        }
    }
}

static void kept_is_what_was_written(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20, LIMIT = 300 << 10 };
    uint8_t *model = malloc(BYTES), *lent = malloc(BYTES);
    assert_true(model && lent);
    pattern_fill(model, BYTES, 8);
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct hw_rng rng;
        hw_rng_seed(&rng, seed);
        struct rpc_kept *kept = rpc_kept_create(LIMIT, count_drop);
        uint64_t made = 0, at;
        dropped = 0;
        memcpy(lent, model, BYTES);
        while ((at = rpc_kept_written(kept)) < BYTES) {
            size_t len = 1 + (size_t)hw_rng_below(&rng, UINT64_C(1) << hw_rng_below(&rng, 15));
            if (len > BYTES - at)
                len = (size_t)(BYTES - at);
            if (hw_rng_below(&rng, 2)) {
                rpc_kept_copy(kept, model + at, len);
            } else {
                made += rpc_kept_refer(kept, lent + at, len, kept);
                if (hw_rng_below(&rng, 3) == 0) {
                    rpc_kept_own(kept, kept);
                    assert_int_equal(dropped, made);
                    memset(lent, 0, (size_t)at + len);
                }
            }
            uint64_t acked = rpc_kept_acked(kept), now = rpc_kept_written(kept);
            if (hw_rng_below(&rng, 3) == 0 || now - acked > LIMIT / 2)
                assert_int_equal(rpc_kept_ack(kept, acked + hw_rng_below(&rng, now - acked + 1)),
                                 0);
            acked = rpc_kept_acked(kept);
            assert_false(rpc_kept_is_broken(kept));
            if (hw_rng_below(&rng, 8) == 0)
                check_gather(kept, model, acked + hw_rng_below(&rng, now - acked + 1));
        }
        assert_int_equal(rpc_kept_ack(kept, BYTES + 1), -EPROTO);
        assert_int_equal(rpc_kept_ack(kept, BYTES), 0);
        assert_int_equal(rpc_kept_ack(kept, BYTES - 1), -EPROTO);
        assert_int_equal(dropped, made);
        rpc_kept_destroy(kept);
    }
    free(model);
    free(lent);
}

static void a_peer_that_acknowledges_nothing_ends_the_keeping(void **state)
{
    (void)state;
    uint8_t bytes[1000] = {0};
    struct rpc_kept *kept = rpc_kept_create(5000, count_drop);
    uint64_t made = 0;
    dropped = 0;
    rpc_kept_skip(kept, 500);
    for (int i = 0; i < 5; i++)
        made += rpc_kept_refer(kept, bytes, sizeof bytes, kept);
    assert_int_equal(rpc_kept_written(kept), 4500);
    assert_false(rpc_kept_is_broken(kept));
    rpc_kept_copy(kept, bytes, sizeof bytes);
    assert_true(rpc_kept_is_broken(kept));
    assert_int_equal(dropped, made);
    rpc_kept_copy(kept, bytes, sizeof bytes);
    assert_int_equal(rpc_kept_ack(kept, 6500), 0);
    rpc_kept_destroy(kept);
}

static uint64_t heard_by(const struct rpc_ep *ep)
{
    return hw_counter_load(&rpc_ep_stats(ep)->bytes_received);
}

static void ping_as_other_releases_do(struct rpc_ep *ep)
{
    ep->mute = false;
    ep->ping_every_ns = 100 * HW_MS;
}

/* For most of a heartbeat. */
static void let_wait(struct world *w, struct rpc_attempt *attempt, struct rpc_ep *caller)
{
    for (int i = 0; i < 150; i++) {
        rpc_loopnet_spend(w->net, 10 * HW_MS);
        assert_int_equal(rpc_attempt_poll(attempt), -EINPROGRESS);
        assert_true(rpc_poll(caller) >= 0);
    }
}

/* The first byte behind the request is the session's, and so it is behind the answer. */
static void an_attempt_says_nothing_behind_its_request(void **state)
{
    (void)state;
    struct world w = {0};
    struct rpc_transport *ends[2];
    struct rpc_resume_request request;
    struct rpc_attempt *attempt;
    struct rpc_ep *caller;
    struct rpc_msg *msg;
    int rc;
    world_open(&w, 15, 300);
    cut_both(&w, SILENTLY);
    rpc_ep_resume_request(w.ep[CLIENT], &request);
    pair(&w, ends);
    struct rpc_config config = config_of(&w, false), accepting = config_of(&w, true);
    assert_int_equal(rpc_attempt_create(ends[CLIENT], &config, &request, &attempt), 0);
    assert_int_equal(rpc_ep_create(ends[SERVER], &accepting, &caller), 0);
    do {
        rpc_loopnet_spend(w.net, 10 * HW_US);
        assert_int_equal(rpc_attempt_poll(attempt), -EINPROGRESS);
        assert_true(rpc_poll(caller) >= 0);
    } while ((msg = rpc_recv(caller)) == NULL);
    uint64_t heard = heard_by(caller), said = bytes_of(caller);
    let_wait(&w, attempt, caller);
    assert_int_equal(bytes_of(caller), said);
    ping_as_other_releases_do(caller);
    let_wait(&w, attempt, caller);
    assert_true(bytes_of(caller) > said);
    assert_int_equal(heard_by(caller), heard);
    accept_caller(&w, &caller, msg);
    while ((rc = rpc_attempt_poll(attempt)) == -EINPROGRESS) {
        (void)rpc_poll(w.ep[SERVER]);
        rpc_loopnet_spend(w.net, 10 * HW_US);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(rpc_attempt_finish(attempt, w.ep[CLIENT]), 0);
    assert_true(run_on(&w));
    world_close(&w);
}

/* As those of an upload stripe, whose bytes are a number to its client and chunks to its session.
 */
static void mute_ends_send_nothing_and_outlive_silence(void **state)
{
    (void)state;
    struct world w = {0};
    struct rpc_transport *ends[2];
    struct rpc_ep *ep[2];
    world_open(&w, 16, 300);
    pair(&w, ends);
    for (int i = 0; i < 2; i++) {
        struct rpc_config config = {
            .accepting = i == SERVER, .mute = i == CLIENT, .clock = rpc_loopnet_clock(w.net)};
        assert_int_equal(rpc_ep_create(ends[i], &config, &ep[i]), 0);
    }
    while (rpc_ep_status(ep[CLIENT]) || rpc_ep_status(ep[SERVER])) {
        rpc_loopnet_spend(w.net, 10 * HW_US);
        assert_true(rpc_poll(ep[CLIENT]) >= 0 && rpc_poll(ep[SERVER]) >= 0);
    }
    rpc_ep_mute(ep[SERVER]);
    uint64_t sent[2] = {bytes_of(ep[CLIENT]), bytes_of(ep[SERVER])};
    for (int i = 0; i < 1000; i++) {
        rpc_loopnet_spend(w.net, 10 * HW_MS);
        assert_true(rpc_poll(ep[CLIENT]) >= 0 && rpc_poll(ep[SERVER]) >= 0);
    }
    assert_int_equal(bytes_of(ep[CLIENT]), sent[CLIENT]);
    ping_as_other_releases_do(ep[CLIENT]);
    for (int i = 0; i < 100; i++) {
        rpc_loopnet_spend(w.net, 10 * HW_MS);
        assert_true(rpc_poll(ep[CLIENT]) >= 0 && rpc_poll(ep[SERVER]) >= 0);
    }
    assert_true(bytes_of(ep[CLIENT]) > sent[CLIENT]);
    assert_int_equal(bytes_of(ep[SERVER]), sent[SERVER]);
    rpc_ep_destroy(ep[CLIENT]);
    rpc_ep_destroy(ep[SERVER]);
    world_close(&w);
}

/* What a sender keeps for a receiver with a large window is bounded by its own. */
static void a_large_window_is_acknowledged_often_enough(void **state)
{
    (void)state;
    enum { LARGE = 256 << 20 };
    static uint8_t data[PAYLOAD_MAX];
    struct world w = {.window = LARGE};
    struct rpc_send post = {.method = METHOD_SINK, .iov_count = 1};
    struct iovec iov = {data, sizeof data};
    struct rpc_msg *msg;
    uint64_t taken = 0;
    world_open(&w, 17, 300);
    open_and_offer(&w);
    assert_true(rpc_ep_can_resume(w.ep[CLIENT]));
    post.iov = &iov;
    while (taken < LARGE / 4) { /* so that no credit goes back, on which it could ride */
        (void)!rpc_post(w.ep[CLIENT], &post); /* or no room yet */
        for (int i = 0; i < 2; i++)
            assert_true(rpc_poll(w.ep[i]) >= 0);
        for (; (msg = rpc_recv(w.ep[SERVER])) != NULL; rpc_release(w.ep[SERVER], msg))
            taken += msg->len;
        rpc_loopnet_spend(w.net, 10 * HW_US);
    }
    assert_true(rpc_ep_can_resume(w.ep[CLIENT]));
    world_close(&w);
}

static void say_nothing(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

int main(void)
{
    hw_log_set_sink(say_nothing, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_is_what_was_written),
        cmocka_unit_test(a_peer_that_acknowledges_nothing_ends_the_keeping),
        cmocka_unit_test(a_request_is_checked),
        cmocka_unit_test(a_pipe_loses_nothing),
        cmocka_unit_test(a_pipe_believes_no_number_that_cannot_be),
        cmocka_unit_test(a_pipe_believes_no_number_of_bytes_that_were_not_sent_again),
        cmocka_unit_test(cut_at_every_byte),
        cmocka_unit_test(cut_at_every_byte_of_a_resumption),
        cmocka_unit_test(many_cuts_of_large_traffic),
        cmocka_unit_test(after_silence_the_window_passes),
        cmocka_unit_test(a_connector_may_give_up_before_the_window_passes),
        cmocka_unit_test(an_end_in_order_without_a_goodbye_is_a_cut),
        cmocka_unit_test(a_reset_that_a_send_finds_is_told),
        cmocka_unit_test(an_end_that_was_told_is_waited_for_shortly),
        cmocka_unit_test(an_end_soon_after_a_resumption_is_a_cut),
        cmocka_unit_test(attempts_that_fail_say_how_long_to_wait),
        cmocka_unit_test(without_an_offer_a_cut_is_the_end),
        cmocka_unit_test(an_offer_that_comes_late_is_declined),
        cmocka_unit_test(silence_is_a_cut),
        cmocka_unit_test(a_pause_is_not_the_peers_silence),
        cmocka_unit_test(a_pause_does_not_close_the_window),
        cmocka_unit_test(impossible_numbers_end_the_session),
        cmocka_unit_test(frames_out_of_turn_end_the_connection),
        cmocka_unit_test(a_large_window_is_acknowledged_often_enough),
        cmocka_unit_test(an_attempt_says_nothing_behind_its_request),
        cmocka_unit_test(mute_ends_send_nothing_and_outlive_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
