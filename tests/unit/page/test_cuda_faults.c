/* A CUDA driver that fails at any call: the tensors are as before, and go on.
 *
 * Runs on the fake driver, whose library is the program's argument. */
#include "suite.h"

#include "fake_cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct page_outcome outcome;

static struct {
    fake_cuda_fail_fn *fail_calls;
    fake_cuda_calls_fn *calls;
    fake_cuda_live_fn *live;
    fake_cuda_capacity_fn *capacity;
    fake_cuda_syncs_fn *syncs;
} fake;

static const uint32_t old_ids[] = {0, 5}, new_ids[] = {1, 2, 7};

/* Pages 0 and 5 are mapped and filled; a first round of 1, 2, 7 made their memory. */
static struct page_tensors *prepare(enum page_layout layout, bool no_reuse)
{
    struct page_tensors_config config = suite_config(layout);
    config.no_reuse = no_reuse;
    struct page_tensors *t = suite_make(&config);
    suite_map(t, old_ids, 2);
    suite_fill(t, 0, 1);
    suite_fill(t, 5, 1);
    return t;
}

static void expect_old_state(struct page_tensors *t, bool new_mapped)
{
    uint64_t bytes, mappings;
    const struct page_geometry *g = page_tensors_geometry(t);
    suite_expect(t, 0, 1);
    suite_expect(t, 5, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(page_tensors_is_mapped(t, new_ids[i]), new_mapped);
        if (new_mapped)
            suite_expect(t, new_ids[i], 2);
    }
    fake.live(&bytes, &mappings);
    assert_int_equal(mappings, (2 + 3 * new_mapped) * g->pieces);
}

/* Every driver call of a map and of an unmap fails once. */
static void fail_each_call(enum page_layout layout, bool no_reuse)
{
    struct page_tensors *t = prepare(layout, no_reuse);
    for (uint64_t n = 1;; n++) {
        fake.fail_calls(n, n);
        int rc = page_tensors_map(t, new_ids, 3, &outcome);
        uint64_t calls = fake.calls();
        fake.fail_calls(0, 0);
        if (calls < n) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_int_equal(rc, -EIO);
        assert_int_equal(outcome.why.driver, FAKE_CUDA_ERROR);
        assert_non_null(strstr(outcome.why.text, "CUDA_ERROR_UNKNOWN (999): unknown error"));
        int blamed = 0;
        for (int i = 0; i < 3; i++)
            blamed += outcome.codes[i] == PAGE_DRIVER_ERROR;
        assert_int_equal(blamed, 1);
        expect_old_state(t, false);
    }
    for (int i = 0; i < 3; i++)
        suite_fill(t, new_ids[i], 2);
    for (uint64_t n = 1;; n++) {
        fake.fail_calls(n, n);
        int rc = page_tensors_unmap(t, new_ids, 3, &outcome);
        uint64_t calls = fake.calls();
        fake.fail_calls(0, 0);
        if (calls < n) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_int_equal(rc, -EIO);
        expect_old_state(t, true);
    }
    expect_old_state(t, false);
    page_tensors_destroy(t);
}

static void any_call_that_fails_leaves_all_as_before(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        fail_each_call((enum page_layout)layout, false);
        fail_each_call((enum page_layout)layout, true);
    }
}

static void no_memory_on_the_device_blames_a_page(void **state)
{
    (void)state;
    uint64_t bytes, mappings;
    struct page_tensors *t = prepare(PAGE_PER_LAYER, false);
    fake.live(&bytes, &mappings);
    fake.capacity(bytes + 5 * suite_page_bytes()); /* one id and a quarter of the next */
    assert_int_equal(page_tensors_map(t, new_ids, 3, &outcome), -ENOMEM);
    assert_int_equal(outcome.why.driver, 2);
    assert_non_null(strstr(outcome.why.text, "out of memory"));
    const uint8_t codes[] = {PAGE_SKIPPED, PAGE_OUT_OF_MEMORY, PAGE_SKIPPED};
    assert_memory_equal(outcome.codes, codes, 3);
    expect_old_state(t, false);
    suite_map(t, new_ids, 1);
    fake.capacity(0);
    page_tensors_destroy(t);
}

static void when_undoing_fails_too_nothing_is_pretended(void **state)
{
    (void)state;
    struct page_tensors *t = prepare(PAGE_PER_LAYER, false);
    suite_map(t, new_ids, 3);
    fake.fail_calls(3, UINT64_MAX);
    assert_int_equal(page_tensors_unmap(t, new_ids, 3, &outcome), -ENOTRECOVERABLE);
    fake.fail_calls(0, 0);
    assert_int_equal(page_tensors_map(t, (uint32_t[]){3}, 1, &outcome), -ENOTRECOVERABLE);
    assert_non_null(strstr(outcome.why.text, "in doubt"));
    page_tensors_destroy(t);
}

