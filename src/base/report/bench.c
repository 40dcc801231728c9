#include "base/report/bench.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/commit.h"
#include "base/report/json.h"
#include "base/report/table.h"
#include "base/text/gather.h"
#include "base/units.h"

struct hw_bench_row {
    struct hw_bench_row *next;
    const char *name;
    const char *unit;
    double value;
    double baseline;
    const char *invalid;                     /* why the figure cannot be true; NULL: it can */
    const char *fields[HW_BENCH_FIELDS_MAX]; /* by the index of the key; NULL where it has none */
};

struct name {
    struct name *next;
    const char *text;
};

/* The rows that were left out for one reason. */
struct hw_bench_left {
    struct hw_bench_left *next;
    const char *why;
    struct name *first, *last;
    size_t count;
};

#define DISTURBED 0.9     /* of a baseline that is a limit: two measurements differ by less */
enum { NAMES_SHOWN = 3 }; /* of the rows left out, in a table; the JSON has all */

void hw_bench_begin(struct hw_bench *bench, const char *name)
{
    *bench = (struct hw_bench){.name = ""};
    hw_arena_init(&bench->arena, HW_BENCH_BYTES_MAX);
    const char *copy = hw_arena_strdup(&bench->arena, name);
    if (copy)
        bench->name = copy;
    else
        bench->error = -ENOMEM;
}

void hw_bench_end(struct hw_bench *bench)
{
    hw_arena_fini(&bench->arena);
    memset(bench, 0, sizeof *bench);
}

void hw_bench_row(struct hw_bench *bench, const char *name, double value, const char *unit,
                  double baseline)
{
    if (bench->error)
        return;
    struct hw_bench_row *row = hw_arena_calloc(&bench->arena, 1, sizeof *row);
    const char *name_copy = hw_arena_strdup(&bench->arena, name);
    const char *unit_copy = hw_arena_strdup(&bench->arena, unit);
    if (!row || !name_copy || !unit_copy) {
        bench->error = -ENOMEM;
        return;
    }
    row->name = name_copy;
    row->unit = unit_copy;
    row->value = value;
    row->baseline = baseline;
    if (bench->last)
        bench->last->next = row;
    else
        bench->first = row;
    bench->last = row;
    char text[HW_FORMAT_CHARS];
    if (value < 0 || isinf(value))
        hw_bench_invalid(bench, "%s %s is impossible: measure again while the machine is idle",
                         hw_format_figure(text, value), unit);
    if (baseline < 0 || isinf(baseline))
        hw_bench_invalid(bench, "a baseline of %s %s is impossible",
                         hw_format_figure(text, baseline), unit);
}

static bool is_fixed_key(const char *key)
{
    static const char *const fixed[] = {"name",  "value", "unit",  "baseline",
                                        "ratio", "valid", "reason"};
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        if (strcmp(key, fixed[i]) == 0)
            return true;
    return false;
}

/* The index of the column, entered when it is new; negative errno. */
static int key_index(struct hw_bench *bench, const char *key)
{
    for (size_t i = 0; i < bench->key_count; i++)
        if (strcmp(bench->keys[i], key) == 0)
            return (int)i;
    if (bench->key_count == HW_BENCH_FIELDS_MAX)
        return -E2BIG;
    const char *copy = hw_arena_strdup(&bench->arena, key);
    if (!copy)
        return -ENOMEM;
    bench->keys[bench->key_count] = copy;
    return (int)bench->key_count++;
}

void hw_bench_field(struct hw_bench *bench, const char *key, const char *fmt, ...)
{
    assert(!is_fixed_key(key));
    if (bench->error)
        return;
    assert(bench->last);
    int index = key_index(bench, key);
    if (index < 0) {
        bench->error = index;
        return;
    }
    va_list args;
    va_start(args, fmt);
    const char *text = hw_arena_vprintf(&bench->arena, fmt, args);
    va_end(args);
    if (text)
        bench->last->fields[index] = text;
    else
        bench->error = -ENOMEM;
}

