/* Objects of generated entrypoints; see client_iface.h. */
#include "venus/common/client_iface.h"

#include <errno.h>

void vn_client_undo(struct vn_client *client, uint64_t count, void *handles)
{
    vn_client_free(client, count, handles);
    memset(handles, 0, (size_t)count * sizeof(void *));
}

void vn_client_free(struct vn_client *client, uint64_t count, const void *handles)
{
    struct vn_object *const *objects = handles;
    for (uint64_t i = 0; objects && i < count; i++) {
        if (objects[i])
            client->ops->object_free(client, objects[i]);
    }
}

bool vn_client_new(const void *parent, uint32_t type, uint64_t count, void *handles)
{
    struct vn_client *client = vn_client_of(parent);
    struct vn_object **objects = handles;
    memset(objects, 0, (size_t)count * sizeof(*objects));
    for (uint64_t i = 0; i < count; i++) {
        objects[i] = client->ops->object_new(client, type, (struct vn_object *)parent);
        if (!objects[i]) {
            vn_client_undo(client, i, handles);
            return false;
        }
    }
    return true;
}

void *vn_dec_created(struct vn_decoder *d, void *handle, bool needed)
{
    if (vn_dec_present(d, needed))
        return handle;
    if (handle && d->ops->dropped)
        d->ops->dropped(d->objects, handle);
    return NULL;
}

uint32_t vn_dec_room(struct vn_decoder *d, uint64_t count, uint64_t room)
{
    if (count > room || count > UINT32_MAX) {
        vn_decoder_fail(d, -EPROTO);
        return 0;
    }
    return (uint32_t)count;
}
