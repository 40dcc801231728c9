/* Chunks on stripes; see arrivals.h. */
#include "venus/server/upload/arrivals.h"

#include "base/clock.h"
#include "venus/common/transfer/stripe.h"
#include "venus/memory/pageset.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* The longest that a thread waits for bytes before it looks whether it is to end. */
static const uint64_t slice_ns = 50 * HW_MS;
/* Chunks of one upload, and the uploads of a large one, follow each other within some 50 us. */
static const uint64_t awake_ns = 300 * HW_US;

struct stripe {
    struct vns_arrivals *all;
    struct rpc_transport *transport;
    pthread_t thread;     /* but for the first, which is the executor's */
    pthread_mutex_t turn; /* of who reads it; but for the first it guards the rest */
    uint8_t head[VN_CHUNK_HEAD];
    size_t have;      /* of the head */
    uint8_t *scratch; /* VN_CHUNK_BYTES, from the first that is stored on */
};

struct vns_arrivals {
    const struct vns_arrival_ops *ops;
    void *user;
    bool spins;
    pthread_mutex_t lock;
    pthread_cond_t wakes; /* stripes wait for an upload */
    pthread_cond_t ended; /* the executor waits for stripes */
    /* Under the lock. */
    uint64_t memory, off, end; /* of the upload that is open */
    uint64_t missing;          /* its bytes that no chunk has announced */
    /* Change under the lock, and are looked at without: relaxed, who acts on them looks again. */
    _Atomic uint32_t upload; /* the last one opened */
    _Atomic bool open;
    _Atomic bool stopping;
    _Atomic int fault;        /* the first one; no upload is taken after it */
    _Atomic uint64_t arrived; /* of this upload; released by the stripe, which wrote before */
    _Atomic uint64_t total;   /* relaxed: a figure */
    unsigned count;
    struct stripe stripes[VN_STRIPES_MAX];
};

static bool is_set(const _Atomic bool *flag)
{
    return atomic_load_explicit(flag, memory_order_relaxed);
}

static int fault_of(const struct vns_arrivals *a)
{
    return atomic_load_explicit(&a->fault, memory_order_relaxed);
}

/* Nobody waits for more: it ends, or another stripe has failed. */
static bool is_over(const struct vns_arrivals *a)
{
    return is_set(&a->stopping) || fault_of(a);
}

/* ---- a stripe ---- */

/* How long to wait for bytes: not at all while it is better to look again. */
static uint64_t wait_of(const struct vns_arrivals *a, uint64_t since)
{
    return a->spins && hw_now_ns() - since < awake_ns ? 0 : slice_ns;
}

/* All of it, or what ended the stripe. */
static int receive(struct stripe *stripe, uint8_t *to, size_t len)
{
    struct vns_arrivals *a = stripe->all;
    uint64_t since = hw_now_ns();
    while (len > 0) {
        if (is_over(a))
            return -ECANCELED;
        struct iovec iov = {to, len};
        ssize_t n = stripe->transport->ops->recv(stripe->transport, &iov, 1, wait_of(a, since));
        if (n < 0 && n != -EAGAIN)
            return (int)n;
        if (n > 0) {
            to += n;
            len -= (size_t)n;
            since = hw_now_ns();
        }
    }
    return 0;
}

/* 1 when there is a whole head, 0 when there is not, or what ended the stripe. */
static int look_for_head(struct stripe *stripe, uint64_t wait_ns)
{
    if (stripe->have == sizeof(stripe->head))
        return 1;
    struct iovec iov = {stripe->head + stripe->have, sizeof(stripe->head) - stripe->have};
    ssize_t n = stripe->transport->ops->recv(stripe->transport, &iov, 1, wait_ns);
    if (n < 0)
        return n == -EAGAIN ? 0 : (int)n;
    stripe->have += (size_t)n;
    return stripe->have == sizeof(stripe->head);
}

/* The executor has not come to the upload yet: a client may be several ahead. */
static bool is_early(const struct vns_arrivals *a, const struct vn_chunk *chunk)
{
    uint32_t last = atomic_load_explicit(&a->upload, memory_order_relaxed);
    return (int32_t)(chunk->upload - last) > 0 && !is_over(a);
}

/* Under the lock.  With more bytes than the upload has, some might still be written when it is
 * over.
 */
static bool belongs(const struct vns_arrivals *a, const struct vn_chunk *chunk)
{
    return is_set(&a->open) && chunk->upload == a->upload && chunk->bytes <= VN_CHUNK_BYTES &&
           chunk->bytes <= a->missing && chunk->offset % VN_PAGE_BYTES == 0 &&
           chunk->offset >= a->off && chunk->offset <= a->end &&
           chunk->bytes <= a->end - chunk->offset;
}

/* Waits until the upload of the chunk is open.  0 with its memory; -EPROTO for a chunk that has
 * none, or does not belong there. */
