/* bench/vulkan/job_process.h - a child process of bench-vulkan that runs GPU jobs with one driver.
 *
 * The environment chooses the driver, and a Vulkan loader reads it once.  So each driver that is
 * compared has a job process, forked before this process has opened any driver.  All job processes
 * live at the same time and work in turn, so that other load on the machine falls on all of them.
 *
 * Trust: both ends are ours.  Threads: one; start forks.  Lifetime: start/stop.
 * Errors: negative errno, with what the job process said in why. */
#ifndef HAWSER_BENCH_VULKAN_JOB_PROCESS_H
#define HAWSER_BENCH_VULKAN_JOB_PROCESS_H

#include "base/attr.h"
#include "base/driver_counts.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <vulkan/vulkan_core.h>

enum bench_job {
    BENCH_CYCLES,   /* record, submit, wait; 4 bytes written that the host sees */
    BENCH_POLLS,    /* the same, but looks at the fence until it is done */
    BENCH_RECORD,   /* recordings of `size` dispatches, not submitted */
    BENCH_UPLOAD,   /* `size` bytes: written into mapped memory, copied to the device */
    BENCH_READBACK, /* the same bytes back */
    BENCH_DIRTY,    /* cycles that read mapped memory, each after a write into `size` pages of it */
    BENCH_CHAIN,    /* upload, fence, compute, fence, read */
    BENCH_STEP,     /* the same with hundreds of dispatches, recorded again as they were */
    BENCH_BUSY,     /* a cycle of work that fills the device, `size` rounds of it */
    BENCH_FORGET,   /* frees what transfers used */
    BENCH_END
};

enum {
    BENCH_PROCESS_WHY = 256,
    BENCH_DIRTY_PAGES = 256, /* 1 MiB: more is a transfer */
};

struct bench_order {
    uint32_t job;
    uint32_t count; /* repetitions, at least 1 */
    uint64_t size;
    uint64_t until_ns; /* on hw_now_ns's clock: none begins later, but for the first; 0: no limit */
};

struct bench_answer {
    double median_ns;               /* of one repetition */
    uint64_t done;                  /* repetitions */
    uint64_t elapsed_ns;            /* from the begin of the first to the end of the last */
    uint64_t looks;                 /* BENCH_POLLS: calls of vkGetFenceStatus, all together */
    uint64_t look_messages;         /* and what was sent by them */
    struct hw_driver_counts counts; /* of all repetitions; zeros where the driver is not ours */
};

struct bench_process_params {
    const char *manifest; /* NULL: the drivers of this machine */
    const char *servers;  /* as VENUS_SERVERS, with manifest */
    const char *perf;     /* as VENUS_PERF, with manifest */
    bool far;             /* the server stands for one on another machine */
    uint32_t device;
};

struct bench_process {
    pid_t pid; /* 0: not running */
    int control;
    char device[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
};

/* 0 once the device is open. */
int bench_process_start(const struct bench_process_params *params, struct bench_process *out,
                        char why[BENCH_PROCESS_WHY]) MUST_CHECK;
int bench_process_do(struct bench_process *process, const struct bench_order *order,
                     struct bench_answer *answer, char why[BENCH_PROCESS_WHY]) MUST_CHECK;
/* The same in two steps, for job processes that work at the same time. */
int bench_process_ask(struct bench_process *process, const struct bench_order *order,
                      char why[BENCH_PROCESS_WHY]) MUST_CHECK;
int bench_process_hear(struct bench_process *process, struct bench_answer *answer,
                       char why[BENCH_PROCESS_WHY]) MUST_CHECK;
/* Harmless when not running. */
void bench_process_stop(struct bench_process *process);

#endif
