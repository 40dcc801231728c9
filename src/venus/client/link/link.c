/* The connection to one server; see link.h. */
#include "venus/client/link/link.h"

#include "base/clock.h"
#include "base/driver_counts.h"
#include "base/log.h"
#include "base/units.h"
#include "rpc/resume/resume.h"
#include "venus/client/link/door.h"
#include "venus/client/link/pushes.h"
#include "venus/client/link/stripes.h"
#include "venus/client/locks.h"
#include "venus/client/object/objects.h"
#include "venus/client/perf.h"
#include "venus/client/record/command.h"
#include "venus/common/protocol.h"
#include "venus/common/transfer/pack.h"
#include "venus/memory/track/kernel.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    PACK_MIN = 64, /* below this there is little to gain, and latency to lose */
};

struct vnc_link {
    struct vn_client client; /* first: objects find the link by it */
    struct rpc_client *rpc;
    struct vnc_stripes *stripes; /* NULL: none; does not change once OPEN was answered */
    struct vnc_pushes *pushes;

    pthread_mutex_t stream; /* guards out and start, and the order in which messages are queued */
    struct wire_enc out;
    size_t start;             /* of what was put since begin */
    struct vn_packer *packer; /* likewise; NULL: messages travel as they are */

    pthread_mutex_t asides; /* see vnc_link_hold_asides; after the stream's lock or alone */

    _Atomic uint64_t next_id;
    _Atomic size_t kept;        /* bytes of recordings, at the server; relaxed: a count */
    _Atomic uint64_t exchanges; /* relaxed: a figure */
    _Atomic uint64_t quickest;  /* call so far, in ns; the same */
    /* Relaxed: they carry nothing else, and a turn that is missed comes again. */
    _Atomic uintptr_t recorder;    /* the thread that began the latest recording */
    _Atomic unsigned record_turns; /* that it was another one than before; up to SHARED_TURNS */
    /* Relaxed: a thread that sees it late gets the same answer from the connection. */
    _Atomic bool lost;
    /* Release and acquire: `why` was written before, by the one thread that set lost. */
    _Atomic bool explained;
    char why[RPC_WHY_CHARS];
    /* Relaxed: by an instance; see vnc_link_set_used. */
    _Atomic bool used;
    struct vn_kernel *kernel; /* held so that forks are counted */
    unsigned forks;           /* of the process that made the link */
    char address[RPC_ADDR_HOST_CHARS + 16];
    struct vnc_link *next; /* of all in this process */
};

/* One call under way.  The waiting thread and the connection each hold it: whoever is last frees.
 */
struct vnc_call {
    struct vnc_link *link;
    uint64_t start_ns;
    _Atomic int holders;
    bool done;   /* and status, data, len: written by the reply, under the connection's lock */
    bool seen;   /* done, by the waiting thread */
    bool waited; /* that thread's first look did not find it done */
    int status;
    VkResult queued; /* what came of queueing it */
    uint8_t *data;
    size_t len;
    int fd; /* came with the reply; -1: none, or taken */
    struct hw_arena arena;
};

/* ---- losing the server ---- */

bool vnc_link_is_foreign(const struct vnc_link *link)
{
    return link->forks != vn_kernel_forks();
}

bool vnc_link_is_lost(struct vnc_link *link)
{
    return atomic_load_explicit(&link->lost, memory_order_relaxed) || vnc_link_is_foreign(link);
}

void vnc_link_set_used(struct vnc_link *link, bool used)
{
    atomic_store_explicit(&link->used, used, memory_order_relaxed);
}

void vnc_link_lose(struct vnc_link *link, const char *why)
{
    if (atomic_exchange_explicit(&link->lost, true, memory_order_relaxed))
        return;
    snprintf(link->why, sizeof(link->why), "%s", why);
    atomic_store_explicit(&link->explained, true, memory_order_release);
    if (atomic_load_explicit(&link->used, memory_order_relaxed))
        hw_error(HW_CAT_VULKAN, "the GPU at %s is lost: %s", link->address, why);
}

const char *vnc_link_why_lost(const struct vnc_link *link)
{
    return atomic_load_explicit(&link->explained, memory_order_acquire) ? link->why : NULL;
}

static VkResult lose_for_status(struct vnc_link *link)
{
    if (vnc_link_is_foreign(link))
        return VK_ERROR_DEVICE_LOST; /* the connection is the parent's, and well */
    char why[RPC_WHY_CHARS];
    rpc_client_reason(link->rpc, why);
    vnc_link_lose(link, why);
    return VK_ERROR_DEVICE_LOST;
}

