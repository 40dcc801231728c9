#include "llm/model/why.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void llm_why_set(char *why, const char *fmt, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, LLM_WHY_CHARS, fmt, args);
    va_end(args);
    for (unsigned char *c = (unsigned char *)why; *c; c++) {
        if (*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
    errno = saved;
}
