#include "llm/convert/vocab_json.h"

#include "llm/convert/json_file.h"
#include "llm/convert/published.h"
#include "llm/convert/sentencepiece.h"
#include "llm/model/why.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 60, FILLER_CHARS = 24, MERGES_MAX = 1 << 22 };

/* As GGUF numbers them. */
enum {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER,
    TOKEN_UNUSED,
    TOKEN_BYTE,
};

#define BLANK_SIGN "\xe2\x96\x81" /* U+2581 */

struct source {
    const char *folder;
    json_t *tokenizer;    /* tokenizer.json, or NULL */
    json_t *settings;     /* tokenizer_config.json, or an empty object */
    struct llm_sp pieces; /* tokenizer.model; none: there is no such file, or it is not used */
    const json_t *config;
    const char **texts; /* of each id; NULL: none */
    uint8_t *types;
    float *scores; /* of SentencePiece */
    uint32_t rows;
    int32_t unknown; /* -1: none */
    bool is_spm, adds_space;
};

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* ---- tokens ---- */

/* Takes the place of another one if `replaces`. */
static int put_token(struct source *s, const char *text, json_int_t id, uint8_t type, bool replaces,
                     char *why)
{
    if (id < 0 || id >= s->rows)
        return llm_why(
            why, -EPROTO,
            "the tokenizer's token '%.*s' has no number below %u, the model's vocabulary", SHOWN,
            text, s->rows);
    if (s->texts[id] && strcmp(s->texts[id], text) != 0 && !replaces)
        return llm_why(why, -EPROTO, "tokenizer.json: '%.*s' and '%.*s' have the same number",
                       SHOWN, s->texts[id], SHOWN, text);
    s->texts[id] = text;
    s->types[id] = type;
    return 0;
}

static int read_vocab(struct source *s, char *why)
{
    const char *text;
    json_t *id;
    json_t *vocab = json_object_get(json_object_get(s->tokenizer, "model"), "vocab");
    int err = 0;
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return llm_why(why, -EPROTO, "tokenizer.json has no model.vocab");
    json_object_foreach(vocab, text, id)
    {
        json_int_t number = json_is_integer(id) ? json_integer_value(id) : -1;
        err = put_token(s, text, number, TOKEN_NORMAL, false, why);
        if (err)
            return err;
    }
    return 0;
}

static int put_added(struct source *s, const json_t *added, json_int_t id, char *why)
{
    bool special = json_is_true(json_object_get(added, "special"));
    const char *text = text_of(added, "content");
    if (!text)
        return llm_why(why, -EPROTO, "the tokenizer's added token %d has no content", (int)id);
    return put_token(s, text, id, special ? TOKEN_CONTROL : TOKEN_USER, s->is_spm, why);
}

/* In tokenizer.json, or, where there is none, in tokenizer_config.json. */
static int read_added(struct source *s, char *why)
{
    json_t *added;
    const char *key;
    size_t i;
    int err = 0;
    json_array_foreach(json_object_get(s->tokenizer, "added_tokens"), i, added)
    {
        const json_t *id = json_object_get(added, "id");
        err = put_added(s, added, json_is_integer(id) ? json_integer_value(id) : -1, why);
        if (err)
            return err;
    }
    if (s->tokenizer)
        return 0;
    json_object_foreach(json_object_get(s->settings, "added_tokens_decoder"), key, added)
    {
        char *end;
        long id = strtol(key, &end, 10);
        err = put_added(s, added, *key && !*end ? id : -1, why);
        if (err)
            return err;
    }
    return 0;
}

static void write_tokens(const struct source *s, struct gguf_writer *w)
{
    gguf_write_array(w, "tokenizer.ggml.tokens", GGUF_STRING, s->rows);
    for (uint32_t i = 0; i < s->rows; i++) {
        char filler[FILLER_CHARS];
        snprintf(filler, sizeof(filler), "[PAD%u]", i);
        const char *text = s->texts[i] ? s->texts[i] : filler;
        gguf_put_string(w, text, strlen(text));
    }
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, s->rows);
    for (uint32_t i = 0; i < s->rows; i++)
        gguf_put_u32(w, s->texts[i] ? s->types[i] : TOKEN_UNUSED);
    if (!s->is_spm)
        return;
    gguf_write_array(w, "tokenizer.ggml.scores", GGUF_F32, s->rows);
    for (uint32_t i = 0; i < s->rows; i++) {
        uint32_t bits;
        memcpy(&bits, &s->scores[i], sizeof(bits));
        gguf_put_u32(w, bits);
    }
}

/* ---- merges ---- */

