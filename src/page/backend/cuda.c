/* page/backend/cuda.c - pages of an NVIDIA GPU, by the CUDA driver's virtual memory calls.
 *
 * The driver is opened at run time and its calls are declared here, so that nothing of CUDA is
 * needed to build.  Names and numbers are those of the driver's API, stable since CUDA 10.2. */
#include "page/backend/backend.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef int cu_result;
typedef int cu_device;
typedef void *cu_context;
typedef unsigned long long cu_ptr;
typedef unsigned long long cu_handle;

enum {
    CU_OK = 0,
    CU_OUT_OF_MEMORY = 2,
    CU_ATTRIBUTE_VMM = 102, /* virtual memory management supported */
    CU_ALLOCATION_PINNED = 1,
    CU_LOCATION_DEVICE = 1,
    CU_ACCESS_READWRITE = 3,
    CU_GRANULARITY_MINIMUM = 0
};

struct cu_location {
    int type, id;
};

struct cu_allocation_prop {
    int type;
    int handle_types;
    struct cu_location location;
    void *win32;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
};

struct cu_access {
    struct cu_location location;
    int flags;
};

_Static_assert(sizeof(struct cu_allocation_prop) == 32, "as the driver has it");
_Static_assert(sizeof(struct cu_access) == 12, "as the driver has it");

/* X(member, symbol, parameters) */
#define CU_CALLS(X)                                                                                \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(error_name, "cuGetErrorName", (cu_result rc, const char **text))                             \
    X(error_text, "cuGetErrorString", (cu_result rc, const char **text))                           \
    X(device_count, "cuDeviceGetCount", (int *count))                                              \
    X(device_get, "cuDeviceGet", (cu_device * device, int ordinal))                                \
    X(device_name, "cuDeviceGetName", (char *name, int len, cu_device device))                     \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, cu_device device))     \
    X(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, cu_device device))                    \
    X(context_retain, "cuDevicePrimaryCtxRetain", (cu_context * context, cu_device device))        \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (cu_device device))                         \
    X(context_use, "cuCtxSetCurrent", (cu_context context))                                        \
    X(synchronize, "cuCtxSynchronize", (void))                                                     \
    X(granularity, "cuMemGetAllocationGranularity",                                                \
      (size_t * bytes, const struct cu_allocation_prop *prop, int kind))                           \
    X(reserve, "cuMemAddressReserve",                                                              \
      (cu_ptr * at, size_t bytes, size_t align, cu_ptr wish, unsigned long long flags))            \
    X(unreserve, "cuMemAddressFree", (cu_ptr at, size_t bytes))                                    \
    X(create, "cuMemCreate",                                                                       \
      (cu_handle * handle, size_t bytes, const struct cu_allocation_prop *prop,                    \
       unsigned long long flags))                                                                  \
    X(release, "cuMemRelease", (cu_handle handle))                                                 \
    X(map, "cuMemMap",                                                                             \
      (cu_ptr at, size_t bytes, size_t offset, cu_handle handle, unsigned long long flags))        \
    X(unmap, "cuMemUnmap", (cu_ptr at, size_t bytes))                                              \
    X(set_access, "cuMemSetAccess",                                                                \
      (cu_ptr at, size_t bytes, const struct cu_access *access, size_t count))                     \
    X(copy_in, "cuMemcpyHtoD_v2", (cu_ptr to, const void *from, size_t bytes))                     \
    X(copy_out, "cuMemcpyDtoH_v2", (void *to, cu_ptr from, size_t bytes))

struct cu_api {
#define X(member, symbol, parameters) cu_result(*member) parameters;
    CU_CALLS(X)
#undef X
};

struct cuda_backend {
    struct page_backend base;
    void *library;
    struct cu_api cu;
    cu_device device;
    cu_context context; /* NULL before it is retained */
    bool joined;
    cu_ptr range; /* 0 before reserve */
    uint64_t range_bytes, piece_bytes;
    _Atomic uint64_t live; /* handles; relaxed: only itself */
};

static struct cuda_backend *cuda_of(struct page_backend *b)
{
    return (struct cuda_backend *)b;
}

static int fail(struct cuda_backend *c, int rc, const char *call, cu_result result,
                struct page_error *why)
{
    const char *name = NULL, *text = NULL;
    (void)c->cu.error_name(result, &name);
    (void)c->cu.error_text(result, &text);
    return page_fail(why, rc, result, "%s: %s (%d): %s", call, name ? name : "CUDA error", result,
                     text ? text : "no description");
}

static struct cu_allocation_prop allocation_on(cu_device device)
{
    return (struct cu_allocation_prop){.type = CU_ALLOCATION_PINNED,
                                       .location = {CU_LOCATION_DEVICE, device}};
}

/* ---- life ---- */

static int load(struct cuda_backend *c, const char *library, struct page_error *why)
{
    c->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!c->library)
        return page_fail(why, -ENODEV, 0, "no CUDA driver here: cannot open %s", library);
        /* POSIX's idiom: C itself knows no conversion from an object to a function pointer. */
