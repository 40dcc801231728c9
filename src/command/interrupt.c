#include "command/interrupt.h"

#include <stddef.h>
#include <sys/resource.h>

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
