/* Blocks of a whole cluster through real daemons in threads: who owns what, copies, what a client
 * sees when members come and go. */
#include "unit.h"

#include "base/clock.h"
#include "base/log.h"
#include "block_calls.h"
#include "kv/client/named.h"
#include "kv/daemon/host.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEMBERS_MAX = 3, ARENA = 16 << 20, STAGING = 8 << 20, MIB = 1 << 20 };

struct cluster {
    char dir[64];
    uint32_t count;
    uint64_t epoch;
    struct kv_host *hosts[MEMBERS_MAX];
    pthread_t threads[MEMBERS_MAX];
    char names[MEMBERS_MAX][KV_MEMBER_NAME_CHARS];
    char addresses[MEMBERS_MAX][KV_MEMBER_ADDRESS_CHARS];
    char sockets[MEMBERS_MAX][KV_SOCKET_CHARS];
    struct kv_client *clients[MEMBERS_MAX];
};

/* One more look at what a daemon's thread will do. */
static void await(uint64_t until)
{
    assert_true(hw_now_ns() < until);
    sched_yield();
}

static void run_and_open(struct cluster *k, uint32_t i)
{
    assert_int_equal(pthread_create(&k->threads[i], NULL, run_host, k->hosts[i]), 0);
    k->clients[i] = open_client(k->sockets[i], STAGING);
}

static void member_start(struct cluster *k, uint32_t i, uint32_t copies)
{
    char why[RPC_WHY_CHARS] = "";
    struct rpc_addr addr = {.scheme = RPC_SCHEME_TCP, .host = "127.0.0.1"};
    snprintf(k->names[i], sizeof(k->names[i]), "member%u", i);
    char dir[sizeof(k->dir)];
    memcpy(dir, k->dir, sizeof(dir));
    snprintf(k->sockets[i], sizeof(k->sockets[i]), "%s/kvd%u", dir, i);
    struct kv_host_options options = {
        .ranks = 1,
        .daemons = 1,
        .member = k->names[i],
        .addrs = &addr,
        .copies = copies,
        .socket = k->sockets[i],
        .store_bytes = 1 << 20,
        .store_entries = 64,
        .arena_bytes = ARENA,
        .blocks = {.entries = 1024, .high_percent = 100, .low_percent = 100}};
    if (kv_host_create(&options, &k->hosts[i], why))
        fail_msg("%s", why);
    snprintf(k->addresses[i], sizeof(k->addresses[i]), "%s", kv_host_address(k->hosts[i]));
    run_and_open(k, i);
}

static void member_stop(struct cluster *k, uint32_t i)
{
    kv_client_close(k->clients[i]);
    kv_host_stop(k->hosts[i]);
    pthread_join(k->threads[i], NULL);
    kv_host_destroy(k->hosts[i]);
    k->hosts[i] = NULL;
}

/* A bit a member. */
static void set_view(struct cluster *k, uint32_t members)
{
    struct kv_member_info infos[MEMBERS_MAX];
    struct kv_view view;
    char why[RPC_WHY_CHARS] = "";
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->count; i++)
        if (members & 1u << i)
            infos[n++] = (struct kv_member_info){k->names[i], k->addresses[i]};
    if (kv_view_make(++k->epoch, infos, n, &view, why))
        fail_msg("%s", why);
    for (uint32_t i = 0; i < k->count; i++)
        if (k->hosts[i])
            assert_int_equal(kv_host_set_view(k->hosts[i], &view), 0);
}

/* Until all who live know the view and reach each other. */
static void await_connected(struct cluster *k, uint32_t members)
{
    uint64_t until = hw_now_ns() + 240 * HW_SEC;
    uint32_t peers = (uint32_t)__builtin_popcount(members) - 1;
    for (uint32_t i = 0; i < k->count; i++) {
        if (!k->hosts[i] || !(members & 1u << i))
            continue;
        const struct kv_stats *s = kv_host_stats(k->hosts[i]);
        while (hw_counter_load(&s->view_epoch) != k->epoch ||
               hw_counter_load(&s->peers_up) != peers)
            await(until);
    }
}

static void cluster_start(struct cluster *k, uint32_t count, uint32_t copies)
{
    *k = (struct cluster){.count = count};
    snprintf(k->dir, sizeof(k->dir), "/tmp/hawser-kvr-XXXXXX");
    assert_non_null(mkdtemp(k->dir));
    for (uint32_t i = 0; i < count; i++)
        member_start(k, i, copies);
    set_view(k, (1u << count) - 1);
    await_connected(k, (1u << count) - 1);
}

