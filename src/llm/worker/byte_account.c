#include "llm/worker/byte_account.h"

#include <assert.h>

const char *llm_class_name(enum llm_class c)
{
    static const char *const names[LLM_CLASSES] = {"weights",    "tokens",   "logits",
                                                   "kv_regular", "kv_delta", "control"};
    assert(c < LLM_CLASSES);
    return names[c];
}

void llm_byte_account_sent(struct llm_byte_account *a, enum llm_class c, uint64_t bytes)
{
    a->sent[c] += bytes;
    a->seen_sent += bytes;
}

void llm_byte_account_received(struct llm_byte_account *a, enum llm_class c, uint64_t bytes)
{
    a->received[c] += bytes;
    a->seen_received += bytes;
}

void llm_byte_account_mark(struct llm_byte_account *a, const struct rpc_stats *stats,
                           enum llm_class sent, enum llm_class received)
{
    uint64_t out = hw_counter_load(&stats->bytes_sent);
    uint64_t in = hw_counter_load(&stats->bytes_received);
    /* A payload may be counted before it is written: then the next mark is exact. */
    if (out > a->seen_sent)
        llm_byte_account_sent(a, sent, out - a->seen_sent);
    if (in > a->seen_received)
        llm_byte_account_received(a, received, in - a->seen_received);
}

uint64_t llm_byte_account_bytes(const struct llm_byte_account *a, enum llm_class c)
{
    return a->sent[c] + a->received[c];
}

uint64_t llm_byte_account_total(const struct llm_byte_account *a)
{
    uint64_t total = 0;
    for (int c = 0; c < LLM_CLASSES; c++)
        total += llm_byte_account_bytes(a, (enum llm_class)c);
    return total;
}
