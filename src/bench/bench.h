/* bench/bench.h - the subcommands that measure; cli/main.c lists them. */
#ifndef HAWSER_BENCH_BENCH_H
#define HAWSER_BENCH_BENCH_H

#include "command/command.h"

extern const struct cmd_command cmd_bench_rpc;
extern const struct cmd_command cmd_bench_vulkan;
extern const struct cmd_command cmd_kvreplay;
extern const struct cmd_command cmd_kvscale;
extern const struct cmd_command cmd_benchkv;
extern const struct cmd_command cmd_bench_blocks;
extern const struct cmd_command cmd_pingpong;
extern const struct cmd_command cmd_bench_ipc;
extern const struct cmd_command cmd_experiment;
extern const struct cmd_command cmd_bench_llm;
extern const struct cmd_command cmd_bench_serve;
extern const struct cmd_command cmd_plan;

#endif
