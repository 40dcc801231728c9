/* llm/convert/recipe.h - private to src/llm: which type each tensor of a quantised file gets.
 *
 * A recipe is the name of a type, then every matrix gets that type, or a mixture, named as
 * llama.cpp names it (Q4_K_M): most matrices get one type, those in the recipe's rows another.
 *
 * Threads: any; constant. */
#ifndef HAWSER_LLM_CONVERT_RECIPE_H
#define HAWSER_LLM_CONVERT_RECIPE_H

#include "llm/model/shape.h"

struct llm_recipe;

/* NULL: not known. */
const struct llm_recipe *llm_recipe_find(const char *name);
/* The i-th name; NULL past the end. */
const char *llm_recipe_name(size_t i);

/* The type for a tensor of the model.  Tensors of one dimension, learned positions and the routers
 * of experts keep theirs.  A row that is no whole number of the type's blocks gets a smaller block:
 * IQ4_NL for Q2_K, Q3_K and IQ4_XS, Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K; F16 where 32 does
 * not divide it either. */
enum llm_dtype llm_recipe_dtype(const struct llm_recipe *recipe, const struct llm_config *config,
                                const struct llm_tensor *tensor);

/* general.file_type of such a file, as llama.cpp counts. */
uint32_t llm_recipe_file_type(const struct llm_recipe *recipe);

#endif