void hw_bench_invalid(struct hw_bench *bench, const char *fmt, ...)
{
    bench->failed = true;
    if (bench->error || bench->last->invalid)
        return;
    va_list args;
    va_start(args, fmt);
    bench->last->invalid = hw_arena_vprintf(&bench->arena, fmt, args);
    va_end(args);
    if (!bench->last->invalid)
        bench->error = -ENOMEM;
}

static double value_of(const struct hw_bench_row *row)
{
    return row->invalid ? NAN : row->value;
}

static double ratio(const struct hw_bench_row *row)
{
    return value_of(row) / row->baseline; /* NaN when there is no baseline */
}

static bool is_beyond(const struct hw_bench_target *t, double ratio)
{
    return t->is_limit && (t->at_most ? ratio < DISTURBED : ratio > 1 / DISTURBED);
}

void hw_bench_judge(struct hw_bench *bench, const struct hw_bench_target *targets, size_t count)
{
    if (bench->error)
        return;
    const struct hw_bench_row *row = bench->last;
    for (size_t i = 0; i < count; i++) {
        const struct hw_bench_target *t = &targets[i];
        if (strncmp(row->name, t->prefix, strlen(t->prefix)) != 0)
            continue;
        if (is_beyond(t, ratio(row)))
            hw_bench_invalid(bench,
                             "%.3g times its baseline is impossible, since the baseline is a part "
                             "of it: measure again while the machine is idle",
                             ratio(row));
        double judged = isnan(row->baseline) ? value_of(row) : ratio(row);
        bool met = t->at_most ? judged <= t->bound : judged >= t->bound;
        bench->failed |= !met;
        hw_bench_field(bench, "target", "%s %g", t->at_most ? "<=" : ">=", t->bound);
        hw_bench_field(bench, "met", "%s", row->invalid ? "invalid" : met ? "yes" : "NO");
        return;
    }
    hw_bench_field(bench, "target", "-");
    hw_bench_field(bench, "met", "-");
}

bool hw_bench_failed(const struct hw_bench *bench)
{
    return bench->failed;
}

static struct hw_bench_left *left_out_by(struct hw_bench *bench, const char *why)
{
    struct hw_bench_left *left = bench->left_out;
    while (left && strcmp(left->why, why) != 0)
        left = left->next;
    if (left)
        return left;
    left = hw_arena_calloc(&bench->arena, 1, sizeof *left);
    const char *copy = hw_arena_strdup(&bench->arena, why);
    if (!left || !copy)
        return NULL;
    *left = (struct hw_bench_left){.next = bench->left_out, .why = copy};
    return bench->left_out = left;
}

void hw_bench_leave_out(struct hw_bench *bench, const char *name, const char *why)
{
    if (bench->error)
        return;
    struct hw_bench_left *left = left_out_by(bench, why);
    struct name *entry = hw_arena_calloc(&bench->arena, 1, sizeof *entry);
    const char *copy = hw_arena_strdup(&bench->arena, name);
    if (!left || !entry || !copy) {
        bench->error = -ENOMEM;
        return;
    }
    entry->text = copy;
    *(left->last ? &left->last->next : &left->first) = entry;
    left->last = entry;
    left->count++;
}

/* Whether most rows have the field: others would make a wide column of blanks. */
static bool is_column(const struct hw_bench *bench, size_t key)
{
    size_t rows = 0, with = 0;
    for (const struct hw_bench_row *row = bench->first; row; row = row->next, rows++)
        with += row->fields[key] != NULL;
    return with * 2 > rows;
}

