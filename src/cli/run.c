/* hawser run - a program whose Vulkan devices are those of servers. */
#include "cli/commands.h"
#include "command/connect.h"

#include "command/drivers.h"
#include "rpc/servers.h"
#include "venus/common/protocol.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { SERVERS_CHARS = CMD_LIST_MAX * (RPC_ADDR_HOST_CHARS + 16) };

/* Programs that time fences, by their name or what it begins with, up to NULL. */
static const char *const benchmarks[] = {"clpeak",     "glmark2", "vkfft", "vkmark",
                                         "vkoverhead", "vkpeak",  NULL};

struct run_options {
    struct cmd_list servers;
    bool honest_fences, progress;
    struct cmd_connect_options connect;
};

#define AT(field) offsetof(struct run_options, field)
static const struct cmd_option options[] = {
    {"servers", 's', CMD_LIST, AT(servers),
     "whose GPUs the program shall see: host:port, unix:/path, shm:/path, ucx:host:port (without "
     "it: VENUS_SERVERS, VENUS_SERVER_HOST, else 127.0.0.1:28100)",
     "ADDR"},
    {"honest-fences", 0, CMD_FLAG, AT(honest_fences),
     "a fence is signalled when its work is done, also where the program cannot see the difference "
     "but by a clock: for programs that measure time"},
    {"progress", 0, CMD_FLAG, AT(progress),
     "on a terminal: how much of a large upload, such as a model's weights, is sent"},
    CMD_GROUP_AT(struct run_options, connect, cmd_connect_table),
    {NULL},
};

static const struct cmd_env environment[] = {
    CMD_ENV_OF(cmd_connect_env),
    {"HAWSER_ICD", "the driver's manifest, where it is not beside this program"},
    {"VENUS_HOST_VISIBLE_DEVICE_MEMORY",
     "1: offer GPU memory that programs can map [default: to libavutil, as in ffmpeg]"},
    {"VENUS_EARLY_FENCE", "0: as --honest-fences; 1: early fences also for known benchmarks"},
    {"VENUS_SYNC", "1: wait for every command; slow, for looking for faults"},
    {NULL},
};

/* Shakes hands with one server and adds its address to the list.  CMD_DONE, or why it cannot be
 * used, after a message. */
static enum cmd_exit try_server(const struct run_options *o, const char *operand,
                                char servers[SERVERS_CHARS])
{
    struct cmd_link link;
    enum cmd_exit code = cmd_link_open(&link, &o->connect, operand);
    if (code != CMD_DONE)
        return code;
    uint32_t spoken = rpc_ep_peer_capabilities(link.ep) & VN_CAPABILITY_PROTOCOL;
    if (spoken != VN_PROTOCOL) {
        cmd_link_close(&link);
        return cmd_fail(CMD_REFUSED,
                        "%s speaks version %u of the Vulkan protocol (0: none), this side version "
                        "%u; use the same release of hawser at both ends",
                        link.address, spoken, VN_PROTOCOL);
    }
    size_t at = strlen(servers);
    snprintf(servers + at, SERVERS_CHARS - at, "%s%s", at ? "," : "", link.address);
    cmd_link_close(&link);
    return CMD_DONE;
}

/* Tries the servers of a list, and keeps the first failure. */
static enum cmd_exit try_list(const struct run_options *o, const char *list,
                              char servers[SERVERS_CHARS])
{
    char text[RPC_SERVER_CHARS];
    enum cmd_exit first = CMD_DONE;
    size_t count = 0;
    while (rpc_servers_next(&list, text)) {
        if (++count > CMD_LIST_MAX)
            return cmd_fail(CMD_USAGE, "run: VENUS_SERVERS names more than %d servers",
                            CMD_LIST_MAX);
        enum cmd_exit code = try_server(o, text, servers);
        if (code == CMD_USAGE)
            return code;
        first = first == CMD_DONE ? code : first;
    }
    return first;
}

