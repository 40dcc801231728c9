/* A network with every fault it can have, from a seed: what holds, holds in all of them.
 *
 *   test-rpc-loopback-sim            every seed
 *   test-rpc-loopback-sim SEED       one, with its options printed */
#include "unit.h"

#include "../../sanitized.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "duo.h"
#include "rpc/endpoint/ep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SEEDS = SANITIZED ? 150 : 400, CALLS_MAX = 400, STEPS = 300 };

struct sim;

struct sim_call {
    struct sim *sim;
    uint32_t id;
    int side;
    uint64_t ended;
};

struct sim {
    uint64_t seed;
    struct hw_rng rng;
    struct rpc_loopnet *net;
    struct rpc_transport *transport[2];
    struct rpc_ep *ep[2];
    struct sim_call calls[CALLS_MAX];
    int call_count;
    uint64_t next_sent[2][RPC_STREAMS]; /* posts and pushes carry their number */
    uint64_t next_got[2][RPC_STREAMS];
    struct rpc_msg *held[2][64];
    int held_count[2];
    uint64_t log; /* hash of all that happened */
};

static void note(struct sim *s, uint64_t what, uint64_t a, uint64_t b)
{
    uint64_t event[4] = {s->log, what, a, b};
    s->log = XXH3_64bits(event, sizeof event);
}

static void check(const struct sim *s, bool holds, const char *what)
{
    if (!holds)
        fail_msg("seed %llu: %s; again with: test-rpc-loopback-sim %llu",
                 (unsigned long long)s->seed, what, (unsigned long long)s->seed);
}

static void on_reply(void *user, int status, const struct rpc_msg *reply)
{
    struct sim_call *call = user;
    call->ended++;
    check(call->sim, call->ended == 1, "a call ended twice");
    note(call->sim, 1, (uint64_t)(call - call->sim->calls), (uint64_t)(uint32_t)status);
    if (status == 0) {
        uint64_t number;
        check(call->sim, reply && reply->len >= sizeof number, "an answer is short");
        memcpy(&number, reply->data, sizeof number);
        check(call->sim, number == (uint64_t)(call - call->sim->calls), "another call's answer");
    }
}

static struct rpc_loopnet_options random_options(struct hw_rng *rng, uint64_t seed)
{
    return (struct rpc_loopnet_options){
        .seed = seed,
        .delay_ns = hw_rng_below(rng, 3 * HW_MS),
        .jitter_ns = hw_rng_below(rng, 2) ? hw_rng_below(rng, HW_MS) : 0,
        .write_cost_ns = hw_rng_below(rng, 20 * HW_US),
        .buffer_bytes = 1000 + (uint32_t)hw_rng_below(rng, 100000),
        .piece_max = hw_rng_below(rng, 2) ? 1 + (uint32_t)hw_rng_below(rng, 5000) : 0,
        .stall_percent = hw_rng_below(rng, 3) ? 0 : (uint32_t)hw_rng_below(rng, 50),
    };
}

static void sim_open(struct sim *s, uint64_t seed)
{
    *s = (struct sim){.seed = seed};
    hw_rng_seed(&s->rng, seed);
    struct rpc_loopnet_options options = random_options(&s->rng, seed);
    assert_int_equal(rpc_loopnet_create(&options, &s->net), 0);
    assert_int_equal(rpc_loopnet_pair(s->net, s->transport), 0);
    for (int i = 0; i < 2; i++) {
        struct rpc_config config = {
            .accepting = i == SERVER,
            .window_bytes = RPC_WINDOW_MIN << hw_rng_below(&s->rng, 3),
            .flush = (enum rpc_flush_policy)hw_rng_below(&s->rng, 3),
            .max_calls = 64 + (uint32_t)hw_rng_below(&s->rng, 400),
            .send_queue_bytes = hw_rng_below(&s->rng, 2) ? 20000 : 0,
            .clock = rpc_loopnet_clock(s->net),
        };
        assert_int_equal(rpc_ep_create(s->transport[i], &config, &s->ep[i]), 0);
    }
}

static size_t random_len(struct sim *s)
{
    return 8 + (size_t)hw_rng_below(&s->rng, UINT64_C(1) << hw_rng_below(&s->rng, 17));
}

