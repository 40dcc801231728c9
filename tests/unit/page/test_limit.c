/* The limit that processes share: never passed, changed while they run, freed by the dead. */
#include "unit.h"

#include "folder.h"
#include "page/limit.h"
#include "page/member.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char base[FOLDER_CHARS], path[64];

static int make_base(void **state)
{
    (void)state;
    folder_make(base);
    snprintf(path, sizeof path, "%s/limit", base);
    return 0;
}

static int remove_base(void **state)
{
    (void)state;
    folder_remove(base);
    return 0;
}

static struct page_limit *open_one(uint32_t rank)
{
    struct page_limit *l;
    struct page_error why;
    if (page_limit_open(path, &l, &why))
        fail_msg("%s", why.text);
    assert_int_equal(page_limit_claim(l, rank, &why), 0);
    return l;
}

static void charges_of_all_count_together(void **state)
{
    (void)state;
    struct page_limit *a = open_one(0), *b = open_one(1);
    struct page_limit_user users[PAGE_LIMIT_USERS];
    struct page_error why;
    assert_int_equal(page_limit_charge(a, 1ull << 40, &why), 0); /* no limit yet */
    page_limit_refund(a, 1ull << 40);
    page_limit_set(a, 100);
    assert_int_equal(page_limit_get(b), 100);
    assert_int_equal(page_limit_charge(a, 60, &why), 0);
    assert_int_equal(page_limit_charge(b, 41, &why), -ENOSPC);
    assert_non_null(strstr(why.text, "limit of 100B is reached: 60B in use, 41B asked for"));
    assert_int_equal(page_limit_charge(b, 40, &why), 0);
    page_limit_add_mapped(b, 40);
    page_limit_add_mapped(b, -10);
    assert_int_equal(page_limit_users(a, users), 2);
    assert_int_equal(users[0].charged_bytes, 60);
    assert_int_equal(users[1].charged_bytes, 40);
    assert_int_equal(users[1].mapped_bytes, 30);
    assert_int_equal(users[1].rank, 1);
    assert_int_equal(users[0].pid, getpid());
    page_limit_close(a);
    assert_int_equal(page_limit_charge(b, 60, &why), 0);
    page_limit_close(b);
    unlink(path);
}

static void lowered_under_use_it_refuses_until_enough_is_given_back(void **state)
{
    (void)state;
    struct page_limit *a = open_one(0);
    struct page_error why;
    assert_int_equal(page_limit_charge(a, 80, &why), 0);
    page_limit_set(a, 50);
    assert_int_equal(page_limit_excess(a), 30);
    assert_int_equal(page_limit_charge(a, 1, &why), -ENOSPC);
    page_limit_refund(a, 31);
    assert_int_equal(page_limit_excess(a), 0);
    assert_int_equal(page_limit_charge(a, 1, &why), 0);
    assert_int_equal(page_limit_charge(a, 1, &why), -ENOSPC);
    page_limit_set(a, 0);
    assert_int_equal(page_limit_charge(a, 1, &why), 0);
    page_limit_close(a);
    unlink(path);
}

