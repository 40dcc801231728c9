/* Evicting and restoring layers: whatever is evicted and whatever the store loses, a row yields the
 * same bits; only what is missing travels, once. */
#include "unit.h"

#include "failing.h"

#include "base/rng.h"
#include "llm/evict/eviction.h"
#include "model.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    VOCAB = MODEL_VOCAB,
    CONTEXT = 260,
    LAYERS = MODEL_DEEP_LAYERS,
    SEQS = 3,
    STORE = 64 << 20,
};

static char why[LLM_WHY_CHARS];
static int texts = SEQS; /* that are computed without evictions first */

/* ---- a store that fails as told ---- */

static _Atomic int lose_one_in; /* gets; 0: none */
static _Atomic int gone_after;  /* gets that are answered; below 0: all */
static _Atomic bool garbled;
static _Atomic uint64_t get_count, put_count;
static _Atomic int refuses;                              /* puts, with that errno */
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER; /* no put passes while it is locked */

static int bad_put(struct llm_shadow_store *store, unsigned channel, const struct kv_block_key *key,
                   const void *bytes, uint32_t len)
{
    atomic_fetch_add(&put_count, 1);
    pthread_mutex_lock(&door);
    pthread_mutex_unlock(&door);
    int refusal = atomic_load(&refuses);
    if (refusal)
        return refusal;
    return llm_shadow_memory.put(store, channel, key, bytes, len);
}

struct garbling {
    llm_shadow_take *take;
    void *user;
};

static int take_garbled(void *user, const uint8_t *bytes, uint32_t len)
{
    const struct garbling *g = user;
    uint8_t *other = malloc(len);
    assert_non_null(other);
    memcpy(other, bytes, len);
    other[4] ^= 1; /* the block's count of values */
    int rc = g->take(g->user, other, len);
    free(other);
    return rc;
}

static int bad_get(struct llm_shadow_store *store, unsigned channel, const struct kv_block_key *key,
                   llm_shadow_take *take, void *user)
{
    uint64_t number = atomic_fetch_add(&get_count, 1);
    int one_in = atomic_load(&lose_one_in);
    struct garbling garbling = {.take = take, .user = user};
    if (atomic_load(&gone_after) >= 0 && atomic_fetch_sub(&gone_after, 1) == 0)
        return -ECONNRESET;
    if (one_in && number % (uint64_t)one_in == 0)
        return -ENOENT;
    if (atomic_load(&garbled))
        return llm_shadow_memory.get(store, channel, key, take_garbled, &garbling);
    return llm_shadow_memory.get(store, channel, key, take, user);
}

static int bad_open(const struct llm_shadow_config *config, struct llm_shadow_store **out,
                    char *text)
{
    return llm_shadow_memory.open(config, out, text);
}

static void bad_close(struct llm_shadow_store *store)
{
    llm_shadow_memory.close(store);
}

static int bad_has(struct llm_shadow_store *store, unsigned channel,
                   const struct kv_block_key *keys, uint32_t count, bool *there)
{
    return llm_shadow_memory.has(store, channel, keys, count, there);
}

static const struct llm_shadow_ops bad_store = {.name = "test",
                                                .open = bad_open,
                                                .close = bad_close,
                                                .put = bad_put,
                                                .get = bad_get,
                                                .has = bad_has};

/* ---- a model, its store, and sequences ---- */

struct bench {
    struct llm_file *file;
    struct llm_engine *engine;
    struct llm_shadow *shadow;
    struct llm_evictor *site;
    uint32_t text[SEQS][CONTEXT]; /* of each sequence */
    float *want[SEQS];            /* logits of each of its positions, never evicted */
    struct llm_eviction_figures figures;
};

static void expect_logits(struct bench *b, int which)
{
    struct llm_row rows[CONTEXT];
    struct llm_seq *seq;
    b->want[which] = malloc(sizeof(float) * CONTEXT * VOCAB);
    assert_non_null(b->want[which]);
    assert_int_equal(llm_seq_create(b->engine, &seq), 0);
    for (uint32_t i = 0; i < CONTEXT; i++)
        rows[i] = (struct llm_row){.seq = seq, .token = b->text[which][i], .logits = true};
    assert_int_equal(llm_engine_step(b->engine, rows, CONTEXT, b->want[which], why), 0);
    llm_seq_destroy(seq);
}

