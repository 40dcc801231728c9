/* A try in a child; what it says, and how it may end. */
#include "unit.h"

#include "base/clock.h"
#include "base/process/child.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char word[] = "word", said[8];

static ssize_t try(void (*work)(int fd, void *user), uint64_t timeout_ns)
{
    return hw_child_try(work, word, timeout_ns, said, sizeof(said));
}

static void says(int fd, void *user)
{
    dprintf(fd, "%s", (const char *)user);
}

static void says_for_ever(int fd, void *user)
{
    for (;;)
        dprintf(fd, "%s", (const char *)user);
}

static void crashes(int fd, void *user)
{
    says(fd, user);
    raise(SIGKILL);
}

static void hangs(int fd, void *user)
{
    says(fd, user);
    for (;;)
        pause();
}

static void what_it_says_is_read(void **state)
{
    (void)state;
    assert_int_equal(try(says, 600 * HW_SEC), 4);
    assert_memory_equal(said, "word", 4);
}

static void more_than_there_is_room_for_ends_it(void **state)
{
    (void)state;
    assert_int_equal(try(says_for_ever, 600 * HW_SEC), sizeof(said));
    assert_memory_equal(said, "wordword", sizeof(said));
}

static void a_crash_and_a_hang_are_told_apart(void **state)
{
    (void)state;
    assert_int_equal(try(crashes, 600 * HW_SEC), -EFAULT);
    assert_int_equal(try(hangs, HW_MS), -ETIMEDOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_says_is_read),
        cmocka_unit_test(more_than_there_is_room_for_ends_it),
        cmocka_unit_test(a_crash_and_a_hang_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
