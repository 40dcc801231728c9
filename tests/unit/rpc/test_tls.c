/* TLS transport: who is accepted and who is not, and that bytes arrive whole and in order. */
#include "base/clock.h"
#include "base/log.h"
#include "rpc/resume/pipe.h"
#include "rpc/transport/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define HANG_NS (240 * HW_SEC) /* far beyond what any step takes; only a hang reaches it */

/* ---- certificates ---- */

struct identity {
    EVP_PKEY *key;
    X509 *cert;
    char *cert_pem;
    char *key_pem;
};

struct issue {
    const char *san; /* NULL: a CA */
    const struct identity *issuer;
    int from_days;
    int to_days;
};

static const char *reason(struct rpc_transport *t)
{
    return t->ops->reason(t);
}

static char *pem_text(BIO *bio)
{
    char *data;
    long len = BIO_get_mem_data(bio, &data);
    char *text = calloc(1, (size_t)len + 1);
    memcpy(text, data, (size_t)len);
    BIO_free(bio);
    return text;
}

static void extend(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static struct identity issue(const struct issue *how)
{
    struct identity id = {.key = EVP_EC_gen("P-256"), .cert = X509_new()};
    static long serial;
    X509_NAME *name = X509_get_subject_name(id.cert);
    const char *common = how->san ? "server" : "test CA";
    X509_set_version(id.cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(id.cert), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(id.cert), how->from_days * 86400L);
    X509_gmtime_adj(X509_getm_notAfter(id.cert), how->to_days * 86400L);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)common, -1, -1, 0);
    X509_set_issuer_name(id.cert, how->issuer ? X509_get_subject_name(how->issuer->cert) : name);
    X509_set_pubkey(id.cert, id.key);
    extend(id.cert, NID_basic_constraints, how->san ? "critical,CA:FALSE" : "critical,CA:TRUE");
    if (how->san)
        extend(id.cert, NID_subject_alt_name, how->san);
    assert_true(X509_sign(id.cert, how->issuer ? how->issuer->key : id.key, EVP_sha256()) > 0);

    BIO *cert_bio = BIO_new(BIO_s_mem()), *key_bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(cert_bio, id.cert);
    PEM_write_bio_PrivateKey(key_bio, id.key, NULL, NULL, 0, NULL, NULL);
    id.cert_pem = pem_text(cert_bio);
    id.key_pem = pem_text(key_bio);
    return id;
}

static void identity_fini(struct identity *id)
{
    EVP_PKEY_free(id->key);
    X509_free(id->cert);
    free(id->cert_pem);
    free(id->key_pem);
}

static struct identity ca, other_ca, good, expired;

static struct rpc_pem pem(const char *name, const char *text)
{
    return (struct rpc_pem){.name = name, .data = text, .len = strlen(text)};
}

static struct rpc_tls_context *server_ctx(const struct identity *id)
{
    struct rpc_tls_context *ctx;
    struct rpc_pem cert = pem("cert", id->cert_pem), key = pem("key", id->key_pem);
    char why[RPC_WHY_CHARS];
    assert_int_equal(rpc_tls_context_create_server(&cert, &key, &ctx, why), 0);
    return ctx;
}

static struct rpc_tls_context *ca_ctx(const struct identity *id)
{
    struct rpc_tls_context *ctx;
    struct rpc_pem text = pem("ca", id->cert_pem);
    char why[RPC_WHY_CHARS];
    assert_int_equal(rpc_tls_context_create_client(&text, NULL, &ctx, why), 0);
    return ctx;
}

static struct rpc_tls_context *pin_ctx(const struct identity *id)
{
    struct rpc_tls_context *ctx;
    uint8_t pin[RPC_FINGERPRINT_BYTES];
    char why[RPC_WHY_CHARS];
    assert_int_equal(rpc_fingerprint_of(id->cert, pin), 0);
    assert_int_equal(rpc_tls_context_create_client(NULL, pin, &ctx, why), 0);
    return ctx;
}

/* ---- log lines ---- */

struct lines {
    int count;
    char last[HW_LOG_LINE_MAX];
};

static struct lines lines;

static void keep_line(void *user, const char *line, size_t len)
{
    struct lines *kept = user;
    kept->count++;
    snprintf(kept->last, sizeof kept->last, "%.*s", (int)len, line);
}

/* ---- connections ---- */

enum { SMALL_SOCKET_BUFFER = 32 << 10 }; /* so that a few records fill it */

static void tcp_pair(int fds[2], int buffer_bytes)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof addr;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (buffer_bytes) {
        setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
        setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
        setsockopt(fds[0], SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
        setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    }
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&addr, len), 0);
    fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fds[1] >= 0);
    close(listener);
}

struct link {
    struct rpc_transport *client;
    struct rpc_transport *server;
};

