/* One batch at all workers, over every strategy: it happens everywhere or nowhere. */
#include "rig.h"

#include "base/clock.h"
#include "page/broadcast/link.h"
#include "page/limit.h"
#include "page/slabs.h"
#include "strategy_backwards.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint32_t ids[] = {5, 6, 9}, more[] = {1, 2};

static const uint64_t hang_ns = 240 * HW_SEC; /* nothing is expected to take so long */
static const uint64_t hasty_ns = 400 * HW_MS; /* a stuck worker is waited for that long at first */

static const struct page_strategy *strategy_of(void **state)
{
    return *state;
}

static void batches_reach_all_and_their_times_add_up(void **state)
{
    struct rig r;
    struct page_verdict v;
    rig_start(&r, strategy_of(state), hang_ns);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(page_group_map(r.group, ids, 3, &v), 0);
        const struct page_times *t = &v.times;
        assert_true(t->driver_ns > 0 && t->worker_ns > 0 && t->transit_ns > 0 && t->wait_ns >= 0);
        double sum = t->driver_ns + t->worker_ns + t->transit_ns + t->wait_ns;
        assert_true(fabs(sum - t->total_ns) < 1);
        rig_expect_mapped(&r, 3, 0);
        rig_unmap(&r, ids, 3);
        rig_expect_mapped(&r, 0, 0);
    }
    rig_stop(&r);
}

static void a_failing_rank_is_named_and_the_others_roll_back(void **state)
{
    struct rig r;
    struct page_verdict v;
    rig_start(&r, strategy_of(state), hang_ns);
    rig_map(&r, more, 2);
    rig_trouble(&r, TROUBLE_DRIVER, 2);
    assert_int_equal(page_group_map(r.group, ids, 3, &v), -EIO);
    assert_int_equal(v.rank, 2);
    assert_int_equal(v.code, PAGE_DRIVER_ERROR);
    assert_int_equal(v.why.driver, 77);
    assert_string_equal(v.why.text, "rank 2: the driver was told to fail");
    rig_expect_mapped(&r, 2, 0);
    assert_int_equal(page_group_unmap(r.group, more, 2, &v), -EIO);
    rig_trouble(&r, TROUBLE_NONE, 0);
    rig_expect_mapped(&r, 2, 0);

    rig_trouble(&r, TROUBLE_MEMORY, 0);
    const uint32_t many[] = {3, 4, 5, 6, 7, 8, 9}; /* more than what is kept from before */
    assert_int_equal(page_group_map(r.group, many, 7, &v), -ENOMEM);
    assert_int_equal(v.rank, 0);
    assert_int_equal(v.code, PAGE_OUT_OF_MEMORY);
    rig_trouble(&r, TROUBLE_NONE, 0);
    rig_expect_mapped(&r, 2, 0);

    rig_map(&r, ids, 3);
    assert_int_equal(page_group_map(r.group, (uint32_t[]){3, 9}, 2, &v), -EEXIST);
    assert_int_equal(v.code, PAGE_MAPPED_TWICE);
    assert_int_equal(v.id, 9);
    assert_string_equal(v.why.text, "rank 0 (and 3 more): page id 9: mapped twice");
    rig_expect_mapped(&r, 5, 0);
    rig_stop(&r);
}

/* In every phase: before, in and after the driver's call, and while it takes a batch back. */
static void a_killed_worker_is_named_and_the_others_are_consistent(void **state)
{
    for (enum trouble trouble = TROUBLE_KILL; trouble <= TROUBLE_KILL_BACK; trouble++) {
        struct rig r;
        struct page_verdict v;
        bool is_back = trouble == TROUBLE_KILL_BACK;
        rig_start(&r, strategy_of(state), hang_ns);
        rig_map(&r, more, 2);
        rig_trouble(&r, trouble, 1);
        assert_int_equal(page_group_map(r.group, ids, 3, &v), is_back ? -EIO : -ECONNRESET);
        assert_int_equal(v.rank, is_back ? 2 : 1);
        assert_string_equal(v.why.text, is_back ? "rank 2: the driver was told to fail"
                                                : "rank 1: the worker died before it answered");
        rig_expect_mapped(&r, 2, 1 << 1);
        assert_int_equal(page_group_unmap(r.group, more, 2, &v), -EHOSTDOWN);
        assert_int_equal(v.rank, 1);
        rig_expect_mapped(&r, 2, 1 << 1);
        rig_stop(&r);
    }
}

/* Goes on until the worker that was stopped has told what it did: the group asks it again before
 * each batch. */
