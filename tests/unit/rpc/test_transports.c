/* One suite over every transport: what an endpoint promises does not depend on what carries it. */
#include "unit.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "duo.h"
#ifdef HAWSER_UCX
#include "rpc/transport/ucx.h"
#endif

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum link_kind kind_of(void **state)
{
    return (enum link_kind)(uintptr_t)*state;
}

static uint64_t stat_of(const struct duo *duo, int side, size_t offset)
{
    const struct rpc_stats *stats = rpc_ep_stats(duo->ep[side]);
    return hw_counter_load((const _Atomic uint64_t *)((const char *)stats + offset));
}

#define STAT(duo, side, field) stat_of(duo, side, offsetof(struct rpc_stats, field))

static void call(struct duo *duo, const struct rpc_send *send, struct outcome *o)
{
    *o = (struct outcome){0};
    int rc;
    while ((rc = rpc_call(duo->ep[CLIENT], send, outcome_fn, o, NULL)) == -EAGAIN)
        duo_turn(duo);
    assert_int_equal(rc, 0);
}

static void expect_echo(struct duo *duo, size_t len, uint64_t seed)
{
    uint8_t *data = malloc(len + 1);
    pattern_fill(data, len, seed);
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_ECHO, &iov, data, len);
    struct outcome o;
    call(duo, &send, &o);
    duo_until_count(duo, &o.ended, 1);
    assert_int_equal(o.status, 0);
    assert_int_equal(o.len, len);
    assert_true(o.hash == pattern_hash(data, len));
    free(data);
}

/* ---- the handshake and the verbs ---- */

static void both_sides_learn_of_each_other(void **state)
{
    struct rpc_config client = {.name = "the client", .capabilities = 5, .window_bytes = 1 << 20};
    struct rpc_config server = {.name = "the server", .capabilities = 6, .window_bytes = 2 << 20};
    struct duo duo;
    duo_open(&duo, kind_of(state), &client, &server);
    assert_string_equal(rpc_ep_peer_name(duo.ep[CLIENT]), "the server");
    assert_string_equal(rpc_ep_peer_name(duo.ep[SERVER]), "the client");
    assert_int_equal(rpc_ep_peer_capabilities(duo.ep[CLIENT]), 6);
    assert_int_equal(rpc_ep_peer_capabilities(duo.ep[SERVER]), 5);
    assert_int_equal(rpc_ep_message_max(duo.ep[CLIENT]), (2 << 20) - RPC_MESSAGE_COST);
    assert_int_equal(rpc_ep_message_max(duo.ep[SERVER]), (1 << 20) - RPC_MESSAGE_COST);
    assert_string_equal(rpc_ep_reason(duo.ep[CLIENT]), "connected");
    assert_true(strlen(rpc_ep_peer(duo.ep[CLIENT])) > 0);
    duo_close(&duo);
}

static void calls_made_in_the_handshake_are_answered(void **state)
{
    struct duo duo;
    duo_start(&duo, kind_of(state), NULL, NULL);
    struct outcome o[RPC_CALLS_MIN + 1];
    for (int i = 0; i < RPC_CALLS_MIN; i++)
        call(&duo, &(struct rpc_send){.method = METHOD_ECHO}, &o[i]);
    /* More might be more than the peer's hello allows. */
    struct rpc_send more = {.method = METHOD_ECHO};
    assert_int_equal(rpc_call(duo.ep[CLIENT], &more, outcome_fn, &o[RPC_CALLS_MIN], NULL),
                     -ENOBUFS);
    for (int i = 0; i < RPC_CALLS_MIN; i++) {
        duo_until_count(&duo, &o[i].ended, 1);
        assert_int_equal(o[i].status, 0);
    }
    duo_close(&duo);
}

static void echo_of_many_sizes(void **state)
{
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    struct hw_rng rng;
    hw_rng_seed(&rng, 7);
    static const size_t edges[] = {0,
                                   1,
                                   127,
                                   128,
                                   RPC_INLINE_BYTES - 1,
                                   RPC_INLINE_BYTES,
                                   RPC_INLINE_BYTES + 1,
                                   RPC_CHUNK_BYTES - 1,
                                   RPC_CHUNK_BYTES,
                                   RPC_CHUNK_BYTES + 1};
    for (size_t i = 0; i < ARRAY_LEN(edges); i++)
        expect_echo(&duo, edges[i], i);
    for (uint64_t i = 0; i < 30; i++)
        expect_echo(&duo, (size_t)hw_rng_below(&rng, UINT64_C(1) << hw_rng_below(&rng, 18)), i);
    duo_close(&duo);
}

