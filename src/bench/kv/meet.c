/* Ranks meet: every rank calls rank 0, which answers when all have called. */
#include "bench/kv/benchkv.h"

#include "rpc/client.h"
#include "rpc/server.h"
#include "wire/le.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { METHOD_MEET = 1 };

static const uint64_t find_ns = 30 * HW_SEC;   /* for the other ranks to be started */
static const uint64_t meet_ns = 3600 * HW_SEC; /* the longest point, and then some */

struct waiting {
    struct rpc_ep *ep;
    struct rpc_msg *msg;
};

struct bkv_meet {
    uint32_t rank, ranks;
    struct rpc_client *client;
    /* Rank 0 only; the server's thread, but for `given`, which is read while no rank calls. */
    struct rpc_server *server;
    pthread_t thread;
    bool threaded;
    struct waiting waiting[KV_RANKS_MAX];
    uint32_t waiting_count;
    bool broken;
    uint8_t *given[KV_RANKS_MAX];
    size_t given_len[KV_RANKS_MAX];
};

/* ---- rank 0's server ---- */

static void answer_all(struct bkv_meet *m, int status)
{
    for (uint32_t i = 0; i < m->waiting_count; i++) {
        (void)rpc_reply(m->waiting[i].ep, m->waiting[i].msg, status, NULL);
        rpc_release(m->waiting[i].ep, m->waiting[i].msg);
        (void)rpc_flush(m->waiting[i].ep);
    }
    m->waiting_count = 0;
}

static void keep(struct bkv_meet *m, const struct rpc_msg *msg)
{
    uint32_t rank = wire_load32(msg->data);
    if (rank >= m->ranks || msg->len == 4)
        return;
    uint8_t *copy = malloc(msg->len - 4);
    if (!copy)
        return;
    memcpy(copy, msg->data + 4, msg->len - 4);
    free(m->given[rank]);
    m->given[rank] = copy;
    m->given_len[rank] = msg->len - 4;
}

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct bkv_meet *m = user;
    if (msg->kind != RPC_CALL || msg->len < 4 || m->broken || m->waiting_count == KV_RANKS_MAX) {
        if (msg->kind == RPC_CALL)
            (void)rpc_reply(ep, msg, -ECONNRESET, NULL);
        rpc_release(ep, msg);
        return;
    }
    keep(m, msg);
    m->waiting[m->waiting_count++] = (struct waiting){ep, msg};
    if (m->waiting_count == m->ranks)
        answer_all(m, 0);
}

/* One that leaves before the others are through breaks the run for all. */
static void on_closed(void *user, struct rpc_ep *ep, int status)
{
    struct bkv_meet *m = user;
    (void)status;
    for (uint32_t i = 0; i < m->waiting_count; i++) {
        if (m->waiting[i].ep != ep)
            continue;
        rpc_release(ep, m->waiting[i].msg);
        m->waiting[i] = m->waiting[--m->waiting_count];
        break;
    }
    m->broken = true;
    answer_all(m, -ECONNRESET);
}

static void *serve(void *user)
{
    rpc_server_run(((struct bkv_meet *)user)->server);
    return NULL;
}

static int open_server(struct bkv_meet *m, const struct rpc_addr *addr, char why[RPC_WHY_CHARS])
{
    static const struct rpc_server_ops ops = {.message = on_message, .closed = on_closed};
    struct rpc_server_options options = {.ops = &ops,
                                         .user = m,
                                         .config = {.heartbeat_ns = 20 * HW_SEC},
                                         .max_clients = KV_RANKS_MAX};
    int rc = rpc_server_create(&options, &m->server);
    if (rc == 0)
        rc = rpc_server_listen(m->server, addr, NULL, NULL, why);
    if (rc == 0)
        rc = -pthread_create(&m->thread, NULL, serve, m);
    m->threaded = rc == 0;
    return rc;
}

/* ---- every rank ---- */

/* Rank 0 may be started last. */
static int call_rank_0(struct bkv_meet *m, const struct rpc_addr *addr, char why[RPC_WHY_CHARS])
{
    struct rpc_client_options options = {.config = {.heartbeat_ns = 20 * HW_SEC}};
    uint64_t until = hw_now_ns() + find_ns;
    int rc;
    do {
        rc = rpc_client_connect(addr, NULL, &options, &m->client, why);
        struct timespec pause = {.tv_nsec = 20 * (long)HW_MS};
        if (rc)
            nanosleep(&pause, NULL);
    } while (rc && hw_now_ns() < until);
    return rc;
}

int bkv_meet_open(const struct rpc_addr *addr, uint32_t rank, uint32_t ranks, struct bkv_meet **out,
                  char why[RPC_WHY_CHARS])
{
    struct bkv_meet *m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    m->rank = rank;
    m->ranks = ranks;
    snprintf(why, RPC_WHY_CHARS, "the ranks cannot meet");
    int rc = rank == 0 ? open_server(m, addr, why) : 0;
    if (rc == 0)
        rc = call_rank_0(m, addr, why);
    if (rc) {
        bkv_meet_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

void bkv_meet_close(struct bkv_meet *m)
{
    if (!m)
        return;
    rpc_client_destroy(m->client);
    if (m->threaded) {
        rpc_server_stop(m->server);
        pthread_join(m->thread, NULL);
    }
    rpc_server_destroy(m->server);
    for (uint32_t i = 0; i < KV_RANKS_MAX; i++)
        free(m->given[i]);
    free(m);
}

int bkv_meet_give(struct bkv_meet *m, const uint8_t *data, size_t len)
{
    uint8_t rank[4];
    wire_store32(rank, m->rank);
    struct iovec iov[2] = {{rank, sizeof(rank)}, {(void *)(uintptr_t)data, len}};
    struct rpc_send send = {
        .method = METHOD_MEET, .iov = iov, .iov_count = len ? 2 : 1, .timeout_ns = meet_ns};
    return rpc_client_call(m->client, &send, NULL);
}

int bkv_meet_wait(struct bkv_meet *m)
{
    return bkv_meet_give(m, NULL, 0);
}

uint8_t *bkv_meet_take(struct bkv_meet *m, uint32_t rank, size_t *len)
{
    assert(m->rank == 0);
    uint8_t *data = m->given[rank];
    *len = m->given_len[rank];
    m->given[rank] = NULL;
    return data;
}
