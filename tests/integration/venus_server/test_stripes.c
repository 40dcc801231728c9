/* Uploads over stripes against a real driver: bytes come out as they were sent; what a client does
 * wrong with stripes ends its session alone. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "harness.h"

enum {
    PAGE = 4096,
    BIG_BYTES = 640 << 10, /* five chunks */
    STRIPES_DIALLED_MAX = VN_STRIPES_MAX + 1,
};

static const char *const plain[] = {NULL};
static struct server server;

/* ---- stripes ---- */

struct stripes {
    uint8_t key[VN_STRIPE_KEY_BYTES];
    struct rpc_transport *stripes[STRIPES_DIALLED_MAX];
    unsigned count;
    uint32_t uploads;
};

static struct stripes stripes_with_key(uint8_t key)
{
    struct stripes l = {0};
    memset(l.key, key, sizeof(l.key));
    return l;
}

static int call_stripe(struct rpc_client *rpc, const void *key, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)key, len};
    struct rpc_send send = {.method = VN_METHOD_STRIPE,
                            .iov = &iov,
                            .iov_count = len ? 1 : 0,
                            .timeout_ns = PATIENCE_MS * HW_MS};
    return rpc_client_call(rpc, &send, NULL);
}

static struct rpc_client *connect_stripe(const struct rpc_security *security)
{
    char why[RPC_WHY_CHARS] = "";
    struct rpc_addr addr;
    struct rpc_client *rpc;
    if (!security)
        security = own_security();
    struct rpc_net_options net = {.security = security};
    struct rpc_client_options options = {
        .config = {.security = security, .heartbeat_ns = HW_NEVER}};
    assert_int_equal(rpc_addr_parse(server.address, &addr, why), 0);
    if (rpc_client_connect(&addr, &net, &options, &rpc, why))
        fail_msg("%s", why);
    return rpc;
}

static void stripes_take(struct stripes *l, struct rpc_client *rpc)
{
    l->stripes[l->count++] = rpc_client_strip(rpc);
}

static void stripes_dial(struct stripes *l, unsigned count, const struct rpc_security *security)
{
    for (unsigned i = 0; i < count; i++) {
        struct rpc_client *rpc = connect_stripe(security);
        assert_int_equal(call_stripe(rpc, l->key, sizeof(l->key)), 0);
        stripes_take(l, rpc);
    }
}

static void stripes_close(struct stripes *l)
{
    for (unsigned i = 0; i < l->count; i++)
        rpc_transport_destroy(l->stripes[i]);
    l->count = 0;
}

