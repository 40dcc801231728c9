/* One parser and one help printer for the option tables of all commands. */
#include "command/command.h"

#include "base/text/controls.h"
#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HELP_COLUMN = 28, /* where an option's help text begins */
    HELP_WIDTH = 80,  /* of a terminal */
    NAME_MAX_CHARS = 32,
    CHOICES_CHARS = 512 /* the longest list is that of hawser llm --mode */
};

static const struct cmd_option help_option = {
    .name = "help", .letter = 'h', .kind = CMD_FLAG, .help = "print this and exit"};

/* ---- messages ---- */

/* It may quote a peer or a file. */
static void message(const char *prefix, const char *fmt, va_list args)
{
    char *text = NULL;
    int len = vasprintf(&text, fmt, args);
    if (len >= 0)
        hw_blank_controls(text, (size_t)len);
    fflush(stdout);
    fprintf(stderr, "%s%s\n", prefix, len >= 0 ? text : "out of memory");
    if (len >= 0)
        free(text);
}

enum cmd_exit cmd_fail(enum cmd_exit code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    message("hawser: ", fmt, args);
    va_end(args);
    return code;
}

enum cmd_exit cmd_output_lost(int rc)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const char *cause = rc ? strerror(-rc) : "the disk is full, or its reader has ended";
    if (!atomic_flag_test_and_set(&said))
        (void)cmd_fail(CMD_FAILED, "cannot write the output: %s", cause);
    return CMD_FAILED;
}

void cmd_warn(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    message("hawser: warning: ", fmt, args);
    va_end(args);
}

/* ---- spelling ---- */

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Insertions, deletions, replacements and exchanges of two neighbours that turn a into b; no letter
 * is changed twice.  Rows are those of three beginnings of a: the present one and the two before.
 */
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][NAME_MAX_CHARS + 1];
    size_t width = strlen(b);
    if (width > NAME_MAX_CHARS)
        return width;
    for (size_t j = 0; j <= width; j++)
        rows[0][j] = j;
    size_t i = 1;
    for (; a[i - 1]; i++) {
        const size_t *before = rows[(i + 1) % 3], *above = rows[(i + 2) % 3];
        size_t *row = rows[i % 3];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min3(replaced, above[j] + 1, row[j - 1] + 1);
            bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (exchanged && before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
    }
    return rows[(i - 1) % 3][width];
}

/* The end was left out, as in --list for --listen. */
static bool is_beginning(const char *typed, const char *name)
{
    size_t len = strlen(typed);
    return len >= 3 && strncmp(typed, name, len) == 0;
}

const char *cmd_nearest(const char *typed, const void *table, size_t stride)
{
    const char *best = NULL, *begun = NULL;
    /* A third of the letters wrong is a typing error; more is another word, as 2 of 4 are. */
    size_t best_distance = strlen(typed) > 3 ? strlen(typed) / 3 + 1 : 2;
    for (const char *entry = table;; entry += stride) {
        const char *name;
        memcpy(&name, entry, sizeof(name));
        if (!name)
            return best ? best : begun;
        if (!begun && is_beginning(typed, name))
            begun = name;
        size_t distance = edit_distance(typed, name);
        if (distance < best_distance) {
            best = name;
            best_distance = distance;
        }
    }
}

/* ---- tables ---- */

static size_t flatten(const struct cmd_option *from, size_t base, struct cmd_option *out,
                      size_t count)
{
    for (; from->name; from++) {
        if (from->kind == CMD_GROUP) {
            count = flatten(from->group, base + from->offset, out, count);
            continue;
        }
        assert(count + 1 < CMD_OPTIONS_MAX);
        out[count] = *from;
        out[count++].offset += base;
    }
    return count;
}

void cmd_flat_options(const struct cmd_command *c, struct cmd_option out[CMD_OPTIONS_MAX])
{
    out[flatten(c->options, 0, out, 0)] = (struct cmd_option){NULL};
}

