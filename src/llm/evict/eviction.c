#include "llm/evict/eviction.h"

#include "base/grow.h"
#include "llm/evict/packing.h"
#include "llm/model/why.h"
#include "wire/le.h"
#include "wire/limits.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MODEL_CHARS = 64,
    LAYOUT_CHARS = 96,
    READ_BYTES = 4 << 20, /* of a layer's rows that are read at once */
};

struct llm_evictor {
    struct llm_shadow *shadow;
    uint32_t layers;
    uint64_t row_bytes;
    char model[MODEL_CHARS], layout[LAYOUT_CHARS + LLM_ARITHMETIC_CHARS];
    uint64_t outgoing_bytes; /* of rows on their way to the store */
    struct chunk *left;      /* on their way, of sequences that have ended */
    double row_ns;           /* to compute a row; 0: not known */
    double fetch_ns_a_byte;  /* of rows, with unpacking; 0: not known */
    double link_ns_a_byte;   /* as stored; 0: not known */
    double pack_ratio, pack_ns_a_byte;
    uint32_t put_count;
};

/* A chunk on its way to or from the store, or one that the store refused. */
struct chunk {
    struct llm_shadow_task task; /* first: the shadow store frees a disowned one by it */
    struct chunk *next;          /* of those to the store */
    uint32_t number;
    bool told; /* that the store refused it */
    uint8_t values[];
};

/* The question which chunks the store has. */
struct match {
    struct llm_shadow_question question; /* first: it is freed by it */
    uint32_t count, matched;
    bool *there;
    struct kv_block_key keys[];
};

/* What of a layer is in the store. */
struct layer {
    uint32_t stored;                        /* whole chunks in the store or in outgoing */
    struct chunk *outgoing, **outgoing_end; /* the last of those, in order, until they are reaped */
    uint8_t *tail;                          /* rows past them, of an evicted layer; NULL: none */
    uint32_t tail_from, tail_rows;
    /* While it is fetched. */
    struct chunk **gets;
    uint32_t get_count;
};

struct llm_eviction {
    struct llm_evictor *evictor;
    struct llm_seq *seq;
    struct llm_eviction_policy policy;
    uint32_t *tokens;
    uint32_t token_count;
    size_t token_room;
    struct kv_prefix *prefixes; /* of the whole chunks of the tokens; computed on demand */
    uint32_t prefix_count;
    size_t prefix_room;
    uint32_t outgoing_count; /* chunks, of all layers */
    int failure;             /* of a store; the next call that stores tells it */
    uint32_t failed_layer;
    uint64_t failed_ns;
    struct match *match; /* NULL: none is under way */
    bool fetching;
    uint64_t began_ns;                 /* the fetch */
    bool guesses;                      /* the fetch began without knowing what the store costs */
    struct llm_layers wanted;          /* to be fetched */
    uint32_t next_layer;               /* the first of them that is not started */
    uint64_t fetched, plain, fetch_ns; /* of this fetch: bytes as stored, of rows; time of all
 channels */
    struct layer layers[];
};

static uint64_t chunk_bytes(const struct llm_evictor *evictor)
{
    return LLM_CHUNK_ROWS * evictor->row_bytes;
}

void llm_eviction_figures_add(struct llm_eviction_figures *to,
                              const struct llm_eviction_figures *more)
{
    to->evicted_layers += more->evicted_layers;
    to->restored_layers += more->restored_layers;
    to->stored_bytes += more->stored_bytes;
    to->fetched_bytes += more->fetched_bytes;
    to->kept_bytes += more->kept_bytes;
    to->plain_bytes += more->plain_bytes;
    to->wait_ns += more->wait_ns;
    to->lost_chunks += more->lost_chunks;
}

/* ---- the evictor ---- */

int llm_evictor_create(struct llm_engine *engine, struct llm_shadow *shadow, const char *model,
                       struct llm_evictor **out)
{
    const struct llm_config *c = llm_engine_config(engine);
    struct llm_evictor *evictor = calloc(1, sizeof *evictor);
    if (!evictor)
        return -ENOMEM;
    evictor->shadow = shadow;
    evictor->layers = c->layers;
    evictor->row_bytes = llm_kv_row_bytes(engine);
    evictor->pack_ratio = 1;
    snprintf(evictor->model, sizeof evictor->model, "%s", model);
    char arithmetic[LLM_ARITHMETIC_CHARS];
    llm_engine_arithmetic(engine, arithmetic);
    snprintf(evictor->layout, sizeof evictor->layout, "f16 %ux%ux%u rows %d %s", c->layers,
             c->kv_heads, c->head_dim, LLM_CHUNK_ROWS, arithmetic);
    *out = evictor;
    return 0;
}

