/* In virtual time: the number of copies of blocks is kept in the background, nobody reads; and who
 * of many members is connected. */
#include "unit.h"

#include "bench/kvsim/cluster.h"
#include "kv/daemon/copies.h"
#include "wire/le.h"

#include <string.h>

enum { NAMED = UINT32_MAX }; /* stands for the number of a key */
enum { MEMBERS = 3, LEN = 4000, KEYS = 60, SMALL_ARENA = 64 << 10, ARENA = 1 << 20 };

static void open_copies(struct cluster *c, size_t arena, uint32_t copies, uint32_t min_copies)
{
    const struct cluster_options options = {.seed = 3,
                                            .count = MEMBERS,
                                            .copies = copies,
                                            .min_copies = min_copies,
                                            .arena_bytes = arena,
                                            .depth = 1,
                                            .staging_bytes = LEN,
                                            .heartbeat_ns = 200 * HW_MS,
                                            .net = {.seed = 3, .delay_ns = 100 * HW_US}};
    assert_int_equal(cluster_open(c, &options), 0);
}

static void open_cluster(struct cluster *c, size_t arena, uint32_t min_copies)
{
    open_copies(c, arena, 2, min_copies);
}

static void turn_all(struct cluster *c)
{
    for (uint32_t i = 0; i < c->options.count; i++)
        cluster_turn(c, i);
    cluster_pass_time(c, HW_MS);
}

static void turn_for(struct cluster *c, uint64_t ns)
{
    uint64_t until = cluster_now(c) + ns;
    while (cluster_now(c) < until)
        turn_all(c);
}

static void connect_all(struct cluster *c)
{
    for (uint64_t until = cluster_now(c) + 10 * HW_SEC; !cluster_all_connected(c); turn_all(c))
        assert_true(cluster_now(c) < until);
}

static struct kv_block_key key_of(uint32_t n)
{
    struct kv_block_key key = {.len = 4};
    wire_store32(key.bytes, n);
    return key;
}

static struct kv_block_key named_key(void)
{
    struct kv_block_key key = {.len = KV_NAMED_KIND + 32};
    memcpy(key.bytes, kv_named_kind(false), KV_NAMED_KIND);
    return key;
}

/* A request of a member's client and its answer; *value_out: the number in it. */
static enum kv_result ask(struct cluster *c, uint32_t member, const struct kv_block_request *r,
                          uint32_t n, uint64_t *value_out)
{
    struct kv_block_key key = n == NAMED ? named_key() : key_of(n);
    struct kv_port *port = &c->members[member].port;
    struct kv_port_answer a;
    (void)cluster_submit(c, member, r, &key, 8000000);
    while (!kv_port_take(port, &a))
        turn_all(c);
    if (value_out)
        *value_out = a.value_len == 8   ? wire_load64(a.value)
                     : a.value_len == 4 ? wire_load32(a.value)
                                        : 0;
    kv_port_free(port, a.slot);
    return a.result;
}

static enum kv_result put_to(struct cluster *c, uint32_t member, uint32_t n, uint64_t *copies_out)
{
    uint64_t ticket = 0;
    struct kv_block_request start = {
        .op = KV_BLOCK_PUT_START, .flag = n == NAMED, .key_count = 1, .len = LEN};
    enum kv_result result = ask(c, member, &start, n, &ticket);
    if (copies_out)
        *copies_out = 0;
    if (result != KV_OK)
        return result;
    memset(c->members[member].port.region.staging, (int)(n % 251), LEN);
    struct kv_block_request commit = {.op = KV_BLOCK_PUT_COMMIT, .handle = ticket, .len = LEN};
    return ask(c, member, &commit, n, copies_out);
}

static enum kv_result put(struct cluster *c, uint32_t member, uint32_t n)
{
    return put_to(c, member, n, NULL);
}

static uint64_t stat_of(struct cluster *c, uint32_t member, size_t field)
{
    struct kv_port_answer a;
    struct kv_block_request r = {.op = KV_BLOCK_STAT};
    struct kv_port *port = &c->members[member].port;
    (void)cluster_submit(c, member, &r, NULL, 8000000);
    while (!kv_port_take(port, &a))
        turn_all(c);
    assert_int_equal(a.value_len, sizeof(struct kv_blocks_stat));
    uint64_t value = wire_load64((const uint8_t *)a.value + field);
    kv_port_free(port, a.slot);
    return value;
}

