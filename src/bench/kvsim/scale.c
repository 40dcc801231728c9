#include "bench/kvsim/scale.h"

#include "base/hist.h"
#include "bench/kvsim/cluster.h"
#include "bench/kvsim/scale_impl.h"
#include "kv/store/extents.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const kv_scale_spread_names[KV_SCALE_SPREADS + 1] = {"session", "turns", NULL};
const char *const kv_scale_change_names[KV_SCALE_CHANGES] = {"join", "leave", "kill"};

enum {
    FIRST_TOLD = 7919,    /* from one change to the next; a prime, so that it is another */
    ACCESSES = 4,         /* blocks that a member's client asks for at a time */
    TIMEOUT_US = 5000000, /* of a request, as a worker's */
    SPARE_ENTRIES = 64,   /* of a store, for puts under way */
    NO_REQUEST = UINT32_MAX
};

static const uint64_t start_up_ns = HW_SEC; /* before the trace: a mesh connects */
static const uint64_t slice_ns = HW_MS;     /* after it: how often to look whether all has ended */
static const uint64_t drain_ns = 60 * HW_SEC; /* ... which it must, within deadlines */

/* A request on its way through its blocks. */
struct flight {
    uint32_t at;      /* its next block, in the trace */
    uint32_t waiting; /* behind it, at the same member */
    bool whole;       /* no block was missing so far */
};

/* One block of a request, at the member that asks. */
struct access {
    enum { IDLE, GETTING, RELEASING, STARTING, COMMITTING } state;
    uint32_t request, slot, id;
    uint64_t asked_ns;
    bool has_replica; /* the asker, of a block that it does not own */
};

struct client {
    struct access accesses[ACCESSES];
    uint32_t first_waiting, last_waiting; /* requests; NO_REQUEST: none */
};

struct progress {
    bool happened;
    uint32_t told; /* members that etcd has told */
    uint64_t keys_moved, misses, lost;
};

struct sim {
    const struct kv_scale_options *o;
    struct kv_scale_uses uses;
    struct kv_scale_step steps[KV_SCALE_EVENTS_MAX];
    struct progress progress[KV_SCALE_EVENTS_MAX];
    struct kv_view *views; /* before each step, and after the last one */
    struct cluster cluster;
    bool is_open;
    uint64_t begin_ns; /* of the trace, in the cluster's time */
    struct client *clients;
    struct flight *flights; /* of each request */
    uint32_t open;          /* requests on their way */
    uint32_t member_count;  /* that ever are */
    uint8_t *moved_by; /* of each block: the step that gave it other owners, and one; 0: none */
    struct hw_rng rng;
    struct hw_hist gets; /* ns */
    uint64_t hits, prefix_hits, unmoved, stale, evicted;
    uint32_t connections; /* most at a time */
    bool wrong;
};

/* ---- options ---- */

static bool trace_is_sound(const struct kv_scale_options *o)
{
    const struct kv_trace *t = o->trace;
    uint32_t end = 0;
    if (t->id_count == 0 || t->id_count > KV_TRACE_BLOCKS_MAX)
        return false;
    for (uint32_t i = 0; i < t->request_count; i++) {
        if (t->ends[i] < end || o->at_ns[i] > KV_SCALE_TIME_MAX ||
            (i > 0 && o->at_ns[i] < o->at_ns[i - 1]))
            return false;
        end = t->ends[i];
    }
    for (uint32_t i = 0; i < t->id_count; i++)
        if (t->ids[i] >= KV_SCALE_IDS_MAX)
            return false;
    return end == t->id_count;
}

/* Somebody must be left, and a view must hold all. */
static bool events_are_sound(const struct kv_scale_options *o)
{
    uint32_t leavers = 0;
    if (o->event_count > KV_SCALE_EVENTS_MAX)
        return false;
    for (uint32_t i = 0; i < o->event_count; i++) {
        const struct kv_scale_event *e = &o->events[i];
        leavers += e->change != KV_SCALE_JOIN;
        if (e->change >= KV_SCALE_CHANGES || e->at_ns > KV_SCALE_TIME_MAX ||
            (i > 0 && e->at_ns < o->events[i - 1].at_ns))
            return false;
    }
    return leavers < o->members && o->members + o->event_count - leavers <= KV_MEMBERS_MAX;
}

