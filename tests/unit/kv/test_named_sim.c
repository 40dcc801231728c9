/* Named values with two copies, in virtual time from a seed: members set, get and delete the same
 * names while daemons stall until they are given up and connections are cut, reset or frozen.
 *
 * A set or delete that was acknowledged is *over* when another one began after its end and was
 * acknowledged, too, or a get that was judged has given it.  A get that begins after that, with all
 * members connected or at an owner that asks nobody, must not give what is over.  Once all is well
 * for a while, every member has the same.
 *
 * Some sets are only for a name without a value.  Those are told OK only where a delete can have
 * made the name free, and what was told EXISTS is never read.  One that was told OK beside an
 * ordinary set, with all members connected, came before it: else it would have found that value.
 *
 *   test-kv-named-sim              every seed
 *   test-kv-named-sim SEED COUNT   so many from there on */
#include "unit.h"

#include "../../sanitized.h"

#include "base/log.h"
#include "bench/kvsim/cluster.h"
#include "wire/le.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEEDS = SANITIZED ? 40 : 100,
    MEMBERS = 3,
    KEYS = 3,
    LEN = 64,
    STEPS = 400,
    WRITES = 1024,
    TIMEOUT_MS = 3000
};

enum at { IDLE, STARTING, LOOKING, COMMITTING, DELETING, GETTING, CLEANING };

/* A set of a value, which is its number, or a delete: value 0.  As kv/client/named.c does it, a
 * delete that does not reach all owners sets 0 instead, and who reads that deletes it. */
struct write {
    uint32_t key, value;
    uint64_t begun_ns, done_ns; /* done: HW_NEVER unless it was acknowledged */
    uint64_t seen_ns;           /* done, or read before that */
    bool only_new;
    bool calm;  /* all members were connected */
    bool never; /* and it was refused */
};

struct client {
    enum at at;
    uint32_t key, write;
    uint64_t begun_ns;
    uint64_t asked; /* how many requests had gone to other members then */
    bool calm;      /* all members were connected since then */
    bool only_new;  /* the set */
    bool looked;    /* it has looked for what is in its way */
    bool looks;     /* the get: for its value's end alone, which is its number here */
};

struct sim {
    struct cluster cluster;
    struct client clients[MEMBERS];
    struct write writes[WRITES];
    uint32_t write_count;
    uint32_t gets_of_ten; /* requests */
    uint32_t troubles;    /* in so many steps one; 0: none */
    uint64_t trouble_ns;  /* when one strikes a commit */
    uint64_t reads, judged, at_once, acknowledged, refused, new_names, not_new;
    char failure[160];
};

static struct kv_block_key key_of(uint32_t n)
{
    struct kv_block_key key = {.len = KV_NAMED_KIND + 32};
    memcpy(key.bytes, kv_named_kind(false), KV_NAMED_KIND);
    memset(key.bytes + KV_NAMED_KIND, (int)n + 1, 32);
    return key;
}

static uint64_t now_of(const struct sim *s)
{
    return cluster_now(&s->cluster);
}

static uint32_t below(struct sim *s, uint32_t n)
{
    return (uint32_t)cluster_below(&s->cluster, n);
}

/* ---- what may be read ---- */

/* Whether a delete may have ended the value. */
static bool may_be_deleted(const struct sim *s, const struct write *w)
{
    for (uint32_t i = 0; i < s->write_count; i++) {
        const struct write *other = &s->writes[i];
        if (other->key == w->key && !other->value && other->done_ns > w->begun_ns)
            return true;
    }
    return false;
}

/* Whether a set was for a name without a value, and another one at the same time was not. */
static bool gives_way(const struct sim *s, const struct write *w, const struct write *other)
{
    return w->only_new && w->calm && !other->only_new && other->value && other->calm &&
           other->done_ns != HW_NEVER && other->done_ns > w->begun_ns && !may_be_deleted(s, other);
}

static bool is_over(const struct sim *s, const struct write *w, uint64_t at_ns)
{
    for (uint32_t i = 0; i < s->write_count; i++) {
        const struct write *later = &s->writes[i];
        if (later->key == w->key && later->seen_ns < at_ns &&
            (later->begun_ns > w->done_ns || gives_way(s, w, later)))
            return true;
    }
    return false;
}

