#include "cli/bus_error.h"

#include "command/command.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* Everything here may be called in a signal's handler. */

static uintptr_t read_hex(const char **text)
{
    uintptr_t value = 0;
    for (;; ++*text) {
        char c = **text;
        if (c >= '0' && c <= '9')
            value = value * 16 + (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* A line of /proc/self/maps: "start-end rwxp offset device inode   path". */
static bool is_at(const char *line, uintptr_t address)
{
    uintptr_t start = read_hex(&line);
    line += *line == '-';
    return address >= start && address < read_hex(&line);
}

/* The file that is mapped at an address; "" if that cannot be told. */
static void find_file(uintptr_t address, char *name, size_t room)
{
    char line[512], c;
    size_t length = 0;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    *name = 0;
    while (fd >= 0 && read(fd, &c, 1) == 1) {
        if (c != '\n') {
            line[length] = c;
            length += length + 1 < sizeof line;
            continue;
        }
        line[length] = 0;
        length = 0;
        const char *path = strchr(line, '/');
        if (path && is_at(line, address)) {
            strncpy(name, path, room - 1);
            name[room - 1] = 0;
        }
    }
    if (fd >= 0)
        close(fd);
}

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return; /* nobody listens */
}

static void explain(int number, siginfo_t *info, void *context)
{
    static atomic_flag begun = ATOMIC_FLAG_INIT;
    (void)number, (void)context;
    if (info->si_code != BUS_ADRERR) { /* of the hardware: as without us, when it comes again */
        signal(SIGBUS, SIG_DFL);
        return;
    }
    while (atomic_flag_test_and_set(&begun)) /* another thread's message ends the process */
        pause();
    char name[256];
    find_file((uintptr_t)info->si_addr, name, sizeof name);
    say("hawser: ");
    say(*name ? name : "a file that is in use");
    say(" was shortened or overwritten while it is read; write a new file beside it and mv it "
        "there, then start again\n");
    _exit(CMD_FAILED);
}

void cli_explain_bus_errors(void)
{
    struct sigaction action = {.sa_sigaction = explain, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
