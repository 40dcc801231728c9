#include "serve/session/sandbox.h"

#include "base/attr.h"
#include "base/log.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* Descriptors of a session: a driver has one for each memory or semaphore that it shares. */
enum { FILES_MAX = 64 << 10 };

enum sandbox_mode sandbox_mode_from_environment(enum sandbox_mode usual)
{
    static const char *const names[] = {"deny", "watch", "log", "off"};
    const char *text = getenv("HAWSER_SANDBOX");
    for (size_t i = 0; text && *text && i < ARRAY_LEN(names); i++) {
        if (strcasecmp(text, names[i]) == 0)
            return (enum sandbox_mode)i;
    }
    if (text && *text)
        hw_warn(HW_CAT_GENERAL, "HAWSER_SANDBOX='%s' is not deny, watch, log or off; using %s",
                text, names[usual]);
    return usual;
}

bool sandbox_knows_driver(const char *driver)
{
    static const char *const tried[] = {"llvmpipe"};
    for (size_t i = 0; i < ARRAY_LEN(tried); i++) {
        if (strncmp(driver, tried[i], strlen(tried[i])) == 0)
            return true;
    }
    return false;
}

/* ---- user and memory ---- */

int sandbox_user_find(const char *name, struct sandbox_user *out, char home[PATH_MAX])
{
    const struct passwd *found = getpwnam(name);
    struct sandbox_user user = {.given = true, .group_count = SANDBOX_GROUPS_MAX};
    if (!found)
        return -ENOENT;
    user.uid = found->pw_uid;
    user.gid = found->pw_gid;
    if (getgrouplist(name, user.gid, user.groups, &user.group_count) < 0)
        return -E2BIG;
    snprintf(home, PATH_MAX, "%s", found->pw_dir);
    *out = user;
    return 0;
}

/* Of those that it has.  0 or a negative errno. */
static int keep_capabilities(uint32_t kept)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct has[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, has))
        return -errno;
    for (size_t i = 0; i < ARRAY_LEN(has); i++) {
        uint32_t left = i == 0 ? has[i].permitted & kept : 0;
        has[i] = (struct __user_cap_data_struct){.effective = left, .permitted = left};
    }
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    return syscall(SYS_capset, &header, has) ? -errno : 0;
}

int sandbox_become(const struct sandbox_user *user)
{
    if (setgroups((size_t)user->group_count, user->groups) ||
        setresgid(user->gid, user->gid, user->gid) || setresuid(user->uid, user->uid, user->uid))
        return -errno;
    return keep_capabilities(0);
}

void sandbox_offer_memory(void)
{
    static const char score[] = "500"; /* as if it had half of the machine's memory more */
    char now[16] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    if (read(fd, now, sizeof(now) - 1) > 0 && atoi(now) < atoi(score))
        (void)!pwrite(fd, score, sizeof(score) - 1, 0);
    close(fd);
}

/* ---- seccomp ---- */

#ifdef ARCHITECTURE
/* What Mesa's and NVIDIA's drivers, the C library and a session itself use, and what is of the same
 * kind.  Where a call has several forms, all: which one is used depends on the library. */
