/* Blocks between real processes: a client is killed with leases and puts, one scribbles over what
 * it commits, the daemon is killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kv/client/client.h"
#include "kv/daemon/host.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARENA = 16 << 20, STAGING = 16 << 20, MIB = 1 << 20, BLOCK = 8 << 20 };

struct rank {
    char dir[64], socket[96];
    pid_t pid;
};

static void say_and_wait(int fd)
{
    if (write(fd, "r", 1) != 1)
        _exit(1);
}

static void hear(int fd)
{
    char byte;
    assert_int_equal(read(fd, &byte, 1), 1);
}

static void daemon_process(const struct rank *r, int ready_fd)
{
    struct kv_host_options options = {.ranks = 1,
                                      .daemons = 1,
                                      .socket = r->socket,
                                      .store_bytes = 1 << 20,
                                      .store_entries = 64,
                                      .arena_bytes = ARENA,
                                      .blocks = {.entries = 256,
                                                 .high_percent = 100,
                                                 .low_percent = 100,
                                                 .put_lasts_ns = 600 * HW_SEC,
                                                 .lease_lasts_ns = 600 * HW_SEC}};
    struct kv_host *host;
    char why[RPC_WHY_CHARS];
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    if (kv_host_create(&options, &host, why)) {
        fprintf(stderr, "%s\n", why);
        _exit(1);
    }
    say_and_wait(ready_fd);
    kv_host_run(host);
    _exit(0);
}

static pid_t start_process(void (*body)(const struct rank *r, int fd), struct rank *r)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ready[0]);
        body(r, ready[1]);
    }
    close(ready[1]);
    hear(ready[0]);
    close(ready[0]);
    return pid;
}

static void end_process(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void rank_start(struct rank *r)
{
    *r = (struct rank){0};
    snprintf(r->dir, sizeof(r->dir), "/tmp/hawser-kvbi-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->socket, sizeof(r->socket), "%s/kvd", r->dir);
    r->pid = start_process(daemon_process, r);
}

static void rank_stop(struct rank *r)
{
    if (r->pid)
        end_process(r->pid);
    (void)unlink(r->socket);
    assert_int_equal(rmdir(r->dir), 0);
}

static struct kv_client *open_client(const struct rank *r)
{
    struct kv_client_options options = {
        .socket = r->socket, .staging_bytes = STAGING, .timeout_ns = 240 * HW_SEC};
    struct kv_client *client = NULL;
    char why[RPC_WHY_CHARS] = "";
    return kv_client_open(&options, &client, why) ? NULL : client;
}

static struct kv_block_key key_of(int n)
{
    struct kv_block_key key = {.len = 2, .bytes = {'k', (uint8_t)n}};
    return key;
}

static enum kv_result put(struct kv_client *c, int n, uint32_t len)
{
    struct kv_block_key key = key_of(n);
    uint8_t *data = malloc(len);
    assert_non_null(data);
    memset(data, n, len);
    enum kv_result result = kv_block_put(c, &key, 1, data, len);
    free(data);
    return result;
}

/* Leases blocks 0 to 7, starts puts, and waits to be killed. */
static void greedy_client(const struct rank *r, int fd)
{
    struct kv_client *c = open_client(r);
    struct kv_block_ref ref;
    struct kv_block_put put_out;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!c)
        _exit(1);
    for (int i = 0; i < 8; i++) {
        struct kv_block_key key = key_of(i), fresh = key_of(100 + i);
        if (kv_block_lease(c, &key, &ref) != KV_OK ||
            kv_block_put_start(c, &fresh, 1, MIB, &put_out) != KV_OK)
            _exit(1);
    }
    say_and_wait(fd);
    for (;;)
        pause();
}

