/* Real processes: a daemon or a client is killed or stopped under load; what others see of it, and
 * what is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kv/client/client.h"
#include "kv/common/attach.h"
#include "kv/daemon/host.h"
#include "sanitized.h"
#include "unit/kv/value_calls.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A sanitizer keeps freed memory for a while, to catch its use. */
enum { FREED_IS_KEPT = SANITIZED };

enum { RANKS_MAX = 2, ATTACH_CYCLES = 10000, LEAK_WARMUP = 100 };

struct cluster {
    char dir[64];
    char sockets[RANKS_MAX][96];
    struct rpc_addr addrs[RANKS_MAX];
    uint32_t ranks;
    pid_t pids[RANKS_MAX];
};

/* ---- daemons in processes of their own ---- */

/* Far longer than a request lasts that is to time out before its rank is lost. */
static const uint64_t heartbeat_ns = 2 * HW_SEC;
static const uint64_t patience_ns = 240 * HW_SEC; /* of a request that is to be answered */

static void daemon_process(const struct cluster *c, uint32_t rank, int ready_fd)
{
    struct kv_host_options options = {.rank = rank,
                                      .ranks = c->ranks,
                                      .daemons = 1,
                                      .socket = c->sockets[rank],
                                      .addrs = c->addrs,
                                      .store_bytes = 1 << 20,
                                      .store_entries = 4096,
                                      .heartbeat_ns = heartbeat_ns};
    struct kv_host *host;
    char why[RPC_WHY_CHARS];
    setenv("VENUS_LOG_LEVEL", "ERROR", 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    if (kv_host_create(&options, &host, why)) {
        fprintf(stderr, "%s\n", why);
        _exit(1);
    }
    if (write(ready_fd, "r", 1) != 1)
        _exit(1);
    kv_host_run(host);
    _exit(0);
}

static void rank_start(struct cluster *c, uint32_t rank)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    c->pids[rank] = fork();
    assert_true(c->pids[rank] >= 0);
    if (c->pids[rank] == 0) {
        close(ready[0]);
        daemon_process(c, rank, ready[1]);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
}

static void rank_kill(struct cluster *c, uint32_t rank)
{
    assert_int_equal(kill(c->pids[rank], SIGKILL), 0);
    assert_int_equal(waitpid(c->pids[rank], NULL, 0), c->pids[rank]);
    c->pids[rank] = 0;
}

static void cluster_start(struct cluster *c, uint32_t ranks, enum rpc_scheme scheme)
{
    *c = (struct cluster){.ranks = ranks};
    snprintf(c->dir, sizeof(c->dir), "/tmp/hawser-kvf-XXXXXX");
    assert_non_null(mkdtemp(c->dir));
    for (uint32_t r = 0; r < ranks; r++) {
        snprintf(c->sockets[r], sizeof(c->sockets[r]), "%s/kvd%u", c->dir, r);
        c->addrs[r] = (struct rpc_addr){.scheme = scheme};
        snprintf(c->addrs[r].path, sizeof(c->addrs[r].path), "%s/peer%u", c->dir, r);
    }
    for (uint32_t r = 0; r < ranks; r++)
        rank_start(c, r);
}

static void cluster_stop(struct cluster *c)
{
    for (uint32_t r = 0; r < c->ranks; r++)
        if (c->pids[r])
            rank_kill(c, r);
    for (uint32_t r = 0; r < c->ranks; r++) { /* killed: their socket files stay */
        (void)unlink(c->sockets[r]);
        (void)unlink(c->addrs[r].path);
    }
    assert_int_equal(rmdir(c->dir), 0);
}

static struct kv_client *open_client(const struct cluster *c, uint32_t rank, uint64_t timeout_ns)
{
    struct kv_client_options options = {
        .socket = c->sockets[rank], .depth = 8, .timeout_ns = timeout_ns};
    struct kv_client *client = NULL;
    char why[RPC_WHY_CHARS] = "";
    if (hasty_client_open(&options, &client, why))
        fail_msg("%s", why);
    return client;
}

static struct kv_key key_at(const struct cluster *c, uint32_t rank)
{
    for (uint64_t i = 0;; i++)
        if (kv_place_of(kv_key_u64(i), c->ranks, 1).rank == rank)
            return kv_key_u64(i);
}

static enum kv_result ask_while(struct kv_client *client, struct kv_key key, enum kv_result stop_at)
{
    enum kv_result result;
    uint64_t until = hw_now_ns() + patience_ns;
    do
        result = value_get(client, key, NULL, 0, NULL);
    while (result != stop_at && hw_now_ns() < until);
    return result;
}

/* Keeps the client's slots full of gets; returns the last result that was not OK or MISS. */
static enum kv_result load_until_trouble(struct kv_client *client, struct kv_key key)
{
    uint64_t until = hw_now_ns() + patience_ns;
    enum kv_result trouble = KV_OK;
    while (trouble == KV_OK && hw_now_ns() < until) {
        struct kv_answer answers[16];
        struct kv_ask ask = {.op = KV_GET, .key = key};
        int rc;
        while ((rc = kv_client_submit(client, &ask)) == 0)
            ;
        if (rc == -ECONNRESET) /* all that it was asked, it had answered before it went */
            return KV_PEER_LOST;
        int n = kv_client_wait(client, answers, 16, HW_SEC);
        for (int i = 0; i < n; i++)
            if (answers[i].result != KV_OK && answers[i].result != KV_MISS)
                trouble = answers[i].result;
    }
    return trouble;
}

static void drain(struct kv_client *client)
{
    struct kv_answer answers[16];
    int n = 1;
    while (n > 0 && kv_client_in_flight(client) > 0)
        n = kv_client_wait(client, answers, 16, patience_ns);
    assert_int_equal(kv_client_in_flight(client), 0);
}

/* ---- daemons ---- */

/* A helper process acts on another while the test has requests in flight. */
static pid_t after_requests(const struct cluster *c, uint32_t rank, int signal_number)
{
    pid_t victim = c->pids[rank], helper = fork();
    assert_true(helper >= 0);
    if (helper == 0) {
        struct kv_client *client = open_client(c, 0, patience_ns);
        for (int i = 0; i < 200; i++) /* the load is under way when these are through */
            (void)value_get(client, kv_key_u64(1), NULL, 0, NULL);
        kill(victim, signal_number);
        _exit(0);
    }
    return helper;
}

static void a_killed_rank_is_lost_and_comes_back(enum rpc_scheme scheme)
{
    struct cluster c;
    cluster_start(&c, 2, scheme);
    struct kv_client *client = open_client(&c, 0, patience_ns);
    struct kv_key there = key_at(&c, 1), here = key_at(&c, 0);
    assert_int_equal(ask_while(client, there, KV_MISS), KV_MISS);
    assert_int_equal(value_put(client, here, "mine", 4), KV_OK);
    pid_t helper = after_requests(&c, 1, SIGKILL);
    assert_int_equal(load_until_trouble(client, there), KV_PEER_LOST);
    drain(client);
    assert_int_equal(waitpid(helper, NULL, 0), helper);
    assert_int_equal(waitpid(c.pids[1], NULL, 0), c.pids[1]);
    assert_int_equal(value_get(client, there, NULL, 0, NULL), KV_PEER_LOST);
    assert_int_equal(value_get(client, here, NULL, 0, NULL), KV_OK);
    rank_start(&c, 1);
    assert_int_equal(ask_while(client, there, KV_MISS), KV_MISS);
    kv_client_close(client);
    cluster_stop(&c);
}

static void a_rank_killed_under_load_over_unix(void **state)
{
    (void)state;
    a_killed_rank_is_lost_and_comes_back(RPC_SCHEME_UNIX);
}

static void a_rank_killed_under_load_over_shm(void **state)
{
    (void)state;
    a_killed_rank_is_lost_and_comes_back(RPC_SCHEME_SHM);
}

static void a_stopped_rank_ends_requests_by_their_deadline(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c, 2, RPC_SCHEME_UNIX);
    struct kv_client *client = open_client(&c, 0, 100 * HW_MS);
    struct kv_key there = key_at(&c, 1);
    assert_int_equal(ask_while(client, there, KV_MISS), KV_MISS);
    assert_int_equal(kill(c.pids[1], SIGSTOP), 0);
    assert_int_equal(ask_while(client, there, KV_TIMEOUT), KV_TIMEOUT);
    /* Silent for the heartbeat's time it counts as lost: then nobody waits any more. */
    assert_int_equal(ask_while(client, there, KV_PEER_LOST), KV_PEER_LOST);
    assert_int_equal(kill(c.pids[1], SIGCONT), 0);
    assert_int_equal(ask_while(client, there, KV_MISS), KV_MISS);
    kv_client_close(client);
    cluster_stop(&c);
}