/* 0, or what ended the stripe. */
static int stripe_send(struct rpc_transport *t, const void *bytes, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)bytes, len};
    uint64_t start = hw_now_ns();
    while (iov.iov_len > 0) {
        ssize_t n = t->ops->send(t, &iov, 1);
        if (n < 0 && n != -EAGAIN)
            return (int)n;
        if (n == -EAGAIN)
            (void)t->ops->wait(t, RPC_WAIT_SEND, HW_SEC);
        assert_true(hw_now_ns() - start < PATIENCE_MS * HW_MS);
        iov.iov_base = (uint8_t *)iov.iov_base + (n > 0 ? n : 0);
        iov.iov_len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int stripe_send_head(struct rpc_transport *t, struct vn_chunk chunk)
{
    uint8_t head[VN_CHUNK_HEAD];
    vn_chunk_put(head, &chunk);
    return stripe_send(t, head, sizeof(head));
}

/* Chunks on the stripes in turn, from the last to the first, and the end. */
static void stripes_send(struct stripes *l, const uint8_t *bytes, uint64_t off, size_t len)
{
    uint32_t upload = ++l->uploads;
    unsigned stripe = l->count;
    for (size_t at = 0; at < len; at += VN_CHUNK_BYTES) {
        uint32_t part = len - at < VN_CHUNK_BYTES ? (uint32_t)(len - at) : VN_CHUNK_BYTES;
        stripe = (stripe ? stripe : l->count) - 1;
        assert_int_equal(
            stripe_send_head(l->stripes[stripe], (struct vn_chunk){upload, part, off + at}), 0);
        assert_int_equal(stripe_send(l->stripes[stripe], bytes + at, part), 0);
    }
    assert_int_equal(stripe_send_head(l->stripes[0], (struct vn_chunk){upload, 0, off}), 0);
}

static void put_spread(struct client *c, uint64_t memory, uint64_t off, uint64_t len)
{
    size_t hole = client_begin(c, VN_OP_SPREAD);
    wire_put_u64(&c->out, memory);
    wire_put_u64(&c->out, off);
    wire_put_u64(&c->out, len);
    client_finish(c, hole);
}

/* ---- a bench with stripes, and a large mapped memory ---- */

struct rig {
    struct bench b;
    struct stripes l;
    VkDeviceMemory memory;
    VkBuffer buffer;
    uint8_t *wanted; /* what the memory holds */
    struct hw_rng rng;
};

static void rig_open(struct rig *r, const struct rpc_security *security)
{
    r->b.with_features = false;
    client_connect(&r->b.c, server.address, security);
    memcpy(r->b.c.stripe_key, r->l.key, sizeof(r->l.key));
    assert_int_equal(client_open(&r->b.c), 0);
}

static void rig_make(struct rig *r, bool demand_paged)
{
    bench_make(&r->b);
    assert_int_equal(bench_allocate(&r->b, &r->memory, BIG_BYTES), VK_SUCCESS);
    bench_create_buffer(&r->b, &r->buffer, r->memory, BIG_BYTES);
    if (demand_paged)
        client_put_demand_paged(&r->b.c, r->memory);
    (void)client_map(&r->b.c, r->memory, BIG_BYTES);
    r->wanted = calloc(1, BIG_BYTES);
    assert_non_null(r->wanted);
    hw_rng_seed(&r->rng, r->l.count);
}

static void rig_start(struct rig *r, unsigned stripes, const struct rpc_security *security)
{
    r->l = stripes_with_key((uint8_t)(1 + stripes));
    stripes_dial(&r->l, stripes, security);
    rig_open(r, security);
    assert_int_equal(r->b.c.stripes, stripes);
    rig_make(r, false);
}

static void rig_end(struct rig *r)
{
    bench_end(&r->b);
    stripes_close(&r->l);
    free(r->wanted);
}

static void rig_fill(struct rig *r, uint64_t off, size_t len)
{
    for (size_t at = 0; at < len; at += sizeof(uint64_t)) {
        uint64_t word = hw_rng_u64(&r->rng);
        memcpy(r->wanted + off + at, &word, len - at < sizeof(word) ? len - at : sizeof(word));
    }
}

static void rig_upload(struct rig *r, uint64_t off, size_t len)
{
    rig_fill(r, off, len);
    put_spread(&r->b.c, vn_id(r->memory), off, len);
    client_post(&r->b.c);
    stripes_send(&r->l, r->wanted + off, off, len);
}

/* The device copies all of it, piece by piece, to where the client sees it. */
static void rig_compare(struct rig *r)
{
    struct bench *b = &r->b;
    for (uint64_t at = 0; at < BIG_BYTES; at += BUFFER_BYTES) {
        VkBufferCopy copy = {.srcOffset = at, .size = BUFFER_BYTES};
        size_t hole = bench_record(b, b->commands);
        vn_enc_cmd_vkCmdCopyBuffer(&b->c.out, b->commands, r->buffer, b->buffer, 1, &copy);
        bench_record_end(b, b->commands, hole);
        uint64_t number = bench_put_submit(b, b->commands);
        client_post(&b->c);
        assert_int_equal(client_wait_done(&b->c, b->queue, number), VK_SUCCESS);
        assert_memory_equal(b->share->bytes, r->wanted + at, BUFFER_BYTES);
    }
}

static void try_and_end(struct rig *r)
{
    rig_upload(r, 0, BIG_BYTES);
    rig_compare(r);
    rig_end(r);
    server_stop(&server);
}

/* Others never notice. */
static void expect_serving(void)
{
    struct bench b;
    bench_start(&b, &server);
    assert_int_equal(b.c.stripes, 0);
    assert_int_equal(bench_fill(&b, 0x600d600d), VK_SUCCESS);
    bench_end(&b);
    server_expect_sessions(&server, 0);
}

static void expect_ended(struct rig *r, const char *line)
{
    assert_true(client_wait_end(&r->b.c) < 0);
    server_expect_log(&server, line, 1);
    assert_int_equal(server_log_lines(&server, "session ended: "), 1);
    rig_end(r);
    server_expect_sessions(&server, 0);
    expect_serving();
    server_stop(&server);
}

/* ---- what arrives ---- */

static void upload_and_compare(const char *listen, const char *const *args,
                               const struct rpc_security *security)
{
    static const unsigned counts[] = {1, 3, VN_STRIPES_MAX};
    server_start(&server, listen, args);
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        struct rig r;
        rig_start(&r, counts[i], security);
        rig_upload(&r, 0, BIG_BYTES);
        rig_compare(&r);
        rig_upload(&r, 3 * PAGE, 40 * PAGE);
        rig_upload(&r, 30 * PAGE, 70 * PAGE + 99);
        rig_upload(&r, BIG_BYTES - PAGE, PAGE);
        rig_compare(&r);
        rig_end(&r);
        server_expect_sessions(&server, 0);
    }
    server_stop(&server);
    assert_int_equal(server_log_lines(&server, "session ended: "), 0);
}

