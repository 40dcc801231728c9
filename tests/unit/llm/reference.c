#include "unit.h"

#include "reference.h"

struct reference reference;
const struct llm_sampling reference_sampling = {
    .temperature = 0.8f, .top_k = 20, .top_p = 1, .seed = 3};

void reference_open(void)
{
    reference.file = model_deep(CONTEXT, 11);
    for (uint32_t i = 0; i < PROMPT; i++)
        reference.prompt[i] = i * 7919 % MODEL_VOCAB;
}

void reference_generate(void)
{
    struct llm_mode_config config = {
        .file = reference.file, .engine = {.threads = 1}, .sampling = reference_sampling};
    struct llm_mode *m;
    uint32_t *tokens = reference.expected;
    char why[LLM_WHY_CHARS];
    assert_int_equal(llm_mode_open(llm_mode_find("local"), &config, &m, why), 0);
    assert_int_equal(llm_mode_prefill(m, reference.prompt, PROMPT, &tokens[0], why), 0);
    for (uint32_t i = 1, got; i < STEPS; i++)
        assert_int_equal(llm_mode_decode(m, 1, &tokens[i], &got, why), 0);
    llm_mode_close(m);
}

void reference_close(void)
{
    llm_file_close(reference.file);
}

struct llm_request reference_request(void)
{
    return (struct llm_request){.method = LLM_METHOD_PREFILL_SEMANTIC,
                                .wish = {.kind = LLM_WISH_TOKENS, .sampling = reference_sampling},
                                .tokens = reference.prompt,
                                .token_count = PROMPT};
}

static void call(struct llm_remote *remote, const struct llm_request *request, struct wire_dec *d)
{
    char why[LLM_WHY_CHARS] = "";
    if (llm_remote_call(remote, request, LLM_TOKENS, d, why))
        fail_msg("%s", why);
}

void reference_begin(struct llm_remote *remote, uint8_t handle[LLM_HANDLE_BYTES], uint64_t *id)
{
    struct llm_request request = reference_request();
    struct wire_dec d;
    call(remote, &request, &d);
    wire_get_copy(&d, handle, LLM_HANDLE_BYTES);
    *id = wire_get_varint(&d);
    assert_int_equal(wire_get_varint(&d), reference.expected[0]);
}

void reference_go_on(struct llm_remote *remote, uint64_t id, uint32_t from, uint32_t to)
{
    struct llm_request request = {
        .method = LLM_METHOD_DECODE_SEMANTIC, .id = id, .value = to - from};
    struct wire_dec d;
    call(remote, &request, &d);
    for (uint32_t i = from; i < to; i++)
        assert_int_equal(wire_get_varint(&d), reference.expected[i]);
}

struct kv_host_options reference_daemon(const char *socket, uint64_t arena_bytes)
{
    return (struct kv_host_options){
        .ranks = 1,
        .daemons = 1,
        .socket = socket,
        .store_bytes = 1 << 20,
        .store_entries = 64,
        .arena_bytes = arena_bytes,
        .blocks = {.entries = 4096, .high_percent = 100, .low_percent = 100}};
}
