/* What a process may still do in the sandbox.  Each case is a process of its own. */
#include "serve/session/sandbox.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char allowed[] = "/tmp/hawser-sandbox-XXXXXX", other[] = "/var/lib/hawser-sandbox-XXXXXX",
            shared[] = "/dev/shm/hawser-sandbox-XXXXXX", cache[] = "/var/lib/hawser-cache-XXXXXX";
static pid_t outside;        /* a process that is not in the sandbox */
static char other_file[128]; /* that is there */
static int terminal;
static int unconnected, daemon_socket;
static int connected; /* over TCP */
static struct sockaddr_un abstract = {.sun_family = AF_UNIX},
                          abstract_log = {.sun_family = AF_UNIX}; /* takes datagrams */

/* What `act` gives in a sandboxed process: 0 or its errno. */
static int in_sandbox_of(enum sandbox_mode mode, bool network, int (*act)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        sandbox_enter(mode, network);
        _exit(act() == 0 ? 0 : errno);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int in_sandbox(enum sandbox_mode mode, int (*act)(void))
{
    return in_sandbox_of(mode, false, act);
}

static int execute(void)
{
    return execl("/bin/true", "true", (char *)NULL);
}

static int leave_namespace(void)
{
    return unshare(CLONE_NEWUSER);
}

static int attach(void)
{
    return ptrace(PTRACE_SEIZE, outside, NULL, NULL) ? -1 : 0;
}

static int make_file_in(const char *folder)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/file", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? -1 : close(fd);
}

static int write_allowed(void)
{
    return make_file_in(allowed);
}

static int write_other(void)
{
    return make_file_in(other);
}

static int write_memory(void)
{
    return make_file_in(shared);
}

static int read_outside(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)outside);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -1 : close(fd);
}

static int signal_outside(void)
{
    return kill(outside, 0);
}

static int signal_the_group(void)
{
    return kill(0, 0);
}

static int limit_outside(void)
{
    return prlimit(outside, RLIMIT_CORE, NULL, &(struct rlimit){0});
}

static int slow_outside(void)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    return sched_setaffinity(outside, sizeof(cpus), &cpus);
}

static int slow_outside_otherwise(void)
{
    return setpriority(PRIO_PROCESS, (id_t)outside, 1);
}

/* One without processes: where this is not refused, it changes nothing. */
static int slow_a_user(void)
{
    return setpriority(PRIO_USER, (id_t)-2, 1);
}

static int write_to(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? -1 : close(fd);
}

/* When memory runs out, it would end first. */
static int offer_outside(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)outside);
    return write_to(path);
}

/* Or it would no longer end before the server; a thread's is the process's. */
static int keep_its_memory(void)
{
    return write_to("/proc/self/oom_score_adj");
}

static int keep_its_memory_by_a_thread(void)
{
    return write_to("/proc/thread-self/oom_score_adj");
}

/* Also of the server, which may be in the same group. */
static int slow_the_group(void)
{
    return write_to("/proc/self/autogroup");
}

static int change_the_machine(void)
{
    return write_to("/proc/sys/kernel/core_pattern");
}

static int cut_other(void)
{
    return truncate(other_file, 0);
}

static int cut_other_by_reading(void)
{
    int fd = open(other_file, O_RDONLY | O_TRUNC | O_CLOEXEC);
    return fd < 0 ? -1 : close(fd);
}

static int type_into_a_terminal(void)
{
    return ioctl(terminal, TIOCSTI, "x");
}

static int reach_a_daemon(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? -1 : close(fd);
}

static int reach_an_abstract_daemon(void)
{
    return connect(unconnected, (const struct sockaddr *)&abstract, sizeof(abstract));
}

/* A connection that it was given leaves its peer, and could go to any other. */
static int reuse_a_connection(void)
{
    return connect(connected, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
}

/* The system's log, say, or the service manager. */
static int send_to_a_daemon(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends))
        return -1;
    return sendto(ends[0], "x", 1, 0, (const struct sockaddr *)&abstract_log,
                  sizeof(abstract_log)) == 1
               ? 0
               : -1;
}

/* Whoever owns a descriptor is signalled for it. */
static int own_by_outside(void)
{
    return fcntl(connected, F_SETOWN, outside);
}

