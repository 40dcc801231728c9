/* Steps: rows of many requests computed together.  A text (text.c) is first a prompt, then decodes.
 *
 * A step has one row of each request that decodes and, within a budget, the next rows of prompts.
 * Requests join before any step and leave after any.  After a step its requests go to the end of
 * the line, so that all take turns when not all fit; but prompts of texts are computed in the order
 * they came.  A step is of one model: that of the request which waited longest.  Requests that
 * embed have steps of their own, in turn with the others.
 *
 * What can fail for one request is checked before the step: tokens and length when the request
 * begins, KV pages when its rows are chosen.  A step that fails all the same, for want of memory or
 * because of the device, is repeated request by request. */
#include "base/clock.h"
#include "base/log.h"
#include "llm/model/why.h"
#include "llm/worker/impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static_assert(LLM_WORKER_BATCH_MAX + LLM_WORKER_MIXED_MAX <= LLM_WORKER_STEP_ROWS,
              "a step that decodes is no larger than one that does not");

/* One request's rows in a step: rows first to first + rows of the step. */
struct part {
    struct llm_job *job;
    uint32_t first, rows;
    uint32_t pick;   /* index of its first row of logits */
    uint32_t scores; /* so many of those score tokens; the next one is of its last row */
    uint32_t first_score;
    const float *score_logits, *logits;
    uint32_t token; /* sampled from them */
    bool yields;    /* logits, of its last row */
    bool decodes;   /* else the rows are of a prompt, or computed again */
    int status;
    struct llm_sequence *noted; /* to note in kv_eviction after the answer; NULL: none */
    struct llm_sequence *over;  /* of a text that ended: to free after the answer */
};

struct plan {
    struct llm_model *model;
    bool embeds; /* all its parts do, or none */
    bool full;   /* of prompts: some had to wait for another step */
    struct part parts[LLM_WORKER_BATCH_MAX];
    uint32_t score_count, score_room;
    struct llm_generated scores[LLM_WORKER_SCORES_MAX];
    struct llm_logprob tops[LLM_WORKER_SCORES_MAX][LLM_TOP_LOGPROBS_MAX];
    uint32_t score_parts[LLM_WORKER_SCORES_MAX];
    uint32_t part_count, pick_count;
    uint32_t row_count, prompt_rows; /* prompt_rows of row_count */
    struct llm_row rows[LLM_WORKER_STEP_ROWS];
};

bool llm_job_decodes(const struct llm_job *job)
{
    return job->request.method == LLM_METHOD_DECODE_HANDLE ||
           job->request.method == LLM_METHOD_DECODE_SEMANTIC ||
           (llm_job_is_text(job) && job->text.decodes);
}

/* Rows of a decode that its sequence has lost. */
static uint32_t rows_behind(const struct llm_job *job)
{
    return llm_job_is_text(job) ? llm_text_behind(job) : llm_kv_behind(job->seq);
}

/* A decode whose sequence lacks rows first computes those. */
static bool decodes_now(const struct llm_job *job)
{
    return llm_job_decodes(job) && rows_behind(job) == 0;
}

bool llm_job_steps(const struct llm_job *job)
{
    return llm_job_decodes(job) || llm_job_is_text(job) ||
           job->request.method == LLM_METHOD_PREFILL_HANDLE ||
           job->request.method == LLM_METHOD_PREFILL_SEMANTIC;
}

/* It has a sequence and may use it. */
static bool is_ready(const struct llm_job *job)
{
    return job->seq && llm_job_steps(job) && !job->seq->model->is_away &&
           !job->seq->model->is_aside && !llm_text_waits(job) && !job->seq->kv.looks &&
           !job->seq->kv.evicts;
}

/* The tokens of a prompt. */
static const uint32_t *prompt_of(const struct llm_job *job, uint32_t *count)
{
    *count = llm_job_is_text(job) ? job->text.count : job->request.token_count;
    return llm_job_is_text(job) ? job->text.tokens : job->request.tokens;
}

/* ---- beginning ---- */

int llm_worker_check_prompt(const struct llm_worker *w, struct llm_job *job,
                            const struct llm_engine *engine)
{
    const struct llm_request *r = &job->request;
    uint32_t vocab = llm_engine_config(engine)->vocab;
    uint64_t end = (uint64_t)r->positions + r->token_count;
    if (r->token_count > w->options.tokens)
        return llm_why(job->why, -EMSGSIZE, "%u tokens in a request; this worker takes %u",
                       r->token_count, w->options.tokens);
    if (end > llm_engine_context(engine))
        return llm_why(job->why, -ERANGE, "the prompt ends at position %llu; the context has %u",
                       (unsigned long long)end, llm_engine_context(engine));
    for (uint32_t i = 0; i < r->token_count; i++) {
        if (r->tokens[i] >= vocab)
            return llm_why(job->why, -EINVAL, "token %u of the prompt is %u; the vocabulary has %u",
                           i, r->tokens[i], vocab);
    }
    return 0;
}

