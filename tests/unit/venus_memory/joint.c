#include "joint.h"

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum vn_track_method joint_method(int argc, char **argv)
{
    assert_int_equal(argc, 2);
    setenv("VENUS_TRACK", argv[1], 1);
    enum vn_track_method method = vn_track_wanted();
    assert_string_equal(vn_track_name(method), argv[1]);
    struct vn_kernel *kernel;
    assert_int_equal(vn_kernel_ref(&kernel), 0);
    bool works = vn_track_works(kernel, method);
    vn_kernel_unref(kernel);
    if (!works) {
        printf("the kernel offers no %s\n", argv[1]);
        exit(77);
    }
    return method;
}

void joint_open(struct joint *joint, enum vn_track_method method, size_t size, vn_fetch_fn *fetch,
                void *user)
{
    *joint = (struct joint){.size = size};
    struct vn_region_params params = {.size = size, .method = method, .fetch = fetch, .user = user};
    assert_int_equal(vn_region_create(&params, &joint->region), 0);
    joint->memory = vn_region_memory(joint->region);
    joint->server = aligned_alloc(64, (size + 63) / 64 * 64);
    assert_non_null(joint->server);
    memset(joint->server, 0, size);
    assert_int_equal(vn_shadow_init(&joint->shadow, size), 0);
    assert_int_equal(vn_delta_codec_create(VN_DELTA_ZSTD_MIN, &joint->client_codec), 0);
    assert_int_equal(vn_delta_codec_create(VN_DELTA_ZSTD_MIN, &joint->server_codec), 0);
    wire_enc_init(&joint->up, WIRE_MESSAGE_MAX);
    wire_enc_init(&joint->down, WIRE_MESSAGE_MAX);
}

void joint_close(struct joint *joint)
{
    vn_region_destroy(joint->region);
    free(joint->server);
    vn_shadow_fini(&joint->shadow);
    vn_delta_codec_destroy(joint->client_codec);
    vn_delta_codec_destroy(joint->server_codec);
    wire_enc_fini(&joint->up);
    wire_enc_fini(&joint->down);
}

size_t joint_encode(struct joint *joint)
{
    size_t changes = 0;
    wire_enc_reset(&joint->up);
    assert_int_equal(vn_region_collect(joint->region, 0, SIZE_MAX), 0);
    assert_int_equal(vn_region_encode(joint->region, joint->client_codec, &joint->up,
                                      WIRE_MESSAGE_MAX, VN_SERVER_WRITES, &changes),
                     0);
    return changes;
}

size_t joint_encode_server(struct joint *joint)
{
    size_t page = 0;
    wire_enc_reset(&joint->down);
    int changes = vn_shadow_encode(&joint->shadow, joint->server, (struct vn_pages){0}, &page,
                                   vn_shadow_pages(&joint->shadow), joint->server_codec,
                                   &joint->down, WIRE_MESSAGE_MAX);
    assert_true(changes >= 0);
    assert_int_equal(page, vn_shadow_pages(&joint->shadow));
    return (size_t)changes;
}

void joint_apply(struct joint *joint)
{
    size_t changed;
    assert_int_equal(vn_region_apply(joint->region, joint->client_codec,
                                     wire_enc_data(&joint->down), wire_enc_len(&joint->down),
                                     &changed),
                     0);
}

void joint_apply_server(struct joint *joint)
{
    assert_int_equal(vn_shadow_apply(&joint->shadow, joint->server, joint->server_codec,
                                     wire_enc_data(&joint->up), wire_enc_len(&joint->up)),
                     0);
}

size_t joint_push(struct joint *joint)
{
    size_t changes = joint_encode(joint);
    joint_apply_server(joint);
    return changes;
}

size_t joint_pull(struct joint *joint)
{
    size_t changes = joint_encode_server(joint);
    joint_apply(joint);
    return changes;
}

void joint_idle(struct joint *joint)
{
    for (int i = 0; i < 20; i++)
        assert_int_equal(vn_region_collect(joint->region, 0, SIZE_MAX), 0);
}
