#include "page/limit.h"

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
    LIMIT_VERSION = 1,
    CHARGE_TRIES = 8 /* a refusal may be due to a charge that is being taken back */
};

struct limit_head {
    uint32_t magic, version;
    _Atomic uint64_t limit;
    _Atomic uint32_t trims;
    uint8_t pad[HW_CACHE_LINE - 20];
};

struct limit_line {
    _Atomic uint64_t owner; /* pid and start time, so that a reused pid is another; 0: nobody */
    _Atomic uint64_t charged;
    _Atomic uint64_t mapped;
    _Atomic uint32_t rank;
    uint8_t pad[HW_CACHE_LINE - 28];
};

struct limit_file {
    struct limit_head head;
    struct limit_line lines[PAGE_LIMIT_USERS];
};

_Static_assert(sizeof(struct limit_head) == HW_CACHE_LINE, "a line");
_Static_assert(sizeof(struct limit_line) == HW_CACHE_LINE, "a line");

struct page_limit {
    struct limit_file *file;
    struct limit_line *mine; /* NULL before claim */
};

/* ---- who is alive ---- */

static uint32_t start_time(pid_t pid)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 0;
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

static uint64_t identity(pid_t pid)
{
    return (uint64_t)(uint32_t)pid << 32 | start_time(pid);
}

static bool is_alive(uint64_t owner)
{
    pid_t pid = (pid_t)(owner >> 32);
    if (pid <= 0 || (kill(pid, 0) && errno == ESRCH))
        return false;
    return identity(pid) == owner;
}

static void forget_dead(struct limit_file *file)
{
    for (size_t i = 0; i < PAGE_LIMIT_USERS; i++) {
        uint64_t owner = atomic_load(&file->lines[i].owner);
        if (owner && !is_alive(owner))
            atomic_compare_exchange_strong(&file->lines[i].owner, &owner, 0);
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

int page_limit_open(const char *path, struct page_limit **out, struct page_error *why)
{
    struct page_limit *l = calloc(1, sizeof *l);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = !l ? -ENOMEM : fd < 0 ? -errno : 0;
    void *map = MAP_FAILED;
    if (rc == 0 && flock(fd, LOCK_EX))
        rc = -errno;
    if (rc == 0)
        rc = prepare(fd);
    if (rc == 0) {
        map = mmap(NULL, sizeof(struct limit_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        rc = map == MAP_FAILED ? -errno : 0;
    }
    if (fd >= 0) {
        (void)flock(fd, LOCK_UN); /* the mapping keeps the open file, and with it the lock */
        close(fd);
    }
    if (rc) {
        free(l);
        return page_fail(why, rc, 0, "cannot use the limit file %s: %s", path,
                         rc == -EPROTO ? "another version made it" : strerror(-rc));
    }
    l->file = map;
    *out = l;
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
    uint64_t me = identity(getpid());
    forget_dead(l->file);
    for (size_t i = 0; i < PAGE_LIMIT_USERS; i++) {
        struct limit_line *line = &l->file->lines[i];
        uint64_t nobody = 0;
        if (!atomic_compare_exchange_strong(&line->owner, &nobody, me))
            continue;
        /* What the one before charged counts until here: too much for a moment, never too little.
         */
        atomic_store(&line->charged, 0);
        atomic_store(&line->mapped, 0);
        atomic_store(&line->rank, rank);
        l->mine = line;
        return 0;
    }
    return page_fail(why, -EUSERS, 0, "%d processes share this limit already", PAGE_LIMIT_USERS);
}

static uint64_t total(const struct limit_file *file)
{
    struct limit_file *f = (struct limit_file *)file;
    uint64_t sum = 0;
    for (size_t i = 0; i < PAGE_LIMIT_USERS; i++) {
        if (!atomic_load(&f->lines[i].owner))
            continue;
        uint64_t charged = atomic_load(&f->lines[i].charged);
        sum = sum + charged < sum ? UINT64_MAX : sum + charged;
    }
    return sum;
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
        atomic_fetch_add(&l->mine->charged, bytes);
        uint64_t limit = page_limit_get(l);
        used = total(l->file);
        if (limit == 0 || used <= limit)
            return 0;
        atomic_fetch_sub(&l->mine->charged, bytes);
        if (i == 0)
            forget_dead(l->file);
        else
            sched_yield();
    }
    return refuse(l, used - bytes, bytes, why);
}

void page_limit_refund(struct page_limit *l, uint64_t bytes)
{
    assert(l->mine);
    atomic_fetch_sub(&l->mine->charged, bytes);
}

void page_limit_note_mapped(struct page_limit *l, uint64_t bytes)
{
    assert(l->mine);
    atomic_store_explicit(&l->mine->mapped, bytes, memory_order_relaxed);
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
    used = total(l->file);
    return used > limit ? used - limit : 0;
}

void page_limit_ask_trim(struct page_limit *l)
{
    atomic_fetch_add(&l->file->head.trims, 1);
}

uint32_t page_limit_trims(const struct page_limit *l)
{
    return atomic_load(&l->file->head.trims);
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
    forget_dead(l->file);
    for (size_t i = 0; i < PAGE_LIMIT_USERS; i++) {
        struct limit_line *line = &l->file->lines[i];
        uint64_t owner = atomic_load(&line->owner);
        if (!owner)
            continue;
        users[count++] = (struct page_limit_user){
            .pid = (pid_t)(owner >> 32),
            .rank = atomic_load(&line->rank),
            .charged_bytes = atomic_load(&line->charged),
            .mapped_bytes = atomic_load_explicit(&line->mapped, memory_order_relaxed)};
    }
    qsort(users, count, sizeof *users, by_rank);
    return count;
}
