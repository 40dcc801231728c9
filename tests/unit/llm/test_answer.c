/* Reasoning in an answer, told from the rest whole and byte by byte. */
#include "unit.h"

#include "failing.h"
#include "llm/chat/answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char think[] = "{{ '</think>' }}", channels[] = "<|channel|>analysis";

struct parts {
    char text[2][256]; /* answer, reasoning */
};

static int put(void *user, bool reasoning, const char *text, size_t bytes)
{
    struct parts *p = user;
    char *to = p->text[reasoning];
    assert_true(bytes > 0 && strlen(to) + bytes < sizeof p->text[0]);
    strncat(to, text, bytes);
    return 0;
}

static int refuse(void *user, bool reasoning, const char *text, size_t bytes)
{
    (void)user, (void)reasoning, (void)text, (void)bytes;
    return -EPIPE;
}

static struct llm_chat *chat_of(const char *template)
{
    struct llm_chat *chat;
    char why[LLM_WHY_CHARS];
    assert_int_equal(llm_chat_create_text(template, strlen(template), "", "", &chat, why), 0);
    return chat;
}

static void expect(const char *template, bool open, const char *text, const char *answer,
                   const char *reasoning)
{
    struct llm_chat *chat = chat_of(template);
    for (size_t step = 1; step <= strlen(text) + 1; step++) {
        struct llm_answer *a = llm_answer_create(llm_chat_reasoning(chat), open);
        struct parts p = {0};
        for (size_t at = 0, n; at < strlen(text); at += n) {
            n = strlen(text) - at < step ? strlen(text) - at : step;
            assert_int_equal(llm_answer_feed(a, text + at, n, false, put, &p), 0);
        }
        assert_int_equal(llm_answer_feed(a, "", 0, true, put, &p), 0);
        assert_string_equal(p.text[0], answer);
        assert_string_equal(p.text[1], reasoning);
        llm_answer_destroy(a);
    }
    llm_chat_destroy(chat);
}

static void reasoning_comes_first(void **state)
{
    (void)state;
    expect(think, false, "<think>\n a\nb \n</think>\n\n c </think>d", "c </think>d", "a\nb");
    expect(think, false, "<think></think>c", "c", "");
    expect(think, false, "<thin>c", "<thin>c", "");
    expect(think, false, " \n<think>a</think >b", "", "a</think >b");
    expect(think, false, "c<think>a</think>", "c<think>a</think>", "");
    expect(think, true, "a</think>b", "b", "a");
    expect(think, true, "a </thi", "", "a </thi");
    expect(think, false, "", "", "");
}

static void an_answer_is_several_messages(void **state)
{
    (void)state;
    static const char thought[] = "<|channel|>analysis<|message|> a <|end|><|start|>assistant";
    static const char said[] = "<|channel|>commentary<|message|>b<|end|><|start|>assistant";
    static const char final[] = "<|channel|>final<|message|>c";
    char text[512];
    snprintf(text, sizeof text, "%s%s", thought, final);
    expect(channels, false, text, "c", "a");
    snprintf(text, sizeof text, "%s%s%s%s", thought, said, thought, final);
    expect(channels, false, text, "bc", "a\n\na");
    expect(channels, false, final, "c", "");
    expect(channels, false, "<|channel|>commentary to=f", "<|channel|>commentary to=f", "");
    expect(channels, false, "a <|", "a <|", "");
}

static void marks_are_looked_for_while_they_may_come(void **state)
{
    (void)state;
    struct llm_chat *chat = chat_of(think);
    struct llm_answer *a = llm_answer_create(llm_chat_reasoning(chat), true);
    struct parts p = {0};
    assert_true(llm_answer_is_thinking(a));
    assert_int_equal(llm_answer_feed(a, "a</think> ", 10, false, put, &p), 0);
    assert_false(llm_answer_is_thinking(a));
    assert_false(llm_answer_has_thought(a));
    assert_int_equal(llm_answer_feed(a, "b", 1, false, put, &p), 0);
    assert_true(llm_answer_has_thought(a));
    assert_int_equal(llm_answer_feed(a, "c", 1, false, refuse, NULL), -EPIPE);
    llm_answer_destroy(a);
    llm_chat_destroy(chat);
}

static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    struct llm_chat *chat = chat_of(think);
    int err = -ENOMEM;
    for (long granted = 0; err; granted++) {
        struct parts p = {0};
        allocations_left = granted;
        counting = true;
        struct llm_answer *a = llm_answer_create(llm_chat_reasoning(chat), false);
        err = a ? llm_answer_feed(a, "<think>a</think>b", 17, true, put, &p) : -ENOMEM;
        counting = false;
        llm_answer_destroy(a);
        assert_true(granted < 100);
    }
    llm_chat_destroy(chat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasoning_comes_first),
        cmocka_unit_test(an_answer_is_several_messages),
        cmocka_unit_test(marks_are_looked_for_while_they_may_come),
        cmocka_unit_test(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
