#include "serve/cgroups.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/log.h"

static const char own_name[] = "server"; /* the server's own child */

struct cgroups {
    char path[PATH_MAX]; /* of the delegated group */
    uint64_t memory_bytes;
    bool limits_memory, limits_threads; /* what the kernel has for us */
};

/* 0 or a negative errno. */
static int write_file(const char *path, const char *name, const char *text)
{
    char file[PATH_MAX + 64];
    snprintf(file, sizeof(file), "%s/%s", path, name);
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
    close(fd);
    return rc;
}

static int write_number(const char *path, const char *name, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    return write_file(path, name, text);
}

/* Where version 2 is mounted, alone or beside version 1; NULL: nowhere. */
static const char *find_mount(void)
{
    static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    struct statfs fs;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (statfs(places[i], &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC)
            return places[i];
    }
    return NULL;
}

/* The group of this process. */
static bool find_own(char path[PATH_MAX])
{
    const char *mount = find_mount();
    char line[PATH_MAX];
    FILE *file = mount ? fopen("/proc/self/cgroup", "re") : NULL;
    bool found = false;
    while (file && !found && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        found = strncmp(line, "0::", 3) == 0;
    }
    if (file)
        fclose(file);
    return found && snprintf(path, PATH_MAX, "%s%s", mount, line + 3) < PATH_MAX;
}

/* systemd marks what it delegates.  Root could write others' groups, too. */
static bool is_delegated(const char *path)
{
    char mark = '0';
    return (getxattr(path, "user.delegate", &mark, 1) == 1 ||
            getxattr(path, "trusted.delegate", &mark, 1) == 1) &&
           mark == '1';
}

static int make_child(const struct cgroups *g, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", g->path, name) >= PATH_MAX)
        return -ENAMETOOLONG;
    return mkdir(path, 0755) && errno != EEXIST ? -errno : 0;
}

static int take_over(struct cgroups *g)
{
    char own[PATH_MAX];
    int rc = make_child(g, own_name, own);
    if (rc == 0)
        rc = write_number(own, "cgroup.procs", (uint64_t)getpid());
    if (rc)
        return rc;
    g->limits_memory = write_file(g->path, "cgroup.subtree_control", "+memory") == 0;
    g->limits_threads = write_file(g->path, "cgroup.subtree_control", "+pids") == 0;
    return 0;
}

struct cgroups *cgroups_create(uint64_t memory_bytes)
{
    struct cgroups *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    g->memory_bytes = memory_bytes;
    if (!find_own(g->path) || !is_delegated(g->path)) {
        if (memory_bytes)
            hw_warn(HW_CAT_VULKAN,
                    "--max-host-memory limits nothing: no control group is delegated "
                    "to this server; start it by systemd, with Delegate=yes");
        else
            hw_info(HW_CAT_VULKAN,
                    "sessions have no control groups: none is delegated to this server");
        free(g);
        return NULL;
    }
    int rc = take_over(g);
    if (rc) {
        hw_warn(HW_CAT_VULKAN, "sessions have no control groups: %s: %s", g->path, strerror(-rc));
        free(g);
        return NULL;
    }
    if (!g->limits_memory || !g->limits_threads)
        hw_info(HW_CAT_VULKAN, "control groups of sessions limit no %s: %s has no such controller",
                g->limits_threads  ? "memory"
                : g->limits_memory ? "threads"
                                   : "memory and no threads",
                g->path);
    return g;
}

void cgroups_destroy(struct cgroups *g)
{
    free(g);
}

static void name_of(pid_t pid, char name[32])
{
    snprintf(name, 32, "session-%ld", (long)pid);
}

void cgroups_enter(const struct cgroups *g, pid_t pid)
{
    char name[32], path[PATH_MAX];
    if (!g)
        return;
    name_of(pid, name);
    int rc = make_child(g, name, path);
    if (rc == 0 && g->memory_bytes && g->limits_memory)
        rc = write_number(path, "memory.max", g->memory_bytes);
    if (rc == 0 && g->limits_threads)
        rc = write_number(path, "pids.max", CGROUPS_THREADS_MAX);
    if (rc == 0)
        rc = write_number(path, "cgroup.procs", (uint64_t)pid);
    if (rc)
        hw_warn(HW_CAT_VULKAN, "a session has no control group: %s: %s", path, strerror(-rc));
}

void cgroups_leave(const struct cgroups *g, pid_t pid)
{
    char name[32], path[PATH_MAX];
    if (!g)
        return;
    name_of(pid, name);
    snprintf(path, sizeof(path), "%.4000s/%s", g->path, name);
    (void)rmdir(path); /* one that is left costs a few kilobytes of the kernel's */
}
