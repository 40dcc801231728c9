/* Command pools and command buffers; see command.h. */
#include "venus/client/record/command.h"

#include "base/grow.h"
#include "venus/client/object/descriptor.h"
#include "venus/client/object/pipeline.h"
#include "venus/client/perf.h"
#include "venus/common/physical.h"
#include "venus/common/protocol.h"
#include "vn_client.gen.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    /* One recording; a recording of this size takes the server seconds to decode. */
    RECORDING_BYTES_MAX = 1 << 30,
    /* One RECORD operation: a message holds it, where a server takes less than by default, too. */
    PART_BYTES = 256 << 10,
    /* Objects that are looked for in a recording; for more it is sent unseen. */
    LOOKED_FOR_MAX = 16,
    /* Searches of all that is unsent, and bytes beside, after which it is sent unseen: the rest of
     * what a program destroys must not cost as much each time. */
    SEARCHES_MAX = 4,
    SEARCHED_MAX = 1 << 20,
    /* Of a recording that an idle server gets before it is ended: a handful of dispatches, which a
     * driver takes as long to record as it takes to send them. */
    EARLY_BYTES = 2 << 10,
};

enum { SETS_MAX = 32 }; /* numbers that are followed; drivers offer 4 to 32 */

/* Things that a recording refers to, in the order of first use. */
struct list {
    void **items;
    size_t count, cap;
};

/* A set that a compute pipeline writes through.  Destroying the pipeline makes the recording
 * invalid, so at a submission it is there. */
struct use {
    struct vnc_descriptor_set *set; /* a reference */
    const struct vnc_pipeline *pipeline;
    uint32_t number; /* of the set */
};

struct vnc_command_buffer {
    struct vn_object object;
    struct vnc_device *device;
    struct vn_object *pool;
    struct vnc_command_buffer *next, **at;           /* in the pool's list */
    struct vnc_command_buffer *next_open, **open_at; /* in the device's list, under its lock */
    bool is_open;                                    /* it is there */
    _Atomic bool used;  /* by the thread that records; see "recordings under way" */
    _Atomic int wanted; /* enum wanted, by another thread */
    bool unsent;        /* a part could not be sent */
    struct wire_enc recording;
    size_t sent;          /* bytes of the recording that the server has */
    uint64_t searched;    /* bytes of the rest, again and again, for what was destroyed */
    struct wire_enc kept; /* the recording that the server keeps, whole; or empty */
    size_t counted;       /* bytes that it keeps of this or of `kept` */
    bool keeps;           /* it keeps what it was sent of this recording */
    size_t looked; /* bytes of the recording when it was last decided whether to send them early */
    bool begun;    /* the server has the beginning of the recording */
    bool failed;   /* out of memory while recording, or the server is lost */
    bool held;     /* the recording is ended and not sent; under the stream's lock */
    struct vnc_copy copies[VN_UPDATES_MAX];
    uint32_t copy_count; /* past VN_UPDATES_MAX: not all of them, or too large for an UPDATE */
    uint32_t copy_bytes;
    size_t calls;            /* commands of the recording */
    size_t simple;           /* of these, what a recording that is held back may have */
    bool is_work;            /* it was found to have more than these */
    unsigned effects;        /* enum vn_effects, of all commands so far */
    struct vnc_ranges named; /* written by copies and fills; of resources as bound when recorded */
    struct vnc_ranges read;  /* likewise, read */
    struct list sets;        /* struct vnc_descriptor_set, references; not of compute */
    struct list secondaries; /* struct vnc_command_buffer */
    struct vnc_query_uses queries;
    struct vnc_pipeline *pipeline;              /* bound for compute */
    struct vnc_descriptor_set *bound[SETS_MAX]; /* likewise */
    bool noted;                                 /* the uses of what is bound are noted */
    struct use *uses;
    size_t use_count, use_cap;
};

struct command_pool {
    struct vn_object object;
    struct vnc_command_buffer *first;
};

size_t vnc_command_buffer_size(void)
{
    return sizeof(struct vnc_command_buffer);
}

size_t vnc_command_pool_size(void)
{
    return sizeof(struct command_pool);
}

/* ---- lists ---- */

/* True when added, false when it was there or memory is short (which `failed` tells). */
static bool list_add(struct list *list, void *item, bool *failed)
{
    for (size_t i = list->count; i > 0 && list->count - i < 8; i--) {
        if (list->items[i - 1] == item)
            return false; /* recently: longer searches cost more than they save */
    }
    if (!hw_grow(&list->items, &list->cap, list->count + 1, sizeof(*list->items))) {
        *failed = true;
        return false;
    }
    list->items[list->count++] = item;
    return true;
}

/* ---- recordings under way ---- */

/* One thread at a time records, but another that destroys something looks at the recording and
 * sends what there is.  Each raises its flag, then looks at the other's.  Commands are many and
 * destructions are few, so the thread that records does not pay for the order of the two: the other
 * makes the kernel order them on every core.  Where the kernel cannot, both pay. */
enum wanted {
    UNWANTED,
    WANTED,
    WAS_WANTED, /* the thread that records has to see what the other did */
};

static pthread_once_t barrier_once = PTHREAD_ONCE_INIT;
static _Atomic bool has_barrier; /* relaxed: set before a recording enters its list, under a lock */

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

static void register_barrier(void)
{
    bool can = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
    atomic_store_explicit(&has_barrier, can, memory_order_relaxed);
}

static void raise_flag(struct vnc_command_buffer *commands)
{
    atomic_store_explicit(&commands->used, true, memory_order_relaxed);
    if (atomic_load_explicit(&has_barrier, memory_order_relaxed))
        atomic_signal_fence(memory_order_seq_cst); /* pairs with the membarrier */
    else
        atomic_thread_fence(memory_order_seq_cst);
}

static void release(struct vnc_command_buffer *commands)
{
    atomic_store_explicit(&commands->used, false, memory_order_release); /* pairs with claim */
}

/* Relaxed: UNWANTED is this thread's own. */
static bool is_wanted(const struct vnc_command_buffer *commands)
{
    return atomic_load_explicit(&commands->wanted, memory_order_relaxed) != UNWANTED;
}

