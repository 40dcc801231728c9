/* What every form of an answer that streams is written with. */
#include "serve/http/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void http_put_text(struct wire_enc *out, const char *text)
{
    wire_put_bytes(out, text, strlen(text));
}

void http_put_json(struct wire_enc *out, json_t *json)
{
    size_t len;
    char *text = http_json_text(json, &len);
    if (text)
        wire_put_bytes(out, text, len);
    else
        wire_enc_fail(out, -ENOMEM);
    free(text);
}

void http_put_event(struct http_exchange *x, const char *type, json_t *members)
{
    json_t *event = json_pack("{s:s}", "type", type);
    if (!members || json_object_update(event, members)) {
        json_decref(event);
        event = NULL;
    }
    json_decref(members);
    http_put_text(&x->out, "event: ");
    http_put_text(&x->out, type);
    http_put_text(&x->out, "\ndata: ");
    http_put_json(&x->out, event);
    http_put_text(&x->out, "\n\n");
}