static void uploads_arrive_over_unix(void **state)
{
    (void)state;
    upload_and_compare("unix:%s/s", plain, NULL);
}

static void uploads_arrive_over_tcp(void **state)
{
    (void)state;
    upload_and_compare("127.0.0.1:0", plain, NULL);
}

static void uploads_arrive_over_shm(void **state)
{
    (void)state;
    upload_and_compare("shm:%s/s", plain, NULL);
}

static void uploads_arrive_over_tls(void **state)
{
    struct keys keys;
    (void)state;
    keys_make(&keys);
    upload_and_compare("127.0.0.1:0", keys.args, &keys.security);
    keys_remove(&keys);
}

static void uploads_arrive_in_demand_paged_memory(void **state)
{
    struct rig r;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    r.l = stripes_with_key(1);
    stripes_dial(&r.l, 2, NULL);
    rig_open(&r, NULL);
    rig_make(&r, true);
    try_and_end(&r);
}

/* What a batch still reads is not overwritten by what comes after it in the stream, and many
 * uploads are sent before the first is executed. */
static void uploads_are_in_order_with_all_else(void **state)
{
    struct rig r;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    rig_start(&r, 2, NULL);
    struct bench *b = &r.b;
    for (int round = 0; round < 20; round++) {
        rig_upload(&r, 0, BUFFER_BYTES);
        VkBufferCopy copy = {.size = BUFFER_BYTES};
        size_t hole = bench_record(b, b->commands);
        vn_enc_cmd_vkCmdCopyBuffer(&b->c.out, b->commands, r.buffer, b->buffer, 1, &copy);
        bench_record_end(b, b->commands, hole);
        uint64_t number = bench_put_submit(b, b->commands);
        client_post(&b->c);
        assert_int_equal(client_wait_done(&b->c, b->queue, number), VK_SUCCESS);
        assert_memory_equal(b->share->bytes, r.wanted, BUFFER_BYTES);
    }
    for (uint64_t i = 0; i < 10; i++)
        rig_upload(&r, i * 4 * PAGE, 8 * PAGE);
    rig_compare(&r);
    rig_end(&r);
    server_stop(&server);
}