/* Whether a get that began then may give the value. */
static bool may_be(const struct sim *s, uint32_t key, uint32_t value, uint64_t at_ns)
{
    for (uint32_t i = 0; i < s->write_count; i++)
        if (s->writes[i].key == key && s->writes[i].value == value && !s->writes[i].never &&
            !is_over(s, &s->writes[i], at_ns))
            return true;
    return false;
}

/* Whether a set that began then may have found no value. */
static bool may_be_free(const struct sim *s, uint32_t key, uint64_t at_ns)
{
    for (uint32_t i = 0; i < s->write_count; i++) {
        const struct write *w = &s->writes[i];
        if (w->key == key && w->value && w->done_ns < at_ns && !may_be_deleted(s, w))
            return false;
    }
    return true;
}

static uint64_t requests_to_others(const struct sim *s, uint32_t member)
{
    return hw_counter_load(&kv_daemon_stats(s->cluster.members[member].daemon)->block_remote);
}

static void judge(struct sim *s, uint32_t member, uint32_t value)
{
    const struct client *c = &s->clients[member];
    bool at_once = requests_to_others(s, member) == c->asked;
    s->reads++;
    s->at_once += at_once;
    if (!(c->calm || at_once) || s->failure[0])
        return;
    s->judged++;
    if (value && s->writes[value].seen_ns > now_of(s))
        s->writes[value].seen_ns = now_of(s);
    if (!may_be(s, c->key, value, c->begun_ns))
        snprintf(s->failure, sizeof(s->failure), "member %u reads %u of key %u at %llu us", member,
                 value, c->key, (unsigned long long)(c->begun_ns / HW_US));
}

/* ---- requests ---- */

static void submit(struct sim *s, uint32_t member, enum at at, struct kv_block_request r)
{
    struct client *c = &s->clients[member];
    struct kv_block_key key = key_of(c->key);
    c->at = at;
    (void)cluster_submit(&s->cluster, member, &r, &key, TIMEOUT_MS * 1000);
}

/* seen: the checksum of a value that is past its end. */
static void start_over(struct sim *s, uint32_t member, uint64_t seen)
{
    submit(s, member, STARTING,
           (struct kv_block_request){.op = KV_BLOCK_PUT_START,
                                     .flag = !s->clients[member].only_new,
                                     .key_count = 1,
                                     .len = LEN,
                                     .handle = seen});
}

static void start_put(struct sim *s, uint32_t member)
{
    start_over(s, member, 0);
}

static void begin(struct sim *s, uint32_t member)
{
    struct client *c = &s->clients[member];
    uint32_t what = below(s, 10);
    *c = (struct client){.key = below(s, KEYS),
                         .begun_ns = now_of(s),
                         .asked = requests_to_others(s, member),
                         .calm = true};
    if (what < s->gets_of_ten || s->write_count == WRITES) {
        c->looks = below(s, 4) == 0;
        submit(s, member, GETTING,
               (struct kv_block_request){.op = c->looks ? KV_BLOCK_LOOK : KV_BLOCK_GET,
                                         .key_count = 1});
        return;
    }
    bool is_delete = below(s, 5) == 0;
    c->write = s->write_count++;
    s->writes[c->write] = (struct write){.key = c->key,
                                         .value = is_delete ? 0 : c->write,
                                         .begun_ns = c->begun_ns,
                                         .done_ns = HW_NEVER,
                                         .seen_ns = HW_NEVER};
    if (is_delete)
        submit(s, member, DELETING,
               (struct kv_block_request){.op = KV_BLOCK_DELETE, .key_count = 1});
    else {
        c->only_new = s->writes[c->write].only_new = below(s, 4) == 0;
        start_put(s, member);
    }
}

static void written(struct sim *s, struct client *c, enum kv_result result)
{
    bool ok = result == KV_OK;
    s->acknowledged += ok;
    s->refused += !ok;
    s->new_names += ok && c->only_new;
    s->not_new += result == KV_EXISTS;
    s->writes[c->write].calm = c->calm;
    s->writes[c->write].never = result == KV_EXISTS && c->calm;
    if (ok && c->only_new && c->calm && !s->failure[0] && !may_be_free(s, c->key, c->begun_ns))
        snprintf(s->failure, sizeof(s->failure), "key %u is new at %llu us", c->key,
                 (unsigned long long)(c->begun_ns / HW_US));
    if (!ok)
        return;
    struct write *w = &s->writes[c->write];
    w->done_ns = now_of(s);
    w->seen_ns = w->seen_ns < w->done_ns ? w->seen_ns : w->done_ns;
}

