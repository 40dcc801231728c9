#include "kv/cluster/registry.h"

#include "base/log.h"
#include "kv/cluster/http_post.h"

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

void kv_registry_init(struct kv_registry *r, const struct kv_members_options *o,
                      struct kv_members_stats *stats, int wake_fd)
{
    *r = (struct kv_registry){.ttl_ns = o->ttl_ns,
                              .wake_fd = wake_fd,
                              .changed = o->changed,
                              .user = o->user,
                              .stats = stats};
    snprintf(r->name, sizeof(r->name), "%s", o->name);
    snprintf(r->address, sizeof(r->address), "%s", o->address);
    snprintf(r->prefix, sizeof(r->prefix), "/hawser/%.*s/members/", KV_CLUSTER_NAME_CHARS - 1,
             o->cluster);
    int len = snprintf(r->key, sizeof(r->key), "%.*s%s", KV_ETCD_KEY_MAX - KV_MEMBER_NAME_CHARS,
                       r->prefix, r->name);
    assert(len > 0 && (size_t)len < sizeof(r->key));
    (void)len;
}

static void drop_watch(struct kv_registry *r)
{
    kv_post_destroy(r->watch);
    r->watch = NULL;
}

void kv_registry_fini(struct kv_registry *r)
{
    drop_watch(r);
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
                     uint64_t deadline_ns, struct kv_post **out)
{
    struct kv_post_request request = {.to = r->endpoint,
                                      .path = path,
                                      .json = json,
                                      .wake_fd = r->wake_fd,
                                      .deadline_ns = deadline_ns};
    return kv_post_open(&request, out, r->why);
}

/* An answer with an error status: its reason. */
static int refused(struct kv_registry *r, const char *path, unsigned status, const char *body,
                   size_t len)
{
    char words[RPC_WHY_CHARS];
    kv_etcd_error_answer(body, len, words);
    return fail(r, -EREMOTEIO, "etcd at %.80s:%u answers %s with %u%s%.100s", r->endpoint->host,
                r->endpoint->port, path, status, words[0] ? ": " : "", words);
}

static int broken(struct kv_registry *r, int rc, const char *path)
{
    return fail(r, rc, "etcd at %.80s:%u does not answer %s: %s", r->endpoint->host,
                r->endpoint->port, path, strerror(-rc));
}

/* Sends a request and waits for the whole answer.  On 0 the post is the caller's, and its status
 * 200. */
