/* Brings pushes to their objects; see pushes.h. */
#include "venus/client/link/pushes.h"

#include "base/log.h"
#include "venus/client/device/debug.h"
#include "venus/client/locks.h"
#include "venus/client/memory/memory.h"
#include "venus/client/object/pipeline.h"
#include "venus/client/object/query.h"
#include "venus/client/record/ranges.h"
#include "venus/client/submit/queue.h"
#include "venus/client/submit/trace.h"
#include "venus/common/commands.h"
#include "venus/common/keymap.h"
#include "venus/common/protocol.h"
#include "venus/memory/track/kernel.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
    REGULAR_MAX = 256,    /* the latest, of all devices; the rest is asked for */
    FAILED_MAX = 1024,    /* devices that are lost and not destroyed; after that all are */
    ADDRESSES_MAX = 1024, /* not fetched: of allocations under way in other threads */
};

struct vnc_pushes {
    pthread_mutex_t lock; /* guards the maps, the facts and the codec */
    struct vn_keymap memories, queues, query_pools;
    struct vn_keymap pipelines; /* that are not compiled yet */
    struct vn_keymap addresses; /* of memory, not fetched yet, as pointers */
    struct {
        uint64_t device;
        struct vnc_regular kind;
    } regular[REGULAR_MAX];
    uint32_t regular_count; /* so far */
    struct vn_delta_codec *codec;
    pthread_mutex_t debug_lock; /* guards debug, and is held while it is told something */
    struct vnc_debug *debug;    /* NULL: nobody listens */
    struct vn_keymap failed;    /* devices, by id; as a pointer: which command, and VkResult */
    /* Relaxed: flags that carry nothing else. */
    _Atomic bool told;     /* of a failure */
    _Atomic bool any_lost; /* a device is */
    bool all_lost;         /* since it is not known which */
    unsigned forks;        /* of the process that made it; in a child its lock may never be free */
};

struct vnc_pushes *vnc_pushes_create(struct vnc_debug *debug)
{
    struct vnc_pushes *pushes = calloc(1, sizeof(*pushes));
    if (!pushes)
        return NULL;
    if (vn_delta_codec_create(0, &pushes->codec)) {
        free(pushes);
        return NULL;
    }
    vnc_lock_init(&pushes->lock);
    vnc_lock_init(&pushes->debug_lock);
    pushes->debug = debug;
    pushes->forks = vn_kernel_forks();
    return pushes;
}

void vnc_pushes_destroy(struct vnc_pushes *pushes)
{
    if (!pushes)
        return;
    vn_keymap_fini(&pushes->memories);
    vn_keymap_fini(&pushes->queues);
    vn_keymap_fini(&pushes->query_pools);
    vn_keymap_fini(&pushes->pipelines);
    vn_keymap_fini(&pushes->addresses);
    vn_keymap_fini(&pushes->failed);
    vn_delta_codec_destroy(pushes->codec);
    vnc_lock_fini(&pushes->debug_lock);
    vnc_lock_fini(&pushes->lock);
    free(pushes);
}

void vnc_pushes_set_debug(struct vnc_pushes *pushes, struct vnc_debug *debug)
{
    pthread_mutex_lock(&pushes->debug_lock);
    pushes->debug = debug;
    pthread_mutex_unlock(&pushes->debug_lock);
}

static int put(struct vnc_pushes *pushes, struct vn_keymap *map, uint64_t id, void *value)
{
    if (pushes->forks != vn_kernel_forks())
        return 0; /* nothing comes here */
    pthread_mutex_lock(&pushes->lock);
    int rc = vn_keymap_put(map, id, value);
    pthread_mutex_unlock(&pushes->lock);
    return rc;
}

static void take(struct vnc_pushes *pushes, struct vn_keymap *map, uint64_t id)
{
    if (pushes->forks != vn_kernel_forks())
        return;
    pthread_mutex_lock(&pushes->lock);
    (void)vn_keymap_take(map, id);
    pthread_mutex_unlock(&pushes->lock);
}

int vnc_pushes_add_memory(struct vnc_pushes *pushes, struct vnc_memory *memory)
{
    return put(pushes, &pushes->memories, memory->object.id, memory);
}

void vnc_pushes_remove_memory(struct vnc_pushes *pushes, struct vnc_memory *memory)
{
    take(pushes, &pushes->memories, memory->object.id);
}

int vnc_pushes_add_queue(struct vnc_pushes *pushes, struct vnc_queue *queue)
{
    return put(pushes, &pushes->queues, queue->object.id, queue);
}

void vnc_pushes_remove_queue(struct vnc_pushes *pushes, struct vnc_queue *queue)
{
    take(pushes, &pushes->queues, queue->object.id);
}