/* The number in a leased block; *checksum: its, if it is 0. */
static uint32_t value_of(struct sim *s, uint32_t member, const struct kv_port_answer *a,
                         uint64_t *checksum)
{
    struct kv_block_granted g;
    if (a->result == KV_MISS)
        return 0;
    assert_int_equal(
        kv_block_granted_decode(a->value, a->value_len, s->cluster.options.arena_bytes, &g), 0);
    uint32_t value = wire_load32(s->cluster.members[member].arena + g.offset);
    *checksum = value ? 0 : g.checksum;
    return value;
}

static void trouble(struct sim *s)
{
    uint32_t what = below(s, CLUSTER_TROUBLES + 1);
    if (what < CLUSTER_TROUBLES)
        (void)cluster_trouble(&s->cluster, (enum cluster_trouble)what);
    else
        s->cluster.members[below(s, MEMBERS)].stalled_until_ns =
            now_of(s) + (1 + below(s, 3000)) * HW_MS;
}

static void take(struct sim *s, uint32_t member)
{
    struct client *c = &s->clients[member];
    struct kv_port *port = &s->cluster.members[member].port;
    struct kv_port_answer a;
    if (c->at == IDLE || !kv_port_take(port, &a))
        return;
    enum at at = c->at;
    uint64_t ended = 0;
    c->at = IDLE;
    if (at == GETTING && c->looks && (a.result == KV_OK || a.result == KV_MISS))
        judge(s, member, a.result == KV_OK ? wire_load32(a.value) : 0);
    else if (at == GETTING && (a.result == KV_OK || a.result == KV_MISS))
        judge(s, member, value_of(s, member, &a, &ended));
    if (at == LOOKING && a.result == KV_OK)
        (void)value_of(s, member, &a, &ended);
    uint64_t ticket = at == STARTING && a.result == KV_OK ? wire_load64(a.value) : 0;
    kv_port_free(port, a.slot);
    if (ticket) {
        wire_store32(port->region.staging, s->writes[c->write].value);
        submit(s, member, COMMITTING,
               (struct kv_block_request){.op = KV_BLOCK_PUT_COMMIT, .handle = ticket, .len = LEN});
        if (s->troubles && below(s, 4) == 0)
            s->trouble_ns = now_of(s) + below(s, 50 * (uint32_t)HW_MS);
    } else if (at == LOOKING && (a.result == KV_MISS || ended)) {
        start_over(s, member, ended);
    } else if (at == LOOKING) {
        written(s, c, a.result == KV_OK ? KV_EXISTS : a.result);
    } else if (at == STARTING && a.result == KV_EXISTS && !c->looked) {
        c->looked = true;
        submit(s, member, LOOKING, (struct kv_block_request){.op = KV_BLOCK_GET, .key_count = 1});
    } else if (at == COMMITTING || at == STARTING) {
        written(s, c, a.result);
    } else if (ended) {
        submit(s, member, CLEANING,
               (struct kv_block_request){
                   .op = KV_BLOCK_DELETE, .flag = true, .handle = ended, .key_count = 1});
    } else if (at == DELETING && a.result == KV_PEER_LOST) {
        start_put(s, member);
    } else if (at == DELETING) {
        written(s, c, a.result == KV_MISS ? KV_OK : a.result);
    }
}

static bool is_calm(const struct sim *s)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (s->cluster.members[i].stalled_until_ns > now_of(s))
            return false;
    return cluster_all_connected(&s->cluster);
}

static void turn_all(struct sim *s)
{
    if (now_of(s) >= s->trouble_ns) {
        s->trouble_ns = HW_NEVER;
        trouble(s);
    }
    bool calm = is_calm(s);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        s->clients[i].calm &= calm;
        cluster_turn(&s->cluster, i);
        take(s, i);
    }
    cluster_pass_time(&s->cluster, HW_MS);
}

static void turn_for(struct sim *s, uint64_t ns)
{
    for (uint64_t until = now_of(s) + ns; now_of(s) < until;)
        turn_all(s);
}

/* ---- a history ---- */

