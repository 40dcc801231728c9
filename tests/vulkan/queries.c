/* queries.c - differential programs: query pools. */
#include "vkt_image.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct push {
    float color[4];
    float depth;
};

static VkQueryPool pool(VkQueryType type, uint32_t count, VkQueryPipelineStatisticFlags statistics)
{
    VkQueryPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = type,
        .queryCount = count,
        .pipelineStatistics = statistics,
    };
    VkQueryPool made;
    VKT(vkCreateQueryPool(vkt.device, &info, NULL, &made));
    VKT_KEEP(QUERY_POOL, made);
    return made;
}

/* Each query i counts one triangle that covers the screen, under a scissor of i + 1 columns. */
static void draw_counted(VkCommandBuffer command, VkQueryPool queries, uint32_t count,
                         VkQueryControlFlags flags)
{
    struct vkt_target target = vkt_target(VK_FORMAT_UNDEFINED, VK_SAMPLE_COUNT_1_BIT);
    const VkDynamicState dynamic = VK_DYNAMIC_STATE_SCISSOR;
    struct vkt_pipeline wanted = {
        .shaders = {"screen.vert", "pushed.frag"},
        .layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push)),
        .pass = target.pass,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
        .dynamic_count = 1,
        .dynamic = &dynamic,
    };
    VkPipeline pipeline = vkt_pipeline(&wanted);
    const struct push push = {{1, 1, 1, 1}, 0.5f};
    vkt_target_begin(command, &target, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline);
    vkCmdPushConstants(command, wanted.layout, VK_SHADER_STAGE_ALL, 0, sizeof(push), &push);
    for (uint32_t i = 0; i < count; i++) {
        VkRect2D scissor = {.extent = {i + 1, VKT_TARGET_SIZE}};
        vkCmdSetScissor(command, 0, 1, &scissor);
        vkCmdBeginQuery(command, queries, i, flags);
        vkCmdDraw(command, 3, 1, 0, 0);
        vkCmdEndQuery(command, queries, i);
    }
    vkCmdEndRenderPass(command);
}

enum { QUERIES = 5 };

static VkQueryPool counted(VkQueryControlFlags flags)
{
    VkQueryPool queries = pool(VK_QUERY_TYPE_OCCLUSION, QUERIES + 1, 0);
    VkCommandBuffer command = vkt_begin();
    vkCmdResetQueryPool(command, queries, 0, QUERIES + 1);
    draw_counted(command, queries, QUERIES, flags);
    vkt_finish(command);
    return queries;
}

