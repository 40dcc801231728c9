/* What the tensors ask of a backend: which memory goes where.
 *
 * On the null backend, whose handles are numbered as they are made, with a bind that looks. */
#include "unit.h"

#include "page/tensors.h"

#include <string.h>

enum { LAYERS = 3, PIECES = 2 * LAYERS, PAGES = 16, BINDS_MAX = PAGES * PIECES };

static struct page_outcome outcome;
static struct page_bind binds[BINDS_MAX];
static size_t bind_count;

static int look_at_bind(struct page_backend *b, const struct page_bind *asked, size_t count,
                        size_t *failed, struct page_error *why)
{
    assert_true(count <= BINDS_MAX);
    memcpy(binds, asked, count * sizeof *binds);
    bind_count = count;
    return page_backend_null.bind(b, asked, count, failed, why);
}

static struct page_backend_ops looking;

static int open_looking(const struct page_backend_config *config, struct page_backend **out,
                        struct page_error *why)
{
    int rc = page_backend_null.open(config, out, why);
    if (rc == 0)
        (*out)->ops = &looking;
    return rc;
}

static struct page_tensors *make(void)
{
    struct page_tensors *t;
    struct page_error why;
    looking = page_backend_null;
    looking.open = open_looking;
    looking.bind = look_at_bind;
    struct page_tensors_config config = {
        .backend = &looking,
        .device = {.memory_bytes = PAGES * PIECES * PAGE_BYTES_DEFAULT},
        .layers = LAYERS,
        .layout = PAGE_PER_LAYER};
    if (page_tensors_create(&config, &t, &why))
        fail_msg("%s", why.text);
    return t;
}

static void map(struct page_tensors *t, const uint32_t *ids, size_t count)
{
    if (page_tensors_map(t, ids, count, &outcome))
        fail_msg("%s", outcome.why.text);
    assert_int_equal(bind_count, count * PIECES);
}

static void unmap(struct page_tensors *t, const uint32_t *ids, size_t count)
{
    if (page_tensors_unmap(t, ids, count, &outcome))
        fail_msg("%s", outcome.why.text);
}

/* Pairs of binds that are neighbours in the range, and of those the ones whose memory was made one
 * after the other. */
static void count_neighbours(size_t *in_range, size_t *in_memory)
{
    *in_range = *in_memory = 0;
    for (size_t i = 1; i < bind_count; i++) {
        if (binds[i].offset != binds[i - 1].offset + PAGE_BYTES_DEFAULT)
            continue;
        ++*in_range;
        *in_memory += binds[i].handle == binds[i - 1].handle + 1;
    }
}

static void expect_neighbours_together(size_t wanted)
{
    size_t in_range, in_memory;
    count_neighbours(&in_range, &in_memory);
    assert_int_equal(in_range, wanted);
    assert_int_equal(in_memory, wanted);
}

static void neighbours_get_memory_that_lies_together(void **state)
{
    (void)state;
    struct page_tensors *t = make();
    const uint32_t run[] = {7, 4, 6, 5};
    for (int round = 0; round < 3; round++) { /* new memory, then what came back */
        map(t, run, 4);
        expect_neighbours_together(3 * PIECES);
        unmap(t, run, 4);
    }
    page_tensors_destroy(t);
}

static void memory_of_single_pages_serves_a_run(void **state)
{
    (void)state;
    struct page_tensors *t = make();
    const uint32_t run[] = {8, 9, 10};
    for (uint32_t id = 0; id < 3; id++)
        map(t, &id, 1);
    for (uint32_t id = 0; id < 3; id++)
        unmap(t, &id, 1);
    map(t, run, 3); /* two runs from the memory of each */
    expect_neighbours_together(2 * PIECES);
    page_tensors_destroy(t);
}

static void no_memory_is_given_to_two_pages(void **state)
{
    (void)state;
    struct page_tensors *t = make();
    bool taken[BINDS_MAX + 1] = {false};
    const uint32_t first[] = {0, 1, 2, 3, 4}, middle[] = {1, 3}, last[] = {9, 10};
    map(t, first, 5);
    for (size_t i = 0; i < bind_count; i++)
        taken[binds[i].handle] = true;
    unmap(t, middle, 2);
    page_tensors_commit(t);
    map(t, last, 2);
    struct page_bind given[2 * PIECES];
    memcpy(given, binds, sizeof given);
    map(t, middle, 2); /* new memory: that of before is at `last` */
    for (size_t i = 0; i < bind_count; i++) {
        assert_true(taken[given[i].handle]);
        assert_false(taken[binds[i].handle]);
    }
    page_tensors_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_get_memory_that_lies_together),
        cmocka_unit_test(memory_of_single_pages_serves_a_run),
        cmocka_unit_test(no_memory_is_given_to_two_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
