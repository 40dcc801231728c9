/* The block store, rule by rule. */
#include "unit.h"

#include "kv/store/blocks.h"
#include "kv/store/extents.h"
#include "wire/le.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ARENA = 64 << 10, BLOCK = 4096, SEC = 1000000000 };

static _Alignas(64) uint8_t arena[ARENA];

struct fixture {
    struct kv_blocks *b;
    struct kv_block_holder me, other;
    uint64_t now;
};

static struct kv_blocks_config config_of(void)
{
    return (struct kv_blocks_config){.arena = arena,
                                     .arena_bytes = sizeof(arena),
                                     .entries = 64,
                                     .open_puts = 4,
                                     .leases = 8,
                                     .high_percent = 100,
                                     .low_percent = 100,
                                     .put_lasts_ns = 10 * (uint64_t)SEC,
                                     .lease_lasts_ns = 5 * (uint64_t)SEC,
                                     .memory = kv_heap()};
}

static void start_with(struct fixture *f, const struct kv_blocks_config *config)
{
    *f = (struct fixture){.me = KV_BLOCK_HOLDER_INIT, .other = KV_BLOCK_HOLDER_INIT, .now = 1000};
    assert_int_equal(kv_blocks_create(config, &f->b), 0);
}

static void start(struct fixture *f)
{
    struct kv_blocks_config config = config_of();
    start_with(f, &config);
}

static void stop(struct fixture *f)
{
    kv_blocks_leave(f->b, &f->me, f->now);
    kv_blocks_leave(f->b, &f->other, f->now);
    kv_blocks_destroy(f->b);
}

static struct kv_block_key key_of(int n)
{
    struct kv_block_key key;
    char name[16];
    int len = snprintf(name, sizeof(name), "key-%d", n);
    assert_int_equal(kv_block_key_set(&key, name, (size_t)len), 0);
    return key;
}

static void fill(uint8_t *data, int n, size_t len)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)(n * 31 + (int)(i % 251));
}

static enum kv_result put_of(struct fixture *f, int n, uint32_t len, uint64_t tenant)
{
    static uint8_t data[ARENA];
    struct kv_block_key key = key_of(n);
    uint64_t ticket;
    enum kv_result r = kv_blocks_put_start(f->b, &f->me, &key, tenant, len, f->now, &ticket);
    if (r != KV_OK)
        return r;
    fill(data, n, len);
    assert_int_equal(kv_blocks_put_write(f->b, &f->me, ticket, 0, data, len, f->now), KV_OK);
    return kv_blocks_put_commit(f->b, &f->me, ticket, f->now);
}

static enum kv_result put(struct fixture *f, int n)
{
    return put_of(f, n, BLOCK, 1);
}

static enum kv_result get(struct fixture *f, int n, struct kv_block_lease *lease)
{
    struct kv_block_key key = key_of(n);
    return kv_blocks_get_confirmed(f->b, &f->me, &key, f->now, lease);
}

static bool exists(struct fixture *f, int n)
{
    struct kv_block_key key = key_of(n);
    uint64_t checksum;
    return kv_blocks_peek(f->b, &key, &checksum);
}

static struct kv_blocks_stat stat_of(struct fixture *f)
{
    struct kv_blocks_stat s;
    kv_blocks_stat(f->b, &s);
    return s;
}

/* ---- putting ---- */

static void a_block_is_found_only_after_commit_and_whole(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t want[1000];
    struct kv_block_key key = key_of(1);
    struct kv_block_lease lease;
    uint64_t ticket;
    start(&f);
    fill(want, 1, sizeof(want));
    assert_int_equal(kv_blocks_put_start(f.b, &f.me, &key, 1, 1000, f.now, &ticket), KV_OK);
    assert_int_equal(get(&f, 1, &lease), KV_MISS);
    assert_int_equal(kv_blocks_put_write(f.b, &f.me, ticket, 0, want, 600, f.now), KV_OK);
    assert_int_equal(kv_blocks_put_write(f.b, &f.me, ticket, 600, want + 600, 400, f.now), KV_OK);
    assert_int_equal(get(&f, 1, &lease), KV_MISS);
    assert_int_equal(kv_blocks_put_commit(f.b, &f.me, ticket, f.now), KV_OK);
    assert_int_equal(get(&f, 1, &lease), KV_OK);
    assert_int_equal(lease.len, 1000);
    assert_memory_equal(arena + lease.offset, want, 1000);
    assert_int_equal(lease.checksum, kv_checksum_add(0, want, 1000));
    assert_int_equal(kv_blocks_verify(f.b, &f.me, lease.handle, f.now), KV_OK);
    stop(&f);
}

static void writes_are_in_order_and_complete(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t data[100] = {0};
    struct kv_block_key key = key_of(1);
    uint64_t ticket, written = 1;
    start(&f);
    assert_int_equal(kv_blocks_put_start(f.b, &f.me, &key, 1, 100, f.now, &ticket), KV_OK);
    assert_int_equal(kv_blocks_put_written(f.b, &f.me, ticket, f.now, &written), KV_OK);
    assert_int_equal(written, 0);
    assert_int_equal(kv_blocks_put_write(f.b, &f.me, ticket, 1, data, 50, f.now), KV_REFUSED);
    assert_int_equal(kv_blocks_put_write(f.b, &f.me, ticket, 0, data, 101, f.now), KV_REFUSED);
    assert_int_equal(kv_blocks_put_write(f.b, &f.me, ticket, 0, data, 60, f.now), KV_OK);
    assert_int_equal(kv_blocks_put_write(f.b, &f.me, ticket, 0, data, 40, f.now), KV_REFUSED);
    assert_int_equal(kv_blocks_put_write(f.b, &f.me, ticket, 60, data, UINT64_MAX, f.now),
                     KV_REFUSED);
    assert_int_equal(kv_blocks_put_written(f.b, &f.other, ticket, f.now, &written), KV_REFUSED);
    assert_int_equal(kv_blocks_put_written(f.b, &f.me, ticket, f.now, &written), KV_OK);
    assert_int_equal(written, 60);
    assert_int_equal(kv_blocks_put_commit(f.b, &f.me, ticket, f.now), KV_REFUSED);
    assert_int_equal(kv_blocks_put_commit(f.b, &f.me, ticket, f.now),
                     KV_PUT_EXPIRED); /* it has ended */
    assert_int_equal(kv_blocks_put_written(f.b, &f.me, ticket, f.now, &written), KV_PUT_EXPIRED);
    assert_false(exists(&f, 1));
    assert_int_equal(stat_of(&f).room_used, 0);
    stop(&f);
}

