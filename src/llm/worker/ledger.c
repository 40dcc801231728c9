#include "llm/worker/ledger.h"

#include <assert.h>

const char *llm_class_name(enum llm_class c)
{
    static const char *const names[LLM_CLASSES] = {"weights",    "tokens",   "logits",
                                                   "kv_regular", "kv_delta", "control"};
    assert(c < LLM_CLASSES);
    return names[c];
}

void llm_ledger_sent(struct llm_ledger *l, enum llm_class c, uint64_t bytes)
{
    l->sent[c] += bytes;
    l->seen_sent += bytes;
}

void llm_ledger_received(struct llm_ledger *l, enum llm_class c, uint64_t bytes)
{
    l->received[c] += bytes;
    l->seen_received += bytes;
}

void llm_ledger_mark(struct llm_ledger *l, const struct rpc_stats *stats, enum llm_class sent,
                     enum llm_class received)
{
    uint64_t out = hw_counter_load(&stats->bytes_sent);
    uint64_t in = hw_counter_load(&stats->bytes_received);
    /* A payload may be booked before it is written; then the next mark comes out right. */
    if (out > l->seen_sent)
        llm_ledger_sent(l, sent, out - l->seen_sent);
    if (in > l->seen_received)
        llm_ledger_received(l, received, in - l->seen_received);
}

uint64_t llm_ledger_bytes(const struct llm_ledger *l, enum llm_class c)
{
    return l->sent[c] + l->received[c];
}

uint64_t llm_ledger_total(const struct llm_ledger *l)
{
    uint64_t total = 0;
    for (int c = 0; c < LLM_CLASSES; c++)
        total += llm_ledger_bytes(l, (enum llm_class)c);
    return total;
}
