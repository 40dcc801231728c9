/* Ciphertext leaves through a buffer of our own (`out`): OpenSSL writes whole records into it and
 * one send(2) takes a batch of them.  So SSL_write never stops half way, and OpenSSL's rule that a
 * stopped write must be repeated as it was never comes up.  What the socket did not take stays in
 * `out`; then the last plaintext byte of the batch is reported as not taken, so that the caller
 * knows it must come again, and it is skipped when it does.  Until then the end of that byte's
 * record stays here: whoever resumes counts on it that the peer has no byte that was not reported.
 *
 * During the handshake send takes up to one record and keeps it until the end.  A hello fits, so an
 * owner that sleeps on the descriptor has nothing to send: the socket is writable all through the
 * handshake, and an owner that waited for room would spin.
 *
 * Incoming bytes go straight into OpenSSL's read buffer, several records at a time.  Only recv may
 * read ahead: if a handshake driven by send took application bytes out of the socket, a thread that
 * sleeps in recv would not wake up for them. */
#include "rpc/transport/tls.h"

#include "base/clock.h"
#include "rpc/transport/sock.h"

#include <assert.h>
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* A full record with its framing, and a KeyUpdate before it. */
    RECORD_ROOM = SSL3_RT_MAX_PACKET_SIZE + 512,
    OUT_BYTES = RPC_TLS_BATCH_RECORDS * RECORD_ROOM,
    CONTENT_ALERT = 21,
    CONTENT_HANDSHAKE = 22
};

static const char binding_label[] = "EXPORTER-hawser-token";

struct rpc_tls {
    struct rpc_transport base;
    int fd;
    bool accepting;
    struct rpc_tls_context *ctx;

    pthread_mutex_t lock; /* all below */
    SSL *ssl;
    struct rpc_tls_check check;
    bool established;
    bool starved;     /* SSL_read asked for more since it last gave bytes */
    bool heard;       /* a first byte came */
    bool not_tls;     /* and it was none of TLS */
    int socket_error; /* of the last BIO read, 0 or negative errno */
    int recv_end;     /* sticky: why nothing can be read any more */
    int send_end;     /* sticky: why nothing can be sent any more */
    bool broken;      /* TLS failed: the SSL object must not be used for more than freeing */
    uint64_t records; /* sent on this key */
    char why[RPC_WHY_CHARS + RPC_PEER_NAME_CHARS];

    size_t out_start, out_end; /* ciphertext in out that the socket has not taken */
    size_t held;               /* 0 or 1: plaintext bytes that are in out, reported as not taken */
    size_t held_at;            /* the last byte of their record in out */
    uint8_t out[OUT_BYTES];
    size_t early;                          /* bytes of staging taken before TLS was up */
    uint8_t staging[RPC_TLS_RECORD_BYTES]; /* small segments become one record here */
};

static struct rpc_tls *tls_of(struct rpc_transport *transport)
{
    return CONTAINER_OF(transport, struct rpc_tls, base);
}

/* ---- the socket under OpenSSL ---- */

/* The first byte tells: a record's content type.  A server hears a handshake first, a client that
 * or an alert. */
static bool opens_like_tls(const struct rpc_tls *t, uint8_t first)
{
    return first == CONTENT_HANDSHAKE || (first == CONTENT_ALERT && !t->accepting);
}

static int bio_read(BIO *bio, char *buf, int len)
{
    struct rpc_tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (len <= 0)
        return 0;
    ssize_t n;
    do
        n = recv(t->fd, buf, (size_t)len, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        BIO_set_retry_read(bio);
        return -1;
    }
    if (n <= 0) {
        t->socket_error = n < 0 ? rpc_sock_gone(errno) : t->established ? -EPIPE : -ECONNRESET;
        return -1;
    }
    if (!t->heard) {
        t->heard = true;
        t->not_tls = !opens_like_tls(t, (uint8_t)buf[0]);
    }
    return t->not_tls ? -1 : (int)n;
}