/* Takes the references to the contexts. */
static void wrap_both(struct link *l, const int fds[2], struct rpc_tls_context *client,
                      struct rpc_tls_context *server, const char *host)
{
    assert_int_equal(rpc_tls_wrap(fds[0], client, false, host, &l->client), 0);
    assert_int_equal(rpc_tls_wrap(fds[1], server, true, NULL, &l->server), 0);
    rpc_tls_context_unref(client);
    rpc_tls_context_unref(server);
}

static void link_init(struct link *l, struct rpc_tls_context *client,
                      struct rpc_tls_context *server, const char *host, int buffer_bytes)
{
    int fds[2];
    tcp_pair(fds, buffer_bytes);
    wrap_both(l, fds, client, server, host);
}

static void link_fini(struct link *l)
{
    rpc_transport_destroy(l->client);
    rpc_transport_destroy(l->server);
}

static bool up(struct rpc_transport *t)
{
    uint8_t binding[RPC_BINDING_BYTES];
    return t->ops->binding(t, binding) == 0;
}

/* Turns both ends until each is up or has failed. */
static void finish_handshakes(struct link *l)
{
    struct rpc_transport *ends[2] = {l->client, l->server};
    bool done[2] = {false, false};
    uint64_t deadline = hw_now_ns() + HANG_NS;
    while (!done[0] || !done[1]) {
        assert_true(hw_now_ns() < deadline);
        for (int i = 0; i < 2; i++)
            if (!done[i])
                done[i] = ends[i]->ops->wait(ends[i], RPC_WAIT_SEND, HW_MS) == 0;
    }
}

static void link_good(struct link *l, int buffer_bytes)
{
    link_init(l, pin_ctx(&good), server_ctx(&good), NULL, buffer_bytes);
    finish_handshakes(l);
    assert_true(up(l->client) && up(l->server));
}

static ssize_t recv_some(struct rpc_transport *t, void *buf, size_t len)
{
    struct iovec iov = {.iov_base = buf, .iov_len = len};
    return t->ops->recv(t, &iov, 1, HANG_NS);
}

static void recv_all(struct rpc_transport *t, void *buf, size_t len)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = recv_some(t, (uint8_t *)buf + got, len - got);
        assert_true(n > 0);
        got += (size_t)n;
    }
}

static void send_text(struct rpc_transport *t, const char *text)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    assert_int_equal(t->ops->send(t, &iov, 1), (ssize_t)strlen(text));
}

static void expect_text(struct rpc_transport *t, const char *text)
{
    char buf[256];
    assert_true(strlen(text) < sizeof buf);
    recv_all(t, buf, strlen(text));
    assert_memory_equal(buf, text, strlen(text));
}

static void expect_end(struct rpc_transport *t, int error)
{
    char byte;
    assert_int_equal(recv_some(t, &byte, 1), error);
    assert_int_equal(recv_some(t, &byte, 1), error); /* and it stays so */
    assert_int_equal(t->ops->arm(t, RPC_WAIT_RECV), 1);
    assert_int_equal(t->ops->wait(t, RPC_WAIT_RECV, HANG_NS), 0);
}

static void expect_refused(struct rpc_tls_context *client, struct rpc_tls_context *server,
                           const char *host, const char *words)
{
    struct link l;
    link_init(&l, client, server, host, 0);
    finish_handshakes(&l);
    expect_end(l.client, -EACCES);
    assert_non_null(reason(l.client));
    assert_non_null(strstr(reason(l.client), words));
    expect_end(l.server, -EACCES);
    assert_non_null(strstr(reason(l.server), "refused our certificate"));
    assert_int_equal(lines.count, 0); /* the endpoint above logs it, once */
    link_fini(&l);
}

/* ---- who is accepted ---- */

static void expect_accepted(struct rpc_tls_context *client, const char *host)
{
    struct link l;
    link_init(&l, client, server_ctx(&good), host, 0);
    finish_handshakes(&l);
    assert_true(up(l.client) && up(l.server));
    assert_null(reason(l.client));
    send_text(l.client, "ahoy");
    expect_text(l.server, "ahoy");
    send_text(l.server, "ahoy yourself");
    expect_text(l.client, "ahoy yourself");
    assert_int_equal(lines.count, 0);
    link_fini(&l);
}

static void ca_with_matching_name_is_accepted(void **state)
{
    (void)state;
    expect_accepted(ca_ctx(&ca), "gpu.example");
}

static void ca_with_matching_address_is_accepted(void **state)
{
    (void)state;
    expect_accepted(ca_ctx(&ca), "127.0.0.1");
    expect_accepted(ca_ctx(&ca), "fe80::1%eth0");
}

static void own_certificate_as_ca_is_accepted(void **state)
{
    (void)state;
    expect_accepted(ca_ctx(&good), "gpu.example");
}

static void pinned_fingerprint_is_accepted_whatever_the_name(void **state)
{
    (void)state;
    expect_accepted(pin_ctx(&good), "elsewhere.example");
    expect_accepted(pin_ctx(&good), NULL);
}