static void who_commits_first_wins_and_the_other_hears_it(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_key key = key_of(1);
    struct kv_block_lease lease;
    uint64_t mine, theirs;
    start(&f);
    assert_int_equal(kv_blocks_put_start(f.b, &f.me, &key, 1, 3, f.now, &mine), KV_OK);
    assert_int_equal(kv_blocks_put_start(f.b, &f.other, &key, 1, 3, f.now, &theirs), KV_OK);
    assert_int_equal(kv_blocks_put_write(f.b, &f.me, mine, 0, "one", 3, f.now), KV_OK);
    assert_int_equal(kv_blocks_put_write(f.b, &f.other, theirs, 0, "two", 3, f.now), KV_OK);
    assert_int_equal(kv_blocks_put_commit(f.b, &f.other, theirs, f.now), KV_OK);
    assert_int_equal(kv_blocks_put_commit(f.b, &f.me, mine, f.now), KV_EXISTS);
    assert_int_equal(get(&f, 1, &lease), KV_OK);
    assert_memory_equal(arena + lease.offset, "two", 3);
    assert_int_equal(stat_of(&f).room_used, KV_GRANULE); /* the loser's room is free */
    assert_int_equal(put_of(&f, 1, 3, 1), KV_EXISTS);
    stop(&f);
}

static void a_put_that_is_never_committed_ends(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_key key = key_of(1);
    uint64_t ticket;
    start(&f);
    assert_int_equal(kv_blocks_next_tick(f.b), HW_NEVER);
    assert_int_equal(kv_blocks_put_start(f.b, &f.me, &key, 1, 4, f.now, &ticket), KV_OK);
    assert_int_equal(kv_blocks_next_tick(f.b), f.now + 10 * (uint64_t)SEC);
    f.now += 10 * (uint64_t)SEC - 1;
    assert_int_equal(kv_blocks_put_write(f.b, &f.me, ticket, 0, "four", 4, f.now), KV_OK);
    f.now++;
    assert_int_equal(kv_blocks_put_commit(f.b, &f.me, ticket, f.now), KV_PUT_EXPIRED);
    assert_int_equal(stat_of(&f).puts_expired, 1);
    assert_int_equal(stat_of(&f).stale, 1);
    assert_int_equal(stat_of(&f).room_used, 0);
    stop(&f);
}

static void tickets_belong_to_their_holder(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_key key = key_of(1);
    uint64_t ticket;
    start(&f);
    assert_int_equal(kv_blocks_put_start(f.b, &f.me, &key, 1, 4, f.now, &ticket), KV_OK);
    assert_int_equal(kv_blocks_put_abort(f.b, &f.other, ticket, f.now), KV_REFUSED);
    assert_int_equal(kv_blocks_put_abort(f.b, &f.me, ticket + 1, f.now), KV_REFUSED);
    assert_int_equal(kv_blocks_put_abort(f.b, &f.me, ticket + (UINT64_C(1) << 32), f.now),
                     KV_REFUSED);
    assert_int_equal(kv_blocks_put_abort(f.b, &f.me, UINT64_MAX, f.now), KV_REFUSED);
    assert_int_equal(kv_blocks_put_abort(f.b, &f.me, 0, f.now), KV_REFUSED);
    assert_int_equal(kv_blocks_put_abort(f.b, &f.me, ticket, f.now), KV_OK);
    assert_int_equal(kv_blocks_put_abort(f.b, &f.me, ticket, f.now), KV_PUT_EXPIRED);
    stop(&f);
}

