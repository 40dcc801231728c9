/* Rows of bench-vulkan: two programs at once, beside one alone.
 *
 * A GPU that two processes use is shared by its driver, which may give it to one for some
 * milliseconds before the other has its turn.  So the same is measured natively, and what is ours
 * is the difference. */
#include "bench/vulkan/bench_vulkan.h"

#include "base/clock.h"
#include "base/order.h"
#include "command/measure.h"

#include <math.h>

/* Of work that fills the device: long beside a wake-up, short beside a repetition. */
#define BUSY_NS (5 * HW_MS)

enum { ROUNDS_MAX = 1 << 24 }; /* bounds the search; no device does so many in BUSY_NS */

/* Cycles a second over the repetitions: of one alone, of both together, and the slower one's beside
 * the quicker one's. */
struct pair {
    double alone[BENCH_VK_REPS_MAX], both[BENCH_VK_REPS_MAX], share[BENCH_VK_REPS_MAX];
};

static double rate(const struct bench_answer *answer)
{
    return (double)answer->done * 1e9 / (double)answer->elapsed_ns;
}

/* The size of the work that lasts about BUSY_NS. */
static int calibrate_busy(struct bench_vk_run *r, struct bench_process *process,
                          struct bench_order *what)
{
    struct bench_order probe = {.job = BENCH_BUSY, .count = 3, .size = 1};
    struct bench_answer answer = {0};
    int rc = bench_vk_order(r, process, &probe, &answer);
    while (rc == 0 && answer.median_ns < BUSY_NS / 2 && probe.size < ROUNDS_MAX) {
        probe.size *= answer.median_ns < BUSY_NS / 16 ? 8 : 2;
        rc = bench_vk_order(r, process, &probe, &answer);
    }
    what->size = probe.size;
    return rc;
}

/* One repetition: the first alone for a while, then both for as long. */
static int measure_pair(struct bench_vk_run *r, struct bench_process *const processes[2],
                        struct bench_order what, struct pair *p, uint64_t i)
{
    struct bench_answer answers[2];
    what.count = UINT32_MAX;
    what.until_ns = hw_now_ns() + r->time_ns;
    int rc = bench_vk_order(r, processes[0], &what, &answers[0]);
    p->alone[i] = rc ? 0 : rate(&answers[0]);
    what.until_ns = hw_now_ns() + r->time_ns;
    if (rc == 0)
        rc = bench_vk_order_both(r, processes, &what, answers);
    if (rc)
        return rc;
    double first = rate(&answers[0]), second = rate(&answers[1]);
    p->both[i] = first + second;
    p->share[i] = first < second ? first / second : second / first;
    return 0;
}

static void add_pair(struct bench_vk_run *r, const char *kind, const char *site, struct pair *p,
                     double native)
{
    double both = hw_median(p->both, r->reps);
    bench_vk_add_row(r, kind, site, both, "cycles/s", hw_median(p->alone, r->reps),
                     "one program alone", native);
    hw_bench_field(&r->bench, "share", "%.2f", hw_median(p->share, r->reps));
    if (!isnan(native))
        hw_bench_field(&r->bench, "to_native", "%.3g", both / native);
}

static int rows_of_two(struct bench_vk_run *r, struct bench_vk_site *site, const char *kind,
                       const struct bench_order *what)
{
    struct bench_process *const ours[2] = {&site->process, &site->second};
    struct bench_process *const native[2] = {&r->native, &r->native_second};
    struct pair here, there;
    int rc = 0;
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        if (r->has_native)
            rc = measure_pair(r, native, *what, &here, i);
        if (rc == 0)
            rc = measure_pair(r, ours, *what, &there, i);
    }
    if (rc)
        return rc;
    if (r->has_native)
        add_pair(r, kind, "native", &here, NAN);
    add_pair(r, kind, site->name, &there, r->has_native ? hw_median(here.both, r->reps) : NAN);
    return 0;
}

int bench_vk_two(struct bench_vk_run *r, struct bench_vk_site *site)
{
    struct bench_order busy = {.job = BENCH_BUSY}, tiny = {.job = BENCH_CYCLES};
    int rc = calibrate_busy(r, r->has_native ? &r->native : &site->process, &busy);
    if (rc == 0)
        rc = rows_of_two(r, site, "two-clients", &busy);
    return rc ? rc : rows_of_two(r, site, "two-tiny", &tiny);
}
