#include "base/report/table.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/grow.h"
#include "base/text/controls.h"
#include "base/text/utf8.h"

struct column {
    const char *heading;
    enum hw_align align;
};

struct hw_table {
    struct hw_arena arena; /* all text */
    struct column columns[HW_TABLE_COLUMNS_MAX];
    size_t column_count;
    const char **cells;
    size_t cell_count, cell_room;
    int error;
};

struct hw_table *hw_table_create(void)
{
    struct hw_table *table = calloc(1, sizeof *table);
    if (table)
        hw_arena_init(&table->arena, HW_TABLE_BYTES_MAX);
    return table;
}

void hw_table_destroy(struct hw_table *table)
{
    if (!table)
        return;
    hw_arena_fini(&table->arena);
    free(table->cells);
    free(table);
}

void hw_table_column(struct hw_table *table, const char *heading, enum hw_align align)
{
    assert(table->cell_count == 0);
    assert(table->column_count < HW_TABLE_COLUMNS_MAX);
    const char *copy = hw_arena_strdup(&table->arena, heading);
    if (!copy)
        table->error = -ENOMEM;
    table->columns[table->column_count++] = (struct column){copy ? copy : "", align};
}

void hw_table_head(struct hw_table *table, const char *headings)
{
    char *copy = hw_arena_strdup(&table->arena, headings);
    if (!copy)
        table->error = -ENOMEM;
    for (char *rest = copy, *heading; (heading = strsep(&rest, "\t"));) {
        bool is_left = table->column_count == 0 || heading[0] == '<';
        hw_table_column(table, heading + (heading[0] == '<'), is_left ? HW_LEFT : HW_RIGHT);
    }
}

static bool room_for_cell(struct hw_table *table)
{
    if (table->cell_count < table->cell_room)
        return true;
    return table->cell_room * 2 * sizeof *table->cells <= HW_TABLE_BYTES_MAX &&
           hw_grow(&table->cells, &table->cell_room, table->cell_count + 1, sizeof *table->cells);
}

/* text is the arena's; NULL: out of memory. */
static void add_cell(struct hw_table *table, char *text)
{
    assert(table->column_count > 0);
    if (!text || !room_for_cell(table)) {
        table->error = -ENOMEM;
        return;
    }
    hw_blank_controls(text, strlen(text));
    table->cells[table->cell_count++] = text;
}

void hw_table_cell(struct hw_table *table, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!table->error)
        add_cell(table, hw_arena_vprintf(&table->arena, fmt, args));
    va_end(args);
}

void hw_table_cells(struct hw_table *table, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *rest = table->error ? NULL : hw_arena_vprintf(&table->arena, fmt, args);
    va_end(args);
    do
        add_cell(table, strsep(&rest, "\t"));
    while (rest);
}

size_t hw_table_columns(const struct hw_table *table)
{
    return table->column_count;
}

size_t hw_table_rows(const struct hw_table *table)
{
    size_t columns = table->column_count;
    return columns ? (table->cell_count + columns - 1) / columns : 0;
}

const char *hw_table_text(const struct hw_table *table, size_t row, size_t column)
{
    assert(column < table->column_count);
    size_t at = row * table->column_count + column;
    return at < table->cell_count ? table->cells[at] : "";
}

const char *hw_table_heading(const struct hw_table *table, size_t column)
{
    assert(column < table->column_count);
    return table->columns[column].heading;
}

enum hw_align hw_table_align(const struct hw_table *table, size_t column)
{
    assert(column < table->column_count);
    return table->columns[column].align;
}

int hw_table_error(const struct hw_table *table)
{
    return table->error;
}

struct code_range {
    uint32_t first, last;
};

static bool in_ranges(uint32_t code, const struct code_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

static size_t code_width(uint32_t code)
{
    /* The blocks a report can meet, not the whole of Unicode's tables. */
    static const struct code_range zero[] = {
        {0x0300, 0x036f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},
    };
    static const struct code_range wide[] = {
        {0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xac00, 0xd7a3},
        {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
        {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd},
    };
    if (code < 0x300)
        return 1;
    if (in_ranges(code, zero, ARRAY_LEN(zero)))
        return 0;
    return in_ranges(code, wide, ARRAY_LEN(wide)) ? 2 : 1;
}

size_t hw_text_width(const char *text)
{
    size_t width = 0;
    for (size_t len = strlen(text); len > 0;) {
        uint32_t code;
        size_t used = hw_utf8_next(text, len, &code);
        width += code_width(code);
        text += used;
        len -= used;
    }
    return width;
}

/* One line of cells.  Blanks wait for the text after them, so no line ends in one. */
static void put_line(FILE *out, const struct hw_table *table, const size_t *widths,
                     const char *(*cell)(const struct hw_table *, size_t row, size_t column),
                     size_t row)
{
    size_t blanks = 0;
    for (size_t c = 0; c < table->column_count; c++) {
        const char *text = cell(table, row, c);
        size_t pad = widths[c] - hw_text_width(text);
        bool right = table->columns[c].align == HW_RIGHT;
        if (*text) {
            fprintf(out, "%*s%s", (int)(blanks + (right ? pad : 0)), "", text);
            blanks = right ? 2 : pad + 2;
        } else {
            blanks += pad + 2;
        }
    }
    putc('\n', out);
}

static const char *heading_cell(const struct hw_table *table, size_t row, size_t column)
{
    (void)row;
    return table->columns[column].heading;
}

int hw_table_print(const struct hw_table *table, FILE *out)
{
    if (table->error)
        return table->error;
    size_t widths[HW_TABLE_COLUMNS_MAX] = {0};
    size_t rows = hw_table_rows(table);
    for (size_t c = 0; c < table->column_count; c++) {
        widths[c] = hw_text_width(table->columns[c].heading);
        for (size_t r = 0; r < rows; r++) {
            size_t width = hw_text_width(hw_table_text(table, r, c));
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    errno = 0;
    if (table->column_count > 0)
        put_line(out, table, widths, heading_cell, 0);
    for (size_t r = 0; r < rows; r++)
        put_line(out, table, widths, hw_table_text, r);
    if (fflush(out) != 0 || ferror(out))
        return errno ? -errno : -EIO;
    return 0;
}
