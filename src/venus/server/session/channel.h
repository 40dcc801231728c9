/* venus/server/session/channel.h - the server's end of a session's connection, shared by its
 * threads.
 *
 * One thread executes what arrives, others report what the GPU has done.  Whoever has to wait
 * reads for everybody; a keeper answers heartbeats while nobody does, because a driver may compile
 * for minutes, and ends the process of a client that has gone while the driver is busy.  Where
 * there are cores for it, one more thread receives what follows a large upload while the executor
 * stores it.  What it receives is bounded as ever: by the window that the client was given.
 *
 * Locks, in this order: the turn, then the lock.  The lock guards the endpoint and all memory that
 * both kinds of threads touch.  Waiting for the peer gives it back meanwhile.  Deltas must leave in
 * the order in which they were made, so who makes one holds the turn from before it is encoded
 * until it is sent.
 *
 * Trust: as rpc/rpc.h.
 * Threads: any; vns_channel_receive, vns_channel_poll and the calls about uploads on one only, the
 * executor.
 * Lifetime: init/fini; the endpoint is the caller's, and outlives it. */
#ifndef HAWSER_VENUS_SERVER_SESSION_CHANNEL_H
#define HAWSER_VENUS_SERVER_SESSION_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "rpc/rpc.h"
#include "venus/server/upload/arrivals.h"

enum {
    /* Executor, client, what runs them, and one for the others: with fewer cores nobody spins. */
    VNS_SPIN_CORES = 4,
    /* Bytes that take longer to store than the thread takes to notice: some 15 us. */
    VNS_AHEAD_LEAST = 128 << 10,
};

/* The thread that receives ahead.  The atomics are relaxed: they only say when to look, and what
 * was read is handed on under the lock. */
struct vns_ahead {
    bool allowed;         /* there are cores for it; the executor's */
    _Atomic bool started; /* set by the executor: from now on a lock is worth some tries */
    _Atomic bool on;      /* an upload is being stored; set under the lock, cleared without */
    _Atomic bool reads;   /* it is who `reading` speaks of; changes under the lock */
    bool sleeps;          /* under the lock */
    bool uploaded;        /* since the client was last told of an end; under the lock */
    _Atomic uint64_t awake_until_ns; /* set under the lock */
    pthread_cond_t wakes;
    pthread_t thread;
};

struct vns_channel {
    struct rpc_ep *ep;
    pthread_mutex_t turn;
    pthread_mutex_t lock;
    pthread_cond_t arrived; /* somebody polled: there may be a message, credit or room */
    bool reading;           /* a thread is in rpc_wait_bytes, without the lock */
    bool executing;         /* the executor is not in vns_channel_receive */
    uint64_t ended_ns;      /* when the keeper found the connection ended; 0: it has not */
    bool stopping;
    pthread_cond_t keeper_wakes;
    pthread_t keeper;
    struct vns_ahead ahead;
    struct vns_arrivals *arrivals; /* NULL: there are no lanes; set before other threads are */
    uint64_t quiet_until_ns;       /* see vns_channel_expect */
    void (*tick)(void *user);      /* the keeper's, without locks */
    void *user;
};

/* Uses an endpoint whose handshake is done and starts the keeper, which calls tick(user) (may be
 * NULL) a few times a second.  0 or a negative errno. */
int vns_channel_init(struct vns_channel *channel, struct rpc_ep *ep, void (*tick)(void *user),
                     void *user) MUST_CHECK;
/* Ends its threads.  No other may be inside. */
void vns_channel_fini(struct vns_channel *channel);

/* The next message, to be released under the lock; NULL when the connection has ended.  Flushes
 * before it waits. */
struct rpc_msg *vns_channel_receive(struct vns_channel *channel);

/* The client is likely to be quiet until then: who waits sleeps, and begins to look when it is
 * time.
 */
void vns_channel_expect(struct vns_channel *channel, uint64_t ns);

/* The same without waiting: NULL when nothing has arrived, too. */
struct rpc_msg *vns_channel_poll(struct vns_channel *channel);

/* The executor begins to store what a client uploads, VNS_AHEAD_LEAST bytes or more, and has done
 * so: what arrives meanwhile is received.  Without the lock, which the executor had better not hold
 * for long between the two.  Nothing where cores are few, or the thread cannot be had. */
void vns_channel_upload_begin(struct vns_channel *channel);
void vns_channel_upload_end(struct vns_channel *channel);

/* The client was told of the end of work.  A program that uploaded before it is likely to upload
 * again when it has prepared the next: the thread that receives ahead is awake by then, which may
 * take longer than the upload. */
void vns_channel_told(struct vns_channel *channel);

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

/* The same for who holds neither, and waits until the transport has it.  A connection that has
 * ended is found by the next receive too, so this need not be checked. */
int vns_channel_send(struct vns_channel *channel, uint32_t method, const void *data, size_t len);

/* Under the lock. */
void vns_channel_flush(struct vns_channel *channel);

/* Tells the peer why and reads on until it has closed too, for a while: closing on what it still
 * sends would take the reason away from it. */
void vns_channel_end(struct vns_channel *channel, int reason, const char *text);

#endif
