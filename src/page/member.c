#include "page/member.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Makes a group's name of a model's: characters that a group's name may not have become '-'. */
static void name_group(char name[PAGE_GROUP_CHARS], const char *model)
{
    size_t len = 0;
    for (; model[len] && len + 1 < PAGE_GROUP_CHARS; len++) {
        unsigned char c = (unsigned char)model[len];
        bool good = c < 0x80 && (isalnum(c) || c == '_' || (c == '.' && len > 0));
        name[len] = (char)(good ? c : '-');
    }
    if (len == 0)
        name[len++] = '-';
    name[len] = '\0';
}

static int join_alone(struct page_runtime *r, const char *name, struct page_error *why)
{
    int rc = page_runtime_join(r, NULL, name, why);
    if (rc)
        return rc;
    rc = page_runtime_lead(r, "serve", why);
    if (rc)
        page_runtime_leave(r);
    return rc;
}

/* Named for the model, or where another process has that group, for the process as well. */
static int join_own(struct page_runtime *r, const char *model, struct page_error *why)
{
    char name[PAGE_GROUP_CHARS], longer[PAGE_GROUP_CHARS];
    name_group(name, model);
    int rc = join_alone(r, name, why);
    if (rc != -EBUSY)
        return rc;
    snprintf(longer, sizeof longer, "%.20s-%d", name, (int)getpid());
    return join_alone(r, longer, why);
}

static int add_user(struct page_member *m, const char *path, const struct page_member_config *c,
                    struct page_error *why)
{
    struct page_limit **limit = &m->limits[m->count];
    int rc = m->count ? page_limit_open_same(m->limits[0], limit, why)
                      : page_limit_open(path, limit, why);
    if (rc)
        return rc;
    rc = page_limit_claim(*limit, m->count, why);
    if (rc) {
        page_limit_close(*limit);
        return rc;
    }
    page_limit_name(*limit, c->models[m->count], c->min_bytes, c->priorities[m->count]);
    m->count++;
    return 0;
}

int page_member_open(struct page_member *m, const struct page_member_config *c,
                     struct page_error *why)
{
    char path[PAGE_PATH_CHARS];
    struct page_error unlisted = {0};
    assert(c->count > 0 && c->count <= PAGE_MEMBER_MODELS_MAX);
    *m = (struct page_member){0};
    int rc = c->group ? page_runtime_join(&m->runtime, NULL, c->group, &unlisted)
                      : join_own(&m->runtime, c->models[0], &unlisted);
    m->is_listed = rc == 0;
    if (rc && c->group) {
        *why = unlisted;
        return rc;
    }
    if (m->is_listed)
        page_runtime_limit(&m->runtime, path);
    rc = 0;
    while (m->count < c->count && rc == 0)
        rc = add_user(m, m->is_listed ? path : NULL, c, why);
    if (rc) {
        page_member_close(m);
        return rc;
    }
    page_limit_begin(m->limits[0], c->limit_bytes, c->most_bytes);
    *why = unlisted;
    return 0;
}

void page_member_close(struct page_member *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        page_limit_close(m->limits[i]);
    if (m->is_listed)
        page_runtime_leave(&m->runtime);
    *m = (struct page_member){0};
}
