/* A request for texts: from its body to running sequences, and from their tokens to text. */
#include "base/grow.h"
#include "serve/http/impl.h"

#include "llm/chat/grammar.h"
#include "llm/chat/schema.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

const char http_stops[] = "the server stops: ask another one, or this one later";

static int no_memory(struct http_error *why)
{
    return http_error_set(why, 503, NULL, NULL, "out of memory");
}

/* ---- prompts ---- */

uint32_t *http_encode(const struct http_model *m, const char *text, size_t bytes, bool begin,
                      uint32_t *count, struct http_error *why)
{
    if (!m->vocab) {
        (void)http_error_set(why, 400, NULL, NULL, "the model '%s' has no vocabulary: %.300s",
                             m->name, m->no_vocab);
        return NULL;
    }
    size_t room = bytes + 2;
    uint32_t *tokens = malloc((room + 1) * sizeof(*tokens));
    int64_t found = -ENOMEM;
    if (tokens)
        found = begin ? llm_chat_encode(m->vocab, text, bytes, tokens, room)
                      : llm_vocab_encode(m->vocab, text, bytes, tokens, room);
    if (found == -EMSGSIZE || found > (int64_t)room)
        (void)http_error_set(why, 413, NULL, NULL, "the text is longer than %d bytes",
                             LLM_TEXT_BYTES_MAX);
    else if (found < 0)
        (void)no_memory(why);
    if (why->status) {
        free(tokens);
        return NULL;
    }
    *count = (uint32_t)found;
    return tokens;
}

static int check_tokens(const struct http_model *m, const uint32_t *tokens, uint32_t count,
                        const char *param, struct http_error *why)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!m->vocab || tokens[i] >= llm_vocab_size(m->vocab))
            return http_error_set(why, 400, param, NULL,
                                  "'%s': token %u is not in the model's vocabulary", param,
                                  tokens[i]);
    }
    return 0;
}

/* No token after the prompt, which is repeated. */
static bool wants_nothing(const struct http_request *r)
{
    return r->api == HTTP_COMPLETIONS && r->max_tokens == 0;
}

/* The log of a new sequence. */
static int read_prompt(struct http_exchange *x, const struct http_prompt *prompt, uint32_t **tokens,
                       uint32_t *count)
{
    const struct http_model *m = x->model;
    if (prompt->text) {
        *tokens = http_encode(m, prompt->text, prompt->bytes, true, count, &x->error);
        if (!*tokens)
            return -1;
        int32_t last = x->request.api == HTTP_CHAT ? -1 : llm_vocab_last(m->vocab);
        if (last >= 0 && *count > 0 && (*tokens)[*count - 1] != (uint32_t)last)
            (*tokens)[(*count)++] = (uint32_t)last; /* http_encode leaves room */
    } else {
        if (check_tokens(m, prompt->tokens, prompt->token_count,
                         x->request.api == HTTP_EMBEDDINGS ? "input" : "prompt", &x->error))
            return -1;
        *count = prompt->token_count;
        *tokens = malloc((*count ? *count : 1) * sizeof(**tokens));
        if (!*tokens)
            return no_memory(&x->error);
        if (*count)
            memcpy(*tokens, prompt->tokens, *count * sizeof(**tokens));
    }
    bool embeds = x->request.api == HTTP_EMBEDDINGS;
    if (x->request.form == HTTP_COUNT_TOKENS)
        return 0;
    if (*count > 0 && *count < x->context + (embeds || wants_nothing(&x->request)))
        return 0;
    free(*tokens);
    if (*count == 0)
        return http_error_set(&x->error, 400, embeds ? "input" : "prompt", NULL, "the %s is empty",
                              embeds ? "input" : "prompt");
    if (embeds)
        return http_error_set(&x->error, 400, "input", "context_length_exceeded",
                              "the input has %u tokens, and the model's context %u; shorten it",
                              *count, x->context);
    bool chat = x->request.api == HTTP_CHAT;
    return http_error_set(&x->error, 400,
                          chat ? http_request_name(&x->request, "messages") : "prompt",
                          "context_length_exceeded",
                          "the prompt has %u tokens, and the model's context %u: nothing can "
                          "follow; shorten it",
                          *count, x->context);
}

