/* hawser bench-blocks - blocks of the store, put and read, here and between two daemons, beside
 * memcpy and a TCP stream of the same run. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/hist.h"
#include "base/report/bench.h"
#include "base/units.h"
#include "bench/kv/bench_blocks_remote.h"
#include "bench/rpc/link.h"
#include "command/measure.h"
#include "kv/client/client.h"
#include "kv/common/checksum.h"
#include "kv/daemon/host.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPS_MAX = 101, BLOCKS_MAX = 4096 };

struct blocks_options {
    uint64_t size, blocks, reps;
    struct cmd_list only;
    bool json;
};

#define AT(field) offsetof(struct blocks_options, field)
static const struct cmd_option options[] = {
    {"size", 's', CMD_SIZE, AT(size), "of a block", "SIZE", "4MiB", 64, KV_BLOCK_MAX},
    {"blocks", 'n', CMD_U64, AT(blocks),
     "different ones, gone through in turn; together more than the caches", "N", "16",
     2 * REMOTE_BATCH, BLOCKS_MAX},
    {"reps", 'r', CMD_U64, AT(reps),
     "rounds over all blocks; figures are from the median time of a block", "N", "9", 1, REPS_MAX},
    {"only", 'o', CMD_LIST, AT(only),
     "only rows whose name holds TEXT, and what they are compared with", "TEXT"},
    {"json", 'j', CMD_FLAG, AT(json), "print one JSON object instead of a table"},
    {NULL},
};

struct bench {
    const struct blocks_options *o;
    struct kv_host *host;
    struct kv_client *client;
    pthread_t thread;
    uint8_t *plain;  /* the same blocks in memory of our own */
    uint8_t *buffer; /* what all sides copy into */
    struct remote_blocks *remote;
    enum kv_result failed;
};

/* ---- what is measured: a block, or several; each returns how many ---- */

static void note(struct bench *b, enum kv_result result)
{
    if (result != KV_OK && b->failed == KV_OK)
        b->failed = result;
}

static uint64_t side_memcpy(struct bench *b, uint64_t block)
{
    memcpy(b->buffer, b->plain + block * b->o->size, b->o->size);
    __asm__ volatile("" ::"r"(b->buffer) : "memory"); /* or the compiler might leave it out */
    return 1;
}

static uint64_t side_get(struct bench *b, uint64_t block)
{
    struct kv_block_key key = bench_block_key(block);
    uint32_t len;
    note(b, kv_block_get(b->client, &key, b->buffer, (uint32_t)b->o->size, &len));
    return 1;
}

/* A copy under a lease, not verified: what the store itself costs a reader. */
static uint64_t side_leased(struct bench *b, uint64_t block)
{
    struct kv_block_key key = bench_block_key(block);
    struct kv_block_ref ref;
    enum kv_result result = kv_block_lease(b->client, &key, &ref);
    note(b, result);
    if (result != KV_OK)
        return 1;
    memcpy(b->buffer, ref.data, ref.len);
    kv_block_let_go(b->client, &ref);
    return 1;
}

/* Without a copy of its own: the reader hashes what it reads where it lies. */
static uint64_t side_in_place(struct bench *b, uint64_t block)
{
    struct kv_block_key key = bench_block_key(block);
    struct kv_block_ref ref;
    enum kv_result result = kv_block_lease(b->client, &key, &ref);
    note(b, result);
    if (result != KV_OK)
        return 1;
    note(b, kv_block_check(b->client, &ref));
    kv_block_let_go(b->client, &ref);
    return 1;
}

/* What verifying takes by itself. */
static uint64_t side_checksum(struct bench *b, uint64_t block)
{
    uint64_t sum = kv_checksum_add(0, b->plain + block * b->o->size, b->o->size);
    __asm__ volatile("" ::"r"(sum));
    return 1;
}

/* Before a put, and not part of it. */
static void forget(struct bench *b, uint64_t block)
{
    struct kv_block_key key = bench_block_key(block);
    (void)kv_block_delete(b->client, &key);
}

static void forget_remote(struct bench *b, uint64_t block)
{
    remote_blocks_delete(b->remote, block);
}

/* The caller's copy into the staging area, and the daemon's into the arena. */
static uint64_t side_put(struct bench *b, uint64_t block)
{
    struct kv_block_key key = bench_block_key(block);
    note(b, kv_block_put(b->client, &key, 0, b->plain + block * b->o->size, (uint32_t)b->o->size));
    return 1;
}

static uint64_t side_tcp(struct bench *b, uint64_t block)
{
    note(b, remote_blocks_pour(b->remote, block));
    return 1;
}

