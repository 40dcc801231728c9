#include "llm/chat/schema_text.h"

#include "base/grow.h"
#include "llm/chat/grammar.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void llm_schema_put(struct schema_text *t, const char *data, size_t bytes)
{
    t->failed = t->failed || !hw_grow(&t->data, &t->room, t->bytes + bytes + 1, 1);
    if (t->failed)
        return;
    memcpy(t->data + t->bytes, data, bytes);
    t->bytes += bytes;
    t->data[t->bytes] = 0;
}

void llm_schema_puts(struct schema_text *t, const char *text)
{
    llm_schema_put(t, text, strlen(text));
}

void llm_schema_putf(struct schema_text *t, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    llm_schema_puts(t, text);
}

void llm_schema_literal(struct schema_text *t, const char *text, size_t bytes)
{
    llm_schema_puts(t, "\"");
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            llm_schema_putf(t, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            llm_schema_putf(t, "\\x%02x", c);
        else
            llm_schema_put(t, text + i, 1);
    }
    llm_schema_puts(t, "\"");
}

void llm_schema_class_char(struct schema_text *t, uint32_t code)
{
    llm_schema_putf(t, "\\U%08x", code);
}

int llm_schema_take(struct schema_text *t, char **gbnf, size_t *bytes, char *why)
{
    if (t->failed || t->bytes > LLM_GBNF_BYTES_MAX) {
        int err = t->failed ? -ENOMEM : -E2BIG;
        free(t->data);
        return llm_why(why, err,
                       err == -ENOMEM ? "out of memory" : "the grammar becomes too large");
    }
    *gbnf = t->data;
    *bytes = t->bytes;
    return 0;
}
