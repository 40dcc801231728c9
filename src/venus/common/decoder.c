/* Handles, arrays and limits of the decoder; see decoder.h. */
#include "venus/common/decoder.h"

#include <errno.h>

void vn_decoder_init(struct vn_decoder *d, struct hw_arena *arena, const struct vn_decoder_ops *ops,
                     void *objects)
{
    *d = (struct vn_decoder){.arena = arena, .ops = ops, .objects = objects};
    wire_dec_init(&d->in, NULL, 0);
}

void vn_decoder_feed(struct vn_decoder *d, const void *data, size_t len)
{
    wire_dec_init(&d->in, data, len);
    d->depth = 0;
    d->poisoned = false;
}

int vn_decoder_end(const struct vn_decoder *d)
{
    return wire_dec_end(&d->in);
}

void vn_decoder_fail(struct vn_decoder *d, int err)
{
    wire_dec_fail(&d->in, err);
}

void *vn_dec_alloc(struct vn_decoder *d, uint64_t count, size_t size)
{
    if (wire_dec_error(&d->in))
        return NULL;
    if (count > WIRE_MESSAGE_MAX || count * size > WIRE_MESSAGE_MAX) {
        vn_decoder_fail(d, -EMSGSIZE);
        return NULL;
    }
    void *memory = hw_arena_calloc(d->arena, (size_t)count, size);
    if (!memory)
        vn_decoder_fail(d, -ENOMEM);
    return memory;
}

void *vn_dec_output(struct vn_decoder *d, uint64_t count, size_t size)
{
    bool fits = count <= VN_OUTPUT_MAX && count * size <= VN_OUTPUT_MAX - d->output;
    if (!fits) {
        d->poisoned = true;
        return NULL;
    }
    d->output += count * size;
    return vn_dec_alloc(d, count, size);
}

void *vn_dec_handle(struct vn_decoder *d, uint64_t id, uint32_t type)
{
    if (id == 0)
        return NULL;
    void *handle = d->ops->lookup(d->objects, id, type);
    if (handle)
        return handle;
    bool poisoned = d->ops->is_poisoned && d->ops->is_poisoned(d->objects, id, type);
    if (!poisoned && !d->bad_id)
        d->bad_id = id;
    if (d->ops->is_poisoned)
        d->poisoned = true;
    else
        vn_decoder_fail(d, -ENOENT);
    return NULL;
}

void *vn_dec_handle_needed(struct vn_decoder *d, uint64_t id, uint32_t type)
{
    if (id == 0)
        vn_decoder_fail(d, -EPROTO);
    return vn_dec_handle(d, id, type);
}

void *vn_dec_command_buffer(struct vn_decoder *d)
{
    if (!d->command_buffer)
        vn_decoder_fail(d, -EPROTO);
    return d->command_buffer;
}

bool vn_dec_present(struct vn_decoder *d, bool needed)
{
    uint8_t present = wire_get_u8(&d->in);
    if (present > 1 || (needed && !present))
        vn_decoder_fail(d, -EPROTO);
    return present == 1 && !wire_dec_error(&d->in);
}

void *vn_dec_array(struct vn_decoder *d, uint64_t count, size_t least, size_t size, bool needed)
{
    if (!vn_dec_present(d, needed && count > 0))
        return NULL;
    /* Nothing present is written as absent, so that equal values have equal bytes. */
    if (count == 0)
        vn_decoder_fail(d, -EPROTO);
    return vn_dec_elements(d, count, least, size);
}

void *vn_dec_elements(struct vn_decoder *d, uint64_t count, size_t least, size_t size)
{
    if (wire_dec_error(&d->in))
        return NULL;
    if (count > wire_dec_left(&d->in) / least) {
        vn_decoder_fail(d, -EPROTO);
        return NULL;
    }
    void *memory = hw_arena_calloc(d->arena, (size_t)count, size);
    if (!memory)
        vn_decoder_fail(d, -ENOMEM);
    return memory;
}

void *vn_get_words(struct vn_decoder *d, uint64_t count, size_t size, bool needed)
{
    void *memory = vn_dec_array(d, count, size, size, needed);
    if (memory)
        wire_get_copy(&d->in, memory, (size_t)count * size);
    return memory;
}

void *vn_get_u8s_in(struct vn_decoder *d, uint64_t count, uint64_t room)
{
    bool present = vn_dec_present(d, false);
    if (present && (count == 0 || count > wire_dec_left(&d->in)))
        vn_decoder_fail(d, -EPROTO);
    const uint8_t *bytes = present ? wire_get_bytes(&d->in, (size_t)count) : NULL;
    void *memory = vn_dec_output(d, vn_larger(count, room), 1);
    if (memory && bytes)
        memcpy(memory, bytes, (size_t)count);
    return memory;
}

void *vn_get_handles(struct vn_decoder *d, uint64_t count, uint32_t type, bool needed)
{
    void **handles = vn_dec_array(d, count, 8, sizeof(void *), needed);
    for (uint64_t i = 0; handles && i < count; i++)
        handles[i] = vn_dec_handle(d, wire_get_u64(&d->in), type);
    return handles;
}

char *vn_get_cstr(struct vn_decoder *d, bool needed)
{
    size_t len;
    if (!vn_dec_present(d, needed))
        return NULL;
    const uint8_t *text = wire_get_blob(&d->in, WIRE_MESSAGE_MAX, &len);
    char *copy = text ? vn_dec_alloc(d, len + 1, 1) : NULL;
    if (copy)
        memcpy(copy, text, len);
    return copy;
}

const char *const *vn_get_cstrs(struct vn_decoder *d, uint64_t count, bool needed)
{
    const char **texts = vn_dec_array(d, count, 2, sizeof(char *), needed);
    for (uint64_t i = 0; texts && i < count; i++)
        texts[i] = vn_get_cstr(d, true);
    return texts;
}

void vn_get_chars(struct vn_decoder *d, char *dst, size_t cap)
{
    memset(dst, 0, cap);
    wire_get_str_copy(&d->in, dst, cap);
}

void vn_read_words(struct vn_decoder *d, void *dst, uint64_t count, size_t size)
{
    if (!vn_dec_present(d, false))
        return;
    const uint8_t *src = NULL;
    if (count <= VN_OUTPUT_MAX)
        src = wire_get_bytes(&d->in, (size_t)count * size);
    else
        vn_decoder_fail(d, -EPROTO);
    if (src && dst)
        memcpy(dst, src, (size_t)count * size);
}
