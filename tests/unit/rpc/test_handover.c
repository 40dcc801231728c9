/* A connection that goes on at another endpoint, with nothing but its state and descriptors. */
#include "rpc/handover.h"

#include "duo.h"
#include "rpc/endpoint/ep.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { BYTES = 1000 };

static const enum link_kind kinds[] = {LINK_UNIX, LINK_SHM, LINK_TCP4};
static const struct rpc_config config = {.accepting = true};

static void keep(struct duo *duo, int side, struct rpc_msg *msg)
{
    assert_int_equal(side, SERVER);
    duo->held[duo->held_count++] = msg;
}

/* The server's end as another process would have it: from copies of the state and descriptors. */
static void move(struct duo *duo, struct rpc_msg *first)
{
    static struct rpc_handover state, copy;
    int fds[RPC_TRANSPORT_FDS];
    struct rpc_ep *old = duo->ep[SERVER];
    assert_int_equal(rpc_ep_hand_over(old, first, &state), 0);
    int count = rpc_transport_hand_over(rpc_ep_transport(old), &state.transport, fds);
    assert_true(count > 0);
    for (int i = 0; i < count; i++)
        assert_true((fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0)) >= 0);
    memcpy(&copy, &state, sizeof copy);
    memset(&state, 0xee, sizeof state);
    rpc_release(old, first);
    rpc_ep_abandon(old);
    duo->held_count = 0;
    duo->on_message = NULL;
    assert_int_equal(rpc_ep_take_over(&copy, fds, count, &config, &duo->ep[SERVER]), 0);
}

static void call(struct duo *duo, uint32_t method, const void *data, size_t len, struct outcome *o)
{
    struct iovec iov;
    struct rpc_send send = send_of(method, &iov, data, len);
    *o = (struct outcome){0};
    assert_int_equal(rpc_call(duo->ep[CLIENT], &send, outcome_fn, o, NULL), 0);
    (void)rpc_flush(duo->ep[CLIENT]);
}

static void until_held(struct duo *duo, uint32_t count)
{
    while (duo->held_count < count)
        duo_turn(duo);
}

static void expect_works(struct duo *duo, const uint8_t *bytes)
{
    for (int i = 0; i < 2000; i++) { /* more than a window: credit comes back */
        struct outcome o;
        call(duo, METHOD_ECHO, bytes, BYTES, &o);
        duo_until_count(duo, &o.ended, 1);
        assert_int_equal(o.status, 0);
        assert_int_equal(o.hash, pattern_hash(bytes, BYTES));
    }
}

static void a_call_is_answered_at_the_other_end(void **state)
{
    (void)state;
    uint8_t bytes[BYTES];
    pattern_fill(bytes, sizeof bytes, 1);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct rpc_config small = {.window_bytes = RPC_WINDOW_MIN};
        struct duo duo;
        struct outcome first, o;
        duo_open(&duo, kinds[i], &small, NULL);
        call(&duo, METHOD_ECHO, bytes, 10, &o); /* so that credit is under way */
        duo_until_count(&duo, &o.ended, 1);
        duo.on_message = keep;
        call(&duo, METHOD_ECHO, bytes, sizeof bytes, &first);
        until_held(&duo, 1);
        move(&duo, duo.held[0]);
        duo_until_count(&duo, &first.ended, 1);
        assert_int_equal(first.status, 0);
        assert_int_equal(first.hash, pattern_hash(bytes, sizeof bytes));
        expect_works(&duo, bytes);
        duo_close(&duo);
    }
}

/* What the peer sent behind the call and was read with it is not lost. */
static void what_came_behind_goes_along(void **state)
{
    (void)state;
    uint8_t bytes[BYTES];
    pattern_fill(bytes, sizeof bytes, 2);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct duo duo;
        struct outcome first;
        duo_open(&duo, kinds[i], NULL, NULL);
        duo.on_message = keep;
        call(&duo, METHOD_ECHO, bytes, sizeof bytes, &first);
        until_held(&duo, 1);
        /* Half of a frame lies in the buffer. */
        struct iovec iov[2];
        struct rpc_ep *server = duo.ep[SERVER];
        struct rpc_frame frame = {.kind = RPC_FRAME_POST, .len = BYTES, .method = METHOD_SINK};
        uint8_t post[RPC_FRAME_HEADER_MAX + BYTES];
        size_t header = rpc_frame_encode(&frame, post), half = header + BYTES / 2;
        memcpy(post + header, bytes, BYTES);
        assert_int_equal(rpc_rx_space(&server->rx, iov), 1);
        memcpy(iov[0].iov_base, post, half);
        rpc_rx_filled(&server->rx, half);
        move(&duo, duo.held[0]);
        struct iovec rest = {post + half, header + BYTES - half};
        struct rpc_transport *t = rpc_ep_transport(duo.ep[CLIENT]);
        assert_int_equal(t->ops->send(t, &rest, 1), rest.iov_len);
        duo_until_count(&duo, &duo.sunk, 1);
        assert_int_equal(duo.sunk_bytes, BYTES);
        duo_until_count(&duo, &first.ended, 1);
        duo_close(&duo);
    }
}

static void what_is_under_way_is_refused(void **state)
{
    (void)state;
    static struct rpc_handover out;
    uint8_t bytes[BYTES] = {0};
    struct duo duo;
    struct outcome first, second;
    duo_open(&duo, LINK_UNIX, NULL, NULL);
    duo.on_message = keep;
    call(&duo, METHOD_ECHO, bytes, sizeof bytes, &first);
    call(&duo, METHOD_ECHO, bytes, sizeof bytes, &second);
    until_held(&duo, 2);
    assert_int_equal(rpc_ep_hand_over(duo.ep[SERVER], duo.held[0], &out), -EBUSY);
    for (int i = 0; i < 2; i++)
        duo_serve(&duo, SERVER, duo.held[i]);
    duo.held_count = 0;
    duo_until_count(&duo, &second.ended, 1);
    static uint8_t large[RPC_INLINE_BYTES + 1];
    call(&duo, METHOD_ECHO, large, sizeof large, &first);
    until_held(&duo, 1);
    assert_int_equal(rpc_ep_hand_over(duo.ep[SERVER], duo.held[0], &out), -EMSGSIZE);
    duo_serve(&duo, SERVER, duo.held[0]);
    duo.held_count = 0;
    duo_close(&duo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_answered_at_the_other_end),
        cmocka_unit_test(what_came_behind_goes_along),
        cmocka_unit_test(what_is_under_way_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
