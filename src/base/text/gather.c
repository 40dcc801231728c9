#include "base/text/gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

/* 0 is a failure. */
static ssize_t add(void *cookie, const char *bytes, size_t len)
{
    struct hw_gathered *g = cookie;
    if (g->failed || !hw_grow(&g->text, &g->room, g->len + len + 1, 1)) {
        g->failed = true;
        return 0;
    }
    memcpy(g->text + g->len, bytes, len);
    g->len += len;
    g->text[g->len] = '\0';
    return (ssize_t)len;
}

FILE *hw_gather(struct hw_gathered *out)
{
    *out = (struct hw_gathered){.text = NULL};
    return fopencookie(out, "w", (cookie_io_functions_t){.write = add});
}

int hw_gather_end(FILE *stream, struct hw_gathered *out)
{
    bool whole = stream && fclose(stream) == 0 && !out->failed;
    if (whole && !out->text)
        out->text = calloc(1, 1);
    if (whole && out->text)
        return 0;
    free(out->text);
    *out = (struct hw_gathered){.text = NULL};
    return -ENOMEM;
}
