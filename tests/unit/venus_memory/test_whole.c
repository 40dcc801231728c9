/* Pages that were written as a whole: they are taken as they are, and nothing is lost by it. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "joint.h"

enum {
    PAGES = 192,
    SIZE = PAGES * VN_PAGE_BYTES,
    LEAST = VN_WHOLE_MIN / VN_PAGE_BYTES,
    MOST = 2 * VN_WHOLE_MIN,
    COUNT_EVERY = VN_PAGE_BYTES / 2,
    RACE_MS = 300,
};

static enum vn_track_method method;
static struct joint joint;
static struct hw_rng rng;
static bool server_is_cached; /* of the group under way: its memory stands for the shadow copy */

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

static void put_noise(size_t first, size_t count)
{
    for (size_t at = first * VN_PAGE_BYTES; at < (first + count) * VN_PAGE_BYTES; at += 8) {
        uint64_t word = hw_rng_u64(&rng);
        memcpy(joint.memory + at, &word, 8);
    }
}

static _Atomic uint64_t *word_at(uint8_t *base, size_t at)
{
    return (_Atomic uint64_t *)(void *)(base + at);
}

static void store(size_t off, const uint8_t *bytes, size_t len)
{
    assert_true(vn_shadow_store_begin(&joint.shadow, joint.server, off, len));
    vn_shadow_store_copy(&joint.shadow, joint.server, off, bytes, len, server_is_cached);
    vn_shadow_store_end(&joint.shadow, off, len, server_is_cached);
}

/* What the server gets of bytes that may be the program's own: each word is read once. */
static void send_whole(size_t off, const uint8_t *bytes, size_t len)
{
    static uint64_t message[MOST / 8];
    assert_true(len >= VN_WHOLE_MIN && len <= MOST);
    assert_int_equal(len % VN_PAGE_BYTES, 0);
    for (size_t at = 0; at < len; at += 8)
        message[at / 8] =
            atomic_load_explicit(word_at((uint8_t *)(uintptr_t)bytes, at), memory_order_relaxed);
    store(off, (const uint8_t *)message, len);
}

/* Collects and stores what is whole at the server; how many pages, and of those how many came from
 * the mapping itself. */
static size_t push_whole_and(size_t *unshadowed)
{
    const uint8_t *bytes;
    size_t off = 0, len, pages = 0;
    *unshadowed = 0;
    assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
    for (; vn_region_take_whole(joint.region, MOST, &off, &len, &bytes); off += len) {
        send_whole(off, bytes, len);
        pages += len / VN_PAGE_BYTES;
        *unshadowed += bytes == joint.memory + off ? len / VN_PAGE_BYTES : 0;
    }
    return pages;
}

static size_t push_whole(void)
{
    size_t unshadowed;
    return push_whole_and(&unshadowed);
}

static void assert_same(void)
{
    assert_memory_equal(joint.memory, joint.server, joint.size);
    assert_int_equal(joint_encode_server(&joint), 0); /* its shadow copy is the same, too */
}

static void pages_written_as_a_whole_travel_as_they_are(void **state)
{
    (void)state;
    put_noise(3, LEAST);
    put_noise(100, 4 * LEAST + 5);
    assert_int_equal(push_whole(), LEAST + 4 * LEAST + 5); /* no rest that is short */
    assert_same();
    assert_int_equal(joint_push(&joint), 0);
    joint.memory[5 * VN_PAGE_BYTES] ^= 1;
    assert_int_equal(joint_push(&joint), 1);
    assert_same();
}

static void what_is_short_or_partial_or_zero_is_left_to_deltas(void **state)
{
    (void)state;
    put_noise(0, LEAST - 1);
    for (size_t page = 50; page < 50 + 2 * LEAST; page++)
        joint.memory[page * VN_PAGE_BYTES + 17] = 1;
    assert_int_equal(push_whole(), 0);
    assert_int_equal(joint_push(&joint), LEAST - 1 + 2 * LEAST);
    assert_same();
    put_noise(100, 2 * LEAST);
    assert_int_equal(push_whole(), 2 * LEAST);
    memset(joint.memory + 100 * VN_PAGE_BYTES, 0, 2 * LEAST * VN_PAGE_BYTES);
    assert_int_equal(push_whole(), 0);
    assert_int_equal(joint_push(&joint), 2 * LEAST);
    assert_same();
}

