/* Requests of the LLM worker as bytes: what is sent is what arrives, and nothing else is taken. */
#include "unit.h"

#include "llm/engine/backend.h"
#include "llm/worker/inspect.h"
#include "llm/worker/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static uint8_t bytes[4096];

static size_t encode(const struct llm_request *r)
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    llm_request_encode(r, &e);
    assert_int_equal(wire_enc_error(&e), 0);
    return wire_enc_len(&e);
}

static uint32_t some_tokens[] = {1, 200, 50399, UINT32_MAX};
static const uint8_t piece[] = {9, 8, 7};
static const struct llm_bias some_biases[] = {{3, 1.5f}, {UINT32_MAX, -100}};

static const struct llm_request samples[] = {
    {.method = LLM_METHOD_UPLOAD,
     .upload = LLM_UPLOAD_KV,
     .total = 10,
     .offset = 7,
     .bytes = piece,
     .length = 3},
    {.method = LLM_METHOD_FIND_WEIGHTS, .hash = {1, 2, 3}, .total = 1 << 20},
    {.method = LLM_METHOD_DOWNLOAD_WEIGHTS, .offset = 5, .length = LLM_PIECE_BYTES_MOST},
    {.method = LLM_METHOD_DOWNLOAD_KV, .offset = 5, .length = 0},
    {.method = LLM_METHOD_STATELESS, .positions = 7, .tokens = some_tokens, .token_count = 4},
    {.method = LLM_METHOD_PREFILL_HANDLE, .tokens = some_tokens, .token_count = 4},
    {.method = LLM_METHOD_DECODE_HANDLE, .handle = {0xff, 1}, .value = 300},
    {.method = LLM_METHOD_PREFILL_SEMANTIC,
     .wish = {.kind = LLM_WISH_TOKENS,
              .sampling = {.temperature = 0.5f, .top_k = 40, .top_p = 0.9f, .seed = 77}},
     .tokens = some_tokens,
     .token_count = 4},
    {.method = LLM_METHOD_PREFILL_SEMANTIC,
     .wish = {.kind = LLM_WISH_TOP_K, .top_k = LLM_TOP_K_MAX},
     .tokens = some_tokens,
     .token_count = 1},
    {.method = LLM_METHOD_PREFILL_SEMANTIC,
     .wish = {.kind = LLM_WISH_LOGITS, .lossy = true, .link_rate = 1000000},
     .tokens = some_tokens,
     .token_count = 1},
    {.method = LLM_METHOD_DECODE_SEMANTIC, .id = 3, .value = 8},
    {.method = LLM_METHOD_RELEASE, .handle = {4}},
    {.method = LLM_METHOD_LOAD_WEIGHTS},
    {.method = LLM_METHOD_RESET},
    {.method = LLM_METHOD_METRICS},
    {.method = LLM_METHOD_NETWORK_COUNTERS},
    {.method = LLM_METHOD_PROBE, .length = LLM_PROBE_BYTES_MAX},
    {.method = LLM_METHOD_EVICT_KV, .handle = {5}, .layers = {.words = {0x81, 1}}},
    {.method = LLM_METHOD_EVICT_KV, .handle = {6}},
    {.method = LLM_METHOD_FETCH_KV,
     .handle = {7},
     .from = 64,
     .layers = {.words = {[LLM_LAYER_WORDS - 1] = UINT64_C(1) << 63}}},
    {.method = LLM_METHOD_SET_RECOVERY, .policy = {LLM_RECOVER_ALL, LLM_PACK_ALWAYS}},
    {.method = LLM_METHOD_RESUME, .handle = {8}},
    {.method = LLM_METHOD_DESCRIBE},
    {.method = LLM_METHOD_INSPECT},
    {.method = LLM_METHOD_HEADER, .model = "kjv", .offset = 5, .length = 9},
    {.method = LLM_METHOD_GENERATE,
     .id = 300,
     .generate = {.model = "kjv",
                  .tokens = some_tokens,
                  .token_count = 4,
                  .sampled = 2,
                  .most = 70,
                  .sampling = {.temperature = 0.5f,
                               .top_p = 1,
                               .seed = 3,
                               .min_p = 0.1f,
                               .presence = 1,
                               .frequency = -1,
                               .repetition = 1.5f,
                               .biases = some_biases,
                               .bias_count = 2},
                  .stop_at_end = true,
                  .stops = some_tokens,
                  .stop_count = 3,
                  .logprobs = true,
                  .tops = 5,
                  .grammar = "root ::= \"a\""}},
    {.method = LLM_METHOD_GENERATE,
     .generate = {.tokens = some_tokens, .token_count = 1, .logprobs = true}},
    {.method = LLM_METHOD_GENERATE,
     .generate =
         {.model = "kjv", .tokens = some_tokens, .token_count = 3, .embed = true, .stays = true}},
    {.method = LLM_METHOD_GENERATE,
     .id = 8,
     .generate = {.model = "kjv",
                  .tokens = some_tokens,
                  .token_count = 3,
                  .sampled = 1,
                  .logprobs = true,
                  .scored = 2}},
    {.method = LLM_METHOD_CANCEL, .id = 300},
    {.method = LLM_METHOD_DRAIN, .undo = true},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static void assert_same_text(const char *a, const char *b)
{
    assert_string_equal(a ? a : "", b ? b : "");
}

static void assert_same_generate(const struct llm_generate *a, const struct llm_generate *b)
{
    const struct llm_sampling *x = &a->sampling, *y = &b->sampling;
    assert_same_text(a->model, b->model);
    assert_same_text(a->grammar, b->grammar);
    assert_int_equal(a->token_count, b->token_count);
    if (a->token_count)
        assert_memory_equal(a->tokens, b->tokens, a->token_count * sizeof *a->tokens);
    assert_int_equal(a->stop_count, b->stop_count);
    if (a->stop_count)
        assert_memory_equal(a->stops, b->stops, a->stop_count * sizeof *a->stops);
    assert_int_equal(a->sampled, b->sampled);
    assert_int_equal(a->most, b->most);
    assert_int_equal(a->stop_at_end, b->stop_at_end);
    assert_int_equal(a->logprobs, b->logprobs);
    assert_int_equal(a->embed, b->embed);
    assert_int_equal(a->stays, b->stays);
    assert_int_equal(a->scored, b->scored);
    assert_int_equal(a->tops, b->tops);
    assert_int_equal(x->seed, y->seed);
    assert_true(x->temperature == y->temperature && x->top_p == y->top_p && x->min_p == y->min_p);
    assert_true(x->presence == y->presence && x->frequency == y->frequency);
    assert_true(x->repetition == y->repetition);
    assert_int_equal(x->bias_count, y->bias_count);
    if (x->bias_count)
        assert_memory_equal(x->biases, y->biases, x->bias_count * sizeof *x->biases);
}

static void assert_same(const struct llm_request *a, const struct llm_request *b)
{
    assert_int_equal(a->method, b->method);
    assert_memory_equal(a->handle, b->handle, sizeof a->handle);
    assert_memory_equal(a->hash, b->hash, sizeof a->hash);
    assert_int_equal(a->upload, b->upload);
    assert_int_equal(a->total, b->total);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->length, b->length);
    assert_int_equal(a->positions, b->positions);
    assert_int_equal(a->token_count, b->token_count);
    if (a->token_count)
        assert_memory_equal(a->tokens, b->tokens, a->token_count * sizeof *a->tokens);
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->value, b->value);
    assert_int_equal(a->wish.kind, b->wish.kind);
    assert_int_equal(a->wish.top_k, b->wish.top_k);
    assert_int_equal(a->wish.lossy, b->wish.lossy);
    assert_int_equal(a->wish.link_rate, b->wish.link_rate);
    assert_true(a->wish.sampling.temperature == b->wish.sampling.temperature);
    assert_int_equal(a->wish.sampling.top_k, b->wish.sampling.top_k);
    assert_true(a->wish.sampling.top_p == b->wish.sampling.top_p);
    assert_int_equal(a->wish.sampling.seed, b->wish.sampling.seed);
    assert_memory_equal(&a->layers, &b->layers, sizeof a->layers);
    assert_int_equal(a->from, b->from);
    assert_int_equal(a->policy.recovery, b->policy.recovery);
    assert_int_equal(a->policy.pack, b->policy.pack);
    assert_string_equal(a->model, b->model);
    assert_int_equal(a->undo, b->undo);
    assert_same_generate(&a->generate, &b->generate);
}

