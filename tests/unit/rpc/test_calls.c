/* Calls in flight: ids, and deadlines against a model that looks at every call. */
#include "unit.h"

#include "base/clock.h"
#include "base/rng.h"
#include "rpc/endpoint/calls.h"

#include <errno.h>
#include <stdlib.h>

static const uint64_t start_ns = 5 * HW_SEC + 123456;

static void nothing(void *user, int status, const struct rpc_msg *reply)
{
    (void)user, (void)status, (void)reply;
}

static struct rpc_calls make(uint32_t limit)
{
    struct rpc_calls calls;
    rpc_calls_init(&calls, limit, start_ns);
    return calls;
}

static uint32_t add(struct rpc_calls *calls, uint64_t now, uint64_t timeout)
{
    uint32_t id;
    assert_int_equal(rpc_calls_add(calls, nothing, NULL, now, timeout, &id), 0);
    return id;
}

static void drain(struct rpc_calls *calls)
{
    uint32_t cursor = 0;
    struct rpc_pending_call call;
    while (rpc_calls_drain(calls, &cursor, &call) == 0)
        assert_ptr_equal(call.fn, nothing);
    rpc_calls_fini(calls);
}

static int expire(struct rpc_calls *calls, uint64_t now, uint32_t *id)
{
    struct rpc_pending_call call;
    return rpc_calls_expire(calls, now, id, &call);
}

static void answer_frees_the_id(void **state)
{
    (void)state;
    struct rpc_calls calls = make(1);
    struct rpc_pending_call call;
    uint32_t id = add(&calls, start_ns, HW_SEC), other;
    assert_true(rpc_calls_known(&calls, id));
    assert_int_equal(rpc_calls_add(&calls, nothing, NULL, start_ns, HW_SEC, &other), -ENOBUFS);
    assert_int_equal(rpc_calls_answer(&calls, id, &call), 0);
    assert_ptr_equal(call.fn, nothing);
    assert_false(rpc_calls_known(&calls, id));
    assert_int_equal(rpc_calls_answer(&calls, id, &call), -ENOENT);
    assert_int_equal(add(&calls, start_ns, HW_SEC), id);
    drain(&calls);
}

static void cancelled_call_keeps_its_id_until_the_answer(void **state)
{
    (void)state;
    struct rpc_calls calls = make(1);
    struct rpc_pending_call call;
    uint32_t id = add(&calls, start_ns, HW_SEC), other;
    assert_int_equal(rpc_calls_end(&calls, id, &call), 0);
    assert_int_equal(rpc_calls_end(&calls, id, &call), -ENOENT);
    assert_true(rpc_calls_known(&calls, id));
    assert_int_equal(rpc_calls_add(&calls, nothing, NULL, start_ns, HW_SEC, &other), -ENOBUFS);
    assert_int_equal(rpc_calls_answer(&calls, id, &call), 0);
    assert_null(call.fn);
    assert_int_equal(add(&calls, start_ns, HW_SEC), id);
    drain(&calls);
}

static void forgotten_id_is_free_at_once(void **state)
{
    (void)state;
    struct rpc_calls calls = make(1);
    uint32_t id = add(&calls, start_ns, HW_SEC);
    rpc_calls_forget(&calls, id);
    assert_false(rpc_calls_known(&calls, id));
    assert_true(rpc_calls_next_deadline(&calls) == HW_NEVER);
    assert_int_equal(add(&calls, start_ns, HW_SEC), id);
    drain(&calls);
}

static void made_up_ids_are_unknown(void **state)
{
    (void)state;
    struct rpc_calls calls = make(RPC_CALLS_MAX);
    struct rpc_pending_call call;
    assert_int_equal(rpc_calls_answer(&calls, 0, &call), -ENOENT);
    add(&calls, start_ns, HW_SEC);
    assert_int_equal(rpc_calls_answer(&calls, 1, &call), -ENOENT);
    assert_int_equal(rpc_calls_answer(&calls, UINT32_MAX, &call), -ENOENT);
    assert_int_equal(rpc_calls_end(&calls, UINT32_MAX, &call), -ENOENT);
    drain(&calls);
}

static void limit_is_exact(void **state)
{
    (void)state;
    const uint32_t limits[] = {1, 63, 64, 65, 1000, 4096};
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        struct rpc_calls calls = make(limits[i]);
        for (uint32_t k = 0; k < limits[i]; k++)
            assert_true(add(&calls, start_ns, HW_SEC) < limits[i]);
        uint32_t id;
        assert_int_equal(rpc_calls_add(&calls, nothing, NULL, start_ns, HW_SEC, &id), -ENOBUFS);
        drain(&calls);
    }
}

