/* Texts that are generated: which may run, their tokens, their ends.
 *
 * A text begins when KV memory can hold what it has, beside what the texts under way have and one
 * page more for each; so long it waits, and none overtakes it.  A text alone always begins.  Memory
 * may run out all the same, since texts grow: then the youngest text gives its rows up and waits
 * again.  The oldest is never the one, so each text ends. */
#include "base/clock.h"
#include "base/grow.h"
#include "llm/model/why.h"
#include "llm/worker/impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOKENS_AHEAD = 256, /* room for generated tokens at first */
    LOSSES_MAX = 3,     /* of a text's rows: what kills a worker each time must end */
};

/* ---- a text arrives ---- */

static int check_tokens(const struct llm_worker *w, struct llm_job *job)
{
    const struct llm_generate *g = &job->request.generate;
    const struct llm_engine *engine = job->text.model->engine;
    uint32_t vocab = llm_model_vocab(job->text.model), context = llm_engine_context(engine);
    uint32_t asked = g->token_count - g->sampled; /* another worker may have begun the text */
    if (g->token_count > context)
        return llm_why(job->why, -EMSGSIZE, "the prompt has %u tokens; the context has %u",
                       g->token_count, context);
    if (asked > w->options.tokens)
        return llm_why(job->why, -EMSGSIZE, "%u tokens in a request; this worker takes %u", asked,
                       w->options.tokens);
    if (!llm_kv_share_holds(job->text.model, llm_engine_pages_for(engine, g->token_count)))
        return llm_why(job->why, -ENOSPC,
                       "a prompt of %u tokens does not fit this worker's KV memory: start it with "
                       "a larger --kv-memory",
                       g->token_count);
    for (uint32_t i = 0; i < g->token_count; i++) {
        if (g->tokens[i] >= vocab)
            return llm_why(job->why, -EINVAL, "token %u of the prompt is %u; the vocabulary has %u",
                           i, g->tokens[i], vocab);
    }
    return 0;
}

static int load_grammar(struct llm_job *job)
{
    const char *text = job->request.generate.grammar;
    struct llm_text *t = &job->text;
    struct llm_model *m = t->model;
    char cause[LLM_WHY_CHARS];
    if (!m->vocab)
        return llm_why(job->why, -EOPNOTSUPP, "%s has no vocabulary for a grammar", m->name);
    int rc = llm_grammar_parse(text, strlen(text), &t->grammar, cause);
    if (rc)
        return llm_why(job->why, rc == -E2BIG ? -EMSGSIZE : rc, "the grammar: %s", cause);
    rc = llm_matcher_create(t->grammar, m->pieces, &t->matcher);
    return rc ? llm_why(job->why, rc, "no memory for a grammar") : 0;
}

static int prepare_embedding(struct llm_job *job)
{
    struct llm_text *t = &job->text;
    uint32_t width = llm_engine_config(t->model->engine)->width;
    if (t->model->pooling == LLM_POOL_NONE)
        return llm_why(job->why, -EOPNOTSUPP,
                       "%s has no embeddings: its file asks for a kind of pooling that is not "
                       "known here",
                       t->model->name);
    t->sums = calloc(width, sizeof *t->sums);
    t->end.vector = malloc(width * sizeof *t->end.vector);
    return t->sums && t->end.vector ? 0 : llm_why(job->why, -ENOMEM, "no memory for a vector");
}

