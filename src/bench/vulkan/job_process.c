#include "bench/vulkan/job_process.h"

#include "base/clock.h"
#include "base/hist.h"
#include "base/rng.h"
#include "bench/serve/child.h"
#include "bench/vulkan/gpu.h"
#include "command/drivers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    PAGE_BYTES = 64,       /* written in a page that is dirty: a cache line */
    CHAIN_BYTES = 4096,    /* uploaded in a chain: a row of a small model's embedding */
    STEP_DISPATCHES = 256, /* of a step: what a model of 16 layers records for a token */
    SHIFTS = 64, /* places in the source at which transfers begin, so that no two in a row are
                    alike in any page */
};

/* Answered to each order; the first time when the device is open. */
struct said {
    int32_t status;
    struct bench_answer answer;
    char device[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
    char why[BENCH_PROCESS_WHY];
};

struct state {
    struct bench_gpu gpu;
    struct hw_hist hist;
    uint32_t value;      /* of the last cycle */
    uint32_t input;      /* what the device adds to it */
    uint32_t recordings; /* that were not submitted */
    struct bench_buffer chain;
    struct bench_buffer dirty, dirty_copy;
    struct hw_rng rng; /* of what is written there */
    /* Of transfers, `transfer_bytes` each. */
    uint64_t transfer_bytes;
    uint8_t *source; /* and SHIFTS bytes more */
    struct bench_buffer staging, back, local[2];
    uint64_t uploads, readbacks;
    struct bench_answer answer; /* of the order under way */
};

static bool fail(struct state *s, const char *why)
{
    snprintf(s->gpu.why, sizeof(s->gpu.why), "%s", why);
    return false;
}

/* ---- cycles ---- */

static bool check(struct state *s)
{
    uint32_t found;
    memcpy(&found, s->gpu.out.map, sizeof(found));
    return found == s->input + s->value ||
           fail(s, "the device's result is not there after the wait");
}

static bool submit_work(struct state *s)
{
    if (!bench_gpu_begin(&s->gpu))
        return false;
    bench_gpu_put_work(&s->gpu, ++s->value);
    return bench_gpu_submit(&s->gpu);
}

static bool cycle(struct state *s, uint64_t size)
{
    (void)size;
    return submit_work(s) && bench_gpu_wait(&s->gpu) && check(s);
}

/* The generator of bench_busy.comp, so many steps at once: a step is x -> a x + c, and so are two.
 */
static uint32_t step_on(uint32_t x, uint64_t steps)
{
    uint32_t a = 1664525u, c = 1013904223u;
    for (; steps; steps >>= 1) {
        x = steps & 1 ? a * x + c : x;
        c = a * c + c;
        a *= a;
    }
    return x;
}

static bool busy_cycle(struct state *s, uint64_t rounds)
{
    uint32_t found, expected = step_on(s->input + ++s->value, rounds);
    if (!bench_gpu_begin(&s->gpu))
        return false;
    bench_gpu_put_busy(&s->gpu, s->value, (uint32_t)rounds);
    if (!bench_gpu_submit(&s->gpu) || !bench_gpu_wait(&s->gpu))
        return false;
    memcpy(&found, s->gpu.out.map, sizeof(found));
    return found == expected || fail(s, "the device's work has a wrong result");
}

static void count(const struct state *s, struct hw_driver_counts *out)
{
    *out = (struct hw_driver_counts){0};
    if (s->gpu.counts)
        s->gpu.counts(s->gpu.device, out);
}

static bool polled_cycle(struct state *s, uint64_t size)
{
    struct hw_driver_counts before, after;
    VkResult result;
    (void)size;
    if (!submit_work(s))
        return false;
    count(s, &before);
    do {
        result = s->gpu.vkGetFenceStatus(s->gpu.device, s->gpu.fence);
        s->answer.looks++;
    } while (result == VK_NOT_READY);
    count(s, &after);
    s->answer.look_messages += after.messages_sent - before.messages_sent;
    return bench_gpu_ok(&s->gpu, result, "vkGetFenceStatus") && check(s);
}

/* No two recordings are the same: that would be less work. */
static bool record(struct state *s, uint64_t dispatches)
{
    if (!bench_gpu_begin(&s->gpu))
        return false;
    bench_gpu_put_work(&s->gpu, ++s->recordings);
    for (uint64_t i = 1; i < dispatches; i++)
        s->gpu.vkCmdDispatch(s->gpu.commands, 1, 1, 1);
    return bench_gpu_ok(&s->gpu, s->gpu.vkEndCommandBuffer(s->gpu.commands), "vkEndCommandBuffer");
}

/* What nothing on the way can make smaller. */
static void put_noise(struct hw_rng *rng, uint8_t *data, uint64_t bytes)
{
    for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
        uint64_t word = hw_rng_u64(rng);
        memcpy(data + at, &word, sizeof(word));
    }
}

