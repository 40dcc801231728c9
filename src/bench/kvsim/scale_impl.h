/* bench/kvsim/scale_impl.h - the parts of a run; for scale*.c and their tests only.
 *
 *   scale_watch.c   when a change is known, to etcd and to each member
 *   scale_model.c   the formulas
 *   scale.c         the trace through real daemons, block by block
 *
 * Members are numbered in the order of their names: first those of the start, then those that join.
 * Threads: any.  Lifetime: init/fini where there is memory. */
#ifndef HAWSER_BENCH_KVSIM_SCALE_IMPL_H
#define HAWSER_BENCH_KVSIM_SCALE_IMPL_H

#include "base/rng.h"
#include "bench/kvsim/scale.h"
#include "kv/common/peerblock.h"

/* A change, once it is known whom it concerns and when etcd has it. */
struct kv_scale_step {
    enum kv_scale_change change;
    uint32_t member;
    uint64_t at_ns, commit_ns;
};

/* ---- watching ---- */

/* When etcd has a change that happens at `at_ns` to a member that renews its lease every third of
 * it.  `phase` is random: when the member registered, and when etcd looks for lapsed leases. */
uint64_t kv_scale_commit_ns(const struct kv_scale_options *o, enum kv_scale_change change,
                            uint64_t at_ns, uint64_t phase);
/* When the event reaches the member at that place in etcd's order: its link sends one after the
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