static bool options_are_sound(const struct kv_scale_options *o)
{
    return o->members >= 1 && o->copies >= 1 && o->copies <= KV_COPIES_MAX &&
           o->member_blocks >= 1 && o->member_blocks <= KV_BLOCK_ENTRIES_MAX - SPARE_ENTRIES &&
           o->block_bytes >= sizeof(uint32_t) && o->block_bytes <= KV_BLOCK_MAX &&
           o->spread < KV_SCALE_SPREADS && o->ttl_ns >= HW_MS && o->ttl_ns <= 3600 * HW_SEC &&
           o->latency_ns <= HW_SEC && o->bandwidth >= KV_SCALE_BANDWIDTH_MIN &&
           events_are_sound(o) && trace_is_sound(o);
}

uint64_t kv_scale_arena_bytes(const struct kv_scale_options *o)
{
    return (uint64_t)o->member_blocks *
           ((o->block_bytes + KV_GRANULE - 1) / KV_GRANULE * KV_GRANULE);
}

/* ---- members ---- */

/* Chooses a member to leave that has not been chosen yet. */
static uint32_t choose_leaver(struct sim *s, uint32_t steps)
{
    for (;;) {
        uint32_t member = (uint32_t)hw_rng_below(&s->rng, s->o->members), i = 0;
        while (i < steps && s->steps[i].member != member)
            i++;
        if (i == steps)
            return member;
    }
}

/* Members that join at the same time join in the order of their names. */
static int by_commit(const void *a, const void *b)
{
    const struct kv_scale_step *x = a, *y = b;
    if (x->commit_ns != y->commit_ns)
        return x->commit_ns > y->commit_ns ? 1 : -1;
    return (x->member > y->member) - (x->member < y->member);
}

static void plan_steps(struct sim *s)
{
    uint32_t joined = 0;
    for (uint32_t i = 0; i < s->o->event_count; i++) {
        const struct kv_scale_event *e = &s->o->events[i];
        bool joins = e->change == KV_SCALE_JOIN;
        struct kv_scale_step *step = &s->steps[i];
        *step = (struct kv_scale_step){
            .change = e->change,
            .member = joins ? s->o->members + joined++ : choose_leaver(s, i),
            .at_ns = e->at_ns,
            .commit_ns = kv_scale_commit_ns(s->o, e->change, e->at_ns, hw_rng_u64(&s->rng))};
    }
    qsort(s->steps, s->o->event_count, sizeof(s->steps[0]), by_commit);
    s->member_count = s->o->members + joined;
}

/* The cluster has the first one. */
static void make_views(struct sim *s)
{
    for (uint32_t i = 0; i <= s->o->event_count; i++) {
        if (i > 0)
            s->cluster.members[s->steps[i - 1].member].in_view =
                s->steps[i - 1].change == KV_SCALE_JOIN;
        cluster_make_view(&s->cluster, i + 1, &s->views[i]);
    }
}

static void on_answers(void *user, uint32_t number);

static int open_cluster(struct sim *s)
{
    const struct kv_scale_options *o = s->o;
    struct cluster_options options = {
        .seed = o->seed,
        .count = s->member_count,
        .started = o->members,
        .copies = o->copies,
        .arena_bytes = kv_scale_arena_bytes(o),
        .entries = o->member_blocks + SPARE_ENTRIES,
        .depth = ACCESSES,
        .staging_bytes = ACCESSES * o->block_bytes,
        .heartbeat_ns =
            HW_NEVER, /* no member falls silent here, and pings would take most of the time */
        .net = {.seed = o->seed, .delay_ns = o->latency_ns, .bandwidth = o->bandwidth},
        .answered = on_answers,
        .user = s};
    int rc = cluster_open(&s->cluster, &options);
    s->is_open = rc == 0;
    return rc;
}

