/* keygen.c - makes a self-signed certificate, its key and a token in a folder. */
#include "rpc/security/security.h"
#include "rpc/security/tlsctx.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/buffer.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    DAY_SECONDS = 24 * 60 * 60,
    CLOCK_SKEW_SECONDS = 60 * 60, /* a client's clock may be behind ours */
    COMMON_NAME_CHARS_MAX = 64,   /* X.520's bound */
    DNS_NAME_CHARS_MAX = 253,
    SERIAL_BITS = 159 /* positive in the 20 bytes that a serial may have */
};

static const char *const default_names[] = {"localhost", "127.0.0.1", "::1"};

/* ---- the certificate ---- */

static bool is_dns_name(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= DNS_NAME_CHARS_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._*") ==
               len;
}

static size_t ip_bytes(const char *name, uint8_t out[16])
{
    if (inet_pton(AF_INET, name, out) == 1)
        return 4;
    return inet_pton(AF_INET6, name, out) == 1 ? 16 : 0;
}

static int check_names(const char *const *names, size_t count, char why[RPC_WHY_CHARS])
{
    uint8_t ip[16];
    if (count > RPC_KEYGEN_NAMES_MAX) {
        snprintf(why, RPC_WHY_CHARS, "%zu names for one certificate; at most %d are possible",
                 count, RPC_KEYGEN_NAMES_MAX);
        return -EINVAL;
    }
    for (size_t i = 0; i < count; i++)
        if (ip_bytes(names[i], ip) == 0 && !is_dns_name(names[i])) {
            snprintf(why, RPC_WHY_CHARS,
                     "\"%.100s\" is neither a host name nor an IPv4 or IPv6 address", names[i]);
            return -EINVAL;
        }
    return 0;
}

static GENERAL_NAME *general_name(const char *name)
{
    uint8_t ip[16];
    size_t ip_len = ip_bytes(name, ip);
    GENERAL_NAME *general = GENERAL_NAME_new();
    ASN1_STRING *value = ip_len > 0 ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
    if (!general || !value ||
        !ASN1_STRING_set(value, ip_len > 0 ? (const void *)ip : name,
                         ip_len > 0 ? (int)ip_len : (int)strlen(name))) {
        GENERAL_NAME_free(general);
        ASN1_STRING_free(value);
        return NULL;
    }
    GENERAL_NAME_set0_value(general, ip_len > 0 ? GEN_IPADD : GEN_DNS, value);
    return general;
}

/* Built piece by piece rather than from a configuration string, in which a name could hide
 * further settings. */
static bool add_names(X509 *cert, const char *const *names, size_t count)
{
    GENERAL_NAMES *list = GENERAL_NAMES_new();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < count; i++) {
        GENERAL_NAME *name = general_name(names[i]);
        ok = name && sk_GENERAL_NAME_push(list, name) > 0;
        if (!ok)
            GENERAL_NAME_free(name);
    }
    ok = ok && X509_add1_ext_i2d(cert, NID_subject_alt_name, list, 0, X509V3_ADD_DEFAULT) == 1;
    GENERAL_NAMES_free(list);
    return ok;
}

static bool add_extension(X509 *cert, int nid, const char *value)
{
    X509V3_CTX v3;
    X509V3_set_ctx_nodb(&v3);
    X509V3_set_ctx(&v3, cert, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &v3, nid, value);
    bool ok = extension && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return ok;
}

static bool set_serial(X509 *cert)
{
    BIGNUM *serial = BN_new();
    bool ok = serial && BN_rand(serial, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
              BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(cert)) != NULL;
    BN_free(serial);
    return ok;
}

static bool set_subject(X509 *cert, const char *name)
{
    const char *common = strlen(name) <= COMMON_NAME_CHARS_MAX ? name : "hawser";
    X509_NAME *subject = X509_get_subject_name(cert);
    return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)common,
                                      -1, -1, 0) == 1 &&
           X509_set_issuer_name(cert, subject) == 1;
}

static X509 *make_certificate(EVP_PKEY *key, const char *const *names, size_t count, unsigned days)
{
    X509 *cert = X509_new();
    bool ok = cert && X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
              X509_gmtime_adj(X509_getm_notBefore(cert), -CLOCK_SKEW_SECONDS) &&
              X509_gmtime_adj(X509_getm_notAfter(cert), (long)days * DAY_SECONDS) &&
              set_subject(cert, names[0]) && X509_set_pubkey(cert, key) == 1 &&
              add_extension(cert, NID_basic_constraints, "critical,CA:FALSE") &&
              add_extension(cert, NID_key_usage, "critical,digitalSignature") &&
              add_extension(cert, NID_ext_key_usage, "serverAuth") &&
              add_extension(cert, NID_subject_key_identifier, "hash") &&
              add_names(cert, names, count) && X509_sign(cert, key, EVP_sha256()) > 0;
    if (!ok) {
        X509_free(cert);
        return NULL;
    }
    return cert;
}

/* ---- the files ---- */

/* What was made so far, so that a failure can undo it. */
struct workshop {
    const char *dir;
    int dir_fd;
    bool made_dir;
    const char *made[3];
    int made_count;
};