static void each_session_has_its_own_stripes(void **state)
{
    struct rig one, other;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    one.l = stripes_with_key(1);
    other.l = stripes_with_key(2);
    for (int i = 0; i < 3; i++) {
        stripes_dial(&one.l, 1, NULL);
        stripes_dial(&other.l, 1, NULL);
    }
    rig_open(&one, NULL);
    rig_open(&other, NULL);
    assert_int_equal(one.b.c.stripes, 3);
    assert_int_equal(other.b.c.stripes, 3);
    rig_make(&one, false);
    rig_make(&other, false);
    rig_upload(&one, 0, BIG_BYTES);
    rig_upload(&other, PAGE, BIG_BYTES / 2);
    rig_compare(&one);
    rig_compare(&other);
    rig_end(&one);
    rig_upload(&other, 0, BIG_BYTES);
    rig_compare(&other);
    rig_end(&other);
    server_expect_sessions(&server, 0);
    server_stop(&server);
}

/* What is written to memory that was not given is nothing, as in the stream. */
static void an_upload_to_void_memory_is_skipped(void **state)
{
    static const char *const args[] = {"--max-memory", "1MiB", NULL};
    struct rig r;
    VkDeviceMemory none;
    (void)state;
    server_start(&server, "unix:%s/s", args);
    rig_start(&r, 2, NULL);
    assert_int_equal(bench_allocate(&r.b, &none, 2 << 20), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    put_spread(&r.b.c, vn_id(none), 0, 2 * VN_CHUNK_BYTES);
    client_post(&r.b.c);
    stripes_send(&r.l, r.wanted, 0, 2 * VN_CHUNK_BYTES);
    try_and_end(&r);
}

static void uploads_are_in_the_metrics(void **state)
{
    static const char *const args[] = {"--metrics", "127.0.0.1:0", NULL};
    struct rig r;
    (void)state;
    server_start(&server, "unix:%s/s", args);
    rig_start(&r, 3, NULL);
    assert_int_equal(server_counter(&server, "hawser_server_clients"), 4);
    rig_upload(&r, 0, BIG_BYTES);
    client_sync(&r.b.c);
    rig_end(&r);
    server_expect_log(&server, "its session ended", 1);
    assert_true(server_counter(&server, "hawser_rpc_bytes_received_total") >= BIG_BYTES);
    assert_int_equal(server_counter(&server, "hawser_server_clients"), 0);
    server_stop(&server);
}

/* ---- which stripes a session has ---- */

/* Opens with the key of `l`; how many stripes the session has. */
static uint32_t stripes_of_session(const struct stripes *l)
{
    struct client c;
    client_connect(&c, server.address, NULL);
    memcpy(c.stripe_key, l->key, sizeof(l->key));
    assert_int_equal(client_open(&c), 0);
    uint32_t count = c.stripes;
    client_end(&c);
    server_expect_sessions(&server, 0);
    return count;
}

static void a_key_of_a_wrong_size_is_refused(void **state)
{
    static const uint8_t key[VN_STRIPE_KEY_BYTES + 1] = {9};
    struct rig r;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    struct rpc_client *rpc = connect_stripe(NULL);
    assert_int_equal(call_stripe(rpc, key, VN_STRIPE_KEY_BYTES - 1), -EPROTO);
    assert_int_equal(call_stripe(rpc, key, VN_STRIPE_KEY_BYTES + 1), -EPROTO);
    assert_int_equal(call_stripe(rpc, key, 0), -EPROTO);
    /* It lives, and may be a stripe yet. */
    r.l = stripes_with_key(4);
    assert_int_equal(call_stripe(rpc, r.l.key, sizeof(r.l.key)), 0);
    stripes_take(&r.l, rpc);
    rig_open(&r, NULL);
    assert_int_equal(r.b.c.stripes, 1);
    rig_make(&r, false);
    try_and_end(&r);
}

static void a_connection_is_one_stripe(void **state)
{
    struct rig r;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    struct stripes earlier = stripes_with_key(5);
    r.l = stripes_with_key(6);
    struct rpc_client *rpc = connect_stripe(NULL);
    assert_int_equal(call_stripe(rpc, earlier.key, sizeof(earlier.key)), 0);
    assert_int_equal(call_stripe(rpc, r.l.key, sizeof(r.l.key)), 0);
    assert_int_equal(call_stripe(rpc, r.l.key, sizeof(r.l.key)), 0);
    stripes_take(&r.l, rpc);
    assert_int_equal(stripes_of_session(&earlier), 0);
    rig_open(&r, NULL);
    assert_int_equal(r.b.c.stripes, 1);
    rig_make(&r, false);
    try_and_end(&r);
}

static void a_session_is_no_stripe_of_itself(void **state)
{
    struct bench b = {0};
    struct stripes l = stripes_with_key(7);
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    client_connect(&b.c, server.address, NULL);
    memcpy(b.c.stripe_key, l.key, sizeof(l.key));
    assert_int_equal(call_stripe(b.c.rpc, l.key, sizeof(l.key)), 0);
    assert_int_equal(client_open(&b.c), 0);
    assert_int_equal(b.c.stripes, 0);
    bench_make(&b);
    assert_int_equal(bench_fill(&b, 3), VK_SUCCESS);
    bench_end(&b);
    server_stop(&server);
}

static void no_key_has_no_stripes(void **state)
{
    struct stripes l = stripes_with_key(0);
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    stripes_dial(&l, 1, NULL);
    expect_serving();
    stripes_close(&l);
    server_stop(&server);
}

static void a_stripe_that_closes_before_the_session_is_none(void **state)
{
    struct rig r;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    struct stripes gone = stripes_with_key(8);
    r.l = stripes_with_key(8);
    stripes_dial(&gone, 1, NULL);
    stripes_dial(&r.l, 2, NULL);
    stripes_close(&gone);
    server_expect_log(&server, " left: ", 1);
    rig_open(&r, NULL);
    assert_int_equal(r.b.c.stripes, 2);
    rig_make(&r, false);
    try_and_end(&r);
}

static void more_stripes_than_a_session_may_have_wait_for_another(void **state)
{
    struct rig r;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    r.l = stripes_with_key(9);
    stripes_dial(&r.l, VN_STRIPES_MAX + 1, NULL);
    rig_open(&r, NULL);
    assert_int_equal(r.b.c.stripes, VN_STRIPES_MAX);
    struct stripes left = stripes_with_key(9);
    left.stripes[left.count++] = r.l.stripes[--r.l.count];
    rig_make(&r, false);
    rig_upload(&r, 0, BIG_BYTES);
    rig_compare(&r);
    rig_end(&r);
    server_expect_sessions(&server, 0);
    assert_int_equal(stripes_of_session(&left), 1);
    assert_int_equal(stripes_of_session(&left), 0);
    stripes_close(&left);
    server_stop(&server);
}

/* ---- what a client does wrong ---- */

static void an_upload_without_stripes_ends_the_session(void **state)
{
    struct rig r;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    rig_start(&r, 0, NULL);
    put_spread(&r.b.c, vn_id(r.memory), 0, VN_CHUNK_BYTES);
    client_post(&r.b.c);
    expect_ended(&r, "SPREAD: Protocol error");
}

static void spread_and_expect(uint64_t memory, uint64_t off, uint64_t len, const char *line)
{
    struct rig r;
    server_start(&server, "unix:%s/s", plain);
    rig_start(&r, 2, NULL);
    rig_upload(&r, 0, BIG_BYTES);
    put_spread(&r.b.c, memory ? memory : vn_id(r.memory), off, len);
    client_post(&r.b.c);
    expect_ended(&r, line);
}

static void an_upload_to_unknown_memory_ends_the_session(void **state)
{
    (void)state;
    spread_and_expect(9999, 0, PAGE, "SPREAD: No such file or directory");
}

static void an_upload_past_all_memory_ends_the_session(void **state)
{
    (void)state;
    spread_and_expect(0, UINT64_MAX - PAGE + 1, 2 * PAGE, "SPREAD: Protocol error");
}

/* The range is as the stripes say; the memory ends before. */
static void an_upload_past_its_memory_ends_the_session(void **state)
{
    static const uint64_t offs[] = {BIG_BYTES - PAGE, BIG_BYTES, UINT64_MAX - 4 * PAGE + 1};
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(offs); i++) {
        struct rig r;
        server_start(&server, "unix:%s/s", plain);
        rig_start(&r, 2, NULL);
        rig_upload(&r, 0, BIG_BYTES);
        put_spread(&r.b.c, vn_id(r.memory), offs[i / 2], 2 * PAGE);
        client_post(&r.b.c);
        assert_int_equal(
            stripe_send_head(r.l.stripes[i % 2], (struct vn_chunk){2, 2 * PAGE, offs[i / 2]}), 0);
        (void)stripe_send(r.l.stripes[i % 2], r.wanted, 2 * PAGE);
        expect_ended(&r, "SPREAD: Protocol error");
    }
}

