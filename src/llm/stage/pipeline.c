#include "llm/stage/pipeline.h"

#include "base/units.h"
#include "llm/model/why.h"
#include "llm/stage/link.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pipeline {
    struct llm_stages stages;
    struct llm_pipeline_config config;
    struct llm_backend *backend;
    const struct llm_backend_ops *inner; /* the device's own */
    struct llm_backend_ops ops;          /* those, but for what stages take part in */
    uint32_t width;
    struct llm_links links; /* one a stage; a local one has none */
    char names[LLM_STAGES_MAX][LLM_LINK_NAME_CHARS];
    struct llm_kv_memory *kv;
    const struct llm_batch *batch; /* of the step under way */
    struct llm_batch own;          /* the same with the pages of the front's layers */
    float *rows;                   /* on their way to and from a device without memory of ours */
    uint64_t row_bytes;
    uint64_t kernel_ns; /* of the parts of a step that are finished */
};

/* Of all stages.  Page ids mean the same everywhere; a stage maps those of its own pool. */
struct llm_kv_memory {
    struct pipeline *pipeline;
    struct llm_kv_memory *own; /* the front's */
    struct llm_kv_shape shape;
};

static struct pipeline *pipeline_of(struct llm_backend *b)
{
    return b->stages->user;
}

/* ---- a stage and its KV memory ---- */

static uint32_t slab_end(const struct llm_kv_memory *kv, uint32_t stage)
{
    return kv->shape.pool_ends[stage] / kv->shape.run;
}

static uint32_t stage_of_slab(const struct llm_kv_memory *kv, uint32_t slab)
{
    uint32_t i = 0;
    while (slab >= slab_end(kv, i))
        i++;
    return i;
}

static int open_stage(struct pipeline *p, uint32_t stage, char *why)
{
    struct llm_link *link = &p->links.items[stage];
    const struct llm_kv_shape *shape = &p->kv->shape;
    struct llm_stage_open open = {.size = p->links.size,
                                  .first = p->stages.items[stage].first,
                                  .end = p->stages.items[stage].end,
                                  .row_values = shape->row_values,
                                  .pages = shape->pages,
                                  .run = shape->run};
    struct wire_dec answer;
    uint64_t slab_bytes;
    memcpy(open.hash, p->links.hash, sizeof open.hash);
    wire_enc_reset(&p->links.enc);
    llm_stage_open_put(&p->links.enc, &open);
    int rc = llm_link_call(&p->links, link, LLM_STAGE_OPEN, NULL, &answer, why);
    if (rc == -ENOSYS)
        return llm_why(why, rc,
                       "%.88s: that server has no layers for others: start it with "
                       "--model FILE --layers %u-%u",
                       link->name, open.first, open.end - 1);
    if (rc == 0)
        rc = llm_link_check_opened(&p->links, link, &answer, &slab_bytes, why);
    if (rc == 0) /* what was mapped before the connection was lost */
        rc = llm_link_map_again(&p->links, link, stage ? slab_end(p->kv, stage - 1) : 0,
                                slab_end(p->kv, stage), why);
    link->is_open = rc == 0;
    return rc;
}

/* In the thread of an attempt. */
static int reach(void *user, char *why)
{
    struct pipeline *p = user;
    int rc = 0;
    for (uint32_t i = 0; i < p->stages.count && rc == 0; i++) {
        struct llm_link *link = &p->links.items[i];
        if (p->stages.items[i].is_local || link->is_open)
            continue;
        rc = link->remote ? 0 : llm_link_connect(&p->links, link, why);
        if (rc == 0)
            rc = open_stage(p, i, why);
    }
    return rc;
}

/* Before every use of a stage.  What was lost must not be read, so the engine says first that it
 * knows. */
static int ensure(struct pipeline *p, char *why)
{
    bool is_open = !p->links.reaches;
    if (p->backend->kv_lost)
        return llm_why(why, -EOWNERDEAD, "the KV memory was lost with a stage");
    for (uint32_t i = 0; i < p->stages.count && is_open; i++)
        is_open = p->stages.items[i].is_local || p->links.items[i].is_open;
    return is_open ? 0 : llm_links_reach(&p->links, why);
}

static int pipeline_reach(struct llm_backend *b, char *why)
{
    return ensure(pipeline_of(b), why);
}

