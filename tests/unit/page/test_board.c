/* The shared command: every worker sees every command that is for it, whole, and once. */
#include "unit.h"

#include "folder.h"

#include "base/clock.h"
#include "base/rng.h"
#include "page/broadcast/board.h"
#include "page/broadcast/link.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { RANKS = 3, COMMANDS = 1000 };

struct watcher {
    struct page_board *board;
    uint32_t rank;
    pthread_t thread;
    uint8_t command[PAGE_COMMAND_BYTES_MAX];
};

/* A command is a length of equal bytes; the answer says which byte and how many.  A torn one would
 * have two kinds. */
static void *watch(void *arg)
{
    struct watcher *w = arg;
    int len;
    while ((len = page_board_next(w->board, w->command)) >= 0) {
        for (int i = 1; i < len; i++)
            assert_int_equal(w->command[i], w->command[0]);
        uint8_t answer[6] = {w->command[0], (uint8_t)w->rank};
        memcpy(answer + 2, &len, sizeof len);
        page_board_reply(w->board, answer, sizeof answer);
    }
    return NULL;
}

static void start(struct page_board *b, struct watcher *watchers)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        watchers[r].rank = r;
        assert_int_equal(page_board_attach(page_board_fd(b), r, &watchers[r].board), 0);
        assert_int_equal(pthread_create(&watchers[r].thread, NULL, watch, &watchers[r]), 0);
    }
}

static void stop(struct watcher *watchers)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        page_board_stop(watchers[r].board);
        pthread_join(watchers[r].thread, NULL);
        page_board_destroy(watchers[r].board);
    }
}

static void expect_answer(struct page_board *b, uint32_t rank, uint8_t byte, int len)
{
    static uint8_t answer[PAGE_ANSWER_BYTES_MAX];
    int got;
    assert_int_equal(page_board_answer(b, rank, answer), 6);
    assert_int_equal(answer[0], byte);
    assert_int_equal(answer[1], rank);
    memcpy(&got, answer + 2, sizeof got);
    assert_int_equal(got, len);
}

static void every_rank_answers_every_command_that_is_for_it(void **state)
{
    (void)state;
    struct watcher *watchers = calloc(RANKS, sizeof *watchers);
    struct page_board *b;
    struct hw_rng rng;
    static uint8_t command[PAGE_COMMAND_BYTES_MAX], scrap[PAGE_ANSWER_BYTES_MAX];
    hw_rng_seed(&rng, 5);
    assert_int_equal(page_board_create(RANKS, &b), 0);
    start(b, watchers);
    for (int i = 0; i < COMMANDS; i++) {
        uint64_t ranks = 1 + hw_rng_below(&rng, (1 << RANKS) - 1);
        uint32_t len = 1 + (uint32_t)hw_rng_below(&rng, i % 10 ? 64 : sizeof command);
        memset(command, i, len);
        page_board_post(b, command, len, ranks);
        assert_int_equal(page_board_wait(b, page_host_ns() + 60 * HW_SEC), 0);
        for (uint32_t r = 0; r < RANKS; r++) {
            if (ranks >> r & 1)
                expect_answer(b, r, (uint8_t)i, (int)len);
            else
                assert_int_equal(page_board_answer(b, r, scrap), -EAGAIN);
        }
    }
    stop(watchers);
    page_board_destroy(b);
    free(watchers);
}

static void a_late_answer_does_not_count_for_the_next_command(void **state)
{
    (void)state;
    struct page_board *b, *late, *prompt;
    static uint8_t command[PAGE_COMMAND_BYTES_MAX], answer[PAGE_ANSWER_BYTES_MAX];
    assert_int_equal(page_board_create(2, &b), 0);
    assert_int_equal(page_board_attach(page_board_fd(b), 0, &late), 0);
    assert_int_equal(page_board_attach(page_board_fd(b), 1, &prompt), 0);
    page_board_post(b, "1", 1, 3);
    assert_int_equal(page_board_next(late, command), 1);
    assert_int_equal(page_board_next(prompt, command), 1);
    page_board_reply(prompt, "a", 1);
    assert_int_equal(page_board_wait(b, page_host_ns() + HW_MS), -ETIMEDOUT);
    page_board_post(b, "2", 1, 3);
    page_board_reply(late, "old", 3); /* to the first command */
    assert_int_equal(page_board_next(prompt, command), 1);
    page_board_reply(prompt, "b", 1);
    assert_int_equal(page_board_wait(b, page_host_ns() + HW_MS), -ETIMEDOUT);
    assert_int_equal(page_board_answer(b, 0, answer), -EAGAIN);
    assert_int_equal(page_board_answer(b, 1, answer), 1);
    assert_int_equal(page_board_next(late, command), 1);
    assert_int_equal(command[0], '2');
    page_board_reply(late, "c", 1);
    assert_int_equal(page_board_wait(b, page_host_ns() + 60 * HW_SEC), 0);
    assert_int_equal(page_board_answer(b, 0, answer), 1);
    assert_int_equal(answer[0], 'c');
    page_board_destroy(late);
    page_board_destroy(prompt);
    page_board_destroy(b);
}

static void memory_that_is_no_board_is_refused(void **state)
{
    (void)state;
    struct page_board *b, *other = NULL;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int plain = memfd_create("plain", MFD_CLOEXEC);
    int sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(page_board_attach(null, 0, &other), -EPROTO);
    assert_int_equal(ftruncate(plain, 4096), 0);
    assert_int_equal(page_board_attach(plain, 0, &other), -EPROTO); /* could shrink under us */
    assert_int_equal(page_board_create(2, &b), 0);
    off_t size = lseek(page_board_fd(b), 0, SEEK_END);
    assert_int_equal(ftruncate(sealed, size), 0);
    assert_int_equal(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(page_board_attach(sealed, 0, &other), -EPROTO); /* zeros */
    assert_int_equal(page_board_attach(page_board_fd(b), 2, &other), -EINVAL);
    assert_null(other);
    page_board_destroy(b);
    close(null);
    close(plain);
    close(sealed);
}

/* Its socket takes the connection, and nobody says hello: whether it takes descriptors is not
 * known, and not what went wrong. */
static void a_worker_that_says_nothing_is_late(void **state)
{
    char folder[FOLDER_CHARS];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct page_board *b;
    struct page_link *link;
    struct page_error why;
    (void)state;
    folder_make(folder);
    snprintf(at.sun_path, sizeof at.sun_path, "%s/w", folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(page_board_create(1, &b), 0);
    assert_int_equal(page_link_open(at.sun_path, HW_SEC, &link, &why), 0);
    assert_int_equal(page_link_give_board(link, page_host_ns() + HW_MS, page_board_fd(b), &why),
                     -ETIMEDOUT);
    assert_string_equal(why.text, "the worker did not answer within the time limit");
    page_link_close(link);
    page_board_destroy(b);
    close(fd);
    unlink(at.sun_path);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_answers_every_command_that_is_for_it),
        cmocka_unit_test(a_late_answer_does_not_count_for_the_next_command),
        cmocka_unit_test(memory_that_is_no_board_is_refused),
        cmocka_unit_test(a_worker_that_says_nothing_is_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
