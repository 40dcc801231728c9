#include "venus/server/slice/slice.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Longer than anybody's turn takes to come with a few dozen sessions; a program that waits longer
 * would take its server for dead. */
static const uint64_t wait_most_ns = 5 * HW_SEC;

struct vns_slice {
    int socket;
    uint32_t id;
    const struct vns_slice_board *board;
    /* Batches of the submission that waits, which are no work under way; 0: none waits.  Written by
     * the executor before it reads how many are pending, read by who reports after it has taken one
     * off: one of the two finds that the rest has drained. */
    _Atomic uint64_t at_hand;
    atomic_bool watched; /* some `busy` is set; relaxed: a hint */

    pthread_mutex_t lock;       /* of the rest */
    bool dead;                  /* the server does not answer */
    bool busy[VNS_SLICE_GPUS];  /* was told since it was last told that all has drained */
    bool rests[VNS_SLICE_GPUS]; /* was told since it was last busy */
    unsigned gpu;               /* the last one that was used */
    bool running;               /* work is under way, */
    uint64_t since_ns;          /* from here on */
    uint64_t busy_ns, stretches;
    _Atomic uint64_t told_ns; /* the executor reads it without the lock; relaxed */
};

int vns_slice_create(int socket, int board, uint32_t id, struct vns_slice **out)
{
    struct vns_slice *s = calloc(1, sizeof(*s));
    void *map = mmap(NULL, sizeof(struct vns_slice_board), PROT_READ, MAP_SHARED, board, 0);
    int rc = map == MAP_FAILED ? -errno : s ? 0 : -ENOMEM;
    close(board);
    if (rc) {
        close(socket);
        free(s);
        return rc;
    }
    s->socket = socket;
    s->board = map;
    s->id = id;
    s->told_ns = hw_now_ns();
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

void vns_slice_destroy(struct vns_slice *s)
{
    if (!s)
        return;
    close(s->socket);
    munmap((void *)(uintptr_t)s->board, sizeof(*s->board));
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static uint32_t allowed(const struct vns_slice *s, unsigned gpu)
{
    /* Acquire: pairs with the schedule's release. */
    return atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&s->board->allowed[gpu],
                                memory_order_acquire);
}

/* Under the lock. */
static void say(struct vns_slice *s, const struct vns_slice_message *message)
{
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    /* A server that does not read for a while misses a message; all waits have an end. */
    if (!s->dead && send(s->socket, message, sizeof(*message), flags) < 0)
        s->dead = errno != EAGAIN;
}

static void say_op(struct vns_slice *s, enum vns_slice_op op, unsigned gpu)
{
    say(s, &(struct vns_slice_message){.op = op, .gpu = gpu});
}

/* ---- how busy it is ---- */

static uint64_t load_told(const struct vns_slice *s)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&s->told_ns, memory_order_relaxed);
}

static void count_until(struct vns_slice *s, uint64_t now)
{
    if (s->running && now > s->since_ns) {
        s->busy_ns += now - s->since_ns;
        s->since_ns = now;
    }
}

/* Under the lock. */
static void tell(struct vns_slice *s, uint64_t now)
{
    count_until(s, now);
    if (s->busy_ns && allowed(s, s->gpu) == VNS_SLICE_FREE)
        say(s, &(struct vns_slice_message){.op = VNS_SLICE_USED,
                                           .gpu = s->gpu,
                                           .span_ns = now - load_told(s),
                                           .busy_ns = s->busy_ns,
                                           .stretches = s->stretches + s->running});
    atomic_store_explicit(&s->told_ns, now, memory_order_relaxed);
    s->busy_ns = s->stretches = 0;
}

void vns_slice_tell(struct vns_slice *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    tell(s, hw_now_ns());
    pthread_mutex_unlock(&s->lock);
}

void vns_slice_began(struct vns_slice *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->running = true;
    s->since_ns = hw_now_ns();
    pthread_mutex_unlock(&s->lock);
}

static bool is_drained(const struct vns_slice *s, const _Atomic uint64_t *pending)
{
    return atomic_load((_Atomic uint64_t *)(uintptr_t)pending) ==
           atomic_load((_Atomic uint64_t *)(uintptr_t)&s->at_hand);
}