static void thousand_calls_in_flight(void **state)
{
    enum { CALLS = 1000 };
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    struct outcome *o = calloc(CALLS, sizeof *o);
    uint32_t word[CALLS];
    for (uint32_t i = 0; i < CALLS; i++) {
        word[i] = i * 2654435761u;
        struct iovec iov;
        struct rpc_send send = send_of(METHOD_ECHO, &iov, &word[i], sizeof word[i]);
        send.stream = i % RPC_STREAMS;
        call(&duo, &send, &o[i]);
    }
    for (uint32_t i = 0; i < CALLS; i++)
        assert_int_equal(o[i].ended, 0);
    for (uint32_t i = 0; i < CALLS; i++) {
        duo_until_count(&duo, &o[i].ended, 1);
        assert_int_equal(o[i].status, 0);
        assert_true(o[i].hash == pattern_hash((uint8_t *)&word[i], sizeof word[i]));
    }
    assert_int_equal(STAT(&duo, CLIENT, calls), CALLS);
    assert_int_equal(STAT(&duo, CLIENT, replies), CALLS);
    free(o);
    duo_close(&duo);
}

/* Each message carries its number on its stream. */
static uint32_t expected[RPC_STREAMS];

static void check_order(struct duo *duo, int side, struct rpc_msg *msg)
{
    if (msg->kind == RPC_POST || msg->kind == RPC_PUSH) {
        uint32_t number;
        assert_true(msg->len >= sizeof number);
        memcpy(&number, msg->data, sizeof number);
        assert_int_equal(number, expected[msg->stream]++);
        assert_int_equal(msg->method, 1000 + number);
    }
    duo_serve(duo, side, msg);
}

static void send_numbered(struct duo *duo, int side, int count)
{
    uint8_t *data = calloc(1, 20000);
    uint32_t next[RPC_STREAMS] = {0};
    memset(expected, 0, sizeof expected);
    struct hw_rng rng;
    hw_rng_seed(&rng, 3);
    for (int i = 0; i < count; i++) {
        uint8_t stream = (uint8_t)hw_rng_below(&rng, RPC_STREAMS);
        memcpy(data, &next[stream], sizeof next[stream]);
        struct iovec iov;
        size_t len = hw_rng_below(&rng, 10) ? 100 : 20000;
        struct rpc_send send = send_of(1000 + next[stream], &iov, data, len);
        send.stream = stream;
        int rc;
        do {
            rc = side == SERVER ? rpc_push(duo->ep[SERVER], &send)
                                : rpc_post(duo->ep[CLIENT], &send);
            if (rc)
                duo_turn(duo);
        } while (rc == -EAGAIN || rc == -ENOBUFS);
        assert_int_equal(rc, 0);
        next[stream]++;
    }
    free(data);
}

static void posts_arrive_in_order(void **state)
{
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    duo.on_message = check_order;
    send_numbered(&duo, CLIENT, 500);
    duo_until_count(&duo, &duo.sunk, 500);
    duo_close(&duo);
}

static void pushes_arrive_in_order(void **state)
{
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    duo.on_message = check_order;
    send_numbered(&duo, SERVER, 500);
    duo_until_count(&duo, &duo.pushed, 500);
    assert_int_equal(rpc_push(duo.ep[CLIENT], &(struct rpc_send){.method = 1}), -EINVAL);
    duo_close(&duo);
}

static void replies_may_come_in_any_order(void **state)
{
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    struct outcome o[50];
    uint64_t held = 0;
    for (uint64_t i = 0; i < ARRAY_LEN(o); i++) {
        struct iovec iov;
        struct rpc_send send = send_of(METHOD_HOLD, &iov, &i, sizeof i);
        call(&duo, &send, &o[i]);
    }
    while (held < ARRAY_LEN(o)) {
        duo_turn(&duo);
        held = duo.held_count;
    }
    for (uint32_t i = duo.held_count; i-- > 0;) {
        struct iovec iov = {(void *)duo.held[i]->data, duo.held[i]->len};
        struct rpc_send echo = {.iov = &iov, .iov_count = 1};
        assert_int_equal(rpc_reply(duo.ep[SERVER], duo.held[i], 0, &echo), 0);
    }
    for (uint64_t i = 0; i < ARRAY_LEN(o); i++) {
        duo_until_count(&duo, &o[i].ended, 1);
        assert_true(o[i].hash == pattern_hash((uint8_t *)&i, sizeof i));
    }
    duo_close(&duo);
}

