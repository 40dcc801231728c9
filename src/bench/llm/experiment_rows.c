/* experiment_rows.c - the CSV file of an experiment: rows written as they come, and read again. */
#include "base/grow.h"
#include "bench/llm/experiment.h"

#include "base/report/csv.h"
#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char header[] =
    "trial,phase,mode,latency_s,wall_s,net_bytes,server_gpu_kernel_ms,server_serdes_ms,"
    "client_serdes_ms,rpc_time_ms,avg_sm,weights,tokens,logits,kv_regular,kv_delta,control,"
    "decode_steps,rtt_us,clients,client,settings,token_ids,step_us,step_bytes_up,step_bytes_down,"
    "evicted_layers,kv_fetched,kv_recovered,kv_computed_rows,store_kv_regular,store_kv_delta,"
    "rate_bits";

enum { COLUMNS = 33 };

bool experiment_same_point(const struct experiment_point *a, const struct experiment_point *b)
{
    return a->steps == b->steps && a->rtt_ns == b->rtt_ns && a->bits_s == b->bits_s &&
           a->clients == b->clients && a->evicted == b->evicted;
}

uint64_t experiment_evicts_at(const struct experiment_point *point)
{
    return point->steps > 2 ? point->steps / 2 : 1;
}

static void list_fini(struct experiment_list *list)
{
    free(list->values);
    *list = (struct experiment_list){0};
}

void experiment_row_fini(struct experiment_row *row)
{
    list_fini(&row->tokens);
    list_fini(&row->step_us);
    list_fini(&row->step_up);
    list_fini(&row->step_down);
}

void experiment_rows_fini(struct experiment_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        experiment_row_fini(&rows->items[i]);
    free(rows->items);
    *rows = (struct experiment_rows){0};
}

int experiment_rows_add(struct experiment_rows *rows, struct experiment_row *row)
{
    int rc = rows->count == EXPERIMENT_ROWS_MAX ? -E2BIG : 0;
    if (rc == 0 && !hw_grow(&rows->items, &rows->room, rows->count + 1, sizeof *rows->items))
        rc = -ENOMEM;
    if (rc)
        experiment_row_fini(row);
    else
        rows->items[rows->count++] = *row;
    return rc;
}

static size_t words_in(const char *text)
{
    size_t count = 0;
    for (const char *c = text; *c; c++)
        count += *c != ' ' && (c == text || c[-1] == ' ');
    return count;
}

int experiment_list_parse(const char *text, struct experiment_list *out)
{
    size_t count = words_in(text);
    if (count > EXPERIMENT_STEPS_MAX)
        return -E2BIG;
    double *values = calloc(count ? count : 1, sizeof *values);
    if (!values)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        char word[HW_FORMAT_CHARS];
        text += strspn(text, " ");
        size_t len = strcspn(text, " ");
        if (len < sizeof word) {
            memcpy(word, text, len);
            word[len] = '\0';
        }
        if (len >= sizeof word || hw_parse_double(word, 0, 1e18, &values[i])) {
            free(values);
            return -EINVAL;
        }
        text += len;
    }
    *out = (struct experiment_list){values, count};
    return 0;
}

/* ---- writing ---- */

static void put_list(struct hw_csv *csv, const struct experiment_list *list)
{
    char *text = malloc(list->count * HW_FORMAT_CHARS + 1), *at = text;
    if (!text) {
        csv->error = csv->error ? csv->error : -ENOMEM;
        return;
    }
    *at = '\0';
    for (size_t i = 0; i < list->count; i++) {
        char number[HW_FORMAT_CHARS];
        at += sprintf(at, "%s%s", i ? " " : "", hw_format_double(number, list->values[i]));
    }
    hw_csv_field(csv, text);
    free(text);
}

/* NaN: none. */
static void put_double(struct hw_csv *csv, double value)
{
    if (isnan(value))
        hw_csv_field(csv, "none");
    else
        hw_csv_double(csv, value);
}

int experiment_file_append(FILE *file, const struct experiment_row *row)
{
    struct hw_csv csv;
    const double numbers[] = {
        row->latency_s,        row->wall_s,           row->net_bytes, row->kernel_ms,
        row->server_serdes_ms, row->client_serdes_ms, row->rpc_ms,    row->avg_sm};
    hw_csv_begin(&csv, file);
    hw_csv_u64(&csv, row->trial);
    hw_csv_field(&csv, row->phase);
    hw_csv_field(&csv, row->mode);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_double(&csv, numbers[i]);
    for (int c = 0; c < LLM_CLASSES; c++)
        put_double(&csv, row->bytes[c]);
    hw_csv_u64(&csv, row->point.steps);
    hw_csv_double(&csv, (double)row->point.rtt_ns / 1e3);
    hw_csv_u64(&csv, row->point.clients);
    hw_csv_u64(&csv, row->client);
    hw_csv_u64(&csv, row->settings);
    put_list(&csv, &row->tokens);
    put_list(&csv, &row->step_us);
    put_list(&csv, &row->step_up);
    put_list(&csv, &row->step_down);
    hw_csv_u64(&csv, row->point.evicted);
    hw_csv_double(&csv, row->kv_fetched);
    hw_csv_double(&csv, row->kv_recovered);
    hw_csv_double(&csv, row->kv_computed);
    hw_csv_double(&csv, row->store_regular);
    hw_csv_double(&csv, row->store_delta);
    hw_csv_u64(&csv, row->point.bits_s);
    hw_csv_end_row(&csv);
    return hw_csv_finish(&csv);
}

