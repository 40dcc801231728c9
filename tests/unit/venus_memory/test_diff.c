/* Every implementation of the comparison against the reference. */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "base/rng.h"
#include "venus/memory/diff.h"

static uint8_t now[VN_PAGE_BYTES + 8], shadow[VN_PAGE_BYTES + 8];

static const struct vn_diff *reference(void)
{
    size_t i = 0;
    while (vn_diff_get(i + 1))
        i++;
    return vn_diff_get(i);
}

static void check_page(const struct vn_diff *diff, size_t shift)
{
    uint64_t expected[VN_PAGE_BLOCKS], mask[VN_PAGE_BLOCKS];
    uint64_t want = reference()->page(now + shift, shadow, expected);
    uint64_t got = diff->page(now + shift, shadow, mask);
    assert_int_equal(got, want);
    assert_int_equal(diff->differs(now + shift, shadow), want != 0);
    for (size_t b = 0; b < VN_PAGE_BLOCKS; b++) {
        if (want >> b & 1)
            assert_int_equal(mask[b], expected[b]);
    }
}

static void the_reference_names_the_bytes_that_differ(void **state)
{
    (void)state;
    uint64_t mask[VN_PAGE_BLOCKS];
    memset(now, 7, sizeof(now));
    memset(shadow, 7, sizeof(shadow));
    assert_string_equal(reference()->name, "c");
    assert_int_equal(reference()->page(now, shadow, mask), 0);
    now[0] = 1;
    now[64 * 5 + 63] = 1;
    assert_int_equal(reference()->page(now, shadow, mask), 1 | 1 << 5);
    assert_int_equal(mask[0], 1);
    assert_int_equal(mask[5], UINT64_C(1) << 63);
}

static void every_single_byte_is_seen(void **state)
{
    (void)state;
    memset(shadow, 0xa5, sizeof(shadow));
    for (size_t i = 0; vn_diff_get(i); i++) {
        for (size_t at = 0; at < VN_PAGE_BYTES; at++) {
            memcpy(now, shadow, VN_PAGE_BYTES);
            now[at] ^= (uint8_t)(1u << at % 8);
            check_page(vn_diff_get(i), 0);
        }
    }
}

static void random_pages_agree_at_any_alignment(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 1);
    for (size_t round = 0; round < 400; round++) {
        size_t shift = round % 8, changes = (size_t)hw_rng_below(&rng, 1 + (1u << round % 13));
        for (size_t i = 0; i < sizeof(shadow); i++)
            shadow[i] = (uint8_t)hw_rng_u64(&rng);
        memcpy(now + shift, shadow, VN_PAGE_BYTES);
        for (size_t i = 0; i < changes; i++)
            now[shift + hw_rng_below(&rng, VN_PAGE_BYTES)] = (uint8_t)hw_rng_u64(&rng);
        for (size_t i = 0; vn_diff_get(i); i++)
            check_page(vn_diff_get(i), shift);
    }
}

static void an_implementation_is_chosen_by_name(void **state)
{
    (void)state;
    assert_int_equal(vn_diff_use("none such"), -ENOENT);
    uint64_t mask[VN_PAGE_BLOCKS];
    memset(now, 0, sizeof(now));
    memset(shadow, 0, sizeof(shadow));
    now[100] = 1;
    for (size_t i = 0; vn_diff_get(i); i++) {
        assert_int_equal(vn_diff_use(vn_diff_get(i)->name), 0);
        assert_int_equal(vn_diff_page(now, shadow, mask), 1 << 1);
        assert_true(vn_diff_differs(now, shadow));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_names_the_bytes_that_differ),
        cmocka_unit_test(every_single_byte_is_seen),
        cmocka_unit_test(random_pages_agree_at_any_alignment),
        cmocka_unit_test(an_implementation_is_chosen_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
