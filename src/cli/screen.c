#include "cli/screen.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

void screen_begin(bool live)
{
    if (live && isatty(STDOUT_FILENO))
        fputs("\033[H\033[J", stdout);
}

void screen_text(const char *text, int width)
{
    int len = 0;
    for (; text && *text; text++, len++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
    for (; len < width; len++)
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
