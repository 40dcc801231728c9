/* Streams of Vulkan commands from a hostile client: refused, or executed by a driver that reads
 * everything it is given.  The first byte says whether a reply is asked for. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unit/venus/support/fake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    ARENA_MAX = 1 << 20, /* so that one input stays fast */
    OBJECTS = 1 << 10,
    UNKNOWN = 24, /* of them are ids that name nothing */
    VOID = 8,     /* of those are void */
};

static struct vn_object objects[OBJECTS];

/* Most ids name an object of whatever type is asked for, so that inputs get past the lookup. */
static void *lookup(void *unused, uint64_t id, uint32_t type)
{
    (void)unused;
    struct vn_object *object = &objects[id % OBJECTS];
    if (id % OBJECTS >= OBJECTS - UNKNOWN)
        return NULL;
    *object = (struct vn_object){.id = id, .type = type, .flags = id & VN_OBJECT_SECONDARY};
    return object;
}

static bool is_poisoned(void *unused, uint64_t id, uint32_t type)
{
    (void)unused, (void)type;
    return id % OBJECTS >= OBJECTS - VOID;
}

static bool id_is_fresh(void *unused, uint64_t id)
{
    (void)unused;
    return id != 0;
}

static int created(void *unused, uint32_t type, uint64_t id, void *handle)
{
    (void)unused, (void)type, (void)id, (void)handle;
    return 0;
}

static void destroyed(void *unused, uint32_t type, uint64_t id)
{
    (void)unused, (void)type, (void)id;
}

static void failed(void *unused, uint32_t command, VkResult result)
{
    (void)unused, (void)command, (void)result;
}

static void skipped(void *unused, uint32_t command)
{
    (void)unused, (void)command;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct vn_decoder_ops decoder_ops = {.lookup = lookup, .is_poisoned = is_poisoned};
    static const struct vn_exec_ops ops = {.id_is_fresh = id_is_fresh,
                                           .created = created,
                                           .destroyed = destroyed,
                                           .failed = failed,
                                           .skipped = skipped};
    static const struct vn_hooks hooks;
    static struct objects made;
    struct hw_arena arenas[2];
    struct wire_enc seen, reply;
    struct vn_decoder d;
    if (size == 0)
        return 0;
    memset(&made, 0, sizeof(made));
    hw_arena_init(&arenas[0], ARENA_MAX);
    hw_arena_init(&arenas[1], ARENA_MAX);
    wire_enc_init(&seen, WIRE_MESSAGE_MAX);
    wire_enc_init(&reply, WIRE_MESSAGE_MAX);
    struct fake fake = {.filler = {.arena = &arenas[1], .objects = &made, .next_id = 1},
                        .seen = &seen};
    hw_rng_seed(&fake.filler.rng, size);
    fake_now = &fake;
    vn_decoder_init(&d, &arenas[0], &decoder_ops, NULL);
    d.command_buffer = &objects[0];
    struct vn_exec x = {
        .driver = &fake_driver, .hooks = &hooks, .ops = &ops, .reply = data[0] & 1 ? &reply : NULL};
    if (fake_session(&x, &d, data + 1, size - 1) > 0)
        abort();
    hw_arena_fini(&arenas[0]);
    hw_arena_fini(&arenas[1]);
    wire_enc_fini(&seen);
    wire_enc_fini(&reply);
    return 0;
}
