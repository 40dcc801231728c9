#include "venus/memory/track/kernel.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "venus/memory/pageset.h"

/* Younger than the kernel headers of Debian 12; values and layout are the kernel's, as of 6.7. */
#define FEATURE_WP_UNPOPULATED (UINT64_C(1) << 13)
#define FEATURE_WP_ASYNC (UINT64_C(1) << 15)
#define USERFAULTFD_NEW _IO(0xAA, 0x00)

enum {
    IS_WRITTEN = 1 << 1,
    IS_PRESENT = 1 << 3,
    IS_SWAPPED = 1 << 4,
    IS_ZERO_PAGE = 1 << 5,
    SCAN_PROTECT = 1 << 0,
    SCAN_CHECK_ASYNC = 1 << 1,
};

struct scan_region {
    uint64_t start, end, categories;
};

struct scan_arg {
    uint64_t size, flags, start, end, walk_end;
    uint64_t vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
static_assert(sizeof(struct scan_arg) == 96, "the kernel's layout");
#define PAGEMAP_SCAN_IOCTL _IOWR('f', 16, struct scan_arg)

enum {
    SCAN_SPANS = 256,   /* of one call of the scan; 6 KiB of stack */
    MAP_ENTRIES = 2048, /* of one read of the pagemap; 16 KiB of stack, 8 MiB of memory */
};
#define ENTRY_POPULATED (UINT64_C(3) << 62) /* present, or swapped out */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vn_kernel *current;
static atomic_uint forks; /* relaxed: written in a child while it has one thread */

/* --- fork ---------------------------------------------------------------------------------- */

static void in_child(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a thread of the parent may hold it */
    current = NULL; /* the parent's; regions that still refer to it close the copies */
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

unsigned vn_kernel_forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

/* --- opening ------------------------------------------------------------------------------- */

static bool has_scan(int pagemap)
{
    struct scan_arg arg = {
        .size = sizeof(arg), .category_mask = IS_PRESENT, .return_mask = IS_PRESENT};
    return pagemap >= 0 && ioctl(pagemap, PAGEMAP_SCAN_IOCTL, &arg) >= 0;
}

/* fd, if it has asynchronous write-protection; else closes it and returns -1. */
static int with_async(int fd)
{
    struct uffdio_api api = {.api = UFFD_API,
                             .features = FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED};
    if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int open_uffd(int flags)
{
    return with_async((int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags));
}

/* A user who may open the device needs no other privilege. */
static int open_uffd_device(void)
{
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device < 0)
        return -1;
    int fd = ioctl(device, USERFAULTFD_NEW, O_CLOEXEC | O_NONBLOCK);
    close(device);
    return with_async(fd);
}

/* Without privilege the kernel reports faults of user code only.  Tracking needs no more: the
 * kernel itself resolves asynchronous write-protection, for system calls as well. */
static void open_best_uffd(struct vn_kernel *kernel)
{
    if (!kernel->scans)
        return;
    kernel->uffd = open_uffd(0);
    if (kernel->uffd < 0)
        kernel->uffd = open_uffd_device();
    kernel->serves_kernel = kernel->uffd >= 0;
    if (kernel->uffd < 0)
        kernel->uffd = open_uffd(UFFD_USER_MODE_ONLY);
}

static struct vn_kernel *open_kernel(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    struct vn_kernel *kernel = malloc(sizeof(*kernel));
    if (!kernel)
        return NULL;
    *kernel = (struct vn_kernel){.uffd = -1, .page = (size_t)sysconf(_SC_PAGESIZE)};
    assert(kernel->page % VN_PAGE_BYTES == 0);
    kernel->forks = vn_kernel_forks();
    kernel->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    kernel->scans = has_scan(kernel->pagemap);
    open_best_uffd(kernel);
    return kernel;
}

int vn_kernel_ref(struct vn_kernel **out)
{
    pthread_mutex_lock(&lock);
    if (!current)
        current = open_kernel();
    struct vn_kernel *kernel = current;
    if (kernel)
        kernel->refs++;
    pthread_mutex_unlock(&lock);
    if (!kernel)
        return -ENOMEM;
    *out = kernel;
    return 0;
}

void vn_kernel_unref(struct vn_kernel *kernel)
{
    if (!kernel)
        return;
    pthread_mutex_lock(&lock);
    assert(kernel->refs > 0);
    bool last = --kernel->refs == 0;
    if (last && kernel == current)
        current = NULL;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    if (kernel->uffd >= 0)
        close(kernel->uffd);
    if (kernel->pagemap >= 0)
        close(kernel->pagemap);
    free(kernel);
}

/* --- scans --------------------------------------------------------------------------------- */

/* Runs a scan to its end; the caller has set range, flags and categories. */
static int scan(const struct vn_kernel *kernel, struct scan_arg *arg, vn_span_fn *fn, void *user)
{
    struct scan_region spans[SCAN_SPANS];
    arg->size = sizeof(*arg);
    arg->vec = (uintptr_t)spans;
    arg->vec_len = SCAN_SPANS;
    while (arg->start < arg->end) {
        int found = ioctl(kernel->pagemap, PAGEMAP_SCAN_IOCTL, arg);
        if (found < 0 && errno == EINTR)
            continue;
        if (found < 0)
            return -errno;
        for (int i = 0; i < found; i++)
            fn(user, (uintptr_t)spans[i].start, (size_t)(spans[i].end - spans[i].start));
        arg->start = arg->walk_end;
    }
    return 0;
}

/* Before Linux 6.7: the pagemap, eight bytes a page. */
static int read_populated(const struct vn_kernel *kernel, uintptr_t addr, size_t len,
                          vn_span_fn *fn, void *user)
{
    uint64_t entries[MAP_ENTRIES];
    size_t pages = len / kernel->page, span = 0;
    uintptr_t at = addr;
    while (pages) {
        size_t want = pages < MAP_ENTRIES ? pages : MAP_ENTRIES;
        ssize_t got = pread(kernel->pagemap, entries, want * sizeof(entries[0]),
                            (off_t)(at / kernel->page * sizeof(entries[0])));
        if (got < (ssize_t)sizeof(entries[0]))
            return got < 0 ? -errno : -EIO;
        size_t count = (size_t)got / sizeof(entries[0]);
        for (size_t i = 0; i < count; i++, at += kernel->page) {
            if (entries[i] & ENTRY_POPULATED) {
                span += kernel->page;
            } else if (span) {
                fn(user, at - span, span);
                span = 0;
            }
        }
        pages -= count;
    }
    if (span)
        fn(user, at - span, span);
    return 0;
}

int vn_kernel_populated(const struct vn_kernel *kernel, uintptr_t addr, size_t len, vn_span_fn *fn,
                        void *user)
{
    if (kernel->pagemap < 0) {
        fn(user, addr, len);
        return 0;
    }
    if (!kernel->scans)
        return read_populated(kernel, addr, len, fn, user);
    struct scan_arg arg = {.start = addr,
                           .end = addr + len,
                           .category_anyof_mask = IS_PRESENT | IS_SWAPPED,
                           .return_mask = IS_PRESENT | IS_SWAPPED};
    return scan(kernel, &arg, fn, user);
}

/* --- userfaultfd --------------------------------------------------------------------------- */

int vn_kernel_watch(const struct vn_kernel *kernel, uintptr_t addr, size_t len, bool missing)
{
    struct uffdio_register reg = {.range = {.start = addr, .len = len},
                                  .mode = UFFDIO_REGISTER_MODE_WP};
    if (missing)
        reg.mode |= UFFDIO_REGISTER_MODE_MISSING;
    return ioctl(kernel->uffd, UFFDIO_REGISTER, &reg) ? -errno : 0;
}

int vn_kernel_take_written(const struct vn_kernel *kernel, uintptr_t addr, size_t len,
                           vn_span_fn *fn, void *user)
{
    /* Without holes and the zero page, which would count as written: protecting them would build
     * page tables for memory that nobody has touched. */
    struct scan_arg arg = {
        .start = addr,
        .end = addr + len,
        .flags = SCAN_PROTECT | SCAN_CHECK_ASYNC,
        .category_mask = IS_WRITTEN | IS_ZERO_PAGE,
        .category_inverted = IS_ZERO_PAGE,
        .category_anyof_mask = IS_PRESENT | IS_SWAPPED,
        .return_mask = IS_WRITTEN,
    };
    return scan(kernel, &arg, fn, user);
}

int vn_kernel_protect(const struct vn_kernel *kernel, uintptr_t addr, size_t len, bool on)
{
    struct uffdio_writeprotect wp = {.range = {.start = addr, .len = len},
                                     .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
    while (ioctl(kernel->uffd, UFFDIO_WRITEPROTECT, &wp)) {
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
    }
    return 0;
}

/* The kernel copies only within one mapping.  Bytes done or a negative errno. */
static int64_t copy_some(const struct vn_kernel *kernel, uintptr_t addr, const uint8_t *from,
                         size_t len)
{
    struct uffdio_copy copy = {
        .dst = addr, .src = (uintptr_t)from, .len = len, .mode = UFFDIO_COPY_MODE_WP};
    if (ioctl(kernel->uffd, UFFDIO_COPY, &copy) == 0)
        return (int64_t)len;
    if (errno != EAGAIN && errno != EINTR)
        return -errno;
    return copy.copy > 0 ? copy.copy : 0;
}

int vn_kernel_install(const struct vn_kernel *kernel, uintptr_t addr, const void *from, size_t len)
{
    const uint8_t *bytes = from;
    for (size_t at = 0, most = len; at < len;) {
        size_t some = len - at < most ? len - at : most;
        int64_t done = copy_some(kernel, addr + at, bytes + at, some);
        if (done == -ENOENT && some > kernel->page) { /* in two mappings or more */
            most = some / kernel->page / 2 * kernel->page;
            continue;
        }
        if (done < 0)
            return (int)done;
        at += (size_t)done;
    }
    return 0;
}

void vn_kernel_wake(const struct vn_kernel *kernel, uintptr_t addr, size_t len)
{
    struct uffdio_range range = {.start = addr, .len = len};
    (void)ioctl(kernel->uffd, UFFDIO_WAKE, &range);
}
