#include "page/group.h"

#include "base/log.h"
#include "page/broadcast/link.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { STRATEGIES_MAX = 16 }; /* opened in one group: all there are, and some of a test's */

struct opened {
    const struct page_strategy *strategy;
    void *state;
};

struct page_group {
    struct page_runtime runtime;
    struct page_peers peers;
    uint64_t timeout_ns;
    uint64_t all; /* ranks, as a mask */
    struct page_info infos[PAGE_RANKS_MAX];
    struct opened opened[STRATEGIES_MAX];
    uint32_t opened_count;

    pthread_mutex_t lock; /* guards all below */
    struct opened *map, *unmap;
    uint64_t epoch, seq;
    uint64_t doubtful;           /* ranks that may or may not have done doubtful_seq */
    uint64_t doubtful_seq;       /* one for all: no batch is sent while there is any */
    struct page_command command; /* the one at hand */
    struct page_answer answers[PAGE_RANKS_MAX];
};

static uint64_t deadline(const struct page_group *g)
{
    return page_host_ns() + g->timeout_ns;
}

/* ---- opening ---- */

static int ask_rank(const struct page_group *g, uint32_t rank, struct page_info *out,
                    struct page_error *why)
{
    struct page_link *link;
    struct page_error cause;
    int rc = page_link_open(g->peers.paths[rank], g->timeout_ns, &link, &cause);
    if (rc == 0) {
        rc = page_link_info(link, deadline(g), out, &cause);
        page_link_close(link);
    }
    return rc ? page_fail(why, rc, cause.driver, "rank %u: %.170s", rank, cause.text) : 0;
}

/* What each rank says about itself now. */
static int ask_all(struct page_group *g, struct page_info *infos, struct page_error *why)
{
    for (uint32_t r = 0; r < g->peers.count; r++) {
        int rc = ask_rank(g, r, &infos[r], why);
        if (rc)
            return rc;
    }
    return 0;
}

static int check_agreement(const struct page_group *g, struct page_error *why)
{
    const struct page_geometry *first = &g->infos[0].geometry;
    for (uint32_t r = 0; r < g->peers.count; r++) {
        const struct page_geometry *one = &g->infos[r].geometry;
        if (g->infos[r].rank != r)
            return page_fail(why, -EPROTO, 0, "rank %u: the worker there says it is rank %u", r,
                             g->infos[r].rank);
        if (one->pages != first->pages || one->layers != first->layers ||
            one->page_bytes != first->page_bytes || one->layout != first->layout)
            return page_fail(why, -EPROTO, 0, "rank %u has %u pages of %u layers, rank 0 %u of %u",
                             r, one->pages, one->layers, first->pages, first->layers);
    }
    return 0;
}

/* Sends one command to some ranks over new connections, because the state of a strategy may be the
 * problem.  Returns the ranks that executed it. */
static uint64_t tell(struct page_group *g, enum page_op op, uint64_t seq, uint64_t ranks,
                     uint64_t until)
{
    uint64_t done = 0;
    g->command.epoch = g->epoch;
    g->command.seq = seq;
    g->command.deadline = until;
    g->command.op = op;
    g->command.count = 0;
    page_strategy_async.send(&g->peers, NULL, &g->command, ranks, until, g->answers);
    for (uint32_t r = 0; r < g->peers.count; r++) {
        if ((ranks >> r & 1) && g->answers[r].outcome.why.rc == 0)
            done |= UINT64_C(1) << r;
    }
    return done;
}

static int reset_workers(struct page_group *g, struct page_error *why)
{
    if (getrandom(&g->epoch, sizeof g->epoch, 0) != sizeof g->epoch)
        return page_fail(why, -errno, 0, "no random numbers: %s", strerror(errno));
    uint64_t done = tell(g, PAGE_OP_RESET, 0, g->all, deadline(g));
    if (done == g->all)
        return 0;
    uint32_t r = (uint32_t)__builtin_ctzll(g->all & ~done);
    const struct page_error *cause = &g->answers[r].outcome.why;
    return page_fail(why, cause->rc, cause->driver, "rank %u: %.170s", r, cause->text);
}

static int use(struct page_group *g, const struct page_strategy *strategy, struct opened **out,
               struct page_error *why)
{
    for (uint32_t i = 0; i < g->opened_count; i++) {
        if (g->opened[i].strategy == strategy) {
            *out = &g->opened[i];
            return 0;
        }
    }
    if (g->opened_count == STRATEGIES_MAX)
        return page_fail(why, -ENOSPC, 0, "%d strategies are open already", STRATEGIES_MAX);
    struct opened *o = &g->opened[g->opened_count];
    *o = (struct opened){.strategy = strategy};
    int rc = strategy->open ? strategy->open(&g->peers, deadline(g), &o->state, why) : 0;
    if (rc)
        return rc;
    g->opened_count++;
    *out = o;
    return 0;
}