static int exchange(struct kv_registry *r, const char *path, const char *json, struct kv_post **out)
{
    struct kv_post *post;
    size_t len;
    uint64_t deadline = exchange_deadline(r);
    int rc = open_post(r, path, json, deadline, &post);
    if (rc)
        return rc;
    rc = kv_post_read_all(post, deadline);
    const char *body = kv_post_body(post, &len);
    if (rc)
        (void)broken(r, rc, path);
    else if (kv_post_status(post) != 200)
        rc = refused(r, path, kv_post_status(post), body, len);
    if (rc)
        kv_post_destroy(post);
    else
        *out = post;
    return rc;
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

static struct kv_member *roll_find(struct kv_view *roll, const char *name)
{
    for (uint32_t i = 0; i < roll->count; i++)
        if (strcmp(roll->members[i].name, name) == 0)
            return &roll->members[i];
    return NULL;
}

static void roll_remove(struct kv_view *roll, const char *name)
{
    struct kv_member *m = roll_find(roll, name);
    if (m)
        *m = roll->members[--roll->count];
}

/* An entry that cannot be a member is logged and left out. */
static void roll_put(struct kv_view *roll, const char *name, const char *address)
{
    char why[RPC_WHY_CHARS];
    struct kv_view alone;
    struct kv_member_info info = {.name = name, .address = address};
    if (kv_view_make(roll->epoch, &info, 1, &alone, why)) {
        hw_warn(HW_CAT_KV, "members: %.64s is left out: %s", name, why);
        roll_remove(roll, name);
        return;
    }
    struct kv_member *m = roll_find(roll, name);
    if (!m && roll->count == KV_MEMBERS_MAX) {
        hw_warn(HW_CAT_KV, "members: %.64s is left out: there are %d already", name,
                KV_MEMBERS_MAX);
        return;
    }
    if (!m)
        m = &roll->members[roll->count++];
    *m = alone.members[0];
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

static void publish(struct kv_registry *r)
{
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
    r->view = view;
    atomic_store_explicit(&r->stats->epoch, view.epoch, memory_order_relaxed);
    r->changed(r->user, &view);
}

/* ---- registering ---- */

struct entering {
    struct kv_registry *registry;
    struct kv_view roll;
    /* The key of our name, when it is not ours. */
    char holder[KV_MEMBER_ADDRESS_CHARS];
    uint64_t holder_lease, holder_revision;
};

static void enter_pair(void *user, const struct kv_etcd_pair *pair)
{
    struct entering *e = user;
    const char *name = name_of(e->registry, pair->key);
    if (!name)
        return;
    roll_put(&e->roll, name, pair->value);
    if (strcmp(name, e->registry->name) != 0)
        return;
    snprintf(e->holder, sizeof(e->holder), "%.*s", KV_MEMBER_ADDRESS_CHARS - 1, pair->value);
    e->holder_lease = pair->lease;
    e->holder_revision = pair->revision;
}

/* The put did not happen.  -ESTALE: it may, next time, with another guard. */
static int not_entered(struct kv_registry *r, const struct entering *e)
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

/* etcd's data were replaced by older data: its revision is below our epoch, and epochs must grow.
 * Putting our key again and again would pass the epoch in the end; restarting is quicker. */
static int went_back(struct kv_registry *r, uint64_t revision)
{
    r->registered = false;
    return fail(r, -EREMOTEIO,
                "etcd is at revision %" PRIu64 ", before the epoch %" PRIu64
                ": were its data replaced?  Restart the cluster's daemons",
                revision, r->roll.epoch);
}

static int entered(struct kv_registry *r, const struct entering *e, uint64_t revision)
{
    r->guard = 0;
    if (revision <= r->roll.epoch)
        return went_back(r, revision);
    r->roll = e->roll;
    r->roll.epoch = revision;
    if (!roll_find(&r->roll, r->name))
        return fail(r, -EUSERS, "the cluster has %d members already, which is the most",
                    KV_MEMBERS_MAX);
    r->registered = r->was_member = true;
    hw_counter_bump(&r->stats->registrations, 1);
    drop_watch(r);
    publish(r);
    return 0;
}

static int enter(struct kv_registry *r)
{
    char json[KV_ETCD_REQUEST_MAX];
    struct kv_etcd_enter request = {.prefix = r->prefix,
                                    .key = r->key,
                                    .value = r->address,
                                    .lease = r->lease,
                                    .guard = r->guard,
                                    .limit = KV_MEMBERS_MAX};
    struct entering e = {.registry = r};
    struct kv_etcd_entered answer;
    struct kv_post *post;
    size_t len;
    kv_etcd_enter_request(&request, json);
    int rc = exchange(r, KV_ETCD_TXN, json, &post);
    if (rc) {
        if (rc == -EREMOTEIO) /* a lease that etcd does not know is one reason: ask for another */
            lose_lease(r);
        return rc;
    }
    const char *body = kv_post_body(post, &len);
    rc = kv_etcd_enter_answer(body, len, enter_pair, &e, &answer);
    kv_post_destroy(post);
    if (rc)
        return broken(r, rc, KV_ETCD_TXN);
    rc = answer.done ? entered(r, &e, answer.revision) : not_entered(r, &e);
    if (rc == -EUSERS)
        kv_registry_leave(r, exchange_deadline(r));
    return rc;
}

/* ---- watching ---- */

struct hearing {
    struct kv_registry *registry;
    uint64_t known; /* changes up to this revision are in the list */
};

static void hear_pair(void *user, const struct kv_etcd_pair *pair)
{
    struct hearing *h = user;
    struct kv_registry *r = h->registry;
    if (pair->revision <= h->known)
        return;
    if (pair->revision > r->roll.epoch)
        r->roll.epoch = pair->revision;
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
    struct hearing h = {.registry = r, .known = r->roll.epoch};
    struct kv_etcd_news news;
    int rc = kv_etcd_watch_answer(line, len, hear_pair, &h, &news);
    if (rc) {
        if (r->roll.epoch > h.known)
            r->registered = false; /* part of it was applied: read the keys again */
        return refused(r, KV_ETCD_WATCH, kv_post_status(r->watch), line, len);
    }
    if (news.revision && news.revision < h.known)
        return went_back(r, news.revision);
    if (r->roll.epoch > h.known)
        publish(r);
    if (news.compacted) {
        r->registered = false;
        return fail(r, -ESTALE, "etcd has forgotten the changes after epoch %" PRIu64,
                    r->roll.epoch);
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
    int rc = kv_post_read(r->watch, deadline_ns);
    if (rc == -ETIMEDOUT || rc == -ECANCELED)
        return rc;
    if (rc == -E2BIG) {
        r->registered = false; /* read the keys again instead */
        return fail(r, -ESTALE, "more changes at once than a line may hold");
    }
    if (rc && rc != -ESHUTDOWN)
        return broken(r, rc, KV_ETCD_WATCH);
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
    uint64_t deadline = exchange_deadline(r);
    kv_etcd_watch_request(r->prefix, r->roll.epoch + 1, json);
    int rc = open_post(r, KV_ETCD_WATCH, json, deadline, &r->watch);
    if (rc)
        return rc;
    rc = hear_until(r, deadline);
    if (rc == -ETIMEDOUT)
        return broken(r, rc, KV_ETCD_WATCH);
    if (rc == 0 && r->troubled) {
        hw_info(HW_CAT_KV, "members: etcd at %s:%u is followed again", r->endpoint->host,
                r->endpoint->port);
        hw_counter_bump(&r->stats->reconnects, 1);
        r->troubled = false;
    }
    return rc;
}

/* ---- all together ---- */

static int step(struct kv_registry *r)
{
    if (!r->lease)
        return grant(r);
    if (hw_now_ns() >= r->renew_at_ns)
        return renew(r);
    if (!r->registered)
        return enter(r);
    if (!r->watch)
        return begin_watch(r);
    return hear(r);
}

int kv_registry_run(struct kv_registry *r, const struct rpc_addr *endpoint)
{
    int rc = 0;
    r->endpoint = endpoint;
    while (rc == 0)
        rc = step(r);
    drop_watch(r);
    return rc;
}

void kv_registry_leave(struct kv_registry *r, uint64_t deadline_ns)
{
    char json[KV_ETCD_REQUEST_MAX], why[RPC_WHY_CHARS];
    struct kv_post_request request = {.to = r->endpoint,
                                      .path = KV_ETCD_REVOKE,
                                      .json = json,
                                      .wake_fd = -1, /* it may be readable: that is why we leave */
                                      .deadline_ns = deadline_ns};
    struct kv_post *post;
    if (!r->lease || !r->endpoint)
        return;
    kv_etcd_lease_request(r->lease, json);
    int rc = kv_post_open(&request, &post, why);
    if (rc == 0) {
        rc = kv_post_read_all(post, deadline_ns);
        kv_post_destroy(post);
    }
    if (rc)
        hw_info(HW_CAT_KV, "members: %s could not say goodbye; its registration lapses", r->name);
    lose_lease(r);
}
