#include "bench/kvsim/scale.h"

#include "base/hist.h"
#include "bench/kvsim/scale_impl.h"
#include "kv/store/blocks.h"
#include "kv/store/extents.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const kv_scale_spread_names[KV_SCALE_SPREADS + 1] = {"session", "turns", NULL};
const char *const kv_scale_change_names[KV_SCALE_CHANGES] = {"join", "leave", "kill"};

enum { FIRST_TOLD = 7919 }; /* from one change to the next; a prime, so that it is another */

struct member {
    struct kv_blocks *blocks;
    struct kv_block_holder holder;
    uint8_t *arena;
    uint64_t born_ns, gone_ns;        /* it answers in between */
    uint64_t out_free_ns, in_free_ns; /* when its link is */
    uint64_t messages;                /* sent and received */
    uint64_t moved;                   /* blocks, to and from it as their owner */
};

struct sim {
    const struct kv_scale_options *o;
    struct kv_scale_uses uses;
    struct kv_scale_map map;
    struct kv_scale_step steps[KV_SCALE_EVENTS_MAX];
    uint32_t commits; /* steps that etcd has had by now */
    struct member *members;
    uint32_t member_count; /* that ever are */
    uint8_t *moved_by;     /* of each block: the step that gave it other owners, and one; 0: none */
    struct hw_rng rng;
    struct hw_hist gets; /* ns */
    uint64_t hits, prefix_hits, unmoved, asked, messages, moved_blocks, stale;
    uint64_t caused[KV_SCALE_EVENTS_MAX], lost[KV_SCALE_EVENTS_MAX];
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

/* Somebody must be left. */
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
    return leavers < o->members;
}

static bool options_are_sound(const struct kv_scale_options *o)
{
    return o->members >= 1 && o->members <= KV_SCALE_MEMBERS_MAX && o->copies >= 1 &&
           o->copies <= KV_COPIES_MAX && o->member_blocks >= 1 &&
           (uint64_t)o->member_blocks * o->members <= KV_BLOCK_ENTRIES_MAX && o->block_bytes >= 1 &&
           o->block_bytes <= KV_BLOCK_MAX && o->policy < KV_POLICY_KINDS &&
           o->spread < KV_SCALE_SPREADS && o->ttl_ns >= HW_MS && o->ttl_ns <= 3600 * HW_SEC &&
           o->latency_ns <= HW_SEC && o->heartbeat_ns >= HW_MS &&
           o->bandwidth >= KV_SCALE_BANDWIDTH_MIN && events_are_sound(o) && trace_is_sound(o);
}

/* ---- members and views ---- */

static int member_init(const struct kv_scale_options *o, struct member *m)
{
    size_t bytes = (size_t)o->member_blocks * KV_GRANULE;
    *m = (struct member){.holder = KV_BLOCK_HOLDER_INIT, .gone_ns = HW_NEVER};
    m->arena = aligned_alloc(KV_GRANULE, bytes);
    if (!m->arena)
        return -ENOMEM;
    struct kv_blocks_config config = {.arena = m->arena,
                                      .arena_bytes = bytes,
                                      .entries = o->member_blocks,
                                      .open_puts = 1,
                                      .leases = 2,
                                      .policy = o->policy,
                                      .memory = kv_heap()};
    return kv_blocks_create(&config, &m->blocks);
}

/* Who goes: one that has not been chosen yet. */
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

/* Who joins at the same time joins in the order of names. */
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

static void apply_lives(struct sim *s)
{
    for (uint32_t i = 0; i < s->o->event_count; i++) {
        const struct kv_scale_step *step = &s->steps[i];
        struct member *m = &s->members[step->member];
        if (step->change == KV_SCALE_JOIN)
            m->born_ns = step->commit_ns;
        else
            m->gone_ns = step->at_ns;
    }
}

static int open_sim(struct sim *s)
{
    int rc = kv_scale_uses_init(&s->uses, s->o->trace);
    hw_rng_seed(&s->rng, s->o->seed);
    plan_steps(s);
    if (rc == 0)
        rc = hw_hist_init(&s->gets);
    if (rc == 0)
        rc = kv_scale_map_init(&s->map, s->uses.ids, s->o->copies, s->o->members, s->steps,
                               s->o->event_count);
    if (rc)
        return rc;
    s->members = calloc(s->member_count, sizeof(s->members[0]));
    s->moved_by = calloc(s->uses.ids, 1);
    if (!s->members || !s->moved_by)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->member_count && rc == 0; i++)
        rc = member_init(s->o, &s->members[i]);
    apply_lives(s);
    return rc;
}

