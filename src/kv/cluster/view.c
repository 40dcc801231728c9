#include "kv/cluster/view.h"

#include "wire/le.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

uint64_t kv_member_id(const char *name)
{
    uint64_t id = XXH3_64bits(name, strlen(name));
    return id ? id : 1;
}

uint64_t kv_block_hash(const struct kv_block_key *key)
{
    return XXH3_64bits(key->bytes, key->len);
}

/* ---- making ---- */

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

int kv_member_make(const struct kv_member_info *info, struct kv_member *m, char why[RPC_WHY_CHARS])
{
    struct rpc_addr addr;
    if (!info->name[0] || !is_printable(info->name)) {
        snprintf(why, RPC_WHY_CHARS, "a member's name is empty or has odd characters");
        return -EINVAL;
    }
    if (strlen(info->name) >= sizeof(m->name) || strlen(info->address) >= sizeof(m->address)) {
        snprintf(why, RPC_WHY_CHARS, "member %.32s...: its name or address is too long",
                 info->name);
        return -ENAMETOOLONG;
    }
    int rc = rpc_addr_parse(info->address, &addr, why);
    if (rc)
        return rc;
    m->id = kv_member_id(info->name);
    snprintf(m->name, sizeof(m->name), "%s", info->name);
    snprintf(m->address, sizeof(m->address), "%s", info->address);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct kv_member *)a)->name, ((const struct kv_member *)b)->name);
}

/* Two names with one id would own the same keys; about one cluster in 10^13 has such names. */
static const struct kv_member *find_namesake(const struct kv_view *v)
{
    enum { PLACES = 4 * KV_MEMBERS_MAX };
    uint64_t seen[PLACES] = {0}; /* no id is 0 */
    for (uint32_t i = 0; i < v->count; i++) {
        uint64_t at = v->ids[i] % PLACES;
        while (seen[at] && seen[at] != v->ids[i])
            at = (at + 1) % PLACES;
        if (seen[at])
            return &v->members[i];
        seen[at] = v->ids[i];
    }
    return NULL;
}

static void sort(struct kv_view *v)
{
    qsort(v->members, v->count, sizeof(v->members[0]), by_name);
    for (uint32_t i = 0; i < v->count; i++)
        v->ids[i] = v->members[i].id;
}

void kv_view_copy(struct kv_view *to, const struct kv_view *from)
{
    to->epoch = from->epoch;
    to->count = from->count;
    memcpy(to->ids, from->ids, from->count * sizeof(from->ids[0]));
    memcpy(to->members, from->members, from->count * sizeof(from->members[0]));
}

int kv_view_make(uint64_t epoch, const struct kv_member_info *infos, uint32_t count,
                 struct kv_view *out, char why[RPC_WHY_CHARS])
{
    if (count > KV_MEMBERS_MAX) {
        snprintf(why, RPC_WHY_CHARS, "%u members: at most %d", count, KV_MEMBERS_MAX);
        return -E2BIG;
    }
    struct kv_view v;
    v.epoch = epoch;
    v.count = count;
    for (uint32_t i = 0; i < count; i++) {
        int rc = kv_member_make(&infos[i], &v.members[i], why);
        if (rc)
            return rc;
    }
    sort(&v);
    const struct kv_member *namesake = find_namesake(&v);
    if (namesake) {
        snprintf(why, RPC_WHY_CHARS, "two members are called %s", namesake->name);
        return -EEXIST;
    }
    kv_view_copy(out, &v);
    return 0;
}

void kv_rank_name(uint32_t rank, char out[KV_MEMBER_NAME_CHARS])
{
    snprintf(out, KV_MEMBER_NAME_CHARS, "rank%u", rank);
}

void kv_view_of_ranks(uint32_t ranks, struct kv_view *out)
{
    assert(ranks <= KV_MEMBERS_MAX);
    out->epoch = 1;
    out->count = ranks;
    for (uint32_t i = 0; i < ranks; i++) {
        out->members[i] = (struct kv_member){.id = 0};
        kv_rank_name(i, out->members[i].name);
        out->members[i].id = kv_member_id(out->members[i].name);
    }
    sort(out);
}

/* ---- asking ---- */

const struct kv_member *kv_view_find(const struct kv_view *v, uint64_t id)
{
    for (uint32_t i = 0; i < v->count; i++)
        if (v->members[i].id == id)
            return &v->members[i];
    return NULL;
}

uint32_t kv_view_owners(const struct kv_view *v, uint64_t key_hash, uint32_t copies,
                        uint32_t owners[KV_COPIES_MAX])
{
    uint64_t best[KV_COPIES_MAX] = {0};
    uint8_t bytes[8];
    uint32_t n = 0;
    assert(copies >= 1 && copies <= KV_COPIES_MAX);
    wire_store64(bytes, key_hash);
    for (uint32_t i = 0; i < v->count; i++) {
        uint64_t score = XXH3_64bits_withSeed(bytes, sizeof(bytes), v->ids[i]);
        uint32_t at = n; /* equal scores: the first by name */
        while (at > 0 && score > best[at - 1])
            at--;
        if (at == copies)
            continue;
        n = n < copies ? n + 1 : n;
        for (uint32_t k = n - 1; k > at; k--) {
            best[k] = best[k - 1];
            owners[k] = owners[k - 1];
        }
        best[at] = score;
        owners[at] = i;
    }
    return n;
}