static size_t flatten_env(const struct cmd_env *from, struct cmd_env *out, size_t count)
{
    for (; from && from->name; from++) {
        if (from->group) {
            count = flatten_env(from->group, out, count);
            continue;
        }
        assert(count + 1 < CMD_ENV_MAX);
        out[count++] = *from;
    }
    return count;
}

void cmd_flat_env(const struct cmd_command *c, struct cmd_env out[CMD_ENV_MAX])
{
    static const struct cmd_env of_all[] = {
        {"VENUS_LOG_LEVEL", "NONE, ERROR, WARN, INFO, DEBUG or TRACE [default: WARN]"},
        {"VENUS_LOG_CATEGORIES", "levels by category: MEMORY=INFO,NET=DEBUG"},
        {NULL},
    };
    size_t count = flatten_env(of_all, out, flatten_env(c->environment, out, 0));
    out[count] = (struct cmd_env){NULL};
}

/* ---- help ---- */

static const char *choices_of(const struct cmd_option *o, const char *before, const char *between,
                              char out[CHOICES_CHARS])
{
    out[0] = '\0';
    for (size_t i = 0, at = 0; o->choices[i] && at < CHOICES_CHARS; i++)
        at += (size_t)snprintf(out + at, CHOICES_CHARS - at, "%s%s", i ? between : before,
                               o->choices[i]);
    return out;
}

/* The words of a line of text, in lines of HELP_WIDTH; all but the first begin at `column`. */
static void print_words(const char *text, int column)
{
    for (int at = column; *text && *text != '\n'; text += strspn(text, " ")) {
        int len = (int)strcspn(text, " \n");
        if (at > column && at + 1 + len > HELP_WIDTH)
            at = printf("\n%*s", column, "") - 1;
        at += printf("%s%.*s", at > column ? " " : "", len, text);
        text += len;
    }
    putchar('\n');
}

/* What stands behind a wide gap stays in a column of its own. */
static void print_lines(const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        const char *gap = memmem(text, len, "   ", 3);
        gap = gap ? gap : text;
        int column = (int)(gap + strspn(gap, " ") - text);
        printf("%.*s", column, text);
        print_words(text + column, column);
        text += len + (text[len] == '\n');
    }
}

/* `used` columns of the line have the name of what the text is about. */
static void print_help_text(int used, const char *text)
{
    if (used >= HELP_COLUMN - 1) {
        putchar('\n');
        used = 0;
    }
    printf("%*s", HELP_COLUMN - used, "");
    print_words(text, HELP_COLUMN);
}

static void print_option(const struct cmd_option *o)
{
    char names[CHOICES_CHARS];
    int used =
        o->letter ? printf("  -%c, --%s", o->letter, o->name) : printf("      --%s", o->name);
    const char *argument = o->kind == CMD_CHOICE ? choices_of(o, "", "|", names) : o->argument;
    bool below = o->kind == CMD_CHOICE && used + 1 + (int)strlen(argument) > HELP_WIDTH;
    if (o->kind != CMD_FLAG)
        used += printf(" %s", below ? "NAME" : argument);
    print_help_text(used, o->help);
    if (below)
        print_help_text(0, choices_of(o, "NAME: ", ", ", names));
    if (o->kind == CMD_LIST)
        print_help_text(0, "repeat, or separate with commas");
    if (o->def) {
        char def[CHOICES_CHARS];
        snprintf(def, sizeof(def), "[default: %s]", o->def);
        print_help_text(0, def);
    }
}

void cmd_print_help(const struct cmd_command *c)
{
    struct cmd_option options[CMD_OPTIONS_MAX];
    struct cmd_env environment[CMD_ENV_MAX];
    cmd_flat_options(c, options);
    cmd_flat_env(c, environment);
    printf("usage: hawser %s [OPTIONS]%s%s\n\n", c->name, *c->operands ? " " : "", c->operands);
    print_lines(c->description);
    printf("\nOptions:\n");
    for (const struct cmd_option *o = options; o->name; o++)
        print_option(o);
    print_option(&help_option);
    printf("\nEnvironment:\n");
    for (const struct cmd_env *e = environment; e->name; e++)
        print_help_text(printf("  %s", e->name), e->help);
    printf("\nExit status:\n"
           "   0  done\n"
           "   1  failed; the message says what and why\n"
           "   2  wrong usage\n"
           "  69  the server cannot be reached\n"
           "  77  refused: token, TLS, or a limit of the server\n"
           "\nExamples:\n");
    for (const char *line = c->examples; *line;) {
        size_t len = strcspn(line, "\n");
        printf("  %.*s\n", (int)len, line);
        line += len + (line[len] == '\n');
    }
}