static void what_is_sent_arrives(void **state)
{
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        struct llm_request got;
        size_t len = encode(&samples[i]);
        assert_int_equal(llm_request_decode(samples[i].method, bytes, len, &got), 0);
        assert_same(&got, &samples[i]);
        llm_request_fini(&got);
    }
}

/* Bodies that end in tokens or in a piece stay sound when some of those are cut off. */
static bool ends_in_a_list(uint32_t method)
{
    return method == LLM_METHOD_STATELESS || method == LLM_METHOD_PREFILL_HANDLE ||
           method == LLM_METHOD_PREFILL_SEMANTIC || method == LLM_METHOD_UPLOAD ||
           method == LLM_METHOD_GENERATE;
}

static void cuts_and_excess_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        struct llm_request got;
        size_t len = encode(&samples[i]);
        if (ends_in_a_list(samples[i].method))
            continue;
        for (size_t n = 0; n < len; n++)
            assert_int_equal(llm_request_decode(samples[i].method, bytes, n, &got), -EPROTO);
        bytes[len] = 0;
        assert_int_equal(llm_request_decode(samples[i].method, bytes, len + 1, &got), -EPROTO);
    }
}

static void a_decode_step_is_two_bytes(void **state)
{
    (void)state;
    struct llm_request r = {.method = LLM_METHOD_DECODE_SEMANTIC, .id = 0, .value = 1};
    assert_int_equal(encode(&r), 2);
    r = (struct llm_request){.method = LLM_METHOD_DECODE_HANDLE, .value = 50399};
    assert_int_equal(encode(&r), LLM_HANDLE_BYTES + 3);
}

