#include "command/line.h"

#include "base/grow.h"
#include "base/text/utf8.h"
#include "command/interrupt.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

enum { ESCAPE = 27, DELETE = 127, COLUMNS_DEFAULT = 80 };

#define KEY(letter) ((letter)-64)

void line_fini(struct line *l)
{
    for (size_t i = 0; i < l->history_count; i++)
        free(l->history[i]);
    free(l->draft);
    free(l->text);
    *l = (struct line){0};
}

/* ---- text ---- */

static bool is_inside(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80; /* of a character of several bytes */
}

static size_t before(const struct line *l, size_t at)
{
    while (at > 0 && is_inside(l->text[--at]))
        continue;
    return at;
}

static size_t after(const struct line *l, size_t at)
{
    if (at < l->len)
        at++;
    while (at < l->len && is_inside(l->text[at]))
        at++;
    return at;
}

static void insert(struct line *l, const char *bytes, size_t len)
{
    if (l->len + len > LINE_BYTES_MAX || !hw_grow(&l->text, &l->room, l->len + len + 1, 1))
        return;
    memmove(l->text + l->cursor + len, l->text + l->cursor, l->len - l->cursor);
    memcpy(l->text + l->cursor, bytes, len);
    l->len += len;
    l->cursor += len;
    l->text[l->len] = '\0';
}

static void cut(struct line *l, size_t from, size_t to)
{
    if (from == to)
        return;
    memmove(l->text + from, l->text + to, l->len - to);
    l->len -= to - from;
    l->cursor = from;
    l->text[l->len] = '\0';
}

static void replace(struct line *l, const char *text)
{
    l->len = l->cursor = 0;
    insert(l, text, strlen(text));
    if (l->text)
        l->text[l->len] = '\0';
}

static void cut_word(struct line *l)
{
    size_t from = l->cursor;
    while (from > 0 && l->text[from - 1] == ' ')
        from--;
    while (from > 0 && l->text[from - 1] != ' ')
        from--;
    cut(l, from, l->cursor);
}

static void clear(struct line *l)
{
    l->len = l->cursor = l->key_count = 0;
    l->history_at = l->history_count;
    insert(l, "", 0);
}

/* ---- history ---- */

void line_remember(struct line *l)
{
    bool repeats = l->history_count && strcmp(l->history[l->history_count - 1], l->text) == 0;
    char *copy = l->len && !repeats ? strdup(l->text) : NULL;
    if (!copy)
        return;
    if (l->history_count == LINE_HISTORY_MAX) {
        free(l->history[0]);
        memmove(l->history, l->history + 1, (LINE_HISTORY_MAX - 1) * sizeof *l->history);
        l->history_count--;
    }
    l->history[l->history_count++] = copy;
}

static void walk(struct line *l, int by)
{
    bool at_new = l->history_at == l->history_count;
    if (by < 0 ? l->history_at == 0 : at_new)
        return;
    if (at_new) {
        free(l->draft);
        l->draft = strdup(l->text ? l->text : "");
    }
    l->history_at = by < 0 ? l->history_at - 1 : l->history_at + 1;
    replace(l, l->history_at < l->history_count ? l->history[l->history_at]
               : l->draft                       ? l->draft
                                                : "");
}

/* ---- keys ---- */

struct sequence {
    const char *bytes; /* after the escape */
    char key;          /* what it is the same as */
};

static const struct sequence sequences[] = {
    {"[A", KEY('P')},  {"[B", KEY('N')},  {"[C", KEY('F')},  {"[D", KEY('B')},
    {"[H", KEY('A')},  {"[F", KEY('E')},  {"OH", KEY('A')},  {"OF", KEY('E')},
    {"OA", KEY('P')},  {"OB", KEY('N')},  {"OC", KEY('F')},  {"OD", KEY('B')},
    {"[1~", KEY('A')}, {"[4~", KEY('E')}, {"[7~", KEY('A')}, {"[8~", KEY('E')},
};

static enum line_event control(struct line *l, unsigned char key)
{
    switch (key) {
    case KEY('M'):
    case KEY('J'):
        return LINE_DONE;
    case KEY('C'):
        return LINE_CANCELLED;
    case KEY('D'):
        if (l->len == 0)
            return LINE_END;
        cut(l, l->cursor, after(l, l->cursor));
        break;
    case KEY('H'):
    case DELETE:
        cut(l, before(l, l->cursor), l->cursor);
        break;
    case KEY('A'):
        l->cursor = 0;
        break;
    case KEY('E'):
        l->cursor = l->len;
        break;
    case KEY('B'):
        l->cursor = before(l, l->cursor);
        break;
    case KEY('F'):
        l->cursor = after(l, l->cursor);
        break;
    case KEY('K'):
        cut(l, l->cursor, l->len);
        break;
    case KEY('U'):
        cut(l, 0, l->cursor);
        break;
    case KEY('W'):
        cut_word(l);
        break;
    case KEY('P'):
        walk(l, -1);
        break;
    case KEY('N'):
        walk(l, 1);
        break;
    default:
        break;
    }
    return LINE_MORE;
}