int llm_text_check(struct llm_worker *w, struct llm_job *job)
{
    const struct llm_generate *g = &job->request.generate;
    struct llm_text *t = &job->text;
    t->came_ns = hw_now_ns();
    t->model = llm_model_named(w, g->model, job->why);
    if (!t->model)
        return -ENOENT;
    int rc = check_tokens(w, job);
    if (rc == 0 && g->embed)
        rc = prepare_embedding(job);
    else if (rc == 0 && g->grammar)
        rc = load_grammar(job);
    if (rc)
        return rc;
    t->room = g->token_count + TOKENS_AHEAD;
    t->tokens = malloc(t->room * sizeof *t->tokens);
    if (!t->tokens)
        return llm_why(job->why, -ENOMEM, "no memory for a text");
    memcpy(t->tokens, g->tokens, g->token_count * sizeof *t->tokens);
    t->count = t->end.prompt = g->token_count;
    t->score = g->scored;
    t->scores_end = g->scored ? g->token_count - g->sampled : 0;
    return 0;
}

/* ---- a text begins ---- */

static void mask(void *user, float *logits, uint32_t vocab)
{
    llm_matcher_mask(user, logits, vocab);
}

static void accept(void *user, uint32_t token)
{
    llm_matcher_accept(user, token);
}

static const struct llm_mask_ops grammar_mask = {.mask = mask, .accept = accept};

/* The last row is always computed, for its logits, and those whose logits score a token. */
uint32_t llm_text_adopt(struct llm_worker *w, struct llm_job *job, bool parts)
{
    const struct llm_text *t = &job->text;
    struct llm_seq *seq = job->seq->seq;
    uint32_t length = llm_seq_length(seq), last = llm_text_scores(job) ? t->score : t->count;
    if (llm_job_embeds(job)) /* it needs the states of all rows */
        return 0;
    uint32_t rows = llm_seq_adopt(seq, t->tokens + length, last - 1 - length);
    if (parts)
        rows += llm_seq_adopt_part(seq, t->tokens + length + rows, last - 1 - length - rows);
    if (!t->decodes)
        job->done += rows;
    hw_counter_bump(&w->counts[LLM_COUNT_ADOPTED_ROWS], rows);
    return rows;
}

static int begin(struct llm_worker *w, struct llm_job *job)
{
    const struct llm_generate *g = &job->request.generate;
    struct llm_text *t = &job->text;
    struct llm_request r = {
        .method = LLM_METHOD_GENERATE, .tokens = t->tokens, .token_count = t->count};
    struct llm_sequence *s;
    if (g->embed)
        r.generate.embed = true;
    else
        r.wish = (struct llm_wish){.kind = LLM_WISH_TOKENS, .sampling = g->sampling};
    int rc = llm_sequence_create(w, job->client, t->model, &r, &s, job->why);
    if (rc)
        return rc;
    rc = t->matcher ? llm_sampler_set_mask(s->sampler, &grammar_mask, t->matcher) : 0;
    if (rc) {
        llm_sequence_free(w, s);
        return llm_why(job->why, rc, "no memory for a mask");
    }
    if (s->sampler)
        llm_sampler_begin(s->sampler, t->tokens, t->count, g->sampled);
    s->job = job;
    s->is_text = true;
    job->seq = s;
    job->client->texts++;
    t->number = ++w->texts_begun;
    hw_buckets_note(&t->model->notes[LLM_NOTE_WAITED], hw_now_ns() - t->came_ns);
    job->done = 0;
    t->end.shared = llm_text_adopt(w, job, false);
    if (t->end.shared == 0 && !llm_text_scores(job))
        llm_kv_look(w, job);
    if (!s->kv.looks) /* the store may have more than a part of a page */
        t->end.shared += llm_text_adopt(w, job, true);
    return 0;
}

uint32_t llm_text_pages(const struct llm_job *job)
{
    const struct llm_engine *engine = job->text.model->engine;
    uint32_t context = llm_engine_context(engine), next = job->text.count + 1;
    return llm_engine_pages_for(engine, next < context ? next : context);
}