static void a_minimum_is_set_aside_for_its_model(void **state)
{
    (void)state;
    struct page_limit *a = open_one(0), *b;
    struct page_limit_user users[PAGE_LIMIT_USERS];
    struct page_error why;
    assert_int_equal(page_limit_open_same(a, &b, &why), 0);
    assert_int_equal(page_limit_claim(b, 1, &why), 0);
    page_limit_name(a, "large", 0, 0);
    page_limit_name(b, "small", 30, 2);
    page_limit_set(a, 100);
    assert_int_equal(page_limit_charge(a, 71, &why), -ENOSPC);
    assert_int_equal(page_limit_charge(a, 70, &why), 0);
    assert_int_equal(page_limit_charge(b, 30, &why), 0); /* there, whatever the others did */
    assert_int_equal(page_limit_charge(b, 1, &why), -ENOSPC);
    page_limit_refund(b, 30);
    page_limit_set(a, 25); /* less than the minimum: it counts for nothing */
    page_limit_refund(a, 70);
    assert_int_equal(page_limit_charge(a, 25, &why), 0);
    page_limit_set_own(a, 20);
    assert_int_equal(page_limit_charge(a, 1, &why), -ENOSPC);
    page_limit_note_state(b, &(struct page_limit_state){.used_bytes = 1, .wanted_bytes = 2});
    uint32_t asked = page_limit_ask_trim(a);
    assert_int_equal(page_limit_ask_trim(b), asked + 1);
    assert_int_equal(page_limit_trims(a), asked + 1);
    page_limit_note_trims(b, page_limit_trims(b));
    assert_int_equal(page_limit_users(a, users), 2);
    assert_string_equal(users[1].name, "small");
    assert_int_equal(users[1].line, page_limit_line(b));
    assert_int_equal(users[1].min_bytes, 30);
    assert_int_equal(users[1].priority, 2);
    assert_int_equal(users[1].state.wanted_bytes, 2);
    assert_int_equal(users[1].trims, users[0].trims + 2);
    page_limit_close(b);
    page_limit_close(a);
    unlink(path);
}

