#include "page/runtime.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILE_CHARS = 20, /* "/worker-63.sock", the longest name in a group */
    JOIN_TRIES = 100 /* each failure means that another process left meanwhile */
};

static int check_private(const char *path, struct page_error *why)
{
    struct stat st;
    if (lstat(path, &st))
        return page_fail(why, -errno, 0, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return page_fail(why, -EPERM, 0,
                         "%s must be a folder of this user with mode 0700; remove it, or set"
                         " HAWSER_RUNTIME_DIR",
                         path);
    return 0;
}

static int make_private(const char *path, struct page_error *why)
{
    if (mkdir(path, 0700) && errno != EEXIST)
        return page_fail(why, -errno, 0, "cannot make %s: %s", path, strerror(errno));
    return check_private(path, why);
}

int page_runtime_base(const char *wanted, char base[PAGE_PATH_CHARS], struct page_error *why)
{
    const char *own = getenv("HAWSER_RUNTIME_DIR"), *user = getenv("XDG_RUNTIME_DIR");
    char path[PAGE_PATH_CHARS];
    int n;
    if (!wanted && own && own[0])
        wanted = own;
    if (wanted)
        n = snprintf(path, sizeof path, "%s", wanted);
    else if (user && user[0])
        n = snprintf(path, sizeof path, "%s/hawser", user);
    else
        n = snprintf(path, sizeof path, "/tmp/hawser-%u", (unsigned)geteuid());
    if (n < 0 || (size_t)n >= sizeof path)
        return page_fail(why, -ENAMETOOLONG, 0,
                         "the runtime folder's path is too long with %d characters, since a"
                         " socket in it has at most %d: set HAWSER_RUNTIME_DIR to a shorter one",
                         n, PAGE_PATH_CHARS - 1);
    int rc = make_private(path, why);
    if (rc == 0)
        memcpy(base, path, sizeof path);
    return rc;
}

static bool name_is_good(const char *group)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t len = strlen(group);
    return len > 0 && len < PAGE_GROUP_CHARS && group[0] != '.' && strspn(group, allowed) == len;
}

/* True for the files that members make; nothing else is ever removed. */
static bool is_ours(const char *name)
{
    return strcmp(name, "alive") == 0 || strcmp(name, "scheduler") == 0 ||
           strcmp(name, "limit") == 0 || strncmp(name, "worker-", 7) == 0;
}

/* With the exclusive lock on `alive` held.  `alive` goes last: while it is there, the group is. */
static void remove_group(int dir_fd, const char *dir)
{
    int copy = dup(dir_fd);
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    if (!list) {
        if (copy >= 0)
            close(copy);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        if (is_ours(entry->d_name) && strcmp(entry->d_name, "alive") != 0)
            (void)unlinkat(dir_fd, entry->d_name, 0);
    }
    closedir(list);
    (void)unlinkat(dir_fd, "alive", 0);
    (void)rmdir(dir);
}

