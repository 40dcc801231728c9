/* venus/server/upload/share.h - the upload cache for sessions' processes, which cannot reach it.
 *
 * The store is the server's process's alone.  A session has a socket to it, asks for a piece by its
 * name and gets a descriptor that can be read and not written, or hands over the bytes of a piece
 * in a memfd.  A thread of the server answers one question after the other; it names pieces itself.
 *
 * Trust: a session may ask anything; its socket is closed when that is no question, or when it does
 * not take its answers.  It costs the server's thread a piece's bytes at most, a question.
 * Threads: one for a share, beside its own thread; any for a user.
 * Lifetime: create/destroy; the sessions before the share, the share before the store. */
#ifndef HAWSER_VENUS_SERVER_UPLOAD_SHARE_H
#define HAWSER_VENUS_SERVER_UPLOAD_SHARE_H

#include "venus/server/upload/store.h"

/* ---- in the server's process ---- */

struct vns_upload_share;

/* From here on the store is used by this alone.  0 or a negative errno. */
int vns_upload_share_create(struct vns_upload_store *store,
                            struct vns_upload_share **out) MUST_CHECK;
void vns_upload_share_destroy(struct vns_upload_share *share);

/* A session's end of a new socket, the caller's to pass on and close; or a negative errno. */
int vns_upload_share_invite(struct vns_upload_share *share);
uint64_t vns_upload_share_limit(const struct vns_upload_share *share);

/* ---- in a session's process ---- */

struct vns_upload_user;

/* limit: the share's.  Takes the socket, also on failure.  0 or -ENOMEM. */
int vns_upload_user_create(int socket, uint64_t limit, struct vns_upload_user **out) MUST_CHECK;
void vns_upload_user_destroy(struct vns_upload_user *user);
uint64_t vns_upload_user_limit(const struct vns_upload_user *user);

/* Copies a piece of that many bytes.  0, -ENOENT, or why it could not be read. */
int vns_upload_user_get(struct vns_upload_user *user, const uint8_t name[VN_NAME_BYTES], void *to,
                        size_t len) MUST_CHECK;
/* Keeps a piece.  As vns_upload_store_put, or why the server could not be asked. */
int vns_upload_user_put(struct vns_upload_user *user, const void *bytes, size_t len);
/* A piece of that length may not be what its name says: the server looks, and removes it then. */
void vns_upload_user_doubt(struct vns_upload_user *user, const uint8_t name[VN_NAME_BYTES],
                           size_t len);

#endif