/* "a b", or ["a", "b"]: both joined by a blank; free it. */
static int read_merge(const json_t *merge, size_t rank, char **out, char *why)
{
    const char *whole = json_string_value(merge);
    const char *left = json_string_value(json_array_get(merge, 0));
    const char *right = json_string_value(json_array_get(merge, 1));
    if (!whole && (!left || !right || json_array_size(merge) != 2))
        return llm_why(why, -EPROTO, "tokenizer.json: merge %zu is no pair", rank);
    int chars = whole ? asprintf(out, "%s", whole) : asprintf(out, "%s %s", left, right);
    return chars < 0 ? llm_why(why, -ENOMEM, "out of memory") : 0;
}

static int find_merges(const struct source *s, const json_t **out, char *why)
{
    const json_t *merges = json_object_get(json_object_get(s->tokenizer, "model"), "merges");
    size_t count = json_array_size(merges);
    if (count == 0 || count > MERGES_MAX)
        return llm_why(why, -EPROTO, "tokenizer.json has %zu merges; 1 to %d are possible", count,
                       MERGES_MAX);
    *out = merges;
    return 0;
}

static int write_merges(const struct source *s, struct gguf_writer *w, char *why)
{
    const json_t *merges = NULL;
    json_t *merge;
    size_t i;
    int err = find_merges(s, &merges, why);
    if (err)
        return err;
    gguf_write_array(w, "tokenizer.ggml.merges", GGUF_STRING, json_array_size(merges));
    json_array_foreach(merges, i, merge)
    {
        char *joined;
        if ((err = read_merge(merge, i, &joined, why)))
            return err;
        gguf_put_string(w, joined, strlen(joined));
        free(joined);
    }
    return 0;
}

/* ---- SentencePiece ---- */

static bool is_byte_name(const char *text)
{
    unsigned byte;
    char again[8];
    if (sscanf(text, "<0x%2X>", &byte) != 1)
        return false;
    snprintf(again, sizeof(again), "<0x%02X>", byte);
    return strcmp(again, text) == 0;
}

/* Merges make tokens in the order of their scores: the first merge that makes a token scores it. */
static int score_tokens(struct source *s, char *why)
{
    const json_t *merges = NULL,
                 *vocab = json_object_get(json_object_get(s->tokenizer, "model"), "vocab");
    json_t *merge;
    size_t rank;
    int err = find_merges(s, &merges, why);
    if (err)
        return err;
    float lowest = -(float)json_array_size(merges);
    for (uint32_t i = 0; i < s->rows; i++)
        s->scores[i] = lowest;
    json_array_foreach(merges, rank, merge)
    {
        char *joined;
        if ((err = read_merge(merge, rank, &joined, why)))
            return err;
        char *blank = strchr(joined, ' ');
        if (blank)
            memmove(blank, blank + 1, strlen(blank));
        const json_t *id = json_object_get(vocab, joined);
        free(joined);
        if (!id || !blank)
            return llm_why(why, -EPROTO, "tokenizer.json: merge %zu makes no token", rank);
        float *score = &s->scores[json_integer_value(id)];
        *score = *score == lowest ? -(float)rank : *score;
    }
    return 0;
}

/* How a step of the normalizer or the pre-tokenizer treats blanks; false: it is something else. */
static bool take_blank_step(struct source *s, const json_t *step)
{
    const char *type = text_of(step, "type");
    const char *from = text_of(json_object_get(step, "pattern"), "String");
    const char *to = text_of(step, "content"), *sign = text_of(step, "replacement");
    const char *scheme = text_of(step, "prepend_scheme");
    if (!type)
        return false;
    if (strcmp(type, "Replace") == 0)
        return from && to && strcmp(from, " ") == 0 && strcmp(to, BLANK_SIGN) == 0;
    if (strcmp(type, "Split") == 0) /* there are no blanks any more */
        return from && strcmp(from, " ") == 0;
    if (strcmp(type, "Prepend") == 0) {
        const char *put = text_of(step, "prepend");
        s->adds_space = true;
        return put && strcmp(put, BLANK_SIGN) == 0;
    }
    if (strcmp(type, "Metaspace") != 0 || !sign || strcmp(sign, BLANK_SIGN) != 0)
        return false;
    s->adds_space = scheme ? strcmp(scheme, "never") != 0
                           : !json_is_false(json_object_get(step, "add_prefix_space"));
    return true;
}