/* ---- tokens to text, under the lock ---- */

static void wake(struct http_exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    MHD_resume_connection(x->connection);
}

const struct http_text *http_choice_text(const struct http_choice *choice)
{
    return choice->tools || choice->answer ? &choice->content : &choice->text;
}

/* A call, or more of one, has not been sent to a client that streams. */
static bool has_call(const struct http_choice *choice)
{
    const char *arguments;
    size_t count = choice->tools ? llm_tools_count(choice->tools) : 0;
    if (count == 0 || choice->calls_begun < count)
        return count > 0;
    return llm_tools_arguments(choice->tools, count - 1, &arguments) > choice->arguments_sent;
}

bool http_choice_has_news(const struct http_choice *choice)
{
    return http_choice_text(choice)->shown > choice->text_sent ||
           choice->reasoning.shown > choice->reasoning_sent || has_call(choice);
}

size_t http_whole_calls(const struct http_choice *choice)
{
    return choice->tools ? llm_tools_whole(choice->tools) : 0;
}

size_t http_take_text(const struct http_text *t, size_t *sent, const char **text)
{
    size_t bytes = t->shown - *sent;
    *text = bytes ? t->text + *sent : "";
    *sent = t->shown;
    return bytes;
}

bool http_take_call(struct http_choice *choice, size_t call, const char **text, size_t *bytes)
{
    size_t there = llm_tools_arguments(choice->tools, call, text);
    bool begins = call >= choice->calls_begun;
    if (begins) {
        choice->calls_begun = call + 1;
        choice->arguments_sent = 0;
    }
    *text += choice->arguments_sent;
    *bytes = there - choice->arguments_sent;
    choice->arguments_sent = there;
    return begins;
}

static int put_part(void *user, bool reasoning, const char *text, size_t bytes)
{
    static const struct http_stops none;
    struct http_choice *choice = user;
    int rc = 0;
    if (!reasoning && choice->tools)
        rc = llm_tools_feed(choice->tools, text, bytes, &text, &bytes);
    return rc ? rc
              : http_text_add(reasoning ? &choice->reasoning : &choice->content, &none, text,
                              bytes);
}

/* Looks for reasoning and then for tool calls in what is new of the text. */
static int find_parts(struct http_choice *choice, bool last)
{
    static const struct http_stops none;
    const struct http_text *t = &choice->text;
    const char *more = t->text ? t->text + choice->fed : "";
    size_t bytes = t->shown - choice->fed;
    int rc = 0;
    if (!choice->tools && !choice->answer)
        return 0;
    choice->fed = t->shown;
    if (choice->answer)
        rc = llm_answer_feed(choice->answer, more, bytes, last, put_part, choice);
    else if (bytes)
        rc = put_part(choice, false, more, bytes);
    if (rc || !last || !choice->tools)
        return rc;
    rc = llm_tools_end(choice->tools, &more, &bytes);
    /* Where nothing but calls is wanted, what is left is the beginning of one. */
    if (rc == 0 && !choice->exchange->request.must_call)
        rc = http_text_add(&choice->content, &none, more, bytes);
    return rc;
}

/* A text has ended.  With the last one the request is over for all but its client, who may take
 * long to read the answer. */
static void close_one(struct http_exchange *x)
{
    if (--x->open > 0)
        return;
    x->front->running--;
    x->key->running--;
    x->key->tokens -= x->prompt_tokens;
    if (x->request.stream)
        http_clients_expect(&x->front->clients, x->connection, true, 0);
}

