/* The handshake in both roles, with and without a token, fed in pieces.  The first byte chooses
 * role, token and place of the peer, the second the size of the pieces.  Whatever comes, `used`
 * stays inside the input, what is to be sent stays inside its buffer, the end is an error that a
 * connection may have, and nobody gets past a token that the input cannot know. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/endpoint/handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

static enum rpc_peer_user user_of(uint8_t choice)
{
    return (enum rpc_peer_user)((choice >> 3 & 3) % 3);
}

/* A token that was given is always proved, a host token to those of this host whom the kernel does
 * not vouch for. */
static bool needs_proof(uint8_t choice)
{
    bool accepting = choice & 1, local = choice & 4, host_token = choice & 32;
    return choice & 2 &&
           (!host_token || (user_of(choice) != RPC_USER_SAME && (accepting || local)));
}

static void begin(struct rpc_handshake *hs, uint8_t choice)
{
    static const uint8_t nonce[RPC_HS_NONCE] = "a nonce that is always the same";
    static const struct rpc_token tenant = {.bytes = "sixteen bytes more", .len = 18};
    static const struct rpc_security tokens[] = {
        {.token = "sixteen bytes of it", .token_len = 19, .tenants = &tenant, .tenant_count = 1},
        {.token = "sixteen bytes of it", .token_len = 19, .host_token = true},
    };
    const struct rpc_security *token = &tokens[choice >> 5 & 1];
    struct rpc_config config = {
        .accepting = choice & 1,
        .security = choice & 2 ? token : NULL,
        .window_bytes = RPC_WINDOW_DEFAULT,
        .max_calls = RPC_CALLS_DEFAULT,
        .heartbeat_ns = RPC_HEARTBEAT_DEFAULT_NS,
    };
    require(rpc_handshake_init(hs, &config, nonce, choice & 4, user_of(choice)) == 0);
}

/* Gives [at, end) in a block of its own, so that a sanitizer sees one byte too far. */
static int feed(struct rpc_handshake *hs, const uint8_t *at, size_t n, size_t *used)
{
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, at, n);
    int rc = rpc_handshake_feed(hs, copy, n, used);
    free(copy);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct rpc_handshake hs;
    uint8_t choice = data[0], piece = data[1];
    begin(&hs, choice);
    const uint8_t *at = data + 2, *end = data + size, *have = at;
    while (have < end) {
        size_t more = piece ? piece : 1;
        have = (size_t)(end - have) < more ? end : have + more;
        size_t used = 0, n = (size_t)(have - at);
        int rc = feed(&hs, at, n, &used);
        require(used <= n && hs.out_len <= sizeof hs.out);
        at += used;
        if (rc == -EINPROGRESS)
            continue;
        require(rc <= 0 && rc != -EAGAIN);
        require((rc == 0) == (hs.state == RPC_HS_DONE));
        require(rc != 0 || !needs_proof(choice));
        require(rc == 0 || hs.why[0] != '\0');
        return 0;
    }
    return 0;
}
