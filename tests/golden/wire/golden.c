#include "golden.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return s;
}

static size_t split(char *line, char *fields[])
{
    size_t count = 0;
    for (char *bar; line; line = bar) {
        assert_true(count < GOLDEN_FIELDS_MAX);
        bar = strchr(line, '|');
        if (bar)
            *bar++ = '\0';
        fields[count++] = trim(line);
    }
    return count;
}

size_t golden_each(const char *path, golden_line *fn)
{
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("cannot read %s", path);
    char *line = NULL;
    size_t cap = 0, vectors = 0;
    while (getline(&line, &cap, f) > 0) {
        char *fields[GOLDEN_FIELDS_MAX];
        if (line[0] == '#')
            continue;
        fn(fields, split(line, fields));
        vectors++;
    }
    free(line);
    fclose(f);
    return vectors;
}

size_t golden_hex(const char *hex, uint8_t bytes[GOLDEN_BYTES_MAX])
{
    size_t n = 0;
    for (; *hex && !isspace((unsigned char)*hex); hex += 2) {
        unsigned byte;
        assert_true(n < GOLDEN_BYTES_MAX);
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        assert_true(isxdigit((unsigned char)hex[1]));
        bytes[n++] = (uint8_t)byte;
    }
    return n;
}

void golden_equal(const char *name, const uint8_t *got, size_t got_len, const uint8_t *want,
                  size_t want_len)
{
    size_t i = 0;
    while (i < got_len && i < want_len && got[i] == want[i])
        i++;
    if (i != want_len || i != got_len)
        fail_msg("%s: %zu bytes, expected %zu; the first difference is at %zu", name, got_len,
                 want_len, i);
}
