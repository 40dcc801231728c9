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
static atomic_size_t fetches;
static atomic_int refuse;     /* what fetch answers when not 0 */
static atomic_int drop_again; /* after the next fetch */
static atomic_int push_first; /* something else, before the next fetch is answered */

static const uint8_t zeros[SIZE];

/* The server's side of a fetch: what it sends becomes what it knows the client to have. */
static int fetch(void *user, size_t off, size_t len)
{
    (void)user;
    int err = atomic_load(&refuse);
    if (err)
        return err;
    atomic_fetch_add(&fetched, len);
    atomic_fetch_add(&fetches, 1);
    memcpy(joint.shadow.bytes + off, joint.server + off, len);
    if (!vn_region_is_requested(joint.region, off))
        return -EPROTO;
    if (atomic_exchange(&push_first, 0))
        err = vn_region_store(joint.region, off, zeros + off, len);
    if (err == 0)
        err = vn_region_fill(joint.region, off, joint.server + off, len);
    if (err == 0 && atomic_exchange(&drop_again, 0))
        err = vn_region_drop(joint.region, off, len);
    return err == 0 && vn_region_is_requested(joint.region, off) ? -EPROTO : err;
}

static int setup(void **state)
{
    (void)state;
    atomic_store(&fetched, 0);
    atomic_store(&fetches, 0);
    atomic_store(&refuse, 0);
    atomic_store(&drop_again, 0);
    atomic_store(&push_first, 0);
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

static void drop_all(void)
{
    assert_int_equal(vn_region_drop(joint.region, 0, SIZE), 0);
}

static void gpu_writes_everything(void)
{
    for (size_t i = 0; i < SIZE; i++)
        joint.server[i] = (uint8_t)(i / VN_PAGE_BYTES + i % 251);
}

static void nothing_is_moved_until_it_is_touched(void **state)
{
    (void)state;
    memset(joint.memory, 1, SIZE);
    joint_push(&joint);
    gpu_writes_everything();
    drop_all();
    assert_int_equal(resident_pages(joint.memory), 0);
    assert_int_equal(atomic_load(&fetched), 0);
    size_t at = 100 * VN_PAGE_BYTES + 7;
    assert_int_equal(joint.memory[at], joint.server[at]);
    assert_true(atomic_load(&fetched) > 0 && atomic_load(&fetched) <= VN_FETCH_BYTES);
    assert_memory_equal(joint.memory, joint.server, SIZE);
    assert_int_equal(atomic_load(&fetched), SIZE); /* each page once */
    assert_int_equal(joint_push(&joint), 0);       /* and none of it is the program's */
}

/* As when the program submits work that writes the page before the fetch has looked. */
static void what_is_dropped_as_soon_as_it_came_is_fetched_again(void **state)
{
    (void)state;
    gpu_writes_everything();
    drop_all();
    atomic_store(&drop_again, 1);
    assert_memory_equal(joint.memory, joint.server, SIZE);
    assert_int_equal(atomic_load(&drop_again), 0);
}

/* Orders what this thread and the pager's do with the server, by the region's lock: of a page that
 * is touched and comes only the kernel knows. */
static void order_with_pager(void)
{
    (void)vn_region_has(joint.region, 0, 1);
}

/* What the server pushes without being asked, as it does with a copy's destination. */
static void pages_that_are_pushed_are_not_fetched(void **state)
{
    enum { PUSHED = 64 << 10 };
    (void)state;
    memset(joint.memory, 1, SIZE);
    joint_push(&joint);
    joint.memory[50] = 0xfe;
    gpu_writes_everything();
    drop_all();
    memcpy(joint.shadow.bytes, joint.server, PUSHED);
    assert_int_equal(vn_region_store(joint.region, 0, joint.server, PUSHED), 0);
    assert_true(vn_region_has(joint.region, 0, PUSHED));
    assert_false(vn_region_has(joint.region, 0, PUSHED + 1));
    assert_int_equal(joint.memory[50], 0xfe);
    assert_memory_equal(joint.memory + 51, joint.server + 51, PUSHED - 51);
    assert_int_equal(atomic_load(&fetches), 0);
    assert_int_equal(joint_push(&joint), 1);
    assert_int_equal(joint.server[50], 0xfe);
    order_with_pager();
    assert_memory_equal(joint.memory, joint.server, SIZE);
    assert_int_equal(atomic_load(&fetched), SIZE - PUSHED);
}

static void a_requested_page_waits_for_its_answer(void **state)
{
    (void)state;
    gpu_writes_everything();
    drop_all();
    atomic_store(&push_first, 1);
    assert_memory_equal(joint.memory, joint.server, SIZE);
    assert_int_equal(atomic_load(&push_first), 0);
}

static void a_region_may_begin_to_drop_pages(void **state)
{
    (void)state;
    joint_close(&joint);
    joint_open(&joint, VN_TRACK_USERFAULTFD, SIZE, NULL, NULL);
    memset(joint.memory, 1, SIZE);
    joint_push(&joint);
    assert_int_equal(vn_region_drop(joint.region, 0, SIZE), -ENOTSUP);
    assert_true(vn_region_set_fetch(joint.region, fetch));
    joint.memory[50] = 0xfe;
    gpu_writes_everything();
    drop_all();
    assert_int_equal(joint_push(&joint), 1);
    order_with_pager();
    assert_memory_equal(joint.memory, joint.server, SIZE);
    assert_int_equal(joint.memory[50], 0xfe);
}

static void a_write_to_a_dropped_page_is_merged_and_sent(void **state)
{
    (void)state;
    gpu_writes_everything();
    drop_all();
    joint.memory[50] = 0xfe;
    assert_int_equal(joint_push(&joint), 1);
    assert_int_equal(joint.server[50], 0xfe);
    assert_memory_equal(joint.memory, joint.server, SIZE);
}

/* Parts that were dropped on their own are mappings of their own to the kernel. */
static void what_was_dropped_in_parts_is_dropped_as_a_whole(void **state)
{
    static const size_t parts[][2] = {{10, 7}, {17, 1}, {40, 3}, {41, 20}, {100, 28}};
    (void)state;
    memset(joint.memory, 1, SIZE);
    assert_true(joint_push(&joint) > 0);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
            size_t off = parts[i][0] * VN_PAGE_BYTES, len = parts[i][1] * VN_PAGE_BYTES;
            order_with_pager();
            memset(joint.server + off, (int)i + 7, len);
            assert_int_equal(vn_region_drop(joint.region, off, len), 0);
            assert_memory_equal(joint.memory + off, joint.server + off, len);
        }
        joint.memory[11 * VN_PAGE_BYTES] = 99;
        order_with_pager();
        gpu_writes_everything();
        joint.server[11 * VN_PAGE_BYTES] = joint.shadow.bytes[11 * VN_PAGE_BYTES];
        drop_all();
        assert_int_equal(joint_push(&joint), 1);
        order_with_pager();
        assert_memory_equal(joint.memory, joint.server, SIZE);
    }
}

