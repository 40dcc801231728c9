/* Rows of bench-vulkan: uploads and readbacks, beside a raw stream of as many bytes over the same
 * line. */
#include "bench/vulkan/bench_vulkan.h"

#include "base/order.h"
#include "command/measure.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum {
    STREAM_BYTES = 1 << 20, /* of one message of a raw stream */
    LINE_TURNS = 2,         /* transfers that share the time of a repetition on a narrow line */
};

/* Of one transfer: a narrow line is not kept busy for longer than the others. */
static uint64_t bytes_of(const struct bench_vk_run *r, const struct bench_vk_site *site)
{
    double carried = (double)site->line.bits_s / 8 * (double)r->time_ns / HW_SEC / LINE_TURNS;
    if (site->kind != BENCH_VK_RATE || carried >= (double)r->size)
        return r->size;
    uint64_t messages = (uint64_t)carried / STREAM_BYTES;
    return (messages ? messages : 1) * STREAM_BYTES;
}

static int raw_bandwidth(const struct bench_vk_site *site, uint64_t bytes, double *gb)
{
    uint64_t elapsed = 1, count = bytes / STREAM_BYTES;
    int rc;
    if (site->raw) {
        struct bench_shot shot = {.size = STREAM_BYTES, .depth = 1, .count = count};
        rc = bench_link_raw_stream(site->raw, &shot, &elapsed);
    } else {
        uint8_t *data = calloc(1, STREAM_BYTES);
        rc = data ? measure_upload(site->peer.ep, data, STREAM_BYTES, count, site->peer.timeout_ns,
                                   NULL, &elapsed)
                  : -ENOMEM;
        if (rc == 0)
            free(data); /* after a failure the endpoint may still refer to it */
    }
    *gb = (double)(count * STREAM_BYTES) / (double)(elapsed ? elapsed : 1);
    return rc;
}

static int transfer(struct bench_vk_run *r, struct bench_process *process,
                    const struct bench_order *what, double *gb)
{
    struct bench_answer answer;
    int rc = bench_vk_order(r, process, what, &answer);
    if (rc == 0)
        *gb = (double)what->size / answer.median_ns;
    return rc;
}

static int row_transfer(struct bench_vk_run *r, struct bench_vk_site *site, enum bench_job job)
{
    double raw[BENCH_VK_REPS_MAX], native[BENCH_VK_REPS_MAX], ours[BENCH_VK_REPS_MAX];
    struct bench_order what = {.job = job, .count = 1, .size = bytes_of(r, site)};
    int rc = 0;
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        rc = raw_bandwidth(site, what.size, &raw[i]);
        native[i] = 0;
        if (rc == 0 && r->has_native)
            rc = transfer(r, &r->native, &what, &native[i]);
        if (rc == 0)
            rc = transfer(r, &site->process, &what, &ours[i]);
    }
    if (rc == 0)
        bench_vk_add_row(r, job == BENCH_UPLOAD ? "upload" : "readback", site->name,
                         hw_median(ours, r->reps), "GB/s", hw_median(raw, r->reps),
                         bench_vk_raw_name(site), r->has_native ? hw_median(native, r->reps) : NAN);
    return rc;
}

int bench_vk_forget(struct bench_vk_run *r, struct bench_process *process)
{
    struct bench_order what = {.job = BENCH_FORGET, .count = 1};
    struct bench_answer answer;
    return bench_vk_order(r, process, &what, &answer);
}

int bench_vk_transfers(struct bench_vk_run *r, struct bench_vk_site *site)
{
    int rc = row_transfer(r, site, BENCH_UPLOAD);
    if (rc == 0)
        rc = row_transfer(r, site, BENCH_READBACK);
    if (rc == 0 && r->has_native)
        rc = bench_vk_forget(r, &r->native);
    return rc ? rc : bench_vk_forget(r, &site->process);
}
