#include "llm/engine/engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "llm/engine/graph.h"
#include "llm/engine/kv_cache.h"
#include "llm/engine/prefixes.h"
#include "llm/engine/rope.h"
#include "llm/model/why.h"
#include "llm/stage/pipeline.h"
#include "llm/stage/shares.h"
#include "llm/tp/tp.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    WARM_ROWS = 8,    /* more rows use the same kernels, on every backend */
    MOVES = 1024,     /* of KV at a time */
    PART_MOVES = 128, /* a page of 64 layers */
};

/* Outside a step it has the pages of its rows and those that were reserved. */
struct layer {
    struct llm_pages pages;
    uint32_t rows; /* that it has, from the first on; fewer than the length: missing */
};

struct llm_seq {
    struct llm_engine *engine;
    struct llm_seq *next_seq, **to; /* in the engine's list */
    uint32_t length;
    /* Of the current step. */
    uint32_t next;        /* position of its next row; length when there is no step */
    uint32_t batch_index; /* among the batch's sequences, valid when batch is the engine's */
    uint64_t batch;       /* the last one it was part of */
    /* The tokens of its rows: a prefix of whole pages, and those after it. */
    struct llm_prefix *prefix;
    uint32_t tail[LLM_KV_POSITIONS], tail_count;
    bool is_unknown; /* some are not known: none is kept any more, until the length is 0 */
    struct layer layers[];
};

/* The arrays behind one struct llm_batch; sized for the largest. */
struct arrays {
    uint32_t tokens[LLM_GRAPH_ROWS_MAX], positions[LLM_GRAPH_ROWS_MAX], seqs[LLM_GRAPH_ROWS_MAX];
    uint32_t picks[LLM_GRAPH_ROWS_MAX];
    uint32_t page_first[LLM_GRAPH_ROWS_MAX];
    struct llm_seq *owners[LLM_GRAPH_ROWS_MAX];
    uint32_t *pages; /* grows */
    size_t pages_room;
    float *rope; /* LLM_GRAPH_ROWS_MAX rows */
};

struct llm_engine {
    const struct llm_config *config;
    struct llm_backend *backend;
    struct llm_graph *graph;
    struct llm_kv_cache *cache;
    struct llm_prefixes *prefixes; /* NULL: none are kept */
    struct llm_rope *rope;
    bool long_factors; /* of longrope: they change every bit */
    uint32_t context;
    struct llm_seq *seqs;
    uint32_t seq_count;
    uint64_t batches; /* so far: numbers them */
    uint64_t kernel_ns;
    struct arrays arrays;
};

/* ---- life ---- */

/* longrope has two sets of factors; a context beyond the original positions takes the long one for
 * all positions, so that keys in the cache stay valid. */
static bool takes_long_factors(const struct llm_engine *e)
{
    return e->context > e->config->rope_original;
}

static const struct llm_tensor *rope_factors(const struct llm_engine *e,
                                             const struct llm_file *file)
{
    const struct llm_tensor *t = llm_file_find(
        file, takes_long_factors(e) ? "rope_factors_long.weight" : "rope_factors_short.weight");
    return t ? t : llm_file_find(file, "rope_freqs.weight");
}

static int make_rope(struct llm_engine *e, const struct llm_file *file, char *why)
{
    const struct llm_tensor *t = rope_factors(e, file);
    size_t pairs = e->config->rope_dims / 2;
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
        e->long_factors =
            takes_long_factors(e) && llm_file_find(file, "rope_factors_long.weight") != NULL;
        e->arrays.rope = calloc(LLM_GRAPH_ROWS_MAX, (2 * pairs * llm_rope_tables(e->rope) + 1) *
                                                        sizeof *e->arrays.rope);
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
    if (e->context > own)
        hw_warn(HW_CAT_LLM,
                "a context of %u positions, but the model was made for %u: later ones need rope "
                "scaling, such as YaRN with a factor of %.3g (%s.rope.scaling.type and .factor)",
                e->context, own, (double)e->context / e->config->rope_original,
                llm_arch_name(e->config->arch));
    return 0;
}

static uint64_t kv_bytes_for(const struct llm_engine *e, const struct llm_engine_options *options)
{
    uint64_t positions = llm_kv_pages_for(e->context) * (uint64_t)LLM_KV_POSITIONS;
    uint64_t bytes =
        options->kv_bytes ? options->kv_bytes : positions * e->config->layers * llm_kv_row_bytes(e);
    return options->kv_most && options->kv_most < bytes ? options->kv_most : bytes;
}