static void an_upload_to_memory_that_is_not_mapped_ends_the_session(void **state)
{
    struct rig r;
    VkDeviceMemory memory;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    rig_start(&r, 1, NULL);
    assert_int_equal(bench_allocate(&r.b, &memory, BUFFER_BYTES), VK_SUCCESS);
    put_spread(&r.b.c, vn_id(memory), 0, PAGE);
    client_post(&r.b.c);
    assert_int_equal(stripe_send_head(r.l.stripes[0], (struct vn_chunk){1, PAGE, 0}), 0);
    (void)stripe_send(r.l.stripes[0], r.wanted, PAGE);
    expect_ended(&r, "SPREAD: No such file or directory");
}

static void a_stripe_that_sends_garbage_ends_the_session(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        struct rig r;
        uint8_t garbage[PAGE];
        memset(garbage, variant & 2 ? 0xff : 0, sizeof(garbage));
        server_start(&server, "127.0.0.1:0", plain);
        rig_start(&r, 2, NULL);
        rig_upload(&r, 0, BIG_BYTES);
        put_spread(&r.b.c, vn_id(r.memory), 0, PAGE);
        client_post(&r.b.c);
        (void)stripe_send(r.l.stripes[variant & 1], garbage, sizeof(garbage));
        expect_ended(&r, "SPREAD: Protocol error");
    }
}

