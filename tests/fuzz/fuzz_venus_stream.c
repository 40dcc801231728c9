/* Whole sessions of a hostile client: streams of commands and operations, executed by the server's
 * own stream executor on a driver without a GPU, with queue threads that report to a peer which
 * reads.  A stream ends in 0 or a negative errno, which ends the session; whatever came, the
 * session can be taken down, and nothing that counts against a limit is left.
 *
 * venus_script.h has the input's layout; venus_mutator.c makes inputs that get far. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "bench/rpc/loopback.h"
#include "venus/common/protocol.h"
#include "venus/memory/delta.h"
#include "venus/server/session/state.h"
#include "venus_gpu.h"
#include "venus_script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    ARENA_BYTES = 1 << 20, /* of one command; less than a real session's, so that inputs are fast */
    MEMORY_BYTES = 1 << 19,
    OBJECTS = 1 << 10,
    PIPELINES = 64,
    PENDING = 64,
    STORE_BYTES = 1 << 20, /* of the upload cache */
    TIGHT = 4,             /* what is left of each limit when the session is a tight one */
    TIGHT_ARENA_BYTES = 8 << 10,
    ERRNO_MAX = 4095,
};

/* ---- the peer: everything that the server sends is read at once ---- */

struct peer {
    struct rpc_transport base; /* the server's end */
    struct rpc_transport *inner;
    pthread_mutex_t lock; /* loopback is for one thread */
    struct rpc_loopnet *net;
    struct rpc_ep *client;
    struct vn_delta_codec *codec;
};

static void check_push(struct peer *p, const struct rpc_msg *msg)
{
    struct vn_delta_in delta;
    gpu_require(msg->kind == RPC_PUSH);
    switch (msg->method) {
    case VN_PUSH_DELTA:
        gpu_require(msg->len > 8 && vn_delta_open(p->codec, msg->data + 8, msg->len - 8,
                                                  MEMORY_BYTES, &delta) == 0);
        return;
    case VN_PUSH_DROP:
        gpu_require(msg->len == 24);
        return;
    case VN_PUSH_FILL:
        gpu_require(msg->len > 16 && msg->len - 16 <= VN_FETCH_MAX);
        return;
    case VN_PUSH_PAGES:
        gpu_require(msg->len > 16 && (msg->len - 16) % VN_PAGE_BYTES == 0);
        return;
    case VN_PUSH_RESULTS:
        gpu_require(msg->len > 24 && (msg->len - 24) % 8 == 0);
        return;
    case VN_PUSH_DONE:
        gpu_require(msg->len == 20);
        return;
    case VN_PUSH_FAILED:
        gpu_require(msg->len == 16);
        return;
    case VN_PUSH_COMPILED:
        gpu_require(msg->len == 8);
        return;
    default:
        gpu_require(false);
    }
}

static void read_all(struct peer *p)
{
    struct rpc_msg *msg;
    (void)rpc_poll(p->client);
    while ((msg = rpc_recv(p->client)) != NULL) {
        check_push(p, msg);
        rpc_release(p->client, msg);
    }
    (void)rpc_flush(p->client);
}

static ssize_t peer_send(struct rpc_transport *t, const struct iovec *iov, int count)
{
    struct peer *p = (struct peer *)t;
    pthread_mutex_lock(&p->lock);
    ssize_t n = p->inner->ops->send(p->inner, iov, count);
    read_all(p);
    pthread_mutex_unlock(&p->lock);
    return n;
}

static ssize_t peer_recv(struct rpc_transport *t, const struct iovec *iov, int count,
                         uint64_t timeout_ns)
{
    struct peer *p = (struct peer *)t;
    pthread_mutex_lock(&p->lock);
    ssize_t n = p->inner->ops->recv(p->inner, iov, count, timeout_ns);
    pthread_mutex_unlock(&p->lock);
    return n;
}

