/* pool.c - differential programs: large pools of mapped memory that work writes by device address,
 * through bindings, by copies and by fills, while the program reads and writes other bytes of the
 * same pages.
 *
 * A model of each pool says which bytes must be there, whenever the program looks.  Each thread has
 * spans of its own, and so bytes of the model that no other thread uses. */
#include "vkt.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    POOLS = 2, /* the first is written by address, the second through bindings */
    BYTES_MAX = 10 << 20,
    DEVICE_BYTES = 1 << 20,
    SPANS = 48, /* of a thread */
    WORKERS_MAX = 3,
    BATCHES = 4, /* of a thread, under way at most */
    NODES = 4,   /* of a batch */
    READERS = 3,
    STEPPED_WORDS = 64,
};

static const uint32_t pool_bytes[POOLS] = {BYTES_MAX, (9 << 20) + 40};

struct pool {
    VkBuffer buffers[2]; /* both are all of its memory */
    VkDeviceMemory memory;
    VkDeviceAddress address;
    unsigned char *map;
    unsigned char model[BYTES_MAX];
};

struct node {
    VkDeviceAddress next;
    uint32_t value, padding;
};

struct push {
    VkDeviceAddress first, target;
    uint32_t count, padding;
};

/* Bytes that either the program or the device uses at a time. */
struct span {
    struct pool *pool;
    uint32_t at, bytes;
    uint32_t written, read; /* the last batch that does */
    VkDescriptorSet set;    /* binds all from there on; NULL: it begins where no binding may */
};

struct worker {
    pthread_t thread;
    uint32_t state;
    struct span spans[SPANS];
    struct vkt_buffer nodes, local;
    VkDeviceAddress nodes_address;
    unsigned char local_model[DEVICE_BYTES];
    VkCommandPool commands;
    VkFence fences[BATCHES];
    uint32_t submitted, waited;
};

static struct pool pools[POOLS];
static struct worker workers[WORKERS_MAX];
static struct vkt_kernel kernel, step;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t pick_from(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)*state * below) >> 32);
}

static uint32_t pick(struct worker *w, uint32_t below)
{
    return pick_from(&w->state, below);
}

/* ---- pools ---- */

static VkDeviceAddress address_of(VkBuffer buffer)
{
    VkBufferDeviceAddressInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
        .buffer = buffer,
    };
    return vkGetBufferDeviceAddress(vkt.device, &info);
}

static VkBuffer make_buffer(uint32_t bytes, VkBufferUsageFlags more)
{
    VkBuffer buffer;
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = bytes,
        .usage = more | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT,
    };
    VKT(vkCreateBuffer(vkt.device, &info, NULL, &buffer));
    return buffer;
}

static void map_pool(struct pool *p)
{
    void *map;
    VKT(vkMapMemory(vkt.device, p->memory, 0, VK_WHOLE_SIZE, 0, &map));
    p->map = map;
}

/* Filled by the device before it is mapped for the first time, or by the program afterwards. */
static void make_pool(struct pool *p, bool by_device)
{
    uint32_t bytes = pool_bytes[p - pools];
    bool addressed = p == pools;
    VkMemoryAllocateFlagsInfo flags = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
        .flags = addressed ? VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT : 0,
    };
    VkMemoryRequirements needs;
    for (int i = 0; i < 2; i++)
        p->buffers[i] =
            make_buffer(bytes, addressed ? VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT : 0);
    vkGetBufferMemoryRequirements(vkt.device, p->buffers[0], &needs);
    VkMemoryAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .pNext = &flags,
        .allocationSize = needs.size,
        .memoryTypeIndex = vkt_memory_type(needs.memoryTypeBits, VKT_COHERENT),
    };
    VKT(vkAllocateMemory(vkt.device, &info, NULL, &p->memory));
    for (int i = 0; i < 2; i++)
        VKT(vkBindBufferMemory(vkt.device, p->buffers[i], p->memory, 0));
    p->address = addressed ? address_of(p->buffers[0]) : 0;
    if (by_device) {
        VkCommandBuffer command = vkt_begin();
        vkCmdFillBuffer(command, p->buffers[1], 0, VK_WHOLE_SIZE, 0x5a5a5a5a);
        vkt_finish(command);
    }
    map_pool(p);
    memset(p->model, by_device ? 0x5a : 0, bytes);
    if (!by_device)
        memset(p->map, 0, bytes);
}

static void free_pool(struct pool *p)
{
    for (int i = 0; i < 2; i++)
        vkDestroyBuffer(vkt.device, p->buffers[i], NULL);
    vkFreeMemory(vkt.device, p->memory, NULL);
}

/* ---- spans ---- */

