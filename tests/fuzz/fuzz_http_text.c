/* Tokens of any bytes: the text is the same in one piece and byte by byte, is UTF-8, and shows no
 * stop string.  The input: the length of a stop string, the string, the text. */
#include "base/text/utf8.h"
#include "fuzz.h"
#include "serve/http/answer/text.h"

#include <string.h>

static void feed(struct http_text *t, const struct http_stops *stops, const uint8_t *data,
                 size_t size, size_t piece)
{
    size_t shown = 0;
    for (size_t at = 0; at < size; at += piece) {
        size_t len = size - at < piece ? size - at : piece;
        require(http_text_add(t, stops, (const char *)data + at, len) == 0);
        require(t->shown >= shown && t->shown <= t->len);
        shown = t->shown;
    }
    require(http_text_end(t, stops) == 0);
    require(t->shown == t->len && t->shown >= shown);
}

/* As JSON's strings are. */
static bool is_utf8(const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        uint32_t code;
        size_t used = hw_utf8_next(text + at, len - at, &code);
        if (used == 0 || (used == 1 && (unsigned char)text[at] >= 0x80))
            return false;
        at += used;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_stops stops = {0};
    struct http_text whole = {0}, pieces = {0};
    if (size < 1)
        return 0;
    size_t len = data[0] % 8 < size - 1 ? data[0] % 8 : size - 1;
    if (len > 0 && !is_utf8((const char *)data + 1, len))
        return 0;
    if (len > 0) {
        stops.items[0].bytes = (const char *)data + 1;
        stops.items[0].len = len;
        stops.count = 1;
    }
    data += 1 + len;
    size -= 1 + len;
    feed(&whole, &stops, data, size, size ? size : 1);
    feed(&pieces, &stops, data, size, 1);
    require(whole.len == pieces.len && whole.stopped == pieces.stopped);
    require(whole.len == 0 || memcmp(whole.text, pieces.text, whole.len) == 0);
    require(!len || !whole.len ||
            !memmem(whole.text, whole.len, stops.items[0].bytes, stops.items[0].len));
    for (size_t at = 0; at < whole.len;) {
        uint32_t code;
        size_t used = hw_utf8_next(whole.text + at, whole.len - at, &code);
        require(used > 1 || (unsigned char)whole.text[at] < 0x80);
        at += used;
    }
    http_text_fini(&whole);
    http_text_fini(&pieces);
    return 0;
}