/* Looking for them would take longer than sending them. */
static void zeros_for_a_near_server_go_as_a_whole(void **state)
{
    (void)state;
    struct vn_region_params params = {.size = SIZE, .near = true};
    struct vn_region *region;
    size_t off = 0, len;
    const uint8_t *bytes;
    assert_int_equal(vn_region_create(&params, &region), 0);
    for (int zeros = 0; zeros < 2; zeros++) {
        memset(vn_region_memory(region), zeros ? 0 : 0x5a, SIZE);
        assert_int_equal(vn_region_collect(region, 0, SIZE_MAX), 0);
        off = 0;
        assert_true(vn_region_take_whole(region, SIZE, &off, &len, &bytes));
        assert_int_equal(len, SIZE / VN_PAGE_BYTES * VN_PAGE_BYTES);
        assert_int_equal(bytes[len - 1], zeros ? 0 : 0x5a);
    }
    vn_region_destroy(region);
}

static void a_page_that_is_not_whole_parts_a_run(void **state)
{
    (void)state;
    put_noise(0, 2 * LEAST + 1);
    memset(joint.memory + LEAST * VN_PAGE_BYTES, 0, VN_PAGE_BYTES);
    joint.memory[LEAST * VN_PAGE_BYTES] = 1;
    assert_int_equal(push_whole(), 2 * LEAST);
    assert_int_equal(joint_push(&joint), 1);
    assert_same();
}

static void a_write_after_they_were_taken_is_found(void **state)
{
    const uint8_t *bytes;
    size_t off = 0, len;
    (void)state;
    put_noise(0, LEAST);
    assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
    assert_true(vn_region_take_whole(joint.region, MOST, &off, &len, &bytes));
    joint.memory[VN_PAGE_BYTES + 9] ^= 1; /* before they are sent */
    store(off, bytes, len);
    assert_int_not_equal(joint.server[VN_PAGE_BYTES + 9], joint.memory[VN_PAGE_BYTES + 9]);
    assert_int_equal(joint_push(&joint), 1);
    assert_same();
}

static void memory_filled_again_and_again_is_followed(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        put_noise(0, PAGES);
        assert_int_equal(push_whole(), PAGES);
        assert_same();
    }
}

static void the_end_within_a_page_is_left_to_deltas(void **state)
{
    enum { TAIL = 100 };
    (void)state;
    joint_close(&joint);
    joint_open(&joint, method, (LEAST + 1) * VN_PAGE_BYTES + TAIL, NULL, NULL);
    put_noise(0, LEAST + 1);
    memset(joint.memory + (LEAST + 1) * VN_PAGE_BYTES, 7, TAIL);
    assert_int_equal(push_whole(), LEAST + 1);
    assert_int_equal(joint_push(&joint), 1);
    assert_same();
}

/* --- pages without a shadow copy --- */

static void make_unshadowed(size_t first, size_t count)
{
    size_t unshadowed;
    put_noise(first, count);
    assert_int_equal(push_whole_and(&unshadowed), count);
    assert_int_equal(unshadowed, 0);
    put_noise(first, count);
    assert_int_equal(push_whole_and(&unshadowed), count);
    assert_int_equal(unshadowed, count);
    assert_same();
}

static void what_goes_whole_again_goes_from_where_it_lies(void **state)
{
    size_t unshadowed;
    (void)state;
    make_unshadowed(0, PAGES);
    put_noise(0, PAGES);
    assert_int_equal(push_whole_and(&unshadowed), PAGES);
    assert_int_equal(unshadowed, PAGES);
    assert_same();
}

/* It may be sent once in vain, for nobody knows; then it has a shadow copy. */
static void what_was_not_written_again_gets_its_shadow_copy(void **state)
{
    (void)state;
    make_unshadowed(0, PAGES);
    assert_int_equal(push_whole(), 0);
    (void)joint_push(&joint);
    assert_same();
    joint.memory[3 * VN_PAGE_BYTES] ^= 1;
    (void)joint_push(&joint); /* whole, where none was sent above */
    assert_same();
    joint.memory[3 * VN_PAGE_BYTES + 1] ^= 1;
    assert_int_equal(joint_push(&joint), 1);
    assert_true(wire_enc_len(&joint.up) < 64);
    assert_same();
}