static void bench_open(struct bench *b, const char *backend, uint64_t store_bytes)
{
    struct llm_engine_options options = {.backend = backend, .threads = 1, .kv_bytes = 16 << 20};
    struct llm_shadow_config config = {.bytes = store_bytes, .tenant = 7};
    *b = (struct bench){.file = model_deep(CONTEXT, 5)};
    atomic_store(&lose_one_in, 0);
    atomic_store(&gone_after, -1);
    atomic_store(&garbled, false);
    atomic_store(&refuses, 0);
    assert_int_equal(llm_engine_create(b->file, &options, &b->engine, why), 0);
    assert_int_equal(llm_shadow_create(&bad_store, &config, &b->shadow, why), 0);
    assert_int_equal(llm_evictor_create(b->engine, b->shadow, "model", &b->site), 0);
    for (int s = 0; s < texts; s++) { /* the second begins as the first does */
        for (uint32_t i = 0; i < CONTEXT; i++)
            b->text[s][i] = (i * 7919 + (s == 1 && i < 150 ? 0 : (uint32_t)s)) % VOCAB;
        expect_logits(b, s);
    }
}

static void bench_close(struct bench *b)
{
    for (int s = 0; s < SEQS; s++)
        free(b->want[s]);
    llm_evictor_destroy(b->site);
    llm_shadow_destroy(b->shadow);
    llm_engine_destroy(b->engine);
    llm_file_close(b->file);
}

struct one {
    struct llm_seq *seq;
    struct llm_eviction *eviction;
    int which;
    uint32_t added; /* tokens that the eviction has */
};

static void one_open(struct bench *b, struct one *o, int which, struct llm_eviction_policy policy)
{
    *o = (struct one){.which = which};
    assert_int_equal(llm_seq_create(b->engine, &o->seq), 0);
    assert_int_equal(llm_eviction_create(b->site, o->seq, policy, &o->eviction), 0);
}

static void one_close(struct one *o)
{
    llm_eviction_destroy(o->eviction);
    llm_seq_destroy(o->seq);
}

/* Restores what is missing; 0, or why not. */
static int fetch_now(struct bench *b, struct llm_eviction *eviction)
{
    int rc = llm_eviction_fetch_begin(eviction, NULL);
    if (rc)
        return rc;
    while ((rc = llm_eviction_fetch_poll(eviction, &b->figures, why)) == -EAGAIN)
        sched_yield();
    llm_eviction_fetch_end(eviction, &b->figures);
    return rc;
}

/* The next `rows` of each sequence in one step, whatever is missing or behind; their logits are
 * those of sequences that were never evicted. */
static void advance(struct bench *b, struct one *all, int count, uint32_t rows)
{
    struct llm_row step[SEQS * CONTEXT];
    float *logits = malloc(sizeof(float) * SEQS * CONTEXT * VOCAB);
    assert_non_null(logits);
    for (int i = 0; i < count; i++) {
        uint32_t to = all[i].added + rows;
        assert_int_equal(
            llm_eviction_add_tokens(all[i].eviction, b->text[all[i].which] + all[i].added, rows),
            0);
        all[i].added = to;
    }
    uint32_t total = 0;
    for (int i = 0; i < count; i++) {
        int rc = fetch_now(b, all[i].eviction);
        if (rc)
            assert_int_equal(rc, -ENODATA);
        if (rc)
            (void)llm_eviction_truncate(all[i].eviction);
        for (uint32_t p = llm_seq_length(all[i].seq); p < all[i].added; p++)
            step[total++] = (struct llm_row){
                .seq = all[i].seq, .token = b->text[all[i].which][p], .logits = true};
    }
    assert_int_equal(llm_engine_step(b->engine, step, total, logits, why), 0);
    float *at = logits;
    for (uint32_t r = 0; r < total; r++) {
        int i = 0;
        while (all[i].seq != step[r].seq)
            i++;
        uint32_t rest = 1; /* rows of this sequence from here on */
        while (r + rest < total && step[r + rest].seq == step[r].seq)
            rest++;
        uint32_t first = all[i].added - rest;
        assert_memory_equal(at, b->want[all[i].which] + (size_t)first * VOCAB,
                            rest * VOCAB * sizeof *at);
        at += rest * VOCAB;
        r += rest - 1;
    }
    free(logits);
}

