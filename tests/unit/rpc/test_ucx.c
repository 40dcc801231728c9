/* The UCX transport, over UCX's tcp and over its posix shared memory.
 *
 * dial returns only when the other side accepts, so pairs are made with a dialling thread. */
#include "unit.h"

#include "base/clock.h"
#include "base/log.h"
#include "rpc/transport/ucx.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_NS (240 * HW_SEC) /* only ever reached by a failing test */
static const struct rpc_net_options patient = {.timeout_ns = LONG_NS},
                                    hasty = {.timeout_ns = 50 * HW_MS};

enum { MIB = 1 << 20, UNREAD_MAX = 64 * MIB };

struct pair {
    struct rpc_listener *listener;
    struct rpc_transport *client, *server;
    atomic_bool dialled;
};

/* ---- helpers ---- */

static struct rpc_addr loopback(uint16_t port)
{
    struct rpc_addr addr = {.scheme = RPC_SCHEME_UCX, .host = "127.0.0.1", .port = port};
    return addr;
}

static uint16_t port_of(const struct rpc_listener *l)
{
    return (uint16_t)atoi(strrchr(l->address, ':') + 1);
}

static struct rpc_listener *listen_at(const char *host)
{
    char why[RPC_WHY_CHARS] = "";
    struct rpc_addr addr = loopback(0);
    struct rpc_listener *l = NULL;
    snprintf(addr.host, sizeof(addr.host), "%s", host);
    int rc = rpc_ucx_listen(&addr, NULL, &l, why);
    if (rc)
        fail_msg("listen: %d %s", rc, why);
    return l;
}

static struct rpc_transport *accept_one(struct rpc_listener *l)
{
    struct rpc_transport *t = NULL;
    int rc;
    while ((rc = l->ops->accept(l, &t)) == -EAGAIN) {
        struct pollfd pfd = {.fd = l->ops->poll_fd(l), .events = POLLIN};
        assert_int_equal(poll(&pfd, 1, (int)(LONG_NS / HW_MS)), 1);
    }
    assert_int_equal(rc, 0);
    return t;
}

static void *dial_thread(void *arg)
{
    struct pair *p = arg;
    char why[RPC_WHY_CHARS];
    struct rpc_addr addr = loopback(port_of(p->listener));
    if (rpc_ucx_dial(&addr, &patient, &p->client, why))
        p->client = NULL;
    atomic_store(&p->dialled, true);
    return NULL;
}

static void connect_pair(struct pair *p)
{
    pthread_t thread;
    atomic_store(&p->dialled, false);
    assert_int_equal(pthread_create(&thread, NULL, dial_thread, p), 0);
    p->server = accept_one(p->listener);
    while (!atomic_load(&p->dialled)) /* the set-up may go on after accept */
        p->server->ops->wait(p->server, RPC_WAIT_RECV, HW_MS);
    pthread_join(thread, NULL);
    assert_non_null(p->client);
}

static void pair_open(struct pair *p)
{
    memset(p, 0, sizeof(*p));
    p->listener = listen_at("127.0.0.1");
    connect_pair(p);
}

static void *destroy_thread(void *transport)
{
    rpc_transport_destroy(transport);
    return NULL;
}

/* Both ends at once, as two processes would; one alone would wait for the other to answer. */
static void disconnect_pair(struct pair *p)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, destroy_thread, p->client), 0);
    rpc_transport_destroy(p->server);
    pthread_join(thread, NULL);
}

static void pair_close(struct pair *p)
{
    disconnect_pair(p);
    rpc_listener_destroy(p->listener);
}

static uint8_t pattern(uint64_t at, unsigned seed)
{
    return (uint8_t)((at * 31 + (at >> 8) + (at >> 16) * 7 + seed) & 0xff);
}

static ssize_t send_bytes(struct rpc_transport *t, const void *data, size_t len)
{
    struct iovec iov = {.iov_base = (void *)data, .iov_len = len};
    return t->ops->send(t, &iov, 1);
}

