/* Keys to pointers, against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "venus/common/keymap.h"

enum { KEYS = 300, ROUNDS = 20000 };

static int values[KEYS];

/* Some near each other, some that differ in their high bits only. */
static uint64_t key_of(size_t i)
{
    return i % 2 ? i : (uint64_t)i << 48 | 1 << 20;
}

static void it_agrees_with_an_array(void **state)
{
    struct vn_keymap map;
    struct hw_rng rng;
    void *model[KEYS] = {0};
    size_t count = 0;
    (void)state;
    hw_rng_seed(&rng, 7);
    vn_keymap_init(&map);
    for (int round = 0; round < ROUNDS; round++) {
        size_t i = (size_t)hw_rng_below(&rng, KEYS);
        if (hw_rng_below(&rng, 2)) {
            assert_int_equal(vn_keymap_put(&map, key_of(i), &values[i]), 0);
            count += model[i] == NULL;
            model[i] = &values[i];
        } else {
            assert_ptr_equal(vn_keymap_take(&map, key_of(i)), model[i]);
            count -= model[i] != NULL;
            model[i] = NULL;
        }
        size_t k = (size_t)hw_rng_below(&rng, KEYS);
        assert_ptr_equal(vn_keymap_get(&map, key_of(k)), model[k]);
        assert_int_equal(vn_keymap_count(&map), count);
    }
    for (size_t i = 0; i < KEYS; i++)
        assert_ptr_equal(vn_keymap_get(&map, key_of(i)), model[i]);
    vn_keymap_fini(&map);
}

static void walking_meets_each_value_once(void **state)
{
    struct vn_keymap map;
    int *value;
    size_t at = 0, met = 0;
    (void)state;
    vn_keymap_init(&map);
    for (size_t i = 1; i < KEYS; i++) {
        values[i] = 0;
        assert_int_equal(vn_keymap_put(&map, key_of(i), &values[i]), 0);
    }
    while ((value = vn_keymap_next(&map, &at)) != NULL) {
        assert_int_equal((*value)++, 0);
        met++;
    }
    assert_int_equal(met, KEYS - 1);
    vn_keymap_fini(&map);
}

static void an_empty_map_has_nothing(void **state)
{
    struct vn_keymap map;
    size_t at = 0;
    (void)state;
    vn_keymap_init(&map);
    assert_null(vn_keymap_get(&map, 1));
    assert_null(vn_keymap_get(&map, 0));
    assert_null(vn_keymap_take(&map, 1));
    assert_null(vn_keymap_next(&map, &at));
    vn_keymap_fini(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_agrees_with_an_array),
        cmocka_unit_test(walking_meets_each_value_once),
        cmocka_unit_test(an_empty_map_has_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