/* Many small ones, which share pages, and a few that are larger than what is held. */
static uint32_t pick_bytes(uint32_t *state)
{
    uint32_t kind = pick_from(state, 12), bytes;
    if (kind < 9)
        bytes = kind < 6 ? 4 + pick_from(state, 300) : 3000 + pick_from(state, 9000);
    else
        bytes = kind < 11 ? 60000 + pick_from(state, 200000) : 300000 + pick_from(state, 1000000);
    return bytes / 4 * 4;
}

/* Those of all threads and pools, by turns at random. */
static void make_spans(uint32_t *state, uint32_t count)
{
    enum { STEP = 256, LAST = 2 * STEP * SPANS * WORKERS_MAX };
    uint32_t at[POOLS] = {0}, made[WORKERS_MAX] = {0};
    for (uint32_t left = SPANS * count; left > 0;) {
        uint32_t w = pick_from(state, count), p = pick_from(state, POOLS);
        uint32_t bytes = pick_bytes(state), gap = pick_from(state, 4) ? 0 : pick_from(state, 17000);
        if (made[w] == SPANS)
            continue;
        if (at[p] + bytes + gap > pool_bytes[p] - LAST) {
            bytes = 16;
            gap = 0;
        }
        if (bytes > STEP && pick_from(state, 2)) /* a binding may begin there */
            at[p] = (at[p] + STEP - 1) / STEP * STEP;
        workers[w].spans[made[w]++] = (struct span){.pool = &pools[p], .at = at[p], .bytes = bytes};
        at[p] += bytes + gap / 4 * 4;
        left--;
    }
}

static void bind_spans(uint32_t count)
{
    uint32_t align = (uint32_t)vkt.props.limits.minStorageBufferOffsetAlignment;
    for (uint32_t i = 0; i < count * SPANS; i++) {
        struct span *span = &workers[i / SPANS].spans[i % SPANS];
        if (span->pool == pools || span->at % align || span->bytes < 4 * STEPPED_WORDS)
            continue;
        if (!span->set)
            span->set = vkt_set(step.set_layout, "s");
        vkt_write_buffer(span->set, 0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, span->pool->buffers[1],
                         span->at, VK_WHOLE_SIZE);
    }
}

static void look(const struct span *span, const char *who)
{
    const unsigned char *a = span->pool->map + span->at, *b = span->pool->model + span->at;
    if (memcmp(a, b, span->bytes) == 0)
        return;
    for (uint32_t i = 0; i < span->bytes; i++)
        if (a[i] != b[i])
            vkt_fail("%s: byte %u (page %u) of pool %d, span at %u+%u, is %02x, not %02x; written "
                     "by batch %u, read by %u",
                     who, span->at + i, (span->at + i) / 4096, (int)(span->pool - pools), span->at,
                     span->bytes, a[i], b[i], span->written, span->read);
}

/* ---- the program's part ---- */

static void wait_for(struct worker *w, uint32_t number)
{
    for (; w->waited < number; w->waited++) {
        VkFence fence = w->fences[(w->waited + 1) % BATCHES];
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 1, &fence));
    }
}

struct reader {
    pthread_t thread;
    uint32_t count;
    const struct span *spans[SPANS];
};

static void *read_spans(void *arg)
{
    const struct reader *reader = arg;
    for (uint32_t i = 0; i < reader->count; i++)
        look(reader->spans[i], "reader");
    return NULL;
}

/* What no batch writes is read by several threads. */
static void read_together(struct worker *w)
{
    struct reader readers[READERS] = {0};
    for (uint32_t i = 0; i < SPANS; i++) {
        struct reader *reader = &readers[pick(w, READERS)];
        if (w->spans[i].written <= w->waited && pick(w, 2))
            reader->spans[reader->count++] = &w->spans[i];
    }
    for (uint32_t i = 0; i < READERS; i++)
        if (pthread_create(&readers[i].thread, NULL, read_spans, &readers[i]))
            vkt_fail("no thread");
    for (uint32_t i = 0; i < READERS; i++)
        pthread_join(readers[i].thread, NULL);
}

static void write_span(struct worker *w, const struct span *span)
{
    unsigned char *to = span->pool->map + span->at, *also = span->pool->model + span->at;
    uint32_t how = pick(w, 6), at = pick(w, span->bytes), n = 1 + pick(w, span->bytes - at);
    if (how == 0) {
        vkt_pattern(also, span->bytes, pick(w, 1000));
        memcpy(to, also, span->bytes);
    } else if (how == 1) {
        int value = (int)pick(w, 256);
        memset(to + at, value, n);
        memset(also + at, value, n);
    } else if (how == 2) {
        memset(to, 0, span->bytes);
        memset(also, 0, span->bytes);
    } else if (how == 3) {
        for (uint32_t i = at; i < at + n; i += 2)
            to[i] = also[i] = (unsigned char)pick(w, 256);
    } else {
        to[at] = also[at] = (unsigned char)pick(w, 256);
    }
}

