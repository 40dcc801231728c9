#include "llm/modes/remote_mode.h"

#include "base/clock.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int llm_remote_mode_create(size_t size, const struct llm_mode_config *config,
                           struct llm_remote_mode **out, char *why)
{
    assert(size >= sizeof **out);
    struct llm_remote_mode *m = calloc(1, size);
    if (!m)
        return llm_why(why, -ENOMEM, "no memory for a run");
    m->file = config->file;
    m->remote = config->remote;
    m->vocab = llm_file_config(config->file)->vocab;
    m->logits = malloc(m->vocab * sizeof *m->logits);
    int rc = m->logits ? llm_sampler_create(&config->sampling, m->vocab, &m->sampler) : -ENOMEM;
    if (rc) {
        llm_remote_mode_destroy(m);
        return llm_why(why, rc, rc == -ENOMEM ? "no memory for logits" : "bad sampling options");
    }
    *out = m;
    return 0;
}

void llm_remote_mode_destroy(struct llm_remote_mode *m)
{
    llm_sampler_destroy(m->sampler);
    free(m->logits);
    free(m);
}

int llm_remote_mode_sample(struct llm_remote_mode *m, struct wire_dec *d, uint32_t *next, char *why)
{
    uint64_t began = hw_now_ns();
    for (uint32_t i = 0; i < m->vocab; i++)
        m->logits[i] = wire_get_f32(d);
    m->serdes_ns += hw_now_ns() - began;
    if (wire_dec_end(d))
        return llm_why(why, -EPROTO, "the worker's logits are not of %u tokens", m->vocab);
    *next = m->last = llm_sampler_next(m->sampler, m->logits);
    return 0;
}

int llm_remote_mode_figures(struct llm_mode *mode, struct llm_mode_figures *out, char *why)
{
    struct llm_remote_mode *m = (struct llm_remote_mode *)mode;
    uint64_t rpc_ns = llm_remote_rpc_ns(m->remote); /* without the calls below */
    uint64_t values[LLM_METRICS];
    struct llm_counters bytes;
    int rc = llm_remote_metrics(m->remote, values, why);
    if (rc == 0)
        rc = llm_remote_counters(m->remote, &bytes, why);
    if (rc)
        return rc;
    *out = (struct llm_mode_figures){
        .kernel_ns = values[LLM_METRIC_KERNEL_NS],
        .server_serdes_ns = values[LLM_METRIC_SERDES_NS],
        .client_serdes_ns = m->serdes_ns,
        .rpc_ns = rpc_ns,
        .kv_regular = llm_byte_account_bytes(&bytes.store, LLM_KV_REGULAR),
        .kv_delta = llm_byte_account_bytes(&bytes.store, LLM_KV_DELTA),
        .kv_fetched = bytes.store.received[LLM_KV_REGULAR] + bytes.store.received[LLM_KV_DELTA],
        .kv_plain = values[LLM_METRIC_KV_PLAIN_BYTES],
        .kv_layers = values[LLM_METRIC_KV_RESTORED],
        .kv_computed = values[LLM_METRIC_KV_COMPUTED],
        .kv_wait_ns = values[LLM_METRIC_KV_WAIT_NS]};
    return 0;
}

void llm_remote_mode_traffic(const struct llm_mode *mode, struct llm_mode_traffic *out)
{
    const struct rpc_stats *stats =
        llm_remote_stats(((const struct llm_remote_mode *)mode)->remote);
    *out = (struct llm_mode_traffic){.sent = hw_counter_load(&stats->bytes_sent),
                                     .received = hw_counter_load(&stats->bytes_received)};
}