/* The shadow copy keeps what the page held before, but for one block: bytes that become equal to it
 * are a change all the same. */
static void bytes_from_before_are_sent_again(void **state)
{
    enum { COUNT = 4 * LEAST, BYTES = COUNT * VN_PAGE_BYTES }; /* a span that becomes untracked */
    static uint8_t before[BYTES], now[BYTES];
    (void)state;
    for (size_t block = 0; block < VN_PAGE_BLOCKS; block++) {
        size_t unshadowed;
        put_noise(0, COUNT);
        memcpy(before, joint.memory, BYTES);
        assert_int_equal(push_whole(), COUNT);
        put_noise(0, COUNT);
        assert_int_equal(push_whole_and(&unshadowed), COUNT);
        assert_int_equal(unshadowed, COUNT);
        memcpy(now, joint.memory, BYTES);
        memcpy(joint.memory, before, BYTES);
        for (size_t at = block * VN_BLOCK_BYTES; at < BYTES; at += VN_PAGE_BYTES)
            memcpy(joint.memory + at, now + at, VN_BLOCK_BYTES);
        (void)joint_push(&joint);
        assert_same();
    }
}

static void a_byte_written_while_they_are_sent_is_sent_again(void **state)
{
    const uint8_t *bytes;
    size_t off = 0, len;
    (void)state;
    make_unshadowed(0, LEAST);
    put_noise(0, LEAST);
    assert_int_equal(vn_region_collect(joint.region, 0, SIZE_MAX), 0);
    assert_true(vn_region_take_whole(joint.region, MOST, &off, &len, &bytes));
    send_whole(off, bytes, len);
    joint.memory[VN_PAGE_BYTES + 9] ^= 1;
    assert_true(joint_push(&joint) >= 1);
    assert_same();
}

/* A device and the program write neighbours in a page that was unshadowed. */
static void what_a_device_may_write_gets_its_shadow_copy_before(void **state)
{
    (void)state;
    make_unshadowed(0, 2 * LEAST);
    put_noise(
        0, LEAST); /* those of the range that look rewritten, too, must not go unshadowed again */
    assert_int_equal(vn_region_expect(joint.region, 2 * VN_PAGE_BYTES + 5,
                                      (2 * LEAST - 4) * VN_PAGE_BYTES, false),
                     0);
    (void)push_whole();
    (void)joint_push(&joint);
    assert_same();
    vn_shadow_make(&joint.shadow, joint.server, 0, PAGES);
    for (size_t page = 2; page < 2 * LEAST - 1; page++) {
        joint.server[page * VN_PAGE_BYTES + 10] ^= 1;
        joint.memory[page * VN_PAGE_BYTES + 11] ^= 1;
    }
    assert_int_equal(joint_encode_server(&joint), 2 * LEAST - 3);
    (void)joint_push(&joint);
    joint_apply(&joint);
    assert_true(joint_push(&joint) <= 1); /* a page beside the range, which is unshadowed yet */
    assert_memory_equal(joint.memory, joint.server, joint.size);
    assert_int_equal(vn_region_expect(joint.region, SIZE, 1, false), -EINVAL);
}

/* --- all of it in random order --- */

static uint8_t model[SIZE];           /* what each byte was written last, by either side */
static size_t batch_first, batch_end; /* pages that a device may write; none when equal */

static size_t below(size_t n)
{
    return (size_t)hw_rng_u64(&rng) % n;
}

static bool is_under_way(size_t page)
{
    return page >= batch_first && page < batch_end;
}

/* Pages as a whole, but for those that a device may be writing. */
static void host_fills(void)
{
    size_t first = below(PAGES), count = 1 + below(PAGES - first);
    for (size_t page = first; page < first + count; page++) {
        if (is_under_way(page))
            continue;
        put_noise(page, 1);
        memcpy(model + page * VN_PAGE_BYTES, joint.memory + page * VN_PAGE_BYTES, VN_PAGE_BYTES);
    }
}

/* Bytes that no device writes. */
static void host_writes_some(void)
{
    for (size_t i = 0, count = below(40); i < count; i++) {
        size_t at = below(SIZE / 4) * 4 + 1;
        joint.memory[at] = model[at] = (uint8_t)hw_rng_u64(&rng);
    }
}

