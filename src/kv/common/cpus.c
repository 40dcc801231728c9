#include "kv/common/cpus.h"

#include <errno.h>
#include <limits.h>
#ifdef HAWSER_NUMA
#include <numa.h>
#endif

static int node_of(uint32_t cpu)
{
#ifdef HAWSER_NUMA
    if (numa_available() >= 0)
        return numa_node_of_cpu((int)cpu);
#endif
    (void)cpu;
    return 0;
}

/* The lowest node above `after` that has one of the cores; INT_MAX: none. */
static int next_node(const cpu_set_t *set, kv_node_fn *node, int after)
{
    int next = INT_MAX;
    for (uint32_t i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, set))
            continue;
        int n = node(i);
        if (n > after && n < next)
            next = n;
    }
    return next;
}

int kv_cpus_order(const cpu_set_t *set, kv_node_fn *node, struct kv_cpus *out)
{
    if (CPU_COUNT(set) == 0)
        return -ENODEV;
    *out = (struct kv_cpus){0};
    for (int n = next_node(set, node, INT_MIN); n < INT_MAX; n = next_node(set, node, n)) {
        out->nodes++;
        for (uint32_t i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, set) && node(i) == n)
                out->order[out->count++] = (uint16_t)i;
    }
    return 0;
}

int kv_cpus_init(struct kv_cpus *c)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set))
        return -errno;
    return kv_cpus_order(&set, node_of, c);
}

/* First core and number of cores of a rank's share. */
static uint32_t share_of(const struct kv_cpus *c, const struct kv_cpus_share *s, uint32_t *cores)
{
    uint32_t each = c->count / s->ranks;
    *cores = each ? each : 1;
    return s->rank * *cores % c->count;
}

static uint32_t core(const struct kv_cpus *c, const struct kv_cpus_share *s, uint32_t at)
{
    uint32_t cores, first = share_of(c, s, &cores);
    return c->order[(first + at % cores) % c->count];
}

uint32_t kv_cpus_of_daemon(const struct kv_cpus *c, const struct kv_cpus_share *s, uint32_t index)
{
    return core(c, s, index);
}

uint32_t kv_cpus_of_client(const struct kv_cpus *c, const struct kv_cpus_share *s, uint32_t index)
{
    uint32_t cores;
    (void)share_of(c, s, &cores);
    if (cores <= s->daemons)
        return core(c, s, index);
    return core(c, s, s->daemons + index % (cores - s->daemons));
}

int kv_cpus_pin(uint32_t cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}
