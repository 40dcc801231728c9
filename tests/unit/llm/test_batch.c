/* Steps of the worker, turn by turn and without its threads: requests of many clients share steps,
 * join and leave at any, come in turn when there are too many, and each yields the bits that it
 * yields alone, whatever becomes of the others.
 *
 *     test-llm-batch [BACKEND]      cpu, or vulkan: 77 without a device */
#include "unit.h"

#include "failing.h"

#include "base/rng.h"
#include "device.h"
#include "image.h"
#include "llm/worker/impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    VOCAB = 300,
    CONTEXT = 200,
    PROMPT_MAX = 150,
    STEPS_MAX = 12,
    ACTORS = 10,
    TURNS_MAX = 5000, /* of a test; far more than any needs */
};

static const char *backend = "cpu";
static struct image model;
static struct llm_file *file;
static char why[LLM_WHY_CHARS];

/* ---- what a client gets when it is alone ---- */

struct story {
    uint32_t prompt[PROMPT_MAX], prompt_count;
    struct llm_wish wish; /* kind 0: full logits, by handle */
    uint32_t steps;       /* after the prompt's token */
    uint32_t tokens[STEPS_MAX + 1];
    float logits[STEPS_MAX + 1][VOCAB];
};

static void tell(struct llm_engine *engine, struct story *s)
{
    struct llm_row rows[PROMPT_MAX];
    struct llm_seq *seq;
    struct llm_sampler *sampler;
    assert_int_equal(llm_seq_create(engine, &seq), 0);
    assert_int_equal(llm_sampler_create(&s->wish.sampling, VOCAB, &sampler), 0);
    for (uint32_t i = 0; i < s->prompt_count; i++)
        rows[i] =
            (struct llm_row){.seq = seq, .token = s->prompt[i], .logits = i + 1 == s->prompt_count};
    assert_int_equal(llm_engine_step(engine, rows, s->prompt_count, s->logits[0], why), 0);
    for (uint32_t i = 0;; i++) {
        s->tokens[i] = llm_sampler_next(sampler, s->logits[i]);
        if (i == s->steps)
            break;
        struct llm_row row = {.seq = seq, .token = s->tokens[i], .logits = true};
        assert_int_equal(llm_engine_step(engine, &row, 1, s->logits[i + 1], why), 0);
    }
    llm_sampler_destroy(sampler);
    llm_seq_destroy(seq);
}

static struct llm_engine *lone_engine(void)
{
    struct llm_engine_options options = {.backend = backend, .threads = 1};
    struct llm_engine *engine;
    assert_int_equal(llm_engine_create(file, &options, &engine, why), 0);
    return engine;
}

static struct story story_of(struct hw_rng *rng, unsigned kind, uint32_t prompt_count,
                             uint32_t steps)
{
    struct story s = {.prompt_count = prompt_count,
                      .steps = steps,
                      .wish = {.kind = (enum llm_wish_kind)kind,
                               .top_k = 7,
                               .sampling = {.temperature = (float)hw_rng_below(rng, 3) * 0.5f,
                                            .top_k = 7,
                                            .top_p = 1,
                                            .seed = hw_rng_u64(rng)}}};
    for (uint32_t i = 0; i < prompt_count; i++)
        s.prompt[i] = (uint32_t)hw_rng_below(rng, VOCAB);
    return s;
}

/* ---- a worker that is turned by hand, and clients ---- */

struct actor {
    struct llm_client client;
    const struct story *story;
    struct llm_job *job; /* asked, not answered */
    bool answered;
    uint32_t got; /* tokens, the prompt's included */
    uint8_t handle[LLM_HANDLE_BYTES];
    uint64_t id;
};

struct rig {
    struct llm_worker w;
    struct actor actors[ACTORS];
};

