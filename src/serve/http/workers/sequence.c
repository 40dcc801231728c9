/* One text, wherever it is computed.
 *
 * The log (prompt, generated tokens), the seed and the options tell all that a worker must know,
 * so a text that a worker lost goes on at any other of the same model and arithmetic, with the
 * tokens that the first would have sampled.
 *
 * An attempt is the text at one worker.  It outlives the sequence's interest in it: what still
 * comes from a worker that was given up, or for a client that left, meets `sequence == NULL`. */
#include "base/grow.h"
#include "serve/http/impl.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST_PARTS = 5 }; /* that copy_request allocates */

/* ---- ends ---- */

static void finish(struct http_sequence *s, enum http_finish how)
{
    assert(!s->ended && !s->attempt && !s->to);
    struct http_model_stats *stats = &s->model->stats;
    s->ended = true;
    http_count(stats,
               how == HTTP_FINISH_STOP     ? HTTP_COUNT_STOPPED
               : how == HTTP_FINISH_LENGTH ? HTTP_COUNT_FULL
                                           : HTTP_COUNT_FAILED,
               1);
    http_note(stats, HTTP_NOTE_TOTAL, hw_now_ns() - s->started_ns);
    http_note(stats, HTTP_NOTE_PROMPT, s->prompt_count);
    http_note(stats, HTTP_NOTE_GENERATED, s->token_count - s->prompt_count);
    s->ops->on_end(s, how);
}

static void fail(struct http_sequence *s, unsigned status, const char *param, const char *code,
                 const char *why)
{
    (void)http_error_set(&s->error, status, param, code, "%s", why);
    finish(s, HTTP_FINISH_ERROR);
}

/* The sequence is not at this worker any more. */
static void let_go(struct http_attempt *a)
{
    struct http_sequence *s = a->sequence;
    assert(s && s->attempt == a);
    s->attempt = NULL;
    a->sequence = NULL;
    assert(s->key->texts > 0 && s->siblings->at_workers > 0 && s->key->positions >= s->held);
    s->key->texts--;
    s->siblings->at_workers--;
    s->siblings->left_ns = hw_now_ns();
    s->key->positions -= s->held;
    http_count(&s->model->stats, HTTP_COUNT_RUNNING, -1);
}

static void cancel_soon(struct http_attempt *a)
{
    a->cancel = true;
    if (a->started)
        http_do_soon(a->front, &a->action);
}

void http_sequence_drop(struct http_sequence *s)
{
    struct http_attempt *a = s->attempt;
    http_queue_remove(s);
    if (a) {
        let_go(a);
        cancel_soon(a);
    }
    s->ended = true;
}

void http_sequence_finish(struct http_sequence *s, enum http_finish how)
{
    if (how == HTTP_FINISH_STOP && s->attempt && s->attempts == 1) {
        s->stopped = true; /* the worker's end follows within a step, and tells s->shared */
        cancel_soon(s->attempt);
        return;
    }
    http_sequence_drop(s);
    s->ended = false;
    finish(s, how);
}

void http_sequence_fini(struct http_sequence *s)
{
    assert(!s->attempt && !s->to);
    free(s->tokens);
    free(s->vector);
    s->tokens = NULL;
    s->vector = NULL;
}

/* ---- what a worker says ---- */

static int log_tokens(struct http_sequence *s, const struct llm_generated *tokens, uint32_t count)
{
    if (!hw_grow(&s->tokens, &s->token_room, (size_t)s->token_count + count, sizeof(*s->tokens)))
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        s->tokens[s->token_count++] = tokens[i].token;
    s->held += count;
    s->key->positions += count;
    return 0;
}

static void note_times(struct http_sequence *s, uint32_t count)
{
    struct http_model_stats *stats = &s->model->stats;
    uint64_t now = hw_now_ns();
    if (!s->first_ns) {
        s->first_ns = now;
        http_note(stats, HTTP_NOTE_FIRST, now - s->started_ns);
    } else {
        http_note(stats, HTTP_NOTE_BETWEEN, now - s->last_ns);
    }
    s->last_ns = now;
    http_count(stats, HTTP_COUNT_GENERATED, count);
}

