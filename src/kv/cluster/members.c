#include "kv/cluster/members.h"

#include "base/attr.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/wait.h"
#include "kv/cluster/registry.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

enum { ETCD_PORT = 2379, BACK_OFF_STEPS = 6 };

static const uint64_t back_off_ns = 50 * HW_MS;       /* doubled after all endpoints have failed, */
static const uint64_t back_off_most_ns = 2 * HW_SEC;  /* up to this */
static const uint64_t refused_pause_ns = 500 * HW_MS; /* until a name is asked for again */
static const uint64_t lapse_slack_ns = HW_SEC; /* etcd looks for lapsed leases twice a second */

static const struct hw_counter_def stats_defs[] = {
#define X(field, name, kind, help) {name, help, "", kind},
    KV_MEMBERS_STATS_LIST(X)
#undef X
};

struct kv_members {
    const struct kv_etcd_access *etcd;
    kv_members_fn *changed;
    void *user;
    int wake_fd; /* readable from kv_members_stop on */
    pthread_t thread;

    pthread_mutex_t lock; /* guards the next three */
    pthread_cond_t decision;
    bool decided; /* the first attempt has ended: outcome is set */
    int outcome;
    char problem[RPC_WHY_CHARS]; /* of the last run that failed */

    /* The thread's own. */
    struct kv_registry registry;
    struct hw_rng rng;
    uint32_t at, failures;   /* endpoint; failed runs since a watch answered */
    uint64_t taken_since_ns; /* since when another daemon has our name; 0: it has not */
    bool complained;         /* logged that we are out */

    struct kv_members_stats stats;
    struct hw_counter_set counters;
};
_Static_assert(ARRAY_LEN(stats_defs) == sizeof(struct kv_members_stats) / sizeof(uint64_t),
               "a definition a counter");

/* ---- texts of the user ---- */

static int no_endpoint(const char *url, char why[RPC_WHY_CHARS])
{
    snprintf(why, RPC_WHY_CHARS, "\"%.80s\" is no endpoint; use http://host:%d or https://host:%d",
             url, ETCD_PORT, ETCD_PORT);
    return -EINVAL;
}

int kv_members_endpoint(struct kv_etcd_access *etcd, const char *url, char why[RPC_WHY_CHARS])
{
    static const char *const schemes[] = {"http://", "https://"};
    char host[RPC_ADDR_HOST_CHARS + 16], text[RPC_ADDR_HOST_CHARS + 16];
    struct rpc_addr addr;
    if (etcd->url_count == KV_ENDPOINTS_MAX) {
        snprintf(why, RPC_WHY_CHARS, "at most %d endpoints", KV_ENDPOINTS_MAX);
        return -E2BIG;
    }
    bool tls = strncasecmp(url, schemes[1], strlen(schemes[1])) == 0;
    const size_t scheme_len = strlen(schemes[tls]);
    size_t len = strlen(url);
    if (len > scheme_len && url[len - 1] == '/')
        len--;
    if (strncasecmp(url, schemes[tls], scheme_len) != 0 || len == scheme_len ||
        len - scheme_len >= sizeof(host))
        return no_endpoint(url, why);
    snprintf(host, sizeof(host), "%.*s", (int)(len - scheme_len), url + scheme_len);
    if (host[strcspn(host, "@/?#% ")] || rpc_addr_parse(host, &addr, why) ||
        addr.scheme != RPC_SCHEME_TCP || !addr.host[0])
        return no_endpoint(url, why);
    const char *after = strrchr(host, ']');
    if (!strchr(after ? after : host, ':'))
        addr.port = ETCD_PORT; /* not that of our own servers */
    rpc_addr_format(&addr, text, sizeof(text));
    snprintf(etcd->urls[etcd->url_count++], KV_POST_URL_CHARS, "%s%s", schemes[tls], text);
    return 0;
}

int kv_members_check_name(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strlen(name);
    bool fits = len > 0 && len < KV_MEMBER_NAME_CHARS && len < KV_CLUSTER_NAME_CHARS;
    return fits && strspn(name, allowed) == len ? 0 : -EINVAL;
}

static void canonical(const struct kv_member *m, char out[KV_MEMBER_ADDRESS_CHARS])
{
    char why[RPC_WHY_CHARS];
    struct rpc_addr addr;
    if (rpc_addr_parse(m->address, &addr, why) == 0)
        rpc_addr_format(&addr, out, KV_MEMBER_ADDRESS_CHARS);
}

/* Of a list, which is short: with etcd a member may have come back under another name. */
static int check_addresses(const struct kv_view *v, char why[RPC_WHY_CHARS])
{
    char one[KV_MEMBER_ADDRESS_CHARS] = "", other[KV_MEMBER_ADDRESS_CHARS] = "";
    for (uint32_t i = 1; i < v->count; i++) {
        canonical(&v->members[i], one);
        for (uint32_t k = 0; k < i; k++) {
            canonical(&v->members[k], other);
            if (strcmp(one, other) == 0) {
                snprintf(why, RPC_WHY_CHARS, "%s and %s have one address, %.100s",
                         v->members[k].name, v->members[i].name, one);
                return -EEXIST;
            }
        }
    }
    return 0;
}

