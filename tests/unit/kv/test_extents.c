/* The arena's books: extents never overlap, everything that is given back can be had again. */
#include "unit.h"

#include "base/rng.h"
#include "kv/store/extents.h"

#include <errno.h>
#include <string.h>

enum { GRANULES = 4096, EXTENTS = 200, STEPS = 20000 };

struct taken {
    uint32_t id;
    uint64_t offset, bytes;
};

static struct kv_extents *create(uint64_t bytes, uint32_t extents)
{
    struct kv_extents *e = NULL;
    struct kv_memory heap = kv_heap();
    assert_int_equal(kv_extents_create(bytes, extents, &heap, &e), 0);
    return e;
}

/* Who has each granule: 0 nobody. */
static void mark(uint8_t *map, const struct taken *t, uint8_t from, uint8_t to)
{
    uint64_t first = t->offset / KV_GRANULE, count = kv_extents_size(t->bytes) / KV_GRANULE;
    assert_int_equal(t->offset % KV_GRANULE, 0);
    assert_true(first + count <= GRANULES);
    for (uint64_t i = first; i < first + count; i++) {
        assert_int_equal(map[i], from);
        map[i] = to;
    }
}

static void extents_never_overlap_and_holes_join(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        static uint8_t map[GRANULES];
        struct taken taken[EXTENTS];
        uint32_t count = 0;
        struct kv_extents *e = create(GRANULES * KV_GRANULE, EXTENTS);
        struct hw_rng rng;
        hw_rng_seed(&rng, seed);
        memset(map, 0, sizeof(map));
        for (int i = 0; i < STEPS / 20; i++) {
            struct taken t = {.bytes = 1 + hw_rng_below(&rng, hw_rng_below(&rng, 2) ? 100 : 20000)};
            if (count < EXTENTS && hw_rng_below(&rng, 2) &&
                kv_extents_take(e, t.bytes, &t.id, &t.offset) == 0) {
                mark(map, &t, 0, 1);
                taken[count++] = t;
            } else if (count > 0) {
                uint32_t at = (uint32_t)hw_rng_below(&rng, count);
                mark(map, &taken[at], 1, 0);
                kv_extents_give(e, taken[at].id);
                taken[at] = taken[--count];
            }
            assert_true(kv_extents_sound(e));
        }
        while (count > 0)
            kv_extents_give(e, taken[--count].id);
        assert_int_equal(kv_extents_used(e), 0);
        struct taken all;
        assert_int_equal(kv_extents_take(e, GRANULES * KV_GRANULE, &all.id, &all.offset), 0);
        kv_extents_destroy(e);
    }
}

static void rounding_up_wastes_less_than_a_32nd(void **state)
{
    (void)state;
    for (uint64_t bytes = 1; bytes < (UINT64_C(64) << 20); bytes += bytes / 37 + 1) {
        uint64_t size = kv_extents_size(bytes);
        assert_true(size >= bytes && size % KV_GRANULE == 0);
        assert_true(size - bytes < KV_GRANULE || (size - bytes) * 32 <= bytes + 32 * KV_GRANULE);
        assert_int_equal(kv_extents_size(size), size);
    }
    assert_int_equal(kv_extents_size(4 << 20), 4 << 20);
    assert_int_equal(kv_extents_size(3 << 20), 3 << 20);
}

static void equal_sizes_fill_the_arena_again_and_again(void **state)
{
    (void)state;
    enum { SIZE = 5000, COUNT = 40 };
    uint64_t arena = kv_extents_size(SIZE) * COUNT, offset;
    struct kv_extents *e = create(arena, COUNT);
    uint32_t ids[COUNT];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(kv_extents_take(e, SIZE, &ids[i], &offset), 0);
        assert_int_equal(kv_extents_used(e), arena);
        uint32_t none;
        assert_int_equal(kv_extents_take(e, 1, &none, &offset), -ENOSPC);
        for (int i = 0; i < COUNT; i++) /* every other one, then the rest: holes of one size */
            kv_extents_give(e, ids[i * 7 % COUNT]);
    }
    kv_extents_destroy(e);
}

static void bad_sizes_are_refused(void **state)
{
    (void)state;
    struct kv_extents *e;
    struct kv_memory heap = kv_heap();
    assert_int_equal(kv_extents_create(KV_GRANULE - 1, 1, &heap, &e), -EINVAL);
    assert_int_equal(kv_extents_create(KV_ARENA_MAX + 1, 1, &heap, &e), -EINVAL);
    assert_int_equal(kv_extents_create(KV_GRANULE, 0, &heap, &e), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extents_never_overlap_and_holes_join),
        cmocka_unit_test(rounding_up_wastes_less_than_a_32nd),
        cmocka_unit_test(equal_sizes_fill_the_arena_again_and_again),
        cmocka_unit_test(bad_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
