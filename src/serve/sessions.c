#include "serve/sessions.h"

#include "base/clock.h"
#include "base/log.h"
#include "venus/common/stripe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const uint64_t leave_ns = HW_SEC; /* for a session to end before it is killed */

struct session {
    struct session *next;
    pid_t pid;
    unsigned connections; /* that it was given */
    char peer[RPC_PEER_NAME_CHARS];
    struct rpc_stats *stats; /* shared with the process, which writes them; NULL: none */
    struct hw_counter_set counters;
};

/* A connection that waits for its session. */
struct stripe {
    struct stripe *next;
    struct rpc_ep *ep;
    uint8_t key[VN_STRIPE_KEY_BYTES];
};

struct sessions {
    struct rpc_server *rpc;
    pid_t server; /* the process that forks */
    struct vns_session_options options;
    const struct sessions_ops *ops;
    void *user;
    struct session *first;
    struct stripe *stripes; /* in the order in which they called */
    int signals;            /* readable when a process has ended */
    sigset_t old_mask;      /* of the signals that a session shall have */
};

/* ---- figures that both processes see ---- */

static void share_stats(struct session *session, const char *transport)
{
    void *map = mmap(NULL, sizeof(struct rpc_stats), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return;
    session->stats = map;
    session->counters =
        (struct hw_counter_set){.defs = rpc_stats_defs, .values = map, .count = RPC_STATS_COUNT};
    (void)hw_counter_set_label(&session->counters, "transport", transport);
    (void)hw_counter_set_label(&session->counters, "side", "server");
    if (hw_counter_set_register(&session->counters))
        hw_debug(HW_CAT_VULKAN, "%s: not in the metrics: too many connections", session->peer);
}

static void unshare_stats(struct session *session)
{
    if (!session->stats)
        return;
    hw_counter_set_unregister(&session->counters);
    munmap(session->stats, sizeof(*session->stats));
}

/* ---- in the session's process ---- */

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Listeners, other clients and the metrics page are not this process's: an open copy would keep
 * their connections from ending. */
static void close_all_but(int *keep, int count)
{
    unsigned from = STDERR_FILENO + 1;
    qsort(keep, (size_t)count, sizeof(*keep), compare_ints);
    for (int i = 0; i < count; i++) {
        if ((unsigned)keep[i] > from)
            (void)close_range(from, (unsigned)keep[i] - 1, 0);
        if ((unsigned)keep[i] >= from)
            from = (unsigned)keep[i] + 1;
    }
    (void)close_range(from, ~0U, 0);
}

/* The first connection is the session's own, the others are its stripes. */
static void run_session(struct sessions *s, const struct session *session,
                        struct rpc_ep *const *connections, struct rpc_msg *open)
{
    struct vns_session_options options = s->options;
    int keep[RPC_TRANSPORT_FDS * (1 + VN_STRIPES_MAX)], count = 0;
    for (unsigned i = 0; i < session->connections; i++) {
        struct rpc_transport *t = rpc_ep_transport(connections[i]);
        count += t->ops->descriptors(t, keep + count);
        if (i > 0)
            options.stripes[options.stripe_count++] = t;
    }
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
    prctl(PR_SET_NAME, "hawser-session");
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a server that is killed takes its sessions along */
    if (getppid() != s->server)
        _exit(1);
    close_all_but(keep, count);
    options.stats = session->stats;
    _exit(vns_session_run(connections[0], open, &options));
}

/* ---- stripes ---- */

static struct rpc_ep *unlink_stripe(struct stripe **at)
{
    struct stripe *stripe = *at;
    struct rpc_ep *ep = stripe->ep;
    *at = stripe->next;
    free(stripe);
    return ep;
}

void sessions_closed(struct sessions *s, const struct rpc_ep *ep)
{
    for (struct stripe **at = &s->stripes; *at;) {
        if ((*at)->ep == ep)
            (void)unlink_stripe(at);
        else
            at = &(*at)->next;
    }
}

void sessions_stripe(struct sessions *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct rpc_send nothing = {.stream = msg->stream};
    struct stripe *stripe = malloc(sizeof(*stripe));
    int rc = stripe ? 0 : -ENOMEM;
    if (!rpc_ep_transport(ep)->ops->descriptors)
        rc = -EOPNOTSUPP;
    else if (msg->len != VN_STRIPE_KEY_BYTES)
        rc = -EPROTO;
    sessions_closed(s, ep); /* what it said before */
    if (rc == 0) {
        struct stripe **end = &s->stripes;
        while (*end)
            end = &(*end)->next;
        *stripe = (struct stripe){.ep = ep};
        memcpy(stripe->key, msg->data, sizeof(stripe->key));
        *end = stripe;
    } else {
        free(stripe);
    }
    (void)rpc_reply(ep, msg, rc, &nothing); /* an ended connection is the loop's to clear */
}

/* Those that wait for this session, of which some may be about to be cleared. */
static unsigned take_stripes(struct sessions *s, const struct rpc_msg *open,
                             struct rpc_ep *stripes[VN_STRIPES_MAX])
{
    uint8_t key[VN_STRIPE_KEY_BYTES];
    unsigned count = 0;
    if (vn_open_key(open->data, open->len, key))
        return 0;
    for (struct stripe **at = &s->stripes; *at && count < VN_STRIPES_MAX;) {
        if (memcmp((*at)->key, key, sizeof(key)) == 0 && rpc_ep_status((*at)->ep) == 0)
            stripes[count++] = unlink_stripe(at);
        else
            at = &(*at)->next;
    }
    return count;
}

/* ---- in the server's process ---- */

static void refuse(struct rpc_ep *ep, struct rpc_msg *open, int status, const char *text)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    struct rpc_send send = {.stream = open->stream, .iov = &iov, .iov_count = 1};
    hw_warn(HW_CAT_VULKAN, "%s: no session: %s", rpc_ep_peer(ep), text);
    (void)rpc_reply(ep, open, status, &send); /* an ended connection is the loop's to clear */
}

