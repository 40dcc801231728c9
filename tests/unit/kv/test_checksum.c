/* The checksum of blocks: one number for some bytes, whatever CPU, pieces and alignment. */
#include "unit.h"

#include "base/rng.h"
#include "kv/common/checksum.h"

#include <errno.h>
#include <string.h>

enum { BYTES = 70000, GUARD = 64 };

static uint8_t bytes[BYTES + GUARD];

/* What docs and bench have, too. */
static void fill(void)
{
    for (uint32_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7 + i / 4096);
}

/* Bit by bit, from the definition. */
static uint64_t by_definition(const uint8_t *p, size_t len)
{
    uint64_t crc = UINT64_MAX;
    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? UINT64_C(0x9a6c9329ac4bc9b5) : 0);
    }
    return ~crc;
}

/* Runs `check` with every way that this CPU has. */
static void each_way(void (*check)(void))
{
    const char *name;
    fill();
    for (size_t i = 0; (name = kv_checksum_way(i)); i++) {
        assert_int_equal(kv_checksum_use(name), 0);
        check();
    }
    assert_int_equal(kv_checksum_use(kv_checksum_way(0)), 0);
}

static void check_golden(void)
{
    static const struct {
        size_t len;
        uint64_t sum;
    } golden[] = {
        {0, 0},
        {1, UINT64_C(0xd5da5047efec8728)},
        {127, UINT64_C(0x22aa6581fc2c8214)},
        {128, UINT64_C(0xe37327e7c5629844)},
        {129, UINT64_C(0x516d8f87464db7e5)},
        {4096, UINT64_C(0x7786dc7767d3e8e7)},
        {65537, UINT64_C(0x52663e891c19a42e)},
    };
    assert_true(kv_checksum_add(0, "123456789", 9) == UINT64_C(0xae8b14860a799888));
    for (size_t i = 0; i < ARRAY_LEN(golden); i++)
        assert_true(kv_checksum_add(0, bytes, golden[i].len) == golden[i].sum);
}

static void golden_numbers_hold_on_every_machine(void **state)
{
    (void)state;
    each_way(check_golden);
}

static void check_lengths(void)
{
    /* Past 300 some only: what is left of a step of 512, of 128, and of both. */
    for (size_t at = 0; at < 17; at++)
        for (size_t len = 0; len < 1700; len += len < 300 ? 1 : 37)
            assert_true(kv_checksum_add(0, bytes + at, len) == by_definition(bytes + at, len));
}

static void every_length_and_alignment_is_as_defined(void **state)
{
    (void)state;
    each_way(check_lengths);
}

static void check_pieces(void)
{
    struct hw_rng rng;
    hw_rng_seed(&rng, 1);
    for (int round = 0; round < 200; round++) {
        size_t len = hw_rng_below(&rng, BYTES), done = 0;
        uint64_t sum = 0;
        while (done < len) {
            size_t n = 1 + hw_rng_below(&rng, len - done);
            sum = kv_checksum_add(sum, bytes + done, n);
            done += n;
        }
        assert_true(sum == kv_checksum_add(0, bytes, len));
    }
}

static void pieces_come_to_the_same_as_the_whole(void **state)
{
    (void)state;
    each_way(check_pieces);
}

static void check_copies(void)
{
    static uint8_t copy[BYTES + 2 * GUARD];
    struct hw_rng rng;
    hw_rng_seed(&rng, 2);
    for (int round = 0; round < 200; round++) {
        size_t from = hw_rng_below(&rng, GUARD), to = hw_rng_below(&rng, GUARD);
        size_t len = hw_rng_below(&rng, round % 2 ? BYTES : 300);
        memset(copy, 0xee, sizeof(copy));
        uint64_t sum = kv_checksum_copy(0, copy + to, bytes + from, len);
        assert_true(sum == kv_checksum_add(0, bytes + from, len));
        assert_memory_equal(copy + to, bytes + from, len);
        assert_int_equal(copy[to + len], 0xee);
        assert_true(to == 0 || copy[to - 1] == 0xee);
    }
}

static void a_copy_is_the_bytes_and_nothing_past_them(void **state)
{
    (void)state;
    each_way(check_copies);
}

static void check_damage(void)
{
    uint64_t whole = kv_checksum_add(0, bytes, 1000);
    for (size_t bit = 0; bit < 8000; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_true(kv_checksum_add(0, bytes, 1000) != whole);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void every_bit_counts(void **state)
{
    (void)state;
    each_way(check_damage);
}

static void the_portable_way_is_always_there(void **state)
{
    (void)state;
    assert_int_equal(kv_checksum_use("c"), 0);
    assert_int_equal(kv_checksum_use("no such"), -ENOENT);
    assert_int_equal(kv_checksum_use(kv_checksum_way(0)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_numbers_hold_on_every_machine),
        cmocka_unit_test(every_length_and_alignment_is_as_defined),
        cmocka_unit_test(pieces_come_to_the_same_as_the_whole),
        cmocka_unit_test(a_copy_is_the_bytes_and_nothing_past_them),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(the_portable_way_is_always_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
