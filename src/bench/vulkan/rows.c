/* Rows of bench-vulkan: cycles and what they send, recording, polling, optimisations. */
#include "bench/vulkan/bench_vulkan.h"

#include "base/order.h"
#include "base/units.h"
#include "command/measure.h"
#include "rpc/methods.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    COUNT_MAX = 5000, /* cycles of a repetition */
    CALIBRATION_CYCLES = 8,
    DISPATCHES = 10000, /* of one recording: fifty times what a large model records for a token */
    PING_BYTES = 64,
};

const struct bench_vk_switch bench_vk_switches[BENCH_VK_SWITCHES] = {
    {"no_coalescing", BENCH_CHAIN},       {"no_pipelining", BENCH_CHAIN},
    {"no_transport_tuning", BENCH_CHAIN}, {"no_quiet_batches", BENCH_CHAIN},
    {"no_small_uploads", BENCH_CHAIN},    {"no_whole_pages", BENCH_UPLOAD},
    {"no_references", BENCH_STEP},        {"no_stripes", BENCH_UPLOAD},
};

/* ---- one side, once ---- */

/* How many repetitions of a job last about as long as they should. */
static int calibrate(struct bench_vk_run *r, struct bench_process *process,
                     struct bench_order *what)
{
    struct bench_answer answer;
    what->count = CALIBRATION_CYCLES;
    int rc = bench_vk_order(r, process, what, &answer);
    double fits = rc == 0 ? (double)r->time_ns / answer.median_ns : 0;
    what->count = fits > COUNT_MAX            ? COUNT_MAX
                  : fits < CALIBRATION_CYCLES ? CALIBRATION_CYCLES
                                              : (uint32_t)fits;
    return rc;
}

static int raw_rtt(struct bench_vk_run *r, struct bench_vk_site *site, double *us)
{
    uint8_t data[PING_BYTES] = {0};
    uint64_t elapsed = 0, count = site->kind == BENCH_VK_LONG ? 8 : 200;
    int rc;
    hw_hist_reset(&r->hist);
    if (site->raw) {
        struct bench_shot shot = {.size = PING_BYTES, .depth = 1, .count = count, .hist = &r->hist};
        rc = bench_link_raw_ping(site->raw, &shot, &elapsed);
    } else {
        struct measure_calls calls = {.method = RPC_METHOD_ECHO,
                                      .payload = data,
                                      .payload_len = sizeof(data),
                                      .expect_len = sizeof(data),
                                      .depth = 1,
                                      .count = count,
                                      .timeout_ns = site->peer.timeout_ns,
                                      .hist = &r->hist};
        rc = measure_calls(site->peer.ep, &calls, &elapsed);
    }
    *us = (double)hw_hist_percentile(&r->hist, 50) / 1e3;
    return rc;
}

/* ---- rows ---- */

static void add_counts(struct bench_vk_run *r, const struct bench_vk_site *site,
                       const struct hw_driver_counts *c, uint32_t cycles)
{
    const struct {
        const char *kind, *unit;
        uint64_t count;
    } rows[] = {
        {"exchanges", "a cycle", c->exchanges},
        {"messages", "a cycle", c->messages_sent + c->messages_received},
        {"writes", "a cycle", c->writes},
        {"bytes-up", "B a cycle", c->bytes_sent},
        {"bytes-down", "B a cycle", c->bytes_received},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        bench_vk_add_row(r, rows[i].kind, site->name, (double)rows[i].count / cycles, rows[i].unit,
                         NAN, "-", NAN);
}

int bench_vk_native_cycle(struct bench_vk_run *r)
{
    double us[BENCH_VK_REPS_MAX];
    struct bench_order what = {.job = BENCH_CYCLES};
    struct bench_answer answer;
    int rc = calibrate(r, &r->native, &what);
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        rc = bench_vk_order(r, &r->native, &what, &answer);
        us[i] = answer.median_ns / 1e3;
    }
    if (rc == 0)
        bench_vk_add_row(r, "cycle", "native", hw_median(us, r->reps), "us", NAN, "-", NAN);
    return rc;
}

