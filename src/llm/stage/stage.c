#include "llm/stage/stage.h"

#include "base/log.h"
#include "llm/engine/graph.h"
#include "llm/engine/rope.h"
#include "llm/model/why.h"
#include "llm/stage/message.h"
#include "llm/tp/command.h"
#include "llm/tp/side.h"
#include "llm/tp/tp.h"
#include "page/page.h"
#include "rpc/resume/resume.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

enum {
    JOBS_MAX = 16, /* that wait: a front has one call under way, and others are turned away */
    PARTS_MAX = 4, /* a front is at most one gather ahead, and each is two posts */
    FAREWELL = 0,  /* a job's method: the endpoint has closed */
    PUSH,          /* the same: for the front, made by the stage's thread */
};

/* A message.  It belongs to the server's thread, then the queue, the stage's thread, and the
 * server's again.  One that the stage's thread made is a push. */
struct job {
    STAILQ_ENTRY(job) next;
    struct rpc_ep *ep;   /* NULL: a push whose endpoint is gone */
    struct rpc_msg *msg; /* to answer; NULL: the endpoint is gone (server) */
    bool is_gone;        /* the endpoint (lock) */
    uint32_t method;
    int status;
    struct wire_enc answer;
    char why[LLM_WHY_CHARS];
    size_t len;
    uint8_t bytes[]; /* of the request */
};

STAILQ_HEAD(jobs, job);

struct llm_stage {
    struct llm_stage_options options;
    struct llm_stages stages; /* one */
    struct llm_backend *backend;
    struct llm_graph *graph;
    const struct llm_config *config;
    uint64_t size; /* of the file */
    uint8_t hash[LLM_STAGE_HASH_BYTES];
    int event_fd;
    pthread_t thread;
    bool thread_runs;
    struct job *jobs[JOBS_MAX]; /* that are not answered yet (server) */
    uint32_t job_count;         /* (server) */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_cond_t returned;
    struct jobs queue, done; /* (lock) */
    struct jobs parts;       /* of gathers, from the front (lock) */
    uint32_t part_count;     /* (lock) */
    _Atomic uint32_t news;   /* changes with parts, and with what ends a wait for them (lock) */
    bool stopping;           /* (lock) */
    bool front_left;         /* its endpoint is gone (lock) */
    bool server_sleeps;      /* it uses no endpoint (lock) */
    bool lent;               /* the stage's thread uses them (lock) */
    struct rpc_ep *front;    /* NULL: none; the stage's thread changes it (lock) */
    /* The rest is the stage's thread's. */
    struct llm_tp_side side; /* of a share, with its rank */
    uint8_t *room;
    struct hw_wait wait;
    struct llm_kv_memory *kv;
    struct llm_stage_open shape;
    struct llm_stage_limits limits;
    uint8_t *mapped; /* of each slab */
    uint64_t mapped_count, slab_bytes;
    struct llm_stage_step step;
};

static struct job *jobs_take(struct jobs *jobs)
{
    struct job *job = STAILQ_FIRST(jobs);
    if (job)
        STAILQ_REMOVE_HEAD(jobs, next);
    return job;
}

static void job_free(struct job *job)
{
    wire_enc_fini(&job->answer);
    free(job);
}

static bool is_share(const struct llm_stage *s)
{
    return s->options.layers.end == 0;
}

/* ---- a front comes and goes ---- */

/* opens: the front's message; NULL: there is none. */
static void set_front(struct llm_stage *s, const struct job *opens)
{
    struct job *part;
    pthread_mutex_lock(&s->lock);
    s->front = opens ? opens->ep : NULL;
    s->front_left = opens && opens->is_gone;
    while ((part = jobs_take(&s->parts)))
        job_free(part);
    s->part_count = 0;
    pthread_mutex_unlock(&s->lock);
}

static void forget_front(struct llm_stage *s)
{
    s->backend->ops->kv_destroy(s->backend, s->kv);
    free(s->mapped);
    s->kv = NULL;
    s->mapped = NULL;
    s->mapped_count = 0;
    set_front(s, NULL);
}

