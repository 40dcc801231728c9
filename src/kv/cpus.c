#include "kv/cpus.h"

#include <errno.h>
#include <stdlib.h>
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

static int by_node(const void *a, const void *b)
{
    uint16_t x = *(const uint16_t *)a, y = *(const uint16_t *)b;
    int difference = node_of(x) - node_of(y);
    return difference ? difference : (x > y) - (x < y);
}

int kv_cpus_init(struct kv_cpus *c)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set))
        return -errno;
    *c = (struct kv_cpus){0};
    for (uint32_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            c->order[c->count++] = (uint16_t)i;
    qsort(c->order, c->count, sizeof(c->order[0]), by_node);
    int last = -1;
    for (uint32_t i = 0; i < c->count; i++) {
        c->nodes += node_of(c->order[i]) != last;
        last = node_of(c->order[i]);
    }
    return c->count ? 0 : -ENODEV;
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