/* One in this process writes to the arena itself: time does not take the room from it. */
static void room_is_its_holders_until_the_commit(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_key key = key_of(1);
    struct kv_block_lease lease, mine;
    struct kv_block_room room, other;
    uint64_t checksum = kv_checksum_add(0, "four", 4), ends;
    start(&f);
    f.other.open_puts.lasting = f.other.leases.lasting = true;
    assert_int_equal(put(&f, 1), KV_OK);
    assert_int_equal(kv_blocks_room_start(f.b, &f.other, &key, 1, 4, f.now, &room), KV_OK);
    assert_int_equal(kv_blocks_room_start(f.b, &f.other, &key, 1, 4, f.now, &other), KV_OK);
    assert_int_equal(kv_blocks_get(f.b, &f.other, &key, f.now, &mine), KV_OK);
    assert_int_equal(get(&f, 1, &lease), KV_OK);
    assert_int_equal(kv_blocks_next_tick(f.b), lease.expires_ns);
    f.now = room.expires_ns + 1;
    assert_int_equal(kv_blocks_release(f.b, &f.me, lease.handle, f.now), KV_EXPIRED);
    memcpy(room.bytes, "four", 4);
    assert_int_equal(kv_blocks_room_commit(f.b, &f.other, room.ticket, checksum, true, f.now),
                     KV_OK);
    assert_int_equal(kv_blocks_renew(f.b, &f.other, mine.handle, f.now, &ends), KV_MISS);
    assert_int_equal(get(&f, 1, &lease), KV_OK);
    assert_true(lease.len == 4 && memcmp(arena + lease.offset, "four", 4) == 0);
    assert_int_equal(kv_blocks_verify(f.b, &f.me, lease.handle, f.now), KV_OK);
    assert_int_equal(kv_blocks_room_commit(f.b, &f.other, other.ticket, checksum, false, f.now),
                     KV_EXISTS);
    assert_int_equal(kv_blocks_renew(f.b, &f.me, lease.handle, f.now, &ends), KV_OK);
    uint64_t used = stat_of(&f).room_used; /* the deleted block, which is leased, too */
    assert_int_equal(kv_blocks_release(f.b, &f.other, mine.handle, f.now), KV_OK);
    assert_true(stat_of(&f).room_used < used);
    assert_int_equal(kv_blocks_room_start(f.b, &f.other, &key, 1, 2 * ARENA, f.now, &room),
                     KV_TOO_LARGE);
    stop(&f);
    assert_int_equal(f.other.leases.count + f.other.open_puts.count, 0);
}

/* ---- leases ---- */

static void a_leased_block_stays_until_the_lease_ends(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_lease lease;
    uint8_t want[BLOCK];
    start(&f);
    fill(want, 0, BLOCK);
    assert_int_equal(put(&f, 0), KV_OK);
    assert_int_equal(get(&f, 0, &lease), KV_OK);
    for (int n = 1; n < 100; n++) /* the arena holds 16 */
        assert_int_equal(put(&f, n), KV_OK);
    assert_memory_equal(arena + lease.offset, want, BLOCK);
    assert_true(exists(&f, 0));
    assert_int_equal(kv_blocks_release(f.b, &f.me, lease.handle, f.now), KV_OK);
    assert_int_equal(kv_blocks_release(f.b, &f.me, lease.handle, f.now), KV_EXPIRED);
    for (int n = 100; n < 200; n++)
        assert_int_equal(put(&f, n), KV_OK);
    assert_false(exists(&f, 0));
    stop(&f);
}

static void a_lease_ends_at_its_time_unless_renewed(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_lease lease;
    uint64_t expires;
    start(&f);
    assert_int_equal(put(&f, 0), KV_OK);
    assert_int_equal(get(&f, 0, &lease), KV_OK);
    assert_int_equal(lease.expires_ns, f.now + 5 * (uint64_t)SEC);
    f.now = lease.expires_ns - 1;
    assert_int_equal(kv_blocks_renew(f.b, &f.me, lease.handle, f.now, &expires), KV_OK);
    assert_int_equal(expires, f.now + 5 * (uint64_t)SEC);
    f.now = expires - 1;
    assert_int_equal(kv_blocks_verify(f.b, &f.me, lease.handle, f.now), KV_OK);
    f.now = expires;
    assert_int_equal(kv_blocks_renew(f.b, &f.me, lease.handle, f.now, &expires), KV_EXPIRED);
    assert_int_equal(kv_blocks_verify(f.b, &f.me, lease.handle, f.now), KV_EXPIRED);
    assert_int_equal(stat_of(&f).leases_expired, 1);
    assert_int_equal(stat_of(&f).leases, 0);
    stop(&f);
}

static void leases_end_in_the_order_of_their_renewal(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_lease a, b;
    uint64_t expires;
    start(&f);
    assert_int_equal(put(&f, 0), KV_OK);
    assert_int_equal(get(&f, 0, &a), KV_OK);
    f.now += SEC;
    assert_int_equal(get(&f, 0, &b), KV_OK);
    f.now += SEC;
    assert_int_equal(kv_blocks_renew(f.b, &f.me, a.handle, f.now, &expires), KV_OK);
    assert_int_equal(kv_blocks_next_tick(f.b), b.expires_ns);
    f.now = b.expires_ns;
    assert_int_equal(kv_blocks_release(f.b, &f.me, b.handle, f.now), KV_EXPIRED);
    assert_int_equal(kv_blocks_release(f.b, &f.me, a.handle, f.now), KV_OK);
    stop(&f);
}

static void a_deleted_block_keeps_its_room_while_leased(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_lease lease;
    struct kv_block_key key = key_of(0);
    uint64_t expires;
    uint8_t want[BLOCK];
    start(&f);
    fill(want, 0, BLOCK);
    assert_int_equal(put(&f, 0), KV_OK);
    assert_int_equal(get(&f, 0, &lease), KV_OK);
    assert_int_equal(kv_blocks_delete(f.b, &key, f.now), KV_OK);
    assert_int_equal(kv_blocks_delete(f.b, &key, f.now), KV_MISS);
    assert_false(exists(&f, 0));
    assert_int_equal(stat_of(&f).room_used, BLOCK);
    assert_int_equal(stat_of(&f).blocks, 0);
    assert_int_equal(kv_blocks_renew(f.b, &f.me, lease.handle, f.now, &expires), KV_MISS);
    assert_int_equal(put(&f, 0), KV_OK); /* again, elsewhere */
    assert_memory_equal(arena + lease.offset, want, BLOCK);
    assert_int_equal(kv_blocks_release(f.b, &f.me, lease.handle, f.now), KV_OK);
    assert_int_equal(stat_of(&f).room_used, BLOCK);
    assert_true(exists(&f, 0));
    stop(&f);
}