/* Counts the texts under way, and the pages that they will take beside those in use. */
static void count_texts(struct llm_worker *w)
{
    for (struct llm_model *m = w->models; m; m = m->next) {
        m->texts = m->text_pages = 0;
        m->texts_blocked = false;
    }
    for (const struct llm_job *job = w->running.first; job; job = job->next) {
        if (!llm_job_is_text(job) || llm_text_waits(job))
            continue;
        struct llm_model *m = job->text.model;
        uint32_t has = llm_engine_pages_for(m->engine, llm_seq_length(job->seq->seq));
        m->texts++;
        m->text_pages += llm_text_pages(job) - has;
    }
}

static bool may_begin(const struct llm_worker *w, const struct llm_job *job)
{
    const struct llm_model *m = job->text.model;
    uint32_t used, all, layers = llm_engine_config(m->engine)->layers;
    llm_engine_kv_pages(m->engine, &used, &all);
    if (m->texts == 0) /* one that never fits begins, and fails */
        return !m->limit || llm_text_pages(job) <= all ||
               !llm_kv_share_holds(m, llm_text_pages(job));
    if (m->texts >= w->options.batch || w->sequence_count >= LLM_SEQUENCES_MAX)
        return false;
    return (uint64_t)used + m->text_pages + llm_text_pages(job) + (uint64_t)m->texts * layers <=
           all;
}

/* It waits for another text of its client; those of others may overtake it. */
static bool is_at_own_limit(const struct llm_worker *w, const struct llm_job *job)
{
    const struct llm_client *c = job->client;
    return !job->seq && c->texts &&
           (c->sequences >= w->options.sequences ||
            !llm_client_may_have(w, c, job->text.model, llm_text_pages(job)));
}

/* 0: it is under way, or still waits. */
static int admit(struct llm_worker *w, struct llm_job *job)
{
    struct llm_text *t = &job->text;
    bool is_others_turn = w->turn && w->turn != t->model && w->turn->device == t->model->device;
    if (is_at_own_limit(w, job) || is_others_turn)
        return 0;
    if (t->model->texts_blocked || !may_begin(w, job)) {
        t->model->texts_blocked = true;
        return 0;
    }
    int rc = job->seq ? 0 : begin(w, job);
    if (rc)
        return rc;
    t->waits = false;
    t->model->texts++;
    t->model->text_pages += llm_text_pages(job);
    return 0;
}

/* Texts that began before go first. */
static void admit_those(struct llm_worker *w, bool began,
                        void (*end)(struct llm_worker *w, struct llm_job *job, int status))
{
    struct llm_jobs jobs;
    llm_jobs_init(&jobs);
    llm_jobs_move(&w->running, &jobs);
    while (jobs.first) {
        struct llm_job *job = llm_jobs_take(&jobs);
        bool tries = llm_text_waits(job) && (job->seq != NULL) == began;
        int rc = tries ? admit(w, job) : 0;
        if (rc)
            end(w, job, rc);
        else
            llm_jobs_append(&w->running, job);
    }
}

void llm_texts_admit(struct llm_worker *w,
                     void (*end)(struct llm_worker *w, struct llm_job *job, int status))
{
    count_texts(w);
    admit_those(w, true, end);
    admit_those(w, false, end);
}

void llm_texts_publish(struct llm_worker *w)
{
    uint64_t under_way = 0, waiting = 0;
    for (const struct llm_job *job = w->running.first; job; job = job->next) {
        waiting += llm_text_waits(job);
        under_way += llm_job_is_text(job) && !llm_text_waits(job);
    }
    hw_counter_store(&w->counts[LLM_COUNT_TEXTS], under_way);
    hw_counter_store(&w->counts[LLM_COUNT_TEXTS_WAITING], waiting);
}

/* ---- memory is short ---- */

/* Without a store the rows can only be computed again. */
static bool can_give_way(const struct llm_job *job, const struct llm_model *m)
{
    return llm_job_is_text(job) && !llm_text_waits(job) && job->text.model == m &&
           !job->seq->kv.in_step && !job->seq->kv.eviction;
}

