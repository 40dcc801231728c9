/* floor.c - who is served in a crowd.
 *
 * Where threads share cores and all clients are served alike, each request costs a sleep, a wake-up
 * and a change of threads.  So a few clients at a time have the floor: such a one is served for the
 * length of a burst and finds its answers while it spins, the others sleep, and a wake-up is paid
 * for once a burst.
 *
 * While the daemon wakes somebody, all who have the floor wait for it.  Were many given the floor
 * at once, the others would spin in vain for the length of all these wake-ups and go to sleep,
 * would have to be woken in turn, and so on: a daemon of 64 clients on 16 cores paid for a wake-up
 * a request that way.  So one client a turn gets the floor, and patience grows with the number of
 * those who have it.
 *
 * That fails where clients find no core beside the daemon's, or want one thing at a time.  So it is
 * tried for a while, and unless a wake-up brought several requests, all are served alike for some
 * time: all of them, since one that has the floor among others that do not wait for it finds no
 * core either. */
#include "kv/daemon/daemon_impl.h"

#include <assert.h>

enum {
    WORTH_A_WAKEUP = 4, /* requests; alike, each costs most of one */
    GIVEN_A_TURN = 1,   /* a wake-up takes as long as serving ten */
    SEATS_MAX = 8       /* they keep a daemon busy */
};

/* A burst is many times as long as the wake-up that it costs, 3 to 8 us; and no longer, since it is
 * what the others wait for. */
static const uint64_t burst_max_ns = 60 * HW_US;
static const uint64_t burst_min_ns = 15 * HW_US; /* rather a longer round than half in wake-ups */
static const uint64_t round_ns = HW_MS; /* in which everybody has had the floor, where that goes */
/* What the next request may take: of one that has to wake up first, and of one that is awake; for
 * each who has the floor, since the others are served meanwhile. */
static const uint64_t wake_ns = 20 * HW_US;
static const uint64_t think_ns = 3 * HW_US;
static const uint64_t trial_ns = HW_MS; /* some 15 bursts */
static const uint64_t pause_min_ns = 4 * HW_MS;
static const uint64_t pause_max_ns = 64 * HW_MS; /* so that trials in vain cost little */

uint32_t kv_floor_seats(uint32_t cores, uint32_t daemons, uint32_t clients)
{
    uint32_t left = cores > daemons ? cores - daemons : 1;
    if (clients <= left)
        return 0;
    /* A third stays idle: who is woken finds no core else, and takes the daemon's. */
    uint32_t each = 2 * left / 3 / daemons;
    return each < 1 ? 1 : each < SEATS_MAX ? each : SEATS_MAX;
}

void kv_floor_publish(const struct kv_daemon *d, const struct kv_seat *s)
{
    bool alike = d->floor.seats == 0 || d->floor.paused;
    enum kv_floor floor = alike ? KV_FLOOR_OPEN : s->floor.has ? KV_FLOOR_YOURS : KV_FLOOR_OTHERS;
    atomic_store_explicit(&s->region.daemon->seats, d->floor.seats, memory_order_relaxed);
    atomic_store_explicit(&s->region.daemon->floor, floor, memory_order_relaxed);
}

static void begin(struct kv_daemon *d, bool pause)
{
    struct kv_floor_state *f = &d->floor;
    f->paused = pause;
    f->lingers = false;
    f->until_ns = d->now_ns + (pause ? f->pause_ns : trial_ns);
    f->requests = hw_counter_load(&d->stats.requests);
    f->wakeups = hw_counter_load(&d->stats.wakeups);
}

static void publish_all(struct kv_daemon *d)
{
    for (struct kv_seat *s = d->seats; s; s = s->all_next) {
        s->floor.has = false;
        kv_floor_publish(d, s);
    }
}

void kv_floor_set(struct kv_daemon *d, uint32_t seats)
{
    d->floor.seats = seats;
    d->floor.pause_ns = pause_min_ns;
    begin(d, false);
    publish_all(d);
}

