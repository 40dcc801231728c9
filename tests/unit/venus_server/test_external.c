/* Which descriptors of a client reach a driver, and whose they are afterwards. */
#include "base/attr.h"
#include "unit.h"
#include "venus/server/memory/external.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 1 << 16 };

static VkImportMemoryFdInfoKHR import;
static const VkMemoryAllocateInfo allocation = {
    .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &import, .allocationSize = BYTES};

/* The number that a client put into its message is 0, which the test has open. */
static bool give(int fd)
{
    import = (VkImportMemoryFdInfoKHR){.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
                                       .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    return vns_external_give(&allocation, fd);
}

static int memory_of(off_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0 && ftruncate(fd, bytes) == 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void refuse(int fd)
{
    assert_false(give(fd));
    if (fd >= 0)
        assert_int_equal(close(fd), 0); /* still ours */
}

static void test_what_no_driver_exports_is_refused(void **state)
{
    int ends[2];
    (void)state;
    refuse(-1);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    refuse(ends[0]);
    refuse(ends[1]);
    assert_int_equal(pipe(ends), 0);
    refuse(ends[0]);
    refuse(ends[1]);
    refuse(open("/", O_RDONLY | O_DIRECTORY));
    refuse(open("/proc/self/exe", O_RDONLY));
    refuse(memory_of(BYTES, F_SEAL_GROW)); /* could shrink */
    refuse(memory_of(BYTES - 1, F_SEAL_SHRINK));
}

static void test_a_driver_gets_a_copy(void **state)
{
    int fd = memory_of(BYTES, F_SEAL_SHRINK);
    (void)state;
    assert_true(give(fd));
    assert_true(import.fd > 0 && import.fd != fd);
    vns_external_given(&allocation, VK_SUCCESS, fd);
    assert_int_equal(close(import.fd), 0); /* as the driver does in the end */

    assert_true(give(fd)); /* a driver that fails and leaves it */
    vns_external_given(&allocation, VK_ERROR_INVALID_EXTERNAL_HANDLE, fd);
    assert_int_equal(fcntl(import.fd, F_GETFD), -1);

    assert_true(give(fd)); /* and one that closes it, whose number is another's then */
    int others = open("/dev/null", O_RDONLY);
    assert_true(dup2(others, import.fd) == import.fd);
    vns_external_given(&allocation, VK_ERROR_INVALID_EXTERNAL_HANDLE, fd);
    assert_int_equal(close(import.fd), 0);
    close(others);
    close(fd);
}

static void test_other_allocations_need_none(void **state)
{
    (void)state;
    const VkMemoryAllocateInfo plain = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
    assert_true(vns_external_give(&plain, -1));
    int fd = memory_of(BYTES, F_SEAL_SHRINK);
    (void)give(-1);
    import.handleType = 0; /* as if it were not there */
    assert_true(vns_external_give(&allocation, -1));
    import.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT;
    assert_false(vns_external_give(&allocation, fd));
    close(fd);
}

/* The second has a number that the client chose. */
static void test_a_second_import_is_refused(void **state)
{
    VkImportMemoryFdInfoKHR first = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
                                     .pNext = &import,
                                     .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    const VkMemoryAllocateInfo two = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &first, .allocationSize = BYTES};
    (void)state;
    (void)give(-1);
    int fd = memory_of(BYTES, F_SEAL_SHRINK);
    assert_false(vns_external_give(&two, fd));
    first.handleType = 0; /* as if it were not there */
    assert_false(vns_external_give(&two, fd));
    close(fd);
}

/* Semaphores and fences: devices, and what has no type. */
static void test_what_is_no_semaphore_is_refused(void **state)
{
    const int wrong[] = {open("/", O_RDONLY | O_DIRECTORY), open("/proc/self/exe", O_RDONLY),
                         memory_of(BYTES, F_SEAL_SHRINK)};
    int ends[2], copy = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        assert_false(vns_external_give_sync(true, wrong[i], &copy));
        assert_int_equal(close(wrong[i]), 0);
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_false(vns_external_give_sync(false, ends[0], &copy));
    assert_false(vns_external_give_sync(false, -1, &copy));
    assert_false(vns_external_give_sync(true, -1, &copy)); /* it should have come */
    copy = -1;
    assert_false(vns_external_give_sync(false, -1, &copy));
    assert_true(vns_external_give_sync(true, -1, &copy)); /* signalled */
    assert_int_equal(copy, -1);
    close(ends[0]);
    close(ends[1]);
}

static void test_a_driver_gets_a_copy_of_a_semaphore(void **state)
{
    const int right[] = {eventfd(0, EFD_CLOEXEC), open("/dev/null", O_RDWR)};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(right); i++) {
        int copy = -1;
        assert_true(vns_external_give_sync(i == 0, right[i], &copy));
        assert_true(copy >= 0 && copy != right[i]);
        assert_int_equal(close(copy), 0);
        assert_int_equal(close(right[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_no_driver_exports_is_refused),
        cmocka_unit_test(test_a_driver_gets_a_copy),
        cmocka_unit_test(test_other_allocations_need_none),
        cmocka_unit_test(test_a_second_import_is_refused),
        cmocka_unit_test(test_what_is_no_semaphore_is_refused),
        cmocka_unit_test(test_a_driver_gets_a_copy_of_a_semaphore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