#define SUM(c, field) sum_of(c, offsetof(struct kv_blocks_stat, field))
static uint64_t sum_of(struct cluster *c, size_t field)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < MEMBERS; i++)
        sum += c->members[i].daemon ? stat_of(c, i, field) : 0;
    return sum;
}

/* Blocks that are no cached replicas. */
static uint64_t copies(struct cluster *c)
{
    return SUM(c, blocks) - SUM(c, cached);
}

static void tell_all(struct cluster *c)
{
    c->epoch++;
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (c->members[i].daemon)
            cluster_tell_view(c, i);
}

static void leave(struct cluster *c, uint32_t member)
{
    cluster_stop(c, member);
    c->members[member].in_view = false;
    tell_all(c);
}

/* The owner of the named value comes, gets another one, and leaves: the value from before is old.
 */
static void a_value_does_not_come_back_with_its_former_owner(void **state)
{
    (void)state;
    struct cluster c;
    struct kv_view view;
    struct kv_block_key key = named_key();
    struct kv_block_request get = {.op = KV_BLOCK_GET, .key_count = 1};
    uint32_t owners[KV_COPIES_MAX];
    open_copies(&c, ARENA, 1, 1);
    connect_all(&c);
    cluster_make_view(&c, c.epoch, &view);
    assert_int_equal(kv_view_owners(&view, kv_block_hash(&key), 1, owners), 1);
    uint32_t owner = cluster_number(&view.members[owners[0]]), other = (owner + 1) % MEMBERS;
    leave(&c, owner);
    turn_for(&c, HW_SEC);
    assert_int_equal(put(&c, other, NAMED), KV_OK);
    assert_int_equal(ask(&c, other, &get, NAMED, NULL), KV_OK);
    assert_int_equal(cluster_start(&c, owner), 0);
    c.members[owner].in_view = true;
    tell_all(&c);
    connect_all(&c);
    turn_for(&c, HW_SEC);
    assert_int_equal(put(&c, other, NAMED), KV_OK);
    leave(&c, owner);
    turn_for(&c, HW_SEC);
    assert_int_equal(ask(&c, other, &get, NAMED, NULL), KV_MISS);
    cluster_close(&c);
}

/* Nobody told it that the block was deleted while another member owned it. */
static void a_new_owner_does_not_serve_what_it_had_read(void **state)
{
    (void)state;
    static const uint32_t keys[] = {1, NAMED};
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        struct cluster c;
        struct kv_view view;
        struct kv_block_key key = keys[k] == NAMED ? named_key() : key_of(keys[k]);
        struct kv_block_request get = {.op = KV_BLOCK_GET, .key_count = 1};
        struct kv_block_request gone = {.op = KV_BLOCK_DELETE, .key_count = 1};
        uint32_t owners[KV_COPIES_MAX];
        open_copies(&c, ARENA, 1, 1);
        connect_all(&c);
        cluster_make_view(&c, c.epoch, &view);
        assert_int_equal(kv_view_owners(&view, kv_block_hash(&key), 1, owners), 1);
        uint32_t owner = cluster_number(&view.members[owners[0]]);
        assert_int_equal(put(&c, owner, keys[k]), KV_OK);
        for (uint32_t i = 0; i < MEMBERS; i++)
            assert_int_equal(ask(&c, i, &get, keys[k], NULL), KV_OK);
        assert_int_equal(ask(&c, owner, &gone, keys[k], NULL), KV_OK);
        leave(&c, owner);
        turn_for(&c, HW_SEC);
        for (uint32_t i = 0; i < MEMBERS; i++)
            assert_true(i == owner || ask(&c, i, &get, keys[k], NULL) == KV_MISS);
        cluster_close(&c);
    }
}

