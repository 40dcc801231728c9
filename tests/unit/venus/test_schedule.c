/* Time slices: who may submit next, and what each was charged; time is the test's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "venus/server/slice/schedule.h"

enum { MEMBERS = 8, GPU = 3 };
#define SLICE (10 * HW_MS)

static struct vns_slice_board board;
static struct vns_schedule schedule;
static struct vns_slice_member members[MEMBERS];
static struct vns_slice_tenant tenants[MEMBERS];
static unsigned gone[MEMBERS]; /* how often each was told to go on */
static bool submits[MEMBERS];
static uint64_t
    drains[MEMBERS]; /* when what each has under way is done; 0: nothing, or it submits */
static uint64_t now;

static void go(void *user, struct vns_slice_member *member)
{
    assert_ptr_equal(user, &schedule);
    gone[member - members]++;
}

static uint32_t allowed(void)
{
    return atomic_load(&board.allowed[GPU]);
}

static void say_used(unsigned who, uint64_t span, uint64_t busy, uint64_t stretches)
{
    struct vns_slice_message m = {VNS_SLICE_USED, GPU, span, busy, stretches};
    assert_int_equal(vns_schedule_handle(&schedule, &members[who], &m, now), 0);
}

static void say(unsigned who, enum vns_slice_op op)
{
    struct vns_slice_message m = {.op = op, .gpu = GPU};
    assert_int_equal(vns_schedule_handle(&schedule, &members[who], &m, now), 0);
}

/* Time passes, and the arbiter looks as often as it was asked to, but not before a millisecond. */
static void pass(uint64_t ns)
{
    uint64_t end = now + ns;
    while (now < end) {
        uint64_t wait = vns_schedule_look(&schedule, now);
        wait = wait < HW_MS ? HW_MS : wait;
        now = wait < end - now ? now + wait : end;
    }
    (void)vns_schedule_look(&schedule, now);
}

static int begin(void **state)
{
    (void)state;
    vns_schedule_init(&schedule, SLICE, &board, go, &schedule);
    for (unsigned i = 0; i < MEMBERS; i++) {
        tenants[i] = (struct vns_slice_tenant){.weight = 1};
        members[i] = (struct vns_slice_member){.id = i + 1, .tenant = &tenants[i]};
        gone[i] = 0;
        drains[i] = submits[i] = 0;
    }
    atomic_store(&board.allowed[GPU], VNS_SLICE_FREE);
    now = HW_SEC;
    return 0;
}

static void join(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        vns_schedule_join(&schedule, &members[i]);
}

/* Every one keeps the GPU busy, in long stretches. */
static void contend(unsigned count)
{
    join(count);
    for (unsigned i = 0; i < count; i++)
        say_used(i, 20 * HW_MS, 20 * HW_MS, 1);
}

/* All want the GPU all the time; the one that has it submits until it is not allowed to, and its
 * work drains `lag` later.  What each got is in tenants[].used_ns. */
static void run_all(unsigned count, uint64_t ns, uint64_t lag)
{
    for (uint64_t end = now + ns; now < end; pass(HW_MS)) {
        for (unsigned i = 0; i < count; i++) {
            bool holds = allowed() == members[i].id;
            if (!holds && submits[i])
                drains[i] = now + lag;
            submits[i] = holds;
            if (!holds && !members[i].uses[GPU].waiting)
                say(i, VNS_SLICE_WANT);
            if (drains[i] && drains[i] <= now) {
                drains[i] = 0;
                if (allowed() != members[i].id)
                    say(i, VNS_SLICE_DRAINED);
            }
        }
    }
}

static double share_of(unsigned who, unsigned count)
{
    double sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += (double)atomic_load(&tenants[i].used_ns);
    return (double)atomic_load(&tenants[who].used_ns) / sum;
}

static void assert_near(double value, double wanted)
{
    if (value < wanted - 0.05 || value > wanted + 0.05)
        fail_msg("%.3f instead of %.3f", value, wanted);
}

/* ---- free or sliced ---- */

static void test_one_alone_is_free(void **state)
{
    (void)state;
    join(2);
    for (int i = 0; i < 100; i++, pass(20 * HW_MS))
        say_used(0, 20 * HW_MS, 20 * HW_MS, 1);
    assert_int_equal(allowed(), VNS_SLICE_FREE);
    assert_int_equal(atomic_load(&tenants[0].used_ns), 2 * HW_SEC);
    assert_true(vns_schedule_look(&schedule, now) == HW_NEVER);
}

static void test_short_work_is_left_to_the_device(void **state)
{
    (void)state;
    join(4);
    for (unsigned i = 0; i < 4; i++)
        say_used(i, 20 * HW_MS, 19 * HW_MS, 100);
    assert_int_equal(allowed(), VNS_SLICE_FREE);
    for (unsigned i = 0; i < 4; i++)
        say_used(i, 20 * HW_MS, 10 * HW_MS, 1); /* long, but the device rests between */
    assert_int_equal(allowed(), VNS_SLICE_FREE);
}

