/* bench/rpc/raw_limits.h - what the machine can do without us: the raw limits beside bench-rpc's
 * figures.
 *
 * A raw link is two ends, made in one process and used in two: create, fork, then each side begins
 * its own end.  The links differ only in how bytes get across; the ping-pong and the stream over
 * them are written once.
 *
 *   tcp, unix  blocking sockets, one send and one recv a message
 *   shm        a flag in a cache line each way; payloads past one line are copied in and out
 *   tls        OpenSSL over a TCP socket, SSL_write and SSL_read
 *
 * Trust: both ends are ours.  Threads: one for an end.  Lifetime: create/destroy, in each process.
 * Errors: -ETIMEDOUT when the other side is silent for RAW_SILENCE_NS, -EPIPE when it is gone. */
#ifndef HAWSER_BENCH_RPC_RAW_LIMITS_H
#define HAWSER_BENCH_RPC_RAW_LIMITS_H

#include "base/attr.h"
#include "base/clock.h"
#include "base/hist.h"
#include "bench/rpc/delay.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RAW_SILENCE_NS (10 * HW_SEC)
#define RAW_ADAPTIVE_SPIN_NS (50 * HW_US) /* several round trips between two cores */

enum { RAW_BUFFER_BYTES = 4 << 20 }; /* of a socket, as our own tcp asks for */

/* How an end waits, as a spinning time: 0 blocks, HW_NEVER never sleeps. */
struct raw_options {
    uint64_t spin_ns;
    const char *certificate, *key; /* tls: PEM files */
    struct bench_line line;        /* tcp: through a relay, unless zeros */
};

struct raw_link;

struct raw_ops {
    const char *name;
    int (*create)(const struct raw_options *options, struct raw_link **out);
    /* After the fork: keeps one end, closes the other, shakes hands where there is a handshake. */
    int (*begin)(struct raw_link *link, bool server);
    int (*send)(struct raw_link *link, const void *data, size_t len); /* all of it */
    int (*recv)(struct raw_link *link, void *data, size_t len);       /* all of it */
    void (*destroy)(struct raw_link *link);
};

/* Embedded first in each link's own struct. */
struct raw_link {
    const struct raw_ops *ops;
};

extern const struct raw_ops raw_tcp;
extern const struct raw_ops raw_unix;
extern const struct raw_ops raw_shm;
extern const struct raw_ops raw_tls;

/* `count` exchanges of `size` bytes; buf holds them.  hist may be NULL.  Client and server make
 * the same call with the same numbers. */
int raw_ping(struct raw_link *link, void *buf, size_t size, uint64_t count,
             struct hw_hist *hist) MUST_CHECK;
int raw_pong(struct raw_link *link, void *buf, size_t size, uint64_t count) MUST_CHECK;

/* `count` messages of `size` bytes one way, and one byte back when the last has arrived.  hist gets
 * slices as measure_upload's; NULL: not wanted. */
int raw_pour(struct raw_link *link, void *buf, size_t size, uint64_t count,
             struct hw_hist *hist) MUST_CHECK;
int raw_drain(struct raw_link *link, void *buf, size_t size, uint64_t count) MUST_CHECK;

/* Two connected TCP sockets on loopback, without Nagle's delay. */
int raw_tcp_pair(int fds[2]) MUST_CHECK;

#endif
