/* The private folder: who may be in it, what is removed, and what is refused. */
#include "unit.h"

#include "folder.h"
#include "page/limit.h"
#include "page/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char base[FOLDER_CHARS];

/* Once, instead of the next lock of one who looks whether a group has members: what it answers, or
 * 0 for the lock itself. */
static int (*when_looked_at)(void);

int __real_flock(int fd, int op);
int __wrap_flock(int fd, int op);

int __wrap_flock(int fd, int op)
{
    int (*hook)(void) = when_looked_at;
    if (!hook || op != (LOCK_EX | LOCK_NB))
        return __real_flock(fd, op);
    when_looked_at = NULL;
    errno = hook();
    return errno ? -1 : __real_flock(fd, op);
}

static int make_base(void **state)
{
    (void)state;
    folder_make(base);
    return 0;
}

static int remove_base(void **state)
{
    (void)state;
    folder_remove(base);
    return 0;
}

static void the_last_one_out_removes_the_folder(void **state)
{
    (void)state;
    struct page_runtime a, b;
    struct page_error why;
    struct stat st;
    assert_int_equal(page_runtime_join(&a, base, "g", &why), 0);
    assert_int_equal(stat(a.dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(page_runtime_join(&b, base, "g", &why), 0);
    page_runtime_leave(&a);
    assert_int_equal(folder_entries(base), 1);
    page_runtime_leave(&b);
    assert_int_equal(folder_entries(base), 0);
}

static bool count_group(void *user, const char *group)
{
    assert_string_equal(group, "living");
    ++*(int *)user;
    return true;
}

/* A child that joins, says so, and is killed. */
static void leave_debris(const char *group)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct page_runtime r;
        struct page_error why;
        char path[PAGE_PATH_CHARS];
        if (page_runtime_join(&r, base, group, &why) || page_runtime_lead(&r, "dead one", &why))
            _exit(1);
        page_runtime_socket(&r, 0, path);
        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        page_runtime_limit(&r, path);
        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ready[0]);
    close(ready[1]);
}

static void debris_of_the_killed_is_removed_by_the_next_who_comes(void **state)
{
    (void)state;
    struct page_runtime r;
    struct page_error why;
    int seen = 0;
    leave_debris("dead");
    assert_int_equal(folder_entries(base), 1);
    assert_int_equal(page_runtime_join(&r, base, "living", &why), 0);
    assert_int_equal(folder_entries(base), 1);
    assert_int_equal(page_runtime_each(base, count_group, &seen), 0);
    assert_int_equal(seen, 1);
    page_runtime_leave(&r);
    /* Also its own name again, with the dead scheduler's lock gone. */
    leave_debris("again");
    assert_int_equal(page_runtime_join(&r, base, "again", &why), 0);
    assert_int_equal(page_runtime_lead(&r, "next one", &why), 0);
    page_runtime_leave(&r);
}

/* Whether a process waits for a lock. */
static bool waits_for_a_lock(pid_t pid)
{
    char line[256], wanted[64];
    bool found = false;
    snprintf(wanted, sizeof wanted, " %d ", (int)pid);
    FILE *locks = fopen("/proc/locks", "r");
    assert_non_null(locks);
    while (!found && fgets(line, sizeof line, locks))
        found = strstr(line, "-> ") && strstr(line, wanted);
    fclose(locks);
    return found;
}

/* However long that takes. */
static void who_comes_while_a_group_is_removed_waits_and_makes_it_anew(void **state)
{
    (void)state;
    char dir[PAGE_PATH_CHARS], path[PAGE_PATH_CHARS + 8];
    int status = 0;
    snprintf(dir, sizeof dir, "%s/g", base);
    snprintf(path, sizeof path, "%s/alive", dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct page_runtime r;
        struct page_error why;
        close(fd);
        int rc = page_runtime_join(&r, base, "g", &why);
        if (rc == 0)
            page_runtime_leave(&r);
        _exit(rc != 0);
    }
    pid_t ended = 0;
    while (ended == 0 && !waits_for_a_lock(pid))
        ended = waitpid(pid, &status, WNOHANG);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    close(fd);
    if (ended == 0)
        assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(folder_entries(base), 0);
}

static struct page_runtime newcomer;

/* One has removed the dead group's `alive`, and before the folder goes another joins. */
static int remove_and_join(void)
{
    struct page_error why;
    char path[PAGE_PATH_CHARS];
    snprintf(path, sizeof path, "%s/g/alive", base);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(page_runtime_join(&newcomer, base, "g", &why), 0);
    page_runtime_limit(&newcomer, path);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    return 0;
}

static void who_looks_at_a_removed_group_spares_the_one_made_since(void **state)
{
    (void)state;
    struct page_runtime seen;
    struct page_error why;
    char path[PAGE_PATH_CHARS];
    leave_debris("g");
    when_looked_at = remove_and_join;
    page_runtime_sweep(base);
    assert_null(when_looked_at);
    assert_int_equal(page_runtime_visit(&seen, base, "g", &why), 0);
    page_runtime_limit(&seen, path);
    assert_int_equal(access(path, F_OK), 0);
    page_runtime_leave(&seen);
    page_runtime_leave(&newcomer);
    assert_int_equal(folder_entries(base), 0);
}

static int no_locks(void)
{
    return ENOLCK;
}

