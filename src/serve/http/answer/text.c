#include "serve/http/answer/text.h"

#include "base/grow.h"
#include "base/text/utf8.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd";

static int append(struct http_text *t, const char *bytes, size_t len)
{
    if (!hw_grow(&t->text, &t->room, t->len + len, 1))
        return -ENOMEM;
    memcpy(t->text + t->len, bytes, len);
    t->len += len;
    return 0;
}

/* Bytes of the character that begins with this byte; 1 for one that begins none. */
static size_t character_bytes(unsigned char first)
{
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 1;
}

/* True when further bytes can make this a character. */
static bool may_continue(const char *bytes, size_t len)
{
    char probe[4];
    uint32_t code;
    size_t whole = character_bytes((unsigned char)bytes[0]);
    if (len >= whole)
        return false;
    memcpy(probe, bytes, len);
    /* The bounds of a second byte differ by the first (overlong, surrogates, past the last). */
    for (int fill = 0x80; fill <= 0xbf; fill += 0x10) {
        memset(probe + len, fill, whole - len);
        if (hw_utf8_next(probe, whole, &code) == whole)
            return true;
    }
    return false;
}

/* Whole characters of bytes to the text.  *used: how many bytes were taken. */
static int append_characters(struct http_text *t, const char *bytes, size_t len, size_t *used)
{
    size_t at = 0;
    while (at < len) {
        uint32_t code;
        size_t take = hw_utf8_next(bytes + at, len - at, &code);
        bool bad = take == 1 && (unsigned char)bytes[at] >= 0x80;
        if (bad && may_continue(bytes + at, len - at))
            break;
        int rc = bad ? append(t, replacement, sizeof replacement - 1) : append(t, bytes + at, take);
        if (rc)
            return rc;
        t->characters++;
        at += take;
    }
    *used = at;
    return 0;
}

/* Cuts the text before the first stop string that ends after `from`. */
static void find_stop(struct http_text *t, const struct http_stops *stops, size_t from)
{
    size_t cut = SIZE_MAX;
    for (size_t i = 0; i < stops->count; i++) {
        size_t len = stops->items[i].len;
        size_t begin = from > len - 1 ? from - (len - 1) : 0;
        const char *found =
            begin < t->len ? memmem(t->text + begin, t->len - begin, stops->items[i].bytes, len)
                           : NULL;
        if (found && (size_t)(found - t->text) < cut) {
            cut = (size_t)(found - t->text);
            t->stop = i;
        }
    }
    if (cut == SIZE_MAX)
        return;
    assert(cut >= t->shown);
    t->len = cut;
    t->stopped = true;
}

/* Bytes at the end of the text that a stop string may begin with. */
static size_t held_back(const struct http_text *t, const struct http_stops *stops)
{
    size_t most = 0;
    for (size_t i = 0; i < stops->count; i++) {
        size_t longest = stops->items[i].len - 1 < t->len ? stops->items[i].len - 1 : t->len;
        for (size_t n = longest; n > most; n--) {
            if (memcmp(t->text + t->len - n, stops->items[i].bytes, n) == 0)
                most = n;
        }
    }
    return most;
}

static void show(struct http_text *t, const struct http_stops *stops, size_t from)
{
    find_stop(t, stops, from);
    size_t held = t->stopped ? 0 : held_back(t, stops);
    assert(t->len - held >= t->shown);
    t->shown = t->len - held;
}

int http_text_add(struct http_text *t, const struct http_stops *stops, const char *bytes,
                  size_t len)
{
    size_t from = t->len, used = 0;
    if (t->stopped)
        return 0;
    /* A character in parts is completed byte by byte: the last byte may be another's first. */
    while (t->part_len && len) {
        t->part[t->part_len++] = *bytes++;
        len--;
        int rc = append_characters(t, t->part, t->part_len, &used);
        if (rc)
            return rc;
        memmove(t->part, t->part + used, t->part_len - used);
        t->part_len -= used;
    }
    int rc = append_characters(t, bytes, len, &used);
    if (rc)
        return rc;
    if (used < len) {
        assert(len - used < sizeof(t->part));
        memcpy(t->part, bytes + used, len - used);
        t->part_len = len - used;
    }
    show(t, stops, from);
    return 0;
}

int http_text_end(struct http_text *t, const struct http_stops *stops)
{
    size_t from = t->len;
    if (t->stopped)
        return 0;
    int rc = t->part_len ? append(t, replacement, sizeof replacement - 1) : 0;
    if (rc)
        return rc;
    t->part_len = 0;
    find_stop(t, stops, from);
    t->shown = t->len;
    return 0;
}

void http_text_fini(struct http_text *t)
{
    free(t->text);
    *t = (struct http_text){0};
}

char *http_text_clean(const char *bytes, size_t len, size_t *len_out)
{
    static const struct http_stops none;
    struct http_text t = {0};
    if (http_text_add(&t, &none, bytes, len) || http_text_end(&t, &none) || append(&t, "", 1)) {
        http_text_fini(&t);
        return NULL;
    }
    *len_out = t.len - 1;
    return t.text;
}
