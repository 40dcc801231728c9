#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/rng.h"
#include "serve/http/answer/text.h"

static struct http_stops stops_of(const char *a, const char *b)
{
    struct http_stops stops = {0};
    const char *texts[] = {a, b};
    for (size_t i = 0; i < ARRAY_LEN(texts) && texts[i]; i++) {
        stops.items[i].bytes = texts[i];
        stops.items[i].len = strlen(texts[i]);
        stops.count++;
    }
    return stops;
}

static void add(struct http_text *t, const struct http_stops *stops, const char *piece)
{
    assert_int_equal(http_text_add(t, stops, piece, strlen(piece)), 0);
}

static void assert_shown(const struct http_text *t, const char *text)
{
    assert_int_equal(t->shown, strlen(text));
    assert_memory_equal(t->text ? t->text : "", text, strlen(text));
}

static void a_character_is_shown_when_it_is_whole(void **state)
{
    (void)state;
    struct http_stops none = {0};
    struct http_text t = {0};
    add(&t, &none, "a\xf0\x9f");
    assert_shown(&t, "a");
    add(&t, &none, "\x98");
    assert_shown(&t, "a");
    add(&t, &none, "\x80z");
    assert_shown(&t, "a\xf0\x9f\x98\x80z");
    http_text_fini(&t);
}

static void bytes_that_are_no_character_are_replaced(void **state)
{
    (void)state;
    struct http_stops none = {0};
    struct http_text t = {0};
    add(&t, &none, "\xff");
    assert_shown(&t, "\xef\xbf\xbd");
    add(&t, &none, "\xe2\x82"); /* may become a euro sign */
    assert_shown(&t, "\xef\xbf\xbd");
    add(&t, &none, "a"); /* it did not */
    assert_shown(&t, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                     "a");
    add(&t, &none, "\xe2");
    assert_int_equal(http_text_end(&t, &none), 0);
    assert_shown(&t, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                     "a\xef\xbf\xbd");
    http_text_fini(&t);
}

static void a_stop_string_over_tokens_is_never_shown(void **state)
{
    (void)state;
    struct http_stops stops = stops_of("\n\nUser:", NULL);
    struct http_text t = {0};
    add(&t, &stops, "yes\n");
    assert_shown(&t, "yes");
    add(&t, &stops, "\nUs");
    assert_shown(&t, "yes");
    assert_false(t.stopped);
    add(&t, &stops, "er: no");
    assert_true(t.stopped);
    assert_shown(&t, "yes");
    add(&t, &stops, "more");
    assert_shown(&t, "yes");
    http_text_fini(&t);
}

static void what_was_held_back_is_shown_when_it_is_no_stop(void **state)
{
    (void)state;
    struct http_stops stops = stops_of("aab", "abc");
    struct http_text t = {0};
    add(&t, &stops, "xaa");
    assert_shown(&t, "x");
    add(&t, &stops, "a"); /* the end may still begin either */
    assert_shown(&t, "xa");
    add(&t, &stops, "d");
    assert_shown(&t, "xaaad");
    add(&t, &stops, "aa");
    assert_int_equal(http_text_end(&t, &stops), 0);
    assert_shown(&t, "xaaadaa");
    http_text_fini(&t);
}

static void the_first_of_two_stops_cuts(void **state)
{
    (void)state;
    struct http_stops stops = stops_of("stop", "o");
    struct http_text t = {0};
    add(&t, &stops, "it stops");
    assert_true(t.stopped);
    assert_shown(&t, "it "); /* not "it st" */
    http_text_fini(&t);
}

/* Against the whole text searched at once, for many texts cut at random. */
static void pieces_give_what_the_whole_gives(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 7);
    for (int round = 0; round < 20000; round++) {
        struct http_stops stops = stops_of("aba", "bb");
        struct http_text t = {0};
        char text[33] = "";
        size_t len = hw_rng_below(&rng, sizeof(text)), most = 0;
        for (size_t i = 0; i < len; i++)
            text[i] = "abc"[hw_rng_below(&rng, 3)];
        text[len] = '\0';
        for (size_t at = 0; at < len;) {
            size_t piece = 1 + hw_rng_below(&rng, len - at);
            assert_int_equal(http_text_add(&t, &stops, text + at, piece), 0);
            assert_true(t.shown >= most);
            most = t.shown;
            at += piece;
        }
        assert_int_equal(http_text_end(&t, &stops), 0);
        char *a = strstr(text, "aba"), *b = strstr(text, "bb");
        char *cut = a && (!b || a < b) ? a : b;
        if (t.stopped)
            assert_non_null(cut);
        if (cut) {
            /* Cut in pieces, the stop that is complete first may win over one that begins first. */
            assert_true(t.stopped);
            assert_true(t.shown == (size_t)(cut - text) || (a && t.shown == (size_t)(a - text)) ||
                        (b && t.shown == (size_t)(b - text)));
        } else {
            assert_shown(&t, text);
        }
        http_text_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_character_is_shown_when_it_is_whole),
        cmocka_unit_test(bytes_that_are_no_character_are_replaced),
        cmocka_unit_test(a_stop_string_over_tokens_is_never_shown),
        cmocka_unit_test(what_was_held_back_is_shown_when_it_is_no_stop),
        cmocka_unit_test(the_first_of_two_stops_cuts),
        cmocka_unit_test(pieces_give_what_the_whole_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
