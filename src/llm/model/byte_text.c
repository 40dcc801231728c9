#include "llm/model/byte_text.h"

/* The bytes that are not printable are three runs; the lengths of the runs give their codes. */
enum {
    LOW_END = 0x20, /* 0x00 to 0x20 */
    MIDDLE = 0x7f,  /* to 0xa0 */
    MIDDLE_END = 0xa0,
    HYPHEN = 0xad, /* the soft hyphen */
    LOW_CODE = 0x100,
    MIDDLE_CODE = LOW_CODE + LOW_END + 1,
    HYPHEN_CODE = MIDDLE_CODE + MIDDLE_END - MIDDLE + 1,
};

static uint32_t code_of(uint8_t byte)
{
    if (byte <= LOW_END)
        return LOW_CODE + byte;
    if (byte >= MIDDLE && byte <= MIDDLE_END)
        return MIDDLE_CODE + byte - MIDDLE;
    return byte == HYPHEN ? HYPHEN_CODE : byte;
}

size_t llm_byte_text(uint8_t byte, char text[LLM_BYTE_TEXT_MAX])
{
    uint32_t code = code_of(byte);
    if (code < 0x80) {
        text[0] = (char)code;
        return 1;
    }
    text[0] = (char)(0xc0 | code >> 6);
    text[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

int llm_byte_of_code(uint32_t code)
{
    if (code == HYPHEN_CODE)
        return HYPHEN;
    if (code >= MIDDLE_CODE && code < HYPHEN_CODE)
        return (int)(code - MIDDLE_CODE + MIDDLE);
    if (code >= LOW_CODE && code < MIDDLE_CODE)
        return (int)(code - LOW_CODE);
    return code < LOW_CODE && code_of((uint8_t)code) == code ? (int)code : -1;
}
