/* Programs that write while the library collects, encodes and applies: nothing is lost. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "joint.h"
#include "venus/memory/track/pager.h"

static enum vn_track_method method;
static struct joint joint;

/* The program's stores: whole, and not to be joined or delayed by the compiler. */
static void poke8(size_t at, uint8_t value)
{
    atomic_store_explicit((_Atomic uint8_t *)(joint.memory + at), value, memory_order_relaxed);
}

static void poke64(size_t at, uint64_t value)
{
    _Atomic uint64_t *to = (_Atomic uint64_t *)(void *)(joint.memory + at);
    atomic_store_explicit(to, value, memory_order_relaxed);
}

/* --- what happened before a collection is in it ------------------------------------------------
 */

enum { SLOTS = 96, SLOT_BYTES = VN_PAGE_BYTES / 2, RACE_MS = 600 };

static _Atomic uint64_t written[SLOTS]; /* release: the slot holds at least this */
static atomic_bool stop;

static void *write_slots(void *seed)
{
    struct hw_rng rng;
    hw_rng_seed(&rng, (uintptr_t)seed);
    /* Even slots and odd ones have a writer each, and share pages.  A writer stays with a few of
     * them for a while, so that the others have time to be found idle. */
    for (uint64_t value = 1; !atomic_load(&stop); value++) {
        size_t place = (value >> 16) * 5 + (size_t)hw_rng_below(&rng, 4);
        size_t slot = place % (SLOTS / 2) * 2 + (uintptr_t)seed % 2;
        poke64(slot * SLOT_BYTES + 8 * slot, value);
        atomic_store_explicit(&written[slot], value, memory_order_release);
    }
    return NULL;
}

static void check_slots(void)
{
    uint64_t before[SLOTS];
    for (size_t i = 0; i < SLOTS; i++)
        before[i] = atomic_load_explicit(&written[i], memory_order_acquire);
    joint_push(&joint);
    for (size_t i = 0; i < SLOTS; i++) {
        uint64_t arrived;
        memcpy(&arrived, joint.server + i * SLOT_BYTES + 8 * i, 8);
        if (arrived < before[i])
            fail_msg("slot %zu: %llu was written, %llu was sent", i, (unsigned long long)before[i],
                     (unsigned long long)arrived);
    }
}

static void a_write_before_a_collection_is_in_it(void **state)
{
    (void)state;
    joint_open(&joint, method, SLOTS * SLOT_BYTES, NULL, NULL);
    pthread_t threads[2];
    atomic_store(&stop, false);
    for (uintptr_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_slots, (void *)(i + 10)), 0);
    uint64_t end = hw_now_ns() + RACE_MS * HW_MS;
    while (hw_now_ns() < end)
        check_slots();
    atomic_store(&stop, true);
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    check_slots();
    assert_memory_equal(joint.memory, joint.server, joint.size);
    joint_close(&joint);
}

/* --- a write at the moment when memory is found idle -------------------------------------------
 */

enum {
    LATE_ROUNDS = 250,
    IDLE_PAGES = 64,
    COLLECTIONS = 20, /* after 8 or 16 of them memory is taken for idle, depending on the method */
    SPINS_MAX = 200,
};

static atomic_uint collected, late_writes; /* in all rounds; release and acquire */

/* In each round one byte, about when one of its collections begins. */
static void *write_late(void *user)
{
    struct hw_rng rng;
    (void)user;
    hw_rng_seed(&rng, 3);
    for (unsigned round = 0; round < LATE_ROUNDS; round++) {
        unsigned at = (hw_rng_below(&rng, 2) ? 7 : 15) + (unsigned)hw_rng_below(&rng, 3);
        while (atomic_load_explicit(&collected, memory_order_acquire) < round * COLLECTIONS + at)
            hw_cpu_relax();
        for (uint64_t left = hw_rng_below(&rng, SPINS_MAX); left; left--)
            hw_cpu_relax();
        poke8((size_t)hw_rng_below(&rng, IDLE_PAGES * VN_PAGE_BYTES), (uint8_t)hw_rng_u64(&rng));
        atomic_store_explicit(&late_writes, round + 1, memory_order_release);
    }
    return NULL;
}

static void a_write_as_memory_becomes_idle_is_found(void **state)
{
    pthread_t thread;
    (void)state;
    joint_open(&joint, method, IDLE_PAGES * VN_PAGE_BYTES, NULL, NULL);
    atomic_store(&collected, 0);
    atomic_store(&late_writes, 0);
    assert_int_equal(pthread_create(&thread, NULL, write_late, NULL), 0);
    for (unsigned round = 0; round < LATE_ROUNDS; round++) {
        for (size_t page = 0; page < IDLE_PAGES; page++)
            poke64(page * VN_PAGE_BYTES, round + 1);
        joint_push(&joint);
        for (int i = 0; i < COLLECTIONS; i++) {
            assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
            atomic_fetch_add_explicit(&collected, 1, memory_order_release);
        }
        while (atomic_load_explicit(&late_writes, memory_order_acquire) <= round)
            sched_yield();
        joint_push(&joint);
        assert_memory_equal(joint.memory, joint.server, joint.size);
    }
    pthread_join(thread, NULL);
    joint_close(&joint);
}

/* --- the same where all of it is rewritten for a while, and then hardly any ---------------------
 */

enum {
    SWEPT = 2 * (256 << 10) / VN_PAGE_BYTES + 3
}; /* two spans that become untracked, and some pages */

static _Atomic uint64_t swept[SWEPT]; /* release: the page holds at least this */

