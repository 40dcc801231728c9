/* venus/server/upload/uploads.h - a session's use of the upload cache.
 *
 * HOLD asks for pieces by name: each that the cache has is copied for this session, compared with
 * the client's proof, and held until the next HOLD.  What the client uses later is that copy, so
 * nothing that happens to the cache meanwhile matters.  KEEP gives pieces to a thread of the
 * session, which hands them to the server.
 *
 * Trust: names, proofs and counts are a peer's.  A piece is held only for who has its bytes, and
 * kept only under the name that the server works out from them.
 * Threads: the executor's; one thread of its own.
 * Lifetime: create/destroy; the cache outlives it. */
#ifndef HAWSER_VENUS_SERVER_UPLOAD_UPLOADS_H
#define HAWSER_VENUS_SERVER_UPLOAD_UPLOADS_H

#include "venus/server/upload/share.h"
#include "wire/dec.h"
#include "wire/enc.h"

enum {
    /* Pieces given to the thread and not stored yet: when it is behind, the executor waits for it,
     * and the client for the executor. */
    VNS_UPLOADS_QUEUED_MAX = 32,
};

struct vns_uploads;

/* cache may be NULL: nothing is held or kept.  0, -ENOMEM, or -EIO when there is no random key. */
int vns_uploads_create(struct vns_upload_user *cache, struct vns_uploads **out) MUST_CHECK;
/* Stores what is queued first. */
void vns_uploads_destroy(struct vns_uploads *uploads);

/* Of proofs; 0 without a cache. */
uint64_t vns_uploads_key(const struct vns_uploads *uploads);

/* Takes the recording of a HOLD; the answer goes to reply, which may be NULL.  0, -EPROTO, -ENOMEM.
 */
int vns_uploads_hold(struct vns_uploads *uploads, struct wire_dec *in,
                     struct wire_enc *reply) MUST_CHECK;
/* The piece of that index; NULL when it is not held. */
const uint8_t *vns_uploads_held(const struct vns_uploads *uploads, uint32_t index, size_t *len);

/* Keeps bytes, which are malloc'd; takes them. */
void vns_uploads_keep(struct vns_uploads *uploads, uint8_t *bytes, size_t len);

#endif
