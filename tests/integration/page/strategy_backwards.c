/* A strategy of a test's own, as docs/design/pages.md describes: the last rank first. */
#include "strategy_backwards.h"

static void backwards_send(const struct page_peers *peers, void *state,
                           const struct page_command *command, uint64_t ranks, uint64_t until_ns,
                           struct page_answer *answers)
{
    (void)state;
    for (uint32_t r = peers->count; r-- > 0;) {
        if ((ranks >> r & 1) && !page_is_too_late(until_ns, command->count, &answers[r]))
            page_ask_once(peers->paths[r], command, until_ns, &answers[r]);
    }
}

const struct page_strategy page_strategy_backwards = {
    .name = "backwards",
    .file = "strategy_backwards.c",
    .summary = "as seq, from the last rank to the first",
    .send = backwards_send,
};
