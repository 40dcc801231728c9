/* When memory of which little changes is fetched, not compared: by the link's round trip. */
#include "rig.h"

#include "base/clock.h"
#include "venus/client/link/pushes.h"
#include "venus/client/memory/fetch.h"
#include "venus/common/protocol.h"
#include "venus/memory/delta.h"

uint64_t __wrap_vnc_link_quickest_ns(const struct vnc_link *link);

static uint64_t round_trip_ns;

uint64_t __wrap_vnc_link_quickest_ns(const struct vnc_link *link)
{
    (void)link;
    return round_trip_ns;
}

static const uint64_t few = 16 << 20, many = 64 << 20;

/* After so many comparisons of the bytes, which found this. */
static bool pays(struct rig *rig, uint64_t ns, uint64_t bytes, uint64_t comparisons,
                 uint64_t changed)
{
    struct vnc_memory memory = {
        .device = rig->device, .compared = comparisons * bytes, .changed = changed};
    round_trip_ns = ns;
    return vnc_fetch_pays_now(&memory, bytes);
}

static void near_a_round_trip_is_cheaper_than_comparing(void **state)
{
    assert_true(pays(*state, 50 * HW_US, few, 4, 4096));
    assert_false(pays(*state, 10 * HW_MS, few, 4, 4096));
    assert_true(pays(*state, 10 * HW_MS, many, 4, 4096));
}

static void what_changes_is_compared(void **state)
{
    assert_false(pays(*state, 50 * HW_US, few, 3, 4096));
    assert_false(pays(*state, 50 * HW_US, few, 4, few));
    assert_false(pays(*state, 50 * HW_US, 1 << 20, 4, 4096));
}

/* Pages of equal words, each of which takes a few bytes on the line. */
static void what_changes_in_few_words_is_compared(void **state)
{
    struct rig *rig = *state;
    struct rig_copy copy;
    const size_t bytes = 1 << 20;
    struct vn_delta_codec *codec;
    struct vn_delta_out out;
    struct wire_enc e;
    uint8_t page[VN_PAGE_BYTES];
    rig_copy_make(rig, &copy, bytes);
    struct vnc_memory *memory = copy.memory;
    assert_int_equal(vnc_pushes_add_memory(rig->pushes, memory), 0);
    assert_int_equal(vn_delta_codec_create(0, &codec), 0);
    wire_enc_init(&e, bytes);
    wire_put_u64(&e, memory->object.id);
    vn_delta_begin(&out, &e);
    memset(page, 0x77, sizeof(page));
    for (size_t i = 0; i < bytes / VN_PAGE_BYTES; i++)
        vn_delta_put_page(&out, i, page);
    assert_int_equal(vn_delta_end(&out, codec), 0);
    assert_true(wire_enc_len(&e) < bytes / 64);
    const struct rpc_msg push = {
        .method = VN_PUSH_DELTA, .data = wire_enc_data(&e), .len = wire_enc_len(&e)};
    assert_int_equal(vnc_pushes_take(rig->pushes, &push), 0);
    assert_int_equal(memory->changed, bytes);
    wire_enc_fini(&e);
    vn_delta_codec_destroy(codec);
    vnc_pushes_remove_memory(rig->pushes, memory);
    rig_copy_free(rig, &copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(near_a_round_trip_is_cheaper_than_comparing, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(what_changes_is_compared, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(what_changes_in_few_words_is_compared, rig_start, rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
