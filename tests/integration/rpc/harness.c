#include "harness.h"

#include "../../sanitized.h"
#include "base/clock.h"
#include "base/log.h"
#include "wire/le.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the server's process ---- */

enum { HELD_MAX = 64 };

struct held {
    struct rpc_ep *ep;
    struct rpc_msg *msg;
};

static struct {
    struct rpc_server *server;
    struct held held[HELD_MAX];
    int held_fd, closed_fd;
} child;

static void hold(struct rpc_ep *ep, struct rpc_msg *msg)
{
    for (int i = 0; i < HELD_MAX; i++) {
        if (child.held[i].msg)
            continue;
        child.held[i] = (struct held){ep, msg};
        if (write(child.held_fd, "h", 1) != 1)
            _exit(3);
        return;
    }
    (void)rpc_reply(ep, msg, -EBUSY, NULL);
    rpc_release(ep, msg);
}

static void answer_blob(struct rpc_ep *ep, struct rpc_msg *msg)
{
    size_t len = msg->len == 4 ? wire_load32(msg->data) : 0;
    uint8_t *blob = calloc(1, len ? len : 1);
    if (!blob)
        _exit(4);
    struct iovec iov = {blob, len};
    (void)rpc_reply(ep, msg, 0, &(struct rpc_send){.iov = &iov, .iov_count = 1});
    free(blob);
}

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    (void)user;
    if (msg->kind == RPC_CALL && msg->method == METHOD_HOLD) {
        hold(ep, msg);
        return;
    }
    struct iovec iov = {(void *)msg->data, msg->len};
    if (msg->kind == RPC_CALL && msg->method == METHOD_BLOB)
        answer_blob(ep, msg);
    else if (msg->kind == RPC_CALL)
        (void)rpc_reply(ep, msg, 0, &(struct rpc_send){.iov = &iov, .iov_count = 1});
    rpc_release(ep, msg);
}

static void on_closed(void *user, struct rpc_ep *ep, int status)
{
    (void)user;
    if (write(child.closed_fd, &status, sizeof status) != sizeof status)
        _exit(3);
    for (int i = 0; i < HELD_MAX; i++) {
        if (child.held[i].ep != ep)
            continue;
        rpc_release(ep, child.held[i].msg);
        child.held[i] = (struct held){0};
    }
}

static void on_term(int signal)
{
    (void)signal;
    rpc_server_stop(child.server);
}