/* The first of these tokens are the prompt's, where its logprobs are not all there. */
static uint32_t scores_in(const struct http_sequence *s, uint32_t count)
{
    uint32_t due = s->scored ? s->prompt_count - s->scored : 0;
    return count < due ? count : due;
}

/* The tokens are checked against the vocabulary that the same worker sent. */
static bool tokens_fit(const struct http_sequence *s, const struct llm_generated *tokens,
                       uint32_t count)
{
    uint32_t scores = scores_in(s, count);
    uint32_t vocab = llm_vocab_size(s->model->vocab);
    for (uint32_t i = 0; i < count; i++) {
        if (tokens[i].token >= vocab || (i < scores && tokens[i].token != s->tokens[s->scored + i]))
            return false;
        for (uint32_t t = 0; t < tokens[i].top_count; t++)
            if (tokens[i].top[t].token >= vocab)
                return false;
    }
    return count - scores <= s->most - (s->token_count - s->prompt_count);
}

static void take_tokens(struct http_sequence *s, const struct llm_generated *tokens, uint32_t count)
{
    uint32_t scores = scores_in(s, count);
    s->losses = 0;
    if (scores) {
        s->scored += scores;
        s->ops->on_scores(s, tokens, scores);
    }
    if (s->ended || count == scores)
        return;
    tokens += scores;
    count -= scores;
    if (log_tokens(s, tokens, count)) {
        (void)http_error_set(&s->error, 503, NULL, NULL, "out of memory");
        http_sequence_finish(s, HTTP_FINISH_ERROR);
        return;
    }
    note_times(s, count);
    s->ops->on_tokens(s, tokens, count);
}

/* Nothing is left to compute. */
static bool is_complete(const struct http_sequence *s)
{
    return s->token_count - s->prompt_count == s->most &&
           (!s->scored || s->scored == s->prompt_count);
}

static void on_tokens(void *user, const struct llm_generated *tokens, uint32_t count)
{
    struct http_attempt *a = user;
    http_lock(a->front);
    struct http_sequence *s = a->sequence;
    if (s && s->stopped) {
        /* What was sampled before the worker knew. */
    } else if (s && !tokens_fit(s, tokens, count)) {
        (void)http_error_set(&s->error, 500, NULL, NULL,
                             "the worker sent tokens that the model does not have");
        http_sequence_finish(s, HTTP_FINISH_ERROR);
    } else if (s) {
        take_tokens(s, tokens, count);
    }
    http_unlock(a->front);
}

/* A gateway waits: a drained worker comes back, or another one does. */
const char *http_drained(const struct http_front *f)
{
    return f->config.options.alone && f->workers[0].served.draining
               ? "this server drains and takes no new texts: ask another one"
               : NULL;
}

void http_sequence_forgive(struct http_sequence *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->losses; i++) {
        const struct http_place *p = &s->lost[i];
        const struct http_worker *w = &s->front->workers[p->worker];
        bool lives = p->incarnation && w->state == HTTP_WORKER_UP && !http_worker_is_doubted(w) &&
                     w->cuts != p->cuts && w->served.incarnation == p->incarnation;
        if (!lives)
            s->lost[kept++] = *p;
    }
    s->losses = kept;
}

/* The worker does not have the text any more, through no fault of the text.  lost: nor does it run,
 * perhaps; else NULL. */
static void move_on(struct http_sequence *s, const struct http_place *lost, const char *why)
{
    if (is_complete(s)) { /* only its end was lost */
        finish(s, HTTP_FINISH_LENGTH);
        return;
    }
    const char *drained = http_drained(s->front);
    http_sequence_forgive(s);
    if (lost)
        s->lost[s->losses++] = *lost;
    if (drained || s->losses > HTTP_LOSSES_MAX) {
        fail(s, 503, NULL, NULL, drained ? drained : why);
        return;
    }
    http_queue_add(s, true); /* it has waited before: it goes to the front */
    http_do_soon(s->front, &s->front->assign);
}

