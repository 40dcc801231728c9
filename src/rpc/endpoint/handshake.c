#include "rpc/endpoint/handshake.h"

#include "base/clock.h"
#include "rpc/endpoint/frame.h"
#include "wire/dec.h"
#include "wire/enc.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const uint8_t magic[4] = {'H', 'W', 'S', 'R'};
enum { CONNECTOR, ACCEPTOR };

static int fail(struct rpc_handshake *hs, int error, const char *fmt, ...) PRINTF_LIKE(3, 4);
static int fail(struct rpc_handshake *hs, int error, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(hs->why, sizeof hs->why, fmt, args);
    va_end(args);
    return error;
}

/* Lays one message out at `to`; its length. */
static size_t encode_message(enum rpc_hs_type type, const struct wire_enc *body, uint8_t *to,
                             size_t room)
{
    assert(wire_enc_error(body) == 0);
    size_t len = wire_enc_len(body);
    struct wire_enc e;
    wire_enc_init_fixed(&e, to, room);
    wire_put_bytes(&e, magic, sizeof magic);
    wire_put_u8(&e, (uint8_t)type);
    wire_put_u8(&e, 0);
    wire_put_u16(&e, (uint16_t)len);
    wire_put_bytes(&e, wire_enc_data(body), len);
    assert(wire_enc_error(&e) == 0);
    return wire_enc_len(&e);
}

static void put_message(struct rpc_handshake *hs, enum rpc_hs_type type,
                        const struct wire_enc *body)
{
    hs->out_len += encode_message(type, body, hs->out + hs->out_len, sizeof hs->out - hs->out_len);
}

/* Our hello, as laid out at the start. */
static void put_own_hello(struct rpc_handshake *hs)
{
    int role = hs->accepting ? ACCEPTOR : CONNECTOR;
    assert(hs->hello_len[role] <= sizeof hs->out - hs->out_len);
    memcpy(hs->out + hs->out_len, hs->hello[role], hs->hello_len[role]);
    hs->out_len += hs->hello_len[role];
}

static void put_hello(struct wire_enc *e, const struct rpc_hello *h)
{
    wire_put_u16(e, h->version_min);
    wire_put_u16(e, h->version_max);
    wire_put_u32(e, h->capabilities);
    wire_put_u32(e, h->window_bytes);
    wire_put_u32(e, h->max_calls);
    wire_put_u32(e, h->heartbeat_ms);
    wire_put_u8(e, h->flags);
    wire_put_bytes(e, h->nonce, sizeof h->nonce);
    wire_put_str(e, h->name);
}

static int get_hello(const uint8_t *body, size_t len, struct rpc_hello *h)
{
    struct wire_dec d;
    wire_dec_init(&d, body, len);
    h->version_min = wire_get_u16(&d);
    h->version_max = wire_get_u16(&d);
    h->capabilities = wire_get_u32(&d);
    h->window_bytes = wire_get_u32(&d);
    h->max_calls = wire_get_u32(&d);
    h->heartbeat_ms = wire_get_u32(&d);
    h->flags = wire_get_u8(&d);
    wire_get_copy(&d, h->nonce, sizeof h->nonce);
    wire_get_str_copy(&d, h->name, sizeof h->name);
    /* A later version may say more at the end. */
    return wire_dec_error(&d);
}

/* A host token is for what the users of this host can reach.  The kernel vouches for the user of a
 * Unix socket, and a connector gives no other host a proof of it. */
static bool token_is_for(const struct rpc_config *config, bool local, enum rpc_peer_user user)
{
    const struct rpc_security *security = config->security;
    if (!security || security->token_len == 0)
        return false;
    return !security->host_token || (user != RPC_USER_SAME && (config->accepting || local));
}

