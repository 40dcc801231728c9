/* A session from OPEN to its end; see session.h. */
#include "venus/server/session/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "rpc/resume/pipe.h"
#include "venus/common/protocol.h"
#include "venus/server/session/snapshot.h"
#include "venus/server/session/state.h"

/* ---- answers ---- */

static void release(struct vns_session *s, struct rpc_msg *msg)
{
    vns_channel_lock(&s->channel);
    rpc_release(s->channel.ep, msg);
    vns_channel_unlock(&s->channel);
}

/* 0, or why there is no answer, which the client must not wait for; a connection that has ended is
 * found by the next receive. */
static int answer(struct vns_session *s, struct rpc_msg *msg, const struct wire_enc *payload)
{
    struct iovec iov = {(void *)(uintptr_t)wire_enc_data(payload), wire_enc_len(payload)};
    struct rpc_send send = {.stream = msg->stream,
                            .iov = &iov,
                            .iov_count = 1,
                            .fds = &s->fd_out,
                            .fd_count = s->fd_out >= 0};
    return wire_enc_error(payload) ? wire_enc_error(payload)
                                   : vns_channel_reply(&s->channel, msg, &send);
}

static void answer_error(struct vns_session *s, struct rpc_msg *msg, int status, const char *text)
{
    struct iovec iov = {(void *)(uintptr_t)text, strnlen(text, RPC_ERROR_TEXT_MAX)};
    struct rpc_send send = {.stream = msg->stream, .iov = &iov, .iov_count = 1};
    vns_channel_lock(&s->channel);
    int rc = rpc_reply(s->channel.ep, msg, status, &send);
    vns_channel_flush(&s->channel);
    vns_channel_unlock(&s->channel);
    if (rc)
        vns_channel_give_up(&s->channel, rc, text);
}

/* ---- opening ---- */

static int register_ids(struct vns_session *s, uint64_t instance, uint64_t first_device)
{
    int rc = vns_objects_add(&s->objects, VK_OBJECT_TYPE_INSTANCE, instance, s->instance.handle,
                             NULL, NULL);
    for (uint32_t i = 0; i < s->instance.device_count && rc == 0; i++)
        rc = vns_objects_add(&s->objects, VK_OBJECT_TYPE_PHYSICAL_DEVICE, first_device + i,
                             s->instance.devices[i], NULL, NULL);
    return rc;
}

static int open_instance(struct vns_session *s, const struct rpc_msg *msg, char why[VNS_WHY_CHARS])
{
    struct vn_decoder *d = &s->decoder;
    VkInstanceCreateInfo info = {0};
    struct vns_instance_params params = {
        .validate = s->options.validate, .message = vns_messages_add, .user = &s->messages};
    vn_decoder_feed(d, msg->data, msg->len);
    uint32_t version = wire_get_u32(&d->in);
    if (!wire_dec_error(&d->in) && version != VN_PROTOCOL) {
        snprintf(why, VNS_WHY_CHARS,
                 "the client speaks version %u of the Vulkan protocol, the "
                 "server version %u",
                 version, VN_PROTOCOL);
        return -EPROTONOSUPPORT;
    }
    (void)wire_get_bytes(&d->in, VN_STRIPE_KEY_BYTES); /* the server has looked */
    uint64_t instance = wire_get_u64(&d->in);
    uint64_t first_device = wire_get_u64(&d->in);
    vn_dec_VkInstanceCreateInfo(d, &info);
    int rc = vn_decoder_end(d);
    if (rc == 0)
        rc = vns_instance_open(&s->instance, &info, &params, why);
    return rc ? rc : register_ids(s, instance, first_device);
}

