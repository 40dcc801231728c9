/* hawser llm - continues a text: at a server that serves a model, or here in one of the modes. */
#include "base/clock.h"
#include "cli/commands.h"
#include "command/llm_client.h"
#include "command/llm_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT(field) offsetof(struct llm_run_options, field)
static const struct cmd_option options[] = {
    {"mode", 0, CMD_CHOICE, AT(mode), "where the model runs and what travels; see above", NULL,
     "local", 0, 0, llm_run_modes},
    {"model", 'm', CMD_STRING, AT(model),
     "a GGUF file, or llama2.c's format; with a server: a model's name there [default: the first "
     "that it serves]",
     "FILE"},
    {"tokenizer", 0, CMD_STRING, AT(tokenizer), "the vocabulary of a model in llama2.c's format",
     "FILE"},
    {"prompt", 'p', CMD_STRING, AT(prompt),
     "what to continue (without it: the model begins by itself)", "TEXT"},
    {"file", 'f', CMD_STRING, AT(file),
     "what to continue is in this file; -: standard input, with a server the default where that is "
     "a pipe or a file",
     "FILE"},
    {"decode_steps", 'n', CMD_U64, AT(decode_steps), "tokens to generate at most", "N", "50", 1,
     LLM_CONTEXT_MAX},
    {"max-tokens", 0, CMD_U64, AT(decode_steps), "the same as --decode_steps", "N", NULL, 1,
     LLM_CONTEXT_MAX},
    {"phase", 0, CMD_CHOICE, AT(phase),
     "prefill: the prompt only, and the token after it; decode: all", NULL, "decode", 0, 0,
     llm_run_phases},
    {"backend", 0, CMD_CHOICE, AT(backend), "what computes", NULL, "cpu", 0, 0, llm_run_backends},
    {"math", 0, CMD_CHOICE, AT(math), "fast: prompts on matrix units (backend vulkan)", NULL,
     "exact", 0, 0, llm_math_names},
    {"threads", 't', CMD_U64, AT(threads), "of the cpu backend; 0: one for each core", "N", "0", 0,
     256},
    {"context", 0, CMD_U64, AT(context), "positions at most; 0: as many as the model has", "N", "0",
     0, LLM_CONTEXT_MAX},
    {"temperature", 0, CMD_STRING, AT(temperature), "0 to 100; 0: always the likeliest token", "X",
     "0"},
    {"top-k", 0, CMD_U64, AT(top_k), "draw from the K likeliest tokens; 0: from all", "K", "0", 0,
     LLM_VOCAB_MAX},
    {"top-p", 0, CMD_STRING, AT(top_p),
     "draw from the likeliest tokens that have this probability together", "P", "1"},
    {"min-p", 0, CMD_STRING, AT(min_p),
     "draw only from tokens with this share of the likeliest's probability", "P", "0"},
    {"presence-penalty", 0, CMD_STRING, AT(presence),
     "-2 to 2: subtracted from the logits of tokens that were generated", "X", "0"},
    {"frequency-penalty", 0, CMD_STRING, AT(frequency),
     "-2 to 2: the same for each time that they were", "X", "0"},
    {"repetition-penalty", 0, CMD_STRING, AT(repetition),
     "divides the logits of tokens that are in the text; 1: does not", "X", "1"},
    {"stop", 0, CMD_TEXTS, AT(stops), "with a server: end before this text; may be repeated",
     "TEXT"},
    {"echo", 0, CMD_FLAG, AT(echo), "with a server: print the prompt before what follows it"},
    {"stats", 0, CMD_FLAG, AT(stats), "with a server: figures on standard error"},
    {"json", 'j', CMD_FLAG, AT(json), "figures as a JSON object on standard error"},
    {"seed", 0, CMD_U64, AT(seed), "the same seed draws the same tokens", "N", "0"},
    {"ignore-end", 0, CMD_FLAG, AT(ignore_end), "go on after a token that ends the text"},
    {"prompt_tokens", 0, CMD_U64, AT(prompt_tokens),
     "a prompt of N random tokens instead of text, for measurements", "N", NULL, 0,
     WIRE_TOKENS_MAX},
    {"gpu_host", 0, CMD_STRING, AT(gpu_host),
     "the worker's machine, with its port or without; the same as the operand [default for the "
     "remote modes: 127.0.0.1]",
     "HOST"},
    {"master_port", 0, CMD_U64, AT(master_port),
     "the worker's port, where no other is named [default: 28100]", "PORT", NULL, 1, 65535},
    CMD_GROUP_AT(struct llm_run_options, connect, cmd_connect_table),
    {"deadline", 0, CMD_DURATION, AT(deadline_ns), "for each exchange with the worker", "TIME",
     "5m", 1000000, UINT64_C(24) * 3600 * 1000000000},
    {"return", 0, CMD_STRING, AT(returns),
     "semantic: what comes back: tokens, sampled at the worker; topk:K, the K largest logits; "
     "logits, all of them, compressed if that pays",
     "WHAT", "tokens"},
    {"tokens-per-request", 0, CMD_U64, AT(tokens_per_request),
     "semantic with tokens: so many with one exchange", "N", "1", 1, LLM_GENERATE_MAX},
    {"lossy", 0, CMD_FLAG, AT(lossy), "semantic with logits: as binary16; the tokens may differ"},
    {"evict", 0, CMD_STRING, AT(evict),
     "remote modes: make the worker evict these layers of the sequence to its store before the Nth "
     "exchange after the prompt; the worker needs --shadow",
     "LAYERS@N"},
    {"trace", 0, CMD_FLAG, AT(trace), "also print tokens, and time and bytes of each exchange"},
    {"download", 0, CMD_STRING, AT(download),
     "only fetch the model that the worker serves into FILE, which must be new", "FILE"},
    {"worker-metrics", 0, CMD_FLAG, AT(worker_metrics),
     "only print the worker's open sequences and models"},
    {NULL},
};

