/* kv/common/region.h - the memory that one client shares with one daemon, and the client's side of
 * it.
 *
 *   offset 0                    header          daemon, once
 *   KV_REGION_DAEMON            daemon's line   daemon: whether it sleeps on this client's bell
 *   KV_REGION_CLIENT            client's line   client: whether it sleeps
 *   KV_REGION_LINES             request lines   client, `ring` of them
 *   + 64 * ring                 response lines  daemon, `ring` of them
 *   + 64 * ring                 data            `depth` slots of `value_max` bytes, line-aligned
 *   the next whole page         staging         client: blocks on their way to the daemon
 *
 * Requests and answers are two rings of 64-byte lines.  A line's sequence number is its position
 * plus one, written last (release) and polled (acquire).  So a request costs one cache line each
 * way, and idle request slots cost nothing.  Answers come in any order and name the slot of their
 * request.  A value that does not fit into the line lies in that slot's data.
 *
 * The rings need no tail index.  A client has at most `depth` <= `ring` slots, takes one for each
 * request and frees it when it has taken the answer.  So when it writes position p + ring, at least
 * one of the requests p to p + ring - 1 has been answered.  Since the daemon takes requests in
 * order, it has read p.  The same holds for answers.
 *
 * Trust: the client may write anything anywhere.  The daemon reads each field once, then checks it,
 * and keeps its own positions and slot states, so a client can harm only itself.  The client trusts
 * the daemon with its data but checks slot and length.  The region is sealed: it cannot shrink.
 * Threads: one on each side.  Lifetime: the owner of the mapping keeps it while a side is used. */
#ifndef HAWSER_KV_COMMON_REGION_H
#define HAWSER_KV_COMMON_REGION_H

#include "kv/common/kv.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    KV_REGION_MAGIC = 0x56485748, /* "HWHV" */
    KV_REGION_VERSION = 1,
    KV_REGION_DAEMON = 64,
    KV_REGION_CLIENT = 128,
    KV_REGION_LINES = 256, /* two lines apart, since CPUs prefetch lines in pairs */
    KV_REQUEST_INLINE = 32,
    KV_RESPONSE_INLINE = 48,
    KV_REGION_BYTES_MAX = 32 << 20, /* what one client can pin: 256 slots of 64 KiB, and lines */
    KV_STAGING_MAX = 256 << 20,     /* beside it, for blocks: four of the largest */
    KV_STAGING_ALIGN = 4096         /* so that it shares no page with the daemon's lines */
};

struct kv_request_line {
    _Atomic uint32_t seq;
    uint8_t op;
    uint8_t reserved;
    uint16_t slot;
    uint32_t value_len;
    uint32_t timeout_us; /* 0: the daemon's default */
    struct kv_key key;
    uint8_t value[KV_REQUEST_INLINE];
};

struct kv_response_line {
    _Atomic uint32_t seq;
    uint16_t slot;
    uint8_t result;
    uint8_t reserved;
    uint32_t value_len;
    uint32_t reserved2;
    uint8_t value[KV_RESPONSE_INLINE];
};
_Static_assert(sizeof(struct kv_request_line) == HW_CACHE_LINE, "shared layout");
_Static_assert(sizeof(struct kv_response_line) == HW_CACHE_LINE, "shared layout");

struct kv_region_header {
    uint32_t magic, version, depth, ring, value_max, staging_bytes, reserved[10];
};
struct kv_daemon_line {
    _Atomic uint32_t sleeps;   /* ring its bell after writing a request */
    _Atomic uint32_t crowd;    /* threads of this host that take part: says whether to spin */
    _Atomic uint32_t peers_up; /* other daemons that this one is connected to */
    uint32_t reserved[13];
};
struct kv_client_line {
    _Atomic uint32_t sleeps;
    uint32_t reserved[15];
};
_Static_assert(sizeof(struct kv_region_header) == HW_CACHE_LINE, "shared layout");
_Static_assert(sizeof(struct kv_daemon_line) == HW_CACHE_LINE, "shared layout");
_Static_assert(sizeof(struct kv_client_line) == HW_CACHE_LINE, "shared layout");

struct kv_region_shape {
    uint32_t depth;         /* 1 to KV_DEPTH_MAX */
    uint32_t value_max;     /* at most KV_VALUE_MAX */
    uint32_t staging_bytes; /* at most KV_STAGING_MAX; 0: no blocks */
};

static inline bool kv_shape_ok(const struct kv_region_shape *shape)
{
    return shape->depth >= 1 && shape->depth <= KV_DEPTH_MAX && shape->value_max <= KV_VALUE_MAX &&
           shape->staging_bytes <= KV_STAGING_MAX;
}

