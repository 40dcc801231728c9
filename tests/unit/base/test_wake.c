#include "unit.h"

#include "base/thread.h"
#include "base/wait.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's struct sched_attr as it began. */
struct sched {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static struct sched attr_of_this_thread(void)
{
    struct sched attr = {0};
    assert_int_equal(syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0), 0);
    return attr;
}

static void *tell(void *attr)
{
    *(struct sched *)attr = attr_of_this_thread();
    return NULL;
}

static void *hurry_and_tell(void *attrs)
{
    struct sched *own = attrs, *childs = own + 1;
    pthread_t child;
    hw_wake_soon();
    *own = attr_of_this_thread();
    assert_int_equal(hw_thread_start(&child, tell, childs), 0);
    assert_int_equal(pthread_join(child, NULL), 0);
    return NULL;
}

static void a_thread_that_is_waited_for_has_a_short_slice_and_nothing_else_changes(void **state)
{
    (void)state;
    struct sched attrs[2], before;
    pthread_t thread;
    before = attr_of_this_thread();
    if (before.nice < 19) /* a user may start a server so */
        assert_int_equal(setpriority(PRIO_PROCESS, 0, before.nice + 1), 0);
    before = attr_of_this_thread();
    assert_int_equal(hw_thread_start(&thread, hurry_and_tell, attrs), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (before.runtime == 0 || before.policy != SCHED_OTHER || before.nice < 0)
        print_message("no slices here: an older kernel, or another policy or priority\n");
    else
        assert_int_equal(attrs[0].runtime, 100000);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(attrs[i].policy, before.policy);
        assert_int_equal(attrs[i].nice, before.nice);
    }
    assert_int_equal(attrs[1].runtime, before.runtime);
    assert_int_equal(attrs[1].flags, before.flags);
    assert_int_equal(attr_of_this_thread().runtime, before.runtime);
}

static void a_thread_with_a_policy_of_its_own_keeps_it(void **state)
{
    (void)state;
    struct sched_param param = {0};
    assert_int_equal(sched_setscheduler(0, SCHED_IDLE, &param), 0);
    struct sched before = attr_of_this_thread(), after;
    hw_wake_soon();
    after = attr_of_this_thread();
    assert_memory_equal(&after, &before, sizeof after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_is_waited_for_has_a_short_slice_and_nothing_else_changes),
        cmocka_unit_test(a_thread_with_a_policy_of_its_own_keeps_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