static int check_open(const struct llm_stage *s, const struct llm_stage_open *o, char *why)
{
    struct llm_stage_layers own = s->options.layers;
    if (is_share(s))
        own.end = s->config->layers;
    if (s->front)
        return llm_why(why, -EBUSY, "it has another front");
    if (o->size != s->size || memcmp(o->hash, s->hash, sizeof o->hash) != 0)
        return llm_why(why, -ESTALE,
                       "the model's file there has other bytes: give both servers the same file");
    if (o->first != own.first || o->end != own.end)
        return llm_why(why, -ESTALE, "it has layers %u-%u, not %u-%u", own.first, own.end - 1,
                       o->first, o->end - 1);
    if (is_share(s) && (o->rank == 0 || o->rank >= o->ranks))
        return llm_why(why, -EPROTO, "a malformed rank");
    if (o->row_values != s->config->kv_heads * s->config->head_dim || o->run == 0 ||
        o->pages == 0 || o->pages > PAGE_COUNT_MAX || o->pages % o->run)
        return llm_why(why, -EPROTO, "a malformed shape of KV");
    return 0;
}

static int load(struct llm_stage *s, uint32_t rank, uint32_t ranks, char *why);

/* The weights of another share make room first. */
static int choose_share(struct llm_stage *s, const struct llm_stage_open *o, char *why)
{
    int rc = llm_tp_check(s->options.file, o->ranks, why);
    if (rc || (s->graph && s->side.split.rank == o->rank && s->side.split.ranks == o->ranks))
        return rc;
    return load(s, o->rank, o->ranks, why);
}

static int open_front(struct llm_stage *s, struct job *job)
{
    struct llm_stage_open o;
    char arithmetic[LLM_ARITHMETIC_CHARS];
    if (llm_stage_open_get(job->bytes, job->len, is_share(s), &o))
        return llm_why(job->why, -EPROTO, "a malformed request");
    int rc = check_open(s, &o, job->why);
    if (rc == 0 && is_share(s))
        rc = choose_share(s, &o, job->why);
    if (rc)
        return rc;
    if (is_share(s))
        o.row_values = llm_share_of(o.row_values, s->config->head_dim, o.rank, o.ranks).count;
    struct llm_kv_shape shape = {.row_values = o.row_values,
                                 .pages = o.pages,
                                 .run = o.run,
                                 .pools = 1,
                                 .pool_ends = {o.pages}};
    s->mapped = calloc(o.pages / o.run, 1);
    rc = s->mapped ? s->backend->ops->kv_create(s->backend, &shape, &s->kv, job->why)
                   : llm_why(job->why, -ENOMEM, "no memory for a table of KV slabs");
    if (rc) {
        forget_front(s);
        return rc;
    }
    set_front(s, job);
    s->shape = o;
    s->limits.pages = o.pages;
    s->slab_bytes = s->backend->ops->kv_slab(s->kv);
    llm_backend_arithmetic(s->backend, arithmetic);
    wire_put_str(&job->answer, arithmetic);
    wire_put_u64(&job->answer, s->slab_bytes);
    return 0;
}

/* ---- KV ---- */

static int change_slabs(struct llm_stage *s, struct job *job, bool maps)
{
    const struct llm_backend_ops *ops = s->backend->ops;
    uint32_t slabs[PAGE_BATCH_MAX];
    int64_t count = llm_stage_slabs_get(job->bytes, job->len, slabs, PAGE_BATCH_MAX,
                                        s->shape.pages / s->shape.run);
    for (int64_t i = 0; i < count; i++) {
        if (s->mapped[slabs[i]] == maps)
            count = -EPROTO;
        else
            s->mapped[slabs[i]] = maps; /* also finds a slab that is named twice */
    }
    if (count < 0) { /* the table is wrong now, and so is the front */
        forget_front(s);
        return llm_why(job->why, -EPROTO, "malformed slabs of KV");
    }
    uint64_t limit = s->options.kv_bytes,
             bytes = (s->mapped_count + (uint64_t)count) * s->slab_bytes;
    int rc = 0;
    if (maps && limit && bytes > limit)
        rc = llm_why(job->why, -ENOSPC, "its KV memory of %llu bytes is full (--kv-memory)",
                     (unsigned long long)limit);
    if (rc == 0)
        rc = (maps ? ops->kv_map : ops->kv_unmap)(s->kv, slabs, (size_t)count, job->why);
    if (rc == 0)
        s->mapped_count =
            maps ? s->mapped_count + (uint64_t)count : s->mapped_count - (uint64_t)count;
    for (int64_t i = 0; i < count && rc; i++)
        s->mapped[slabs[i]] = !maps;
    return rc;
}