static void refused(uint32_t method, const void *body, size_t len, int error)
{
    struct llm_request got = {.total = 42};
    assert_int_equal(llm_request_decode(method, body, len, &got), error);
    assert_int_equal(got.total, 42); /* written only on success */
}

static void hostile_bodies_are_refused(void **state)
{
    (void)state;
    struct llm_request r = samples[0];
    refused(LLM_METHOD_FIRST - 1, "", 0, -ENOSYS);
    refused(LLM_METHOD_LAST + 1, "", 0, -ENOSYS);
    refused(LLM_METHOD_PREFILL_HANDLE, "", 0, -EPROTO);
    refused(LLM_METHOD_PREFILL_HANDLE, "\x80", 1, -EPROTO);
    refused(LLM_METHOD_PREFILL_HANDLE, "\x80\x80\x80\x80\x10", 5, -EPROTO); /* 2^32 */
    refused(LLM_METHOD_PREFILL_SEMANTIC, "\x04\x01", 2, -EPROTO);           /* no such wish */
    refused(LLM_METHOD_PREFILL_SEMANTIC, "\x02\x00\x01", 3, -EPROTO);       /* a top 0 */
    refused(LLM_METHOD_PREFILL_SEMANTIC, "\x02\x81\x20\x01", 4, -EMSGSIZE); /* a top 4097 */
    refused(LLM_METHOD_PREFILL_SEMANTIC, "\x03\x02\x00\x01", 4, -EPROTO);   /* lossy 2 */
    r.upload = (enum llm_upload)3;
    refused(r.method, bytes, encode(&r), -EPROTO);
    r = samples[0];
    r.offset = 8; /* reaches past the total */
    refused(r.method, bytes, encode(&r), -EPROTO);
    r.offset = UINT64_MAX;
    refused(r.method, bytes, encode(&r), -EPROTO);
    r = (struct llm_request){.method = LLM_METHOD_DOWNLOAD_KV, .length = LLM_PIECE_BYTES_MOST + 1};
    refused(r.method, bytes, encode(&r), -EMSGSIZE);
    r = (struct llm_request){.method = LLM_METHOD_PROBE, .length = LLM_PROBE_BYTES_MAX + 1};
    refused(r.method, bytes, encode(&r), -EMSGSIZE);
    refused(LLM_METHOD_TOKENS, "", 0, -ENOSYS); /* only a worker pushes */
    refused(LLM_METHOD_DRAIN, "\2", 1, -EPROTO);
}

