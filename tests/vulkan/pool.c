/* pool.c - differential programs: a large pool of mapped memory that work writes by device address,
 * by copies and by fills, while the program reads and writes other bytes of the same pages.
 *
 * A model of the pool says which bytes must be there, whenever the program looks. */
#include "vkt.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BYTES = 10 << 20,
    DEVICE_BYTES = 1 << 20,
    SPANS = 48,
    STEPS = 60,
    BATCHES = 4, /* under way at most */
    NODES = 4,   /* of a batch */
    READERS = 3,
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
    uint32_t at, bytes;
    uint32_t written, read; /* the last batch that does */
};

static struct span spans[SPANS];
static unsigned char model[BYTES], device_model[DEVICE_BYTES];
static struct vkt_buffer pool, nodes, local;
static struct vkt_kernel kernel;
static VkFence fences[BATCHES];
static uint32_t submitted, waited, state;
static VkDeviceAddress pool_address, nodes_address;

static uint32_t pick(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)state * below) >> 32);
}

static VkDeviceAddress address_of(const struct vkt_buffer *buffer)
{
    VkBufferDeviceAddressInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
        .buffer = buffer->handle,
    };
    return vkGetBufferDeviceAddress(vkt.device, &info);
}

/* Many small ones, which share pages, and a few that are larger than what is held. */
static uint32_t pick_bytes(void)
{
    uint32_t kind = pick(12);
    if (kind < 9)
        return kind < 6 ? 4 + pick(300) : 3000 + pick(9000);
    return kind < 11 ? 60000 + pick(200000) : 300000 + pick(2000000);
}

static void make_spans(void)
{
    enum { LAST = 400 * SPANS };
    for (uint32_t i = 0, at = 0; i < SPANS; i++) {
        uint32_t bytes = (pick_bytes() + 3) / 4 * 4, gap = pick(4) ? 0 : 4 * pick(17000);
        if (at + bytes + gap > BYTES - LAST) {
            bytes = 16;
            gap = 0;
        }
        spans[i] = (struct span){at, bytes, 0, 0};
        at += bytes + gap;
    }
}

static void make(uint32_t seed)
{
    VKT_NEED(vkt.f12.bufferDeviceAddress);
    vkt_open();
    state = seed;
    submitted = waited = 0;
    const VkBufferUsageFlags usage =
        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    pool = vkt_buffer(BYTES, usage, VKT_COHERENT);
    nodes = vkt_buffer(BATCHES * 256, usage, VKT_COHERENT);
    local = vkt_buffer(DEVICE_BYTES, 0, VKT_DEVICE);
    kernel = vkt_kernel("address.comp", "", sizeof(struct push));
    pool_address = address_of(&pool);
    nodes_address = address_of(&nodes);
    for (uint32_t i = 0; i < BATCHES; i++)
        fences[i] = vkt_fence(false);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, local.handle, 0, VK_WHOLE_SIZE, 0);
    vkt_finish(command);
    make_spans();
}

static void wait_for(uint32_t number)
{
    for (; waited < number; waited++) {
        vkt_wait(fences[(waited + 1) % BATCHES]);
        VKT(vkResetFences(vkt.device, 1, &fences[(waited + 1) % BATCHES]));
    }
}

