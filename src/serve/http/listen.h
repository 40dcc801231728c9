/* serve/http/listen.h - an HTTP listener at an address: what every door of a process shares.
 *
 * Threads: the daemon's own.  Lifetime: MHD_stop_daemon ends it. */
#ifndef HAWSER_SERVE_HTTP_LISTEN_H
#define HAWSER_SERVE_HTTP_LISTEN_H

#include "base/attr.h"
#include "rpc/transport/addr.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

struct http_listen {
    const char *what; /* for messages: "metrics", "--http" */
    const struct rpc_addr *addr;
    MHD_AccessHandlerCallback handle;
    MHD_RequestCompletedCallback completed;  /* NULL: none */
    MHD_NotifyConnectionCallback connection; /* NULL: none */
    void *user;
    unsigned connections, timeout_s, threads;
    const char *cert, *key; /* PEM texts; NULL: plain */
};

/* 0, or a negative errno with a sentence in why.  *port_out is the port as bound. */
int http_listen(const struct http_listen *options, struct MHD_Daemon **out, uint16_t *port_out,
                char why[RPC_WHY_CHARS]) MUST_CHECK;

#endif
