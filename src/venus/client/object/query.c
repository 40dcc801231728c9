/* Query pools; see query.h. */
#include "venus/client/object/query.h"

#include "base/grow.h"
#include "venus/client/locks.h"
#include "venus/client/object/ask.h"
#include "venus/client/perf.h"
#include "venus/common/protocol.h"
#include "vn_client.gen.h"

#include <errno.h>
#include <stdlib.h>

enum {
    VIEWS_MAX = 32,        /* a query in a render pass with several views takes one of each */
    PIECE_BYTES = 4 << 20, /* of results that are asked for at once; a message holds it */
};

struct query {
    uint64_t use;  /* number of the last */
    bool expected; /* the program reads it */
    bool known;    /* its result is here */
    bool read;     /* by the program, since the last use */
};

struct vnc_query_pool {
    struct vn_object object;
    struct vnc_device *device;
    _Atomic uint32_t refs; /* relaxed up, acquire-release down: the last one frees */
    uint32_t count;
    uint32_t values;      /* of a result; 0: not known, or too many in all */
    pthread_mutex_t lock; /* guards the rest */
    const struct vnc_queue *queue;
    bool scattered; /* over several queues */
    uint64_t uses;
    struct query *queries; /* from the first read on */
    uint64_t *results;     /* of each query: values, then whether they are there */
};

struct vnc_query_use {
    struct vnc_query_pool *pool;
    uint32_t first, end;
    bool written;
};

/* ---- life ---- */

size_t vnc_query_pool_size(void)
{
    return sizeof(struct vnc_query_pool);
}

void vnc_query_pool_init(struct vnc_query_pool *pool, struct vnc_device *device)
{
    pool->device = device;
    atomic_init(&pool->refs, 1);
    vnc_lock_init(&pool->lock);
}

static void unref(struct vnc_query_pool *pool)
{
    if (atomic_fetch_sub_explicit(&pool->refs, 1, memory_order_acq_rel) > 1)
        return;
    vnc_lock_fini(&pool->lock);
    free(pool->queries);
    free(pool->results);
    free(pool);
}

void vnc_query_pool_retire(struct vnc_query_pool *pool)
{
    vnc_pushes_remove_query_pool(pool->device->pushes, pool->object.id);
    unref(pool);
}

/* Of a type that the registry may have and we do not know: 0. */
static uint32_t values_of(const VkQueryPoolCreateInfo *info)
{
    switch ((uint32_t)info->queryType) {
    case VK_QUERY_TYPE_OCCLUSION:
    case VK_QUERY_TYPE_TIMESTAMP:
    case VK_QUERY_TYPE_PRIMITIVES_GENERATED_EXT:
    case VK_QUERY_TYPE_ACCELERATION_STRUCTURE_COMPACTED_SIZE_KHR:
    case VK_QUERY_TYPE_ACCELERATION_STRUCTURE_SERIALIZATION_SIZE_KHR:
        return 1;
    case VK_QUERY_TYPE_TRANSFORM_FEEDBACK_STREAM_EXT:
        return 2;
    case VK_QUERY_TYPE_PIPELINE_STATISTICS:
        return (uint32_t)__builtin_popcount(info->pipelineStatistics);
    default:
        return 0;
    }
}

static VKAPI_ATTR VkResult VKAPI_CALL create_query_pool(VkDevice device,
                                                        const VkQueryPoolCreateInfo *info,
                                                        const VkAllocationCallbacks *allocator,
                                                        VkQueryPool *out)
{
    VkResult result = vn_vkCreateQueryPool(device, info, allocator, out);
    if (result != VK_SUCCESS)
        return result;
    struct vnc_query_pool *pool = VNC_OBJECT(vnc_query_pool, *out);
    uint64_t bytes = (values_of(info) + UINT64_C(1)) * sizeof(uint64_t) * info->queryCount;
    pool->count = info->queryCount;
    if (bytes <= VN_RESULTS_BYTES && vnc_perf(VNC_PERF_QUERY_RESULTS) &&
        !vn_client_of(device)->sync)
        pool->values = values_of(info);
    return VK_SUCCESS;
}

