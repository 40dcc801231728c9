/* threads.c - differential programs: threads that do everything at once.
 *
 * What each thread finds depends on nothing that the others do, so the output is the same however
 * they are interleaved.  Sanitizers run this subject, too. */
#include "vkt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { WORDS = 1024, BYTES = WORDS * 4, THREADS = 8, SUBMITS = 60 };

/* A queue is externally synchronised, and so is a set that several threads write. */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;

static void submit(VkCommandBuffer command, VkFence fence)
{
    pthread_mutex_lock(&queue_lock);
    vkt_submit(command, fence);
    pthread_mutex_unlock(&queue_lock);
}

static void submit_and_wait(VkCommandBuffer command, VkFence fence)
{
    submit(command, fence);
    vkt_wait(fence);
    VKT(vkResetFences(vkt.device, 1, &fence));
}

static void run_all(void *(*body)(void *), void *first, size_t size, int count)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < count; i++)
        VKT_EXPECT(pthread_create(&threads[i], NULL, body, (char *)first + (size_t)i * size) == 0);
    for (int i = 0; i < count; i++)
        VKT_EXPECT(pthread_join(threads[i], NULL) == 0);
}

/* --- submissions ------------------------------------------------------------------------------ */

struct submitter {
    struct vkt_buffer data;
    struct vkt_kernel kernel;
    VkCommandBuffer command;
    VkFence fence;
    uint32_t seen; /* of what the device wrote each time: it may have to be fetched */
};

static void *submit_often(void *argument)
{
    struct submitter *s = argument;
    for (int i = 0; i < SUBMITS; i++) {
        submit_and_wait(s->command, s->fence);
        s->seen = s->seen * 31 + *(volatile uint32_t *)s->data.map;
    }
    return NULL;
}

static void submits(void)
{
    static struct submitter submitters[THREADS];
    vkt_open();
    for (uint32_t i = 0; i < THREADS; i++) {
        struct submitter *s = &submitters[i];
        s->data = vkt_storage(BYTES, NULL);
        s->kernel = vkt_kernel("step.comp", "s", 4);
        vkt_kernel_bind(&s->kernel, 0, &s->data);
        s->fence = vkt_fence(false);
        s->command = vkt_command(vkt_command_pool(vkt.family, 0), VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        vkt_record(s->command, 0);
        vkt_barrier(s->command);
        vkt_kernel_record(s->command, &s->kernel, &i, WORDS / 64);
        VKT(vkEndCommandBuffer(s->command));
    }
    run_all(submit_often, submitters, sizeof(*submitters), THREADS);
    for (int i = 0; i < THREADS; i++) {
        vkt_out_u64("seen", submitters[i].seen);
        vkt_out_buffer("data", &submitters[i].data);
    }
}

/* --- buffers that come and go ----------------------------------------------------------------- */

struct buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    uint8_t *map;
};

/* As vkt_buffer, but from any thread, and gone with buffer_close. */
static struct buffer buffer_open(void)
{
    struct buffer b;
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = BYTES,
                               .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                                        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
    VkMemoryRequirements needs;
    VKT(vkCreateBuffer(vkt.device, &info, NULL, &b.handle));
    vkGetBufferMemoryRequirements(vkt.device, b.handle, &needs);
    VkMemoryAllocateInfo memory = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .allocationSize = needs.size,
        .memoryTypeIndex = vkt_memory_type(needs.memoryTypeBits, VKT_COHERENT),
    };
    VKT(vkAllocateMemory(vkt.device, &memory, NULL, &b.memory));
    VKT(vkBindBufferMemory(vkt.device, b.handle, b.memory, 0));
    VKT(vkMapMemory(vkt.device, b.memory, 0, VK_WHOLE_SIZE, 0, (void **)&b.map));
    return b;
}

static void buffer_close(struct buffer *b)
{
    vkUnmapMemory(vkt.device, b->memory);
    vkDestroyBuffer(vkt.device, b->handle, NULL);
    vkFreeMemory(vkt.device, b->memory, NULL);
}

