/* tests/unit/venus_memory/joint.h - a client's region and a server's buffer, joined by deltas. */
#ifndef HAWSER_TESTS_UNIT_VENUS_MEMORY_JOINT_H
#define HAWSER_TESTS_UNIT_VENUS_MEMORY_JOINT_H

#include "venus/memory/region.h"
#include "venus/memory/shadow.h"

struct joint {
    struct vn_region *region;
    uint8_t *memory; /* the program's pointer */
    struct vn_delta_codec *client_codec;
    struct wire_enc up;
    uint8_t *server; /* the driver's memory */
    struct vn_shadow shadow;
    struct vn_delta_codec *server_codec;
    struct wire_enc down;
    size_t size;
};

/* The method that main was told; exits 77 where it does not work. */
enum vn_track_method joint_method(int argc, char **argv);

void joint_open(struct joint *joint, enum vn_track_method method, size_t size, vn_fetch_fn *fetch,
                void *user);
void joint_close(struct joint *joint);

/* Collects and encodes into joint->up; the pages it holds. */
size_t joint_encode(struct joint *joint);
/* What the server changed, into joint->down. */
size_t joint_encode_server(struct joint *joint);
void joint_apply(struct joint *joint);
void joint_apply_server(struct joint *joint);

/* To the server, and back to the client; the pages that travelled. */
size_t joint_push(struct joint *joint);
size_t joint_pull(struct joint *joint);

/* Collects until a method that protects idle pages has protected all that it would. */
void joint_idle(struct joint *joint);

#endif
