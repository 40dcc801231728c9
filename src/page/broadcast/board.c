#include "page/broadcast/board.h"

#include "base/wait.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BOARD_MAGIC = 0x44425047, /* "GPBD" */
    COMMAND_WORDS = (PAGE_COMMAND_BYTES_MAX + 3) / 4,
    ANSWER_WORDS = (PAGE_ANSWER_BYTES_MAX + 3) / 4
};

/* A stop that comes between a worker's look and its sleep is noticed after this time. */
static const uint64_t nap_ns = 100 * HW_MS;

struct board_head {
    _Atomic uint32_t ticket; /* futex of the workers; odd while the command is being written */
    _Atomic uint32_t len;
    _Atomic uint64_t ranks;
    uint32_t magic;
    uint8_t pad[HW_CACHE_LINE - 20];
};

struct board_pending {
    _Atomic uint32_t
        missing; /* futex of the scheduler: ticket << 8 | ranks that have not answered */
    _Atomic uint32_t sleeps; /* the scheduler does */
    uint8_t pad[HW_CACHE_LINE - 8];
};

struct board_place {
    _Atomic uint32_t ticket; /* that the answer is to */
    _Atomic uint32_t len;
    _Atomic uint32_t sleeps; /* the worker does */
    uint8_t pad[HW_CACHE_LINE - 12];
    _Atomic uint32_t words[ANSWER_WORDS];
    uint8_t tail[HW_CACHE_LINE - ANSWER_WORDS * 4 % HW_CACHE_LINE];
};

struct board_map {
    struct board_head head;
    struct board_pending pending;
    _Atomic uint32_t words[COMMAND_WORDS];
    uint8_t tail[HW_CACHE_LINE - COMMAND_WORDS * 4 % HW_CACHE_LINE];
    struct board_place places[];
};

_Static_assert(sizeof(struct board_head) == HW_CACHE_LINE, "a line");
_Static_assert(sizeof(struct board_pending) == HW_CACHE_LINE, "a line");
_Static_assert(sizeof(struct board_place) % HW_CACHE_LINE == 0, "whole lines");

struct page_board {
    struct board_map *map;
    size_t bytes;
    int fd; /* -1 on a worker's side */
    uint32_t ranks, rank;
    uint32_t ticket; /* scheduler: the last published; worker: the last seen */
    struct hw_wait wait;
    _Atomic bool stop;
};

static size_t board_bytes(uint32_t ranks)
{
    return sizeof(struct board_map) + ranks * sizeof(struct board_place);
}

/* Another process may be writing these bytes.  Atomic words make that no data race; the ticket
 * tells whether the copy is whole. */
static void copy_in(_Atomic uint32_t *words, const void *src, uint32_t len)
{
    const uint8_t *from = src;
    for (uint32_t at = 0; at < len; at += 4) {
        uint32_t word = 0;
        memcpy(&word, from + at, len - at < 4 ? len - at : 4);
        atomic_store_explicit(&words[at / 4], word, memory_order_relaxed);
    }
}

static void copy_out(const _Atomic uint32_t *words, void *dst, uint32_t len)
{
    uint8_t *to = dst;
    for (uint32_t at = 0; at < len; at += 4) {
        uint32_t word =
            atomic_load_explicit((_Atomic uint32_t *)&words[at / 4], memory_order_relaxed);
        memcpy(to + at, &word, len - at < 4 ? len - at : 4);
    }
}

/* ---- life ---- */

static int board_map(int fd, uint32_t ranks, struct page_board **out)
{
    struct page_board *b = calloc(1, sizeof *b);
    if (!b)
        return -ENOMEM;
    b->bytes = board_bytes(ranks);
    b->map = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (b->map == MAP_FAILED) {
        free(b);
        return -errno;
    }
    b->fd = -1;
    b->ranks = ranks;
    hw_wait_init(&b->wait, HW_SPIN_NS);
    b->wait.threads = ranks + 1; /* the scheduler, too */
    *out = b;
    return 0;
}