/* Found out by whichever thread reads, so that calls which only gather are told, too. */
static void on_end(void *user, int status, const char *reason)
{
    (void)status;
    vnc_link_lose(user, reason);
}

/* ---- pushes ---- */

static void on_push(void *user, const struct rpc_msg *push)
{
    struct vnc_link *link = user;
    int rc = vnc_pushes_take(link->pushes, push);
    if (rc) {
        char why[RPC_WHY_CHARS];
        snprintf(why, sizeof(why), "it sent what cannot be read (%s)", strerror(-rc));
        vnc_link_lose(link, why);
    }
}

/* ---- the stream ---- */

/* Half of what the server takes: bytes that are given up here go there with what is sent next. */
bool vnc_link_keep(struct vnc_link *link, size_t bytes)
{
    size_t before = atomic_fetch_add_explicit(&link->kept, bytes, memory_order_relaxed);
    if (before + bytes <= VN_KEPT_RECORDINGS_MAX / 2)
        return true;
    vnc_link_unkeep(link, bytes);
    return false;
}

void vnc_link_unkeep(struct vnc_link *link, size_t bytes)
{
    atomic_fetch_sub_explicit(&link->kept, bytes, memory_order_relaxed);
}

struct wire_enc *vnc_link_begin(struct vnc_link *link)
{
    if (vnc_link_is_lost(link))
        return NULL;
    pthread_mutex_lock(&link->stream);
    link->start = wire_enc_len(&link->out);
    return &link->out;
}

/* What the server takes at once. */
static size_t message_max(const struct vnc_link *link)
{
    uint32_t most = rpc_ep_message_max(rpc_client_ep(link->rpc));
    return most < WIRE_MESSAGE_MAX ? most : WIRE_MESSAGE_MAX;
}

bool vnc_link_is_spoilt(const struct vnc_link *link)
{
    return wire_enc_error(&link->out) || wire_enc_len(&link->out) - link->start > message_max(link);
}

/* How much of the buffer's first len bytes travels by itself, since all is more than the server
 * takes: what was put before begin. */
static size_t apart(const struct vnc_link *link, size_t len)
{
    return len > message_max(link) ? link->start : 0;
}

/* How these bytes of the buffer travel: with this method, or packed with the next. */
static int prepare(struct vnc_link *link, size_t from, size_t to, struct rpc_send *send,
                   struct iovec *iov)
{
    size_t len = to - from;
    struct vn_bytes bytes = {wire_enc_data(&link->out) + from, len};
    bool packed = link->packer && len >= PACK_MIN && len <= VN_PACK_MAX;
    int rc = packed ? vn_pack(link->packer, &bytes, &bytes) : 0;
    *iov = (struct iovec){(void *)(uintptr_t)bytes.data, bytes.len};
    send->method += packed;
    send->iov = iov;
    send->iov_count = 1;
    return rc;
}

/* Queues these bytes of the buffer as one post. */
static VkResult post_bytes(struct vnc_link *link, size_t from, size_t to)
{
    if (from == to)
        return VK_SUCCESS;
    struct iovec iov;
    struct rpc_send send = {.method = VN_METHOD_STREAM, .timeout_ns = HW_NEVER};
    int rc = prepare(link, from, to, &send, &iov);
    if (rc == 0)
        rc = rpc_client_post(link->rpc, &send);
    else
        vnc_link_lose(link, "out of memory for what it is to be sent");
    return rc ? lose_for_status(link) : VK_SUCCESS;
}

/* Queues the first len bytes of the buffer and empties the buffer. */
static VkResult post_gathered(struct vnc_link *link, size_t len)
{
    size_t before = apart(link, len);
    VkResult result = post_bytes(link, 0, before);
    if (result == VK_SUCCESS)
        result = post_bytes(link, before, len);
    wire_enc_reset(&link->out);
    link->start = 0;
    return result;
}

/* Drops what was put since begin; what was there before must still go. */
static VkResult drop_failed(struct vnc_link *link)
{
    VkResult result = post_gathered(link, link->start);
    wire_enc_reset(&link->out);
    return result == VK_SUCCESS ? VK_ERROR_OUT_OF_HOST_MEMORY : result;
}

