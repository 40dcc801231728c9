/* bench/kv/benchkv.h - the parts of `hawser benchkv`: one point of a run, its result, and the ways
 * between ranks.
 *
 * A point is one setting (clients, depth, daemons, flush policy ...) measured once.  Every rank
 * runs it at the same time: daemons and client threads in one process, the clients attached like
 * any others.  Rank 0 gathers the results and writes the report.
 *
 * Threads: as each function says.  Lifetime: init/fini; results own their histograms. */
#ifndef HAWSER_BENCH_KV_BENCHKV_H
#define HAWSER_BENCH_KV_BENCHKV_H

#include "base/hist.h"
#include "bench/rpc/link.h"
#include "kv/common/kv.h"
#include "kv/daemon/host.h"
#include "kv/daemon/stats.h"
#include "rpc/rpc.h"
#include "rpc/transport/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    BKV_CLIENTS_MAX = 256, /* threads of a rank */
    BKV_POINTS_MAX = 48,   /* a list of clients, one rank, optimisations: see benchkv.c */
    BKV_PROBE_EVERY = 16,  /* loops of a daemon between two that are timed */
    BKV_NAME_CHARS = 48
};

struct bkv_point {
    char name[BKV_NAME_CHARS];
    uint32_t ranks;        /* that take part; ranks from there on only watch */
    uint32_t client_ranks; /* the first so many have clients that ask; the others only serve */
    uint32_t clients, daemons, depth;
    uint32_t key_range; /* keys of each rank */
    uint32_t value_size;
    double read_ratio;
    bool zipfian, numa;
    enum rpc_flush_policy flush;
    enum rpc_wait_mode wait;
    uint64_t duration_ns, warmup_ns;
    uint64_t rate; /* requests a second of each rank; 0: closed loop */
    uint64_t seed;
    bool seeded; /* else rank * 1000 + client */
};

/* What one rank measured. */
struct bkv_result {
    uint64_t stats[KV_STATS_COUNT]; /* of all its daemons, over the measured time */
    struct hw_hist phase[KV_PHASES], stage[KV_STAGES], loop, rtt;
    struct hw_hist latency, local, remote; /* as clients see them */
    double rtt_mean, latency_mean, local_mean, remote_mean;
    uint64_t results[KV_RESULT_COUNT];
    uint64_t elapsed_ns;
    uint64_t useful_ns, empty_ns, in_flight_ns, took_ns;
    uint64_t late; /* open loop: requests sent after their time */
    uint64_t rtt_us[KV_RTT_LINES];
};

/* 0 or -ENOMEM. */
int bkv_result_init(struct bkv_result *result) MUST_CHECK;
void bkv_result_fini(struct bkv_result *result);
uint64_t bkv_result_requests(const struct bkv_result *result);
/* The bytes to send to rank 0; malloc'd.  0 or -ENOMEM. */
int bkv_result_encode(const struct bkv_result *result, uint8_t **data, size_t *len) MUST_CHECK;
/* Into an initialised result.  0 or -EPROTO. */
int bkv_result_decode(const uint8_t *data, size_t len, struct bkv_result *out) MUST_CHECK;

/* ---- ranks meeting (meet.c) ---- */

struct bkv_meet;

/* Rank 0 listens at addr, the others call it until it answers.  0, or a negative errno with a
 * sentence in why. */
int bkv_meet_open(const struct rpc_addr *addr, uint32_t rank, uint32_t ranks, struct bkv_meet **out,
                  char why[RPC_WHY_CHARS]) MUST_CHECK;
void bkv_meet_close(struct bkv_meet *meet);
/* Returns when every rank is here.  0, or a negative errno when one is gone. */
int bkv_meet_wait(struct bkv_meet *meet) MUST_CHECK;
/* Gives rank 0 this rank's bytes, and waits as above. */
int bkv_meet_give(struct bkv_meet *meet, const uint8_t *data, size_t len) MUST_CHECK;
/* Rank 0: what a rank gave last; malloc'd, the caller's.  NULL when it gave nothing. */
uint8_t *bkv_meet_take(struct bkv_meet *meet, uint32_t rank, size_t *len);

/* ---- one rank's part of a point (rank.c) ---- */

struct bkv_world {
    uint32_t rank, ranks;
    uint32_t rank_here, ranks_here; /* among those on this host, which share its cores */
    char dir[BENCH_PATH_CHARS];     /* for attach sockets */
    struct rpc_addr addrs[KV_RANKS_MAX];
    struct bkv_meet *meet;
};

/* 0, or a negative errno with a sentence in why. */
int bkv_rank_run(const struct bkv_world *world, const struct bkv_point *point,
                 struct bkv_result *out, char why[RPC_WHY_CHARS]) MUST_CHECK;