/* An escape sequence, whole or the begin of one. */
static enum line_event escape(struct line *l)
{
    const char *bytes = l->keys + 1;
    size_t len = l->key_count - 1;
    char last = l->keys[l->key_count - 1];
    bool is_open = len == 0 || (len == 1 && (last == '[' || last == 'O')) ||
                   (l->keys[1] == '[' && len > 1 && last < 0x40);
    if (is_open && l->key_count < sizeof l->keys)
        return LINE_MORE;
    l->key_count = 0;
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++) {
        if (len == strlen(sequences[i].bytes) && memcmp(bytes, sequences[i].bytes, len) == 0)
            return control(l, (unsigned char)sequences[i].key);
    }
    if (len == 3 && memcmp(bytes, "[3~", 3) == 0)
        cut(l, l->cursor, after(l, l->cursor));
    if (len == 5 && memcmp(bytes, "[200~", 5) == 0)
        l->pasting = true;
    if (len == 5 && memcmp(bytes, "[201~", 5) == 0)
        l->pasting = false;
    return LINE_MORE;
}

static size_t bytes_of(unsigned char first)
{
    return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

/* A character of several bytes, whole or the begin of one. */
static void character(struct line *l)
{
    if (l->key_count > 1 && !is_inside(l->keys[l->key_count - 1])) {
        l->key_count = 0;
        return;
    }
    if (l->key_count < bytes_of((unsigned char)l->keys[0]))
        return;
    if (!is_inside(l->keys[0]))
        insert(l, l->keys, l->key_count);
    l->key_count = 0;
}

/* One byte from the terminal. */
static enum line_event take_byte(struct line *l, unsigned char byte)
{
    bool begins = l->key_count == 0;
    if (begins && l->pasting && (byte == '\r' || byte == '\n' || byte == '\t')) {
        insert(l, byte == '\t' ? "\t" : "\n", 1);
        return LINE_MORE;
    }
    if (begins && byte != ESCAPE && (byte < 0x20 || byte == DELETE))
        return l->pasting ? LINE_MORE : control(l, byte);
    l->keys[l->key_count++] = (char)byte;
    if (l->keys[0] == ESCAPE)
        return escape(l);
    character(l);
    return LINE_MORE;
}

/* ---- the terminal ---- */

/* Of the character at `at`; line breaks and tabs are shown as one column. */
static size_t columns_at(const struct line *l, size_t at)
{
    uint32_t code;
    (void)hw_utf8_next(l->text + at, l->len - at, &code);
    int columns = wcwidth((wchar_t)code);
    return columns < 0 ? 1 : (size_t)columns;
}

/* What fits `columns` beside a prompt of prompt_columns: *from to *to of the text, and the cursor's
 * column. */
static void window(const struct line *l, size_t columns, size_t prompt_columns, size_t *from,
                   size_t *to, size_t *cursor_column)
{
    size_t room = columns > prompt_columns + 2 ? columns - prompt_columns - 1 : 1;
    size_t first = l->cursor, end = l->cursor, used = 0;
    while (first > 0 && used + columns_at(l, before(l, first)) < room) {
        first = before(l, first);
        used += columns_at(l, first);
    }
    while (first > 0 && first < l->cursor && columns_at(l, first) == 0)
        first = after(l, first); /* an accent whose letter is not shown */
    *cursor_column = prompt_columns + used;
    while (end < l->len && used + columns_at(l, end) <= room) {
        used += columns_at(l, end);
        end = after(l, end);
    }
    *from = first;
    *to = end;
}

static void refresh(const struct line *l, const char *prompt)
{
    struct winsize size = {0};
    size_t from, to, column;
    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    window(l, size.ws_col ? size.ws_col : COLUMNS_DEFAULT, strlen(prompt), &from, &to, &column);
    printf("\r%s", prompt);
    for (size_t i = from; i < to; i++)
        fputc(l->text[i] == '\n' || l->text[i] == '\t' ? ' ' : l->text[i], stdout);
    fputs("\x1b[K\r", stdout);
    if (column)
        printf("\x1b[%zuC", column);
    fflush(stdout);
}

static void set_raw(struct termios *raw)
{
    raw->c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    raw->c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | ISIG);
    raw->c_cc[VMIN] = 1;
    raw->c_cc[VTIME] = 0;
}

static enum line_event read_keys(struct line *l, const char *prompt)
{
    enum line_event event = LINE_MORE;
    while (event == LINE_MORE) {
        unsigned char byte;
        int waiting = 0;
        if (ioctl(STDIN_FILENO, FIONREAD, &waiting) || waiting == 0)
            refresh(l, prompt); /* not after every byte of a paste */
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 1 && byte == KEY('L') && l->key_count == 0)
            fputs("\x1b[H\x1b[2J", stdout);
        event = n == 1 ? take_byte(l, byte) : LINE_END;
    }
    return event;
}

enum line_event line_read(struct line *l, const char *prompt)
{
    clear(l);
    if (!l->text || !cmd_terminal_change(set_raw))
        return LINE_END;
    locale_t wide = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL); /* for wcwidth */
    locale_t previous = wide ? uselocale(wide) : NULL;
    fputs("\x1b[?2004h", stdout); /* pastes are marked */
    enum line_event event = read_keys(l, prompt);
    if (event != LINE_END)
        l->cursor = l->len;
    refresh(l, prompt);
    fputs("\x1b[?2004l", stdout);
    fputs("\n", stdout);
    fflush(stdout);
    cmd_terminal_restore();
    if (wide) {
        uselocale(previous);
        freelocale(wide);
    }
    return event;
}
