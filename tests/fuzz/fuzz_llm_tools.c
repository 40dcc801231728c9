/* An answer that may hold reasoning and tool calls; the first byte chooses the form.  Reasoning,
 * content and calls are the same whether the text comes at once or byte by byte. */
#include "fuzz.h"

#include "llm/chat/answer.h"

#include <string.h>

/* A call without its id, which is drawn; arguments that are no UTF-8 have no JSON. */
static void note(const struct llm_tools *t, size_t index, json_t *calls)
{
    json_t *call = llm_tools_call(t, index, false);
    json_object_del(call, "id");
    json_array_append_new(calls, call ? call : json_null());
}

/* What came out, as one text. */
static char *parse(enum llm_tools_form form, const char *text, size_t bytes, size_t step)
{
    struct llm_tools *t;
    const char *content;
    size_t n, length = 0;
    char *out = malloc(bytes + 1);
    require(out && !llm_tools_create(form, NULL, &t));
    for (size_t at = 0; at < bytes; at += step) {
        size_t left = bytes - at;
        require(!llm_tools_feed(t, text + at, left < step ? left : step, &content, &n));
        require(length + n <= bytes);
        memcpy(out + length, content, n);
        length += n;
    }
    require(!llm_tools_end(t, &content, &n));
    require(length + n <= bytes);
    memcpy(out + length, content, n);
    length += n;
    json_t *calls = json_array();
    for (size_t i = 0; i < llm_tools_count(t); i++)
        note(t, i, calls);
    char *list = json_dumps(calls, 0);
    char *all = malloc(length + strlen(list) + 1);
    require(all != NULL);
    memcpy(all, out, length);
    memcpy(all + length, list, strlen(list) + 1);
    for (size_t i = 0; i < length; i++) /* so that it is one string */
        all[i] = all[i] ? all[i] : 1;
    free(out);
    free(list);
    json_decref(calls);
    llm_tools_destroy(t);
    return all;
}

/* Answer and reasoning. */
struct parts {
    char *text[2];
    size_t bytes[2], most;
};

static int put(void *user, bool reasoning, const char *text, size_t bytes)
{
    struct parts *p = user;
    require(bytes > 0 && p->bytes[reasoning] + bytes <= p->most);
    memcpy(p->text[reasoning] + p->bytes[reasoning], text, bytes);
    p->bytes[reasoning] += bytes;
    return 0;
}

static void split(const struct llm_chat_marks *marks, const char *text, size_t bytes, size_t step,
                  struct parts *out)
{
    struct llm_answer *a = llm_answer_create(marks, false);
    out->most = 2 * bytes + 2; /* newlines between reasonings */
    out->text[0] = malloc(out->most);
    out->text[1] = malloc(out->most);
    require(a && out->text[0] && out->text[1]);
    for (size_t at = 0; at < bytes; at += step) {
        size_t left = bytes - at;
        require(!llm_answer_feed(a, text + at, left < step ? left : step, false, put, out));
    }
    require(!llm_answer_feed(a, "", 0, true, put, out));
    llm_answer_destroy(a);
}

static void compare_parts(size_t kind, const char *text, size_t bytes)
{
    static const char *const tells[] = {"</think>", "<|channel|>analysis", "<|open|>",
                                        "<|tool_call:begin|>"};
    static struct llm_chat *chats[ARRAY_LEN(tells)];
    const char *tell = tells[kind %= ARRAY_LEN(tells)];
    char why[LLM_WHY_CHARS];
    require(chats[kind] || !llm_chat_create_text(tell, strlen(tell), "", "", &chats[kind], why));
    struct parts whole = {0}, pieces = {0};
    split(llm_chat_reasoning(chats[kind]), text, bytes, bytes + 1, &whole);
    split(llm_chat_reasoning(chats[kind]), text, bytes, 1, &pieces);
    for (int i = 0; i < 2; i++) {
        require(whole.bytes[i] == pieces.bytes[i] &&
                memcmp(whole.text[i], pieces.text[i], whole.bytes[i]) == 0);
        free(whole.text[i]);
        free(pieces.text[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 4096)
        return 0;
    enum llm_tools_form form = data[0] % LLM_TOOLS_FORMS;
    const char *text = (const char *)data + 1;
    char *whole = parse(form, text, size - 1, size);
    char *pieces = parse(form, text, size - 1, 1);
    require(strcmp(whole, pieces) == 0);
    free(whole);
    free(pieces);
    compare_parts(data[0], text, size - 1);
    return 0;
}
