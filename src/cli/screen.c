#include "cli/screen.h"

#include "base/clock.h"
#include "base/report/progress.h"
#include "base/text/controls.h"
#include "command/interrupt.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static bool gives_keys;
static bool cuts_lines; /* while a look is drawn */

static void set_keys(struct termios *mode)
{
    mode->c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    mode->c_cc[VMIN] = 1;
    mode->c_cc[VTIME] = 0;
}

void screen_open(void)
{
    gives_keys = hw_is_screen(STDOUT_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp() &&
                 cmd_terminal_change(set_keys);
}

static void end_look(void)
{
    if (cuts_lines)
        fputs("\033[?7h", stdout);
    cuts_lines = false;
    fflush(stdout);
}

void screen_close(void)
{
    end_look();
    if (gives_keys)
        cmd_terminal_restore();
    gives_keys = false;
}

void screen_begin(bool live)
{
    cuts_lines = live && hw_is_screen(STDOUT_FILENO);
    if (cuts_lines)
        fputs("\033[?7l\033[H\033[J", stdout);
    if (live && gives_keys)
        puts("q or Ctrl-C quits");
}

bool screen_wait(uint64_t ns)
{
    uint64_t until = hw_after(ns), now;
    end_look();
    struct pollfd keys = {.fd = gives_keys ? STDIN_FILENO : -1, .events = POLLIN};
    while ((now = hw_now_ns()) < until) {
        char typed[64];
        int ready = poll(&keys, 1, (int)((until - now + HW_MS - 1) / HW_MS));
        if (ready < 0)
            return false;
        ssize_t n = ready ? read(STDIN_FILENO, typed, sizeof typed) : 0;
        if (n > 0 && memchr(typed, 'q', (size_t)n))
            return true;
        if (ready && n <= 0)
            keys.fd = -1; /* the terminal is gone */
    }
    return false;
}

void screen_text(const char *text, int width)
{
    char *shown = text ? strdup(text) : NULL;
    int columns = 0;
    if (shown)
        hw_blank_controls_of(shown);
    for (const char *at = shown; at && *at; at++) {
        putchar(*at);
        columns += (*at & 0xc0) != 0x80; /* not what continues a character of UTF-8 */
    }
    free(shown);
    for (; columns < width; columns++)
        putchar(' ');
}

void screen_bar(const struct screen_part *parts, size_t count, uint64_t all, int width)
{
    int drawn = 0;
    double sum = 0;
    putchar('[');
    for (size_t i = 0; i < count && all > 0; i++) {
        sum += (double)parts[i].value;
        int until = (int)(sum / (double)all * width + 0.5);
        until = parts[i].value && until == drawn ? drawn + 1 : until;
        until = until < width ? until : width;
        for (; drawn < until; drawn++)
            putchar(parts[i].mark);
    }
    for (; drawn < width; drawn++)
        putchar(' ');
    putchar(']');
}

int screen_columns(int otherwise)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_col == 0)
        return otherwise;
    return size.ws_col;
}
