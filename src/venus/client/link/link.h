/* venus/client/link/link.h - the connection of one VkInstance to one server: a stream of commands
 * out, answers and pushes in.
 *
 * Commands gather in the link's buffer.  They leave when something waits for them: a call, a
 * submission, a signal, or VN_LINK_GATHER_BYTES of them.
 *
 * Trust: the server's bytes are checked; what is malformed ends the link.
 * Threads: any.  vn_link_begin takes the stream's lock and vn_link_post, vn_link_call or
 * vn_link_cancel gives it back; in between the thread owns the encoder.  Push handlers run on
 * whichever thread reads, under the connection's lock: they take region and table locks, never the
 * stream's. Lifetime: create/destroy; objects that belong to it are gone before.
 *
 * A lost server (gone, frozen, or talking nonsense) is sticky: begin then returns NULL, calls and
 * waits VK_ERROR_DEVICE_LOST.  One line in the log says why. */
#ifndef HAWSER_VENUS_CLIENT_LINK_LINK_H
#define HAWSER_VENUS_CLIENT_LINK_LINK_H

#include "rpc/client.h"
#include "venus/common/client_iface.h"

enum {
    /* Past this the buffer is posted, so that the server works while the program records. */
    VN_LINK_GATHER_BYTES = 128 << 10,
};

struct vn_counts;
struct vn_lanes;
struct vn_link;

/* What buffers of a kind need (REGULAR). */
struct vn_regular {
    uint32_t usage;
    uint32_t types; /* of the driver's memory */
    uint64_t alignment;
    uint64_t grain; /* of their size */
};

struct vn_push_ops {
    /* Bytes that a device changed; 0 or a negative errno that ends the link. */
    int (*delta)(void *user, uint64_t memory, const uint8_t *data, size_t len);
    /* What whole pages hold that a device wrote; the same. */
    int (*pages)(void *user, uint64_t memory, uint64_t off, const uint8_t *data, size_t len);
    /* Pages that a device may have changed, and what pages that were asked for hold; the same. */
    int (*drop)(void *user, uint64_t memory, uint64_t off, uint64_t len);
    int (*fill)(void *user, uint64_t memory, uint64_t off, const uint8_t *data, size_t len);
    void (*done)(void *user, uint64_t queue, uint64_t number, VkResult result);
    void (*failed)(void *user, uint32_t command, VkResult result);
    void (*regular)(void *user, uint64_t device, const struct vn_regular *kind);
    void (*address)(void *user, uint64_t memory, uint64_t address);
    /* text and name are valid during the call. */
    void (*message)(void *user, uint32_t severity, uint32_t types, int32_t number, const char *name,
                    const char *text);
};

/* Dials and shakes hands; `user` is what push handlers get.  0, or a negative errno with cause and
 * remedy in why. */
int vn_link_create(const struct rpc_addr *addr, const struct rpc_security *security,
                   const struct vn_push_ops *pushes, void *user, struct vn_link **out,
                   char why[RPC_WHY_CHARS]) MUST_CHECK;
/* Says goodbye and frees.  No thread may be inside. */
void vn_link_destroy(struct vn_link *link);

/* Before OPEN: dials the lanes that VENUS_LANES asks for, by default where the server is on this
 * machine and it has cores for them.  What cannot be had costs a warning.  The key for OPEN. */
const uint8_t *vn_link_dial_lanes(struct vn_link *link, const struct rpc_addr *addr,
                                  const struct rpc_security *security);
/* OPEN was answered: the server has so many lanes. */
void vn_link_open_lanes(struct vn_link *link, uint32_t at_server);
/* For uploads; NULL: there are none. */
struct vn_lanes *vn_link_lanes(const struct vn_link *link);

/* The interface that generated entrypoints use; every object of the link has this as client. */
struct vn_client *vn_link_client(struct vn_link *link);
static inline struct vn_link *vn_link_of(const void *handle)
{
    return (struct vn_link *)vn_object_of(handle)->client;
}

/* `count` ids in a row that were never used. */
uint64_t vn_link_ids(struct vn_link *link, uint64_t count);

/* Counts bytes of bodies that the server is to keep; false, and they are not, when it has enough.
 */