/* ---- a served model ---- */

enum { PROMPT_BYTES_MAX = LLM_TEXT_BYTES_MAX };

static bool is_piped(void)
{
    struct stat st;
    return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode));
}

/* Text, ended by a zero byte; so one within it would cut it short. */
static enum cmd_exit read_all(FILE *from, const char *name, char **text, size_t *bytes)
{
    char *all = malloc(PROMPT_BYTES_MAX + 1);
    if (!all)
        return cmd_fail(CMD_FAILED, "llm: out of memory");
    size_t n = fread(all, 1, PROMPT_BYTES_MAX + 1, from);
    const char *why = ferror(from)           ? strerror(errno)
                      : n > PROMPT_BYTES_MAX ? "longer than 8 MiB"
                      : memchr(all, '\0', n) ? "it has a zero byte, so it is no text"
                                             : NULL;
    if (why) {
        free(all);
        return cmd_fail(CMD_FAILED, "llm: %s: %s", name, why);
    }
    all[n] = '\0';
    *text = all;
    *bytes = n;
    return CMD_DONE;
}

static enum cmd_exit read_prompt(const struct llm_run_options *o, char **text, size_t *bytes)
{
    if (o->prompt && o->file)
        return cmd_fail(CMD_USAGE, "llm: --prompt or --file, not both");
    if (o->file ? strcmp(o->file, "-") == 0 : !o->prompt && is_piped())
        return read_all(stdin, "standard input", text, bytes);
    if (!o->file) {
        *text = strdup(o->prompt ? o->prompt : "");
        *bytes = *text ? strlen(*text) : 0;
        return *text ? CMD_DONE : cmd_fail(CMD_FAILED, "llm: out of memory");
    }
    FILE *from = fopen(o->file, "re");
    if (!from)
        return cmd_fail(CMD_FAILED, "llm: %s: %s", o->file, strerror(errno));
    enum cmd_exit code = read_all(from, o->file, text, bytes);
    fclose(from);
    return code;
}

static enum cmd_exit answer(struct llm_client *c, const struct llm_run_options *o, char *prompt,
                            size_t bytes, const struct llm_sampling *sampling)
{
    uint32_t *tokens, count;
    struct llm_client_figures figures;
    enum cmd_exit code = llm_client_encode(c, prompt, bytes, &tokens, &count);
    if (code != CMD_DONE)
        return code;
    struct llm_client_text text = {.tokens = tokens,
                                   .token_count = count,
                                   .most = (uint32_t)o->decode_steps,
                                   .sampling = *sampling,
                                   .ignore_end = o->ignore_end,
                                   .stops = &o->stops,
                                   .begins = bytes == 0,
                                   .before = o->echo ? prompt : NULL,
                                   .out = stdout};
    code = llm_client_generate(c, &text, &figures);
    if (code == CMD_DONE)
        putchar('\n');
    fflush(stdout);
    if (code == CMD_DONE && (o->stats || o->json))
        llm_client_print_figures(c, &figures, o->json, stderr);
    llm_client_figures_fini(&figures);
    free(tokens);
    return code;
}

/* Options that say nothing about a served model. */
static enum cmd_exit refuse_strays(const struct llm_run_options *o)
{
    const struct {
        const char *name;
        bool given; /* and not as it is by default */
    } strays[] = {{"tokenizer", o->tokenizer},
                  {"phase", o->phase},
                  {"backend", o->backend},
                  {"math", o->math},
                  {"threads", o->threads},
                  {"context", o->context},
                  {"prompt_tokens", o->prompt_tokens},
                  {"deadline", o->deadline_ns != 300 * HW_SEC},
                  {"return", strcmp(o->returns, "tokens") != 0},
                  {"tokens-per-request", o->tokens_per_request > 1},
                  {"lossy", o->lossy},
                  {"evict", o->evict},
                  {"trace", o->trace}};
    for (size_t i = 0; i < ARRAY_LEN(strays); i++)
        if (strays[i].given)
            return cmd_fail(CMD_USAGE,
                            "llm: --%s goes with --model FILE, here or in a --mode, and not with a "
                            "served model",
                            strays[i].name);
    return CMD_DONE;
}