void llm_evictor_destroy(struct llm_evictor *evictor)
{
    while (evictor && evictor->left) {
        struct chunk *out = evictor->left;
        evictor->left = out->next;
        llm_shadow_disown(evictor->shadow, &out->task);
    }
    free(evictor);
}

/* A moving average: the newest value counts a quarter. */
static double blend(double before, double now)
{
    return before == 0 ? now : before + (now - before) / 4;
}

void llm_evictor_timed(struct llm_evictor *evictor, uint32_t rows, uint64_t ns)
{
    assert(rows > 0);
    evictor->row_ns = blend(evictor->row_ns, (double)ns / rows);
}

/* ---- a sequence ---- */

int llm_eviction_create(struct llm_evictor *evictor, struct llm_seq *seq,
                        struct llm_eviction_policy policy, struct llm_eviction **out)
{
    struct llm_eviction *s = calloc(1, sizeof *s + evictor->layers * sizeof s->layers[0]);
    if (!s)
        return -ENOMEM;
    s->evictor = evictor;
    s->seq = seq;
    s->policy = policy;
    for (uint32_t l = 0; l < evictor->layers; l++)
        s->layers[l].outgoing_end = &s->layers[l].outgoing;
    *out = s;
    return 0;
}

static struct chunk *take_outgoing(struct llm_eviction *s, struct layer *at)
{
    struct chunk *out = at->outgoing;
    at->outgoing = out->next;
    if (!at->outgoing)
        at->outgoing_end = &at->outgoing;
    s->outgoing_count--;
    s->evictor->outgoing_bytes -= out->task.bytes;
    return out;
}

static void drop_tail(struct layer *layer)
{
    free(layer->tail);
    layer->tail = NULL;
    layer->tail_rows = 0;
}

static void end_match(struct llm_eviction *s)
{
    if (s->match)
        llm_shadow_ask_no_more(s->evictor->shadow, &s->match->question);
    s->match = NULL;
}

void llm_eviction_destroy(struct llm_eviction *s)
{
    if (!s)
        return;
    struct llm_eviction_figures unused = {0};
    llm_eviction_fetch_end(s, &unused);
    end_match(s);
    for (uint32_t l = 0; l < s->evictor->layers; l++) {
        drop_tail(&s->layers[l]);
        while (s->layers[l].outgoing) { /* other sequences may share the chunk */
            struct chunk *out = take_outgoing(s, &s->layers[l]);
            out->next = s->evictor->left;
            s->evictor->left = out;
        }
    }
    free(s->prefixes);
    free(s->tokens);
    free(s);
}

struct llm_eviction_policy llm_eviction_policy(const struct llm_eviction *s)
{
    return s->policy;
}

int llm_eviction_add_tokens(struct llm_eviction *s, const uint32_t *tokens, uint32_t count)
{
    if (!hw_grow(&s->tokens, &s->token_room, (size_t)s->token_count + count, sizeof *s->tokens))
        return -ENOMEM;
    memcpy(s->tokens + s->token_count, tokens, count * sizeof *tokens);
    s->token_count += count;
    return 0;
}

const uint32_t *llm_eviction_tokens(const struct llm_eviction *s, uint32_t *count)
{
    *count = s->token_count;
    return s->tokens;
}

/* ---- names ---- */

/* The prefixes of the first `count` chunks. */
static int name_chunks(struct llm_eviction *s, uint32_t count)
{
    assert((uint64_t)count * LLM_CHUNK_ROWS <= s->token_count);
    if (!hw_grow(&s->prefixes, &s->prefix_room, count, sizeof *s->prefixes))
        return -ENOMEM;
    for (; s->prefix_count < count; s->prefix_count++) {
        uint32_t i = s->prefix_count;
        struct kv_prefix before = i ? s->prefixes[i - 1] : (struct kv_prefix){0};
        s->prefixes[i] =
            kv_prefix_next(before, s->tokens + (size_t)i * LLM_CHUNK_ROWS, LLM_CHUNK_ROWS);
    }
    return 0;
}