static int begin_prefill(struct llm_worker *w, struct llm_job *job)
{
    struct llm_sequence *s;
    int rc = llm_sequence_create(w, job->client, NULL, &job->request, &s, job->why);
    if (rc)
        return rc;
    rc = llm_worker_check_prompt(w, job, s->model->engine);
    if (rc == 0 &&
        !llm_client_may_have(w, job->client, s->model,
                             llm_engine_pages_for(s->model->engine, job->request.token_count)))
        rc = llm_why(job->why, -ENOSPC,
                     "this client has its share of the KV memory: release a sequence");
    if (rc) {
        llm_sequence_free(w, s);
        return rc;
    }
    s->job = job;
    job->seq = s;
    llm_kv_look(w, job);
    return 0;
}

static int check_decode(const struct llm_worker *w, struct llm_job *job,
                        const struct llm_sequence *s)
{
    bool by_handle = job->request.method == LLM_METHOD_DECODE_HANDLE;
    uint32_t value = job->request.value, vocab = llm_model_vocab(s->model);
    uint32_t most = w->options.tokens < LLM_GENERATE_MAX ? w->options.tokens : LLM_GENERATE_MAX;
    if (by_handle != (s->wish.kind == 0))
        return llm_why(
            job->why, -EINVAL, "%s: the sequence was begun by %s",
            llm_method_name(job->request.method),
            llm_method_name(by_handle ? LLM_METHOD_PREFILL_SEMANTIC : LLM_METHOD_PREFILL_HANDLE));
    if (s->wish.kind == LLM_WISH_TOKENS && (value == 0 || value > most))
        return llm_why(job->why, -EMSGSIZE, "%u tokens asked for; a request may ask for 1 to %u",
                       value, most);
    if (s->wish.kind != LLM_WISH_TOKENS && value >= vocab)
        return llm_why(job->why, -EINVAL, "token %u; the vocabulary has %u", value, vocab);
    return 0;
}

/* -EAGAIN: the sequence's other request takes the next step first. */
static int begin_decode(struct llm_worker *w, struct llm_job *job)
{
    struct llm_sequence *s;
    int rc = job->request.method == LLM_METHOD_DECODE_HANDLE ? llm_sequence_by_handle(w, job, &s)
                                                             : llm_sequence_by_id(w, job, &s);
    if (rc)
        return rc;
    if (s->job && s->job->done == 0)
        return -EAGAIN;
    rc = llm_sequence_is_free(s, job);
    if (rc)
        return rc;
    rc = check_decode(w, job, s);
    if (rc)
        return rc;
    s->job = job;
    job->seq = s;
    return 0;
}

/* ---- ending ---- */

/* The job lets go of its sequence, and of its place among the client's texts. */
static struct llm_sequence *detach(struct llm_job *job)
{
    struct llm_sequence *s = job->seq;
    if (s) {
        s->job = NULL;
        job->client->texts -= llm_job_is_text(job);
    }
    job->seq = NULL;
    return s;
}

static void end(struct llm_worker *w, struct llm_job *job, int status)
{
    bool usable =
        !llm_job_is_text(job) && (status == 0 || llm_job_decodes(job) || !llm_job_steps(job));
    struct llm_sequence *s = detach(job);
    if (s && !usable) /* nobody has a text's handle, or can use a half-computed prompt */
        llm_sequence_free(w, s);
    llm_kv_adopt_end(w, job);
    if (llm_job_is_text(job) && status == 0)
        llm_text_end(job);
    job->status = status;
    llm_jobs_append(&w->done, job);
}

static void fail(struct llm_worker *w, struct llm_job *job, int status)
{
    bool some = !llm_job_is_text(job) && llm_job_decodes(job) && job->done > 0;
    end(w, job, some ? 0 : status); /* the answer is what there is; the next request fails */
}

static int review_one(struct llm_worker *w, struct llm_job *job)
{
    if (atomic_load_explicit(&job->client->gone, memory_order_relaxed))
        return -ECANCELED;
    int rc = 0;
    if (!llm_job_steps(job)) {
        rc = llm_worker_respond(w, job);
        return rc ? rc : 1;
    }
    if (llm_job_is_text(job))
        rc = llm_text_review(w, job);
    if (rc == 0 && job->seq)
        (void)llm_kv_is_busy(w, job->seq);
    if (job->seq || llm_job_is_text(job))
        return rc;
    return llm_job_decodes(job) ? begin_decode(w, job) : begin_prefill(w, job);
}

/* Ends requests whose client is gone or lost interest; begins new ones. */
static void review(struct llm_worker *w)
{
    struct llm_jobs jobs;
    llm_jobs_init(&jobs);
    llm_jobs_move(&w->running, &jobs);
    llm_kv_go_on(w);
    while (jobs.first) {
        struct llm_job *job = llm_jobs_take(&jobs);
        int rc = review_one(w, job);
        if (rc == 0 || rc == -EAGAIN)
            llm_jobs_append(&w->running, job);
        else
            end(w, job, rc < 0 ? rc : 0);
    }
    llm_texts_admit(w, end);
}

/* ---- planning a step ---- */

