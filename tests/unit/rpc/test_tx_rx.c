/* From messages to bytes and back: any sizes, any cuts, any order of streams. */
#include "unit.h"

#include "../../sanitized.h"

#include "base/rng.h"
#include "duo.h"
#include "rpc/endpoint/rx.h"
#include "rpc/endpoint/tx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 16 << 20, LARGE_MAX = 3 << 20 };

/* ---- memory that runs out on demand ---- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static long allocations_left = -1; /* -1: no limit */

static bool may_allocate(void)
{
    if (allocations_left < 0)
        return true;
    return allocations_left > 0 && allocations_left-- > 0;
}

void *__wrap_malloc(size_t n)
{
    return may_allocate() ? __real_malloc(n) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_allocate() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *p, size_t n)
{
    return may_allocate() ? __real_realloc(p, n) : NULL;
}

/* ---- a wire between a tx and an rx ---- */

struct wire {
    struct rpc_tx tx;
    struct rpc_rx rx;
    struct hw_rng rng;
    uint64_t received[RPC_STREAMS]; /* messages */
    uint64_t bytes;                 /* on the wire so far */
};

static void wire_init(struct wire *w, uint64_t window, uint64_t seed)
{
    *w = (struct wire){0};
    rpc_tx_init(&w->tx, window, UINT64_MAX / 2);
    assert_int_equal(rpc_rx_init(&w->rx, window, NULL), 0);
    hw_rng_seed(&w->rng, seed);
}

static void wire_fini(struct wire *w)
{
    rpc_tx_fini(&w->tx);
    rpc_rx_fini(&w->rx);
}

/* Moves up to n bytes of the gather into the rx; how many that were. */
static size_t carry(struct wire *w, size_t n)
{
    const struct iovec *iov;
    struct iovec space[2];
    int count = rpc_tx_gather(&w->tx, &iov);
    if (count == 0)
        return 0;
    int spaces = rpc_rx_space(&w->rx, space);
    size_t moved = 0, from_at = 0, to_at = 0;
    for (int from = 0, to = 0; from < count && to < spaces && moved < n;) {
        size_t part = iov[from].iov_len - from_at;
        if (part > space[to].iov_len - to_at)
            part = space[to].iov_len - to_at;
        if (part > n - moved)
            part = n - moved;
        memcpy((uint8_t *)space[to].iov_base + to_at, (uint8_t *)iov[from].iov_base + from_at,
               part);
        moved += part;
        from_at += part;
        to_at += part;
        if (from_at == iov[from].iov_len)
            from++, from_at = 0;
        if (to_at == space[to].iov_len)
            to++, to_at = 0;
    }
    rpc_tx_written(&w->tx, moved);
    rpc_rx_filled(&w->rx, moved);
    w->bytes += moved;
    return moved;
}

/* A message says its own length and seed, so that whoever gets it can check it. */
struct label {
    uint64_t seed;
    uint64_t number;
};

static void fill_message(uint8_t *data, uint32_t len, uint32_t number, uint64_t seed)
{
    pattern_fill(data, len, seed);
    struct label label = {seed, number};
    if (len >= sizeof label)
        memcpy(data, &label, sizeof label);
}

static void check_message(struct wire *w, const struct rpc_rx_msg *msg)
{
    struct label label;
    const struct rpc_msg *m = &msg->msg;
    uint32_t number = (uint32_t)w->received[m->stream]++;
    assert_int_equal(m->method, number);
    if (m->len < sizeof label)
        return;
    memcpy(&label, m->data, sizeof label);
    assert_int_equal(label.number, number);
    uint8_t *expected = malloc(m->len);
    size_t here = m->placed ? RPC_LANDING_HEAD : m->len;
    fill_message(expected, (uint32_t)m->len, number, label.seed);
    assert_memory_equal(m->data, expected, here);
    if (m->placed)
        assert_memory_equal(m->placed, expected + here, m->len - here);
    free(expected);
}

/* Every other large push lands in memory of its own. */
struct lands {
    struct rpc_landing landing;
    unsigned asked, placed, left;
};

static uint8_t *place(void *user, uint32_t method, const uint8_t *head, size_t len, void **owner)
{
    struct lands *lands = user;
    struct label label;
    memcpy(&label, head, sizeof label);
    assert_int_equal(label.number, method);
    if (lands->asked++ % 2)
        return NULL;
    struct lands **at = malloc(sizeof(struct lands *) + len);
    assert_non_null(at);
    *at = lands;
    *owner = at;
    lands->placed++;
    return (uint8_t *)(at + 1);
}

