/* command/interrupt.h - a process that serves or has the terminal: its limits, and its end in
 * order.
 *
 * Threads: any may ask; one changes the terminal. */
#ifndef HAWSER_COMMAND_INTERRUPT_H
#define HAWSER_COMMAND_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>
#include <termios.h>

/* As many open files as it may have: each client costs one or more, and the usual limit is for
 * programs that still use select. */
void cmd_raise_files(void);

/* What stops a server in order: SIGINT, SIGTERM, and SIGHUP where it is not ignored, as by nohup.
 */
void cmd_stop_signals(sigset_t *out);
/* The first of them calls the handler; a second one, should that hang, ends the process.  SIG_DFL:
 * the first one does. */
void cmd_on_stop(void (*handler)(int number));

/* From now on SIGINT and SIGTERM end a wait in the kernel and are remembered, instead of ending the
 * process. */
void cmd_catch_interrupts(void);
bool cmd_interrupted(void);

/* SIGINT, SIGTERM, SIGHUP and SIGQUIT, where the command neither catches nor ignores them, first
 * call the handler, which raises the signal again at its end: that ends the process. */
void cmd_before_end(void (*handler)(int number));

/* Gives the terminal on standard input another mode until cmd_terminal_restore.  Signals that end
 * the process first restore it, and undo what escape sequences our commands turn on.  False: it is
 * no terminal, or takes no mode. */
bool cmd_terminal_change(void (*change)(struct termios *mode));
void cmd_terminal_restore(void);

#endif