static void rig_open(struct rig *r, const struct llm_worker_options *options)
{
    *r = (struct rig){.w = {.options = *options}};
    struct llm_worker_options *o = &r->w.options;
    o->file = file;
    o->engine.backend = backend;
    o->engine.threads = 1;
    o->engine.kv_bytes = o->engine.kv_bytes ? o->engine.kv_bytes : 4 << 20;
    o->upload_bytes = 1 << 30;
    o->sequences = LLM_SEQUENCES_MAX;
    o->tokens = 1000;
    o->batch = o->batch ? o->batch : LLM_WORKER_BATCH_MAX;
    o->grace_ns = UINT64_C(3600) * 1000000000;
    r->w.counts = r->w.own_counts;
    llm_jobs_init(&r->w.queue);
    llm_jobs_init(&r->w.arrived);
    llm_jobs_init(&r->w.held);
    llm_jobs_init(&r->w.running);
    llm_jobs_init(&r->w.done);
    pthread_mutex_init(&r->w.lock, NULL);
    pthread_cond_init(&r->w.wake, NULL);
    llm_loader_init(&r->w);
    assert_int_equal(llm_worker_load_served(&r->w, why), 0);
    for (int i = 0; i < ACTORS; i++)
        r->actors[i].client.farewell.client = &r->actors[i].client;
}

static void job_free(struct rig *r, struct llm_job *job)
{
    llm_request_fini(&job->request);
    llm_blob_free(&r->w, &job->weights);
    wire_enc_fini(&job->answer);
    free(job);
}

static void rig_close(struct rig *r)
{
    assert_null(r->w.running.first);
    for (int i = 0; i < ACTORS; i++) {
        llm_client_choose(&r->w, &r->actors[i].client, NULL);
        assert_null(r->actors[i].job);
    }
    pthread_mutex_lock(&r->w.lock);
    r->w.stopping = true;
    pthread_mutex_unlock(&r->w.lock);
    llm_loader_fini(&r->w);
    llm_pool_destroy(r->w.samplers);
    llm_worker_unload(&r->w);
    assert_int_equal(r->w.held_bytes, 0);
    pthread_cond_destroy(&r->w.wake);
    pthread_mutex_destroy(&r->w.lock);
}

static struct llm_job *ask(struct rig *r, struct actor *a, const struct llm_request *request)
{
    struct llm_job *job = calloc(1, sizeof *job);
    assert_non_null(job);
    job->client = &a->client;
    job->request = *request;
    if (request->token_count) {
        size_t bytes = request->token_count * sizeof *request->tokens;
        job->request.tokens = malloc(bytes);
        memcpy(job->request.tokens, request->tokens, bytes);
    }
    wire_enc_init(&job->answer, WIRE_MESSAGE_MAX);
    llm_jobs_append(&r->w.arrived, job);
    a->job = job;
    a->answered = false;
    return job;
}

static struct actor *actor_of(struct rig *r, const struct llm_job *job)
{
    for (int i = 0; i < ACTORS; i++) {
        if (r->actors[i].job == job)
            return &r->actors[i];
    }
    return NULL;
}

/* What the worker's thread does between two waits. */
static void turn(struct rig *r)
{
    llm_worker_admit(&r->w);
    llm_worker_step(&r->w, NULL);
    while (r->w.done.first) {
        struct actor *a = actor_of(r, llm_jobs_take(&r->w.done));
        if (a)
            a->answered = true;
    }
}

/* The same, after a wait for what comes through the queue. */
static void turn_with_queue(struct rig *r)
{
    pthread_mutex_lock(&r->w.lock);
    while (!r->w.queue.first)
        pthread_cond_wait(&r->w.wake, &r->w.lock);
    llm_jobs_move(&r->w.queue, &r->w.arrived);
    pthread_mutex_unlock(&r->w.lock);
    turn(r);
}

static uint64_t count(const struct rig *r, enum llm_worker_count which)
{
    return hw_counter_load(&r->w.counts[which]);
}

/* Steps of a bucket of 1, 2, 3 to 4, 5 to 8 sequences. */
static uint64_t batches(const struct rig *r, size_t bucket)
{
    return hw_counter_load(&r->w.served[0]->notes[LLM_NOTE_SEQUENCES].counts[bucket]);
}

/* ---- a client that goes through its story ---- */

static void begin(struct rig *r, struct actor *a, const struct story *s)
{
    a->story = s;
    a->got = 0;
    struct llm_request request = {.method = s->wish.kind ? LLM_METHOD_PREFILL_SEMANTIC
                                                         : LLM_METHOD_PREFILL_HANDLE,
                                  .wish = s->wish,
                                  .tokens = (uint32_t *)(uintptr_t)s->prompt, /* copied */
                                  .token_count = s->prompt_count};
    ask(r, a, &request);
}

