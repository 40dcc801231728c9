#include "base/report/json.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text/utf8.h"
#include "base/units.h"

void hw_json_begin(struct hw_json *json, FILE *out)
{
    *json = (struct hw_json){.out = out};
}

static void put(struct hw_json *json, const char *text, size_t len)
{
    if (json->error)
        return;
    errno = 0;
    if (fwrite(text, 1, len, json->out) != len)
        json->error = errno ? -errno : -EIO;
}

static void put_text(struct hw_json *json, const char *text)
{
    put(json, text, strlen(text));
}

static uint32_t level_bit(const struct hw_json *json)
{
    assert(json->depth > 0);
    return UINT32_C(1) << (json->depth - 1);
}

/* The comma before an item of the innermost level. */
static void next_item(struct hw_json *json)
{
    if (json->has_items & level_bit(json))
        put(json, ",", 1);
    json->has_items |= level_bit(json);
}

/* Every value passes here before its text. */
static void value_begins(struct hw_json *json)
{
    assert(!json->done);
    if (json->depth == 0) {
        json->done = true;
    } else if (json->in_object & level_bit(json)) {
        assert(json->have_key);
        json->have_key = false;
    } else {
        next_item(json);
    }
}

static void level_begins(struct hw_json *json, const char *bracket, bool object)
{
    value_begins(json);
    json->done = false;
    assert(json->depth < HW_JSON_DEPTH_MAX);
    json->depth++;
    json->has_items &= ~level_bit(json);
    if (object)
        json->in_object |= level_bit(json);
    else
        json->in_object &= ~level_bit(json);
    put_text(json, bracket);
}

static void level_ends(struct hw_json *json, const char *bracket, bool object)
{
    assert(!!(json->in_object & level_bit(json)) == object);
    assert(!json->have_key);
    (void)object;
    json->depth--;
    json->done = json->depth == 0;
    put_text(json, bracket);
}

void hw_json_object_begin(struct hw_json *json)
{
    level_begins(json, "{", true);
}

void hw_json_object_end(struct hw_json *json)
{
    level_ends(json, "}", true);
}

void hw_json_array_begin(struct hw_json *json)
{
    level_begins(json, "[", false);
}

void hw_json_array_end(struct hw_json *json)
{
    level_ends(json, "]", false);
}

/* One code point, escaped where JSON asks for it. */
static void put_code(struct hw_json *json, const char *text, size_t len, uint32_t code)
{
    static const char shorthand[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char escape[8];
    if (code == HW_UTF8_REPLACEMENT) {
        put_text(json, "\xef\xbf\xbd");
        return;
    }
    bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    if (!is_control && code != '"' && code != '\\') {
        put(json, text, len);
        return;
    }
    for (const char *s = shorthand; *s; s += 2) {
        if (code == (unsigned char)s[0]) {
            put(json, (char[]){'\\', s[1]}, 2);
            return;
        }
    }
    snprintf(escape, sizeof escape, "\\u%04x", (unsigned)code & 0xff);
    put_text(json, escape);
}

static void put_quoted(struct hw_json *json, const char *text, size_t len)
{
    put(json, "\"", 1);
    while (len > 0) {
        uint32_t code;
        size_t used = hw_utf8_next(text, len, &code);
        put_code(json, text, used, code);
        text += used;
        len -= used;
    }
    put(json, "\"", 1);
}

void hw_json_key(struct hw_json *json, const char *key)
{
    assert(json->in_object & level_bit(json));
    assert(!json->have_key);
    next_item(json);
    json->have_key = true;
    put_quoted(json, key, strlen(key));
    put(json, ":", 1);
}

void hw_json_object_at(struct hw_json *json, const char *key)
{
    hw_json_key(json, key);
    hw_json_object_begin(json);
}

void hw_json_array_at(struct hw_json *json, const char *key)
{
    hw_json_key(json, key);
    hw_json_array_begin(json);
}

void hw_json_string_n(struct hw_json *json, const char *text, size_t len)
{
    value_begins(json);
    put_quoted(json, text, len);
}

void hw_json_string(struct hw_json *json, const char *text)
{
    if (text)
        hw_json_string_n(json, text, strlen(text));
    else
        hw_json_null(json);
}

void hw_json_u64(struct hw_json *json, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    value_begins(json);
    put_text(json, text);
}

void hw_json_double(struct hw_json *json, double value)
{
    char text[HW_FORMAT_CHARS];
    value_begins(json);
    put_text(json, isfinite(value) ? hw_format_double(text, value) : "null");
}

void hw_json_bool(struct hw_json *json, bool value)
{
    value_begins(json);
    put_text(json, value ? "true" : "false");
}

void hw_json_null(struct hw_json *json)
{
    value_begins(json);
    put_text(json, "null");
}

int hw_json_finish(struct hw_json *json)
{
    assert(json->depth == 0 && json->done);
    put(json, "\n", 1);
    errno = 0;
    if (!json->error && fflush(json->out) != 0)
        json->error = errno ? -errno : -EIO;
    return json->error;
}

void hw_json_put_string(struct hw_json *json, const char *key, const char *text)
{
    hw_json_key(json, key);
    hw_json_string(json, text);
}

void hw_json_put_u64(struct hw_json *json, const char *key, uint64_t value)
{
    hw_json_key(json, key);
    hw_json_u64(json, value);
}

void hw_json_put_double(struct hw_json *json, const char *key, double value)
{
    hw_json_key(json, key);
    hw_json_double(json, value);
}

void hw_json_put_bool(struct hw_json *json, const char *key, bool value)
{
    hw_json_key(json, key);
    hw_json_bool(json, value);
}
