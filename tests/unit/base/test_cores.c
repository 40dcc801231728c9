/* How many cores this process may use, on a machine with more than a cpu_set_t holds. */
#include "unit.h"

#include "base/clock.h"

#include <errno.h>
#include <sched.h>

enum { MACHINE = 2048, ALLOWED = 1500 };

/* As the kernel of a machine with so many cores. */
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid;
    if (size < MACHINE / 8) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO_S(size, set);
    for (size_t i = 0; i < ALLOWED; i++)
        CPU_SET_S(MACHINE - 1 - i, size, set);
    return 0;
}

static void more_than_1024_are_counted(void **state)
{
    (void)state;
    assert_int_equal(hw_cores(), ALLOWED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_than_1024_are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
