#include "unit.h"

#include "kv/common/attach.h"
#include "wire/le.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct kv_region_shape shape = {.depth = 5, .value_max = 100};

static void a_request_comes_back_as_it_was(void **state)
{
    (void)state;
    uint8_t bytes[KV_ATTACH_BYTES];
    struct kv_region_shape got;
    kv_attach_encode(&shape, bytes);
    assert_int_equal(kv_attach_decode(bytes, sizeof(bytes), &got), 0);
    assert_int_equal(got.depth, 5);
    assert_int_equal(got.value_max, 100);
}

static void what_is_wrong_with_a_request_is_told_apart(void **state)
{
    (void)state;
    uint8_t bytes[KV_ATTACH_BYTES];
    struct kv_region_shape got;
    kv_attach_encode(&shape, bytes);
    assert_int_equal(kv_attach_decode(bytes, sizeof(bytes) - 1, &got), -EPROTO);
    bytes[31] = 1; /* what must be zero */
    assert_int_equal(kv_attach_decode(bytes, sizeof(bytes), &got), -EPROTO);
    kv_attach_encode(&shape, bytes);
    wire_store32(bytes, 0);
    assert_int_equal(kv_attach_decode(bytes, sizeof(bytes), &got), -EPROTO);
    kv_attach_encode(&shape, bytes);
    wire_store32(bytes + 4, KV_ATTACH_VERSION + 1);
    assert_int_equal(kv_attach_decode(bytes, sizeof(bytes), &got), -EPROTONOSUPPORT);
    static const struct kv_region_shape bad[] = {{0, 10}, {KV_DEPTH_MAX + 1, 10}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        kv_attach_encode(&bad[i], bytes);
        assert_int_equal(kv_attach_decode(bytes, sizeof(bytes), &got), -EINVAL);
    }
    kv_attach_encode(&(struct kv_region_shape){1, KV_VALUE_MAX + 1}, bytes);
    assert_int_equal(kv_attach_decode(bytes, sizeof(bytes), &got), -EINVAL);
}

static void an_offer_comes_back_as_it_was(void **state)
{
    (void)state;
    uint8_t bytes[KV_OFFER_BYTES];
    struct kv_offer offer = {
        .shape = shape, .ranks = 3, .daemons = 2, .rank = 2, .index = 1, .generation = 9};
    struct kv_offer got;
    kv_offer_encode(&offer, bytes);
    assert_int_equal(kv_offer_decode(bytes, sizeof(bytes), &got), 0);
    assert_int_equal(got.error, 0);
    assert_memory_equal(&got.shape, &shape, sizeof(shape));
    assert_int_equal(got.ranks, 3);
    assert_int_equal(got.daemons, 2);
    assert_int_equal(got.rank, 2);
    assert_int_equal(got.index, 1);
    assert_int_equal(got.generation, 9);
    assert_int_equal(got.arena_bytes, 0);
    offer.rank = 3; /* of 3 */
    kv_offer_encode(&offer, bytes);
    assert_int_equal(kv_offer_decode(bytes, sizeof(bytes), &got), -EPROTO);
    kv_offer_encode(&(struct kv_offer){.error = EUSERS}, bytes);
    assert_int_equal(kv_offer_decode(bytes, sizeof(bytes), &got), 0);
    assert_int_equal(got.error, EUSERS);
}

static void blocks_are_asked_for_and_offered(void **state)
{
    (void)state;
    uint8_t request[KV_ATTACH_BYTES], bytes[KV_OFFER_BYTES];
    struct kv_region_shape with = shape, got;
    struct kv_offer offer = {.ranks = 1, .daemons = 1, .arena_bytes = UINT64_C(5) << 32}, back;
    with.staging_bytes = KV_STAGING_MAX;
    kv_attach_encode(&with, request);
    assert_int_equal(kv_attach_decode(request, sizeof(request), &got), 0);
    assert_int_equal(got.staging_bytes, KV_STAGING_MAX);
    assert_int_equal(kv_region_bytes(&with) % KV_STAGING_ALIGN, 0);
    assert_true(kv_region_bytes(&with) >= kv_region_bytes(&shape) + KV_STAGING_MAX);
    with.staging_bytes++;
    kv_attach_encode(&with, request);
    assert_int_equal(kv_attach_decode(request, sizeof(request), &got), -EINVAL);
    offer.shape = shape;
    kv_offer_encode(&offer, bytes); /* an arena for one who cannot put */
    assert_int_equal(kv_offer_decode(bytes, sizeof(bytes), &back), -EPROTO);
    offer.shape.staging_bytes = 4096;
    kv_offer_encode(&offer, bytes);
    assert_int_equal(kv_offer_decode(bytes, sizeof(bytes), &back), 0);
    assert_int_equal(back.arena_bytes, offer.arena_bytes);
    assert_int_equal(back.shape.staging_bytes, 4096);
}

static void both_sides_see_the_same_memory(void **state)
{
    (void)state;
    struct kv_attachment daemon, client;
    assert_int_equal(kv_attachment_make(&shape, &daemon), 0);
    int fds[KV_OFFER_FDS] = {dup(daemon.memfd), dup(daemon.daemon_bell), dup(daemon.client_bell)};
    assert_int_equal(kv_attachment_take(fds, &shape, &client), 0);
    kv_attachment_close_memfd(&daemon);
    ((uint8_t *)daemon.map)[KV_REGION_LINES] = 77;
    assert_int_equal(((uint8_t *)client.map)[KV_REGION_LINES], 77);
    kv_attachment_fini(&client);
    kv_attachment_fini(&daemon);
}

/* A client must not be led to map what can shrink under it, or to ring what can block it. */
static void descriptors_that_could_hurt_are_refused(void **state)
{
    (void)state;
    struct kv_attachment daemon, client;
    for (int bad = 0; bad < 4; bad++) {
        assert_int_equal(kv_attachment_make(&shape, &daemon), 0);
        int fds[KV_OFFER_FDS] = {dup(daemon.memfd), dup(daemon.daemon_bell),
                                 dup(daemon.client_bell)};
        if (bad == 0) {
            close(fds[0]);
            fds[0] = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
            assert_int_equal(ftruncate(fds[0], (off_t)daemon.bytes), 0);
        } else if (bad == 1) {
            close(fds[1]);
            fds[1] = dup(fds[0]); /* no eventfd */
        } else if (bad == 2) {
            close(fds[2]);
            fds[2] = dup(fds[0]);
        }
        struct kv_region_shape other = shape;
        other.depth += bad == 3; /* another size */
        assert_int_equal(kv_attachment_take(fds, &other, &client), -EPROTO);
        kv_attachment_fini(&daemon);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_comes_back_as_it_was),
        cmocka_unit_test(what_is_wrong_with_a_request_is_told_apart),
        cmocka_unit_test(an_offer_comes_back_as_it_was),
        cmocka_unit_test(blocks_are_asked_for_and_offered),
        cmocka_unit_test(both_sides_see_the_same_memory),
        cmocka_unit_test(descriptors_that_could_hurt_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