enum { TURNS = 24, INPUTS = 4, SLOTS_EACH = 8, COPIERS = 3, UPDATERS = 3 };

struct copier {
    VkCommandBuffer command;
    VkFence fence;
    uint32_t seed;
};

/* Maps, writes, records, submits, reads and destroys. */
static void *copy_often(void *argument)
{
    const struct copier *c = argument;
    const VkBufferCopy all = {.size = BYTES};
    for (uint32_t i = 0; i < TURNS; i++) {
        struct buffer from = buffer_open(), to = buffer_open();
        vkt_pattern(from.map, BYTES, c->seed + i);
        vkt_record(c->command, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
        vkCmdCopyBuffer(c->command, from.handle, to.handle, 1, &all);
        vkt_barrier(c->command);
        VKT(vkEndCommandBuffer(c->command));
        submit_and_wait(c->command, c->fence);
        VKT_EXPECT(memcmp(from.map, to.map, BYTES) == 0);
        buffer_close(&from);
        buffer_close(&to);
    }
    return NULL;
}

/* --- a set that is updated while work that uses other descriptors of it runs -------------------
 */

struct bindless {
    struct vkt_kernel kernel;
    struct vkt_buffer out, inputs[INPUTS];
    VkCommandBuffer command;
    VkFence fence;
    atomic_int updating;
};

struct updater {
    struct bindless *bindless;
    uint32_t first; /* of its slots */
};

static void write_slot(VkDescriptorSet set, uint32_t slot, VkBuffer buffer)
{
    VkDescriptorBufferInfo info = {buffer, 0, VK_WHOLE_SIZE};
    VkWriteDescriptorSet write = {
        .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
        .dstSet = set,
        .dstBinding = 1,
        .dstArrayElement = slot,
        .descriptorCount = 1,
        .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
        .pBufferInfo = &info,
    };
    vkUpdateDescriptorSets(vkt.device, 1, &write, 0, NULL);
}

static void *update_often(void *argument)
{
    const struct updater *u = argument;
    struct buffer buffers[SLOTS_EACH];
    for (uint32_t i = 0; i < TURNS * SLOTS_EACH; i++) {
        uint32_t slot = i % SLOTS_EACH;
        struct buffer buffer = buffer_open();
        memset(buffer.map, (int)i, 64);
        write_slot(u->bindless->kernel.set, u->first + slot, buffer.handle);
        if (i >= SLOTS_EACH)
            buffer_close(&buffers[slot]);
        buffers[slot] = buffer;
    }
    /* The set must name nothing that is gone when it is next bound. */
    for (uint32_t i = 0; i < SLOTS_EACH; i++) {
        write_slot(u->bindless->kernel.set, u->first + i, u->bindless->inputs[0].handle);
        buffer_close(&buffers[i]);
    }
    atomic_fetch_sub(&u->bindless->updating, 1);
    return NULL;
}

static VkDescriptorSetLayout bindless_layout(uint32_t slots)
{
    const VkDescriptorSetLayoutBinding bindings[] = {
        {0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
        {1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, slots, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
    };
    const VkDescriptorBindingFlags flags[] = {
        0, VK_DESCRIPTOR_BINDING_PARTIALLY_BOUND_BIT | VK_DESCRIPTOR_BINDING_UPDATE_AFTER_BIND_BIT |
               VK_DESCRIPTOR_BINDING_UPDATE_UNUSED_WHILE_PENDING_BIT};
    VkDescriptorSetLayoutBindingFlagsCreateInfo flags_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_BINDING_FLAGS_CREATE_INFO,
        .bindingCount = VKT_COUNT(flags),
        .pBindingFlags = flags,
    };
    VkDescriptorSetLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .pNext = &flags_info,
        .flags = VK_DESCRIPTOR_SET_LAYOUT_CREATE_UPDATE_AFTER_BIND_POOL_BIT,
        .bindingCount = VKT_COUNT(bindings),
        .pBindings = bindings,
    };
    VkDescriptorSetLayout layout;
    VKT(vkCreateDescriptorSetLayout(vkt.device, &info, NULL, &layout));
    VKT_KEEP(DESCRIPTOR_SET_LAYOUT, layout);
    return layout;
}

static VkDescriptorSet bindless_set(VkDescriptorSetLayout layout, uint32_t slots)
{
    VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, slots + 1};
    VkDescriptorPoolCreateInfo pool_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .flags = VK_DESCRIPTOR_POOL_CREATE_UPDATE_AFTER_BIND_BIT,
        .maxSets = 1,
        .poolSizeCount = 1,
        .pPoolSizes = &size,
    };
    VkDescriptorPool pool;
    VKT(vkCreateDescriptorPool(vkt.device, &pool_info, NULL, &pool));
    VKT_KEEP(DESCRIPTOR_POOL, pool);
    VkDescriptorSetAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = pool,
        .descriptorSetCount = 1,
        .pSetLayouts = &layout,
    };
    VkDescriptorSet set;
    VKT(vkAllocateDescriptorSets(vkt.device, &info, &set));
    return set;
}

