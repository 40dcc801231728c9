#include "kv/resp/tenants.h"

#include "wire/le.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 20 };

struct tenant {
    char name[RESP_TENANT_NAME_MAX + 1];
    uint8_t token[RPC_TOKEN_BYTES_MAX];
    size_t token_len;
    uint64_t number;
};

struct resp_tenants {
    uint32_t count;
    struct tenant list[RESP_TENANTS_MAX];
};

static uint64_t number_of(const char *name)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256((const uint8_t *)name, strlen(name), digest);
    return wire_load64(digest) | 1; /* not 0 */
}

static int refuse(char why[RPC_WHY_CHARS], unsigned line, const char *what)
{
    snprintf(why, RPC_WHY_CHARS, "line %u: %s", line, what);
    return -EINVAL;
}

static int add(struct resp_tenants *t, unsigned number, char *line, char why[RPC_WHY_CHARS])
{
    char *rest = NULL, *name = strtok_r(line, " \t\r", &rest),
         *token = strtok_r(NULL, " \t\r", &rest);
    if (!name || name[0] == '#')
        return 0;
    if (!token || strtok_r(NULL, " \t\r", &rest))
        return refuse(why, number, "it is not NAME TOKEN");
    size_t name_len = strlen(name), token_len = strlen(token);
    if (name_len > RESP_TENANT_NAME_MAX || token_len < RPC_TOKEN_BYTES_MIN ||
        token_len > RPC_TOKEN_BYTES_MAX)
        return refuse(why, number, "a name has at most 63 characters, a token 16 to 256");
    if (t->count == RESP_TENANTS_MAX)
        return refuse(why, number, "there are more than 256 tenants");
    struct tenant *one = &t->list[t->count];
    memcpy(one->name, name, name_len + 1);
    memcpy(one->token, token, token_len);
    one->token_len = token_len;
    one->number = number_of(name);
    for (uint32_t i = 0; i < t->count; i++)
        if (t->list[i].number == one->number ||
            resp_tenants_find(t, NULL, 0, token, token_len) != 0)
            return refuse(why, number, "its name or token is another tenant's, too");
    t->count++;
    return 0;
}

int resp_tenants_load(const char *path, struct resp_tenants **out, char why[RPC_WHY_CHARS])
{
    char *text, cause[RPC_WHY_CHARS];
    size_t len;
    int rc = rpc_security_read("--tenants", path, true, FILE_BYTES_MAX, &text, &len, why);
    if (rc)
        return rc;
    struct resp_tenants *t = calloc(1, sizeof(*t));
    unsigned number = 1;
    rc = t ? 0 : -ENOMEM;
    snprintf(cause, sizeof(cause), "out of memory");
    for (char *line = text, *next; line && rc == 0; line = next, number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        rc = add(t, number, line, cause);
    }
    if (rc == 0 && t->count == 0)
        rc = refuse(cause, 1, "there is no tenant");
    explicit_bzero(text, len);
    free(text);
    if (rc) {
        snprintf(why, RPC_WHY_CHARS, "--tenants: %.100s: %.120s", path, cause);
        resp_tenants_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void resp_tenants_free(struct resp_tenants *t)
{
    if (t)
        explicit_bzero(t, sizeof(*t));
    free(t);
}

uint64_t resp_tenants_find(const struct resp_tenants *t, const char *name, size_t name_len,
                           const char *token, size_t token_len)
{
    uint8_t given[RPC_TOKEN_BYTES_MAX] = {0};
    uint64_t found = 0;
    memcpy(given, token, token_len < sizeof(given) ? token_len : sizeof(given));
    for (uint32_t i = 0; i < t->count; i++) {
        const struct tenant *one = &t->list[i];
        unsigned char differs = one->token_len != token_len;
        for (size_t k = 0; k < sizeof(given); k++) /* what is behind a token is 0 */
            differs |= (unsigned char)(given[k] ^ one->token[k]);
        bool named =
            !name || (strlen(one->name) == name_len && memcmp(one->name, name, name_len) == 0);
        found = !differs && named ? one->number : found;
    }
    explicit_bzero(given, sizeof(given));
    return found;
}