static uint32_t read_calmly(struct sim *s, uint32_t member, uint32_t key)
{
    struct client *c = &s->clients[member];
    struct kv_port_answer a;
    uint64_t ended;
    c->key = key;
    submit(s, member, IDLE, (struct kv_block_request){.op = KV_BLOCK_GET, .key_count = 1});
    while (!kv_port_take(&s->cluster.members[member].port, &a))
        turn_all(s);
    assert_true(a.result == KV_OK || a.result == KV_MISS);
    uint32_t value = value_of(s, member, &a, &ended);
    kv_port_free(&s->cluster.members[member].port, a.slot);
    return value;
}

static void all_agree(struct sim *s)
{
    s->cluster.refused_dials = s->troubles = 0;
    s->trouble_ns = HW_NEVER;
    turn_for(s, 12 * HW_SEC); /* all requests end, all are connected, all copies are repaired */
    assert_true(cluster_all_connected(&s->cluster));
    for (uint32_t k = 0; k < KEYS && !s->failure[0]; k++)
        for (uint32_t i = 0; i < MEMBERS; i++) {
            uint32_t value = read_calmly(s, i, k), first = i ? read_calmly(s, 0, k) : value;
            if (value != first || !may_be(s, k, value, now_of(s)))
                snprintf(s->failure, sizeof(s->failure),
                         "in the end member %u reads %u of key %u, member 0 %u", i, value, k,
                         first);
        }
}

static void open_members(struct sim *s, uint64_t seed, uint64_t heartbeat_ns, uint64_t jitter_ns,
                         bool fixed)
{
    const struct cluster_options options = {
        .seed = seed,
        .count = MEMBERS,
        .fixed = fixed,
        .copies = 2,
        .arena_bytes = 1 << 20,
        .depth = 1,
        .staging_bytes = LEN,
        .heartbeat_ns = heartbeat_ns,
        .net = {.seed = seed, .delay_ns = 200 * HW_US, .jitter_ns = jitter_ns}};
    *s = (struct sim){.trouble_ns = HW_NEVER};
    assert_int_equal(cluster_open(&s->cluster, &options), 0);
    while (!cluster_all_connected(&s->cluster))
        turn_all(s);
}

static void open_connected(struct sim *s, uint64_t seed, uint64_t heartbeat_ns, uint64_t jitter_ns)
{
    open_members(s, seed, heartbeat_ns, jitter_ns, false);
}

static void run_seed(struct sim *s, uint64_t seed)
{
    open_connected(s, seed, 200 * HW_MS, seed / 16 % 2 * 20 * HW_MS);
    s->gets_of_ten = 5 + 2 * (seed / 4 % 3);
    s->write_count = 1;                 /* numbers begin with 1 */
    for (uint32_t k = 0; k < KEYS; k++) /* before the first set there is nothing */
        s->writes[s->write_count++] = (struct write){.key = k};
    s->cluster.refused_dials = seed / 8 % 2 ? 2 : 0; /* so that two may not meet for a while */
    s->troubles = seed % 4 ? 20 : 0;
    for (uint32_t step = 0; step < STEPS && !s->failure[0]; step++) {
        if (s->troubles && below(s, s->troubles) == 0)
            trouble(s);
        for (uint32_t i = 0; i < MEMBERS; i++)
            if (s->clients[i].at == IDLE && below(s, 2) == 0)
                begin(s, i);
        for (uint32_t n = below(s, 8); n > 0; n--)
            turn_all(s);
    }
    if (!s->failure[0])
        all_agree(s);
    cluster_close(&s->cluster);
    if (s->failure[0])
        fail_msg("seed %llu: %s", (unsigned long long)seed, s->failure);
}

static uint64_t first_seed = 1, seed_count = SEEDS;

static void what_is_over_is_not_read_and_all_agree(void **state)
{
    (void)state;
    static struct sim s;
    uint64_t reads = 0, judged = 0, at_once = 0, acknowledged = 0, refused = 0, new_names = 0,
             not_new = 0;
    for (uint64_t i = 0; i < seed_count; i++) {
        run_seed(&s, first_seed + i);
        reads += s.reads;
        judged += s.judged;
        at_once += s.at_once;
        acknowledged += s.acknowledged;
        refused += s.refused;
        new_names += s.new_names;
        not_new += s.not_new;
    }
    printf("%llu gets, %llu of them judged, %llu without a question; %llu sets and deletes, %llu "
           "refused; %llu names were new, %llu not\n",
           (unsigned long long)reads, (unsigned long long)judged, (unsigned long long)at_once,
           (unsigned long long)acknowledged, (unsigned long long)refused,
           (unsigned long long)new_names, (unsigned long long)not_new);
    /* In a single history all may stall from the beginning. */
    assert_true(seed_count < SEEDS || (judged > 0 && at_once > 0 && acknowledged > 0));
}

