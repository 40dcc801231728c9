/* Descriptors that travel with messages on a Unix socket. */
#include "unit.h"

#include "rpc/endpoint/frame.h"
#include "rpc/rpc.h"
#include "rpc/transport/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLIENT, SERVER, TURNS_MAX = 100000 };

struct pair {
    struct rpc_ep *ep[2];
};

static void pair_open_with(struct pair *p, bool server_takes_fds)
{
    struct rpc_transport *t[2];
    assert_int_equal(rpc_unix_pair(t), 0);
    for (int side = 0; side < 2; side++) {
        struct rpc_config config = {.accepting = side == SERVER,
                                    .takes_fds = side == CLIENT || server_takes_fds};
        assert_int_equal(rpc_ep_create(t[side], &config, &p->ep[side]), 0);
    }
    for (int i = 0; rpc_ep_status(p->ep[0]) || rpc_ep_status(p->ep[1]); i++) {
        assert_true(i < TURNS_MAX);
        assert_true(rpc_poll(p->ep[i % 2]) >= 0);
    }
}

static void pair_open(struct pair *p)
{
    pair_open_with(p, true);
}

static void pair_close(struct pair *p)
{
    rpc_ep_destroy(p->ep[CLIENT]);
    rpc_ep_destroy(p->ep[SERVER]);
}

static struct rpc_msg *next_message(struct pair *p, int side)
{
    struct rpc_msg *msg = NULL;
    for (int i = 0; !msg && i < TURNS_MAX; i++) {
        (void)rpc_flush(p->ep[!side]);
        assert_true(rpc_poll(p->ep[side]) >= 0);
        msg = rpc_recv(p->ep[side]);
    }
    assert_non_null(msg);
    return msg;
}

static void expect_same_pipe(int read_end, int passed_write_end)
{
    char byte = 0;
    assert_int_equal(write(passed_write_end, "x", 1), 1);
    assert_int_equal(read(read_end, &byte, 1), 1);
    assert_int_equal(byte, 'x');
}

static void post_carries_descriptors_in_order(void **state)
{
    (void)state;
    int before = open_descriptors();
    struct pair p;
    pair_open(&p);
    int pipes[3][2];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pipe(pipes[i]), 0);
    int two[] = {pipes[0][1], pipes[1][1]};
    struct rpc_send plain = {.method = 1};
    struct rpc_send first = {.method = 2, .fds = two, .fd_count = 2};
    struct rpc_send second = {.method = 3, .stream = 4, .fds = &pipes[2][1], .fd_count = 1};
    assert_int_equal(rpc_post(p.ep[CLIENT], &plain), 0);
    assert_int_equal(rpc_post(p.ep[CLIENT], &first), 0);
    assert_int_equal(rpc_post(p.ep[CLIENT], &second), 0);
    for (int i = 0; i < 3; i++)
        close(pipes[i][1]); /* the message has its own */
    for (int i = 0; i < 3; i++) {
        struct rpc_msg *msg = next_message(&p, SERVER);
        assert_int_equal(msg->method, i + 1);
        assert_int_equal(msg->fd_count, i == 0 ? 0 : 3 - i);
        for (int k = 0; k < msg->fd_count; k++) {
            int fd = rpc_msg_take_fd(msg, k);
            assert_true(fd >= 0);
            assert_int_equal(rpc_msg_take_fd(msg, k), -1);
            expect_same_pipe(pipes[i == 1 ? k : 2][0], fd);
            close(fd);
        }
        rpc_release(p.ep[SERVER], msg);
    }
    for (int i = 0; i < 3; i++)
        close(pipes[i][0]);
    pair_close(&p);
    assert_int_equal(open_descriptors(), before);
}

static void keep_fd(void *user, int status, const struct rpc_msg *reply)
{
    assert_int_equal(status, 0);
    assert_int_equal(reply->fd_count, 1);
    *(int *)user = rpc_msg_take_fd(reply, 0);
}

static void reply_carries_a_descriptor(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    int pipes[2], got = -1;
    assert_int_equal(pipe(pipes), 0);
    struct rpc_send ask = {.method = 1};
    assert_int_equal(rpc_call(p.ep[CLIENT], &ask, keep_fd, &got, NULL), 0);
    struct rpc_msg *call = next_message(&p, SERVER);
    struct rpc_send answer = {.fds = &pipes[1], .fd_count = 1};
    assert_int_equal(rpc_reply(p.ep[SERVER], call, 0, &answer), 0);
    rpc_release(p.ep[SERVER], call);
    for (int i = 0; got < 0 && i < TURNS_MAX; i++) {
        (void)rpc_flush(p.ep[SERVER]);
        assert_true(rpc_poll(p.ep[CLIENT]) >= 0);
    }
    expect_same_pipe(pipes[0], got);
    close(got);
    close(pipes[0]);
    close(pipes[1]);
    pair_close(&p);
}

