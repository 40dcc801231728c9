#include "base/counter.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/report/buckets.h"
#include "base/report/json.h"
#include "base/report/table.h"
#include "base/text/gather.h"

/* One table of definitions, known from its first registration to the end of the process. */
struct def_table {
    const struct hw_counter_def *defs;
    size_t count;
    struct hw_counter_set *sets;
    uint64_t *retired; /* of sets that are gone, monotone ones only */
    bool any_retired;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* everything below */
static struct def_table tables[HW_COUNTER_TABLES_MAX];
static size_t table_count;
static size_t set_count;

static bool name_ok(const char *name, bool digits)
{
    if (!name || *name < 'a' || *name > 'z')
        return false;
    for (; *name; name++)
        if (!(*name >= 'a' && *name <= 'z') && *name != '_' &&
            !(digits && *name >= '0' && *name <= '9'))
            return false;
    return true;
}

int hw_counter_set_label(struct hw_counter_set *set, const char *name, const char *value)
{
    size_t name_size = strlen(name) + 1, value_size = strlen(value) + 1;
    if (!name_ok(name, false))
        return -EINVAL;
    if (name_size + value_size > sizeof set->labels - set->labels_len)
        return -ENOSPC;
    memcpy(set->labels + set->labels_len, name, name_size);
    memcpy(set->labels + set->labels_len + name_size, value, value_size);
    set->labels_len += name_size + value_size;
    return 0;
}

static bool has_suffix(const char *text, const char *suffix)
{
    size_t len = strlen(text), suffix_len = strlen(suffix);
    return len >= suffix_len && strcmp(text + len - suffix_len, suffix) == 0;
}

static const struct hw_counter_def *find_def(const char *name, struct def_table **table_out)
{
    for (size_t t = 0; t < table_count; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            if (strcmp(tables[t].defs[i].name, name) == 0) {
                *table_out = &tables[t];
                return &tables[t].defs[i];
            }
        }
    }
    return NULL;
}

static int check_defs(const struct hw_counter_def *defs, size_t count)
{
    struct def_table *other;
    for (size_t i = 0; i < count; i++) {
        if (!name_ok(defs[i].name, true) || has_suffix(defs[i].name, "_total") || !defs[i].help ||
            !defs[i].unit)
            return -EINVAL;
        if (find_def(defs[i].name, &other))
            return -EEXIST;
        for (size_t j = 0; j < i; j++)
            if (strcmp(defs[i].name, defs[j].name) == 0)
                return -EEXIST;
    }
    return 0;
}

/* The entry for a table of definitions, made when it is new. */
static int enter_table(const struct hw_counter_def *defs, size_t count, struct def_table **out)
{
    for (size_t t = 0; t < table_count; t++) {
        if (tables[t].defs == defs) {
            *out = &tables[t];
            return tables[t].count == count ? 0 : -EEXIST;
        }
    }
    int rc = check_defs(defs, count);
    if (rc < 0)
        return rc;
    if (table_count == HW_COUNTER_TABLES_MAX)
        return -ENOSPC;
    uint64_t *retired = calloc(count, sizeof *retired);
    if (!retired)
        return -ENOMEM;
    tables[table_count] = (struct def_table){.defs = defs, .count = count, .retired = retired};
    *out = &tables[table_count++];
    return 0;
}

int hw_counter_set_register(struct hw_counter_set *set)
{
    assert(set->labels_len > 0 || set->labels[0] == '\0');
    if (!set->defs || !set->values || set->count == 0)
        return -EINVAL;
    struct def_table *table;
    pthread_mutex_lock(&lock);
    int rc = set->link                          ? -EEXIST
             : set_count == HW_COUNTER_SETS_MAX ? -ENOSPC
                                                : enter_table(set->defs, set->count, &table);
    if (rc == 0) {
        set->next = table->sets;
        set->link = &table->sets;
        if (set->next)
            set->next->link = &set->next;
        table->sets = set;
        set_count++;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

static void fold(struct def_table *table, const struct hw_counter_set *set)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->defs[i].kind == HW_COUNTER)
            table->retired[i] += hw_counter_load(&set->values[i]);
    table->any_retired = true;
}