static int own_by_outside_otherwise(void)
{
    return ioctl(connected, FIOSETOWN, &outside);
}

static int choose_the_signal(void)
{
    return fcntl(connected, F_SETSIG, SIGTERM);
}

static int outlive_the_server(void)
{
    return prctl(PR_SET_PDEATHSIG, 0);
}

/* x86-64's third ABI has the same calls under other numbers; here without an effect. */
static int signal_outside_by_x32(void)
{
    return (int)syscall(SYS_kill | 0x40000000, outside, 0);
}

/* No family has such pairs but the Unix sockets, and perhaps one that this kernel lacks. */
static int make_a_pair_otherwise(void)
{
    int ends[2];
    return socketpair(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
}

static int show_a_file_to_all(void)
{
    return chmod(other_file, 0644);
}

static int open_a_terminal(void)
{
    int fd = open("/dev/ptmx", O_WRONLY | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? -1 : close(fd);
}

static int write_a_cache(void)
{
    return make_file_in(getenv("XDG_CACHE_HOME"));
}

static int write_the_drivers_cache(void)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/mesa_shader_cache_db", getenv("XDG_CACHE_HOME"));
    return make_file_in(path);
}

static int has_rights_over_the_machine(void)
{
    return prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0);
}

static int fork_one(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return pid < 0 || waitpid(pid, NULL, 0) != pid ? -1 : 0;
}

static int reach_the_network(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? -1 : close(fd);
}

static int reach_the_network_otherwise(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? -1 : close(fd);
}

/* Of no use to a driver. */
static int watch_the_machine(void)
{
    return (int)syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0);
}

static void *nothing(void *arg)
{
    return arg;
}

static int usual_work(void)
{
    pthread_t thread;
    int ends[2];
    if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) || close(ends[0]))
        return -1;
    struct rlimit limit;
    if (raise(SIGCONT) || kill(getpid(), SIGCONT) || getrlimit(RLIMIT_NOFILE, &limit))
        return -1;
    if (setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0)) ||
        prctl(PR_SET_NAME, "hawser-thread"))
        return -1;
    void *memory = malloc(1 << 20);
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    free(memory);
    return memory && fd >= 0 && null >= 0 ? 0 : -1;
}

static void what_an_intruder_wants_is_denied(void **state)
{
    (void)state;
    assert_int_equal(in_sandbox(SANDBOX_OFF, execute), 0);
    assert_int_equal(in_sandbox(SANDBOX_DENY, execute), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_DENY, leave_namespace), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_DENY, attach), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_DENY, fork_one), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_DENY, reach_the_network), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_DENY, watch_the_machine), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_OFF, signal_outside), 0);
    assert_int_equal(in_sandbox(SANDBOX_DENY, signal_outside), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_DENY, signal_the_group), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_DENY, limit_outside), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_OFF, slow_outside), 0);
    assert_int_equal(in_sandbox(SANDBOX_DENY, slow_outside), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_OFF, slow_outside_otherwise), 0);
    assert_int_equal(in_sandbox(SANDBOX_DENY, slow_outside_otherwise), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_OFF, slow_a_user), ESRCH);
    assert_int_equal(in_sandbox(SANDBOX_DENY, slow_a_user), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_DENY, reach_a_daemon), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_DENY, type_into_a_terminal), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_WATCH, type_into_a_terminal), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_DENY, usual_work), 0);
}

/* By what it has, without a new socket or a signal. */
static void ways_around_are_closed(void **state)
{
    (void)state;
    assert_int_equal(in_sandbox(SANDBOX_DENY, reuse_a_connection), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_OFF, send_to_a_daemon), 0);
    assert_int_equal(in_sandbox(SANDBOX_DENY, send_to_a_daemon), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_OFF, own_by_outside), 0);
    assert_int_equal(in_sandbox(SANDBOX_DENY, show_a_file_to_all), EPERM);
    static const enum sandbox_mode modes[] = {SANDBOX_DENY, SANDBOX_WATCH};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(in_sandbox(modes[i], own_by_outside), EPERM);
        assert_int_equal(in_sandbox(modes[i], own_by_outside_otherwise), EPERM);
        assert_int_equal(in_sandbox(modes[i], choose_the_signal), EPERM);
        assert_int_equal(in_sandbox(modes[i], outlive_the_server), EPERM);
        assert_int_equal(in_sandbox(modes[i], signal_outside_by_x32), EPERM);
    }
    assert_int_equal(in_sandbox(SANDBOX_OFF, make_a_pair_otherwise), EOPNOTSUPP);
    assert_int_equal(in_sandbox(SANDBOX_DENY, make_a_pair_otherwise), EPERM);
}