/* Grows the room for logits to `rows` rows, or keeps what there is.  How many rows there are. */
static uint32_t logits_room(struct llm_model *m, uint32_t rows)
{
    if (rows > m->logits_rows) {
        size_t row_bytes = llm_model_vocab(m) * sizeof *m->logits;
        float *larger = realloc(m->logits, rows * row_bytes);
        if (larger) {
            m->logits = larger;
            m->logits_rows = rows;
        }
    }
    return rows < m->logits_rows ? rows : m->logits_rows;
}

/* Running requests of the model; how many of them miss no layer, how many of those decode, and
 * whether some are scored. */
static uint32_t count_jobs(const struct llm_worker *w, const struct llm_model *m, uint32_t *whole,
                           uint32_t *decoding, bool *scores)
{
    uint32_t count = 0;
    *whole = *decoding = 0;
    *scores = false;
    for (const struct llm_job *job = w->running.first; job; job = job->next) {
        if (!is_ready(job) || job->seq->model != m)
            continue;
        bool is_whole = llm_kv_is_whole(job->seq);
        count++;
        *whole += is_whole;
        *decoding += is_whole && decodes_now(job);
        *scores |= llm_text_scores(job);
    }
    return count < w->options.batch ? count : w->options.batch;
}

/* Rows of prompts in a step, and how many it may have if that finishes a prompt. */
struct budget {
    uint32_t rows, most;
};

/* Of the next step.  A client that asks for one token at a time has no request when the next step
 * is planned; so a recent decode counts as decoding.  Half of a step is for prompts: one row of
 * them for each that decodes, beside those that take as long as all that a step costs without rows.
 */
static struct budget prompt_budget(const struct llm_worker *w, const struct llm_model *m,
                                   uint32_t decoding)
{
    const uint32_t fixed = w->options.mixed_rows, all = llm_engine_batch_rows(m->engine);
    if (!decoding && hw_now_ns() - m->decoded_ns > LLM_WORKER_RECENT_NS)
        return (struct budget){.rows = all, .most = all};
    if (fixed)
        return (struct budget){.rows = fixed, .most = fixed};
    if (decoding && m->mixed_steps >= LLM_WORKER_LOOK_AGAIN)
        return (struct budget){0};
    uint32_t rows = m->mixed_rows + decoding, most = rows + rows / 2;
    return (struct budget){.rows = rows < LLM_WORKER_MIXED_MAX ? rows : LLM_WORKER_MIXED_MAX,
                           .most = most < LLM_WORKER_MIXED_MAX ? most : LLM_WORKER_MIXED_MAX};
}

/* After a step that decoded: doubles or halves the rows of prompts until a step takes about
 * LLM_WORKER_STRETCH times a decode, or has room for all.  Short prompts may leave a part of the
 * rows unused, since none is begun with a few. */
static void tune(struct llm_model *m, uint32_t prompt_rows, bool full, uint64_t step_ns)
{
    uint64_t most_ns = LLM_WORKER_STRETCH * m->decode_ns;
    uint32_t half = m->mixed_rows / 2, twice = m->mixed_rows * 2;
    m->mixed_steps++;
    if (prompt_rows == 0) {
        m->decode_ns = step_ns;
        m->mixed_steps = 0;
    } else if (step_ns > most_ns) {
        m->mixed_rows = half > LLM_WORKER_MIXED_MIN ? half : LLM_WORKER_MIXED_MIN;
    } else if (full && step_ns < most_ns - most_ns / 4) {
        m->mixed_rows = twice < LLM_WORKER_MIXED_MAX ? twice : LLM_WORKER_MIXED_MAX;
    }
}

/* Of a prompt, or that are computed again. */
static uint32_t rows_left(const struct llm_job *job)
{
    uint32_t count;
    (void)prompt_of(job, &count);
    return llm_job_decodes(job) ? rows_behind(job) : count - job->done;
}

/* Rows of the job in a step that has so many rows of prompts.  A prompt that nearly fits is
 * finished, so that its first token does not wait for another step; a prompt is not begun with a
 * few rows. */
static uint32_t rows_for(const struct llm_job *job, struct budget budget, uint32_t prompt_rows)
{
    if (decodes_now(job))
        return 1;
    uint32_t left = rows_left(job),
             room = budget.rows > prompt_rows ? budget.rows - prompt_rows : 0;
    if (llm_text_scores(job) && left > LLM_WORKER_SCORES_MAX)
        left = LLM_WORKER_SCORES_MAX;
    if (prompt_rows + left <= budget.most)
        return left;
    room = prompt_rows && room < LLM_WORKER_MIXED_MIN ? 0 : room;
    return room < left ? room : left;
}

/* Token `at` of the request is to be scored: the row before it has logits. */
static bool is_scored(const struct llm_job *job, uint32_t at)
{
    return llm_text_scores(job) && at >= job->text.score && at < job->text.scores_end;
}

static struct llm_row row_at(const struct llm_job *job, uint32_t i)
{
    const struct llm_request *r = &job->request;
    struct llm_sequence *s = job->seq;
    uint32_t at = job->done + i, count;
    const uint32_t *tokens = prompt_of(job, &count);
    if (!llm_job_decodes(job))
        return (struct llm_row){.seq = s->seq,
                                .token = tokens[at],
                                .logits = (at + 1 == count && !llm_job_embeds(job)) ||
                                          is_scored(job, at + 1)};
    if (!decodes_now(job) && llm_job_is_text(job))
        return (struct llm_row){.seq = s->seq, .token = tokens[llm_seq_length(s->seq) + i]};
    if (!decodes_now(job))
        return (struct llm_row){.seq = s->seq, .token = llm_kv_token(s, i)};
    return (struct llm_row){.seq = s->seq,
                            .token = s->wish.kind == LLM_WISH_TOKENS ? s->last : r->value,
                            .logits = true};
}

