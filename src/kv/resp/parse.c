#include "kv/resp/parse.h"

#include <errno.h>
#include <string.h>

bool resp_number(const struct resp_arg *arg, int64_t *out)
{
    bool negative = arg->len > 0 && arg->data[0] == '-';
    size_t i = negative;
    uint64_t value = 0, max = (uint64_t)INT64_MAX + negative;
    if (arg->len == i || (arg->data[i] == '0' && arg->len > 1))
        return false; /* one number is written in one way */
    for (; i < arg->len; i++) {
        unsigned digit = (unsigned)(arg->data[i] - '0');
        if (digit > 9 || value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = (int64_t)(negative ? 0 - value : value);
    return true;
}

/* What is left to read. */
struct reader {
    const char *data;
    size_t len, at, max;
    size_t beside;                  /* bytes that were apart */
    const struct resp_apart *apart; /* NULL: none */
    const char *why;
};

/* The line from r->at on, without its end.  1; 0: it is not complete; -EPROTO. */
static int read_line(struct reader *r, struct resp_arg *out)
{
    size_t rest = r->len - r->at, look = rest < RESP_LINE_MAX ? rest : RESP_LINE_MAX;
    const char *from = r->data + r->at, *end = memchr(from, '\n', look);
    if (!end) {
        r->why = "too long a line";
        return rest < RESP_LINE_MAX ? 0 : -EPROTO;
    }
    *out = (struct resp_arg){from, (size_t)(end - from)};
    r->at += out->len + 1;
    out->len -= out->len > 0 && from[out->len - 1] == '\r';
    return 1;
}

/* A line of `mark` and a number. */
static int read_count(struct reader *r, char mark, int64_t max, const char *why, int64_t *out)
{
    struct resp_arg line = {0};
    int rc = read_line(r, &line);
    if (rc <= 0)
        return rc;
    r->why = why;
    if (line.len < 1 || line.data[0] != mark)
        return -EPROTO;
    line.data++;
    line.len--;
    return resp_number(&line, out) && *out <= max ? 1 : -EPROTO;
}

static void split_line(struct resp_arg line, struct resp_request *out)
{
    size_t i = 0;
    out->count = 0;
    while (i < line.len && out->count < RESP_ARGS_MAX) {
        size_t from;
        while (i < line.len && (line.data[i] == ' ' || line.data[i] == '\t'))
            i++;
        for (from = i; i < line.len && line.data[i] != ' ' && line.data[i] != '\t';)
            i++;
        if (i > from)
            out->args[out->count++] = (struct resp_arg){line.data + from, i - from};
    }
}

/* One argument of an array.  *cut and *need as resp_parse. */
static int read_arg(struct reader *r, struct resp_arg *out, struct resp_arg *cut, size_t *need)
{
    int64_t number;
    int rc = read_count(r, '$', (int64_t)r->max, "invalid bulk length", &number);
    if (rc <= 0)
        return rc;
    if (number < 0)
        return -EPROTO;
    size_t len = (size_t)number;
    if (r->at + r->beside + len + 2 > r->max)
        return -EMSGSIZE;
    bool apart = r->apart && r->apart->at == r->at && r->apart->arg.len == len;
    size_t here = apart ? 0 : len;
    if (r->len - r->at < here + 2) {
        *need = r->at + here + 2;
        *cut = (struct resp_arg){r->data + r->at, len};
        return 0;
    }
    *out = apart ? r->apart->arg : (struct resp_arg){r->data + r->at, len};
    r->at += here;
    r->why = "an argument is not followed by an end of line";
    if (memcmp(r->data + r->at, "\r\n", 2) != 0)
        return -EPROTO;
    r->at += 2;
    r->beside += len - here;
    return 1;
}

static int read_array(struct reader *r, struct resp_request *out, size_t *need)
{
    int64_t count;
    out->count = 0;
    int rc = read_count(r, '*', RESP_ARGS_MAX, "invalid multibulk length", &count);
    if (rc <= 0)
        return rc;
    out->total = count > 0 ? (uint32_t)count : 0;
    for (int64_t i = 0; i < count; i++) {
        rc = read_arg(r, &out->args[i], &out->cut, need);
        if (rc <= 0)
            return rc;
        out->count++;
    }
    return 1;
}

ptrdiff_t resp_parse(const char *data, size_t len, size_t max, const struct resp_apart *apart,
                     struct resp_request *out, size_t *need, const char **why)
{
    struct reader r = {.data = data, .len = len, .max = max, .apart = apart};
    struct resp_arg line = {0};
    *need = len + 1;
    out->cut = (struct resp_arg){0};
    if (len == 0)
        return 0;
    int rc = data[0] == '*' ? read_array(&r, out, need) : read_line(&r, &line);
    bool quoted = rc == 1 && data[0] != '*' &&
                  (memchr(line.data, '"', line.len) || memchr(line.data, '\'', line.len));
    if (quoted) {
        r.why = "quotes in a line are not understood: send an array";
        rc = -EPROTO;
    } else if (rc == 1 && data[0] != '*') {
        split_line(line, out);
    }
    if (rc < 0)
        *why = r.why;
    return rc == 1 ? (ptrdiff_t)r.at : rc;
}