static int bio_write(BIO *bio, const char *buf, int len)
{
    struct rpc_tls *t = BIO_get_data(bio);
    size_t room = sizeof t->out - t->out_end;
    BIO_clear_retry_flags(bio);
    if (len <= 0)
        return 0;
    if (room == 0) {
        BIO_set_retry_write(bio);
        return -1;
    }
    size_t n = (size_t)len < room ? (size_t)len : room;
    memcpy(t->out + t->out_end, buf, n);
    t->out_end += n;
    return (int)n;
}

static long bio_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
    (void)bio, (void)num, (void)ptr;
    return cmd == BIO_CTRL_FLUSH; /* the handshake insists on it */
}

static int bio_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

static BIO_METHOD *bio_method;

static void bio_method_init(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hawser socket");
    if (bio_method) {
        BIO_meth_set_read(bio_method, bio_read);
        BIO_meth_set_write(bio_method, bio_write);
        BIO_meth_set_ctrl(bio_method, bio_ctrl);
        BIO_meth_set_create(bio_method, bio_create);
    }
}

static bool out_empty(const struct rpc_tls *t)
{
    return t->out_start == t->out_end;
}

/* Up to where out may go without a send. */
static size_t out_free(const struct rpc_tls *t)
{
    return t->held ? t->held_at : t->out_end;
}

/* Hands out to the socket, up to there.  0 when that went, -EAGAIN, or send_end. */
static int out_flush_to(struct rpc_tls *t, size_t end)
{
    while (t->out_start < end && t->send_end == 0) {
        ssize_t n =
            send(t->fd, t->out + t->out_start, end - t->out_start, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0)
            t->out_start += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return -EAGAIN;
        else if (errno != EINTR)
            t->send_end = rpc_sock_gone(errno);
    }
    if (out_empty(t) || t->send_end != 0)
        t->out_start = t->out_end = t->held = 0;
    return t->send_end;
}

static int out_flush(struct rpc_tls *t)
{
    return out_flush_to(t, out_free(t));
}

/* ---- failure ---- */

static int fail(struct rpc_tls *t, int error, const char *text)
{
    assert(error < 0 && !t->broken);
    (void)out_flush(t); /* the alert that tells the peer why */
    t->broken = true;
    if (t->recv_end == 0)
        t->recv_end = error;
    if (t->send_end == 0)
        t->send_end = error;
    snprintf(t->why, sizeof t->why, "%s", text);
    return error;
}

/* The peer's alert, when that is what ended it: OpenSSL numbers those reasons 1000 + alert. */
static int fail_alert(struct rpc_tls *t, int alert)
{
    char text[RPC_WHY_CHARS];
    const char *name = SSL_alert_desc_string_long(alert);
    bool certificate = alert == TLS1_AD_DECRYPT_ERROR || /* a signature that does not verify */
                       (alert >= SSL3_AD_BAD_CERTIFICATE && alert <= TLS1_AD_ACCESS_DENIED &&
                        alert != SSL3_AD_ILLEGAL_PARAMETER);
    snprintf(text, sizeof text,
             certificate ? "the peer refused our certificate (TLS alert: %s)"
                         : "the peer ended TLS (alert: %s)",
             name);
    return fail(t, certificate ? -EACCES : -EPROTO, text);
}

/* OpenSSL does not answer plain bytes; this alert record tells a plain client that TLS is on. */
static void hint_at_tls(const struct rpc_tls *t)
{
    static const uint8_t alert[] = {SSL3_RT_ALERT,           3, 3, 0, 2, SSL3_AL_FATAL,
                                    TLS1_AD_PROTOCOL_VERSION};
    ssize_t n = send(t->fd, alert, sizeof alert, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)n;
}

