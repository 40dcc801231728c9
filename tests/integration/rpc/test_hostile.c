/* What bad input gets: each bad client is refused or timed out with one line in the log, costs
 * bounded memory, and a healthy client of the same server never notices. */
#include "base/clock.h"
#include "harness.h"
#include "wire/le.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    HANDSHAKE_MS = 400,
    STALLED_MS = 500,
    WINDOW = 1 << 20,
    MAX_CALLS = RPC_CALLS_MIN,
    BLOB = 256 << 10,
    /* Two windows for what is queued and one answer over it, the socket's buffers, slack for an
     * allocator: far below what each of these clients asks for in all. */
    MEMORY_SLACK = 24 << 20
};

static struct rpc_security token = {.token = "the server's token", .token_len = 18};
static struct rpc_security other_token = {.token = "a token of another", .token_len = 18};
static char folder[64];
static struct rpc_security tls_server, tls_client;

struct fixture {
    struct server server;
    struct rpc_client *healthy;
};

static struct server_spec plain(void)
{
    return (struct server_spec){
        .config = {.handshake_ns = HANDSHAKE_MS * HW_MS,
                   .window_bytes = WINDOW,
                   .max_calls = MAX_CALLS},
        .stalled_ns = STALLED_MS * HW_MS,
    };
}

static void start(struct fixture *f, const struct server_spec *spec)
{
    server_start(&f->server, spec);
    struct client_spec client = {.config.security = spec->config.security,
                                 .security = spec->security ? &tls_client : NULL};
    f->healthy = client_open(&f->server, &client);
    client_works(f->healthy);
}

static void start_plain(struct fixture *f)
{
    struct server_spec spec = plain();
    start(f, &spec);
}

/* The healthy client was never disturbed, the server lives and logged so many lines. */
static void finish(struct fixture *f, unsigned warnings)
{
    client_works(f->healthy);
    rpc_client_destroy(f->healthy);
    server_stop(&f->server, warnings);
}

/* The one bad client on fd is closed for the reason that the log gives. */
static void expect_closed(struct fixture *f, int fd, const char *reason)
{
    raw_wait_closed(fd, f->healthy);
    close(fd);
    server_expect_log(&f->server, reason, 1);
    finish(f, 1);
}

/* ---- a few bytes ---- */

/* What a caller says, and what the log says of it. */
struct words {
    const char *bytes; /* NULL: the frame */
    size_t len;
    bool is_open; /* after a handshake, as frames are */
    struct rpc_frame frame;
    const char *reason;
};

static void test_words(void **state)
{
    const struct words *w = *state;
    struct fixture f;
    uint8_t header[RPC_FRAME_HEADER_MAX + 1] = {0};
    start_plain(&f);
    int fd = w->bytes && !w->is_open ? raw_connect(&f.server) : raw_open(&f.server, NULL);
    if (w->bytes)
        raw_send(fd, w->bytes, w->len);
    else
        raw_send(fd, header, rpc_frame_encode(&w->frame, header) + (w->frame.len == 1));
    expect_closed(&f, fd, w->reason);
}

#define BYTES(text) .bytes = text, .len = sizeof(text) - 1
static struct words magic = {BYTES("SSH-2.0-x\r\n"),
                             .reason = "not a Hawser peer: wrong magic 0x53"},
                    silence = {BYTES(""), .reason = "no complete hello within 0.4 s"},
                    long_hello = {BYTES("HWSR\1\0\xff\xff"),
                                  .reason = "a handshake message of 65543 bytes is past the limit"},
                    unknown_hello = {BYTES("HWSR\x09\0\0\0"),
                                     .reason = "handshake message 9 out of turn"},
                    unknown_kind = {BYTES("\x0f\0\0\0"), .is_open = true,
                                    .reason = "malformed frame"},
                    long_frame = {.frame = {.kind = RPC_FRAME_CALL, .len = RPC_CHUNK_BYTES + 1},
                                  .reason = "malformed frame"},
                    past_window = {.frame = {.kind = RPC_FRAME_POST, .len = 1, .total = UINT32_MAX},
                                   .reason = "sent more than its credit of 1048576 bytes"},
                    credit = {.frame = {.kind = RPC_FRAME_CREDIT, .value = UINT64_MAX},
                              .reason = "returned more credit than it had"},
                    reply = {.frame = {.kind = RPC_FRAME_REPLY, .id = 3},
                             .reason = "answered a call that was not made"},
                    push = {.frame = {.kind = RPC_FRAME_PUSH, .method = 1},
                            .reason = "a push from the connecting side"};

