#include "kv/cluster/registry.h"

#include "base/log.h"
#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Timeout of an exchange: a third of a lease, so that two renewals may fail before it lapses;
 * within bounds that suit a busy etcd and a dead endpoint. */
#define EXCHANGE_MIN_NS HW_SEC
#define EXCHANGE_MAX_NS (5 * HW_SEC)

enum { CHANGES_CHARS = 512 }; /* of a log line about members that came and went; more is cut */

static void set_key(char out[KV_ETCD_KEY_MAX + 1], const char *folder, const char *rest)
{
    int len = snprintf(out, KV_ETCD_KEY_MAX + 1, "%s%s", folder, rest);
    assert(len > 0 && len <= KV_ETCD_KEY_MAX);
    (void)len;
}

int kv_registry_init(struct kv_registry *r, const struct kv_members_options *o,
                     struct kv_members_stats *stats, int wake_fd, char why[RPC_WHY_CHARS])
{
    *r = (struct kv_registry){.ttl_ns = o->ttl_ns,
                              .wake_fd = wake_fd,
                              .changed = o->changed,
                              .user = o->user,
                              .etcd = o->etcd,
                              .stats = stats};
    snprintf(r->name, sizeof(r->name), "%s", o->name);
    snprintf(r->address, sizeof(r->address), "%s", o->address);
    snprintf(r->folder, sizeof(r->folder), "/hawser/%.*s/", KV_CLUSTER_NAME_CHARS - 1, o->cluster);
    set_key(r->prefix, r->folder, "members/");
    set_key(r->era_key, r->folder, "era");
    set_key(r->key, r->prefix, r->name);
    return kv_poster_create(&o->etcd->tls, &r->poster, why);
}

static void drop_watch(struct kv_registry *r)
{
    kv_post_destroy(r->watch);
    r->watch = NULL;
}

void kv_registry_fini(struct kv_registry *r)
{
    drop_watch(r);
    kv_poster_destroy(r->poster);
    r->poster = NULL;
}

static int PRINTF_LIKE(3, 4) fail(struct kv_registry *r, int rc, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->why, sizeof(r->why), fmt, args);
    va_end(args);
    return rc;
}

/* ---- exchanges ---- */

static uint64_t exchange_deadline(const struct kv_registry *r)
{
    uint64_t limit = r->ttl_ns / 3;
    if (limit < EXCHANGE_MIN_NS)
        limit = EXCHANGE_MIN_NS;
    return hw_now_ns() + (limit < EXCHANGE_MAX_NS ? limit : EXCHANGE_MAX_NS);
}

static int open_post(struct kv_registry *r, const char *path, const char *json,
                     struct kv_post **out)
{
    struct kv_post_request request = {
        .url = r->endpoint, .path = path, .json = json, .token = r->token};
    return kv_post_open(r->poster, &request, out, r->why);
}

/* An answer with an error status: its reason.  A token that has lapsed is one; the next is asked
 * for in any case. */
static int refused(struct kv_registry *r, const char *path, unsigned status, const char *body,
                   size_t len)
{
    char words[RPC_WHY_CHARS];
    kv_etcd_error_answer(body, len, words);
    r->token[0] = '\0';
    r->open_to_all = strstr(words, "authentication is not enabled") != NULL;
    return fail(r, -EREMOTEIO, "etcd at %.80s answers %s with %u%s%.100s", r->endpoint, path,
                status, words[0] ? ": " : "", words);
}

static int broken(struct kv_registry *r, int rc, const char *path)
{
    return fail(r, rc, "etcd at %.80s does not answer %s: %s", r->endpoint, path, strerror(-rc));
}

/* Sends a request and waits for the whole answer.  On 0 the post is the caller's, and its status
 * 200. */
static int exchange(struct kv_registry *r, const char *path, const char *json, struct kv_post **out)
{
    struct kv_post *post;
    size_t len;
    int rc = open_post(r, path, json, &post);
    if (rc)
        return rc;
    rc = kv_post_read_all(post, r->wake_fd, exchange_deadline(r), r->why);
    const char *body = kv_post_body(post, &len);
    if (rc == 0 && kv_post_status(post) != 200)
        rc = refused(r, path, kv_post_status(post), body, len);
    if (rc)
        kv_post_destroy(post);
    else
        *out = post;
    return rc;
}