static struct llm_layers some_layers(uint32_t bits)
{
    struct llm_layers set = {.words = {bits}};
    return set;
}

static const struct llm_eviction_policy delta = {LLM_RECOVER_DELTA, LLM_PACK_NEVER};

/* A sequence of so many rows, with all of its layers. */
static void open_both(struct bench *b, struct one *o, struct llm_eviction_policy policy,
                      uint32_t rows)
{
    bench_open(b, "cpu", STORE);
    one_open(b, o, 0, policy);
    advance(b, o, 1, rows);
}

static void close_both(struct bench *b, struct one *o)
{
    one_close(o);
    bench_close(b);
}

/* Evicts once the store has the rows, or at once. */
static int evict(struct bench *b, struct llm_eviction *eviction, struct llm_layers layers,
                 enum llm_evict_sync sync)
{
    int rc;
    while ((rc = llm_eviction_evict(eviction, &layers, sync, &b->figures, why)) == -EAGAIN)
        sched_yield();
    return rc;
}

static void evict_now(struct bench *b, struct one *o, struct llm_layers layers)
{
    assert_int_equal(evict(b, o->eviction, layers, LLM_EVICT_SYNC), 0);
}

static uint32_t match(struct llm_eviction *eviction, uint32_t count)
{
    uint32_t rows;
    assert_int_equal(llm_eviction_match_begin(eviction, count), 0);
    while (llm_eviction_match_poll(eviction, &rows))
        sched_yield();
    return rows;
}

/* ---- what travels ---- */

static void what_comes_back_is_what_was_evicted(void **state)
{
    (void)state;
    struct bench b;
    struct one o;
    open_both(&b, &o, delta, 200);
    uint64_t row_bytes = llm_kv_row_bytes(b.engine);
    for (uint32_t k = 0; k <= LAYERS; k++) {
        struct llm_layers first = llm_layers_first(k);
        uint32_t length = llm_seq_length(o.seq);
        evict_now(&b, &o, first);
        struct llm_layers missing = llm_seq_missing(o.seq);
        assert_memory_equal(&missing, &first, sizeof first);
        b.figures = (struct llm_eviction_figures){0};
        advance(&b, &o, 1, 1);
        assert_int_equal(b.figures.restored_layers, k);
        assert_int_equal(b.figures.plain_bytes, k * length * row_bytes);
        assert_int_equal(b.figures.kept_bytes, k * (length % LLM_CHUNK_ROWS) * row_bytes);
        /* 16 bytes say what a chunk is. */
        assert_int_equal(b.figures.fetched_bytes,
                         b.figures.plain_bytes - b.figures.kept_bytes + k * (length / 64) * 16);
    }
    close_both(&b, &o);
}

static void a_cache_without_layers_comes_back_whole(void **state)
{
    (void)state;
    struct bench b;
    struct one o;
    open_both(&b, &o, (struct llm_eviction_policy){LLM_RECOVER_ALL, LLM_PACK_ALWAYS}, 130);
    evict_now(&b, &o, some_layers(4));
    assert_int_equal(b.figures.evicted_layers, LAYERS);
    advance(&b, &o, 1, 1);
    assert_int_equal(b.figures.plain_bytes, LAYERS * 130 * llm_kv_row_bytes(b.engine));
    assert_true(b.figures.fetched_bytes < b.figures.plain_bytes); /* random weights, yet smaller */
    close_both(&b, &o);
}

static void stored_rows_are_not_sent_again(void **state)
{
    (void)state;
    struct bench b;
    struct one o, twin;
    struct llm_layers two = some_layers(3);
    open_both(&b, &o, delta, 130);
    uint64_t chunk = 16 + LLM_CHUNK_ROWS * llm_kv_row_bytes(b.engine);
    evict_now(&b, &o, two);
    assert_int_equal(b.figures.stored_bytes, 2 * 2 * chunk);
    advance(&b, &o, 1, 10);
    evict_now(&b, &o, two);
    assert_int_equal(b.figures.stored_bytes, 2 * 2 * chunk);
    advance(&b, &o, 1, 60);
    evict_now(&b, &o, two);
    assert_int_equal(b.figures.stored_bytes, 2 * 3 * chunk);
    /* Nor by another sequence of the same tokens. */
    one_open(&b, &twin, 0, delta);
    advance(&b, &twin, 1, 130);
    evict_now(&b, &twin, two);
    assert_int_equal(b.figures.stored_bytes, 2 * 3 * chunk);
    advance(&b, &twin, 1, 1);
    one_close(&twin);
    close_both(&b, &o);
}

