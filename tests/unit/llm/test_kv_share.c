/* Two models under one limit of KV memory, turn by turn and without threads: the limit is never
 * passed, memory goes where requests are, and every text has the tokens that it has with memory of
 * its own.  On a GPU, weights of models that nobody asks for leave it and come back, with the same
 * tokens.
 *
 *     test-llm-kv-share [BACKEND]      cpu, or vulkan: 77 without a device */
#include "unit.h"

#include "base/clock.h"
#include "base/rng.h"
#include "device.h"
#include "image.h"
#include "llm/model/why.h"
#include "llm/vulkan/memory.h"
#include "llm/worker/impl.h"
#include "page/limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    VOCAB = 300,
    CONTEXT = 512,
    MODELS = 2,
    TEXTS = 24,       /* of a test at most */
    TURNS_MAX = 30000 /* of a test; far more than any needs */
};

static const char *const names[MODELS] = {"a", "b"};
static const char *backend = "cpu";
static struct image images[MODELS];
static struct llm_file *files[MODELS];
static char why[LLM_WHY_CHARS];
static uint64_t idle_weights_ns; /* of the next rig, and the next */
static uint32_t priorities[MODELS], devices[MODELS];

struct text {
    int model;
    uint32_t prompt[CONTEXT], prompt_count, most;
    float temperature;
    uint64_t seed;
    uint32_t tokens[CONTEXT], count; /* generated */
    struct llm_job *job;             /* NULL: not asked, or over */
    bool over;
    int status; /* that is expected */
};

struct rig {
    struct llm_worker w;
    struct llm_client client;
    struct page_limit *limits[MODELS];
    uint64_t most[MODELS]; /* that each has held */
};

/* limit_bytes 0: memory without a limit. */
static void rig_open(struct rig *r, uint64_t limit_bytes, uint64_t min_bytes)
{
    struct llm_worker_model models[MODELS];
    struct page_error error;
    *r = (struct rig){.client.farewell.client = &r->client};
    for (int i = 0; i < MODELS; i++) {
        models[i] = (struct llm_worker_model){
            .name = names[i], .file = files[i], .kv_bytes = 4 << 20, .device = devices[i]};
        if (limit_bytes == 0)
            continue;
        assert_int_equal(i ? page_limit_open_same(r->limits[0], &r->limits[i], &error)
                           : page_limit_open(NULL, &r->limits[i], &error),
                         0);
        assert_int_equal(page_limit_claim(r->limits[i], (uint32_t)i, &error), 0);
        page_limit_name(r->limits[i], names[i], min_bytes, priorities[i]);
        models[i].kv_limit = r->limits[i];
        page_limit_set(r->limits[i], limit_bytes);
    }
    r->w.options = (struct llm_worker_options){.models = models,
                                               .model_count = MODELS,
                                               .engine = {.backend = backend, .threads = 1},
                                               .sequences = LLM_SEQUENCES_MAX,
                                               .idle_weights_ns = idle_weights_ns,
                                               .tokens = 1000,
                                               .batch = LLM_WORKER_BATCH_MAX};
    r->w.counts = r->w.own_counts;
    llm_jobs_init(&r->w.arrived);
    llm_jobs_init(&r->w.running);
    llm_jobs_init(&r->w.done);
    llm_pushes_init(&r->w.pushes);
    assert_int_equal(llm_worker_load_served(&r->w, why), 0);
}

static void rig_close(struct rig *r)
{
    assert_null(r->w.running.first);
    llm_worker_unload(&r->w);
    for (int i = 0; i < MODELS && r->limits[i]; i++) {
        assert_int_equal(page_limit_charged(r->limits[i]), 0);
        page_limit_close(r->limits[i]);
    }
}

static uint64_t held(const struct rig *r)
{
    return page_limit_charged(r->limits[0]) + page_limit_charged(r->limits[1]);
}

static void ask(struct rig *r, struct text *t)
{
    struct llm_job *job = calloc(1, sizeof *job);
    uint32_t *tokens = malloc(t->prompt_count * sizeof *tokens);
    assert_true(job && tokens);
    memcpy(tokens, t->prompt, t->prompt_count * sizeof *tokens);
    job->client = &r->client;
    job->request = (struct llm_request){
        .method = LLM_METHOD_GENERATE,
        .generate = {.model = strdup(names[t->model]),
                     .tokens = tokens,
                     .token_count = t->prompt_count,
                     .most = t->most,
                     .sampling = {.temperature = t->temperature, .top_p = 1, .seed = t->seed}}};
    wire_enc_init(&job->answer, WIRE_MESSAGE_MAX);
    llm_jobs_append(&r->w.arrived, job);
    t->job = job;
}

