#include "llm/tp/tp.h"

#include "base/attr.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "llm/model/why.h"
#include "llm/tp/kv_pages.h"
#include "llm/tp/processes.h"
#include "llm/tp/side.h"
#include "page/group.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long one rank may keep rank 0 waiting: far above what it may come later than others of equal
 * work on a busy machine; times LOADING while it reads and packs its share of the weights. */
static const uint64_t timeout_default_s = 60, timeout_max_s = 3600;
enum { LOADING = 10 };

/* Threads of each rank when the cores are shared. */
static uint32_t threads_of(uint32_t ranks)
{
    uint32_t each = hw_cores() / ranks;
    return each < 1 ? 1 : each < LLM_THREADS_MAX ? each : LLM_THREADS_MAX;
}

/* Rank 0. */
struct tp {
    struct llm_tp_side side;    /* first: the backend's split leads here */
    struct llm_backend_ops ops; /* the device's own, but for what all ranks take part in */
    struct llm_tp_order order;
    uint32_t ranks;
    uint32_t kv_heads;
    uint64_t timeout_ns;
    uint64_t limit_ns; /* of a meeting, now */
    uint32_t silent;   /* a rank that did not answer a broadcast; 0: none */
    uint32_t gone;     /* a rank whose link ended in one; likewise */
    struct llm_tp_processes processes;
    bool is_formed; /* the ranks run, with the KV memory */
    struct llm_kv_memory *kv;
};

/* Of all ranks. */
struct llm_kv_memory {
    struct tp *tp;
    struct llm_kv_memory *inner; /* rank 0's own */
    struct llm_tp_kv_create command;
    struct llm_tp_pages pages; /* rank 0's worker */
    struct page_group *group;
    uint8_t *mapped; /* of each slab: it is to be, at every rank */
    uint64_t slab_bytes;
    struct page_verdict verdict;
};

static struct tp *tp_of(struct llm_backend *b)
{
    return b->split->user;
}

/* ---- which models can be split ---- */

/* Each has a KV head, and a unit of the rows of every matrix. */
static uint32_t ranks_most(const struct llm_config *c)
{
    const uint32_t rows[] = {c->width, c->ffn, c->vocab, c->shared_ffn ? c->shared_ffn : c->ffn};
    uint32_t most = c->kv_heads;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t units = (rows[i] + LLM_SPLIT_UNIT - 1) / LLM_SPLIT_UNIT;
        most = units < most ? units : most;
    }
    return most;
}

int llm_tp_check(const struct llm_file *file, uint32_t ranks, char *why)
{
    const struct llm_config *c = llm_file_config(file);
    const struct llm_tensor *q_norm = llm_file_find(file, "blk.0.attn_q_norm.weight");
    if (ranks < 2 || ranks > PAGE_RANKS_MAX)
        return llm_why(why, -EINVAL, "%u tensor-parallel workers; 2 to %d are possible", ranks,
                       PAGE_RANKS_MAX);
    uint32_t most = ranks_most(c);
    if (ranks > most)
        return llm_why(why, -EINVAL,
                       "%u tensor-parallel workers; each needs one of the model's %u KV heads, and "
                       "%d rows of each matrix: use --tp %u or less",
                       ranks, c->kv_heads, LLM_SPLIT_UNIT, most);
    if (q_norm && q_norm->dims[0] != c->head_dim)
        return llm_why(why, -EOPNOTSUPP,
                       "this model norms the queries of all heads together, which tensor-parallel "
                       "workers do not have: serve it without --tp");
    uint64_t kv_bytes = (uint64_t)LLM_KV_POSITIONS * c->kv_heads * c->head_dim * sizeof(uint16_t);
    if (kv_bytes > LLM_TP_ROOM_BYTES)
        return llm_why(why, -EOPNOTSUPP, "KV rows of %u values are too large to be gathered",
                       c->kv_heads * c->head_dim);
    if (c->vocab > LLM_TP_ROOM_BYTES / sizeof(float))
        return llm_why(why, -EOPNOTSUPP, "a vocabulary of %u is too large to be gathered",
                       c->vocab);
    return 0;
}