static void reading_on_fetches_more_at_once(void **state)
{
    (void)state;
    gpu_writes_everything();
    drop_all();
    assert_int_equal(joint.memory[100 * VN_PAGE_BYTES], joint.server[100 * VN_PAGE_BYTES]);
    size_t first = atomic_load(&fetched);
    assert_true(first <= VN_FETCH_LEAST || first == (size_t)sysconf(_SC_PAGESIZE));
    for (size_t i = 0; i < VN_FETCH_BYTES; i += 512)
        assert_int_equal(joint.memory[i], joint.server[i]);
    /* 16, 32, 64, 128 KiB and the rest; a round trip for each 16 KiB would be sixteen. */
    assert_true(atomic_load(&fetches) <= 1 + 5);
    size_t before = atomic_load(&fetches);
    for (size_t i = SIZE; i > SIZE - 4 * VN_FETCH_LEAST; i -= 512)
        assert_int_equal(joint.memory[i - 1], joint.server[i - 1]);
    assert_true(atomic_load(&fetches) - before <= 4); /* backwards, too, not page by page */
}

/* The program's bytes and the GPU's in one page, which is dropped before they were sent. */
static void save_two_pages(void)
{
    memset(joint.memory, 3, SIZE);
    joint_push(&joint);
    gpu_writes_everything();
    joint.memory[0] = 0xaa;                 /* not collected */
    joint.memory[8 * VN_PAGE_BYTES] = 0xbb; /* collected, not sent */
    assert_int_equal(vn_region_collect(joint.region, 8 * VN_PAGE_BYTES, 1), 0);
    drop_all();
    assert_true(vn_region_has_saved_writes(joint.region));
    assert_int_equal(resident_pages(joint.memory), 0);
}

