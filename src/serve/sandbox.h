/* serve/sandbox.h - what a session's process gives up before it reads a client's first byte.
 *
 *   privileges  none can be gained by executing a file (no_new_privs), and no core is dumped
 *   seccomp     calls that no GPU driver needs and an intruder wants fail with EPERM: executing,
 *               tracing, mounting, modules, namespaces, keys, BPF, io_uring and the like
 *   Landlock    files are written in caches and temporary folders only, and no process outside can
 *               be looked into; where the kernel has it (5.13)
 *
 * It is a list of what is denied, not of what is allowed: drivers differ, and one that misses a
 * call fails in ways that nobody understands.
 *
 * Trust: -.  Threads: before others are started.  Lifetime: for good. */
#ifndef HAWSER_SERVE_SANDBOX_H
#define HAWSER_SERVE_SANDBOX_H

enum sandbox_mode {
    SANDBOX_DENY,
    SANDBOX_LOG, /* calls go through, and the kernel logs them (audit, or dmesg) */
    SANDBOX_OFF
};

/* HAWSER_SANDBOX; one warning for a value that is none. */
enum sandbox_mode sandbox_mode_from_environment(void);

/* `writable` (may be NULL) is one more folder for files.  What the kernel does not have is left
 * out, with a line at level INFO. */
void sandbox_enter(enum sandbox_mode mode, const char *writable);

#endif
