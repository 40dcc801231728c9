/* Blocks through real daemons in threads: what a local client puts, reads, loses and must not see.
 */
#include "unit.h"

#include "base/clock.h"
#include "block_calls.h"
#include "kv/common/arena.h"
#include "kv/daemon/host.h"
#include "value_calls.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DAEMONS_MAX = 2, ARENA = 16 << 20, STAGING = 8 << 20, MIB = 1 << 20 };

struct rank {
    char dir[64], socket[96];
    uint32_t daemons;
    struct kv_host *hosts[DAEMONS_MAX];
    pthread_t threads[DAEMONS_MAX];
};

/* Without a lease_ns nothing ends by the clock, however long a busy machine takes. */
static void rank_start(struct rank *r, uint32_t daemons, uint64_t arena, uint64_t lease_ns)
{
    char why[RPC_WHY_CHARS] = "";
    *r = (struct rank){.daemons = daemons};
    snprintf(r->dir, sizeof(r->dir), "/tmp/hawser-kvb-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->socket, sizeof(r->socket), "%s/kvd", r->dir);
    for (uint32_t i = 0; i < daemons; i++) {
        struct kv_host_options options = {
            .ranks = 1,
            .index = i,
            .daemons = daemons,
            .socket = r->socket,
            .store_bytes = 1 << 20,
            .store_entries = 64,
            .arena_bytes = arena,
            .idle_ns = HW_MS,
            .blocks = {.entries = 1024,
                       .high_percent = 100,
                       .low_percent = 100,
                       .put_lasts_ns = 3600 * HW_SEC,
                       .lease_lasts_ns = lease_ns ? lease_ns : 3600 * HW_SEC}};
        if (kv_host_create(&options, &r->hosts[i], why))
            fail_msg("%s", why);
        assert_int_equal(pthread_create(&r->threads[i], NULL, run_host, r->hosts[i]), 0);
    }
}

static void rank_stop(struct rank *r)
{
    for (uint32_t i = 0; i < r->daemons; i++) {
        kv_host_stop(r->hosts[i]);
        pthread_join(r->threads[i], NULL);
        kv_host_destroy(r->hosts[i]);
    }
    assert_int_equal(rmdir(r->dir), 0);
}

static void blocks_come_back_as_they_were_put(void **state)
{
    (void)state;
    struct rank r;
    rank_start(&r, 2, ARENA, 0);
    struct kv_client *a = open_client(r.socket, STAGING), *b = open_client(r.socket, STAGING);
    static const uint32_t sizes[] = {1, 63, 4096, 100001, MIB, 3 * MIB + 5};
    for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++)
        assert_int_equal(put(a, i, sizes[i]), KV_OK);
    for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++)
        expect(b, i, sizes[i]);
    assert_int_equal(put(b, 2, 10), KV_EXISTS);
    struct kv_block_key key = key_of(4);
    uint8_t small[16];
    uint32_t len = 0;
    assert_int_equal(kv_block_get(b, &key, small, sizeof(small), &len), KV_TOO_LARGE);
    assert_int_equal(len, MIB);
    assert_int_equal(kv_block_delete(b, &key), KV_OK);
    assert_int_equal(kv_block_delete(b, &key), KV_MISS);
    assert_int_equal(kv_block_get(a, &key, small, sizeof(small), &len), KV_MISS);
    assert_int_equal(stat_of(a).leases, 0); /* every get released its own */
    assert_int_equal(stat_of(a).blocks, ARRAY_LEN(sizes) - 1);
    kv_client_close(a);
    kv_client_close(b);
    rank_stop(&r);
}