static void cluster_stop(struct cluster *k)
{
    for (uint32_t i = 0; i < k->count; i++)
        if (k->hosts[i])
            member_stop(k, i);
    assert_int_equal(rmdir(k->dir), 0);
}

static void view_of_all(const struct cluster *k, struct kv_view *view)
{
    struct kv_member_info infos[MEMBERS_MAX];
    char why[RPC_WHY_CHARS];
    for (uint32_t i = 0; i < k->count; i++)
        infos[i] = (struct kv_member_info){k->names[i], k->addresses[i]};
    assert_int_equal(kv_view_make(1, infos, k->count, view, why), 0);
}

static uint32_t second_owner(const struct cluster *k, uint32_t n)
{
    struct kv_view view;
    struct kv_block_key key = key_of(n);
    uint32_t owners[KV_COPIES_MAX];
    view_of_all(k, &view);
    assert_true(kv_view_owners(&view, kv_block_hash(&key), 2, owners) == 2);
    return owners[1];
}

/* The n-th key, from 0, whose first owner is `member`. */
static uint32_t key_at(const struct cluster *k, uint32_t member, uint32_t n)
{
    struct kv_view view;
    uint32_t owners[KV_COPIES_MAX];
    view_of_all(k, &view);
    for (uint32_t i = 0;; i++) {
        struct kv_block_key key = key_of(i);
        assert_true(kv_view_owners(&view, kv_block_hash(&key), 1, owners) == 1);
        if (owners[0] == member && n-- == 0)
            return i;
    }
}

static enum kv_result get(struct kv_client *c, uint32_t n)
{
    struct kv_block_key key = key_of(n);
    struct kv_block_ref ref;
    enum kv_result result = kv_block_lease(c, &key, &ref);
    if (result == KV_OK)
        assert_int_equal(kv_block_release(c, &ref), KV_OK);
    return result;
}

static void every_member_reads_what_any_has_put(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 63, 100001, MIB, 3 * MIB + 5};
    struct cluster k;
    cluster_start(&k, 3, 1);
    for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++)
        assert_int_equal(put(k.clients[i % 3], i, sizes[i]), KV_OK);
    for (uint32_t m = 0; m < 3; m++)
        for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++)
            expect(k.clients[m], i, sizes[i]);
    for (uint32_t m = 0; m < 3; m++)
        assert_int_equal(put(k.clients[m], 2, 10), KV_EXISTS);
    uint64_t own = 0;
    for (uint32_t m = 0; m < 3; m++)
        own += stat_of(k.clients[m]).blocks - stat_of(k.clients[m]).cached;
    assert_int_equal(own, ARRAY_LEN(sizes)); /* one owner each, whoever put it */
    cluster_stop(&k);
}

static void a_cached_replica_is_read_again_without_its_bytes_and_goes_with_its_block(void **state)
{
    (void)state;
    struct cluster k;
    cluster_start(&k, 2, 1);
    uint32_t n = key_at(&k, 1, 0);
    struct kv_block_key key = key_of(n);
    assert_int_equal(put(k.clients[1], n, MIB), KV_OK);
    expect(k.clients[0], n, MIB);
    assert_int_equal(stat_of(k.clients[0]).cached, 1);
    const struct kv_stats *owner = kv_host_stats(k.hosts[1]);
    /* Behind what the first read sent last, and nobody waited for. */
    assert_int_equal(get(k.clients[0], key_at(&k, 1, 1)), KV_MISS);
    uint64_t served = hw_counter_load(&owner->block_served);
    expect(k.clients[0], n, MIB);
    assert_int_equal(hw_counter_load(&owner->block_served), served + 1); /* asked, not sent */
    assert_int_equal(kv_block_delete(k.clients[1], &key), KV_OK);
    assert_int_equal(get(k.clients[0], n), KV_MISS); /* though a copy was here */
    assert_int_equal(stat_of(k.clients[0]).cached, 0);
    assert_int_equal(kv_block_delete(k.clients[0], &key), KV_MISS);
    cluster_stop(&k);
}

