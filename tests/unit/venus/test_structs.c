/* Every structure that travels in requests: encoded, decoded, encoded again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/venus/support/struct_tests.h"

enum { ROUNDS = 16 };

struct world {
    struct filler filler;
    struct hw_arena arenas[2];
    struct objects *objects;
    struct wire_enc first, second;
};

static const struct vn_decoder_ops ops = {.lookup = objects_lookup};

static void world_init(struct world *w)
{
    *w = (struct world){.objects = calloc(1, sizeof(*w->objects))};
    hw_arena_init(&w->arenas[0], VN_ARENA_MAX);
    hw_arena_init(&w->arenas[1], VN_ARENA_MAX);
    wire_enc_init(&w->first, WIRE_MESSAGE_MAX);
    wire_enc_init(&w->second, WIRE_MESSAGE_MAX);
}

static void world_fini(struct world *w)
{
    hw_arena_fini(&w->arenas[0]);
    hw_arena_fini(&w->arenas[1]);
    wire_enc_fini(&w->first);
    wire_enc_fini(&w->second);
    free(w->objects);
}

/* A filled structure, encoded in w->first. */
static void *make(struct world *w, size_t test, uint64_t seed)
{
    hw_arena_reset(&w->arenas[0]);
    hw_arena_reset(&w->arenas[1]);
    wire_enc_reset(&w->first);
    wire_enc_reset(&w->second);
    w->filler = (struct filler){.arena = &w->arenas[0], .objects = w->objects};
    hw_rng_seed(&w->filler.rng, seed);
    void *s = fill_alloc(&w->filler, 1, struct_tests[test].size);
    struct_test_fill(test, &w->filler, s);
    struct_test_enc(test, &w->first, s);
    assert_int_equal(wire_enc_error(&w->first), 0);
    return s;
}

/* The status of decoding; *out is in the arena. */
static int decode(struct world *w, size_t test, const void *bytes, size_t len, void **out)
{
    struct vn_decoder d;
    vn_decoder_init(&d, &w->arenas[1], &ops, w->objects);
    vn_decoder_feed(&d, bytes, len);
    *out = hw_arena_calloc(&w->arenas[1], 1, struct_tests[test].size);
    assert_non_null(*out);
    struct_test_dec(test, &d, *out);
    return vn_decoder_end(&d);
}

static void require_spans(const struct struct_test *test, const char *a, const char *b)
{
    for (size_t i = 0; i < test->span_count; i++) {
        const struct span *span = &test->spans[i];
        if (strcmp(span->name, "sType") && memcmp(a + span->at, b + span->at, span->len))
            fail_msg("%s.%s did not come back as it was", test->name, span->name);
    }
}

static void test_structures_come_back_as_they_were(void **state)
{
    struct world w;
    void *back;
    (void)state;
    world_init(&w);
    for (size_t i = 0; i < struct_test_count; i++) {
        for (uint64_t seed = 0; seed < ROUNDS; seed++) {
            void *s = make(&w, i, seed);
            if (decode(&w, i, wire_enc_data(&w.first), wire_enc_len(&w.first), &back))
                fail_msg("%s was refused", struct_tests[i].name);
            require_spans(&struct_tests[i], s, back);
            struct_test_enc(i, &w.second, back);
            if (wire_enc_len(&w.first) != wire_enc_len(&w.second) ||
                memcmp(wire_enc_data(&w.first), wire_enc_data(&w.second), wire_enc_len(&w.first)))
                fail_msg("%s, seed %d: other bytes the second time", struct_tests[i].name,
                         (int)seed);
        }
    }
    world_fini(&w);
}

static void test_cut_structures_are_refused(void **state)
{
    struct world w;
    void *back;
    (void)state;
    world_init(&w);
    for (size_t i = 0; i < struct_test_count; i++) {
        make(&w, i, i);
        size_t len = wire_enc_len(&w.first), step = len / 200 + 1;
        for (size_t keep = 0; keep < len; keep += step) {
            uint8_t *bytes = malloc(keep ? keep : 1);
            memcpy(bytes, wire_enc_data(&w.first), keep);
            if (decode(&w, i, bytes, keep, &back) == 0)
                fail_msg("%s: %d of %d bytes were taken", struct_tests[i].name, (int)keep,
                         (int)len);
            free(bytes);
        }
    }
    world_fini(&w);
}

static void test_changed_structures_stay_in_bounds(void **state)
{
    struct world w;
    void *back;
    (void)state;
    world_init(&w);
    for (size_t i = 0; i < struct_test_count; i++) {
        make(&w, i, i);
        size_t len = wire_enc_len(&w.first);
        for (int n = 0; n < 32 && len; n++) {
            uint8_t *bytes = malloc(len);
            memcpy(bytes, wire_enc_data(&w.first), len);
            bytes[fill_below(&w.filler, len)] ^= (uint8_t)(1 + fill_below(&w.filler, 255));
            /* What is taken must be good to read, which encoding does. */
            if (decode(&w, i, bytes, len, &back) == 0)
                struct_test_enc(i, &w.second, back);
            free(bytes);
        }
    }
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structures_come_back_as_they_were),
        cmocka_unit_test(test_cut_structures_are_refused),
        cmocka_unit_test(test_changed_structures_stay_in_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