static bool is_mapped(const struct llm_stage *s, uint32_t page)
{
    return page < s->shape.pages && s->mapped[page / s->shape.run];
}

static int move_rows(struct llm_stage *s, struct job *job, bool writes)
{
    const struct llm_backend_ops *ops = s->backend->ops;
    struct llm_kv_rows rows;
    struct wire_dec rest;
    int rc = llm_stage_rows_get(job->bytes, job->len, &rows, &rest);
    size_t bytes = rc ? 0 : (size_t)rows.count * s->shape.row_values * sizeof(uint16_t);
    if (rc || rows.count == 0 || !is_mapped(s, rows.page) ||
        wire_dec_left(&rest) != (writes ? bytes : 0))
        return llm_why(job->why, -EPROTO, "malformed rows of KV");
    if (writes)
        return ops->kv_write(s->kv, &rows, wire_get_bytes(&rest, bytes), job->why);
    uint8_t *to = wire_enc_space(&job->answer, bytes);
    return to ? ops->kv_read(s->kv, &rows, to, job->why)
              : llm_why(job->why, -ENOMEM, "no memory for an answer");
}

/* ---- gathers ---- */

static void hand_over(struct llm_stage *s, struct job *job);

static void *gather_room(struct llm_tp_side *side)
{
    return ((struct llm_stage *)side->user)->room;
}

struct news {
    struct llm_stage *stage;
    uint32_t seen;
};

static bool are_there(void *user)
{
    const struct news *n = user;
    return atomic_load_explicit(&n->stage->news, memory_order_relaxed) != n->seen;
}

static void tell_news(struct llm_stage *s)
{
    atomic_fetch_add_explicit(&s->news, 1, memory_order_relaxed); /* the lock orders the rest */
    pthread_cond_signal(&s->wake);
}

/* The front's next post; NULL: it is gone, or the stage ends. */
static struct job *await_part(struct llm_stage *s)
{
    struct news news = {.stage = s};
    uint64_t left_ns = HW_NEVER;
    pthread_mutex_lock(&s->lock);
    news.seen = atomic_load_explicit(&s->news, memory_order_relaxed);
    bool spins = STAILQ_EMPTY(&s->parts) && !s->front_left && !s->stopping;
    pthread_mutex_unlock(&s->lock);
    if (spins)
        (void)hw_wait_until(&s->wait, are_there, &news, &left_ns);
    pthread_mutex_lock(&s->lock);
    while (STAILQ_EMPTY(&s->parts) && !s->front_left && !s->stopping)
        pthread_cond_wait(&s->wake, &s->lock);
    struct job *part = s->front_left || s->stopping ? NULL : jobs_take(&s->parts);
    s->part_count -= part != NULL;
    pthread_mutex_unlock(&s->lock);
    return part;
}

/* The shares of ranks first to end, but for the own one, in one message. */
static int take_parts(struct llm_stage *s, const struct llm_gather *op, uint32_t rows,
                      uint32_t first, uint32_t end)
{
    const struct llm_split *split = &s->side.split;
    struct job *part = await_part(s);
    struct wire_dec d;
    if (!part)
        return -EOWNERDEAD;
    wire_dec_init(&d, part->bytes, part->len);
    for (uint32_t r = first; r < end; r++) {
        struct llm_share share = llm_share_of(op->width, op->unit, r, split->ranks);
        if (r != split->rank)
            wire_get_copy(&d, (float *)(void *)s->room + (size_t)share.first * rows,
                          (size_t)share.count * rows * sizeof(float));
    }
    int rc = wire_dec_end(&d) ? -EPROTO : 0;
    job_free(part);
    return rc;
}

