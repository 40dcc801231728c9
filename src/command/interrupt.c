#include "command/interrupt.h"

#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

void cmd_raise_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

void cmd_stop_signals(sigset_t *out)
{
    struct sigaction hangup;
    sigemptyset(out);
    sigaddset(out, SIGINT);
    sigaddset(out, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(out, SIGHUP);
}

void cmd_on_stop(void (*handler)(int number))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = (int)SA_RESETHAND};
    sigset_t stops;
    cmd_stop_signals(&stops);
    for (int number = SIGHUP; number <= SIGTERM; number++)
        if (sigismember(&stops, number) == 1)
            sigaction(number, &action, NULL);
}

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

void cmd_catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool cmd_interrupted(void)
{
    return interrupted != 0;
}

void cmd_before_end(void (*handler)(int number))
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction now,
        action = {.sa_handler = handler, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(ends[i], &action, NULL);
}

/* ---- the terminal ---- */

static struct termios before;            /* of a terminal that is changed */
static volatile sig_atomic_t is_changed; /* after `before` is there */

static void restore_and_end(int number)
{
    static const char undo[] = "\033[?7h\033[?2004l"; /* long lines wrap, pastes are not marked */
    /* In the background the terminal is another job's, and to change it would stop this one. */
    if (is_changed && tcgetpgrp(STDIN_FILENO) == getpgrp()) {
        ssize_t wrote = write(STDOUT_FILENO, undo, sizeof undo - 1);
        (void)wrote;
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
    (void)raise(number); /* its action is the default one again */
}

bool cmd_terminal_change(void (*change)(struct termios *mode))
{
    struct termios mode;
    if (tcgetattr(STDIN_FILENO, &mode))
        return false;
    before = mode;
    change(&mode);
    is_changed = 1;
    cmd_before_end(restore_and_end);
    is_changed = tcsetattr(STDIN_FILENO, TCSANOW, &mode) == 0;
    return is_changed;
}

void cmd_terminal_restore(void)
{
    if (is_changed)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
    is_changed = 0;
}
