/* hawser help - the list of commands, the help of one, and all tables as JSON. */
#include "cli/commands.h"

#include "base/report/json.h"

#include <string.h>

enum { NAME_COLUMN = 10, LINE_WIDTH = 78 };

static const char *const titles[CLI_GROUPS] = {
    [CLI_GPUS] = "GPUs of other machines", [CLI_MODELS] = "Models",     [CLI_KV] = "KV store",
    [CLI_MEASURE] = "Benchmarks",          [CLI_HELP] = "Finding help",
};

struct help_options {
    bool json;
};

#define AT(field) offsetof(struct help_options, field)
static const struct cmd_option options[] = {
    {"json", 'j', CMD_FLAG, AT(json),
     "print every command, option and variable as one JSON object: manual pages and completion are "
     "made from it"},
    {NULL},
};

const struct cmd_command *cli_find_command(const char *name)
{
    for (const struct cli_entry *e = cli_commands; e->name; e++) {
        if (strcmp(e->name, name) == 0)
            return e->command;
    }
    const char *near = cmd_nearest(name, cli_commands, sizeof(cli_commands[0]));
    cmd_fail(CMD_USAGE, "unknown command '%s'%s%s%s; see hawser --help", name,
             near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
    return NULL;
}

/* ---- the list ---- */

/* Names only, so that the whole list fits a screen. */
static void print_names(FILE *out, enum cli_group group)
{
    int used = 0;
    for (const struct cli_entry *e = cli_commands; e->name; e++) {
        if (e->group != group)
            continue;
        if (used + 2 + (int)strlen(e->name) > LINE_WIDTH) {
            fputc('\n', out);
            used = 0;
        }
        used += fprintf(out, "  %s", e->name);
    }
    fputc('\n', out);
}

static void print_group(FILE *out, enum cli_group group)
{
    /* The list fits a screen of 24 lines. */
    fprintf(out, group == CLI_HELP ? "%s:" : "%s:\n", titles[group]);
    if (group == CLI_MEASURE) {
        print_names(out, group);
        return;
    }
    for (const struct cli_entry *e = cli_commands; e->name; e++) {
        if (e->group == group)
            fprintf(out, "  %-*s%s\n", NAME_COLUMN, e->name, e->command->summary);
    }
}

void cli_print_commands(FILE *out)
{
    fputs("hawser runs Vulkan programs and language models on GPUs of other machines.\n"
          "usage: hawser COMMAND [OPTIONS]; hawser COMMAND --help; hawser --version\n",
          out);
    for (enum cli_group group = 0; group < CLI_GROUPS; group++)
        print_group(out, group);
}

/* ---- as JSON ---- */

static void put_option(struct hw_json *j, const struct cmd_option *o)
{
    char letter[2] = {o->letter, '\0'};
    hw_json_object_begin(j);
    hw_json_put_string(j, "name", o->name);
    hw_json_put_string(j, "letter", o->letter ? letter : NULL);
    hw_json_put_string(j, "argument",
                       o->kind == CMD_FLAG || o->kind == CMD_CHOICE ? NULL : o->argument);
    hw_json_array_at(j, "choices");
    for (size_t i = 0; o->kind == CMD_CHOICE && o->choices[i]; i++)
        hw_json_string(j, o->choices[i]);
    hw_json_array_end(j);
    hw_json_put_bool(j, "repeats", o->kind == CMD_LIST || o->kind == CMD_TEXTS);
    hw_json_put_bool(j, "commas", o->kind == CMD_LIST);
    hw_json_put_string(j, "default", o->def);
    hw_json_put_string(j, "help", o->help);
    hw_json_object_end(j);
}

static void put_command(struct hw_json *j, const struct cli_entry *e)
{
    const struct cmd_command *c = e->command;
    struct cmd_option flat[CMD_OPTIONS_MAX];
    struct cmd_env variables[CMD_ENV_MAX];
    cmd_flat_options(c, flat);
    cmd_flat_env(c, variables);
    hw_json_object_begin(j);
    hw_json_put_string(j, "name", c->name);
    hw_json_put_string(j, "group", titles[e->group]);
    hw_json_put_string(j, "summary", c->summary);
    hw_json_put_string(j, "operands", c->operands);
    hw_json_put_string(j, "description", c->description);
    hw_json_array_at(j, "options");
    for (const struct cmd_option *o = flat; o->name; o++)
        put_option(j, o);
    hw_json_array_end(j);
    hw_json_array_at(j, "environment");
    for (const struct cmd_env *v = variables; v->name; v++) {
        hw_json_object_begin(j);
        hw_json_put_string(j, "name", v->name);
        hw_json_put_string(j, "help", v->help);
        hw_json_object_end(j);
    }
    hw_json_array_end(j);
    hw_json_put_string(j, "examples", c->examples);
    hw_json_object_end(j);
}

static enum cmd_exit print_json(const struct cmd_command *only)
{
    struct hw_json j;
    hw_json_begin(&j, stdout);
    hw_json_object_begin(&j);
    hw_json_put_string(&j, "version", HAWSER_VERSION);
    hw_json_array_at(&j, "commands");
    for (const struct cli_entry *e = cli_commands; e->name; e++) {
        if (!only || e->command == only)
            put_command(&j, e);
    }
    hw_json_array_end(&j);
    hw_json_object_end(&j);
    int rc = hw_json_finish(&j);
    return rc ? cmd_output_lost(rc) : CMD_DONE;
}

/* ---- the command ---- */

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct help_options *o = values;
    const struct cmd_command *command = NULL;
    if (operands->count) {
        command = cli_find_command(operands->items[0]);
        if (!command)
            return CMD_USAGE;
    }
    if (o->json)
        return print_json(command);
    if (command)
        cmd_print_help(command);
    else
        cli_print_commands(stdout);
    return CMD_DONE;
}

const struct cmd_command cmd_help = {
    .name = "help",
    .summary = "all about a command: hawser help serve",
    .operands = "[COMMAND]",
    .operands_max = 1,
    .description = "Prints what `hawser COMMAND --help` prints; without COMMAND, the list of "
                   "commands. Options of all commands may be written with hyphens or underscores: "
                   "--master-port and --master_port are the same.",
    .options = options,
    .examples = "hawser help serve\n"
                "hawser help --json | jq -r '.commands[].name'",
    .values_size = sizeof(struct help_options),
    .run = run,
};
