#include "rpc/security/security.h"

#include "rpc/security/tlsctx.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CERTIFICATE_BYTES_MAX = 256 << 10, /* a chain of a hundred */
    CA_BYTES_MAX = 4 << 20,            /* a system's whole bundle is a quarter of a megabyte */
    KEY_BYTES_MAX = 64 << 10,          /* RSA with 16384 bits needs 13 KiB */
    TOKEN_FILE_BYTES_MAX = RPC_TOKEN_BYTES_MAX + 2 /* and a line end */
};

/* What each setting is called where it came from, for messages. */
static const struct rpc_security_files plain_names = {
    .certificate = "certificate",
    .key = "key",
    .ca = "CA",
    .fingerprint = "fingerprint",
    .token_file = "token file",
};

static bool given(const char *text)
{
    return text && text[0] != '\0';
}

/* ---- files ---- */

struct file {
    const char *name; /* what it is called in messages */
    const char *path;
    bool private;
    size_t max;
    uint8_t *data;
    size_t len;
};

static void file_fini(struct file *f)
{
    if (f->data)
        OPENSSL_cleanse(f->data, f->max + 1);
    free(f->data);
    f->data = NULL;
}

static int check_file(const struct file *f, const struct stat *st, char why[RPC_WHY_CHARS])
{
    if (!S_ISREG(st->st_mode)) {
        snprintf(why, RPC_WHY_CHARS, "%s %s: not a regular file", f->name, f->path);
        return -EINVAL;
    }
    if (f->private && (st->st_mode & (S_IRWXG | S_IRWXO))) {
        snprintf(why, RPC_WHY_CHARS, "%s: mode %04o lets others use it; run: chmod 600 %s", f->name,
                 (unsigned)(st->st_mode & 07777), f->path);
        return -EACCES;
    }
    return 0;
}

