/* Executing decoded commands; see exec.h. */
#include "venus/common/exec.h"

#include <errno.h>

int vn_exec_ready(struct vn_exec *x, const struct vn_decoder *d)
{
    int rc = vn_decoder_end(d);
    if (rc == 0 && x->ops->decoded)
        x->ops->decoded(x->objects);
    return rc;
}

void vn_exec_check(struct vn_exec *x, struct vn_decoder *d, uint64_t count, const uint64_t *ids)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!x->ops->id_is_fresh(x->objects, ids[i])) {
            if (!d->bad_id)
                d->bad_id = ids[i];
            vn_decoder_fail(d, -EEXIST);
            return;
        }
    }
}

int vn_exec_created(struct vn_exec *x, uint32_t type, uint64_t count, const uint64_t *ids,
                    const void *handles)
{
    void *const *created = handles;
    int rc = 0;
    for (uint64_t i = 0; i < count; i++) {
        int one = x->ops->created(x->objects, type, ids[i], created[i]);
        rc = rc ? rc : one;
    }
    return rc;
}

void vn_exec_destroyed(struct vn_exec *x, uint32_t type, uint64_t count, const uint64_t *ids)
{
    for (uint64_t i = 0; ids && i < count; i++) {
        if (ids[i])
            x->ops->destroyed(x->objects, type, ids[i]);
    }
}

void vn_exec_result(struct vn_exec *x, uint32_t command, VkResult result)
{
    if (result < 0)
        x->ops->failed(x->objects, command, result);
}
