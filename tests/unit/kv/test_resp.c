/* The door for Redis clients, with a daemon and several connections in threads. */
#include "unit.h"

#include "base/clock.h"
#include "base/rng.h"
#include "block_calls.h"
#include "kv/client/named.h"
#include "kv/daemon/host.h"
#include "kv/resp/door.h"

#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECTIONS = 4, ROUNDS = 50, VALUE = 150000, DAEMONS = 2, ARENA = 16 << 20 };

#define AUTH_NS (200 * HW_MS) /* also where no password is wanted: it must not matter there */

struct fixture {
    char dir[64], socket[96];
    uint32_t daemons;
    struct kv_host *hosts[DAEMONS];
    pthread_t threads[DAEMONS];
    struct resp_door *door;
};

/* With members: the door is at the first; each host is a member of its own.  `password` NULL: none
 * is wanted. */
static void fixture_open_for(struct fixture *f, uint32_t daemons, bool members,
                             struct kv_blocks_config limits, const char *password)
{
    char why[RPC_WHY_CHARS] = "";
    *f = (struct fixture){.dir = "/tmp/hawser-resp-XXXXXX", .daemons = daemons};
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->socket, sizeof(f->socket), "%s/kvd", f->dir);
    struct resp_door_options door = {.addr = {.scheme = RPC_SCHEME_UNIX},
                                     .socket = f->socket,
                                     .host_count = members ? 1 : daemons,
                                     .password = (const uint8_t *)password,
                                     .password_len = password ? strlen(password) : 0,
                                     .auth_ns = AUTH_NS,
                                     .timeout_ns = KV_TIMEOUT_MAX_NS}; /* none on a busy machine */
    limits.entries = 256;
    for (uint32_t i = 0; i < daemons; i++) {
        char name[] = "a", socket[128];
        struct rpc_addr addr = {.scheme = RPC_SCHEME_UNIX};
        name[0] += (char)i;
        snprintf(addr.path, sizeof(addr.path), "%.60s/%s", f->dir, name);
        snprintf(socket, sizeof(socket), "%s%s", f->socket, members && i > 0 ? name : "");
        struct kv_host_options host = {.ranks = 1,
                                       .index = members ? 0 : i,
                                       .daemons = members ? 1 : daemons,
                                       .member = members ? name : NULL,
                                       .addrs = members ? &addr : NULL,
                                       .socket = socket,
                                       .store_bytes = 1 << 20,
                                       .store_entries = 64,
                                       .arena_bytes = ARENA,
                                       .blocks = limits};
        if (kv_host_create(&host, &f->hosts[i], why))
            fail_msg("%s", why);
        assert_int_equal(pthread_create(&f->threads[i], NULL, run_host, f->hosts[i]), 0);
        door.hosts[i] = f->hosts[i];
    }
    snprintf(door.addr.path, sizeof(door.addr.path), "%.60s/redis", f->dir);
    if (resp_door_open(&door, &f->door, why))
        fail_msg("%s", why);
}

static void fixture_open_with(struct fixture *f, uint32_t daemons, bool members,
                              struct kv_blocks_config limits)
{
    fixture_open_for(f, daemons, members, limits, NULL);
}

static void fixture_open_as(struct fixture *f, uint32_t daemons, uint64_t put_lasts_ns)
{
    fixture_open_with(f, daemons, false, (struct kv_blocks_config){.put_lasts_ns = put_lasts_ns});
}

static void fixture_open(struct fixture *f)
{
    fixture_open_as(f, DAEMONS, 0);
}

static void fixture_close(struct fixture *f)
{
    resp_door_close(f->door);
    for (uint32_t i = 0; i < f->daemons; i++) {
        kv_host_stop(f->hosts[i]);
        pthread_join(f->threads[i], NULL);
        kv_host_destroy(f->hosts[i]);
    }
    assert_int_equal(rmdir(f->dir), 0);
}

static int dial(const struct fixture *f)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", resp_door_addr(f->door)->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

/* Sends and reads exactly this. */
static void exchange(int fd, const char *request, size_t request_len, const char *reply,
                     size_t reply_len)
{
    char *got = malloc(reply_len);
    assert_non_null(got);
    assert_int_equal(send(fd, request, request_len, MSG_NOSIGNAL), request_len);
    assert_int_equal(recv(fd, got, reply_len, MSG_WAITALL), reply_len);
    assert_memory_equal(got, reply, reply_len);
    free(got);
}

static void ask(int fd, const char *request, const char *reply)
{
    exchange(fd, request, strlen(request), reply, strlen(reply));
}

struct load {
    const struct fixture *f;
    char name;
};

/* "SET name" with `len` bytes of the same value, and the reply to a GET of it. */
struct texts {
    char set[VALUE + 64], got[VALUE + 64];
    size_t set_len, got_len;
};

static void make_texts(struct texts *t, char name, char byte, size_t len)
{
    int head =
        snprintf(t->set, sizeof(t->set), "*3\r\n$3\r\nSET\r\n$1\r\n%c\r\n$%zu\r\n", name, len);
    int got = snprintf(t->got, sizeof(t->got), "$%zu\r\n", len);
    memset(t->set + head, byte, len);
    memset(t->got + got, byte, len);
    memcpy(t->set + head + len, "\r\n", 2);
    memcpy(t->got + got + len, "\r\n", 2);
    t->set_len = (size_t)head + len + 2;
    t->got_len = (size_t)got + len + 2;
}

