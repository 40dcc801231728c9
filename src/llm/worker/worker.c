#include "llm/worker/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/wait.h"
#include "llm/model/why.h"
#include "llm/worker/impl.h"
#include "llm/worker/session/link.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

static uint8_t zeros[LLM_PROBE_BYTES_MAX];

const struct hw_counter_def llm_worker_count_defs[LLM_COUNTS] = {
    [LLM_COUNT_REQUESTS] = {"llm_requests", "requests to the worker's engine", "", HW_COUNTER},
    [LLM_COUNT_STEPS] = {"llm_steps", "steps of the worker's engine", "", HW_COUNTER},
    [LLM_COUNT_ROWS] = {"llm_rows", "rows (tokens) that steps computed", "", HW_COUNTER},
    [LLM_COUNT_PROMPT_ROWS] = {"llm_prompt_rows", "rows of prompts among them", "", HW_COUNTER},
    [LLM_COUNT_ADOPTED_ROWS] = {"llm_adopted_rows",
                                "rows of texts that were not computed: the device had them of a "
                                "text that begins with the same tokens",
                                "", HW_COUNTER},
    [LLM_COUNT_PARTS] = {"llm_step_sequences", "sequences in steps; over llm_steps: mean batch", "",
                         HW_COUNTER},
    [LLM_COUNT_SPLITS] = {"llm_steps_split",
                          "steps that failed and were repeated request by request", "", HW_COUNTER},
    [LLM_COUNT_STEP_NS] = {"llm_step_time", "time in steps", "ns", HW_COUNTER},
    [LLM_COUNT_KERNEL_NS] = {"llm_kernel_time", "time on a GPU in steps; 0 on a CPU", "ns",
                             HW_COUNTER},
    [LLM_COUNT_SEQUENCES] = {"llm_sequences", "sequences open now", "", HW_GAUGE},
    [LLM_COUNT_ORPHANS] = {"llm_orphans", "sequences kept for a client that is gone", "", HW_GAUGE},
    [LLM_COUNT_MODELS] = {"llm_models", "models loaded now", "", HW_GAUGE},
    [LLM_COUNT_KV_EVICTED] = {"llm_kv_evicted", "KV layers evicted", "", HW_COUNTER},
    [LLM_COUNT_KV_RESTORED] = {"llm_kv_restored", "KV layers restored", "", HW_COUNTER},
    [LLM_COUNT_KV_STORED] = {"llm_kv_stored", "KV sent to the store", "bytes", HW_COUNTER},
    [LLM_COUNT_KV_FETCHED] = {"llm_kv_fetched", "KV received from the store", "bytes", HW_COUNTER},
    [LLM_COUNT_KV_LOST] = {"llm_kv_lost", "KV chunks that the store lost", "", HW_COUNTER},
    [LLM_COUNT_KV_COMPUTED] = {"llm_kv_computed", "rows computed again after an eviction", "",
                               HW_COUNTER},
    [LLM_COUNT_KV_GIVEN] = {"llm_kv_given", "KV memory that models gave back to others", "bytes",
                            HW_COUNTER},
    [LLM_COUNT_TEXTS] = {"llm_texts", "texts that are generated now", "", HW_GAUGE},
    [LLM_COUNT_TEXTS_WAITING] = {"llm_texts_waiting", "texts that wait for memory or their turn",
                                 "", HW_GAUGE},
    [LLM_COUNT_GENERATED] = {"llm_generated", "tokens generated for texts", "", HW_COUNTER},
    [LLM_COUNT_PREEMPTED] = {"llm_texts_preempted",
                             "texts that gave their KV up to older ones and computed it again", "",
                             HW_COUNTER},
    [LLM_COUNT_UPLOADS] = {"llm_uploads", "models that clients sent and that were loaded", "",
                           HW_COUNTER},
    [LLM_COUNT_UPLOADS_FOUND] = {"llm_uploads_found",
                                 "models that clients did not send because they were here", "",
                                 HW_COUNTER},
    [LLM_COUNT_WEIGHTS_ASIDE] = {"llm_weights_aside",
                                 "weights of idle models that are not in GPU memory now", "bytes",
                                 HW_GAUGE},
};

/* ---- the queue ---- */