/* ---- uses ---- */

static uint32_t end_of(uint32_t first, uint32_t count)
{
    return count > UINT32_MAX - first ? UINT32_MAX : first + count;
}

bool vnc_query_uses_add(struct vnc_query_uses *uses, struct vnc_query_pool *pool, uint32_t first,
                        uint32_t count, bool written)
{
    struct vnc_query_use *last = uses->count ? &uses->items[uses->count - 1] : NULL;
    if (written && count == 1 && pool->device->has_views)
        count = VIEWS_MAX;
    uint32_t end = end_of(first, count);
    if (last && last->pool == pool && last->written == written && first <= last->end &&
        end >= last->first) {
        last->first = first < last->first ? first : last->first;
        last->end = end > last->end ? end : last->end;
        return true;
    }
    if (!hw_grow(&uses->items, &uses->cap, uses->count + 1, sizeof(*uses->items)))
        return false;
    atomic_fetch_add_explicit(&pool->refs, 1, memory_order_relaxed);
    uses->items[uses->count++] = (struct vnc_query_use){pool, first, end, written};
    return true;
}

void vnc_query_uses_empty(struct vnc_query_uses *uses)
{
    while (uses->count)
        unref(uses->items[--uses->count].pool);
}

/* What is known is not good any more.  What nobody has read is not expected again. */
static void forget(struct vnc_query_pool *pool, uint32_t first, uint32_t end)
{
    pool->uses++;
    for (uint32_t i = first; pool->queries && i < end; i++) {
        struct query *query = &pool->queries[i];
        query->expected &= !query->known || query->read;
        query->known = query->read = false;
        query->use = pool->uses;
    }
}

static void put_question(const struct vnc_query_pool *pool, uint32_t first, uint32_t count,
                         const struct vnc_queue *queue, uint64_t batch, struct wire_enc *e)
{
    size_t hole = vn_put_command(e, VN_OP_RESULTS);
    wire_put_u64(e, queue->object.id);
    wire_put_u64(e, batch);
    wire_put_u64(e, pool->object.id);
    wire_put_u64(e, pool->uses);
    wire_put_u32(e, first);
    wire_put_u32(e, count);
    wire_put_u32(e, pool->values);
    wire_fill_len(e, hole);
}

/* Those that the program has read are not uninitialized, so it is allowed to read them. */
static void put_questions(const struct vnc_query_pool *pool, uint32_t first, uint32_t end,
                          const struct vnc_queue *queue, uint64_t batch, struct wire_enc *e)
{
    while (first < end) {
        uint32_t stop = first;
        while (stop < end && pool->queries[stop].expected)
            stop++;
        if (stop > first)
            put_question(pool, first, stop - first, queue, batch, e);
        first = stop + 1;
    }
}

static uint32_t end_in_pool(const struct vnc_query_use *use)
{
    return use->end < use->pool->count ? use->end : use->pool->count;
}

void vnc_query_uses_forget(const struct vnc_query_uses *uses, const struct vnc_queue *queue)
{
    for (size_t i = 0; i < uses->count; i++) {
        const struct vnc_query_use *use = &uses->items[i];
        struct vnc_query_pool *pool = use->pool;
        pthread_mutex_lock(&pool->lock);
        pool->scattered |= pool->queue && pool->queue != queue;
        pool->queue = queue;
        forget(pool, use->first, end_in_pool(use));
        pthread_mutex_unlock(&pool->lock);
    }
}

void vnc_query_uses_put(const struct vnc_query_uses *uses, const struct vnc_queue *queue,
                        uint64_t batch, struct wire_enc *e)
{
    for (size_t i = 0; i < uses->count; i++) {
        const struct vnc_query_use *use = &uses->items[i];
        struct vnc_query_pool *pool = use->pool;
        pthread_mutex_lock(&pool->lock);
        if (use->written && pool->queries && !pool->scattered)
            put_questions(pool, use->first, end_in_pool(use), queue, batch, e);
        pthread_mutex_unlock(&pool->lock);
    }
}

