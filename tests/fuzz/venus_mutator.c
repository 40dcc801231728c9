/* Inputs of fuzz_venus_stream that get far: libFuzzer's mutations, made of messages and commands
 * instead of bytes.  New commands come from the generated fillers, so their content is what an
 * honest client sends; damage is done to some afterwards.  See venus_script.h. */
#include <stdlib.h>
#include <string.h>

#include "unit/venus/support/trip.h"
#include "venus/common/commands.h"
#include "venus/common/protocol.h"
#include "venus/common/transfer/upload.h"
#include "venus/memory/delta.h"
#include "venus_gpu.h"
#include "venus_script.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size); /* libFuzzer's own */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *data1, size_t size1, const uint8_t *data2,
                                 size_t size2, uint8_t *out, size_t max_size, unsigned int seed);

enum {
    MESSAGES_MAX = 24,
    UNITS_MAX = 64,        /* of one message or recording; what is more stays as it is */
    ARENA_BYTES = 8 << 20, /* of one mutation */
    GROWTH = 64,           /* bytes that one mutation adds to a payload */
    CHAIN = 600,           /* past VN_CHAIN_MAX */
    ZSTD_MIN = 256,        /* so that small deltas are compressed too */
    TESTS_MAX = 2048,
};

/* A command, or bytes that are none. */
struct unit {
    bool raw;
    uint32_t id;
    size_t len;
    uint8_t *bytes; /* the arena's, may be written */
};

struct list {
    size_t count;
    struct unit units[UNITS_MAX];
};

struct message {
    uint8_t how;
    struct list list;
};

struct script {
    uint8_t options;
    size_t count;
    struct message messages[MESSAGES_MAX];
};

struct tests {
    size_t count;
    const struct trip_test *tests[TESTS_MAX];
};

static struct {
    bool ready;
    struct hw_rng rng;
    struct hw_arena arena;
    struct wire_enc made; /* what a generator makes */
    struct trip trip;
    struct vn_delta_codec *codec;
    struct tests plain, recorded, submissions, destroys;
    struct tests between; /* a recording and its repetition: resets, and ends of sets */
    const struct trip_test *begin, *end;
} m;

static uint32_t below(uint64_t n)
{
    return (uint32_t)hw_rng_below(&m.rng, n);
}

static bool one_in(uint32_t n)
{
    return below(n) == 0;
}

/* Mostly live, then void, then free. */
static uint32_t number(void)
{
    return one_in(6) ? SCRIPT_POISONED + below(SCRIPT_IDS - SCRIPT_POISONED)
                     : 1 + below(SCRIPT_LIVE);
}

static uint32_t free_number(void)
{
    return one_in(8) ? number() : SCRIPT_POISONED + 1 + below(SCRIPT_IDS - SCRIPT_POISONED - 1);
}

/* ---- reading and writing ---- */

static void append(struct list *list, bool raw, uint32_t id, const uint8_t *bytes, size_t len)
{
    uint8_t *copy = hw_arena_alloc(&m.arena, len + 1, 1);
    if (!copy || list->count == UNITS_MAX)
        return;
    if (len)
        memcpy(copy, bytes, len);
    list->units[list->count++] = (struct unit){raw, id, len, copy};
}

static void read_list(struct list *list, const uint8_t *data, size_t size)
{
    list->count = 0;
    while (size > 0 && list->count < UNITS_MAX) {
        size_t left = size < SCRIPT_COMMAND_HEAD ? 0 : size - SCRIPT_COMMAND_HEAD;
        bool whole = size >= SCRIPT_COMMAND_HEAD && wire_load32(data + 4) <= left;
        if (!whole || list->count == UNITS_MAX - 1) {
            append(list, true, 0, data, size);
            return;
        }
        size_t len = wire_load32(data + 4);
        append(list, false, wire_load32(data), data + SCRIPT_COMMAND_HEAD, len);
        data += SCRIPT_COMMAND_HEAD + len;
        size = left - len;
    }
}

static void write_list(struct wire_enc *e, const struct list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct unit *unit = &list->units[i];
        if (!unit->raw) {
            wire_put_u32(e, unit->id);
            wire_put_u32(e, (uint32_t)unit->len);
        }
        wire_put_bytes(e, unit->bytes, unit->len);
    }
}