static int open_sim(struct sim *s)
{
    const struct kv_scale_options *o = s->o;
    hw_rng_seed(&s->rng, o->seed);
    plan_steps(s);
    int rc = kv_scale_uses_init(&s->uses, o->trace);
    if (rc == 0)
        rc = hw_hist_init(&s->gets);
    s->views = calloc(o->event_count + 1, sizeof(*s->views));
    s->clients = calloc(s->member_count, sizeof(*s->clients));
    s->flights = calloc(o->trace->request_count, sizeof(*s->flights));
    s->moved_by = calloc(s->uses.ids + 1, 1);
    if (rc == 0 && !(s->views && s->clients && s->flights && s->moved_by))
        rc = -ENOMEM;
    if (rc == 0)
        rc = open_cluster(s);
    if (rc)
        return rc;
    make_views(s);
    for (uint32_t i = 0; i < s->member_count; i++)
        s->clients[i].first_waiting = NO_REQUEST;
    s->cluster.epoch = 0; /* views are told here, when etcd would */
    return 0;
}

static void close_sim(struct sim *s)
{
    if (s->is_open)
        cluster_close(&s->cluster);
    kv_scale_uses_fini(&s->uses);
    hw_hist_fini(&s->gets);
    free(s->views);
    free(s->clients);
    free(s->flights);
    free(s->moved_by);
}

static uint64_t now_of(const struct sim *s)
{
    return cluster_now(&s->cluster) - s->begin_ns;
}

static const struct kv_view *view_of(const struct sim *s, uint32_t member)
{
    return kv_daemon_view(s->cluster.members[member].daemon);
}

/* Numbers of members, the best first; how many. */
static uint32_t owners_in(const struct sim *s, const struct kv_view *v, uint32_t id,
                          uint32_t out[KV_COPIES_MAX])
{
    struct kv_block_key key = kv_trace_key(id);
    uint32_t n = kv_view_owners(v, kv_block_hash(&key), s->o->copies, out);
    for (uint32_t i = 0; i < n; i++)
        out[i] = cluster_number(&v->members[out[i]]);
    return n;
}

static bool owns(const struct sim *s, const struct kv_view *v, uint32_t id, uint32_t member)
{
    uint32_t owners[KV_COPIES_MAX], n = owners_in(s, v, id, owners);
    return n > 0 && (owners[0] == member || owners[n - 1] == member);
}

static bool holds(const struct sim *s, uint32_t member, uint32_t id)
{
    struct kv_daemon *d = s->cluster.members[member].daemon;
    struct kv_block_key key = kv_trace_key(id);
    uint64_t checksum;
    return d && kv_blocks_peek(kv_daemon_blocks(d), &key, &checksum);
}

/* ---- one block ---- */

static void ask(struct sim *s, uint32_t member, struct access *a, struct kv_block_request request)
{
    struct kv_block_key key = kv_trace_key(a->id);
    bool keyed = request.op == KV_BLOCK_GET || request.op == KV_BLOCK_PUT_START;
    request.key_count = keyed;
    a->slot = cluster_submit(&s->cluster, member, &request, keyed ? &key : NULL, TIMEOUT_US);
}

static void begin(struct sim *s, uint32_t member, struct access *a, uint32_t request)
{
    uint32_t id = s->o->trace->ids[s->flights[request].at];
    *a = (struct access){.state = GETTING,
                         .request = request,
                         .id = id,
                         .asked_ns = cluster_now(&s->cluster),
                         .has_replica =
                             holds(s, member, id) && !owns(s, view_of(s, member), id, member)};
    ask(s, member, a, (struct kv_block_request){.op = KV_BLOCK_GET});
}

static bool has_view(const struct sim *s, uint32_t member)
{
    return s->cluster.members[member].daemon && view_of(s, member)->epoch > 0;
}

