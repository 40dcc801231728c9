/* rpc/server.h - many endpoints on one thread: listens, accepts, shakes hands, serves.
 *
 * Trust: a client that is silent, slow, never reads or breaks the rules costs bounded memory and
 * at most one log line (rpc/callers.h), and does not affect other clients.
 * Threads: one, except rpc_server_stop, and endpoints while it sleeps (`sleeps`).  Lifetime:
 * create/destroy. */
#ifndef HAWSER_RPC_SERVER_H
#define HAWSER_RPC_SERVER_H

#include "rpc/rpc.h"
#include "rpc/transport/net.h"

enum {
    RPC_SERVER_CLIENTS_DEFAULT = 256,
    RPC_SERVER_HANDSHAKES_MAX = 64, /* callers that have not proved anything yet */
    RPC_SERVER_LISTENERS_MAX = 16,
    RPC_SERVER_WATCHES_MAX = 4 /* a signalfd, and a few to spare */
};

struct rpc_server;

struct rpc_server_ops {
    /* The handshake is done.  0, or a negative errno to turn the client away; NULL: all welcome. */
    int (*opened)(void *user, struct rpc_ep *ep);
    /* A call, post or push; the handler answers (now or later) and releases it. */
    void (*message)(void *user, struct rpc_ep *ep, struct rpc_msg *msg);
    /* Whether a client that comes to resume may say this: it does so, though not by
     * RPC_METHOD_RESUME.  All else ends its connection, since max_clients does not hold for it.
     * NULL: nothing else does. */
    bool (*resumes)(void *user, const struct rpc_msg *msg);
    /* The connection has ended; held messages must be released here.  NULL: nothing to do. */
    void (*closed)(void *user, struct rpc_ep *ep, int status);
    /* A sleep begins, or has ended.  In between the server touches no endpoint, so another thread
     * may answer on them.  The call at the end must not return before that thread is done.
     * NULL: there is no such thread. */
    void (*sleeps)(void *user, bool begins);
    /* A few times a second while there are connections, for deadlines.  NULL: there are none. */
    void (*swept)(void *user);
};

struct rpc_server_options {
    const struct rpc_server_ops *ops;
    void *user;
    struct rpc_config config; /* for every endpoint; accepting is set for you */
    uint32_t max_clients;     /* 0: RPC_SERVER_CLIENTS_DEFAULT; the next is refused with -EUSERS */
    uint64_t stalled_ns;      /* 0: 10 s; a peer that takes nothing of what waits for it */
    uint64_t mute_ns; /* 0: 30 s; a connection that will carry other bytes, and does not yet */
    uint64_t resume_window_ns; /* how long a client that was cut may resume; 0: not at all */
    bool until_empty; /* stops once the last connection has gone, also one that never was open */
};

int rpc_server_create(const struct rpc_server_options *options, struct rpc_server **out) MUST_CHECK;
void rpc_server_destroy(struct rpc_server *server);

/* 0, or a negative errno with cause and remedy in why.  *bound (may be NULL) is the address as
 * bound, valid while the server lives. */
int rpc_server_listen(struct rpc_server *server, const struct rpc_addr *addr,
                      const struct rpc_net_options *net, const char **bound,
                      char why[RPC_WHY_CHARS]) MUST_CHECK;
/* Serves a transport that came another way; takes it, also on failure. */
int rpc_server_adopt(struct rpc_server *server, struct rpc_transport *transport) MUST_CHECK;

/* From inside `message`: another process has taken over this connection or another one
 * of the server.  Once the callback returns, the server forgets the connection: it tells the peer
 * nothing, reads nothing and does not call `closed`.  The connection counts against max_clients
 * until rpc_server_returned. */
void rpc_server_detach(struct rpc_server *server, struct rpc_ep *ep);
/* Another process takes one client more, over a connection that is not the server's: the client of
 * an open one, which will leave.  It counts as one that was detached.  0, or -EUSERS when there are
 * more than max_clients. */
int rpc_server_reserve(struct rpc_server *server) MUST_CHECK;
/* A connection that was detached or reserved has ended. */
void rpc_server_returned(struct rpc_server *server);

/* From inside `message`: a client that wants to may resume from now on.  Until then its endpoint
 * lives on while it is cut, queues what it is sent, and `closed` is not called. */
void rpc_server_offer_resume(struct rpc_server *server, struct rpc_ep *ep);

/* Calls ready(user) in a turn while the descriptor is readable.  It must stay open as long as the
 * server lives.  0, -ENOSPC, or the errno of epoll. */
int rpc_server_watch(struct rpc_server *server, int fd, void (*ready)(void *user),
                     void *user) MUST_CHECK;

/* One turn: waits for something to happen, at most timeout_ns, and deals with it.  0, or
 * -ECANCELED after rpc_server_stop. */
int rpc_server_turn(struct rpc_server *server, uint64_t timeout_ns);
/* Turns until stopped. */
void rpc_server_run(struct rpc_server *server);
/* From any thread or a signal handler. */
void rpc_server_stop(struct rpc_server *server);

/* Of every endpoint. */
const struct rpc_config *rpc_server_config(const struct rpc_server *server);

/* Detached ones included. */
uint32_t rpc_server_clients(const struct rpc_server *server);

#endif
