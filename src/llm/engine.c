#include "llm/engine.h"

#include "llm/graph.h"
#include "llm/kv.h"
#include "llm/rope.h"
#include "llm/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct llm_seq {
    struct llm_engine *engine;
    uint32_t length;
    struct llm_pages pages;
    /* Of the step at hand. */
    uint32_t next;  /* position of its next row; length when there is no step */
    uint32_t slot;  /* in the batch, valid when batch is the engine's */
    uint64_t batch; /* the last one it was part of */
};

/* The arrays behind one struct llm_batch; sized for the largest. */
struct arrays {
    uint32_t tokens[LLM_GRAPH_ROWS_MAX], positions[LLM_GRAPH_ROWS_MAX], seqs[LLM_GRAPH_ROWS_MAX];
    uint32_t picks[LLM_GRAPH_ROWS_MAX];
    uint32_t page_first[LLM_GRAPH_ROWS_MAX];
    struct llm_seq *owners[LLM_GRAPH_ROWS_MAX];
    uint32_t *pages; /* grows */
    uint32_t pages_room;
    float *rope; /* LLM_GRAPH_ROWS_MAX rows */
};

struct llm_engine {
    const struct llm_config *config;
    struct llm_backend *backend;
    struct llm_graph *graph;
    struct llm_cache *cache;
    struct llm_rope *rope;
    uint32_t context;
    uint32_t seq_count;
    uint64_t batches; /* numbers them */
    uint64_t kernel_ns;
    struct arrays arrays;
};

/* ---- life ---- */

static int make_rope(struct llm_engine *e, const struct llm_file *file, char *why)
{
    const struct llm_tensor *t = llm_file_find(file, "rope_freqs.weight");
    uint32_t pairs = e->config->rope_dims / 2;
    float *factors = NULL;
    if (t && pairs) {
        factors = malloc(t->dims[0] * sizeof *factors);
        if (!factors)
            return llm_why(why, -ENOMEM, "no memory for the rope's factors");
        llm_dtype_to_f32(t->dtype, factors, t->data, t->dims[0]);
    }
    int rc = llm_rope_create(e->config, factors, &e->rope);
    free(factors);
    if (rc == 0) {
        e->arrays.rope = calloc(LLM_GRAPH_ROWS_MAX, (2 * pairs + 1) * sizeof *e->arrays.rope);
        rc = e->arrays.rope ? 0 : -ENOMEM;
    }
    return rc ? llm_why(why, rc, "no memory for the rope's tables") : 0;
}

static int choose_context(struct llm_engine *e, uint32_t asked, char *why)
{
    uint32_t own = e->config->context;
    e->context = asked ? asked : own;
    if (e->context > LLM_CONTEXT_MAX || (e->config->rope_dims == 0 && e->context > own))
        return llm_why(why, -EINVAL, "a context of %u positions; this model has %u", e->context,
                       own);
    return 0;
}

static uint64_t kv_bytes_for(const struct llm_engine *e, uint64_t asked)
{
    uint64_t positions = e->context + (uint64_t)LLM_KV_POSITIONS - 1;
    positions -= positions % LLM_KV_POSITIONS;
    return asked ? asked : positions * e->config->layers * llm_kv_row_bytes(e);
}

static int build(struct llm_engine *e, const struct llm_file *file,
                 const struct llm_engine_options *options, char *why)
{
    const char *name = options->backend ? options->backend : llm_backend_cpu.name;
    const struct llm_backend_ops *ops = llm_backend_find(name);
    if (!ops)
        return llm_why(why, -ENODEV, "there is no backend '%s'", name);
    struct llm_backend_config config = {.threads = options->threads};
    int rc = choose_context(e, options->context, why);
    if (rc == 0)
        rc = ops->open(&config, &e->backend, why);
    if (rc == 0)
        rc = make_rope(e, file, why);
    if (rc == 0)
        rc = llm_graph_create(e->backend, file, &e->graph, why);
    if (rc == 0)
        rc = llm_cache_create(e->backend, e->config, kv_bytes_for(e, options->kv_bytes), &e->cache,
                              why);
    return rc;
}

int llm_engine_create(const struct llm_file *file, const struct llm_engine_options *options,
                      struct llm_engine **out, char *why)
{
    struct llm_engine *e = calloc(1, sizeof *e);
    if (!e)
        return llm_why(why, -ENOMEM, "no memory for an engine");
    e->config = llm_file_config(file);
    int rc = build(e, file, options, why);
    if (rc) {
        llm_engine_destroy(e);
        return rc;
    }
    *out = e;
    return 0;
}

void llm_engine_destroy(struct llm_engine *e)
{
    if (!e)
        return;
    assert(e->seq_count == 0);
    llm_cache_destroy(e->cache);
    llm_graph_destroy(e->graph);
    llm_rope_destroy(e->rope);
    if (e->backend)
        e->backend->ops->close(e->backend);
    free(e->arrays.pages);
    free(e->arrays.rope);
    free(e);
}