static void read_script(struct script *script, const uint8_t *data, size_t size)
{
    script->options = size ? data[0] : 0;
    script->count = 0;
    size_t at = 1;
    while (script->count < MESSAGES_MAX && at + SCRIPT_MESSAGE_HEAD <= size) {
        struct message *message = &script->messages[script->count++];
        size_t len = wire_load16(data + at + 1), left = size - at - SCRIPT_MESSAGE_HEAD;
        message->how = data[at];
        at += SCRIPT_MESSAGE_HEAD;
        read_list(&message->list, data + at, len < left ? len : left);
        at += len < left ? len : left;
    }
}

/* The size; 0 when it does not fit. */
static size_t write_script(const struct script *script, uint8_t *out, size_t max)
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, out, max);
    wire_put_u8(&e, script->options);
    for (size_t i = 0; i < script->count; i++) {
        wire_put_u8(&e, script->messages[i].how);
        size_t hole = wire_enc_len(&e);
        wire_put_u16(&e, 0);
        write_list(&e, &script->messages[i].list);
        size_t len = wire_enc_len(&e) - hole - 2;
        if (wire_enc_error(&e) || len > SCRIPT_MESSAGE_MAX)
            return 0;
        wire_store16(out + hole, (uint16_t)len);
    }
    return wire_enc_error(&e) ? 0 : wire_enc_len(&e);
}

/* ---- commands from the fillers ---- */

/* Ids of new objects are free ones, most of the time, and neighbours when there are several. */
static void *make_fresh(struct filler *f, uint32_t type)
{
    uint32_t at = f->next_id ? (uint32_t)f->next_id : free_number();
    f->next_id = at + 1;
    return objects_add(f->objects, script_id(type, at), type);
}

static void fill(const struct trip_test *test)
{
    struct trip *t = &m.trip;
    memset(t->objects, 0, sizeof(*t->objects));
    hw_arena_reset(&t->arenas[0]);
    t->filler = (struct filler){.arena = &t->arenas[0], .objects = t->objects, .make = make_fresh};
    hw_rng_seed(&t->filler.rng, hw_rng_u64(&m.rng));
    t->filler.command_buffer = fill_handle(&t->filler, VK_OBJECT_TYPE_COMMAND_BUFFER);
    t->filler.command_buffer->flags = one_in(2) ? VN_OBJECT_SECONDARY : 0;
    wire_enc_reset(&t->request);
    t->problem = NULL;
    t->damage = TRIP_STAY;
    test->run(t);
    wire_put_bytes(&m.made, wire_enc_data(&t->request), wire_enc_len(&t->request));
}

static void fill_one_of(const struct tests *tests)
{
    fill(tests->tests[below(tests->count)]);
}

static void add_test(struct tests *tests, const struct trip_test *test)
{
    gpu_require(tests->count < TESTS_MAX);
    tests->tests[tests->count++] = test;
}

static void sort_test(const struct trip_test *test)
{
    const struct vn_command_info *info = vn_command_find(test->name);
    struct tests *tests = &m.plain;
    if (strcmp(test->name, "vkBeginCommandBuffer") == 0)
        m.begin = test;
    else if (strcmp(test->name, "vkEndCommandBuffer") == 0)
        m.end = test;
    if (info && info->class == VN_CLASS_RECORD)
        tests = &m.recorded;
    else if (strncmp(test->name, "vkQueueSubmit", 13) == 0 ||
             strcmp(test->name, "vkQueueBindSparse") == 0)
        tests = &m.submissions;
    add_test(tests, test);
    if (info && info->class == VN_CLASS_DESTROY)
        add_test(&m.destroys, test);
    if (strncmp(test->name, "vkResetCommand", 14) == 0 ||
        strcmp(test->name, "vkFreeDescriptorSets") == 0)
        add_test(&m.between, test);
}

/* ---- operations ---- */

static size_t begin_op(uint32_t op)
{
    wire_put_u32(&m.made, op);
    return wire_put_hole_u32(&m.made);
}