#define X(member, symbol, parameters)                                                              \
    *(void **)&c->cu.member = dlsym(c->library, symbol);                                           \
    if (!c->cu.member)                                                                             \
        return page_fail(why, -ENODEV, 0, "%s has no %s: the CUDA driver is too old", library,     \
                         symbol);
    CU_CALLS(X)
#undef X
    return 0;
}

static int choose_device(struct cuda_backend *c, uint32_t wanted, struct page_error *why)
{
    int count = 0, vmm = 0;
    cu_result result = c->cu.init(0);
    if (result)
        return fail(c, -ENODEV, "cuInit", result, why);
    result = c->cu.device_count(&count);
    if (result || count <= 0)
        return page_fail(why, -ENODEV, result, "the CUDA driver has no device");
    result = c->cu.device_get(&c->device, (int)(wanted % (uint32_t)count));
    if (result == CU_OK)
        result = c->cu.device_attribute(&vmm, CU_ATTRIBUTE_VMM, c->device);
    if (result)
        return fail(c, -ENODEV, "cuDeviceGet", result, why);
    return vmm ? 0
               : page_fail(why, -ENODEV, 0, "this GPU has no virtual memory management for CUDA");
}

static int learn_facts(struct cuda_backend *c, uint64_t memory_bytes, struct page_error *why)
{
    struct page_facts *f = &c->base.facts;
    struct cu_allocation_prop prop = allocation_on(c->device);
    size_t total = 0, granularity = 0;
    cu_result result = c->cu.device_memory(&total, c->device);
    if (result == CU_OK)
        result = c->cu.granularity(&granularity, &prop, CU_GRANULARITY_MINIMUM);
    if (result == CU_OK)
        result = c->cu.device_name(f->device, sizeof f->device, c->device);
    if (result || granularity == 0)
        return fail(c, -EIO, "cuDeviceTotalMem", result, why);
    f->granularity = granularity;
    f->memory_bytes = memory_bytes && memory_bytes < total ? memory_bytes : total;
    f->stray = PAGE_STRAY_FAULTS;
    return 0;
}

static void cuda_close(struct page_backend *b)
{
    struct cuda_backend *c = cuda_of(b);
    if (c->context)
        (void)c->cu.context_use(c->context);
    if (c->range)
        (void)c->cu.unreserve(c->range, c->range_bytes);
    if (c->context)
        (void)c->cu.context_release(c->device);
    if (c->library)
        dlclose(c->library);
    free(c);
}

static int cuda_open(const struct page_backend_config *config, struct page_backend **out,
                     struct page_error *why)
{
    struct cuda_backend *c = calloc(1, sizeof *c);
    if (!c)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    c->base.ops = &page_backend_cuda;
    c->joined = !config->not_joined;
    int rc = load(c, config->library ? config->library : "libcuda.so.1", why);
    if (rc == 0)
        rc = choose_device(c, config->device, why);
    if (rc == 0) {
        cu_result result = c->cu.context_retain(&c->context, c->device);
        if (result)
            rc = fail(c, -ENODEV, "cuDevicePrimaryCtxRetain", result, why);
        else
            (void)c->cu.context_use(c->context);
    }
    if (rc == 0)
        rc = learn_facts(c, config->memory_bytes, why);
    if (rc) {
        cuda_close(&c->base);
        return rc;
    }
    *out = &c->base;
    return 0;
}

/* ---- mapping ---- */

/* Binds from the first on that lie side by side in the range. */
static size_t run_length(const struct cuda_backend *c, const struct page_bind *binds, size_t count)
{
    size_t n = 1;
    while (c->joined && n < count && binds[n].offset == binds[0].offset + n * c->piece_bytes)
        n++;
    return n;
}

/* One call for each run.  *done is the number of binds before the one that failed. */
static cu_result unmap_runs(struct cuda_backend *c, const struct page_bind *binds, size_t count,
                            size_t *done)
{
    size_t n;
    for (*done = 0; *done < count; *done += n) {
        n = run_length(c, &binds[*done], count - *done);
        cu_result result = c->cu.unmap(c->range + binds[*done].offset, n * c->piece_bytes);
        if (result)
            return result;
    }
    return CU_OK;
}

/* Maps the pieces of the run at *mapped, advancing it, then sets access for the whole run.  On
 * failure *failed and *call say where. */
static cu_result map_run(struct cuda_backend *c, const struct page_bind *binds, size_t count,
                         size_t *mapped, size_t *failed, const char **call)
{
    struct cu_access access = {{CU_LOCATION_DEVICE, c->device}, CU_ACCESS_READWRITE};
    size_t first = *mapped, n = run_length(c, &binds[first], count - first);
    *call = "cuMemMap";
    for (; *mapped < first + n; ++*mapped) {
        *failed = *mapped;
        cu_result result = c->cu.map(c->range + binds[*mapped].offset, c->piece_bytes, 0,
                                     binds[*mapped].handle, 0);
        if (result)
            return result;
    }
    *call = "cuMemSetAccess";
    *failed = first;
    return c->cu.set_access(c->range + binds[first].offset, n * c->piece_bytes, &access, 1);
}

