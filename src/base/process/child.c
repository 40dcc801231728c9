#include "base/process/child.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- this program once more ---- */

static int spawn(const struct hw_child *c, int socket, int fd, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGTERM);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    int rc = posix_spawn_file_actions_adddup2(&files, socket, HW_CHILD_SOCKET);
    if (rc == 0 && fd >= 0)
        rc = posix_spawn_file_actions_adddup2(&files, fd, HW_CHILD_FD);
    if (rc == 0)
        rc = posix_spawn_file_actions_addclosefrom_np(&files,
                                                      fd < 0 ? HW_CHILD_FD : HW_CHILD_FD + 1);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_setsigmask(&attributes, c->mask);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (rc == 0)
        rc = posix_spawn(pid, "/proc/self/exe", &files, &attributes,
                         (char *const *)(uintptr_t)c->argv, c->environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return -rc;
}

/* dup2 onto itself would leave a descriptor to be closed, or write over another: both are above
 * those of the child. */
static int raise_fd(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HW_CHILD_FD + 1);
    return high < 0 ? -errno : high;
}

int hw_child_start(const struct hw_child *c, pid_t *pid)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return -errno;
    int far = raise_fd(ends[1]), fd = c->fd < 0 ? -1 : raise_fd(c->fd);
    int rc = far < 0 ? far : c->fd >= 0 && fd < 0 ? fd : spawn(c, far, fd, pid);
    close(ends[1]);
    if (far >= 0)
        close(far);
    if (fd >= 0)
        close(fd);
    if (rc)
        close(ends[0]);
    return rc ? rc : ends[0];
}

/* ---- a try ---- */

static ssize_t listen_to(int fd, char *out, size_t size, uint64_t deadline_ns)
{
    size_t at = 0;
    while (at < size) {
        uint64_t now = hw_now_ns();
        if (now >= deadline_ns)
            return -ETIMEDOUT;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)((deadline_ns - now) / HW_MS) + 1) <= 0)
            continue;
        ssize_t n = read(fd, out + at, size - at);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            return -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)at;
}

ssize_t hw_child_try(void (*work)(int fd, void *user), void *user, uint64_t timeout_ns, void *out,
                     size_t size)
{
    int fds[2], status = 0;
    if (pipe2(fds, O_CLOEXEC))
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        work(fds[1], user);
        _exit(0); /* a driver's atexit handlers belong to nobody here */
    }
    close(fds[1]);
    ssize_t n = pid < 0 ? -EAGAIN : listen_to(fds[0], out, size, hw_now_ns() + timeout_ns);
    bool ended = n >= 0 && (size_t)n < size;
    close(fds[0]);
    if (pid > 0) {
        if (!ended)
            kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    return ended && WIFSIGNALED(status) ? -EFAULT : n;
}
