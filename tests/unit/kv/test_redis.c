/* Answers of Redis: slots, ranges, redirections, values in pieces. */
#include "unit.h"

#include "kv/redis/cluster.h"
#include "kv/redis/reply.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct stream {
    const char *text;
    size_t at, len, piece;
};

static ssize_t read_piece(void *user, void *to, size_t len)
{
    struct stream *s = user;
    size_t n = s->len - s->at < len ? s->len - s->at : len;
    n = n < s->piece ? n : s->piece;
    memcpy(to, s->text + s->at, n);
    s->at += n;
    return n ? (ssize_t)n : -ESHUTDOWN;
}

static struct kv_redis_reader *reader_of(struct stream *s)
{
    static struct kv_redis_reader reader;
    kv_redis_reader_init(&reader, read_piece, s);
    return &reader;
}

static void a_key_has_the_slot_that_redis_gives_it(void **state)
{
    (void)state;
    assert_int_equal(kv_redis_slot("123456789", 9), 0x31c3);
    assert_int_equal(kv_redis_slot("foo", 3), 12182);
    assert_int_equal(kv_redis_slot("", 0), 0);
}

static void a_value_is_read_however_it_arrives(void **state)
{
    (void)state;
    static const char text[] = "$12\r\nab\r\n$3\r\ncdef\r\n:-7\r\n$0\r\n\r\n$-1\r\n";
    for (size_t piece = 1; piece <= sizeof text; piece++) {
        struct stream s = {.text = text, .len = sizeof text - 1, .piece = piece};
        struct kv_redis_reader *r = reader_of(&s);
        struct kv_redis_reply reply;
        char head[2], rest[10];
        assert_int_equal(kv_redis_next(r, &reply), 0);
        assert_int_equal(reply.kind, KV_REDIS_BULK);
        assert_int_equal(reply.number, 12);
        assert_int_equal(kv_redis_bulk(r, head, 2, false), 0);
        assert_int_equal(kv_redis_bulk(r, rest, 10, true), 0);
        assert_memory_equal(head, "ab", 2);
        assert_memory_equal(rest, "\r\n$3\r\ncdef", 10);
        assert_int_equal(kv_redis_next(r, &reply), 0);
        assert_int_equal(reply.number, -7);
        assert_int_equal(kv_redis_next(r, &reply), 0);
        assert_int_equal(kv_redis_skip(r, &reply), 0);
        assert_int_equal(kv_redis_next(r, &reply), 0);
        assert_int_equal(reply.kind, KV_REDIS_NIL);
        assert_int_equal(kv_redis_next(r, &reply), -ESHUTDOWN);
    }
}

struct ranges {
    struct kv_redis_range all[4];
    unsigned count;
};

static int keep(void *user, const struct kv_redis_range *range)
{
    struct ranges *r = user;
    assert_true(r->count < 4);
    r->all[r->count++] = *range;
    return 0;
}

static int ranges_of(const char *text, struct ranges *out)
{
    struct stream s = {.text = text, .len = strlen(text), .piece = 5};
    *out = (struct ranges){.count = 0};
    return kv_redis_ranges(reader_of(&s), keep, out);
}

static void slots_come_with_replicas_and_names(void **state)
{
    (void)state;
    struct ranges r;
    assert_int_equal(
        ranges_of(
            "*2\r\n"
            "*4\r\n:0\r\n:5460\r\n*4\r\n$9\r\n127.0.0.1\r\n:7400\r\n$2\r\nid\r\n*2\r\n$1\r\na\r\n$1"
            "\r\nb\r\n*2\r\n$1\r\nr\r\n:1\r\n"
            "*3\r\n:5461\r\n:16383\r\n*2\r\n$-1\r\n:7401\r\n",
            &r),
        0);
    assert_int_equal(r.count, 2);
    assert_int_equal(r.all[0].last, 5460);
    assert_string_equal(r.all[0].host, "127.0.0.1");
    assert_int_equal(r.all[1].port, 7401);
    assert_string_equal(r.all[1].host, "");
    assert_int_equal(ranges_of("-ERR This instance has cluster support disabled\r\n", &r),
                     -EOPNOTSUPP);
    assert_int_equal(ranges_of("-NOAUTH Authentication required.\r\n", &r), -EACCES);
    assert_int_equal(ranges_of("*1\r\n*3\r\n:0\r\n:16384\r\n", &r), -EPROTO);
    assert_int_equal(ranges_of("*1\r\n*3\r\n:5\r\n:4\r\n", &r), -EPROTO);
    assert_int_equal(ranges_of("*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:0\r\n", &r), -EPROTO);
}