static VKAPI_ATTR void VKAPI_CALL reset_query_pool(VkDevice device, VkQueryPool handle,
                                                   uint32_t first, uint32_t count)
{
    struct vnc_query_pool *pool = VNC_OBJECT(vnc_query_pool, handle);
    uint32_t end = end_of(first, count);
    pthread_mutex_lock(&pool->lock);
    forget(pool, first, end < pool->count ? end : pool->count);
    pthread_mutex_unlock(&pool->lock);
    vn_vkResetQueryPool(device, handle, first, count);
}

/* ---- results ---- */

int vnc_query_pool_results(struct vnc_query_pool *pool, uint64_t use, uint32_t first,
                           const uint8_t *results, size_t bytes)
{
    size_t words = pool->values + 1, size = words * sizeof(uint64_t), count = bytes / size;
    if (bytes % size || first > pool->count || count > pool->count - first)
        return -EPROTO;
    pthread_mutex_lock(&pool->lock);
    for (size_t i = 0; pool->queries && !pool->scattered && i < count; i++) {
        struct query *query = &pool->queries[first + i];
        uint64_t *to = pool->results + (first + i) * words;
        if (query->use > use)
            continue;
        memcpy(to, results + i * size, size);
        query->known = to[pool->values] != 0;
    }
    pthread_mutex_unlock(&pool->lock);
    return 0;
}

struct question {
    VkDevice device;
    VkQueryPool pool;
    uint32_t first, count;
    size_t size;
    void *data;
    VkDeviceSize stride;
    VkQueryResultFlags flags;
};

/* Under the lock.  Without memory everything is asked for, as ever. */
static bool follow(struct vnc_query_pool *pool)
{
    if (pool->queries || !pool->values)
        return pool->values;
    pool->queries = calloc(pool->count, sizeof(*pool->queries));
    pool->results = calloc(pool->count, (pool->values + 1) * sizeof(*pool->results));
    if (pool->queries && pool->results)
        return true;
    free(pool->queries);
    free(pool->results);
    pool->queries = NULL;
    pool->results = NULL;
    return false;
}

/* Of 32 bits a driver gives what fits, and decides itself about what does not. */
static bool fits(const uint64_t *result, uint32_t words)
{
    bool fits = true;
    for (uint32_t i = 0; i < words; i++)
        fits &= result[i] <= UINT32_MAX;
    return fits;
}

static void put_result(uint8_t *to, const uint64_t *result, uint32_t words, bool wide)
{
    for (uint32_t i = 0; i < words; i++) {
        uint32_t narrow = (uint32_t)result[i];
        if (wide)
            memcpy(to + i * sizeof(result[i]), &result[i], sizeof(result[i]));
        else
            memcpy(to + i * sizeof(narrow), &narrow, sizeof(narrow));
    }
}

/* Under the lock: gives the results if all are known. */
static bool take(struct vnc_query_pool *pool, const struct question *q)
{
    const VkQueryResultFlags simple = VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT |
                                      VK_QUERY_RESULT_WITH_AVAILABILITY_BIT |
                                      VK_QUERY_RESULT_PARTIAL_BIT;
    bool wide = q->flags & VK_QUERY_RESULT_64_BIT;
    uint32_t words = pool->values + !!(q->flags & VK_QUERY_RESULT_WITH_AVAILABILITY_BIT);
    uint64_t bytes = words * (wide ? sizeof(uint64_t) : sizeof(uint32_t));
    uint64_t room = q->size >= bytes ? q->size - bytes : 0;
    bool known = !(q->flags & ~simple) && q->size >= bytes &&
                 (q->count == 1 || (q->stride >= bytes && q->stride <= room / (q->count - 1)));
    for (uint32_t i = q->first; i < q->first + q->count; i++) {
        struct query *query = &pool->queries[i];
        const uint64_t *result = pool->results + (size_t)i * (pool->values + 1);
        known &= query->known && (wide || fits(result, words));
        query->expected = query->read = true;
    }
    for (uint32_t i = 0; known && i < q->count; i++)
        put_result((uint8_t *)q->data + i * q->stride,
                   pool->results + (size_t)(q->first + i) * (pool->values + 1), words, wide);
    return known;
}

