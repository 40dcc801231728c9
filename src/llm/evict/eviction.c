#include "llm/evict/eviction.h"

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
};

struct llm_evictor {
    struct llm_shadow *shadow;
    uint32_t layers;
    uint64_t row_bytes;
    char model[MODEL_CHARS], layout[LAYOUT_CHARS + LLM_ARITHMETIC_CHARS];
    uint64_t outgoing_bytes; /* of rows on their way to the store */
    double row_ns;           /* to compute a row; 0: not known */
    double fetch_ns_a_byte;  /* of rows, with unpacking; 0: not known */
    double link_ns_a_byte;   /* as stored; 0: not known */
    double pack_ratio, pack_ns_a_byte;
    uint32_t put_count;
};

/* A chunk on its way to the store, or one that the store refused. */
struct outgoing {
    struct llm_shadow_task task; /* first: the shadow store frees a disowned one by it */
    struct outgoing *next;
    uint32_t chunk;
    uint8_t values[];
};

/* What of a layer is in the store. */
struct layer {
    uint32_t stored; /* whole chunks in the store or in outgoing */
    struct outgoing *outgoing,
        **outgoing_end; /* the last of those, in order, until they are reaped */
    uint8_t *tail;      /* rows past them, of an evicted layer; NULL: none */
    uint32_t tail_from, tail_rows;
    /* While it is fetched. */
    struct llm_shadow_task *gets;
    uint32_t get_count, get_first; /* chunks */
    uint8_t *rows;
};