static void redirections_name_slot_and_node(void **state)
{
    (void)state;
    struct kv_redis_range r;
    assert_int_equal(kv_redis_redirect("MOVED 3999 ::1:6381", &r), 0);
    assert_int_equal(r.first, 3999);
    assert_string_equal(r.host, "::1");
    assert_int_equal(r.port, 6381);
    assert_int_equal(kv_redis_redirect("ASK 1 :6379", &r), 0);
    assert_string_equal(r.host, "");
    static const char *const wrong[] = {"MOVED",       "MOVED 1",         "MOVED 1 a",
                                        "MOVED 1 a:0", "MOVED 16384 a:1", "MOVED 1234567890 a:1",
                                        "MOVED x a:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(kv_redis_redirect(wrong[i], &r), -EPROTO);
}

/* ---- where the password goes ---- */

struct listener {
    int fd;
    unsigned port;
};

static struct listener listen_here(int flags)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof addr;
    struct listener l = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0)};
    assert_true(l.fd >= 0);
    assert_int_equal(bind(l.fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(l.fd, 4), 0);
    assert_int_equal(getsockname(l.fd, (struct sockaddr *)&addr, &len), 0);
    l.port = ntohs(addr.sin_port);
    return l;
}

struct redirector {
    struct listener at, to;
};

/* Takes one connection and every password, and says that all slots are elsewhere, at an address
 * that is this host's and does not look like it. */
static void *redirect(void *user)
{
    const struct redirector *r = user;
    char text[512], slots[128];
    ssize_t n;
    int fd = accept(r->at.fd, NULL, NULL);
    snprintf(slots, sizeof slots, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$7\r\n0.0.0.0\r\n:%u\r\n",
             r->to.port);
    while ((n = recv(fd, text, sizeof text - 1, 0)) > 0) {
        text[n] = '\0';
        const char *answer = strstr(text, "SLOTS") ? slots : "+OK\r\n";
        if (send(fd, answer, strlen(answer), MSG_NOSIGNAL) < 0)
            break;
    }
    close(fd);
    return NULL;
}

static int take_any(void *user, const uint8_t *bytes, uint32_t len)
{
    (void)user;
    (void)bytes;
    (void)len;
    return 0;
}

static void a_password_does_not_follow_to_other_hosts_in_the_clear(void **state)
{
    (void)state;
    struct redirector r = {.at = listen_here(0), .to = listen_here(SOCK_NONBLOCK)};
    struct kv_block_key key = {.len = 1};
    char why[RPC_WHY_CHARS], servers[32];
    struct kv_redis *redis;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, redirect, &r), 0);
    snprintf(servers, sizeof servers, "127.0.0.1:%u", r.at.port);
    const struct kv_redis_options options = {
        .servers = servers, .password = "secret", .channels = 1, .timeout_ns = HW_SEC};
    if (kv_redis_open(&options, &redis, why))
        fail_msg("%s", why);
    assert_int_equal(kv_redis_get(redis, 0, &key, take_any, NULL), -ENOENT);
    assert_int_equal(accept(r.to.fd, NULL, NULL), -1);
    assert_int_equal(errno, EAGAIN);
    kv_redis_close(redis);
    pthread_join(thread, NULL);
    close(r.at.fd);
    close(r.to.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_has_the_slot_that_redis_gives_it),
        cmocka_unit_test(a_value_is_read_however_it_arrives),
        cmocka_unit_test(slots_come_with_replicas_and_names),
        cmocka_unit_test(redirections_name_slot_and_node),
        cmocka_unit_test(a_password_does_not_follow_to_other_hosts_in_the_clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
