/* cli/screen.h - what commands with a live screen share.
 *
 * Threads: one at a time. */
#ifndef HAWSER_CLI_SCREEN_H
#define HAWSER_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Before each look: clears the terminal where standard output is one, and the screen is live. */
void screen_begin(bool live);

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
