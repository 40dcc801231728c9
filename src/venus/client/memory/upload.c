/* References instead of bytes; see upload.h. */
#include "venus/client/memory/upload.h"

#include "venus/client/perf.h"
#include "venus/common/protocol.h"
#include "venus/common/put.h"
#include "venus/common/upload.h"

#include <errno.h>
#include <stdlib.h>

enum {
    SKIPPED_MAX = 15, /* uploads that are not asked about after a question without a hit */
    NS_A_BYTE = 8,    /* at 1 Gbit/s: on slower links bytes are worth more questions than we ask */
};

struct piece {
    size_t off, len;
    const uint8_t *bytes; /* in the copy */
};

struct run {
    size_t off, end;
};

struct vnc_upload {
    uint64_t key;
    uint8_t *copy; /* VN_HOLD_BYTES_MAX, from the first question on */
    struct piece pieces[VN_HOLD_PIECES_MAX];
    uint8_t held[VN_HOLD_PIECES_MAX];
    uint32_t count;
    struct run runs[VNC_UPLOAD_RUNS_MAX]; /* to be kept; valid between begin and end */
    size_t run_count;
    unsigned skip;    /* uploads before the next question */
    unsigned skipped; /* that it became after the last one */
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
    if (!u)
        return;
    free(u->copy);
    free(u);
}

/* ---- which ---- */

/* The next run of pending pages at or after *off that is long enough. */
static bool next_run(struct vnc_memory *memory, size_t off, struct run *run)
{
    size_t len;
    while (vn_region_next_pending(memory->region, &off, &len)) {
        size_t end = off + len < memory->size ? off + len : (size_t)memory->size;
        if (end > off && end - off >= VN_PIECE_MIN) {
            *run = (struct run){off, end};
            return true;
        }
        off += len;
    }
    return false;
}

static uint64_t note_runs(struct vnc_upload *u, struct vnc_memory *memory)
{
    uint64_t bytes = 0;
    struct run run = {0};
    u->run_count = 0;
    while (u->run_count < VNC_UPLOAD_RUNS_MAX && next_run(memory, run.end, &run)) {
        u->runs[u->run_count++] = run;
        bytes += run.end - run.off;
    }
    return bytes;
}

/* ---- asking ---- */

/* Copies, from `from` on, as many pieces as one question takes.  Where they end. */
static size_t gather(struct vnc_upload *u, struct vnc_memory *memory, size_t from)
{
    size_t used = 0;
    struct run run;
    u->count = 0;
    while (next_run(memory, from, &run)) {
        while (run.off < run.end) {
            size_t len = vn_piece_end(run.off, run.end) - run.off;
            if (u->count == VN_HOLD_PIECES_MAX || used + len > VN_HOLD_BYTES_MAX ||
                vn_region_read(memory->region, run.off, len, u->copy + used))
                return run.off;
            u->pieces[u->count++] = (struct piece){run.off, len, u->copy + used};
            used += len;
            run.off += len;
        }
        from = run.end;
    }
    return SIZE_MAX;
}

static int put_question(const struct vnc_upload *u, struct wire_enc *e)
{
    uint8_t name[VN_NAME_BYTES], proof[VN_PROOF_BYTES];
    int rc = 0;
    size_t hole = vn_put_command(e, VN_OP_HOLD);
    wire_put_u32(e, u->count);
    for (uint32_t i = 0; rc == 0 && i < u->count; i++) {
        const struct piece *piece = &u->pieces[i];
        rc = vn_piece_name(piece->bytes, piece->len, name);
        vn_piece_proof(u->key, piece->bytes, piece->len, proof);
        wire_put_u32(e, (uint32_t)piece->len);
        wire_put_bytes(e, name, sizeof(name));
        wire_put_bytes(e, proof, sizeof(proof));
    }
    wire_fill_len(e, hole);
    return rc ? rc : wire_enc_error(e);
}

/* Fills u->held. */
static VkResult ask(struct vnc_upload *u, struct vnc_link *link, struct wire_enc *e)
{
    struct vn_decoder reply;
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

/* Puts references for what is held, and counts them. */
static VkResult put_held(struct vnc_upload *u, struct vnc_memory *memory, struct wire_enc *e,
                         uint32_t *hits)
{
    for (uint32_t i = 0; i < u->count; i++) {
        const struct piece *piece = &u->pieces[i];
        if (!u->held[i])
            continue;
        size_t hole = vn_put_command(e, VN_OP_REUSE);
        wire_put_u64(e, memory->object.id);
        wire_put_u64(e, piece->off);
        wire_put_u32(e, i);
        wire_fill_len(e, hole);
        if (wire_enc_error(e) ||
            vn_region_sent(memory->region, piece->off, piece->len, piece->bytes))
            return VK_ERROR_OUT_OF_HOST_MEMORY;
        ++*hits;
    }
    return VK_SUCCESS;
}

static VkResult ask_all(struct vnc_upload *u, struct vnc_memory *memory, struct wire_enc *e)
{
    struct vnc_link *link = vnc_device_link(memory->device);
    VkResult result = VK_SUCCESS;
    uint32_t hits = 0;
    for (size_t from = 0; from != SIZE_MAX && result == VK_SUCCESS;) {
        from = gather(u, memory, from);
        if (u->count == 0)
            break;
        result = ask(u, link, e);
        if (result == VK_SUCCESS)
            result = put_held(u, memory, e, &hits);
        if (hits == 0)
            break;
    }
    unsigned more = 2 * u->skipped + 1;
    u->skipped = hits ? 0 : more < SKIPPED_MAX ? more : SKIPPED_MAX;
    u->skip = u->skipped;
    return result;
}

/* ---- around the deltas ---- */

static bool is_worth_asking(struct vnc_upload *u, const struct vnc_link *link, uint64_t bytes)
{
    if (bytes < vnc_link_quickest_ns(link) / NS_A_BYTE)
        return false;
    if (u->skip) {
        u->skip--;
        return false;
    }
    if (!u->copy)
        u->copy = malloc(VN_HOLD_BYTES_MAX);
    return u->copy;
}

VkResult vnc_upload_begin(struct vnc_upload *u, struct vnc_memory *memory, struct wire_enc *e)
{
    if (!u)
        return VK_SUCCESS;
    uint64_t bytes = note_runs(u, memory);
    if (bytes == 0 || !vnc_memory_is_still(memory) ||
        !is_worth_asking(u, vnc_device_link(memory->device), bytes))
        return VK_SUCCESS;
    VkResult result = ask_all(u, memory, e);
    (void)note_runs(u, memory);
    return result;
}

void vnc_upload_end(struct vnc_upload *u, struct vnc_memory *memory, struct wire_enc *e)
{
    for (size_t i = 0; u && i < u->run_count; i++) {
        struct run run = u->runs[i];
        while (run.off < run.end) {
            size_t end = vn_piece_end(run.off, run.end);
            size_t hole = vn_put_command(e, VN_OP_KEEP);
            wire_put_u64(e, memory->object.id);
            wire_put_u64(e, run.off);
            wire_put_u32(e, (uint32_t)(end - run.off));
            wire_fill_len(e, hole);
            run.off = end;
        }
    }
    if (u)
        u->run_count = 0;
}