static int log_in(struct kv_registry *r)
{
    char json[KV_ETCD_REQUEST_MAX];
    struct kv_post *post;
    size_t len;
    if (kv_etcd_login_request(r->etcd->user, r->etcd->password, json))
        return fail(r, -EINVAL, "the name or password for etcd is too long or no UTF-8");
    int rc = exchange(r, KV_ETCD_LOGIN, json, &post);
    explicit_bzero(json, sizeof(json));
    if (r->open_to_all) /* as after the loss of its data: it takes who comes */
        return 0;
    if (rc)
        return rc;
    const char *body = kv_post_body(post, &len);
    rc = kv_etcd_login_answer(body, len, r->token);
    kv_post_destroy(post);
    return rc ? broken(r, rc, KV_ETCD_LOGIN) : 0;
}

/* ---- the lease ---- */

static void lose_lease(struct kv_registry *r)
{
    r->lease = 0;
    r->registered = false;
    r->guard = 0;
}

static void lease_lasts(struct kv_registry *r, uint64_t asked_ns, uint64_t ttl_s)
{
    uint64_t most_s = KV_MEMBER_TTL_MAX / HW_SEC;
    r->lease_ttl_ns = (ttl_s < most_s ? ttl_s : most_s) * HW_SEC;
    r->renew_at_ns = asked_ns + r->lease_ttl_ns / 3;
}

static int grant(struct kv_registry *r)
{
    char json[KV_ETCD_REQUEST_MAX];
    struct kv_post *post;
    uint64_t ttl_s, asked = hw_now_ns();
    size_t len;
    kv_etcd_grant_request((r->ttl_ns + HW_SEC - 1) / HW_SEC, json);
    int rc = exchange(r, KV_ETCD_GRANT, json, &post);
    if (rc)
        return rc;
    const char *body = kv_post_body(post, &len);
    rc = kv_etcd_grant_answer(body, len, &r->lease, &ttl_s);
    kv_post_destroy(post);
    if (rc)
        return broken(r, rc, KV_ETCD_GRANT);
    lease_lasts(r, asked, ttl_s);
    return 0;
}

static int renew(struct kv_registry *r)
{
    char json[KV_ETCD_REQUEST_MAX];
    struct kv_post *post;
    uint64_t ttl_s = 0, asked = hw_now_ns();
    size_t len;
    kv_etcd_lease_request(r->lease, json);
    int rc = exchange(r, KV_ETCD_RENEW, json, &post);
    if (rc)
        return rc;
    const char *body = kv_post_body(post, &len);
    rc = kv_etcd_renew_answer(body, len, &ttl_s);
    kv_post_destroy(post);
    if (rc)
        return broken(r, rc, KV_ETCD_RENEW);
    if (ttl_s == 0) {
        hw_warn(HW_CAT_KV, "members: the registration of %s has lapsed; registering again",
                r->name);
        lose_lease(r);
        return 0;
    }
    lease_lasts(r, asked, ttl_s);
    return 0;
}

/* ---- the roll ---- */

/* The member's name that a key ends in; NULL: a key of something else. */
static const char *name_of(const struct kv_registry *r, const char *key)
{
    size_t len = strlen(r->prefix);
    return strncmp(key, r->prefix, len) == 0 && key[len] ? key + len : NULL;
}

/* Its place, or the count where it has none. */
static uint32_t roll_place(const struct kv_view *roll, const char *name)
{
    uint32_t i = 0;
    while (i < roll->count && strcmp(roll->members[i].name, name) != 0)
        i++;
    return i;
}

static bool roll_has(const struct kv_view *roll, const char *name)
{
    return roll_place(roll, name) < roll->count;
}

