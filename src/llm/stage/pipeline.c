#include "llm/stage/pipeline.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "llm/model/why.h"
#include "llm/stage/message.h"
#include "llm/tp/command.h"
#include "llm/worker/remote.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* A step of a stage may take so long; a server that was started again has read its weights within
 * AWAY_NS, else texts under way fail. */
static const uint64_t timeout_default_s = 60, timeout_max_s = 3600;
#define AWAY_NS (UINT64_C(10) * HW_SEC)
enum { LOOK_MS = 100 };

struct link {
    const char *name;
    struct rpc_addr addr;
    struct llm_remote *remote; /* NULL: not connected */
    bool is_open;              /* it has our KV memory */
};

struct pipeline {
    struct llm_stages stages;
    struct llm_pipeline_config config;
    struct llm_backend *backend;
    const struct llm_backend_ops *inner; /* the device's own */
    struct llm_backend_ops ops;          /* those, but for what stages take part in */
    uint32_t width;
    uint64_t size; /* of the model's file */
    uint8_t hash[LLM_STAGE_HASH_BYTES];
    uint64_t timeout_ns;
    struct link links[LLM_STAGES_MAX];
    struct llm_kv_memory *kv;
    const struct llm_batch *batch; /* of the step under way */
    struct llm_batch own;          /* the same with the pages of the front's layers */
    struct wire_enc enc;
    float *rows; /* on their way to and from a device without memory of ours */
    uint64_t row_bytes;
    uint64_t kernel_ns;      /* of the parts of a step that are finished */
    uint64_t lost_ns;        /* when a stage was last lost */
    uint64_t sent, received; /* over connections that ended */
};

/* Of all stages.  Page ids mean the same everywhere; a stage maps those of its own pool. */
struct llm_kv_memory {
    struct pipeline *pipeline;
    struct llm_kv_memory *own; /* the front's */
    struct llm_kv_shape shape;
    uint8_t *mapped; /* of each slab: it is to be, at its stage */
};

static struct pipeline *pipeline_of(struct llm_backend *b)
{
    return b->stages->user;
}

/* ---- connections ---- */

static void count_traffic(const struct llm_remote *remote, uint64_t *sent, uint64_t *received)
{
    const struct rpc_stats *stats = llm_remote_stats(remote);
    *sent += stats->bytes_sent;
    *received += stats->bytes_received;
}

static void disconnect(struct pipeline *p, struct link *link)
{
    if (link->remote)
        count_traffic(link->remote, &p->sent, &p->received);
    llm_remote_close(link->remote);
    link->remote = NULL;
    link->is_open = false;
}

static int connect_link(struct pipeline *p, struct link *link, char *why)
{
    struct rpc_net_options net = {.security = p->config.security};
    struct rpc_client_options options = {
        .config = {.security = p->config.security, .name = "hawser front"}};
    char cause[LLM_WHY_CHARS] = "";
    int rc = llm_remote_open(&link->addr, &net, &options, p->timeout_ns, &link->remote, cause);
    return rc ? llm_why(why, rc, "stage %.80s: %.160s", link->name, cause) : 0;
}

/* All content of the stage's KV memory is gone with the connection. */
static int lose(struct pipeline *p, struct link *link, const char *cause, char *why)
{
    char text[LLM_WHY_CHARS];
    llm_why_set(text, "stage %.80s is lost: %.150s", link->name, cause);
    hw_warn(HW_CAT_LLM, "%s; texts under way are computed again when it answers", text);
    disconnect(p, link);
    p->backend->kv_lost = true;
    p->lost_ns = hw_now_ns();
    return llm_why(why, -EOWNERDEAD, "%s", text);
}