struct llm_tp_cost llm_tp_layer_cost(const struct llm_config *c)
{
    uint64_t copies = c->experts ? c->experts_used : 1;
    struct llm_tp_cost cost = {.gathers = 4,
                               .values = (uint64_t)c->heads * c->head_dim + c->width +
                                         copies * ((uint64_t)c->ffn + c->width)};
    if (c->shared_ffn) {
        cost.gathers += 2;
        cost.values += (uint64_t)c->shared_ffn + c->width;
    }
    return cost;
}

/* ---- forming ---- */

static void add_stats(struct llm_tp_stats *sum, const struct llm_tp_exchange *x)
{
    struct llm_tp_exchange_stats now;
    if (!x)
        return;
    llm_tp_exchange_stats(x, &now);
    sum->meetings += now.meetings;
    sum->wait_ns += now.wait_ns;
}

/* Pages that were mapped are not any more, at any rank. */
static void break_up(struct tp *tp)
{
    if (tp->kv) {
        page_group_close(tp->kv->group);
        tp->kv->group = NULL;
        llm_tp_pages_stop(&tp->kv->pages);
    }
    llm_tp_processes_stop(&tp->processes);
    add_stats(&tp->side.stats, tp->side.exchange);
    llm_tp_exchange_destroy(tp->side.exchange);
    tp->side.exchange = NULL;
    tp->is_formed = false;
}

/* Why a rank is missing: what it told, that it died, or that it hangs. */
static int tell_failure(struct tp *tp, uint32_t dead, char *why)
{
    for (uint32_t r = 1; r < tp->ranks; r++) {
        const struct llm_tp_place *place = llm_tp_exchange_place(tp->side.exchange, r);
        int status = place->status;
        if (status)
            return llm_why(why, status < 0 ? status : -EIO, "tensor-parallel worker %u: %.*s", r,
                           LLM_WHY_CHARS - 64, place->text);
    }
    bool is_late;
    uint32_t rank = llm_tp_exchange_missed(tp->side.exchange, &is_late);
    char limit[HW_FORMAT_CHARS];
    if (tp->silent || is_late)
        return llm_why(
            why, -EOWNERDEAD,
            "tensor-parallel worker %u of %u did not answer for %s (HAWSER_TP_TIMEOUT_S)",
            tp->silent ? tp->silent : rank, tp->ranks, hw_format_duration(limit, tp->limit_ns));
    return llm_why(why, -EOWNERDEAD, "tensor-parallel worker %u of %u died", rank ? rank : dead,
                   tp->ranks);
}

static uint32_t find_dead(void *processes)
{
    return llm_tp_processes_dead(processes);
}

/* How long a rank may keep rank 0 waiting from now on. */
static void set_limit(struct tp *tp, uint64_t ns)
{
    tp->limit_ns = ns;
    llm_tp_exchange_limit(tp->side.exchange, ns);
}

static int start(struct tp *tp, char *why)
{
    tp->silent = tp->gone = 0;
    uint32_t threads = tp->ranks * (tp->order.threads ? tp->order.threads : 1);
    int rc = llm_tp_exchange_create(tp->ranks, threads, &tp->side.exchange);
    if (rc)
        return llm_why(why, rc, "no memory for tensor-parallel workers: %s", strerror(-rc));
    memcpy(llm_tp_exchange_command(tp->side.exchange), &tp->order, sizeof tp->order);
    rc = llm_tp_processes_start(&tp->processes, tp->ranks, llm_tp_exchange_fd(tp->side.exchange));
    if (rc)
        return llm_why(why, rc, "cannot start tensor-parallel workers: %s", strerror(-rc));
    llm_tp_exchange_watch(tp->side.exchange, find_dead, &tp->processes);
    set_limit(tp, LOADING * tp->timeout_ns);
    if (llm_tp_meet(tp->side.exchange))
        return tell_failure(tp, 0, why);
    set_limit(tp, tp->timeout_ns);
    return 0;
}

