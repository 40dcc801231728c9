/* What Python's str can do, over UTF-8. */
#include "base/text/utf8.h"
#include "llm/chat/jinja/value.h"

#include <string.h>

#include "unicode_case.inc"

struct case_row {
    uint32_t code;
    uint32_t upper[3], lower[3], title[3];
};
static const struct case_row case_rows[] = {LLM_CASE_ROWS};
static const struct {
    uint32_t first, last;
} printable_ranges[] = {LLM_PRINTABLE_RANGES};

enum { CAPITAL_SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2 };

bool llm_text_is_space(uint32_t code)
{
    return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
           code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool llm_text_is_printable(uint32_t code)
{
    size_t low = 0, high = ARRAY_LEN(printable_ranges);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (printable_ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < ARRAY_LEN(printable_ranges) && printable_ranges[low].first <= code;
}

static const struct case_row *case_of(uint32_t code)
{
    size_t low = 0, high = ARRAY_LEN(case_rows);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (case_rows[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < ARRAY_LEN(case_rows) && case_rows[low].code == code ? &case_rows[low] : NULL;
}

uint32_t llm_text_length(const char *text, size_t bytes)
{
    uint32_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

size_t llm_text_offset(const char *text, size_t bytes, uint64_t n)
{
    size_t at = 0;
    for (; at < bytes && n > 0; n--) {
        at++;
        while (at < bytes && ((unsigned char)text[at] & 0xc0) == 0x80)
            at++;
    }
    return at;
}

/* Whether the character at text[0..n) is one of those to strip. */
static bool stripped(struct llm_run *run, struct tval chars, const char *text, size_t n,
                     uint32_t code)
{
    if (chars.kind != TVAL_STRING)
        return llm_text_is_space(code);
    return llm_run_compare(run, chars.bytes) && memmem(chars.text, chars.bytes, text, n) != NULL;
}

struct tval llm_text_strip(struct llm_run *run, struct tval v, struct tval chars, int sides)
{
    const char *text = v.text;
    size_t from = 0, to = v.bytes;
    uint32_t code;
    llm_run_step(run, v.bytes / 16);
    while ((sides & LLM_TEXT_LEFT) && from < to) {
        size_t n = hw_utf8_next(text + from, to - from, &code);
        if (!stripped(run, chars, text + from, n, code))
            break;
        from += n;
    }
    while ((sides & LLM_TEXT_RIGHT) && from < to) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)text[at] & 0xc0) == 0x80)
            at--;
        size_t n = hw_utf8_next(text + at, to - at, &code);
        if (!stripped(run, chars, text + at, n, code))
            break;
        to = at;
    }
    return (struct tval){
        .kind = TVAL_STRING, .sub = v.sub, .text = text + from, .bytes = (uint32_t)(to - from)};
}

static void put_codes(struct llm_run *run, struct tbuf *buf, const uint32_t codes[3])
{
    for (int i = 0; i < 3 && codes[i]; i++)
        llm_tbuf_code(run, buf, codes[i]);
}

/* Python writes the last sigma of a word in its final form. */
static bool sigma_is_final(struct tval v, size_t at, bool after_cased)
{
    uint32_t next = 0;
    size_t rest = at + 2; /* of UTF-8 */
    if (rest < v.bytes)
        hw_utf8_next(v.text + rest, v.bytes - rest, &next);
    return after_cased && !(next && case_of(next));
}

struct tval llm_text_case(struct llm_run *run, struct tval v, enum llm_text_case how)
{
    struct tbuf buf = {0};
    bool after_cased = false;
    for (size_t at = 0; at < v.bytes && !run->err;) {
        uint32_t code;
        size_t n = hw_utf8_next(v.text + at, v.bytes - at, &code);
        const struct case_row *row = case_of(code);
        bool title =
            (how == LLM_TEXT_CAPITALIZE && at == 0) || (how == LLM_TEXT_TITLE && !after_cased);
        static const uint32_t final[3] = {FINAL_SIGMA};
        if (!row)
            llm_tbuf_put(run, &buf, v.text + at, n);
        else if (how == LLM_TEXT_UPPER)
            put_codes(run, &buf, row->upper);
        else if (title)
            put_codes(run, &buf, row->title);
        else if (code == CAPITAL_SIGMA && sigma_is_final(v, at, after_cased))
            put_codes(run, &buf, final);
        else
            put_codes(run, &buf, row->lower);
        after_cased = row != NULL;
        at += n;
    }
    return llm_tbuf_string(&buf);
}

struct tval llm_text_replace(struct llm_run *run, struct tval v, struct tval old, struct tval with,
                             int64_t count)
{
    struct tbuf buf = {0};
    size_t at = 0;
    llm_run_step(run, v.bytes / 16);
    while (count != 0 && at <= v.bytes && !run->err) {
        size_t rest = v.bytes - at, skip;
        if (old.bytes == 0) {
            /* Between all characters. */
            llm_tbuf_put(run, &buf, with.text, with.bytes);
            if (!rest)
                break;
            skip = llm_text_offset(v.text + at, rest, 1);
            llm_tbuf_put(run, &buf, v.text + at, skip);
            at += skip;
        } else {
            const char *found = memmem(v.text + at, rest, old.text, old.bytes);
            if (!found)
                break;
            skip = (size_t)(found - (v.text + at));
            llm_tbuf_put(run, &buf, v.text + at, skip);
            llm_tbuf_put(run, &buf, with.text, with.bytes);
            at += skip + old.bytes;
        }
        if (count > 0)
            count--;
    }
    if (at < v.bytes)
        llm_tbuf_put(run, &buf, v.text + at, v.bytes - at);
    return llm_tbuf_string(&buf);
}

struct tval llm_text_escape(struct llm_run *run, struct tval v)
{
    static const char marks[] = "&<>\"'";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    struct tbuf buf = {0};
    if (v.sub)
        return v;
    for (size_t i = 0; i < v.bytes && !run->err; i++) {
        const char *mark = v.text[i] ? strchr(marks, v.text[i]) : NULL;
        if (mark)
            llm_tbuf_puts(run, &buf, names[mark - marks]);
        else
            llm_tbuf_put(run, &buf, v.text + i, 1);
    }
    struct tval escaped = llm_tbuf_string(&buf);
    escaped.sub = 1;
    return escaped;
}

static bool ends_line(uint32_t code)
{
    return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

struct tval llm_text_lines(struct llm_run *run, struct tval v, bool keep_ends)
{
    struct tval list = llm_tval_list(run, TVAL_SEQ_LIST);
    size_t start = 0;
    for (size_t at = 0; at < v.bytes && !run->err;) {
        uint32_t code;
        size_t n = hw_utf8_next(v.text + at, v.bytes - at, &code);
        if (!ends_line(code)) {
            at += n;
            continue;
        }
        size_t end = at;
        at += n;
        if (code == '\r' && at < v.bytes && v.text[at] == '\n')
            at++;
        llm_tval_push(run, list, tval_text(v.text + start, (keep_ends ? at : end) - start));
        start = at;
    }
    if (start < v.bytes)
        llm_tval_push(run, list, tval_text(v.text + start, v.bytes - start));
    return list;
}