/* ---- a member that was just stopped ---- */

/* Value 0: deletes it. */
static void change(struct sim *s, uint32_t member, uint32_t key, uint32_t value)
{
    struct client *c = &s->clients[member];
    *c = (struct client){.key = key, .write = key};
    s->writes[key] = (struct write){.key = key, .value = value};
    if (value)
        start_put(s, member);
    else
        submit(s, member, DELETING,
               (struct kv_block_request){.op = KV_BLOCK_DELETE, .key_count = 1});
    while (c->at != IDLE)
        turn_all(s);
}

static void set_all(struct sim *s, uint32_t member)
{
    s->acknowledged = 0;
    for (uint32_t k = 0; k < KEYS; k++)
        change(s, member, k, k + 1);
    assert_int_equal(s->acknowledged, KEYS);
}

/* Every member that runs reads every value. */
static void all_are_read(struct sim *s, uint32_t stopped)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        for (uint32_t k = 0; k < KEYS && i != stopped; k++)
            assert_int_equal(read_calmly(s, i, k), k + 1);
}

/* All values are there, and one member falls silent. */
static void open_and_stop(struct sim *s, uint32_t stopped)
{
    open_connected(s, 1 + stopped, TIMEOUT_MS * HW_MS, 0);
    set_all(s, 0);
    s->cluster.members[stopped].stalled_until_ns = HW_NEVER;
}

/* Silence means death only after the time that a request has. */
static void values_of_a_member_just_stopped_are_read_at_the_other_owner(void **state)
{
    (void)state;
    static struct sim s;
    for (uint32_t stopped = 0; stopped < MEMBERS; stopped++) {
        open_and_stop(&s, stopped);
        all_are_read(&s, stopped);
        cluster_close(&s.cluster);
    }
}

/* Once it is known to be lost nobody waits for it, though it takes dials: they are the kernel's. */
static void a_member_that_stays_stopped_holds_up_no_request(void **state)
{
    (void)state;
    static struct sim s;
    for (uint32_t stopped = 0; stopped < MEMBERS; stopped++) {
        open_connected(&s, 1 + stopped, 200 * HW_MS, 0);
        set_all(&s, (stopped + 1) % MEMBERS);
        s.cluster.members[stopped].stalled_until_ns = HW_NEVER;
        turn_for(&s, 2 * HW_SEC);
        uint64_t begun_ns = now_of(&s);
        all_are_read(&s, stopped);
        set_all(&s, (stopped + 1) % MEMBERS);
        assert_true(now_of(&s) - begun_ns < 250 * HW_MS);
        cluster_close(&s.cluster);
    }
}

/* Sets and deletes are done at the other owner. */
static void values_of_a_member_just_stopped_are_changed_at_the_other_owner(void **state)
{
    (void)state;
    static struct sim s;
    for (uint32_t stopped = 0; stopped < MEMBERS; stopped++)
        for (uint32_t setter = 0; setter < MEMBERS; setter++) {
            if (setter == stopped)
                continue;
            open_and_stop(&s, stopped);
            for (uint32_t k = 0; k < KEYS; k++) {
                s.acknowledged = 0;
                change(&s, setter, k, 7);
                assert_int_equal(read_calmly(&s, setter, k), 7);
                change(&s, setter, k, 0);
                assert_int_equal(s.acknowledged, 2);
                assert_int_equal(read_calmly(&s, setter, k), 0);
            }
            cluster_close(&s.cluster);
        }
}

/* Waits for the answer to what was submitted at a member. */
static enum kv_result answer_at(struct sim *s, uint32_t member, uint64_t *ticket)
{
    struct kv_port *port = &s->cluster.members[member].port;
    struct kv_port_answer a;
    while (!kv_port_take(port, &a))
        turn_all(s);
    if (ticket && a.result == KV_OK)
        *ticket = wire_load64(a.value);
    kv_port_free(port, a.slot);
    return a.result;
}