static void hear(struct rig *r, struct text *t)
{
    struct llm_job *job = t->job;
    if (job->status != t->status)
        fail_msg("%d, not %d: %s", job->status, t->status, job->why);
    memcpy(why, job->why, sizeof why);
    t->count = job->text.count - t->prompt_count;
    memcpy(t->tokens, job->text.tokens + t->prompt_count, t->count * sizeof *t->tokens);
    llm_text_fini(job);
    llm_request_fini(&job->request);
    wire_enc_fini(&job->answer);
    free(job);
    t->job = NULL;
    t->over = true;
    (void)r;
}

static void drop_pushes(struct rig *r)
{
    while (r->w.pushes.first) {
        struct llm_push *p = r->w.pushes.first;
        r->w.pushes.first = p->next;
        p->client->push = NULL;
        wire_enc_fini(&p->message);
        free(p);
    }
    llm_pushes_init(&r->w.pushes);
}

static void turn(struct rig *r, struct text *texts, int count)
{
    llm_worker_admit(&r->w);
    llm_worker_step(&r->w, NULL);
    drop_pushes(r);
    while (r->w.done.first) {
        struct llm_job *job = llm_jobs_take(&r->w.done);
        int i = 0;
        while (i < count && texts[i].job != job)
            i++;
        assert_true(i < count);
        hear(r, &texts[i]);
    }
    for (int i = 0; i < MODELS && r->limits[i]; i++) {
        uint64_t bytes = page_limit_charged(r->limits[i]);
        r->most[i] = bytes > r->most[i] ? bytes : r->most[i];
    }
}

static void turn_until_over(struct rig *r, struct text *texts, int count, uint64_t limit)
{
    int left = count;
    for (int turns = 0; left > 0; turns++) {
        assert_true(turns < TURNS_MAX);
        turn(r, texts, count);
        assert_true(limit == 0 || held(r) <= limit);
        left = 0;
        for (int i = 0; i < count; i++)
            left += !texts[i].over;
    }
}

/* Texts with the tokens that they have with memory of their own. */
static void tell(struct text *texts, int count)
{
    struct rig alone;
    rig_open(&alone, 0, 0);
    for (int i = 0; i < count; i++) {
        ask(&alone, &texts[i]);
        turn_until_over(&alone, &texts[i], 1, 0);
        texts[i].over = false;
    }
    rig_close(&alone);
}

static void make_texts(struct text *texts, int count, struct hw_rng *rng, uint32_t prompt,
                       uint32_t most)
{
    for (int i = 0; i < count; i++) {
        texts[i] =
            (struct text){.model = i % MODELS,
                          .prompt_count = prompt / 2 + (uint32_t)hw_rng_below(rng, prompt / 2),
                          .most = most / 2 + (uint32_t)hw_rng_below(rng, most / 2),
                          .temperature = (float)(i % 3) * 0.5f,
                          .seed = hw_rng_u64(rng)};
        for (uint32_t k = 0; k < texts[i].prompt_count; k++) /* some begin alike */
            texts[i].prompt[k] = (uint32_t)(i % 4 && k < 64 ? k : hw_rng_below(rng, VOCAB));
    }
    tell(texts, count);
}

static void same(const struct text *told, const struct text *got, int count)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(told[i].count, got[i].count);
        assert_memory_equal(told[i].tokens, got[i].tokens, told[i].count * sizeof *told[i].tokens);
    }
}

/* What a sequence of so many positions takes of a model, about. */
static uint64_t bytes_of(int model, uint32_t positions)
{
    const struct llm_config *c = llm_file_config(files[model]);
    uint64_t pages = (positions + LLM_KV_POSITIONS - 1) / LLM_KV_POSITIONS;
    return pages * 4 * LLM_KV_POSITIONS * c->layers * c->kv_heads * c->head_dim;
}

static void memory_goes_where_requests_are(void **state)
{
    (void)state;
    static struct text told[TEXTS], texts[TEXTS];
    struct hw_rng rng;
    struct rig r;
    int count = strcmp(backend, "cpu") == 0 ? TEXTS : 8;
    uint64_t limit = 5 * bytes_of(0, 192);
    hw_rng_seed(&rng, 1);
    make_texts(told, count, &rng, 120, 60);
    rig_open(&r, limit, 0);
    for (int phase = 0; phase < 2 * MODELS; phase++) { /* a, b, a, b, with two kinds of texts */
        static struct text some[TEXTS];
        int n = 0;
        for (int i = 0; i < count; i++) {
            texts[i] = told[i];
            if (told[i].model == phase % MODELS)
                some[n++] = told[i];
        }
        for (int i = 0; i < n; i++)
            ask(&r, &some[i]);
        r.most[0] = r.most[1] = 0;
        turn_until_over(&r, some, n, limit);
        assert_true(r.most[phase % MODELS] > limit / 2); /* more than a fixed half */
        for (int i = 0, k = 0; i < count; i++) {
            if (told[i].model == phase % MODELS)
                texts[i] = some[k++];
        }
        same(told, texts, count);
    }
    assert_true(hw_counter_load(&r.w.counts[LLM_COUNT_KV_GIVEN]) > 0);
    assert_true(hw_counter_load(&r.w.counts[LLM_COUNT_ADOPTED_ROWS]) > 0);
    rig_close(&r);
}

