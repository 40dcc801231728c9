#include "serve/sandbox.h"

#include "base/attr.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

enum sandbox_mode sandbox_mode_from_environment(void)
{
    static const char *const names[] = {"deny", "log", "off"};
    const char *text = getenv("HAWSER_SANDBOX");
    for (size_t i = 0; text && *text && i < ARRAY_LEN(names); i++) {
        if (strcasecmp(text, names[i]) == 0)
            return (enum sandbox_mode)i;
    }
    if (text && *text)
        hw_warn(HW_CAT_GENERAL, "HAWSER_SANDBOX='%s' is not deny, log or off; using deny", text);
    return SANDBOX_DENY;
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

int sandbox_become(const struct sandbox_user *user)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    if (setgroups((size_t)user->group_count, user->groups) ||
        setresgid(user->gid, user->gid, user->gid) || setresuid(user->uid, user->uid, user->uid))
        return -errno;
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    return syscall(SYS_capset, &header, none) ? -errno : 0;
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
static const uint32_t denied[] = {
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
    /* large surfaces of the kernel that no driver uses */
    SYS_bpf, SYS_perf_event_open, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_io_uring_setup,
    SYS_io_uring_enter, SYS_io_uring_register};

static int filter_calls(uint32_t action)
{
    struct sock_filter program[5 + 2 * ARRAY_LEN(denied) + 1], *at = program;
    *at++ =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    /* Calls of another ABI have other numbers. */
    *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 0,
                                         2 + 2 * ARRAY_LEN(denied));
    *at++ =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    /* So have those of x32, from this number on; arm64 has no such numbers. */
    *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    for (size_t i = 0; i < ARRAY_LEN(denied); i++) {
        *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied[i], 0, 1);
        *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {.len = (unsigned short)(at - program), .filter = program};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter)
               ? -errno
               : 0;
}
#else
static int filter_calls(uint32_t action)
{
    (void)action;
    return -ENOSYS;
}
#endif

/* ---- Landlock ---- */

/* Of its first version: what changes files and folders. */
static const uint64_t writes = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                               LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                               LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                               LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                               LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;

/* A folder that is not there needs no rule. */
static void let_write(int rules, const char *path)
{
    struct landlock_path_beneath_attr beneath = {.allowed_access = writes};
    beneath.parent_fd = path && path[0] == '/' ? open(path, O_PATH | O_CLOEXEC | O_DIRECTORY) : -1;
    if (beneath.parent_fd < 0)
        return;
    (void)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
    close(beneath.parent_fd);
}

static void let_write_at_home(int rules, const char *folder)
{
    const char *home = getenv("HOME");
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", home ? home : "", folder);
    let_write(rules, path);
}

/* Drivers keep compiled shaders in caches; devices are files, too. */
static int restrict_files(const char *writable)
{
    static const char *const folders[] = {"/dev", "/tmp", "/var/tmp", "/proc"};
    static const char *const names[] = {"TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
                                        "MESA_SHADER_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH"};
    struct landlock_ruleset_attr attributes = {.handled_access_fs = writes};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0);
    if (rules < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        let_write(rules, folders[i]);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        let_write(rules, getenv(names[i]));
    let_write_at_home(rules, ".cache");
    let_write_at_home(rules, ".nv");
    let_write(rules, writable);
    int rc = syscall(SYS_landlock_restrict_self, rules, 0) ? -errno : 0;
    close(rules);
    return rc;
}

void sandbox_enter(enum sandbox_mode mode, const char *writable)
{
    struct rlimit none = {0};
    if (mode == SANDBOX_OFF)
        return;
    (void)setrlimit(RLIMIT_CORE, &none); /* a core would hold the client's bytes */
    int rc = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;
    if (rc == 0 && mode == SANDBOX_DENY && restrict_files(writable))
        hw_info(HW_CAT_VULKAN, "this kernel has no Landlock: sessions may write files");
    if (rc == 0)
        rc = filter_calls(mode == SANDBOX_DENY ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_LOG);
    if (rc)
        hw_info(HW_CAT_VULKAN, "this kernel has no seccomp: %s", strerror(-rc));
}
