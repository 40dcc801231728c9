/* kv/resp/door.h - where clients of Redis' protocol connect: a listener, a loop that serves all
 * connections, and a thread for each that must wait (kv/resp/session.h).
 *
 * Who may: on a Unix socket this user; on TCP whoever knows the password or a tenant's token.
 *
 * Trust: see kv/resp/session.h.  Threads: open and close from one.  Lifetime: open/close; the KV
 * daemon runs meanwhile, and its hosts are there. */
#ifndef HAWSER_KV_RESP_DOOR_H
#define HAWSER_KV_RESP_DOOR_H

#include "kv/common/kv.h"
#include "kv/resp/session.h"
#include "kv/resp/tenants.h"

struct kv_host;

enum {
    RESP_DOORS_MAX = 3
}; /* of one daemon: each may have KV_BLOCK_PUTS_MAX / 4 puts in progress */

struct resp_door_options {
    struct rpc_addr addr;                  /* tcp or unix */
    struct rpc_tls_context *tls;           /* NULL: plain; must stay */
    const char *socket;                    /* of the KV daemon; must stay */
    struct kv_host *hosts[KV_DAEMONS_MAX]; /* every daemon of this process, by index */
    uint32_t host_count;                   /* 0: not in this process */
    const uint8_t *password;
    size_t password_len;                /* 0: none; the bytes must stay */
    const struct resp_tenants *tenants; /* NULL: none; must stay */
    bool may_flush;
    bool open;           /* no AUTH is needed for what belongs to no tenant */
    uint64_t auth_ns;    /* that a connection has for AUTH; 0: 10 s */
    uint64_t timeout_ns; /* of what other daemons are asked; 0: KV_TIMEOUT_DEFAULT_NS */
    struct resp_store store;
};

struct resp_door;

/* 0, or a negative errno with cause and remedy in why. */
int resp_door_open(const struct resp_door_options *options, struct resp_door **out,
                   char why[RPC_WHY_CHARS]) MUST_CHECK;
/* Ends all connections. */
void resp_door_close(struct resp_door *door);
/* Where it listens, with the port that it got. */
const struct rpc_addr *resp_door_addr(const struct resp_door *door);

#endif
