#include "llm/model/layers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "3" or "3-5". */
static int parse_range(const char *text, size_t len, uint32_t count, struct llm_layers *set)
{
    char copy[32], *end;
    if (len == 0 || len >= sizeof copy || text[0] < '0' || text[0] > '9')
        return -EINVAL;
    memcpy(copy, text, len);
    copy[len] = 0;
    unsigned long from = strtoul(copy, &end, 10), to = from;
    if (*end == '-' && end[1] >= '0' && end[1] <= '9')
        to = strtoul(end + 1, &end, 10);
    if (*end || from > to || to >= count)
        return -EINVAL;
    for (unsigned long l = from; l <= to; l++)
        llm_layers_add(set, (uint32_t)l);
    return 0;
}

/* "25%": the last quarter, rounded to the nearest.  A step needs the last layers last, so that
 * there is most time to restore them. */
static bool parse_share(const char *text, size_t len, uint32_t count, struct llm_layers *set)
{
    char *end;
    if (len < 2 || text[len - 1] != '%' || text[0] < '0' || text[0] > '9')
        return false;
    unsigned long percent = strtoul(text, &end, 10);
    if (end != text + len - 1 || percent > 100)
        return false;
    uint32_t some = (uint32_t)((percent * count + 50) / 100);
    for (uint32_t l = count - some; l < count; l++)
        llm_layers_add(set, l);
    return true;
}

int llm_layers_parse(const char *text, size_t len, uint32_t count, struct llm_layers *out)
{
    struct llm_layers set = {0};
    if (len == 3 && memcmp(text, "all", 3) == 0) {
        *out = llm_layers_first(count);
        return 0;
    }
    if (parse_share(text, len, count, &set)) {
        *out = set;
        return 0;
    }
    for (const char *end = text + len;; text++) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma ? comma : end;
        int rc = parse_range(text, (size_t)(stop - text), count, &set);
        if (rc)
            return rc;
        if (!comma)
            break;
        text = comma;
    }
    *out = set;
    return 0;
}

int llm_evict_rule_parse(const char *text, uint32_t count, struct llm_evict_rule *out)
{
    struct llm_evict_rule rule = {.at = 1};
    const char *at = strchr(text, '@');
    size_t len = at ? (size_t)(at - text) : strlen(text);
    int rc = llm_layers_parse(text, len, count, &rule.layers);
    if (rc)
        return rc;
    if (at) {
        char *end;
        unsigned long value = strtoul(at + 1, &end, 10);
        if (at[1] < '0' || at[1] > '9' || *end || value == 0 || value > UINT32_MAX)
            return -EINVAL;
        rule.at = (uint32_t)value;
    }
    *out = rule;
    return 0;
}
