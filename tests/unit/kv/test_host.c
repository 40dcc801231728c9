/* Real daemons in threads, real clients: one rank and several, over every transport. */
#include "unit.h"

#include "base/clock.h"
#include "kv/client/client.h"
#include "kv/common/attach.h"
#include "kv/daemon/host.h"
#include "value_calls.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 3, DAEMONS_MAX = 2 };

struct cluster {
    char dir[64];
    char sockets[RANKS_MAX][96];
    struct rpc_addr addrs[RANKS_MAX];
    uint32_t ranks, daemons;
    struct kv_host *hosts[RANKS_MAX][DAEMONS_MAX];
    pthread_t threads[RANKS_MAX][DAEMONS_MAX];
};

static void *run_host(void *user)
{
    kv_host_run(user);
    return NULL;
}

static void host_start(struct cluster *c, uint32_t r, uint32_t i)
{
    struct kv_host_options options = {.rank = r,
                                      .ranks = c->ranks,
                                      .index = i,
                                      .daemons = c->daemons,
                                      .socket = c->sockets[r],
                                      .addrs = c->addrs,
                                      .store_bytes = 1 << 20,
                                      .store_entries = 4096,
                                      .heartbeat_ns = HW_SEC};
    char why[RPC_WHY_CHARS] = "";
    if (kv_host_create(&options, &c->hosts[r][i], why))
        fail_msg("%s", why);
    assert_int_equal(pthread_create(&c->threads[r][i], NULL, run_host, c->hosts[r][i]), 0);
}

static void host_stop(struct cluster *c, uint32_t r, uint32_t i)
{
    kv_host_stop(c->hosts[r][i]);
    pthread_join(c->threads[r][i], NULL);
    kv_host_destroy(c->hosts[r][i]);
    c->hosts[r][i] = NULL;
}

static void cluster_start(struct cluster *c, enum rpc_scheme scheme, uint32_t ranks,
                          uint32_t daemons)
{
    *c = (struct cluster){.ranks = ranks, .daemons = daemons};
    snprintf(c->dir, sizeof(c->dir), "/tmp/hawser-kv-XXXXXX");
    assert_non_null(mkdtemp(c->dir));
    static uint16_t port; /* below the range that the kernel hands out */
    for (uint32_t r = 0; r < ranks; r++) {
        snprintf(c->sockets[r], sizeof(c->sockets[r]), "%s/kvd%u", c->dir, r);
        c->addrs[r] = (struct rpc_addr){.scheme = scheme, .host = "127.0.0.1"};
        snprintf(c->addrs[r].path, sizeof(c->addrs[r].path), "%s/peer%u", c->dir, r);
        port =
            port ? (uint16_t)(port + DAEMONS_MAX) : (uint16_t)(20000 + (unsigned)getpid() % 10000);
        c->addrs[r].port = port;
    }
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t i = 0; i < daemons; i++)
            host_start(c, r, i);
}

static void cluster_stop(struct cluster *c)
{
    for (uint32_t r = 0; r < c->ranks; r++)
        for (uint32_t i = 0; i < c->daemons; i++)
            if (c->hosts[r][i])
                host_stop(c, r, i);
    assert_int_equal(rmdir(c->dir), 0); /* every socket file is gone */
}

static struct kv_client *open_client(struct cluster *c, uint32_t rank, uint32_t depth)
{
    struct kv_client_options options = {
        .socket = c->sockets[rank], .depth = depth, .timeout_ns = 240 * HW_SEC};
    struct kv_client *client = NULL;
    char why[RPC_WHY_CHARS] = "";
    if (kv_client_open(&options, &client, why))
        fail_msg("%s", why);
    return client;
}

/* A key that `rank` owns. */
static struct kv_key key_at(const struct cluster *c, uint32_t rank, uint64_t n)
{
    for (uint64_t i = n * 1000;; i++)
        if (kv_place_of(kv_key_u64(i), c->ranks, c->daemons).rank == rank)
            return kv_key_u64(i);
}

/* Asks until the answer is not `while_result`: peers connect, or are found dead, in their time. */
static enum kv_result ask_while(struct kv_client *client, struct kv_key key,
                                enum kv_result while_result)
{
    enum kv_result result = while_result;
    uint64_t until = hw_now_ns() + 240 * HW_SEC;
    while (result == while_result && hw_now_ns() < until)
        result = value_get(client, key, NULL, 0, NULL);
    return result;
}