static void a_holder_that_goes_takes_its_claims_along(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_lease mine, theirs;
    struct kv_block_key key = key_of(0), fresh = key_of(1);
    uint64_t ticket;
    start(&f);
    assert_int_equal(put(&f, 0), KV_OK);
    assert_int_equal(get(&f, 0, &mine), KV_OK);
    assert_int_equal(kv_blocks_get(f.b, &f.other, &key, f.now, &theirs), KV_OK);
    assert_int_equal(kv_blocks_put_start(f.b, &f.other, &fresh, 1, BLOCK, f.now, &ticket), KV_OK);
    assert_int_equal(kv_blocks_release(f.b, &f.me, theirs.handle, f.now), KV_REFUSED);
    kv_blocks_leave(f.b, &f.other, f.now);
    assert_int_equal(stat_of(&f).leases, 1);
    assert_int_equal(stat_of(&f).open_puts, 0);
    assert_int_equal(stat_of(&f).room_used, BLOCK);
    assert_int_equal(kv_blocks_release(f.b, &f.me, mine.handle, f.now), KV_OK);
    stop(&f);
}

/* ---- corruption ---- */

static void a_changed_byte_is_a_miss_and_never_data(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_lease lease;
    start(&f);
    assert_int_equal(put(&f, 0), KV_OK);
    assert_int_equal(get(&f, 0, &lease), KV_OK);
    arena[lease.offset + BLOCK - 1] ^= 4;
    assert_int_equal(kv_blocks_verify(f.b, &f.me, lease.handle, f.now), KV_MISS);
    assert_int_equal(stat_of(&f).corrupt, 1);
    assert_int_equal(stat_of(&f).room_used, 0);
    assert_int_equal(get(&f, 0, &lease), KV_MISS);
    assert_int_equal(put(&f, 0), KV_OK);
    assert_int_equal(get(&f, 0, &lease), KV_OK);
    assert_int_equal(kv_blocks_verify(f.b, &f.me, lease.handle, f.now), KV_OK);
    stop(&f);
}

/* ---- limits ---- */

static void every_limit_has_its_result(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_key key = key_of(1), empty = {0};
    struct kv_block_lease lease;
    uint64_t tickets[4], ticket;
    start(&f);
    assert_int_equal(put_of(&f, 1, 0, 1), KV_REFUSED);
    assert_int_equal(kv_blocks_put_start(f.b, &f.me, &empty, 1, 1, f.now, &ticket), KV_REFUSED);
    assert_int_equal(kv_blocks_get(f.b, &f.me, &empty, f.now, &lease), KV_MISS);
    assert_int_equal(kv_blocks_put_start(f.b, &f.me, &key, 1, ARENA + 1, f.now, &ticket),
                     KV_TOO_LARGE);
    assert_int_equal(
        kv_blocks_put_start(f.b, &f.me, &key, 1, KV_BLOCK_MAX + UINT64_C(1), f.now, &ticket),
        KV_TOO_LARGE);
    assert_true(kv_blocks_may_restore(f.b, &key, 1));
    assert_false(kv_blocks_may_restore(f.b, &key, 0));
    assert_false(kv_blocks_may_restore(f.b, &key, KV_BLOCK_MAX + UINT64_C(1)));
    for (int n = 0; n < 4; n++) {
        key = key_of(n);
        assert_int_equal(kv_blocks_put_start(f.b, &f.me, &key, 1, 1, f.now, &tickets[n]), KV_OK);
    }
    assert_int_equal(put(&f, 9), KV_FULL); /* puts */
    for (int n = 0; n < 4; n++)
        assert_int_equal(kv_blocks_put_abort(f.b, &f.me, tickets[n], f.now), KV_OK);
    assert_int_equal(put(&f, 9), KV_OK);
    for (int n = 0; n < 8; n++)
        assert_int_equal(get(&f, 9, &lease), KV_OK);
    assert_int_equal(get(&f, 9, &lease), KV_FULL); /* leases */
    stop(&f);
}

static void what_is_held_can_fill_the_store(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_blocks_config config = config_of();
    config.leases = 64;
    start_with(&f, &config);
    struct kv_block_lease lease;
    for (int n = 0; n < 16; n++) {
        assert_int_equal(put(&f, n), KV_OK);
        assert_int_equal(get(&f, n, &lease), KV_OK);
    }
    assert_int_equal(put(&f, 16), KV_FULL);
    assert_int_equal(kv_blocks_release(f.b, &f.me, lease.handle, f.now), KV_OK);
    assert_int_equal(put(&f, 16), KV_OK);
    assert_false(exists(&f, 15));
    for (int n = 0; n < 15; n++)
        assert_true(exists(&f, n));
    stop(&f);
}

static void entries_are_limited(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_blocks_config config = config_of();
    config.entries = 3;
    start_with(&f, &config);
    for (int n = 0; n < 5; n++)
        assert_int_equal(put_of(&f, n, 10, 1), KV_OK);
    assert_int_equal(stat_of(&f).blocks, 3);
    assert_int_equal(stat_of(&f).evicted, 2);
    stop(&f);
}

static void a_tenant_at_its_limit_loses_its_own_blocks_only(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_blocks_config config = config_of();
    struct kv_block_lease lease;
    config.tenant_bytes = 3 * BLOCK;
    start_with(&f, &config);
    assert_int_equal(put_of(&f, 100, BLOCK, 1), KV_OK);
    for (int n = 0; n < 5; n++)
        assert_int_equal(put_of(&f, n, BLOCK, 2), KV_OK);
    assert_true(exists(&f, 100) && exists(&f, 2) && exists(&f, 3) && exists(&f, 4));
    assert_false(exists(&f, 0) || exists(&f, 1));
    assert_int_equal(kv_blocks_tenant_bytes(f.b, 2), 3 * BLOCK);
    assert_int_equal(kv_blocks_tenant_bytes(f.b, 1), BLOCK);
    assert_int_equal(put_of(&f, 5, 4 * BLOCK, 2), KV_TOO_LARGE);
    for (int n = 2; n < 5; n++)
        assert_int_equal(get(&f, n, &lease), KV_OK);
    assert_int_equal(put_of(&f, 6, BLOCK, 2), KV_FULL);
    assert_int_equal(put_of(&f, 101, BLOCK, 1), KV_OK);
    stop(&f);
}