/* ---- the handshake ---- */

static void test_http_request_is_answered_in_http(void **state)
{
    (void)state;
    struct fixture f;
    char answer[256] = "";
    start_plain(&f);
    int fd = raw_connect(&f.server);
    raw_send(fd, "HEAD / HTTP/1.1\r\n\r\n", 19);
    assert_true(recv(fd, answer, sizeof answer - 1, 0) > 0);
    assert_non_null(strstr(answer, "HTTP/1.1 400 "));
    expect_closed(&f, fd, "this port speaks Hawser's RPC, not HTTP");
}

static void test_wrong_version_names_both(void **state)
{
    (void)state;
    struct fixture f;
    start_plain(&f);
    uint8_t hello[RPC_HS_MESSAGE_MAX], answer[1024];
    size_t len = raw_hello(NULL, hello), got = 0;
    wire_store16(hello + RPC_HS_HEADER, 7);
    wire_store16(hello + RPC_HS_HEADER + 2, 9);
    int fd = raw_connect(&f.server);
    raw_send(fd, hello, len);
    static const char told[] = "this side speaks 1 to 1, the peer 7 to 9";
    while (!memmem(answer, got, told, sizeof told - 1)) {
        assert_true(poll_fd(fd, POLLIN, HANG_MS));
        ssize_t n = recv(fd, answer + got, sizeof answer - got, 0);
        assert_true(n > 0);
        got += (size_t)n;
    }
    expect_closed(&f, fd, told);
}

static void test_hello_with_limits_out_of_range(void **state)
{
    (void)state;
    struct fixture f;
    start_plain(&f);
    uint8_t hello[RPC_HS_MESSAGE_MAX];
    size_t len = raw_hello(NULL, hello);
    wire_store32(hello + RPC_HS_HEADER + 8, UINT32_MAX);
    int fd = raw_connect(&f.server);
    raw_send(fd, hello, len);
    expect_closed(&f, fd, "limits out of range: window 4294967295");
}

/* The code for "try again" is no way for a connection to end, so it must not become one. */
static void test_refusal_with_a_code_of_no_end(void **state)
{
    (void)state;
    struct fixture f;
    start_plain(&f);
    int fd = raw_connect(&f.server);
    uint8_t refusal[] = "HWSR\4\0\x05\0\0\0\0\0";
    wire_store32(refusal + RPC_HS_HEADER, rpc_error_to_wire(-EAGAIN));
    raw_send(fd, refusal, RPC_HS_HEADER + 5);
    expect_closed(&f, fd, "the peer refused");
}

static void test_byte_at_a_time(void **state)
{
    (void)state;
    struct fixture f;
    start_plain(&f);
    uint8_t hello[RPC_HS_MESSAGE_MAX];
    size_t len = raw_hello(NULL, hello), at = 0;
    int fd = raw_connect(&f.server);
    /* Each wait for an answer that does not come is the pause before the next byte. */
    char scrap[RPC_HS_MESSAGE_MAX];
    for (bool open = true; open;) {
        if (at < len - 1)
            (void)raw_try_send(fd, hello + at++, 1);
        client_works(f.healthy);
        if (poll_fd(fd, POLLIN, 20))
            open = recv(fd, scrap, sizeof scrap, MSG_DONTWAIT) > 0;
    }
    assert_true(at < len - 1);
    expect_closed(&f, fd, "no complete hello within 0.4 s");
}