static void take_vector(struct http_sequence *s, const struct llm_generate_end *end)
{
    s->vector = malloc(end->width * sizeof(*s->vector));
    if (!s->vector) {
        fail(s, 503, NULL, NULL, "out of memory");
        return;
    }
    memcpy(s->vector, end->vector, end->width * sizeof(*s->vector));
    s->width = end->width;
    finish(s, HTTP_FINISH_STOP);
}

static void note_shared(struct http_sequence *s, const struct llm_generate_end *end)
{
    if (s->shared || s->attempts != 1)
        return;
    s->shared = end->shared;
    http_count(&s->model->stats, HTTP_COUNT_CACHED, end->shared);
    http_note(&s->model->stats, HTTP_NOTE_CACHED, end->shared);
}

static void ended_well(struct http_sequence *s, struct http_worker *w,
                       const struct llm_generate_end *end)
{
    bool complete = end->reason == LLM_END_STOP || end->reason == LLM_END_LENGTH ||
                    end->reason == LLM_END_EMBEDDED;
    if (complete && s->request.embed != (end->reason == LLM_END_EMBEDDED)) {
        fail(s, 500, NULL, NULL, "the worker answered a question that was not asked");
        return;
    }
    note_shared(s, end);
    switch (end->reason) {
    case LLM_END_STOP:
        finish(s, HTTP_FINISH_STOP);
        break;
    case LLM_END_LENGTH:
        finish(s, HTTP_FINISH_LENGTH);
        break;
    case LLM_END_EMBEDDED:
        take_vector(s, end);
        break;
    default: /* drained, incomplete; or cancelled, which we did not ask for */
        if (end->reason != LLM_END_CANCELLED)
            http_worker_drains(w);
        move_on(s, end->reason != LLM_END_DRAINED ? &(struct http_place){.worker = w->index} : NULL,
                "the worker gave the text up again and again");
        break;
    }
}

static void ended_badly(struct http_sequence *s, const struct http_attempt *a, int status,
                        const char *why)
{
    struct http_worker *w = a->worker;
    switch (status) {
    case -EAGAIN:
        if (a->stays) /* it refuses what it was thought to complete: it is not asked again */
            (void)http_route_refuse(s->front, s, w);
        http_worker_drains(w);
        move_on(s, NULL, why);
        break;
    case -EBUSY:
        w->busy_until = hw_now_ns() + 50 * HW_MS;
        w->tells++;
        move_on(s, NULL, why);
        break;
    case -EMSGSIZE:
    case -ENOSPC: /* another worker may have larger limits */
        if (http_route_refuse(s->front, s, w))
            move_on(s, NULL, why);
        else
            fail(s, 400, NULL, status == -EMSGSIZE ? "context_length_exceeded" : NULL, why);
        break;
    case -EINVAL:
    case -EOPNOTSUPP: /* a grammar, for a worker that has none */
        fail(s, 400, NULL, NULL, why);
        break;
    default:
        /* The connection, or the worker's own trouble: its thread looks at once, and until it has
         * the worker gets no text. */
        http_worker_doubt(w);
        hw_info(HW_CAT_NET, "worker %s lost a text: %s", w->name, why);
        move_on(s, status != -ESHUTDOWN ? &a->place : NULL,
                why); /* no text makes a worker stop in order */
        break;
    }
}