/* One server of several may be away, as for a program that is started without us. */
static enum cmd_exit try_servers(const struct run_options *o, char servers[SERVERS_CHARS])
{
    char buf[RPC_SERVER_CHARS];
    enum cmd_exit first = CMD_DONE;
    servers[0] = '\0';
    for (size_t i = 0; i < o->servers.count && first != CMD_USAGE; i++) {
        enum cmd_exit code = try_server(o, o->servers.items[i], servers);
        first = code == CMD_USAGE || first == CMD_DONE ? code : first;
    }
    if (o->servers.count == 0)
        first = try_list(o, rpc_servers_from_env(buf), servers);
    if (first == CMD_DONE || first == CMD_USAGE || !servers[0])
        return first;
    cmd_warn("run: the program sees the GPUs of %s alone", servers);
    return CMD_DONE;
}

/* A program may change its folder before it asks for a device. */
static void set_path(const char *name, const char *path)
{
    char absolute[PATH_MAX];
    if (path)
        setenv(name, realpath(path, absolute) ? absolute : path, 1);
}

/* Whether the program is one of those, or a variant of it: glmark2-es2, VkFFT_TestSuite. */
static bool is_among(const char *const *names, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (; *names; names++) {
        size_t len = strlen(*names);
        if (strncasecmp(name, *names, len) == 0 && (!name[len] || strchr("-_.", name[len])))
            return true;
    }
    return false;
}

static void choose_fences(bool honest, const char *program)
{
    bool known = !honest && !getenv("VENUS_EARLY_FENCE") && is_among(benchmarks, program);
    if (honest || known)
        setenv("VENUS_EARLY_FENCE", "0", 1);
    if (known)
        cmd_warn("run: %s is a benchmark: --honest-fences is on; VENUS_EARLY_FENCE=1 turns it off",
                 program);
}

/* As env and the shell have it. */
enum { NOT_FOUND = 127, NOT_STARTED = 126 };

static enum cmd_exit start(char **program)
{
    signal(SIGPIPE, SIG_DFL); /* ours to ignore, not the program's */
    execvp(program[0], program);
    enum cmd_exit code = (enum cmd_exit)(errno == ENOENT ? NOT_FOUND : NOT_STARTED);
    return cmd_fail(code, "run: cannot start %s: %s", program[0], strerror(errno));
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct run_options *o = values;
    char manifest[PATH_MAX], servers[SERVERS_CHARS];
    if (!cmd_find_manifest(manifest))
        return cmd_fail(CMD_FAILED, "run: the driver's manifest, hawser_icd.json, is not where "
                                    "this program was built or installed; set HAWSER_ICD to its "
                                    "path");
    enum cmd_exit code = try_servers(o, servers);
    if (code != CMD_DONE)
        return code;
    cmd_use_manifest(manifest);
    setenv("VENUS_SERVERS", servers, 1);
    set_path("VENUS_TLS_CA", o->connect.ca);
    set_path("VENUS_TOKEN_FILE", o->connect.token_file);
    if (o->connect.fingerprint)
        setenv("VENUS_TLS_FINGERPRINT", o->connect.fingerprint, 1);
    if (o->progress)
        setenv("VENUS_PROGRESS", "1", 1);
    choose_fences(o->honest_fences, operands->program[0]);
    return start(operands->program);
}

const struct cmd_command cmd_run_program = {
    .name = "run",
    .summary = "run a program on the GPUs of servers",
    .operands = "-- PROGRAM [ARGUMENT...]",
    .runs_program = true,
    .description =
        "Connects to the servers, then starts PROGRAM with Hawser's Vulkan driver as its only one: "
        "it sees the GPUs of the servers and no others.  What is wrong with a server is said "
        "before the program starts; one of several may be away.  The exit status is the program's, "
        "127 where there is none of that name, and 126 where it cannot be started.",
    .options = options,
    .environment = environment,
    .examples = "hawser run -- vulkaninfo --summary\n"
                "hawser run --servers gpu1:28100,gpu2:28100 --fingerprint HEX \\\n"
                "    --token-file token -- llama-cli -m model.gguf -ngl 99",
    .values_size = sizeof(struct run_options),
    .run = run,
};