static void roll_remove(struct kv_view *roll, const char *name)
{
    uint32_t place = roll_place(roll, name);
    if (place < roll->count)
        roll->members[place] = roll->members[--roll->count];
}

/* An entry that cannot be a member is logged and left out. */
static void roll_put(struct kv_view *roll, const char *name, const char *address)
{
    char why[RPC_WHY_CHARS];
    struct kv_member member;
    struct kv_member_info info = {.name = name, .address = address};
    if (kv_member_make(&info, &member, why)) {
        hw_warn(HW_CAT_KV, "members: %.64s is left out: %s", name, why);
        roll_remove(roll, name);
        return;
    }
    uint32_t place = roll_place(roll, name);
    if (place == KV_MEMBERS_MAX) {
        hw_warn(HW_CAT_KV, "members: %.64s is left out: there are %d already", name,
                KV_MEMBERS_MAX);
        return;
    }
    roll->count += place == roll->count;
    roll->members[place] = member;
}

/* ---- views ---- */

static size_t PRINTF_LIKE(3, 4) append(char *text, size_t len, const char *fmt, ...)
{
    va_list args;
    if (len >= CHANGES_CHARS - 1)
        return len;
    va_start(args, fmt);
    int n = vsnprintf(text + len, CHANGES_CHARS - len, fmt, args);
    va_end(args);
    return n < 0 ? len : len + (size_t)n;
}

/* Members of `a` that are not in `b`, or not at the same address. */
static size_t append_difference(char *text, size_t len, const char *title, const struct kv_view *a,
                                const struct kv_view *b)
{
    const char *before = title;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct kv_member *m = &a->members[i], *other = kv_view_find(b, m->id);
        if (other && strcmp(other->address, m->address) == 0)
            continue;
        len = append(text, len, "%s%s (%s)", before, m->name, m->address);
        before = ", ";
    }
    return len;
}

static void log_view(const struct kv_view *view, const struct kv_view *before)
{
    char changes[CHANGES_CHARS] = "";
    size_t len = append_difference(changes, 0, "; joined: ", view, before);
    (void)append_difference(changes, len, "; left: ", before, view);
    hw_info(HW_CAT_KV, "members: epoch %" PRIu64 ", %u member%s%s", view->epoch, view->count,
            view->count == 1 ? "" : "s", changes);
}

/* The epoch of a revision in the present era. */
static uint64_t epoch_of(const struct kv_registry *r, uint64_t revision)
{
    return (r->era << KV_ERA_SHIFT) + revision;
}

static void publish(struct kv_registry *r)
{
    if (r->roll.epoch <= r->view.epoch)
        return; /* what went back is told in the next era: see went_back */
    struct kv_member_info infos[KV_MEMBERS_MAX];
    struct kv_view view;
    char why[RPC_WHY_CHARS];
    for (uint32_t i = 0; i < r->roll.count; i++)
        infos[i] = (struct kv_member_info){r->roll.members[i].name, r->roll.members[i].address};
    if (kv_view_make(r->roll.epoch, infos, r->roll.count, &view, why)) {
        hw_error(HW_CAT_KV, "members: epoch %" PRIu64 ": %s; the last view stays in force",
                 r->roll.epoch, why);
        return;
    }
    log_view(&view, &r->view);
    kv_view_copy(&r->view, &view);
    atomic_store_explicit(&r->stats->epoch, view.epoch, memory_order_relaxed);
    r->changed(r->user, &view);
}

/* ---- what etcd has ---- */

/* All that a transaction read. */
struct reading {
    struct kv_registry *registry;
    struct kv_view roll;
    uint64_t era, era_revision;
    /* The key of our name, when it is not ours. */
    char holder[KV_MEMBER_ADDRESS_CHARS];
    uint64_t holder_lease, holder_revision;
    bool strange; /* a member that etcd had before what we know, and that we do not */
};

/* One that cannot be read counts as none. */
static uint64_t era_of(const char *value)
{
    uint64_t era;
    return hw_parse_u64(value, 0, (UINT64_C(1) << (63 - KV_ERA_SHIFT)) - 1, &era) ? 0 : era;
}