static int fail_tls(struct rpc_tls *t)
{
    enum { ALERT_BASE = 1000, ALERT_MAX = 255 };
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code);
    if (t->check.error != 0)
        return fail(t, t->check.error, t->check.why);
    if (t->not_tls && t->accepting)
        hint_at_tls(t);
    if (t->not_tls)
        return fail(t, -EPROTO,
                    t->accepting ? "plain client on a TLS port"
                                 : "the server does not speak TLS: drop the client's TLS settings, "
                                   "or give the server --cert and --key");
    if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason > ALERT_BASE && reason <= ALERT_BASE + ALERT_MAX)
        return fail_alert(t, reason - ALERT_BASE);
    const char *words = ERR_reason_error_string(code);
    char text[RPC_WHY_CHARS];
    snprintf(text, sizeof text, "TLS failed: %s", words ? words : "no reason given");
    return fail(t, -EPROTO, text);
}

/* What a failed SSL call means: -EAGAIN, or the end of receiving (set and returned). */
static int explain(struct rpc_tls *t, int ssl_error)
{
    switch (ssl_error) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return t->recv_end = -ESHUTDOWN;
    default:
        break;
    }
    if (t->socket_error == 0)
        return fail_tls(t);
    if (!t->established)
        return fail(t, t->socket_error, "the connection ended during the TLS handshake");
    t->broken = true;
    t->send_end = t->socket_error;
    return t->recv_end = t->socket_error;
}

