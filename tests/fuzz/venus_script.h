/* fuzz/venus_script.h - the ids that fuzzed streams use, and requests that no filler gets right.
 *
 * An id is its object's type and a small number.  When a session begins numbers 1 to SCRIPT_LIVE
 * of each type are live, SCRIPT_POISONED is void and the rest are free, so that a command filled by
 * unit/venus/support/filler.h names live objects only.
 *
 * Input: a byte of session options, then messages {u8 how, u16 bytes, stream}, the stream being
 * exactly what a client sends.
 *
 * Trust: none needed.  Threads: any.  Lifetime: nothing is kept. */
#ifndef HAWSER_FUZZ_VENUS_SCRIPT_H
#define HAWSER_FUZZ_VENUS_SCRIPT_H

#include "vn_commands.gen.h"

enum {
    SCRIPT_LIVE = 3, /* what fill_handle chooses from */
    SCRIPT_POISONED = 4,
    SCRIPT_IDS = 9, /* numbers in use are below */

    /* Session options. */
    SCRIPT_BARE = 1 << 0,  /* nothing but the instance and its devices is live */
    SCRIPT_TIGHT = 1 << 1, /* limits that a few commands reach */

    /* How a message is executed. */
    SCRIPT_CALL = 1 << 0,    /* answered */
    SCRIPT_RESULT_SHIFT = 1, /* two bits: what the driver answers */
    SCRIPT_DELAY_SHIFT = 3,  /* two bits: waits before submissions are done */
    SCRIPT_LOST = 7 << 5,    /* all three bits: the device is lost with its next submission */
    SCRIPT_MESSAGE_HEAD = 1 + 2,
    SCRIPT_MESSAGE_MAX = 0xffff,
    SCRIPT_COMMAND_HEAD = 8,

    SCRIPT_MEMORY_BYTES = 20000, /* of each live memory: some pages and a part */
    SCRIPT_QUEUES = 2,           /* of each family that a device is created with */
};

/* Object types that commands name, but for instances, devices, queues and memory. */
extern const uint32_t script_types[];
extern const size_t script_type_count;

static inline uint64_t script_id(uint32_t type, uint32_t number)
{
    return ((uint64_t)type << 8) + number;
}

/* Each appends one command; objects are given by number. */
void script_create_device(struct wire_enc *e, uint32_t physical, uint32_t device);
void script_get_queue(struct wire_enc *e, uint32_t device, uint32_t index, uint32_t queue);
void script_get_queue2(struct wire_enc *e, uint32_t device, uint32_t index, uint32_t queue);
void script_allocate(struct wire_enc *e, uint32_t device, uint32_t memory, uint64_t bytes,
                     uint32_t memory_type);
/* Recorded: binds a descriptor set. */
void script_bind_set(struct wire_enc *e, uint32_t commands, uint32_t layout, uint32_t set);
/* Writes a buffer to its first binding. */
void script_update_set(struct wire_enc *e, uint32_t device, uint32_t set, uint32_t buffer);

#endif