static void put_record(uint32_t op, uint32_t buffer, bool begins, bool ends)
{
    size_t hole = begin_op(op);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_COMMAND_BUFFER, buffer));
    if (begins)
        fill(m.begin);
    if (one_in(3))
        script_bind_set(&m.made, buffer, number(), 1 + below(2));
    for (uint32_t i = below(6); i > 0; i--)
        fill_one_of(&m.recorded);
    if (ends)
        fill(m.end);
    wire_fill_len(&m.made, hole);
}

static void make_record(void)
{
    put_record(one_in(2) ? VN_OP_RECORD : VN_OP_RECORD_KEPT, number(), !one_in(8), !one_in(8));
}

static void put_again(uint32_t buffer)
{
    size_t hole = begin_op(VN_OP_AGAIN);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_COMMAND_BUFFER, buffer));
    wire_fill_len(&m.made, hole);
}

/* A recording in a part or two, and named with something in between that may change what it needs.
 */
static void make_again(void)
{
    uint32_t buffer = number();
    bool whole = one_in(2);
    if (!one_in(4)) {
        put_record(VN_OP_RECORD_KEPT, buffer, true, whole);
        if (!whole)
            put_record(one_in(8) ? VN_OP_RECORD : VN_OP_RECORD_KEPT, buffer, false, true);
    }
    for (uint32_t i = 1 + below(3); i > 0; i--) {
        if (one_in(2))
            fill_one_of(&m.between);
        if (one_in(4))
            script_update_set(&m.made, number(), 1 + below(2), number());
        put_again(one_in(16) ? number() : buffer);
    }
}

static void put_map(uint32_t op, uint32_t memory)
{
    size_t hole = begin_op(op);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_DEVICE_MEMORY, memory));
    wire_fill_len(&m.made, hole);
}

static void make_map(void)
{
    uint32_t memory = number();
    put_map(one_in(4) ? VN_OP_MAP_NEW : VN_OP_MAP, memory);
}

/* To an id that is free, as a rule. */
static void make_renew(void)
{
    uint32_t memory = number(), taken = number();
    size_t hole = begin_op(VN_OP_RENEW);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_DEVICE_MEMORY, memory));
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_DEVICE_MEMORY, taken));
    wire_fill_len(&m.made, hole);
    if (!one_in(4))
        put_map(VN_OP_MAP, taken);
}

static void make_demand_paged(void)
{
    uint32_t memory = number();
    size_t hole = begin_op(VN_OP_DEMAND_PAGED);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_DEVICE_MEMORY, memory));
    wire_fill_len(&m.made, hole);
    if (!one_in(4))
        put_map(VN_OP_MAP, memory);
}

static void make_fetch(void)
{
    size_t hole = begin_op(VN_OP_FETCH);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_DEVICE_MEMORY, number()));
    wire_put_u64(&m.made, one_in(8) ? hw_rng_u64(&m.rng) : below(4) * (uint64_t)VN_PAGE_BYTES);
    wire_put_u32(&m.made, one_in(8) ? (uint32_t)hw_rng_u64(&m.rng) : 1 + below(3 * VN_PAGE_BYTES));
    wire_fill_len(&m.made, hole);
}

static void fill_change(struct vn_change *change)
{
    change->blocks = 0;
    for (uint32_t i = 1 + below(4); i > 0; i--) {
        uint32_t block = below(VN_PAGE_BLOCKS);
        change->blocks |= UINT64_C(1) << block;
        change->mask[block] = one_in(3) ? UINT64_MAX : hw_rng_u64(&m.rng) | 1;
    }
    memset(change->bytes, one_in(2) ? 0 : (int)below(256), sizeof(change->bytes));
}

static void make_delta(void)
{
    static struct vn_change change;
    struct vn_delta_out delta;
    uint32_t memory = number();
    if (one_in(2))
        put_map(VN_OP_MAP, memory);
    size_t hole = begin_op(VN_OP_DELTA);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_DEVICE_MEMORY, memory));
    vn_delta_begin(&delta, &m.made);
    size_t page = below(2);
    for (uint32_t i = 1 + below(3); i > 0; i--) {
        change.page = page;
        fill_change(&change);
        vn_delta_put(&delta, &change);
        page += 1 + below(2);
    }
    gpu_require(vn_delta_end(&delta, m.codec) == 0);
    wire_fill_len(&m.made, hole);
}

