/* bench/rpc/link.h - two processes joined twice: by a raw link and by our RPC, for comparison.
 *
 * The caller is the client; the server is a child process.  Before each measurement the client
 * tells the server over a control socket what will come and how often, so nothing but the measured
 * traffic crosses while the clock runs.
 *
 * Trust: both ends are ours.  Threads: one; open forks.  Lifetime: open/close.
 * Errors: negative errno; -EOPNOTSUPP when this build lacks the transport. */
#ifndef HAWSER_BENCH_RPC_LINK_H
#define HAWSER_BENCH_RPC_LINK_H

#include "base/attr.h"
#include "base/hist.h"
#include "bench/rpc/delay.h"
#include "rpc/rpc.h"
#include "rpc/security/security.h"

#include <stdint.h>

enum bench_transport { BENCH_TCP, BENCH_UNIX, BENCH_SHM, BENCH_TLS, BENCH_UCX, BENCH_TRANSPORTS };

extern const char *const bench_transport_names[BENCH_TRANSPORTS + 1]; /* NULL-terminated */

enum { BENCH_PATH_CHARS = 64 }; /* of a folder; short: a Unix socket's path has 107 characters */

/* Makes a private folder under $TMPDIR or /tmp.  0, or a negative errno with the cause in why. */
int bench_folder_make(char path[BENCH_PATH_CHARS], char why[RPC_WHY_CHARS]) MUST_CHECK;

/* A private folder with the sockets and TLS files of a run. */
struct bench_dir {
    char path[BENCH_PATH_CHARS];
    char certificate[80], key[80];
    struct rpc_security server, client;
};
/* One at a time; a signal that ends the process removes it first.  0, or a negative errno with
 * cause and remedy in why. */
int bench_dir_make(struct bench_dir *dir, char why[RPC_WHY_CHARS]) MUST_CHECK;
void bench_dir_remove(struct bench_dir *dir);

enum bench_place {
    BENCH_TWO_CORES, /* client and server pinned to one each, where there are two */
    BENCH_ONE_CORE,  /* both pinned to the same */
    BENCH_UNPINNED
};

struct bench_spec {
    enum bench_transport transport;
    enum rpc_wait_mode wait; /* of both ends, raw and ours */
    enum bench_place place;
    struct bench_line line; /* tcp: through a relay, unless zeros */
    bool resumes;           /* tcp, tls: ours keeps what it sends, so as to resume after a cut */
    const struct bench_dir *dir;
};

enum {
    BENCH_MESSAGE_MAX = 1 << 20 /* one payload, and a raw burst */
};

struct bench_link;

int bench_link_open(const struct bench_spec *spec, struct bench_link **out,
                    char why[RPC_WHY_CHARS]) MUST_CHECK;
void bench_link_close(struct bench_link *link);

/* What the raw link is, in words. */
const char *bench_link_raw_name(const struct bench_link *link);

/* One measurement: `count` messages of `size` bytes after some that are not timed. */
struct bench_shot {
    uint32_t size;
    uint32_t depth; /* calls in flight; raw: one exchange of depth * size bytes */
    uint64_t count;
    /* Nanoseconds of each `depth` messages; of a stream, each MEASURE_STREAM_SLICE.  May be NULL.
     */
    struct hw_hist *hist;
};

int bench_link_raw_ping(struct bench_link *link, const struct bench_shot *shot,
                        uint64_t *elapsed_ns) MUST_CHECK;
int bench_link_raw_stream(struct bench_link *link, const struct bench_shot *shot,
                          uint64_t *elapsed_ns) MUST_CHECK;
int bench_link_calls(struct bench_link *link, const struct bench_shot *shot,
                     uint64_t *elapsed_ns) MUST_CHECK;
int bench_link_stream(struct bench_link *link, const struct bench_shot *shot,
                      uint64_t *elapsed_ns) MUST_CHECK;
/* Posts `count` messages, flushes once, and tells how many writes that took. */
int bench_link_posts(struct bench_link *link, const struct bench_shot *shot,
                     uint64_t *writes) MUST_CHECK;

#endif
