/* hawser llm - one inference in one mode. */
#include "cli/commands.h"
#include "command/llm_run.h"

static const struct cmd_option options[] = {
    {.name = "mode",
     .kind = CMD_CHOICE,
     .offset = offsetof(struct llm_run_options, mode),
     .choices = llm_run_modes,
     .def = "local",
     .help = "where the model runs and what travels; see below"},
    {.name = "model",
     .letter = 'm',
     .kind = CMD_STRING,
     .argument = "FILE",
     .offset = offsetof(struct llm_run_options, model),
     .help = "a GGUF file, or llama2.c's format"},
    {.name = "tokenizer",
     .kind = CMD_STRING,
     .argument = "FILE",
     .offset = offsetof(struct llm_run_options, tokenizer),
     .help = "the vocabulary of a model in llama2.c's format"},
    {.name = "prompt",
     .letter = 'p',
     .kind = CMD_STRING,
     .argument = "TEXT",
     .offset = offsetof(struct llm_run_options, prompt),
     .help = "what to continue (without it: the model begins by itself)"},
    {.name = "decode_steps",
     .letter = 'n',
     .kind = CMD_U64,
     .argument = "N",
     .offset = offsetof(struct llm_run_options, decode_steps),
     .def = "50",
     .min = 1,
     .max = LLM_CONTEXT_MAX,
     .help = "tokens to generate at most"},
    {.name = "phase",
     .kind = CMD_CHOICE,
     .offset = offsetof(struct llm_run_options, phase),
     .choices = llm_run_phases,
     .def = "decode",
     .help = "prefill: the prompt only, and the token after it; decode: all"},
    {.name = "backend",
     .kind = CMD_CHOICE,
     .offset = offsetof(struct llm_run_options, backend),
     .choices = llm_run_backends,
     .def = "cpu",
     .help = "what computes"},
    {.name = "threads",
     .letter = 't',
     .kind = CMD_U64,
     .argument = "N",
     .offset = offsetof(struct llm_run_options, threads),
     .def = "0",
     .max = 256,
     .help = "of the cpu backend; 0: one for each core"},
    {.name = "context",
     .kind = CMD_U64,
     .argument = "N",
     .offset = offsetof(struct llm_run_options, context),
     .def = "0",
     .max = LLM_CONTEXT_MAX,
     .help = "positions at most; 0: as many as the model has"},
    {.name = "temperature",
     .kind = CMD_STRING,
     .argument = "X",
     .offset = offsetof(struct llm_run_options, temperature),
     .def = "0",
     .help = "0 to 100; 0: always the likeliest token"},
    {.name = "top-k",
     .kind = CMD_U64,
     .argument = "K",
     .offset = offsetof(struct llm_run_options, top_k),
     .def = "0",
     .max = LLM_VOCAB_MAX,
     .help = "draw from the K likeliest tokens; 0: from all"},
    {.name = "top-p",
     .kind = CMD_STRING,
     .argument = "P",
     .offset = offsetof(struct llm_run_options, top_p),
     .def = "1",
     .help = "draw from the likeliest tokens that have this probability together"},
    {.name = "seed",
     .kind = CMD_U64,
     .argument = "N",
     .offset = offsetof(struct llm_run_options, seed),
     .def = "0",
     .help = "the same seed draws the same tokens"},
    {.name = "ignore-end",
     .kind = CMD_FLAG,
     .offset = offsetof(struct llm_run_options, ignore_end),
     .help = "go on after a token that ends the text"},
    {.name = "prompt_tokens",
     .kind = CMD_U64,
     .argument = "N",
     .offset = offsetof(struct llm_run_options, prompt_tokens),
     .max = WIRE_TOKENS_MAX,
     .help = "a prompt of N random tokens instead of text, for measurements"},
    {.name = "gpu_host",
     .kind = CMD_STRING,
     .argument = "HOST",
     .offset = offsetof(struct llm_run_options, gpu_host),
     .def = "127.0.0.1",
     .help = "the worker's machine, for the remote modes; also HOST:PORT"},
    {.name = "master_port",
     .kind = CMD_U64,
     .argument = "PORT",
     .offset = offsetof(struct llm_run_options, master_port),
     .def = "28100",
     .min = 1,
     .max = 65535,
     .help = "the worker's port"},
    CMD_CONNECT_OPTIONS(struct llm_run_options, connect),
    {.name = "deadline",
     .kind = CMD_DURATION,
     .argument = "TIME",
     .offset = offsetof(struct llm_run_options, deadline_ns),
     .def = "5m",
     .min = 1000000,
     .max = UINT64_C(24) * 3600 * 1000000000,
     .help = "for each exchange with the worker"},
    {.name = "return",
     .kind = CMD_STRING,
     .argument = "WHAT",
     .offset = offsetof(struct llm_run_options, returns),
     .def = "tokens",
     .help = "semantic: what comes back: tokens, sampled at the worker; topk:K,\n"
             "the K largest logits; logits, all of them, compressed if that pays"},
    {.name = "tokens-per-request",
     .kind = CMD_U64,
     .argument = "N",
     .offset = offsetof(struct llm_run_options, tokens_per_request),
     .def = "1",
     .min = 1,
     .max = LLM_GENERATE_MAX,
     .help = "semantic with tokens: so many with one exchange"},
    {.name = "lossy",
     .kind = CMD_FLAG,
     .offset = offsetof(struct llm_run_options, lossy),
     .help = "semantic with logits: as binary16; the tokens may differ"},
    {.name = "evict",
     .kind = CMD_STRING,
     .argument = "LAYERS@N",
     .offset = offsetof(struct llm_run_options, evict),
     .help = "remote modes: make the worker evict these layers of the sequence to its store\n"
             "before the Nth exchange after the prompt; the worker needs --shadow"},
    {.name = "trace",
     .kind = CMD_FLAG,
     .offset = offsetof(struct llm_run_options, trace),
     .help = "also print tokens, and time and bytes of each exchange"},
    {.name = "download",
     .kind = CMD_STRING,
     .argument = "FILE",
     .offset = offsetof(struct llm_run_options, download),
     .help = "only fetch the model that the worker serves into FILE"},
    {.name = "worker-metrics",
     .kind = CMD_FLAG,
     .offset = offsetof(struct llm_run_options, worker_metrics),
     .help = "only print the worker's open sequences and models"},
    {NULL},
};