static void make_write(void)
{
    static const uint8_t bytes[2 * VN_PAGE_BYTES] = {1};
    uint32_t memory = number();
    if (!one_in(4))
        put_map(VN_OP_MAP, memory);
    size_t hole = begin_op(VN_OP_WRITE);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_DEVICE_MEMORY, memory));
    wire_put_u64(&m.made, one_in(8) ? hw_rng_u64(&m.rng) : below(4) * (uint64_t)VN_PAGE_BYTES);
    wire_put_bytes(&m.made, bytes, one_in(2) ? VN_PAGE_BYTES : below(sizeof(bytes)));
    wire_fill_len(&m.made, hole);
}

static void put_ranges(void)
{
    uint32_t count = below(4);
    wire_put_u32(&m.made, count);
    for (; count > 0; count--) {
        wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_DEVICE_MEMORY, number()));
        wire_put_u64(&m.made, one_in(8) ? hw_rng_u64(&m.rng) : below(SCRIPT_MEMORY_BYTES));
        wire_put_u64(&m.made, one_in(8) ? hw_rng_u64(&m.rng) : below(SCRIPT_MEMORY_BYTES));
    }
}

static void make_read(void)
{
    size_t hole = begin_op(VN_OP_READ);
    put_ranges();
    wire_fill_len(&m.made, hole);
}

/* SUBMIT of one batch, whose command follows; repair_submissions makes it fit that. */
static size_t begin_submit(void)
{
    size_t hole = begin_op(VN_OP_SUBMIT);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_QUEUE, number()));
    wire_put_u64(&m.made, 1);
    wire_put_u32(&m.made, 1);
    if (one_in(2))
        put_ranges();
    else
        wire_put_i32(&m.made, one_in(2) ? VN_BATCH_QUIET : VN_BATCH_UNTOLD);
    return hole;
}

static void make_submission(void)
{
    size_t hole = begin_submit();
    fill_one_of(&m.submissions);
    wire_fill_len(&m.made, hole);
}

static void make_update(void)
{
    static const uint8_t bytes[256] = {1};
    size_t submit = begin_submit(), hole = begin_op(VN_OP_UPDATE);
    uint32_t count = below(VN_UPDATES_MAX + 1);
    wire_put_u32(&m.made, count);
    for (; count > 0; count--) {
        uint32_t size = one_in(8) ? below(sizeof(bytes)) : 4 * (1 + below(sizeof(bytes) / 4));
        wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_BUFFER, number()));
        wire_put_u64(&m.made, one_in(8) ? hw_rng_u64(&m.rng) : 4 * (uint64_t)below(64));
        wire_put_u32(&m.made, one_in(16) ? (uint32_t)hw_rng_u64(&m.rng) : size);
        wire_put_bytes(&m.made, bytes, size);
    }
    wire_fill_len(&m.made, hole);
    wire_fill_len(&m.made, submit);
}

static void make_about_batch(void)
{
    static const uint32_t ops[] = {VN_OP_EARLY, VN_OP_ASK, VN_OP_WAIT};
    size_t hole = begin_op(ops[below(ARRAY_LEN(ops))]);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_QUEUE, number()));
    wire_put_u64(&m.made, one_in(8) ? hw_rng_u64(&m.rng) : below(4));
    wire_fill_len(&m.made, hole);
}

static void make_results(void)
{
    size_t hole = begin_op(VN_OP_RESULTS);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_QUEUE, number()));
    wire_put_u64(&m.made, one_in(8) ? hw_rng_u64(&m.rng) : below(4));
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_QUERY_POOL, number()));
    wire_put_u64(&m.made, below(4));
    for (int i = 0; i < 3; i++)
        wire_put_u32(&m.made, one_in(8) ? (uint32_t)hw_rng_u64(&m.rng) : below(3));
    wire_fill_len(&m.made, hole);
}

