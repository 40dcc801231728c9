/* What all rows of bench-vulkan share: orders to the sides, and rows with their targets. */
#include "bench/vulkan/bench_vulkan.h"

#include "base/units.h"
#include "command/interrupt.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

enum { NAME_CHARS = 48 };

static const struct hw_bench_target targets[] = {
    {"cycle.unix", true, 1.3},         {"cycle.tcp", true, 1.3},
    {"cycle.1ms", true, 1.05, true},   {"cycle.10ms", true, 1.05, true},
    {"exchanges.tcp", true, 1},        {"fence-status.tcp", true, 0},
    {"upload.unix", false, 0.8},       {"upload.tcp", false, 0.8},
    {"upload.1Gbit", false, 0.8},      {"upload.10Gbit", false, 0.8},
    {"upload.25Gbit", false, 0.8},     {"two-clients.tcp", false, 0.95},
    {"four-clients.tcp", false, 0.95}, {"eight-clients.tcp", false, 0.95},
};

/* ---- orders ---- */

int bench_vk_order(struct bench_vk_run *r, struct bench_process *process,
                   const struct bench_order *what, struct bench_answer *answer)
{
    char why[BENCH_PROCESS_WHY] = "";
    int rc = cmd_interrupted() ? -EINTR : bench_process_do(process, what, answer, why);
    if (rc)
        snprintf(r->why, sizeof(r->why), "%s", why);
    return rc;
}

int bench_vk_order_all(struct bench_vk_run *r, struct bench_process *const *processes,
                       unsigned count, const struct bench_order *what, struct bench_answer *answers)
{
    char why[BENCH_PROCESS_WHY] = "";
    int rc = cmd_interrupted() ? -EINTR : 0;
    for (unsigned i = 0; i < count && rc == 0; i++)
        rc = bench_process_ask(processes[i], what, why);
    for (unsigned i = 0; i < count && rc == 0; i++)
        rc = bench_process_hear(processes[i], &answers[i], why);
    if (rc)
        snprintf(r->why, sizeof(r->why), "%s", why);
    return rc;
}

const char *bench_vk_raw_name(const struct bench_vk_site *site)
{
    return site->raw ? bench_link_raw_name(site->raw) : "our RPC to the same server";
}

/* ---- rows ---- */

void bench_vk_add_row(struct bench_vk_run *r, const char *kind, const char *site, double value,
                      const char *unit, double baseline, const char *against, double native)
{
    char name[NAME_CHARS], text[HW_FORMAT_CHARS];
    snprintf(name, sizeof(name), "%s.%s", kind, site);
    r->row_count++;
    hw_bench_row(&r->bench, name, value, unit, baseline);
    hw_bench_field(&r->bench, "against", "%s", against);
    if (isnan(native))
        hw_bench_field(&r->bench, "native", "-");
    else
        hw_bench_field(&r->bench, "native", "%s", hw_format_figure(text, native));
    hw_bench_judge(&r->bench, targets, ARRAY_LEN(targets));
}