static int encrypt(struct rpc_tls *t, const uint8_t *data, size_t len)
{
    assert(sizeof t->out - t->out_end >= RECORD_ROOM);
    ERR_clear_error();
    if (++t->records >= rpc_tls_context_rekey(t->ctx)) {
        t->records = 0;
        if (SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
            return fail_tls(t);
    }
    size_t written = 0;
    if (SSL_write_ex(t->ssl, data, len, &written) != 1)
        return fail_tls(t); /* there was room, so it is not a want */
    assert(written == len);
    return 0;
}

/* The handshake is done: what waited for it goes out. */
static int establish(struct rpc_tls *t)
{
    t->established = true;
    SSL_set_read_ahead(t->ssl, 1);
    int rc = t->early > 0 ? encrypt(t, t->staging, t->early) : 0;
    t->early = 0;
    (void)out_flush(t);
    return rc;
}

/* 0 once TLS is up, -EAGAIN, or why it will not be. */
static int handshake(struct rpc_tls *t)
{
    while (!t->established) {
        if (t->recv_end != 0)
            return t->recv_end;
        ERR_clear_error();
        int ok = SSL_do_handshake(t->ssl);
        int error = SSL_get_error(t->ssl, ok);
        int flushed = out_flush(t);
        if (ok == 1)
            return establish(t);
        if (error != SSL_ERROR_WANT_WRITE || flushed != 0)
            return explain(t, error);
    }
    return 0;
}

/* ---- send ---- */

struct cursor {
    const struct iovec *iov;
    int count;
    size_t offset; /* in *iov */
};

static size_t cursor_segment(struct cursor *c)
{
    while (c->count > 0 && c->offset == c->iov->iov_len) {
        c->iov++;
        c->count--;
        c->offset = 0;
    }
    return c->count > 0 ? c->iov->iov_len - c->offset : 0;
}

static const uint8_t *cursor_at(const struct cursor *c)
{
    return (const uint8_t *)c->iov->iov_base + c->offset;
}

/* Adds to the `used` bytes of staging what fits; how many there are then. */
static size_t gather(struct rpc_tls *t, struct cursor *c, size_t used)
{
    size_t segment;
    while ((segment = cursor_segment(c)) > 0 && used < sizeof t->staging) {
        size_t n = segment < sizeof t->staging - used ? segment : sizeof t->staging - used;
        memcpy(t->staging + used, cursor_at(c), n);
        used += n;
        c->offset += n;
    }
    return used;
}

/* The plaintext of the next record: in place where a segment fills it, else gathered. */
static const uint8_t *next_record(struct rpc_tls *t, struct cursor *c, size_t *len)
{
    size_t segment = cursor_segment(c);
    if (segment < RPC_TLS_RECORD_BYTES && c->count > 1) {
        *len = gather(t, c, 0);
        return t->staging;
    }
    const uint8_t *data = cursor_at(c);
    *len = segment < RPC_TLS_RECORD_BYTES ? segment : RPC_TLS_RECORD_BYTES;
    c->offset += *len;
    return data;
}

/* Encrypts and writes one batch, adding to *taken.  0 when the caller may go on, -EAGAIN when the
 * socket is full, another error when sending has ended. */
static int send_batch(struct rpc_tls *t, struct cursor *c, size_t *taken)
{
    while (cursor_segment(c) > 0 && sizeof t->out - t->out_end >= RECORD_ROOM) {
        size_t len;
        const uint8_t *data = next_record(t, c, &len);
        int rc = encrypt(t, data, len);
        if (rc != 0)
            return rc;
        *taken += len;
    }
    int rc = out_flush_to(t, t->out_end);
    if (rc == -EAGAIN) {
        t->held = 1;
        t->held_at = t->out_end - 1;
        *taken -= 1;
    }
    return rc;
}

/* One turn of send under the lock; as send_batch. */
static int send_turn(struct rpc_tls *t, struct cursor *c, size_t *taken)
{
    int rc = t->send_end != 0 ? t->send_end : handshake(t);
    if (rc == -EAGAIN) {
        size_t before = t->early;
        t->early = gather(t, c, before);
        *taken += t->early - before;
        return -EAGAIN;
    }
    size_t held = t->held;
    if (rc == 0)
        rc = out_flush_to(t, t->out_end);
    if (rc != 0)
        return rc;
    c->offset += held;
    *taken += held;
    return send_batch(t, c, taken);
}

static ssize_t tls_send(struct rpc_transport *transport, const struct iovec *iov, int count)
{
    struct rpc_tls *t = tls_of(transport);
    struct cursor c = {.iov = iov, .count = count};
    size_t taken = 0;
    int rc = 0;

    assert(count >= 0 && count <= RPC_IOV_MAX);
    while (rc == 0 && cursor_segment(&c) > 0) {
        pthread_mutex_lock(&t->lock);
        rc = send_turn(t, &c, &taken);
        pthread_mutex_unlock(&t->lock);
    }
    return taken > 0 ? (ssize_t)taken : rc != 0 ? rc : -EAGAIN;
}

/* ---- recv ---- */

/* True when a recv would give bytes, or the end, without the socket's help. */
static bool recv_buffered(const struct rpc_tls *t)
{
    return t->recv_end != 0 || (t->established && !t->starved && SSL_has_pending(t->ssl));
}

static ssize_t read_segment(struct rpc_tls *t, const struct iovec *segment, bool ask_socket)
{
    size_t got = 0;
    while (got < segment->iov_len && ((ask_socket && got == 0) || recv_buffered(t))) {
        size_t n;
        if (t->recv_end != 0)
            return got > 0 ? (ssize_t)got : t->recv_end;
        ERR_clear_error();
        t->socket_error = 0;
        int ok =
            SSL_read_ex(t->ssl, (uint8_t *)segment->iov_base + got, segment->iov_len - got, &n);
        t->starved = ok != 1;
        if (ok != 1) {
            int rc = explain(t, SSL_get_error(t->ssl, ok));
            return got > 0 ? (ssize_t)got : rc;
        }
        got += n;
    }
    return (ssize_t)got;
}

static ssize_t read_segments(struct rpc_tls *t, const struct iovec *iov, int count)
{
    ssize_t total = 0;
    int rc = handshake(t);
    if (rc != 0)
        return rc;
    for (int i = 0; i < count; i++) {
        ssize_t n = read_segment(t, &iov[i], total == 0);
        if (n < 0)
            return total > 0 ? total : n;
        total += n;
        if ((size_t)n < iov[i].iov_len)
            break;
    }
    return total > 0 ? total : -EAGAIN;
}

/* ---- waiting ---- */

/* The events that came (0: interrupted), or -ETIMEDOUT. */
static int poll_until(int fd, short events, uint64_t deadline)
{
    struct pollfd p = {.fd = fd, .events = events};
    uint64_t now = hw_now_ns(), left = deadline > now ? deadline - now : 0;
    struct timespec ts = hw_timespec(left);
    int n = ppoll(&p, 1, deadline == HW_NEVER ? NULL : &ts, NULL);
    if (n == 0)
        return -ETIMEDOUT;
    return n > 0 ? p.revents : 0;
}

static ssize_t tls_recv(struct rpc_transport *transport, const struct iovec *iov, int count,
                        uint64_t timeout_ns)
{
    struct rpc_tls *t = tls_of(transport);
    uint64_t deadline = timeout_ns > 0 ? hw_after(timeout_ns) : 0;

    assert(count >= 0 && count <= RPC_IOV_MAX);
    for (;;) {
        pthread_mutex_lock(&t->lock);
        ssize_t n = read_segments(t, iov, count);
        /* What send left, or a KeyUpdate that reading caused; send reports a failure. */
        (void)out_flush(t);
        short events = (short)(POLLIN | (t->out_start < out_free(t) ? POLLOUT : 0));
        pthread_mutex_unlock(&t->lock);
        if (n != -EAGAIN || timeout_ns == 0)
            return n;
        if (poll_until(t->fd, events, deadline) == -ETIMEDOUT)
            return -EAGAIN;
    }
}

/* Does what can be done now; true when that answers the wait, else what to poll for. */
static bool wait_answered(struct rpc_tls *t, unsigned events, short *poll_for, short *answers)
{
    int rc = handshake(t);
    *poll_for = *answers = 0;
    if (rc == 0) {
        (void)out_flush(t);
        if (t->send_end != 0 || t->recv_end != 0 || ((events & RPC_WAIT_RECV) && recv_buffered(t)))
            return true;
        *answers = (short)((events & RPC_WAIT_RECV ? POLLIN : 0) |
                           (events & RPC_WAIT_SEND ? POLLOUT : 0) | POLLERR | POLLHUP);
        *poll_for = *answers & (POLLIN | POLLOUT);
    } else if (rc == -EAGAIN) {
        *poll_for = POLLIN;
    } else {
        return true;
    }
    if (t->out_start < out_free(t))
        *poll_for |= POLLOUT;
    return false;
}

static int tls_wait(struct rpc_transport *transport, unsigned events, uint64_t timeout_ns)
{
    struct rpc_tls *t = tls_of(transport);
    uint64_t deadline = hw_after(timeout_ns);

    assert(events & (RPC_WAIT_RECV | RPC_WAIT_SEND));
    for (;;) {
        short poll_for, answers;
        pthread_mutex_lock(&t->lock);
        bool answered = wait_answered(t, events, &poll_for, &answers);
        pthread_mutex_unlock(&t->lock);
        if (answered)
            return 0;
        int came = poll_until(t->fd, poll_for, deadline);
        if (came < 0 || (came & answers))
            return came < 0 ? came : 0;
    }
}

static int tls_poll_fd(struct rpc_transport *transport)
{
    return tls_of(transport)->fd;
}

static int tls_arm(struct rpc_transport *transport, unsigned events)
{
    struct rpc_tls *t = tls_of(transport);
    pthread_mutex_lock(&t->lock);
    bool ready =
        t->recv_end != 0 || t->send_end != 0 || ((events & RPC_WAIT_RECV) && recv_buffered(t));
    pthread_mutex_unlock(&t->lock);
    return ready;
}

static bool tls_host_answers(struct rpc_transport *transport, uint64_t within_ns)
{
    return rpc_sock_host_answers(tls_of(transport)->fd, within_ns);
}

static bool tls_is_behind(struct rpc_transport *transport)
{
    return rpc_sock_is_behind(tls_of(transport)->fd);
}

static int tls_binding(struct rpc_transport *transport, uint8_t out[RPC_BINDING_BYTES])
{
    struct rpc_tls *t = tls_of(transport);
    pthread_mutex_lock(&t->lock);
    int rc = t->broken ? t->recv_end : t->established ? 0 : -EAGAIN;
    if (rc == 0 && SSL_export_keying_material(t->ssl, out, RPC_BINDING_BYTES, binding_label,
                                              sizeof binding_label - 1, NULL, 0, 0) != 1)
        rc = -ENOMEM;
    pthread_mutex_unlock(&t->lock);
    return rc;
}

/* ---- life ---- */

static void tls_abandon(struct rpc_transport *transport)
{
    struct rpc_tls *t = tls_of(transport);
    SSL_free(t->ssl);
    ERR_clear_error();
    close(t->fd);
    rpc_tls_context_unref(t->ctx);
    pthread_mutex_destroy(&t->lock);
    OPENSSL_cleanse(t->staging, sizeof t->staging);
    free(t);
}

static void tls_destroy(struct rpc_transport *transport)
{
    struct rpc_tls *t = tls_of(transport);
    ERR_clear_error();
    if (t->ssl && t->established && !t->broken && t->send_end == 0) {
        SSL_shutdown(t->ssl);
        (void)out_flush(t); /* best effort: a peer that does not read gets no goodbye */
    }
    tls_abandon(transport);
}

static int tls_descriptors(struct rpc_transport *transport, int fds[RPC_TRANSPORT_FDS])
{
    fds[0] = tls_of(transport)->fd;
    return 1;
}

static const char *tls_reason(struct rpc_transport *transport)
{
    struct rpc_tls *t = tls_of(transport);
    pthread_mutex_lock(&t->lock);
    const char *why = t->why[0] != '\0' ? t->why : NULL;
    pthread_mutex_unlock(&t->lock);
    return why;
}

static const struct rpc_transport_ops tls_ops = {
    .name = "tls",
    .send = tls_send,
    .recv = tls_recv,
    .wait = tls_wait,
    .poll_fd = tls_poll_fd,
    .arm = tls_arm,
    .host_answers = tls_host_answers,
    .is_behind = tls_is_behind,
    .binding = tls_binding,
    .reason = tls_reason,
    .descriptors = tls_descriptors,
    .destroy = tls_destroy,
    .abandon = tls_abandon,
};

static int attach_bio(struct rpc_tls *t)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, bio_method_init);
    BIO *bio = bio_method ? BIO_new(bio_method) : NULL;
    if (!bio)
        return -ENOMEM;
    BIO_set_data(bio, t);
    SSL_set_bio(t->ssl, bio, bio);
    return 0;
}

int rpc_tls_wrap(int fd, struct rpc_tls_context *ctx, bool accepting, const char *host,
                 struct rpc_transport **out)
{
    assert(fd >= 0);
    struct rpc_tls *t = calloc(1, sizeof *t);
    if (!t) {
        close(fd);
        return -ENOMEM;
    }
    t->base.ops = &tls_ops;
    t->fd = fd;
    t->accepting = accepting;
    t->ctx = rpc_tls_context_ref(ctx);
    pthread_mutex_init(&t->lock, NULL);
    snprintf(t->base.peer, sizeof t->base.peer, "peer");
    int rc = rpc_tls_context_new_ssl(ctx, accepting, host, &t->check, &t->ssl);
    if (rc == 0)
        rc = attach_bio(t);
    if (rc != 0) {
        tls_destroy(&t->base);
        return rc;
    }
    *out = &t->base;
    return 0;
}
