/* Commands and operations of a client, executed in order; see state.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/log.h"
#include "venus/common/commands.h"
#include "venus/common/protocol.h"
#include "venus/server/session/state.h"
#include "venus/server/stream/pending.h"

/* ---- early reports ---- */

/* Waits for what the program was told is done. */
static void drain(struct vns_session *s, enum vns_drain_what what)
{
    bool left = false;
    for (struct vns_device *device = s->early ? s->devices : NULL; device; device = device->next) {
        for (struct vns_queue *queue = device->queues; queue; queue = queue->next)
            left |= vns_queue_drain(queue, what);
    }
    s->early = left;
}

/* The same for a submission: it waits at the device, but for what other devices do.  The queue it
 * goes to is no exception: without a barrier its batches may overlap, and a program that waited for
 * a fence needs none. */
static void follow(struct vns_session *s, struct vns_queue *queue, enum vns_following what)
{
    for (struct vns_device *device = s->devices; device; device = device->next) {
        for (struct vns_queue *q = device == queue->device ? NULL : device->queues; q; q = q->next)
            (void)vns_queue_drain(q, VNS_DRAIN_PLAIN);
    }
    vns_queue_follow(queue, what);
}

void vns_session_drain(struct vns_session *s)
{
    drain(s, VNS_DRAIN_PLAIN);
}

/* ---- ids, for the decoder ---- */

static bool is_submission(uint32_t command)
{
    return command == VN_CMD_vkQueueSubmit || command == VN_CMD_vkQueueSubmit2 ||
           command == VN_CMD_vkQueueBindSparse;
}

/* A command buffer that was not recorded in full may be recorded again or freed, not executed. */
static bool is_unusable(const struct vns_session *s, const struct vns_thing *thing)
{
    uint32_t id = s->command.id;
    return !thing->handle ||
           (thing->incomplete && (is_submission(id) || id == VN_CMD_vkCmdExecuteCommands));
}

/* A command takes what is of its own device: the driver's objects of two are no match, and each
 * ends with its own. */
static bool is_elsewhere(const struct vns_session *s, const struct vns_thing *thing)
{
    const struct vns_command *c = &s->command;
    const struct vns_device *device = c->recording          ? c->recording->device
                                      : c->queue            ? c->queue->device
                                      : s->named.count == 0 ? NULL
                                                            : s->named.things[0]->device;
    return device && thing->device && thing->device != device;
}

/* Remembers what the command names, for when it is decoded. */
static void note_named(struct vns_session *s, struct vns_thing *thing)
{
    struct vns_names *n = &s->named;
    if (hw_grow(&n->things, &n->cap, n->count + 1, sizeof(struct vns_thing *)))
        n->things[n->count++] = thing;
    else
        vns_session_fault(s, -ENOMEM);
}

static void *on_lookup(void *objects, uint64_t id, uint32_t type)
{
    struct vns_session *s = objects;
    struct vns_thing *thing = vns_objects_find(&s->objects, id, type);
    if (thing)
        vns_pipelines_use(s, thing);
    if (!thing || is_unusable(s, thing) || is_elsewhere(s, thing))
        return NULL;
    note_named(s, thing);
    return thing->handle;
}

/* A command buffer that names an unknown id counts as one. */
static bool on_is_poisoned(void *objects, uint64_t id, uint32_t type)
{
    struct vns_session *s = objects;
    struct vns_thing *thing = vns_objects_find(&s->objects, id, type);
    return thing && is_unusable(s, thing) && !(thing->handle && thing->misnamed);
}

static const struct vn_decoder_ops decoder_ops = {.lookup = on_lookup,
                                                  .is_poisoned = on_is_poisoned};

/* ---- effects, for the executor ---- */

/* A command buffer in a submission, or executed by another one.  The program may have been told too
 * early that it is done: a driver takes it once at a time. */
static void use_buffer(struct vns_session *s, struct vns_thing *buffer)
{
    struct vns_command *c = &s->command;
    if (c->recording) {
        drain(s, VNS_DRAIN_PLAIN); /* it may be pending as a part of another one */
        vns_recording_names(c->recording, buffer);
    } else if (c->queue) {
        if (s->early && vns_pending_is(buffer))
            drain(s, VNS_DRAIN_PLAIN);
        vns_pending_note(buffer, c->queue);
    }
    c->buffer = buffer;
}

/* What recordings and hooks must know of what the command names.  Outside of recordings sets are
 * named to be changed. */