/* One call to a stage that is open, or is being opened.  0; the stage's error; -EOWNERDEAD. */
static int call(struct pipeline *p, struct link *link, uint32_t method, const struct iovec *rest,
                struct wire_dec *answer, char *why)
{
    struct iovec iov[2] = {
        {.iov_base = (void *)(uintptr_t)wire_enc_data(&p->enc), .iov_len = wire_enc_len(&p->enc)}};
    char cause[LLM_WHY_CHARS] = "";
    int rc = wire_enc_error(&p->enc);
    if (rc)
        return llm_why(why, rc, "stage %.80s: the step is too large for a message", link->name);
    if (rest)
        iov[1] = *rest;
    rc = llm_remote_exchange(link->remote, method, iov, rest ? 2 : 1, answer, cause);
    if (rc == 0)
        return 0;
    if (rc == -ETIMEDOUT)
        llm_why_set(cause, "no answer within %llu s (HAWSER_STAGE_TIMEOUT_S)",
                    (unsigned long long)(p->timeout_ns / HW_SEC));
    if (rc == -ETIMEDOUT || llm_remote_status(link->remote))
        return lose(p, link, cause, why);
    return llm_why(why, rc, "stage %.80s: %.160s", link->name, cause);
}

/* ---- a stage and its KV memory ---- */

static int send_slabs(struct pipeline *p, struct link *link, uint32_t method, const uint32_t *slabs,
                      size_t count, char *why)
{
    struct wire_dec answer;
    wire_enc_reset(&p->enc);
    llm_stage_slabs_put(&p->enc, slabs, count);
    return call(p, link, method, NULL, &answer, why);
}

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

/* What was mapped before the connection was lost. */
static int map_again(struct pipeline *p, uint32_t stage, char *why)
{
    const struct llm_kv_memory *kv = p->kv;
    uint32_t ids[PAGE_BATCH_MAX], slab = stage ? slab_end(kv, stage - 1) : 0;
    int rc = 0;
    while (slab < slab_end(kv, stage) && rc == 0) {
        size_t count = 0;
        for (; slab < slab_end(kv, stage) && count < PAGE_BATCH_MAX; slab++) {
            if (kv->mapped[slab])
                ids[count++] = slab;
        }
        if (count)
            rc = send_slabs(p, &p->links[stage], LLM_STAGE_MAP, ids, count, why);
    }
    return rc;
}

/* The answer of a stage that was opened: its bits must be ours. */
static int check_opened(const struct pipeline *p, const struct link *link, struct wire_dec *answer,
                        char *why)
{
    char there[LLM_ARITHMETIC_CHARS], here[LLM_ARITHMETIC_CHARS];
    wire_get_str_copy(answer, there, sizeof there);
    (void)wire_get_u64(answer);
    if (wire_dec_end(answer))
        return llm_why(why, -EPROTO, "stage %.80s: a malformed answer", link->name);
    llm_backend_arithmetic(p->backend, here);
    if (strcmp(there, here) != 0)
        return llm_why(why, -EXDEV,
                       "stage %.60s computes with '%.50s', this server with '%.50s': start both "
                       "with one --backend and version",
                       link->name, there, here);
    return 0;
}

static int open_stage(struct pipeline *p, uint32_t stage, char *why)
{
    struct link *link = &p->links[stage];
    const struct llm_kv_shape *shape = &p->kv->shape;
    struct llm_stage_open open = {.size = p->size,
                                  .first = p->stages.items[stage].first,
                                  .end = p->stages.items[stage].end,
                                  .row_values = shape->row_values,
                                  .pages = shape->pages,
                                  .run = shape->run};
    struct wire_dec answer;
    memcpy(open.hash, p->hash, sizeof open.hash);
    wire_enc_reset(&p->enc);
    llm_stage_open_put(&p->enc, &open);
    int rc = call(p, link, LLM_STAGE_OPEN, NULL, &answer, why);
    if (rc == -ENOSYS)
        return llm_why(why, rc,
                       "stage %.80s: that server has no layers for others: start it with "
                       "--model FILE --layers %u-%u",
                       link->name, open.first, open.end - 1);
    if (rc == 0)
        rc = check_opened(p, link, &answer, why);
    if (rc == 0)
        rc = map_again(p, stage, why);
    link->is_open = rc == 0;
    return rc;
}

/* A server that was just lost may be on its way back; one that has been gone for longer is asked
 * once. */