/* ---- values ---- */

static const char *accepted(const struct cmd_option *o, char buf[CHOICES_CHARS])
{
    char low[HW_FORMAT_CHARS], high[HW_FORMAT_CHARS];
    switch (o->kind) {
    case CMD_U64:
        if (!o->max)
            return "a whole number";
        snprintf(buf, CHOICES_CHARS, "a whole number from %llu to %llu", (unsigned long long)o->min,
                 (unsigned long long)o->max);
        return buf;
    case CMD_SIZE:
        if (!o->max)
            return "a size such as 4096, 256KiB or 4MiB";
        snprintf(buf, CHOICES_CHARS, "a size such as 256KiB, from %s to %s",
                 hw_format_size(low, o->min), hw_format_size(high, o->max));
        return buf;
    case CMD_DURATION:
        if (!o->max)
            return "a duration such as 500us, 10ms or 2s";
        snprintf(buf, CHOICES_CHARS, "a duration such as 500us or 2s, from %s to %s",
                 hw_format_duration(low, o->min), hw_format_duration(high, o->max));
        return buf;
    case CMD_CHOICE:
        return choices_of(o, "one of ", ", ", buf);
    case CMD_LIST:
        return "one or more texts with commas between them";
    default:
        return "a text of at least one character";
    }
}

static bool in_range(const struct cmd_option *o, uint64_t value)
{
    return !o->max || (value >= o->min && value <= o->max);
}

static int store_number(const struct cmd_option *o, const char *text, uint64_t *out)
{
    uint64_t value;
    int rc = o->kind == CMD_U64    ? hw_parse_u64(text, 0, UINT64_MAX, &value)
             : o->kind == CMD_SIZE ? hw_parse_size(text, &value)
                                   : hw_parse_duration(text, &value);
    if (rc)
        return rc;
    if (!in_range(o, value))
        return -ERANGE;
    *out = value;
    return 0;
}

static int store_choice(const struct cmd_option *o, const char *text, int *out)
{
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(text, o->choices[i]) == 0) {
            *out = i;
            return 0;
        }
    }
    return -EINVAL;
}

static int store_list(const char *text, const char *separators, struct cmd_list *list)
{
    for (;;) {
        size_t len = strcspn(text, separators);
        if (len == 0)
            return -EINVAL;
        if (list->count == CMD_LIST_MAX)
            return -E2BIG;
        list->items[list->count] = strndup(text, len);
        if (!list->items[list->count])
            return -ENOMEM;
        list->count++;
        if (!text[len])
            return 0;
        text += len + 1;
    }
}

static int store(const struct cmd_option *o, const char *text, void *values)
{
    void *at = (char *)values + o->offset;
    switch (o->kind) {
    case CMD_FLAG:
        *(bool *)at = true;
        return 0;
    case CMD_U64:
    case CMD_SIZE:
    case CMD_DURATION:
        return store_number(o, text, at);
    case CMD_STRING:
        *(const char **)at = text;
        return *text ? 0 : -EINVAL;
    case CMD_CHOICE:
        return store_choice(o, text, at);
    case CMD_LIST:
        return store_list(text, ",", at);
    case CMD_TEXTS:
        return store_list(text, "", at);
    case CMD_GROUP:
        break;
    }
    return -EINVAL;
}