static void on_decoded(void *objects)
{
    struct vns_session *s = objects;
    for (size_t i = 0; i < s->named.count; i++) {
        struct vns_thing *thing = s->named.things[i];
        switch (thing->type) {
        case VK_OBJECT_TYPE_COMMAND_POOL:
        case VK_OBJECT_TYPE_DESCRIPTOR_POOL:
            s->command.pool = thing;
            break;
        case VK_OBJECT_TYPE_COMMAND_BUFFER:
            use_buffer(s, thing);
            break;
        case VK_OBJECT_TYPE_DESCRIPTOR_SET:
            if (s->command.recording)
                vns_recording_names(s->command.recording, thing);
            else
                thing->version++;
            break;
        default:
            break;
        }
    }
}

static bool on_id_is_fresh(void *objects, uint64_t id)
{
    struct vns_session *s = objects;
    return id && !vns_objects_find(&s->objects, id, VK_OBJECT_TYPE_UNKNOWN);
}

static int on_created(void *objects, uint32_t type, uint64_t id, void *handle)
{
    struct vns_session *s = objects;
    bool pooled = type == VK_OBJECT_TYPE_COMMAND_BUFFER || type == VK_OBJECT_TYPE_DESCRIPTOR_SET;
    int rc = vns_objects_add(&s->objects, type, id, handle,
                             type == VK_OBJECT_TYPE_DEVICE ? s->command.created : s->command.device,
                             pooled ? s->command.pool : NULL);
    if (rc)
        return rc;
    struct vns_thing *thing = vns_objects_find(&s->objects, id, type);
    thing->secondary = type == VK_OBJECT_TYPE_COMMAND_BUFFER && s->command.secondary;
    vns_pipelines_created(s, thing);
    return 0;
}

/* A command with a poisoned device or pool was skipped: the driver would keep what no id, and so no
 * limit, stands for any more.  Only a client that mixes up its devices sends that. */
static void on_destroyed(void *objects, uint32_t type, uint64_t id)
{
    struct vns_session *s = objects;
    const struct vns_thing *thing = vns_objects_find(&s->objects, id, type);
    if (!thing)
        return; /* the id is nobody's, or what has it is of another type and stays */
    if (thing->handle && s->decoder.poisoned)
        vns_session_fault(s, -EPROTO);
    vns_objects_remove(&s->objects, id);
}

/* The device of the command under way; 0: it names none. */
static uint64_t device_of(const struct vns_session *s)
{
    for (size_t i = 0; i < s->named.count; i++) {
        const struct vns_thing *thing = s->named.things[i];
        if (thing->type == VK_OBJECT_TYPE_DEVICE)
            return thing->id;
        if (thing->device)
            return thing->device->id;
    }
    return 0;
}

void vns_session_push_failed(struct vns_session *s, uint64_t device, uint32_t command,
                             VkResult result)
{
    uint8_t payload[4 + 4 + 8];
    struct wire_enc e;
    wire_enc_init_fixed(&e, payload, sizeof(payload));
    wire_put_u32(&e, command);
    wire_put_i32(&e, result);
    wire_put_u64(&e, device);
    int rc = vns_channel_send(&s->channel, VN_PUSH_FAILED, payload, sizeof(payload));
    if (rc)
        vns_channel_give_up(&s->channel, rc, "a failure cannot be reported");
}

static void on_failed(void *objects, uint32_t command, VkResult result)
{
    struct vns_session *s = objects;
    if (s->command.recording)
        s->command.recording->incomplete = true;
    hw_debug(HW_CAT_VULKAN, "%s: VkResult %d", vns_stream_where(s), result);
    if (!s->exec.reply)
        vns_session_push_failed(s, device_of(s), command, result);
}

/* Whether nothing the client goes on with is other than it believes.  A recording is known to be
 * incomplete, what was to be created is poisoned, and what is asked for is answered. */
static bool may_be_skipped(const struct vns_session *s, uint32_t command)
{
    const struct vn_command_info *info = vn_keymap_get(&s->classes, command);
    switch (command) {
    case VN_CMD_vkBindBufferMemory: /* of a poisoned buffer or image: memory is allocated by calls
                                     */
    case VN_CMD_vkBindImageMemory:
    case VN_CMD_vkSetDebugUtilsObjectNameEXT:
    case VN_CMD_vkSetDebugUtilsObjectTagEXT:
        return true;
    default:
        return s->command.recording || s->exec.reply || is_submission(command) ||
               (info && (info->class == VN_CLASS_CREATE || info->class == VN_CLASS_RECORD));
    }
}

