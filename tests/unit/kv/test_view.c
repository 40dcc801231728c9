/* Who owns what: golden numbers, even shares, and what moves when members come and go. */
#include "unit.h"

#include "kv/cluster/view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { KEYS = 40000 };

static uint64_t hash_of_number(uint32_t n)
{
    struct kv_block_key key = {.len = 4};
    memcpy(key.bytes, &n, 4);
    return kv_block_hash(&key);
}

static void view_of(uint32_t count, uint32_t without, struct kv_view *out)
{
    char names[KV_MEMBERS_MAX][KV_MEMBER_NAME_CHARS], why[RPC_WHY_CHARS];
    struct kv_member_info infos[KV_MEMBERS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "host-%02u", i);
        if (i != without)
            infos[n++] = (struct kv_member_info){names[i], "10.0.0.1:7000"};
    }
    assert_int_equal(kv_view_make(7, infos, n, out, why), 0);
    assert_int_equal(out->epoch, 7);
}

static const char *owner_name(const struct kv_view *v, uint64_t hash)
{
    uint32_t owners[KV_COPIES_MAX];
    assert_int_equal(kv_view_owners(v, hash, 1, owners), 1);
    return v->members[owners[0]].name;
}

/* Other processes and machines compute these, too: they may never change. */
static void owners_are_the_same_everywhere(void **state)
{
    (void)state;
    struct kv_block_key key;
    struct kv_view v;
    uint32_t owners[KV_COPIES_MAX];
    assert_true(kv_member_id("host-00") == UINT64_C(0xc8f0ae518c0da99));
    assert_int_equal(kv_block_key_set(&key, "golden", 6), 0);
    assert_true(kv_block_hash(&key) == UINT64_C(0x7d263ba9f3ffb622));
    view_of(5, UINT32_MAX, &v);
    assert_int_equal(kv_view_owners(&v, kv_block_hash(&key), 2, owners), 2);
    assert_int_equal(owners[0], 4);
    assert_int_equal(owners[1], 0);
}

static void shares_are_even(void **state)
{
    (void)state;
    static const uint32_t counts[] = {2, 3, 8, 64};
    for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
        struct kv_view v;
        uint32_t share[KV_MEMBERS_MAX] = {0}, owners[KV_COPIES_MAX];
        view_of(counts[k], UINT32_MAX, &v);
        for (uint32_t i = 0; i < KEYS; i++) {
            assert_int_equal(kv_view_owners(&v, hash_of_number(i), 1, owners), 1);
            share[owners[0]]++;
        }
        double mean = (double)KEYS / counts[k];
        for (uint32_t i = 0; i < counts[k]; i++) /* 64: a share of 625 spreads by 4% itself */
            assert_true(share[i] > mean * (counts[k] > 8 ? 0.85 : 0.96) &&
                        share[i] < mean * (counts[k] > 8 ? 1.15 : 1.04));
    }
}

static void a_join_moves_keys_to_the_joiner_only_and_a_leave_the_leavers_only(void **state)
{
    (void)state;
    struct kv_view all, less;
    uint32_t moved = 0;
    view_of(8, UINT32_MAX, &all);
    view_of(8, 3, &less);
    for (uint32_t i = 0; i < KEYS; i++) {
        uint64_t hash = hash_of_number(i);
        const char *with = owner_name(&all, hash), *without = owner_name(&less, hash);
        if (strcmp(with, "host-03") == 0)
            moved++;
        else
            assert_string_equal(with, without);
    }
    assert_true(moved > KEYS / 8 * 0.95 && moved < KEYS / 8 * 1.05);
}

/* The second owner is who takes over when the first one leaves. */
static void the_second_owner_is_the_heir(void **state)
{
    (void)state;
    struct kv_view all, less;
    view_of(6, UINT32_MAX, &all);
    view_of(6, 2, &less);
    for (uint32_t i = 0; i < 2000; i++) {
        uint32_t owners[KV_COPIES_MAX];
        uint64_t hash = hash_of_number(i);
        assert_int_equal(kv_view_owners(&all, hash, 2, owners), 2);
        assert_int_not_equal(owners[0], owners[1]);
        if (owners[0] == 2)
            assert_string_equal(owner_name(&less, hash), all.members[owners[1]].name);
    }
}