/* A name of its own: what was set is what is got, in the loop and, after the first long value, in a
 * thread. */
static void *run_load(void *user)
{
    const struct load *l = user;
    struct texts *t = malloc(sizeof(*t));
    int fd = dial(l->f);
    assert_non_null(t);
    for (int i = 0; i < ROUNDS; i++) {
        char get[] = "GET ?\r\n";
        get[4] = l->name;
        make_texts(t, l->name, (char)(l->name + i), i < ROUNDS / 2 || i % 2 ? 100 : VALUE);
        exchange(fd, t->set, t->set_len, "+OK\r\n", 5);
        exchange(fd, get, sizeof(get) - 1, t->got, t->got_len);
    }
    close(fd);
    free(t);
    return NULL;
}

/* Sets one name again and again. */
static void *overwrite(void *user)
{
    int fd = dial(user);
    for (int i = 0; i < 20 * ROUNDS; i++)
        ask(fd, i % 2 ? "SET r one\r\n" : "SET r two\r\n", "+OK\r\n");
    close(fd);
    return NULL;
}

/* A local client and the loop at the same time, at the same daemons. */
static void *read_as_client(void *user)
{
    const struct fixture *f = user;
    char why[RPC_WHY_CHARS] = "";
    struct kv_client_options options = {.socket = f->socket, .staging_bytes = 1 << 20};
    struct kv_client *c;
    struct kv_named v;
    if (kv_client_open(&options, &c, why))
        fail_msg("%s", why);
    for (int i = 0; i < 20 * ROUNDS; i++) {
        assert_int_equal(kv_named_get(c, "r", 1, &v), KV_OK);
        assert_true(v.len == 3 && (memcmp(v.data, "one", 3) == 0 || memcmp(v.data, "two", 3) == 0));
        kv_named_let_go(c, &v);
    }
    kv_client_close(c);
    return NULL;
}

static void a_value_that_is_replaced_is_never_missing(void **state)
{
    (void)state;
    struct fixture f;
    pthread_t writer, reader;
    fixture_open(&f);
    int fd = dial(&f);
    ask(fd, "SET r two\r\n", "+OK\r\n");
    assert_int_equal(pthread_create(&writer, NULL, overwrite, &f), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_as_client, &f), 0);
    for (int i = 0; i < 20 * ROUNDS; i++)
        ask(fd, "STRLEN r\r\n", ":3\r\n");
    pthread_join(writer, NULL);
    pthread_join(reader, NULL);
    close(fd);
    fixture_close(&f);
}

/* One that asks for much and reads nothing: its replies are all there in the end. */
static void a_connection_that_does_not_read_holds_nobody_up(void **state)
{
    (void)state;
    enum { GETS = 100, LEN = 60000 };
    static const char get[] = "GET k\r\n";
    struct fixture f;
    struct texts *t = malloc(sizeof(*t));
    char *got = malloc(VALUE + 64);
    fixture_open(&f);
    assert_true(t && got);
    make_texts(t, 'k', 'x', LEN);
    int slow = dial(&f), other = dial(&f);
    exchange(slow, t->set, t->set_len, "+OK\r\n", 5);
    for (int i = 0; i < GETS; i++)
        assert_int_equal(send(slow, get, sizeof(get) - 1, MSG_NOSIGNAL), sizeof(get) - 1);
    for (int i = 0; i < ROUNDS; i++)
        ask(other, "STRLEN k\r\n", ":60000\r\n");
    for (int i = 0; i < GETS; i++) {
        assert_int_equal(recv(slow, got, t->got_len, MSG_WAITALL), t->got_len);
        assert_memory_equal(got, t->got, t->got_len);
    }
    ask(slow, "MGET k no\r\n", "*2\r\n$60000\r\n");
    close(slow);
    close(other);
    fixture_close(&f);
    free(t);
    free(got);
}

static void a_damaged_value_is_a_miss(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t *found = NULL;
    fixture_open(&f);
    int fd = dial(&f);
    ask(fd, "SET k precious\r\nGET k\r\n", "+OK\r\n$8\r\nprecious\r\n");
    for (uint32_t i = 0; i < DAEMONS && !found; i++)
        found = memmem(kv_host_arena(f.hosts[i]), ARENA, "precious", 8);
    assert_non_null(found);
    *found = 'P';
    ask(fd, "GET k\r\nEXISTS k\r\nSET k new NX\r\nGET k\r\n", "$-1\r\n:0\r\n+OK\r\n$3\r\nnew\r\n");
    close(fd);
    fixture_close(&f);
}