/* Slow but in time: the pieces make a hello, and frames after it. */
static void test_bytes_one_by_one_in_time(void **state)
{
    (void)state;
    struct fixture f;
    struct server_spec spec = plain();
    spec.config.handshake_ns = HANG_MS * HW_MS;
    start(&f, &spec);
    uint8_t bytes[RPC_HS_MESSAGE_MAX + 64];
    size_t len = raw_hello(NULL, bytes);
    struct rpc_frame call = {.kind = RPC_FRAME_CALL, .len = 4, .id = 5, .method = METHOD_ECHO};
    len += rpc_frame_encode(&call, bytes + len);
    memcpy(bytes + len, "ping", 4);
    len += 4;
    int fd = raw_connect(&f.server);
    int one = 1;
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof one), 0);
    for (size_t i = 0; i < len; i++) {
        raw_send(fd, bytes + i, 1);
        client_works(f.healthy);
    }
    uint8_t answer[1024];
    size_t got = 0;
    while (!memmem(answer, got, "\x04\x04\x05ping", 7)) {
        assert_true(poll_fd(fd, POLLIN, HANG_MS));
        ssize_t n = recv(fd, answer + got, sizeof answer - got, 0);
        assert_true(n > 0);
        got += (size_t)n;
    }
    close(fd);
    server_expect_log(&f.server, "the peer vanished", 1);
    finish(&f, 1);
}

static void test_hundred_silent_connections_keep_nobody_out(void **state)
{
    (void)state;
    struct fixture f;
    struct server_spec spec = plain();
    spec.config.handshake_ns = HANG_MS * HW_MS;
    start(&f, &spec);
    int fds[100];
    uint64_t start_ms = now_ms();
    for (int i = 0; i < 100; i++)
        fds[i] = raw_connect(&f.server);
    struct rpc_client *late = client_open(&f.server, NULL);
    client_works(late);
    client_works(f.healthy);
    rpc_client_destroy(late);
    /* The server holds 64; the newcomer took one more. */
    server_expect_warned(&f.server, 100 + 1 - RPC_SERVER_HANDSHAKES_MAX);
    server_expect_log(&f.server, "too many callers at once", 1);
    for (int i = 0; i < 100; i++)
        close(fds[i]);
    server_expect_warned(&f.server, 100);
    unsigned lines = server_log_lines(&f.server);
    if (lines > 2 + (now_ms() - start_ms) / 1000)
        fail_msg("%u lines for 100 callers:\n%s", lines, f.server.log);
    finish(&f, 100);
}

static void test_refused_at_the_limit_of_clients(void **state)
{
    (void)state;
    struct fixture f;
    struct server_spec spec = plain();
    spec.max_clients = 1;
    start(&f, &spec);
    char why[RPC_WHY_CHARS];
    assert_int_equal(client_refused(&f.server, NULL, why), -EUSERS);
    assert_non_null(strstr(why, "limit of 1 clients"));
    finish(&f, 1);
}

/* ---- tokens and TLS ---- */

static void test_wrong_token(void **state)
{
    (void)state;
    struct fixture f;
    struct server_spec spec = plain();
    spec.config.security = &token;
    start(&f, &spec);
    char why[RPC_WHY_CHARS];
    struct client_spec wrong = {.config.security = &other_token};
    assert_int_equal(client_refused(&f.server, &wrong, why), -EACCES);
    assert_non_null(strstr(why, "wrong token"));
    server_expect_log(&f.server, "wrong token", 1);
    finish(&f, 1);
}

static void test_no_token(void **state)
{
    (void)state;
    struct fixture f;
    struct server_spec spec = plain();
    spec.config.security = &token;
    start(&f, &spec);
    char why[RPC_WHY_CHARS];
    assert_int_equal(client_refused(&f.server, NULL, why), -EACCES);
    assert_non_null(strstr(why, "wants a token"));
    server_expect_log(&f.server, "in the handshake", 1);
    finish(&f, 1);
}

/* Between one client and the server: passes bytes on and keeps what the client said. */
struct relay {
    int listener, to_server;
    uint8_t said[4096];
    size_t len;
};

