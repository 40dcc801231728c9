/* venus/client/memory/upload.h - large writes that the server has already are not sent again.
 *
 * Before the written pages of a memory are encoded, its long runs are cut into pieces
 * (common/upload.h).  The server is asked for them by name; those that it has go as references.
 * The rest is encoded as ever, and the server is told that it may keep it.  A run of questions
 * without a hit makes further ones rare, so that first loads pay for a few; and nothing is asked
 * that would take longer than sending the bytes.
 *
 * A reference carries all bytes of a piece, and the server finds out itself which of them the
 * program changed.  That is exact only where both ends have equal shadow copies: where no work
 * under way can write the memory (docs/design/upload-cache.md).
 *
 * Trust: the server's answers are checked.
 * Threads: as the stream, whose lock the caller has.  Lifetime: create/destroy. */
#ifndef HAWSER_VENUS_CLIENT_MEMORY_UPLOAD_H
#define HAWSER_VENUS_CLIENT_MEMORY_UPLOAD_H

#include "venus/client/memory/memory.h"

enum {
    /* Runs of one memory that are kept in one go; what is past it is sent and not kept. */
    VNC_UPLOAD_RUNS_MAX = 256,
};

struct vnc_upload;

/* key is that of the server's proofs; with 0 there is no cache, and *out is NULL.  0 or -ENOMEM. */
int vnc_upload_create(uint64_t key, struct vnc_upload **out) MUST_CHECK;
void vnc_upload_destroy(struct vnc_upload *upload);

/* Around the encoding of what is pending in a memory; upload may be NULL.  begin puts references
 * for what the server has, end tells what it may keep. */
VkResult vnc_upload_begin(struct vnc_upload *upload, struct vnc_memory *memory,
                          struct wire_enc *e) MUST_CHECK;
void vnc_upload_end(struct vnc_upload *upload, struct vnc_memory *memory, struct wire_enc *e);

#endif