static void check_saved_pages(void)
{
    assert_false(vn_region_has_saved_writes(joint.region));
    assert_int_equal(joint.server[0], 0xaa);
    assert_int_equal(joint.server[8 * VN_PAGE_BYTES], 0xbb);
    assert_memory_equal(joint.memory, joint.server, SIZE);
    assert_int_equal(joint_push(&joint), 0);
}

static void writes_not_yet_sent_are_sent_from_dropped_pages(void **state)
{
    (void)state;
    save_two_pages();
    assert_int_equal(joint_push(&joint), 2);
    assert_int_equal(atomic_load(&fetched), 0);
    check_saved_pages();
}

static void writes_not_yet_sent_are_laid_over_what_is_fetched(void **state)
{
    (void)state;
    save_two_pages();
    assert_int_equal(joint.memory[0], 0xaa);
    assert_int_equal(joint.memory[1], joint.server[1]);
    assert_int_equal(joint.memory[8 * VN_PAGE_BYTES], 0xbb);
    assert_int_equal(joint_push(&joint), 2);
    check_saved_pages();
}

static void a_dropped_page_is_sent_in_as_many_messages_as_it_takes(void **state)
{
    (void)state;
    struct wire_enc e;
    size_t changes, sent = 0;
    int more = 1;
    memset(joint.memory, 0x77, SIZE);
    drop_all();
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    while (more == 1) {
        wire_enc_reset(&e);
        more = vn_region_encode(joint.region, joint.client_codec, &e, VN_CHANGE_WIRE_MAX + 1,
                                VN_SERVER_WRITES, &changes);
        assert_int_equal(changes, 1);
        sent += changes;
        assert_int_equal(vn_shadow_apply(&joint.shadow, joint.server, joint.server_codec,
                                         wire_enc_data(&e), wire_enc_len(&e)),
                         0);
    }
    wire_enc_fini(&e);
    assert_int_equal(more, 0);
    assert_int_equal(sent, PAGES);
    assert_false(vn_region_has_saved_writes(joint.region));
    assert_memory_equal(joint.memory, joint.server, SIZE);
}

static void a_delta_for_a_dropped_page_is_left_to_the_fetch(void **state)
{
    (void)state;
    gpu_writes_everything();
    drop_all();
    joint_pull(&joint);
    assert_int_equal(resident_pages(joint.memory), 0);
    assert_memory_equal(joint.memory, joint.server, SIZE);
}

static int fill_with_sevens(void *user, size_t off, size_t len)
{
    static uint8_t sevens[VN_FETCH_BYTES];
    memset(sevens, 7, sizeof(sevens));
    return vn_region_fill(*(struct vn_region **)user, off, sevens, len);
}

/* The kernel puts what fits into no hole right below the last mapping, and makes one of two that
 * are alike: the place where dropped pages are looked at must not become one with the region. */