static void handler_errors_come_with_their_text(void **state)
{
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    struct outcome o;
    call(&duo, &(struct rpc_send){.method = METHOD_FAIL}, &o);
    duo_until_count(&duo, &o.ended, 1);
    assert_int_equal(o.status, -ENOENT);
    assert_string_equal(o.text, "there is no such thing here");
    assert_int_equal(rpc_ep_status(duo.ep[CLIENT]), 0);
    duo_close(&duo);
}

/* ---- calls that end early ---- */

static void until_held(struct duo *duo, uint32_t count)
{
    while (duo->held_count < count)
        duo_turn(duo);
}

static void deadline_ends_a_call_and_its_late_answer_is_dropped(void **state)
{
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    struct outcome o;
    call(&duo, &(struct rpc_send){.method = METHOD_HOLD, .timeout_ns = 20 * HW_MS}, &o);
    until_held(&duo, 1);
    duo_until_count(&duo, &o.ended, 1);
    assert_int_equal(o.status, -ETIMEDOUT);
    assert_int_equal(STAT(&duo, CLIENT, timeouts), 1);
    assert_int_equal(rpc_reply(duo.ep[SERVER], duo.held[0], 0, NULL), 0);
    expect_echo(&duo, 100, 1); /* behind the late answer */
    assert_int_equal(o.ended, 1);
    assert_int_equal(STAT(&duo, CLIENT, replies), 2);
    duo_close(&duo);
}

static void cancelled_call_ends_at_once(void **state)
{
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    struct outcome o = {0};
    uint32_t id;
    struct rpc_send send = {.method = METHOD_HOLD};
    assert_int_equal(rpc_call(duo.ep[CLIENT], &send, outcome_fn, &o, &id), 0);
    until_held(&duo, 1);
    assert_int_equal(rpc_cancel(duo.ep[CLIENT], id), 0);
    assert_int_equal(o.ended, 1);
    assert_int_equal(o.status, -ECANCELED);
    assert_int_equal(rpc_cancel(duo.ep[CLIENT], id), -ENOENT);
    assert_int_equal(rpc_cancel(duo.ep[CLIENT], 12345), -ENOENT);
    assert_int_equal(rpc_reply(duo.ep[SERVER], duo.held[0], 0, NULL), 0);
    expect_echo(&duo, 100, 1);
    assert_int_equal(o.ended, 1);
    duo_close(&duo);
}

static void cancel_spares_the_peer_the_work(void **state)
{
    if (kind_of(state) == LINK_LOOP_PIECES || kind_of(state) == LINK_LOOP_STALLS)
        skip(); /* the call may arrive long before its cancellation */
    struct rpc_config client = {.flush = RPC_FLUSH_BATCH};
    struct duo duo;
    duo_open(&duo, kind_of(state), &client, NULL);
    struct outcome o = {0}, after;
    uint32_t id;
    struct rpc_send send = {.method = METHOD_HOLD};
    assert_int_equal(rpc_call(duo.ep[CLIENT], &send, outcome_fn, &o, &id), 0);
    assert_int_equal(rpc_cancel(duo.ep[CLIENT], id), 0);
    call(&duo, &(struct rpc_send){.method = METHOD_ECHO}, &after);
    duo_until_count(&duo, &after.ended, 1);
    assert_int_equal(duo.held_count, 0);
    assert_int_equal(STAT(&duo, CLIENT, replies), 2); /* the peer answered nevertheless */
    duo_close(&duo);
}

/* ---- limits ---- */

static int post_until_refused(struct duo *duo, size_t len, uint64_t *sent)
{
    uint8_t data[4096] = {0};
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_SINK, &iov, data, len);
    int rc;
    while ((rc = rpc_post(duo->ep[CLIENT], &send)) == 0)
        ++*sent;
    return rc;
}

