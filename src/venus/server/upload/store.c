/* Pieces of uploads in files; see store.h. */
#include "venus/server/upload/store.h"

#include "base/grow.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    HEX_CHARS = 2 * VN_NAME_BYTES,
    OLD_CHARS = 64, /* named by a SHA-256: nobody asks for those, so they go in time */
    PATH_CHARS = PATH_MAX + NAME_MAX + 2, /* a folder and a file in it */
    FREE_SHIFT = 3,                       /* an eighth is freed at once */
};

static const char memory_root[] = "/dev/shm";
static const char memory_prefix[] = "hawser-uploads-";
static const char owner_file[] = "owner"; /* locked by the server for its life */
static const char new_file[] = "new";     /* what is being written */

struct vns_upload_store {
    char dir[PATH_MAX];
    uint64_t max_bytes, bytes;
    bool in_memory;
    int owner;
};

/* ---- files ---- */

static void path_of(const char *dir, const char *file, char path[PATH_CHARS])
{
    snprintf(path, PATH_CHARS, "%s/%s", dir, file);
}

static void path_of_piece(const struct vns_upload_store *s, const uint8_t name[VN_NAME_BYTES],
                          char path[PATH_CHARS])
{
    char hex[HEX_CHARS + 1];
    for (size_t i = 0; i < VN_NAME_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", name[i]);
    path_of(s->dir, hex, path);
}

static bool is_piece(const char *file)
{
    size_t len = strlen(file);
    return (len == HEX_CHARS || len == OLD_CHARS) && strspn(file, "0123456789abcdef") == len;
}

/* Calls one(user, path, name) for each file of the folder.  0 or a negative errno. */
static int for_each(const char *dir, int (*one)(void *user, const char *path, const char *name),
                    void *user)
{
    char path[PATH_CHARS];
    const struct dirent *entry;
    DIR *d = opendir(dir);
    if (!d)
        return -errno;
    int rc = 0;
    while (rc == 0 && (entry = readdir(d)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        path_of(dir, entry->d_name, path);
        rc = one(user, path, entry->d_name);
    }
    closedir(d);
    return rc;
}

int vns_upload_write(int fd, const void *bytes, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = write(fd, (const uint8_t *)bytes + at, len - at);
        if (n < 0 && errno != EINTR)
            return -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* ---- making room ---- */

struct file {
    char name[OLD_CHARS + 1];
    struct timespec used;
    uint64_t bytes;
};

struct listing {
    struct file *files;
    size_t count, cap;
    uint64_t bytes;
};

static int list_one(void *user, const char *path, const char *name)
{
    struct listing *l = user;
    struct stat st;
    if (!is_piece(name) || stat(path, &st))
        return 0;
    if (!hw_grow(&l->files, &l->cap, l->count + 1, sizeof(*l->files)))
        return -ENOMEM;
    struct file *file = &l->files[l->count++];
    memcpy(file->name, name, strlen(name) + 1);
    file->used = st.st_mtim;
    file->bytes = (uint64_t)st.st_size;
    l->bytes += file->bytes;
    return 0;
}

static int oldest_first(const void *a, const void *b)
{
    const struct timespec *x = &((const struct file *)a)->used;
    const struct timespec *y = &((const struct file *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

/* Removes what was used least lately until no more than most is left. */
static int shrink(struct vns_upload_store *s, uint64_t most)
{
    struct listing l = {0};
    char path[PATH_CHARS];
    int rc = for_each(s->dir, list_one, &l);
    if (rc == 0 && l.count)
        qsort(l.files, l.count, sizeof(*l.files), oldest_first);
    for (size_t i = 0; rc == 0 && l.bytes > most && i < l.count; i++) {
        path_of(s->dir, l.files[i].name, path);
        if (unlink(path) == 0 || errno == ENOENT)
            l.bytes -= l.files[i].bytes;
    }
    if (rc == 0)
        s->bytes = l.bytes;
    free(l.files);
    return rc;
}

uint64_t vns_upload_store_bytes(const struct vns_upload_store *s)
{
    return s->bytes;
}

uint64_t vns_upload_store_limit(const struct vns_upload_store *s)
{
    return s->max_bytes;
}

/* Leaves half of what is free to others: memory, where the folder is in memory. */
static int limit_to_room(struct vns_upload_store *s)
{
    struct statvfs fs;
    if (statvfs(s->dir, &fs))
        return -errno;
    uint64_t room = ((uint64_t)fs.f_bavail * fs.f_frsize + s->bytes) / 2;
    if (s->max_bytes > room)
        s->max_bytes = room;
    return shrink(s, s->max_bytes);
}

/* ---- pieces ---- */

int vns_upload_store_open(const struct vns_upload_store *s, const uint8_t name[VN_NAME_BYTES],
                          size_t len)
{
    char path[PATH_CHARS];
    struct stat st;
    path_of_piece(s, name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int rc = fstat(fd, &st) ? -errno : 0;
    if (rc == 0 && (uint64_t)st.st_size != len)
        rc = -ENOENT;
    if (rc) {
        close(fd);
        return rc;
    }
    (void)futimens(fd, NULL); /* a use that is not noted costs a hit at most */
    return fd;
}

static int write_piece(const struct vns_upload_store *s, const char *path, const void *bytes,
                       size_t len)
{
    char new_path[PATH_CHARS];
    path_of(s->dir, new_file, new_path);
    int fd = open(new_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int rc = vns_upload_write(fd, bytes, len);
    close(fd);
    if (rc == 0 && rename(new_path, path))
        rc = -errno;
    if (rc)
        (void)unlink(new_path);
    return rc;
}

int vns_upload_store_put(struct vns_upload_store *s, const uint8_t name[VN_NAME_BYTES],
                         const void *bytes, size_t len)
{
    char path[PATH_CHARS];
    struct stat st;
    assert(len);
    if (len > s->max_bytes)
        return -EFBIG;
    path_of_piece(s, name, path);
    /* One of another size was cut short by a machine that went down: it is written again. */
    if (stat(path, &st) == 0 && (uint64_t)st.st_size == len) {
        (void)utimensat(AT_FDCWD, path, NULL, 0);
        return 0;
    }
    uint64_t room = s->max_bytes - len;
    uint64_t after = s->max_bytes - (s->max_bytes >> FREE_SHIFT);
    int rc = 0;
    if (s->bytes > room)
        rc = shrink(s, room < after ? room : after);
    if (rc == 0)
        rc = write_piece(s, path, bytes, len);
    if (rc == 0)
        s->bytes += len;
    return rc;
}

void vns_upload_store_drop(const struct vns_upload_store *s, const uint8_t name[VN_NAME_BYTES])
{
    char path[PATH_CHARS];
    path_of_piece(s, name, path);
    (void)unlink(path); /* counted again when room is made next */
}

/* ---- life ---- */

/* The owner's file has its name only once it is locked, so that one that is not is nobody's.  A
 * descriptor, or a negative errno. */
static int own_folder(const char *dir)
{
    char path[PATH_CHARS], temporary[PATH_CHARS], name[32];
    path_of(dir, owner_file, path);
    snprintf(name, sizeof(name), "%s.%ld", owner_file, (long)getpid());
    path_of(dir, name, temporary);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    bool fresh = fd < 0 && errno == ENOENT;
    if (fresh)
        fd = open(temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int rc = flock(fd, LOCK_EX | LOCK_NB) ? -errno : 0;
    /* Of two that begin at once the second finds the name taken. */
    if (fresh && rc == 0 && link(temporary, path))
        rc = -errno;
    if (fresh)
        (void)unlink(temporary);
    if (rc)
        close(fd);
    return rc == -EWOULDBLOCK || rc == -EEXIST ? -EBUSY : rc ? rc : fd;
}

static int remove_one(void *user, const char *path, const char *name)
{
    (void)user;
    (void)name;
    return unlink(path) ? -errno : 0;
}

static void remove_folder(const char *dir)
{
    (void)!for_each(dir, remove_one, NULL); /* what cannot be removed shows in the next call */
    (void)rmdir(dir);
}

/* What a server that was killed has left in memory. */
static int remove_left(void *user, const char *path, const char *name)
{
    (void)user;
    struct stat st;
    char owner[PATH_CHARS];
    if (strncmp(name, memory_prefix, strlen(memory_prefix)) || lstat(path, &st) ||
        !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || strlen(path) >= PATH_MAX)
        return 0;
    path_of(path, owner_file, owner);
    int fd = open(owner, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        remove_folder(path);
    if (fd >= 0)
        close(fd);
    return 0;
}

static int make_in_memory(struct vns_upload_store *s)
{
    (void)!for_each(memory_root, remove_left, NULL); /* others' leavings are no reason to fail */
    snprintf(s->dir, sizeof(s->dir), "%s/%sXXXXXX", memory_root, memory_prefix);
    s->in_memory = mkdtemp(s->dir) != NULL;
    return s->in_memory ? 0 : -errno;
}

static int check_folder(struct vns_upload_store *s, const char *dir)
{
    struct stat st;
    if (strlen(dir) >= sizeof(s->dir))
        return -ENAMETOOLONG;
    if ((mkdir(dir, 0700) && errno != EEXIST) || stat(dir, &st))
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    if (st.st_uid != geteuid() || (st.st_mode & 077))
        return -EACCES;
    snprintf(s->dir, sizeof(s->dir), "%s", dir);
    return 0;
}

static int start(struct vns_upload_store *s, const char *dir)
{
    int rc = dir ? check_folder(s, dir) : make_in_memory(s);
    if (rc)
        return rc;
    s->owner = own_folder(s->dir);
    if (s->owner < 0)
        return s->owner;
    rc = shrink(s, s->max_bytes);
    return rc ? rc : limit_to_room(s);
}

static const char *reason(int rc)
{
    return rc == -EBUSY    ? "another server uses it"
           : rc == -EACCES ? "it must belong to this user and be closed to others (mode 0700)"
                           : strerror(-rc);
}

int vns_upload_store_create(const char *dir, uint64_t max_bytes, struct vns_upload_store **out,
                            char why[VNS_UPLOAD_STORE_WHY])
{
    struct vns_upload_store *s = calloc(1, sizeof(*s));
    int rc = s ? 0 : -ENOMEM;
    if (s) {
        s->max_bytes = max_bytes;
        s->owner = -1;
        rc = start(s, dir);
    }
    if (rc) {
        snprintf(why, VNS_UPLOAD_STORE_WHY, "%.80s: %s", dir ? dir : memory_root, reason(rc));
        vns_upload_store_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void vns_upload_store_destroy(struct vns_upload_store *s)
{
    if (!s)
        return;
    if (s->in_memory)
        remove_folder(s->dir);
    if (s->owner >= 0)
        close(s->owner);
    free(s);
}
