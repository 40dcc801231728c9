#include "llm/stage/message.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static uint32_t get_varint32(struct wire_dec *d)
{
    uint64_t v = wire_get_varint(d);
    if (v > UINT32_MAX)
        wire_dec_fail(d, -EPROTO);
    return v > UINT32_MAX ? 0 : (uint32_t)v;
}

static int status_of(const struct wire_dec *d)
{
    return wire_dec_end(d) ? -EPROTO : 0;
}

/* ---- KV ---- */

void llm_stage_open_put(struct wire_enc *e, const struct llm_stage_open *o)
{
    wire_put_bytes(e, o->hash, sizeof o->hash);
    wire_put_u64(e, o->size);
    wire_put_u32(e, o->first);
    wire_put_u32(e, o->end);
    wire_put_u32(e, o->row_values);
    wire_put_u32(e, o->pages);
    wire_put_u32(e, o->run);
    if (o->ranks) {
        wire_put_u32(e, o->rank);
        wire_put_u32(e, o->ranks);
    }
}

int llm_stage_open_get(const void *bytes, size_t len, bool is_share, struct llm_stage_open *o)
{
    struct wire_dec d;
    wire_dec_init(&d, bytes, len);
    wire_get_copy(&d, o->hash, sizeof o->hash);
    o->size = wire_get_u64(&d);
    o->first = wire_get_u32(&d);
    o->end = wire_get_u32(&d);
    o->row_values = wire_get_u32(&d);
    o->pages = wire_get_u32(&d);
    o->run = wire_get_u32(&d);
    o->rank = is_share ? wire_get_u32(&d) : 0;
    o->ranks = is_share ? wire_get_u32(&d) : 0;
    return status_of(&d);
}

void llm_stage_slabs_put(struct wire_enc *e, const uint32_t *slabs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        wire_put_varint(e, slabs[i]);
}

int64_t llm_stage_slabs_get(const void *bytes, size_t len, uint32_t *slabs, size_t room,
                            uint32_t limit)
{
    struct wire_dec d;
    size_t count = 0;
    wire_dec_init(&d, bytes, len);
    while (wire_dec_left(&d) > 0) {
        uint32_t slab = get_varint32(&d);
        if (wire_dec_error(&d) || count == room || slab >= limit)
            return -EPROTO;
        slabs[count++] = slab;
    }
    return (int64_t)count;
}

void llm_stage_rows_put(struct wire_enc *e, const struct llm_kv_rows *r)
{
    wire_put_u8(e, (uint8_t)r->v);
    wire_put_u32(e, r->page);
    wire_put_u32(e, r->first);
    wire_put_u32(e, r->count);
}

int llm_stage_rows_get(const void *bytes, size_t len, struct llm_kv_rows *r, struct wire_dec *rest)
{
    wire_dec_init(rest, bytes, len);
    r->v = wire_get_u8(rest);
    r->page = wire_get_u32(rest);
    r->first = wire_get_u32(rest);
    r->count = wire_get_u32(rest);
    if (wire_dec_error(rest) || r->v > 1 || r->first > LLM_KV_POSITIONS ||
        r->count > LLM_KV_POSITIONS - r->first)
        return -EPROTO;
    return 0;
}

/* ---- a step to bytes ---- */

/* What a page is expected to be near to. */
static uint32_t neighbour(const uint32_t *pages, uint64_t i, uint32_t of_layer)
{
    return i >= of_layer ? pages[i - of_layer] : i > 0 ? pages[i - 1] : 0;
}

static uint32_t zigzag(uint32_t difference)
{
    return difference << 1 ^ (difference >> 31 ? UINT32_MAX : 0);
}

static uint32_t unzigzag(uint32_t v)
{
    return v >> 1 ^ (v & 1 ? UINT32_MAX : 0);
}

static void put_pages(struct wire_enc *e, const uint32_t *pages, uint64_t count, uint32_t of_layer)
{
    for (uint64_t i = 0; i < count;) {
        uint32_t difference = pages[i] - neighbour(pages, i, of_layer);
        uint64_t run = 1;
        while (i + run < count &&
               pages[i + run] - neighbour(pages, i + run, of_layer) == difference)
            run++;
        wire_put_varint(e, zigzag(difference));
        wire_put_varint(e, run);
        i += run;
    }
}

void llm_stage_step_put(struct wire_enc *e, const struct llm_stage_part *p)
{
    const struct llm_batch *b = p->batch;
    assert(p->rows > 0 && p->rows <= b->rows && p->first <= b->rows - p->rows);
    wire_put_varint(e, p->rows);
    wire_put_varint(e, b->seq_count);
    wire_put_varint(e, b->page_count);
    wire_put_varint(e, b->rope_pairs);
    wire_put_varint(e, b->rope_tables);
    for (uint32_t i = 0; i < p->rows; i++)
        wire_put_varint(e, b->positions[p->first + i]);
    for (uint32_t i = 0; i < p->rows; i++)
        wire_put_varint(e, b->seqs[p->first + i]);
    for (uint32_t s = 0; s < b->seq_count; s++)
        wire_put_varint(e, (s + 1 < b->seq_count ? b->page_first[s + 1] : b->page_count) -
                               b->page_first[s]);
    put_pages(e, b->pages + (uint64_t)p->first_layer * b->page_count,
              (uint64_t)(p->end_layer - p->first_layer) * b->page_count, b->page_count);
    wire_put_varint(e, p->wanted_count);
    for (uint32_t i = 0; i < p->wanted_count; i++)
        wire_put_varint(e, p->wanted[i] - p->first);
    size_t of_row = (size_t)b->rope_pairs * 2;
    for (uint32_t t = 0; t < b->rope_tables && of_row; t++)
        wire_put_bytes(e, b->rope + ((size_t)t * b->rows + p->first) * of_row,
                       p->rows * of_row * sizeof(float));
}