static void what_is_staged_may_be_told(void **state)
{
    (void)state;
    struct rank r;
    struct kv_block_put put_of;
    rank_start(&r, 1, ARENA, 0);
    struct kv_client *c = open_client(r.socket, STAGING);
    struct kv_block_key key = key_of(1);
    uint8_t *bytes = bytes_of(1, 3 * MIB);
    static const uint32_t told[] = {5, MIB, MIB - 1, 2 * MIB + MIB / 2, 3 * MIB + 1, 3 * MIB};
    for (uint32_t count = 0; count <= ARRAY_LEN(told); count++) {
        assert_int_equal(kv_block_put_start(c, &key, 1, 3 * MIB, &put_of), KV_OK);
        memset(put_of.data, 0xee, 3 * MIB);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t there = told[i] < 3 * MIB ? told[i] : 3 * MIB;
            memcpy(put_of.data, bytes, there);
            kv_block_put_staged(c, &put_of, told[i]);
        }
        memcpy(put_of.data, bytes, 3 * MIB);
        assert_int_equal(kv_block_put_commit(c, &put_of), KV_OK);
        kv_block_put_staged(c, &put_of, 10); /* too late */
        expect(c, 1, 3 * MIB);
        assert_int_equal(kv_block_delete(c, &key), KV_OK);
    }
    assert_int_equal(kv_block_put_start(c, &key, 1, 3 * MIB, &put_of), KV_OK);
    kv_block_put_staged(c, &put_of, 3 * MIB);
    assert_int_equal(kv_block_put_abort(c, &put_of), KV_OK);
    assert_int_equal(stat_of(c).open_puts + stat_of(c).blocks, 0);
    free(bytes);
    kv_client_close(c);
    rank_stop(&r);
}

static void keys_are_found_at_all_daemons(void **state)
{
    (void)state;
    enum { CHAIN = 150, GAP = 131 };
    for (uint32_t daemons = 1; daemons <= 2; daemons++) {
        struct rank r;
        struct kv_block_key keys[CHAIN];
        bool there[CHAIN];
        rank_start(&r, daemons, ARENA, 0);
        struct kv_client *c = open_client(r.socket, STAGING);
        for (uint32_t i = 0; i < CHAIN; i++) {
            keys[i] = key_of(i);
            if (i != GAP)
                assert_int_equal(put(c, i, 100), KV_OK);
        }
        assert_int_equal(kv_block_exists(c, keys, CHAIN, there), KV_OK);
        for (uint32_t i = 0; i < CHAIN; i++)
            assert_int_equal(there[i], i != GAP);
        kv_client_close(c);
        rank_stop(&r);
    }
}

static void a_block_is_read_where_it_lies_under_a_lease(void **state)
{
    (void)state;
    struct rank r;
    struct kv_block_ref ref;
    struct kv_block_key key = key_of(0);
    rank_start(&r, 1, ARENA, 0);
    struct kv_client *c = open_client(r.socket, STAGING);
    uint8_t *want = bytes_of(0, MIB);
    assert_int_equal(put(c, 0, MIB), KV_OK);
    assert_int_equal(kv_block_lease(c, &key, &ref), KV_OK);
    for (uint32_t i = 1; i < 40; i++) /* the arena holds 16 */
        assert_int_equal(put(c, i, MIB), KV_OK);
    assert_memory_equal(ref.data, want, MIB);
    assert_int_equal(kv_block_check(c, &ref), KV_OK);
    assert_int_equal(kv_block_renew(c, &ref), KV_OK);
    assert_int_equal(kv_block_release(c, &ref), KV_OK);
    assert_int_equal(kv_block_release(c, &ref), KV_EXPIRED);
    free(want);
    kv_client_close(c);
    rank_stop(&r);
}

static void an_expired_lease_is_told_from_a_miss(void **state)
{
    (void)state;
    struct rank r;
    struct kv_block_ref ref;
    struct kv_block_key key = key_of(0);
    rank_start(&r, 1, ARENA, 50 * HW_MS);
    struct kv_client *c = open_client(r.socket, STAGING);
    assert_int_equal(put(c, 0, 100), KV_OK);
    assert_int_equal(kv_block_lease(c, &key, &ref), KV_OK);
    while (stat_of(c).leases_expired == 0)
        ; /* until the daemon has ended it */
    assert_int_equal(kv_block_check(c, &ref), KV_EXPIRED);
    assert_int_equal(kv_block_renew(c, &ref), KV_EXPIRED);
    assert_int_equal(kv_block_release(c, &ref), KV_EXPIRED);
    kv_client_close(c);
    rank_stop(&r);
}