static ssize_t recv_bytes(struct rpc_transport *t, void *data, size_t len, uint64_t timeout_ns)
{
    struct iovec iov = {.iov_base = data, .iov_len = len};
    return t->ops->recv(t, &iov, 1, timeout_ns);
}

/* One direction of a stream whose bytes follow from their place. */
struct flow {
    struct rpc_transport *t;
    uint64_t done, total;
    unsigned seed;
    int error;   /* the first but -EAGAIN */
    int corrupt; /* the content was wrong */
    atomic_bool ended;
    struct flow *partner; /* the receiver at the other end, if that runs too */
};

static bool flow_send(struct flow *f)
{
    uint8_t buf[50021]; /* never a multiple of anything UCX uses */
    size_t len = f->total - f->done < sizeof(buf) ? (size_t)(f->total - f->done) : sizeof(buf);
    for (size_t i = 0; i < len; i++)
        buf[i] = pattern(f->done + i, f->seed);
    ssize_t n = send_bytes(f->t, buf, len);
    memset(buf, 0xee, sizeof(buf)); /* the transport must hold no reference */
    if (n > 0)
        f->done += (uint64_t)n;
    else if (n != -EAGAIN)
        f->error = (int)n;
    return n > 0;
}

static bool flow_recv(struct flow *f, uint64_t timeout_ns)
{
    uint8_t buf[70001];
    ssize_t n = recv_bytes(f->t, buf, sizeof(buf), timeout_ns);
    for (ssize_t i = 0; i < n; i++)
        f->corrupt |= buf[i] != pattern(f->done + (uint64_t)i, f->seed);
    if (n > 0)
        f->done += (uint64_t)n;
    else if (n != -EAGAIN)
        f->error = (int)n;
    return n > 0;
}

static void *send_all_thread(void *arg)
{
    struct flow *f = arg;
    while (f->done < f->total && !f->error)
        flow_send(f);
    return NULL;
}

/* What this end has sent moves on only while somebody is in a call, hence the second loop. */
static void *recv_all_thread(void *arg)
{
    struct flow *f = arg;
    while (f->done < f->total && !f->error)
        flow_recv(f, LONG_NS);
    atomic_store(&f->ended, true);
    while (f->partner && !atomic_load(&f->partner->ended))
        f->t->ops->wait(f->t, RPC_WAIT_RECV, HW_MS);
    return NULL;
}

/* ---- bytes ---- */

static void small_messages_go_both_ways(void **state)
{
    (void)state;
    struct pair p;
    char buf[16] = "";
    pair_open(&p);
    assert_true(p.client->local && p.server->local);
    assert_int_equal(send_bytes(p.client, "ping", 4), 4);
    assert_int_equal(recv_bytes(p.server, buf, sizeof(buf), LONG_NS), 4);
    assert_memory_equal(buf, "ping", 4);
    assert_int_equal(send_bytes(p.server, "pong!", 5), 5);
    assert_int_equal(recv_bytes(p.client, buf, sizeof(buf), LONG_NS), 5);
    assert_memory_equal(buf, "pong!", 5);
    assert_int_equal(recv_bytes(p.client, buf, sizeof(buf), 0), -EAGAIN);
    pair_close(&p);
}

static void large_streams_cross_unharmed(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    struct flow up_out = {.t = p.client, .total = 12 * MIB + 7, .seed = 1};
    struct flow up_in = {.t = p.server, .total = 12 * MIB + 7, .seed = 1};
    struct flow down_out = {.t = p.server, .total = 12 * MIB + 7, .seed = 2};
    struct flow down_in = {.t = p.client, .total = 12 * MIB + 7, .seed = 2};
    while (up_in.done < up_in.total || down_in.done < down_in.total) {
        if (up_out.done < up_out.total)
            flow_send(&up_out);
        if (down_out.done < down_out.total)
            flow_send(&down_out);
        flow_recv(&up_in, 0);
        flow_recv(&down_in, 0);
        assert_int_equal(up_out.error | up_in.error | down_out.error | down_in.error, 0);
    }
    assert_false(up_in.corrupt || down_in.corrupt);
    pair_close(&p);
}

