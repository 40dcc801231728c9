#include "page/page.h"

#include <assert.h>
#include <stdio.h>

const char *page_code_name(unsigned code)
{
    static const char *const names[PAGE_CODES] = {
        [PAGE_DONE] = "done",
        [PAGE_SKIPPED] = "skipped",
        [PAGE_MAPPED_TWICE] = "mapped twice",
        [PAGE_UNMAPPED_TWICE] = "unmapped twice",
        [PAGE_OUT_OF_RANGE] = "out of range",
        [PAGE_OUT_OF_MEMORY] = "out of memory",
        [PAGE_DRIVER_ERROR] = "driver error",
    };
    return code < PAGE_CODES ? names[code] : "unknown";
}

int page_fail(struct page_error *why, int rc, int driver, const char *fmt, ...)
{
    assert(rc < 0);
    va_list args;
    va_start(args, fmt);
    why->rc = rc;
    why->driver = driver;
    vsnprintf(why->text, sizeof why->text, fmt, args);
    va_end(args);
    return rc;
}
