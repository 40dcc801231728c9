#include "serve/session/sessions.h"

#include "base/clock.h"
#include "base/log.h"
#include "command/interrupt.h"
#include "rpc/callers.h"
#include "serve/session/process.h"
#include "serve/session/relay.h"
#include "venus/common/protocol.h"
#include "venus/common/transfer/stripe.h"
#include "venus/server/slice/arbiter.h"
#include "wire/le.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const uint64_t leave_ns = HW_SEC; /* for a session to end before it is killed */
/* Between two resumptions of a session: each costs a process its turn, with TLS a fork. */
static const uint64_t resume_every_ns = 20 * HW_MS;

struct session {
    struct session *next;
    pid_t pid; /* 0: it has ended */
    /* Of its TLS connections: first of all of them, then of each that took the place of one that
     * was cut, its own or a stripe.  0: none, or it has ended. */
    pid_t relays[1 + VN_STRIPES_MAX];
    int status;           /* of the process */
    bool unwanted;        /* the server killed it, as nobody needs it */
    unsigned connections; /* that it was given */
    int control;          /* to its process, or -1: it cannot resume */
    bool opening;         /* its process has not said where its door is; control is in `doors` */
    struct rpc_ep *asker; /* who is to be told; NULL: nobody any more */
    struct rpc_msg *question;
    struct rpc_resume_key key;
    uint8_t stripe_key[VN_STRIPE_KEY_BYTES];
    uint64_t resumed_ns[1 + VN_STRIPES_MAX]; /* when each connection did so last */
    char peer[RPC_PEER_NAME_CHARS];
    size_t tenant; /* whose it is */
    int figures_fd;
    void *figures; /* shared with the process, which writes them; NULL: none */
    struct hw_counter_set counters;
};

/* A connection that waits for its session. */
struct stripe {
    struct stripe *next;
    struct rpc_ep *ep;
    uint8_t key[VN_STRIPE_KEY_BYTES];
};

/* A tenant's share of the GPUs' time. */
struct share {
    struct vns_slice_tenant slices;
    struct hw_counter_set counters;
};

static const struct hw_counter_def share_defs[] = {
    {"server_gpu_time", "time in which GPUs worked for Vulkan sessions, by tenant", "ns",
     HW_COUNTER},
};

struct sessions {
    struct rpc_server *rpc;
    pid_t server;
    struct rpc_config config; /* of the server's endpoints, without its pointers */
    struct vns_session_options options;
    struct vns_upload_share *uploads; /* NULL: no upload cache */
    struct vns_arbiter *arbiter;      /* NULL: no time slices */
    const struct tenants *tenants;
    struct share *shares; /* of the tenants, in their order */
    enum sandbox_mode sandbox;
    struct sandbox_user as; /* the user of sessions */
    char home[PATH_MAX + 8];
    char **environment; /* of sessions */
    uint64_t resume_window_ns;
    uint64_t session_count; /* ever: names of sessions */
    pid_t spare;            /* a process that waits for an order; 0: none */
    int spare_socket;       /* to it, or -1 */
    const struct sessions_ops *ops;
    void *user;
    struct session *first;
    struct stripe *stripes; /* in the order in which they called */
    int signals;            /* readable when a process has ended */
    int doors;              /* epoll: readable when a process has opened its door */
    sigset_t old_mask;      /* of the signals that a session shall have */
};

/* ---- figures that both processes see ---- */

static size_t figure_bytes(const struct session *session)
{
    return session->counters.count * sizeof(uint64_t);
}

/* The counters have their definitions, count and labels. */
static void share_figures(struct session *session)
{
    session->figures_fd = memfd_create("hawser-figures", MFD_CLOEXEC);
    if (session->figures_fd < 0 || ftruncate(session->figures_fd, (off_t)figure_bytes(session)))
        return;
    void *map = mmap(NULL, figure_bytes(session), PROT_READ | PROT_WRITE, MAP_SHARED,
                     session->figures_fd, 0);
    if (map == MAP_FAILED)
        return;
    session->figures = session->counters.values = map;
    if (hw_counter_set_register(&session->counters))
        hw_debug(HW_CAT_VULKAN, "%s: not in the metrics: too many connections", session->peer);
}