static void end_choice(struct http_choice *choice, enum http_finish finish)
{
    struct http_exchange *x = choice->exchange;
    if (http_text_end(&choice->text, &x->request.stops) || find_parts(choice, true))
        finish = HTTP_FINISH_ERROR;
    if (finish == HTTP_FINISH_ERROR && !x->error.status) {
        x->error = choice->sequence.error;
        if (!x->error.status)
            (void)no_memory(&x->error);
    }
    choice->finish = choice->text.stopped ? HTTP_FINISH_STOP : finish;
    close_one(x);
    if (finish == HTTP_FINISH_ERROR)
        http_generation_drop(x);
    if (x->request.stream || x->open == 0)
        wake(x);
}

static int note_logprob(struct http_choice *choice, const struct llm_generated *token)
{
    if (!hw_grow(&choice->logprobs, &choice->logprob_room, (size_t)choice->logprob_count + 1,
                 sizeof(*choice->logprobs)))
        return -ENOMEM;
    struct http_logprob entry = {.token = token->token,
                                 .logprob = token->logprob,
                                 .start = choice->text.len,
                                 .offset = choice->scored.characters + choice->text.characters,
                                 .top_count = token->top_count};
    if (entry.top_count) {
        entry.top = malloc(entry.top_count * sizeof(*entry.top));
        if (!entry.top)
            return -ENOMEM;
        memcpy(entry.top, token->top, entry.top_count * sizeof(*entry.top));
    }
    choice->logprobs[choice->logprob_count++] = entry;
    return 0;
}

static int add_token(struct http_choice *choice, const struct llm_generated *token)
{
    struct http_exchange *x = choice->exchange;
    size_t len;
    const char *piece = llm_tools_piece(choice->tools ? x->form : LLM_TOOLS_NONE, x->model->vocab,
                                        token->token, &len);
    if (len == 0 && choice->answer)
        piece = llm_answer_piece(choice->answer, x->model->vocab, token->token, &len);
    if (x->request.logprobs && note_logprob(choice, token))
        return -ENOMEM;
    choice->reasoning_tokens += choice->answer && llm_answer_is_thinking(choice->answer);
    int rc = http_text_add(&choice->text, &x->request.stops, piece, len);
    return rc ? rc : find_parts(choice, false);
}

/* A token of the prompt. */
static int add_score(struct http_choice *choice, const struct llm_generated *token)
{
    static const struct http_stops none;
    size_t len;
    const char *piece = llm_vocab_piece(choice->exchange->model->vocab, token->token,
                                        choice->scored.len == 0, &len);
    int rc = note_logprob(choice, token);
    choice->prompt_logprobs = choice->logprob_count;
    return rc ? rc : http_text_add(&choice->scored, &none, piece, len);
}

/* The scores of another choice's prompt, which is the same. */
static int copy_scores(struct http_choice *choice, const struct http_choice *from)
{
    int rc = 0;
    for (uint32_t i = choice->logprob_count; i < from->prompt_logprobs && rc == 0; i++) {
        const struct http_logprob *entry = &from->logprobs[i];
        struct llm_generated token = {.token = entry->token,
                                      .logprob = entry->logprob,
                                      .top = entry->top,
                                      .top_count = entry->top_count};
        rc = add_score(choice, &token);
    }
    return rc;
}

/* Of the choices of one prompt the first one scores it; the others begin when it has. */
static bool waits_for_scores(const struct http_choice *choice)
{
    const struct http_sequence *s = &choice->sequence;
    return choice->index % choice->exchange->request.n > 0 && s->scored &&
           s->scored < s->prompt_count;
}

static void start_others(struct http_choice *first)
{
    for (uint32_t i = 1; i < first->exchange->request.n; i++) {
        struct http_choice *choice = first + i;
        struct http_sequence *s = &choice->sequence;
        if (s->ended)
            return;
        if (copy_scores(choice, first)) {
            http_sequence_finish(s, HTTP_FINISH_ERROR);
            return;
        }
        s->scored = s->prompt_count;
        http_sequence_start(s);
    }
}

static void on_scores(struct http_sequence *s, const struct llm_generated *tokens, uint32_t count)
{
    struct http_choice *choice = CONTAINER_OF(s, struct http_choice, sequence);
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = add_score(choice, &tokens[i]);
    if (rc) {
        http_sequence_finish(s, HTTP_FINISH_ERROR);
    } else if (s->scored == s->prompt_count) {
        start_others(choice);
        http_assign(s->front);
    }
}

