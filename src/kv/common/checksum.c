#include "kv/common/checksum.h"

#include "kv/common/checksum_impl.h"
#include "wire/le.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

enum {
    SLICES = 8,
    COPY_BYTES = 16 << 10 /* so many bytes stay in the nearest cache until they are hashed */
};

static const uint64_t polynomial = UINT64_C(0x9a6c9329ac4bc9b5); /* reflected */

/* What a byte adds to the remainder, by the number of bytes after it.  Written once. */
static uint64_t table[SLICES][256];
static pthread_once_t table_made = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint64_t byte = 0; byte < 256; byte++) {
        uint64_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? polynomial : 0);
        table[0][byte] = crc;
    }
    for (int slice = 1; slice < SLICES; slice++)
        for (int byte = 0; byte < 256; byte++) {
            uint64_t crc = table[slice - 1][byte];
            table[slice][byte] = (crc >> 8) ^ table[0][crc & 0xff];
        }
}

/* Eight bytes at a time. */
static uint64_t pass(uint64_t crc, const uint8_t *p, size_t len)
{
    for (; len >= SLICES; p += SLICES, len -= SLICES) {
        uint64_t word = crc ^ wire_load64(p);
        crc = 0;
        for (int i = 0; i < SLICES; i++)
            crc ^= table[SLICES - 1 - i][(word >> 8 * i) & 0xff];
    }
    for (; len > 0; p++, len--)
        crc = (crc >> 8) ^ table[0][(crc ^ *p) & 0xff];
    return crc;
}

/* ---- ways ---- */

/* `to` NULL: nothing is copied. */
static uint64_t go_plain(uint64_t crc, uint8_t *to, const uint8_t *from, size_t len)
{
    if (!to)
        return pass(crc, from, len);
    for (size_t at = 0, n; at < len; at += n) {
        n = len - at < COPY_BYTES ? len - at : COPY_BYTES;
        memcpy(to + at, from + at, n);
        crc = pass(crc, to + at, n);
    }
    return crc;
}

static bool always(void)
{
    return true;
}

#if defined(__aarch64__)
static bool narrow_runs(void)
{
    return getauxval(AT_HWCAP) & HWCAP_PMULL;
}
#elif defined(__x86_64__)
static bool narrow_runs(void)
{
    return __builtin_cpu_supports("pclmul");
}

static bool wide_runs(void)
{
    return narrow_runs() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("vpclmulqdq");
}
#endif

enum { FOLDS = 2 };

/* Best first. */
static const struct way {
    const char *name;
    const struct kv_fold
        *folds[FOLDS]; /* each takes what the one before it left over; NULL: none */
    bool (*runs)(void);
} ways[] = {
#if defined(__x86_64__)
    {"vpclmul", {&kv_fold_wide, &kv_fold_narrow}, wide_runs},
#endif
#if defined(__aarch64__) || defined(__x86_64__)
    {"clmul", {&kv_fold_narrow}, narrow_runs},
#endif
    {"c", {NULL}, always},
};

/* The i-th one that this CPU supports. */
static const struct way *way_at(size_t i)
{
    for (size_t k = 0; k < ARRAY_LEN(ways); k++)
        if (ways[k].runs() && i-- == 0)
            return &ways[k];
    return NULL;
}

/* Relaxed: it points to constants, and every choice gives the same checksum. */
static _Atomic(const struct way *) in_use;

static const struct way *way(void)
{
    const struct way *w = atomic_load_explicit(&in_use, memory_order_relaxed);
    (void)pthread_once(&table_made, make_table);
    if (UNLIKELY(!w)) {
        w = way_at(0);
        atomic_store_explicit(&in_use, w, memory_order_relaxed);
    }
    return w;
}

/* Progress of a copy with its checksum. */
struct run {
    uint64_t crc;
    uint8_t *to; /* NULL: nothing is copied */
    const uint8_t *from;
    size_t len;
};

static void run_on(struct run *r, uint64_t crc, size_t done)
{
    r->crc = crc;
    r->to = r->to ? r->to + done : NULL;
    r->from += done;
    r->len -= done;
}

static void run_plain(struct run *r, size_t len)
{
    run_on(r, go_plain(r->crc, r->to, r->from, len), len);
}

/* All but less than a step of it. */
static void run_fold(struct run *r, const struct kv_fold *fold)
{
    uint8_t rest[KV_FOLD_REST];
    if (r->to && r->len > KV_FOLD_LONG)
        run_plain(r, -(uintptr_t)r->to % fold->align);
    size_t whole = r->len - r->len % fold->bytes;
    if (whole == 0)
        return;
    fold->go(r->crc, r->to, r->from, whole, rest);
    run_on(r, pass(0, rest, sizeof(rest)), whole);
}

static uint64_t go(uint64_t crc, uint8_t *to, const uint8_t *from, size_t len)
{
    const struct way *w = way();
    struct run r = {.crc = crc, .to = to, .from = from, .len = len};
    for (int i = 0; i < FOLDS && w->folds[i]; i++)
        run_fold(&r, w->folds[i]);
    return go_plain(r.crc, r.to, r.from, r.len);
}

const char *kv_checksum_way(size_t i)
{
    const struct way *w = way_at(i);
    return w ? w->name : NULL;
}

int kv_checksum_use(const char *name)
{
    const struct way *w;
    for (size_t i = 0; (w = way_at(i)); i++) {
        if (strcmp(w->name, name) == 0) {
            atomic_store_explicit(&in_use, w, memory_order_relaxed);
            return 0;
        }
    }
    return -ENOENT;
}

uint64_t kv_checksum_add(uint64_t sum, const void *data, size_t len)
{
    return len ? ~go(~sum, NULL, data, len) : sum;
}

uint64_t kv_checksum_copy(uint64_t sum, void *to, const void *from, size_t len)
{
    return len ? ~go(~sum, to, from, len) : sum;
}