static const uint16_t allowed[] = {
    /* files and descriptors, but not whose they are; ioctl and fcntl are looked at below */
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_preadv,
    SYS_pwritev,
    SYS_preadv2,
    SYS_pwritev2,
    SYS_close,
    SYS_close_range,
    SYS_openat,
    SYS_openat2,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_statfs,
    SYS_fstatfs,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_getcwd,
    SYS_dup,
    SYS_dup3,
    SYS_flock,
    SYS_fsync,
    SYS_fdatasync,
    SYS_ftruncate,
    SYS_truncate,
    SYS_fallocate,
    SYS_fadvise64,
    SYS_readahead,
    SYS_sendfile,
    SYS_copy_file_range,
    SYS_mkdirat,
    SYS_unlinkat,
    SYS_renameat2,
    SYS_linkat,
    SYS_symlinkat,
    SYS_mknodat,
    SYS_umask,
    SYS_pipe2,
    SYS_memfd_create,
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_inotify_rm_watch,
    /* memory */
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_mincore,
    SYS_msync,
    SYS_mlock,
    SYS_mlock2,
    SYS_munlock,
    SYS_mlockall,
    SYS_munlockall,
    SYS_pkey_alloc,
    SYS_pkey_free,
    SYS_pkey_mprotect,
    SYS_get_mempolicy,
    SYS_set_mempolicy,
    SYS_mbind,
    SYS_membarrier,
    /* threads, time, signals; clone, clone3, what sends signals and what schedules are looked at
     * below */
    SYS_exit,
    SYS_exit_group,
    SYS_futex,
    SYS_set_tid_address,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_rseq,
    SYS_gettid,
    SYS_wait4,
    SYS_waitid,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_getattr,
    SYS_sched_get_priority_min,
    SYS_sched_get_priority_max,
    SYS_getpriority,
    SYS_getcpu,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_times,
    SYS_timer_create,
    SYS_timer_settime,
    SYS_timer_gettime,
    SYS_timer_delete,
    SYS_timer_getoverrun,
    SYS_setitimer,
    SYS_getitimer,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigpending,
    SYS_rt_sigreturn,
    SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait,
    SYS_sigaltstack,
    SYS_signalfd4,
    SYS_restart_syscall,
    /* waiting, and sockets that are connected; socket and socketpair are looked at below */
    SYS_ppoll,
    SYS_pselect6,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_eventfd2,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_shutdown,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    /* what it is, and where */
    SYS_getpid,
    SYS_getppid,
    SYS_getpgid,
    SYS_getsid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getresuid,
    SYS_getresgid,
    SYS_getgroups,
    SYS_capget,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrusage,
    SYS_getrlimit,
    SYS_setrlimit,
    SYS_getrandom,
#ifdef SYS_open /* x86-64's older forms */
    SYS_open,
    SYS_creat,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_getdents,
    SYS_dup2,
    SYS_pipe,
    SYS_poll,
    SYS_select,
    SYS_epoll_create,
    SYS_epoll_wait,
    SYS_eventfd,
    SYS_signalfd,
    SYS_inotify_init,
    SYS_mkdir,
    SYS_rmdir,
    SYS_unlink,
    SYS_rename,
    SYS_link,
    SYS_symlink,
    SYS_mknod,
    SYS_time,
    SYS_alarm,
    SYS_pause,
    SYS_getpgrp,
    SYS_arch_prctl,
#endif
#ifdef SYS_renameat
    SYS_renameat,
#endif
#ifdef SYS_futex_waitv
    SYS_futex_waitv,
#endif
};

/* Where sockets may be made.  Elsewhere, too, they would lead to others: a TCP socket can leave its
 * peer and connect to another. */
static const uint16_t connecting[] = {SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4};

/* What an intruder wants, and no driver: refused where others are only logged. */
static const uint16_t denied[] = {
    /* other programs, and what is in other processes */
    SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp,
    SYS_pidfd_getfd,
    /* the machine */
    SYS_reboot, SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module,
    SYS_delete_module, SYS_swapon, SYS_swapoff, SYS_acct, SYS_quotactl, SYS_sethostname,
    SYS_setdomainname, SYS_settimeofday, SYS_clock_settime, SYS_syslog,
    /* file systems and namespaces */
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_open_tree, SYS_move_mount, SYS_fsopen,
    SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, SYS_setns, SYS_unshare,
    SYS_open_by_handle_at,
    /* large surfaces of the kernel */
    SYS_bpf, SYS_perf_event_open, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_io_uring_setup,
    SYS_io_uring_enter, SYS_io_uring_register};

enum {
    CALLS_MAX = 512, /* numbers beyond it are later than these lists */
    X32_CALLS = 1 << 30,
    FILTER_MOST = 128 + 3 * (ARRAY_LEN(allowed) + ARRAY_LEN(denied))
};

static struct sock_filter *put(struct sock_filter *at, uint16_t code, uint32_t k, uint8_t yes,
                               uint8_t no)
{
    *at = (struct sock_filter){code, yes, no, k};
    return at + 1;
}

