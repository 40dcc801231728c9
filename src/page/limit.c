#include "page/limit.h"

#include "base/log.h"
#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LIMIT_MAGIC = 0x4c504748, /* "HGPL" */
    LIMIT_VERSION = 3,
    LINE_BYTES = 3 * HW_CACHE_LINE,
    CHARGE_TRIES = 8 /* a refusal may be due to a charge that is being taken back */
};

struct limit_head {
    uint32_t magic, version;
    _Atomic uint64_t limit;
    _Atomic uint32_t trims;
    uint32_t none;
    _Atomic uint64_t most;
    uint8_t pad[HW_CACHE_LINE - 32];
};

struct limit_line {
    _Atomic uint64_t owner; /* pid and start time, so that a reused pid is another; 0: nobody */
    _Atomic uint64_t charged;
    _Atomic uint64_t mapped;
    _Atomic uint32_t rank, trims;
    _Atomic uint64_t min, used, wanted, oldest, oldest_ns, busy_ns;
    _Atomic uint32_t is_aside, priority;
    uint8_t pad[HW_CACHE_LINE - 24];
    _Atomic char name[PAGE_LIMIT_NAME_CHARS];
};

struct limit_file {
    struct limit_head head;
    struct limit_line lines[PAGE_LIMIT_USERS];
};

_Static_assert(sizeof(struct limit_head) == HW_CACHE_LINE, "a line");
_Static_assert(sizeof(struct limit_line) == LINE_BYTES, "a line");

struct page_limit {
    struct limit_file *file;
    struct limit_line *mine; /* NULL before claim */
    uint64_t me;             /* its owner */
    _Atomic uint64_t own;    /* 0: none */
};

/* ---- which users live ---- */

/* In ticks; 0: it has ended, or there is no /proc.  A negative errno: that cannot be told now. */
static int64_t start_time(pid_t pid)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    ssize_t n = read(fd, text, sizeof text - 1);
    int rc = n < 0 ? -errno : 0;
    close(fd);
    if (rc)
        return rc == -ESRCH ? 0 : rc;
    text[n] = '\0';
    char *field = strrchr(text, ')'); /* a program's name may hold anything */
    if (field && strncmp(field, ") Z", 3) == 0)
        return 0; /* killed, and only its parent has not asked yet */
    for (int i = 2; field && i < 22; i++) {
        field = strchr(field, ' ');
        field += field != NULL;
    }
    return field ? (uint32_t)strtoull(field, NULL, 10) : 0;
}

/* A process that cannot be looked at, for want of a descriptor or memory, counts as alive: nobody
 * but its user would write its line again. */
static bool is_alive(uint64_t owner)
{
    pid_t pid = (pid_t)(owner >> 32);
    if (pid <= 0 || (kill(pid, 0) && errno == ESRCH))
        return false;
    int64_t start = start_time(pid);
    return start < 0 || (uint32_t)start == (uint32_t)owner;
}

static void forget_dead(struct page_limit *l)
{
    for (size_t i = 0; i < PAGE_LIMIT_USERS; i++) {
        uint64_t owner = atomic_load(&l->file->lines[i].owner);
        if (owner && owner != l->me && !is_alive(owner))
            atomic_compare_exchange_strong(&l->file->lines[i].owner, &owner, 0);
    }
}

/* ---- the file ---- */

static int prepare(int fd)
{
    struct stat st;
    struct limit_head head = {.magic = LIMIT_MAGIC, .version = LIMIT_VERSION};
    if (fstat(fd, &st))
        return -errno;
    if (st.st_size == 0) {
        if (pwrite(fd, &head, sizeof head, 0) != sizeof head ||
            ftruncate(fd, sizeof(struct limit_file)))
            return -errno;
        return 0;
    }
    if (st.st_size != sizeof(struct limit_file) ||
        pread(fd, &head, sizeof head, 0) != sizeof head || head.magic != LIMIT_MAGIC ||
        head.version != LIMIT_VERSION)
        return -EPROTO;
    return 0;
}

