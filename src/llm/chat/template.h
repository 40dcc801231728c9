/* llm/chat/template.h - chat templates: the part of Jinja that published models use.
 *
 * Behaves as jinja2's sandbox does with the settings of Hugging Face's transformers: trim_blocks,
 * lstrip_blocks, loop controls, generation blocks, raise_exception(), strftime_now(), a tojson that
 * keeps Unicode.  docs/design/chat.md lists what runs and what is refused.
 *
 * Trust: a template and its variables are foreign; steps, depth, memory and output are bounded.
 * Threads: any may render one template at the same time.  Lifetime: parse/free. */
#ifndef HAWSER_LLM_CHAT_TEMPLATE_H
#define HAWSER_LLM_CHAT_TEMPLATE_H

#include "base/attr.h"
#include "llm/model/why.h"

#include <jansson.h>
#include <stddef.h>

enum {
    LLM_TEMPLATE_BYTES_MAX = 1 << 20,  /* published ones reach 40 KiB */
    LLM_TEMPLATE_NESTING_MAX = 128,    /* of blocks and brackets in the text */
    LLM_TEMPLATE_DEPTH_MAX = 600,      /* of calls, operators and values; some 1 MiB of stack */
    LLM_TEMPLATE_STEPS_MAX = 50 << 20, /* about a second; a long conversation takes some 100,000 */
    LLM_TEMPLATE_MEMORY_MAX = 256 << 20, /* of one rendering */
    LLM_TEMPLATE_OUTPUT_MAX = 8 << 20,   /* what the tokenizer takes: LLM_TEXT_BYTES_MAX */
};

struct llm_template;

/* text: UTF-8.  0; -EINVAL (not a template; why names line and cause); -EOPNOTSUPP (a part of Jinja
 * that is not here); -E2BIG; -ENOMEM. */
int llm_template_parse(const char *text, size_t bytes, struct llm_template **out,
                       char *why) MUST_CHECK;
void llm_template_free(struct llm_template *t);

/* variables: an object; each member is a variable.  strftime_now() takes its time from the variable
 * `time_now` (seconds since 1970, UTC) and is not defined without one.
 * *out: *bytes bytes and a NUL, to be freed with free().
 * 0; -EINVAL (the template raised an exception, or a wrong type: why says which); -EOPNOTSUPP;
 * -E2BIG (a bound is reached); -ENOMEM. */
int llm_template_render(const struct llm_template *t, const json_t *variables, char **out,
                        size_t *bytes, char *why) MUST_CHECK;

#endif
