/* fake.h - a driver without a GPU: it encodes what it was given and answers with random content.
 *
 * Encoding reads every byte that a driver could, so that a sanitizer sees a bad pointer. */
#ifndef HAWSER_TESTS_VENUS_FAKE_H
#define HAWSER_TESTS_VENUS_FAKE_H

#include "filler.h"
#include "vn_commands.gen.h"

struct fake {
    struct filler filler;  /* of outputs and created objects */
    struct wire_enc *seen; /* the arguments of every call, encoded */
    VkResult result;       /* of commands that return one */
    uint64_t calls;
};

extern struct fake *fake_now;              /* that the driver works for */
extern const struct vn_driver fake_driver; /* generated */

struct filler *fake_called(void);
struct wire_enc *fake_seen(void);
VkResult fake_result(void);

/* Executes every command of data[0..len) as a session does, resetting the arena before each.  0, or
 * what ends the session. */
int fake_session(struct vn_exec *x, struct vn_decoder *d, const void *data, size_t len) MUST_CHECK;

#endif