static void pages_never_touched_are_fetched_wherever_the_region_is(void **state)
{
    (void)state;
    enum { REGIONS = 64, BYTES = 64 << 10 }; /* enough that holes are filled up */
    static struct vn_region *regions[REGIONS];
    drop_all(); /* starts the pager's thread, whose stack would be the last mapping */
    for (size_t i = 0; i < REGIONS; i++) {
        struct vn_region_params params = {.size = BYTES,
                                          .method = VN_TRACK_USERFAULTFD,
                                          .fetch = fill_with_sevens,
                                          .user = &regions[i]};
        assert_int_equal(vn_region_create(&params, &regions[i]), 0);
        assert_int_equal(vn_region_drop(regions[i], 0, BYTES), 0);
        const volatile uint8_t *memory = vn_region_memory(regions[i]);
        assert_int_equal(memory[0], 7);
        assert_int_equal(memory[BYTES - 1], 7);
    }
    for (size_t i = 0; i < REGIONS; i++)
        vn_region_destroy(regions[i]);
}

static void system_calls_find_dropped_pages(void **state)
{
    (void)state;
    gpu_writes_everything();
    drop_all();
    int fds[2];
    uint8_t got[3000], sent[3000];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], joint.memory + 10, sizeof(got)), sizeof(got));
    assert_int_equal(read(fds[0], got, sizeof(got)), sizeof(got));
    assert_memory_equal(got, joint.server + 10, sizeof(got));
    memset(sent, 0x5c, sizeof(sent));
    assert_int_equal(write(fds[1], sent, sizeof(sent)), sizeof(sent));
    assert_int_equal(read(fds[0], joint.memory + 200 * VN_PAGE_BYTES, sizeof(sent)), sizeof(sent));
    assert_int_equal(joint_push(&joint), 1);
    assert_memory_equal(joint.memory, joint.server, SIZE);
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
        _Atomic uint8_t *to = (_Atomic uint8_t *)(joint.memory + page * VN_PAGE_BYTES);
        atomic_store_explicit(to, last[page], memory_order_relaxed);
    }
    return NULL;
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
        drop_all();
        if (round % 2)
            joint_push(&joint);
        pthread_mutex_unlock(&wire);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    joint_push(&joint);
    assert_memory_equal(joint.memory, joint.server, SIZE);
    for (size_t page = 0; page < PAGES; page++)
        assert_int_equal(joint.memory[page * VN_PAGE_BYTES], last[page]);
    joint_close(&joint);
}

/* --- when it fails -----------------------------------------------------------------------------
 */

static void a_fetch_that_fails_yields_zeros(void **state)
{
    (void)state;
    gpu_writes_everything();
    drop_all();
    atomic_store(&refuse, -ECONNRESET);
    assert_int_equal(joint.memory[77], 0);
    assert_int_equal(joint.memory[SIZE - 1], 0);
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
    return (void *)(uintptr_t)((volatile uint8_t *)joint.memory)[123];
}

/* A page is dropped with a write in it, asked for, and the answer is made before the write comes to
 * the server: it must not undo the write. */
static void ask_then_answer(void (*send)(void))
{
    static uint8_t answer[VN_FETCH_LEAST > 65536 ? VN_FETCH_LEAST : 65536];
    atomic_bool requested = false;
    joint_open(&joint, VN_TRACK_USERFAULTFD, SIZE, never, &requested);
    gpu_writes_everything();
    joint.memory[5] = 0xaa;
    assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
    drop_all();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_one, NULL), 0);
    while (!atomic_load(&requested)) {
    }
    memcpy(answer, joint.server, sizeof(answer));
    send();
    assert_true(vn_region_has_saved_writes(joint.region));
    size_t host = (size_t)sysconf(_SC_PAGESIZE);
    size_t len = host > VN_FETCH_LEAST ? host : VN_FETCH_LEAST;
    assert_int_equal(vn_region_fill(joint.region, 0, answer, len), 0);
    void *value;
    pthread_join(thread, &value);
    assert_int_equal((uintptr_t)value, joint.server[123]);
    assert_int_equal(joint.memory[5], 0xaa);
    assert_false(vn_region_has_saved_writes(joint.region));
    assert_int_equal(joint_push(&joint), 0);
    assert_int_equal(joint.server[5], 0xaa);
    assert_memory_equal(joint.memory, joint.server, len);
    joint_close(&joint);
}

