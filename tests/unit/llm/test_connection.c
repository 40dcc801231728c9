/* Texts over a connection: the tokens that a mode yields, alone and beside others, continued at
 * another worker, cancelled, drained, short of memory; a worker that dies and a client that does
 * not read. */
#include "unit.h"

#include "base/clock.h"
#include "base/counter.h"
#include "base/rng.h"
#include "llm/client/connection.h"
#include "llm/engine/pooling.h"
#include "llm/tokenizer/vocab.h"
#include "reference.h"
#include "worker_server.h"

#include <math.h>

enum { MOST = 40, TEXTS = 12, TOKENS_MAX = CONTEXT, WIDTH_MAX = 256 };

static char why[LLM_WHY_CHARS];

/* ---- a text and what came of it ---- */

struct text {
    struct llm_connection *conn;
    uint64_t id;
    uint32_t tokens[TOKENS_MAX], count;
    float logprobs[TOKENS_MAX];
    uint32_t cancel_at; /* tokens; 0: never */
    bool tops_fit;
    struct llm_generate_end end;
    float vector[WIDTH_MAX];
    int status;
    char why[LLM_WHY_CHARS];
    bool ended;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void on_tokens(void *user, const struct llm_generated *tokens, uint32_t count)
{
    struct text *t = user;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(t->count < TOKENS_MAX);
        t->logprobs[t->count] = tokens[i].logprob;
        for (uint32_t k = 0; k < tokens[i].top_count; k++) {
            bool is_it = tokens[i].top[k].token == tokens[i].token;
            t->tops_fit &= !is_it || tokens[i].top[k].logprob == tokens[i].logprob;
            t->tops_fit &= k == 0 || tokens[i].top[k - 1].logprob >= tokens[i].top[k].logprob;
        }
        t->tokens[t->count++] = tokens[i].token;
    }
    bool cancels = t->cancel_at && t->count >= t->cancel_at;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (cancels)
        llm_connection_cancel(t->conn, t->id);
}