static void leave(void *owner)
{
    (*(struct lands **)owner)->left++;
    free(owner);
}

/* Takes every whole message; releases it and returns its credit. */
static int take_all(struct wire *w)
{
    struct rpc_frame frame;
    struct rpc_rx_msg *msg;
    int rc;
    while ((rc = rpc_rx_next(&w->rx, &frame, &msg)) > 0) {
        if (!msg)
            continue;
        check_message(w, msg);
        assert_int_equal(rpc_tx_credit(&w->tx, rpc_rx_release(&w->rx, msg)), 0);
    }
    return rc;
}

static void count_sent(void *user)
{
    ++*(uint64_t *)user;
}

static uint32_t random_size(struct hw_rng *rng)
{
    switch (hw_rng_below(rng, 8)) {
    case 0:
        return (uint32_t)hw_rng_below(rng, LARGE_MAX);
    case 1:
        return (uint32_t)(RPC_INLINE_BYTES - 2 + hw_rng_below(rng, 5));
    case 2:
        return (uint32_t)(RPC_CHUNK_BYTES - 2 + hw_rng_below(rng, 5));
    default:
        return (uint32_t)hw_rng_below(rng, 3000);
    }
}

static void send_random_messages(enum rpc_frame_kind kind)
{
    enum { MESSAGES = 120 };
    for (uint64_t seed = 1; seed <= (SANITIZED ? 2 : 6); seed++) {
        struct wire w;
        struct lands lands = {.landing = {place, leave, &lands}};
        wire_init(&w, WINDOW, seed);
        w.rx.landing = &lands.landing;
        uint8_t *data[MESSAGES] = {0};
        uint64_t sent[MESSAGES] = {0}, queued[RPC_STREAMS] = {0};
        int made = 0, done = 0;
        uint32_t len = random_size(&w.rng);
        while (made < MESSAGES || rpc_tx_pending(&w.tx)) {
            if (made < MESSAGES && hw_rng_below(&w.rng, 3) == 0) {
                uint8_t stream = (uint8_t)hw_rng_below(&w.rng, 3);
                data[made] = malloc(len + 1);
                fill_message(data[made], len, (uint32_t)queued[stream], seed + (uint64_t)made);
                struct iovec iov[2] = {{data[made], len / 3},
                                       {data[made] + len / 3, len - len / 3}};
                struct rpc_send send = {.iov = iov,
                                        .iov_count = 2,
                                        .sent = hw_rng_below(&w.rng, 2) ? count_sent : NULL,
                                        .sent_user = &sent[made]};
                struct rpc_frame frame = {
                    .kind = (uint8_t)kind, .stream = stream, .method = (uint32_t)queued[stream]};
                int rc = rpc_tx_message(&w.tx, &frame, &send, len, false);
                assert_true(rc == 0 || rc == -EAGAIN);
                if (rc == 0) {
                    if (!send.sent)
                        sent[made] = 1;
                    queued[stream]++;
                    made++;
                    len = random_size(&w.rng);
                } else {
                    free(data[made]);
                    data[made] = NULL;
                }
            }
            carry(&w, 1 + (size_t)hw_rng_below(&w.rng, UINT64_C(1) << hw_rng_below(&w.rng, 20)));
            assert_int_equal(take_all(&w), 0);
            assert_true(w.tx.outstanding + w.tx.credit == WINDOW);
            for (; done < made && sent[done]; done++)
                free(data[done]), data[done] = NULL; /* the sanitizer sees who reads it later */
        }
        assert_int_equal(done, MESSAGES);
        for (int i = 0; i < MESSAGES; i++)
            assert_int_equal(sent[i], 1);
        for (int i = 0; i < RPC_STREAMS; i++)
            assert_int_equal(w.received[i], queued[i]);
        assert_int_equal(w.tx.outstanding, 0);
        assert_int_equal(w.rx.held, 0);
        assert_int_equal(w.tx.queued_bytes, 0);
        assert_true(kind == RPC_FRAME_PUSH ? lands.placed > 0 : lands.asked == 0);
        assert_int_equal(lands.left, lands.placed);
        wire_fini(&w);
    }
}

static void random_messages_arrive_whole_and_in_order(void **state)
{
    (void)state;
    send_random_messages(RPC_FRAME_POST);
}