/* One byte more than allowed tells a file that is too long. */
static int read_all(struct file *f, int fd)
{
    f->data = malloc(f->max + 1);
    f->len = 0;
    if (!f->data)
        return -ENOMEM;
    while (f->len <= f->max) {
        ssize_t n = read(fd, f->data + f->len, f->max + 1 - f->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return 0;
        f->len += (size_t)n;
    }
    return -EFBIG;
}

/* The mode is checked on the open descriptor, so what was checked is what is read.  Non-blocking,
 * since a FIFO would hold the open up for ever. */
static int file_load(struct file *f, char why[RPC_WHY_CHARS])
{
    struct stat st;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int rc = -errno;
        snprintf(why, RPC_WHY_CHARS, "%s %s: %s", f->name, f->path, strerror(-rc));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    int rc = check_file(f, &st, why);
    if (rc == 0) {
        rc = read_all(f, fd);
        if (rc != 0)
            snprintf(why, RPC_WHY_CHARS, "%s %s: %s (at most %zu bytes)", f->name, f->path,
                     strerror(-rc), f->max);
    }
    close(fd);
    return rc;
}

int rpc_security_read(const char *name, const char *path, bool private, size_t max, char **data,
                      size_t *len, char why[RPC_WHY_CHARS])
{
    struct file f = {.name = name, .path = path, .private = private, .max = max};
    int rc = file_load(&f, why);
    if (rc) {
        file_fini(&f);
        return rc;
    }
    f.data[f.len] = '\0'; /* there is one byte more than max */
    *data = (char *)f.data;
    *len = f.len;
    return 0;
}

static struct rpc_pem pem_of(const struct file *f)
{
    return (struct rpc_pem){.name = f->path, .data = f->data, .len = f->len};
}

/* ---- loading ---- */

int rpc_security_load_token(struct rpc_security *sec, const char *name, const char *path,
                            char why[RPC_WHY_CHARS])
{
    struct file f = {.name = name, .path = path, .private = true, .max = TOKEN_FILE_BYTES_MAX};
    int rc = file_load(&f, why);
    if (rc == 0) {
        if (f.len > 0 && f.data[f.len - 1] == '\n')
            f.len--;
        if (f.len > 0 && f.data[f.len - 1] == '\r')
            f.len--;
        if (f.len < RPC_TOKEN_BYTES_MIN || f.len > RPC_TOKEN_BYTES_MAX) {
            snprintf(why, RPC_WHY_CHARS,
                     "%s %s: a token has %d to %d bytes, this one %zu; hawser keygen makes one",
                     name, path, RPC_TOKEN_BYTES_MIN, RPC_TOKEN_BYTES_MAX, f.len);
            rc = -EINVAL;
        }
    }
    if (rc == 0) {
        memcpy(sec->token, f.data, f.len);
        sec->token_len = f.len;
    }
    file_fini(&f);
    return rc;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 'a' ^ 'A';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Colons may stand between bytes, as OpenSSL's tools print them. */
static bool parse_fingerprint(const char *text, uint8_t out[RPC_FINGERPRINT_BYTES])
{
    for (int i = 0; i < RPC_FINGERPRINT_BYTES; i++) {
        if (i > 0 && *text == ':')
            text++;
        int high = hex_digit(text[0]);
        int low = high >= 0 ? hex_digit(text[1]) : -1;
        if (low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    return *text == '\0';
}

static int load_server_tls(struct rpc_security *sec, const struct rpc_security_files *files,
                           const struct rpc_security_files *names, char why[RPC_WHY_CHARS])
{
    if (given(files->ca) || given(files->fingerprint)) {
        snprintf(why, RPC_WHY_CHARS,
                 "a server takes no %s: it knows its clients by the token, not by certificates",
                 given(files->ca) ? names->ca : names->fingerprint);
        return -EINVAL;
    }
    if (!given(files->certificate) && !given(files->key))
        return 0;
    if (!given(files->certificate) || !given(files->key)) {
        bool has_key = given(files->key);
        snprintf(why, RPC_WHY_CHARS, "%s %s needs its %s too; hawser keygen makes both",
                 has_key ? names->key : names->certificate,
                 has_key ? files->key : files->certificate,
                 has_key ? names->certificate : names->key);
        return -EINVAL;
    }
    struct file certificate = {
        .name = names->certificate, .path = files->certificate, .max = CERTIFICATE_BYTES_MAX};
    struct file key = {
        .name = names->key, .path = files->key, .private = true, .max = KEY_BYTES_MAX};
    int rc = file_load(&certificate, why);
    if (rc == 0)
        rc = file_load(&key, why);
    if (rc == 0) {
        struct rpc_pem certificate_pem = pem_of(&certificate), key_pem = pem_of(&key);
        rc = rpc_tls_context_create_server(&certificate_pem, &key_pem, &sec->tls, why);
    }
    file_fini(&key);
    file_fini(&certificate);
    return rc;
}

static int load_client_tls(struct rpc_security *sec, const struct rpc_security_files *files,
                           const struct rpc_security_files *names, char why[RPC_WHY_CHARS])
{
    uint8_t pin[RPC_FINGERPRINT_BYTES];
    if (given(files->certificate) || given(files->key)) {
        snprintf(why, RPC_WHY_CHARS,
                 "a client has no certificate; for TLS give the server's CA or fingerprint");
        return -EINVAL;
    }
    if (!given(files->ca) && !given(files->fingerprint))
        return 0;
    if (given(files->fingerprint) && !parse_fingerprint(files->fingerprint, pin)) {
        snprintf(why, RPC_WHY_CHARS,
                 "%s \"%.100s\": expected are 64 hex digits, with or without colons; hawser keygen "
                 "prints it",
                 names->fingerprint, files->fingerprint);
        return -EDOM;
    }
    struct file ca = {.name = names->ca, .path = files->ca, .max = CA_BYTES_MAX};
    int rc = given(files->ca) ? file_load(&ca, why) : 0;
    if (rc == 0) {
        struct rpc_pem ca_pem = pem_of(&ca);
        rc = rpc_tls_context_create_client(given(files->ca) ? &ca_pem : NULL,
                                           given(files->fingerprint) ? pin : NULL, &sec->tls, why);
    }
    file_fini(&ca);
    return rc;
}

static int load(struct rpc_security *sec, const struct rpc_security_files *files, bool server,
                const struct rpc_security_files *names, char why[RPC_WHY_CHARS])
{
    struct rpc_security loaded = {0};
    int rc = given(files->token_file)
                 ? rpc_security_load_token(&loaded, names->token_file, files->token_file, why)
                 : 0;
    if (rc == 0)
        rc = server ? load_server_tls(&loaded, files, names, why)
                    : load_client_tls(&loaded, files, names, why);
    if (rc == 0)
        *sec = loaded;
    OPENSSL_cleanse(&loaded, sizeof loaded);
    return rc;
}

int rpc_security_load(struct rpc_security *sec, const struct rpc_security_files *files, bool server,
                      char why[RPC_WHY_CHARS])
{
    return load(sec, files, server, &plain_names, why);
}

/* *value and its name in messages: as the caller has them, else from the environment. */
static void or_env(const char **value, const char **name, const char *variable)
{
    if (given(*value))
        return;
    *value = getenv(variable);
    *name = variable;
}

int rpc_security_from_env(struct rpc_security *sec, const struct rpc_security_files *preferred,
                          char why[RPC_WHY_CHARS])
{
    struct rpc_security_files files = preferred ? *preferred : (struct rpc_security_files){0};
    struct rpc_security_files names = plain_names;
    or_env(&files.ca, &names.ca, "VENUS_TLS_CA");
    or_env(&files.fingerprint, &names.fingerprint, "VENUS_TLS_FINGERPRINT");
    or_env(&files.token_file, &names.token_file, "VENUS_TOKEN_FILE");
    bool none = given(files.token_file) && strcmp(files.token_file, "none") == 0;
    if (none)
        files.token_file = NULL;
    struct rpc_security loaded;
    int rc = load(&loaded, &files, false, &names, why);
    if (rc)
        return rc;
    if (!none && loaded.token_len == 0)
        rc = rpc_security_find_host_token(&loaded, why);
    if (!none && rc == 0 && loaded.token_len == 0 && files.makes_host_token &&
        rpc_security_make_host_token(&loaded, why))
        why[0] = '\0'; /* it does without */
    if (rc == 0)
        *sec = loaded;
    else
        rpc_tls_context_unref(loaded.tls);
    OPENSSL_cleanse(&loaded, sizeof loaded);
    return rc;
}

void rpc_security_copy(struct rpc_security *out, const struct rpc_security *sec)
{
    *out = sec ? *sec : (struct rpc_security){0};
    if (out->tls)
        rpc_tls_context_ref(out->tls);
}

void rpc_security_fini(struct rpc_security *sec)
{
    rpc_tls_context_unref(sec->tls);
    OPENSSL_cleanse(sec, sizeof *sec);
}

/* ---- the rule for listening ---- */

int rpc_security_check_listen(const struct rpc_security *sec, const struct rpc_addr *addr,
                              bool insecure, char why[RPC_WHY_CHARS])
{
    bool can_tls = addr->scheme == RPC_SCHEME_TCP;
    bool tls = can_tls && sec && sec->tls;
    bool token = sec && sec->token_len > 0;
    char where[RPC_ADDR_HOST_CHARS + 16];

    if (insecure || rpc_addr_is_local(addr) || (tls && token))
        return 0;
    rpc_addr_format(addr, where, sizeof where);
    if (can_tls)
        snprintf(why, RPC_WHY_CHARS,
                 "%.60s is open to the network and has no %s; hawser keygen makes what --cert, "
                 "--key and --token-file take; on a network you trust, --insecure does without",
                 where,
                 tls     ? "token"
                 : token ? "TLS"
                         : "TLS and no token");
    else
        snprintf(why, RPC_WHY_CHARS,
                 "%.60s: UCX has no TLS and is for trusted networks only; say --insecure when "
                 "this is one, or use TCP",
                 where);
    return -EPERM;
}

/* ---- the token ---- */

static bool mac_part(EVP_MAC_CTX *mac, const void *data, size_t len)
{
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)((uint64_t)len >> 8 * i);
    return EVP_MAC_update(mac, prefix, sizeof prefix) == 1 && EVP_MAC_update(mac, data, len) == 1;
}

static bool mac_all(EVP_MAC_CTX *mac, struct rpc_bytes token, const char *label,
                    const struct rpc_bytes *parts, size_t count, uint8_t out[32])
{
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0),
                           OSSL_PARAM_construct_end()};
    size_t len = 0;
    bool ok = EVP_MAC_init(mac, token.data, token.len, params) == 1 &&
              mac_part(mac, label, strlen(label));
    for (size_t i = 0; ok && i < count; i++)
        ok = mac_part(mac, parts[i].data, parts[i].len);
    return ok && EVP_MAC_final(mac, out, &len, 32) == 1 && len == 32;
}

int rpc_token_mac(struct rpc_bytes token, const char *label, const struct rpc_bytes *parts,
                  size_t count, uint8_t out[32])
{
    if (token.len == 0)
        return -ENOKEY;
    assert(token.len <= RPC_TOKEN_BYTES_MAX);
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *mac = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
    uint8_t result[32];
    bool ok = mac && mac_all(mac, token, label, parts, count, result);
    if (ok)
        memcpy(out, result, sizeof result);
    EVP_MAC_CTX_free(mac);
    EVP_MAC_free(hmac);
    return ok ? 0 : -ENOMEM;
}

bool rpc_token_mac_equal(const uint8_t a[32], const uint8_t b[32])
{
    return CRYPTO_memcmp(a, b, 32) == 0;
}