void vnc_link_cancel(struct vnc_link *link)
{
    if (wire_enc_error(&link->out))
        (void)drop_failed(link);
    else
        wire_enc_trim(&link->out, link->start);
    pthread_mutex_unlock(&link->stream);
}

static VkResult post_over(struct vnc_link *link, size_t most)
{
    if (vnc_link_is_spoilt(link))
        return drop_failed(link);
    size_t len = wire_enc_len(&link->out);
    return len > most ? post_gathered(link, len) : VK_SUCCESS;
}

VkResult vnc_link_checkpoint(struct vnc_link *link)
{
    VkResult result = post_over(link, VNC_LINK_GATHER_BYTES);
    link->start = wire_enc_len(&link->out);
    return result;
}

static void on_sent(void *user)
{
    (void)user; /* the flush behind the post says so, too */
}

VkResult vnc_link_put_bulk(struct vnc_link *link, const void *bytes, size_t len)
{
    if (wire_enc_error(&link->out))
        return drop_failed(link);
    struct iovec iov[] = {{(void *)(uintptr_t)wire_enc_data(&link->out), wire_enc_len(&link->out)},
                          {(void *)(uintptr_t)bytes, len}};
    struct rpc_send send = {.method = VN_METHOD_STREAM,
                            .iov = iov,
                            .iov_count = len ? ARRAY_LEN(iov) : 1,
                            .timeout_ns = HW_NEVER,
                            .sent = on_sent};
    int rc = rpc_client_post(link->rpc, &send);
    if (rc == 0)
        rc = rpc_client_flush(link->rpc);
    wire_enc_reset(&link->out);
    link->start = 0;
    return rc ? lose_for_status(link) : VK_SUCCESS;
}

/* ---- beside the stream ---- */

struct aside {
    struct vnc_link *link;
    bool (*done)(void *user);
    void *user;
};

/* What cannot be read loses the server, though the connection lives. */
static bool aside_is_decided(void *user)
{
    struct aside *aside = user;
    return aside->done(aside->user) || vnc_link_is_lost(aside->link);
}

int vnc_link_ask_aside(struct vnc_link *link, const struct wire_enc *message,
                       bool (*done)(void *user), void *user)
{
    struct iovec iov = {(void *)(uintptr_t)wire_enc_data(message), wire_enc_len(message)};
    struct rpc_send send = {
        .method = VN_METHOD_STREAM, .iov = &iov, .iov_count = 1, .timeout_ns = HW_NEVER};
    struct aside aside = {link, done, user};
    if (wire_enc_error(message))
        return wire_enc_error(message);
    if (vnc_link_is_lost(link))
        return -ESHUTDOWN;
    pthread_mutex_lock(&link->asides);
    int rc = rpc_client_post(link->rpc, &send);
    pthread_mutex_unlock(&link->asides);
    atomic_fetch_add_explicit(&link->exchanges, 1, memory_order_relaxed);
    if (rc == 0)
        rc = rpc_client_wait(link->rpc, aside_is_decided, &aside, HW_NEVER);
    if (rc)
        (void)lose_for_status(link);
    return vnc_link_is_lost(link) ? -ESHUTDOWN : 0;
}

void vnc_link_hold_asides(struct vnc_link *link)
{
    pthread_mutex_lock(&link->asides);
}

VkResult vnc_link_release_asides(struct vnc_link *link)
{
    VkResult result = post_over(link, 0);
    link->start = wire_enc_len(&link->out);
    pthread_mutex_unlock(&link->asides);
    return result;
}

/* ---- leaving the stream ---- */

VkResult vnc_link_post(struct vnc_link *link)
{
    if (!vnc_perf(VNC_PERF_COALESCING))
        return vnc_link_send(link);
    VkResult result = post_over(link, VNC_LINK_GATHER_BYTES);
    pthread_mutex_unlock(&link->stream);
    return result;
}

VkResult vnc_link_send(struct vnc_link *link)
{
    VkResult result = post_over(link, 0);
    pthread_mutex_unlock(&link->stream);
    if (result == VK_SUCCESS && rpc_client_flush(link->rpc))
        result = lose_for_status(link);
    return result;
}

VkResult vnc_link_flush(struct vnc_link *link)
{
    return vnc_link_begin(link) ? vnc_link_send(link) : VK_ERROR_DEVICE_LOST;
}

/* ---- calls ---- */

