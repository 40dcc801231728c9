/* trip.h - a command from the client through the server and a fake driver, and its reply back. */
#ifndef HAWSER_TESTS_VENUS_TRIP_H
#define HAWSER_TESTS_VENUS_TRIP_H

#include "fake.h"

enum trip_damage {
    TRIP_WHOLE,
    TRIP_CUT,  /* every shorter payload must be refused before the driver is called */
    TRIP_FLIP, /* any byte changed: refused or executed, in bounds */
    TRIP_STAY, /* the request is encoded and goes nowhere */
};

struct trip {
    struct filler filler;
    struct wire_enc request; /* what the client sends */
    struct wire_enc seen;    /* what the driver got, encoded again */
    struct wire_enc reply;   /* what the server answers */
    struct wire_enc again;   /* what the client got, encoded again */
    struct vn_decoder client;
    struct hw_arena arenas[3]; /* of the program, the server and the client's decoder */
    struct fake fake;
    struct objects *objects;
    enum trip_damage damage;
    const char *problem; /* NULL when all is well */
};

struct trip_test {
    const char *name;
    void (*run)(struct trip *t);
};

extern const struct trip_test trip_tests[];
extern const size_t trip_test_count;

void trip_init(struct trip *t);
void trip_fini(struct trip *t);
/* One command from a seed.  NULL, or what went wrong. */
const char *trip_run(struct trip *t, const struct trip_test *test, uint64_t seed,
                     enum trip_damage damage);

/* For generated code: executes the request.  True when a reply is to be decoded. */
bool trip_over(struct trip *t);

#endif