static void copies_of_a_lost_member_come_back_unread(void **state)
{
    (void)state;
    struct cluster c;
    open_cluster(&c, ARENA, 1);
    connect_all(&c);
    for (uint32_t n = 0; n < KEYS; n++)
        assert_int_equal(put(&c, n % MEMBERS, n), KV_OK);
    assert_int_equal(copies(&c), 2 * KEYS);
    turn_for(&c, 6 * HW_SEC);
    assert_int_equal(SUM(&c, below_copies), 0);
    leave(&c, 0);
    assert_true(copies(&c) < 2 * KEYS); /* or the test shows nothing */
    turn_for(&c, 20 * HW_SEC);
    assert_int_equal(copies(&c), 2 * KEYS);
    assert_int_equal(SUM(&c, below_copies), 0);
    leave(&c, 1); /* one is left: nobody can have the second copy, and that is shown */
    turn_for(&c, 7 * HW_SEC);
    assert_int_equal(SUM(&c, below_copies), KEYS);
    cluster_close(&c);
}

/* A count that ends afterwards is of the view before. */
static void a_view_that_comes_during_a_count_begins_another(void **state)
{
    (void)state;
    struct cluster c;
    open_cluster(&c, ARENA, 1);
    connect_all(&c);
    for (uint32_t n = 0; n < KEYS; n++)
        assert_int_equal(put(&c, n % MEMBERS, n), KV_OK);
    turn_for(&c, 6 * HW_SEC);
    while (!kv_copies_counting(c.members[1].daemon))
        turn_all(&c);
    c.members[2].stalled_until_ns = cluster_now(&c) + 40 * HW_MS;
    turn_for(&c, 20 * HW_MS); /* the other one answers */
    assert_true(kv_copies_counting(c.members[1].daemon));
    cluster_stop(&c, 0);
    c.members[0].in_view = false;
    c.epoch++;
    cluster_tell_view(&c, 1);
    turn_for(&c, 40 * HW_MS);
    assert_false(kv_copies_counting(c.members[1].daemon));
    cluster_tell_view(&c, 2);
    turn_for(&c, 2 * HW_SEC);
    assert_int_equal(copies(&c), 2 * KEYS);
    cluster_close(&c);
}

/* One that restarts with nothing, in the same view: it never says that a block is not there, its
 * missing copies are counted at once, and come back. */
static void a_member_that_comes_back_empty_has_no_copies_until_it_fetched_them(void **state)
{
    (void)state;
    struct cluster c;
    struct kv_block_request get = {.op = KV_BLOCK_GET, .key_count = 1};
    uint64_t epoch, seen = 0;
    open_cluster(&c, ARENA, 1);
    connect_all(&c);
    for (uint32_t n = 0; n < KEYS; n++)
        assert_int_equal(put(&c, n % MEMBERS, n), KV_OK);
    turn_for(&c, 6 * HW_SEC);
    epoch = c.epoch;
    cluster_stop(&c, 1);
    turn_for(&c, HW_SEC);
    c.epoch = 0; /* it has no view at first */
    assert_int_equal(cluster_start(&c, 1), 0);
    for (uint32_t n = 0; n < KEYS; n++)
        assert_int_equal(ask(&c, 1, &get, n, NULL), KV_PEER_LOST);
    c.epoch = epoch;
    cluster_tell_view(&c, 1);
    assert_int_equal(ask(&c, 1, &get, 0, NULL), KV_OK);
    connect_all(&c);
    for (uint64_t until = cluster_now(&c) + HW_SEC; seen == 0 && cluster_now(&c) < until;)
        seen = SUM(&c, below_copies);
    assert_int_not_equal(seen, 0);
    turn_for(&c, 20 * HW_SEC);
    assert_int_equal(copies(&c), 2 * KEYS);
    assert_int_equal(SUM(&c, below_copies), 0);
    cluster_close(&c);
}