/* ---- and back ---- */

static void *grown(void *memory, size_t *room, size_t needs)
{
    if (needs <= *room)
        return memory;
    free(memory);
    memory = malloc(needs * sizeof(uint32_t));
    *room = memory ? needs : 0;
    return memory;
}

static int make_room(struct llm_stage_step *s, uint64_t pages, uint64_t rope, uint64_t x)
{
    s->pages = grown(s->pages, &s->pages_room, pages + 1);
    s->rope = grown(s->rope, &s->rope_room, rope + 1);
    s->x = grown(s->x, &s->x_room, x + 1);
    return s->pages && s->rope && s->x ? 0 : -ENOMEM;
}

static bool has_sane_counts(const struct llm_batch *b, const struct llm_stage_limits *limits)
{
    return b->rows >= 1 && b->rows <= LLM_GRAPH_ROWS_MAX && b->seq_count >= 1 &&
           b->seq_count <= LLM_GRAPH_ROWS_MAX &&
           b->page_count <= LLM_STAGE_PAGES_MAX / limits->layers &&
           b->rope_pairs == limits->rope_pairs && b->rope_tables == limits->rope_tables;
}

/* Each row's page is within its sequence's list. */
static void get_rows(struct wire_dec *d, struct llm_stage_step *s,
                     const struct llm_stage_limits *limits)
{
    const struct llm_batch *b = &s->batch;
    uint64_t pages = 0;
    uint32_t counts[LLM_GRAPH_ROWS_MAX];
    for (uint32_t i = 0; i < b->rows; i++)
        s->positions[i] = get_varint32(d);
    for (uint32_t i = 0; i < b->rows; i++)
        s->seqs[i] = get_varint32(d);
    for (uint32_t i = 0; i < b->seq_count; i++) {
        s->page_first[i] = (uint32_t)pages;
        counts[i] = get_varint32(d);
        pages += counts[i];
        if (pages > b->page_count)
            wire_dec_fail(d, -EPROTO);
    }
    if (wire_dec_error(d) || pages != b->page_count) {
        wire_dec_fail(d, -EPROTO);
        return;
    }
    for (uint32_t i = 0; i < b->rows; i++) {
        if (s->seqs[i] >= b->seq_count || s->positions[i] >= limits->context ||
            s->positions[i] / LLM_KV_POSITIONS >= counts[s->seqs[i]])
            wire_dec_fail(d, -EPROTO);
    }
}

static void get_pages(struct wire_dec *d, uint32_t *pages, uint64_t count, uint32_t of_layer,
                      uint32_t limit)
{
    for (uint64_t i = 0; i < count && !wire_dec_error(d);) {
        uint32_t difference = unzigzag(get_varint32(d));
        uint64_t run = wire_get_varint(d);
        if (run == 0 || run > count - i)
            wire_dec_fail(d, -EPROTO);
        for (uint64_t end = i + run; i < end && !wire_dec_error(d); i++) {
            pages[i] = neighbour(pages, i, of_layer) + difference;
            if (pages[i] >= limit)
                wire_dec_fail(d, -EPROTO);
        }
    }
}

static void get_wanted(struct wire_dec *d, struct llm_stage_step *s)
{
    s->wanted_count = get_varint32(d);
    if (s->wanted_count > s->batch.rows)
        wire_dec_fail(d, -EPROTO);
    for (uint32_t i = 0; i < s->wanted_count && !wire_dec_error(d); i++) {
        s->wanted[i] = get_varint32(d);
        if (s->wanted[i] >= s->batch.rows || (i > 0 && s->wanted[i] <= s->wanted[i - 1]))
            wire_dec_fail(d, -EPROTO);
    }
}

int llm_stage_step_get(const void *bytes, size_t len, const struct llm_stage_limits *limits,
                       struct llm_stage_step *s)
{
    struct wire_dec d;
    struct llm_batch *b = &s->batch;
    assert(limits->layers > 0);
    wire_dec_init(&d, bytes, len);
    *b = (struct llm_batch){.layers = limits->layers, .row_copies = 1};
    b->rows = get_varint32(&d);
    b->seq_count = get_varint32(&d);
    b->page_count = get_varint32(&d);
    b->rope_pairs = get_varint32(&d);
    b->rope_tables = get_varint32(&d);
    if (wire_dec_error(&d) || !has_sane_counts(b, limits))
        return -EPROTO;
    uint64_t pages = (uint64_t)limits->layers * b->page_count;
    uint64_t rope = (uint64_t)b->rows * b->rope_pairs * b->rope_tables * 2;
    uint64_t x = (uint64_t)b->rows * limits->width;
    get_rows(&d, s, limits);
    if (wire_dec_error(&d))
        return -EPROTO;
    if (make_room(s, pages, rope, x))
        return -ENOMEM;
    get_pages(&d, s->pages, pages, b->page_count, limits->pages);
    get_wanted(&d, s);
    wire_get_copy(&d, s->rope, rope * sizeof *s->rope);
    wire_get_copy(&d, s->x, x * sizeof *s->x);
    b->tokens = s->tokens;
    b->positions = s->positions;
    b->seqs = s->seqs;
    b->page_first = s->page_first;
    b->pages = s->pages;
    b->picks = s->wanted; /* none of them is picked here */
    b->rope = s->rope;
    return status_of(&d);
}

void llm_stage_step_fini(struct llm_stage_step *s)
{
    free(s->pages);
    free(s->rope);
    free(s->x);
    s->pages = NULL;
    s->rope = s->x = NULL;
    s->pages_room = s->rope_room = s->x_room = 0;
}