static void who_commits_second_hears_that_it_exists(void **state)
{
    (void)state;
    struct rank r;
    struct kv_block_key key = key_of(0);
    struct kv_block_put first, second;
    rank_start(&r, 1, ARENA, 0);
    struct kv_client *a = open_client(r.socket, STAGING), *b = open_client(r.socket, STAGING);
    assert_int_equal(kv_block_put_start(a, &key, 1, 1000, &first), KV_OK);
    assert_int_equal(kv_block_put_start(b, &key, 1, 1000, &second), KV_OK);
    memset(first.data, 1, 1000);
    memset(second.data, 2, 1000);
    assert_int_equal(kv_block_put_commit(b, &second), KV_OK);
    assert_int_equal(kv_block_put_commit(a, &first), KV_EXISTS);
    struct kv_block_ref ref;
    assert_int_equal(kv_block_lease(a, &key, &ref), KV_OK);
    assert_int_equal(ref.data[0], 2);
    assert_int_equal(kv_block_release(a, &ref), KV_OK);
    assert_int_equal(kv_block_put_start(a, &(struct kv_block_key){.len = 1}, 1, 5, &first), KV_OK);
    assert_int_equal(kv_block_put_abort(a, &first), KV_OK);
    assert_int_equal(stat_of(a).open_puts, 0);
    kv_client_close(a);
    kv_client_close(b);
    rank_stop(&r);
}

static void limits_have_their_results(void **state)
{
    (void)state;
    struct rank r;
    struct kv_block_put put_out;
    struct kv_block_key key = key_of(100);
    struct kv_block_ref refs[4];
    rank_start(&r, 1, 4 * MIB, 0);
    struct kv_client *c = open_client(r.socket, STAGING);
    assert_int_equal(put(c, 0, 5 * MIB), KV_TOO_LARGE); /* than the arena */
    assert_int_equal(kv_block_put_start(c, &key, 1, STAGING + 1, &put_out), KV_FULL);
    assert_int_equal(kv_block_put_start(c, &key, 1, KV_BLOCK_MAX + 1, &put_out), KV_TOO_LARGE);
    assert_int_equal(kv_block_put_start(c, &key, 1, 0, &put_out), KV_REFUSED);
    for (uint32_t i = 0; i < 4; i++) {
        struct kv_block_key k = key_of(i);
        assert_int_equal(put(c, i, MIB), KV_OK);
        assert_int_equal(kv_block_lease(c, &k, &refs[i]), KV_OK);
    }
    assert_int_equal(put(c, 4, MIB), KV_FULL);
    for (uint32_t i = 0; i < 20; i++) /* a refused put leaves nothing behind in the staging area */
        assert_int_equal(put(c, 4, MIB), KV_FULL);
    assert_int_equal(kv_block_release(c, &refs[3]), KV_OK);
    assert_int_equal(put(c, 4, MIB), KV_OK);
    expect(c, 4, MIB);
    kv_client_close(c);
    rank_stop(&r);
}

static void without_staging_or_arena_blocks_are_refused(void **state)
{
    (void)state;
    struct rank r;
    rank_start(&r, 1, ARENA, 0);
    struct kv_client *c = open_client(r.socket, 0);
    assert_int_equal(put(c, 0, 10), KV_REFUSED);
    assert_int_equal(value_put(c, kv_key_u64(1), "v", 1), KV_OK); /* values go on */
    kv_client_close(c);
    rank_stop(&r);
    rank_start(&r, 1, 0, 0);
    c = open_client(r.socket, STAGING);
    assert_int_equal(put(c, 0, 10), KV_REFUSED);
    kv_client_close(c);
    rank_stop(&r);
}

/* Changes the last byte of a block.  The daemon's thread has written it and answered since, but
 * through another mapping of the region, where ThreadSanitizer does not see the order. */
__attribute__((no_sanitize("thread"))) static void damage(volatile uint8_t *arena,
                                                          const struct kv_block_ref *ref)
{
    size_t at = 0; /* nothing but this block is in the arena */
    while (arena[at] != ref->data[0] || arena[at + 1] != ref->data[1])
        at += 64;
    arena[at + ref->len - 1] ^= 0x10;
}

