/* Deltas there and back, what they cost, and what a hostile one gets. */
#include "unit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/rng.h"
#include "venus/memory/shadow.h"

enum { PAGES = 8, BYTES = PAGES * VN_PAGE_BYTES };

struct end {
    uint8_t *memory;
    struct vn_shadow shadow;
};

static struct vn_delta_codec *codec;
static struct wire_enc enc;
static struct end here, there;

static void open_end(struct end *end, size_t bytes)
{
    end->memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(end->memory);
    memset(end->memory, 0, bytes);
    assert_int_equal(vn_shadow_init(&end->shadow, bytes), 0);
}

static void close_end(struct end *end)
{
    free(end->memory);
    vn_shadow_fini(&end->shadow);
}

static int open_with(size_t bytes, size_t zstd_min)
{
    open_end(&here, bytes);
    open_end(&there, bytes);
    wire_enc_init(&enc, WIRE_MESSAGE_MAX);
    return vn_delta_codec_create(zstd_min, &codec);
}

static int setup(void **state)
{
    (void)state;
    return open_with(BYTES, 0);
}

static int teardown(void **state)
{
    (void)state;
    close_end(&here);
    close_end(&there);
    wire_enc_fini(&enc);
    vn_delta_codec_destroy(codec);
    return 0;
}

/* Sends all that differs in one delta; its length. */
static size_t send(struct end *from, struct end *to)
{
    size_t page = 0, end = vn_shadow_pages(&from->shadow);
    wire_enc_reset(&enc);
    assert_true(vn_shadow_encode(&from->shadow, from->memory, (struct vn_pages){0}, &page, end,
                                 codec, &enc, SIZE_MAX) >= 0);
    assert_int_equal(page, end);
    size_t len = wire_enc_len(&enc);
    assert_int_equal(vn_shadow_apply(&to->shadow, to->memory, codec, wire_enc_data(&enc), len), 0);
    return len;
}

static void assert_equal_ends(void)
{
    assert_memory_equal(here.memory, there.memory, here.shadow.size);
    assert_memory_equal(here.shadow.bytes, here.memory, here.shadow.size);
    assert_memory_equal(there.shadow.bytes, here.memory, here.shadow.size);
}

static void nothing_changed_is_one_byte(void **state)
{
    (void)state;
    assert_int_equal(send(&here, &there), 1);
}

static void one_byte_costs_a_few(void **state)
{
    (void)state;
    here.memory[5 * VN_PAGE_BYTES + 77] = 9;
    assert_true(send(&here, &there) <= 8);
    assert_equal_ends();
}

static void bytes_that_did_not_change_do_not_travel(void **state)
{
    (void)state;
    /* Both change every other byte of one page before either hears of it: had a delta carried a
     * neighbour's old value, one of the two would be undone. */
    for (size_t i = 0; i < VN_PAGE_BYTES; i += 2) {
        here.memory[i] = (uint8_t)(i / 2 + 1) | 1;
        there.memory[i + 1] = (uint8_t)(i / 3 + 1) | 1;
    }
    struct wire_enc back;
    wire_enc_init(&back, WIRE_MESSAGE_MAX);
    size_t page = 0;
    assert_int_equal(vn_shadow_encode(&there.shadow, there.memory, (struct vn_pages){0}, &page,
                                      PAGES, codec, &back, SIZE_MAX),
                     1);
    send(&here, &there);
    assert_int_equal(vn_shadow_apply(&here.shadow, here.memory, codec, wire_enc_data(&back),
                                     wire_enc_len(&back)),
                     0);
    wire_enc_fini(&back);
    assert_equal_ends();
    assert_int_equal(here.memory[2], 2 | 1);
    assert_int_not_equal(here.memory[1], 0);
}

/* Pages 1 to 4 were written as a whole, 2 with the bytes that it had; 4 by a few that differ. */
static void filled_pages_travel_as_they_are(void **state)
{
    (void)state;
    struct vn_pages filled = {.first = 1, .end = 5};
    size_t page = 0;
    for (size_t i = 0; i < 6 * VN_PAGE_BYTES; i++) {
        bool same = i / VN_PAGE_BYTES == 2 || i % 8 == 7;
        bool few = i / VN_PAGE_BYTES >= 4;
        here.memory[i] = same || (few && i % 512) ? 0 : (uint8_t)(i * 31 + i / 256) | 1;
    }
    assert_int_equal(
        vn_shadow_encode(&here.shadow, here.memory, filled, &page, PAGES, codec, &enc, SIZE_MAX),
        5);
    struct vn_delta_in in;
    struct vn_change change;
    assert_int_equal(
        vn_delta_open(codec, wire_enc_data(&enc), wire_enc_len(&enc), here.shadow.size, &in), 0);
    while (vn_delta_next(&in, &change)) {
        bool whole = change.page == 1 || change.page == 3;
        assert_int_equal(change.blocks == UINT64_MAX && change.mask[9] == UINT64_MAX, whole);
        vn_shadow_overwrite(&there.shadow, there.memory, &change);
    }
    assert_equal_ends();
}

