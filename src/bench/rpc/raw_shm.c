/* Raw limit of shared memory: a flag in a cache line each way.
 *
 * In each direction the sender's line counts chunks written and the receiver's line counts chunks
 * taken.  The sender reads the receiver's line only when no chunk is free, so a ping-pong moves two
 * cache lines and nothing else.  A message of one cache line or less is the flag alone,
 * which is the strictest limit there is; larger ones are copied in and out. */
#include "bench/rpc/raw_limits.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SLOTS = 32,
    SLOT_BYTES = 64 << 10, /* both fit the cache that two cores share */
    SPINS_PER_YIELD = 1 << 16
};

struct direction {
    _Alignas(
        HW_CACHE_LINE) _Atomic uint32_t sent; /* release by the sender, acquire by the receiver */
    _Alignas(
        HW_CACHE_LINE) _Atomic uint32_t taken; /* release by the receiver, acquire by the sender */
    _Alignas(HW_CACHE_LINE) uint8_t slots[SLOTS][SLOT_BYTES];
};

struct raw_memory {
    struct raw_link base;
    struct direction *directions; /* two, shared */
    struct direction *out, *in;
    uint32_t sent, sent_limit; /* our chunks; how far the slots reach without a look at `taken` */
    uint32_t received;
    bool block;
};

static int memory_create(const struct raw_options *options, struct raw_link **out)
{
    struct raw_memory *m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    m->directions = mmap(NULL, 2 * sizeof(struct direction), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m->directions == MAP_FAILED) {
        free(m);
        return -ENOMEM;
    }
    m->base.ops = &raw_shm;
    m->sent_limit = SLOTS;
    m->block = options->spin_ns == 0;
    *out = &m->base;
    return 0;
}

static int memory_begin(struct raw_link *link, bool server)
{
    struct raw_memory *m = (struct raw_memory *)link;
    m->out = &m->directions[server];
    m->in = &m->directions[!server];
    return 0;
}

/* Waits until *word is not `old`: by futex when blocking, else by looking. */
static int wait_for_change(struct raw_memory *m, _Atomic uint32_t *word, uint32_t old)
{
    uint64_t start = hw_now_ns();
    struct timespec silence = {.tv_sec = RAW_SILENCE_NS / HW_SEC};
    for (uint32_t spins = 1; atomic_load_explicit(word, memory_order_acquire) == old; spins++) {
        if (m->block)
            syscall(SYS_futex, word, FUTEX_WAIT, old, &silence, NULL, 0);
        else
            hw_cpu_relax();
        if (m->block || spins % SPINS_PER_YIELD == 0) {
            if (hw_now_ns() - start > RAW_SILENCE_NS)
                return -ETIMEDOUT;
            sched_yield();
        }
    }
    return 0;
}

static void publish(struct raw_memory *m, _Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    if (m->block)
        syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int wait_for_slot(struct raw_memory *m)
{
    uint32_t taken = atomic_load_explicit(&m->out->taken, memory_order_acquire);
    if (taken + SLOTS == m->sent) {
        int rc = wait_for_change(m, &m->out->taken, taken);
        if (rc)
            return rc;
        taken = atomic_load_explicit(&m->out->taken, memory_order_acquire);
    }
    m->sent_limit = taken + SLOTS;
    return 0;
}

static int memory_send(struct raw_link *link, const void *data, size_t len)
{
    struct raw_memory *m = (struct raw_memory *)link;
    for (size_t at = 0; at < len;) {
        size_t n = len - at < SLOT_BYTES ? len - at : SLOT_BYTES;
        if (m->sent == m->sent_limit) {
            int rc = wait_for_slot(m);
            if (rc)
                return rc;
        }
        if (len > HW_CACHE_LINE)
            memcpy(m->out->slots[m->sent % SLOTS], (const char *)data + at, n);
        publish(m, &m->out->sent, ++m->sent);
        at += n;
    }
    return 0;
}

static int memory_recv(struct raw_link *link, void *data, size_t len)
{
    struct raw_memory *m = (struct raw_memory *)link;
    for (size_t at = 0; at < len;) {
        size_t n = len - at < SLOT_BYTES ? len - at : SLOT_BYTES;
        int rc = wait_for_change(m, &m->in->sent, m->received);
        if (rc)
            return rc;
        if (len > HW_CACHE_LINE)
            memcpy((char *)data + at, m->in->slots[m->received % SLOTS], n);
        m->received++;
        if (len > HW_CACHE_LINE || m->received % (SLOTS / 2) == 0)
            publish(m, &m->in->taken, m->received);
        at += n;
    }
    return 0;
}

static void memory_destroy(struct raw_link *link)
{
    struct raw_memory *m = (struct raw_memory *)link;
    munmap(m->directions, 2 * sizeof(struct direction));
    free(m);
}

const struct raw_ops raw_shm = {
    .name = "flag in shared memory",
    .create = memory_create,
    .begin = memory_begin,
    .send = memory_send,
    .recv = memory_recv,
    .destroy = memory_destroy,
};