/* The next `tokens` of a wish for tokens, else the next one. */
static void go_on(struct rig *r, struct actor *a, uint32_t tokens)
{
    bool by_handle = a->story->wish.kind == 0;
    struct llm_request request = {
        .method = by_handle ? LLM_METHOD_DECODE_HANDLE : LLM_METHOD_DECODE_SEMANTIC,
        .id = a->id,
        .value = a->story->wish.kind == LLM_WISH_TOKENS ? tokens : a->story->tokens[a->got - 1]};
    memcpy(request.handle, a->handle, sizeof request.handle);
    ask(r, a, &request);
}

static void same_tokens(struct actor *a, struct wire_dec *d)
{
    uint32_t tokens[STEPS_MAX + 1];
    int64_t got = llm_get_tokens(d, tokens, STEPS_MAX + 1);
    assert_true(got > 0 && a->got + got <= a->story->steps + 1);
    assert_memory_equal(tokens, a->story->tokens + a->got, (size_t)got * sizeof *tokens);
    a->got += (uint32_t)got;
}

static void same_logits(struct actor *a, struct wire_dec *d)
{
    const struct story *s = a->story;
    const float *want = s->logits[a->got++];
    float logits[VOCAB];
    if (s->wish.kind) {
        struct llm_packer packer;
        assert_int_equal(llm_packer_init(&packer), 0);
        assert_int_equal(llm_result_get(&packer, &s->wish, d, logits, VOCAB), 0);
        llm_packer_fini(&packer);
    } else {
        for (uint32_t i = 0; i < VOCAB; i++)
            logits[i] = wire_get_f32(d);
        assert_int_equal(wire_dec_end(d), 0);
    }
    uint32_t told = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        if (isinf(logits[i]))
            continue;
        told++;
        assert_memory_equal(&logits[i], &want[i], sizeof *logits);
    }
    assert_int_equal(told, s->wish.kind == LLM_WISH_TOP_K ? s->wish.top_k : VOCAB);
}

/* Takes the answer, which must be the status and on 0 the story's. */
static void hear(struct rig *r, struct actor *a, int status)
{
    struct llm_job *job = a->job;
    struct wire_dec d;
    assert_true(a->answered);
    assert_int_equal(job->status, status);
    wire_dec_init(&d, wire_enc_data(&job->answer), wire_enc_len(&job->answer));
    if (status == 0 && job->request.token_count)
        wire_get_copy(&d, a->handle, sizeof a->handle);
    if (status == 0 && job->request.method == LLM_METHOD_PREFILL_SEMANTIC)
        a->id = wire_get_varint(&d);
    if (status == 0 && a->story->wish.kind == LLM_WISH_TOKENS)
        same_tokens(a, &d);
    else if (status == 0)
        same_logits(a, &d);
    a->job = NULL;
    job_free(r, job);
}

static void turn_until_answered(struct rig *r, struct actor *a)
{
    for (int i = 0; !a->answered; i++) {
        assert_true(i < TURNS_MAX);
        turn(r);
    }
}

static void begin_and_hear(struct rig *r, struct actor *a, const struct story *s)
{
    begin(r, a, s);
    turn_until_answered(r, a);
    hear(r, a, 0);
}

static void vanish(struct rig *r, struct actor *a)
{
    atomic_store(&a->client.gone, true);
    a->client.farewell.status = -EPIPE;
    llm_jobs_append(&r->w.arrived, &a->client.farewell);
}

/* Stories of every kind and length, told alone. */
static struct story *stories(uint64_t seed)
{
    struct story *all = calloc(ACTORS, sizeof *all);
    struct llm_engine *engine = lone_engine();
    struct hw_rng rng;
    assert_non_null(all);
    hw_rng_seed(&rng, seed);
    for (int i = 0; i < ACTORS; i++) {
        uint32_t prompt = 1 + (uint32_t)hw_rng_below(&rng, i % 2 ? 20 : PROMPT_MAX);
        all[i] = story_of(&rng, i % 3 ? LLM_WISH_TOKENS : (unsigned)hw_rng_below(&rng, 4), prompt,
                          1 + (uint32_t)hw_rng_below(&rng, STEPS_MAX));
        tell(engine, &all[i]);
    }
    llm_engine_destroy(engine);
    return all;
}

/* ---- the same bits ---- */

static bool over(const struct actor *a)
{
    return !a->job && (a->client.gone || (a->story && a->got > a->story->steps));
}

