#include "llm/stage/shares.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "llm/client/remote.h"
#include "llm/model/why.h"
#include "llm/stage/link.h"
#include "llm/tp/side.h"
#include "llm/tp/tp.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opening a share may take so many timeouts: the server then reads and packs its weights. */
enum { LOADING_TIMEOUTS = 10 };

struct shares {
    struct llm_tp_side side;    /* first: the backend's split leads here */
    struct llm_backend_ops ops; /* the device's own, but for what all ranks take part in */
    struct llm_links links;     /* of rank 1 and on */
    char names[LLM_STAGES_MAX][LLM_LINK_NAME_CHARS];
    uint32_t ranks, kv_heads, layers;
    uint8_t *room;
    struct llm_kv_memory *kv;
    bool is_broken; /* in this step, and the cause is known */
    char cause[LLM_WHY_CHARS];
};

/* Of all ranks. */
struct llm_kv_memory {
    struct shares *shares;
    struct llm_kv_memory *inner; /* rank 0's own */
    struct llm_kv_shape shape;   /* of all ranks together */
    uint32_t unit;               /* of row_values that stay together: a head's */
    uint64_t slab_bytes;
};

static struct shares *shares_of(struct llm_backend *b)
{
    return b->split->user;
}

static struct llm_link *link_of(struct shares *s, uint32_t rank)
{
    return &s->links.items[rank - 1];
}

/* ---- servers as the user writes them ---- */

static int parse_one(struct llm_shares_config *out, const char *item, char *why)
{
    char cause[RPC_WHY_CHARS] = "";
    uint32_t i = out->count;
    if (i == LLM_STAGES_MAX)
        return llm_why(why, -EINVAL, "more than %d servers", LLM_STAGES_MAX);
    if (rpc_addr_parse(item, &out->addrs[i], cause))
        return llm_why(why, -EINVAL, "'%.64s': %.160s", item, cause);
    rpc_addr_format(&out->addrs[i], out->names[i], sizeof out->names[i]);
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(out->names[k], out->names[i]) == 0)
            return llm_why(why, -EINVAL, "'%.64s' is named twice; each server has one share", item);
    }
    out->count++;
    return 0;
}

int llm_shares_parse(const char *text, struct llm_shares_config *out, char *why)
{
    char *copy = strdup(text), *save = NULL;
    int rc = copy ? 0 : llm_why(why, -ENOMEM, "no memory");
    *out = (struct llm_shares_config){0};
    for (char *item = copy ? strtok_r(copy, ",", &save) : NULL; item && rc == 0;
         item = strtok_r(NULL, ",", &save))
        rc = parse_one(out, item, why);
    if (rc == 0 && out->count == 0)
        rc = llm_why(why, -EINVAL, "no server is named; write HOST:PORT,HOST:PORT");
    free(copy);
    return rc;
}

/* ---- forming ---- */

static int open_share(struct shares *s, uint32_t rank, uint64_t *slab_bytes, char *why)
{
    struct llm_link *link = link_of(s, rank);
    const struct llm_kv_memory *kv = s->kv;
    struct llm_stage_open open = {.size = s->links.size,
                                  .end = s->layers,
                                  .row_values = kv->shape.row_values,
                                  .pages = kv->shape.pages,
                                  .run = kv->shape.run,
                                  .rank = rank,
                                  .ranks = s->ranks};
    struct wire_dec answer;
    uint64_t timeout_ns = s->links.timeout_ns;
    memcpy(open.hash, s->links.hash, sizeof open.hash);
    wire_enc_reset(&s->links.enc);
    llm_stage_open_put(&s->links.enc, &open);
    s->links.timeout_ns *= LOADING_TIMEOUTS;
    llm_remote_set_timeout(link->remote, s->links.timeout_ns);
    int rc = llm_link_call(&s->links, link, LLM_STAGE_SHARE, NULL, &answer, why);
    s->links.timeout_ns = timeout_ns;
    if (rc == -ENOSYS)
        return llm_why(why, rc,
                       "%.88s: that server has no share for others: start it with --model FILE "
                       "--tp-share",
                       link->name);
    if (rc)
        return rc;
    llm_remote_set_timeout(link->remote, timeout_ns);
    rc = llm_link_check_opened(&s->links, link, &answer, slab_bytes, why);
    if (rc == 0)
        rc = llm_link_map_again(&s->links, link, 0, kv->shape.pages / kv->shape.run, why);
    link->is_open = rc == 0;
    return rc;
}