static uint64_t side_remote_put(struct bench *b, uint64_t block)
{
    note(b, remote_blocks_put(b->remote, block));
    return 1;
}

static uint64_t side_remote_get(struct bench *b, uint64_t block)
{
    note(b, remote_blocks_lease(b->remote, block, 1));
    return 1;
}

static uint64_t side_remote_gets(struct bench *b, uint64_t block)
{
    uint64_t rest = b->o->blocks - block, count = rest < REMOTE_BATCH ? rest : REMOTE_BATCH;
    note(b, remote_blocks_lease(b->remote, block, count));
    return count;
}

typedef uint64_t side_fn(struct bench *b, uint64_t block);

enum { SIDE_MEMCPY = 0, SIDE_TCP = 6 }; /* what the others are compared with */

static const struct {
    const char *name;
    side_fn *go;
    int base;
    void (*ready)(struct bench *b, uint64_t block); /* before the clock starts; NULL: nothing */
} sides[] = {{"memcpy", side_memcpy, SIDE_MEMCPY, NULL},
             {"checksum", side_checksum, SIDE_MEMCPY, NULL},
             {"put", side_put, SIDE_MEMCPY, forget},
             {"leased", side_leased, SIDE_MEMCPY, NULL},
             {"get", side_get, SIDE_MEMCPY, NULL},
             {"in_place", side_in_place, SIDE_MEMCPY, NULL},
             {"tcp", side_tcp, SIDE_TCP, NULL},
             {"remote_put", side_remote_put, SIDE_TCP, forget_remote},
             {"remote_get", side_remote_get, SIDE_TCP, NULL},
             {"remote_get_4", side_remote_gets, SIDE_TCP, NULL}};
enum { SIDES = ARRAY_LEN(sides) };

static bool is_named(const struct blocks_options *o, size_t side)
{
    for (size_t i = 0; i < o->only.count; i++)
        if (strstr(sides[side].name, o->only.items[i]))
            return true;
    return o->only.count == 0;
}

/* Whether there is a row of it: it is named, or one is that is compared with it. */
static bool is_wanted(const struct blocks_options *o, size_t side)
{
    for (size_t i = 0; i < SIDES; i++)
        if ((i == side || sides[i].base == (int)side) && is_named(o, i))
            return true;
    return false;
}

/* ---- setting up ---- */

static void *run_host(void *user)
{
    kv_host_run(user);
    return NULL;
}

static enum cmd_exit start(struct bench *b, const char *dir, const char *socket)
{
    char why[RPC_WHY_CHARS] = "";
    uint64_t room = b->o->blocks * b->o->size;
    struct kv_host_options host = {.ranks = 1,
                                   .daemons = 1,
                                   .socket = socket,
                                   .store_bytes = 4096,
                                   .store_entries = 16,
                                   .arena_bytes = room + room / 16 + (1 << 20),
                                   .blocks = {.entries = (uint32_t)b->o->blocks + 16,
                                              .high_percent = 100,
                                              .low_percent = 100}};
    struct kv_client_options client = {
        .socket = socket, .staging_bytes = (uint32_t)b->o->size * 2, .timeout_ns = 30 * HW_SEC};
    if (kv_host_create(&host, &b->host, why))
        return cmd_fail(CMD_FAILED, "bench-blocks: %s", why);
    if (pthread_create(&b->thread, NULL, run_host, b->host)) {
        kv_host_destroy(b->host);
        b->host = NULL;
        return cmd_fail(CMD_FAILED, "bench-blocks: cannot start a thread");
    }
    if (kv_client_open(&client, &b->client, why))
        return cmd_fail(CMD_FAILED, "bench-blocks: %s", why);
    b->plain = malloc(room);
    b->buffer = malloc(b->o->size);
    if (!b->plain || !b->buffer)
        return cmd_fail(CMD_FAILED, "out of memory");
    for (uint64_t i = 0; i < room; i++)
        b->plain[i] = (uint8_t)(i * 7 + i / 4096);
    struct remote_options remote = {
        .dir = dir, .size = b->o->size, .blocks = b->o->blocks, .data = b->plain};
    if (remote_blocks_open(&remote, &b->remote, why))
        return cmd_fail(CMD_FAILED, "bench-blocks: %s", why);
    return CMD_DONE;
}

static void stop(struct bench *b)
{
    remote_blocks_close(b->remote);
    kv_client_close(b->client);
    if (b->host) {
        kv_host_stop(b->host);
        pthread_join(b->thread, NULL);
        kv_host_destroy(b->host);
    }
    free(b->plain);
    free(b->buffer);
}

/* ---- measuring ---- */