static void the_own_daemon_killed_under_load(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c, 1, RPC_SCHEME_UNIX);
    struct kv_client *client = open_client(&c, 0, patience_ns);
    pid_t helper = after_requests(&c, 0, SIGKILL);
    assert_int_equal(load_until_trouble(client, kv_key_u64(5)), KV_PEER_LOST);
    drain(client);
    assert_int_equal(waitpid(helper, NULL, 0), helper);
    assert_int_equal(kv_client_status(client), -ECONNRESET);
    kv_client_close(client);
    assert_int_equal(waitpid(c.pids[0], NULL, 0), c.pids[0]);
    rank_start(&c, 0); /* the stale socket is replaced */
    client = open_client(&c, 0, patience_ns);
    assert_int_equal(value_get(client, kv_key_u64(5), NULL, 0, NULL), KV_MISS);
    kv_client_close(client);
    cluster_stop(&c);
}

static void the_own_daemon_stopped_and_late_answers_dropped(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c, 1, RPC_SCHEME_UNIX);
    struct kv_client *client = open_client(&c, 0, 50 * HW_MS);
    struct kv_client *patient = open_client(&c, 0, patience_ns);
    char got[8] = "";
    assert_int_equal(value_put(patient, kv_key_u64(1), "one", 3), KV_OK);
    assert_int_equal(kill(c.pids[0], SIGSTOP), 0);
    for (int i = 0; i < 10; i++) /* more than it has slots: the last find none free */
        assert_int_equal(value_get(client, kv_key_u64(1), got, sizeof(got), NULL), KV_TIMEOUT);
    assert_string_equal(got, "");
    assert_int_equal(kill(c.pids[0], SIGCONT), 0);
    assert_int_equal(value_put(patient, kv_key_u64(1), "two", 3), KV_OK);
    enum kv_result result;
    uint64_t until = hw_now_ns() + patience_ns;
    do
        result = value_get(client, kv_key_u64(1), got, sizeof(got), NULL);
    while (result == KV_TIMEOUT && hw_now_ns() < until);
    assert_int_equal(result, KV_OK);
    assert_memory_equal(got, "two", 3); /* not what a late answer brought */
    kv_client_close(client);
    kv_client_close(patient);
    cluster_stop(&c);
}

