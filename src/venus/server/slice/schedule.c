#include "venus/server/slice/schedule.h"

#include <assert.h>
#include <errno.h>

/* How many slices somebody may be behind the others who had nothing to do for a while: enough to be
 * next at once, not enough to be alone for long. */
enum { CREDIT_SLICES = 2 };
/* How long work is charged to one that is no longer allowed and does not say that it has drained:
 * the longest batch that is charged in full.  A process that was stopped costs others so long. */
static const uint64_t undrained_most_ns = 500 * HW_MS;
/* Over this time it is decided whether two still want a GPU. */
static const uint64_t window_ns = 100 * HW_MS;
/* What a session told holds for twice the time it told about, within these bounds. */
static const uint64_t told_least_ns = 3 * VNS_SLICE_TELL_NS;
static const uint64_t told_most_ns = 2 * HW_SEC;
/* Work in shorter stretches lets others in all the time: a device shares that well by itself. */
static const uint64_t lasting_ns = 2 * HW_MS;

void vns_schedule_init(struct vns_schedule *s, uint64_t slice_ns, struct vns_slice_board *board,
                       void (*go)(void *user, struct vns_slice_member *member), void *user)
{
    assert(slice_ns > 0);
    *s = (struct vns_schedule){.slice_ns = slice_ns, .board = board, .go = go, .user = user};
}