static uint32_t start_of(const struct kv_trace *t, uint32_t request)
{
    return request ? t->ends[request - 1] : 0;
}

/* One that is not there leaves its share to all others. */
static uint32_t asker_of(const struct sim *s, uint32_t request)
{
    const struct kv_trace *t = s->o->trace;
    uint32_t session = kv_scale_session(t, start_of(t, request), t->ends[request]);
    uint64_t number = s->o->spread == KV_SCALE_BY_TURNS ? request : kv_mix(session + s->o->seed);
    while (!has_view(s, (uint32_t)(number % s->member_count)))
        number = kv_mix(number + 1);
    return (uint32_t)(number % s->member_count);
}

/* The next block of a request, at once or when its member has done others. */
static void dispatch(struct sim *s, uint32_t request)
{
    uint32_t member = asker_of(s, request);
    struct client *c = &s->clients[member];
    for (uint32_t i = 0; i < ACCESSES; i++) {
        if (c->accesses[i].state == IDLE) {
            begin(s, member, &c->accesses[i], request);
            return;
        }
    }
    s->flights[request].waiting = NO_REQUEST;
    *(c->first_waiting == NO_REQUEST ? &c->first_waiting : &s->flights[c->last_waiting].waiting) =
        request;
    c->last_waiting = request;
}

static void finish(struct sim *s, uint32_t member, struct access *a, bool hit)
{
    struct client *c = &s->clients[member];
    uint32_t request = a->request, next = c->first_waiting;
    struct flight *f = &s->flights[request];
    f->whole = f->whole && hit;
    s->hits += hit;
    s->prefix_hits += f->whole;
    a->state = IDLE;
    if (next != NO_REQUEST) {
        c->first_waiting = s->flights[next].waiting;
        begin(s, member, a, next);
    }
    if (++f->at < s->o->trace->ends[request])
        dispatch(s, request);
    else
        s->open--;
}

/* Of a death that the asker has not heard of yet. */
static void count_lost(struct sim *s, uint32_t member, uint32_t id)
{
    for (uint32_t i = 0; i < s->o->event_count; i++)
        if (s->steps[i].change != KV_SCALE_JOIN && s->progress[i].happened &&
            owns(s, view_of(s, member), id, s->steps[i].member))
            s->progress[i].lost++;
}

static void note_moved(struct sim *s, uint32_t member, uint32_t id, enum kv_result result)
{
    uint8_t by = s->moved_by[id];
    if (!by || view_of(s, member)->epoch <= by)
        return;
    s->progress[by - 1].misses += result == KV_MISS;
    s->moved_by[id] = 0;
}

static void on_got(struct sim *s, uint32_t member, struct access *a,
                   const struct kv_block_granted *g)
{
    const uint8_t *bytes = s->cluster.members[member].arena + g->offset;
    s->wrong |= g->len != s->o->block_bytes || memcmp(bytes, &a->id, sizeof(a->id)) != 0;
    if (a->has_replica)
        s->unmoved++;
    else if (!owns(s, view_of(s, member), a->id, member))
        hw_hist_record(&s->gets, cluster_now(&s->cluster) - a->asked_ns);
    a->state = RELEASING;
    ask(s, member, a, (struct kv_block_request){.op = KV_BLOCK_RELEASE, .handle = g->handle});
}

static void commit(struct sim *s, uint32_t member, struct access *a, uint64_t ticket)
{
    uint32_t len = s->o->block_bytes;
    uint64_t at = (uint64_t)(a - s->clients[member].accesses) * len;
    uint8_t *bytes = s->cluster.members[member].port.region.staging + at;
    memset(bytes, 0, len); /* the same bytes, and so the same checksum, from every member */
    memcpy(bytes, &a->id, sizeof(a->id));
    a->state = COMMITTING;
    ask(s, member, a,
        (struct kv_block_request){
            .op = KV_BLOCK_PUT_COMMIT, .handle = ticket, .at = at, .len = len});
}