/* A stop string has come, or the only call that the client takes. */
static bool is_over(const struct http_choice *choice)
{
    return choice->text.stopped ||
           (!choice->exchange->request.parallel_calls && http_whole_calls(choice) > 0);
}

static void on_tokens(struct http_sequence *s, const struct llm_generated *tokens, uint32_t count)
{
    struct http_choice *choice = CONTAINER_OF(s, struct http_choice, sequence);
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0 && !is_over(choice); i++)
        rc = add_token(choice, &tokens[i]);
    if (rc || is_over(choice)) {
        http_sequence_finish(s, rc ? HTTP_FINISH_ERROR : HTTP_FINISH_STOP);
        return;
    }
    if (choice->exchange->request.stream && http_choice_has_news(choice))
        wake(choice->exchange);
}

static void on_end(struct http_sequence *s, enum http_finish finish)
{
    end_choice(CONTAINER_OF(s, struct http_choice, sequence), finish);
}

static const struct http_sequence_ops sequence_ops = {
    .on_tokens = on_tokens, .on_scores = on_scores, .on_end = on_end};

/* ---- starting ---- */

static uint64_t random_u64(void)
{
    uint64_t value = 0;
    if (getrandom(&value, sizeof(value), 0) != sizeof(value))
        value = hw_now_ns();
    return value;
}

static void fill_request(struct http_choice *choice, const struct http_request *r, uint64_t seed)
{
    struct llm_generate *g = &choice->sequence.request;
    if (r->api == HTTP_EMBEDDINGS) {
        *g = (struct llm_generate){.embed = true,
                                   .stays = choice->exchange->front->config.options.alone};
        return;
    }
    *g = (struct llm_generate){.sampling = r->sampling,
                               .stays = choice->exchange->front->config.options.alone,
                               .stop_at_end = !r->ignore_end,
                               .stops = r->stop_tokens.tokens,
                               .stop_count = r->stop_tokens.token_count,
                               .logprobs = r->logprobs || choice->sequence.scored,
                               .tops = r->top_logprobs};
    g->sampling.seed = seed + choice->index;
    g->grammar = r->grammar ? r->grammar : choice->exchange->grammar;
}

/* Choices i*n to i*n+n-1 continue prompt i. */
static int make_choices(struct http_exchange *x, const uint32_t *tokens, uint32_t count,
                        uint32_t prompt, uint64_t seed)
{
    const struct http_request *r = &x->request;
    uint32_t left = x->context - count;
    for (uint32_t i = 0; i < r->n; i++) {
        struct http_choice *choice = &x->choices[x->choice_count];
        struct http_sequence *s = &choice->sequence;
        s->tokens = malloc(count * sizeof(*tokens));
        if (!s->tokens)
            return no_memory(&x->error);
        memcpy(s->tokens, tokens, count * sizeof(*tokens));
        choice->exchange = x;
        choice->index = x->choice_count++;
        choice->prompt = prompt;
        s->front = x->front;
        s->key = x->key;
        s->siblings = &x->siblings;
        s->ops = &sequence_ops;
        s->model = x->model;
        s->token_count = s->token_room = s->prompt_count = count;
        s->most = r->max_tokens && r->max_tokens < left ? r->max_tokens : left;
        if (r->api == HTTP_EMBEDDINGS)
            s->most = 1; /* nothing is generated: it is not all there before its end */
        if (wants_nothing(r))
            s->most = 0;
        if (r->echo && (r->logprobs || s->most == 0))
            s->scored = 1;
        struct llm_generated first = {.token = tokens[0], .logprob = NAN};
        if (s->scored && add_score(choice, &first))
            return no_memory(&x->error);
        fill_request(choice, r, seed);
        json_t *none = json_array();
        int rc = x->form != LLM_TOOLS_NONE
                     ? llm_tools_create(x->form, r->tools ? r->tools : none, &choice->tools)
                     : 0;
        json_decref(none);
        if (rc)
            return no_memory(&x->error);
        if (choice->tools && r->prefill)
            llm_tools_begin_in_content(choice->tools);
    }
    return 0;
}

