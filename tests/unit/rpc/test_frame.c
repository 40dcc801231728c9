/* Frame headers: what goes in comes out, and nothing else is taken for a frame. */
#include "unit.h"

#include "base/attr.h"
#include "base/rng.h"
#include "rpc/endpoint/frame.h"
#include "rpc/rpc.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static void assert_same(const struct rpc_frame *a, const struct rpc_frame *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->stream, b->stream);
    assert_int_equal(a->len, b->len);
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->method, b->method);
    assert_int_equal(a->total, b->total);
    assert_true(a->value == b->value);
}

/* The bytes of each kind, written down: a change here is a change of protocol. */
static const struct {
    struct rpc_frame frame;
    uint8_t bytes[RPC_FRAME_HEADER_MAX];
    size_t len;
} golden[] = {
    {{.kind = RPC_FRAME_CALL, .len = 100, .id = 5, .method = 7}, {0x01, 100, 5, 7}, 4},
    {{.kind = RPC_FRAME_CALL, .stream = 15, .len = 128, .id = 300, .method = 1},
     {0x11, 15, 0x80, 0x01, 0xac, 0x02, 1},
     7},
    {{.kind = RPC_FRAME_CALL, .len = 262144, .method = 2, .total = 3145728},
     {0x21, 0x80, 0x80, 0x10, 0, 2, 0x80, 0x80, 0xc0, 0x01},
     10},
    {{.kind = RPC_FRAME_POST, .len = 0, .method = 127}, {0x02, 0, 127}, 3},
    {{.kind = RPC_FRAME_PUSH, .stream = 1, .len = 1, .method = 128}, {0x13, 1, 1, 0x80, 1}, 5},
    {{.kind = RPC_FRAME_REPLY, .len = 64, .id = 127}, {0x04, 64, 127}, 3},
    {{.kind = RPC_FRAME_ERROR, .len = 3, .id = 9, .method = 2}, {0x05, 3, 9, 2}, 4},
    {{.kind = RPC_FRAME_MORE, .stream = 3, .len = 262144}, {0x16, 3, 0x80, 0x80, 0x10}, 5},
    {{.kind = RPC_FRAME_CREDIT, .value = 4096}, {0x07, 0x80, 0x20}, 3},
    {{.kind = RPC_FRAME_PING, .value = UINT64_MAX},
     {0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
     11},
    {{.kind = RPC_FRAME_PONG, .value = 1}, {0x09, 1}, 2},
    {{.kind = RPC_FRAME_CANCEL, .id = 4095}, {0x0a, 0xff, 0x1f}, 3},
    {{.kind = RPC_FRAME_BYE, .len = 2, .method = 20}, {0x0b, 2, 20}, 3},
};

static void golden_bytes_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(golden); i++) {
        uint8_t out[RPC_FRAME_HEADER_MAX];
        assert_int_equal(rpc_frame_encode(&golden[i].frame, out), golden[i].len);
        assert_memory_equal(out, golden[i].bytes, golden[i].len);
        struct rpc_frame back;
        assert_int_equal(rpc_frame_parse(golden[i].bytes, golden[i].len, &back), golden[i].len);
        assert_same(&golden[i].frame, &back);
    }
}

static void small_call_takes_four_bytes_of_framing(void **state)
{
    (void)state;
    uint8_t out[RPC_FRAME_HEADER_MAX];
    struct rpc_frame call = {.kind = RPC_FRAME_CALL, .len = 127, .id = 127, .method = 127};
    assert_int_equal(rpc_frame_encode(&call, out), 4);
}

/* A number of random magnitude, so that every varint length comes up. */
static uint64_t any(struct hw_rng *rng, unsigned bits)
{
    return hw_rng_u64(rng) >> (64 - bits) >> hw_rng_below(rng, bits);
}