static void call_drop(struct vnc_call *call)
{
    /* Release pairs with the acquire of the last holder, who frees what the other wrote. */
    if (atomic_fetch_sub_explicit(&call->holders, 1, memory_order_acq_rel) > 1)
        return;
    if (call->fd >= 0)
        close(call->fd);
    hw_arena_fini(&call->arena);
    free(call->data);
    free(call);
}

static void on_reply(void *user, int status, const struct rpc_msg *reply)
{
    struct vnc_call *call = user;
    call->status = status;
    if (status == 0 && reply->fd_count > 0)
        call->fd = rpc_msg_take_fd(reply, 0);
    if (status == 0 && reply->len > 0) {
        call->data = malloc(reply->len);
        if (call->data) {
            memcpy(call->data, reply->data, reply->len);
            call->len = reply->len;
        } else {
            call->status = -ENOMEM;
        }
    }
    call->done = true;
    call_drop(call);
}

/* What cannot be read loses the server, though the connection lives: no answer counts then. */
static bool call_is_decided(void *user)
{
    struct vnc_call *call = user;
    call->seen = call->done;
    call->waited |= !call->seen;
    return call->seen || vnc_link_is_lost(call->link);
}

static void drop_object(void *objects, void *handle)
{
    (void)objects;
    vnc_object_destroy(handle);
}

/* Replies hold no handles but those that the client made itself. */
static const struct vn_decoder_ops reply_ops = {.dropped = drop_object};

/* Queues the buffer as a call, with a descriptor unless fd is -1; takes one hold of it. */
static VkResult queue_call(struct vnc_link *link, struct vnc_call *call, int fd)
{
    struct iovec iov;
    struct rpc_send send = {
        .method = VN_METHOD_CALL, .timeout_ns = HW_NEVER, .fds = &fd, .fd_count = fd < 0 ? 0 : 1};
    size_t len = wire_enc_len(&link->out), before = apart(link, len);
    VkResult result = post_bytes(link, 0, before);
    if (result != VK_SUCCESS)
        return result;
    if (prepare(link, before, len, &send, &iov)) {
        vnc_link_lose(link, "out of memory for what it is to be sent");
        return VK_ERROR_DEVICE_LOST;
    }
    atomic_fetch_add_explicit(&call->holders, 1, memory_order_relaxed);
    int rc = rpc_client_call_async(link->rpc, &send, on_reply, call);
    wire_enc_reset(&link->out);
    if (rc == 0)
        return VK_SUCCESS;
    call_drop(call);
    if (rc == -EBADF)
        return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    /* The program has no descriptor left, or chained very much to a command with one. */
    if (rc == -EMFILE || (rc == -EMSGSIZE && fd >= 0))
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    return lose_for_status(link);
}

/* Queues what has gathered as a call; NULL when out of memory. */
static struct vnc_call *call_start(struct vnc_link *link, int fd)
{
    struct vnc_call *call = calloc(1, sizeof(*call));
    if (!call)
        return NULL;
    call->link = link;
    call->start_ns = hw_now_ns();
    call->holders = 1;
    call->fd = -1;
    hw_arena_init(&call->arena, VN_ARENA_MAX);
    call->queued = vnc_link_is_spoilt(link) ? drop_failed(link) : queue_call(link, call, fd);
    return call;
}

/* Of threads that finish at once one may win that was not the quickest: no matter. */
static void note_time(struct vnc_link *link, uint64_t ns)
{
    uint64_t before = atomic_load_explicit(&link->quickest, memory_order_relaxed);
    if (!before || ns < before)
        atomic_store_explicit(&link->quickest, ns, memory_order_relaxed);
}

uint64_t vnc_link_quickest_ns(const struct vnc_link *link)
{
    return atomic_load_explicit(&link->quickest, memory_order_relaxed);
}

VkResult vnc_link_call_end(struct vnc_call *call, struct vn_decoder *reply)
{
    struct vnc_link *link = call->link;
    VkResult result = call->queued;
    if (result == VK_SUCCESS && (rpc_client_wait(link->rpc, call_is_decided, call, HW_NEVER) ||
                                 !call->seen || call->status))
        result = lose_for_status(link);
    atomic_fetch_add_explicit(&link->exchanges, call->waited, memory_order_relaxed);
    if (result != VK_SUCCESS) {
        call_drop(call);
        return result;
    }
    if (call->waited)
        note_time(link, hw_now_ns() - call->start_ns);
    vn_decoder_init(reply, &call->arena, &reply_ops, call);
    vn_decoder_feed(reply, call->data, call->len);
    return VK_SUCCESS;
}