/* An owner falls silent when the first bytes of a value are on their way to it. */
static void a_value_that_moves_early_is_set_at_the_other_owner(void **state)
{
    (void)state;
    static struct sim s;
    for (uint32_t stopped = 1; stopped < MEMBERS; stopped++)
        for (uint32_t k = 0; k < KEYS; k++) {
            uint64_t ticket = 0;
            open_connected(&s, stopped, 10 * TIMEOUT_MS * HW_MS, 0);
            turn_for(&s, HW_SEC);
            s.clients[0] = (struct client){.key = k};
            submit(&s, 0, IDLE,
                   (struct kv_block_request){
                       .op = KV_BLOCK_PUT_START, .flag = true, .key_count = 1, .len = LEN});
            assert_int_equal(answer_at(&s, 0, &ticket), KV_OK);
            s.cluster.members[stopped].stalled_until_ns = HW_NEVER;
            for (int i = 0; i < 2; i++) { /* staged, then committed */
                submit(
                    &s, 0, IDLE,
                    (struct kv_block_request){.op = i ? KV_BLOCK_PUT_COMMIT : KV_BLOCK_PUT_STAGED,
                                              .handle = ticket,
                                              .len = LEN});
                assert_int_equal(answer_at(&s, 0, NULL), KV_OK);
            }
            cluster_close(&s.cluster);
        }
}

/* A dial is answered by nobody, too, and it is the first one to that member. */
static void values_of_a_member_that_never_answered_are_read_at_the_other_owner(void **state)
{
    (void)state;
    static struct sim s;
    for (uint32_t stopped = 0; stopped < MEMBERS; stopped++) {
        open_and_stop(&s, stopped);
        for (int in_view = 0; in_view < 2; in_view++) {
            s.cluster.members[stopped].in_view = in_view;
            s.cluster.epoch++;
            for (uint32_t i = 0; i < MEMBERS; i++)
                if (i != stopped)
                    cluster_tell_view(&s.cluster, i);
        }
        all_are_read(&s, stopped);
        cluster_close(&s.cluster);
    }
}

/* ---- a set that reaches one owner ---- */

static uint64_t version_at(const struct sim *s, uint32_t member)
{
    struct kv_block_key key = key_of(0);
    return kv_blocks_version(kv_daemon_blocks(s->cluster.members[member].daemon), &key);
}

/* The members that own key 0, and then the one that does not. */
static void order_members(const struct sim *s, uint32_t out[MEMBERS])
{
    uint32_t owners = 0, others = MEMBERS;
    for (uint32_t i = 0; i < MEMBERS; i++)
        out[version_at(s, i) ? owners++ : --others] = i;
    assert_int_equal(owners, 2);
}

/* It is read here without a question. */
static void is_read_at_once(struct sim *s, uint32_t member, uint32_t value)
{
    uint64_t asked;
    do {
        asked = requests_to_others(s, member);
        assert_int_equal(read_calmly(s, member, 0), value);
    } while (requests_to_others(s, member) > asked);
}

/* Both owners promise room; then the second one commits, and all connections are lost. */
static void commit_at_the_second(struct sim *s, const uint32_t members[MEMBERS],
                                 bool read_meanwhile)
{
    uint32_t setter = members[2];
    uint64_t before = version_at(s, members[1]);
    s->clients[setter] = (struct client){.key = 0};
    s->writes[0].value = 9;
    start_put(s, setter);
    while (s->clients[setter].at == STARTING)
        turn_all(s);
    if (read_meanwhile)
        assert_int_equal(read_calmly(s, members[0], 0), 1);
    while (version_at(s, members[1]) == before) {
        cluster_turn(&s->cluster, setter);
        cluster_pass_time(&s->cluster, HW_MS);
        cluster_turn(&s->cluster, members[1]);
        if (version_at(s, members[1]) == before)
            cluster_turn(&s->cluster, members[0]);
    }
    for (uint32_t i = 0; i < rpc_loopnet_ends(s->cluster.net); i++)
        rpc_loopnet_reset(rpc_loopnet_end(s->cluster.net, i));
}

/* An owner that sets a value knows with the answer of the other that both have it. */
static void a_value_is_read_at_once_where_it_was_set(void **state)
{
    (void)state;
    static struct sim s;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t members[MEMBERS];
        open_connected(&s, 1 + i, TIMEOUT_MS * HW_MS, 0);
        set_all(&s, 0);
        order_members(&s, members);
        change(&s, members[i], 0, 9);
        uint64_t asked = requests_to_others(&s, members[i]);
        assert_int_equal(read_calmly(&s, members[i], 0), 9);
        assert_int_equal(requests_to_others(&s, members[i]), asked);
        cluster_close(&s.cluster);
    }
}

