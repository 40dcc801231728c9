/* The arbiter's thread and sessions' threads, all in one process: who waits goes on, also where
 * another session is stopped, says nonsense or ends. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "venus/server/slice/arbiter.h"
#include "venus/server/slice/slice.h"

enum { SESSIONS = 3, SLICED = 20 /* submissions of each while the GPU is sliced */ };

struct session {
    pthread_t executor, reporter;
    struct vns_slice *slice;
    _Atomic uint64_t pending;
    _Atomic unsigned sliced;
    atomic_bool stop;
};

static struct vns_slice_tenant tenant = {.weight = 1};

/* As long as a batch takes. */
static void nap(void)
{
    for (uint64_t end = hw_now_ns() + HW_MS / 2; hw_now_ns() < end;)
        (void)sched_yield();
}

/* A batch at a time is done. */
static void *report(void *arg)
{
    struct session *s = arg;
    while (!s->stop || s->pending) {
        nap();
        if (s->pending) {
            atomic_fetch_sub(&s->pending, 1);
            vns_slice_left(s->slice, &s->pending);
        }
        vns_slice_tell(s->slice);
    }
    return NULL;
}

/* Keeps the GPU busy. */
static void *execute(void *arg)
{
    struct session *s = arg;
    while (!s->stop) {
        if (atomic_fetch_add(&s->pending, 1) == 0)
            vns_slice_began(s->slice);
        if (vns_slice_is_on(s->slice, 0)) {
            if (!vns_slice_has(s->slice, 0))
                vns_slice_enter(s->slice, 0, 1, &s->pending);
            s->sliced++;
        }
        while (s->pending > 8) {
            if (vns_slice_is_watched(s->slice))
                vns_slice_rest(s->slice);
            nap();
        }
    }
    return NULL;
}

static struct vns_slice *join(struct vns_arbiter *arbiter, uint32_t id)
{
    struct vns_slice *slice;
    int socket = vns_arbiter_invite(arbiter, id, &tenant);
    assert_true(socket >= 0);
    assert_int_equal(vns_slice_create(socket, dup(vns_arbiter_board(arbiter)), id, &slice), 0);
    return slice;
}

static void test_all_go_on(void **state)
{
    (void)state;
    static struct session sessions[SESSIONS];
    static const struct vns_slice_message want = {.op = VNS_SLICE_WANT};
    struct vns_arbiter *arbiter;
    assert_int_equal(vns_arbiter_create(2 * HW_MS, &arbiter), 0);
    int stopped = vns_arbiter_invite(arbiter, 100, &tenant);
    int hostile = vns_arbiter_invite(arbiter, 101, &tenant);
    for (uint32_t i = 0; i < SESSIONS; i++)
        sessions[i].slice = join(arbiter, i + 1);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        assert_int_equal(pthread_create(&sessions[i].reporter, NULL, report, &sessions[i]), 0);
        assert_int_equal(pthread_create(&sessions[i].executor, NULL, execute, &sessions[i]), 0);
    }
    for (uint32_t i = 0; i < SESSIONS; i++) {
        while (sessions[i].sliced < SLICED) {
            (void)!send(stopped, &want, sizeof(want), MSG_DONTWAIT | MSG_NOSIGNAL);
            nap();
        }
    }
    assert_int_equal(send(hostile, "nonsense", 8, MSG_NOSIGNAL), 8);
    char byte;
    assert_int_equal(recv(hostile, &byte, 1, 0), 0); /* it is left out */
    unsigned before = sessions[0].sliced;
    close(stopped);
    while (sessions[0].sliced < before + SLICED)
        nap();
    for (uint32_t i = 0; i < SESSIONS; i++)
        sessions[i].stop = true;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        assert_int_equal(pthread_join(sessions[i].executor, NULL), 0);
        assert_int_equal(pthread_join(sessions[i].reporter, NULL), 0);
    }
    for (uint32_t i = 0; i < SESSIONS; i++)
        vns_slice_destroy(sessions[i].slice);
    close(hostile);
    vns_arbiter_destroy(arbiter);
    assert_true(atomic_load(&tenant.used_ns) > 0);
}

static void test_a_session_cannot_write_the_board(void **state)
{
    (void)state;
    struct vns_arbiter *arbiter;
    assert_int_equal(vns_arbiter_create(HW_MS, &arbiter), 0);
    int board = vns_arbiter_board(arbiter);
    assert_ptr_equal(
        mmap(NULL, sizeof(struct vns_slice_board), PROT_READ | PROT_WRITE, MAP_SHARED, board, 0),
        MAP_FAILED);
    assert_int_equal(pwrite(board, "1", 1, 0), -1);
    vns_arbiter_destroy(arbiter);
}

static void test_without_an_arbiter_nobody_waits(void **state)
{
    (void)state;
    struct vns_arbiter *arbiter;
    _Atomic uint64_t pending = 1;
    assert_int_equal(vns_arbiter_create(HW_MS, &arbiter), 0);
    struct vns_slice *slice = join(arbiter, 1);
    vns_arbiter_destroy(arbiter);
    vns_slice_began(slice);
    vns_slice_enter(slice, 0, 1, &pending);
    vns_slice_destroy(slice);
    assert_false(vns_slice_is_on(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_go_on),
        cmocka_unit_test(test_a_session_cannot_write_the_board),
        cmocka_unit_test(test_without_an_arbiter_nobody_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
