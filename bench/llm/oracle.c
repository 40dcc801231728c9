/* What llama.cpp computes for a model file: bench/llm/agree compiles this against libllama and runs
 * it.
 *
 *   oracle logits FILE CONTEXT [MODE CHOICES] BACKENDS < tokens > logits
 *       binary32, vocab values a token
 *   oracle tokens FILE BACKENDS < texts > numbers
 *       a line of numbers for each text
 *   oracle whole FILE RESULT BACKENDS
 *       the file with all weights as F32
 *
 * Tokens come as 32-bit numbers, texts with a zero byte after each.  BACKENDS is the folder of
 * ggml's CPU backends.  K and V are binary32 and flash attention is off, so that nothing is
 * rounded. CHOICES is a file of the experts that rows met (MODE write) or shall meet (MODE read),
 * as tests/unit/llm/logits.c has it. */
#include <ggml-backend.h>
#include <llama.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 512, THREADS = 2 };

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static int fail(const char *what)
{
    fprintf(stderr, "oracle: %s\n", what);
    return 1;
}

/* All of standard input; NULL without memory. */
static char *read_all(size_t *bytes)
{
    size_t room = 1 << 16, used = 0, got;
    char *all = malloc(room + 1);
    while (all && (got = fread(all + used, 1, room - used, stdin)) > 0) {
        used += got;
        if (used == room)
            all = realloc(all, (room *= 2) + 1);
    }
    if (all)
        all[used] = 0;
    *bytes = used;
    return all;
}

static struct llama_model *load(const char *file, bool vocab_only)
{
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = vocab_only;
    params.n_gpu_layers = 0;
    return llama_model_load_from_file(file, params);
}

static int put_batch(struct llama_context *context, const int32_t *tokens, int first, int count,
                     int vocab)
{
    struct llama_batch batch = llama_batch_init(count, 0, 1);
    batch.n_tokens = count;
    for (int i = 0; i < count; i++) {
        batch.token[i] = tokens[first + i];
        batch.pos[i] = first + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    int failed = llama_decode(context, batch);
    for (int i = 0; i < count && !failed; i++) {
        const float *logits = llama_get_logits_ith(context, i);
        failed = !logits || fwrite(logits, sizeof *logits, (size_t)vocab, stdout) != (size_t)vocab;
    }
    llama_batch_free(batch);
    return failed;
}

struct choices {
    FILE *file;
    bool writes, failed;
};

/* Called before (ask) and after each tensor is computed: the numbers of a layer's chosen experts, a
 * row for each token. */
static bool see(struct ggml_tensor *t, bool ask, void *user)
{
    struct choices *c = user;
    if (strncmp(t->name, "ffn_moe_topk-", 13) != 0)
        return !ask;
    if (ask)
        return true;
    size_t used = (size_t)t->ne[0];
    int32_t row[1024];
    for (int64_t r = 0; r < t->ne[1] && !c->failed; r++) {
        size_t at = (size_t)r * t->nb[1], bytes = used * sizeof *row;
        c->failed = used > sizeof row / sizeof *row;
        if (!c->failed && c->writes) {
            ggml_backend_tensor_get(t, row, at, bytes);
            c->failed = fwrite(row, sizeof *row, used, c->file) != used;
        } else if (!c->failed) {
            c->failed = fread(row, sizeof *row, used, c->file) != used;
            ggml_backend_tensor_set(t, row, at, bytes);
        }
    }
    return true;
}

static int logits(const char *file, int n_ctx, struct choices *choices)
{
    size_t bytes;
    int32_t *tokens = (int32_t *)(void *)read_all(&bytes);
    int count = (int)(bytes / sizeof *tokens);
    struct llama_model *model = load(file, false);
    if (!model || !tokens)
        return fail("cannot load the model");
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)n_ctx;
    params.n_batch = params.n_ubatch = BATCH;
    params.n_threads = params.n_threads_batch = THREADS;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.swa_full = true;
    params.type_k = params.type_v = GGML_TYPE_F32;
    if (choices->file) {
        params.cb_eval = see;
        params.cb_eval_user_data = choices;
    }
    struct llama_context *context = llama_init_from_model(model, params);
    if (!context)
        return fail("cannot make a context");
    int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int first = 0; first < count; first += BATCH) {
        int rest = count - first;
        if (put_batch(context, tokens, first, rest < BATCH ? rest : BATCH, vocab))
            return fail("cannot decode");
    }
    if (choices->failed || (choices->file && fclose(choices->file)))
        return fail("cannot read or write the choices");
    return 0;
}

static int tokens(const char *file)
{
    size_t bytes;
    char *texts = read_all(&bytes);
    struct llama_model *model = load(file, true);
    if (!model || !texts)
        return fail("cannot load the vocabulary");
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    for (const char *text = texts; text < texts + bytes; text += strlen(text) + 1) {
        int room = (int)strlen(text) + 16;
        llama_token *found = malloc((size_t)room * sizeof *found);
        int count =
            found ? llama_tokenize(vocab, text, (int)strlen(text), found, room, true, true) : -1;
        if (count < 0)
            return fail("cannot tokenize");
        for (int i = 0; i < count; i++)
            printf("%s%d", i ? " " : "", found[i]);
        printf("\n");
        free(found);
    }
    return 0;
}

static int whole(const char *file, const char *result)
{
    struct llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = LLAMA_FTYPE_ALL_F32;
    params.allow_requantize = true;
    return llama_model_quantize(file, result, &params) ? fail("cannot unpack the weights") : 0;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return fail("see the head of bench/llm/oracle.c");
    llama_log_set(quiet, NULL);
    ggml_backend_load_all_from_path(argv[argc - 1]);
    llama_backend_init();
    if (strcmp(argv[1], "logits") == 0 && (argc == 5 || argc == 7)) {
        struct choices choices = {.writes = argc == 7 && strcmp(argv[4], "write") == 0};
        if (argc == 7 && !(choices.file = fopen(argv[5], choices.writes ? "wb" : "rb")))
            return fail("cannot open the choices");
        return logits(argv[2], atoi(argv[3]), &choices);
    }
    if (strcmp(argv[1], "tokens") == 0)
        return tokens(argv[2]);
    if (strcmp(argv[1], "whole") == 0 && argc == 5)
        return whole(argv[2], argv[3]);
    return fail("logits, tokens or whole");
}
