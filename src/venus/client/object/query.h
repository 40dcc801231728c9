/* venus/client/object/query.h - query pools, and results that come with the batch that made them.
 *
 * A program that reads results after a fence would pay an exchange for each read.  So a submission
 * whose recordings write queries that the program has read before asks for their results: the
 * server pushes them before it reports the batch, and the next read finds them here
 * (docs/design/vulkan.md).  What was not read since it came is not asked for again.
 *
 * Results are good until a batch that names the query is submitted or the host resets it.  Each
 * such use has a number, and a result counts that was asked for with or after the last one.  Of a
 * pool that several queues use nothing is asked: a batch may still run that was submitted before.
 *
 * Trust: the program's own; results are the server's.
 * Threads: as Vulkan; a pool has a lock, taken last.
 * Lifetime: of the handle and of recordings that name the pool. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_QUERY_H
#define HAWSER_VENUS_CLIENT_OBJECT_QUERY_H

#include "base/attr.h"
#include "venus/client/icd.h"

struct vnc_query_pool;
struct vnc_queue;
struct vnc_device;
struct wire_enc;

/* Queries that a recording uses. */
struct vnc_query_uses {
    struct vnc_query_use *items; /* with a reference to the pool */
    size_t count, cap;
};

/* UINT32_MAX: all behind the first.  False when out of memory. */
bool vnc_query_uses_add(struct vnc_query_uses *uses, struct vnc_query_pool *pool, uint32_t first,
                        uint32_t count, bool written);
void vnc_query_uses_empty(struct vnc_query_uses *uses);
/* A batch with this recording is submitted next: what is known of its queries is not good any more.
 * Once that is so for all of its recordings, asks for what they write. */
void vnc_query_uses_forget(const struct vnc_query_uses *uses, const struct vnc_queue *queue);
void vnc_query_uses_put(const struct vnc_query_uses *uses, const struct vnc_queue *queue,
                        uint64_t batch, struct wire_enc *e);

/* From a push: results from `first` on, as they were after the use of that number.  0 or -EPROTO.
 */
int vnc_query_pool_results(struct vnc_query_pool *pool, uint64_t use, uint32_t first,
                           const uint8_t *results, size_t bytes) MUST_CHECK;

/* For objects.c. */
size_t vnc_query_pool_size(void);
void vnc_query_pool_init(struct vnc_query_pool *pool, struct vnc_device *device);
void vnc_query_pool_retire(struct vnc_query_pool *pool);

extern const struct vnc_entry vnc_entries_query[];

#endif
