/* Files of tenants; see security.h. */
#include "rpc/security/security.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 20 };

struct reading {
    uint32_t count;
    struct {
        const char *name, *token; /* in the file's text */
    } seen[RPC_TENANTS_MAX];
    rpc_tenant_fn *each;
    void *user;
};

static int refuse(char why[RPC_WHY_CHARS], const char *what)
{
    snprintf(why, RPC_WHY_CHARS, "%s", what);
    return -EINVAL;
}

static bool is_known(const struct reading *r, const char *name, const char *token)
{
    bool known = false;
    for (uint32_t i = 0; i < r->count; i++)
        known |= strcmp(r->seen[i].name, name) == 0 || strcmp(r->seen[i].token, token) == 0;
    return known;
}

static int read_line(struct reading *r, char *line, char why[RPC_WHY_CHARS])
{
    char *words = NULL, *name = strtok_r(line, RPC_TENANT_BLANKS, &words);
    if (!name || name[0] == '#')
        return 0;
    char *token = strtok_r(NULL, RPC_TENANT_BLANKS, &words);
    size_t len = token ? strlen(token) : 0;
    if (!token)
        return refuse(why, "it is not NAME TOKEN");
    if (strlen(name) >= RPC_TENANT_NAME_CHARS || len < RPC_TOKEN_BYTES_MIN ||
        len > RPC_TOKEN_BYTES_MAX)
        return refuse(why, "a name has at most 63 characters, and its token 16 to 256; make one "
                           "with: openssl rand -hex 32");
    if (r->count == RPC_TENANTS_MAX)
        return refuse(why, "there are more than 256 tenants");
    if (is_known(r, name, token))
        return refuse(why, "its name or token is another tenant's, too");
    r->seen[r->count].name = name;
    r->seen[r->count++].token = token;
    return r->each(r->user, name, (struct rpc_bytes){token, len}, words, why);
}

int rpc_tenants_read(const char *path, rpc_tenant_fn *each, void *user, char why[RPC_WHY_CHARS])
{
    struct reading r = {.each = each, .user = user};
    char *text, cause[RPC_WHY_CHARS];
    size_t len;
    unsigned number = 0;
    int rc = rpc_security_read("--tenants", path, true, FILE_BYTES_MAX, &text, &len, why);
    if (rc)
        return rc;
    for (char *line, *rest = text; rc == 0 && (line = strsep(&rest, "\n")) != NULL; number++)
        rc = read_line(&r, line, cause);
    if (rc) {
        snprintf(why, RPC_WHY_CHARS, "--tenants %.80s: line %u: %.140s", path, number, cause);
    } else if (r.count == 0) {
        snprintf(why, RPC_WHY_CHARS, "--tenants %.120s: there is no tenant", path);
        rc = -EINVAL;
    }
    explicit_bzero(text, len);
    free(text);
    return rc;
}