static void discard(struct session *session)
{
    unshare_stats(session);
    free(session);
}

void sessions_open(struct sessions *s, struct rpc_ep *ep, struct rpc_msg *open)
{
    const struct rpc_transport_ops *ops = rpc_ep_transport(ep)->ops;
    if (!ops->descriptors) {
        refuse(ep, open, -EOPNOTSUPP,
               "Vulkan needs a connection that another process can take over: host:port, unix: "
               "or shm:");
        return;
    }
    struct session *session = calloc(1, sizeof(*session));
    if (!session) {
        refuse(ep, open, -ENOMEM, "the server is out of memory");
        return;
    }
    struct rpc_ep *leaving[1 + VN_STRIPES_MAX] = {ep};
    sessions_closed(s, ep);
    session->connections = 1 + take_stripes(s, open, leaving + 1);
    for (unsigned i = 0; i < session->connections; i++)
        s->ops->leaves(s->user, leaving[i]);
    snprintf(session->peer, sizeof(session->peer), "%s", rpc_ep_peer(ep));
    share_stats(session, ops->name);
    session->pid = fork();
    if (session->pid == 0)
        run_session(s, session, leaving, open);
    if (session->pid < 0) {
        refuse(ep, open, -EAGAIN, "the server cannot start another process");
        discard(session);
        return;
    }
    session->next = s->first;
    s->first = session;
    for (unsigned i = 0; i < session->connections; i++)
        rpc_server_detach(s->rpc, leaving[i]);
}

static void say_end(const struct session *session, int status)
{
    if (WIFSIGNALED(status))
        hw_error(HW_CAT_VULKAN,
                 "client %s: its session died with signal %d (%s); others are not "
                 "affected",
                 session->peer, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        hw_info(HW_CAT_VULKAN, "client %s: its session ended", session->peer);
}

/* Clears away the sessions whose processes have ended. */
static void reap(struct sessions *s, bool quiet)
{
    int status;
    for (struct session **link = &s->first; *link;) {
        struct session *session = *link;
        if (waitpid(session->pid, &status, WNOHANG) != session->pid) {
            link = &session->next;
            continue;
        }
        *link = session->next;
        for (unsigned i = 0; i < session->connections; i++) {
            rpc_server_returned(s->rpc);
            s->ops->ended(s->user);
        }
        if (!quiet)
            say_end(session, status);
        discard(session);
    }
}

static void on_signals(void *user)
{
    struct sessions *s = user;
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        ;
    reap(s, false);
}

/* ---- life ---- */

int sessions_create(struct rpc_server *rpc, const struct vns_session_options *options,
                    const struct sessions_ops *ops, void *user, struct sessions **out)
{
    sigset_t children;
    struct sessions *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->rpc = rpc;
    s->server = getpid();
    s->options = *options;
    s->ops = ops;
    s->user = user;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, &s->old_mask);
    s->signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    int rc = s->signals < 0 ? -errno : rpc_server_watch(rpc, s->signals, on_signals, s);
    if (rc) {
        if (s->signals >= 0)
            close(s->signals);
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

static void signal_all(const struct sessions *s, int number)
{
    for (const struct session *session = s->first; session; session = session->next)
        kill(session->pid, number);
}

void sessions_destroy(struct sessions *s)
{
    struct timespec nap = {.tv_nsec = (long)(10 * HW_MS)};
    if (!s)
        return;
    signal_all(s, SIGTERM);
    for (uint64_t start = hw_now_ns(); s->first && hw_now_ns() - start < leave_ns;) {
        reap(s, true);
        if (s->first)
            nanosleep(&nap, NULL);
    }
    signal_all(s, SIGKILL);
    while (s->first) {
        reap(s, true);
        if (s->first)
            nanosleep(&nap, NULL);
    }
    while (s->stripes)
        (void)unlink_stripe(&s->stripes);
    close(s->signals);
    free(s);
}
