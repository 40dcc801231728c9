#include "llm/convert/vocab_json.h"

#include "llm/convert/json_file.h"
#include "llm/convert/published.h"
#include "llm/model/why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 60, FILLER_CHARS = 24, MERGES_MAX = 1 << 22 };

/* As GGUF numbers them. */
enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER = 4, TOKEN_UNUSED = 5 };

struct source {
    const char *folder;
    json_t *tokenizer; /* tokenizer.json */
    json_t *settings;  /* tokenizer_config.json, or an empty object */
    const json_t *config;
    const char **texts; /* of each id; NULL: none */
    uint8_t *types;
    uint32_t rows;
};

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* ---- tokens ---- */

static int put_token(struct source *s, const char *text, const json_t *id, uint8_t type, char *why)
{
    json_int_t number = json_integer_value(id);
    if (!json_is_integer(id) || number < 0 || number >= s->rows)
        return llm_why(
            why, -EPROTO,
            "tokenizer.json: token '%.*s' has no number below %u, the model's vocabulary", SHOWN,
            text, s->rows);
    if (s->texts[number] && strcmp(s->texts[number], text) != 0)
        return llm_why(why, -EPROTO, "tokenizer.json: '%.*s' and '%.*s' have the same number",
                       SHOWN, s->texts[number], SHOWN, text);
    s->texts[number] = text;
    s->types[number] = type;
    return 0;
}

static int read_tokens(struct source *s, char *why)
{
    const char *text;
    json_t *id, *added;
    size_t i;
    json_t *vocab = json_object_get(json_object_get(s->tokenizer, "model"), "vocab");
    int err = 0;
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return llm_why(why, -EPROTO, "tokenizer.json has no model.vocab");
    json_object_foreach(vocab, text, id)
    {
        err = put_token(s, text, id, TOKEN_NORMAL, why);
        if (err)
            return err;
    }
    json_array_foreach(json_object_get(s->tokenizer, "added_tokens"), i, added)
    {
        bool special = json_is_true(json_object_get(added, "special"));
        text = text_of(added, "content");
        if (!text)
            return llm_why(why, -EPROTO, "tokenizer.json: added token %zu has no content", i);
        err = put_token(s, text, json_object_get(added, "id"), special ? TOKEN_CONTROL : TOKEN_USER,
                        why);
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
}

/* ---- merges ---- */

/* "a b", or ["a", "b"]: joined by a blank either way. */
static int write_merge(struct gguf_writer *w, const json_t *merge, size_t rank, char *why)
{
    const char *whole = json_string_value(merge);
    const char *left = json_string_value(json_array_get(merge, 0));
    const char *right = json_string_value(json_array_get(merge, 1));
    char *joined;
    if (whole) {
        gguf_put_string(w, whole, strlen(whole));
        return 0;
    }
    if (!left || !right || json_array_size(merge) != 2)
        return llm_why(why, -EPROTO, "tokenizer.json: merge %zu is no pair", rank);
    int chars = asprintf(&joined, "%s %s", left, right);
    if (chars < 0)
        return llm_why(why, -ENOMEM, "out of memory");
    gguf_put_string(w, joined, (size_t)chars);
    free(joined);
    return 0;
}

static int write_merges(const struct source *s, struct gguf_writer *w, char *why)
{
    const json_t *merges = json_object_get(json_object_get(s->tokenizer, "model"), "merges");
    size_t count = json_array_size(merges), i;
    json_t *merge;
    if (count == 0 || count > MERGES_MAX)
        return llm_why(why, -EPROTO, "tokenizer.json has %zu merges; 1 to %d are possible", count,
                       MERGES_MAX);
    gguf_write_array(w, "tokenizer.ggml.merges", GGUF_STRING, count);
    json_array_foreach(merges, i, merge)
    {
        int err = write_merge(w, merge, i, why);
        if (err)
            return err;
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
    if (has_bos)
        gguf_write_u32(w, "tokenizer.ggml.bos_token_id", id);
    if (find_id(s, "eos_token_id", "eos_token", &id))
        gguf_write_u32(w, "tokenizer.ggml.eos_token_id", id);
    bool adds = json_is_boolean(told)
                    ? json_is_true(told)
                    : template_adds_bos(json_object_get(s->tokenizer, "post_processor"));
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

static int check_model(const struct source *s, char *why)
{
    const json_t *model = json_object_get(s->tokenizer, "model");
    const json_t *normalizer = json_object_get(s->tokenizer, "normalizer");
    const char *type = text_of(model, "type"), *form = text_of(normalizer, "type");
    if (type && strcmp(type, "BPE") != 0)
        return llm_why(why, -EOPNOTSUPP, "tokenizer.json: a tokenizer of type %.*s; BPE is read",
                       SHOWN, type);
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return llm_why(why, -EOPNOTSUPP,
                       "tokenizer.json: a SentencePiece tokenizer (byte_fallback); byte-level BPE "
                       "is read. Take a GGUF file of the model");
    if (json_is_object(normalizer) && (!form || strcmp(form, "NFC") != 0))
        return llm_why(why, -EOPNOTSUPP, "tokenizer.json: normalizer %.*s is not computed", SHOWN,
                       form ? form : "(none)");
    return 0;
}

static int write_all(struct source *s, struct gguf_writer *w, char *why)
{
    s->texts = calloc(s->rows, sizeof(*s->texts));
    s->types = calloc(s->rows, sizeof(*s->types));
    if (!s->texts || !s->types)
        return llm_why(why, -ENOMEM, "out of memory for the vocabulary");
    int err = check_model(s, why);
    if (!err)
        err = read_tokens(s, why);
    if (err)
        return err;
    gguf_write_string(w, "tokenizer.ggml.model", "gpt2");
    if ((err = write_pretok(s, w, why)))
        return err;
    write_tokens(s, w);
    if ((err = write_merges(s, w, why)))
        return err;
    write_ids(s, w);
    return write_chat_template(s, w, why);
}

int llm_vocab_json_write(struct gguf_writer *writer, const char *folder, const json_t *config,
                         uint32_t rows, char *why)
{
    struct source s = {.folder = folder, .config = config, .rows = rows};
    int err = llm_json_load(folder, "tokenizer.json", &s.tokenizer, why);
    if (err)
        return err;
    err = llm_json_load(folder, "tokenizer_config.json", &s.settings, why);
    if (err == -ENOENT) {
        s.settings = json_object();
        err = s.settings ? 0 : llm_why(why, -ENOMEM, "out of memory");
    }
    if (!err)
        err = write_all(&s, writer, why);
    json_decref(s.tokenizer);
    json_decref(s.settings);
    free(s.texts);
    free(s.types);
    return err;
}
