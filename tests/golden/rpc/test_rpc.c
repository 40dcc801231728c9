/* The bytes of the protocol, as docs/reference/protocol.md shows them: single messages and frames,
 * and what both sides of a whole session write.  Nonces are zeros.  The vectors are the same on
 * every architecture. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "../wire/golden.h"
#include "base/clock.h"
#include "rpc/endpoint/frame.h"
#include "rpc/endpoint/handshake.h"
#include "rpc/rpc.h"

static const char *vectors_path;

/* ---- the handshake ---- */

static const struct rpc_security token = {.token = "0123456789abcdef", .token_len = 16};

static struct rpc_config config_of(bool accepting, bool with_token)
{
    return (struct rpc_config){.accepting = accepting,
                               .security = with_token ? &token : NULL,
                               .window_bytes = RPC_WINDOW_DEFAULT,
                               .max_calls = RPC_CALLS_DEFAULT,
                               .heartbeat_ns = RPC_HEARTBEAT_DEFAULT_NS,
                               .capabilities = accepting ? 5 : 0,
                               .name = accepting ? "server" : "client"};
}

static void begin(struct rpc_handshake *hs, bool accepting)
{
    static const uint8_t nonce[RPC_HS_NONCE];
    struct rpc_config config = config_of(accepting, true);
    assert_int_equal(rpc_handshake_init(hs, &config, nonce, false, RPC_USER_UNKNOWN), 0);
}

/* What one side has to send goes to the other. */
static int pass(struct rpc_handshake *from, struct rpc_handshake *to)
{
    size_t used, len = from->out_len;
    from->out_len = 0;
    int rc = rpc_handshake_feed(to, from->out, len, &used);
    assert_int_equal(used, len);
    return rc;
}

static size_t take(struct rpc_handshake *hs, uint8_t *out)
{
    memcpy(out, hs->out, hs->out_len);
    return hs->out_len;
}

static size_t handshake_message(const char *name, uint8_t *out)
{
    struct rpc_handshake connector, acceptor;
    begin(&connector, false);
    begin(&acceptor, true);
    if (strcmp(name, "hello connector") == 0)
        return take(&connector, out);
    if (strcmp(name, "refused") == 0) {
        connector.out_len = 0;
        rpc_handshake_refuse(&connector, -EUSERS, "full");
        return take(&connector, out);
    }
    assert_int_equal(pass(&connector, &acceptor), -EINPROGRESS);
    if (strcmp(name, "hello acceptor") == 0)
        return take(&acceptor, out);
    assert_int_equal(pass(&acceptor, &connector), -EINPROGRESS);
    if (strcmp(name, "proof") == 0)
        return take(&connector, out);
    assert_int_equal(pass(&connector, &acceptor), 0);
    return take(&acceptor, out);
}

/* ---- frames ---- */

static const struct {
    const char *name;
    struct rpc_frame frame;
    const char *payload;
} frames[] = {
    {"call", {.kind = RPC_FRAME_CALL, .len = 4, .id = 0, .method = 1}, "ping"},
    {"reply", {.kind = RPC_FRAME_REPLY, .len = 4, .id = 0}, "pong"},
    {"post", {.kind = RPC_FRAME_POST, .stream = 3, .len = 2, .method = 300}, "hi"},
    {"push", {.kind = RPC_FRAME_PUSH, .len = 1, .method = 7}, "!"},
    {"error", {.kind = RPC_FRAME_ERROR, .len = 2, .id = 130, .method = 8}, "no"},
    {"first", {.kind = RPC_FRAME_CALL, .len = 3, .id = 1, .method = 2, .total = 5}, "abc"},
    {"more", {.kind = RPC_FRAME_MORE, .stream = 15, .len = 2}, "de"},
    {"credit", {.kind = RPC_FRAME_CREDIT, .value = 65536}, ""},
    {"ping", {.kind = RPC_FRAME_PING, .value = UINT64_MAX}, ""},
    {"pong", {.kind = RPC_FRAME_PONG, .value = 0}, ""},
    {"cancel", {.kind = RPC_FRAME_CANCEL, .id = 70000}, ""},
    {"bye", {.kind = RPC_FRAME_BYE, .len = 4, .method = 20}, "done"},
};

static size_t frame_bytes(const char *name, uint8_t *out)
{
    for (size_t i = 0; i < ARRAY_LEN(frames); i++) {
        if (strcmp(name, frames[i].name) != 0)
            continue;
        size_t len = rpc_frame_encode(&frames[i].frame, out);
        memcpy(out + len, frames[i].payload, frames[i].frame.len);
        return len + frames[i].frame.len;
    }
    fail_msg("no frame \"%s\"", name);
    return 0;
}

/* ---- a session ---- */

/* One end of a pipe that keeps what was written. */
struct end {
    struct rpc_transport base;
    struct end *peer;
    uint8_t written[GOLDEN_BYTES_MAX];
    size_t len, read; /* read: by the peer */
};

static ssize_t end_send(struct rpc_transport *t, const struct iovec *iov, int count)
{
    struct end *e = (struct end *)t;
    size_t before = e->len;
    for (int i = 0; i < count; i++) {
        assert_true(iov[i].iov_len <= sizeof e->written - e->len);
        memcpy(e->written + e->len, iov[i].iov_base, iov[i].iov_len);
        e->len += iov[i].iov_len;
    }
    return (ssize_t)(e->len - before);
}