static void a_session_over_ucx_reaches_the_network_by_ipv4_alone(void **state)
{
    (void)state;
    assert_int_equal(in_sandbox_of(SANDBOX_DENY, true, reach_the_network), 0);
    assert_int_equal(in_sandbox_of(SANDBOX_DENY, true, reach_the_network_otherwise), EPERM);
    assert_int_equal(in_sandbox_of(SANDBOX_DENY, true, fork_one), EPERM);
    assert_int_equal(in_sandbox_of(SANDBOX_DENY, true, signal_outside), EPERM);
    assert_int_equal(in_sandbox_of(SANDBOX_DENY, true, usual_work), 0);
}

static int named; /* a pipe's end: lines of the log that name a call */

static void note(void *user, const char *line, size_t len)
{
    (void)user;
    if (memmem(line, len, "is not in the sandbox's list", 28))
        assert_int_equal(write(named, "x", 1), 1);
}

static void what_is_only_logged_works(void **state)
{
    (void)state;
    int ends[2];
    char lines[8];
    assert_int_equal(pipe(ends), 0);
    named = ends[1];
    hw_log_set_sink(note, NULL);
    assert_int_equal(in_sandbox(SANDBOX_LOG, usual_work), 0);
    assert_int_equal(in_sandbox(SANDBOX_LOG, execute), 0);
    assert_int_equal(in_sandbox(SANDBOX_LOG, fork_one), 0);
    assert_int_equal(in_sandbox(SANDBOX_LOG, write_other), 0);
    /* Of a driver that nobody has tried, only what an intruder wants is refused. */
    assert_int_equal(in_sandbox(SANDBOX_WATCH, fork_one), 0);
    assert_int_equal(in_sandbox(SANDBOX_WATCH, execute), EPERM);
    hw_log_set_sink(NULL, NULL);
    close(named);
    assert_int_equal(read(ends[0], lines, sizeof(lines)), 3);
    close(ends[0]);
}

/* Of a server that root starts, without a user for sessions. */
static void root_is_nobody_there(void **state)
{
    (void)state;
    if (in_sandbox(SANDBOX_OFF, has_rights_over_the_machine))
        skip(); /* nor here */
    assert_int_equal(in_sandbox(SANDBOX_DENY, has_rights_over_the_machine), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_WATCH, has_rights_over_the_machine), EPERM);
}

static long landlock_version(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

static void what_later_kernels_refuse(void **state)
{
    (void)state;
    if (landlock_version() < 3)
        skip();
    assert_int_equal(in_sandbox(SANDBOX_DENY, cut_other), EACCES);
    assert_int_equal(in_sandbox(SANDBOX_DENY, cut_other_by_reading), EACCES);
    if (landlock_version() < 6)
        return;
    assert_int_equal(in_sandbox(SANDBOX_WATCH, signal_outside), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_DENY, reach_an_abstract_daemon), EPERM);
    assert_int_equal(in_sandbox(SANDBOX_OFF, reach_an_abstract_daemon), 0);
}

