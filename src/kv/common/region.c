#include "kv/common/region.h"

#include <errno.h>
#include <string.h>

void kv_region_map(struct kv_region *r, void *map, const struct kv_region_shape *shape)
{
    assert(kv_shape_ok(shape) && (uintptr_t)map % HW_CACHE_LINE == 0);
    uint32_t ring = kv_ring_lines(shape->depth);
    uint8_t *base = map;
    r->header = map;
    r->daemon = (struct kv_daemon_line *)(base + KV_REGION_DAEMON);
    r->client = (struct kv_client_line *)(base + KV_REGION_CLIENT);
    r->requests = (struct kv_request_line *)(base + KV_REGION_LINES);
    r->responses = (struct kv_response_line *)(r->requests + ring);
    r->data = (uint8_t *)(r->responses + ring);
    r->stride = kv_slot_stride(shape->value_max);
    r->depth = shape->depth;
    r->mask = ring - 1;
    r->value_max = shape->value_max;
    r->staging_bytes = shape->staging_bytes;
    r->staging = shape->staging_bytes ? base + kv_region_bytes(shape) - shape->staging_bytes : NULL;
}

void kv_region_format(void *map, const struct kv_region_shape *shape)
{
    *(struct kv_region_header *)map = (struct kv_region_header){
        .magic = KV_REGION_MAGIC,
        .version = KV_REGION_VERSION,
        .depth = shape->depth,
        .ring = kv_ring_lines(shape->depth),
        .value_max = shape->value_max,
        .staging_bytes = shape->staging_bytes,
    };
}

int kv_region_check(const void *map, const struct kv_region_shape *shape)
{
    const struct kv_region_header *h = map;
    bool ok = h->magic == KV_REGION_MAGIC && h->version == KV_REGION_VERSION &&
              h->depth == shape->depth && h->ring == kv_ring_lines(shape->depth) &&
              h->value_max == shape->value_max && h->staging_bytes == shape->staging_bytes;
    return ok ? 0 : -EPROTO;
}

void kv_port_init(struct kv_port *port, void *map, const struct kv_region_shape *shape)
{
    *port = (struct kv_port){0};
    kv_region_map(&port->region, map, shape);
    for (uint32_t i = 0; i < shape->depth; i++)
        port->free_slots[i] = (uint16_t)(shape->depth - 1 - i);
}

int kv_port_submit(struct kv_port *port, const struct kv_port_request *request, uint32_t *slot_out)
{
    const struct kv_region *r = &port->region;
    uint32_t len = request->op == KV_PUT || request->op == KV_BLOCK ? request->value_len : 0;
    if (len > r->value_max)
        return -EMSGSIZE;
    if (port->busy == r->depth)
        return -EAGAIN;
    uint32_t slot = port->free_slots[r->depth - 1 - port->busy];
    port->busy++;
    struct kv_request_line *line = &r->requests[port->sent & r->mask];
    line->op = (uint8_t)request->op;
    line->reserved = 0;
    line->slot = (uint16_t)slot;
    line->value_len = len;
    line->timeout_us = request->timeout_us;
    line->key = request->key;
    if (len)
        memcpy(len <= KV_REQUEST_INLINE ? line->value : kv_region_slot(r, slot), request->value,
               len);
    /* Pairs with the acquire in kv_client_slot_has_request: the line and the slot's data come with
     * it. */
    atomic_store_explicit(&line->seq, ++port->sent, memory_order_release);
    *slot_out = slot;
    return 0;
}

int kv_port_take(struct kv_port *port, struct kv_port_answer *out)
{
    if (!kv_port_has_answer(port))
        return 0;
    const struct kv_region *r = &port->region;
    const struct kv_response_line *line = &r->responses[port->taken & r->mask];
    uint32_t slot = line->slot, len = line->value_len;
    if (slot >= r->depth || len > r->value_max || line->result >= KV_RESULT_COUNT)
        return -EPROTO;
    *out = (struct kv_port_answer){
        .slot = slot,
        .result = (enum kv_result)line->result,
        .value_len = len,
        .value = len <= KV_RESPONSE_INLINE ? line->value : kv_region_slot(r, slot),
    };
    port->taken++;
    return 1;
}

void kv_port_free(struct kv_port *port, uint32_t slot)
{
    assert(port->busy > 0 && slot < port->region.depth);
    port->busy--;
    port->free_slots[port->region.depth - 1 - port->busy] = (uint16_t)slot;
}