static void close_sim(struct sim *s)
{
    for (uint32_t i = 0; s->members && i < s->member_count; i++) {
        kv_blocks_destroy(s->members[i].blocks);
        free(s->members[i].arena);
    }
    free(s->members);
    free(s->moved_by);
    kv_scale_map_fini(&s->map);
    kv_scale_uses_fini(&s->uses);
    hw_hist_fini(&s->gets);
}

static bool is_alive(const struct member *m, uint64_t now)
{
    return now >= m->born_ns && now < m->gone_ns;
}

/* Members are told in turn; each change begins with another one. */
static uint64_t heard_ns(const struct sim *s, uint32_t step, uint32_t member)
{
    uint32_t turn = (member + step * FIRST_TOLD) % s->o->members;
    return kv_scale_heard_ns(s->o, s->steps[step].commit_ns, turn);
}

static uint32_t view_of(const struct sim *s, uint32_t member, uint64_t now)
{
    uint32_t view = 0;
    while (view < s->commits && heard_ns(s, view, member) <= now)
        view++;
    return view;
}

static bool owns(const struct sim *s, uint32_t view, uint32_t id, uint32_t member)
{
    const uint32_t *owners = kv_scale_owners(&s->map, view, id);
    return owners[0] == member || owners[s->o->copies - 1] == member;
}

/* The blocks that a change takes from who has them. */
static void mark_moved(struct sim *s, uint32_t step)
{
    for (uint32_t id = 0; id < s->uses.ids; id++) {
        const uint32_t *before = kv_scale_owners(&s->map, step, id);
        const uint32_t *after = kv_scale_owners(&s->map, step + 1, id);
        struct kv_block_key key = kv_scale_key(id);
        if (memcmp(before, after, s->o->copies * sizeof(*before)) != 0 &&
            kv_blocks_exists(s->members[before[0]].blocks, &key))
            s->moved_by[id] = (uint8_t)(step + 1);
    }
}

static void let_time_pass(struct sim *s, uint64_t now)
{
    while (s->commits < s->o->event_count && s->steps[s->commits].commit_ns <= now)
        mark_moved(s, s->commits++);
}

/* ---- one block ---- */

struct access {
    uint32_t asker, id, view;
    struct kv_block_key key;
    uint64_t now_ns;  /* when it begins: stores change at once */
    uint64_t done_ns; /* when the links have carried what they must */
};