static int build(struct llm_engine *e, const struct llm_file *file,
                 const struct llm_engine_options *options, char *why)
{
    const char *name = options->backend ? options->backend : llm_backend_cpu.name;
    const struct llm_backend_ops *ops = llm_backend_find(name);
    if (!ops)
        return llm_why(why, -ENODEV, "there is no backend '%s'", name);
    if (options->math == LLM_MATH_FAST && ops != &llm_backend_vulkan)
        return llm_why(
            why, -EINVAL,
            "the backend %s has no fast arithmetic; use --backend vulkan or --math exact", name);
    struct llm_backend_config config = {
        .threads = options->threads, .device = options->device, .math = options->math};
    struct llm_tp_config tp = {.ranks = options->tp, .path = options->path, .file = file};
    int rc = choose_context(e, options->context, why);
    if (rc == 0)
        rc = options->pipeline
                 ? llm_pipeline_open(ops, &config, options->pipeline, file, &e->backend, why)
             : options->shares
                 ? llm_shares_open(ops, &config, options->shares, file, &e->backend, why)
             : options->tp > 1 ? llm_tp_open(ops, &config, &tp, &e->backend, why)
                               : ops->open(&config, &e->backend, why);
    if (rc == 0)
        rc = make_rope(e, file, why);
    if (rc == 0)
        rc = llm_graph_create(e->backend, file, &e->graph, why);
    if (rc == 0)
        rc = llm_kv_cache_create(e->backend, e->config, kv_bytes_for(e, options), options->kv_limit,
                                 options->kv_trace, &e->cache, why);
    if (rc == 0 && options->keep_prefixes &&
        llm_prefixes_create(e->cache, e->config->layers, &e->prefixes))
        return llm_why(why, -ENOMEM, "no memory for an index of prompts");
    return rc;
}