/* The page worker of rank 0 uses the KV memory in its own thread, and holds the lock meanwhile. */
static void pass_lock(struct llm_kv_memory *kv)
{
    pthread_mutex_lock(&kv->pages.lock);
    pthread_mutex_unlock(&kv->pages.lock);
}

typedef int broadcast(struct page_group *g, const uint32_t *ids, size_t count,
                      struct page_verdict *verdict);

static int at_all_ranks(struct llm_kv_memory *kv, broadcast *change, const uint32_t *slabs,
                        size_t count)
{
    pass_lock(kv);
    int rc = change(kv->group, slabs, count, &kv->verdict);
    pass_lock(kv);
    return rc;
}

static int map_again(struct llm_kv_memory *kv, char *why)
{
    uint32_t ids[PAGE_BATCH_MAX], slabs = kv->command.pages / kv->command.run;
    for (uint32_t slab = 0; slab < slabs;) {
        uint32_t count = 0;
        for (; slab < slabs && count < PAGE_BATCH_MAX; slab++) {
            if (kv->mapped[slab])
                ids[count++] = slab;
        }
        if (count && at_all_ranks(kv, page_group_map, ids, count))
            return llm_why(why, kv->verdict.why.rc, "KV pages: %s", kv->verdict.why.text);
    }
    return 0;
}

/* KV memory at all ranks, and the group of their page workers. */
static int join_kv(struct llm_kv_memory *kv, char *why)
{
    static _Atomic uint32_t made; /* relaxed: names differ */
    struct tp *tp = kv->tp;
    struct llm_tp_command *c = llm_tp_exchange_command(tp->side.exchange);
    struct page_error error = {0};
    snprintf(kv->command.group, sizeof kv->command.group, "tp-%d-%u", (int)getpid(),
             atomic_fetch_add_explicit(&made, 1, memory_order_relaxed));
    c->op = LLM_TP_KV_CREATE;
    c->kv = kv->command;
    llm_tp_post(tp->side.exchange);
    int rc = llm_tp_pages_start(&kv->pages, tp->side.ops, kv->inner, &kv->command, 0, why);
    if (rc)
        return rc;
    if (llm_tp_meet(tp->side.exchange))
        return tell_failure(tp, 0, why);
    kv->slab_bytes = tp->side.ops->kv_slab(kv->inner);
    for (uint32_t r = 1; r < tp->ranks; r++)
        kv->slab_bytes += llm_tp_exchange_place(tp->side.exchange, r)->slab_bytes;
    struct page_group_config config = {.group = kv->command.group,
                                       .scheduler = "serve",
                                       .ranks = tp->ranks,
                                       .timeout_ns = tp->timeout_ns};
    rc = page_group_open(&config, &kv->group, &error);
    return rc ? llm_why(why, rc, "KV pages: %s", error.text) : map_again(kv, why);
}

static int form(struct tp *tp, char *why)
{
    int rc = start(tp, why);
    if (rc == 0 && tp->kv)
        rc = join_kv(tp->kv, why);
    if (rc) {
        if (tp->side.exchange)
            llm_tp_break(tp->side.exchange);
        break_up(tp);
    }
    tp->is_formed = rc == 0;
    return rc;
}

/* A rank is gone, or this one failed with own_rc and its why: so is its share of all KV. */
static int lose(struct tp *tp, int own_rc, char *why)
{
    char cause[LLM_WHY_CHARS];
    /* The break ends the others. */
    uint32_t dead = tp->gone ? tp->gone : llm_tp_processes_dead(&tp->processes);
    llm_tp_break(tp->side.exchange);
    if (own_rc)
        llm_why_set(cause, "tensor-parallel worker 0: %.*s", LLM_WHY_CHARS - 64, why);
    else
        (void)tell_failure(tp, dead, cause);
    hw_warn(HW_CAT_LLM, "%s; the workers are started again, and texts under way computed again",
            cause);
    break_up(tp);
    tp->side.backend->kv_lost = true;
    tp->side.stats.losses++;
    return llm_why(why, -EOWNERDEAD, "%s", cause);
}

