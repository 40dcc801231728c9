/* rig.h - a group of workers in processes of their own, on host memory whose driver fails, stops or
 * dies where it is told to.
 *
 * Calls fail the running cmocka test when what they need does not happen.
 * Threads: one.  Lifetime: start/stop. */
#ifndef HAWSER_TESTS_INTEGRATION_PAGE_RIG_H
#define HAWSER_TESTS_INTEGRATION_PAGE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "page/broadcast/processes.h"
#include "page/group.h"

enum { RANKS = 4, LAYERS = 2, PAGES = 16, PAGE_BYTES = 16 << 10 };

enum trouble {
    TROUBLE_NONE,
    TROUBLE_DRIVER,      /* bind and unbind fail */
    TROUBLE_MEMORY,      /* create fails */
    TROUBLE_KILL,        /* the worker is killed after it has received a command */
    TROUBLE_KILL_INSIDE, /* before the driver's call */
    TROUBLE_KILL_DONE,   /* after it, and before the answer */
    TROUBLE_KILL_BACK,   /* when it takes a batch back that the next rank's driver refused */
    TROUBLE_STOP,        /* it is stopped then */
    TROUBLE_STOP_INSIDE, /* it is stopped in the middle of the driver's call */
};

/* Shared by the test and its workers. */
struct orders {
    _Atomic int trouble;
    _Atomic uint32_t rank;
    _Atomic uint32_t commands; /* that the workers have received */
};

struct rig {
    char base[32];
    struct orders *orders;
    struct page_processes *processes;
    struct page_group *group;
};

#define RIG_GROUP "rig"

void rig_start(struct rig *r, const struct page_strategy *strategy, uint64_t timeout_ns);
/* Without a scheduler. */
void rig_start_workers(struct rig *r);
void rig_open_group(struct rig *r, const struct page_strategy *strategy, uint64_t timeout_ns);
/* Ends all and fails unless the folder is empty then. */
void rig_stop(struct rig *r);

void rig_trouble(struct rig *r, enum trouble trouble, uint32_t rank);

/* Must succeed. */
void rig_map(struct rig *r, const uint32_t *ids, size_t count);
void rig_unmap(struct rig *r, const uint32_t *ids, size_t count);
/* Every rank but those of the mask has so many pages mapped. */
void rig_expect_mapped(struct rig *r, uint32_t mapped, uint64_t but);

/* Path of a rank's socket. */
void rig_socket(const struct rig *r, uint32_t rank, char path[PAGE_PATH_CHARS]);
struct page_limit *rig_limit(struct rig *r);

/* Waits until the base folder is empty; whoever empties it, nobody polls. */
void rig_wait_empty(const char *base);

#endif