static void map_when_it_is_back(struct rig *r)
{
    struct page_verdict v;
    int rc;
    do
        rc = page_group_map(r->group, ids, 3, &v);
    while (rc == -EHOSTDOWN || rc == -ETIMEDOUT);
    if (rc)
        fail_msg("%s", v.why.text);
}

/* False where the machine stood still for so long that healthy workers missed the limit, too. */
static bool stop_and_continue(const struct page_strategy *strategy, enum trouble trouble,
                              uint64_t limit_ns)
{
    struct rig r;
    struct page_verdict v;
    rig_start(&r, strategy, limit_ns);
    bool others_in_time = page_group_map(r.group, more, 2, &v) == 0;
    if (others_in_time) {
        rig_trouble(&r, trouble, 2);
        uint64_t start = page_host_ns();
        assert_int_equal(page_group_map(r.group, ids, 3, &v), -ETIMEDOUT);
        assert_true(page_host_ns() - start >= limit_ns);
        others_in_time =
            !strcmp(v.why.text, "rank 2: the worker did not answer within the time limit");
    }
    if (others_in_time) {
        assert_int_equal(v.rank, 2);
        rig_expect_mapped(&r, 2, 1 << 2);
        if (trouble == TROUBLE_STOP) { /* how a doubt is told does not depend on the trouble */
            assert_int_equal(page_group_map(r.group, ids, 3, &v), -EHOSTDOWN);
            assert_int_equal(v.rank, 2);
            rig_expect_mapped(&r, 2, 1 << 2);
        }
        assert_int_equal(kill(page_processes_pid(r.processes, 2), SIGCONT), 0);
        map_when_it_is_back(&r);
        rig_expect_mapped(&r, 5, 0);
        rig_unmap(&r, more, 2);
        rig_expect_mapped(&r, 3, 0);
    }
    rig_trouble(&r, TROUBLE_NONE, 0);
    kill(page_processes_pid(r.processes, 2), SIGCONT);
    rig_stop(&r);
    return others_in_time;
}

static void a_stuck_worker_is_named_and_comes_back_consistent(void **state)
{
    for (enum trouble trouble = TROUBLE_STOP; trouble <= TROUBLE_STOP_INSIDE; trouble++) {
        uint64_t limit_ns = hasty_ns;
        while (!stop_and_continue(strategy_of(state), trouble, limit_ns)) {
            assert_true(limit_ns < hang_ns);
            limit_ns *= 8;
        }
    }
}

/* Kills a rank when it has answered, and then lets the one that is awaited go on. */
struct reaper {
    char path[PAGE_PATH_CHARS]; /* of the one to kill */
    pid_t victim, stopped;
    int rc;
};

static void *kill_after_its_answer(void *arg)
{
    struct reaper *k = arg;
    struct page_link *link = NULL;
    struct page_info info = {0};
    struct page_error why;
    siginfo_t seen;
    waitid(P_PID, (id_t)k->stopped, &seen, WSTOPPED | WNOWAIT);
    k->rc = page_link_open(k->path, hang_ns, &link, &why);
    while (k->rc == 0 && info.mapped == 0)
        k->rc = page_link_info(link, page_host_ns() + hang_ns, &info, &why);
    if (k->rc == 0) /* in a later turn: the answer to the batch has been sent */
        k->rc = page_link_info(link, page_host_ns() + hang_ns, &info, &why);
    page_link_close(link);
    kill(k->victim, SIGKILL);
    waitid(P_PID, (id_t)k->victim, &seen, WEXITED | WNOWAIT);
    kill(k->stopped, SIGCONT);
    return NULL;
}

/* False where rank 1 died before its answer had left: a board is answered by another thread. */
static bool answer_and_die(const struct page_strategy *strategy)
{
    struct rig r;
    struct page_verdict v;
    pthread_t thread;
    rig_start(&r, strategy, hang_ns);
    struct reaper reaper = {.victim = page_processes_pid(r.processes, 1),
                            .stopped = page_processes_pid(r.processes, 2)};
    rig_socket(&r, 1, reaper.path);
    rig_trouble(&r, TROUBLE_STOP, 2);
    assert_int_equal(pthread_create(&thread, NULL, kill_after_its_answer, &reaper), 0);
    int rc = page_group_map(r.group, ids, 3, &v);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(reaper.rc, 0);
    if (rc == 0) {
        rc = page_group_map(r.group, more, 2, &v);
        if (rc == 0 || rc == -ETIMEDOUT || v.rank != 1)
            fail_msg("%d: %s", rc, v.why.text);
        rig_expect_mapped(&r, 3, 1 << 1);
        rc = 0;
    }
    rig_stop(&r);
    return rc == 0;
}