static_assert(sizeof(struct rpc_stats) == RPC_STATS_COUNT * sizeof(uint64_t), "they are counters");

static void share_stats(struct session *session, const char *transport)
{
    session->counters = (struct hw_counter_set){.defs = rpc_stats_defs, .count = RPC_STATS_COUNT};
    (void)hw_counter_set_label(&session->counters, "transport", transport);
    (void)hw_counter_set_label(&session->counters, "side", "server");
    share_figures(session);
}

static void unshare_figures(struct session *session)
{
    if (session->figures_fd >= 0)
        close(session->figures_fd);
    if (!session->figures)
        return;
    hw_counter_set_unregister(&session->counters);
    munmap(session->figures, figure_bytes(session));
}

/* ---- the relay's process ---- */

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

/* The relays of one session, with the far ends of their pairs, which the session gets. */
struct relays {
    struct relay_connection connections[1 + VN_STRIPES_MAX];
    unsigned count;
    int ends[1 + VN_STRIPES_MAX];
    uint64_t resume_ns; /* how long after a cut the session may get another one */
};

static void close_ends(struct relays *r)
{
    for (unsigned i = 0; i < r->count; i++) {
        close(r->connections[i].near);
        close(r->ends[i]);
    }
    r->count = 0;
}

static void run_relay(struct sessions *s, struct relays *r)
{
    int keep[(RPC_TRANSPORT_FDS + 1) * (1 + VN_STRIPES_MAX)], count = 0;
    for (unsigned i = 0; i < r->count; i++) {
        struct rpc_transport *t = r->connections[i].far;
        count += t->ops->descriptors(t, keep + count);
        keep[count++] = r->connections[i].near;
    }
    cmd_on_stop(SIG_DFL);
    sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
    prctl(PR_SET_NAME, "hawser-relay");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != s->server)
        _exit(1);
    close_all_but(keep, count);
    relay_run(r->connections, r->count, s->config.heartbeat_ns, r->resume_ns);
}

/* ---- the session's process ---- */

/* What a process of its own needs of a connection.  How many descriptors, or a negative errno. */
static int prepare(struct rpc_transport *t, struct relays *r, struct rpc_transport_state *state,
                   int fds[RPC_TRANSPORT_FDS])
{
    int ends[2];
    int count = rpc_transport_hand_over(t, state, fds);
    if (count != -EOPNOTSUPP || !t->ops->descriptors) /* a relay needs them */
        return count;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return -errno;
    r->connections[r->count] = (struct relay_connection){.far = t, .near = ends[0]};
    fds[0] = r->ends[r->count++] = ends[1];
    return 1;
}

struct transfer {
    struct session_order order;
    struct relays relays;
    int uploads; /* the session's socket to the upload cache; -1: none */
    int slices;  /* the one for time slices; likewise */
    int fds[SESSION_FDS_MAX];
    int fd_count;
};

/* Of so many sessions of a server no two live at a time. */
static uint32_t slice_id(const struct session *session)
{
    return (uint32_t)(session->key.session % (VNS_SLICE_NOBODY - 1)) + 1;
}

static int invite_to_slices(struct sessions *s, const struct session *session)
{
    return vns_arbiter_invite(s->arbiter, slice_id(session), &s->shares[session->tenant].slices);
}

static uint64_t max_memory(const struct sessions *s, const struct session *session)
{
    uint64_t own = s->tenants->list[session->tenant].max_memory_bytes;
    return own ? own : s->options.max_memory_bytes;
}

