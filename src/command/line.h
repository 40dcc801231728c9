/* command/line.h - a line that a person types on a terminal: editing and history.
 *
 * Keys: arrows, Home, End, Delete, Backspace; Ctrl-A, E, B, F, K, U, W, L, P, N as in readline.
 * Up and Down walk the lines of this run.  A pasted text keeps its line breaks.  A line that is
 * longer than the terminal scrolls.  Wide characters take two columns, accents that follow none.
 *
 * Trust: the terminal sends any bytes; those that are no UTF-8 and no key are ignored.
 * Threads: one.  Lifetime: fini. */
#ifndef HAWSER_COMMAND_LINE_H
#define HAWSER_COMMAND_LINE_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    LINE_BYTES_MAX = 1 << 20, /* of one line, with what was pasted */
    LINE_HISTORY_MAX = 200,   /* lines */
};

enum line_event {
    LINE_MORE,      /* the line goes on */
    LINE_DONE,      /* Enter */
    LINE_CANCELLED, /* Ctrl-C */
    LINE_END,       /* Ctrl-D on an empty line, or the terminal is gone */
};

struct line {   /* all zero: an empty one without a history */
    char *text; /* ended by a NUL */
    size_t len, room, cursor;
    char *history[LINE_HISTORY_MAX];
    size_t history_count, history_at;
    char *draft;      /* the new line while an old one is shown */
    char keys[16];    /* of a sequence or character that is not complete */
    size_t key_count; /* of them */
    bool pasting;
};

void line_fini(struct line *line);

/* Adds the line to the history, unless it repeats the last or is empty. */
void line_remember(struct line *line);
/* Reads a line from the terminal on standard input, showing it on standard output. */
enum line_event line_read(struct line *line, const char *prompt);

#endif