/* ---- KV ---- */

static void pipeline_kv_destroy(struct llm_backend *b, struct llm_kv_memory *kv)
{
    struct pipeline *p = pipeline_of(b);
    if (!kv)
        return;
    llm_links_end_kv(&p->links);
    p->kv = NULL;
    p->inner->kv_destroy(b, kv->own);
    free(kv);
}

static int pipeline_kv_create(struct llm_backend *b, const struct llm_kv_shape *shape,
                              struct llm_kv_memory **out, char *why)
{
    struct pipeline *p = pipeline_of(b);
    assert(!p->kv && shape->pools == p->stages.count);
    struct llm_kv_memory *kv = calloc(1, sizeof *kv);
    int rc = kv && llm_links_begin_kv(&p->links, shape->pages / shape->run) == 0
                 ? p->inner->kv_create(b, shape, &kv->own, why)
                 : llm_why(why, -ENOMEM, "no memory for the KV cache");
    if (rc == 0) {
        kv->pipeline = p;
        kv->shape = *shape;
        p->kv = kv;
    }
    for (uint32_t i = 0; i < p->stages.count && rc == 0; i++) {
        if (!p->stages.items[i].is_local)
            rc = open_stage(p, i, why);
    }
    if (rc) {
        pipeline_kv_destroy(b, kv);
        b->kv_lost = false;
        return rc;
    }
    *out = kv;
    return 0;
}

static uint64_t pipeline_kv_slab(const struct llm_kv_memory *kv)
{
    return kv->pipeline->inner->kv_slab(kv->own);
}

/* Slabs of one call are one pool's (llm/engine/kv_cache.h). */
static int pipeline_kv_map(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why)
{
    struct pipeline *p = kv->pipeline;
    uint32_t stage = count ? stage_of_slab(kv, slabs[0]) : 0;
    int rc = 0;
    if (p->stages.items[stage].is_local) {
        rc = p->inner->kv_map(kv->own, slabs, count, why);
    } else {
        rc = ensure(p, why);
        if (rc == 0)
            rc = llm_link_send_slabs(&p->links, &p->links.items[stage], LLM_STAGE_MAP, slabs, count,
                                     why);
    }
    if (rc == 0)
        llm_links_note_mapped(&p->links, slabs, count, true);
    return rc;
}

static int pipeline_kv_unmap(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count,
                             char *why)
{
    struct pipeline *p = kv->pipeline;
    uint32_t stage = count ? stage_of_slab(kv, slabs[0]) : 0;
    int rc = 0;
    if (p->stages.items[stage].is_local)
        rc = p->inner->kv_unmap(kv->own, slabs, count, why);
    else if (!p->links.reaches && p->links.items[stage].is_open)
        rc = llm_link_send_slabs(&p->links, &p->links.items[stage], LLM_STAGE_UNMAP, slabs, count,
                                 why);
    if (rc == -EOWNERDEAD)
        rc = 0; /* nothing is mapped now, and the next use tells */
    if (rc == 0)
        llm_links_note_mapped(&p->links, slabs, count, false);
    return rc;
}

static struct iovec bytes_of(const struct llm_kv_memory *kv, const struct llm_kv_rows *rows,
                             const void *at)
{
    return (struct iovec){.iov_base = (void *)(uintptr_t)at,
                          .iov_len =
                              (uint64_t)rows->count * kv->shape.row_values * sizeof(uint16_t)};
}

static int pipeline_kv_read(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, void *dst,
                            char *why)
{
    struct pipeline *p = kv->pipeline;
    uint32_t stage = stage_of_slab(kv, rows->page / kv->shape.run);
    if (p->stages.items[stage].is_local)
        return p->inner->kv_read(kv->own, rows, dst, why);
    int rc = ensure(p, why);
    return rc ? rc
              : llm_link_read_rows(&p->links, &p->links.items[stage], rows, bytes_of(kv, rows, dst),
                                   why);
}

static int pipeline_kv_write(struct llm_kv_memory *kv, const struct llm_kv_rows *rows,
                             const void *src, char *why)
{
    struct pipeline *p = kv->pipeline;
    uint32_t stage = stage_of_slab(kv, rows->page / kv->shape.run);
    if (p->stages.items[stage].is_local)
        return p->inner->kv_write(kv->own, rows, src, why);
    int rc = ensure(p, why);
    return rc ? rc
              : llm_link_write_rows(&p->links, &p->links.items[stage], rows,
                                    bytes_of(kv, rows, src), why);
}