static int await_upload_of(struct vns_arrivals *a, const struct vn_chunk *chunk, uint64_t *memory)
{
    uint64_t since = hw_now_ns();
    while (a->spins && is_early(a, chunk) && hw_now_ns() - since < awake_ns)
        hw_cpu_relax();
    pthread_mutex_lock(&a->lock);
    while (is_early(a, chunk))
        pthread_cond_wait(&a->wakes, &a->lock);
    *memory = a->memory;
    int rc = is_over(a) ? -ECANCELED : belongs(a, chunk) ? 0 : -EPROTO;
    if (rc == 0)
        a->missing -= chunk->bytes;
    pthread_mutex_unlock(&a->lock);
    return rc;
}

static int receive_chunk(struct stripe *stripe, const struct vn_chunk *chunk, uint64_t memory)
{
    struct vns_arrivals *a = stripe->all;
    uint8_t *place = a->ops->place(a->user, memory, chunk->offset, chunk->bytes);
    if (place)
        return receive(stripe, place, chunk->bytes);
    if (!stripe->scratch && (stripe->scratch = malloc(VN_CHUNK_BYTES)) == NULL)
        return -ENOMEM;
    int rc = receive(stripe, stripe->scratch, chunk->bytes);
    return rc ? rc : a->ops->store(a->user, memory, chunk->offset, stripe->scratch, chunk->bytes);
}

/* 0, with *bytes 0 for an end; or a fault. */
static int serve_chunk(struct stripe *stripe, uint32_t *bytes)
{
    struct vns_arrivals *a = stripe->all;
    struct vn_chunk chunk = vn_chunk_get(stripe->head);
    uint64_t memory;
    stripe->have = 0;
    if (stripe == a->stripes && is_early(a, &chunk))
        return -EPROTO; /* who serves this stripe is who would open it */
    int rc = await_upload_of(a, &chunk, &memory);
    if (rc == 0 && chunk.bytes)
        rc = receive_chunk(stripe, &chunk, memory);
    if (rc)
        return rc;
    *bytes = chunk.bytes;
    atomic_fetch_add_explicit(&a->total, chunk.bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&a->arrived, chunk.bytes, memory_order_release);
    return 0;
}

/* ---- the other stripes' threads ---- */

/* Who waits looks again. */
static void tell(struct vns_arrivals *a, int fault)
{
    int none = 0;
    pthread_mutex_lock(&a->lock);
    if (fault) {
        (void)atomic_compare_exchange_strong(&a->fault, &none, fault);
        pthread_cond_broadcast(&a->wakes);
    }
    pthread_cond_signal(&a->ended);
    pthread_mutex_unlock(&a->lock);
}

/* Whether to go on without bytes: an upload is open, or may be at any moment. */
static bool is_awake(const struct vns_arrivals *a, uint64_t since)
{
    return is_set(&a->open) || (a->spins && hw_now_ns() - since < awake_ns);
}

static bool is_head_early(const struct stripe *stripe)
{
    struct vn_chunk chunk = vn_chunk_get(stripe->head);
    return is_early(stripe->all, &chunk);
}

/* With the stripe's turn: whether a chunk came.  Who is not patient leaves one that is early to
 * others.  A fault is told before another reads the stripe, who would find another. */
static bool serve_next(struct stripe *stripe, uint64_t wait_ns, bool patient)
{
    uint32_t bytes;
    int rc = is_over(stripe->all) ? 0 : look_for_head(stripe, wait_ns);
    if (rc == 0 || (rc == 1 && !patient && is_head_early(stripe)))
        return false;
    if (rc == 1)
        rc = serve_chunk(stripe, &bytes);
    if (rc)
        tell(stripe->all, rc);
    return rc == 0;
}

static void serve_stripe(struct stripe *stripe)
{
    struct vns_arrivals *a = stripe->all;
    uint64_t since = hw_now_ns();
    while (!is_over(a) && is_awake(a, since)) {
        if (!is_set(&a->open)) {
            hw_cpu_relax(); /* a look at the socket would find what cannot be stored yet */
            continue;
        }
        pthread_mutex_lock(&stripe->turn);
        bool came = serve_next(stripe, wait_of(a, since), true);
        pthread_mutex_unlock(&stripe->turn);
        if (came) {
            tell(a, 0);
            since = hw_now_ns();
        }
    }
}

static void *stripe_main(void *arg)
{
    struct stripe *stripe = arg;
    struct vns_arrivals *a = stripe->all;
    while (!is_over(a)) {
        pthread_mutex_lock(&a->lock);
        while (!is_over(a) && !is_set(&a->open))
            pthread_cond_wait(&a->wakes, &a->lock);
        pthread_mutex_unlock(&a->lock);
        serve_stripe(stripe);
    }
    return NULL;
}

/* ---- the executor's ---- */