static void a_stripe_that_closes_ends_the_session_with_the_next_upload(void **state)
{
    (void)state;
    for (unsigned stripe = 0; stripe < 2; stripe++) {
        struct rig r;
        server_start(&server, "unix:%s/s", plain);
        rig_start(&r, 2, NULL);
        rig_upload(&r, 0, BIG_BYTES);
        rig_compare(&r);
        rpc_transport_destroy(r.l.stripes[stripe]);
        r.l.stripes[stripe] = NULL;
        assert_int_equal(bench_fill(&r.b, 4), VK_SUCCESS);
        put_spread(&r.b.c, vn_id(r.memory), 0, PAGE);
        client_post(&r.b.c);
        expect_ended(&r, "SPREAD: Cannot send after transport endpoint shutdown");
    }
}

/* An upload that is never complete lasts as long as its client. */
static void a_client_that_leaves_in_the_middle_frees_its_session(void **state)
{
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    for (unsigned upload = 1; upload <= 2; upload++) {
        struct rig r;
        rig_start(&r, 2, NULL);
        put_spread(&r.b.c, vn_id(r.memory), 0, BIG_BYTES);
        client_post(&r.b.c);
        assert_int_equal(stripe_send_head(r.l.stripes[0], (struct vn_chunk){upload, PAGE, 0}), 0);
        assert_int_equal(stripe_send(r.l.stripes[0], r.wanted, PAGE / 2), 0);
        rig_end(&r);
        server_expect_sessions(&server, 0);
        expect_serving();
    }
    server_stop(&server);
}

