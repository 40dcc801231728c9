#include "llm/worker/generate.h"

#include "base/text/controls.h"
#include "base/text/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { STOPS_AT_END = 1, LOGPROBS = 2, EMBED = 4, STAYS = 8, SCORED = 16 };
enum { DRAINING = 1, INCOMPLETE = 2, ASIDE = 4 };

uint32_t llm_get_varint32(struct wire_dec *d)
{
    uint64_t v = wire_get_varint(d);
    if (v <= UINT32_MAX)
        return (uint32_t)v;
    wire_dec_fail(d, -EPROTO);
    return 0;
}

static uint32_t get_count(struct wire_dec *d, uint32_t most)
{
    uint32_t count = llm_get_varint32(d);
    if (count <= most)
        return count;
    wire_dec_fail(d, -EMSGSIZE);
    return 0;
}

static bool get_flag(struct wire_dec *d, uint8_t flags, uint8_t known, uint8_t flag)
{
    if (flags & ~known)
        wire_dec_fail(d, -EPROTO);
    return flags & flag;
}

static void put_text(struct wire_enc *e, const char *text)
{
    wire_put_blob(e, text ? text : "", text ? strlen(text) : 0);
}

/* ---- a request ---- */

static void put_sampling(struct wire_enc *e, const struct llm_sampling *s)
{
    wire_put_f32(e, s->temperature);
    wire_put_varint(e, s->top_k);
    wire_put_f32(e, s->top_p);
    wire_put_u64(e, s->seed);
    wire_put_f32(e, s->min_p);
    wire_put_f32(e, s->presence);
    wire_put_f32(e, s->frequency);
    wire_put_f32(e, s->repetition);
    wire_put_varint(e, s->bias_count);
    for (uint32_t i = 0; i < s->bias_count; i++) {
        wire_put_varint(e, s->biases[i].token);
        wire_put_f32(e, s->biases[i].bias);
    }
}

void llm_put_tokens(struct wire_enc *e, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        wire_put_varint(e, tokens[i]);
}

void llm_generate_put(struct wire_enc *e, uint64_t id, const struct llm_generate *g)
{
    wire_put_varint(e, id);
    wire_put_u8(e, (uint8_t)((g->stop_at_end ? STOPS_AT_END : 0) | (g->logprobs ? LOGPROBS : 0) |
                             (g->embed ? EMBED : 0) | (g->stays ? STAYS : 0) |
                             (g->scored ? SCORED : 0)));
    put_text(e, g->model);
    wire_put_varint(e, g->most);
    wire_put_varint(e, g->sampled);
    put_sampling(e, &g->sampling);
    wire_put_varint(e, g->stop_count);
    llm_put_tokens(e, g->stops, g->stop_count);
    wire_put_varint(e, g->tops);
    put_text(e, g->grammar);
    if (g->scored)
        wire_put_varint(e, g->scored);
    llm_put_tokens(e, g->tokens, g->token_count);
}

/* A copy with its NUL; an empty text is NULL. */
static int get_text(struct wire_dec *d, size_t most, const char **out)
{
    size_t len;
    const uint8_t *text = wire_get_blob(d, most, &len);
    if (!text || len == 0)
        return 0;
    if (memchr(text, 0, len))
        return -EPROTO;
    char *copy = malloc(len + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, text, len);
    copy[len] = 0;
    *out = copy;
    return 0;
}

static int get_biases(struct wire_dec *d, struct llm_sampling *s)
{
    s->bias_count = get_count(d, LLM_BIASES_MAX);
    if (s->bias_count == 0)
        return 0;
    struct llm_bias *biases = calloc(s->bias_count, sizeof *biases);
    if (!biases)
        return -ENOMEM;
    s->biases = biases;
    for (uint32_t i = 0; i < s->bias_count; i++) {
        biases[i].token = llm_get_varint32(d);
        biases[i].bias = wire_get_f32(d);
    }
    return 0;
}

static int get_sampling(struct wire_dec *d, struct llm_sampling *s)
{
    s->temperature = wire_get_f32(d);
    s->top_k = llm_get_varint32(d);
    s->top_p = wire_get_f32(d);
    s->seed = wire_get_u64(d);
    s->min_p = wire_get_f32(d);
    s->presence = wire_get_f32(d);
    s->frequency = wire_get_f32(d);
    s->repetition = wire_get_f32(d);
    return get_biases(d, s);
}

static int get_stops(struct wire_dec *d, struct llm_generate *g)
{
    g->stop_count = get_count(d, LLM_STOPS_MAX);
    if (g->stop_count == 0)
        return 0;
    uint32_t *stops = calloc(g->stop_count, sizeof *stops);
    if (!stops)
        return -ENOMEM;
    g->stops = stops;
    for (uint32_t i = 0; i < g->stop_count; i++)
        stops[i] = llm_get_varint32(d);
    return 0;
}