int llm_engine_create(const struct llm_file *file, const struct llm_engine_options *options,
                      struct llm_engine **out, char *why)
{
    struct llm_engine *e = calloc(1, sizeof *e);
    if (!e)
        return llm_why(why, -ENOMEM, "no memory for an engine");
    e->config = llm_file_config(file);
    assert(llm_file_has_weights(file));
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
    llm_prefixes_destroy(e->prefixes);
    llm_kv_cache_destroy(e->cache);
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

void llm_engine_kv_pages(const struct llm_engine *e, uint32_t *used, uint32_t *all)
{
    llm_kv_cache_pages(e->cache, used, all);
}

uint32_t llm_engine_kv_most(const struct llm_engine *e)
{
    return llm_kv_cache_most(e->cache);
}

uint64_t llm_engine_kv_bytes(const struct llm_engine *e, uint64_t pages)
{
    return llm_kv_cache_bytes(e->cache, pages);
}

void llm_engine_kv_trim(struct llm_engine *e)
{
    llm_kv_cache_trim(e->cache);
}

bool llm_engine_kv_drop(struct llm_engine *e)
{
    return llm_kv_cache_reclaim(e->cache);
}

uint32_t llm_engine_pages_for(const struct llm_engine *e, uint32_t positions)
{
    return llm_kv_pages_for(positions) * e->config->layers;
}

uint32_t llm_engine_context(const struct llm_engine *e)
{
    return e->context;
}

void llm_engine_arithmetic(const struct llm_engine *e, char text[LLM_ARITHMETIC_CHARS])
{
    llm_backend_arithmetic(e->backend, text);
    if (e->long_factors)
        strncat(text, ", long", LLM_ARITHMETIC_CHARS - strlen(text) - 1);
}

uint32_t llm_engine_batch_rows(const struct llm_engine *e)
{
    return e->backend->ops->batch_rows;
}

uint64_t llm_engine_kernel_ns(const struct llm_engine *e)
{
    return e->kernel_ns;
}

/* ---- KV memory that was lost ---- */

/* The backend has lost the content of its KV memory: every layer with rows is missing. */
static void notice_loss(struct llm_engine *e)
{
    if (!e->backend->kv_lost)
        return;
    for (struct llm_seq *seq = e->seqs; seq; seq = seq->next_seq) {
        for (uint32_t l = 0; l < e->config->layers; l++)
            llm_seq_evict(seq, l);
    }
    while (llm_kv_cache_reclaim(e->cache))
        ;
    e->backend->kv_lost = false;
}

int llm_engine_reach(struct llm_engine *e, char *why)
{
    notice_loss(e);
    return e->backend->ops->reach ? e->backend->ops->reach(e->backend, why) : 0;
}

uint64_t llm_engine_weights_leave(struct llm_engine *e)
{
    const struct llm_backend_ops *ops = e->backend->ops;
    return ops->weights_leave ? ops->weights_leave(e->backend) : 0;
}

int llm_engine_weights_return(struct llm_engine *e, char *why)
{
    const struct llm_backend_ops *ops = e->backend->ops;
    return ops->weights_return ? ops->weights_return(e->backend, why) : 0;
}

/* ---- tokens whose pages are kept ---- */

static void commit(struct llm_seq *seq)
{
    seq->length = seq->next;
    for (uint32_t l = 0; l < seq->engine->config->layers; l++)
        seq->layers[l].rows = seq->length;
}

static void forget_tokens(struct llm_seq *seq)
{
    llm_prefix_unref(seq->prefix);
    seq->prefix = NULL;
    seq->tail_count = 0;
    seq->is_unknown = seq->next > 0; /* at the end of a first step the length is still 0 */
}

static void set_prefix(struct llm_seq *seq, struct llm_prefix *prefix)
{
    llm_prefix_ref(prefix);
    llm_prefix_unref(seq->prefix);
    seq->prefix = prefix;
}

/* All layers have the rows of page `index`, and the tail has its tokens. */
static void keep_page(struct llm_seq *seq, uint32_t index)
{
    const struct llm_pages *pages[LLM_LAYERS_MAX];
    for (uint32_t l = 0; l < seq->engine->config->layers; l++)
        pages[l] = &seq->layers[l].pages;
    struct llm_prefix *prefix =
        llm_prefixes_add(seq->engine->prefixes, seq->prefix, seq->tail, pages, index);
    if (!prefix) {
        forget_tokens(seq);
        return;
    }
    /* Of a text that was computed at the same time: one copy is enough. */
    for (uint32_t l = 0; l < seq->engine->config->layers; l++)
        llm_kv_cache_replace(seq->engine->cache, &seq->layers[l].pages, index,
                             llm_prefix_page(prefix, l));
    set_prefix(seq, prefix);
    seq->tail_count = 0;
}

/* A row at this position was computed. */
static void note_token(struct llm_seq *seq, uint32_t position, uint32_t token)
{
    if (!seq->engine->prefixes || seq->is_unknown)
        return;
    seq->tail[seq->tail_count++] = token;
    assert(seq->tail_count == position % LLM_KV_POSITIONS + 1);
    if (seq->tail_count == LLM_KV_POSITIONS)
        keep_page(seq, position / LLM_KV_POSITIONS);
}

/* Takes the pages of a prefix after its own, in the place of that of the tail. */
static int share_page(struct llm_seq *seq, const struct llm_prefix *prefix)
{
    struct llm_kv_cache *cache = seq->engine->cache;
    uint32_t index = seq->length / LLM_KV_POSITIONS;
    int rc = 0;
    for (uint32_t l = 0; l < seq->engine->config->layers && rc == 0; l++) {
        struct llm_pages *pages = &seq->layers[l].pages;
        if (seq->tail_count > 0)
            llm_kv_cache_replace(cache, pages, index, llm_prefix_page(prefix, l));
        else
            rc = llm_kv_cache_share(cache, pages, llm_prefix_page(prefix, l));
    }
    return rc;
}

bool llm_seq_may_share(const struct llm_seq *seq)
{
    if (!seq->engine->prefixes || seq->is_unknown)
        return false;
    for (uint32_t l = 0; l < seq->engine->config->layers; l++) {
        if (seq->layers[l].rows < seq->length)
            return false;
    }
    return true;
}

uint32_t llm_seq_adopt(struct llm_seq *seq, const uint32_t *tokens, uint32_t count)
{
    struct llm_engine *e = seq->engine;
    notice_loss(e);
    uint32_t before = seq->length, room = e->context - before;
    if (!llm_seq_may_share(seq))
        return 0;
    llm_seq_truncate(seq, before); /* pages that were reserved */
    uint32_t left = count < room ? count : room;
    for (uint32_t more; left >= (more = LLM_KV_POSITIONS - seq->tail_count); left -= more) {
        uint32_t page[LLM_KV_POSITIONS];
        memcpy(page, seq->tail, seq->tail_count * sizeof *page);
        memcpy(page + seq->tail_count, tokens, more * sizeof *page);
        struct llm_prefix *next = llm_prefixes_find(e->prefixes, seq->prefix, page);
        if (!next || share_page(seq, next))
            break;
        set_prefix(seq, next);
        seq->tail_count = 0;
        seq->next += more;
        commit(seq);
        tokens += more;
    }
    llm_seq_truncate(seq, seq->length); /* what a failure has left */
    return seq->length - before;
}

static int extend(struct llm_seq *seq, uint32_t positions, char *why);

/* Pages, one of each layer, that begin with the tokens of a sequence's last page. */
struct alike {
    struct llm_prefix *prefix;   /* NULL: they are those of */
    const struct llm_seq *other; /* which may go on */
    uint32_t rows;
};

static struct alike find_alike(const struct llm_seq *seq, const uint32_t *page, uint32_t count)
{
    struct alike best = {0};
    best.prefix = llm_prefixes_alike(seq->engine->prefixes, seq->prefix, page, count, &best.rows);
    for (const struct llm_seq *s = seq->engine->seqs; s; s = s->next_seq) {
        uint32_t rows = 0;
        if (s == seq || s->prefix != seq->prefix || !llm_seq_may_share(s))
            continue;
        while (rows < s->tail_count && rows < count && s->tail[rows] == page[rows])
            rows++;
        if (rows > best.rows)
            best = (struct alike){.other = s, .rows = rows};
    }
    return best;
}

/* Copies rows first to alike->rows of these pages into the sequence's last ones, which are there.
 */
static int copy_rows(struct llm_seq *seq, const struct alike *alike, uint32_t first, char *why)
{
    struct llm_kv_cache *cache = seq->engine->cache;
    uint32_t index = seq->length / LLM_KV_POSITIONS, layers = seq->engine->config->layers;
    uint32_t count = alike->rows - first;
    struct llm_kv_rows rows[PART_MOVES];
    void *bytes = malloc(PART_MOVES * count * llm_kv_cache_row_bytes(cache));
    int rc = bytes ? 0 : -ENOMEM;
    for (uint32_t l = 0, n; l < layers && rc == 0; l += n / 2) {
        for (n = 0; n < PART_MOVES && l + n / 2 < layers; n++)
            rows[n] = (struct llm_kv_rows){
                .v = n % 2,
                .page = alike->prefix ? llm_prefix_page(alike->prefix, l + n / 2)
                                      : alike->other->layers[l + n / 2].pages.ids[index],
                .first = first,
                .count = count};
        rc = llm_kv_cache_read(cache, rows, n, bytes, why);
        for (uint32_t i = 0; i < n; i++)
            rows[i].page = seq->layers[l + i / 2].pages.ids[index];
        if (rc == 0)
            rc = llm_kv_cache_write(cache, rows, n, bytes, why);
    }
    free(bytes);
    return rc;
}

uint32_t llm_seq_adopt_part(struct llm_seq *seq, const uint32_t *tokens, uint32_t count)
{
    struct llm_engine *e = seq->engine;
    uint32_t page[LLM_KV_POSITIONS];
    char why[LLM_WHY_CHARS];
    notice_loss(e);
    uint32_t before = seq->tail_count, room = e->context - seq->length;
    if (!llm_seq_may_share(seq))
        return 0;
    room = room < LLM_KV_POSITIONS - 1 - before ? room : LLM_KV_POSITIONS - 1 - before;
    count = count < room ? count : room;
    memcpy(page, seq->tail, before * sizeof *page);
    memcpy(page + before, tokens, count * sizeof *page);
    struct alike alike = find_alike(seq, page, before + count);
    if (alike.rows < before + LLM_PART_MIN)
        return 0;
    llm_prefix_ref(alike.prefix); /* new pages may take the place of others */
    uint32_t rows = alike.rows - before;
    int rc = extend(seq, seq->length + rows, why);
    if (rc == 0)
        rc = copy_rows(seq, &alike, before, why);
    llm_prefix_unref(alike.prefix);
    if (rc == 0) {
        memcpy(seq->tail, page, alike.rows * sizeof *page);
        seq->tail_count = alike.rows;
        seq->next += rows;
        commit(seq);
    }
    llm_seq_truncate(seq, seq->length); /* what a failure has left */
    return rc ? 0 : rows;
}

/* The end of a text that is not a whole page. */
static void keep_end(struct llm_seq *seq)
{
    const struct llm_pages *pages[LLM_LAYERS_MAX];
    if (!seq->engine->prefixes || seq->tail_count < LLM_PART_MIN)
        return;
    for (uint32_t l = 0; l < seq->engine->config->layers; l++)
        pages[l] = &seq->layers[l].pages;
    llm_prefixes_add_end(seq->engine->prefixes, seq->prefix, seq->tail, seq->tail_count, pages,
                         seq->length / LLM_KV_POSITIONS);
}

/* ---- sequences ---- */

int llm_seq_create(struct llm_engine *e, struct llm_seq **out)
{
    if (e->seq_count == LLM_SEQUENCES_MAX)
        return -ENOSPC;
    struct llm_seq *seq = calloc(1, sizeof *seq + e->config->layers * sizeof seq->layers[0]);
    if (!seq)
        return -ENOMEM;
    seq->engine = e;
    seq->next_seq = e->seqs;
    seq->to = &e->seqs;
    if (e->seqs)
        e->seqs->to = &seq->next_seq;
    e->seqs = seq;
    e->seq_count++;
    *out = seq;
    return 0;
}

void llm_seq_destroy(struct llm_seq *seq)
{
    if (!seq)
        return;
    notice_loss(seq->engine);
    keep_end(seq);
    for (uint32_t l = 0; l < seq->engine->config->layers; l++)
        llm_seq_evict(seq, l);
    *seq->to = seq->next_seq;
    if (seq->next_seq)
        seq->next_seq->to = seq->to;
    seq->engine->seq_count--;
    free(seq);
}

uint32_t llm_seq_length(const struct llm_seq *seq)
{
    return seq->length;
}

void llm_seq_truncate(struct llm_seq *seq, uint32_t length)
{
    if (length < seq->length) {
        seq->length = seq->next = length;
        forget_tokens(seq);
    }
    for (uint32_t l = 0; l < seq->engine->config->layers; l++) {
        struct layer *layer = &seq->layers[l];
        layer->rows = layer->rows < seq->length ? layer->rows : seq->length;
        llm_kv_cache_shorten(seq->engine->cache, &layer->pages, layer->rows);
    }
}

void llm_seq_evict(struct llm_seq *seq, uint32_t layer)
{
    assert(layer < seq->engine->config->layers);
    forget_tokens(seq); /* a prefix that it has keeps all of its pages */
    seq->layers[layer].rows = 0;
    llm_kv_cache_shorten(seq->engine->cache, &seq->layers[layer].pages, 0);
}

uint32_t llm_seq_layer_rows(const struct llm_seq *seq, uint32_t layer)
{
    assert(layer < seq->engine->config->layers);
    return seq->layers[layer].rows;
}

struct llm_layers llm_seq_missing(const struct llm_seq *seq)
{
    struct llm_layers missing = {0};
    for (uint32_t l = 0; l < seq->engine->config->layers; l++) {
        if (seq->layers[l].rows < seq->length)
            llm_layers_add(&missing, l);
    }
    return missing;
}

/* The page of a position, to be written. */
static int own_page(struct llm_seq *seq, uint32_t layer, uint32_t position, char *why)
{
    return llm_kv_cache_own(seq->engine->cache, &seq->layers[layer].pages,
                            position / LLM_KV_POSITIONS, why);
}

/* Also for missing layers: so a shortage is found before any work. */
static int extend(struct llm_seq *seq, uint32_t positions, char *why)
{
    int rc = 0;
    for (uint32_t l = 0; l < seq->engine->config->layers && rc == 0; l++) {
        struct layer *layer = &seq->layers[l];
        rc = llm_kv_cache_extend(seq->engine->cache, l, &layer->pages, positions, why);
        if (rc == 0 && layer->rows % LLM_KV_POSITIONS && positions > layer->rows)
            rc = own_page(seq, l, layer->rows, why);
    }
    return rc;
}

int llm_seq_reserve(struct llm_seq *seq, uint32_t positions, char *why)
{
    notice_loss(seq->engine);
    if (positions > seq->engine->context)
        return llm_why(why, -ERANGE, "%u positions; the context has %u", positions,
                       seq->engine->context);
    int rc = extend(seq, positions, why);
    if (rc == -EOWNERDEAD) { /* the step will find that layers are missing */
        notice_loss(seq->engine);
        rc = extend(seq, positions, why);
    }
    if (rc)
        llm_seq_truncate(seq, seq->length);
    return rc;
}

/* ---- a step ---- */

/* Sets `next` of the rows' sequences; checks all rows before any work. */
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

static int extend_all(const struct llm_row *rows, uint32_t count, char *why)
{
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        struct llm_seq *seq = rows[i].seq;
        if (i > 0 && seq == rows[i - 1].seq)
            continue; /* next is already past the sequence's last row */
        rc = extend(seq, seq->next, why);
    }
    return rc;
}