/* Without the rows: most are not used. */
static void plan_clear(struct plan *p)
{
    p->model = NULL;
    p->embeds = p->full = false;
    p->part_count = p->pick_count = p->row_count = p->prompt_rows = p->score_count = 0;
}

static void plan_add(struct plan *p, struct llm_job *job, uint32_t rows)
{
    assert(rows > 0 && p->row_count + rows <= LLM_WORKER_STEP_ROWS);
    struct part *part = &p->parts[p->part_count++];
    *part = (struct part){.job = job,
                          .first = p->row_count,
                          .rows = rows,
                          .pick = p->pick_count,
                          .first_score = p->score_count};
    for (uint32_t i = 0; i < rows; i++) {
        p->rows[p->row_count++] = row_at(job, i);
        if (llm_job_decodes(job) || !is_scored(job, job->done + i + 1))
            continue;
        p->score_parts[p->score_count] = p->part_count - 1;
        p->scores[p->score_count++] =
            (struct llm_generated){.token = job->text.tokens[job->done + i + 1]};
        part->scores++;
    }
    part->decodes = decodes_now(job);
    part->yields =
        p->rows[p->row_count - 1].logits && (part->decodes || !is_scored(job, job->done + rows));
    p->pick_count += part->scores + part->yields;
    p->prompt_rows += part->decodes ? 0 : rows;
}

static int reserve(struct llm_worker *w, struct llm_job *job, uint32_t rows)
{
    struct llm_seq *seq = job->seq->seq;
    struct llm_model *m = job->seq->model;
    int rc;
    job->seq->kv.in_step = true;
    do {
        do
            rc = llm_seq_reserve(seq, llm_seq_length(seq) + rows, job->why);
        while (rc == -ENOMEM && llm_weights_make_room(w, m->device, m));
        if (rc == -ENOMEM && llm_kv_share_refused(w, job))
            rc = -ENOSPC;
    } while (rc == -ENOSPC && (llm_kv_make_room(w, m) || llm_texts_make_room(w, job)));
    job->seq->kv.in_step = rc == 0;
    return rc;
}

/* The oldest text of the plan that began after `number`, and has rows of a prompt to compute. */
static const struct llm_job *next_prompt(const struct llm_worker *w, const struct plan *p,
                                         uint64_t number)
{
    const struct llm_job *next = NULL;
    for (const struct llm_job *job = w->running.first; job; job = job->next) {
        if (is_ready(job) && job->seq->model == p->model && llm_job_is_text(job) &&
            llm_job_embeds(job) == p->embeds && !decodes_now(job) && llm_kv_is_whole(job->seq) &&
            job->text.number > number && (!next || job->text.number < next->text.number))
            next = job;
    }
    return next;
}

/* The number of the last text whose prompt the step can compute, and the rows before its own.
 * Prompts in turns would all end late: of many that come at once none would have its first token in
 * time. */
static uint64_t last_prompt(const struct llm_worker *w, const struct plan *p, struct budget budget,
                            uint32_t *before)
{
    uint64_t number = 0;
    *before = 0;
    for (uint32_t rows = 0, more = 1; rows < budget.rows && more; rows += more) {
        const struct llm_job *next = next_prompt(w, p, number);
        if (!next)
            return UINT64_MAX;
        number = next->text.number;
        *before = rows;
        more = rows_for(next, budget, rows);
    }
    return number;
}

/* The request that waited longest, of those whose like this round of planning has not tried. */
static const struct llm_job *first_untried(struct llm_worker *w)
{
    const struct llm_job *job = w->running.first;
    while (job && (!is_ready(job) || job->seq->model->planned[llm_job_embeds(job)] == w->plans))
        job = job->next;
    if (job)
        job->seq->model->planned[llm_job_embeds(job)] = w->plans;
    return job;
}

/* Another text may have computed the next rows of these since. */
static void adopt_rows(struct llm_worker *w, const struct plan *p)
{
    for (struct llm_job *job = w->running.first; job; job = job->next) {
        if (!is_ready(job) || job->seq->model != p->model || !llm_job_is_text(job) ||
            decodes_now(job))
            continue;
        uint32_t adopted = llm_text_adopt(w, job, true);
        job->text.end.shared += job->text.decodes ? 0 : adopted;
    }
}

/* How many tokens two requests have in common, of the first `most`. */
static uint32_t common_tokens(const struct llm_job *a, const struct llm_job *b, uint32_t most)
{
    uint32_t n = 0, a_count, b_count;
    const uint32_t *of_a = prompt_of(a, &a_count), *of_b = prompt_of(b, &b_count);
    most = most < a_count ? most : a_count;
    most = most < b_count ? most : b_count;
    while (n < most && of_a[n] == of_b[n])
        n++;
    return n;
}