static void full_queue_and_missing_credit_are_told_apart(void **state)
{
    struct rpc_config client = {
        .flush = RPC_FLUSH_BATCH, .send_queue_bytes = 16 << 10, .heartbeat_ns = HW_NEVER};
    struct rpc_config server = {.window_bytes = RPC_WINDOW_MIN, .heartbeat_ns = HW_NEVER};
    struct duo duo;
    duo_open(&duo, kind_of(state), &client, &server);
    uint64_t sent = 0;
    assert_int_equal(post_until_refused(&duo, 1000, &sent), -ENOBUFS);
    assert_true(sent > 0 && sent <= (16 << 10) / 1000);
    assert_int_equal(STAT(&duo, CLIENT, queue_full), 1);
    assert_int_equal(STAT(&duo, CLIENT, no_credit), 0);
    /* The transport takes what is queued; the peer's program holds on to it. */
    duo.absent[SERVER] = true;
    int rc;
    do {
        while (rpc_flush(duo.ep[CLIENT]) == -EAGAIN && link_is_loop(duo.kind))
            duo_turn(&duo);
        rc = post_until_refused(&duo, 1000, &sent);
    } while (rc == -ENOBUFS && sent < 1000);
    assert_int_equal(rc, -EAGAIN);
    assert_true(sent * (1000 + RPC_MESSAGE_COST) <= RPC_WINDOW_MIN);
    assert_int_equal(STAT(&duo, CLIENT, no_credit), 1);
    duo.absent[SERVER] = false;
    duo_until_count(&duo, &duo.sunk, sent);
    duo_close(&duo);
}

static void credit_comes_back_only_when_the_peer_lets_go(void **state)
{
    struct rpc_config server = {.window_bytes = RPC_WINDOW_MIN};
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, &server);
    uint8_t data[4096] = {0};
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_HOLD, &iov, data, sizeof data);
    struct outcome o[64] = {0};
    int rc, calls = 0;
    while ((rc = rpc_call(duo.ep[CLIENT], &send, outcome_fn, &o[calls], NULL)) == 0)
        calls++;
    assert_int_equal(rc, -EAGAIN);
    until_held(&duo, (uint32_t)calls);
    for (int i = 0; i < calls; i++) /* answered, but not let go of */
        assert_int_equal(rpc_reply(duo.ep[SERVER], duo.held[i], 0, NULL), 0);
    for (int i = 0; i < calls; i++)
        duo_until_count(&duo, &o[i].ended, 1);
    assert_int_equal(rpc_call(duo.ep[CLIENT], &send, outcome_fn, &o[calls], NULL), -EAGAIN);
    duo_release_held(&duo, SERVER);
    do {
        duo_turn(&duo);
        rc = rpc_call(duo.ep[CLIENT], &send, outcome_fn, &o[calls], NULL);
    } while (rc == -EAGAIN);
    assert_int_equal(rc, 0);
    until_held(&duo, 1);
    duo_close(&duo);
}

static void message_of_the_whole_window_gets_through(void **state)
{
    struct rpc_config server = {.window_bytes = RPC_WINDOW_MIN};
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, &server);
    uint32_t max = rpc_ep_message_max(duo.ep[CLIENT]);
    uint8_t *data = calloc(1, max + 1);
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_SINK, &iov, data, max + 1);
    assert_int_equal(rpc_post(duo.ep[CLIENT], &send), -EMSGSIZE);
    for (uint64_t round = 1; round <= 3; round++) {
        expect_echo(&duo, 1, round); /* takes a little credit that nobody hurries to return */
        iov.iov_len = max;
        int rc;
        while ((rc = rpc_post(duo.ep[CLIENT], &send)) == -EAGAIN)
            duo_turn(&duo);
        assert_int_equal(rc, 0);
        duo_until_count(&duo, &duo.sunk, round);
    }
    assert_int_equal(duo.sunk_bytes, 3 * (uint64_t)max);
    free(data);
    duo_close(&duo);
}

static void reply_of_the_whole_window_gets_through(void **state)
{
    struct rpc_config client = {.window_bytes = RPC_WINDOW_MIN};
    struct duo duo;
    duo_open(&duo, kind_of(state), &client, NULL);
    expect_echo(&duo, 1, 0);
    expect_echo(&duo, rpc_ep_message_max(duo.ep[SERVER]), 1);
    expect_echo(&duo, 1, 2);
    expect_echo(&duo, rpc_ep_message_max(duo.ep[SERVER]), 3);
    duo_close(&duo);
}