/* Connects to all and gives them KV memory, with what is to be mapped; also in the thread of an
 * attempt. */
static int form(void *user, char *why)
{
    struct shares *s = user;
    uint64_t slab_bytes = s->side.ops->kv_slab(s->kv->inner), of_rank;
    int rc = 0;
    for (uint32_t r = 1; r < s->ranks && rc == 0; r++) {
        if (!link_of(s, r)->remote)
            rc = llm_link_connect(&s->links, link_of(s, r), why);
    }
    for (uint32_t r = 1; r < s->ranks && rc == 0; r++) {
        rc = open_share(s, r, &of_rank, why);
        slab_bytes += rc ? 0 : of_rank;
    }
    if (rc)
        llm_links_disconnect(&s->links);
    else if (s->kv->slab_bytes != slab_bytes) /* the engine may read it during a later attempt */
        s->kv->slab_bytes = slab_bytes;
    return rc;
}

static bool is_formed(const struct shares *s)
{
    for (uint32_t i = 0; i < s->links.count; i++) {
        if (s->links.reaches || !s->links.items[i].is_open)
            return false;
    }
    return true;
}

/* No link was lost, which has been told. */
static bool is_whole(const struct shares *s)
{
    for (uint32_t i = 0; i < s->links.count; i++) {
        if (!s->links.items[i].remote)
            return false;
    }
    return true;
}

/* A rank is lost, or this one failed with own_rc and its why: so is its share of all KV. */
static int lose(struct shares *s, int own_rc, char *why)
{
    char cause[LLM_WHY_CHARS];
    if (own_rc && !s->is_broken)
        llm_why_set(cause, "tensor-parallel worker 0: %.*s", LLM_WHY_CHARS - 64, why);
    else
        llm_why_set(cause, "%s", s->cause);
    if (is_whole(s))
        hw_warn(HW_CAT_LLM, "%s; texts under way are computed again", cause);
    llm_links_disconnect(&s->links);
    s->side.backend->kv_lost = true;
    s->links.lost_ns = hw_now_ns();
    s->side.stats.losses++;
    return llm_why(why, -EOWNERDEAD, "%s", cause);
}

/* What a call to one rank failed with; others have not heard of it. */
static int lose_if_dead(struct shares *s, int rc, char *why)
{
    if (rc != -EOWNERDEAD)
        return rc;
    s->is_broken = true;
    llm_why_set(s->cause, "%s", why);
    return lose(s, rc, why);
}

/* Before every use of the ranks.  What was lost must not be read, so the engine says first that it
 * knows. */
static int ensure(struct shares *s, char *why)
{
    if (s->side.backend->kv_lost)
        return llm_why(why, -EOWNERDEAD, "the KV memory was lost with a tensor-parallel worker");
    s->is_broken = false;
    return is_formed(s) ? 0 : llm_links_reach(&s->links, why);
}

static int shares_reach(struct llm_backend *b, char *why)
{
    return ensure(shares_of(b), why);
}

/* ---- KV ---- */

static void shares_kv_destroy(struct llm_backend *b, struct llm_kv_memory *kv)
{
    struct shares *s = shares_of(b);
    if (!kv)
        return;
    llm_links_end_kv(&s->links);
    s->kv = NULL;
    s->side.ops->kv_destroy(b, kv->inner);
    free(kv);
}

static int shares_kv_create(struct llm_backend *b, const struct llm_kv_shape *shape,
                            struct llm_kv_memory **out, char *why)
{
    struct shares *s = shares_of(b);
    uint32_t unit = shape->row_values / s->kv_heads;
    struct llm_kv_shape own = *shape;
    assert(!s->kv && shape->row_values % s->kv_heads == 0);
    own.row_values = llm_share_of(shape->row_values, unit, 0, s->ranks).count;
    struct llm_kv_memory *kv = calloc(1, sizeof *kv);
    int rc = kv && llm_links_begin_kv(&s->links, shape->pages / shape->run) == 0
                 ? s->side.ops->kv_create(b, &own, &kv->inner, why)
                 : llm_why(why, -ENOMEM, "no memory for the KV cache");
    if (rc == 0) {
        kv->shares = s;
        kv->shape = *shape;
        kv->unit = unit;
        s->kv = kv;
        rc = form(s, why);
    }
    if (rc) {
        shares_kv_destroy(b, kv);
        b->kv_lost = false;
        return rc == -EOWNERDEAD ? -EIO : rc;
    }
    *out = kv;
    return 0;
}