struct llm_eviction {
    struct llm_evictor *evictor;
    struct llm_seq *seq;
    struct llm_eviction_policy policy;
    uint32_t *tokens;
    uint32_t token_count, token_room;
    struct kv_prefix *prefixes; /* of the whole chunks of the tokens; computed on demand */
    uint32_t prefix_count, prefix_room;
    uint32_t outgoing_count; /* chunks, of all layers */
    bool fetching;
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

static struct outgoing *take_outgoing(struct llm_eviction *s, struct layer *at)
{
    struct outgoing *out = at->outgoing;
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

void llm_eviction_destroy(struct llm_eviction *s)
{
    if (!s)
        return;
    llm_eviction_fetch_end(s);
    for (uint32_t l = 0; l < s->evictor->layers; l++) {
        drop_tail(&s->layers[l]);
        while (s->layers[l].outgoing) /* other sequences may share the chunk */
            llm_shadow_disown(s->evictor->shadow, &take_outgoing(s, &s->layers[l])->task);
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
    if (count > s->token_room - s->token_count) {
        uint32_t room = s->token_count + count;
        room = room > 2 * s->token_room ? room : 2 * s->token_room;
        uint32_t *larger = realloc(s->tokens, room * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        s->tokens = larger;
        s->token_room = room;
    }
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
    if (count > s->prefix_room) {
        struct kv_prefix *larger = realloc(s->prefixes, count * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        s->prefixes = larger;
        s->prefix_room = count;
    }
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

/* Copies a chunk's rows and queues them for the store. */
static int send_chunk(struct llm_eviction *s, uint32_t layer, uint32_t chunk)
{
    struct llm_evictor *evictor = s->evictor;
    struct layer *at = &s->layers[layer];
    uint32_t from = chunk * LLM_CHUNK_ROWS, bytes = (uint32_t)chunk_bytes(evictor);
    struct outgoing *out = malloc(sizeof *out + bytes);
    if (!out)
        return -ENOMEM;
    *out = (struct outgoing){
        .task = {.key = key_of(s, layer, chunk), .values = out->values, .bytes = bytes},
        .chunk = chunk};
    int rc = llm_seq_read_kv(s->seq, layer, from, from + LLM_CHUNK_ROWS, out->values);
    if (rc) {
        free(out);
        return rc;
    }
    out->task.pack = packs(s);
    evictor->put_count++;
    evictor->outgoing_bytes += bytes;
    s->outgoing_count++;
    *at->outgoing_end = out;
    at->outgoing_end = &out->next;
    at->stored = chunk + 1;
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

/* Frees the chunks of a layer that are stored.  While the layer is evicted, a chunk that the store
 * refused stays, and those after it: this process has its only copy.  wait: for all of them.  0, or
 * the first failure. */
static int reap_layer(struct llm_eviction *s, uint32_t layer, bool wait,
                      struct llm_eviction_figures *f)
{
    struct layer *at = &s->layers[layer];
    struct llm_shadow *shadow = s->evictor->shadow;
    int failure = 0;
    while (at->outgoing && (wait || llm_shadow_is_done(shadow, &at->outgoing->task))) {
        int rc = llm_shadow_wait(shadow, &at->outgoing->task);
        if (rc && !is_whole(s, layer))
            return rc;
        struct outgoing *out = take_outgoing(s, at);
        if (rc == 0)
            note_stored(s->evictor, &out->task, f);
        else if (out->chunk < at->stored)
            at->stored = out->chunk;
        failure = failure ? failure : rc;
        wait |= rc != 0; /* else a chunk that is sent again would follow later ones */
        free(out);
    }
    return failure;
}

bool llm_eviction_is_storing(const struct llm_eviction *s)
{
    return s->outgoing_count > 0;
}

/* Failures stay with their layer and are told by the next call that needs it. */
void llm_eviction_reap(struct llm_eviction *s, struct llm_eviction_figures *f)
{
    for (uint32_t l = 0; l < s->evictor->layers && s->outgoing_count; l++)
        (void)reap_layer(s, l, false, f);
}

/* Whether the store took the last chunk and there is memory for more on the way. */
static bool may_store_async(const struct llm_eviction *s)
{
    return s->evictor->outgoing_bytes < LLM_EVICT_OUTGOING_BYTES &&
           llm_shadow_takes(s->evictor->shadow);
}

static int store_layer(struct llm_eviction *s, uint32_t layer, uint32_t chunks,
                       enum llm_evict_sync sync, struct llm_eviction_figures *f)
{
    const struct layer *at = &s->layers[layer];
    int rc = 0;
    while (at->stored < chunks && rc == 0) {
        rc = send_chunk(s, layer, at->stored);
        if (rc == 0 && !may_store_async(s))
            rc = reap_layer(s, layer, true, f);
    }
    return rc || sync == LLM_EVICT_ASYNC ? rc : reap_layer(s, layer, true, f);
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
    int rc = llm_seq_read_kv(s->seq, layer, from, to, tail);
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

/* How many whole chunks the sequence has; names them. */
static int whole_chunks(struct llm_eviction *s, uint32_t *chunks, char *why)
{
    uint32_t rows = llm_seq_length(s->seq);
    assert(rows <= s->token_count);
    *chunks = rows / LLM_CHUNK_ROWS;
    if (chunk_bytes(s->evictor) > WIRE_TENSOR_MAX)
        return llm_why(why, -EMSGSIZE, "%d rows of a layer are too large for a chunk",
                       LLM_CHUNK_ROWS);
    return name_chunks(s, *chunks) ? llm_why(why, -ENOMEM, "no memory for names of chunks") : 0;
}

static int stays(const struct llm_eviction *s, int rc, uint32_t layer, char *why)
{
    return llm_why(why, rc, "layer %u stays: the KV store (%s): %s", layer,
                   llm_shadow_name(s->evictor->shadow), strerror(-rc));
}

int llm_eviction_store(struct llm_eviction *s, const struct llm_layers *layers,
                       enum llm_evict_sync sync, struct llm_eviction_figures *f, char *why)
{
    uint32_t chunks;
    int rc = whole_chunks(s, &chunks, why);
    for (uint32_t l = 0; l < s->evictor->layers && rc == 0; l++) {
        if (!llm_layers_has(layers, l) || !is_whole(s, l))
            continue;
        rc = store_layer(s, l, chunks, sync, f);
        if (rc)
            return stays(s, rc, l, why);
    }
    return rc;
}

/* Stores and evicts a layer that has all rows. */
static int evict_layer(struct llm_eviction *s, uint32_t layer, uint32_t chunks,
                       enum llm_evict_sync sync, struct llm_eviction_figures *f)
{
    uint32_t length = llm_seq_length(s->seq);
    int rc = 0;
    if (s->policy.recovery != LLM_RECOVER_COMPUTE) {
        rc = store_layer(s, layer, chunks, sync, f);
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
    llm_eviction_fetch_end(s);
    llm_eviction_reap(s, f);
    llm_seq_truncate(s->seq, length); /* gives back pages reserved for rows to come */
    int rc = whole_chunks(s, &chunks, why);
    if (rc || length == 0 || llm_layers_count(layers) == 0)
        return rc;
    if (s->policy.recovery == LLM_RECOVER_ALL)
        layers = &all;
    for (uint32_t l = 0; l < s->evictor->layers; l++) {
        if (!llm_layers_has(layers, l) || !is_whole(s, l))
            continue;
        rc = evict_layer(s, l, chunks, sync, f);
        if (rc)
            return stays(s, rc, l, why);
    }
    return 0;
}

/* ---- finding rows in the store ---- */

/* Asks about the first layer only: the layers of a chunk are stored together.  One that is missing
 * all the same is found by the fetch. */
uint32_t llm_eviction_match(struct llm_eviction *s, uint32_t count)
{
    uint32_t chunks = (count < s->token_count ? count : s->token_count) / LLM_CHUNK_ROWS;
    uint32_t matched = 0;
    if (chunks == 0 || name_chunks(s, chunks))
        return 0;
    struct kv_block_key *keys = calloc(chunks, sizeof *keys);
    bool *there = calloc(chunks, sizeof *there);
    for (uint32_t i = 0; i < chunks && keys && there; i++)
        keys[i] = key_of(s, 0, i);
    if (keys && there && llm_shadow_has(s->evictor->shadow, keys, chunks, there) == 0) {
        while (matched < chunks && there[matched])
            matched++;
    }
    free(keys);
    free(there);
    return matched * LLM_CHUNK_ROWS;
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
    if (at->outgoing && at->outgoing->chunk < end)
        end = at->outgoing->chunk; /* the rest is still in this process */
    if (first >= end)
        return 0;
    uint64_t bytes = chunk_bytes(s->evictor);
    at->gets = calloc(end - first, sizeof *at->gets);
    at->rows = malloc((end - first) * bytes);
    if (!at->gets || !at->rows) {
        free(at->gets);
        free(at->rows);
        at->gets = NULL;
        at->rows = NULL;
        return -ENOMEM;
    }
    at->get_count = end - first;
    at->get_first = first;
    for (uint32_t i = 0; i < at->get_count; i++)
        at->gets[i] = (struct llm_shadow_task){.key = key_of(s, layer, first + i),
                                               .values = at->rows + i * bytes,
                                               .bytes = (uint32_t)bytes};
    llm_shadow_fetch(s->evictor->shadow, at->gets, at->get_count);
    return 0;
}

static void stop_layer(struct llm_eviction *s, struct layer *at)
{
    if (at->get_count)
        llm_shadow_cancel(s->evictor->shadow, at->gets, at->get_count);
    free(at->gets);
    free(at->rows);
    at->gets = NULL;
    at->rows = NULL;
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
    s->guesses =
        !only && s->policy.recovery == LLM_RECOVER_DELTA && s->evictor->fetch_ns_a_byte == 0;
    s->next_layer = 0;
    s->fetched = s->plain = s->fetch_ns = 0;
    int rc = start_ahead(s, 0);
    if (rc)
        llm_eviction_fetch_end(s);
    return rc;
}

void llm_eviction_fetch_end(struct llm_eviction *s)
{
    if (!s->fetching)
        return;
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
    uint32_t from = at->get_first * LLM_CHUNK_ROWS;
    for (uint32_t i = 0; i < at->get_count; i++, from += LLM_CHUNK_ROWS) {
        struct llm_shadow_task *get = &at->gets[i];
        uint64_t began = hw_now_ns();
        int rc = llm_shadow_wait(s->evictor->shadow, get);
        f->wait_ns += hw_now_ns() - began;
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
    for (struct outgoing *out = s->layers[layer].outgoing; out; out = out->next) {
        uint32_t from = out->chunk * LLM_CHUNK_ROWS, to = from + LLM_CHUNK_ROWS;
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

int llm_eviction_fetch_layer(struct llm_eviction *s, uint32_t layer, struct llm_eviction_figures *f,
                             char *why)
{
    assert(s->fetching);
    if (is_whole(s, layer))
        return 0;
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
        if (!llm_shadow_is_done(s->evictor->shadow, &at->gets[i]))
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
        rc = has_come(s, &s->layers[l]) ? llm_eviction_fetch_layer(s, l, f, why) : -EAGAIN;
    }
    return rc;
}

bool llm_eviction_is_fetching(const struct llm_eviction *s)
{
    return s->fetching;
}