static void tenants_are_limited_and_their_places_are_used_again(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_blocks_config config = config_of();
    config.entries = 2 * KV_BLOCK_TENANTS_MAX;
    start_with(&f, &config);
    for (int n = 0; n < KV_BLOCK_TENANTS_MAX; n++)
        assert_int_equal(put_of(&f, n, 1, (uint64_t)n), KV_OK);
    assert_int_equal(put_of(&f, 1000, 1, 1000), KV_FULL);
    struct kv_block_key key = key_of(7);
    assert_int_equal(kv_blocks_delete(f.b, &key, f.now), KV_OK);
    assert_int_equal(put_of(&f, 1000, 1, 1000), KV_OK);
    assert_int_equal(kv_blocks_tenant_bytes(f.b, 7), 0);
    assert_int_equal(kv_blocks_tenant_bytes(f.b, 1000), KV_GRANULE);
    stop(&f);
}

static void room_is_made_from_the_high_mark_to_the_low_mark(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_blocks_config config = config_of();
    config.high_percent = 75;
    config.low_percent = 50;
    start_with(&f, &config);
    for (int n = 0; n < 12; n++)
        assert_int_equal(put(&f, n), KV_OK);
    assert_int_equal(stat_of(&f).evicted, 0);
    assert_int_equal(put(&f, 12), KV_OK);
    assert_int_equal(stat_of(&f).blocks, 8);
    assert_int_equal(stat_of(&f).evicted, 5);
    stop(&f);
}

static void blocks_of_many_sizes_fit_after_evictions(void **state)
{
    (void)state;
    struct fixture f;
    start(&f);
    for (int n = 0; n < 60; n++)
        assert_int_equal(put_of(&f, n, 1000 + (uint32_t)(n % 5) * 900, 1), KV_OK);
    assert_int_equal(put_of(&f, 1000, ARENA, 1), KV_OK); /* evicts all */
    assert_int_equal(stat_of(&f).blocks, 1);
    stop(&f);
}

/* ---- memory ---- */

static int allocations_left;

static void *scarce(void *user, size_t bytes)
{
    (void)user;
    return allocations_left-- > 0 ? calloc(1, bytes) : NULL;
}

/* Values that are set while somebody lists them: each has a block all the time. */
static void a_walk_tells_of_each_key_once_although_its_block_is_replaced(void **state)
{
    (void)state;
    enum { KEYS = 600, PAGE = 15, REPLACED = 8 };
    struct fixture f;
    struct kv_blocks_config config = config_of();
    config.entries = 1024;
    config.secret = 7;
    start_with(&f, &config);
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(put_of(&f, i, 64, 1), KV_OK);
    unsigned told[KEYS] = {0}, calls = 0;
    uint32_t place = 0, replaced = 0;
    do {
        struct kv_block_key keys[PAGE];
        uint32_t count = PAGE;
        place = kv_blocks_walk(f.b, place, 64, keys, &count);
        for (uint32_t i = 0; i < count; i++)
            for (int k = 0; k < KEYS; k++) {
                struct kv_block_key key = key_of(k);
                told[k] += kv_block_key_equal(&key, &keys[i]);
            }
        for (int i = 0; i < REPLACED; i++, replaced += 7) {
            uint8_t data[64] = {0};
            struct kv_block_key key = key_of((int)(replaced % KEYS));
            uint64_t ticket;
            assert_int_equal(
                kv_blocks_replace_start(f.b, &f.me, &key, 1, sizeof(data), f.now, &ticket), KV_OK);
            assert_int_equal(kv_blocks_put_write(f.b, &f.me, ticket, 0, data, sizeof(data), f.now),
                             KV_OK);
            assert_int_equal(kv_blocks_put_commit(f.b, &f.me, ticket, f.now), KV_OK);
        }
        assert_true(++calls < KEYS);
    } while (place);
    for (int k = 0; k < KEYS; k++)
        assert_int_equal(told[k], 1);
    stop(&f);
}

static void every_failed_allocation_is_an_answer(void **state)
{
    (void)state;
    struct kv_blocks_config config = config_of();
    struct kv_blocks *b = NULL;
    int rc = -ENOMEM;
    config.memory = (struct kv_memory){.alloc = scarce, .release = kv_heap_release};
    int n = 0;
    for (; n < 20 && rc; n++) {
        allocations_left = n;
        rc = kv_blocks_create(&config, &b);
        assert_true(rc == 0 || rc == -ENOMEM);
    }
    assert_int_equal(rc, 0);
    assert_true(n > 8); /* store, three tables, extents, policy and ghosts, two of claims */
    kv_blocks_destroy(b);
}