int rpc_handshake_init(struct rpc_handshake *hs, const struct rpc_config *config,
                       const uint8_t nonce[RPC_HS_NONCE], bool local, enum rpc_peer_user user)
{
    bool token = token_is_for(config, local, user);
    *hs = (struct rpc_handshake){
        .accepting = config->accepting,
        .security = config->security,
        .token = token,
        .stranger = user == RPC_USER_OTHER && !token,
    };
    const char *name = config->name ? config->name : "hawser";
    if (strlen(name) >= RPC_HS_NAME_CHARS)
        return -EINVAL;
    struct rpc_hello hello = {
        .version_min = RPC_VERSION_MIN,
        .version_max = RPC_VERSION_MAX,
        .capabilities = config->capabilities,
        .window_bytes = config->window_bytes,
        .max_calls = config->max_calls,
        .heartbeat_ms =
            config->heartbeat_ns == HW_NEVER ? 0 : (uint32_t)(config->heartbeat_ns / HW_MS),
        .flags = (uint8_t)((config->accepting && token ? RPC_HELLO_PROOF_WANTED : 0) |
                           (config->takes_fds ? RPC_HELLO_TAKES_FDS : 0) |
                           (!config->accepting && config->resumes ? RPC_HELLO_RESUMES : 0) |
                           (!config->accepting && config->resuming ? RPC_HELLO_RESUMING : 0)),
    };
    memcpy(hello.nonce, nonce, sizeof hello.nonce);
    strcpy(hello.name, name);
    uint8_t buf[RPC_HS_BODY_MAX];
    struct wire_enc body;
    wire_enc_init_fixed(&body, buf, sizeof buf);
    put_hello(&body, &hello);
    int role = config->accepting ? ACCEPTOR : CONNECTOR;
    hs->hello_len[role] =
        encode_message(RPC_HS_HELLO, &body, hs->hello[role], sizeof hs->hello[role]);
    if (!config->accepting)
        put_own_hello(hs);
    return 0;
}

void rpc_handshake_refuse(struct rpc_handshake *hs, int error, const char *text)
{
    uint8_t buf[RPC_HS_BODY_MAX];
    struct wire_enc body;
    wire_enc_init_fixed(&body, buf, sizeof buf);
    wire_put_u32(&body, rpc_error_to_wire(error));
    char cut[RPC_WHY_CHARS];
    snprintf(cut, sizeof cut, "%s", text);
    wire_put_str(&body, cut);
    put_message(hs, RPC_HS_REFUSED, &body);
}

static struct rpc_bytes token_of(const struct rpc_security *security, size_t tenant)
{
    if (tenant == 0)
        return (struct rpc_bytes){security->token, security->token_len};
    const struct rpc_token *token = &security->tenants[tenant - 1];
    return (struct rpc_bytes){token->bytes, token->len};
}

static int proof(const struct rpc_handshake *hs, size_t tenant, const char *label, uint8_t mac[32])
{
    const struct rpc_bytes parts[] = {
        {hs->hello[CONNECTOR], hs->hello_len[CONNECTOR]},
        {hs->hello[ACCEPTOR], hs->hello_len[ACCEPTOR]},
        {hs->binding, sizeof hs->binding},
    };
    return rpc_token_mac(token_of(hs->security, tenant), label, parts, ARRAY_LEN(parts), mac);
}

static int put_proof(struct rpc_handshake *hs, enum rpc_hs_type type, const char *label)
{
    uint8_t mac[32];
    int rc = proof(hs, hs->tenant, label, mac);
    if (rc)
        return fail(hs, rc, "cannot compute the token proof");
    struct wire_enc body;
    wire_enc_init_fixed(&body, mac, sizeof mac);
    wire_enc_space(&body, sizeof mac);
    put_message(hs, type, &body);
    return 0;
}

static bool proof_holds(const struct rpc_handshake *hs, size_t tenant, const char *label,
                        const uint8_t *body, size_t len)
{
    uint8_t mac[32];
    return len == sizeof mac && proof(hs, tenant, label, mac) == 0 &&
           rpc_token_mac_equal(mac, body);
}

/* All are tried, so that the time tells nothing. */
static bool find_tenant(struct rpc_handshake *hs, const uint8_t *body, size_t len)
{
    bool found = false;
    for (size_t i = 0; i <= hs->security->tenant_count; i++) {
        if (proof_holds(hs, i, "hawser connector", body, len)) {
            hs->tenant = i;
            found = true;
        }
    }
    return found;
}

static int agree_version(struct rpc_handshake *hs)
{
    uint16_t low = RPC_VERSION_MIN, high = RPC_VERSION_MAX;
    if (hs->peer.version_min > low)
        low = hs->peer.version_min;
    if (hs->peer.version_max < high)
        high = hs->peer.version_max;
    if (low <= high) {
        hs->version = high;
        return 0;
    }
    int rc = fail(hs, -EPROTONOSUPPORT,
                  "no common protocol version: this side speaks %u to %u, the peer %u to %u; use "
                  "the same release on both",
                  RPC_VERSION_MIN, RPC_VERSION_MAX, hs->peer.version_min, hs->peer.version_max);
    if (hs->accepting)
        rpc_handshake_refuse(hs, rc, hs->why);
    return rc;
}