/* Before every use of the ranks.  What was lost must not be read, so the engine says first that it
 * knows. */
static int ensure(struct tp *tp, char *why)
{
    if (tp->side.backend->kv_lost)
        return llm_why(why, -EOWNERDEAD, "the KV memory was lost with a tensor-parallel worker");
    return tp->is_formed ? 0 : form(tp, why);
}

/* ---- KV ---- */

static int tp_kv_create(struct llm_backend *b, const struct llm_kv_shape *shape,
                        struct llm_kv_memory **out, char *why)
{
    struct tp *tp = tp_of(b);
    const struct llm_split *split = b->split;
    uint32_t unit = shape->row_values / tp->kv_heads;
    struct llm_kv_shape own = *shape;
    assert(!tp->kv && shape->row_values % tp->kv_heads == 0);
    own.row_values = llm_share_of(shape->row_values, unit, split->rank, split->ranks).count;
    struct llm_kv_memory *kv = calloc(1, sizeof *kv);
    if (kv)
        kv->mapped = calloc(shape->pages / shape->run, 1);
    int rc = kv && kv->mapped ? tp->side.ops->kv_create(b, &own, &kv->inner, why)
                              : llm_why(why, -ENOMEM, "no memory for the KV cache");
    if (rc == 0) {
        uint64_t each = (uint64_t)shape->row_values / split->ranks * sizeof(uint16_t) * 2;
        kv->tp = tp;
        kv->command = (struct llm_tp_kv_create){.row_values = shape->row_values,
                                                .pages = shape->pages,
                                                .run = shape->run,
                                                .unit = unit,
                                                .slab_bytes = each * LLM_KV_POSITIONS * shape->run};
        tp->kv = kv;
        rc = tp->is_formed ? join_kv(kv, why) : form(tp, why);
    }
    if (rc) {
        b->ops->kv_destroy(b, kv);
        return rc;
    }
    *out = kv;
    return 0;
}

static void tp_kv_destroy(struct llm_backend *b, struct llm_kv_memory *kv)
{
    struct tp *tp = tp_of(b);
    if (!kv)
        return;
    if (tp->kv) { /* ranks have one KV memory, and end with it */
        if (tp->side.exchange)
            llm_tp_break(tp->side.exchange);
        break_up(tp);
    }
    tp->kv = NULL;
    tp->side.ops->kv_destroy(b, kv->inner);
    free(kv->mapped);
    free(kv);
}

static uint64_t tp_kv_slab(const struct llm_kv_memory *kv)
{
    return kv->slab_bytes;
}

static void note(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, bool is_mapped)
{
    for (size_t i = 0; i < count; i++)
        kv->mapped[slabs[i]] = is_mapped;
}

/* Whether a batch failed because a rank is gone or hangs, and so is what it had.  The sockets of
 * one that dies end one after the other. */
static bool lost_in_broadcast(struct llm_kv_memory *kv, int rc, char *why)
{
    struct tp *tp = kv->tp;
    uint32_t rank = kv->verdict.rank > 0 ? (uint32_t)kv->verdict.rank : 0;
    bool is_silent = rank && (rc == -ETIMEDOUT || rc == -EHOSTDOWN);
    bool is_gone = rank && (rc == -ECONNRESET || rc == -EPIPE || rc == -ESHUTDOWN);
    if (rc == 0 || (!is_silent && !is_gone && !llm_tp_processes_dead(&tp->processes)))
        return false;
    tp->silent = is_silent ? rank : 0;
    tp->gone = is_gone ? rank : 0;
    (void)lose(tp, 0, why);
    return true;
}