/* The other owner may have a permit of the life before: a set that it has promised room for need
 * not wait for its end, one that it was not asked for must. */
static void a_set_after_a_start_waits_only_where_it_is_alone(void **state)
{
    (void)state;
    static struct sim s;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t members[MEMBERS], first = i % 2, alone = i / 2;
        open_members(&s, 1 + i, TIMEOUT_MS * HW_MS, 0, true);
        set_all(&s, 0);
        order_members(&s, members);
        uint32_t restarted = members[first], other = members[!first];
        turn_for(&s, HW_SEC);
        is_read_at_once(&s, other, 1);
        cluster_stop(&s.cluster, restarted);
        uint64_t begun_ns = now_of(&s), asked = requests_to_others(&s, other);
        assert_int_equal(cluster_start(&s.cluster, restarted), 0);
        while (!cluster_all_connected(&s.cluster))
            turn_all(&s);
        assert_int_equal(read_calmly(&s, other, 0), 1);
        assert_int_equal(requests_to_others(&s, other), asked); /* or this shows nothing */
        if (alone)
            s.cluster.members[other].stalled_until_ns = now_of(&s) + 2 * HW_SEC;
        change(&s, restarted, 0, 9);
        assert_int_equal(now_of(&s) - begun_ns >= 250 * HW_MS, alone);
        while (s.cluster.members[other].stalled_until_ns > now_of(&s))
            turn_all(&s);
        assert_int_equal(read_calmly(&s, other, 0), 9);
        cluster_close(&s.cluster);
    }
}

/* A name that has no value is not asked for again and again, until it has one. */
static void that_there_is_no_value_is_agreed_on(void **state)
{
    (void)state;
    static struct sim s;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t members[MEMBERS];
        open_connected(&s, 1 + i, TIMEOUT_MS * HW_MS, 0);
        set_all(&s, 0);
        order_members(&s, members);
        change(&s, members[2], 0, 0);
        is_read_at_once(&s, members[i], 0);
        change(&s, members[2], 0, 9);
        assert_int_equal(read_calmly(&s, members[i], 0), 9);
        change(&s, members[2], 0, 0);
        is_read_at_once(&s, members[i], 0);
        s.cluster.members[members[i]].stalled_until_ns = now_of(&s) + 2 * HW_SEC;
        change(&s, members[2], 0, 9); /* at the other owner alone */
        while (s.cluster.members[members[i]].stalled_until_ns > now_of(&s))
            turn_all(&s);
        assert_int_equal(read_calmly(&s, members[i], 0), 9);
        cluster_close(&s.cluster);
    }
}

static void what_one_owner_has_is_not_hidden_by_the_other(void **state)
{
    (void)state;
    static struct sim s;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t members[MEMBERS];
        open_connected(&s, 1 + i, TIMEOUT_MS * HW_MS, 0);
        set_all(&s, 0);
        order_members(&s, members);
        if (i % 2) { /* the other one of the two */
            uint32_t first = members[0];
            members[0] = members[1];
            members[1] = first;
        }
        is_read_at_once(&s, members[0], 1);
        commit_at_the_second(&s, members, i >= 2);
        assert_true(version_at(&s, members[0]) < version_at(&s, members[1]));
        assert_int_equal(read_calmly(&s, members[0], 0), 9);
        cluster_close(&s.cluster);
    }
}

/* ---- sets of a new name ---- */

/* All members at once set key 0, which has no value. */
/* plain: the one that does not mind a value. */
static void set_new_at_once(struct sim *s, uint32_t plain)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        s->clients[i] =
            (struct client){.key = 0, .write = 1 + i, .only_new = i != plain, .calm = true};
        s->writes[1 + i] = (struct write){.key = 0, .value = 1 + i};
        start_put(s, i);
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        while (s->clients[i].at != IDLE)
            turn_all(s);
}