/* The sides in turns, so that what the machine does meanwhile falls on all.  The first round is of
 * all and not timed: it brings pages in, and blocks to where those that read expect them. */
static void measure(struct bench *b, struct hw_hist times[SIDES])
{
    for (uint64_t rep = 0; rep <= b->o->reps; rep++) {
        for (size_t i = 0; i < SIDES; i++) {
            if (rep > 0 && !is_wanted(b->o, i))
                continue;
            for (uint64_t block = 0, n; block < b->o->blocks; block += n) {
                if (sides[i].ready)
                    sides[i].ready(b, block);
                uint64_t start_ns = hw_now_ns();
                n = sides[i].go(b, block);
                if (rep > 0)
                    hw_hist_record(&times[i], (hw_now_ns() - start_ns) / n);
            }
        }
    }
}

/* Bytes in the median time of a block: what the machine does while it is not disturbed. */
static double rate_of(const struct bench *b, const struct hw_hist *times)
{
    uint64_t median = hw_hist_percentile(times, 50);
    return (double)b->o->size / (1 << 30) * 1e9 / (double)(median ? median : 1);
}

static enum cmd_exit print(const struct bench *b, const struct hw_hist times[SIDES])
{
    struct hw_bench bench;
    char text[HW_FORMAT_CHARS];
    hw_bench_begin(&bench, "blocks");
    for (size_t i = 0; i < SIDES; i++) {
        if (!is_wanted(b->o, i))
            continue;
        bool is_base = sides[i].base == (int)i;
        hw_bench_row(&bench, sides[i].name, rate_of(b, &times[i]), "GiB/s",
                     is_base ? NAN : rate_of(b, &times[sides[i].base]));
        hw_bench_field(&bench, "size", "%s", hw_format_size(text, b->o->size));
        hw_bench_field(&bench, "blocks", "%llu", (unsigned long long)b->o->blocks);
    }
    enum cmd_exit code = measure_print("bench-blocks", &bench, b->o->json, false);
    hw_bench_end(&bench);
    return code;
}

static enum cmd_exit measure_and_print(struct bench *b)
{
    struct hw_hist times[SIDES] = {0};
    enum cmd_exit code = CMD_DONE;
    for (size_t i = 0; i < SIDES && code == CMD_DONE; i++)
        if (hw_hist_init(&times[i]))
            code = cmd_fail(CMD_FAILED, "out of memory");
    if (code == CMD_DONE) {
        measure(b, times);
        code = b->failed == KV_OK ? print(b, times)
                                  : cmd_fail(CMD_FAILED, "bench-blocks: a block ended in %s",
                                             kv_result_name(b->failed));
    }
    for (size_t i = 0; i < SIDES; i++)
        hw_hist_fini(&times[i]);
    return code;
}

static enum cmd_exit run_in(struct bench *b, const char *dir)
{
    char socket[96];
    snprintf(socket, sizeof(socket), "%s/kvd", dir);
    enum cmd_exit code = start(b, dir, socket);
    if (code == CMD_DONE)
        code = measure_and_print(b);
    stop(b);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    struct bench b = {.o = values};
    size_t rows = 0;
    for (size_t i = 0; i < SIDES; i++)
        rows += is_wanted(b.o, i);
    if (rows == 0)
        return cmd_fail(CMD_USAGE, "bench-blocks: --only: no row's name holds '%s'",
                        b.o->only.items[0]);
    char why[RPC_WHY_CHARS];
    struct bench_dir dir;
    if (bench_dir_make(&dir, why))
        return cmd_fail(CMD_FAILED, "bench-blocks: %s", why);
    enum cmd_exit code = run_in(&b, dir.path);
    bench_dir_remove(&dir);
    return code;
}

const struct cmd_command cmd_bench_blocks = {
    .name = "bench-blocks",
    .summary = "blocks of the key-value store, beside memcpy and a TCP stream",
    .operands = "",
    .description =
        "A daemon and a client on this host.  leased copies a block out under a lease; get also "
        "verifies it, in the same pass; in_place verifies it where it lies; put copies it in, "
        "twice.  checksum is what verifying takes alone.  Ratios are to memcpy of as many bytes in "
        "the same run. Then two daemons joined by TCP on loopback: remote_put sends a block to the "
        "other one, remote_get brings one from it and leases it, remote_get_4 four at a time.  "
        "Ratios are to tcp, a plain stream of the same blocks between two threads.",
    .options = options,
    .examples = "hawser bench-blocks\n"
                "hawser bench-blocks --only get --reps 31\n"
                "hawser bench-blocks --size 16MiB --blocks 8 --json",
    .values_size = sizeof(struct blocks_options),
    .run = run,
};
