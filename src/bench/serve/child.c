#include "bench/serve/child.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t bench_fork(void)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent))
        _exit(1);
    return pid;
}

void bench_become(const char *const *argv, int out)
{
    if (dup2(out, STDOUT_FILENO) < 0)
        _exit(1);
    signal(SIGPIPE, SIG_DFL);
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(127);
}

int bench_child_hear(struct bench_child *c, int fd, const char *last)
{
    static const char answering[] = "answering on ", here[] = "127.0.0.1:";
    char line[512];
    int rc = -EPIPE;
    FILE *from = fdopen(fd, "r");
    if (!from) {
        close(fd);
        return -errno;
    }
    while (rc && fgets(line, sizeof(line), from)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, answering, sizeof answering - 1) == 0)
            snprintf(c->url, sizeof(c->url), "%.120s", line + sizeof answering - 1);
        if (strncmp(line, last, strlen(last)) == 0) {
            const char *at = strstr(line, here);
            c->port = at ? (uint16_t)strtoul(at + strlen(here), NULL, 10) : 0;
            rc = 0;
        }
    }
    fclose(from); /* it says nothing more that is worth reading */
    return rc;
}

int bench_child_start(struct bench_child *c, const char *const *argv, const char *last)
{
    int fds[2];
    if (pipe(fds))
        return -errno;
    c->pid = bench_fork();
    if (c->pid == 0) {
        close(fds[0]);
        bench_become(argv, fds[1]);
    }
    close(fds[1]);
    if (c->pid < 0) {
        close(fds[0]);
        return -EAGAIN;
    }
    int rc = bench_child_hear(c, fds[0], last);
    if (rc)
        bench_child_stop(c);
    return rc;
}

static uint16_t free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&addr, len) == 0 &&
                 getsockname(fd, (struct sockaddr *)&addr, &len) == 0;
    if (fd >= 0)
        close(fd);
    return found ? ntohs(addr.sin_port) : 0;
}

enum cmd_exit bench_child_start_peer(struct bench_child *c, const char *command, const char *model)
{
    uint16_t port = free_port();
    char text[8];
    snprintf(text, sizeof(text), "%u", port);
    snprintf(c->url, sizeof(c->url), "http://127.0.0.1:%u", port);
    c->pid = port ? bench_fork() : -1;
    if (c->pid == 0) {
        int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (setpgid(0, 0) || nowhere < 0 || dup2(nowhere, 0) < 0 || dup2(nowhere, 1) < 0 ||
            dup2(nowhere, 2) < 0 || setenv("MODEL", model, 1) || setenv("PORT", text, 1))
            _exit(1);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    if (c->pid < 0)
        return cmd_fail(CMD_FAILED, "bench-serve: no process: %s", strerror(errno));
    c->group = true;
    return CMD_DONE;
}

void bench_child_stop(struct bench_child *c)
{
    if (c->pid <= 0)
        return;
    kill(c->group ? -c->pid : c->pid, SIGTERM);
    waitpid(c->pid, NULL, 0);
    c->pid = 0;
}