/* As a worker does: gets the block, or puts it; what it cannot know to be missing it does not put.
 */
static void on_answer(struct sim *s, uint32_t member, struct access *a,
                      const struct kv_port_answer *answer)
{
    struct kv_block_granted g = {0};
    enum kv_result result = answer->result;
    uint64_t ticket = 0;
    if (a->state == GETTING && result == KV_OK &&
        kv_block_granted_decode(answer->value, answer->value_len, kv_scale_arena_bytes(s->o), &g))
        s->wrong = true;
    if (a->state == STARTING && result == KV_OK)
        memcpy(&ticket, answer->value, sizeof(ticket));
    kv_port_free(&s->cluster.members[member].port, answer->slot);
    if (a->state == GETTING && (result == KV_OK || result == KV_MISS))
        note_moved(s, member, a->id, result);
    if (a->state == GETTING && result == KV_OK) {
        on_got(s, member, a, &g);
    } else if (a->state == GETTING && result == KV_MISS) {
        a->state = STARTING;
        ask(s, member, a,
            (struct kv_block_request){.op = KV_BLOCK_PUT_START, .len = s->o->block_bytes});
    } else if (a->state == STARTING && result == KV_OK) {
        commit(s, member, a, ticket);
    } else {
        if (a->state == GETTING)
            count_lost(s, member, a->id);
        finish(s, member, a, a->state == RELEASING);
    }
}

static void on_answers(void *user, uint32_t number)
{
    struct sim *s = user;
    struct kv_port_answer answer;
    while (kv_port_take(&s->cluster.members[number].port, &answer) > 0) {
        struct access *a = s->clients[number].accesses;
        while (a->state == IDLE || a->slot != answer.slot)
            a++;
        assert(a < s->clients[number].accesses + ACCESSES);
        on_answer(s, number, a, &answer);
    }
}

/* ---- changes ---- */

/* A member that joins takes over, and one that goes gives up, the blocks that the view with it
 * gives to it. */
static void note_step(struct sim *s, uint32_t number)
{
    const struct kv_scale_step *step = &s->steps[number];
    const struct kv_view *with = &s->views[number + (step->change == KV_SCALE_JOIN)];
    for (uint32_t id = 0; id < s->uses.ids; id++) {
        uint32_t owners[KV_COPIES_MAX], before[KV_COPIES_MAX];
        if (!s->uses.of[id].count)
            continue;
        uint32_t n = owners_in(s, with, id, owners);
        if (owners[0] != step->member && owners[n - 1] != step->member)
            continue;
        s->progress[number].keys_moved += owners[0] == step->member;
        if (owners_in(s, &s->views[number], id, before) > 0 && holds(s, before[0], id))
            s->moved_by[id] = (uint8_t)(number + 1);
    }
}

static void count_member(struct sim *s, uint32_t member)
{
    if (!s->cluster.members[member].daemon)
        return;
    const struct kv_stats *stats = kv_daemon_stats(s->cluster.members[member].daemon);
    s->stale += hw_counter_load(&stats->block_stale_views);
    s->evicted += hw_counter_load(&stats->block_evicted);
}

/* What it was asked goes on at others. */
static void stop_member(struct sim *s, uint32_t member)
{
    struct client c = s->clients[member];
    count_member(s, member);
    cluster_stop(&s->cluster, member);
    s->clients[member] = (struct client){.first_waiting = NO_REQUEST};
    for (uint32_t i = 0; i < ACCESSES; i++)
        if (c.accesses[i].state != IDLE)
            dispatch(s, c.accesses[i].request);
    for (uint32_t r = c.first_waiting, next; r != NO_REQUEST; r = next) {
        next = s->flights[r].waiting;
        dispatch(s, r);
    }
}

static uint64_t step_due_ns(const struct sim *s, uint32_t number)
{
    const struct kv_scale_step *step = &s->steps[number];
    const struct progress *p = &s->progress[number];
    if (!p->happened)
        return step->change == KV_SCALE_JOIN ? step->commit_ns : step->at_ns;
    return p->told < s->member_count ? kv_scale_heard_ns(s->o, step->commit_ns, p->told) : HW_NEVER;
}

