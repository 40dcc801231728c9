#include "base/visible.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/ascii.h"

enum { DIGITS = 2 * HW_UUID_BYTES };

static void format(const uint8_t uuid[HW_UUID_BYTES], char text[DIGITS + 1])
{
    for (int i = 0; i < HW_UUID_BYTES; i++)
        snprintf(text + 2 * (ptrdiff_t)i, 3, "%02x", uuid[i]);
}

static const char *chosen(void)
{
    const char *value = getenv("HAWSER_VISIBLE_DEVICES");
    return value && *value ? value : NULL;
}

bool hw_visible_are_chosen(void)
{
    return chosen() != NULL;
}

int hw_visible_place(const uint8_t uuid[HW_UUID_BYTES])
{
    const char *at = chosen();
    char text[DIGITS + 1];
    if (!at)
        return 0;
    format(uuid, text);
    for (int place = 0; at; place++) {
        const char *comma = strchr(at, ',');
        size_t len = comma ? (size_t)(comma - at) : strlen(at);
        if (len == DIGITS && hw_ascii_same_start(at, text, DIGITS))
            return place;
        at = comma ? comma + 1 : NULL;
    }
    return -1;
}

int hw_visible_choose(const uint8_t (*uuids)[HW_UUID_BYTES], size_t count)
{
    char *value = calloc(count + 1, DIGITS + 1);
    if (!value)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        char *at = value + i * (DIGITS + 1);
        format(uuids[i], at);
        at[DIGITS] = i + 1 < count ? ',' : '\0';
    }
    int rc = setenv("HAWSER_VISIBLE_DEVICES", value, 1) ? -ENOMEM : 0;
    free(value);
    return rc;
}