/* Two ends that both wrote bytes 10 and, in a block of its own, 64 to 127. */
static void write_on_both_sides(void)
{
    here.memory[10] = 1;
    memset(here.memory + 64, 1, 64);
    there.memory[10] = 2;
    there.memory[11] = 3;
    memset(there.memory + 64, 2, 64);
}

static void the_client_s_byte_wins_at_the_server(void **state)
{
    (void)state;
    write_on_both_sides();
    send(&here, &there);
    assert_int_equal(there.memory[10], 1);
    assert_int_equal(there.memory[64], 1);
    send(&there, &here);
    assert_int_equal(here.memory[11], 3);
    assert_equal_ends();
}

static void the_client_s_byte_wins_at_the_client(void **state)
{
    (void)state;
    write_on_both_sides();
    struct vn_change change;
    assert_true(vn_shadow_take(&there.shadow, there.memory, 0, &change));
    vn_shadow_sent(&there.shadow, &change);
    vn_shadow_merge(&here.shadow, here.memory, &change);
    assert_int_equal(here.memory[10], 1);
    assert_int_equal(here.memory[11], 3);
    assert_int_equal(here.memory[64], 1);
    assert_int_equal(here.shadow.bytes[64], 2);
    send(&here, &there);
    assert_int_equal(there.memory[10], 1);
    assert_equal_ends();
}

/* The format is a contract between hosts: these bytes are never to change. */
static void the_bytes_on_the_wire_are_fixed(void **state)
{
    (void)state;
    static const uint8_t expected[] = {
        0,                                        /* plain */
        1, 1,    2, 3, 2, 0xaa, 0xbb, 0xfa, 0x1f, /* page 1: runs: 3..4, then to the last */
        1, 0xcc,                                  /* its last byte */
        1, 7,                                     /* page 3: all zero */
    };
    memset(here.shadow.bytes + 3 * VN_PAGE_BYTES, 9, VN_PAGE_BYTES);
    here.memory[VN_PAGE_BYTES + 3] = 0xaa;
    here.memory[VN_PAGE_BYTES + 4] = 0xbb;
    here.memory[2 * VN_PAGE_BYTES - 1] = 0xcc;
    size_t page = 0;
    assert_int_equal(vn_shadow_encode(&here.shadow, here.memory, (struct vn_pages){0}, &page, PAGES,
                                      codec, &enc, SIZE_MAX),
                     2);
    assert_int_equal(wire_enc_len(&enc), sizeof(expected));
    assert_memory_equal(wire_enc_data(&enc), expected, sizeof(expected));
}

static void fill_random(uint8_t *p, size_t n, struct hw_rng *rng)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)hw_rng_u64(rng);
}

/* Each shape of change, and what it may cost on the wire. */
static void every_shape_survives_and_stays_small(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 2);
    uint8_t *p = here.memory + VN_PAGE_BYTES;

    fill_random(p, VN_PAGE_BYTES, &rng); /* one byte in 256 stays zero */
    assert_true(send(&here, &there) < VN_PAGE_BYTES + VN_PAGE_BYTES / 32);
    assert_equal_ends();

    for (size_t i = 0; i < VN_PAGE_BYTES; i++)
        p[i] = (uint8_t)(p[i] + 1); /* every byte: the page as it is */
    assert_true(send(&here, &there) < VN_PAGE_BYTES + 8);
    assert_equal_ends();

    for (size_t i = 0; i < VN_PAGE_BYTES; i += 2)
        p[i] ^= 0x55; /* every other byte: a mask */
    assert_true(send(&here, &there) < VN_PAGE_BYTES / 2 + 512 + 8);
    assert_equal_ends();

    memset(p, 0x11, VN_PAGE_BYTES);
    send(&here, &there);
    memset(p, 0, VN_PAGE_BYTES); /* a page of zeros */
    assert_int_equal(send(&here, &there), 3);
    assert_equal_ends();

    memset(p + 100, 0x22, 1000);
    send(&here, &there);
    memset(p + 200, 0, 500); /* a run of zeros */
    assert_true(send(&here, &there) <= 9);
    assert_equal_ends();
}

/* Every byte of page 1 has changed. */
static void differ_in_page_1(void)
{
    for (size_t i = VN_PAGE_BYTES; i < 2 * VN_PAGE_BYTES; i++)
        here.shadow.bytes[i] = there.shadow.bytes[i] = there.memory[i] = (uint8_t)~here.memory[i];
}