static struct kv_block_key key_of(const struct llm_eviction *s, uint32_t layer, uint32_t chunk)
{
    const struct llm_evictor *evictor = s->evictor;
    assert(chunk < s->prefix_count);
    struct kv_block_key key = kv_block_key_make(
        evictor->model, evictor->layout, llm_shadow_tenant(evictor->shadow), s->prefixes[chunk]);
    assert(key.len + sizeof(uint32_t) < KV_BLOCK_KEY_MAX);
    wire_store32(key.bytes + key.len, layer);
    key.len += sizeof(uint32_t);
    key.bytes[key.len++] =
        s->policy.pack == LLM_PACK_ALWAYS; /* packed and plain chunks are different blocks */
    return key;
}

/* ---- storing and evicting ---- */

/* Every LLM_PACK_AGAIN chunks one is packed to measure the gain. */
static bool packs(const struct llm_eviction *s)
{
    const struct llm_evictor *evictor = s->evictor;
    if (s->policy.pack != LLM_PACK_AUTO)
        return s->policy.pack == LLM_PACK_ALWAYS;
    if (evictor->link_ns_a_byte == 0)
        return false;
    return evictor->put_count % LLM_PACK_AGAIN == 0 ||
           llm_packing_pays(evictor->pack_ratio, evictor->pack_ns_a_byte,
                            (uint64_t)(1e9 / evictor->link_ns_a_byte));
}

static bool is_whole(const struct llm_eviction *s, uint32_t layer)
{
    return llm_seq_layer_rows(s->seq, layer) >= llm_seq_length(s->seq);
}

static struct chunk *chunk_create(const struct llm_eviction *s, uint32_t layer, uint32_t number)
{
    uint32_t bytes = (uint32_t)chunk_bytes(s->evictor);
    struct chunk *c = malloc(sizeof *c + bytes);
    if (c)
        *c = (struct chunk){
            .task = {.key = key_of(s, layer, number), .values = c->values, .bytes = bytes},
            .number = number};
    return c;
}

/* Rows of several chunks of a layer: one read of a device takes less time than one for each. */
struct ahead {
    uint8_t *rows; /* first those of K, then those of V */
    uint32_t first, count;
};

static int read_ahead(struct llm_eviction *s, uint32_t layer, uint32_t end, struct ahead *a)
{
    uint32_t first = s->layers[layer].stored, left = end - first;
    uint64_t bytes = chunk_bytes(s->evictor), most = READ_BYTES / bytes ? READ_BYTES / bytes : 1;
    uint32_t count = left < most ? left : (uint32_t)most;
    if (!a->rows)
        a->rows = malloc(count * bytes);
    if (!a->rows)
        return -ENOMEM;
    a->first = first;
    a->count = count;
    return llm_seq_read_kv(s->seq, layer, 1, first * LLM_CHUNK_ROWS,
                           (first + count) * LLM_CHUNK_ROWS, a->rows);
}

/* Copies a chunk's rows and queues them for the store. */
static int send_chunk(struct llm_eviction *s, uint32_t layer, uint32_t number,
                      const struct ahead *a)
{
    struct llm_evictor *evictor = s->evictor;
    struct layer *at = &s->layers[layer];
    struct chunk *out = chunk_create(s, layer, number);
    if (!out)
        return -ENOMEM;
    uint64_t half = out->task.bytes / 2;
    assert(number >= a->first && number - a->first < a->count);
    memcpy(out->values, a->rows + (number - a->first) * half, half);
    memcpy(out->values + half, a->rows + (a->count + number - a->first) * half, half);
    out->task.pack = packs(s);
    evictor->put_count++;
    evictor->outgoing_bytes += out->task.bytes;
    s->outgoing_count++;
    *at->outgoing_end = out;
    at->outgoing_end = &out->next;
    at->stored = number + 1;
    llm_shadow_store(evictor->shadow, &out->task);
    return 0;
}

static void note_stored(struct llm_evictor *evictor, const struct llm_shadow_task *task,
                        struct llm_eviction_figures *f)
{
    f->stored_bytes += task->moved;
    if (task->pack) {
        evictor->pack_ns_a_byte = (double)task->ns / task->bytes;
        evictor->pack_ratio = (double)task->packed / task->bytes;
    }
}

