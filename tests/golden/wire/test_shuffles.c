/* shuffles.txt: shuffling gives the committed bytes, and gives them back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "golden.h"
#include "wire/shuffle.h"

static const char *vectors_path;

static void check_vector(char *fields[], size_t count)
{
    uint8_t plain[GOLDEN_BYTES_MAX], shuffled[GOLDEN_BYTES_MAX], got[GOLDEN_BYTES_MAX];
    assert_int_equal(count, 3);
    size_t elem = strtoul(fields[0], NULL, 10);
    size_t bytes = golden_hex(fields[1], plain);
    assert_int_equal(golden_hex(fields[2], shuffled), bytes);
    wire_shuffle(got, plain, bytes / elem, elem);
    golden_equal("shuffle", got, bytes, shuffled, bytes);
    wire_unshuffle(got, shuffled, bytes / elem, elem);
    golden_equal("unshuffle", got, bytes, plain, bytes);
}

static void shuffles_have_their_committed_bytes(void **state)
{
    (void)state;
    assert_true(golden_each(vectors_path, check_vector) >= 10);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shuffles_have_their_committed_bytes)};
    if (argc != 2)
        return 2;
    vectors_path = argv[1];
    return cmocka_run_group_tests_name("golden/wire shuffles", tests, NULL, NULL);
}
