/* What a worker does with messages that are cut short, too long, or no messages at all. */
#include "rig.h"

#include "base/clock.h"
#include "page/broadcast/link.h"
#include "rpc/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const uint32_t ids[] = {5, 6, 9};
static const uint64_t hang_ns = 240 * HW_SEC;

static struct rpc_client *connect_to(struct rig *r, uint32_t rank)
{
    struct rpc_addr addr = {.scheme = RPC_SCHEME_UNIX};
    struct rpc_client *c;
    char why[RPC_WHY_CHARS];
    rig_socket(r, rank, addr.path);
    struct rpc_client_options options = {.config = {.heartbeat_ns = HW_NEVER}};
    if (rpc_client_connect(&addr, &(struct rpc_net_options){0}, &options, &c, why))
        fail_msg("%s", why);
    return c;
}

/* Sends bytes as a command; what the answer says. */
static int send_command(struct rpc_client *c, const void *bytes, size_t len)
{
    static struct page_answer decoded;
    struct iovec iov = {(void *)bytes, len};
    struct rpc_send send = {.method = PAGE_METHOD_COMMAND, .iov = &iov, .iov_count = len ? 1 : 0};
    struct rpc_answer answer = {0};
    assert_int_equal(rpc_client_call(c, &send, &answer), 0);
    assert_int_equal(page_answer_decode(answer.data, answer.len, 0, &decoded), 0);
    rpc_answer_fini(&answer);
    return decoded.outcome.why.rc;
}

static void commands_cut_short_or_too_long_change_nothing(void **state)
{
    (void)state;
    struct rig r;
    static struct page_command command;
    static uint8_t bytes[PAGE_COMMAND_BYTES_MAX + 64];
    struct wire_enc e;
    rig_start(&r, NULL, hang_ns);
    rig_map(&r, ids, 3);
    struct rpc_client *c = connect_to(&r, 1);
    command = (struct page_command){.op = PAGE_OP_UNMAP, .count = 3, .ids = {5, 6, 9}};
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    page_command_encode(&command, &e);
    for (size_t len = 0; len < wire_enc_len(&e); len++)
        assert_int_equal(send_command(c, bytes, len), -EPROTO);
    assert_int_equal(send_command(c, bytes, wire_enc_len(&e) + 1), -EPROTO);
    /* Well formed, but not from the scheduler that the worker obeys. */
    assert_int_equal(send_command(c, bytes, wire_enc_len(&e)), -ESTALE);
    wire_store32(bytes + 28, PAGE_BATCH_MAX + 1);
    assert_int_equal(send_command(c, bytes, PAGE_COMMAND_HEAD + 4 * (PAGE_BATCH_MAX + 1)),
                     -EMSGSIZE);
    rpc_client_destroy(c);
    rig_expect_mapped(&r, 3, 0);
    rig_unmap(&r, ids, 3);
    rig_stop(&r);
}

static void methods_and_descriptors_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r, NULL, hang_ns);
    struct rpc_client *c = connect_to(&r, 0);
    struct rpc_send unknown = {.method = 99};
    assert_int_equal(rpc_client_call(c, &unknown, NULL), -ENOSYS);
    struct rpc_send no_board = {.method = PAGE_METHOD_BOARD};
    assert_int_equal(rpc_client_call(c, &no_board, NULL), -EPROTO);
    int fd = STDERR_FILENO;
    struct rpc_send wrong_board = {.method = PAGE_METHOD_BOARD, .fds = &fd, .fd_count = 1};
    assert_int_equal(rpc_client_call(c, &wrong_board, NULL), -EPROTO);
    rpc_client_destroy(c);
    rig_map(&r, ids, 3);
    rig_stop(&r);
}

static void bytes_that_are_no_protocol_cost_the_others_nothing(void **state)
{
    (void)state;
    struct rig r;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char scrap[512];
    rig_start(&r, NULL, hang_ns);
    rig_socket(&r, 2, addr.sun_path);
    int silent = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rude = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(silent, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(connect(rude, (struct sockaddr *)&addr, sizeof addr), 0);
    memset(scrap, 0xee, sizeof scrap);
    assert_int_equal(send(rude, scrap, sizeof scrap, MSG_NOSIGNAL), sizeof scrap);
    rig_map(&r, ids, 3);
    rig_expect_mapped(&r, 3, 0);
    close(rude);
    close(silent);
    rig_unmap(&r, ids, 3);
    rig_stop(&r);
}

int main(void)
{
    setenv("VENUS_LOG_LEVEL", "NONE", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_cut_short_or_too_long_change_nothing),
        cmocka_unit_test(methods_and_descriptors_that_make_no_sense_are_refused),
        cmocka_unit_test(bytes_that_are_no_protocol_cost_the_others_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
