/* Random operations on the block store beside a model, from a seed.  The model knows what was put,
 * what is leased and when it ends; the store may evict what is not leased, and
 * nothing else may differ.
 *
 *   test-kv-blocks-model          every seed
 *   test-kv-blocks-model SEED     one */
#include "unit.h"

#include "../../sanitized.h"

#include "base/rng.h"
#include "kv/store/blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEEDS = SANITIZED ? 1000 : 3000,
    STEPS = 250,
    KEYS = 24,
    HOLDERS = 3,
    CLAIMS = 30,
    ARENA = 16 << 10,
    BLOCK_MAX = 6000,
    TENANTS = 3
};

/* Lease or put of the model. */
struct claim {
    uint64_t handle, expires_ns;
    int key, holder;
    uint32_t len, written;
    uint64_t content; /* a seed of the bytes */
    uint64_t offset;  /* lease: it must not move */
    bool live, replaces;
};

struct known {
    bool put; /* and neither deleted nor found evicted since: the store may have it */
    uint64_t content;
    uint32_t len;
};

struct model {
    struct kv_blocks *b;
    struct kv_block_holder holders[HOLDERS];
    struct known keys[KEYS];
    struct claim puts[CLAIMS], leases[CLAIMS];
    struct hw_rng rng;
    uint64_t now, contents;
    uint32_t results[KV_RESULT_COUNT];
};

static _Alignas(64) uint8_t arena[ARENA];
static uint64_t seed_now;

#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail_msg("seed %llu: %s", (unsigned long long)seed_now, #cond);                        \
    } while (0)

static uint64_t below(struct model *m, uint64_t n)
{
    return hw_rng_below(&m->rng, n);
}

static uint8_t byte_of(uint64_t content, uint32_t i)
{
    return (uint8_t)(kv_mix(content) >> (i % 8 * 8)) ^ (uint8_t)(i / 8);
}

static bool holds(uint64_t offset, uint64_t content, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        if (arena[offset + i] != byte_of(content, i))
            return false;
    return true;
}

static struct kv_block_key key_of(int n)
{
    struct kv_block_key key = {.len = (uint8_t)(1 + n)};
    memset(key.bytes, 'k', sizeof(key.bytes)); /* equal but for their length */
    return key;
}

static struct claim *free_claim(struct claim *claims)
{
    for (int i = 0; i < CLAIMS; i++)
        if (!claims[i].handle)
            return &claims[i];
    return NULL;
}

/* One that was given, ended or not; NULL when there is none. */
static struct claim *any_claim(struct model *m, struct claim *claims)
{
    int from = (int)below(m, CLAIMS);
    for (int i = 0; i < CLAIMS; i++)
        if (claims[(from + i) % CLAIMS].handle)
            return &claims[(from + i) % CLAIMS];
    return NULL;
}

/* Not only a deleted block of that key, but the one that was put last. */
static bool is_leased(const struct model *m, int key)
{
    for (int i = 0; i < CLAIMS; i++)
        if (m->leases[i].live && m->leases[i].key == key && m->keys[key].put &&
            m->leases[i].content == m->keys[key].content)
            return true;
    return false;
}

static void count(struct model *m, enum kv_result result)
{
    bool known = (unsigned)result < KV_RESULT_COUNT;
    REQUIRE(known);
    m->results[known ? result : 0]++;
}

/* Time passes: the model ends what the store must end. */
static void pass(struct model *m, uint64_t ns)
{
    m->now += ns;
    for (int i = 0; i < CLAIMS; i++) {
        m->puts[i].live = m->puts[i].live && m->now < m->puts[i].expires_ns;
        m->leases[i].live = m->leases[i].live && m->now < m->leases[i].expires_ns;
    }
}

/* ---- operations ---- */

static void op_put_start(struct model *m)
{
    struct claim *c = free_claim(m->puts);
    int key = (int)below(m, KEYS), holder = (int)below(m, HOLDERS);
    uint32_t len = (uint32_t)(1 + below(m, BLOCK_MAX));
    struct kv_block_key k = key_of(key);
    uint64_t ticket = 0;
    if (!c)
        return;
    bool had = kv_blocks_owns(m->b, &k), replaces = below(m, 3) == 0;
    enum kv_result r = (replaces ? kv_blocks_replace_start : kv_blocks_put_start)(
        m->b, &m->holders[holder], &k, below(m, TENANTS), len, m->now, &ticket);
    count(m, r);
    REQUIRE(r == KV_OK || r == KV_FULL || (r == KV_EXISTS && had && !replaces));
    REQUIRE((r == KV_OK) == (ticket != 0));
    if (replaces && !kv_blocks_owns(m->b, &k))
        m->keys[key] = (struct known){0}; /* its room was needed */
    if (r == KV_OK)
        *c = (struct claim){.handle = ticket,
                            .key = key,
                            .holder = holder,
                            .len = len,
                            .content = ++m->contents,
                            .expires_ns = m->now + KV_PUT_LASTS_NS,
                            .live = true,
                            .replaces = replaces};
}