/* The step computes half of the rows that this text would compute, or more, for another one: it
 * takes them after the step. */
static bool waits_for_rows(const struct plan *p, const struct llm_job *job, uint32_t rows)
{
    if (!llm_job_is_text(job) || decodes_now(job) || llm_job_embeds(job) || llm_text_scores(job) ||
        !llm_seq_may_share(job->seq->seq))
        return false;
    uint32_t has = llm_seq_length(job->seq->seq), most = job->text.count - 1;
    uint32_t enough = has + (rows / 2 > LLM_PART_MIN ? rows / 2 : LLM_PART_MIN);
    for (uint32_t i = 0; i < p->part_count; i++) {
        const struct part *part = &p->parts[i];
        uint32_t end = llm_seq_length(part->job->seq->seq) + part->rows;
        if (!part->decodes && llm_seq_may_share(part->job->seq->seq) &&
            common_tokens(part->job, job, end < most ? end : most) >= enough)
            return true;
    }
    return false;
}

/* A round of planning: rows of requests of one model and kind. */
struct round {
    struct budget budget;
    uint32_t most;   /* requests in the step */
    uint32_t whole;  /* requests of the model that miss no layer */
    uint64_t last;   /* the number of the last text whose prompt the step computes */
    uint32_t before; /* prompt rows that come before it */
    bool waits;      /* some request waits for its layers */
    struct llm_jobs rest,
        later; /* requests that have no rows in the step, and those after `last` */
};

static void round_begin(struct llm_worker *w, struct plan *p, struct round *r)
{
    bool scores;
    uint32_t decoding;
    *r = (struct round){0};
    r->most = count_jobs(w, p->model, &r->whole, &decoding, &scores);
    r->budget = prompt_budget(w, p->model, decoding);
    if (p->embeds && r->budget.rows < LLM_WORKER_MIXED_MIN)
        r->budget = (struct budget){.rows = LLM_WORKER_MIXED_MIN, .most = LLM_WORKER_MIXED_MIN};
    if (!p->embeds) {
        uint32_t room = logits_room(p->model, r->most + (scores ? LLM_WORKER_SCORES_MAX : 0));
        p->score_room = room > r->most ? room - r->most : 0;
        r->most = room < r->most ? room : r->most;
    }
    r->last = last_prompt(w, p, r->budget, &r->before);
    llm_jobs_init(&r->rest);
    llm_jobs_init(&r->later);
}

/* Whether a request without room may wait for it. */
static bool waits_for_room(struct llm_worker *w, const struct plan *p, const struct round *r,
                           struct llm_job *job)
{
    if (p->part_count > 0 || r->waits ? llm_kv_may_wait(w) || llm_job_is_text(job)
                                      : llm_text_gives_way(w, job) || llm_kv_must_wait(w))
        return true;                   /* until sequences of this step can be evicted */
    return llm_kv_share_waits(w, job); /* until other models have given memory back */
}

/* Puts a request, for whose rows memory was asked with this result, into the plan or back in line.
 */
static void round_place(struct llm_worker *w, struct plan *p, struct round *r, struct llm_job *job,
                        uint32_t rows, int rc)
{
    uint32_t length = rows ? llm_seq_length(job->seq->seq) : 0;
    bool fetches = rc == 0 && rows && llm_kv_waits(w, job);
    if (length && llm_seq_length(job->seq->seq) < length) {
        llm_jobs_put_first(&w->running, job); /* rows and their pages are lost: it needs more */
    } else if (fetches) {
        /* Where others can take the step they may take its pages; else it comes first. */
        job->seq->kv.in_step = r->whole == 0;
        r->waits = true;
        llm_jobs_append(&r->rest, job); /* until its layers have arrived */
    } else if (rc == -EAGAIN || (rc == -ENOSPC && waits_for_room(w, p, r, job))) {
        llm_jobs_append(&r->rest, job); /* EAGAIN: until a server that was just lost is reached */
    } else if (rc) {
        if (rc == -ENOSPC && llm_job_is_text(job))
            (void)llm_why(job->why, rc,
                          "after %u tokens the text does not fit this worker's KV memory: start "
                          "it with a larger --kv-memory",
                          job->text.count);
        fail(w, job, rc);
    } else if (rows) {
        job->short_ns = 0;
        plan_add(p, job, rows);
    } else {
        llm_jobs_append(&r->rest, job);
    }
}

