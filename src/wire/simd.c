#include "wire/simd.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "wire/simd_impl.h"

/* Relaxed throughout: it points to constants only, and any of them is a right answer. */
static _Atomic(const struct wire_simd *) in_use;

const struct wire_simd *wire_simd_get(size_t i)
{
#if defined(__aarch64__)
    if (i-- == 0)
        return &wire_simd_neon;
#elif defined(__x86_64__)
    if (wire_simd_avx2_runs() && i-- == 0)
        return &wire_simd_avx2;
#endif
    return i == 0 ? &wire_simd_ref : NULL;
}

const struct wire_simd *wire_simd(void)
{
    const struct wire_simd *simd = atomic_load_explicit(&in_use, memory_order_relaxed);
    if (UNLIKELY(!simd)) {
        simd = wire_simd_get(0);
        atomic_store_explicit(&in_use, simd, memory_order_relaxed);
    }
    return simd;
}

int wire_simd_use(const char *name)
{
    const struct wire_simd *simd;
    for (size_t i = 0; (simd = wire_simd_get(i)); i++) {
        if (strcmp(simd->name, name) == 0) {
            atomic_store_explicit(&in_use, simd, memory_order_relaxed);
            return 0;
        }
    }
    return -ENOENT;
}
