/* command/interrupt.h - a command that ^C ends in order.
 *
 * Threads: any may ask. */
#ifndef HAWSER_COMMAND_INTERRUPT_H
#define HAWSER_COMMAND_INTERRUPT_H

#include <stdbool.h>

/* From now on SIGINT and SIGTERM end a wait in the kernel and are remembered, instead of ending the
 * process. */
void cmd_catch_interrupts(void);
bool cmd_interrupted(void);

#endif