static void refuse_generate(const struct llm_generate *g, int error)
{
    struct llm_request r = {.method = LLM_METHOD_GENERATE, .generate = *g};
    refused(r.method, bytes, encode(&r), error);
}

static void hostile_texts_are_refused(void **state)
{
    (void)state;
    static const uint32_t stops[LLM_STOPS_MAX + 1];
    struct llm_generate fine = {.tokens = some_tokens, .token_count = 2}, g = fine;
    g.token_count = 0;
    refuse_generate(&g, -EPROTO);
    g = fine;
    g.sampled = 3;
    refuse_generate(&g, -EPROTO);
    g = fine;
    g.tops = 1; /* without logprobs */
    refuse_generate(&g, -EPROTO);
    g.logprobs = true;
    g.tops = LLM_TOP_LOGPROBS_MAX + 1;
    refuse_generate(&g, -EMSGSIZE);
    g = fine;
    g.scored = 1; /* without logprobs */
    refuse_generate(&g, -EPROTO);
    g.logprobs = true;
    g.sampled = 1;
    g.scored = 2; /* a token that was generated */
    refuse_generate(&g, -EPROTO);
    g = fine;
    g.stops = stops;
    g.stop_count = LLM_STOPS_MAX + 1;
    refuse_generate(&g, -EMSGSIZE);
    struct llm_request r = {.method = LLM_METHOD_GENERATE, .generate = fine};
    size_t len = encode(&r);
    bytes[1] = 0x80; /* no such flag */
    refused(r.method, bytes, len, -EPROTO);
}

static void too_many_tokens_are_refused(void **state)
{
    (void)state;
    size_t many = (size_t)WIRE_TOKENS_MAX + 1;
    uint8_t *body = calloc(1, many);
    assert_non_null(body);
    refused(LLM_METHOD_PREFILL_HANDLE, body, many, -EMSGSIZE);
    struct llm_request got;
    assert_int_equal(llm_request_decode(LLM_METHOD_PREFILL_HANDLE, body, many - 1, &got), 0);
    assert_int_equal(got.token_count, WIRE_TOKENS_MAX);
    llm_request_fini(&got);
    free(body);
}

static void classes_follow_what_bytes_are_for(void **state)
{
    (void)state;
    struct llm_request r = samples[0];
    assert_int_equal(llm_request_class(&r), LLM_KV_REGULAR);
    r.upload = LLM_UPLOAD_WEIGHTS;
    assert_int_equal(llm_request_class(&r), LLM_WEIGHTS);
    r.method = LLM_METHOD_DECODE_SEMANTIC;
    assert_int_equal(llm_request_class(&r), LLM_TOKENS);
    assert_int_equal(llm_answer_class(LLM_METHOD_DECODE_SEMANTIC), LLM_TOKENS);
    assert_int_equal(llm_answer_class(LLM_METHOD_DECODE_HANDLE), LLM_LOGITS);
    assert_int_equal(llm_answer_class(LLM_METHOD_DOWNLOAD_KV), LLM_KV_REGULAR);
    assert_int_equal(llm_answer_class(LLM_METHOD_METRICS), LLM_CONTROL);
}

