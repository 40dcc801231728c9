/* serve/session/sandbox.h - what a session's process gives up before it reads a client's first
 * byte.
 *
 *   user        another one, where the server was told so and may (--session-user)
 *   memory      when the machine runs out of it, sessions end before the server does
 *   privileges  none can be gained by executing a file (no_new_privs), and no core is dumped; of
 *               root's, those over files and locked memory are left
 *   seccomp     calls that are not in a list fail with EPERM, where the list was tried with the
 *               driver; else each such call is logged once.  Not in it: forking, sockets, other
 *               processes' signals, limits, priority and cores, and what is refused always:
 *               executing, tracing, mounting, modules, namespaces, keys, BPF, io_uring, typing
 *               into a terminal
 *   limits      of descriptors, and no message queues
 *   Landlock    files are written in caches and temporary folders only, and no process outside can
 *               be looked into; where the kernel has it (5.13).  Nor can other files be emptied
 *               (6.2), or processes outside be signalled (6.12).  /dev/shm, where the upload cache
 *               may be, is such a folder for drivers only that the list was not tried with
 *
 * The list was found by running every Vulkan test of this project in SANDBOX_LOG.
 *
 * Trust: -.  Threads: before others are started.  Lifetime: for good. */
#ifndef HAWSER_SERVE_SESSION_SANDBOX_H
#define HAWSER_SERVE_SESSION_SANDBOX_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/attr.h"

enum sandbox_mode {
    SANDBOX_DENY,
    SANDBOX_WATCH, /* what an intruder wants is refused; other calls as with SANDBOX_LOG */
    SANDBOX_LOG,   /* calls go through, and a line of the log names each that is not in the list */
    SANDBOX_OFF
};

enum { SANDBOX_GROUPS_MAX = 32 }; /* a user of a GPU is in video, render and a few more */

/* A user to become.  Plain, so that another process can be told. */
struct sandbox_user {
    bool given;
    uid_t uid;
    gid_t gid;
    int group_count;
    gid_t groups[SANDBOX_GROUPS_MAX];
};

/* Looks a user up, with its home folder.  0, -ENOENT, or -E2BIG for one in too many groups. */
int sandbox_user_find(const char *name, struct sandbox_user *out, char home[PATH_MAX]) MUST_CHECK;
/* Becomes that user, without any capability; 0 or a negative errno.  The signal for a parent's
 * death (prctl) is the caller's to set again. */
int sandbox_become(const struct sandbox_user *user) MUST_CHECK;

/* The kernel shall end this process before others when memory runs out. */
void sandbox_offer_memory(void);

/* HAWSER_SANDBOX, or the usual mode; one warning for a value that is none. */
enum sandbox_mode sandbox_mode_from_environment(enum sandbox_mode usual);
/* Whether the list was tried with this driver (VkPhysicalDeviceDriverProperties' name):
 * SANDBOX_DENY is usual then, else SANDBOX_WATCH. */
bool sandbox_knows_driver(const char *driver);

/* Before threads are started.  network: it makes connections of its own (UCX), so sockets of IPv4
 * and netlink are in the list.  What the kernel does not have is left out, with a line at level
 * INFO. */
void sandbox_enter(enum sandbox_mode mode, bool network);

#endif