static void on_skipped(void *objects, uint32_t command)
{
    struct vns_session *s = objects;
    if (s->command.recording) {
        s->command.recording->incomplete = true;
        s->command.recording->misnamed |= s->decoder.bad_id != 0;
    }
    if (is_submission(command) && s->command.queue)
        vns_queue_submitted(s->command.queue, VK_ERROR_DEVICE_LOST);
    /* What names a destroyed object is the program's own mistake, which drivers tolerate. */
    if (!s->decoder.bad_id && !may_be_skipped(s, command))
        vns_session_push_failed(s, device_of(s), command, VK_ERROR_UNKNOWN);
}

static const struct vn_driver *on_driver_of(void *objects, const void *handle)
{
    struct vns_session *s = objects;
    struct vns_device *device = s->command.device = vns_objects_device(&s->objects, handle);
    return device ? &device->driver : &s->instance.driver;
}

static const struct vn_exec_ops exec_ops = {
    .decoded = on_decoded,
    .id_is_fresh = on_id_is_fresh,
    .created = on_created,
    .destroyed = on_destroyed,
    .failed = on_failed,
    .skipped = on_skipped,
    .driver_of = on_driver_of,
};

int vns_stream_init(struct vns_session *s)
{
    vn_decoder_init(&s->decoder, &s->arena, &decoder_ops, s);
    s->exec = (struct vn_exec){
        .driver = &s->instance.driver, .hooks = &vns_server_hooks, .ops = &exec_ops, .objects = s};
    s->fd_in = s->fd_out = -1;
    vn_keymap_init(&s->classes);
    int rc = 0;
    for (size_t i = 0; i < vn_command_count && rc == 0; i++) {
        const struct vn_command_info *info = &vn_command_table[i];
        if (info->id)
            rc = vn_keymap_put(&s->classes, info->id, (void *)(uintptr_t)info);
    }
    return rc;
}

/* ---- behind early reports ---- */

/* Whether a command neither uses buffers nor frees them. */
static bool spares_updates(uint32_t command)
{
    switch (command) {
    case VN_CMD_vkResetCommandPool:
    case VN_CMD_vkResetCommandBuffer:
    case VN_CMD_vkFreeCommandBuffers:
    case VN_CMD_vkUpdateDescriptorSets:
    case VN_CMD_vkResetDescriptorPool:
    case VN_CMD_vkFreeDescriptorSets:
        return true;
    default:
        return false;
    }
}

/* Whether a command neither disturbs work under way nor counts on it: it makes something new, or
 * asks. */
static bool minds_its_own(const struct vns_session *s, uint32_t command)
{
    const struct vn_command_info *info = vn_keymap_get(&s->classes, command);
    return info && (info->class == VN_CLASS_CREATE || info->class == VN_CLASS_CREATE_SYNC ||
                    info->class == VN_CLASS_CALL || command == VN_CMD_vkAllocateDescriptorSets);
}

/* EARLY, ASK and WAIT. */
static int op_about_batch(struct vns_session *s, struct wire_dec *in,
                          int (*op)(struct vns_queue *queue, uint64_t number))
{
    uint64_t id = wire_get_u64(in), number = wire_get_u64(in);
    if (wire_dec_end(in))
        return wire_dec_end(in);
    const struct vns_thing *thing = vns_objects_find(&s->objects, id, VK_OBJECT_TYPE_QUEUE);
    if (!thing)
        return -ENOENT;
    struct vns_queue *queue = vns_session_queue(s, thing->handle);
    return queue ? op(queue, number) : 0; /* poisoned: its batches are lost already */
}

static int op_early(struct vns_session *s, struct wire_dec *in)
{
    s->early = true;
    return op_about_batch(s, in, vns_queue_report_early);
}

/* Of a pool that is poisoned or gone nothing is pushed. */
static int op_results(struct vns_session *s, struct wire_dec *in)
{
    const struct vns_thing *thing =
        vns_objects_find(&s->objects, wire_get_u64(in), VK_OBJECT_TYPE_QUEUE);
    struct vns_question question = {.number = wire_get_u64(in), .id = wire_get_u64(in)};
    question.use = wire_get_u64(in);
    question.first = wire_get_u32(in);
    question.count = wire_get_u32(in);
    question.values = wire_get_u32(in);
    if (wire_dec_end(in) || !thing)
        return wire_dec_end(in) ? wire_dec_end(in) : -ENOENT;
    struct vns_queue *queue = vns_session_queue(s, thing->handle);
    const struct vns_thing *pool =
        vns_objects_find(&s->objects, question.id, VK_OBJECT_TYPE_QUERY_POOL);
    if (!queue || !pool || !pool->handle)
        return 0;
    question.pool = (VkQueryPool)pool->handle;
    return pool->device == queue->device ? vns_results_ask(queue, &question) : -EPROTO;
}

