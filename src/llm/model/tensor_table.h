/* llm/model/tensor_table.h - the tensors of one file, in file order, findable by name.
 *
 * Private to src/llm.  Trust: names are the file's; sealing refuses equal names and tensors that
 * share bytes. Threads: one until sealed, then any.  Lifetime: init/fini; the struct is the
 * caller's. */
#ifndef HAWSER_LLM_MODEL_TENSOR_TABLE_H
#define HAWSER_LLM_MODEL_TENSOR_TABLE_H

#include "base/attr.h"
#include "llm/model/shape.h"

struct llm_tensor_table {
    struct llm_tensor *items;
    const struct llm_tensor **by_name; /* sorted once sealed */
    uint32_t count;
};

/* Room for count zeroed tensors, at most LLM_TENSORS_MAX, for the caller to fill in.  0, -ENOMEM.
 */
int llm_tensor_table_init(struct llm_tensor_table *table, uint32_t count) MUST_CHECK;
void llm_tensor_table_fini(struct llm_tensor_table *table);

/* Once all are filled in.  0; -EPROTO (why names the tensors). */
int llm_tensor_table_seal(struct llm_tensor_table *table, char *why) MUST_CHECK;
/* The same for tensors without data. */
int llm_tensor_table_seal_names(struct llm_tensor_table *table, char *why) MUST_CHECK;

/* NULL: there is none. */
const struct llm_tensor *llm_tensor_table_find(const struct llm_tensor_table *table,
                                               const char *name);

#endif