/* ---- client threads (load.c) ---- */

struct bkv_load; /* all client threads of a rank */

/* Attaches every client and waits until all daemons are connected. */
int bkv_load_open(const struct bkv_world *world, const struct bkv_point *point, const char *socket,
                  struct bkv_load **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
/* Writes every key once; by one rank. */
int bkv_load_fill(struct bkv_load *load) MUST_CHECK;
/* Sets the threads off; they measure from bkv_load_measure to bkv_load_stop. */
int bkv_load_start(struct bkv_load *load) MUST_CHECK;
void bkv_load_measure(struct bkv_load *load);
/* Ends them and adds what they measured. */
int bkv_load_stop(struct bkv_load *load, struct bkv_result *into) MUST_CHECK;
void bkv_load_close(struct bkv_load *load);

/* ---- the bare machine (chain.c) ---- */

/* Medians of a request that goes all the way: between the daemons, and as the client sees it. */
struct bkv_chain {
    double rtt_us, client_us;
};
/* A client and two daemons that do nothing but pass requests on, over the raw transport; forks.
 * 0, -EOPNOTSUPP for a transport without a raw form, or another negative errno. */
int bkv_chain_measure(enum rpc_scheme transport, enum rpc_wait_mode wait,
                      struct bkv_chain *out) MUST_CHECK;

/* ---- what follows from the results (model.c) ---- */

/* One point as a whole: sums and means over ranks. */
struct bkv_summary {
    const struct bkv_point *point;
    uint32_t ranks;
    double seconds;
    double total_rps, rank_rps, remote_rps; /* the last two of one rank */
    double rtt_p50_us, rtt_mean_us;
    double client_p50_us, client_p99_us, client_p999_us, client_mean_us, local_mean_us,
        remote_mean_us;
    double remote_p50_us; /* as clients see it */
    double in_flight;     /* mean, of one rank's daemons together */
    double grounded;      /* the other request slots of a rank's clients: seed 002's group queue */
    double stage_ns[KV_STAGES]; /* medians; 0: too few samples */
    double useful, empty;       /* shares of the daemons' time; the rest they slept */
    double loop_mean_ns;
    uint64_t errors;
};
/* A counter of struct kv_stats in a result. */
#define BKV_STAT(result, field) ((result)->stats[offsetof(struct kv_stats, field) / 8])

struct bkv_summary bkv_summarise(const struct bkv_point *point, const struct bkv_result *results,
                                 uint32_t ranks);

/* T_cycle = fixed + per_request * N by least squares over points; false with fewer than two. */
struct bkv_fit {
    double fixed_us, per_request_us;
    double r2; /* 1: the points lie on the line */
};
bool bkv_fit_cycle(const struct bkv_summary *points, uint32_t count, struct bkv_fit *out);

/* Where the time of a mean request goes.  Only with holds does the sum of the parts give the rate
 * that was measured, within a tenth. */
struct bkv_gap {
    double remote_share;
    double local_us, remote_us, average_us; /* by the clients */
    double predicted_rps;                   /* of a rank: request slots / average */
    double base_us, queue_us, shm_us;       /* parts of remote_us: least, more at most clients */
    bool holds;
};
struct bkv_gap bkv_find_gap(const struct bkv_summary *base, const struct bkv_summary *loaded);

/* Peaks of the round-trip histogram: places where a smoothed count is the highest within reach and
 * stands out from the valleys beside it. */
struct bkv_mode {
    uint32_t us;
    uint64_t count;
    double share; /* of all, from valley to valley */
};
enum { BKV_MODES_MAX = 4 };
uint32_t bkv_find_modes(const uint64_t *us, uint32_t count, struct bkv_mode out[BKV_MODES_MAX]);

/* ---- the report (report.c) ---- */

struct bkv_set {
    struct bkv_point *points;
    struct bkv_result (*results)[KV_RANKS_MAX]; /* [point][rank] */
    struct bkv_summary *summaries;
    uint32_t count;
    uint32_t sweep;  /* the first so many are the sweep over clients */
    int single;      /* the point on one rank; -1: none */
    uint32_t others; /* first of the optimisations' points; their number follows from count */
    double pingpong_us, raw_us;
    struct bkv_chain chain; /* zeros: not measured */
    const char *transport;
    char host[160];
};

/* 0 or a negative errno. */
int bkv_report_text(const struct bkv_set *set, FILE *out) MUST_CHECK;
int bkv_report_json(const struct bkv_set *set, FILE *out) MUST_CHECK;
int bkv_report_html(const struct bkv_set *set, const char *path) MUST_CHECK;

#endif