static int open_session(struct vns_session *s, struct rpc_msg *msg)
{
    char why[VNS_WHY_CHARS] = "the request is malformed";
    int rc = open_instance(s, msg, why);
    if (rc == 0) {
        wire_enc_reset(&s->reply);
        s->messages.muted = true; /* chains hold what the program's version does not have */
        rc = vns_snapshot_encode(&s->instance.driver, s->instance.version, s->instance.devices,
                                 s->instance.device_count, &s->reply);
        s->messages.muted = false;
        wire_put_u64(&s->reply, vns_uploads_key(s->uploads));
        wire_put_u32(&s->reply,
                     s->arrivals
                         ? s->options.stripe_count |
                               (s->options.next_resumption ? (uint32_t)VN_STRIPES_RESUME : 0)
                         : 0);
        snprintf(why, sizeof(why), "the devices cannot be described");
    }
    if (rc == 0)
        rc = answer(s, msg, &s->reply);
    if (rc) {
        hw_warn(HW_CAT_VULKAN, "%s: no session: %s: %s", rpc_ep_peer(s->channel.ep), why,
                strerror(-rc));
        answer_error(s, msg, rc, why);
    }
    release(s, msg);
    return rc;
}

/* ---- serving ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int unpack(struct vns_session *s, struct vn_bytes *bytes)
{
    int rc = s->unpacker ? 0 : vn_unpacker_create(&s->unpacker);
    s->command.id = 0; /* none is to blame */
    return rc ? rc : vn_unpack(s->unpacker, bytes, bytes);
}

static int execute(struct vns_session *s, const struct rpc_msg *msg, bool packed,
                   struct wire_enc *reply)
{
    struct vn_bytes bytes = {msg->data, msg->len};
    int rc = packed ? unpack(s, &bytes) : 0;
    return rc ? rc : vns_stream_execute(s, bytes.data, bytes.len, reply);
}

static int serve_call(struct vns_session *s, struct rpc_msg *msg)
{
    if (msg->method != VN_METHOD_CALL && msg->method != VN_METHOD_CALL_PACKED) {
        answer_error(s, msg, -ENOSYS, "a Vulkan session does not offer that method");
        return 0;
    }
    wire_enc_reset(&s->reply);
    s->fd_in = msg->fd_count > 0 ? rpc_msg_take_fd(msg, 0) : -1;
    int rc = execute(s, msg, msg->method == VN_METHOD_CALL_PACKED, &s->reply);
    if (rc == 0)
        rc = answer(s, msg, &s->reply);
    close_fd(&s->fd_in);
    close_fd(&s->fd_out);
    return rc;
}

static int serve_one(struct vns_session *s, struct rpc_msg *msg)
{
    int rc = 0;
    if (msg->kind == RPC_CALL)
        rc = serve_call(s, msg);
    else if (msg->kind == RPC_POST &&
             (msg->method == VN_METHOD_STREAM || msg->method == VN_METHOD_STREAM_PACKED))
        rc = execute(s, msg, msg->method == VN_METHOD_STREAM_PACKED, NULL);
    release(s, msg);
    vns_messages_push(&s->messages, &s->channel);
    return rc;
}

/* Somebody else may wait until this session's work has drained. */
static void rest(struct vns_session *s)
{
    for (struct vns_device *device = s->devices; device; device = device->next) {
        for (struct vns_queue *queue = device->queues; queue; queue = queue->next)
            vns_queue_watch(queue);
    }
    vns_slice_rest(s->reports.slice);
}

/* While nothing arrives the executor waits for the work that it has just submitted. */
static struct rpc_msg *next_message(struct vns_session *s)
{
    struct rpc_msg *msg = NULL;
    if (vns_slice_is_watched(s->reports.slice) && (msg = vns_channel_poll(&s->channel)) == NULL)
        rest(s);
    while (!msg && s->reports.held && (msg = vns_channel_poll(&s->channel)) == NULL)
        vns_queue_report_held(&s->reports);
    vns_queue_hand_over(&s->reports);
    return msg ? msg : vns_channel_receive(&s->channel);
}

