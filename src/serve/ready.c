#include "serve/ready.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* systemd's protocol: one datagram; a leading '@' is an abstract socket. */
static void notify_systemd(const char *command)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || !*path || strlen(path) >= sizeof(to.sun_path))
        return;
    memcpy(to.sun_path, path, strlen(path));
    if (path[0] == '@')
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (fd >= 0 && sendto(fd, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *)&to, len) < 0)
        cmd_warn("%s: NOTIFY_SOCKET: %s", command, strerror(errno));
    if (fd >= 0)
        close(fd);
}

enum cmd_exit serve_say_ready(const char *command, int fd)
{
    if (fflush(stdout))
        return cmd_output_lost(-errno);
    if (fd) {
        if (write(fd, "ready\n", 6) != 6)
            return cmd_fail(CMD_FAILED, "%s: --ready-fd %d: %s", command, fd, strerror(errno));
        close(fd);
    }
    notify_systemd(command);
    return CMD_DONE;
}
