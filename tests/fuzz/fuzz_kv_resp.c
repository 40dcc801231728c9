/* Requests of Redis' protocol.  Whole or cut anywhere, the same bytes are the same request, and its
 * arguments lie within them. */
#include "fuzz.h"
#include "kv/resp/parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16 };

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
        ptrdiff_t n = resp_parse(copy + at, rest, MOST, &whole, &need, &why);
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
        ptrdiff_t cut = resp_parse(copy + at, (size_t)n - 1, MOST, &part, &need, &why);
        require(cut == 0 && need <= (size_t)n); /* not earlier, and no more is waited for */
        at += (size_t)n;
    }
    free(copy);
    return 0;
}