static void make_call(struct sim *s, int side)
{
    static uint8_t data[1 << 17];
    if (s->call_count == CALLS_MAX)
        return;
    uint64_t number = (uint64_t)s->call_count;
    struct sim_call *call = &s->calls[number];
    *call = (struct sim_call){.sim = s, .side = side};
    memcpy(data, &number, sizeof number);
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_ECHO, &iov, data, random_len(s));
    send.stream = (uint8_t)hw_rng_below(&s->rng, RPC_STREAMS);
    if (hw_rng_below(&s->rng, 3) == 0)
        send.timeout_ns = 1 + hw_rng_below(&s->rng, 20 * HW_MS);
    int rc = rpc_call(s->ep[side], &send, on_reply, call, &call->id);
    note(s, 2, number, (uint64_t)(uint32_t)rc);
    if (rc == 0)
        s->call_count++;
    else
        check(s, call->ended == 0, "a refused call was called back");
}

static void make_one_way(struct sim *s, int side)
{
    static uint8_t data[1 << 17];
    uint8_t stream = (uint8_t)hw_rng_below(&s->rng, RPC_STREAMS);
    memcpy(data, &s->next_sent[side][stream], sizeof(uint64_t));
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_SINK, &iov, data, random_len(s));
    send.stream = stream;
    int rc = side == SERVER ? rpc_push(s->ep[side], &send) : rpc_post(s->ep[side], &send);
    note(s, 3, stream, (uint64_t)(uint32_t)rc);
    if (rc == 0)
        s->next_sent[side][stream]++;
}

static void answer(struct sim *s, int side, struct rpc_msg *msg)
{
    struct iovec iov = {(void *)msg->data, msg->len};
    struct rpc_send echo = {.iov = &iov, .iov_count = 1};
    if (msg->kind == RPC_CALL)
        (void)rpc_reply(s->ep[side], msg, 0, &echo);
    rpc_release(s->ep[side], msg);
}

static void answer_held(struct sim *s, int side)
{
    int *count = &s->held_count[side];
    if (*count == 0)
        return;
    int which = (int)hw_rng_below(&s->rng, (uint64_t)*count);
    answer(s, side, s->held[side][which]);
    s->held[side][which] = s->held[side][--*count];
}

static void take(struct sim *s, int side, struct rpc_msg *msg)
{
    note(s, 4, msg->kind, msg->len);
    if (msg->kind != RPC_CALL) {
        uint64_t number;
        memcpy(&number, msg->data, sizeof number);
        check(s, number == s->next_got[side][msg->stream]++, "a stream is out of order");
    }
    if (s->held_count[side] < (int)ARRAY_LEN(s->held[side]) && hw_rng_below(&s->rng, 4) == 0)
        s->held[side][s->held_count[side]++] = msg;
    else
        answer(s, side, msg);
}

static void turn(struct sim *s, int side)
{
    struct rpc_msg *msg;
    (void)rpc_poll(s->ep[side]);
    while ((msg = rpc_recv(s->ep[side])) != NULL)
        take(s, side, msg);
    (void)rpc_flush(s->ep[side]);
    const struct rpc_tx *tx = &s->ep[side]->tx;
    check(s, tx->outstanding <= RPC_WINDOW_MIN << 2, "more outstanding than any window");
}

static void fault(struct sim *s)
{
    switch (hw_rng_below(&s->rng, 60)) {
    case 0:
        rpc_loopnet_cut(s->transport[0]);
        note(s, 5, 0, 0);
        break;
    case 1:
        rpc_loopnet_reset(s->transport[0]);
        note(s, 5, 1, 0);
        break;
    case 2:
    case 3:
        rpc_loopnet_freeze(s->transport[0],
                           rpc_loopnet_now(s->net) + hw_rng_below(&s->rng, 100 * HW_MS));
        note(s, 5, 2, 0);
        break;
    }
}

static void act(struct sim *s)
{
    int side = (int)hw_rng_below(&s->rng, 2);
    switch (hw_rng_below(&s->rng, 8)) {
    case 0:
    case 1:
        make_call(s, side);
        break;
    case 2:
    case 3:
        make_one_way(s, side);
        break;
    case 4:
        answer_held(s, side);
        break;
    case 5:
        if (s->call_count > 0) {
            struct sim_call *call = &s->calls[hw_rng_below(&s->rng, (uint64_t)s->call_count)];
            if (!call->ended)
                check(s, rpc_cancel(s->ep[call->side], call->id) == 0, "cancel knew no call");
        }
        break;
    default:
        turn(s, side);
        rpc_loopnet_step(s->net, rpc_loopnet_now(s->net) + hw_rng_below(&s->rng, HW_MS));
    }
}

