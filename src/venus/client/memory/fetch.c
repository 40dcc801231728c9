/* See fetch.h. */
#include "venus/client/memory/fetch.h"

#include "base/log.h"
#include "base/text/ascii.h"
#include "venus/client/submit/invalidate.h"
#include "venus/common/protocol.h"
#include "venus/common/put.h"

#include <pthread.h>
#include <stdlib.h>

/* Bytes that the server compares in about a millisecond, which a few fetches take too. */
enum { ADDRESSED_LEAST = 8 << 20 };

/* Comparing pays while it takes less than some fetches, at so many bytes a nanosecond: a program
 * that does not read what changed needs no more of them.  It is taken to be one if of so many
 * comparisons only a small part came. */
enum { COMPARED_NS = 6, FETCHES = 8, COMPARISONS = 4, CHANGED_PART = 64 };
/* What takes 1 and 10 ms: fetches cost more than their round trip, and few programs need many. */
static const uint64_t compared_least = 8 << 20, compared_most = 64 << 20;

enum mode { FETCH_AUTO, FETCH_ALL, FETCH_NONE };

static const char *const modes[] = {
    [FETCH_AUTO] = "auto", [FETCH_ALL] = "all", [FETCH_NONE] = "none"};

static size_t mode = FETCH_AUTO;

static void read_knob(void)
{
    const char *value = getenv("VENUS_FETCH");
    if (!value || !*value)
        return;
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        if (hw_ascii_same(value, modes[i])) {
            mode = i;
            return;
        }
    }
    hw_warn(HW_CAT_MEMORY, "VENUS_FETCH=%s is none of auto, all, none: not set", value);
}

static size_t knob(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_knob);
    return mode;
}

bool vnc_fetch_wanted(const struct vnc_memory *memory)
{
    return knob() == FETCH_ALL ||
           (knob() == FETCH_AUTO && (!memory->cached || !vnc_invalidate_includes(memory)));
}

bool vnc_fetch_pays(const struct vnc_memory *memory)
{
    return knob() != FETCH_NONE && memory->size >= ADDRESSED_LEAST;
}

static uint64_t compared_bytes(const struct vnc_memory *memory)
{
    uint64_t bytes = vnc_link_quickest_ns(vnc_device_link(memory->device)) * FETCHES * COMPARED_NS;
    bytes = bytes < compared_least ? compared_least : bytes;
    return bytes > compared_most ? compared_most : bytes;
}

bool vnc_fetch_pays_now(const struct vnc_memory *memory, uint64_t bytes)
{
    uint64_t changed = atomic_load_explicit(&memory->changed, memory_order_relaxed);
    return knob() != FETCH_NONE && bytes >= compared_bytes(memory) &&
           memory->compared / COMPARISONS >= bytes && changed < memory->compared / CHANGED_PART;
}

void vnc_fetch_put_demand_paged(const struct vnc_memory *memory, struct wire_enc *e)
{
    size_t hole = vn_put_command(e, VN_OP_DEMAND_PAGED);
    wire_put_u64(e, memory->object.id);
    wire_fill_len(e, hole);
}

struct wanted {
    const struct vnc_memory *memory;
    size_t off;
};

/* A handler of a signal may have taken the program away from its access, and it frees the memory:
 * then the answer finds no region. */
static bool is_settled(void *user)
{
    const struct wanted *wanted = user;
    return atomic_load_explicit(&wanted->memory->leaving, memory_order_relaxed) ||
           !vn_region_is_requested(wanted->memory->region, wanted->off);
}

int vnc_fetch_pages(void *user, size_t off, size_t len)
{
    const struct vnc_memory *memory = user;
    struct wanted wanted = {memory, off};
    uint8_t message[64];
    struct wire_enc e;
    wire_enc_init_fixed(&e, message, sizeof(message));
    size_t hole = vn_put_command(&e, VN_OP_FETCH);
    wire_put_u64(&e, memory->object.id);
    wire_put_u64(&e, off);
    wire_put_u32(&e, (uint32_t)len);
    wire_fill_len(&e, hole);
    return vnc_link_ask_aside(vnc_device_link(memory->device), &e, is_settled, &wanted);
}