/* The program reads or writes what it may. */
static void use_some(struct worker *w, uint32_t times)
{
    for (; times > 0; times--) {
        struct span *span = &w->spans[pick(w, SPANS)];
        uint32_t used = span->written > span->read ? span->written : span->read;
        if (pick(w, 3) == 0)
            wait_for(w, used);
        if (used <= w->waited && pick(w, 2))
            write_span(w, span);
        else if (span->written <= w->waited)
            look(span, "program");
    }
}

/* ---- the device's part ---- */

static void record_kernel(struct worker *w, VkCommandBuffer command, struct span *span)
{
    uint32_t slot = (w->submitted + 1) % BATCHES;
    struct node *list = (struct node *)(void *)((char *)w->nodes.map + slot * 256);
    uint32_t words = span->bytes / 4, first = pick(w, words), count = 1 + pick(w, words - first);
    count = count > 3000 ? 3000 : count;
    for (uint32_t i = 0; i < count; i++)
        memcpy(span->pool->model + span->at + 4 * (first + i), &list[i % NODES].value, 4);
    struct push push = {w->nodes_address + slot * 256, span->pool->address + span->at + 4 * first,
                        count, 0};
    vkt_kernel_record(command, &kernel, &push, 1);
    span->written = w->submitted + 1;
}

/* Of all that is bound the first words. */
static void record_step(struct worker *w, VkCommandBuffer command, struct span *span)
{
    struct vkt_kernel bound = step;
    uint32_t add = pick(w, 100);
    bound.set = span->set;
    vkt_kernel_record(command, &bound, &add, 1);
    for (uint32_t i = 0, word; i < STEPPED_WORDS; i++) {
        unsigned char *at = span->pool->model + span->at + 4 * i;
        memcpy(&word, at, 4);
        word = word * 1664525u + 1013904223u + add;
        memcpy(at, &word, 4);
    }
    span->written = w->submitted + 1;
}

static VkBuffer either(struct worker *w, const struct span *span)
{
    return span->pool->buffers[pick(w, 2)];
}

static void record_copy_in(struct worker *w, VkCommandBuffer command, struct span *span)
{
    uint32_t n = span->bytes < DEVICE_BYTES ? span->bytes : DEVICE_BYTES;
    uint32_t from = pick(w, DEVICE_BYTES - n + 1), to = pick(w, span->bytes - n + 1);
    vkCmdCopyBuffer(command, w->local.handle, either(w, span), 1,
                    &(VkBufferCopy){from, span->at + to, n});
    memcpy(span->pool->model + span->at + to, w->local_model + from, n);
    span->written = w->submitted + 1;
}

static void record_copy_out(struct worker *w, VkCommandBuffer command, struct span *span)
{
    uint32_t n = span->bytes < DEVICE_BYTES ? span->bytes : DEVICE_BYTES;
    uint32_t from = pick(w, span->bytes - n + 1), to = pick(w, DEVICE_BYTES - n + 1);
    vkCmdCopyBuffer(command, either(w, span), w->local.handle, 1,
                    &(VkBufferCopy){span->at + from, to, n});
    memcpy(w->local_model + to, span->pool->model + span->at + from, n);
    span->read = w->submitted + 1;
}

static void record_fill(struct worker *w, VkCommandBuffer command, struct span *span)
{
    uint32_t value = 0x01010101u * pick(w, 256);
    vkCmdFillBuffer(command, either(w, span), span->at, span->bytes, value);
    memset(span->pool->model + span->at, (int)(value & 255), span->bytes);
    span->written = w->submitted + 1;
}

