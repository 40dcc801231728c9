/* What a hostile session says about time slices: the accounts stay whole, and another session that
 * wants the GPU gets it.
 *
 * A message is a byte for its kind and GPU, one for the time that passes before it, and two for how
 * busy it says it was; a longer gap, a kind or a GPU that there is not, too. */
#include <errno.h>
#include <string.h>

#include "fuzz.h"
#include "venus/server/slice/schedule.h"

enum { MESSAGE = 4, GPU = 0 };

static unsigned gone;
static struct vns_slice_member members[2];

static void go(void *user, struct vns_slice_member *member)
{
    (void)user;
    gone += member == &members[1];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vns_slice_board board;
    static struct vns_slice_tenant tenants[2];
    struct vns_schedule schedule;
    uint64_t now = HW_SEC;
    memset(&board, 0, sizeof(board));
    vns_schedule_init(&schedule, 10 * HW_MS, &board, go, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        tenants[i] = (struct vns_slice_tenant){.weight = 1 + 999 * i};
        members[i] = (struct vns_slice_member){.id = i + 1, .tenant = &tenants[i]};
        vns_schedule_join(&schedule, &members[i]);
    }
    gone = 0;
    for (; size >= MESSAGE; data += MESSAGE, size -= MESSAGE) {
        struct vns_slice_message m = {.op = data[0] & 7,
                                      .gpu = data[0] >> 3,
                                      .span_ns = (uint64_t)data[2] << (data[3] & 63),
                                      .busy_ns = (uint64_t)data[3] << (data[2] & 63),
                                      .stretches = data[3]};
        now += (uint64_t)data[1] * HW_MS;
        int rc = vns_schedule_handle(&schedule, &members[0], &m, now);
        require(rc == 0 || rc == -EPROTO);
        struct vns_slice_message busy = {VNS_SLICE_USED, GPU, HW_SEC, HW_SEC, 1};
        require(vns_schedule_handle(&schedule, &members[1], &busy, now) == 0);
        (void)vns_schedule_look(&schedule, now);
    }
    struct vns_slice_message want = {.op = VNS_SLICE_WANT, .gpu = GPU};
    unsigned before = gone;
    require(vns_schedule_handle(&schedule, &members[1], &want, now) == 0);
    /* Whatever it was charged, at most a slice of the other one's later it is its turn: that one's
     * weight is a thousandth. */
    for (int i = 0; i < 2000 && gone == before; i++)
        (void)vns_schedule_look(&schedule, now += 10 * HW_MS);
    require(gone > before);
    vns_schedule_leave(&schedule, &members[0], now);
    vns_schedule_leave(&schedule, &members[1], now);
    return 0;
}