static void fill(struct sessions *s, const struct session *session, struct transfer *p)
{
    struct session_order *order = &p->order;
    order->config = s->config;
    order->options = s->options;
    order->options.max_memory_bytes = max_memory(s, session);
    order->key = session->key;
    order->resume_window_ns = s->resume_window_ns;
    order->user = s->as;
    order->sandbox = s->sandbox;
    memcpy(order->own.transport.peer, session->peer, sizeof(session->peer));
    p->fds[p->fd_count++] = session->figures_fd;
    p->slices = s->arbiter ? invite_to_slices(s, session) : -1;
    if (p->slices >= 0) { /* else it submits whenever it wants */
        order->slice_id = slice_id(session);
        p->fds[p->fd_count++] = vns_arbiter_board(s->arbiter);
        p->fds[p->fd_count++] = p->slices;
    }
    p->uploads = s->uploads ? vns_upload_share_invite(s->uploads) : -1;
    order->has_uploads = p->uploads >= 0; /* else it does without */
    if (order->has_uploads) {
        order->uploads_limit = vns_upload_share_limit(s->uploads);
        p->fds[p->fd_count++] = p->uploads;
    }
}

static int fill_connections(struct sessions *s, const struct session *session,
                            struct rpc_ep *const *leaving, const struct rpc_msg *open,
                            struct transfer *p)
{
    struct session_order *order = &p->order;
    order->connections = session->connections;
    int rc = rpc_ep_hand_over(leaving[0], open, &order->own);
    for (unsigned i = 0; i < session->connections && rc >= 0; i++) {
        struct rpc_transport_state *state = i ? &order->stripes[i - 1] : &order->own.transport;
        rc = prepare(rpc_ep_transport(leaving[i]), &p->relays, state, p->fds + p->fd_count);
        order->fd_counts[i] = rc;
        p->fd_count += rc > 0 ? rc : 0;
    }
    order->config.resumes = s->resume_window_ns > 0 && order->own.peer_resumes;
    p->relays.resume_ns = order->config.resumes ? s->resume_window_ns : 0;
    return rc < 0 ? rc : 0;
}

/* Of a connection that is cut, or that nobody took over. */
static void end_relay(pid_t *relay)
{
    if (*relay > 0) {
        kill(*relay, SIGKILL);
        waitpid(*relay, NULL, 0);
    }
    *relay = 0;
}

static int start_relay(struct sessions *s, pid_t *relay, struct relays *r)
{
    if (r->count == 0)
        return 0;
    pid_t pid = fork();
    if (pid == 0)
        run_relay(s, r);
    *relay = pid > 0 ? pid : 0;
    return pid < 0 ? -EAGAIN : 0;
}

/* The process that was started ahead, or a new one, gets the order. */
static int start_process(struct sessions *s, struct session *session, const struct transfer *p)
{
    for (int tries = 0; tries < 2; tries++) {
        if (s->spare_socket < 0)
            s->spare_socket = session_process_start(s->environment, &s->old_mask, &s->spare);
        if (s->spare_socket < 0)
            return s->spare_socket;
        session->pid = s->spare;
        int rc = session_process_give(s->spare_socket, &p->order, p->fds, p->fd_count);
        if (rc == 0 && (p->order.config.resumes || p->order.door[0]))
            session->control = s->spare_socket;
        else
            close(s->spare_socket);
        s->spare_socket = -1;
        s->spare = 0;
        if (rc == 0)
            return 0;
        waitpid(session->pid, NULL, 0); /* it ended before its time: its socket is closed */
    }
    return -EAGAIN;
}

/* `leaving`: the connections, with `open` on the first.  NULL: it opens a door at `host`. */
static int hand_over(struct sessions *s, struct session *session, struct rpc_ep *const *leaving,
                     const struct rpc_msg *open, const char *host)
{
    struct transfer *p = session->figures_fd < 0 ? NULL : calloc(1, sizeof(*p));
    int rc = 0;
    if (!p)
        return -ENOMEM;
    p->uploads = p->slices = -1;
    fill(s, session, p);
    if (leaving) {
        rc = fill_connections(s, session, leaving, open, p);
    } else {
        snprintf(p->order.door, sizeof(p->order.door), "%s", host);
    }
    if (rc == 0)
        rc = start_relay(s, &session->relays[0], &p->relays);
    if (rc == 0)
        rc = start_process(s, session, p);
    if (rc)
        end_relay(&session->relays[0]);
    if (p->uploads >= 0)
        close(p->uploads);
    if (p->slices >= 0)
        close(p->slices);
    close_ends(&p->relays);
    free(p);
    return rc;
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
    for (struct session *session = s->first; session; session = session->next) {
        if (session->asker == ep) { /* nobody will come to its door: it ends by itself */
            rpc_release(session->asker, session->question);
            session->asker = NULL;
        }
    }
    for (struct stripe **at = &s->stripes; *at;) {
        if ((*at)->ep == ep)
            (void)unlink_stripe(at);
        else
            at = &(*at)->next;
    }
}