/* Whether an open file is still the one of that name. */
static bool is_named(int fd, int dir_fd, const char *name)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && fstatat(dir_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

/* Whether anybody is in the group; a group without members is removed.  Where no lock can be had
 * nobody knows, and the group stays.  A lock on a file that was removed meanwhile says nothing of
 * those who have made the group anew since. */
static bool has_members(const char *dir)
{
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir_fd < 0)
        return false;
    int alive = openat(dir_fd, "alive", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    bool members = alive >= 0 && flock(alive, LOCK_EX | LOCK_NB);
    if (!members && alive >= 0 && is_named(alive, dir_fd, "alive"))
        remove_group(dir_fd, dir);
    if (alive >= 0)
        close(alive);
    close(dir_fd);
    return members;
}

static bool group_path(char path[PAGE_PATH_CHARS], const char *base, const char *group)
{
    int n = snprintf(path, PAGE_PATH_CHARS, "%s/%s", base, group);
    return n > 0 && n < PAGE_PATH_CHARS - FILE_CHARS;
}

int page_runtime_each(const char *base, bool (*fn)(void *user, const char *group), void *user)
{
    char dir[PAGE_PATH_CHARS];
    DIR *list = opendir(base);
    if (!list)
        return -errno;
    bool go_on = true;
    for (struct dirent *entry; go_on && (entry = readdir(list)) != NULL;) {
        if (name_is_good(entry->d_name) && group_path(dir, base, entry->d_name) && has_members(dir))
            go_on = fn(user, entry->d_name);
    }
    closedir(list);
    return 0;
}

static bool see_next(void *user, const char *group)
{
    (void)user, (void)group;
    return true;
}

void page_runtime_sweep(const char *base)
{
    (void)page_runtime_each(base, see_next, NULL);
}

/* The lock on a file that is still the one in the folder; -EAGAIN when it was removed meanwhile. */
static int lock_alive(const char *dir, int create)
{
    char path[PAGE_PATH_CHARS + FILE_CHARS];
    snprintf(path, sizeof path, "%s/alive", dir);
    int fd = open(path, O_RDWR | create | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno == ENOENT ? -EAGAIN : -errno;
    int rc = 0;
    if (flock(fd, LOCK_SH)) /* waits for one who removes the group */
        rc = errno == EINTR ? -EAGAIN : -errno;
    else if (!is_named(fd, AT_FDCWD, path))
        rc = -EAGAIN;
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

static int enter(struct page_runtime *r, int create, struct page_error *why)
{
    int fd = lock_alive(r->dir, create);
    if (fd == -EAGAIN)
        return fd;
    if (fd < 0)
        return page_fail(why, fd, 0, "cannot lock %s/alive: %s", r->dir, strerror(-fd));
    r->alive_fd = fd;
    return 0;
}

static int join_once(struct page_runtime *r, struct page_error *why)
{
    int rc = make_private(r->dir, why);
    if (rc)
        return rc == -ENOENT ? -EAGAIN : rc;
    return enter(r, O_CREAT, why);
}

static int visit_once(struct page_runtime *r, struct page_error *why)
{
    if (!has_members(r->dir))
        return page_fail(why, -ENOENT, 0, "there is no group '%s' in %s", r->group, r->base);
    return enter(r, 0, why);
}

/* The names and paths of a group, checked. */
static int name_group(struct page_runtime *r, const char *base, const char *group,
                      struct page_error *why)
{
    *r = (struct page_runtime){.alive_fd = -1, .scheduler_fd = -1};
    if (!name_is_good(group))
        return page_fail(
            why, -EINVAL, 0,
            "'%.40s' is not a valid group name: 1 to %d letters, digits, '-', '_', '.'", group,
            PAGE_GROUP_CHARS - 1);
    int rc = page_runtime_base(base, r->base, why);
    if (rc)
        return rc;
    if (!group_path(r->dir, r->base, group))
        return page_fail(why, -ENAMETOOLONG, 0,
                         "%.80s/%s: too long for a socket in it (%d characters in all): set"
                         " HAWSER_RUNTIME_DIR to a shorter path",
                         r->base, group, PAGE_PATH_CHARS - 1);
    memcpy(r->group, group, strlen(group) + 1);
    return 0;
}

typedef int enter_fn(struct page_runtime *r, struct page_error *why);

static int try_to_enter(struct page_runtime *made, enter_fn *once, struct page_runtime *out,
                        struct page_error *why)
{
    int rc = -EAGAIN;
    for (int i = 0; i < JOIN_TRIES && rc == -EAGAIN; i++)
        rc = once(made, why);
    if (rc == -EAGAIN)
        return page_fail(why, -EBUSY, 0, "%s: members come and go too fast", made->dir);
    if (rc == 0)
        *out = *made;
    return rc;
}

int page_runtime_visit(struct page_runtime *r, const char *base, const char *group,
                       struct page_error *why)
{
    struct page_runtime named;
    int rc = name_group(&named, base, group, why);
    return rc ? rc : try_to_enter(&named, visit_once, r, why);
}

int page_runtime_join(struct page_runtime *r, const char *base, const char *group,
                      struct page_error *why)
{
    struct page_runtime made;
    int rc = name_group(&made, base, group, why);
    if (rc)
        return rc;
    page_runtime_sweep(made.base);
    return try_to_enter(&made, join_once, r, why);
}

void page_runtime_leave(struct page_runtime *r)
{
    if (r->scheduler_fd >= 0)
        close(r->scheduler_fd);
    close(r->alive_fd);
    r->alive_fd = r->scheduler_fd = -1;
    (void)has_members(r->dir);
}

int page_runtime_lead(struct page_runtime *r, const char *name, struct page_error *why)
{
    char path[PAGE_PATH_CHARS + FILE_CHARS], other[PAGE_SCHEDULER_CHARS] = "";
    assert(r->alive_fd >= 0 && r->scheduler_fd < 0);
    snprintf(path, sizeof path, "%s/scheduler", r->dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return page_fail(why, -errno, 0, "cannot open %s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        ssize_t n = pread(fd, other, sizeof other - 1, 0);
        other[n > 0 ? n : 0] = '\0';
        close(fd);
        return page_fail(why, -EBUSY, 0, "group '%s' has a scheduler already: %s", r->group,
                         other[0] ? other : "one that has not said its name yet");
    }
    int n = snprintf(other, sizeof other, "%.40s, pid %d", name, (int)getpid());
    if (ftruncate(fd, 0) || pwrite(fd, other, (size_t)n, 0) != n) {
        int rc = -errno;
        close(fd);
        return page_fail(why, rc, 0, "cannot write %s: %s", path, strerror(-rc));
    }
    r->scheduler_fd = fd;
    return 0;
}

void page_runtime_socket(const struct page_runtime *r, uint32_t rank, char path[PAGE_PATH_CHARS])
{
    assert(rank < PAGE_RANKS_MAX);
    snprintf(path, PAGE_PATH_CHARS, "%.87s/worker-%u.sock", r->dir, rank);
}

void page_runtime_limit(const struct page_runtime *r, char path[PAGE_PATH_CHARS])
{
    snprintf(path, PAGE_PATH_CHARS, "%.87s/limit", r->dir);
}