void hw_counter_set_unregister(struct hw_counter_set *set)
{
    pthread_mutex_lock(&lock);
    if (set->link) {
        struct def_table *table = tables;
        while (table->defs != set->defs)
            table++;
        *set->link = set->next;
        if (set->next)
            set->next->link = set->link;
        set->link = NULL;
        set_count--;
        fold(table, set);
    }
    pthread_mutex_unlock(&lock);
}

static uint64_t total_of(const struct def_table *table, size_t i)
{
    uint64_t total = table->retired[i];
    for (const struct hw_counter_set *set = table->sets; set; set = set->next)
        total += hw_counter_load(&set->values[i]);
    return total;
}

int hw_counters_total(const char *name, uint64_t *total_out)
{
    struct def_table *table;
    pthread_mutex_lock(&lock);
    const struct hw_counter_def *def = find_def(name, &table);
    if (def)
        *total_out = total_of(table, (size_t)(def - table->defs));
    pthread_mutex_unlock(&lock);
    return def ? 0 : -ENOENT;
}

static bool same_labels(const struct hw_counter_set *a, const struct hw_counter_set *b)
{
    return a->labels_len == b->labels_len && memcmp(a->labels, b->labels, a->labels_len) == 0;
}

/* Whether an earlier set of the list has the same labels and is printed for both. */
static bool is_repeated(const struct def_table *table, const struct hw_counter_set *set)
{
    for (const struct hw_counter_set *s = table->sets; s != set; s = s->next)
        if (same_labels(s, set))
            return true;
    return false;
}

static uint64_t series_value(const struct hw_counter_set *first, size_t i)
{
    uint64_t value = 0;
    for (const struct hw_counter_set *s = first; s; s = s->next)
        if (same_labels(s, first))
            value += hw_counter_load(&s->values[i]);
    return value;
}

/* A printer of one format: the definition, then each of its series. */
struct printer {
    void (*def)(void *state, const struct hw_counter_def *def, uint64_t total);
    void (*series)(void *state, const struct hw_counter_def *def, const char *labels,
                   size_t labels_len, uint64_t value);
    void (*def_end)(void *state);
};

static void walk(const struct printer *printer, void *state)
{
    static const char retired[] = "retired\0true";
    for (size_t t = 0; t < table_count; t++) {
        const struct def_table *table = &tables[t];
        for (size_t i = 0; i < table->count; i++) {
            const struct hw_counter_def *def = &table->defs[i];
            printer->def(state, def, total_of(table, i));
            for (const struct hw_counter_set *s = table->sets; s; s = s->next)
                if (!is_repeated(table, s))
                    printer->series(state, def, s->labels, s->labels_len, series_value(s, i));
            if (table->any_retired && def->kind == HW_COUNTER)
                printer->series(state, def, retired, sizeof retired, table->retired[i]);
            if (printer->def_end)
                printer->def_end(state);
        }
    }
}

/* name NUL value NUL ...: steps to the next pair, false at the end. */
static bool next_label(const char **at, const char *end, const char **name, const char **value)
{
    if (*at >= end)
        return false;
    *name = *at;
    *value = *name + strlen(*name) + 1;
    *at = *value + strlen(*value) + 1;
    assert(*at <= end);
    return true;
}

static void prometheus_escaped(FILE *out, const char *text, bool quotes)
{
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\\\", out);
        else if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '"' && quotes)
            fputs("\\\"", out);
        else
            putc(*text, out);
    }
}

void hw_counters_print_label(FILE *out, const char *name, const char *value)
{
    fprintf(out, "%s=\"", name);
    prometheus_escaped(out, value, true);
    putc('"', out);
}

static void prometheus_def(void *state, const struct hw_counter_def *def, uint64_t total)
{
    FILE *out = state;
    const char *suffix = def->kind == HW_COUNTER ? "_total" : "";
    (void)total;
    fprintf(out, "# HELP hawser_%s%s ", def->name, suffix);
    prometheus_escaped(out, def->help, false);
    fprintf(out, "\n# TYPE hawser_%s%s %s\n", def->name, suffix,
            def->kind == HW_COUNTER ? "counter" : "gauge");
}