int page_board_create(uint32_t ranks, struct page_board **out)
{
    assert(ranks > 0 && ranks <= PAGE_RANKS_MAX);
    struct page_board *b = NULL;
    int fd = memfd_create("hawser-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    int rc = 0;
    if (ftruncate(fd, (off_t)board_bytes(ranks)) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        rc = -errno;
    if (rc == 0)
        rc = board_map(fd, ranks, &b);
    if (rc) {
        close(fd);
        return rc;
    }
    b->fd = fd;
    b->map->head.magic = BOARD_MAGIC;
    *out = b;
    return 0;
}

int page_board_fd(const struct page_board *b)
{
    return b->fd;
}

int page_board_attach(int fd, uint32_t rank, struct page_board **out)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st))
        return -EPROTO;
    for (uint32_t ranks = 1; ranks <= PAGE_RANKS_MAX; ranks++) {
        if ((size_t)st.st_size != board_bytes(ranks))
            continue;
        if (rank >= ranks)
            return -EINVAL;
        struct page_board *b = NULL;
        int rc = board_map(fd, ranks, &b);
        if (rc)
            return rc;
        if (b->map->head.magic != BOARD_MAGIC) {
            page_board_destroy(b);
            return -EPROTO;
        }
        b->rank = rank;
        b->ticket = atomic_load_explicit(&b->map->head.ticket, memory_order_acquire) & ~1u;
        *out = b;
        return 0;
    }
    return -EPROTO;
}

void page_board_destroy(struct page_board *b)
{
    if (!b)
        return;
    munmap(b->map, b->bytes);
    if (b->fd >= 0)
        close(b->fd);
    free(b);
}

/* ---- the scheduler ---- */

static bool anybody_sleeps(struct page_board *b)
{
    for (uint32_t r = 0; r < b->ranks; r++) {
        /* seq_cst, with wait_for_ticket: this load sees the sleeper, or the worker sees the ticket.
         */
        if (atomic_load_explicit(&b->map->places[r].sleeps, memory_order_seq_cst))
            return true;
    }
    return false;
}

void page_board_post(struct page_board *b, const void *command, uint32_t len, uint64_t ranks)
{
    assert(len <= PAGE_COMMAND_BYTES_MAX && ranks);
    struct board_head *head = &b->map->head;
    uint32_t ticket = b->ticket + 2;
    /* Odd before the bytes change (the fence), even after (the release below). */
    atomic_store_explicit(&head->ticket, b->ticket + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    copy_in(b->map->words, command, len);
    atomic_store_explicit(&head->len, len, memory_order_relaxed);
    atomic_store_explicit(&head->ranks, ranks, memory_order_relaxed);
    atomic_store_explicit(&b->map->pending.missing,
                          ticket << 8 | (uint32_t)__builtin_popcountll(ranks),
                          memory_order_relaxed);
    b->ticket = ticket;
    atomic_store_explicit(&head->ticket, ticket, memory_order_seq_cst);
    if (anybody_sleeps(b))
        hw_futex_wake(&head->ticket, INT_MAX, HW_FUTEX_SHARED);
}

static bool all_answered(struct page_board *b, uint32_t *missing)
{
    /* Acquire: pairs with the countdown in page_board_reply; all answers are there. */
    *missing = atomic_load_explicit(&b->map->pending.missing, memory_order_acquire);
    return *missing == b->ticket << 8;
}

static bool answers_came(void *user)
{
    uint32_t missing;
    return all_answered(user, &missing);
}

int page_board_wait(struct page_board *b, uint64_t until_ns)
{
    struct board_pending *pending = &b->map->pending;
    uint32_t missing;
    uint64_t left = HW_NEVER; /* the spin budget is far below what until_ns leaves */
    if (hw_wait_until(&b->wait, answers_came, b, &left))
        return 0;
    for (;;) {
        /* seq_cst, with page_board_reply: the last worker sees this store, or we see its count. */
        atomic_store_explicit(&pending->sleeps, 1, memory_order_seq_cst);
        bool done = all_answered(b, &missing);
        uint64_t now = done ? 0 : page_host_ns();
        if (!done && now < until_ns)
            (void)hw_futex_wait(&pending->missing, missing, until_ns - now, HW_FUTEX_SHARED);
        atomic_store_explicit(&pending->sleeps, 0, memory_order_relaxed);
        if (done)
            return 0;
        if (now >= until_ns)
            return -ETIMEDOUT;
    }
}

int page_board_answer(struct page_board *b, uint32_t rank, uint8_t out[PAGE_ANSWER_BYTES_MAX])
{
    assert(rank < b->ranks);
    struct board_place *place = &b->map->places[rank];
    if (atomic_load_explicit(&place->ticket, memory_order_acquire) != b->ticket)
        return -EAGAIN;
    uint32_t len = atomic_load_explicit(&place->len, memory_order_relaxed);
    if (len > PAGE_ANSWER_BYTES_MAX)
        return -EPROTO;
    copy_out(place->words, out, len);
    return (int)len;
}

/* ---- a worker ---- */

static bool command_came(void *user)
{
    struct page_board *b = user;
    return atomic_load_explicit(&b->map->head.ticket, memory_order_acquire) != b->ticket;
}

/* Waits until the ticket has changed since the last one seen.  Returns the new one. */
static uint32_t wait_for_ticket(struct page_board *b)
{
    struct board_place *place = &b->map->places[b->rank];
    _Atomic uint32_t *ticket = &b->map->head.ticket;
    uint32_t seen = 0;
    uint64_t left = HW_NEVER;
    (void)hw_wait_until(&b->wait, command_came, b, &left);
    while (!atomic_load_explicit(&b->stop, memory_order_relaxed)) {
        atomic_store_explicit(&place->sleeps, 1, memory_order_seq_cst);
        seen = atomic_load_explicit(ticket, memory_order_seq_cst);
        if (seen != b->ticket && !(seen & 1))
            break;
        (void)hw_futex_wait(ticket, seen, nap_ns, HW_FUTEX_SHARED);
    }
    atomic_store_explicit(&place->sleeps, 0, memory_order_relaxed);
    return seen;
}

/* The command behind a ticket: its length, 0 when it is for others, -EAGAIN when it has changed. */
static int copy_command(struct page_board *b, uint32_t ticket, uint8_t *out)
{
    struct board_head *head = &b->map->head;
    uint32_t len = atomic_load_explicit(&head->len, memory_order_relaxed);
    uint64_t ranks = atomic_load_explicit(&head->ranks, memory_order_relaxed);
    if (len > PAGE_COMMAND_BYTES_MAX)
        len = 0;
    copy_out(b->map->words, out, len);
    /* Before the second look; pairs with the release fence in page_board_post. */
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&head->ticket, memory_order_relaxed) != ticket)
        return -EAGAIN;
    return ranks & UINT64_C(1) << b->rank ? (int)len : 0;
}