/* An owner that does not see the put after a delete remembers the delete only. */
static void a_block_that_is_put_again_gets_its_second_copy(void **state)
{
    (void)state;
    struct cluster c;
    struct kv_view view;
    struct kv_block_key key = key_of(1);
    struct kv_block_request gone = {.op = KV_BLOCK_DELETE, .key_count = 1};
    uint32_t owners[KV_COPIES_MAX];
    uint64_t stored = 0;
    open_cluster(&c, ARENA, 1);
    connect_all(&c);
    cluster_make_view(&c, c.epoch, &view);
    assert_int_equal(kv_view_owners(&view, kv_block_hash(&key), 2, owners), 2);
    uint32_t first = cluster_number(&view.members[owners[0]]);
    uint32_t second = cluster_number(&view.members[owners[1]]);
    assert_int_equal(put(&c, first, 1), KV_OK);
    assert_int_equal(ask(&c, first, &gone, 1, NULL), KV_OK);
    c.members[second].stalled_until_ns = cluster_now(&c) + 10 * HW_SEC;
    assert_int_equal(put_to(&c, first, 1, &stored), KV_OK);
    assert_int_equal(stored, 1);
    turn_for(&c, 60 * HW_SEC);
    assert_int_equal(copies(&c), 2);
    assert_int_equal(SUM(&c, below_copies), 0);
    cluster_close(&c);
}

static void an_eviction_does_not_end_repairs(void **state)
{
    (void)state;
    struct cluster c;
    uint32_t kept = 0;
    open_cluster(&c, SMALL_ARENA, 1);
    connect_all(&c);
    for (uint32_t n = 0; n < KEYS; n++)
        (void)put(&c, 0, n);
    assert_true(SUM(&c, evicted) > 0);
    for (uint32_t n = 0; n < KEYS; n++) { /* room again, and few blocks */
        struct kv_block_request r = {.op = KV_BLOCK_DELETE, .key_count = 1};
        (void)ask(&c, 0, &r, n, NULL);
    }
    for (uint32_t n = KEYS; n < KEYS + 9; n++)
        kept += put(&c, n % MEMBERS, n) == KV_OK;
    assert_int_equal(copies(&c), 2 * kept);
    leave(&c, 2);
    turn_for(&c, 20 * HW_SEC);
    assert_true(SUM(&c, repaired) > 0);
    assert_int_equal(copies(&c), 2 * kept);
    assert_int_equal(SUM(&c, below_copies), 0);
    cluster_close(&c);
}

/* Where the stores have no room for all copies, they come to rest: no block is evicted for one that
 * was evicted. */
static void full_stores_do_not_take_turns(void **state)
{
    (void)state;
    struct cluster c;
    open_cluster(&c, SMALL_ARENA, 1);
    connect_all(&c);
    for (uint32_t n = 0; n < KEYS; n++)
        (void)put(&c, 0, n);
    turn_for(&c, 20 * HW_SEC);
    uint64_t evicted = SUM(&c, evicted), repaired = SUM(&c, repaired);
    turn_for(&c, 60 * HW_SEC);
    assert_int_equal(SUM(&c, evicted), evicted);
    assert_int_equal(SUM(&c, repaired), repaired);
    assert_true(SUM(&c, below_copies) > 0);
    cluster_close(&c);
}

static uint64_t copies_lost(const struct cluster *c, uint32_t member)
{
    return hw_counter_load(&kv_daemon_stats(c->members[member].daemon)->block_copies_lost);
}

/* A put says how many copies it reached, and fails where that is fewer than asked for. */
static void a_put_says_how_many_copies_there_are(void **state)
{
    (void)state;
    for (uint32_t min_copies = 1; min_copies <= 2; min_copies++) {
        struct cluster c;
        uint64_t copies = 0;
        enum kv_result want = min_copies == 1 ? KV_OK : KV_TOO_FEW;
        open_cluster(&c, ARENA, min_copies);
        connect_all(&c);
        assert_int_equal(put_to(&c, 0, 1, &copies), KV_OK);
        assert_int_equal(copies, 2);
        assert_int_equal(copies_lost(&c, 0), 0);
        leave(&c, 2);
        leave(&c, 1);
        turn_for(&c, HW_SEC);
        assert_int_equal(put_to(&c, 0, 2, &copies), want);
        assert_int_equal(copies, min_copies == 1);
        cluster_close(&c);
        /* Members that are lost but still in the view. */
        open_cluster(&c, ARENA, min_copies);
        connect_all(&c);
        cluster_stop(&c, 2);
        cluster_stop(&c, 1);
        turn_for(&c, HW_SEC);
        for (uint32_t n = 0, few = 0; few == 0; n++) {
            enum kv_result result = put_to(&c, 0, n, &copies);
            assert_true(result == want || result == KV_PEER_LOST); /* lost: it has no part in it */
            few += result == want;
        }
        assert_int_equal(copies, min_copies == 1);
        assert_int_equal(copies_lost(&c, 0), copies); /* nothing was stored where it was refused */
        cluster_close(&c);
    }
}