static bool alive(const struct sim *s)
{
    return rpc_ep_status(s->ep[0]) == 0 && rpc_ep_status(s->ep[1]) == 0;
}

static bool calls_open(const struct sim *s)
{
    for (int i = 0; i < s->call_count; i++)
        if (!s->calls[i].ended)
            return true;
    return false;
}

static bool is_over(const struct sim *s)
{
    for (int side = 0; side < 2; side++) {
        int status = rpc_ep_status(s->ep[side]);
        if (status == 0 || status == -EINPROGRESS)
            return false;
    }
    return true;
}

/* Everything that was sent has been taken, and every id is free again. */
static bool is_quiet(const struct sim *s)
{
    for (int side = 0; side < 2; side++) {
        const struct rpc_ep *from = s->ep[side], *to = s->ep[!side];
        if (from->tx.queued_bytes || from->calls.used || to->rx.held ||
            memcmp(s->next_sent[side], s->next_got[!side], sizeof s->next_got[side]) != 0)
            return false;
    }
    return alive(s);
}

static void pass_time(struct sim *s, uint64_t ns)
{
    for (int side = 0; side < 2; side++) {
        while (s->held_count[side] > 0)
            answer_held(s, side);
        turn(s, side);
    }
    rpc_loopnet_step(s->net, rpc_loopnet_now(s->net) + ns);
    rpc_loopnet_spend(s->net, HW_US); /* bytes that lie unread hold time up */
}

/* Nothing new; both sides answer and read until all is quiet or the connection has ended. */
static void quiesce(struct sim *s)
{
    uint64_t until = rpc_loopnet_now(s->net) + 100 * HW_SEC;
    while (!is_over(s) && !is_quiet(s) && rpc_loopnet_now(s->net) < until)
        pass_time(s, 100 * HW_US);
    for (int i = 0; i < 300 && alive(s); i++) /* credit may still be on its way, or frozen */
        pass_time(s, HW_MS);
}

/* At rest, credit is with the sender or due back: none is lost, none is made. */
static void check_credit(struct sim *s)
{
    check(s, is_quiet(s), "a message or an answer is lost");
    for (int side = 0; side < 2; side++) {
        const struct rpc_ep *from = s->ep[side], *to = s->ep[!side];
        check(s, from->tx.credit + from->tx.outstanding == to->config.window_bytes,
              "the window has changed its size");
        check(s, from->tx.outstanding == to->credit_due, "credit is lost");
        check(s, from->calls.in_flight == 0, "a call id is lost");
    }
}

static uint64_t simulate(uint64_t seed, bool *survived)
{
    static struct sim sim; /* large */
    struct sim *s = &sim;
    sim_open(s, seed);
    bool faults = hw_rng_below(&s->rng, 2);
    for (int i = 0; i < STEPS; i++) {
        act(s);
        if (faults && hw_rng_below(&s->rng, 5) == 0)
            fault(s);
    }
    quiesce(s);
    for (int side = 0; side < 2; side++)
        note(s, 6, (uint64_t)(uint32_t)rpc_ep_status(s->ep[side]), rpc_loopnet_now(s->net));
    check(s, faults || alive(s), "a connection without faults has ended");
    check(s, !calls_open(s), "a call has not ended");
    *survived = alive(s);
    if (alive(s))
        check_credit(s);
    for (int side = 0; side < 2; side++)
        while (s->held_count[side] > 0)
            rpc_release(s->ep[side], s->held[side][--s->held_count[side]]);
    for (int side = 0; side < 2; side++)
        rpc_ep_destroy(s->ep[side]);
    rpc_loopnet_destroy(s->net);
    return s->log;
}

static void invariants_hold_for_every_seed(void **state)
{
    (void)state;
    int survivors = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bool survived;
        (void)simulate(seed, &survived);
        survivors += survived;
    }
    /* Both kinds of run must be among them, or the simulation shows less than it says. */
    assert_true(survivors > SEEDS / 4 && survivors < SEEDS);
}

static void same_seed_gives_the_same_events(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        bool survived;
        uint64_t first = simulate(seed, &survived);
        assert_true(first == simulate(seed, &survived));
        assert_true(first != simulate(seed + 1000, &survived));
    }
}

/* ---- the slow state of batching ----
 *
 * Sixteen closed-loop callers share a client.  The server takes some time for a request, and a
 * write takes some.  When all sixteen travel together, each answer waits for the fifteen others:
 * the server idles while the convoy is on the wire.  A client and server that only flush when
 * they have nothing else to do keep the convoy together for ever; the adaptive policy lets the
 * first answers go while the rest is being worked on, and the loop fills up again. */

