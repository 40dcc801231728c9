#include "llm/vulkan/step.h"

#include "base/grow.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    INPUT_ALIGN = 16,
    INPUT_GRAIN = 1024, /* copies are multiples of it: a longer page table seldom changes them */
    PAGE_GRAIN = 128,   /* of a layer's page table, so that the next layer's seldom moves */
};

void llm_vk_step_init(struct llm_vk_step *s, struct llm_vk_memory *m)
{
    *s = (struct llm_vk_step){.memory = m};
}

static void drop_retired(struct llm_vk_step *s)
{
    while (s->retired_count > 0)
        llm_vk_block_destroy(s->memory->device, &s->retired[--s->retired_count]);
}

void llm_vk_step_fini(struct llm_vk_step *s)
{
    if (!s->memory)
        return;
    llm_vk_block_destroy(s->memory->device, &s->input_stage);
    llm_vk_block_destroy(s->memory->device, &s->input_block);
    llm_vk_block_destroy(s->memory->device, &s->round_block);
    llm_vk_block_destroy(s->memory->device, &s->part_block);
    llm_vk_block_destroy(s->memory->device, &s->arrival_block);
    llm_vk_block_destroy(s->memory->device, &s->output_block);
    drop_retired(s);
    free(s->pages.at);
    free(s->seqs.at);
    free(s->noted.ops);
    free(s->recorded.ops);
}

static void forget(struct llm_vk_step *s)
{
    s->recorded.count = 0;
    s->fetched = false;
}

void llm_vk_step_forget(struct llm_vk_step *s, const struct llm_buffer *buffer)
{
    if (s->recorded.fetch.buffer == buffer)
        forget(s);
}

const void *llm_vk_step_fetched(const struct llm_vk_step *s, struct llm_place from, uint64_t bytes)
{
    const struct llm_vk_plan *plan = &s->recorded;
    if (!s->fetched || from.buffer != plan->fetch.buffer || from.offset != plan->fetch.offset ||
        bytes > plan->fetch_bytes)
        return NULL;
    return (const uint8_t *)s->output_block.map + LLM_VK_FETCH_AT;
}

/* ---- inputs ---- */

/* Drops the contents and the recording. */
static int grow(struct llm_vk_step *s, struct llm_vk_block *block, enum llm_vk_kind kind,
                uint64_t bytes, char *why)
{
    struct llm_vk_block larger;
    if (bytes <= block->bytes)
        return 0;
    uint64_t room = 2 * block->bytes > bytes ? 2 * block->bytes : bytes;
    room = (room + INPUT_GRAIN - 1) / INPUT_GRAIN * INPUT_GRAIN;
    int rc = llm_vk_block_create(s->memory->device, room, kind, "a batch", &larger, why);
    if (rc)
        return rc;
    llm_vk_block_destroy(s->memory->device, block);
    *block = larger;
    forget(s);
    return 0;
}

static uint64_t carve(uint64_t *used, uint64_t bytes)
{
    uint64_t at = *used;
    *used += (bytes + INPUT_ALIGN - 1) / INPUT_ALIGN * INPUT_ALIGN;
    return at;
}

static uint64_t rope_bytes(const struct llm_batch *batch)
{
    return (uint64_t)batch->rope_tables * batch->rows * batch->rope_pairs * 2 * sizeof(float);
}

/* Offsets of all inputs, then memory, then addresses.  The page table is last, so that its length
 * does not move the others. */
static int place_inputs(struct llm_vk_step *s, const struct llm_batch *batch, char *why)
{
    uint64_t used = 0, word = sizeof(uint32_t);
    uint64_t tokens = carve(&used, batch->rows * word);
    uint64_t positions = carve(&used, batch->rows * word);
    uint64_t page_first = carve(&used, batch->rows * word);
    uint64_t picks = carve(&used, batch->pick_count * word);
    uint64_t rope = carve(&used, rope_bytes(batch));
    uint32_t stride = (batch->page_count + PAGE_GRAIN - 1) / PAGE_GRAIN * PAGE_GRAIN;
    uint64_t pages = carve(&used, (uint64_t)batch->layers * stride * sizeof(VkDeviceAddress));
    int rc = grow(s, &s->input_block, LLM_VK_LOCAL, used, why);
    if (rc == 0)
        rc = grow(s, &s->input_stage, LLM_VK_STAGING, s->input_block.bytes, why);
    if (rc)
        return rc;
    VkDeviceAddress base = s->input_block.address;
    s->noted.input_bytes = (used + INPUT_GRAIN - 1) / INPUT_GRAIN * INPUT_GRAIN;
    s->inputs = (struct llm_vk_inputs){.tokens = base + tokens,
                                       .positions = base + positions,
                                       .page_first = base + page_first,
                                       .picks = base + picks,
                                       .rope = base + rope,
                                       .pages = base + pages,
                                       .page_stride = stride};
    return 0;
}