/* One owner has the block and leaves between the start and the commit of a put that only the other
 * takes. */
static void a_copy_at_a_member_that_left_does_not_count(void **state)
{
    (void)state;
    struct cluster c;
    struct kv_view view;
    struct kv_block_key key = key_of(1);
    struct kv_block_request gone = {.op = KV_BLOCK_DELETE, .key_count = 1};
    struct kv_block_request start = {.op = KV_BLOCK_PUT_START, .key_count = 1, .len = LEN};
    uint32_t owners[KV_COPIES_MAX];
    uint64_t ticket = 0, stored = 0;
    open_cluster(&c, ARENA, 1);
    connect_all(&c);
    cluster_make_view(&c, c.epoch, &view);
    assert_int_equal(kv_view_owners(&view, kv_block_hash(&key), 2, owners), 2);
    uint32_t first = cluster_number(&view.members[owners[0]]);
    uint32_t second = cluster_number(&view.members[owners[1]]);
    uint32_t other = MEMBERS - first - second;
    assert_int_equal(put(&c, first, 1), KV_OK);
    assert_int_equal(ask(&c, first, &gone, 1, NULL), KV_OK);
    c.members[second].stalled_until_ns = cluster_now(&c) + 10 * HW_SEC;
    assert_int_equal(put_to(&c, first, 1, &stored), KV_OK);
    assert_int_equal(stored, 1); /* it remembers the delete, and takes no copy for a while */
    turn_for(&c, 12 * HW_SEC);
    assert_int_equal(copies(&c), 1);
    assert_int_equal(ask(&c, other, &start, 1, &ticket), KV_OK);
    leave(&c, first);
    memset(c.members[other].port.region.staging, 1, LEN);
    struct kv_block_request commit = {.op = KV_BLOCK_PUT_COMMIT, .handle = ticket, .len = LEN};
    assert_int_equal(ask(&c, other, &commit, 1, &stored), KV_OK);
    assert_int_equal(stored, 1);
    cluster_close(&c);
}

/* An owner that knows of a newer view makes the delete begin again, when the other has done it. */
static void a_delete_that_begins_again_is_no_miss(void **state)
{
    (void)state;
    struct cluster c;
    struct kv_view view;
    struct kv_block_key key = key_of(1);
    struct kv_block_request gone = {.op = KV_BLOCK_DELETE, .key_count = 1};
    uint32_t owners[KV_COPIES_MAX];
    open_cluster(&c, ARENA, 1);
    connect_all(&c);
    cluster_make_view(&c, c.epoch, &view);
    assert_int_equal(kv_view_owners(&view, kv_block_hash(&key), 2, owners), 2);
    uint32_t first = cluster_number(&view.members[owners[0]]);
    uint32_t second = cluster_number(&view.members[owners[1]]);
    uint32_t other = MEMBERS - first - second;
    assert_int_equal(put(&c, other, 1), KV_OK);
    c.members[second].in_view = false;
    c.epoch++;
    cluster_tell_view(&c, second);
    assert_int_equal(ask(&c, other, &gone, 1, NULL), KV_OK);
    cluster_tell_view(&c, first);
    cluster_tell_view(&c, other);
    assert_int_equal(ask(&c, other, &gone, 1, NULL), KV_MISS);
    cluster_close(&c);
}