static void *relay_main(void *user)
{
    struct relay *r = user;
    int client = accept(r->listener, NULL, NULL);
    uint8_t buf[4096];
    for (;;) {
        struct pollfd p[2] = {{.fd = client, .events = POLLIN},
                              {.fd = r->to_server, .events = POLLIN}};
        if (poll(p, 2, HANG_MS) <= 0)
            break;
        int from = p[0].revents ? client : r->to_server;
        ssize_t n = recv(from, buf, sizeof buf, 0);
        if (n <= 0)
            break;
        if (from == client && r->len + (size_t)n <= sizeof r->said) {
            memcpy(r->said + r->len, buf, (size_t)n);
            r->len += (size_t)n;
        }
        (void)raw_try_send(from == client ? r->to_server : client, buf, (size_t)n);
    }
    close(client);
    close(r->to_server);
    return NULL;
}

static void test_replayed_session(void **state)
{
    (void)state;
    struct fixture f;
    struct server_spec spec = plain();
    spec.config.security = &token;
    start(&f, &spec);

    struct relay relay = {.to_server = raw_connect(&f.server)};
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    relay.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(relay.listener, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(relay.listener, 1), 0);
    assert_int_equal(getsockname(relay.listener, (struct sockaddr *)&addr, &len), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, relay_main, &relay), 0);

    struct server through = f.server;
    through.addr.port = ntohs(addr.sin_port);
    struct client_spec good = {.config.security = &token};
    struct rpc_client *victim = client_open(&through, &good);
    client_works(victim);
    rpc_client_destroy(victim);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(relay.listener);

    int fd = raw_connect(&f.server);
    raw_send(fd, relay.said, relay.len);
    expect_closed(&f, fd, "wrong token");
}

static void test_plain_client_on_a_tls_port(void **state)
{
    (void)state;
    struct fixture f;
    struct server_spec spec = plain();
    spec.security = &tls_server;
    start(&f, &spec);
    char why[RPC_WHY_CHARS];
    assert_true(client_refused(&f.server, NULL, why) < 0);
    server_expect_log(&f.server, "plain client on a TLS port", 1);
    finish(&f, 1);
}

static void test_tls_client_on_a_plain_port(void **state)
{
    (void)state;
    struct fixture f;
    start_plain(&f);
    char why[RPC_WHY_CHARS];
    struct client_spec tls = {.security = &tls_client};
    assert_int_equal(client_refused(&f.server, &tls, why), -EPROTO);
    assert_non_null(strstr(why, "does not speak TLS"));
    server_expect_log(&f.server, "a TLS client on a plain port", 1);
    finish(&f, 1);
}

static void test_silent_client_on_a_tls_port(void **state)
{
    (void)state;
    struct fixture f;
    struct server_spec spec = plain();
    spec.security = &tls_server;
    start(&f, &spec);
    int fd = raw_connect(&f.server);
    expect_closed(&f, fd, "no complete hello within 0.4 s");
}

/* ---- frames ---- */

static void test_truncated_frame(void **state)
{
    (void)state;
    struct fixture f;
    start_plain(&f);
    int fd = raw_open(&f.server, NULL);
    uint8_t bytes[RPC_FRAME_HEADER_MAX + 10] = {0};
    struct rpc_frame call = {.kind = RPC_FRAME_CALL, .len = 100, .method = METHOD_ECHO};
    raw_send(fd, bytes, rpc_frame_encode(&call, bytes) + 10);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    expect_closed(&f, fd, "the peer vanished: its end was closed without a goodbye");
}

static void test_more_calls_than_allowed(void **state)
{
    (void)state;
    struct fixture f;
    start_plain(&f);
    int fd = raw_open(&f.server, NULL);
    for (uint32_t id = 0; id <= MAX_CALLS; id++) {
        struct rpc_frame call = {.kind = RPC_FRAME_CALL, .id = id, .method = METHOD_HOLD};
        raw_send_frame(fd, &call, NULL);
    }
    expect_closed(&f, fd, "more than 16 calls in flight");
}

