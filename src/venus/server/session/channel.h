/* venus/server/session/channel.h - the server's end of a session's connection, shared by its
 * threads.
 *
 * One thread executes what arrives, others report what the GPU has done.  Whoever has to wait
 * reads for everybody; a heartbeat thread answers heartbeats while nobody does, because a driver
 * may compile for minutes, and ends the process of a client that has gone while the driver is busy.
 *
 * Locks, in this order: the turn, then the lock.  The lock guards the endpoint and all memory that
 * both kinds of threads touch.  Waiting for the peer gives it back meanwhile.  Deltas must leave in
 * the order in which they were made, so who makes one holds the turn from before it is encoded
 * until it is sent.
 *
 * Trust: as rpc/rpc.h.
 * Threads: any; vns_channel_receive and vns_channel_poll on one only, the executor.
 * Lifetime: init/fini; the endpoint is the caller's, and outlives it. */
#ifndef HAWSER_VENUS_SERVER_SESSION_CHANNEL_H
#define HAWSER_VENUS_SERVER_SESSION_CHANNEL_H

#include <pthread.h>
#include <stdbool.h>

#include "rpc/rpc.h"

struct vns_channel {
    struct rpc_ep *ep;
    pthread_mutex_t turn;
    pthread_mutex_t lock;
    pthread_cond_t arrived; /* somebody polled: there may be a message, credit or room */
    bool reading;           /* a thread is in rpc_wait_bytes, without the lock */
    bool executing;         /* the executor has a message, and may be in a driver */
    bool gave_up;           /* vns_channel_give_up has ended the connection */
    bool owes;              /* this side has ended it, and its goodbye may not be written */
    bool bulk;              /* the send queue refers to memory of who pushes */
    uint64_t ended_ns; /* when the heartbeat thread found the connection ended; 0: it has not */
    bool stopping;
    pthread_cond_t heartbeat_wakes;
    pthread_t heartbeat;
    void (*tick)(void *user); /* the heartbeat thread's, without locks */
    void *user;
};

/* Uses an endpoint whose handshake is done and starts the heartbeat thread, which calls tick(user)
 * (may be NULL) a few times a second.  0 or a negative errno. */
int vns_channel_init(struct vns_channel *channel, struct rpc_ep *ep, void (*tick)(void *user),
                     void *user) MUST_CHECK;
/* Ends its threads.  No other may be inside. */
void vns_channel_fini(struct vns_channel *channel);

/* The next message, to be released under the lock; NULL when the connection has ended.  Flushes
 * before it waits. */
struct rpc_msg *vns_channel_receive(struct vns_channel *channel);

/* The same without waiting: NULL when nothing has arrived, too. */
struct rpc_msg *vns_channel_poll(struct vns_channel *channel);

void vns_channel_lock(struct vns_channel *channel);
void vns_channel_unlock(struct vns_channel *channel);
void vns_channel_turn(struct vns_channel *channel);
void vns_channel_turn_end(struct vns_channel *channel);

/* Under the turn and the lock.  Waits for credit and room, with the lock given back meanwhile; the
 * data is copied or gone when it returns.  0, or the status of an ended connection. */
int vns_channel_push(struct vns_channel *channel, uint32_t method, const void *data,
                     size_t len) MUST_CHECK;
/* The same without a copy: returns when all of it is written, or the connection has ended. */
int vns_channel_push_bulk(struct vns_channel *channel, uint32_t method, const struct iovec *iov,
                          int count) MUST_CHECK;

/* Answers a call for who holds neither, once there is room for it.  0, also when the connection has
 * ended, or why it cannot be sent. */
int vns_channel_reply(struct vns_channel *channel, struct rpc_msg *call,
                      const struct rpc_send *send) MUST_CHECK;

/* As vns_channel_push for who holds neither, and waits until the transport has it.  A connection
 * that has ended is found by the next receive too, so this need not be checked. */
int vns_channel_send(struct vns_channel *channel, uint32_t method, const void *data, size_t len);

/* The client resumes with this connection, which is taken. */
void vns_channel_resume(struct vns_channel *channel, struct rpc_transport *connection,
                        uint32_t call, uint64_t received);

/* Under the lock. */
void vns_channel_flush(struct vns_channel *channel);

/* Tells the peer why and reads on until it has closed too, for a while: closing on what it still
 * sends would take the reason away from it. */
void vns_channel_end(struct vns_channel *channel, int reason, const char *text);

/* Ends the connection, if it lives, since the client cannot be told what it waits for.  The
 * executor finds the end at its next receive, and then leaves. */
void vns_channel_give_up(struct vns_channel *channel, int reason, const char *what);
/* After the last receive: where this side gave up, reads on as vns_channel_end does. */
void vns_channel_leave(struct vns_channel *channel);

#endif