const struct llm_config *llm_engine_config(const struct llm_engine *e)
{
    return e->config;
}

uint32_t llm_engine_context(const struct llm_engine *e)
{
    return e->context;
}

uint64_t llm_engine_kernel_ns(const struct llm_engine *e)
{
    return e->kernel_ns;
}

/* ---- sequences ---- */

int llm_seq_create(struct llm_engine *e, struct llm_seq **out)
{
    if (e->seq_count == LLM_SEQUENCES_MAX)
        return -ENOSPC;
    struct llm_seq *seq = calloc(1, sizeof *seq);
    if (!seq)
        return -ENOMEM;
    seq->engine = e;
    e->seq_count++;
    *out = seq;
    return 0;
}

void llm_seq_destroy(struct llm_seq *seq)
{
    if (!seq)
        return;
    llm_cache_shorten(seq->engine->cache, &seq->pages, 0);
    seq->engine->seq_count--;
    free(seq);
}

uint32_t llm_seq_length(const struct llm_seq *seq)
{
    return seq->length;
}

void llm_seq_truncate(struct llm_seq *seq, uint32_t length)
{
    if (length < seq->length)
        seq->length = seq->next = length;
    llm_cache_shorten(seq->engine->cache, &seq->pages, seq->length);
}

/* ---- a step ---- */

/* Gives the rows' sequences their positions, in next; all rows are looked at before any work. */
static int check_rows(struct llm_engine *e, const struct llm_row *rows, uint32_t count, char *why)
{
    if (count == 0 || count > LLM_ROWS_MAX)
        return llm_why(why, -EINVAL, "a step of %u rows; 1 to %d", count, LLM_ROWS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        assert(rows[i].seq->engine == e);
        if (rows[i].token >= e->config->vocab)
            return llm_why(why, -EINVAL, "token %u of row %u; the vocabulary has %u", rows[i].token,
                           i, e->config->vocab);
        if (rows[i].seq->next == e->context)
            return llm_why(why, -ERANGE, "row %u is past the context of %u positions", i,
                           e->context);
        rows[i].seq->next++;
    }
    return 0;
}

static int extend_all(struct llm_engine *e, const struct llm_row *rows, uint32_t count, char *why)
{
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = llm_cache_extend(e->cache, &rows[i].seq->pages, rows[i].seq->next, why);
    return rc;
}

/* Back to before the step. */
static void undo(const struct llm_row *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        rows[i].seq->next = rows[i].seq->length;
        llm_seq_truncate(rows[i].seq, rows[i].seq->length);
    }
}

static void rewind_positions(const struct llm_row *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        rows[i].seq->next = rows[i].seq->length;
}

/* The slot of a row's sequence among those of this batch. */
static uint32_t slot_of(struct llm_engine *e, struct llm_seq *seq, struct llm_batch *batch)
{
    if (seq->batch != e->batches) {
        seq->batch = e->batches;
        seq->slot = batch->seq_count;
        e->arrays.owners[batch->seq_count++] = seq;
        batch->page_count += seq->pages.count;
    }
    return seq->slot;
}