static void files_and_other_processes_are_out_of_reach(void **state)
{
    (void)state;
    if (landlock_version() < 1)
        skip(); /* this kernel has no Landlock */
    assert_int_equal(in_sandbox(SANDBOX_DENY, write_allowed), 0);
    assert_int_equal(in_sandbox(SANDBOX_OFF, write_other), 0);
    assert_int_equal(in_sandbox(SANDBOX_DENY, write_other), EACCES);
    assert_int_equal(in_sandbox(SANDBOX_DENY, write_memory), EACCES);
    assert_int_equal(in_sandbox(SANDBOX_WATCH, write_memory), 0);
    assert_int_equal(in_sandbox(SANDBOX_OFF, read_outside), 0);
    assert_true(in_sandbox(SANDBOX_DENY, read_outside) != 0);
    assert_int_equal(in_sandbox(SANDBOX_OFF, offer_outside), 0);
    assert_int_equal(in_sandbox(SANDBOX_DENY, offer_outside), EACCES);
    assert_int_equal(in_sandbox(SANDBOX_WATCH, offer_outside), EACCES);
    assert_int_equal(in_sandbox(SANDBOX_OFF, keep_its_memory_by_a_thread), 0);
    assert_int_equal(in_sandbox(SANDBOX_WATCH, keep_its_memory), EACCES);
    assert_int_equal(in_sandbox(SANDBOX_WATCH, keep_its_memory_by_a_thread), EACCES);
    if (in_sandbox(SANDBOX_OFF, slow_the_group) == 0) /* the kernel has such groups */
        assert_int_equal(in_sandbox(SANDBOX_WATCH, slow_the_group), EACCES);
    assert_int_equal(in_sandbox(SANDBOX_DENY, change_the_machine), EACCES);
    assert_int_equal(in_sandbox(SANDBOX_DENY, open_a_terminal), EACCES);
    assert_int_equal(in_sandbox(SANDBOX_DENY, write_a_cache), EACCES);
    assert_int_equal(in_sandbox(SANDBOX_DENY, write_the_drivers_cache), 0);
    assert_int_equal(in_sandbox(SANDBOX_WATCH, write_a_cache), 0);
}

/* A connection of this process with itself, and a socket that takes datagrams. */
static int open_sockets(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(here);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int log = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(abstract_log.sun_path + 1, sizeof(abstract_log.sun_path) - 1, "hawser-log-%d",
             (int)getpid());
    return bind(log, (const struct sockaddr *)&abstract_log, sizeof(abstract_log)) ||
           bind(listener, (const struct sockaddr *)&here, len) || listen(listener, 1) ||
           getsockname(listener, (struct sockaddr *)&here, &len) ||
           connect(connected, (const struct sockaddr *)&here, len);
}

static int set_up(void **state)
{
    (void)state;
    outside = fork();
    if (outside == 0) {
        pause();
        _exit(0);
    }
    terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    unconnected = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    daemon_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(abstract.sun_path + 1, sizeof(abstract.sun_path) - 1, "hawser-sandbox-%d",
             (int)getpid());
    if (outside < 0 || !mkdtemp(allowed) || !mkdtemp(other) || !mkdtemp(shared) ||
        bind(daemon_socket, (const struct sockaddr *)&abstract, sizeof(abstract)) ||
        listen(daemon_socket, 4) || !mkdtemp(cache) || setenv("XDG_CACHE_HOME", cache, 1) ||
        open_sockets())
        return -1;
    snprintf(other_file, sizeof(other_file), "%s/file", other);
    int fd = open(other_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? -1 : close(fd);
}

static void remove_folder(const char *folder)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/file", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

static int tear_down(void **state)
{
    (void)state;
    kill(outside, SIGKILL);
    waitpid(outside, NULL, 0);
    remove_folder(allowed);
    remove_folder(other);
    remove_folder(shared);
    static const char *const caches[] = {"/mesa_shader_cache", "/mesa_shader_cache_db", ""};
    for (int i = 0; i < 3; i++) {
        char path[64];
        snprintf(path, sizeof(path), "%s%s", cache, caches[i]);
        remove_folder(path);
    }
    return 0;
}

int main(void)
{
    if (access("/var/lib", W_OK) || access("/dev/shm", W_OK))
        return 77; /* a folder is needed that is not a temporary one */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_an_intruder_wants_is_denied),
        cmocka_unit_test(ways_around_are_closed),
        cmocka_unit_test(a_session_over_ucx_reaches_the_network_by_ipv4_alone),
        cmocka_unit_test(what_is_only_logged_works),
        cmocka_unit_test(root_is_nobody_there),
        cmocka_unit_test(what_later_kernels_refuse),
        cmocka_unit_test(files_and_other_processes_are_out_of_reach),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