/* ---- commands ---- */

/* Names and labels are for tools: where the loader has none, nothing is missed. */
static bool is_label(const struct vns_session *s, uint32_t command)
{
    const struct vn_command_info *info = vn_keymap_get(&s->classes, command);
    for (const char *const *origin = info ? info->origins : NULL; origin && *origin; origin++) {
        if (strcmp(*origin, VK_EXT_DEBUG_UTILS_EXTENSION_NAME) == 0)
            return true;
    }
    return false;
}

/* A program used what it had destroyed.  That costs what the command would have made, and no more.
 */
static void warn_of_id(struct vns_session *s)
{
    if (s->warned_of_id)
        return;
    s->warned_of_id = true;
    hw_warn(HW_CAT_VULKAN,
            "%s: %s: id %llu is unknown, or of another type or device; such commands are skipped",
            rpc_ep_peer(s->channel.ep), vns_stream_where(s), (unsigned long long)s->decoder.bad_id);
}

static int dispatch(struct vns_session *s, const struct vns_command *command,
                    const struct wire_dec *in, bool skip, struct wire_enc *reply)
{
    s->command = *command;
    s->named.count = 0;
    s->exec.reply = reply;
    s->decoder.in = *in;
    s->decoder.depth = 0;
    s->decoder.poisoned = skip;
    s->decoder.bad_id = 0;
    s->decoder.command_buffer = command->recording ? command->recording->handle : NULL;
    hw_arena_reset(&s->arena);
    int rc = vn_dispatch(&s->exec, command->id, &s->decoder);
    vns_pipelines_start(s, rc ? rc : s->fault);
    if (rc == 0 && s->decoder.bad_id)
        warn_of_id(s);
    if (rc == -ENOSYS && is_label(s, command->id)) {
        rc = 0;
        if (reply)
            wire_put_i32(reply, VK_SUCCESS);
    }
    return rc ? rc : s->fault;
}

static int execute_command(struct vns_session *s, uint32_t command, const struct wire_dec *in,
                           struct wire_enc *reply)
{
    if (is_submission(command))
        return -EPROTO; /* comes in SUBMIT */
    if (s->early && !minds_its_own(s, command) && command != VN_CMD_vkResetCommandPool)
        drain(s, spares_updates(command) ? VNS_DRAIN_PLAIN : VNS_DRAIN_ALL);
    return dispatch(s, &(struct vns_command){.id = command}, in, false, reply);
}

/* A recording that named an unknown id becomes an empty one: the program's mistake costs it what it
 * recorded, not its device.  What a secondary one inherits is not known any more. */
static void empty_misnamed(struct vns_thing *buffer)
{
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    const struct vn_driver *driver = &buffer->device->driver;
    if (!buffer->incomplete || !buffer->misnamed || buffer->secondary)
        return;
    buffer->incomplete = driver->vkBeginCommandBuffer(buffer->handle, &info) < 0 ||
                         driver->vkEndCommandBuffer(buffer->handle) < 0;
}

/* One recorded command.  After one that could not be executed the rest is skipped, but for the end
 * of what was begun: the driver must not be left recording. */
static int execute_recorded(struct vns_session *s, struct vns_thing *buffer, uint32_t command,
                            const struct wire_dec *in, struct wire_enc *reply)
{
    const struct vn_command_info *info = vn_keymap_get(&s->classes, command);
    if (!info || info->class != VN_CLASS_RECORD)
        return -EPROTO;
    bool begins = command == VN_CMD_vkBeginCommandBuffer;
    bool ends = command == VN_CMD_vkEndCommandBuffer;
    if (begins)
        buffer->incomplete = buffer->misnamed = false;
    bool skip = ends ? !buffer->begun : !begins && buffer->incomplete;
    int rc =
        dispatch(s, &(struct vns_command){.id = command, .recording = buffer}, in, skip, reply);
    if (begins) {
        buffer->recorded = true;
        buffer->begun = rc == 0 && !buffer->incomplete;
    } else if (ends) {
        buffer->begun = false;
        vns_recording_end(buffer);
        empty_misnamed(buffer);
    }
    return rc;
}

/* ---- operations ---- */

/* The next command or operation of a stream.  0, or what the decoder found. */
static int next_unit(struct vns_session *s, struct wire_dec *stream, uint32_t *id,
                     struct wire_dec *in)
{
    *id = wire_get_u32(stream);
    *in = wire_dec_sub(stream, wire_get_u32(stream));
    s->command = (struct vns_command){.id = *id};
    s->decoder.bad_id = 0;
    return wire_dec_error(stream);
}