int kv_members_list(char *const *items, size_t count, struct kv_view *out, char why[RPC_WHY_CHARS])
{
    struct kv_member_info infos[KV_MEMBERS_MAX];
    char names[KV_MEMBERS_MAX][KV_MEMBER_NAME_CHARS];
    for (size_t i = 0; i < count && i < KV_MEMBERS_MAX; i++) {
        const char *equals = strchr(items[i], '=');
        size_t len = equals ? (size_t)(equals - items[i]) : 0;
        snprintf(names[i], sizeof(names[i]), "%.*s", (int)len, items[i]);
        if (len >= KV_MEMBER_NAME_CHARS || kv_members_check_name(names[i])) {
            snprintf(why, RPC_WHY_CHARS,
                     "\"%.80s\" is no member; use NAME=ADDRESS with a name of up to %d of "
                     "A-Z a-z 0-9 . _ -",
                     items[i], KV_MEMBER_NAME_CHARS - 1);
            return -EINVAL;
        }
        infos[i] = (struct kv_member_info){.name = names[i], .address = equals + 1};
    }
    int rc = kv_view_make(1, infos, (uint32_t)count, out, why);
    return rc ? rc : check_addresses(out, why);
}

/* ---- the thread ---- */

static void decide(struct kv_members *m, int outcome, const char *why)
{
    pthread_mutex_lock(&m->lock);
    if (!m->decided) {
        m->decided = true;
        m->outcome = outcome;
        snprintf(m->problem, sizeof(m->problem), "%s", why);
        pthread_cond_broadcast(&m->decision);
    }
    pthread_mutex_unlock(&m->lock);
}

static void on_view(void *user, const struct kv_view *view)
{
    struct kv_members *m = user;
    m->changed(m->user, view);
    m->complained = false;
    decide(m, 0, "");
}

/* Another daemon has our name, or the cluster is full.  True: that may end soon, try again. */
static bool refused(struct kv_members *m, int rc)
{
    struct kv_registry *r = &m->registry;
    uint64_t now = hw_now_ns();
    if (r->was_member) {
        if (!m->complained)
            hw_error(HW_CAT_KV, "members: %s; this daemon is no member until then", r->why);
        m->complained = true;
        return true;
    }
    if (rc == -EUSERS)
        return false;
    if (!m->taken_since_ns) {
        m->taken_since_ns = now;
        hw_warn(HW_CAT_KV, "members: %s; waiting for that registration to lapse", r->why);
    }
    return now - m->taken_since_ns < r->lease_ttl_ns + lapse_slack_ns;
}

/* Logs a problem once, until etcd answers again. */
static void endpoint_failed(struct kv_members *m)
{
    struct kv_registry *r = &m->registry;
    pthread_mutex_lock(&m->lock);
    snprintf(m->problem, sizeof(m->problem), "%s", r->why);
    pthread_mutex_unlock(&m->lock);
    if (!r->troubled) {
        m->failures = 0;
        hw_warn(HW_CAT_KV, "members: %s; %s", r->why,
                r->was_member ? "the last view stays in force" : "trying again");
    } else {
        hw_debug(HW_CAT_KV, "members: %s", r->why);
    }
    r->troubled = true;
    m->failures++;
    m->at = (m->at + 1) % m->etcd->url_count;
}

/* 0.5 to 1.5 times the pause, so that not all daemons come back at the same moment. */
static uint64_t back_off(struct kv_members *m)
{
    uint32_t rounds = m->failures / m->etcd->url_count;
    uint64_t pause = back_off_ns << (rounds < BACK_OFF_STEPS ? rounds : BACK_OFF_STEPS);
    pause = pause < back_off_most_ns ? pause : back_off_most_ns;
    return pause / 2 + hw_rng_below(&m->rng, pause);
}

/* After a run that ended with rc: whether, and after which pause, there is another. */
static bool again(struct kv_members *m, int rc, uint64_t *pause_out)
{
    switch (rc) {
    case -ECANCELED:
        return false;
    case -ESTALE:
        hw_info(HW_CAT_KV, "members: %s; registering again", m->registry.why);
        m->failures = 0; /* etcd has answered */
        *pause_out = back_off(m);
        return true;
    case -EEXIST:
    case -EUSERS:
        *pause_out = refused_pause_ns;
        return refused(m, rc);
    default:
        endpoint_failed(m);
        *pause_out = back_off(m);
        return true;
    }
}

