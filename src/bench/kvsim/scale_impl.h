/* bench/kvsim/scale_impl.h - the parts of a simulated cluster; for scale*.c and their tests only.
 *
 *   scale_place.c   who owns each block in each view
 *   scale_watch.c   when a change is known, to etcd and to each member
 *   scale_model.c   the formulas
 *   scale.c         the trace, block by block
 *
 * Members are numbered in the order of their names: first those of the start, then who joins.
 * Threads: any.  Lifetime: init/fini where there is memory. */
#ifndef HAWSER_BENCH_KVSIM_SCALE_IMPL_H
#define HAWSER_BENCH_KVSIM_SCALE_IMPL_H

#include "base/rng.h"
#include "bench/kvsim/scale.h"
#include "kv/common/peerblock.h"

enum { KV_SCALE_NOBODY = UINT32_MAX };

/* The key of a block of the trace, and its bytes in a store: its number. */
struct kv_block_key kv_scale_key(uint32_t id);
/* Messages that carry a block. */
uint32_t kv_scale_chunks(uint32_t block_bytes);

/* ---- placing ---- */

/* A change, once it is known whom it concerns and when etcd has it. */
struct kv_scale_step {
    enum kv_scale_change change;
    uint32_t member;
    uint64_t at_ns, commit_ns;
};

struct kv_scale_map {
    uint32_t ids, copies, views;
    uint32_t *owners; /* of each view, block and copy; KV_SCALE_NOBODY past the last member */
};

/* View 0 has members 0 to members - 1; each step makes the next one.  0 or -ENOMEM. */
int kv_scale_map_init(struct kv_scale_map *map, uint32_t ids, uint32_t copies, uint32_t members,
                      const struct kv_scale_step *steps, uint32_t count) MUST_CHECK;
void kv_scale_map_fini(struct kv_scale_map *map);

/* `copies` of them, the best first. */
static inline const uint32_t *kv_scale_owners(const struct kv_scale_map *m, uint32_t view,
                                              uint32_t id)
{
    return m->owners + ((size_t)view * m->ids + id) * m->copies;
}

/* ---- watching ---- */

/* When etcd has a change that happens at `at_ns` to a member that renews its lease every third of
 * it.  `phase` is random: when the member registered, and when etcd looks for lapsed leases. */
uint64_t kv_scale_commit_ns(const struct kv_scale_options *o, enum kv_scale_change change,
                            uint64_t at_ns, uint64_t phase);
/* When the member that is told at that turn hears of it: etcd's link sends one event after the
 * other. */
uint64_t kv_scale_heard_ns(const struct kv_scale_options *o, uint64_t commit_ns, uint32_t turn);
/* From a death until the last of all members knows, in KV_SCALE_TRIALS deaths. */
void kv_scale_notice(const struct kv_scale_options *o, struct hw_rng *rng,
                     struct kv_scale_figure *mean_ns, struct kv_scale_figure *max_ns);
/* The formula for one change: the mean. */
double kv_scale_propagated_model_ns(const struct kv_scale_options *o, enum kv_scale_change change);

/* ---- formulas ---- */

/* The mean of the most that one of `bins` gets of `balls` thrown at random. */
double kv_scale_most(double balls, uint32_t bins);

/* What they need to know of a trace. */
struct kv_scale_uses {
    uint32_t ids;      /* the largest number and one */
    uint32_t used;     /* different blocks */
    uint32_t sessions; /* different second blocks */
    struct kv_scale_use {
        uint32_t count, first, last; /* uses; the requests of the first and the last one */
        bool leads;                  /* some request begins with it */
    } * of;
};

/* The trace is sound.  0 or -ENOMEM. */
int kv_scale_uses_init(struct kv_scale_uses *uses, const struct kv_trace *trace) MUST_CHECK;
void kv_scale_uses_fini(struct kv_scale_uses *uses);
/* Which session a request is of: its second block, or its only one. */
static inline uint32_t kv_scale_session(const struct kv_trace *t, uint32_t first, uint32_t end)
{
    return t->ids[first + 1 < end ? first + 1 : first];
}

/* Fills in the models of all figures but those of membership; `one` is what one store of the
 * same size had. */
void kv_scale_model(const struct kv_scale_options *o, const struct kv_scale_uses *uses,
                    const struct kv_replay_result *one, struct kv_scale_result *r);

#endif
