/* Raw limit of TLS 1.3: OpenSSL on a TCP socket, SSL_write and SSL_read, nothing between. */
#include "bench/rpc/raw_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

struct raw_secure {
    struct raw_link base;
    struct raw_options options;
    int fds[2];
    int fd;
    SSL_CTX *ctx;
    SSL *ssl;
};

static int tls_create(const struct raw_options *options, struct raw_link **out)
{
    struct raw_secure *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->base.ops = &raw_tls;
    t->options = *options;
    t->fd = -1;
    int rc = raw_tcp_pair(t->fds);
    if (rc) {
        free(t);
        return rc;
    }
    *out = &t->base;
    return 0;
}

static int make_context(struct raw_secure *t, bool server)
{
    t->ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (!t->ctx || !SSL_CTX_set_min_proto_version(t->ctx, TLS1_3_VERSION))
        return -ENOMEM;
    /* What our own TLS agrees on where the CPU has AES instructions: the same work is compared. */
    if (!SSL_CTX_set_ciphersuites(t->ctx, "TLS_AES_128_GCM_SHA256"))
        return -EINVAL;
    SSL_CTX_set_verify(t->ctx, SSL_VERIFY_NONE, NULL);
    if (!server)
        return 0;
    if (SSL_CTX_use_certificate_chain_file(t->ctx, t->options.certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(t->ctx, t->options.key, SSL_FILETYPE_PEM) != 1)
        return -EINVAL;
    return 0;
}

/* Handshake on the blocking socket; spinning starts after it. */
static int tls_begin(struct raw_link *link, bool server)
{
    struct raw_secure *t = (struct raw_secure *)link;
    t->fd = t->fds[server];
    close(t->fds[!server]);
    t->fds[!server] = -1;
    int rc = make_context(t, server);
    if (rc)
        return rc;
    t->ssl = SSL_new(t->ctx);
    if (!t->ssl || !SSL_set_fd(t->ssl, t->fd))
        return -ENOMEM;
    if ((server ? SSL_accept(t->ssl) : SSL_connect(t->ssl)) != 1)
        return -EPROTO;
    if (t->options.spin_ns && fcntl(t->fd, F_SETFL, O_NONBLOCK))
        return -errno;
    return 0;
}

/* Decides what to do about SSL_read or SSL_write that returned `result`: 0 to try again. */
static int again(struct raw_secure *t, int result, uint64_t start)
{
    int error = SSL_get_error(t->ssl, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
        return -EPIPE;
    uint64_t waited = hw_now_ns() - start;
    if (waited > RAW_SILENCE_NS || t->options.spin_ns == 0)
        return -ETIMEDOUT;
    if (waited > t->options.spin_ns) {
        struct pollfd p = {.fd = t->fd, .events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT};
        poll(&p, 1, (int)(RAW_SILENCE_NS / HW_MS));
    }
    return 0;
}

static int tls_send(struct raw_link *link, const void *data, size_t len)
{
    struct raw_secure *t = (struct raw_secure *)link;
    uint64_t start = hw_now_ns();
    for (size_t at = 0; at < len;) {
        int n = SSL_write(t->ssl, (const char *)data + at, (int)(len - at));
        int rc = n > 0 ? 0 : again(t, n, start);
        if (rc)
            return rc;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int tls_recv(struct raw_link *link, void *data, size_t len)
{
    struct raw_secure *t = (struct raw_secure *)link;
    uint64_t start = hw_now_ns();
    for (size_t at = 0; at < len;) {
        int n = SSL_read(t->ssl, (char *)data + at, (int)(len - at));
        int rc = n > 0 ? 0 : again(t, n, start);
        if (rc)
            return rc;
        if (n > 0) {
            at += (size_t)n;
            start = hw_now_ns();
        }
    }
    return 0;
}

static void tls_destroy(struct raw_link *link)
{
    struct raw_secure *t = (struct raw_secure *)link;
    SSL_free(t->ssl);
    SSL_CTX_free(t->ctx);
    for (int i = 0; i < 2; i++) {
        if (t->fds[i] >= 0)
            close(t->fds[i]);
    }
    free(t);
}

const struct raw_ops raw_tls = {
    .name = "bare OpenSSL",
    .create = tls_create,
    .begin = tls_begin,
    .send = tls_send,
    .recv = tls_recv,
    .destroy = tls_destroy,
};