/* Logits go one way, so the front says when it has taken them. */
static int meet_front(struct llm_tp_side *side, const struct llm_gather *op, uint32_t rows,
                      bool goes_on)
{
    struct llm_stage *s = side->user;
    const struct llm_split *split = &side->split;
    struct llm_share own = llm_share_of(op->width, op->unit, split->rank, split->ranks);
    size_t bytes = (size_t)own.count * rows * sizeof(float);
    struct job *push = calloc(1, sizeof *push + bytes);
    if (!push)
        return -ENOMEM;
    push->ep = s->front;
    push->method = PUSH;
    push->len = bytes;
    wire_enc_init(&push->answer, 0);
    memcpy(push->bytes, (float *)(void *)s->room + (size_t)own.first * rows, bytes);
    hand_over(s, push);
    if (op->first_only)
        return goes_on ? take_parts(s, op, rows, 0, 0) : 0;
    int rc = take_parts(s, op, rows, 0, 1);
    if (rc == 0 && split->ranks > 2)
        rc = take_parts(s, op, rows, 1, split->ranks);
    return rc;
}

/* The front hears of a failure when the step ends, which is at once. */
static const struct llm_tp_meetings with_front = {.room = gather_room, .meet = meet_front};

/* ---- steps ---- */

static int run_step(struct llm_stage *s, struct job *job)
{
    struct llm_stage_step *step = &s->step;
    struct llm_batch *batch = &step->batch;
    uint64_t kernel_ns;
    int rc = llm_stage_step_get(job->bytes, job->len, &s->limits, step);
    if (rc == -ENOMEM)
        return llm_why(job->why, rc, "no memory for a step");
    for (uint64_t i = 0; rc == 0 && i < (uint64_t)batch->layers * batch->page_count; i++)
        rc = is_mapped(s, batch->pages[i]) ? 0 : -EPROTO;
    const uint32_t *tokens = (const uint32_t *)(const void *)step->x; /* of a share */
    for (uint32_t i = 0; rc == 0 && is_share(s) && i < batch->rows; i++)
        rc = tokens[i] < s->config->vocab ? 0 : -EPROTO;
    if (rc)
        return llm_why(job->why, rc, "a malformed step");
    batch->row_copies = s->config->experts ? s->config->experts_used : 1;
    if (is_share(s)) {
        batch->tokens = tokens;
        batch->pick_count = step->wanted_count;
        s->side.batch = batch;
        return llm_graph_run(s->graph, s->kv, batch, NULL, &kernel_ns, job->why);
    }
    rc = llm_graph_pass(s->graph, s->kv, batch, step->x, &kernel_ns, job->why);
    for (uint32_t i = 0; i < step->wanted_count && rc == 0; i++)
        wire_put_bytes(&job->answer, step->x + (size_t)step->wanted[i] * s->config->width,
                       s->config->width * sizeof(float));
    if (rc == 0 && wire_enc_error(&job->answer))
        rc = llm_why(job->why, -ENOMEM, "no memory for an answer");
    return rc;
}

static int obey(struct llm_stage *s, struct job *job)
{
    if (job->method == FAREWELL) {
        if (s->front == job->ep)
            forget_front(s);
        return 0;
    }
    bool opens = job->method == LLM_STAGE_OPEN || job->method == LLM_STAGE_SHARE;
    if (opens && is_share(s) != (job->method == LLM_STAGE_SHARE))
        return -ENOSYS;
    if (!opens && s->front != job->ep)
        return llm_why(job->why, -EPERM, "a front opens a stage first");
    switch (job->method) {
    case LLM_STAGE_OPEN:
    case LLM_STAGE_SHARE:
        return open_front(s, job);
    case LLM_STAGE_MAP:
    case LLM_STAGE_UNMAP:
        return change_slabs(s, job, job->method == LLM_STAGE_MAP);
    case LLM_STAGE_READ:
    case LLM_STAGE_WRITE:
        return move_rows(s, job, job->method == LLM_STAGE_WRITE);
    case LLM_STAGE_STEP:
        return run_step(s, job);
    default:
        return -ENOSYS;
    }
}

static bool finish(struct llm_stage *s, struct job *job);