static void a_common_beginning_is_found_in_the_store(void **state)
{
    (void)state;
    struct bench b;
    struct one first, second;
    struct llm_layers all = llm_layers_first(LAYERS);
    open_both(&b, &first, delta, 200);
    assert_int_equal(llm_eviction_store(first.eviction, &all, &b.figures, why), 0);
    struct llm_layers none = llm_seq_missing(first.seq);
    assert_int_equal(llm_layers_count(&none), 0);
    one_open(&b, &second, 1, delta);
    assert_int_equal(llm_eviction_add_tokens(second.eviction, b.text[1], 200), 0);
    second.added = 200;
    assert_int_equal(match(second.eviction, 127), 64);
    assert_int_equal(match(second.eviction, 199), 128); /* they part at 150 */
    assert_int_equal(llm_eviction_adopt(second.eviction, 128), 0);
    advance(&b, &second, 1, 1);
    assert_int_equal(b.figures.restored_layers, LAYERS);
    one_close(&second);
    close_both(&b, &first);
}

/* A sequence of 200 rows, of which no layer is here. */
static void open_evicted(struct bench *b, struct one *o)
{
    open_both(b, o, delta, 200);
    evict_now(b, o, llm_layers_first(LAYERS));
}

/* ---- stores that fail ---- */

static void random_evictions(const char *backend, uint64_t seed, int count, uint32_t steps)
{
    static const enum llm_recovery recoveries[] = {LLM_RECOVER_DELTA, LLM_RECOVER_ALL,
                                                   LLM_RECOVER_COMPUTE};
    static const enum llm_pack packs[] = {LLM_PACK_AUTO, LLM_PACK_NEVER, LLM_PACK_ALWAYS};
    struct bench b;
    struct one all[SEQS];
    struct hw_rng rng;
    hw_rng_seed(&rng, seed);
    bench_open(&b, backend, seed % 4 == 0 ? 24 << 10 : STORE); /* one in four is too small */
    for (int i = 0; i < count; i++)
        one_open(&b, &all[i], i,
                 (struct llm_eviction_policy){recoveries[hw_rng_below(&rng, 3)],
                                              packs[hw_rng_below(&rng, 3)]});
    atomic_store(&lose_one_in, seed % 3 == 0 ? 7 : 0);
    advance(&b, all, count, 1 + (uint32_t)hw_rng_below(&rng, 180));
    for (uint32_t s = 0; s < steps; s++) {
        for (int i = 0; i < count; i++) {
            struct llm_layers layers = some_layers((uint32_t)hw_rng_below(&rng, 1 << LAYERS));
            enum llm_evict_sync sync = hw_rng_below(&rng, 2) ? LLM_EVICT_ASYNC : LLM_EVICT_SYNC;
            int rc = hw_rng_below(&rng, 2) ? evict(&b, all[i].eviction, layers, sync) : 0;
            assert_true(rc == 0 || rc == -ENOSPC);
        }
        advance(&b, all, count, 1 + (uint32_t)hw_rng_below(&rng, 8));
    }
    for (int i = 0; i < count; i++)
        one_close(&all[i]);
    bench_close(&b);
}

static void evictions_at_random_change_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= (ONLY_THREADS ? 2 : 6); seed++)
        random_evictions("cpu", seed, 1 + (int)(seed % SEQS), 6);
}

static void a_full_store_leaves_layers_where_they_are(void **state)
{
    (void)state;
    struct bench b;
    struct one o;
    struct llm_layers all = llm_layers_first(LAYERS);
    bench_open(&b, "cpu", 1000);
    one_open(&b, &o, 0, delta);
    advance(&b, &o, 1, 100);
    assert_int_equal(evict(&b, o.eviction, all, LLM_EVICT_SYNC), -ENOSPC);
    assert_non_null(strstr(why, "stays: the KV store"));
    struct llm_layers missing = llm_seq_missing(o.seq);
    assert_int_equal(llm_layers_count(&missing), 0);
    advance(&b, &o, 1, 1);
    close_both(&b, &o);
}

