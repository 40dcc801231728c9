/* Readbacks into the same pages, again and again: what the program wrote there before is not sent,
 * and nothing else is lost by it. */
#include "unit.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "joint.h"
#include "wire/enc.h"

enum {
    PAGES = 192,
    SIZE = PAGES * VN_PAGE_BYTES,
    FIRST = 24, /* of the readback */
    COUNT = 100,
    END = FIRST + COUNT,
    PIECE = 16, /* pages of one message */
};

static enum vn_track_method method;
static struct joint joint;
static struct hw_rng rng;
static uint8_t model[SIZE]; /* what each byte was written last, by either side */

static int setup(void **state)
{
    (void)state;
    hw_rng_seed(&rng, 1);
    joint_open(&joint, method, SIZE, NULL, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    joint_close(&joint);
    return 0;
}

static void put_noise(uint8_t *memory, size_t first, size_t count)
{
    for (size_t at = first * VN_PAGE_BYTES; at < (first + count) * VN_PAGE_BYTES; at += 8) {
        uint64_t word = hw_rng_u64(&rng);
        memcpy(memory + at, &word, 8);
    }
}

static bool may_await(void)
{
    return vn_region_may_await(joint.region, FIRST * VN_PAGE_BYTES, COUNT * VN_PAGE_BYTES) ==
           COUNT * VN_PAGE_BYTES;
}

/* Sends what the program wrote beside the readback. */
static size_t push_beside(void)
{
    size_t changes = 0;
    wire_enc_reset(&joint.up);
    assert_int_equal(vn_region_collect(joint.region, 0, FIRST * VN_PAGE_BYTES), 0);
    assert_int_equal(
        vn_region_collect(joint.region, END * VN_PAGE_BYTES, SIZE - END * VN_PAGE_BYTES), 0);
    assert_int_equal(vn_region_encode(joint.region, joint.client_codec, &joint.up, WIRE_MESSAGE_MAX,
                                      VN_SERVER_WRITES, &changes),
                     0);
    joint_apply_server(&joint);
    return changes;
}

/* A batch that is to fill the pages is submitted; whether they are awaited. */
static bool submit(void)
{
    bool awaited = may_await();
    if (!awaited)
        assert_int_equal(
            vn_region_expect(joint.region, FIRST * VN_PAGE_BYTES, COUNT * VN_PAGE_BYTES, true), 0);
    (void)(awaited ? push_beside() : joint_push(&joint));
    if (awaited)
        vn_region_await(joint.region, FIRST * VN_PAGE_BYTES, COUNT * VN_PAGE_BYTES);
    else
        vn_shadow_make(&joint.shadow, joint.server, FIRST, END);
    return awaited;
}

/* As from a socket: a system call writes the memory. */
static void receive(uint8_t *to, const uint8_t *from, size_t len)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    for (size_t at = 0; at < len; at += VN_PAGE_BYTES) {
        assert_int_equal(write(fds[1], from + at, VN_PAGE_BYTES), VN_PAGE_BYTES);
        assert_int_equal(read(fds[0], to + at, VN_PAGE_BYTES), VN_PAGE_BYTES);
    }
    close(fds[0]);
    close(fds[1]);
}

/* One message: received into the memory itself where that may be. */
static void store(size_t off, size_t len, bool places)
{
    uint8_t *place = places ? vn_region_place(joint.region, off, len) : NULL;
    if (place)
        receive(place, joint.server + off, len);
    assert_int_equal(vn_region_store(joint.region, off, place ? place : joint.server + off, len),
                     0);
    if (place)
        vn_region_leave(joint.region);
}

/* The server sends all of the pages, as they are now. */
static void send_pages(void)
{
    bool places = hw_rng_u64(&rng) % 2;
    for (size_t page = FIRST, n; page < END; page += n) {
        size_t off = page * VN_PAGE_BYTES;
        n = END - page < PIECE ? END - page : PIECE;
        vn_shadow_take_whole(&joint.shadow, joint.server, off, n * VN_PAGE_BYTES);
        store(off, n * VN_PAGE_BYTES, places);
    }
}