/* While the server's thread sleeps, this one sends: waking the server's takes longer. */
static void hand_over(struct llm_stage *s, struct job *job)
{
    pthread_mutex_lock(&s->lock);
    if (s->front_left && job->method == PUSH)
        job->ep = NULL;
    bool lent = s->lent = s->server_sleeps && STAILQ_EMPTY(&s->done);
    if (!lent)
        STAILQ_INSERT_TAIL(&s->done, job, next);
    pthread_mutex_unlock(&s->lock);
    if (!lent) {
        (void)eventfd_write(s->event_fd, 1);
        return;
    }
    bool waits = finish(s, job);
    pthread_mutex_lock(&s->lock);
    s->lent = false;
    pthread_cond_signal(&s->returned);
    pthread_mutex_unlock(&s->lock);
    if (waits)
        (void)eventfd_write(s->event_fd, 1); /* the server's next turn sends the rest */
}

static void *work(void *user)
{
    struct llm_stage *s = user;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        struct job *job = jobs_take(&s->queue);
        if (!job) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        job->status = obey(s, job);
        hand_over(s, job);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- messages ---- */

static void enqueue(struct llm_stage *s, struct job *job)
{
    pthread_mutex_lock(&s->lock);
    STAILQ_INSERT_TAIL(&s->queue, job, next);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* True when the server's thread has to send the rest. */
static bool answer(struct rpc_ep *ep, struct rpc_msg *msg, int status, const void *data, size_t len)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct rpc_send send = {.stream = msg->stream, .iov = &iov, .iov_count = len ? 1 : 0};
    if (msg->kind == RPC_CALL)
        (void)rpc_reply(ep, msg, status, &send); /* the server closes one that has ended */
    rpc_release(ep, msg);
    return rpc_flush(ep) != 0;
}

/* As answer. */
static bool push(const struct job *job)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)job->bytes, .iov_len = job->len};
    struct rpc_send send = {.method = LLM_STAGE_GATHER, .iov = &iov, .iov_count = 1};
    int rc = rpc_push(job->ep, &send);
    if (rc) /* else the front would wait for it */
        rpc_ep_shutdown(job->ep, rc, "a part of a gather could not be sent");
    return rpc_flush(job->ep) != 0 || rc;
}

/* A part of a gather does not wait for the step that it belongs to. */
static void take_post(struct llm_stage *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct job *part = calloc(1, sizeof *part + msg->len);
    if (part) {
        wire_enc_init(&part->answer, 0);
        part->len = msg->len;
        memcpy(part->bytes, msg->data, msg->len);
    }
    pthread_mutex_lock(&s->lock);
    bool takes = ep == s->front && !s->front_left;
    if (takes && part && s->part_count < PARTS_MAX) {
        STAILQ_INSERT_TAIL(&s->parts, part, next);
        s->part_count++;
        part = NULL;
    } else if (takes) {
        s->front_left = true; /* it has broken the rules, or there is no memory */
    }
    tell_news(s);
    pthread_mutex_unlock(&s->lock);
    if (part)
        job_free(part);
    rpc_release(ep, msg);
}

/* A front that was cut off may resume, and one that is silent may be cut off.  One that opens is
 * here: it has given up, or was started again. */
static void end_lost_front(struct llm_stage *s, const struct rpc_ep *opens)
{
    pthread_mutex_lock(&s->lock);
    struct rpc_ep *front = s->front_left ? NULL : s->front;
    pthread_mutex_unlock(&s->lock);
    if (!front || front == opens ||
        (!rpc_ep_is_cut(front) && rpc_ep_unheard_ns(front) < RPC_RESUME_TOLD_NS))
        return;
    rpc_ep_shutdown(front, 0, NULL);
    llm_stage_closed(s, front);
}

