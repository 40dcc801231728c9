/* Rows of bench-vulkan: two programs and more at once, beside one alone.
 *
 * A GPU that two processes use is shared by its driver, which may give it to one for some
 * milliseconds before the other has its turn.  So the same is measured natively, and what is ours
 * is the difference. */
#include "bench/vulkan/bench_vulkan.h"

#include "base/clock.h"
#include "base/order.h"

#include <math.h>

/* Of work that fills the device: long beside a wake-up, short beside a repetition. */
#define BUSY_NS (5 * HW_MS)

enum { ROUNDS_MAX = 1 << 24 }; /* bounds the search; no device does so many in BUSY_NS */

/* Cycles a second over the repetitions: of one alone, of all together, and the slowest one's beside
 * the quickest one's and beside an even share. */
struct group {
    double alone[BENCH_VK_REPS_MAX], all[BENCH_VK_REPS_MAX];
    double share[BENCH_VK_REPS_MAX], even[BENCH_VK_REPS_MAX];
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

static void note(struct group *g, uint64_t i, const struct bench_answer *answers, unsigned count)
{
    double sum = 0, least = rate(&answers[0]), most = least;
    for (unsigned k = 0; k < count; k++) {
        double one = rate(&answers[k]);
        sum += one;
        least = one < least ? one : least;
        most = one > most ? one : most;
    }
    g->all[i] = sum;
    g->share[i] = least / most;
    g->even[i] = least * count / sum;
}

/* One repetition: the first alone for a while, then all for as long. */
static int measure_group(struct bench_vk_run *r, struct bench_process *const *processes,
                         unsigned count, struct bench_order what, struct group *g, uint64_t i)
{
    struct bench_answer answers[BENCH_VK_CLIENTS_MAX];
    what.count = UINT32_MAX;
    what.until_ns = hw_now_ns() + r->time_ns;
    int rc = bench_vk_order(r, processes[0], &what, &answers[0]);
    g->alone[i] = rc ? 0 : rate(&answers[0]);
    what.until_ns = hw_now_ns() + r->time_ns;
    if (rc == 0)
        rc = bench_vk_order_all(r, processes, count, &what, answers);
    if (rc == 0)
        note(g, i, answers, count);
    return rc;
}

static void add_group(struct bench_vk_run *r, const char *kind, const char *site, struct group *g,
                      double native)
{
    double all = hw_median(g->all, r->reps);
    bench_vk_add_row(r, kind, site, all, "cycles/s", hw_median(g->alone, r->reps),
                     "one program alone", native);
    hw_bench_field(&r->bench, "share", "%.2f", hw_median(g->share, r->reps));
    hw_bench_field(&r->bench, "even", "%.2f", hw_median(g->even, r->reps));
    if (!isnan(native))
        hw_bench_field(&r->bench, "to_native", "%.3g", all / native);
}

static int rows_of_two(struct bench_vk_run *r, struct bench_vk_site *site, const char *kind,
                       const struct bench_order *what)
{
    struct bench_process *const ours[2] = {&site->process, &site->others[0]};
    struct bench_process *const native[2] = {&r->native, &r->native_second};
    struct group here, there;
    int rc = 0;
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        if (r->has_native)
            rc = measure_group(r, native, 2, *what, &here, i);
        if (rc == 0)
            rc = measure_group(r, ours, 2, *what, &there, i);
    }
    if (rc)
        return rc;
    if (r->has_native)
        add_group(r, kind, "native", &here, NAN);
    add_group(r, kind, site->name, &there, r->has_native ? hw_median(here.all, r->reps) : NAN);
    return 0;
}

static int row_of_many(struct bench_vk_run *r, struct bench_vk_site *site, const char *kind,
                       unsigned count, const struct bench_order *what)
{
    struct bench_process *all[BENCH_VK_CLIENTS_MAX] = {&site->process};
    struct group g;
    int rc = 0;
    for (unsigned i = 1; i < count; i++)
        all[i] = &site->others[i - 1];
    for (uint64_t i = 0; i < r->reps && rc == 0; i++)
        rc = measure_group(r, all, count, *what, &g, i);
    if (rc == 0)
        add_group(r, kind, site->name, &g, NAN);
    return rc;
}

int bench_vk_two(struct bench_vk_run *r, struct bench_vk_site *site)
{
    struct bench_order busy = {.job = BENCH_BUSY}, tiny = {.job = BENCH_CYCLES};
    int rc = calibrate_busy(r, r->has_native ? &r->native : &site->process, &busy);
    if (rc == 0)
        rc = rows_of_two(r, site, "two-clients", &busy);
    return rc ? rc : rows_of_two(r, site, "two-tiny", &tiny);
}

int bench_vk_many(struct bench_vk_run *r, struct bench_vk_site *site)
{
    struct bench_order busy = {.job = BENCH_BUSY};
    int rc = calibrate_busy(r, r->has_native ? &r->native : &site->process, &busy);
    if (rc == 0)
        rc = row_of_many(r, site, "four-clients", 4, &busy);
    return rc ? rc : row_of_many(r, site, "eight-clients", BENCH_VK_CLIENTS_MAX, &busy);
}