static void a_lost_chunk_is_computed_and_stored_again(void **state)
{
    (void)state;
    struct bench b;
    struct one o;
    open_evicted(&b, &o);
    atomic_store(&garbled, true);
    advance(&b, &o, 1, 1); /* computed, and compared with what it was */
    atomic_store(&garbled, false);
    assert_true(b.figures.lost_chunks > 0);
    atomic_store(&put_count, 0);
    evict_now(&b, &o, llm_layers_first(LAYERS));
    assert_true(atomic_load(&put_count) >= 3);
    close_both(&b, &o);
}

static void a_store_that_goes_in_the_middle_is_asked_no_more(void **state)
{
    (void)state;
    struct bench b;
    struct one o;
    open_evicted(&b, &o);
    atomic_store(&get_count, 0);
    atomic_store(&gone_after, 4);
    advance(&b, &o, 1, 1);
    assert_true(atomic_load(&get_count) < LAYERS * 3);
    close_both(&b, &o);
}

/* ---- asynchronous stores ---- */

/* A sequence of 200 rows, its layer 3 stored, so that the store is known to take chunks. */
static void open_trusting(struct bench *b, struct one *o)
{
    open_both(b, o, delta, 200);
    evict_now(b, o, some_layers(8));
    assert_false(llm_eviction_is_storing(o->eviction));
    b->figures = (struct llm_eviction_figures){0};
}

static void rows_come_back_while_the_store_has_not_got_them(void **state)
{
    (void)state;
    struct bench b;
    struct one o;
    struct llm_layers two = some_layers(3);
    open_trusting(&b, &o);
    pthread_mutex_lock(&door);
    assert_int_equal(llm_eviction_evict(o.eviction, &two, LLM_EVICT_ASYNC, &b.figures, why), 0);
    assert_int_equal(b.figures.evicted_layers, 2); /* out, though nothing is stored */
    assert_int_equal(b.figures.stored_bytes, 0);
    atomic_store(&get_count, 0);
    advance(&b, &o, 1, 1);
    assert_int_equal(atomic_load(&get_count), 3); /* of the layer that was stored before */
    assert_true(llm_eviction_is_storing(o.eviction));
    pthread_mutex_unlock(&door);
    evict_now(&b, &o, llm_layers_first(LAYERS));
    assert_false(llm_eviction_is_storing(o.eviction));
    advance(&b, &o, 1, 1);
    close_both(&b, &o);
}

/* Opens the door to a store that refuses, until it has refused something. */
static void refuse_what_waits(struct bench *b, int with)
{
    atomic_store(&refuses, with);
    pthread_mutex_unlock(&door);
    for (uint64_t until = hw_now_ns() + 240 * HW_SEC; llm_shadow_takes(b->shadow);) {
        assert_true(hw_now_ns() < until); /* the first refusal is known long before */
        sched_yield();
    }
}

/* Its chunk stays here, and a store that took none of it may take none of another. */
static void a_refused_chunk_holds_up_no_other_sequence(void **state)
{
    (void)state;
    struct bench b;
    struct one all[2];
    struct llm_layers two = some_layers(3);
    int rc;
    open_trusting(&b, all);
    one_open(&b, &all[1], 1, delta);
    advance(&b, &all[1], 1, 100);
    pthread_mutex_lock(&door);
    assert_int_equal(llm_eviction_evict(all[0].eviction, &two, LLM_EVICT_ASYNC, &b.figures, why),
                     0);
    refuse_what_waits(&b, -EAGAIN);
    for (uint64_t until = hw_now_ns() + 240 * HW_SEC; llm_eviction_is_storing(all[0].eviction);)
        assert_true(hw_now_ns() < until);
    for (uint64_t until = hw_now_ns() + 240 * HW_SEC;;) {
        rc = llm_eviction_evict(all[1].eviction, &two, LLM_EVICT_SYNC, &b.figures, why);
        if (rc != -EAGAIN)
            break;
        assert_true(hw_now_ns() < until); /* nothing is under way: -EAGAIN would last for ever */
    }
    assert_int_equal(rc, -EBUSY);
    atomic_store(&refuses, 0);
    advance(&b, all, 1, 1);
    advance(&b, &all[1], 1, 1);
    one_close(&all[1]);
    close_both(&b, all);
}

