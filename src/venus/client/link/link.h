/* venus/client/link/link.h - the connection of one VkInstance to one server: a stream of commands
 * out, answers and pushes in.
 *
 * Commands gather in the link's buffer.  They leave when something waits for them: a call, a
 * submission, a signal, or VNC_LINK_GATHER_BYTES of them.
 *
 * Trust: the server's bytes are checked; what is malformed ends the link.
 * Threads: any.  vnc_link_begin takes the stream's lock and vnc_link_post, vnc_link_call or
 * vnc_link_cancel gives it back; in between the thread owns the encoder.  Pushes are
 * taken by whichever thread reads, under the connection's lock and then region and table locks,
 * never the stream's.  Lifetime: create/destroy; objects that belong to it are gone before.
 *
 * A lost server (gone, frozen, or talking nonsense) is sticky: begin then returns NULL, calls and
 * waits VK_ERROR_DEVICE_LOST.  One line in the log says why. */
#ifndef HAWSER_VENUS_CLIENT_LINK_LINK_H
#define HAWSER_VENUS_CLIENT_LINK_LINK_H

#include "rpc/client.h"
#include "venus/common/client_iface.h"

enum {
    /* Past this the buffer is posted, so that the server works while the program records. */
    VNC_LINK_GATHER_BYTES = 128 << 10,
};

struct hw_driver_counts;
struct vnc_stripes;
struct vnc_call;
struct vnc_link;
struct vnc_pushes;

/* Dials and shakes hands; pushes go to `pushes`.  0, or a negative errno with cause and remedy in
 * why. */
int vnc_link_create(const struct rpc_addr *addr, const struct rpc_security *security,
                    struct vnc_pushes *pushes, struct vnc_link **out,
                    char why[RPC_WHY_CHARS]) MUST_CHECK;
/* Says goodbye and frees.  No thread may be inside. */
void vnc_link_destroy(struct vnc_link *link);

/* Before OPEN: dials the stripes that VENUS_UPLOAD_STRIPES asks for, by default where the server is
 * on this machine and it has cores for them.  What cannot be had costs a warning.  The key for
 * OPEN. */
const uint8_t *vnc_link_dial_stripes(struct vnc_link *link, const struct rpc_addr *addr,
                                     const struct rpc_security *security);
/* OPEN was answered: the server has so many stripes. */
void vnc_link_open_stripes(struct vnc_link *link, uint32_t at_server);
/* For uploads; NULL: there are none. */
struct vnc_stripes *vnc_link_stripes(const struct vnc_link *link);

/* The interface that generated entrypoints use; every object of the link has this as client. */
struct vn_client *vnc_link_client(struct vnc_link *link);

/* Whether the line to the server has more than it can carry at once: for vn_delta_codec_watch. */
bool vnc_link_is_behind(void *link);
static inline struct vnc_link *vnc_link_of(const void *handle)
{
    return (struct vnc_link *)vn_object_of(handle)->client;
}

/* This thread begins to record. */
void vnc_link_records(struct vnc_link *link);
/* Whether several threads record by turns: then what keeps the server from executing the commands
 * of one keeps it from the others' too. */
bool vnc_link_is_shared(const struct vnc_link *link);

/* `count` ids in a row that were never used; with 0 the next one. */
uint64_t vnc_link_ids(struct vnc_link *link, uint64_t count);

/* Counts bytes of recordings that the server is to keep; false, and they are not, when it has
 * enough.
 */
bool vnc_link_keep(struct vnc_link *link, size_t bytes) MUST_CHECK;
void vnc_link_unkeep(struct vnc_link *link, size_t bytes);

/* One exchange outside the stream, before there is one: OPEN.  The answer is the caller's to free.
 */
int vnc_link_exchange(struct vnc_link *link, uint32_t method, const struct wire_enc *request,
                      struct rpc_answer *answer) MUST_CHECK;

/* The encoder, with the stream's lock held; NULL (and no lock) when the server is lost. */
struct wire_enc *vnc_link_begin(struct vnc_link *link);
/* What was put since begin cannot be sent: the encoder failed, or it is more than the server takes
 * at once.  For who cannot take back what follows. */
bool vnc_link_is_spoilt(const struct vnc_link *link);
/* Gives up what was put since begin. */
void vnc_link_cancel(struct vnc_link *link);
/* Leaves what was put in the stream, to be sent with what follows.  VK_ERROR_OUT_OF_HOST_MEMORY
 * when the encoder failed or it is more than the server takes at once: nothing was put then. */
VkResult vnc_link_post(struct vnc_link *link) MUST_CHECK;
/* In the middle of much: lets go of what has gathered when it is enough, and keeps the lock. */
VkResult vnc_link_checkpoint(struct vnc_link *link) MUST_CHECK;
/* Sends what has gathered, whose last command lacks `bytes` at its end, and these without a copy:
 * they are the caller's again when it returns.  There may be none.  Keeps the lock. */