static void send_delta(bool awaited)
{
    struct vn_pages filled = {FIRST, END, awaited};
    size_t page = FIRST;
    wire_enc_reset(&joint.down);
    int changes = vn_shadow_encode(&joint.shadow, joint.server, filled, &page, END,
                                   joint.server_codec, &joint.down, WIRE_MESSAGE_MAX);
    assert_int_equal(changes, COUNT);
    joint_apply(&joint);
}

/* What the batch has filled, in messages of pages or in a delta; and that it is done. */
static void report(bool awaited, bool delta)
{
    if (delta)
        send_delta(awaited);
    else
        send_pages();
    if (!delta) /* its memory stands for the shadow copy */
        assert_true(vn_shadow_omit(&joint.shadow, FIRST, COUNT));
    if (awaited)
        vn_region_arrived(joint.region, FIRST * VN_PAGE_BYTES, COUNT * VN_PAGE_BYTES);
}

static bool read_back(void)
{
    bool awaited = submit();
    put_noise(joint.server, FIRST, COUNT);
    report(awaited, false);
    assert_memory_equal(joint.memory + FIRST * VN_PAGE_BYTES, joint.server + FIRST * VN_PAGE_BYTES,
                        COUNT * VN_PAGE_BYTES);
    return awaited;
}

static void the_second_of_two_is_awaited(void **state)
{
    (void)state;
    assert_false(may_await());
    assert_false(read_back());
    assert_true(read_back());
    assert_true(read_back());
    joint.memory[0] = 1;
    assert_true(read_back());
    assert_int_equal(joint.server[0], 1);
    assert_false(vn_region_may_await(joint.region, 0, VN_WHOLE_MIN)); /* of those none came */
}

static void what_the_program_left_there_is_not_sent(void **state)
{
    (void)state;
    (void)read_back();
    put_noise(joint.memory, FIRST, COUNT);
    assert_true(submit());
    put_noise(joint.server, FIRST, COUNT); /* the device is quick */
    memcpy(model, joint.server, SIZE);
    assert_int_equal(joint_push(&joint), 0); /* for a batch that reads the pages then */
    assert_memory_equal(joint.server, model, SIZE);
    report(true, false);
    assert_memory_equal(joint.memory, model, SIZE);
    assert_int_equal(joint_push(&joint), 0); /* looked at meanwhile: it has its shadow copies */
    joint.memory[FIRST * VN_PAGE_BYTES + 7] ^= 1;
    assert_int_equal(joint_push(&joint), 1);
    assert_memory_equal(joint.memory, joint.server, SIZE);
}

/* Once: who looks there needs shadow copies. */
static void what_the_program_may_have_written_since_is_sent_as_a_whole(void **state)
{
    (void)state;
    (void)read_back();
    assert_true(read_back());
    joint.memory[(FIRST + 5) * VN_PAGE_BYTES] ^= 1;
    assert_int_equal(joint_push(&joint), COUNT);
    assert_memory_equal(joint.memory, joint.server, SIZE);
    for (int i = 0; i < 3; i++) {
        assert_false(read_back());
        assert_int_equal(joint_push(&joint), 0);
    }
}

/* The last page of a shorter readback is compared: what it holds behind its end is the program's.
 */
static void a_few_pages_that_are_looked_at_change_nothing(void **state)
{
    (void)state;
    (void)read_back();
    assert_true(read_back());
    joint.memory[(FIRST + 7) * VN_PAGE_BYTES] ^= 1;
    assert_int_equal(vn_region_expect(joint.region, (FIRST + 7) * VN_PAGE_BYTES, 10, false), 0);
    assert_int_equal(vn_region_collect(joint.region, (FIRST + 7) * VN_PAGE_BYTES, 10), 0);
    size_t changes = 0;
    wire_enc_reset(&joint.up);
    assert_int_equal(vn_region_encode(joint.region, joint.client_codec, &joint.up, WIRE_MESSAGE_MAX,
                                      VN_SERVER_WRITES, &changes),
                     0);
    assert_int_equal(changes, 1);
    joint_apply_server(&joint);
    assert_memory_equal(joint.memory, joint.server, SIZE);
    assert_true(read_back());
}