static enum cmd_exit bad_value(const struct cmd_command *c, const struct cmd_option *o,
                               const char *text, int error)
{
    char form[CHOICES_CHARS];
    if (error == -ENOMEM)
        return cmd_fail(CMD_FAILED, "out of memory");
    if (error == -E2BIG)
        return cmd_fail(CMD_USAGE, "%s: --%s takes at most %d values", c->name, o->name,
                        CMD_LIST_MAX);
    return cmd_fail(CMD_USAGE, "%s: --%s: '%s' is not %s", c->name, o->name, text,
                    accepted(o, form));
}

enum cmd_exit cmd_read_number(const char *command, const char *option, const char *text,
                              double least, double most, float *out)
{
    double value;
    if (!text)
        return CMD_DONE;
    if (hw_parse_double(text, least, most, &value))
        return cmd_fail(CMD_USAGE, "%s: %s: '%s' is not a number from %g to %g", command, option,
                        text, least, most);
    *out = (float)value;
    return CMD_DONE;
}

/* ---- parsing ---- */

struct parse {
    const struct cmd_command *command;
    struct cmd_option options[CMD_OPTIONS_MAX];
    int argc;
    char **argv;
    int at;
    void *values;
    struct cmd_operands *operands;
    bool help;
};

/* The seeds write some names with '_'; a hyphen is as good, and the other way round. */
static bool is_same_name(const char *name, const char *typed, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bool both_join = strchr("-_", typed[i]) && (name[i] == '-' || name[i] == '_');
        if (name[i] != typed[i] && !both_join)
            return false;
    }
    return name[len] == '\0';
}

static const struct cmd_option *find_long(const struct parse *p, const char *name, size_t len)
{
    for (const struct cmd_option *o = p->options; o->name; o++) {
        if (is_same_name(o->name, name, len))
            return o;
    }
    return len == 4 && strncmp(name, "help", 4) == 0 ? &help_option : NULL;
}

static const struct cmd_option *find_letter(const struct parse *p, char letter)
{
    for (const struct cmd_option *o = p->options; o->name; o++) {
        if (o->letter == letter)
            return o;
    }
    return letter == 'h' ? &help_option : NULL;
}

static enum cmd_exit unknown(const struct parse *p, const char *dashes, const char *name,
                             size_t len)
{
    const struct cmd_command *c = p->command;
    char typed[NAME_MAX_CHARS + 1];
    snprintf(typed, sizeof(typed), "%.*s", (int)len, name);
    const char *near = cmd_nearest(typed, p->options, sizeof(*p->options));
    return cmd_fail(CMD_USAGE, "%s: unknown option %s%s%s%s%s; see hawser %s --help", c->name,
                    dashes, typed, near ? " (did you mean --" : "", near ? near : "",
                    near ? "?)" : "", c->name);
}

/* `text` is the value attached to the option ("--x=5", "-x5"), or NULL when it may follow. */
static enum cmd_exit take(struct parse *p, const struct cmd_option *o, const char *text)
{
    if (o == &help_option) {
        p->help = true;
        return CMD_DONE;
    }
    if (o->kind == CMD_FLAG && text)
        return cmd_fail(CMD_USAGE, "%s: --%s takes no value, not '%s'", p->command->name, o->name,
                        text);
    if (o->kind != CMD_FLAG && !text) {
        if (p->at == p->argc)
            return cmd_fail(CMD_USAGE, "%s: --%s needs a value: %s", p->command->name, o->name,
                            o->kind == CMD_CHOICE ? "see --help" : o->argument);
        text = p->argv[p->at++];
    }
    int rc = store(o, text, p->values);
    return rc ? bad_value(p->command, o, text, rc) : CMD_DONE;
}

static enum cmd_exit take_long(struct parse *p, const char *name)
{
    size_t len = strcspn(name, "=");
    const struct cmd_option *o = find_long(p, name, len);
    if (!o)
        return unknown(p, "--", name, len);
    return take(p, o, name[len] ? name + len + 1 : NULL);
}

static enum cmd_exit take_letters(struct parse *p, const char *letters)
{
    for (; *letters; letters++) {
        const struct cmd_option *o = find_letter(p, *letters);
        if (!o)
            return unknown(p, "-", letters, 1);
        bool attached = o->kind != CMD_FLAG && letters[1];
        enum cmd_exit code = take(p, o, attached ? letters + 1 : NULL);
        if (code != CMD_DONE || attached)
            return code;
    }
    return CMD_DONE;
}