static void pushes_land_where_they_belong(void **state)
{
    (void)state;
    send_random_messages(RPC_FRAME_PUSH);
}

static int queue(struct wire *w, uint8_t kind, uint8_t stream, uint32_t len, bool must)
{
    static uint8_t zeros[LARGE_MAX];
    struct iovec iov = {zeros, len};
    struct rpc_send send = {.iov = &iov, .iov_count = 1};
    struct rpc_frame frame = {.kind = kind, .stream = stream};
    return rpc_tx_message(&w->tx, &frame, &send, len, must);
}

static void small_message_waits_for_at_most_one_chunk(void **state)
{
    (void)state;
    for (size_t written = 1; written < 4 * RPC_CHUNK_BYTES; written += 100003) {
        struct wire w;
        wire_init(&w, WINDOW, 1);
        for (uint8_t stream = 0; stream < 3; stream++)
            assert_int_equal(queue(&w, RPC_FRAME_POST, stream, LARGE_MAX, false), 0);
        while (w.bytes < written) {
            carry(&w, written - w.bytes);
            struct rpc_frame frame;
            struct rpc_rx_msg *msg;
            assert_int_equal(rpc_rx_next(&w.rx, &frame, &msg), 0);
        }
        assert_int_equal(queue(&w, RPC_FRAME_POST, 9, 100, false), 0);
        uint64_t before = w.bytes;
        struct rpc_rx_msg *msg = NULL;
        while (!msg) {
            struct rpc_frame frame;
            carry(&w, 1000);
            assert_true(rpc_rx_next(&w.rx, &frame, &msg) >= 0);
        }
        assert_int_equal(msg->msg.stream, 9);
        assert_true(w.bytes - before <=
                    RPC_CHUNK_BYTES + RPC_FRAME_HEADER_MAX + 100 + RPC_FRAME_HEADER_MAX + 1000);
        rpc_rx_release(&w.rx, msg);
        wire_fini(&w);
    }
}

static void window_is_never_exceeded_and_replies_have_a_reserve(void **state)
{
    (void)state;
    struct wire w;
    wire_init(&w, RPC_WINDOW_MIN, 1);
    int rc;
    while ((rc = queue(&w, RPC_FRAME_POST, 0, 1000, false)) == 0)
        assert_true(w.tx.outstanding <= RPC_WINDOW_MIN);
    assert_int_equal(rc, -EAGAIN);
    assert_true(w.tx.credit >= RPC_WINDOW_MIN / 8); /* posts leave this to replies */
    assert_int_equal(queue(&w, RPC_FRAME_REPLY, 1, 4000, true), 0);
    assert_true(w.tx.credit < RPC_WINDOW_MIN / 8);
    /* Past the reserve a reply waits in its stream; it is never refused. */
    assert_int_equal(queue(&w, RPC_FRAME_REPLY, 1, 60000, true), 0);
    assert_int_equal(queue(&w, RPC_FRAME_REPLY, 1, 10, true), 0);
    uint64_t unpaid = w.tx.outstanding;
    while (carry(&w, SIZE_MAX))
        assert_true(w.tx.outstanding <= RPC_WINDOW_MIN);
    assert_int_equal(w.tx.outstanding, unpaid);
    assert_false(rpc_tx_pending(&w.tx));
    assert_true(rpc_tx_short(&w.tx));
    struct rpc_frame frame;
    struct rpc_rx_msg *msg;
    while ((rc = rpc_rx_next(&w.rx, &frame, &msg)) > 0)
        assert_int_equal(rpc_tx_credit(&w.tx, rpc_rx_release(&w.rx, msg)), 0);
    assert_int_equal(rc, 0);
    assert_true(rpc_tx_pending(&w.tx));
    for (int replies = 0; replies < 2;) {
        carry(&w, SIZE_MAX);
        while (rpc_rx_next(&w.rx, &frame, &msg) > 0) {
            assert_int_equal(msg->msg.len, replies == 0 ? 60000 : 10); /* in order */
            assert_int_equal(rpc_tx_credit(&w.tx, rpc_rx_release(&w.rx, msg)), 0);
            replies++;
        }
    }
    assert_int_equal(w.tx.outstanding, 0);
    wire_fini(&w);
}

