/* scale_model.c - what formulas say of a cluster; docs/design/scaling.md has them in words. */
#include "bench/kvsim/scale_impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum {
    EXCHANGE = 2,      /* a request and its answer */
    NAME_CHARS = 12,   /* of a member, as it is here */
    ADDRESS_CHARS = 18 /* "10.11.12.13:28200" and its NUL */
};

/* Messages that carry a block. */
static uint32_t chunks_of(uint32_t block_bytes)
{
    return (block_bytes + KV_PEER_CHUNK - 1) / KV_PEER_CHUNK;
}

/* ---- the trace ---- */

static void note_use(struct kv_scale_uses *u, uint32_t id, uint32_t request)
{
    struct kv_scale_use *use = &u->of[id];
    if (use->count++ == 0) {
        use->first = request;
        u->used++;
    }
    use->last = request;
}

static void note_uses(struct kv_scale_uses *u, const struct kv_trace *t, uint8_t *is_session)
{
    for (uint32_t r = 0, at = 0; r < t->request_count; at = t->ends[r++]) {
        if (at == t->ends[r])
            continue;
        uint32_t session = kv_scale_session(t, at, t->ends[r]);
        u->sessions += !is_session[session];
        is_session[session] = 1;
        for (uint32_t i = at; i < t->ends[r]; i++)
            note_use(u, t->ids[i], r);
        u->of[t->ids[at]].leads = true;
    }
}

int kv_scale_uses_init(struct kv_scale_uses *uses, const struct kv_trace *t)
{
    struct kv_scale_uses u = {0};
    for (uint32_t i = 0; i < t->id_count; i++)
        u.ids = t->ids[i] >= u.ids ? t->ids[i] + 1 : u.ids;
    u.of = calloc((size_t)u.ids + 1, sizeof(u.of[0]));
    uint8_t *is_session = calloc((size_t)u.ids + 1, 1);
    int rc = u.of && is_session ? 0 : -ENOMEM;
    if (rc == 0) {
        note_uses(&u, t, is_session);
        *uses = u;
    } else {
        free(u.of);
    }
    free(is_session);
    return rc;
}

void kv_scale_uses_fini(struct kv_scale_uses *uses)
{
    free(uses->of);
}

/* ---- balls and bins ---- */

/* Bins are taken as independent, each with a Poisson number of balls: the mean of the most is the
 * sum over k of the chance that one has more than k. */
double kv_scale_most(double balls, uint32_t bins)
{
    double mean = balls / bins, below = 0;
    if (bins == 1 || balls <= 0)
        return mean;
    double spread = 12 * sqrt(mean) + 40; /* further out is less than 1e-30 */
    double first = mean > spread ? floor(mean - spread) : 0, most = first;
    for (double k = first; k < mean + spread; k++) {
        below += exp(k * log(mean) - mean - lgamma(k + 1));
        most += 1 - pow(below < 1 ? below : 1, bins);
    }
    return most;
}

/* How many of n different ones `draws` draws are expected to see. */
static double seen(double draws, double n)
{
    return n * -expm1(draws * log1p(-1 / n));
}

/* ---- a cluster ---- */

/* Blocks moved and not, if every store held everything. */
struct traffic {
    double fetched, unmoved, missed;
    double hot_fetched, hot_unmoved; /* of the block that is used most */
};

/* Members that fetch a block: all that ask for it after it was put, one time each. */
static double fetchers(const struct kv_scale_options *o, const struct kv_scale_uses *u,
                       const struct kv_scale_use *use)
{
    double again = (double)use->count - 1; /* some numbers of the trace are not used */
    if (again <= 0)
        return 0;
    if (o->members == 1)
        return 1;
    if (o->spread == KV_SCALE_BY_TURNS)
        return seen(again, o->members);
    double askers = use->leads ? seen(u->sessions, o->members) : 1;
    return askers < again ? askers : again;
}

static struct traffic traffic_of(const struct kv_scale_options *o, const struct kv_scale_uses *u)
{
    struct traffic t = {.missed = u->used};
    uint32_t most = 0;
    for (uint32_t id = 0; id < u->ids; id++) {
        const struct kv_scale_use *use = &u->of[id];
        double fetched = fetchers(o, u, use);
        double unmoved = use->count ? use->count - 1 - fetched : 0;
        t.fetched += fetched;
        t.unmoved += unmoved;
        if (use->count > most) {
            most = use->count;
            t.hot_fetched = fetched;
            t.hot_unmoved = unmoved;
        }
    }
    return t;
}

/* Stores that hold less turn a part of both into misses; the hottest block stays.  Cached
 * replicas go first, so they last until the stores are full of what was put. */
static void shrink(struct traffic *t, double hits, double cached_last)
{
    double all = t->fetched + t->unmoved, kept = all > 0 ? hits / all : 0;
    double hot = t->hot_fetched + t->hot_unmoved;
    t->missed += all - hits;
    t->unmoved *= kept * cached_last;
    t->fetched = hits - t->unmoved;
    t->hot_unmoved *= cached_last;
    t->hot_fetched = hot - t->hot_unmoved;
}