static void what_a_store_does_not_take_behind_stays_and_is_sent_again(void **state)
{
    (void)state;
    struct bench b;
    struct one o;
    struct llm_layers two = some_layers(3);
    open_trusting(&b, &o);
    pthread_mutex_lock(&door);
    assert_int_equal(llm_eviction_evict(o.eviction, &two, LLM_EVICT_ASYNC, &b.figures, why), 0);
    refuse_what_waits(&b, -ENOSPC);
    advance(&b, &o, 1, 1); /* compared with what it was */
    assert_int_equal(b.figures.lost_chunks, 0);
    assert_int_equal(evict(&b, o.eviction, two, LLM_EVICT_ASYNC), -ENOSPC);
    atomic_store(&refuses, 0);
    assert_int_equal(b.figures.stored_bytes, 0);
    evict_now(&b, &o, two);
    assert_true(b.figures.stored_bytes > 0);
    assert_false(llm_eviction_is_storing(o.eviction));
    advance(&b, &o, 1, 1);
    close_both(&b, &o);
}

static void another_sequence_finds_what_is_on_its_way(void **state)
{
    (void)state;
    struct bench b;
    struct one o, twin;
    struct llm_layers all = llm_layers_first(LAYERS);
    open_trusting(&b, &o);
    one_open(&b, &twin, 1, delta); /* the same tokens up to 150 */
    twin.added = 150;
    assert_int_equal(llm_eviction_add_tokens(twin.eviction, b.text[1], 150), 0);
    advance(&b, &o, 1, 1); /* every layer is there again */
    pthread_mutex_lock(&door);
    assert_int_equal(llm_eviction_store(o.eviction, &all, &b.figures, why), 0);
    assert_int_equal(match(twin.eviction, 149), 128);
    assert_int_equal(llm_eviction_adopt(twin.eviction, 128), 0);
    assert_int_equal(llm_eviction_fetch_begin(twin.eviction, NULL), 0);
    llm_eviction_fetch_end(twin.eviction, &b.figures);
    one_close(&o); /* what it sent is stored all the same */
    b.figures = (struct llm_eviction_figures){0};
    llm_evictor_reap(b.site, &b.figures);
    assert_int_equal(b.figures.stored_bytes, 0);
    pthread_mutex_unlock(&door);
    advance(&b, &twin, 1, 1);
    assert_int_equal(b.figures.lost_chunks, 0);
    while (llm_shadow_is_storing(b.shadow))
        sched_yield();
    b.figures = (struct llm_eviction_figures){0};
    llm_evictor_reap(b.site, &b.figures);
    assert_true(b.figures.stored_bytes > 0);
    one_close(&twin);
    bench_close(&b);
}

/* ---- what it costs ---- */

static void what_is_cheaper_is_chosen_by_what_it_cost(void **state)
{
    (void)state;
    struct bench b;
    struct one o;
    open_evicted(&b, &o);
    assert_false(llm_eviction_should_compute(o.eviction, why)); /* nothing is known */
    advance(&b, &o, 1, 1);
    evict_now(&b, &o, llm_layers_first(1));
    llm_evictor_timed(b.site, 1, HW_SEC);
    assert_false(llm_eviction_should_compute(o.eviction, why));
    for (int i = 0; i < 100; i++)
        llm_evictor_timed(b.site, 1000000, 1);
    assert_true(llm_eviction_should_compute(o.eviction, why));
    assert_int_equal(llm_eviction_truncate(o.eviction), 201);
    advance(&b, &o, 1, 1);
    close_both(&b, &o);
}

