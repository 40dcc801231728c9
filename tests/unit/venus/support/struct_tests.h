/* struct_tests.h - the generated list of structures that travel in requests. */
#ifndef HAWSER_TESTS_VENUS_STRUCT_TESTS_H
#define HAWSER_TESTS_VENUS_STRUCT_TESTS_H

#include "filler.h"
#include "venus/common/decoder.h"
#include "wire/enc.h"

/* A member that must come back as it was. */
struct span {
    const char *name;
    size_t at, len;
};

struct struct_test {
    const char *name;
    size_t size;
    const struct span *spans;
    size_t span_count;
};

extern const struct struct_test struct_tests[];
extern const size_t struct_test_count;

/* Without chains: those of commands have them. */
void struct_test_fill(size_t test, struct filler *f, void *s);
void struct_test_enc(size_t test, struct wire_enc *e, const void *s);
void struct_test_dec(size_t test, struct vn_decoder *d, void *s);

#endif
