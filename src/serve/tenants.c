#include "serve/tenants.h"

#include "base/units.h"
#include "serve/server_info.h"
#include "venus/server/slice/schedule.h"
#include "wire/dec.h"
#include "wire/enc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(char why[RPC_WHY_CHARS], const char *what)
{
    snprintf(why, RPC_WHY_CHARS, "%s", what);
    return -EINVAL;
}

static int set(struct tenant *tenant, const char *word, char why[RPC_WHY_CHARS])
{
    uint64_t value = 0;
    if (strncmp(word, "weight=", 7) == 0) {
        if (hw_parse_u64(word + 7, 1, VNS_SLICE_WEIGHT_MAX, &value))
            return refuse(why, "a weight is a number from 1 to 1000");
        tenant->weight = (uint32_t)value;
        return 0;
    }
    if (strncmp(word, "max-memory=", 11) == 0) {
        if (hw_parse_size(word + 11, &value) || value < 1 << 20 || value > INT64_MAX)
            return refuse(why, "max-memory is a size of at least 1MiB, such as 8GiB");
        tenant->max_memory_bytes = value;
        return 0;
    }
    return refuse(why, "it is not NAME TOKEN [weight=N] [max-memory=SIZE]");
}

static int add(void *user, const char *name, struct rpc_bytes token, char *words,
               char why[RPC_WHY_CHARS])
{
    struct tenants *t = user;
    struct tenant *tenant = &t->list[t->count];
    struct rpc_token *own = &t->tokens[t->count - 1];
    if (strcmp(name, t->list[0].name) == 0)
        return refuse(why, "its name is that of who comes with the server's own token");
    *tenant = (struct tenant){.weight = 1};
    strcpy(tenant->name, name);
    own->len = token.len;
    memcpy(own->bytes, token.data, token.len);
    t->count++;
    int rc = 0;
    for (char *word; rc == 0 && (word = strtok_r(NULL, RPC_TENANT_BLANKS, &words)) != NULL;)
        rc = set(tenant, word, why);
    return rc;
}

int tenants_load(const char *path, uint32_t own_weight, struct tenants **out,
                 char why[RPC_WHY_CHARS])
{
    struct tenants *t = calloc(1, sizeof(*t));
    if (!t) {
        snprintf(why, RPC_WHY_CHARS, "out of memory");
        return -ENOMEM;
    }
    t->count = 1;
    t->list[0] = (struct tenant){.name = "own", .weight = own_weight};
    int rc = path ? rpc_tenants_read(path, add, t, why) : 0;
    if (rc) {
        tenants_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void tenants_free(struct tenants *t)
{
    if (t)
        explicit_bzero(t, sizeof(*t));
    free(t);
}

void server_usage_encode(const struct server_usage *usage, struct wire_enc *enc)
{
    wire_put_u8(enc, usage->measured);
    wire_put_u32(enc, usage->count);
    for (uint32_t i = 0; i < usage->count; i++) {
        wire_put_str(enc, usage->tenants[i].name);
        wire_put_u32(enc, usage->tenants[i].sessions);
        wire_put_u64(enc, usage->tenants[i].gpu_ns);
    }
}

int server_usage_decode(const void *data, size_t len, struct server_usage *out)
{
    struct server_usage usage = {0};
    struct wire_dec dec;
    wire_dec_init(&dec, data, len);
    usage.measured = wire_get_u8(&dec) != 0;
    usage.count = wire_dec_count(&dec, 1 + 4 + 8, 1 + RPC_TENANTS_MAX);
    for (uint32_t i = 0; i < usage.count; i++) {
        server_text_get(&dec, usage.tenants[i].name, sizeof(usage.tenants[i].name));
        usage.tenants[i].sessions = wire_get_u32(&dec);
        usage.tenants[i].gpu_ns = wire_get_u64(&dec);
    }
    int rc = wire_dec_end(&dec);
    if (rc == 0)
        *out = usage;
    return rc;
}
