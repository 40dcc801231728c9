/* llm/chat/answer.h - tells a model's reasoning from its answer, in text as it is generated.
 *
 * Text that may be part of a mark is held back until it is clear.  Reasoning comes without blanks
 * at its ends; an answer without those after reasoning.
 *
 * Trust: the text is any bytes.  Threads: one at a time.  Lifetime: create/destroy. */
#ifndef HAWSER_LLM_CHAT_ANSWER_H
#define HAWSER_LLM_CHAT_ANSWER_H

#include "llm/chat/chat.h"

struct llm_answer;

/* marks: static.  open: the prompt ended within reasoning.  NULL: out of memory. */
struct llm_answer *llm_answer_create(const struct llm_chat_marks *marks, bool open);
void llm_answer_destroy(struct llm_answer *a);

/* Part of the reasoning or of the answer; 0, or an error that ends llm_answer_feed. */
typedef int (*llm_answer_put)(void *user, bool reasoning, const char *text, size_t bytes);

/* More text; last: all there will be.  0, -ENOMEM, or what put returned. */
int llm_answer_feed(struct llm_answer *a, const char *text, size_t bytes, bool last,
                    llm_answer_put put, void *user) MUST_CHECK;

/* A token as text: as llm_chat_piece where marks are looked for, else as llm_vocab_piece. */
const char *llm_answer_piece(const struct llm_answer *a, const struct llm_vocab *vocab,
                             uint32_t token, size_t *bytes);

bool llm_answer_is_thinking(const struct llm_answer *a); /* within reasoning */
bool llm_answer_has_thought(const struct llm_answer *a); /* within the answer */

#endif