int page_group_use(struct page_group *g, const struct page_strategy *map,
                   const struct page_strategy *unmap, struct page_error *why)
{
    struct opened *for_map = NULL, *for_unmap = NULL;
    pthread_mutex_lock(&g->lock);
    int rc = use(g, map, &for_map, why);
    if (rc == 0)
        rc = use(g, unmap ? unmap : map, &for_unmap, why);
    if (rc == 0) {
        g->map = for_map;
        g->unmap = for_unmap;
    }
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int page_group_open(const struct page_group_config *config, struct page_group **out,
                    struct page_error *why)
{
    if (config->ranks == 0 || config->ranks > PAGE_RANKS_MAX)
        return page_fail(why, -EINVAL, 0, "%u workers; 1 to %d are possible", config->ranks,
                         PAGE_RANKS_MAX);
    struct page_group *g = calloc(1, sizeof *g);
    if (!g)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    int rc = page_runtime_join(&g->runtime, config->base, config->group, why);
    if (rc) {
        free(g);
        return rc;
    }
    pthread_mutex_init(&g->lock, NULL);
    g->timeout_ns = config->timeout_ns ? config->timeout_ns : PAGE_TIMEOUT_DEFAULT_NS;
    if (g->timeout_ns > PAGE_TIMEOUT_MAX_NS)
        g->timeout_ns = PAGE_TIMEOUT_MAX_NS;
    g->peers.count = config->ranks;
    g->all = config->ranks == 64 ? UINT64_MAX : (UINT64_C(1) << config->ranks) - 1;
    for (uint32_t r = 0; r < config->ranks; r++)
        page_runtime_socket(&g->runtime, r, g->peers.paths[r]);
    rc = page_runtime_lead(&g->runtime, config->scheduler, why);
    if (rc == 0)
        rc = ask_all(g, g->infos, why);
    if (rc == 0)
        rc = check_agreement(g, why);
    if (rc == 0)
        rc = reset_workers(g, why);
    if (rc == 0)
        rc = page_group_use(g, config->map ? config->map : &page_strategy_shm, config->unmap, why);
    if (rc) {
        page_group_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

void page_group_close(struct page_group *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < g->opened_count; i++) {
        if (g->opened[i].strategy->close)
            g->opened[i].strategy->close(g->opened[i].state);
    }
    page_runtime_leave(&g->runtime);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

const struct page_info *page_group_info(const struct page_group *g)
{
    return &g->infos[0];
}

const struct page_geometry *page_group_geometry(const struct page_group *g)
{
    return &g->infos[0].geometry;
}

/* ---- a batch ---- */

/* Asks the ranks that left a batch unanswered to cancel it. */
static int clear_doubts(struct page_group *g, struct page_verdict *v)
{
    if (!g->doubtful)
        return 0;
    g->doubtful &= ~tell(g, PAGE_OP_CANCEL, g->doubtful_seq, g->doubtful, deadline(g));
    if (!g->doubtful)
        return 0;
    v->rank = __builtin_ctzll(g->doubtful);
    return page_fail(&v->why, -EHOSTDOWN, 0,
                     "rank %d left a batch unanswered, so its state is in doubt: %.110s", v->rank,
                     g->answers[v->rank].outcome.why.text);
}

static int check_batch(struct page_group *g, const uint32_t *ids, size_t count,
                       struct page_verdict *v)
{
    if (count == 0)
        return page_fail(&v->why, -EINVAL, 0, "no page ids");
    if (count > PAGE_BATCH_MAX)
        return page_fail(&v->why, -E2BIG, 0, "%zu page ids at once; at most %d", count,
                         PAGE_BATCH_MAX);
    v->code = PAGE_OUT_OF_RANGE;
    int rc = page_geometry_check(page_group_geometry(g), ids, count, &v->why);
    v->code = rc ? PAGE_OUT_OF_RANGE : PAGE_SKIPPED;
    return rc;
}

static bool is_answered(const struct page_answer *a)
{
    return a->began != 0;
}

/* Where a successful batch spent its time.  Averages over the ranks, so that the parts add up. */
static void add_up_times(const struct page_group *g, uint64_t start, uint64_t end,
                         struct page_times *t)
{
    double driver = 0, worker = 0, there = 0, wait = 0, n = g->peers.count;
    uint64_t last = start;
    for (uint32_t r = 0; r < g->peers.count; r++)
        last = g->answers[r].ended > last ? g->answers[r].ended : last;
    for (uint32_t r = 0; r < g->peers.count; r++) {
        const struct page_answer *a = &g->answers[r];
        double in_driver = (double)a->outcome.driver_ns;
        driver += in_driver;
        worker += (double)(a->ended - a->began) - in_driver;
        there += (double)(a->began - start);
        wait += (double)(last - a->ended);
    }
    *t = (struct page_times){.total_ns = (double)(end - start),
                             .driver_ns = driver / n,
                             .worker_ns = worker / n,
                             .transit_ns = there / n + (double)end - (double)last,
                             .wait_ns = wait / n};
}

/* A rank that was not asked, because the time was over, is not to blame. */
static uint64_t asked_ranks(const struct page_group *g)
{
    uint64_t asked = 0, bit = 1;
    for (uint32_t r = 0; r < g->peers.count; r++, bit <<= 1)
        asked |= g->answers[r].outcome.why.rc != -ECANCELED ? bit : 0;
    return asked;
}

/* The rank to blame: first one that gave a reason, then one that gave none. */
static uint32_t blamed_rank(const struct page_group *g, uint64_t failed)
{
    for (uint32_t r = 0; r < g->peers.count; r++) {
        if ((failed >> r & 1) && is_answered(&g->answers[r]))
            return r;
    }
    return (uint32_t)__builtin_ctzll(failed);
}

static void blame(const struct page_group *g, uint64_t failed, struct page_verdict *v)
{
    if (failed & asked_ranks(g))
        failed &= asked_ranks(g);
    uint32_t r = blamed_rank(g, failed);
    const struct page_outcome *o = &g->answers[r].outcome;
    int others = __builtin_popcountll(failed) - 1;
    v->rank = (int)r;
    for (uint32_t i = 0; i < o->count && v->code == PAGE_SKIPPED; i++) {
        v->code = (enum page_code)o->codes[i];
        v->id = g->command.ids[i];
    }
    if (others)
        page_fail(&v->why, o->why.rc, o->why.driver, "rank %u (and %d more): %.150s", r, others,
                  o->why.text);
    else
        page_fail(&v->why, o->why.rc, o->why.driver, "rank %u: %.160s", r, o->why.text);
}

/* Undoes the batch where it was executed.  Silent ranks are asked again before the next batch. */
static void roll_back(struct page_group *g, uint64_t did, uint64_t silent)
{
    uint64_t seq = g->command.seq, until = page_host_ns() + PAGE_TIMEOUT_DEFAULT_NS;
    until = until > deadline(g) ? until
                                : deadline(g); /* these ranks answered just now, so wait for them */
    uint64_t undone = did ? tell(g, PAGE_OP_CANCEL, seq, did, until) : 0;
    g->doubtful = silent | (did & ~undone);
    g->doubtful_seq = seq;
    if (did & ~undone)
        hw_warn(HW_CAT_PAGE, "group %s: rank %d could not take a batch back: %s", g->runtime.group,
                __builtin_ctzll(did & ~undone),
                g->answers[__builtin_ctzll(did & ~undone)].outcome.why.text);
}

static int broadcast(struct page_group *g, enum page_op op, const uint32_t *ids, size_t count,
                     struct page_verdict *v)
{
    struct opened *o = op == PAGE_OP_MAP ? g->map : g->unmap;
    uint64_t did = 0, silent = 0, bit = 1, start = page_host_ns(), until = start + g->timeout_ns;
    g->command.epoch = g->epoch;
    g->command.seq = ++g->seq;
    g->command.deadline = until;
    g->command.op = op;
    g->command.count = (uint32_t)count;
    memcpy(g->command.ids, ids, count * sizeof *ids);
    o->strategy->send(&g->peers, o->state, &g->command, g->all, until, g->answers);
    uint64_t end = page_host_ns();
    for (uint32_t r = 0; r < g->peers.count; r++, bit <<= 1) {
        did |= g->answers[r].outcome.why.rc == 0 ? bit : 0;
        silent |= is_answered(&g->answers[r]) ? 0 : bit;
    }
    if (did == g->all) {
        add_up_times(g, start, end, &v->times);
        return 0;
    }
    blame(g, g->all & ~did, v);
    roll_back(g, did, silent);
    return v->why.rc;
}

static int run_batch(struct page_group *g, enum page_op op, const uint32_t *ids, size_t count,
                     struct page_verdict *v)
{
    *v = (struct page_verdict){.rank = PAGE_NO_RANK, .code = PAGE_SKIPPED};
    int rc = check_batch(g, ids, count, v);
    if (rc)
        return rc;
    pthread_mutex_lock(&g->lock);
    rc = clear_doubts(g, v);
    if (rc == 0)
        rc = broadcast(g, op, ids, count, v);
    /* One rank may have been short of memory that others had cached; by now all caches are empty.
     */
    if ((rc == -ENOSPC || rc == -ENOMEM) && !g->doubtful) {
        *v = (struct page_verdict){.rank = PAGE_NO_RANK, .code = PAGE_SKIPPED};
        rc = broadcast(g, op, ids, count, v);
    }
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int page_group_map(struct page_group *g, const uint32_t *ids, size_t count, struct page_verdict *v)
{
    return run_batch(g, PAGE_OP_MAP, ids, count, v);
}

int page_group_unmap(struct page_group *g, const uint32_t *ids, size_t count,
                     struct page_verdict *v)
{
    return run_batch(g, PAGE_OP_UNMAP, ids, count, v);
}