static void whole_window_in_one_message(void **state)
{
    (void)state;
    struct wire w;
    wire_init(&w, RPC_WINDOW_MIN, 1);
    assert_int_equal(queue(&w, RPC_FRAME_POST, 0, RPC_WINDOW_MIN - RPC_MESSAGE_COST, false), 0);
    assert_int_equal(w.tx.credit, 0);
    assert_int_equal(queue(&w, RPC_FRAME_POST, 0, 0, false), -EAGAIN);
    struct rpc_frame frame;
    struct rpc_rx_msg *msg;
    do
        assert_true(carry(&w, SIZE_MAX) > 0);
    while (rpc_rx_next(&w.rx, &frame, &msg) == 0);
    assert_int_equal(msg->msg.len, RPC_WINDOW_MIN - RPC_MESSAGE_COST);
    assert_int_equal(rpc_tx_credit(&w.tx, rpc_rx_release(&w.rx, msg)), 0);
    assert_int_equal(w.tx.credit, RPC_WINDOW_MIN);
    wire_fini(&w);
}

static struct rpc_rx_msg *carry_one(struct wire *w)
{
    struct rpc_frame frame;
    struct rpc_rx_msg *msg = NULL;
    do
        assert_true(carry(w, 1) > 0);
    while (rpc_rx_next(&w->rx, &frame, &msg) == 0);
    return msg;
}

/* What was received earlier may be about the same bytes. */
static void a_push_lands_only_when_all_before_it_was_handled(void **state)
{
    (void)state;
    struct wire w;
    struct lands lands = {.landing = {place, leave, &lands}};
    wire_init(&w, WINDOW, 1);
    w.rx.landing = &lands.landing;
    for (int i = 0; i < 4; i++)
        assert_int_equal(queue(&w, RPC_FRAME_PUSH, 0, i ? 70000 : 10, false), 0);
    struct rpc_rx_msg *small = carry_one(&w), *beside = carry_one(&w);
    assert_int_equal(lands.asked, 0);
    assert_null(beside->msg.placed);
    rpc_rx_release(&w.rx, small);
    rpc_rx_release(&w.rx, beside);
    struct rpc_rx_msg *placed = carry_one(&w);
    assert_non_null(placed->msg.placed);
    struct rpc_rx_msg *next = carry_one(&w); /* beside one that has landed */
    assert_int_equal(lands.asked, 2);
    rpc_rx_release(&w.rx, next);
    rpc_rx_release(&w.rx, placed);
    /* One that never ends is left with the connection. */
    lands.asked = 0;
    assert_int_equal(queue(&w, RPC_FRAME_PUSH, 0, 70000, false), 0);
    struct rpc_frame frame;
    carry(&w, 100);
    assert_int_equal(rpc_rx_next(&w.rx, &frame, &next), 0);
    assert_int_equal(lands.placed, lands.left + 1);
    wire_fini(&w);
    assert_int_equal(lands.placed, lands.left);
}

static void credit_that_was_never_given_is_refused(void **state)
{
    (void)state;
    struct wire w;
    wire_init(&w, RPC_WINDOW_MIN, 1);
    assert_int_equal(rpc_tx_credit(&w.tx, 1), -EPROTO);
    assert_int_equal(queue(&w, RPC_FRAME_POST, 0, 100, false), 0);
    assert_int_equal(rpc_tx_credit(&w.tx, 100 + RPC_MESSAGE_COST + 1), -EPROTO);
    assert_int_equal(rpc_tx_credit(&w.tx, UINT64_MAX), -EPROTO);
    assert_int_equal(rpc_tx_credit(&w.tx, 100 + RPC_MESSAGE_COST), 0);
    wire_fini(&w);
}

static void queue_limit_refuses_but_never_an_empty_queue(void **state)
{
    (void)state;
    struct wire w;
    wire_init(&w, WINDOW, 1);
    w.tx.queue_limit = 1000;
    assert_int_equal(queue(&w, RPC_FRAME_POST, 0, 100000, false), 0);
    assert_int_equal(queue(&w, RPC_FRAME_POST, 0, 1, false), -ENOBUFS);
    assert_int_equal(queue(&w, RPC_FRAME_REPLY, 0, 1, true), 0);
    wire_fini(&w);
}