static void new_stripe(struct sessions *s, struct rpc_ep *ep, struct rpc_msg *msg)
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
        rpc_ep_mute(ep); /* its client reads no frame behind the answer */
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

static void answer_error(struct rpc_ep *ep, struct rpc_msg *msg, int status, const char *text)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    struct rpc_send send = {.stream = msg->stream, .iov = &iov, .iov_count = 1};
    (void)rpc_reply(ep, msg, status, &send); /* an ended connection is the loop's to clear */
}

static void refuse(struct rpc_ep *ep, struct rpc_msg *open, int status, const char *text)
{
    hw_warn(HW_CAT_VULKAN, "%s: no session: %s", rpc_ep_peer(ep), text);
    answer_error(ep, open, status, text);
}

static void discard(struct session *session)
{
    unshare_figures(session);
    if (session->control >= 0)
        close(session->control);
    free(session);
}

void sessions_open(struct sessions *s, struct rpc_ep *ep, struct rpc_msg *open)
{
    const struct rpc_transport_ops *ops = rpc_ep_transport(ep)->ops;
    if (!ops->descriptors) {
        refuse(
            ep, open, -EOPNOTSUPP,
            "its connection cannot be handed over, and it asked for no door: use the same release "
            "of hawser at both ends, or host:port");
        return;
    }
    struct session *session = calloc(1, sizeof(*session));
    if (!session) {
        refuse(ep, open, -ENOMEM, "the server is out of memory");
        return;
    }
    struct rpc_ep *leaving[1 + VN_STRIPES_MAX] = {ep};
    session->control = -1;
    (void)vn_open_key(open->data, open->len, session->stripe_key);
    if (rpc_resume_key_make(++s->session_count, &session->key)) {
        refuse(ep, open, -EIO, "the server has no random numbers");
        discard(session);
        return;
    }
    sessions_closed(s, ep);
    session->connections = 1 + take_stripes(s, open, leaving + 1);
    for (unsigned i = 0; i < session->connections; i++)
        s->ops->leaves(s->user, leaving[i]);
    snprintf(session->peer, sizeof(session->peer), "%s", rpc_ep_peer(ep));
    session->tenant = rpc_ep_tenant(ep);
    share_stats(session, ops->name);
    int rc = hand_over(s, session, leaving, open, NULL);
    if (rc) {
        refuse(ep, open, rc == -EAGAIN || rc == -ENOMEM ? rc : -EPROTO,
               rc == -EAGAIN || rc == -ENOMEM ? "the server cannot start another process"
                                              : "OPEN must be small, and nothing beside it");
        discard(session);
        return;
    }
    session->next = s->first;
    s->first = session;
    for (unsigned i = 0; i < session->connections; i++)
        rpc_server_detach(s->rpc, leaving[i]);
    /* The next client does not wait for the program to be loaded. */
    s->spare_socket = session_process_start(s->environment, &s->old_mask, &s->spare);
}

/* ---- models ---- */

static int start_model(struct sessions *s, struct session *session,
                       const struct session_model *model, int socket)
{
    struct transfer *p = session->figures_fd < 0 ? NULL : calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    struct session_order *order = &p->order;
    order->is_model = true;
    order->model = *model;
    order->model.memory_bytes = max_memory(s, session);
    /* A slot of another process, or of a served model, names no sequence of this one. */
    order->model.options.first_id = session->key.session << 32;
    order->user = s->as;
    order->sandbox = s->sandbox;
    memcpy(order->own.transport.peer, session->peer, sizeof(session->peer));
    p->fds[p->fd_count++] = session->figures_fd;
    p->fds[p->fd_count++] = socket;
    int rc = start_process(s, session, p);
    free(p);
    return rc;
}

