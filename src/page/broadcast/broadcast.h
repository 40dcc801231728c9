/* page/broadcast/broadcast.h - strategies: ways to send one command to all workers and collect the
 * answers.
 *
 * A strategy is one file in src/page/broadcast/ with one `const struct page_strategy`, and one line
 * in the table of broadcast/table.c; docs/design/pages.md shows how to add one.  A strategy only
 * carries bytes: page/group.h decides what answers mean and which ranks are rolled back.
 *
 * Threads: one at a time for a state; different states are independent.
 * Lifetime: open/close; peers outlive the state. */
#ifndef HAWSER_PAGE_BROADCAST_BROADCAST_H
#define HAWSER_PAGE_BROADCAST_BROADCAST_H

#include "page/message.h"
#include "page/runtime.h"

/* Where the workers are. */
struct page_peers {
    uint32_t count;
    char paths[PAGE_RANKS_MAX][PAGE_PATH_CHARS];
};

struct page_strategy {
    const char *name;    /* as --map-impl takes it */
    const char *file;    /* where it is, for reports */
    const char *summary; /* one line */

    /* Both NULL for a strategy that keeps nothing between broadcasts.  On failure why->text says
     * which rank it was. */
    int (*open)(const struct page_peers *peers, uint64_t until_ns, void **state_out,
                struct page_error *why);
    void (*close)(void *state);

    /* Sends the command to every rank whose bit is set in `ranks`, and fills answers[rank] for
     * each: with the worker's answer, or with outcome.why.rc < 0 when none came by until_ns
     * (page_host_ns).  Returns at until_ns at the latest. */
    void (*send)(const struct page_peers *peers, void *state, const struct page_command *command,
                 uint64_t ranks, uint64_t until_ns, struct page_answer *answers);
};

extern const struct page_strategy page_strategy_seq;
extern const struct page_strategy page_strategy_thread;
extern const struct page_strategy page_strategy_async;
extern const struct page_strategy page_strategy_epoll;
extern const struct page_strategy page_strategy_shm;

/* All of them, NULL at the end; and one by name, or NULL. */
extern const struct page_strategy *const page_strategies[];
const struct page_strategy *page_strategy_find(const char *name);

/* ---- for strategies ---- */

/* True, with -ECANCELED in the answer, when earlier ranks have used up the time. */
bool page_is_too_late(uint64_t until_ns, uint32_t count, struct page_answer *answer);

/* One rank over a connection of its own, which is closed afterwards. */
void page_ask_once(const char *path, const struct page_command *command, uint64_t until_ns,
                   struct page_answer *answer);

/* A connection to each rank, for strategies that keep them. */
struct page_link;
struct page_links {
    uint32_t count;
    struct page_link *links[PAGE_RANKS_MAX];
};
int page_links_open(const struct page_peers *peers, uint64_t until_ns, struct page_links *out,
                    struct page_error *why) MUST_CHECK;
void page_links_close(struct page_links *links);
/* Waits with poll until every link of `ranks` has its answer, or until_ns. */
void page_links_wait(struct page_links *links, uint64_t ranks, uint64_t until_ns);

#endif