static void other_fingerprint_is_refused_and_both_are_shown(void **state)
{
    (void)state;
    uint8_t digest[RPC_FINGERPRINT_BYTES];
    char text[RPC_FINGERPRINT_CHARS];
    assert_int_equal(rpc_fingerprint_of(good.cert, digest), 0);
    rpc_fingerprint_format(digest, text);
    expect_refused(pin_ctx(&expired), server_ctx(&good), NULL, text);
    lines.count = 0;
    assert_int_equal(rpc_fingerprint_of(expired.cert, digest), 0);
    rpc_fingerprint_format(digest, text);
    expect_refused(pin_ctx(&expired), server_ctx(&good), NULL, text);
}

static void other_ca_is_refused(void **state)
{
    (void)state;
    expect_refused(ca_ctx(&other_ca), server_ctx(&good), "gpu.example", "not trusted");
}

static void other_name_is_refused_and_the_names_are_shown(void **state)
{
    (void)state;
    expect_refused(ca_ctx(&ca), server_ctx(&good), "evil.example",
                   "not for evil.example, it is for gpu.example, 127.0.0.1");
}

static void other_address_is_refused(void **state)
{
    (void)state;
    expect_refused(ca_ctx(&ca), server_ctx(&good), "127.0.0.2", "not for 127.0.0.2");
}

static struct rpc_tls_context *expired_server(void)
{
    struct rpc_tls_context *ctx = server_ctx(&expired);
    assert_int_equal(lines.count, 1); /* the server is told when it loads it */
    assert_non_null(strstr(lines.last, "clients will refuse it"));
    lines.count = 0;
    return ctx;
}

static void expired_certificate_is_refused(void **state)
{
    (void)state;
    expect_refused(ca_ctx(&ca), expired_server(), "gpu.example", "expired");
    lines.count = 0;
    expect_refused(pin_ctx(&expired), expired_server(), NULL, "expired");
}

static void both_ca_and_fingerprint_must_hold(void **state)
{
    (void)state;
    struct rpc_tls_context *ctx;
    struct rpc_pem text = pem("ca", other_ca.cert_pem);
    uint8_t pin[RPC_FINGERPRINT_BYTES];
    char why[RPC_WHY_CHARS];
    assert_int_equal(rpc_fingerprint_of(good.cert, pin), 0);
    assert_int_equal(rpc_tls_context_create_client(&text, pin, &ctx, why), 0);
    expect_refused(ctx, server_ctx(&good), "gpu.example", "not trusted");
    assert_int_equal(rpc_tls_context_create_client(NULL, NULL, &ctx, why), -EINVAL);
}

static void wrong_use_is_refused_and_the_socket_closed(void **state)
{
    (void)state;
    struct rpc_tls_context *client = ca_ctx(&ca);
    struct rpc_transport *t = NULL;
    int fds[2];
    tcp_pair(fds, 0);
    assert_int_equal(rpc_tls_wrap(fds[0], client, false, NULL, &t), -EINVAL); /* CA needs a name */
    assert_int_equal(rpc_tls_wrap(fds[1], client, true, NULL, &t), -EINVAL);  /* wrong role */
    assert_null(t);
    assert_int_equal(fcntl(fds[0], F_GETFD), -1);
    assert_int_equal(fcntl(fds[1], F_GETFD), -1);
    rpc_tls_context_unref(client);
}

/* ---- who does not speak TLS 1.3 ---- */

/* One end is TLS, the other what the test makes of a bare socket. */
struct half {
    struct rpc_transport *tls;
    int raw;
};

static void half_init(struct half *h, bool accepting)
{
    int fds[2];
    struct rpc_tls_context *ctx = accepting ? server_ctx(&good) : pin_ctx(&good);
    tcp_pair(fds, 0);
    assert_int_equal(rpc_tls_wrap(fds[accepting], ctx, accepting, NULL, &h->tls), 0);
    h->raw = fds[!accepting];
    rpc_tls_context_unref(ctx);
}

static void half_fini(struct half *h)
{
    rpc_transport_destroy(h->tls);
    if (h->raw >= 0)
        close(h->raw);
}

static void plain_client_on_a_tls_port_is_named_as_such(void **state)
{
    (void)state;
    struct half h;
    half_init(&h, true);
    assert_int_equal(write(h.raw, "HWSR", 4), 4);
    expect_end(h.tls, -EPROTO);
    assert_non_null(strstr(reason(h.tls), "plain client on a TLS port"));
    half_fini(&h);
}

static void plain_server_is_named_as_such(void **state)
{
    (void)state;
    struct half h;
    half_init(&h, false);
    assert_int_equal(write(h.raw, "HWSR", 4), 4);
    expect_end(h.tls, -EPROTO);
    assert_non_null(strstr(reason(h.tls), "the server does not speak TLS"));
    half_fini(&h);
}