static void cached_replicas_give_way_to_blocks(void **state)
{
    (void)state;
    struct cluster k;
    cluster_start(&k, 2, 1);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(put(k.clients[1], key_at(&k, 1, i), MIB), KV_OK);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(get(k.clients[0], key_at(&k, 1, i)), KV_OK);
    for (uint32_t i = 0; i < 15; i++)
        assert_int_equal(put(k.clients[0], key_at(&k, 0, i), MIB), KV_OK);
    assert_true(stat_of(k.clients[0]).cached <= 1);
    for (uint32_t i = 0; i < 15; i++)
        expect(k.clients[0], key_at(&k, 0, i), MIB); /* none had to go */
    cluster_stop(&k);
}

static void keys_are_found_wherever_they_are(void **state)
{
    (void)state;
    enum { N = 200 };
    struct cluster k;
    struct kv_block_key keys[N];
    bool there[N];
    cluster_start(&k, 3, 1);
    for (uint32_t i = 0; i < N; i++) {
        keys[i] = key_of(i);
        if (i != 150 && i != 170)
            assert_int_equal(put(k.clients[i % 3], i, 64), KV_OK);
    }
    for (uint32_t m = 0; m < 3; m++) {
        assert_int_equal(kv_block_exists(k.clients[m], keys, N, there), KV_OK);
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(there[i], i != 150 && i != 170);
    }
    cluster_stop(&k);
}

static void many_leases_come_together(void **state)
{
    (void)state;
    enum { N = 70 };
    struct cluster k;
    struct kv_block_key keys[N];
    struct kv_block_ref refs[N];
    enum kv_result results[N];
    cluster_start(&k, 3, 1);
    for (uint32_t i = 0; i < N; i++) {
        keys[i] = key_of(i);
        if (i % 7)
            assert_int_equal(put(k.clients[0], i, 10000 + i), KV_OK);
    }
    kv_block_lease_many(k.clients[1], keys, N, refs, results);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(results[i], i % 7 ? KV_OK : KV_MISS);
        if (results[i] != KV_OK)
            continue;
        uint8_t *want = bytes_of(i, 10000 + i);
        assert_int_equal(refs[i].len, 10000 + i);
        assert_memory_equal(refs[i].data, want, refs[i].len);
        assert_int_equal(kv_block_check(k.clients[1], &refs[i]), KV_OK);
        kv_block_let_go(k.clients[1], &refs[i]);
        free(want);
    }
    cluster_stop(&k);
}

static void puts_end_where_they_are_told_to(void **state)
{
    (void)state;
    struct cluster k;
    struct kv_block_put first, second;
    cluster_start(&k, 2, 1);
    uint32_t n = key_at(&k, 1, 0);
    struct kv_block_key key = key_of(n);
    assert_int_equal(kv_block_put_start(k.clients[0], &key, 1, MIB, &first), KV_OK);
    assert_int_equal(stat_of(k.clients[1]).open_puts, 1); /* its room is at the owner */
    assert_int_equal(stat_of(k.clients[0]).open_puts, 0);
    assert_int_equal(kv_block_put_abort(k.clients[0], &first), KV_OK);
    uint64_t until = hw_now_ns() + 240 * HW_SEC;
    while (stat_of(k.clients[1]).open_puts > 0)
        await(until);
    /* Of two the first commit wins. */
    assert_int_equal(kv_block_put_start(k.clients[0], &key, 1, 100, &first), KV_OK);
    assert_int_equal(kv_block_put_start(k.clients[1], &key, 1, 100, &second), KV_OK);
    memset(first.data, 1, 100);
    memset(second.data, 2, 100);
    assert_int_equal(kv_block_put_commit(k.clients[0], &first), KV_OK);
    assert_int_equal(kv_block_put_commit(k.clients[1], &second), KV_EXISTS);
    uint8_t got[100];
    uint32_t len;
    assert_int_equal(kv_block_get(k.clients[1], &key, got, 100, &len), KV_OK);
    assert_int_equal(got[99], 1);
    assert_int_equal(put(k.clients[0], key_at(&k, 1, 1), 17 * MIB), KV_FULL); /* of staging */
    cluster_stop(&k);
}

/* Starts a put whose room is at the other member, and stages the first half of it. */
static struct kv_block_put half_a_put(struct cluster *k, struct kv_client *c, uint32_t n)
{
    struct kv_block_put put;
    struct kv_block_key key = key_of(n);
    uint8_t *bytes = bytes_of(n, 2 * MIB);
    assert_int_equal(kv_block_put_start(c, &key, 1, 2 * MIB, &put), KV_OK);
    memcpy(put.data, bytes, MIB);
    memset(put.data + MIB, 0xee, MIB);
    kv_block_put_staged(c, &put, MIB);
    assert_int_equal(stat_of(k->clients[1]).open_puts, 1);
    free(bytes);
    return put;
}

