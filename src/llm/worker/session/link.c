#include "llm/worker/session/link.h"

#include "base/clock.h"
#include "base/log.h"
#include "llm/model/why.h"
#include "rpc/transport/sock.h"
#include "wire/le.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static const uint64_t begin_usual_ns = 60 * HW_SEC;

enum { LINKS_A_TURN = 64 };

/* A request on its way there and back. */
struct relayed {
    struct relayed *next; /* that waits, too */
    struct llm_link *link;
    struct rpc_msg *msg;         /* of the client */
    struct llm_blob weights, kv; /* that go along; counted until the answer is here */
    const struct llm_kept *kept; /* or these weights, which the link uses until it ends */
};

struct llm_link {
    struct llm_worker *worker;
    struct llm_client *client;
    struct rpc_ep *ep;
    uint64_t process; /* its number */
    bool is_chosen; /* its model is the client's choice; else it only computes stateless forwards */
    unsigned events;              /* that are watched for; 0: not even its end */
    struct relayed *first, **end; /* that wait for the handshake, or for room */
    struct llm_kept *kept[LLM_WORKER_MODELS_MAX];
    uint32_t kept_count;
};

bool llm_link_carries(uint32_t method)
{
    switch (method) {
    case LLM_METHOD_PREFILL_HANDLE:
    case LLM_METHOD_DECODE_HANDLE:
    case LLM_METHOD_PREFILL_SEMANTIC:
    case LLM_METHOD_DECODE_SEMANTIC:
    case LLM_METHOD_RELEASE:
    case LLM_METHOD_EVICT_KV:
    case LLM_METHOD_FETCH_KV:
    case LLM_METHOD_SET_RECOVERY:
    case LLM_METHOD_RESUME:
        return true;
    default:
        return false;
    }
}

/* ---- answers ---- */

static const char gone[] = "the process that computed this client's own model has ended, and the "
                           "server's log says how: send the model again";

/* With what of the figures only this process knows. */
static void answer_figures(struct llm_client *c, struct rpc_msg *msg, const struct rpc_msg *reply)
{
    uint8_t bytes[2 * 2 * 8 * LLM_CLASSES + 8 * LLM_METRICS];
    if (reply->len > sizeof bytes) {
        llm_answer_error(c, msg, -EPROTO, "figures of another length");
        return;
    }
    memcpy(bytes, reply->data, reply->len);
    if (msg->method == LLM_METHOD_METRICS && reply->len == 8 * LLM_METRICS) {
        uint8_t *at = bytes + 8 * LLM_METRIC_SERDES_NS;
        wire_store64(at,
                     wire_load64(at) + atomic_load_explicit(&c->serdes_ns, memory_order_relaxed));
    } else if (msg->method == LLM_METHOD_NETWORK_COUNTERS &&
               reply->len >= sizeof(uint64_t) * 2 * LLM_CLASSES) {
        llm_byte_account_mark(&c->account, rpc_ep_stats(c->ep), LLM_CONTROL, LLM_CONTROL);
        for (int i = 0; i < LLM_CLASSES; i++) {
            wire_store64(bytes + 16 * i, c->account.received[i]);
            wire_store64(bytes + 16 * i + 8, c->account.sent[i]);
        }
    }
    llm_answer(c, msg, 0, bytes, reply->len);
}

static void relayed_free(struct relayed *r)
{
    r->link->client->relayed_count--;
    llm_blob_free(r->link->worker, &r->weights);
    llm_blob_free(r->link->worker, &r->kv);
    free(r);
}

/* Takes what is relayed: there will be no answer. */
static void fail(struct relayed *r, int status, const char *text)
{
    struct llm_client *c = r->link->client;
    if (c->is_closing) {
        rpc_release(c->ep, r->msg);
    } else {
        llm_answer_error(c, r->msg, status, text);
        (void)rpc_flush(c->ep); /* the server's next turn sends the rest */
    }
    relayed_free(r);
}

/* The same: with the answer of the process, which may be an error. */
static void finish(struct relayed *r, int status, const struct rpc_msg *reply)
{
    struct llm_client *c = r->link->client;
    bool has_figures =
        r->msg->method == LLM_METHOD_METRICS || r->msg->method == LLM_METHOD_NETWORK_COUNTERS;
    if (status || !has_figures)
        llm_answer(c, r->msg, status, reply->data, reply->len);
    else
        answer_figures(c, r->msg, reply);
    (void)rpc_flush(c->ep);
    relayed_free(r);
}

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    if (reply)
        finish(user, status, reply);
    else
        fail(user, -EIO, gone);
}

/* ---- requests ---- */

/* An upload whose bytes are in a descriptor; a piece without any is none, so there is one. */
static int post_file(struct rpc_ep *ep, uint8_t stream, enum llm_upload kind,
                     const struct llm_blob *blob)
{
    static const uint8_t one;
    struct llm_request request = {.method = LLM_METHOD_UPLOAD,
                                  .upload = kind,
                                  .total = blob->bytes,
                                  .bytes = &one,
                                  .length = 1};
    uint8_t bytes[64];
    struct wire_enc e;
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    llm_request_encode(&request, &e);
    struct iovec iov = {.iov_base = bytes, .iov_len = wire_enc_len(&e)};
    struct rpc_send send = {.method = request.method,
                            .stream = stream,
                            .iov = &iov,
                            .iov_count = 1,
                            .fds = &blob->fd,
                            .fd_count = 1};
    return rpc_post(ep, &send);
}