static void enqueue(struct llm_worker *w, struct llm_job *job)
{
    hw_counter_bump(&w->counts[LLM_COUNT_REQUESTS], job != &job->client->farewell);
    pthread_mutex_lock(&w->lock);
    llm_jobs_append(&w->queue, job);
    w->queued++;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void llm_worker_wake(void *worker)
{
    struct llm_worker *w = worker;
    pthread_mutex_lock(&w->lock);
    w->stored = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* ---- answers ---- */

/* The server closes an endpoint that ended meanwhile. */
static void reply(struct llm_client *c, struct rpc_msg *msg, int status,
                  const struct rpc_send *send)
{
    int rc = rpc_reply(c->ep, msg, status, send);
    if (rc == -EMSGSIZE) /* more than the client takes */
        (void)rpc_reply(c->ep, msg, rc, NULL);
}

void llm_answer(struct llm_client *c, struct rpc_msg *msg, int status, const void *data, size_t len)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct rpc_send send = {.stream = msg->stream, .iov = &iov, .iov_count = len ? 1 : 0};
    if (msg->kind == RPC_CALL) {
        reply(c, msg, status, &send);
        llm_byte_account_sent(&c->account, status ? LLM_CONTROL : llm_answer_class(msg->method),
                              len);
    }
    rpc_release(c->ep, msg);
}

void llm_answer_error(struct llm_client *c, struct rpc_msg *msg, int status, const char *text)
{
    size_t len = strnlen(text, RPC_ERROR_TEXT_MAX);
    hw_debug(HW_CAT_LLM, "%s: %s: %s", rpc_ep_peer(c->ep), llm_method_name(msg->method), text);
    llm_answer(c, msg, status, text, len);
}

static void answer_encoded(struct llm_client *c, struct rpc_msg *msg, const struct wire_enc *e)
{
    if (wire_enc_error(e))
        llm_answer_error(c, msg, wire_enc_error(e), "no memory for an answer");
    else
        llm_answer(c, msg, 0, wire_enc_data(e), wire_enc_len(e));
}

/* ---- clients ---- */

static struct llm_client *client_of(struct llm_worker *w, struct rpc_ep *ep)
{
    struct llm_client *c = rpc_ep_user(ep);
    if (c)
        return c;
    c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->ep = ep;
    c->ids_given = w->options.first_id;
    c->farewell.client = c;
    c->next = w->clients;
    c->to = &w->clients;
    if (c->next)
        c->next->to = &c->next;
    w->clients = c;
    rpc_ep_set_user(ep, c);
    return c;
}

static void client_free(struct llm_worker *w, struct llm_client *c)
{
    assert(c->job_count == 0);
    *c->to = c->next;
    if (c->next)
        c->next->to = c->to;
    llm_blob_free(w, &c->weights);
    llm_blob_free(w, &c->kv);
    llm_blob_free(w, &c->cache);
    free(c);
}

void llm_worker_closed(struct llm_worker *w, struct rpc_ep *ep, int status)
{
    struct llm_client *c = rpc_ep_user(ep);
    if (!c)
        return;
    for (struct llm_job *job = c->jobs; job; job = job->peer_next) {
        rpc_release(ep, job->msg);
        job->msg = NULL;
    }
    c->is_closing = true;
    llm_link_close(w, c);
    rpc_ep_set_user(ep, NULL);
    c->ep = NULL;
    c->farewell.status = status;
    atomic_store_explicit(&c->gone, true, memory_order_relaxed);
    enqueue(w, &c->farewell);
}

/* ---- jobs ---- */

static void job_free(struct llm_worker *w, struct llm_job *job)
{
    *job->peer_to = job->peer_next;
    if (job->peer_next)
        job->peer_next->peer_to = job->peer_to;
    job->client->job_count--;
    job->client->text_count -= llm_job_is_text(job);
    llm_kv_adopt_end(w, job);
    if (job->load.model)
        llm_model_free(w, job->load.model);
    llm_kept_drop(w, job->load.kept);
    llm_text_fini(job);
    llm_request_fini(&job->request);
    llm_blob_free(w, &job->weights);
    llm_blob_free(w, &job->kv);
    wire_enc_fini(&job->answer);
    free(job);
}

static bool needs_upload(uint32_t method)
{
    return method == LLM_METHOD_LOAD_WEIGHTS || method == LLM_METHOD_STATELESS;
}

/* Takes the request and, where it is about them, the client's uploads. */
static struct llm_job *job_create(struct llm_client *c, struct rpc_msg *msg,
                                  struct llm_request *request, bool uploads)
{
    struct llm_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->client = c;
    job->msg = msg;
    job->request = *request;
    *request = (struct llm_request){0};
    wire_enc_init(&job->answer, WIRE_MESSAGE_MAX);
    if (uploads) {
        job->weights = c->weights;
        job->kv = c->kv;
        c->weights = c->kv = (struct llm_blob){0};
    }
    job->peer_next = c->jobs;
    job->peer_to = &c->jobs;
    if (c->jobs)
        c->jobs->peer_to = &job->peer_next;
    c->jobs = job;
    c->job_count++;
    c->text_count += llm_job_is_text(job);
    return job;
}

/* A farewell may overtake jobs of several steps. */
static void client_free_if_done(struct llm_worker *w, struct llm_client *c)
{
    if (c->said_farewell && c->job_count == 0)
        client_free(w, c);
}

/* True when a part of the answer waits for the peer to read. */
static bool finish(struct llm_worker *w, struct llm_job *job)
{
    struct llm_client *c = job->client;
    bool waits = false;
    if (job == &c->farewell) {
        c->said_farewell = true;
        client_free_if_done(w, c);
        return false;
    }
    if (job->request.method == LLM_METHOD_STATELESS && job->status == 0) {
        llm_blob_free(w, &c->cache);
        c->cache = job->kv;
        job->kv = (struct llm_blob){0};
    }
    if (job->home == LLM_HOME_HERE)
        llm_link_close(w, c);
    if (job->home == LLM_HOME_OUTSIDE && job->msg)
        llm_link_forward_job(w, job);
    else if (job->msg && job->status)
        llm_answer_error(c, job->msg, job->status, job->why);
    else if (job->msg)
        answer_encoded(c, job->msg, &job->answer);
    if (job->msg) {
        (void)rpc_flush(c->ep); /* the server's next turn sends the rest */
        waits = rpc_send_blocked(c->ep);
    }
    job_free(w, job);
    client_free_if_done(w, c);
    return waits;
}

static void pushes_free(struct llm_pushes *pushes)
{
    while (pushes->first) {
        struct llm_push *p = pushes->first;
        pushes->first = p->next;
        wire_enc_fini(&p->message);
        free(p);
    }
}

/* A client whose push is refused has a full window or queue of them unread: its texts end, so that
 * what is kept for it stays bounded. */
static void push(struct llm_client *c, const struct wire_enc *message)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)wire_enc_data(message),
                        .iov_len = wire_enc_len(message)};
    struct rpc_send send = {.method = LLM_METHOD_TOKENS, .iov = &iov, .iov_count = 1};
    if (wire_enc_error(message) || rpc_push(c->ep, &send))
        atomic_store_explicit(&c->unread, true, memory_order_relaxed);
    else
        llm_byte_account_sent(&c->account, LLM_TOKENS, iov.iov_len);
}

