/* epoll.c - one thread, all workers at once, over kept connections that stay registered with epoll.
 */
#include "base/clock.h"
#include "page/broadcast/broadcast.h"
#include "page/broadcast/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct epoll_state {
    struct page_links links;
    int epoll;
};

static void epoll_close(void *state)
{
    struct epoll_state *s = state;
    page_links_close(&s->links);
    if (s->epoll >= 0)
        close(s->epoll);
    free(s);
}

/* Edge-triggered, so that POLLOUT needs no system call of its own; a turn reads and writes until
 * -EAGAIN. */
static int watch_all(struct epoll_state *s)
{
    for (uint32_t r = 0; r < s->links.count; r++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = r};
        if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, page_link_fd(s->links.links[r]), &event))
            return -errno;
    }
    return 0;
}

static int epoll_open(const struct page_peers *peers, uint64_t until_ns, void **state_out,
                      struct page_error *why)
{
    struct epoll_state *s = calloc(1, sizeof *s);
    if (!s)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    int rc = s->epoll < 0 ? page_fail(why, -errno, 0, "epoll: %s", strerror(errno))
                          : page_links_open(peers, until_ns, &s->links, why);
    if (rc == 0 && (rc = watch_all(s)))
        page_fail(why, rc, 0, "epoll: %s", strerror(-rc));
    if (rc) {
        epoll_close(s);
        return rc;
    }
    *state_out = s;
    return 0;
}

static void give_up(struct epoll_state *s, uint64_t ranks)
{
    for (uint32_t r = 0; r < s->links.count; r++) {
        if (ranks >> r & 1)
            page_link_give_up(s->links.links[r], -ETIMEDOUT);
    }
}

/* Turns links once.  Returns those that are done. */
static uint64_t turn_all(struct epoll_state *s, uint64_t ranks)
{
    uint64_t done = 0;
    for (uint32_t r = 0; r < s->links.count; r++) {
        if ((ranks >> r & 1) && page_link_turn(s->links.links[r]))
            done |= UINT64_C(1) << r;
    }
    return done;
}

/* Turns the links that have events.  Returns those that are done. */
static uint64_t turn(struct epoll_state *s, const struct epoll_event *events, int count,
                     uint64_t waiting)
{
    uint64_t done = 0;
    for (int i = 0; i < count; i++) {
        uint32_t r = events[i].data.u32;
        if ((waiting >> r & 1) && page_link_turn(s->links.links[r]))
            done |= UINT64_C(1) << r;
    }
    return done;
}

static void epoll_send(const struct page_peers *peers, void *state,
                       const struct page_command *command, uint64_t ranks, uint64_t until_ns,
                       struct page_answer *answers)
{
    struct epoll_state *s = state;
    struct epoll_event events[PAGE_RANKS_MAX];
    uint64_t waiting = 0;
    for (uint32_t r = 0; r < peers->count; r++) {
        if ((ranks >> r & 1) && page_link_send(s->links.links[r], command, &answers[r]) == 0)
            waiting |= UINT64_C(1) << r;
    }
    /* A worker that died after its answer to the last batch, while others were awaited, has no edge
     * left that would tell. */
    waiting &= ~turn_all(s, waiting);
    while (waiting) {
        uint64_t now = page_host_ns();
        if (now >= until_ns)
            break;
        int ms = (int)((until_ns - now + HW_MS - 1) / HW_MS);
        int n = epoll_wait(s->epoll, events, PAGE_RANKS_MAX, ms);
        waiting &= ~turn(s, events, n, waiting);
    }
    give_up(s, waiting);
}

const struct page_strategy page_strategy_epoll = {
    .name = "epoll",
    .file = "epoll.c",
    .summary = "one thread, all workers at once over kept connections",
    .open = epoll_open,
    .close = epoll_close,
    .send = epoll_send,
};