void llm_evictor_reap(struct llm_evictor *evictor, struct llm_eviction_figures *f)
{
    for (struct chunk **at = &evictor->left; *at;) {
        struct chunk *out = *at;
        if (!llm_shadow_is_done(evictor->shadow, &out->task)) {
            at = &out->next;
            continue;
        }
        if (out->task.status == 0)
            note_stored(evictor, &out->task, f);
        *at = out->next;
        free(out);
    }
}

/* Of a chunk that the store refused: it is sent again after those behind it. */
static bool all_done(struct llm_shadow *shadow, const struct chunk *out)
{
    while (out && llm_shadow_is_done(shadow, &out->task))
        out = out->next;
    return !out;
}

/* Frees the chunks of a layer that are stored.  While the layer is evicted, a chunk that the store
 * refused stays, and those after it: this process has its only copy. */
static void reap_layer(struct llm_eviction *s, uint32_t layer, struct llm_eviction_figures *f)
{
    struct layer *at = &s->layers[layer];
    struct llm_shadow *shadow = s->evictor->shadow;
    while (at->outgoing && llm_shadow_is_done(shadow, &at->outgoing->task)) {
        int rc = at->outgoing->task.status;
        if (rc && !at->outgoing->told) {
            at->outgoing->told = true;
            s->failure = rc == -EAGAIN ? -EBUSY : rc; /* -EAGAIN means that rows are under way */
            s->failed_layer = layer;
            s->failed_ns = hw_now_ns();
        }
        if (rc && (!is_whole(s, layer) || !all_done(shadow, at->outgoing)))
            return;
        struct chunk *out = take_outgoing(s, at);
        if (rc == 0)
            note_stored(s->evictor, &out->task, f);
        else if (out->number < at->stored)
            at->stored = out->number;
        free(out);
    }
}

bool llm_eviction_is_storing(const struct llm_eviction *s)
{
    for (uint32_t l = 0; l < s->evictor->layers && s->outgoing_count; l++) {
        if (!all_done(s->evictor->shadow, s->layers[l].outgoing))
            return true;
    }
    return false;
}

void llm_eviction_reap(struct llm_eviction *s, struct llm_eviction_figures *f)
{
    for (uint32_t l = 0; l < s->evictor->layers && s->outgoing_count; l++)
        reap_layer(s, l, f);
}

/* A store that refused the last chunk is given one at a time.  0; -EAGAIN until what is on its way
 * has arrived; -EBUSY: nothing is, and the store took too little. */
static int may_send(const struct llm_eviction *s)
{
    const struct llm_evictor *evictor = s->evictor;
    bool storing = llm_shadow_is_storing(evictor->shadow);
    bool fits = evictor->outgoing_bytes < LLM_EVICT_OUTGOING_BYTES;
    if (fits && (!storing || llm_shadow_takes(evictor->shadow)))
        return 0;
    return storing ? -EAGAIN : -EBUSY;
}

static int store_layer(struct llm_eviction *s, uint32_t layer, uint32_t chunks)
{
    const struct layer *at = &s->layers[layer];
    struct ahead ahead = {0};
    int rc = 0;
    while (at->stored < chunks && rc == 0) {
        rc = may_send(s);
        if (rc == 0 && at->stored >= ahead.first + ahead.count)
            rc = read_ahead(s, layer, chunks, &ahead);
        if (rc == 0)
            rc = send_chunk(s, layer, at->stored, &ahead);
    }
    free(ahead.rows);
    return rc;
}

/* Keeps the rows past the last whole chunk. */
static int keep_tail(struct llm_eviction *s, uint32_t layer, uint32_t from, uint32_t to)
{
    struct layer *at = &s->layers[layer];
    if (from == to)
        return 0;
    uint8_t *tail = malloc((to - from) * s->evictor->row_bytes);
    if (!tail)
        return -ENOMEM;
    int rc = llm_seq_read_kv(s->seq, layer, 1, from, to, tail);
    if (rc) {
        free(tail);
        return rc;
    }
    drop_tail(at);
    at->tail = tail;
    at->tail_from = from;
    at->tail_rows = to - from;
    return 0;
}