/* ---- clients that take nothing ---- */

static void expect_bounded(const struct server *s, uint64_t before)
{
    uint64_t peak = server_rss_peak(s);
    if (memory_is_measurable() && peak - before > MEMORY_SLACK)
        fail_msg("the server grew by %llu KiB", (unsigned long long)(peak - before) >> 10);
}

static void ask_for_blob(int fd, uint32_t id)
{
    uint8_t bytes[RPC_FRAME_HEADER_MAX + 4];
    struct rpc_frame call = {.kind = RPC_FRAME_CALL, .len = 4, .id = id, .method = METHOD_BLOB};
    size_t len = rpc_frame_encode(&call, bytes);
    wire_store32(bytes + len, BLOB);
    (void)raw_try_send(fd, bytes, len + 4);
}

static void test_client_that_never_reads(void **state)
{
    (void)state;
    struct fixture f;
    struct server_spec spec = plain();
    spec.config.max_calls = 0;
    start(&f, &spec);
    /* A window so large that only the server's own limits hold. */
    int fd = raw_open(&f.server, &(struct rpc_config){.window_bytes = RPC_WINDOW_MAX});
    uint64_t before = server_rss(&f.server);
    for (uint32_t i = 0; i < 4000; i++) { /* a thousand MiB of answers */
        ask_for_blob(fd, i);
        if (i % 500 == 0)
            client_works(f.healthy);
    }
    server_expect_log(&f.server, "dropped: it reads nothing of what it asked for", 1);
    expect_bounded(&f.server, before);
    close(fd);
    finish(&f, 1);
}

/* It reads, but says that it still holds everything: its answers wait, and then its calls do. */
static void test_client_that_returns_no_credit(void **state)
{
    (void)state;
    struct fixture f;
    struct server_spec spec = plain();
    spec.config.max_calls = 0;
    start(&f, &spec);
    int fd = raw_open(&f.server, &(struct rpc_config){.window_bytes = RPC_WINDOW_MIN});
    uint64_t before = server_rss(&f.server);
    char scrap[4096];
    for (uint32_t i = 0; i < 4000; i++) {
        uint8_t bytes[RPC_FRAME_HEADER_MAX + 4];
        struct rpc_frame call = {.kind = RPC_FRAME_CALL, .len = 4, .id = i, .method = METHOD_BLOB};
        size_t len = rpc_frame_encode(&call, bytes);
        wire_store32(bytes + len, RPC_WINDOW_MIN - RPC_MESSAGE_COST);
        (void)raw_try_send(fd, bytes, len + 4);
        while (recv(fd, scrap, sizeof scrap, MSG_DONTWAIT) > 0)
            ;
        if (i % 500 == 0)
            client_works(f.healthy);
    }
    client_works(f.healthy);
    expect_bounded(&f.server, before);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    expect_closed(&f, fd, "the peer vanished");
}

/* All that was asked for comes.  False when the server closes before.  *slowest: of the reads. */
static bool reads_blobs(int fd, uint32_t count, uint64_t *slowest)
{
    static uint8_t scrap[BLOB];
    uint64_t got = 0, before = now_ms();
    ssize_t n = 1;
    for (*slowest = 0; n > 0 && got < (uint64_t)count * BLOB; before = now_ms()) {
        assert_true(poll_fd(fd, POLLIN, HANG_MS));
        n = recv(fd, scrap, sizeof scrap, 0);
        got += n > 0 ? (uint64_t)n : 0;
        if (now_ms() - before > *slowest)
            *slowest = now_ms() - before;
    }
    return n > 0;
}

/* Until the server can write no more.  Since when. */
static uint64_t until_full(int fd, struct rpc_client *healthy)
{
    int waits = 0, before = -1;
    uint64_t since = 0;
    for (int same = 0; same < 4; same++) {
        client_works(healthy);
        poll(NULL, 0, 10);
        assert_int_equal(ioctl(fd, FIONREAD, &waits), 0);
        if (waits != before) {
            same = 0;
            since = now_ms();
        }
        before = waits;
    }
    return since;
}