bool llm_stage_handle(struct llm_stage *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    static const char full[] = "too many calls wait at this stage";
    if (msg->method < LLM_STAGE_OPEN || msg->method >= LLM_STAGE_END)
        return false;
    if (msg->method == LLM_STAGE_GATHER && msg->kind != RPC_CALL) {
        take_post(s, ep, msg);
        return true;
    }
    if (msg->method == LLM_STAGE_OPEN || msg->method == LLM_STAGE_SHARE)
        end_lost_front(s, ep);
    struct job *job = s->job_count < JOBS_MAX ? calloc(1, sizeof *job + msg->len) : NULL;
    if (!job) {
        (void)answer(ep, msg, -EBUSY, full, sizeof full - 1);
        return true;
    }
    job->ep = ep;
    job->msg = msg;
    job->method = msg->method;
    job->len = msg->len;
    memcpy(job->bytes, msg->data, msg->len);
    wire_enc_init(&job->answer, WIRE_MESSAGE_MAX);
    s->jobs[s->job_count++] = job;
    enqueue(s, job);
    return true;
}

static void forget_job(struct llm_stage *s, const struct job *job)
{
    for (uint32_t i = 0; i < s->job_count; i++) {
        if (s->jobs[i] == job) {
            s->jobs[i] = s->jobs[--s->job_count];
            return;
        }
    }
}

/* What an endpoint asked before it left, and what has not begun, is not done.  Under the lock. */
static void drop_queued(struct llm_stage *s, const struct rpc_ep *ep)
{
    struct jobs all = STAILQ_HEAD_INITIALIZER(all);
    STAILQ_CONCAT(&all, &s->queue);
    for (struct job *job; (job = jobs_take(&all));) {
        if (job->ep != ep || !job->msg) {
            STAILQ_INSERT_TAIL(&s->queue, job, next);
            continue;
        }
        rpc_release(job->ep, job->msg);
        forget_job(s, job);
        job_free(job);
    }
}

/* Only the endpoint that is the front, or may become it, has jobs or KV; the thread knows which. */
void llm_stage_closed(struct llm_stage *s, struct rpc_ep *ep)
{
    pthread_mutex_lock(&s->lock);
    drop_queued(s, ep);
    for (uint32_t i = 0; i < s->job_count; i++) {
        struct job *job = s->jobs[i];
        if (job->ep != ep || !job->msg)
            continue;
        rpc_release(ep, job->msg);
        job->msg = NULL;
        job->is_gone = true;
    }
    struct job *done;
    STAILQ_FOREACH (done, &s->done, next) {
        if (done->ep == ep)
            done->ep = NULL;
    }
    if (s->front == ep) {
        s->front_left = true;
        tell_news(s);
    }
    pthread_mutex_unlock(&s->lock);
    struct job *farewell = calloc(1, sizeof *farewell);
    if (!farewell) { /* the front's memory stays until the process ends */
        hw_error(HW_CAT_LLM, "no memory to end a front: start this stage again");
        return;
    }
    farewell->ep = ep;
    farewell->method = FAREWELL;
    wire_enc_init(&farewell->answer, 0);
    enqueue(s, farewell);
}

/* As answer. */
static bool finish(struct llm_stage *s, struct job *job)
{
    bool waits = false;
    forget_job(s, job);
    if (job->msg && job->status)
        waits =
            answer(job->ep, job->msg, job->status, job->why, strnlen(job->why, RPC_ERROR_TEXT_MAX));
    else if (job->msg)
        waits =
            answer(job->ep, job->msg, 0, wire_enc_data(&job->answer), wire_enc_len(&job->answer));
    else if (job->method == PUSH && job->ep)
        waits = push(job);
    job_free(job);
    return waits;
}

int llm_stage_event_fd(const struct llm_stage *s)
{
    return s->event_fd;
}

void llm_stage_deliver(void *stage)
{
    struct llm_stage *s = stage;
    struct jobs jobs = STAILQ_HEAD_INITIALIZER(jobs);
    uint64_t rung;
    ssize_t n = read(s->event_fd, &rung, sizeof rung);
    (void)n; /* 0: an earlier call took the answers */
    pthread_mutex_lock(&s->lock);
    STAILQ_CONCAT(&jobs, &s->done);
    pthread_mutex_unlock(&s->lock);
    for (struct job *job; (job = jobs_take(&jobs));)
        (void)finish(s, job); /* this is the server's own turn */
}

void llm_stage_server_sleeps(struct llm_stage *s, bool begins)
{
    pthread_mutex_lock(&s->lock);
    while (s->lent)
        pthread_cond_wait(&s->returned, &s->lock);
    s->server_sleeps = begins;
    pthread_mutex_unlock(&s->lock);
}