static void untaken_and_unsent_descriptors_are_closed(void **state)
{
    (void)state;
    int before = open_descriptors();
    struct pair p;
    pair_open(&p);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    struct rpc_send send = {.method = 1, .fds = &pipes[1], .fd_count = 1};
    assert_int_equal(rpc_post(p.ep[CLIENT], &send), 0);
    rpc_release(p.ep[SERVER], next_message(&p, SERVER));
    assert_int_equal(rpc_post(p.ep[CLIENT], &send), 0); /* arrives, is never looked at */
    (void)rpc_flush(p.ep[CLIENT]);
    assert_true(rpc_poll(p.ep[SERVER]) >= 0);
    assert_int_equal(rpc_post(p.ep[CLIENT], &send), 0); /* never leaves */
    close(pipes[0]);
    close(pipes[1]);
    pair_close(&p);
    assert_int_equal(open_descriptors(), before);
}

static void what_cannot_carry_them_says_so(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    int fds[RPC_FDS_MAX + 1];
    for (int i = 0; i <= RPC_FDS_MAX; i++)
        fds[i] = STDIN_FILENO;
    struct rpc_send send = {.method = 1, .fds = fds, .fd_count = RPC_FDS_MAX + 1};
    assert_int_equal(rpc_post(p.ep[CLIENT], &send), -EINVAL);
    uint8_t *large = calloc(1, RPC_INLINE_BYTES + 1);
    struct iovec iov = {large, RPC_INLINE_BYTES + 1};
    send = (struct rpc_send){.method = 1, .iov = &iov, .iov_count = 1, .fds = fds, .fd_count = 1};
    assert_int_equal(rpc_post(p.ep[CLIENT], &send), -EMSGSIZE);
    free(large);
    int closed = -1;
    send = (struct rpc_send){.method = 1, .fds = &closed, .fd_count = 1};
    assert_int_equal(rpc_post(p.ep[CLIENT], &send), -EBADF);
    pair_close(&p);

    pair_open_with(&p, false);
    send.fds = fds;
    assert_int_equal(rpc_post(p.ep[CLIENT], &send), -EOPNOTSUPP);
    pair_close(&p);

    struct rpc_transport *t[2];
    struct rpc_ep *ep;
    assert_int_equal(rpc_shm_pair(0, t), 0);
    assert_int_equal(rpc_ep_create(t[0], &(struct rpc_config){0}, &ep), 0);
    send.fds = fds;
    assert_int_equal(rpc_post(ep, &send), -EOPNOTSUPP);
    rpc_ep_destroy(ep);
    rpc_transport_destroy(t[1]);
}

/* A peer that speaks through the transport itself, past the endpoint's manners. */
static void send_raw(struct pair *p, const struct rpc_frame *frame, const int *fds, int fd_count)
{
    uint8_t bytes[RPC_FRAME_HEADER_MAX];
    struct iovec iov = {bytes, rpc_frame_encode(frame, bytes)};
    struct rpc_transport *t = rpc_ep_transport(p->ep[CLIENT]);
    ssize_t n = fd_count ? t->ops->send_fds(t, &iov, 1, fds, fd_count) : t->ops->send(t, &iov, 1);
    assert_int_equal(n, iov.iov_len);
}

static void expect_protocol_error(struct pair *p)
{
    int rc = 0;
    for (int i = 0; rc >= 0 && i < TURNS_MAX; i++)
        rc = rpc_poll(p->ep[SERVER]);
    assert_int_equal(rc, -EPROTO);
}

static void promised_descriptors_that_do_not_come_are_refused(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    send_raw(&p, &(struct rpc_frame){.kind = RPC_FRAME_POST, .method = 1, .fds = 2}, NULL, 0);
    expect_protocol_error(&p);
    pair_close(&p);
}

/* So many with one message, after `first` with another.  Whatever of the last came is closed. */
static void expect_flood_refused(int first, int last)
{
    int before = open_descriptors();
    struct pair p;
    pair_open(&p);
    int fds[RPC_FDS_QUEUED_MAX + 1] = {0}; /* standard input */
    struct rpc_frame post = {.kind = RPC_FRAME_POST, .method = 1};
    if (first > 0) {
        send_raw(&p, &post, fds, first);
        rpc_release(p.ep[SERVER], next_message(&p, SERVER));
    }
    send_raw(&p, &post, fds, last);
    expect_protocol_error(&p);
    pair_close(&p);
    assert_int_equal(open_descriptors(), before);
}

static void flood_of_descriptors_nobody_asked_for_is_refused(void **state)
{
    (void)state;
    expect_flood_refused(RPC_FDS_QUEUED_MAX, 1);
    expect_flood_refused(1, RPC_FDS_QUEUED_MAX);     /* some fit */
    expect_flood_refused(0, RPC_FDS_QUEUED_MAX + 1); /* the kernel closes one itself */
}

int main(void)
{
    setenv("VENUS_LOG_LEVEL", "NONE", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(post_carries_descriptors_in_order),
        cmocka_unit_test(reply_carries_a_descriptor),
        cmocka_unit_test(untaken_and_unsent_descriptors_are_closed),
        cmocka_unit_test(what_cannot_carry_them_says_so),
        cmocka_unit_test(promised_descriptors_that_do_not_come_are_refused),
        cmocka_unit_test(flood_of_descriptors_nobody_asked_for_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
