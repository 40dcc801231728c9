/* Clearing: all bytes are zero afterwards, and pages that were never touched still are not. */
#include "unit.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "venus/memory/track/kernel.h"
#include "venus/server/memory/clear.h"

enum { BYTES = 16 << 20, OFFSET = 72 };

static void expect_zero(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        assert_int_equal(bytes[i], 0);
}

static void add_span(void *user, uintptr_t addr, size_t len)
{
    (void)addr;
    *(size_t *)user += len;
}

static size_t populated(const void *memory)
{
    struct vn_kernel *kernel;
    size_t bytes = 0;
    assert_int_equal(vn_kernel_ref(&kernel), 0);
    assert_int_equal(vn_kernel_populated(kernel, (uintptr_t)memory, BYTES, add_span, &bytes), 0);
    vn_kernel_unref(kernel);
    return bytes;
}

static void untouched_pages_stay_untouched(void **state)
{
    (void)state;
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(madvise(memory, BYTES, MADV_NOHUGEPAGE), 0);
    memset(memory + (BYTES / 2), 0xff, 100);
    size_t before = populated(memory);
    vns_clear(memory + OFFSET, BYTES - 2 * OFFSET);
    if (before < BYTES) /* where there is a pagemap */
        assert_int_equal(populated(memory), before);
    expect_zero(memory + BYTES / 2, 100);
    munmap(memory, BYTES);
}

static void bytes_around_stay(void **state)
{
    static uint8_t memory[1 << 20];
    (void)state;
    memset(memory, 0xee, sizeof(memory));
    vns_clear(memory + OFFSET, sizeof(memory) - 2 * OFFSET);
    expect_zero(memory + OFFSET, sizeof(memory) - 2 * OFFSET);
    vns_clear(memory, 1);
    assert_int_equal(memory[0], 0);
    for (size_t i = 1; i < OFFSET; i++) {
        assert_int_equal(memory[i], 0xee);
        assert_int_equal(memory[sizeof(memory) - 1 - i], 0xee);
    }
}

/* Another mapping wrote it: this one's page table does not know. */
static void a_memfd_is_cleared_and_gives_its_pages_back(void **state)
{
    (void)state;
    int fd = memfd_create("clear", MFD_CLOEXEC);
    uint8_t byte = 0xaa;
    struct stat stat;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    for (off_t at = 0; at < 1 << 20; at += 1000)
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    uint8_t *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    vns_clear(memory + OFFSET, (1 << 20) - 2 * OFFSET);
    assert_int_equal(fstat(fd, &stat), 0);
    assert_true(stat.st_blocks * 512 < 1 << 19);
    assert_int_equal(memory[0], 0xaa);
    expect_zero(memory + OFFSET, (1 << 20) - 2 * OFFSET);
    munmap(memory, 1 << 20);
    close(fd);
}

/* Shared memory without a name is neither: all of it is written. */
static void other_memory_is_cleared_too(void **state)
{
    (void)state;
    uint8_t *memory =
        mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    memset(memory, 0x11, 1 << 20);
    vns_clear(memory, 1 << 20);
    expect_zero(memory, 1 << 20);
    munmap(memory, 1 << 20);
}

/* Two mappings side by side, of which the second knows nothing of pages. */
static void a_range_of_two_kinds_is_cleared(void **state)
{
    (void)state;
    enum { HALF = 1 << 19 };
    uint8_t *memory =
        mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_ptr_not_equal(mmap(memory + HALF, HALF, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                         MAP_FAILED);
    memset(memory, 0x22, 2 * HALF);
    vns_clear(memory, 2 * HALF);
    expect_zero(memory, 2 * HALF);
    munmap(memory, 2 * HALF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(untouched_pages_stay_untouched),
        cmocka_unit_test(bytes_around_stay),
        cmocka_unit_test(a_memfd_is_cleared_and_gives_its_pages_back),
        cmocka_unit_test(other_memory_is_cleared_too),
        cmocka_unit_test(a_range_of_two_kinds_is_cleared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