static struct sock_filter *answer(struct sock_filter *at, uint32_t action)
{
    return put(at, BPF_RET | BPF_K, action, 0, 0);
}

/* A call whose first argument decides: `test` is the jump to the answer that it is allowed. */
static struct sock_filter *look_at(struct sock_filter *at, uint32_t call, uint16_t test,
                                   uint32_t value, uint32_t action)
{
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4);
    at = put(at, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args), 0, 0);
    at = put(at, BPF_JMP | test | BPF_K, value, 0, 1);
    at = answer(at, SECCOMP_RET_ALLOW);
    return answer(at, action);
}

/* A call that is allowed with this first argument; with others, what follows decides. */
static struct sock_filter *allow_first(struct sock_filter *at, uint32_t call, uint32_t value)
{
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4);
    at = put(at, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args), 0, 0);
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    at = answer(at, SECCOMP_RET_ALLOW);
    return put(at, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
}

/* A call whose first argument is a process: allowed for this one. */
static struct sock_filter *look_at_process(struct sock_filter *at, uint32_t call, uint32_t also,
                                           uint32_t action)
{
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 5);
    at = put(at, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args), 0, 0);
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 1, 0);
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, also, 0, 1);
    at = answer(at, SECCOMP_RET_ALLOW);
    return answer(at, action);
}

enum { SECOND_ARGUMENT = offsetof(struct seccomp_data, args) + sizeof(uint64_t) };

/* setpriority: of the thread that calls. */
static struct sock_filter *look_at_priority(struct sock_filter *at, uint32_t action)
{
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, SYS_setpriority, 0, 6);
    at = put(at, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args), 0, 0);
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, PRIO_PROCESS, 0, 3);
    at = put(at, BPF_LD | BPF_W | BPF_ABS, SECOND_ARGUMENT, 0, 0);
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1);
    at = answer(at, SECCOMP_RET_ALLOW);
    return answer(at, action);
}

/* A call that is allowed but for some values of an argument. */
static struct sock_filter *look_for(struct sock_filter *at, uint32_t call, uint32_t argument,
                                    const uint32_t *values, uint8_t count, uint32_t unwanted)
{
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, call, 0, (uint8_t)(count + 3));
    at = put(at, BPF_LD | BPF_W | BPF_ABS, argument, 0, 0);
    for (uint8_t i = 0; i < count; i++)
        at = put(at, BPF_JMP | BPF_JEQ | BPF_K, values[i], (uint8_t)(count - i), 0);
    at = answer(at, SECCOMP_RET_ALLOW);
    return answer(at, unwanted);
}

/* Whoever has the server's terminal could type into it.  Who owns a descriptor is sent a signal
 * when there is something to read, and any that was asked for.  A session ends with its server. */
static struct sock_filter *look_at_requests(struct sock_filter *at, uint32_t unwanted)
{
    static const uint32_t devices[] = {TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP},
                          files[] = {F_SETOWN, F_SETOWN_EX, F_SETSIG},
                          process[] = {PR_SET_PDEATHSIG};
    at = look_for(at, SYS_ioctl, SECOND_ARGUMENT, devices, ARRAY_LEN(devices), unwanted);
    at = look_for(at, SYS_fcntl, SECOND_ARGUMENT, files, ARRAY_LEN(files), unwanted);
    return look_for(at, SYS_prctl, offsetof(struct seccomp_data, args), process, ARRAY_LEN(process),
                    unwanted);
}

/* socketpair: of datagrams either end could be sent to any other socket of this host; TIPC
 * has pairs, too, and reaches other hosts. */
static struct sock_filter *look_at_pairs(struct sock_filter *at, uint32_t action)
{
    enum { TYPE = 0xf }; /* beside it are flags */
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 8);
    at = put(at, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args), 0, 0);
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 5);
    at = put(at, BPF_LD | BPF_W | BPF_ABS, SECOND_ARGUMENT, 0, 0);
    at = put(at, BPF_ALU | BPF_AND | BPF_K, TYPE, 0, 0);
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 1, 0);
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, SOCK_SEQPACKET, 0, 1);
    at = answer(at, SECCOMP_RET_ALLOW);
    return answer(at, action);
}