/* What of the next large message lands in the block is copied once more. */
static void little_is_read_behind_a_large_message(void **state)
{
    (void)state;
    struct rpc_rx rx;
    struct iovec iov[2];
    struct rpc_frame frame = {.kind = RPC_FRAME_POST, .len = 200000};
    struct rpc_rx_msg *msg;
    assert_int_equal(rpc_rx_init(&rx, RPC_WINDOW_DEFAULT, NULL), 0);
    assert_int_equal(rpc_rx_space(&rx, iov), 1);
    assert_int_equal(iov[0].iov_len, RPC_RX_BLOCK_BYTES);
    rpc_rx_filled(&rx, rpc_frame_encode(&frame, iov[0].iov_base));
    assert_int_equal(rpc_rx_next(&rx, &frame, &msg), 0);
    assert_int_equal(rpc_rx_space(&rx, iov), 2);
    assert_int_equal(iov[0].iov_len, 200000);
    assert_int_equal(iov[1].iov_len, RPC_RX_BEHIND_BYTES);
    rpc_rx_fini(&rx);
}

/* ---- a peer that breaks the rules ---- */

static int feed(struct rpc_rx *rx, const void *bytes, size_t n)
{
    struct iovec iov[2];
    struct rpc_frame frame;
    struct rpc_rx_msg *msg;
    int rc = 0;
    for (size_t at = 0; at < n && rc >= 0;) {
        int count = rpc_rx_space(rx, iov);
        assert_true(count >= 1);
        size_t part = iov[0].iov_len < n - at ? iov[0].iov_len : n - at;
        memcpy(iov[0].iov_base, (const uint8_t *)bytes + at, part);
        at += part;
        rpc_rx_filled(rx, part);
        while ((rc = rpc_rx_next(rx, &frame, &msg)) > 0)
            if (msg)
                rpc_rx_release(rx, msg);
    }
    return rc;
}

static void overrun_of_the_window_is_refused(void **state)
{
    (void)state;
    struct rpc_rx rx;
    uint8_t header[RPC_FRAME_HEADER_MAX];
    struct rpc_frame first = {.kind = RPC_FRAME_POST, .len = 1, .total = RPC_WINDOW_MIN};
    assert_int_equal(rpc_rx_init(&rx, RPC_WINDOW_MIN, NULL), 0);
    size_t n = rpc_frame_encode(&first, header);
    header[n] = 0;
    assert_int_equal(feed(&rx, header, n + 1), -ENOBUFS);
    rpc_rx_fini(&rx);

    /* The message that just fits is taken. */
    first.total = RPC_WINDOW_MIN - RPC_MESSAGE_COST;
    assert_int_equal(rpc_rx_init(&rx, RPC_WINDOW_MIN, NULL), 0);
    n = rpc_frame_encode(&first, header);
    header[n] = 0;
    assert_int_equal(feed(&rx, header, n + 1), 0);
    assert_int_equal(rx.held, RPC_WINDOW_MIN);
    assert_int_equal(feed(&rx, "\x12\x01\x00\x00", 4), -ENOBUFS); /* an empty post beside it */
    rpc_rx_fini(&rx);
}

static void held_messages_count_against_the_window(void **state)
{
    (void)state;
    struct rpc_rx rx;
    struct iovec iov[2];
    struct rpc_rx_msg *held[RPC_WINDOW_MIN / RPC_MESSAGE_COST + 1];
    assert_int_equal(rpc_rx_init(&rx, RPC_WINDOW_MIN, NULL), 0);
    int count = 0, rc;
    for (;;) {
        struct rpc_frame frame;
        rpc_rx_space(&rx, iov);
        memcpy(iov[0].iov_base, "\x02\x00\x00", 3);
        rpc_rx_filled(&rx, 3);
        rc = rpc_rx_next(&rx, &frame, &held[count]);
        if (rc < 0)
            break;
        assert_int_equal(rc, 1);
        count++;
        assert_int_equal(rpc_rx_next(&rx, &frame, &(struct rpc_rx_msg *){NULL}), 0);
    }
    assert_int_equal(rc, -ENOBUFS);
    assert_int_equal(count, RPC_WINDOW_MIN / RPC_MESSAGE_COST);
    while (count-- > 0)
        rpc_rx_release(&rx, held[count]);
    rpc_rx_fini(&rx);
}