static struct vnc_call *start_and_unlock(struct vnc_link *link, int fd)
{
    struct vnc_call *call = call_start(link, fd);
    if (call)
        pthread_mutex_unlock(&link->stream);
    else
        vnc_link_cancel(link);
    return call;
}

struct vnc_call *vnc_link_call_start(struct vnc_link *link)
{
    return start_and_unlock(link, -1);
}

VkResult vnc_link_call_with_fd(struct vnc_link *link, int fd, struct vn_decoder *reply)
{
    struct vnc_call *call = start_and_unlock(link, fd);
    return call ? vnc_link_call_end(call, reply) : VK_ERROR_OUT_OF_HOST_MEMORY;
}

VkResult vnc_link_call(struct vnc_link *link, struct vn_decoder *reply)
{
    return vnc_link_call_with_fd(link, -1, reply);
}

VkResult vnc_link_call_within(struct vnc_link *link, struct vn_decoder *reply)
{
    struct vnc_call *call = call_start(link, -1);
    if (!call)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    link->start = wire_enc_len(&link->out);
    return vnc_link_call_end(call, reply);
}

VkResult vnc_link_finish(struct vnc_link *link, struct vn_decoder *reply)
{
    struct vnc_call *call = reply->objects;
    int rc = vn_decoder_end(reply);
    call_drop(call);
    if (rc == 0)
        return VK_SUCCESS;
    vnc_link_lose(link, "its answer cannot be read");
    return VK_ERROR_DEVICE_LOST;
}

bool vnc_link_passes_fds(const struct vnc_link *link)
{
    return rpc_ep_passes_fds(rpc_client_ep(link->rpc));
}

struct wire_enc *vnc_link_begin_alone(struct vnc_link *link)
{
    if (!vnc_link_begin(link))
        return NULL;
    if (post_over(link, 0) != VK_SUCCESS) {
        pthread_mutex_unlock(&link->stream);
        return NULL;
    }
    link->start = 0;
    return &link->out;
}

VkResult vnc_link_call_for_fd(struct vnc_link *link, int *out)
{
    struct vn_decoder reply;
    if (vnc_link_call(link, &reply) != VK_SUCCESS)
        return VK_ERROR_OUT_OF_HOST_MEMORY; /* a lost device is told by what can return it */
    struct vnc_call *call = reply.objects;
    VkResult result = (VkResult)wire_get_u32(&reply.in);
    int number = -1; /* the server's, which says only whether there is one */
    if (result == VK_SUCCESS)
        vn_read_words(&reply, &number, 1, 4);
    int fd = call->fd;
    call->fd = -1;
    if (vnc_link_finish(link, &reply) != VK_SUCCESS || (fd < 0 && number >= 0))
        result = VK_ERROR_OUT_OF_HOST_MEMORY;
    if (result == VK_SUCCESS)
        *out = fd;
    else if (fd >= 0)
        close(fd);
    return result;
}

int vnc_link_exchange(struct vnc_link *link, uint32_t method, const struct wire_enc *request,
                      struct rpc_answer *answer)
{
    struct iovec iov = {(void *)wire_enc_data(request), wire_enc_len(request)};
    struct rpc_send send = {.method = method, .iov = &iov, .iov_count = 1};
    int rc = wire_enc_error(request);
    if (rc == 0)
        rc = rpc_client_call(link->rpc, &send, answer);
    if (rc == 0)
        vnc_link_set_used(link, true);
    return rc;
}

/* ---- waiting ---- */

void vnc_link_poll(struct vnc_link *link)
{
    if (!vnc_link_is_lost(link))
        rpc_client_poll(link->rpc);
}

struct counted_wait {
    bool (*done)(void *user);
    void *user;
    bool waited; /* it was not done at the first look */
};

static bool counted_is_done(void *user)
{
    struct counted_wait *wait = user;
    bool done = wait->done(wait->user);
    wait->waited |= !done;
    return done;
}