static int add_prompt(struct http_exchange *x, const struct http_prompt *prompt, uint32_t index,
                      uint64_t seed)
{
    uint32_t *tokens, count;
    if (read_prompt(x, prompt, &tokens, &count))
        return -1;
    bool counted = x->request.form == HTTP_COUNT_TOKENS;
    int rc = counted ? 0 : make_choices(x, tokens, count, index, seed);
    free(tokens);
    x->prompt_tokens += count;
    return rc;
}

/* How calls are written.  A template that does not say so leaves it to the grammar. */
static int read_tools(struct http_exchange *x)
{
    const struct http_request *r = &x->request;
    char why[LLM_WHY_CHARS] = "";
    size_t bytes;
    if (!x->model->chat || r->api != HTTP_CHAT)
        return 0;
    enum llm_tools_form form = llm_chat_tools_form(x->model->chat);
    if (r->tools || llm_tools_marks_text(form))
        x->form = form;
    if (!r->must_call)
        return 0;
    if (r->prefill && llm_chat_marks_content(x->model->chat))
        return http_error_set(&x->error, 400, "messages", NULL,
                              "'messages' must end with the user's where 'tool_choice' asks for a "
                              "call: this model writes no call within text");
    if (x->form == LLM_TOOLS_NONE)
        x->form = LLM_TOOLS_HERMES;
    int rc = llm_tools_grammar(x->form, x->model->vocab, r->tools, r->must_call_name,
                               r->parallel_calls, &x->grammar, &bytes, why);
    if (rc == -ENOMEM)
        return no_memory(&x->error);
    const char *field = rc == -ENOENT ? "tool_choice" : "tools";
    return rc ? http_error_set(&x->error, 400, field, NULL, "'%s': %.400s", field, why) : 0;
}

/* What the answer must look like, as a grammar. */
static int read_format(struct http_exchange *x)
{
    const struct http_request *r = &x->request;
    char why[LLM_WHY_CHARS] = "";
    size_t bytes;
    if (r->format == HTTP_FORMAT_TEXT || x->grammar)
        return 0;
    int rc = llm_schema_grammar(r->format == HTTP_FORMAT_SCHEMA ? r->schema : NULL, &x->grammar,
                                &bytes, why);
    if (rc == -ENOMEM)
        return no_memory(&x->error);
    const char *field = http_request_name(r, "response_format");
    return rc ? http_error_set(&x->error, 400, field, NULL, "'%s': %.400s", field, why) : 0;
}

/* A schema may be one that no text fits: of a grammar made from it the worker's refusal would not
 * say so, or none would come. */
static int check_grammar(struct http_exchange *x)
{
    struct llm_grammar *grammar;
    char why[LLM_WHY_CHARS] = "";
    const char *field =
        x->request.must_call ? "tools" : http_request_name(&x->request, "response_format");
    if (!x->grammar)
        return 0;
    int rc = llm_grammar_parse(x->grammar, strlen(x->grammar), &grammar, why);
    if (rc == 0) {
        rc = llm_grammar_ends(grammar);
        llm_grammar_destroy(grammar);
        if (rc == 0)
            return http_error_set(&x->error, 400, field, NULL,
                                  "'%s': no value fits the schema, which refers to itself without "
                                  "a way out",
                                  field);
    }
    if (rc == -ENOMEM)
        return no_memory(&x->error);
    return rc < 0 ? http_error_set(&x->error, 400, field, NULL, "'%s': %.400s", field, why) : 0;
}

