#include "command/interrupt.h"

#include <signal.h>

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