VkResult vnc_link_wait(struct vnc_link *link, bool (*done)(void *user), void *user,
                       uint64_t timeout_ns)
{
    struct counted_wait wait = {done, user, false};
    if (!vnc_link_begin(link))
        return VK_ERROR_DEVICE_LOST;
    VkResult result = post_over(link, 0); /* which the wait writes */
    pthread_mutex_unlock(&link->stream);
    if (result != VK_SUCCESS)
        return result;
    int rc = rpc_client_wait(link->rpc, counted_is_done, &wait, timeout_ns);
    atomic_fetch_add_explicit(&link->exchanges, rc == 0 && wait.waited, memory_order_relaxed);
    if (rc == 0)
        return VK_SUCCESS;
    return rc == -ETIMEDOUT ? VK_TIMEOUT : lose_for_status(link);
}

void vnc_link_rest(struct vnc_link *link, bool (*done)(void *user), void *user, uint64_t timeout_ns)
{
    if (!vnc_link_is_lost(link))
        (void)!rpc_client_wait(link->rpc, done, user, timeout_ns); /* an end is told by on_end */
}

void vnc_link_counts(const struct vnc_link *link, struct hw_driver_counts *out)
{
    const struct rpc_stats *stats = rpc_client_stats(link->rpc);
    *out = (struct hw_driver_counts){
        .exchanges = atomic_load_explicit(&link->exchanges, memory_order_relaxed),
        .messages_sent = hw_counter_load(&stats->msgs_sent),
        .messages_received = hw_counter_load(&stats->msgs_received),
        .writes = hw_counter_load(&stats->writes),
        .reads = hw_counter_load(&stats->reads),
        .bytes_sent = hw_counter_load(&stats->bytes_sent) +
                      (link->stripes ? vnc_stripes_bytes(link->stripes) : 0),
        .bytes_received = hw_counter_load(&stats->bytes_received),
    };
}

/* ---- who records ---- */

/* The first thread, another one, the first again: not one that goes on with another's work. */
enum { SHARED_TURNS = 3 };

void vnc_link_records(struct vnc_link *link)
{
    uintptr_t self = (uintptr_t)pthread_self();
    if (atomic_load_explicit(&link->recorder, memory_order_relaxed) == self)
        return;
    atomic_store_explicit(&link->recorder, self, memory_order_relaxed);
    if (!vnc_link_is_shared(link))
        atomic_fetch_add_explicit(&link->record_turns, 1, memory_order_relaxed);
}

bool vnc_link_is_shared(const struct vnc_link *link)
{
    return atomic_load_explicit(&link->record_turns, memory_order_relaxed) >= SHARED_TURNS;
}

/* ---- what generated entrypoints use ---- */

static struct vnc_link *link_of(struct vn_client *client)
{
    return (struct vnc_link *)client;
}

static struct wire_enc *client_begin(struct vn_client *client)
{
    return vnc_link_begin(link_of(client));
}

static VkResult client_post(struct vn_client *client, struct wire_enc *e)
{
    (void)e;
    return vnc_link_post(link_of(client));
}

static void client_lose(struct vn_client *client)
{
    vnc_link_lose(link_of(client), "out of memory for what it is to be sent");
}

static VkResult client_call(struct vn_client *client, struct wire_enc *e, struct vn_decoder *reply)
{
    (void)e;
    return vnc_link_call(link_of(client), reply);
}

static VkResult client_finish(struct vn_client *client, struct vn_decoder *reply)
{
    return vnc_link_finish(link_of(client), reply);
}

static struct vn_object *client_object_new(struct vn_client *client, uint32_t type,
                                           struct vn_object *parent)
{
    return vnc_object_create(link_of(client), type, parent);
}

static void client_object_free(struct vn_client *client, struct vn_object *object)
{
    (void)client;
    vnc_object_destroy(object);
}

static struct wire_enc *client_record(struct vn_client *client, struct vn_object *commands,
                                      unsigned effects)
{
    (void)client;
    return vnc_command_buffer_recording((struct vnc_command_buffer *)commands, effects);
}

static void client_recorded(struct vn_client *client, struct vn_object *commands)
{
    (void)client;
    vnc_command_buffer_recorded((struct vnc_command_buffer *)commands);
}

static void client_queries(struct vn_client *client, struct vn_object *commands,
                           struct vn_object *pool, uint32_t first, uint32_t count, bool written)
{
    (void)client;
    if (pool)
        vnc_command_buffer_queries((struct vnc_command_buffer *)commands,
                                   (struct vnc_query_pool *)pool, first, count, written);
}

static void client_ending(struct vn_client *client, struct vn_object *device, uint64_t count,
                          struct vn_object *const *objects)
{
    if (!vnc_link_is_foreign(link_of(client)))
        vnc_recordings_precede((struct vnc_device *)device, count, objects);
}

