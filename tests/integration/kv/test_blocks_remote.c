/* Blocks between daemons that are processes of their own: the owner is killed in the middle of a
 * get, is stopped, and the members change between a put's start and its commit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kv/client/client.h"
#include "kv/daemon/host.h"
#include "unit/kv/value_calls.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMBERS = 3, ARENA = 72 << 20, BLOCK = 32 << 20, MIB = 1 << 20, TRIES = 20 };

static const uint64_t patience_ns = 240 * HW_SEC; /* of every wait here */
static const uint64_t hasty_ns = 400 * HW_MS;     /* but of a request that is to time out */

struct member {
    char name[KV_MEMBER_NAME_CHARS], address[KV_MEMBER_ADDRESS_CHARS], socket[96];
    pid_t pid; /* 0: gone */
    int views; /* pipe into which the views go */
};

struct cluster {
    char dir[64];
    uint64_t epoch;
    struct member members[MEMBERS];
};

/* ---- the daemon's process ---- */

struct view_reader {
    struct kv_host *host;
    int fd;
};

static void *read_views(void *user)
{
    struct view_reader *r = user;
    static struct kv_view view;
    size_t got = 0;
    for (;;) {
        ssize_t n = read(r->fd, (uint8_t *)&view + got, sizeof(view) - got);
        if (n <= 0)
            return NULL;
        got = (got + (size_t)n) % sizeof(view);
        if (got == 0 && kv_host_set_view(r->host, &view))
            _exit(1);
    }
}

static void daemon_process(const struct member *m, int ready_fd, int views_fd)
{
    struct rpc_addr addr = {.scheme = RPC_SCHEME_TCP, .host = "127.0.0.1"};
    struct kv_host_options options = {.ranks = 1,
                                      .daemons = 1,
                                      .member = m->name,
                                      .addrs = &addr,
                                      .socket = m->socket,
                                      .store_bytes = 1 << 20,
                                      .store_entries = 64,
                                      .arena_bytes = ARENA,
                                      .heartbeat_ns = 3 * HW_SEC, /* longer than hasty_ns */
                                      .blocks = {.entries = 64,
                                                 .high_percent = 100,
                                                 .low_percent = 100,
                                                 .put_lasts_ns = 600 * HW_SEC,
                                                 .lease_lasts_ns = 600 * HW_SEC}};
    struct kv_host *host;
    char why[RPC_WHY_CHARS], address[KV_MEMBER_ADDRESS_CHARS] = "";
    pthread_t thread;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    if (kv_host_create(&options, &host, why)) {
        fprintf(stderr, "%s\n", why);
        _exit(1);
    }
    struct view_reader reader = {.host = host, .fd = views_fd};
    snprintf(address, sizeof(address), "%s", kv_host_address(host));
    if (pthread_create(&thread, NULL, read_views, &reader) ||
        write(ready_fd, address, sizeof(address)) != sizeof(address))
        _exit(1);
    kv_host_run(host);
    _exit(0);
}

/* ---- the cluster ---- */

static void member_start(struct cluster *k, int i)
{
    struct member *m = &k->members[i];
    int ready[2], views[2];
    snprintf(m->name, sizeof(m->name), "m%d", i);
    snprintf(m->socket, sizeof(m->socket), "%s/kvd%d", k->dir, i);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(views), 0);
    m->pid = fork();
    assert_true(m->pid >= 0);
    if (m->pid == 0) {
        close(ready[0]);
        close(views[1]);
        daemon_process(m, ready[1], views[0]);
    }
    close(ready[1]);
    close(views[0]);
    assert_int_equal(read(ready[0], m->address, sizeof(m->address)), sizeof(m->address));
    close(ready[0]);
    m->views = views[1];
}

static void member_kill(struct member *m)
{
    assert_int_equal(kill(m->pid, SIGKILL), 0);
    assert_int_equal(waitpid(m->pid, NULL, 0), m->pid);
    m->pid = 0;
}

static void make_view(const struct cluster *k, uint32_t members, struct kv_view *out)
{
    struct kv_member_info infos[MEMBERS];
    char why[RPC_WHY_CHARS];
    uint32_t n = 0;
    for (int i = 0; i < MEMBERS; i++)
        if (members & 1u << i)
            infos[n++] = (struct kv_member_info){k->members[i].name, k->members[i].address};
    assert_int_equal(kv_view_make(k->epoch, infos, n, out, why), 0);
}

