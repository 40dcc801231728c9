/* venus/memory/diff_impl.h - private to src/venus/memory: what the implementations share. */
#ifndef HAWSER_VENUS_MEMORY_DIFF_IMPL_H
#define HAWSER_VENUS_MEMORY_DIFF_IMPL_H

#include "venus/memory/diff.h"

/* One side is memory that a program may be writing: see Threads in diff.h. */
#define VN_RACY __attribute__((no_sanitize("thread")))

extern const struct vn_diff vn_diff_ref;

#if defined(__aarch64__)
extern const struct vn_diff vn_diff_neon;
#elif defined(__x86_64__)
extern const struct vn_diff vn_diff_avx2;
bool vn_diff_avx2_runs(void);
#endif

#endif