/* One comparison or two for each run of numbers that follow each other. */
static struct sock_filter *answer_listed(struct sock_filter *at, const uint16_t *list, size_t count,
                                         uint32_t action)
{
    bool is[CALLS_MAX + 1] = {false};
    for (size_t i = 0; i < count; i++)
        is[list[i]] = true;
    for (uint32_t from = 0; from < CALLS_MAX; from++) {
        uint32_t to = from;
        while (is[to])
            to++;
        if (to == from)
            continue;
        at = put(at, BPF_JMP | BPF_JGE | BPF_K, from, 0, 2);
        at = put(at, BPF_JMP | BPF_JGE | BPF_K, to, 1, 0);
        at = answer(at, action);
        from = to;
    }
    return at;
}

/* unwanted: of a call that an intruder wants; unlisted: of one that is in neither list. */
static int load_filter(enum sandbox_mode mode, uint32_t unwanted, uint32_t unlisted, bool network,
                       unsigned flags)
{
    struct sock_filter program[FILTER_MOST], *at = program;
    at = put(at, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    /* Calls of another ABI have other numbers. */
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    at = answer(at, unwanted);
    at = put(at, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    /* x86-64 has x32's calls beside its own, as the same architecture; others have none there. */
    at = put(at, BPF_JMP | BPF_JGE | BPF_K, X32_CALLS, 0, 1);
    at = answer(at, unwanted);
    at = look_at_requests(at, unwanted);
    at = answer_listed(at, allowed, ARRAY_LEN(allowed), SECCOMP_RET_ALLOW);
    at = answer_listed(at, denied, ARRAY_LEN(denied), unwanted);
    /* Its arguments cannot be looked at: the C library then uses clone. */
    at = put(at, BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
    at = answer(at, SECCOMP_RET_ERRNO | ENOSYS);
    at = look_at(at, SYS_clone, BPF_JSET, CLONE_THREAD, unlisted);
    /* No socket: behind one of this host is a session bus, say, which starts programs.  A driver
     * that was not tried may talk to a daemon.  UCX has connections, and asks for the network's
     * devices. */
    if (network)
        at = allow_first(allow_first(at, SYS_socket, AF_INET), SYS_socket, AF_NETLINK);
    if (mode != SANDBOX_DENY)
        at = allow_first(at, SYS_socket, AF_UNIX);
    if (network || mode != SANDBOX_DENY)
        at = answer_listed(at, connecting, ARRAY_LEN(connecting), SECCOMP_RET_ALLOW);
    at = look_at_pairs(at, unlisted);
    /* The server and other sessions may be the same user's: their end is not this one's to choose,
     * nor are their limits and their cores.  Of process 0, signals would go to the group, which is
     * the server's. */
    static const uint32_t signals[] = {SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo,
                                       SYS_rt_tgsigqueueinfo};
    uint32_t self = (uint32_t)getpid();
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        at = look_at_process(at, signals[i], self, unlisted);
    /* Of process 0, these mean the thread that calls.  Other threads of this process cannot be told
     * from other processes. */
    static const uint32_t others[] = {SYS_prlimit64, SYS_sched_setaffinity, SYS_sched_setparam,
                                      SYS_sched_setscheduler, SYS_sched_setattr};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        at = look_at_process(at, others[i], 0, unlisted);
    at = look_at_priority(at, unlisted);
    at = answer(at, unlisted);
    assert((size_t)(at - program) <= ARRAY_LEN(program));
    struct sock_fprog filter = {.len = (unsigned short)(at - program), .filter = program};
    long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
    return rc < 0 ? -errno : (int)rc;
}

/* Each call that is not in the list, once; it goes through. */
static void *log_calls(void *arg)
{
    int listener = (int)(intptr_t)arg;
    static bool said[CALLS_MAX];
    for (;;) {
        struct seccomp_notif call = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) {
            if (errno == EINTR || errno == ENOENT)
                continue;
            return NULL;
        }
        uint32_t number = (uint32_t)call.data.nr;
        if (number >= CALLS_MAX || !said[number])
            hw_warn(
                HW_CAT_VULKAN,
                "system call %u (%#llx) is not in the sandbox's list: HAWSER_SANDBOX=deny would "
                "refuse it",
                number, (unsigned long long)call.data.args[0]);
        if (number < CALLS_MAX)
            said[number] = true;
        struct seccomp_notif_resp answer = {.id = call.id,
                                            .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

static int filter_calls(enum sandbox_mode mode, bool network)
{
    static const uint32_t refuse = SECCOMP_RET_ERRNO | EPERM;
    if (mode == SANDBOX_DENY)
        return load_filter(mode, refuse, refuse, network, 0);
    uint32_t unwanted = mode == SANDBOX_WATCH ? refuse : SECCOMP_RET_USER_NOTIF;
    int listener = load_filter(mode, unwanted, SECCOMP_RET_USER_NOTIF, network,
                               SECCOMP_FILTER_FLAG_NEW_LISTENER);
    pthread_t thread;
    if (listener < 0) /* a kernel before 5.5: it writes to its own log */
        return load_filter(mode, mode == SANDBOX_WATCH ? refuse : SECCOMP_RET_LOG, SECCOMP_RET_LOG,
                           network, 0);
    return -pthread_create(&thread, NULL, log_calls, (void *)(intptr_t)listener);
}
#else
static int filter_calls(enum sandbox_mode mode, bool network)
{
    (void)mode, (void)network;
    return -ENOSYS;
}
#endif

/* ---- Landlock ---- */

/* Later than some kernels' headers; what a kernel does not know must be 0. */
struct landlock_attributes {
    uint64_t files, network, scopes;
};
enum {
    HAS_TRUNCATE = 3, /* versions of Landlock */
    HAS_SCOPES = 6,
    FILE_TRUNCATE = 1 << 14,         /* of files: also for whoever opens one to read */
    SCOPE_ABSTRACT_SOCKETS = 1 << 0, /* of scopes: only of processes that are restricted with it */
    SCOPE_SIGNALS = 1 << 1
};

struct ruleset {
    int fd;
    uint64_t file, folder; /* what may be done to one where writing is allowed */
};

/* What is not there needs no rule. */
static void let_write(const struct ruleset *rules, const char *path)
{
    struct landlock_path_beneath_attr beneath = {.allowed_access = rules->folder};
    struct stat st;
    beneath.parent_fd = path && path[0] == '/' ? open(path, O_PATH | O_CLOEXEC) : -1;
    if (beneath.parent_fd < 0)
        return;
    if (fstat(beneath.parent_fd, &st) == 0 && !S_ISDIR(st.st_mode))
        beneath.allowed_access = rules->file;
    (void)syscall(SYS_landlock_add_rule, rules->fd, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
    close(beneath.parent_fd);
}

/* What the C library and drivers use.  Not terminals, disks, and files in memory of other
 * processes. */
static bool is_for_drivers(const char *device)
{
    static const char *const begin[] = {"null",     "zero", "full",   "random",
                                        "urandom",  "dri",  "nvidia", "udmabuf",
                                        "dma_heap", "kfd",  "mali",   "kgsl"};
    bool is = false;
    for (size_t i = 0; i < ARRAY_LEN(begin) && !is; i++)
        is = strncmp(device, begin[i], strlen(begin[i])) == 0;
    return is;
}

static void let_write_devices(const struct ruleset *rules)
{
    char path[PATH_MAX];
    const struct dirent *entry;
    DIR *devices = opendir("/dev");
    while (devices && (entry = readdir(devices)) != NULL) {
        if (!is_for_drivers(entry->d_name))
            continue;
        snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
        let_write(rules, path);
    }
    if (devices)
        closedir(devices);
}

/* In the user's folder of caches, where other programs have theirs, those of drivers. */
static void let_write_caches(const struct ruleset *rules, enum sandbox_mode mode)
{
    static const char *const made[] = {"", "mesa_shader_cache", "mesa_shader_cache_db"};
    const char *home = getenv("HOME"), *own = getenv("XDG_CACHE_HOME");
    char base[PATH_MAX / 2], path[PATH_MAX];
    if (own && own[0] == '/')
        snprintf(base, sizeof(base), "%s", own);
    else
        snprintf(base, sizeof(base), "%s/.cache", home ? home : "");
    for (size_t i = 0; i < ARRAY_LEN(made); i++) {
        snprintf(path, sizeof(path), "%s/%s", base, made[i]);
        (void)mkdir(path, 0700); /* now or never */
        if (i > 0 || mode != SANDBOX_DENY)
            let_write(rules, path);
    }
    snprintf(path, sizeof(path), "%s/nvidia", base);
    let_write(rules, path);
    snprintf(path, sizeof(path), "%s/.nv", home ? home : "");
    let_write(rules, path);
}

/* Drivers keep compiled shaders in caches; devices are files, too.  Not where sockets of the
 * server's user are: another could be put in their place.  Nor its own entry in /proc: who ends
 * first when memory runs out is there, also below each thread beside its name. */
static int restrict_files(enum sandbox_mode mode)
{
    static const char *const folders[] = {"/tmp", "/var/tmp"};
    static const char *const names[] = {"TMPDIR", "MESA_SHADER_CACHE_DIR",
                                        "__GL_SHADER_DISK_CACHE_PATH"};
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    struct ruleset rules = {.file = LANDLOCK_ACCESS_FS_WRITE_FILE |
                                    (version >= HAS_TRUNCATE ? FILE_TRUNCATE : 0)};
    rules.folder = rules.file | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                   LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
                   LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                   LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                   LANDLOCK_ACCESS_FS_MAKE_SYM;
    struct landlock_attributes attributes = {.files = rules.folder};
    if (version >= HAS_SCOPES)
        attributes.scopes = SCOPE_SIGNALS | (mode == SANDBOX_DENY ? SCOPE_ABSTRACT_SOCKETS : 0);
    rules.fd = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0);
    if (rules.fd < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        let_write(&rules, folders[i]);
    if (mode == SANDBOX_DENY)
        let_write_devices(&rules);
    else /* a driver may need what was not tried */
        let_write(&rules, "/dev");
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        let_write(&rules, getenv(names[i]));
    let_write_caches(&rules, mode);
    int rc = syscall(SYS_landlock_restrict_self, rules.fd, 0) ? -errno : 0;
    close(rules.fd);
    return rc;
}

/* Never raises it. */
static void limit(int what, rlim_t most)
{
    struct rlimit now;
    if (getrlimit(what, &now) || now.rlim_max <= most)
        return;
    now.rlim_max = most;
    now.rlim_cur = now.rlim_cur < most ? now.rlim_cur : most;
    (void)setrlimit(what, &now);
}

void sandbox_enter(enum sandbox_mode mode, bool network)
{
    if (mode == SANDBOX_OFF)
        return;
    limit(RLIMIT_CORE, 0); /* a core would hold the client's bytes */
    limit(RLIMIT_NOFILE, FILES_MAX);
    limit(RLIMIT_MSGQUEUE, 0);
    /* Of root's rights, those over files, which may be a driver's, and over locked memory. */
    if (mode != SANDBOX_LOG &&
        keep_capabilities(CAP_TO_MASK(CAP_DAC_OVERRIDE) | CAP_TO_MASK(CAP_IPC_LOCK)))
        hw_info(HW_CAT_VULKAN, "sessions keep their user's capabilities");
    int rc = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;
    if (rc == 0 && mode != SANDBOX_LOG && restrict_files(mode))
        hw_info(HW_CAT_VULKAN, "this kernel has no Landlock: sessions may write files");
    if (rc == 0)
        rc = filter_calls(mode, network);
    if (rc)
        hw_info(HW_CAT_VULKAN, "this kernel has no seccomp: %s", strerror(-rc));
}