static void a_damaged_block_is_a_miss_and_is_counted(void **state)
{
    (void)state;
    struct rank r;
    struct kv_block_ref ref;
    struct kv_block_key key = key_of(0);
    uint8_t *got = malloc(MIB);
    uint32_t len = 0;
    rank_start(&r, 1, ARENA, 0);
    struct kv_client *c = open_client(r.socket, STAGING);
    for (uint32_t in_place = 0; in_place < 2; in_place++) {
        assert_int_equal(put(c, 0, MIB), KV_OK);
        assert_int_equal(kv_block_lease(c, &key, &ref), KV_OK);
        damage(kv_host_arena(r.hosts[0]), &ref);
        if (in_place)
            assert_int_equal(kv_block_check(c, &ref), KV_MISS);
        else
            assert_int_equal(kv_block_get(c, &key, got, MIB, &len), KV_MISS);
        assert_int_equal(stat_of(c).corrupt, in_place + 1);
        assert_int_equal(kv_block_get(c, &key, got, MIB, &len), KV_MISS);
        (void)kv_block_release(c, &ref);
    }
    assert_int_equal(put(c, 0, MIB), KV_OK);
    expect(c, 0, MIB);
    free(got);
    kv_client_close(c);
    rank_stop(&r);
}

static void a_client_that_goes_leaves_no_lease_and_no_put(void **state)
{
    (void)state;
    struct rank r;
    struct kv_block_key key = key_of(0), other = key_of(1);
    struct kv_block_ref ref;
    struct kv_block_put open_put;
    rank_start(&r, 1, ARENA, 0);
    struct kv_client *stays = open_client(r.socket, STAGING),
                     *goes = open_client(r.socket, STAGING);
    assert_int_equal(put(stays, 0, MIB), KV_OK);
    assert_int_equal(kv_block_lease(goes, &key, &ref), KV_OK);
    assert_int_equal(kv_block_put_start(goes, &other, 1, MIB, &open_put), KV_OK);
    assert_int_equal(stat_of(stays).leases, 1);
    assert_int_equal(stat_of(stays).open_puts, 1);
    kv_client_close(goes);
    while (stat_of(stays).leases > 0 || stat_of(stays).open_puts > 0)
        ; /* until the daemon has noticed */
    assert_int_equal(stat_of(stays).room_used, MIB);
    kv_client_close(stays);
    rank_stop(&r);
}

/* On a busy machine some of its requests time out. */
static enum kv_result put_in_time(struct kv_client *c, uint64_t n, size_t len)
{
    enum kv_result result = KV_TIMEOUT;
    for (int i = 0; i < 100 && result == KV_TIMEOUT; i++)
        result = put(c, n, len);
    return result;
}

/* Neither the commit nor the abort behind it is answered in time. */
static void what_a_put_had_staged_is_used_again_after_its_daemon_stalled(void **state)
{
    (void)state;
    struct rank r;
    rank_start(&r, 1, ARENA, 0);
    struct kv_client_options options = {
        .socket = r.socket, .staging_bytes = STAGING, .timeout_ns = 300 * HW_MS};
    struct kv_client *c;
    struct kv_block_put stalled;
    struct kv_block_key key = key_of(0);
    char why[RPC_WHY_CHARS] = "";
    if (hasty_client_open(&options, &c, why))
        fail_msg("%s", why);
    enum kv_result started;
    do
        started = kv_block_put_start(c, &key, 1, STAGING, &stalled);
    while (started == KV_TIMEOUT);
    assert_int_equal(started, KV_OK);
    memset(stalled.data, 1, STAGING);
    kv_host_enter(r.hosts[0]);
    assert_int_equal(kv_block_put_commit(c, &stalled), KV_TIMEOUT);
    kv_host_leave(r.hosts[0]);
    assert_int_equal(put_in_time(c, 1, STAGING), KV_OK);
    assert_int_equal(kv_block_put_abort(c, &stalled), KV_PUT_EXPIRED);
    assert_int_equal(put_in_time(c, 2, STAGING), KV_OK);
    kv_client_close(c);
    rank_stop(&r);
}