static int list_pages(struct arrays *a, struct llm_batch *batch)
{
    if (batch->page_count > a->pages_room) {
        uint32_t *larger = realloc(a->pages, batch->page_count * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        a->pages = larger;
        a->pages_room = batch->page_count;
    }
    uint32_t at = 0;
    for (uint32_t s = 0; s < batch->seq_count; s++) {
        const struct llm_pages *pages = &a->owners[s]->pages;
        a->page_first[s] = at;
        memcpy(a->pages + at, pages->ids, pages->count * sizeof *pages->ids);
        at += pages->count;
    }
    batch->pages = a->pages;
    return 0;
}

static int describe(struct llm_engine *e, const struct llm_row *rows, uint32_t count,
                    struct llm_batch *batch)
{
    struct arrays *a = &e->arrays;
    uint32_t pairs = llm_rope_pairs(e->rope);
    *batch = (struct llm_batch){.rows = count,
                                .tokens = a->tokens,
                                .positions = a->positions,
                                .seqs = a->seqs,
                                .page_first = a->page_first,
                                .picks = a->picks,
                                .rope = a->rope,
                                .rope_pairs = pairs};
    e->batches++;
    for (uint32_t i = 0; i < count; i++) {
        struct llm_seq *seq = rows[i].seq;
        a->tokens[i] = rows[i].token;
        a->positions[i] = seq->next++;
        a->seqs[i] = slot_of(e, seq, batch);
        llm_rope_angles(e->rope, a->positions[i], a->rope + (size_t)i * 2 * pairs);
        if (rows[i].logits)
            a->picks[batch->pick_count++] = i;
    }
    return list_pages(a, batch);
}

/* All rows, a batch at a time; what a row yields does not depend on where the cuts are. */
static int compute(struct llm_engine *e, const struct llm_row *rows, uint32_t count, float *logits,
                   char *why)
{
    e->kernel_ns = 0;
    for (uint32_t done = 0; done < count; done += LLM_GRAPH_ROWS_MAX) {
        uint32_t rest = count - done;
        struct llm_batch batch;
        uint64_t kernel_ns = 0;
        if (describe(e, rows + done, rest < LLM_GRAPH_ROWS_MAX ? rest : LLM_GRAPH_ROWS_MAX, &batch))
            return llm_why(why, -ENOMEM, "no memory for a list of %u pages", batch.page_count);
        int rc = llm_graph_run(e->graph, llm_cache_kv(e->cache), &batch, logits, &kernel_ns, why);
        if (rc)
            return rc;
        e->kernel_ns += kernel_ns;
        logits += (size_t)batch.pick_count * e->config->vocab;
    }
    return 0;
}

int llm_engine_step(struct llm_engine *e, const struct llm_row *rows, uint32_t count, float *logits,
                    char *why)
{
    int rc = check_rows(e, rows, count, why);
    if (rc == 0)
        rc = extend_all(e, rows, count, why);
    if (rc == 0) {
        rewind_positions(rows, count);
        rc = compute(e, rows, count, logits, why);
    }
    if (rc) {
        undo(rows, count <= LLM_ROWS_MAX ? count : 0);
        return rc;
    }
    for (uint32_t i = 0; i < count; i++)
        rows[i].seq->length = rows[i].seq->next;
    return 0;
}

/* ---- KV as bytes ---- */

uint64_t llm_kv_row_bytes(const struct llm_engine *e)
{
    return UINT64_C(2) * e->config->kv_heads * e->config->head_dim * sizeof(uint16_t);
}

typedef int kv_move(struct llm_seq *seq, const struct llm_kv_rows *rows, void *bytes);

static int read_rows(struct llm_seq *seq, const struct llm_kv_rows *rows, void *bytes)
{
    char why[LLM_WHY_CHARS];
    struct llm_engine *e = seq->engine;
    return e->backend->ops->kv_read(llm_cache_kv(e->cache), rows, bytes, why);
}

static int write_rows(struct llm_seq *seq, const struct llm_kv_rows *rows, void *bytes)
{
    char why[LLM_WHY_CHARS];
    struct llm_engine *e = seq->engine;
    return e->backend->ops->kv_write(llm_cache_kv(e->cache), rows, bytes, why);
}

/* Page by page: first the K rows, then the V rows. */
static int move_kv(struct llm_seq *seq, uint32_t layer, uint32_t from, uint32_t to, uint8_t *bytes,
                   kv_move *move)
{
    uint64_t row_bytes = llm_kv_row_bytes(seq->engine) / 2;
    for (unsigned v = 0; v < 2; v++) {
        for (uint32_t p = from; p < to;) {
            uint32_t first = p % LLM_KV_POSITIONS, room = LLM_KV_POSITIONS - first;
            struct llm_kv_rows rows = {.layer = layer,
                                       .v = v,
                                       .page = seq->pages.ids[p / LLM_KV_POSITIONS],
                                       .first = first,
                                       .count = to - p < room ? to - p : room};
            int rc = move(seq, &rows, bytes);
            if (rc)
                return rc;
            bytes += rows.count * row_bytes;
            p += rows.count;
        }
    }
    return 0;
}

int llm_seq_read_kv(struct llm_seq *seq, uint32_t layer, uint32_t from, uint32_t to, void *dst)
{
    if (layer >= seq->engine->config->layers || from > to || to > seq->length)
        return -EINVAL;
    return move_kv(seq, layer, from, to, dst, read_rows);
}

int llm_seq_write_kv(struct llm_seq *seq, uint32_t layer, uint32_t from, uint32_t to,
                     const void *src)
{
    if (layer >= seq->engine->config->layers || from > to || from > seq->length)
        return -EINVAL;
    if (to > seq->engine->context)
        return -ERANGE;
    char why[LLM_WHY_CHARS];
    int rc = llm_cache_extend(seq->engine->cache, &seq->pages, to, why);
    /* move_kv only hands the bytes on to write_rows, which reads them. */
    return rc ? rc : move_kv(seq, layer, from, to, (uint8_t *)(uintptr_t)src, write_rows);
}

int llm_seq_set_length(struct llm_seq *seq, uint32_t length)
{
    if (length > (uint64_t)seq->pages.count * LLM_KV_POSITIONS || length > seq->engine->context)
        return -ERANGE;
    seq->length = seq->next = length;
    return 0;
}