static void bad_configurations_are_refused(void **state)
{
    (void)state;
    struct kv_blocks *b;
    struct kv_blocks_config good = config_of(), c = good;
    c.arena = NULL;
    assert_int_equal(kv_blocks_create(&c, &b), -EINVAL);
    c = good;
    c.arena = arena + 1;
    assert_int_equal(kv_blocks_create(&c, &b), -EINVAL);
    c = good;
    c.entries = 0;
    assert_int_equal(kv_blocks_create(&c, &b), -EINVAL);
    c = good;
    c.open_puts = KV_BLOCK_PUTS_MAX + 1;
    assert_int_equal(kv_blocks_create(&c, &b), -EINVAL);
    c = good;
    c.high_percent = 50;
    c.low_percent = 60;
    assert_int_equal(kv_blocks_create(&c, &b), -EINVAL);
    c = good;
    c.policy = KV_POLICY_KINDS;
    assert_int_equal(kv_blocks_create(&c, &b), -EINVAL);
}

/* ---- versions of named values ---- */

static struct kv_block_key named_key(void)
{
    struct kv_block_key key = {.len = KV_NAMED_KIND + 32};
    memcpy(key.bytes, kv_named_kind(true), KV_NAMED_KIND);
    return key;
}

/* Puts bytes that follow from n, as another daemon would; version 0: as a client of this one. */
static enum kv_result set_named(struct fixture *f, int n, uint64_t version)
{
    uint8_t data[BLOCK];
    struct kv_block_key key = named_key();
    uint64_t ticket;
    enum kv_result r = kv_blocks_replace_start(f->b, &f->me, &key, 1, BLOCK, f->now, &ticket);
    if (r != KV_OK)
        return r;
    fill(data, n, BLOCK);
    assert_int_equal(kv_blocks_put_write(f->b, &f->me, ticket, 0, data, BLOCK, f->now), KV_OK);
    return version ? kv_blocks_put_commit_as(f->b, &f->me, ticket, kv_checksum_add(0, data, BLOCK),
                                             version, f->now)
                   : kv_blocks_put_commit(f->b, &f->me, ticket, f->now);
}

static uint64_t sum_of(int n)
{
    uint8_t data[BLOCK];
    fill(data, n, BLOCK);
    return kv_checksum_add(0, data, BLOCK);
}

static void expect_named(const struct fixture *f, int n, uint64_t version)
{
    struct kv_block_key key = named_key();
    uint64_t checksum = 0;
    assert_true(kv_blocks_peek(f->b, &key, &checksum));
    assert_true(checksum == sum_of(n));
    assert_true(kv_blocks_version(f->b, &key) == version);
}

static void of_two_named_values_the_newer_one_stays(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_key key = named_key();
    int low = sum_of(1) < sum_of(2) ? 1 : 2, high = 3 - low;
    start(&f);
    f.now = 1000;
    assert_int_equal(set_named(&f, 7, 5000), KV_OK);
    assert_int_equal(set_named(&f, 8, 4999), KV_OK); /* it was replaced before it came */
    expect_named(&f, 7, 5000);
    assert_int_equal(set_named(&f, low, 5001), KV_OK);
    expect_named(&f, low, 5001);
    assert_int_equal(set_named(&f, high, 5001), KV_OK); /* in either order */
    assert_int_equal(set_named(&f, low, 5001), KV_OK);
    expect_named(&f, high, 5001);
    assert_int_equal(set_named(&f, 9, 0), KV_OK); /* newer, though the clock says otherwise */
    expect_named(&f, 9, 5003);
    f.now = 6000;
    assert_int_equal(set_named(&f, 8, 0), KV_OK);
    expect_named(&f, 8, 6000);
    assert_int_equal(kv_blocks_delete_old(f.b, &key, 5999, f.now), KV_MISS);
    expect_named(&f, 8, 6000);
    assert_int_equal(kv_blocks_delete_old(f.b, &key, 6000, f.now), KV_OK);
    assert_false(kv_blocks_owns(f.b, &key));
    key = key_of(1);
    assert_true(kv_blocks_next_version(f.b, &key, 0, f.now) == 0); /* not a named value's */
    stop(&f);
}

static enum kv_result set_until(struct fixture *f, uint64_t end_ms)
{
    uint64_t ticket;
    uint8_t bytes[KV_NAMED_HEAD];
    struct kv_block_key key = named_key();
    wire_store64(bytes, end_ms);
    struct kv_block_holder *holder = &f->me;
    assert_int_equal(kv_blocks_replace_start(f->b, holder, &key, 1, sizeof(bytes), f->now, &ticket),
                     KV_OK);
    assert_int_equal(kv_blocks_put_write(f->b, holder, ticket, 0, bytes, sizeof(bytes), f->now),
                     KV_OK);
    return kv_blocks_put_commit(f->b, holder, ticket, f->now);
}

static void a_delete_of_a_value_past_its_end_is_a_miss(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_key key = named_key();
    static const struct {
        uint64_t end_ms;
        enum kv_result result;
    } cases[] = {{0, KV_OK}, {101, KV_OK}, {100, KV_MISS}, {KV_NAMED_DELETED, KV_MISS}};
    start(&f);
    f.now = 100 * HW_MS;
    for (uint32_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(set_until(&f, cases[i].end_ms), KV_OK);
        assert_int_equal(kv_blocks_delete(f.b, &key, f.now), cases[i].result);
        assert_false(kv_blocks_owns(f.b, &key)); /* it goes in any case */
        assert_int_equal(set_until(&f, cases[i].end_ms), KV_OK);
        assert_int_equal(kv_blocks_delete_old(f.b, &key, UINT64_MAX, f.now), cases[i].result);
        assert_false(kv_blocks_owns(f.b, &key));
    }
    stop(&f);
}

/* ---- copies of others' blocks ---- */