static void send_delta(void)
{
    assert_int_equal(joint_push(&joint), 1);
}

static void writes_sent_after_a_request_are_laid_over_its_answer(void **state)
{
    (void)state;
    ask_then_answer(send_delta);
}

static void losing_the_server_wakes_whoever_waits(void **state)
{
    (void)state;
    atomic_bool requested = false;
    joint_open(&joint, VN_TRACK_USERFAULTFD, SIZE, never, &requested);
    drop_all();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_one, NULL), 0);
    while (!atomic_load(&requested)) {
    }
    vn_region_lose(joint.region);
    void *value;
    pthread_join(thread, &value);
    assert_null(value);
    joint.memory[5 * VN_PAGE_BYTES] = 1; /* and tracking goes on */
    assert_int_equal(joint_push(&joint), 1);
    joint_close(&joint);
}

static void fill_keeps_to_missing_pages_and_bounds(void **state)
{
    (void)state;
    static uint8_t data[2 * VN_PAGE_BYTES];
    memset(data, 9, sizeof(data));
    joint.memory[0] = 4;
    assert_int_equal(vn_region_fill(joint.region, 0, data, sizeof(data)), 0);
    assert_int_equal(joint.memory[0], 4);
    assert_int_equal(joint.memory[1], 0);
    assert_int_equal(vn_region_fill(joint.region, 1, data, sizeof(data)), -EINVAL);
    assert_int_equal(vn_region_fill(joint.region, 0, data, 100), -EINVAL);
    assert_int_equal(vn_region_fill(joint.region, SIZE, data, sizeof(data)), -EINVAL);
}

static void other_methods_drop_nothing(void **state)
{
    (void)state;
    for (int m = VN_TRACK_MPROTECT; m <= VN_TRACK_COMPARE; m++) {
        joint_open(&joint, (enum vn_track_method)m, SIZE, fetch, NULL);
        joint.memory[5] = 1;
        assert_false(vn_region_can_drop(joint.region));
        assert_int_equal(vn_region_drop(joint.region, 0, SIZE), -ENOTSUP);
        assert_int_equal(joint.memory[5], 1);
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
        WITH_JOINT(what_is_dropped_as_soon_as_it_came_is_fetched_again),
        WITH_JOINT(pages_that_are_pushed_are_not_fetched),
        WITH_JOINT(a_requested_page_waits_for_its_answer),
        WITH_JOINT(a_region_may_begin_to_drop_pages),
        WITH_JOINT(a_write_to_a_dropped_page_is_merged_and_sent),
        WITH_JOINT(what_was_dropped_in_parts_is_dropped_as_a_whole),
        WITH_JOINT(reading_on_fetches_more_at_once),
        WITH_JOINT(writes_not_yet_sent_are_sent_from_dropped_pages),
        WITH_JOINT(writes_not_yet_sent_are_laid_over_what_is_fetched),
        WITH_JOINT(a_dropped_page_is_sent_in_as_many_messages_as_it_takes),
        cmocka_unit_test(writes_sent_after_a_request_are_laid_over_its_answer),
        WITH_JOINT(a_delta_for_a_dropped_page_is_left_to_the_fetch),
        WITH_JOINT(pages_never_touched_are_fetched_wherever_the_region_is),
        WITH_JOINT(system_calls_find_dropped_pages),
        cmocka_unit_test(writes_that_race_with_dropping_survive),
        WITH_JOINT(a_fetch_that_fails_yields_zeros),
        cmocka_unit_test(losing_the_server_wakes_whoever_waits),
        WITH_JOINT(fill_keeps_to_missing_pages_and_bounds),
        cmocka_unit_test(other_methods_drop_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