static void *stage_at(struct llm_vk_step *s, VkDeviceAddress address)
{
    return (uint8_t *)s->input_stage.map + (address - s->input_block.address);
}

static void fill_inputs(struct llm_vk_step *s, const struct llm_batch *batch)
{
    uint32_t *page_first = stage_at(s, s->inputs.page_first);
    size_t rows_bytes = batch->rows * sizeof(uint32_t);
    memcpy(stage_at(s, s->inputs.tokens), batch->tokens, rows_bytes);
    memcpy(stage_at(s, s->inputs.positions), batch->positions, rows_bytes);
    for (uint32_t i = 0; i < batch->rows; i++)
        page_first[i] = batch->page_first[batch->seqs[i]];
    if (batch->pick_count)
        memcpy(stage_at(s, s->inputs.picks), batch->picks, batch->pick_count * sizeof(uint32_t));
    if (batch->rope_pairs)
        memcpy(stage_at(s, s->inputs.rope), batch->rope, rope_bytes(batch));
}

static int keep(struct llm_vk_numbers *list, const uint32_t *from, size_t count, char *why)
{
    if (count > list->room) {
        uint32_t *larger = realloc(list->at, count * sizeof *larger);
        if (!larger)
            return llm_why(why, -ENOMEM, "no memory for a list of %zu numbers", count);
        list->at = larger;
        list->room = count;
    }
    if (count)
        memcpy(list->at, from, count * sizeof *from);
    return 0;
}

static int keep_lists(struct llm_vk_step *s, const struct llm_batch *batch, char *why)
{
    s->page_count = batch->page_count;
    s->layers = batch->layers;
    int rc = keep(&s->pages, batch->pages, (size_t)batch->layers * batch->page_count, why);
    return rc ? rc : keep(&s->seqs, batch->seqs, batch->rows, why);
}

void llm_vk_step_use_kv(struct llm_vk_step *s, const struct llm_kv_memory *kv)
{
    assert(s->noting && (!s->kv || s->kv == kv));
    if (s->kv)
        return;
    VkDeviceAddress *addresses = stage_at(s, s->inputs.pages);
    const uint32_t *ids = s->pages.at;
    for (uint32_t l = 0; l < s->layers; l++, ids += s->page_count) {
        for (uint32_t i = 0; i < s->page_count; i++)
            addresses[(size_t)l * s->inputs.page_stride + i] = llm_vk_kv_page(kv, ids[i]);
    }
    s->kv = kv;
}

VkDeviceAddress llm_vk_step_pages(const struct llm_vk_step *s, uint32_t layer)
{
    assert(layer < s->layers);
    return s->inputs.pages + (uint64_t)layer * s->inputs.page_stride * sizeof(VkDeviceAddress);
}

/* Memory that noted ops use stays as it is: a larger block takes its place for the next ones. */
static VkDeviceAddress scratch(struct llm_vk_step *s, struct llm_vk_block *block, uint64_t bytes,
                               bool zeros)
{
    struct llm_vk_block larger;
    if (bytes <= block->bytes)
        return block->address;
    uint64_t room = 2 * block->bytes > bytes ? 2 * block->bytes : bytes;
    assert(s->noting && s->retired_count < LLM_VK_RETIRED_MAX);
    int rc =
        llm_vk_block_create(s->memory->device, room, LLM_VK_LOCAL, "attention", &larger, s->why);
    if (rc == 0 && zeros) {
        rc = llm_vk_zero(s->memory, &larger, s->why);
        if (rc)
            llm_vk_block_destroy(s->memory->device, &larger);
    }
    if (rc) {
        s->error = rc;
        return 0;
    }
    s->retired[s->retired_count++] = *block;
    *block = larger;
    return block->address;
}

VkDeviceAddress llm_vk_step_parts(struct llm_vk_step *s, uint64_t bytes)
{
    return scratch(s, &s->part_block, bytes, false);
}

VkDeviceAddress llm_vk_step_arrivals(struct llm_vk_step *s, uint64_t count)
{
    return scratch(s, &s->arrival_block, count * sizeof(uint32_t), true);
}

