/* tests/fuzz/fuzz.h - what a fuzz target needs: its entry, and how it says that something does not
 * hold.  Threads: one. */
#ifndef HAWSER_TESTS_FUZZ_H
#define HAWSER_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Unlike an assertion it is in every build. */
static inline void require(int holds)
{
    if (!holds)
        abort();
}

#endif