static void exchange(struct sim *s, const struct access *a, uint32_t owner, uint32_t asked,
                     uint32_t messages)
{
    s->asked += asked;
    s->messages += messages;
    s->members[a->asker].messages += messages;
    s->members[owner].messages += messages;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A block over two links, when both are free; two exchanges pass before the last byte is there. */
static void move_block(struct sim *s, struct access *a, struct member *from, struct member *to)
{
    uint64_t takes = (uint64_t)((double)s->o->block_bytes * 1e9 / (double)s->o->bandwidth);
    uint64_t at = a->done_ns + 4 * s->o->latency_ns;
    uint64_t done = later(at, later(from->out_free_ns, to->in_free_ns)) + takes;
    from->out_free_ns = to->in_free_ns = done;
    a->done_ns = done;
    s->moved_blocks++;
}

static enum kv_result get_here(struct sim *s, const struct access *a)
{
    struct member *m = &s->members[a->asker];
    struct kv_block_lease lease;
    enum kv_result result = kv_blocks_get(m->blocks, &m->holder, &a->key, a->now_ns, &lease);
    if (result != KV_OK)
        return result;
    s->wrong |= memcmp(m->arena + lease.offset, &a->id, sizeof(a->id)) != 0;
    return kv_blocks_release(m->blocks, &m->holder, lease.handle, a->now_ns);
}

/* A cached replica of the owner's block, at the asker. */
static enum kv_result fetch(struct sim *s, struct access *a, struct member *owner,
                            const struct kv_block_lease *lease)
{
    struct member *m = &s->members[a->asker];
    uint64_t ticket, before = a->done_ns;
    enum kv_result result =
        kv_blocks_cache_start(m->blocks, &m->holder, &a->key, sizeof(a->id), a->now_ns, &ticket);
    if (result != KV_OK)
        return result;
    move_block(s, a, owner, m);
    hw_hist_record(&s->gets, a->done_ns - before);
    owner->moved++;
    result = kv_blocks_put_write(m->blocks, &m->holder, ticket, 0, owner->arena + lease->offset,
                                 sizeof(a->id), a->now_ns);
    assert(result == KV_OK);
    return kv_blocks_put_commit_as(m->blocks, &m->holder, ticket, lease->checksum, a->now_ns);
}

/* OPEN_GET, and if the asker's copy will not do, READs and a CLOSE. */
static enum kv_result ask(struct sim *s, struct access *a, uint32_t number)
{
    struct member *owner = &s->members[number];
    struct kv_block_lease lease;
    uint64_t checksum;
    uint32_t chunks = kv_scale_chunks(s->o->block_bytes);
    if (!is_alive(owner, a->now_ns))
        return KV_PEER_LOST;
    exchange(s, a, number, 1, 2);
    if (!owns(s, view_of(s, number, a->now_ns), a->id, number))
        return KV_NOT_OWNER;
    enum kv_result result =
        kv_blocks_get(owner->blocks, &owner->holder, &a->key, a->now_ns, &lease);
    if (result != KV_OK)
        return result;
    if (kv_blocks_peek(s->members[a->asker].blocks, &a->key, &checksum) &&
        checksum == lease.checksum) {
        s->unmoved++;
    } else {
        exchange(s, a, number, chunks + 1, 2 * chunks + 1);
        result = fetch(s, a, owner, &lease);
    }
    (void)kv_blocks_release(owner->blocks, &owner->holder, lease.handle, a->now_ns);
    return result == KV_OK ? get_here(s, a) : result;
}

/* REPAIR.  What it leads to is left out: stores that have evicted do nothing. */
static void tell_who_missed(struct sim *s, const struct access *a, const uint32_t *owners,
                            const enum kv_result *results, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (results[i] == KV_MISS)
            exchange(s, a, owners[i], 1, 1);
    }
}

/* As remote_get.c: one owner after the other; what cannot be known is no miss. */
static enum kv_result get(struct sim *s, struct access *a)
{
    const uint32_t *owners = kv_scale_owners(&s->map, a->view, a->id);
    struct kv_blocks *here = s->members[a->asker].blocks;
    bool ours = owns(s, a->view, a->id, a->asker);
    enum kv_result results[KV_COPIES_MAX] = {0}, worst = KV_MISS;
    if (ours && kv_blocks_exists(here, &a->key))
        return get_here(s, a);
    for (uint32_t i = 0; i < s->o->copies; i++) {
        if (owners[i] == a->asker || owners[i] == KV_SCALE_NOBODY)
            continue;
        results[i] = ask(s, a, owners[i]);
        if (results[i] == KV_OK)
            tell_who_missed(s, a, owners, results, i);
        if (results[i] == KV_OK || results[i] == KV_NOT_OWNER)
            return results[i];
        worst = worst == KV_MISS ? results[i] : worst;
    }
    if (worst == KV_MISS && !ours)
        (void)kv_blocks_drop_cached(here, &a->key);
    return worst;
}

static enum kv_result put_at(const struct access *a, struct member *m)
{
    uint64_t ticket;
    enum kv_result result =
        kv_blocks_put_start(m->blocks, &m->holder, &a->key, 0, sizeof(a->id), a->now_ns, &ticket);
    if (result == KV_OK)
        result =
            kv_blocks_put_write(m->blocks, &m->holder, ticket, 0, &a->id, sizeof(a->id), a->now_ns);
    return result == KV_OK ? kv_blocks_put_commit(m->blocks, &m->holder, ticket, a->now_ns)
                           : result;
}

/* OPEN_PUT, and if there is room, WRITEs and a COMMIT; to all owners. */
static void put(struct sim *s, struct access *a)
{
    const uint32_t *owners = kv_scale_owners(&s->map, a->view, a->id);
    uint32_t chunks = kv_scale_chunks(s->o->block_bytes);
    for (uint32_t i = 0; i < s->o->copies; i++) {
        struct member *owner = owners[i] == KV_SCALE_NOBODY ? NULL : &s->members[owners[i]];
        if (!owner || !is_alive(owner, a->now_ns))
            continue;
        enum kv_result result = put_at(a, owner);
        if (owners[i] == a->asker)
            continue;
        exchange(s, a, owners[i], 1, 2);
        if (result != KV_OK)
            continue;
        exchange(s, a, owners[i], chunks + 1, 2 * chunks + 2);
        move_block(s, a, &s->members[a->asker], owner);
        owner->moved++;
    }
}