/* ---- steps ---- */

static int pipeline_begin(struct llm_backend *b, const struct llm_batch *batch, char *why)
{
    struct pipeline *p = pipeline_of(b);
    int rc = ensure(p, why);
    if (rc)
        return rc;
    struct llm_stage_layers own = llm_stages_own(&p->stages);
    p->batch = batch;
    p->own = *batch;
    p->own.pages += (size_t)own.first * batch->page_count;
    p->own.layers = own.end - own.first;
    p->kernel_ns = 0;
    return p->inner->begin(b, &p->own, why);
}

static void pipeline_append(struct llm_backend *b, const struct llm_op_append *op)
{
    struct llm_op_append own = *op;
    own.kv = op->kv->own;
    pipeline_of(b)->inner->append(b, &own);
}

static void pipeline_attend(struct llm_backend *b, const struct llm_op_attend *op)
{
    struct llm_op_attend own = *op;
    own.kv = op->kv->own;
    pipeline_of(b)->inner->attend(b, &own);
}

static int pipeline_finish(struct llm_backend *b, uint64_t *kernel_ns, char *why)
{
    struct pipeline *p = pipeline_of(b);
    int rc = p->inner->finish(b, kernel_ns, why);
    *kernel_ns += p->kernel_ns;
    return rc;
}

/* Some rows of the batch, there and back. */
static int exchange_part(struct pipeline *p, uint32_t stage, const struct llm_stage_part *part,
                         float *x, char *why)
{
    struct llm_link *link = &p->links.items[stage];
    size_t row = p->width * sizeof *x;
    struct iovec rows = {.iov_base = x + (size_t)part->first * p->width,
                         .iov_len = part->rows * row};
    struct wire_dec answer;
    wire_enc_reset(&p->links.enc);
    llm_stage_step_put(&p->links.enc, part);
    int rc = llm_link_call(&p->links, link, LLM_STAGE_STEP, &rows, &answer, why);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < part->wanted_count; i++)
        wire_get_copy(&answer, x + (size_t)part->wanted[i] * p->width, row);
    return wire_dec_end(&answer) ? llm_link_lose(&p->links, link, "a malformed answer", why) : 0;
}

/* A later part of the rows attends to what an earlier one appended, as in one batch. */
static int exchange(struct pipeline *p, const struct llm_pass *op, float *x, char *why)
{
    const struct llm_stage_layers *layers = &p->stages.items[op->stage];
    uint32_t most = (uint32_t)(p->config.rows_bytes / (p->width * sizeof *x)), done = 0;
    const uint32_t *wanted = op->wanted, *end = op->wanted + op->wanted_count;
    int rc = 0;
    while (done < p->batch->rows && rc == 0) {
        uint32_t rest = p->batch->rows - done;
        struct llm_stage_part part = {.batch = p->batch,
                                      .first = done,
                                      .rows = rest < most ? rest : most,
                                      .first_layer = layers->first,
                                      .end_layer = layers->end,
                                      .wanted = wanted};
        done += part.rows;
        while (wanted < end && *wanted < done)
            wanted++;
        part.wanted_count = (uint32_t)(wanted - part.wanted);
        rc = exchange_part(p, op->stage, &part, x, why);
    }
    return rc;
}

/* The step so far is finished, and another begun with what came back. */
static int pass_from_device(struct pipeline *p, const struct llm_pass *op, char *why)
{
    struct llm_backend *b = p->backend;
    uint64_t bytes = (uint64_t)p->batch->rows * p->width * sizeof(float), ns = 0;
    if (bytes > p->row_bytes) {
        free(p->rows);
        p->rows = malloc(bytes);
        p->row_bytes = p->rows ? bytes : 0;
        if (!p->rows)
            return llm_why(why, -ENOMEM, "no memory for %u rows", p->batch->rows);
    }
    int rc = p->inner->finish(b, &ns, why);
    p->kernel_ns += ns;
    if (rc == 0)
        rc = p->inner->download(b, op->x, p->rows, bytes, why);
    if (rc == 0)
        rc = exchange(p, op, p->rows, why);
    if (rc == 0)
        rc = p->inner->upload(b, op->x, p->rows, bytes, why);
    char unused[LLM_WHY_CHARS];
    int begun = p->inner->begin(b, &p->own, rc ? unused : why);
    return rc ? rc : begun;
}