static void a_device_that_writes_a_part_finds_shadow_copies(void **state)
{
    (void)state;
    (void)read_back();
    assert_true(read_back());
    assert_int_equal(vn_region_expect(joint.region, FIRST * VN_PAGE_BYTES, VN_PAGE_BYTES, false),
                     0);
    (void)push_beside();
    vn_shadow_make(&joint.shadow, joint.server, FIRST, FIRST + 1);
    joint.server[FIRST * VN_PAGE_BYTES + 1] ^= 1;
    joint.memory[FIRST * VN_PAGE_BYTES + 2] ^= 1;
    memcpy(model, joint.memory, SIZE);
    model[FIRST * VN_PAGE_BYTES + 1] ^= 1;
    assert_int_equal(joint_encode_server(&joint), 1);
    (void)joint_push(&joint);
    joint_apply(&joint);
    assert_memory_equal(joint.memory, model, SIZE);
    assert_memory_equal(joint.server, model, SIZE);
}

/* The same bytes again: the server had better compare. */
static void what_comes_unchanged_is_compared_the_next_time(void **state)
{
    (void)state;
    (void)read_back();
    assert_true(submit());
    report(true, true);
    assert_false(may_await());
    assert_int_equal(joint_push(&joint), 0);
}

/* The host saw an event and looks, and the batch goes on. */
static void they_may_come_before_the_batch_is_done(void **state)
{
    (void)state;
    (void)read_back();
    assert_true(submit());
    for (int i = 0; i < 2; i++) {
        put_noise(joint.server, FIRST, COUNT);
        send_pages();
        assert_memory_equal(joint.memory, joint.server, SIZE);
        put_noise(joint.server, FIRST, COUNT);
        assert_int_equal(joint_push(&joint), 0);
    }
    report(true, false);
    assert_memory_equal(joint.memory, joint.server, SIZE);
    assert_int_equal(joint_push(&joint), 0);
}

/* Two batches under way fill the pages: the second is compared. */
static void no_page_is_awaited_twice(void **state)
{
    (void)state;
    (void)read_back();
    assert_true(submit());
    assert_false(submit());
    put_noise(joint.server, FIRST, COUNT);
    report(true, false);
    assert_int_equal(joint_push(&joint), 0);
    vn_shadow_make(&joint.shadow, joint.server, FIRST, END);
    joint.server[FIRST * VN_PAGE_BYTES] ^= 1;
    assert_int_equal(joint_pull(&joint), 1);
    assert_memory_equal(joint.memory, joint.server, SIZE);
    assert_int_equal(joint_push(&joint), 0);
}

/* A second batch writes a part of what the first has filled, and both are reported at once. */
static void what_a_later_batch_writes_there_is_stored(void **state)
{
    (void)state;
    (void)read_back();
    assert_true(submit());
    assert_int_equal(vn_region_expect(joint.region, FIRST * VN_PAGE_BYTES, VN_PAGE_BYTES, false),
                     0);
    assert_int_equal(joint_push(&joint), 0);
    put_noise(joint.server, FIRST, COUNT);
    send_pages();
    joint.server[FIRST * VN_PAGE_BYTES + 3] ^= 1;
    assert_int_equal(joint_pull(&joint), 1);
    vn_region_arrived(joint.region, FIRST * VN_PAGE_BYTES, COUNT * VN_PAGE_BYTES);
    assert_memory_equal(joint.memory, joint.server, SIZE);
    assert_int_equal(joint_push(&joint), 0);
}

static int no_fetch(void *user, size_t off, size_t len)
{
    (void)user, (void)off, (void)len;
    return -EIO;
}

static void memory_with_awaited_pages_is_not_dropped(void **state)
{
    struct vn_region_params params = {.size = SIZE, .method = method};
    struct vn_region *other;
    (void)state;
    assert_int_equal(vn_region_create(&params, &other), 0);
    bool can = vn_region_set_fetch(other, no_fetch);
    vn_region_destroy(other);
    (void)read_back();
    assert_true(submit());
    assert_false(vn_region_set_fetch(joint.region, no_fetch));
    put_noise(joint.server, FIRST, COUNT);
    report(true, false);
    assert_int_equal(vn_region_set_fetch(joint.region, no_fetch), can);
    assert_int_equal(may_await(), !can);
}