static void order_does_not_matter_and_few_members_own_few_copies(void **state)
{
    (void)state;
    struct kv_view a, b, none;
    uint32_t owners[KV_COPIES_MAX];
    char why[RPC_WHY_CHARS];
    struct kv_member_info infos[] = {{"b", "h:1"}, {"a", "h:2"}},
                          back[] = {{"a", "h:2"}, {"b", "h:1"}};
    assert_int_equal(kv_view_make(1, infos, 2, &a, why), 0);
    assert_int_equal(kv_view_make(2, back, 2, &b, why), 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_string_equal(a.members[i].name, b.members[i].name);
        assert_string_equal(a.members[i].address, b.members[i].address);
    }
    back[0].address = "h:3";
    assert_int_equal(kv_view_make(2, back, 2, &b, why), 0);
    assert_string_equal(kv_view_find(&b, kv_member_id("a"))->address, "h:3");
    assert_null(kv_view_find(&b, kv_member_id("c")));
    assert_int_equal(kv_view_make(3, infos, 1, &b, why), 0);
    assert_int_equal(kv_view_owners(&b, 1, 2, owners), 1);
    assert_int_equal(kv_view_make(3, NULL, 0, &none, why), 0);
    assert_int_equal(kv_view_owners(&none, 1, 2, owners), 0);
}

static int make_one(const char *name, const char *address)
{
    struct kv_view v = {.epoch = 99};
    char why[RPC_WHY_CHARS] = "";
    int rc = kv_view_make(1, &(struct kv_member_info){name, address}, 1, &v, why);
    assert_true(rc == 0 || (why[0] && v.epoch == 99));
    return rc;
}

static void bad_members_are_refused_with_a_sentence(void **state)
{
    (void)state;
    struct kv_view v;
    char why[RPC_WHY_CHARS] = "", longest[KV_MEMBER_NAME_CHARS + 1];
    struct kv_member_info twins[] = {{"a", "h:1"}, {"b", "h:1"}, {"a", "h:2"}};
    memset(longest, 'x', sizeof(longest));
    longest[KV_MEMBER_NAME_CHARS] = '\0';
    assert_int_equal(make_one("", "h:1"), -EINVAL);
    assert_int_equal(make_one("a b", "h:1"), -EINVAL);
    assert_int_equal(make_one("a", ""), -EINVAL);
    assert_int_equal(make_one("a", "h:99999"), -EINVAL);
    assert_int_equal(make_one(longest, "h:1"), -ENAMETOOLONG);
    assert_int_equal(make_one(longest + 1, "h:1"), 0);
    assert_int_equal(kv_view_make(1, twins, 3, &v, why), -EEXIST);
    assert_non_null(strstr(why, "called a"));
    assert_int_equal(kv_view_make(1, twins, KV_MEMBERS_MAX + 1, &v, why), -E2BIG);
}

static void ranks_are_members_by_number(void **state)
{
    (void)state;
    struct kv_view v;
    kv_view_of_ranks(12, &v);
    assert_int_equal(v.count, 12);
    assert_int_equal(v.epoch, 1);
    for (uint32_t i = 0; i < 12; i++) {
        char name[KV_MEMBER_NAME_CHARS];
        kv_rank_name(i, name);
        assert_string_equal(kv_view_find(&v, kv_member_id(name))->name, name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_are_the_same_everywhere),
        cmocka_unit_test(shares_are_even),
        cmocka_unit_test(a_join_moves_keys_to_the_joiner_only_and_a_leave_the_leavers_only),
        cmocka_unit_test(the_second_owner_is_the_heir),
        cmocka_unit_test(order_does_not_matter_and_few_members_own_few_copies),
        cmocka_unit_test(bad_members_are_refused_with_a_sentence),
        cmocka_unit_test(ranks_are_members_by_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
