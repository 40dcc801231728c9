/* Members through a real etcd, over TLS with certificates of both sides: daemons that come, go,
 * die, freeze; an etcd that dies, restarts, forgets, and loses its data.  Each member is a process
 * that writes a line for every view that it is told.  Ends with 77 where etcd is not installed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text/base64.h"
#include "kv/cluster/etcd.h"
#include "kv/cluster/members.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define TTL (2 * HW_SEC)
/* Less than the patience: a goodbye may come too late for a busy etcd. */
#define LONG_TTL (25 * HW_SEC)
#define PATIENCE (240 * HW_SEC) /* for etcd and a loaded machine; nothing takes as long as this */

enum { LINE_CHARS = 8192 };

/* ---- etcd ---- */

struct member;

struct etcd {
    pid_t pid;
    char dir[64], ca[96], cert[96], key[96];
    struct kv_etcd_access access; /* the first URL is of nobody */
};

static struct etcd etcd;

/* In the folder: an authority, and a certificate by it, which both sides use. */
static const char make_certificates[] =
    "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
    "-subj /CN=test-ca -keyout ca.key -out ca.crt 2>/dev/null && "
    "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test "
    "-keyout key -out request 2>/dev/null && printf 'subjectAltName=IP:127.0.0.1\n"
    "extendedKeyUsage=serverAuth,clientAuth\n' >extensions && "
    "openssl x509 -req -in request -CA ca.crt -CAkey ca.key -days 2 -extfile extensions "
    "-out cert 2>/dev/null";

static void shell(const char *fmt, const char *dir)
{
    char command[1024];
    snprintf(command, sizeof(command), fmt, dir, dir, dir, dir);
    assert_int_equal(system(command), 0);
}

/* Two that want one name; started first, since the second waits for as long as a lease lasts. */
static struct member *first, *second;

/* Binds a socket; -1: somebody has the address. */
static int bound(const void *addr, socklen_t len)
{
    int fd = socket(((const struct sockaddr *)addr)->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (bind(fd, addr, len) == 0)
        return fd;
    close(fd);
    return -1;
}

/* As free_port() of tests/integration/cli/harness.py: no other test is given the port while this
 * process lives.  Below the ports that the kernel gives to callers: while etcd is down, one of
 * those who look for it might be given its port. */
static uint16_t free_port(void)
{
    for (int port = 15000 + getpid() % 16000; port < 32768; port++) {
        struct sockaddr_in addr = {.sin_family = AF_INET,
                                   .sin_addr = {htonl(INADDR_LOOPBACK)},
                                   .sin_port = htons((uint16_t)port)};
        struct sockaddr_un claim = {.sun_family = AF_UNIX};
        int len =
            snprintf(claim.sun_path + 1, sizeof(claim.sun_path) - 1, "hawser-test-port-%d", port);
        int claimed =
            bound(&claim, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len));
        int probe = claimed < 0 ? -1 : bound(&addr, sizeof(addr));
        if (probe >= 0) {
            close(probe);
            return (uint16_t)port;
        }
        if (claimed >= 0)
            close(claimed);
    }
    fail_msg("no free port");
    return 0;
}

static void etcd_process(void)
{
    const char *url = etcd.access.urls[1];
    char data[96];
    snprintf(data, sizeof(data), "%s/data", etcd.dir);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
#if defined(__aarch64__)
    setenv("ETCD_UNSUPPORTED_ARCH", "arm64", 1);
#endif
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0)
        _exit(1);
    execlp("etcd", "etcd", "--data-dir", data, "--listen-client-urls", url,
           "--advertise-client-urls", url, "--listen-peer-urls", "http://127.0.0.1:0",
           "--cert-file", etcd.cert, "--key-file", etcd.key, "--trusted-ca-file", etcd.ca,
           "--client-cert-auth", "--logger", "zap", "--log-level", "error", "--heartbeat-interval",
           "20", "--election-timeout", "200", (char *)NULL);
    _exit(127);
}