/* Each client begins, asks and vanishes when the dice say so. */
static void play(struct rig *r, const struct story *all, struct hw_rng *rng)
{
    int left = ACTORS;
    for (int turns = 0; left > 0; turns++) {
        assert_true(turns < TURNS_MAX);
        left = ACTORS;
        for (int i = 0; i < ACTORS; i++) {
            struct actor *a = &r->actors[i];
            if (a->job && a->answered)
                hear(r, a, a->client.gone && a->job->status ? -ECANCELED : 0);
            bool acts = !a->client.gone && !over(a) && hw_rng_below(rng, 2);
            if (acts && i == 4 && a->got > 0 && hw_rng_below(rng, 4) == 0)
                vanish(r, a);
            else if (acts && !a->job && a->got == 0)
                begin(r, a, &all[i]);
            else if (acts && !a->job)
                go_on(r, a, 1 + (uint32_t)hw_rng_below(rng, all[i].steps + 1 - a->got));
            left -= over(a);
        }
        turn(r);
    }
}

static void a_batch_changes_nothing(void **state)
{
    (void)state;
    uint64_t seeds = ONLY_THREADS || strcmp(backend, "cpu") != 0 ? 3 : 12;
    static const uint32_t batches[] = {0, 2, 3, 0}, mixed[] = {0, 1, 5, 64};
    bool several = false; /* threads sampled */
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct rig r;
        struct hw_rng rng;
        struct story *all = stories(seed);
        struct llm_worker_options options = {.batch = batches[seed % 4],
                                             .mixed_rows = mixed[seed / 3 % 4],
                                             .sample_alone = seed % 2 ? 2 * VOCAB : 0};
        hw_rng_seed(&rng, seed);
        rig_open(&r, &options);
        play(&r, all, &rng);
        assert_true(count(&r, LLM_COUNT_PARTS) > count(&r, LLM_COUNT_STEPS));
        assert_int_equal(count(&r, LLM_COUNT_SPLITS), 0);
        several |= r.w.samplers != NULL;
        rig_close(&r);
        free(all);
    }
    assert_true(several);
}

/* ---- who is in a step ---- */

static struct story *same_story(uint32_t prompt, uint32_t steps)
{
    struct story *s = malloc(sizeof *s);
    struct llm_engine *engine = lone_engine();
    struct hw_rng rng;
    assert_non_null(s);
    hw_rng_seed(&rng, 5);
    *s = story_of(&rng, LLM_WISH_TOKENS, prompt, steps);
    tell(engine, s);
    llm_engine_destroy(engine);
    return s;
}

static void sequences_join_and_leave_at_any_step(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(9, STEPS_MAX);
    rig_open(&r, &(struct llm_worker_options){0});
    for (int i = 0; i < 3; i++)
        begin(&r, &r.actors[i], s);
    turn(&r); /* three prompts in one step */
    assert_int_equal(count(&r, LLM_COUNT_STEPS), 1);
    assert_int_equal(count(&r, LLM_COUNT_ROWS), 3 * 9);
    for (int i = 0; i < 3; i++)
        hear(&r, &r.actors[i], 0);
    go_on(&r, &r.actors[0], 5);
    turn(&r);
    go_on(&r, &r.actors[1], 2);
    turn(&r);
    go_on(&r, &r.actors[2], 1);
    turn(&r); /* all three; then two of them leave */
    hear(&r, &r.actors[1], 0);
    hear(&r, &r.actors[2], 0);
    assert_false(r.actors[0].answered);
    turn(&r);
    turn(&r);
    hear(&r, &r.actors[0], 0);
    assert_int_equal(count(&r, LLM_COUNT_STEPS), 1 + 5);
    assert_int_equal(count(&r, LLM_COUNT_PARTS), 3 + 5 + 2 + 1);
    assert_int_equal(batches(&r, 0), 3);                  /* of one */
    assert_int_equal(batches(&r, 1) + batches(&r, 2), 3); /* of two to four */
    rig_close(&r);
    free(s);
}

