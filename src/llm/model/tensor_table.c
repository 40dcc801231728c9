#include "llm/model/tensor_table.h"

#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int llm_tensor_table_init(struct llm_tensor_table *table, uint32_t count)
{
    assert(count <= LLM_TENSORS_MAX);
    size_t room = count ? count : 1; /* so that NULL always means out of memory */
    struct llm_tensor *items = calloc(room, sizeof(*items));
    const struct llm_tensor **by_name = calloc(room, sizeof(*by_name));
    if (!items || !by_name) {
        free(items);
        free(by_name);
        return -ENOMEM;
    }
    *table = (struct llm_tensor_table){.items = items, .by_name = by_name, .count = count};
    return 0;
}

void llm_tensor_table_fini(struct llm_tensor_table *table)
{
    free(table->items);
    free(table->by_name);
    *table = (struct llm_tensor_table){0};
}

static int compare_names(const void *a, const void *b)
{
    const struct llm_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int compare_data(const void *a, const void *b)
{
    const struct llm_tensor *const *x = a, *const *y = b;
    uintptr_t left = (uintptr_t)(*x)->data, right = (uintptr_t)(*y)->data;
    return (left > right) - (left < right);
}

static int refuse_overlap(const struct llm_tensor_table *table, char *why)
{
    for (uint32_t i = 1; i < table->count; i++) {
        const struct llm_tensor *low = table->by_name[i - 1], *high = table->by_name[i];
        if ((uintptr_t)high->data - (uintptr_t)low->data < low->bytes)
            return llm_why(why, -EPROTO, "tensors %s and %s share bytes", low->name, high->name);
    }
    return 0;
}

static int refuse_equal_names(const struct llm_tensor_table *table, char *why)
{
    for (uint32_t i = 1; i < table->count; i++) {
        if (strcmp(table->by_name[i - 1]->name, table->by_name[i]->name) == 0)
            return llm_why(why, -EPROTO, "tensor %s is there twice", table->by_name[i]->name);
    }
    return 0;
}

int llm_tensor_table_seal(struct llm_tensor_table *table, char *why)
{
    for (uint32_t i = 0; i < table->count; i++)
        table->by_name[i] = &table->items[i];
    qsort(table->by_name, table->count, sizeof(*table->by_name), compare_data);
    int err = refuse_overlap(table, why);
    return err ? err : llm_tensor_table_seal_names(table, why);
}

int llm_tensor_table_seal_names(struct llm_tensor_table *table, char *why)
{
    for (uint32_t i = 0; i < table->count; i++)
        table->by_name[i] = &table->items[i];
    qsort(table->by_name, table->count, sizeof(*table->by_name), compare_names);
    return refuse_equal_names(table, why);
}

static int compare_key(const void *key, const void *entry)
{
    const struct llm_tensor *const *tensor = entry;
    return strcmp(key, (*tensor)->name);
}

const struct llm_tensor *llm_tensor_table_find(const struct llm_tensor_table *table,
                                               const char *name)
{
    const struct llm_tensor **found =
        bsearch(name, table->by_name, table->count, sizeof(*table->by_name), compare_key);
    return found ? *found : NULL;
}