static void etcd_start(void)
{
    etcd.pid = fork();
    assert_true(etcd.pid >= 0);
    if (etcd.pid == 0)
        etcd_process();
}

static void etcd_kill(void)
{
    assert_int_equal(kill(etcd.pid, SIGKILL), 0);
    assert_int_equal(waitpid(etcd.pid, NULL, 0), etcd.pid);
    etcd.pid = 0;
}

static bool etcd_is_installed(void)
{
    return system("command -v etcd >/dev/null") == 0;
}

static int teardown(void **state)
{
    (void)state;
    if (etcd.pid)
        etcd_kill();
    shell("rm -r %s", etcd.dir);
    return 0;
}

/* An exchange with an etcd that is up; the body of its answer. */
static void ask(const char *path, const char *json, char *out, size_t size)
{
    struct kv_post_request request = {.url = etcd.access.urls[1], .path = path, .json = json};
    struct kv_poster *poster = NULL;
    struct kv_post *post = NULL;
    char why[RPC_WHY_CHARS];
    size_t len;
    if (kv_poster_create(&etcd.access.tls, &poster, why) ||
        kv_post_open(poster, &request, &post, why) ||
        kv_post_read_all(post, -1, hw_now_ns() + PATIENCE, why))
        fail_msg("%s", why);
    const char *body = kv_post_body(post, &len);
    assert_int_equal(kv_post_status(post), 200);
    snprintf(out, size, "%.*s", (int)len, body);
    kv_post_destroy(post);
    kv_poster_destroy(poster);
}

/* Everything before now is forgotten. */
static void compact(uint64_t revision)
{
    char json[64], answer[1024];
    snprintf(json, sizeof(json), "{\"revision\":\"%" PRIu64 "\",\"physical\":true}", revision);
    ask("/v3/kv/compaction", json, answer, sizeof(answer));
}

static void remove_key(const char *key)
{
    char base64[HW_BASE64_CHARS(KV_ETCD_KEY_MAX)], json[KV_ETCD_REQUEST_MAX], answer[1024];
    hw_base64_encode(key, strlen(key), base64);
    snprintf(json, sizeof(json), "{\"key\":\"%s\"}", base64);
    ask("/v3/kv/deleterange", json, answer, sizeof(answer));
    assert_non_null(strstr(answer, "\"deleted\":\"1\""));
}

/* ---- members ---- */

struct member {
    pid_t pid;
    int views, stop; /* lines come from the one; a byte to the other ends it in good order */
    char text[LINE_CHARS];
    size_t len;
    uint64_t epoch; /* of the last line */
};

static void write_view(void *user, const struct kv_view *view)
{
    char line[LINE_CHARS];
    int len = snprintf(line, sizeof(line), "%" PRIu64, view->epoch);
    for (uint32_t i = 0; i < view->count; i++)
        len += snprintf(line + len, sizeof(line) - (size_t)len, " %s=%s", view->members[i].name,
                        view->members[i].address);
    len += snprintf(line + len, sizeof(line) - (size_t)len, "\n");
    if (write(*(int *)user, line, (size_t)len) != len)
        _exit(1);
}

struct start {
    const char *cluster, *name, *address;
    uint64_t ttl_ns;
    bool dead_endpoint_first;
};

/* The exit status is 0 after a good end, else the errno of what went wrong. */
static void member_process(const struct start *s, int views, int stop)
{
    struct kv_etcd_access access = etcd.access;
    if (!s->dead_endpoint_first)
        memcpy(access.urls[0], access.urls[--access.url_count], sizeof(access.urls[0]));
    struct kv_members_options options = {.etcd = &access,
                                         .cluster = s->cluster,
                                         .name = s->name,
                                         .address = s->address,
                                         .ttl_ns = s->ttl_ns,
                                         .changed = write_view,
                                         .user = &views};
    struct kv_members *members;
    char why[RPC_WHY_CHARS], byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("VENUS_LOG_LEVEL", "NONE", 1);
    int rc = kv_members_start(&options, &members, why);
    if (rc == 0) {
        rc = kv_members_wait(members, PATIENCE, why);
        if (rc == 0)
            rc = read(stop, &byte, 1) == 1 ? 0 : -EIO;
        kv_members_destroy(members);
    }
    _exit(-rc);
}