/* The peer's hello may lower the limit while calls are queued already. */
static void limit_that_shrinks_refuses_and_loses_nothing(void **state)
{
    (void)state;
    struct rpc_calls calls = make(4096);
    struct rpc_pending_call call;
    uint32_t id;
    for (int i = 0; i < 100; i++)
        add(&calls, start_ns, HW_SEC);
    calls.limit = 10;
    assert_int_equal(rpc_calls_add(&calls, nothing, NULL, start_ns, HW_SEC, &id), -ENOBUFS);
    for (uint32_t i = 0; i < 91; i++) {
        assert_int_equal(rpc_calls_add(&calls, nothing, NULL, start_ns, HW_SEC, &id), -ENOBUFS);
        assert_int_equal(rpc_calls_answer(&calls, i, &call), 0);
    }
    add(&calls, start_ns, HW_SEC);
    assert_int_equal(rpc_calls_add(&calls, nothing, NULL, start_ns, HW_SEC, &id), -ENOBUFS);
    drain(&calls);
}

static void same_bucket_on_another_turn_waits_for_its_turn(void **state)
{
    (void)state;
    struct rpc_calls calls = make(16);
    uint64_t turn = RPC_WHEEL_BUCKETS * HW_MS;
    uint32_t first = add(&calls, start_ns, 10 * HW_MS), id;
    uint32_t second = add(&calls, start_ns, 10 * HW_MS + turn);
    uint32_t third = add(&calls, start_ns, 10 * HW_MS + 2 * turn);
    assert_int_equal(expire(&calls, start_ns + 12 * HW_MS, &id), 0);
    assert_int_equal(id, first);
    assert_int_equal(expire(&calls, start_ns + 12 * HW_MS, &id), -ENOENT);
    assert_int_equal(expire(&calls, start_ns + 12 * HW_MS + turn, &id), 0);
    assert_int_equal(id, second);
    assert_int_equal(expire(&calls, start_ns + 12 * HW_MS + turn, &id), -ENOENT);
    assert_int_equal(expire(&calls, start_ns + 12 * HW_MS + 2 * turn, &id), 0);
    assert_int_equal(id, third);
    drain(&calls);
}

static void long_pause_misses_nothing(void **state)
{
    (void)state;
    struct rpc_calls calls = make(1024);
    for (uint64_t i = 0; i < 1000; i++)
        add(&calls, start_ns, i * HW_MS);
    uint32_t id;
    int expired = 0;
    while (expire(&calls, start_ns + 3600 * HW_SEC, &id) == 0)
        expired++;
    assert_int_equal(expired, 1000);
    drain(&calls);
}

static void call_made_after_a_long_pause_is_found(void **state)
{
    (void)state;
    struct rpc_calls calls = make(16);
    uint64_t later = start_ns + 3600 * HW_SEC;
    uint32_t made = add(&calls, later, 5 * HW_MS), id;
    assert_true(rpc_calls_next_deadline(&calls) <= later + 6 * HW_MS);
    assert_int_equal(expire(&calls, later + 4 * HW_MS, &id), -ENOENT);
    assert_int_equal(expire(&calls, later + 7 * HW_MS, &id), 0);
    assert_int_equal(id, made);
    drain(&calls);
}

static void call_without_deadline_never_expires(void **state)
{
    (void)state;
    struct rpc_calls calls = make(16);
    uint32_t id;
    add(&calls, start_ns, HW_NEVER);
    add(&calls, start_ns, HW_NEVER - start_ns);
    assert_true(rpc_calls_next_deadline(&calls) == HW_NEVER);
    assert_int_equal(expire(&calls, UINT64_MAX / 2, &id), -ENOENT);
    drain(&calls);
}

/* ---- against a model ---- */

enum { MODEL_CALLS = 200 };

struct model {
    struct rpc_calls calls;
    struct hw_rng rng;
    uint64_t now;
    struct {
        bool used, zombie;
        uint64_t deadline;
    } call[MODEL_CALLS];
};

static uint64_t earliest(const struct model *m)
{
    uint64_t next = HW_NEVER;
    for (int i = 0; i < MODEL_CALLS; i++)
        if (m->call[i].used && !m->call[i].zombie && m->call[i].deadline < next)
            next = m->call[i].deadline;
    return next;
}