static void submit(struct worker *w)
{
    if (w->submitted - w->waited == BATCHES)
        wait_for(w, w->waited + 1);
    uint32_t slot = (w->submitted + 1) % BATCHES, kind = pick(w, 4);
    struct node *list = (struct node *)(void *)((char *)w->nodes.map + slot * 256);
    for (uint32_t i = 0; i < NODES; i++) {
        uint32_t value = pick(w, 3) ? pick(w, 1000) * 0x00350017u : 0x01010101u * pick(w, 256);
        list[i] = (struct node){
            w->nodes_address + slot * 256 + (i + 1) % NODES * sizeof(struct node), value, 0};
    }
    VkCommandBuffer command = vkt_command(w->commands, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
    vkt_barrier(command);
    for (uint32_t i = 1 + pick(w, 4); i > 0; i--) {
        struct span *span = &w->spans[pick(w, SPANS)];
        uint32_t what = kind == 0 ? 3 : pick(w, 6);
        if (what == 1)
            record_copy_in(w, command, span);
        else if (what == 2)
            record_fill(w, command, span);
        else if (what == 3)
            record_copy_out(w, command, span);
        else if (span->set)
            record_step(w, command, span);
        else if (span->pool->address)
            record_kernel(w, command, span);
        vkt_barrier(command);
    }
    VKT(vkEndCommandBuffer(command));
    pthread_mutex_lock(&queue_lock);
    vkt_submit(command, w->fences[slot]);
    pthread_mutex_unlock(&queue_lock);
    w->submitted++;
}

/* ---- cases ---- */

static void open_all(uint32_t *state, uint32_t count)
{
    VKT_NEED(vkt.f12.bufferDeviceAddress);
    vkt_open();
    kernel = vkt_kernel("address.comp", "", sizeof(struct push));
    step = vkt_kernel("step.comp", "s", sizeof(uint32_t));
    for (uint32_t i = 0; i < POOLS; i++)
        make_pool(&pools[i], pick_from(state, 2));
    for (uint32_t i = 0; i < count; i++) {
        struct worker *w = &workers[i];
        *w = (struct worker){.state = *state + i * 77777};
        w->commands = vkt_command_pool(vkt.family, VK_COMMAND_POOL_CREATE_TRANSIENT_BIT);
        w->nodes = vkt_buffer(BATCHES * 256,
                              VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                  VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
                              VKT_COHERENT);
        w->nodes_address = address_of(w->nodes.handle);
        w->local = vkt_buffer(DEVICE_BYTES, 0, VKT_DEVICE);
        for (uint32_t k = 0; k < BATCHES; k++)
            w->fences[k] = vkt_fence(false);
        VkCommandBuffer command = vkt_begin();
        vkCmdFillBuffer(command, w->local.handle, 0, VK_WHOLE_SIZE, 0);
        vkt_finish(command);
    }
    make_spans(state, count);
    bind_spans(count);
}

static void finish(struct worker *w)
{
    wait_for(w, w->submitted);
    for (uint32_t i = 0; i < SPANS; i++)
        look(&w->spans[i], "end");
}

static void check_local(const struct worker *w)
{
    struct vkt_buffer back = vkt_buffer(DEVICE_BYTES, 0, VKT_COHERENT);
    VkCommandBuffer command = vkt_begin();
    vkt_copy(command, &w->local, &back);
    vkt_finish(command);
    if (memcmp(back.map, w->local_model, DEVICE_BYTES) != 0)
        vkt_fail("the copies of it differ");
}

static void close_all(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        check_local(&workers[i]);
    for (uint32_t i = 0; i < POOLS; i++) {
        vkt_out("pool", pools[i].map, pool_bytes[i]);
        free_pool(&pools[i]);
    }
}

static uint32_t seed(void)
{
    const char *other = getenv("VKT_SEED"); /* by hand */
    return other ? (uint32_t)strtoul(other, NULL, 10) : 11;
}

static void map_again(struct pool *p)
{
    vkUnmapMemory(vkt.device, p->memory);
    map_pool(p);
}

static void shared_pages(void)
{
    enum { STEPS = 60 };
    struct worker *w = workers;
    uint32_t state = seed();
    open_all(&state, 1);
    for (uint32_t i = 0; i < STEPS; i++) {
        use_some(w, pick(w, 6));
        submit(w);
        use_some(w, pick(w, 4));
        if (pick(w, 5) == 0)
            read_together(w);
        if (pick(w, 9) == 0)
            VKT(vkDeviceWaitIdle(vkt.device));
        if (pick(w, 30) == 0) {
            wait_for(w, w->submitted);
            map_again(&pools[pick(w, POOLS)]);
        }
    }
    finish(w);
    close_all(1);
}

static void *work(void *arg)
{
    enum { STEPS = 12 };
    struct worker *w = arg;
    for (uint32_t i = 0; i < STEPS; i++) {
        use_some(w, pick(w, 6));
        submit(w);
        use_some(w, pick(w, 4));
    }
    finish(w);
    return NULL;
}

static void work_together(void)
{
    for (uint32_t i = 0; i < WORKERS_MAX; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            vkt_fail("no thread");
    for (uint32_t i = 0; i < WORKERS_MAX; i++)
        pthread_join(workers[i].thread, NULL);
}

/* Pages that several threads share.  In between one pool is freed and allocated again, and the
 * other is mapped again. */
static void several_threads(void)
{
    enum { ROUNDS = 3 };
    uint32_t state = seed();
    open_all(&state, WORKERS_MAX);
    work_together();
    for (uint32_t round = 1; round < ROUNDS; round++) {
        struct pool *p = &pools[round % POOLS];
        free_pool(p);
        make_pool(p, pick_from(&state, 2));
        map_again(&pools[(round + 1) % POOLS]);
        bind_spans(WORKERS_MAX);
        work_together();
    }
    close_all(WORKERS_MAX);
}

static const struct vkt_case cases[] = {
    {"shared_pages", shared_pages, NULL},
    {"several_threads", several_threads, NULL},
};
VKT_MAIN(cases)