/* A child that charges, and lives until it is killed. */
static pid_t charge_in_a_child(uint64_t bytes)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct page_limit *l;
        struct page_error why;
        if (page_limit_open(path, &l, &why) || page_limit_claim(l, 7, &why) ||
            page_limit_charge(l, bytes, &why) || write(ready[1], "r", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

/* Killed without a word; it stays a zombie until it is reaped. */
static pid_t charge_and_die(uint64_t bytes)
{
    pid_t pid = charge_in_a_child(bytes);
    siginfo_t info;
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    return pid;
}

static void what_a_killed_process_charged_is_free_again(void **state)
{
    (void)state;
    struct page_limit *a = open_one(0);
    struct page_limit_user users[PAGE_LIMIT_USERS];
    struct page_error why;
    page_limit_set(a, 100);
    pid_t zombie = charge_and_die(90);
    assert_int_equal(page_limit_charge(a, 100, &why), 0); /* finds the dead by itself */
    assert_int_equal(page_limit_users(a, users), 1);
    assert_int_equal(waitpid(zombie, NULL, 0), zombie);
    page_limit_close(a);
    unlink(path);
}

static void who_has_no_descriptors_left_takes_nobody_for_dead(void **state)
{
    (void)state;
    struct page_limit *a = open_one(0), *b;
    struct page_limit_user users[PAGE_LIMIT_USERS];
    struct page_error why;
    struct rlimit before, none;
    page_limit_set(a, 100);
    pid_t pid = charge_in_a_child(80);
    assert_int_equal(page_limit_open_same(a, &b, &why), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    size_t count = page_limit_users(a, users);
    int charged = page_limit_charge(a, 80, &why), claimed = page_limit_claim(b, 1, &why);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    size_t later = page_limit_users(a, users);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(count, 2);
    assert_int_equal(charged, -ENOSPC);
    assert_int_equal(claimed, -EMFILE);
    assert_int_equal(later, 2);
    assert_int_equal(users[1].charged_bytes, 80);
    page_limit_close(b);
    page_limit_close(a);
    unlink(path);
}

static void a_refund_of_too_much_leaves_nothing_charged(void **state)
{
    (void)state;
    struct page_limit *a = open_one(0);
    struct page_error why;
    page_limit_set(a, 100);
    assert_int_equal(page_limit_charge(a, 10, &why), 0);
    page_limit_refund(a, 80);
    assert_int_equal(page_limit_charged(a), 0);
    assert_int_equal(page_limit_charge(a, 100, &why), 0);
    page_limit_close(a);
    unlink(path);
}

enum { RACERS = 4, ROUNDS = 2000 };

/* Shared by the racers: how many hold a charge now, and whether there ever were too many. */
struct holders {
    _Atomic int now;
    _Atomic bool too_many;
};

/* Charges and refunds; 0 when it got a charge at least once. */
static int race(int go, struct holders *h)
{
    struct page_limit *l;
    struct page_error why;
    char byte;
    int granted = 0;
    if (page_limit_open(path, &l, &why) || page_limit_claim(l, 0, &why) || read(go, &byte, 1) < 0)
        return 1;
    for (int i = 0; i < ROUNDS; i++) {
        if (page_limit_charge(l, 40, &why))
            continue;
        if (atomic_fetch_add(&h->now, 1) + 1 > 2)
            h->too_many = true;
        granted++;
        atomic_fetch_sub(&h->now, 1);
        page_limit_refund(l, 40);
    }
    page_limit_close(l);
    return granted ? 0 : 2;
}

/* Two of 40 fit into 100, three do not. */
static void racing_processes_never_pass_the_limit_together(void **state)
{
    (void)state;
    struct page_limit *l = open_one(0);
    struct holders *h =
        mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int go[2];
    pid_t pids[RACERS];
    assert_true(h != MAP_FAILED);
    page_limit_set(l, 100);
    assert_int_equal(pipe(go), 0);
    for (int i = 0; i < RACERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            close(go[1]);
            _exit(race(go[0], h));
        }
    }
    close(go[0]);
    close(go[1]); /* off they go */
    for (int i = 0; i < RACERS; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_false(h->too_many);
    munmap(h, sizeof *h);
    page_limit_close(l);
    unlink(path);
}

static void open_member(struct page_member *m, uint64_t limit_bytes)
{
    const char *const models[] = {"model"};
    const uint32_t priorities[] = {0};
    struct page_member_config config = {.group = "group",
                                        .models = models,
                                        .count = 1,
                                        .limit_bytes = limit_bytes,
                                        .most_bytes = 4 * limit_bytes,
                                        .priorities = priorities};
    struct page_error why;
    if (page_member_open(m, &config, &why))
        fail_msg("%s", why.text);
}

static void who_joins_a_group_leaves_its_limit_as_it_is(void **state)
{
    (void)state;
    static const uint64_t later[] = {64, 0, 4};
    struct page_member first, second;
    assert_int_equal(setenv("HAWSER_RUNTIME_DIR", base, 1), 0);
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        open_member(&first, 64);
        assert_int_equal(page_limit_get(first.limits[0]), 64);
        page_limit_set(first.limits[0], later[i]);
        open_member(&second, 8);
        assert_int_equal(page_limit_get(first.limits[0]), later[i]);
        assert_int_equal(page_limit_most(second.limits[0]), 256);
        page_member_close(&first);
        page_member_close(&second);
    }
}

static void another_version_s_file_is_refused(void **state)
{
    (void)state;
    struct page_limit *l = NULL;
    struct page_error why;
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "something else", 14), 14);
    close(fd);
    assert_int_equal(page_limit_open(path, &l, &why), -EPROTO);
    assert_null(l);
    unlink(path);
    assert_int_equal(page_limit_open("/nowhere/at/all", &l, &why), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(charges_of_all_count_together),
        cmocka_unit_test(a_minimum_is_set_aside_for_its_model),
        cmocka_unit_test(lowered_under_use_it_refuses_until_enough_is_given_back),
        cmocka_unit_test(what_a_killed_process_charged_is_free_again),
        cmocka_unit_test(who_has_no_descriptors_left_takes_nobody_for_dead),
        cmocka_unit_test(a_refund_of_too_much_leaves_nothing_charged),
        cmocka_unit_test(racing_processes_never_pass_the_limit_together),
        cmocka_unit_test(who_joins_a_group_leaves_its_limit_as_it_is),
        cmocka_unit_test(another_version_s_file_is_refused),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base);
}