static bool prepare_dirty(struct state *s, uint64_t pages)
{
    (void)pages;
    return s->dirty.handle ||
           (bench_gpu_buffer(&s->gpu, BENCH_DIRTY_PAGES * PAGE, true, &s->dirty) &&
            bench_gpu_buffer(&s->gpu, BENCH_DIRTY_PAGES * PAGE, false, &s->dirty_copy));
}

/* The device reads all of the pages, written or not: what it does not read need not travel. */
static bool dirty_cycle(struct state *s, uint64_t pages)
{
    for (uint64_t i = 0; i < pages && i < BENCH_DIRTY_PAGES; i++)
        put_noise(&s->rng, s->dirty.map + i * PAGE, PAGE_BYTES);
    if (!bench_gpu_begin(&s->gpu))
        return false;
    bench_gpu_put_copy(&s->gpu, &s->dirty, &s->dirty_copy);
    bench_gpu_put_work(&s->gpu, ++s->value);
    return bench_gpu_submit(&s->gpu) && bench_gpu_wait(&s->gpu) && check(s);
}

static bool prepare_chain(struct state *s, uint64_t size)
{
    (void)size;
    return s->chain.handle || bench_gpu_buffer(&s->gpu, CHAIN_BYTES, true, &s->chain);
}

static bool put_input(struct state *s)
{
    struct bench_gpu *g = &s->gpu;
    s->input += 2654435761u;
    for (size_t at = 0; at < CHAIN_BYTES; at += sizeof(s->input))
        memcpy(s->chain.map + at, &s->input, sizeof(s->input));
    if (!bench_gpu_begin(g))
        return false;
    bench_gpu_put_copy(g, &s->chain, &g->in);
    return bench_gpu_submit(g) && bench_gpu_wait(g);
}

/* What programs do for each step: new input up, its fence, the work, its fence, the result. */
static bool chain(struct state *s, uint64_t size)
{
    (void)size;
    return put_input(s) && submit_work(s) && bench_gpu_wait(&s->gpu) && check(s);
}

static bool long_work(struct state *s)
{
    struct bench_gpu *g = &s->gpu;
    if (!bench_gpu_begin(g))
        return false;
    for (int i = 0; i < STEP_DISPATCHES; i++)
        bench_gpu_put_work(g, s->value);
    return bench_gpu_submit(g) && bench_gpu_wait(g) && check(s);
}

/* The same with work that is recorded in the same words each time. */
static bool step(struct state *s, uint64_t size)
{
    (void)size;
    return put_input(s) && long_work(s);
}

/* ---- transfers ---- */

static bool forget(struct state *s, uint64_t size)
{
    (void)size;
    bench_gpu_drop(&s->gpu, &s->staging);
    bench_gpu_drop(&s->gpu, &s->back);
    bench_gpu_drop(&s->gpu, &s->local[0]);
    bench_gpu_drop(&s->gpu, &s->local[1]);
    free(s->source);
    s->source = NULL;
    s->transfer_bytes = s->uploads = s->readbacks = 0;
    return true;
}

/* The fence may be early; the cycle behind it is not: when that is done, the bytes are there. */
static bool upload(struct state *s, uint64_t bytes)
{
    struct bench_gpu *g = &s->gpu;
    memcpy(s->staging.map, s->source + s->uploads % SHIFTS, bytes);
    if (!bench_gpu_begin(g))
        return false;
    bench_gpu_put_copy(g, &s->staging, &s->local[s->uploads++ % 2]);
    return bench_gpu_submit(g) && bench_gpu_wait(g) && cycle(s, 0);
}

/* From the two buffers in turn, so that every page differs from what was there. */
static bool readback(struct state *s, uint64_t bytes)
{
    struct bench_gpu *g = &s->gpu;
    (void)bytes;
    if (!bench_gpu_begin(g))
        return false;
    bench_gpu_put_copy(g, &s->local[s->readbacks++ % 2], &s->back);
    return bench_gpu_submit(g) && bench_gpu_wait(g);
}