static bool look(struct vnc_query_pool *pool, const struct question *q)
{
    pthread_mutex_lock(&pool->lock);
    bool fresh = !pool->queries, followed = follow(pool);
    bool known = followed && take(pool, q);
    pthread_mutex_unlock(&pool->lock);
    if (fresh && followed)
        vnc_pushes_add_query_pool(pool->device->pushes, pool->object.id, pool);
    return known;
}

static bool find(const struct question *q)
{
    struct vnc_query_pool *pool = VNC_OBJECT(vnc_query_pool, q->pool);
    if (!pool->values || q->count == 0 || q->first >= pool->count ||
        q->count > pool->count - q->first)
        return false;
    if (look(pool, q))
        return true;
    vnc_link_poll(vnc_link_of(q->device));
    return look(pool, q);
}

/* From one query on those that travel together: what lies between results goes both ways, and a
 * program may keep them far apart. */
static struct question piece_of(const struct question *q, uint32_t done)
{
    struct question piece = *q;
    uint32_t left = q->count - done;
    uint64_t skipped = done * q->stride, together = q->stride ? PIECE_BYTES / q->stride + 1 : left;
    piece.first = q->first + done;
    piece.count = together < left ? (uint32_t)together : left;
    uint64_t bytes = (piece.count ? piece.count - 1 : 0) * q->stride + VN_QUERY_BYTES;
    piece.size = q->size > skipped ? q->size - skipped : 0;
    piece.size = piece.size < bytes ? piece.size : bytes;
    piece.data = (uint8_t *)q->data + skipped;
    return piece;
}

static VkResult ask_for_piece(const struct question *q)
{
    struct vnc_link *link = vnc_link_of(q->device);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    vn_enc_cmd_vkGetQueryPoolResults(e, q->device, q->pool, q->first, q->count, q->size, q->data,
                                     q->stride, q->flags);
    struct vn_decoder reply;
    VkResult result = vnc_link_call(link, &reply);
    if (result != VK_SUCCESS)
        return result;
    result = vn_dec_reply_vkGetQueryPoolResults(&reply, q->device, q->pool, q->first, q->count,
                                                q->size, q->data, q->stride, q->flags);
    return vnc_link_finish(link, &reply) == VK_SUCCESS ? result : VK_ERROR_DEVICE_LOST;
}

/* The server never waits; see queue.h. */
static VkResult ask(void *user)
{
    const struct question *q = user;
    VkResult all = VK_SUCCESS;
    if (find(q))
        return VK_SUCCESS;
    for (uint32_t done = 0; all >= 0 && done < q->count;) {
        struct question piece = piece_of(q, done);
        VkResult result = ask_for_piece(&piece);
        all = result == VK_SUCCESS ? all : result;
        done += piece.count;
    }
    return all;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_query_pool_results(VkDevice handle, VkQueryPool pool,
                                                             uint32_t first, uint32_t count,
                                                             size_t size, void *data,
                                                             VkDeviceSize stride,
                                                             VkQueryResultFlags flags)
{
    struct question question = {handle, pool, first, count, size, data, stride, flags};
    bool waits = flags & VK_QUERY_RESULT_WAIT_BIT;
    /* A caller that waits gets final results: a driver that was asked for partial ones need not say
     * that they are not ready. */
    if (waits)
        question.flags &=
            ~(VkQueryResultFlags)(VK_QUERY_RESULT_WAIT_BIT | VK_QUERY_RESULT_PARTIAL_BIT);
    return vnc_ask(VNC_OBJECT(vnc_device, handle), ask, &question, waits ? HW_NEVER : 0);
}

const struct vnc_entry vnc_entries_query[] = {
    VNC_ENTRY(vkCreateQueryPool, create_query_pool),
    VNC_ENTRY(vkGetQueryPoolResults, get_query_pool_results),
    VNC_ENTRY(vkResetQueryPool, reset_query_pool),
    {NULL, NULL},
};
