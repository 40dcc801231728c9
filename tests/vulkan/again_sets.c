/* again_sets.c - differential programs: descriptor sets under recordings that are the same.
 *
 * A driver that keeps recordings and descriptor writes may leave out what is written again, never
 * what changes what a recording does.  The kernel's step counts its runs (step.comp), so one that
 * is lost, doubled or stale shows.  See also again.c. */
#include "vkt.h"

#include <string.h>

enum {
    WORDS = 256,
    BYTES = WORDS * 4,
    GROUPS = WORDS / 64,
    ROUNDS = 10,
};

static const VkDescriptorType storage = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;

static struct vkt_buffer data, other;
static struct vkt_kernel kernel;

static void prepare(void)
{
    vkt_open();
    data = vkt_storage(BYTES, NULL);
    other = vkt_storage(BYTES, NULL);
    kernel = vkt_kernel("step.comp", "s", 4);
    vkt_kernel_bind(&kernel, 0, &data);
}

static void out_both(void)
{
    vkt_out_buffer("data", &data);
    vkt_out_buffer("other", &other);
}

static VkCommandBuffer primary(void)
{
    return vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
}

static void record_step(VkCommandBuffer command, uint32_t add)
{
    vkt_record(command, 0);
    vkt_barrier(command);
    vkt_kernel_record(command, &kernel, &add, GROUPS);
    VKT(vkEndCommandBuffer(command));
}

static void submit_and_wait(VkCommandBuffer command)
{
    VkFence fence = vkt_fence(false);
    vkt_submit(command, fence);
    vkt_wait(fence);
}

static void run_step(VkCommandBuffer command, uint32_t add)
{
    record_step(command, add);
    submit_and_wait(command);
}

/* --- descriptor sets -------------------------------------------------------------------------- */

static VkWriteDescriptorSet write_of(VkDescriptorSet set, uint32_t binding,
                                     const VkDescriptorBufferInfo *info)
{
    return (VkWriteDescriptorSet){
        .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
        .dstSet = set,
        .dstBinding = binding,
        .descriptorCount = 1,
        .descriptorType = storage,
        .pBufferInfo = info,
    };
}

static void point(VkDescriptorSet set, const struct vkt_buffer *buffer)
{
    vkt_write_buffer(set, 0, storage, buffer->handle, 0, VK_WHOLE_SIZE);
}

/* Behind a write in the same call, or NULL. */
static void copy_set(VkDescriptorSet from, VkDescriptorSet to, const VkWriteDescriptorSet *write)
{
    const VkCopyDescriptorSet copy = {
        VK_STRUCTURE_TYPE_COPY_DESCRIPTOR_SET, NULL, from, 0, 0, to, 0, 0, 1};
    vkUpdateDescriptorSets(vkt.device, write != NULL, write, 1, &copy);
}

/* Pairs of rounds that write to one buffer, then to the other, by another recording or the same. */
static void update_whole(void)
{
    VkCommandBuffer commands[2] = {primary(), primary()};
    for (uint32_t i = 0; i < 2 * ROUNDS; i++) {
        point(kernel.set, i / 2 % 2 ? &other : &data);
        point(kernel.set, i / 2 % 2 ? &other : &data); /* the same bytes once more */
        run_step(commands[i % 3 == 2], 9);
        out_both();
    }
}

/* A part of the buffer, so that only offset or range differ. */
static void update_ranges(void)
{
    static const struct {
        VkDeviceSize offset, range;
    } parts[] = {{0, 512}, {0, 512}, {256, 512}, {0, 512}, {0, 768}, {0, 512}, {0, 512}};
    VkCommandBuffer command = primary();
    for (size_t i = 0; i < VKT_COUNT(parts); i++) {
        vkt_write_buffer(kernel.set, 0, storage, data.handle, parts[i].offset, parts[i].range);
        run_step(command, 2);
        vkt_out_buffer("data", &data);
    }
}

/* Calls of many writes, of which only the last differs. */
static void update_at_length(void)
{
    enum { WRITES = 100 };
    VkCommandBuffer command = primary();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const VkDescriptorBufferInfo infos[] = {{data.handle, 0, VK_WHOLE_SIZE},
                                                {i % 4 < 2 ? other.handle : data.handle, 0, 512}};
        VkWriteDescriptorSet writes[WRITES];
        for (uint32_t k = 0; k < WRITES; k++)
            writes[k] = write_of(kernel.set, 0, &infos[k == WRITES - 1]);
        vkUpdateDescriptorSets(vkt.device, WRITES, writes, 0, NULL);
        run_step(command, 9);
        out_both();
        point(kernel.set, &data); /* as before the long one */
        run_step(command, 9);
        out_both();
    }
}

