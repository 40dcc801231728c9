#include "base/report/buckets.h"

#include "base/counter.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the list */
static struct hw_buckets *all, **end = &all;

void hw_buckets_register(struct hw_buckets *b, const struct hw_buckets_def *def, const char *model)
{
    assert(!b->link && def->edge_count < HW_BUCKETS_MAX);
    b->def = def;
    snprintf(b->model, sizeof b->model, "%s", model);
    pthread_mutex_lock(&lock);
    b->next = NULL;
    b->link = end;
    *end = b;
    end = &b->next;
    pthread_mutex_unlock(&lock);
}

void hw_buckets_unregister(struct hw_buckets *b)
{
    pthread_mutex_lock(&lock);
    if (b->link) {
        *b->link = b->next;
        if (b->next)
            b->next->link = b->link;
        else
            end = b->link;
        b->link = NULL;
    }
    pthread_mutex_unlock(&lock);
}

void hw_buckets_note(struct hw_buckets *b, uint64_t value)
{
    double scaled = (double)value * b->def->unit;
    size_t i = 0;
    while (i < b->def->edge_count && scaled > b->def->edges[i])
        i++;
    hw_counter_bump(&b->sum, value);
    hw_counter_bump(&b->counts[i], 1);
}

uint64_t hw_buckets_count(const struct hw_buckets *b)
{
    uint64_t count = 0;
    for (size_t i = 0; i < HW_BUCKETS_MAX; i++)
        count += hw_counter_load(&b->counts[i]);
    return count;
}

double hw_buckets_mean(const struct hw_buckets *b)
{
    uint64_t count = hw_buckets_count(b);
    return count ? (double)hw_counter_load(&b->sum) * b->def->unit / (double)count : 0;
}

void hw_buckets_add(struct hw_buckets *to, const struct hw_buckets *from)
{
    to->def = from->def;
    for (size_t i = 0; i < HW_BUCKETS_MAX; i++)
        hw_counter_bump(&to->counts[i], hw_counter_load(&from->counts[i]));
    hw_counter_bump(&to->sum, hw_counter_load(&from->sum));
}

double hw_buckets_quantile(const struct hw_buckets *b, double q)
{
    uint64_t count = hw_buckets_count(b), below = 0;
    for (size_t i = 0; count && i < b->def->edge_count; i++) {
        below += hw_counter_load(&b->counts[i]);
        if (below > 0 && (double)below >= q * (double)count)
            return b->def->edges[i];
    }
    return -1;
}

static void print_series(FILE *out, const char *prefix, const char *name, const char *suffix,
                         const struct hw_buckets *b)
{
    fprintf(out, "%s%s%s{", prefix, name, suffix);
    hw_counters_print_label(out, "model_name", b->model);
}

static void print_one(FILE *out, const char *prefix, const char *name, const struct hw_buckets *b)
{
    uint64_t below = 0;
    for (size_t i = 0; i <= b->def->edge_count; i++) {
        below += hw_counter_load(&b->counts[i]);
        print_series(out, prefix, name, "_bucket", b);
        if (i < b->def->edge_count)
            fprintf(out, ",le=\"%.10g\"} %llu\n", b->def->edges[i], (unsigned long long)below);
        else
            fprintf(out, ",le=\"+Inf\"} %llu\n", (unsigned long long)below);
    }
    print_series(out, prefix, name, "_sum", b);
    fprintf(out, "} %.*f\n", b->def->unit < 1 ? 9 : 0,
            (double)hw_counter_load(&b->sum) * b->def->unit);
    print_series(out, prefix, name, "_count", b);
    fprintf(out, "} %llu\n", (unsigned long long)below);
}

/* The first of the list with the same def, and of the same model unless any will do. */
static const struct hw_buckets *first_like(const struct hw_buckets *b, bool any_model)
{
    const struct hw_buckets *first = all;
    while (first->def != b->def || (!any_model && strcmp(first->model, b->model) != 0))
        first = first->next;
    return first;
}

/* All of one def, the first of which is given; those of equal models as one, summed. */
static void print_def(FILE *out, const char *prefix, const char *name,
                      const struct hw_buckets *first)
{
    fprintf(out, "# HELP %s%s %s\n# TYPE %s%s histogram\n", prefix, name, first->def->help, prefix,
            name);
    for (const struct hw_buckets *b = first; b; b = b->next) {
        struct hw_buckets sum = {.def = b->def};
        if (b->def != first->def || first_like(b, false) != b)
            continue;
        memcpy(sum.model, b->model, sizeof sum.model);
        for (const struct hw_buckets *s = b; s; s = s->next) {
            if (s->def == b->def && strcmp(s->model, b->model) == 0)
                hw_buckets_add(&sum, s);
        }
        print_one(out, prefix, name, &sum);
    }
}

void hw_buckets_print(FILE *out)
{
    pthread_mutex_lock(&lock);
    for (const struct hw_buckets *b = all; b; b = b->next) {
        if (first_like(b, true) != b)
            continue;
        print_def(out, "hawser_", b->def->name, b);
        if (b->def->alias)
            print_def(out, "", b->def->alias, b);
    }
    pthread_mutex_unlock(&lock);
}
