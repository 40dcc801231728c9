#include "base/report/csv.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/units.h"

void hw_csv_begin(struct hw_csv *csv, FILE *out)
{
    *csv = (struct hw_csv){.out = out};
}

static void put_char(struct hw_csv *csv, char c)
{
    if (csv->error)
        return;
    errno = 0;
    if (putc(c, csv->out) == EOF)
        csv->error = errno ? -errno : -EIO;
}

void hw_csv_field(struct hw_csv *csv, const char *text)
{
    assert(!csv->first_done || csv->at < csv->columns);
    if (csv->at++ > 0)
        put_char(csv, ',');
    bool quoted = text[strcspn(text, ",\"\r\n")] != '\0';
    if (quoted)
        put_char(csv, '"');
    for (; *text; text++) {
        if (*text == '"')
            put_char(csv, '"');
        put_char(csv, *text);
    }
    if (quoted)
        put_char(csv, '"');
}

void hw_csv_u64(struct hw_csv *csv, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    hw_csv_field(csv, text);
}

void hw_csv_double(struct hw_csv *csv, double value)
{
    char text[HW_FORMAT_CHARS];
    hw_csv_field(csv, isnan(value) ? "" : hw_format_double(text, value));
}

void hw_csv_end_row(struct hw_csv *csv)
{
    assert(csv->at > 0);
    if (!csv->first_done) {
        csv->columns = csv->at;
        csv->first_done = true;
    }
    assert(csv->at == csv->columns);
    csv->at = 0;
    put_char(csv, '\n');
}

int hw_csv_finish(struct hw_csv *csv)
{
    assert(csv->at == 0);
    errno = 0;
    if (!csv->error && fflush(csv->out) != 0)
        csv->error = errno ? -errno : -EIO;
    return csv->error;
}