static void set_updated(void)
{
    prepare();
    update_whole();
    update_ranges();
    update_at_length();
}

static VkDescriptorUpdateTemplate make_template(void)
{
    const VkDescriptorUpdateTemplateEntry entry = {0, 0, 1, storage, 0, 0};
    VkDescriptorUpdateTemplateCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_UPDATE_TEMPLATE_CREATE_INFO,
        .descriptorUpdateEntryCount = 1,
        .pDescriptorUpdateEntries = &entry,
        .templateType = VK_DESCRIPTOR_UPDATE_TEMPLATE_TYPE_DESCRIPTOR_SET,
        .descriptorSetLayout = kernel.set_layout,
    };
    VkDescriptorUpdateTemplate made;
    VKT(vkCreateDescriptorUpdateTemplate(vkt.device, &info, NULL, &made));
    VKT_KEEP(DESCRIPTOR_UPDATE_TEMPLATE, made);
    return made;
}

static void set_updated_by_template(void)
{
    prepare();
    VkCommandBuffer command = primary();
    VkDescriptorUpdateTemplate by = make_template();
    const VkDescriptorBufferInfo infos[] = {{data.handle, 0, VK_WHOLE_SIZE},
                                            {other.handle, 0, VK_WHOLE_SIZE}};
    /* By template to the second, by a write to the first; each also twice in a row. */
    static const char ways[] = "wttwwtwttTTwW";
    for (const char *way = ways; *way; way++) {
        if (*way == 't' || *way == 'T')
            vkUpdateDescriptorSetWithTemplate(vkt.device, kernel.set, by, &infos[*way == 't']);
        else
            point(kernel.set, *way == 'w' ? &data : &other);
        run_step(command, 9);
        out_both();
    }
}

static void set_copied(void)
{
    prepare();
    VkCommandBuffer command = primary();
    VkDescriptorSet source = vkt_set(kernel.set_layout, "s");
    point(source, &other);
    for (int i = 0; i < 4; i++) {
        run_step(command, 9); /* what it was written with */
        out_both();
        copy_set(source, kernel.set, NULL);
        run_step(command, 9);
        copy_set(source, kernel.set, NULL);
        run_step(command, 9);
        out_both();
        point(kernel.set, &data); /* as at first, and not as it is */
    }
    /* That the set it copies from has changed no byte of a call tells, also with a write in it. */
    const VkDescriptorBufferInfo info = {data.handle, 0, VK_WHOLE_SIZE};
    const VkWriteDescriptorSet write = write_of(kernel.set, 0, &info);
    for (int i = 0; i < 8; i++) {
        point(source, i % 2 ? &data : &other);
        copy_set(source, kernel.set, i < 4 ? NULL : &write);
        run_step(command, 9);
        out_both();
    }
}

static void bind_both(VkCommandBuffer command, const VkDescriptorSet *sets)
{
    const uint32_t add = 3;
    vkt_record(command, 0);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    vkCmdPushConstants(command, kernel.layout, VK_SHADER_STAGE_ALL, 0, sizeof(add), &add);
    for (int i = 0; i < 2; i++) {
        vkt_barrier(command);
        vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                                &sets[i], 0, NULL);
        vkCmdDispatch(command, GROUPS - (uint32_t)i, 1, 1);
    }
    vkt_barrier(command);
    VKT(vkEndCommandBuffer(command));
    submit_and_wait(command);
}

/* One call that writes two sets, then each alone, with the bytes that each was written with. */
static void two_sets_at_once(void)
{
    prepare();
    VkCommandBuffer command = primary();
    const VkDescriptorSet sets[2] = {kernel.set, vkt_set(kernel.set_layout, "s")};
    const VkDescriptorBufferInfo infos[] = {{data.handle, 0, VK_WHOLE_SIZE},
                                            {other.handle, 0, VK_WHOLE_SIZE}};
    point(sets[0], &data);
    point(sets[1], &data);
    for (uint32_t i = 0; i < 8; i++) {
        const VkWriteDescriptorSet writes[2] = {write_of(sets[0], 0, &infos[i % 2]),
                                                write_of(sets[1], 0, &infos[i / 2 % 2])};
        vkUpdateDescriptorSets(vkt.device, 2, writes, 0, NULL);
        bind_both(command, sets);
        out_both();
        point(sets[0], &data);
        bind_both(command, sets);
        out_both();
        point(sets[1], &data);
        bind_both(command, sets);
        out_both();
        /* The same call again, though it is the last one of neither set or of one alone. */
        vkUpdateDescriptorSets(vkt.device, 2, writes, 0, NULL);
        point(sets[i % 2], &data);
        vkUpdateDescriptorSets(vkt.device, 2, writes, 0, NULL);
        bind_both(command, sets);
        out_both();
    }
}

