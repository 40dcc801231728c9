/* Grammars over a vocabulary: masks agree with the text, states are forgotten, bounds hold. */
#include "unit.h"

#include "byte_vocab.h"
#include "failing.h"
#include "llm/chat/grammar.h"
#include "llm/chat/schema.h"

#include "base/rng.h"

#include <errno.h>
#include <limits.h>
#include <math.h>

static const char *const pieces[] = {"{\"", "\":",    "\": ", "true", "null",
                                     "},",  "\u00e9", "ab",   "aab"};

static char why[LLM_WHY_CHARS];

static struct llm_grammar *parse(const char *text)
{
    struct llm_grammar *g;
    if (llm_grammar_parse(text, strlen(text), &g, why))
        fail_msg("%s", why);
    return g;
}

static struct llm_matcher *match(const struct llm_grammar *g, const struct llm_pieces *p)
{
    struct llm_matcher *m;
    assert_int_equal(llm_matcher_create(g, p, &m), 0);
    return m;
}

static struct byte_vocab vocab;
static struct llm_pieces *sorted;

static int begin(void **state)
{
    (void)state;
    vocab = byte_vocab_make(false, pieces, ARRAY_LEN(pieces), NULL, 0);
    return llm_pieces_create(vocab.vocab, &sorted);
}

static int end(void **state)
{
    (void)state;
    llm_pieces_destroy(sorted);
    byte_vocab_drop(&vocab);
    return 0;
}

/* Walks at random; at each step the mask must allow just the tokens whose bytes the matcher takes.
 */
static void walk_and_compare(const char *grammar, uint64_t seed)
{
    struct llm_grammar *g = parse(grammar);
    struct llm_matcher *m = match(g, sorted);
    uint32_t count = llm_vocab_size(vocab.vocab);
    float *logits = calloc(count, sizeof *logits);
    char text[2048];
    size_t length = 0;
    struct hw_rng rng;
    hw_rng_seed(&rng, seed);
    for (int step = 0; step < 40; step++) {
        uint32_t allowed = 0, chosen = 0;
        memset(logits, 0, count * sizeof *logits);
        llm_matcher_mask(m, logits, count);
        for (uint32_t token = 0; token < count; token++) {
            size_t bytes;
            const char *piece = llm_vocab_piece(vocab.vocab, token, false, &bytes);
            struct llm_matcher *again = match(g, NULL);
            bool can = llm_matcher_feed(again, text, length);
            if (llm_vocab_ends(vocab.vocab, token))
                can = llm_matcher_may_end(again);
            else
                can = can && bytes && llm_matcher_feed(again, piece, bytes);
            llm_matcher_destroy(again);
            assert_int_equal(!isinf(logits[token]), can);
            if (can && hw_rng_u64(&rng) % ++allowed == 0)
                chosen = token;
        }
        if (!allowed || llm_vocab_ends(vocab.vocab, chosen))
            break;
        size_t bytes;
        const char *piece = llm_vocab_piece(vocab.vocab, chosen, false, &bytes);
        assert_true(length + bytes < sizeof text);
        memcpy(text + length, piece, bytes);
        length += bytes;
        llm_matcher_accept(m, chosen);
        assert_false(llm_matcher_is_dead(m) && !llm_matcher_may_end(m));
    }
    free(logits);
    llm_matcher_destroy(m);
    llm_grammar_destroy(g);
}

static void a_mask_allows_what_the_text_allows(void **state)
{
    (void)state;
    char *json;
    size_t bytes;
    assert_int_equal(llm_schema_grammar(NULL, &json, &bytes, why), 0);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        walk_and_compare(json, seed);
        walk_and_compare("root ::= (\"a\" | \"ab\" | [\\u00e0-\\U0010ffff])* [^a]", seed);
        walk_and_compare("root ::= \"a\"{3,9} | \"{\" root \"}\"", seed);
        if (ONLY_THREADS)
            break;
    }
    free(json);
}