static void exercise(struct kv_client *client, struct kv_key key)
{
    char value[3000], got[3000];
    uint32_t len = 0;
    for (uint32_t size = 0; size <= sizeof(value); size = size ? size * 3 : 1) {
        memset(value, (int)('a' + size % 26), sizeof(value));
        assert_int_equal(value_put(client, key, value, size), KV_OK);
        assert_int_equal(value_get(client, key, got, sizeof(got), &len), KV_OK);
        assert_int_equal(len, size);
        assert_memory_equal(got, value, size);
    }
    assert_int_equal(value_put(client, key, "four", 4), KV_OK);
    assert_int_equal(value_get(client, key, got, 3, &len), KV_TOO_LARGE);
    assert_int_equal(value_put(client, key, value, KV_VALUE_DEFAULT + 1), KV_TOO_LARGE);
    assert_int_equal(value_delete(client, key), KV_OK);
    assert_int_equal(value_delete(client, key), KV_MISS);
    assert_int_equal(value_get(client, key, got, sizeof(got), &len), KV_MISS);
}

static void one_rank_answers_every_operation(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c, RPC_SCHEME_UNIX, 1, 1);
    struct kv_client *client = open_client(&c, 0, 1);
    exercise(client, kv_key_of("name", 4));
    kv_client_close(client);
    cluster_stop(&c);
}

static void ranks_answer_for_each_other(enum rpc_scheme scheme, uint32_t ranks, uint32_t daemons)
{
    struct cluster c;
    cluster_start(&c, scheme, ranks, daemons);
    struct kv_client *clients[RANKS_MAX];
    for (uint32_t r = 0; r < ranks; r++)
        clients[r] = open_client(&c, r, 4);
    for (uint32_t from = 0; from < ranks; from++) {
        for (uint32_t to = 0; to < ranks; to++) {
            struct kv_key key = key_at(&c, to, from + 1);
            assert_int_equal(ask_while(clients[from], key, KV_PEER_LOST), KV_MISS);
            exercise(clients[from], key);
            assert_int_equal(value_put(clients[from], key, "seen", 4), KV_OK);
            char got[8];
            assert_int_equal(ask_while(clients[to], key, KV_PEER_LOST), KV_OK);
            assert_int_equal(value_get(clients[to], key, got, sizeof(got), NULL), KV_OK);
            assert_memory_equal(got, "seen", 4);
        }
    }
    for (uint32_t r = 0; r < ranks; r++)
        kv_client_close(clients[r]);
    cluster_stop(&c);
}

static void two_ranks_over_unix(void **state)
{
    (void)state;
    ranks_answer_for_each_other(RPC_SCHEME_UNIX, 2, 1);
}

static void three_ranks_over_tcp(void **state)
{
    (void)state;
    ranks_answer_for_each_other(RPC_SCHEME_TCP, 3, 1);
}

static void two_ranks_of_two_daemons_over_shm(void **state)
{
    (void)state;
    ranks_answer_for_each_other(RPC_SCHEME_SHM, 2, 2);
}

static void a_batch_has_a_result_for_each(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    struct cluster c;
    cluster_start(&c, RPC_SCHEME_UNIX, 2, 2);
    struct kv_client *client = open_client(&c, 0, 8);
    struct kv_ask asks[COUNT];
    struct kv_answer answers[COUNT];
    uint64_t numbers[COUNT], got[COUNT];
    assert_int_equal(ask_while(client, key_at(&c, 1, 1), KV_PEER_LOST), KV_MISS);
    assert_int_equal(ask_while(client, kv_key_u64(3), KV_PEER_LOST), KV_MISS);
    while (kv_client_peers_up(client) < 1)
        (void)value_get(client, kv_key_u64(3), NULL, 0, NULL);
    for (uint64_t i = 0; i < COUNT; i++) {
        numbers[i] = i * i;
        asks[i] = (struct kv_ask){.op = KV_PUT,
                                  .key = kv_key_u64(i),
                                  .value = &numbers[i],
                                  .value_len = sizeof(numbers[i]),
                                  .user = &numbers[i]};
    }
    assert_int_equal(kv_client_batch(client, asks, answers, COUNT), 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(answers[i].result, KV_OK);
        assert_ptr_equal(answers[i].user, &numbers[i]);
        asks[i] = (struct kv_ask){.op = i % 3 ? KV_GET : KV_DELETE,
                                  .key = kv_key_u64(i + COUNT / 2),
                                  .buffer = &got[i],
                                  .buffer_len = sizeof(got[i])};
    }
    assert_int_equal(kv_client_batch(client, asks, answers, COUNT), 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(answers[i].result, i < COUNT / 2 ? KV_OK : KV_MISS);
        if (i < COUNT / 2 && i % 3)
            assert_int_equal(got[i], numbers[i + COUNT / 2]);
    }
    kv_client_close(client);
    cluster_stop(&c);
}

