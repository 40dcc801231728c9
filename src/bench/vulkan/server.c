#include "bench/vulkan/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_CHARS = 512 };

static const char tcp_address[] = "127.0.0.1:";

/* In the child; never returns. */
static void serve_process(const char *path, int out, pid_t parent)
{
    char listen_unix[160];
    snprintf(listen_unix, sizeof(listen_unix), "unix:%s", path);
    const char *const argv[] = {"hawser",      "serve",    "--no-devices", "--listen",
                                "127.0.0.1:0", "--listen", listen_unix,    NULL};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(out, STDOUT_FILENO) < 0)
        _exit(1);
    signal(SIGPIPE, SIG_DFL);
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* The line that says where it listens: "listening on 127.0.0.1:PORT, unix:PATH". */
static int read_port(int fd, uint16_t *port)
{
    char line[LINE_CHARS];
    FILE *from = fdopen(fd, "r");
    if (!from) {
        close(fd);
        return -errno;
    }
    int rc = -EPIPE;
    while (rc && fgets(line, sizeof(line), from)) {
        const char *at = strstr(line, tcp_address);
        if (at) {
            *port = (uint16_t)strtoul(at + strlen(tcp_address), NULL, 10);
            rc = *port ? 0 : -EPROTO;
        }
    }
    fclose(from); /* it says nothing more that is worth reading */
    return rc;
}

int bench_serve_start(const char *path, struct bench_serve *out, char why[BENCH_SERVE_WHY])
{
    int fds[2];
    struct bench_serve serve = {0};
    if (pipe(fds)) {
        snprintf(why, BENCH_SERVE_WHY, "no pipe: %s", strerror(errno));
        return -errno;
    }
    pid_t parent = getpid();
    serve.pid = fork();
    if (serve.pid == 0) {
        close(fds[0]);
        serve_process(path, fds[1], parent);
    }
    close(fds[1]);
    int rc = serve.pid < 0 ? -EAGAIN : 0;
    if (rc)
        close(fds[0]);
    else
        rc = read_port(fds[0], &serve.port);
    if (rc) {
        snprintf(why, BENCH_SERVE_WHY, "the server did not start");
        bench_serve_stop(&serve);
        return rc;
    }
    *out = serve;
    return 0;
}

void bench_serve_stop(struct bench_serve *serve)
{
    if (serve->pid <= 0)
        return;
    kill(serve->pid, SIGTERM);
    waitpid(serve->pid, NULL, 0);
    *serve = (struct bench_serve){0};
}