void vnc_pushes_add_query_pool(struct vnc_pushes *pushes, uint64_t id, struct vnc_query_pool *pool)
{
    (void)!put(pushes, &pushes->query_pools, id, pool);
}

void vnc_pushes_remove_query_pool(struct vnc_pushes *pushes, uint64_t id)
{
    take(pushes, &pushes->query_pools, id);
}

int vnc_pushes_add_pipeline(struct vnc_pushes *pushes, struct vnc_pipeline *pipeline)
{
    return put(pushes, &pushes->pipelines, pipeline->object.id, pipeline);
}

void vnc_pushes_remove_pipeline(struct vnc_pushes *pushes, struct vnc_pipeline *pipeline)
{
    take(pushes, &pushes->pipelines, pipeline->object.id);
}

size_t vnc_pushes_pipelines(struct vnc_pushes *pushes)
{
    if (pushes->forks != vn_kernel_forks())
        return 0;
    pthread_mutex_lock(&pushes->lock);
    size_t count = vn_keymap_count(&pushes->pipelines);
    pthread_mutex_unlock(&pushes->lock);
    return count;
}

bool vnc_pushes_find_regular(struct vnc_pushes *pushes, uint64_t device, uint32_t usage,
                             struct vnc_regular *out)
{
    bool found = false;
    if (pushes->forks != vn_kernel_forks())
        return false;
    pthread_mutex_lock(&pushes->lock);
    for (uint32_t i = 0; i < pushes->regular_count && i < REGULAR_MAX && !found; i++) {
        found = pushes->regular[i].device == device && pushes->regular[i].kind.usage == usage;
        if (found)
            *out = pushes->regular[i].kind;
    }
    pthread_mutex_unlock(&pushes->lock);
    return found;
}

uint64_t vnc_pushes_take_address(struct vnc_pushes *pushes, uint64_t memory)
{
    if (pushes->forks != vn_kernel_forks())
        return 0;
    pthread_mutex_lock(&pushes->lock);
    uint64_t address = (uintptr_t)vn_keymap_take(&pushes->addresses, memory);
    pthread_mutex_unlock(&pushes->lock);
    return address;
}

void vnc_pushes_remove_device(struct vnc_pushes *pushes, uint64_t device)
{
    take(pushes, &pushes->failed, device);
}

bool vnc_pushes_failed(struct vnc_pushes *pushes, uint64_t device)
{
    uint32_t command;
    VkResult result;
    if (LIKELY(!atomic_load_explicit(&pushes->any_lost, memory_order_relaxed)))
        return false;
    return vnc_pushes_find_failure(pushes, device, &command, &result);
}

bool vnc_pushes_find_failure(struct vnc_pushes *pushes, uint64_t device, uint32_t *command,
                             VkResult *result)
{
    uintptr_t failure = 0;
    bool all_lost = true;
    if (pushes->forks == vn_kernel_forks()) {
        pthread_mutex_lock(&pushes->lock);
        failure = (uintptr_t)vn_keymap_get(&pushes->failed, device);
        all_lost = pushes->all_lost;
        pthread_mutex_unlock(&pushes->lock);
    }
    *command = (uint32_t)(failure >> 32);
    *result = failure ? (VkResult)(uint32_t)failure : VK_ERROR_UNKNOWN;
    return failure || all_lost;
}

static int on_delta(struct vnc_pushes *pushes, uint64_t id, const uint8_t *data, size_t len)
{
    size_t changed;
    int rc = 0;
    pthread_mutex_lock(&pushes->lock);
    struct vnc_memory *memory = vn_keymap_get(&pushes->memories, id);
    if (memory) {
        rc = vn_region_apply(memory->region, pushes->codec, data, len, &changed);
        atomic_fetch_add_explicit(&memory->changed, changed, memory_order_relaxed);
    }
    pthread_mutex_unlock(&pushes->lock);
    if (memory)
        vnc_trace_delta(len);
    return rc;
}

/* A range of memory is checked against it by the region. */
static int on_drop(struct vnc_pushes *pushes, uint64_t id, uint64_t off, uint64_t len)
{
    pthread_mutex_lock(&pushes->lock);
    struct vnc_memory *memory = vn_keymap_get(&pushes->memories, id);
    int rc = memory ? vn_region_drop(memory->region, off, len) : 0;
    pthread_mutex_unlock(&pushes->lock);
    return rc;
}

/* Whole pages, for what the region does with them. */
static int take_pages(struct vnc_pushes *pushes, uint64_t id, uint64_t off, const uint8_t *data,
                      size_t len,
                      int (*into)(struct vn_region *, uint64_t, const uint8_t *, size_t))
{
    pthread_mutex_lock(&pushes->lock);
    struct vnc_memory *memory = vn_keymap_get(&pushes->memories, id);
    int rc = memory ? into(memory->region, off, data, len) : 0;
    pthread_mutex_unlock(&pushes->lock);
    if (memory)
        vnc_trace_delta(len);
    return rc;
}