/* Runs until SIGTERM; does not return.  The bound address goes to address_fd. */
static void child_main(const struct server_spec *spec, int address_fd)
{
    static const struct rpc_server_ops ops = {.message = on_message, .closed = on_closed};
    struct rpc_server_options options = {.ops = &ops,
                                         .config = spec->config,
                                         .stalled_ns = spec->stalled_ns,
                                         .max_clients = spec->max_clients};
    struct rpc_addr addr;
    char why[RPC_WHY_CHARS] = "";
    const char *bound = NULL;
    if (rpc_server_create(&options, &child.server) ||
        rpc_addr_parse(spec->listen ? spec->listen : "127.0.0.1:0", &addr, why) ||
        rpc_server_listen(child.server, &addr,
                          &(struct rpc_net_options){.security = spec->security}, &bound, why)) {
        fprintf(stderr, "server: %s\n", why);
        exit(2);
    }
    struct sigaction action = {.sa_handler = on_term};
    sigaction(SIGTERM, &action, NULL);
    if (spec->descriptors_max) {
        struct rlimit limit = {spec->descriptors_max, spec->descriptors_max};
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (write(address_fd, bound, strlen(bound)) < 0)
        exit(2);
    close(address_fd);
    rpc_server_run(child.server);
    rpc_server_destroy(child.server);
    _exit(0); /* without a leak checker's seconds: the unit tests look for leaks */
}

/* ---- the test's side of it ---- */

uint64_t now_ms(void)
{
    return hw_now_ns() / HW_MS;
}

bool poll_fd(int fd, short events, int ms)
{
    struct pollfd p = {.fd = fd, .events = events};
    uint64_t end = now_ms() + (uint64_t)ms;
    for (;;) {
        uint64_t now = now_ms();
        int n = poll(&p, 1, now < end ? (int)(end - now) : 0);
        if (n >= 0 || errno != EINTR)
            return n > 0;
    }
}

static void read_address(struct server *s, int fd)
{
    char text[RPC_PEER_NAME_CHARS] = "", why[RPC_WHY_CHARS];
    size_t len = 0;
    ssize_t n;
    assert_true(poll_fd(fd, POLLIN, HANG_MS));
    while ((n = read(fd, text + len, sizeof text - 1 - len)) > 0)
        len += (size_t)n;
    close(fd);
    if (len == 0)
        fail_msg("the server did not start");
    assert_int_equal(rpc_addr_parse(text, &s->addr, why), 0);
    memcpy(s->text, text, sizeof text);
}

void server_start(struct server *s, const struct server_spec *spec)
{
    int log[2], held[2], closed[2], address[2];
    *s = (struct server){0};
    assert_int_equal(pipe2(log, O_CLOEXEC), 0);
    assert_int_equal(pipe2(held, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(pipe2(closed, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(pipe2(address, O_CLOEXEC), 0);
    fflush(NULL);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(log[1], STDERR_FILENO);
        hw_log_reload();
        child.held_fd = held[1];
        child.closed_fd = closed[1];
        if (spec->own_network && unshare(CLONE_NEWNET))
            _exit(2);
        child_main(spec, address[1]);
    }
    close(log[1]);
    close(held[1]);
    close(closed[1]);
    close(address[1]);
    s->log_fd = log[0];
    s->held_fd = held[0];
    s->closed_fd = closed[0];
    s->log = malloc(LOG_BYTES_MAX);
    assert_non_null(s->log);
    s->log[0] = '\0';
    read_address(s, address[0]);
}

/* Reads what the log has; false at its end. */
static bool read_log(struct server *s)
{
    assert_true(s->log_len < LOG_BYTES_MAX - 1);
    ssize_t n = read(s->log_fd, s->log + s->log_len, LOG_BYTES_MAX - 1 - s->log_len);
    if (n > 0)
        s->log_len += (size_t)n;
    s->log[s->log_len] = '\0';
    return n > 0;
}

static unsigned count_lines(const char *log, const char *text)
{
    unsigned count = 0;
    for (const char *line = log, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        count += memmem(line, (size_t)(end + 1 - line), text, strlen(text)) != NULL;
    return count;
}

void server_expect_log(struct server *s, const char *text, unsigned times)
{
    uint64_t end = now_ms() + HANG_MS;
    while (count_lines(s->log, text) < times) {
        uint64_t now = now_ms();
        if (now >= end || !poll_fd(s->log_fd, POLLIN, (int)(end - now)) || !read_log(s))
            fail_msg("no \"%s\" in the server's log:\n%s", text, s->log);
    }
}

static unsigned count_warned(const char *log)
{
    static const char summary[] = "hawser: warn: net: ";
    unsigned warned = count_lines(log, ": warn: ");
    for (const char *at = log; (at = strstr(at, " more caller")) != NULL; at++) {
        const char *digits = at;
        while (digits > log && digits[-1] >= '0' && digits[-1] <= '9')
            digits--;
        assert_memory_equal(digits - strlen(summary), summary, strlen(summary));
        warned += (unsigned)strtoul(digits, NULL, 10) - 1;
    }
    return warned;
}

void server_expect_warned(struct server *s, unsigned times)
{
    uint64_t end = now_ms() + HANG_MS;
    while (count_warned(s->log) < times) {
        uint64_t now = now_ms();
        if (now >= end || !poll_fd(s->log_fd, POLLIN, (int)(end - now)) || !read_log(s))
            fail_msg("less than %u warnings in the server's log:\n%s", times, s->log);
    }
}

unsigned server_log_lines(const struct server *s)
{
    return count_lines(s->log, "\n");
}

static void free_server(struct server *s)
{
    close(s->log_fd);
    close(s->held_fd);
    close(s->closed_fd);
    free(s->log);
    *s = (struct server){0};
}

void server_stop(struct server *s, unsigned warnings)
{
    int status;
    assert_int_equal(waitpid(s->pid, &status, WNOHANG), 0);
    assert_int_equal(kill(s->pid, SIGTERM), 0);
    while (poll_fd(s->log_fd, POLLIN, HANG_MS) && read_log(s))
        ;
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    unsigned others = count_lines(s->log, "\n") - count_lines(s->log, ": warn: ");
    unsigned warned = count_warned(s->log);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || others || warned != warnings)
        fail_msg("status %#x, %u warnings, expected %u, %u other lines:\n%s", (unsigned)status,
                 warned, warnings, others, s->log);
    free_server(s);
}

void server_kill(struct server *s)
{
    int status;
    assert_int_equal(kill(s->pid, SIGKILL), 0);
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    free_server(s);
}

void server_wait_held(struct server *s)
{
    char byte;
    assert_true(poll_fd(s->held_fd, POLLIN, HANG_MS));
    assert_int_equal(read(s->held_fd, &byte, 1), 1);
}

int server_wait_closed(struct server *s)
{
    int status;
    assert_true(poll_fd(s->closed_fd, POLLIN, HANG_MS));
    assert_int_equal(read(s->closed_fd, &status, sizeof status), sizeof status);
    return status;
}

static uint64_t status_kb(const struct server *s, const char *key)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)s->pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    unsigned long long kb = 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            assert_int_equal(sscanf(line + strlen(key), ": %llu", &kb), 1);
    fclose(f);
    assert_true(kb > 0);
    return kb << 10;
}

uint64_t server_rss(const struct server *s)
{
    return status_kb(s, "VmRSS");
}

uint64_t server_rss_peak(const struct server *s)
{
    return status_kb(s, "VmHWM");
}

uint64_t server_cpu_ns(const struct server *s)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/schedstat", (int)s->pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    unsigned long long ns;
    assert_int_equal(fscanf(f, "%llu", &ns), 1);
    fclose(f);
    return ns;
}

unsigned server_descriptors(const struct server *s)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)s->pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    unsigned count = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

