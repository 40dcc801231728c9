#include "unit.h"

#include "base/attr.h"
#include "base/wait.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <unistd.h>

static const uint64_t period_start = 1280 * HW_SEC; /* a multiple of both periods used here */

static struct hw_wait wait_of(uint32_t cores, uint32_t threads)
{
    struct hw_wait w;
    hw_wait_init_cores(&w, HW_SPIN_NS, cores);
    w.threads = threads;
    return w;
}

/* How long a wait in which nothing comes spins, with a look every microsecond. */
static uint64_t spin_in_vain(struct hw_wait *w, uint64_t *now)
{
    uint64_t start = *now;
    while (hw_wait_spin(w, *now))
        *now += HW_US;
    return *now - start;
}

static void nobody_spins_without_a_second_core(void **state)
{
    (void)state;
    struct hw_wait w = wait_of(1, 2);
    uint64_t now = HW_SEC;
    for (int i = 0; i < 100; i++)
        assert_int_equal(spin_in_vain(&w, &now), 0);
}

static void a_spin_lasts_as_long_as_waking_all_threads_takes(void **state)
{
    (void)state;
    struct hw_wait roomy = wait_of(16, 16), crowded = wait_of(16, 40), small = wait_of(4, 5);
    uint64_t now = HW_SEC;
    uint64_t alone = spin_in_vain(&roomy, &now), many = spin_in_vain(&crowded, &now);
    assert_int_equal(alone, HW_SPIN_NS);
    assert_true(many > alone);
    assert_int_equal(spin_in_vain(&small, &now), alone);
    struct hw_wait over = wait_of(4, 17), wide_over = wait_of(16, 65);
    assert_true(hw_wait_overcommitted(&over) && hw_wait_overcommitted(&wide_over));
    assert_false(hw_wait_overcommitted(&crowded));
    assert_int_equal(spin_in_vain(&over, &now), HW_SPIN_BRIEF_NS);
    assert_true(spin_in_vain(&wide_over, &now) > many); /* on many cores it pays */
}

static void a_long_budget_asks_for_four_cores(void **state)
{
    (void)state;
    struct hw_wait few, many;
    uint64_t now = HW_SEC;
    hw_wait_init_cores(&few, 4 * HW_MS, 3);
    hw_wait_init_cores(&many, 4 * HW_MS, 4);
    assert_int_equal(spin_in_vain(&few, &now), HW_SPIN_NS);
    assert_int_equal(spin_in_vain(&many, &now), 4 * HW_MS);
}

static void spins_in_vain_become_rare(void **state)
{
    (void)state;
    struct hw_wait w = wait_of(2, 2);
    uint64_t now = period_start;
    int spins = 0;
    for (int i = 0; i < 100; i++)
        spins += spin_in_vain(&w, &now) > 0;
    assert_in_range(spins, 2, 8);
}

static void spins_that_pay_go_on(void **state)
{
    (void)state;
    struct hw_wait w = wait_of(2, 2);
    uint64_t now = period_start;
    for (int i = 0; i < 1000; i++) {
        assert_true(hw_wait_spin(&w, now++));
        hw_wait_came(&w);
    }
}

/* Else threads that once went to sleep would never find out that they need not. */
static void a_waiter_starts_over_after_a_period(void **state)
{
    (void)state;
    struct hw_wait w = wait_of(2, 2);
    uint64_t now = period_start;
    for (int i = 0; i < 100; i++)
        (void)spin_in_vain(&w, &now);
    assert_int_equal(spin_in_vain(&w, &now), 0);
    now += 20 * HW_MS;
    assert_true(spin_in_vain(&w, &now) > 0);
}

/* A spin of 4 ms every 16 ms would be a quarter of a core. */
static void a_period_grows_with_the_budget(void **state)
{
    (void)state;
    struct hw_wait w;
    hw_wait_init_cores(&w, 4 * HW_MS, 4);
    uint64_t start = period_start, now = start, spent = 0;
    while (now < start + 10 * HW_SEC) {
        spent += spin_in_vain(&w, &now);
        now += 5 * HW_MS;
    }
    assert_in_range(spent, 1, 10 * HW_SEC / 20);
}