static void what_is_staged_moves_before_the_commit(void **state)
{
    (void)state;
    struct cluster k;
    cluster_start(&k, 2, 1);
    uint32_t n = key_at(&k, 1, 0);
    uint8_t *bytes = bytes_of(n, 2 * MIB);
    struct kv_block_put put = half_a_put(&k, k.clients[0], n);
    assert_int_equal(kv_block_put_abort(k.clients[0], &put), KV_OK);
    uint64_t until = hw_now_ns() + 240 * HW_SEC;
    while (stat_of(k.clients[1]).open_puts > 0)
        await(until);
    /* A client that goes takes its put with it. */
    struct kv_client *other = open_client(k.sockets[0], 4 * MIB);
    (void)half_a_put(&k, other, n);
    kv_client_close(other);
    while (stat_of(k.clients[1]).open_puts > 0)
        await(until);
    put = half_a_put(&k, k.clients[0], n);
    memcpy(put.data + MIB, bytes + MIB, MIB);
    kv_block_put_staged(k.clients[0], &put, 2 * MIB + 1); /* more than there is: not heeded */
    assert_int_equal(kv_block_put_commit(k.clients[0], &put), KV_OK);
    expect(k.clients[1], n, 2 * MIB);
    cluster_stop(&k);
    free(bytes);
}

/* As memory does when it fails: at any time, and nobody is told. */
__attribute__((no_sanitize("thread"))) static void spoil(volatile uint8_t *arena, size_t at)
{
    arena[at] ^= 1;
}

static void corrupt_bytes_are_a_miss_and_the_owner_finds_them(void **state)
{
    (void)state;
    struct cluster k;
    uint8_t *got = malloc(MIB);
    uint32_t len;
    assert_non_null(got);
    cluster_start(&k, 2, 1);
    uint32_t n = key_at(&k, 1, 0);
    struct kv_block_key key = key_of(n);
    assert_int_equal(put(k.clients[1], n, MIB), KV_OK);
    spoil(kv_host_arena(k.hosts[1]), 4711); /* the first block is at the start */
    assert_int_equal(kv_block_get(k.clients[0], &key, got, MIB, &len), KV_MISS);
    uint64_t until = hw_now_ns() + 240 * HW_SEC;
    while (stat_of(k.clients[1]).corrupt == 0)
        await(until);
    assert_int_equal(stat_of(k.clients[1]).blocks, 0);
    assert_int_equal(stat_of(k.clients[0]).cached, 0);
    assert_int_equal(stat_of(k.clients[0]).corrupt, 1); /* found on arrival: no reader saw it */
    cluster_stop(&k);
    free(got);
}

/* Waits until a member has repaired so many copies. */
static void await_repaired(struct cluster *k, uint32_t member, uint64_t count)
{
    uint64_t until = hw_now_ns() + 240 * HW_SEC;
    while (stat_of(k->clients[member]).repaired < count)
        await(until);
}

/* Three members, two copies of block 0; who owns the first, the second and none. */
static void three_start(struct cluster *k, uint32_t *first, uint32_t *second, uint32_t *reader)
{
    cluster_start(k, 3, 2);
    assert_int_equal(put(k->clients[0], 0, MIB), KV_OK);
    for (*reader = 0; stat_of(k->clients[*reader]).blocks > 0;)
        ++*reader;
    for (*first = 0; key_at(k, *first, 0) != 0;)
        ++*first;
    *second = 3 - *first - *reader;
}

static void a_corrupt_first_copy_gives_way_to_the_second_and_is_repaired(void **state)
{
    (void)state;
    struct cluster k;
    uint32_t first, second, reader;
    three_start(&k, &first, &second, &reader);
    spoil(kv_host_arena(k.hosts[first]), 4711);
    expect(k.clients[reader], 0, MIB); /* the same get goes on to the second */
    assert_int_equal(stat_of(k.clients[reader]).corrupt, 1);
    await_repaired(&k, first, 1);
    assert_int_equal(stat_of(k.clients[first]).corrupt, 1);
    assert_int_equal(stat_of(k.clients[first]).cached, 0);
    struct kv_block_key key = key_of(0);
    assert_int_equal(kv_block_delete(k.clients[reader], &key), KV_OK);
    for (uint32_t i = 0; i < 3; i++) {
        struct kv_blocks_stat stat = stat_of(k.clients[i]);
        /* A copy that was on its way to an owner stays a cached replica: it is not taken in. */
        assert_int_equal(stat.blocks, stat.cached);
    }
    cluster_stop(&k);
}

