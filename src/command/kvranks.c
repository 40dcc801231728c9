#include "command/kvranks.h"

#include "base/attr.h"
#include "base/units.h"
#include "kv/common/kv.h"
#include "rpc/rpc.h"

#include <stdlib.h>

const struct cmd_env cmd_rank_env[] = {
    {"OMPI_COMM_WORLD_RANK", "set by mpirun: the rank"},
    {"PMI_RANK", "set by mpiexec of MPICH: the rank"},
    {"SLURM_PROCID", "set by srun: the rank"},
    {NULL},
};

const char *const cmd_flush_names[] = {[RPC_FLUSH_ADAPTIVE] = "adaptive",
                                       [RPC_FLUSH_INCREMENTAL] = "incremental",
                                       [RPC_FLUSH_BATCH] = "batch",
                                       NULL};
const char *const cmd_wait_names[] = {
    [RPC_WAIT_ADAPTIVE] = "adaptive", [RPC_WAIT_BLOCK] = "block", [RPC_WAIT_BUSY] = "busy", NULL};

/* What each launcher calls this process's number and that of all. */
static const struct {
    const char *rank, *ranks;
} launchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                 {"PMI_RANK", "PMI_SIZE"},
                 {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}; /* of the step: a job script has none */

static bool number_in(const char *variable, uint64_t max, uint64_t *out)
{
    const char *text = getenv(variable);
    return text && hw_parse_u64(text, 0, max, out) == 0;
}

bool cmd_launched_rank(uint32_t *rank_out)
{
    uint64_t rank;
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++)
        if (number_in(launchers[i].rank, KV_RANKS_MAX - 1, &rank)) {
            *rank_out = (uint32_t)rank;
            return true;
        }
    return false;
}

uint32_t cmd_launched_ranks(void)
{
    uint64_t ranks;
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++)
        if (number_in(launchers[i].ranks, UINT32_MAX, &ranks))
            return (uint32_t)ranks;
    return 0;
}

enum cmd_exit cmd_rank(const char *command, const char *given, uint32_t *out)
{
    uint64_t rank;
    *out = 0;
    if (!given) {
        (void)cmd_launched_rank(out);
        return CMD_DONE;
    }
    if (hw_parse_u64(given, 0, KV_RANKS_MAX - 1, &rank))
        return cmd_fail(CMD_USAGE, "%s: --rank: '%s' is not a number from 0 to %d", command, given,
                        KV_RANKS_MAX - 1);
    *out = (uint32_t)rank;
    return CMD_DONE;
}