static struct member *member_start(const struct start *s)
{
    struct member *m = calloc(1, sizeof(*m));
    int views[2], stop[2];
    assert_non_null(m);
    assert_int_equal(pipe2(views, O_CLOEXEC), 0);
    assert_int_equal(pipe2(stop, O_CLOEXEC), 0);
    m->pid = fork();
    assert_true(m->pid >= 0);
    if (m->pid == 0) {
        close(views[0]);
        close(stop[1]);
        member_process(s, views[1], stop[0]);
    }
    close(views[1]);
    close(stop[0]);
    m->views = views[0];
    m->stop = stop[1];
    return m;
}

static struct member *join_for(const char *cluster, const char *name, const char *address,
                               uint64_t ttl_ns)
{
    struct start s = {.cluster = cluster, .name = name, .address = address, .ttl_ns = ttl_ns};
    return member_start(&s);
}

/* Its lease outlasts what is done to it: it leaves when it is told to. */
static struct member *join(const char *cluster, const char *name, const char *address)
{
    return join_for(cluster, name, address, LONG_TTL);
}

/* Its lease lapses while the test looks on. */
static struct member *join_briefly(const char *cluster, const char *name, const char *address)
{
    return join_for(cluster, name, address, TTL);
}

/* Its lease outlasts even a machine that stands still: nobody may see it go and come back.  Nobody
 * waits for its end. */
static struct member *join_for_good(const char *cluster, const char *name, const char *address)
{
    return join_for(cluster, name, address, PATIENCE);
}