/* Two bindings, written in calls of their own: the last call says nothing of the other binding. */
static void two_bindings(void)
{
    static const struct {
        uint32_t binding, buffer;
    } updates[] = {{0, 0}, {1, 2}, {0, 1}, {0, 1}, {1, 3}, {0, 0}, {1, 3}, {1, 2}, {0, 0}, {1, 2}};
    vkt_open();
    struct vkt_kernel mix = vkt_kernel("mix.comp", "ss", 4);
    struct vkt_buffer buffers[4];
    VkCommandBuffer command = primary();
    const uint32_t factor = 5;
    for (uint32_t i = 0; i < 4; i++) {
        buffers[i] = vkt_storage(BYTES, NULL);
        vkt_pattern(buffers[i].map, BYTES, i);
    }
    vkt_kernel_bind(&mix, 1, &buffers[3]);
    for (uint32_t i = 0; i < VKT_COUNT(updates); i++) {
        vkt_kernel_bind(&mix, updates[i].binding, &buffers[updates[i].buffer]);
        vkt_pattern(buffers[2].map, BYTES, 100 + i);
        vkt_pattern(buffers[3].map, BYTES, 200 + i);
        vkt_record(command, 0);
        vkt_barrier(command);
        vkt_kernel_record(command, &mix, &factor, GROUPS);
        VKT(vkEndCommandBuffer(command));
        submit_and_wait(command);
        vkt_out_buffer("one", &buffers[2]);
        vkt_out_buffer("two", &buffers[3]);
    }
}

/* For one set of kernel.set_layout. */
static VkDescriptorPool set_pool(VkDescriptorPoolCreateFlags flags)
{
    VkDescriptorPoolSize size = {storage, 1};
    VkDescriptorPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .flags = flags,
        .maxSets = 1,
        .poolSizeCount = 1,
        .pPoolSizes = &size,
    };
    VkDescriptorPool pool;
    VKT(vkCreateDescriptorPool(vkt.device, &info, NULL, &pool));
    VKT_KEEP(DESCRIPTOR_POOL, pool);
    return pool;
}

static VkDescriptorSet take_set(VkDescriptorPool pool)
{
    VkDescriptorSetAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = pool,
        .descriptorSetCount = 1,
        .pSetLayouts = &kernel.set_layout,
    };
    VkDescriptorSet set;
    VKT(vkAllocateDescriptorSets(vkt.device, &info, &set));
    return set;
}

static VkDescriptorSetLayout late_layout(void)
{
    const VkDescriptorSetLayoutBinding binding = {0, storage, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL};
    const VkDescriptorBindingFlags flags = VK_DESCRIPTOR_BINDING_UPDATE_AFTER_BIND_BIT;
    VkDescriptorSetLayoutBindingFlagsCreateInfo late = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_BINDING_FLAGS_CREATE_INFO,
        .bindingCount = 1,
        .pBindingFlags = &flags,
    };
    VkDescriptorSetLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .pNext = &late,
        .flags = VK_DESCRIPTOR_SET_LAYOUT_CREATE_UPDATE_AFTER_BIND_POOL_BIT,
        .bindingCount = 1,
        .pBindings = &binding,
    };
    VkDescriptorSetLayout layout;
    VKT(vkCreateDescriptorSetLayout(vkt.device, &info, NULL, &layout));
    VKT_KEEP(DESCRIPTOR_SET_LAYOUT, layout);
    return layout;
}

static void set_updated_after_bind(void)
{
    VKT_NEED(vkt.f12.descriptorBindingStorageBufferUpdateAfterBind);
    prepare();
    kernel.set_layout = late_layout();
    kernel.set = take_set(set_pool(VK_DESCRIPTOR_POOL_CREATE_UPDATE_AFTER_BIND_BIT));
    kernel.layout = vkt_layout(kernel.set_layout, 4);
    kernel.pipeline = vkt_compute_pipeline("step.comp", kernel.layout, NULL);
    VkCommandBuffer command = primary();
    point(kernel.set, &data);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        record_step(command, 9);
        point(kernel.set, i % 4 < 2 ? &other : &data); /* between bind and submission */
        submit_and_wait(command);
        out_both();
        if (i % 3 == 0) { /* what is recorded already sees it too */
            point(kernel.set, i % 2 ? &other : &data);
            submit_and_wait(command);
            out_both();
        }
    }
}

