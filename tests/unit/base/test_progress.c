#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/report/progress.h"

static int terminal, screen; /* what is written to one comes out of the other */

static int open_terminal(void **state)
{
    (void)state;
    screen = posix_openpt(O_RDWR | O_NOCTTY);
    if (screen < 0 || grantpt(screen) < 0 || unlockpt(screen) < 0)
        return -1;
    terminal = open(ptsname(screen), O_RDWR | O_NOCTTY);
    fcntl(screen, F_SETFL, O_NONBLOCK);
    setenv("TERM", "xterm", 1);
    return terminal < 0 ? -1 : 0;
}

static int close_terminal(void **state)
{
    (void)state;
    close(terminal);
    close(screen);
    return 0;
}

/* What came onto the screen since the last look; "" when nothing did. */
static const char *shown(void)
{
    static char text[1024];
    ssize_t len = read(screen, text, sizeof text - 1);
    if (len < 0)
        assert_int_equal(errno, EAGAIN);
    text[len > 0 ? len : 0] = '\0';
    return text;
}

static void nothing_is_shown_for_the_first_two_seconds(void **state)
{
    (void)state;
    struct hw_progress progress;
    hw_progress_begin_at(&progress, terminal, "work", 10, 1000);
    hw_progress_draw(&progress, 1, 1000 + HW_PROGRESS_WAIT_NS - 1);
    hw_progress_end(&progress);
    assert_string_equal(shown(), "");
}

static void line_is_drawn_limited_in_rate_and_erased(void **state)
{
    (void)state;
    struct hw_progress progress;
    hw_progress_begin_at(&progress, terminal, "work", 10, 0);
    hw_progress_draw(&progress, 4, 2 * HW_SEC);
    assert_string_equal(shown(), "\rwork  40%  4/10  3s left\033[K");
    hw_progress_draw(&progress, 5, 2 * HW_SEC + HW_PROGRESS_REDRAW_NS - 1);
    assert_string_equal(shown(), "");
    hw_progress_draw(&progress, 15, 4 * HW_SEC);
    assert_string_equal(shown(), "\rwork  100%  10/10  0s left\033[K");
    hw_progress_end(&progress);
    assert_string_equal(shown(), "\r\033[K");
    hw_progress_draw(&progress, 10, 9 * HW_SEC);
    assert_string_equal(shown(), "");
}

static void nothing_is_written_to_a_dumb_terminal(void **state)
{
    (void)state;
    struct hw_progress progress;
    setenv("TERM", "dumb", 1);
    hw_progress_begin_at(&progress, terminal, "work", 10, 0);
    hw_progress_draw(&progress, 4, 60 * HW_SEC);
    hw_progress_end(&progress);
    assert_string_equal(shown(), "");
}

static void unknown_total_shows_count_and_time(void **state)
{
    (void)state;
    struct hw_progress progress;
    hw_progress_begin_at(&progress, terminal, "work", 0, 0);
    hw_progress_draw(&progress, 7, 5 * HW_SEC);
    assert_string_equal(shown(), "\rwork  7  5s\033[K");
    hw_progress_end(&progress);
}

static void nothing_is_written_to_a_pipe(void **state)
{
    (void)state;
    int ends[2];
    char byte;
    struct hw_progress progress;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    hw_progress_begin_at(&progress, ends[1], "work", 10, 0);
    hw_progress_update(&progress, 1);
    hw_progress_draw(&progress, 5, 60 * HW_SEC);
    hw_progress_end(&progress);
    assert_int_equal(read(ends[0], &byte, 1), -1);
    assert_int_equal(errno, EAGAIN);
    close(ends[0]);
    close(ends[1]);
}

#define ON_TERMINAL(test) cmocka_unit_test_setup_teardown(test, open_terminal, close_terminal)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_TERMINAL(nothing_is_shown_for_the_first_two_seconds),
        ON_TERMINAL(line_is_drawn_limited_in_rate_and_erased),
        ON_TERMINAL(nothing_is_written_to_a_dumb_terminal),
        ON_TERMINAL(unknown_total_shows_count_and_time),
        cmocka_unit_test(nothing_is_written_to_a_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