/* Up to the end.  A token takes at least a byte: the message's length bounds the allocation. */
static int get_tokens(struct wire_dec *d, struct llm_generate *g)
{
    size_t room = wire_dec_left(d);
    if (room == 0)
        return -EPROTO;
    room = room < WIRE_TOKENS_MAX ? room : WIRE_TOKENS_MAX;
    uint32_t *tokens = malloc(room * sizeof *tokens);
    if (!tokens)
        return -ENOMEM;
    g->tokens = tokens;
    while (wire_dec_left(d) > 0) {
        if (g->token_count == room)
            return -EMSGSIZE;
        tokens[g->token_count++] = llm_get_varint32(d);
    }
    return (uint64_t)g->sampled + g->scored <= g->token_count ? 0 : -EPROTO;
}

static int get_generate(struct wire_dec *d, uint64_t *id, struct llm_generate *g)
{
    *id = wire_get_varint(d);
    uint8_t flags = wire_get_u8(d);
    g->stop_at_end =
        get_flag(d, flags, STOPS_AT_END | LOGPROBS | EMBED | STAYS | SCORED, STOPS_AT_END);
    g->logprobs = flags & LOGPROBS;
    g->embed = flags & EMBED;
    g->stays = flags & STAYS;
    int rc = get_text(d, LLM_SERVED_NAME_CHARS - 1, &g->model);
    g->most = llm_get_varint32(d);
    g->sampled = llm_get_varint32(d);
    if (rc == 0)
        rc = get_sampling(d, &g->sampling);
    if (rc == 0)
        rc = get_stops(d, g);
    g->tops = get_count(d, LLM_TOP_LOGPROBS_MAX);
    if (g->tops && !g->logprobs)
        wire_dec_fail(d, -EPROTO);
    if (rc == 0)
        rc = get_text(d, LLM_GENERATE_GRAMMAR_MAX, &g->grammar);
    if (flags & SCORED)
        g->scored = llm_get_varint32(d);
    if ((flags & SCORED) && (!g->scored || !g->logprobs || g->embed))
        wire_dec_fail(d, -EPROTO);
    if (rc == 0)
        rc = wire_dec_error(d);
    if (rc == 0)
        rc = get_tokens(d, g);
    return rc ? rc : wire_dec_error(d);
}

int llm_generate_get(struct wire_dec *d, uint64_t *id, struct llm_generate *out)
{
    struct llm_generate g = {0};
    int rc = get_generate(d, id, &g);
    if (rc) {
        llm_generate_fini(&g);
        return rc;
    }
    *out = g;
    return 0;
}

void llm_generate_fini(struct llm_generate *g)
{
    free((void *)(uintptr_t)g->model);
    free((void *)(uintptr_t)g->tokens);
    free((void *)(uintptr_t)g->sampling.biases);
    free((void *)(uintptr_t)g->stops);
    free((void *)(uintptr_t)g->grammar);
    *g = (struct llm_generate){0};
}

/* ---- its end ---- */

void llm_end_put(struct wire_enc *e, const struct llm_generate_end *end)
{
    wire_put_u8(e, (uint8_t)end->reason);
    wire_put_varint(e, end->token);
    wire_put_varint(e, end->prompt);
    wire_put_varint(e, end->shared);
    wire_put_varint(e, end->generated);
    for (uint32_t i = 0; i < end->width; i++)
        wire_put_f32(e, end->vector[i]);
}