/* What it ended with, the way that `end` brought about. */
static int member_free(struct member *m)
{
    int status;
    assert_int_equal(waitpid(m->pid, &status, 0), m->pid);
    close(m->views);
    close(m->stop);
    free(m);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int member_leave(struct member *m)
{
    assert_int_equal(write(m->stop, "q", 1), 1);
    return member_free(m);
}

static int member_kill(struct member *m)
{
    assert_int_equal(kill(m->pid, SIGKILL), 0);
    return member_free(m);
}

/* The next line of a member's views, without its end; `what` is waited for. */
static char *next_line(struct member *m, const char *what, uint64_t deadline_ns)
{
    static char line[LINE_CHARS];
    for (;;) {
        char *end = memchr(m->text, '\n', m->len);
        if (end) {
            size_t len = (size_t)(end - m->text);
            memcpy(line, m->text, len);
            line[len] = '\0';
            m->len -= len + 1;
            memmove(m->text, end + 1, m->len);
            return line;
        }
        uint64_t now = hw_now_ns();
        struct pollfd fd = {.fd = m->views, .events = POLLIN};
        int left_ms = deadline_ns > now ? (int)((deadline_ns - now) / HW_MS) : 0;
        if (poll(&fd, 1, left_ms) != 1)
            fail_msg("no view of epoch %" PRIu64 " and later has%s", m->epoch, what);
        ssize_t n = read(m->views, m->text + m->len, sizeof(m->text) - m->len);
        assert_true(n > 0);
        m->len += (size_t)n;
    }
}

/* Reads views until one has just these members; epochs must grow all the way. */
static void expect_members(struct member *m, const char *members)
{
    uint64_t deadline = hw_now_ns() + PATIENCE;
    char *rest;
    do {
        char *line = next_line(m, members, deadline);
        uint64_t epoch = strtoull(line, &rest, 10);
        assert_true(epoch > m->epoch);
        m->epoch = epoch;
    } while (strcmp(rest, members) != 0);
}

/* The same members have the same epoch.  A lease that lapsed meanwhile brings a later one. */
static void expect_agreement(struct member *a, struct member *b, const char *members)
{
    while (a->epoch != b->epoch)
        expect_members(a->epoch < b->epoch ? a : b, members);
}

/* The same as expect_members, in an era or a later one: whoever is first to come back begins one.
 */
static void expect_era(struct member *m, unsigned era, const char *members)
{
    do
        expect_members(m, members);
    while (m->epoch >> 40 < era);
}

static void ignore_view(void *user, const struct kv_view *view)
{
    (void)user;
    (void)view;
}

static int setup(void **state)
{
    (void)state;
    snprintf(etcd.dir, sizeof(etcd.dir), "/tmp/hawser-kvm-XXXXXX");
    if (!mkdtemp(etcd.dir))
        return -1;
    shell(make_certificates, etcd.dir);
    snprintf(etcd.ca, sizeof(etcd.ca), "%s/ca.crt", etcd.dir);
    snprintf(etcd.cert, sizeof(etcd.cert), "%s/cert", etcd.dir);
    snprintf(etcd.key, sizeof(etcd.key), "%s/key", etcd.dir);
    etcd.access = (struct kv_etcd_access){.url_count = 2, .tls = {etcd.ca, etcd.cert, etcd.key}};
    snprintf(etcd.access.urls[0], KV_POST_URL_CHARS, "https://127.0.0.1:1");
    snprintf(etcd.access.urls[1], KV_POST_URL_CHARS, "https://127.0.0.1:%u", free_port());
    etcd_start();
    first = join_for_good("twins", "a", "10.0.0.1:28200");
    expect_members(first, " a=10.0.0.1:28200");
    second = join_briefly("twins", "a", "10.0.0.2:28200");
    return 0;
}

/* ---- tests ---- */

static void members_see_each_other_come_and_go(void **state)
{
    (void)state;
    struct start s = {.cluster = "come",
                      .name = "a",
                      .address = "10.0.0.1:28200",
                      .ttl_ns = LONG_TTL,
                      .dead_endpoint_first = true};
    struct member *a = member_start(&s); /* etcd may not be up yet: it waits for it */
    expect_members(a, " a=10.0.0.1:28200");
    struct member *other = join("come-too", "a", "10.0.0.9:28200");
    expect_members(other, " a=10.0.0.9:28200"); /* names belong to clusters */
    struct member *b = join("come", "b", "10.0.0.2:28200");
    expect_members(b, " a=10.0.0.1:28200 b=10.0.0.2:28200");
    expect_members(a, " a=10.0.0.1:28200 b=10.0.0.2:28200");
    expect_agreement(a, b, " a=10.0.0.1:28200 b=10.0.0.2:28200");
    assert_int_equal(member_leave(a), 0);
    expect_members(b, " b=10.0.0.2:28200"); /* at once: it gave its lease back */
    assert_int_equal(member_leave(b), 0);
    assert_int_equal(member_leave(other), 0);
}

static void who_dies_or_freezes_leaves_and_may_come_back(void **state)
{
    (void)state;
    struct member *a = join("die", "a", "unix:/run/a");
    expect_members(a, " a=unix:/run/a");
    struct member *b = join_briefly("die", "b", "unix:/run/b");
    expect_members(b, " a=unix:/run/a b=unix:/run/b");
    struct member *c = join_briefly("die", "c", "unix:/run/c");
    expect_members(c, " a=unix:/run/a b=unix:/run/b c=unix:/run/c");
    /* Its earlier life still has a lease: the same address takes the name over. */
    assert_int_equal(member_kill(b), -SIGKILL);
    b = join_briefly("die", "b", "unix:/run/b");
    expect_members(b, " a=unix:/run/a b=unix:/run/b c=unix:/run/c");
    assert_int_equal(member_kill(b), -SIGKILL);
    assert_int_equal(kill(c->pid, SIGSTOP), 0);
    expect_members(a, " a=unix:/run/a");
    assert_int_equal(kill(c->pid, SIGCONT), 0);
    expect_members(a, " a=unix:/run/a c=unix:/run/c");
    expect_members(c, " a=unix:/run/a c=unix:/run/c"); /* also before it hears that it went */
    expect_agreement(a, c, " a=unix:/run/a c=unix:/run/c");
    assert_int_equal(member_leave(a), 0);
    assert_int_equal(member_leave(c), 0);
}

static void a_name_is_given_once(void **state)
{
    (void)state;
    assert_int_equal(member_free(second), EEXIST);
    /* The first was not disturbed: the next that it sees is b. */
    struct member *b = join("twins", "b", "10.0.0.3:28200");
    char *line = next_line(first, " b=10.0.0.3:28200", hw_now_ns() + PATIENCE);
    assert_non_null(strstr(line, " a=10.0.0.1:28200 b=10.0.0.3:28200"));
    assert_int_equal(member_leave(first), 0);
    assert_int_equal(member_leave(b), 0);
}

static void a_registration_that_was_removed_is_made_again(void **state)
{
    (void)state;
    struct member *a = join("again", "a", "10.0.0.1:28200");
    expect_members(a, " a=10.0.0.1:28200");
    remove_key("/hawser/again/members/a");
    expect_members(a, "");
    expect_members(a, " a=10.0.0.1:28200");
    assert_int_equal(member_leave(a), 0);
}

static void an_etcd_that_dies_costs_nothing_but_changes(void **state)
{
    (void)state;
    struct member *a = join_for_good("gone", "a", "10.0.0.1:28200");
    expect_members(a, " a=10.0.0.1:28200");
    struct member *b = join("gone", "b", "10.0.0.2:28200");
    expect_members(b, " a=10.0.0.1:28200 b=10.0.0.2:28200");
    expect_members(a, " a=10.0.0.1:28200 b=10.0.0.2:28200");
    etcd_kill();
    etcd_start();
    struct member *c = join("gone", "c", "10.0.0.3:28200");
    expect_members(c, " a=10.0.0.1:28200 b=10.0.0.2:28200 c=10.0.0.3:28200");
    /* Not told twice: their watches went on where they were. */
    char *line = next_line(a, " c=10.0.0.3:28200", hw_now_ns() + PATIENCE);
    assert_non_null(strstr(line, " c=10.0.0.3:28200"));
    expect_members(b, " a=10.0.0.1:28200 b=10.0.0.2:28200 c=10.0.0.3:28200");
    assert_int_equal(member_leave(b), 0);
    assert_int_equal(member_leave(c), 0);
    expect_members(a, " a=10.0.0.1:28200");
    assert_int_equal(member_leave(a), 0);
}

static void what_etcd_has_forgotten_is_read_again(void **state)
{
    (void)state;
    struct member *a = join_for_good("forget", "a", "10.0.0.1:28200");
    expect_members(a, " a=10.0.0.1:28200");
    assert_int_equal(kill(a->pid, SIGSTOP), 0);
    struct member *b = join("forget", "b", "10.0.0.2:28200");
    expect_members(b, " a=10.0.0.1:28200 b=10.0.0.2:28200");
    struct member *c = join("forget", "c", "10.0.0.3:28200");
    expect_members(c, " a=10.0.0.1:28200 b=10.0.0.2:28200 c=10.0.0.3:28200");
    assert_int_equal(member_leave(b), 0);
    expect_members(c, " a=10.0.0.1:28200 c=10.0.0.3:28200");
    compact(c->epoch);
    etcd_kill(); /* what it had sent to a's watch goes with the connection */
    etcd_start();
    struct member *d = join("forget", "d", "10.0.0.4:28200");
    expect_members(d, " a=10.0.0.1:28200 c=10.0.0.3:28200 d=10.0.0.4:28200");
    assert_int_equal(kill(a->pid, SIGCONT), 0);
    expect_members(a, " a=10.0.0.1:28200 c=10.0.0.3:28200 d=10.0.0.4:28200");
    assert_int_equal(member_leave(a), 0);
    assert_int_equal(member_leave(c), 0);
    assert_int_equal(member_leave(d), 0);
}

/* Restored from a backup, and then emptied: nobody is restarted. */
static void an_etcd_that_lost_its_data_is_filled_again(void **state)
{
    (void)state;
    struct member *a = join("lost", "a", "10.0.0.1:28200");
    expect_members(a, " a=10.0.0.1:28200");
    etcd_kill();
    shell("cp -r %s/data %s/backup", etcd.dir);
    etcd_start();
    struct member *b = join("lost", "b", "10.0.0.2:28200");
    expect_members(b, " a=10.0.0.1:28200 b=10.0.0.2:28200");
    expect_members(a, " a=10.0.0.1:28200 b=10.0.0.2:28200");
    for (int i = 0; i < 2; i++) {
        etcd_kill();
        shell(i == 0 ? "rm -r %s/data && mv %s/backup %s/data" : "rm -r %s/data", etcd.dir);
        etcd_start();
        expect_era(a, (unsigned)i + 1, " a=10.0.0.1:28200 b=10.0.0.2:28200");
        expect_era(b, (unsigned)i + 1, " a=10.0.0.1:28200 b=10.0.0.2:28200");
    }
    struct member *c = join("lost", "c", "10.0.0.3:28200");
    expect_members(c, " a=10.0.0.1:28200 b=10.0.0.2:28200 c=10.0.0.3:28200");
    expect_members(a, " a=10.0.0.1:28200 b=10.0.0.2:28200 c=10.0.0.3:28200");
    expect_members(b, " a=10.0.0.1:28200 b=10.0.0.2:28200 c=10.0.0.3:28200");
    do {
        expect_agreement(a, c, " a=10.0.0.1:28200 b=10.0.0.2:28200 c=10.0.0.3:28200");
        expect_agreement(b, c, " a=10.0.0.1:28200 b=10.0.0.2:28200 c=10.0.0.3:28200");
    } while (a->epoch != c->epoch);
    assert_int_equal(member_leave(a), 0);
    assert_int_equal(member_leave(b), 0);
    assert_int_equal(member_leave(c), 0);
}

static void who_is_not_trusted_is_told_why(void **state)
{
    struct kv_etcd_access access = etcd.access;
    char why[RPC_WHY_CHARS] = "";
    (void)state;
    memcpy(access.urls[0], access.urls[--access.url_count], sizeof(access.urls[0]));
    for (int i = 0; i < 2; i++) {
        access.tls = (struct kv_post_tls){.ca = i ? etcd.ca : NULL}; /* no certificate, no CA */
        struct kv_members_options options = {.etcd = &access,
                                             .cluster = "tls",
                                             .name = "a",
                                             .address = "10.0.0.1:28200",
                                             .ttl_ns = LONG_TTL, /* a third: for a handshake */
                                             .changed = ignore_view};
        struct kv_members *members;
        assert_int_equal(kv_members_start(&options, &members, why), 0);
        uint64_t deadline = hw_now_ns() + PATIENCE;
        do
            assert_int_equal(kv_members_wait(members, 20 * HW_MS, why), -ETIMEDOUT);
        while (!strstr(why, "certificate") && hw_now_ns() < deadline);
        assert_non_null(strstr(why, "certificate"));
        kv_members_destroy(members);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_see_each_other_come_and_go),
        cmocka_unit_test(a_registration_that_was_removed_is_made_again),
        cmocka_unit_test(who_dies_or_freezes_leaves_and_may_come_back),
        cmocka_unit_test(a_name_is_given_once),
        cmocka_unit_test(an_etcd_that_dies_costs_nothing_but_changes),
        cmocka_unit_test(what_etcd_has_forgotten_is_read_again),
        cmocka_unit_test(an_etcd_that_lost_its_data_is_filled_again),
        cmocka_unit_test(who_is_not_trusted_is_told_why),
    };
    if (!etcd_is_installed()) {
        printf("etcd is not installed: apt-get install etcd-server\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
