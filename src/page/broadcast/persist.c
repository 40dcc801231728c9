/* persist.c - as seq, over kept connections: shows what a handshake for each command costs. */
#include "page/broadcast/broadcast.h"
#include "page/broadcast/link.h"

#include <errno.h>
#include <stdlib.h>

static int persist_open(const struct page_peers *peers, uint64_t until_ns, void **state_out,
                        struct page_error *why)
{
    struct page_links *links = calloc(1, sizeof *links);
    if (!links)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    int rc = page_links_open(peers, until_ns, links, why);
    if (rc) {
        free(links);
        return rc;
    }
    *state_out = links;
    return 0;
}

static void persist_close(void *state)
{
    page_links_close(state);
    free(state);
}

static void persist_send(const struct page_peers *peers, void *state,
                         const struct page_command *command, uint64_t ranks, uint64_t until_ns,
                         struct page_answer *answers)
{
    struct page_links *links = state;
    for (uint32_t r = 0; r < peers->count; r++) {
        if (!(ranks >> r & 1) || page_is_too_late(until_ns, command->count, &answers[r]))
            continue;
        if (page_link_send(links->links[r], command, &answers[r]) == 0)
            page_link_wait(links->links[r], until_ns);
    }
}

const struct page_strategy page_strategy_persist = {
    .name = "persist",
    .file = "persist.c",
    .summary = "one worker after the other over kept connections",
    .open = persist_open,
    .close = persist_close,
    .send = persist_send,
};