/* Also where the pieces of bytes could spell what stands for it. */
static void a_control_token_comes_only_where_it_is_named(void **state)
{
    (void)state;
    struct llm_grammar *g = parse("root ::= <[1]> [^a]?");
    struct llm_matcher *m = match(g, sorted);
    uint32_t count = llm_vocab_size(vocab.vocab);
    float *logits = calloc(count, sizeof *logits);
    llm_matcher_mask(m, logits, count);
    for (uint32_t token = 0; token < count; token++)
        assert_int_equal(!isinf(logits[token]), token == BYTE_VOCAB_BOS);
    llm_matcher_accept(m, BYTE_VOCAB_BOS);
    memset(logits, 0, count * sizeof *logits);
    llm_matcher_mask(m, logits, count);
    assert_true(isinf(logits[BYTE_VOCAB_BOS]));
    assert_false(isinf(logits[BYTE_VOCAB_FIRST + 'b']));
    free(logits);
    llm_matcher_destroy(m);
    llm_grammar_destroy(g);
    static const char *const wrong[] = {"root ::= <think>", "root ::= <[]>",
                                        "root ::= <[99999999999]>", "root ::= <[1]", "root ::= <"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(llm_grammar_parse(wrong[i], strlen(wrong[i]), &g, why), -EOPNOTSUPP);
}

static void only_the_end_follows_a_text_that_is_complete_or_wrong(void **state)
{
    (void)state;
    struct llm_grammar *g = parse("root ::= \"ab\"");
    uint32_t count = llm_vocab_size(vocab.vocab);
    float *logits = calloc(count, sizeof *logits);
    static const char *const texts[] = {"ab", "x"};
    for (int i = 0; i < 2; i++) {
        struct llm_matcher *m = match(g, sorted);
        assert_int_equal(llm_matcher_feed(m, texts[i], strlen(texts[i])), i == 0);
        assert_true(llm_matcher_is_dead(m));
        memset(logits, 0, count * sizeof *logits);
        llm_matcher_mask(m, logits, count);
        for (uint32_t token = 0; token < count; token++)
            assert_int_equal(isinf(logits[token]) != 0, !llm_vocab_ends(vocab.vocab, token));
        llm_matcher_destroy(m);
    }
    free(logits);
    llm_grammar_destroy(g);
}

/* As many states as there are numbers: old ones are dropped on the way. */
static void a_long_text_forgets_its_states(void **state)
{
    (void)state;
    struct llm_grammar *g = parse("root ::= (\"(\" root \")\" | \"a\"{4000} | \"b\")*");
    struct llm_matcher *m = match(g, sorted);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1000; i++)
            assert_true(llm_matcher_feed(m, "(", 1));
        for (int i = 0; i < 4000; i++)
            assert_true(llm_matcher_feed(m, "a", 1));
        for (int i = 0; i < 1000; i++)
            assert_true(llm_matcher_feed(m, "b)", 2));
        assert_true(llm_matcher_may_end(m));
    }
    assert_false(llm_matcher_feed(m, ")", 1));
    llm_matcher_destroy(m);
    llm_grammar_destroy(g);
}

/* 4,000 stacks of 3,600 shared places each: states are forgotten seldom though this one takes more
 * than half of the room, and what stacks share is copied once.  Allocations tell how often. */
static void many_deep_stacks_are_not_copied_for_each_byte(void **state)
{
    (void)state;
    enum { DEPTH = 3600, STACKS = 4000, BYTES = 60 };
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    fputs("root ::= c0\n", out);
    for (int i = 0; i < DEPTH; i++)
        fprintf(out, "c%d ::= c%d \"x\"\n", i, i + 1);
    fprintf(out, "c%d ::= r0", DEPTH);
    for (int i = 1; i < STACKS; i++)
        fprintf(out, " | r%d", i);
    for (int i = 0; i < STACKS; i++)
        fprintf(out, "\nr%d ::= \"a\" r%d \"b\"", i, i);
    fclose(out);
    struct llm_grammar *g = parse(text);
    struct llm_matcher *m = match(g, NULL);
    allocations_left = LONG_MAX;
    for (int i = 0; i < BYTES; i++) {
        counting = true;
        bool fed = llm_matcher_feed(m, "a", 1);
        counting = false;
        assert_true(fed);
    }
    assert_in_range(LONG_MAX - allocations_left, 1, 10 * BYTES);
    llm_matcher_destroy(m);
    llm_grammar_destroy(g);
    free(text);
}

