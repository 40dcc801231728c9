/* page/backend/host.c - pages of main memory: a memory file, and fixed mappings of pieces of it.
 *
 * The arena is a sparse memory file as large as the memory that may be used.  A handle is a piece
 * of it; create allocates the piece's memory and release frees it.  The arena has huge pages where
 * the administrator set enough of them aside, or where the kernel may use them for memory files.
 * Every unbound place shows the sink, a second file of one piece: reading it is harmless, and
 * writes to it take at most one piece of memory. */
#include "page/backend/backend.h"

#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES (UINT64_C(2) << 20)

enum {
    MAPPINGS_DEFAULT = 65530, /* the kernel's, where /proc does not tell */
    MAPPINGS_OF_OTHERS = 4096 /* the program has libraries, stacks and heaps of its own */
};

struct host_backend {
    struct page_backend base;
    bool joined, try_huge;
    uint64_t range_bytes, piece_bytes;
    uint8_t *range;      /* piece-aligned part of the reservation */
    void *reservation;   /* NULL before reserve */
    size_t reserved_len; /* of the whole reservation */
    int arena, sink;     /* -1 before reserve */
    uint8_t *view;       /* all of the arena, where memory is allocated through it; else NULL */
    uint64_t arena_bytes;
    pthread_mutex_t lock; /* guards the three below; never held across a system call */
    uint32_t *idle;       /* pieces of the arena that are not taken */
    uint32_t idle_count, piece_count;
};

static struct host_backend *host_of(struct page_backend *b)
{
    return (struct host_backend *)b;
}

static uint64_t physical_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

static int host_open(const struct page_backend_config *config, struct page_backend **out,
                     struct page_error *why)
{
    struct host_backend *h = calloc(1, sizeof *h);
    if (!h)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    h->base.ops = &page_backend_host;
    h->base.facts = (struct page_facts){.granularity = (uint64_t)sysconf(_SC_PAGESIZE),
                                        .memory_bytes = physical_bytes(),
                                        .stray = PAGE_STRAY_SHARED};
    if (config->memory_bytes)
        h->base.facts.memory_bytes = config->memory_bytes;
    snprintf(h->base.facts.device, sizeof h->base.facts.device, "main memory");
    h->joined = !config->not_joined;
    h->try_huge = !config->no_huge;
    h->arena = h->sink = -1;
    pthread_mutex_init(&h->lock, NULL);
    *out = &h->base;
    return 0;
}

static void host_close(struct page_backend *b)
{
    struct host_backend *h = host_of(b);
    if (h->reservation)
        munmap(h->reservation, h->reserved_len);
    if (h->view)
        munmap(h->view, h->arena_bytes);
    if (h->arena >= 0)
        close(h->arena);
    if (h->sink >= 0)
        close(h->sink);
    pthread_mutex_destroy(&h->lock);
    free(h->idle);
    free(h);
}

static int memory_file(const char *name, uint64_t bytes, unsigned flags)
{
    int fd = memfd_create(name, MFD_CLOEXEC | flags);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)bytes)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

static uint64_t read_number(const char *path, uint64_t otherwise)
{
    unsigned long long value;
    FILE *f = fopen(path, "re");
    if (!f)
        return otherwise;
    bool read = fscanf(f, "%llu", &value) == 1;
    fclose(f);
    return read ? value : otherwise;
}

static void *map_arena(int fd, uint64_t bytes, int flags)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* A file of huge pages of the administrator's pool, or a negative errno.  Mapping such a file sets
 * all its pages aside, or fails, and they stay the file's when the mapping is gone: a pool that is
 * too small shows here, and not in the middle of the work. */
static int open_huge_arena(uint64_t bytes)
{
    int fd = memory_file("hawser-pages", bytes, MFD_HUGETLB | MFD_HUGE_2MB);
    if (fd < 0)
        return fd;
    void *all = map_arena(fd, bytes, 0);
    if (!all) {
        close(fd);
        return -ENOMEM;
    }
    munmap(all, bytes);
    return fd;
}

/* May the kernel use huge pages for memory files?  Where it never does, what follows is waste. */
static bool kernel_has_huge_files(void)
{
    char modes[128] = ""; /* "always within_size [advise] never deny force" */
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
    if (!f)
        return false;
    bool read = fgets(modes, sizeof modes, f) != NULL;
    fclose(f);
    return read && !strstr(modes, "[never]") && !strstr(modes, "[deny]");
}

