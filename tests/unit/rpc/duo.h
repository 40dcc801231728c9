/* tests/unit/rpc/duo.h - two endpoints over any transport, turned by one thread.
 *
 * Time is the loopback's virtual time where there is one.  The other transports run in real time,
 * which bounds a hang and is never asserted. */
#ifndef HAWSER_TESTS_UNIT_RPC_DUO_H
#define HAWSER_TESTS_UNIT_RPC_DUO_H

#include "bench/rpc/loopback.h"
#include "rpc/rpc.h"
#include "rpc/transport/net.h"

enum { CLIENT, SERVER };

enum link_kind {
    LINK_LOOP,
    LINK_LOOP_PIECES, /* a few bytes at a time */
    LINK_LOOP_STALLS,
    LINK_LOOP_JITTER,
    LINK_UNIX,
    LINK_SHM, /* the smallest ring, so that it wraps */
    LINK_TCP4,
    LINK_TCP6,
    LINK_TLS,
    LINK_UCX,
    LINK_KINDS
};

extern const char *const link_names[LINK_KINDS];

static inline bool link_is_loop(enum link_kind kind)
{
    return kind <= LINK_LOOP_JITTER;
}

/* False where this machine or build has no such transport. */
bool link_exists(enum link_kind kind);

/* The connecting end first.  *net is set for loopback, and outlives the transports. */
void link_make(enum link_kind kind, struct rpc_transport *out[2], struct rpc_loopnet **net);

struct duo;
typedef void duo_message_fn(struct duo *duo, int side, struct rpc_msg *msg);

struct duo {
    enum link_kind kind;
    struct rpc_loopnet *net;
    uint64_t give_up_ns; /* real time: a turn after this fails the test */
    struct rpc_ep *ep[2];
    duo_message_fn *on_message; /* answers and releases; NULL: duo_serve */
    bool absent[2];             /* this side's program does nothing */
    struct rpc_msg *held[4096]; /* by METHOD_HOLD */
    uint32_t held_count;
    uint64_t sunk, pushed; /* messages of METHOD_SINK; pushes */
    uint64_t sunk_bytes;
};

enum { METHOD_ECHO = 1, METHOD_FAIL, METHOD_HOLD, METHOD_SINK };

/* Connects and shakes hands; either config may be NULL. */
void duo_open(struct duo *duo, enum link_kind kind, const struct rpc_config *client,
              const struct rpc_config *server);
/* The same without waiting for the handshake. */
void duo_start(struct duo *duo, enum link_kind kind, const struct rpc_config *client,
               const struct rpc_config *server);
void duo_close(struct duo *duo);
void duo_drop(struct duo *duo, int side); /* destroys one endpoint; releases what it held */

/* One turn of both programs; virtual time moves when there is nothing else to do.  Fails the test
 * when the duo has been at it absurdly long, so loops around it need no limit of their own. */
void duo_turn(struct duo *duo);
void duo_until(struct duo *duo, bool (*done)(void *user), void *user);
void duo_until_count(struct duo *duo, const uint64_t *count, uint64_t value);
void duo_until_status(struct duo *duo, int side, int status);
void duo_drain(struct duo *duo); /* until neither side has anything to send or read */

void duo_serve(struct duo *duo, int side, struct rpc_msg *msg);
void duo_release_held(struct duo *duo, int side);

/* What a call gave. */
struct outcome {
    uint64_t ended; /* how often the callback ran */
    int status;
    size_t len;
    uint64_t hash;
    char text[RPC_ERROR_TEXT_MAX + 1];
};

rpc_reply_fn outcome_fn;

/* Bytes that differ at every place and from every seed. */
void pattern_fill(uint8_t *p, size_t n, uint64_t seed);
uint64_t pattern_hash(const uint8_t *p, size_t n);

/* One segment. */
struct rpc_send send_of(uint32_t method, struct iovec *iov, const void *data, size_t len);

#endif