static int tp_kv_map(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why)
{
    struct tp *tp = kv->tp;
    int rc = ensure(tp, why);
    if (rc)
        return rc;
    rc = at_all_ranks(kv, page_group_map, slabs, count);
    if (lost_in_broadcast(kv, rc, why))
        return -EOWNERDEAD;
    if (rc)
        return llm_why(why, rc, "KV pages: %s", kv->verdict.why.text);
    note(kv, slabs, count, true);
    return 0;
}

static int tp_kv_unmap(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why)
{
    struct tp *tp = kv->tp;
    int rc = tp->is_formed ? at_all_ranks(kv, page_group_unmap, slabs, count) : 0;
    if (lost_in_broadcast(kv, rc, why))
        rc = 0; /* nothing is mapped now, and the next use tells */
    if (rc)
        return llm_why(why, rc, "KV pages: %s", kv->verdict.why.text);
    note(kv, slabs, count, false);
    return 0;
}

static struct llm_tp_rows rows_of(const struct llm_kv_memory *kv, const struct llm_kv_rows *rows)
{
    return (struct llm_tp_rows){
        .rows = *rows, .values = kv->command.row_values, .unit = kv->command.unit};
}

static void post_rows(struct tp *tp, enum llm_tp_op op, const struct llm_kv_rows *rows)
{
    struct llm_tp_command *c = llm_tp_exchange_command(tp->side.exchange);
    c->op = op;
    c->rows = *rows;
    llm_tp_post(tp->side.exchange);
}

static int tp_kv_read(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, void *dst,
                      char *why)
{
    struct tp *tp = kv->tp;
    struct llm_tp_rows all = rows_of(kv, rows);
    int rc = ensure(tp, why);
    if (rc)
        return rc;
    void *room = llm_tp_exchange_room(tp->side.exchange);
    post_rows(tp, LLM_TP_KV_READ, rows);
    rc = tp->side.ops->kv_read(kv->inner, rows, llm_tp_rows_part(&all, room, 0, tp->ranks), why);
    if (rc || llm_tp_meet(tp->side.exchange))
        return lose(tp, rc, why);
    llm_tp_rows_join(&all, room, dst, tp->ranks);
    return 0;
}

static int tp_kv_write(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, const void *src,
                       char *why)
{
    struct tp *tp = kv->tp;
    struct llm_tp_rows all = rows_of(kv, rows);
    int rc = ensure(tp, why);
    if (rc)
        return rc;
    void *room = llm_tp_exchange_room(tp->side.exchange);
    post_rows(tp, LLM_TP_KV_WRITE, rows);
    llm_tp_rows_part_all(&all, src, room, tp->ranks);
    if (llm_tp_meet(tp->side.exchange))
        return lose(tp, 0, why);
    rc = tp->side.ops->kv_write(kv->inner, rows, llm_tp_rows_part(&all, room, 0, tp->ranks), why);
    if (rc || llm_tp_meet(tp->side.exchange))
        return lose(tp, rc, why);
    return 0;
}

/* ---- steps ---- */

static int tp_begin(struct llm_backend *b, const struct llm_batch *batch, char *why)
{
    struct tp *tp = tp_of(b);
    int rc = ensure(tp, why);
    if (rc)
        return rc;
    rc =
        llm_tp_step_encode(batch, llm_tp_exchange_command(tp->side.exchange), LLM_TP_COMMAND_BYTES);
    if (rc)
        return llm_why(why, -ENOMEM, "a step of %u pages is too large for tensor-parallel workers",
                       batch->page_count);
    llm_tp_post(tp->side.exchange);
    tp->side.batch = batch;
    tp->side.kernel_ns = 0;
    rc = tp->side.ops->begin(b, batch, why);
    return rc ? lose(tp, rc, why) : 0;
}

static void tp_append(struct llm_backend *b, const struct llm_op_append *op)
{
    struct llm_op_append own = *op;
    own.kv = op->kv->inner;
    tp_of(b)->side.ops->append(b, &own);
}

static void tp_attend(struct llm_backend *b, const struct llm_op_attend *op)
{
    struct llm_op_attend own = *op;
    own.kv = op->kv->inner;
    tp_of(b)->side.ops->attend(b, &own);
}

