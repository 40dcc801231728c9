/* References instead of bytes; see upload.h. */
#include "venus/client/memory/upload.h"

#include "venus/client/perf.h"
#include "venus/common/protocol.h"
#include "venus/common/put.h"
#include "venus/common/transfer/upload.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum {
    SKIPPED_MAX = 15, /* uploads that are not asked about after one without a hit */
    NS_A_BYTE = 8,    /* at 1 Gbit/s: on slower links bytes are worth more questions than we ask */
};

struct piece {
    size_t off, len;
    const uint8_t *bytes;
    uint8_t name[VN_NAME_BYTES], proof[VN_PROOF_BYTES];
    int error; /* of the proof */
};

struct vnc_upload {
    uint64_t key;
    struct piece pieces[VN_HOLD_PIECES_MAX];
    uint8_t held[VN_HOLD_PIECES_MAX];
    uint32_t count;
    size_t sent, sent_end; /* without a question, and to be kept */
    bool begun;            /* an upload: from its first run to vnc_upload_end */
    bool asks;             /* about its runs */
    bool hit;              /* one of them */
    unsigned skip;         /* uploads before the next question */
    unsigned skipped;      /* that it became after the last one */
};

int vnc_upload_create(uint64_t key, struct vnc_upload **out)
{
    struct vnc_upload *u = NULL;
    if (key && vnc_perf(VNC_PERF_UPLOAD_CACHE)) {
        u = calloc(1, sizeof(*u));
        if (!u)
            return -ENOMEM;
        u->key = key;
    }
    *out = u;
    return 0;
}

void vnc_upload_destroy(struct vnc_upload *u)
{
    free(u);
}

size_t vnc_upload_most(const struct vnc_upload *u, size_t most)
{
    bool asks = u && (u->begun ? u->asks : !u->skip);
    return asks ? VN_HOLD_BYTES_MAX : most;
}

/* ---- keeping ---- */

static void put_keep(const struct vnc_memory *memory, size_t off, size_t end, struct wire_enc *e)
{
    size_t hole = vn_put_command(e, VN_OP_KEEP);
    wire_put_u64(e, memory->object.id);
    wire_put_u64(e, off);
    wire_put_u32(e, (uint32_t)(end - off));
    wire_fill_len(e, hole);
}

/* What was sent is cut as a question cuts it, which takes so much at a time. */
static void put_keeps(struct vnc_upload *u, const struct vnc_memory *memory, struct wire_enc *e)
{
    for (size_t off = u->sent, start = off, end; u->sent_end - off >= VN_PIECE_MIN; off = end) {
        size_t stop =
            start + VN_HOLD_BYTES_MAX < u->sent_end ? start + VN_HOLD_BYTES_MAX : u->sent_end;
        end = vn_piece_end(off, stop);
        put_keep(memory, off, end, e);
        start = end == stop ? end : start;
    }
    u->sent = u->sent_end = 0;
}

/* Runs that follow each other are one. */
static void note_sent(struct vnc_upload *u, const struct vnc_memory *memory, size_t off, size_t len,
                      struct wire_enc *e)
{
    if (off != u->sent_end) {
        put_keeps(u, memory, e);
        u->sent = off;
    }
    u->sent_end = off + len;
}

/* ---- asking ---- */

static void begin(struct vnc_upload *u)
{
    u->begun = true;
    u->asks = u->skip == 0;
    u->hit = false;
    u->skip -= !u->asks;
}

static bool is_worth_asking(const struct vnc_link *link, size_t len)
{
    return len >= VN_PIECE_MIN && len >= vnc_link_quickest_ns(link) / NS_A_BYTE;
}

static void cut(struct vnc_upload *u, size_t off, size_t len, const uint8_t *bytes)
{
    size_t end = off + len;
    assert(len <= VN_HOLD_BYTES_MAX);
    for (u->count = 0; off < end; u->count++) {
        struct piece *piece = &u->pieces[u->count];
        *piece = (struct piece){.off = off, .bytes = bytes};
        piece->len = vn_piece_end(off, end) - off;
        off += piece->len;
        bytes += piece->len;
    }
}

/* A program that writes there meanwhile makes this a name of nothing, which is a miss, or of what
 * was there at some time; its page is pending again. */