static void a_rank_that_dies_while_another_is_awaited_fails_the_next_batch_at_once(void **state)
{
    while (!answer_and_die(strategy_of(state)))
        ;
}

static void a_limit_lowered_under_use_refuses_and_harms_nothing(void **state)
{
    struct rig r;
    struct page_verdict v;
    uint64_t id_bytes = 2 * LAYERS * PAGE_BYTES;
    rig_start(&r, strategy_of(state), hang_ns);
    struct page_limit *limit = rig_limit(&r);
    rig_map(&r, more, 2);
    page_limit_set(limit, RANKS * id_bytes); /* half of what is mapped */
    assert_int_equal(page_group_map(r.group, ids, 1, &v), -ENOSPC);
    assert_int_equal(v.code, PAGE_OUT_OF_MEMORY);
    assert_non_null(strstr(v.why.text, "the shared limit of"));
    rig_expect_mapped(&r, 2, 0);
    rig_unmap(&r, more, 2);
    rig_map(&r, ids, 1); /* what was unmapped made room */
    page_limit_set(limit, 0);
    rig_map(&r, more, 2);
    page_limit_close(limit);
    rig_stop(&r);
}

static void ids_past_the_range_never_leave_the_scheduler(void **state)
{
    struct rig r;
    struct page_verdict v;
    rig_start(&r, strategy_of(state), hang_ns);
    uint32_t before = atomic_load(&r.orders->commands);
    assert_int_equal(page_group_map(r.group, (uint32_t[]){1, PAGES}, 2, &v), -ERANGE);
    assert_int_equal(v.rank, PAGE_NO_RANK);
    assert_int_equal(v.code, PAGE_OUT_OF_RANGE);
    assert_non_null(strstr(v.why.text, "there are 16 pages: 1 MiB / (2 (K and V) x 16KiB x 2"));
    assert_int_equal(page_group_map(r.group, NULL, 0, &v), -EINVAL);
    assert_int_equal(atomic_load(&r.orders->commands), before);
    rig_stop(&r);
}

/* ---- once, over the default strategy ---- */

static void a_second_scheduler_is_refused_by_name(void **state)
{
    (void)state;
    struct rig r;
    struct page_group *second = NULL;
    struct page_error why;
    rig_start(&r, NULL, hang_ns);
    struct page_group_config config = {
        .base = r.base, .group = RIG_GROUP, .scheduler = "second", .ranks = RANKS};
    rig_map(&r, ids, 3);
    assert_int_equal(page_group_open(&config, &second, &why), -EBUSY);
    assert_non_null(strstr(why.text, "group 'rig' has a scheduler already: rig, pid "));
    assert_null(second);
    rig_expect_mapped(&r, 3, 0);
    rig_unmap(&r, ids, 3);
    rig_stop(&r);
}

static void a_new_scheduler_begins_with_nothing_mapped(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r, &page_strategy_epoll, hang_ns);
    rig_map(&r, ids, 3);
    page_group_close(r.group);
    rig_expect_mapped(&r, 3, 0); /* workers go on without one */
    rig_open_group(&r, &page_strategy_shm, hang_ns);
    rig_expect_mapped(&r, 0, 0);
    rig_map(&r, ids, 3);
    rig_stop(&r);
}

static void workers_that_are_not_there_are_named(void **state)
{
    (void)state;
    struct rig r = {.orders = NULL};
    struct page_group *group = NULL;
    struct page_error why;
    rig_start_workers(&r);
    struct page_group_config config = {
        .base = r.base, .group = RIG_GROUP, .scheduler = "test", .ranks = RANKS + 1};
    assert_int_equal(page_group_open(&config, &group, &why), -ENOENT);
    assert_non_null(strstr(why.text, "rank 4: cannot reach the worker"));
    assert_null(group);
    rig_stop(&r);
}

static void stale_sockets_of_killed_workers_are_replaced(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r, NULL, hang_ns);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        kill(page_processes_pid(r.processes, rank), SIGKILL);
        siginfo_t info;
        assert_int_equal(
            waitid(P_PID, (id_t)page_processes_pid(r.processes, rank), &info, WEXITED | WNOWAIT),
            0);
    }
    struct page_processes *dead = r.processes;
    rig_start_workers(&r); /* the group lives: we are in it; so do the dead ones' socket files */
    page_group_close(r.group);
    rig_open_group(&r, NULL, hang_ns);
    rig_map(&r, ids, 3);
    page_processes_stop(dead);
    rig_expect_mapped(&r, 3, 0);
    rig_stop(&r);
}