static void garbage_that_opens_like_tls_is_refused(void **state)
{
    (void)state;
    static const uint8_t garbage[] = {22, 3, 1, 0, 5, 9, 9, 9, 9, 9};
    struct half h;
    half_init(&h, true);
    assert_int_equal(write(h.raw, garbage, sizeof garbage), sizeof garbage);
    expect_end(h.tls, -EPROTO);
    assert_non_null(reason(h.tls));
    half_fini(&h);
}

static void tls_1_2_is_refused(void **state)
{
    (void)state;
    struct half h;
    half_init(&h, true);
    SSL_CTX *old = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(old, TLS1_2_VERSION);
    SSL *ssl = SSL_new(old);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    assert_int_equal(SSL_connect(ssl), -1);
    char *hello;
    long len = BIO_get_mem_data(SSL_get_wbio(ssl), &hello);
    assert_int_equal(write(h.raw, hello, (size_t)len), len);
    expect_end(h.tls, -EPROTO);
    SSL_free(ssl);
    SSL_CTX_free(old);
    half_fini(&h);
}

static void silent_peer_times_out(void **state)
{
    (void)state;
    struct half h;
    char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    half_init(&h, true);
    assert_int_equal(h.tls->ops->wait(h.tls, RPC_WAIT_RECV | RPC_WAIT_SEND, HW_MS), -ETIMEDOUT);
    assert_int_equal(h.tls->ops->recv(h.tls, &iov, 1, HW_MS), -EAGAIN);
    assert_int_equal(h.tls->ops->recv(h.tls, &iov, 1, 0), -EAGAIN);
    assert_int_equal(h.tls->ops->arm(h.tls, RPC_WAIT_RECV), 0);
    half_fini(&h);
}

/* An owner that sleeps on the descriptor must not have bytes blocked meanwhile. */
static void bytes_sent_before_the_handshake_wait_for_its_end(void **state)
{
    (void)state;
    static uint8_t out[RPC_TLS_RECORD_BYTES + 1], in[RPC_TLS_RECORD_BYTES];
    struct iovec iov = {.iov_base = out, .iov_len = sizeof out};
    struct link l;
    memset(out, 7, sizeof out);
    link_init(&l, pin_ctx(&good), server_ctx(&good), NULL, 0);
    assert_int_equal(l.server->ops->send(l.server, &iov, 1), RPC_TLS_RECORD_BYTES);
    iov.iov_len = 1;
    assert_int_equal(l.server->ops->send(l.server, &iov, 1), -EAGAIN);
    finish_handshakes(&l);
    recv_all(l.client, in, sizeof in);
    assert_memory_equal(in, out, sizeof in);
    send_text(l.server, "after");
    expect_text(l.client, "after");
    link_fini(&l);
}

static void end_during_the_handshake_is_a_reset(void **state)
{
    (void)state;
    struct half h;
    half_init(&h, true);
    assert_int_equal(write(h.raw, "\x16\x03", 2), 2);
    close(h.raw);
    h.raw = -1;
    expect_end(h.tls, -ECONNRESET);
    assert_non_null(reason(h.tls));
    half_fini(&h);
}

/* ---- how it ends ---- */

static void close_notify_is_an_orderly_end_after_the_data(void **state)
{
    (void)state;
    struct link l;
    link_good(&l, 0);
    send_text(l.server, "last words");
    rpc_transport_destroy(l.server);
    expect_text(l.client, "last words");
    expect_end(l.client, -ESHUTDOWN);
    rpc_transport_destroy(l.client);
}

static void truncated_stream_is_told_after_the_data(void **state)
{
    (void)state;
    struct link l;
    link_good(&l, 0);
    send_text(l.server, "last wor");
    assert_int_equal(shutdown(l.server->ops->poll_fd(l.server), SHUT_WR), 0);
    expect_text(l.client, "last wor");
    expect_end(l.client, -EPIPE);
    link_fini(&l);
}

static void sending_to_a_dead_peer_is_an_error_not_a_signal(void **state)
{
    (void)state;
    struct link l;
    char byte = 'x';
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    link_good(&l, 0);
    send_text(l.client, "unread, so that closing resets");
    rpc_transport_destroy(l.server);
    ssize_t n;
    uint64_t deadline = hw_now_ns() + HANG_NS;
    do
        n = l.client->ops->send(l.client, &iov, 1);
    while (n > 0 && hw_now_ns() < deadline);
    assert_true(n == -EPIPE || n == -ECONNRESET);
    rpc_transport_destroy(l.client);
}

/* ---- between the ends ---- */

/* Both ends are TLS, and the test carries the bytes between them. */
struct relay {
    struct link l;
    int client_side;
    int server_side;
};

