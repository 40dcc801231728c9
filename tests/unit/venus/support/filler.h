/* filler.h - deterministic pseudo-random content for Vulkan structures, and the objects they name.
 *
 * Generated fillers call these.  Content is valid where the encoder looks; what Vulkan calls
 * ignored is poisoned, so that following it crashes. */
#ifndef HAWSER_TESTS_VENUS_FILLER_H
#define HAWSER_TESTS_VENUS_FILLER_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/rng.h"
#include "venus/common/object.h"

enum {
    OBJECTS_MAX = 1 << 11,    /* a power of two, far above what one command names */
    FILL_COUNT_MAX = 3,       /* elements of an array: enough to see strides */
    FILL_CHAIN_DEPTH_MAX = 2, /* chains within chains, or content grows without end */
};

/* Client objects and driver handles at once: a handle is its object at both ends. */
struct objects {
    struct object {
        struct vn_object base;
        bool live;        /* registered by the server */
        bool is_poisoned; /* the same, but its creation failed */
    } slots[OBJECTS_MAX];
};

/* Adds the object unless it is there. */
struct vn_object *objects_add(struct objects *objects, uint64_t id, uint32_t type);
/* NULL when there is none, or not of this type. */
void *objects_lookup(void *objects, uint64_t id, uint32_t type);
/* Whether the id was registered without a handle. */
bool objects_is_poisoned(void *objects, uint64_t id, uint32_t type);
bool objects_id_is_fresh(void *objects, uint64_t id);
int objects_created(void *objects, uint32_t type, uint64_t id, void *handle);

struct filler {
    struct hw_rng rng;
    struct hw_arena *arena;
    struct objects *objects;
    struct vn_object *command_buffer;
    uint64_t next_id; /* of created objects */
    int depth;
    /* What fill_new answers; NULL: an object with the next id. */
    void *(*make)(struct filler *f, uint32_t type);
};

typedef VkBaseOutStructure *fill_node_fn(struct filler *f, uint32_t stype);

uint64_t fill_u64(struct filler *f);
uint32_t fill_below(struct filler *f, uint64_t n);
uint32_t fill_count(struct filler *f);
void fill_bytes(struct filler *f, void *dst, size_t len);
void fill_chars(struct filler *f, char *dst, size_t cap);
char *fill_string(struct filler *f);
const char *const *fill_strings(struct filler *f, uint64_t count);
/* Zeroed. */
void *fill_alloc(struct filler *f, uint64_t count, size_t size);
/* The same, but poison for none, and sometimes NULL when maybe. */
void *fill_array(struct filler *f, uint64_t count, size_t size, bool maybe);
bool fill_real(struct filler *f, const void *ptr);
void *fill_garbage(struct filler *f);
/* Entries that lie inside the data, as vn_specialization_fits wants them. */
void fill_specialization_fits(VkSpecializationInfo *s);
void *fill_handle(struct filler *f, uint32_t type);
/* Sometimes NULL. */
void *fill_maybe(struct filler *f, uint32_t type);
/* An object with the next id, or what make says. */
void *fill_new(struct filler *f, uint32_t type);
void *fill_chain(struct filler *f, const uint32_t *stypes, uint32_t count, fill_node_fn *node);

#endif