static void an_owners_own_corrupt_copy_is_repaired(void **state)
{
    (void)state;
    struct cluster k;
    uint32_t first, second, reader, len;
    uint8_t *got = malloc(MIB);
    assert_non_null(got);
    three_start(&k, &first, &second, &reader);
    struct kv_block_key key = key_of(0);
    spoil(kv_host_arena(k.hosts[second]), 99);
    assert_int_equal(kv_block_get(k.clients[second], &key, got, MIB, &len), KV_MISS);
    await_repaired(&k, second, 1); /* nobody had to ask again */
    expect(k.clients[second], 0, MIB);
    assert_int_equal(stat_of(k.clients[second]).hits, 2); /* the corrupt one, and this one */
    cluster_stop(&k);
    free(got);
}

/* The same, but the first owner was gone while the block was put; who that is. */
static uint32_t three_start_without_first(struct cluster *k)
{
    uint32_t first = 0;
    cluster_start(k, 3, 2);
    while (key_at(k, first, 0) != 0)
        first++;
    set_view(k, 7u & ~(1u << first));
    await_connected(k, 7u & ~(1u << first));
    assert_int_equal(put(k->clients[(first + 1) % 3], 0, MIB), KV_OK);
    set_view(k, 7);
    await_connected(k, 7);
    struct kv_blocks_stat stat = stat_of(k->clients[first]);
    /* None of its own, unless the other owner has told it already; a copy that it was told of is
     * a cached replica before it is its own. */
    assert_int_equal(stat.blocks - stat.cached, stat.repaired);
    return first;
}

static void a_missing_copy_is_put_back_by_a_read(void **state)
{
    (void)state;
    struct cluster k;
    uint32_t first = three_start_without_first(&k);
    expect(k.clients[first], 0, MIB);
    await_repaired(&k, first, 1); /* who should have it keeps it */
    assert_int_equal(stat_of(k.clients[first]).cached, 0);
    cluster_stop(&k);
}

static void an_owner_that_lacks_its_copy_is_told_by_who_reads_the_other(void **state)
{
    (void)state;
    struct cluster k;
    uint32_t first = three_start_without_first(&k), second = second_owner(&k, 0);
    expect(k.clients[3 - first - second], 0, MIB);
    await_repaired(&k, first, 1);
    assert_int_equal(stat_of(k.clients[first]).cached, 0);
    cluster_stop(&k);
}

static _Atomic bool told_copies;

static void look_for_copies(void *user, const char *line, size_t len)
{
    static const char what[] = "it has --copies";
    (void)user;
    if (memmem(line, len, what, sizeof(what) - 1))
        atomic_store(&told_copies, true);
}

static void members_with_other_copies_are_refused_with_a_line(void **state)
{
    (void)state;
    struct cluster k = {.count = 2};
    snprintf(k.dir, sizeof(k.dir), "/tmp/hawser-kvr-XXXXXX");
    assert_non_null(mkdtemp(k.dir));
    hw_log_set_sink(look_for_copies, NULL);
    for (uint32_t i = 0; i < 2; i++)
        member_start(&k, i, 1 + i);
    set_view(&k, 3);
    for (uint64_t until = hw_now_ns() + 240 * HW_SEC; !atomic_load(&told_copies);)
        await(until);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(hw_counter_load(&kv_host_stats(k.hosts[i])->peers_up), 0);
    cluster_stop(&k);
    hw_log_set_sink(NULL, NULL);
}