static void test_two_that_saturate_are_sliced_until_nobody_waits(void **state)
{
    (void)state;
    contend(2);
    assert_int_equal(allowed(), VNS_SLICE_NOBODY);
    say(0, VNS_SLICE_WANT);
    assert_int_equal(allowed(), members[0].id);
    assert_int_equal(gone[0], 1);
    pass(HW_SEC);
    assert_int_equal(allowed(), VNS_SLICE_FREE);
}

static void test_what_was_told_long_ago_does_not_count(void **state)
{
    (void)state;
    join(2);
    say_used(0, 20 * HW_MS, 20 * HW_MS, 1);
    now += HW_SEC;
    say_used(1, 20 * HW_MS, 20 * HW_MS, 1);
    assert_int_equal(allowed(), VNS_SLICE_FREE);
}

/* ---- shares ---- */

static void test_equal_shares(void **state)
{
    (void)state;
    contend(4);
    run_all(4, 4 * HW_SEC, 3 * HW_MS);
    for (unsigned i = 0; i < 4; i++)
        assert_near(share_of(i, 4), 0.25);
}

static void test_shares_by_weight(void **state)
{
    (void)state;
    tenants[0].weight = 3;
    contend(2);
    run_all(2, 4 * HW_SEC, 0);
    assert_near(share_of(0, 2), 0.75);
}

static void test_sessions_of_one_tenant_share_what_it_has(void **state)
{
    (void)state;
    for (unsigned i = 2; i < 5; i++)
        members[i].tenant = &tenants[1];
    contend(5); /* one tenant with one session, one with four */
    run_all(5, 8 * HW_SEC, 0);
    assert_near(share_of(0, 2), 0.5);
    for (unsigned i = 1; i < 5; i++) {
        double own = (double)members[i].uses[GPU].served_ns;
        assert_near(own / (double)atomic_load(&tenants[1].used_ns), 0.25);
    }
}

/* Its last batches take longer than its slice: they are its own time, not its successor's. */
static void test_what_drains_late_is_charged_to_who_submitted_it(void **state)
{
    (void)state;
    contend(2);
    say(0, VNS_SLICE_WANT);
    say(1, VNS_SLICE_WANT);
    pass(2 * SLICE);
    assert_int_equal(allowed(), members[1].id);
    say(0, VNS_SLICE_WANT);
    pass(10 * SLICE); /* its work is still under way */
    assert_int_equal(allowed(), members[1].id);
    say(0, VNS_SLICE_DRAINED);
    assert_int_equal(atomic_load(&tenants[1].used_ns), 20 * HW_MS);
    assert_true(atomic_load(&tenants[0].used_ns) == 20 * HW_MS + 12 * SLICE);
}

/* It asks for little, now and then: it is next as soon as it asks. */
static void test_a_modest_one_is_next_at_once(void **state)
{
    (void)state;
    contend(2);
    say(0, VNS_SLICE_WANT);
    for (int i = 0; i < 10; i++) {
        pass(5 * HW_MS);
        say(1, VNS_SLICE_WANT);
        if (i == 0)
            pass(SLICE); /* it is not behind yet */
        assert_int_equal(allowed(), members[1].id);
        say(0, VNS_SLICE_WANT);
        pass(HW_MS);
        say(0, VNS_SLICE_DRAINED);
        say(1, VNS_SLICE_DRAINED);
        assert_int_equal(allowed(), members[0].id);
    }
}

static void test_nothing_is_saved_up(void **state)
{
    (void)state;
    contend(3);
    run_all(2, 4 * HW_SEC, 0);
    uint64_t before = atomic_load(&tenants[2].used_ns);
    run_all(3, HW_SEC, 0); /* the third comes late, and gets a third */
    double got = (double)(atomic_load(&tenants[2].used_ns) - before) / (double)HW_SEC;
    assert_near(got, 1.0 / 3);
}

static void test_a_holder_that_has_drained_may_go_on(void **state)
{
    (void)state;
    contend(2);
    say(0, VNS_SLICE_WANT);
    say(0, VNS_SLICE_DRAINED);
    uint64_t used = atomic_load(&tenants[0].used_ns);
    pass(HW_MS);
    assert_int_equal(atomic_load(&tenants[0].used_ns), used);
    assert_int_equal(allowed(), members[0].id);
    say(0, VNS_SLICE_BUSY);
    assert_int_equal(gone[0], 1);
    pass(HW_MS);
    assert_int_equal(atomic_load(&tenants[0].used_ns), used + HW_MS);
    say(0, VNS_SLICE_DRAINED);
    say(1, VNS_SLICE_WANT);
    assert_int_equal(allowed(), members[1].id);
}

