#include "llm/tp/exchange.h"

#include "base/looks.h"
#include "base/wait.h"
#include "page/page.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC = 0x50545748, ROOMS = 2 }; /* "HWTP" */

/* How often rank 0 looks for dead ranks while it sleeps, and the others for the flag: rank 0 ends
 * them soon after it is set. */
static const uint64_t look_every_ns = 20 * HW_MS, nap_ns = 1 * HW_SEC;

/* Commands and meetings are sequentially consistent with `sleepers`: either who comes last sees the
 * sleeper, or the sleeper sees that all have come. */
struct head {
    uint32_t magic, ranks, threads;
    _Atomic uint32_t broken; /* release, acquire: the failed rank's place is written */
    uint8_t pad[HW_CACHE_LINE - 16];
    _Atomic uint32_t ticket; /* of the last command; futex */
    uint8_t pad2[HW_CACHE_LINE - 4];
    _Atomic uint32_t came; /* to all meetings so far; futex */
    uint8_t pad3[HW_CACHE_LINE - 4];
    _Atomic uint32_t sleepers;
    uint8_t pad4[HW_CACHE_LINE - 4];
};

static_assert(sizeof(struct head) == 4 * HW_CACHE_LINE, "a line for each value that changes");

struct memory {
    struct head head;
    struct llm_tp_place places[PAGE_RANKS_MAX];
    _Alignas(4096) uint8_t rooms[ROOMS][LLM_TP_ROOM_BYTES];
    uint8_t command[LLM_TP_COMMAND_BYTES];
};

struct llm_tp_exchange {
    struct memory *memory;
    int fd; /* -1: attached */
    uint32_t ranks, rank;
    uint32_t meetings; /* that this rank has been at */
    uint32_t ticket;   /* of the last command that it posted or took */
    struct hw_wait wait;
    uint32_t (*find_dead)(void *user);
    void *user;
    uint64_t limit_ns; /* of a wait; 0: none */
    uint32_t missed;   /* a rank that is gone, or did not come within it */
    bool is_late;
    struct llm_tp_exchange_stats stats;
};

/* ---- life ---- */

static int map_memory(int fd, struct llm_tp_exchange **out)
{
    struct llm_tp_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return -ENOMEM;
    x->memory =
        mmap(NULL, sizeof *x->memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (x->memory == MAP_FAILED) {
        int error = errno;
        free(x);
        return -error;
    }
    x->fd = -1;
    *out = x;
    return 0;
}

static void begin(struct llm_tp_exchange *x, uint32_t rank)
{
    x->rank = rank;
    x->ranks = x->memory->head.ranks;
    hw_wait_init(&x->wait, HW_SPIN_NS);
    x->wait.threads = x->memory->head.threads;
}

int llm_tp_exchange_create(uint32_t ranks, uint32_t threads, struct llm_tp_exchange **out)
{
    assert(ranks > 0 && ranks <= PAGE_RANKS_MAX);
    int fd = memfd_create("hawser-tp", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    int rc = ftruncate(fd, sizeof(struct memory)) ||
                     fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
                 ? -errno
                 : map_memory(fd, out);
    if (rc) {
        close(fd);
        return rc;
    }
    (*out)->fd = fd;
    (*out)->memory->head.magic = MAGIC;
    (*out)->memory->head.ranks = ranks;
    (*out)->memory->head.threads = threads;
    begin(*out, 0);
    return 0;
}

int llm_tp_exchange_attach(int fd, uint32_t rank, struct llm_tp_exchange **out)
{
    struct stat st;
    struct llm_tp_exchange *x = NULL;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) || st.st_size != (off_t)sizeof(struct memory) || seals < 0 ||
        !(seals & F_SEAL_SHRINK))
        return -EPROTO;
    int rc = map_memory(fd, &x);
    if (rc)
        return rc;
    begin(x, rank);
    if (x->memory->head.magic != MAGIC || x->ranks > PAGE_RANKS_MAX || rank >= x->ranks) {
        llm_tp_exchange_destroy(x);
        return -EPROTO;
    }
    *out = x;
    return 0;
}

void llm_tp_exchange_destroy(struct llm_tp_exchange *x)
{
    if (!x)
        return;
    munmap(x->memory, sizeof *x->memory);
    if (x->fd >= 0)
        close(x->fd);
    free(x);
}

/* ---- what is inside ---- */

int llm_tp_exchange_fd(const struct llm_tp_exchange *x)
{
    return x->fd;
}

uint32_t llm_tp_exchange_ranks(const struct llm_tp_exchange *x)
{
    return x->ranks;
}

struct llm_tp_place *llm_tp_exchange_place(struct llm_tp_exchange *x, uint32_t rank)
{
    assert(rank < x->ranks);
    return &x->memory->places[rank];
}

void *llm_tp_exchange_command(struct llm_tp_exchange *x)
{
    return x->memory->command;
}