static void few_words_travel_as_runs(void **state)
{
    (void)state;
    static const uint8_t expected[] = {
        0,                            /* plain */
        1,    8,    2,                /* page 1: words, two runs */
        0x80, 0x04, 1, 2, 3,    4,    /* 512 of these */
        0x80, 0x04, 0, 0, 0x80, 0xff, /* and the rest */
    };
    uint8_t *p = here.memory + VN_PAGE_BYTES;
    for (size_t i = 0; i < VN_PAGE_BYTES; i++)
        p[i] = expected[i < VN_PAGE_BYTES / 2 ? 6 + i % 4 : 12 + i % 4];
    differ_in_page_1();
    assert_int_equal(send(&here, &there), sizeof(expected));
    assert_memory_equal(wire_enc_data(&enc), expected, sizeof(expected));
    assert_equal_ends();
    assert_true(vn_delta_is_few_words(p, VN_PAGE_BYTES));
    for (size_t i = 0; i < VN_PAGE_BYTES; i += 4) /* too many runs: the page as it is */
        p[i] = (uint8_t)(i / 4 | 1);
    differ_in_page_1();
    assert_int_equal(send(&here, &there), 3 + VN_PAGE_BYTES);
    assert_equal_ends();
    assert_false(vn_delta_is_few_words(p, VN_PAGE_BYTES));
}

static void random_changes_arrive(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 3);
    for (size_t round = 0; round < 300; round++) {
        size_t writes = (size_t)hw_rng_below(&rng, 40);
        for (size_t i = 0; i < writes; i++) {
            size_t at = (size_t)hw_rng_below(&rng, BYTES);
            size_t n = (size_t)hw_rng_below(&rng, BYTES - at < 6000 ? BYTES - at : 6000);
            if (hw_rng_below(&rng, 4) == 0)
                memset(here.memory + at, 0, n);
            else
                fill_random(here.memory + at, n % 100, &rng);
        }
        send(&here, &there);
        assert_equal_ends();
    }
}

static void a_budget_cuts_a_delta_between_pages(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 4);
    fill_random(here.memory, BYTES, &rng);
    size_t page = 0, deltas = 0;
    while (page < PAGES) {
        wire_enc_reset(&enc);
        size_t budget = 2 * VN_CHANGE_WIRE_MAX;
        assert_true(vn_shadow_encode(&here.shadow, here.memory, (struct vn_pages){0}, &page, PAGES,
                                     codec, &enc, budget) > 0);
        assert_true(wire_enc_len(&enc) <= budget);
        assert_int_equal(vn_shadow_apply(&there.shadow, there.memory, codec, wire_enc_data(&enc),
                                         wire_enc_len(&enc)),
                         0);
        deltas++;
    }
    assert_true(deltas > 1);
    assert_equal_ends();
}

static int setup_ragged(void **state)
{
    (void)state;
    return open_with(VN_PAGE_BYTES + 1001, 0);
}

static void the_last_page_may_be_ragged(void **state)
{
    (void)state;
    memset(here.memory, 0xee, here.shadow.size);
    send(&here, &there);
    assert_equal_ends();
    /* The same delta is out of bounds for a region of one byte less. */
    struct vn_delta_in in;
    assert_int_equal(
        vn_delta_open(codec, wire_enc_data(&enc), wire_enc_len(&enc), here.shadow.size - 1, &in),
        -EPROTO);
}

static int setup_zstd(void **state)
{
    (void)state;
    return open_with(BYTES, 4096);
}

static void large_deltas_are_compressed_where_that_pays(void **state)
{
    (void)state;
    for (size_t i = 0; i < BYTES; i++)
        here.memory[i] = (uint8_t)(1 + i % 7);
    assert_true(send(&here, &there) < BYTES / 8);
    assert_equal_ends();
    struct hw_rng rng;
    hw_rng_seed(&rng, 5);
    fill_random(here.memory, BYTES, &rng);
    send(&here, &there);
    assert_int_equal(wire_enc_data(&enc)[0], 0); /* noise goes as it is */
    assert_equal_ends();
}

static void a_frame_that_lies_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < BYTES; i++)
        here.memory[i] = (uint8_t)(1 + i % 7);
    send(&here, &there);
    size_t len = wire_enc_len(&enc);
    uint8_t *bad = malloc(len);
    assert_non_null(bad);
    struct vn_delta_in in;
    const uint8_t *good = wire_enc_data(&enc);
    assert_int_equal(good[0], 1);
    for (size_t i = 1; i < len; i++) {
        memcpy(bad, good, len);
        bad[i] ^= 0x40;
        int err = vn_delta_open(codec, bad, len, BYTES, &in);
        assert_true(err <= 0); /* a byte of content may be anything; nothing may break */
    }
    for (size_t cut = 0; cut < len; cut++)
        assert_true(vn_delta_open(codec, good, cut, BYTES, &in) < 0);
    free(bad);
}

