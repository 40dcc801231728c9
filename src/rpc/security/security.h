/* rpc/security/security.h - who may talk to whom: TLS settings and the shared token.
 *
 * Trust: files come from the user; private ones must not be readable by others.
 * Threads: immutable once loaded.  Lifetime: init/fini by the caller; listeners and dials copy
 * what they need or hold a reference to the OpenSSL context, so fini may come first. */
#ifndef HAWSER_RPC_SECURITY_SECURITY_H
#define HAWSER_RPC_SECURITY_SECURITY_H

#include "base/attr.h"
#include "rpc/transport/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RPC_TOKEN_BYTES_MIN = 16, /* below this, guessing the token offline is thinkable */
    RPC_TOKEN_BYTES_MAX = 256,
    RPC_FINGERPRINT_BYTES = 32, /* SHA-256 of the certificate's DER form */
    RPC_TENANTS_MAX = 256,      /* each costs a handshake a hash */
    RPC_TENANT_NAME_CHARS = 64
};

#define RPC_TENANT_BLANKS " \t\r"

struct rpc_tls_context; /* wraps SSL_CTX; reference counted */

struct rpc_token {
    uint8_t bytes[RPC_TOKEN_BYTES_MAX];
    size_t len;
};

struct rpc_security {
    uint8_t token[RPC_TOKEN_BYTES_MAX];
    size_t token_len;            /* 0: no token */
    bool host_token;             /* found, not given: see rpc_security_find_host_token */
    struct rpc_tls_context *tls; /* NULL: plain */
    /* A server's, beside its own, which it has then: clients that know one of these come in, and
     * rpc_ep_tenant says which.  The caller's. */
    const struct rpc_token *tenants;
    size_t tenant_count;
};

/* What the user gave; NULL or "" means not given. */
struct rpc_security_files {
    const char *certificate; /* PEM; server */
    const char *key;         /* PEM, mode 0600 or stricter; server */
    const char *ca;          /* PEM; client: the server's certificate must chain to it */
    const char *fingerprint; /* 64 hex digits, colons allowed; client: pins the certificate */
    const char *token_file;  /* mode 0600 or stricter */
    bool makes_host_token;   /* a client that runs before its server: rpc_security_from_env */
};

/* Loads and checks.  A server has TLS when it has a certificate, a client when it has a CA or a
 * fingerprint; see rpc/security/tlsctx.h for what each checks.  0, or a negative errno with cause
 * and remedy in why (-EDOM: the fingerprint is none); sec is written only on 0. */
int rpc_security_load(struct rpc_security *sec, const struct rpc_security_files *files, bool server,
                      char why[RPC_WHY_CHARS]) MUST_CHECK;
/* A client's settings: what `preferred` (may be NULL) does not give comes from VENUS_TLS_CA,
 * VENUS_TLS_FINGERPRINT and VENUS_TOKEN_FILE, and the token, unless that says "none", is then the
 * host token; one that is missing is made where that is asked for and possible.  Else as
 * rpc_security_load. */
int rpc_security_from_env(struct rpc_security *sec, const struct rpc_security_files *preferred,
                          char why[RPC_WHY_CHARS]) MUST_CHECK;
/* A copy with a life of its own; sec may be NULL, which is a zeroed one. */
void rpc_security_copy(struct rpc_security *out, const struct rpc_security *sec);
void rpc_security_fini(struct rpc_security *sec); /* wipes the token; a zeroed sec is fine */

/* The token of this user on this host, $XDG_STATE_HOME/hawser/token: so that TCP on loopback, which
 * every user can reach, admits the one who started the server.  Servers make it where it is
 * missing; clients do without.  0, or a negative errno with cause and remedy in why. */
int rpc_security_find_host_token(struct rpc_security *sec, char why[RPC_WHY_CHARS]) MUST_CHECK;
int rpc_security_make_host_token(struct rpc_security *sec, char why[RPC_WHY_CHARS]) MUST_CHECK;
/* The token of a private file.  name: what messages call it.  As above; sec's is set only on 0. */
int rpc_security_load_token(struct rpc_security *sec, const char *name, const char *path,
                            char why[RPC_WHY_CHARS]) MUST_CHECK;

/* Reads one file of the user's: a regular one of at most max bytes and, when private, of mode 0600
 * or stricter.  name: what messages call it.  *data is the caller's to free, with a 0 after its
 * bytes.  0, or a negative errno with cause and remedy in why. */
int rpc_security_read(const char *name, const char *path, bool private, size_t max, char **data,
                      size_t *len, char why[RPC_WHY_CHARS]) MUST_CHECK;

/* The rule for listening: a non-local address needs TLS and a token, or insecure.  UCX carries no
 * TLS, so there only insecure helps.  sec may be NULL.  0, or -EPERM with cause and remedy in
 * why. */
int rpc_security_check_listen(const struct rpc_security *sec, const struct rpc_addr *addr,
                              bool insecure, char why[RPC_WHY_CHARS]) MUST_CHECK;

/* HMAC-SHA256(token, label | parts...), with the length of the label and of each part before it
 * (8 bytes, little-endian), so that no two lists of parts give the same input.  out has 32 bytes.
 * 0, -ENOKEY without a token, -ENOMEM. */
struct rpc_bytes {
    const void *data;
    size_t len;
};
int rpc_token_mac(struct rpc_bytes token, const char *label, const struct rpc_bytes *parts,
                  size_t count, uint8_t out[32]) MUST_CHECK;
/* Constant time. */
bool rpc_token_mac_equal(const uint8_t a[32], const uint8_t b[32]);

/* A tenant.  What is behind its token: strtok_r(NULL, RPC_TENANT_BLANKS, &words).  0, or a negative
 * errno with the cause in why. */
typedef int rpc_tenant_fn(void *user, const char *name, struct rpc_bytes token, char *words,
                          char why[RPC_WHY_CHARS]);
/* Reads a private file of --tenants: a line for each, NAME TOKEN and maybe more words; empty lines
 * and those that begin with # do not count.  No two have the same name or token.  0, or a negative
 * errno with cause and remedy in why, after any number of calls. */
int rpc_tenants_read(const char *path, rpc_tenant_fn *each, void *user,
                     char why[RPC_WHY_CHARS]) MUST_CHECK;

enum {
    RPC_KEYGEN_NAMES_MAX = 64,   /* more belong into certificates of their own */
    RPC_KEYGEN_DAYS_MAX = 36500, /* a century; keeps the dates within what TLS libraries read */
    RPC_KEYGEN_TOKEN_BYTES = 32, /* random; written as 64 hex digits, which are the token */
    RPC_TOKEN_TEXT_CHARS = 2 * RPC_KEYGEN_TOKEN_BYTES + 2
};

/* A new token, a line end and NUL.  0 or -ENOMEM. */
int rpc_token_random(char text[RPC_TOKEN_TEXT_CHARS]) MUST_CHECK;

/* Writes certificate (self-signed, ECDSA P-256), key and token into dir: server.crt, server.key,
 * token; private modes from the moment they exist; refuses to overwrite (-EEXIST).  dir is made
 * (0700) when missing.  names are the host names and addresses for the certificate; none means
 * localhost, 127.0.0.1 and ::1.  The fingerprint as 64 hex digits + NUL.  Leaves nothing behind
 * when it fails: a negative errno with cause and remedy in why. */
int rpc_keygen(const char *dir, const char *const *names, size_t name_count, unsigned days,
               char fingerprint[2 * RPC_FINGERPRINT_BYTES + 1], char why[RPC_WHY_CHARS]) MUST_CHECK;

#endif