/* Pieces of uploads; one is held from the start (fuzz_venus_stream.c), three pages long. */
static void make_hold(void)
{
    static const uint8_t nothing[VN_NAME_BYTES + VN_PROOF_BYTES];
    uint32_t count = below(3);
    size_t hole = begin_op(VN_OP_HOLD);
    wire_put_u32(&m.made, count);
    for (; count > 0; count--) {
        wire_put_u32(&m.made, one_in(8) ? (uint32_t)hw_rng_u64(&m.rng) : 1 + below(VN_PIECE_MAX));
        wire_put_bytes(&m.made, nothing, sizeof(nothing));
    }
    wire_fill_len(&m.made, hole);
}

static void make_reuse_or_keep(void)
{
    uint32_t memory = number(), last = one_in(2) ? 0 : below(SCRIPT_MEMORY_BYTES);
    bool reuse = one_in(2);
    if (!one_in(4))
        put_map(VN_OP_MAP, memory);
    size_t hole = begin_op(reuse ? VN_OP_REUSE : VN_OP_KEEP);
    wire_put_u64(&m.made, script_id(VK_OBJECT_TYPE_DEVICE_MEMORY, memory));
    wire_put_u64(&m.made, one_in(8) ? hw_rng_u64(&m.rng) : below(4) * (uint64_t)VN_PAGE_BYTES);
    wire_put_u32(&m.made, reuse && !one_in(8) ? 0 : last);
    wire_fill_len(&m.made, hole);
}

/* ---- what the fillers do not get right ---- */

static void make_memory(void)
{
    uint64_t bytes = below(3 * SCRIPT_MEMORY_BYTES);
    if (one_in(4))
        bytes = one_in(2) ? 0 : hw_rng_u64(&m.rng);
    script_allocate(&m.made, number(), free_number(), bytes, below(GPU_MEMORY_TYPES + 1));
}

static void make_device(void)
{
    script_create_device(&m.made, 1 + below(GPU_PHYSICAL_DEVICES), free_number());
}

static void make_queue(void)
{
    if (one_in(2))
        script_get_queue(&m.made, number(), below(SCRIPT_QUEUES + 1), free_number());
    else
        script_get_queue2(&m.made, number(), below(SCRIPT_QUEUES + 1), free_number());
}

/* More structures in one chain than a decoder takes, or nearly. */
static void make_chain(void)
{
    static VkBufferOpaqueCaptureAddressCreateInfo chain[CHAIN];
    uint32_t count = one_in(2) ? CHAIN - below(100) : below(CHAIN);
    for (uint32_t i = 0; i < count; i++)
        chain[i] = (VkBufferOpaqueCaptureAddressCreateInfo){
            .sType = VK_STRUCTURE_TYPE_BUFFER_OPAQUE_CAPTURE_ADDRESS_CREATE_INFO,
            .pNext = i + 1 < count ? &chain[i + 1] : NULL};
    struct vn_object device = {.id = script_id(VK_OBJECT_TYPE_DEVICE, number())};
    struct vn_object buffer = {.id = script_id(VK_OBJECT_TYPE_BUFFER, free_number())};
    VkBuffer out = (VkBuffer)(void *)&buffer;
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .pNext = count ? chain : NULL, .size = 1};
    vn_enc_cmd_vkCreateBuffer(&m.made, (VkDevice)(void *)&device, &info, NULL, &out);
}

static void make_any(void)
{
    fill_one_of(&m.plain);
}

static void make_destroy(void)
{
    fill_one_of(&m.destroys);
}

/* Into m.made. */
static void make_units(bool recorded)
{
    static void (*const makers[])(void) = {
        make_any,           make_any,           make_destroy,    make_record,       make_record,
        make_again,         make_again,         make_map,        make_map,          make_delta,
        make_delta,         make_read,          make_submission, make_submission,   make_update,
        make_about_batch,   make_memory,        make_queue,      make_device,       make_hold,
        make_reuse_or_keep, make_reuse_or_keep, make_write,      make_demand_paged, make_fetch,
        make_results,       make_renew};
    wire_enc_reset(&m.made);
    if (recorded)
        fill_one_of(&m.recorded);
    else if (one_in(64))
        make_chain();
    else
        makers[below(ARRAY_LEN(makers))]();
}

