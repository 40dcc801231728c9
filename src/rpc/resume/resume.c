#include "rpc/resume/resume.h"

#include "base/log.h"
#include "base/units.h"
#include "rpc/endpoint/ep.h"
#include "rpc/resume/kept.h"
#include "rpc/resume/rope.h"
#include "wire/dec.h"
#include "wire/enc.h"
#include "wire/le.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    KEPT_UNOFFERED = 256 << 10, /* what a connector keeps for an acceptor that may never offer */
    KEPT_BEYOND = 4 << 20, /* headers, control frames, and what is received but not acknowledged */
    ACK_RIDE_BYTES = 32 << 10, /* less is not worth its few bytes */
    ACK_ALONE_PART = 8         /* of what the peer keeps at least; credit alone comes at a fourth */
};

/* Between two looks at a connection that is cut, when only the thread that dials looks: one that
 * is not answered takes two seconds, and a second passes to the next. */
static const uint64_t look_every_ns = 3 * HW_SEC;

struct rpc_resume {
    struct rpc_rope *rope;
    bool agreed;   /* offered, or an offer has come */
    bool declined; /* it came when bytes were missing already */
    struct rpc_resume_key key;
    uint64_t window_ns;
    uint64_t offset; /* from what the rope counts to the number of a byte */
    uint64_t told;   /* bytes that were acknowledged */
    uint64_t replay_from, replay_to;
    struct hw_looks looks; /* since the cut: the two times below are theirs */
    uint64_t cut_ns;       /* when the cut was noticed; 0: it was not */
    uint64_t told_ns; /* since when the peer's host says that its end is gone; 0: it says nothing */
    uint64_t resumed_ns; /* when it last went on after a cut; 0: never */
};

/* ---- messages ---- */

static void put_key(struct wire_enc *e, const struct rpc_resume_key *key)
{
    wire_put_u64(e, key->session);
    wire_put_bytes(e, key->secret, sizeof key->secret);
}

static void get_key(struct wire_dec *d, struct rpc_resume_key *key)
{
    key->session = wire_get_u64(d);
    wire_get_copy(d, key->secret, sizeof key->secret);
}

void rpc_resume_put_request(const struct rpc_resume_request *request,
                            uint8_t out[RPC_RESUME_REQUEST_BYTES])
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, out, RPC_RESUME_REQUEST_BYTES);
    put_key(&e, &request->key);
    wire_put_u64(&e, request->received);
    assert(wire_enc_error(&e) == 0 && wire_enc_len(&e) == RPC_RESUME_REQUEST_BYTES);
}

int rpc_resume_get_request(const void *data, size_t len, struct rpc_resume_request *out)
{
    struct wire_dec d;
    struct rpc_resume_request request;
    wire_dec_init(&d, data, len);
    get_key(&d, &request.key);
    request.received = wire_get_u64(&d);
    if (wire_dec_end(&d))
        return -EPROTO;
    *out = request;
    return 0;
}

int rpc_resume_key_make(uint64_t session, struct rpc_resume_key *out)
{
    out->session = session;
    return RAND_bytes(out->secret, sizeof out->secret) == 1 ? 0 : -EIO;
}

bool rpc_resume_key_equal(const struct rpc_resume_key *a, const struct rpc_resume_key *b)
{
    return a->session == b->session && CRYPTO_memcmp(a->secret, b->secret, sizeof a->secret) == 0;
}

/* ---- life ---- */

bool rpc_resume_is_wanted(const struct rpc_addr *addr)
{
    bool wanted;
    (void)hw_env_bool("VENUS_RESUME", !rpc_addr_is_local(addr), &wanted);
    return wanted;
}

/* A Unix socket and shared memory end with a process; UCX has no other connection to offer. */
static bool can_be_replaced(const struct rpc_transport *t)
{
    static const char *const names[] = {"tcp", "tls", "loopback"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(t->ops->name, names[i]) == 0)
            return true;
    }
    return false;
}

static int put_rope(struct rpc_ep *ep)
{
    struct rpc_resume *r = calloc(1, sizeof *r);
    int rc = r ? rpc_rope_create(ep->transport, &r->rope) : -ENOMEM;
    if (rc) {
        free(r);
        return rc;
    }
    ep->transport = rpc_rope_transport(r->rope);
    ep->resume = r;
    return 0;
}

int rpc_resume_init(struct rpc_ep *ep)
{
    ep->config.resumes =
        ep->config.resumes && !ep->config.accepting && can_be_replaced(ep->transport);
    return ep->config.resumes ? put_rope(ep) : 0;
}

void rpc_resume_fini(struct rpc_ep *ep)
{
    if (!ep->resume)
        return;
    OPENSSL_cleanse(&ep->resume->key, sizeof ep->resume->key);
    free(ep->resume);
    ep->resume = NULL;
}