static void tell(struct sim *s, uint32_t member, const struct kv_view *view)
{
    struct kv_daemon *d = s->cluster.members[member].daemon;
    if (!d || kv_daemon_view(d)->epoch >= view->epoch)
        return;
    kv_daemon_set_view(d, view);
    cluster_wake(&s->cluster, member);
}

/* It happens, or one more member is told.  Who joins reads all members as it registers. */
static int advance_step(struct sim *s, uint32_t number)
{
    const struct kv_scale_step *step = &s->steps[number];
    struct progress *p = &s->progress[number];
    if (!p->happened) {
        p->happened = true;
        note_step(s, number);
        if (step->change != KV_SCALE_JOIN) {
            stop_member(s, step->member);
            return 0;
        }
        int rc = cluster_start(&s->cluster, step->member);
        if (rc == 0)
            tell(s, step->member, &s->views[number + 1]);
        return rc;
    }
    tell(s, (p->told++ + number * FIRST_TOLD) % s->member_count, &s->views[number + 1]);
    return 0;
}

/* ---- the trace ---- */

static void start_request(struct sim *s, uint32_t request)
{
    const struct kv_trace *t = s->o->trace;
    uint32_t connections = rpc_loopnet_ends(s->cluster.net) / 2;
    s->connections = connections > s->connections ? connections : s->connections;
    if (start_of(t, request) == t->ends[request])
        return;
    s->flights[request] = (struct flight){.at = start_of(t, request), .whole = true};
    s->open++;
    dispatch(s, request);
}

static uint32_t next_step(const struct sim *s)
{
    uint32_t first = 0;
    for (uint32_t i = 1; i < s->o->event_count; i++)
        if (step_due_ns(s, i) < step_due_ns(s, first))
            first = i;
    return first;
}

/* Members find each other first, if all are to be connected; that is not counted. */
static void start_up(struct sim *s)
{
    cluster_run(&s->cluster, cluster_now(&s->cluster) + start_up_ns);
    for (uint32_t i = 0; i < s->member_count; i++)
        s->cluster.members[i].host = (struct rpc_loopnet_host){.number = i};
    s->begin_ns = cluster_now(&s->cluster);
}

static int replay(struct sim *s)
{
    const struct kv_scale_options *o = s->o;
    uint32_t count = o->trace->request_count, r = 0;
    int rc = 0;
    start_up(s);
    while (rc == 0 && (r < count || s->open > 0)) {
        uint32_t step = next_step(s);
        uint64_t step_ns = o->event_count ? step_due_ns(s, step) : HW_NEVER;
        uint64_t request_ns = r < count ? o->at_ns[r] : now_of(s) + slice_ns;
        uint64_t at = step_ns < request_ns ? step_ns : request_ns;
        cluster_run(&s->cluster, s->begin_ns + at);
        if (at == step_ns)
            rc = advance_step(s, step);
        else if (r < count)
            start_request(s, r++);
        else if (now_of(s) > o->at_ns[count - 1] + drain_ns)
            rc = -ETIMEDOUT;
    }
    return rc;
}

/* ---- figures ---- */

static void report_effects(const struct sim *s, struct kv_scale_result *r)
{
    r->effect_count = s->o->event_count;
    for (uint32_t i = 0; i < r->effect_count; i++) {
        const struct kv_scale_step *step = &s->steps[i];
        const struct progress *p = &s->progress[i];
        uint64_t last = kv_scale_heard_ns(s->o, step->commit_ns, s->o->members - 1);
        r->effects[i] = (struct kv_scale_effect){
            .change = step->change,
            .at_ns = step->at_ns,
            .propagated_ns.measured = (double)(last - step->at_ns),
            .keys_moved.measured = (double)p->keys_moved / s->uses.used,
            .misses.measured = (double)p->misses,
            .put_bytes.measured = (double)p->misses * s->o->copies * s->o->block_bytes,
            .lost.measured = (double)p->lost};
    }
}