static void segments_of_one_byte_keep_their_order(void **state)
{
    (void)state;
    struct pair p;
    uint8_t out[RPC_IOV_MAX], in[RPC_IOV_MAX];
    struct iovec out_iov[RPC_IOV_MAX], in_iov[RPC_IOV_MAX];
    pair_open(&p);
    for (int i = 0; i < RPC_IOV_MAX; i++) {
        out[i] = (uint8_t)(i + 1);
        out_iov[i] = (struct iovec){.iov_base = &out[i], .iov_len = 1};
        in_iov[i] = (struct iovec){.iov_base = &in[i], .iov_len = 1};
    }
    for (int round = 0; round < 100; round++) {
        memset(in, 0, sizeof(in));
        assert_int_equal(p.client->ops->send(p.client, out_iov, RPC_IOV_MAX), RPC_IOV_MAX);
        int have = 0;
        while (have < RPC_IOV_MAX) {
            ssize_t n = p.server->ops->recv(p.server, in_iov + have, RPC_IOV_MAX - have, LONG_NS);
            assert_true(n > 0);
            have += (int)n;
        }
        assert_memory_equal(in, out, sizeof(in));
    }
    pair_close(&p);
}

static void one_thread_sends_while_another_receives(void **state)
{
    (void)state;
    struct pair p;
    pthread_t threads[3];
    pair_open(&p);
    struct flow up_out = {.t = p.client, .total = 8 * MIB, .seed = 3};
    struct flow up_in = {.t = p.server, .total = 8 * MIB, .seed = 3};
    struct flow down_out = {.t = p.server, .total = 8 * MIB, .seed = 4};
    struct flow down_in = {.t = p.client, .total = 8 * MIB, .seed = 4, .partner = &up_in};
    up_in.partner = &down_in;
    assert_int_equal(pthread_create(&threads[0], NULL, send_all_thread, &up_out), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, send_all_thread, &down_out), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, recv_all_thread, &up_in), 0);
    recv_all_thread(&down_in);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(up_out.error | up_in.error | down_out.error | down_in.error, 0);
    assert_false(up_in.corrupt || down_in.corrupt);
    pair_close(&p);
}

/* ---- limits and waiting ---- */

static void send_says_again_when_the_peer_does_not_read(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    struct flow out = {.t = p.client, .total = UNREAD_MAX, .seed = 5};
    while (flow_send(&out))
        assert_true(out.done < UNREAD_MAX);
    assert_int_equal(out.error, 0);
    assert_int_equal(p.client->ops->wait(p.client, RPC_WAIT_SEND, HW_MS), -ETIMEDOUT);

    struct flow in = {.t = p.server, .total = out.done, .seed = 5};
    while (in.done < in.total && !in.error) {
        flow_recv(&in, 0);
        p.client->ops->wait(p.client, RPC_WAIT_SEND, 0);
    }
    assert_int_equal(in.error, 0);
    assert_false(in.corrupt);
    assert_int_equal(p.client->ops->wait(p.client, RPC_WAIT_SEND, LONG_NS), 0);
    pair_close(&p);
}

static void two_that_only_send_store_a_bounded_amount(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    struct flow up = {.t = p.client, .total = UNREAD_MAX, .seed = 6};
    struct flow down = {.t = p.server, .total = UNREAD_MAX, .seed = 7};
    int idle = 0;
    while (idle < 1000) {
        bool moved = flow_send(&up);
        moved = flow_send(&down) || moved;
        idle = moved ? 0 : idle + 1;
        assert_true(up.done < UNREAD_MAX && down.done < UNREAD_MAX);
    }
    assert_int_equal(up.error | down.error, 0);
    pair_close(&p);
}

static void *send_one_thread(void *transport)
{
    return send_bytes(transport, "x", 1) == 1 ? transport : NULL;
}

