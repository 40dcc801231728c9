#include "venus/memory/track/track.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/text/ascii.h"

/* In the order in which they are tried. */
static const struct vn_track_ops *const methods[] = {
    [VN_TRACK_USERFAULTFD] = &vn_track_userfaultfd,
    [VN_TRACK_MPROTECT] = &vn_track_mprotect,
    [VN_TRACK_COMPARE] = &vn_track_compare,
    [VN_TRACK_BORROWED] = &vn_track_borrowed,
};

/* The environment is the same for every region; one line says it. */
static void warn_once(const char *value, const char *what)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        hw_warn(HW_CAT_MEMORY, "VENUS_TRACK=%s %s: not set", value, what);
}

enum vn_track_method vn_track_wanted(void)
{
    const char *value = getenv("VENUS_TRACK");
    if (!value || !*value)
        return VN_TRACK_AUTO;
    for (size_t i = VN_TRACK_USERFAULTFD; i <= VN_TRACK_COMPARE; i++) {
        if (hw_ascii_same(value, methods[i]->name))
            return (enum vn_track_method)i;
    }
    warn_once(value, "is none of userfaultfd, mprotect, compare");
    return VN_TRACK_AUTO;
}

const char *vn_track_name(enum vn_track_method method)
{
    return method == VN_TRACK_AUTO ? "auto" : methods[method]->name;
}

bool vn_track_works(const struct vn_kernel *kernel, enum vn_track_method method)
{
    return method == VN_TRACK_AUTO || !methods[method]->works || methods[method]->works(kernel);
}

static const struct vn_track_ops *choose(const struct vn_kernel *kernel,
                                         enum vn_track_method method)
{
    if (method != VN_TRACK_AUTO)
        return vn_track_works(kernel, method) ? methods[method] : NULL;
    method = vn_track_wanted();
    if (method != VN_TRACK_AUTO && vn_track_works(kernel, method))
        return methods[method];
    if (method != VN_TRACK_AUTO)
        warn_once(methods[method]->name, "does not work here (Linux 6.7, or a sandbox forbids it)");
    size_t i = VN_TRACK_USERFAULTFD;
    while (!vn_track_works(kernel, (enum vn_track_method)i))
        i++;
    return methods[i];
}

int vn_track_init(struct vn_track *track, struct vn_kernel *kernel, enum vn_track_method method,
                  void *base, size_t size, vn_differs_fn *differs, void *user)
{
    assert(size && size % kernel->page == 0 && (uintptr_t)base % kernel->page == 0);
    const struct vn_track_ops *ops = choose(kernel, method);
    if (!ops)
        return -ENOTSUP;
    struct vn_track made = {
        .ops = ops, .kernel = kernel, .base = base, .size = size, .differs = differs, .user = user};
    *track = made;
    int err = ops->init ? ops->init(track) : 0;
    if (err)
        *track = (struct vn_track){0};
    return err;
}

void vn_track_fini(struct vn_track *track)
{
    if (track->ops && track->ops->fini)
        track->ops->fini(track);
    *track = (struct vn_track){0};
}

static void check_range(const struct vn_track *track, size_t off, size_t len)
{
    assert(off % track->kernel->page == 0 && len % track->kernel->page == 0);
    assert(off <= track->size && len <= track->size - off);
    (void)track, (void)off, (void)len;
}

int vn_track_take(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    check_range(track, off, len);
    return len ? track->ops->take(track, off, len, written) : 0;
}

int vn_track_begin_write(struct vn_track *track, size_t off, size_t len)
{
    check_range(track, off, len);
    return track->ops->begin_write && len ? track->ops->begin_write(track, off, len) : 0;
}
