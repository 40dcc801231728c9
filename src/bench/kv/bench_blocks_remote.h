/* bench/kv/bench_blocks_remote.h - the remote half of bench-blocks: two daemons joined by TCP on
 * loopback, and a raw TCP stream between two threads to compare with.
 *
 * All blocks are owned by the far daemon.  The near one has room for half of them, so that going
 * through them in turn finds no copy there: every get moves its bytes.
 *
 * Trust: all ends are ours.  Threads: one; open starts those of the daemons and of the raw sender.
 * Lifetime: open/close. */
#ifndef HAWSER_BENCH_KV_BENCH_BLOCKS_REMOTE_H
#define HAWSER_BENCH_KV_BENCH_BLOCKS_REMOTE_H

#include "base/attr.h"
#include "kv/common/blockkey.h"
#include "kv/common/kv.h"
#include "rpc/transport/addr.h"

#include <stdint.h>

enum { REMOTE_BATCH = 4 }; /* gets at a time, where there are several */

/* Of the block with this number, here and at the remote half. */
struct kv_block_key bench_block_key(uint64_t n);

struct remote_blocks;

struct remote_options {
    const char *dir;       /* for sockets */
    uint64_t size, blocks; /* 2 * REMOTE_BATCH at least: a batch must fit into half of them */
    const uint8_t *data;   /* all blocks; must stay */
};

/* 0, or a negative errno with cause and remedy in why. */
int remote_blocks_open(const struct remote_options *options, struct remote_blocks **out,
                       char why[RPC_WHY_CHARS]) MUST_CHECK;
void remote_blocks_close(struct remote_blocks *remote);

/* Best effort: so that the next put is one. */
void remote_blocks_delete(struct remote_blocks *remote, uint64_t block);
/* Each does `count` blocks from the number on. */
enum kv_result remote_blocks_put(struct remote_blocks *remote, uint64_t block);
enum kv_result remote_blocks_lease(struct remote_blocks *remote, uint64_t block, uint64_t count);
/* Block 0 begins a stream of all blocks; then they come one after the other. */
enum kv_result remote_blocks_pour(struct remote_blocks *remote, uint64_t block);

#endif