static void give_way(struct llm_worker *w, struct llm_job *job)
{
    llm_seq_truncate(job->seq->seq, 0);
    job->done = 0;
    if (!job->text.decodes)       /* else its prompt was computed, and is not counted again */
        job->text.end.shared = 0; /* what it adopts when it comes back is counted again */
    job->text.waits = true;
    if (job->text.sums)
        memset(job->text.sums, 0,
               llm_engine_config(job->text.model->engine)->width * sizeof *job->text.sums);
    hw_counter_bump(&w->counts[LLM_COUNT_PREEMPTED], 1);
}

/* The youngest text with rows, younger than `number`, that is not `but`. */
static struct llm_job *youngest(const struct llm_worker *w, const struct llm_model *m,
                                uint64_t number, const struct llm_job *but)
{
    struct llm_job *found = NULL;
    for (const struct llm_sequence *s = w->sequences; s; s = s->next) {
        struct llm_job *job = s->job;
        if (job && job != but && can_give_way(job, m) && llm_seq_length(s->seq) > 0 &&
            job->text.number > number) {
            found = job;
            number = job->text.number;
        }
    }
    return found;
}

bool llm_texts_give_way(struct llm_worker *w, const struct llm_model *m)
{
    struct llm_job *victim = youngest(w, m, 0, NULL);
    if (victim)
        give_way(w, victim);
    return victim != NULL;
}

bool llm_texts_make_room(struct llm_worker *w, const struct llm_job *job)
{
    uint64_t number = llm_job_is_text(job) ? job->text.number : 0;
    struct llm_job *victim = youngest(w, job->seq->model, number, job);
    if (!victim)
        return false;
    give_way(w, victim);
    return true;
}

bool llm_text_gives_way(struct llm_worker *w, struct llm_job *job)
{
    if (!llm_job_is_text(job) || !can_give_way(job, job->text.model) ||
        !youngest(w, job->text.model, 0, job))
        return false;
    give_way(w, job);
    return true;
}

bool llm_text_lost(struct llm_worker *w, struct llm_job *job, int status)
{
    if (status != -ENODATA || !llm_job_is_text(job) || job->seq->kv.eviction ||
        job->text.losses == LOSSES_MAX)
        return false;
    job->text.losses++;
    give_way(w, job);
    return true;
}

uint32_t llm_text_behind(const struct llm_job *job)
{
    return job->text.count - 1 - llm_seq_length(job->seq->seq);
}

/* ---- tokens ---- */

static struct llm_push *push_of(struct llm_worker *w, struct llm_client *c)
{
    if (c->push)
        return c->push;
    struct llm_push *push = calloc(1, sizeof *push);
    if (!push)
        return NULL;
    push->client = c;
    wire_enc_init(&push->message, LLM_REQUEST_BYTES_MAX);
    *w->pushes.end = push;
    w->pushes.end = &push->next;
    return c->push = push;
}

static int push_token(struct llm_worker *w, struct llm_job *job, uint32_t token,
                      const float *logits)
{
    const struct llm_generate *g = &job->request.generate;
    struct llm_logprob top[LLM_TOP_LOGPROBS_MAX];
    struct llm_generated generated = {.token = token, .top = top};
    struct llm_push *push = push_of(w, job->client);
    if (!push)
        return -ENOMEM;
    if (g->logprobs)
        generated.top_count = llm_logprobs(logits, llm_model_vocab(job->text.model), token,
                                           &generated.logprob, top, g->tops);
    uint32_t tops = g->logprobs ? 1 + generated.top_count : 0;
    llm_group_put(&push->message, job->request.id, tops, 1);
    llm_generated_put(&push->message, tops, &generated);
    return wire_enc_error(&push->message);
}

