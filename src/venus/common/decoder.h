/* venus/common/decoder.h - decoding that generated code shares: handles, arrays, limits.
 *
 * Trust: the input is a peer's and may hold anything.  Errors are sticky in the wire decoder;
 * after one, gets yield zeros and NULL.  Nothing may be executed before vn_decoder_end said 0.
 * Threads: one at a time per decoder.
 * Lifetime: what is decoded lives in the arena, until the caller resets it.  Strings and blobs
 * are copied, so that the input may go away.
 *
 * Limits: the arena bounds the memory of one command, counts are held against the bytes that
 * remain, chains and nesting are bounded below. */
#ifndef HAWSER_VENUS_COMMON_DECODER_H
#define HAWSER_VENUS_COMMON_DECODER_H

#include <stdbool.h>

#include "base/arena.h"
#include "venus/common/object.h"
#include "wire/dec.h"

enum {
    /* Structures in one pNext chain; a device with every feature of 1.3 chains about 120. */
    VN_CHAIN_MAX = 512,
    /* Chains within chains; the deepest honest command (pipelines with libraries) needs 5. */
    VN_DEPTH_MAX = 16,
    /* Memory of one decoded command: SPIR-V and pipeline caches fill one message at most, and
     * pointers take more room than presence bytes. */
    VN_ARENA_MAX = 192 << 20,
    /* Bytes that the driver fills for one command: they come back in one message, with what it
     * says around them, and a client takes 16 MiB at once. */
    VN_OUTPUT_MAX = (16 << 20) - (64 << 10),
    /* What a driver writes for one query: 8 bytes a counter, of which none offers thousands. */
    VN_QUERY_BYTES = 64 << 10,
    /* shaderGroupHandleSize, as Vulkan requires it; that of the NV extension is smaller. */
    VN_GROUP_HANDLE_BYTES = 32,
    /* The largest descriptor that a driver has takes some hundred bytes. */
    VN_DESCRIPTOR_BYTES = 4 << 10,
};

struct vn_decoder;

struct vn_decoder_ops {
    /* The handle that an id of this type stands for; NULL when there is none.  An object type of
     * VK_OBJECT_TYPE_UNKNOWN takes any. */
    void *(*lookup)(void *objects, uint64_t id, uint32_t type);
    /* Whether an id that lookup does not have is poisoned: of this type, but its creation failed.
     * NULL where no id ever is, and an unknown one is an error. */
    bool (*is_poisoned)(void *objects, uint64_t id, uint32_t type);
    /* At the client: the server did not create the object of this handle. */
    void (*dropped)(void *objects, void *handle);
};

struct vn_decoder {
    struct wire_dec in;
    struct hw_arena *arena;
    const struct vn_decoder_ops *ops;
    void *objects;           /* for ops */
    void *command_buffer;    /* that recorded commands go to; NULL outside a stream */
    uint64_t bad_id;         /* the command's first that was unknown or of the wrong type, or 0 */
    uint32_t unknown_stypes; /* structures of a type that is not known, which were skipped */
    uint32_t depth;
    uint64_t output; /* bytes of vn_dec_output for this command so far */
    bool poisoned;   /* the command names a poisoned or unknown id: it must not be executed */
};

void vn_decoder_init(struct vn_decoder *d, struct hw_arena *arena, const struct vn_decoder_ops *ops,
                     void *objects);
/* Reads from data[0..len); the rest is kept. */
void vn_decoder_feed(struct vn_decoder *d, const void *data, size_t len);
/* 0 when all was read and nothing failed, else a negative errno. */
int vn_decoder_end(const struct vn_decoder *d) MUST_CHECK;
/* Sets the sticky error unless one is set. */
void vn_decoder_fail(struct vn_decoder *d, int err);

/* Zeroed memory, or NULL with the error set. */
void *vn_dec_alloc(struct vn_decoder *d, uint64_t count, size_t size);

/* The same for what the driver fills.  NULL, and the command is poisoned, when all that it fills is
 * more than a message: a program may have such room, and loses the command, not its device. */
void *vn_dec_output(struct vn_decoder *d, uint64_t count, size_t size);

/* An id to a handle.  0 is NULL, and so is a poisoned or unknown id, which sets poisoned; where no
 * id is ever poisoned an unknown one fails. */
void *vn_dec_handle(struct vn_decoder *d, uint64_t id, uint32_t type);
/* As above, and NULL fails too. */
void *vn_dec_handle_needed(struct vn_decoder *d, uint64_t id, uint32_t type);
/* The handle that recorded commands go to, or the error. */
void *vn_dec_command_buffer(struct vn_decoder *d);

/* Presence, then memory for count elements of size bytes that take at least least bytes each on
 * the wire.  NULL when absent (which fails when needed and count is not 0) or after an error. */
void *vn_dec_array(struct vn_decoder *d, uint64_t count, size_t least, size_t size, bool needed);
/* The same without presence. */
void *vn_dec_elements(struct vn_decoder *d, uint64_t count, size_t least, size_t size);
/* The same without memory: true when present.  For memory that is already there. */
bool vn_dec_present(struct vn_decoder *d, bool needed);

/* Presence and elements of size bytes, in arena memory. */
void *vn_get_words(struct vn_decoder *d, uint64_t count, size_t size, bool needed);
/* Bytes in room for more: what a driver writes there besides. */
void *vn_get_u8s_in(struct vn_decoder *d, uint64_t count, uint64_t room);
void *vn_get_handles(struct vn_decoder *d, uint64_t count, uint32_t type, bool needed);
char *vn_get_cstr(struct vn_decoder *d, bool needed);
const char *const *vn_get_cstrs(struct vn_decoder *d, uint64_t count, bool needed);
/* A string into a char array of cap bytes, the rest zeroed. */
void vn_get_chars(struct vn_decoder *d, char *dst, size_t cap);

/* Presence and elements into memory of count elements: the program's, for a reply. */
void vn_read_words(struct vn_decoder *d, void *dst, uint64_t count, size_t size);

static inline uint64_t vn_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Bytes of `count` elements at a distance of `stride`, the last of `bytes`; UINT64_MAX for more
 * than anybody has. */
static inline uint64_t vn_strided(uint32_t count, uint64_t stride, uint64_t bytes)
{
    if (count > 1 && stride > VN_OUTPUT_MAX)
        return UINT64_MAX;
    return (count > 1 ? (count - 1) * stride : 0) + bytes;
}

static inline float vn_load_f32(const uint8_t *p)
{
    uint32_t bits = wire_load32(p);
    float v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

static inline double vn_load_f64(const uint8_t *p)
{
    uint64_t bits = wire_load64(p);
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

#endif
