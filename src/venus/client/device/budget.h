/* venus/client/device/budget.h - what the driver last said of its memory's budgets, for a moment.
 *
 * A program asks several times in a row (llama.cpp twice, then three times), or before each buffer
 * that it creates (wgpu), and each question is a round trip.  So an answer is good for a moment, or
 * until the program allocates or frees memory of the device.  docs/design/vulkan.md says why that
 * is fresh enough.
 *
 * Trust: the driver's figures.
 * Threads: any.  Lifetime: init/fini. */
#ifndef HAWSER_VENUS_CLIENT_DEVICE_BUDGET_H
#define HAWSER_VENUS_CLIENT_DEVICE_BUDGET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <vulkan/vulkan_core.h>

#include "base/attr.h"

/* What other programs did within it is missed.  Figures that a program compares were seldom nearer
 * to each other without us. */
#define VNC_BUDGET_NS UINT64_C(10000000)
/* Over a long line so many times what the question took, so that a program that asks again and
 * again waits for a part of the time only; but no longer than the second. */
#define VNC_BUDGET_TIMES 16
#define VNC_BUDGET_MOST_NS UINT64_C(250000000)

struct vnc_budget {
    /* Relaxed: the thread that allocates is the one that then asks, or has told it. */
    _Atomic uint64_t changes;
    pthread_mutex_t lock; /* guards the rest */
    VkPhysicalDeviceMemoryBudgetPropertiesEXT known;
    uint64_t changes_then; /* when it was asked for */
    uint64_t asked_ns;     /* 0: never */
    uint64_t good_ns;      /* from then on */
};

void vnc_budget_init(struct vnc_budget *budget);
void vnc_budget_fini(struct vnc_budget *budget);

/* Memory was allocated or freed. */
void vnc_budget_change(struct vnc_budget *budget);

/* The changes so far, to be taken before the driver is asked. */
uint64_t vnc_budget_changes(const struct vnc_budget *budget);
/* The driver was asked then, and has now said this. */
void vnc_budget_keep(struct vnc_budget *budget, uint64_t asked_ns, uint64_t now_ns,
                     uint64_t changes, const VkPhysicalDeviceMemoryBudgetPropertiesEXT *said);
/* False when the driver is to be asked. */
bool vnc_budget_find(struct vnc_budget *budget, uint64_t now_ns,
                     VkPhysicalDeviceMemoryBudgetPropertiesEXT *out) MUST_CHECK;

#endif