static enum cmd_exit take_operand(struct parse *p, const char *text)
{
    const struct cmd_command *c = p->command;
    if (p->operands->count == c->operands_max)
        return cmd_fail(CMD_USAGE, "%s: unexpected argument '%s'%s%s%s; see hawser %s --help",
                        c->name, text, c->not_operands ? " (" : "",
                        c->not_operands ? c->not_operands : "", c->not_operands ? ")" : "",
                        c->name);
    p->operands->items[p->operands->count++] = text;
    return CMD_DONE;
}

static enum cmd_exit take_arguments(struct parse *p)
{
    bool options_ended = false;
    while (p->at < p->argc && !p->help) {
        const char *arg = p->argv[p->at++];
        enum cmd_exit code = CMD_DONE;
        bool is_operand = options_ended || arg[0] != '-' || !arg[1];
        if (is_operand && p->command->runs_program) {
            p->operands->program = &p->argv[p->at - 1];
            return CMD_DONE;
        }
        if (is_operand)
            code = take_operand(p, arg);
        else if (strcmp(arg, "--") == 0)
            options_ended = true;
        else
            code = arg[1] == '-' ? take_long(p, arg + 2) : take_letters(p, arg + 1);
        if (code != CMD_DONE)
            return code;
    }
    return CMD_DONE;
}

static bool is_list(const struct cmd_option *o)
{
    return o->kind == CMD_LIST || o->kind == CMD_TEXTS;
}

/* Of all but lists before the arguments, which replace them; of lists that are empty then after
 * them, since arguments add to a list. */
static enum cmd_exit fill_defaults(struct parse *p, bool lists)
{
    for (const struct cmd_option *o = p->options; o->name; o++) {
        const struct cmd_list *list = (void *)((char *)p->values + o->offset);
        if (!o->def || is_list(o) != lists || (lists && list->count > 0))
            continue;
        int rc = store(o, o->def, p->values);
        if (rc)
            return bad_value(p->command, o, o->def, rc);
    }
    return CMD_DONE;
}

static enum cmd_exit parse_and_run(struct parse *p)
{
    enum cmd_exit code = fill_defaults(p, false);
    if (code == CMD_DONE)
        code = take_arguments(p);
    if (code != CMD_DONE)
        return code;
    if (p->help) {
        cmd_print_help(p->command);
        return CMD_DONE;
    }
    bool no_program = p->command->runs_program && !p->operands->program;
    if (p->operands->count < p->command->operands_min || no_program) {
        const char *all = p->command->operands; /* the first must be there, or a program */
        return cmd_fail(CMD_USAGE, "%s: %.*s is missing; see hawser %s --help", p->command->name,
                        (int)(no_program ? strlen(all) : strcspn(all, " ")), all, p->command->name);
    }
    code = fill_defaults(p, true);
    return code == CMD_DONE ? p->command->run(p->values, p->operands) : code;
}

static void free_lists(const struct parse *p)
{
    for (const struct cmd_option *o = p->options; o->name; o++) {
        if (!is_list(o))
            continue;
        struct cmd_list *list = (void *)((char *)p->values + o->offset);
        for (size_t i = 0; i < list->count; i++)
            free(list->items[i]);
    }
}

enum cmd_exit cmd_run(const struct cmd_command *command, int argc, char **argv)
{
    assert(command->operands_max <= CMD_OPERANDS_MAX);
    struct cmd_operands operands = {.count = 0};
    struct parse p = {.command = command, .argc = argc, .argv = argv, .at = 1};
    p.operands = &operands;
    cmd_flat_options(command, p.options);
    p.values = calloc(1, command->values_size);
    if (!p.values)
        return cmd_fail(CMD_FAILED, "out of memory");
    enum cmd_exit code = parse_and_run(&p);
    free_lists(&p);
    free(p.values);
    return code;
}
