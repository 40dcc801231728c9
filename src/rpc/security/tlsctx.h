/* rpc/security/tlsctx.h - what the TLS connections of one side share: keys, trust, parameters.
 *
 * TLS 1.3 only, no session tickets, no client certificates.
 *
 * A server shows its certificate.  A client checks it by CA (the chain, and that the certificate
 * is for the host asked for), or by the SHA-256 fingerprint of the certificate (then chain and
 * name do not matter); with both given both must hold.  The validity period counts always.
 *
 * Trust: PEM texts come from the user; a bad one is refused with a sentence that says why.
 * Threads: immutable once created; ref and unref from any.  Lifetime: reference counted. */
#ifndef HAWSER_RPC_SECURITY_TLSCTX_H
#define HAWSER_RPC_SECURITY_TLSCTX_H

#include "base/attr.h"
#include "rpc/security/security.h"

#include <openssl/types.h>
#include <stddef.h>
#include <stdint.h>

enum { RPC_FINGERPRINT_CHARS = 2 * RPC_FINGERPRINT_BYTES + 1 };

/* AES-GCM wears out: TLS 1.3 allows about 2^24.5 full records on one key (RFC 8446, 5.5).  2^23
 * is 128 GiB of full records. */
#define RPC_TLS_REKEY_RECORDS (UINT64_C(1) << 23)

/* A PEM text, and what to call it in messages. */
struct rpc_pem {
    const char *name;
    const void *data;
    size_t len;
};

/* 0, -EINVAL or -ENOMEM with a sentence in why.  The certificate may have its chain behind it. */
int rpc_tls_context_create_server(const struct rpc_pem *certificate, const struct rpc_pem *key,
                                  struct rpc_tls_context **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
/* One of ca and pin may be NULL. */
int rpc_tls_context_create_client(const struct rpc_pem *ca,
                                  const uint8_t pin[RPC_FINGERPRINT_BYTES],
                                  struct rpc_tls_context **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
struct rpc_tls_context *rpc_tls_context_ref(struct rpc_tls_context *ctx);
void rpc_tls_context_unref(struct rpc_tls_context *ctx); /* NULL is fine */

/* Records sent on one key; RPC_TLS_REKEY_RECORDS unless set, which only tests do, and before the
 * context is used. */
void rpc_tls_context_set_rekey(struct rpc_tls_context *ctx, uint64_t records);
uint64_t rpc_tls_context_rekey(const struct rpc_tls_context *ctx);

/* What a client's check of the server's certificate found.  The check runs inside the handshake
 * and writes here, so it must outlive the SSL object. */
struct rpc_tls_check {
    char host[RPC_ADDR_HOST_CHARS]; /* as asked for */
    int error;                      /* 0, or -EACCES with a sentence in why */
    char why[RPC_WHY_CHARS];
};

/* A new SSL object in the right role.  host as for rpc_tls_wrap.  0, -EINVAL, -ENOMEM. */
int rpc_tls_context_new_ssl(struct rpc_tls_context *ctx, bool accepting, const char *host,
                            struct rpc_tls_check *check, SSL **out) MUST_CHECK;

/* 64 hex digits and NUL. */
void rpc_fingerprint_format(const uint8_t fingerprint[RPC_FINGERPRINT_BYTES],
                            char text[RPC_FINGERPRINT_CHARS]);
/* 0 or -ENOMEM. */
int rpc_fingerprint_of(const X509 *certificate,
                       uint8_t fingerprint[RPC_FINGERPRINT_BYTES]) MUST_CHECK;

#endif