static size_t carry(int from, int to, int flags)
{
    uint8_t buf[4096];
    ssize_t n = recv(from, buf, sizeof buf, flags);
    if (n > 0)
        assert_int_equal(send(to, buf, (size_t)n, MSG_NOSIGNAL), n);
    return n > 0 ? (size_t)n : 0;
}

/* Takes the reference to the client's context. */
static void relay_init(struct relay *r, struct rpc_tls_context *client_ctx)
{
    int client[2], server[2];
    uint64_t deadline = hw_now_ns() + HANG_NS;
    tcp_pair(client, 0);
    tcp_pair(server, 0);
    wrap_both(&r->l, (int[2]){client[0], server[1]}, client_ctx, server_ctx(&good), NULL);
    r->client_side = client[1];
    r->server_side = server[0];
    while (!up(r->l.client) || !up(r->l.server)) {
        assert_true(hw_now_ns() < deadline);
        (void)r->l.client->ops->wait(r->l.client, RPC_WAIT_RECV, 0);
        carry(r->client_side, r->server_side, MSG_DONTWAIT);
        (void)r->l.server->ops->wait(r->l.server, RPC_WAIT_RECV, 0);
        carry(r->server_side, r->client_side, MSG_DONTWAIT);
    }
}

static void relay_fini(struct relay *r)
{
    link_fini(&r->l);
    close(r->client_side);
    close(r->server_side);
}

static size_t take_record(struct relay *r, uint8_t *buf, size_t size)
{
    ssize_t n = recv(r->client_side, buf, size, 0);
    assert_true(n > 5);
    return (size_t)n;
}

static void part_of_a_record_neither_succeeds_nor_spins(void **state)
{
    (void)state;
    struct relay r;
    uint8_t record[256];
    char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    relay_init(&r, pin_ctx(&good));
    send_text(r.l.client, "whole");
    size_t len = take_record(&r, record, sizeof record);
    assert_int_equal(send(r.server_side, record, len - 1, 0), (ssize_t)len - 1);
    assert_int_equal(r.l.server->ops->wait(r.l.server, RPC_WAIT_RECV, HANG_NS), 0);
    assert_int_equal(r.l.server->ops->recv(r.l.server, &iov, 1, 0), -EAGAIN);
    assert_int_equal(r.l.server->ops->arm(r.l.server, RPC_WAIT_RECV), 0);
    assert_int_equal(r.l.server->ops->wait(r.l.server, RPC_WAIT_RECV, HW_MS), -ETIMEDOUT);
    assert_int_equal(send(r.server_side, record + len - 1, 1, 0), 1);
    expect_text(r.l.server, "whole");
    relay_fini(&r);
}

static void changed_byte_is_a_broken_protocol(void **state)
{
    (void)state;
    struct relay r;
    uint8_t record[256];
    relay_init(&r, pin_ctx(&good));
    send_text(r.l.client, "a hundred dollars");
    size_t len = take_record(&r, record, sizeof record);
    record[len - 3] ^= 1;
    assert_int_equal(send(r.server_side, record, len, 0), (ssize_t)len);
    expect_end(r.l.server, -EPROTO);
    assert_non_null(strstr(reason(r.l.server), "TLS failed"));
    assert_true(carry(r.server_side, r.client_side, 0) > 0); /* the alert */
    expect_end(r.l.client, -EPROTO);
    assert_non_null(strstr(reason(r.l.client), "alert"));
    relay_fini(&r);
}

/* ---- bytes ---- */

static uint8_t pattern(size_t at, unsigned seed)
{
    return (uint8_t)(at * 31 + (at >> 8) * 7 + (at >> 16) + seed);
}

static void arm_sees_what_is_already_decrypted(void **state)
{
    (void)state;
    struct link l;
    link_good(&l, 0);
    assert_int_equal(l.client->ops->arm(l.client, RPC_WAIT_RECV), 0);
    send_text(l.server, "one");
    send_text(l.server, "two");
    expect_text(l.client, "on");
    assert_int_equal(l.client->ops->arm(l.client, RPC_WAIT_RECV), 1);
    assert_int_equal(l.client->ops->wait(l.client, RPC_WAIT_RECV, 0), 0);
    expect_text(l.client, "etwo");
    assert_int_equal(l.client->ops->arm(l.client, RPC_WAIT_RECV), 0);
    link_fini(&l);
}