static void a_killed_client_gives_back_all_it_held(void **state)
{
    (void)state;
    struct rank r;
    struct kv_blocks_stat s;
    rank_start(&r);
    struct kv_client *c = open_client(&r);
    assert_non_null(c);
    for (int i = 0; i < 8; i++)
        assert_int_equal(put(c, i, MIB), KV_OK);
    pid_t greedy = start_process(greedy_client, &r);
    assert_int_equal(kv_block_stat(c, &s), KV_OK);
    assert_int_equal(s.leases, 8);
    assert_int_equal(s.open_puts, 8);
    assert_int_equal(put(c, 50, MIB), KV_FULL); /* 16 MiB are held */
    end_process(greedy);
    do /* until the daemon has noticed */
        assert_int_equal(kv_block_stat(c, &s), KV_OK);
    while (s.leases > 0 || s.open_puts > 0);
    for (int i = 50; i < 66; i++)
        assert_int_equal(put(c, i, MIB), KV_OK);
    kv_client_close(c);
    rank_stop(&r);
}

/* Whatever is in the block, every reader gets the same, and it fits its checksum. */
static void scribbling_while_committing_harms_nobody_else(void **state)
{
    (void)state;
    struct rank r;
    uint8_t *first = malloc(BLOCK), *again = malloc(BLOCK);
    assert_true(first && again);
    rank_start(&r);
    struct kv_client *c = open_client(&r);
    assert_non_null(c);
    for (int round = 0; round < 5; round++) {
        struct kv_block_key key = key_of(round);
        struct kv_block_put put_out;
        uint32_t len;
        assert_int_equal(kv_block_put_start(c, &key, 1, BLOCK, &put_out), KV_OK);
        memset(put_out.data, round, BLOCK);
        int started[2];
        assert_int_equal(pipe(started), 0);
        pid_t scribbler = fork(); /* the staging area is shared memory */
        assert_true(scribbler >= 0);
        if (scribbler == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            say_and_wait(started[1]);
            for (volatile uint8_t *at = put_out.data;; at = put_out.data)
                for (uint32_t i = 0; i < BLOCK; i += 61)
                    at[i]++;
        }
        hear(started[0]);
        close(started[0]);
        close(started[1]);
        assert_int_equal(kv_block_put_commit(c, &put_out), KV_OK);
        end_process(scribbler);
        assert_int_equal(kv_block_get(c, &key, first, BLOCK, &len), KV_OK);
        assert_int_equal(kv_block_get(c, &key, again, BLOCK, &len), KV_OK);
        assert_memory_equal(first, again, BLOCK);
        assert_int_equal(kv_block_delete(c, &key), KV_OK);
    }
    kv_client_close(c);
    free(first);
    free(again);
    rank_stop(&r);
}

static void a_killed_daemon_is_peer_lost_and_never_a_miss(void **state)
{
    (void)state;
    struct rank r;
    struct kv_block_key key = key_of(1), other = key_of(2);
    struct kv_block_ref ref;
    struct kv_block_put put_out;
    struct kv_blocks_stat s;
    uint8_t byte;
    uint32_t len;
    bool there;
    rank_start(&r);
    struct kv_client *c = open_client(&r);
    assert_non_null(c);
    assert_int_equal(put(c, 1, 1), KV_OK);
    assert_int_equal(kv_block_lease(c, &key, &ref), KV_OK);
    assert_int_equal(kv_block_put_start(c, &other, 1, MIB, &put_out), KV_OK);
    end_process(r.pid);
    r.pid = 0;
    assert_int_equal(kv_block_get(c, &key, &byte, 1, &len), KV_PEER_LOST);
    assert_int_equal(kv_block_put_commit(c, &put_out), KV_PEER_LOST);
    assert_int_equal(kv_block_exists(c, &key, 1, &there), KV_PEER_LOST);
    assert_int_equal(kv_block_stat(c, &s), KV_PEER_LOST);
    assert_int_equal(ref.data[0], 1); /* what it leased stays mapped */
    assert_int_equal(kv_block_check(c, &ref), KV_OK);
    assert_int_equal(kv_block_release(c, &ref), KV_PEER_LOST);
    kv_client_close(c);
    rank_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_client_gives_back_all_it_held),
        cmocka_unit_test(scribbling_while_committing_harms_nobody_else),
        cmocka_unit_test(a_killed_daemon_is_peer_lost_and_never_a_miss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