/* Both sides fill the other's window with calls that are answered as large as they came. */
static void two_full_windows_drain(void **state)
{
    enum { ROUNDS = 200 };
    struct rpc_config config = {.window_bytes = RPC_WINDOW_MIN};
    struct duo duo;
    duo_open(&duo, kind_of(state), &config, &config);
    uint8_t *data = calloc(1, 9000);
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_ECHO, &iov, data, 9000);
    struct outcome o[2] = {0};
    uint64_t made[2] = {0};
    while (made[0] + made[1] < 2 * ROUNDS) {
        for (int side = 0; side < 2; side++) {
            while (made[side] < ROUNDS &&
                   rpc_call(duo.ep[side], &send, outcome_fn, &o[side], NULL) == 0)
                made[side]++;
        }
        duo_turn(&duo);
    }
    for (int side = 0; side < 2; side++) {
        duo_until_count(&duo, &o[side].ended, ROUNDS);
        assert_int_equal(o[side].status, 0);
    }
    free(data);
    duo_close(&duo);
}

static void peers_call_limit_holds(void **state)
{
    struct rpc_config server = {.max_calls = 70};
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, &server);
    struct outcome o[71];
    for (int i = 0; i < 70; i++)
        call(&duo, &(struct rpc_send){.method = METHOD_HOLD}, &o[i]);
    struct rpc_send more = {.method = METHOD_HOLD};
    assert_int_equal(rpc_call(duo.ep[CLIENT], &more, outcome_fn, &o[70], NULL), -ENOBUFS);
    until_held(&duo, 70);
    assert_int_equal(rpc_ep_status(duo.ep[SERVER]), 0);
    duo_close(&duo);
}

/* ---- large payloads ---- */

static void count_sent(void *user)
{
    ++*(uint64_t *)user;
}

static void large_payloads_cross_unharmed_and_uncopied(void **state)
{
    /* In crumbs it takes its time. */
    bool crumbs = kind_of(state) == LINK_LOOP_PIECES || kind_of(state) == LINK_LOOP_STALLS;
    size_t bytes = crumbs ? 2 * RPC_CHUNK_BYTES + 1 : 3 << 20;
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    uint8_t *data = malloc(bytes);
    pattern_fill(data, bytes, 5);
    /* Uneven segments: chunks begin and end in the middle of them. */
    struct iovec iov[RPC_IOV_MAX];
    for (size_t i = 0, at = 0; i < RPC_IOV_MAX; i++) {
        size_t len = i == RPC_IOV_MAX - 1 ? bytes - at : i * (bytes / 150);
        iov[i] = (struct iovec){data + at, len};
        at += len;
    }
    uint64_t sent = 0;
    struct rpc_send send = {.method = METHOD_ECHO,
                            .iov = iov,
                            .iov_count = RPC_IOV_MAX,
                            .sent = count_sent,
                            .sent_user = &sent};
    struct outcome o[3];
    for (int i = 0; i < 3; i++) {
        send.stream = (uint8_t)(i % 2);
        call(&duo, &send, &o[i]);
    }
    for (int i = 0; i < 3; i++) {
        duo_until_count(&duo, &o[i].ended, 1);
        assert_int_equal(o[i].status, 0);
        assert_int_equal(o[i].len, bytes);
        assert_true(o[i].hash == pattern_hash(data, bytes));
    }
    assert_int_equal(sent, 3);
    free(data);
    duo_close(&duo);
}

static void unsent_memory_is_given_back_when_the_endpoint_goes(void **state)
{
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    uint8_t *data = calloc(1, 4 << 20);
    uint64_t sent = 0;
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_SINK, &iov, data, 4 << 20);
    send.sent = count_sent;
    send.sent_user = &sent;
    assert_int_equal(rpc_post(duo.ep[CLIENT], &send), 0);
    duo_drop(&duo, CLIENT);
    assert_int_equal(sent, 1);
    free(data);
    duo_close(&duo);
}

/* ---- the end ---- */

static void goodbye_ends_the_peers_calls_in_order(void **state)
{
    if (kind_of(state) == LINK_LOOP_STALLS)
        skip(); /* a goodbye goes as far as the transport takes it, which here is a matter of luck
                 */
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    struct outcome o;
    call(&duo, &(struct rpc_send){.method = METHOD_HOLD}, &o);
    until_held(&duo, 1);
    rpc_ep_shutdown(duo.ep[SERVER], 0, "off to bed");
    if (duo.kind != LINK_UCX) /* its destroy waits for the peer to read, who is this thread */
        duo_drop(&duo, SERVER);
    duo_until_status(&duo, CLIENT, -ESHUTDOWN);
    assert_int_equal(o.ended, 1);
    assert_int_equal(o.status, -ESHUTDOWN);
    assert_non_null(strstr(rpc_ep_reason(duo.ep[CLIENT]), "off to bed"));
    assert_int_equal(rpc_post(duo.ep[CLIENT], &(struct rpc_send){.method = 1}), -ESHUTDOWN);
    duo_close(&duo);
}

