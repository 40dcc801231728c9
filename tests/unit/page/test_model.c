/* Random maps, unmaps, undos, reads and writes on the host backend, held against a model.
 *
 *     test-page-model [OPERATIONS [SEED]]     without a seed the clock gives one, and it is printed
 */
#include "unit.h"

#include "base/clock.h"
#include "base/rng.h"
#include "base/units.h"
#include "page/tensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 2,
    PAGES = 48,
    WORDS = 4, /* that are looked at in a page, at its ends and inside */
    BATCH = 6,
    OPERATIONS = 100000
};

static uint64_t operations = OPERATIONS, seed;

struct page_model {
    bool mapped;
    bool known[2 * LAYERS][WORDS]; /* a page that has just been mapped holds anything */
    uint64_t values[2 * LAYERS][WORDS];
};

struct model {
    struct page_tensors *t;
    struct hw_rng rng;
    struct page_model pages[PAGES], before[PAGES]; /* now; before the last batch */
    bool can_undo;
    struct page_outcome out;
};

static uint64_t word_offset(const struct model *m, uint32_t word)
{
    uint64_t page = page_tensors_geometry(m->t)->page_bytes;
    const uint64_t offsets[WORDS] = {0, 2048, page / 2 + 8, page - 8};
    return offsets[word];
}

/* Batches that are right more often than not. */
static size_t choose_ids(struct model *m, bool map, uint32_t ids[BATCH])
{
    size_t count = 1 + hw_rng_below(&m->rng, BATCH);
    for (size_t i = 0; i < count; i++) {
        ids[i] = (uint32_t)hw_rng_below(&m->rng, PAGES);
        for (int tries = 0; tries < 8 && m->pages[ids[i]].mapped == map; tries++)
            ids[i] = (uint32_t)hw_rng_below(&m->rng, PAGES);
        if (hw_rng_below(&m->rng, 200) == 0)
            ids[i] = PAGES + (uint32_t)hw_rng_below(&m->rng, 3);
    }
    return count;
}

static enum page_code judge(const struct model *m, const uint32_t *ids, size_t at, bool map)
{
    if (ids[at] >= PAGES)
        return PAGE_OUT_OF_RANGE;
    bool seen = m->pages[ids[at]].mapped == map;
    for (size_t i = 0; i < at; i++)
        seen |= ids[i] == ids[at];
    return !seen ? PAGE_DONE : map ? PAGE_MAPPED_TWICE : PAGE_UNMAPPED_TWICE;
}

static void change(struct model *m, bool map)
{
    uint32_t ids[BATCH];
    uint8_t wanted[BATCH];
    size_t count = choose_ids(m, map, ids);
    bool good = true;
    for (size_t i = 0; i < count; i++) {
        wanted[i] = (uint8_t)judge(m, ids, i, map);
        good &= wanted[i] == PAGE_DONE;
    }
    for (size_t i = 0; i < count && !good; i++)
        wanted[i] = wanted[i] == PAGE_DONE ? PAGE_SKIPPED : wanted[i];
    int rc = map ? page_tensors_map(m->t, ids, count, &m->out)
                 : page_tensors_unmap(m->t, ids, count, &m->out);
    assert_int_equal(rc == 0, good);
    assert_memory_equal(m->out.codes, wanted, count);
    if (!good)
        return;
    memcpy(m->before, m->pages, sizeof m->pages);
    m->can_undo = true;
    for (size_t i = 0; i < count; i++) {
        m->pages[ids[i]] = (struct page_model){.mapped = map};
    }
}

static void undo(struct model *m)
{
    assert_int_equal(page_tensors_undo(m->t, &m->out), m->can_undo ? 0 : -ENOENT);
    if (!m->can_undo)
        return;
    /* What was written since the batch stays where the page is mapped before and after. */
    for (uint32_t id = 0; id < PAGES; id++) {
        if (m->pages[id].mapped != m->before[id].mapped)
            m->pages[id] = m->before[id];
    }
    m->can_undo = false;
}

static void touch(struct model *m, bool write)
{
    struct page_error why;
    uint32_t id = (uint32_t)hw_rng_below(&m->rng, PAGES), word = hw_rng_below(&m->rng, WORDS);
    uint32_t tensor = (uint32_t)hw_rng_below(&m->rng, 2 * LAYERS);
    struct page_model *page = &m->pages[id];
    struct page_place at = {tensor / 2, tensor % 2, id, word_offset(m, word)};
    uint64_t value = hw_rng_u64(&m->rng) | 1;
    if (write && page->mapped) {
        assert_int_equal(page_tensors_write(m->t, &at, &value, sizeof value, &why), 0);
        page->known[tensor][word] = true;
        page->values[tensor][word] = value;
        return;
    }
    assert_int_equal(page_tensors_read(m->t, &at, &value, sizeof value, &why), 0);
    if (page->mapped && page->known[tensor][word])
        assert_int_equal(value, page->values[tensor][word]);
    if (!page->mapped)
        assert_int_equal(value, 0);
}

static void step(struct model *m)
{
    uint64_t dice = hw_rng_below(&m->rng, 100);
    if (dice < 15)
        change(m, true);
    else if (dice < 29)
        change(m, false);
    else if (dice < 32)
        undo(m);
    else if (dice < 34)
        (void)page_tensors_trim(m->t);
    else
        touch(m, dice < 67);
}

static void random_operations_agree_with_the_model(void **state)
{
    enum page_layout layout = *(enum page_layout *)*state;
    uint64_t page_bytes = 16 << 10;
    struct page_tensors_config config = {
        .backend = &page_backend_host,
        .device = {.memory_bytes = 2 * LAYERS * PAGES * page_bytes},
        .layers = LAYERS,
        .page_bytes = page_bytes,
        .layout = layout};
    struct page_error why;
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    assert_int_equal(page_tensors_create(&config, &m->t, &why), 0);
    hw_rng_seed(&m->rng, seed + (uint64_t)layout);
    for (uint64_t i = 0; i < operations; i++) {
        step(m);
        uint32_t mapped = 0;
        for (uint32_t id = 0; i % 256 == 0 && id < PAGES; id++) {
            assert_int_equal(page_tensors_is_mapped(m->t, id), m->pages[id].mapped);
            mapped += m->pages[id].mapped;
        }
        if (i % 256 == 0)
            assert_int_equal(page_tensors_mapped(m->t), mapped);
    }
    page_tensors_destroy(m->t);
    free(m);
}

int main(int argc, char **argv)
{
    static enum page_layout layouts[] = {PAGE_PER_LAYER, PAGE_CONTIGUOUS};
    seed = hw_now_ns();
    if ((argc > 1 && hw_parse_u64(argv[1], 1, UINT64_MAX, &operations)) ||
        (argc > 2 && hw_parse_u64(argv[2], 0, UINT64_MAX, &seed))) {
        fprintf(stderr, "usage: %s [OPERATIONS [SEED]]\n", argv[0]);
        return 2;
    }
    fprintf(stderr, "%llu operations a layout, seed %llu\n", (unsigned long long)operations,
            (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(random_operations_agree_with_the_model, &layouts[0]),
        cmocka_unit_test_prestate(random_operations_agree_with_the_model, &layouts[1]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
