/* See budget.h. */
#include "venus/client/device/budget.h"

#include "venus/client/locks.h"

#include <string.h>

void vnc_budget_init(struct vnc_budget *budget)
{
    memset(budget, 0, sizeof(*budget));
    vnc_lock_init(&budget->lock);
}

void vnc_budget_fini(struct vnc_budget *budget)
{
    vnc_lock_fini(&budget->lock);
}

void vnc_budget_change(struct vnc_budget *budget)
{
    atomic_fetch_add_explicit(&budget->changes, 1, memory_order_relaxed);
}

uint64_t vnc_budget_changes(const struct vnc_budget *budget)
{
    return atomic_load_explicit(&budget->changes, memory_order_relaxed);
}

static uint64_t good_for(uint64_t took_ns)
{
    uint64_t most = VNC_BUDGET_MOST_NS / VNC_BUDGET_TIMES;
    uint64_t good = (took_ns < most ? took_ns : most) * VNC_BUDGET_TIMES;
    return good < VNC_BUDGET_NS ? VNC_BUDGET_NS : good;
}

void vnc_budget_keep(struct vnc_budget *budget, uint64_t asked_ns, uint64_t now_ns,
                     uint64_t changes, const VkPhysicalDeviceMemoryBudgetPropertiesEXT *said)
{
    pthread_mutex_lock(&budget->lock);
    if (asked_ns > budget->asked_ns) { /* answers of two threads may come the other way round */
        budget->known = *said;
        budget->known.pNext = NULL;
        budget->changes_then = changes;
        budget->asked_ns = asked_ns;
        budget->good_ns = good_for(now_ns - asked_ns);
    }
    pthread_mutex_unlock(&budget->lock);
}

bool vnc_budget_find(struct vnc_budget *budget, uint64_t now_ns,
                     VkPhysicalDeviceMemoryBudgetPropertiesEXT *out)
{
    pthread_mutex_lock(&budget->lock);
    bool fresh = budget->asked_ns && now_ns - budget->asked_ns < budget->good_ns &&
                 budget->changes_then == vnc_budget_changes(budget);
    if (fresh)
        *out = budget->known;
    pthread_mutex_unlock(&budget->lock);
    return fresh;
}