/* Beside one round trip of the raw link and the same without a link. */
int bench_vk_cycle(struct bench_vk_run *r, struct bench_vk_site *site)
{
    double raw[BENCH_VK_REPS_MAX], native[BENCH_VK_REPS_MAX], ours[BENCH_VK_REPS_MAX];
    struct bench_order here = {.job = BENCH_CYCLES}, there = here;
    struct bench_answer answer = {0};
    int rc = calibrate(r, &site->process, &there);
    if (rc == 0 && r->has_native)
        rc = calibrate(r, &r->native, &here);
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        native[i] = 0;
        rc = raw_rtt(r, site, &raw[i]);
        if (rc == 0 && r->has_native) {
            rc = bench_vk_order(r, &r->native, &here, &answer);
            native[i] = answer.median_ns / 1e3;
        }
        if (rc == 0)
            rc = bench_vk_order(r, &site->process, &there, &answer);
        ours[i] = answer.median_ns / 1e3;
    }
    if (rc)
        return rc;
    char text[HW_FORMAT_CHARS];
    double local = r->has_native ? hw_median(native, r->reps) : NAN;
    double rtt = hw_median(raw, r->reps), value = hw_median(ours, r->reps);
    bench_vk_add_row(r, "cycle", site->name, value, "us", rtt + (r->has_native ? local : 0),
                     !r->has_native ? bench_vk_raw_name(site)
                     : site->raw    ? "raw round trip + native"
                                    : "our RPC's round trip + native",
                     local);
    hw_bench_field(&r->bench, "raw", "%s", hw_format_figure(text, rtt));
    hw_bench_field(&r->bench, "over_rtt", "%.3g", (value - (r->has_native ? local : 0)) / rtt);
    if (site->kind == BENCH_VK_TCP)
        add_counts(r, site, &answer.counts, there.count);
    return 0;
}

int bench_vk_polls(struct bench_vk_run *r, struct bench_vk_site *site)
{
    double waits[BENCH_VK_REPS_MAX], polls[BENCH_VK_REPS_MAX];
    struct bench_order wait = {.job = BENCH_CYCLES}, poll = {.job = BENCH_POLLS};
    struct bench_answer answer = {0};
    uint64_t looks = 0, messages = 0;
    char text[HW_FORMAT_CHARS];
    int rc = calibrate(r, &site->process, &wait);
    poll.count = wait.count;
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        rc = bench_vk_order(r, &site->process, &wait, &answer);
        waits[i] = answer.median_ns / 1e3;
        if (rc == 0)
            rc = bench_vk_order(r, &site->process, &poll, &answer);
        polls[i] = answer.median_ns / 1e3;
        looks += answer.looks;
        messages += answer.look_messages;
    }
    if (rc)
        return rc;
    bench_vk_add_row(r, "polled", site->name, hw_median(polls, r->reps), "us",
                     hw_median(waits, r->reps), "the same with vkWaitForFences", NAN);
    hw_bench_field(&r->bench, "looks", "%s",
                   hw_format_figure(text, (double)looks / (double)(r->reps * poll.count)));
    bench_vk_add_row(r, "fence-status", site->name, (double)messages, "messages", NAN, "-", NAN);
    hw_bench_field(&r->bench, "looks", "%llu", (unsigned long long)looks);
    return 0;
}

int bench_vk_record(struct bench_vk_run *r, struct bench_vk_site *site)
{
    double native[BENCH_VK_REPS_MAX], ours[BENCH_VK_REPS_MAX];
    struct bench_order what = {.job = BENCH_RECORD, .count = 4, .size = DISPATCHES};
    struct bench_answer answer = {0};
    int rc = 0;
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        if (r->has_native)
            rc = bench_vk_order(r, &r->native, &what, &answer);
        native[i] = DISPATCHES * 1e3 / answer.median_ns;
        if (rc == 0)
            rc = bench_vk_order(r, &site->process, &what, &answer);
        ours[i] = DISPATCHES * 1e3 / answer.median_ns;
    }
    if (rc)
        return rc;
    double local = r->has_native ? hw_median(native, r->reps) : NAN;
    bench_vk_add_row(r, "record", site->name, hw_median(ours, r->reps), "M/s", local,
                     r->has_native ? "native" : "-", local);
    return 0;
}

