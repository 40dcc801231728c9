#include "rpc/security/tlsctx.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

enum {
    /* One recv fetches several records; a power of two plus room for the record cut at its end. */
    READ_BUFFER_BYTES = (128 << 10) + SSL3_RT_MAX_PACKET_SIZE,
    DATE_CHARS = 16
};

struct rpc_tls_context {
    SSL_CTX *ssl;
    bool server;
    bool has_ca;
    bool has_pin;
    uint8_t pin[RPC_FINGERPRINT_BYTES];
    uint64_t rekey_records;
    /* Release on the way down, acquire by the last: what other holders did with the context
     * happens before it is freed. */
    _Atomic unsigned refs;
};

/* ---- the client's check ---- */

void rpc_fingerprint_format(const uint8_t fingerprint[RPC_FINGERPRINT_BYTES],
                            char text[RPC_FINGERPRINT_CHARS])
{
    for (int i = 0; i < RPC_FINGERPRINT_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", fingerprint[i]);
}

int rpc_fingerprint_of(const X509 *certificate, uint8_t fingerprint[RPC_FINGERPRINT_BYTES])
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    if (!X509_digest(certificate, EVP_sha256(), digest, &len))
        return -ENOMEM;
    assert(len == RPC_FINGERPRINT_BYTES);
    memcpy(fingerprint, digest, RPC_FINGERPRINT_BYTES);
    return 0;
}

static void format_date(const ASN1_TIME *when, char text[DATE_CHARS])
{
    struct tm tm;
    if (!ASN1_TIME_to_tm(when, &tm) || strftime(text, DATE_CHARS, "%Y-%m-%d", &tm) == 0)
        snprintf(text, DATE_CHARS, "?");
}

/* X509_V_OK, or the error that says what is wrong with the dates. */
static int check_dates(const X509 *leaf)
{
    /* The comparison gives 0 for a date that it cannot read. */
    if (X509_cmp_current_time(X509_get0_notBefore(leaf)) >= 0)
        return X509_V_ERR_CERT_NOT_YET_VALID;
    if (X509_cmp_current_time(X509_get0_notAfter(leaf)) <= 0)
        return X509_V_ERR_CERT_HAS_EXPIRED;
    return X509_V_OK;
}

/* One subject alternative name as text.  The certificate is the peer's: lengths are checked and
 * what is not printable is masked. */
static void format_name(const GENERAL_NAME *name, char text[RPC_ADDR_HOST_CHARS])
{
    snprintf(text, RPC_ADDR_HOST_CHARS, "?");
    if (name->type == GEN_DNS) {
        const ASN1_STRING *dns = name->d.dNSName;
        snprintf(text, RPC_ADDR_HOST_CHARS, "%.*s", ASN1_STRING_length(dns),
                 (const char *)ASN1_STRING_get0_data(dns));
        for (char *c = text; *c; c++)
            if (*c < ' ' || *c > '~')
                *c = '?';
    } else if (name->type == GEN_IPADD) {
        const ASN1_STRING *ip = name->d.iPAddress;
        int len = ASN1_STRING_length(ip);
        if (len == 4 || len == 16)
            inet_ntop(len == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(ip), text,
                      RPC_ADDR_HOST_CHARS);
    }
}

/* The names a certificate is for, "a, b, ..." as far as they fit. */
static void list_names(const X509 *leaf, char *text, size_t size)
{
    snprintf(text, size, "nothing");
    GENERAL_NAMES *names = X509_get_ext_d2i(leaf, NID_subject_alt_name, NULL, NULL);
    size_t used = 0;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        char one[RPC_ADDR_HOST_CHARS];
        format_name(sk_GENERAL_NAME_value(names, i), one);
        int n = snprintf(text + used, size - used, "%s%s", used ? ", " : "", one);
        if (n < 0 || (size_t)n >= size - used)
            break;
        used += (size_t)n;
    }
    GENERAL_NAMES_free(names);
}

