/* rpc/transport/addr.h - where a peer is: "host:port", "[::1]:port", "unix:/path", "shm:/path",
 * "ucx:host:port".
 *
 * Trust: addresses come from the user; a bad one is refused with a sentence that says why.
 * Threads: any (no state).  Lifetime: a value. */
#ifndef HAWSER_RPC_TRANSPORT_ADDR_H
#define HAWSER_RPC_TRANSPORT_ADDR_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RPC_ADDR_HOST_CHARS = 256, /* a DNS name is at most 253 characters */
    RPC_ADDR_PATH_CHARS = 108, /* sun_path, with its NUL */
    RPC_DEFAULT_PORT = 28100   /* VENUS_SERVER_PORT overrides */
};

enum rpc_scheme { RPC_SCHEME_TCP, RPC_SCHEME_UNIX, RPC_SCHEME_SHM, RPC_SCHEME_UCX };

struct rpc_addr {
    enum rpc_scheme scheme;
    char host[RPC_ADDR_HOST_CHARS]; /* tcp, ucx; "" means every address when listening */
    uint16_t port;                  /* tcp, ucx; 0 lets the kernel choose when listening */
    char path[RPC_ADDR_PATH_CHARS]; /* unix, shm */
};

enum { RPC_WHY_CHARS = 256 };

/* 0 or -EINVAL, -ENAMETOOLONG with a sentence in why. */
int rpc_addr_parse(const char *text, struct rpc_addr *out, char why[RPC_WHY_CHARS]) MUST_CHECK;

/* The canonical text, as rpc_addr_parse takes it. */
void rpc_addr_format(const struct rpc_addr *addr, char *buf, size_t size);

/* True for unix, shm, and hosts that are literally loopback ("localhost", 127/8, ::1). */
bool rpc_addr_is_local(const struct rpc_addr *addr);

/* What to do where listening failed with rc, for the end of a message: "; ...", or "". */
const char *rpc_listen_remedy(enum rpc_scheme scheme, int rc);

#endif