enum { CALLERS = 16, COST_NS = 10000, ROUNDS = 200 };

struct convoy {
    struct rpc_loopnet *net;
    struct rpc_ep *ep[2];
    uint64_t done;
};

struct caller {
    struct convoy *convoy;
};

static void call_again(struct caller *caller);

static void caller_answered(void *user, int status, const struct rpc_msg *reply)
{
    struct caller *caller = user;
    (void)reply;
    if (status)
        return;
    caller->convoy->done++;
    call_again(caller);
}

static void call_again(struct caller *caller)
{
    struct rpc_send send = {.method = METHOD_ECHO};
    assert_int_equal(rpc_call(caller->convoy->ep[CLIENT], &send, caller_answered, caller, NULL), 0);
}

/* Calls a second of virtual time, after the start in one batch. */
static double convoy_rate(enum rpc_flush_policy policy)
{
    struct convoy c = {0};
    struct rpc_loopnet_options options = {
        .seed = 1, .delay_ns = COST_NS * CALLERS / 2, .write_cost_ns = 2000};
    struct rpc_transport *t[2];
    assert_int_equal(rpc_loopnet_create(&options, &c.net), 0);
    assert_int_equal(rpc_loopnet_pair(c.net, t), 0);
    for (int i = 0; i < 2; i++) {
        struct rpc_config config = {
            .accepting = i == SERVER, .flush = policy, .clock = rpc_loopnet_clock(c.net)};
        assert_int_equal(rpc_ep_create(t[i], &config, &c.ep[i]), 0);
    }
    while (rpc_ep_status(c.ep[0]) || rpc_ep_status(c.ep[1])) {
        assert_true(rpc_poll(c.ep[0]) >= 0 && rpc_poll(c.ep[1]) >= 0);
        rpc_loopnet_step(c.net, rpc_loopnet_now(c.net) + HW_MS);
    }
    struct caller callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i].convoy = &c;
        call_again(&callers[i]);
    }
    uint64_t start = rpc_loopnet_now(c.net);
    while (c.done < CALLERS * ROUNDS) {
        bool busy = false;
        for (int side = 0; side < 2; side++) {
            busy = rpc_poll(c.ep[side]) > 0 || busy;
            struct rpc_msg *msg;
            while ((msg = rpc_recv(c.ep[side])) != NULL) {
                rpc_loopnet_spend(c.net, COST_NS);
                assert_int_equal(rpc_reply(c.ep[side], msg, 0, NULL), 0);
                rpc_release(c.ep[side], msg);
                busy = true;
                if (side == SERVER && rpc_poll(c.ep[CLIENT]) > 0)
                    (void)rpc_flush(c.ep[CLIENT]); /* the client's core runs beside the server's */
            }
            (void)rpc_flush(c.ep[side]);
        }
        if (!busy)
            rpc_loopnet_step(c.net, rpc_loopnet_now(c.net) + HW_MS);
    }
    double seconds = (double)(rpc_loopnet_now(c.net) - start) / 1e9;
    double rate = (double)c.done / seconds;
    rpc_ep_destroy(c.ep[CLIENT]);
    rpc_ep_destroy(c.ep[SERVER]);
    rpc_loopnet_destroy(c.net);
    return rate;
}

static void adaptive_flushing_leaves_the_convoy(void **state)
{
    (void)state;
    double batch = convoy_rate(RPC_FLUSH_BATCH);
    double adaptive = convoy_rate(RPC_FLUSH_ADAPTIVE);
    double incremental = convoy_rate(RPC_FLUSH_INCREMENTAL);
    printf("calls/s in virtual time: batch %.0f, adaptive %.0f, incremental %.0f\n", batch,
           adaptive, incremental);
    assert_true(adaptive >= 1.3 * batch);
    assert_true(adaptive >= 0.9 * incremental);
}

int main(int argc, char **argv)
{
    setenv("VENUS_LOG_LEVEL", argc > 1 ? "DEBUG" : "NONE", 0);
    if (argc > 1) {
        bool survived;
        uint64_t log = simulate(strtoull(argv[1], NULL, 10), &survived);
        printf("seed %s: %s, events %016llx\n", argv[1], survived ? "alive" : "ended",
               (unsigned long long)log);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invariants_hold_for_every_seed),
        cmocka_unit_test(same_seed_gives_the_same_events),
        cmocka_unit_test(adaptive_flushing_leaves_the_convoy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