static int stays(const struct llm_eviction *s, int rc, uint32_t layer, char *why)
{
    return llm_why(why, rc, "layer %u stays: the KV store (%s): %s", layer,
                   llm_shadow_name(s->evictor->shadow), strerror(-rc));
}

/* Tells what failed before; else how many whole chunks the sequence has, and names them. */
static int begin_storing(struct llm_eviction *s, uint32_t *chunks, struct llm_eviction_figures *f,
                         char *why)
{
    uint32_t rows = llm_seq_length(s->seq);
    assert(rows <= s->token_count);
    llm_eviction_reap(s, f);
    int failure = s->failure;
    s->failure = 0;
    if (failure && hw_now_ns() - s->failed_ns < LLM_SHADOW_REST_NS)
        return stays(s, failure, s->failed_layer, why);
    *chunks = rows / LLM_CHUNK_ROWS;
    if (chunk_bytes(s->evictor) > WIRE_TENSOR_MAX)
        return llm_why(why, -EMSGSIZE, "%d rows of a layer are too large for a chunk",
                       LLM_CHUNK_ROWS);
    return name_chunks(s, *chunks) ? llm_why(why, -ENOMEM, "no memory for names of chunks") : 0;
}

int llm_eviction_store(struct llm_eviction *s, const struct llm_layers *layers,
                       struct llm_eviction_figures *f, char *why)
{
    uint32_t chunks;
    int rc = begin_storing(s, &chunks, f, why);
    for (uint32_t l = 0; l < s->evictor->layers && rc == 0; l++) {
        if (!llm_layers_has(layers, l) || !is_whole(s, l))
            continue;
        rc = store_layer(s, l, chunks);
        if (rc)
            return stays(s, rc, l, why);
    }
    return rc;
}

/* Stores and evicts a layer that has all rows. */
static int evict_layer(struct llm_eviction *s, uint32_t layer, uint32_t chunks,
                       struct llm_eviction_figures *f)
{
    uint32_t length = llm_seq_length(s->seq);
    int rc = 0;
    if (s->policy.recovery != LLM_RECOVER_COMPUTE) {
        rc = store_layer(s, layer, chunks);
        if (rc == 0)
            rc = keep_tail(s, layer, chunks * LLM_CHUNK_ROWS, length);
    }
    if (rc)
        return rc;
    llm_seq_evict(s->seq, layer);
    f->evicted_layers++;
    return 0;
}

int llm_eviction_evict(struct llm_eviction *s, const struct llm_layers *layers,
                       enum llm_evict_sync sync, struct llm_eviction_figures *f, char *why)
{
    uint32_t chunks, length = llm_seq_length(s->seq);
    struct llm_layers all = llm_layers_first(s->evictor->layers);
    llm_eviction_fetch_end(s, f);
    llm_seq_truncate(s->seq, length); /* gives back pages reserved for rows to come */
    if (length == 0 || llm_layers_count(layers) == 0)
        return 0;
    if (s->policy.recovery == LLM_RECOVER_ALL)
        layers = &all;
    int rc = 0;
    if (sync == LLM_EVICT_SYNC && s->policy.recovery != LLM_RECOVER_COMPUTE)
        rc = llm_eviction_store(s, layers, f, why);
    if (rc == 0 && sync == LLM_EVICT_SYNC && llm_eviction_is_storing(s))
        rc = llm_why(why, -EAGAIN, "rows are on their way to the store");
    if (rc == 0)
        rc = begin_storing(s, &chunks, f, why);
    for (uint32_t l = 0; l < s->evictor->layers && rc == 0; l++) {
        if (!llm_layers_has(layers, l) || !is_whole(s, l))
            continue;
        rc = evict_layer(s, l, chunks, f);
        if (rc)
            return stays(s, rc, l, why);
    }
    return rc;
}

/* ---- finding rows in the store ---- */

static int run_match(struct llm_shadow *shadow, struct llm_shadow_question *question)
{
    struct match *m = (struct match *)question;
    int rc = llm_shadow_has(shadow, m->keys, m->count, m->there);
    while (rc == 0 && m->matched < m->count && m->there[m->matched])
        m->matched++;
    return rc;
}

static void drop_match(struct llm_shadow_question *question)
{
    struct match *m = (struct match *)question;
    free(m->there);
    free(m);
}