/* What a dead transport says to a send must not hide the goodbye that lies unread. */
static void goodbye_is_heard_by_one_who_is_sending(void **state)
{
    if (kind_of(state) == LINK_UCX)
        skip(); /* its destroy waits for the peer to read, who is this thread */
    struct duo duo;
    duo_open(&duo, kind_of(state), NULL, NULL);
    rpc_ep_shutdown(duo.ep[SERVER], -EUSERS, "make room");
    duo_drop(&duo, SERVER);
    for (int i = 0; i < 3; i++) {
        int rc = rpc_post(duo.ep[CLIENT], &(struct rpc_send){.method = METHOD_SINK});
        assert_true(rc == 0 || rc == -EUSERS);
        (void)rpc_flush(duo.ep[CLIENT]);
    }
    duo_until_status(&duo, CLIENT, -EUSERS);
    assert_non_null(strstr(rpc_ep_reason(duo.ep[CLIENT]), "make room"));
    duo_close(&duo);
}

static void vanished_peer_is_a_reset(void **state)
{
    /* On a busy machine the polls until shm looks at its socket take longer than a heartbeat, and
     * longer than a call has by default. */
    struct rpc_config config = {.heartbeat_ns = HW_NEVER};
    struct duo duo;
    duo_open(&duo, kind_of(state), &config, &config);
    struct outcome o;
    call(&duo, &(struct rpc_send){.method = METHOD_HOLD, .timeout_ns = HW_NEVER}, &o);
    until_held(&duo, 1);
    duo_drop(&duo, SERVER);
    duo_until_status(&duo, CLIENT, -ECONNRESET);
    assert_int_equal(o.status, -ECONNRESET);
    assert_int_equal(o.ended, 1);
    duo_close(&duo);
}

static void silent_peer_is_declared_dead(void **state)
{
    struct rpc_config config = {.heartbeat_ns = 200 * HW_MS};
    struct duo duo;
    duo_open(&duo, kind_of(state), &config, &config);
    struct outcome o;
    call(&duo, &(struct rpc_send){.method = METHOD_HOLD}, &o);
    until_held(&duo, 1);
    uint64_t began = duo.net ? rpc_loopnet_now(duo.net) : 0;
    duo.absent[SERVER] = true;
    duo_until_status(&duo, CLIENT, -EHOSTDOWN);
    assert_int_equal(o.status, -EHOSTDOWN);
    if (duo.net) {
        uint64_t took = rpc_loopnet_now(duo.net) - began;
        uint64_t late = duo.kind == LINK_LOOP_STALLS ? 600 : 300; /* polls there see less */
        if (took < 140 * HW_MS || took > late * HW_MS)
            fail_msg("dead after %llu us", (unsigned long long)(took / HW_US));
    }
    duo_close(&duo);
}

static void idle_peers_stay_connected(void **state)
{
    struct rpc_config config = {.heartbeat_ns = 60 * HW_MS};
    for (int policy = RPC_FLUSH_ADAPTIVE; policy <= RPC_FLUSH_BATCH; policy++) {
        struct duo duo;
        config.flush = (enum rpc_flush_policy)policy;
        duo_open(&duo, kind_of(state), &config, &config);
        uint64_t pings = 0, last = 0;
        for (uint64_t turns = 0; pings < 12 && turns < 20000000; turns++) {
            /* rpc_poll keeps the heartbeat by itself: nobody flushes here. */
            for (int side = 0; side < 2; side++)
                assert_true(rpc_poll(duo.ep[side]) >= 0);
            uint64_t got = STAT(&duo, CLIENT, bytes_received);
            pings += got != last;
            last = got;
            if (duo.net) {
                uint64_t a = rpc_next_tick(duo.ep[0]), b = rpc_next_tick(duo.ep[1]);
                rpc_loopnet_step(duo.net, a < b ? a : b);
            }
        }
        assert_true(pings >= 12);
        duo_close(&duo);
    }
}

/* ---- flushing and waiting ---- */