static int map_file(const char *path, void **map)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd < 0 || flock(fd, LOCK_EX) ? -errno : prepare(fd);
    if (rc == 0) {
        *map = mmap(NULL, sizeof(struct limit_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        rc = *map == MAP_FAILED ? -errno : 0;
    }
    if (fd >= 0) {
        (void)flock(fd, LOCK_UN); /* the mapping keeps the open file, and with it the lock */
        close(fd);
    }
    return rc;
}

static int map_memory(void **map)
{
    *map = mmap(NULL, sizeof(struct limit_file), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    return *map == MAP_FAILED ? -errno : 0;
}

int page_limit_open(const char *path, struct page_limit **out, struct page_error *why)
{
    struct page_limit *l = calloc(1, sizeof *l);
    void *map = NULL;
    int rc = !l ? -ENOMEM : path ? map_file(path, &map) : map_memory(&map);
    if (rc) {
        free(l);
        return page_fail(why, rc, 0, "cannot use the limit file %s: %s", path ? path : "in memory",
                         rc == -EPROTO ? "another version made it" : hw_strerror(rc));
    }
    l->file = map;
    *out = l;
    return 0;
}

int page_limit_open_same(const struct page_limit *l, struct page_limit **out,
                         struct page_error *why)
{
    struct page_limit *other = calloc(1, sizeof *other);
    /* Of no bytes: a second mapping of the same memory. */
    void *map = mremap(l->file, 0, sizeof *l->file, MREMAP_MAYMOVE);
    if (!other || map == MAP_FAILED) {
        if (map != MAP_FAILED)
            munmap(map, sizeof *l->file);
        free(other);
        return page_fail(why, -ENOMEM, 0, "no memory for another user of a limit");
    }
    other->file = map;
    *out = other;
    return 0;
}

void page_limit_close(struct page_limit *l)
{
    if (!l)
        return;
    if (l->mine)
        atomic_store(&l->mine->owner, 0);
    munmap(l->file, sizeof *l->file);
    free(l);
}

int page_limit_claim(struct page_limit *l, uint32_t rank, struct page_error *why)
{
    assert(!l->mine);
    int64_t start = start_time(getpid());
    if (start < 0)
        return page_fail(why, (int)start, 0, "cannot tell when this process began: %s",
                         hw_strerror((int)start));
    uint64_t me = l->me = (uint64_t)(uint32_t)getpid() << 32 | (uint32_t)start;
    forget_dead(l);
    for (size_t i = 0; i < PAGE_LIMIT_USERS; i++) {
        struct limit_line *line = &l->file->lines[i];
        uint64_t nobody = 0;
        if (!atomic_compare_exchange_strong(&line->owner, &nobody, me))
            continue;
        /* What the one before charged counts until here: too much for a moment, never too little.
         */
        atomic_store(&line->charged, 0);
        atomic_store(&line->mapped, 0);
        atomic_store(&line->min, 0);
        atomic_store(&line->priority, 0);
        atomic_store(&line->name[0], '\0');
        atomic_store(&line->rank, rank);
        atomic_store(&line->trims, atomic_load(&l->file->head.trims));
        l->mine = line;
        page_limit_note_state(l, &(struct page_limit_state){0});
        return 0;
    }
    return page_fail(why, -EUSERS, 0, "%d processes share this limit already", PAGE_LIMIT_USERS);
}

void page_limit_name(struct page_limit *l, const char *name, uint64_t min_bytes, uint32_t priority)
{
    size_t len = strnlen(name, PAGE_LIMIT_NAME_CHARS - 1);
    assert(l->mine);
    for (size_t i = 0; i <= len; i++)
        atomic_store_explicit(&l->mine->name[i], i < len ? name[i] : '\0', memory_order_relaxed);
    atomic_store(&l->mine->min, min_bytes);
    atomic_store(&l->mine->priority, priority);
}

static uint64_t add(uint64_t sum, uint64_t bytes)
{
    return sum + bytes < sum ? UINT64_MAX : sum + bytes;
}

/* What is charged, and with `mine` also what is set aside for the others. */
static uint64_t total(struct limit_file *f, const struct limit_line *mine, uint64_t limit)
{
    uint64_t charged = 0, aside = 0, mins = 0;
    for (size_t i = 0; i < PAGE_LIMIT_USERS; i++) {
        struct limit_line *line = &f->lines[i];
        if (!atomic_load(&line->owner))
            continue;
        uint64_t bytes = atomic_load(&line->charged), min = atomic_load(&line->min);
        charged = add(charged, bytes);
        mins = add(mins, min);
        aside = add(aside, line != mine && min > bytes ? min - bytes : 0);
    }
    return mine && mins <= limit ? add(charged, aside) : charged;
}

static int refuse(struct page_limit *l, uint64_t used, uint64_t bytes, struct page_error *why)
{
    char limit[HW_FORMAT_CHARS], in_use[HW_FORMAT_CHARS], asked[HW_FORMAT_CHARS];
    return page_fail(why, -ENOSPC, 0,
                     "the shared limit of %s is reached: %s in use, %s asked for;"
                     " see hawser kvctl limit",
                     hw_format_size(limit, page_limit_get(l)), hw_format_size(in_use, used),
                     hw_format_size(asked, bytes));
}

int page_limit_charge(struct page_limit *l, uint64_t bytes, struct page_error *why)
{
    assert(l->mine);
    uint64_t used = 0;
    for (int i = 0; i < CHARGE_TRIES; i++) {
        uint64_t own = page_limit_own(l), mine = atomic_fetch_add(&l->mine->charged, bytes) + bytes;
        uint64_t limit = page_limit_get(l);
        used = total(l->file, l->mine, limit);
        if ((limit == 0 || used <= limit) && (own == 0 || mine <= own))
            return 0;
        page_limit_refund(l, bytes);
        if (own && mine > own)
            break;
        if (i == 0)
            forget_dead(l);
        else
            sched_yield();
    }
    return refuse(l, used - bytes, bytes, why);
}

void page_limit_refund(struct page_limit *l, uint64_t bytes)
{
    assert(l->mine);
    /* Never below 0: others of the group can write the line, too, and 2^64 less a few bytes would
     * refuse every charge of them all. */
    uint64_t had = atomic_load(&l->mine->charged);
    while (!atomic_compare_exchange_weak(&l->mine->charged, &had, had > bytes ? had - bytes : 0))
        ;
}

uint64_t page_limit_charged(const struct page_limit *l)
{
    assert(l->mine);
    return atomic_load(&l->mine->charged);
}

uint32_t page_limit_line(const struct page_limit *l)
{
    assert(l->mine);
    return (uint32_t)(l->mine - l->file->lines);
}

void page_limit_add_mapped(struct page_limit *l, int64_t bytes)
{
    assert(l->mine);
    atomic_fetch_add_explicit(&l->mine->mapped, (uint64_t)bytes, memory_order_relaxed);
}

void page_limit_note_state(struct page_limit *l, const struct page_limit_state *state)
{
    assert(l->mine);
    atomic_store_explicit(&l->mine->used, state->used_bytes, memory_order_relaxed);
    atomic_store_explicit(&l->mine->wanted, state->wanted_bytes, memory_order_relaxed);
    atomic_store_explicit(&l->mine->oldest, state->oldest_bytes, memory_order_relaxed);
    atomic_store_explicit(&l->mine->oldest_ns, state->oldest_ns, memory_order_relaxed);
    atomic_store_explicit(&l->mine->busy_ns, state->busy_ns, memory_order_relaxed);
    atomic_store_explicit(&l->mine->is_aside, state->is_aside, memory_order_relaxed);
}

void page_limit_set_own(struct page_limit *l, uint64_t bytes)
{
    atomic_store(&l->own, bytes);
}

uint64_t page_limit_own(const struct page_limit *l)
{
    return atomic_load(&((struct page_limit *)(uintptr_t)l)->own);
}

uint64_t page_limit_most(const struct page_limit *l)
{
    return atomic_load(&l->file->head.most);
}

/* By the most, since a limit of 0 is also one that was taken away.  Workers have no most: a limit
 * that they have stays. */
void page_limit_begin(struct page_limit *l, uint64_t bytes, uint64_t most)
{
    uint64_t unset = 0, none = 0;
    assert(most > 0);
    if (atomic_compare_exchange_strong(&l->file->head.most, &unset, most))
        (void)atomic_compare_exchange_strong(&l->file->head.limit, &none, bytes);
}

void page_limit_set(struct page_limit *l, uint64_t bytes)
{
    atomic_store(&l->file->head.limit, bytes);
}

uint64_t page_limit_get(const struct page_limit *l)
{
    return atomic_load(&l->file->head.limit);
}

uint64_t page_limit_excess(const struct page_limit *l)
{
    uint64_t limit = page_limit_get(l), used;
    if (limit == 0)
        return 0;
    used = total(l->file, NULL, limit);
    return used > limit ? used - limit : 0;
}

uint32_t page_limit_ask_trim(struct page_limit *l)
{
    return atomic_fetch_add(&l->file->head.trims, 1) + 1;
}

uint32_t page_limit_trims(const struct page_limit *l)
{
    return atomic_load(&l->file->head.trims);
}

void page_limit_note_trims(struct page_limit *l, uint32_t trims)
{
    assert(l->mine);
    atomic_store(&l->mine->trims, trims);
}

static int by_rank(const void *a, const void *b)
{
    const struct page_limit_user *x = a, *y = b;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1)
                              : (x->pid > y->pid) - (x->pid < y->pid);
}

size_t page_limit_users(struct page_limit *l, struct page_limit_user users[PAGE_LIMIT_USERS])
{
    size_t count = 0;
    forget_dead(l);
    for (size_t i = 0; i < PAGE_LIMIT_USERS; i++) {
        struct limit_line *line = &l->file->lines[i];
        uint64_t owner = atomic_load(&line->owner);
        if (!owner)
            continue;
        struct page_limit_user *u = &users[count++];
        *u = (struct page_limit_user){
            .pid = (pid_t)(owner >> 32),
            .rank = atomic_load(&line->rank),
            .line = (uint32_t)i,
            .charged_bytes = atomic_load(&line->charged),
            .mapped_bytes = atomic_load_explicit(&line->mapped, memory_order_relaxed),
            .min_bytes = atomic_load(&line->min),
            .priority = atomic_load(&line->priority),
            .state = {.used_bytes = atomic_load_explicit(&line->used, memory_order_relaxed),
                      .wanted_bytes = atomic_load_explicit(&line->wanted, memory_order_relaxed),
                      .oldest_bytes = atomic_load_explicit(&line->oldest, memory_order_relaxed),
                      .oldest_ns = atomic_load_explicit(&line->oldest_ns, memory_order_relaxed),
                      .busy_ns = atomic_load_explicit(&line->busy_ns, memory_order_relaxed),
                      .is_aside = atomic_load_explicit(&line->is_aside, memory_order_relaxed)},
            .trims = atomic_load(&line->trims)};
        for (size_t k = 0; k + 1 < sizeof u->name; k++)
            u->name[k] = atomic_load_explicit(&line->name[k], memory_order_relaxed);
    }
    qsort(users, count, sizeof *users, by_rank);
    return count;
}
