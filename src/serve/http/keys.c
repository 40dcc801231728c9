#include "serve/http/keys.h"

#include "rpc/security/security.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char name[] = "--api-key-file";

/* 0, or -EINVAL and why. */
static int add(struct http_keys *keys, char *line, unsigned number, const char *path,
               char why[RPC_WHY_CHARS])
{
    size_t len = strlen(line);
    while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' '))
        line[--len] = '\0';
    if (len == 0 || line[0] == '#')
        return 0;
    if (len < HTTP_KEY_CHARS_MIN || len > HTTP_KEY_CHARS_MAX || strpbrk(line, " \t")) {
        snprintf(why, RPC_WHY_CHARS,
                 "%s %.120s: line %u: a key has %d to %d characters and no blanks; make one with: "
                 "openssl rand -hex 32",
                 name, path, number, HTTP_KEY_CHARS_MIN, HTTP_KEY_CHARS_MAX);
        return -EINVAL;
    }
    if (keys->count == HTTP_KEYS_MAX) {
        snprintf(why, RPC_WHY_CHARS, "%s %.120s: more than %d keys", name, path, HTTP_KEYS_MAX);
        return -EINVAL;
    }
    keys->items[keys->count++] = (struct http_key){.text = line};
    return 0;
}

int http_keys_load(struct http_keys *keys, const char *path, char why[RPC_WHY_CHARS])
{
    size_t len;
    *keys = (struct http_keys){0};
    int rc = rpc_security_read(name, path, true, HTTP_KEY_FILE_BYTES_MAX, &keys->file, &len, why);
    if (rc)
        return rc;
    keys->items = calloc(HTTP_KEYS_MAX, sizeof(*keys->items));
    unsigned number = 0;
    char *rest = keys->file;
    rc = keys->items ? 0 : -ENOMEM;
    for (char *line = strsep(&rest, "\n"); rc == 0 && line; line = strsep(&rest, "\n"))
        rc = add(keys, line, ++number, path, why);
    if (rc == 0 && keys->count == 0) {
        snprintf(why, RPC_WHY_CHARS, "%s %.120s holds no key", name, path);
        rc = -EINVAL;
    }
    if (rc)
        http_keys_fini(keys);
    return rc;
}

void http_keys_fini(struct http_keys *keys)
{
    free(keys->items);
    free(keys->file);
    *keys = (struct http_keys){0};
}

/* The time depends on the length of `sent` only. */
static bool equal(const char *key, const char *sent, size_t len)
{
    size_t key_len = strlen(key);
    unsigned char differ = key_len != len;
    for (size_t i = 0; i < len; i++)
        differ |= (unsigned char)(sent[i] ^ key[i < key_len ? i : 0]);
    return differ == 0;
}

static struct http_key *find(struct http_keys *keys, const char *sent)
{
    struct http_key *found = NULL;
    size_t len = sent ? strlen(sent) : 0;
    if (!sent || len > HTTP_KEY_CHARS_MAX)
        return NULL;
    for (uint32_t i = 0; i < keys->count; i++) {
        if (equal(keys->items[i].text, sent, len))
            found = &keys->items[i];
    }
    return found;
}

struct http_key *http_keys_find(struct http_keys *keys, const char *authorization,
                                const char *plain)
{
    static const char scheme[] = "Bearer ";
    size_t skip = sizeof scheme - 1;
    bool bearer = authorization && strncasecmp(authorization, scheme, skip) == 0;
    struct http_key *found = bearer ? find(keys, authorization + skip) : NULL;
    return found ? found : find(keys, plain);
}