bool vn_link_keep(struct vn_link *link, size_t bytes) MUST_CHECK;
void vn_link_unkeep(struct vn_link *link, size_t bytes);

/* One exchange outside the stream, before there is one: OPEN.  The answer is the caller's to free.
 */
int vn_link_exchange(struct vn_link *link, uint32_t method, const struct wire_enc *request,
                     struct rpc_answer *answer) MUST_CHECK;

/* The encoder, with the stream's lock held; NULL (and no lock) when the server is lost. */
struct wire_enc *vn_link_begin(struct vn_link *link);
/* Gives up what was put since begin. */
void vn_link_cancel(struct vn_link *link);
/* Leaves what was put in the stream, to be sent with what follows.  VK_ERROR_OUT_OF_HOST_MEMORY
 * when the encoder failed: nothing was put then. */
VkResult vn_link_post(struct vn_link *link) MUST_CHECK;
/* In the middle of much: lets go of what has gathered when it is enough, and keeps the lock. */
VkResult vn_link_checkpoint(struct vn_link *link) MUST_CHECK;
/* Sends what has gathered, whose last command lacks `bytes` at its end, and these without a copy:
 * they are the caller's again when it returns.  There may be none.  Keeps the lock. */
VkResult vn_link_put_bulk(struct vn_link *link, const void *bytes, size_t len) MUST_CHECK;
/* Posts a message of its own, behind all that was posted, and waits until done(user) as
 * vn_link_wait does.  Takes no lock of the stream's: who has it may be waiting for what is asked.
 * 0, -ESHUTDOWN when the server is lost, or the encoder's error. */
int vn_link_ask_aside(struct vn_link *link, const struct wire_enc *message,
                      bool (*done)(void *user), void *user) MUST_CHECK;
/* Around putting what such a message must not overtake, for who has the stream's lock: it waits
 * from hold to release, which posts all there is. */
void vn_link_hold_asides(struct vn_link *link);
VkResult vn_link_release_asides(struct vn_link *link) MUST_CHECK;
/* As vn_link_post, and sends all there is. */
VkResult vn_link_send(struct vn_link *link);
/* Sends all there is, whose last command is answered.  On VK_SUCCESS reply is ready to decode and
 * ended by vn_link_finish. */
VkResult vn_link_call(struct vn_link *link, struct vn_decoder *reply) MUST_CHECK;
/* The same, but the stream stays the caller's, and nobody else puts anything meanwhile: a question
 * whose answer decides what is put next. */
VkResult vn_link_call_within(struct vn_link *link, struct vn_decoder *reply) MUST_CHECK;
VkResult vn_link_finish(struct vn_link *link, struct vn_decoder *reply);

/* Sends what has gathered. */
VkResult vn_link_flush(struct vn_link *link);
/* Takes in what has arrived, without waiting. */
void vn_link_poll(struct vn_link *link);
/* Sends what has gathered, then waits until done(user), which is asked under the connection's lock
 * whenever something has arrived.  VK_SUCCESS, VK_TIMEOUT or VK_ERROR_DEVICE_LOST. */
VkResult vn_link_wait(struct vn_link *link, bool (*done)(void *user), void *user,
                      uint64_t timeout_ns) MUST_CHECK;

/* Waits likewise, but sends nothing: for who would otherwise look again and again. */
void vn_link_rest(struct vn_link *link, bool (*done)(void *user), void *user, uint64_t timeout_ns);

void vn_link_counts(const struct vn_link *link, struct vn_counts *out);

/* The shortest time that a call has taken; 0 before the first. */
uint64_t vn_link_quickest_ns(const struct vn_link *link);

/* What push handlers get. */
void *vn_link_user(const struct vn_link *link);

bool vn_link_is_lost(struct vn_link *link);
/* Whether a process that forked this one made it.  It is lost here, and so is whatever its lists
 * are for: their locks may be held by threads that do not exist here, and must not be taken. */
bool vn_link_is_foreign(const struct vn_link *link);
/* Ends the link: the reason goes to the log, once. */
void vn_link_lose(struct vn_link *link, const char *why);
const char *vn_link_address(const struct vn_link *link);

#endif