static void model_add(struct model *m)
{
    uint64_t timeout = hw_rng_below(&m->rng, UINT64_C(1) << (16 + hw_rng_below(&m->rng, 20)));
    if (hw_rng_below(&m->rng, 20) == 0)
        timeout = HW_NEVER;
    uint32_t id;
    int used = 0;
    for (int i = 0; i < MODEL_CALLS; i++)
        used += m->call[i].used;
    int rc = rpc_calls_add(&m->calls, nothing, m, m->now, timeout, &id);
    assert_int_equal(rc, used == MODEL_CALLS ? -ENOBUFS : 0);
    if (rc)
        return;
    assert_true(id < MODEL_CALLS && !m->call[id].used);
    m->call[id].used = true;
    m->call[id].zombie = false;
    m->call[id].deadline = timeout == HW_NEVER ? HW_NEVER : m->now + timeout;
}

static void model_answer(struct model *m, uint32_t id)
{
    struct rpc_pending_call call;
    int rc = rpc_calls_answer(&m->calls, id, &call);
    assert_int_equal(rc, m->call[id].used ? 0 : -ENOENT);
    if (rc == 0)
        assert_int_equal(call.fn == NULL, m->call[id].zombie);
    m->call[id].used = false;
}

static void model_end(struct model *m, uint32_t id)
{
    struct rpc_pending_call call;
    int rc = rpc_calls_end(&m->calls, id, &call);
    assert_int_equal(rc, m->call[id].used && !m->call[id].zombie ? 0 : -ENOENT);
    if (rc == 0)
        m->call[id].zombie = true;
}

static void model_expire(struct model *m)
{
    uint32_t id;
    while (expire(&m->calls, m->now, &id) == 0) {
        assert_true(m->call[id].used && !m->call[id].zombie);
        assert_true(m->call[id].deadline < m->now); /* never early */
        m->call[id].zombie = true;
    }
    for (int i = 0; i < MODEL_CALLS; i++) /* at most a bucket late */
        if (m->call[i].used && !m->call[i].zombie)
            assert_true(m->call[i].deadline / HW_MS >= m->now / HW_MS);
}

static void model_step(struct model *m)
{
    uint32_t id = (uint32_t)hw_rng_below(&m->rng, MODEL_CALLS);
    switch (hw_rng_below(&m->rng, 8)) {
    case 0:
    case 1:
    case 2:
        model_add(m);
        break;
    case 3:
        model_answer(m, id);
        break;
    case 4:
        model_end(m, id);
        break;
    case 5:
        m->now += hw_rng_below(&m->rng, UINT64_C(1) << (10 + hw_rng_below(&m->rng, 22)));
        break;
    case 6: { /* sleeps exactly as long as it is told to */
        uint64_t next = rpc_calls_next_deadline(&m->calls);
        if (next != HW_NEVER && next > m->now)
            m->now = next;
        model_expire(m);
        break;
    }
    default:
        model_expire(m);
    }
    uint64_t next = rpc_calls_next_deadline(&m->calls), first = earliest(m);
    /* The bucket behind the earliest deadline is where it ends: no sleep is longer. */
    assert_true(first == HW_NEVER || next <= (first / HW_MS + 1) * HW_MS);
}

static void random_operations_agree_with_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct model m = {.calls = make(MODEL_CALLS), .now = start_ns};
        hw_rng_seed(&m.rng, seed);
        for (int i = 0; i < 3000; i++)
            model_step(&m);
        /* Nothing but sleeping until the next deadline ends all that have one. */
        for (int i = 0; earliest(&m) != HW_NEVER; i++) {
            uint64_t next = rpc_calls_next_deadline(&m.calls);
            m.now = next > m.now ? next : m.now;
            model_expire(&m);
            if (i > 1000000)
                fail_msg("seed %llu: sleeping makes no progress", (unsigned long long)seed);
        }
        drain(&m.calls);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answer_frees_the_id),
        cmocka_unit_test(cancelled_call_keeps_its_id_until_the_answer),
        cmocka_unit_test(forgotten_id_is_free_at_once),
        cmocka_unit_test(made_up_ids_are_unknown),
        cmocka_unit_test(limit_is_exact),
        cmocka_unit_test(limit_that_shrinks_refuses_and_loses_nothing),
        cmocka_unit_test(same_bucket_on_another_turn_waits_for_its_turn),
        cmocka_unit_test(long_pause_misses_nothing),
        cmocka_unit_test(call_made_after_a_long_pause_is_found),
        cmocka_unit_test(call_without_deadline_never_expires),
        cmocka_unit_test(random_operations_agree_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