/* One cell of all fields that have no column. */
static void also_cell(const struct hw_bench *bench, const struct hw_bench_row *row,
                      const bool *is_column, struct hw_table *table)
{
    struct hw_gathered text;
    FILE *cell = hw_gather(&text);
    const char *between = "";
    for (size_t i = 0; cell && i < bench->key_count; i++) {
        if (is_column[i] || !row->fields[i])
            continue;
        fprintf(cell, "%s%s %s", between, bench->keys[i], row->fields[i]);
        between = ", ";
    }
    hw_table_cell(table, "%s", hw_gather_end(cell, &text) == 0 ? text.text : "?");
    free(text.text);
}

static void table_row(const struct hw_bench *bench, const struct hw_bench_row *row,
                      const bool *is_column, struct hw_table *table)
{
    char text[HW_FORMAT_CHARS];
    hw_table_cell(table, "%s", row->name);
    for (size_t i = 0; i < bench->key_count; i++)
        if (is_column[i])
            hw_table_cell(table, "%s", row->fields[i] ? row->fields[i] : "");
    hw_table_cell(table, "%s", row->invalid ? "invalid" : hw_format_figure(text, row->value));
    hw_table_cell(table, "%s", row->unit);
    hw_table_cell(table, "%s", hw_format_figure(text, row->baseline));
    hw_table_cell(table, "%s", hw_format_figure(text, ratio(row)));
}

/* What the rows do not say by themselves.  0 or the errno of a failed write. */
static int print_notes(const struct hw_bench *bench, FILE *out)
{
    int written = 0;
    for (const struct hw_bench_row *row = bench->first; row && written >= 0; row = row->next)
        if (row->invalid)
            written = fprintf(out, "invalid: %s: %s\n", row->name, row->invalid);
    for (const struct hw_bench_left *left = bench->left_out; left && written >= 0;
         left = left->next) {
        const struct name *name = left->first;
        written = fprintf(out, "left out by %s: %zu row%s: %s", left->why, left->count,
                          left->count == 1 ? "" : "s", name->text);
        for (size_t i = 1; (name = name->next) && i < NAMES_SHOWN && written >= 0; i++)
            written = fprintf(out, ", %s", name->text);
        if (written >= 0)
            written = fputs(name ? " and others\n" : "\n", out);
    }
    return written < 0 || fflush(out) ? -errno : 0;
}

int hw_bench_print_table(const struct hw_bench *bench, FILE *out)
{
    if (bench->error)
        return bench->error;
    struct hw_table *table = hw_table_create();
    if (!table)
        return -ENOMEM;
    bool columns[HW_BENCH_FIELDS_MAX] = {0}, all = true;
    hw_table_column(table, "name", HW_LEFT);
    for (size_t i = 0; i < bench->key_count; i++) {
        all &= columns[i] = is_column(bench, i);
        if (columns[i])
            hw_table_column(table, bench->keys[i], HW_RIGHT);
    }
    hw_table_head(table, "value\t<unit\tbaseline\tratio");
    if (!all)
        hw_table_column(table, "also", HW_LEFT);
    for (const struct hw_bench_row *row = bench->first; row; row = row->next) {
        table_row(bench, row, columns, table);
        if (!all)
            also_cell(bench, row, columns, table);
    }
    int rc = hw_table_print(table, out);
    hw_table_destroy(table);
    return rc ? rc : print_notes(bench, out);
}

static void json_row(const struct hw_bench *bench, const struct hw_bench_row *row,
                     struct hw_json *json)
{
    hw_json_object_begin(json);
    hw_json_put_string(json, "name", row->name);
    hw_json_put_double(json, "value", value_of(row));
    hw_json_put_string(json, "unit", row->unit);
    hw_json_put_double(json, "baseline", row->baseline);
    hw_json_put_double(json, "ratio", ratio(row));
    if (row->invalid) {
        hw_json_put_bool(json, "valid", false);
        hw_json_put_string(json, "reason", row->invalid);
    }
    for (size_t i = 0; i < bench->key_count; i++)
        if (row->fields[i])
            hw_json_put_string(json, bench->keys[i], row->fields[i]);
    hw_json_object_end(json);
}