/* A recording begins, or one goes on that the driver is recording. */
static void make_recordable(struct vns_session *s, struct vns_thing *buffer, bool begins)
{
    bool ready =
        begins ? !vns_pending_is(buffer) || vns_pending_renew(&s->objects, buffer) : buffer->begun;
    if (!ready)
        drain(s, VNS_DRAIN_PLAIN);
}

static int record(struct vns_session *s, struct vns_thing *buffer, struct wire_dec *commands,
                  bool begins, struct wire_enc *reply)
{
    if (s->early)
        make_recordable(s, buffer, begins);
    if (begins)
        buffer->scattered = false; /* all that may execute it is done */
    uint32_t id;
    struct wire_dec in;
    int rc = 0;
    while (rc == 0 && wire_dec_left(commands) > 0) {
        rc = next_unit(s, commands, &id, &in);
        if (rc == 0)
            rc = execute_recorded(s, buffer, id, &in, wire_dec_left(commands) ? NULL : reply);
    }
    return rc;
}

/* RECORD and RECORD_KEPT.  What is recorded into a poisoned command buffer is nothing. */
static int op_record(struct vns_session *s, bool keeps, struct wire_dec *in, struct wire_enc *reply)
{
    struct vns_thing *buffer =
        vns_objects_find(&s->objects, wire_get_u64(in), VK_OBJECT_TYPE_COMMAND_BUFFER);
    if (wire_dec_error(in) || !buffer)
        return wire_dec_error(in) ? wire_dec_error(in) : -ENOENT;
    if (!buffer->handle) {
        if (reply)
            wire_put_i32(reply, VK_ERROR_UNKNOWN);
        return 0;
    }
    struct wire_dec rest = *in;
    size_t len = wire_dec_left(in);
    const uint8_t *bytes = wire_get_bytes(&rest, len);
    bool begins = len >= 4 && wire_load32(bytes) == VN_CMD_vkBeginCommandBuffer;
    int rc = begins || !keeps ? vns_recording_begin(&s->objects, buffer, keeps) : 0;
    if (rc == 0 && keeps)
        rc = vns_recording_append(&s->objects, buffer, bytes, len);
    return rc ? rc : record(s, buffer, in, begins, reply);
}

static int op_again(struct vns_session *s, struct wire_dec *in)
{
    uint64_t id = wire_get_u64(in);
    struct vns_thing *buffer = vns_objects_find(&s->objects, id, VK_OBJECT_TYPE_COMMAND_BUFFER);
    if (wire_dec_end(in) || !buffer)
        return wire_dec_end(in) ? wire_dec_end(in) : -ENOENT;
    struct vns_recording *recording = buffer->recording;
    if (!buffer->handle)
        return 0;
    if (!recording || !recording->whole)
        return -EPROTO;
    recording->used = recording->repeats = true;
    /* A pending one is recorded again in another's place: that takes less than the wait. */
    bool pending = s->early && !buffer->secondary && vns_pending_is(buffer);
    if (vns_recording_stands(&s->objects, buffer) && !pending)
        return 0;
    struct wire_dec commands;
    wire_dec_init(&commands, recording->bytes, recording->len);
    vns_recording_restart(&s->objects, recording);
    return record(s, buffer, &commands, true, NULL);
}

/* 1; 0 where its allocation failed, so that nothing is there to be written; -ENOENT. */
static int find_memory(const struct vns_session *s, uint64_t id)
{
    const struct vns_thing *memory =
        vns_objects_find(&s->objects, id, VK_OBJECT_TYPE_DEVICE_MEMORY);
    return memory ? memory->handle != NULL : -ENOENT;
}

static int op_map(struct vns_session *s, struct wire_dec *in, struct wire_enc *reply,
                  VkResult (*map)(struct vns_memories *memories, uint64_t id))
{
    uint64_t id = wire_get_u64(in);
    if (wire_dec_end(in))
        return wire_dec_end(in);
    const struct vns_thing *memory =
        vns_objects_find(&s->objects, id, VK_OBJECT_TYPE_DEVICE_MEMORY);
    if (!memory)
        return -ENOENT;
    VkResult result = map(s->memories, id);
    if (reply)
        wire_put_i32(reply, result);
    else if (result < 0)
        vns_session_push_failed(s, memory->device ? memory->device->id : 0, VN_OP_MAP, result);
    return 0;
}

