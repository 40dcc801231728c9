/* base/report/csv.h - CSV writer with the quoting of RFC 4180.
 *
 * A field that holds a comma, a quote, CR or LF is quoted, quotes doubled.  Records end in LF, not
 * CRLF: the files are read by Unix tools, and every CSV reader takes both.
 *
 * Threads: one at a time.  Lifetime: the struct and the stream are the caller's. */
#ifndef HAWSER_BASE_REPORT_CSV_H
#define HAWSER_BASE_REPORT_CSV_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/attr.h"

struct hw_csv {
    FILE *out;
    size_t columns; /* of the first record; later ones must have as many, by assertion */
    size_t at;      /* fields written in this record */
    bool first_done;
    int error; /* negative errno, sticky */
};

void hw_csv_begin(struct hw_csv *csv, FILE *out);
void hw_csv_field(struct hw_csv *csv, const char *text);
void hw_csv_u64(struct hw_csv *csv, uint64_t value);
void hw_csv_double(struct hw_csv *csv, double value); /* NaN is an empty field */
void hw_csv_end_row(struct hw_csv *csv);
/* Flushes.  0 or the first negative errno. */
int hw_csv_finish(struct hw_csv *csv) MUST_CHECK;

#endif
