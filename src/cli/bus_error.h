/* cli/bus_error.h - a file that is mapped, a model's, and becomes shorter: the process cannot go
 * on, but says which file and what to do.
 *
 * Threads: main, before others.  Lifetime: the process's. */
#ifndef HAWSER_CLI_BUS_ERROR_H
#define HAWSER_CLI_BUS_ERROR_H

/* From now on such a fault ends the process with CMD_FAILED and a message. */
void cli_explain_bus_errors(void);

#endif
