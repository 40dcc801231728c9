#include "llm/model/why.h"

#include "base/text/controls.h"

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
    hw_blank_controls_of(why);
    errno = saved;
}
