/* hawser chat - a conversation with a served model. */
#include "llm/chat/chat.h"
#include "base/report/progress.h"
#include "base/text/gather.h"
#include "cli/commands.h"
#include "command/line.h"
#include "command/llm_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

struct chat_options {
    struct cmd_connect_options connect;
    const char *model, *system, *temperature, *top_p, *min_p;
    uint64_t most, top_k, seed;
    struct cmd_list stops;
    bool stats;
};

#define AT(field) offsetof(struct chat_options, field)
static const struct cmd_option options[] = {
    {"model", 'm', CMD_STRING, AT(model), "a model that the server serves [default: the first]",
     "NAME"},
    {"system", 's', CMD_STRING, AT(system), "what the model is told before the conversation",
     "TEXT"},
    {"max-tokens", 'n', CMD_U64, AT(most), "of an answer; 0: until it ends or the context is full",
     "N", "0", 0, LLM_CONTEXT_MAX},
    {"temperature", 0, CMD_STRING, AT(temperature), "0 to 100; 0: always the likeliest token", "X",
     "0.7"},
    {"top-k", 0, CMD_U64, AT(top_k), "draw from the K likeliest tokens; 0: from all", "K", "40", 0,
     LLM_VOCAB_MAX},
    {"top-p", 0, CMD_STRING, AT(top_p),
     "draw from the likeliest tokens that have this probability together", "P", "0.95"},
    {"min-p", 0, CMD_STRING, AT(min_p),
     "draw only from tokens with this share of the likeliest's probability", "P", "0"},
    {"seed", 0, CMD_U64, AT(seed), "the same seed and words get the same answers; 0: a random one",
     "N", "0"},
    {"stop", 0, CMD_TEXTS, AT(stops), "an answer ends before this text; may be repeated", "TEXT"},
    {"stats", 0, CMD_FLAG, AT(stats), "figures after each answer, on standard error"},
    CMD_GROUP_AT(struct chat_options, connect, cmd_connect_table),
    {NULL},
};

