#include "kv/resp/tenants.h"

#include "wire/le.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tenant {
    char name[RPC_TENANT_NAME_CHARS];
    uint8_t token[RPC_TOKEN_BYTES_MAX];
    size_t token_len;
    uint64_t number;
};

struct resp_tenants {
    uint32_t count;
    struct tenant list[RPC_TENANTS_MAX];
};

static uint64_t number_of(const char *name)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256((const uint8_t *)name, strlen(name), digest);
    return wire_load64(digest) | 1; /* not 0 */
}

static int add(void *user, const char *name, struct rpc_bytes token, char *words,
               char why[RPC_WHY_CHARS])
{
    struct resp_tenants *t = user;
    if (strtok_r(NULL, RPC_TENANT_BLANKS, &words)) {
        snprintf(why, RPC_WHY_CHARS, "it is not NAME TOKEN");
        return -EINVAL;
    }
    struct tenant *one = &t->list[t->count++];
    strcpy(one->name, name);
    memcpy(one->token, token.data, token.len);
    one->token_len = token.len;
    one->number = number_of(name);
    return 0;
}

int resp_tenants_load(const char *path, struct resp_tenants **out, char why[RPC_WHY_CHARS])
{
    struct resp_tenants *t = calloc(1, sizeof(*t));
    if (!t) {
        snprintf(why, RPC_WHY_CHARS, "out of memory");
        return -ENOMEM;
    }
    int rc = rpc_tenants_read(path, add, t, why);
    if (rc) {
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
