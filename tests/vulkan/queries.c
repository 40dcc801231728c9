/* queries.c - differential programs: query pools. */
#include "vkt_image.h"

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

static const struct vkt_case cases[] = {
    {"occlusion", occlusion, NULL},
    {"occlusion_precise", occlusion_precise, NULL},
    {"availability", availability, NULL},
    {"host_reset", host_reset, NULL},
    {"copied", copied, NULL},
    {"polled", polled, NULL},
    {"statistics", statistics, NULL},
    {"compute_statistics", compute_statistics, NULL},
    {"timestamps", timestamps, NULL},
};

VKT_MAIN(cases)