/* The messages, and what the answer begins with, as a prompt, which is the caller's to free. */
static int render_chat(struct http_exchange *x, char **text, size_t *bytes)
{
    const struct http_model *m = x->model;
    char why[LLM_WHY_CHARS] = "";
    struct llm_chat_request request = {.messages = x->request.messages,
                                       .tools = x->request.tools,
                                       .variables = x->request.variables,
                                       .open = true,
                                       .answer = x->request.prefill,
                                       .time_now = time(NULL)};
    if (!m->chat)
        return http_error_set(&x->error, 400, "model", NULL,
                              "the model's chat template cannot be used: %.300s; ask with "
                              "/v1/completions",
                              m->no_chat);
    int rc = llm_chat_prompt(m->chat, &request, text, bytes, why);
    if (rc == -ENOMEM)
        return no_memory(&x->error);
    return rc ? http_error_set(&x->error, 400, http_request_name(&x->request, "messages"), NULL,
                               "the model's chat template does not take these messages: %.300s",
                               why)
              : 0;
}

/* All that needs no lock: the prompts as tokens. */
static int prepare(struct http_exchange *x)
{
    const struct http_request *r = &x->request;
    uint32_t prompts = r->api == HTTP_CHAT ? 1 : r->prompt_count;
    uint64_t seed = r->has_seed ? r->sampling.seed : random_u64();
    for (uint32_t i = 0; i < r->sampling.bias_count; i++) {
        if (check_tokens(x->model, &r->biases[i].token, 1, "logit_bias", &x->error))
            return -1;
    }
    uint32_t width = x->model->file ? llm_file_config(x->model->file)->width : 0;
    if (r->dimensions && r->dimensions != width)
        return http_error_set(&x->error, 400, "dimensions", NULL,
                              "'dimensions' must be %u, as many as the model has, or left out",
                              width);
    if (read_tools(x) || read_format(x) || check_grammar(x))
        return -1;
    if (r->api == HTTP_CHAT && x->model->chat && !r->keep_reasoning)
        x->reasoning = llm_chat_reasoning(x->model->chat);
    x->choices = calloc((size_t)prompts * r->n, sizeof(*x->choices));
    if (!x->choices)
        return no_memory(&x->error);
    if (r->api == HTTP_CHAT) {
        char *text = NULL;
        size_t bytes;
        if (render_chat(x, &text, &bytes))
            return -1;
        struct http_prompt prompt = {.text = text, .bytes = bytes};
        int rc = add_prompt(x, &prompt, 0, seed);
        /* A grammar is of the whole text: what it allows tells whether there is reasoning. */
        bool open = x->reasoning && !r->grammar && !x->grammar &&
                    llm_chat_ends_open(x->reasoning, text, bytes);
        for (uint32_t i = 0; rc == 0 && x->reasoning && i < x->choice_count; i++) {
            x->choices[i].answer = llm_answer_create(x->reasoning, open);
            if (!x->choices[i].answer)
                rc = no_memory(&x->error);
        }
        free(text);
        return rc;
    }
    for (uint32_t i = 0; i < prompts; i++) {
        if (add_prompt(x, &r->prompts[i], i, seed))
            return -1;
    }
    return 0;
}

/* Under the lock. */
static int admit(struct http_exchange *x)
{
    struct http_front *f = x->front;
    if (f->finishing || f->stopping)
        return http_error_set(&x->error, 503, NULL, NULL, "%s", http_stops);
    if (http_drained(f))
        return http_error_set(&x->error, 503, NULL, NULL, "%s", http_drained(f));
    if (f->running >= f->config.limits.max_requests)
        return http_error_set(&x->error, 429, NULL, "too_many_requests",
                              "%u requests are under way, which is the limit; try again soon",
                              f->running);
    struct http_key *key = x->key;
    uint64_t most_tokens = f->config.limits.max_tokens_per_key;
    if (key != &f->nobody && key->running >= f->config.limits.max_requests_per_key)
        return http_error_set(&x->error, 429, NULL, "too_many_requests",
                              "%u requests of this API key are under way, which is its limit; "
                              "try again soon",
                              key->running);
    if (key != &f->nobody && most_tokens && x->prompt_tokens > most_tokens)
        return http_error_set(&x->error, 400, NULL, "too_many_tokens",
                              "the prompts have %u tokens, and an API key may have at most %llu "
                              "under way; shorten them, or send them one by one",
                              x->prompt_tokens, (unsigned long long)most_tokens);
    if (key != &f->nobody && most_tokens && key->tokens + x->prompt_tokens > most_tokens)
        return http_error_set(&x->error, 429, NULL, "too_many_tokens",
                              "prompts of this API key that are under way have %llu tokens, and "
                              "this one %u: the limit is %llu; try again soon",
                              (unsigned long long)key->tokens, x->prompt_tokens,
                              (unsigned long long)most_tokens);
    f->running++;
    key->running++;
    key->tokens += x->prompt_tokens;
    x->id = ++f->exchange_ids;
    x->next = f->exchanges;
    x->to = &f->exchanges;
    if (x->next)
        x->next->to = &x->next;
    f->exchanges = x;
    x->open = x->choice_count;
    return 0;
}

