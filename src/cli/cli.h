/* cli/cli.h - what every subcommand of `hawser` shares: options as data, exit codes, messages.
 *
 * A subcommand is one file with one `const struct cli_command`: its options, its environment and
 * its examples are tables, from which the parser and the whole of `--help` follow, so that help
 * and behaviour cannot drift apart.  main.c lists the commands.
 *
 * Trust: arguments and environment are the user's; a bad one ends in CLI_USAGE with a message that
 * names option, value and accepted form.
 * Threads: one, before a command starts its own.
 * Lifetime: tables are static; parsed strings point into argv or into the tables. */
#ifndef HAWSER_CLI_CLI_H
#define HAWSER_CLI_CLI_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The process's exit status; the numbers above 2 are sysexits.h's EX_UNAVAILABLE and EX_NOPERM. */
enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_UNREACHABLE = 69,
    CLI_REFUSED = 77
};

enum {
    CLI_LIST_MAX = 16,    /* listening addresses, certificate names: more is a mistake */
    CLI_OPERANDS_MAX = 8, /* no command takes more than one yet */
    CLI_OPTIONS_MAX = 64  /* one bit an option in a word: which were given */
};

/* What an option's value is, and the member that it is stored in. */
enum cli_kind {
    CLI_FLAG,     /* bool */
    CLI_U64,      /* uint64_t, within [min, max] */
    CLI_SIZE,     /* uint64_t, bytes, within [min, max] */
    CLI_DURATION, /* uint64_t, nanoseconds, within [min, max] */
    CLI_STRING,   /* const char *; NULL without a default */
    CLI_CHOICE,   /* int: index into choices */
    CLI_LIST      /* struct cli_list: repeated options and commas both add items */
};

struct cli_list {
    char *items[CLI_LIST_MAX]; /* heap; freed with the values */
    size_t count;
};

struct cli_option {
    const char *name; /* without "--"; NULL ends a table */
    char letter;      /* 0: none */
    enum cli_kind kind;
    size_t offset;              /* of the member in the command's values */
    const char *argument;       /* its name in help: "ADDR"; not for flags and choices */
    const char *def;            /* as the user would write it; NULL: none, false or 0 */
    const char *help;           /* lines separated by '\n' */
    const char *const *choices; /* CLI_CHOICE: NULL-terminated */
    uint64_t min, max;          /* max 0: no limits */
};

struct cli_env {
    const char *name; /* NULL ends a table */
    const char *help;
};

struct cli_operands {
    const char *items[CLI_OPERANDS_MAX];
    size_t count;
    char **program; /* of a command that runs one: its name and arguments, ended by NULL */
};

struct cli_command {
    const char *name;
    const char *summary;  /* one line, for the list of commands */
    const char *operands; /* as in usage: "[ADDR]"; "" for none */
    size_t operands_min, operands_max;
    bool runs_program;       /* the first operand, or what follows "--", is a program: all from
                                there on is its own */
    const char *description; /* a paragraph */
    const struct cli_option *options;
    const struct cli_env *environment;
    const char *examples; /* lines separated by '\n' */
    size_t values_size;   /* of the struct that options are stored in */
    enum cli_exit (*run)(const void *values, const struct cli_operands *operands);
};

extern const struct cli_command cli_serve;
extern const struct cli_command cli_info;
extern const struct cli_command cli_keygen;
extern const struct cli_command cli_run_program;
extern const struct cli_command cli_bench_rpc;
extern const struct cli_command cli_bench_vulkan;
extern const struct cli_command cli_kvd;
extern const struct cli_command cli_kvreplay;
extern const struct cli_command cli_kvscale;
extern const struct cli_command cli_benchkv;
extern const struct cli_command cli_bench_blocks;
extern const struct cli_command cli_pingpong;
extern const struct cli_command cli_bench_ipc;
extern const struct cli_command cli_kvctl;
extern const struct cli_command cli_model;
extern const struct cli_command cli_llm;
extern const struct cli_command cli_experiment;
extern const struct cli_command cli_bench_llm;

/* Parses and runs argv[0] = the command's name; -h and --help print and end in CLI_DONE. */
enum cli_exit cli_run(const struct cli_command *command, int argc, char **argv);

/* "hawser: MESSAGE" on standard error; returns `code`, so that it can stand in a return. */
enum cli_exit cli_fail(enum cli_exit code, const char *fmt, ...) PRINTF_LIKE(2, 3);
void cli_warn(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* The name in a NULL-terminated list that a mistyped one most likely meant, or NULL when none is
 * near.  `stride` is the distance between entries, whose first member is the name. */
const char *cli_nearest(const char *typed, const void *table, size_t stride);

/* The arguments of this process, for a command that must start itself again in another
 * environment (serve --software). */
char **cli_argv(void);

#endif