/* Their first pages came the last time; then all do. */
static void a_longer_one_is_awaited_as_far_as_the_last_one_came(void **state)
{
    enum { HALF = COUNT / 2, MORE = COUNT + 30 };
    (void)state;
    for (int i = 0; i < 3; i++)
        (void)read_back();
    assert_int_equal(vn_region_may_await(joint.region, FIRST * VN_PAGE_BYTES, HALF * VN_PAGE_BYTES),
                     HALF * VN_PAGE_BYTES);
    assert_int_equal(vn_region_may_await(joint.region, FIRST * VN_PAGE_BYTES,
                                         (END + 60 - FIRST) * VN_PAGE_BYTES),
                     COUNT * VN_PAGE_BYTES);
    assert_int_equal(vn_region_may_await(joint.region, (FIRST - 1) * VN_PAGE_BYTES,
                                         (END + 60 - FIRST) * VN_PAGE_BYTES),
                     0);
    /* One that is compared for its length needs its shadow copies once. */
    assert_int_equal(
        vn_region_expect(joint.region, FIRST * VN_PAGE_BYTES, MORE * VN_PAGE_BYTES, true), 0);
    assert_int_equal(joint_push(&joint), COUNT);
    vn_shadow_make(&joint.shadow, joint.server, FIRST, FIRST + MORE);
    put_noise(joint.server, FIRST, MORE);
    assert_int_equal(vn_region_store(joint.region, FIRST * VN_PAGE_BYTES,
                                     joint.server + FIRST * VN_PAGE_BYTES, MORE * VN_PAGE_BYTES),
                     0);
    assert_int_equal(vn_region_may_await(joint.region, FIRST * VN_PAGE_BYTES, MORE * VN_PAGE_BYTES),
                     MORE * VN_PAGE_BYTES);
}

/* --- received in place --- */

static uint8_t *place(size_t page, size_t count)
{
    return vn_region_place(joint.region, page * VN_PAGE_BYTES, count * VN_PAGE_BYTES);
}

static void only_awaited_pages_are_received_in_place(void **state)
{
    (void)state;
    assert_null(place(FIRST, PIECE));
    (void)read_back();
    assert_null(place(FIRST, PIECE));
    assert_true(submit());
    assert_null(place(FIRST - 1, PIECE));
    assert_null(place(END - 1, 2));
    assert_null(place(PAGES, 1));
    assert_null(vn_region_place(joint.region, FIRST * VN_PAGE_BYTES + 1, VN_PAGE_BYTES));
    assert_null(vn_region_place(joint.region, FIRST * VN_PAGE_BYTES, VN_PAGE_BYTES + 1));
    assert_null(vn_region_place(joint.region, UINT64_MAX - VN_PAGE_BYTES + 1, VN_PAGE_BYTES));
    assert_ptr_equal(place(FIRST, COUNT), joint.memory + FIRST * VN_PAGE_BYTES);
    vn_region_leave(joint.region);
    put_noise(joint.server, FIRST, COUNT);
    report(true, false);
    assert_null(place(FIRST, COUNT));
}

/* Whatever others look for meanwhile, a system call may write there. */
static void a_place_stays_writable(void **state)
{
    (void)state;
    (void)read_back();
    joint_idle(&joint);
    (void)read_back();
    (void)read_back();
    assert_true(submit());
    uint8_t *at = place(FIRST, COUNT);
    assert_non_null(at);
    put_noise(joint.server, FIRST, COUNT);
    joint_idle(&joint);
    receive(at, joint.server + FIRST * VN_PAGE_BYTES, COUNT * VN_PAGE_BYTES);
    assert_int_equal(
        vn_region_store(joint.region, FIRST * VN_PAGE_BYTES, at, COUNT * VN_PAGE_BYTES), 0);
    vn_region_leave(joint.region);
    report(true, false);
    assert_memory_equal(joint.memory, joint.server, SIZE);
    assert_int_equal(joint_push(&joint), 0);
}

