/* links.c - what several strategies need: a command over a new connection, and kept connections. */
#include "base/clock.h"
#include "page/broadcast/broadcast.h"
#include "page/broadcast/link.h"

#include <errno.h>
#include <poll.h>

static uint64_t time_left(uint64_t until_ns)
{
    uint64_t now = page_host_ns();
    return until_ns > now ? until_ns - now : 1; /* 0 would mean a default */
}

bool page_is_too_late(uint64_t until_ns, uint32_t count, struct page_answer *answer)
{
    struct page_error why;
    if (page_host_ns() < until_ns)
        return false;
    page_fail(&why, -ECANCELED, 0, "not asked: earlier ranks used up the time");
    page_answer_fail(answer, count, &why);
    return true;
}

void page_ask_once(const char *path, const struct page_command *command, uint64_t until_ns,
                   struct page_answer *answer)
{
    struct page_link *link;
    struct page_error why;
    if (page_link_open(path, time_left(until_ns), &link, &why)) {
        page_answer_fail(answer, command->count, &why);
        return;
    }
    if (page_link_send(link, command, answer) == 0)
        page_link_wait(link, until_ns);
    page_link_close(link);
}

int page_links_open(const struct page_peers *peers, uint64_t until_ns, struct page_links *out,
                    struct page_error *why)
{
    struct page_links links = {0};
    struct page_error cause;
    for (uint32_t r = 0; r < peers->count; r++) {
        int rc = page_link_open(peers->paths[r], time_left(until_ns), &links.links[r], &cause);
        if (rc) {
            page_links_close(&links);
            return page_fail(why, rc, 0, "rank %u: %.160s", r, cause.text);
        }
        links.count = r + 1;
    }
    *out = links;
    return 0;
}

void page_links_close(struct page_links *links)
{
    for (uint32_t r = 0; r < links->count; r++)
        page_link_close(links->links[r]);
    links->count = 0;
}

static int poll_ms(uint64_t until_ns)
{
    uint64_t now = page_host_ns();
    return until_ns > now ? (int)((until_ns - now + HW_MS - 1) / HW_MS) : 0;
}

void page_links_wait(struct page_links *links, uint64_t ranks, uint64_t until_ns)
{
    struct pollfd fds[PAGE_RANKS_MAX];
    for (;;) {
        nfds_t waiting = 0;
        for (uint32_t r = 0; r < links->count; r++) {
            struct page_link *link = links->links[r];
            if (!(ranks >> r & 1) || page_link_turn(link))
                continue;
            short events = page_link_wants_to_send(link) ? POLLIN | POLLOUT : POLLIN;
            fds[waiting++] = (struct pollfd){.fd = page_link_fd(link), .events = events};
        }
        if (waiting == 0)
            return;
        if (page_host_ns() >= until_ns)
            break;
        (void)poll(fds, waiting, poll_ms(until_ns));
    }
    for (uint32_t r = 0; r < links->count; r++)
        if (ranks >> r & 1)
            page_link_give_up(links->links[r], -ETIMEDOUT);
}
