/* Files that are said to be traces: what is taken for one is sound. */
#include "bench/kvsim/trace.h"
#include "fuzz.h"

static void check(const struct kv_trace *t)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < t->request_count; i++) {
        require(t->ends[i] >= end);
        end = t->ends[i];
    }
    require(end == t->id_count && end > 0);
    for (uint32_t i = 0; i < t->id_count; i++)
        require(t->ids[i] < KV_TRACE_IDS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_trace_file trace;
    size_t line = 0;
    FILE *file = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
    if (!file)
        return 0;
    if (kv_trace_read(file, &trace, &line) == 0) {
        check(&trace.trace);
        kv_trace_free(&trace);
    }
    require(line <= size);
    fclose(file);
    return 0;
}