/* ---- noting ---- */

int llm_vk_step_begin(struct llm_vk_step *s, const struct llm_batch *batch, uint64_t round_bytes,
                      char *why)
{
    assert(!s->noting && batch->rows > 0);
    int rc = place_inputs(s, batch, why);
    if (rc == 0)
        rc = keep_lists(s, batch, why);
    if (rc == 0)
        rc = grow(s, &s->round_block, LLM_VK_LOCAL, round_bytes, why);
    if (rc)
        return rc;
    fill_inputs(s, batch);
    drop_retired(s);
    s->positions_max = 0;
    for (uint32_t i = 0; i < batch->rows; i++)
        s->positions_max =
            batch->positions[i] >= s->positions_max ? batch->positions[i] + 1 : s->positions_max;
    s->noting = true;
    s->error = 0;
    s->kv = NULL;
    s->rows = batch->rows;
    s->rope_pairs = batch->rope_pairs;
    s->pick_count = batch->pick_count;
    s->noted.count = 0;
    s->noted.fetch_bytes = 0;
    s->fetched = false;
    return 0;
}

void llm_vk_step_note(struct llm_vk_step *s, const struct llm_vk_dispatch *op)
{
    struct llm_vk_plan *plan = &s->noted;
    assert(s->noting && op->push_bytes <= LLM_VK_PUSH_BYTES && op->use_count <= LLM_VK_USES_MAX);
    if (!hw_grow(&plan->ops, &plan->room, (size_t)plan->count + 1, sizeof *plan->ops)) {
        s->error = llm_why(s->why, -ENOMEM, "no memory for a step");
        return;
    }
    plan->ops[plan->count++] = *op;
}

struct llm_vk_dispatch *llm_vk_step_last(struct llm_vk_step *s)
{
    return s->noted.count ? &s->noted.ops[s->noted.count - 1] : NULL;
}

void llm_vk_step_drop(struct llm_vk_step *s)
{
    assert(s->noting && s->noted.count > 0);
    s->noted.count--;
}

/* ---- recording ---- */

static bool meets(const struct llm_vk_use *a, const struct llm_vk_use *b)
{
    return (a->writes || b->writes) && a->from < b->from + b->bytes && b->from < a->from + a->bytes;
}

/* Records a barrier if a use conflicts with an open one; then the uses are open. */
static void order(struct llm_vk_step *s, const struct llm_vk_use *uses, uint32_t count)
{
    bool wait = s->open_count + count > LLM_VK_OPEN_MAX;
    for (uint32_t i = 0; i < count && !wait; i++) {
        for (uint32_t j = 0; j < s->open_count && !wait; j++)
            wait = meets(&uses[i], &s->open[j]);
    }
    if (wait) {
        llm_vk_barrier(s->memory->device);
        s->open_count = 0;
    }
    memcpy(s->open + s->open_count, uses, count * sizeof *uses);
    s->open_count += count;
}

