/* Pages given up because the server has them, and fetched when they are touched. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "joint.h"

enum { PAGES = 256, SIZE = PAGES * VN_PAGE_BYTES };

static struct joint joint;
static atomic_size_t fetched; /* bytes */
static atomic_int refuse;     /* what fetch answers when not 0 */

/* The server's side of a fetch: what it sends becomes what it knows the client to have. */
static int fetch(void *user, size_t off, size_t len)
{
    (void)user;
    int err = atomic_load(&refuse);
    if (err)
        return err;
    atomic_fetch_add(&fetched, len);
    memcpy(joint.twin.bytes + off, joint.server + off, len);
    return vn_region_fill(joint.region, off, joint.server + off, len);
}

static int setup(void **state)
{
    (void)state;
    atomic_store(&fetched, 0);
    atomic_store(&refuse, 0);
    joint_open(&joint, VN_TRACK_USERFAULTFD, SIZE, fetch, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    joint_close(&joint);
    return 0;
}

static size_t resident_pages(const void *at)
{
    unsigned char resident[PAGES];
    assert_int_equal(mincore((void *)at, SIZE, resident), 0);
    size_t n = 0;
    for (size_t i = 0; i < PAGES; i++)
        n += resident[i] & 1;
    return n;
}

static void count_kept(void *user, size_t off, size_t len)
{
    (void)off;
    *(size_t *)user += len;
}

static size_t drop_all(void)
{
    size_t kept = 0;
    assert_int_equal(vn_region_drop(joint.region, 0, SIZE, count_kept, &kept), 0);
    return kept;
}

static void gpu_writes_everything(void)
{
    for (size_t i = 0; i < SIZE; i++)
        joint.server[i] = (uint8_t)(i / VN_PAGE_BYTES + i % 251);
}

static void nothing_is_moved_until_it_is_touched(void **state)
{
    (void)state;
    memset(joint.live, 1, SIZE);
    joint_push(&joint);
    gpu_writes_everything();
    assert_int_equal(drop_all(), 0);
    assert_int_equal(resident_pages(joint.live), 0);
    assert_int_equal(atomic_load(&fetched), 0);
    size_t at = 100 * VN_PAGE_BYTES + 7;
    assert_int_equal(joint.live[at], joint.server[at]);
    assert_true(atomic_load(&fetched) > 0 && atomic_load(&fetched) <= VN_FETCH_BYTES);
    assert_memory_equal(joint.live, joint.server, SIZE);
    assert_int_equal(atomic_load(&fetched), SIZE); /* each page once */
    assert_int_equal(joint_push(&joint), 0);       /* and none of it is the program's */
}

static void a_write_to_a_dropped_page_is_merged_and_sent(void **state)
{
    (void)state;
    gpu_writes_everything();
    assert_int_equal(drop_all(), 0);
    joint.live[50] = 0xfe;
    assert_int_equal(joint_push(&joint), 1);
    assert_int_equal(joint.server[50], 0xfe);
    assert_memory_equal(joint.live, joint.server, SIZE);
}

static void pages_with_writes_not_yet_sent_are_kept(void **state)
{
    (void)state;
    memset(joint.live, 3, SIZE);
    joint_push(&joint);
    gpu_writes_everything();
    joint.live[0] = 0xaa;                 /* not collected */
    joint.live[8 * VN_PAGE_BYTES] = 0xbb; /* collected, not sent */
    assert_int_equal(vn_region_collect(joint.region, 8 * VN_PAGE_BYTES, 1), 0);
    assert_int_equal(drop_all(), 2 * VN_PAGE_BYTES);
    assert_int_equal(joint.live[0], 0xaa);
    assert_int_equal(joint.live[8 * VN_PAGE_BYTES], 0xbb);
    assert_int_equal(atomic_load(&fetched), 0);
    /* As the caller is told to: kept pages get their delta, the rest is fetched. */
    size_t page = 0;
    assert_int_equal(vn_twin_encode(&joint.twin, joint.server, (struct vn_pages){0}, &page, 1,
                                    joint.server_codec, &joint.down, WIRE_MESSAGE_MAX),
                     1);
    joint_apply(&joint);
    assert_int_equal(joint_push(&joint), 2);
    assert_int_equal(joint.server[0], 0xaa);
    assert_int_equal(joint.live[1], joint.server[1]);
    assert_memory_equal(joint.live + 9 * VN_PAGE_BYTES, joint.server + 9 * VN_PAGE_BYTES,
                        SIZE - 9 * VN_PAGE_BYTES);
}

static void a_delta_for_a_dropped_page_is_left_to_the_fetch(void **state)
{
    (void)state;
    gpu_writes_everything();
    assert_int_equal(drop_all(), 0);
    joint_pull(&joint);
    assert_int_equal(resident_pages(joint.live), 0);
    assert_memory_equal(joint.live, joint.server, SIZE);
}

static void system_calls_find_dropped_pages(void **state)
{
    (void)state;
    gpu_writes_everything();
    assert_int_equal(drop_all(), 0);
    int fds[2];
    uint8_t got[3000], sent[3000];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], joint.live + 10, sizeof(got)), sizeof(got));
    assert_int_equal(read(fds[0], got, sizeof(got)), sizeof(got));
    assert_memory_equal(got, joint.server + 10, sizeof(got));
    memset(sent, 0x5c, sizeof(sent));
    assert_int_equal(write(fds[1], sent, sizeof(sent)), sizeof(sent));
    assert_int_equal(read(fds[0], joint.live + 200 * VN_PAGE_BYTES, sizeof(sent)), sizeof(sent));
    assert_int_equal(joint_push(&joint), 1);
    assert_memory_equal(joint.live, joint.server, SIZE);
    close(fds[0]);
    close(fds[1]);
}