static int peer_wait(struct rpc_transport *t, unsigned events, uint64_t timeout_ns)
{
    struct peer *p = (struct peer *)t;
    pthread_mutex_lock(&p->lock);
    int rc = p->inner->ops->wait(p->inner, events, timeout_ns);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

static int peer_poll_fd(struct rpc_transport *t)
{
    (void)t;
    return -1;
}

static void peer_destroy(struct rpc_transport *t)
{
    (void)t;
}

static const struct rpc_transport_ops peer_ops = {
    .name = "peer",
    .send = peer_send,
    .recv = peer_recv,
    .wait = peer_wait,
    .poll_fd = peer_poll_fd,
    .destroy = peer_destroy,
};

/* One connection serves all inputs: it is not what is tested. */
static struct rpc_ep *connect_peer(void)
{
    static struct peer p = {.base = {.ops = &peer_ops, .peer = "peer"},
                            .lock = PTHREAD_MUTEX_INITIALIZER};
    struct rpc_loopnet_options options = {.seed = 1, .buffer_bytes = 4 << 20};
    struct rpc_config config = {.heartbeat_ns = HW_NEVER, .wait = RPC_WAIT_BLOCK};
    struct rpc_transport *pair[2];
    struct rpc_ep *server;
    gpu_require(vn_delta_codec_create(0, &p.codec) == 0);
    gpu_require(rpc_loopnet_create(&options, &p.net) == 0);
    gpu_require(rpc_loopnet_pair(p.net, pair) == 0);
    p.inner = pair[1];
    gpu_require(rpc_ep_create(pair[0], &config, &p.client) == 0);
    config.accepting = true;
    gpu_require(rpc_ep_create(&p.base, &config, &server) == 0);
    for (int i = 0; i < 100 && (rpc_ep_status(server) || rpc_ep_status(p.client)); i++) {
        pthread_mutex_lock(&p.lock);
        read_all(&p);
        pthread_mutex_unlock(&p.lock);
        (void)rpc_poll(server);
        (void)rpc_flush(server);
    }
    gpu_require(rpc_ep_status(server) == 0 && rpc_ep_status(p.client) == 0);
    return server;
}

static const struct vn_exec_ops *server_ops;

/* ---- what ends with something else, which the driver cannot know ---- */

struct ended {
    size_t count;
    struct {
        uint32_t type;
        void *handle;
    } things[OBJECTS];
};

static void note(struct ended *ended, const struct vns_thing *thing)
{
    if (!thing->handle || thing->type == VK_OBJECT_TYPE_QUEUE)
        return;
    gpu_require(ended->count < OBJECTS);
    ended->things[ended->count].type = thing->type;
    ended->things[ended->count++].handle = thing->handle;
}

static void note_members(struct ended *ended, const struct vns_thing *pool)
{
    for (const struct vns_thing *member = pool ? pool->members : NULL; member;
         member = member->next)
        note(ended, member);
}

static void tell_driver(struct ended *ended)
{
    for (size_t i = 0; i < ended->count; i++)
        gpu_destroyed(ended->things[i].type, ended->things[i].handle);
    ended->count = 0;
}

/* A live object may be forgotten only when the driver was called. */
static void destroyed(void *objects, uint32_t type, uint64_t id)
{
    static struct ended ended;
    struct vns_session *s = objects;
    const struct vns_thing *thing = vns_objects_find(&s->objects, id, type);
    note_members(&ended, thing);
    if (thing && !thing->users) /* what jobs use ends later */
        note(&ended, thing);
    bool lives = thing && thing->handle;
    server_ops->destroyed(objects, type, id);
    gpu_require(!lives || !s->decoder.poisoned || s->fault);
    tell_driver(&ended);
}

static void destroy_device(struct vn_exec *x, struct vn_args_vkDestroyDevice *a)
{
    static struct ended ended;
    struct vns_session *s = x->objects;
    const struct vns_thing *thing;
    for (size_t at = 0; (thing = vn_keymap_next(&s->objects.things, &at)) != NULL;) {
        if (s->command.device && thing->device == s->command.device)
            note(&ended, thing);
    }
    vns_server_hooks.vkDestroyDevice(x, a);
    tell_driver(&ended);
}

static void reset_descriptor_pool(struct vn_exec *x, struct vn_args_vkResetDescriptorPool *a)
{
    static struct ended ended;
    struct vns_session *s = x->objects;
    note_members(&ended, s->command.pool);
    vns_server_hooks.vkResetDescriptorPool(x, a);
    tell_driver(&ended);
}

static void watch_ends(struct vns_session *s)
{
    static struct vn_exec_ops ops;
    static struct vn_hooks hooks;
    server_ops = s->exec.ops;
    ops = *server_ops;
    ops.destroyed = destroyed;
    hooks = vns_server_hooks;
    hooks.vkDestroyDevice = destroy_device;
    hooks.vkResetDescriptorPool = reset_descriptor_pool;
    s->exec.ops = &ops;
    s->exec.hooks = &hooks;
}

/* ---- a session, as session.c makes one, that can be taken down ---- */

static void swallow(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

/* These serve all inputs. */
static struct vns_upload_store *store;
static struct vns_upload_share *share;
static struct vns_upload_user *user;

static void end_uploads(void)
{
    vns_upload_user_destroy(user);
    vns_upload_share_destroy(share);
    vns_upload_store_destroy(store);
}

/* An upload cache with one piece, which is held as if the client had asked for it. */
static void start_uploads(struct vns_session *s)
{
    static uint8_t piece[3 * VN_PAGE_BYTES], name[VN_NAME_BYTES];
    uint8_t proof[VN_PROOF_BYTES], body[4 + 4 + VN_NAME_BYTES + VN_PROOF_BYTES];
    char why[VNS_UPLOAD_STORE_WHY];
    struct wire_enc e;
    struct wire_dec d;
    if (!store) {
        memset(piece, 0x5a, sizeof(piece));
        vn_piece_name(piece, sizeof(piece), name);
        gpu_require(vns_upload_store_create(NULL, STORE_BYTES, &store, why) == 0);
        gpu_require(vns_upload_store_put(store, name, piece, sizeof(piece)) == 0);
        gpu_require(vns_upload_share_create(store, &share) == 0);
        gpu_require(vns_upload_user_create(vns_upload_share_invite(share),
                                           vns_upload_share_limit(share), &user) == 0);
        gpu_require(atexit(end_uploads) == 0);
    }
    gpu_require(vns_uploads_create(user, &s->uploads) == 0);
    gpu_require(vn_piece_proof(vns_uploads_key(s->uploads), piece, sizeof(piece), proof) == 0);
    wire_enc_init_fixed(&e, body, sizeof(body));
    wire_put_u32(&e, 1);
    wire_put_u32(&e, sizeof(piece));
    wire_put_bytes(&e, name, sizeof(name));
    wire_put_bytes(&e, proof, sizeof(proof));
    wire_dec_init(&d, body, sizeof(body));
    gpu_require(vns_uploads_hold(s->uploads, &d, NULL) == 0);
}

/* The channel stays: to end its thread and start another costs more than most inputs do. */
static void start_session(struct vns_session *s)
{
    uint8_t *behind = (uint8_t *)(&s->channel + 1);
    memset(s, 0, offsetof(struct vns_session, channel));
    memset(behind, 0, (size_t)((uint8_t *)(s + 1) - behind));
    hw_arena_init(&s->arena, ARENA_BYTES);
    wire_enc_init(&s->reply, WIRE_MESSAGE_MAX);
    vns_objects_init(&s->objects, OBJECTS, PIPELINES);
    vns_messages_init(&s->messages);
    gpu_require(vns_stream_init(s) == 0);
    gpu_require(vns_memories_create(&s->channel, MEMORY_BYTES, &s->memories) == 0);
    s->reports = (struct vns_reports){
        .channel = &s->channel, .memories = s->memories, .max_pending = PENDING};
    gpu_require(vns_pipelines_create(VNS_PIPELINES_LAZY, &s->pipelines) == 0);
    start_uploads(s);
    watch_ends(s);
    gpu_open(&s->instance);
}

static void end_session(struct vns_session *s)
{
    vns_pipelines_finish(s);
    vns_pipelines_destroy(s->pipelines);
    vns_uploads_destroy(s->uploads);
    while (s->devices) {
        struct vns_device *device = s->devices;
        s->devices = device->next;
        vns_objects_remove_device(&s->objects, device);
        vns_device_stop(device);
        vns_memories_free_device(s->memories, device);
        vns_device_destroy(device);
    }
    gpu_require(s->reports.pending == 0 && vns_memories_expose(s->memories, NULL, 0) == 0);
    vns_memories_destroy(s->memories);
    vn_keymap_fini(&s->classes);
    free(s->named.things);
    vns_objects_fini(&s->objects);
    gpu_require(s->objects.kept_bytes == 0);
    wire_enc_fini(&s->reply);
    hw_arena_fini(&s->arena);
    free(s->instance.devices);
}

/* ---- what is live when the input begins ---- */

static void add(struct vns_session *s, uint32_t type, uint32_t number, void *handle,
                struct vns_thing *pool)
{
    bool owned = type != VK_OBJECT_TYPE_INSTANCE && type != VK_OBJECT_TYPE_PHYSICAL_DEVICE;
    gpu_require(vns_objects_add(&s->objects, type, script_id(type, number), handle,
                                owned ? s->devices : NULL, pool) == 0);
}

static struct vns_thing *pool_of(struct vns_session *s, uint32_t type)
{
    uint32_t pool = type == VK_OBJECT_TYPE_COMMAND_BUFFER   ? VK_OBJECT_TYPE_COMMAND_POOL
                    : type == VK_OBJECT_TYPE_DESCRIPTOR_SET ? VK_OBJECT_TYPE_DESCRIPTOR_POOL
                                                            : VK_OBJECT_TYPE_UNKNOWN;
    return pool ? vns_objects_find(&s->objects, script_id(pool, 1), pool) : NULL;
}

/* Devices, with a queue or two and memory of each kind. */
static void make_devices(struct vns_session *s)
{
    struct wire_enc e;
    wire_enc_init(&e, SCRIPT_MESSAGE_MAX);
    for (uint32_t i = SCRIPT_LIVE; i > 0; i--)
        script_create_device(&e, i, i); /* the last one owns what make_objects makes */
    script_get_queue(&e, 1, 0, 1);
    script_get_queue2(&e, 1, 0, 2);
    script_get_queue(&e, 2, 0, 3);
    for (uint32_t i = 1; i <= SCRIPT_LIVE; i++)
        script_allocate(&e, 1, i, SCRIPT_MEMORY_BYTES, i % GPU_MEMORY_TYPES);
    gpu_require(vns_stream_execute(s, wire_enc_data(&e), wire_enc_len(&e), NULL) == 0);
    gpu_require(s->devices && s->devices->next);
    wire_enc_fini(&e);
}

static void make_objects(struct vns_session *s)
{
    for (uint32_t number = 2; number <= SCRIPT_LIVE; number++)
        add(s, VK_OBJECT_TYPE_INSTANCE, number, s->instance.handle, NULL);
    add(s, VK_OBJECT_TYPE_DEVICE, SCRIPT_POISONED, NULL, NULL);
    add(s, VK_OBJECT_TYPE_QUEUE, SCRIPT_POISONED, NULL, NULL);
    add(s, VK_OBJECT_TYPE_DEVICE_MEMORY, SCRIPT_POISONED, NULL, NULL);
    for (size_t i = 0; i < script_type_count; i++) {
        struct vns_thing *pool = pool_of(s, script_types[i]);
        for (uint32_t number = 1; number <= SCRIPT_LIVE; number++)
            add(s, script_types[i], number, gpu_make(script_types[i]), pool);
        add(s, script_types[i], SCRIPT_POISONED, NULL, pool);
    }
}

static void tighten(struct vns_session *s)
{
    s->objects.max = vn_keymap_count(&s->objects.things) + TIGHT;
    s->objects.max_pipelines = s->objects.pipelines + TIGHT;
    s->reports.max_pending = TIGHT;
    hw_arena_fini(&s->arena);
    hw_arena_init(&s->arena, TIGHT_ARENA_BYTES);
}

static void prepare(struct vns_session *s, uint8_t options)
{
    add(s, VK_OBJECT_TYPE_INSTANCE, 1, s->instance.handle, NULL);
    for (uint32_t i = 0; i < s->instance.device_count; i++)
        add(s, VK_OBJECT_TYPE_PHYSICAL_DEVICE, 1 + i, s->instance.devices[i], NULL);
    if (!(options & SCRIPT_BARE)) {
        make_devices(s);
        make_objects(s);
    }
    if (options & SCRIPT_TIGHT)
        tighten(s);
}

/* ---- messages ---- */

static void set_mood(uint8_t how)
{
    static const VkResult results[] = {VK_SUCCESS, VK_SUCCESS, VK_INCOMPLETE,
                                       VK_ERROR_OUT_OF_DEVICE_MEMORY};
    gpu_set_mood(&(struct gpu_mood){.result = results[(how >> SCRIPT_RESULT_SHIFT) & 3],
                                    .delay = (how >> SCRIPT_DELAY_SHIFT) & 3,
                                    .lost = (how & SCRIPT_LOST) == SCRIPT_LOST});
}

/* The copy ends where the message does, so that a sanitizer sees a read behind it. */
static int execute(struct vns_session *s, uint8_t how, const uint8_t *data, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    gpu_require(copy);
    memcpy(copy, data, len);
    set_mood(how);
    wire_enc_reset(&s->reply);
    int rc = vns_stream_execute(s, copy, len, how & SCRIPT_CALL ? &s->reply : NULL);
    gpu_require(rc <= 0 && rc >= -ERRNO_MAX && vns_stream_where(s));
    free(copy);
    return rc ? rc : wire_enc_error(&s->reply);
}

static void run(struct vns_session *s, const uint8_t *data, size_t size)
{
    int rc = 0;
    while (rc == 0 && size >= SCRIPT_MESSAGE_HEAD) {
        size_t len = wire_load16(data + 1), left = size - SCRIPT_MESSAGE_HEAD;
        if (len > left)
            len = left;
        rc = execute(s, data[0], data + SCRIPT_MESSAGE_HEAD, len);
        data += SCRIPT_MESSAGE_HEAD + len;
        size = left - len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vns_session *s;
    if (!s) {
        hw_log_set_sink(swallow, NULL);
        s = calloc(1, sizeof(*s));
        gpu_require(s && vns_channel_init(&s->channel, connect_peer(), NULL, NULL) == 0);
    }
    gpu_start(MEMORY_BYTES);
    start_session(s);
    prepare(s, size ? data[0] : 0);
    if (size)
        run(s, data + 1, size - 1);
    end_session(s);
    gpu_stop();
    gpu_require(rpc_ep_status(s->channel.ep) == 0);
    return 0;
}