static struct rpc_frame random_frame(struct hw_rng *rng)
{
    struct rpc_frame f = {.kind = (uint8_t)(1 + hw_rng_below(rng, RPC_FRAME_KINDS - 1))};
    bool message = f.kind <= RPC_FRAME_ERROR;
    if (message || f.kind == RPC_FRAME_MORE)
        f.stream = (uint8_t)hw_rng_below(rng, RPC_STREAMS);
    if (message || f.kind == RPC_FRAME_MORE || f.kind == RPC_FRAME_BYE)
        f.len = (uint32_t)hw_rng_below(rng, RPC_CHUNK_BYTES + 1);
    if (f.kind == RPC_FRAME_MORE && f.len == 0)
        f.len = 1;
    if (f.kind == RPC_FRAME_CALL || f.kind == RPC_FRAME_REPLY || f.kind == RPC_FRAME_ERROR ||
        f.kind == RPC_FRAME_CANCEL)
        f.id = (uint32_t)any(rng, 32);
    if ((message && f.kind != RPC_FRAME_REPLY) || f.kind == RPC_FRAME_BYE)
        f.method = (uint32_t)any(rng, 32);
    if (message && f.kind != RPC_FRAME_ERROR && hw_rng_below(rng, 2))
        f.total = f.len + 1 + (uint32_t)hw_rng_below(rng, UINT32_MAX - f.len);
    if (f.kind >= RPC_FRAME_CREDIT && f.kind <= RPC_FRAME_PONG)
        f.value = any(rng, 64);
    return f;
}

static void random_frames_come_back(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 1);
    for (int i = 0; i < 20000; i++) {
        struct rpc_frame f = random_frame(&rng), back;
        uint8_t out[RPC_FRAME_HEADER_MAX];
        size_t n = rpc_frame_encode(&f, out);
        assert_true(n <= RPC_FRAME_HEADER_MAX);
        assert_int_equal(rpc_frame_parse(out, n, &back), n);
        assert_same(&f, &back);
    }
}

static void cut_anywhere_more_is_asked_for(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 2);
    for (int i = 0; i < 2000; i++) {
        struct rpc_frame f = random_frame(&rng), out = {.value = 99};
        uint8_t bytes[RPC_FRAME_HEADER_MAX];
        size_t n = rpc_frame_encode(&f, bytes);
        for (size_t cut = 0; cut < n; cut++) {
            assert_int_equal(rpc_frame_parse(bytes, cut, &out), 0);
            assert_int_equal(out.value, 99);
        }
    }
}

static void bytes_behind_the_header_are_not_read(void **state)
{
    (void)state;
    struct rpc_frame out;
    const uint8_t bytes[] = {0x02, 3, 9, 0xff, 0xff, 0xff};
    assert_int_equal(rpc_frame_parse(bytes, sizeof bytes, &out), 3);
    assert_int_equal(out.len, 3);
}

static void bad_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        uint8_t bytes[16];
        size_t len;
    } bad[] = {
        {"kind 0", {0x00, 0, 0, 0}, 4},
        {"kind 14", {0x0e, 0, 0, 0}, 4},
        {"kind 15", {0x0f, 0, 0, 0}, 4},
        {"no descriptors promised", {0x42, 0, 0, 0}, 4},
        {"too many descriptors", {0x42, 0, 0, 5}, 4},
        {"descriptors in pieces", {0x62, 1, 0, 2, 1}, 5},
        {"descriptors with credit", {0x47, 0, 0}, 3},
        {"flag 0x80", {0x82, 0, 0}, 3},
        {"stream 0 said aloud", {0x12, 0, 0, 0}, 4},
        {"stream 16", {0x12, 16, 0, 0}, 4},
        {"stream on credit", {0x17, 1, 1}, 3},
        {"stream on goodbye", {0x1b, 1, 0, 1}, 4},
        {"first on error", {0x25, 1, 1, 1, 2}, 5},
        {"first on more", {0x26, 1, 2}, 3},
        {"first on ping", {0x28, 1, 1}, 3},
        {"total equal to len", {0x22, 5, 1, 5}, 4},
        {"total below len", {0x22, 5, 1, 4}, 4},
        {"total 0", {0x22, 0, 1, 0}, 4},
        {"chunk too large", {0x02, 0x81, 0x80, 0x10, 0}, 5},
        {"empty more", {0x06, 0}, 2},
        {"overlong zero", {0x02, 0x80, 0x00, 0}, 4},
        {"overlong one", {0x07, 0x81, 0x80, 0x00}, 4},
        {"33 bits of id", {0x0a, 0xff, 0xff, 0xff, 0xff, 0x1f}, 6},
        {"six bytes of id", {0x0a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}, 7},
        {"65 bits of value",
         {0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02},
         11},
        {"endless value", {0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 11},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct rpc_frame out = {.value = 99};
        int rc = rpc_frame_parse(bad[i].bytes, bad[i].len, &out);
        if (rc != -EPROTO || out.value != 99)
            fail_msg("%s: %d", bad[i].what, rc);
    }
}