static int take_blank_steps(struct source *s, const char *key, const char *list, char *why)
{
    const json_t *rule = json_object_get(s->tokenizer, key), *step;
    const char *type = text_of(rule, "type");
    size_t i;
    if (!json_is_object(rule))
        return 0;
    if (!type || strcmp(type, "Sequence") != 0)
        return take_blank_step(s, rule)
                   ? 0
                   : llm_why(why, -EOPNOTSUPP, "tokenizer.json: its %s %.*s is not computed", key,
                             SHOWN, type ? type : "(none)");
    json_array_foreach(json_object_get(rule, list), i, step)
    {
        if (!take_blank_step(s, step))
            return llm_why(why, -EOPNOTSUPP, "tokenizer.json: step %zu of its %s is not computed",
                           i, key);
    }
    return 0;
}

/* BPE with byte_fallback: what SentencePiece models become in tokenizer.json. */
static int read_spm_json(struct source *s, char *why)
{
    const char *unknown = text_of(json_object_get(s->tokenizer, "model"), "unk_token");
    int err = take_blank_steps(s, "normalizer", "normalizers", why);
    if (!err)
        err = take_blank_steps(s, "pre_tokenizer", "pretokenizers", why);
    if (!err)
        err = read_vocab(s, why);
    for (uint32_t i = 0; i < s->rows && !err; i++) {
        if (!s->texts[i])
            continue;
        if (is_byte_name(s->texts[i]))
            s->types[i] = TOKEN_BYTE;
        if (unknown && strcmp(s->texts[i], unknown) == 0)
            s->unknown = (int32_t)i;
    }
    return err ? err : score_tokens(s, why);
}

static int read_spm_model(struct source *s, char *why)
{
    const struct llm_sp *sp = &s->pieces;
    const char *other = sp->algorithm != LLM_SP_BPE ? "an algorithm other than BPE"
                        : sp->has_table             ? "a table of characters"
                        : sp->joins_blanks          ? "one blank for several"
                        : sp->has_plain_blanks      ? "blanks as they are"
                        : sp->blanks_at_end         ? "blanks at the end of words"
                                                    : NULL;
    int err =
        other ? llm_why(why, -EOPNOTSUPP, "tokenizer.model asks for %s: not computed here", other)
              : 0;
    for (uint32_t i = 0; i < sp->count && !err; i++) {
        err = put_token(s, sp->pieces[i].text, i, sp->pieces[i].type, false, why);
        if (!err)
            s->scores[i] = sp->pieces[i].score;
    }
    s->adds_space = sp->adds_space;
    s->unknown = sp->unknown;
    return err;
}

/* Tokens that are found in a text before anything else is done with it have blanks as blanks. */
static int unmark_blanks(struct source *s, char **texts, char *why)
{
    size_t bytes = 1, sign = strlen(BLANK_SIGN);
    for (uint32_t i = 0; i < s->rows; i++)
        bytes += s->texts[i] && s->types[i] == TOKEN_USER ? strlen(s->texts[i]) + 1 : 0;
    char *out = *texts = malloc(bytes);
    if (!out)
        return llm_why(why, -ENOMEM, "out of memory for the vocabulary");
    for (uint32_t i = 0; i < s->rows; i++) {
        const char *text = s->texts[i];
        if (!text || s->types[i] != TOKEN_USER)
            continue;
        s->texts[i] = out;
        while (*text) {
            bool blank = strncmp(text, BLANK_SIGN, sign) == 0;
            *out++ = blank ? ' ' : *text;
            text += blank ? sign : 1;
        }
        *out++ = 0;
    }
    return 0;
}

/* ---- the pre-tokenizer ---- */

struct pretok {
    const char *pattern; /* of a Split */
    bool has_digits;     /* each digit alone */
    bool has_bytes;
    bool bytes_split; /* ByteLevel with its own pattern, that of gpt-2 */
    bool adds_space;
    const char *unknown; /* a type that is none of these */
};

static void look_at(const json_t *step, struct pretok *out)
{
    const char *type = text_of(step, "type");
    if (!type) {
        out->unknown = "(none)";
    } else if (strcmp(type, "Split") == 0) {
        const json_t *pattern = json_object_get(step, "pattern");
        out->pattern = text_of(pattern, "Regex");
        out->unknown = out->pattern ? out->unknown : "Split by a text";
    } else if (strcmp(type, "Digits") == 0) {
        out->has_digits = json_is_true(json_object_get(step, "individual_digits"));
        out->unknown = out->has_digits ? out->unknown : "Digits in groups";
    } else if (strcmp(type, "ByteLevel") == 0) {
        out->has_bytes = true;
        out->bytes_split = !json_is_false(json_object_get(step, "use_regex"));
        out->adds_space = json_is_true(json_object_get(step, "add_prefix_space"));
    } else {
        out->unknown = type;
    }
}