/* Both at once, with a limit that goes up and down under them. */
static void a_limit_that_moves_changes_no_token(void **state)
{
    (void)state;
    static struct text told[TEXTS], texts[TEXTS];
    struct hw_rng rng;
    struct rig r;
    int count = strcmp(backend, "cpu") == 0 ? TEXTS : 6, asked = 0, left = count;
    uint64_t one = bytes_of(1, 192), limit = 4 * one;
    hw_rng_seed(&rng, 2);
    make_texts(told, count, &rng, 120, 60);
    memcpy(texts, told, sizeof texts);
    rig_open(&r, limit, one / 4);
    for (int turns = 0; left > 0; turns++) {
        assert_true(turns < TURNS_MAX);
        if (asked < count && hw_rng_below(&rng, 4) == 0)
            ask(&r, &texts[asked++]);
        if (hw_rng_below(&rng, 25) == 0) {
            limit = hw_rng_below(&rng, 4 * one); /* also so low that nobody can go on */
            page_limit_set(r.limits[0], limit ? limit : 1);
        }
        r.w.is_short = true; /* the limit is looked at now, not within 20 ms */
        turn(&r, texts, count);
        assert_true(held(&r) <= (limit ? limit : 1));
        left = 0;
        for (int i = 0; i < count; i++)
            left += !texts[i].over;
    }
    same(told, texts, count);
    assert_true(hw_counter_load(&r.w.counts[LLM_COUNT_PREEMPTED]) > 0);
    rig_close(&r);
}

/* Each needs more than half: they run one after the other. */
static void texts_that_do_not_fit_together_all_end(void **state)
{
    (void)state;
    static struct text told[4], texts[4];
    struct hw_rng rng;
    struct rig r;
    uint64_t limit = bytes_of(1, 448) * 5 / 4;
    hw_rng_seed(&rng, 3);
    make_texts(told, 4, &rng, 400, 30);
    memcpy(texts, told, sizeof texts);
    rig_open(&r, limit, 0);
    for (int i = 0; i < 4; i++)
        ask(&r, &texts[i]);
    turn(&r, texts, 4);
    uint64_t all_there = hw_now_ns(), one_over = 0, waited = 0, begun = 0;
    while (!one_over) {
        turn(&r, texts, 4);
        for (int i = 0; i < 4; i++)
            one_over = texts[i].over ? hw_now_ns() : one_over;
    }
    turn_until_over(&r, texts, 4, limit);
    same(told, texts, 4);
    for (int i = 0; i < MODELS; i++) {
        const struct hw_buckets *b = &r.w.served[i]->notes[LLM_NOTE_WAITED];
        waited += atomic_load(&b->sum);
        begun += hw_buckets_count(b);
    }
    assert_int_equal(begun, 4);
    assert_true(waited >= one_over - all_there); /* the last began after the first was over */
    rig_close(&r);
}

/* A text of a model, with a prompt of its own. */
static struct text text_of(int model, uint32_t prompt, uint32_t most, uint32_t number)
{
    struct text t = {.model = model, .prompt_count = prompt, .most = most};
    for (uint32_t k = 0; k < prompt; k++)
        t.prompt[k] = (number * 31 + k) % VOCAB;
    return t;
}

/* An idle model keeps its prompts only as long as no text of another one waits. */
static void a_burst_finds_the_memory_of_an_idle_model(void **state)
{
    (void)state;
    enum { BURST = 12 };
    struct text texts[BURST];
    struct rig r;
    uint64_t limit = BURST * bytes_of(1, 128); /* a page for each text, and one that is set aside */
    rig_open(&r, limit, 0);
    for (uint32_t i = 0; i < BURST; i++) {
        texts[i] = text_of(0, 70, 2, i);
        ask(&r, &texts[i]);
    }
    turn_until_over(&r, texts, BURST, limit);
    assert_true(page_limit_charged(r.limits[0]) > limit / 4);
    for (uint32_t i = 0; i < BURST; i++) {
        texts[i] = text_of(1, 30, 20, i);
        ask(&r, &texts[i]);
    }
    for (int turns = 0; turns < 3; turns++)
        turn(&r, texts, BURST);
    assert_int_equal(hw_counter_load(&r.w.counts[LLM_COUNT_TEXTS]), BURST);
    turn_until_over(&r, texts, BURST, limit);
    rig_close(&r);
}