static void device_writes_some(void)
{
    for (size_t i = 0, count = batch_end - batch_first; i < count; i++) {
        size_t at = (batch_first + below(count)) * VN_PAGE_BYTES + below(VN_PAGE_BYTES / 4) * 4;
        joint.server[at] = model[at] = (uint8_t)hw_rng_u64(&rng);
    }
}

static void host_submits(void)
{
    if (batch_first == batch_end)
        (void)push_whole();
    (void)joint_push(&joint);
}

static void a_batch_begins(void)
{
    size_t first = below(PAGES), end = first + 1 + below(PAGES - first);
    assert_int_equal(
        vn_region_expect(joint.region, first * VN_PAGE_BYTES, (end - first) * VN_PAGE_BYTES, false),
        0);
    host_submits();
    vn_shadow_make(&joint.shadow, joint.server, first, end);
    batch_first = first;
    batch_end = end;
}

static void a_batch_ends(void)
{
    (void)joint_pull(&joint);
    batch_first = batch_end = 0;
    host_submits();
    assert_memory_equal(joint.memory, model, SIZE);
    assert_memory_equal(joint.server, model, SIZE);
}

static void whatever_both_sides_write_in_turn_is_kept(void **state)
{
    enum { STEPS = 600 };
    (void)state;
    memset(model, 0, sizeof(model));
    for (int step = 0; step < STEPS; step++) {
        bool under_way = batch_first < batch_end;
        switch (below(8)) {
        case 0:
        case 1:
            host_fills();
            break;
        case 2:
            host_writes_some();
            break;
        case 3:
        case 4:
            host_submits();
            break;
        case 5:
            if (!under_way)
                a_batch_begins();
            break;
        case 6:
            device_writes_some();
            break;
        default:
            if (under_way)
                a_batch_ends();
        }
    }
    a_batch_ends();
}

/* --- what stands for a shadow copy --- */

/* Until a device may write it; what it writes then is found. */
static void memory_is_its_shadow_copy_until_a_device_may_write_it(void **state)
{
    uint8_t copy[3 * VN_PAGE_BYTES];
    (void)state;
    put_noise(0, LEAST);
    assert_int_equal(push_whole(), LEAST);
    assert_int_equal(joint.shadow.omitted.count, server_is_cached ? LEAST : 0);
    vn_shadow_make(&joint.shadow, joint.server, 2, 4);
    assert_int_equal(joint.shadow.omitted.count, server_is_cached ? LEAST - 2 : 0);
    joint.server[2 * VN_PAGE_BYTES] ^= 1;
    joint.server[3 * VN_PAGE_BYTES + 7] ^= 1;
    vn_shadow_read(&joint.shadow, joint.server, VN_PAGE_BYTES, sizeof(copy) - 5, copy);
    assert_memory_equal(copy, joint.memory + VN_PAGE_BYTES, sizeof(copy) - 5);
    assert_int_equal(joint_pull(&joint), 2);
    assert_same();
}

static void deltas_part_what_they_change(void **state)
{
    (void)state;
    put_noise(0, LEAST);
    assert_int_equal(push_whole(), LEAST);
    joint.memory[VN_PAGE_BYTES] ^= 1;
    assert_int_equal(joint_push(&joint), 1);
    assert_same();
    vn_shadow_make(&joint.shadow, joint.server, 0, PAGES);
    joint.server[VN_PAGE_BYTES] ^= 1;
    joint.server[4 * VN_PAGE_BYTES] ^= 1;
    assert_int_equal(joint_encode_server(&joint), 2); /* those bytes, and none of the above */
}

/* A page of which only the beginning is the client's. */
static void a_part_of_a_page_is_stored_in_both(void **state)
{
    enum { TAIL = 100 };
    uint8_t bytes[VN_PAGE_BYTES + TAIL];
    (void)state;
    put_noise(0, LEAST);
    assert_int_equal(push_whole(), LEAST);
    memset(bytes, 9, sizeof(bytes));
    store(VN_PAGE_BYTES, bytes, sizeof(bytes));
    memcpy(joint.memory + VN_PAGE_BYTES, bytes, sizeof(bytes));
    assert_same();
    assert_int_equal(joint.shadow.omitted.count, server_is_cached ? LEAST - 1 : 0);
}

/* --- a program that writes meanwhile --- */

static _Atomic uint64_t published;
static _Atomic bool stop;