static void connections_do_not_meet(void **state)
{
    (void)state;
    struct fixture f;
    struct load loads[CONNECTIONS];
    pthread_t threads[CONNECTIONS];
    fixture_open(&f);
    for (int i = 0; i < CONNECTIONS; i++) {
        loads[i] = (struct load){.f = &f, .name = (char)('a' + i)};
        assert_int_equal(pthread_create(&threads[i], NULL, run_load, &loads[i]), 0);
    }
    for (int i = 0; i < CONNECTIONS; i++)
        pthread_join(threads[i], NULL);
    int fd = dial(&f);
    ask(fd, "EXISTS a b c d e\r\n", ":4\r\n");
    ask(fd, "*2\r\n$3\r\nDEL\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n", ":1\r\n$-1\r\n");
    ask(fd, "SET k v NX\r\nSET k w NX\r\nGETRANGE k -9 9\r\n", "+OK\r\n$-1\r\n$1\r\nv\r\n");
    ask(fd, "*1\r\n$9999999999\r\n", "-ERR Protocol error: invalid bulk length\r\n");
    close(fd);
    fixture_close(&f);
}

/* Those that are connected, or in the middle of a request, do not hold it up. */
static void closing_ends_all_connections(void **state)
{
    (void)state;
    struct fixture f;
    char byte;
    fixture_open(&f);
    int idle = dial(&f), middle = dial(&f);
    ask(idle, "PING\r\n", "+PONG\r\n");
    ask(middle, "PING\r\n*2\r\n$3\r\nGET\r\n$10\r\nabc", "+PONG\r\n");
    fixture_close(&f);
    assert_true(recv(idle, &byte, 1, 0) <= 0);
    assert_true(recv(middle, &byte, 1, 0) <= 0);
    close(idle);
    close(middle);
}

/* A connection that said who it is; on a busy machine one may be too late for it. */
static int dial_known(const struct fixture *f)
{
    static const char ask[] = "AUTH secret\r\n";
    char reply[5];
    for (;;) {
        int fd = dial(f);
        (void)send(fd, ask, sizeof(ask) - 1, MSG_NOSIGNAL);
        if (recv(fd, reply, sizeof(reply), MSG_WAITALL) == sizeof(reply)) {
            assert_memory_equal(reply, "+OK\r\n", sizeof(reply));
            return fd;
        }
        close(fd);
    }
}

/* Half of the places are for ever, half are taken by connections that do not say who they are: they
 * are free again by themselves. */
static void one_that_never_authenticates_keeps_no_place(void **state)
{
    (void)state;
    struct fixture f;
    static int known[RESP_SESSIONS_MAX / 2], silent[RESP_SESSIONS_MAX / 2];
    char byte;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0); /* both ends of each are here */
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    fixture_open_for(&f, 1, false, (struct kv_blocks_config){0}, "secret");
    for (uint32_t i = 0; i < RESP_SESSIONS_MAX / 2; i++)
        known[i] = dial_known(&f);
    for (uint32_t i = 0; i < RESP_SESSIONS_MAX / 2; i++) {
        silent[i] = dial(&f);
        if (i % 2) /* what it sends does not prolong its time */
            (void)send(silent[i], "PING", 4, MSG_NOSIGNAL);
    }
    for (uint32_t i = 0; i < RESP_SESSIONS_MAX / 2; i++) {
        assert_true(recv(silent[i], &byte, 1, 0) <= 0); /* waits for its end */
        close(silent[i]);
        silent[i] = dial_known(&f);
    }
    for (uint32_t i = 0; i < RESP_SESSIONS_MAX / 2; i++) {
        ask(known[i], "PING\r\n", "+PONG\r\n");
        ask(silent[i], "PING\r\n", "+PONG\r\n");
        close(known[i]);
        close(silent[i]);
    }
    fixture_close(&f);
}

/* ---- values that come straight into the store ---- */