/* First all pushes, without a write; each answer's write takes the client's push along. */
static bool finish_all(struct llm_worker *w, struct llm_pushes *pushes, struct llm_jobs *jobs)
{
    bool waits = false;
    for (struct llm_push *p = pushes->first; p; p = p->next) {
        if (p->client->ep)
            push(p->client, &p->message);
        else
            p->client = NULL; /* the answers below may free it */
    }
    while (jobs->first)
        waits |= finish(w, llm_jobs_take(jobs));
    for (const struct llm_push *p = pushes->first; p; p = p->next) {
        if (p->client && rpc_pending(p->client->ep)) {
            (void)rpc_flush(p->client->ep);
            waits |= rpc_send_blocked(p->client->ep);
        }
    }
    pushes_free(pushes);
    return waits;
}

void llm_worker_deliver(void *worker)
{
    struct llm_worker *w = worker;
    struct llm_jobs jobs;
    struct llm_pushes pushes;
    uint64_t rung;
    llm_jobs_init(&jobs);
    llm_pushes_init(&pushes);
    ssize_t n = read(w->event_fd, &rung, sizeof rung);
    (void)n; /* 0: an earlier call took the answers */
    pthread_mutex_lock(&w->lock);
    llm_jobs_move(&w->ready, &jobs);
    llm_pushes_move(&w->ready_pushes, &pushes);
    w->has_moves = false;
    pthread_mutex_unlock(&w->lock);
    (void)finish_all(w, &pushes, &jobs); /* this is the server's own turn */
}

void llm_worker_server_sleeps(struct llm_worker *w, bool begins)
{
    pthread_mutex_lock(&w->lock);
    while (w->lent)
        pthread_cond_wait(&w->returned, &w->lock);
    w->server_sleeps = begins;
    pthread_mutex_unlock(&w->lock);
}

/* ---- the engine's thread ---- */

/* Answers are sent before the next step, which takes long.  While the server's thread sleeps, this
 * thread sends them: waking the server's takes longer. */
