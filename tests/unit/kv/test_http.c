/* HTTP answers: every kind of body, in any pieces, and what must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/attr.h"
#include "kv/cluster/http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct body {
    char text[256];
    size_t len;
    int error;
};

static int keep(void *user, const void *data, size_t len)
{
    struct body *b = user;
    if (b->error)
        return b->error;
    assert_true(b->len + len < sizeof(b->text));
    memcpy(b->text + b->len, data, len);
    b->len += len;
    return 0;
}

static int feed_in_pieces(struct kv_http *h, const char *text, size_t len, size_t piece)
{
    int rc = 0;
    for (size_t at = 0; at < len && rc == 0; at += piece)
        rc = kv_http_feed(h, text + at, len - at < piece ? len - at : piece);
    return rc;
}

static void expect_body(const char *answer, unsigned status, const char *body)
{
    for (size_t piece = 1; piece <= strlen(answer); piece++) {
        struct body b = {0};
        struct kv_http h;
        kv_http_init(&h, keep, &b);
        assert_int_equal(feed_in_pieces(&h, answer, strlen(answer), piece), 0);
        assert_int_equal(kv_http_end(&h), 0);
        assert_true(kv_http_done(&h));
        assert_int_equal(h.status, status);
        assert_int_equal(b.len, strlen(body));
        assert_memory_equal(b.text, body, b.len);
    }
}

static void bodies_of_every_kind(void **state)
{
    (void)state;
    expect_body("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello");
    expect_body("HTTP/1.1 200 OK\r\ncontent-length:  5 \r\n\r\nhello", 200, "hello");
    expect_body("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, "");
    expect_body("HTTP/1.0 404 Not Found\r\n\r\nno such thing", 404, "no such thing");
    expect_body("HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", 204, "");
    expect_body("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200,
                "hello");
    expect_body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                "1\r\na\r\n00A;x=y\r\n0123456789\r\n2 \r\nbc\r\n0\r\nTrailer: t\r\n\r\n",
                200, "a0123456789bc");
}

static void chunks_come_as_they_arrive(void **state)
{
    static const char start[] =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n";
    struct body b = {0};
    struct kv_http h;
    (void)state;
    kv_http_init(&h, keep, &b);
    assert_int_equal(kv_http_feed(&h, start, strlen(start)), 0);
    assert_int_equal(b.len, 4);
    assert_int_equal(kv_http_feed(&h, "4\r\ntw", 5), 0);
    assert_int_equal(b.len, 6);
    assert_false(kv_http_done(&h));
    assert_int_equal(kv_http_end(&h), -EPROTO); /* cut off */
}

static void what_is_no_answer_is_refused(void **state)
{
    static const char *const bad[] = {
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 600 What\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1234567890123456\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", /* more than one answer */
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloworld\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno colon\r\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct body b = {0};
        struct kv_http h;
        kv_http_init(&h, keep, &b);
        if (feed_in_pieces(&h, bad[i], strlen(bad[i]), 7) != -EPROTO)
            fail_msg("taken: %s", bad[i]);
        assert_int_equal(kv_http_feed(&h, "x", 1), -EPROTO); /* it stays so */
        assert_int_equal(kv_http_end(&h), -EPROTO);
    }
}

static void lines_are_bounded(void **state)
{
    struct body b = {0};
    struct kv_http h;
    char line[KV_HTTP_LINE_MAX + 1];
    (void)state;
    memset(line, 'a', sizeof(line));
    kv_http_init(&h, keep, &b);
    assert_int_equal(kv_http_feed(&h, line, KV_HTTP_LINE_MAX), 0);
    assert_int_equal(kv_http_feed(&h, line, 1), -EPROTO);
    kv_http_init(&h, keep, &b);
    assert_int_equal(kv_http_feed(&h, "HTTP/1.1 200 OK\r\n", 17), 0);
    for (int i = 0; i < KV_HTTP_LINES_MAX; i++)
        assert_int_equal(kv_http_feed(&h, "A: b\r\n", 6), 0);
    assert_int_equal(kv_http_feed(&h, "A: b\r\n", 6), -EPROTO);
    kv_http_init(&h, keep, &b);
    assert_int_equal(kv_http_feed(&h, "HTTP/1.1 200 \0K\r\n", 17), -EPROTO);
}

static void an_error_of_the_sink_ends_it(void **state)
{
    struct body b = {.error = -E2BIG};
    struct kv_http h;
    (void)state;
    kv_http_init(&h, keep, &b);
    assert_int_equal(kv_http_feed(&h, "HTTP/1.1 200 OK\r\n\r\nbody", 23), -E2BIG);
    assert_int_equal(kv_http_end(&h), -E2BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_of_every_kind),
        cmocka_unit_test(chunks_come_as_they_arrive),
        cmocka_unit_test(what_is_no_answer_is_refused),
        cmocka_unit_test(lines_are_bounded),
        cmocka_unit_test(an_error_of_the_sink_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
