#include "llm/tp/processes.h"

#include "llm/tp/rank.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The new process has the two descriptors and the standard files, and no signal is blocked. */
static int spawn(uint32_t rank, int socket, int memory, pid_t *pid)
{
    char number[16];
    const char *const argv[] = {"hawser-tp", LLM_TP_COMMAND, number, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    snprintf(number, sizeof number, "%u", rank);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int rc = posix_spawn_file_actions_adddup2(&files, socket, LLM_TP_SOCKET_FD);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&files, memory, LLM_TP_MEMORY_FD);
    if (rc == 0)
        rc = posix_spawn_file_actions_addclosefrom_np(&files, LLM_TP_MEMORY_FD + 1);
    if (rc == 0)
        rc = posix_spawn(pid, "/proc/self/exe", &files, &attributes, (char *const *)(uintptr_t)argv,
                         environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return -rc;
}

/* dup2 onto itself would leave a descriptor to be closed: both are above those of the rank. */
static int start_one(struct llm_tp_processes *p, uint32_t rank, int memory)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return -errno;
    int far = fcntl(ends[1], F_DUPFD_CLOEXEC, LLM_TP_MEMORY_FD + 1);
    int rc = far < 0 ? -errno : spawn(rank, far, memory, &p->pids[rank]);
    close(ends[1]);
    if (far >= 0)
        close(far);
    if (rc) {
        p->pids[rank] = 0;
        close(ends[0]);
        return rc;
    }
    p->sockets[rank] = ends[0];
    return 0;
}

int llm_tp_processes_start(struct llm_tp_processes *p, uint32_t ranks, int memory_fd)
{
    int memory = fcntl(memory_fd, F_DUPFD_CLOEXEC, LLM_TP_MEMORY_FD + 1);
    int rc = memory < 0 ? -errno : 0;
    *p = (struct llm_tp_processes){.ranks = ranks};
    for (uint32_t r = 1; r < ranks && rc == 0; r++)
        rc = start_one(p, r, memory);
    if (memory >= 0)
        close(memory);
    if (rc)
        llm_tp_processes_stop(p);
    return rc;
}

void llm_tp_processes_stop(struct llm_tp_processes *p)
{
    for (uint32_t r = 1; r < p->ranks; r++) {
        if (p->pids[r] <= 0)
            continue;
        (void)kill(p->pids[r], SIGKILL); /* ours, and not waited for: the number is still its */
        close(p->sockets[r]);
    }
    for (uint32_t r = 1; r < p->ranks; r++) {
        while (p->pids[r] > 0 && waitpid(p->pids[r], NULL, 0) < 0 && errno == EINTR)
            ;
    }
    *p = (struct llm_tp_processes){0};
}

uint32_t llm_tp_processes_dead(const struct llm_tp_processes *p)
{
    for (uint32_t r = 1; r < p->ranks; r++) {
        struct pollfd fd = {.fd = p->sockets[r], .events = POLLRDHUP};
        if (poll(&fd, 1, 0) > 0 && (fd.revents & (POLLHUP | POLLRDHUP | POLLERR)))
            return r;
    }
    return 0;
}
