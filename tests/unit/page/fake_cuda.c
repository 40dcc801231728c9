#include "fake_cuda.h"

#include "base/attr.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    HANDLES_MAX = 4096,
    MAPPINGS_MAX = 8192,
    RANGES_MAX = 64,
    GRANULARITY = 2 << 20
};

#define TOTAL_BYTES (UINT64_C(1) << 30)

typedef unsigned long long ptr;

struct handle {
    int fd; /* 0: free entry */
    size_t bytes;
    unsigned mappings;
    bool released;
};

struct mapping {
    ptr at;
    size_t bytes; /* 0: free entry */
    unsigned handle;
    bool access;
};

struct range {
    ptr at;
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle handles[HANDLES_MAX];
static struct mapping mappings[MAPPINGS_MAX];
static struct range ranges[RANGES_MAX];
static uint64_t calls, fail_first, fail_last, capacity, live_bytes, syncs;

/* ---- controls ---- */

PUBLIC fake_cuda_fail_fn fake_cuda_fail;
PUBLIC fake_cuda_calls_fn fake_cuda_calls;
PUBLIC fake_cuda_live_fn fake_cuda_live;
PUBLIC fake_cuda_capacity_fn fake_cuda_capacity;
PUBLIC fake_cuda_syncs_fn fake_cuda_syncs;

void fake_cuda_fail(uint64_t first, uint64_t last)
{
    calls = 0;
    fail_first = first;
    fail_last = last;
}

uint64_t fake_cuda_calls(void)
{
    return calls;
}

void fake_cuda_live(uint64_t *bytes, uint64_t *count)
{
    *bytes = live_bytes;
    *count = 0;
    for (int i = 0; i < MAPPINGS_MAX; i++)
        *count += mappings[i].bytes != 0;
}

void fake_cuda_capacity(uint64_t bytes)
{
    capacity = bytes;
}

uint64_t fake_cuda_syncs(void)
{
    return syncs;
}

static bool must_fail(void)
{
    calls++;
    return calls >= fail_first && calls <= fail_last;
}

/* ---- the driver ---- */

#define DRIVER(name, ...)                                                                          \
    PUBLIC int name(__VA_ARGS__);                                                                  \
    int name(__VA_ARGS__)

DRIVER(cuInit, unsigned flags)
{
    return flags ? INVALID_VALUE : OK;
}

DRIVER(cuGetErrorName, int rc, const char **text)
{
    *text = rc == OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
            : rc == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
                                  : "CUDA_ERROR_UNKNOWN";
    return OK;
}

DRIVER(cuGetErrorString, int rc, const char **text)
{
    *text = rc == OUT_OF_MEMORY   ? "out of memory"
            : rc == INVALID_VALUE ? "invalid argument"
                                  : "unknown error";
    return OK;
}

DRIVER(cuDeviceGetCount, int *count)
{
    *count = 1;
    return OK;
}

DRIVER(cuDeviceGet, int *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? OK : INVALID_VALUE;
}

DRIVER(cuDeviceGetName, char *name, int len, int device)
{
    snprintf(name, (size_t)len, "fake device %d", device);
    return OK;
}

DRIVER(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 102;
    return OK;
}

DRIVER(cuDeviceTotalMem_v2, size_t *bytes, int device)
{
    (void)device;
    *bytes = TOTAL_BYTES;
    return OK;
}

DRIVER(cuDevicePrimaryCtxRetain, void **context, int device)
{
    (void)device;
    *context = ranges;
    return OK;
}

DRIVER(cuDevicePrimaryCtxRelease_v2, int device)
{
    return device == 0 ? OK : INVALID_VALUE;
}

DRIVER(cuCtxSetCurrent, void *context)
{
    return context == ranges ? OK : INVALID_VALUE;
}

DRIVER(cuCtxSynchronize, void)
{
    syncs++;
    return OK;
}

DRIVER(cuMemGetAllocationGranularity, size_t *bytes, const void *prop, int kind)
{
    (void)prop;
    *bytes = GRANULARITY;
    return kind == 0 ? OK : INVALID_VALUE;
}

DRIVER(cuMemAddressReserve, ptr *at, size_t bytes, size_t align, ptr wish, unsigned long long flags)
{
    (void)align, (void)wish, (void)flags;
    if (bytes == 0 || bytes % GRANULARITY)
        return INVALID_VALUE;
    void *got = mmap(NULL, bytes + GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED)
        return OUT_OF_MEMORY;
    ptr aligned = ((ptr)(uintptr_t)got + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    for (int i = 0; i < RANGES_MAX; i++) {
        if (!ranges[i].bytes) {
            ranges[i] = (struct range){aligned, bytes};
            *at = aligned;
            return OK;
        }
    }
    return OUT_OF_MEMORY;
}

static bool overlaps(const struct mapping *m, ptr at, size_t bytes)
{
    return m->bytes && m->at < at + bytes && at < m->at + m->bytes;
}

static bool anything_in(ptr at, size_t bytes)
{
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        if (overlaps(&mappings[i], at, bytes))
            return true;
    }
    return false;
}

DRIVER(cuMemAddressFree, ptr at, size_t bytes)
{
    for (int i = 0; i < RANGES_MAX; i++) {
        if (ranges[i].at == at && ranges[i].bytes == bytes && !anything_in(at, bytes)) {
            ranges[i] = (struct range){0};
            return munmap((void *)(uintptr_t)at, bytes) ? INVALID_VALUE : OK;
        }
    }
    return INVALID_VALUE;
}

static int create(ptr *handle, size_t bytes)
{
    uint64_t most = capacity ? capacity : TOTAL_BYTES;
    if (must_fail())
        return FAKE_CUDA_ERROR;
    if (bytes == 0 || bytes % GRANULARITY)
        return INVALID_VALUE;
    if (live_bytes + bytes > most)
        return OUT_OF_MEMORY;
    for (unsigned i = 0; i < HANDLES_MAX; i++) {
        if (handles[i].fd)
            continue;
        int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
        if (fd <= 0 || ftruncate(fd, (off_t)bytes))
            return OUT_OF_MEMORY;
        handles[i] = (struct handle){.fd = fd, .bytes = bytes};
        live_bytes += bytes;
        *handle = i + 1;
        return OK;
    }
    return OUT_OF_MEMORY;
}

DRIVER(cuMemCreate, ptr *handle, size_t bytes, const void *prop, unsigned long long flags)
{
    (void)prop, (void)flags;
    pthread_mutex_lock(&lock);
    int rc = create(handle, bytes);
    pthread_mutex_unlock(&lock);
    return rc;
}

static void drop_unused(struct handle *h)
{
    if (!h->released || h->mappings)
        return;
    close(h->fd);
    live_bytes -= h->bytes;
    *h = (struct handle){0};
}

static struct handle *handle_of(ptr handle)
{
    struct handle *h = handle > 0 && handle <= HANDLES_MAX ? &handles[handle - 1] : NULL;
    return h && h->fd && !h->released ? h : NULL;
}

DRIVER(cuMemRelease, ptr handle)
{
    pthread_mutex_lock(&lock);
    struct handle *h = handle_of(handle);
    if (h) {
        h->released = true;
        drop_unused(h);
    }
    pthread_mutex_unlock(&lock);
    return h ? OK : INVALID_VALUE;
}

static bool in_a_range(ptr at, size_t bytes)
{
    for (int i = 0; i < RANGES_MAX; i++) {
        if (at >= ranges[i].at && at + bytes <= ranges[i].at + ranges[i].bytes)
            return true;
    }
    return false;
}

static int map(ptr at, size_t bytes, size_t offset, ptr handle)
{
    struct handle *h = handle_of(handle);
    if (must_fail())
        return FAKE_CUDA_ERROR;
    if (!h || offset || bytes != h->bytes || !in_a_range(at, bytes) || anything_in(at, bytes))
        return INVALID_VALUE;
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        if (mappings[i].bytes)
            continue;
        if (mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, h->fd, 0) ==
            MAP_FAILED)
            return OUT_OF_MEMORY;
        mappings[i] = (struct mapping){at, bytes, (unsigned)handle - 1, false};
        h->mappings++;
        return OK;
    }
    return OUT_OF_MEMORY;
}