static void a_second_copy_serves_when_the_first_owner_is_gone(void **state)
{
    (void)state;
    enum { N = 30 };
    struct cluster k;
    cluster_start(&k, 3, 2);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(put(k.clients[i % 3], i, 70000), KV_OK);
    uint64_t blocks = 0;
    for (uint32_t m = 0; m < 3; m++)
        blocks += stat_of(k.clients[m]).blocks;
    assert_int_equal(blocks, 2 * N);
    member_stop(&k, 2); /* and nobody has been told */
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t m = 0; m < 2; m++)
            expect(k.clients[m], i, 70000);
    set_view(&k, 3);
    await_connected(&k, 3);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t m = 0; m < 2; m++)
            expect(k.clients[m], i, 70000);
    struct kv_block_key key = key_of(3);
    assert_int_equal(kv_block_delete(k.clients[0], &key), KV_OK);
    assert_int_equal(get(k.clients[0], 3), KV_MISS);
    assert_int_equal(get(k.clients[1], 3), KV_MISS);
    cluster_stop(&k);
}

static void a_lost_owner_is_no_miss_and_one_that_left_is(void **state)
{
    (void)state;
    struct cluster k;
    struct kv_block_key keys[2];
    bool there[2];
    cluster_start(&k, 2, 1);
    uint32_t far = key_at(&k, 1, 0), near = key_at(&k, 0, 0);
    keys[0] = key_of(near);
    keys[1] = key_of(far);
    assert_int_equal(put(k.clients[0], far, 1000), KV_OK);
    assert_int_equal(put(k.clients[0], near, 1000), KV_OK);
    member_stop(&k, 1);
    uint64_t until = hw_now_ns() + 240 * HW_SEC;
    while (hw_counter_load(&kv_host_stats(k.hosts[0])->peers_up) > 0)
        await(until);
    assert_int_equal(get(k.clients[0], far), KV_PEER_LOST);
    assert_int_equal(put(k.clients[0], key_at(&k, 1, 1), 10), KV_PEER_LOST);
    assert_int_equal(kv_block_delete(k.clients[0], &keys[1]), KV_PEER_LOST);
    assert_int_equal(kv_block_exists(k.clients[0], keys, 2, there), KV_PEER_LOST);
    set_view(&k, 1);
    await_connected(&k, 1);
    assert_int_equal(get(k.clients[0], far), KV_MISS);
    assert_int_equal(put(k.clients[0], far, 1000), KV_OK);
    expect(k.clients[0], near, 1000);
    cluster_stop(&k);
}

static void one_that_joins_takes_its_share_and_no_more(void **state)
{
    (void)state;
    enum { N = 60 };
    struct cluster k;
    uint32_t lost = 0;
    cluster_start(&k, 3, 1);
    set_view(&k, 3); /* the third is not in it: it owns nothing, and asks the others */
    await_connected(&k, 3);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(put(k.clients[i % 2], i, 100), KV_OK);
    set_view(&k, 7);
    await_connected(&k, 7);
    for (uint32_t i = 0; i < N; i++) {
        enum kv_result result = get(k.clients[1], i);
        assert_true(result == KV_OK || result == KV_MISS);
        lost += result == KV_MISS;
    }
    assert_true(lost > N / 6 && lost < N / 2);
    for (uint32_t i = 0; i < N; i++) {
        enum kv_result result = put(k.clients[2], i, 100);
        assert_true(result == KV_OK || result == KV_EXISTS);
        expect(k.clients[i % 3], i, 100);
    }
    assert_int_equal(stat_of(k.clients[2]).blocks - stat_of(k.clients[2]).cached, lost);
    cluster_stop(&k);
}

/* A key whose owner is member 0 without member 2, and member 2 with it. */
static uint32_t key_that_moves(const struct cluster *k)
{
    struct kv_view view;
    uint32_t owners[KV_COPIES_MAX];
    view_of_all(k, &view);
    for (uint32_t i = 0;; i++) {
        struct kv_block_key key = key_of(i);
        assert_true(kv_view_owners(&view, kv_block_hash(&key), 2, owners) == 2);
        if (owners[0] == 2 && owners[1] == 0)
            return i;
    }
}