static void one_byte_segments_arrive_whole(void **state)
{
    (void)state;
    struct link l;
    uint8_t out[RPC_IOV_MAX], in[RPC_IOV_MAX];
    struct iovec send_iov[RPC_IOV_MAX], recv_iov[RPC_IOV_MAX];
    link_good(&l, 0);
    for (int i = 0; i < RPC_IOV_MAX; i++) {
        out[i] = pattern((size_t)i, 5);
        send_iov[i] = (struct iovec){.iov_base = &out[i], .iov_len = i % 3 != 2};
        recv_iov[i] = (struct iovec){.iov_base = &in[i], .iov_len = 1};
    }
    ssize_t sent = l.client->ops->send(l.client, send_iov, RPC_IOV_MAX);
    assert_int_equal(sent, 11); /* segments 2, 5, 8, 11 and 14 are empty */
    ssize_t got = l.server->ops->recv(l.server, recv_iov, RPC_IOV_MAX, HANG_NS);
    assert_int_equal(got, sent); /* one record, so one read */
    for (int i = 0, at = 0; i < RPC_IOV_MAX; i++)
        if (i % 3 != 2)
            assert_int_equal(in[at++], out[i]);
    link_fini(&l);
}

/* A sender that is stopped, goes on with the same bytes and others behind them, in other pieces;
 * the reader must see the stream as it was. */
static void full_socket_loses_and_repeats_nothing(void **state)
{
    (void)state;
    enum { TOTAL = 4 << 20 };
    struct link l;
    uint8_t *out = malloc(TOTAL), *in = malloc(TOTAL);
    size_t sent = 0, got = 0, offered = 1000, stops = 0;
    link_good(&l, SMALL_SOCKET_BUFFER);
    for (size_t i = 0; i < TOTAL; i++)
        out[i] = pattern(i, 1);
    while (got < TOTAL) {
        size_t left = TOTAL - sent, len = offered < left ? offered : left, cut = len / 3;
        struct iovec iov[2] = {{.iov_base = out + sent, .iov_len = cut},
                               {.iov_base = out + sent + cut, .iov_len = len - cut}};
        ssize_t n = len > 0 ? l.client->ops->send(l.client, iov, 2) : -EAGAIN;
        assert_true(n > 0 || n == -EAGAIN);
        sent += n > 0 ? (size_t)n : 0;
        offered = offered * 5 / 3 % 300000 + 1;
        if (n > 0 && (size_t)n == len && sent < TOTAL)
            continue;
        stops++;
        struct iovec room = {.iov_base = in + got, .iov_len = TOTAL - got};
        n = l.server->ops->recv(l.server, &room, 1, sent == TOTAL ? HANG_NS : 0);
        assert_true(n > 0 || n == -EAGAIN);
        got += n > 0 ? (size_t)n : 0;
    }
    assert_true(stops > 10);
    assert_memory_equal(in, out, TOTAL);
    link_fini(&l);
    free(out);
    free(in);
}

/* Sends until nothing more fits; what was taken. */
static size_t send_until_full(struct rpc_transport *t, uint8_t *out, size_t len)
{
    size_t sent = 0;
    ssize_t n;
    do {
        struct iovec iov = {.iov_base = out + sent, .iov_len = len - sent};
        n = t->ops->send(t, &iov, 1);
        sent += n > 0 ? (size_t)n : 0;
    } while (n > 0 && sent < len);
    assert_int_equal(n, -EAGAIN);
    return sent;
}

/* Rounds of recv in which nothing comes: a sender that TCP's window stopped tries again later. */
enum { QUIET_ROUNDS = 20, QUIET_NS = 20 * HW_MS };

/* What send could not write goes out through recv, but for the record of the byte that send held
 * back: until it is reported, whoever resumes counts on it that the peer lacks it. */