/* Whether the kernel has pages of that memory. */
static bool has_pages(const uint8_t *at, size_t bytes)
{
    unsigned char there[STAGING / 4096];
    bool any = false;
    assert_int_equal(mincore((void *)((uintptr_t)at & ~(uintptr_t)4095), bytes, there), 0);
    for (size_t i = 0; i < bytes / 4096; i++)
        any |= there[i] & 1;
    return any;
}

static void an_idle_client_keeps_no_memory_for_its_staging_area(void **state)
{
    (void)state;
    struct rank r;
    rank_start(&r, 1, ARENA, 0);
    struct kv_client *idle = open_client(r.socket, STAGING), *c = open_client(r.socket, STAGING);
    struct kv_block_put open, done;
    struct kv_block_key key = key_of(1), other = key_of(2);
    assert_int_equal(kv_block_put_start(c, &key, 1, MIB, &open), KV_OK);
    memset(open.data, 1, MIB);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kv_block_put_start(idle, &other, 1, 3 * MIB, &done), KV_OK);
        memset(done.data, 1, 3 * MIB);
        const uint8_t *at = done.data;
        assert_int_equal(kv_block_put_commit(idle, &done), KV_OK);
        while (has_pages(at, 3 * MIB))
            sched_yield();
        assert_int_equal(kv_block_delete(idle, &other), KV_OK);
    }
    assert_true(has_pages(open.data, MIB)); /* it is being put */
    const uint8_t *at = open.data;
    assert_int_equal(at[MIB - 1], 1);
    assert_int_equal(kv_block_put_commit(c, &open), KV_OK);
    while (has_pages(at, MIB))
        sched_yield();
    assert_int_equal(put(c, 3, MIB), KV_OK);
    expect(c, 3, MIB);
    kv_client_close(idle);
    kv_client_close(c);
    rank_stop(&r);
}

static void nobody_but_the_daemon_can_write_the_arena(void **state)
{
    (void)state;
    struct kv_arena made, taken;
    assert_int_equal(kv_arena_make(1 << 20, &made), 0);
    made.map[5] = 55;
    assert_ptr_equal(mmap(NULL, made.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0),
                     MAP_FAILED);
    assert_int_equal(pwrite(made.fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(made.fd, 0), -1);
    assert_int_equal(kv_arena_take(dup(made.fd), made.bytes + 1, &taken), -EPROTO);
    assert_int_equal(kv_arena_take(dup(made.fd), made.bytes, &taken), 0);
    assert_int_equal(taken.map[5], 55);
    made.map[5] = 56;
    assert_int_equal(taken.map[5], 56);
    assert_int_equal(mprotect(taken.map, taken.bytes, PROT_READ | PROT_WRITE), -1);
    kv_arena_fini(&taken);
    kv_arena_fini(&made);
    int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(unsealed, 4096), 0);
    assert_int_equal(kv_arena_take(unsealed, 4096, &taken), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_back_as_they_were_put),
        cmocka_unit_test(what_is_staged_may_be_told),
        cmocka_unit_test(keys_are_found_at_all_daemons),
        cmocka_unit_test(a_block_is_read_where_it_lies_under_a_lease),
        cmocka_unit_test(an_expired_lease_is_told_from_a_miss),
        cmocka_unit_test(who_commits_second_hears_that_it_exists),
        cmocka_unit_test(limits_have_their_results),
        cmocka_unit_test(without_staging_or_arena_blocks_are_refused),
        cmocka_unit_test(a_damaged_block_is_a_miss_and_is_counted),
        cmocka_unit_test(a_client_that_goes_leaves_no_lease_and_no_put),
        cmocka_unit_test(what_a_put_had_staged_is_used_again_after_its_daemon_stalled),
        cmocka_unit_test(an_idle_client_keeps_no_memory_for_its_staging_area),
        cmocka_unit_test(nobody_but_the_daemon_can_write_the_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