static void hash_one(void *user, uint32_t i)
{
    struct vnc_upload *u = user;
    struct piece *piece = &u->pieces[i];
    vn_piece_name(piece->bytes, piece->len, piece->name);
    piece->error = vn_piece_proof(u->key, piece->bytes, piece->len, piece->proof);
}

static int put_question(const struct vnc_upload *u, struct wire_enc *e)
{
    int rc = 0;
    size_t hole = vn_put_command(e, VN_OP_HOLD);
    wire_put_u32(e, u->count);
    for (uint32_t i = 0; i < u->count; i++) {
        const struct piece *piece = &u->pieces[i];
        rc = rc ? rc : piece->error;
        wire_put_u32(e, (uint32_t)piece->len);
        wire_put_bytes(e, piece->name, sizeof(piece->name));
        wire_put_bytes(e, piece->proof, sizeof(piece->proof));
    }
    wire_fill_len(e, hole);
    return rc ? rc : wire_enc_error(e);
}

/* Fills u->held. */
static VkResult ask(struct vnc_upload *u, struct vnc_link *link, struct wire_enc *e)
{
    struct vn_decoder reply;
    vn_pieces_each(u->count, vn_pieces_threads(u->count), hash_one, u);
    if (put_question(u, e))
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    VkResult result = vnc_link_call_within(link, &reply);
    if (result != VK_SUCCESS)
        return result;
    const uint8_t *held = wire_get_bytes(&reply.in, u->count);
    if (held)
        memcpy(u->held, held, u->count);
    return vnc_link_finish(link, &reply);
}

static void note_hits(struct vnc_upload *u)
{
    unsigned more = 2 * u->skipped + 1;
    u->hit |= memchr(u->held, 1, u->count) != NULL;
    u->skipped = u->hit ? 0 : more < SKIPPED_MAX ? more : SKIPPED_MAX;
    u->skip = u->skipped;
    u->asks = u->hit;
}

static void put_reference(const struct vnc_memory *memory, size_t off, uint32_t index,
                          struct wire_enc *e)
{
    size_t hole = vn_put_command(e, VN_OP_REUSE);
    wire_put_u64(e, memory->object.id);
    wire_put_u64(e, off);
    wire_put_u32(e, index);
    wire_fill_len(e, hole);
}

/* Sends piece i and those behind it that are not held either.  *next: the first of the others. */
static VkResult put_missing(const struct vnc_upload *u, struct vnc_memory *memory, uint32_t i,
                            uint32_t *next, struct wire_enc *e, vnc_upload_send *send)
{
    const struct piece *first = &u->pieces[i];
    size_t len = 0;
    for (*next = i; *next < u->count && !u->held[*next]; ++*next)
        len += u->pieces[*next].len;
    VkResult result = send(memory, first->off, len, first->bytes, e);
    for (; result == VK_SUCCESS && i < *next; i++)
        put_keep(memory, u->pieces[i].off, u->pieces[i].off + u->pieces[i].len, e);
    return result;
}

static VkResult put_answered(const struct vnc_upload *u, struct vnc_memory *memory,
                             struct wire_enc *e, vnc_upload_send *send)
{
    VkResult result = VK_SUCCESS;
    for (uint32_t i = 0, next; result == VK_SUCCESS && i < u->count; i = next) {
        next = i + 1;
        if (u->held[i])
            put_reference(memory, u->pieces[i].off, i, e);
        else
            result = put_missing(u, memory, i, &next, e, send);
    }
    return result;
}

VkResult vnc_upload_put(struct vnc_upload *u, struct vnc_memory *memory, size_t off, size_t len,
                        const uint8_t *bytes, struct wire_enc *e, vnc_upload_send *send)
{
    struct vnc_link *link = vnc_device_link(memory->device);
    if (u && !u->begun)
        begin(u);
    if (!u || !u->asks || !is_worth_asking(link, len)) {
        VkResult result = send(memory, off, len, bytes, e);
        if (u && result == VK_SUCCESS)
            note_sent(u, memory, off, len, e);
        return result;
    }
    put_keeps(u, memory, e);
    cut(u, off, len, bytes);
    VkResult result = ask(u, link, e);
    if (result != VK_SUCCESS)
        return result;
    note_hits(u);
    return put_answered(u, memory, e, send);
}

void vnc_upload_end(struct vnc_upload *u, struct vnc_memory *memory, struct wire_enc *e)
{
    if (!u)
        return;
    put_keeps(u, memory, e);
    u->begun = false;
}