struct chat {
    const struct chat_options *o;
    const char *address;
    struct llm_client client;
    struct llm_sampling sampling;
    struct llm_chat *template; /* NULL: plain text */
    json_t *messages;
    char *system; /* NULL: none */
    struct llm_client_figures last;
    bool has_last, is_terminal, edits;
    struct line line;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* ---- the prompt ---- */

static bool knows_chatml(const struct llm_client *c)
{
    static const char mark[] = "<|im_start|>";
    uint32_t token;
    return llm_vocab_encode(c->vocab, mark, sizeof mark - 1, &token, 1) == 1;
}

static void load_template(struct chat *c)
{
    const char *name = c->client.model.name;
    char why[LLM_WHY_CHARS];
    bool fallback = knows_chatml(&c->client);
    int rc = llm_chat_create(c->client.file, c->client.vocab, fallback, &c->template, why);
    if (rc == 0 && llm_chat_is_fallback(c->template))
        fprintf(stderr, "%s has no chat template: messages are written as ChatML\n", name);
    else if (rc == -ENOENT)
        fprintf(stderr, "%s has no chat template: it continues what you write, as plain text\n",
                name);
    else if (rc)
        fprintf(stderr, "%s continues what you write, as plain text: its chat template: %s\n", name,
                why);
}

static int render(struct chat *c, char **text, size_t *bytes, char *why)
{
    json_t *all = json_array();
    struct llm_chat_request request = {.messages = all, .open = true, .time_now = time(NULL)};
    if (!all)
        return llm_why(why, -ENOMEM, "out of memory");
    if (c->system)
        json_array_append_new(all, json_pack("{s:s, s:s}", "role", "system", "content", c->system));
    json_array_extend(all, c->messages);
    int rc = llm_chat_prompt(c->template, &request, text, bytes, why);
    json_decref(all);
    return rc;
}

/* Without a template: what was said, one after the other. */
static int join(struct chat *c, char **text, size_t *bytes, char *why)
{
    struct hw_gathered all;
    FILE *out = hw_gather(&all);
    size_t i;
    json_t *m;
    if (!out)
        return llm_why(why, -ENOMEM, "out of memory");
    if (c->system)
        fprintf(out, "%s\n", c->system);
    json_array_foreach(c->messages, i, m)
    {
        fputs(json_string_value(json_object_get(m, "content")), out);
    }
    if (hw_gather_end(out, &all))
        return llm_why(why, -ENOMEM, "out of memory");
    *text = all.text;
    *bytes = all.len;
    return 0;
}

static bool say(struct chat *c, const char *role, const char *content)
{
    json_t *m = json_pack("{s:s, s:s}", "role", role, "content", content);
    return m && json_array_append_new(c->messages, m) == 0;
}

static void unsay(struct chat *c)
{
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

/* ---- an answer ---- */

static enum cmd_exit connect_again(struct chat *c)
{
    if (c->client.conn && llm_connection_status(c->client.conn, NULL) == 0)
        return CMD_DONE;
    /* What answers there may serve another model; the template has the old one's vocabulary. */
    llm_chat_destroy(c->template);
    c->template = NULL;
    llm_client_close(&c->client);
    enum cmd_exit code =
        llm_client_open(&c->client, "chat", &c->o->connect, c->address, c->o->model);
    if (code == CMD_DONE)
        load_template(c);
    return code;
}

static enum cmd_exit generate(struct chat *c, const char *prompt, size_t bytes)
{
    const struct llm_chat_marks *marks = c->template ? llm_chat_reasoning(c->template) : NULL;
    uint32_t *tokens, count;
    enum cmd_exit code = llm_client_encode(&c->client, prompt, bytes, &tokens, &count);
    if (code != CMD_DONE)
        return code;
    struct llm_answer *answer =
        marks ? llm_answer_create(marks, llm_chat_ends_open(marks, prompt, bytes)) : NULL;
    struct llm_client_text text = {.tokens = tokens,
                                   .token_count = count,
                                   .most = (uint32_t)c->o->most,
                                   .sampling = c->sampling,
                                   .stops = &c->o->stops,
                                   .begins = c->template != NULL,
                                   .out = stdout,
                                   .answer = answer,
                                   .interrupted = &interrupted};
    if (c->has_last)
        llm_client_figures_fini(&c->last);
    interrupted = 0;
    code = llm_client_generate(&c->client, &text, &c->last);
    c->has_last = true;
    putchar('\n');
    fflush(stdout);
    llm_answer_destroy(answer);
    free(tokens);
    return code;
}

static enum cmd_exit answer(struct chat *c, const char *question)
{
    char why[LLM_WHY_CHARS], *prompt = NULL;
    size_t bytes;
    enum cmd_exit code = connect_again(c);
    if (code != CMD_DONE)
        return code;
    if (!say(c, "user", question))
        return cmd_fail(CMD_FAILED, "chat: what you wrote is no UTF-8");
    int rc = c->template ? render(c, &prompt, &bytes, why) : join(c, &prompt, &bytes, why);
    if (rc) {
        unsay(c);
        return cmd_fail(CMD_FAILED, "chat: the model's template: %s", why);
    }
    code = generate(c, prompt, bytes);
    free(prompt);
    if (code == CMD_REFUSED)
        fprintf(stderr, "/clear begins a new conversation\n");
    if (code != CMD_DONE || !say(c, "assistant", c->last.text ? c->last.text : ""))
        unsay(c);
    if (code == CMD_DONE && c->o->stats)
        llm_client_print_figures(&c->client, &c->last, false, stderr);
    return code;
}

/* ---- commands ---- */

static const char help[] = "/system TEXT  what the model is told first; without TEXT: nothing\n"
                           "/clear        forget the conversation\n"
                           "/stats        figures of the last answer\n"
                           "/quit         leave; also Ctrl-D.  Ctrl-C stops an answer.\n";

/* True when the line was a command; *leaves on /quit. */
static bool obey(struct chat *c, char *line, bool *leaves)
{
    static const char blanks[] = " \t\r";
    if (line[0] != '/')
        return false;
    for (size_t len = strlen(line); strchr(blanks, line[len - 1]); len--)
        line[len - 1] = '\0';
    size_t word = strcspn(line, blanks);
    const char *rest = line + word + strspn(line + word, blanks);
    if (strncmp(line, "/system", word) == 0 && word == 7) {
        free(c->system);
        c->system = *rest ? strdup(rest) : NULL;
    } else if (strcmp(line, "/clear") == 0) {
        json_array_clear(c->messages);
    } else if (strcmp(line, "/stats") == 0 && c->has_last) {
        llm_client_print_figures(&c->client, &c->last, false, stderr);
    } else if (strcmp(line, "/quit") == 0) {
        *leaves = true;
    } else if (strcmp(line, "/stats") == 0) {
        fputs("there was no answer yet\n", stderr);
    } else {
        if (strcmp(line, "/help") != 0)
            fprintf(stderr, "there is no command %.*s\n", (int)word, line);
        fputs(help, stderr);
    }
    return true;
}

/* ---- the conversation ---- */

/* From a terminal with editing, where it can; else a line of standard input.  False at its end. */
static bool read_line(struct chat *c, char **line)
{
    static size_t room;
    if (c->edits) {
        enum line_event event;
        while ((event = line_read(&c->line, "> ")) == LINE_CANCELLED)
            fputs("/quit or Ctrl-D leaves\n", stderr);
        line_remember(&c->line);
        *line = c->line.text;
        return event == LINE_DONE;
    }
    if (c->is_terminal) {
        fputs("> ", stdout);
        fflush(stdout);
    }
    ssize_t n = getline(line, &room, stdin);
    if (n > 0 && (*line)[n - 1] == '\n')
        (*line)[n - 1] = '\0';
    return n >= 0;
}

/* On a terminal a failed answer costs a message, and the next question may be asked.  None is asked
 * whose answer cannot be written. */
static enum cmd_exit converse(struct chat *c)
{
    char *line = NULL;
    bool leaves = false;
    enum cmd_exit code = CMD_DONE;
    while (!leaves && (code == CMD_DONE || c->is_terminal) && !ferror(stdout) &&
           read_line(c, &line)) {
        if (line[strspn(line, " \t\n")] == '\0' || obey(c, line, &leaves))
            continue;
        code = answer(c, line);
    }
    if (!c->edits)
        free(line);
    return c->is_terminal ? CMD_DONE : code;
}

static enum cmd_exit read_sampling(struct chat *c)
{
    c->sampling.top_k = (uint32_t)c->o->top_k;
    c->sampling.seed = c->o->seed;
    if (!c->o->seed &&
        getrandom(&c->sampling.seed, sizeof c->sampling.seed, 0) != sizeof c->sampling.seed)
        return cmd_fail(CMD_FAILED, "chat: no random seed: %s", strerror(errno));
    enum cmd_exit code = cmd_read_number("chat", "--temperature", c->o->temperature, 0, 100,
                                         &c->sampling.temperature);
    if (code == CMD_DONE)
        code = cmd_read_number("chat", "--top-p", c->o->top_p, 0, 1, &c->sampling.top_p);
    if (code == CMD_DONE)
        code = cmd_read_number("chat", "--min-p", c->o->min_p, 0, 1, &c->sampling.min_p);
    return code;
}

static enum cmd_exit begin(struct chat *c)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    c->messages = json_array();
    c->system = c->o->system ? strdup(c->o->system) : NULL;
    if (!c->messages || (c->o->system && !c->system))
        return cmd_fail(CMD_FAILED, "chat: out of memory");
    c->is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    c->edits = c->is_terminal && hw_is_screen(STDOUT_FILENO);
    if (c->is_terminal) {
        sigaction(SIGINT, &action, NULL);
        fprintf(stderr, "%s at %s, a context of %u tokens.  /help lists commands.\n",
                c->client.model.name, c->client.address, c->client.model.context);
    }
    load_template(c);
    return CMD_DONE;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    struct chat c = {.o = values, .address = operands->count ? operands->items[0] : NULL};
    enum cmd_exit code = read_sampling(&c);
    if (code == CMD_DONE)
        code = llm_client_open(&c.client, "chat", &c.o->connect, c.address, c.o->model);
    if (code == CMD_DONE)
        code = begin(&c);
    if (code == CMD_DONE)
        code = converse(&c);
    if (c.has_last)
        llm_client_figures_fini(&c.last);
    llm_chat_destroy(c.template);
    json_decref(c.messages);
    free(c.system);
    line_fini(&c.line);
    llm_client_close(&c.client);
    return code;
}

const struct cmd_command cmd_chat = {
    .name = "chat",
    .summary = "talk with a model that a server serves",
    .operands = "[ADDR]",
    .operands_max = 1,
    .description = "Asks a model at a server (hawser serve --model) what you type, line by line, "
                   "by the model's own chat template.  On a terminal lines can be edited, and Up "
                   "shows earlier ones.  Ctrl-C stops an answer, Ctrl-D leaves.  Commands: /system "
                   "TEXT, /clear, /stats, /help, /quit.\n"
                   "\n"
                   "Without a terminal each line of standard input is a question, and only answers "
                   "go to standard output.  A model's reasoning is dim on a terminal and nowhere "
                   "else.",
    .options = options,
    .environment = cmd_connect_env,
    .examples = "hawser chat gpu1:28100\n"
                "hawser chat --system 'Answer in one sentence.' --temperature 0\n"
                "echo 'What is a hawser?' | hawser chat gpu1",
    .values_size = sizeof(struct chat_options),
    .run = run,
};