/* Undoes the step. */
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

/* The index of a row's sequence among those of this batch. */
static uint32_t batch_index_of(struct llm_engine *e, struct llm_seq *seq, struct llm_batch *batch)
{
    if (seq->batch != e->batches) {
        seq->batch = e->batches;
        seq->batch_index = batch->seq_count;
        e->arrays.owners[batch->seq_count++] = seq;
    }
    return seq->batch_index;
}

static int list_pages(struct arrays *a, struct llm_batch *batch)
{
    for (uint32_t s = 0; s < batch->seq_count; s++) {
        a->page_first[s] = batch->page_count;
        batch->page_count += llm_kv_pages_for(a->owners[s]->next);
    }
    size_t count = (size_t)batch->layers * batch->page_count;
    if (count > a->pages_room) {
        uint32_t *larger = realloc(a->pages, count * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        a->pages = larger;
        a->pages_room = count;
    }
    for (uint32_t s = 0; s < batch->seq_count; s++) {
        uint32_t each = llm_kv_pages_for(a->owners[s]->next);
        for (uint32_t l = 0; l < batch->layers; l++) {
            const struct llm_pages *pages = &a->owners[s]->layers[l].pages;
            assert(pages->count >= each);
            memcpy(a->pages + (size_t)l * batch->page_count + a->page_first[s], pages->ids,
                   each * sizeof *a->pages);
        }
    }
    batch->pages = a->pages;
    return 0;
}

static int describe(struct llm_engine *e, const struct llm_row *rows, uint32_t count,
                    struct llm_batch *batch)
{
    struct arrays *a = &e->arrays;
    uint32_t pairs = llm_rope_pairs(e->rope);
    *batch = (struct llm_batch){.layers = e->config->layers,
                                .rows = count,
                                .tokens = a->tokens,
                                .positions = a->positions,
                                .seqs = a->seqs,
                                .page_first = a->page_first,
                                .picks = a->picks,
                                .rope = a->rope,
                                .rope_pairs = pairs,
                                .rope_tables = llm_rope_tables(e->rope),
                                .row_copies = e->config->experts ? e->config->experts_used : 1};
    e->batches++;
    for (uint32_t i = 0; i < count; i++) {
        struct llm_seq *seq = rows[i].seq;
        a->tokens[i] = rows[i].token;
        a->positions[i] = seq->next++;
        a->seqs[i] = batch_index_of(e, seq, batch);
        for (uint32_t t = 0; t < batch->rope_tables; t++)
            llm_rope_angles(e->rope, t, a->positions[i],
                            a->rope + ((size_t)t * count + i) * 2 * pairs);
        if (rows[i].logits)
            a->picks[batch->pick_count++] = i;
    }
    return list_pages(a, batch);
}

static struct llm_layers missing_in(const struct llm_row *rows, uint32_t count)
{
    struct llm_layers all = {0};
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && rows[i].seq == rows[i - 1].seq)
            continue;
        struct llm_layers missing = llm_seq_missing(rows[i].seq);
        llm_layers_join(&all, &missing);
    }
    return all;
}