static int turn_stranger_away(struct rpc_handshake *hs)
{
    if (!hs->accepting)
        return fail(
            hs, -EACCES,
            "another user listens on this socket; run the client as that user, or give both "
            "sides the same --token-file");
    rpc_handshake_refuse(hs, -EACCES,
                         "this socket is for the user that started the server; others need its "
                         "--token-file");
    return fail(hs, -EACCES, "another user on a socket that has no token");
}

static int on_hello(struct rpc_handshake *hs, const uint8_t *message, size_t message_len)
{
    struct rpc_hello *peer = &hs->peer;
    if (get_hello(message + RPC_HS_HEADER, message_len - RPC_HS_HEADER, peer))
        return fail(hs, -EPROTO, "the peer's hello is malformed");
    int rc = agree_version(hs);
    if (rc)
        return rc;
    if (peer->window_bytes < RPC_WINDOW_MIN || peer->window_bytes > RPC_WINDOW_MAX ||
        peer->max_calls < RPC_CALLS_MIN || peer->max_calls > RPC_CALLS_MAX)
        return fail(hs, -EPROTO, "the peer's hello has limits out of range: window %u, calls %u",
                    peer->window_bytes, peer->max_calls);
    if (hs->stranger)
        return turn_stranger_away(hs);
    if (hs->full && !(peer->flags & RPC_HELLO_RESUMING)) {
        rpc_handshake_refuse(hs, -EUSERS, hs->full);
        return fail(hs, -EUSERS, "refused: %s", hs->full);
    }
    int role = hs->accepting ? CONNECTOR : ACCEPTOR;
    memcpy(hs->hello[role], message, message_len);
    hs->hello_len[role] = message_len;
    if (hs->accepting)
        put_own_hello(hs);

    if (hs->accepting) {
        hs->state = hs->token ? RPC_HS_WAIT_PROOF : RPC_HS_DONE;
        return hs->token ? -EINPROGRESS : 0;
    }
    if (peer->flags & RPC_HELLO_PROOF_WANTED) {
        if (!hs->token)
            return fail(
                hs, -EACCES,
                "the server wants a token; set VENUS_TOKEN_FILE to a copy of its token file");
        hs->state = RPC_HS_WAIT_WELCOME;
        rc = put_proof(hs, RPC_HS_PROOF, "hawser connector");
        return rc ? rc : -EINPROGRESS;
    }
    if (hs->token && hs->security->host_token)
        return fail(hs, -EACCES,
                    "the server does not know this user's token, so another user may have started "
                    "it; if you trust it, set VENUS_TOKEN_FILE=none");
    if (hs->token)
        return fail(hs, -EACCES,
                    "a token is set but the server cannot prove that it knows one; start it with "
                    "--token-file, or unset VENUS_TOKEN_FILE");
    hs->state = RPC_HS_DONE;
    return 0;
}

static int on_refused(struct rpc_handshake *hs, const uint8_t *body, size_t len)
{
    struct wire_dec d;
    wire_dec_init(&d, body, len);
    int error = rpc_error_from_wire(wire_get_u32(&d));
    char text[RPC_WHY_CHARS];
    wire_get_str_copy(&d, text, sizeof text);
    if (wire_dec_error(&d))
        return fail(hs, -EPROTO, "the peer's refusal is malformed");
    if (error == -EAGAIN)
        error = -EACCES; /* no status an endpoint can have */
    return fail(hs, error, "the peer refused: %.200s", text);
}

static int on_proof(struct rpc_handshake *hs, const uint8_t *body, size_t len)
{
    if (!find_tenant(hs, body, len)) {
        fail(hs, -EACCES,
             "wrong token: the client's --token-file or VENUS_TOKEN_FILE is not this server's");
        rpc_handshake_refuse(hs, -EACCES,
                             hs->security->host_token
                                 ? "wrong token: this server is for the user that started it; "
                                   "others need its --token-file"
                                 : "wrong token: --token-file or VENUS_TOKEN_FILE must hold the "
                                   "server's token");
        return -EACCES;
    }
    int rc = put_proof(hs, RPC_HS_WELCOME, "hawser acceptor");
    if (rc == 0)
        hs->state = RPC_HS_DONE;
    return rc;
}