static const struct cmd_env environment[] = {
    {"VENUS_TLS_CA", "as --ca"},
    {"VENUS_TLS_FINGERPRINT", "as --fingerprint"},
    {"VENUS_TOKEN_FILE", "as --token-file"},
    {"VENUS_LOG_LEVEL", "NONE, ERROR, WARN, INFO, DEBUG or TRACE [default: WARN]"},
    {NULL},
};

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    struct llm_run r;
    const struct llm_run_options *o = values;
    if (o->worker_metrics)
        return llm_run_worker_metrics(o, stdout);
    if (o->download)
        return llm_run_download(o, stdout);
    enum cmd_exit code = llm_run_open(&r, o, stdout);
    if (code == CMD_DONE)
        code = llm_run_generate(&r);
    if (code == CMD_DONE)
        code = llm_run_report(&r, stdout);
    llm_run_close(&r);
    return code;
}

const struct cmd_command cmd_llm = {
    .name = "llm",
    .summary = "one inference in one mode",
    .operands = "",
    .description =
        "Continues a prompt with a model and says how long it took and what travelled.  The same\n"
        "model, prompt, seed and options give the same text in every mode.\n\n"
        "  local          the model runs in this process; nothing travels\n"
        "  naive          weights, tokens and KV cache travel with every step\n"
        "  remote_cache   weights travel once, the cache stays at the worker; tokens, full logits\n"
        "  semantic       tokens, and what the consumer needs (--return); also sys_simulated\n"
        "  remote_cache_compressed, remote_cache_delta_raw, remote_cache_delta_compressed,\n"
        "  remote_cache_recompute\n"
        "                 as remote_cache; they differ in how evicted KV returns to the worker:\n"
        "                 whole and packed; only what is missing; that packed; computed again\n"
        "  vulkan         as local, on a GPU through Vulkan: with hawser run, a remote GPU\n\n"
        "The remote modes need a worker: hawser serve --model FILE.",
    .options = options,
    .environment = environment,
    .examples = "hawser llm --model model.gguf --prompt 'Once upon a time' --decode_steps 64\n"
                "hawser llm --model stories260K.bin --tokenizer tok512.bin --temperature 0.8 "
                "--seed 7\n"
                "hawser llm --mode semantic --model model.gguf --prompt 'Once' --gpu_host gpu1 \\\n"
                "    --master_port 29501 --tokens-per-request 8",
    .values_size = sizeof(struct llm_run_options),
    .run = run,
};
