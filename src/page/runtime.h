/* page/runtime.h - the private folder in which the processes of a group find each other.
 *
 *   BASE/GROUP/alive          every member holds a shared lock on it while it lives
 *   BASE/GROUP/scheduler      the scheduler holds an exclusive lock on it; its name is inside
 *   BASE/GROUP/limit          the shared memory limit (page/limit.h)
 *   BASE/GROUP/worker-N.sock  rank N listens there
 *
 * BASE is HAWSER_RUNTIME_DIR, else XDG_RUNTIME_DIR/hawser, else /tmp/hawser-UID.  The kernel drops
 * a process's locks when it ends.  A group whose `alive` file no process has locked is left over:
 * the last member to leave removes it, or else the next process that joins any group.
 *
 * Trust: a folder that is not ours, or open to others (not 0700), is refused.  Processes of the
 * same user are trusted. Threads: one at a time.  Lifetime: join/leave.  After fork the child must
 * join by itself. */
#ifndef HAWSER_PAGE_RUNTIME_H
#define HAWSER_PAGE_RUNTIME_H

#include "page/page.h"

enum {
    PAGE_GROUP_CHARS = 33,    /* a name and its NUL; the socket's path has to fit */
    PAGE_PATH_CHARS = 108,    /* sun_path, with its NUL */
    PAGE_SCHEDULER_CHARS = 64 /* "bench-ipc, pid 4711" */
};

struct page_runtime {
    char base[PAGE_PATH_CHARS];
    char dir[PAGE_PATH_CHARS]; /* of the group */
    char group[PAGE_GROUP_CHARS];
    int alive_fd;
    int scheduler_fd; /* -1 unless this process is the scheduler */
};

/* The base folder, made when it is missing.  NULL: the default of the environment.
 * 0, -ENAMETOOLONG, -EPERM (not private), or a negative errno. */
int page_runtime_base(const char *wanted, char base[PAGE_PATH_CHARS],
                      struct page_error *why) MUST_CHECK;

/* Becomes a member of the group, which is made when it is missing.  A name has letters, digits,
 * '-', '_' and '.', and does not begin with '.'.  Also removes the debris of other groups.
 * 0, -EINVAL (name), -ENAMETOOLONG (a socket in it could not be bound), or as above. */
int page_runtime_join(struct page_runtime *r, const char *base, const char *group,
                      struct page_error *why) MUST_CHECK;
/* The last one out removes the folder. */
void page_runtime_leave(struct page_runtime *r);

/* Becomes a member of a group only where it has others: it stays, with all its files, until this
 * one leaves, too.  0, -ENOENT, or as above. */
int page_runtime_visit(struct page_runtime *r, const char *base, const char *group,
                       struct page_error *why) MUST_CHECK;

/* Makes this process the group's scheduler.  -EBUSY names the one that is. */
int page_runtime_lead(struct page_runtime *r, const char *name, struct page_error *why) MUST_CHECK;

void page_runtime_socket(const struct page_runtime *r, uint32_t rank, char path[PAGE_PATH_CHARS]);
void page_runtime_limit(const struct page_runtime *r, char path[PAGE_PATH_CHARS]);

/* Removes what killed processes left in the base folder. */
void page_runtime_sweep(const char *base);

/* Calls fn with the name of each group that has members, in no order; false from it ends the walk.
 * Debris is removed on the way.  0 or the negative errno of opening the folder. */
int page_runtime_each(const char *base, bool (*fn)(void *user, const char *group), void *user);

#endif