static int reconnect(struct pipeline *p, uint32_t stage, char *why)
{
    struct link *link = &p->links[stage];
    for (;;) {
        int rc = link->remote ? 0 : connect_link(p, link, why);
        if (rc == 0)
            rc = open_stage(p, stage, why);
        if (rc == 0)
            return 0;
        disconnect(p, link);
        p->backend->kv_lost = false; /* nothing is written yet, and the engine knows */
        bool may_come = rc != -ESTALE && rc != -EXDEV && rc != -ENOSYS && rc != -EACCES;
        if (!may_come || hw_now_ns() - p->lost_ns >= p->config.away_ns)
            return rc == -EOWNERDEAD ? -EIO : rc;
        (void)poll(NULL, 0, LOOK_MS);
    }
}

/* Before every use of a stage.  What was lost must not be read, so the engine says first that it
 * knows. */
static int ensure(struct pipeline *p, uint32_t stage, char *why)
{
    if (p->backend->kv_lost)
        return llm_why(why, -EOWNERDEAD, "the KV memory was lost with a stage");
    return p->links[stage].is_open ? 0 : reconnect(p, stage, why);
}

/* ---- KV ---- */

static void pipeline_kv_destroy(struct llm_backend *b, struct llm_kv_memory *kv)
{
    struct pipeline *p = pipeline_of(b);
    if (!kv)
        return;
    for (uint32_t i = 0; i < p->stages.count; i++)
        disconnect(p, &p->links[i]); /* a stage frees its KV then */
    p->kv = NULL;
    p->inner->kv_destroy(b, kv->own);
    free(kv->mapped);
    free(kv);
}

static int pipeline_kv_create(struct llm_backend *b, const struct llm_kv_shape *shape,
                              struct llm_kv_memory **out, char *why)
{
    struct pipeline *p = pipeline_of(b);
    assert(!p->kv && shape->pools == p->stages.count);
    struct llm_kv_memory *kv = calloc(1, sizeof *kv);
    if (kv)
        kv->mapped = calloc(shape->pages / shape->run, 1);
    int rc = kv && kv->mapped ? p->inner->kv_create(b, shape, &kv->own, why)
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

static void note(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, bool is_mapped)
{
    for (size_t i = 0; i < count; i++)
        kv->mapped[slabs[i]] = is_mapped;
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
        rc = ensure(p, stage, why);
        if (rc == 0)
            rc = send_slabs(p, &p->links[stage], LLM_STAGE_MAP, slabs, count, why);
    }
    if (rc == 0)
        note(kv, slabs, count, true);
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
    else if (p->links[stage].is_open)
        rc = send_slabs(p, &p->links[stage], LLM_STAGE_UNMAP, slabs, count, why);
    if (rc == -EOWNERDEAD)
        rc = 0; /* nothing is mapped now, and the next use tells */
    if (rc == 0)
        note(kv, slabs, count, false);
    return rc;
}

static uint64_t bytes_of(const struct llm_kv_memory *kv, const struct llm_kv_rows *rows)
{
    return (uint64_t)rows->count * kv->shape.row_values * sizeof(uint16_t);
}

static int pipeline_kv_read(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, void *dst,
                            char *why)
{
    struct pipeline *p = kv->pipeline;
    uint32_t stage = stage_of_slab(kv, rows->page / kv->shape.run);
    struct wire_dec answer;
    if (p->stages.items[stage].is_local)
        return p->inner->kv_read(kv->own, rows, dst, why);
    int rc = ensure(p, stage, why);
    if (rc)
        return rc;
    wire_enc_reset(&p->enc);
    llm_stage_rows_put(&p->enc, rows);
    rc = call(p, &p->links[stage], LLM_STAGE_READ, NULL, &answer, why);
    if (rc)
        return rc;
    wire_get_copy(&answer, dst, bytes_of(kv, rows));
    return wire_dec_end(&answer) ? lose(p, &p->links[stage], "a malformed answer", why) : 0;
}