static void bindless_open(struct bindless *b)
{
    const uint32_t used = INPUTS, slots = INPUTS + UPDATERS * SLOTS_EACH;
    b->kernel.push_bytes = sizeof(used);
    b->kernel.set_layout = bindless_layout(slots);
    b->kernel.layout = vkt_layout(b->kernel.set_layout, sizeof(used));
    b->kernel.pipeline = vkt_compute_pipeline("indexing.comp", b->kernel.layout, NULL);
    b->kernel.set = bindless_set(b->kernel.set_layout, slots);
    b->out = vkt_storage(BYTES, NULL);
    vkt_write_buffer(b->kernel.set, 0, vkt_type('s'), b->out.handle, 0, VK_WHOLE_SIZE);
    for (uint32_t i = 0; i < INPUTS; i++) {
        b->inputs[i] = vkt_storage(BYTES, NULL);
        vkt_pattern(b->inputs[i].map, BYTES, 70 + i);
        write_slot(b->kernel.set, i, b->inputs[i].handle);
    }
    b->fence = vkt_fence(false);
    b->command = vkt_command(vkt_command_pool(vkt.family, 0), VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(b->command, 0);
    vkt_barrier(b->command);
    vkt_kernel_record(b->command, &b->kernel, &used, WORDS / 64);
    VKT(vkEndCommandBuffer(b->command));
}

static void *use_often(void *argument)
{
    struct bindless *b = argument;
    for (int i = 0; i < TURNS || atomic_load(&b->updating); i++)
        submit_and_wait(b->command, b->fence);
    return NULL;
}

/* --- all of it at once ------------------------------------------------------------------------ */

struct part {
    void *(*body)(void *);
    void *argument;
};

static void *run_part(void *argument)
{
    const struct part *part = argument;
    return part->body(part->argument);
}

static void everything(void)
{
    VKT_NEED(vkt.f12.descriptorBindingStorageBufferUpdateAfterBind);
    VKT_NEED(vkt.f12.descriptorBindingUpdateUnusedWhilePending);
    VKT_NEED(vkt.f12.descriptorBindingPartiallyBound);
    VKT_NEED(vkt.f12.shaderStorageBufferArrayNonUniformIndexing);
    VKT_NEED(vkt.f12.runtimeDescriptorArray);
    static struct bindless bindless = {.updating = UPDATERS};
    struct copier copiers[COPIERS];
    struct updater updaters[UPDATERS];
    struct part parts[1 + COPIERS + UPDATERS] = {{use_often, &bindless}};
    vkt_open();
    bindless_open(&bindless);
    for (uint32_t i = 0; i < COPIERS; i++) {
        VkCommandPool pool =
            vkt_command_pool(vkt.family, VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT);
        copiers[i] = (struct copier){vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY),
                                     vkt_fence(false), 1000 * i};
        parts[1 + i] = (struct part){copy_often, &copiers[i]};
    }
    for (uint32_t i = 0; i < UPDATERS; i++) {
        updaters[i] = (struct updater){&bindless, INPUTS + i * SLOTS_EACH};
        parts[1 + COPIERS + i] = (struct part){update_often, &updaters[i]};
    }
    run_all(run_part, parts, sizeof(*parts), VKT_COUNT(parts));
    vkt_out_buffer("out", &bindless.out);
}