static void on_end(void *user, int status, const struct llm_generate_end *end, const char *text)
{
    struct text *t = user;
    pthread_mutex_lock(&lock);
    assert_false(t->ended);
    t->ended = true;
    t->status = status;
    if (end)
        t->end = *end;
    if (end && end->vector) {
        assert_true(end->width <= WIDTH_MAX);
        memcpy(t->vector, end->vector, end->width * sizeof *t->vector);
    }
    t->end.vector = NULL;
    snprintf(t->why, sizeof t->why, "%s", text);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static const struct llm_connection_ops ops = {on_tokens, on_end};

static struct llm_generate request_of(uint32_t most)
{
    return (struct llm_generate){.tokens = reference.prompt,
                                 .token_count = PROMPT,
                                 .most = most,
                                 .sampling = reference_sampling};
}

static void start(struct llm_connection *conn, const struct llm_generate *g, struct text *t)
{
    uint32_t cancel_at = t->cancel_at;
    *t = (struct text){.conn = conn, .cancel_at = cancel_at, .tops_fit = true};
    if (llm_connection_start(conn, g, &ops, t, &t->id, why))
        fail_msg("%s", why);
}

static void wait_end(struct text *t)
{
    pthread_mutex_lock(&lock);
    while (!t->ended)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void wait_tokens(struct text *t, uint32_t count)
{
    pthread_mutex_lock(&lock);
    while (!t->ended && t->count < count)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void run(struct llm_connection *conn, const struct llm_generate *g, struct text *t)
{
    start(conn, g, t);
    wait_end(t);
}

static void assert_ended(const struct text *t, enum llm_end reason, uint32_t count)
{
    if (t->status)
        fail_msg("%s", t->why);
    assert_int_equal(t->end.reason, reason);
    assert_int_equal(t->count, count);
    assert_int_equal(t->end.generated, count);
}

/* ---- workers ---- */

static struct llm_worker_options options_of(uint64_t kv_bytes)
{
    return (struct llm_worker_options){.file = reference.file,
                                       .engine = {.threads = 1, .kv_bytes = kv_bytes}};
}

static void start_worker(struct worker_server *s)
{
    struct llm_worker_options options = options_of(4 << 20);
    server_start(s, &options);
}

static struct llm_connection *join_with(struct worker_server *s, const struct rpc_config *config)
{
    struct llm_connection *conn;
    if (llm_connection_open(&s->addr, &(struct rpc_net_options){0}, config, &conn, why))
        fail_msg("%s", why);
    return conn;
}

static struct llm_connection *join(struct worker_server *s)
{
    return join_with(s, NULL);
}

static struct llm_served describe(struct llm_connection *conn)
{
    struct llm_served served;
    if (llm_connection_describe(conn, 0, &served, why))
        fail_msg("%s", why);
    return served;
}

/* Until the worker has no text and no KV of one. */
static void wait_idle(struct llm_connection *conn)
{
    struct llm_served served;
    do
        served = describe(conn);
    while (served.running || served.waiting || served.models[0].kv_used);
}

/* ---- tests ---- */

static void a_text_has_the_tokens_of_a_mode(void **state)
{
    (void)state;
    struct worker_server s;
    struct text t = {0};
    struct llm_generate g = request_of(STEPS);
    start_worker(&s);
    struct llm_connection *conn = join(&s);
    run(conn, &g, &t);
    assert_ended(&t, LLM_END_LENGTH, STEPS);
    assert_memory_equal(t.tokens, reference.expected, sizeof reference.expected);
    assert_int_equal(t.end.prompt, PROMPT);
    assert_int_equal(t.end.shared, 0);
    uint32_t stop = t.tokens[3], at = 0;
    while (t.tokens[at] != stop)
        at++;
    g.stops = &stop;
    g.stop_count = 1;
    run(conn, &g, &t);
    assert_ended(&t, LLM_END_STOP, at);
    assert_int_equal(t.end.token, stop);
    g = request_of(0);
    run(conn, &g, &t);
    assert_ended(&t, LLM_END_LENGTH, CONTEXT - PROMPT);
    llm_connection_close(conn); /* asserts that none runs */
    server_stop(&s);
}

/* ---- embeddings ---- */

static const struct llm_tensor *output_of(const struct llm_file *file)
{
    const struct llm_tensor *t = llm_file_find(file, "output.weight");
    return t ? t : llm_file_find(file, "token_embd.weight");
}

/* The states of a prompt, row by row on the plainest backend.  They are the right ones: times the
 * output matrix they give the last row's logits, but for the rounding of products. */
static void reference_states(float *states, uint32_t *width)
{
    struct llm_engine_options options = {.backend = "reference", .context = CONTEXT};
    struct llm_engine *engine;
    struct llm_seq *seq;
    if (llm_engine_create(reference.file, &options, &engine, why))
        fail_msg("%s", why);
    const struct llm_config *c = llm_engine_config(engine);
    *width = c->width;
    assert_true(c->width <= WIDTH_MAX);
    assert_int_equal(llm_seq_create(engine, &seq), 0);
    for (uint32_t i = 0; i < PROMPT; i++) {
        struct llm_row row = {.seq = seq, .token = reference.prompt[i]};
        assert_int_equal(
            llm_engine_step_states(engine, &row, 1, states + (size_t)i * c->width, why), 0);
    }
    llm_seq_truncate(seq, PROMPT - 1);
    float *logits = malloc(c->vocab * sizeof *logits),
          *weights = malloc(c->width * sizeof *weights);
    assert_non_null(logits);
    assert_non_null(weights);
    struct llm_row last = {.seq = seq, .token = reference.prompt[PROMPT - 1], .logits = true};
    assert_int_equal(llm_engine_step(engine, &last, 1, logits, why), 0);
    const struct llm_tensor *out = output_of(reference.file);
    size_t row_bytes = out->bytes / c->vocab;
    for (uint32_t j = 0; j < c->vocab; j += 7) {
        double sum = 0, size = 0;
        llm_dtype_to_f32(out->dtype, weights, (const uint8_t *)out->data + j * row_bytes, c->width);
        for (uint32_t k = 0; k < c->width; k++) {
            double term = (double)weights[k] * (double)states[(PROMPT - 1) * c->width + k];
            sum += term;
            size += fabs(term);
        }
        assert_true(fabs(sum - (double)logits[j]) <= 0.02 * size);
    }
    free(weights);
    free(logits);
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
}

static void an_embedding_is_the_mean_of_the_states(void **state)
{
    (void)state;
    static float states[PROMPT * WIDTH_MAX];
    static struct text text, alone, beside[3];
    struct worker_server s;
    struct llm_generate g = request_of(0), t = request_of(0);
    double sums[WIDTH_MAX] = {0}, length = 0;
    uint32_t width;
    reference_states(states, &width);
    for (uint32_t i = 0; i < PROMPT; i++)
        for (uint32_t k = 0; k < width; k++)
            sums[k] += (double)states[i * width + k];
    for (uint32_t k = 0; k < width; k++)
        length += sums[k] * sums[k];
    g.embed = true;
    start_worker(&s);
    struct llm_connection *conn = join(&s);
    run(conn, &g, &alone);
    assert_ended(&alone, LLM_END_EMBEDDED, 0);
    assert_int_equal(alone.end.width, width);
    for (uint32_t k = 0; k < width; k++)
        assert_true(fabs(sums[k] / sqrt(length) - (double)alone.vector[k]) < 1e-6);
    /* The same bits beside others, and the text beside them has its own tokens. */
    start(conn, &t, &text);
    wait_tokens(&text, 1);
    for (int i = 0; i < 3; i++)
        start(conn, &g, &beside[i]);
    for (int i = 0; i < 3; i++) {
        wait_end(&beside[i]);
        assert_ended(&beside[i], LLM_END_EMBEDDED, 0);
        assert_memory_equal(beside[i].vector, alone.vector, width * sizeof(float));
    }
    wait_end(&text);
    assert_ended(&text, LLM_END_LENGTH, CONTEXT - PROMPT);
    assert_memory_equal(text.tokens, reference.expected, sizeof reference.expected);
    wait_idle(conn);
    llm_connection_close(conn);
    server_stop(&s);
}

static void pooling_takes_the_rows_that_it_names(void **state)
{
    (void)state;
    static const float states[] = {3, 4, 0, 1, 5, 12};
    static const struct {
        enum llm_pooling pooling;
        float x, y;
    } cases[] = {{LLM_POOL_FIRST, 0.6F, 0.8F},
                 {LLM_POOL_LAST, 5 / 13.0F, 12 / 13.0F},
                 {LLM_POOL_MEAN, 0.42579F, 0.90482F}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t cut = 1; cut <= 3; cut++) {
            double sums[2] = {0, 0};
            float v[2];
            llm_pool_add(cases[i].pooling, sums, states, 2, 0, cut, 3);
            llm_pool_add(cases[i].pooling, sums, states + (size_t)2 * cut, 2, cut, 3 - cut, 3);
            llm_pool_finish(sums, 2, v);
            assert_true(fabsf(v[0] - cases[i].x) < 1e-4F && fabsf(v[1] - cases[i].y) < 1e-4F);
        }
    }
    float zero[2] = {1, 1};
    llm_pool_finish((const double[]){0, 0}, 2, zero);
    assert_true(zero[0] == 0 && zero[1] == 0);
}

/* By the server's thread as well as by the engine's. */
static void texts_beside_each_other_have_the_tokens_of_texts_alone(void **state)
{
    (void)state;
    static struct text alone[TEXTS], beside[TEXTS];
    for (int lends = 0; lends < 2; lends++) {
        struct worker_server s;
        struct llm_worker_options options = options_of(32 << 20);
        options.no_lend = !lends;
        server_start(&s, &options);
        struct llm_connection *conns[2] = {join(&s), join(&s)};
        struct llm_generate g = request_of(MOST);
        for (uint32_t i = 0; i < TEXTS; i++) {
            g.sampling.seed = i;
            g.token_count = PROMPT - i;
            run(conns[0], &g, &alone[i]);
            assert_ended(&alone[i], LLM_END_LENGTH, MOST);
        }
        for (uint32_t i = 0; i < TEXTS; i++) {
            g.sampling.seed = i;
            g.token_count = PROMPT - i;
            start(conns[i % 2], &g, &beside[i]);
        }
        for (uint32_t i = 0; i < TEXTS; i++) {
            wait_end(&beside[i]);
            assert_ended(&beside[i], LLM_END_LENGTH, MOST);
            assert_memory_equal(beside[i].tokens, alone[i].tokens, MOST * sizeof(uint32_t));
        }
        llm_connection_close(conns[0]);
        llm_connection_close(conns[1]);
        server_stop(&s);
    }
}

static void a_text_continues_at_another_worker(void **state)
{
    (void)state;
    static const struct llm_bias biases[] = {{5, 2.5f}, {7, -100}};
    struct worker_server a, b;
    struct text whole = {0}, rest = {0};
    uint32_t tokens[PROMPT + MOST];
    struct llm_generate g = request_of(MOST);
    g.sampling = (struct llm_sampling){.temperature = 1.2f,
                                       .top_p = 0.9f,
                                       .min_p = 0.01f,
                                       .seed = 9,
                                       .presence = 0.5f,
                                       .frequency = 0.3f,
                                       .repetition = 1.1f,
                                       .biases = biases,
                                       .bias_count = 2};
    struct llm_worker_options options = options_of(4 << 20);
    options.tokens = PROMPT; /* what was generated does not count */
    start_worker(&a);
    server_start(&b, &options);
    struct llm_connection *to_a = join(&a), *to_b = join(&b);
    run(to_a, &g, &whole);
    assert_ended(&whole, LLM_END_LENGTH, MOST);
    memcpy(tokens, reference.prompt, sizeof reference.prompt);
    memcpy(tokens + PROMPT, whole.tokens, MOST * sizeof *tokens);
    for (uint32_t had = 1; had < MOST; had += 13) {
        g.tokens = tokens;
        g.token_count = PROMPT + had;
        g.sampled = had;
        g.most = MOST - had;
        run(to_b, &g, &rest);
        assert_ended(&rest, LLM_END_LENGTH, MOST - had);
        assert_memory_equal(rest.tokens, whole.tokens + had, (MOST - had) * sizeof *tokens);
    }
    llm_connection_close(to_a);
    llm_connection_close(to_b);
    server_stop(&a);
    server_stop(&b);
}

static void logprobs_are_of_the_models_own_distribution(void **state)
{
    (void)state;
    struct worker_server s;
    struct text plain = {0}, t = {0};
    struct llm_generate g = request_of(STEPS);
    start_worker(&s);
    struct llm_connection *conn = join(&s);
    g.logprobs = true;
    g.tops = 5;
    run(conn, &g, &t);
    assert_ended(&t, LLM_END_LENGTH, STEPS);
    assert_memory_equal(t.tokens, reference.expected, sizeof reference.expected);
    assert_true(t.tops_fit);
    g.sampling.temperature = 0; /* what is sampled changes, its logprob does not */
    g.tokens = reference.prompt;
    run(conn, &g, &plain);
    for (uint32_t i = 0; i < STEPS; i++)
        assert_true(t.logprobs[i] < 0 && t.logprobs[i] > LLM_LOGPROB_MIN);
    assert_true(plain.logprobs[0] >= t.logprobs[0]);
    llm_connection_close(conn);
    server_stop(&s);
}

/* Also where it was continued: the grammar has seen the tokens that came before. */
static void a_grammar_says_which_tokens_may_come(void **state)
{
    (void)state;
    static const char odd[] = "acegikmoqsuwy", even[] = "bdfhjlnprtvxz";
    struct worker_server s;
    struct text t = {0}, rest = {0};
    struct llm_vocab *vocab;
    uint32_t tokens[PROMPT + STEPS];
    struct llm_generate g = request_of(STEPS);
    g.grammar = "root ::= ([acegikmoqsuwy] [bdfhjlnprtvxz])*";
    g.stop_at_end = true;
    start_worker(&s);
    assert_int_equal(llm_vocab_create(reference.file, NULL, &vocab, why), 0);
    struct llm_connection *conn = join(&s);
    run(conn, &g, &t);
    assert_int_equal(t.status, 0);
    assert_true(t.count > 2);
    size_t at = 0;
    for (uint32_t i = 0; i < t.count; i++) {
        size_t bytes;
        const char *piece = llm_vocab_piece(vocab, t.tokens[i], false, &bytes);
        for (size_t k = 0; k < bytes; k++, at++)
            assert_non_null(strchr(at % 2 ? even : odd, piece[k]));
    }
    memcpy(tokens, reference.prompt, sizeof reference.prompt);
    memcpy(tokens + PROMPT, t.tokens, t.count * sizeof *tokens);
    g.tokens = tokens;
    g.token_count = PROMPT + 1;
    g.sampled = 1;
    g.most = STEPS - 1;
    run(conn, &g, &rest);
    assert_int_equal(rest.count, t.count - 1);
    assert_memory_equal(rest.tokens, t.tokens + 1, rest.count * sizeof *tokens);
    llm_vocab_destroy(vocab);
    llm_connection_close(conn);
    server_stop(&s);
}

static void a_cancelled_text_leaves_within_a_step(void **state)
{
    (void)state;
    struct worker_server s;
    struct text t = {.cancel_at = 3}, other = {0};
    struct llm_generate g = request_of(0);
    start_worker(&s);
    struct llm_connection *conn = join(&s);
    do {                     /* a text may be over before the cancel arrives */
        start(conn, &g, &t); /* cancelled from its own callback */
        wait_end(&t);
        assert_int_equal(t.status, 0);
    } while (t.end.reason == LLM_END_LENGTH);
    assert_int_equal(t.end.reason, LLM_END_CANCELLED);
    assert_true(t.count >= 3 && t.count < CONTEXT - PROMPT);
    llm_connection_cancel(conn, t.id); /* again: nothing happens */
    llm_connection_cancel(conn, 12345);
    g.most = STEPS;
    run(conn, &g, &other);
    assert_ended(&other, LLM_END_LENGTH, STEPS);
    llm_connection_close(conn);
    server_stop(&s);
}

/* There is no grace time for texts. */
static void texts_of_a_closed_connection_are_gone(void **state)
{
    (void)state;
    struct worker_server s;
    struct text t[3] = {0};
    struct llm_worker_options options = options_of(4 << 20);
    options.grace_ns = 3600 * HW_SEC;
    server_start(&s, &options);
    struct llm_connection *conn = join(&s), *watch = join(&s);
    struct llm_generate g = request_of(0);
    for (int i = 0; i < 3; i++)
        start(conn, &g, &t[i]);
    wait_tokens(&t[0], 2);
    llm_connection_close(conn);
    for (int i = 0; i < 3; i++) {
        assert_true(t[i].ended);
        assert_true(t[i].status == -ECANCELED || t[i].status == 0);
    }
    wait_idle(watch);
    llm_connection_close(watch);
    server_stop(&s);
}

static void a_drained_worker_gives_its_texts_back(void **state)
{
    (void)state;
    struct worker_server s;
    struct text whole = {0}, t = {0}, refused = {0}, rest = {0};
    uint32_t tokens[CONTEXT], running;
    struct llm_generate g = request_of(0);
    start_worker(&s);
    struct llm_connection *conn = join(&s);
    run(conn, &g, &whole);
    start(conn, &g, &t);
    wait_tokens(&t, 2);
    assert_int_equal(llm_connection_drain(conn, false, &running, why), 0);
    assert_true(running <= 1);
    run(conn, &g, &refused);
    assert_int_equal(refused.status, -EAGAIN);
    assert_non_null(strstr(refused.why, "drains"));
    wait_end(&t);
    assert_true(describe(conn).draining);
    assert_int_equal(t.status, 0);
    assert_true(t.end.reason == LLM_END_DRAINED || t.count == whole.count);
    assert_int_equal(llm_connection_drain(conn, true, NULL, why), 0);
    assert_false(describe(conn).draining);
    memcpy(tokens, reference.prompt, sizeof reference.prompt);
    memcpy(tokens + PROMPT, t.tokens, t.count * sizeof *tokens);
    g.tokens = tokens;
    g.token_count = PROMPT + t.count;
    g.sampled = t.count;
    if (t.count < whole.count) {
        run(conn, &g, &rest);
        assert_ended(&rest, LLM_END_LENGTH, whole.count - t.count);
        assert_memory_equal(rest.tokens, whole.tokens + t.count, rest.count * sizeof *tokens);
    }
    llm_connection_close(conn);
    server_stop(&s);
}

static uint64_t total(const char *name)
{
    uint64_t value = 0;
    assert_int_equal(hw_counters_total(name, &value), 0);
    return value;
}

/* Memory for one text of full context: two begin, and both cannot grow to their ends. */
static void texts_that_memory_cannot_hold_take_turns(void **state)
{
    (void)state;
    enum { SOME = 4, BEGIN = 60, GROW = 250 };
    static struct text alone, t[SOME];
    struct worker_server s;
    struct llm_worker_options options = options_of(0);
    server_start(&s, &options);
    struct llm_connection *conn = join(&s);
    struct llm_generate g = request_of(GROW);
    g.token_count = BEGIN;
    uint64_t before = total("llm_texts_preempted");
    run(conn, &g, &alone);
    assert_ended(&alone, LLM_END_LENGTH, GROW);
    assert_int_equal(total("llm_texts_preempted"), before);
    for (int i = 0; i < SOME; i++)
        start(conn, &g, &t[i]);
    for (int i = 0; i < SOME; i++) {
        wait_end(&t[i]);
        assert_ended(&t[i], LLM_END_LENGTH, GROW);
        assert_memory_equal(t[i].tokens, alone.tokens, GROW * sizeof(uint32_t));
        assert_true(t[i].end.shared > 0); /* with the one before, also where it gave way later */
    }
    assert_true(total("llm_texts_preempted") > before);
    wait_idle(conn);
    llm_connection_close(conn);
    server_stop(&s);
}

/* A client may have one: its second waits, that of another client does not wait for it. */
static void a_clients_limit_holds_nobody_else_up(void **state)
{
    (void)state;
    struct worker_server s;
    static struct text t[TEXTS], other;
    int texts = ONLY_THREADS ? 4 : TEXTS;
    struct llm_worker_options options = options_of(32 << 20);
    options.sequences = 1;
    server_start(&s, &options);
    struct llm_connection *conn = join(&s), *second = join(&s);
    struct llm_generate g = request_of(0);
    for (int i = 0; i < texts; i++)
        start(conn, &g, &t[i]);
    wait_tokens(&t[0], 1);
    start(second, &g, &other);
    wait_end(&other);
    pthread_mutex_lock(&lock);
    bool held_up = t[texts - 1].ended;
    pthread_mutex_unlock(&lock);
    assert_false(held_up);
    for (int i = 0; i < texts; i++) {
        wait_end(&t[i]);
        assert_ended(&t[i], LLM_END_LENGTH, CONTEXT - PROMPT);
    }
    llm_connection_close(conn);
    llm_connection_close(second);
    server_stop(&s);
}

/* ---- random texts that begin alike ---- */

enum { SOME_TEXTS = ONLY_THREADS ? 20 : 40, SOME_CONNECTIONS = 3, ROUNDS = 1 };

struct asked {
    uint32_t prompt[CONTEXT];
    struct llm_generate g;
};

/* Each prompt begins as an earlier one does, for a random length, and often is all of it. */
static void ask_at_random(struct asked *all, struct hw_rng *rng)
{
    for (uint32_t i = 0; i < SOME_TEXTS; i++) {
        const struct asked *like = &all[i ? hw_rng_below(rng, i) : 0];
        uint32_t common = (uint32_t)hw_rng_below(rng, like->g.token_count + 1);
        common = hw_rng_below(rng, 3) ? common : like->g.token_count;
        uint32_t count = common + (uint32_t)hw_rng_below(rng, common < 200 ? 60 : 2);
        count = count ? count : 1;
        memcpy(all[i].prompt, like->prompt, common * sizeof *all[i].prompt);
        for (uint32_t k = common; k < count; k++)
            all[i].prompt[k] = (uint32_t)hw_rng_below(rng, MODEL_VOCAB);
        all[i].g = (struct llm_generate){.tokens = all[i].prompt,
                                         .token_count = count,
                                         .most = 1 + (uint32_t)hw_rng_below(rng, i % 4 ? 40 : 200),
                                         .sampling = reference_sampling,
                                         .logprobs = true,
                                         .tops = (uint32_t)hw_rng_below(rng, 3)};
        all[i].g.sampling.seed = hw_rng_u64(rng);
        all[i].g.sampling.temperature = (float)hw_rng_below(rng, 3) / 2;
        if (hw_rng_below(rng, 8) == 0)
            all[i].g =
                (struct llm_generate){.tokens = all[i].prompt, .token_count = count, .embed = true};
        else if (count > 1 && hw_rng_below(rng, 6) == 0)
            all[i].g.scored = 1 + (uint32_t)hw_rng_below(rng, count - 1);
    }
}

/* Of a cancelled one what had come. */
static void assert_same(const struct text *alone, const struct text *t)
{
    bool cut = t->end.reason == LLM_END_CANCELLED;
    if (t->status)
        fail_msg("%s", t->why);
    assert_true(cut ? t->cancel_at && t->count <= alone->count
                    : t->end.reason == alone->end.reason && t->count == alone->count);
    assert_int_equal(t->end.generated, t->count);
    assert_memory_equal(t->tokens, alone->tokens, t->count * sizeof *t->tokens);
    assert_memory_equal(t->logprobs, alone->logprobs, t->count * sizeof *t->logprobs);
    assert_memory_equal(t->vector, cut ? t->vector : alone->vector, sizeof t->vector);
}

/* In another order, now and then after some tokens of another one; some are cancelled. */
static void ask_beside_each_other(const struct llm_worker_options *options,
                                  const struct asked *asked, const struct text *alone,
                                  struct hw_rng *rng)
{
    static struct text t[SOME_TEXTS];
    struct worker_server s;
    struct llm_connection *conns[SOME_CONNECTIONS];
    uint32_t order[SOME_TEXTS];
    server_start(&s, options);
    for (int i = 0; i < SOME_CONNECTIONS; i++)
        conns[i] = join(&s);
    for (uint32_t i = 0, k; i < SOME_TEXTS; i++) {
        k = (uint32_t)hw_rng_below(rng, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    for (uint32_t i = 0; i < SOME_TEXTS; i++) {
        struct text *next = &t[order[i]];
        next->cancel_at = hw_rng_below(rng, 6) ? 0 : 1 + (uint32_t)hw_rng_below(rng, 60);
        start(conns[hw_rng_below(rng, SOME_CONNECTIONS)], &asked[order[i]].g, next);
        if (next->cancel_at > 50)
            llm_connection_cancel(next->conn, next->id);
        if (hw_rng_below(rng, 3) == 0)
            wait_tokens(&t[order[hw_rng_below(rng, i + 1)]], (uint32_t)hw_rng_below(rng, 40));
    }
    for (uint32_t i = 0; i < SOME_TEXTS; i++) {
        wait_end(&t[i]);
        assert_same(&alone[i], &t[i]);
    }
    wait_idle(conns[0]);
    for (int i = 0; i < SOME_CONNECTIONS; i++)
        llm_connection_close(conns[i]);
    server_stop(&s);
}

/* Pages that are shared, rows that are copied or waited for, texts that give way and layers that
 * are evicted change nothing: not a token, not a bit of a logprob. */
static void texts_that_begin_alike_are_as_alone(void **state)
{
    (void)state;
    static struct asked asked[SOME_TEXTS];
    static struct text alone[SOME_TEXTS];
    const char *rounds = getenv("HAWSER_TEST_ROUNDS");
    uint64_t adopted = total("llm_adopted_rows"), preempted = total("llm_texts_preempted");
    for (int round = 0; round < (rounds ? atoi(rounds) : ROUNDS); round++) {
        struct worker_server s;
        struct hw_rng rng;
        struct llm_worker_options options = options_of(4 << 20);
        options.no_prefixes = true;
        options.batch = 1;
        hw_rng_seed(&rng, (uint64_t)round);
        ask_at_random(asked, &rng);
        server_start(&s, &options);
        struct llm_connection *conn = join(&s);
        for (uint32_t i = 0; i < SOME_TEXTS; i++)
            run(conn, &asked[i].g, &alone[i]);
        llm_connection_close(conn);
        server_stop(&s);
        for (int way = 0; way < 4; way++) {
            options = options_of(way == 0 ? 32 << 20 : way == 1 ? 0 : 1 << 20);
            options.engine.threads = way == 0 ? 2 : 1;
            if (way == 3) {
                options.shadow_ops = &llm_shadow_memory;
                options.shadow.bytes = 64 << 20;
                options.untimed = true;
                assert_int_equal(llm_evict_rule_parse("1,3-4@7", LAYERS, &options.evict), 0);
            }
            ask_beside_each_other(&options, asked, alone, &rng);
        }
    }
    assert_true(total("llm_adopted_rows") > adopted);
    assert_true(total("llm_texts_preempted") > preempted);
}

static void check_refused(struct llm_connection *conn, const struct llm_generate *g, int status,
                          const char *words)
{
    struct text t = {0};
    run(conn, g, &t);
    assert_int_equal(t.status, status);
    assert_non_null(strstr(t.why, words));
    assert_int_equal(t.count, 0);
}

static void unfit_texts_are_refused_with_a_reason(void **state)
{
    (void)state;
    struct worker_server s;
    uint32_t many[CONTEXT + 1] = {0};
    struct llm_worker_options options = options_of(4 << 20);
    options.tokens = PROMPT;
    server_start(&s, &options);
    struct llm_connection *conn = join(&s);
    struct llm_generate g = request_of(STEPS);
    g.model = "nobody";
    check_refused(conn, &g, -ENOENT, "no model 'nobody'");
    g = request_of(STEPS);
    g.tokens = many;
    g.token_count = CONTEXT + 1;
    check_refused(conn, &g, -EMSGSIZE, "the context has 320");
    g.token_count = PROMPT + 1;
    check_refused(conn, &g, -EMSGSIZE, "this worker takes");
    many[1] = MODEL_VOCAB;
    g.token_count = 2;
    check_refused(conn, &g, -EINVAL, "the vocabulary has 300");
    g = request_of(STEPS);
    g.sampling.top_p = -1;
    check_refused(conn, &g, -EINVAL, "sampling");
    g = request_of(STEPS);
    g.grammar = "root ::= other";
    check_refused(conn, &g, -EINVAL, "the grammar: ");
    g = request_of(STEPS);
    g.token_count = 0;
    assert_int_equal(llm_connection_start(conn, &g, &ops, NULL, NULL, why), -EINVAL);
    llm_connection_close(conn);
    server_stop(&s);
}

/* ---- the worker's models ---- */

static void a_worker_describes_its_models(void **state)
{
    (void)state;
    struct worker_server s;
    struct llm_worker_model models[] = {{.name = "first", .file = reference.file},
                                        {.name = "second", .file = reference.file}};
    struct llm_worker_options options = {
        .models = models, .model_count = 2, .engine = {.threads = 1}};
    struct llm_file *header;
    uint8_t *bytes;
    uint64_t size;
    server_start(&s, &options);
    struct llm_connection *conn = join(&s);
    struct llm_served served = describe(conn);
    assert_int_equal(served.model_count, 2);
    assert_string_equal(served.models[0].name, "first");
    assert_string_equal(served.models[1].name, "second");
    assert_string_equal(served.models[1].arch, "llama");
    assert_string_equal(served.models[1].arithmetic, "exact 4");
    assert_int_equal(served.models[1].vocab, MODEL_VOCAB);
    assert_int_equal(served.models[1].context, CONTEXT);
    assert_memory_equal(served.models[0].hash, served.models[1].hash, LLM_SERVED_HASH_BYTES);
    assert_int_equal(llm_connection_header(conn, "second", &bytes, &size, why), 0);
    assert_int_equal(size, served.models[1].header_bytes);
    assert_int_equal(llm_file_parse_header(bytes, size, &header, why), 0);
    assert_false(llm_file_has_weights(header));
    assert_int_equal(llm_file_config(header)->vocab, MODEL_VOCAB);
    assert_int_equal(llm_file_tensor_count(header), llm_file_tensor_count(reference.file));
    llm_file_close(header);
    free(bytes);
    assert_int_equal(llm_connection_header(conn, "third", &bytes, &size, why), -ENOENT);
    struct text t = {0};
    struct llm_generate g = request_of(STEPS);
    g.model = "second";
    run(conn, &g, &t);
    assert_memory_equal(t.tokens, reference.expected, sizeof reference.expected);
    assert_true(describe(conn).rows >= PROMPT);
    llm_connection_close(conn);
    server_stop(&s);
}

/* ---- what fails ---- */

/* Whether a text was under way when its worker died; on a starved machine all may have ended. */
static bool a_death_ends_a_text(void)
{
    struct worker_server s;
    struct text t[3] = {0};
    struct llm_generate g = request_of(0);
    start_worker(&s);
    struct llm_connection *conn = join(&s);
    for (int i = 0; i < 3; i++)
        start(conn, &g, &t[i]);
    wait_tokens(&t[0], 1);
    server_stop(&s);
    for (int i = 0; i < 3; i++) {
        wait_end(&t[i]);
        if (t[i].status)
            assert_non_null(strstr(t[i].why, "the worker is gone"));
    }
    assert_true(llm_connection_status(conn, why) < 0);
    assert_true(llm_connection_start(conn, &g, &ops, &t[0], NULL, why) < 0);
    llm_connection_close(conn);
    return t[0].status || t[1].status || t[2].status;
}

static void a_dead_worker_ends_every_text(void **state)
{
    (void)state;
    int tries = 1;
    while (!a_death_ends_a_text())
        assert_true(tries++ < 50);
}

/* ---- a client that does not read ---- */

enum { UNREAD = 8 };

struct outcome {
    uint32_t ended, refused;
};

static void count_outcome(void *user, int status, const struct rpc_msg *reply)
{
    struct outcome *o = user;
    (void)reply;
    o->ended++;
    o->refused += status == -ENOBUFS;
}

static struct rpc_ep *shake_hands(struct worker_server *s)
{
    struct rpc_config config = {.window_bytes = RPC_WINDOW_MIN, .heartbeat_ns = HW_NEVER};
    struct rpc_transport *transport;
    struct rpc_ep *ep;
    char rpc_why[RPC_WHY_CHARS];
    assert_int_equal(rpc_dial(&s->addr, &(struct rpc_net_options){0}, &transport, rpc_why), 0);
    assert_int_equal(rpc_ep_create(transport, &config, &ep), 0);
    while (rpc_ep_status(ep) == -EINPROGRESS) {
        (void)rpc_flush(ep);
        (void)rpc_wait(ep, HW_SEC);
        (void)rpc_poll(ep);
    }
    assert_int_equal(rpc_ep_status(ep), 0);
    return ep;
}

static void call_for_texts(struct rpc_ep *ep, struct outcome *o)
{
    for (uint64_t id = 0; id < UNREAD; id++) {
        struct llm_request r = {.method = LLM_METHOD_GENERATE, .id = id, .generate = request_of(0)};
        struct wire_enc e;
        r.generate.logprobs = true;
        r.generate.tops = LLM_TOP_LOGPROBS_MAX;
        wire_enc_init(&e, LLM_REQUEST_BYTES_MAX);
        llm_request_encode(&r, &e);
        struct iovec iov = {(void *)(uintptr_t)wire_enc_data(&e), wire_enc_len(&e)};
        struct rpc_send send = {
            .method = r.method, .iov = &iov, .iov_count = 1, .timeout_ns = HW_NEVER};
        assert_int_equal(rpc_call(ep, &send, count_outcome, o, NULL), 0);
        wire_enc_fini(&e);
    }
    assert_int_equal(rpc_flush(ep), 0);
}

/* Its texts end, and another client's goes on. */
static void a_client_that_does_not_read_loses_its_texts(void **state)
{
    (void)state;
    struct worker_server s;
    struct outcome o = {0};
    struct text t = {0};
    struct llm_generate g = request_of(0);
    struct llm_worker_options options = options_of(32 << 20);
    server_start(&s, &options);
    struct rpc_ep *ep = shake_hands(&s);
    struct llm_connection *other = join(&s);
    call_for_texts(ep, &o);
    run(other, &g, &t);
    assert_ended(&t, LLM_END_LENGTH, CONTEXT - PROMPT);
    wait_idle(other);
    assert_int_equal(o.ended, 0); /* nothing was read */
    while (o.ended < UNREAD && rpc_ep_status(ep) == 0) {
        struct rpc_msg *msg;
        (void)rpc_poll(ep);
        while ((msg = rpc_recv(ep)) != NULL)
            rpc_release(ep, msg);
        (void)rpc_flush(ep);
        (void)rpc_wait(ep, HW_SEC);
    }
    assert_int_equal(o.refused, UNREAD);
    rpc_ep_destroy(ep);
    llm_connection_close(other);
    server_stop(&s);
}

static int set_up(void **state)
{
    (void)state;
    reference_open();
    reference_generate();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    reference_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_has_the_tokens_of_a_mode),
        cmocka_unit_test(an_embedding_is_the_mean_of_the_states),
        cmocka_unit_test(pooling_takes_the_rows_that_it_names),
        cmocka_unit_test(texts_beside_each_other_have_the_tokens_of_texts_alone),
        cmocka_unit_test(a_text_continues_at_another_worker),
        cmocka_unit_test(logprobs_are_of_the_models_own_distribution),
        cmocka_unit_test(a_grammar_says_which_tokens_may_come),
        cmocka_unit_test(a_cancelled_text_leaves_within_a_step),
        cmocka_unit_test(texts_of_a_closed_connection_are_gone),
        cmocka_unit_test(a_drained_worker_gives_its_texts_back),
        cmocka_unit_test(texts_that_memory_cannot_hold_take_turns),
        cmocka_unit_test(a_clients_limit_holds_nobody_else_up),
        cmocka_unit_test(texts_that_begin_alike_are_as_alone),
        cmocka_unit_test(unfit_texts_are_refused_with_a_reason),
        cmocka_unit_test(a_worker_describes_its_models),
        cmocka_unit_test(a_dead_worker_ends_every_text),
        cmocka_unit_test(a_client_that_does_not_read_loses_its_texts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
