/* Messages packed by what was said before. */
#include "base/rng.h"
#include "venus/common/transfer/pack.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct vn_packer *packer;
static struct vn_unpacker *unpacker;

static int start(void **state)
{
    (void)state;
    return vn_packer_create(&packer) || vn_unpacker_create(&unpacker);
}

static int end(void **state)
{
    (void)state;
    vn_packer_destroy(packer);
    vn_unpacker_destroy(unpacker);
    return 0;
}

/* Returns the bytes that travelled. */
static size_t send_across(const void *data, size_t len)
{
    struct vn_bytes in = {data, len}, packed, out;
    assert_int_equal(vn_pack(packer, &in, &packed), 0);
    assert_int_equal(vn_unpack(unpacker, &packed, &out), 0);
    assert_int_equal(out.len, len);
    assert_memory_equal(out.data, data, len);
    return packed.len;
}

static void fill(struct hw_rng *rng, uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)hw_rng_u64(rng);
}

static void what_was_said_before_costs_little(void **state)
{
    static uint8_t bytes[20000];
    struct hw_rng rng;
    (void)state;
    hw_rng_seed(&rng, 1);
    fill(&rng, bytes, sizeof(bytes));
    assert_true(send_across(bytes, sizeof(bytes)) > sizeof(bytes)); /* noise */
    assert_true(send_across(bytes, sizeof(bytes)) < 100);
    bytes[77] ^= 1;
    bytes[15000] ^= 1;
    assert_true(send_across(bytes, sizeof(bytes)) < 200);
}

static void any_sizes_and_contents_arrive(void **state)
{
    static uint8_t bytes[VN_PACK_MAX];
    struct hw_rng rng;
    (void)state;
    hw_rng_seed(&rng, 2);
    (void)send_across(bytes, sizeof(bytes));
    for (int i = 0; i < 300; i++) {
        size_t len = hw_rng_below(&rng, i % 10 ? 2000 : sizeof(bytes) + 1);
        fill(&rng, bytes, hw_rng_below(&rng, len + 1));
        (void)send_across(bytes, len);
    }
    fill(&rng, bytes, sizeof(bytes));
    (void)send_across(bytes, sizeof(bytes));
}

static int unpack_afresh(const void *data, size_t len)
{
    struct vn_unpacker *fresh;
    struct vn_bytes in = {data, len}, out;
    assert_int_equal(vn_unpacker_create(&fresh), 0);
    int rc = vn_unpack(fresh, &in, &out);
    vn_unpacker_destroy(fresh);
    return rc;
}

static void what_does_not_fit_together_is_refused(void **state)
{
    static uint8_t bytes[1000], packed[2000];
    struct vn_bytes in = {bytes, sizeof(bytes)}, out;
    struct hw_rng rng;
    (void)state;
    hw_rng_seed(&rng, 3);
    fill(&rng, bytes, sizeof(bytes));
    assert_int_equal(vn_pack(packer, &in, &out), 0);
    assert_true(out.len <= sizeof(packed));
    memcpy(packed, out.data, out.len);
    for (size_t len = 0; len < sizeof(bytes); len++) /* noise: its end is there or it is not */
        assert_int_equal(unpack_afresh(packed, len), -EPROTO);
    assert_int_equal(unpack_afresh(packed, out.len), 0);
    packed[0]++; /* more than there is */
    assert_int_equal(unpack_afresh(packed, out.len), -EPROTO);
    packed[0] -= 2; /* less */
    assert_int_equal(unpack_afresh(packed, out.len), -EPROTO);
    packed[3] = 0xff; /* over the limit */
    assert_int_equal(unpack_afresh(packed, out.len), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_said_before_costs_little, start, end),
        cmocka_unit_test_setup_teardown(any_sizes_and_contents_arrive, start, end),
        cmocka_unit_test_setup_teardown(what_does_not_fit_together_is_refused, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
