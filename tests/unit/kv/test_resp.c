/* The door for Redis clients, with a daemon and several connections in threads. */
#include "unit.h"

#include "block_calls.h"
#include "kv/client/named.h"
#include "kv/daemon/host.h"
#include "kv/resp/door.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECTIONS = 4, ROUNDS = 50, VALUE = 150000, DAEMONS = 2 };

struct fixture {
    char dir[64], socket[96];
    struct kv_host *hosts[DAEMONS];
    pthread_t threads[DAEMONS];
    struct resp_door *door;
};

static void fixture_open(struct fixture *f)
{
    char why[RPC_WHY_CHARS] = "";
    *f = (struct fixture){.dir = "/tmp/hawser-resp-XXXXXX"};
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->socket, sizeof(f->socket), "%s/kvd", f->dir);
    struct resp_door_options door = {
        .addr = {.scheme = RPC_SCHEME_UNIX}, .socket = f->socket, .host_count = DAEMONS};
    for (uint32_t i = 0; i < DAEMONS; i++) {
        struct kv_host_options host = {.ranks = 1,
                                       .index = i,
                                       .daemons = DAEMONS,
                                       .socket = f->socket,
                                       .store_bytes = 1 << 20,
                                       .store_entries = 64,
                                       .arena_bytes = 16 << 20,
                                       .blocks = {.entries = 256}};
        if (kv_host_create(&host, &f->hosts[i], why))
            fail_msg("%s", why);
        assert_int_equal(pthread_create(&f->threads[i], NULL, run_host, f->hosts[i]), 0);
        door.hosts[i] = f->hosts[i];
    }
    snprintf(door.addr.path, sizeof(door.addr.path), "%.60s/redis", f->dir);
    if (resp_door_open(&door, &f->door, why))
        fail_msg("%s", why);
}

static void fixture_close(struct fixture *f)
{
    resp_door_close(f->door);
    for (uint32_t i = 0; i < DAEMONS; i++) {
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
        found = memmem(kv_host_arena(f.hosts[i]), 16 << 20, "precious", 8);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_do_not_meet),
        cmocka_unit_test(a_value_that_is_replaced_is_never_missing),
        cmocka_unit_test(a_connection_that_does_not_read_holds_nobody_up),
        cmocka_unit_test(a_damaged_value_is_a_miss),
        cmocka_unit_test(closing_ends_all_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
