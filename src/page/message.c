#include "page/message.h"

#include <errno.h>
#include <string.h>

void page_command_encode(const struct page_command *c, struct wire_enc *e)
{
    wire_put_u64(e, c->epoch);
    wire_put_u64(e, c->seq);
    wire_put_u64(e, c->deadline);
    wire_put_u32(e, (uint32_t)c->op);
    wire_put_u32(e, c->count);
    for (uint32_t i = 0; i < c->count; i++)
        wire_put_u32(e, c->ids[i]);
}

int page_command_decode(const void *data, size_t len, struct page_command *c)
{
    struct wire_dec d;
    wire_dec_init(&d, data, len);
    c->epoch = wire_get_u64(&d);
    c->seq = wire_get_u64(&d);
    c->deadline = wire_get_u64(&d);
    uint32_t op = wire_get_u32(&d);
    if (op < PAGE_OP_MAP || op > PAGE_OP_RESET)
        wire_dec_fail(&d, -EPROTO);
    c->op = (enum page_op)op;
    c->count = wire_dec_count(&d, 4, PAGE_BATCH_MAX);
    bool takes_ids = op == PAGE_OP_MAP || op == PAGE_OP_UNMAP;
    if ((c->count > 0) != takes_ids)
        wire_dec_fail(&d, -EPROTO);
    for (uint32_t i = 0; i < c->count; i++)
        c->ids[i] = wire_get_u32(&d);
    return wire_dec_end(&d);
}

void page_answer_encode(const struct page_answer *a, struct wire_enc *e)
{
    const struct page_outcome *o = &a->outcome;
    wire_put_i32(e, o->why.rc);
    wire_put_i32(e, o->why.driver);
    wire_put_u64(e, a->began);
    wire_put_u64(e, a->ended);
    wire_put_u64(e, o->driver_ns);
    wire_put_str(e, o->why.text);
    uint32_t count = o->why.rc ? o->count : 0;
    wire_put_u32(e, count);
    wire_put_bytes(e, o->codes, count);
}

static void get_codes(struct wire_dec *d, uint32_t count, struct page_outcome *o)
{
    uint32_t given = wire_dec_count(d, 1, PAGE_BATCH_MAX);
    if (given != 0 && (given != count || o->why.rc == 0))
        wire_dec_fail(d, -EPROTO);
    memset(o->codes, o->why.rc ? PAGE_SKIPPED : PAGE_DONE, count);
    if (given && !wire_dec_error(d))
        wire_get_copy(d, o->codes, given);
    for (uint32_t i = 0; i < count; i++) {
        if (o->codes[i] >= PAGE_CODES)
            wire_dec_fail(d, -EPROTO);
    }
    o->count = count;
}

int page_answer_decode(const void *data, size_t len, uint32_t count, struct page_answer *a)
{
    struct wire_dec d;
    struct page_outcome *o = &a->outcome;
    wire_dec_init(&d, data, len);
    o->why.rc = wire_get_i32(&d);
    o->why.driver = wire_get_i32(&d);
    a->began = wire_get_u64(&d);
    a->ended = wire_get_u64(&d);
    o->driver_ns = wire_get_u64(&d);
    wire_get_str_copy(&d, o->why.text, sizeof o->why.text);
    if (o->why.rc > 0)
        wire_dec_fail(&d, -EPROTO);
    get_codes(&d, count, o);
    return wire_dec_end(&d);
}

void page_answer_fail(struct page_answer *a, uint32_t count, const struct page_error *why)
{
    a->began = a->ended = 0;
    a->outcome.why = *why;
    a->outcome.driver_ns = 0;
    a->outcome.count = count;
    memset(a->outcome.codes, PAGE_SKIPPED, count);
}

void page_info_encode(const struct page_info *i, struct wire_enc *e)
{
    const struct page_geometry *g = &i->geometry;
    wire_put_u32(e, i->rank);
    wire_put_u32(e, g->pages);
    wire_put_u32(e, g->layers);
    wire_put_u32(e, (uint32_t)g->layout);
    wire_put_u64(e, g->page_bytes);
    wire_put_u64(e, g->memory_bytes);
    wire_put_u32(e, i->mapped);
    wire_put_str(e, i->backend);
    wire_put_str(e, i->device);
}

int page_info_decode(const void *data, size_t len, struct page_info *i)
{
    struct wire_dec d;
    struct page_error why;
    wire_dec_init(&d, data, len);
    i->rank = wire_get_u32(&d);
    uint32_t pages = wire_get_u32(&d), layers = wire_get_u32(&d), layout = wire_get_u32(&d);
    uint64_t page_bytes = wire_get_u64(&d), memory = wire_get_u64(&d);
    i->mapped = wire_get_u32(&d);
    wire_get_str_copy(&d, i->backend, sizeof i->backend);
    wire_get_str_copy(&d, i->device, sizeof i->device);
    if (layout > PAGE_CONTIGUOUS)
        wire_dec_fail(&d, -EPROTO);
    int rc = wire_dec_end(&d);
    if (rc)
        return rc;
    /* The page count follows from the rest; one that does not is another arithmetic. */
    rc = page_geometry_init(&i->geometry, memory, layers, page_bytes, (enum page_layout)layout,
                            &why);
    return rc || i->geometry.pages != pages || i->mapped > pages ? -EPROTO : 0;
}