static void open_upload(struct vns_arrivals *a, uint64_t memory, uint64_t off, uint64_t len)
{
    pthread_mutex_lock(&a->lock);
    a->memory = memory;
    a->off = off;
    a->end = off + len;
    a->missing = len;
    atomic_fetch_add_explicit(&a->upload, 1, memory_order_relaxed);
    atomic_store_explicit(&a->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&a->open, true, memory_order_relaxed);
    pthread_cond_broadcast(&a->wakes);
    pthread_mutex_unlock(&a->lock);
}

/* The first stripe, up to its end. */
static int serve_first(struct vns_arrivals *a)
{
    uint64_t since = hw_now_ns();
    uint32_t bytes = 1;
    int rc = 0;
    while (rc == 0 && bytes) {
        rc = is_over(a) ? -ECANCELED : look_for_head(&a->stripes[0], wait_of(a, since));
        if (rc == 1) {
            rc = serve_chunk(&a->stripes[0], &bytes);
            since = hw_now_ns();
        }
    }
    return rc;
}

static bool is_complete(const struct vns_arrivals *a, uint64_t bytes)
{
    return is_over(a) || atomic_load_explicit(&a->arrived, memory_order_acquire) >= bytes;
}

/* In place of threads that sleep, or have lost their core, and would come some hundred microseconds
 * late.  Whether a chunk came. */
static bool serve_others(struct vns_arrivals *a)
{
    bool came = false;
    for (struct stripe *stripe = a->stripes + 1; stripe < a->stripes + a->count; stripe++) {
        if (pthread_mutex_trylock(&stripe->turn))
            continue;
        came |= serve_next(stripe, 0, false);
        pthread_mutex_unlock(&stripe->turn);
    }
    return came;
}

static void await_others(struct vns_arrivals *a, uint64_t bytes)
{
    uint64_t since = hw_now_ns();
    while (!is_complete(a, bytes)) {
        if (serve_others(a))
            since = hw_now_ns();
        else if (!a->spins || hw_now_ns() - since >= awake_ns)
            break;
        else
            hw_cpu_relax();
    }
    pthread_mutex_lock(&a->lock);
    while (!is_complete(a, bytes))
        pthread_cond_wait(&a->ended, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

int vns_arrivals_take(struct vns_arrivals *a, uint64_t memory, uint64_t off, uint64_t len)
{
    open_upload(a, memory, off, len);
    int rc = serve_first(a);
    if (rc == 0)
        await_others(a, len);
    else
        tell(a, rc);
    pthread_mutex_lock(&a->lock);
    atomic_store_explicit(&a->open, false, memory_order_relaxed);
    pthread_mutex_unlock(&a->lock);
    return fault_of(a);
}

uint64_t vns_arrivals_bytes(const struct vns_arrivals *a)
{
    return atomic_load_explicit(&a->total, memory_order_relaxed);
}

/* ---- life ---- */

static void stop(struct vns_arrivals *a, unsigned stripes)
{
    pthread_mutex_lock(&a->lock);
    atomic_store_explicit(&a->stopping, true, memory_order_relaxed);
    pthread_cond_broadcast(&a->wakes);
    pthread_mutex_unlock(&a->lock);
    for (unsigned i = 1; i < stripes; i++)
        pthread_join(a->stripes[i].thread, NULL);
}

static void release(struct vns_arrivals *a)
{
    for (unsigned i = 0; i < a->count; i++) {
        rpc_transport_destroy(a->stripes[i].transport);
        pthread_mutex_destroy(&a->stripes[i].turn);
        free(a->stripes[i].scratch);
    }
    pthread_cond_destroy(&a->ended);
    pthread_cond_destroy(&a->wakes);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

int vns_arrivals_create(struct rpc_transport *const *stripes, unsigned count, bool spins,
                        const struct vns_arrival_ops *ops, void *user, struct vns_arrivals **out)
{
    struct vns_arrivals *a = calloc(1, sizeof(*a));
    assert(count > 0 && count <= VN_STRIPES_MAX);
    if (!a) {
        for (unsigned i = 0; i < count; i++)
            rpc_transport_destroy(stripes[i]);
        return -ENOMEM;
    }
    a->ops = ops;
    a->user = user;
    a->spins = spins;
    a->count = count;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wakes, NULL);
    pthread_cond_init(&a->ended, NULL);
    for (unsigned i = 0; i < count; i++) {
        a->stripes[i] = (struct stripe){.all = a, .transport = stripes[i]};
        pthread_mutex_init(&a->stripes[i].turn, NULL);
    }
    for (unsigned i = 1; i < count; i++) {
        if (pthread_create(&a->stripes[i].thread, NULL, stripe_main, &a->stripes[i])) {
            stop(a, i);
            release(a);
            return -EAGAIN;
        }
    }
    *out = a;
    return 0;
}

void vns_arrivals_destroy(struct vns_arrivals *a)
{
    if (!a)
        return;
    stop(a, a->count);
    release(a);
}
