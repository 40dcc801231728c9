/* seq.c - one worker after the other, with a new connection for each command. */
#include "page/broadcast/broadcast.h"

static void seq_send(const struct page_peers *peers, void *state,
                     const struct page_command *command, uint64_t ranks, uint64_t until_ns,
                     struct page_answer *answers)
{
    (void)state;
    for (uint32_t r = 0; r < peers->count; r++) {
        if ((ranks >> r & 1) && !page_is_too_late(until_ns, command->count, &answers[r]))
            page_ask_once(peers->paths[r], command, until_ns, &answers[r]);
    }
}

const struct page_strategy page_strategy_seq = {
    .name = "seq",
    .file = "seq.c",
    .summary = "one worker after the other, a new connection for each command",
    .send = seq_send,
};