int llm_text_score(struct llm_worker *w, struct llm_job *job, const struct llm_generated *scores,
                   uint32_t count)
{
    uint32_t tops = 1 + scores->top_count;
    struct llm_push *push = push_of(w, job->client);
    assert(count <= job->text.scores_end - job->text.score);
    if (push) {
        llm_group_put(&push->message, job->request.id, tops, count);
        for (uint32_t i = 0; i < count; i++)
            llm_generated_put(&push->message, tops, &scores[i]);
    }
    job->text.score += count;
    job->text.end.generated += count;
    int rc = push ? wire_enc_error(&push->message) : -ENOMEM;
    return rc ? llm_why(job->why, rc, "no memory for a score") : 0;
}

static int append(struct llm_text *t, uint32_t token)
{
    if (!hw_grow(&t->tokens, &t->room, (size_t)t->count + 1, sizeof *t->tokens))
        return -ENOMEM;
    t->tokens[t->count++] = token;
    return 0;
}

static bool ends_text(const struct llm_job *job, uint32_t token)
{
    const struct llm_generate *g = &job->request.generate;
    for (uint32_t i = 0; i < g->stop_count; i++) {
        if (g->stops[i] == token)
            return true;
    }
    const struct llm_vocab *vocab = job->text.model->vocab;
    return g->stop_at_end && vocab && token < llm_vocab_size(vocab) && llm_vocab_ends(vocab, token);
}

static int over(struct llm_job *job, enum llm_end reason)
{
    job->text.end.reason = reason;
    return 1;
}

int llm_text_add(struct llm_worker *w, struct llm_job *job, uint32_t token, const float *logits)
{
    const struct llm_generate *g = &job->request.generate;
    struct llm_text *t = &job->text;
    uint32_t scored = t->score - g->scored;
    if (g->scored && g->most == 0)
        return over(job, LLM_END_LENGTH);
    if (ends_text(job, token)) {
        t->end.token = token;
        return over(job, LLM_END_STOP);
    }
    int rc = append(t, token);
    if (rc == 0)
        rc = push_token(w, job, token, logits);
    if (rc)
        return llm_why(job->why, rc, "no memory for a token");
    job->seq->last = token;
    t->decodes = true;
    t->end.generated++;
    hw_counter_bump(&w->counts[LLM_COUNT_GENERATED], 1);
    if (t->end.generated - scored == g->most || t->count >= llm_engine_context(t->model->engine))
        return over(job, LLM_END_LENGTH);
    return 0;
}

int llm_text_embed(struct llm_job *job, const float *states, uint32_t rows)
{
    struct llm_text *t = &job->text;
    uint32_t width = llm_engine_config(t->model->engine)->width;
    assert(rows <= job->done && job->done <= t->count);
    llm_pool_add(t->model->pooling, t->sums, states, width, job->done - rows, rows, t->count);
    if (job->done < t->count)
        return 0;
    llm_pool_finish(t->sums, width, t->end.vector);
    t->end.width = width;
    return over(job, LLM_END_EMBEDDED);
}

int llm_text_review(struct llm_worker *w, struct llm_job *job)
{
    if (atomic_load_explicit(&job->client->unread, memory_order_relaxed))
        return llm_why(job->why, -ENOBUFS, "the client does not read what is pushed to it");
    if (atomic_load_explicit(&job->cancelled, memory_order_relaxed))
        return over(job, LLM_END_CANCELLED);
    if (job->request.generate.stays)
        return 0;
    if (atomic_load_explicit(&w->draining, memory_order_relaxed))
        return over(job, LLM_END_DRAINED);
    if (atomic_load_explicit(&w->incomplete, memory_order_relaxed))
        return over(job, LLM_END_INCOMPLETE);
    return 0;
}

void llm_text_end(struct llm_job *job)
{
    assert(job->text.end.reason);
    llm_end_put(&job->answer, &job->text.end);
}

void llm_text_fini(struct llm_job *job)
{
    free(job->text.tokens);
    free(job->text.sums);
    llm_end_fini(&job->text.end);
    llm_matcher_destroy(job->text.matcher);
    llm_grammar_destroy(job->text.grammar);
    job->text = (struct llm_text){0};
}