bool memory_is_measurable(void)
{
    return !SANITIZED;
}

/* ---- good clients ---- */

static int connect_client(const struct server *s, const struct client_spec *spec,
                          struct rpc_client **out, char why[RPC_WHY_CHARS])
{
    struct client_spec none = {0};
    if (!spec)
        spec = &none;
    struct rpc_net_options net = {.security = spec->security};
    struct rpc_client_options options = {.config = spec->config};
    return rpc_client_connect(&s->addr, &net, &options, out, why);
}

struct rpc_client *client_open(const struct server *s, const struct client_spec *spec)
{
    struct rpc_client *c;
    char why[RPC_WHY_CHARS] = "";
    int rc = connect_client(s, spec, &c, why);
    if (rc)
        fail_msg("cannot connect: %d, %s", rc, why);
    return c;
}

int client_refused(const struct server *s, const struct client_spec *spec, char why[RPC_WHY_CHARS])
{
    struct rpc_client *c = NULL;
    int rc = connect_client(s, spec, &c, why);
    assert_null(c);
    assert_true(rc < 0);
    return rc;
}

int client_call_u32(struct rpc_client *c, uint32_t method, uint32_t value, uint64_t timeout_ns)
{
    uint8_t bytes[4];
    wire_store32(bytes, value);
    struct iovec iov = {bytes, sizeof bytes};
    return rpc_client_call(
        c,
        &(struct rpc_send){.method = method, .iov = &iov, .iov_count = 1, .timeout_ns = timeout_ns},
        NULL);
}

int client_echo(struct rpc_client *c, uint64_t timeout_ns)
{
    return client_call_u32(c, METHOD_ECHO, 0x12345678, timeout_ns);
}

void client_works(struct rpc_client *c)
{
    for (int i = 0; i < 3; i++) {
        int rc = client_echo(c, HANG_MS * HW_MS);
        if (rc) {
            char why[RPC_WHY_CHARS];
            rpc_client_reason(c, why);
            fail_msg("a healthy client's call ended with %d: %s", rc, why);
        }
    }
}