static void refuse_fingerprint(const struct rpc_tls_context *ctx,
                               const uint8_t seen[RPC_FINGERPRINT_BYTES],
                               struct rpc_tls_check *check)
{
    char expected_text[RPC_FINGERPRINT_CHARS], seen_text[RPC_FINGERPRINT_CHARS];
    rpc_fingerprint_format(ctx->pin, expected_text);
    rpc_fingerprint_format(seen, seen_text);
    snprintf(check->why, sizeof check->why,
             "the server's certificate has fingerprint %s, expected is %s", seen_text,
             expected_text);
}

static void refuse_certificate(const X509 *leaf, int error, struct rpc_tls_check *check)
{
    char date[DATE_CHARS], names[128];
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        format_date(X509_get0_notAfter(leaf), date);
        snprintf(check->why, sizeof check->why,
                 "the server's certificate (or its CA) has expired, it was valid until %s", date);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        format_date(X509_get0_notBefore(leaf), date);
        snprintf(check->why, sizeof check->why,
                 "the server's certificate is valid from %s only; is the clock right?", date);
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        list_names(leaf, names, sizeof names);
        snprintf(check->why, sizeof check->why,
                 "the server's certificate is not for %.60s, it is for %s", check->host, names);
        break;
    default:
        snprintf(check->why, sizeof check->why,
                 "the server's certificate is not trusted: %s; give its CA or its fingerprint",
                 X509_verify_cert_error_string(error));
    }
}

/* Replaces OpenSSL's own verification.  1 accepts. */
static int check_server(X509_STORE_CTX *store, void *arg)
{
    const struct rpc_tls_context *ctx = arg;
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct rpc_tls_check *check = SSL_get_app_data(ssl);
    const X509 *leaf = X509_STORE_CTX_get0_cert(store);
    uint8_t seen[RPC_FINGERPRINT_BYTES] = {0};
    int error = X509_V_OK;

    assert(ctx->has_pin || ctx->has_ca);
    if (ctx->has_pin &&
        (rpc_fingerprint_of(leaf, seen) != 0 || memcmp(seen, ctx->pin, sizeof seen) != 0)) {
        error = X509_V_ERR_CERT_UNTRUSTED;
        refuse_fingerprint(ctx, seen, check);
    } else {
        if (!ctx->has_ca)
            error = check_dates(leaf);
        else if (X509_verify_cert(store) != 1)
            error = X509_STORE_CTX_get_error(store);
        if (error != X509_V_OK)
            refuse_certificate(leaf, error, check);
    }
    X509_STORE_CTX_set_error(store, error);
    if (error != X509_V_OK)
        check->error = -EACCES;
    return error == X509_V_OK;
}

/* ---- contexts ---- */

/* AES-GCM is the faster one where the CPU has instructions for it, by far the slower elsewhere. */
static bool cpu_has_aes(void)
{
#if defined(__aarch64__)
    return getauxval(AT_HWCAP) & HWCAP_AES;
#elif defined(__x86_64__)
    return __builtin_cpu_supports("aes");
#else
    return false;
#endif
}

static const char *cipher_suites(void)
{
    return cpu_has_aes()
               ? "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384"
               : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384";
}