static void write_to(struct model *m, struct claim *c, uint32_t n)
{
    static uint8_t data[BLOCK_MAX];
    for (uint32_t i = 0; i < n; i++)
        data[i] = byte_of(c->content, c->written + i);
    enum kv_result r =
        kv_blocks_put_write(m->b, &m->holders[c->holder], c->handle, c->written, data, n, m->now);
    count(m, r);
    REQUIRE(r == (c->live ? KV_OK : KV_PUT_EXPIRED));
    memset(data, 0xee, sizeof(data)); /* the writer's memory is its own again */
    if (r == KV_OK)
        c->written += n;
}

static void op_write(struct model *m)
{
    struct claim *c = any_claim(m, m->puts);
    if (c)
        write_to(m, c, (uint32_t)below(m, c->len - c->written + 1));
}

static void op_commit(struct model *m)
{
    struct claim *c = any_claim(m, m->puts);
    if (!c)
        return;
    if (below(m, 4))
        write_to(m, c, c->len - c->written);
    struct kv_block_key k = key_of(c->key);
    bool had = kv_blocks_owns(m->b, &k);
    enum kv_result r = kv_blocks_put_commit(m->b, &m->holders[c->holder], c->handle, m->now);
    count(m, r);
    REQUIRE(r == (!c->live              ? KV_PUT_EXPIRED
                  : c->written < c->len ? KV_REFUSED
                  : had && !c->replaces ? KV_EXISTS
                                        : KV_OK));
    if (r == KV_OK)
        m->keys[c->key] = (struct known){.put = true, .content = c->content, .len = c->len};
    *c = (struct claim){0};
}

static void op_abort(struct model *m)
{
    struct claim *c = any_claim(m, m->puts);
    if (!c)
        return;
    enum kv_result r = kv_blocks_put_abort(m->b, &m->holders[c->holder], c->handle, m->now);
    count(m, r);
    REQUIRE(r == (c->live ? KV_OK : KV_PUT_EXPIRED));
    *c = (struct claim){0};
}

static void op_get(struct model *m)
{
    struct claim *c = free_claim(m->leases);
    int key = (int)below(m, KEYS), holder = (int)below(m, HOLDERS);
    struct kv_block_key k = key_of(key);
    struct kv_block_lease lease;
    const struct known *known = &m->keys[key];
    if (!c)
        return;
    enum kv_result r = kv_blocks_get(m->b, &m->holders[holder], &k, m->now, &lease);
    count(m, r);
    if (r == KV_MISS)
        REQUIRE(!is_leased(m, key));
    if (r != KV_OK)
        return;
    REQUIRE(known->put && lease.len == known->len);
    REQUIRE(holds(lease.offset, known->content, known->len));
    *c = (struct claim){.handle = lease.handle,
                        .key = key,
                        .holder = holder,
                        .len = lease.len,
                        .content = known->content,
                        .offset = lease.offset,
                        .expires_ns = lease.expires_ns,
                        .live = true};
}

static void op_lease(struct model *m)
{
    struct claim *c = any_claim(m, m->leases);
    if (!c)
        return;
    struct kv_block_holder *h = &m->holders[c->holder];
    uint64_t expires = 0;
    enum kv_result r;
    switch (below(m, 3)) {
    case 0:
        r = kv_blocks_renew(m->b, h, c->handle, m->now, &expires);
        REQUIRE(c->live ? r == KV_OK || r == KV_MISS : r == KV_EXPIRED);
        if (r == KV_OK)
            c->expires_ns = expires;
        break;
    case 1:
        r = kv_blocks_verify(m->b, h, c->handle, m->now);
        REQUIRE(r == (c->live ? KV_OK : KV_EXPIRED));
        break;
    default:
        r = kv_blocks_release(m->b, h, c->handle, m->now);
        REQUIRE(r == (c->live ? KV_OK : KV_EXPIRED));
        *c = (struct claim){0};
    }
    count(m, r);
}

static void op_delete(struct model *m)
{
    int key = (int)below(m, KEYS);
    struct kv_block_key k = key_of(key);
    enum kv_result r = kv_blocks_delete(m->b, &k, m->now);
    count(m, r);
    REQUIRE(r == KV_OK ? m->keys[key].put : r == KV_MISS);
    m->keys[key] = (struct known){0};
}

/* A holder dies. */
static void op_leave(struct model *m)
{
    int holder = (int)below(m, HOLDERS);
    kv_blocks_leave(m->b, &m->holders[holder], m->now);
    for (int i = 0; i < CLAIMS; i++) {
        m->puts[i].live = m->puts[i].live && m->puts[i].holder != holder;
        m->leases[i].live = m->leases[i].live && m->leases[i].holder != holder;
    }
}