static void hostile_deltas_are_refused_whole(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        uint8_t bytes[16];
        size_t len;
    } cases[] = {
        {"empty", {0}, 0},
        {"unknown form", {2}, 1},
        {"page past the end", {0, PAGES, 5, 1, 0, 1}, 6},
        {"second page past the end", {0, PAGES - 1, 7, 0, 7}, 5},
        {"unknown kind", {0, 0, 0}, 3},
        {"flags past the known", {0, 0, 9, 1, 0, 1, 1}, 7},
        {"no runs", {0, 0, 1, 0}, 4},
        {"empty run", {0, 0, 1, 1, 0, 0}, 6},
        {"run past the page", {0, 0, 5, 1, 1, 0x80, 0x20}, 7},
        {"gap past the page", {0, 0, 5, 1, 0x81, 0x20, 1}, 7},
        {"touching runs", {0, 0, 5, 2, 0, 1, 0, 1}, 8},
        {"run without its bytes", {0, 0, 1, 1, 0, 4, 1}, 7},
        {"short mask", {0, 0, 2, 1, 1}, 5},
        {"short page", {0, 0, 3, 1, 1}, 5},
        {"no words", {0, 0, 8, 0}, 4},
        {"too few words", {0, 0, 8, 1, 0xff, 7, 1, 2, 3, 4}, 10},
        {"words past the page", {0, 0, 8, 1, 0x81, 8, 1, 2, 3, 4}, 10},
        {"a run of no words", {0, 0, 8, 2, 0x80, 8, 1, 2, 3, 4, 0, 1, 2, 3, 4}, 15},
        {"half a word", {0, 0, 8, 1, 0x80, 8, 1, 2}, 8},
        {"words and zeros", {0, 0, 12, 1, 0x80, 8, 1, 2, 3, 4}, 10},
        {"frame of nothing", {1, 0}, 2},
        {"frame too large", {1, 0xff, 0xff, 0xff, 0xff, 0x0f}, 6},
    };
    there.memory[0] = 42;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int err = vn_shadow_apply(&there.shadow, there.memory, codec, cases[i].bytes, cases[i].len);
        if (err >= 0)
            fail_msg("%s was accepted", cases[i].why);
    }
    assert_int_equal(there.memory[0], 42);
    assert_int_equal(there.shadow.bytes[0], 0);
}

static void an_empty_mask_is_refused(void **state)
{
    (void)state;
    uint8_t delta[3 + VN_PAGE_BYTES / 8] = {0, 0, 2};
    assert_int_equal(vn_shadow_apply(&there.shadow, there.memory, codec, delta, sizeof(delta)),
                     -EPROTO);
}

static bool is_behind(void *user)
{
    return *(const bool *)user;
}

static void a_line_that_keeps_up_gets_bytes_as_they_are(void **state)
{
    static const uint8_t page[VN_PAGE_BYTES] = "text, and zeros behind it";
    struct vn_delta_codec *watching;
    bool behind = false;
    (void)state;
    assert_int_equal(vn_delta_codec_create(VN_DELTA_ZSTD_MIN, &watching), 0);
    assert_true(vn_delta_shrinks(watching, page)); /* nobody watches yet */
    vn_delta_codec_watch(watching, is_behind, &behind);
    assert_false(vn_delta_shrinks(watching, page));
    behind = true;
    assert_true(vn_delta_shrinks(watching, page));
    vn_delta_codec_destroy(watching);
}

int main(void)
{
#define WITH(test, how) cmocka_unit_test_setup_teardown(test, how, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_that_keeps_up_gets_bytes_as_they_are),
        WITH(nothing_changed_is_one_byte, setup),
        WITH(one_byte_costs_a_few, setup),
        WITH(bytes_that_did_not_change_do_not_travel, setup),
        WITH(filled_pages_travel_as_they_are, setup),
        WITH(the_client_s_byte_wins_at_the_server, setup),
        WITH(the_client_s_byte_wins_at_the_client, setup),
        WITH(the_bytes_on_the_wire_are_fixed, setup),
        WITH(every_shape_survives_and_stays_small, setup),
        WITH(few_words_travel_as_runs, setup),
        WITH(random_changes_arrive, setup),
        WITH(a_budget_cuts_a_delta_between_pages, setup),
        WITH(the_last_page_may_be_ragged, setup_ragged),
        WITH(large_deltas_are_compressed_where_that_pays, setup_zstd),
        WITH(a_frame_that_lies_is_refused, setup_zstd),
        WITH(hostile_deltas_are_refused_whole, setup),
        WITH(an_empty_mask_is_refused, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