/* ---- life ---- */

/* What a step of a front must have, whatever factors its angles have. */
static int read_limits(struct llm_stage *s, char *why)
{
    struct llm_rope *rope;
    if (llm_rope_create(s->config, NULL, &rope))
        return llm_why(why, -ENOMEM, "no memory for the rope's tables");
    s->limits = (struct llm_stage_limits){
        .width = is_share(s) ? 1 : s->config->width,
        .layers = is_share(s) ? s->config->layers : s->options.layers.end - s->options.layers.first,
        /* Learned positions end with the model's context; a front's is no longer. */
        .context = s->config->rope_dims == 0 ? s->config->context : LLM_CONTEXT_MAX,
        .rope_pairs = llm_rope_pairs(rope),
        .rope_tables = llm_rope_tables(rope)};
    llm_rope_destroy(rope);
    return 0;
}

static int open_backend(struct llm_stage *s, char *why)
{
    const struct llm_backend_ops *ops = llm_backend_find(s->options.backend);
    if (!ops)
        return llm_why(why, -ENODEV, "there is no backend '%s'", s->options.backend);
    int rc = read_limits(s, why);
    if (rc == 0)
        rc = ops->open(&s->options.config, &s->backend, why);
    if (rc)
        return rc;
    llm_tp_hash(s->options.file, &s->size, s->hash);
    if (is_share(s)) { /* the front says which */
        s->room = malloc(LLM_TP_ROOM_BYTES);
        return s->room ? 0 : llm_why(why, -ENOMEM, "no memory to gather rows");
    }
    s->stages = (struct llm_stages){.count = 1, .items = {s->options.layers}};
    s->stages.items[0].is_local = true;
    s->backend->stages = &s->stages;
    return llm_graph_create(s->backend, s->options.file, &s->graph, why);
}

static int load(struct llm_stage *s, uint32_t rank, uint32_t ranks, char *why)
{
    llm_graph_destroy(s->graph);
    s->graph = NULL;
    llm_tp_side_fini(&s->side);
    llm_tp_side_init(&s->side, &with_front, s->backend, rank, ranks);
    s->side.user = s;
    return llm_graph_create(s->backend, s->options.file, &s->graph, why);
}

int llm_stage_create(const struct llm_stage_options *options, struct llm_stage **out, char *why)
{
    struct llm_stage *s = calloc(1, sizeof *s);
    if (!s)
        return llm_why(why, -ENOMEM, "no memory for a stage");
    s->options = *options;
    s->config = llm_file_config(options->file);
    STAILQ_INIT(&s->queue);
    STAILQ_INIT(&s->done);
    STAILQ_INIT(&s->parts);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_cond_init(&s->returned, NULL);
    hw_wait_init(&s->wait, HW_SPIN_NS);
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = s->event_fd < 0 ? -errno : 0;
    if (rc)
        llm_why_set(why, "no event descriptor: %s", strerror(-rc));
    if (rc == 0)
        rc = open_backend(s, why);
    if (rc == 0) {
        rc = -pthread_create(&s->thread, NULL, work, s);
        s->thread_runs = rc == 0;
        if (rc)
            llm_why_set(why, "no thread: %s", strerror(-rc));
    }
    if (rc) {
        llm_stage_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void llm_stage_destroy(struct llm_stage *s)
{
    if (!s)
        return;
    if (s->thread_runs) {
        pthread_mutex_lock(&s->lock);
        s->stopping = true;
        tell_news(s);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (struct job *job; (job = jobs_take(&s->queue));)
        job_free(job);
    for (struct job *job; (job = jobs_take(&s->done));)
        job_free(job);
    if (s->backend)
        forget_front(s);
    llm_graph_destroy(s->graph);
    if (s->backend) {
        s->backend->stages = NULL;
        s->backend->split = NULL;
        s->backend->ops->close(s->backend);
    }
    llm_stage_step_fini(&s->step);
    llm_tp_side_fini(&s->side);
    free(s->room);
    pthread_cond_destroy(&s->returned);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    if (s->event_fd >= 0)
        close(s->event_fd);
    free(s);
}
