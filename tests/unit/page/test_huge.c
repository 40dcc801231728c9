/* Huge pages of the host backend: the administrator's pool, the kernel's own, neither, and off.
 *
 * What a machine has of them is its own affair, so the pool and the kernel's setting are this
 * file's; that pages hold what is written is asked of the real kernel each time. */
#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum pool { POOL_OF_THE_MACHINE, POOL_COVERS, POOL_UNKNOWN };

static struct {
    enum pool pool;
    const char *setting; /* NULL: this kernel has none */
    bool old_kernel;     /* that knows no populating */
} machine;

static struct {
    int huge_files, settings_read, populated, advice;
} seen;

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);
FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);

int __wrap_memfd_create(const char *name, unsigned flags)
{
    if (!(flags & MFD_HUGETLB))
        return __real_memfd_create(name, flags);
    seen.huge_files++;
    if (machine.pool == POOL_UNKNOWN) {
        errno = ENODEV;
        return -1;
    }
    if (machine.pool == POOL_COVERS)
        flags &= MFD_CLOEXEC;
    return __real_memfd_create(name, flags);
}

int __wrap_madvise(void *at, size_t len, int advice)
{
    if (advice != MADV_POPULATE_WRITE) {
        seen.advice = advice;
        return __real_madvise(at, len, advice);
    }
    if (machine.old_kernel) {
        errno = EINVAL;
        return -1;
    }
    seen.populated++;
    return __real_madvise(at, len, advice);
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
    if (!strstr(path, "shmem_enabled"))
        return __real_fopen64(path, mode);
    seen.settings_read++;
    return machine.setting ? fmemopen((char *)machine.setting, strlen(machine.setting), "r") : NULL;
}

static struct page_tensors *make(bool no_huge)
{
    struct page_tensors_config config = suite_config(PAGE_PER_LAYER);
    memset(&seen, 0, sizeof seen);
    config.page_bytes = PAGE_BYTES_DEFAULT;
    config.device.memory_bytes = 2 * LAYERS * PAGES * PAGE_BYTES_DEFAULT;
    config.device.no_huge = no_huge;
    return suite_make(&config);
}

/* Pages come, hold what is written, go and come again. */
static void expect_working(struct page_tensors *t)
{
    const uint32_t ids[] = {1, 2, 7};
    for (uint64_t round = 1; round < 3; round++) {
        suite_map(t, ids, 2);
        suite_fill(t, 1, round);
        suite_fill(t, 2, 7 + round);
        suite_expect(t, 1, round);
        suite_expect(t, 2, 7 + round);
        suite_expect_zero(t, 7);
        suite_unmap(t, ids, 2);
        suite_expect_zero(t, 1);
        page_tensors_commit(t);
        (void)page_tensors_trim(t); /* the second round's memory is new */
    }
    page_tensors_destroy(t);
}

static void a_pool_that_covers_all_is_used(void **state)
{
    (void)state;
    machine.pool = POOL_COVERS;
    machine.setting = "[always] within_size advise never deny force\n";
    struct page_tensors *t = make(false);
    assert_string_equal(page_tensors_facts(t)->device, "main memory, huge pages");
    expect_working(t);
    assert_int_equal(seen.huge_files, 1);
    assert_int_equal(seen.populated, 0);
}

static void without_a_pool_pages_are_ordinary(void **state)
{
    (void)state;
    machine.pool = POOL_UNKNOWN;
    machine.setting = "always within_size advise [never] deny force\n";
    struct page_tensors *t = make(false);
    assert_string_equal(page_tensors_facts(t)->device, "main memory");
    expect_working(t);
    assert_int_equal(seen.huge_files, 1);
    assert_int_equal(seen.settings_read, 1);
    assert_int_equal(seen.populated, 0);
}

/* 1 TiB is asked of the machine's real pool. */
static void a_pool_that_is_too_small_is_left_alone(void **state)
{
    (void)state;
    struct page_backend_config config = {.memory_bytes = UINT64_C(1) << 40};
    struct page_backend *b;
    struct page_error why;
    page_handle handle;
    uint64_t piece = UINT64_C(1) << 30;
    machine.pool = POOL_OF_THE_MACHINE;
    machine.setting = NULL;
    memset(&seen, 0, sizeof seen);
    assert_int_equal(page_backend_host.open(&config, &b, &why), 0);
    if (page_backend_host.reserve(b, 4 * piece, piece, &why))
        fail_msg("%s", why.text);
    assert_int_equal(seen.huge_files, 1);
    assert_string_equal(b->facts.device, "main memory");
    page_backend_host.close(b);

    config.memory_bytes = 2 * PAGE_BYTES_DEFAULT;
    assert_int_equal(page_backend_host.open(&config, &b, &why), 0);
    assert_int_equal(page_backend_host.reserve(b, 2 * PAGE_BYTES_DEFAULT, PAGE_BYTES_DEFAULT, &why),
                     0);
    assert_int_equal(page_backend_host.create(b, &handle, &why), 0);
    page_backend_host.release(b, handle);
    page_backend_host.close(b);
}

static void the_kernel_is_asked_for_huge_pages_where_it_may_use_them(void **state)
{
    (void)state;
    machine.pool = POOL_UNKNOWN;
    machine.setting = "always within_size [advise] never deny force\n";
    struct page_tensors *t = make(false);
    assert_int_equal(seen.advice, MADV_HUGEPAGE);
    expect_working(t);
    assert_int_equal(seen.populated, 2 * 2 * 2 * LAYERS); /* rounds, ids, pieces of each */
}

static void a_kernel_that_cannot_populate_gives_memory_all_the_same(void **state)
{
    (void)state;
    machine.pool = POOL_UNKNOWN;
    machine.setting = "always within_size [advise] never deny force\n";
    machine.old_kernel = true;
    expect_working(make(false));
    machine.old_kernel = false;
    assert_int_equal(seen.populated, 0);
}

static void huge_pages_can_be_turned_off(void **state)
{
    (void)state;
    machine.pool = POOL_COVERS;
    machine.setting = "[always] within_size advise never deny force\n";
    struct page_tensors *t = make(true);
    assert_string_equal(page_tensors_facts(t)->device, "main memory");
    assert_int_equal(seen.huge_files, 0);
    assert_int_equal(seen.advice, MADV_NOHUGEPAGE);
    expect_working(t);
}

/* A huge page would hold several of them, and could not be given back before the last one is. */
static void smaller_pages_are_never_huge(void **state)
{
    (void)state;
    struct page_tensors_config config = suite_config(PAGE_PER_LAYER);
    machine.pool = POOL_COVERS;
    machine.setting = "[always] within_size advise never deny force\n";
    memset(&seen, 0, sizeof seen);
    expect_working(suite_make(&config));
    assert_int_equal(seen.huge_files + seen.settings_read + seen.populated, 0);
}

int main(int argc, char **argv)
{
    char *args[] = {argv[0], (char *)"host", NULL};
    int rc = suite_begin(2, args);
    (void)argc;
    if (rc)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_that_covers_all_is_used),
        cmocka_unit_test(without_a_pool_pages_are_ordinary),
        cmocka_unit_test(a_pool_that_is_too_small_is_left_alone),
        cmocka_unit_test(the_kernel_is_asked_for_huge_pages_where_it_may_use_them),
        cmocka_unit_test(a_kernel_that_cannot_populate_gives_memory_all_the_same),
        cmocka_unit_test(huge_pages_can_be_turned_off),
        cmocka_unit_test(smaller_pages_are_never_huge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
