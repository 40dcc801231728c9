/* The door for Redis clients, with a daemon and several connections in threads. */
#include "unit.h"

#include "block_calls.h"
#include "kv/daemon/host.h"
#include "kv/resp/door.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECTIONS = 4, ROUNDS = 50, VALUE = 100000 };

struct fixture {
    char dir[64], socket[96];
    struct kv_host *host;
    pthread_t thread;
    struct resp_door *door;
};

static void fixture_open(struct fixture *f)
{
    char why[RPC_WHY_CHARS] = "";
    *f = (struct fixture){.dir = "/tmp/hawser-resp-XXXXXX"};
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->socket, sizeof(f->socket), "%s/kvd", f->dir);
    struct kv_host_options host = {.ranks = 1,
                                   .daemons = 1,
                                   .socket = f->socket,
                                   .store_bytes = 1 << 20,
                                   .store_entries = 64,
                                   .arena_bytes = 16 << 20,
                                   .blocks = {.entries = 256}};
    if (kv_host_create(&host, &f->host, why))
        fail_msg("%s", why);
    assert_int_equal(pthread_create(&f->thread, NULL, run_host, f->host), 0);
    struct resp_door_options door = {.addr = {.scheme = RPC_SCHEME_UNIX}, .socket = f->socket};
    snprintf(door.addr.path, sizeof(door.addr.path), "%.60s/redis", f->dir);
    if (resp_door_open(&door, &f->door, why))
        fail_msg("%s", why);
}

static void fixture_close(struct fixture *f)
{
    resp_door_close(f->door);
    kv_host_stop(f->host);
    pthread_join(f->thread, NULL);
    kv_host_destroy(f->host);
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

/* A name of its own: what was set is what is got. */
static void *run_load(void *user)
{
    const struct load *l = user;
    static const char head[] = "*3\r\n$3\r\nSET\r\n$1\r\n?\r\n$100000\r\n";
    size_t len = sizeof(head) - 1 + VALUE + 2;
    char *set = malloc(len), *got = malloc(9 + VALUE + 2);
    int fd = dial(l->f);
    assert_true(set && got);
    memcpy(set, head, sizeof(head) - 1);
    set[strlen("*3\r\n$3\r\nSET\r\n$1\r\n")] = l->name;
    memcpy(set + len - 2, "\r\n", 2);
    memcpy(got, "$100000\r\n", 9);
    memcpy(got + 9 + VALUE, "\r\n", 2);
    for (int i = 0; i < ROUNDS; i++) {
        char get[] = "GET ?\r\n";
        get[4] = l->name;
        memset(set + sizeof(head) - 1, l->name + i, VALUE);
        memset(got + 9, l->name + i, VALUE);
        exchange(fd, set, len, "+OK\r\n", 5);
        exchange(fd, get, sizeof(get) - 1, got, 9 + VALUE + 2);
    }
    close(fd);
    free(set);
    free(got);
    return NULL;
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
        cmocka_unit_test(closing_ends_all_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