static void tell_view(struct cluster *k, uint32_t members)
{
    struct kv_view view;
    k->epoch++;
    make_view(k, members, &view);
    for (int i = 0; i < MEMBERS; i++)
        if (k->members[i].pid)
            assert_int_equal(write(k->members[i].views, &view, sizeof(view)), sizeof(view));
}

static void cluster_start(struct cluster *k)
{
    *k = (struct cluster){0};
    snprintf(k->dir, sizeof(k->dir), "/tmp/hawser-kvri-XXXXXX");
    assert_non_null(mkdtemp(k->dir));
    for (int i = 0; i < MEMBERS; i++)
        member_start(k, i);
}

static void cluster_stop(struct cluster *k)
{
    for (int i = 0; i < MEMBERS; i++) {
        struct member *m = &k->members[i];
        if (m->pid)
            member_kill(m);
        close(m->views);
        (void)unlink(m->socket);
    }
    assert_int_equal(rmdir(k->dir), 0);
}

static struct kv_client *open_client(const struct member *m, uint64_t timeout_ns)
{
    struct kv_client_options options = {
        .socket = m->socket, .staging_bytes = BLOCK + MIB, .timeout_ns = timeout_ns};
    struct kv_client *client = NULL;
    char why[RPC_WHY_CHARS] = "";
    if (hasty_client_open(&options, &client, why))
        fail_msg("%s", why);
    return client;
}

static void await_peers(struct kv_client *c, uint32_t peers)
{
    uint64_t until = hw_now_ns() + patience_ns;
    while (kv_client_peers_up(c) != peers) {
        assert_true(hw_now_ns() < until);
        sched_yield(); /* the daemons may need the core */
    }
}

static struct kv_block_key key_of(uint32_t n)
{
    return (struct kv_block_key){.len = 2, .bytes = {'k', (uint8_t)n}};
}

static int owner_in(const struct cluster *k, uint32_t members, uint32_t n)
{
    struct kv_view view;
    uint32_t owners[KV_COPIES_MAX];
    struct kv_block_key key = key_of(n);
    make_view(k, members, &view);
    assert_int_equal(kv_view_owners(&view, kv_block_hash(&key), 1, owners), 1);
    return view.members[owners[0]].name[1] - '0';
}

/* The first key from n on that m1 owns. */
static uint32_t key_of_m1(const struct cluster *k, uint32_t n)
{
    while (owner_in(k, 3, n) != 1)
        n++;
    assert_true(n < 256);
    return n;
}

static void put(struct kv_client *c, uint32_t n, uint32_t len)
{
    struct kv_block_key key = key_of(n);
    uint8_t *data = malloc(len);
    assert_non_null(data);
    memset(data, (int)n, len);
    assert_int_equal(kv_block_put(c, &key, 1, data, len), KV_OK);
    free(data);
}

static enum kv_result get(struct kv_client *c, uint32_t n, uint32_t len)
{
    struct kv_block_key key = key_of(n);
    struct kv_block_ref ref;
    enum kv_result result = kv_block_lease(c, &key, &ref);
    if (result != KV_OK)
        return result;
    assert_int_equal(kv_block_check(c, &ref), KV_OK);
    assert_int_equal(ref.len, len);
    assert_int_equal(ref.data[0], n);
    assert_int_equal(ref.data[len - 1], n);
    assert_int_equal(kv_block_release(c, &ref), KV_OK);
    return KV_OK;
}

struct getter {
    struct kv_client *client;
    uint32_t key;
    enum kv_result result;
};

static void *get_main(void *user)
{
    struct getter *g = user;
    struct kv_block_key key = key_of(g->key);
    struct kv_block_ref ref;
    g->result = kv_block_lease(g->client, &key, &ref);
    if (g->result == KV_OK)
        kv_block_let_go(g->client, &ref);
    return NULL;
}

static uint64_t open_puts(struct kv_client *c)
{
    struct kv_blocks_stat s;
    assert_int_equal(kv_block_stat(c, &s), KV_OK);
    return s.open_puts;
}

/* Stops m1 while its bytes are on their way; false: they were all there before. */
static bool stop_in_the_middle(struct cluster *k, struct kv_client *watcher)
{
    uint64_t until = hw_now_ns() + patience_ns;
    while (open_puts(watcher) == 0)
        assert_true(hw_now_ns() < until);
    assert_int_equal(kill(k->members[1].pid, SIGSTOP), 0);
    return open_puts(watcher) > 0;
}