static ssize_t end_recv(struct rpc_transport *t, const struct iovec *iov, int count,
                        uint64_t timeout_ns)
{
    (void)count, (void)timeout_ns;
    struct end *from = ((struct end *)t)->peer;
    size_t left = from->len - from->read, n = left < iov->iov_len ? left : iov->iov_len;
    if (n == 0)
        return -EAGAIN;
    memcpy(iov->iov_base, from->written + from->read, n);
    from->read += n;
    return (ssize_t)n;
}

static int end_wait(struct rpc_transport *t, unsigned events, uint64_t timeout_ns)
{
    (void)t, (void)events, (void)timeout_ns;
    return 0;
}

static int end_poll_fd(struct rpc_transport *t)
{
    (void)t;
    return -1;
}

static void end_destroy(struct rpc_transport *t)
{
    (void)t;
}

static const struct rpc_transport_ops end_ops = {
    .name = "pipe",
    .send = end_send,
    .recv = end_recv,
    .wait = end_wait,
    .poll_fd = end_poll_fd,
    .destroy = end_destroy,
};

static uint64_t still(void *user)
{
    (void)user;
    return HW_SEC;
}

static void count_answer(void *user, int status, const struct rpc_msg *reply)
{
    (void)status, (void)reply;
    ++*(int *)user;
}

/* Echoes method 1 and pushes once, refuses the rest. */
static void serve(struct rpc_ep *ep)
{
    struct rpc_msg *msg;
    static char news[] = "news";
    struct iovec pushed = {news, 4};
    assert_true(rpc_poll(ep) >= 0);
    while ((msg = rpc_recv(ep)) != NULL) {
        struct iovec iov = {(void *)msg->data, msg->len};
        struct rpc_send send = {.iov = &iov, .iov_count = 1};
        if (msg->kind == RPC_CALL)
            assert_int_equal(msg->method == 1 ? rpc_reply(ep, msg, 0, &send)
                                              : rpc_reply(ep, msg, -ENOSYS, NULL),
                             0);
        else
            assert_int_equal(
                rpc_push(ep, &(struct rpc_send){.method = 9, .iov = &pushed, .iov_count = 1}), 0);
        rpc_release(ep, msg);
    }
    assert_int_equal(rpc_flush(ep), 0);
}

static void converse(struct rpc_ep *client, struct rpc_ep *server)
{
    int answers = 0;
    static char texts[2][5] = {"ping", "note"};
    struct iovec ping = {texts[0], 4}, note = {texts[1], 4};
    for (int i = 0; i < 2; i++) { /* hellos, both ways */
        assert_true(rpc_poll(client) >= 0);
        assert_true(rpc_poll(server) >= 0);
    }
    assert_int_equal(rpc_ep_status(client) | rpc_ep_status(server), 0);
    struct rpc_send call = {.method = 1, .iov = &ping, .iov_count = 1};
    assert_int_equal(rpc_call(client, &call, count_answer, &answers, NULL), 0);
    call.method = 2;
    assert_int_equal(rpc_call(client, &call, count_answer, &answers, NULL), 0);
    struct rpc_send post = {.method = 4, .stream = 2, .iov = &note, .iov_count = 1};
    assert_int_equal(rpc_post(client, &post), 0);
    assert_int_equal(rpc_flush(client), 0);
    serve(server);
    assert_int_equal(rpc_poll(client), 3);
    assert_int_equal(answers, 2);
    struct rpc_msg *push = rpc_recv(client);
    assert_non_null(push);
    rpc_release(client, push);
    rpc_ep_shutdown(client, 0, "done");
    assert_int_equal(rpc_poll(server), -ESHUTDOWN);
}

/* Both sides' bytes; the nonces, which are all that is random, become zeros. */
static void run_session(struct end ends[2])
{
    enum { NONCE_AT = RPC_HS_HEADER + 21 };
    struct rpc_ep *eps[2];
    for (int i = 0; i < 2; i++) {
        ends[i] = (struct end){.base = {.ops = &end_ops, .local = true}, .peer = &ends[!i]};
        struct rpc_config config = config_of(i == 1, false);
        config.flush = RPC_FLUSH_BATCH;
        config.clock.now_ns = still;
        assert_int_equal(rpc_ep_create(&ends[i].base, &config, &eps[i]), 0);
    }
    converse(eps[0], eps[1]);
    for (int i = 0; i < 2; i++) {
        rpc_ep_destroy(eps[i]);
        memset(ends[i].written + NONCE_AT, 0, RPC_HS_NONCE);
    }
}

static size_t session_bytes(const char *name, uint8_t *out)
{
    static struct end ends[2];
    run_session(ends);
    struct end *e = &ends[strcmp(name, "acceptor") == 0];
    memcpy(out, e->written, e->len);
    return e->len;
}

/* ---- the vectors ---- */

static void check_line(char *fields[], size_t count)
{
    static uint8_t got[GOLDEN_BYTES_MAX], want[GOLDEN_BYTES_MAX];
    assert_int_equal(count, 3);
    size_t len = 0;
    if (strcmp(fields[0], "handshake") == 0)
        len = handshake_message(fields[1], got);
    else if (strcmp(fields[0], "frame") == 0)
        len = frame_bytes(fields[1], got);
    else if (strcmp(fields[0], "session") == 0)
        len = session_bytes(fields[1], got);
    golden_equal(fields[1], got, len, want, golden_hex(fields[2], want));
}

static void test_vectors(void **state)
{
    (void)state;
    assert_int_equal(golden_each(vectors_path, check_line), 5 + ARRAY_LEN(frames) + 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors)};
    if (argc != 2)
        return 2;
    vectors_path = argv[1];
    return cmocka_run_group_tests_name("golden-rpc", tests, NULL, NULL);
}
