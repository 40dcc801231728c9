/* fuzz/venus_gpu.h - a driver without a GPU, on which a whole session of the server runs.
 *
 * It is the generated fake driver (unit/venus/support/fake.h), which reads every byte that it is
 * given, with memory, queues and timeline semaphores that work: memory is the host's, submissions
 * are done at once or after some waits, and done work writes to mapped memory.
 *
 * Each handle is a block of the heap until the session destroys it, so that a sanitizer sees the
 * server use one that it should have forgotten.  What a driver may count on is checked: memory is
 * mapped once, freed before its device and within the limit, and the server's own signals count up
 * by one.
 *
 * Trust: none in the session.
 * Threads: as Vulkan's; the generated part is for the executor only, like all calls below.
 * Lifetime: one at a time, start/stop. */
#ifndef HAWSER_FUZZ_VENUS_GPU_H
#define HAWSER_FUZZ_VENUS_GPU_H

#include "venus/server/session/driver.h"

enum {
    /* Of version 1.3, but for the second: of 1.1, and its devices lack some commands. */
    GPU_PHYSICAL_DEVICES = 3,
    GPU_MEMORY_TYPES = 3, /* not visible; coherent; visible only */
};

/* How the driver behaves from now on. */
struct gpu_mood {
    VkResult result; /* of commands that return one */
    uint32_t delay;  /* waits that time out before a submission is done */
    bool lost;       /* devices are lost once something is submitted */
};

void gpu_start(uint64_t memory_limit);
/* Frees what the session has left behind, which must not use it any more. */
void gpu_stop(void);

/* An instance as vns_instance_open makes it; its devices array is the caller's to free. */
void gpu_open(struct vns_instance *instance);

/* Also forgets the arguments and outputs of commands so far. */
void gpu_set_mood(const struct gpu_mood *mood);

/* A handle, as if a command had created it. */
void *gpu_make(uint32_t type);
/* The client destroyed the object behind a handle, or what it came from.  Devices, memory and
 * semaphores end by the driver's own functions, and nothing happens. */
void gpu_destroyed(uint32_t type, void *handle);

/* Ends the process when it does not hold. */
void gpu_require(bool holds);

#endif
