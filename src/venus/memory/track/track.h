/* venus/memory/track/track.h - finds the pages of a mapping that the program wrote.
 *
 *   userfaultfd  the kernel marks written pages (Linux 6.7); no signal, and system calls that
 *                write into the mapping are seen like any other write
 *   mprotect     compares pages in use with the shadow copy, and protects those that have not
 *                changed for a while: a SIGSEGV opens them
 *   compare      compares every page that was ever touched
 *
 * Pages never touched are found by none of them and cost no memory.
 *
 * VENUS_TRACK=userfaultfd|mprotect|compare chooses; otherwise the first that works here.  A value
 * that cannot be read or does not work here costs one warning and counts as not set.
 *
 * Trust: none needed.
 * Threads: the caller serialises calls on one tracker; the program writes whenever it likes.
 * Lifetime: init/fini; the mapping outlives the tracker. */
#ifndef HAWSER_VENUS_MEMORY_TRACK_TRACK_H
#define HAWSER_VENUS_MEMORY_TRACK_TRACK_H

#include "venus/memory/pageset.h"
#include "venus/memory/track/kernel.h"

enum vn_track_method {
    VN_TRACK_AUTO,
    VN_TRACK_USERFAULTFD,
    VN_TRACK_MPROTECT,
    VN_TRACK_COMPARE,
    VN_TRACK_BORROWED, /* compares every page: of the program's own memory; not to be asked for */
};

struct vn_track;

/* Whether a page (of VN_PAGE_BYTES) differs from its shadow copy. */
typedef bool vn_differs_fn(void *user, size_t page);

/* One method.  Offsets and lengths are whole host pages.  Only `take` is required; a method without
 * `works` always works. */
struct vn_track_ops {
    const char *name;
    bool (*works)(const struct vn_kernel *kernel);
    int (*init)(struct vn_track *track);
    void (*fini)(struct vn_track *track);
    int (*take)(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written);
    int (*begin_write)(struct vn_track *track, size_t off, size_t len);
};

struct vn_track {
    const struct vn_track_ops *ops;
    struct vn_kernel *kernel;
    uint8_t *base;
    size_t size;
    vn_differs_fn *differs;
    void *user;
    void *state; /* the method's own */
};

/* The method that VENUS_TRACK asks for; VN_TRACK_AUTO where it is not set or cannot be read.  The
 * environment is read at each call. */
enum vn_track_method vn_track_wanted(void);

const char *vn_track_name(enum vn_track_method method);

/* Whether the method can work in this process. */
bool vn_track_works(const struct vn_kernel *kernel, enum vn_track_method method);

/* Watches [base, base + size), fresh private memory in whole host pages.  A method asked for that
 * does not work here is -ENOTSUP; VN_TRACK_AUTO heeds VENUS_TRACK and always finds one.
 * 0, -ENOTSUP, -ENOMEM, or the kernel's errno.  The kernel is referenced, not taken. */
int vn_track_init(struct vn_track *track, struct vn_kernel *kernel, enum vn_track_method method,
                  void *base, size_t size, vn_differs_fn *differs, void *user) MUST_CHECK;
void vn_track_fini(struct vn_track *track);

/* Adds to `written` the pages of the range written since the last take.  Each write that happened
 * before the call is in; one that races with it is in this one or in the next.  Pages may be added
 * that were not changed.  0 or a negative errno. */
int vn_track_take(struct vn_track *track, size_t off, size_t len,
                  struct vn_pageset *written) MUST_CHECK;

/* Before the owner's own writes to the range, which may then cost fewer faults.  A take may report
 * the pages.  0 or a negative errno. */
int vn_track_begin_write(struct vn_track *track, size_t off, size_t len) MUST_CHECK;

extern const struct vn_track_ops vn_track_userfaultfd, vn_track_mprotect, vn_track_compare,
    vn_track_borrowed;

#endif