static void read_pair(void *user, const struct kv_etcd_pair *pair)
{
    struct reading *e = user;
    struct kv_registry *r = e->registry;
    if (strcmp(pair->key, r->era_key) == 0) {
        e->era = era_of(pair->value);
        e->era_revision = pair->revision;
        return;
    }
    const char *name = name_of(r, pair->key);
    if (!name)
        return;
    roll_put(&e->roll, name, pair->value);
    uint32_t place = roll_place(&r->roll, name);
    bool same = place < r->roll.count && strcmp(r->roll.members[place].address, pair->value) == 0;
    if (pair->revision <= r->known && !same)
        e->strange = true;
    if (strcmp(name, r->name) != 0)
        return;
    snprintf(e->holder, sizeof(e->holder), "%.*s", KV_MEMBER_ADDRESS_CHARS - 1, pair->value);
    e->holder_lease = pair->lease;
    e->holder_revision = pair->revision;
}

/* A transaction that reads; what it read. */
static int transact(struct kv_registry *r, const char *json, struct reading *e,
                    struct kv_etcd_entered *answer)
{
    struct kv_post *post;
    size_t len;
    int rc = exchange(r, KV_ETCD_TXN, json, &post);
    if (rc)
        return rc;
    const char *body = kv_post_body(post, &len);
    rc = kv_etcd_enter_answer(body, len, read_pair, e, answer);
    kv_post_destroy(post);
    return rc ? broken(r, rc, KV_ETCD_TXN) : 0;
}

static struct kv_etcd_read all_keys(const struct kv_registry *r)
{
    return (struct kv_etcd_read){.prefix = r->prefix, .era = r->era_key, .limit = KV_MEMBERS_MAX};
}

/* etcd's data were lost or replaced by older ones: what it shows is before our epoch. */
static int went_back(struct kv_registry *r, uint64_t revision)
{
    r->registered = false;
    r->raise_to = (r->view.epoch >> KV_ERA_SHIFT) + 1;
    return fail(r, -ESTALE,
                "etcd is at revision %" PRIu64 ", before epoch %" PRIu64
                ": its data were lost or replaced",
                revision, r->view.epoch);
}

/* Puts an era that is above all that we were in; who is first serves all. */
static int raise_era(struct kv_registry *r)
{
    char json[KV_ETCD_REQUEST_MAX], value[24];
    struct kv_post *post;
    bool done = false;
    size_t len;
    snprintf(value, sizeof(value), "%" PRIu64, r->raise_to);
    kv_etcd_put_request(r->era_key, value, r->era_revision, json);
    int rc = exchange(r, KV_ETCD_TXN, json, &post);
    if (rc)
        return rc;
    const char *body = kv_post_body(post, &len);
    rc = kv_etcd_put_answer(body, len, &done);
    kv_post_destroy(post);
    if (rc)
        return broken(r, rc, KV_ETCD_TXN);
    if (done)
        hw_warn(HW_CAT_KV, "members: etcd begins anew; era %" PRIu64, r->raise_to);
    r->raise_to = 0;
    return 0;
}

/* ---- registering ---- */

/* The put did not happen.  -ESTALE: it may, next time, with another guard. */
static int not_entered(struct kv_registry *r, const struct reading *e)
{
    bool ours = e->holder_lease == r->lease;
    bool earlier_life = !r->was_member && strcmp(e->holder, r->address) == 0;
    bool nobody = e->holder_revision == 0;
    if (ours || earlier_life || nobody) {
        r->guard = e->holder_revision;
        return fail(r, -ESTALE, "the key of %s changed", r->name);
    }
    r->guard = 0;
    return fail(r, -EEXIST,
                "another daemon, at %.100s, is registered as \"%s\"; give each its own name",
                e->holder, r->name);
}