static void a_place_outlives_its_region(void **state)
{
    struct vn_region_params params = {.size = SIZE, .method = method};
    (void)state;
    (void)read_back();
    assert_true(submit());
    uint8_t *at = place(FIRST, COUNT);
    struct vn_region *old = joint.region;
    vn_region_destroy(old);
    memset(at, 1, COUNT * VN_PAGE_BYTES);
    vn_region_leave(old);
    assert_int_equal(vn_region_create(&params, &joint.region), 0);
}

static void what_is_placed_unchanged_is_compared_the_next_time(void **state)
{
    (void)state;
    (void)read_back();
    assert_true(submit());
    store(FIRST * VN_PAGE_BYTES, COUNT * VN_PAGE_BYTES, true);
    vn_region_arrived(joint.region, FIRST * VN_PAGE_BYTES, COUNT * VN_PAGE_BYTES);
    assert_false(may_await());
    assert_int_equal(joint_push(&joint), 0);
}

/* --- all of it in random order --- */

static size_t below(size_t n)
{
    return (size_t)hw_rng_u64(&rng) % n;
}

/* Bytes, but for those that a batch under way fills. */
static void host_writes(bool under_way)
{
    for (size_t i = 0, count = below(300); i < count; i++) {
        size_t at = below(SIZE);
        if (!under_way || at / VN_PAGE_BYTES < FIRST || at / VN_PAGE_BYTES >= END)
            joint.memory[at] = model[at] = (uint8_t)hw_rng_u64(&rng);
    }
}

static void play(size_t *awaited_count)
{
    bool under_way = false, filled = false, awaited = false;
    for (int step = 0; step < 60; step++) {
        switch (below(5)) {
        case 0:
            host_writes(under_way);
            break;
        case 1:
            if (below(4) == 0)
                (void)joint_push(&joint);
            break;
        case 2:
            if (!under_way) {
                awaited = submit();
                *awaited_count += awaited;
                under_way = true;
                filled = false;
            }
            break;
        case 3:
            if (under_way && !filled) {
                put_noise(joint.server, FIRST, COUNT);
                memcpy(model + FIRST * VN_PAGE_BYTES, joint.server + FIRST * VN_PAGE_BYTES,
                       COUNT * VN_PAGE_BYTES);
                filled = true;
            }
            break;
        default:
            if (filled && under_way) {
                report(awaited, below(4) == 0);
                under_way = false;
                assert_memory_equal(joint.memory, model, SIZE);
            }
        }
    }
    if (under_way)
        return;
    (void)joint_push(&joint);
    assert_memory_equal(joint.server, model, SIZE);
}

static void whatever_else_happens_nothing_is_lost(void **state)
{
    enum { ROUNDS = 30 };
    size_t awaited = 0;
    (void)state;
    hw_rng_seed(&rng, 7);
    for (int i = 0; i < ROUNDS; i++) {
        joint_open(&joint, method, SIZE, NULL, NULL);
        memset(model, 0, sizeof(model));
        play(&awaited);
        joint_close(&joint);
    }
    assert_true(awaited > ROUNDS);
}

int main(int argc, char **argv)
{
    method = joint_method(argc, argv);
#define WITH_JOINT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_JOINT(the_second_of_two_is_awaited),
        WITH_JOINT(what_the_program_left_there_is_not_sent),
        WITH_JOINT(what_the_program_may_have_written_since_is_sent_as_a_whole),
        WITH_JOINT(a_few_pages_that_are_looked_at_change_nothing),
        WITH_JOINT(a_device_that_writes_a_part_finds_shadow_copies),
        WITH_JOINT(what_comes_unchanged_is_compared_the_next_time),
        WITH_JOINT(they_may_come_before_the_batch_is_done),
        WITH_JOINT(no_page_is_awaited_twice),
        WITH_JOINT(what_a_later_batch_writes_there_is_stored),
        WITH_JOINT(memory_with_awaited_pages_is_not_dropped),
        WITH_JOINT(a_longer_one_is_awaited_as_far_as_the_last_one_came),
        WITH_JOINT(only_awaited_pages_are_received_in_place),
        WITH_JOINT(a_place_stays_writable),
        WITH_JOINT(a_place_outlives_its_region),
        WITH_JOINT(what_is_placed_unchanged_is_compared_the_next_time),
        cmocka_unit_test(whatever_else_happens_nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