/* Two ids never share a piece of memory. */
static void when_undoing_a_map_fails_too_nothing_is_pretended(void **state)
{
    (void)state;
    struct page_tensors *t = prepare(PAGE_PER_LAYER, false);
    fake.fail_calls(0, 0);
    suite_map(t, new_ids, 3);
    uint64_t all = fake.calls();
    suite_unmap(t, new_ids, 3); /* its memory is kept: the calls to come only map */
    for (uint64_t first = 2, stuck = 0; !stuck; first++) {
        assert_true(first <= all);
        fake.fail_calls(first, UINT64_MAX);
        int rc = page_tensors_map(t, new_ids, 3, &outcome);
        fake.fail_calls(0, 0);
        stuck = rc == -ENOTRECOVERABLE;
        if (!stuck) {
            assert_int_equal(rc, -EIO);
            expect_old_state(t, false);
        }
    }
    assert_int_equal(outcome.why.driver, FAKE_CUDA_ERROR);
    assert_int_equal(page_tensors_map(t, (uint32_t[]){3}, 1, &outcome), -ENOTRECOVERABLE);
    assert_non_null(strstr(outcome.why.text, "in doubt"));
    page_tensors_destroy(t);
}

static void async_sched_waits_for_the_device(void **state)
{
    (void)state;
    struct page_tensors_config config = suite_config(PAGE_CONTIGUOUS);
    const uint32_t id = 1;
    config.async_sched = true;
    struct page_tensors *t = suite_make(&config);
    suite_map(t, &id, 1);
    uint64_t before = fake.syncs();
    suite_unmap(t, &id, 1);
    assert_int_equal(fake.syncs(), before + 1);
    page_tensors_destroy(t);
}

/* Driver calls that one more batch makes. */
static uint64_t calls_of(struct page_tensors *t, const uint32_t *ids, size_t count, bool map)
{
    fake.fail_calls(0, 0);
    map ? suite_map(t, ids, count) : suite_unmap(t, ids, count);
    return fake.calls();
}

static void a_run_takes_one_access_call_and_one_unmap(void **state)
{
    (void)state;
    const uint32_t run[] = {4, 5, 6, 7};
    for (int single = 0; single < 2; single++) {
        struct page_tensors_config config = suite_config(PAGE_PER_LAYER);
        config.device.not_joined = single;
        struct page_tensors *t = suite_make(&config);
        suite_map(t, run, 4);
        suite_unmap(t, run, 4);
        uint64_t pieces = 2 * LAYERS;
        /* Memory is there: a map for each piece, then an access call for each run or piece. */
        assert_int_equal(calls_of(t, run, 4, true), 4 * pieces + (single ? 4 * pieces : pieces));
        assert_int_equal(calls_of(t, run, 4, false), single ? 4 * pieces : pieces);
        page_tensors_destroy(t);
    }
}

static int nothing_is_left(void **state)
{
    (void)state;
    uint64_t bytes, mappings;
    fake.live(&bytes, &mappings);
    return bytes || mappings;
}

static void load_controls(const char *library)
{
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* the same that the backend opens */
    assert_non_null(lib);
    *(void **)&fake.fail_calls = dlsym(lib, "fake_cuda_fail");
    *(void **)&fake.calls = dlsym(lib, "fake_cuda_calls");
    *(void **)&fake.live = dlsym(lib, "fake_cuda_live");
    *(void **)&fake.capacity = dlsym(lib, "fake_cuda_capacity");
    *(void **)&fake.syncs = dlsym(lib, "fake_cuda_syncs");
    assert_true(fake.fail_calls && fake.calls && fake.live && fake.capacity && fake.syncs);
}

int main(int argc, char **argv)
{
    char *args[] = {argv[0], (char *)"cuda", argc > 1 ? argv[1] : NULL, NULL};
    int rc = suite_begin(argc > 1 ? 3 : 1, args);
    if (rc)
        return rc;
    load_controls(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(any_call_that_fails_leaves_all_as_before, nothing_is_left),
        cmocka_unit_test_teardown(no_memory_on_the_device_blames_a_page, nothing_is_left),
        cmocka_unit_test_teardown(async_sched_waits_for_the_device, nothing_is_left),
        cmocka_unit_test_teardown(a_run_takes_one_access_call_and_one_unmap, nothing_is_left),
        cmocka_unit_test(when_undoing_fails_too_nothing_is_pretended),
        cmocka_unit_test(when_undoing_a_map_fails_too_nothing_is_pretended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