static int entered(struct kv_registry *r, const struct reading *e, uint64_t revision)
{
    r->guard = 0;
    if (!roll_has(&e->roll, r->name))
        return fail(r, -EUSERS, "the cluster has %d members already, which is the most",
                    KV_MEMBERS_MAX);
    r->era = e->era;
    r->era_revision = e->era_revision;
    if (epoch_of(r, revision) <= r->view.epoch)
        return went_back(r, revision);
    kv_view_copy(&r->roll, &e->roll);
    r->roll.epoch = epoch_of(r, revision);
    r->known = revision;
    r->registered = r->was_member = r->in_touch = true;
    hw_counter_bump(&r->stats->registrations, 1);
    drop_watch(r);
    publish(r);
    return 0;
}

static int enter(struct kv_registry *r)
{
    char json[KV_ETCD_REQUEST_MAX];
    struct kv_etcd_enter request = {.read = all_keys(r),
                                    .key = r->key,
                                    .value = r->address,
                                    .lease = r->lease,
                                    .guard = r->guard};
    struct reading e = {.registry = r};
    struct kv_etcd_entered answer;
    kv_etcd_enter_request(&request, json);
    int rc = transact(r, json, &e, &answer);
    if (rc) {
        if (rc == -EREMOTEIO) /* a lease that etcd does not know is one reason: ask about it */
            r->renew_at_ns = 0;
        return rc;
    }
    rc = answer.done ? entered(r, &e, answer.revision) : not_entered(r, &e);
    if (rc == -EUSERS)
        kv_registry_leave(r, exchange_deadline(r));
    return rc;
}

/* After a lost connection: is etcd still the one that we know?  Who came since then the watch
 * tells; a member that is gone or another, the watch might not tell if the data were replaced. */
static int check_touch(struct kv_registry *r)
{
    char json[KV_ETCD_REQUEST_MAX];
    struct kv_etcd_read request = all_keys(r);
    struct reading e = {.registry = r};
    struct kv_etcd_entered answer;
    kv_etcd_read_request(&request, json);
    int rc = transact(r, json, &e, &answer);
    if (rc)
        return rc;
    if (answer.revision < r->known)
        return went_back(r, answer.revision);
    for (uint32_t i = 0; i < r->roll.count; i++)
        e.strange = e.strange || !roll_has(&e.roll, r->roll.members[i].name);
    if (e.strange || (e.era_revision <= r->known && e.era != r->era)) {
        r->registered = false;
        return fail(r, -ESTALE, "members changed while etcd was out of reach");
    }
    r->in_touch = true;
    return 0;
}

/* ---- watching ---- */

struct hearing {
    struct kv_registry *registry;
    uint64_t known; /* before this line */
};

static void hear_pair(void *user, const struct kv_etcd_pair *pair)
{
    struct hearing *h = user;
    struct kv_registry *r = h->registry;
    if (pair->revision <= h->known)
        return;
    if (pair->revision > r->known)
        r->known = pair->revision;
    if (strcmp(pair->key, r->era_key) == 0) {
        r->era = pair->deleted ? 0 : era_of(pair->value);
        r->era_revision = pair->deleted ? 0 : pair->revision;
        return;
    }
    const char *name = name_of(r, pair->key);
    if (!name)
        return;
    if (pair->deleted)
        roll_remove(&r->roll, name);
    else
        roll_put(&r->roll, name, pair->value);
    if (strcmp(name, r->name) == 0 && (pair->deleted || pair->lease != r->lease))
        r->registered = false;
}

static int hear_line(struct kv_registry *r, const char *line, size_t len)
{
    struct hearing h = {.registry = r, .known = r->known};
    struct kv_etcd_news news;
    int rc = kv_etcd_watch_answer(line, len, hear_pair, &h, &news);
    if (rc) {
        if (r->known > h.known)
            r->registered = false; /* part of it was applied: read the keys again */
        return refused(r, KV_ETCD_WATCH, kv_post_status(r->watch), line, len);
    }
    if (news.revision && news.revision < h.known)
        return went_back(r, news.revision);
    if (r->known > h.known) {
        r->roll.epoch = epoch_of(r, r->known);
        if (r->roll.epoch <= r->view.epoch)
            return went_back(r, r->known);
        publish(r);
    }
    if (news.compacted) {
        r->registered = false;
        return fail(r, -ESTALE, "etcd has forgotten the changes after revision %" PRIu64, r->known);
    }
    if (!r->registered)
        return fail(r, -ESTALE, "the key of %s was removed or replaced", r->name);
    return news.ended ? fail(r, -EREMOTEIO, "etcd ended the watch") : 0;
}