static void an_interrupted_spin_counts_twice(void **state)
{
    (void)state;
    struct hw_wait w = wait_of(2, 2), vain = w;
    uint64_t now = period_start;
    assert_true(hw_wait_spin(&w, now));
    assert_false(hw_wait_spin(&w, now + HW_MS));
    (void)spin_in_vain(&vain, &now);
    assert_int_equal(w.penalty, 2 * vain.penalty);
}

static void a_long_spin_tolerates_a_short_pause(void **state)
{
    (void)state;
    struct hw_wait w;
    hw_wait_init_cores(&w, 4 * HW_MS, 4);
    assert_true(hw_wait_spin(&w, period_start));
    assert_true(hw_wait_spin(&w, period_start + HW_MS / 2));
    assert_false(hw_wait_spin(&w, period_start + 3 * HW_MS));
}

static void the_other_budgets_do_as_they_say(void **state)
{
    (void)state;
    struct hw_wait w;
    hw_wait_init(&w, 0);
    assert_false(hw_wait_spin(&w, 1));
    hw_wait_init(&w, HW_NEVER);
    for (uint64_t now = 0; now < HW_SEC; now += 100 * HW_MS)
        assert_true(hw_wait_spin(&w, now));
}

/* ---- with a predicate ---- */

static bool counts_down(void *user)
{
    int *left = user;
    return --*left <= 0;
}

static bool never(void *user)
{
    ++*(int *)user;
    return false;
}

static void until_says_whether_it_came_and_what_is_left(void **state)
{
    (void)state;
    struct hw_wait w;
    hw_wait_init_cores(&w, HW_NEVER, 2);
    int looks = 100;
    uint64_t left = HW_NEVER;
    assert_true(hw_wait_until(&w, counts_down, &looks, &left));
    assert_int_equal(looks, 0);
    assert_true(left == HW_NEVER);

    left = HW_MS; /* also a budget without end stops at the caller's limit */
    assert_false(hw_wait_until(&w, never, &looks, &left));
    assert_true(looks > 0);
    assert_int_equal(left, 0);

    hw_wait_init_cores(&w, 0, 2);
    looks = 0;
    left = HW_SEC;
    assert_false(hw_wait_until(&w, never, &looks, &left));
    assert_int_equal(looks, 0);
    assert_true(left > 0);
}

/* A wait with a short limit says nothing about spinning. */
static void a_limit_below_the_budget_is_no_failure(void **state)
{
    (void)state;
    struct hw_wait w;
    hw_wait_init_cores(&w, HW_SEC, 4); /* no machine is interrupted for a quarter of that */
    int looks = 0;
    for (int i = 0; i < 10; i++) {
        uint64_t left = HW_US;
        assert_false(hw_wait_until(&w, never, &looks, &left));
        assert_int_equal(w.penalty, 0);
        assert_false(w.spinning);
    }
    assert_true(looks >= 10);
}

/* ---- sleeping ---- */

struct exchange {
    _Atomic uint32_t ball; /* even: ours, odd: the other's */
    enum hw_futex kind;
    struct hw_wait wait;
};

enum { ROUNDS = 2000 };

struct awaited {
    struct exchange *exchange;
    uint32_t parity;
};

static bool ball_came(void *user)
{
    struct awaited *a = user;
    return (atomic_load_explicit(&a->exchange->ball, memory_order_acquire) & 1) == a->parity;
}

static void play(struct exchange *e, struct hw_wait *wait, uint32_t parity)
{
    struct awaited a = {e, parity};
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t left = HW_NEVER;
        if (!hw_wait_until(wait, ball_came, &a, &left)) {
            uint32_t ball;
            while (((ball = atomic_load(&e->ball)) & 1) != parity)
                (void)hw_futex_wait(&e->ball, ball, HW_NEVER, e->kind);
        }
        atomic_fetch_add(&e->ball, 1);
        hw_futex_wake(&e->ball, INT_MAX, e->kind);
    }
}

static void *other_main(void *user)
{
    struct exchange *e = user;
    struct hw_wait wait = e->wait;
    play(e, &wait, 1);
    return NULL;
}