static void send_part(int fd, const char *data, size_t len)
{
    assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

/* Until the session has read what was sent. */
static void await_read(int fd)
{
    int left = 1;
    for (uint64_t end = hw_now_ns() + 60 * HW_SEC; left > 0 && hw_now_ns() < end; sched_yield())
        assert_int_equal(ioctl(fd, SIOCOUTQ, &left), 0);
    assert_int_equal(left, 0);
}

static struct kv_blocks_stat host_stat(struct kv_host *host)
{
    struct kv_blocks_stat stat;
    kv_host_enter(host);
    kv_blocks_stat(kv_daemon_blocks(kv_host_daemon(host)), &stat);
    kv_host_leave(host);
    return stat;
}

/* Until so many puts are in progress at the first daemon. */
static void await_puts(struct fixture *f, uint64_t count)
{
    uint64_t end = hw_now_ns() + 60 * HW_SEC;
    while (host_stat(f->hosts[0]).open_puts != count && hw_now_ns() < end)
        sched_yield();
    assert_int_equal(host_stat(f->hosts[0]).open_puts, count);
}

/* A SET whose value has `len` bytes, each different from its neighbours, with what follows; and the
 * reply to a GET. */
struct large {
    char *set, *got;
    size_t set_len, got_len, head;
};

static struct large large_make(const char *name, char salt, size_t len, const char *more)
{
    struct large l = {.set = malloc(len + 256), .got = malloc(len + 32)};
    assert_true(l.set && l.got);
    l.head = (size_t)sprintf(l.set, "*%d\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n", *more ? 5 : 3,
                             strlen(name), name, len);
    size_t got = (size_t)sprintf(l.got, "$%zu\r\n", len);
    for (size_t i = 0; i < len; i++)
        l.got[got + i] = l.set[l.head + i] = (char)(salt + i * 7 + i / 251);
    l.set_len = l.head + len;
    l.set_len += (size_t)sprintf(l.set + l.set_len, "\r\n%s", more);
    l.got_len = got + len + 2;
    memcpy(l.got + got + len, "\r\n", 2);
    return l;
}

static void large_free(struct large *l)
{
    free(l->set);
    free(l->got);
}

static void await_get(int fd, const char *name, const struct large *l)
{
    char get[64];
    int n = snprintf(get, sizeof(get), "GET %s\r\n", name);
    exchange(fd, get, (size_t)n, l->got, l->got_len);
}

/* Cut at `cut`, and again behind the value; a short request follows in the same bytes. */
static void set_in_parts(int fd, const struct large *l, size_t cut)
{
    static const char next[] = "*2\r\n$6\r\nSTRLEN\r\n$1\r\nk\r\n";
    char reply[64];
    int n = snprintf(reply, sizeof(reply), "+OK\r\n:%d\r\n", 2 * VALUE);
    send_part(fd, l->set, cut);
    await_read(fd);
    send_part(fd, l->set + cut, l->set_len - cut);
    exchange(fd, next, sizeof(next) - 1, reply, (size_t)n);
}

static void cut_everywhere(uint64_t put_lasts_ns, const char *more)
{
    struct fixture f;
    fixture_open_as(&f, DAEMONS, put_lasts_ns);
    int fd = dial(&f);
    struct large l = large_make("k", 1, 2 * VALUE, more);
    ask(fd, "MSET t 1\r\n", "+OK\r\n"); /* from now on in a thread */
    for (size_t cut = 1; cut < l.set_len; cut += cut < 80 || cut + 80 > l.set_len ? 1 : VALUE / 9) {
        set_in_parts(fd, &l, cut);
        if (cut % 8 == 0)
            await_get(fd, "k", &l);
    }
    await_get(fd, "k", &l);
    await_puts(&f, 0);
    large_free(&l);
    close(fd);
    fixture_close(&f);
}

static void a_value_may_be_cut_anywhere(void **state)
{
    (void)state;
    cut_everywhere(0, "");
    cut_everywhere(0, "$2\r\nPX\r\n$8\r\n99999999\r\n"); /* its end comes after it */
}

/* A peer that is slower than a put lasts: the value goes on in the session's memory. */
static void a_slow_value_leaves_the_store(void **state)
{
    (void)state;
    cut_everywhere(1, "$2\r\nEX\r\n$8\r\n99999999\r\n");
}

static void two_that_set_one_name_are_each_whole(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open_as(&f, 1, 0);
    struct large old = large_make("k", 0, 2 * VALUE, ""), one = large_make("k", 1, 3 * VALUE, ""),
                 two = large_make("k", 2, 4 * VALUE, ""), three = large_make("k", 3, 5 * VALUE, "");
    int a = dial(&f), b = dial(&f), c = dial(&f);
    exchange(c, old.set, old.set_len, "+OK\r\n", 5);
    send_part(a, one.set, one.set_len / 2);
    send_part(b, two.set, two.set_len / 3);
    await_puts(&f, 2);
    await_get(c, "k", &old);
    exchange(a, one.set + one.set_len / 2, one.set_len - one.set_len / 2, "+OK\r\n", 5);
    await_get(c, "k", &one);
    exchange(b, two.set + two.set_len / 3, two.set_len - two.set_len / 3, "+OK\r\n", 5);
    await_get(c, "k", &two);
    send_part(a, three.set, three.set_len - 3); /* one that ends meanwhile has set nothing */
    await_puts(&f, 1);
    close(a);
    await_puts(&f, 0);
    await_get(c, "k", &two);
    /* SETNX, a wrong end, and a value that is not followed by an end of line. */
    static const char nx[] = "*3\r\n$5\r\nSETNX\r\n$1\r\nk\r\n";
    size_t tail = one.head - strlen("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n");
    send_part(b, nx, sizeof(nx) - 1);
    exchange(b, one.set + one.head - tail, one.set_len - one.head + tail, ":0\r\n", 4);
    await_get(c, "k", &two);
    three.set[three.set_len - 1] = 'x';
    static const char why[] =
        "-ERR Protocol error: an argument is not followed by an end of line\r\n";
    exchange(b, three.set, three.set_len, why, sizeof(why) - 1);
    await_puts(&f, 0);
    await_get(c, "k", &two);
    large_free(&old);
    large_free(&one);
    large_free(&two);
    large_free(&three);
    close(b);
    close(c);
    fixture_close(&f);
}

static void a_value_for_which_there_is_no_room_is_refused_in_step(void **state)
{
    (void)state;
    static const char full[] = "-OOM the store is full of what cannot be evicted\r\n",
                      why[] = "-ERR longer than the store takes: a name of 4096 bytes, a value of "
                              "67104756, or of what --blocks and --tenant-max allow\r\n";
    struct fixture f;
    fixture_open_as(&f, 1, 0);
    struct large huge = large_make("k", 1, ARENA + 1, ""), half = large_make("h", 2, ARENA / 2, ""),
                 other = large_make("k", 3, ARENA / 2 + VALUE, "");
    int a = dial(&f), b = dial(&f);
    exchange(a, huge.set, huge.set_len, why, sizeof(why) - 1);
    ask(a, "SET k small\r\nGET k\r\n", "+OK\r\n$5\r\nsmall\r\n");
    send_part(b, half.set, half.set_len / 2);
    await_puts(&f, 1);
    exchange(a, other.set, other.set_len, full, sizeof(full) - 1);
    ask(a, "PING\r\n", "+PONG\r\n");
    close(b);
    await_puts(&f, 0);
    exchange(a, other.set, other.set_len, "+OK\r\n", 5);
    await_get(a, "k", &other);
    large_free(&huge);
    large_free(&half);
    large_free(&other);
    close(a);
    fixture_close(&f);
}

/* Blocks that are being sent stay as they are while everything else is evicted and replaced. */
static void a_value_that_is_being_sent_is_not_evicted(void **state)
{
    (void)state;
    enum { LONG = 3 << 20, SHORT = 100000, GETS = 20 };
    struct fixture f;
    fixture_open_as(&f, 1, 0);
    struct large l = large_make("l", 1, LONG, ""), m = large_make("m", 2, SHORT, ""),
                 fill = large_make("x", 3, 1 << 20, ""), next = large_make("l", 4, LONG, "");
    char *got = malloc(LONG + 64), gets[GETS * 7 + 1] = "";
    int slow = dial(&f), slower = dial(&f), other = dial(&f);
    assert_non_null(got);
    exchange(other, l.set, l.set_len, "+OK\r\n", 5);
    exchange(other, m.set, m.set_len, "+OK\r\n", 5);
    send_part(slow, "GET l\r\n", 7);
    for (int i = 0; i < GETS; i++)
        strcat(gets, "GET m\r\n");
    send_part(slower, gets, sizeof(gets) - 1); /* at once: later ones would wait for us to read */
    await_read(slow);
    await_read(slower);
    assert_int_equal(recv(slow, got, 1, MSG_PEEK), 1); /* it is on its way */
    assert_int_equal(recv(slower, got, 1, MSG_PEEK), 1);
    for (int i = 0; i < 2 * (ARENA >> 20); i++) {
        fill.set[fill.head - strlen("\r\n$1048576\r\n") - 1] = (char)('A' + i);
        exchange(other, fill.set, fill.set_len, "+OK\r\n", 5);
    }
    exchange(other, next.set, next.set_len, "+OK\r\n", 5);
    await_get(other, "l", &next);
    assert_int_equal(recv(slow, got, l.got_len, MSG_WAITALL), l.got_len);
    assert_memory_equal(got, l.got, l.got_len);
    int there = 1;
    for (int i = 0; i < GETS; i++) { /* a GET that began later may be a miss */
        assert_int_equal(recv(slower, got, 5, MSG_WAITALL), 5);
        bool hit = memcmp(got, "$-1\r\n", 5) != 0;
        assert_true(there || !hit);
        there = hit;
        if (hit) {
            assert_int_equal(recv(slower, got + 5, m.got_len - 5, MSG_WAITALL), m.got_len - 5);
            assert_memory_equal(got, m.got, m.got_len);
        }
    }
    ask(slower, "PING\r\n", "+PONG\r\n");
    large_free(&l);
    large_free(&m);
    large_free(&fill);
    large_free(&next);
    free(got);
    close(slow);
    close(slower);
    close(other);
    fixture_close(&f);
}

/* ---- members that change ---- */

/* Of the first `count` members, who are then connected. */
static void set_view(struct fixture *f, uint32_t count, struct kv_view *view)
{
    static const char *const names[] = {"a", "b"};
    struct kv_member_info infos[DAEMONS];
    char why[RPC_WHY_CHARS] = "";
    for (uint32_t i = 0; i < count; i++)
        infos[i] = (struct kv_member_info){names[i], kv_host_address(f->hosts[i])};
    if (kv_view_make(count, infos, count, view, why))
        fail_msg("%s", why);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(kv_host_set_view(f->hosts[i], view), 0);
    for (uint32_t i = 0; i < count; i++) {
        const struct kv_stats *s = kv_host_stats(f->hosts[i]);
        uint64_t end = hw_now_ns() + 60 * HW_SEC;
        while ((hw_counter_load(&s->view_epoch) != count ||
                hw_counter_load(&s->peers_up) != count - 1) &&
               hw_now_ns() < end)
            sched_yield();
        assert_int_equal(hw_counter_load(&s->peers_up), count - 1);
    }
}

/* A name whose value belongs to that member. */
static void name_at(const struct kv_view *view, uint32_t member, char name[2])
{
    uint32_t owner[KV_COPIES_MAX] = {DAEMONS};
    for (name[0] = 'a', name[1] = 0;; name[0]++) {
        assert_true(name[0] <= 'z');
        struct kv_block_key key = kv_named_key(0, name, 1);
        if (kv_view_owners(view, kv_block_hash(&key), 1, owner) == 1 && owner[0] == member)
            break;
    }
}

/* Other values in all of the arena. */
static void fill_arena(int fd)
{
    struct large fill = large_make("x", 3, 1 << 20, "");
    for (int i = 0; i < 2 * (ARENA >> 20); i++) {
        fill.set[fill.head - strlen("\r\n$1048576\r\n") - 1] = (char)('A' + i);
        exchange(fd, fill.set, fill.set_len, "+OK\r\n", 5);
    }
    large_free(&fill);
}

/* A reader that stops in a long reply keeps its block for half of a lease; then its bytes are
 * copied, and it reads the same ones, whatever has become of the block.  With members the block is
 * another's. */
static void reader_stops(uint32_t len, bool members)
{
    struct fixture f;
    struct kv_view view;
    char name[2] = "l", request[32];
    fixture_open_with(&f, members ? 2 : 1, members,
                      (struct kv_blocks_config){.lease_lasts_ns = HW_SEC});
    if (members) {
        set_view(&f, 2, &view);
        name_at(&view, 1, name);
    }
    struct large l = large_make(name, 1, len, "");
    char *got = malloc(l.got_len);
    int slow = dial(&f), other = dial(&f), there = 0;
    assert_non_null(got);
    exchange(other, l.set, l.set_len, "+OK\r\n", 5);
    send_part(slow, request,
              (size_t)snprintf(request, sizeof(request), "GET %s\r\nPING\r\n", name));
    assert_int_equal(recv(slow, got, 1, MSG_PEEK), 1);
    for (uint64_t end = hw_now_ns() + 60 * HW_SEC;
         host_stat(f.hosts[0]).leases > 0 && hw_now_ns() < end; sched_yield())
        ;
    assert_int_equal(host_stat(f.hosts[0]).leases, 0);
    assert_int_equal(ioctl(slow, FIONREAD, &there), 0);
    assert_true(there < (int)len / 2); /* or it has read all, and the test shows nothing */
    snprintf(request, sizeof(request), "DEL %s\r\n", name);
    ask(other, request, ":1\r\n");
    fill_arena(other);
    assert_int_equal(recv(slow, got, l.got_len, MSG_WAITALL), l.got_len);
    assert_memory_equal(got, l.got, l.got_len);
    exchange(slow, "", 0, "+PONG\r\n", 7);
    large_free(&l);
    free(got);
    close(slow);
    close(other);
    fixture_close(&f);
}

static void a_reader_that_stops_does_not_keep_the_block(void **state)
{
    (void)state;
    reader_stops(3 << 20, false);
    reader_stops(9 << 20, false);
    reader_stops(9 << 20, true);
}

/* The reply has the value's bytes, or says that there is none. */
static void expect_or_gone(int fd, const struct large *l, char *got)
{
    assert_int_equal(recv(fd, got, 5, MSG_WAITALL), 5);
    if (memcmp(got, "$-1\r\n", 5) == 0)
        return;
    assert_int_equal(recv(fd, got + 5, l->got_len - 5, MSG_WAITALL), l->got_len - 5);
    assert_memory_equal(got, l->got, l->got_len);
}

/* A reader of an MGET pauses for longer than a lease lasts, and meanwhile the values, which are
 * another member's, are deleted and their room is used again. */
static void a_reader_that_pauses_is_sent_no_other_bytes(void **state)
{
    (void)state;
    enum { NAMES = 8, GETS = 4000, LEN = 4000 };
    struct fixture f;
    struct kv_view view;
    struct large values[NAMES];
    char request[64 + 7 * GETS], got[LEN + 64], name[2] = "a", del[] = "DEL ?\r\n";
    char names[NAMES];
    size_t len = (size_t)sprintf(request, "*%d\r\n$4\r\nMGET\r\n", 1 + GETS);
    fixture_open_with(&f, 2, true, (struct kv_blocks_config){.lease_lasts_ns = HW_SEC});
    set_view(&f, 2, &view);
    int slow = dial(&f), other = dial(&f);
    for (uint32_t n = 0; n < NAMES; name[0]++) {
        uint32_t owner[KV_COPIES_MAX];
        struct kv_block_key key = kv_named_key(0, name, 1);
        assert_true(name[0] <= 'z');
        assert_int_equal(kv_view_owners(&view, kv_block_hash(&key), 1, owner), 1);
        if (owner[0] != 1)
            continue;
        values[n] = large_make(name, (char)(16 * n), LEN, "");
        exchange(other, values[n].set, values[n].set_len, "+OK\r\n", 5);
        names[n++] = name[0];
    }
    for (int i = 0; i < GETS; i++)
        len += (size_t)sprintf(request + len, "$1\r\n%c\r\n", names[i % NAMES]);
    send_part(slow, request, len);
    assert_int_equal(recv(slow, got, 7, MSG_WAITALL), 7);
    assert_memory_equal(got, "*4000\r\n", 7);
    for (uint64_t end = hw_now_ns() + 3 * HW_SEC;
         host_stat(f.hosts[0]).leases_expired == 0 && hw_now_ns() < end; sched_yield())
        ;
    for (uint32_t n = 0; n < NAMES; n++) {
        del[4] = names[n];
        ask(other, del, ":1\r\n");
    }
    fill_arena(other);
    for (int i = 0; i < GETS; i++)
        expect_or_gone(slow, &values[i % NAMES], got);
    ask(slow, "PING\r\n", "+PONG\r\n");
    for (uint32_t n = 0; n < NAMES; n++)
        large_free(&values[n]);
    close(slow);
    close(other);
    fixture_close(&f);
}

/* A member joins while a value comes straight into the store: it belongs to the one or to the
 * other, and is whole where it belongs. */
static void a_value_is_where_it_belongs_when_members_change_meanwhile(void **state)
{
    (void)state;
    for (uint32_t owner = 0; owner < DAEMONS; owner++) {
        struct fixture f;
        struct kv_view view;
        char name[2];
        fixture_open_with(&f, DAEMONS, true, (struct kv_blocks_config){0});
        struct kv_member_info both[] = {{"a", kv_host_address(f.hosts[0])},
                                        {"b", kv_host_address(f.hosts[1])}};
        char why[RPC_WHY_CHARS];
        assert_int_equal(kv_view_make(9, both, 2, &view, why), 0);
        name_at(&view, owner, name);
        set_view(&f, 1, &view);
        int fd = dial(&f);
        ask(fd, "MSET t 1\r\n", "+OK\r\n"); /* from now on in a thread */
        ask(fd, "DEL t\r\n", ":1\r\n");
        struct large l = large_make(name, 1, 4 * VALUE, "");
        send_part(fd, l.set, l.set_len / 2);
        await_puts(&f, 1);
        set_view(&f, 2, &view);
        exchange(fd, l.set + l.set_len / 2, l.set_len - l.set_len / 2, "+OK\r\n", 5);
        await_puts(&f, 0);
        assert_int_equal(host_stat(f.hosts[owner]).blocks, 1);
        assert_int_equal(host_stat(f.hosts[1 - owner]).blocks, 0);
        await_get(fd, name, &l);
        large_free(&l);
        close(fd);
        fixture_close(&f);
    }
}

/* ---- gets that are asked for together ---- */

static void fixture_open_two(struct fixture *f, struct kv_view *view)
{
    fixture_open_with(f, DAEMONS, true, (struct kv_blocks_config){0});
    set_view(f, DAEMONS, view);
}

/* Names of both members, of nobody and the same one twice; a SET among them counts for those behind
 * it alone. */
static void replies_to_gets_asked_for_together_are_in_order(void **state)
{
    (void)state;
    enum { NAMES = 20 };
    struct fixture f;
    struct kv_view view;
    char request[1024] = "", reply[1024] = "", many[512] = "MGET", values[512] = "";
    size_t asked = 0, told = 0, named = 4, valued = 0;
    fixture_open_two(&f, &view);
    int fd = dial(&f);
    for (int i = 0; i < NAMES; i++) {
        snprintf(request, sizeof(request), "SET name%d %d\r\n", i, 100 + i);
        ask(fd, request, "+OK\r\n");
    }
    for (int i = 0; i < NAMES; i++) {
        int name = i % 7 == 6 ? i - 1 : i; /* twice, and another is left out */
        asked += (size_t)sprintf(request + asked, "GET name%d\r\n", name);
        valued += (size_t)sprintf(values + valued, "$3\r\n%d\r\n", 100 + name);
        named += (size_t)sprintf(many + named, " name%d", name);
    }
    told = (size_t)sprintf(reply, "%s$-1\r\n+OK\r\n$3\r\nnew\r\n+PONG\r\n", values);
    asked += (size_t)sprintf(request + asked, "GET no\r\nSET name3 new\r\nGET name3\r\nPING\r\n");
    exchange(fd, request, asked, reply, told);
    ask(fd, "SET name3 103\r\n", "+OK\r\n");
    sprintf(many + named, " no\r\n");
    sprintf(reply, "*%d\r\n%s$-1\r\n", NAMES + 1, values);
    ask(fd, many, reply);
    close(fd);
    fixture_close(&f);
}

/* Values that the first member has no room for at the same time are read one after the other. */
static void values_too_large_to_be_asked_for_together_are_read(void **state)
{
    (void)state;
    enum { LEN = 3 << 20, VALUES = 7, OWN = 3 };
    struct fixture f;
    struct kv_view view;
    struct large values[VALUES];
    char request[64] = "MGET", head[8];
    uint32_t count[DAEMONS] = {0}, found = 0;
    fixture_open_two(&f, &view);
    int fd = dial(&f);
    for (char name[2] = "a"; found < VALUES; name[0]++) {
        uint32_t owner[KV_COPIES_MAX];
        struct kv_block_key key = kv_named_key(0, name, 1);
        assert_true(name[0] <= 'z');
        assert_int_equal(kv_view_owners(&view, kv_block_hash(&key), 1, owner), 1);
        if (count[owner[0]]++ >= (owner[0] ? VALUES - OWN : OWN))
            continue;
        values[found] = large_make(name, (char)found, LEN, "");
        exchange(fd, values[found].set, values[found].set_len, "+OK\r\n", 5);
        snprintf(request + 4 + (size_t)2 * found, 6, " %s\r\n", name);
        found++;
    }
    send_part(fd, request, strlen(request));
    assert_int_equal(recv(fd, head, 4, MSG_WAITALL), 4);
    assert_memory_equal(head, "*7\r\n", 4);
    for (uint32_t i = 0; i < VALUES; i++) {
        exchange(fd, "", 0, values[i].got, values[i].got_len);
        large_free(&values[i]);
    }
    close(fd);
    fixture_close(&f);
}

/* ---- any requests ---- */

/* How long the first reply is; 0: it is not complete. */
static size_t reply_len(const char *p, size_t len)
{
    const char *line = memchr(p, '\n', len);
    if (!line)
        return 0;
    size_t at = (size_t)(line - p) + 1;
    long number = strtol(p + 1, NULL, 10);
    assert_non_null(strchr("+-:$*%_", p[0]));
    if (p[0] == '$' && number >= 0)
        return at + (size_t)number + 2 <= len ? at + (size_t)number + 2 : 0;
    for (long i = 0; strchr("*%", p[0]) && i < (p[0] == '%' ? 2 * number : number); i++) {
        size_t n = reply_len(p + at, len - at);
        if (n == 0)
            return 0;
        at += n;
    }
    return at;
}

/* Requests of words that mean something, or nothing, at random places. */
static size_t make_request(struct hw_rng *rng, char *out)
{
    static const char *const words[] = {
        "GET",     "SET",     "MGET",    "MSET",    "SETNX",    "SETEX",  "PSETEX",   "DEL",
        "UNLINK",  "EXISTS",  "STRLEN",  "TTL",     "PTTL",     "TYPE",   "GETRANGE", "DBSIZE",
        "INFO",    "KEYS",    "SCAN",    "FLUSHDB", "FLUSHALL", "PING",   "ECHO",     "SELECT",
        "CONFIG",  "CLIENT",  "COMMAND", "HELLO",   "AUTH",     "RESET",  "CLUSTER",  "MULTI",
        "MULTI",   "EXEC",    "EXEC",    "DISCARD", "NX",       "XX",     "EX",       "PX",
        "SETNAME", "GETNAME", "LIST",    "COUNT",   "MATCH",    "*",      "[a",       "a",
        "b",       "c",       "0",       "1",       "2",        "3",      "-1",       "99999999999",
        "",        "DOCS",    "default", "server",  "nosuch",   "\r\n-x", "string",   "maxmemory"};
    enum { WORDS = sizeof(words) / sizeof(words[0]), COMMANDS = 36, ARGS = 5 };
    uint64_t count = 1 + hw_rng_below(rng, ARGS);
    size_t len = (size_t)sprintf(out, "*%u\r\n", (unsigned)count);
    for (uint64_t i = 0; i < count; i++) {
        const char *word = words[hw_rng_below(rng, i == 0 ? COMMANDS : WORDS)];
        len += (size_t)sprintf(out + len, "$%zu\r\n%s\r\n", strlen(word), word);
    }
    return len;
}

/* Whatever is asked, every request has one reply, and the connection lives. */
static void any_requests_are_answered_in_step(void **state)
{
    (void)state;
    enum { TURNS = 400, REQUESTS = 24, REQUEST_CHARS = 160, GOT = 1 << 20 };
    static const char last[] = "RESET\r\nECHO the-last-one\r\n", end[] = "$12\r\nthe-last-one\r\n";
    struct fixture f;
    struct hw_rng rng;
    char *request = malloc(REQUESTS * REQUEST_CHARS + sizeof(last)), *got = malloc(GOT);
    assert_true(request && got);
    hw_rng_seed(&rng, 1);
    fixture_open(&f);
    int fd = dial(&f);
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t count = 1 + hw_rng_below(&rng, REQUESTS);
        size_t len = 0, have = 0, at = 0, n;
        for (uint64_t i = 0; i < count; i++)
            len += make_request(&rng, request + len);
        memcpy(request + len, last, sizeof(last) - 1);
        send_part(fd, request, len + sizeof(last) - 1);
        for (uint64_t replies = 0; replies < count + 2; at += n, replies++)
            while ((n = reply_len(got + at, have - at)) == 0) {
                ssize_t more = recv(fd, got + have, GOT - have - 1, 0);
                assert_true(more > 0);
                have += (size_t)more;
                got[have] = 0;
            }
        assert_int_equal(at, have);
        assert_memory_equal(got + at - strlen(end), end, strlen(end));
    }
    close(fd);
    fixture_close(&f);
    free(request);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_do_not_meet),
        cmocka_unit_test(a_value_that_is_replaced_is_never_missing),
        cmocka_unit_test(a_connection_that_does_not_read_holds_nobody_up),
        cmocka_unit_test(a_damaged_value_is_a_miss),
        cmocka_unit_test(closing_ends_all_connections),
        cmocka_unit_test(one_that_never_authenticates_keeps_no_place),
        cmocka_unit_test(a_value_may_be_cut_anywhere),
        cmocka_unit_test(a_slow_value_leaves_the_store),
        cmocka_unit_test(two_that_set_one_name_are_each_whole),
        cmocka_unit_test(a_value_for_which_there_is_no_room_is_refused_in_step),
        cmocka_unit_test(a_value_that_is_being_sent_is_not_evicted),
        cmocka_unit_test(a_reader_that_stops_does_not_keep_the_block),
        cmocka_unit_test(a_reader_that_pauses_is_sent_no_other_bytes),
        cmocka_unit_test(a_value_is_where_it_belongs_when_members_change_meanwhile),
        cmocka_unit_test(replies_to_gets_asked_for_together_are_in_order),
        cmocka_unit_test(values_too_large_to_be_asked_for_together_are_read),
        cmocka_unit_test(any_requests_are_answered_in_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
