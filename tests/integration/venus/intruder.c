/* intruder.c - preloaded into a server: code of somebody who has taken over a session's process.
 *
 * When a session reads the first piece that it got of the upload cache, it tries to change the
 * cache by every way that there is.  Says "intruder: WHAT: WHY NOT" for each, or "DONE". */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void tried(const char *what, int rc)
{
    dprintf(STDERR_FILENO, "intruder: %s: %s\n", what, rc < 0 ? strerror(errno) : "DONE");
    if (rc > 0)
        close(rc);
}

static void intrude(int fd)
{
    char here[64], piece[PATH_MAX], other[PATH_MAX + 8], folder[PATH_MAX];
    snprintf(here, sizeof(here), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(here, piece, sizeof(piece) - 1);
    piece[n > 0 ? n : 0] = '\0';
    snprintf(folder, sizeof(folder), "%s", piece);
    char *slash = strrchr(folder, '/');
    if (!slash)
        return;
    *slash = '\0';
    snprintf(other, sizeof(other), "%s/other", folder);
    tried("write", write(fd, "x", 1) < 0 ? -1 : 0);
    tried("cut", ftruncate(fd, 0));
    tried("open again", open(here, O_RDWR | O_CLOEXEC));
    tried("open by path", open(piece, O_WRONLY | O_CLOEXEC));
    tried("make", open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    tried("rename", rename(piece, other));
    tried("link", link(piece, other));
    tried("remove", unlink(piece));
}

/* pread, as programs with 64-bit offsets have it. */
__attribute__((visibility("default"))) ssize_t pread64(int fd, void *to, size_t len, off64_t at)
{
    static atomic_flag came = ATOMIC_FLAG_INIT;
    ssize_t (*real)(int, void *, size_t, off64_t) =
        (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    bool walled = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
    if (walled && !atomic_flag_test_and_set(&came))
        intrude(fd);
    return real(fd, to, len, at);
}