/* ---- clients ---- */

static int descriptors_of(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* Pages of memory, and mappings. */
static void memory_of(pid_t pid, long *pages, int *maps)
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    FILE *f = fopen(path, "r");
    long size;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &size, pages), 2);
    fclose(f);
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    f = fopen(path, "r");
    assert_non_null(f);
    for (*maps = 0; fgets(line, sizeof(line), f);)
        ++*maps;
    fclose(f);
}

/* All memory that the daemon shares with a client has no name that could outlive both. */
static void expect_nameless_memory(pid_t pid)
{
    char path[64], line[512];
    int nameless = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        assert_null(strstr(line, "/dev/shm/"));
        nameless += strstr(line, "/memfd:hawser") != NULL;
    }
    fclose(f);
    assert_true(nameless > 0);
}

/* Waits until the daemon has let go of every other client. */
static void await_descriptors(pid_t pid, int at_most)
{
    uint64_t until = hw_now_ns() + patience_ns;
    while (descriptors_of(pid) > at_most && hw_now_ns() < until)
        sched_yield();
    assert_true(descriptors_of(pid) <= at_most);
}

static void ten_thousand_attaches_leave_nothing_behind(void **state)
{
    (void)state;
    struct cluster c;
    int maps_before, maps_after;
    long pages_before, pages_after;
    cluster_start(&c, 1, RPC_SCHEME_UNIX);
    int fds = descriptors_of(c.pids[0]);
    for (int i = 0; i < ATTACH_CYCLES; i++) {
        struct kv_client *client = open_client(&c, 0, patience_ns);
        if (i % 16 == 0)
            assert_int_equal(value_put(client, kv_key_u64(7), "x", 1), KV_OK);
        if (i == 0)
            expect_nameless_memory(c.pids[0]);
        kv_client_close(client);
        if (i == LEAK_WARMUP) {
            await_descriptors(c.pids[0], fds);
            memory_of(c.pids[0], &pages_before, &maps_before);
        }
    }
    await_descriptors(c.pids[0], fds);
    memory_of(c.pids[0], &pages_after, &maps_after);
    /* 10,000 leaks of a page would be ten times as much. */
    assert_true(FREED_IS_KEPT || pages_after - pages_before < 1024);
    assert_true(maps_after - maps_before < 100);
    cluster_stop(&c);
}

static void clients_killed_under_load_harm_nobody(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c, 2, RPC_SCHEME_UNIX);
    struct kv_client *client = open_client(&c, 0, patience_ns);
    struct kv_key there = key_at(&c, 1);
    assert_int_equal(ask_while(client, there, KV_MISS), KV_MISS);
    int fds = descriptors_of(c.pids[0]);
    for (int round = 0; round < 20; round++) {
        int ready[2];
        char byte;
        assert_int_equal(pipe(ready), 0);
        pid_t victim = fork();
        assert_true(victim >= 0);
        if (victim == 0) {
            struct kv_client *mine = open_client(&c, 0, patience_ns);
            if (write(ready[1], "r", 1) != 1)
                _exit(1);
            (void)load_until_trouble(mine, round % 2 ? there : key_at(&c, 0));
            _exit(0);
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        assert_int_equal(value_put(client, there, "ok", 2), KV_OK);
        assert_int_equal(kill(victim, SIGKILL), 0);
        assert_int_equal(waitpid(victim, NULL, 0), victim);
        assert_int_equal(value_get(client, there, NULL, 0, NULL), KV_OK);
    }
    await_descriptors(c.pids[0], fds);
    kv_client_close(client);
    cluster_stop(&c);
}

