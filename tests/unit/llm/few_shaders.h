/* tests/unit/llm/few_shaders.h - how many shaders a test has a driver compile.
 *
 * A driver for the CPU takes a second for each.  With "few-shaders" as the last argument not every
 * type of weights is multiplied in every shape.  The rows of a batch decide the shape, and what
 * depends on it is the same for all types (mul_frame.glsl).  Without it all are, since a GPU's
 * compiler may order the sums of each shader as it likes.  Included by one file of a program. */
#ifndef HAWSER_TESTS_LLM_FEW_SHADERS_H
#define HAWSER_TESTS_LLM_FEW_SHADERS_H

#include "llm/model/dtype.h"

#include <stdbool.h>
#include <string.h>

static bool few_shaders;

static void read_few_shaders(int argc, char **argv)
{
    few_shaders = argc > 1 && strcmp(argv[argc - 1], "few-shaders") == 0;
}

/* Of the packed types one with blocks of 32 and one with blocks of 256 have, if there are to be
 * few. */
static bool has_every_shape(enum llm_dtype type)
{
    return !few_shaders || llm_dtype_block(type) == 1 || type == LLM_Q8_0 || type == LLM_Q4_K;
}

#endif
