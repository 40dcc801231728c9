/* See budget.h. */
#include "venus/client/device/budget.h"

#include "venus/client/locks.h"

#include <string.h>

void vn_budget_init(struct vn_budget *budget)
{
    memset(budget, 0, sizeof(*budget));
    vn_lock_init(&budget->lock);
}

void vn_budget_fini(struct vn_budget *budget)
{
    vn_lock_fini(&budget->lock);
}

void vn_budget_change(struct vn_budget *budget)
{
    atomic_fetch_add_explicit(&budget->changes, 1, memory_order_relaxed);
}

uint64_t vn_budget_changes(const struct vn_budget *budget)
{
    return atomic_load_explicit(&budget->changes, memory_order_relaxed);
}

void vn_budget_keep(struct vn_budget *budget, uint64_t asked_ns, uint64_t changes,
                    const VkPhysicalDeviceMemoryBudgetPropertiesEXT *said)
{
    pthread_mutex_lock(&budget->lock);
    if (asked_ns > budget->asked_ns) { /* answers of two threads may come the other way round */
        budget->known = *said;
        budget->known.pNext = NULL;
        budget->changes_then = changes;
        budget->asked_ns = asked_ns;
    }
    pthread_mutex_unlock(&budget->lock);
}

bool vn_budget_find(struct vn_budget *budget, uint64_t now_ns,
                    VkPhysicalDeviceMemoryBudgetPropertiesEXT *out)
{
    pthread_mutex_lock(&budget->lock);
    bool fresh = budget->asked_ns && now_ns - budget->asked_ns < VN_BUDGET_NS &&
                 budget->changes_then == vn_budget_changes(budget);
    if (fresh)
        *out = budget->known;
    pthread_mutex_unlock(&budget->lock);
    return fresh;
}
