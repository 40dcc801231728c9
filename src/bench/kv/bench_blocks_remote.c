#include "bench/kv/bench_blocks_remote.h"

#include "bench/rpc/raw_limits.h"
#include "kv/client/client.h"
#include "kv/daemon/host.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NEAR, FAR, ENDS };

static const char *const names[ENDS] = {[NEAR] = "near", [FAR] = "far"};

struct remote_blocks {
    struct remote_options o;
    char sockets[ENDS][KV_SOCKET_CHARS];
    struct kv_host *hosts[ENDS];
    pthread_t threads[ENDS], pourer;
    bool started[ENDS], pours;
    struct kv_client *client; /* of the near one */
    struct kv_view view;
    uint64_t *keys; /* numbers whose owner is the far one */
    uint8_t *buffer;
    int fds[2]; /* ours, the raw sender's */
};

struct kv_block_key bench_block_key(uint64_t n)
{
    struct kv_block_key key = {.len = sizeof(n)};
    memcpy(key.bytes, &n, sizeof(n));
    return key;
}

/* ---- the raw stream ---- */

static int send_all(int fd, const uint8_t *data, uint64_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0)
            return -1;
        data += n;
        len -= (uint64_t)n;
    }
    return 0;
}

/* A byte asks for all blocks. */
static void *pour_main(void *user)
{
    struct remote_blocks *r = user;
    uint8_t go;
    while (recv(r->fds[1], &go, 1, 0) == 1)
        if (send_all(r->fds[1], r->o.data, r->o.size * r->o.blocks))
            break;
    return NULL;
}

enum kv_result remote_blocks_pour(struct remote_blocks *r, uint64_t block)
{
    uint64_t got = 0;
    if (block == 0 && send(r->fds[0], "g", 1, MSG_NOSIGNAL) != 1)
        return KV_PEER_LOST;
    while (got < r->o.size) {
        ssize_t n = recv(r->fds[0], r->buffer + got, r->o.size - got, 0);
        if (n <= 0)
            return KV_PEER_LOST;
        got += (uint64_t)n;
    }
    return KV_OK;
}

/* ---- blocks ---- */

void remote_blocks_delete(struct remote_blocks *r, uint64_t block)
{
    struct kv_block_key key = bench_block_key(r->keys[block]);
    (void)kv_block_delete(r->client, &key);
}

enum kv_result remote_blocks_put(struct remote_blocks *r, uint64_t block)
{
    struct kv_block_key key = bench_block_key(r->keys[block]);
    return kv_block_put(r->client, &key, 0, r->o.data + block * r->o.size, (uint32_t)r->o.size);
}

enum kv_result remote_blocks_lease(struct remote_blocks *r, uint64_t block, uint64_t count)
{
    struct kv_block_key keys[REMOTE_BATCH] = {0};
    struct kv_block_ref refs[REMOTE_BATCH];
    enum kv_result results[REMOTE_BATCH], worst = KV_OK;
    for (uint64_t i = 0; i < count; i++)
        keys[i] = bench_block_key(r->keys[block + i]);
    kv_block_lease_many(r->client, keys, (uint32_t)count, refs, results);
    for (uint64_t i = 0; i < count; i++) {
        if (results[i] == KV_OK)
            kv_block_let_go(r->client, &refs[i]);
        else
            worst = results[i];
    }
    return worst;
}

/* ---- setting up ---- */

static void *run_host(void *user)
{
    kv_host_run(user);
    return NULL;
}

static int start_host(struct remote_blocks *r, int end, char why[RPC_WHY_CHARS])
{
    struct rpc_addr addr = {.scheme = RPC_SCHEME_TCP, .host = "127.0.0.1"};
    uint64_t room = r->o.blocks / (end == NEAR ? 2 : 1) * r->o.size;
    struct kv_host_options host = {
        .ranks = 1,
        .daemons = 1,
        .member = names[end],
        .addrs = &addr,
        .socket = r->sockets[end],
        .store_bytes = 4096,
        .store_entries = 16,
        .arena_bytes = room + room / 16 + (1 << 20),
        .blocks = {.entries = (uint32_t)r->o.blocks + 16, .high_percent = 100, .low_percent = 100}};
    snprintf(r->sockets[end], sizeof(r->sockets[end]), "%s/%s", r->o.dir, names[end]);
    int rc = kv_host_create(&host, &r->hosts[end], why);
    if (rc)
        return rc;
    r->started[end] = pthread_create(&r->threads[end], NULL, run_host, r->hosts[end]) == 0;
    return r->started[end] ? 0 : -EAGAIN;
}