/* One line here, and the same words to the client. */
static void end_with_fault(struct vns_session *s, int rc)
{
    char text[VNS_WHY_CHARS];
    if (s->decoder.bad_id && (rc == -ENOENT || rc == -EEXIST))
        snprintf(text, sizeof(text), "%s: id %llu %s", vns_stream_where(s),
                 (unsigned long long)s->decoder.bad_id,
                 rc == -ENOENT ? "is unknown or of another type" : "is in use");
    else if (rc == -EDQUOT && s->command.id == VN_OP_RECORD_KEPT)
        snprintf(text, sizeof(text), "RECORD_KEPT: over a limit (recordings that a server keeps)");
    else if (rc == -EDQUOT)
        snprintf(text, sizeof(text),
                 "%s: over a limit (--max-objects, --max-pipelines, --max-pending)",
                 vns_stream_where(s));
    else
        snprintf(text, sizeof(text), "%s: %s", vns_stream_where(s), strerror(-rc));
    hw_warn(HW_CAT_VULKAN, "%s: session ended: %s", rpc_ep_peer(s->channel.ep), text);
    vns_channel_end(&s->channel, rc, text);
}

/* ---- life ---- */

/* Of the session's arrivals: the heartbeat thread reads them, another gives them connections. */
static pthread_mutex_t stripes_lock = PTHREAD_MUTEX_INITIALIZER;

/* What was counted before the fork is in the other process's figures. */
static void publish_stats(struct vns_session *s)
{
    const _Atomic uint64_t *now = (const _Atomic uint64_t *)rpc_ep_stats(s->channel.ep);
    _Atomic uint64_t *shown = (_Atomic uint64_t *)s->options.stats;
    for (size_t i = 0; shown && i < RPC_STATS_COUNT; i++) {
        uint64_t before = rpc_stats_defs[i].kind == HW_COUNTER ? s->stats_before[i] : 0;
        atomic_store_explicit(&shown[i], hw_counter_load(&now[i]) - before, memory_order_relaxed);
    }
    pthread_mutex_lock(&stripes_lock);
    if (shown && s->arrivals)
        hw_counter_bump(&s->options.stats->bytes_received, vns_arrivals_bytes(s->arrivals));
    pthread_mutex_unlock(&stripes_lock);
}

static void note_stats(struct vns_session *s, const struct rpc_ep *ep)
{
    const _Atomic uint64_t *now = (const _Atomic uint64_t *)rpc_ep_stats(ep);
    for (size_t i = 0; i < RPC_STATS_COUNT; i++)
        s->stats_before[i] = hw_counter_load(&now[i]);
}

static void tick(void *user)
{
    struct vns_session *s = user;
    publish_stats(s);
    vns_slice_tell(s->options.slice);
    vns_messages_push(&s->messages, &s->channel);
}

static void fill_defaults(struct vns_session_options *o)
{
    if (!o->max_objects)
        o->max_objects = VNS_MAX_OBJECTS_DEFAULT;
    if (!o->max_pipelines)
        o->max_pipelines = VNS_MAX_PIPELINES_DEFAULT;
    if (!o->max_pending)
        o->max_pending = VNS_MAX_PENDING_DEFAULT;
}

static uint8_t *place_arrival(void *user, uint64_t memory, uint64_t off, size_t len)
{
    return vns_memories_place(user, memory, off, len);
}

/* Memory 0 is poisoned: what is written there is nothing, as in the stream. */
static int store_arrival(void *user, uint64_t memory, uint64_t off, const void *bytes, size_t len)
{
    return memory ? vns_memories_store(user, memory, off, bytes, len) : 0;
}

/* Where they cannot be had, the client does without. */
static void start_stripes(struct vns_session *s)
{
    static const struct vns_arrival_ops ops = {.place = place_arrival, .store = store_arrival};
    struct vns_session_options *o = &s->options;
    int rc = 0;
    for (unsigned i = 0; i < o->stripe_count && o->next_resumption && rc == 0; i++)
        rc = rpc_pipe_receiver(o->stripes[i], &o->stripes[i]);
    pthread_mutex_lock(&stripes_lock);
    if (o->stripe_count && rc == 0)
        rc = vns_arrivals_create(o->stripes, o->stripe_count, hw_cores() >= VN_STRIPES_CORES, &ops,
                                 s->memories, &s->arrivals);
    pthread_mutex_unlock(&stripes_lock);
    if (rc)
        hw_warn(HW_CAT_VULKAN, "%s: no threads for its stripes", rpc_ep_peer(s->channel.ep));
}