/* Fills all pages, with its count now and then and otherwise with noise; says how far it is. */
static void *fill_main(void *arg)
{
    (void)arg;
    for (uint64_t value = 1; !atomic_load(&stop); value++) {
        for (size_t at = 0; at < SIZE; at += 8)
            atomic_store_explicit(word_at(joint.memory, at),
                                  at % COUNT_EVERY ? (value + at) * UINT64_C(0x9e3779b97f4a7c15)
                                                   : value,
                                  memory_order_relaxed);
        atomic_store_explicit(&published, value, memory_order_release);
    }
    return NULL;
}

static void what_was_written_before_a_collection_is_in_it(void **state)
{
    pthread_t thread;
    (void)state;
    atomic_store(&stop, false);
    atomic_store(&published, 0);
    assert_int_equal(pthread_create(&thread, NULL, fill_main, NULL), 0);
    for (uint64_t until = hw_now_ns() + RACE_MS * HW_MS; hw_now_ns() < until;) {
        uint64_t least = atomic_load_explicit(&published, memory_order_acquire);
        (void)push_whole();
        joint_push(&joint);
        for (size_t at = 0; at < SIZE; at += COUNT_EVERY)
            assert_true(*word_at(joint.server, at) >= least);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    (void)push_whole();
    joint_push(&joint);
    assert_same();
}

/* --- the way back --- */

/* What a copy of the device's left in pages from `first` on, stored at the client in pieces. */
static void pull_whole(size_t first, size_t count, size_t piece)
{
    for (size_t at = first * VN_PAGE_BYTES; at < (first + count) * VN_PAGE_BYTES; at += 8) {
        uint64_t word = hw_rng_u64(&rng);
        memcpy(joint.server + at, &word, 8);
    }
    assert_int_equal(
        vn_shadow_count_rewritten(&joint.shadow, joint.server, first, first + count, 1), count);
    for (size_t page = first; page < first + count; page += piece) {
        size_t off = page * VN_PAGE_BYTES,
               n = first + count - page < piece ? first + count - page : piece;
        vn_shadow_take_whole(&joint.shadow, joint.server, off, n * VN_PAGE_BYTES);
        assert_int_equal(
            vn_region_store(joint.region, off, joint.shadow.bytes + off, n * VN_PAGE_BYTES), 0);
    }
}

static void what_came_as_a_whole_is_here_and_not_the_programs(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        pull_whole(5, 150, 16); /* two whole spans of the tracker, and parts of two */
        assert_same();
        assert_int_equal(joint_push(&joint), 0);
    }
    pull_whole(0, 3, 1);
    assert_same();
    assert_int_equal(joint_push(&joint), 0);
}

static void what_the_program_writes_next_is_found(void **state)
{
    (void)state;
    const size_t pages[] = {5, 63, 64, 100, 127, 128, 154};
    for (int round = 0; round < 2; round++) {
        pull_whole(5, 150, 16);
        for (size_t i = 0; i < ARRAY_LEN(pages); i++)
            joint.memory[pages[i] * VN_PAGE_BYTES + i] ^= 1;
        assert_int_equal(joint_push(&joint), ARRAY_LEN(pages));
        assert_same();
    }
    pull_whole(64, 32, 16);
    joint.memory[70 * VN_PAGE_BYTES] ^= 1; /* after one wait and before the next: not sent yet */
    pull_whole(96, 32, 16);                /* now the span is stored as a whole */
    assert_int_equal(joint_push(&joint), 1);
    assert_same();
}

static void what_is_not_of_whole_pages_is_refused(void **state)
{
    static const uint8_t bytes[2 * VN_PAGE_BYTES];
    (void)state;
    assert_int_equal(vn_region_store(joint.region, 8, bytes, VN_PAGE_BYTES), -EPROTO);
    assert_int_equal(vn_region_store(joint.region, 0, bytes, 100), -EPROTO);
    assert_int_equal(vn_region_store(joint.region, SIZE, bytes, VN_PAGE_BYTES), -EPROTO);
    assert_int_equal(vn_region_store(joint.region, SIZE - VN_PAGE_BYTES, bytes, 2 * VN_PAGE_BYTES),
                     -EPROTO);
    assert_int_equal(
        vn_region_store(joint.region, UINT64_MAX - VN_PAGE_BYTES + 1, bytes, VN_PAGE_BYTES),
        -EPROTO);
    assert_same();
}