/* Neither has run for longer than a client may read nothing.  A test that was itself late proves
 * nothing, and is done again. */
static void test_server_that_stood_still_blames_nobody(void **state)
{
    (void)state;
    enum { BLOBS = 256, LATE_MS = STALLED_MS / 4 };
    bool has_read, late;
    uint64_t slowest;
    do {
        struct fixture f;
        struct server_spec spec = plain();
        spec.config.max_calls = 0;
        start(&f, &spec);
        int fd = raw_open(&f.server, &(struct rpc_config){.window_bytes = RPC_WINDOW_MAX});
        for (uint32_t i = 0; i < BLOBS; i++)
            ask_for_blob(fd, i);
        uint64_t filled = until_full(fd, f.healthy);
        assert_int_equal(kill(f.server.pid, SIGSTOP), 0);
        late = now_ms() - filled > LATE_MS;
        poll(NULL, 0, STALLED_MS * 3 / 2);
        uint64_t woke = now_ms();
        assert_int_equal(kill(f.server.pid, SIGCONT), 0);
        poll(NULL, 0, LATE_MS / 2); /* for the server to look, and to find nothing read */
        late = late || now_ms() - woke > LATE_MS;
        has_read = reads_blobs(fd, BLOBS, &slowest);
        late = late || slowest > LATE_MS;
        close(fd);
        server_expect_warned(&f.server, 1); /* it vanishes, or was dropped */
        finish(&f, 1);
    } while (!has_read && late);
    assert_true(has_read);
}