static void many_posts_are_one_write(void **state)
{
    struct rpc_config client = {.flush = RPC_FLUSH_BATCH};
    struct duo duo;
    duo_open(&duo, kind_of(state), &client, NULL);
    duo_drain(&duo);
    uint64_t before = STAT(&duo, CLIENT, writes);
    for (int i = 0; i < 1000; i++) {
        struct iovec iov;
        struct rpc_send send = send_of(METHOD_SINK, &iov, "twelve bytes", 12);
        assert_int_equal(rpc_post(duo.ep[CLIENT], &send), 0);
    }
    assert_int_equal(STAT(&duo, CLIENT, writes), before);
    int rc = rpc_flush(duo.ep[CLIENT]);
    if (duo.kind != LINK_LOOP_PIECES && duo.kind != LINK_LOOP_STALLS) {
        assert_int_equal(rc, 0);
        assert_int_equal(STAT(&duo, CLIENT, writes), before + 1);
    }
    duo_until_count(&duo, &duo.sunk, 1000);
    duo_close(&duo);
}

static void policies_say_when_a_message_is_written(void **state)
{
    if (kind_of(state) == LINK_LOOP_PIECES || kind_of(state) == LINK_LOOP_STALLS)
        skip(); /* a write there is not the program's to decide */
    struct rpc_send post = {.method = METHOD_SINK};
    for (int policy = RPC_FLUSH_ADAPTIVE; policy <= RPC_FLUSH_BATCH; policy++) {
        struct rpc_config client = {.flush = (enum rpc_flush_policy)policy};
        struct duo duo;
        duo_open(&duo, kind_of(state), &client, NULL);
        duo_drain(&duo);
        uint64_t writes = STAT(&duo, CLIENT, writes);
        assert_int_equal(rpc_post(duo.ep[CLIENT], &post), 0);
        if (policy == RPC_FLUSH_INCREMENTAL)
            assert_int_equal(STAT(&duo, CLIENT, writes), writes + 1);
        if (policy == RPC_FLUSH_BATCH)
            assert_int_equal(STAT(&duo, CLIENT, writes), writes);
        assert_true(rpc_poll(duo.ep[CLIENT]) >= 0);
        assert_int_equal(STAT(&duo, CLIENT, writes), writes + (policy != RPC_FLUSH_BATCH));
        assert_int_equal(rpc_pending(duo.ep[CLIENT]), policy == RPC_FLUSH_BATCH);
        assert_int_equal(rpc_flush(duo.ep[CLIENT]), 0);
        assert_int_equal(STAT(&duo, CLIENT, writes), writes + 1);
        duo_until_count(&duo, &duo.sunk, 1);
        duo_close(&duo);
    }
}

static void every_way_of_waiting_sees_bytes_and_deadlines(void **state)
{
    if (link_is_loop(kind_of(state)))
        skip(); /* it never blocks */
    for (int mode = RPC_WAIT_ADAPTIVE; mode <= RPC_WAIT_BUSY; mode++) {
        struct rpc_config config = {.wait = (enum rpc_wait_mode)mode, .heartbeat_ns = HW_NEVER};
        struct duo duo;
        duo_open(&duo, kind_of(state), &config, &config);
        duo_drain(&duo);
        while (rpc_wait(duo.ep[SERVER], HW_MS) == 0)
            assert_true(rpc_poll(duo.ep[SERVER]) >= 0); /* what draining left */
        assert_int_equal(rpc_post(duo.ep[CLIENT], &(struct rpc_send){.method = METHOD_SINK}), 0);
        assert_int_equal(rpc_flush(duo.ep[CLIENT]), 0);
        struct rpc_msg *msg;
        while ((msg = rpc_recv(duo.ep[SERVER])) == NULL) {
            assert_int_equal(rpc_wait(duo.ep[SERVER], 240 * HW_SEC), 0);
            assert_true(rpc_poll(duo.ep[SERVER]) >= 0);
        }
        rpc_release(duo.ep[SERVER], msg);
        /* Nothing arrives: only the deadline can end this wait. */
        struct outcome o;
        call(&duo, &(struct rpc_send){.method = METHOD_HOLD, .timeout_ns = 30 * HW_MS}, &o);
        assert_int_equal(rpc_flush(duo.ep[CLIENT]), 0);
        while (o.ended == 0) {
            (void)rpc_wait(duo.ep[CLIENT], 3600 * HW_SEC);
            assert_true(rpc_poll(duo.ep[CLIENT]) >= 0);
        }
        assert_int_equal(o.status, -ETIMEDOUT);
        duo_close(&duo);
    }
}