static void hand_over(struct llm_worker *w)
{
    struct llm_jobs jobs;
    struct llm_pushes pushes;
    if (!w->done.first && !w->pushes.first)
        return;
    for (struct llm_push *p = w->pushes.first; p; p = p->next)
        p->client->push = NULL;
    llm_jobs_init(&jobs);
    llm_pushes_init(&pushes);
    pthread_mutex_lock(&w->lock);
    llm_jobs_move(&w->done, &w->ready);
    llm_pushes_move(&w->pushes, &w->ready_pushes);
    w->has_moves |= w->moves;
    w->moves = false;
    bool lent = w->lent = w->server_sleeps && !w->options.no_lend && !w->has_moves;
    if (lent) {
        llm_jobs_move(&w->ready, &jobs);
        llm_pushes_move(&w->ready_pushes, &pushes);
    }
    pthread_mutex_unlock(&w->lock);
    bool rings = !lent || finish_all(w, &pushes, &jobs);
    if (lent) {
        pthread_mutex_lock(&w->lock);
        w->lent = false;
        pthread_cond_signal(&w->returned);
        pthread_mutex_unlock(&w->lock);
    }
    if (rings)
        (void)eventfd_write(w->event_fd, 1);
}

/* A client that was answered soon sends its next request; waking up takes longer than spinning. */
static void look_for_work(const struct llm_worker *w)
{
    uint64_t most = w->step_ns < LLM_WORKER_SPIN_NS ? w->step_ns : LLM_WORKER_SPIN_NS;
    while (!atomic_load_explicit(&w->queued, memory_order_relaxed) &&
           hw_now_ns() - w->stepped_ns < most)
        hw_cpu_relax();
}

/* Clients that were just answered send their next request at once.  If a step started without them,
 * they would wait for all of it, and from then on alternate with those in it.  Half a step is worth
 * waiting while they come in time, an eighth to see whether they do again. */
static void gather(struct llm_worker *w)
{
    uint64_t until =
        w->stepped_ns + w->step_ns / (w->are_late ? LLM_WORKER_GATHER_LATE : LLM_WORKER_GATHER);
    while (w->queued < w->awaited && !w->stopping && hw_now_ns() < until)
        (void)hw_cond_wait(&w->wake, &w->lock, until);
    w->are_late = w->queued < w->awaited;
}

/* Waits for requests and takes them.  False when the worker stops. */
static bool take_arrived(struct llm_worker *w, uint64_t due_ns)
{
    bool idle = !w->arrived.first && (!w->running.first || w->is_stalled);
    if (idle && w->spins && w->answered)
        look_for_work(w);
    pthread_mutex_lock(&w->lock);
    if (idle && !w->queue.first && !w->stopping && !w->stored)
        (void)hw_cond_wait(&w->wake, &w->lock, due_ns);
    w->stored = false;
    if (!w->arrived.first && !w->options.no_gather)
        gather(w);
    bool goes_on = !w->stopping;
    llm_jobs_move(&w->queue, &w->arrived);
    w->queued = 0;
    pthread_mutex_unlock(&w->lock);
    return goes_on;
}

static uint64_t due(struct llm_worker *w)
{
    uint64_t now = hw_now_ns(), expires = llm_worker_expire(w, now), review = llm_kv_share_due(w);
    uint64_t due_ns = expires < review ? expires : review, look = now + LLM_WORKER_LOOK_NS;
    uint64_t leaves = llm_weights_due(w);
    due_ns = leaves < due_ns ? leaves : due_ns;
    bool looks = atomic_load_explicit(&w->incomplete, memory_order_relaxed);
    return looks && look < due_ns ? look : due_ns;
}

static void *work(void *user)
{
    struct llm_worker *w = user;
    while (take_arrived(w, due(w))) {
        llm_worker_admit(w);
        hand_over(w);
        llm_worker_step(w, hand_over);
        hand_over(w); /* requests that failed before the step */
    }
    return NULL;
}

/* ---- messages ---- */

/* Pieces come in order; the first tells the total. */
static int stage(struct llm_worker *w, struct llm_client *c, const struct llm_request *r)
{
    struct llm_blob *blob = r->upload == LLM_UPLOAD_WEIGHTS ? &c->weights : &c->kv;
    uint64_t began = hw_now_ns();
    if (r->offset == 0) {
        llm_blob_free(w, blob);
        int rc = llm_blob_make(w, c, blob, r->total);
        if (rc)
            return rc;
    }
    if (blob->bytes != r->total || blob->filled != r->offset)
        return -EPROTO;
    int rc = llm_blob_append(blob, r->bytes, r->length);
    if (rc)
        return rc;
    atomic_fetch_add_explicit(&c->serdes_ns, hw_now_ns() - began, memory_order_relaxed);
    return 0;
}