/* Whose death it is that nobody has heard of yet. */
static void count_lost(struct sim *s, const struct access *a)
{
    for (uint32_t i = 0; i < s->o->event_count; i++)
        if (owns(s, a->view, a->id, s->steps[i].member) && s->steps[i].at_ns <= a->now_ns)
            s->lost[i]++;
}

static bool access_block(struct sim *s, struct access *a)
{
    uint8_t moved_by = s->moved_by[a->id];
    a->key = kv_scale_key(a->id);
    a->view = view_of(s, a->asker, a->now_ns);
    enum kv_result result = get(s, a);
    if (result == KV_NOT_OWNER) { /* begins again, with the view that it is about to hear of */
        s->stale++;
        a->view = s->commits;
        result = get(s, a);
    }
    if (result == KV_PEER_LOST) {
        count_lost(s, a);
        return false;
    }
    if (moved_by && a->view >= moved_by) {
        s->caused[moved_by - 1] += result == KV_MISS;
        s->moved_by[a->id] = 0;
    }
    if (result == KV_MISS)
        put(s, a);
    return result == KV_OK;
}

/* ---- the trace ---- */

/* A request under way. */
struct flight {
    uint64_t due_ns; /* when it asks for its next block */
    uint32_t request, at;
    bool whole; /* no block was missing so far */
};

/* Those under way in a heap, the next one on top: links are asked in the order of time. */
struct flights {
    struct flight *items;
    uint32_t count;
};

static bool is_before(const struct flight *a, const struct flight *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->request < b->request;
}

static void flights_add(struct flights *f, struct flight item)
{
    uint32_t at = f->count++;
    for (; at > 0 && is_before(&item, &f->items[(at - 1) / 2]); at = (at - 1) / 2)
        f->items[at] = f->items[(at - 1) / 2];
    f->items[at] = item;
}

static struct flight flights_take(struct flights *f)
{
    struct flight first = f->items[0], last = f->items[--f->count];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < f->count; at = child) {
        if (child + 1 < f->count && is_before(&f->items[child + 1], &f->items[child]))
            child++;
        if (is_before(&last, &f->items[child]))
            break;
        f->items[at] = f->items[child];
    }
    f->items[at] = last;
    return first;
}

static uint32_t start_of(const struct kv_trace *t, uint32_t request)
{
    return request ? t->ends[request - 1] : 0;
}

/* One that is not there leaves its share to all others. */
static uint32_t asker_of(const struct sim *s, uint32_t request, uint64_t now)
{
    const struct kv_trace *t = s->o->trace;
    uint32_t session = kv_scale_session(t, start_of(t, request), t->ends[request]);
    uint64_t number = s->o->spread == KV_SCALE_BY_TURNS ? request : kv_mix(session + s->o->seed);
    uint32_t asker = (uint32_t)(number % s->member_count);
    while (!is_alive(&s->members[asker], now)) {
        number = kv_mix(number + 1);
        asker = (uint32_t)(number % s->member_count);
    }
    return asker;
}

/* The next block of a request; the one after that when this one is there. */
static void fly(struct sim *s, struct flights *f)
{
    struct flight flight = flights_take(f);
    struct access a = {.id = s->o->trace->ids[flight.at],
                       .asker = asker_of(s, flight.request, flight.due_ns),
                       .now_ns = flight.due_ns,
                       .done_ns = flight.due_ns};
    let_time_pass(s, a.now_ns);
    bool hit = access_block(s, &a);
    flight.whole = flight.whole && hit;
    s->hits += hit;
    s->prefix_hits += flight.whole;
    flight.due_ns = a.done_ns;
    if (++flight.at < s->o->trace->ends[flight.request])
        flights_add(f, flight);
}

static int replay(struct sim *s)
{
    const struct kv_trace *t = s->o->trace;
    struct flights f = {.items = calloc(t->request_count, sizeof(f.items[0]))};
    if (!f.items)
        return -ENOMEM;
    for (uint32_t r = 0; r < t->request_count; r++) {
        while (f.count > 0 && f.items[0].due_ns < s->o->at_ns[r])
            fly(s, &f);
        if (start_of(t, r) < t->ends[r])
            flights_add(&f, (struct flight){.due_ns = s->o->at_ns[r],
                                            .request = r,
                                            .at = start_of(t, r),
                                            .whole = true});
    }
    while (f.count > 0)
        fly(s, &f);
    free(f.items);
    return 0;
}