/* When the last text of each model is over, in turns. */
static void last_turns(uint32_t priority, uint64_t min_bytes, int last[MODELS])
{
    enum { EACH = 8 };
    static struct text texts[MODELS * EACH];
    struct rig r;
    int left = MODELS * EACH;
    priorities[1] = priority;
    rig_open(&r, 4 * bytes_of(1, 192), min_bytes);
    r.w.options.mixed_rows = 64; /* not found by timing */
    for (uint32_t i = 0; i < MODELS * EACH; i++) {
        texts[i] = text_of(i < EACH ? 0 : 1, 70, 60, i);
        ask(&r, &texts[i]);
    }
    for (int turns = 1; left > 0; turns++) {
        assert_true(turns < TURNS_MAX);
        r.w.is_short = true; /* memory is looked at now, not within 20 ms */
        turn(&r, texts, MODELS * EACH);
        assert_true(page_limit_own(r.limits[0]) >= min_bytes);
        left = 0;
        for (int i = 0; i < MODELS * EACH; i++) {
            last[i / EACH] = texts[i].over ? last[i / EACH] : turns;
            left += !texts[i].over;
        }
    }
    rig_close(&r);
    priorities[1] = 0;
}

static void a_model_of_higher_priority_has_memory_first(void **state)
{
    (void)state;
    int equal[MODELS], first[MODELS], kept[MODELS];
    last_turns(0, 0, equal);
    last_turns(1, 0, first);
    last_turns(1, bytes_of(0, 256), kept); /* a text, and a page more */
    assert_true(first[1] < equal[1] * 4 / 5);
    assert_true(first[1] < first[0]);
    assert_true(kept[1] < kept[0]);
}

/* Beside a text that decodes, and with turns for another model. */
static void prompts_are_computed_in_the_order_they_came(void **state)
{
    (void)state;
    enum { PROMPTS = 4, ALL = PROMPTS + 2 };
    struct text texts[ALL];
    struct rig r;
    int turns = 0;
    rig_open(&r, 0, 0);
    r.w.options.mixed_rows = 16;
    texts[0] = text_of(0, 5, 60, 0);
    ask(&r, &texts[0]);
    turn(&r, texts, 1);
    for (uint32_t i = 1; i < ALL; i++) {
        texts[i] = i <= PROMPTS ? text_of(0, 100, 3, i) : text_of(1, 5, 3, i);
        ask(&r, &texts[i]);
    }
    for (; !texts[PROMPTS].over; turns++) {
        int begun = 0;
        assert_true(turns < TURNS_MAX);
        turn(&r, texts, ALL);
        for (int i = 1; i <= PROMPTS; i++)
            begun += texts[i].job && texts[i].job->done > 0 && !texts[i].job->text.decodes;
        assert_in_range(begun, 0, 1);
        assert_true(texts[ALL - 1].over || !texts[1].over); /* the other model's has its turn */
    }
    turn_until_over(&r, texts, ALL, 0);
    rig_close(&r);
}

/* A model of another process wants memory that a model here keeps for nobody. */
static void another_process_gets_what_an_idle_model_holds(void **state)
{
    (void)state;
    static struct text told[2], texts[2];
    struct hw_rng rng;
    struct rig r;
    struct page_limit *other;
    struct page_error error;
    uint64_t limit = 2 * bytes_of(0, 256), half = limit / 2;
    hw_rng_seed(&rng, 4);
    make_texts(told, 2, &rng, 200, 50);
    memcpy(texts, told, sizeof texts);
    rig_open(&r, limit, 0);
    assert_int_equal(page_limit_open_same(r.limits[0], &other, &error), 0);
    assert_int_equal(page_limit_claim(other, 0, &error), 0);
    page_limit_name(other, "other", 0, 0);
    for (int i = 0; i < 2; i++)
        ask(&r, &texts[i]);
    turn_until_over(&r, texts, 2, limit);
    assert_true(held(&r) > half); /* prefixes and reserves */
    assert_int_equal(page_limit_charge(other, half, &error), -ENOSPC);
    page_limit_note_state(other, &(struct page_limit_state){.wanted_bytes = half,
                                                            .oldest_bytes = half,
                                                            .oldest_ns = page_host_ns(),
                                                            .busy_ns = page_host_ns()});
    turn(&r, texts, 0);
    assert_int_equal(page_limit_charge(other, half, &error), 0);
    /* It is asked to trim what it still holds in reserve. */
    struct page_limit_user users[PAGE_LIMIT_USERS];
    page_limit_ask_trim(other);
    turn(&r, texts, 0);
    assert_int_equal(page_limit_users(other, users), MODELS + 1);
    for (int i = 0; i < MODELS + 1; i++) {
        if (users[i].line != page_limit_line(other))
            assert_int_equal(users[i].charged_bytes, users[i].mapped_bytes);
    }
    page_limit_close(other);
    rig_close(&r);
}