/* A handle that somebody made up, or that is another's. */
static void op_forge(struct model *m)
{
    struct claim *c = any_claim(m, m->leases);
    uint64_t handle = c ? c->handle : hw_rng_u64(&m->rng);
    int holder = c ? (c->holder + 1) % HOLDERS : 0;
    enum kv_result r = kv_blocks_release(m->b, &m->holders[holder], handle, m->now);
    count(m, r);
    REQUIRE(r == KV_REFUSED || (r == KV_EXPIRED && (!c || !c->live)));
}

static void step(struct model *m)
{
    typedef void op_fn(struct model *);
    static op_fn *const ops[] = {op_put_start, op_put_start, op_put_start, op_write,  op_write,
                                 op_write,     op_write,     op_commit,    op_commit, op_commit,
                                 op_abort,     op_get,       op_get,       op_get,    op_lease,
                                 op_lease,     op_lease,     op_delete,    op_forge};
    uint64_t dice = below(m, 200);
    if (dice == 0)
        op_leave(m);
    else if (dice < 12)
        pass(m, below(m, 3 * HW_SEC));
    else
        ops[below(m, ARRAY_LEN(ops))](m);
}

/* What must hold at any time. */
static void check(struct model *m)
{
    struct kv_blocks_stat s;
    uint64_t live_leases = 0, live_puts = 0, blocks = 0;
    kv_blocks_tick(m->b, m->now);
    kv_blocks_stat(m->b, &s);
    for (int i = 0; i < CLAIMS; i++) {
        live_leases += m->leases[i].live;
        live_puts += m->puts[i].live;
        if (m->leases[i].live)
            REQUIRE(holds(m->leases[i].offset, m->leases[i].content, m->leases[i].len));
    }
    for (int i = 0; i < KEYS; i++) {
        struct kv_block_key k = key_of(i);
        bool there = kv_blocks_owns(m->b, &k);
        blocks += there;
        REQUIRE(!there || m->keys[i].put);
        REQUIRE(there || !is_leased(m, i));
        m->keys[i].put = there; /* evicted: from now on it must stay away */
    }
    REQUIRE(s.leases == live_leases && s.open_puts == live_puts && s.blocks == blocks);
    REQUIRE(s.room_used <= ARENA && s.corrupt == 0);
}

static void run(uint64_t seed, uint32_t results[KV_RESULT_COUNT])
{
    static struct model model;
    struct model *m = &model;
    seed_now = seed;
    memset(m, 0, sizeof(*m));
    hw_rng_seed(&m->rng, seed);
    struct kv_blocks_config config = {.arena = arena,
                                      .arena_bytes = ARENA,
                                      .entries = 20,
                                      .open_puts = 12,
                                      .leases = 24,
                                      .holder_leases = 10,
                                      .tenant_bytes = below(m, 2) ? ARENA / 2 : 0,
                                      .high_percent = 90,
                                      .low_percent = 70,
                                      .policy = (enum kv_policy_kind)(seed % KV_POLICY_KINDS),
                                      .secret = seed,
                                      .memory = kv_heap()};
    assert_int_equal(kv_blocks_create(&config, &m->b), 0);
    for (int i = 0; i < HOLDERS; i++)
        m->holders[i] = (struct kv_block_holder)KV_BLOCK_HOLDER_INIT;
    for (int i = 0; i < STEPS; i++) {
        step(m);
        check(m);
    }
    for (int i = 0; i < HOLDERS; i++)
        kv_blocks_leave(m->b, &m->holders[i], m->now);
    kv_blocks_destroy(m->b);
    for (int i = 0; i < KV_RESULT_COUNT; i++)
        results[i] += m->results[i];
}

static void nothing_is_read_that_was_not_put_and_leased_blocks_stay(void **state)
{
    (void)state;
    uint32_t results[KV_RESULT_COUNT] = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run(seed, results);
    static const enum kv_result expected[] = {KV_OK,      KV_MISS,        KV_FULL,  KV_REFUSED,
                                              KV_EXPIRED, KV_PUT_EXPIRED, KV_EXISTS};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) /* or the runs show less than they say */
        if (results[expected[i]] <= SEEDS / 4)
            fail_msg("only %u of %s", results[expected[i]], kv_result_name(expected[i]));
}

int main(int argc, char **argv)
{
    uint32_t results[KV_RESULT_COUNT] = {0};
    if (argc > 1) {
        run(strtoull(argv[1], NULL, 10), results);
        for (int i = 0; i < KV_RESULT_COUNT; i++)
            printf("%s %u\n", kv_result_name((enum kv_result)i), results[i]);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_read_that_was_not_put_and_leased_blocks_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