void *llm_tp_exchange_room(struct llm_tp_exchange *x)
{
    return x->memory->rooms[x->meetings % ROOMS];
}

void llm_tp_exchange_stats(const struct llm_tp_exchange *x, struct llm_tp_exchange_stats *out)
{
    *out = x->stats;
}

void llm_tp_exchange_watch(struct llm_tp_exchange *x, uint32_t (*find_dead)(void *user), void *user)
{
    x->find_dead = find_dead;
    x->user = user;
}

void llm_tp_exchange_limit(struct llm_tp_exchange *x, uint64_t limit_ns)
{
    assert(x->rank == 0);
    x->limit_ns = limit_ns;
}

uint32_t llm_tp_exchange_missed(const struct llm_tp_exchange *x, bool *is_late_out)
{
    *is_late_out = x->is_late;
    return x->missed;
}

/* ---- waiting ---- */

struct awaited {
    _Atomic uint32_t *word;
    uint32_t value; /* to be reached */
};

static bool has_come(void *user)
{
    const struct awaited *a = user;
    return (int32_t)(atomic_load(a->word) - a->value) >= 0;
}

static bool is_broken(const struct llm_tp_exchange *x)
{
    return atomic_load_explicit(&x->memory->head.broken, memory_order_acquire);
}

static uint32_t find_late(const struct llm_tp_exchange *x)
{
    for (uint32_t r = 1; r < x->ranks; r++) {
        const struct llm_tp_place *place = &x->memory->places[r];
        if (atomic_load_explicit(&place->meetings, memory_order_relaxed) != x->meetings)
            return r;
    }
    return 0; /* it comes just now */
}

static void look_for_missing(struct llm_tp_exchange *x, uint64_t waited_ns)
{
    bool is_over = x->limit_ns && waited_ns > x->limit_ns;
    x->missed = x->find_dead ? x->find_dead(x->user) : 0;
    if (!x->missed && is_over) {
        x->missed = find_late(x);
        x->is_late = x->missed != 0;
    }
    if (x->missed)
        llm_tp_break(x);
}

static int sleep_until(struct llm_tp_exchange *x, struct awaited *a)
{
    struct head *h = &x->memory->head;
    struct hw_looks looks;
    uint64_t began = hw_now_ns();
    hw_looks_init(&looks, nap_ns, began);
    atomic_fetch_add(&h->sleepers, 1);
    while (!is_broken(x)) {
        uint32_t seen = atomic_load(a->word);
        if (has_come(a))
            break;
        uint64_t most_ns = x->find_dead ? look_every_ns : nap_ns;
        if (hw_futex_wait(a->word, seen, most_ns, HW_FUTEX_SHARED) == -ETIMEDOUT)
            look_for_missing(x, hw_looks_at(&looks, hw_now_ns()) - began);
    }
    atomic_fetch_sub(&h->sleepers, 1);
    return has_come(a) ? 0 : -EOWNERDEAD;
}

static int wait_for(struct llm_tp_exchange *x, _Atomic uint32_t *word, uint32_t value)
{
    struct awaited a = {.word = word, .value = value};
    uint64_t left_ns = HW_NEVER;
    if (has_come(&a))
        return 0;
    if (is_broken(x))
        return -EOWNERDEAD;
    if (hw_wait_until(&x->wait, has_come, &a, &left_ns))
        return 0;
    return sleep_until(x, &a);
}

static void wake(struct llm_tp_exchange *x, _Atomic uint32_t *word)
{
    if (atomic_load(&x->memory->head.sleepers) > 0)
        hw_futex_wake(word, INT_MAX, HW_FUTEX_SHARED);
}

int llm_tp_meet(struct llm_tp_exchange *x)
{
    struct head *h = &x->memory->head;
    uint32_t all = ++x->meetings * x->ranks;
    x->stats.meetings++;
    atomic_store_explicit(&x->memory->places[x->rank].meetings, x->meetings, memory_order_relaxed);
    if (atomic_fetch_add(&h->came, 1) + 1 == all) {
        wake(x, &h->came);
        return 0;
    }
    uint64_t began = hw_now_ns();
    int rc = wait_for(x, &h->came, all);
    x->stats.wait_ns += hw_now_ns() - began;
    return rc;
}

void llm_tp_post(struct llm_tp_exchange *x)
{
    assert(x->rank == 0);
    atomic_store(&x->memory->head.ticket, ++x->ticket);
    wake(x, &x->memory->head.ticket);
}

int llm_tp_next(struct llm_tp_exchange *x)
{
    return wait_for(x, &x->memory->head.ticket, ++x->ticket);
}

void llm_tp_break(struct llm_tp_exchange *x)
{
    struct head *h = &x->memory->head;
    atomic_store_explicit(&h->broken, 1, memory_order_release);
    hw_futex_wake(&h->came, INT_MAX, HW_FUTEX_SHARED);
    hw_futex_wake(&h->ticket, INT_MAX, HW_FUTEX_SHARED);
}