/* A loop of wait and poll, with nothing but the heartbeat to wake it, notices a dead peer. */
static void waiting_alone_notices_silence(void **state)
{
    if (link_is_loop(kind_of(state)))
        return;
    struct rpc_config config = {.heartbeat_ns = 100 * HW_MS};
    struct duo duo;
    duo_open(&duo, kind_of(state), &config, &config);
    int rc = 0;
    for (int i = 0; i < 10000 && rc >= 0; i++) {
        (void)rpc_wait(duo.ep[CLIENT], 3600 * HW_SEC);
        rc = rpc_poll(duo.ep[CLIENT]);
    }
    assert_int_equal(rc, -EHOSTDOWN);
    duo_close(&duo);
}

static void full_transport_is_waited_for(void **state)
{
    if (link_is_loop(kind_of(state)))
        return;
    struct rpc_config config = {.heartbeat_ns = HW_NEVER, .window_bytes = 64 << 20};
    struct duo duo;
    duo_open(&duo, kind_of(state), &config, &config);
    size_t bytes = 1 << 20;
    uint8_t *data = calloc(1, bytes);
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_SINK, &iov, data, bytes);
    uint64_t sent = 0;
    while (!rpc_send_blocked(duo.ep[CLIENT]) && sent < 48) {
        assert_int_equal(rpc_post(duo.ep[CLIENT], &send), 0);
        (void)rpc_flush(duo.ep[CLIENT]);
        sent++;
    }
    assert_true(rpc_send_blocked(duo.ep[CLIENT]));
    while (rpc_wait(duo.ep[CLIENT], HW_MS) == 0) /* the peer reads nothing: no room comes */
        assert_true(rpc_poll(duo.ep[CLIENT]) >= 0);
    duo_until_count(&duo, &duo.sunk, sent);
    assert_false(rpc_send_blocked(duo.ep[CLIENT]));
    free(data);
    duo_close(&duo);
}

#define TEST(name)                                                                                 \
    {                                                                                              \
#name, name, NULL, NULL, NULL                                                              \
    }

static const struct CMUnitTest suite[] = {
    TEST(both_sides_learn_of_each_other),
    TEST(calls_made_in_the_handshake_are_answered),
    TEST(echo_of_many_sizes),
    TEST(thousand_calls_in_flight),
    TEST(posts_arrive_in_order),
    TEST(pushes_arrive_in_order),
    TEST(replies_may_come_in_any_order),
    TEST(handler_errors_come_with_their_text),
    TEST(deadline_ends_a_call_and_its_late_answer_is_dropped),
    TEST(cancelled_call_ends_at_once),
    TEST(cancel_spares_the_peer_the_work),
    TEST(full_queue_and_missing_credit_are_told_apart),
    TEST(credit_comes_back_only_when_the_peer_lets_go),
    TEST(message_of_the_whole_window_gets_through),
    TEST(reply_of_the_whole_window_gets_through),
    TEST(two_full_windows_drain),
    TEST(peers_call_limit_holds),
    TEST(large_payloads_cross_unharmed_and_uncopied),
    TEST(unsent_memory_is_given_back_when_the_endpoint_goes),
    TEST(goodbye_ends_the_peers_calls_in_order),
    TEST(goodbye_is_heard_by_one_who_is_sending),
    TEST(vanished_peer_is_a_reset),
    TEST(silent_peer_is_declared_dead),
    TEST(idle_peers_stay_connected),
    TEST(many_posts_are_one_write),
    TEST(policies_say_when_a_message_is_written),
    TEST(every_way_of_waiting_sees_bytes_and_deadlines),
    TEST(waiting_alone_notices_silence),
    TEST(full_transport_is_waited_for),
};

/* Arguments: the number of a link, as in enum link_kind (the build runs one process a link), and
 * which tests, as a pattern. */
int main(int argc, char **argv)
{
    static struct CMUnitTest tests[ARRAY_LEN(suite)];
    unsigned long kind = argc > 1 ? strtoul(argv[1], NULL, 10) : LINK_LOOP;
    if (kind >= LINK_KINDS)
        return 2;
#ifdef HAWSER_UCX
    rpc_ucx_register();
#endif
    if (!link_exists((enum link_kind)kind)) {
        printf("%s: not on this machine\n", link_names[kind]);
        return 77; /* Meson: skipped */
    }
    setenv("VENUS_LOG_LEVEL", "ERROR", 0);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    memcpy(tests, suite, sizeof tests);
    for (size_t i = 0; i < ARRAY_LEN(tests); i++)
        tests[i].initial_state = (void *)(uintptr_t)kind;
    return _cmocka_run_group_tests(link_names[kind], tests, ARRAY_LEN(tests), NULL, NULL);
}