static enum kv_result cache_as(struct fixture *f, int n, uint64_t damage)
{
    uint8_t data[BLOCK];
    struct kv_block_key key = key_of(n);
    uint64_t ticket;
    enum kv_result r = kv_blocks_cache_start(f->b, &f->other, &key, BLOCK, f->now, &ticket);
    if (r != KV_OK)
        return r;
    fill(data, n, BLOCK);
    assert_int_equal(kv_blocks_put_write(f->b, &f->other, ticket, 0, data, BLOCK, f->now), KV_OK);
    uint64_t checksum = kv_checksum_add(0, data, BLOCK) ^ damage;
    return kv_blocks_put_commit_as(f->b, &f->other, ticket, checksum, 0, f->now);
}

static enum kv_result cache(struct fixture *f, int n)
{
    return cache_as(f, n, 0);
}

static void cached_replicas_go_before_blocks_and_the_longest_unused_first(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_lease lease;
    start(&f);
    for (int i = 0; i < 12; i++)
        assert_int_equal(put(&f, i), KV_OK);
    for (int i = 20; i < 24; i++)
        assert_int_equal(cache(&f, i), KV_OK);
    assert_int_equal(stat_of(&f).cached, 4);
    assert_int_equal(kv_blocks_tenant_bytes(f.b, 1), 12 * BLOCK); /* they count for nobody */
    assert_int_equal(get(&f, 20, &lease), KV_OK);
    assert_int_equal(kv_blocks_release(f.b, &f.me, lease.handle, f.now), KV_OK);
    assert_int_equal(cache(&f, 30), KV_OK);
    assert_int_equal(put(&f, 31), KV_OK);
    assert_true(exists(&f, 20) && !exists(&f, 21) && !exists(&f, 22) && exists(&f, 23));
    assert_int_equal(get(&f, 23, &lease), KV_OK);
    assert_int_equal(put(&f, 32), KV_OK);
    assert_int_equal(put(&f, 33), KV_OK);
    assert_true(exists(&f, 23) && !exists(&f, 20) && !exists(&f, 30)); /* leased, so it stays */
    for (int i = 0; i < 12; i++)
        assert_true(exists(&f, i));
    stop(&f);
}

static void a_replica_that_was_damaged_on_the_way_is_not_cached(void **state)
{
    (void)state;
    struct fixture f;
    start(&f);
    assert_int_equal(cache_as(&f, 1, 1), KV_MISS);
    assert_false(exists(&f, 1));
    assert_int_equal(stat_of(&f).corrupt, 1);
    assert_int_equal(stat_of(&f).room_used, 0);
    stop(&f);
}

static void a_cached_replica_has_its_owners_checksum_and_its_readers_verify(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t data[BLOCK];
    struct kv_block_key key = key_of(1), found;
    struct kv_block_lease lease;
    const uint8_t *bytes;
    uint64_t checksum;
    start(&f);
    fill(data, 1, BLOCK);
    assert_int_equal(cache(&f, 1), KV_OK);
    assert_true(kv_blocks_peek(f.b, &key, &checksum));
    assert_true(checksum == kv_checksum_add(0, data, BLOCK));
    assert_int_equal(get(&f, 1, &lease), KV_OK);
    assert_true(kv_blocks_leased_key(f.b, &f.me, lease.handle, &found));
    assert_true(kv_block_key_equal(&found, &key));
    assert_int_equal(kv_blocks_bytes(f.b, &f.me, lease.handle, 6, 10, f.now, &bytes), KV_OK);
    assert_memory_equal(bytes, data + 6, 10);
    assert_int_equal(kv_blocks_bytes(f.b, &f.me, lease.handle, BLOCK - 5, 6, f.now, &bytes),
                     KV_REFUSED);
    assert_int_equal(kv_blocks_verify(f.b, &f.me, lease.handle, f.now), KV_OK);
    arena[lease.offset + 3] ^= 1;
    assert_int_equal(kv_blocks_verify(f.b, &f.me, lease.handle, f.now), KV_MISS);
    assert_false(kv_blocks_leased_key(f.b, &f.me, lease.handle, &found));
    assert_false(exists(&f, 1));
    assert_int_equal(cache(&f, 1), KV_OK);
    assert_true(kv_blocks_drop_cached(f.b, &key));
    assert_false(kv_blocks_drop_cached(f.b, &key));
    stop(&f);
}

static void a_put_replaces_a_cached_replica_and_a_cached_replica_an_old_block(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_key key = key_of(1);
    start(&f);
    assert_int_equal(cache(&f, 1), KV_OK);
    assert_int_equal(put(&f, 1), KV_OK); /* it is ours now */
    assert_int_equal(stat_of(&f).cached, 0);
    assert_false(kv_blocks_drop_cached(f.b, &key));
    assert_int_equal(put(&f, 1), KV_EXISTS);
    assert_int_equal(cache(&f, 1), KV_OK); /* another's, and not what we had */
    assert_int_equal(stat_of(&f).blocks, 1);
    assert_int_equal(stat_of(&f).cached, 1);
    /* Also one that comes while the put is in progress: nobody else keeps the put's block here. */
    uint8_t data[BLOCK];
    uint64_t ticket;
    key = key_of(2);
    fill(data, 2, BLOCK);
    assert_int_equal(kv_blocks_put_start(f.b, &f.me, &key, 1, BLOCK, f.now, &ticket), KV_OK);
    assert_int_equal(cache(&f, 2), KV_OK);
    assert_int_equal(kv_blocks_put_write(f.b, &f.me, ticket, 0, data, BLOCK, f.now), KV_OK);
    assert_int_equal(kv_blocks_put_commit(f.b, &f.me, ticket, f.now), KV_OK);
    assert_true(kv_blocks_owns(f.b, &key));
    stop(&f);
}