static void an_owner_killed_during_a_get_is_lost_and_no_miss(void **state)
{
    (void)state;
    struct cluster k;
    struct getter g = {.key = 0};
    pthread_t thread;
    bool caught = false;
    cluster_start(&k);
    tell_view(&k, 3);
    struct kv_client *watcher = open_client(&k.members[0], patience_ns);
    g.client = open_client(&k.members[0], patience_ns);
    await_peers(watcher, 1);
    for (int i = 0; i < TRIES && !caught; i++) {
        struct kv_block_key last = key_of(g.key);
        (void)kv_block_delete(watcher, &last);
        g.key = key_of_m1(&k, g.key + 1);
        put(watcher, g.key, BLOCK);
        assert_int_equal(pthread_create(&thread, NULL, get_main, &g), 0);
        caught = stop_in_the_middle(&k, watcher);
        if (caught)
            member_kill(&k.members[1]);
        else
            assert_int_equal(kill(k.members[1].pid, SIGCONT), 0);
        pthread_join(thread, NULL);
    }
    assert_true(caught);
    assert_int_equal(g.result, KV_PEER_LOST);
    assert_int_equal(open_puts(watcher), 0); /* half a block is no block */
    assert_int_equal(get(watcher, g.key, BLOCK), KV_PEER_LOST);
    tell_view(&k, 1);
    struct kv_block_key key = key_of(g.key);
    struct kv_block_ref ref;
    uint64_t until = hw_now_ns() + patience_ns;
    while (kv_block_lease(watcher, &key, &ref) != KV_MISS) /* until the view is taken up */
        assert_true(hw_now_ns() < until);
    put(watcher, g.key, MIB);
    assert_int_equal(get(watcher, g.key, MIB), KV_OK);
    kv_client_close(watcher);
    kv_client_close(g.client);
    cluster_stop(&k);
}

static void a_stopped_owner_is_a_timeout_then_lost_and_comes_back(void **state)
{
    (void)state;
    struct cluster k;
    cluster_start(&k);
    tell_view(&k, 3);
    struct kv_client *c = open_client(&k.members[0], patience_ns);
    struct kv_client *hasty = open_client(&k.members[0], hasty_ns);
    await_peers(c, 1);
    uint32_t n = key_of_m1(&k, 0);
    put(c, n, MIB);
    assert_int_equal(get(c, n, MIB), KV_OK);
    assert_int_equal(kill(k.members[1].pid, SIGSTOP), 0);
    assert_int_equal(get(hasty, n, MIB), KV_TIMEOUT);
    await_peers(c, 0);
    assert_int_equal(get(c, n, MIB), KV_PEER_LOST);
    assert_int_equal(kill(k.members[1].pid, SIGCONT), 0);
    await_peers(c, 1);
    assert_int_equal(get(c, n, MIB), KV_OK);
    kv_client_close(hasty);
    kv_client_close(c);
    cluster_stop(&k);
}

static void a_put_goes_to_who_owns_it_when_it_is_committed(void **state)
{
    (void)state;
    struct cluster k;
    struct kv_block_put started;
    struct kv_blocks_stat s;
    uint32_t n = 0;
    cluster_start(&k);
    tell_view(&k, 3);
    struct kv_client *c = open_client(&k.members[0], patience_ns);
    struct kv_client *joiner = open_client(&k.members[2], patience_ns);
    await_peers(c, 1);
    while (owner_in(&k, 3, n) != 1 || owner_in(&k, 7, n) != 2)
        n++;
    struct kv_block_key key = key_of(n);
    assert_int_equal(kv_block_put_start(c, &key, 1, 5 * MIB, &started), KV_OK);
    memset(started.data, (int)n, 5 * MIB);
    tell_view(&k, 7);
    await_peers(c, 2);
    await_peers(joiner, 2);
    assert_int_equal(kv_block_put_commit(c, &started), KV_OK);
    assert_int_equal(kv_block_stat(joiner, &s), KV_OK);
    assert_int_equal(s.blocks - s.cached, 1);
    assert_int_equal(get(c, n, 5 * MIB), KV_OK);
    assert_int_equal(get(joiner, n, 5 * MIB), KV_OK);
    kv_client_close(c);
    kv_client_close(joiner);
    cluster_stop(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_killed_during_a_get_is_lost_and_no_miss),
        cmocka_unit_test(a_stopped_owner_is_a_timeout_then_lost_and_comes_back),
        cmocka_unit_test(a_put_goes_to_who_owns_it_when_it_is_committed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
