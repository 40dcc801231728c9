/* cli/screen.h - what commands with a live screen share.
 *
 * Threads: one at a time. */
#ifndef HAWSER_CLI_SCREEN_H
#define HAWSER_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From now to screen_close the terminal gives keys as they are typed, where there is one and this
 * process is in its foreground.  Signals that end the process restore it; a command that catches
 * some says so before or afterwards (command/interrupt.h). */
void screen_open(void);
void screen_close(void);

/* Before each look: clears the terminal where standard output is one, and the screen is live. Until
 * screen_wait or screen_close a line that is too long is cut at the edge.  A dumb terminal gets
 * lines as a file does.  Says how to quit where keys are read. */
void screen_begin(bool live);

/* Between two looks.  True when q was typed; a signal ends it early. */
bool screen_wait(uint64_t ns);

/* A text that another process chose: what would drive the terminal becomes '?'.  Blanks fill it up
 * to width. */
void screen_text(const char *text, int width);

/* A part of a bar, drawn with one character. */
struct screen_part {
    uint64_t value;
    char mark;
};

/* "[###==-     ]", as wide as asked for: the parts one after the other, of `all`.  A part that is
 * not 0 has a character at least while there is room. */
void screen_bar(const struct screen_part *parts, size_t count, uint64_t all, int width);

/* Columns of the terminal, or `otherwise`. */
int screen_columns(int otherwise);

#endif