/* The members leave the view when one owner has deleted the block: the other may still have it. */
static void a_delete_that_no_owner_is_left_for_is_none(void **state)
{
    (void)state;
    struct cluster c;
    struct kv_view view;
    struct kv_block_key key = key_of(1);
    struct kv_block_request gone = {.op = KV_BLOCK_DELETE, .key_count = 1};
    struct kv_port_answer a;
    uint32_t owners[KV_COPIES_MAX];
    open_cluster(&c, ARENA, 1);
    connect_all(&c);
    cluster_make_view(&c, c.epoch, &view);
    assert_int_equal(kv_view_owners(&view, kv_block_hash(&key), 2, owners), 2);
    uint32_t first = cluster_number(&view.members[owners[0]]);
    uint32_t second = cluster_number(&view.members[owners[1]]);
    uint32_t other = MEMBERS - first - second;
    assert_int_equal(put(&c, other, 1), KV_OK);
    c.members[second].stalled_until_ns = cluster_now(&c) + HW_SEC;
    (void)cluster_submit(&c, other, &gone, &key, 8000000);
    turn_for(&c, 10 * HW_MS);
    for (uint32_t i = 0; i < MEMBERS; i++)
        c.members[i].in_view = false;
    c.epoch++;
    cluster_tell_view(&c, other);
    while (!kv_port_take(&c.members[other].port, &a))
        turn_all(&c);
    assert_int_equal(a.result, KV_PEER_LOST);
    kv_port_free(&c.members[other].port, a.slot);
    cluster_close(&c);
}

static uint64_t connections(const struct cluster *c, uint32_t member)
{
    return hw_counter_load(&kv_daemon_stats(c->members[member].daemon)->peers_up);
}

static uint64_t all_connections(const struct cluster *c)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->options.count; i++)
        n += connections(c, i);
    return n;
}

static void of_many_members_who_is_needed_is_connected(void **state)
{
    (void)state;
    static struct cluster c;
    const struct cluster_options options = {.seed = 5,
                                            .count = 20, /* more than a mesh has */
                                            .copies = 1,
                                            .arena_bytes = SMALL_ARENA,
                                            .depth = 1,
                                            .staging_bytes = LEN,
                                            .heartbeat_ns = HW_SEC,
                                            .net = {.seed = 5, .delay_ns = 100 * HW_US}};
    assert_int_equal(cluster_open(&c, &options), 0);
    turn_for(&c, HW_SEC);
    assert_int_equal(all_connections(&c), 0);
    for (uint32_t n = 0; n < 3; n++)
        assert_int_equal(put(&c, 0, n), KV_OK);
    uint64_t needed = connections(&c, 0);
    assert_in_range(needed, 1, 3); /* three keys have at most as many owners */
    assert_int_equal(all_connections(&c), needed);
    for (uint64_t until = cluster_now(&c) + 80 * HW_SEC; cluster_now(&c) < until;) {
        cluster_pass_time(&c, 100 * HW_MS);
        turn_all(&c);
    }
    assert_int_equal(all_connections(&c), 0);
    struct kv_block_request get = {.op = KV_BLOCK_GET, .key_count = 1};
    for (uint32_t n = 0; n < 3; n++)
        assert_int_equal(ask(&c, 19, &get, n, NULL), KV_OK);
    assert_int_equal(hw_counter_load(&kv_daemon_stats(c.members[0].daemon)->peers_lost), 0);
    /* One that is gone is not waited for twice, and not taken for a miss. */
    for (uint32_t i = 1; i < options.count; i++)
        cluster_stop(&c, i);
    assert_int_equal(ask(&c, 0, &get, 0, NULL), KV_PEER_LOST);
    cluster_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_a_lost_member_come_back_unread),
        cmocka_unit_test(a_value_does_not_come_back_with_its_former_owner),
        cmocka_unit_test(a_new_owner_does_not_serve_what_it_had_read),
        cmocka_unit_test(a_member_that_comes_back_empty_has_no_copies_until_it_fetched_them),
        cmocka_unit_test(a_view_that_comes_during_a_count_begins_another),
        cmocka_unit_test(a_block_that_is_put_again_gets_its_second_copy),
        cmocka_unit_test(an_eviction_does_not_end_repairs),
        cmocka_unit_test(full_stores_do_not_take_turns),
        cmocka_unit_test(a_put_says_how_many_copies_there_are),
        cmocka_unit_test(a_copy_at_a_member_that_left_does_not_count),
        cmocka_unit_test(a_delete_that_begins_again_is_no_miss),
        cmocka_unit_test(a_delete_that_no_owner_is_left_for_is_none),
        cmocka_unit_test(of_many_members_who_is_needed_is_connected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