/* ---- reading ---- */

static int read_number(const char *text, double *out)
{
    return hw_parse_double(text, 0, 1e18, out);
}

static int read_optional(const char *text, double *out)
{
    *out = NAN;
    return strcmp(text, "none") == 0 ? 0 : read_number(text, out);
}

static int read_u64(const char *text, uint64_t *out)
{
    return hw_parse_u64(text, 0, UINT64_MAX, out);
}

static int read_name(const char *text, char out[EXPERIMENT_NAME_CHARS])
{
    if (strlen(text) >= EXPERIMENT_NAME_CHARS)
        return -EINVAL;
    strcpy(out, text);
    return 0;
}

/* Our own fields hold neither commas nor quotes. */
static int split(char *line, char *fields[COLUMNS])
{
    size_t count = 0;
    for (char *at = line; at; count++) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma++ = '\0';
        if (count == COLUMNS)
            return -EINVAL;
        fields[count] = at;
        at = comma;
    }
    return count == COLUMNS ? 0 : -EINVAL;
}

static int read_figures(char *const f[COLUMNS], struct experiment_row *row)
{
    double rtt_us = 0;
    double *const numbers[] = {
        [3] = &row->latency_s,        [4] = &row->wall_s,           [5] = &row->net_bytes,
        [7] = &row->server_serdes_ms, [8] = &row->client_serdes_ms, [9] = &row->rpc_ms};
    int rc =
        read_u64(f[0], &row->trial) || read_name(f[1], row->phase) || read_name(f[2], row->mode);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        rc = rc || (numbers[i] && read_number(f[i], numbers[i]));
    rc = rc || read_optional(f[6], &row->kernel_ms) || read_optional(f[10], &row->avg_sm);
    for (int c = 0; c < LLM_CLASSES; c++)
        rc = rc || read_optional(f[11 + c], &row->bytes[c]);
    rc = rc || read_u64(f[17], &row->point.steps) || read_number(f[18], &rtt_us) ||
         read_u64(f[19], &row->point.clients) || read_u64(f[20], &row->client) ||
         read_u64(f[21], &row->settings) || read_u64(f[26], &row->point.evicted) ||
         read_number(f[27], &row->kv_fetched) || read_number(f[28], &row->kv_recovered) ||
         read_number(f[29], &row->kv_computed) || read_number(f[30], &row->store_regular) ||
         read_number(f[31], &row->store_delta) || read_u64(f[32], &row->point.bits_s);
    row->point.rtt_ns = (uint64_t)llround(rtt_us * 1e3);
    return rc ? -EINVAL : 0;
}

static int read_row(char *line, struct experiment_row *row)
{
    char *f[COLUMNS];
    *row = (struct experiment_row){0};
    int rc = split(line, f);
    if (rc == 0)
        rc = read_figures(f, row);
    if (rc == 0)
        rc = experiment_list_parse(f[22], &row->tokens);
    if (rc == 0)
        rc = experiment_list_parse(f[23], &row->step_us);
    if (rc == 0)
        rc = experiment_list_parse(f[24], &row->step_up);
    if (rc == 0)
        rc = experiment_list_parse(f[25], &row->step_down);
    if (rc)
        experiment_row_fini(row);
    return rc;
}

/* Takes in whole lines; *end is where the last of them ends. */
static int read_rows(FILE *file, uint64_t settings, struct experiment_rows *rows, size_t *others,
                     off_t *end)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int rc = 0;
    for (bool first = true; rc == 0 && (len = getline(&line, &room, file)) > 0; first = false) {
        struct experiment_row row;
        if (len > EXPERIMENT_LINE_MAX || (first && line[len - 1] != '\n'))
            rc = -EEXIST;
        if (rc || line[len - 1] != '\n')
            break; /* cut short: it will be run again */
        line[len - 1] = '\0';
        if (first) {
            rc = strcmp(line, header) == 0 ? 0 : -EEXIST;
        } else {
            rc = read_row(line, &row);
            rc = rc == -EINVAL || rc == -E2BIG ? -EEXIST : rc;
            if (rc == 0 && row.settings == settings)
                rc = experiment_rows_add(rows, &row);
            else if (rc == 0) {
                experiment_row_fini(&row);
                ++*others;
            }
        }
        *end = ftello(file);
    }
    free(line);
    return rc;
}

int experiment_file_open(const char *path, uint64_t settings, struct experiment_rows *rows,
                         size_t *others, FILE **out)
{
    off_t end = 0;
    *others = 0;
    FILE *file = fopen(path, "a+");
    if (!file)
        return -errno;
    rewind(file);
    struct stat st;
    bool has_an_end = fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode); /* a device has none */
    int rc = has_an_end ? read_rows(file, settings, rows, others, &end) : -EEXIST;
    if (rc == 0 && ftruncate(fileno(file), end))
        rc = -errno;
    if (rc == 0)
        fseeko(file, 0, SEEK_END);
    if (rc == 0 && end == 0 && (fprintf(file, "%s\n", header) < 0 || fflush(file)))
        rc = -errno;
    if (rc) {
        fclose(file);
        experiment_rows_fini(rows);
        return rc;
    }
    *out = file;
    return 0;
}