int page_board_next(struct page_board *b, uint8_t out[PAGE_COMMAND_BYTES_MAX])
{
    for (;;) {
        uint32_t ticket = wait_for_ticket(b);
        if (atomic_load_explicit(&b->stop, memory_order_relaxed))
            return -ECANCELED;
        int len = copy_command(b, ticket, out);
        if (len == -EAGAIN)
            continue;
        b->ticket = ticket;
        if (len > 0)
            return len;
    }
}

/* Counts down, unless the scheduler has published another command.  True for the last worker. */
static bool count_down(struct page_board *b)
{
    _Atomic uint32_t *missing = &b->map->pending.missing;
    uint32_t old = atomic_load_explicit(missing, memory_order_relaxed);
    do {
        if (old >> 8 != (b->ticket & 0xffffff) || (old & 0xff) == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(missing, &old, old - 1, memory_order_seq_cst,
                                                    memory_order_relaxed));
    return (old & 0xff) == 1;
}

void page_board_reply(struct page_board *b, const void *answer, uint32_t len)
{
    assert(len <= PAGE_ANSWER_BYTES_MAX);
    struct board_place *place = &b->map->places[b->rank];
    copy_in(place->words, answer, len);
    atomic_store_explicit(&place->len, len, memory_order_relaxed);
    atomic_store_explicit(&place->ticket, b->ticket, memory_order_release);
    if (count_down(b) && atomic_load_explicit(&b->map->pending.sleeps, memory_order_seq_cst))
        hw_futex_wake(&b->map->pending.missing, INT_MAX, HW_FUTEX_SHARED);
}

void page_board_stop(struct page_board *b)
{
    atomic_store_explicit(&b->stop, true, memory_order_relaxed);
    hw_futex_wake(&b->map->head.ticket, INT_MAX, HW_FUTEX_SHARED);
}