/* At the end of a trial or a pause. */
static void judge(struct kv_daemon *d)
{
    struct kv_floor_state *f = &d->floor;
    if (f->paused) {
        begin(d, false);
        publish_all(d);
        return;
    }
    uint64_t requests = hw_counter_load(&d->stats.requests) - f->requests;
    uint64_t wakeups = hw_counter_load(&d->stats.wakeups) - f->wakeups;
    bool paid = requests >= WORTH_A_WAKEUP * wakeups;
    if (paid)
        f->pause_ns = pause_min_ns;
    begin(d, !paid);
    if (paid)
        return;
    f->pause_ns = 2 * f->pause_ns < pause_max_ns ? 2 * f->pause_ns : pause_max_ns;
    publish_all(d);
}

static void give(struct kv_daemon *d, struct kv_seat *s)
{
    assert(!s->floor.has);
    s->floor = (struct kv_seat_floor){.has = true, .since_ns = d->now_ns};
    kv_floor_publish(d, s);
}

void kv_floor_take_back(struct kv_daemon *d, struct kv_seat *s)
{
    if (!s->floor.has)
        return;
    s->floor.has = false;
    kv_floor_publish(d, s);
}

static bool others_wait(const struct kv_daemon *d)
{
    for (const struct kv_seat *s = d->active; s; s = s->next)
        if (!s->floor.has && kv_seat_has_request(s))
            return true;
    return false;
}

/* Several at a time are the longer, so that there are not more wake-ups for it. */
static uint64_t burst_ns(const struct kv_daemon *d)
{
    uint64_t ns = round_ns / d->active_count;
    ns = ns > burst_max_ns ? burst_max_ns : ns < burst_min_ns ? burst_min_ns : ns;
    return ns * d->floor.seats;
}

/* Asked before it is served: who is answered and loses the floor at once sleeps for the next answer
 * while this one's wake-ups are under way, and would be woken for nothing. */
static bool keeps(struct kv_daemon *d, struct kv_seat *s)
{
    uint64_t patience_ns = d->floor.seats * (s->floor.served > 1 ? think_ns : wake_ns);
    if (d->now_ns - s->used_ns >= patience_ns && !kv_seat_has_request(s))
        return false;
    if (d->now_ns - s->floor.since_ns < burst_ns(d))
        return true;
    if (others_wait(d))
        return false;
    s->floor.since_ns = d->now_ns; /* nobody misses it: another burst */
    return true;
}

/* One that has the floor alone would keep all the others waiting for an answer of another rank. */
static bool keeps_others_waiting(const struct kv_daemon *d, const struct kv_seat *s)
{
    return d->floor.seats == 1 && s->taken != s->answered;
}

static void send_to_end(struct kv_daemon *d, struct kv_seat *s)
{
    kv_floor_take_back(d, s);
    kv_seat_to_end(d, s);
}

/* In the order of the list: first those who have the floor, then who may get it. */
static uint32_t serve_in_turn(struct kv_daemon *d)
{
    const uint32_t seats = d->floor.seats;
    uint32_t events = 0, given = 0, holders = 0, awake = 0;
    const struct kv_seat *last = d->active_last; /* who is sent to the end is not met again */
    for (struct kv_seat *s = d->active, *next; s; s = next) {
        next = s == last ? NULL : s->next;
        if (s->floor.has && !keeps(d, s)) {
            send_to_end(d, s);
            continue;
        }
        bool had = s->floor.has;
        if (!had && (awake >= seats || holders >= seats + seats / 2 || given == GIVEN_A_TURN))
            break;
        if (!had && kv_seat_has_request(s))
            give(d, s);
        uint32_t n = kv_seat_scan(d, s);
        s->floor.served += n;
        events += n;
        if (!s->active)
            continue;
        if (!s->floor.has || keeps_others_waiting(d, s)) {
            send_to_end(d, s);
            continue;
        }
        holders++;
        awake += s->floor.served > 1; /* the others are on their way */
        given += !had;
    }
    d->floor.lingers = events == 0 && holders > 0;
    return events;
}

uint32_t kv_floor_scan(struct kv_daemon *d)
{
    if (d->floor.seats > 0 && d->now_ns >= d->floor.until_ns)
        judge(d);
    return d->floor.seats > 0 && !d->floor.paused ? serve_in_turn(d) : kv_seats_scan_all(d);
}

bool kv_daemon_lingers(const struct kv_daemon *d)
{
    return d->floor.lingers;
}
