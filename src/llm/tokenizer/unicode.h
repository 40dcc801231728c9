/* llm/tokenizer/unicode.h - the classes of characters that pre-tokenizers tell apart.
 *
 * Private to src/llm.  The table is made at build time by gen/unicode_classes.py from python3's
 * Unicode data.
 *
 * Trust: any code point.  Threads: any. */
#ifndef HAWSER_LLM_TOKENIZER_UNICODE_H
#define HAWSER_LLM_TOKENIZER_UNICODE_H

#include <stdint.h>

enum llm_char {
    LLM_CHAR_OTHER,  /* controls, what is not assigned, bytes that are no UTF-8 */
    LLM_CHAR_UPPER,  /* letters: upper and title case */
    LLM_CHAR_LOWER,  /* letters: lower case */
    LLM_CHAR_LETTER, /* letters: others */
    LLM_CHAR_MARK,
    LLM_CHAR_NUMBER,
    LLM_CHAR_PUNCTUATION,
    LLM_CHAR_SYMBOL,
    LLM_CHAR_SPACE,
};

enum llm_char llm_char_class(uint32_t code);

#endif
