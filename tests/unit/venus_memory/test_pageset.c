/* Sets of pages against one bit after the other. */
#include "unit.h"

#include <stdbool.h>

#include "base/rng.h"
#include "venus/memory/pageset.h"

enum { PAGES = 200, STEPS = 20000 };

static void expect_same(const struct vn_pageset *set, const bool *model)
{
    size_t count = 0, next = PAGES;
    for (size_t page = PAGES; page-- > 0;) {
        assert_int_equal(vn_pageset_has(set, page), model[page]);
        count += model[page];
        next = model[page] ? page : next;
        assert_int_equal(vn_pageset_next(set, page), next);
    }
    assert_int_equal(set->count, count);
}

static void spans_are_their_pages(void **state)
{
    bool model[PAGES] = {false};
    struct vn_pageset set;
    struct hw_rng rng;
    (void)state;
    hw_rng_seed(&rng, 1);
    assert_int_equal(vn_pageset_init(&set, PAGES), 0);
    for (unsigned step = 0; step < STEPS; step++) {
        size_t first = hw_rng_below(&rng, PAGES + 1), run = 0;
        size_t count = hw_rng_below(&rng, PAGES - first + 1);
        bool adds = hw_rng_below(&rng, 2);
        (adds ? vn_pageset_add_span : vn_pageset_remove_span)(&set, first, count);
        for (size_t page = first; page < first + count; page++)
            model[page] = adds;
        expect_same(&set, model);
        while (first + run < PAGES && run < count && model[first + run])
            run++;
        assert_int_equal(vn_pageset_run(&set, first, count), run);
    }
    vn_pageset_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spans_are_their_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