static double keys_balance(const struct sim *s, uint32_t *keys)
{
    uint32_t most = 0, owners[KV_COPIES_MAX];
    for (uint32_t id = 0; id < s->uses.ids; id++) {
        if (!s->uses.of[id].count)
            continue;
        (void)owners_in(s, &s->views[0], id, owners);
        uint32_t n = ++keys[owners[0]];
        most = n > most ? n : most;
    }
    return most / ((double)s->uses.used / s->o->members);
}

static double most_of(double a, double b)
{
    return a > b ? a : b;
}

static void report_members(struct sim *s, struct kv_scale_result *r)
{
    double messages = 0, bytes = 0, busiest = 0, fullest = 0;
    for (uint32_t i = 0; i < s->member_count; i++) {
        const struct rpc_loopnet_host *h = &s->cluster.members[i].host;
        messages += (double)h->messages_sent;
        bytes += (double)h->bytes_sent;
        busiest = most_of(busiest, (double)(h->messages_sent + h->messages_received));
        fullest = most_of(fullest, (double)(h->bytes_sent + h->bytes_received));
        count_member(s, i);
    }
    r->messages.measured = messages / r->seconds;
    r->bytes.measured = bytes / r->seconds;
    r->busiest.measured = busiest / r->seconds;
    r->bytes_balance.measured = bytes > 0 ? fullest * s->o->members / (2 * bytes) : 0;
}

static void report(struct sim *s, struct kv_scale_result *r)
{
    double all = s->o->trace->id_count;
    r->hit_count = s->hits;
    r->hits.measured = (double)s->hits / all;
    r->prefix_hits.measured = (double)s->prefix_hits / all;
    r->unmoved.measured = s->hits ? (double)s->unmoved / (double)s->hits : 0;
    r->get_mean_ns.measured = s->gets.count ? hw_hist_mean(&s->gets) : NAN;
    r->get_p99_ns.measured = s->gets.count ? (double)hw_hist_percentile(&s->gets, 99) : NAN;
    r->view_bytes.measured = s->o->members * (double)(sizeof(struct kv_member) + sizeof(uint64_t));
    report_members(s, r);
    r->stale = s->stale;
    r->evicted = s->evicted;
    r->connections = s->connections;
    report_effects(s, r);
    kv_scale_notice(s->o, &s->rng, &r->notice_mean_ns, &r->notice_max_ns);
}

static int run(struct sim *s, struct kv_scale_result *r)
{
    const struct kv_scale_options *o = s->o;
    struct kv_replay_result one;
    int rc = open_sim(s);
    if (rc)
        return rc;
    uint32_t *keys = calloc(s->member_count, sizeof(*keys));
    if (!keys)
        return -ENOMEM;
    uint64_t span = o->at_ns[o->trace->request_count - 1] - o->at_ns[0];
    r->seconds = span ? (double)span / 1e9 : 1;
    r->keys_balance.measured = keys_balance(s, keys);
    free(keys);
    uint64_t room = (uint64_t)o->members * o->member_blocks / o->copies;
    room = room < KV_BLOCK_ENTRIES_MAX ? room : KV_BLOCK_ENTRIES_MAX;
    rc = kv_replay_store(o->trace, KV_POLICY_S3FIFO, room ? (uint32_t)room : 1, &one);
    if (rc == 0)
        rc = replay(s);
    if (rc)
        return rc;
    report(s, r);
    kv_scale_model(o, &s->uses, &one, r);
    return s->wrong ? -EIO : 0;
}

int kv_scale_run(const struct kv_scale_options *options, struct kv_scale_result *out)
{
    struct sim s = {.o = options};
    struct kv_scale_result r = {0};
    if (!options_are_sound(options))
        return -EINVAL;
    int rc = run(&s, &r);
    close_sim(&s);
    if (rc == 0)
        *out = r;
    return rc;
}