static int open_dir(struct workshop *shop, char why[RPC_WHY_CHARS])
{
    shop->made_dir = mkdir(shop->dir, 0700) == 0;
    shop->dir_fd = -1;
    if (shop->made_dir || errno == EEXIST)
        shop->dir_fd = open(shop->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (shop->dir_fd >= 0)
        return 0;
    int rc = -errno;
    snprintf(why, RPC_WHY_CHARS, "%s: %s", shop->dir, strerror(-rc));
    return rc;
}

static void undo(struct workshop *shop)
{
    while (shop->made_count > 0)
        unlinkat(shop->dir_fd, shop->made[--shop->made_count], 0);
    if (shop->made_dir)
        rmdir(shop->dir);
}

static int write_synced(int fd, const uint8_t *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
    return fsync(fd) == 0 ? 0 : -errno;
}

static int make_file(struct workshop *shop, const char *name, mode_t mode, const void *data,
                     size_t len, char why[RPC_WHY_CHARS])
{
    int fd = openat(shop->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    int rc = fd >= 0 ? 0 : -errno;
    if (fd >= 0) {
        assert(shop->made_count < (int)ARRAY_LEN(shop->made));
        shop->made[shop->made_count++] = name;
        rc = write_synced(fd, data, len);
        if (close(fd) != 0 && rc == 0)
            rc = -errno;
    }
    if (rc == -EEXIST)
        snprintf(why, RPC_WHY_CHARS,
                 "%s/%s exists and is not overwritten; move it away or choose another folder",
                 shop->dir, name);
    else if (rc != 0)
        snprintf(why, RPC_WHY_CHARS, "%s/%s: %s", shop->dir, name, strerror(-rc));
    return rc;
}

static int make_pem_file(struct workshop *shop, const char *name, mode_t mode, BIO *pem,
                         char why[RPC_WHY_CHARS])
{
    char *data;
    long len = BIO_get_mem_data(pem, &data);
    return make_file(shop, name, mode, data, (size_t)len, why);
}

static int no_memory(char why[RPC_WHY_CHARS])
{
    const char *words = ERR_reason_error_string(ERR_peek_error());
    snprintf(why, RPC_WHY_CHARS, "OpenSSL: %s", words ? words : "no memory");
    return -ENOMEM;
}

int rpc_token_random(char text[RPC_TOKEN_TEXT_CHARS])
{
    uint8_t random[RPC_KEYGEN_TOKEN_BYTES];
    if (RAND_priv_bytes(random, sizeof random) != 1)
        return -ENOMEM;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(text + 2 * i, 3, "%02x", random[i]);
    strcpy(text + 2 * sizeof random, "\n");
    OPENSSL_cleanse(random, sizeof random);
    return 0;
}

static int make_token(struct workshop *shop, char why[RPC_WHY_CHARS])
{
    char text[RPC_TOKEN_TEXT_CHARS];
    if (rpc_token_random(text))
        return no_memory(why);
    int rc = make_file(shop, "token", 0600, text, strlen(text), why);
    OPENSSL_cleanse(text, sizeof text);
    return rc;
}

static int make_files(struct workshop *shop, EVP_PKEY *key, X509 *cert, char why[RPC_WHY_CHARS])
{
    BIO *key_pem = BIO_new(BIO_s_secmem()); /* wiped when freed */
    BIO *cert_pem = BIO_new(BIO_s_mem());
    int rc = 0;
    if (!key_pem || !cert_pem ||
        PEM_write_bio_PrivateKey(key_pem, key, NULL, NULL, 0, NULL, NULL) != 1 ||
        PEM_write_bio_X509(cert_pem, cert) != 1)
        rc = no_memory(why);
    if (rc == 0)
        rc = make_pem_file(shop, "server.key", 0600, key_pem, why);
    if (rc == 0)
        rc = make_pem_file(shop, "server.crt", 0644, cert_pem, why);
    if (rc == 0)
        rc = make_token(shop, why);
    if (rc == 0 && fsync(shop->dir_fd) != 0) {
        rc = -errno;
        snprintf(why, RPC_WHY_CHARS, "%s: %s", shop->dir, strerror(-rc));
    }
    BIO_free(cert_pem);
    BIO_free(key_pem);
    return rc;
}

static int make_all(const char *dir, EVP_PKEY *key, X509 *cert, char why[RPC_WHY_CHARS])
{
    struct workshop shop = {.dir = dir};
    int rc = open_dir(&shop, why);
    if (rc == 0)
        rc = make_files(&shop, key, cert, why);
    if (rc != 0)
        undo(&shop);
    if (shop.dir_fd >= 0)
        close(shop.dir_fd);
    return rc;
}

int rpc_keygen(const char *dir, const char *const *names, size_t name_count, unsigned days,
               char fingerprint[2 * RPC_FINGERPRINT_BYTES + 1], char why[RPC_WHY_CHARS])
{
    uint8_t digest[RPC_FINGERPRINT_BYTES];
    if (name_count == 0) {
        names = default_names;
        name_count = ARRAY_LEN(default_names);
    }
    int rc = check_names(names, name_count, why);
    if (rc != 0)
        return rc;
    if (days == 0 || days > RPC_KEYGEN_DAYS_MAX) {
        snprintf(why, RPC_WHY_CHARS, "%u days: a certificate is valid for 1 to %d days", days,
                 RPC_KEYGEN_DAYS_MAX);
        return -EINVAL;
    }
    ERR_clear_error();
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = key ? make_certificate(key, names, name_count, days) : NULL;
    if (!cert || rpc_fingerprint_of(cert, digest) != 0)
        rc = no_memory(why);
    if (rc == 0)
        rc = make_all(dir, key, cert, why);
    if (rc == 0)
        rpc_fingerprint_format(digest, fingerprint);
    X509_free(cert);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return rc;
}