static int on_welcome(struct rpc_handshake *hs, const uint8_t *body, size_t len)
{
    if (!proof_holds(hs, 0, "hawser acceptor", body, len))
        return fail(hs, -EACCES,
                    "the server does not know the token: it is not the server you mean");
    hs->state = RPC_HS_DONE;
    return 0;
}

static int on_message(struct rpc_handshake *hs, uint8_t type, const uint8_t *message, size_t len)
{
    const uint8_t *body = message + RPC_HS_HEADER;
    size_t body_len = len - RPC_HS_HEADER;
    if (type == RPC_HS_REFUSED)
        return on_refused(hs, body, body_len);
    if (type == RPC_HS_HELLO && hs->state == RPC_HS_WAIT_HELLO)
        return on_hello(hs, message, len);
    if (type == RPC_HS_PROOF && hs->state == RPC_HS_WAIT_PROOF)
        return on_proof(hs, body, body_len);
    if (type == RPC_HS_WELCOME && hs->state == RPC_HS_WAIT_WELCOME)
        return on_welcome(hs, body, body_len);
    return fail(hs, -EPROTO, "handshake message %u out of turn", type);
}

static bool begins_with(const uint8_t *p, size_t n, const char *text)
{
    return n >= strlen(text) && memcmp(p, text, strlen(text)) == 0;
}

static bool is_http_request(const uint8_t *p, size_t n)
{
    static const char *const verbs[] = {"GET ",   "HEAD ",    "POST ",  "PUT ",     "DELETE ",
                                        "PATCH ", "OPTIONS ", "TRACE ", "CONNECT ", "PRI * HTTP"};
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (begins_with(p, n, verbs[i]))
            return true;
    }
    return false;
}

/* In HTTP, so that a browser or curl shows it. */
static int turn_http_away(struct rpc_handshake *hs)
{
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
                                 "Connection: close\r\n\r\n"
                                 "This port speaks Hawser's RPC, not HTTP, which \"hawser serve "
                                 "--http ADDR\" answers at ADDR.\n";
    assert(hs->out_len + sizeof answer <= sizeof hs->out);
    memcpy(hs->out + hs->out_len, answer, sizeof answer - 1);
    hs->out_len += sizeof answer - 1;
    return fail(hs, -EPROTO,
                "an HTTP request: this port speaks Hawser's RPC, not HTTP, which has addresses of "
                "its own (--http, --metrics)");
}

static int bad_magic(struct rpc_handshake *hs, const uint8_t *p, size_t n)
{
    if (is_http_request(p, n))
        return turn_http_away(hs);
    if (begins_with(p, n, "HTTP/"))
        return fail(hs, -EPROTO,
                    "an HTTP server: give the address on which \"hawser serve\" listens for RPC");
    if (n >= 2 && p[0] == 0x16 && p[1] == 0x03) {
        /* Any plain bytes tell a TLS client that it is in the wrong place. */
        rpc_handshake_refuse(hs, -EPROTO, "this port does not speak TLS");
        return fail(hs, -EPROTO,
                    "a TLS client on a plain port: give the server --cert and --key, or the client "
                    "no VENUS_TLS_* variable");
    }
    if (n >= 2 && p[0] == 0x15 && p[1] == 0x03)
        return fail(hs, -EPROTO,
                    "the server speaks TLS: set VENUS_TLS_CA or VENUS_TLS_FINGERPRINT");
    return fail(hs, -EPROTO, "not a Hawser peer: wrong magic 0x%02x", p[0]);
}

int rpc_handshake_feed(struct rpc_handshake *hs, const uint8_t *p, size_t n, size_t *used)
{
    assert(hs->state != RPC_HS_DONE);
    *used = 0;
    for (;;) {
        size_t left = n - *used;
        const uint8_t *message = p + *used;
        size_t known = left < sizeof magic ? left : sizeof magic;
        if (memcmp(message, magic, known) != 0)
            return bad_magic(hs, message, left);
        if (left < RPC_HS_HEADER)
            return -EINPROGRESS;
        size_t len = RPC_HS_HEADER + wire_load16(message + 6);
        if (message[5] != 0 || len > RPC_HS_MESSAGE_MAX)
            return fail(hs, -EPROTO, "a handshake message of %zu bytes is past the limit", len);
        if (left < len)
            return -EINPROGRESS;
        *used += len;
        int rc = on_message(hs, message[4], message, len);
        if (rc != -EINPROGRESS)
            return rc;
    }
}