static void prompts_ride_along_in_pieces(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(50, STEPS_MAX);
    rig_open(&r, &(struct llm_worker_options){.mixed_rows = 8});
    begin_and_hear(&r, &r.actors[0], s);
    go_on(&r, &r.actors[0], STEPS_MAX);
    begin(&r, &r.actors[1], s);
    begin(&r, &r.actors[2], s);
    for (uint32_t i = 1; i <= STEPS_MAX; i++) {
        uint64_t rows = count(&r, LLM_COUNT_ROWS);
        turn(&r);
        assert_int_equal(r.actors[0].job->done, i); /* a token in every step */
        assert_int_equal(count(&r, LLM_COUNT_ROWS) - rows, 1 + 8);
        /* The two prompts take turns. */
        assert_in_range(r.actors[1].job->done + 8 - r.actors[2].job->done, 0, 16);
    }
    hear(&r, &r.actors[0], 0);
    for (int i = 1; i < 3; i++) {
        turn_until_answered(&r, &r.actors[i]);
        hear(&r, &r.actors[i], 0);
    }
    rig_close(&r);
    free(s);
}

/* More than fit in a step: nobody is ever more than one token ahead. */
static void nobody_starves(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(3, STEPS_MAX);
    rig_open(&r, &(struct llm_worker_options){.batch = 4});
    for (int i = 0; i < ACTORS; i++)
        begin(&r, &r.actors[i], s);
    for (int i = 0; i < ACTORS; i++) {
        turn_until_answered(&r, &r.actors[i]);
        hear(&r, &r.actors[i], 0);
        go_on(&r, &r.actors[i], STEPS_MAX);
    }
    for (int i = 0; i < ACTORS; i++) /* those that came early are ahead by then */
        r.actors[i].got = r.actors[i].job->done;
    for (int turns = 0; r.w.running.first || r.w.arrived.first; turns++) {
        assert_true(turns < TURNS_MAX);
        turn(&r);
        uint32_t low = STEPS_MAX, high = 0;
        for (int i = 0; i < ACTORS; i++) {
            uint32_t done = r.actors[i].job->done - r.actors[i].got;
            bool open = !r.actors[i].answered;
            low = open && done < low ? done : low;
            high = open && done > high ? done : high;
        }
        assert_true(high <= low + 1);
    }
    for (int i = 0; i < ACTORS; i++) {
        r.actors[i].got = 1;
        hear(&r, &r.actors[i], 0);
    }
    assert_int_equal(batches(&r, 3), 0); /* none of 5 or more */
    rig_close(&r);
    free(s);
}

/* Where timing chooses the rows, they stay within their limits and prompts always get on. */
static void the_budget_finds_its_size(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(PROMPT_MAX, STEPS_MAX);
    rig_open(&r, &(struct llm_worker_options){0});
    begin_and_hear(&r, &r.actors[0], s);
    go_on(&r, &r.actors[0], STEPS_MAX);
    begin(&r, &r.actors[1], s);
    turn(&r);
    assert_int_equal(r.actors[1].job->done, 0); /* the first step is timed without prompts */
    turn(&r);
    assert_int_equal(r.actors[1].job->done, LLM_WORKER_MIXED_MIN + 1); /* one beside the token */
    while (!r.actors[0].answered || !r.actors[1].answered) {
        uint32_t before = r.actors[1].job->done;
        bool open = !r.actors[1].answered && !r.actors[0].answered;
        turn(&r);
        assert_in_range(r.w.served[0]->mixed_rows, LLM_WORKER_MIXED_MIN, LLM_WORKER_MIXED_MAX);
        assert_true(!open || r.actors[1].job->done > before);
    }
    hear(&r, &r.actors[0], 0);
    hear(&r, &r.actors[1], 0);
    rig_close(&r);
    free(s);
}

/* Prompts that are shorter than the budget, so that one of them never fills it. */
static void the_budget_grows_while_prompts_wait(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(LLM_WORKER_MIXED_MIN - 1, STEPS_MAX);
    rig_open(&r, &(struct llm_worker_options){0});
    struct llm_model *m = r.w.served[0];
    begin_and_hear(&r, &r.actors[0], s);
    go_on(&r, &r.actors[0], STEPS_MAX);
    turn(&r);                                   /* timed without prompts */
    m->decode_ns = UINT64_C(3600) * 1000000000; /* no step takes as long */
    for (int i = 1; i < 4; i++)
        begin(&r, &r.actors[i], s);
    turn(&r);
    assert_true(r.actors[1].answered && !r.actors[2].answered);
    assert_int_equal(m->mixed_rows, 2 * LLM_WORKER_MIXED_MIN);
    turn(&r);
    assert_true(r.actors[2].answered && r.actors[3].answered);
    assert_int_equal(m->mixed_rows, 2 * LLM_WORKER_MIXED_MIN); /* nobody waited */
    for (int i = 3; i >= 0; i--) {
        turn_until_answered(&r, &r.actors[i]);
        hear(&r, &r.actors[i], 0);
    }
    rig_close(&r);
    free(s);
}