/* Under the lock. */
static void say_drained(struct vns_slice *s)
{
    for (unsigned gpu = 0; gpu < VNS_SLICE_GPUS; gpu++) {
        if (s->busy[gpu])
            say_op(s, VNS_SLICE_DRAINED, gpu);
        s->busy[gpu] = false;
    }
    atomic_store_explicit(&s->watched, false, memory_order_relaxed);
}

void vns_slice_left(struct vns_slice *s, const _Atomic uint64_t *pending)
{
    if (!s || !is_drained(s, pending))
        return;
    pthread_mutex_lock(&s->lock);
    if (is_drained(s, pending)) { /* the executor may just have begun again */
        count_until(s, hw_now_ns());
        s->stretches++;
        s->running = false;
        say_drained(s);
    }
    pthread_mutex_unlock(&s->lock);
}

bool vns_slice_is_watched(const struct vns_slice *s)
{
    return s && atomic_load_explicit((atomic_bool *)(uintptr_t)&s->watched, memory_order_relaxed);
}

void vns_slice_rest(struct vns_slice *s)
{
    pthread_mutex_lock(&s->lock);
    for (unsigned gpu = 0; gpu < VNS_SLICE_GPUS; gpu++) {
        if (s->busy[gpu] && !s->rests[gpu] && allowed(s, gpu) == s->id)
            say_op(s, VNS_SLICE_RESTS, gpu);
        s->rests[gpu] = true;
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- submitting ---- */

bool vns_slice_is_on(struct vns_slice *s, unsigned gpu)
{
    if (!s || gpu >= VNS_SLICE_GPUS)
        return false;
    if (allowed(s, gpu) != VNS_SLICE_FREE)
        return true;
    uint64_t now = hw_now_ns();
    if (now - load_told(s) >= VNS_SLICE_TELL_NS || gpu != s->gpu) {
        pthread_mutex_lock(&s->lock);
        tell(s, now);
        s->gpu = gpu;
        pthread_mutex_unlock(&s->lock);
    }
    return false;
}

/* Under the lock. */
static void set_busy(struct vns_slice *s, unsigned gpu)
{
    s->busy[gpu] = true;
    s->rests[gpu] = false;
    atomic_store_explicit(&s->watched, true, memory_order_relaxed);
}

bool vns_slice_has(struct vns_slice *s, unsigned gpu)
{
    if (allowed(s, gpu) != s->id)
        return false;
    pthread_mutex_lock(&s->lock);
    if (!s->busy[gpu])
        say_op(s, VNS_SLICE_BUSY, gpu);
    set_busy(s, gpu);
    pthread_mutex_unlock(&s->lock);
    return true;
}

/* A byte of the server's means go, whatever the board says by then. */
static void await_go(struct vns_slice *s, unsigned gpu)
{
    uint64_t end = hw_now_ns() + wait_most_ns, now;
    char byte;
    while (allowed(s, gpu) != VNS_SLICE_FREE && (now = hw_now_ns()) < end) {
        struct pollfd fd = {.fd = s->socket, .events = POLLIN};
        if (poll(&fd, 1, (int)((end - now) / HW_MS) + 1) > 0 && recv(s->socket, &byte, 1, 0) >= 0)
            return; /* 0: the server has ended */
    }
}

void vns_slice_enter(struct vns_slice *s, unsigned gpu, uint64_t at_hand,
                     const _Atomic uint64_t *pending)
{
    char byte;
    while (recv(s->socket, &byte, 1, MSG_DONTWAIT) == 1)
        ; /* answers to what is over */
    atomic_store(&s->at_hand, at_hand);
    pthread_mutex_lock(&s->lock);
    if (is_drained(s, pending))
        say_drained(s);
    say_op(s, VNS_SLICE_WANT, gpu);
    bool dead = s->dead;
    pthread_mutex_unlock(&s->lock);
    if (!dead)
        await_go(s, gpu);
    atomic_store(&s->at_hand, 0);
    pthread_mutex_lock(&s->lock);
    if (!s->running) /* what was under way has drained meanwhile */
        s->since_ns = hw_now_ns();
    s->running = true;
    set_busy(s, gpu);
    pthread_mutex_unlock(&s->lock);
}