static const struct vn_client_ops client_ops = {
    .record = client_record,
    .recorded = client_recorded,
    .queries = client_queries,
    .ending = client_ending,
    .begin = client_begin,
    .post = client_post,
    .lose = client_lose,
    .call = client_call,
    .finish = client_finish,
    .object_new = client_object_new,
    .object_free = client_object_free,
};

/* ---- the end of the process ---- */

static pthread_mutex_t links_lock; /* guards the list */
static struct vnc_link *links;

static void make_links_lock(void)
{
    vnc_lock_init(&links_lock);
}

static void enlist(struct vnc_link *link)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_links_lock);
    pthread_mutex_lock(&links_lock);
    link->next = links;
    links = link;
    pthread_mutex_unlock(&links_lock);
}

static void unlist(struct vnc_link *link)
{
    pthread_mutex_lock(&links_lock);
    struct vnc_link **at = &links;
    while (*at && *at != link)
        at = &(*at)->next;
    if (*at)
        *at = link->next;
    pthread_mutex_unlock(&links_lock);
}

/* Many programs exit with their instance there.  The server is told: who closes without a word has
 * died.  Other threads may still be inside, so nothing is freed. */
__attribute__((destructor)) static void leave(void)
{
    if (pthread_mutex_trylock(&links_lock))
        return; /* a thread is about to connect, or to leave by itself */
    for (struct vnc_link *link = links; link; link = link->next) {
        bool was_lost = vnc_link_is_lost(link);
        atomic_store_explicit(&link->lost, true, memory_order_relaxed); /* that is no news */
        if (!was_lost)
            rpc_client_leave(link->rpc);
    }
    pthread_mutex_unlock(&links_lock);
}

/* ---- stripes ---- */

/* A thread at each end for each stripe, and the rest of the cores for everybody else.  Over TLS a
 * core encrypts a third of what a line of 25 Gbit/s carries, so four cores are used for four. */
static unsigned default_stripes(bool tls)
{
    enum { MOST = 5, CORES_EACH = 4, OVER_TLS = 4 };
    unsigned cores = hw_cores(), stripes = cores < VN_STRIPES_CORES ? 0 : 1 + cores / CORES_EACH;
    if (tls && cores >= OVER_TLS && stripes < OVER_TLS)
        stripes = OVER_TLS;
    return stripes < MOST ? stripes : MOST;
}

static bool session_has_ended(void *user)
{
    return vnc_link_is_lost(user);
}

static void lose_session(void *user, const char *why)
{
    vnc_link_lose(user, why);
}

static void drop_stripes(struct vnc_link *link, const char *why)
{
    hw_warn(HW_CAT_VULKAN,
            "%s: uploads use one connection: %s; VENUS_UPLOAD_STRIPES=0 says that they shall",
            link->address, why);
    vnc_stripes_destroy(link->stripes);
    link->stripes = NULL;
}

const uint8_t *vnc_link_dial_stripes(struct vnc_link *link, const struct rpc_addr *addr,
                                     const struct rpc_security *security)
{
    static const uint8_t no_key[VN_STRIPE_KEY_BYTES];
    char why[RPC_WHY_CHARS] = "";
    uint64_t count;
    struct rpc_net_options net = {.security = security,
                                  .untuned = !vnc_perf(VNC_PERF_TRANSPORT_TUNING)};
    (void)hw_env_u64("VENUS_UPLOAD_STRIPES", default_stripes(security && security->tls), 0,
                     VN_STRIPES_MAX, &count);
    uint32_t capabilities = rpc_ep_peer_capabilities(rpc_client_ep(link->rpc));
    bool known =
        (capabilities & VN_CAPABILITY_PROTOCOL) == VN_PROTOCOL; /* else OPEN says why not */
    bool splits = addr->scheme == RPC_SCHEME_UCX; /* UCX uses several connections by itself */
    if (count == 0 || !known || splits || !vnc_perf(VNC_PERF_STRIPES))
        return no_key;
    if (vnc_stripes_dial(addr, &net, (unsigned)count, session_has_ended, link, &link->stripes, why))
        drop_stripes(link, why);
    return link->stripes ? vnc_stripes_key(link->stripes) : no_key;
}