/* Asks about the first layer only: the layers of a chunk are stored together.  One that is missing
 * all the same is found by the fetch. */
int llm_eviction_match_begin(struct llm_eviction *s, uint32_t count)
{
    uint32_t chunks = (count < s->token_count ? count : s->token_count) / LLM_CHUNK_ROWS;
    end_match(s);
    if (chunks == 0)
        return 0;
    if (name_chunks(s, chunks))
        return -ENOMEM;
    struct match *m = calloc(1, sizeof *m + chunks * sizeof m->keys[0]);
    bool *there = calloc(chunks, sizeof *there);
    if (!m || !there) {
        free(m);
        free(there);
        return -ENOMEM;
    }
    m->question = (struct llm_shadow_question){.run = run_match, .drop = drop_match};
    m->count = chunks;
    m->there = there;
    for (uint32_t i = 0; i < chunks; i++)
        m->keys[i] = key_of(s, 0, i);
    s->match = m;
    llm_shadow_ask(s->evictor->shadow, &m->question);
    return 0;
}

int llm_eviction_match_poll(struct llm_eviction *s, uint32_t *rows)
{
    *rows = 0;
    if (!s->match)
        return 0;
    if (!llm_shadow_is_answered(s->evictor->shadow, &s->match->question))
        return -EAGAIN;
    *rows = s->match->matched * LLM_CHUNK_ROWS;
    end_match(s);
    return 0;
}

int llm_eviction_adopt(struct llm_eviction *s, uint32_t rows)
{
    assert(llm_seq_length(s->seq) == 0 && rows % LLM_CHUNK_ROWS == 0 && rows <= s->token_count);
    int rc = name_chunks(s, rows / LLM_CHUNK_ROWS);
    if (rc)
        return rc;
    for (uint32_t l = 0; l < s->evictor->layers; l++)
        s->layers[l].stored = rows / LLM_CHUNK_ROWS;
    return llm_seq_set_length(s->seq, rows);
}

/* ---- restoring ---- */

static uint64_t missing_bytes(const struct llm_eviction *s)
{
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < s->evictor->layers; l++)
        bytes += (llm_seq_length(s->seq) - llm_seq_layer_rows(s->seq, l)) * s->evictor->row_bytes;
    return bytes;
}

bool llm_eviction_should_compute(const struct llm_eviction *s, char *why)
{
    const struct llm_evictor *evictor = s->evictor;
    double fetch_ns = (double)missing_bytes(s) * evictor->fetch_ns_a_byte;
    double compute_ns = llm_seq_length(s->seq) * evictor->row_ns;
    if (s->policy.recovery != LLM_RECOVER_DELTA) {
        llm_why_set(why, "as asked");
        return s->policy.recovery == LLM_RECOVER_COMPUTE;
    }
    if (fetch_ns == 0 || compute_ns == 0) {
        llm_why_set(why, "the cost is not known yet");
        return false;
    }
    llm_why_set(why, "%.0f us to fetch, %.0f us to compute", fetch_ns / 1e3, compute_ns / 1e3);
    return compute_ns < fetch_ns;
}

uint32_t llm_eviction_truncate(struct llm_eviction *s)
{
    uint32_t length = llm_seq_length(s->seq), least = length;
    assert(!s->fetching);
    for (uint32_t l = 0; l < s->evictor->layers; l++) {
        uint32_t rows = llm_seq_layer_rows(s->seq, l);
        least = rows < least ? rows : least;
        drop_tail(&s->layers[l]);
    }
    llm_seq_truncate(s->seq, least);
    return length - least;
}

static int start_layer(struct llm_eviction *s, uint32_t layer)
{
    struct layer *at = &s->layers[layer];
    uint32_t first = llm_seq_layer_rows(s->seq, layer) / LLM_CHUNK_ROWS;
    uint32_t end = llm_seq_length(s->seq) / LLM_CHUNK_ROWS;
    end = end < at->stored ? end : at->stored;
    if (at->outgoing && at->outgoing->number < end)
        end = at->outgoing->number; /* the rest is still in this process */
    if (first >= end)
        return 0;
    at->gets = calloc(end - first, sizeof(*at->gets));
    if (!at->gets)
        return -ENOMEM;
    for (; first < end; first++) {
        struct chunk *get = chunk_create(s, layer, first);
        if (!get) {
            while (at->get_count)
                free(at->gets[--at->get_count]);
            free(at->gets);
            at->gets = NULL;
            return -ENOMEM;
        }
        at->gets[at->get_count++] = get;
    }
    /* A chunk begins with its task. */
    llm_shadow_fetch(s->evictor->shadow, (struct llm_shadow_task *const *)at->gets, at->get_count);
    return 0;
}