static void limits_are_taken(void **state)
{
    (void)state;
    struct rpc_frame out;
    const uint8_t chunk[] = {0x02, 0x80, 0x80, 0x10, 0};
    assert_int_equal(rpc_frame_parse(chunk, sizeof chunk, &out), sizeof chunk);
    assert_int_equal(out.len, RPC_CHUNK_BYTES);
    const uint8_t id[] = {0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f};
    assert_int_equal(rpc_frame_parse(id, sizeof id, &out), sizeof id);
    assert_int_equal(out.id, UINT32_MAX);
}

/* Whatever the bytes, the answer is one of the three, within bounds (the sanitizer looks). */
static void noise_is_parsed_or_refused(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 3);
    for (int i = 0; i < 50000; i++) {
        uint8_t bytes[12];
        size_t n = (size_t)hw_rng_below(&rng, sizeof bytes + 1);
        for (size_t k = 0; k < n; k++)
            bytes[k] = (uint8_t)hw_rng_u64(&rng);
        struct rpc_frame out;
        int rc = rpc_frame_parse(bytes, n, &out);
        assert_true(rc == -EPROTO || (rc >= 0 && rc <= (int)n));
        if (rc > 0) {
            uint8_t again[RPC_FRAME_HEADER_MAX];
            assert_int_equal(rpc_frame_encode(&out, again), rc);
            assert_memory_equal(again, bytes, (size_t)rc);
        }
    }
}

static void error_codes_keep_their_numbers(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        int error;
    } codes[] = {
        {1, -EPERM},      {2, -ENOENT},      {3, -EIO},        {4, -ENOMEM},
        {5, -EACCES},     {8, -EINVAL},      {11, -ENOSYS},    {13, -EPROTO},
        {15, -ETIMEDOUT}, {16, -ECANCELED},  {18, -EUSERS},    {20, -ESHUTDOWN},
        {22, -EAGAIN},    {26, -ECONNRESET}, {28, -EREMOTEIO}, {29, -EPROTONOSUPPORT},
    };
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        assert_int_equal(rpc_error_to_wire(codes[i].error), codes[i].code);
        assert_int_equal(rpc_error_from_wire(codes[i].code), codes[i].error);
    }
}

static void unknown_errors_are_remote_io_errors(void **state)
{
    (void)state;
    assert_int_equal(rpc_error_from_wire(rpc_error_to_wire(-EXDEV)), -EREMOTEIO);
    assert_int_equal(rpc_error_from_wire(rpc_error_to_wire(5)), -EREMOTEIO);
    assert_int_equal(rpc_error_from_wire(0), -EREMOTEIO);
    assert_int_equal(rpc_error_from_wire(1000), -EREMOTEIO);
    assert_int_equal(rpc_error_from_wire(UINT32_MAX), -EREMOTEIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_bytes_hold),
        cmocka_unit_test(small_call_takes_four_bytes_of_framing),
        cmocka_unit_test(random_frames_come_back),
        cmocka_unit_test(cut_anywhere_more_is_asked_for),
        cmocka_unit_test(bytes_behind_the_header_are_not_read),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(limits_are_taken),
        cmocka_unit_test(noise_is_parsed_or_refused),
        cmocka_unit_test(error_codes_keep_their_numbers),
        cmocka_unit_test(unknown_errors_are_remote_io_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