/* ---- weights that leave and come back ----
 *
 * The device has gpu_bytes for weights, and each that returns takes a slice of its own. */

static uint64_t gpu_bytes = UINT64_MAX, gpu_taken;
static bool is_slow;
static uint32_t returns; /* weights that came back */
/* KV pages find memory while weights take at most so much, and KV of this rig, if there is one. */
static uint64_t weights_beside_kv = UINT64_MAX, kv_room = UINT64_MAX;
static const struct rig *kv_rig;
/* And weights find some while KV of the rig takes at most so much. */
static uint64_t kv_beside_weights = UINT64_MAX;

int __real_llm_vk_piece_take(struct llm_vk_memory *m, uint64_t bytes, const char *what,
                             struct llm_vk_piece *out, char *cause);
int __wrap_llm_vk_piece_take(struct llm_vk_memory *m, uint64_t bytes, const char *what,
                             struct llm_vk_piece *out, char *cause);
int __wrap_llm_vk_piece_take(struct llm_vk_memory *m, uint64_t bytes, const char *what,
                             struct llm_vk_piece *out, char *cause)
{
    if (bytes > gpu_bytes || gpu_taken > gpu_bytes - bytes ||
        (kv_rig && held(kv_rig) > kv_beside_weights))
        return llm_why(cause, -ENOMEM, "the GPU is full");
    gpu_taken += bytes;
    return __real_llm_vk_piece_take(m, bytes, what, out, cause);
}

void __real_llm_vk_piece_give(struct llm_vk_memory *m, struct llm_vk_piece *piece);
void __wrap_llm_vk_piece_give(struct llm_vk_memory *m, struct llm_vk_piece *piece);
void __wrap_llm_vk_piece_give(struct llm_vk_memory *m, struct llm_vk_piece *piece)
{
    gpu_taken -= piece->slab ? piece->bytes : 0;
    __real_llm_vk_piece_give(m, piece);
}

int __real_llm_vk_block_create(struct llm_vk_device *d, uint64_t bytes, enum llm_vk_kind kind,
                               const char *what, struct llm_vk_block *out, char *cause);
int __wrap_llm_vk_block_create(struct llm_vk_device *d, uint64_t bytes, enum llm_vk_kind kind,
                               const char *what, struct llm_vk_block *out, char *cause);
int __wrap_llm_vk_block_create(struct llm_vk_device *d, uint64_t bytes, enum llm_vk_kind kind,
                               const char *what, struct llm_vk_block *out, char *cause)
{
    if (strcmp(what, "the KV cache") == 0 &&
        (gpu_taken > weights_beside_kv || (kv_rig && held(kv_rig) > kv_room)))
        return llm_why(cause, -ENOMEM, "the GPU is full");
    return __real_llm_vk_block_create(d, bytes, kind, what, out, cause);
}

int __real_llm_engine_weights_return(struct llm_engine *engine, char *cause);
int __wrap_llm_engine_weights_return(struct llm_engine *engine, char *cause);
int __wrap_llm_engine_weights_return(struct llm_engine *engine, char *cause)
{
    int rc = __real_llm_engine_weights_return(engine, cause);
    returns += rc == -EAGAIN;
    for (uint64_t began = hw_now_ns(); is_slow && hw_now_ns() - began < 25 * HW_MS;)
        ; /* longer than a slice */
    return rc;
}

static uint64_t aside(const struct rig *r)
{
    return hw_counter_load(&r->w.counts[LLM_COUNT_WEIGHTS_ASIDE]);
}

static uint64_t came_back(const struct rig *r, int model)
{
    return hw_buckets_count(&r->w.served[model]->notes[LLM_NOTE_RETURNED]);
}

/* With two texts, one of each model, told and to be asked. */
static void idle_rig_open(struct rig *r, struct text told[2], struct text texts[2])
{
    struct hw_rng rng;
    hw_rng_seed(&rng, 5);
    make_texts(told, 2, &rng, 80, 10);
    memcpy(texts, told, 2 * sizeof *texts);
    idle_weights_ns = 1; /* as soon as no request is there */
    rig_open(r, 0, 0);
}

static void idle_rig_close(struct rig *r)
{
    idle_weights_ns = 0;
    gpu_bytes = UINT64_MAX;
    is_slow = false;
    rig_close(r);
    assert_int_equal(gpu_taken, 0);
}