static void armed_descriptor_wakes_when_bytes_come(void **state)
{
    (void)state;
    struct pair p;
    char byte;
    pair_open(&p);
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        void *sent = NULL;
        while (p.server->ops->arm(p.server, RPC_WAIT_RECV))
            assert_int_equal(recv_bytes(p.server, &byte, 1, 0), -EAGAIN);
        struct pollfd pfd = {.fd = p.server->ops->poll_fd(p.server), .events = POLLIN};
        assert_int_equal(pthread_create(&thread, NULL, send_one_thread, p.client), 0);
        while (recv_bytes(p.server, &byte, 1, 0) == -EAGAIN) {
            if (!p.server->ops->arm(p.server, RPC_WAIT_RECV))
                assert_int_equal(poll(&pfd, 1, (int)(LONG_NS / HW_MS)), 1);
        }
        pthread_join(thread, &sent);
        assert_non_null(sent);
    }
    pair_close(&p);
}

static void wait_ends_for_bytes_and_for_time(void **state)
{
    (void)state;
    struct pair p;
    pthread_t thread;
    char byte;
    pair_open(&p);
    assert_int_equal(p.server->ops->wait(p.server, RPC_WAIT_RECV, HW_MS), -ETIMEDOUT);
    assert_int_equal(p.server->ops->wait(p.server, RPC_WAIT_SEND, LONG_NS), 0);
    assert_int_equal(pthread_create(&thread, NULL, send_one_thread, p.client), 0);
    assert_int_equal(p.server->ops->wait(p.server, RPC_WAIT_RECV, LONG_NS), 0);
    assert_int_equal(recv_bytes(p.server, &byte, 1, 0), 1);
    pthread_join(thread, NULL);
    pair_close(&p);
}

/* ---- ends ---- */

static void *send_all_and_destroy_thread(void *arg)
{
    struct flow *f = arg;
    send_all_thread(f);
    rpc_transport_destroy(f->t);
    return NULL;
}

static void orderly_close_delivers_everything_first(void **state)
{
    (void)state;
    struct pair p;
    pthread_t thread;
    pair_open(&p);
    struct flow out = {.t = p.client, .total = 3 * MIB + 1, .seed = 8};
    struct flow in = {.t = p.server, .total = UINT64_MAX, .seed = 8};
    assert_int_equal(pthread_create(&thread, NULL, send_all_and_destroy_thread, &out), 0);
    recv_all_thread(&in);
    pthread_join(thread, NULL);
    assert_int_equal(out.error, 0);
    assert_int_equal(in.done, out.total);
    assert_false(in.corrupt);
    assert_int_equal(in.error, -ESHUTDOWN);
    assert_int_equal(send_bytes(p.server, "x", 1), -EPIPE);
    assert_int_equal(p.server->ops->wait(p.server, RPC_WAIT_RECV, LONG_NS), 0);
    assert_int_equal(p.server->ops->wait(p.server, RPC_WAIT_SEND, LONG_NS), 0);
    assert_int_equal(p.server->ops->arm(p.server, RPC_WAIT_RECV), 1);
    rpc_transport_destroy(p.server);
    rpc_listener_destroy(p.listener);
}

static void stream_cut_by_close_never_looks_whole(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    struct flow out = {.t = p.client, .total = UNREAD_MAX, .seed = 9};
    struct flow in = {.t = p.server, .total = UINT64_MAX, .seed = 9};
    while (flow_send(&out))
        continue;
    rpc_transport_destroy(p.client); /* nobody reads while it lingers */
    recv_all_thread(&in);
    assert_int_equal(in.error, in.done == out.done ? -ESHUTDOWN : -ECONNRESET);
    assert_false(in.corrupt);
    rpc_transport_destroy(p.server);
    rpc_listener_destroy(p.listener);
}

static pid_t spawn_peer(uint16_t port)
{
    extern char **environ;
    char name[] = "test-ucx", role[] = "peer", text[8];
    char *argv[] = {name, role, text, NULL};
    pid_t pid;
    snprintf(text, sizeof(text), "%u", port);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    return pid;
}

/* The other process: says one byte and waits to be killed. */
static int peer_main(uint16_t port)
{
    struct rpc_addr addr = loopback(port);
    struct rpc_transport *t;
    char why[RPC_WHY_CHARS];
    if (rpc_ucx_dial(&addr, &patient, &t, why) || send_bytes(t, "x", 1) != 1)
        return 1;
    char byte;
    return recv_bytes(t, &byte, 1, 10 * LONG_NS) == 1 ? 0 : 1;
}