/* As a vkFreeMemory and a vkAllocateMemory that cannot fail.  Of poisoned memory both are. */
static int op_renew(struct vns_session *s, struct wire_dec *in)
{
    uint64_t id = wire_get_u64(in), new_id = wire_get_u64(in);
    if (wire_dec_end(in))
        return wire_dec_end(in);
    const struct vns_thing *old = vns_objects_find(&s->objects, id, VK_OBJECT_TYPE_DEVICE_MEMORY);
    if (!old)
        return -ENOENT;
    drain(s, VNS_DRAIN_ALL);
    struct vns_device *device = old->device;
    void *handle = old->handle;
    int rc =
        vns_objects_add(&s->objects, VK_OBJECT_TYPE_DEVICE_MEMORY, new_id, handle, device, NULL);
    if (rc == 0 && handle)
        rc = vns_memories_renew(s->memories, id, new_id);
    if (rc == 0)
        vns_objects_remove(&s->objects, id);
    return rc;
}

static int op_demand_paged(struct vns_session *s, struct wire_dec *in)
{
    uint64_t id = wire_get_u64(in);
    if (wire_dec_end(in))
        return wire_dec_end(in);
    int found = find_memory(s, id);
    return found == 1 ? vns_memories_set_demand_paged(s->memories, id) : found;
}

/* Work that was reported early writes nothing that the host can see, so it is not waited for. */
static int op_fetch(struct vns_session *s, struct wire_dec *in)
{
    uint64_t id = wire_get_u64(in), off = wire_get_u64(in);
    uint32_t len = wire_get_u32(in);
    return wire_dec_end(in) ? wire_dec_end(in) : vns_memories_fetch(s->memories, id, off, len);
}

static int op_delta(struct vns_session *s, struct wire_dec *in)
{
    uint64_t id = wire_get_u64(in);
    size_t len = wire_dec_left(in);
    const uint8_t *delta = wire_get_bytes(in, len);
    if (!delta)
        return -EPROTO;
    int found = find_memory(s, id);
    return found == 1 ? vns_memories_apply(s->memories, id, delta, len) : found;
}

static int op_write(struct vns_session *s, struct wire_dec *in)
{
    uint64_t id = wire_get_u64(in), off = wire_get_u64(in);
    size_t len = wire_dec_left(in);
    const uint8_t *bytes = wire_get_bytes(in, len);
    if (!bytes)
        return -EPROTO;
    int found = find_memory(s, id);
    return found == 1 ? vns_memories_store(s->memories, id, off, bytes, len) : found;
}

static int op_spread(struct vns_session *s, struct wire_dec *in)
{
    uint64_t id = wire_get_u64(in), off = wire_get_u64(in), len = wire_get_u64(in);
    if (wire_dec_end(in))
        return wire_dec_end(in);
    if (!s->arrivals || len > UINT64_MAX - off)
        return -EPROTO;
    int found = find_memory(s, id);
    return found < 0 ? found : vns_arrivals_take(s->arrivals, found ? id : 0, off, len);
}

static int op_reuse(struct vns_session *s, struct wire_dec *in)
{
    uint64_t id = wire_get_u64(in), off = wire_get_u64(in);
    uint32_t index = wire_get_u32(in);
    size_t len;
    if (wire_dec_end(in))
        return wire_dec_end(in);
    const uint8_t *bytes = vns_uploads_held(s->uploads, index, &len);
    if (!bytes)
        return -EPROTO;
    int found = find_memory(s, id);
    return found == 1 ? vns_memories_store(s->memories, id, off, bytes, len) : found;
}

/* What cannot be kept is not: the client has no use for the news. */
static int op_keep(struct vns_session *s, struct wire_dec *in)
{
    uint64_t id = wire_get_u64(in), off = wire_get_u64(in);
    uint32_t len = wire_get_u32(in);
    if (wire_dec_end(in))
        return wire_dec_end(in);
    if (len == 0 || len > VN_PIECE_MAX)
        return -EPROTO;
    int found = find_memory(s, id);
    uint8_t *bytes = found == 1 ? malloc(len) : NULL;
    if (!bytes)
        return found < 0 ? found : 0;
    int rc = vns_memories_copy(s->memories, id, off, bytes, len);
    if (rc)
        free(bytes);
    else
        vns_uploads_keep(s->uploads, bytes, len);
    return rc == -ENODATA ? 0 : rc;
}