static void give_stripe(struct vns_session *s, unsigned number, struct rpc_transport *connection)
{
    pthread_mutex_lock(&stripes_lock);
    if (s->arrivals && number < s->options.stripe_count)
        rpc_pipe_give(s->options.stripes[number], connection);
    else
        rpc_transport_destroy(connection);
    pthread_mutex_unlock(&stripes_lock);
}

static void end_stripes(struct vns_session *s)
{
    pthread_mutex_lock(&stripes_lock);
    vns_arrivals_destroy(s->arrivals);
    s->arrivals = NULL;
    pthread_mutex_unlock(&stripes_lock);
}

static void *resume_main(void *arg)
{
    struct vns_session *s = arg;
    struct vns_resumption next;
    while (s->options.next_resumption(&next)) {
        if (next.stripe < 0)
            vns_channel_resume(&s->channel, next.connection, next.call, next.received);
        else
            give_stripe(s, (unsigned)next.stripe, next.connection);
    }
    return NULL;
}

static int start_resuming(struct vns_session *s)
{
    pthread_t thread;
    if (!s->options.next_resumption)
        return 0;
    int rc = pthread_create(&thread, NULL, resume_main, s);
    if (rc == 0)
        pthread_detach(thread); /* it ends with the process */
    return -rc;
}

static int start(struct vns_session *s, struct rpc_ep *ep)
{
    fill_defaults(&s->options);
    note_stats(s, ep);
    hw_arena_init(&s->arena, VN_ARENA_MAX);
    wire_enc_init(&s->reply, WIRE_MESSAGE_MAX);
    vns_objects_init(&s->objects, s->options.max_objects, s->options.max_pipelines);
    vns_messages_init(&s->messages);
    int rc = vns_stream_init(s);
    if (rc == 0)
        rc = vns_channel_init(&s->channel, ep, tick, s);
    if (rc == 0)
        rc = vns_memories_create(&s->channel, s->options.max_memory_bytes, &s->memories);
    if (rc == 0)
        rc = vns_uploads_create(s->options.uploads, &s->uploads);
    if (rc == 0)
        start_stripes(s);
    if (rc == 0)
        rc = start_resuming(s);
    if (rc == 0)
        rc = vns_pipelines_create(s->options.compile_threads, &s->pipelines);
    s->reports = (struct vns_reports){.channel = &s->channel,
                                      .memories = s->memories,
                                      .max_pending = s->options.max_pending,
                                      .slice = s->options.slice,
                                      .holds = true};
    vns_wait_init(&s->reports.wait);
    (void)hw_env_bool("VENUS_SHORT_WAITS", true, &s->reports.holds);
    return rc;
}

int vns_session_run(struct rpc_ep *ep, struct rpc_msg *open,
                    const struct vns_session_options *options)
{
    struct vns_session *s = calloc(1, sizeof(*s)); /* the process's; see the header */
    struct rpc_msg *msg;
    if (!s)
        return 1;
    s->options = *options;
    int rc = start(s, ep);
    if (rc)
        return 1;
    if (open_session(s, open))
        return 1;
    while (rc == 0 && (msg = next_message(s)) != NULL)
        rc = serve_one(s, msg);
    publish_stats(s);
    if (rc)
        end_with_fault(s, rc);
    else
        vns_channel_leave(&s->channel);
    if (!rc && s->options.validate && !s->devices)
        vns_instance_close(&s->instance); /* for the layer's last words */
    end_stripes(s);                       /* before the memory goes with the process */
    vns_uploads_destroy(s->uploads);      /* what the client sent last is kept, too */
    return rc ? 1 : 0;
}
