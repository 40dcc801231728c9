/* Which commands a worker obeys: of one scheduler, in order, in time, once, and until cancelled. */
#include "unit.h"

#include "base/clock.h"
#include "folder.h"
#include "page/worker.h"

#include <errno.h>
#include <stdlib.h>

enum { EPOCH = 77, PAGES = 8, PAGE = 16 << 10 };

static char base[FOLDER_CHARS];
static struct page_worker *worker;
static struct page_command command;
static struct page_answer answer;

static int start(void **state)
{
    (void)state;
    struct page_error why;
    folder_make(base);
    struct page_worker_config config = {.base = base,
                                        .group = "g",
                                        .tensors = {.backend = &page_backend_host,
                                                    .device = {.memory_bytes = 2 * PAGES * PAGE},
                                                    .layers = 1,
                                                    .page_bytes = PAGE}};
    if (page_worker_create(&config, &worker, &why))
        fail_msg("%s", why.text);
    return 0;
}

static int end(void **state)
{
    (void)state;
    page_worker_destroy(worker);
    folder_remove(base);
    return 0;
}

/* Sends a command; what came back. */
static int send_command(enum page_op op, uint64_t epoch, uint64_t seq, uint64_t deadline,
                        uint32_t first, uint32_t count)
{
    static uint8_t bytes[PAGE_COMMAND_BYTES_MAX];
    struct wire_enc e;
    command.epoch = epoch;
    command.seq = seq;
    command.deadline = deadline;
    command.op = op;
    command.count = count;
    for (uint32_t i = 0; i < count; i++)
        command.ids[i] = first + i;
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    page_command_encode(&command, &e);
    page_worker_execute(worker, bytes, wire_enc_len(&e), &answer);
    assert_true(answer.began > 0 && answer.ended >= answer.began);
    return answer.outcome.why.rc;
}

static int reset(uint64_t epoch)
{
    return send_command(PAGE_OP_RESET, epoch, 0, HW_NEVER, 0, 0);
}

static int map(uint64_t seq, uint32_t first, uint32_t count)
{
    return send_command(PAGE_OP_MAP, EPOCH, seq, HW_NEVER, first, count);
}

static int unmap(uint64_t seq, uint32_t first, uint32_t count)
{
    return send_command(PAGE_OP_UNMAP, EPOCH, seq, HW_NEVER, first, count);
}

static int cancel(uint64_t seq)
{
    return send_command(PAGE_OP_CANCEL, EPOCH, seq, HW_NEVER, 0, 0);
}

static void it_obeys_the_scheduler_that_reset_it_last(void **state)
{
    (void)state;
    assert_int_equal(map(1, 0, 2), -ESTALE);
    assert_int_equal(reset(EPOCH), 0);
    assert_int_equal(map(1, 0, 2), 0);
    assert_int_equal(reset(EPOCH + 1), 0); /* and what was mapped is not any more */
    assert_int_equal(map(2, 0, 2), -ESTALE);
    assert_string_equal(answer.outcome.why.text, "another scheduler has taken over this worker");
    assert_int_equal(cancel(1), -ESTALE);
    assert_int_equal(reset(EPOCH), 0);
    assert_int_equal(map(1, 0, 2), 0);
}

static void a_command_is_executed_once_and_in_order(void **state)
{
    (void)state;
    assert_int_equal(reset(EPOCH), 0);
    assert_int_equal(map(5, 0, 1), 0);
    assert_int_equal(map(5, 1, 1), -ESTALE);
    assert_int_equal(map(4, 1, 1), -ESTALE);
    assert_int_equal(map(6, 0, 1), -EEXIST);
    assert_int_equal(answer.outcome.codes[0], PAGE_MAPPED_TWICE);
    assert_int_equal(map(6, 1, 1), -ESTALE); /* it failed, but it was executed */
    assert_int_equal(map(7, 1, 1), 0);
}

static void what_comes_too_late_is_not_executed(void **state)
{
    (void)state;
    assert_int_equal(reset(EPOCH), 0);
    assert_int_equal(send_command(PAGE_OP_MAP, EPOCH, 1, page_host_ns() - 1, 0, 1), -ETIMEDOUT);
    assert_int_equal(map(2, 0, 1), 0);
}

static void cancelling_takes_back_what_was_done_and_stops_what_was_not(void **state)
{
    (void)state;
    assert_int_equal(reset(EPOCH), 0);
    assert_int_equal(map(1, 0, 2), 0);
    assert_int_equal(cancel(1), 0);
    assert_int_equal(cancel(1), 0); /* asked twice, done once */
    assert_int_equal(map(2, 0, 2), 0);
    assert_int_equal(unmap(3, 0, 1), 0);
    assert_int_equal(cancel(3), 0);
    assert_int_equal(map(4, 0, 1), -EEXIST); /* mapped again */
    assert_int_equal(cancel(4), 0);          /* had failed: nothing to undo */
    assert_int_equal(cancel(6), 0);          /* has not come yet */
    assert_int_equal(unmap(6, 0, 1), -ESTALE);
    assert_int_equal(unmap(7, 0, 2), 0);
}

int main(void)
{
    setenv("VENUS_LOG_LEVEL", "NONE", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_obeys_the_scheduler_that_reset_it_last),
        cmocka_unit_test(a_command_is_executed_once_and_in_order),
        cmocka_unit_test(what_comes_too_late_is_not_executed),
        cmocka_unit_test(cancelling_takes_back_what_was_done_and_stops_what_was_not),
    };
    return cmocka_run_group_tests(tests, start, end);
}