static void stop_layer(struct llm_eviction *s, struct layer *at)
{
    for (uint32_t i = 0; i < at->get_count; i++)
        llm_shadow_disown(s->evictor->shadow, &at->gets[i]->task);
    free(at->gets);
    at->gets = NULL;
    at->get_count = 0;
}

/* Keeps fetches of LLM_EVICT_LAYERS_AHEAD layers under way, from `layer` on. */
static int start_ahead(struct llm_eviction *s, uint32_t layer)
{
    uint32_t under_way = 0;
    for (uint32_t l = layer; l < s->next_layer; l++)
        under_way += s->layers[l].get_count > 0;
    for (; s->next_layer < s->evictor->layers && under_way < LLM_EVICT_LAYERS_AHEAD;
         s->next_layer++) {
        if (!llm_layers_has(&s->wanted, s->next_layer) || is_whole(s, s->next_layer))
            continue;
        int rc = start_layer(s, s->next_layer);
        if (rc)
            return rc;
        under_way++;
    }
    return 0;
}

int llm_eviction_fetch_begin(struct llm_eviction *s, const struct llm_layers *only)
{
    assert(!s->fetching);
    s->wanted = only ? *only : llm_layers_first(s->evictor->layers);
    s->fetching = true;
    s->began_ns = hw_now_ns();
    s->guesses =
        !only && s->policy.recovery == LLM_RECOVER_DELTA && s->evictor->fetch_ns_a_byte == 0;
    s->next_layer = 0;
    s->fetched = s->plain = s->fetch_ns = 0;
    int rc = start_ahead(s, 0);
    if (rc) {
        struct llm_eviction_figures unused = {0};
        llm_eviction_fetch_end(s, &unused);
    }
    return rc;
}

void llm_eviction_fetch_end(struct llm_eviction *s, struct llm_eviction_figures *f)
{
    if (!s->fetching)
        return;
    f->wait_ns += hw_now_ns() - s->began_ns;
    for (uint32_t l = 0; l < s->evictor->layers; l++)
        stop_layer(s, &s->layers[l]);
    if (s->fetched) {
        double ns = (double)s->fetch_ns / LLM_SHADOW_THREADS;
        s->evictor->fetch_ns_a_byte = blend(s->evictor->fetch_ns_a_byte, ns / (double)s->plain);
        s->evictor->link_ns_a_byte = blend(s->evictor->link_ns_a_byte, ns / (double)s->fetched);
    }
    s->fetching = false;
}

/* Restores the fetched chunks of a layer, in order; -ENODATA at the first that did not come. */
static int write_chunks(struct llm_eviction *s, uint32_t layer, struct llm_eviction_figures *f,
                        char *why)
{
    struct layer *at = &s->layers[layer];
    for (uint32_t i = 0; i < at->get_count; i++) {
        const struct llm_shadow_task *get = &at->gets[i]->task;
        uint32_t from = at->gets[i]->number * LLM_CHUNK_ROWS;
        int rc = get->status;
        if (rc) {
            f->lost_chunks++;
            if (rc == -ENOENT || rc == -EPROTO || rc == -EMSGSIZE)
                at->stored = from / LLM_CHUNK_ROWS; /* the next eviction stores it again */
            return llm_why(why, -ENODATA, "rows %u to %u of layer %u: the KV store (%s): %s", from,
                           from + LLM_CHUNK_ROWS, layer, llm_shadow_name(s->evictor->shadow),
                           strerror(-rc));
        }
        rc = llm_seq_write_kv(s->seq, layer, from, from + LLM_CHUNK_ROWS, get->values);
        if (rc)
            return llm_why(why, rc, "layer %u cannot be written: %s", layer, strerror(-rc));
        f->fetched_bytes += get->moved;
        f->plain_bytes += get->bytes;
        s->fetched += get->moved;
        s->plain += get->bytes;
        s->fetch_ns += get->ns;
    }
    return 0;
}

