/* Requests of Redis' protocol.  Whole, cut anywhere or with an argument apart, the same bytes are
 * the same request, and its arguments lie within them. */
#include "fuzz.h"
#include "kv/resp/parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16 };

/* Cut at `to`: the arguments so far are those of the whole, and so is what is known of the next. */
static void check_cut(const char *data, size_t to, const struct resp_request *whole)
{
    static struct resp_request part;
    const char *why = NULL;
    size_t need = 0;
    require(resp_parse(data, to, MOST, NULL, &part, &need, &why) == 0 && need > to);
    require(!part.cut.data ||
            (part.total == whole->count && part.count < whole->count &&
             part.cut.data == whole->args[part.count].data &&
             part.cut.len == whole->args[part.count].len && part.cut.data <= data + to));
}

/* Argument i in memory of its own, the others with nothing in its place. */
static void check_apart(const char *data, size_t len, const struct resp_request *whole, uint32_t i)
{
    static struct resp_request other;
    const struct resp_arg *away = &whole->args[i];
    size_t need = 0, at = (size_t)(away->data - data), rest = len - at - away->len;
    const char *why = NULL;
    char *here = malloc(len - away->len), *there = malloc(away->len ? away->len : 1);
    require(here && there);
    memcpy(here, data, at);
    memcpy(here + at, away->data + away->len, rest);
    memcpy(there, away->data, away->len);
    struct resp_apart apart = {.at = at, .arg = {there, away->len}};
    for (size_t cut = at; cut < at + 2; cut++) /* the end of its line is still to come */
        require(resp_parse(here, cut, MOST, &apart, &other, &need, &why) == 0 && need == at + 2);
    ptrdiff_t n = resp_parse(here, at + rest, MOST, &apart, &other, &need, &why);
    require(n == (ptrdiff_t)(at + rest) && other.count == whole->count);
    require(other.args[i].data == there);
    for (uint32_t k = 0; k < whole->count; k++)
        require(other.args[k].len == whole->args[k].len &&
                memcmp(other.args[k].data, whole->args[k].data, whole->args[k].len) == 0);
    /* Its bytes count: what is too long whole is too long so. */
    require(resp_parse(here, at + rest, len - 1, &apart, &other, &need, &why) == -EMSGSIZE);
    free(here);
    free(there);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct resp_request whole, part;
    const char *why = NULL;
    size_t need = 0;
    char *copy = malloc(size ? size : 1); /* so that a read past the end is seen */
    require(copy != NULL);
    memcpy(copy, data, size);
    for (size_t at = 0; at < size;) {
        size_t rest = size - at, used = 0;
        ptrdiff_t n = resp_parse(copy + at, rest, MOST, NULL, &whole, &need, &why);
        require(n <= (ptrdiff_t)rest && (n >= 0 || n == -EPROTO || n == -EMSGSIZE));
        require(n != -EPROTO || why);
        require(n != 0 || (need > rest && need <= MOST + 2));
        if (n <= 0)
            break;
        require(whole.count <= RESP_ARGS_MAX);
        for (uint32_t i = 0; i < whole.count; i++) {
            int64_t number;
            const struct resp_arg *a = &whole.args[i];
            require(a->data >= copy + at && a->len <= (size_t)n &&
                    a->data + a->len <= copy + at + n);
            used += a->len;
            (void)resp_number(a, &number);
        }
        require(used <= (size_t)n);
        ptrdiff_t cut = resp_parse(copy + at, (size_t)n - 1, MOST, NULL, &part, &need, &why);
        require(cut == 0 && need <= (size_t)n); /* not earlier, and no more is waited for */
        check_cut(copy + at, (size_t)(data[at] * 257 + rest) % (size_t)n, &whole);
        if (copy[at] == '*' && whole.count > 0)
            check_apart(copy + at, (size_t)n, &whole, (uint32_t)(rest % whole.count));
        at += (size_t)n;
    }
    free(copy);
    return 0;
}