static void idle_weights_leave_the_gpu_and_come_back(void **state)
{
    (void)state;
    static struct text told[2], texts[2], again[4];
    struct rig r;
    idle_rig_open(&r, told, texts);
    uint64_t all = gpu_taken;
    assert_true(all > 0);
    turn(&r, texts, 0);
    assert_int_equal(gpu_taken, 0);
    assert_true(aside(&r) >= all); /* with what blocks have beside their pieces */
    ask(&r, &texts[1]);
    turn_until_over(&r, &texts[1], 1, 0);
    assert_true(r.w.served[0]->is_aside); /* nobody asked for it */
    assert_in_range(came_back(&r, 1), 1, 1);
    turn(&r, texts, 0);
    assert_int_equal(gpu_taken, 0);
    for (int i = 0; i < 4; i++) { /* two of each at once: they come back once */
        again[i] = told[i / 2];
        ask(&r, &again[i]);
    }
    turn_until_over(&r, again, 4, 0);
    assert_int_equal(came_back(&r, 0), 1);
    assert_int_equal(came_back(&r, 1), 2);
    assert_int_equal(texts[1].count, told[1].count);
    for (int i = 0; i < 4; i++)
        same(&told[i / 2], &again[i], 1);
    same(&told[1], &texts[1], 1);
    idle_rig_close(&r);
}

/* Weights come in slices, and the other model's steps are between them. */
static void a_model_computes_while_another_comes_back(void **state)
{
    (void)state;
    static struct text told[2], texts[2];
    struct rig r;
    idle_rig_open(&r, told, texts);
    r.w.options.idle_weights_ns = 1000 * HW_SEC;
    turn(&r, texts, 0);
    r.w.served[1]->asked_ns -= r.w.options.idle_weights_ns; /* the clock counts from the boot */
    turn(&r, texts, 0);
    assert_true(r.w.served[1]->is_aside && !r.w.served[0]->is_aside);
    is_slow = true;
    ask(&r, &texts[1]);
    turn(&r, texts, 2);
    assert_true(r.w.served[1]->is_aside && r.w.returns);
    uint64_t steps = hw_counter_load(&r.w.counts[LLM_COUNT_STEPS]);
    uint32_t before = returns;
    ask(&r, &texts[0]);
    for (int i = 0; i < 3; i++)
        turn(&r, texts, 2);
    assert_int_equal(returns, before + 3);
    assert_int_equal(hw_counter_load(&r.w.counts[LLM_COUNT_STEPS]), steps + 3);
    is_slow = false;
    turn_until_over(&r, texts, 2, 0);
    same(told, texts, 2);
    idle_rig_close(&r);
}

/* The client goes, cancels, or the worker drains, while weights are on their way. */
static void nobody_waits_for_weights_any_more(void **state)
{
    (void)state;
    static struct text told[2], texts[2];
    struct rig r;
    idle_rig_open(&r, told, texts);
    for (int how = 0; how < 3; how++) {
        turn(&r, texts, 0);
        is_slow = true;
        ask(&r, &texts[0]);
        turn(&r, texts, 1);
        turn(&r, texts, 1);
        assert_true(gpu_taken > 0 && r.w.served[0]->is_aside);
        texts[0].status = how == 0 ? -ECANCELED : 0;
        atomic_store(&r.client.gone, how == 0);
        atomic_store(&texts[0].job->cancelled, how == 1);
        atomic_store(&r.w.draining, how == 2);
        turn(&r, texts, 1);
        assert_true(texts[0].over);
        assert_int_equal(gpu_taken, 0); /* what had come is given back */
        atomic_store(&r.client.gone, false);
        atomic_store(&r.w.draining, false);
        is_slow = false;
        texts[0] = told[0];
    }
    assert_int_equal(came_back(&r, 0), 0);
    ask(&r, &texts[0]);
    turn_until_over(&r, texts, 1, 0);
    same(told, texts, 1);
    idle_rig_close(&r);
}

static void a_gpu_without_room_fails_the_request_and_not_the_worker(void **state)
{
    (void)state;
    static struct text told[2], texts[2];
    struct rig r;
    idle_rig_open(&r, told, texts);
    turn(&r, texts, 0);
    gpu_bytes = 1000;
    texts[0].status = -ENOMEM;
    ask(&r, &texts[0]);
    turn_until_over(&r, texts, 1, 0);
    assert_non_null(
        strstr(why, "the weights of a were put aside; the GPU has no memory for them now: "));
    assert_non_null(strstr(why, "--kv-memory"));
    assert_int_equal(gpu_taken, 0);
    gpu_bytes = UINT64_MAX;
    texts[0] = told[0];
    ask(&r, &texts[0]);
    turn_until_over(&r, texts, 1, 0);
    same(told, texts, 1);
    idle_rig_close(&r);
}

