#include "base/report/output.h"

#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int fail(char *why, int error, const char *fmt, ...) PRINTF_LIKE(3, 4);
static int fail(char *why, int error, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (why)
        vsnprintf(why, HW_OUTPUT_WHY_CHARS, fmt, args);
    va_end(args);
    return error;
}

static int exists(const char *path, char *why)
{
    return fail(why, -EEXIST, "%s is there already; --force replaces it", path);
}

static int check_room(int fd, const char *path, uint64_t needed, char *why)
{
    struct statvfs disk;
    char need[HW_FORMAT_CHARS], have[HW_FORMAT_CHARS];
    if (fstatvfs(fd, &disk))
        return 0; /* the write will tell */
    uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (needed <= room)
        return 0;
    return fail(why, -ENOSPC, "%s needs %s; the disk has %s free", path,
                hw_format_size(need, needed), hw_format_size(have, room));
}

/* A file without a name is gone with the process, however that ends.  -1 where the file system has
 * none, or nothing could name it later. */
static int open_unnamed(const char *path)
{
    char *copy = access("/proc/self/fd", F_OK) ? NULL : strdup(path);
    int fd = copy ? open(dirname(copy), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666) : -1;
    free(copy);
    return fd;
}

/* A name that no other process has, nor had: one that was killed may have left its part behind, and
 * in containers process ids come again soon. */
static int make_part_name(struct hw_output *o, char *why)
{
    uint32_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return fail(why, -errno, "no random numbers: %s", strerror(errno));
    if (asprintf(&o->part, "%s.%d.%08x.part", o->path, (int)getpid(), random) < 0) {
        o->part = NULL;
        return fail(why, -ENOMEM, "out of memory");
    }
    return 0;
}

static int open_part(struct hw_output *o, uint64_t needed, char *why)
{
    int fd = open_unnamed(o->path);
    o->is_named = fd < 0;
    if (o->is_named)
        fd = open(o->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail(why, -errno, "cannot make %s: %s", o->path, strerror(errno));
    int err = check_room(fd, o->path, needed, why);
    if (!err) {
        o->stream = fdopen(fd, "wb");
        err = o->stream ? 0 : fail(why, -ENOMEM, "out of memory");
    }
    if (err) {
        close(fd);
        if (o->is_named)
            (void)unlink(o->part);
    }
    return err;
}

/* Into o->path: where the file goes, which is behind a symbolic link. */
static int set_path(struct hw_output *o, const char *path, char *why)
{
    struct stat st;
    bool is_there = stat(path, &st) == 0;
    if (is_there && !o->overwrite)
        return exists(path, why);
    if (is_there && S_ISDIR(st.st_mode))
        return fail(why, -EISDIR, "%s is a folder", path);
    if (is_there && !S_ISREG(st.st_mode))
        return fail(why, -EINVAL, "%s is no plain file", path);
    o->path = is_there ? realpath(path, NULL) : strdup(path);
    return o->path ? 0 : fail(why, -errno, "cannot make %s: %s", path, strerror(errno));
}

static void free_names(struct hw_output *o)
{
    free(o->path);
    free(o->part);
}

int hw_output_open(struct hw_output *output, const char *path, bool overwrite, uint64_t needed,
                   char *why)
{
    struct hw_output o = {.overwrite = overwrite};
    int err = set_path(&o, path, why);
    if (!err)
        err = make_part_name(&o, why);
    if (!err)
        err = open_part(&o, needed, why);
    if (err)
        free_names(&o);
    else
        *output = o;
    return err;
}

const char *hw_output_place(const struct hw_output *o, char buf[HW_OUTPUT_PLACE_CHARS])
{
    if (o->is_named)
        return o->part;
    snprintf(buf, HW_OUTPUT_PLACE_CHARS, "/proc/self/fd/%d", fileno(o->stream));
    return buf;
}

static int name_part(struct hw_output *o, char *why)
{
    char self[HW_OUTPUT_PLACE_CHARS];
    if (linkat(AT_FDCWD, hw_output_place(o, self), AT_FDCWD, o->part, AT_SYMLINK_FOLLOW))
        return fail(why, -errno, "cannot make %s: %s", o->part, strerror(errno));
    o->is_named = true;
    return 0;
}

/* link refuses a name that somebody took meanwhile; rename serves where there are no links. */
static int name_it(const struct hw_output *o, char *why)
{
    if (!o->overwrite && link(o->part, o->path) == 0) {
        (void)unlink(o->part);
        return 0;
    }
    if (!o->overwrite && errno == EEXIST)
        return exists(o->path, why);
    return rename(o->part, o->path)
               ? fail(why, -errno, "cannot name it %s: %s", o->path, strerror(errno))
               : 0;
}

int hw_output_finish(struct hw_output *o, int err, char *why)
{
    if (!err && (fflush(o->stream) || fsync(fileno(o->stream))))
        err = fail(why, -errno, "cannot write %s: %s", o->path, strerror(errno));
    if (!err && !o->is_named)
        err = name_part(o, why);
    if (fclose(o->stream) && !err)
        err = fail(why, -errno, "cannot write %s: %s", o->path, strerror(errno));
    if (!err)
        err = name_it(o, why);
    if (err && o->is_named)
        (void)unlink(o->part);
    free_names(o);
    *o = (struct hw_output){0};
    return err;
}