static void killed_peer_is_an_error(void **state)
{
    (void)state;
    char byte;
    ssize_t n;
    struct rpc_listener *l = listen_at("127.0.0.1");
    pid_t pid = spawn_peer(port_of(l));
    struct rpc_transport *t = accept_one(l);
    assert_int_equal(recv_bytes(t, &byte, 1, LONG_NS), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    uint64_t start = hw_now_ns();
    while ((n = recv_bytes(t, &byte, 1, LONG_NS)) == -EAGAIN && hw_now_ns() - start < LONG_NS)
        continue;
    assert_int_equal(n, -ECONNRESET);
    assert_int_equal(send_bytes(t, "x", 1), -ECONNRESET);
    rpc_transport_destroy(t);
    rpc_listener_destroy(l);
}

static void connections_leave_no_descriptor_behind(void **state)
{
    (void)state;
    struct pair p = {.listener = listen_at("127.0.0.1")};
    int before = 0;
    for (int i = 0; i < 20; i++) {
        connect_pair(&p);
        disconnect_pair(&p);
        if (i == 2)
            before = open_descriptors();
    }
    assert_true(open_descriptors() <= before);
    rpc_listener_destroy(p.listener);
}

static void accepted_connection_outlives_its_listener(void **state)
{
    (void)state;
    struct pair p;
    char byte;
    pair_open(&p);
    rpc_listener_destroy(p.listener);
    p.listener = NULL;
    assert_int_equal(send_bytes(p.client, "x", 1), 1);
    assert_int_equal(recv_bytes(p.server, &byte, 1, LONG_NS), 1);
    pair_close(&p);
}

/* ---- dial and listen ---- */

static void dial_says_that_nobody_listens(void **state)
{
    (void)state;
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sa);
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound and not listening: the port stays ours */
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);

    struct rpc_addr addr = loopback(ntohs(sa.sin_port));
    struct rpc_transport *t = NULL;
    char why[RPC_WHY_CHARS] = "";
    assert_int_equal(rpc_ucx_dial(&addr, &patient, &t, why), -ECONNREFUSED);
    assert_null(t);
    assert_non_null(strstr(why, "127.0.0.1"));
    close(fd);
}

static void dial_gives_up_when_nobody_accepts(void **state)
{
    (void)state;
    struct rpc_listener *l = listen_at("127.0.0.1");
    struct rpc_addr addr = loopback(port_of(l));
    struct rpc_transport *t = NULL;
    char why[RPC_WHY_CHARS] = "";
    assert_int_equal(rpc_ucx_dial(&addr, &hasty, &t, why), -ETIMEDOUT);
    assert_null(t);
    assert_string_not_equal(why, "");
    rpc_listener_destroy(l);
}

static void ipv6_is_refused(void **state)
{
    (void)state;
    struct rpc_addr addr = {.scheme = RPC_SCHEME_UCX, .host = "::1"};
    struct rpc_listener *l = NULL;
    struct rpc_transport *t = NULL;
    char why[RPC_WHY_CHARS] = "";
    assert_int_equal(rpc_ucx_listen(&addr, NULL, &l, why), -EADDRNOTAVAIL);
    assert_non_null(strstr(why, "IPv4"));
    assert_int_equal(rpc_ucx_dial(&addr, &patient, &t, why), -EADDRNOTAVAIL);
}

static void taken_port_is_refused(void **state)
{
    (void)state;
    struct rpc_listener *first = listen_at("127.0.0.1"), *second = NULL;
    struct rpc_addr addr = loopback(port_of(first));
    char why[RPC_WHY_CHARS] = "";
    assert_int_equal(rpc_ucx_listen(&addr, NULL, &second, why), -EADDRINUSE);
    assert_null(second);
    assert_string_not_equal(why, "");
    rpc_listener_destroy(first);
}