static void a_cached_replica_that_is_adopted_is_a_tenants_block(void **state)
{
    (void)state;
    struct fixture f;
    struct kv_block_key key = key_of(1), other = key_of(2);
    struct kv_block_lease lease;
    start(&f);
    assert_int_equal(kv_blocks_adopt(f.b, &key, 9, f.now), KV_MISS);
    assert_int_equal(cache(&f, 1), KV_OK);
    assert_false(kv_blocks_owns(f.b, &key));
    assert_int_equal(kv_blocks_get(f.b, &f.me, &key, f.now, &lease), KV_MISS);
    assert_int_equal(get(&f, 1, &lease), KV_OK); /* its owner has confirmed it */
    assert_int_equal(lease.tenant, 0);
    assert_int_equal(kv_blocks_adopt(f.b, &key, 9, f.now), KV_OK);
    assert_true(kv_blocks_owns(f.b, &key));
    assert_int_equal(kv_blocks_adopt(f.b, &key, 9, f.now), KV_OK);
    assert_int_equal(stat_of(&f).repaired, 1);
    assert_int_equal(stat_of(&f).cached, 0);
    assert_int_equal(kv_blocks_tenant_bytes(f.b, 9), BLOCK);
    assert_false(kv_blocks_drop_cached(f.b, &key));
    assert_int_equal(get(&f, 1, &lease), KV_OK);
    assert_int_equal(lease.tenant, 9);
    kv_blocks_leave(f.b, &f.me, f.now);
    /* Nothing comes back behind a delete, whether it was here or on its way. */
    assert_int_equal(kv_blocks_delete(f.b, &key, f.now), KV_OK);
    assert_int_equal(kv_blocks_delete(f.b, &other, f.now), KV_MISS);
    for (int n = 3; n < 5000; n++) { /* however many follow */
        struct kv_block_key next = key_of(n);
        assert_int_equal(kv_blocks_delete(f.b, &next, f.now), KV_MISS);
    }
    for (int n = 1; n <= 2; n++) {
        struct kv_block_key gone = key_of(n);
        assert_int_equal(cache(&f, n), KV_OK);
        assert_int_equal(kv_blocks_adopt(f.b, &gone, 9, f.now), KV_REFUSED);
    }
    assert_int_equal(kv_blocks_tenant_bytes(f.b, 9), 0);
    f.now += KV_LEASE_LASTS_NS + KV_PUT_LASTS_NS; /* none is on its way any more */
    assert_int_equal(kv_blocks_adopt(f.b, &key, 9, f.now), KV_OK);
    stop(&f);
}

static void bytes_from_afar_must_have_the_checksum_that_came_with_them(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t data[100] = {7};
    struct kv_block_key key = key_of(1);
    uint64_t ticket;
    start(&f);
    for (int good = 0; good < 2; good++) {
        uint64_t checksum = kv_checksum_add(0, data, sizeof(data)) ^ (uint64_t)!good;
        assert_int_equal(kv_blocks_put_start(f.b, &f.me, &key, 1, 100, f.now, &ticket), KV_OK);
        assert_int_equal(kv_blocks_put_write(f.b, &f.me, ticket, 0, data, 100, f.now), KV_OK);
        assert_int_equal(kv_blocks_put_commit_as(f.b, &f.me, ticket, checksum, 0, f.now),
                         good ? KV_OK : KV_MISS);
        assert_int_equal(exists(&f, 1), good);
    }
    assert_int_equal(stat_of(&f).corrupt, 1);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_found_only_after_commit_and_whole),
        cmocka_unit_test(writes_are_in_order_and_complete),
        cmocka_unit_test(who_commits_first_wins_and_the_other_hears_it),
        cmocka_unit_test(a_put_that_is_never_committed_ends),
        cmocka_unit_test(tickets_belong_to_their_holder),
        cmocka_unit_test(room_is_its_holders_until_the_commit),
        cmocka_unit_test(a_leased_block_stays_until_the_lease_ends),
        cmocka_unit_test(a_lease_ends_at_its_time_unless_renewed),
        cmocka_unit_test(leases_end_in_the_order_of_their_renewal),
        cmocka_unit_test(a_deleted_block_keeps_its_room_while_leased),
        cmocka_unit_test(a_holder_that_goes_takes_its_claims_along),
        cmocka_unit_test(a_changed_byte_is_a_miss_and_never_data),
        cmocka_unit_test(every_limit_has_its_result),
        cmocka_unit_test(what_is_held_can_fill_the_store),
        cmocka_unit_test(entries_are_limited),
        cmocka_unit_test(a_tenant_at_its_limit_loses_its_own_blocks_only),
        cmocka_unit_test(tenants_are_limited_and_their_places_are_used_again),
        cmocka_unit_test(room_is_made_from_the_high_mark_to_the_low_mark),
        cmocka_unit_test(blocks_of_many_sizes_fit_after_evictions),
        cmocka_unit_test(cached_replicas_go_before_blocks_and_the_longest_unused_first),
        cmocka_unit_test(a_replica_that_was_damaged_on_the_way_is_not_cached),
        cmocka_unit_test(a_cached_replica_has_its_owners_checksum_and_its_readers_verify),
        cmocka_unit_test(a_put_replaces_a_cached_replica_and_a_cached_replica_an_old_block),
        cmocka_unit_test(a_cached_replica_that_is_adopted_is_a_tenants_block),
        cmocka_unit_test(bytes_from_afar_must_have_the_checksum_that_came_with_them),
        cmocka_unit_test(of_two_named_values_the_newer_one_stays),
        cmocka_unit_test(a_delete_of_a_value_past_its_end_is_a_miss),
        cmocka_unit_test(a_walk_tells_of_each_key_once_although_its_block_is_replaced),
        cmocka_unit_test(every_failed_allocation_is_an_answer),
        cmocka_unit_test(bad_configurations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