static void a_group_stays_where_no_lock_can_be_had(void **state)
{
    (void)state;
    struct page_runtime r, seen;
    struct page_error why;
    assert_int_equal(page_runtime_join(&r, base, "g", &why), 0);
    when_looked_at = no_locks;
    page_runtime_sweep(base);
    assert_null(when_looked_at);
    assert_int_equal(page_runtime_visit(&seen, base, "g", &why), 0);
    page_runtime_leave(&seen);
    page_runtime_leave(&r);
}

static void a_second_scheduler_is_refused_and_told_who_the_first_is(void **state)
{
    (void)state;
    struct page_runtime a, b;
    struct page_error why;
    char wanted[128];
    assert_int_equal(page_runtime_join(&a, base, "g", &why), 0);
    assert_int_equal(page_runtime_join(&b, base, "g", &why), 0);
    assert_int_equal(page_runtime_lead(&a, "engine", &why), 0);
    assert_int_equal(page_runtime_lead(&b, "other", &why), -EBUSY);
    snprintf(wanted, sizeof wanted, "group 'g' has a scheduler already: engine, pid %d",
             (int)getpid());
    assert_string_equal(why.text, wanted);
    page_runtime_leave(&a);
    assert_int_equal(page_runtime_lead(&b, "other", &why), 0);
    page_runtime_leave(&b);
}

static void names_and_paths_that_cannot_work_are_refused(void **state)
{
    (void)state;
    struct page_runtime r;
    struct page_error why;
    char path[128];
    const char *const bad[] = {"",    ".",   "..",       ".hidden",
                               "a/b", "a b", "\xc3\xa4", "a-name-of-thirty-three-characters"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(page_runtime_join(&r, base, bad[i], &why), -EINVAL);

    snprintf(path, sizeof path, "%s/%s", base,
             "a-folder-with-a-name-so-long-that-no-socket-in-a-group-in-it-could-be-bound");
    assert_int_equal(page_runtime_join(&r, path, "group", &why), -ENAMETOOLONG);
    assert_non_null(strstr(why.text, "HAWSER_RUNTIME_DIR"));
    (void)rmdir(path);
    char longer[256];
    memset(longer, 'x', sizeof longer - 1);
    longer[0] = '/';
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(page_runtime_join(&r, longer, "group", &why), -ENAMETOOLONG);
}

static void a_folder_that_others_may_enter_is_refused(void **state)
{
    (void)state;
    struct page_runtime r;
    struct page_error why;
    char path[64];
    snprintf(path, sizeof path, "%s/open", base);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(page_runtime_join(&r, path, "g", &why), -EPERM);
    assert_non_null(strstr(why.text, "0700"));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_int_equal(page_runtime_join(&r, path, "g", &why), -EPERM);
    assert_int_equal(unlink(path), 0);
}

static void a_visitor_finds_only_what_lives(void **state)
{
    (void)state;
    struct page_runtime a, seen;
    struct page_error why;
    assert_int_equal(page_runtime_visit(&seen, base, "g", &why), -ENOENT);
    assert_int_equal(page_runtime_join(&a, base, "g", &why), 0);
    assert_int_equal(page_runtime_visit(&seen, base, "g", &why), 0);
    assert_string_equal(seen.dir, a.dir);
    page_runtime_leave(&seen);
    page_runtime_leave(&a);
    assert_int_equal(folder_entries(base), 0);
}

/* Of a group that is removed meanwhile, a limit that is set would be left to the next of its name.
 */
static void a_group_stays_while_its_limit_is_set(void **state)
{
    (void)state;
    struct page_runtime member, visitor;
    struct page_limit *limit;
    struct page_error why;
    char path[PAGE_PATH_CHARS];
    assert_int_equal(page_runtime_join(&member, base, "g", &why), 0);
    assert_int_equal(page_runtime_visit(&visitor, base, "g", &why), 0);
    page_runtime_leave(&member);
    page_runtime_limit(&visitor, path);
    assert_int_equal(page_limit_open(path, &limit, &why), 0);
    page_limit_set(limit, 1 << 20);
    page_limit_close(limit);
    page_runtime_leave(&visitor);
    assert_int_equal(folder_entries(base), 0);
    assert_int_equal(page_runtime_join(&member, base, "g", &why), 0);
    assert_int_equal(page_limit_open(path, &limit, &why), 0);
    assert_int_equal(page_limit_get(limit), 0);
    page_limit_close(limit);
    page_runtime_leave(&member);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_one_out_removes_the_folder),
        cmocka_unit_test(debris_of_the_killed_is_removed_by_the_next_who_comes),
        cmocka_unit_test(who_comes_while_a_group_is_removed_waits_and_makes_it_anew),
        cmocka_unit_test(who_looks_at_a_removed_group_spares_the_one_made_since),
        cmocka_unit_test(a_group_stays_where_no_lock_can_be_had),
        cmocka_unit_test(a_second_scheduler_is_refused_and_told_who_the_first_is),
        cmocka_unit_test(names_and_paths_that_cannot_work_are_refused),
        cmocka_unit_test(a_folder_that_others_may_enter_is_refused),
        cmocka_unit_test(a_visitor_finds_only_what_lives),
        cmocka_unit_test(a_group_stays_while_its_limit_is_set),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base);
}