/* The name in GGUF, or NULL. */
static const char *name_of(const struct pretok *p)
{
    if (p->unknown || !p->has_bytes || p->adds_space)
        return NULL;
    if (p->pattern)
        return p->bytes_split || p->has_digits ? NULL : llm_pub_pretok(p->pattern);
    if (!p->bytes_split)
        return NULL;
    return p->has_digits ? "smollm" : "gpt-2";
}

static int write_pretok(const struct source *s, struct gguf_writer *w, char *why)
{
    const json_t *rule = json_object_get(s->tokenizer, "pre_tokenizer"), *step;
    struct pretok p = {0};
    size_t i;
    const char *type = text_of(rule, "type");
    if (type && strcmp(type, "Sequence") == 0) {
        json_array_foreach(json_object_get(rule, "pretokenizers"), i, step)
        {
            look_at(step, &p);
        }
    } else {
        look_at(rule, &p);
    }
    const char *name = name_of(&p);
    /* Llama 3's words are tokens before they are merged; others' with its pattern are not. */
    const json_t *model = json_object_get(s->tokenizer, "model");
    if (name && strcmp(name, "llama-bpe") == 0 &&
        !json_is_true(json_object_get(model, "ignore_merges")))
        name = "dbrx";
    if (!name)
        return llm_why(why, -EOPNOTSUPP,
                       "tokenizer.json: its pre_tokenizer (%.*s) is none that is known here", 100,
                       p.pattern   ? p.pattern
                       : p.unknown ? p.unknown
                                   : "ByteLevel with other settings");
    gguf_write_string(w, "tokenizer.ggml.pre", name);
    return 0;
}

/* ---- ids and settings ---- */

/* A token's id from config.json (a number, or a list whose first is taken), or by its text from
 * tokenizer_config.json. */