/* --- a writer that does not stop ---------------------------------------------------------------
 */

static atomic_bool stop;

static void *keep_writing(void *user)
{
    /* The first byte of every page is the program's, the rest the GPU's. */
    uint8_t *last = user;
    for (size_t i = 0; !atomic_load(&stop); i++) {
        size_t page = i * 7 % PAGES;
        last[page] = (uint8_t)(i + 1);
        _Atomic uint8_t *to = (_Atomic uint8_t *)(joint.live + page * VN_PAGE_BYTES);
        atomic_store_explicit(to, last[page], memory_order_relaxed);
    }
    return NULL;
}

static void pull_kept(void *user, size_t off, size_t len)
{
    (void)user;
    size_t page = off / VN_PAGE_BYTES, end = (off + len + VN_PAGE_BYTES - 1) / VN_PAGE_BYTES;
    wire_enc_reset(&joint.down);
    assert_true(vn_twin_encode(&joint.twin, joint.server, (struct vn_pages){0}, &page, end,
                               joint.server_codec, &joint.down, WIRE_MESSAGE_MAX) >= 0);
    joint_apply(&joint);
}

static pthread_mutex_t wire = PTHREAD_MUTEX_INITIALIZER; /* one message at a time, in order */

static int fetch_in_order(void *user, size_t off, size_t len)
{
    pthread_mutex_lock(&wire);
    int err = fetch(user, off, len);
    pthread_mutex_unlock(&wire);
    return err;
}

static void writes_that_race_with_dropping_survive(void **state)
{
    (void)state;
    static uint8_t last[PAGES];
    memset(last, 0, sizeof(last));
    joint_open(&joint, VN_TRACK_USERFAULTFD, SIZE, fetch_in_order, NULL);
    atomic_store(&stop, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, keep_writing, last), 0);
    for (int round = 1; round <= 60; round++) {
        pthread_mutex_lock(&wire);
        for (size_t at = 0; at < SIZE; at++) {
            if (at % VN_PAGE_BYTES)
                joint.server[at] = (uint8_t)(round + at % 13);
        }
        assert_int_equal(vn_region_drop(joint.region, 0, SIZE, pull_kept, NULL), 0);
        joint_push(&joint);
        pthread_mutex_unlock(&wire);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    joint_push(&joint);
    assert_memory_equal(joint.live, joint.server, SIZE);
    for (size_t page = 0; page < PAGES; page++)
        assert_int_equal(joint.live[page * VN_PAGE_BYTES], last[page]);
    joint_close(&joint);
}