static void a_first_fetch_that_turns_out_slow_is_given_up(void **state)
{
    (void)state;
    struct bench b;
    struct one o;
    open_evicted(&b, &o);
    for (int i = 0; i < 100; i++)
        llm_evictor_timed(b.site, 1000000, 1);
    assert_false(
        llm_eviction_should_compute(o.eviction, why)); /* what the store costs is not known */
    assert_int_equal(llm_eviction_fetch_begin(o.eviction, NULL), 0);
    int rc;
    uint64_t until = hw_now_ns() + 240 * HW_SEC;
    while ((rc = llm_eviction_fetch_poll(o.eviction, &b.figures, why)) == -EAGAIN) {
        assert_true(hw_now_ns() < until); /* the store is memory: a layer comes long before */
        sched_yield();
    }
    assert_int_equal(rc, -ENODATA);
    assert_non_null(strstr(why, "to compute"));
    assert_int_equal(b.figures.restored_layers, 1);
    assert_int_equal(b.figures.lost_chunks, 0);
    llm_eviction_fetch_end(o.eviction, &b.figures);
    assert_true(llm_eviction_should_compute(o.eviction, why)); /* now it is */
    assert_true(llm_eviction_truncate(o.eviction) > 0);
    advance(&b, &o, 1, 1);
    close_both(&b, &o);
}

/* ---- trouble ---- */

static int short_life(struct bench *b, enum llm_evict_sync sync)
{
    struct llm_seq *seq = NULL;
    struct llm_eviction *eviction = NULL;
    struct llm_layers two = some_layers(3);
    struct llm_row rows[70];
    float logits[VOCAB];
    int rc = llm_seq_create(b->engine, &seq);
    if (rc == 0)
        rc = llm_eviction_create(b->site, seq, delta, &eviction);
    if (rc == 0)
        rc = llm_eviction_add_tokens(eviction, b->text[0], 70);
    for (uint32_t i = 0; i < 70; i++)
        rows[i] = (struct llm_row){.seq = seq, .token = b->text[0][i], .logits = i == 69};
    if (rc == 0)
        rc = llm_engine_step(b->engine, rows, 69, logits, why);
    if (rc == 0)
        rc = evict(b, eviction, two, sync);
    if (rc == 0)
        rc = fetch_now(b, eviction);
    if (rc == 0)
        rc = llm_engine_step(b->engine, rows + 69, 1, logits, why);
    if (rc == 0)
        assert_memory_equal(logits, b->want[0] + (size_t)69 * VOCAB, sizeof logits);
    llm_eviction_destroy(eviction);
    llm_seq_destroy(seq);
    return rc;
}

static void fail_each(enum llm_evict_sync sync)
{
    struct bench b;
    int rc = -ENOMEM;
    bench_open(&b, "cpu", STORE);
    for (long allowed = 0; rc; allowed++) {
        assert_true(allowed < 1000);
        allocations_left = allowed;
        counting = true;
        rc = short_life(&b, sync);
        counting = false;
        assert_true(rc == 0 || rc == -ENOMEM);
    }
    bench_close(&b);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fail_each(LLM_EVICT_SYNC);
    fail_each(LLM_EVICT_ASYNC);
}

/* test-llm-eviction [BACKEND]: on another backend, what depends on it. */
int main(int argc, char **argv)
{
    if (argc > 1) {
        texts = 2;
        random_evictions(argv[1], 1, texts, 3);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_back_is_what_was_evicted),
        cmocka_unit_test(a_cache_without_layers_comes_back_whole),
        cmocka_unit_test(stored_rows_are_not_sent_again),
        cmocka_unit_test(a_common_beginning_is_found_in_the_store),
        cmocka_unit_test(evictions_at_random_change_nothing),
        cmocka_unit_test(a_full_store_leaves_layers_where_they_are),
        cmocka_unit_test(a_lost_chunk_is_computed_and_stored_again),
        cmocka_unit_test(a_store_that_goes_in_the_middle_is_asked_no_more),
        cmocka_unit_test(rows_come_back_while_the_store_has_not_got_them),
        cmocka_unit_test(a_refused_chunk_holds_up_no_other_sequence),
        cmocka_unit_test(what_a_store_does_not_take_behind_stays_and_is_sent_again),
        cmocka_unit_test(another_sequence_finds_what_is_on_its_way),
        cmocka_unit_test(what_is_cheaper_is_chosen_by_what_it_cost),
        cmocka_unit_test(a_first_fetch_that_turns_out_slow_is_given_up),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