/* Under the lock. */
static void on_arrived(void *user, const struct vnc_range *pages)
{
    struct vnc_pushes *pushes = user;
    struct vnc_memory *memory = vn_keymap_get(&pushes->memories, pages->memory);
    if (memory)
        vn_region_arrived(memory->region, pages->offset, pages->bytes);
}

static void on_done(struct vnc_pushes *pushes, uint64_t id, uint64_t number, VkResult result)
{
    pthread_mutex_lock(&pushes->lock);
    struct vnc_queue *queue = vn_keymap_get(&pushes->queues, id);
    if (queue)
        vnc_queue_done(queue, number, result, on_arrived, pushes);
    pthread_mutex_unlock(&pushes->lock);
}

static int on_results(struct vnc_pushes *pushes, uint64_t id, uint64_t use, uint32_t first,
                      const uint8_t *data, size_t len)
{
    pthread_mutex_lock(&pushes->lock);
    struct vnc_query_pool *pool = vn_keymap_get(&pushes->query_pools, id);
    int rc = pool ? vnc_query_pool_results(pool, use, first, data, len) : 0;
    pthread_mutex_unlock(&pushes->lock);
    return rc;
}

static void on_compiled(struct vnc_pushes *pushes, uint64_t id)
{
    pthread_mutex_lock(&pushes->lock);
    struct vnc_pipeline *pipeline = vn_keymap_take(&pushes->pipelines, id);
    if (pipeline)
        atomic_store_explicit(&pipeline->compiled, true, memory_order_relaxed);
    pthread_mutex_unlock(&pushes->lock);
}

void vnc_pushes_add_regular(struct vnc_pushes *pushes, uint64_t device,
                            const struct vnc_regular *kind)
{
    pthread_mutex_lock(&pushes->lock);
    uint32_t at = pushes->regular_count++ % REGULAR_MAX;
    pushes->regular[at].device = device;
    pushes->regular[at].kind = *kind;
    pthread_mutex_unlock(&pushes->lock);
}

/* What cannot be noted is asked for. */
static void on_address(struct vnc_pushes *pushes, uint64_t memory, uint64_t address)
{
    pthread_mutex_lock(&pushes->lock);
    if (memory && address && vn_keymap_count(&pushes->addresses) < ADDRESSES_MAX)
        (void)!vn_keymap_put(&pushes->addresses, memory, (void *)(uintptr_t)address);
    pthread_mutex_unlock(&pushes->lock);
}

static void lose_device(struct vnc_pushes *pushes, uint64_t device, uint32_t command,
                        VkResult result)
{
    /* Of a result of 0 that a server should not send the command remains. */
    uintptr_t failure = (uintptr_t)command << 32 | (uint32_t)result | !command;
    pthread_mutex_lock(&pushes->lock);
    bool known = device && vn_keymap_get(&pushes->failed, device);
    if (!known && (!device || vn_keymap_count(&pushes->failed) >= FAILED_MAX ||
                   vn_keymap_put(&pushes->failed, device, (void *)failure)))
        pushes->all_lost = true;
    pthread_mutex_unlock(&pushes->lock);
    atomic_store_explicit(&pushes->any_lost, true, memory_order_relaxed);
}

static void on_failed(struct vnc_pushes *pushes, uint64_t device, uint32_t command, VkResult result)
{
    const struct vn_command_info *info = vn_command_by_id(command);
    if (!atomic_exchange_explicit(&pushes->told, true, memory_order_relaxed))
        hw_error(HW_CAT_VULKAN,
                 "%s failed at the server with VkResult %d; VENUS_SYNC=1 shows where",
                 info ? info->canonical : "a command", (int)result);
    if (!info || info->class != VN_CLASS_CREATE)
        lose_device(pushes, device, command, result);
}

static void on_message(struct vnc_pushes *pushes, uint32_t severity, uint32_t types, int32_t number,
                       const char *name, const char *text)
{
    pthread_mutex_lock(&pushes->debug_lock);
    if (pushes->debug)
        vnc_debug_message(pushes->debug, severity, types, number, name, text);
    pthread_mutex_unlock(&pushes->debug_lock);
}