int sessions_model(struct sessions *s, const struct rpc_ep *ep, const struct session_model *model,
                   uint64_t *number)
{
    int ends[2];
    struct session *session = calloc(1, sizeof(*session));
    if (!session)
        return -ENOMEM;
    session->control = -1;
    session->key.session = ++s->session_count;
    snprintf(session->peer, sizeof(session->peer), "%s", rpc_ep_peer(ep));
    session->tenant = rpc_ep_tenant(ep);
    session->counters = (struct hw_counter_set){.defs = llm_worker_count_defs, .count = LLM_COUNTS};
    share_figures(session);
    int rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) ? -errno : 0;
    if (rc == 0) {
        rc = start_model(s, session, model, ends[1]);
        close(ends[1]);
        if (rc)
            close(ends[0]);
    }
    if (rc) {
        hw_warn(HW_CAT_VULKAN, "%s: no process for its model: %s", session->peer, strerror(-rc));
        discard(session);
        return rc;
    }
    session->next = s->first;
    s->first = session;
    s->spare_socket = session_process_start(s->environment, &s->old_mask, &s->spare);
    *number = session->key.session;
    return ends[0];
}

void sessions_model_end(struct sessions *s, uint64_t number, bool broken)
{
    struct session *session = s->first;
    while (session && session->key.session != number)
        session = session->next;
    if (!session || !session->pid) /* it was reaped: another process may have its id by now */
        return;
    session->unwanted = !broken;
    kill(session->pid, SIGKILL);
}

/* ---- doors ---- */

/* Ends the question; `port` may be a negative errno. */
static void answer_door(struct sessions *s, struct session *session, int port)
{
    uint8_t answer[2 + sizeof(session->key.secret)];
    struct iovec iov = {answer, sizeof(answer)};
    struct rpc_send send = {.iov = &iov, .iov_count = 1};
    struct rpc_ep *ep = session->asker;
    struct rpc_msg *question = session->question;
    (void)epoll_ctl(s->doors, EPOLL_CTL_DEL, session->control, NULL);
    close(session->control);
    session->control = -1;
    session->opening = false;
    session->asker = NULL;
    if (!ep)
        return;
    wire_store16(answer, (uint16_t)port);
    memcpy(answer + 2, session->key.secret, sizeof(session->key.secret));
    send.stream = question->stream;
    if (port > 0)
        (void)rpc_reply(ep, question, 0, &send); /* an ended connection is the loop's to clear */
    else
        answer_error(ep, question, -EIO, "its session cannot listen; the server's log says why");
    rpc_release(ep, question);
    (void)rpc_flush(ep);
}

static void on_doors(void *user)
{
    struct sessions *s = user;
    struct epoll_event event;
    while (epoll_wait(s->doors, &event, 1, 0) == 1) {
        struct session *session = event.data.ptr;
        answer_door(s, session, session_process_door(session->control));
    }
}

/* 0, or a negative errno: nothing has begun then. */
static int begin_with_door(struct sessions *s, struct session *session, const char *host)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = session};
    int rc = rpc_resume_key_make(++s->session_count, &session->key);
    if (rc == 0)
        rc = hand_over(s, session, NULL, NULL, host);
    if (rc == 0 && epoll_ctl(s->doors, EPOLL_CTL_ADD, session->control, &event)) {
        rc = -errno;
        kill(session->pid, SIGKILL);
        waitpid(session->pid, NULL, 0);
    }
    session->opening = rc == 0;
    return rc;
}