static uint64_t shares_kv_slab(const struct llm_kv_memory *kv)
{
    return kv->slab_bytes;
}

/* At all ranks or at none. */
static int shares_kv_map(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why)
{
    struct shares *s = kv->shares;
    char unused[LLM_WHY_CHARS];
    int rc = ensure(s, why);
    if (rc == 0)
        rc = s->side.ops->kv_map(kv->inner, slabs, count, why);
    if (rc)
        return rc;
    uint32_t r = 1;
    for (; r < s->ranks && rc == 0; r++)
        rc = llm_link_send_slabs(&s->links, link_of(s, r), LLM_STAGE_MAP, slabs, count, why);
    if (rc == 0) {
        llm_links_note_mapped(&s->links, slabs, count, true);
        return 0;
    }
    (void)s->side.ops->kv_unmap(kv->inner, slabs, count, unused);
    for (uint32_t k = 1; rc != -EOWNERDEAD && k + 1 < r; k++) {
        if (llm_link_send_slabs(&s->links, link_of(s, k), LLM_STAGE_UNMAP, slabs, count, unused))
            rc = -EOWNERDEAD; /* it has what the others have not */
    }
    return lose_if_dead(s, rc, why);
}

static int shares_kv_unmap(struct llm_kv_memory *kv, const uint32_t *slabs, size_t count, char *why)
{
    struct shares *s = kv->shares;
    int rc = s->side.ops->kv_unmap(kv->inner, slabs, count, why);
    if (rc)
        return rc;
    llm_links_note_mapped(&s->links, slabs, count, false);
    for (uint32_t r = 1; r < s->ranks && is_formed(s) && rc == 0; r++)
        rc = llm_link_send_slabs(&s->links, link_of(s, r), LLM_STAGE_UNMAP, slabs, count, why);
    if (rc) /* nothing is mapped at the others then, and the next use tells */
        (void)lose_if_dead(s, -EOWNERDEAD, why);
    return 0;
}

static struct llm_tp_rows rows_of(const struct llm_kv_memory *kv, const struct llm_kv_rows *rows)
{
    return (struct llm_tp_rows){.rows = *rows, .values = kv->shape.row_values, .unit = kv->unit};
}

static struct iovec part_of_rank(const struct llm_kv_memory *kv, const struct llm_tp_rows *all,
                                 uint32_t rank)
{
    struct shares *s = kv->shares;
    uint32_t values = llm_share_of(all->values, all->unit, rank, s->ranks).count;
    return (struct iovec){.iov_base = llm_tp_rows_part(all, s->room, rank, s->ranks),
                          .iov_len = (size_t)all->rows.count * values * sizeof(uint16_t)};
}

static int shares_kv_read(struct llm_kv_memory *kv, const struct llm_kv_rows *rows, void *dst,
                          char *why)
{
    struct shares *s = kv->shares;
    struct llm_tp_rows all = rows_of(kv, rows);
    int rc = ensure(s, why);
    if (rc)
        return rc;
    rc = s->side.ops->kv_read(kv->inner, rows, part_of_rank(kv, &all, 0).iov_base, why);
    for (uint32_t r = 1; r < s->ranks && rc == 0; r++)
        rc = llm_link_read_rows(&s->links, link_of(s, r), rows, part_of_rank(kv, &all, r), why);
    if (rc)
        return lose_if_dead(s, rc, why);
    llm_tp_rows_join(&all, s->room, dst, s->ranks);
    return 0;
}

static int shares_kv_write(struct llm_kv_memory *kv, const struct llm_kv_rows *rows,
                           const void *src, char *why)
{
    struct shares *s = kv->shares;
    struct llm_tp_rows all = rows_of(kv, rows);
    int rc = ensure(s, why);
    if (rc)
        return rc;
    llm_tp_rows_part_all(&all, src, s->room, s->ranks);
    rc = s->side.ops->kv_write(kv->inner, rows, part_of_rank(kv, &all, 0).iov_base, why);
    for (uint32_t r = 1; r < s->ranks && rc == 0; r++)
        rc = llm_link_write_rows(&s->links, link_of(s, r), rows, part_of_rank(kv, &all, r), why);
    return lose_if_dead(s, rc, why);
}

