/* base/report/table.h - aligned tables, printed as text or as part of an HTML page.
 *
 * Add the columns, then the cells row by row; a row ends when its last column is filled.  Failure
 * to allocate is remembered and told by the print, so building needs no checks.
 *
 * Trust: cells may hold anything; control characters are printed as '?'.  Threads: one at a time.
 * Lifetime: create/destroy; text is copied. */
#ifndef HAWSER_BASE_REPORT_TABLE_H
#define HAWSER_BASE_REPORT_TABLE_H

#include <stddef.h>
#include <stdio.h>

#include "base/attr.h"

enum {
    HW_TABLE_COLUMNS_MAX = 32,     /* what fits on a wide screen */
    HW_TABLE_BYTES_MAX = 64 << 20, /* a runaway report stops here with -ENOMEM */
};

enum hw_align { HW_LEFT, HW_RIGHT };

struct hw_table;

/* NULL when out of memory. */
struct hw_table *hw_table_create(void) MUST_CHECK;
void hw_table_destroy(struct hw_table *table);

/* All columns before the first cell. */
void hw_table_column(struct hw_table *table, const char *heading, enum hw_align align);
/* Several columns, their headings separated by tabs.  '<' before a heading, which is not shown, and
 * the first column of a table mean left. */
void hw_table_head(struct hw_table *table, const char *headings);
void hw_table_cell(struct hw_table *table, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Several cells, separated by tabs: for figures and names of ours, which have no tab. */
void hw_table_cells(struct hw_table *table, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* 0, -ENOMEM from building, or the negative errno of the failed write.  A last row that was not
 * filled is printed with empty cells. */
int hw_table_print(const struct hw_table *table, FILE *out) MUST_CHECK;

size_t hw_table_columns(const struct hw_table *table);
size_t hw_table_rows(const struct hw_table *table);
/* Row 0 is the first below the heading.  "" for a cell that was not filled. */
const char *hw_table_text(const struct hw_table *table, size_t row, size_t column);
const char *hw_table_heading(const struct hw_table *table, size_t column);
enum hw_align hw_table_align(const struct hw_table *table, size_t column);
/* 0 or -ENOMEM: whether everything that was added is there. */
int hw_table_error(const struct hw_table *table);

/* Columns that text takes on a terminal: combining marks 0, East Asian wide and emoji 2, the rest
 * 1; each invalid byte 1. */
size_t hw_text_width(const char *text);

#endif