/* --- when it fails -----------------------------------------------------------------------------
 */

static void a_fetch_that_fails_yields_zeros(void **state)
{
    (void)state;
    gpu_writes_everything();
    assert_int_equal(drop_all(), 0);
    atomic_store(&refuse, -ECONNRESET);
    assert_int_equal(joint.live[77], 0);
    assert_int_equal(joint.live[SIZE - 1], 0);
}

static int never(void *user, size_t off, size_t len)
{
    (void)off, (void)len;
    atomic_store((atomic_bool *)user, true);
    return 0;
}

static void *read_one(void *user)
{
    (void)user;
    return (void *)(uintptr_t)((volatile uint8_t *)joint.live)[123];
}

static void losing_the_server_wakes_whoever_waits(void **state)
{
    (void)state;
    atomic_bool asked = false;
    joint_open(&joint, VN_TRACK_USERFAULTFD, SIZE, never, &asked);
    assert_int_equal(drop_all(), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_one, NULL), 0);
    while (!atomic_load(&asked)) {
    }
    vn_region_lose(joint.region);
    void *value;
    pthread_join(thread, &value);
    assert_null(value);
    joint.live[5 * VN_PAGE_BYTES] = 1; /* and tracking goes on */
    assert_int_equal(joint_push(&joint), 1);
    joint_close(&joint);
}

static void fill_keeps_to_missing_pages_and_bounds(void **state)
{
    (void)state;
    static uint8_t data[2 * VN_PAGE_BYTES];
    memset(data, 9, sizeof(data));
    joint.live[0] = 4;
    assert_int_equal(vn_region_fill(joint.region, 0, data, sizeof(data)), 0);
    assert_int_equal(joint.live[0], 4);
    assert_int_equal(joint.live[1], 0);
    assert_int_equal(vn_region_fill(joint.region, 1, data, sizeof(data)), -EINVAL);
    assert_int_equal(vn_region_fill(joint.region, 0, data, 100), -EINVAL);
    assert_int_equal(vn_region_fill(joint.region, SIZE, data, sizeof(data)), -EINVAL);
}

static void other_methods_keep_everything(void **state)
{
    (void)state;
    for (int m = VN_TRACK_MPROTECT; m <= VN_TRACK_COMPARE; m++) {
        joint_open(&joint, (enum vn_track_method)m, SIZE, fetch, NULL);
        joint.live[5] = 1;
        assert_int_equal(drop_all(), SIZE);
        assert_int_equal(joint.live[5], 1);
        joint_close(&joint);
    }
}

int main(void)
{
    struct vn_kernel *kernel;
    assert_int_equal(vn_kernel_ref(&kernel), 0);
    bool can = kernel->serves_kernel;
    vn_kernel_unref(kernel);
    if (!can) {
        puts("the kernel offers no userfaultfd that serves system calls");
        return 77;
    }
#define WITH_JOINT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_JOINT(nothing_is_moved_until_it_is_touched),
        WITH_JOINT(a_write_to_a_dropped_page_is_merged_and_sent),
        WITH_JOINT(pages_with_writes_not_yet_sent_are_kept),
        WITH_JOINT(a_delta_for_a_dropped_page_is_left_to_the_fetch),
        WITH_JOINT(system_calls_find_dropped_pages),
        cmocka_unit_test(writes_that_race_with_dropping_survive),
        WITH_JOINT(a_fetch_that_fails_yields_zeros),
        cmocka_unit_test(losing_the_server_wakes_whoever_waits),
        WITH_JOINT(fill_keeps_to_missing_pages_and_bounds),
        cmocka_unit_test(other_methods_keep_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
