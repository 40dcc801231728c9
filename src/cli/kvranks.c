#include "cli/kvranks.h"

#include "base/attr.h"
#include "base/units.h"
#include "kv/kv.h"
#include "rpc/rpc.h"

#include <stdlib.h>

const char *const cli_flush_names[] = {[RPC_FLUSH_ADAPTIVE] = "adaptive",
                                       [RPC_FLUSH_INCREMENTAL] = "incremental",
                                       [RPC_FLUSH_BATCH] = "batch",
                                       NULL};
const char *const cli_wait_names[] = {
    [RPC_WAIT_ADAPTIVE] = "adaptive", [RPC_WAIT_BLOCK] = "block", [RPC_WAIT_BUSY] = "busy", NULL};

bool cli_launched_rank(uint32_t *rank_out)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *text = getenv(names[i]);
        uint64_t rank;
        if (text && hw_parse_u64(text, 0, KV_RANKS_MAX - 1, &rank) == 0) {
            *rank_out = (uint32_t)rank;
            return true;
        }
    }
    return false;
}

uint32_t cli_rank(uint32_t given)
{
    uint32_t rank = given;
    (void)cli_launched_rank(&rank);
    return rank;
}