static void look(const struct span *span, const char *who)
{
    const unsigned char *a = (unsigned char *)pool.map + span->at, *b = model + span->at;
    if (memcmp(a, b, span->bytes) == 0)
        return;
    for (uint32_t i = 0; i < span->bytes; i++)
        if (a[i] != b[i])
            vkt_fail("%s: byte %u (page %u) of span at %u+%u is %02x, not %02x; batch %u/%u, "
                     "written %u read %u",
                     who, span->at + i, (span->at + i) / 4096, span->at, span->bytes, a[i], b[i],
                     waited, submitted, span->written, span->read);
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
static void read_together(void)
{
    struct reader readers[READERS] = {0};
    for (uint32_t i = 0; i < SPANS; i++) {
        struct reader *reader = &readers[pick(READERS)];
        if (spans[i].written <= waited && pick(2))
            reader->spans[reader->count++] = &spans[i];
    }
    for (uint32_t i = 0; i < READERS; i++)
        if (pthread_create(&readers[i].thread, NULL, read_spans, &readers[i]))
            vkt_fail("no thread");
    for (uint32_t i = 0; i < READERS; i++)
        pthread_join(readers[i].thread, NULL);
}

static void write_span(struct span *span)
{
    unsigned char *to = (unsigned char *)pool.map + span->at, *also = model + span->at;
    uint32_t how = pick(5), at = pick(span->bytes), n = 1 + pick(span->bytes - at);
    if (how == 0) {
        vkt_pattern(also, span->bytes, pick(1000));
        memcpy(to, also, span->bytes);
    } else if (how == 1) {
        int value = (int)pick(256);
        memset(to + at, value, n);
        memset(also + at, value, n);
    } else if (how == 2) {
        memset(to, 0, span->bytes);
        memset(also, 0, span->bytes);
    } else {
        to[at] = also[at] = (unsigned char)pick(256);
    }
}

/* The program reads or writes what it may. */
static void use_some(uint32_t times)
{
    for (; times > 0; times--) {
        struct span *span = &spans[pick(SPANS)];
        uint32_t used = span->written > span->read ? span->written : span->read;
        if (pick(3) == 0)
            wait_for(used);
        if (used <= waited && pick(2))
            write_span(span);
        else if (span->written <= waited)
            look(span, "program");
    }
}

static void record_kernel(VkCommandBuffer command, uint32_t slot, struct span *span)
{
    struct node *list = (struct node *)(void *)((char *)nodes.map + slot * 256);
    uint32_t words = span->bytes / 4, first = pick(words), count = 1 + pick(words - first);
    count = count > 3000 ? 3000 : count;
    for (uint32_t i = 0; i < count; i++)
        memcpy(model + span->at + 4 * (first + i), &list[i % NODES].value, 4);
    struct push push = {nodes_address + slot * 256, pool_address + span->at + 4 * first, count, 0};
    vkt_kernel_record(command, &kernel, &push, 1);
    span->written = submitted + 1;
}

static void record_copy_in(VkCommandBuffer command, struct span *span)
{
    uint32_t n = span->bytes < DEVICE_BYTES ? span->bytes : DEVICE_BYTES;
    uint32_t from = pick(DEVICE_BYTES - n + 1), to = pick(span->bytes - n + 1);
    vkCmdCopyBuffer(command, local.handle, pool.handle, 1, &(VkBufferCopy){from, span->at + to, n});
    memcpy(model + span->at + to, device_model + from, n);
    span->written = submitted + 1;
}

static void record_copy_out(VkCommandBuffer command, struct span *span)
{
    uint32_t n = span->bytes < DEVICE_BYTES ? span->bytes : DEVICE_BYTES;
    uint32_t from = pick(span->bytes - n + 1), to = pick(DEVICE_BYTES - n + 1);
    vkCmdCopyBuffer(command, pool.handle, local.handle, 1, &(VkBufferCopy){span->at + from, to, n});
    memcpy(device_model + to, model + span->at + from, n);
    span->read = submitted + 1;
}

static void record_fill(VkCommandBuffer command, struct span *span)
{
    uint32_t value = 0x01010101u * pick(256);
    vkCmdFillBuffer(command, pool.handle, span->at, span->bytes, value);
    memset(model + span->at, (int)(value & 255), span->bytes);
    span->written = submitted + 1;
}

static void submit(void)
{
    if (submitted - waited == BATCHES)
        wait_for(waited + 1);
    uint32_t slot = (submitted + 1) % BATCHES, kind = pick(4);
    struct node *list = (struct node *)(void *)((char *)nodes.map + slot * 256);
    for (uint32_t i = 0; i < NODES; i++)
        list[i] = (struct node){nodes_address + slot * 256 + (i + 1) % NODES * sizeof(struct node),
                                pick(3) ? pick(1000) * 0x00350017u : 0x01010101u * pick(256), 0};
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
    vkt_barrier(command);
    for (uint32_t i = 1 + pick(4); i > 0; i--) {
        struct span *span = &spans[pick(SPANS)];
        uint32_t what = kind == 0 ? 3 : pick(6);
        if (what == 1)
            record_copy_in(command, span);
        else if (what == 2)
            record_fill(command, span);
        else if (what == 3)
            record_copy_out(command, span);
        else
            record_kernel(command, slot, span);
        vkt_barrier(command);
    }
    VKT(vkEndCommandBuffer(command));
    vkt_submit(command, fences[slot]);
    submitted++;
}

static void check_local(void)
{
    struct vkt_buffer back = vkt_buffer(DEVICE_BYTES, 0, VKT_COHERENT);
    VkCommandBuffer command = vkt_begin();
    vkt_copy(command, &local, &back);
    vkt_finish(command);
    if (memcmp(back.map, device_model, DEVICE_BYTES) != 0)
        vkt_fail("the copies of it differ");
}

static void run(uint32_t seed)
{
    make(seed);
    for (uint32_t i = 0; i < STEPS; i++) {
        use_some(pick(6));
        submit();
        use_some(pick(4));
        if (pick(5) == 0)
            read_together();
        if (pick(9) == 0)
            VKT(vkDeviceWaitIdle(vkt.device));
        if (pick(30) == 0) {
            wait_for(submitted);
            vkUnmapMemory(vkt.device, pool.memory);
            VKT(vkMapMemory(vkt.device, pool.memory, 0, VK_WHOLE_SIZE, 0, &pool.map));
        }
    }
    wait_for(submitted);
    for (uint32_t i = 0; i < SPANS; i++)
        look(&spans[i], "end");
    check_local();
    vkt_out("pool", pool.map, BYTES);
}

static void shared_pages(void)
{
    const char *seed = getenv("VKT_SEED"); /* others, by hand */
    run(seed ? (uint32_t)strtoul(seed, NULL, 10) : 11);
}

static const struct vkt_case cases[] = {
    {"shared_pages", shared_pages, NULL},
};
VKT_MAIN(cases)