/* ---- gathers ---- */

static void *gather_room(struct llm_tp_side *side)
{
    return ((struct shares *)side)->room;
}

static struct iovec part_in_room(struct shares *s, const struct llm_gather *op, uint32_t rows,
                                 uint32_t first, uint32_t end)
{
    uint32_t from = first < s->ranks ? llm_share_of(op->width, op->unit, first, s->ranks).first
                                     : op->width,
             to = end < s->ranks ? llm_share_of(op->width, op->unit, end, s->ranks).first
                                 : op->width;
    return (struct iovec){.iov_base = (float *)(void *)s->room + (size_t)from * rows,
                          .iov_len = (size_t)(to - from) * rows * sizeof(float)};
}

/* The own share goes out first, so that with two ranks each waits for one message. */
static int gather_all(struct shares *s, const struct llm_gather *op, uint32_t rows, bool goes_on,
                      char *why)
{
    struct iovec own = part_in_room(s, op, rows, 0, 1);
    int rc = 0;
    for (uint32_t r = 1; r < s->ranks && !op->first_only && rc == 0; r++)
        rc = llm_link_send_part(&s->links, link_of(s, r), &own, 1, why);
    uint64_t began = hw_now_ns();
    for (uint32_t r = 1; r < s->ranks && rc == 0; r++) {
        struct iovec part = part_in_room(s, op, rows, r, r + 1);
        rc = llm_link_take_part(&s->links, link_of(s, r), part.iov_base, part.iov_len, why);
    }
    s->side.stats.wait_ns += hw_now_ns() - began;
    for (uint32_t r = 1; r < s->ranks && s->ranks > 2 && !op->first_only && rc == 0; r++) {
        struct iovec others[2] = {part_in_room(s, op, rows, 1, r),
                                  part_in_room(s, op, rows, r + 1, s->ranks)};
        rc = llm_link_send_part(&s->links, link_of(s, r), others, 2, why);
    }
    for (uint32_t r = 1; r < s->ranks && op->first_only && goes_on && rc == 0; r++)
        rc = llm_link_send_part(&s->links, link_of(s, r), NULL, 0, why);
    return rc;
}

static int meet(struct llm_tp_side *side, const struct llm_gather *op, uint32_t rows, bool goes_on)
{
    struct shares *s = (struct shares *)side;
    side->stats.meetings++;
    s->is_broken = gather_all(s, op, rows, goes_on, s->cause) != 0;
    return s->is_broken ? -EOWNERDEAD : 0;
}

/* The end of the connections tells the others of a failure, when the step is finished here. */
static const struct llm_tp_meetings over_links = {.room = gather_room, .meet = meet};

/* ---- steps ---- */

/* Of the stage's messages, with a token where those have a row. */
static void put_step(struct shares *s, const struct llm_batch *batch)
{
    struct llm_stage_part part = {.batch = batch,
                                  .rows = batch->rows,
                                  .end_layer = s->layers,
                                  .wanted = batch->picks,
                                  .wanted_count = batch->pick_count};
    wire_enc_reset(&s->links.enc);
    llm_stage_step_put(&s->links.enc, &part);
    wire_put_bytes(&s->links.enc, batch->tokens, batch->rows * sizeof *batch->tokens);
}

static int shares_begin(struct llm_backend *b, const struct llm_batch *batch, char *why)
{
    struct shares *s = shares_of(b);
    int rc = ensure(s, why);
    if (rc)
        return rc;
    put_step(s, batch);
    for (uint32_t r = 1; r < s->ranks && rc == 0; r++)
        rc = llm_link_begin_step(&s->links, link_of(s, r), why);
    if (rc) {
        s->is_broken = true;
        llm_why_set(s->cause, "%s", why);
        return lose(s, rc, why);
    }
    s->side.batch = batch;
    s->side.kernel_ns = 0;
    rc = s->side.ops->begin(b, batch, why);
    return rc ? lose(s, rc, why) : 0;
}

static void shares_append(struct llm_backend *b, const struct llm_op_append *op)
{
    struct llm_op_append own = *op;
    own.kv = op->kv->inner;
    shares_of(b)->side.ops->append(b, &own);
}

