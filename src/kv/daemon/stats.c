#include "kv/daemon/stats.h"

const struct hw_counter_def kv_stats_defs[KV_METRICS_COUNT] = {
#define X(field, name, unit, kind, help) {name, help, unit, kind},
    KV_STATS_LIST(X)
#undef X
};

const char *const kv_phase_names[KV_PHASES] = {
    [KV_PHASE_POLL] = "poll",
    [KV_PHASE_INCOMING] = "incoming",
    [KV_PHASE_SCAN] = "scan",
    [KV_PHASE_FLUSH] = "flush",
};

int kv_probe_init(struct kv_probe *p, uint32_t every)
{
    *p = (struct kv_probe){.every = every ? every : 1};
    int rc = hw_hist_init(&p->loop);
    if (rc == 0)
        rc = hw_hist_init_linear(&p->rtt, 1000, KV_RTT_LINES);
    for (int i = 0; i < KV_PHASES && rc == 0; i++)
        rc = hw_hist_init(&p->phase[i]);
    for (int i = 0; i < KV_STAGES && rc == 0; i++)
        rc = hw_hist_init(&p->stage[i]);
    if (rc)
        kv_probe_fini(p);
    return rc;
}

void kv_probe_fini(struct kv_probe *p)
{
    for (int i = 0; i < KV_PHASES; i++)
        hw_hist_fini(&p->phase[i]);
    for (int i = 0; i < KV_STAGES; i++)
        hw_hist_fini(&p->stage[i]);
    hw_hist_fini(&p->loop);
    hw_hist_fini(&p->rtt);
}

void kv_probe_want(struct kv_probe *p, bool on)
{
    atomic_store_explicit(&p->want, on, memory_order_relaxed);
}

bool kv_probe_idle(const struct kv_probe *p)
{
    return !atomic_load_explicit(&p->measuring, memory_order_acquire);
}