/* Up to the end: the message's length bounds the allocation. */
static int get_vector(struct wire_dec *d, struct llm_generate_end *end)
{
    size_t count = wire_dec_left(d) / sizeof(float);
    if (count == 0 || count > UINT32_MAX)
        return -EPROTO;
    end->vector = malloc(count * sizeof *end->vector);
    if (!end->vector)
        return -ENOMEM;
    end->width = (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        end->vector[i] = wire_get_f32(d);
    return 0;
}

void llm_end_fini(struct llm_generate_end *end)
{
    free(end->vector);
    *end = (struct llm_generate_end){0};
}

int llm_end_get(struct wire_dec *d, struct llm_generate_end *out)
{
    struct llm_generate_end read = {0}, *end = &read;
    int rc = 0;
    end->reason = (enum llm_end)wire_get_u8(d);
    end->token = llm_get_varint32(d);
    end->prompt = llm_get_varint32(d);
    end->shared = llm_get_varint32(d);
    end->generated = llm_get_varint32(d);
    if (end->reason < LLM_END_STOP || end->reason > LLM_END_INCOMPLETE)
        wire_dec_fail(d, -EPROTO);
    if (wire_dec_error(d) == 0 && end->reason == LLM_END_EMBEDDED)
        rc = get_vector(d, end);
    if (rc == 0 && wire_dec_end(d))
        rc = -EPROTO;
    if (rc) {
        llm_end_fini(end);
        return rc;
    }
    *out = read;
    return 0;
}

/* ---- pushed tokens ---- */

void llm_group_put(struct wire_enc *e, uint64_t id, uint32_t tops, uint32_t count)
{
    wire_put_varint(e, id);
    wire_put_varint(e, tops);
    wire_put_varint(e, count);
}

void llm_generated_put(struct wire_enc *e, uint32_t tops, const struct llm_generated *g)
{
    assert(tops == 0 || g->top_count == tops - 1);
    wire_put_varint(e, g->token);
    if (tops == 0)
        return;
    wire_put_f32(e, g->logprob);
    for (uint32_t i = 0; i < g->top_count; i++) {
        wire_put_varint(e, g->top[i].token);
        wire_put_f32(e, g->top[i].logprob);
    }
}

void llm_group_get(struct wire_dec *d, struct llm_group *group)
{
    group->id = wire_get_varint(d);
    group->tops = get_count(d, 1 + LLM_TOP_LOGPROBS_MAX);
    group->count = llm_get_varint32(d);
    if (group->count == 0 || group->count > wire_dec_left(d)) { /* a token takes a byte or more */
        wire_dec_fail(d, -EPROTO);
        group->count = 0;
    }
}

void llm_generated_get(struct wire_dec *d, uint32_t tops, struct llm_generated *g,
                       struct llm_logprob *top)
{
    *g = (struct llm_generated){.token = llm_get_varint32(d), .top = top};
    if (tops == 0)
        return;
    g->logprob = wire_get_f32(d);
    g->top_count = tops - 1;
    for (uint32_t i = 0; i < g->top_count; i++) {
        top[i].token = llm_get_varint32(d);
        top[i].logprob = wire_get_f32(d);
    }
}

/* ---- a worker ---- */

static void put_model(struct wire_enc *e, const struct llm_served_model *m)
{
    wire_put_str(e, m->name);
    wire_put_str(e, m->arch);
    wire_put_str(e, m->arithmetic);
    wire_put_bytes(e, m->hash, sizeof m->hash);
    wire_put_u32(e, m->vocab);
    wire_put_u32(e, m->context);
    wire_put_u64(e, m->header_bytes);
    wire_put_u64(e, m->kv_pages);
    wire_put_u64(e, m->kv_used);
}

static void get_model(struct wire_dec *d, struct llm_served_model *m)
{
    wire_get_str_copy(d, m->name, sizeof m->name);
    wire_get_str_copy(d, m->arch, sizeof m->arch);
    wire_get_str_copy(d, m->arithmetic, sizeof m->arithmetic);
    wire_get_copy(d, m->hash, sizeof m->hash);
    m->vocab = wire_get_u32(d);
    m->context = wire_get_u32(d);
    m->header_bytes = wire_get_u64(d);
    m->kv_pages = wire_get_u64(d);
    m->kv_used = wire_get_u64(d);
}

void llm_served_put(struct wire_enc *e, const struct llm_served *s)
{
    uint64_t aside = 0;
    for (uint32_t i = 0; i < s->model_count; i++)
        aside |= (uint64_t)s->models[i].is_aside << i;
    wire_put_u8(e, (s->draining ? DRAINING : 0) | (s->incomplete ? INCOMPLETE : 0) |
                       (aside ? ASIDE : 0));
    wire_put_u64(e, s->incarnation);
    wire_put_u32(e, s->running);
    wire_put_u32(e, s->waiting);
    wire_put_u64(e, s->rows);
    wire_put_u64(e, s->step_ns);
    wire_put_varint(e, s->model_count);
    for (uint32_t i = 0; i < s->model_count; i++)
        put_model(e, &s->models[i]);
    if (aside)
        wire_put_varint(e, aside);
}

void llm_served_get(struct wire_dec *d, struct llm_served *s)
{
    *s = (struct llm_served){0};
    uint8_t flags = wire_get_u8(d);
    s->draining = get_flag(d, flags, DRAINING | INCOMPLETE | ASIDE, DRAINING);
    s->incomplete = flags & INCOMPLETE;
    s->incarnation = wire_get_u64(d);
    s->running = wire_get_u32(d);
    s->waiting = wire_get_u32(d);
    s->rows = wire_get_u64(d);
    s->step_ns = wire_get_u64(d);
    s->model_count = get_count(d, LLM_SERVED_MODELS_MAX);
    for (uint32_t i = 0; i < s->model_count; i++)
        get_model(d, &s->models[i]);
    uint64_t aside = flags & ASIDE ? wire_get_varint(d) : 0;
    if (flags & ASIDE && (aside == 0 || aside >> s->model_count))
        wire_dec_fail(d, -EPROTO);
    for (uint32_t i = 0; i < s->model_count; i++)
        s->models[i].is_aside = aside >> i & 1;
}

const char *llm_served_state(const struct llm_served *s)
{
    return s->draining ? "draining" : s->incomplete ? "incomplete" : "up";
}

static void make_printable(char *text)
{
    hw_utf8_mend(text);
    hw_blank_controls_of(text);
}

void llm_served_make_printable(struct llm_served *s)
{
    for (uint32_t i = 0; i < s->model_count; i++) {
        make_printable(s->models[i].name);
        make_printable(s->models[i].arch);
        make_printable(s->models[i].arithmetic);
    }
}