static void on_end(void *user, int status, const struct llm_generate_end *end, const char *why)
{
    struct http_attempt *a = user;
    struct http_front *f = a->front;
    struct http_worker *w = a->worker;
    http_lock(f);
    struct http_sequence *s = a->sequence;
    w->texts--;
    a->over = true;
    if (s)
        let_go(a);
    if (s && status == 0 && s->stopped)
        note_shared(s, end);
    if (s && s->stopped)
        finish(s, HTTP_FINISH_STOP);
    else if (s && status == 0)
        ended_well(s, w, end);
    else if (s)
        ended_badly(s, a, status, why);
    http_do_soon(f, &f->assign); /* there is room for another */
    bool free_now = a->started && !a->action.queued;
    http_unlock(f);
    if (free_now)
        free(a);
}

static const struct llm_connection_ops connection_ops = {.on_tokens = on_tokens, .on_end = on_end};

/* ---- giving a text to a worker ---- */

static void could_not_start(struct http_attempt *a, int rc, const char *why)
{
    struct http_sequence *s = a->sequence;
    struct http_worker *w = a->worker;
    w->texts--;
    a->over = true;
    if (!s)
        return;
    let_go(a);
    if (rc == -EINVAL)
        fail(s, 400, NULL, NULL, why);
    else if (rc == -ENOMEM)
        fail(s, 503, NULL, NULL, "out of memory");
    else {
        /* The text never ran there: that is no loss of its own. */
        http_worker_doubt(w);
        move_on(s, NULL, why);
    }
}

/* Its own copy of what the sequence points to.  False: no memory. */
static bool copy_to(const void *from, size_t bytes, void **to)
{
    *to = bytes ? malloc(bytes) : NULL;
    if (*to)
        memcpy(*to, from, bytes);
    return *to || !bytes;
}

static bool copy_request(const struct http_sequence *s, struct llm_generate *to,
                         void *copies[REQUEST_PARTS])
{
    const struct llm_generate *g = &s->request;
    const struct llm_sampling *sampling = &g->sampling;
    *to = *g;
    bool fine =
        copy_to(s->model->name, strlen(s->model->name) + 1, &copies[0]) &&
        copy_to(s->tokens, s->token_count * sizeof(*s->tokens), &copies[1]) &&
        copy_to(sampling->biases, sampling->bias_count * sizeof(*sampling->biases), &copies[2]) &&
        copy_to(g->stops, g->stop_count * sizeof(*g->stops), &copies[3]) &&
        copy_to(g->grammar, g->grammar ? strlen(g->grammar) + 1 : 0, &copies[4]);
    to->model = copies[0];
    to->tokens = copies[1];
    to->sampling.biases = copies[2];
    to->stops = copies[3];
    to->grammar = copies[4];
    to->token_count = s->token_count;
    to->sampled = s->token_count - s->prompt_count;
    to->most = s->most - to->sampled;
    to->scored = s->scored < s->prompt_count ? s->scored : 0;
    return fine;
}

/* The request is copied while the sequence cannot change: only this attempt adds to its log, and
 * its callbacks come after the copy.  The sequence may be dropped meanwhile, so it is copied
 * under the lock. */
static int start(struct http_attempt *a, char *why)
{
    struct http_front *f = a->front;
    struct llm_generate request;
    void *copies[REQUEST_PARTS] = {NULL};
    int rc = copy_request(a->sequence, &request, copies) ? 0 : -ENOMEM;
    request.stays |= a->stays;
    if (rc == 0) {
        /* The user count keeps the connection; the worker's thread may take it away meanwhile. */
        struct llm_connection *conn = a->worker->conn;
        a->worker->users++;
        pthread_mutex_unlock(&f->lock);
        rc = llm_connection_start(conn, &request, &connection_ops, a, &a->id, why);
        pthread_mutex_lock(&f->lock);
        if (--a->worker->users == 0)
            pthread_cond_broadcast(&a->worker->unused);
    }
    for (size_t i = 0; i < REQUEST_PARTS; i++)
        free(copies[i]);
    return rc;
}

static void cancel(struct http_attempt *a)
{
    struct http_front *f = a->front;
    struct http_worker *w = a->worker;
    if (a->over || !w->conn)
        return;
    struct llm_connection *conn = w->conn;
    w->users++;
    pthread_mutex_unlock(&f->lock);
    llm_connection_cancel(conn, a->id);
    pthread_mutex_lock(&f->lock);
    if (--w->users == 0)
        pthread_cond_broadcast(&w->unused);
}