static enum cmd_exit ask(const struct llm_run_options *o, const char *address)
{
    struct llm_sampling sampling;
    struct llm_client client;
    char *prompt = NULL;
    size_t bytes = 0;
    enum cmd_exit code = refuse_strays(o);
    if (code == CMD_DONE)
        code = llm_run_sampling(o, &sampling);
    if (code == CMD_DONE)
        code = read_prompt(o, &prompt, &bytes);
    if (code == CMD_DONE) {
        code = llm_client_open(&client, "llm", &o->connect, address, o->model);
        if (code == CMD_UNREACHABLE && !address)
            cmd_warn("llm: without an address the default server is asked; --model FILE runs a "
                     "model here");
        if (code == CMD_DONE)
            code = answer(&client, o, prompt, bytes, &sampling);
        llm_client_close(&client);
    }
    free(prompt);
    return code;
}

static enum cmd_exit run_mode(const struct llm_run_options *o)
{
    struct llm_run r;
    struct llm_run_options with_text = *o;
    char *prompt = NULL;
    size_t bytes;
    const char *stray = o->stops.count ? "stop" : o->echo ? "echo" : o->stats ? "stats" : NULL;
    if (stray)
        return cmd_fail(CMD_USAGE,
                        "llm: --%s goes with a served model, and not with --model FILE here or in "
                        "a --mode",
                        stray);
    enum cmd_exit code = o->file ? read_prompt(o, &prompt, &bytes) : CMD_DONE;
    if (code != CMD_DONE)
        return code;
    if (prompt)
        with_text.prompt = prompt;
    code = llm_run_open(&r, &with_text, stdout);
    if (code == CMD_DONE)
        code = llm_run_generate(&r);
    if (code == CMD_DONE)
        code = llm_run_report(&r, stdout);
    llm_run_close(&r);
    free(prompt);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct llm_run_options *o = values;
    const char *address = operands->count ? operands->items[0] : NULL;
    struct llm_run_options there = *o;
    char text[LLM_RUN_ADDRESS_CHARS];
    if (address && o->gpu_host)
        return cmd_fail(CMD_USAGE, "llm: ADDR or --gpu_host, not both");
    if (address)
        there.gpu_host = address;
    if (o->worker_metrics)
        return llm_run_worker_metrics(&there, stdout);
    if (o->download)
        return llm_run_download(&there, stdout);
    if (o->mode == 0 && (address || !o->model)) {
        bool in_parts = o->gpu_host || o->master_port;
        if (in_parts)
            llm_run_address(&there, text);
        return ask(o, in_parts ? text : address);
    }
    if (address && !llm_mode_find(llm_run_modes[o->mode])->remote)
        return cmd_fail(CMD_USAGE, "llm: --mode %s runs the model here, not at an address",
                        llm_run_modes[o->mode]);
    return run_mode(&there);
}

const struct cmd_command cmd_llm = {
    .name = "llm",
    .summary = "continue a text, at a server or in one of the modes",
    .operands = "[ADDR]",
    .operands_max = 1,
    .description =
        "Continues a prompt.  With ADDR, or without --model, a server does (hawser serve --model): "
        "the vocabulary comes from there, text goes to standard output as it is generated, and "
        "figures to standard error.\n"
        "\n"
        "With --model FILE the model runs in one of the modes, which tell how long it took and "
        "what travelled.  The same model, prompt, seed and options give the same text in all of "
        "them.\n"
        "\n"
        "  local          the model runs in this process; nothing travels\n"
        "  naive          weights, tokens and KV cache travel with every step\n"
        "  remote_cache   weights travel once, the cache stays at the worker; tokens, full logits\n"
        "  semantic       tokens, and what the consumer needs (--return); also sys_simulated\n"
        "  remote_cache_compressed, _delta_raw, _delta_compressed, _recompute\n"
        "                 as remote_cache; they differ in how evicted KV returns to the worker: "
        "whole "
        "and packed; only what is missing; that packed; computed again\n"
        "  vulkan         as local, on a GPU through Vulkan: with hawser run, a remote GPU\n"
        "\n"
        "The remote modes need a worker: hawser serve --model FILE.",
    .options = options,
    .environment = cmd_connect_env,
    .examples = "hawser llm gpu1:28100 --prompt 'Once upon a time' -n 64 --stats\n"
                "hawser llm gpu1 --stop THE --stop END < story.txt\n"
                "hawser llm --model model.gguf --prompt 'Once upon a time' --decode_steps 64\n"
                "hawser llm --model stories260K.bin --tokenizer tok512.bin --seed 7\n"
                "hawser llm --mode semantic --model model.gguf --prompt 'Once' \\\n"
                "    --gpu_host gpu1 --master_port 29501 --tokens-per-request 8",
    .values_size = sizeof(struct llm_run_options),
    .run = run,
};