/* The kernel asks the mapping through which memory is allocated whether huge pages are wanted. */
static void make_view(struct host_backend *h)
{
    h->view = map_arena(h->arena, h->arena_bytes, MAP_NORESERVE);
    if (h->view)
        (void)madvise(h->view, h->arena_bytes, h->try_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

static int open_arena(struct host_backend *h)
{
    bool whole_huge_pages = h->piece_bytes % HUGE_BYTES == 0;
    if (h->try_huge && whole_huge_pages) {
        h->arena = open_huge_arena(h->arena_bytes);
        if (h->arena >= 0) {
            snprintf(h->base.facts.device, sizeof h->base.facts.device, "main memory, huge pages");
            return 0;
        }
    }
    h->arena = memory_file("hawser-pages", h->arena_bytes, 0);
    if (h->arena < 0)
        return h->arena;
    if (whole_huge_pages && kernel_has_huge_files())
        make_view(h);
    return 0;
}

static int map_fixed(const struct host_backend *h, uint64_t offset, uint64_t bytes, int fd,
                     uint64_t file_offset)
{
    void *at = mmap(h->range + offset, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, (off_t)file_offset);
    return at == MAP_FAILED ? -errno : 0;
}

static int show_sink(const struct host_backend *h, uint64_t offset)
{
    return map_fixed(h, offset, h->piece_bytes, h->sink, 0);
}

/* Addresses without memory, aligned so that huge pages can lie under them. */
static int reserve_range(struct host_backend *h)
{
    h->reserved_len = h->range_bytes + HUGE_BYTES;
    void *at =
        mmap(NULL, h->reserved_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    h->reservation = at;
    h->range = (uint8_t *)(((uintptr_t)at + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
    for (uint64_t offset = 0; offset < h->range_bytes; offset += h->piece_bytes) {
        int rc = show_sink(h, offset);
        if (rc)
            return rc;
    }
    h->base.address = (uint64_t)(uintptr_t)h->range;
    return 0;
}

static int make_idle_list(struct host_backend *h)
{
    h->idle = calloc(h->piece_count, sizeof *h->idle);
    if (!h->idle)
        return -ENOMEM;
    for (uint32_t i = 0; i < h->piece_count; i++)
        h->idle[i] = h->piece_count - 1 - i; /* low ones first */
    h->idle_count = h->piece_count;
    return 0;
}

static int host_reserve(struct page_backend *b, uint64_t range_bytes, uint64_t piece_bytes,
                        struct page_error *why)
{
    struct host_backend *h = host_of(b);
    assert(!h->reservation && piece_bytes % b->facts.granularity == 0);
    /* Each unbound piece is a mapping of its own, and the kernel bounds their number. */
    uint64_t most = read_number("/proc/sys/vm/max_map_count", MAPPINGS_DEFAULT);
    uint64_t places = range_bytes / piece_bytes;
    uint64_t pieces = b->facts.memory_bytes / piece_bytes;
    if (places + MAPPINGS_OF_OTHERS > most)
        return page_fail(why, -E2BIG, 0,
                         "%llu pieces need as many mappings; the kernel allows %llu"
                         " (vm.max_map_count): use less memory, larger pages or the contiguous"
                         " layout",
                         (unsigned long long)places, (unsigned long long)most);
    h->range_bytes = range_bytes;
    h->piece_bytes = piece_bytes;
    h->piece_count = pieces < PAGE_PIECES_MAX ? (uint32_t)pieces : PAGE_PIECES_MAX;
    h->arena_bytes = h->piece_count * piece_bytes;
    int rc = open_arena(h);
    if (rc == 0) {
        h->sink = memory_file("hawser-sink", piece_bytes, 0);
        rc = h->sink < 0 ? h->sink : make_idle_list(h);
    }
    if (rc == 0)
        rc = reserve_range(h);
    return rc ? page_fail(why, rc, -rc, "cannot reserve %llu MiB of addresses: %s",
                          (unsigned long long)(range_bytes >> 20), strerror(-rc))
              : 0;
}

static uint64_t arena_offset(const struct host_backend *h, page_handle handle)
{
    assert(handle > 0 && handle <= h->piece_count);
    return (handle - 1) * h->piece_bytes;
}

static void put_idle(struct host_backend *h, uint32_t piece)
{
    pthread_mutex_lock(&h->lock);
    assert(h->idle_count < h->piece_count);
    h->idle[h->idle_count++] = piece;
    pthread_mutex_unlock(&h->lock);
}

static void give_back(const struct host_backend *h, uint32_t piece)
{
    (void)fallocate(h->arena, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)(piece * h->piece_bytes), (off_t)h->piece_bytes);
}

/* Memory for a piece of the arena; 0 or a negative errno, and then none. */
static int allocate(const struct host_backend *h, uint32_t piece)
{
    uint64_t at = piece * h->piece_bytes;
    int rc;
    if (h->view && madvise(h->view + at, h->piece_bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    do /* also after a failure: ordinary pages may do, and this call has the errno */
        rc = fallocate(h->arena, 0, (off_t)at, (off_t)h->piece_bytes);
    while (rc && errno == EINTR);
    if (rc == 0)
        return 0;
    rc = -errno;
    give_back(h, piece);
    return rc;
}

static int host_create(struct page_backend *b, page_handle *out, struct page_error *why)
{
    struct host_backend *h = host_of(b);
    char text[HW_FORMAT_CHARS];
    uint32_t piece = 0;
    pthread_mutex_lock(&h->lock);
    bool some = h->idle_count > 0;
    if (some)
        piece = h->idle[--h->idle_count];
    pthread_mutex_unlock(&h->lock);
    if (!some)
        return page_fail(why, -ENOMEM, 0, "all %s of host memory for pages are taken",
                         hw_format_size(text, b->facts.memory_bytes));
    int rc = allocate(h, piece);
    if (rc) {
        put_idle(h, piece);
        return page_fail(why, -ENOMEM, -rc, "the host has no more memory: %s", strerror(-rc));
    }
    *out = (page_handle)piece + 1;
    return 0;
}

static void host_release(struct page_backend *b, page_handle handle)
{
    struct host_backend *h = host_of(b);
    uint32_t piece = (uint32_t)(handle - 1);
    assert(piece < h->piece_count);
    give_back(h, piece);
    put_idle(h, piece);
}

/* How many binds from the first on are one mapping: neighbours in the range and in the arena. */
static size_t run_length(const struct host_backend *h, const struct page_bind *binds, size_t count)
{
    size_t n = 1;
    while (h->joined && n < count && binds[n].offset == binds[0].offset + n * h->piece_bytes &&
           binds[n].handle == binds[0].handle + n)
        n++;
    return n;
}

static int show_sinks(const struct host_backend *h, const struct page_bind *binds, size_t count)
{
    int rc = 0;
    for (size_t i = 0; i < count; i++) {
        int one = show_sink(h, binds[i].offset);
        rc = rc ? rc : one;
    }
    return rc;
}

static int show_pieces(const struct host_backend *h, const struct page_bind *binds, size_t count,
                       size_t *done)
{
    size_t n;
    for (*done = 0; *done < count; *done += n) {
        const struct page_bind *first = &binds[*done];
        n = run_length(h, first, count - *done);
        int rc = map_fixed(h, first->offset, n * h->piece_bytes, h->arena,
                           arena_offset(h, first->handle));
        if (rc)
            return rc;
    }
    return 0;
}

static int host_bind(struct page_backend *b, const struct page_bind *binds, size_t count,
                     size_t *failed, struct page_error *why)
{
    struct host_backend *h = host_of(b);
    int rc = show_pieces(h, binds, count, failed);
    if (rc == 0)
        return 0;
    /* The one that failed as well: a fixed mapping may remove what it cannot replace. */
    int undone = show_sinks(h, binds, *failed + 1);
    return page_fail(why, undone ? -ENOTRECOVERABLE : -EIO, -rc, "mmap: %s", strerror(-rc));
}

static int host_unbind(struct page_backend *b, const struct page_bind *binds, size_t count,
                       size_t *failed, struct page_error *why)
{
    struct host_backend *h = host_of(b);
    for (size_t i = 0; i < count; i++) {
        int rc = show_sink(h, binds[i].offset);
        if (rc == 0)
            continue;
        *failed = i;
        size_t done;
        int undone = show_pieces(h, binds, i + 1, &done);
        return page_fail(why, undone ? -ENOTRECOVERABLE : -EIO, -rc, "mmap: %s", strerror(-rc));
    }
    return 0;
}

static int host_finish(struct page_backend *b, struct page_error *why)
{
    (void)b, (void)why; /* no queue: the program waits for its own threads */
    return 0;
}

static int host_copy(struct page_backend *b, uint64_t offset, void *data, size_t len, bool in,
                     struct page_error *why)
{
    (void)why;
    uint8_t *at = host_of(b)->range + offset;
    memcpy(in ? at : data, in ? data : at, len);
    return 0;
}

const struct page_backend_ops page_backend_host = {
    .name = "host",
    .open = host_open,
    .close = host_close,
    .reserve = host_reserve,
    .create = host_create,
    .release = host_release,
    .bind = host_bind,
    .unbind = host_unbind,
    .finish = host_finish,
    .copy = host_copy,
};