static void byte_that_is_held_back_waits_for_the_next_send(void **state)
{
    (void)state;
    struct link l;
    static uint8_t out[1 << 20], in[1 << 20];
    char byte;
    struct iovec none = {.iov_base = &byte, .iov_len = 1};
    struct iovec room = {.iov_base = in, .iov_len = sizeof in};
    link_good(&l, SMALL_SOCKET_BUFFER);
    size_t sent = send_until_full(l.client, out, sizeof out), got = 0;
    size_t others = sent + 1 - RPC_TLS_RECORD_BYTES; /* in the records before that one */
    while (got < others) {
        assert_int_equal(l.client->ops->recv(l.client, &none, 1, 0), -EAGAIN);
        ssize_t n = l.server->ops->recv(l.server, &room, 1, HW_MS);
        assert_true(n > 0 || n == -EAGAIN);
        got += n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(got, others);
    for (int i = 0; i < QUIET_ROUNDS; i++) {
        assert_int_equal(l.client->ops->recv(l.client, &none, 1, 0), -EAGAIN);
        assert_int_equal(l.client->ops->wait(l.client, RPC_WAIT_RECV, 0), -ETIMEDOUT);
        assert_int_equal(l.server->ops->recv(l.server, &room, 1, QUIET_NS), -EAGAIN);
    }
    assert_int_equal(l.client->ops->wait(l.client, RPC_WAIT_SEND, HANG_NS), 0);
    struct iovec again = {.iov_base = out + sent, .iov_len = 1};
    assert_int_equal(l.client->ops->send(l.client, &again, 1), 1);
    recv_all(l.server, in, sent + 1 - got);
    link_fini(&l);
}

struct redial {
    struct rpc_transport *receiver;
    struct link next;
};

static int dial_next(void *user, struct rpc_transport **out)
{
    struct redial *r = user;
    if (!r->next.client)
        return -ENOENT;
    *out = r->next.client;
    rpc_pipe_give(r->receiver, r->next.server);
    r->next = (struct link){0};
    return 0;
}

/* A connection is cut while send holds a byte back; the receiver then says what it has. */
static void pipe_over_tls_resumes_at_a_byte_that_is_held_back(void **state)
{
    (void)state;
    static uint8_t out[1 << 20], in[1 << 20];
    struct link l;
    struct redial redial;
    struct rpc_transport *from, *to;
    link_good(&l, SMALL_SOCKET_BUFFER);
    link_good(&redial.next, 0);
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = pattern(i, 3);
    assert_int_equal(rpc_pipe_sender(l.client, dial_next, &redial, &from), 0);
    assert_int_equal(rpc_pipe_receiver(l.server, &to), 0);
    redial.receiver = to;
    size_t sent = send_until_full(from, out, sizeof out), got = 0;
    for (int quiet = 0; quiet < QUIET_ROUNDS;) { /* the sender's thread is slow to come back */
        struct iovec room = {.iov_base = in + got, .iov_len = sizeof in - got};
        (void)from->ops->wait(from, RPC_WAIT_RECV, 0);
        ssize_t n = to->ops->recv(to, &room, 1, QUIET_NS);
        assert_true(n > 0 || n == -EAGAIN);
        got += n > 0 ? (size_t)n : 0;
        quiet = n > 0 ? 0 : quiet + 1;
    }
    assert_int_equal(rpc_pipe_tend(from, true), 0);
    while (got < sizeof out) {
        struct iovec rest = {.iov_base = out + sent, .iov_len = sizeof out - sent};
        struct iovec room = {.iov_base = in + got, .iov_len = sizeof in - got};
        ssize_t n = from->ops->send(from, &rest, 1);
        assert_true(n > 0 || n == -EAGAIN);
        sent += n > 0 ? (size_t)n : 0;
        n = to->ops->recv(to, &room, 1, HW_MS);
        assert_true(n > 0 || n == -EAGAIN);
        got += n > 0 ? (size_t)n : 0;
    }
    assert_memory_equal(in, out, sizeof out);
    rpc_transport_destroy(from);
    rpc_transport_destroy(to);
}

static void keys_are_renewed_on_the_way(void **state)
{
    (void)state;
    enum { ONE_BYTE_RECORD = 5 + 1 + 1 + 16, KEY_UPDATE_RECORD = 5 + 5 + 1 + 16 };
    struct rpc_tls_context *client = pin_ctx(&good);
    struct relay r;
    rpc_tls_context_set_rekey(client, 3);
    relay_init(&r, client);
    for (int i = 1; i <= 7; i++) {
        send_text(r.l.client, "x");
        assert_int_equal(carry(r.client_side, r.server_side, 0),
                         ONE_BYTE_RECORD + (i % 3 == 0 ? KEY_UPDATE_RECORD : 0));
        expect_text(r.l.server, "x");
    }
    relay_fini(&r);
}

static void binding_is_shared_by_the_ends_of_one_channel_only(void **state)
{
    (void)state;
    struct link l[2];
    uint8_t client[2][RPC_BINDING_BYTES], server[2][RPC_BINDING_BYTES];
    for (int i = 0; i < 2; i++) {
        link_init(&l[i], pin_ctx(&good), server_ctx(&good), NULL, 0);
        assert_int_equal(l[i].client->ops->binding(l[i].client, client[i]), -EAGAIN);
        finish_handshakes(&l[i]);
        assert_int_equal(l[i].client->ops->binding(l[i].client, client[i]), 0);
        assert_int_equal(l[i].server->ops->binding(l[i].server, server[i]), 0);
        assert_memory_equal(client[i], server[i], RPC_BINDING_BYTES);
    }
    assert_memory_not_equal(client[0], client[1], RPC_BINDING_BYTES);
    link_fini(&l[0]);
    link_fini(&l[1]);
}

/* ---- two threads at each end ---- */

enum { STREAM_BYTES = 6 << 20 };

struct stream {
    struct rpc_transport *t;
    unsigned seed;
    size_t done;
    bool intact;
};

static void *write_stream(void *arg)
{
    struct stream *s = arg;
    static const size_t pieces[] = {1, 63, 40000, 16384, 200000, 5};
    uint8_t *data = malloc(STREAM_BYTES);
    uint64_t deadline = hw_now_ns() + HANG_NS;
    for (size_t i = 0; i < STREAM_BYTES; i++)
        data[i] = pattern(i, s->seed);
    while (s->done < STREAM_BYTES && hw_now_ns() < deadline) {
        struct iovec iov[ARRAY_LEN(pieces)];
        int count = 0;
        size_t at = s->done;
        for (size_t i = 0; i < ARRAY_LEN(pieces) && at < STREAM_BYTES; i++) {
            size_t len = pieces[i] < STREAM_BYTES - at ? pieces[i] : STREAM_BYTES - at;
            iov[count++] = (struct iovec){.iov_base = data + at, .iov_len = len};
            at += len;
        }
        ssize_t n = s->t->ops->send(s->t, iov, count);
        if (n > 0)
            s->done += (size_t)n;
        else if (n != -EAGAIN)
            break;
        else
            sched_yield();
    }
    free(data);
    return NULL;
}

static void *read_stream(void *arg)
{
    struct stream *s = arg;
    uint8_t *buf = malloc(70000);
    s->intact = true;
    while (s->done < STREAM_BYTES) {
        struct iovec iov[2] = {{.iov_base = buf, .iov_len = 7},
                               {.iov_base = buf + 7, .iov_len = 69993}};
        (void)s->t->ops->wait(s->t, RPC_WAIT_RECV, HANG_NS);
        ssize_t n = s->t->ops->recv(s->t, iov, 2, HANG_NS);
        if (n <= 0)
            break;
        for (ssize_t i = 0; i < n; i++)
            s->intact &= buf[i] == pattern(s->done + (size_t)i, s->seed);
        s->done += (size_t)n;
    }
    free(buf);
    return NULL;
}

/* Nobody has turned the handshake before the threads start: send and recv do it between them. */
static void both_directions_at_once_from_two_threads(void **state)
{
    (void)state;
    struct link l;
    link_init(&l, ca_ctx(&ca), server_ctx(&good), "gpu.example", 256 << 10);
    struct stream streams[4] = {{.t = l.client, .seed = 1},
                                {.t = l.server, .seed = 1},
                                {.t = l.server, .seed = 2},
                                {.t = l.client, .seed = 2}};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, i % 2 ? read_stream : write_stream, &streams[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(streams[i].done, STREAM_BYTES);
    assert_true(streams[1].intact && streams[3].intact);
    link_fini(&l);
}

/* ---- */

static int group_setup(void **state)
{
    (void)state;
    const char *names = "DNS:gpu.example,IP:127.0.0.1,IP:fe80::1";
    ca = issue(&(struct issue){.from_days = -1, .to_days = 10});
    other_ca = issue(&(struct issue){.from_days = -1, .to_days = 10});
    good = issue(&(struct issue){.san = names, .issuer = &ca, .from_days = -1, .to_days = 10});
    expired = issue(&(struct issue){.san = names, .issuer = &ca, .from_days = -9, .to_days = -2});
    hw_log_set_sink(keep_line, &lines);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    hw_log_set_sink(NULL, NULL);
    identity_fini(&ca);
    identity_fini(&other_ca);
    identity_fini(&good);
    identity_fini(&expired);
    return 0;
}

static int forget_lines(void **state)
{
    (void)state;
    lines.count = 0;
    return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, forget_lines)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ca_with_matching_name_is_accepted),
        TEST(ca_with_matching_address_is_accepted),
        TEST(own_certificate_as_ca_is_accepted),
        TEST(pinned_fingerprint_is_accepted_whatever_the_name),
        TEST(other_fingerprint_is_refused_and_both_are_shown),
        TEST(other_ca_is_refused),
        TEST(other_name_is_refused_and_the_names_are_shown),
        TEST(other_address_is_refused),
        TEST(expired_certificate_is_refused),
        TEST(both_ca_and_fingerprint_must_hold),
        TEST(wrong_use_is_refused_and_the_socket_closed),
        TEST(plain_client_on_a_tls_port_is_named_as_such),
        TEST(plain_server_is_named_as_such),
        TEST(garbage_that_opens_like_tls_is_refused),
        TEST(tls_1_2_is_refused),
        TEST(silent_peer_times_out),
        TEST(bytes_sent_before_the_handshake_wait_for_its_end),
        TEST(end_during_the_handshake_is_a_reset),
        TEST(close_notify_is_an_orderly_end_after_the_data),
        TEST(truncated_stream_is_told_after_the_data),
        TEST(sending_to_a_dead_peer_is_an_error_not_a_signal),
        TEST(part_of_a_record_neither_succeeds_nor_spins),
        TEST(changed_byte_is_a_broken_protocol),
        TEST(arm_sees_what_is_already_decrypted),
        TEST(one_byte_segments_arrive_whole),
        TEST(full_socket_loses_and_repeats_nothing),
        TEST(byte_that_is_held_back_waits_for_the_next_send),
        TEST(pipe_over_tls_resumes_at_a_byte_that_is_held_back),
        TEST(keys_are_renewed_on_the_way),
        TEST(binding_is_shared_by_the_ends_of_one_channel_only),
        TEST(both_directions_at_once_from_two_threads),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