static int op_read(struct vns_session *s, struct wire_dec *in)
{
    uint32_t count;
    struct vns_range *ranges = vns_ranges_get(in, &count);
    int rc = wire_dec_end(in);
    for (uint32_t i = 0; i < count; i++)
        ranges[i].filled = ranges[i].awaited = false; /* of batches only */
    if (rc == 0) {
        /* What the driver itself changes next, by a host copy, must differ from a shadow copy. */
        (void)vns_memories_expose(s->memories, ranges, count);
        vns_memories_conceal(s->memories, count);
        (void)!vns_memories_read(s->memories, ranges, count,
                                 0); /* an ended connection is found next */
    }
    free(ranges);
    return rc;
}

/* Whether updates before and after it may be submitted together. */
static bool goes_with_updates(uint32_t command)
{
    return command == VN_OP_SUBMIT || command == VN_OP_EARLY || command == VN_OP_RESULTS ||
           spares_updates(command);
}

static void submit_updates(struct vns_session *s)
{
    if (s->updating)
        vns_queue_submit_updates(s->updating);
    s->updating = NULL;
}

/* Bytes for a buffer of the queue's device; a poisoned buffer is NULL. */
static int get_update(const struct vns_session *s, const struct vns_queue *queue,
                      struct wire_dec *in, struct vns_update *out)
{
    uint64_t id = wire_get_u64(in);
    out->offset = wire_get_u64(in);
    out->size = wire_get_u32(in);
    out->bytes = wire_get_bytes(in, out->size);
    if (wire_dec_error(in))
        return wire_dec_error(in);
    const struct vns_thing *buffer = vns_objects_find(&s->objects, id, VK_OBJECT_TYPE_BUFFER);
    if (!buffer)
        return -ENOENT;
    out->buffer = buffer->handle;
    if (buffer->handle && buffer->device != queue->device)
        return -EPROTO;
    bool fits = out->size > 0 && out->size <= VN_UPDATE_BYTES && out->size % 4 == 0;
    return fits && out->offset % 4 == 0 ? 0 : -EPROTO;
}

/* UPDATE.  With a poisoned buffer it is lost, as the program's own copies would be. */
static int update(struct vns_session *s, struct vns_queue *queue, struct wire_dec *in)
{
    struct vns_update updates[VN_UPDATES_MAX] = {0};
    uint32_t count = wire_dec_count(in, 2 * sizeof(uint64_t) + sizeof(uint32_t), VN_UPDATES_MAX);
    bool is_poisoned = false;
    int rc = wire_dec_error(in);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        rc = get_update(s, queue, in, &updates[i]);
        is_poisoned |= rc == 0 && !updates[i].buffer;
    }
    if (rc == 0)
        rc = wire_dec_end(in);
    if (rc || !vns_queue_expects_update(queue))
        return rc ? rc : -EPROTO;
    if (s->updating != queue)
        submit_updates(s);
    if (s->early)
        follow(s, queue, VNS_FOLLOW_OTHERS);
    VkResult result = VK_ERROR_DEVICE_LOST;
    if (is_poisoned)
        vns_queue_submitted(queue, result);
    else
        result = vns_queue_update(queue, updates, count);
    s->updating = queue;
    if (result < 0)
        vns_session_push_failed(s, queue->device->id, VN_OP_UPDATE, result);
    return 0;
}

/* Batches of a queue that could not be made are lost; what they do does not matter. */
static int submit_to_poisoned(struct vns_session *s, uint64_t queue, struct wire_dec *in,
                              struct wire_enc *reply)
{
    uint64_t first = wire_get_u64(in);
    uint32_t count = wire_dec_count(in, sizeof(uint32_t), VN_BATCHES_MAX);
    if (wire_dec_error(in) || count == 0)
        return -EPROTO;
    if (reply)
        wire_put_i32(reply, VK_ERROR_UNKNOWN);
    return vns_report_done(&s->channel, queue, first + count - 1, VK_ERROR_DEVICE_LOST);
}

static int op_submit(struct vns_session *s, struct wire_dec *in, struct wire_enc *reply)
{
    const struct vns_thing *thing =
        vns_objects_find(&s->objects, wire_get_u64(in), VK_OBJECT_TYPE_QUEUE);
    if (wire_dec_error(in) || !thing)
        return wire_dec_error(in) ? wire_dec_error(in) : -ENOENT;
    struct vns_queue *queue = vns_session_queue(s, thing->handle);
    if (!queue)
        return submit_to_poisoned(s, thing->id, in, reply);
    int rc = vns_queue_begin_submit(queue, in);
    uint32_t id = wire_get_u32(in);
    struct wire_dec command = wire_dec_sub(in, wire_get_u32(in));
    if (rc == 0)
        rc = wire_dec_end(in);
    if (rc)
        return rc;
    s->command.id = id;
    if (id == VN_OP_UPDATE)
        return update(s, queue, &command);
    if (!is_submission(id))
        return -EPROTO;
    submit_updates(s);
    if (s->early && id == VN_CMD_vkQueueBindSparse)
        drain(s, VNS_DRAIN_ALL);
    else if (s->early)
        follow(s, queue, VNS_FOLLOW_ALL);
    return dispatch(s, &(struct vns_command){.id = id, .queue = queue}, &command, false, reply);
}

