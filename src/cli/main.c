/* hawser - one program, one file a subcommand; this one lists them. */
#include "cli/commands.h"

#include "base/log.h"
#include "base/report/bench.h"
#include "bench/bench.h"
#include "cli/bus_error.h"
#include "llm/tp/rank.h"
#include "rpc/rpc.h"
#include "serve/serve.h"
#include "serve/session/process.h"
#ifdef HAWSER_UCX
#include "rpc/transport/ucx.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct cli_entry cli_commands[] = {
    {"serve", &cmd_serve, CLI_GPUS},
    {"run", &cmd_run_program, CLI_GPUS},
    {"info", &cmd_info, CLI_GPUS},
    {"keygen", &cmd_keygen, CLI_GPUS},
    {"doctor", &cmd_doctor, CLI_GPUS},
    {"llm", &cmd_llm, CLI_MODELS},
    {"chat", &cmd_chat, CLI_MODELS},
    {"gateway", &cmd_gateway, CLI_MODELS},
    {"drain", &cmd_drain, CLI_MODELS},
    {"top", &cmd_top, CLI_MODELS},
    {"model", &cmd_model, CLI_MODELS},
    {"kv", &cmd_kv, CLI_KV},
    {"kvd", &cmd_kvd, CLI_KV},
    {"kvctl", &cmd_kvctl, CLI_KV},
    {"kvtop", &cmd_kvtop, CLI_KV},
    {"bench-rpc", &cmd_bench_rpc, CLI_MEASURE},
    {"bench-vulkan", &cmd_bench_vulkan, CLI_MEASURE},
    {"bench-ipc", &cmd_bench_ipc, CLI_MEASURE},
    {"bench-llm", &cmd_bench_llm, CLI_MEASURE},
    {"bench-serve", &cmd_bench_serve, CLI_MEASURE},
    {"bench-blocks", &cmd_bench_blocks, CLI_MEASURE},
    {"benchkv", &cmd_benchkv, CLI_MEASURE},
    {"pingpong", &cmd_pingpong, CLI_MEASURE},
    {"experiment", &cmd_experiment, CLI_MEASURE},
    {"kvreplay", &cmd_kvreplay, CLI_MEASURE},
    {"kvscale", &cmd_kvscale, CLI_MEASURE},
    {"plan", &cmd_plan, CLI_MEASURE},
    {"help", &cmd_help, CLI_HELP},
    {NULL, NULL, CLI_HELP},
};

static char **process_argv;

char **cmd_argv(void)
{
    return process_argv;
}

static enum cmd_exit print_version(void)
{
    printf("hawser %s (commit %s, protocol %d to %d, Vulkan %s)\n", HAWSER_VERSION,
           hw_bench_commit(), RPC_VERSION_MIN, RPC_VERSION_MAX, HAWSER_VULKAN_VERSION);
    return CMD_DONE;
}

static enum cmd_exit dispatch(int argc, char **argv)
{
    if (argc < 2) {
        cli_print_commands(stderr);
        return CMD_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        return print_version();
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        cli_print_commands(stdout);
        return CMD_DONE;
    }
    if (name[0] == '-')
        return cmd_fail(CMD_USAGE, "unknown option %s; see hawser --help", name);
    const struct cmd_command *command = cli_find_command(name);
    return command ? cmd_run(command, argc - 1, argv + 1) : CMD_USAGE;
}

/* A descriptor that we were started without would be taken by the first socket, which would then
 * get our output.  Standard output becomes one that cannot be written, so the loss is noticed. */
static void open_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        int opened = open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
        if (opened != fd)
            _exit(CMD_FAILED);
    }
}

/* A full disk or a closed pipe must not end in success, nor in silence. */
static enum cmd_exit finish_output(enum cmd_exit code)
{
    bool failed_before = ferror(stdout);
    bool failed_now = fflush(stdout) || close(STDOUT_FILENO);
    if (!failed_before && !failed_now)
        return code;
    enum cmd_exit lost = cmd_output_lost(failed_now ? -errno : 0);
    return code == CMD_DONE ? lost : code;
}

int main(int argc, char **argv)
{
    process_argv = argv;
    open_standard_files();
#ifdef HAWSER_UCX
    rpc_ucx_register();
#endif
    if (argc == 2 && strcmp(argv[1], SESSION_PROCESS_COMMAND) == 0) {
        signal(SIGPIPE, SIG_IGN);
        return session_process_main();
    }
    cli_explain_bus_errors();
    if (llm_tp_is_rank(argc, argv))
        return llm_tp_rank_main(argv);
    /* Reads the log's variables, so that a bad one costs a warning even without a message. */
    (void)hw_log_on(HW_CAT_GENERAL, HW_LOG_ERROR);
    /* A reader that ends is a failed write with a message, not a silent death. */
    signal(SIGPIPE, SIG_IGN);
    enum cmd_exit code = dispatch(argc, argv);
    return (int)finish_output(code);
}
