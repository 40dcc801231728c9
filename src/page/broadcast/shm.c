/* shm.c - one command on a command board (board.h).  The connections over which the workers got the
 * board tell of a worker's death. */
#include "base/clock.h"
#include "page/broadcast/board.h"
#include "page/broadcast/broadcast.h"
#include "page/broadcast/link.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* How often to look for dead workers while answers are missing. */
static const uint64_t look_every_ns = 20 * HW_MS;

struct shm_state {
    struct page_links links;
    struct page_board *board;
};

static void shm_end(void *state)
{
    struct shm_state *s = state;
    page_links_close(&s->links);
    page_board_destroy(s->board);
    free(s);
}

static int hand_out_board(struct shm_state *s, uint64_t until_ns, struct page_error *why)
{
    struct page_error cause;
    for (uint32_t r = 0; r < s->links.count; r++) {
        int rc = page_link_give_board(s->links.links[r], until_ns, page_board_fd(s->board), &cause);
        if (rc)
            return page_fail(why, rc, 0, "rank %u: %.160s", r, cause.text);
    }
    return 0;
}

static int shm_start(const struct page_peers *peers, uint64_t until_ns, void **state_out,
                     struct page_error *why)
{
    struct shm_state *s = calloc(1, sizeof *s);
    if (!s)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    int rc = page_board_create(peers->count, &s->board);
    if (rc)
        page_fail(why, rc, 0, "cannot make the command board: %s", strerror(-rc));
    else
        rc = page_links_open(peers, until_ns, &s->links, why);
    if (rc == 0)
        rc = hand_out_board(s, until_ns, why);
    if (rc) {
        shm_end(s);
        return rc;
    }
    *state_out = s;
    return 0;
}

static void fail_answer(struct page_answer *answer, uint32_t count, int rc)
{
    struct page_error why;
    page_fail(&why, rc, 0, "%s", page_link_meaning(rc));
    page_answer_fail(answer, count, &why);
}

/* Takes the answer of a rank; false while there is none. */
static bool take_answer(struct shm_state *s, uint32_t rank, uint32_t count,
                        struct page_answer *answer)
{
    uint8_t bytes[PAGE_ANSWER_BYTES_MAX];
    int len = page_board_answer(s->board, rank, bytes);
    if (len == -EAGAIN)
        return false;
    if (len < 0 || page_answer_decode(bytes, (size_t)len, count, answer))
        fail_answer(answer, count, -EPROTO);
    return true;
}

/* Nothing is sent over the links after the board, so an event can only be their end. */
static bool is_dead(struct page_link *link)
{
    struct pollfd fd = {.fd = page_link_fd(link), .events = POLLIN | POLLRDHUP};
    return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLHUP | POLLRDHUP | POLLERR));
}

/* Takes the answers that came and fails the ranks that died.  Returns the ranks still awaited. */
static uint64_t collect(struct shm_state *s, uint64_t waiting, uint32_t count, bool look_for_dead,
                        struct page_answer *answers)
{
    for (uint32_t r = 0; r < s->links.count; r++) {
        if (!(waiting >> r & 1))
            continue;
        bool dead =
            look_for_dead && is_dead(s->links.links[r]); /* before the answer is looked for */
        if (take_answer(s, r, count, &answers[r])) {
            waiting &= ~(UINT64_C(1) << r);
        } else if (dead) {
            fail_answer(&answers[r], count, -ECONNRESET);
            waiting &= ~(UINT64_C(1) << r);
        }
    }
    return waiting;
}

static void shm_send(const struct page_peers *peers, void *state,
                     const struct page_command *command, uint64_t ranks, uint64_t until_ns,
                     struct page_answer *answers)
{
    (void)peers;
    struct shm_state *s = state;
    uint8_t bytes[PAGE_COMMAND_BYTES_MAX];
    struct wire_enc e;
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    page_command_encode(command, &e);
    assert(!wire_enc_error(&e));
    page_board_post(s->board, bytes, (uint32_t)wire_enc_len(&e), ranks);
    uint64_t waiting = ranks, now = page_host_ns();
    while (waiting && now < until_ns) {
        uint64_t look = now + look_every_ns;
        int rc = page_board_wait(s->board, look < until_ns ? look : until_ns);
        waiting = collect(s, waiting, command->count, rc != 0, answers);
        now = page_host_ns();
    }
    for (uint32_t r = 0; r < s->links.count; r++) {
        if (waiting >> r & 1)
            fail_answer(&answers[r], command->count, -ETIMEDOUT);
    }
}

const struct page_strategy page_strategy_shm = {
    .name = "shm",
    .file = "shm.c",
    .summary = "one command in shared memory that all workers watch",
    .open = shm_start,
    .close = shm_end,
    .send = shm_send,
};