int bench_vk_dirty(struct bench_vk_run *r, struct bench_vk_site *site)
{
    double clean[BENCH_VK_REPS_MAX], dirty[BENCH_VK_REPS_MAX];
    struct bench_order without = {.job = BENCH_DIRTY},
                       with = {.job = BENCH_DIRTY, .size = BENCH_DIRTY_PAGES};
    struct bench_answer answer = {0}, base = {0};
    int rc = calibrate(r, &site->process, &with);
    without.count = with.count;
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        rc = bench_vk_order(r, &site->process, &without, &base);
        clean[i] = base.median_ns / 1e3;
        if (rc == 0)
            rc = bench_vk_order(r, &site->process, &with, &answer);
        dirty[i] = answer.median_ns / 1e3;
    }
    if (rc)
        return rc;
    char text[HW_FORMAT_CHARS];
    double pages = (double)with.count * BENCH_DIRTY_PAGES;
    bench_vk_add_row(r, "dirty-page", site->name,
                     (hw_median(dirty, r->reps) - hw_median(clean, r->reps)) / BENCH_DIRTY_PAGES,
                     "us", NAN, "-", NAN);
    double bytes = (double)answer.counts.bytes_sent - (double)base.counts.bytes_sent;
    hw_bench_field(&r->bench, "bytes", "%s", hw_format_figure(text, bytes / pages));
    return 0;
}

int bench_vk_chain(struct bench_vk_run *r, struct bench_vk_site *site)
{
    double native[BENCH_VK_REPS_MAX], early[BENCH_VK_REPS_MAX], late[BENCH_VK_REPS_MAX];
    struct bench_order here = {.job = BENCH_CHAIN}, there = here;
    struct bench_answer answer = {0}, with = {0}, without = {0};
    int rc = calibrate(r, &site->late, &there);
    if (rc == 0 && r->has_native)
        rc = calibrate(r, &r->native, &here);
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        if (r->has_native)
            rc = bench_vk_order(r, &r->native, &here, &answer);
        native[i] = answer.median_ns / 1e3;
        if (rc == 0)
            rc = bench_vk_order(r, &site->process, &there, &with);
        if (rc == 0)
            rc = bench_vk_order(r, &site->late, &there, &without);
        early[i] = with.median_ns / 1e3;
        late[i] = without.median_ns / 1e3;
    }
    if (rc)
        return rc;
    bench_vk_add_row(r, "early", site->name, hw_median(early, r->reps), "us",
                     hw_median(late, r->reps), "VENUS_PERF=no_early_fences",
                     r->has_native ? hw_median(native, r->reps) : NAN);
    hw_bench_field(&r->bench, "exchanges", "%.3g of %.3g",
                   (double)with.counts.exchanges / there.count,
                   (double)without.counts.exchanges / there.count);
    return 0;
}

/* The same job with each optimisation, and with that one turned off. */
static int row_switch(struct bench_vk_run *r, struct bench_vk_site *site, size_t which)
{
    double on[BENCH_VK_REPS_MAX], off[BENCH_VK_REPS_MAX];
    struct bench_order job = {.job = bench_vk_switches[which].job, .count = 1, .size = r->size};
    struct bench_answer with = {0}, without = {0};
    char label[64];
    bool uploads = job.job == BENCH_UPLOAD;
    int rc = uploads ? 0 : calibrate(r, &site->without[which], &job);
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        rc = bench_vk_order(r, &site->process, &job, &with);
        if (rc == 0)
            rc = bench_vk_order(r, &site->without[which], &job, &without);
        on[i] = with.median_ns / 1e3;
        off[i] = without.median_ns / 1e3;
    }
    if (rc)
        return rc;
    snprintf(label, sizeof(label), "VENUS_PERF=%s", bench_vk_switches[which].name);
    bench_vk_add_row(r, bench_vk_switches[which].name + strlen("no_"), site->name,
                     hw_median(on, r->reps), "us", hw_median(off, r->reps), label, NAN);
    hw_bench_field(&r->bench, "messages", "%.3g of %.3g",
                   (double)with.counts.messages_sent / job.count,
                   (double)without.counts.messages_sent / job.count);
    if (uploads)
        rc = bench_vk_forget(r, &site->process);
    return rc || !uploads ? rc : bench_vk_forget(r, &site->without[which]);
}

int bench_vk_optimisations(struct bench_vk_run *r, struct bench_vk_site *site)
{
    int rc = 0;
    for (size_t i = 0; i < BENCH_VK_SWITCHES && rc == 0; i++)
        rc = row_switch(r, site, i);
    return rc;
}