/* --- objects in the place of others ----------------------------------------------------------- */

static struct vkt_buffer short_lived(void)
{
    struct vkt_buffer made = {.size = BYTES};
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = BYTES,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
    };
    VKT(vkCreateBuffer(vkt.device, &info, NULL, &made.handle));
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, made.handle, &needs);
    made.memory = vkt_allocate(needs, VKT_COHERENT, NULL);
    VKT(vkBindBufferMemory(vkt.device, made.handle, made.memory, 0));
    VKT(vkMapMemory(vkt.device, made.memory, 0, VK_WHOLE_SIZE, 0, &made.map));
    memset(made.map, 0, BYTES);
    return made;
}

/* The handle may be the same, and the recording with it. */
static void replace_buffers(void)
{
    VkCommandBuffer filling = primary(), stepping = primary();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct vkt_buffer buffer = short_lived();
        for (int k = 0; k < 2; k++) {
            vkt_record(filling, 0);
            vkt_barrier(filling);
            vkCmdFillBuffer(filling, buffer.handle, 16, 64, 0x5a5a);
            vkt_barrier(filling);
            VKT(vkEndCommandBuffer(filling));
            submit_and_wait(filling);
        }
        point(kernel.set, &buffer);
        run_step(stepping, 8);
        run_step(stepping, 8);
        vkt_out("buffer", buffer.map, BYTES);
        vkDestroyBuffer(vkt.device, buffer.handle, NULL);
    }
}

static void replace_pipelines(void)
{
    VkCommandBuffer command = primary();
    const VkPipeline first = kernel.pipeline;
    for (uint32_t i = 0; i < 6; i++) {
        kernel.pipeline = vkt_compute_pipeline("step.comp", kernel.layout, NULL);
        run_step(command, 8);
        run_step(command, 8);
        kernel.pipeline = first;
        run_step(command, 8);
        vkt_out_buffer("data", &data);
    }
}

/* Sets that come and go: what was written to one says nothing of another in its place. */
static void replace_sets(void)
{
    VkDescriptorPool pool = set_pool(VK_DESCRIPTOR_POOL_CREATE_FREE_DESCRIPTOR_SET_BIT);
    VkCommandBuffer command = primary();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        kernel.set = take_set(pool);
        point(kernel.set, i / 2 % 2 ? &other : &data);
        run_step(command, 9);
        run_step(command, 9);
        out_both();
        if (i % 2)
            VKT(vkFreeDescriptorSets(vkt.device, pool, 1, &kernel.set));
        else
            VKT(vkResetDescriptorPool(vkt.device, pool, 0));
    }
}

/* A set may hold what is destroyed, in a binding that no shader reads: the recording that binds it
 * is no longer valid, and the same one made again is. */
static void unread_binding(void)
{
    prepare();
    kernel = vkt_kernel("step.comp", "ss", 4);
    VkCommandBuffer command = primary();
    for (uint32_t i = 0; i < 2; i++) {
        struct vkt_buffer unread = short_lived();
        point(kernel.set, &data);
        vkt_write_buffer(kernel.set, 1, storage, unread.handle, 0, VK_WHOLE_SIZE);
        run_step(command, 1);
        run_step(command, 1);
        vkDestroyBuffer(vkt.device, unread.handle, NULL);
        run_step(command, 1);
        run_step(command, 1);
        vkt_out_buffer("data", &data);
    }
}

static void objects_replaced(void)
{
    prepare();
    replace_pipelines();
    replace_buffers();
    replace_sets();
}

static const struct vkt_case cases[] = {
    {"set_updated", set_updated, NULL},
    {"set_updated_by_template", set_updated_by_template, NULL},
    {"set_copied", set_copied, NULL},
    {"two_sets_at_once", two_sets_at_once, NULL},
    {"two_bindings", two_bindings, NULL},
    {"set_updated_after_bind", set_updated_after_bind, NULL},
    {"objects_replaced", objects_replaced, NULL},
    {"unread_binding", unread_binding, NULL},
};

VKT_MAIN(cases)
