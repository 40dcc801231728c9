/* llm/model/byte_text.h - how byte-level BPE writes a byte: as one printable character.
 *
 * Bytes that are printable in Latin-1 are themselves; the other 68 are U+0100 and on.
 *
 * Private to src/llm.  Threads: any; no state. */
#ifndef HAWSER_LLM_MODEL_BYTE_TEXT_H
#define HAWSER_LLM_MODEL_BYTE_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { LLM_BYTE_TEXT_MAX = 2 }; /* UTF-8 bytes of one */

/* Writes the character; returns its bytes. */
size_t llm_byte_text(uint8_t byte, char text[LLM_BYTE_TEXT_MAX]);

/* The byte that a code point stands for; -1: none. */
int llm_byte_of_code(uint32_t code);

#endif
