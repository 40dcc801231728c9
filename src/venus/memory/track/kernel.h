/* venus/memory/track/kernel.h - what the kernel offers for finding written pages, opened once a
 * process.
 *
 * Two descriptors serve all regions of a process: /proc/self/pagemap, and a userfaultfd with
 * asynchronous write-protection (Linux 6.7).  They belong to the process that opened them, so a
 * child after fork opens its own: see vn_kernel_forks.
 *
 * Trust: none needed.  Threads: any.
 * Lifetime: the first ref opens, the last unref closes. */
#ifndef HAWSER_VENUS_MEMORY_TRACK_KERNEL_H
#define HAWSER_VENUS_MEMORY_TRACK_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct vn_kernel {
    int pagemap;        /* -1 where there is no /proc: every page must then be taken for touched */
    bool scans;         /* the pagemap answers PAGEMAP_SCAN (Linux 6.7) */
    int uffd;           /* -1 where the kernel lacks it or forbids it */
    bool serves_kernel; /* faults of system calls are delivered too, so pages may be missing */
    size_t page;        /* of the host, a multiple of VN_PAGE_BYTES */
    unsigned refs;
    unsigned forks;
};

/* 0 or -ENOMEM.  The fields say what the kernel lacks. */
int vn_kernel_ref(struct vn_kernel **out) MUST_CHECK;
void vn_kernel_unref(struct vn_kernel *kernel);

/* Forks between the first process that used this and the current one.  What was made under
 * another count belongs to the parent. */
unsigned vn_kernel_forks(void);

/* Called for [addr, addr + len). */
typedef void vn_span_fn(void *user, uintptr_t addr, size_t len);

/* Calls fn for the spans that hold memory, swapped out or not; pages never touched do not.
 * 0 or a negative errno, then after some of the calls. */
int vn_kernel_populated(const struct vn_kernel *kernel, uintptr_t addr, size_t len, vn_span_fn *fn,
                        void *user) MUST_CHECK;

/* The rest needs uffd >= 0.  Each: 0 or a negative errno. */

/* Watches writes; with `missing` the pager is told of accesses to missing pages, too. */
int vn_kernel_watch(const struct vn_kernel *kernel, uintptr_t addr, size_t len,
                    bool missing) MUST_CHECK;

/* Calls fn for the spans written since they were last protected, and protects them again, each
 * page in one step: a write is either in this scan or in the next.  Pages never touched, or only
 * read, are not written. */
int vn_kernel_take_written(const struct vn_kernel *kernel, uintptr_t addr, size_t len,
                           vn_span_fn *fn, void *user) MUST_CHECK;

int vn_kernel_protect(const struct vn_kernel *kernel, uintptr_t addr, size_t len,
                      bool on) MUST_CHECK;

/* Installs missing pages and wakes the threads that wait for them.  They are not written yet. */
int vn_kernel_install(const struct vn_kernel *kernel, uintptr_t addr, const void *from,
                      size_t len) MUST_CHECK;

/* Lets the threads that wait for these pages try again. */
void vn_kernel_wake(const struct vn_kernel *kernel, uintptr_t addr, size_t len);

#endif
