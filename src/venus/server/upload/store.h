/* venus/server/upload/store.h - pieces of large uploads, kept across sessions.
 *
 * A folder with one file a piece, named by the XXH3 of what is in it.  Only the server's process
 * has it; sessions use it through share.h.  A file appears under its name only when it is
 * whole, so a process that is killed leaves a wrong one never, and a stray one at most, which is
 * removed later.  Who reads a piece still compares it with what he wants (transfer/upload.h).
 *
 * The bytes of all files stay within a limit.  Where a new piece has no room, an eighth of the
 * limit is freed at once, by the times of last use, so that the folder is rarely listed.
 *
 * Without a folder of its own one is made in memory (/dev/shm) and removed at the end; what a
 * killed server left there is removed by the next one.
 *
 * Trust: the folder must be ours and closed to others.
 * Threads: one at a time.  Lifetime: create/destroy. */
#ifndef HAWSER_VENUS_SERVER_UPLOAD_STORE_H
#define HAWSER_VENUS_SERVER_UPLOAD_STORE_H

#include <stdint.h>

#include "venus/common/transfer/upload.h"

enum { VNS_UPLOAD_STORE_WHY = 200 };

struct vns_upload_store;

/* Up to max_bytes in dir, and up to half of what is free there now.  dir is made where it does not
 * exist; NULL: in memory.  0, or a negative errno with the cause in why: -EBUSY when another server
 * uses the folder, -EACCES when it is open to others. */
int vns_upload_store_create(const char *dir, uint64_t max_bytes, struct vns_upload_store **out,
                            char why[VNS_UPLOAD_STORE_WHY]) MUST_CHECK;
/* A folder in memory goes too. */
void vns_upload_store_destroy(struct vns_upload_store *store);

/* Opens a piece of that many bytes for reading, and counts as a use of it.  A descriptor, -ENOENT,
 * or why it could not be opened. */
int vns_upload_store_open(const struct vns_upload_store *store, const uint8_t name[VN_NAME_BYTES],
                          size_t len) MUST_CHECK;

/* Keeps a piece whose name the caller worked out from these bytes.  0, also when it is there;
 * -EFBIG when it is larger than the limit; or why it could not be written. */
int vns_upload_store_put(struct vns_upload_store *store, const uint8_t name[VN_NAME_BYTES],
                         const void *bytes, size_t len);

/* Removes a piece that was found not to be what its name says. */
void vns_upload_store_drop(const struct vns_upload_store *store, const uint8_t name[VN_NAME_BYTES]);

/* Writes all of it; 0 or a negative errno. */
int vns_upload_write(int fd, const void *bytes, size_t len) MUST_CHECK;

/* Of all pieces, now and at most. */
uint64_t vns_upload_store_bytes(const struct vns_upload_store *store);
uint64_t vns_upload_store_limit(const struct vns_upload_store *store);

#endif