/* ---- bad clients ---- */

int raw_connect(const struct server *s)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_un un;
    } addr = {0};
    socklen_t len = sizeof addr.in;
    if (s->addr.scheme == RPC_SCHEME_TCP) {
        addr.in.sin_family = AF_INET;
        addr.in.sin_port = htons(s->addr.port);
        assert_int_equal(inet_pton(AF_INET, s->addr.host, &addr.in.sin_addr), 1);
    } else {
        addr.un.sun_family = AF_UNIX;
        memcpy(addr.un.sun_path, s->addr.path, sizeof addr.un.sun_path);
        len = sizeof addr.un;
    }
    int fd = socket(addr.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, &addr.any, len), 0);
    return fd;
}

bool raw_try_send(int fd, const void *data, size_t len)
{
    const uint8_t *p = data;
    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

void raw_send(int fd, const void *data, size_t len)
{
    assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

void raw_send_frame(int fd, const struct rpc_frame *frame, const void *payload)
{
    uint8_t bytes[RPC_FRAME_HEADER_MAX + 256];
    size_t len = rpc_frame_encode(frame, bytes);
    assert_true(frame->len <= 256);
    if (frame->len > 0)
        memcpy(bytes + len, payload, frame->len);
    raw_send(fd, bytes, len + frame->len);
}

static void complete(struct rpc_config *config)
{
    if (config->window_bytes == 0)
        config->window_bytes = RPC_WINDOW_DEFAULT;
    if (config->max_calls == 0)
        config->max_calls = RPC_CALLS_DEFAULT;
    if (config->heartbeat_ns == 0)
        config->heartbeat_ns = HW_NEVER; /* else it would have to send pings */
}

static void begin(struct rpc_handshake *hs, const struct rpc_config *config)
{
    static const uint8_t nonce[RPC_HS_NONCE] = {1, 2, 3};
    struct rpc_config full = config ? *config : (struct rpc_config){0};
    complete(&full);
    assert_int_equal(rpc_handshake_init(hs, &full, nonce, true, RPC_USER_UNKNOWN), 0);
}

size_t raw_hello(const struct rpc_config *config, uint8_t out[RPC_HS_MESSAGE_MAX])
{
    struct rpc_handshake hs;
    begin(&hs, config);
    memcpy(out, hs.out, hs.out_len);
    return hs.out_len;
}

int raw_open(const struct server *s, const struct rpc_config *config)
{
    struct rpc_handshake hs;
    begin(&hs, config);
    int fd = raw_connect(s), rc = -EINPROGRESS;
    uint8_t in[RPC_HS_MESSAGE_MAX];
    size_t have = 0, used;
    while (rc == -EINPROGRESS) {
        raw_send(fd, hs.out, hs.out_len);
        hs.out_len = 0;
        assert_true(poll_fd(fd, POLLIN, HANG_MS));
        ssize_t n = recv(fd, in + have, sizeof in - have, 0);
        assert_true(n > 0);
        have += (size_t)n;
        rc = rpc_handshake_feed(&hs, in, have, &used);
        have -= used;
        memmove(in, in + used, have);
        if (hs.out_len == 0 && rc == -EINPROGRESS)
            continue;
    }
    assert_int_equal(rc, 0);
    return fd;
}

void raw_wait_closed(int fd, struct rpc_client *healthy)
{
    char scrap[4096];
    for (uint64_t end = now_ms() + HANG_MS; now_ms() < end;) {
        if (healthy)
            client_works(healthy);
        if (!poll_fd(fd, POLLIN, 5))
            continue;
        ssize_t n = recv(fd, scrap, sizeof scrap, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return;
        if (n > 0)
            shutdown(fd, SHUT_WR); /* a server waits a second for one that reads slowly */
    }
    fail_msg("the server did not close a bad client's connection");
}

/* ---- folders ---- */

void make_folder(char path[64])
{
    snprintf(path, 64, "/tmp/hawser-test-XXXXXX");
    assert_non_null(mkdtemp(path));
}

void rm_folder(const char *path)
{
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    assert_int_equal(rmdir(path), 0);
}
