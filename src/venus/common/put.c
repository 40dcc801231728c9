/* Optional pointers and arrays; see put.h. */
#include "venus/common/put.h"

#include <errno.h>
#include <string.h>

uint8_t *vn_put_room(struct wire_enc *e, const void *ptr, uint64_t count, size_t size)
{
    if (!vn_put_present(e, count ? ptr : NULL))
        return NULL;
    if (count > WIRE_COUNT_MAX || size > WIRE_MESSAGE_MAX) {
        wire_enc_fail(e, -EMSGSIZE);
        return NULL;
    }
    return wire_enc_space(e, (size_t)count * size);
}

/* SPIR-V is an array of words, and may be larger than any other array: bytes are its limit. */
void vn_put_words(struct wire_enc *e, const void *ptr, uint64_t count, size_t size)
{
    if (!vn_put_present(e, count ? ptr : NULL))
        return;
    if (count > WIRE_MESSAGE_MAX / size)
        wire_enc_fail(e, -EMSGSIZE);
    else
        wire_put_bytes(e, ptr, (size_t)count * size);
}

void vn_put_handles(struct wire_enc *e, const void *ptr, uint64_t count)
{
    const void *const *handles = ptr;
    uint8_t *p = vn_put_room(e, ptr, count, 8);
    for (uint64_t i = 0; p && i < count; i++)
        wire_store64(p + 8 * i, vn_id(handles[i]));
}

void vn_put_cstr(struct wire_enc *e, const char *text)
{
    if (vn_put_present(e, text))
        wire_put_blob(e, text, strlen(text));
}

void vn_put_cstrs(struct wire_enc *e, const char *const *texts, uint64_t count)
{
    if (!vn_put_present(e, count ? texts : NULL))
        return;
    for (uint64_t i = 0; i < count; i++)
        vn_put_cstr(e, texts[i]);
}

void vn_put_chars(struct wire_enc *e, const char *text, size_t cap)
{
    wire_put_blob(e, text, strnlen(text, cap - 1));
}