void sessions_door(struct sessions *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    const struct rpc_transport *t = rpc_ep_transport(ep);
    struct session *session = NULL;
    int rc = t->reached[0] ? rpc_server_reserve(s->rpc) : -EOPNOTSUPP;
    if (rc == 0) {
        session = calloc(1, sizeof(*session));
        rc = session ? 0 : -ENOMEM;
    }
    if (rc == 0) {
        session->control = -1;
        session->connections = 1;
        snprintf(session->peer, sizeof(session->peer), "%s", rpc_ep_peer(ep));
        session->tenant = rpc_ep_tenant(ep);
        share_stats(session, t->ops->name);
        rc = begin_with_door(s, session, t->reached);
    }
    if (rc) {
        if (session)
            discard(session);
        if (rc != -EOPNOTSUPP && rc != -EUSERS)
            rpc_server_returned(s->rpc);
        refuse(ep, msg, rc,
               rc == -EOPNOTSUPP ? "this connection is handed over; it needs no door"
                                 : strerror(-rc));
        rpc_release(ep, msg);
        return;
    }
    session->asker = ep;
    session->question = msg;
    session->next = s->first;
    s->first = session;
    s->ops->began(s->user);
}

/* ---- resuming ---- */

static struct session *find_session(struct sessions *s, const struct rpc_resume_key *key)
{
    struct session *session = s->first;
    while (session && session->key.session != key->session)
        session = session->next;
    bool same = session && session->pid && session->control >= 0 &&
                rpc_resume_key_equal(&session->key, key);
    return same ? session : NULL;
}

static bool is_too_soon(const struct session *session, unsigned which)
{
    return hw_now_ns() - session->resumed_ns[which] < resume_every_ns;
}

/* Its connection goes to the process of its session, in the place of number `which`. */
static int pass_on(struct sessions *s, struct session *session, struct rpc_ep *ep, unsigned which,
                   struct session_resumption *order)
{
    struct relays relays = {.resume_ns = s->resume_window_ns};
    int fds[RPC_TRANSPORT_FDS];
    int count = prepare(rpc_ep_transport(ep), &relays, &order->transport, fds);
    if (count < 0)
        return count;
    session->resumed_ns[which] = hw_now_ns();
    end_relay(&session->relays[which]);
    int rc = start_relay(s, &session->relays[which], &relays);
    if (rc == 0)
        rc = session_process_resume(session->control, order, fds, count);
    if (rc)
        end_relay(&session->relays[which]);
    close_ends(&relays);
    return rc == -EPIPE || rc == -ECONNRESET ? -ENOENT : rc;
}

/* It takes the place of one that is away. */
static void leave_for_good(struct sessions *s, struct rpc_ep *ep)
{
    s->ops->leaves(s->user, ep);
    rpc_server_returned(s->rpc);
    s->ops->ended(s->user);
    rpc_server_detach(s->rpc, ep);
}

static int resume(struct sessions *s, struct rpc_ep *ep, const struct rpc_msg *msg,
                  const struct rpc_resume_request *request)
{
    struct session *session = find_session(s, &request->key);
    struct session_resumption order = {.stripe = -1, .received = request->received};
    if (!session)
        return -ENOENT;
    if (is_too_soon(session, 0))
        return -EBUSY;
    int rc = rpc_ep_hand_over_resume(ep, msg, &order.call);
    return rc ? rc : pass_on(s, session, ep, 0, &order);
}

void sessions_resume(struct sessions *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    static const char gone[] = "the server has no such session: it has ended, or the server was "
                               "started again";
    struct rpc_resume_request request;
    int rc = rpc_resume_get_request(msg->data, msg->len, &request);
    if (rc == 0)
        rc = resume(s, ep, msg, &request);
    if (rc == 0) {
        leave_for_good(s, ep);
        return;
    }
    const char *text = rc == -ENOENT ? gone : strerror(-rc);
    rpc_callers_warn(rpc_ep_peer(ep), "not resumed: %s", text);
    answer_error(ep, msg, rc, text);
}

/* The session of a stripe that was cut, or NULL. */
static struct session *find_striped(struct sessions *s, const struct rpc_msg *msg, uint32_t *number)
{
    struct session *session = s->first;
    while (session && CRYPTO_memcmp(session->stripe_key, msg->data, VN_STRIPE_KEY_BYTES))
        session = session->next;
    *number = wire_load32(msg->data + VN_STRIPE_KEY_BYTES);
    bool there =
        session && session->pid && session->control >= 0 && *number < session->connections - 1;
    return there ? session : NULL;
}