static int record_op(struct llm_vk_step *s, const struct llm_vk_dispatch *op, VkPipeline *bound,
                     char *why)
{
    struct llm_vk_device *d = s->memory->device;
    VkPipeline pipeline;
    int rc = llm_vk_pipeline(s->memory->pipelines, &op->variant, &pipeline, why);
    if (rc)
        return rc;
    order(s, op->uses, op->use_count);
    if (pipeline != *bound)
        d->vk.CmdBindPipeline(d->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    *bound = pipeline;
    d->vk.CmdPushConstants(d->commands, s->memory->pipelines->layout, VK_SHADER_STAGE_COMPUTE_BIT,
                           0, op->push_bytes, op->push);
    d->vk.CmdDispatch(d->commands, op->groups[0], op->groups[1], op->groups[2]);
    return 0;
}

static void record_inputs(struct llm_vk_step *s)
{
    struct llm_vk_device *d = s->memory->device;
    VkBufferCopy inputs = {.size = s->noted.input_bytes};
    if (d->stamps) {
        d->vk.CmdResetQueryPool(d->commands, d->stamps, 0, 2);
        d->vk.CmdWriteTimestamp(d->commands, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, d->stamps, 0);
    }
    d->vk.CmdCopyBuffer(d->commands, s->input_stage.buffer, s->input_block.buffer, 1, &inputs);
    llm_vk_barrier(d);
    s->open_count = 0;
}

/* Copies the timestamps and what is to be downloaded into mapped memory. */
static void record_outputs(struct llm_vk_step *s)
{
    struct llm_vk_device *d = s->memory->device;
    VkBuffer output = s->output_block.buffer;
    if (d->stamps) {
        d->vk.CmdWriteTimestamp(d->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, d->stamps, 1);
        d->vk.CmdCopyQueryPoolResults(d->commands, d->stamps, 0, 2, output, 0, sizeof(uint64_t),
                                      VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    }
    if (s->noted.fetch_bytes) {
        VkBufferCopy region = {.srcOffset = s->noted.fetch.offset,
                               .dstOffset = LLM_VK_FETCH_AT,
                               .size = s->noted.fetch_bytes};
        llm_vk_barrier(d);
        d->vk.CmdCopyBuffer(d->commands, s->noted.fetch.buffer->block.buffer, output, 1, &region);
    }
    llm_vk_host_barrier(d);
}

static int record(struct llm_vk_step *s, char *why)
{
    VkPipeline bound = VK_NULL_HANDLE;
    struct llm_vk_device *d = s->memory->device;
    forget(s);
    int rc =
        grow(s, &s->output_block, LLM_VK_READBACK, LLM_VK_FETCH_AT + s->noted.fetch_bytes, why);
    if (rc == 0)
        rc = llm_vk_record(d, LLM_VK_STEP, why);
    if (rc)
        return rc;
    record_inputs(s);
    for (uint32_t i = 0; i < s->noted.count && rc == 0; i++)
        rc = record_op(s, &s->noted.ops[i], &bound, why);
    if (rc)
        return rc;
    record_outputs(s);
    return llm_vk_end(d, why);
}

static bool same_op(const struct llm_vk_dispatch *a, const struct llm_vk_dispatch *b)
{
    return memcmp(&a->variant, &b->variant, sizeof a->variant) == 0 &&
           memcmp(a->groups, b->groups, sizeof a->groups) == 0 && a->push_bytes == b->push_bytes &&
           memcmp(a->push, b->push, a->push_bytes) == 0;
}

static bool same_plan(const struct llm_vk_plan *a, const struct llm_vk_plan *b)
{
    if (a->count != b->count || a->input_bytes != b->input_bytes ||
        a->fetch.buffer != b->fetch.buffer || a->fetch.offset != b->fetch.offset ||
        a->fetch_bytes != b->fetch_bytes)
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        if (!same_op(&a->ops[i], &b->ops[i]))
            return false;
    }
    return true;
}

/* ---- the end of a step ---- */

static uint64_t measured_ns(const struct llm_vk_device *d, const void *map)
{
    uint64_t stamps[2];
    memcpy(stamps, map, sizeof stamps);
    double ticks = stamps[1] > stamps[0] ? (double)(stamps[1] - stamps[0]) : 0;
    return (uint64_t)(ticks * (double)d->properties.limits.timestampPeriod);
}

/* Records the noted ops unless they are recorded already. */
static int prepare(struct llm_vk_step *s, char *why)
{
    if (s->recorded.count && s->memory->device->replays && same_plan(&s->noted, &s->recorded))
        return 0;
    int rc = record(s, why);
    if (rc)
        return rc;
    s->recorded_ns = 0;
    struct llm_vk_plan spare = s->recorded;
    s->recorded = s->noted;
    s->noted = spare;
    return 0;
}

int llm_vk_step_prepare(struct llm_vk_step *s, char *why)
{
    assert(s->noting);
    s->noting = false;
    return s->error ? llm_why(why, s->error, "%s", s->why) : record(s, why);
}

int llm_vk_step_finish(struct llm_vk_step *s, uint64_t *kernel_ns, char *why)
{
    struct llm_vk_device *d = s->memory->device;
    assert(s->noting);
    s->noting = false;
    *kernel_ns = 0;
    if (s->error)
        return llm_why(why, s->error, "%s", s->why);
    int rc = prepare(s, why);
    if (rc == 0)
        rc = llm_vk_flush(s->memory, why);
    if (rc == 0)
        rc = llm_vk_start(d, LLM_VK_STEP, why);
    if (rc == 0)
        rc = llm_vk_wait(d, LLM_VK_STEP, s->recorded_ns, why);
    if (rc)
        return rc;
    s->fetched = s->recorded.fetch_bytes > 0;
    if (d->stamps)
        *kernel_ns = measured_ns(d, s->output_block.map);
    s->recorded_ns = *kernel_ns;
    return 0;
}