static void test_ping_flood_without_reading(void **state)
{
    (void)state;
    struct fixture f;
    start_plain(&f);
    int fd = raw_open(&f.server, NULL);
    uint64_t before = server_rss(&f.server);
    uint8_t pings[11 * 512];
    struct rpc_frame ping = {.kind = RPC_FRAME_PING, .value = UINT64_MAX};
    for (int i = 0; i < 512; i++)
        assert_int_equal(rpc_frame_encode(&ping, pings + 11 * (size_t)i), 11);
    bool dropped = false;
    for (uint64_t end = now_ms() + HANG_MS; !dropped && now_ms() < end;) {
        client_works(f.healthy);
        while (poll_fd(fd, POLLOUT, 0) &&
               send(fd, pings, sizeof pings, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof pings)
            ;
        dropped = poll_fd(f.server.log_fd, POLLIN, 0);
    }
    assert_true(dropped);
    server_expect_log(&f.server, "dropped: it reads nothing of what it asked for", 1);
    expect_bounded(&f.server, before);
    close(fd);
    finish(&f, 1);
}

/* ---- the whole server ---- */

static void test_descriptors_run_out(void **state)
{
    (void)state;
    struct fixture f;
    struct server_spec spec = plain();
    spec.config.handshake_ns = HANG_MS * HW_MS;
    spec.descriptors_max = 24;
    start(&f, &spec);
    int fds[32];
    for (int i = 0; i < 32; i++)
        fds[i] = raw_connect(&f.server);
    server_expect_log(&f.server, "a caller was turned away: Too many open files", 1);
    uint64_t cpu = server_cpu_ns(&f.server), wall = hw_now_ns();
    for (uint64_t end = now_ms() + 500; now_ms() < end;)
        assert_false(poll_fd(fds[31], POLLIN, 50)); /* in the queue, not accepted */
    /* Spinning would take all of a core; a try every 100 ms takes next to nothing. */
    assert_true(server_cpu_ns(&f.server) - cpu < (hw_now_ns() - wall) / 2);
    client_works(f.healthy);
    for (int i = 0; i < 32; i++)
        close(fds[i]);
    struct rpc_client *late = client_open(&f.server, NULL);
    client_works(late);
    rpc_client_destroy(late);
    server_expect_warned(&f.server, 32 + 1); /* vanished, or reset */
    client_works(f.healthy);
    rpc_client_destroy(f.healthy);
    server_stop(&f.server, 32 + 1); /* the shortage is one line, however often it was met */
}

/* The socket beside a shared-memory region carries the offer and nothing else. */
static void test_bytes_beside_shared_memory(void **state)
{
    (void)state;
    struct fixture f;
    char address[RPC_PEER_NAME_CHARS];
    snprintf(address, sizeof address, "shm:%s/hostile", folder);
    struct server_spec spec = plain();
    spec.listen = address;
    spec.config.handshake_ns = HANG_MS * HW_MS;
    start(&f, &spec);
    int fd = raw_connect(&f.server);
    raw_send(fd, "x", 1);
    expect_closed(&f, fd, "vanished in the handshake");
}

static int set_up(void **state)
{
    (void)state;
    char why[RPC_WHY_CHARS], fingerprint[2 * RPC_FINGERPRINT_BYTES + 1];
    char certificate[96], key[96], keys[80];
    make_folder(folder);
    snprintf(keys, sizeof keys, "%s", folder);
    if (rpc_keygen(keys, NULL, 0, 1, fingerprint, why))
        return -1;
    snprintf(certificate, sizeof certificate, "%s/server.crt", keys);
    snprintf(key, sizeof key, "%s/server.key", keys);
    if (rpc_security_load(&tls_server,
                          &(struct rpc_security_files){.certificate = certificate, .key = key},
                          true, why))
        return -1;
    return rpc_security_load(&tls_client, &(struct rpc_security_files){.fingerprint = fingerprint},
                             false, why);
}

static int tear_down(void **state)
{
    (void)state;
    rpc_security_fini(&tls_server);
    rpc_security_fini(&tls_client);
    rm_folder(folder);
    return 0;
}

int main(void)
{
    setenv("VENUS_LOG_LEVEL", "WARN", 1);
    const struct CMUnitTest tests[] = {
        {"wrong_magic", test_words, NULL, NULL, &magic},
        {"silent_client", test_words, NULL, NULL, &silence},
        {"hello_past_the_limit", test_words, NULL, NULL, &long_hello},
        {"unknown_handshake_message", test_words, NULL, NULL, &unknown_hello},
        {"unknown_frame_kind", test_words, NULL, NULL, &unknown_kind},
        {"frame_past_the_limit", test_words, NULL, NULL, &long_frame},
        {"message_past_its_window", test_words, NULL, NULL, &past_window},
        {"credit_fraud", test_words, NULL, NULL, &credit},
        {"reply_to_no_call", test_words, NULL, NULL, &reply},
        {"push_from_a_client", test_words, NULL, NULL, &push},
        cmocka_unit_test(test_http_request_is_answered_in_http),
        cmocka_unit_test(test_wrong_version_names_both),
        cmocka_unit_test(test_hello_with_limits_out_of_range),
        cmocka_unit_test(test_refusal_with_a_code_of_no_end),
        cmocka_unit_test(test_byte_at_a_time),
        cmocka_unit_test(test_bytes_one_by_one_in_time),
        cmocka_unit_test(test_hundred_silent_connections_keep_nobody_out),
        cmocka_unit_test(test_refused_at_the_limit_of_clients),
        cmocka_unit_test(test_wrong_token),
        cmocka_unit_test(test_no_token),
        cmocka_unit_test(test_replayed_session),
        cmocka_unit_test(test_plain_client_on_a_tls_port),
        cmocka_unit_test(test_tls_client_on_a_plain_port),
        cmocka_unit_test(test_silent_client_on_a_tls_port),
        cmocka_unit_test(test_truncated_frame),
        cmocka_unit_test(test_more_calls_than_allowed),
        cmocka_unit_test(test_client_that_never_reads),
        cmocka_unit_test(test_server_that_stood_still_blames_nobody),
        cmocka_unit_test(test_client_that_returns_no_credit),
        cmocka_unit_test(test_ping_flood_without_reading),
        cmocka_unit_test(test_descriptors_run_out),
        cmocka_unit_test(test_bytes_beside_shared_memory),
    };
    return cmocka_run_group_tests_name("rpc-hostile", tests, set_up, tear_down);
}