static void a_prompt_that_nearly_fits_is_finished(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(LLM_WORKER_MIXED_MIN + 4, STEPS_MAX);
    rig_open(&r, &(struct llm_worker_options){0});
    begin_and_hear(&r, &r.actors[0], s);
    go_on(&r, &r.actors[0], STEPS_MAX);
    begin(&r, &r.actors[1], s);
    begin(&r, &r.actors[2], s);
    turn(&r); /* timed without prompts */
    turn(&r);
    assert_true(r.actors[1].answered);
    assert_int_equal(r.actors[2].job->done, 0); /* it could have few rows only */
    turn(&r);
    for (int i = 2; i >= 0; i--) {
        assert_true(i == 0 || r.actors[i].answered);
        turn_until_answered(&r, &r.actors[i]);
        hear(&r, &r.actors[i], 0);
    }
    rig_close(&r);
    free(s);
}

static void models_take_turns(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(5, STEPS_MAX);
    struct llm_request load = {.method = LLM_METHOD_LOAD_WEIGHTS};
    rig_open(&r, &(struct llm_worker_options){0});
    struct image other = image_prefix(&model, model.size); /* the same but for a name */
    image_patch(&other, "general.name", "general.mane", 12);
    struct llm_job *job = ask(&r, &r.actors[1], &load);
    assert_int_equal(llm_blob_make(&r.w, job->client, &job->weights, other.size), 0);
    assert_int_equal(llm_blob_append(&job->weights, other.bytes, other.size), 0);
    turn(&r);
    while (!r.actors[1].answered)
        turn_with_queue(&r);
    assert_int_equal(job->status, 0);
    r.actors[1].job = NULL;
    job_free(&r, job);
    assert_int_equal(r.w.model_count, 2);
    for (int i = 0; i < 2; i++)
        begin_and_hear(&r, &r.actors[i], s);
    go_on(&r, &r.actors[0], STEPS_MAX);
    go_on(&r, &r.actors[1], STEPS_MAX);
    for (uint32_t i = 1; i <= STEPS_MAX; i++) {
        turn(&r);
        turn(&r);
        assert_int_equal(r.actors[0].job->done, i);
        assert_int_equal(r.actors[1].job->done, i);
    }
    hear(&r, &r.actors[0], 0);
    hear(&r, &r.actors[1], 0);
    rig_close(&r);
    image_free(&other);
    free(s);
}

/* ---- requests of one client ---- */

static void requests_in_a_row_see_each_other(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(5, STEPS_MAX);
    struct actor *a, *twin;
    rig_open(&r, &(struct llm_worker_options){0});
    a = &r.actors[0];
    twin = &r.actors[1]; /* holds a second request of the same client */
    begin_and_hear(&r, a, s);
    go_on(&r, a, 1);
    *twin = *a;
    twin->got++; /* it will hear the token after */
    go_on(&r, twin, 1);
    twin->job->client = &a->client;
    turn(&r);
    assert_true(a->answered && !twin->answered);
    hear(&r, a, 0);
    turn(&r);
    hear(&r, twin, 0);
    a->got = twin->got;
    /* One that takes several steps is told of; so is who would release it. */
    go_on(&r, a, 3);
    turn(&r);
    go_on(&r, twin, 1);
    twin->job->client = &a->client;
    turn(&r);
    assert_non_null(strstr(twin->job->why, "another request"));
    hear(&r, twin, -EBUSY);
    struct llm_request release = {.method = LLM_METHOD_RELEASE};
    memcpy(release.handle, a->handle, sizeof a->handle);
    struct llm_job *job = ask(&r, twin, &release);
    turn(&r);
    hear(&r, a, 0);
    assert_int_equal(job->status, -EBUSY);
    job_free(&r, job);
    /* After a single token it is not: the release came later, and finds the sequence idle. */
    go_on(&r, a, 1);
    job = ask(&r, twin, &release);
    job->client = &a->client;
    turn(&r);
    hear(&r, a, 0);
    assert_false(twin->answered);
    turn(&r);
    assert_true(twin->answered);
    assert_int_equal(job->status, 0);
    job_free(&r, job);
    twin->job = NULL;
    assert_int_equal(r.w.sequence_count, 0);
    rig_close(&r);
    free(s);
}

