/* Zeroing what is there; see clear.h. */
#include "venus/server/memory/clear.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "venus/memory/track/kernel.h"

/* Written in less time than it takes to find out what it is: a driver makes hundreds of mappings.
 */
enum { SMALL_BYTES = 256 << 10 };

enum kind {
    KIND_OTHER,   /* a device's, a file's */
    KIND_PRIVATE, /* what is not in the page table is zero */
    KIND_MEMFD,   /* what is not in the file is zero, but another mapping may have put it there */
};

/* A line of /proc/self/maps: "start-end perms offset device inode path". */
static enum kind kind_of_line(const char *line, uintptr_t *start, uintptr_t *end)
{
    unsigned long from, to, inode;
    char perms[8], path[16] = "";
    if (sscanf(line, "%lx-%lx %7s %*s %*s %lu %15s", &from, &to, perms, &inode, path) < 4) {
        *start = *end = 0;
        return KIND_OTHER;
    }
    *start = from;
    *end = to;
    if (perms[3] == 'p')
        return inode == 0 ? KIND_PRIVATE : KIND_OTHER;
    return strncmp(path, "/memfd:", strlen("/memfd:")) == 0 ? KIND_MEMFD : KIND_OTHER;
}

/* What all of [start, end) is, KIND_OTHER when it is not all the same. */
static enum kind kind_of(uintptr_t start, uintptr_t end)
{
    char line[512];
    uintptr_t from, to, at = start;
    enum kind all = KIND_OTHER;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && at < end && fgets(line, sizeof(line), maps)) {
        enum kind kind = kind_of_line(line, &from, &to);
        if (at < from || at >= to)
            continue;
        if (at != start && kind != all)
            break;
        all = kind;
        at = to;
    }
    if (maps)
        fclose(maps);
    return at >= end ? all : KIND_OTHER;
}

struct span {
    uintptr_t start, end;
};

static void clear_part(void *user, uintptr_t addr, size_t len)
{
    const struct span *all = user;
    uintptr_t from = addr > all->start ? addr : all->start;
    uintptr_t to = addr + len < all->end ? addr + len : all->end;
    if (from < to)
        memset((void *)from, 0, to - from);
}

static int clear_populated(struct span *all)
{
    struct vn_kernel *kernel;
    int rc = vn_kernel_ref(&kernel);
    if (rc)
        return rc;
    uintptr_t first = all->start & ~(uintptr_t)(kernel->page - 1);
    size_t len = (all->end - first + kernel->page - 1) & ~(kernel->page - 1);
    rc = vn_kernel_populated(kernel, first, len, clear_part, all);
    vn_kernel_unref(kernel);
    return rc;
}

/* Gives whole pages back to the kernel; later reads find zeros. */
static int clear_memfd(const struct span *all)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (all->start + page - 1) & ~(page - 1), last = all->end & ~(page - 1);
    if (first >= last || madvise((void *)first, last - first, MADV_REMOVE))
        return -ENOTSUP;
    memset((void *)all->start, 0, first - all->start);
    memset((void *)last, 0, all->end - last);
    return 0;
}

void vns_clear(void *memory, size_t size)
{
    struct span all = {(uintptr_t)memory, (uintptr_t)memory + size};
    enum kind kind = size <= SMALL_BYTES ? KIND_OTHER : kind_of(all.start, all.end);
    int rc = kind == KIND_PRIVATE ? clear_populated(&all)
             : kind == KIND_MEMFD ? clear_memfd(&all)
                                  : -ENOTSUP;
    if (rc)
        memset(memory, 0, size);
}