/* 0; -EAGAIN, -ENOBUFS: later; or what ended the link. */
static int send_one(struct rpc_ep *ep, struct relayed *r)
{
    const struct llm_blob *weights = r->kept ? &r->kept->blob : &r->weights;
    int rc = rpc_ep_status(ep) == -EINPROGRESS ? -EAGAIN : 0;
    if (rc == 0 && weights->is_made)
        rc = post_file(ep, r->msg->stream, LLM_UPLOAD_WEIGHTS, weights);
    if (rc == 0 && r->kv.is_made)
        rc = post_file(ep, r->msg->stream, LLM_UPLOAD_KV, &r->kv);
    if (rc)
        return rc;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)r->msg->data, .iov_len = r->msg->len};
    struct rpc_send send = {.method = r->msg->method,
                            .stream = r->msg->stream,
                            .iov = &iov,
                            .iov_count = r->msg->len ? 1 : 0,
                            .timeout_ns = HW_NEVER};
    return rpc_call(ep, &send, on_answer, r, NULL);
}

/* 0 or a negative errno. */
static int watch(struct llm_link *link, unsigned events)
{
    struct epoll_event event = {.events = events, .data.ptr = link};
    struct rpc_transport *t = rpc_ep_transport(link->ep);
    int op = !events ? EPOLL_CTL_DEL : link->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (events == link->events)
        return 0;
    if (epoll_ctl(link->worker->links, op, t->ops->poll_fd(t), &event))
        return -errno;
    link->events = events;
    return 0;
}

/* While its client reads none of the answers that it has, the next ones stay with the process,
 * which gets no credit for more. */
static bool rests(const struct llm_link *link)
{
    return rpc_answers_wait(link->client->ep);
}

/* The link may be fine: a request may be larger than it takes. */
static void fail_to_send(const struct llm_link *link, struct relayed *r, int rc)
{
    char why[LLM_WHY_CHARS];
    int status = rpc_ep_status(link->ep);
    if (status && status != -EINPROGRESS) {
        fail(r, -EIO, gone);
        return;
    }
    llm_why_set(why, "the process of this client's own model cannot be given this request: %s",
                strerror(-rc));
    fail(r, rc, why);
}

/* In order: one that finds no room keeps those behind it waiting. */
static void send_waiting(struct llm_link *link)
{
    while (link->first) {
        struct relayed *r = link->first;
        int rc = send_one(link->ep, r);
        if (rc == -EAGAIN || rc == -ENOBUFS)
            break;
        link->first = r->next;
        if (!link->first)
            link->end = &link->first;
        if (rc)
            fail_to_send(link, r, rc);
    }
    (void)rpc_flush(link->ep); /* a failure is the endpoint's status */
    unsigned events = EPOLLIN | (rpc_send_blocked(link->ep) ? EPOLLOUT : 0);
    (void)watch(link, rests(link) ? 0 : events); /* the next sweep tries again */
}

/* ---- life ---- */

static int connect_process(struct llm_link *link)
{
    const struct llm_worker_outside *outside = link->worker->options.outside;
    struct rpc_config config = {.heartbeat_ns = HW_NEVER,
                                .handshake_ns =
                                    outside->begin_ns ? outside->begin_ns : begin_usual_ns,
                                .owner_tells = true};
    struct rpc_transport *transport;
    int fd = outside->start(outside->user, link->client->ep, &link->process);
    if (fd < 0)
        return fd;
    int rc = rpc_sock_wrap(fd, "unix", true, rpc_ep_peer(link->client->ep), &transport);
    if (rc == 0)
        rc = rpc_ep_create(transport, &config, &link->ep);
    if (rc)
        outside->stop(outside->user, link->process, false);
    return rc;
}

/* The kernel alone forgets a socket only once nobody has it open, and a session that is just being
 * forked has all that the server has. */
static void disconnect(struct llm_link *link)
{
    const struct llm_worker_outside *outside = link->worker->options.outside;
    int status = rpc_ep_status(link->ep);
    bool broken = status && status != -EINPROGRESS;
    if (broken && status != -ECONNRESET) /* else its end is logged */
        hw_warn(HW_CAT_LLM, "%s: the process of its model: %s", rpc_ep_peer(link->ep),
                rpc_ep_reason(link->ep));
    (void)watch(link, 0);
    rpc_ep_destroy(link->ep); /* calls end here */
    outside->stop(outside->user, link->process, broken);
}

static int open_link(struct llm_worker *w, struct llm_client *c)
{
    struct llm_link *link = calloc(1, sizeof *link);
    if (!link)
        return -ENOMEM;
    link->worker = w;
    link->client = c;
    link->end = &link->first;
    int rc = connect_process(link);
    if (rc) {
        free(link);
        return rc;
    }
    rc = watch(link, EPOLLIN);
    if (rc) {
        disconnect(link);
        free(link);
        return rc;
    }
    c->link = link;
    return 0;
}