/* ---- trouble ---- */

static void bad_tokens_harm_their_own_request_only(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(5, 2), bad = *s, odd = *s;
    bad.prompt[3] = VOCAB;
    odd.wish.kind = (enum llm_wish_kind)0;
    rig_open(&r, &(struct llm_worker_options){0});
    begin_and_hear(&r, &r.actors[2], &odd);
    odd.tokens[0] = VOCAB;
    begin(&r, &r.actors[0], s);
    begin(&r, &r.actors[1], &bad);
    go_on(&r, &r.actors[2], 1);
    uint64_t steps = count(&r, LLM_COUNT_STEPS);
    turn(&r);
    assert_int_equal(count(&r, LLM_COUNT_STEPS), steps + 1);
    hear(&r, &r.actors[0], 0);
    assert_non_null(strstr(r.actors[1].job->why, "the vocabulary has 300"));
    hear(&r, &r.actors[1], -EINVAL);
    hear(&r, &r.actors[2], -EINVAL);
    assert_int_equal(r.w.sequence_count, 2);
    rig_close(&r);
    free(s);
}

static void a_full_context_ends_its_own_request_only(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(100, STEPS_MAX), *end = same_story(PROMPT_MAX, STEPS_MAX);
    rig_open(&r, &(struct llm_worker_options){.engine = {.context = PROMPT_MAX + 2}});
    begin_and_hear(&r, &r.actors[0], s);
    begin_and_hear(&r, &r.actors[1], end);
    go_on(&r, &r.actors[0], STEPS_MAX);
    go_on(&r, &r.actors[1], STEPS_MAX);
    turn(&r);
    turn(&r);
    turn(&r);
    assert_int_equal(r.actors[0].job->done, 3);
    hear(&r, &r.actors[1], 0); /* what there is */
    assert_int_equal(r.actors[1].got, 3);
    go_on(&r, &r.actors[1], 1);
    turn(&r);
    hear(&r, &r.actors[1], -ERANGE);
    turn_until_answered(&r, &r.actors[0]);
    hear(&r, &r.actors[0], 0);
    assert_int_equal(count(&r, LLM_COUNT_SPLITS), 0);
    rig_close(&r);
    free(s);
    free(end);
}

/* Three pages: one for each of two that go on, and one for half of a prompt. */
static void a_full_cache_ends_its_own_request_only(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(20, STEPS_MAX), *large = same_story(PROMPT_MAX, 1);
    const struct llm_config *c = llm_file_config(file);
    uint64_t page = UINT64_C(4) * LLM_KV_POSITIONS * c->layers * c->kv_heads * c->head_dim;
    rig_open(&r, &(struct llm_worker_options){.mixed_rows = 32, .engine = {.kv_bytes = 3 * page}});
    for (int i = 0; i < 2; i++)
        begin_and_hear(&r, &r.actors[i], s);
    for (int i = 0; i < 2; i++)
        go_on(&r, &r.actors[i], STEPS_MAX);
    begin(&r, &r.actors[2], large);
    turn_until_answered(&r, &r.actors[2]);
    assert_true(!r.actors[0].answered && !r.actors[1].answered);
    hear(&r, &r.actors[2], -ENOSPC);
    for (int i = 0; i < 2; i++) {
        turn_until_answered(&r, &r.actors[i]);
        hear(&r, &r.actors[i], 0);
    }
    begin_and_hear(&r, &r.actors[3], s); /* in what it left */
    assert_int_equal(count(&r, LLM_COUNT_SPLITS), 0);
    rig_close(&r);
    free(s);
    free(large);
}