/* All of it, in a descriptor. */
static int take_file(struct llm_worker *w, struct llm_client *c, const struct rpc_msg *msg,
                     const struct llm_request *r)
{
    struct llm_blob *blob = r->upload == LLM_UPLOAD_WEIGHTS ? &c->weights : &c->kv;
    int fd = rpc_msg_take_fd(msg, 0);
    llm_blob_free(w, blob);
    return fd < 0 ? -EPROTO : llm_blob_take(fd, r->total, blob);
}

static void on_upload(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg,
                      const struct llm_request *r)
{
    bool is_file = w->options.takes_files && msg->fd_count == 1;
    int rc = c->upload_error ? 0 : is_file ? take_file(w, c, msg, r) : stage(w, c, r);
    if (rc) {
        c->upload_error = rc;
        llm_blob_free(w, &c->weights);
        llm_blob_free(w, &c->kv);
    }
    if (msg->kind == RPC_CALL)
        llm_answer_error(c, msg, -EINVAL, "an upload is a post");
    else
        rpc_release(c->ep, msg);
}

static void on_piece(struct llm_client *c, struct rpc_msg *msg, const struct llm_request *r,
                     const uint8_t *data, uint64_t total)
{
    uint8_t head[8];
    if (!data || r->offset > total || r->length > total - r->offset) {
        char why[LLM_WHY_CHARS];
        llm_why_set(why, "%s: bytes %llu to %llu of %llu", llm_method_name(r->method),
                    (unsigned long long)r->offset, (unsigned long long)r->offset + r->length,
                    (unsigned long long)total);
        llm_answer_error(c, msg, -ERANGE, why);
        return;
    }
    wire_store64(head, total);
    struct iovec iov[2] = {
        {.iov_base = head, .iov_len = sizeof head},
        {.iov_base = (void *)(uintptr_t)(data + r->offset), .iov_len = r->length}};
    struct rpc_send send = {.stream = msg->stream, .iov = iov, .iov_count = r->length ? 2 : 1};
    reply(c, msg, 0, &send);
    llm_byte_account_sent(&c->account, llm_answer_class(r->method), sizeof head + r->length);
    rpc_release(c->ep, msg);
}

static void put_account(struct wire_enc *e, const struct llm_byte_account *l)
{
    for (int i = 0; i < LLM_CLASSES; i++) {
        wire_put_u64(e, l->received[i]);
        wire_put_u64(e, l->sent[i]);
    }
}

static void on_counters(struct llm_client *c, struct rpc_msg *msg)
{
    uint8_t bytes[2 * 2 * 8 * LLM_CLASSES];
    struct llm_byte_account store = {0};
    struct wire_enc e;
    llm_byte_account_mark(&c->account, rpc_ep_stats(c->ep), LLM_CONTROL, LLM_CONTROL);
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    put_account(&e, &c->account);
    for (int k = 0; k < LLM_KV_KINDS; k++) {
        enum llm_class class = k == LLM_KV_WHOLE ? LLM_KV_REGULAR : LLM_KV_DELTA;
        llm_byte_account_received(&store, class, atomic_load(&c->moved.fetched[k]));
        llm_byte_account_sent(&store, class, atomic_load(&c->moved.stored[k]));
    }
    put_account(&e, &store);
    answer_encoded(c, msg, &e);
}

/* ---- texts and served models ---- */

/* NULL: the id is not that of a text. */
static struct llm_job *text_by_id(const struct llm_client *c, uint64_t id)
{
    struct llm_job *job = c->jobs;
    while (job && !(llm_job_is_text(job) && job->request.id == id))
        job = job->peer_next;
    return job;
}

static void on_cancel(struct llm_client *c, struct rpc_msg *msg, const struct llm_request *r)
{
    struct llm_job *job = text_by_id(c, r->id);
    if (job)
        atomic_store_explicit(&job->cancelled, true, memory_order_relaxed);
    if (msg->kind == RPC_CALL)
        llm_answer_error(c, msg, -EINVAL, "a cancel is a post");
    else
        rpc_release(c->ep, msg);
}

static uint64_t counted(const struct llm_worker *w, enum llm_worker_count which)
{
    return hw_counter_load(&w->counts[which]);
}

static void describe_model(struct llm_model *m, struct llm_served_model *out)
{
    const struct llm_config *config = llm_engine_config(m->engine);
    *out = (struct llm_served_model){
        .vocab = config->vocab,
        .context = llm_engine_context(m->engine),
        .header_bytes = llm_file_header_bytes(m->file),
        .kv_pages = atomic_load_explicit(&m->kv_pages, memory_order_relaxed),
        .kv_used = atomic_load_explicit(&m->kv_used, memory_order_relaxed)};
    snprintf(out->name, sizeof out->name, "%s", m->name);
    snprintf(out->arch, sizeof out->arch, "%s", llm_arch_name(config->arch));
    snprintf(out->arithmetic, sizeof out->arithmetic, "%s", m->arithmetic);
    memcpy(out->hash, m->hash, sizeof out->hash);
}