/* Every TCP socket of this process that listens, as /proc/net/tcp tells addresses: in hex. */
static int listening_beyond_loopback(void)
{
    char line[512], link[64], target[64];
    int count = 0;
    FILE *table = fopen("/proc/net/tcp", "r");
    assert_non_null(table);
    while (fgets(line, sizeof(line), table)) {
        unsigned address, port, state;
        unsigned long inode;
        if (sscanf(line, " %*d: %x:%x %*x:%*x %x %*s %*s %*s %*s %*s %lu", &address, &port, &state,
                   &inode) != 4 ||
            state != 0x0a || ntohl(address) >> 24 == 127)
            continue;
        snprintf(target, sizeof(target), "socket:[%lu]", inode);
        for (int fd = 0; fd < 256; fd++) {
            char name[64] = "";
            snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
            count += readlink(link, name, sizeof(name) - 1) > 0 && !strcmp(name, target);
        }
    }
    fclose(table);
    return count;
}

static void loopback_listener_opens_no_other_address(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    assert_int_equal(listening_beyond_loopback(), 0);
    pair_close(&p);
}

static void count_trust_lines(void *user, const char *line, size_t len)
{
    if (memmem(line, len, "trusted networks", strlen("trusted networks")))
        ++*(int *)user;
}

static void open_address_warns_once(void **state)
{
    (void)state;
    int lines = 0;
    hw_log_set_sink(count_trust_lines, &lines);
    rpc_listener_destroy(listen_at("127.0.0.1"));
    assert_int_equal(lines, 0);
    rpc_listener_destroy(listen_at(""));
    rpc_listener_destroy(listen_at("0.0.0.0"));
    hw_log_set_sink(NULL, NULL);
    assert_int_equal(lines, 1);
}

static void signals_stay_the_programs_own(void **state)
{
    (void)state;
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGHUP};
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        struct sigaction now;
        Dl_info info;
        assert_int_equal(sigaction(signals[i], NULL, &now), 0);
        if (now.sa_handler != SIG_DFL && dladdr((void *)now.sa_handler, &info))
            assert_null(strstr(info.dli_fname, "libucs"));
    }
}

static int use_tcp(void **state)
{
    (void)state;
    return setenv("UCX_TLS", "tcp", 1);
}

static int use_posix(void **state)
{
    (void)state;
    return setenv("UCX_TLS", "posix,tcp", 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest common[] = {
        cmocka_unit_test(small_messages_go_both_ways),
        cmocka_unit_test(large_streams_cross_unharmed),
        cmocka_unit_test(segments_of_one_byte_keep_their_order),
        cmocka_unit_test(one_thread_sends_while_another_receives),
        cmocka_unit_test(send_says_again_when_the_peer_does_not_read),
        cmocka_unit_test(two_that_only_send_store_a_bounded_amount),
        cmocka_unit_test(armed_descriptor_wakes_when_bytes_come),
        cmocka_unit_test(wait_ends_for_bytes_and_for_time),
        cmocka_unit_test(orderly_close_delivers_everything_first),
        cmocka_unit_test(stream_cut_by_close_never_looks_whole),
        cmocka_unit_test(killed_peer_is_an_error),
        cmocka_unit_test(connections_leave_no_descriptor_behind),
        cmocka_unit_test(accepted_connection_outlives_its_listener),
        cmocka_unit_test(dial_says_that_nobody_listens),
        cmocka_unit_test(dial_gives_up_when_nobody_accepts),
    };
    const struct CMUnitTest once[] = {
        cmocka_unit_test(ipv6_is_refused),
        cmocka_unit_test(loopback_listener_opens_no_other_address),
        cmocka_unit_test(taken_port_is_refused),
        cmocka_unit_test(open_address_warns_once),
        cmocka_unit_test(signals_stay_the_programs_own),
    };
    if (argc == 3 && !strcmp(argv[1], "peer"))
        return peer_main((uint16_t)atoi(argv[2]));
    int failed = cmocka_run_group_tests_name("ucx over tcp", common, use_tcp, NULL);
    failed += cmocka_run_group_tests_name("ucx over posix", common, use_posix, NULL);
    failed += cmocka_run_group_tests_name("ucx", once, use_tcp, NULL);
    return failed ? 1 : 0;
}