/* Its client is answered first: behind that nothing is a message. */
static void stripe_again(struct sessions *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct rpc_send nothing = {.stream = msg->stream};
    uint32_t number;
    struct session *session = find_striped(s, msg, &number);
    bool is_connection = rpc_ep_transport(ep)->ops->descriptors != NULL;
    if (!session || !is_connection || is_too_soon(session, 1 + number)) {
        int error = !session ? -ENOENT : !is_connection ? -EOPNOTSUPP : -EBUSY;
        answer_error(ep, msg, error, strerror(-error));
        return;
    }
    struct session_resumption order = {.stripe = (int)number};
    int rc = rpc_reply(ep, msg, 0, &nothing);
    if (rc == 0)
        rc = rpc_flush(ep);
    if (rc == 0)
        rc = pass_on(s, session, ep, 1 + number, &order);
    struct rpc_transport *t = rpc_ep_transport(ep);
    if (rc == 0)
        leave_for_good(s, ep);
    else /* without a word: the client no longer reads messages */
        (void)shutdown(t->ops->poll_fd(t), SHUT_RDWR);
}

bool sessions_is_stripe_again(const struct rpc_msg *msg)
{
    return msg->kind == RPC_CALL && msg->method == VN_METHOD_STRIPE &&
           msg->len == VN_STRIPE_AGAIN_BYTES;
}

void sessions_stripe(struct sessions *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    if (sessions_is_stripe_again(msg))
        stripe_again(s, ep, msg);
    else
        new_stripe(s, ep, msg);
}

