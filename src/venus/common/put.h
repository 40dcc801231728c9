/* venus/common/put.h - encoding that generated code shares: optional pointers and arrays.
 *
 * An array is a presence byte, then its elements; its count travels elsewhere, before it.  No
 * elements and no pointer are the same on the wire.
 *
 * Trust: the program's own memory.  Threads: one at a time per encoder. */
#ifndef HAWSER_VENUS_COMMON_PUT_H
#define HAWSER_VENUS_COMMON_PUT_H

#include <stdbool.h>

#include "venus/common/object.h"
#include "wire/enc.h"

static inline void vn_store_f32(uint8_t *p, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    wire_store32(p, bits);
}

static inline void vn_store_f64(uint8_t *p, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    wire_store64(p, bits);
}

/* Says whether something follows; true when it does. */
static inline bool vn_put_present(struct wire_enc *e, const void *ptr)
{
    wire_put_u8(e, ptr != NULL);
    return ptr != NULL;
}

/* Element i of an array that the program keeps with a stride. */
#define VN_STRIDED(array, i, stride)                                                               \
    ((const __typeof__(*(array)) *)(const void *)((const char *)(array) + (i) * (stride)))

/* Presence, and room for count elements of size bytes; NULL when there is nothing to fill. */
uint8_t *vn_put_room(struct wire_enc *e, const void *ptr, uint64_t count, size_t size);

/* Presence, then count elements of size bytes: 1, 2, 4 or 8. */
void vn_put_words(struct wire_enc *e, const void *ptr, uint64_t count, size_t size);
/* The same for an array of handles: their ids. */
void vn_put_handles(struct wire_enc *e, const void *ptr, uint64_t count);

/* Presence and a string of any length: Vulkan has no limit for names and labels. */
void vn_put_cstr(struct wire_enc *e, const char *text);
void vn_put_cstrs(struct wire_enc *e, const char *const *texts, uint64_t count);
/* The text in a char array of cap bytes; one without an end is cut. */
void vn_put_chars(struct wire_enc *e, const char *text, size_t cap);

/* A command: its id and the length of what follows. */
static inline size_t vn_put_command(struct wire_enc *e, uint32_t id)
{
    wire_put_u32(e, id);
    return wire_put_hole_u32(e);
}

#endif