static void on_describe(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg)
{
    uint64_t began = atomic_load_explicit(&w->step_began_ns, memory_order_relaxed);
    uint64_t now = hw_now_ns();
    struct llm_served *served = calloc(1, sizeof *served);
    if (!served) {
        llm_answer_error(c, msg, -ENOMEM, "no memory for a description");
        return;
    }
    *served = (struct llm_served){
        .incarnation = w->incarnation,
        .draining = atomic_load_explicit(&w->draining, memory_order_relaxed),
        .incomplete = atomic_load_explicit(&w->incomplete, memory_order_relaxed),
        .running = (uint32_t)counted(w, LLM_COUNT_TEXTS),
        .waiting = (uint32_t)counted(w, LLM_COUNT_TEXTS_WAITING),
        .rows = counted(w, LLM_COUNT_ROWS),
        .step_ns = began && now > began ? now - began : 0,
        .model_count = w->served_count};
    uint32_t aside = atomic_load_explicit(&w->aside, memory_order_relaxed);
    for (uint32_t i = 0; i < w->served_count; i++) {
        describe_model(w->served[i], &served->models[i]);
        served->models[i].is_aside = aside >> i & 1;
    }
    struct wire_enc e;
    wire_enc_init(&e, sizeof *served);
    llm_served_put(&e, served);
    answer_encoded(c, msg, &e);
    wire_enc_fini(&e);
    free(served);
}

static void on_header(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg,
                      const struct llm_request *r)
{
    char why[LLM_WHY_CHARS];
    const struct llm_model *m = llm_model_named(w, r->model, why);
    uint64_t header = m ? llm_file_header_bytes(m->file) : 0, size;
    if (header) {
        on_piece(c, msg, r, llm_file_bytes(m->file, &size), header);
        return;
    }
    if (m)
        llm_why_set(why, "%s is no GGUF file: clients need the model's file and its tokenizer",
                    m->name);
    llm_answer_error(c, msg, m ? -EOPNOTSUPP : -ENOENT, why);
}

/* Texts that a drain gives back. */
static uint32_t count_given(const struct llm_worker *w)
{
    uint32_t count = 0;
    for (const struct llm_client *c = w->clients; c; c = c->next) {
        for (const struct llm_job *job = c->jobs; job; job = job->peer_next)
            count += llm_job_is_text(job) && !job->request.generate.stays;
    }
    return count;
}

static void on_drain(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg,
                     const struct llm_request *r)
{
    uint8_t bytes[4];
    hw_info(HW_CAT_LLM, "%s: %s", rpc_ep_peer(c->ep), r->undo ? "takes texts again" : "drains");
    atomic_store_explicit(&w->draining, !r->undo, memory_order_relaxed);
    wire_store32(bytes, count_given(w));
    llm_answer(c, msg, 0, bytes, sizeof bytes);
}

/* Refuses a text that cannot be taken now. */
static int check_text(const struct llm_worker *w, const struct llm_client *c,
                      const struct llm_request *r, char *why)
{
    /* A text that it gave back comes again where no other worker can complete it. */
    bool comes_back = r->generate.stays && r->generate.sampled > 0;
    if (!comes_back && atomic_load_explicit(&w->draining, memory_order_relaxed))
        return llm_why(why, -EAGAIN, "this worker drains: ask another one");
    if (c->text_count == LLM_WORKER_TEXTS_MAX)
        return llm_why(why, -EBUSY, "%d texts of this client run or wait, the limit",
                       LLM_WORKER_TEXTS_MAX);
    if (text_by_id(c, r->id))
        return llm_why(why, -EINVAL, "text %llu of this connection runs already",
                       (unsigned long long)r->id);
    return 0;
}

static int check_request(const struct llm_client *c, char *why)
{
    if (c->job_count - c->text_count + c->relayed_count < LLM_WORKER_REQUESTS_MAX)
        return 0;
    return llm_why(why, -EBUSY, "%d requests of this client are waiting, the limit",
                   LLM_WORKER_REQUESTS_MAX);
}

