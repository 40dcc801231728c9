#include "llm/tp/side.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- meeting in shared memory ---- */

static void *memory_room(struct llm_tp_side *side)
{
    return llm_tp_exchange_room(side->exchange);
}

static int memory_meet(struct llm_tp_side *side, const struct llm_gather *op, uint32_t rows,
                       bool goes_on)
{
    (void)op, (void)rows, (void)goes_on; /* all see the room */
    return llm_tp_meet(side->exchange);
}

static void memory_fail(struct llm_tp_side *side)
{
    llm_tp_break(side->exchange);
}

const struct llm_tp_meetings llm_tp_in_memory = {
    .room = memory_room, .meet = memory_meet, .fail = memory_fail};

/* ---- gathering ---- */

/* Where a rank's share of `rows` rows begins in a room. */
static float *part_of(void *room, struct llm_share share, uint32_t rows)
{
    return (float *)room + (size_t)share.first * rows;
}

static void join_rows(const struct llm_gather *op, void *room, float *out, uint32_t rows,
                      uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++) {
        struct llm_share share = llm_share_of(op->width, op->unit, r, ranks);
        const float *part = part_of(room, share, rows);
        for (uint32_t i = 0; i < rows; i++)
            memcpy(out + (size_t)i * op->width + share.first, part + (size_t)i * share.count,
                   share.count * sizeof *out);
    }
}

/* In place: values has the own shares without gaps, and gets whole rows.  The last rows go first,
 * so that none is overwritten before it is read. */
static int exchange_rows(struct llm_tp_side *side, const struct llm_gather *op, float *values)
{
    uint32_t rank = side->split.rank, ranks = side->split.ranks;
    struct llm_share own = llm_share_of(op->width, op->unit, rank, ranks);
    uint64_t most = LLM_TP_ROOM_BYTES / (op->width * sizeof *values), began = hw_now_ns();
    assert(most > 0);
    for (uint32_t left = op->rows; left > 0;) {
        uint32_t rows = left < most ? left : (uint32_t)most, first = left - rows;
        void *room = side->meetings->room(side);
        size_t bytes = (size_t)rows * own.count * sizeof *values;
        memcpy(part_of(room, own, rows), values + (size_t)first * own.count, bytes);
        int rc = side->meetings->meet(side, op, rows, first > 0);
        if (rc)
            return rc;
        if (rank == 0 || !op->first_only)
            join_rows(op, room, values + (size_t)first * op->width, rows, ranks);
        left = first;
    }
    side->stats.gather_ns += hw_now_ns() - began;
    side->stats.bytes += (uint64_t)op->rows * own.count * sizeof *values;
    return 0;
}

/* The step so far is finished, and another begun with what was gathered. */
static int gather_from_device(struct llm_tp_side *side, const struct llm_gather *op, char *why)
{
    struct llm_backend *b = side->backend;
    struct llm_share own = llm_share_of(op->width, op->unit, side->split.rank, side->split.ranks);
    uint64_t whole = (uint64_t)op->rows * op->width * sizeof(float), ns = 0;
    if (whole > side->row_bytes) {
        free(side->rows);
        side->rows = malloc(whole);
        side->row_bytes = side->rows ? whole : 0;
        if (!side->rows)
            return llm_why(why, -ENOMEM, "no memory to gather %u rows", op->rows);
    }
    int rc = side->ops->finish(b, &ns, why);
    side->kernel_ns += ns;
    if (rc == 0)
        rc = side->ops->download(b, op->place, side->rows,
                                 (uint64_t)op->rows * own.count * sizeof(float), why);
    if (rc == 0)
        rc = exchange_rows(side, op, side->rows);
    if (rc == 0 && (side->split.rank == 0 || !op->first_only))
        rc = side->ops->upload(b, op->place, side->rows, whole, why);
    int begun = side->ops->begin(b, side->batch, why);
    return rc ? rc : begun;
}

static int gather(void *user, const struct llm_gather *op, char *why)
{
    struct llm_tp_side *side = user;
    int rc = side->ops->host ? exchange_rows(side, op, side->ops->host(op->place))
                             : gather_from_device(side, op, why);
    if (rc && side->meetings->fail) /* the others must not wait for this rank */
        side->meetings->fail(side);
    return rc == -EOWNERDEAD ? llm_why(why, rc, "a tensor-parallel worker failed") : rc;
}

/* ---- life ---- */

void llm_tp_side_init(struct llm_tp_side *side, const struct llm_tp_meetings *meetings,
                      struct llm_backend *backend, uint32_t rank, uint32_t ranks)
{
    *side = (struct llm_tp_side){
        .meetings = meetings,
        .backend = backend,
        .ops = backend->ops,
        .split = {.rank = rank, .ranks = ranks, .gather = gather, .user = side}};
    backend->split = &side->split;
}

void llm_tp_side_fini(struct llm_tp_side *side)
{
    free(side->rows);
    side->rows = NULL;
}

/* ---- KV rows ---- */

void *llm_tp_rows_part(const struct llm_tp_rows *r, void *room, uint32_t rank, uint32_t ranks)
{
    struct llm_share share = llm_share_of(r->values, r->unit, rank, ranks);
    return (uint16_t *)room + (size_t)share.first * r->rows.count;
}

typedef void move(uint16_t *whole, uint16_t *part, size_t bytes);

static void to_whole(uint16_t *whole, uint16_t *part, size_t bytes)
{
    memcpy(whole, part, bytes);
}

static void to_part(uint16_t *whole, uint16_t *part, size_t bytes)
{
    memcpy(part, whole, bytes);
}

static void move_rows(const struct llm_tp_rows *r, uint16_t *whole, void *room, uint32_t ranks,
                      move *one)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct llm_share share = llm_share_of(r->values, r->unit, rank, ranks);
        uint16_t *part = llm_tp_rows_part(r, room, rank, ranks);
        for (uint32_t i = 0; i < r->rows.count; i++)
            one(whole + (size_t)i * r->values + share.first, part + (size_t)i * share.count,
                share.count * sizeof *part);
    }
}

void llm_tp_rows_join(const struct llm_tp_rows *r, const void *room, void *dst, uint32_t ranks)
{
    move_rows(r, dst, (void *)(uintptr_t)room, ranks, to_whole);
}

void llm_tp_rows_part_all(const struct llm_tp_rows *r, const void *src, void *room, uint32_t ranks)
{
    move_rows(r, (uint16_t *)(uintptr_t)src, room, ranks, to_part);
}