static void prometheus_series(void *state, const struct hw_counter_def *def, const char *labels,
                              size_t labels_len, uint64_t value)
{
    FILE *out = state;
    const char *end = labels + labels_len, *name, *text;
    const char *separator = "{";
    fprintf(out, "hawser_%s%s", def->name, def->kind == HW_COUNTER ? "_total" : "");
    while (next_label(&labels, end, &name, &text)) {
        fputs(separator, out);
        hw_counters_print_label(out, name, text);
        separator = ",";
    }
    fprintf(out, "%s %" PRIu64 "\n", labels_len ? "}" : "", value);
}

static void json_def(void *state, const struct hw_counter_def *def, uint64_t total)
{
    struct hw_json *json = state;
    hw_json_object_begin(json);
    hw_json_put_string(json, "name", def->name);
    hw_json_put_string(json, "help", def->help);
    hw_json_put_string(json, "unit", def->unit);
    hw_json_put_string(json, "kind", def->kind == HW_COUNTER ? "counter" : "gauge");
    hw_json_put_u64(json, "total", total);
    hw_json_array_at(json, "series");
}

static void json_series(void *state, const struct hw_counter_def *def, const char *labels,
                        size_t labels_len, uint64_t value)
{
    struct hw_json *json = state;
    const char *end = labels + labels_len, *name, *text;
    (void)def;
    hw_json_object_begin(json);
    hw_json_object_at(json, "labels");
    while (next_label(&labels, end, &name, &text)) {
        hw_json_put_string(json, name, text);
    }
    hw_json_object_end(json);
    hw_json_put_u64(json, "value", value);
    hw_json_object_end(json);
}

static void json_def_end(void *state)
{
    hw_json_array_end(state);
    hw_json_object_end(state);
}

static void text_def(void *state, const struct hw_counter_def *def, uint64_t total)
{
    hw_table_cell(state, "%s", def->name);
    hw_table_cell(state, "%" PRIu64, total);
    hw_table_cell(state, "%s", def->unit);
    hw_table_cell(state, "%s", def->help);
}

static void text_series(void *state, const struct hw_counter_def *def, const char *labels,
                        size_t labels_len, uint64_t value)
{
    const char *end = labels + labels_len, *name, *text;
    char shown[HW_COUNTER_LABEL_BYTES + 4] = "";
    size_t len = 0;
    (void)def;
    if (labels_len == 0)
        return; /* the total has said it */
    while (next_label(&labels, end, &name, &text))
        len += (size_t)snprintf(shown + len, sizeof shown - len, " %s=%s", name, text);
    assert(len < sizeof shown);
    hw_table_cell(state, " %s", shown);
    hw_table_cell(state, "%" PRIu64, value);
    hw_table_cell(state, "%s", "");
    hw_table_cell(state, "%s", "");
}

static int print_json(FILE *out)
{
    static const struct printer printer = {json_def, json_series, json_def_end};
    struct hw_json json;
    hw_json_begin(&json, out);
    hw_json_object_begin(&json);
    hw_json_array_at(&json, "counters");
    walk(&printer, &json);
    hw_json_array_end(&json);
    hw_json_object_end(&json);
    return hw_json_finish(&json);
}

static int print_text(FILE *out)
{
    static const struct printer printer = {text_def, text_series, NULL};
    struct hw_table *table = hw_table_create();
    if (!table)
        return -ENOMEM;
    hw_table_head(table, "counter\tvalue\t<unit\t<meaning");
    walk(&printer, table);
    int rc = hw_table_print(table, out);
    hw_table_destroy(table);
    return rc;
}

static int print_prometheus(FILE *out)
{
    static const struct printer printer = {prometheus_def, prometheus_series, NULL};
    walk(&printer, out);
    hw_buckets_print(out);
    return 0;
}

int hw_counters_print(FILE *out, enum hw_counters_format format)
{
    struct hw_gathered g;
    FILE *memory = hw_gather(&g);
    if (!memory)
        return -ENOMEM;
    pthread_mutex_lock(&lock);
    int rc = format == HW_COUNTERS_JSON   ? print_json(memory)
             : format == HW_COUNTERS_TEXT ? print_text(memory)
                                          : print_prometheus(memory);
    pthread_mutex_unlock(&lock);
    int end = hw_gather_end(memory, &g);
    rc = rc ? rc : end;
    errno = 0;
    if (rc == 0 && (fwrite(g.text, 1, g.len, out) != g.len || fflush(out) != 0))
        rc = errno ? -errno : -EIO;
    free(g.text);
    return rc;
}
