/* venus/server/submit/results.h - results of queries that are pushed before a batch is reported.
 *
 * Trust: a client may ask for queries that its pool does not have, as with vkGetQueryPoolResults:
 * that is between its session and the driver.  What it asks for is bounded.
 * Threads: the executor asks and forgets, whoever reports pushes; the queue's lock is between them.
 * Lifetime: of the queue. */
#ifndef HAWSER_VENUS_SERVER_SUBMIT_RESULTS_H
#define HAWSER_VENUS_SERVER_SUBMIT_RESULTS_H

#include <stdint.h>
#include <vulkan/vulkan_core.h>

#include "base/attr.h"

enum { VNS_QUESTIONS_MAX = 256 }; /* of a queue; more are forgotten, and the client asks itself */

struct vns_queue;

struct vns_question {
    uint64_t number; /* of the batch */
    uint64_t id, use;
    VkQueryPool pool;
    uint32_t first, count, values;
};

struct vns_questions {
    struct vns_question *items; /* in the order of the stream */
    size_t count, cap;
};

/* 0, or -EPROTO for more than VN_RESULTS_BYTES. */
int vns_results_ask(struct vns_queue *queue, const struct vns_question *question) MUST_CHECK;
/* The pool ends: returns when nobody reads it. */
void vns_results_forget(struct vns_queue *queue, VkQueryPool pool);
/* Pushes what was asked for with batches up to this number, which are done.  0, or what ended the
 * connection. */
int vns_results_push(struct vns_queue *queue, uint64_t number) MUST_CHECK;
void vns_results_fini(struct vns_queue *queue);

#endif