/* Decides how many rows of a request are in the step, and asks for their memory. */
static void round_take(struct llm_worker *w, struct plan *p, struct round *r, struct llm_job *job)
{
    bool fits = is_ready(job) && job->seq->model == p->model && p->part_count < r->most &&
                llm_job_embeds(job) == p->embeds;
    if (fits && llm_job_is_text(job) && !decodes_now(job) && job->text.number > r->last) {
        llm_jobs_append(&r->later, job); /* as if the step had it: others have their turn */
        p->full = true;
        return;
    }
    if (fits)
        llm_kv_prepare(w, job);
    uint32_t planned = p->prompt_rows;
    if (llm_job_is_text(job) && job->text.number == r->last && planned < r->before)
        planned = r->before; /* the others come before it, wherever they are in line */
    uint32_t rows = fits ? rows_for(job, r->budget, planned) : 0;
    if (rows && waits_for_rows(p, job, rows)) {
        llm_jobs_append(&r->rest, job);
        return;
    }
    p->full |= fits && !decodes_now(job) && rows < rows_left(job);
    rows = p->row_count + rows <= LLM_WORKER_STEP_ROWS ? rows : 0;
    int rc = 0;
    if (fits && llm_text_scores(job)) {
        uint32_t left = p->score_room - p->score_count;
        rows = rows < left ? rows : left;
        rc = p->score_room ? 0 : llm_why(job->why, -ENOMEM, "no memory for logits of a prompt");
    }
    if (rc == 0 && rows)
        rc = reserve(w, job, rows);
    round_place(w, p, r, job, rows, rc);
}

/* Plans rows of requests like this one. */
static void plan_like(struct llm_worker *w, struct plan *p, const struct llm_job *first)
{
    struct round r;
    plan_clear(p);
    p->model = first->seq->model;
    p->embeds = llm_job_embeds(first);
    adopt_rows(w, p);
    round_begin(w, p, &r);
    while (w->running.first)
        round_take(w, p, &r, llm_jobs_take(&w->running));
    llm_jobs_move(&r.rest, &w->running);
    llm_jobs_move(&r.later, &w->running);
}

/* A plan without rows: all of those wait for memory or the store. */
static void plan_make(struct llm_worker *w, struct plan *p)
{
    const struct llm_job *first;
    plan_clear(p);
    w->plans++;
    w->kv.waits = false;
    for (struct llm_job *job = w->running.first; job; job = job->next) {
        if (job->seq)
            job->seq->kv.in_step = false;
    }
    while (p->part_count == 0 && (first = first_untried(w)))
        plan_like(w, p, first);
}

/* ---- the step ---- */

static void count_step(struct llm_worker *w, const struct part *parts, uint32_t count,
                       uint32_t rows, uint64_t step_ns, uint64_t kernel_ns)
{
    struct hw_buckets *notes = parts->job->seq->model->notes;
    hw_buckets_note(&notes[LLM_NOTE_SEQUENCES], count);
    hw_buckets_note(&notes[LLM_NOTE_ROWS], rows);
    hw_counter_bump(&w->counts[LLM_COUNT_STEPS], 1);
    hw_counter_bump(&w->counts[LLM_COUNT_ROWS], rows);
    hw_counter_bump(&w->counts[LLM_COUNT_PARTS], count);
    hw_counter_bump(&w->counts[LLM_COUNT_STEP_NS], step_ns);
    hw_counter_bump(&w->counts[LLM_COUNT_KERNEL_NS], kernel_ns);
    for (uint32_t i = 0; i < count; i++) {
        struct llm_client *c = parts[i].job->client;
        if (!parts[i].decodes)
            hw_counter_bump(&w->counts[LLM_COUNT_PROMPT_ROWS], parts[i].rows);
        c->steps++; /* a step's time is divided by rows: the clients' add up to the worker's */
        c->step_ns += step_ns * parts[i].rows / rows;
        c->kernel_ns += kernel_ns * parts[i].rows / rows;
    }
}

/* Parts that embed: a step yields logits or states. */
static int embed(struct plan *p, const struct part *parts, uint32_t rows, char *why)
{
    struct llm_model *m = p->model;
    size_t width = llm_engine_config(m->engine)->width;
    if (!m->states)
        m->states = malloc(LLM_WORKER_STEP_ROWS * width * sizeof *m->states);
    if (!m->states)
        return llm_why(why, -ENOMEM, "no memory for hidden states");
    return llm_engine_step_states(m->engine, p->rows + parts->first, rows,
                                  m->states + parts->first * width, why);
}

static int compute(struct llm_worker *w, struct plan *p, struct part *parts, uint32_t count,
                   uint32_t rows, char *why)
{
    struct llm_model *m = p->model;
    size_t vocab = llm_model_vocab(m);
    if (p->embeds)
        return embed(p, parts, rows, why);
    struct llm_sequence *seqs[LLM_WORKER_BATCH_MAX];
    for (uint32_t i = 0; i < count; i++)
        seqs[i] = parts[i].job->seq;
    llm_kv_step(w, seqs, count);
    uint64_t began = hw_now_ns();
    /* Logits stay where they are if no other step comes before they are used. */
    float *room = m->logits + parts->pick * vocab;
    const float *at = room;
    int rc = count == p->part_count
                 ? llm_engine_step_at(m->engine, p->rows + parts->first, rows, room, &at, why)
                 : llm_engine_step(m->engine, p->rows + parts->first, rows, room, why);
    if (rc == 0)
        llm_kv_timed(w, m, rows, hw_now_ns() - began);
    for (uint32_t i = 0; i < count; i++) {
        parts[i].score_logits = at + (parts[i].pick - parts->pick) * vocab;
        parts[i].logits = parts[i].score_logits + parts[i].scores * vocab;
    }
    return rc;
}