static void a_strategy_is_added_by_one_file(void **state)
{
    (void)state;
    struct rig r;
    struct page_verdict v;
    struct page_error why;
    rig_start(&r, &page_strategy_backwards, hang_ns);
    rig_map(&r, ids, 3);
    rig_expect_mapped(&r, 3, 0);
    assert_int_equal(page_group_use(r.group, &page_strategy_shm, &page_strategy_backwards, &why),
                     0);
    rig_map(&r, more, 2);
    rig_trouble(&r, TROUBLE_DRIVER, 3);
    assert_int_equal(page_group_unmap(r.group, ids, 3, &v), -EIO);
    assert_int_equal(v.rank, 3);
    rig_trouble(&r, TROUBLE_NONE, 0);
    rig_unmap(&r, ids, 3);
    rig_expect_mapped(&r, 2, 0);
    rig_stop(&r);
}

static int group_map(void *user, const uint32_t *list, size_t count, struct page_error *why)
{
    struct page_verdict v;
    int rc = page_group_map(user, list, count, &v);
    *why = v.why;
    return rc;
}

static int group_unmap(void *user, const uint32_t *list, size_t count, struct page_error *why)
{
    struct page_verdict v;
    int rc = page_group_unmap(user, list, count, &v);
    *why = v.why;
    return rc;
}

static void slabs_come_from_a_group(void **state)
{
    (void)state;
    struct rig r;
    struct page_slabs *slabs;
    struct page_slabs_stats s;
    struct page_error why;
    uint32_t list[6];
    rig_start(&r, NULL, hang_ns);
    struct page_slabs_config config = {.pages = PAGES,
                                       .run = 1,
                                       .map = group_map,
                                       .unmap = group_unmap,
                                       .user = r.group,
                                       .reserve = 4};
    assert_int_equal(page_slabs_create(&config, &slabs, &why), 0);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(page_slabs_take(slabs, list, 6, &why), 0);
        assert_int_equal(page_slabs_give(slabs, list, 6, &why), 0);
    }
    page_slabs_stats(slabs, &s);
    assert_int_equal(s.reserved, 4);
    page_slabs_destroy(slabs);
    rig_expect_mapped(&r, 0, 0);
    rig_stop(&r);
}

static void a_killed_scheduler_leaves_nothing(void **state)
{
    (void)state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rig r = {.orders = NULL};
        rig_start_workers(&r);
        rig_open_group(&r, NULL, hang_ns);
        rig_map(&r, ids, 3);
        if (write(ready[1], r.base, sizeof r.base) != sizeof r.base)
            _exit(1);
        pause();
        _exit(0);
    }
    char theirs[sizeof((struct rig *)0)->base];
    close(ready[1]);
    assert_int_equal(read(ready[0], theirs, sizeof theirs), sizeof theirs);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    /* The workers see it and go; the last one removes the folder. */
    rig_wait_empty(theirs);
    close(ready[0]);
    assert_int_equal(rmdir(theirs), 0);
}

int main(int argc, char **argv)
{
    setenv("VENUS_LOG_LEVEL", "ERROR", 0);
    if (argc > 1) {
        const struct page_strategy *strategy = page_strategy_find(argv[1]);
        if (!strategy)
            return 2;
        void *s = (void *)strategy;
        const struct CMUnitTest each[] = {
            cmocka_unit_test_prestate(batches_reach_all_and_their_times_add_up, s),
            cmocka_unit_test_prestate(a_failing_rank_is_named_and_the_others_roll_back, s),
            cmocka_unit_test_prestate(a_killed_worker_is_named_and_the_others_are_consistent, s),
            cmocka_unit_test_prestate(a_stuck_worker_is_named_and_comes_back_consistent, s),
            cmocka_unit_test_prestate(
                a_rank_that_dies_while_another_is_awaited_fails_the_next_batch_at_once, s),
            cmocka_unit_test_prestate(a_limit_lowered_under_use_refuses_and_harms_nothing, s),
            cmocka_unit_test_prestate(ids_past_the_range_never_leave_the_scheduler, s),
        };
        return cmocka_run_group_tests_name(argv[1], each, NULL, NULL);
    }
    const struct CMUnitTest once[] = {
        cmocka_unit_test(a_second_scheduler_is_refused_by_name),
        cmocka_unit_test(a_new_scheduler_begins_with_nothing_mapped),
        cmocka_unit_test(workers_that_are_not_there_are_named),
        cmocka_unit_test(stale_sockets_of_killed_workers_are_replaced),
        cmocka_unit_test(a_strategy_is_added_by_one_file),
        cmocka_unit_test(slabs_come_from_a_group),
        cmocka_unit_test(a_killed_scheduler_leaves_nothing),
    };
    return cmocka_run_group_tests(once, NULL, NULL);
}