void vnc_link_open_stripes(struct vnc_link *link, uint32_t at_server)
{
    int rc = link->stripes ? vnc_stripes_open(link->stripes, at_server, rpc_client_stats(link->rpc),
                                              lose_session)
                           : 0;
    if (rc)
        drop_stripes(link, strerror(-rc));
}

struct vnc_stripes *vnc_link_stripes(const struct vnc_link *link)
{
    return link->stripes;
}

/* ---- life ---- */

static void link_free(struct vnc_link *link)
{
    vn_packer_destroy(link->packer);
    wire_enc_fini(&link->out);
    vnc_lock_fini(&link->asides);
    vnc_lock_fini(&link->stream);
    vn_kernel_unref(link->kernel);
    free(link);
}

/* What another machine is sent is worth packing; on this one it costs more than it saves. */
static int choose_packing(struct vnc_link *link, bool far)
{
    bool packs = far;
    (void)hw_env_bool("VENUS_COMPRESS", far, &packs);
    return packs && vnc_perf(VNC_PERF_PACKING) ? vn_packer_create(&link->packer) : 0;
}

int vnc_link_create(const struct rpc_addr *addr, const struct rpc_security *security,
                    struct vnc_pushes *pushes, struct vnc_link **out, char why[RPC_WHY_CHARS])
{
    struct vnc_link *link = calloc(1, sizeof(*link));
    if (!link || vn_kernel_ref(&link->kernel)) {
        snprintf(why, RPC_WHY_CHARS, "out of memory");
        free(link);
        return -ENOMEM;
    }
    link->client.ops = &client_ops;
    link->pushes = pushes;
    link->next_id = 1;
    link->forks = vn_kernel_forks();
    vnc_lock_init(&link->stream);
    vnc_lock_init(&link->asides);
    wire_enc_init(&link->out, WIRE_MESSAGE_MAX + VNC_LINK_GATHER_BYTES);
    rpc_addr_format(addr, link->address, sizeof(link->address));
    struct rpc_net_options net = {.security = security,
                                  .untuned = !vnc_perf(VNC_PERF_TRANSPORT_TUNING)};
    static_assert(VN_OUTPUT_MAX + (64 << 10) <= RPC_WINDOW_DEFAULT, "answers fit our window");
    struct rpc_client_options options = {.config = {.security = security,
                                                    .name = "vulkan",
                                                    .spin_ns = VN_SPIN_NS,
                                                    .takes_fds = true,
                                                    .resumes = rpc_resume_is_wanted(addr),
                                                    .landing = {.place = vnc_pushes_place,
                                                                .leave = vnc_pushes_leave,
                                                                .user = pushes}},
                                         .on_push = on_push,
                                         .on_end = on_end,
                                         .push_user = link};
    struct rpc_addr door = *addr;
    struct rpc_security admits;
    int rc = 0;
    if (addr->scheme == RPC_SCHEME_UCX) {
        rc = vnc_door_find(addr, &net, &door, &admits, why);
        net.security = options.config.security = &admits;
    }
    if (rc == 0)
        rc = rpc_client_connect(&door, &net, &options, &link->rpc, why);
    if (rc == 0 && choose_packing(link, !rpc_addr_is_local(addr))) {
        snprintf(why, RPC_WHY_CHARS, "out of memory");
        rc = -ENOMEM;
    }
    if (rc) {
        rpc_client_destroy(link->rpc);
        link_free(link);
        return rc;
    }
    enlist(link);
    *out = link;
    return 0;
}

void vnc_link_destroy(struct vnc_link *link)
{
    if (!link)
        return;
    unlist(link);
    if (!vnc_link_is_lost(link))
        (void)vnc_link_flush(link);
    if (!vnc_link_is_foreign(link))
        vnc_stripes_destroy(link->stripes);
    rpc_client_destroy(link->rpc);
    link_free(link);
}

bool vnc_link_is_behind(void *link)
{
    return rpc_ep_is_behind(rpc_client_ep(((struct vnc_link *)link)->rpc));
}

struct vn_client *vnc_link_client(struct vnc_link *link)
{
    return &link->client;
}

uint64_t vnc_link_ids(struct vnc_link *link, uint64_t count)
{
    return atomic_fetch_add_explicit(&link->next_id, count, memory_order_relaxed);
}

struct vnc_pushes *vnc_link_pushes(const struct vnc_link *link)
{
    return link->pushes;
}

const char *vnc_link_address(const struct vnc_link *link)
{
    return link->address;
}