/* The credit of both sides bounds it, however large a window the peer claims. */
static uint64_t kept_limit(const struct rpc_ep *ep)
{
    uint64_t peer = (uint64_t)ep->message_max + RPC_MESSAGE_COST;
    uint64_t most =
        ep->config.window_bytes > RPC_WINDOW_DEFAULT ? ep->config.window_bytes : RPC_WINDOW_DEFAULT;
    return (peer < most ? peer : most) + KEPT_BEYOND;
}

/* An acceptor's offer numbers from the first frame, so that is kept from the start. */
void rpc_resume_opened(struct rpc_ep *ep)
{
    if (!ep->config.accepting && rpc_tx_keep(&ep->tx, KEPT_UNOFFERED))
        hw_debug(HW_CAT_NET, "%s: no memory to resume with", ep->transport->peer);
}

static void reset_when_killed(struct rpc_ep *ep, bool on)
{
    int fd = ep->config.accepting ? -1 : ep->transport->ops->poll_fd(ep->transport);
    struct linger none = {.l_onoff = on};
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

/* The goodbye shall arrive.  One that was not written cannot: then RST says that this is the end.
 */
void rpc_resume_leave(struct rpc_ep *ep)
{
    reset_when_killed(ep, false);
}

static void agree(struct rpc_ep *ep, const struct rpc_resume_key *key, uint64_t window_ns)
{
    struct rpc_resume *r = ep->resume;
    r->key = *key;
    r->window_ns = window_ns;
    r->agreed = true;
    rpc_rope_hold(r->rope);
    reset_when_killed(ep, true);
}

static uint64_t received(const struct rpc_resume *r)
{
    return rpc_rope_received(r->rope) + r->offset;
}

int rpc_ep_offer_resume(struct rpc_ep *ep, const struct rpc_resume_key *key, uint64_t window_ns,
                        uint64_t before)
{
    assert(!ep->resume && ep->config.accepting && ep->status == 0);
    if (!ep->peer_resumes || !can_be_replaced(ep->transport))
        return -EOPNOTSUPP;
    int rc = put_rope(ep);
    if (rc)
        return rc;
    struct rpc_resume *r = ep->resume;
    uint8_t body[RPC_RESUME_OFFER_BYTES];
    struct wire_enc e;
    r->offset = before + hw_counter_load(&ep->stats.bytes_received) - ep->received_before;
    r->told = received(r);
    wire_enc_init_fixed(&e, body, sizeof body);
    put_key(&e, key);
    wire_put_u32(&e, (uint32_t)(window_ns / HW_MS));
    wire_put_u64(&e, r->told);
    assert(wire_enc_error(&e) == 0);
    struct rpc_frame frame = {.kind = RPC_FRAME_OFFER, .len = sizeof body};
    rc = rpc_tx_keep(&ep->tx, kept_limit(ep));
    if (rc == 0)
        rc = rpc_tx_control(&ep->tx, &frame, body);
    OPENSSL_cleanse(body, sizeof body);
    if (rc)
        return rc;
    rpc_kept_skip(ep->tx.kept, rpc_tx_ahead(&ep->tx));
    agree(ep, key, window_ns);
    return 0;
}

/* ---- while the connection is there ---- */

static int on_offer(struct rpc_ep *ep, const struct rpc_frame *frame)
{
    struct rpc_resume *r = ep->resume;
    struct rpc_resume_key key;
    struct wire_dec d;
    size_t have;
    const uint8_t *body = rpc_rx_peek(&ep->rx, &have);
    assert(frame->len <= have);
    wire_dec_init(&d, body, frame->len);
    get_key(&d, &key);
    uint64_t window_ns = wire_get_u32(&d) * HW_MS, number = wire_get_u64(&d);
    /* A later version may say more at the end. */
    if (wire_dec_error(&d) || ep->config.accepting || r->agreed || r->declined)
        return rpc_ep_fail(ep, -EPROTO, "an offer to resume that is malformed or out of turn");
    rpc_rx_skip(&ep->rx, frame->len, false);
    r->declined = !ep->tx.kept || rpc_kept_is_broken(ep->tx.kept);
    if (r->declined)
        return 0;
    if (rpc_kept_ack(ep->tx.kept, number))
        return rpc_ep_fail(ep, -EPROTO, "acknowledged what it was not sent");
    rpc_kept_set_limit(ep->tx.kept, kept_limit(ep));
    r->offset = (uint64_t)(have - frame->len) - rpc_rope_received(r->rope);
    uint64_t own_ns = ep->config.resumes_ns;
    agree(ep, &key, own_ns && own_ns < window_ns ? own_ns : window_ns);
    return 0;
}

static int on_ack(struct rpc_ep *ep, uint64_t number)
{
    struct rpc_kept *kept = ep->tx.kept;
    if (ep->resume->declined)
        return 0;
    if (!ep->resume->agreed || number > rpc_kept_written(kept))
        return rpc_ep_fail(ep, -EPROTO, "acknowledged what it was not sent");
    if (number <= rpc_kept_acked(kept))
        return 0; /* a resumption has overtaken it */
    if (ep->resume->replay_from < number)
        ep->resume->replay_from = number; /* if it says so */
    return rpc_kept_ack(kept, number);
}

int rpc_resume_on_frame(struct rpc_ep *ep, const struct rpc_frame *frame)
{
    return frame->kind == RPC_FRAME_OFFER ? on_offer(ep, frame) : on_ack(ep, frame->value);
}

/* The peer keeps no more than its own window or the default one, however large ours is. */
static uint64_t ack_alone_bytes(const struct rpc_ep *ep)
{
    uint32_t window = ep->config.window_bytes;
    return (window < RPC_WINDOW_DEFAULT ? window : RPC_WINDOW_DEFAULT) / ACK_ALONE_PART;
}

void rpc_resume_acknowledge(struct rpc_ep *ep)
{
    struct rpc_resume *r = ep->resume;
    uint64_t number = received(r), due = number - r->told;
    if (!r->agreed || due < ACK_RIDE_BYTES ||
        (due < ack_alone_bytes(ep) && !rpc_tx_pending(&ep->tx)))
        return;
    struct rpc_frame frame = {.kind = RPC_FRAME_ACK, .value = number};
    if (rpc_tx_control(&ep->tx, &frame, NULL) == 0)
        r->told = number;
}

/* ---- after a cut ---- */

bool rpc_resume_sever(struct rpc_resume *r)
{
    if (!r->agreed)
        return false;
    rpc_rope_sever(r->rope, -EHOSTDOWN);
    return true;
}

bool rpc_resume_is_cut(const struct rpc_resume *r)
{
    return rpc_rope_is_cut(r->rope);
}

bool rpc_ep_can_resume(const struct rpc_ep *ep)
{
    return ep->resume && ep->resume->agreed && !rpc_kept_is_broken(ep->tx.kept);
}

bool rpc_ep_is_cut(const struct rpc_ep *ep)
{
    return ep->status == 0 && ep->resume && rpc_resume_is_cut(ep->resume);
}

uint64_t rpc_ep_unheard_ns(const struct rpc_ep *ep)
{
    return rpc_ep_now(ep) - ep->looks.missed_ns - ep->last_received_ns;
}

bool rpc_resume_is_told(const struct rpc_transport *t, int why)
{
    bool in_order = why == -ESHUTDOWN || why == -EPIPE;
    return why == -ECONNRESET || why == -ECONNREFUSED || (in_order && !t->ops->host_answers);
}

static uint64_t window_end(const struct rpc_resume *r)
{
    uint64_t end = r->cut_ns + r->window_ns, told = r->told_ns + RPC_RESUME_TOLD_NS;
    return r->told_ns && told < end ? told : end;
}

uint64_t rpc_resume_next_tick(const struct rpc_resume *r)
{
    if (r->cut_ns == 0)
        return 0;
    uint64_t end = window_end(r) + r->looks.missed_ns, look = r->looks.last_ns + look_every_ns;
    return look < end ? look : end;
}

/* Something that ends connections lies between: the next end soon after is most likely its work,
 * too. */
static bool was_cut_lately(const struct rpc_resume *r, uint64_t now)
{
    return r->resumed_ns && now - r->resumed_ns < r->window_ns;
}

static double seconds_to_resume(const struct rpc_resume *r)
{
    return (double)(window_end(r) - r->cut_ns) / 1e9;
}

static const char *cause(int rc)
{
    return rc == -ESHUTDOWN || rc == -EPIPE ? "its end was closed without a goodbye"
           : rc == -EHOSTDOWN               ? "the peer or the network is silent"
                                            : strerror(-rc);
}

int rpc_resume_tick(struct rpc_ep *ep, uint64_t now)
{
    struct rpc_resume *r = ep->resume;
    int rc = rpc_rope_why(r->rope);
    const char *why = cause(rc);
    if (rpc_kept_is_broken(ep->tx.kept))
        return rpc_ep_fail(ep, -ECONNRESET,
                           "connection lost: %s; it cannot be resumed, since the peer acknowledged "
                           "too little",
                           why);
    if (r->cut_ns == 0) {
        hw_looks_init(&r->looks, look_every_ns, now);
        r->cut_ns = now;
        r->told_ns = rpc_resume_is_told(ep->transport, rc) && !was_cut_lately(r, now) ? now : 0;
        hw_info(HW_CAT_NET, "%s: connection cut: %s; it may be resumed for %.3g s",
                ep->transport->peer, why, seconds_to_resume(r));
    }
    if (hw_looks_at(&r->looks, now) < window_end(r))
        return 0;
    return rpc_ep_fail(ep, r->told_ns ? -ECONNRESET : -EHOSTDOWN,
                       "connection lost: %s; it was not resumed within %.3g s", why,
                       seconds_to_resume(r));
}

void rpc_ep_resume_failed(struct rpc_ep *ep, int error)
{
    struct rpc_resume *r = ep->resume;
    if (error != -ECONNREFUSED)
        r->told_ns = 0;
    else if (r->told_ns == 0)
        r->told_ns = hw_looks_at(&r->looks, rpc_ep_now(ep));
}

void rpc_ep_resume_request(struct rpc_ep *ep, struct rpc_resume_request *out)
{
    struct rpc_resume *r = ep->resume;
    assert(r && r->agreed);
    rpc_rope_quiet(r->rope);
    out->key = r->key;
    out->received = received(r);
}

void rpc_ep_resume_refused(struct rpc_ep *ep, const char *why)
{
    (void)rpc_ep_fail(ep, -ECONNRESET, "the connection was cut and cannot be resumed: %s", why);
}

/* The rope is quiet.  0, or the status. */
static int check_number(struct rpc_ep *ep, uint64_t number)
{
    if (rpc_kept_is_broken(ep->tx.kept))
        return rpc_ep_fail(ep, -ECONNRESET, "cut, and the peer had acknowledged too little");
    if (rpc_kept_ack(ep->tx.kept, number))
        return rpc_ep_fail(ep, -EPROTO, "resumed from a byte that it cannot have");
    return 0;
}

int rpc_ep_resume(struct rpc_ep *ep, struct rpc_transport *connection, const void *early,
                  size_t early_len, uint64_t number)
{
    struct rpc_resume *r = ep->resume;
    assert(r && r->agreed);
    int rc = ep->status ? ep->status : check_number(ep, number);
    if (rc) {
        rpc_transport_destroy(connection);
        return rc;
    }
    rpc_rope_quiet(r->rope);
    rc = rpc_rope_attach(r->rope, connection, early, early_len);
    if (rc)
        return rpc_ep_fail(ep, rc, "out of memory");
    reset_when_killed(ep, true);
    uint64_t now = rpc_ep_now(ep);
    r->replay_from = number;
    r->replay_to = rpc_kept_written(ep->tx.kept);
    ep->last_sent_ns = now;
    ep->last_received_ns = hw_looks_at(&ep->looks, now);
    atomic_store_explicit(&ep->send_blocked, false, memory_order_relaxed);
    hw_counter_bump(&ep->stats.resumes, 1);
    hw_info(HW_CAT_NET, "%s: resumed after %.2f s; %llu bytes are sent again", ep->transport->peer,
            r->cut_ns ? (double)(hw_looks_at(&r->looks, now) - r->cut_ns) / 1e9 : 0.0,
            (unsigned long long)(r->replay_to - r->replay_from));
    r->cut_ns = r->told_ns = 0;
    r->resumed_ns = now;
    return 0;
}

int rpc_ep_resume_accept(struct rpc_ep *ep, struct rpc_transport *connection, uint32_t id,
                         uint64_t number)
{
    struct rpc_resume *r = ep->resume;
    uint8_t bytes[RPC_FRAME_HEADER_MAX + RPC_RESUME_ANSWER_BYTES];
    int rc = ep->status;
    if (rc || !r || !r->agreed) {
        rpc_transport_destroy(connection);
        return rc ? rc : -EINVAL;
    }
    rpc_rope_quiet(r->rope);
    struct rpc_frame frame = {.kind = RPC_FRAME_REPLY, .len = RPC_RESUME_ANSWER_BYTES, .id = id};
    size_t len = rpc_frame_encode(&frame, bytes);
    wire_store64(bytes + len, received(r));
    struct iovec iov = {bytes, len + RPC_RESUME_ANSWER_BYTES};
    /* A new connection takes so few bytes at once, or is gone already. */
    if (connection->ops->send(connection, &iov, 1) != (ssize_t)iov.iov_len) {
        rpc_transport_destroy(connection);
        return 0;
    }
    return rpc_ep_resume(ep, connection, NULL, 0, number);
}

bool rpc_resume_replays(const struct rpc_resume *r)
{
    return UNLIKELY(r->replay_from < r->replay_to);
}

int rpc_resume_gather(const struct rpc_ep *ep, struct iovec iov[RPC_IOV_MAX])
{
    return rpc_kept_gather(ep->tx.kept, ep->resume->replay_from, iov, RPC_IOV_MAX);
}

void rpc_resume_replayed(struct rpc_ep *ep, size_t n)
{
    ep->resume->replay_from += n;
    hw_counter_bump(&ep->stats.bytes_replayed, n);
}
