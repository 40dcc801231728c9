/* async.c - one thread, all workers at once, a new connection to each for each command. */
#include "page/broadcast/broadcast.h"
#include "page/broadcast/link.h"

static void async_send(const struct page_peers *peers, void *state,
                       const struct page_command *command, uint64_t ranks, uint64_t until_ns,
                       struct page_answer *answers)
{
    (void)state;
    struct page_links links = {.count = peers->count};
    struct page_error why;
    uint64_t asked = 0, now = page_host_ns();
    uint64_t left = until_ns > now ? until_ns - now : 1;
    for (uint32_t r = 0; r < peers->count; r++) {
        if (!(ranks >> r & 1))
            continue;
        if (page_link_open(peers->paths[r], left, &links.links[r], &why))
            page_answer_fail(&answers[r], command->count, &why);
        else if (page_link_send(links.links[r], command, &answers[r]) == 0)
            asked |= UINT64_C(1) << r;
    }
    page_links_wait(&links, asked, until_ns);
    page_links_close(&links);
}

const struct page_strategy page_strategy_async = {
    .name = "async",
    .file = "async.c",
    .summary = "one thread, all workers at once, a new connection for each command",
    .send = async_send,
};