/* Gives the lock up in between. */
static void act(struct http_front *f, struct http_action *action)
{
    struct http_attempt *a = CONTAINER_OF(action, struct http_attempt, action);
    char why[LLM_WHY_CHARS] = "";
    (void)f;
    if (!a->started) {
        int rc = a->sequence && a->worker->conn ? start(a, why) : -ECANCELED;
        a->started = true;
        if (rc && !a->over)
            could_not_start(a, rc, why[0] ? why : "the worker is gone");
    }
    if (a->cancel)
        cancel(a);
    action->queued = false;
    if (a->over)
        free(a);
}

int http_sequence_assign(struct http_sequence *s, struct http_worker *w)
{
    struct http_attempt *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    int model = http_worker_model(w, s->model);
    assert(model >= 0);
    bool begun = s->token_count > s->prompt_count;
    if (!begun)
        memcpy(s->arithmetic, w->served.models[model].arithmetic, sizeof(s->arithmetic));
    http_queue_remove(s);
    s->key->texts++;
    s->siblings->at_workers++;
    s->key->positions += s->held = s->token_count;
    if (!s->attempts)
        http_note(&s->model->stats, HTTP_NOTE_QUEUE, hw_now_ns() - s->started_ns);
    else
        http_count(&s->model->stats, HTTP_COUNT_MOVED, 1);
    s->attempts++;
    *a = (struct http_attempt){.action.act = act,
                               .front = s->front,
                               .worker = w,
                               .sequence = s,
                               .stays = w->served.draining,
                               .place = {w->index, w->served.incarnation, w->cuts}};
    s->attempt = a;
    w->texts++;
    w->took_ns = hw_now_ns();
    http_count(&s->model->stats, HTTP_COUNT_RUNNING, 1);
    http_route_note(s->front, s, w);
    http_do_soon(a->front, &a->action);
    return 0;
}

/* When a text has waited too long: so long after a worker that could compute it last got a text.  A
 * long queue that moves is no reason to end one. */
static uint64_t due_of(const struct http_sequence *s, uint64_t now)
{
    const struct http_siblings *b = s->siblings;
    uint64_t took = http_route_took(s->front, s);
    uint64_t last = b->at_workers ? now : b->left_ns;
    last = took > last ? took : last;
    last = s->waits_ns > last ? s->waits_ns : last;
    return last + s->front->config.limits.wait_ns;
}

uint64_t http_sequences_expire(struct http_front *f, uint64_t now)
{
    uint64_t due = HW_NEVER;
    const char *drained = http_drained(f);
    struct http_sequence *s = http_queue_first(f);
    while (s) {
        if (s->due_ns <= now)
            s->due_ns = due_of(s, now);
        uint64_t end = drained ? now : s->due_ns;
        if (end > now) {
            due = end < due ? end : due;
            s = http_queue_next(s);
            continue;
        }
        http_queue_remove(s);
        fail(s, 503, NULL, NULL,
             drained       ? drained
             : s->attempts ? "no worker could go on with the text in time"
                           : "no worker could take the request in time");
        s = http_queue_first(f); /* the owner may have dropped others */
    }
    return due;
}

void http_sequence_start(struct http_sequence *s)
{
    assert(s->prompt_count > 0 && s->token_count == s->prompt_count && (s->most > 0 || s->scored));
    s->started_ns = hw_now_ns();
    http_count(&s->model->stats, HTTP_COUNT_TEXTS, 1);
    http_count(&s->model->stats, HTTP_COUNT_PROMPT, s->prompt_count);
    if (is_complete(s)) { /* one token, which has no logprob, and nothing after it */
        finish(s, HTTP_FINISH_LENGTH);
        return;
    }
    http_queue_add(s, false);
}