/* ---- mutations of a list ---- */

static void insert_units(struct list *list, size_t at, const struct unit *units, size_t count)
{
    if (list->count + count > UNITS_MAX)
        return;
    memmove(&list->units[at + count], &list->units[at], (list->count - at) * sizeof(*units));
    memcpy(&list->units[at], units, count * sizeof(*units));
    list->count += count;
}

static void insert_made(struct list *list, bool recorded)
{
    static struct list made;
    make_units(recorded);
    read_list(&made, wire_enc_data(&m.made), wire_enc_len(&m.made));
    insert_units(list, below(list->count + 1), made.units, made.count);
}

static void remove_unit(struct list *list, size_t at)
{
    list->count--;
    memmove(&list->units[at], &list->units[at + 1], (list->count - at) * sizeof(list->units[0]));
}

static void repeat_unit(struct list *list, size_t at)
{
    struct unit copy = list->units[at];
    copy.bytes = hw_arena_alloc(&m.arena, copy.len + 1, 1);
    if (!copy.bytes)
        return;
    memcpy(copy.bytes, list->units[at].bytes, copy.len);
    insert_units(list, below(list->count + 1), &copy, 1);
}

static void swap_units(struct list *list, size_t a, size_t b)
{
    struct unit unit = list->units[a];
    list->units[a] = list->units[b];
    list->units[b] = unit;
}

/* ---- mutations of a payload ---- */

/* Room for more bytes behind the payload, zeroed. */
static bool grow(struct unit *unit, size_t more)
{
    uint8_t *bytes = hw_arena_calloc(&m.arena, unit->len + more + 1, 1);
    if (!bytes)
        return false;
    memcpy(bytes, unit->bytes, unit->len);
    unit->bytes = bytes;
    return true;
}

static void mutate_bytes(struct unit *unit)
{
    if (grow(unit, GROWTH))
        unit->len = LLVMFuzzerMutate(unit->bytes, unit->len, unit->len + GROWTH);
}

static bool is_id(uint64_t v)
{
    uint64_t type = v >> 8;
    return (v & 0xff) > 0 && (v & 0xff) < SCRIPT_IDS && type > 0 &&
           (type <= VK_OBJECT_TYPE_COMMAND_POOL || (type > 1000000000 && type < 1001000000));
}

static uint64_t other_id(uint64_t id)
{
    switch (below(8)) {
    case 0:
        return 0;
    case 1: /* of another type */
        return script_id(script_types[below(script_type_count)], number());
    case 2: /* never seen */
        return hw_rng_u64(&m.rng);
    default:
        return (id & ~UINT64_C(0xff)) + number();
    }
}

/* The first id from a place on becomes another. */
static void change_id(struct unit *unit)
{
    for (size_t at = unit->len ? below(unit->len) : 0; at + 8 <= unit->len; at++) {
        uint64_t id = wire_load64(unit->bytes + at);
        if (is_id(id)) {
            wire_store64(unit->bytes + at, other_id(id));
            return;
        }
    }
}

/* Some word becomes a count at a limit, or past it. */
static void change_count(struct unit *unit)
{
    static const uint32_t counts[] = {0,
                                      1,
                                      2,
                                      255,
                                      VN_BATCHES_MAX,
                                      VN_BATCHES_MAX + 1,
                                      VN_RANGES_MAX,
                                      VN_RANGES_MAX + 1,
                                      VN_OUTPUT_MAX / 8,
                                      VN_OUTPUT_MAX,
                                      VN_OUTPUT_MAX + 1,
                                      INT32_MAX,
                                      UINT32_MAX / 4 + 1,
                                      UINT32_MAX};
    if (unit->len >= 4)
        wire_store32(unit->bytes + below(unit->len - 3), counts[below(ARRAY_LEN(counts))]);
}

static void change_length(struct unit *unit)
{
    size_t more = 1 + below(GROWTH);
    if (unit->len && one_in(2))
        unit->len -= 1 + below(unit->len);
    else if (grow(unit, more))
        unit->len += more;
}

