/* venus/client/device/budget.h - what the driver last said of its memory's budgets, for a moment.
 *
 * A program asks several times in a row (llama.cpp twice, then three times), and each question is a
 * round trip.  So an answer is good for VN_BUDGET_NS, or until the program allocates or frees
 * memory of the device.  docs/icd.md says why that is fresh enough.
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
 * to each other without us, and a round trip to another site takes as long. */
#define VN_BUDGET_NS UINT64_C(10000000)

struct vn_budget {
    /* Relaxed: the thread that allocates is the one that then asks, or has told it. */
    _Atomic uint64_t changes;
    pthread_mutex_t lock; /* guards the rest */
    VkPhysicalDeviceMemoryBudgetPropertiesEXT known;
    uint64_t changes_then; /* when it was asked for */
    uint64_t asked_ns;     /* 0: never */
};

void vn_budget_init(struct vn_budget *budget);
void vn_budget_fini(struct vn_budget *budget);

/* Memory was allocated or freed. */
void vn_budget_change(struct vn_budget *budget);

/* The changes so far, to be taken before the driver is asked. */
uint64_t vn_budget_changes(const struct vn_budget *budget);
/* The driver was asked then, and said this. */
void vn_budget_keep(struct vn_budget *budget, uint64_t asked_ns, uint64_t changes,
                    const VkPhysicalDeviceMemoryBudgetPropertiesEXT *said);
/* False when the driver is to be asked. */
bool vn_budget_find(struct vn_budget *budget, uint64_t now_ns,
                    VkPhysicalDeviceMemoryBudgetPropertiesEXT *out) MUST_CHECK;

#endif
