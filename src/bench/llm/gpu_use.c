#include "bench/llm/gpu_use.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

/* The few declarations of NVML that are used; its ABI is stable by the name of the library. */
struct utilization {
    unsigned gpu, memory;
};
typedef int init_fn(void);
typedef int count_fn(unsigned *count);
typedef int handle_fn(unsigned index, void **device);
typedef int utilization_fn(void *device, struct utilization *out);

/* ISO C has no cast from an object's address to a function's. */
static void find(void *library, const char *name, void *function, size_t size)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, size);
}

static void list_devices(struct gpu_use *use)
{
    count_fn *count_devices;
    handle_fn *handle;
    unsigned count = 0;
    find(use->library, "nvmlDeviceGetCount_v2", &count_devices, sizeof count_devices);
    find(use->library, "nvmlDeviceGetHandleByIndex_v2", &handle, sizeof handle);
    if (!count_devices || !handle || count_devices(&count))
        return;
    for (unsigned i = 0; i < count && use->device_count < GPU_USE_DEVICES_MAX; i++) {
        if (handle(i, &use->devices[use->device_count]) == 0)
            use->device_count++;
    }
}

void gpu_use_open(struct gpu_use *use)
{
    init_fn *init;
    *use = (struct gpu_use){.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (!use->library)
        return;
    find(use->library, "nvmlInit_v2", &init, sizeof init);
    if (init && init() == 0)
        list_devices(use);
}

void gpu_use_close(struct gpu_use *use)
{
    if (use->library)
        dlclose(use->library);
    *use = (struct gpu_use){0};
}

void gpu_use_reset(struct gpu_use *use)
{
    use->sum = 0;
    use->samples = 0;
}

void gpu_use_sample(struct gpu_use *use)
{
    utilization_fn *utilization;
    struct utilization now;
    if (!use->device_count)
        return;
    find(use->library, "nvmlDeviceGetUtilizationRates", &utilization, sizeof utilization);
    for (unsigned i = 0; utilization && i < use->device_count; i++) {
        if (utilization(use->devices[i], &now) == 0) {
            use->sum += now.gpu;
            use->samples++;
        }
    }
}

double gpu_use_mean(const struct gpu_use *use)
{
    return use->samples ? use->sum / (double)use->samples : NAN;
}