/* Computes adjacent parts of the plan. */
static int run(struct llm_worker *w, struct plan *p, uint32_t first, uint32_t count, char *why)
{
    struct part *parts = &p->parts[first];
    const struct part *last = &parts[count - 1];
    uint32_t rows = last->first + last->rows - parts->first;
    uint64_t began = hw_now_ns();
    int rc = compute(w, p, parts, count, rows, why);
    uint64_t step_ns = hw_now_ns() - began;
    if (rc != -EAGAIN)
        count_step(w, parts, count, rows, step_ns, llm_engine_kernel_ns(p->model->engine));
    for (uint32_t i = 0; i < count; i++) {
        struct llm_job *job = parts[i].job;
        parts[i].status = rc;
        if (rc == 0) {
            job->done += llm_job_decodes(job) && !parts[i].decodes ? 0 : parts[i].rows;
            job->client->tokens += parts[i].rows;
        }
    }
    return rc;
}

static void run_all(struct llm_worker *w, struct plan *p)
{
    char why[LLM_WHY_CHARS];
    if (p->part_count > 1) {
        int rc = run(w, p, 0, p->part_count, why);
        if (rc == 0 || rc == -EAGAIN)
            return;
        hw_info(HW_CAT_LLM, "a step of %u requests failed, each is taken alone: %s", p->part_count,
                why);
        hw_counter_bump(&w->counts[LLM_COUNT_SPLITS], 1);
    }
    for (uint32_t i = 0; i < p->part_count; i++)
        (void)run(w, p, i, 1, p->parts[i].job->why); /* the part keeps its status */
}

/* ---- results ---- */

void llm_worker_put_logits(struct wire_enc *e, const float *logits, uint32_t vocab)
{
    for (uint32_t i = 0; i < vocab; i++)
        wire_put_f32(e, logits[i]);
}

static bool samples(const struct part *part)
{
    const struct llm_job *job = part->job;
    return part->status == 0 && part->yields &&
           (llm_job_is_text(job) || job->seq->wish.kind == LLM_WISH_TOKENS);
}

static void score(struct plan *p, uint32_t index)
{
    const struct part *part = &p->parts[p->score_parts[index]];
    struct llm_generated *g = &p->scores[index];
    uint32_t vocab = llm_model_vocab(p->model);
    if (part->status)
        return;
    g->top = p->tops[index];
    g->top_count =
        llm_logprobs(part->score_logits + (size_t)(index - part->first_score) * vocab, vocab,
                     g->token, &g->logprob, p->tops[index], part->job->request.generate.tops);
}

/* Pieces: the parts, then what is scored. */
static void sample(void *user, uint32_t piece, unsigned thread)
{
    struct plan *p = user;
    (void)thread;
    if (piece >= p->part_count) {
        score(p, piece - p->part_count);
        return;
    }
    struct part *part = &p->parts[piece];
    if (samples(part))
        part->token = llm_sampler_next(part->job->seq->sampler, part->logits);
}

/* Each sequence has its own sampler, so many are sampled by several threads. */
static void sample_all(struct llm_worker *w, struct plan *p)
{
    uint32_t alone = w->options.sample_alone ? w->options.sample_alone : LLM_WORKER_SAMPLE_ALONE;
    bool many = (uint64_t)p->pick_count * llm_model_vocab(p->model) > alone;
    if (many && !w->samplers && !w->samples_alone) {
        unsigned cores = hw_cores();
        w->samples_alone =
            llm_pool_create(cores < LLM_WORKER_SAMPLERS ? cores : LLM_WORKER_SAMPLERS,
                            &w->samplers) != 0;
    }
    if (many && w->samplers) {
        llm_pool_run(w->samplers, p->part_count + p->score_count, sample, p);
        return;
    }
    for (uint32_t i = 0; i < p->part_count + p->score_count; i++)
        sample(p, i, 0);
}

/* What the sequence's wish asks for; of tokens, one more. */
static int put_result(struct llm_job *job, const float *logits, uint32_t token)
{
    struct llm_sequence *s = job->seq;
    uint32_t vocab = llm_model_vocab(s->model);
    uint64_t began = hw_now_ns();
    int rc = 0;
    if (s->wish.kind == LLM_WISH_TOKENS) {
        s->last = token;
        wire_put_varint(&job->answer, s->last);
    } else if (s->wish.kind) {
        rc = llm_result_put(&s->packer, &s->wish, logits, vocab, &job->answer);
    } else {
        llm_worker_put_logits(&job->answer, logits, vocab);
    }
    atomic_fetch_add_explicit(&job->client->serdes_ns, hw_now_ns() - began, memory_order_relaxed);
    if (rc == 0)
        rc = wire_enc_error(&job->answer);
    return rc ? llm_why(job->why, rc, "no memory for an answer") : 0;
}

static int answer(struct llm_job *job, const float *logits, uint32_t token)
{
    const struct llm_sequence *s = job->seq;
    if (!llm_job_decodes(job))
        wire_put_bytes(&job->answer, s->handle, sizeof s->handle);
    if (job->request.method == LLM_METHOD_PREFILL_SEMANTIC)
        wire_put_varint(&job->answer, s->id);
    return put_result(job, logits, token);
}

