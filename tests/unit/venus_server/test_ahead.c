/* What follows an upload is received while it is stored: contents, order, pushes, and the end.  The
 * thread is forced on, whatever cores there are. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "duet.h"

enum { METHOD = 300, PIECE = 252 << 10, PIECES = 8, PUSHES = 200, BODY = 8 << 10 };

static struct duet duet;

static int start(void **state)
{
    (void)state;
    duet_start(&duet, RPC_WINDOW_MIN, 0);
    duet.channel.ahead.allowed = true;
    return 0;
}

static int end(void **state)
{
    (void)state;
    duet_end(&duet);
    return 0;
}

static void post(uint8_t *bytes, size_t len)
{
    struct iovec iov = {bytes, len};
    struct rpc_send send = {.method = METHOD, .iov = &iov, .iov_count = 1};
    assert_int_equal(rpc_client_post(duet.client, &send), 0);
}

/* Pieces, each full of its number, and a small message. */
static void *send_pieces(void *arg)
{
    static uint8_t piece[PIECE];
    (void)arg;
    for (int i = 0; i < PIECES; i++) {
        memset(piece, i + 1, sizeof(piece));
        post(piece, sizeof(piece));
    }
    post(piece, 1);
    assert_int_equal(rpc_client_flush(duet.client), 0);
    return NULL;
}

static void expect(size_t len, uint8_t value)
{
    struct rpc_msg *msg = vns_channel_receive(&duet.channel);
    assert_non_null(msg);
    assert_int_equal(msg->len, len);
    assert_int_equal(msg->data[0], value);
    assert_memory_equal(msg->data, msg->data + 1, len - 1);
    vns_channel_lock(&duet.channel);
    rpc_release(duet.ep, msg);
    vns_channel_unlock(&duet.channel);
}

/* Until the thread reads and so many bytes have come. */
static void wait_received(uint64_t bytes)
{
    const struct rpc_stats *stats = rpc_ep_stats(duet.ep);
    uint64_t end_ns = hw_now_ns() + DUET_PATIENCE_MS * HW_MS;
    bool reads = false;
    while (!reads || hw_counter_load(&stats->bytes_received) < bytes) {
        reads |= atomic_load(&duet.channel.ahead.reads);
        assert_true(hw_now_ns() < end_ns);
        sched_yield();
    }
}

static void what_follows_is_received_while_a_piece_is_stored(void **state)
{
    pthread_t sender;
    (void)state;
    assert_int_equal(pthread_create(&sender, NULL, send_pieces, NULL), 0);
    for (unsigned i = 0; i < PIECES; i++) {
        expect(PIECE, (uint8_t)(i + 1));
        vns_channel_upload_begin(&duet.channel);
        wait_received((uint64_t)PIECE * (i + 2 < PIECES ? i + 2 : PIECES));
        vns_channel_upload_end(&duet.channel);
    }
    expect(1, PIECES);
    pthread_join(sender, NULL);
}

static bool sleeps(void)
{
    vns_channel_lock(&duet.channel);
    bool is_asleep = duet.channel.ahead.sleeps;
    vns_channel_unlock(&duet.channel);
    return is_asleep;
}

static void a_thread_that_went_to_sleep_is_woken(void **state)
{
    uint8_t byte = 7;
    (void)state;
    for (int i = 0; i < 3; i++) {
        uint64_t end_ns = hw_now_ns() + DUET_PATIENCE_MS * HW_MS;
        vns_channel_upload_begin(&duet.channel);
        wait_received(0);
        vns_channel_upload_end(&duet.channel);
        while (!sleeps()) {
            assert_true(hw_now_ns() < end_ns);
            sched_yield();
        }
        post(&byte, 1);
        assert_int_equal(rpc_client_flush(duet.client), 0);
        expect(1, byte);
    }
}

static uint64_t awake_until(void)
{
    return atomic_load(&duet.channel.ahead.awake_until_ns);
}

