#include "llm/tp/processes.h"

#include "base/process/child.h"
#include "llm/tp/rank.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int start_one(struct llm_tp_processes *p, uint32_t rank, int memory)
{
    char number[16];
    const char *const argv[] = {"hawser-tp", LLM_TP_COMMAND, number, NULL};
    sigset_t none;
    sigemptyset(&none);
    snprintf(number, sizeof number, "%u", rank);
    int socket = hw_child_start(&(struct hw_child){argv, environ, &none, memory}, &p->pids[rank]);
    if (socket < 0) {
        p->pids[rank] = 0;
        return socket;
    }
    p->sockets[rank] = socket;
    return 0;
}

int llm_tp_processes_start(struct llm_tp_processes *p, uint32_t ranks, int memory_fd)
{
    int rc = 0;
    *p = (struct llm_tp_processes){.ranks = ranks};
    for (uint32_t r = 1; r < ranks && rc == 0; r++)
        rc = start_one(p, r, memory_fd);
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