static void sweep_page(size_t page, uint64_t value)
{
    poke64(page * VN_PAGE_BYTES + 8 * (page % 512), value);
    atomic_store_explicit(&swept[page], value, memory_order_release);
}

static void *sweep_pages(void *user)
{
    (void)user;
    for (uint64_t value = 1; !atomic_load(&stop); value++) {
        size_t few = value / 64 % SWEPT;
        bool all = value / 64 % 2;
        for (size_t page = all ? 0 : few; page < (all ? SWEPT : few + 1); page++)
            sweep_page(page, value);
    }
    return NULL;
}

static void check_pages(void)
{
    uint64_t before[SWEPT];
    for (size_t i = 0; i < SWEPT; i++)
        before[i] = atomic_load_explicit(&swept[i], memory_order_acquire);
    joint_push(&joint);
    for (size_t i = 0; i < SWEPT; i++) {
        uint64_t arrived;
        memcpy(&arrived, joint.server + i * VN_PAGE_BYTES + 8 * (i % 512), 8);
        if (arrived < before[i])
            fail_msg("page %zu: %llu was written, %llu was sent", i, (unsigned long long)before[i],
                     (unsigned long long)arrived);
    }
}

static void a_write_to_an_untracked_span_is_in_it(void **state)
{
    (void)state;
    joint_open(&joint, method, SWEPT * VN_PAGE_BYTES, NULL, NULL);
    pthread_t thread;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, sweep_pages, NULL), 0);
    uint64_t end = hw_now_ns() + RACE_MS * HW_MS;
    while (hw_now_ns() < end)
        check_pages();
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    check_pages();
    assert_memory_equal(joint.memory, joint.server, joint.size);
    joint_close(&joint);
}

/* --- both sides against a model ----------------------------------------------------------------
 */

enum { PAGES = 24, BYTES = PAGES * VN_PAGE_BYTES, ROUNDS = 60, THREADS = 2, WRITES = 1500 };

static uint8_t model[BYTES];

/* Each byte has one writer in a round, thread 0 to THREADS - 1 or the GPU; neighbours differ. */
static unsigned owner(size_t at, size_t round)
{
    uint64_t x = (at + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (round * UINT64_C(0xd1342543de82ef95));
    return (unsigned)((x >> 40) % (THREADS + 1));
}

struct writer {
    unsigned who;
    size_t round;
};

static void *write_round(void *user)
{
    const struct writer *writer = user;
    struct hw_rng rng;
    hw_rng_seed(&rng, writer->round * 16 + writer->who);
    size_t hot = (size_t)hw_rng_below(&rng, PAGES) * VN_PAGE_BYTES;
    for (size_t i = 0; i < WRITES; i++) {
        size_t at = i % 2 ? (size_t)hw_rng_below(&rng, BYTES)
                          : hot + (size_t)hw_rng_below(&rng, VN_PAGE_BYTES);
        if (owner(at, writer->round) != writer->who)
            continue;
        model[at] = (uint8_t)hw_rng_u64(&rng);
        if (writer->who == THREADS)
            joint.server[at] = model[at];
        else
            poke8(at, model[at]);
    }
    return NULL;
}

/* Deltas that cross: each side encodes before it has heard of the other. */
static void cross(void)
{
    joint_encode(&joint);
    joint_encode_server(&joint);
    joint_apply(&joint);
    joint_apply_server(&joint);
}

static void both_sides_end_as_the_model_says(void **state)
{
    (void)state;
    joint_open(&joint, method, BYTES, NULL, NULL);
    memset(model, 0, sizeof(model));
    for (size_t round = 0; round < ROUNDS; round++) {
        struct writer writers[THREADS + 1];
        pthread_t threads[THREADS];
        for (unsigned i = 0; i <= THREADS; i++)
            writers[i] = (struct writer){.who = i, .round = round};
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, write_round, &writers[i]), 0);
        cross();
        write_round(&writers[THREADS]);
        cross();
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        cross();
        assert_memory_equal(joint.memory, model, BYTES);
        assert_memory_equal(joint.server, model, BYTES);
        if (round % 8 == 7)
            joint_idle(&joint);
    }
    joint_close(&joint);
}

/* --- the thread that serves missing pages -------------------------------------------------- */

enum { TURNS = 3000 };

static void *come_and_go(void *kernel)
{
    struct vn_pager_client client = {0};
    for (int i = 0; i < TURNS; i++) {
        if (vn_pager_attach(kernel, &client))
            return kernel;
        vn_pager_detach(&client);
    }
    return NULL;
}

/* The last client's end is the thread's, and another one may come before that: none waits for
 * ever. */
static void clients_of_the_pager_come_and_go(void **state)
{
    struct vn_kernel *kernel;
    pthread_t other;
    void *failed;
    (void)state;
    if (method != VN_TRACK_USERFAULTFD)
        skip(); /* the other ways have no such thread */
    assert_int_equal(vn_kernel_ref(&kernel), 0);
    bool serves = kernel->serves_kernel; /* not without a privilege */
    if (serves) {
        assert_int_equal(pthread_create(&other, NULL, come_and_go, kernel), 0);
        assert_null(come_and_go(kernel));
        assert_int_equal(pthread_join(other, &failed), 0);
        assert_null(failed);
    }
    vn_kernel_unref(kernel);
    if (!serves)
        skip();
}

int main(int argc, char **argv)
{
    method = joint_method(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_before_a_collection_is_in_it),
        cmocka_unit_test(a_write_as_memory_becomes_idle_is_found),
        cmocka_unit_test(a_write_to_an_untracked_span_is_in_it),
        cmocka_unit_test(both_sides_end_as_the_model_says),
        cmocka_unit_test(clients_of_the_pager_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