/* What a step yields: logits or states.  at: NULL, or set to where the logits are, which is not
 * `logits` if they can stay elsewhere. */
struct results {
    float *logits, *states;
    const float **at;
};

/* Computes all rows, a batch at a time; the cuts do not change the results. */
static int compute(struct llm_engine *e, const struct llm_row *rows, uint32_t count,
                   const struct results *results, char *why)
{
    struct llm_layers missing = missing_in(rows, count);
    float *logits = results->logits, *states = results->states;
    const uint32_t most = llm_engine_batch_rows(e);
    const float **at = count <= most ? results->at : NULL;
    if (llm_layers_count(&missing) > 0)
        return llm_why(why, -ENODATA, "%u layers are missing", llm_layers_count(&missing));
    e->kernel_ns = 0;
    for (uint32_t done = 0; done < count; done += most) {
        uint32_t rest = count - done;
        struct llm_batch batch;
        uint64_t kernel_ns = 0;
        if (describe(e, rows + done, rest < most ? rest : most, &batch))
            return llm_why(why, -ENOMEM, "no memory for a list of %u pages", batch.page_count);
        int rc =
            llm_graph_run(e->graph, llm_kv_cache_memory(e->cache), &batch, states, &kernel_ns, why);
        if (rc == 0 && logits)
            rc = llm_graph_logits(e->graph, batch.pick_count, logits, at, why);
        if (rc)
            return rc;
        e->kernel_ns += kernel_ns;
        logits = logits ? logits + (size_t)batch.pick_count * e->config->vocab : NULL;
        states = states ? states + (size_t)batch.rows * e->config->width : NULL;
    }
    if (results->at && !at)
        *results->at = results->logits;
    return 0;
}