static void frames_out_of_turn_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *what, *bytes;
        size_t len;
    } bad[] = {
        {"more without a first", "\x06\x01\x00", 3},
        {"more on another stream", "\x22\x01\x00\x05\x00\x16\x01\x01\x00", 9},
        {"more than the total", "\x22\x01\x00\x05\x00\x06\x05", 7},
        {"a message inside another", "\x22\x01\x00\x05\x00\x02\x00\x00", 8},
        {"a first inside another", "\x22\x01\x00\x05\x00\x22\x01\x00\x05\x00", 10},
        {"a goodbye of 17,000 bytes", "\x0b\xe8\x84\x01\x01", 5},
        {"no frame", "\x00", 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct rpc_rx rx;
        assert_int_equal(rpc_rx_init(&rx, RPC_WINDOW_MIN, NULL), 0);
        int rc = feed(&rx, bad[i].bytes, bad[i].len);
        if (rc != -EPROTO)
            fail_msg("%s: %d", bad[i].what, rc);
        rpc_rx_fini(&rx);
    }
}

/* ---- out of memory ---- */

struct attempt {
    int created, call, post;
    struct outcome outcome;
};

/* A whole short life, with the nth allocation and all after it failing for a while. */
static struct attempt live(long allowed)
{
    struct attempt a = {.call = -1, .post = -1};
    struct rpc_transport *t[2];
    struct rpc_loopnet *net;
    struct rpc_ep *ep[2] = {NULL, NULL};
    static uint8_t large[300000];
    link_make(LINK_LOOP, t, &net);
    struct rpc_config config = {.clock = rpc_loopnet_clock(net)};
    struct rpc_config server = {.clock = rpc_loopnet_clock(net), .accepting = true};
    assert_int_equal(rpc_ep_create(t[SERVER], &server, &ep[SERVER]), 0);
    allocations_left = allowed;
    a.created = rpc_ep_create(t[CLIENT], &config, &ep[CLIENT]);
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_ECHO, &iov, large, 100);
    if (a.created == 0)
        a.call = rpc_call(ep[CLIENT], &send, outcome_fn, &a.outcome, NULL);
    for (int turn = 0; turn < 60 && a.created == 0; turn++) {
        if (turn == 20) {
            iov.iov_len = sizeof large;
            a.post = rpc_post(ep[CLIENT], &send);
        }
        for (int side = 0; side < 2; side++) {
            (void)rpc_poll(ep[side]);
            struct rpc_msg *msg;
            while ((msg = rpc_recv(ep[side])) != NULL) {
                if (msg->kind == RPC_CALL)
                    (void)rpc_reply(ep[side], msg, 0, NULL);
                rpc_release(ep[side], msg);
            }
            (void)rpc_flush(ep[side]);
        }
        rpc_loopnet_step(net, rpc_loopnet_now(net) + 100000);
    }
    rpc_ep_destroy(ep[CLIENT]);
    rpc_ep_destroy(ep[SERVER]);
    allocations_left = -1;
    rpc_loopnet_destroy(net);
    return a;
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    int failed_at[3] = {0};
    long allowed = 0;
    for (;; allowed++) {
        struct attempt a = live(allowed);
        assert_true(a.created == 0 || a.created == -ENOMEM);
        if (a.created) {
            failed_at[0]++;
            continue;
        }
        if (a.call == 0)
            assert_int_equal(a.outcome.ended, 1); /* answered, failed or cancelled: once */
        failed_at[1] += a.call != 0;
        failed_at[2] += a.call == 0 && (a.outcome.status != 0 || a.post != 0);
        if (a.call == 0 && a.outcome.status == 0 && a.post == 0)
            break;
        assert_true(allowed < 1000);
    }
    assert_true(failed_at[0] > 0 && failed_at[1] > 0 && failed_at[2] > 0);
}

int main(void)
{
    setenv("VENUS_LOG_LEVEL", "NONE", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_messages_arrive_whole_and_in_order),
        cmocka_unit_test(pushes_land_where_they_belong),
        cmocka_unit_test(a_push_lands_only_when_all_before_it_was_handled),
        cmocka_unit_test(small_message_waits_for_at_most_one_chunk),
        cmocka_unit_test(window_is_never_exceeded_and_replies_have_a_reserve),
        cmocka_unit_test(whole_window_in_one_message),
        cmocka_unit_test(credit_that_was_never_given_is_refused),
        cmocka_unit_test(queue_limit_refuses_but_never_an_empty_queue),
        cmocka_unit_test(little_is_read_behind_a_large_message),
        cmocka_unit_test(overrun_of_the_window_is_refused),
        cmocka_unit_test(held_messages_count_against_the_window),
        cmocka_unit_test(frames_out_of_turn_are_refused),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