/* A client of our own making that writes what it likes. */
static void scribbling_over_a_region_harms_its_owner_alone(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c, 1, RPC_SCHEME_UNIX);
    struct kv_client *good = open_client(&c, 0, patience_ns);
    char value[32] = "what must stay as it is";
    assert_int_equal(value_put(good, kv_key_u64(1), value, sizeof(value)), KV_OK);
    for (unsigned round = 1; round <= 30; round++) {
        pid_t victim = fork();
        assert_true(victim >= 0);
        if (victim == 0) {
            char why[RPC_WHY_CHARS];
            struct rpc_addr addr = {.scheme = RPC_SCHEME_UNIX};
            struct rpc_transport *t;
            struct kv_region_shape shape = {16, 256};
            uint8_t request[KV_ATTACH_BYTES], offer[KV_OFFER_BYTES];
            struct iovec out = {request, sizeof(request)}, in = {offer, sizeof(offer)};
            struct kv_attachment a;
            int fds[KV_OFFER_FDS];
            snprintf(addr.path, sizeof(addr.path), "%s", c.sockets[0]);
            if (rpc_dial(&addr, NULL, &t, why))
                _exit(1);
            t->ops->expect_fds(t);
            kv_attach_encode(&shape, request);
            if (t->ops->send(t, &out, 1) < 0 || t->ops->recv(t, &in, 1, patience_ns) < 0)
                _exit(1);
            for (int i = 0; i < KV_OFFER_FDS; i++)
                fds[i] = t->ops->take_fd(t);
            if (kv_attachment_take(fds, &shape, &a))
                _exit(1);
            srandom(round);
            for (int i = 0; i < 20000; i++) {
                size_t at = (size_t)random() % (a.bytes - 4);
                uint32_t junk = (uint32_t)random() >> random() % 32;
                memcpy((uint8_t *)a.map + at, &junk, sizeof(junk));
                if (i % 64 == 0)
                    (void)eventfd_write(a.daemon_bell, 1);
            }
            _exit(0);
        }
        int status;
        assert_int_equal(value_put(good, kv_key_u64(round + 10), value, 8), KV_OK);
        assert_int_equal(waitpid(victim, &status, 0), victim);
        assert_int_equal(status, 0);
    }
    char got[32];
    assert_int_equal(value_get(good, kv_key_u64(1), got, sizeof(got), NULL), KV_OK);
    assert_int_equal(kill(c.pids[0], 0), 0); /* alive */
    kv_client_close(good);
    cluster_stop(&c);
}

static void callers_that_say_nothing_or_nonsense_are_dropped(void **state)
{
    (void)state;
    struct cluster c;
    cluster_start(&c, 1, RPC_SCHEME_UNIX);
    struct rpc_addr addr = {.scheme = RPC_SCHEME_UNIX};
    char why[RPC_WHY_CHARS];
    snprintf(addr.path, sizeof(addr.path), "%s", c.sockets[0]);
    int fds = descriptors_of(c.pids[0]);
    struct rpc_transport *silent[8];
    for (int i = 0; i < 8; i++) {
        uint8_t junk[KV_ATTACH_BYTES] = {1, 2, 3};
        struct iovec iov = {junk, sizeof(junk)};
        assert_int_equal(rpc_dial(&addr, NULL, &silent[i], why), 0);
        if (i % 2)
            assert_true(silent[i]->ops->send(silent[i], &iov, 1) > 0);
    }
    struct kv_client *client = open_client(&c, 0, patience_ns); /* served meanwhile */
    assert_int_equal(value_get(client, kv_key_u64(1), NULL, 0, NULL), KV_MISS);
    kv_client_close(client);
    for (int i = 0; i < 8; i++)
        rpc_transport_destroy(silent[i]);
    await_descriptors(c.pids[0], fds);
    cluster_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_killed_under_load_over_unix),
        cmocka_unit_test(a_rank_killed_under_load_over_shm),
        cmocka_unit_test(a_stopped_rank_ends_requests_by_their_deadline),
        cmocka_unit_test(the_own_daemon_killed_under_load),
        cmocka_unit_test(the_own_daemon_stopped_and_late_answers_dropped),
        cmocka_unit_test(ten_thousand_attaches_leave_nothing_behind),
        cmocka_unit_test(clients_killed_under_load_harm_nobody),
        cmocka_unit_test(scribbling_over_a_region_harms_its_owner_alone),
        cmocka_unit_test(callers_that_say_nothing_or_nonsense_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
