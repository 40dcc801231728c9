/* venus/client/memory/upload.h - large writes that the server has already are not sent again.
 *
 * A run of pages that the program wrote as a whole is cut into pieces (transfer/upload.h) before it
 * is sent.  The server is asked for them by name; those that it has go as references.  The rest is
 * sent as ever, and the server is told that it may keep it.  A run of questions without a hit makes
 * further ones rare, so that first loads pay for a few; and nothing is asked that would take longer
 * than sending the bytes.
 *
 * Trust: the server's answers are checked.
 * Threads: as the stream, whose lock the caller has.  Lifetime: create/destroy. */
#ifndef HAWSER_VENUS_CLIENT_MEMORY_UPLOAD_H
#define HAWSER_VENUS_CLIENT_MEMORY_UPLOAD_H

#include "venus/client/memory/memory.h"

struct vnc_upload;

/* key is that of the server's proofs; with 0 there is no cache, and *out is NULL.  0 or -ENOMEM. */
int vnc_upload_create(uint64_t key, struct vnc_upload **out) MUST_CHECK;
void vnc_upload_destroy(struct vnc_upload *upload);

/* How much of a run to put at once: more where the server is to be asked about it. */
size_t vnc_upload_most(const struct vnc_upload *upload, size_t most);

/* Sends bytes to [off, off + len) of the memory. */
typedef VkResult vnc_upload_send(struct vnc_memory *memory, size_t off, size_t len,
                                 const uint8_t *bytes, struct wire_enc *e);

/* Puts the next run of whole pages, at most vnc_upload_most, which no device writes meanwhile:
 * references for what the server has, and `send` for the rest.  The program may write there now:
 * what differs then is pending again.  upload may be NULL. */
VkResult vnc_upload_put(struct vnc_upload *upload, struct vnc_memory *memory, size_t off,
                        size_t len, const uint8_t *bytes, struct wire_enc *e,
                        vnc_upload_send *send) MUST_CHECK;
/* After the last run of a memory: tells what the server may keep. */
void vnc_upload_end(struct vnc_upload *upload, struct vnc_memory *memory, struct wire_enc *e);

#endif