/* One model fits: it is loaded, the next in its place, and texts of both take turns. */
static void models_that_do_not_fit_together_take_turns(void **state)
{
    (void)state;
    enum { ROUNDS = 3, ALL = 2 * ROUNDS };
    static struct text told[2], texts[ALL];
    struct rig r;
    int left = ALL;
    idle_rig_open(&r, told, texts);
    uint64_t both = gpu_taken;
    rig_close(&r);
    gpu_bytes = both * 2 / 3;
    idle_weights_ns = 1000 * HW_SEC; /* none leaves because its time has come */
    rig_open(&r, 0, 0);
    assert_true(r.w.served[0]->is_aside);
    for (int i = 0; i < ALL; i++) {
        texts[i] = told[i % 2];
        ask(&r, &texts[i]);
    }
    while (left > 0) { /* a model that just ran is not put aside at once */
        turn(&r, texts, ALL);
        assert_true(gpu_taken <= gpu_bytes);
        left = 0;
        for (int i = 0; i < ALL; i++)
            left += !texts[i].over;
    }
    for (int i = 0; i < ALL; i++)
        same(&told[i % 2], &texts[i], 1);
    idle_rig_close(&r);
}

static void kv_pages_take_the_place_of_idle_weights(void **state)
{
    (void)state;
    static struct text told[2], texts[2];
    struct rig r;
    idle_rig_open(&r, told, texts);
    r.w.options.idle_weights_ns = 1000 * HW_SEC;
    weights_beside_kv = gpu_taken - 1;
    llm_engine_kv_trim(r.w.served[1]->engine);
    ask(&r, &texts[1]);
    turn_until_over(&r, &texts[1], 1, 0);
    assert_true(r.w.served[0]->is_aside);
    same(&told[1], &texts[1], 1);
    weights_beside_kv = UINT64_MAX;
    idle_rig_close(&r);
}

static void weights_of_another_gpu_stay(void **state)
{
    (void)state;
    static struct text told[2], texts[2];
    struct rig r;
    devices[1] = 1;
    idle_rig_open(&r, told, texts);
    r.w.options.idle_weights_ns = 1000 * HW_SEC;
    weights_beside_kv = gpu_taken - 1;
    llm_engine_kv_trim(r.w.served[1]->engine);
    texts[1].status = -ENOMEM;
    ask(&r, &texts[1]);
    turn_until_over(&r, &texts[1], 1, 0);
    assert_false(r.w.served[0]->is_aside);
    weights_beside_kv = UINT64_MAX;
    devices[1] = 0;
    idle_rig_close(&r);
}

/* Prompts that are kept for requests to come give way to weights that a request needs now. */
static void weights_take_the_place_of_idle_kv(void **state)
{
    (void)state;
    static struct text told[2], texts[2];
    struct rig r;
    idle_rig_open(&r, told, texts);
    rig_close(&r);
    rig_open(&r, 4 << 20, 0);
    kv_rig = &r;
    ask(&r, &texts[1]);
    turn_until_over(&r, &texts[1], 1, 0);
    turn(&r, texts, 0);
    assert_int_equal(gpu_taken, 0);
    assert_true(held(&r) > 0);
    kv_beside_weights = 0;
    ask(&r, &texts[0]);
    while (r.w.arrived.first || r.w.served[0]->is_aside)
        turn(&r, texts, 1);
    kv_beside_weights = UINT64_MAX;
    turn_until_over(&r, texts, 1, 0);
    same(told, texts, 2);
    kv_rig = NULL;
    idle_rig_close(&r);
}

/* The limit is far; texts wait for each other's memory all the same, and one alone is told. */
static void a_device_that_has_less_than_the_limit(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    static struct text told[COUNT], texts[COUNT];
    struct hw_rng rng;
    struct rig r;
    hw_rng_seed(&rng, 11);
    make_texts(told, COUNT, &rng, 120, 60);
    memcpy(texts, told, sizeof texts);
    rig_open(&r, 8 << 20, 0);
    kv_rig = &r;
    kv_room = 3 * bytes_of(1, 192);
    for (int i = 0; i < COUNT; i++)
        ask(&r, &texts[i]);
    turn_until_over(&r, texts, COUNT, kv_room);
    same(told, texts, COUNT);
    kv_room = 0;
    while (llm_kv_share_give_kept(&r.w, 0))
        ;
    assert_int_equal(held(&r), 0);
    texts[0] = told[0];
    texts[0].status = -ENOMEM;
    ask(&r, &texts[0]);
    turn_until_over(&r, texts, 1, 0);
    assert_non_null(strstr(why, "the GPU is full"));
    kv_room = UINT64_MAX;
    kv_rig = NULL;
    rig_close(&r);
}