/* Its successor submits behind it, but for one that has had more than it. */
static void test_a_holder_that_rests_lets_the_next_one_in(void **state)
{
    (void)state;
    contend(2);
    say(0, VNS_SLICE_WANT);
    pass(HW_MS);
    say(1, VNS_SLICE_WANT);
    assert_int_equal(allowed(), members[0].id);
    say(0, VNS_SLICE_RESTS);
    assert_int_equal(allowed(), members[1].id);
    say(1, VNS_SLICE_RESTS);
    say(0, VNS_SLICE_WANT);
    assert_int_equal(allowed(), members[0].id);
    pass(4 * HW_MS); /* half of it is the first one's, which has had a millisecond */
    assert_int_equal(atomic_load(&tenants[0].used_ns), (20 + 3) * HW_MS);
    assert_int_equal(atomic_load(&tenants[1].used_ns), (20 + 2) * HW_MS);
    say(1, VNS_SLICE_DRAINED);
    pass(2 * SLICE); /* all of it */
    say(1, VNS_SLICE_WANT);
    assert_int_equal(allowed(), members[1].id);
    say(0, VNS_SLICE_WANT);
    say(1, VNS_SLICE_RESTS);
    assert_int_equal(allowed(), members[1].id);
    say(0, VNS_SLICE_DRAINED);
    say(1, VNS_SLICE_DRAINED);
    assert_int_equal(allowed(), members[0].id);
}

/* ---- those that do not do what they should ---- */

static void test_a_stopped_one_blocks_nobody(void **state)
{
    (void)state;
    contend(3);
    say(0, VNS_SLICE_WANT); /* and never says anything again */
    say(1, VNS_SLICE_WANT);
    pass(2 * SLICE);
    assert_int_equal(allowed(), members[1].id);
    say(2, VNS_SLICE_WANT);
    pass(HW_SEC);
    assert_int_equal(gone[2], 1);
}

static void test_one_that_leaves_frees_its_slice(void **state)
{
    (void)state;
    contend(3);
    say(0, VNS_SLICE_WANT);
    say(1, VNS_SLICE_WANT);
    vns_schedule_leave(&schedule, &members[0], now);
    assert_int_equal(allowed(), members[1].id);
    say(2, VNS_SLICE_WANT);
    vns_schedule_leave(&schedule, &members[1], now);
    assert_int_equal(allowed(), VNS_SLICE_FREE); /* only one is left */
    assert_int_equal(gone[2], 1);
}

static void test_what_is_no_message_is_refused(void **state)
{
    (void)state;
    join(1);
    struct vns_slice_message op = {.op = VNS_SLICE_OPS}, gpu = {.gpu = VNS_SLICE_GPUS};
    assert_int_equal(vns_schedule_handle(&schedule, &members[0], &op, now), -EPROTO);
    assert_int_equal(vns_schedule_handle(&schedule, &members[0], &gpu, now), -EPROTO);
}

/* One says whatever it likes: two that wait properly are still served, and alike. */
static void test_a_hostile_one_takes_no_more_than_a_share(void **state)
{
    (void)state;
    srand(1);
    contend(3);
    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < 20; k++) {
            struct vns_slice_message m = {.op = (uint32_t)rand() % VNS_SLICE_OPS,
                                          .gpu = GPU,
                                          .span_ns = (uint64_t)rand() << 33,
                                          .busy_ns = (uint64_t)rand() << 33};
            assert_int_equal(vns_schedule_handle(&schedule, &members[2], &m, now), 0);
        }
        say_used(0, 20 * HW_MS, 20 * HW_MS, 1);
        say_used(1, 20 * HW_MS, 20 * HW_MS, 1);
        run_all(2, 100 * HW_MS, 0);
    }
    double first = (double)atomic_load(&tenants[0].used_ns);
    double second = (double)atomic_load(&tenants[1].used_ns);
    assert_near(first / (first + second), 0.5);
    assert_true(first + second > 1.5 * (double)HW_SEC); /* of 4 s: two of three shares, at least */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, begin)
    const struct CMUnitTest tests[] = {
        TEST(test_one_alone_is_free),
        TEST(test_short_work_is_left_to_the_device),
        TEST(test_two_that_saturate_are_sliced_until_nobody_waits),
        TEST(test_what_was_told_long_ago_does_not_count),
        TEST(test_equal_shares),
        TEST(test_shares_by_weight),
        TEST(test_sessions_of_one_tenant_share_what_it_has),
        TEST(test_what_drains_late_is_charged_to_who_submitted_it),
        TEST(test_a_modest_one_is_next_at_once),
        TEST(test_nothing_is_saved_up),
        TEST(test_a_holder_that_has_drained_may_go_on),
        TEST(test_a_holder_that_rests_lets_the_next_one_in),
        TEST(test_a_stopped_one_blocks_nobody),
        TEST(test_one_that_leaves_frees_its_slice),
        TEST(test_what_is_no_message_is_refused),
        TEST(test_a_hostile_one_takes_no_more_than_a_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
