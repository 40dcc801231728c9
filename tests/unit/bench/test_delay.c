/* The relay that adds latency: what a side sent before it left arrives. */
#include "base/clock.h"
#include "bench/rpc/delay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct sockaddr_in at_port(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
}

/* Sends without end, as a session that reports work, and keeps what it hears until the end. */
static size_t hear(int fd, char *heard, size_t size)
{
    size_t len = 0;
    for (;;) {
        (void)!send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        ssize_t n = recv(fd, heard + len, size - len, MSG_DONTWAIT);
        if (n > 0)
            len += (size_t)n;
        else if (n == 0 || errno != EAGAIN)
            return len;
    }
}

static void what_was_sent_before_leaving_arrives(void **state)
{
    (void)state;
    static const char goodbye[] = "goodbye";
    struct sockaddr_in at = at_port(0);
    socklen_t len = sizeof(at);
    struct bench_delay delay;
    char byte, heard[64] = "";
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    struct bench_line line = {.one_way_ns = 50 * HW_MS};
    assert_int_equal(bench_delay_start(ntohs(at.sin_port), line, &delay), 0);
    struct sockaddr_in near = at_port(delay.port);
    int leaver = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(leaver, (struct sockaddr *)&near, sizeof(near)), 0);
    int stayer = accept(listener, NULL, NULL);
    assert_true(stayer >= 0);
    do /* until the line is full of bytes for one who will not be there */
        assert_int_equal(send(stayer, "x", 1, MSG_NOSIGNAL), 1);
    while (recv(leaver, &byte, 1, MSG_DONTWAIT) != 1);
    assert_int_equal(send(leaver, goodbye, sizeof(goodbye), 0), sizeof(goodbye));
    close(leaver);
    assert_int_equal(hear(stayer, heard, sizeof(heard)), sizeof(goodbye));
    assert_string_equal(heard, goodbye);
    close(stayer);
    close(listener);
    bench_delay_finish(&delay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_sent_before_leaving_arrives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
