/* rpc/endpoint/handshake.h - hello, token proof and welcome: what happens before the first frame.
 *
 *   connector  HELLO    versions, limits, capabilities, nonce, name
 *   acceptor   HELLO    the same, and whether it wants a proof
 *   connector  PROOF    HMAC(token, "hawser connector" | hellos | channel binding)
 *   acceptor   WELCOME  HMAC(token, "hawser acceptor" | hellos | channel binding)
 *   either     REFUSED  error code and a sentence
 *
 * The acceptor sends nothing before it has read a hello, so a client that sees an answer has been
 * counted.  PROOF and WELCOME are sent only where the acceptor has a token.  Each message is magic
 * "HWSR", u8 type, u8 0, u16 body length, body.
 *
 * The nonces make every transcript new, so a recorded proof is worthless; the channel binding
 * ties the proof to one TLS channel, so it cannot be relayed.
 *
 * Trust: none in the peer's bytes.  Threads: one.  Lifetime: init; no fini. */
#ifndef HAWSER_RPC_ENDPOINT_HANDSHAKE_H
#define HAWSER_RPC_ENDPOINT_HANDSHAKE_H

#include "rpc/rpc.h"
#include "rpc/security/security.h"

enum {
    RPC_HS_BODY_MAX = 512, /* the largest is HELLO with a name, or REFUSED with its sentence */
    RPC_HS_HEADER = 8,
    RPC_HS_MESSAGE_MAX = RPC_HS_HEADER + RPC_HS_BODY_MAX,
    RPC_HS_NONCE = 32,
    RPC_HS_NAME_CHARS = 64
};

enum rpc_hs_type { RPC_HS_HELLO = 1, RPC_HS_PROOF, RPC_HS_WELCOME, RPC_HS_REFUSED };

enum rpc_hello_flags {
    RPC_HELLO_PROOF_WANTED = 1, /* by the acceptor */
    RPC_HELLO_TAKES_FDS = 2,
    RPC_HELLO_RESUMES = 4, /* by the connector: the acceptor may offer resumption */
    RPC_HELLO_RESUMING = 8 /* by the connector: this connection is for RPC_METHOD_RESUME */
};

struct rpc_hello {
    uint16_t version_min, version_max;
    uint32_t capabilities;
    uint32_t window_bytes;
    uint32_t max_calls;
    uint32_t heartbeat_ms; /* 0: none */
    uint8_t flags;         /* of enum rpc_hello_flags; others are ignored */
    uint8_t nonce[RPC_HS_NONCE];
    char name[RPC_HS_NAME_CHARS];
};

struct rpc_handshake {
    bool accepting;
    bool token;       /* both ends prove that they know it */
    bool stranger;    /* another user of this host, and no token that could make up for it */
    const char *full; /* why nobody comes in but who resumes; NULL: others do, too */
    const struct rpc_security *security;
    size_t tenant; /* the acceptor's: whose token it is, from 1 on; 0: its own */
    enum { RPC_HS_WAIT_HELLO, RPC_HS_WAIT_PROOF, RPC_HS_WAIT_WELCOME, RPC_HS_DONE } state;
    struct rpc_hello peer;
    uint16_t version;
    uint8_t hello[2][RPC_HS_MESSAGE_MAX]; /* connector's, acceptor's, as sent */
    size_t hello_len[2];
    uint8_t binding[RPC_BINDING_BYTES];
    uint8_t out[3 * RPC_HS_MESSAGE_MAX]; /* bytes to send: hello, an answer, a refusal */
    size_t out_len;
    char why[RPC_WHY_CHARS];
};

/* A connector's hello is in out afterwards.  nonce: fresh random bytes.  binding may come later, by
 * setting the field before the peer's hello is fed.  local, user: the peer's, by the kernel's word;
 * they say whether config->security's token is for this peer.  0 or -EINVAL. */
int rpc_handshake_init(struct rpc_handshake *hs, const struct rpc_config *config,
                       const uint8_t nonce[RPC_HS_NONCE], bool local,
                       enum rpc_peer_user user) MUST_CHECK;

/* Takes bytes from the peer; *used says how many.  0 when the handshake is done (later bytes
 * are frames), -EINPROGRESS, or the error that ends the connection, with a sentence in why and
 * perhaps a REFUSED in out. */
int rpc_handshake_feed(struct rpc_handshake *hs, const uint8_t *p, size_t n,
                       size_t *used) MUST_CHECK;

/* Puts a REFUSED into out, when our own limits turn a peer away. */
void rpc_handshake_refuse(struct rpc_handshake *hs, int error, const char *text);

#endif