static int try_step(struct llm_engine *e, const struct llm_row *rows, uint32_t count,
                    const struct results *results, char *why)
{
    notice_loss(e);
    int rc = check_rows(e, rows, count, why);
    if (rc == 0)
        rc = extend_all(rows, count, why);
    if (rc == 0) {
        rewind_positions(rows, count);
        rc = compute(e, rows, count, results, why);
    }
    if (rc) {
        undo(rows, count <= LLM_ROWS_MAX ? count : 0);
        notice_loss(e);
        return rc;
    }
    rewind_positions(rows, count);
    for (uint32_t i = 0; i < count; i++)
        note_token(rows[i].seq, rows[i].seq->next++, rows[i].token);
    for (uint32_t i = 0; i < count; i++)
        commit(rows[i].seq);
    return 0;
}

/* Where KV was lost in the middle, a step of sequences that had none is repeated. */
static int step(struct llm_engine *e, const struct llm_row *rows, uint32_t count,
                struct results results, char *why)
{
    int rc = try_step(e, rows, count, &results, why);
    if (rc != -EOWNERDEAD)
        return rc;
    struct llm_layers missing = missing_in(rows, count);
    if (llm_layers_count(&missing) == 0)
        rc = try_step(e, rows, count, &results, why);
    return rc == -EOWNERDEAD ? -ENODATA : rc;
}