DRIVER(cuMemMap, ptr at, size_t bytes, size_t offset, ptr handle, unsigned long long flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    int rc = map(at, bytes, offset, handle);
    pthread_mutex_unlock(&lock);
    return rc;
}

/* How many bytes of the range are in mappings that lie in it as a whole. */
static size_t covered(ptr at, size_t bytes, bool need_access)
{
    size_t sum = 0;
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        const struct mapping *m = &mappings[i];
        if (m->bytes && m->at >= at && m->at + m->bytes <= at + bytes &&
            (m->access || !need_access))
            sum += m->bytes;
    }
    return sum;
}

static int unmap(ptr at, size_t bytes)
{
    if (must_fail())
        return FAKE_CUDA_ERROR;
    if (covered(at, bytes, false) != bytes)
        return INVALID_VALUE;
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        struct mapping *m = &mappings[i];
        if (!overlaps(m, at, bytes))
            continue;
        if (mmap((void *)(uintptr_t)m->at, m->bytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            return OUT_OF_MEMORY;
        handles[m->handle].mappings--;
        drop_unused(&handles[m->handle]);
        *m = (struct mapping){0};
    }
    return OK;
}

DRIVER(cuMemUnmap, ptr at, size_t bytes)
{
    pthread_mutex_lock(&lock);
    int rc = unmap(at, bytes);
    pthread_mutex_unlock(&lock);
    return rc;
}

static int set_access(ptr at, size_t bytes)
{
    if (must_fail())
        return FAKE_CUDA_ERROR;
    if (covered(at, bytes, false) != bytes ||
        mprotect((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE))
        return INVALID_VALUE;
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        if (overlaps(&mappings[i], at, bytes))
            mappings[i].access = true;
    }
    return OK;
}

DRIVER(cuMemSetAccess, ptr at, size_t bytes, const void *access, size_t count)
{
    (void)access;
    pthread_mutex_lock(&lock);
    int rc = count == 1 ? set_access(at, bytes) : INVALID_VALUE;
    pthread_mutex_unlock(&lock);
    return rc;
}

/* Whether every byte may be touched. */
static bool accessible(ptr at, size_t bytes)
{
    size_t sum = 0;
    for (int i = 0; i < MAPPINGS_MAX; i++) {
        const struct mapping *m = &mappings[i];
        if (!overlaps(m, at, bytes) || !m->access)
            continue;
        ptr from = m->at > at ? m->at : at;
        ptr to = m->at + m->bytes < at + bytes ? m->at + m->bytes : at + bytes;
        sum += to - from;
    }
    return sum == bytes;
}

DRIVER(cuMemcpyHtoD_v2, ptr to, const void *from, size_t bytes)
{
    if (!accessible(to, bytes))
        return INVALID_VALUE;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return OK;
}

DRIVER(cuMemcpyDtoH_v2, void *to, ptr from, size_t bytes)
{
    if (!accessible(from, bytes))
        return INVALID_VALUE;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return OK;
}