/* Restores the chunks that are still in this process. */
static int write_outgoing(struct llm_eviction *s, uint32_t layer, struct llm_eviction_figures *f,
                          char *why)
{
    for (struct chunk *out = s->layers[layer].outgoing; out; out = out->next) {
        uint32_t from = out->number * LLM_CHUNK_ROWS, to = from + LLM_CHUNK_ROWS;
        if (from < llm_seq_layer_rows(s->seq, layer) || to > llm_seq_length(s->seq))
            continue;
        int rc = llm_seq_write_kv(s->seq, layer, from, to, out->values);
        if (rc)
            return llm_why(why, rc, "layer %u cannot be written: %s", layer, strerror(-rc));
        f->kept_bytes += out->task.bytes;
        f->plain_bytes += out->task.bytes;
    }
    return 0;
}

static int write_tail(struct llm_eviction *s, uint32_t layer, struct llm_eviction_figures *f,
                      char *why)
{
    struct layer *at = &s->layers[layer];
    uint32_t rows = llm_seq_layer_rows(s->seq, layer);
    if (is_whole(s, layer))
        return 0;
    if (!at->tail || at->tail_from != rows || rows + at->tail_rows != llm_seq_length(s->seq))
        return llm_why(why, -ENODATA,
                       "rows %u and on of layer %u are neither here nor in the store", rows, layer);
    int rc = llm_seq_write_kv(s->seq, layer, rows, rows + at->tail_rows, at->tail);
    if (rc)
        return llm_why(why, rc, "layer %u cannot be written: %s", layer, strerror(-rc));
    f->kept_bytes += at->tail_rows * s->evictor->row_bytes;
    f->plain_bytes += at->tail_rows * s->evictor->row_bytes;
    return 0;
}

/* The first fetch shows what the store costs.  It ends when the rest of it would take longer than
 * computing all rows. */
static int reconsider(const struct llm_eviction *s, char *why)
{
    double compute_ns = llm_seq_length(s->seq) * s->evictor->row_ns;
    if (!s->guesses || compute_ns == 0 || s->plain == 0)
        return 0;
    double ns_a_byte = (double)s->fetch_ns / LLM_SHADOW_THREADS / (double)s->plain;
    double fetch_ns = (double)missing_bytes(s) * ns_a_byte;
    if (fetch_ns <= compute_ns)
        return 0;
    return llm_why(why, -ENODATA, "%.0f us to fetch the rest, %.0f us to compute", fetch_ns / 1e3,
                   compute_ns / 1e3);
}

/* Restores a layer whose chunks have come. */
static int restore_layer(struct llm_eviction *s, uint32_t layer, struct llm_eviction_figures *f,
                         char *why)
{
    int rc = write_chunks(s, layer, f, why);
    if (rc == 0)
        rc = write_outgoing(s, layer, f, why);
    if (rc == 0)
        rc = write_tail(s, layer, f, why);
    if (rc)
        return rc;
    stop_layer(s, &s->layers[layer]);
    drop_tail(&s->layers[layer]);
    f->restored_layers++;
    rc = reconsider(s, why);
    if (rc)
        return rc;
    return start_ahead(s, layer) ? llm_why(why, -ENOMEM, "no memory for fetched rows") : 0;
}

static bool has_come(const struct llm_eviction *s, const struct layer *at)
{
    for (uint32_t i = 0; i < at->get_count; i++) {
        if (!llm_shadow_is_done(s->evictor->shadow, &at->gets[i]->task))
            return false;
    }
    return true;
}

int llm_eviction_fetch_poll(struct llm_eviction *s, struct llm_eviction_figures *f, char *why)
{
    int rc = 0;
    for (uint32_t l = 0; l < s->evictor->layers && rc == 0; l++) {
        if (!llm_layers_has(&s->wanted, l) || is_whole(s, l))
            continue;
        assert(l < s->next_layer); /* fetch_begin started the first missing one */
        rc = has_come(s, &s->layers[l]) ? restore_layer(s, l, f, why) : -EAGAIN;
    }
    return rc;
}

bool llm_eviction_is_fetching(const struct llm_eviction *s)
{
    return s->fetching;
}
