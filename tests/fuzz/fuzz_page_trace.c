/* Files that are said to be page traces: what is taken for one can be replayed. */
#include "fuzz.h"
#include "page/trace/trace.h"

#include <stdlib.h>

static void check(const struct page_trace_file *f)
{
    uint32_t at = 0, mapped = 0, most = 0;
    uint8_t *is_mapped = calloc(f->id_limit, 1);
    require(is_mapped && f->id_limit > 0 && f->id_limit <= PAGE_COUNT_MAX && f->id_bytes > 0);
    require(f->batch_count > 0 && f->batch_count <= PAGE_TRACE_BATCHES_MAX);
    for (uint32_t i = 0; i < f->batch_count; i++) {
        const struct page_trace_batch *b = &f->batches[i];
        require(b->first == at && b->count > 0 && b->count <= PAGE_BATCH_MAX);
        require(i == 0 || b->at_us >= f->batches[i - 1].at_us);
        for (uint32_t k = 0; k < b->count; k++) {
            uint32_t id = f->ids[at++];
            require(id < f->id_limit && is_mapped[id] != b->is_map);
            is_mapped[id] = b->is_map;
            mapped = b->is_map ? mapped + 1 : mapped - 1;
            most = mapped > most ? mapped : most;
        }
    }
    require(at == f->id_count && most == f->most);
    free(is_mapped);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct page_trace_file trace;
    size_t line = 0;
    FILE *file = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
    if (!file)
        return 0;
    if (page_trace_read(file, &trace, &line) == 0) {
        check(&trace);
        page_trace_free(&trace);
    }
    require(line <= size);
    fclose(file);
    return 0;
}