static void say_end(const struct session *session, int status)
{
    if (WIFSIGNALED(status) && !(session->unwanted && WTERMSIG(status) == SIGKILL))
        hw_error(HW_CAT_VULKAN,
                 "client %s: its session died with signal %d (%s); others are not "
                 "affected",
                 session->peer, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        hw_info(HW_CAT_VULKAN, "client %s: its session ended", session->peer);
}

/* Whether some are left. */
static bool reap_relays(struct session *session)
{
    bool left = false;
    for (size_t i = 0; i < ARRAY_LEN(session->relays); i++) {
        pid_t *relay = &session->relays[i];
        if (*relay && waitpid(*relay, NULL, WNOHANG) == *relay)
            *relay = 0;
        left = left || *relay;
    }
    return left;
}

/* Clears away the sessions whose processes have ended. */
static void reap(struct sessions *s, bool quiet)
{
    int status;
    for (struct session **link = &s->first; *link;) {
        struct session *session = *link;
        if (session->pid && waitpid(session->pid, &status, WNOHANG) == session->pid) {
            session->pid = 0;
            session->status = status;
        }
        if (reap_relays(session) || session->pid) {
            link = &session->next;
            continue;
        }
        *link = session->next;
        if (session->opening)
            answer_door(s, session, -EIO);
        for (unsigned i = 0; i < session->connections; i++) {
            rpc_server_returned(s->rpc);
            s->ops->ended(s->user);
        }
        if (!quiet)
            say_end(session, session->status);
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

static bool begins_with(const char *text, const char *const *beginnings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strncmp(text, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    }
    return false;
}

/* What the server was told for itself is not the sessions', nor are its user's folders another's.
 * home: "HOME=...", or NULL where the user is the server's. */
static char **environment_of_sessions(char *home)
{
    static const char *const ours[] = {"VENUS_TOKEN", "VENUS_TLS_", "NOTIFY_SOCKET="};
    static const char *const own[] = {"HOME=", "XDG_", "USER=", "LOGNAME="};
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **out = calloc(count + 2, sizeof(*out));
    for (size_t i = 0; out && i < count; i++) {
        if (!begins_with(environ[i], ours, ARRAY_LEN(ours)) &&
            !(home && begins_with(environ[i], own, ARRAY_LEN(own))))
            out[kept++] = environ[i];
    }
    if (out && home)
        out[kept] = home;
    return out;
}

/* Where nothing is measured, 0 would be no figure. */
static void share_gpus(struct sessions *s)
{
    for (size_t i = 0; s->arbiter && i < s->tenants->count; i++) {
        struct share *share = &s->shares[i];
        share->slices.weight = s->tenants->list[i].weight;
        share->counters = (struct hw_counter_set){
            .defs = share_defs, .values = &share->slices.used_ns, .count = ARRAY_LEN(share_defs)};
        if (hw_counter_set_label(&share->counters, "tenant", s->tenants->list[i].name) ||
            hw_counter_set_register(&share->counters))
            hw_debug(HW_CAT_VULKAN, "tenant %s: not in the metrics", s->tenants->list[i].name);
    }
}

void sessions_usage(const struct sessions *s, size_t tenant, struct server_usage *out)
{
    *out = (struct server_usage){.measured = s->arbiter};
    for (size_t i = 0; i < s->tenants->count; i++) {
        if (tenant && i != tenant)
            continue;
        uint32_t at = out->count++;
        strcpy(out->tenants[at].name, s->tenants->list[i].name);
        out->tenants[at].gpu_ns =
            atomic_load_explicit(&s->shares[i].slices.used_ns, memory_order_relaxed);
        for (const struct session *session = s->first; session; session = session->next)
            out->tenants[at].sessions += session->tenant == i;
    }
}

int sessions_create(struct rpc_server *rpc, const struct vns_session_options *options,
                    struct vns_upload_share *uploads, uint64_t resume_window_ns, uint64_t slice_ns,
                    const struct tenants *tenants, enum sandbox_mode sandbox,
                    const struct sandbox_user *as, const char *home, const struct sessions_ops *ops,
                    void *user, struct sessions **out)
{
    sigset_t children;
    struct sessions *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->rpc = rpc;
    s->server = getpid();
    s->config = *rpc_server_config(rpc);
    s->config.security = NULL;
    s->config.name = NULL;
    s->options = *options;
    s->uploads = uploads;
    s->resume_window_ns = resume_window_ns;
    s->spare_socket = -1;
    s->sandbox = sandbox;
    s->as = *as;
    snprintf(s->home, sizeof(s->home), "HOME=%s", home);
    s->environment = environment_of_sessions(as->given ? s->home : NULL);
    s->tenants = tenants;
    s->shares = calloc(tenants->count, sizeof(*s->shares));
    if (!s->environment || !s->shares) {
        free(s->shares);
        free(s->environment);
        free(s);
        return -ENOMEM;
    }
    s->ops = ops;
    s->user = user;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, &s->old_mask);
    s->signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    int rc = s->signals < 0 ? -errno : rpc_server_watch(rpc, s->signals, on_signals, s);
    s->doors = epoll_create1(EPOLL_CLOEXEC);
    if (rc == 0)
        rc = s->doors < 0 ? -errno : rpc_server_watch(rpc, s->doors, on_doors, s);
    if (rc) {
        if (s->signals >= 0)
            close(s->signals);
        if (s->doors >= 0)
            close(s->doors);
        free(s->shares);
        free(s->environment);
        free(s);
        return rc;
    }
    rc = slice_ns ? vns_arbiter_create(slice_ns, &s->arbiter) : 0;
    if (rc)
        hw_warn(HW_CAT_VULKAN, "GPUs are not shared by time slices: %s", strerror(-rc));
    share_gpus(s);
    *out = s;
    return 0;
}

static void signal_one(const struct session *session, int number)
{
    if (session->pid)
        kill(session->pid, number);
    for (size_t i = 0; i < ARRAY_LEN(session->relays); i++) {
        if (session->relays[i])
            kill(session->relays[i], number);
    }
}

static void signal_all(const struct sessions *s, int number)
{
    for (const struct session *session = s->first; session; session = session->next)
        signal_one(session, number);
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
    if (s->spare_socket >= 0) {
        close(s->spare_socket); /* which ends it */
        waitpid(s->spare, NULL, 0);
    }
    for (size_t i = 0; s->arbiter && i < s->tenants->count; i++)
        hw_counter_set_unregister(&s->shares[i].counters);
    vns_arbiter_destroy(s->arbiter);
    free(s->shares);
    close(s->signals);
    close(s->doors);
    free(s->environment);
    free(s);
}