static void *members_main(void *user)
{
    struct kv_members *m = user;
    uint64_t pause = 0;
    int rc;
    do
        rc = kv_registry_run(&m->registry, m->etcd->urls[m->at]);
    while (again(m, rc, &pause) && kv_post_pause(m->wake_fd, hw_now_ns() + pause) != -ECANCELED);
    decide(m, rc == -EEXIST || rc == -EUSERS ? rc : -ECANCELED, m->registry.why);
    if (!m->registry.troubled)
        kv_registry_leave(&m->registry, hw_now_ns() + KV_MEMBERS_BYE_NS);
    return NULL;
}

/* ---- coming and going ---- */

static int check(const struct kv_members_options *o, char why[RPC_WHY_CHARS])
{
    struct rpc_addr addr;
    if (kv_members_check_name(o->cluster) || kv_members_check_name(o->name)) {
        snprintf(why, RPC_WHY_CHARS,
                 "cluster \"%.70s\", member \"%.70s\": a name has up to %d of A-Z a-z 0-9 . _ -",
                 o->cluster, o->name, KV_MEMBER_NAME_CHARS - 1);
        return -EINVAL;
    }
    int rc = rpc_addr_parse(o->address, &addr, why);
    if (rc)
        return rc;
    bool path = addr.scheme == RPC_SCHEME_UNIX || addr.scheme == RPC_SCHEME_SHM;
    if (strlen(o->address) >= KV_MEMBER_ADDRESS_CHARS || (!path && (!addr.host[0] || !addr.port))) {
        snprintf(why, RPC_WHY_CHARS,
                 "\"%.80s\" is not where others reach this daemon: name a host and a port",
                 o->address);
        return -EINVAL;
    }
    if (o->etcd->url_count < 1 || o->etcd->url_count > KV_ENDPOINTS_MAX ||
        o->ttl_ns < KV_MEMBER_TTL_MIN || o->ttl_ns > KV_MEMBER_TTL_MAX) {
        snprintf(why, RPC_WHY_CHARS, "1 to %d endpoints, and a lease of 2 s to an hour",
                 KV_ENDPOINTS_MAX);
        return -EINVAL;
    }
    return 0;
}

static void members_free(struct kv_members *m)
{
    hw_counter_set_unregister(&m->counters);
    kv_registry_fini(&m->registry);
    if (m->wake_fd >= 0)
        close(m->wake_fd);
    pthread_cond_destroy(&m->decision);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static int launch(struct kv_members *m)
{
    uint64_t seed = 0;
    m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->wake_fd < 0)
        return -errno;
    m->registry.wake_fd = m->wake_fd;
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        return -EIO;
    hw_rng_seed(&m->rng, seed);
    m->counters = (struct hw_counter_set){.defs = stats_defs,
                                          .values = (_Atomic uint64_t *)&m->stats,
                                          .count = ARRAY_LEN(stats_defs)};
    int rc = hw_counter_set_register(&m->counters);
    return rc ? rc : -pthread_create(&m->thread, NULL, members_main, m);
}

int kv_members_start(const struct kv_members_options *o, struct kv_members **out,
                     char why[RPC_WHY_CHARS])
{
    int rc = check(o, why);
    if (rc)
        return rc;
    struct kv_members *m = calloc(1, sizeof(*m));
    if (!m) {
        snprintf(why, RPC_WHY_CHARS, "out of memory");
        return -ENOMEM;
    }
    m->etcd = o->etcd;
    m->wake_fd = -1;
    m->changed = o->changed;
    m->user = o->user;
    struct kv_members_options inner = *o;
    inner.changed = on_view;
    inner.user = m;
    pthread_cond_init(&m->decision, NULL);
    pthread_mutex_init(&m->lock, NULL);
    rc = kv_registry_init(&m->registry, &inner, &m->stats, -1, why);
    if (rc == 0) {
        rc = launch(m);
        if (rc)
            snprintf(why, RPC_WHY_CHARS, "cannot follow the members: %s", strerror(-rc));
    }
    if (rc) {
        members_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

int kv_members_wait(struct kv_members *m, uint64_t timeout_ns, char why[RPC_WHY_CHARS])
{
    uint64_t until = hw_after(timeout_ns);
    pthread_mutex_lock(&m->lock);
    while (!m->decided && hw_cond_wait(&m->decision, &m->lock, until))
        ;
    int rc = m->decided ? m->outcome : -ETIMEDOUT;
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "%s",
                 m->problem[0] ? m->problem : "etcd has not answered yet");
    pthread_mutex_unlock(&m->lock);
    return rc;
}

void kv_members_stop(struct kv_members *m)
{
    (void)eventfd_write(m->wake_fd, 1); /* a full one is readable anyway */
}

void kv_members_destroy(struct kv_members *m)
{
    if (!m)
        return;
    kv_members_stop(m);
    pthread_join(m->thread, NULL);
    members_free(m);
}