static void a_lost_rank_is_told_apart_from_a_miss_and_may_come_back(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c, RPC_SCHEME_TCP, 2, 1);
    struct kv_client *client = open_client(&c, 0, 4);
    struct kv_key there = key_at(&c, 1, 1), here = key_at(&c, 0, 1);
    assert_int_equal(ask_while(client, there, KV_PEER_LOST), KV_MISS);
    assert_int_equal(value_put(client, there, "x", 1), KV_OK);
    host_stop(&c, 1, 0);
    assert_int_equal(ask_while(client, there, KV_OK), KV_PEER_LOST);
    assert_int_equal(value_get(client, here, NULL, 0, NULL), KV_MISS);
    host_start(&c, 1, 0);
    assert_int_equal(ask_while(client, there, KV_PEER_LOST), KV_MISS);
    kv_client_close(client);
    cluster_stop(&c);
}

static void the_end_of_the_own_daemon_ends_what_is_in_flight(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c, RPC_SCHEME_UNIX, 1, 1);
    struct kv_client *client = open_client(&c, 0, 4);
    assert_int_equal(value_put(client, kv_key_u64(1), "x", 1), KV_OK);
    host_stop(&c, 0, 0);
    assert_int_equal(value_get(client, kv_key_u64(1), NULL, 0, NULL), KV_PEER_LOST);
    assert_int_equal(kv_client_status(client), -ECONNRESET);
    assert_int_equal(value_get(client, kv_key_u64(1), NULL, 0, NULL), KV_PEER_LOST);
    kv_client_close(client);
    cluster_stop(&c);
}

static void a_full_store_says_so_and_changes_nothing(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c, RPC_SCHEME_UNIX, 1, 1);
    struct kv_client *client = open_client(&c, 0, 4);
    char value[4096] = {0};
    enum kv_result result = KV_OK;
    uint64_t i = 0;
    for (; result == KV_OK && i < 1000; i++)
        result = value_put(client, kv_key_u64(i), value, sizeof(value));
    assert_int_equal(result, KV_FULL);
    assert_int_equal(i, (1 << 20) / sizeof(value) + 1);
    assert_int_equal(value_get(client, kv_key_u64(i - 1), NULL, 0, NULL), KV_MISS);
    assert_int_equal(value_delete(client, kv_key_u64(0)), KV_OK);
    assert_int_equal(value_put(client, kv_key_u64(i), value, sizeof(value)), KV_OK);
    kv_client_close(client);
    cluster_stop(&c);
}

/* ---- many threads ---- */

struct worker {
    struct cluster *cluster;
    pthread_t thread;
    uint64_t id;
    int errors;
};

static void *work(void *user)
{
    struct worker *w = user;
    struct kv_client *client = open_client(w->cluster, (uint32_t)(w->id % w->cluster->ranks), 4);
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t value = w->id << 32 | i, got = 0;
        struct kv_key key = kv_key_u64(w->id * 1000 + i % 7);
        w->errors += value_put(client, key, &value, sizeof(value)) != KV_OK;
        w->errors += value_get(client, key, &got, sizeof(got), NULL) != KV_OK;
        w->errors += got != value;
    }
    kv_client_close(client);
    return NULL;
}

static void many_clients_get_their_own_answers(void **state)
{
    (void)state;
    enum { WORKERS = 12 };
    struct cluster c;
    struct worker workers[WORKERS];
    cluster_start(&c, RPC_SCHEME_SHM, 2, 1);
    for (uint32_t r = 0; r < 2; r++) {
        struct kv_client *client = open_client(&c, r, 1);
        assert_int_equal(ask_while(client, key_at(&c, !r, 900), KV_PEER_LOST), KV_MISS);
        kv_client_close(client);
    }
    for (uint64_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.cluster = &c, .id = i + 1};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].errors, 0);
    }
    cluster_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_answers_every_operation),
        cmocka_unit_test(two_ranks_over_unix),
        cmocka_unit_test(three_ranks_over_tcp),
        cmocka_unit_test(two_ranks_of_two_daemons_over_shm),
        cmocka_unit_test(a_batch_has_a_result_for_each),
        cmocka_unit_test(a_lost_rank_is_told_apart_from_a_miss_and_may_come_back),
        cmocka_unit_test(the_end_of_the_own_daemon_ends_what_is_in_flight),
        cmocka_unit_test(a_full_store_says_so_and_changes_nothing),
        cmocka_unit_test(many_clients_get_their_own_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
