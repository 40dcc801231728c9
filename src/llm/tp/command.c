#include "llm/tp/command.h"

#include "llm/engine/graph.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

void llm_tp_hash(const struct llm_file *file, uint64_t *size, uint8_t out[LLM_TP_HASH_BYTES])
{
    XXH128_canonical_t hash;
    const void *bytes = llm_file_bytes(file, size);
    XXH128_canonicalFromHash(&hash, XXH3_128bits(bytes, *size));
    static_assert(sizeof hash.digest == LLM_TP_HASH_BYTES, "128 bits");
    memcpy(out, hash.digest, sizeof hash.digest);
}

static uint32_t *words_of(struct llm_tp_command *c)
{
    return (uint32_t *)(void *)(c + 1);
}

/* Of all arrays; exact, because each factor is checked or small. */
static uint64_t count_words(const struct llm_tp_step *s)
{
    uint64_t rope = (uint64_t)s->rope_pairs * s->rope_tables * 2;
    return UINT64_C(3) * s->rows + s->seq_count + s->pick_count + rope * s->rows +
           (uint64_t)s->layers * s->page_count;
}

static uint32_t *put(uint32_t *to, const void *from, uint64_t count)
{
    if (count)
        memcpy(to, from, count * sizeof *to);
    return to + count;
}

int llm_tp_step_encode(const struct llm_batch *b, struct llm_tp_command *c, uint64_t bytes)
{
    struct llm_tp_step s = {.rows = b->rows,
                            .seq_count = b->seq_count,
                            .page_count = b->page_count,
                            .layers = b->layers,
                            .pick_count = b->pick_count,
                            .rope_pairs = b->rope_pairs,
                            .rope_tables = b->rope_tables,
                            .row_copies = b->row_copies};
    uint64_t words = count_words(&s);
    if (words > (bytes - sizeof *c) / sizeof(uint32_t))
        return -E2BIG;
    s.words = (uint32_t)words;
    c->op = LLM_TP_STEP;
    c->step = s;
    uint32_t *at = put(words_of(c), b->tokens, s.rows);
    at = put(at, b->positions, s.rows);
    at = put(at, b->seqs, s.rows);
    at = put(at, b->page_first, s.seq_count);
    at = put(at, b->picks, s.pick_count);
    at = put(at, b->rope, (uint64_t)s.rows * s.rope_pairs * s.rope_tables * 2);
    (void)put(at, b->pages, (uint64_t)s.layers * s.page_count);
    return 0;
}

static bool has_sane_counts(const struct llm_tp_step *s, const struct llm_tp_limits *limits,
                            uint64_t bytes)
{
    return s->rows >= 1 && s->rows <= LLM_GRAPH_ROWS_MAX && s->seq_count >= 1 &&
           s->seq_count <= s->rows && s->pick_count <= s->rows && s->layers == limits->layers &&
           s->rope_pairs <= LLM_WIDTH_MAX && s->rope_tables <= LLM_ROPE_TABLES_MAX &&
           s->words == count_words(s) &&
           s->words <= (bytes - sizeof(struct llm_tp_command)) / sizeof(uint32_t);
}

static bool all_below(const uint32_t *values, uint64_t count, uint32_t limit)
{
    for (uint64_t i = 0; i < count; i++) {
        if (values[i] >= limit)
            return false;
    }
    return true;
}

/* Each row's pages are within its sequence's, whose list ends where the next one begins. */
static bool has_pages(const struct llm_batch *b)
{
    for (uint32_t i = 0; i < b->rows; i++) {
        uint32_t seq = b->seqs[i], page = b->positions[i] / LLM_KV_POSITIONS;
        uint32_t end = seq + 1 < b->seq_count ? b->page_first[seq + 1] : b->page_count;
        if (b->page_first[seq] > end || page >= end - b->page_first[seq])
            return false;
    }
    return true;
}

int llm_tp_step_decode(const struct llm_tp_command *c, uint64_t bytes,
                       const struct llm_tp_limits *limits, struct llm_batch *batch)
{
    const struct llm_tp_step *s = &c->step;
    if (c->op != LLM_TP_STEP || !has_sane_counts(s, limits, bytes))
        return -EPROTO;
    const uint32_t *at = (const uint32_t *)(const void *)(c + 1);
    struct llm_batch b = {.rows = s->rows,
                          .tokens = at,
                          .positions = at + s->rows,
                          .seqs = at + UINT64_C(2) * s->rows,
                          .seq_count = s->seq_count,
                          .page_first = at + UINT64_C(3) * s->rows,
                          .page_count = s->page_count,
                          .layers = s->layers,
                          .pick_count = s->pick_count,
                          .rope_pairs = s->rope_pairs,
                          .rope_tables = s->rope_tables,
                          .row_copies = s->row_copies};
    b.picks = b.page_first + s->seq_count;
    b.rope = (const float *)(const void *)(b.picks + s->pick_count);
    b.pages = b.picks + s->pick_count + (uint64_t)s->rows * s->rope_pairs * s->rope_tables * 2;
    if (!all_below(b.tokens, b.rows, limits->vocab) ||
        !all_below(b.positions, b.rows, limits->context) ||
        !all_below(b.seqs, b.rows, b.seq_count) ||
        !all_below(b.page_first, b.seq_count, b.page_count + (b.page_count < UINT32_MAX)) ||
        !all_below(b.picks, b.pick_count, b.rows) ||
        !all_below(b.pages, (uint64_t)b.layers * b.page_count, limits->pages) || !has_pages(&b))
        return -EPROTO;
    *batch = b;
    return 0;
}
