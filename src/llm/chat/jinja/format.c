/* text.format(): "{}", "{0}" and "{name}".  Published templates have nothing more. */
#include "llm/chat/jinja/value.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* Whether the field is a number, of at most four digits. */
static bool read_index(struct tval field, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < field.bytes; i++) {
        if (!isdigit((unsigned char)field.text[i]) || i == 4)
            return false;
        *out = *out * 10 + (uint32_t)(field.text[i] - '0');
    }
    return field.bytes > 0;
}

static bool is_plain(struct tval field)
{
    for (size_t i = 0; i < field.bytes; i++)
        if (memchr(".[!:{", field.text[i], 5))
            return false;
    return true;
}

/* The value that a field names.  next: the place of the next "{}". */
static struct tval field_value(struct llm_run *run, struct tval field, struct tval args,
                               struct tval named, uint32_t *next)
{
    uint32_t index;
    if (!is_plain(field))
        return llm_run_fail(run, -EOPNOTSUPP,
                            "more than a name or a number in a field of format()");
    if (field.bytes == 0)
        index = (*next)++;
    else if (!read_index(field, &index)) {
        struct tval *found = llm_tval_get(run, named, field);
        return found ? *found
                     : llm_run_fail(run, -EINVAL, "format() has no value for '%.*s'",
                                    (int)field.bytes, field.text);
    }
    if (index >= args.list->count)
        return llm_run_fail(run, -EINVAL, "Replacement index %u out of range", index);
    return args.list->items[index];
}

struct tval llm_tval_format(struct llm_run *run, struct tval format, struct tval args,
                            struct tval named)
{
    struct tbuf buf = {0};
    uint32_t next = 0;
    const char *t = format.text;
    for (size_t at = 0; at < format.bytes && !run->err;) {
        bool brace = t[at] == '{' || t[at] == '}';
        bool twice = at + 1 < format.bytes && t[at + 1] == t[at];
        if (!brace || twice) {
            llm_tbuf_put(run, &buf, t + at, 1);
            at += brace ? 2 : 1;
            continue;
        }
        if (t[at] == '}')
            return llm_run_fail(run, -EINVAL, "Single '}' encountered in format string");
        const char *end = memchr(t + at, '}', format.bytes - at);
        if (!end)
            return llm_run_fail(run, -EINVAL, "expected '}' before end of string");
        struct tval field = tval_text(t + at + 1, (size_t)(end - (t + at + 1)));
        llm_tval_str(run, &buf, field_value(run, field, args, named, &next));
        at = (size_t)(end + 1 - t);
    }
    return llm_tbuf_string(&buf);
}