static void occlusion(void)
{
    vkt_open();
    VkQueryPool queries = counted(0);
    uint64_t results[QUERIES];
    VKT(vkGetQueryPoolResults(vkt.device, queries, 0, QUERIES, sizeof(results), results,
                              sizeof(*results), VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
    for (int i = 0; i < QUERIES; i++)
        vkt_out_u64("seen", results[i] != 0); /* imprecise: only zero or not is promised */
}

static void occlusion_precise(void)
{
    VKT_NEED(vkt.f10.occlusionQueryPrecise);
    vkt_open();
    VkQueryPool queries = counted(VK_QUERY_CONTROL_PRECISE_BIT);
    uint64_t results[QUERIES];
    VKT(vkGetQueryPoolResults(vkt.device, queries, 0, QUERIES, sizeof(results), results,
                              sizeof(*results), VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
    vkt_out("results", results, sizeof(results));
    VKT_EXPECT(results[2] == 3 * VKT_TARGET_SIZE);
}

static void availability(void)
{
    VKT_NEED(vkt.f10.occlusionQueryPrecise);
    vkt_open();
    VkQueryPool queries = counted(VK_QUERY_CONTROL_PRECISE_BIT);
    /* The last query was reset and never begun: not ready, and its value is left alone. */
    uint32_t results[QUERIES + 1][3];
    memset(results, 0xaa, sizeof(results));
    vkt_out_result("no wait", vkGetQueryPoolResults(vkt.device, queries, 0, QUERIES + 1,
                                                    sizeof(results), results, sizeof(results[0]),
                                                    VK_QUERY_RESULT_WITH_AVAILABILITY_BIT));
    results[QUERIES][0] = 0;
    vkt_out("results", results, sizeof(results));
    vkt_out_result("without",
                   vkGetQueryPoolResults(vkt.device, queries, QUERIES, 1, 4, results, 4, 0));
    vkt_out_result("partial", vkGetQueryPoolResults(vkt.device, queries, QUERIES, 1,
                                                    sizeof(results[0]), results, sizeof(results[0]),
                                                    VK_QUERY_RESULT_PARTIAL_BIT |
                                                        VK_QUERY_RESULT_WITH_AVAILABILITY_BIT));
    vkt_out_u64("available", results[0][1]);
}

/* Results at a distance of each other, in more bytes than travel at once. */
static void far_apart(void)
{
    VKT_NEED(vkt.f10.occlusionQueryPrecise);
    vkt_open();
    VkQueryPool queries = counted(VK_QUERY_CONTROL_PRECISE_BIT);
    const VkQueryResultFlags flags = VK_QUERY_RESULT_WITH_AVAILABILITY_BIT;
    const size_t strides[] = {40 << 20, (64 << 20) - 64, 16 << 20, 4 << 20};
    uint8_t *all = calloc(QUERIES + 1, 40 << 20);
    VKT_EXPECT(all != NULL);
    for (size_t i = 0; i < VKT_COUNT(strides); i++) {
        size_t stride = strides[i], step = stride / 4;
        uint32_t count = i == 1 ? 2 : QUERIES + 1;
        /* The last query was never begun; others are there, and what lies between is the program's.
         */
        memset(all, 0xaa, stride * count);
        vkt_out_result("result", vkGetQueryPoolResults(vkt.device, queries, QUERIES + 1 - count,
                                                       count, stride * count, all, stride, flags));
        for (uint32_t k = 0; k < count; k++)
            vkt_out_u64("available", all[stride * k + 4]);
        vkt_out("last", all + stride * (count - 2), 8);
        for (size_t at = step; at < stride * count; at += step)
            VKT_EXPECT(at % stride == 0 || all[at] == 0xaa);
    }
    vkt_out_result("wait", vkGetQueryPoolResults(vkt.device, queries, 0, QUERIES,
                                                 (size_t)QUERIES * (40 << 20), all, 40 << 20,
                                                 VK_QUERY_RESULT_WAIT_BIT));
    vkt_out("waited", all + 2 * (40 << 20), 4);
    free(all);
}

static void host_reset(void)
{
    VKT_NEED(vkt.f12.hostQueryReset);
    VKT_NEED(vkt.f10.occlusionQueryPrecise);
    vkt_open();
    VkQueryPool queries = pool(VK_QUERY_TYPE_OCCLUSION, QUERIES, 0);
    for (int round = 0; round < 3; round++) {
        vkResetQueryPool(vkt.device, queries, 0, QUERIES);
        uint64_t results[QUERIES];
        vkt_out_result("reset",
                       vkGetQueryPoolResults(vkt.device, queries, 0, QUERIES, sizeof(results),
                                             results, sizeof(*results), VK_QUERY_RESULT_64_BIT));
        VkCommandBuffer command = vkt_begin();
        draw_counted(command, queries, QUERIES, VK_QUERY_CONTROL_PRECISE_BIT);
        vkt_finish(command);
        VKT(vkGetQueryPoolResults(vkt.device, queries, 0, QUERIES, sizeof(results), results,
                                  sizeof(*results), VK_QUERY_RESULT_64_BIT));
        vkt_out("results", results, sizeof(results));
    }
}

static void copied(void)
{
    VKT_NEED(vkt.f10.occlusionQueryPrecise);
    vkt_open();
    struct vkt_buffer out = vkt_buffer(256, 0, VKT_COHERENT);
    VkQueryPool queries = pool(VK_QUERY_TYPE_OCCLUSION, QUERIES, 0);
    VkCommandBuffer command = vkt_begin();
    vkCmdResetQueryPool(command, queries, 0, QUERIES);
    draw_counted(command, queries, QUERIES, VK_QUERY_CONTROL_PRECISE_BIT);
    vkCmdCopyQueryPoolResults(command, queries, 0, QUERIES, out.handle, 8, 8,
                              VK_QUERY_RESULT_WAIT_BIT);
    vkCmdCopyQueryPoolResults(command, queries, 1, 3, out.handle, 64, 24,
                              VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT |
                                  VK_QUERY_RESULT_WITH_AVAILABILITY_BIT);
    vkt_finish(command);
    vkt_out_buffer("copied", &out);
}

/* Results asked for again and again while the work runs, without waiting. */
static void polled(void)
{
    VKT_NEED(vkt.f12.hostQueryReset);
    VKT_NEED(vkt.f10.occlusionQueryPrecise);
    vkt_open();
    VkQueryPool queries = pool(VK_QUERY_TYPE_OCCLUSION, QUERIES, 0);
    vkResetQueryPool(vkt.device, queries, 0, QUERIES);
    VkCommandBuffer command = vkt_begin();
    draw_counted(command, queries, QUERIES, VK_QUERY_CONTROL_PRECISE_BIT);
    VKT(vkEndCommandBuffer(command));
    vkt_submit(command, VK_NULL_HANDLE);
    uint64_t results[QUERIES];
    VkResult result;
    do
        result = vkGetQueryPoolResults(vkt.device, queries, 0, QUERIES, sizeof(results), results,
                                       sizeof(*results), VK_QUERY_RESULT_64_BIT);
    while (result == VK_NOT_READY);
    vkt_out_result("done", result);
    vkt_out("results", results, sizeof(results));
}

static void statistics(void)
{
    VKT_NEED(vkt.f10.pipelineStatisticsQuery);
    vkt_open();
    const VkQueryPipelineStatisticFlags kinds =
        VK_QUERY_PIPELINE_STATISTIC_INPUT_ASSEMBLY_VERTICES_BIT |
        VK_QUERY_PIPELINE_STATISTIC_INPUT_ASSEMBLY_PRIMITIVES_BIT |
        VK_QUERY_PIPELINE_STATISTIC_CLIPPING_INVOCATIONS_BIT;
    VkQueryPool queries = pool(VK_QUERY_TYPE_PIPELINE_STATISTICS, QUERIES, kinds);
    VkCommandBuffer command = vkt_begin();
    vkCmdResetQueryPool(command, queries, 0, QUERIES);
    draw_counted(command, queries, QUERIES, 0);
    vkt_finish(command);
    uint64_t results[QUERIES][3];
    VKT(vkGetQueryPoolResults(vkt.device, queries, 0, QUERIES, sizeof(results), results,
                              sizeof(results[0]),
                              VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
    vkt_out("results", results, sizeof(results));
    VKT_EXPECT(results[0][0] == 3 && results[0][1] == 1);
}

static void compute_statistics(void)
{
    VKT_NEED(vkt.f10.pipelineStatisticsQuery);
    vkt_open();
    struct vkt_buffer out = vkt_storage(4096, NULL);
    struct vkt_kernel kernel = vkt_kernel("fill.comp", "s", 8);
    vkt_kernel_bind(&kernel, 0, &out);
    VkQueryPool queries = pool(VK_QUERY_TYPE_PIPELINE_STATISTICS, 1,
                               VK_QUERY_PIPELINE_STATISTIC_COMPUTE_SHADER_INVOCATIONS_BIT);
    VkCommandBuffer command = vkt_begin();
    vkCmdResetQueryPool(command, queries, 0, 1);
    vkCmdBeginQuery(command, queries, 0, 0);
    vkt_kernel_record(command, &kernel, (const uint32_t[]){1, 1}, 16);
    vkCmdEndQuery(command, queries, 0);
    vkt_finish(command);
    uint64_t invocations;
    VKT(vkGetQueryPoolResults(vkt.device, queries, 0, 1, 8, &invocations, 8,
                              VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
    vkt_out_u64("invocations", invocations);
}

static void timestamps(void)
{
    VKT_NEED(vkt.props.limits.timestampComputeAndGraphics);
    vkt_open();
    VkQueryPool queries = pool(VK_QUERY_TYPE_TIMESTAMP, 3, 0);
    struct vkt_buffer out = vkt_buffer(1 << 16, 0, VKT_COHERENT);
    VkCommandBuffer command = vkt_begin();
    vkCmdResetQueryPool(command, queries, 0, 3);
    vkCmdWriteTimestamp(command, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, queries, 0);
    vkCmdFillBuffer(command, out.handle, 0, VK_WHOLE_SIZE, 3);
    vkCmdWriteTimestamp2(command, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, queries, 1);
    vkt_finish(command);
    uint64_t times[3][2] = {{0}};
    vkt_out_result(
        "third missing",
        vkGetQueryPoolResults(vkt.device, queries, 0, 3, sizeof(times), times, sizeof(times[0]),
                              VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT));
    for (int i = 0; i < 3; i++)
        vkt_out_u64("available", times[i][1]);
    vkt_out_u64("in order", times[0][0] <= times[1][0]); /* the times themselves are nobody's */
}

/* ---- results that the program has read before ---- */

/* Exchanges since the last call are so many; with VENUS_SYNC=1 each read is one. */
static void expect_exchanges(uint64_t *before, uint64_t expected)
{
    uint64_t now = vkt_exchanges();
    if (!getenv("VENUS_SYNC"))
        VKT_EXPECT(now - *before == (vkt_exchanges() ? expected : 0));
    *before = now;
}

static VkCommandBuffer draws(VkQueryPool queries, uint32_t count)
{
    VkCommandBuffer command = vkt_begin();
    vkCmdResetQueryPool(command, queries, 0, QUERIES + 1);
    draw_counted(command, queries, count, VK_QUERY_CONTROL_PRECISE_BIT);
    return command;
}

static VkResult narrow(VkQueryPool queries, uint32_t first, uint32_t count, uint32_t *out)
{
    return vkGetQueryPoolResults(vkt.device, queries, first, count, count * sizeof(*out), out,
                                 sizeof(*out), 0);
}

/* Every form of a read, of results that came with their batch from the second round on. */
static void forms(void)
{
    VKT_NEED(vkt.f10.occlusionQueryPrecise);
    vkt_open();
    VkQueryPool queries = pool(VK_QUERY_TYPE_OCCLUSION, QUERIES + 1, 0);
    for (uint32_t round = 0; round < 3; round++) {
        uint64_t wide[2 * QUERIES + 4];
        uint32_t small[4 * QUERIES];
        memset(wide, 0xaa, sizeof(wide));
        memset(small, 0xaa, sizeof(small));
        vkt_finish(draws(queries, QUERIES - round % 2));
        uint64_t exchanges = vkt_exchanges();
        uint32_t count = QUERIES - 1;
        VKT(vkGetQueryPoolResults(vkt.device, queries, 0, count, sizeof(wide), wide, 8,
                                  VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
        VKT(vkGetQueryPoolResults(vkt.device, queries, 1, count - 1, sizeof(wide) - 64, wide + 8,
                                  16,
                                  VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT));
        VKT(vkGetQueryPoolResults(vkt.device, queries, 0, count, sizeof(small), small, 16,
                                  VK_QUERY_RESULT_WITH_AVAILABILITY_BIT |
                                      VK_QUERY_RESULT_PARTIAL_BIT));
        VKT(vkGetQueryPoolResults(vkt.device, queries, 2, 1, 4, small + 1, 0, 0));
        expect_exchanges(&exchanges, round == 0 ? 4 : 0);
        vkt_out("wide", wide, sizeof(wide));
        vkt_out("small", small, sizeof(small));
        /* The last is there in every other round. */
        small[0] = 0;
        vkt_out_result("last", narrow(queries, QUERIES - 1, 1, small));
        vkt_out_u64("last", small[0]);
        /* Drivers may say either; what they have so far is theirs, too. */
        vkt_out_result("partial", vkGetQueryPoolResults(vkt.device, queries, QUERIES, 1, 8, small,
                                                        8, VK_QUERY_RESULT_PARTIAL_BIT));
    }
}

enum { MIXED = 4 };

/* Of the queries 0 to 3, after a reset, 0 and 2 are written. */
static void write_mixed(VkCommandBuffer command, VkQueryPool queries, VkQueryType type)
{
    vkCmdResetQueryPool(command, queries, 0, MIXED);
    for (uint32_t i = 0; i < MIXED; i += 2) {
        if (type == VK_QUERY_TYPE_TIMESTAMP) {
            vkCmdWriteTimestamp(command, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, queries, i);
        } else {
            vkCmdBeginQuery(command, queries, i, 0);
            vkCmdEndQuery(command, queries, i);
        }
    }
}

/* Values that Vulkan does not promise become: written, or not. */
static void hide(uint8_t *value, size_t size)
{
    static const uint8_t untouched[8] = {0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa};
    memset(value, memcmp(value, untouched, size) ? 1 : 0, size);
}

/* One read, with `padding` values between the results. */
static void read_mixed(VkQueryPool queries, VkQueryType type, uint32_t first, uint32_t count,
                       uint32_t padding, VkQueryResultFlags flags)
{
    uint8_t bytes[MIXED * 4 * sizeof(uint64_t)];
    size_t size = flags & VK_QUERY_RESULT_64_BIT ? sizeof(uint64_t) : sizeof(uint32_t);
    size_t stride = (1 + !!(flags & VK_QUERY_RESULT_WITH_AVAILABILITY_BIT) + padding) * size;
    memset(bytes, 0xaa, sizeof(bytes));
    VkResult result = vkGetQueryPoolResults(vkt.device, queries, first, count, count * stride,
                                            bytes, stride, flags);
    for (uint32_t i = 0; i < count; i++) {
        bool unknown = (first + i) % 2 && flags & VK_QUERY_RESULT_PARTIAL_BIT;
        if (unknown || type == VK_QUERY_TYPE_TIMESTAMP)
            hide(bytes + i * stride, size);
    }
    vkt_out_u64("flags", flags);
    vkt_out_result("result", result);
    vkt_out("bytes", bytes, sizeof(bytes));
}

static void read_mixed_forms(VkQueryPool queries, VkQueryType type)
{
    VkQueryResultFlags all =
        VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT;
    if (type != VK_QUERY_TYPE_TIMESTAMP)
        all |= VK_QUERY_RESULT_PARTIAL_BIT;
    for (VkQueryResultFlags flags = 0; flags <= all; flags++) {
        if (flags & ~all)
            continue;
        read_mixed(queries, type, 2, 1, 0, flags);
        if (flags & VK_QUERY_RESULT_WAIT_BIT)
            continue; /* for ever */
        read_mixed(queries, type, 1, 1, 0, flags);
        read_mixed(queries, type, 0, MIXED, 0, flags);
        read_mixed(queries, type, 1, MIXED - 1, 2, flags);
    }
}

/* Every form of a read, of queries of which some are not available. */
static void unavailable(void)
{
    VKT_NEED(vkt.props.limits.timestampComputeAndGraphics);
    vkt_open();
    const VkQueryType types[] = {VK_QUERY_TYPE_OCCLUSION, VK_QUERY_TYPE_TIMESTAMP,
                                 VK_QUERY_TYPE_PIPELINE_STATISTICS};
    for (uint32_t i = 0; i < VKT_COUNT(types); i++) {
        bool counts = types[i] == VK_QUERY_TYPE_PIPELINE_STATISTICS;
        if (counts && !vkt.f10.pipelineStatisticsQuery)
            continue;
        VkQueryPool queries =
            pool(types[i], MIXED,
                 counts ? VK_QUERY_PIPELINE_STATISTIC_COMPUTE_SHADER_INVOCATIONS_BIT : 0);
        for (int round = 0; round < 2; round++) {
            VkCommandBuffer command = vkt_begin();
            write_mixed(command, queries, types[i]);
            vkt_finish(command);
            read_mixed_forms(queries, types[i]);
        }
    }
}

/* What was read once does not come back: not after a reset by the host or by a batch, not from
 * another pool. */
static void outdated(void)
{
    VKT_NEED(vkt.f12.hostQueryReset);
    VKT_NEED(vkt.f10.occlusionQueryPrecise);
    vkt_open();
    VkQueryPool queries = pool(VK_QUERY_TYPE_OCCLUSION, QUERIES + 1, 0);
    VkQueryPool others = pool(VK_QUERY_TYPE_OCCLUSION, QUERIES + 1, 0);
    uint32_t results[QUERIES];
    for (int round = 0; round < 2; round++) {
        vkt_finish(draws(queries, QUERIES));
        vkt_finish(draws(others, QUERIES - 1));
        vkt_out_result("drawn", narrow(queries, 0, QUERIES, results));
        vkt_out("results", results, sizeof(results));
        vkt_out_result("others", narrow(others, 0, QUERIES, results));
    }
    vkt_finish(draws(queries, QUERIES));
    vkResetQueryPool(vkt.device, queries, 1, 1);
    vkt_out_result("by the host", narrow(queries, 0, QUERIES, results));
    vkt_out_result("before it", narrow(queries, 0, 1, results));
    vkt_finish(draws(queries, QUERIES));
    vkt_finish(draws(queries, 0));
    vkt_out_result("by a batch", narrow(queries, 0, 1, results));
    VkCommandBuffer command = draws(queries, QUERIES);
    vkCmdResetQueryPool(command, queries, 0, 2);
    vkt_finish(command);
    vkt_out_result("by the batch that wrote it", narrow(queries, 0, 2, results));
    vkt_out_result("but not this", narrow(queries, 2, 1, results));
    vkt_out("results", results, sizeof(results));
}

enum { FRAMES = 3 };

/* Frames take turns in one pool of timestamps; each is read when the next was submitted. */
static void ring(void)
{
    VKT_NEED(vkt.props.limits.timestampComputeAndGraphics);
    /* Else a timestamp may be one of each view. */
    vkt.f11.multiview = vkt.f11.multiviewGeometryShader = VK_FALSE;
    vkt.f11.multiviewTessellationShader = VK_FALSE;
    vkt_open();
    VkQueryPool queries = pool(VK_QUERY_TYPE_TIMESTAMP, 2 * FRAMES, 0);
    VkCommandPool commands = vkt_command_pool(vkt.family, 0);
    VkCommandBuffer frames[FRAMES];
    VkFence fences[FRAMES];
    for (uint32_t i = 0; i < FRAMES; i++) {
        fences[i] = vkt_fence(false);
        frames[i] = vkt_command(commands, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        vkt_record(frames[i], 0);
        vkCmdResetQueryPool(frames[i], queries, 2 * i, 2);
        vkCmdWriteTimestamp(frames[i], VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, queries, 2 * i);
        vkCmdWriteTimestamp(frames[i], VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, queries, 2 * i + 1);
        VKT(vkEndCommandBuffer(frames[i]));
    }
    uint64_t last = 0, exchanges = 0;
    vkt_submit(frames[0], fences[0]);
    for (uint32_t i = 1; i < 4 * FRAMES; i++) {
        uint32_t now = i % FRAMES, before = (i - 1) % FRAMES;
        uint64_t times[2];
        vkt_submit(frames[now], fences[now]);
        vkt_wait(fences[before]);
        VKT(vkResetFences(vkt.device, 1, &fences[before]));
        exchanges = vkt_exchanges();
        VKT(vkGetQueryPoolResults(vkt.device, queries, 2 * before, 2, sizeof(times), times, 8,
                                  VK_QUERY_RESULT_64_BIT));
        expect_exchanges(&exchanges, i <= FRAMES);
        VKT_EXPECT(times[0] > last && times[1] >= times[0]);
        last = times[0];
    }
    VKT(vkDeviceWaitIdle(vkt.device));
}

/* Queries in secondary command buffers, and pools that end with results on their way. */
static void short_lived(void)
{
    VKT_NEED(vkt.props.limits.timestampComputeAndGraphics);
    vkt_open();
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = 2};
    VkCommandBuffer part = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_SECONDARY);
    for (int round = 0; round < 6; round++) {
        VkQueryPool queries;
        uint64_t first = 0, times[2], exchanges = 0;
        VKT(vkCreateQueryPool(vkt.device, &info, NULL, &queries));
        VkCommandBufferInheritanceInfo inherited = {
            .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO};
        VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                          .pInheritanceInfo = &inherited};
        VKT(vkBeginCommandBuffer(part, &begin));
        vkCmdResetQueryPool(part, queries, 0, 2);
        vkCmdWriteTimestamp(part, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, queries, 0);
        vkCmdWriteTimestamp(part, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, queries, 1);
        VKT(vkEndCommandBuffer(part));
        for (int i = 0; i < 3; i++) {
            VkCommandBuffer command = vkt_begin();
            vkCmdExecuteCommands(command, 1, &part);
            vkt_finish(command);
            if (i == 2 && round % 2)
                break; /* nobody reads */
            exchanges = vkt_exchanges();
            VKT(vkGetQueryPoolResults(vkt.device, queries, 0, 2, sizeof(times), times, 8,
                                      VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
            expect_exchanges(&exchanges, i == 0);
            VKT_EXPECT(times[0] > first && times[1] >= times[0]);
            first = times[1];
        }
        vkDestroyQueryPool(vkt.device, queries, NULL);
    }
}

/* A primary command buffer resets what its secondary one writes. */
static void reset_outside(void)
{
    VKT_NEED(vkt.props.limits.timestampComputeAndGraphics);
    vkt_open();
    VkQueryPool queries = pool(VK_QUERY_TYPE_TIMESTAMP, 2, 0);
    VkCommandBuffer part = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_SECONDARY);
    VkCommandBufferInheritanceInfo inherited = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO};
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                      .pInheritanceInfo = &inherited};
    VKT(vkBeginCommandBuffer(part, &begin));
    vkCmdWriteTimestamp(part, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, queries, 0);
    vkCmdWriteTimestamp(part, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, queries, 1);
    VKT(vkEndCommandBuffer(part));
    uint64_t last = 0;
    for (int round = 0; round < 3; round++) {
        VkCommandBuffer command = vkt_begin();
        vkCmdResetQueryPool(command, queries, 0, 2);
        vkCmdExecuteCommands(command, 1, &part);
        vkt_finish(command);
        uint64_t times[2], exchanges = vkt_exchanges();
        VKT(vkGetQueryPoolResults(vkt.device, queries, 0, 2, sizeof(times), times, 8,
                                  VK_QUERY_RESULT_64_BIT));
        expect_exchanges(&exchanges, round == 0);
        VKT_EXPECT(times[0] > last && times[1] >= times[0]);
        last = times[1];
    }
}

/* One recording that is pending several times; only the last results count. */
static void resubmitted(void)
{
    VKT_NEED(vkt.props.limits.timestampComputeAndGraphics);
    vkt_open();
    VkQueryPool queries = pool(VK_QUERY_TYPE_TIMESTAMP, 1, 0);
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);
    vkt_barrier(command);
    vkCmdResetQueryPool(command, queries, 0, 1);
    vkCmdWriteTimestamp(command, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, queries, 0);
    VKT(vkEndCommandBuffer(command));
    uint64_t last = 0, times[2];
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 3; i++)
            vkt_submit(command, VK_NULL_HANDLE);
        VKT(vkDeviceWaitIdle(vkt.device));
        for (int i = 0; i < 2; i++)
            VKT(vkGetQueryPoolResults(vkt.device, queries, 0, 1, 8, &times[i], 8,
                                      VK_QUERY_RESULT_64_BIT));
        VKT_EXPECT(times[0] > last && times[1] == times[0]);
        last = times[0];
    }
}

struct reader {
    VkQueryPool queries;
    uint64_t results[QUERIES];
};

static void *read_waiting(void *user)
{
    struct reader *reader = user;
    VkResult result;
    do /* lavapipe does not wait for work that was not submitted */
        result = vkGetQueryPoolResults(vkt.device, reader->queries, 0, QUERIES,
                                       sizeof(reader->results), reader->results, 8,
                                       VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    while (result == VK_NOT_READY);
    vkt_check(result, "vkGetQueryPoolResults");
    return NULL;
}

/* A thread waits for results of work that another one submits. */
static void awaited(void)
{
    VKT_NEED(vkt.f12.hostQueryReset);
    VKT_NEED(vkt.f10.occlusionQueryPrecise);
    vkt_open();
    struct reader reader = {pool(VK_QUERY_TYPE_OCCLUSION, QUERIES, 0), {0}};
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        vkResetQueryPool(vkt.device, reader.queries, 0, QUERIES);
        VkCommandBuffer command = vkt_begin();
        draw_counted(command, reader.queries, QUERIES, VK_QUERY_CONTROL_PRECISE_BIT);
        VKT_EXPECT(pthread_create(&thread, NULL, read_waiting, &reader) == 0);
        vkt_finish(command);
        VKT_EXPECT(pthread_join(thread, NULL) == 0);
        vkt_out("results", reader.results, sizeof(reader.results));
    }
}

/* A query in a render pass with two views takes two; how they share the count is the driver's. */
static void views(void)
{
    VKT_NEED(vkt.f11.multiview && vkt.f13.dynamicRendering);
    VKT_NEED(vkt.f10.occlusionQueryPrecise);
    vkt_open();
    struct vkt_image image = vkt_image((VkImageCreateInfo){
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {VKT_TARGET_SIZE, VKT_TARGET_SIZE, 1},
        .arrayLayers = 2,
        .usage = VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT,
    });
    const VkPipelineRenderingCreateInfo formats = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO,
        .viewMask = 3,
        .colorAttachmentCount = 1,
        .pColorAttachmentFormats = &image.info.format,
    };
    struct vkt_pipeline wanted = {
        .shaders = {"screen.vert", "pushed.frag"},
        .layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push)),
        .next = &formats,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
    };
    VkPipeline pipeline = vkt_pipeline(&wanted);
    const struct push push = {{1, 1, 1, 1}, 0.5f};
    VkRenderingAttachmentInfo attachment = {.sType = VK_STRUCTURE_TYPE_RENDERING_ATTACHMENT_INFO,
                                            .imageView = image.view,
                                            .imageLayout = VK_IMAGE_LAYOUT_GENERAL,
                                            .loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
                                            .storeOp = VK_ATTACHMENT_STORE_OP_STORE};
    VkRenderingInfo pass = {.sType = VK_STRUCTURE_TYPE_RENDERING_INFO,
                            .renderArea = {.extent = {VKT_TARGET_SIZE, VKT_TARGET_SIZE}},
                            .layerCount = 1,
                            .viewMask = formats.viewMask,
                            .colorAttachmentCount = 1,
                            .pColorAttachments = &attachment};
    VkQueryPool queries = pool(VK_QUERY_TYPE_OCCLUSION, 3, 0);
    for (uint32_t round = 0; round < 3; round++) {
        VkCommandBuffer command = vkt_begin();
        vkCmdResetQueryPool(command, queries, 0, 3);
        vkt_transition(command, &image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
        vkCmdBeginRendering(command, &pass);
        vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline);
        vkCmdPushConstants(command, wanted.layout, VK_SHADER_STAGE_ALL, 0, sizeof(push), &push);
        vkCmdBeginQuery(command, queries, round % 2, VK_QUERY_CONTROL_PRECISE_BIT);
        vkCmdDraw(command, 3, 1 + round, 0, 0);
        vkCmdEndQuery(command, queries, round % 2);
        vkCmdEndRendering(command);
        vkt_finish(command);
        uint64_t results[3][2] = {{0}};
        vkt_out_result("all", vkGetQueryPoolResults(
                                  vkt.device, queries, 0, 3, sizeof(results), results, 16,
                                  VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT));
        vkt_out("results", results, sizeof(results));
        VKT_EXPECT(results[round % 2][1] && results[round % 2 + 1][1]);
    }
}

/* Two values a query. */
static void streams(void)
{
    VkPhysicalDeviceTransformFeedbackFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TRANSFORM_FEEDBACK_FEATURES_EXT,
        .transformFeedback = VK_TRUE,
    };
    VKT_OPEN_WITH(&features, VK_EXT_TRANSFORM_FEEDBACK_EXTENSION_NAME);
    VkPhysicalDeviceTransformFeedbackPropertiesEXT offers = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TRANSFORM_FEEDBACK_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &offers};
    vkGetPhysicalDeviceProperties2(vkt.physical, &properties);
    VKT_NEED(offers.transformFeedbackQueries);
    PFN_vkCmdBeginQueryIndexedEXT begin = VKT_PROC(vkCmdBeginQueryIndexedEXT);
    PFN_vkCmdEndQueryIndexedEXT end = VKT_PROC(vkCmdEndQueryIndexedEXT);
    VkQueryPool queries = pool(VK_QUERY_TYPE_TRANSFORM_FEEDBACK_STREAM_EXT, 2, 0);
    for (uint32_t round = 0; round < 2; round++) {
        VkCommandBuffer command = vkt_begin();
        vkCmdResetQueryPool(command, queries, 0, 2);
        for (uint32_t i = 0; i < 2 - round; i++) {
            begin(command, queries, i, 0, 0);
            end(command, queries, i, 0);
        }
        vkt_finish(command);
        uint64_t wide[2][3];
        uint32_t small[2][2];
        memset(wide, 0xaa, sizeof(wide));
        memset(small, 0xaa, sizeof(small));
        vkt_out_result("wide", vkGetQueryPoolResults(
                                   vkt.device, queries, 0, 2, sizeof(wide), wide, sizeof(wide[0]),
                                   VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT));
        vkt_out_result("small", vkGetQueryPoolResults(vkt.device, queries, 0, 2, sizeof(small),
                                                      small, sizeof(small[0]), 0));
        vkt_out("wide", wide, sizeof(wide));
        vkt_out("small", small, sizeof(small));
    }
}

static const struct vkt_case cases[] = {
    {"occlusion", occlusion, NULL},
    {"occlusion_precise", occlusion_precise, NULL},
    {"availability", availability, NULL},
    {"far_apart", far_apart, NULL},
    {"host_reset", host_reset, NULL},
    {"copied", copied, NULL},
    {"polled", polled, NULL},
    {"statistics", statistics, NULL},
    {"compute_statistics", compute_statistics, NULL},
    {"timestamps", timestamps, NULL},
    {"forms", forms, NULL},
    {"unavailable", unavailable, NULL},
    {"outdated", outdated, NULL},
    {"ring", ring, NULL},
    {"short_lived", short_lived, NULL},
    {"reset_outside", reset_outside, NULL},
    {"resubmitted", resubmitted, NULL},
    {"awaited", awaited, NULL},
    {"views", views, NULL},
    {"streams", streams, NULL},
};

VKT_MAIN(cases)
