/* rpc/endpoint/ep.h - what an endpoint is made of; private to endpoint.c, send.c and receive.c. */
#ifndef HAWSER_RPC_ENDPOINT_EP_H
#define HAWSER_RPC_ENDPOINT_EP_H

#include "base/looks.h"
#include "rpc/endpoint/calls.h"
#include "rpc/endpoint/handshake.h"
#include "rpc/endpoint/rx.h"
#include "rpc/endpoint/tx.h"
#include "rpc/rpc.h"

struct rpc_resume;

struct rpc_ep {
    struct rpc_transport *transport;
    struct rpc_config config; /* with the defaults filled in */
    int status;
    char reason[RPC_WHY_CHARS];
    void *user;

    struct rpc_handshake *handshake; /* NULL once done */
    size_t handshake_sent;           /* bytes of its out that are written */
    uint64_t handshake_deadline_ns;  /* by the looks, as all that judges the peer */
    uint64_t received_before;        /* bytes of the handshake */
    struct rpc_resume *resume;       /* NULL: a cut is the end */
    uint32_t peer_capabilities;
    bool peer_takes_fds, peer_resumes, peer_resuming;
    bool mute; /* rpc_ep_mute */
    uint32_t message_max;
    bool proved;   /* both ends know the token */
    size_t tenant; /* whose it is; 0: the server's own */
    char peer_name[RPC_HS_NAME_CHARS];

    struct rpc_tx tx;
    bool flushing;
    _Atomic bool send_blocked; /* the transport is full; rpc_wait_bytes reads it without the lock */
    int send_error; /* the transport takes no more; ends the endpoint once all input is read */
    uint64_t queued_since_ns; /* of the batch's first message; 0: empty */
    uint64_t write_cost_ns;   /* what a write has been taking lately */

    struct rpc_rx rx;
    struct rpc_rx_msg *inbox, *inbox_last;
    uint32_t calls_to_answer;
    uint64_t credit_due; /* released, not yet told to the peer */
    bool credit_asked;   /* we ran short and told the peer; it has sent none since */
    bool credit_wanted;  /* the peer asked: what is due does not wait for more */

    struct rpc_calls calls;
    struct hw_wait wait;

    uint64_t ping_every_ns; /* HW_NEVER: no heartbeat */
    uint64_t silent_ns;     /* silence that means death */
    uint64_t last_sent_ns;
    uint64_t last_received_ns; /* by the looks */
    struct hw_looks looks;     /* one a poll */

    struct rpc_stats stats;
    struct hw_counter_set counters;
    bool trace;
    uint64_t traced_sent, traced_received; /* hundreds already printed */
};

static inline uint64_t rpc_ep_now(const struct rpc_ep *ep)
{
    return ep->config.clock.now_ns ? ep->config.clock.now_ns(ep->config.clock.user) : hw_now_ns();
}

/* Ends the connection: sticky status, one log line, every call in flight ends with it.  Returns
 * the status, so that it can stand in a return. */
int rpc_ep_fail(struct rpc_ep *ep, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The same for a transport whose stream ended with rc, in the transport's own words. */
int rpc_ep_lost(struct rpc_ep *ep, int rc);

/* Tells an open peer why the connection ends, as far as the transport takes it. */
void rpc_ep_goodbye(struct rpc_ep *ep, int reason, const char *text);

/* True when credit goes back even with nothing else to send. */
bool rpc_ep_owes_credit(const struct rpc_ep *ep);

/* Tells the peer that a call has ended here, which saves the peer work. */
void rpc_ep_send_cancel(struct rpc_ep *ep, uint32_t id);

/* The handshake is done: the peer's limits hold from now on. */
void rpc_ep_open(struct rpc_ep *ep);

/* Prints the VENUS_TRACE_NET summary when another hundred messages are through. */
void rpc_ep_trace(struct rpc_ep *ep);

static inline void rpc_ep_note_time(_Atomic uint64_t *sum, _Atomic uint64_t *max, uint64_t ns)
{
    hw_counter_bump(sum, ns);
    if (ns > hw_counter_load(max))
        atomic_store_explicit(max, ns, memory_order_relaxed);
}

#endif