static void an_upload_is_expected_behind_the_end_of_work_that_began_with_one(void **state)
{
    (void)state;
    vns_channel_told(&duet.channel);
    assert_int_equal(awake_until(), 0);
    uint64_t start_ns = hw_now_ns();
    vns_channel_upload_begin(&duet.channel);
    vns_channel_upload_end(&duet.channel);
    assert_int_equal(awake_until(), 0);
    vns_channel_told(&duet.channel);
    uint64_t until = awake_until();
    assert_true(until > start_ns);
    vns_channel_told(&duet.channel); /* of work without an upload */
    assert_int_equal(awake_until(), until);
}

static void without_cores_for_it_there_is_no_thread(void **state)
{
    (void)state;
    duet.channel.ahead.allowed = false;
    vns_channel_upload_begin(&duet.channel);
    vns_channel_upload_end(&duet.channel);
    assert_false(duet.channel.ahead.started);
}

static void *push_and_end_upload(void *arg)
{
    static uint8_t body[BODY];
    (void)arg;
    vns_channel_upload_begin(&duet.channel);
    wait_received(0);
    for (int i = 0; i < PUSHES; i++)
        assert_int_equal(vns_channel_send(&duet.channel, METHOD, body, sizeof(body)), 0);
    vns_channel_upload_end(&duet.channel);
    return NULL;
}

/* Credit for them arrives at the thread. */
static void pushes_pass_an_upload(void **state)
{
    pthread_t pusher;
    (void)state;
    assert_int_equal(pthread_create(&pusher, NULL, push_and_end_upload, NULL), 0);
    duet_wait(&duet, PUSHES);
    pthread_join(pusher, NULL);
}

static int status(void)
{
    vns_channel_lock(&duet.channel);
    int rc = rpc_ep_status(duet.ep);
    vns_channel_unlock(&duet.channel);
    return rc;
}

/* Of a message that no socket takes at once a part has come. */
static void a_client_that_goes_in_the_middle_of_one_is_noticed(void **state)
{
    static uint8_t piece[RPC_WINDOW_DEFAULT / 2];
    uint64_t end_ns = hw_now_ns() + DUET_PATIENCE_MS * HW_MS;
    (void)state;
    vns_channel_upload_begin(&duet.channel);
    post(piece, sizeof(piece));
    wait_received(1);
    rpc_client_destroy(duet.client);
    duet.client = NULL;
    while (status() == 0) {
        assert_true(hw_now_ns() < end_ns);
        sched_yield();
    }
    vns_channel_upload_end(&duet.channel);
    assert_null(vns_channel_receive(&duet.channel));
    assert_true(hw_counter_load(&rpc_ep_stats(duet.ep)->bytes_received) < sizeof(piece));
}

static void a_session_ends_right_after_an_upload(void **state)
{
    (void)state;
    vns_channel_upload_begin(&duet.channel);
    wait_received(0);
    vns_channel_upload_end(&duet.channel);
    vns_channel_end(&duet.channel, -EDQUOT, "enough");
    assert_true(duet.channel.reading); /* by nobody else any more */
    assert_false(atomic_load(&duet.channel.ahead.reads));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_follows_is_received_while_a_piece_is_stored, start,
                                        end),
        cmocka_unit_test_setup_teardown(a_thread_that_went_to_sleep_is_woken, start, end),
        cmocka_unit_test_setup_teardown(
            an_upload_is_expected_behind_the_end_of_work_that_began_with_one, start, end),
        cmocka_unit_test_setup_teardown(without_cores_for_it_there_is_no_thread, start, end),
        cmocka_unit_test_setup_teardown(pushes_pass_an_upload, start, end),
        cmocka_unit_test_setup_teardown(a_client_that_goes_in_the_middle_of_one_is_noticed, start,
                                        end),
        cmocka_unit_test_setup_teardown(a_session_ends_right_after_an_upload, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