int http_generation_count(struct http_exchange *x, enum http_api api)
{
    struct http_front *f = x->front;
    if (http_request_parse(x->body ? x->body : "", x->body_len, api, &x->request, &x->error))
        return -1;
    pthread_mutex_lock(&f->lock);
    x->model = http_model_find(f, x->request.model, &x->error);
    x->context = x->model ? http_model_context(f, x->model) : 0;
    pthread_mutex_unlock(&f->lock);
    if (!x->model || prepare(x))
        return -1;
    return http_json_failed() ? no_memory(&x->error) : 0; /* of what the template gets */
}

int http_generation_start(struct http_exchange *x, enum http_api api)
{
    static const char *const names[] = {"cmpl-", "chatcmpl-", "cmpl-", "resp_", "msg_"};
    struct http_front *f = x->front;
    if (http_generation_count(x, api))
        return -1;
    x->created = time(NULL);
    snprintf(x->name, sizeof(x->name), "%s%016llx%016llx", names[api],
             (unsigned long long)random_u64(), (unsigned long long)random_u64());
    http_lock(f);
    int rc = admit(x);
    x->started = rc == 0;
    for (uint32_t i = 0; rc == 0 && i < x->choice_count; i++) {
        if (!waits_for_scores(&x->choices[i]))
            http_sequence_start(&x->choices[i].sequence);
    }
    http_assign(f);
    http_unlock(f);
    return rc;
}

/* ---- ending ---- */

void http_generation_drop(struct http_exchange *x)
{
    for (uint32_t i = 0; i < x->choice_count; i++) {
        struct http_choice *choice = &x->choices[i];
        if (choice->finish != HTTP_FINISH_NONE || choice->sequence.ended)
            continue;
        http_sequence_drop(&choice->sequence);
        http_count(&x->model->stats, HTTP_COUNT_LEFT, 1);
        choice->finish = HTTP_FINISH_ERROR;
        close_one(x);
    }
}

static void free_choice(struct http_choice *choice)
{
    http_sequence_fini(&choice->sequence);
    http_text_fini(&choice->text);
    http_text_fini(&choice->reasoning);
    http_text_fini(&choice->content);
    http_text_fini(&choice->scored);
    llm_tools_destroy(choice->tools);
    llm_answer_destroy(choice->answer);
    for (uint32_t i = 0; i < choice->logprob_count; i++)
        free(choice->logprobs[i].top);
    free(choice->logprobs);
}

void http_generation_fini(struct http_exchange *x)
{
    struct http_front *f = x->front;
    if (x->id) {
        http_lock(f);
        http_generation_drop(x);
        *x->to = x->next;
        if (x->next)
            x->next->to = x->to;
        if (!f->exchanges)
            pthread_cond_signal(&f->ended);
        http_unlock(f);
    }
    for (uint32_t i = 0; i < x->choice_count; i++)
        free_choice(&x->choices[i]);
    free(x->choices);
    http_request_fini(&x->request);
    free(x->grammar);
    wire_enc_fini(&x->out);
    free(x->chunk_begin);
}