static void shares_attend(struct llm_backend *b, const struct llm_op_attend *op)
{
    struct llm_op_attend own = *op;
    own.kv = op->kv->inner;
    shares_of(b)->side.ops->attend(b, &own);
}

static int shares_finish(struct llm_backend *b, uint64_t *kernel_ns, char *why)
{
    struct shares *s = shares_of(b);
    int rc = s->side.ops->finish(b, kernel_ns, why);
    *kernel_ns += s->side.kernel_ns;
    for (uint32_t r = 1; r < s->ranks && rc == 0 && !s->is_broken; r++)
        s->is_broken = llm_link_end_step(&s->links, link_of(s, r), s->cause) != 0;
    return rc || s->is_broken ? lose(s, rc, why) : 0;
}

/* ---- life ---- */

static void shares_traffic(const struct llm_backend *b, uint64_t *sent, uint64_t *received)
{
    const struct shares *s = b->split->user;
    llm_links_traffic(&s->links, s->side.ops, sent, received);
}

static void shares_close(struct llm_backend *b)
{
    struct shares *s = shares_of(b);
    const struct llm_backend_ops *inner = s->side.ops;
    assert(!s->kv);
    llm_links_fini(&s->links);
    llm_tp_side_fini(&s->side);
    free(s->room);
    b->ops = inner;
    b->split = NULL;
    inner->close(b);
    free(s);
}

static void replace_ops(struct shares *s, struct llm_backend *backend)
{
    s->ops = *backend->ops;
    s->ops.close = shares_close;
    s->ops.kv_create = shares_kv_create;
    s->ops.kv_destroy = shares_kv_destroy;
    s->ops.kv_slab = shares_kv_slab;
    s->ops.kv_map = shares_kv_map;
    s->ops.kv_unmap = shares_kv_unmap;
    s->ops.kv_read = shares_kv_read;
    s->ops.kv_read_all = NULL;
    s->ops.kv_write = shares_kv_write;
    s->ops.begin = shares_begin;
    s->ops.append = shares_append;
    s->ops.attend = shares_attend;
    s->ops.finish = shares_finish;
    s->ops.prepare = NULL; /* the others would not know of it */
    s->ops.traffic = shares_traffic;
    s->ops.reach = shares_reach;
    s->links.reach = form;
    s->links.reach_user = s;
    backend->ops = &s->ops;
}

static void describe(struct shares *s, const struct llm_shares_config *from)
{
    s->links.count = from->count;
    for (uint32_t i = 0; i < from->count; i++) {
        snprintf(s->names[i], sizeof s->names[i], "tensor-parallel worker %u at %s", i + 1,
                 from->names[i]);
        s->links.items[i].name = s->names[i];
        s->links.items[i].addr = from->addrs[i];
    }
}

int llm_shares_open(const struct llm_backend_ops *ops, const struct llm_backend_config *config,
                    const struct llm_shares_config *from, const struct llm_file *file,
                    struct llm_backend **out, char *why)
{
    const struct llm_config *model = llm_file_config(file);
    struct llm_backend *backend;
    int rc = llm_tp_check(file, from->count + 1, why);
    if (rc)
        return rc;
    struct shares *s = calloc(1, sizeof *s);
    uint8_t *room = malloc(LLM_TP_ROOM_BYTES);
    rc = s && room ? ops->open(config, &backend, why)
                   : llm_why(why, -ENOMEM, "no memory for tensor-parallel workers");
    if (rc) {
        free(room);
        free(s);
        return rc;
    }
    s->room = room;
    s->ranks = from->count + 1;
    s->kv_heads = model->kv_heads;
    s->layers = model->layers;
    uint64_t timeout_s;
    (void)hw_env_u64("HAWSER_TP_TIMEOUT_S", LLM_LINK_TIMEOUT_S, 1, LLM_LINK_TIMEOUT_MAX_S,
                     &timeout_s);
    llm_links_init(&s->links, "HAWSER_TP_TIMEOUT_S", timeout_s, from->away_ns, from->security,
                   file);
    s->links.backend = backend;
    describe(s, from);
    llm_tp_side_init(&s->side, &over_links, backend, 0, s->ranks);
    replace_ops(s, backend);
    for (uint32_t r = 1; r < s->ranks && rc == 0; r++)
        rc = llm_link_connect(&s->links, link_of(s, r), why);
    if (rc) {
        shares_close(backend);
        return rc;
    }
    *out = backend;
    return 0;
}