VkResult vnc_link_put_bulk(struct vnc_link *link, const void *bytes, size_t len) MUST_CHECK;
/* Posts a message of its own, behind all that was posted, and waits until done(user) as
 * vnc_link_wait does.  Takes no lock of the stream's: who has it may be waiting for what is asked.
 * 0, -ESHUTDOWN when the server is lost, or the encoder's error. */
int vnc_link_ask_aside(struct vnc_link *link, const struct wire_enc *message,
                       bool (*done)(void *user), void *user) MUST_CHECK;
/* Around putting what such a message must not overtake, for who has the stream's lock: it waits
 * from hold to release, which posts all there is. */
void vnc_link_hold_asides(struct vnc_link *link);
VkResult vnc_link_release_asides(struct vnc_link *link) MUST_CHECK;
/* As vnc_link_post, and sends all there is. */
VkResult vnc_link_send(struct vnc_link *link);
/* Sends all there is, whose last command is answered.  On VK_SUCCESS reply is ready to decode and
 * ended by vnc_link_finish. */
VkResult vnc_link_call(struct vnc_link *link, struct vn_decoder *reply) MUST_CHECK;
/* The same in two steps, so that many can be under way at once: start gives the stream back, end
 * waits.  NULL when out of memory: nothing was put then. */
struct vnc_call *vnc_link_call_start(struct vnc_link *link) MUST_CHECK;
VkResult vnc_link_call_end(struct vnc_call *call, struct vn_decoder *reply) MUST_CHECK;
/* The same, but the stream stays the caller's, and nobody else puts anything meanwhile: a question
 * whose answer decides what is put next. */
VkResult vnc_link_call_within(struct vnc_link *link, struct vn_decoder *reply) MUST_CHECK;
VkResult vnc_link_finish(struct vnc_link *link, struct vn_decoder *reply);

/* Whether descriptors can travel on the link, both ways. */
bool vnc_link_passes_fds(const struct vnc_link *link);
/* As vnc_link_begin, with nothing before the next command: for vnc_link_call_with_fd, whose message
 * must be small. */
struct wire_enc *vnc_link_begin_alone(struct vnc_link *link);
/* As vnc_link_call, with a descriptor, which stays the caller's.  VK_ERROR_INVALID_EXTERNAL_HANDLE
 * when it is none; nothing was sent then. */
VkResult vnc_link_call_with_fd(struct vnc_link *link, int fd, struct vn_decoder *reply) MUST_CHECK;
/* For a command that makes a descriptor: what it returned, and on VK_SUCCESS the descriptor, now
 * the caller's, or -1 where the driver gave none. */
VkResult vnc_link_call_for_fd(struct vnc_link *link, int *out) MUST_CHECK;

/* Sends what has gathered. */
VkResult vnc_link_flush(struct vnc_link *link);
/* Takes in what has arrived, without waiting. */
void vnc_link_poll(struct vnc_link *link);
/* Sends what has gathered, then waits until done(user), which is asked under the connection's lock
 * whenever something has arrived.  VK_SUCCESS, VK_TIMEOUT or VK_ERROR_DEVICE_LOST. */
VkResult vnc_link_wait(struct vnc_link *link, bool (*done)(void *user), void *user,
                       uint64_t timeout_ns) MUST_CHECK;

/* Waits likewise, but sends nothing: for who would otherwise look again and again. */
void vnc_link_rest(struct vnc_link *link, bool (*done)(void *user), void *user,
                   uint64_t timeout_ns);

void vnc_link_counts(const struct vnc_link *link, struct hw_driver_counts *out);

/* The shortest time that a call has taken; 0 before the first. */
uint64_t vnc_link_quickest_ns(const struct vnc_link *link);

struct vnc_pushes *vnc_link_pushes(const struct vnc_link *link);

bool vnc_link_is_lost(struct vnc_link *link);
/* Whether a process that forked this one made it.  It is lost here, and so is whatever its lists
 * are for: their locks may be held by threads that do not exist here, and must not be taken. */
bool vnc_link_is_foreign(const struct vnc_link *link);
/* Whether an instance uses the link, which it does once OPEN was answered.  Where none does, losing
 * the server is no news to the program. */
void vnc_link_set_used(struct vnc_link *link, bool used);
/* Ends the link: the reason goes to the log, once, if an instance uses it. */
void vnc_link_lose(struct vnc_link *link, const char *why);
/* That reason, valid as long as the link; NULL before. */
const char *vnc_link_why_lost(const struct vnc_link *link);
const char *vnc_link_address(const struct vnc_link *link);

#endif
