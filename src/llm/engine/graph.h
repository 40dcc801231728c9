/* llm/engine/graph.h - private to src/llm: a model's weights on a backend, and its ops for one
 * batch.
 *
 * One graph serves all architectures; struct llm_config and the file's tensors tell the
 * differences. A layer is
 *
 *     h = norm(x);  q, k, v = h * weights;  (norm q, k;)  turn q, k;  append k, v
 *     x += (norm of) attend(q) * weights
 *     h = norm(x), or the h above where attention and feed-forward are parallel
 *     x += (norm of) activate(h * weights) * weights
 *
 * With experts the last line is: choose experts by h * weights;  y = activate(h * weights of each)
 * * weights of each;  x += the sum of y times the experts' weights.  A shared expert adds a
 * feed-forward of its own, which a file may weigh.
 *
 * Threads and lifetime: as llm/engine/backend.h; the file outlives the graph. */
#ifndef HAWSER_LLM_ENGINE_GRAPH_H
#define HAWSER_LLM_ENGINE_GRAPH_H

#include "llm/engine/backend.h"

enum { LLM_GRAPH_ROWS_MAX = 1024 }; /* of one batch, on any backend */

struct llm_graph;

int llm_graph_create(struct llm_backend *backend, const struct llm_file *file,
                     struct llm_graph **out, char *why) MUST_CHECK;
void llm_graph_destroy(struct llm_graph *graph);

/* Computes a batch of at most LLM_GRAPH_ROWS_MAX rows, from begin to finish.  states: NULL, or
 * width values for each row, of a batch without picks.  0, -ENOMEM, -EIO. */
int llm_graph_run(struct llm_graph *graph, struct llm_kv_memory *kv, const struct llm_batch *batch,
                  float *states, uint64_t *kernel_ns, char *why) MUST_CHECK;
/* The logits of the last batch: vocab values for each of its picks.  They are copied to `room`,
 * unless at is not NULL and they can be read where they are until the next batch; *at: where.
 * 0 or -EIO. */
int llm_graph_logits(struct llm_graph *graph, uint32_t picks, float *room, const float **at,
                     char *why) MUST_CHECK;
/* The same of a server with one stage (llm/engine/stages.h): `rows`, of width values each, go
 * through its layers.  The batch's pages are those of its layers; it has no picks. */
int llm_graph_pass(struct llm_graph *graph, struct llm_kv_memory *kv, const struct llm_batch *batch,
                   float *rows, uint64_t *kernel_ns, char *why) MUST_CHECK;
/* Prepares such a batch without computing it.  0, -ENOMEM, -EIO. */
int llm_graph_prepare(struct llm_graph *graph, struct llm_kv_memory *kv,
                      const struct llm_batch *batch, char *why) MUST_CHECK;

#endif