/* In a child after fork no thread is there to lower the flag. */
static void give_way(struct vnc_command_buffer *commands)
{
    const struct vnc_link *link = vnc_device_link(commands->device);
    do {
        int seen = WAS_WANTED;
        release(commands);
        /* Acquire: pairs with unclaim. */
        while (!atomic_compare_exchange_strong_explicit(
            &commands->wanted, &seen, UNWANTED, memory_order_acquire, memory_order_relaxed)) {
            if (vnc_link_is_foreign(link))
                return;
            seen = WAS_WANTED;
            sched_yield();
        }
        raise_flag(commands);
    } while (is_wanted(commands));
}

/* By the thread that records. */
static void take(struct vnc_command_buffer *commands)
{
    raise_flag(commands);
    if (is_wanted(commands))
        give_way(commands);
}

/* By another, for all of the device's list, whose lock it has.  False where the kernel has changed
 * its mind: then nothing may be looked at. */
static bool claim(struct vnc_command_buffer *first)
{
    for (struct vnc_command_buffer *c = first; c; c = c->next_open)
        atomic_store_explicit(&c->wanted, WANTED, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (first && atomic_load_explicit(&has_barrier, memory_order_relaxed) &&
        membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        return false;
    for (struct vnc_command_buffer *c = first; c; c = c->next_open) {
        while (atomic_load_explicit(&c->used, memory_order_acquire))
            sched_yield();
    }
    return true;
}

static void unclaim(struct vnc_command_buffer *first)
{
    for (struct vnc_command_buffer *c = first; c; c = c->next_open)
        atomic_store_explicit(&c->wanted, WAS_WANTED, memory_order_release);
}

/* A child after fork sends nothing, and does not look at lists that others may have changed. */
static void enter_list(struct vnc_command_buffer *commands)
{
    struct vnc_device *device = commands->device;
    if (vnc_link_is_foreign(vnc_device_link(device)))
        return;
    pthread_once(&barrier_once, register_barrier);
    pthread_mutex_lock(&device->recordings_lock);
    commands->next_open = device->recordings;
    commands->open_at = &device->recordings;
    if (device->recordings)
        device->recordings->open_at = &commands->next_open;
    device->recordings = commands;
    commands->is_open = true;
    pthread_mutex_unlock(&device->recordings_lock);
}

static void leave_list(struct vnc_command_buffer *commands)
{
    if (!commands->is_open || vnc_link_is_foreign(vnc_device_link(commands->device)))
        return;
    pthread_mutex_lock(&commands->device->recordings_lock);
    *commands->open_at = commands->next_open;
    if (commands->next_open)
        commands->next_open->open_at = commands->open_at;
    commands->is_open = false;
    pthread_mutex_unlock(&commands->device->recordings_lock);
}

/* ---- life ---- */

void vnc_command_buffer_init(struct vnc_command_buffer *commands, struct vnc_device *device)
{
    commands->device = device;
    wire_enc_init(&commands->recording, RECORDING_BYTES_MAX);
    wire_enc_init(&commands->kept, RECORDING_BYTES_MAX);
}

/* The recording is at the server or given up. */
static void empty_recording(struct vnc_command_buffer *commands)
{
    wire_enc_reset(&commands->recording);
    commands->sent = commands->looked = 0;
    commands->searched = 0;
}

/* The server drops what it keeps. */
static void unkeep(struct vnc_command_buffer *commands)
{
    vnc_link_unkeep(vnc_link_of(commands), commands->counted);
    commands->counted = 0;
    commands->keeps = false;
    wire_enc_reset(&commands->kept);
}

static void forget(struct vnc_command_buffer *commands)
{
    leave_list(commands);
    commands->unsent = false;
    for (size_t i = 0; i < commands->sets.count; i++)
        vnc_descriptor_set_unref(commands->sets.items[i]);
    for (size_t i = 0; i < commands->use_count; i++)
        vnc_descriptor_set_unref(commands->uses[i].set);
    commands->sets.count = 0;
    commands->secondaries.count = 0;
    vnc_query_uses_empty(&commands->queries);
    commands->use_count = 0;
    commands->pipeline = NULL;
    memset(commands->bound, 0, sizeof(commands->bound));
    commands->noted = false;
    commands->named.count = 0;
    commands->named.failed = false;
    commands->read.count = 0;
    commands->read.failed = false;
    commands->effects = 0;
    commands->failed = false;
    commands->begun = false;
    commands->held = false;
    commands->copy_count = commands->copy_bytes = 0;
    commands->calls = commands->simple = 0;
    commands->is_work = false;
    empty_recording(commands);
}

void vnc_command_buffer_fini(struct vnc_command_buffer *commands)
{
    forget(commands);
    free(commands->sets.items);
    free(commands->secondaries.items);
    free(commands->queries.items);
    free(commands->uses);
    vnc_ranges_fini(&commands->named);
    vnc_ranges_fini(&commands->read);
    unkeep(commands);
    wire_enc_fini(&commands->recording);
    wire_enc_fini(&commands->kept);
    if (commands->at) {
        *commands->at = commands->next;
        if (commands->next)
            commands->next->at = commands->at;
    }
}

void vnc_command_pool_fini(struct vn_object *pool)
{
    struct command_pool *p = (struct command_pool *)pool;
    while (p->first)
        vnc_object_destroy(&p->first->object);
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate_command_buffers(
    VkDevice device, const VkCommandBufferAllocateInfo *info, VkCommandBuffer *out)
{
    VkResult result = vn_vkAllocateCommandBuffers(device, info, out);
    struct command_pool *pool = VNC_OBJECT(command_pool, info->commandPool);
    for (uint32_t i = 0; result == VK_SUCCESS && i < info->commandBufferCount; i++) {
        struct vnc_command_buffer *commands = VNC_OBJECT(vnc_command_buffer, out[i]);
        if (info->level == VK_COMMAND_BUFFER_LEVEL_SECONDARY)
            commands->object.flags |= VN_OBJECT_SECONDARY;
        commands->pool = &pool->object;
        commands->next = pool->first;
        commands->at = &pool->first;
        if (pool->first)
            pool->first->at = &commands->next;
        pool->first = commands;
    }
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL reset_command_pool(VkDevice device, VkCommandPool pool,
                                                         VkCommandPoolResetFlags flags)
{
    struct vnc_command_buffer *commands = VNC_OBJECT(command_pool, pool)->first;
    for (; commands; commands = commands->next)
        forget(commands);
    return vn_vkResetCommandPool(device, pool, flags);
}

/* ---- recording ---- */

static VKAPI_ATTR VkResult VKAPI_CALL begin_command_buffer(VkCommandBuffer handle,
                                                           const VkCommandBufferBeginInfo *info)
{
    struct vnc_command_buffer *commands = VNC_OBJECT(vnc_command_buffer, handle);
    forget(commands);
    commands->simple++;
    enter_list(commands);
    vnc_link_records(vnc_link_of(handle));
    return vn_vkBeginCommandBuffer(handle, info);
}

static VKAPI_ATTR VkResult VKAPI_CALL reset_command_buffer(VkCommandBuffer handle,
                                                           VkCommandBufferResetFlags flags)
{
    struct vnc_command_buffer *commands = VNC_OBJECT(vnc_command_buffer, handle);
    leave_list(commands);
    bool begun = commands->begun;
    forget(commands);
    /* Of what was ended the next vkBeginCommandBuffer resets the server's. */
    return begun ? vn_vkResetCommandBuffer(handle, flags) : VK_SUCCESS;
}

/* Where the recording can be cut: the end of the last command that fits PART_BYTES from `from` on.
 */
static size_t next_part(const struct vnc_command_buffer *commands, size_t from)
{
    const uint8_t *data = wire_enc_data(&commands->recording);
    size_t end = from, len = wire_enc_len(&commands->recording);
    while (end < len) {
        size_t bytes = 8 + (size_t)wire_load32(data + end + 4);
        if (end > from && end + bytes - from > PART_BYTES)
            break;
        end += bytes;
    }
    return end;
}

/* Whether what is recorded so far is how the kept recording begins. */
static bool is_kept_so_far(const struct vnc_command_buffer *commands)
{
    size_t len = wire_enc_len(&commands->recording);
    return !commands->begun && len <= wire_enc_len(&commands->kept) &&
           memcmp(wire_enc_data(&commands->recording), wire_enc_data(&commands->kept), len) == 0;
}

static bool is_kept(const struct vnc_command_buffer *commands)
{
    return wire_enc_len(&commands->recording) == wire_enc_len(&commands->kept) &&
           is_kept_so_far(commands);
}

static void put_again(const struct vnc_command_buffer *commands, struct wire_enc *e)
{
    size_t hole = vn_put_command(e, VN_OP_AGAIN);
    wire_put_u64(e, commands->object.id);
    wire_fill_len(e, hole);
}

/* The next part of the recording, up to `end`, as an operation. */
static void put_part(struct vnc_command_buffer *commands, size_t end, struct wire_enc *e)
{
    struct vnc_link *link = vnc_link_of(commands);
    size_t from = commands->sent, bytes = end - from;
    if (!commands->begun) {
        unkeep(commands);
        commands->keeps = vnc_perf(VNC_PERF_REFERENCES) && !vnc_link_client(link)->sync;
    }
    if (commands->keeps && (end > VN_KEPT_RECORDING_MAX || !vnc_link_keep(link, bytes)))
        unkeep(commands);
    commands->counted += commands->keeps ? bytes : 0;
    size_t hole = vn_put_command(e, commands->keeps ? VN_OP_RECORD_KEPT : VN_OP_RECORD);
    wire_put_u64(e, commands->object.id);
    wire_put_bytes(e, wire_enc_data(&commands->recording) + from, bytes);
    wire_fill_len(e, hole);
    commands->begun = true;
    commands->sent = end;
    commands->searched = 0;
}

/* The server has the whole recording. */
static void finish_recording(struct vnc_command_buffer *commands)
{
    if (commands->keeps) {
        struct wire_enc kept = commands->kept;
        commands->kept = commands->recording;
        commands->recording = kept;
    }
    commands->begun = commands->keeps = false;
    empty_recording(commands);
}

static VkResult send_again(struct vnc_command_buffer *commands)
{
    struct vnc_link *link = vnc_link_of(commands);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    put_again(commands, e);
    return vnc_link_post(link);
}

static VkResult send_recording(struct vnc_command_buffer *commands)
{
    struct vnc_link *link = vnc_link_of(commands);
    size_t len = wire_enc_len(&commands->recording);
    VkResult result = VK_SUCCESS;
    while (result == VK_SUCCESS && commands->sent < len) {
        size_t end = next_part(commands, commands->sent);
        struct wire_enc *e = vnc_link_begin(link);
        if (!e)
            return VK_ERROR_DEVICE_LOST;
        put_part(commands, end, e);
        result = vnc_link_post(link);
    }
    return result;
}

static void send_so_far(struct vnc_command_buffer *commands)
{
    if (send_recording(commands) != VK_SUCCESS)
        commands->unsent = true;
    if (!commands->keeps)
        empty_recording(commands);
}

/* While the server has nothing to do it records what there is so far, unless it may turn out to be
 * what it has. */
static void send_early(struct vnc_command_buffer *commands)
{
    struct vnc_link *link = vnc_link_of(commands);
    if (wire_enc_error(&commands->recording) || vnc_link_client(link)->sync ||
        !vnc_perf(VNC_PERF_EARLY_RECORDINGS) || is_kept_so_far(commands) ||
        vnc_device_is_working(commands->device))
        return;
    send_so_far(commands);
    if (vnc_link_flush(link) != VK_SUCCESS)
        commands->unsent = true;
}

/* Behind the first command that is more than a copy: an idle server can begin with small copies
 * that were submitted before and have gathered, and with small recordings when there are enough. */
static void send_gathered(struct vnc_command_buffer *commands)
{
    struct vnc_device *device = commands->device;
    struct vnc_link *link = vnc_link_of(commands);
    commands->is_work = true;
    if (vnc_device_is_working(device))
        return;
    bool updates = atomic_exchange_explicit(&device->updates, false, memory_order_relaxed);
    size_t least = updates ? 1 : vnc_perf(VNC_PERF_EARLY_RECORDINGS) ? EARLY_BYTES : SIZE_MAX;
    const struct wire_enc *e = vnc_link_begin(link);
    if (e) /* the next call that can fail reports a lost device */
        (void)!(wire_enc_len(e) >= least ? vnc_link_send(link) : vnc_link_post(link));
}

struct wire_enc *vnc_command_buffer_recording(struct vnc_command_buffer *commands, unsigned effects)
{
    commands->effects |= effects;
    take(commands);
    if (commands->calls++ > commands->simple && !commands->is_work)
        send_gathered(commands);
    size_t len = wire_enc_len(&commands->recording);
    if (len - commands->looked >= EARLY_BYTES) {
        commands->looked = len;
        send_early(commands);
    }
    return &commands->recording;
}

void vnc_command_buffer_recorded(struct vnc_command_buffer *commands)
{
    release(commands);
}

void vnc_command_buffer_queries(struct vnc_command_buffer *commands, struct vnc_query_pool *pool,
                                uint32_t first, uint32_t count, bool written)
{
    if (!vnc_query_uses_add(&commands->queries, pool, first, count, written))
        commands->failed = true;
}

/* ---- what ends while it is recorded ---- */

/* Ids are in recordings as they are, 8 bytes; other values that look like one do no harm. */
static bool names(const uint8_t *bytes, size_t len, const struct vn_object *object)
{
    uint8_t id[8];
    if (!object)
        return false;
    if (object->type == VK_OBJECT_TYPE_DESCRIPTOR_POOL ||
        object->type == VK_OBJECT_TYPE_COMMAND_POOL)
        return true; /* what it holds is not looked for */
    wire_store64(id, object->id);
    return memmem(bytes, len, id, sizeof(id)) != NULL;
}

/* Or it is not worth looking. */
static bool may_name_any(struct vnc_command_buffer *commands, uint64_t count,
                         struct vn_object *const *objects)
{
    size_t len = wire_enc_len(&commands->recording) - commands->sent;
    if (len == 0 || wire_enc_error(&commands->recording))
        return false;
    const uint8_t *unsent = wire_enc_data(&commands->recording) + commands->sent;
    bool named =
        count > LOOKED_FOR_MAX || commands->searched > SEARCHES_MAX * (uint64_t)len + SEARCHED_MAX;
    for (uint64_t i = 0; i < count && !named; i++)
        named = names(unsent, len, objects[i]);
    commands->searched += count * len;
    return named;
}

void vnc_recordings_precede(struct vnc_device *device, uint64_t count,
                            struct vn_object *const *objects)
{
    pthread_mutex_lock(&device->recordings_lock);
    struct vnc_command_buffer *first = device->recordings;
    bool claimed = claim(first);
    for (struct vnc_command_buffer *c = claimed ? first : NULL; c; c = c->next_open) {
        if (may_name_any(c, count, objects))
            send_so_far(c);
    }
    unclaim(first);
    pthread_mutex_unlock(&device->recordings_lock);
}

/* ---- recordings of copies ---- */

/* The server would record it only to execute it once. */
static bool is_held_back(const struct vnc_command_buffer *commands)
{
    return commands->copy_count && commands->copy_count <= VN_UPDATES_MAX &&
           commands->calls == commands->simple && !commands->begun &&
           wire_enc_len(&commands->recording) <= PART_BYTES &&
           !(commands->object.flags & VN_OBJECT_SECONDARY) && vnc_perf(VNC_PERF_SMALL_UPLOADS);
}

static void note_copy(struct vnc_command_buffer *commands, VkBuffer from, VkBuffer to,
                      const VkBufferCopy *region)
{
    if (!from || !to || region->size == 0 || region->size % 4 || region->dstOffset % 4 ||
        region->size > VN_UPDATE_BYTES - commands->copy_bytes ||
        commands->copy_count >= VN_UPDATES_MAX) {
        commands->copy_count = VN_UPDATES_MAX + 1;
        return;
    }
    commands->copies[commands->copy_count++] = (struct vnc_copy){
        VNC_OBJECT(vnc_resource, from), region->srcOffset, VNC_OBJECT(vnc_resource, to)->object.id,
        region->dstOffset, (uint32_t)region->size};
    commands->copy_bytes += (uint32_t)region->size;
}

uint32_t vnc_command_buffer_copies(const struct vnc_command_buffer *commands,
                                   const struct vnc_copy **copies)
{
    *copies = commands->copies;
    return commands->held ? commands->copy_count : 0;
}

void vnc_command_buffer_put_held(struct vnc_command_buffer *commands, struct wire_enc *e)
{
    if (!commands->held)
        return;
    if (is_kept(commands))
        put_again(commands, e);
    else
        put_part(commands, wire_enc_len(&commands->recording), e);
    if (wire_enc_error(e)) {
        commands->begun = false;
        commands->sent = 0;
        return;
    }
    commands->held = false;
    finish_recording(commands);
}

/* ---- the end of a recording ---- */

static VkResult end_recording(struct vnc_command_buffer *commands)
{
    if (commands->failed || commands->unsent || commands->named.failed || commands->read.failed ||
        wire_enc_error(&commands->recording)) {
        empty_recording(commands);
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (is_held_back(commands)) {
        commands->held = true;
        return VK_SUCCESS;
    }
    VkResult result = is_kept(commands) ? send_again(commands) : send_recording(commands);
    if (result == VK_SUCCESS)
        finish_recording(commands);
    else
        empty_recording(commands);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL end_command_buffer(VkCommandBuffer handle)
{
    struct vnc_command_buffer *commands = VNC_OBJECT(vnc_command_buffer, handle);
    VkResult result = vn_vkEndCommandBuffer(handle);
    commands->simple++;
    leave_list(commands); /* from here on no other thread sends it: it may be held back */
    if (result == VK_SUCCESS)
        return end_recording(commands);
    empty_recording(commands);
    return result;
}

void vnc_command_buffer_ranges(const struct vnc_command_buffer *commands, struct vnc_ranges *ranges)
{
    unsigned effects = commands->effects;
    for (size_t i = 0; i < commands->secondaries.count; i++)
        vnc_command_buffer_ranges(commands->secondaries.items[i], ranges);
    for (size_t i = 0; i < commands->named.count; i++)
        vnc_ranges_add_range(ranges, &commands->named.items[i]);
    if (effects & VN_WRITES_ALL)
        vnc_memory_all_ranges(commands->device, ranges);
    for (size_t i = 0; i < commands->use_count; i++) {
        const struct use *use = &commands->uses[i];
        for (uint32_t j = 0; j < use->pipeline->write_count; j++) {
            if (use->pipeline->writes[j].set == use->number)
                vnc_descriptor_set_binding_ranges(use->set, use->pipeline->writes[j].binding,
                                                  ranges);
        }
    }
    for (size_t i = 0; (effects & VN_WRITES_SETS) && i < commands->sets.count; i++)
        vnc_descriptor_set_ranges(commands->sets.items[i], true, ranges);
    vnc_memory_shared_ranges(commands->device, VNC_WRITE, effects & VN_WRITES_IMAGES,
                             effects & VN_WRITES_ADDRESSES, ranges);
    ranges->by_address |= effects & VN_WRITES_ADDRESSES;
}

bool vnc_command_buffer_reads(const struct vnc_command_buffer *commands, struct vnc_ranges *ranges)
{
    bool known = !(commands->effects & VN_READS_ALL);
    for (size_t i = 0; known && i < commands->secondaries.count; i++)
        known = vnc_command_buffer_reads(commands->secondaries.items[i], ranges);
    if (!known)
        return false;
    for (size_t i = 0; i < commands->read.count; i++)
        vnc_ranges_add_range(ranges, &commands->read.items[i]);
    for (size_t i = 0; i < commands->use_count; i++)
        vnc_descriptor_set_ranges(commands->uses[i].set, false, ranges);
    for (size_t i = 0; i < commands->sets.count; i++)
        vnc_descriptor_set_ranges(commands->sets.items[i], false, ranges);
    /* Sparse memory in any case: copies name a buffer that has none of its own. */
    vnc_memory_shared_ranges(commands->device, VNC_READ, commands->effects & VN_READS_IMAGES,
                             commands->effects & VN_USES_ADDRESSES, ranges);
    return true;
}

bool vnc_command_buffer_is_watched(const struct vnc_command_buffer *commands)
{
    bool watched = commands->effects & VN_WATCHED;
    for (size_t i = 0; !watched && i < commands->secondaries.count; i++)
        watched = vnc_command_buffer_is_watched(commands->secondaries.items[i]);
    return watched;
}

void vnc_command_buffer_forget_queries(const struct vnc_command_buffer *commands,
                                       const struct vnc_queue *queue)
{
    for (size_t i = 0; i < commands->secondaries.count; i++)
        vnc_command_buffer_forget_queries(commands->secondaries.items[i], queue);
    vnc_query_uses_forget(&commands->queries, queue);
}

void vnc_command_buffer_put_queries(const struct vnc_command_buffer *commands,
                                    const struct vnc_queue *queue, uint64_t batch,
                                    struct wire_enc *e)
{
    for (size_t i = 0; i < commands->secondaries.count; i++)
        vnc_command_buffer_put_queries(commands->secondaries.items[i], queue, batch, e);
    vnc_query_uses_put(&commands->queries, queue, batch, e);
}

/* ---- commands that name what they write ---- */

static void name(VkCommandBuffer handle, VkBuffer buffer, VkDeviceSize offset, VkDeviceSize bytes)
{
    if (buffer)
        vnc_ranges_add(&VNC_OBJECT(vnc_command_buffer, handle)->named,
                       VNC_OBJECT(vnc_resource, buffer), offset, bytes);
}

static void name_filled(VkCommandBuffer handle, VkBuffer buffer, VkDeviceSize offset,
                        VkDeviceSize bytes)
{
    if (buffer)
        vnc_ranges_add_filled(&VNC_OBJECT(vnc_command_buffer, handle)->named,
                              VNC_OBJECT(vnc_resource, buffer), offset, bytes);
}

static void name_read(VkCommandBuffer handle, VkBuffer buffer, VkDeviceSize offset,
                      VkDeviceSize bytes)
{
    if (buffer)
        vnc_ranges_add(&VNC_OBJECT(vnc_command_buffer, handle)->read,
                       VNC_OBJECT(vnc_resource, buffer), offset, bytes);
}

static void name_copy(VkCommandBuffer commands, VkBuffer from, VkBuffer to,
                      const VkBufferCopy *region)
{
    name_read(commands, from, region->srcOffset, region->size);
    name_filled(commands, to, region->dstOffset, region->size);
    note_copy(VNC_OBJECT(vnc_command_buffer, commands), from, to, region);
}

static VKAPI_ATTR void VKAPI_CALL cmd_copy_buffer(VkCommandBuffer commands, VkBuffer from,
                                                  VkBuffer to, uint32_t count,
                                                  const VkBufferCopy *regions)
{
    for (uint32_t i = 0; i < count; i++)
        name_copy(commands, from, to, &regions[i]);
    VNC_OBJECT(vnc_command_buffer, commands)->simple++;
    vn_vkCmdCopyBuffer(commands, from, to, count, regions);
}

/* A recording that is held back has copies only, which are executed in order: it needs no barrier
 * of memory.  A barrier of a buffer or an image may give it to another queue family. */
static VKAPI_ATTR void VKAPI_CALL
cmd_pipeline_barrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to,
                     VkDependencyFlags flags, uint32_t memory_count, const VkMemoryBarrier *memory,
                     uint32_t buffer_count, const VkBufferMemoryBarrier *buffers,
                     uint32_t image_count, const VkImageMemoryBarrier *images)
{
    VNC_OBJECT(vnc_command_buffer, commands)->simple += buffer_count == 0 && image_count == 0;
    vn_vkCmdPipelineBarrier(commands, from, to, flags, memory_count, memory, buffer_count, buffers,
                            image_count, images);
}

static VKAPI_ATTR void VKAPI_CALL cmd_copy_buffer2(VkCommandBuffer commands,
                                                   const VkCopyBufferInfo2 *info)
{
    bool simple = !info->pNext;
    for (uint32_t i = 0; i < info->regionCount; i++) {
        const VkBufferCopy2 *region = &info->pRegions[i];
        name_copy(commands, info->srcBuffer, info->dstBuffer,
                  &(VkBufferCopy){region->srcOffset, region->dstOffset, region->size});
        simple = simple && !region->pNext;
    }
    VNC_OBJECT(vnc_command_buffer, commands)->simple += simple;
    vn_vkCmdCopyBuffer2(commands, info);
}

static VKAPI_ATTR void VKAPI_CALL cmd_pipeline_barrier2(VkCommandBuffer commands,
                                                        const VkDependencyInfo *info)
{
    VNC_OBJECT(vnc_command_buffer, commands)->simple +=
        info->bufferMemoryBarrierCount == 0 && info->imageMemoryBarrierCount == 0;
    vn_vkCmdPipelineBarrier2(commands, info);
}

static uint64_t blocks_in(uint32_t texels, uint32_t block)
{
    return texels / block + (texels % block != 0);
}

/* What a region of an image writes, row by row of blocks.  Of a format that is not known, and of
 * depth and stencil, which may come with unused bits: all from its offset on. */
static void name_texels(VkCommandBuffer commands, VkImage image, VkBuffer buffer,
                        const VkBufferImageCopy *region)
{
    const VkImageAspectFlags odd = VK_IMAGE_ASPECT_DEPTH_BIT | VK_IMAGE_ASPECT_STENCIL_BIT;
    const VkImageSubresourceLayers *part = &region->imageSubresource;
    const struct vnc_image_shape *shape = &VNC_OBJECT(vnc_resource, image)->shape;
    VkExtent3D extent = region->imageExtent;
    struct vn_block block;
    VNC_OBJECT(vnc_command_buffer, commands)->effects |= VN_READS_IMAGES;
    if ((part->aspectMask & odd) || !vn_block_of(shape->format, part->aspectMask, &block)) {
        name(commands, buffer, region->bufferOffset, VK_WHOLE_SIZE);
        return;
    }
    uint32_t layers = part->layerCount == VK_REMAINING_ARRAY_LAYERS
                          ? shape->layers - part->baseArrayLayer
                          : part->layerCount;
    uint32_t width = region->bufferRowLength ? region->bufferRowLength : extent.width;
    uint32_t height = region->bufferImageHeight ? region->bufferImageHeight : extent.height;
    uint64_t rows = blocks_in(extent.height, block.height);
    uint64_t slices = layers * blocks_in(extent.depth, block.depth);
    uint64_t row_bytes = blocks_in(extent.width, block.width) * block.bytes;
    uint64_t row_step = blocks_in(width, block.width) * block.bytes;
    uint64_t slice_step = blocks_in(height, block.height) * row_step;
    if (row_bytes == 0 || rows == 0 || slices == 0)
        return;
    bool packed =
        (rows == 1 || row_step == row_bytes) && (slices == 1 || slice_step == rows * row_bytes);
    (packed ? name_filled : name)(commands, buffer, region->bufferOffset,
                                  (slices - 1) * slice_step + (rows - 1) * row_step + row_bytes);
}

static VKAPI_ATTR void VKAPI_CALL cmd_copy_image_to_buffer(VkCommandBuffer commands, VkImage image,
                                                           VkImageLayout layout, VkBuffer buffer,
                                                           uint32_t count,
                                                           const VkBufferImageCopy *regions)
{
    for (uint32_t i = 0; i < count; i++)
        name_texels(commands, image, buffer, &regions[i]);
    vn_vkCmdCopyImageToBuffer(commands, image, layout, buffer, count, regions);
}

static VKAPI_ATTR void VKAPI_CALL cmd_copy_image_to_buffer2(VkCommandBuffer commands,
                                                            const VkCopyImageToBufferInfo2 *info)
{
    for (uint32_t i = 0; i < info->regionCount; i++) {
        const VkBufferImageCopy2 *r = &info->pRegions[i];
        name_texels(commands, info->srcImage, info->dstBuffer,
                    &(VkBufferImageCopy){r->bufferOffset, r->bufferRowLength, r->bufferImageHeight,
                                         r->imageSubresource, r->imageOffset, r->imageExtent});
        if (r->pNext) /* something turns it */
            name(commands, info->dstBuffer, r->bufferOffset, VK_WHOLE_SIZE);
    }
    vn_vkCmdCopyImageToBuffer2(commands, info);
}

static VKAPI_ATTR void VKAPI_CALL cmd_fill_buffer(VkCommandBuffer commands, VkBuffer buffer,
                                                  VkDeviceSize offset, VkDeviceSize bytes,
                                                  uint32_t data)
{
    VkDeviceSize filled = bytes;
    if (buffer && bytes == VK_WHOLE_SIZE) /* whole words */
        filled = (VNC_OBJECT(vnc_resource, buffer)->size - offset) & ~UINT64_C(3);
    name_filled(commands, buffer, offset, filled);
    vn_vkCmdFillBuffer(commands, buffer, offset, bytes, data);
}

static VKAPI_ATTR void VKAPI_CALL cmd_update_buffer(VkCommandBuffer commands, VkBuffer buffer,
                                                    VkDeviceSize offset, VkDeviceSize bytes,
                                                    const void *data)
{
    name(commands, buffer, offset, bytes);
    vn_vkCmdUpdateBuffer(commands, buffer, offset, bytes, data);
}

static VKAPI_ATTR void VKAPI_CALL cmd_copy_query_pool_results(
    VkCommandBuffer commands, VkQueryPool pool, uint32_t first, uint32_t count, VkBuffer buffer,
    VkDeviceSize offset, VkDeviceSize stride, VkQueryResultFlags flags)
{
    name(commands, buffer, offset, VK_WHOLE_SIZE);
    vn_vkCmdCopyQueryPoolResults(commands, pool, first, count, buffer, offset, stride, flags);
}

/* ---- commands that bind what shaders write ---- */

static void keep_set(struct vnc_command_buffer *commands, struct vnc_descriptor_set *set)
{
    if (set && list_add(&commands->sets, set, &commands->failed))
        vnc_descriptor_set_ref(set);
}

static void bind_set(struct vnc_command_buffer *commands, VkPipelineBindPoint point,
                     uint32_t number, struct vnc_descriptor_set *set)
{
    if (point == VK_PIPELINE_BIND_POINT_COMPUTE && number < SETS_MAX) {
        commands->bound[number] = set;
        commands->noted = false;
    } else {
        keep_set(commands, set);
        if (point == VK_PIPELINE_BIND_POINT_COMPUTE)
            commands->effects |= VN_WRITES_SETS;
    }
}

static VKAPI_ATTR void VKAPI_CALL cmd_bind_pipeline(VkCommandBuffer handle,
                                                    VkPipelineBindPoint point, VkPipeline pipeline)
{
    struct vnc_command_buffer *commands = VNC_OBJECT(vnc_command_buffer, handle);
    vnc_pipeline_await(VNC_OBJECT(vnc_pipeline, pipeline));
    if (point == VK_PIPELINE_BIND_POINT_COMPUTE) {
        commands->pipeline = VNC_OBJECT(vnc_pipeline, pipeline);
        commands->noted = false;
    }
    vn_vkCmdBindPipeline(handle, point, pipeline);
}

static void add_use(struct vnc_command_buffer *commands, uint32_t number)
{
    if (!hw_grow(&commands->uses, &commands->use_cap, commands->use_count + 1,
                 sizeof(*commands->uses))) {
        commands->failed = true;
        return;
    }
    commands->uses[commands->use_count++] =
        (struct use){vnc_descriptor_set_ref(commands->bound[number]), commands->pipeline, number};
}

/* Notes what a dispatch writes, unless the last one wrote the same. */
static void note_dispatch(VkCommandBuffer handle)
{
    struct vnc_command_buffer *commands = VNC_OBJECT(vnc_command_buffer, handle);
    const struct vnc_pipeline *pipeline = commands->pipeline;
    if (commands->noted)
        return;
    commands->noted = true;
    bool known = pipeline && pipeline->known;
    if (!known || pipeline->uses_addresses)
        commands->effects |= VN_USES_ADDRESSES;
    if (!known || pipeline->writes_addresses)
        commands->effects |= VN_WRITES_ADDRESSES;
    if (!known || pipeline->uses_images)
        commands->effects |= VN_READS_IMAGES;
    if (!known || pipeline->writes_images)
        commands->effects |= VN_WRITES_IMAGES;
    if (!known)
        commands->effects |= VN_WRITES_SETS;
    for (uint32_t i = 0; i < SETS_MAX; i++) {
        if (commands->bound[i] && known)
            add_use(commands, i);
        else
            keep_set(commands, commands->bound[i]);
    }
}

static VKAPI_ATTR void VKAPI_CALL cmd_dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y,
                                               uint32_t z)
{
    note_dispatch(commands);
    vn_vkCmdDispatch(commands, x, y, z);
}

static VKAPI_ATTR void VKAPI_CALL cmd_dispatch_indirect(VkCommandBuffer commands, VkBuffer buffer,
                                                        VkDeviceSize offset)
{
    note_dispatch(commands);
    name_read(commands, buffer, offset, sizeof(VkDispatchIndirectCommand));
    vn_vkCmdDispatchIndirect(commands, buffer, offset);
}

static VKAPI_ATTR void VKAPI_CALL cmd_dispatch_base(VkCommandBuffer commands, uint32_t from_x,
                                                    uint32_t from_y, uint32_t from_z, uint32_t x,
                                                    uint32_t y, uint32_t z)
{
    note_dispatch(commands);
    vn_vkCmdDispatchBase(commands, from_x, from_y, from_z, x, y, z);
}

static VKAPI_ATTR void VKAPI_CALL cmd_bind_descriptor_sets(
    VkCommandBuffer handle, VkPipelineBindPoint point, VkPipelineLayout layout, uint32_t first,
    uint32_t count, const VkDescriptorSet *sets, uint32_t offset_count, const uint32_t *offsets)
{
    struct vnc_command_buffer *commands = VNC_OBJECT(vnc_command_buffer, handle);
    for (uint32_t i = 0; i < count; i++)
        bind_set(commands, point, first + i, VNC_OBJECT(vnc_descriptor_set, sets[i]));
    vn_vkCmdBindDescriptorSets(handle, point, layout, first, count, sets, offset_count, offsets);
}

/* What is pushed without what is to be ignored; noted as read and written.  False when out of
 * memory, which the end of the recording tells. */
static bool note_pushed(struct vnc_command_buffer *commands, VkPipelineLayout layout, uint32_t set,
                        uint32_t count, const VkWriteDescriptorSet *writes,
                        struct vnc_writes *clean)
{
    if (!vnc_pipeline_layout_clean(layout, set, count, writes, clean)) {
        commands->failed = true;
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        vnc_descriptor_write_ranges(&clean->writes[i], true, &commands->named);
        vnc_descriptor_write_ranges(&clean->writes[i], false, &commands->read);
    }
    return true;
}

static VKAPI_ATTR void VKAPI_CALL cmd_push_descriptor_set(VkCommandBuffer handle,
                                                          VkPipelineBindPoint point,
                                                          VkPipelineLayout layout, uint32_t set,
                                                          uint32_t count,
                                                          const VkWriteDescriptorSet *writes)
{
    struct vnc_writes clean;
    if (!note_pushed(VNC_OBJECT(vnc_command_buffer, handle), layout, set, count, writes, &clean))
        return;
    vn_vkCmdPushDescriptorSetKHR(handle, point, layout, set, count, clean.writes);
    vnc_writes_fini(&clean);
}

static VKAPI_ATTR void VKAPI_CALL
cmd_push_descriptor_set_with_template(VkCommandBuffer handle, VkDescriptorUpdateTemplate update,
                                      VkPipelineLayout layout, uint32_t set, const void *data)
{
    struct vnc_command_buffer *commands = VNC_OBJECT(vnc_command_buffer, handle);
    struct vnc_writes writes;
    if (!vnc_template_writes(update, VK_NULL_HANDLE, data, &writes)) {
        commands->failed = true;
        return;
    }
    cmd_push_descriptor_set(handle, vnc_template_bind_point(update), layout, set, writes.count,
                            writes.writes);
    vnc_writes_fini(&writes);
}

#ifdef VK_KHR_maintenance6 /* and Vulkan 1.4: newer than the oldest registry */

static VKAPI_ATTR void VKAPI_CALL cmd_bind_descriptor_sets2(VkCommandBuffer handle,
                                                            const VkBindDescriptorSetsInfoKHR *info)
{
    struct vnc_command_buffer *commands = VNC_OBJECT(vnc_command_buffer, handle);
    for (uint32_t i = 0; i < info->descriptorSetCount; i++) {
        struct vnc_descriptor_set *set = VNC_OBJECT(vnc_descriptor_set, info->pDescriptorSets[i]);
        if (info->stageFlags & VK_SHADER_STAGE_COMPUTE_BIT)
            bind_set(commands, VK_PIPELINE_BIND_POINT_COMPUTE, info->firstSet + i, set);
        if (info->stageFlags & ~(VkShaderStageFlags)VK_SHADER_STAGE_COMPUTE_BIT)
            bind_set(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, info->firstSet + i, set);
    }
    vn_vkCmdBindDescriptorSets2KHR(handle, info);
}

static VKAPI_ATTR void VKAPI_CALL cmd_push_descriptor_set2(VkCommandBuffer handle,
                                                           const VkPushDescriptorSetInfoKHR *info)
{
    struct vnc_writes clean;
    if (!note_pushed(VNC_OBJECT(vnc_command_buffer, handle), info->layout, info->set,
                     info->descriptorWriteCount, info->pDescriptorWrites, &clean))
        return;
    VkPushDescriptorSetInfoKHR push = *info;
    push.pDescriptorWrites = clean.writes;
    vn_vkCmdPushDescriptorSet2KHR(handle, &push);
    vnc_writes_fini(&clean);
}

static VKAPI_ATTR void VKAPI_CALL cmd_push_descriptor_set_with_template2(
    VkCommandBuffer handle, const VkPushDescriptorSetWithTemplateInfoKHR *info)
{
    cmd_push_descriptor_set_with_template(handle, info->descriptorUpdateTemplate, info->layout,
                                          info->set, info->pData);
}

#endif

static VKAPI_ATTR void VKAPI_CALL cmd_execute_commands(VkCommandBuffer handle, uint32_t count,
                                                       const VkCommandBuffer *buffers)
{
    struct vnc_command_buffer *commands = VNC_OBJECT(vnc_command_buffer, handle);
    for (uint32_t i = 0; i < count; i++)
        (void)list_add(&commands->secondaries, VNC_OBJECT(vnc_command_buffer, buffers[i]),
                       &commands->failed);
    vn_vkCmdExecuteCommands(handle, count, buffers);
}

const struct vnc_entry vnc_entries_command[] = {
    VNC_ENTRY(vkAllocateCommandBuffers, allocate_command_buffers),
    VNC_ENTRY(vkResetCommandPool, reset_command_pool),
    VNC_ENTRY(vkBeginCommandBuffer, begin_command_buffer),
    VNC_ENTRY(vkResetCommandBuffer, reset_command_buffer),
    VNC_ENTRY(vkEndCommandBuffer, end_command_buffer),
    VNC_ENTRY(vkCmdCopyBuffer, cmd_copy_buffer),
    VNC_ENTRY(vkCmdCopyBuffer2, cmd_copy_buffer2),
    VNC_ENTRY(vkCmdPipelineBarrier, cmd_pipeline_barrier),
    VNC_ENTRY(vkCmdPipelineBarrier2, cmd_pipeline_barrier2),
    VNC_ENTRY(vkCmdCopyImageToBuffer, cmd_copy_image_to_buffer),
    VNC_ENTRY(vkCmdCopyImageToBuffer2, cmd_copy_image_to_buffer2),
    VNC_ENTRY(vkCmdFillBuffer, cmd_fill_buffer),
    VNC_ENTRY(vkCmdUpdateBuffer, cmd_update_buffer),
    VNC_ENTRY(vkCmdCopyQueryPoolResults, cmd_copy_query_pool_results),
    VNC_ENTRY(vkCmdBindPipeline, cmd_bind_pipeline),
    VNC_ENTRY(vkCmdDispatch, cmd_dispatch),
    VNC_ENTRY(vkCmdDispatchIndirect, cmd_dispatch_indirect),
    VNC_ENTRY(vkCmdDispatchBase, cmd_dispatch_base),
    VNC_ENTRY(vkCmdBindDescriptorSets, cmd_bind_descriptor_sets),
    VNC_ENTRY(vkCmdPushDescriptorSetKHR, cmd_push_descriptor_set),
    VNC_ENTRY(vkCmdPushDescriptorSetWithTemplateKHR, cmd_push_descriptor_set_with_template),
#ifdef VK_KHR_maintenance6
    VNC_ENTRY(vkCmdBindDescriptorSets2KHR, cmd_bind_descriptor_sets2),
    VNC_ENTRY(vkCmdPushDescriptorSet2KHR, cmd_push_descriptor_set2),
    VNC_ENTRY(vkCmdPushDescriptorSetWithTemplate2KHR, cmd_push_descriptor_set_with_template2),
#endif
    VNC_ENTRY(vkCmdExecuteCommands, cmd_execute_commands),
    {NULL, NULL},
};