static struct rpc_tls_context *context_new(bool server)
{
    struct rpc_tls_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return NULL;
    ctx->server = server;
    ctx->rekey_records = RPC_TLS_REKEY_RECORDS;
    atomic_init(&ctx->refs, 1);
    ctx->ssl = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (!ctx->ssl || !SSL_CTX_set_min_proto_version(ctx->ssl, TLS1_3_VERSION) ||
        !SSL_CTX_set_max_proto_version(ctx->ssl, TLS1_3_VERSION) ||
        !SSL_CTX_set_ciphersuites(ctx->ssl, cipher_suites()) ||
        !SSL_CTX_set_num_tickets(ctx->ssl, 0)) {
        rpc_tls_context_unref(ctx);
        return NULL;
    }
    /* A client without AES instructions lists ChaCha20 first, and then gets it. */
    SSL_CTX_set_options(ctx->ssl, SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                      SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_session_cache_mode(ctx->ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_read_buffer_len(ctx->ssl, READ_BUFFER_BYTES);
    return ctx;
}

struct rpc_tls_context *rpc_tls_context_ref(struct rpc_tls_context *ctx)
{
    atomic_fetch_add_explicit(&ctx->refs, 1, memory_order_relaxed);
    return ctx;
}

void rpc_tls_context_unref(struct rpc_tls_context *ctx)
{
    if (!ctx || atomic_fetch_sub_explicit(&ctx->refs, 1, memory_order_acq_rel) != 1)
        return;
    SSL_CTX_free(ctx->ssl);
    free(ctx);
}

void rpc_tls_context_set_rekey(struct rpc_tls_context *ctx, uint64_t records)
{
    assert(records > 0);
    ctx->rekey_records = records;
}

uint64_t rpc_tls_context_rekey(const struct rpc_tls_context *ctx)
{
    return ctx->rekey_records;
}

static BIO *pem_open(const struct rpc_pem *pem)
{
    return pem->len <= INT32_MAX ? BIO_new_mem_buf(pem->data, (int)pem->len) : NULL;
}

static int no_passphrase(char *buf, int size, int writing, void *user)
{
    (void)buf, (void)size, (void)writing;
    *(bool *)user = true;
    return -1;
}

static void warn_of_dates(const struct rpc_pem *pem, const X509 *certificate)
{
    char date[DATE_CHARS];
    if (check_dates(certificate) == X509_V_OK)
        return;
    format_date(X509_get0_notAfter(certificate), date);
    hw_warn(HW_CAT_NET, "%s: not valid today (until %s): clients will refuse it", pem->name, date);
}

static int use_certificate(SSL_CTX *ssl, const struct rpc_pem *pem, char why[RPC_WHY_CHARS])
{
    BIO *bio = pem_open(pem);
    X509 *leaf = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    int rc = 0;
    if (!leaf || SSL_CTX_use_certificate(ssl, leaf) != 1) {
        snprintf(why, RPC_WHY_CHARS, "%s: no usable PEM certificate in it", pem->name);
        rc = -EINVAL;
    } else {
        warn_of_dates(pem, leaf);
    }
    X509 *link;
    while (rc == 0 && (link = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        if (!SSL_CTX_add0_chain_cert(ssl, link)) {
            snprintf(why, RPC_WHY_CHARS, "%s: a certificate of the chain is not usable", pem->name);
            X509_free(link);
            rc = -EINVAL;
        }
    }
    X509_free(leaf);
    BIO_free(bio);
    return rc;
}

static int use_key(SSL_CTX *ssl, const struct rpc_pem *certificate, const struct rpc_pem *pem,
                   char why[RPC_WHY_CHARS])
{
    BIO *bio = pem_open(pem);
    bool encrypted = false;
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &encrypted) : NULL;
    int rc = 0;
    if (!key) {
        rc = -EINVAL;
        snprintf(why, RPC_WHY_CHARS,
                 encrypted
                     ? "%s: the key has a passphrase, which a server cannot ask for; store it "
                       "without one"
                     : "%s: no PEM private key in it",
                 pem->name);
    } else if (SSL_CTX_use_PrivateKey(ssl, key) != 1 || SSL_CTX_check_private_key(ssl) != 1) {
        rc = -EINVAL;
        snprintf(why, RPC_WHY_CHARS, "%s: the key does not belong to the certificate %s", pem->name,
                 certificate->name);
    }
    EVP_PKEY_free(key);
    BIO_free(bio);
    return rc;
}

int rpc_tls_context_create_server(const struct rpc_pem *certificate, const struct rpc_pem *key,
                                  struct rpc_tls_context **out, char why[RPC_WHY_CHARS])
{
    ERR_clear_error();
    struct rpc_tls_context *ctx = context_new(true);
    if (!ctx) {
        snprintf(why, RPC_WHY_CHARS, "no memory for TLS");
        return -ENOMEM;
    }
    int rc = use_certificate(ctx->ssl, certificate, why);
    if (rc == 0)
        rc = use_key(ctx->ssl, certificate, key, why);
    ERR_clear_error();
    if (rc != 0) {
        rpc_tls_context_unref(ctx);
        return rc;
    }
    *out = ctx;
    return 0;
}

static int use_ca(SSL_CTX *ssl, const struct rpc_pem *pem, char why[RPC_WHY_CHARS])
{
    BIO *bio = pem_open(pem);
    X509_STORE *store = SSL_CTX_get_cert_store(ssl);
    int count = 0;
    X509 *ca;
    while (bio && (ca = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        count += X509_STORE_add_cert(store, ca);
        X509_free(ca);
    }
    BIO_free(bio);
    if (count == 0) {
        snprintf(why, RPC_WHY_CHARS, "%s: no usable PEM certificate in it", pem->name);
        return -EINVAL;
    }
    /* What the user names is trusted as it is, be it a root, an intermediate CA or the server's
     * own certificate. */
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(ssl), X509_V_FLAG_PARTIAL_CHAIN);
    return 0;
}

int rpc_tls_context_create_client(const struct rpc_pem *ca,
                                  const uint8_t pin[RPC_FINGERPRINT_BYTES],
                                  struct rpc_tls_context **out, char why[RPC_WHY_CHARS])
{
    if (!ca && !pin) {
        snprintf(why, RPC_WHY_CHARS, "TLS needs a CA or a fingerprint to know the server by");
        return -EINVAL;
    }
    ERR_clear_error();
    struct rpc_tls_context *ctx = context_new(false);
    if (!ctx) {
        snprintf(why, RPC_WHY_CHARS, "no memory for TLS");
        return -ENOMEM;
    }
    int rc = ca ? use_ca(ctx->ssl, ca, why) : 0;
    ERR_clear_error();
    if (rc != 0) {
        rpc_tls_context_unref(ctx);
        return rc;
    }
    ctx->has_ca = ca != NULL;
    ctx->has_pin = pin != NULL;
    if (pin)
        memcpy(ctx->pin, pin, RPC_FINGERPRINT_BYTES);
    SSL_CTX_set_verify(ctx->ssl, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_cert_verify_callback(ctx->ssl, check_server, ctx);
    *out = ctx;
    return 0;
}

/* ---- connections ---- */

/* Names go into SNI and are compared with the certificate's names, addresses only the latter. */
static bool set_host(SSL *ssl, char host[RPC_ADDR_HOST_CHARS])
{
    uint8_t address[sizeof(struct in6_addr)];
    char *zone = strchr(host, ':') ? strchr(host, '%') : NULL;
    if (zone)
        *zone = '\0'; /* "%eth0" is ours; no certificate has it */
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

int rpc_tls_context_new_ssl(struct rpc_tls_context *ctx, bool accepting, const char *host,
                            struct rpc_tls_check *check, SSL **out)
{
    if (accepting != ctx->server)
        return -EINVAL;
    if (!host)
        host = "";
    if (strlen(host) >= sizeof check->host || (ctx->has_ca && host[0] == '\0'))
        return -EINVAL;
    memset(check, 0, sizeof *check);
    memcpy(check->host, host, strlen(host));

    ERR_clear_error();
    SSL *ssl = SSL_new(ctx->ssl);
    if (!ssl)
        return -ENOMEM;
    SSL_set_app_data(ssl, check);
    if (!accepting && host[0] != '\0' && !set_host(ssl, check->host)) {
        SSL_free(ssl);
        return -EINVAL;
    }
    if (accepting)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    *out = ssl;
    return 0;
}