static void the_byte_account_adds_up(void **state)
{
    (void)state;
    struct rpc_stats stats = {0};
    struct llm_byte_account account = {0};
    hw_counter_bump(&stats.bytes_sent, 100);
    hw_counter_bump(&stats.bytes_received, 50);
    llm_byte_account_mark(&account, &stats, LLM_TOKENS, LLM_LOGITS);
    hw_counter_bump(&stats.bytes_sent, 7);
    llm_byte_account_mark(&account, &stats, LLM_CONTROL, LLM_CONTROL);
    assert_int_equal(account.sent[LLM_TOKENS], 100);
    assert_int_equal(account.received[LLM_LOGITS], 50);
    assert_int_equal(llm_byte_account_bytes(&account, LLM_CONTROL), 7);
    assert_int_equal(llm_byte_account_total(&account), 157);
}

static uint64_t sum(const uint32_t *cells, uint32_t count)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < count; i++)
        all += cells[i];
    return all;
}

static void a_map_of_kv_counts_each_page_once(void **state)
{
    (void)state;
    static const struct {
        uint32_t layers, positions, rows, columns;
    } shapes[] = {{6, 512, 6, 512 / LLM_KV_POSITIONS}, {80, 131072, 64, 64}, {1, 1, 1, 1}};
    static struct llm_inspection sent, got;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct llm_kv_map *m = &sent.maps[0];
        uint32_t layers = shapes[i].layers, positions = shapes[i].positions;
        uint32_t pages = (positions + LLM_KV_POSITIONS - 1) / LLM_KV_POSITIONS;
        sent = (struct llm_inspection){.uploads = 2, .uploads_found = 5, .map_count = 1};
        llm_kv_map_init(m, layers, positions);
        assert_int_equal(m->rows, shapes[i].rows);
        assert_int_equal(m->columns, shapes[i].columns);
        /* A sequence of full length, whose last layer is evicted. */
        for (uint32_t l = 0; l < layers; l++)
            llm_kv_map_add(m, l, l + 1 < layers ? positions : 0, positions);
        m->sequences = 1;
        uint32_t cells = m->rows * m->columns;
        assert_int_equal(sum(m->resident, cells), (uint64_t)pages * (layers - 1));
        assert_int_equal(sum(m->missing, cells), pages);
        assert_int_equal(sum(m->missing, cells - m->columns), 0);
        struct wire_enc e;
        struct wire_dec d;
        wire_enc_init(&e, 1 << 20);
        llm_inspection_put(&e, &sent);
        assert_int_equal(wire_enc_error(&e), 0);
        wire_dec_init(&d, wire_enc_data(&e), wire_enc_len(&e));
        llm_inspection_get(&d, &got);
        assert_int_equal(wire_dec_end(&d), 0);
        assert_memory_equal(&got, &sent, sizeof sent);
        wire_enc_fini(&e);
    }
}

static void handles_read_as_uuids(void **state)
{
    (void)state;
    uint8_t handle[LLM_HANDLE_BYTES];
    char text[LLM_HANDLE_CHARS];
    for (int i = 0; i < LLM_HANDLE_BYTES; i++)
        handle[i] = (uint8_t)(i * 17);
    llm_handle_format(handle, text);
    assert_string_equal(text, "00112233-4455-6677-8899-aabbccddeeff");
}

/* ---- layers in words, and records ---- */

static uint64_t layers_of(const char *text)
{
    struct llm_layers set;
    assert_int_equal(llm_layers_parse(text, strlen(text), 12, &set), 0);
    return set.words[0];
}

static void layers_are_named_in_words(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     "12", "3-1", "1,",  ",1", "-1",    "1-",
                                      "101%", "%",  "a",   "0x1", "1 ", "all,1", "5%%"};
    struct llm_layers set;
    struct llm_evict_rule rule;
    assert_int_equal(layers_of("all"), 0xfff);
    assert_int_equal(layers_of("0,2-4,11"), 0x81d);
    assert_int_equal(layers_of("25%"), 0xe00);
    assert_int_equal(layers_of("0%"), 0);
    assert_int_equal(layers_of("100%"), 0xfff);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(llm_layers_parse(bad[i], strlen(bad[i]), 12, &set), -EINVAL);
    assert_int_equal(llm_evict_rule_parse("1-2@30", 12, &rule), 0);
    assert_int_equal(rule.layers.words[0], 6);
    assert_int_equal(rule.at, 30);
    assert_int_equal(llm_evict_rule_parse("all", 12, &rule), 0);
    assert_int_equal(rule.at, 1);
    assert_int_equal(llm_evict_rule_parse("all@0", 12, &rule), -EINVAL);
    assert_int_equal(llm_evict_rule_parse("all@", 12, &rule), -EINVAL);
    assert_int_equal(llm_evict_rule_parse("all@2x", 12, &rule), -EINVAL);
}