/* Maps all and sets access.  On failure *failed and *call say where, and nothing is mapped unless
 * *stuck: the undoing failed as well. */
static cu_result map_all(struct cuda_backend *c, const struct page_bind *binds, size_t count,
                         size_t *failed, const char **call, bool *stuck)
{
    size_t mapped = 0, undone;
    cu_result result = CU_OK;
    while (mapped < count && result == CU_OK)
        result = map_run(c, binds, count, &mapped, failed, call);
    *stuck = result && unmap_runs(c, binds, mapped, &undone);
    return result;
}

static int cuda_bind(struct page_backend *b, const struct page_bind *binds, size_t count,
                     size_t *failed, struct page_error *why)
{
    struct cuda_backend *c = cuda_of(b);
    const char *call;
    bool stuck;
    (void)c->cu.context_use(c->context);
    cu_result result = map_all(c, binds, count, failed, &call, &stuck);
    return result ? fail(c, stuck ? -ENOTRECOVERABLE : -EIO, call, result, why) : 0;
}

/* Maps again what was unmapped before a failure. */
static int cuda_unbind(struct page_backend *b, const struct page_bind *binds, size_t count,
                       size_t *failed, struct page_error *why)
{
    struct cuda_backend *c = cuda_of(b);
    const char *call;
    size_t ignored;
    bool stuck;
    (void)c->cu.context_use(c->context);
    cu_result result = unmap_runs(c, binds, count, failed);
    if (result == CU_OK)
        return 0;
    int rc = fail(c, -EIO, "cuMemUnmap", result, why);
    if (*failed && map_all(c, binds, *failed, &ignored, &call, &stuck))
        why->rc = rc = -ENOTRECOVERABLE;
    return rc;
}

static int cuda_reserve(struct page_backend *b, uint64_t range_bytes, uint64_t piece_bytes,
                        struct page_error *why)
{
    struct cuda_backend *c = cuda_of(b);
    assert(!c->range && piece_bytes % b->facts.granularity == 0);
    cu_result result = c->cu.reserve(&c->range, range_bytes, b->facts.granularity, 0, 0);
    if (result)
        return fail(c, -ENOMEM, "cuMemAddressReserve", result, why);
    c->range_bytes = range_bytes;
    c->piece_bytes = piece_bytes;
    b->address = c->range;
    return 0;
}

static int create_piece(struct cuda_backend *c, page_handle *out, struct page_error *why)
{
    struct cu_allocation_prop prop = allocation_on(c->device);
    cu_handle handle = 0;
    (void)c->cu.context_use(c->context);
    cu_result result = c->cu.create(&handle, c->piece_bytes, &prop, 0);
    if (result)
        return fail(c, result == CU_OUT_OF_MEMORY ? -ENOMEM : -EIO, "cuMemCreate", result, why);
    *out = handle;
    return 0;
}

static int cuda_create(struct page_backend *b, page_handle *out, struct page_error *why)
{
    struct cuda_backend *c = cuda_of(b);
    uint64_t live = atomic_fetch_add_explicit(&c->live, 1, memory_order_relaxed);
    int rc = live < b->facts.memory_bytes / c->piece_bytes
                 ? create_piece(c, out, why)
                 : page_fail(why, -ENOMEM, 0, "all %llu pieces of %s that may be used are taken",
                             (unsigned long long)live, b->facts.device);
    if (rc)
        atomic_fetch_sub_explicit(&c->live, 1, memory_order_relaxed);
    return rc;
}

static void cuda_release(struct page_backend *b, page_handle handle)
{
    struct cuda_backend *c = cuda_of(b);
    (void)c->cu.context_use(c->context);
    (void)c->cu.release(handle);
    atomic_fetch_sub_explicit(&c->live, 1, memory_order_relaxed);
}

static int cuda_finish(struct page_backend *b, struct page_error *why)
{
    struct cuda_backend *c = cuda_of(b);
    (void)c->cu.context_use(c->context);
    cu_result result = c->cu.synchronize();
    return result ? fail(c, -EIO, "cuCtxSynchronize", result, why) : 0;
}

static int cuda_copy(struct page_backend *b, uint64_t offset, void *data, size_t len, bool in,
                     struct page_error *why)
{
    struct cuda_backend *c = cuda_of(b);
    (void)c->cu.context_use(c->context);
    cu_result result = in ? c->cu.copy_in(c->range + offset, data, len)
                          : c->cu.copy_out(data, c->range + offset, len);
    return result ? fail(c, -EIO, in ? "cuMemcpyHtoD" : "cuMemcpyDtoH", result, why) : 0;
}

const struct page_backend_ops page_backend_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .reserve = cuda_reserve,
    .create = cuda_create,
    .release = cuda_release,
    .bind = cuda_bind,
    .unbind = cuda_unbind,
    .finish = cuda_finish,
    .copy = cuda_copy,
};