static int tp_finish(struct llm_backend *b, uint64_t *kernel_ns, char *why)
{
    struct tp *tp = tp_of(b);
    int rc = tp->side.ops->finish(b, kernel_ns, why);
    *kernel_ns += tp->side.kernel_ns;
    if (rc || llm_tp_meet(tp->side.exchange))
        return lose(tp, rc, why);
    return 0;
}

/* ---- life ---- */

static void tp_close(struct llm_backend *b)
{
    struct tp *tp = tp_of(b);
    assert(!tp->kv);
    const struct llm_backend_ops *inner = tp->side.ops;
    if (tp->side.exchange)
        llm_tp_break(tp->side.exchange);
    break_up(tp);
    llm_tp_side_fini(&tp->side);
    b->ops = inner;
    b->split = NULL;
    inner->close(b);
    free(tp);
}

static void replace_ops(struct tp *tp, struct llm_backend *backend)
{
    tp->ops = *backend->ops;
    tp->ops.close = tp_close;
    tp->ops.kv_create = tp_kv_create;
    tp->ops.kv_destroy = tp_kv_destroy;
    tp->ops.kv_slab = tp_kv_slab;
    tp->ops.kv_map = tp_kv_map;
    tp->ops.kv_unmap = tp_kv_unmap;
    tp->ops.kv_read = tp_kv_read;
    tp->ops.kv_read_all = NULL;
    tp->ops.kv_write = tp_kv_write;
    tp->ops.begin = tp_begin;
    tp->ops.append = tp_append;
    tp->ops.attend = tp_attend;
    tp->ops.finish = tp_finish;
    tp->ops.prepare = NULL; /* the others would not know of it */
    backend->ops = &tp->ops;
}

static int write_order(struct tp *tp, const struct llm_backend_ops *ops,
                       const struct llm_backend_config *config, const struct llm_tp_config *from,
                       char *why)
{
    struct llm_tp_order *o = &tp->order;
    if (!realpath(from->path, o->path))
        return llm_why(why, -errno, "cannot find %s: %s", from->path, strerror(errno));
    llm_tp_hash(from->file, &o->size, o->hash);
    snprintf(o->backend, sizeof o->backend, "%s", ops->name);
    o->threads = config->threads;
    o->device = config->device;
    o->math = config->math;
    return 0;
}

int llm_tp_open(const struct llm_backend_ops *ops, const struct llm_backend_config *config,
                const struct llm_tp_config *from, struct llm_backend **out, char *why)
{
    struct llm_backend_config own = *config;
    struct llm_backend *backend;
    int rc = llm_tp_check(from->file, from->ranks, why);
    if (rc)
        return rc;
    struct tp *tp = calloc(1, sizeof *tp);
    if (!tp)
        return llm_why(why, -ENOMEM, "no memory for tensor-parallel workers");
    if (own.threads == 0)
        own.threads = threads_of(from->ranks);
    tp->ranks = from->ranks;
    (void)hw_env_u64("HAWSER_TP_TIMEOUT_S", timeout_default_s, 1, timeout_max_s, &tp->timeout_ns);
    tp->timeout_ns *= HW_SEC;
    tp->kv_heads = llm_file_config(from->file)->kv_heads;
    rc = write_order(tp, ops, &own, from, why);
    if (rc == 0)
        rc = ops->open(&own, &backend, why);
    if (rc) {
        free(tp);
        return rc;
    }
    llm_tp_side_init(&tp->side, &llm_tp_in_memory, backend, 0, tp->ranks);
    replace_ops(tp, backend);
    rc = form(tp, why);
    if (rc) {
        tp_close(backend);
        return rc;
    }
    *out = backend;
    return 0;
}

void llm_tp_stats(const struct llm_backend *b, struct llm_tp_stats *out)
{
    const struct llm_tp_side *side = b->split ? b->split->user : NULL;
    *out = side ? side->stats : (struct llm_tp_stats){0};
    if (side)
        add_stats(out, side->exchange);
}
