/* llm/vulkan/memory.h - private to src/llm: memory of a Vulkan device, uploads and downloads.
 *
 * A block is one buffer with its own memory.  Pieces are suballocated from blocks made on demand,
 * because drivers may allow only 4096 allocations; with 64 MiB a block that is more than any device
 * has.  Bytes are copied through one mapped block for each direction; nothing else is mapped.  The
 * device works on one half of it while the host copies from the other, or to it.  A shader gathers
 * many small pieces, or scatters them.
 *
 * Threads and lifetime: as the device's. */
#ifndef HAWSER_LLM_VULKAN_MEMORY_H
#define HAWSER_LLM_VULKAN_MEMORY_H

#include "llm/vulkan/pipelines.h"

#define LLM_VK_MOVED_BYTES (UINT64_C(8) << 20) /* at a time; LLM_WIDTH_MAX binary32 are 4 MiB */

enum llm_vk_kind {
    LLM_VK_LOCAL,    /* device-local, with an address */
    LLM_VK_STAGING,  /* mapped, for the device to copy from */
    LLM_VK_READBACK, /* mapped, for the device to copy to */
};

struct llm_vk_block {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t bytes, taken;
    VkDeviceAddress address; /* of a local one */
    void *map;               /* of the others */
};

/* A piece of a block.  Zero: none. */
struct llm_vk_piece {
    struct llm_vk_slab *slab;
    uint64_t offset, bytes;
};

/* A copy from one of the two mapped blocks or to it. */
struct llm_vk_move {
    VkBuffer buffer; /* the other one */
    uint64_t offset, bytes;
    VkDeviceAddress address; /* of the bytes, and both multiples of 16; 0: not known */
};

enum { LLM_VK_MOVES_MAX = 512 }; /* of one submission */

struct llm_vk_memory {
    struct llm_vk_device *device;
    struct llm_vk_pipelines *pipelines;
    struct llm_vk_block staging, readback;
    struct llm_vk_block packed; /* pieces one behind the other, and their list; made when needed */
    struct llm_vk_slab *slabs;  /* a list, the latest first */
    struct llm_vk_move queued[LLM_VK_MOVES_MAX]; /* from the staging block, one behind the other */
    uint32_t queued_count;
    uint64_t queued_bytes;
    uint32_t half;         /* of the staging block, for the queued ones */
    uint64_t moving_bytes; /* under way */
};

/* what: names its use in messages.  0, -ENOMEM, -EIO, and why. */
int llm_vk_block_create(struct llm_vk_device *d, uint64_t bytes, enum llm_vk_kind kind,
                        const char *what, struct llm_vk_block *out, char *why) MUST_CHECK;
void llm_vk_block_destroy(struct llm_vk_device *d, struct llm_vk_block *block); /* zero is fine */

int llm_vk_memory_init(struct llm_vk_memory *m, struct llm_vk_pipelines *p, char *why) MUST_CHECK;
void llm_vk_memory_fini(struct llm_vk_memory *m); /* zero is fine; free all pieces before */

/* Contents are undefined.  As llm_vk_block_create. */
int llm_vk_piece_take(struct llm_vk_memory *m, uint64_t bytes, const char *what,
                      struct llm_vk_piece *out, char *why) MUST_CHECK;
void llm_vk_piece_give(struct llm_vk_memory *m, struct llm_vk_piece *piece); /* zero is fine */
VkBuffer llm_vk_piece_buffer(const struct llm_vk_piece *piece);
VkDeviceAddress llm_vk_piece_address(const struct llm_vk_piece *piece);

/* Writes bytes `at` to at + bytes of what is uploaded to dst. */
typedef void llm_vk_fill(const void *user, uint64_t at, uint64_t bytes, uint8_t *dst);

/* In parts of a multiple of unit bytes, which is at most LLM_VK_MOVED_BYTES.  0, -ENOMEM, -EIO. */
int llm_vk_upload(struct llm_vk_memory *m, VkBuffer to, uint64_t offset, uint64_t bytes,
                  uint64_t unit, llm_vk_fill *fill, const void *user, char *why) MUST_CHECK;
int llm_vk_download(struct llm_vk_memory *m, VkBuffer from, uint64_t offset, uint64_t bytes,
                    void *dst, char *why) MUST_CHECK;
/* Queues a small upload, at most LLM_VK_MOVED_BYTES: the caller writes its bytes to *room before
 * the next call.  It is submitted with others, by flush at the latest; an error is told then. */
int llm_vk_queue(struct llm_vk_memory *m, const struct llm_vk_move *to, uint8_t **room,
                 char *why) MUST_CHECK;
int llm_vk_flush(struct llm_vk_memory *m, char *why) MUST_CHECK;
/* Starts downloads of at most LLM_VK_MOVED_BYTES together, into half 0 or 1 of the readback block.
 * Nothing else is submitted before gathered, which waits for them: *bytes_out has them one behind
 * the other, until the half is used again. */
int llm_vk_gather(struct llm_vk_memory *m, const struct llm_vk_move *from, uint32_t count,
                  uint32_t half, char *why) MUST_CHECK;
int llm_vk_gathered(struct llm_vk_memory *m, uint32_t half, const uint8_t **bytes_out,
                    char *why) MUST_CHECK;
int llm_vk_zero(struct llm_vk_memory *m, const struct llm_vk_block *block, char *why) MUST_CHECK;

/* For uploads of bytes without conversion: user points at them. */
void llm_vk_fill_copy(const void *user, uint64_t at, uint64_t bytes, uint8_t *dst);

#endif
