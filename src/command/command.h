/* command/command.h - what every subcommand of `hawser` shares: options as data, exit codes,
 * messages.
 *
 * A subcommand is one `const struct cmd_command`: its options, its environment and its examples are
 * tables, from which the parser and the whole of `--help` follow, so that help and behaviour cannot
 * drift apart.  cli/main.c lists the commands.
 *
 * Trust: arguments and environment are the user's; a bad one ends in CMD_USAGE with a message that
 * names option, value and accepted form.
 * Threads: one, before a command starts its own.
 * Lifetime: tables are static; parsed strings point into argv or into the tables. */
#ifndef HAWSER_COMMAND_COMMAND_H
#define HAWSER_COMMAND_COMMAND_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The process's exit status; the numbers above 2 are sysexits.h's EX_UNAVAILABLE and EX_NOPERM. */
enum cmd_exit {
    CMD_DONE = 0,
    CMD_FAILED = 1,
    CMD_USAGE = 2,
    CMD_UNREACHABLE = 69,
    CMD_REFUSED = 77
};

enum {
    CMD_LIST_MAX = 16,     /* listening addresses, certificate names: more is a mistake */
    CMD_OPERANDS_MAX = 8,  /* addresses of top; other commands take one */
    CMD_OPTIONS_MAX = 128, /* of a command, and the end of the table; serve has the most */
    CMD_ENV_MAX = 32       /* variables, likewise */
};

/* What an option's value is, and the member that it is stored in. */
enum cmd_kind {
    CMD_FLAG,     /* bool */
    CMD_U64,      /* uint64_t, within [min, max] */
    CMD_SIZE,     /* uint64_t, bytes, within [min, max] */
    CMD_DURATION, /* uint64_t, nanoseconds, within [min, max] */
    CMD_STRING,   /* const char *; NULL without a default */
    CMD_CHOICE,   /* int: index into choices */
    CMD_LIST,     /* struct cmd_list: repeated options and commas both add items */
    CMD_TEXTS,    /* struct cmd_list: repeated options add items, which may have commas */
    CMD_GROUP     /* a struct with options of its own, which stand here */
};

struct cmd_list {
    char *items[CMD_LIST_MAX]; /* heap; freed with the values */
    size_t count;
};

/* A table has a line or two an option, in the order of the members; the last ones may be missing.
 */
struct cmd_option {
    const char *name; /* without "--"; of a group a word for readers; NULL ends a table */
    char letter;      /* 0: none */
    enum cmd_kind kind;
    size_t offset;              /* of the member in the table's values */
    const char *help;           /* words; --help makes lines of them */
    const char *argument;       /* its name in help: "ADDR"; not for flags and choices */
    const char *def;            /* as the user would write it; NULL: none, false or 0 */
    uint64_t min, max;          /* max 0: no limits */
    const char *const *choices; /* CMD_CHOICE: NULL-terminated */
    const struct cmd_option *group;
};

/* A row for the options of a struct that the command's values hold. */
#define CMD_GROUP_AT(type, member, table)                                                          \
    {                                                                                              \
        .name = #member, .kind = CMD_GROUP, .offset = offsetof(type, member), .group = table       \
    }

struct cmd_env {
    const char *name; /* NULL ends a table */
    const char *help;
    const struct cmd_env *group; /* not NULL: all of these stand here */
};

#define CMD_ENV_OF(table)                                                                          \
    {                                                                                              \
        .name = #table, .group = table                                                             \
    }

struct cmd_operands {
    const char *items[CMD_OPERANDS_MAX];
    size_t count;
    char **program; /* of a command that runs one: its name and arguments, ended by NULL */
};

struct cmd_command {
    const char *name;
    const char *summary;  /* one line, for the list of commands */
    const char *operands; /* as in usage: "[ADDR]"; "" for none */
    size_t operands_min, operands_max;
    const char *not_operands; /* NULL, or which option takes what other programs take as operands */
    bool runs_program;        /* the first operand, or what follows "--", is a program: all from
                                 there on is its own */
    const char *description;  /* a line each paragraph, or "NAME   what it does" */
    const struct cmd_option *options;
    const struct cmd_env *environment; /* NULL: what all commands read, and nothing else */
    const char *examples;              /* lines separated by '\n' */
    size_t values_size;                /* of the struct that options are stored in */
    enum cmd_exit (*run)(const void *values, const struct cmd_operands *operands);
};

/* Parses and runs argv[0] = the command's name; -h and --help print and end in CMD_DONE. */
enum cmd_exit cmd_run(const struct cmd_command *command, int argc, char **argv);

/* What --help prints. */
void cmd_print_help(const struct cmd_command *command);

/* Its options, with those of groups in their place and offsets into its values. */
void cmd_flat_options(const struct cmd_command *command, struct cmd_option out[CMD_OPTIONS_MAX]);
/* Its variables, and those that all commands read. */
void cmd_flat_env(const struct cmd_command *command, struct cmd_env out[CMD_ENV_MAX]);

/* "hawser: MESSAGE" on standard error; returns `code`, so that it can stand in a return. */
enum cmd_exit cmd_fail(enum cmd_exit code, const char *fmt, ...) PRINTF_LIKE(2, 3);
void cmd_warn(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Standard output could not be written, for this negative errno (0: not known any more): says so,
 * once a process.  CMD_FAILED. */
enum cmd_exit cmd_output_lost(int rc);

/* The value of an option that takes a number with a fraction.  NULL: it was not given, and *out
 * stays. */
enum cmd_exit cmd_read_number(const char *command, const char *option, const char *text,
                              double least, double most, float *out);

/* The name in a NULL-terminated list that a mistyped one most likely meant, or NULL when none is
 * near.  `stride` is the distance between entries, whose first member is the name. */
const char *cmd_nearest(const char *typed, const void *table, size_t stride);

/* The arguments of this process, for a command that must start itself again in another
 * environment (serve --software). */
char **cmd_argv(void);

#endif