static int pipeline_kv_write(struct llm_kv_memory *kv, const struct llm_kv_rows *rows,
                             const void *src, char *why)
{
    struct pipeline *p = kv->pipeline;
    uint32_t stage = stage_of_slab(kv, rows->page / kv->shape.run);
    struct iovec bytes = {.iov_base = (void *)(uintptr_t)src, .iov_len = bytes_of(kv, rows)};
    struct wire_dec answer;
    if (p->stages.items[stage].is_local)
        return p->inner->kv_write(kv->own, rows, src, why);
    int rc = ensure(p, stage, why);
    if (rc)
        return rc;
    wire_enc_reset(&p->enc);
    llm_stage_rows_put(&p->enc, rows);
    return call(p, &p->links[stage], LLM_STAGE_WRITE, &bytes, &answer, why);
}

/* ---- steps ---- */

static int pipeline_begin(struct llm_backend *b, const struct llm_batch *batch, char *why)
{
    struct pipeline *p = pipeline_of(b);
    for (uint32_t i = 0; i < p->stages.count; i++) {
        int rc = p->stages.items[i].is_local ? 0 : ensure(p, i, why);
        if (rc)
            return rc;
    }
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
    struct link *link = &p->links[stage];
    size_t row = p->width * sizeof *x;
    struct iovec rows = {.iov_base = x + (size_t)part->first * p->width,
                         .iov_len = part->rows * row};
    struct wire_dec answer;
    wire_enc_reset(&p->enc);
    llm_stage_step_put(&p->enc, part);
    int rc = call(p, link, LLM_STAGE_STEP, &rows, &answer, why);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < part->wanted_count; i++)
        wire_get_copy(&answer, x + (size_t)part->wanted[i] * p->width, row);
    return wire_dec_end(&answer) ? lose(p, link, "a malformed answer", why) : 0;
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
    *sent = *received = 0;
    if (p->inner->traffic)
        p->inner->traffic(b, sent, received);
    *sent += p->sent;
    *received += p->received;
    for (uint32_t i = 0; i < p->stages.count; i++) {
        if (p->links[i].remote)
            count_traffic(p->links[i].remote, sent, received);
    }
}

static void pipeline_close(struct llm_backend *b)
{
    struct pipeline *p = pipeline_of(b);
    const struct llm_backend_ops *inner = p->inner;
    assert(!p->kv);
    for (uint32_t i = 0; i < p->stages.count; i++)
        disconnect(p, &p->links[i]);
    wire_enc_fini(&p->enc);
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
    p->ops.kv_write = pipeline_kv_write;
    p->ops.begin = pipeline_begin;
    p->ops.append = pipeline_append;
    p->ops.attend = pipeline_attend;
    p->ops.finish = pipeline_finish;
    p->ops.prepare = NULL; /* the stages would not know of it */
    p->ops.traffic = pipeline_traffic;
    p->backend = backend;
    backend->ops = &p->ops;
    backend->stages = &p->stages;
}

static void describe(struct pipeline *p)
{
    p->stages =
        (struct llm_stages){.count = p->config.count, .is_front = true, .pass = pass, .user = p};
    for (uint32_t i = 0; i < p->config.count; i++) {
        p->stages.items[i] = p->config.stages[i].layers;
        p->links[i].name = p->config.stages[i].name;
        p->links[i].addr = p->config.stages[i].addr;
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
    if (p->config.away_ns == 0)
        p->config.away_ns = AWAY_NS;
    if (p->config.rows_bytes == 0)
        p->config.rows_bytes = LLM_STAGE_ROWS_BYTES;
    p->width = model->width;
    (void)hw_env_u64("HAWSER_STAGE_TIMEOUT_S", timeout_default_s, 1, timeout_max_s, &p->timeout_ns);
    p->timeout_ns *= HW_SEC;
    describe(p);
    rc = ops->open(config, &backend, why);
    if (rc) {
        free(p);
        return rc;
    }
    wire_enc_init(&p->enc, LLM_STAGE_HEAD_BYTES);
    replace_ops(p, backend);
    for (uint32_t i = 0; i < p->stages.count && rc == 0; i++) {
        if (!p->stages.items[i].is_local)
            rc = connect_link(p, &p->links[i], why);
    }
    if (rc) {
        pipeline_close(backend);
        return rc;
    }
    llm_tp_hash(file, &p->size, p->hash);
    *out = backend;
    return 0;
}