static void records_come_back(void **state)
{
    (void)state;
    struct llm_record got, record = {.hash = {1, 2},
                                     .policy = {LLM_RECOVER_DELTA, LLM_PACK_AUTO},
                                     .prompt = 3,
                                     .last = 9,
                                     .tokens = some_tokens,
                                     .token_count = 4};
    for (int wishes = 0; wishes < 2; wishes++) {
        struct wire_enc e;
        wire_enc_init_fixed(&e, bytes, sizeof bytes);
        llm_record_encode(&record, &e);
        assert_int_equal(wire_enc_error(&e), 0);
        assert_int_equal(llm_record_decode(bytes, wire_enc_len(&e), &got), 0);
        assert_memory_equal(got.hash, record.hash, sizeof got.hash);
        assert_int_equal(got.wish.kind, record.wish.kind);
        assert_int_equal(got.prompt, 3);
        assert_int_equal(got.last, 9);
        assert_int_equal(got.token_count, 4);
        assert_memory_equal(got.tokens, some_tokens, sizeof some_tokens);
        llm_record_fini(&got);
        for (size_t n = 0; n < 30; n++) /* the tokens begin at 31 or later */
            assert_int_equal(llm_record_decode(bytes, n, &got), -EPROTO);
        record.wish = (struct llm_wish){.kind = LLM_WISH_TOP_K, .top_k = 4};
    }
    bytes[0] ^= 1;
    assert_int_equal(llm_record_decode(bytes, 40, &got), -EPROTO);
}

/* XXH3 multiplies each half of eight bytes, mixed with a constant, by the other half, and adds the
 * bytes.  Where one half is the constant's, the product is 0 and the other half counts only in the
 * sum: two such places can be changed against each other. */
static void nobody_can_make_two_files_of_one_name(void **state)
{
    static const uint8_t constants[2][4] = {{0xb8, 0xfe, 0x6c, 0x39}, {0x7c, 0x01, 0x81, 0x2c}};
    enum { STRIPE = 64, BYTES = 8 * STRIPE };
    uint8_t mine[BYTES] = {0}, theirs[BYTES], names[2][LLM_HASH_BYTES];
    (void)state;
    for (int i = 0; i < 2; i++)
        memcpy(mine + i * STRIPE, constants[i], sizeof constants[i]);
    memcpy(theirs, mine, sizeof theirs);
    mine[4] = mine[STRIPE + 4] = 1;
    theirs[4] = 2;
    assert_true(XXH128_isEqual(XXH3_128bits(mine, BYTES), XXH3_128bits(theirs, BYTES)));
    llm_file_hash(mine, BYTES, names[0]);
    llm_file_hash(theirs, BYTES, names[1]);
    assert_memory_not_equal(names[0], names[1], LLM_HASH_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_can_make_two_files_of_one_name),
        cmocka_unit_test(what_is_sent_arrives),
        cmocka_unit_test(cuts_and_excess_are_refused),
        cmocka_unit_test(a_decode_step_is_two_bytes),
        cmocka_unit_test(hostile_bodies_are_refused),
        cmocka_unit_test(hostile_texts_are_refused),
        cmocka_unit_test(too_many_tokens_are_refused),
        cmocka_unit_test(classes_follow_what_bytes_are_for),
        cmocka_unit_test(the_byte_account_adds_up),
        cmocka_unit_test(a_map_of_kv_counts_each_page_once),
        cmocka_unit_test(handles_read_as_uuids),
        cmocka_unit_test(layers_are_named_in_words),
        cmocka_unit_test(records_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