static void json_left_out(const struct hw_bench *bench, struct hw_json *json)
{
    hw_json_array_at(json, "left_out");
    for (const struct hw_bench_left *left = bench->left_out; left; left = left->next) {
        hw_json_object_begin(json);
        hw_json_put_string(json, "why", left->why);
        hw_json_array_at(json, "rows");
        for (const struct name *name = left->first; name; name = name->next)
            hw_json_string(json, name->text);
        hw_json_array_end(json);
        hw_json_object_end(json);
    }
    hw_json_array_end(json);
}

int hw_bench_print_json(const struct hw_bench *bench, FILE *out)
{
    if (bench->error)
        return bench->error;
    char host[HW_BENCH_HOST_CHARS], date[HW_UTC_CHARS];
    struct hw_json json;
    hw_bench_host(host);
    hw_utc(date);
    hw_json_begin(&json, out);
    hw_json_object_begin(&json);
    hw_json_put_string(&json, "benchmark", bench->name);
    hw_json_put_string(&json, "commit", hw_bench_commit());
    hw_json_put_string(&json, "host", host);
    hw_json_put_string(&json, "date", date);
    hw_json_array_at(&json, "rows");
    for (const struct hw_bench_row *row = bench->first; row; row = row->next)
        json_row(bench, row, &json);
    hw_json_array_end(&json);
    json_left_out(bench, &json);
    hw_json_object_end(&json);
    return hw_json_finish(&json);
}

int hw_bench_print(const struct hw_bench *bench, bool json, FILE *out)
{
    return json ? hw_bench_print_json(bench, out) : hw_bench_print_table(bench, out);
}

const char *hw_bench_commit(void)
{
    return HAWSER_COMMIT;
}

/* The value of the first /proc/cpuinfo line that begins with key; false when there is none. */
static bool cpuinfo_value(const char *key, char *buf, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        found = colon && strncmp(line, key, strlen(key)) == 0;
        if (found)
            snprintf(buf, size, "%.*s", (int)strcspn(colon + 1, "\n"), colon + 1);
    }
    if (file)
        fclose(file);
    return found;
}

/* The name of an Arm core that servers have, by its part number; NULL: another. */
static const char *arm_core(const char *implementer, const char *part)
{
    static const struct {
        const char *part, *name;
    } cores[] = {{" 0xd0c", "Neoverse-N1"}, {" 0xd40", "Neoverse-V1"}, {" 0xd49", "Neoverse-N2"},
                 {" 0xd4f", "Neoverse-V2"}, {" 0xd84", "Neoverse-V3"}, {" 0xd8e", "Neoverse-N3"}};
    for (size_t i = 0; i < ARRAY_LEN(cores) && strcmp(implementer, " 0x41") == 0; i++)
        if (strcmp(part, cores[i].part) == 0)
            return cores[i].name;
    return NULL;
}

/* x86 names its CPU; arm64 gives the implementer and part numbers. */
static void cpu_model(char *buf, size_t size)
{
    char implementer[32], part[32];
    if (cpuinfo_value("model name", buf, size)) {
        memmove(buf, buf + strspn(buf, " "), strlen(buf + strspn(buf, " ")) + 1);
    } else if (cpuinfo_value("CPU implementer", implementer, sizeof implementer) &&
               cpuinfo_value("CPU part", part, sizeof part)) {
        const char *core = arm_core(implementer, part);
        if (core)
            snprintf(buf, size, "%s", core);
        else
            snprintf(buf, size, "implementer%s part%s", implementer, part);
    } else {
        snprintf(buf, size, "unknown CPU");
    }
}

void hw_bench_host(char buf[HW_BENCH_HOST_CHARS])
{
    struct utsname name;
    char model[80];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_model(model, sizeof model);
    snprintf(buf, HW_BENCH_HOST_CHARS, "%s, %ld CPU%s, %s",
             uname(&name) == 0 ? name.machine : "unknown", cpus, cpus == 1 ? "" : "s", model);
}