static void a_client_that_vanishes_leaves_the_batch(void **state)
{
    (void)state;
    struct rig r;
    struct story *s = same_story(30, STEPS_MAX);
    rig_open(&r, &(struct llm_worker_options){.mixed_rows = 4});
    for (int i = 0; i < 3; i++)
        begin_and_hear(&r, &r.actors[i], s);
    for (int i = 0; i < 3; i++)
        go_on(&r, &r.actors[i], STEPS_MAX);
    begin(&r, &r.actors[3], s);
    turn(&r);
    assert_int_equal(r.w.sequence_count, 4);
    vanish(&r, &r.actors[1]); /* decodes */
    vanish(&r, &r.actors[3]); /* is in the middle of its prompt */
    turn(&r);
    hear(&r, &r.actors[1], -ECANCELED);
    hear(&r, &r.actors[3], -ECANCELED);
    assert_int_equal(r.w.sequence_count, 3); /* half a prompt is of use to nobody */
    assert_int_equal(r.actors[0].job->done, 2);
    /* Who has the handle goes on where it was left: after one token of the request. */
    struct actor *heir = &r.actors[4];
    struct llm_request release = {.method = LLM_METHOD_RELEASE};
    memcpy(release.handle, r.actors[1].handle, sizeof release.handle);
    struct llm_job *job = ask(&r, heir, &release);
    turn(&r);
    assert_int_equal(job->status, 0);
    job_free(&r, job);
    heir->job = NULL;
    for (int i = 0; i < 3; i += 2) {
        turn_until_answered(&r, &r.actors[i]);
        hear(&r, &r.actors[i], 0);
    }
    rig_close(&r);
    free(s);
}

/* Whichever allocation of a step fails: requests get their tokens or an error, and the next step
 * works.  Among them are those where a step of many fails, and each is taken alone. */
static void steps_survive_every_failure(void **state)
{
    (void)state;
    if (strcmp(backend, "cpu") != 0)
        skip(); /* the allocations are ours, and an engine for each of them takes long there */
    struct story *s = same_story(70, STEPS_MAX);
    uint64_t splits = 0;
    bool failed = true;
    for (long n = 0; failed; n++) {
        struct rig r;
        assert_true(n < 1000);
        rig_open(&r, &(struct llm_worker_options){.mixed_rows = 64});
        begin_and_hear(&r, &r.actors[0], s);
        go_on(&r, &r.actors[0], STEPS_MAX);
        for (int i = 1; i < 4; i++)
            begin(&r, &r.actors[i], s);
        allocations_left = n;
        counting = true;
        turn(&r);
        turn(&r);
        failed = allocations_left < 0;
        counting = false;
        splits += count(&r, LLM_COUNT_SPLITS);
        for (int i = 0; i < 4; i++) {
            turn_until_answered(&r, &r.actors[i]);
            int status = r.actors[i].job->status;
            assert_true(status == 0 || status == -ENOMEM);
            failed = failed || status;
            hear(&r, &r.actors[i], status);
        }
        begin_and_hear(&r, &r.actors[5], s);
        rig_close(&r);
    }
    assert_true(splits > 0);
    free(s);
}

static int make_model(void **state)
{
    (void)state;
    struct llm_synth synth = {.config = {.arch = LLM_LLAMA,
                                         .layers = 2,
                                         .width = 64,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .ffn = 128,
                                         .vocab = VOCAB,
                                         .context = CONTEXT},
                              .dtype = LLM_Q8_0,
                              .seed = 7};
    llm_synth_complete(&synth.config);
    model = image_synth(&synth);
    return llm_file_parse(model.bytes, model.size, &file, why) ? -1 : 0;
}

static int drop_model(void **state)
{
    (void)state;
    llm_file_close(file);
    image_free(&model);
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
        cmocka_unit_test(a_batch_changes_nothing),
        cmocka_unit_test(sequences_join_and_leave_at_any_step),
        cmocka_unit_test(prompts_ride_along_in_pieces),
        cmocka_unit_test(nobody_starves),
        cmocka_unit_test(the_budget_finds_its_size),
        cmocka_unit_test(the_budget_grows_while_prompts_wait),
        cmocka_unit_test(a_prompt_that_nearly_fits_is_finished),
        cmocka_unit_test(models_take_turns),
        cmocka_unit_test(requests_in_a_row_see_each_other),
        cmocka_unit_test(bad_tokens_harm_their_own_request_only),
        cmocka_unit_test(a_full_context_ends_its_own_request_only),
        cmocka_unit_test(a_full_cache_ends_its_own_request_only),
        cmocka_unit_test(a_client_that_vanishes_leaves_the_batch),
        cmocka_unit_test(steps_survive_every_failure),
    };
    return cmocka_run_group_tests(tests, make_model, drop_model);
}