static int pass(void *user, const struct llm_pass *op, char *why)
{
    struct pipeline *p = user;
    return p->inner->host ? exchange(p, op, p->inner->host(op->x), why)
                          : pass_from_device(p, op, why);
}

/* ---- life ---- */

static void pipeline_traffic(const struct llm_backend *b, uint64_t *sent, uint64_t *received)
{
    const struct pipeline *p = b->stages->user;
    llm_links_traffic(&p->links, p->inner, sent, received);
}

static void pipeline_close(struct llm_backend *b)
{
    struct pipeline *p = pipeline_of(b);
    const struct llm_backend_ops *inner = p->inner;
    assert(!p->kv);
    llm_links_fini(&p->links);
    free(p->rows);
    b->ops = inner;
    b->stages = NULL;
    inner->close(b);
    free(p);
}

static void replace_ops(struct pipeline *p, struct llm_backend *backend)
{
    p->inner = backend->ops;
    p->ops = *backend->ops;
    p->ops.close = pipeline_close;
    p->ops.kv_create = pipeline_kv_create;
    p->ops.kv_destroy = pipeline_kv_destroy;
    p->ops.kv_slab = pipeline_kv_slab;
    p->ops.kv_map = pipeline_kv_map;
    p->ops.kv_unmap = pipeline_kv_unmap;
    p->ops.kv_read = pipeline_kv_read;
    p->ops.kv_read_all = NULL;
    p->ops.kv_write = pipeline_kv_write;
    p->ops.begin = pipeline_begin;
    p->ops.append = pipeline_append;
    p->ops.attend = pipeline_attend;
    p->ops.finish = pipeline_finish;
    p->ops.prepare = NULL; /* the stages would not know of it */
    p->ops.traffic = pipeline_traffic;
    p->ops.reach = pipeline_reach;
    p->links.reach = reach;
    p->links.reach_user = p;
    p->backend = p->links.backend = backend;
    backend->ops = &p->ops;
    backend->stages = &p->stages;
}

static void describe(struct pipeline *p)
{
    p->stages =
        (struct llm_stages){.count = p->config.count, .is_front = true, .pass = pass, .user = p};
    p->links.count = p->config.count;
    for (uint32_t i = 0; i < p->config.count; i++) {
        p->stages.items[i] = p->config.stages[i].layers;
        snprintf(p->names[i], sizeof p->names[i], "stage %s", p->config.stages[i].name);
        p->links.items[i].name = p->names[i];
        p->links.items[i].addr = p->config.stages[i].addr;
    }
}

int llm_pipeline_open(const struct llm_backend_ops *ops, const struct llm_backend_config *config,
                      const struct llm_pipeline_config *from, const struct llm_file *file,
                      struct llm_backend **out, char *why)
{
    const struct llm_config *model = llm_file_config(file);
    struct llm_backend *backend;
    int rc = llm_pipeline_check(from, model->layers, why);
    if (rc)
        return rc;
    struct pipeline *p = calloc(1, sizeof *p);
    if (!p)
        return llm_why(why, -ENOMEM, "no memory for stages");
    p->config = *from;
    if (p->config.rows_bytes == 0)
        p->config.rows_bytes = LLM_STAGE_ROWS_BYTES;
    p->width = model->width;
    rc = ops->open(config, &backend, why);
    if (rc) {
        free(p);
        return rc;
    }
    uint64_t timeout_s;
    (void)hw_env_u64("HAWSER_STAGE_TIMEOUT_S", LLM_LINK_TIMEOUT_S, 1, LLM_LINK_TIMEOUT_MAX_S,
                     &timeout_s);
    llm_links_init(&p->links, "HAWSER_STAGE_TIMEOUT_S", timeout_s, from->away_ns, from->security,
                   file);
    describe(p);
    replace_ops(p, backend);
    for (uint32_t i = 0; i < p->stages.count && rc == 0; i++) {
        if (!p->stages.items[i].is_local)
            rc = llm_link_connect(&p->links, &p->links.items[i], why);
    }
    if (rc) {
        pipeline_close(backend);
        return rc;
    }
    *out = backend;
    return 0;
}