static int execute_one(struct vns_session *s, uint32_t command, const struct wire_dec *in,
                       struct wire_enc *reply)
{
    struct wire_dec op = *in;
    if (!goes_with_updates(command))
        submit_updates(s);
    switch (command) {
    case VN_OP_RECORD:
    case VN_OP_RECORD_KEPT:
        return op_record(s, command == VN_OP_RECORD_KEPT, &op, reply);
    case VN_OP_AGAIN:
        return op_again(s, &op);
    case VN_OP_MAP:
        return op_map(s, &op, reply, vns_memories_map);
    case VN_OP_MAP_NEW:
        return op_map(s, &op, reply, vns_memories_map_new);
    case VN_OP_RENEW:
        return op_renew(s, &op);
    case VN_OP_DELTA:
        return op_delta(s, &op);
    case VN_OP_WRITE:
        return op_write(s, &op);
    case VN_OP_SPREAD:
        return op_spread(s, &op);
    case VN_OP_DEMAND_PAGED:
        return op_demand_paged(s, &op);
    case VN_OP_FETCH:
        return op_fetch(s, &op);
    case VN_OP_READ:
        return op_read(s, &op);
    case VN_OP_HOLD:
        return vns_uploads_hold(s->uploads, &op, reply);
    case VN_OP_REUSE:
        return op_reuse(s, &op);
    case VN_OP_KEEP:
        return op_keep(s, &op);
    case VN_OP_SUBMIT:
        return op_submit(s, &op, reply);
    case VN_OP_EARLY:
        return op_early(s, &op);
    case VN_OP_ASK:
        return op_about_batch(s, &op, vns_queue_ask);
    case VN_OP_WAIT:
        return op_about_batch(s, &op, vns_queue_drain_to);
    case VN_OP_RESULTS:
        return op_results(s, &op);
    case VN_OP_UPDATE: /* comes in SUBMIT */
        return -EPROTO;
    default:
        return execute_command(s, command, &op, reply);
    }
}

int vns_stream_execute(struct vns_session *s, const void *data, size_t len, struct wire_enc *reply)
{
    struct wire_dec stream;
    wire_dec_init(&stream, data, len);
    uint32_t id;
    struct wire_dec in;
    int rc = 0;
    while (rc == 0 && wire_dec_left(&stream) > 0) {
        rc = next_unit(s, &stream, &id, &in);
        if (rc == 0)
            rc = execute_one(s, id, &in, wire_dec_left(&stream) ? NULL : reply);
    }
    submit_updates(s);
    return rc;
}

const char *vns_stream_where(const struct vns_session *s)
{
    static const char *const ops[] = {[0] = "a packed message",
                                      [VN_OP_RECORD] = "RECORD",
                                      [VN_OP_MAP] = "MAP",
                                      [VN_OP_DELTA] = "DELTA",
                                      [VN_OP_READ] = "READ",
                                      [VN_OP_SUBMIT] = "SUBMIT",
                                      [VN_OP_EARLY] = "EARLY",
                                      [VN_OP_ASK] = "ASK",
                                      [VN_OP_HOLD] = "HOLD",
                                      [VN_OP_REUSE] = "REUSE",
                                      [VN_OP_KEEP] = "KEEP",
                                      [VN_OP_WRITE] = "WRITE",
                                      [VN_OP_DEMAND_PAGED] = "DEMAND_PAGED",
                                      [VN_OP_FETCH] = "FETCH",
                                      [VN_OP_UPDATE] = "UPDATE",
                                      [VN_OP_RECORD_KEPT] = "RECORD_KEPT",
                                      [VN_OP_AGAIN] = "AGAIN",
                                      [VN_OP_SPREAD] = "SPREAD",
                                      [VN_OP_RESULTS] = "RESULTS",
                                      [VN_OP_MAP_NEW] = "MAP_NEW",
                                      [VN_OP_RENEW] = "RENEW",
                                      [VN_OP_WAIT] = "WAIT"};
    uint32_t id = s->command.id;
    if (id < ARRAY_LEN(ops) && ops[id])
        return ops[id];
    const char *name = vn_command_name(id);
    return name ? name : "an unknown command";
}
