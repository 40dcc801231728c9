#include "unit.h"

#include <string.h>

#include "base/arena.h"

static void allocations_are_aligned_and_apart(void **state)
{
    (void)state;
    struct hw_arena arena;
    hw_arena_init(&arena, 1 << 20);
    unsigned char *before = NULL;
    for (size_t align = 1; align <= HW_ARENA_ALIGN_MAX; align *= 2) {
        unsigned char *p = hw_arena_alloc(&arena, 33, align);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        memset(p, (int)(align % 251), 33);
        if (before)
            assert_int_equal(before[32], align / 2 % 251);
        before = p;
    }
    hw_arena_fini(&arena);
}

static void maximum_is_kept_and_told(void **state)
{
    (void)state;
    struct hw_arena arena;
    hw_arena_init(&arena, 10000);
    size_t got = 0;
    while (hw_arena_alloc(&arena, 100, 8))
        got += 100;
    assert_in_range(got, 8000, 10000);
    assert_true(arena.held <= 10000);
    assert_null(hw_arena_alloc(&arena, 20000, 1));
    assert_null(hw_arena_alloc(&arena, SIZE_MAX, 16));
    assert_null(hw_arena_alloc(&arena, SIZE_MAX - 8, 16));
    assert_null(hw_arena_calloc(&arena, SIZE_MAX / 2, 3));
    hw_arena_fini(&arena);
    hw_arena_init(&arena, 0);
    assert_null(hw_arena_alloc(&arena, 1, 1));
    hw_arena_fini(&arena);
}

static void large_allocation_gets_its_own_block(void **state)
{
    (void)state;
    struct hw_arena arena;
    hw_arena_init(&arena, 8 << 20);
    char *small = hw_arena_strdup(&arena, "kept");
    char *large = hw_arena_alloc(&arena, 3 << 20, 64);
    assert_non_null(large);
    memset(large, 1, 3 << 20);
    assert_string_equal(small, "kept");
    hw_arena_fini(&arena);
}

static void reset_lets_the_memory_be_used_again(void **state)
{
    (void)state;
    struct hw_arena arena;
    hw_arena_init(&arena, 1 << 20);
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 50; i++)
            assert_non_null(hw_arena_alloc(&arena, 10000, 16));
        hw_arena_reset(&arena);
    }
    hw_arena_fini(&arena);
    hw_arena_reset(&arena);
    assert_int_equal(arena.held, 0);
}

static char *formatted(struct hw_arena *arena, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = hw_arena_vprintf(arena, fmt, args);
    va_end(args);
    return text;
}

static void text_is_copied_and_zeroed_memory_is_zero(void **state)
{
    (void)state;
    struct hw_arena arena;
    hw_arena_init(&arena, 1 << 20);
    char *dirty = hw_arena_alloc(&arena, 4000, 1);
    memset(dirty, 0xff, 4000);
    hw_arena_reset(&arena);
    unsigned char *zeroed = hw_arena_calloc(&arena, 100, 10);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(zeroed[i], 0);
    assert_string_equal(formatted(&arena, "%s-%d", "x", 7), "x-7");
    hw_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_aligned_and_apart),
        cmocka_unit_test(maximum_is_kept_and_told),
        cmocka_unit_test(large_allocation_gets_its_own_block),
        cmocka_unit_test(reset_lets_the_memory_be_used_again),
        cmocka_unit_test(text_is_copied_and_zeroed_memory_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
