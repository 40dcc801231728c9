/* llm/model/why.h - the sentence that goes with an error.
 *
 * Formatting is private to src/llm.  Trust: text may quote a file's bytes; control characters
 * become '?', so that a name in a hostile file cannot drive a terminal.  Threads: any.  errno is
 * kept. */
#ifndef HAWSER_LLM_MODEL_WHY_H
#define HAWSER_LLM_MODEL_WHY_H

#include "base/attr.h"

enum { LLM_WHY_CHARS = 256 }; /* a sentence: what, why, remedy */

/* Formats at most LLM_WHY_CHARS into why and yields err, so that it can stand in a return.  A
 * macro: the compiler sees that a constant err is not 0. */
#define llm_why(why, err, ...) (llm_why_set(why, __VA_ARGS__), (err))

void llm_why_set(char *why, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