/* Text after text of one model: one of the other has its turn all the same. */
static void a_busy_model_lets_another_come_back(void **state)
{
    (void)state;
    static struct text told[2], texts[2], waiting;
    struct rig r;
    idle_rig_open(&r, told, texts);
    uint64_t both = gpu_taken;
    rig_close(&r);
    gpu_bytes = both * 2 / 3;
    idle_weights_ns = 1000 * HW_SEC;
    rig_open(&r, 0, 0);
    ask(&r, &texts[1]);
    turn(&r, texts, 2);
    waiting = told[0];
    ask(&r, &waiting);
    struct text *both_texts = calloc(3, sizeof *both_texts);
    assert_non_null(both_texts);
    both_texts[0] = texts[1];
    both_texts[1] = waiting;
    while (!both_texts[1].over) {
        turn(&r, both_texts, 3);
        if (both_texts[0].over) { /* without a pause */
            both_texts[0] = told[1];
            ask(&r, &both_texts[0]);
        }
    }
    same(&told[0], &both_texts[1], 1);
    while (!both_texts[0].over)
        turn(&r, both_texts, 1);
    same(&told[1], &both_texts[0], 1);
    free(both_texts);
    idle_rig_close(&r);
}

/* Removed, it is still mapped; overwritten, its weights are others. */
static void a_file_that_was_changed_does_not_come_back(void **state)
{
    (void)state;
    static struct text told[2], texts[2];
    struct llm_file *parsed = files[0];
    char path[] = "/tmp/hawser-weights-XXXXXX";
    struct rig r;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, images[0].bytes, images[0].size) == (ssize_t)images[0].size);
    assert_int_equal(llm_file_open(path, &files[0], why), 0);
    idle_rig_open(&r, told, texts);
    turn(&r, texts, 0);
    assert_int_equal(futimens(fd, (struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}), 0);
    texts[0].status = -ESTALE;
    for (int i = 0; i < 2; i++)
        ask(&r, &texts[i]);
    turn_until_over(&r, texts, 1, 0);
    assert_non_null(strstr(why, "the weights of a were put aside; start the server again: "));
    assert_non_null(strstr(why, " was overwritten after it was loaded"));
    turn_until_over(&r, texts, 2, 0);
    same(&told[1], &texts[1], 1);
    assert_int_equal(unlink(path), 0);
    texts[0] = told[0];
    ask(&r, &texts[0]);
    turn_until_over(&r, texts, 1, 0);
    same(told, texts, 1);
    idle_rig_close(&r);
    llm_file_close(files[0]);
    files[0] = parsed;
    close(fd);
}

static int make_models(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        struct llm_synth synth = {.config = {.arch = LLM_LLAMA,
                                             .layers = 2 + (uint32_t)i,
                                             .width = 64,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .ffn = 128,
                                             .vocab = VOCAB,
                                             .context = CONTEXT},
                                  .dtype = LLM_Q8_0,
                                  .seed = 7 + (uint64_t)i};
        llm_synth_complete(&synth.config);
        images[i] = image_synth(&synth);
        if (llm_file_parse(images[i].bytes, images[i].size, &files[i], why))
            return -1;
    }
    return 0;
}

static int drop_models(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        llm_file_close(files[i]);
        image_free(&images[i]);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        backend = argv[1];
    int status = try_device(backend);
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_goes_where_requests_are),
        cmocka_unit_test(a_limit_that_moves_changes_no_token),
        cmocka_unit_test(texts_that_do_not_fit_together_all_end),
        cmocka_unit_test(a_burst_finds_the_memory_of_an_idle_model),
        cmocka_unit_test(a_model_of_higher_priority_has_memory_first),
        cmocka_unit_test(prompts_are_computed_in_the_order_they_came),
        cmocka_unit_test(another_process_gets_what_an_idle_model_holds),
    };
    /* Who has memory is decided in the same way there; these two map and unmap most. */
    const struct CMUnitTest on_gpu[] = {
        cmocka_unit_test(memory_goes_where_requests_are),
        cmocka_unit_test(a_limit_that_moves_changes_no_token),
        cmocka_unit_test(idle_weights_leave_the_gpu_and_come_back),
        cmocka_unit_test(a_model_computes_while_another_comes_back),
        cmocka_unit_test(nobody_waits_for_weights_any_more),
        cmocka_unit_test(a_gpu_without_room_fails_the_request_and_not_the_worker),
        cmocka_unit_test(models_that_do_not_fit_together_take_turns),
        cmocka_unit_test(a_busy_model_lets_another_come_back),
        cmocka_unit_test(kv_pages_take_the_place_of_idle_weights),
        cmocka_unit_test(weights_of_another_gpu_stay),
        cmocka_unit_test(weights_take_the_place_of_idle_kv),
        cmocka_unit_test(a_device_that_has_less_than_the_limit),
        cmocka_unit_test(a_file_that_was_changed_does_not_come_back),
    };
    return strcmp(backend, "vulkan") == 0 ? cmocka_run_group_tests(on_gpu, make_models, drop_models)
                                          : cmocka_run_group_tests(tests, make_models, drop_models);
}
