/* bench/llm/gpu_use.h - how busy the GPUs of this machine are, by NVIDIA's management library.
 *
 * The library is opened at run time; without it there are no figures.
 * Threads: one.  Lifetime: open/close; the struct is the caller's. */
#ifndef HAWSER_BENCH_LLM_GPU_USE_H
#define HAWSER_BENCH_LLM_GPU_USE_H

#include <stdbool.h>
#include <stdint.h>

enum { GPU_USE_DEVICES_MAX = 16 }; /* of one machine */

struct gpu_use {
    void *library; /* NULL: no figures */
    void *devices[GPU_USE_DEVICES_MAX];
    unsigned device_count;
    double sum;
    uint64_t samples;
};

void gpu_use_open(struct gpu_use *use);
void gpu_use_close(struct gpu_use *use);
/* Forgets the samples; takes one more; their mean in percent of all GPUs, NaN without any. */
void gpu_use_reset(struct gpu_use *use);
void gpu_use_sample(struct gpu_use *use);
double gpu_use_mean(const struct gpu_use *use);

#endif