/* Lines of each ring: a power of two. */
static inline uint32_t kv_ring_lines(uint32_t depth)
{
    uint32_t ring = 1;
    while (ring < depth)
        ring *= 2;
    return ring;
}

static inline size_t kv_slot_stride(uint32_t value_max)
{
    return ((size_t)value_max + HW_CACHE_LINE - 1) / HW_CACHE_LINE * HW_CACHE_LINE;
}

/* Lines and slots alone. */
static inline size_t kv_region_slots_bytes(const struct kv_region_shape *shape)
{
    assert(kv_shape_ok(shape));
    return KV_REGION_LINES + 2 * (size_t)kv_ring_lines(shape->depth) * HW_CACHE_LINE +
           shape->depth * kv_slot_stride(shape->value_max);
}

static inline size_t kv_region_bytes(const struct kv_region_shape *shape)
{
    size_t bytes = kv_region_slots_bytes(shape);
    if (shape->staging_bytes)
        bytes = (bytes + KV_STAGING_ALIGN - 1) / KV_STAGING_ALIGN * KV_STAGING_ALIGN;
    return bytes + shape->staging_bytes;
}

/* Where the parts are; made by kv_region_map over a mapping of kv_region_bytes. */
struct kv_region {
    struct kv_region_header *header;
    struct kv_daemon_line *daemon;
    struct kv_client_line *client;
    struct kv_request_line *requests;
    struct kv_response_line *responses;
    uint8_t *data;
    size_t stride;
    uint32_t depth, mask, value_max;
    uint8_t *staging; /* NULL: none */
    uint32_t staging_bytes;
};

void kv_region_map(struct kv_region *region, void *map, const struct kv_region_shape *shape);
/* Writes the header of a new region; its other bytes must be zero. */
void kv_region_format(void *map, const struct kv_region_shape *shape);
/* Whether a region's header is what `shape` asks for: 0 or -EPROTO. */
int kv_region_check(const void *map, const struct kv_region_shape *shape) MUST_CHECK;

static inline uint8_t *kv_region_slot(const struct kv_region *region, uint32_t slot)
{
    return region->data + slot * region->stride;
}

/* ---- the client's side ---- */

struct kv_port {
    struct kv_region region;
    uint32_t sent, taken; /* positions */
    uint32_t busy;        /* slots in use */
    uint16_t free_slots[KV_DEPTH_MAX];
};

struct kv_port_request {
    enum kv_op op;
    struct kv_key key;
    const void *value; /* KV_PUT, KV_BLOCK */
    uint32_t value_len;
    uint32_t timeout_us;
};

struct kv_port_answer {
    uint32_t slot;
    enum kv_result result;
    uint32_t value_len;
    const void *value; /* in the region, until the slot is used again */
};

void kv_port_init(struct kv_port *port, void *map, const struct kv_region_shape *shape);
/* 0, -EAGAIN when every slot is in use, -EMSGSIZE for a value past value_max. */
int kv_port_submit(struct kv_port *port, const struct kv_port_request *request,
                   uint32_t *slot_out) MUST_CHECK;
/* The next answer: 1; 0: none yet; -EPROTO: the daemon broke the rules.  The slot stays in use
 * until kv_port_free. */
int kv_port_take(struct kv_port *port, struct kv_port_answer *out) MUST_CHECK;
void kv_port_free(struct kv_port *port, uint32_t slot);

static inline bool kv_port_has_answer(const struct kv_port *port)
{
    const struct kv_response_line *line = &port->region.responses[port->taken & port->region.mask];
    return atomic_load_explicit(&line->seq, memory_order_acquire) == port->taken + 1;
}

/* After submitting: true when the daemon must be rung. */
static inline bool kv_port_must_ring(struct kv_port *port)
{
    /* Pairs with the fence in kv_client_slot_park: either we see that the daemon sleeps, or it sees
     * our line. */
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&port->region.daemon->sleeps, memory_order_relaxed) != 0;
}

/* Before sleeping: true when an answer is there already; then do not. */
static inline bool kv_port_arm(struct kv_port *port)
{
    atomic_store_explicit(&port->region.client->sleeps, 1, memory_order_relaxed);
    /* Pairs with the fence in kv_client_slots_wake. */
    atomic_thread_fence(memory_order_seq_cst);
    return kv_port_has_answer(port);
}

static inline void kv_port_disarm(struct kv_port *port)
{
    atomic_store_explicit(&port->region.client->sleeps, 0, memory_order_relaxed);
}

#endif