static void a_text_nests_so_deep_and_no_deeper(void **state)
{
    (void)state;
    struct llm_grammar *g = parse("root ::= \"(\" root \")\" | \"a\"");
    struct llm_matcher *m = match(g, NULL);
    int depth = 0;
    while (depth <= LLM_MATCHER_DEPTH_MAX && llm_matcher_feed(m, "(", 1))
        depth++;
    assert_true(depth > LLM_MATCHER_DEPTH_MAX / 2 && depth <= LLM_MATCHER_DEPTH_MAX);
    llm_matcher_destroy(m);
    llm_grammar_destroy(g);
}

/* A fork for each byte, none of which can be told from another. */
static void ambiguity_is_bounded(void **state)
{
    (void)state;
    struct llm_grammar *g =
        parse("root ::= (\"a\" | \"a\" x)* \"b\"\nx ::= \"a\"{0,40} root \"c\"");
    struct llm_matcher *m = match(g, NULL);
    for (int i = 0; i < 100 && llm_matcher_feed(m, "a", 1); i++)
        ;
    llm_matcher_destroy(m); /* it ended, one way or the other */
    llm_grammar_destroy(g);
}

/* The rules that tell other keys from a name are not nested, however long the name is. */
static void names_of_properties_are_long(void **state)
{
    (void)state;
    static const size_t lengths[] = {64, 200000};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        char *name = calloc(lengths[i] + 1, 1), *text, *good, *bad;
        memset(name, 'a', lengths[i]);
        json_t *schema =
            json_pack("{s:s, s:{s:{s:s}, s:{s:s}}, s:b}", "type", "object", "properties", name,
                      "type", "integer", "ab", "type", "integer", "additionalProperties", 1);
        size_t bytes;
        int err = llm_schema_grammar(schema, &text, &bytes, why);
        assert_int_equal(err, i == 0 ? 0 : -E2BIG);
        if (err) {
            assert_non_null(strstr(why, "\"additionalProperties\""));
        } else {
            assert_true(asprintf(&good, "{\"%s\": 1, \"ab\": 2, \"%sb\": true}", name, name) > 0);
            assert_true(asprintf(&bad, "{\"%s\": true}", name) > 0);
            struct llm_grammar *g = parse(text);
            struct llm_matcher *m = match(g, NULL), *n = match(g, NULL);
            assert_true(llm_matcher_feed(m, good, strlen(good)) && llm_matcher_may_end(m));
            assert_false(llm_matcher_feed(n, bad, strlen(bad)));
            llm_matcher_destroy(m);
            llm_matcher_destroy(n);
            llm_grammar_destroy(g);
            free(text);
            free(good);
            free(bad);
        }
        json_decref(schema);
        free(name);
    }
}

static void running_out_of_memory_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    json_t *schema = json_loads("{\"type\": \"object\", \"additionalProperties\": {\"type\": "
                                "\"integer\", \"minimum\": 3}, \"properties\": {\"a\": {\"enum\": "
                                "[1]}}}",
                                0, NULL);
    int err = -ENOMEM;
    for (long granted = 0; err; granted++) {
        struct llm_grammar *g = NULL;
        struct llm_matcher *m = NULL;
        char *text = NULL;
        size_t bytes;
        bool took = false;
        allocations_left = granted;
        counting = true;
        err = llm_schema_grammar(schema, &text, &bytes, why);
        if (!err)
            err = llm_grammar_parse(text, bytes, &g, why);
        if (!err)
            err = llm_matcher_create(g, sorted, &m);
        if (!err)
            took = llm_matcher_feed(m, "{\"a\": 1, \"b\": 3}", 16);
        counting = false;
        assert_true(err == 0 || err == -ENOMEM);
        if (!err && !took) /* a text ends where there is no memory to go on */
            err = -ENOMEM;
        llm_matcher_destroy(m);
        llm_grammar_destroy(g);
        free(text);
        assert_true(granted < 10000);
    }
    json_decref(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_allows_what_the_text_allows),
        cmocka_unit_test(a_control_token_comes_only_where_it_is_named),
        cmocka_unit_test(only_the_end_follows_a_text_that_is_complete_or_wrong),
        cmocka_unit_test(a_long_text_forgets_its_states),
        cmocka_unit_test(many_deep_stacks_are_not_copied_for_each_byte),
        cmocka_unit_test(a_text_nests_so_deep_and_no_deeper),
        cmocka_unit_test(ambiguity_is_bounded),
        cmocka_unit_test(names_of_properties_are_long),
        cmocka_unit_test(running_out_of_memory_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