static void upload_half_and_wait(int ready)
{
    struct rig r;
    rig_start(&r, 3, NULL);
    rig_upload(&r, 0, BIG_BYTES);
    put_spread(&r.b.c, vn_id(r.memory), 0, BIG_BYTES);
    client_post(&r.b.c);
    for (unsigned stripe = 0; stripe < 3; stripe++) {
        struct vn_chunk chunk = {2, 2 * PAGE, (uint64_t)stripe * 2 * PAGE};
        (void)stripe_send_head(r.l.stripes[stripe], chunk);
        (void)stripe_send(r.l.stripes[stripe], r.wanted, PAGE + stripe);
    }
    if (write(ready, "r", 1) == 1)
        pause();
}

static void a_killed_client_frees_its_session(void **state)
{
    (void)state;
    server_start(&server, "127.0.0.1:0", plain);
    server_outlives_client(&server, upload_half_and_wait);
    expect_serving();
    server_stop(&server);
}

/* ---- limits ---- */

/* Stripes count as clients, before and after they left, and until their session has ended. */
static void stripes_count_as_clients(void **state)
{
    static const char *const args[] = {"--max-clients", "4", NULL};
    (void)state;
    server_start(&server, "unix:%s/s", args);
    for (unsigned round = 1; round <= 3; round++) {
        struct rig r;
        struct rpc_addr addr;
        struct rpc_client *refused = NULL;
        struct rpc_client_options options = {0};
        struct rpc_net_options net = {0};
        char why[RPC_WHY_CHARS] = "";
        rig_start(&r, 3, NULL);
        rig_upload(&r, 0, BIG_BYTES);
        rig_compare(&r);
        assert_int_equal(rpc_addr_parse(server.address, &addr, why), 0);
        assert_int_equal(rpc_client_connect(&addr, &net, &options, &refused, why), -EUSERS);
        rig_end(&r);
        server_expect_log(&server, "its session ended", round);
    }
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uploads_arrive_over_unix),
        cmocka_unit_test(uploads_arrive_over_tcp),
        cmocka_unit_test(uploads_arrive_over_shm),
        cmocka_unit_test(uploads_arrive_over_tls),
        cmocka_unit_test(uploads_arrive_in_demand_paged_memory),
        cmocka_unit_test(uploads_are_in_order_with_all_else),
        cmocka_unit_test(each_session_has_its_own_stripes),
        cmocka_unit_test(an_upload_to_void_memory_is_skipped),
        cmocka_unit_test(uploads_are_in_the_metrics),
        cmocka_unit_test(a_key_of_a_wrong_size_is_refused),
        cmocka_unit_test(a_connection_is_one_stripe),
        cmocka_unit_test(a_session_is_no_stripe_of_itself),
        cmocka_unit_test(no_key_has_no_stripes),
        cmocka_unit_test(a_stripe_that_closes_before_the_session_is_none),
        cmocka_unit_test(more_stripes_than_a_session_may_have_wait_for_another),
        cmocka_unit_test(an_upload_without_stripes_ends_the_session),
        cmocka_unit_test(an_upload_to_unknown_memory_ends_the_session),
        cmocka_unit_test(an_upload_past_all_memory_ends_the_session),
        cmocka_unit_test(an_upload_past_its_memory_ends_the_session),
        cmocka_unit_test(an_upload_to_memory_that_is_not_mapped_ends_the_session),
        cmocka_unit_test(a_stripe_that_sends_garbage_ends_the_session),
        cmocka_unit_test(a_stripe_that_closes_ends_the_session_with_the_next_upload),
        cmocka_unit_test(a_client_that_leaves_in_the_middle_frees_its_session),
        cmocka_unit_test(a_killed_client_frees_its_session),
        cmocka_unit_test(stripes_count_as_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