static void a_local_put_whose_key_moves_before_its_commit_goes_to_the_new_owner(void **state)
{
    (void)state;
    enum { LEN = 3 * MIB + 5 }; /* several turns, and several chunks */
    struct cluster k;
    struct kv_block_put put;
    cluster_start(&k, 3, 1);
    set_view(&k, 3);
    await_connected(&k, 3);
    uint32_t n = key_that_moves(&k);
    struct kv_block_key key = key_of(n);
    uint8_t *bytes = bytes_of(n, LEN);
    assert_int_equal(kv_block_put_start(k.clients[0], &key, 1, LEN, &put), KV_OK);
    assert_int_equal(stat_of(k.clients[0]).open_puts, 1);
    memcpy(put.data, bytes, LEN);
    kv_block_put_staged(k.clients[0], &put, MIB);
    set_view(&k, 7);
    await_connected(&k, 7);
    assert_int_equal(kv_block_put_commit(k.clients[0], &put), KV_OK);
    assert_int_equal(put.copies, 1);
    assert_int_equal(stat_of(k.clients[0]).blocks, 0); /* else it would be back without member 2 */
    assert_int_equal(stat_of(k.clients[0]).open_puts, 0);
    assert_int_equal(stat_of(k.clients[2]).blocks, 1);
    for (uint32_t m = 0; m < 3; m++)
        expect(k.clients[m], n, LEN);
    cluster_stop(&k);
    free(bytes);
}

static void a_member_that_owns_the_key_no_more_does_not_commit(void **state)
{
    (void)state;
    struct cluster k;
    struct kv_block_put put;
    cluster_start(&k, 3, 1);
    set_view(&k, 3);
    await_connected(&k, 3);
    uint32_t n = key_that_moves(&k);
    struct kv_block_key key = key_of(n);
    assert_int_equal(kv_block_put_start(k.clients[1], &key, 1, 100, &put), KV_OK);
    assert_int_equal(stat_of(k.clients[0]).open_puts, 1);
    memset(put.data, 1, 100);
    struct kv_host *asker = k.hosts[1];
    k.hosts[1] = NULL; /* who asks is not told of the view */
    set_view(&k, 7);
    uint64_t until = hw_now_ns() + 240 * HW_SEC;
    while (hw_counter_load(&kv_host_stats(k.hosts[0])->view_epoch) != k.epoch)
        await(until);
    k.hosts[1] = asker;
    assert_int_equal(kv_block_put_commit(k.clients[1], &put), KV_NOT_OWNER);
    assert_int_equal(stat_of(k.clients[0]).blocks, 0);
    while (stat_of(k.clients[0]).open_puts > 0)
        await(until);
    cluster_stop(&k);
}

/* Ranks are members that never change. */
static void ranks_share_their_blocks(void **state)
{
    (void)state;
    struct cluster k = {.count = 2};
    struct rpc_addr addrs[2] = {{.scheme = RPC_SCHEME_UNIX}, {.scheme = RPC_SCHEME_UNIX}};
    char why[RPC_WHY_CHARS] = "";
    snprintf(k.dir, sizeof(k.dir), "/tmp/hawser-kvr-XXXXXX");
    assert_non_null(mkdtemp(k.dir));
    for (uint32_t i = 0; i < 2; i++)
        snprintf(addrs[i].path, sizeof(addrs[i].path), "%s/rank%u", k.dir, i);
    for (uint32_t i = 0; i < 2; i++) {
        char dir[sizeof(k.dir)];
        memcpy(dir, k.dir, sizeof(dir));
        snprintf(k.sockets[i], sizeof(k.sockets[i]), "%s/kvd%u", dir, i);
        struct kv_host_options options = {.rank = i,
                                          .ranks = 2,
                                          .daemons = 1,
                                          .addrs = addrs,
                                          .socket = k.sockets[i],
                                          .store_bytes = 1 << 20,
                                          .store_entries = 64,
                                          .arena_bytes = ARENA,
                                          .blocks = {.entries = 64}};
        if (kv_host_create(&options, &k.hosts[i], why))
            fail_msg("%s", why);
        assert_int_equal(kv_host_set_view(k.hosts[i], &(struct kv_view){.epoch = 9}), -EINVAL);
        run_and_open(&k, i);
    }
    k.epoch = 1;
    await_connected(&k, 3);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(put(k.clients[i % 2], i, 5000), KV_OK);
    for (uint32_t i = 0; i < 16; i++)
        expect(k.clients[i % 2], i / 2, 5000);
    assert_true(stat_of(k.clients[0]).cached > 0 && stat_of(k.clients[1]).cached > 0);
    cluster_stop(&k);
}

static void views_go_forward_only(void **state)
{
    (void)state;
    struct cluster k;
    struct kv_view view = {.epoch = 1};
    cluster_start(&k, 1, 1);
    assert_int_equal(kv_host_set_view(k.hosts[0], &view), -ESTALE);
    cluster_stop(&k);
}