static void on_request(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg,
                       struct llm_request *r)
{
    char why[LLM_WHY_CHARS];
    bool is_text = r->method == LLM_METHOD_GENERATE;
    int rc = is_text ? check_text(w, c, r, why) : check_request(c, why);
    if (rc) {
        llm_answer_error(c, msg, rc, why);
        return;
    }
    if (is_text && c->text_count == 0)
        atomic_store_explicit(&c->unread, false, memory_order_relaxed);
    bool finds = w->options.takes_files && r->method == LLM_METHOD_FIND_WEIGHTS;
    struct llm_job *job = job_create(c, msg, r, finds || needs_upload(r->method));
    if (!job) {
        llm_answer_error(c, msg, -ENOMEM, "no memory for a request");
        return;
    }
    enqueue(w, job);
}

/* Tells a failed upload once, in answer to the call that needs it. */
static bool upload_failed(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg)
{
    int rc = c->upload_error;
    char why[LLM_WHY_CHARS];
    if (!rc || !needs_upload(msg->method))
        return false;
    c->upload_error = 0;
    if (rc == -EDQUOT)
        llm_why_set(why,
                    "the upload exceeds what this worker keeps for clients, %llu bytes of one and "
                    "%llu of all",
                    (unsigned long long)llm_upload_share(w),
                    (unsigned long long)w->options.upload_bytes);
    else
        llm_why_set(why, "the upload: %s", rc == -EPROTO ? "pieces out of order" : strerror(-rc));
    llm_answer_error(c, msg, rc == -EDQUOT ? -ENOSPC : rc, why);
    return true;
}

static void forward(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg)
{
    char why[LLM_WHY_CHARS];
    int rc = check_request(c, why);
    if (rc)
        llm_answer_error(c, msg, rc, why);
    else
        llm_link_forward(w, c, msg, NULL, NULL);
}

/* With what was uploaded, in the client's process. */
static void compute_outside(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg)
{
    char why[LLM_WHY_CHARS];
    int rc = check_request(c, why);
    if (rc == 0)
        rc = llm_blob_is_whole(&c->weights, why);
    if (rc == 0 && (llm_blob_seal(&c->weights) || llm_blob_seal(&c->kv)))
        rc = llm_why(why, -EIO, "what was uploaded cannot be sealed");
    if (rc == 0 && c->kv.filled != c->kv.bytes)
        rc = llm_why(why, -EINVAL, "a part of the cache is missing");
    if (rc)
        llm_answer_error(c, msg, rc, why);
    else
        llm_link_forward(w, c, msg, &c->weights, &c->kv);
}

static void dispatch(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg,
                     struct llm_request *r)
{
    uint64_t bytes = 0;
    const uint8_t *file = NULL;
    if (msg->kind != RPC_CALL && r->method != LLM_METHOD_UPLOAD && r->method != LLM_METHOD_CANCEL) {
        rpc_release(c->ep, msg); /* nobody would hear what comes of it */
        return;
    }
    if (llm_link_is_direct(w, c, r->method)) {
        forward(w, c, msg);
        return;
    }
    switch (r->method) {
    case LLM_METHOD_UPLOAD:
        on_upload(w, c, msg, r);
        break;
    case LLM_METHOD_DOWNLOAD_WEIGHTS:
        if (!w->options.downloads) {
            llm_answer_error(
                c, msg, -EPERM,
                "the model is not for download: start the worker with --allow-download");
            break;
        }
        if (w->served_count)
            file = llm_file_bytes(w->served[0]->file, &bytes);
        on_piece(c, msg, r, file, bytes);
        break;
    case LLM_METHOD_DOWNLOAD_KV:
        on_piece(c, msg, r, c->cache.data, c->cache.bytes);
        break;
    case LLM_METHOD_NETWORK_COUNTERS:
        on_counters(c, msg);
        break;
    case LLM_METHOD_DESCRIBE:
        on_describe(w, c, msg);
        break;
    case LLM_METHOD_HEADER:
        on_header(w, c, msg, r);
        break;
    case LLM_METHOD_CANCEL:
        on_cancel(c, msg, r);
        break;
    case LLM_METHOD_DRAIN:
        on_drain(w, c, msg, r);
        break;
    case LLM_METHOD_PROBE:
        llm_answer(c, msg, 0, zeros, r->length);
        break;
    default:
        if (upload_failed(w, c, msg))
            break;
        if (r->method == LLM_METHOD_STATELESS && w->options.outside)
            compute_outside(w, c, msg);
        else
            on_request(w, c, msg, r);
    }
}

