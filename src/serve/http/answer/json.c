/* JSON where memory is short.  Most of jansson's functions then leave out what they should add, and
 * few who call them could say what is missing: so its allocations that fail are noted, by thread.
 */
#include "base/grow.h"
#include "serve/http/impl.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local bool has_failed;

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    has_failed |= !memory;
    return memory;
}

/* Before any thread uses it: no lock guards what it sets. */
__attribute__((constructor)) static void note_failures(void)
{
    json_set_alloc_funcs(allocate, free);
}

bool http_json_failed(void)
{
    bool failed = has_failed;
    has_failed = false;
    return failed;
}

struct dump {
    char *text;
    size_t len, room;
};

static int add_to_dump(const char *bytes, size_t len, void *user)
{
    struct dump *d = user;
    if (!hw_grow(&d->text, &d->room, d->len + len, 1)) {
        has_failed = true;
        return -1;
    }
    memcpy(d->text + d->len, bytes, len);
    d->len += len;
    return 0;
}

char *http_json_text(json_t *json, size_t *len)
{
    struct dump d = {.text = NULL};
    bool fine = json && json_dump_callback(json, add_to_dump, &d, JSON_COMPACT) == 0;
    json_decref(json);
    fine = !http_json_failed() && fine;
    *len = fine ? d.len : 0;
    if (!fine)
        free(d.text);
    return fine ? d.text : NULL;
}
