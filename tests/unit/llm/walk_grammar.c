/* Grammars for schema_test.py: a line of JSON in, a line out.
 *   {"schema" or "grammar", "seed", "count"}   {"texts"}: random texts of the language
 *   {"schema" or "grammar", "texts"}           {"accepted"}: which texts are in the language
 * {"error", "code"} where it is refused. */
#include "byte_vocab.h"

#include "base/rng.h"
#include "llm/chat/grammar.h"
#include "llm/chat/schema.h"

#include <math.h>

enum { STEPS_MAX = 3000 };

static const char *const pieces[] = {
    "{\"",    "\":",          "\": ", "\",", "true", "false", "null", "},",
    "\u00e9", "\u4f60\u597d", "12",   "0.5", "\"}",  "ab",    "[[",   "]]"};

/* What ends things is likelier, so that texts do. */
static double weight(const struct llm_vocab *vocab, uint32_t token, uint32_t step)
{
    size_t bytes;
    const char *text = llm_vocab_piece(vocab, token, false, &bytes);
    bool closes = llm_vocab_ends(vocab, token) || (bytes && strchr("\"}]", text[0]));
    return closes ? 4 + step : 1;
}

/* The token that a random number chooses among those that the mask leaves. */
static uint32_t choose(const struct llm_vocab *vocab, const float *logits, uint32_t step,
                       struct hw_rng *rng)
{
    double total = 0, sum = 0;
    uint32_t count = llm_vocab_size(vocab), last = 0;
    for (uint32_t i = 0; i < count; i++)
        total += isinf(logits[i]) ? 0 : weight(vocab, i, step);
    double point = (double)(hw_rng_u64(rng) >> 11) * 0x1p-53 * total;
    for (uint32_t i = 0; i < count && sum <= point; i++) {
        if (!isinf(logits[i])) {
            sum += weight(vocab, i, step);
            last = i;
        }
    }
    return last;
}

static json_t *walk(const struct llm_grammar *grammar, const struct llm_pieces *sorted,
                    const struct llm_vocab *vocab, struct hw_rng *rng)
{
    struct llm_matcher *m;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    json_t *result = NULL;
    uint32_t count = llm_vocab_size(vocab);
    float *logits = calloc(count, sizeof *logits);
    if (!out || !logits || llm_matcher_create(grammar, sorted, &m))
        abort();
    for (uint32_t step = 0; step < STEPS_MAX; step++) {
        memset(logits, 0, count * sizeof *logits);
        llm_matcher_mask(m, logits, count);
        uint32_t token = choose(vocab, logits, step, rng);
        if (llm_vocab_ends(vocab, token)) {
            fclose(out);
            out = NULL;
            result = json_stringn(text, length);
            break;
        }
        size_t bytes;
        const char *piece = llm_vocab_piece(vocab, token, false, &bytes);
        fwrite(piece, 1, bytes, out);
        llm_matcher_accept(m, token);
    }
    if (out)
        fclose(out);
    free(text);
    free(logits);
    llm_matcher_destroy(m);
    return result; /* NULL: it did not end, or is not UTF-8 */
}

static bool accepts(const struct llm_grammar *grammar, const json_t *text)
{
    struct llm_matcher *m;
    if (llm_matcher_create(grammar, NULL, &m))
        abort();
    bool is = llm_matcher_feed(m, json_string_value(text), json_string_length(text)) &&
              llm_matcher_may_end(m);
    llm_matcher_destroy(m);
    return is;
}

static json_t *answer(const json_t *request, const struct llm_pieces *sorted,
                      const struct llm_vocab *vocab)
{
    char why[LLM_WHY_CHARS], *made = NULL;
    const json_t *given = json_object_get(request, "grammar");
    const json_t *texts = json_object_get(request, "texts");
    size_t bytes = json_string_length(given);
    struct llm_grammar *grammar;
    int err =
        given ? 0 : llm_schema_grammar(json_object_get(request, "schema"), &made, &bytes, why);
    if (!err)
        err = llm_grammar_parse(made ? made : json_string_value(given), bytes, &grammar, why);
    free(made);
    if (err)
        return json_pack("{s:s, s:i}", "error", why, "code", err);
    json_t *list = json_array();
    if (texts) {
        for (size_t i = 0; i < json_array_size(texts); i++)
            json_array_append_new(list, json_boolean(accepts(grammar, json_array_get(texts, i))));
    } else {
        struct hw_rng rng;
        hw_rng_seed(&rng, (uint64_t)json_integer_value(json_object_get(request, "seed")));
        json_int_t count = json_integer_value(json_object_get(request, "count"));
        for (json_int_t i = 0; i < count; i++) {
            json_t *text = walk(grammar, sorted, vocab, &rng);
            if (text)
                json_array_append_new(list, text);
        }
    }
    llm_grammar_destroy(grammar);
    return json_pack("{s:o}", texts ? "accepted" : "texts", list);
}

int main(void)
{
    struct byte_vocab made =
        byte_vocab_make(false, pieces, sizeof pieces / sizeof pieces[0], NULL, 0);
    struct llm_pieces *sorted;
    char *line = NULL;
    size_t room = 0;
    if (llm_pieces_create(made.vocab, &sorted))
        return 1;
    while (getline(&line, &room, stdin) > 0) {
        json_t *request = json_loads(line, JSON_ALLOW_NUL, NULL);
        json_t *result = answer(request, sorted, made.vocab);
        json_dumpf(result, stdout, 0);
        putchar('\n');
        fflush(stdout);
        json_decref(result);
        json_decref(request);
    }
    free(line);
    llm_pieces_destroy(sorted);
    byte_vocab_drop(&made);
    return 0;
}