/* What a memory object holds, or its address. */
static int take_memory_push(struct vnc_pushes *pushes, const struct rpc_msg *push,
                            struct wire_dec *d)
{
    switch (push->method) {
    case VN_PUSH_DELTA: {
        uint64_t memory = wire_get_u64(d);
        size_t left = wire_dec_left(d);
        const uint8_t *delta = wire_get_bytes(d, left);
        int rc = wire_dec_end(d);
        return rc ? rc : on_delta(pushes, memory, delta, left);
    }
    case VN_PUSH_DROP: {
        uint64_t memory = wire_get_u64(d), off = wire_get_u64(d), bytes = wire_get_u64(d);
        int rc = wire_dec_end(d);
        return rc ? rc : on_drop(pushes, memory, off, bytes);
    }
    case VN_PUSH_PAGES:
    case VN_PUSH_FILL: {
        uint64_t memory = wire_get_u64(d), off = wire_get_u64(d);
        size_t left = push->placed ? push->len - RPC_LANDING_HEAD : wire_dec_left(d);
        const uint8_t *bytes = push->placed ? push->placed : wire_get_bytes(d, left);
        int rc = wire_dec_end(d);
        if (rc)
            return rc;
        return take_pages(pushes, memory, off, bytes, left,
                          push->method == VN_PUSH_FILL ? vn_region_fill : vn_region_store);
    }
    case VN_PUSH_ADDRESS: {
        uint64_t memory = wire_get_u64(d), address = wire_get_u64(d);
        int rc = wire_dec_end(d);
        if (rc == 0)
            on_address(pushes, memory, address);
        return rc;
    }
    default:
        return 0; /* a newer server says more than we know */
    }
}

int vnc_pushes_take(struct vnc_pushes *pushes, const struct rpc_msg *push)
{
    struct wire_dec d;
    wire_dec_init(&d, push->data, push->placed ? RPC_LANDING_HEAD : push->len);
    switch (push->method) {
    case VN_PUSH_DONE: {
        uint64_t queue = wire_get_u64(&d), number = wire_get_u64(&d);
        VkResult result = (VkResult)wire_get_u32(&d);
        int rc = wire_dec_end(&d);
        if (rc == 0)
            on_done(pushes, queue, number, result);
        return rc;
    }
    case VN_PUSH_RESULTS: {
        uint64_t pool = wire_get_u64(&d), use = wire_get_u64(&d);
        uint32_t first = wire_get_u32(&d);
        (void)wire_get_u32(&d);
        size_t left = wire_dec_left(&d);
        const uint8_t *bytes = wire_get_bytes(&d, left);
        int rc = wire_dec_end(&d);
        return rc ? rc : on_results(pushes, pool, use, first, bytes, left);
    }
    case VN_PUSH_FAILED: {
        uint32_t command = wire_get_u32(&d);
        VkResult result = (VkResult)wire_get_u32(&d);
        uint64_t device = wire_get_u64(&d);
        int rc = wire_dec_end(&d);
        if (rc == 0)
            on_failed(pushes, device, command, result);
        return rc;
    }
    case VN_PUSH_COMPILED: {
        uint64_t pipeline = wire_get_u64(&d);
        int rc = wire_dec_end(&d);
        if (rc == 0)
            on_compiled(pushes, pipeline);
        return rc;
    }
    case VN_PUSH_REGULAR: {
        uint64_t device = wire_get_u64(&d);
        struct vnc_regular kind = {.usage = wire_get_u32(&d), .types = wire_get_u32(&d)};
        kind.alignment = wire_get_u64(&d);
        kind.grain = wire_get_u64(&d);
        kind.size = wire_get_u64(&d);
        int rc = wire_dec_end(&d);
        if (rc == 0 && (kind.grain == 0 || (kind.grain & (kind.grain - 1))))
            return -EPROTO;
        if (rc == 0)
            vnc_pushes_add_regular(pushes, device, &kind);
        return rc;
    }
    case VN_PUSH_MESSAGE: {
        uint32_t severity = wire_get_u32(&d), types = wire_get_u32(&d);
        int32_t number = (int32_t)wire_get_u32(&d);
        char name[256], text[WIRE_STR_MAX + 1];
        wire_get_str_copy(&d, name, sizeof(name));
        wire_get_str_copy(&d, text, sizeof(text));
        int rc = wire_dec_end(&d);
        if (rc == 0)
            on_message(pushes, severity, types, number, name, text);
        return rc;
    }
    default:
        return take_memory_push(pushes, push, &d);
    }
}

uint8_t *vnc_pushes_place(void *user, uint32_t method, const uint8_t *head, size_t len,
                          void **owner)
{
    struct vnc_pushes *pushes = user;
    static_assert(RPC_LANDING_HEAD == 2 * sizeof(uint64_t), "what VN_PUSH_PAGES begins with");
    if (method != VN_PUSH_PAGES)
        return NULL;
    pthread_mutex_lock(&pushes->lock);
    struct vnc_memory *memory = vn_keymap_get(&pushes->memories, wire_load64(head));
    uint8_t *place = memory ? vn_region_place(memory->region, wire_load64(head + 8), len) : NULL;
    if (place)
        *owner = memory->region;
    pthread_mutex_unlock(&pushes->lock);
    return place;
}

void vnc_pushes_leave(void *region)
{
    vn_region_leave(region);
}
