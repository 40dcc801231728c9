#include "venus/memory/diff.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "venus/memory/diff_impl.h"

VN_RACY static uint64_t ref_page(const uint8_t *now, const uint8_t *shadow,
                                 uint64_t mask[VN_PAGE_BLOCKS])
{
    uint64_t blocks = 0;
    for (size_t b = 0; b < VN_PAGE_BLOCKS; b++) {
        uint64_t bits = 0;
        for (size_t i = 0; i < VN_BLOCK_BYTES; i++) {
            size_t at = b * VN_BLOCK_BYTES + i;
            bits |= (uint64_t)(now[at] != shadow[at]) << i;
        }
        if (bits) {
            mask[b] = bits;
            blocks |= UINT64_C(1) << b;
        }
    }
    return blocks;
}

VN_RACY static bool ref_differs(const uint8_t *now, const uint8_t *shadow)
{
    for (size_t i = 0; i < VN_PAGE_BYTES; i++) {
        if (now[i] != shadow[i])
            return true;
    }
    return false;
}

const struct vn_diff vn_diff_ref = {.name = "c", .page = ref_page, .differs = ref_differs};

/* Relaxed throughout: it points to constants only, and any of them is a right answer. */
static _Atomic(const struct vn_diff *) in_use;

const struct vn_diff *vn_diff_get(size_t i)
{
#if defined(__aarch64__)
    if (i-- == 0)
        return &vn_diff_neon;
#elif defined(__x86_64__)
    if (vn_diff_avx2_runs() && i-- == 0)
        return &vn_diff_avx2;
#endif
    return i == 0 ? &vn_diff_ref : NULL;
}

static const struct vn_diff *chosen(void)
{
    const struct vn_diff *diff = atomic_load_explicit(&in_use, memory_order_relaxed);
    if (UNLIKELY(!diff)) {
        diff = vn_diff_get(0);
        atomic_store_explicit(&in_use, diff, memory_order_relaxed);
    }
    return diff;
}

int vn_diff_use(const char *name)
{
    const struct vn_diff *diff;
    for (size_t i = 0; (diff = vn_diff_get(i)); i++) {
        if (strcmp(diff->name, name) == 0) {
            atomic_store_explicit(&in_use, diff, memory_order_relaxed);
            return 0;
        }
    }
    return -ENOENT;
}

uint64_t vn_diff_page(const uint8_t *now, const uint8_t *shadow, uint64_t mask[VN_PAGE_BLOCKS])
{
    return chosen()->page(now, shadow, mask);
}

bool vn_diff_differs(const uint8_t *now, const uint8_t *shadow)
{
    return chosen()->differs(now, shadow);
}