static void allow(struct vns_schedule *s, unsigned gpu, uint32_t id)
{
    /* Release: with it goes all that led to it; the session loads with acquire. */
    atomic_store_explicit(&s->board->allowed[gpu], id, memory_order_release);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool is_present(const struct vns_slice_use *use)
{
    return use->waiting || use->undrained;
}

/* ---- time ---- */

/* The one whose work the device runs now: the first of those that have not drained. */
static struct vns_slice_member *payer_of(const struct vns_schedule *s, unsigned gpu)
{
    struct vns_slice_member *payer = NULL;
    for (struct vns_slice_member *m = s->members; m; m = m->next) {
        if (m->uses[gpu].undrained && (!payer || m->uses[gpu].grant < payer->uses[gpu].grant))
            payer = m;
    }
    return payer;
}

static bool is_wanted_by_two(const struct vns_schedule *s, unsigned gpu)
{
    unsigned count = 0;
    for (const struct vns_slice_member *m = s->members; m; m = m->next)
        count += is_present(&m->uses[gpu]);
    return count >= 2;
}

static void pay(struct vns_slice_member *payer, unsigned gpu, uint64_t ns)
{
    struct vns_slice_tenant *tenant = payer->tenant;
    payer->uses[gpu].served_ns += ns;
    tenant->served_ns[gpu] += ns / tenant->weight;
    atomic_fetch_add_explicit(&tenant->used_ns, ns, memory_order_relaxed);
}

/* Those that let each other in pay alike: their work may overlap. */
static void charge(struct vns_schedule *s, unsigned gpu, uint64_t now)
{
    struct vns_slice_gpu *g = &s->gpus[gpu];
    uint64_t passed = now > g->charged_ns ? now - g->charged_ns : 0;
    g->charged_ns += passed;
    if (is_wanted_by_two(s, gpu))
        g->contended_ns += passed;
    struct vns_slice_member *payer = payer_of(s, gpu);
    if (payer && !payer->uses[gpu].resting) {
        pay(payer, gpu, passed);
        return;
    }
    unsigned count = 0;
    for (struct vns_slice_member *m = s->members; m; m = m->next)
        count += m->uses[gpu].undrained;
    for (struct vns_slice_member *m = s->members; m; m = m->next) {
        if (m->uses[gpu].undrained)
            pay(m, gpu, passed / count);
    }
}

/* One that was absent begins near the least served of those that are there. */
static void arrive(struct vns_schedule *s, unsigned gpu, struct vns_slice_member *member)
{
    struct vns_slice_tenant *tenant = member->tenant;
    struct vns_slice_use *use = &member->uses[gpu];
    uint64_t round = s->gpus[gpu].round, credit_ns = CREDIT_SLICES * s->slice_ns;
    uint64_t tenants = HW_NEVER, siblings = HW_NEVER;
    bool tenant_is_here = false;
    if (is_present(use))
        return;
    for (struct vns_slice_member *m = s->members; m; m = m->next) {
        if (!is_present(&m->uses[gpu]))
            continue;
        if (m->tenant == tenant) {
            tenant_is_here = true;
            siblings = least(siblings, m->uses[gpu].served_ns);
        } else {
            tenants = least(tenants, m->tenant->served_ns[gpu]);
        }
    }
    if (use->round != round)
        use->served_ns = 0;
    if (tenant->round[gpu] != round)
        tenant->served_ns[gpu] = 0;
    use->round = tenant->round[gpu] = round;
    if (siblings != HW_NEVER && use->served_ns + credit_ns < siblings)
        use->served_ns = siblings - credit_ns;
    if (!tenant_is_here && tenants != HW_NEVER && tenant->served_ns[gpu] + credit_ns < tenants)
        tenant->served_ns[gpu] = tenants - credit_ns;
}

/* ---- decisions ---- */

static bool is_behind(const struct vns_slice_member *a, const struct vns_slice_member *b,
                      unsigned gpu)
{
    return a->tenant == b->tenant ? a->uses[gpu].served_ns < b->uses[gpu].served_ns
                                  : a->tenant->served_ns[gpu] < b->tenant->served_ns[gpu];
}

static struct vns_slice_member *next_of(const struct vns_schedule *s, unsigned gpu)
{
    struct vns_slice_member *best = NULL;
    for (struct vns_slice_member *m = s->members; m; m = m->next) {
        if (m->uses[gpu].waiting && (!best || is_behind(m, best, gpu)))
            best = m;
    }
    return best;
}

/* How much one must be served until it is a slice ahead of another. */
static uint64_t left_of(const struct vns_schedule *s, unsigned gpu,
                        const struct vns_slice_member *holder, const struct vns_slice_member *next)
{
    bool same = holder->tenant == next->tenant;
    uint64_t weight = same ? 1 : holder->tenant->weight;
    uint64_t served = same ? holder->uses[gpu].served_ns : holder->tenant->served_ns[gpu];
    uint64_t until =
        (same ? next->uses[gpu].served_ns : next->tenant->served_ns[gpu]) + s->slice_ns / weight;
    return served < until ? (until - served) * weight : 0;
}

/* From here on it has work under way. */
static void begin(struct vns_slice_gpu *g, struct vns_slice_use *use)
{
    use->grant = ++g->grants;
    use->undrained = true;
    use->waiting = use->resting = false;
}

static void give(struct vns_schedule *s, unsigned gpu, struct vns_slice_member *member,
                 uint64_t now)
{
    struct vns_slice_gpu *g = &s->gpus[gpu];
    if (g->holder)
        g->holder->uses[gpu].left_ns = now;
    begin(g, &member->uses[gpu]);
    g->holder = member;
    allow(s, gpu, member->id);
    s->go(s->user, member);
}

static void forget_undrained(struct vns_schedule *s, unsigned gpu, uint64_t now)
{
    for (struct vns_slice_member *m = s->members; m; m = m->next) {
        struct vns_slice_use *use = &m->uses[gpu];
        if (use->undrained && m != s->gpus[gpu].holder && now - use->left_ns >= undrained_most_ns)
            use->undrained = false;
    }
}

static bool may_follow(const struct vns_schedule *s, unsigned gpu,
                       const struct vns_slice_member *holder, const struct vns_slice_member *next)
{
    return !holder || !holder->uses[gpu].undrained || left_of(s, gpu, holder, next) == 0 ||
           (holder->uses[gpu].resting && left_of(s, gpu, next, holder) > 0);
}

/* In how many ns to look again. */
static uint64_t decide(struct vns_schedule *s, unsigned gpu, uint64_t now)
{
    struct vns_slice_gpu *g = &s->gpus[gpu];
    struct vns_slice_member *next = next_of(s, gpu);
    forget_undrained(s, gpu, now);
    if (!next)
        return window_ns;
    if (may_follow(s, gpu, g->holder, next)) {
        give(s, gpu, next, now);
        next = next_of(s, gpu);
    }
    return next ? left_of(s, gpu, g->holder, next) : window_ns;
}

/* ---- free and sliced ---- */

static void slice(struct vns_schedule *s, unsigned gpu, uint64_t now)
{
    struct vns_slice_gpu *g = &s->gpus[gpu];
    g->sliced = true;
    g->round++;
    g->charged_ns = now;
    g->window_ns = now + undrained_most_ns; /* first drains what was submitted before */
    g->contended_ns = 0;
    allow(s, gpu, VNS_SLICE_NOBODY);
}

static void set_free(struct vns_schedule *s, unsigned gpu)
{
    s->gpus[gpu].sliced = false;
    s->gpus[gpu].holder = NULL;
    allow(s, gpu, VNS_SLICE_FREE);
    for (struct vns_slice_member *m = s->members; m; m = m->next) {
        struct vns_slice_use *use = &m->uses[gpu];
        bool waited = use->waiting;
        use->waiting = use->undrained = false;
        use->saturates_until_ns = 0;
        if (waited)
            s->go(s->user, m);
    }
}

/* Two that each keep the device busy, one of them for long stretches. */
static bool is_contended(const struct vns_schedule *s, unsigned gpu, uint64_t now)
{
    unsigned count = 0;
    bool lasting = false;
    for (const struct vns_slice_member *m = s->members; m; m = m->next) {
        if (m->uses[gpu].saturates_until_ns > now) {
            count++;
            lasting = lasting || m->uses[gpu].lasting;
        }
    }
    return count >= 2 && lasting;
}

static void note_use(struct vns_schedule *s, struct vns_slice_member *member,
                     const struct vns_slice_message *message, uint64_t now)
{
    unsigned gpu = message->gpu;
    struct vns_slice_use *use = &member->uses[gpu];
    uint64_t span = least(message->span_ns, told_most_ns), busy = least(message->busy_ns, span);
    uint64_t holds = least(2 * span, told_most_ns);
    if (s->gpus[gpu].sliced)
        return; /* it crossed the decision */
    atomic_fetch_add_explicit(&member->tenant->used_ns, least(message->busy_ns, message->span_ns),
                              memory_order_relaxed);
    use->saturates_until_ns = busy >= span / 4 * 3 && busy > 0
                                  ? now + (holds > told_least_ns ? holds : told_least_ns)
                                  : 0;
    use->lasting = busy / (message->stretches ? message->stretches : 1) >= lasting_ns;
    if (is_contended(s, gpu, now))
        slice(s, gpu, now);
}

/* ---- calls ---- */

void vns_schedule_join(struct vns_schedule *s, struct vns_slice_member *member)
{
    assert(member->id != VNS_SLICE_FREE && member->id != VNS_SLICE_NOBODY);
    assert(member->tenant->weight > 0 && member->tenant->weight <= VNS_SLICE_WEIGHT_MAX);
    member->next = s->members;
    s->members = member;
}

void vns_schedule_leave(struct vns_schedule *s, struct vns_slice_member *member, uint64_t now)
{
    for (unsigned gpu = 0; gpu < VNS_SLICE_GPUS; gpu++) {
        if (s->gpus[gpu].sliced)
            charge(s, gpu, now);
    }
    struct vns_slice_member **at = &s->members;
    while (*at != member)
        at = &(*at)->next;
    *at = member->next;
    for (unsigned gpu = 0; gpu < VNS_SLICE_GPUS; gpu++) {
        struct vns_slice_gpu *g = &s->gpus[gpu];
        if (g->holder == member) {
            g->holder = NULL;
            allow(s, gpu, VNS_SLICE_NOBODY);
        }
        if (g->sliced && (!s->members || !s->members->next))
            set_free(s, gpu);
        else if (g->sliced)
            (void)decide(s, gpu, now);
    }
}

int vns_schedule_handle(struct vns_schedule *s, struct vns_slice_member *member,
                        const struct vns_slice_message *message, uint64_t now)
{
    unsigned gpu = message->gpu;
    if (message->op >= VNS_SLICE_OPS || gpu >= VNS_SLICE_GPUS)
        return -EPROTO;
    struct vns_slice_gpu *g = &s->gpus[gpu];
    struct vns_slice_use *use = &member->uses[gpu];
    if (message->op == VNS_SLICE_USED) {
        note_use(s, member, message, now);
        return 0;
    }
    if (!g->sliced) { /* it was, when the session said so */
        if (message->op == VNS_SLICE_WANT)
            s->go(s->user, member);
        return 0;
    }
    charge(s, gpu, now);
    if (message->op == VNS_SLICE_DRAINED) {
        use->undrained = false;
    } else if (message->op == VNS_SLICE_RESTS) {
        use->resting = g->holder == member;
    } else if (message->op == VNS_SLICE_WANT) {
        arrive(s, gpu, member);
        use->waiting = true;
        if (g->holder == member)
            give(s, gpu, member, now);
    } else if (g->holder == member) { /* BUSY; else it was the holder until just now */
        arrive(s, gpu, member);
        begin(g, use);
    }
    (void)decide(s, gpu, now);
    return 0;
}

uint64_t vns_schedule_look(struct vns_schedule *s, uint64_t now)
{
    uint64_t wait = HW_NEVER;
    for (unsigned gpu = 0; gpu < VNS_SLICE_GPUS; gpu++) {
        struct vns_slice_gpu *g = &s->gpus[gpu];
        if (!g->sliced)
            continue;
        charge(s, gpu, now);
        uint64_t passed = now > g->window_ns ? now - g->window_ns : 0;
        if (passed == 0) /* it has not begun */
            g->window_grants = g->grants;
        bool brief = (g->grants - g->window_grants) * lasting_ns > passed;
        if (passed >= window_ns && (brief || g->contended_ns < passed / 4)) {
            set_free(s, gpu);
            continue;
        }
        if (passed >= window_ns) {
            g->window_ns = now;
            g->window_grants = g->grants;
            g->contended_ns = 0;
        }
        wait = least(wait, decide(s, gpu, now));
    }
    return wait;
}