/* A slice comes again and again: elements past their count, chains past their limit. */
static void repeat_slice(struct unit *unit)
{
    if (!unit->len)
        return;
    size_t at = below(unit->len),
           len = 1 + below(unit->len - at < GROWTH ? unit->len - at : GROWTH);
    size_t times = 1 + below(8), tail = unit->len - at;
    if (!grow(unit, len * times))
        return;
    memmove(unit->bytes + at + len * times, unit->bytes + at, tail);
    for (size_t i = 0; i < times; i++)
        memcpy(unit->bytes + at + i * len, unit->bytes + at + len * times, len);
    unit->len += len * times;
}

static void mutate_list(struct list *list, bool recorded);

/* The commands of a recording are a list of their own. */
static void mutate_recording(struct unit *unit)
{
    static struct list recording;
    struct wire_enc e;
    uint8_t *bytes = hw_arena_alloc(&m.arena, SCRIPT_MESSAGE_MAX, 1);
    if (!bytes || unit->len < 8)
        return;
    read_list(&recording, unit->bytes + 8, unit->len - 8);
    mutate_list(&recording, true);
    wire_enc_init_fixed(&e, bytes, SCRIPT_MESSAGE_MAX);
    wire_put_bytes(&e, unit->bytes, 8);
    write_list(&e, &recording);
    if (wire_enc_error(&e))
        return;
    unit->bytes = bytes;
    unit->len = wire_enc_len(&e);
}

static void mutate_unit(struct unit *unit, bool recorded)
{
    static void (*const mutations[])(struct unit *) = {change_id,     change_id,    change_count,
                                                       change_length, mutate_bytes, mutate_bytes,
                                                       repeat_slice};
    bool has_recording = unit->id == VN_OP_RECORD || unit->id == VN_OP_RECORD_KEPT;
    if (has_recording && !recorded && !one_in(4))
        mutate_recording(unit);
    else
        mutations[below(ARRAY_LEN(mutations))](unit);
}

static void mutate_list(struct list *list, bool recorded)
{
    uint32_t choice = list->count ? below(12) : 0;
    size_t at = list->count ? below(list->count) : 0;
    if (choice < 4)
        insert_made(list, recorded);
    else if (choice == 4)
        remove_unit(list, at);
    else if (choice == 5)
        repeat_unit(list, at);
    else if (choice == 6)
        swap_units(list, at, below(list->count));
    else
        mutate_unit(&list->units[at], recorded);
}

/* ---- mutations of a script ---- */

/* Starts another message behind one, with the rest of its commands. */
static void split_message(struct script *script, size_t at)
{
    if (script->count == MESSAGES_MAX)
        return;
    struct message *message = &script->messages[at], *rest = message + 1;
    memmove(rest + 1, rest, (script->count - at - 1) * sizeof(*rest));
    script->count++;
    size_t keep = below(message->list.count + 1);
    rest->how = (uint8_t)below(256);
    rest->list.count = 0;
    insert_units(&rest->list, 0, &message->list.units[keep], message->list.count - keep);
    message->list.count = keep;
}

static void mutate_script(struct script *script)
{
    if (script->count == 0)
        script->messages[script->count++] = (struct message){0};
    size_t at = below(script->count);
    switch (below(16)) {
    case 0:
        split_message(script, at);
        break;
    case 1:
        script->messages[at].how = (uint8_t)below(256);
        break;
    case 2:
        script->options = one_in(4) ? (uint8_t)below(4) : 0;
        break;
    default:
        mutate_list(&script->messages[at].list, false);
    }
}

/* Where the command of a SUBMIT begins, behind its batches; 0 when it has none. */
static size_t submitted_at(const struct unit *unit)
{
    size_t at = 20;
    if (unit->raw || unit->id != VN_OP_SUBMIT || unit->len < at)
        return 0;
    for (uint32_t left = wire_load32(unit->bytes + 16); left > 0; left--) {
        if (unit->len - at < 4)
            return 0;
        int32_t ranges = (int32_t)wire_load32(unit->bytes + at);
        at += 4;
        if (ranges > 0 && (uint32_t)ranges > (unit->len - at) / 24)
            return 0;
        at += ranges > 0 ? (size_t)ranges * 24 : 0;
    }
    return unit->len - at >= 8 ? at : 0;
}