static bool find_id(const struct source *s, const char *id_key, const char *text_key, uint32_t *out)
{
    const json_t *id = json_object_get(s->config, id_key);
    id = json_is_array(id) ? json_array_get(id, 0) : id;
    if (json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < s->rows) {
        *out = (uint32_t)json_integer_value(id);
        return true;
    }
    const json_t *named = json_object_get(s->settings, text_key);
    const char *text = json_is_object(named) ? text_of(named, "content") : json_string_value(named);
    for (uint32_t i = 0; text && i < s->rows; i++) {
        if (s->texts[i] && strcmp(s->texts[i], text) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* Whether a template of the post-processor begins with a special token. */
static bool template_adds_bos(const json_t *processor)
{
    const char *type = text_of(processor, "type");
    json_t *step;
    size_t i;
    if (type && strcmp(type, "Sequence") == 0) {
        json_array_foreach(json_object_get(processor, "processors"), i, step)
        {
            const char *inner = text_of(step, "type");
            if (inner && strcmp(inner, "TemplateProcessing") == 0)
                return template_adds_bos(step);
        }
        return false;
    }
    const json_t *first = json_array_get(json_object_get(processor, "single"), 0);
    return json_object_get(first, "SpecialToken") != NULL;
}

static void write_ids(const struct source *s, struct gguf_writer *w)
{
    uint32_t id;
    const json_t *told = json_object_get(s->settings, "add_bos_token");
    bool has_bos = find_id(s, "bos_token_id", "bos_token", &id);
    if (s->unknown >= 0)
        gguf_write_u32(w, "tokenizer.ggml.unknown_token_id", (uint32_t)s->unknown);
    if (has_bos)
        gguf_write_u32(w, "tokenizer.ggml.bos_token_id", id);
    if (find_id(s, "eos_token_id", "eos_token", &id))
        gguf_write_u32(w, "tokenizer.ggml.eos_token_id", id);
    bool adds = json_is_boolean(told) ? json_is_true(told)
                : s->tokenizer ? template_adds_bos(json_object_get(s->tokenizer, "post_processor"))
                               : true;
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", adds && has_bos);
}

/* One text, or a list of {name, template} with one called default. */
static const char *settings_template(const json_t *settings)
{
    const json_t *value = json_object_get(settings, "chat_template"), *entry;
    size_t i;
    json_array_foreach(value, i, entry)
    {
        const char *name = text_of(entry, "name");
        if (name && strcmp(name, "default") == 0)
            return text_of(entry, "template");
    }
    return json_string_value(value);
}

static int write_chat_template(const struct source *s, struct gguf_writer *w, char *why)
{
    char *text;
    size_t bytes;
    int err = llm_text_load(s->folder, "chat_template.jinja", &text, &bytes, why);
    if (err == -ENOENT) {
        const char *template = settings_template(s->settings);
        if (template)
            gguf_write_string(w, "tokenizer.chat_template", template);
        return 0;
    }
    if (err)
        return err;
    gguf_write_string(w, "tokenizer.chat_template", text);
    free(text);
    return 0;
}

/* ---- all of it ---- */

static int check_bpe(const struct source *s, char *why)
{
    const json_t *normalizer = json_object_get(s->tokenizer, "normalizer");
    const char *form = text_of(normalizer, "type");
    if (json_is_object(normalizer) && (!form || strcmp(form, "NFC") != 0))
        return llm_why(why, -EOPNOTSUPP, "tokenizer.json: normalizer %.*s is not computed", SHOWN,
                       form ? form : "(none)");
    return 0;
}

/* A tokenizer.model is used where tokenizer.json is missing, or was made of it. */
static int find_kind(struct source *s, char *why)
{
    const json_t *model = json_object_get(s->tokenizer, "model");
    const char *type = text_of(model, "type");
    bool is_bpe = !type || strcmp(type, "BPE") == 0;
    bool falls_back = json_is_true(json_object_get(model, "byte_fallback"));
    if (s->pieces.count > 0 && (!s->tokenizer || !is_bpe || falls_back)) {
        s->is_spm = true;
        return 0;
    }
    llm_sp_fini(&s->pieces);
    if (!is_bpe)
        return llm_why(why, -EOPNOTSUPP,
                       "tokenizer.json: a tokenizer of type %.*s, and no tokenizer.model; BPE is "
                       "read",
                       SHOWN, type);
    s->is_spm = falls_back;
    return 0;
}

static int read_tokens(struct source *s, char *why)
{
    int err = s->pieces.count > 0 ? read_spm_model(s, why)
              : s->is_spm         ? read_spm_json(s, why)
                                  : check_bpe(s, why);
    if (!err && !s->is_spm)
        err = read_vocab(s, why);
    if (!err)
        err = read_added(s, why);
    if (!err && s->unknown >= 0)
        s->types[s->unknown] = TOKEN_UNKNOWN;
    return err;
}

static int write_all(struct source *s, struct gguf_writer *w, char *why)
{
    int err = s->is_spm ? 0 : write_pretok(s, w, why);
    if (err)
        return err;
    gguf_write_string(w, "tokenizer.ggml.model", s->is_spm ? "llama" : "gpt2");
    if (s->is_spm) {
        gguf_write_string(w, "tokenizer.ggml.pre", "default");
        gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", s->adds_space);
    }
    write_tokens(s, w);
    if (!s->is_spm && (err = write_merges(s, w, why)))
        return err;
    write_ids(s, w);
    return write_chat_template(s, w, why);
}

static int load(struct source *s, char *why)
{
    char *bytes;
    size_t size;
    int err = llm_text_load(s->folder, "tokenizer.model", &bytes, &size, why);
    if (!err) {
        err = llm_sp_parse(&s->pieces, bytes, size, why);
        free(bytes);
    }
    if (err && err != -ENOENT)
        return err;
    err = llm_json_load(s->folder, "tokenizer.json", &s->tokenizer, why);
    if (err && (err != -ENOENT || s->pieces.count == 0))
        return err;
    err = llm_json_load(s->folder, "tokenizer_config.json", &s->settings, why);
    if (err == -ENOENT) {
        s->settings = json_object();
        err = s->settings ? 0 : llm_why(why, -ENOMEM, "out of memory");
    }
    return err ? err : find_kind(s, why);
}

int llm_vocab_json_write(struct gguf_writer *writer, const char *folder, const json_t *config,
                         uint32_t rows, char *why)
{
    struct source s = {.folder = folder, .config = config, .rows = rows, .unknown = -1};
    char *unmarked = NULL;
    s.texts = calloc(rows, sizeof(*s.texts));
    s.types = calloc(rows, sizeof(*s.types));
    s.scores = calloc(rows, sizeof(*s.scores));
    int err = s.texts && s.types && s.scores
                  ? load(&s, why)
                  : llm_why(why, -ENOMEM, "out of memory for the vocabulary");
    if (!err)
        err = read_tokens(&s, why);
    if (!err && s.is_spm)
        err = unmark_blanks(&s, &unmarked, why);
    if (!err)
        err = write_all(&s, writer, why);
    json_decref(s.tokenizer);
    json_decref(s.settings);
    llm_sp_fini(&s.pieces);
    free(unmarked);
    free(s.texts);
    free(s.types);
    free(s.scores);
    return err;
}