void llm_link_close(struct llm_worker *w, struct llm_client *c)
{
    struct llm_link *link = c->link;
    if (!link)
        return;
    c->link = NULL;
    disconnect(link);
    while (link->first) {
        struct relayed *r = link->first;
        link->first = r->next;
        fail(r, -EIO, gone);
    }
    for (uint32_t i = 0; i < link->kept_count; i++)
        llm_kept_drop(w, link->kept[i]);
    free(link);
}

static void serve(struct llm_link *link)
{
    if (rests(link)) {
        (void)watch(link, 0);
        return;
    }
    (void)rpc_poll(link->ep); /* a failure is the endpoint's status */
    for (struct rpc_msg *msg; (msg = rpc_recv(link->ep)) != NULL;)
        rpc_release(link->ep, msg); /* nothing is asked of a server */
    int rc = rpc_ep_status(link->ep);
    if (rc == 0 || rc == -EINPROGRESS)
        send_waiting(link);
    else
        llm_link_close(link->worker, link->client);
}

/* Each at most once a turn, so that one that never stops to talk keeps nobody waiting. */
void llm_worker_links(void *worker)
{
    struct llm_worker *w = worker;
    struct epoll_event events[LINKS_A_TURN];
    int count = epoll_wait(w->links, events, LINKS_A_TURN, 0);
    for (int i = 0; i < count; i++)
        serve(events[i].data.ptr); /* which closes no other */
}

void llm_worker_swept(struct llm_worker *w)
{
    uint64_t now = hw_now_ns();
    for (struct llm_client *c = w->clients; c; c = c->next) {
        if (c->link && (!c->link->events || rpc_next_tick(c->link->ep) <= now))
            serve(c->link);
    }
}

int llm_worker_links_fd(const struct llm_worker *w)
{
    return w->links;
}

/* ---- forwarding ---- */

static void forward(struct llm_link *link, struct rpc_msg *msg, struct relayed *r)
{
    r->link = link;
    r->msg = msg;
    link->client->relayed_count++;
    *link->end = r;
    link->end = &r->next;
    send_waiting(link);
}

/* NULL: the request was answered with an error. */
static struct relayed *begin(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg,
                             bool brings)
{
    char why[LLM_WHY_CHARS];
    int rc = c->link ? 0 : brings ? open_link(w, c) : -EOWNERDEAD;
    struct relayed *r = rc ? NULL : calloc(1, sizeof *r);
    if (r)
        return r;
    if (rc != -EOWNERDEAD)
        llm_why_set(why, "no process for this client's own model: %s", strerror(rc ? -rc : ENOMEM));
    llm_answer_error(c, msg,
                     rc == -EOWNERDEAD ? -EIO
                     : rc              ? rc
                                       : -ENOMEM,
                     rc == -EOWNERDEAD ? gone : why);
    return NULL;
}

void llm_link_forward(struct llm_worker *w, struct llm_client *c, struct rpc_msg *msg,
                      struct llm_blob *weights, struct llm_blob *kv)
{
    struct relayed *r = begin(w, c, msg, weights != NULL);
    if (!r)
        return;
    if (weights) {
        r->weights = *weights;
        r->kv = *kv;
        *weights = *kv = (struct llm_blob){0};
    }
    forward(c->link, msg, r);
}

/* The link uses them until it ends: its process may have them mapped for so long. */
static bool use_kept(struct llm_link *link, struct llm_kept *kept)
{
    for (uint32_t i = 0; i < link->kept_count; i++) {
        if (link->kept[i] == kept) {
            llm_kept_drop(link->worker, kept);
            return true;
        }
    }
    if (link->kept_count == ARRAY_LEN(link->kept))
        return false;
    link->kept[link->kept_count++] = kept;
    return true;
}

void llm_link_forward_job(struct llm_worker *w, struct llm_job *job)
{
    struct llm_client *c = job->client;
    struct rpc_msg *msg = job->msg;
    struct llm_kept *kept = job->load.kept;
    job->msg = NULL;
    struct relayed *r = begin(w, c, msg, kept != NULL);
    if (!r)
        return;
    if (kept && !use_kept(c->link, kept)) {
        free(r);
        llm_answer_error(c, msg, -ENOSPC, "this client has sent as many models as it may");
        return;
    }
    r->kept = kept;
    c->link->is_chosen = true;
    job->load.kept = NULL;
    forward(c->link, msg, r);
}

bool llm_link_is_direct(const struct llm_worker *w, const struct llm_client *c, uint32_t method)
{
    if (method == LLM_METHOD_DOWNLOAD_KV) /* it is there, or has ended with the process */
        return w->options.outside != NULL;
    if (!c->link)
        return false;
    if (method == LLM_METHOD_METRICS || method == LLM_METHOD_NETWORK_COUNTERS)
        return true;
    return c->link->is_chosen && c->job_count == c->text_count && llm_link_carries(method);
}