int llm_engine_step(struct llm_engine *e, const struct llm_row *rows, uint32_t count, float *logits,
                    char *why)
{
    return step(e, rows, count, (struct results){.logits = logits}, why);
}

int llm_engine_step_at(struct llm_engine *e, const struct llm_row *rows, uint32_t count,
                       float *room, const float **at, char *why)
{
    return step(e, rows, count, (struct results){.logits = room, .at = at}, why);
}

int llm_engine_step_states(struct llm_engine *e, const struct llm_row *rows, uint32_t count,
                           float *states, char *why)
{
    return step(e, rows, count, (struct results){.states = states}, why);
}

/* ---- before the first step ---- */

void llm_engine_traffic(const struct llm_engine *e, uint64_t *sent, uint64_t *received)
{
    *sent = *received = 0;
    if (e->backend->ops->traffic)
        e->backend->ops->traffic(e->backend, sent, received);
}

void llm_engine_tp_stats(const struct llm_engine *e, struct llm_tp_stats *out)
{
    llm_tp_stats(e->backend, out);
}

uint64_t llm_engine_made(const struct llm_engine *e)
{
    const struct llm_backend_ops *ops = e->backend->ops;
    return ops->made ? ops->made(e->backend) : 0;
}

/* Prepares a batch without computing it, which would take long. */
static int prepare_batch(struct llm_engine *e, const struct llm_row *rows, uint32_t count,
                         char *why)
{
    struct llm_batch batch;
    int rc = extend(rows[0].seq, count, why);
    if (rc == 0 && describe(e, rows, count, &batch))
        rc = llm_why(why, -ENOMEM, "no memory for a list of pages");
    if (rc == 0)
        rc = llm_graph_prepare(e->graph, llm_kv_cache_memory(e->cache), &batch, why);
    undo(rows, 1);
    return rc == -ENOSPC ? 0 : rc; /* such a batch cannot occur */
}

/* Some drivers compile when a program is created, others when it first runs.  Batches between the
 * largest and those computed may have programs of their own. */
static int warm_with(struct llm_engine *e, const struct llm_row *rows, float *logits, char *why)
{
    uint32_t most = llm_engine_batch_rows(e), largest = most < e->context ? most : e->context;
    int rc = prepare_batch(e, rows, largest, why);
    for (uint32_t count = largest / 2; count > WARM_ROWS && rc == 0; count /= 2)
        rc = prepare_batch(e, rows, count, why);
    for (uint32_t count = WARM_ROWS; count > 0 && rc == 0; count /= 2) {
        if (count > e->context)
            continue;
        rc = llm_engine_step(e, rows, count, logits, why);
        llm_seq_truncate(rows[0].seq, 0);
    }
    return rc;
}

int llm_engine_warm(struct llm_engine *e, char *why)
{
    struct llm_seq *seq;
    if (!e->backend->ops->prepare)
        return 0;
    struct llm_row *rows = calloc(LLM_GRAPH_ROWS_MAX, sizeof *rows);
    float *logits = malloc((size_t)WARM_ROWS * e->config->vocab * sizeof *logits);
    int rc = rows && logits ? llm_seq_create(e, &seq) : -ENOMEM;
    if (rc) {
        llm_why_set(why, "no memory for a first step");
    } else {
        for (uint32_t i = 0; i < LLM_GRAPH_ROWS_MAX; i++)
            rows[i] = (struct llm_row){.seq = seq, .logits = i < WARM_ROWS};
        rc = warm_with(e, rows, logits, why);
        llm_seq_destroy(seq);
    }
    free(rows);
    free(logits);
    return rc;
}

static int time_with(struct llm_engine *e, const struct llm_row *rows, uint32_t count,
                     float *logits, uint64_t *ns_out, char *why)
{
    uint64_t began = 0, ended = 0;
    int rc = llm_engine_step(e, rows + count - 1, 1, logits, why);
    llm_seq_truncate(rows[0].seq, 0);
    if (rc == 0) {
        began = hw_now_ns();
        rc = llm_engine_step(e, rows, count, logits, why);
        ended = hw_now_ns();
    }
    if (rc == 0 || rc == -ENOSPC) {
        *ns_out = rc ? 0 : ended - began;
        return 0;
    }
    return rc;
}

int llm_engine_time(struct llm_engine *e, uint32_t count, uint64_t *ns_out, char *why)
{
    struct llm_seq *seq;
    assert(count > 0 && count <= LLM_ROWS_MAX && count <= e->context);
    struct llm_row *rows = calloc(count, sizeof *rows);
    float *logits = malloc(e->config->vocab * sizeof *logits);
    int rc = rows && logits ? llm_seq_create(e, &seq) : -ENOMEM;
    if (rc) {
        llm_why_set(why, "no memory for a timed step");
    } else {
        for (uint32_t i = 0; i < count; i++)
            rows[i] = (struct llm_row){.seq = seq, .logits = i == count - 1};
        rc = time_with(e, rows, count, logits, ns_out, why);
        llm_seq_destroy(seq);
    }
    free(rows);
    free(logits);
    return rc;
}