/* Once each way before anything is timed: memory that was never touched is another matter. */
static bool prepare_transfers(struct state *s, uint64_t bytes)
{
    struct bench_gpu *g = &s->gpu;
    if (s->transfer_bytes == bytes)
        return true;
    (void)forget(s, 0);
    s->transfer_bytes = bytes;
    s->source = malloc(bytes + SHIFTS);
    if (!s->source)
        return fail(s, "out of memory");
    put_noise(&s->rng, s->source, bytes + SHIFTS);
    return bench_gpu_buffer(g, bytes, true, &s->staging) &&
           bench_gpu_buffer(g, bytes, true, &s->back) &&
           bench_gpu_buffer(g, bytes, false, &s->local[0]) &&
           bench_gpu_buffer(g, bytes, false, &s->local[1]) && upload(s, bytes) &&
           upload(s, bytes) && readback(s, bytes);
}

static bool check_readback(struct state *s, uint64_t bytes)
{
    uint64_t from = (s->readbacks - 1) % 2; /* which buffer that was */
    uint64_t last = s->uploads - 1;         /* and which upload filled it */
    uint64_t upload_of = last % 2 == from ? last : last - 1;
    return memcmp(s->back.map, s->source + upload_of % SHIFTS, bytes) == 0 ||
           fail(s, "what came back is not what went up");
}

/* ---- orders ---- */

static bool nothing(struct state *s, uint64_t size)
{
    (void)s;
    (void)size;
    return true;
}

typedef bool job_fn(struct state *s, uint64_t size);

/* Only `once` is timed. */
static const struct {
    job_fn *prepare, *once, *verify;
} jobs[BENCH_END] = {
    [BENCH_CYCLES] = {nothing, cycle, nothing},
    [BENCH_POLLS] = {nothing, polled_cycle, nothing},
    [BENCH_RECORD] = {nothing, record, cycle}, /* the server has all of it before the next */
    [BENCH_UPLOAD] = {prepare_transfers, upload, nothing},
    [BENCH_READBACK] = {prepare_transfers, readback, check_readback},
    [BENCH_DIRTY] = {prepare_dirty, dirty_cycle, nothing},
    [BENCH_CHAIN] = {prepare_chain, chain, nothing},
    [BENCH_STEP] = {prepare_chain, step, nothing},
    [BENCH_BUSY] = {nothing, busy_cycle, nothing},
    [BENCH_FORGET] = {nothing, forget, nothing},
};

static bool obey(struct state *s, const struct bench_order *o)
{
    struct hw_driver_counts before, after;
    uint64_t until = o->until_ns ? o->until_ns : HW_NEVER;
    s->answer = (struct bench_answer){0};
    hw_hist_reset(&s->hist);
    if (!jobs[o->job].prepare(s, o->size))
        return false;
    count(s, &before);
    uint64_t start = hw_now_ns(), begun = start;
    for (uint32_t i = 0; i < o->count && (i == 0 || begun < until); i++) {
        if (!jobs[o->job].once(s, o->size))
            return false;
        hw_hist_record(&s->hist, hw_now_ns() - begun);
        if (!jobs[o->job].verify(s, o->size))
            return false;
        s->answer.done++;
        begun = hw_now_ns();
    }
    s->answer.elapsed_ns = begun - start;
    count(s, &after);
    s->answer.median_ns = (double)hw_hist_percentile(&s->hist, 50);
    s->answer.counts = (struct hw_driver_counts){
        .exchanges = after.exchanges - before.exchanges,
        .messages_sent = after.messages_sent - before.messages_sent,
        .messages_received = after.messages_received - before.messages_received,
        .writes = after.writes - before.writes,
        .reads = after.reads - before.reads,
        .bytes_sent = after.bytes_sent - before.bytes_sent,
        .bytes_received = after.bytes_received - before.bytes_received,
    };
    return true;
}

/* ---- the process ---- */

static bool say(const struct state *s, int control, bool ok)
{
    struct said said = {.status = ok ? 0 : -EIO, .answer = s->answer};
    memcpy(said.device, s->gpu.name, sizeof(said.device));
    snprintf(said.why, sizeof(said.why), "%s", s->gpu.why);
    return send(control, &said, sizeof(said), MSG_NOSIGNAL) == (ssize_t)sizeof(said) && ok;
}