static int join_hosts(struct remote_blocks *r, char why[RPC_WHY_CHARS])
{
    struct kv_member_info infos[ENDS];
    for (int i = 0; i < ENDS; i++)
        infos[i] = (struct kv_member_info){names[i], kv_host_address(r->hosts[i])};
    int rc = kv_view_make(1, infos, ENDS, &r->view, why);
    for (int i = 0; i < ENDS && rc == 0; i++)
        rc = kv_host_set_view(r->hosts[i], &r->view);
    uint64_t until = hw_now_ns() + 10 * HW_SEC;
    const struct timespec pause = {.tv_nsec = HW_MS};
    while (rc == 0 && hw_counter_load(&kv_host_stats(r->hosts[NEAR])->peers_up) == 0) {
        nanosleep(&pause, NULL);
        rc = hw_now_ns() < until ? 0 : -ETIMEDOUT;
    }
    return rc;
}

static void choose_keys(struct remote_blocks *r)
{
    uint64_t far_id = kv_member_id(names[FAR]);
    uint32_t owners[KV_COPIES_MAX];
    for (uint64_t n = 0, found = 0; found < r->o.blocks; n++) {
        struct kv_block_key key = bench_block_key(n);
        (void)kv_view_owners(&r->view, kv_block_hash(&key), 1, owners);
        if (r->view.members[owners[0]].id == far_id)
            r->keys[found++] = n;
    }
}

static int start_all(struct remote_blocks *r, char why[RPC_WHY_CHARS])
{
    struct kv_client_options client = {.socket = r->sockets[NEAR],
                                       .staging_bytes = (uint32_t)r->o.size * 2,
                                       .timeout_ns = 30 * HW_SEC};
    r->keys = calloc(r->o.blocks, sizeof(*r->keys));
    r->buffer = malloc(r->o.size);
    int rc = r->keys && r->buffer ? raw_tcp_pair(r->fds) : -ENOMEM;
    if (rc == 0)
        rc = -pthread_create(&r->pourer, NULL, pour_main, r);
    r->pours = rc == 0;
    for (int i = 0; i < ENDS && rc == 0; i++)
        rc = start_host(r, i, why);
    if (rc == 0)
        rc = join_hosts(r, why);
    if (rc == 0)
        rc = kv_client_open(&client, &r->client, why);
    if (rc == 0)
        choose_keys(r);
    return rc;
}

int remote_blocks_open(const struct remote_options *options, struct remote_blocks **out,
                       char why[RPC_WHY_CHARS])
{
    struct remote_blocks *r = calloc(1, sizeof(*r));
    why[0] = '\0';
    if (!r) {
        snprintf(why, RPC_WHY_CHARS, "out of memory");
        return -ENOMEM;
    }
    r->o = *options;
    r->fds[0] = r->fds[1] = -1;
    int rc = start_all(r, why);
    if (rc) {
        if (!why[0])
            snprintf(why, RPC_WHY_CHARS, "cannot join two daemons: %s", strerror(-rc));
        remote_blocks_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void remote_blocks_close(struct remote_blocks *r)
{
    if (!r)
        return;
    kv_client_close(r->client);
    for (int i = 0; i < ENDS; i++) {
        if (r->started[i]) {
            kv_host_stop(r->hosts[i]);
            pthread_join(r->threads[i], NULL);
        }
    }
    for (int i = 0; i < ENDS; i++) /* not before: one that runs would miss the other, and say so */
        kv_host_destroy(r->hosts[i]);
    if (r->pours) {
        (void)shutdown(r->fds[0], SHUT_RDWR); /* ends its receive */
        pthread_join(r->pourer, NULL);
    }
    for (int i = 0; i < 2; i++)
        if (r->fds[i] >= 0)
            close(r->fds[i]);
    free(r->keys);
    free(r->buffer);
    free(r);
}