static void of_sets_of_a_new_name_at_once_one_succeeds(void **state)
{
    (void)state;
    static struct sim s;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint32_t value = 0;
        open_connected(&s, seed, TIMEOUT_MS * HW_MS, seed % 4 * 5 * HW_MS);
        set_new_at_once(&s, MEMBERS);
        for (uint32_t i = 0; i < MEMBERS; i++)
            value = s.writes[1 + i].never ? value : 1 + i;
        if (s.new_names != 1 || s.not_new != MEMBERS - 1)
            fail_msg("seed %llu: %llu are told OK and %llu EXISTS", (unsigned long long)seed,
                     (unsigned long long)s.new_names, (unsigned long long)s.not_new);
        for (uint32_t i = 0; i < MEMBERS; i++)
            assert_int_equal(read_calmly(&s, i, 0), value);
        cluster_close(&s.cluster);
    }
}

static void a_set_beside_sets_of_a_new_name_is_the_last(void **state)
{
    (void)state;
    static struct sim s;
    uint64_t before = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint32_t plain = (uint32_t)(seed % MEMBERS);
        open_connected(&s, seed, TIMEOUT_MS * HW_MS, seed % 4 * 5 * HW_MS);
        set_new_at_once(&s, plain);
        before += s.new_names;
        for (uint32_t i = 0; i < MEMBERS; i++)
            if (read_calmly(&s, i, 0) != 1 + plain)
                fail_msg("seed %llu: member %u reads %u, not %u", (unsigned long long)seed, i,
                         read_calmly(&s, i, 0), 1 + plain);
        cluster_close(&s.cluster);
    }
    assert_true(before > 0); /* or this shows nothing */
}

/* The first owner commits the set of a new name, and the connections are lost before it says so:
 * the value that is there then is not another's. */
static void a_new_name_is_not_told_to_exist_when_its_answer_is_lost(void **state)
{
    (void)state;
    static struct sim s;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        uint32_t members[MEMBERS];
        open_connected(&s, seed, TIMEOUT_MS * HW_MS, 0);
        set_all(&s, 0);
        order_members(&s, members);
        uint32_t setter = members[2];
        change(&s, setter, 0, 0);
        s.clients[setter] = (struct client){.key = 0, .write = 9, .only_new = true, .calm = true};
        s.writes[9] = (struct write){.key = 0, .value = 9};
        start_put(&s, setter);
        while (s.clients[setter].at == STARTING)
            turn_all(&s);
        while (!version_at(&s, members[0]) && !version_at(&s, members[1])) {
            cluster_turn(&s.cluster, setter);
            cluster_pass_time(&s.cluster, HW_MS);
            cluster_turn(&s.cluster, members[0]);
            if (!version_at(&s, members[0]))
                cluster_turn(&s.cluster, members[1]);
        }
        for (uint32_t i = 0; i < rpc_loopnet_ends(s.cluster.net); i++)
            rpc_loopnet_reset(rpc_loopnet_end(s.cluster.net, i));
        s.clients[setter].at = IDLE;
        assert_int_equal(answer_at(&s, setter, NULL), KV_PEER_LOST);
        turn_for(&s, HW_SEC);
        assert_int_equal(read_calmly(&s, setter, 0), 9);
        cluster_close(&s.cluster);
    }
}

/* What daemons say of lost members. */
static void swallow(void *user, const char *line, size_t len)
{
    (void)user;
    (void)line;
    (void)len;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_over_is_not_read_and_all_agree),
        cmocka_unit_test(values_of_a_member_just_stopped_are_read_at_the_other_owner),
        cmocka_unit_test(a_member_that_stays_stopped_holds_up_no_request),
        cmocka_unit_test(values_of_a_member_just_stopped_are_changed_at_the_other_owner),
        cmocka_unit_test(a_value_that_moves_early_is_set_at_the_other_owner),
        cmocka_unit_test(values_of_a_member_that_never_answered_are_read_at_the_other_owner),
        cmocka_unit_test(a_value_is_read_at_once_where_it_was_set),
        cmocka_unit_test(a_set_after_a_start_waits_only_where_it_is_alone),
        cmocka_unit_test(that_there_is_no_value_is_agreed_on),
        cmocka_unit_test(what_one_owner_has_is_not_hidden_by_the_other),
        cmocka_unit_test(of_sets_of_a_new_name_at_once_one_succeeds),
        cmocka_unit_test(a_set_beside_sets_of_a_new_name_is_the_last),
        cmocka_unit_test(a_new_name_is_not_told_to_exist_when_its_answer_is_lost),
    };
    hw_log_set_sink(swallow, NULL);
    if (argc > 1)
        first_seed = strtoull(argv[1], NULL, 0);
    if (argc > 1)
        seed_count = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