static void choose_driver(const struct bench_process_params *params)
{
    if (!params->manifest)
        return;
    cmd_use_manifest(params->manifest);
    setenv("VENUS_SERVERS", params->servers, 1);
    setenv("VENUS_PERF", params->perf, 1);
    if (params->far) { /* as it is to another machine */
        setenv("VENUS_COMPRESS", "1", 1);
        setenv("VENUS_UPLOAD_STRIPES", "0", 1);
    }
    setenv("VENUS_UPLOAD_CACHE", "0", 1); /* transfers are measured, not what spares them */
}

/* In the child; never returns. */
static void job_process(const struct bench_process_params *params, int control)
{
    struct state *s = calloc(1, sizeof(*s));
    struct bench_order order;
    signal(SIGINT, SIG_IGN); /* the parent ends us, in order */
    if (!s || hw_hist_init(&s->hist))
        _exit(1);
    hw_rng_seed(&s->rng, 1);
    choose_driver(params);
    bool going = say(s, control, bench_gpu_open(&s->gpu, params->device));
    while (going && recv(control, &order, sizeof(order), MSG_WAITALL) == (ssize_t)sizeof(order) &&
           order.job < BENCH_END)
        going = say(s, control, obey(s, &order));
    if (going) {
        (void)forget(s, 0);
        bench_gpu_drop(&s->gpu, &s->chain);
        bench_gpu_drop(&s->gpu, &s->dirty);
        bench_gpu_drop(&s->gpu, &s->dirty_copy);
        bench_gpu_close(&s->gpu);
    }
    /* Not exit: the exit handlers of a driver are no part of a measurement. */
    _exit(going ? 0 : 1);
}

static int hear(struct bench_process *w, struct said *said, char why[BENCH_PROCESS_WHY])
{
    if (recv(w->control, said, sizeof(*said), MSG_WAITALL) != (ssize_t)sizeof(*said)) {
        snprintf(why, BENCH_PROCESS_WHY, "the driver ended the process that measures it");
        return -EPIPE;
    }
    if (said->status)
        snprintf(why, BENCH_PROCESS_WHY, "%.*s", BENCH_PROCESS_WHY - 1, said->why);
    return said->status;
}

int bench_process_start(const struct bench_process_params *params, struct bench_process *out,
                        char why[BENCH_PROCESS_WHY])
{
    int control[2];
    struct said said;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control)) {
        snprintf(why, BENCH_PROCESS_WHY, "no socket: %s", strerror(errno));
        return -errno;
    }
    pid_t pid = bench_fork();
    if (pid == 0) {
        close(control[0]);
        job_process(params, control[1]);
    }
    close(control[1]);
    if (pid < 0) {
        snprintf(why, BENCH_PROCESS_WHY, "no process: %s", strerror(errno));
        close(control[0]);
        return -EAGAIN;
    }
    struct bench_process process = {.pid = pid, .control = control[0]};
    int rc = hear(&process, &said, why);
    if (rc) {
        bench_process_stop(&process);
        return rc;
    }
    memcpy(process.device, said.device, sizeof(process.device));
    *out = process;
    return 0;
}

int bench_process_ask(struct bench_process *w, const struct bench_order *order,
                      char why[BENCH_PROCESS_WHY])
{
    if (send(w->control, order, sizeof(*order), MSG_NOSIGNAL) == (ssize_t)sizeof(*order))
        return 0;
    snprintf(why, BENCH_PROCESS_WHY, "the process that measures a driver has ended");
    return -EPIPE;
}

int bench_process_hear(struct bench_process *w, struct bench_answer *answer,
                       char why[BENCH_PROCESS_WHY])
{
    struct said said;
    int rc = hear(w, &said, why);
    if (rc == 0)
        *answer = said.answer;
    return rc;
}

int bench_process_do(struct bench_process *w, const struct bench_order *order,
                     struct bench_answer *answer, char why[BENCH_PROCESS_WHY])
{
    int rc = bench_process_ask(w, order, why);
    return rc ? rc : bench_process_hear(w, answer, why);
}

void bench_process_stop(struct bench_process *w)
{
    struct bench_order end = {.job = BENCH_END};
    if (w->pid <= 0)
        return;
    /* One that is in the middle of something, or gone, does not hear it. */
    if (send(w->control, &end, sizeof(end), MSG_NOSIGNAL) != (ssize_t)sizeof(end))
        kill(w->pid, SIGKILL);
    close(w->control);
    waitpid(w->pid, NULL, 0);
    *w = (struct bench_process){0};
}