/* Makes a SUBMIT one of so many batches without ranges; where its command begins then. */
static size_t resize_submit(struct unit *unit, size_t at, uint32_t count)
{
    size_t tail = unit->len - at, batches = (size_t)count * 4;
    if (20 + batches + tail > unit->len && !grow(unit, 20 + batches + tail - unit->len))
        return at;
    memmove(unit->bytes + 20 + batches, unit->bytes + at, tail);
    memset(unit->bytes + 20, 0, batches);
    wire_store32(unit->bytes + 16, count);
    unit->len = 20 + batches + tail;
    return 20 + batches;
}

/* A SUBMIT names the queue and the number of batches of its command, and the next batch. */
static void repair_submit(struct unit *unit, uint64_t next[SCRIPT_IDS])
{
    size_t at = submitted_at(unit);
    uint32_t id = at ? wire_load32(unit->bytes + at) : 0;
    bool submits =
        id == VN_CMD_vkQueueSubmit || id == VN_CMD_vkQueueSubmit2 || id == VN_CMD_vkQueueBindSparse;
    if (!at || !(id == VN_OP_UPDATE || (submits && unit->len - at >= 20)))
        return;
    uint64_t queue = wire_load64(submits ? unit->bytes + at + 8 : unit->bytes);
    uint32_t count = submits ? wire_load32(unit->bytes + at + 16) : 1;
    count = count ? count : 1;
    if (wire_load32(unit->bytes + 16) != count && count <= VN_BATCHES_MAX)
        at = resize_submit(unit, at, count);
    size_t slot = (queue & 0xff) < SCRIPT_IDS ? queue & 0xff : 0;
    wire_store32(unit->bytes + at + 4, (uint32_t)(unit->len - at - 8));
    wire_store64(unit->bytes, queue);
    wire_store64(unit->bytes + 8, next[slot]);
    next[slot] += count;
}

static void repair_submissions(struct script *script)
{
    uint64_t next[SCRIPT_IDS];
    for (size_t i = 0; i < SCRIPT_IDS; i++)
        next[i] = 1;
    for (size_t i = 0; i < script->count; i++) {
        struct list *list = &script->messages[i].list;
        for (size_t k = 0; k < list->count; k++)
            repair_submit(&list->units[k], next);
    }
}

/* ---- libFuzzer's calls ---- */

static void prepare(unsigned int seed)
{
    if (!m.ready) {
        trip_init(&m.trip);
        wire_enc_init(&m.made, WIRE_MESSAGE_MAX);
        hw_arena_init(&m.arena, ARENA_BYTES);
        gpu_require(vn_delta_codec_create(ZSTD_MIN, &m.codec) == 0);
        for (size_t i = 0; i < trip_test_count; i++)
            sort_test(&trip_tests[i]);
        gpu_require(m.begin && m.end && m.submissions.count == 3 && m.destroys.count > 0 &&
                    m.between.count == 3);
        m.ready = true;
    }
    hw_rng_seed(&m.rng, seed);
    hw_arena_reset(&m.arena);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    static struct script script;
    prepare(seed);
    if (one_in(16))
        return LLVMFuzzerMutate(data, size, max_size);
    read_script(&script, data, size);
    for (uint32_t i = 1 + below(3); i > 0; i--)
        mutate_script(&script);
    if (!one_in(16))
        repair_submissions(&script);
    size_t made = write_script(&script, data, max_size);
    return made ? made : LLVMFuzzerMutate(data, size, max_size);
}

/* The messages of one, then those of the other from some on. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *data1, size_t size1, const uint8_t *data2,
                                 size_t size2, uint8_t *out, size_t max_size, unsigned int seed)
{
    static struct script first, second;
    prepare(seed);
    read_script(&first, data1, size1);
    read_script(&second, data2, size2);
    first.count = below(first.count + 1);
    for (size_t i = below(second.count + 1); i < second.count && first.count < MESSAGES_MAX; i++)
        first.messages[first.count++] = second.messages[i];
    repair_submissions(&first);
    return write_script(&first, out, max_size);
}