/* Handles what has come of the watch. */
static int hear_lines(struct kv_registry *r)
{
    size_t len;
    unsigned status = kv_post_status(r->watch);
    if (status && status != 200) {
        const char *body = kv_post_body(r->watch, &len);
        return refused(r, KV_ETCD_WATCH, status, body, len);
    }
    const char *line;
    int rc = 0;
    while (rc == 0 && (line = kv_post_line(r->watch, &len)))
        rc = hear_line(r, line, len);
    return rc;
}

/* Reads and handles; -ETIMEDOUT: nothing came. */
static int hear_until(struct kv_registry *r, uint64_t deadline_ns)
{
    int rc = kv_post_read(r->watch, r->wake_fd, deadline_ns, r->why);
    if (rc == -ETIMEDOUT || rc == -ECANCELED)
        return rc;
    if (rc == -E2BIG) {
        r->registered = false; /* read the keys again instead */
        return fail(r, -ESTALE, "more changes at once than a line may hold");
    }
    if (rc && rc != -ESHUTDOWN)
        return rc;
    int heard = hear_lines(r);
    return heard || rc == 0 ? heard : fail(r, -EREMOTEIO, "etcd ended the watch");
}

static int hear(struct kv_registry *r)
{
    int rc = hear_until(r, r->renew_at_ns);
    return rc == -ETIMEDOUT ? 0 : rc; /* time to renew */
}

/* A watch that is not answered soon will never report anything. */
static int begin_watch(struct kv_registry *r)
{
    char json[KV_ETCD_REQUEST_MAX];
    kv_etcd_watch_request(r->folder, r->known + 1, json);
    int rc = open_post(r, KV_ETCD_WATCH, json, &r->watch);
    if (rc == 0)
        rc = hear_until(r, exchange_deadline(r));
    if (rc == 0 && r->troubled) {
        hw_info(HW_CAT_KV, "members: etcd at %s is followed again", r->endpoint);
        hw_counter_bump(&r->stats->reconnects, 1);
        r->troubled = false;
    }
    return rc;
}

/* ---- all together ---- */

static int step(struct kv_registry *r)
{
    if (r->etcd->user && !r->token[0] && !r->open_to_all)
        return log_in(r);
    if (!r->lease)
        return grant(r);
    if (hw_now_ns() >= r->renew_at_ns)
        return renew(r);
    if (r->raise_to)
        return raise_era(r);
    if (!r->registered)
        return enter(r);
    if (!r->in_touch)
        return check_touch(r);
    if (!r->watch)
        return begin_watch(r);
    return hear(r);
}

int kv_registry_run(struct kv_registry *r, const char *endpoint)
{
    int rc = 0;
    r->endpoint = endpoint;
    r->in_touch = false;
    if (r->troubled) { /* an etcd that lost its data would wait for what an old token names */
        r->token[0] = '\0';
        r->open_to_all = false;
    }
    while (rc == 0)
        rc = step(r);
    drop_watch(r);
    return rc;
}

void kv_registry_leave(struct kv_registry *r, uint64_t deadline_ns)
{
    char json[KV_ETCD_REQUEST_MAX];
    struct kv_post *post;
    if (!r->lease || !r->endpoint)
        return;
    kv_etcd_lease_request(r->lease, json);
    int rc = open_post(r, KV_ETCD_REVOKE, json, &post);
    if (rc == 0) {
        /* Not woken: wake_fd may be readable, that is why we leave. */
        rc = kv_post_read_all(post, -1, deadline_ns, r->why);
        kv_post_destroy(post);
    }
    if (rc)
        hw_info(HW_CAT_KV, "members: %s could not say goodbye; its registration lapses", r->name);
    lose_lease(r);
}