/* ---- figures ---- */

static double share_moved(const struct sim *s, uint32_t step)
{
    uint32_t moved = 0;
    for (uint32_t id = 0; id < s->uses.ids; id++)
        moved += s->uses.of[id].count &&
                 kv_scale_owners(&s->map, step, id)[0] != kv_scale_owners(&s->map, step + 1, id)[0];
    return (double)moved / s->uses.used;
}

static void report_effects(const struct sim *s, struct kv_scale_result *r)
{
    r->effect_count = s->o->event_count;
    for (uint32_t i = 0; i < r->effect_count; i++) {
        const struct kv_scale_step *step = &s->steps[i];
        uint64_t last = kv_scale_heard_ns(s->o, step->commit_ns, s->o->members - 1);
        r->effects[i] = (struct kv_scale_effect){
            .change = step->change,
            .at_ns = step->at_ns,
            .propagated_ns.simulated = (double)(last - step->at_ns),
            .keys_moved.simulated = share_moved(s, i),
            .misses.simulated = (double)s->caused[i],
            .put_bytes.simulated = (double)s->caused[i] * s->o->copies * s->o->block_bytes,
            .lost.simulated = (double)s->lost[i]};
    }
}

static double keys_balance(const struct sim *s, uint32_t *keys)
{
    uint32_t most = 0;
    for (uint32_t id = 0; id < s->uses.ids; id++)
        if (s->uses.of[id].count) {
            uint32_t n = ++keys[kv_scale_owners(&s->map, 0, id)[0]];
            most = n > most ? n : most;
        }
    return most / ((double)s->uses.used / s->o->members);
}

static void report_members(const struct sim *s, struct kv_scale_result *r)
{
    uint64_t messages = 0, moved = 0, all_moved = 0;
    for (uint32_t i = 0; i < s->member_count; i++) {
        const struct member *m = &s->members[i];
        messages = later(m->messages, messages);
        moved = later(m->moved, moved);
        all_moved += m->moved;
    }
    r->busiest.simulated = (double)messages / r->seconds;
    r->bytes_balance.simulated = all_moved ? (double)moved * s->o->members / (double)all_moved : 0;
}

static void report(struct sim *s, struct kv_scale_result *r)
{
    double all = s->o->trace->id_count;
    r->hit_count = s->hits;
    r->asked = s->asked;
    r->moved_blocks = s->moved_blocks;
    r->stale = s->stale;
    r->hits.simulated = (double)s->hits / all;
    r->prefix_hits.simulated = (double)s->prefix_hits / all;
    r->unmoved.simulated = s->hits ? (double)s->unmoved / (double)s->hits : 0;
    r->messages.simulated = (double)s->messages / r->seconds;
    r->bytes.simulated = (double)s->moved_blocks * s->o->block_bytes / r->seconds;
    r->get_mean_ns.simulated = s->gets.count ? hw_hist_mean(&s->gets) : NAN;
    r->get_p99_ns.simulated = s->gets.count ? (double)hw_hist_percentile(&s->gets, 99) : NAN;
    r->view_bytes.simulated = s->o->members * (double)(sizeof(struct kv_member) + sizeof(uint32_t));
    report_members(s, r);
    report_effects(s, r);
    kv_scale_notice(s->o, &s->rng, &r->notice_mean_ns, &r->notice_max_ns);
}

static int simulate(struct sim *s, struct kv_scale_result *r)
{
    const struct kv_scale_options *o = s->o;
    struct kv_replay_result one;
    int rc = open_sim(s);
    if (rc)
        return rc;
    uint32_t *keys = calloc(o->members, sizeof(*keys));
    if (!keys)
        return -ENOMEM;
    uint64_t span = o->at_ns[o->trace->request_count - 1] - o->at_ns[0];
    r->seconds = span ? (double)span / 1e9 : 1;
    r->keys_balance.simulated = keys_balance(s, keys);
    free(keys);
    uint32_t room = o->members * o->member_blocks / o->copies;
    rc = kv_replay_store(o->trace, o->policy, room ? room : 1, &one);
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
    int rc = simulate(&s, &r);
    close_sim(&s);
    if (rc == 0)
        *out = r;
    return rc;
}