/* --- recordings beside destructions ------------------------------------------------------------
 */

enum { RECORDERS = 3, RECORDINGS = 8, DESTROYED = 200 };

struct recorder {
    VkCommandBuffer command;
    struct vkt_buffer data;
};

/* The last recording fills each word with its own number. */
static void *record_often(void *argument)
{
    struct recorder *r = argument;
    for (uint32_t i = 1; i <= RECORDINGS; i++) {
        vkt_record(r->command, 0);
        for (uint32_t word = 0; word < WORDS; word++)
            vkCmdFillBuffer(r->command, r->data.handle, (VkDeviceSize)word * 4, 4, word * i);
        vkt_barrier(r->command);
        VKT(vkEndCommandBuffer(r->command));
    }
    return NULL;
}

/* The driver looks for each in the recordings under way. */
static void *destroy_often(void *argument)
{
    (void)argument;
    const VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    for (int i = 0; i < DESTROYED; i++) {
        VkFence fence;
        VKT(vkCreateFence(vkt.device, &info, NULL, &fence));
        vkDestroyFence(vkt.device, fence, NULL);
    }
    return NULL;
}

static void records_beside_destructions(void)
{
    struct recorder recorders[RECORDERS];
    struct part parts[RECORDERS + 1] = {{destroy_often, NULL}};
    vkt_open();
    for (uint32_t i = 0; i < RECORDERS; i++) {
        VkCommandPool pool =
            vkt_command_pool(vkt.family, VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT);
        recorders[i] = (struct recorder){vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY),
                                         vkt_buffer(BYTES, 0, VKT_COHERENT)};
        parts[1 + i] = (struct part){record_often, &recorders[i]};
    }
    run_all(run_part, parts, sizeof(*parts), VKT_COUNT(parts));
    VkFence fence = vkt_fence(false);
    for (uint32_t i = 0; i < RECORDERS; i++) {
        submit_and_wait(recorders[i].command, fence);
        vkt_out_buffer("data", &recorders[i].data);
    }
}

/* --- instances -------------------------------------------------------------------------------- */

static void *make_instances(void *argument)
{
    const int *count = argument;
    for (int i = 0; i < *count; i++) {
        VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                         .apiVersion = VK_API_VERSION_1_3};
        VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                     .pApplicationInfo = &application};
        VkInstance instance;
        uint32_t devices = 0;
        VKT(vkCreateInstance(&info, NULL, &instance));
        VKT(vkEnumeratePhysicalDevices(instance, &devices, NULL));
        VKT_EXPECT(devices > 0);
        vkDestroyInstance(instance, NULL);
    }
    return NULL;
}

static void instances(void)
{
    int counts[] = {10};
    run_all(make_instances, counts, sizeof(*counts), 1);
    vkt_out_u64("instances", (uint64_t)counts[0]);
}

static void instances_at_once(void)
{
    int counts[] = {3, 3, 3};
    run_all(make_instances, counts, sizeof(*counts), VKT_COUNT(counts));
    vkt_out_u64("threads", VKT_COUNT(counts));
}

static const struct vkt_case cases[] = {
    {"submits", submits, NULL},
    {"everything", everything, NULL},
    {"records_beside_destructions", records_beside_destructions, NULL},
    {"instances", instances, NULL},
    {"instances_at_once", instances_at_once, NULL},
};

VKT_MAIN(cases)
