/* Page counts, offsets in both layouts, tokens to pages. */
#include "unit.h"

#include "page/geometry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static struct page_geometry geometry(uint64_t memory, uint32_t layers, enum page_layout layout)
{
    struct page_geometry g;
    struct page_error why;
    assert_int_equal(page_geometry_init(&g, memory, layers, 2 * MIB, layout, &why), 0);
    return g;
}

static void memory_and_layers_give_the_page_count_of_the_original(void **state)
{
    (void)state;
    char text[PAGE_TEXT_CHARS];
    struct page_geometry g = geometry(45312 * MIB, 32, PAGE_PER_LAYER);
    assert_int_equal(g.pages, 354);
    page_geometry_explain(&g, text);
    assert_string_equal(text, "354 pages: 45312 MiB / (2 (K and V) x 2MiB x 32 layers)");
    /* One byte less is a page less; all but a page more is none more. */
    assert_int_equal(geometry(45312 * MIB - 1, 32, PAGE_PER_LAYER).pages, 353);
    assert_int_equal(geometry(45312 * MIB + 128 * MIB - 1, 32, PAGE_PER_LAYER).pages, 354);
    assert_int_equal(geometry(45312 * MIB, 32, PAGE_CONTIGUOUS).pages, 354);
}

static void layouts_differ_in_pieces_and_not_in_size(void **state)
{
    (void)state;
    struct page_geometry layer = geometry(1024 * MIB, 4, PAGE_PER_LAYER);
    struct page_geometry whole = geometry(1024 * MIB, 4, PAGE_CONTIGUOUS);
    assert_int_equal(layer.pieces, 8);
    assert_int_equal(layer.piece_bytes, 2 * MIB);
    assert_int_equal(whole.pieces, 1);
    assert_int_equal(whole.piece_bytes, 16 * MIB);
    assert_int_equal(layer.range_bytes, whole.range_bytes);
    /* K0 V0 K1: a tensor of 64 pages after the other, or a page after the other in one id. */
    assert_int_equal(page_tensor_offset(&layer, 1, 0, 3), (2 * 64 + 3) * 2 * MIB);
    assert_int_equal(page_tensor_offset(&whole, 1, 0, 3), 3 * 16 * MIB + 2 * 2 * MIB);
}

static void no_two_pages_share_a_byte(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        struct page_geometry g = geometry(96 * MIB, 3, (enum page_layout)layout);
        uint8_t *seen = calloc(g.range_bytes / g.page_bytes, 1);
        for (uint32_t layer = 0; layer < g.layers; layer++) {
            for (unsigned kv = 0; kv < 2; kv++) {
                for (uint32_t id = 0; id < g.pages; id++) {
                    uint64_t at = page_tensor_offset(&g, layer, kv, id);
                    assert_int_equal(at % g.page_bytes, 0);
                    assert_true(at < g.range_bytes);
                    assert_int_equal(seen[at / g.page_bytes]++, 0);
                }
            }
        }
        free(seen);
    }
}

static void what_makes_no_sense_is_refused_with_a_reason(void **state)
{
    (void)state;
    struct page_geometry g;
    struct page_error why;
    assert_int_equal(page_geometry_init(&g, 127 * MIB, 32, 2 * MIB, PAGE_PER_LAYER, &why), -ENOMEM);
    assert_non_null(strstr(why.text, "one page id alone takes 128MiB"));
    assert_int_equal(page_geometry_init(&g, MIB, 0, 2 * MIB, PAGE_PER_LAYER, &why), -EINVAL);
    assert_int_equal(
        page_geometry_init(&g, MIB, PAGE_LAYERS_MAX + 1, 2 * MIB, PAGE_PER_LAYER, &why), -EINVAL);
    assert_int_equal(page_geometry_init(&g, MIB, 1, 0, PAGE_PER_LAYER, &why), -EINVAL);
    assert_int_equal(page_geometry_init(&g, UINT64_MAX, 1, 4096, PAGE_PER_LAYER, &why), -ERANGE);
}

static void id_past_the_range_names_the_count_and_its_arithmetic(void **state)
{
    (void)state;
    struct page_geometry g = geometry(45312 * MIB, 32, PAGE_CONTIGUOUS);
    struct page_error why;
    uint32_t ids[] = {0, 353, 354};
    assert_int_equal(page_geometry_check(&g, ids, 2, &why), 0);
    assert_int_equal(page_geometry_check(&g, ids, 3, &why), -ERANGE);
    assert_string_equal(why.text, "page id 354 is out of range 0 to 353; there are 354 pages: 45312"
                                  " MiB / (2 (K and V) x 2MiB x 32 layers)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_and_layers_give_the_page_count_of_the_original),
        cmocka_unit_test(layouts_differ_in_pieces_and_not_in_size),
        cmocka_unit_test(no_two_pages_share_a_byte),
        cmocka_unit_test(what_makes_no_sense_is_refused_with_a_reason),
        cmocka_unit_test(id_past_the_range_names_the_count_and_its_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
