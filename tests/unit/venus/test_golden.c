/* The bytes of every command and its reply, as hashes of what fixed seeds give.  The vectors are
 * the same on every architecture: a client on one understands a server on another.
 *
 *    test-venus-golden FOLDER            compares
 *    test-venus-golden --write FOLDER    writes, when the wire was changed on purpose
 *
 * Fillers fill what the registry has, so each one that the build takes by itself has vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <xxhash.h>

#include "unit/venus/support/trip.h"

enum { SEEDS = 8, SKIPPED = 77 };

static char vectors_path[4096];

static uint64_t hash_of(struct trip *t, const struct trip_test *test)
{
    XXH3_state_t *state = XXH3_createState();
    assert_non_null(state);
    XXH3_64bits_reset(state);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const char *problem = trip_run(t, test, seed, TRIP_WHOLE);
        if (problem)
            fail_msg("%s, seed %d: %s", test->name, (int)seed, problem);
        XXH3_64bits_update(state, wire_enc_data(&t->request), wire_enc_len(&t->request));
        XXH3_64bits_update(state, wire_enc_data(&t->reply), wire_enc_len(&t->reply));
    }
    uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

static void test_bytes_are_those_of_the_vectors(void **state)
{
    (void)state;
    FILE *file = fopen(vectors_path, "r");
    assert_non_null(file);
    struct trip t;
    trip_init(&t);
    for (size_t i = 0; i < trip_test_count; i++) {
        char name[128];
        unsigned long long want;
        assert_int_equal(fscanf(file, "%127s %llx", name, &want), 2);
        assert_string_equal(name, trip_tests[i].name);
        unsigned long long got = hash_of(&t, &trip_tests[i]);
        if (got != want)
            fail_msg("%s: the wire has changed: %016llx, not %016llx", name, got, want);
    }
    trip_fini(&t);
    fclose(file);
}

static int write_vectors(void)
{
    FILE *file = fopen(vectors_path, "w");
    struct trip t;
    if (!file)
        return 1;
    trip_init(&t);
    for (size_t i = 0; i < trip_test_count; i++)
        fprintf(file, "%s %016llx\n", trip_tests[i].name,
                (unsigned long long)hash_of(&t, &trip_tests[i]));
    trip_fini(&t);
    return fclose(file) ? 1 : 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_those_of_the_vectors),
    };
    if (argc < 2)
        return 2;
    snprintf(vectors_path, sizeof(vectors_path), "%s/streams-%d.txt", argv[argc - 1],
             VK_HEADER_VERSION);
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_vectors();
    if (access(vectors_path, R_OK))
        return SKIPPED; /* a registry that was given */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