/* --- as deltas, where they compress --- */

static void noise_is_tried_less_often(void **state)
{
    uint8_t *text = joint.memory + LEAST * VN_PAGE_BYTES;
    unsigned tried = 0;
    (void)state;
    put_noise(0, 1);
    memset(text, 'x', VN_PAGE_BYTES);
    for (int i = 0; i < 4; i++)
        assert_false(vn_delta_shrinks(joint.client_codec, joint.memory));
    while (tried <= 16 && !vn_delta_shrinks(joint.client_codec, text))
        tried++;
    assert_in_range(tried, 1, 16);
    assert_true(vn_delta_shrinks(joint.client_codec, text));
}

static void pages_that_compress_are_known_and_travel_as_a_delta(void **state)
{
    struct vn_delta_out out;
    struct vn_delta_codec *plain;
    (void)state;
    put_noise(0, LEAST);
    memset(joint.memory + LEAST * VN_PAGE_BYTES, 'x', LEAST * VN_PAGE_BYTES);
    assert_int_equal(vn_delta_codec_create(0, &plain), 0);
    assert_false(vn_delta_shrinks(joint.client_codec, joint.memory));
    assert_true(vn_delta_shrinks(joint.client_codec, joint.memory + LEAST * VN_PAGE_BYTES));
    assert_false(vn_delta_shrinks(plain, joint.memory + LEAST * VN_PAGE_BYTES));
    vn_delta_codec_destroy(plain);
    wire_enc_reset(&joint.up);
    vn_delta_begin(&out, &joint.up);
    for (size_t page = LEAST; page < 2 * LEAST; page++)
        vn_delta_put_page(&out, page, joint.memory + page * VN_PAGE_BYTES);
    assert_int_equal(vn_delta_end(&out, joint.client_codec), 0);
    assert_true(wire_enc_len(&joint.up) < VN_PAGE_BYTES);
    joint_apply_server(&joint);
    assert_memory_equal(joint.server + LEAST * VN_PAGE_BYTES, joint.memory + LEAST * VN_PAGE_BYTES,
                        LEAST * VN_PAGE_BYTES);
}

int main(int argc, char **argv)
{
    method = joint_method(argc, argv);
#define WITH_JOINT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_JOINT(pages_written_as_a_whole_travel_as_they_are),
        WITH_JOINT(what_is_short_or_partial_or_zero_is_left_to_deltas),
        cmocka_unit_test(zeros_for_a_near_server_go_as_a_whole),
        WITH_JOINT(a_page_that_is_not_whole_parts_a_run),
        WITH_JOINT(a_write_after_they_were_taken_is_found),
        WITH_JOINT(memory_filled_again_and_again_is_followed),
        WITH_JOINT(the_end_within_a_page_is_left_to_deltas),
        WITH_JOINT(what_goes_whole_again_goes_from_where_it_lies),
        WITH_JOINT(what_was_not_written_again_gets_its_shadow_copy),
        WITH_JOINT(bytes_from_before_are_sent_again),
        WITH_JOINT(a_byte_written_while_they_are_sent_is_sent_again),
        WITH_JOINT(what_a_device_may_write_gets_its_shadow_copy_before),
        WITH_JOINT(whatever_both_sides_write_in_turn_is_kept),
        WITH_JOINT(memory_is_its_shadow_copy_until_a_device_may_write_it),
        WITH_JOINT(deltas_part_what_they_change),
        WITH_JOINT(a_part_of_a_page_is_stored_in_both),
        WITH_JOINT(what_was_written_before_a_collection_is_in_it),
        WITH_JOINT(what_came_as_a_whole_is_here_and_not_the_programs),
        WITH_JOINT(what_the_program_writes_next_is_found),
        WITH_JOINT(what_is_not_of_whole_pages_is_refused),
        WITH_JOINT(noise_is_tried_less_often),
        WITH_JOINT(pages_that_compress_are_known_and_travel_as_a_delta),
    };
    int failed =
        cmocka_run_group_tests_name("a server that keeps shadow copies", tests, NULL, NULL);
    server_is_cached = true;
    return failed +
           cmocka_run_group_tests_name("memory that is its own shadow copy", tests, NULL, NULL);
}