/* Asking for a value that another member has moves none of its bytes. */
static void a_large_value_elsewhere_is_looked_at_without_its_bytes(void **state)
{
    (void)state;
    struct cluster k;
    struct kv_named v;
    char name[24];
    uint8_t *data = bytes_of(1, MIB);
    cluster_start(&k, 2, 1);
    for (int i = 0; i < 8; i++) {
        struct kv_named_set set = {.name = name, .value = data, .len = MIB};
        set.name_len = (size_t)snprintf(name, sizeof(name), "value %d", i);
        assert_int_equal(kv_named_set(k.clients[1], &set, NULL), KV_OK);
        assert_int_equal(kv_named_look(k.clients[0], name, set.name_len, &v), KV_OK);
        assert_int_equal(v.len, MIB);
        set.end_ms = 2;
        assert_int_equal(kv_named_set(k.clients[1], &set, NULL), KV_OK);
        assert_int_equal(kv_named_look(k.clients[0], name, set.name_len, &v), KV_MISS);
    }
    assert_int_equal(kv_named_look(k.clients[0], "no", 2, &v), KV_MISS);
    assert_true(stat_of(k.clients[1]).names > 0);
    assert_int_equal(stat_of(k.clients[0]).cached, 0);
    cluster_stop(&k);
    free(data);
}

static enum kv_result set_new(struct kv_client *c, const char *value)
{
    struct kv_named_set set = {
        .name = "name", .name_len = 4, .value = value, .len = 1, .only_new = true};
    return kv_named_set(c, &set, NULL);
}

/* What the other owner deletes meanwhile leaves something behind, which is not a value. */
static void a_name_that_was_deleted_while_an_owner_was_away_is_new(void **state)
{
    (void)state;
    struct cluster k;
    struct kv_named v;
    cluster_start(&k, 2, 2);
    assert_int_equal(set_new(k.clients[0], "1"), KV_OK);
    assert_int_equal(set_new(k.clients[0], "2"), KV_EXISTS);
    member_stop(&k, 1);
    assert_int_equal(stat_of(k.clients[0]).names, 1);
    assert_int_equal(kv_named_delete(k.clients[0], "name", 4), KV_OK);
    assert_int_equal(stat_of(k.clients[0]).names, 0);
    assert_int_equal(set_new(k.clients[0], "3"), KV_OK);
    assert_int_equal(set_new(k.clients[0], "4"), KV_EXISTS);
    assert_int_equal(stat_of(k.clients[0]).names, 1);
    assert_int_equal(kv_named_get(k.clients[0], "name", 4, &v), KV_OK);
    assert_int_equal(v.data[0], '3');
    kv_named_let_go(k.clients[0], &v);
    cluster_stop(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_reads_what_any_has_put),
        cmocka_unit_test(a_cached_replica_is_read_again_without_its_bytes_and_goes_with_its_block),
        cmocka_unit_test(cached_replicas_give_way_to_blocks),
        cmocka_unit_test(keys_are_found_wherever_they_are),
        cmocka_unit_test(many_leases_come_together),
        cmocka_unit_test(puts_end_where_they_are_told_to),
        cmocka_unit_test(what_is_staged_moves_before_the_commit),
        cmocka_unit_test(corrupt_bytes_are_a_miss_and_the_owner_finds_them),
        cmocka_unit_test(members_with_other_copies_are_refused_with_a_line),
        cmocka_unit_test(a_corrupt_first_copy_gives_way_to_the_second_and_is_repaired),
        cmocka_unit_test(an_owners_own_corrupt_copy_is_repaired),
        cmocka_unit_test(a_missing_copy_is_put_back_by_a_read),
        cmocka_unit_test(an_owner_that_lacks_its_copy_is_told_by_who_reads_the_other),
        cmocka_unit_test(a_second_copy_serves_when_the_first_owner_is_gone),
        cmocka_unit_test(a_lost_owner_is_no_miss_and_one_that_left_is),
        cmocka_unit_test(one_that_joins_takes_its_share_and_no_more),
        cmocka_unit_test(a_local_put_whose_key_moves_before_its_commit_goes_to_the_new_owner),
        cmocka_unit_test(a_member_that_owns_the_key_no_more_does_not_commit),
        cmocka_unit_test(ranks_share_their_blocks),
        cmocka_unit_test(views_go_forward_only),
        cmocka_unit_test(a_large_value_elsewhere_is_looked_at_without_its_bytes),
        cmocka_unit_test(a_name_that_was_deleted_while_an_owner_was_away_is_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