static bool needs_more(const struct llm_job *job, const struct part *part)
{
    if (llm_job_is_text(job))
        return true; /* llm_text_add ends it */
    if (!llm_job_decodes(job))
        return job->done < job->request.token_count;
    if (!part->decodes)
        return true;
    return job->seq->wish.kind == LLM_WISH_TOKENS && job->done < job->request.value;
}

static void finish_part(struct llm_worker *w, const struct plan *p, struct part *part)
{
    struct llm_job *job = part->job;
    const struct llm_model *m = job->seq->model;
    if (part->status == -EAGAIN || llm_kv_lost(w, job->seq, part->status, job->why) ||
        llm_text_lost(w, job, part->status)) {
        llm_jobs_append(&w->running, job);
        return;
    }
    if (part->status) {
        fail(w, job, part->status);
        return;
    }
    bool is_text = llm_job_is_text(job);
    int rc = 0;
    if (llm_job_embeds(job))
        rc = llm_text_embed(
            job, m->states + (size_t)part->first * llm_engine_config(m->engine)->width, part->rows);
    else if (part->scores)
        rc = llm_text_score(w, job, p->scores + part->first_score, part->scores);
    if (rc == 0 && part->yields)
        rc = is_text ? llm_text_add(w, job, part->token, part->logits)
                     : answer(job, part->logits, part->token);
    if ((rc >= 0 || llm_job_decodes(job)) && !llm_job_embeds(job))
        part->noted = job->seq;
    if (rc == 0 && needs_more(job, part)) {
        /* Rows that were lost are computed for a token: before it, nobody else takes their pages,
         * or requests in turn would take each other's and none would have one. */
        if (llm_job_decodes(job) && !part->decodes)
            llm_jobs_put_first(&w->running, job);
        else
            llm_jobs_append(&w->running, job);
        return;
    }
    if (is_text)
        part->over = detach(job);
    else
        w->answered++; /* the client's next request may be on its way */
    end(w, job, rc < 0 ? rc : 0);
}

/* Tells kv_eviction, after the client is answered. */
static void note_part(struct llm_worker *w, const struct plan *p, const struct part *part)
{
    if (part->noted && part->decodes)
        llm_kv_decoded(w, part->noted, p->rows[part->first].token);
    if (part->noted && (part->over || (part->yields && !part->decodes)))
        llm_kv_prefilled(w, part->noted);
    if (part->over)
        llm_sequence_free(w, part->over);
}

static void publish(struct llm_worker *w)
{
    llm_texts_publish(w);
    for (uint32_t i = 0; i < w->served_count; i++) {
        struct llm_model *m = w->served[i];
        uint32_t used, all;
        llm_engine_kv_pages(m->engine, &used, &all);
        atomic_store_explicit(&m->kv_used, used, memory_order_relaxed);
        atomic_store_explicit(&m->kv_pages, all, memory_order_relaxed);
    }
}

/* Requests of a model whose servers are not all there take no step, and hold up no other's.  Those
 * servers are asked again until they are there, also without requests: clients wait to hear it. */
static void reach_servers(struct llm_worker *w)
{
    char why[LLM_WHY_CHARS];
    bool incomplete = atomic_load_explicit(&w->incomplete, memory_order_relaxed);
    if (!incomplete && !w->running.first)
        return;
    incomplete = false;
    for (uint32_t i = 0; i < w->served_count; i++) {
        struct llm_model *m = w->served[i];
        int rc = llm_engine_reach(m->engine, why);
        m->is_away = rc == -EAGAIN;
        incomplete |= rc != 0;
    }
    atomic_store_explicit(&w->incomplete, incomplete, memory_order_relaxed);
}

void llm_worker_step(struct llm_worker *w, void (*send)(struct llm_worker *w))
{
    struct plan p;
    llm_kv_share_review(w);
    reach_servers(w);
    review(w);
    llm_weights_review(w, fail);
    plan_make(w, &p);
    w->answered = w->awaited = 0;
    w->is_stalled = p.part_count == 0 && w->running.first && !w->returns;
    if (p.part_count == 0) {
        publish(w);
        return;
    }
    uint64_t began = hw_now_ns();
    atomic_store_explicit(&w->step_began_ns, began, memory_order_relaxed);
    run_all(w, &p);
    w->stepped_ns = hw_now_ns();
    atomic_store_explicit(&w->step_began_ns, 0, memory_order_relaxed);
    w->step_ns = w->stepped_ns - began;
    if (p.row_count > p.prompt_rows && p.parts[0].status != -EAGAIN)
        tune(p.model, p.prompt_rows, p.full, w->step_ns);
    for (uint32_t i = 0; i < p.part_count; i++) {
        p.parts[i].job->seq->kv.in_step = false;
        if (p.parts[i].decodes && !llm_job_is_text(p.parts[i].job))
            p.model->decoded_ns = w->stepped_ns;
    }
    sample_all(w, &p);
    for (uint32_t i = 0; i < p.part_count; i++)
        finish_part(w, &p, &p.parts[i]);
    w->awaited = w->answered ? w->answered + w->queued : 0;
    if (send)
        send(w);
    for (uint32_t i = 0; i < p.part_count; i++)
        note_part(w, &p, &p.parts[i]);
    publish(w);
}