/* The share of the trace after which puts alone have filled the stores. */
static double until_full(const struct kv_scale_options *o, const struct kv_scale_uses *u)
{
    double room = (double)o->members * o->member_blocks, put = (double)u->used * o->copies;
    return put > room ? room / put : 1;
}

static void model_traffic(const struct kv_scale_options *o, const struct traffic *t,
                          struct kv_scale_result *r)
{
    double n = o->members, copies = o->copies < o->members ? o->copies : n;
    double chunks = chunks_of(o->block_bytes), fetch = EXCHANGE * (1 + chunks) + 1;
    double away = 1 - copies / n;         /* the asker has no copy itself */
    double others = copies * (1 - 1 / n); /* copies that are elsewhere */
    double put = EXCHANGE * (2 + chunks);
    double messages =
        away * (t->fetched * fetch + t->unmoved * EXCHANGE) + others * t->missed * (EXCHANGE + put);
    double hot = away * (t->hot_fetched * fetch + t->hot_unmoved * EXCHANGE);
    double moved = away * t->fetched + others * t->missed, hot_moved = away * t->hot_fetched;
    double mean = 2 * moved / n, most = kv_scale_most(2 * moved, o->members); /* at both ends */
    most = hot_moved + mean > most ? hot_moved + mean : most;
    r->messages.model = messages / r->seconds;
    r->busiest.model = (2 * messages / n + hot) / r->seconds;
    r->bytes.model = moved * o->block_bytes / r->seconds;
    r->bytes_balance.model = mean > 0 ? most / mean : 0;
}

/* Blocks that were used before and will be used again. */
static uint32_t in_use_at(const struct kv_scale_options *o, const struct kv_scale_uses *u,
                          uint64_t at_ns)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < u->ids; id++) {
        const struct kv_scale_use *use = &u->of[id];
        count += use->count && o->at_ns[use->first] < at_ns && o->at_ns[use->last] >= at_ns;
    }
    return count;
}

/* With two copies the other one serves; a miss is unknown only where no member has it. */
static void model_effect(const struct kv_scale_options *o, const struct kv_scale_uses *u,
                         double kept, uint32_t present, double seconds, struct kv_scale_effect *e)
{
    double share = 1.0 / (e->change == KV_SCALE_JOIN ? present + 1 : present);
    double rest = (double)o->at_ns[o->trace->request_count - 1] - (double)e->at_ns;
    double unknown = fmax(fmin(e->propagated_ns.measured, rest), 0);
    double asked = o->trace->id_count / seconds * unknown / 1e9;
    double again = (double)(o->trace->id_count - u->used) / o->trace->id_count * kept;
    e->keys_moved.model = share;
    e->misses.model = o->copies == 1 ? in_use_at(o, u, e->at_ns) * share * kept : 0;
    e->put_bytes.model = e->misses.model * o->block_bytes;
    if (e->change != KV_SCALE_JOIN)
        e->lost.model = o->copies == 1 ? asked * share : asked * o->copies * share * (1 - again);
}

static void model_effects(const struct kv_scale_options *o, const struct kv_scale_uses *u,
                          double kept, struct kv_scale_result *r)
{
    uint32_t present = o->members;
    for (uint32_t i = 0; i < r->effect_count; i++) {
        struct kv_scale_effect *e = &r->effects[i];
        model_effect(o, u, kept, present, r->seconds, e);
        e->propagated_ns.model = kv_scale_propagated_model_ns(o, e->change);
        present = e->change == KV_SCALE_JOIN ? present + 1 : present - 1;
    }
}

void kv_scale_model(const struct kv_scale_options *o, const struct kv_scale_uses *u,
                    const struct kv_replay_result *one, struct kv_scale_result *r)
{
    double all = o->trace->id_count, n = o->members, again = all - u->used;
    struct traffic t = traffic_of(o, u);
    double kept = again > 0 ? (double)one->hits / again : 0;
    shrink(&t, (double)one->hits, until_full(o, u));
    r->keys_balance.model = kv_scale_most(u->used, o->members) / (u->used / n);
    r->hits.model = (double)one->hits / all;
    r->prefix_hits.model = (double)one->prefix_hits / all;
    r->unmoved.model = one->hits && n > o->copies ? t.unmoved / (double)one->hits : 0;
    model_traffic(o, &t, r);
    r->get_mean_ns.model = 4 * (double)o->latency_ns + o->block_bytes * 1e9 / (double)o->bandwidth;
    r->get_p99_ns.model = r->get_mean_ns.model;
    r->view_bytes.model = n * (sizeof(uint64_t) + NAME_CHARS + 1 + ADDRESS_CHARS);
    model_effects(o, u, kept, r);
}