/* ---- KV as bytes ---- */

uint64_t llm_kv_row_bytes(const struct llm_engine *e)
{
    return UINT64_C(2) * e->config->kv_heads * e->config->head_dim * sizeof(uint16_t);
}

typedef int kv_move(struct llm_seq *seq, const struct llm_kv_rows *rows, uint32_t count,
                    uint8_t *bytes);

static uint64_t move_bytes(const struct llm_seq *seq, const struct llm_kv_rows *rows)
{
    return rows->count * llm_kv_row_bytes(seq->engine) / 2;
}

static int read_rows(struct llm_seq *seq, const struct llm_kv_rows *rows, uint32_t count,
                     uint8_t *bytes)
{
    char why[LLM_WHY_CHARS];
    return llm_kv_cache_read(seq->engine->cache, rows, count, bytes, why);
}

static int write_rows(struct llm_seq *seq, const struct llm_kv_rows *rows, uint32_t count,
                      uint8_t *bytes)
{
    char why[LLM_WHY_CHARS];
    return llm_kv_cache_write(seq->engine->cache, rows, count, bytes, why);
}

/* Of each layer first the K rows, then the V rows, each page by page. */
static int move_kv(struct llm_seq *seq, uint32_t layer, uint32_t layers, uint32_t from, uint32_t to,
                   uint8_t *bytes, kv_move *move)
{
    struct llm_kv_rows rows[MOVES];
    uint32_t count = 0;
    uint64_t size = 0;
    int rc = 0;
    for (uint32_t i = 2 * layer; i < 2 * (layer + layers); i++) {
        const uint32_t *ids = seq->layers[i / 2].pages.ids;
        for (uint32_t p = from; p < to && rc == 0;) {
            uint32_t first = p % LLM_KV_POSITIONS, room = LLM_KV_POSITIONS - first;
            rows[count] = (struct llm_kv_rows){.v = i % 2,
                                               .page = ids[p / LLM_KV_POSITIONS],
                                               .first = first,
                                               .count = to - p < room ? to - p : room};
            p += rows[count].count;
            size += move_bytes(seq, &rows[count++]);
            if (count < MOVES)
                continue;
            rc = move(seq, rows, count, bytes);
            bytes += size;
            count = 0;
            size = 0;
        }
    }
    return rc || count == 0 ? rc : move(seq, rows, count, bytes);
}

int llm_seq_read_kv(struct llm_seq *seq, uint32_t layer, uint32_t layers, uint32_t from,
                    uint32_t to, void *dst)
{
    notice_loss(seq->engine);
    uint32_t all = seq->engine->config->layers;
    if (layer >= all || layers > all - layer || from > to)
        return -EINVAL;
    for (uint32_t l = layer; l < layer + layers; l++) {
        if (to > seq->layers[l].rows)
            return -EINVAL;
    }
    return move_kv(seq, layer, layers, from, to, dst, read_rows);
}

int llm_seq_write_kv(struct llm_seq *seq, uint32_t layer, uint32_t from, uint32_t to,
                     const void *src)
{
    notice_loss(seq->engine);
    if (layer >= seq->engine->config->layers || from > to || from > seq->layers[layer].rows)
        return -EINVAL;
    if (to > seq->engine->context)
        return -ERANGE;
    struct layer *to_fill = &seq->layers[layer];
    char why[LLM_WHY_CHARS];
    int rc = llm_kv_cache_extend(seq->engine->cache, layer, &to_fill->pages, to, why);
    forget_tokens(seq);
    seq->is_unknown = true;
    for (uint32_t p = from; p < to && rc == 0; p += LLM_KV_POSITIONS - p % LLM_KV_POSITIONS)
        rc = own_page(seq, layer, p, why);
    /* move_kv passes the bytes to write_rows, which only reads them. */
    if (rc == 0)
        rc = move_kv(seq, layer, 1, from, to, (uint8_t *)(uintptr_t)src, write_rows);
    if (rc == 0 && to > to_fill->rows)
        to_fill->rows = to;
    return rc;
}

int llm_seq_set_length(struct llm_seq *seq, uint32_t length)
{
    if (length > seq->engine->context)
        return -ERANGE;
    if (length != seq->length) {
        seq->length = seq->next = length;
        forget_tokens(seq);
    }
    llm_seq_truncate(seq, length); /* of layers that had more rows */
    return 0;
}