bool llm_worker_handle(struct llm_worker *w, struct rpc_ep *ep, struct rpc_msg *msg)
{
    if (msg->method < LLM_METHOD_FIRST || msg->method > LLM_METHOD_LAST)
        return false;
    struct llm_client *c = client_of(w, ep);
    struct llm_request r = {.method = msg->method};
    if (!c) {
        if (msg->kind == RPC_CALL)
            (void)rpc_reply(ep, msg, -ENOMEM, &(struct rpc_send){.stream = msg->stream});
        rpc_release(ep, msg);
        return true;
    }
    int rc = llm_request_decode(msg->method, msg->data, msg->len, &r);
    llm_byte_account_received(&c->account, rc ? LLM_CONTROL : llm_request_class(&r), msg->len);
    if (rc) {
        char why[LLM_WHY_CHARS];
        llm_why_set(why, "%s: %s", llm_method_name(msg->method),
                    rc == -EMSGSIZE ? "a length or count past its limit" : "a malformed request");
        llm_answer_error(c, msg, rc, why);
    } else {
        dispatch(w, c, msg, &r);
    }
    llm_request_fini(&r);
    return true;
}

/* ---- life ---- */

int llm_worker_event_fd(const struct llm_worker *w)
{
    return w->event_fd;
}

int llm_worker_create(const struct llm_worker_options *options, struct llm_worker **out, char *why)
{
    struct llm_worker *w = calloc(1, sizeof *w);
    if (!w)
        return llm_why(why, -ENOMEM, "no memory for a worker");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    pthread_cond_init(&w->returned, NULL);
    w->options = *options;
    if (!w->options.sequences)
        w->options.sequences = LLM_SEQUENCES_MAX;
    if (!w->options.tokens)
        w->options.tokens = WIRE_TOKENS_MAX;
    if (!w->options.batch || w->options.batch > LLM_WORKER_BATCH_MAX)
        w->options.batch = LLM_WORKER_BATCH_MAX;
    w->spins = hw_cores() >= LLM_WORKER_SPIN_CORES;
    if (getrandom(&w->incarnation, sizeof w->incarnation, 0) != sizeof w->incarnation)
        w->incarnation = hw_now_ns();
    w->incarnation |= 1;
    llm_jobs_init(&w->queue);
    llm_jobs_init(&w->ready);
    llm_jobs_init(&w->arrived);
    llm_jobs_init(&w->held);
    llm_loader_init(w);
    llm_jobs_init(&w->running);
    llm_jobs_init(&w->done);
    llm_pushes_init(&w->pushes);
    llm_pushes_init(&w->ready_pushes);
    w->counts = options->counts ? options->counts : w->own_counts;
    w->count_set = (struct hw_counter_set){
        .defs = llm_worker_count_defs, .values = w->counts, .count = LLM_COUNTS};
    w->links = options->outside ? epoll_create1(EPOLL_CLOEXEC) : -1;
    w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = w->event_fd < 0 || (options->outside && w->links < 0) ? -errno : 0;
    if (rc)
        llm_why_set(why, "no event descriptor: %s", strerror(-rc));
    if (rc == 0) {
        rc = hw_counter_set_register(&w->count_set);
        if (rc)
            llm_why_set(why, "no counters: %s", strerror(-rc));
    }
    if (rc == 0)
        rc = llm_worker_kv_open(w, why);
    if (rc == 0)
        rc = llm_worker_load_served(w, why);
    w->options.models = NULL; /* the caller's */
    if (rc == 0) {
        rc = -pthread_create(&w->thread, NULL, work, w);
        w->thread_runs = rc == 0;
        if (rc)
            llm_why_set(why, "no thread: %s", strerror(-rc));
    }
    if (rc) {
        llm_worker_destroy(w);
        return rc;
    }
    *out = w;
    return 0;
}

static void stop_threads(struct llm_worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (w->thread_runs)
        pthread_join(w->thread, NULL);
    llm_loader_fini(w);
    llm_pool_destroy(w->samplers);
}

void llm_worker_destroy(struct llm_worker *w)
{
    if (!w)
        return;
    stop_threads(w);
    pushes_free(&w->pushes);
    pushes_free(&w->ready_pushes);
    llm_worker_unload(w);
    while (w->clients) {
        struct llm_client *c = w->clients;
        assert(!c->ep); /* the server closed each before it was destroyed */
        while (c->jobs)
            job_free(w, c->jobs);
        client_free(w, c);
    }
    llm_kept_fini(w);
    assert(atomic_load(&w->held_bytes) == 0);
    llm_worker_kv_close(w);
    pthread_cond_destroy(&w->wake);
    pthread_cond_destroy(&w->returned);
    pthread_mutex_destroy(&w->lock);
    hw_counter_set_unregister(&w->count_set);
    if (w->event_fd >= 0)
        close(w->event_fd);
    if (w->links >= 0)
        close(w->links);
    free(w);
}