static void no_wake_up_is_lost_whatever_the_budget(void **state)
{
    (void)state;
    static const uint64_t budgets[] = {0, HW_SPIN_NS};
    for (size_t k = 0; k < 2; k++) {
        for (uint32_t threads = 0; threads < 4; threads += 3) { /* 3: it yields on two cores */
            struct exchange e = {.kind = k ? HW_FUTEX_SHARED : HW_FUTEX_PRIVATE};
            hw_wait_init_cores(&e.wait, budgets[k], 2);
            e.wait.threads = threads;
            struct hw_wait wait = e.wait;
            pthread_t other;
            assert_int_equal(pthread_create(&other, NULL, other_main, &e), 0);
            play(&e, &wait, 0);
            assert_int_equal(pthread_join(other, NULL), 0);
            assert_int_equal(atomic_load(&e.ball), 2 * ROUNDS);
        }
    }
}

static void sleeps_end_at_their_limit(void **state)
{
    (void)state;
    _Atomic uint32_t word = 7;
    assert_int_equal(hw_futex_wait(&word, 7, HW_MS, HW_FUTEX_PRIVATE), -ETIMEDOUT);
    assert_int_equal(hw_futex_wait(&word, 8, HW_NEVER, HW_FUTEX_SHARED), 0); /* it is not 8 */
    struct epoll_event event;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    assert_true(epoll >= 0);
    assert_int_equal(hw_epoll_wait(epoll, &event, 1, HW_MS), 0);
    close(epoll);
}

/* A thread that was pinned to a core of its own may spin on it. */
static void *pinned_main(void *user)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; core++)
        if (CPU_ISSET(core, &all))
            CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    hw_wait_init(user, HW_SPIN_NS);
    return NULL;
}

static void cores_are_those_of_the_process(void **state)
{
    (void)state;
    struct hw_wait w;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, pinned_main, &w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(w.cores, hw_cores());
}

struct flag {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_set;
};

static void *set_main(void *user)
{
    struct flag *f = user;
    pthread_mutex_lock(&f->lock);
    f->is_set = true;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* Also one whose limit is so far away that the kernel's clock cannot say it. */
static void a_condition_is_waited_for_until_its_limit(void **state)
{
    (void)state;
    const uint64_t limits[] = {HW_NEVER, HW_NEVER - 1, HW_NEVER / 2, hw_after(3600 * HW_SEC)};
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        struct flag f = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
        pthread_t thread;
        pthread_mutex_lock(&f.lock);
        assert_int_equal(pthread_create(&thread, NULL, set_main, &f), 0);
        while (!f.is_set)
            assert_true(hw_cond_wait(&f.changed, &f.lock, limits[i]));
        pthread_mutex_unlock(&f.lock);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    struct flag never = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    uint64_t until = hw_after(HW_MS);
    pthread_mutex_lock(&never.lock);
    while (hw_cond_wait(&never.changed, &never.lock, until))
        ; /* awake for no reason */
    pthread_mutex_unlock(&never.lock);
    assert_int_equal(hw_after(HW_NEVER), HW_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_spins_without_a_second_core),
        cmocka_unit_test(a_spin_lasts_as_long_as_waking_all_threads_takes),
        cmocka_unit_test(a_long_budget_asks_for_four_cores),
        cmocka_unit_test(spins_in_vain_become_rare),
        cmocka_unit_test(spins_that_pay_go_on),
        cmocka_unit_test(a_waiter_starts_over_after_a_period),
        cmocka_unit_test(a_period_grows_with_the_budget),
        cmocka_unit_test(an_interrupted_spin_counts_twice),
        cmocka_unit_test(a_long_spin_tolerates_a_short_pause),
        cmocka_unit_test(the_other_budgets_do_as_they_say),
        cmocka_unit_test(until_says_whether_it_came_and_what_is_left),
        cmocka_unit_test(a_limit_below_the_budget_is_no_failure),
        cmocka_unit_test(no_wake_up_is_lost_whatever_the_budget),
        cmocka_unit_test(sleeps_end_at_their_limit),
        cmocka_unit_test(a_condition_is_waited_for_until_its_limit),
        cmocka_unit_test(cores_are_those_of_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
