/* venus/common/shader.h - what a SPIR-V module can reach, and whether it is one.
 *
 * Read from the code's declarations: a storage buffer or image that is not declared NonWritable
 * counts as written, a declared type of image as used.  Device addresses count as used where the
 * code has one of its own: made of an integer, or found in memory.  It has none where all of them
 * are parameters that the device passes to a function that decodes a tensor (cooperative matrices):
 * they lead into a buffer that is bound.
 *
 * Trust: the code is the program's and may be anything; every word is checked.
 * Threads: any; no state.  Lifetime: create/destroy. */
#ifndef HAWSER_VENUS_COMMON_SHADER_H
#define HAWSER_VENUS_COMMON_SHADER_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vn_shader_binding {
    uint32_t set, binding;
};

struct vn_shader {
    bool uses_addresses;   /* may read through device addresses of its own, or write through any */
    bool writes_addresses; /* the latter */
    bool uses_images;
    bool writes_images;
    uint32_t write_count; /* storage buffers that may be written; may repeat */
    struct vn_shader_binding *writes;
    uint32_t entry_count;
    struct vn_shader_entry {
        uint32_t model; /* SPIR-V's execution model */
        char *name;
    } * entries;
};

/* 0, -EINVAL for what is not well-formed or uses what is not followed here, -ENOMEM.  *out is set
 * only on 0. */
int vn_shader_create(const uint32_t *code, size_t bytes, struct vn_shader **out) MUST_CHECK;
void vn_shader_destroy(struct vn_shader *shader);

bool vn_shader_has_entry(const struct vn_shader *shader, uint32_t model, const char *name);

#endif
