/* A daemon's registration against a scripted etcd: each step of the script is one connection, the
 * path that it must ask for and the answer that it gets.  And the texts that name members. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/attr.h"
#include "base/log.h"
#include "base/text/base64.h"
#include "kv/cluster/registry.h"

#include "../llm/failing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STEPS_MAX = 16,
    ANSWER_MAX = 512 << 10,
    PATIENCE_MS = 240000, /* for a loaded machine */
    LEASE = 77
};

#define PREFIX "/hawser/test/members/"
#define ERA "/hawser/test/era"

/* ---- the server ---- */

struct server_step {
    const char *path;
    char *answer;                    /* heap; what goes over the wire */
    bool hold;                       /* keep the connection until the script has ended */
    char asked[KV_ETCD_REQUEST_MAX]; /* the body that came */
    char token[64];                  /* and its Authorization */
};

struct server {
    int fd;
    struct kv_etcd_access access;
    struct server_step steps[STEPS_MAX];
    uint32_t count;
    pthread_t thread;
};

static void server_init(struct server *s)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(addr);
    *s = (struct server){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(s->fd >= 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&addr, &len), 0);
    assert_int_equal(listen(s->fd, STEPS_MAX), 0);
    s->access.url_count = 1;
    snprintf(s->access.urls[0], sizeof(s->access.urls[0]), "http://127.0.0.1:%u",
             ntohs(addr.sin_port));
}

static struct server_step *add(struct server *s, const char *path, const char *answer)
{
    struct server_step *step = &s->steps[s->count++];
    assert_true(s->count <= STEPS_MAX);
    step->path = path;
    step->answer = strdup(answer);
    assert_non_null(step->answer);
    return step;
}

/* A step that is answered with this JSON, whole. */
static struct server_step *say(struct server *s, const char *path, const char *json)
{
    static char answer[ANSWER_MAX];
    snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(json), json);
    return add(s, path, answer);
}

/* A watch that tells these lines and then ends, or stays silent if it is held. */
static struct server_step *stream(struct server *s, const char *lines)
{
    static char answer[ANSWER_MAX];
    snprintf(answer, sizeof(answer),
             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n", strlen(lines),
             lines);
    return add(s, KV_ETCD_WATCH, answer);
}

/* Reads a request; what of it is the body. */
static bool read_request(int fd, char *text, size_t size, const char **body)
{
    size_t len = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n = poll(&p, 1, PATIENCE_MS) == 1 ? recv(fd, text + len, size - 1 - len, 0) : 0;
        if (n <= 0)
            return false;
        len += (size_t)n;
        text[len] = '\0';
        const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        if (end && length && strlen(end + 4) >= strtoul(length + 16, NULL, 10)) {
            *body = end + 4;
            return true;
        }
    }
}

static bool serve_step(struct server *s, struct server_step *step, int *fd_out)
{
    char text[2 * KV_ETCD_REQUEST_MAX], line[128];
    const char *body;
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    int fd = poll(&p, 1, PATIENCE_MS) == 1 ? accept(s->fd, NULL, NULL) : -1;
    if (fd < 0)
        return false;
    *fd_out = fd;
    snprintf(line, sizeof(line), "POST %s HTTP/1.1\r\n", step->path);
    if (!read_request(fd, text, sizeof(text), &body) || strncmp(text, line, strlen(line)) != 0)
        return false;
    snprintf(step->asked, sizeof(step->asked), "%s", body);
    const char *token = strstr(text, "Authorization: ");
    if (token)
        sscanf(token, "Authorization: %63s", step->token);
    size_t len = strlen(step->answer);
    return send(fd, step->answer, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* The result: NULL, or the step that went otherwise. */
static void *server_main(void *user)
{
    struct server *s = user;
    struct server_step *wrong = NULL;
    int held[STEPS_MAX], held_count = 0;
    for (uint32_t i = 0; i < s->count && !wrong; i++) {
        int fd = -1;
        if (!serve_step(s, &s->steps[i], &fd))
            wrong = &s->steps[i];
        if (s->steps[i].hold)
            held[held_count++] = fd;
        else if (fd >= 0)
            close(fd);
    }
    while (held_count > 0)
        close(held[--held_count]);
    return wrong;
}

static void server_start(struct server *s)
{
    assert_int_equal(pthread_create(&s->thread, NULL, server_main, s), 0);
}

/* All steps were asked for. */
static void server_fini(struct server *s)
{
    void *wrong;
    assert_int_equal(pthread_join(s->thread, &wrong), 0);
    if (wrong)
        fail_msg("nobody asked for %s", ((struct server_step *)wrong)->path);
    for (uint32_t i = 0; i < s->count; i++)
        free(s->steps[i].answer);
    close(s->fd);
}

/* ---- etcd's words ---- */

static const char granted[] = "{\"ID\":\"77\",\"TTL\":\"10\"}";
static const char granted_shortly[] = "{\"ID\":\"77\",\"TTL\":\"1\"}";
static const char created[] = "{\"result\":{\"created\":true}}\n";
static const char compacted[] = "{\"result\":{\"canceled\":true,\"compact_revision\":\"7\"}}\n";

/* Members, as put_members takes them. */
static const char only_a[] = "a=10.0.0.1:28200";
static const char a_and_b[] = "a=10.0.0.1:28200 b=10.0.0.2:1";

/* Text that grows. */
struct words {
    char text[ANSWER_MAX / 2];
    size_t len;
};

static void PRINTF_LIKE(2, 3) put(struct words *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    w->len += (size_t)vsnprintf(w->text + w->len, sizeof(w->text) - w->len, fmt, args);
    va_end(args);
    assert_true(w->len < sizeof(w->text));
}

static void put_pair(struct words *w, const char *key, const char *value, unsigned lease,
                     unsigned revision)
{
    char key64[512], value64[512];
    hw_base64_encode(key, strlen(key), key64);
    hw_base64_encode(value, strlen(value), value64);
    put(w, "{\"key\":\"%s\",\"value\":\"%s\",\"lease\":\"%u\",\"mod_revision\":\"%u\"}", key64,
        value64, lease, revision);
}

/* "name=address name=address" as pairs; our own is under our lease. */
static void put_members(struct words *w, const char *members)
{
    static char copy[ANSWER_MAX / 8];
    char *rest = copy;
    snprintf(copy, sizeof(copy), "%s", members);
    const char *comma = "";
    for (char *name; (name = strsep(&rest, " ")); comma = ",") {
        char key[128], *equals = strchr(name, '=');
        *equals = '\0';
        snprintf(key, sizeof(key), PREFIX "%s", name);
        put(w, "%s", comma);
        put_pair(w, key, equals + 1, strcmp(name, "a") == 0 ? LEASE : 1, 5);
    }
}

/* Also of a transaction that only read. */
static struct server_step *say_entered_in_era(struct server *s, const char *members,
                                              unsigned revision, const char *era)
{
    struct words w = {.len = 0};
    put(&w,
        "{\"header\":{\"revision\":\"%u\"},\"succeeded\":true,\"responses\":["
        "{},{\"response_range\":{\"kvs\":[",
        revision);
    put_members(&w, members);
    put(&w, "]}},{\"response_range\":{\"kvs\":[");
    if (era)
        put_pair(&w, ERA, era, 0, 4);
    put(&w, "]}}]}");
    return say(s, KV_ETCD_TXN, w.text);
}

static void say_entered(struct server *s, const char *members, unsigned revision)
{
    (void)say_entered_in_era(s, members, revision, NULL);
}

static void say_held(struct server *s, const char *address, unsigned lease, unsigned revision)
{
    struct words w = {.len = 0};
    put(&w, "{\"header\":{\"revision\":\"9\"},\"responses\":[{\"response_range\":{\"kvs\":[");
    put_pair(&w, PREFIX "a", address, lease, revision);
    put(&w, "]}}]}");
    (void)say(s, KV_ETCD_TXN, w.text);
}

static void put_event(struct words *w, const char *name, const char *address, unsigned lease,
                      unsigned revision)
{
    char key[128];
    snprintf(key, sizeof(key), "%s%s", *name == '/' ? "" : PREFIX, name);
    put(w, "{\"result\":{\"events\":[{%s\"kv\":", address ? "" : "\"type\":\"DELETE\",");
    put_pair(w, key, address ? address : "", lease, revision);
    put(w, "}]}}\n");
}

/* A line of more events than one, up to the end of the first: b comes. */
static void put_first_of_many(struct words *w)
{
    put(w, "{\"result\":{\"events\":[{\"kv\":");
    put_pair(w, PREFIX "b", "10.0.0.2:1", 1, 8);
    put(w, "},");
}

/* A watch as of stream that tells one event. */
static struct server_step *stream_event(struct server *s, const char *name, const char *address,
                                        unsigned lease, unsigned revision)
{
    struct words w = {.len = 0};
    put_event(&w, name, address, lease, revision);
    return stream(s, w.text);
}

/* Entered, and then a watch that ends with nothing told. */
static struct server_step *say_entered_and_cut(struct server *s, const char *members,
                                               unsigned revision)
{
    say_entered(s, members, revision);
    return stream(s, created);
}

/* ---- who is tested ---- */

struct subject {
    struct server server;
    struct kv_registry registry;
    struct kv_members_stats stats;
    int wake_fd;
    int told_fd;      /* counts views */
    char views[1024]; /* "7:a,b 8:a " as they were told */
};

static void on_view(void *user, const struct kv_view *view)
{
    struct subject *t = user;
    struct words w = {.len = 0};
    put(&w, "%" PRIu64 ":", view->epoch);
    for (uint32_t i = 0; i < view->count; i++)
        put(&w, "%s%s", i ? "," : "", view->members[i].name);
    size_t len = strlen(t->views);
    snprintf(t->views + len, sizeof(t->views) - len, "%s ", w.text);
    uint64_t one = 1;
    assert_int_equal(write(t->told_fd, &one, sizeof(one)), sizeof(one));
}

/* Where the views are told in another thread. */
static void wait_for_a_view(struct subject *t)
{
    struct pollfd p = {.fd = t->told_fd, .events = POLLIN};
    uint64_t one;
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
    assert_int_equal(read(t->told_fd, &one, sizeof(one)), sizeof(one));
}

static struct kv_members_options options_of(struct subject *t)
{
    return (struct kv_members_options){.etcd = &t->server.access,
                                       .cluster = "test",
                                       .name = "a",
                                       .address = "10.0.0.1:28200",
                                       .ttl_ns = 10 * HW_SEC,
                                       .changed = on_view,
                                       .user = t};
}

static struct subject *subject_create(void)
{
    struct subject *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    server_init(&t->server);
    t->wake_fd = eventfd(0, EFD_CLOEXEC);
    t->told_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    assert_true(t->wake_fd >= 0 && t->told_fd >= 0);
    struct kv_members_options options = options_of(t);
    char why[RPC_WHY_CHARS];
    assert_int_equal(kv_registry_init(&t->registry, &options, &t->stats, t->wake_fd, why), 0);
    return t;
}

/* One who gets a lease and is entered: the first steps of most scripts. */
static struct subject *subject_entered(const char *members)
{
    struct subject *t = subject_create();
    (void)say(&t->server, KV_ETCD_GRANT, granted);
    say_entered(&t->server, members, 7);
    return t;
}

static int run(struct subject *t)
{
    return kv_registry_run(&t->registry, t->server.access.urls[0]);
}

/* Plays the script: a run for each result, 0 after the last, and all views that are told. */
static void play(struct subject *t, const int *results, const char *views)
{
    server_start(&t->server);
    for (; *results; results++)
        assert_int_equal(run(t), *results);
    assert_string_equal(t->views, views);
}

static void subject_destroy(struct subject *t)
{
    server_fini(&t->server);
    kv_registry_fini(&t->registry);
    close(t->wake_fd);
    close(t->told_fd);
    free(t);
}

/* ---- registering and following ---- */

static void it_registers_reads_and_follows(void **state)
{
    struct subject *t = subject_entered("b=10.0.0.2:1 a=10.0.0.1:28200");
    struct words w = {.len = 0};
    (void)state;
    put(&w, "%s", created);
    put_event(&w, "c", "10.0.0.3:1", 1, 8);
    put_event(&w, "b", NULL, 0, 9);
    put_event(&w, "b", "10.0.0.9:9", 1, 9); /* known already: not told again */
    (void)stream(&t->server, w.text);
    /* The watch is cut; the next goes on after what was heard, under the same lease. */
    say_entered(&t->server, "a=10.0.0.1:28200 c=10.0.0.3:1", 9);
    struct server_step *second = stream(&t->server, created);
    play(t, (const int[]){-EPROTO, -EPROTO, 0}, "7:a,b 8:a,b,c 9:a,c ");
    assert_int_equal(hw_counter_load(&t->stats.epoch), 9);
    assert_int_equal(hw_counter_load(&t->stats.registrations), 1);
    assert_non_null(strstr(second->asked, "\"start_revision\":\"10\""));
    subject_destroy(t);
}

static void events_of_one_revision_all_count(void **state)
{
    struct subject *t = subject_entered(only_a);
    struct words w = {.len = 0};
    (void)state;
    put_first_of_many(&w);
    put(&w, "{\"kv\":");
    put_pair(&w, PREFIX "c", "10.0.0.3:1", 1, 8);
    put(&w, "}]}}\n");
    (void)stream(&t->server, w.text);
    play(t, (const int[]){-EPROTO, 0}, "7:a 8:a,b,c ");
    subject_destroy(t);
}

static void what_was_half_heard_is_read_again(void **state)
{
    struct subject *t = subject_entered(only_a);
    struct words w = {.len = 0};
    (void)state;
    put_first_of_many(&w);
    put(&w, "{\"kv\":null}]}}\n");
    (void)stream(&t->server, w.text);
    (void)say_entered_and_cut(&t->server, "a=10.0.0.1:28200 b=10.0.0.2:1 c=10.0.0.3:1", 9);
    play(t, (const int[]){-EREMOTEIO, -EPROTO, 0}, "7:a 9:a,b,c ");
    subject_destroy(t);
}

static void a_lapsed_lease_is_replaced(void **state)
{
    struct subject *t = subject_create();
    (void)state;
    (void)say(&t->server, KV_ETCD_GRANT, granted_shortly);
    say_entered(&t->server, only_a, 7);
    stream(&t->server, created)->hold = true;
    (void)say(&t->server, KV_ETCD_RENEW, "{\"result\":{\"ID\":\"77\",\"TTL\":\"1\"}}");
    struct server_step *lapsed = say(&t->server, KV_ETCD_RENEW, "{\"result\":{\"ID\":\"77\"}}");
    (void)say(&t->server, KV_ETCD_GRANT, granted);
    (void)say_entered_and_cut(&t->server, only_a, 12);
    play(t, (const int[]){-EPROTO, 0}, "7:a 12:a ");
    assert_string_equal(lapsed->asked, "{\"ID\":\"77\"}");
    assert_int_equal(hw_counter_load(&t->stats.registrations), 2);
    subject_destroy(t);
}

static void a_key_that_is_removed_is_put_again(void **state)
{
    struct subject *t = subject_entered(a_and_b);
    (void)state;
    (void)stream_event(&t->server, "a", NULL, 0, 8);
    (void)say_entered_and_cut(&t->server, a_and_b, 9);
    play(t, (const int[]){-ESTALE, -EPROTO, 0}, "7:a,b 8:b 9:a,b ");
    subject_destroy(t);
}

static void what_was_forgotten_is_read_again_by_putting(void **state)
{
    struct subject *t = subject_entered(a_and_b);
    (void)state;
    (void)stream(&t->server, compacted);
    say_held(&t->server, "10.0.0.1:28200", LEASE, 7); /* by ourselves */
    struct server_step *watch = say_entered_and_cut(&t->server, only_a, 20);
    play(t, (const int[]){-ESTALE, -ESTALE, -EPROTO, 0}, "7:a,b 20:a ");
    assert_non_null(strstr(t->server.steps[4].asked, "\"mod_revision\":\"7\""));
    assert_non_null(strstr(watch->asked, "\"start_revision\":\"21\""));
    subject_destroy(t);
}

/* ---- names ---- */

static void a_name_that_another_has_is_refused(void **state)
{
    struct subject *t = subject_create();
    (void)state;
    (void)say(&t->server, KV_ETCD_GRANT, granted);
    say_held(&t->server, "10.0.0.2:1", 1, 5);
    server_start(&t->server);
    assert_int_equal(run(t), -EEXIST);
    assert_non_null(strstr(t->registry.why, "10.0.0.2:1"));
    assert_string_equal(t->views, "");
    subject_destroy(t);
}

static void what_an_earlier_life_left_is_taken_over_once(void **state)
{
    struct subject *t = subject_create();
    (void)state;
    (void)say(&t->server, KV_ETCD_GRANT, granted);
    say_held(&t->server, "10.0.0.1:28200", 1, 5);
    say_entered(&t->server, only_a, 7);
    /* And now another does the same to us. */
    (void)stream_event(&t->server, "a", "10.0.0.1:28200", 2, 8);
    say_held(&t->server, "10.0.0.1:28200", 2, 8);
    server_start(&t->server);
    assert_int_equal(run(t), -ESTALE);
    assert_int_equal(run(t), -ESTALE);
    assert_non_null(strstr(t->server.steps[2].asked, "\"mod_revision\":\"5\""));
    assert_int_equal(run(t), -EEXIST);
    subject_destroy(t);
}

static void a_full_cluster_is_left_again(void **state)
{
    struct subject *t = subject_create();
    struct words w = {.len = 0};
    (void)state;
    (void)say(&t->server, KV_ETCD_GRANT, granted);
    for (int i = 0; i < KV_MEMBERS_MAX; i++)
        put(&w, "%sm%d=10.0.0.2:1", i ? " " : "", i);
    say_entered(&t->server, w.text, 7);
    (void)say(&t->server, KV_ETCD_REVOKE, "{}"); /* its lease is given back */
    server_start(&t->server);
    assert_int_equal(run(t), -EUSERS);
    assert_non_null(strstr(t->registry.why, "1024 members"));
    assert_string_equal(t->views, "");
    subject_destroy(t);
}

static void what_cannot_be_a_member_is_left_out(void **state)
{
    struct subject *t = subject_entered("b=nonsense:x:y a=10.0.0.1:28200 d=10.0.0.4:1 e=");
    struct words w = {.len = 0};
    (void)state;
    put_event(&w, "d", "no address:", 1, 8);
    put_event(&w, "", "10.0.0.5:1", 1, 9);
    (void)stream(&t->server, w.text);
    play(t, (const int[]){-EPROTO, 0}, "7:a,d 8:a 9:a ");
    subject_destroy(t);
}

/* ---- an etcd that fails ---- */

static void answers_that_are_none_are_errors(void **state)
{
    static const struct {
        const char *answer;
        int rc;
        const char *why;
    } bad[] = {
        {"", -EPROTO, "does not answer"},
        {"SSH-2.0-OpenSSH_9.2\r\n", -EPROTO, "does not answer"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"ID\":", -EPROTO, "does not answer"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull", -EBADMSG, "does not answer"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", -EBADMSG, "does not answer"},
        {"HTTP/1.1 503 Busy\r\n\r\n{\"error\":\"no leader\"}", -EREMOTEIO, "503: no leader"},
        {"HTTP/1.1 404 Not Found\r\n\r\nwhat?", -EREMOTEIO, "404"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct subject *t = subject_create();
        (void)add(&t->server, KV_ETCD_GRANT, bad[i].answer);
        server_start(&t->server);
        assert_int_equal(run(t), bad[i].rc);
        assert_non_null(strstr(t->registry.why, bad[i].why));
        assert_string_equal(t->views, "");
        subject_destroy(t);
    }
}

static void a_watch_that_fails_keeps_what_is_known(void **state)
{
    static const struct {
        const char *answer;
        int rc;
    } bad[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}\n", -EREMOTEIO},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nnull\n", -EREMOTEIO},
        {"HTTP/1.1 500 No\r\n\r\n", -EREMOTEIO},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", -EREMOTEIO},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", -EPROTO},
        {"HTTP/1.1 200 OK\r\nContent-Length: 29\r\n\r\n{\"result\":{\"canceled\":true}}\n",
         -EREMOTEIO},
    };
    struct subject *t = subject_entered(only_a);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (i > 0) /* back in touch */
            say_entered(&t->server, only_a, 7);
        (void)add(&t->server, KV_ETCD_WATCH, bad[i].answer);
    }
    server_start(&t->server);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(run(t), bad[i].rc);
    assert_string_equal(t->views, "7:a ");
    subject_destroy(t);
}

static void a_lease_that_etcd_does_not_know_is_asked_for_anew(void **state)
{
    struct subject *t = subject_create();
    (void)state;
    (void)say(&t->server, KV_ETCD_GRANT, granted);
    (void)add(
        &t->server, KV_ETCD_TXN,
        "HTTP/1.1 404 Not Found\r\n\r\n{\"error\":\"etcdserver: requested lease not found\"}");
    (void)say(&t->server, KV_ETCD_RENEW, "{\"result\":{\"ID\":\"77\"}}");
    (void)say(&t->server, KV_ETCD_GRANT, granted);
    (void)say_entered_and_cut(&t->server, only_a, 7);
    server_start(&t->server);
    assert_int_equal(run(t), -EREMOTEIO);
    assert_non_null(strstr(t->registry.why, "lease not found"));
    assert_int_equal(run(t), -EPROTO);
    assert_string_equal(t->views, "7:a ");
    subject_destroy(t);
}

/* A new lease would find the name taken, by the old one. */
static void a_refused_entry_keeps_the_lease(void **state)
{
    struct subject *t = subject_entered(a_and_b);
    (void)state;
    (void)stream(&t->server, compacted);
    (void)add(&t->server, KV_ETCD_TXN, "HTTP/1.1 503 Busy\r\n\r\n{\"error\":\"no leader\"}");
    (void)say(&t->server, KV_ETCD_RENEW, "{\"result\":{\"ID\":\"77\",\"TTL\":\"10\"}}");
    say_held(&t->server, "10.0.0.1:28200", LEASE, 7);
    (void)say_entered_and_cut(&t->server, a_and_b, 9);
    play(t, (const int[]){-ESTALE, -EREMOTEIO, -ESTALE, -EPROTO, 0}, "7:a,b 9:a,b ");
    assert_non_null(strstr(t->server.steps[6].asked, "\"mod_revision\":\"7\""));
    subject_destroy(t);
}

/* Its data were replaced by older ones, twice, and then lost. */
static void an_etcd_that_went_back_begins_an_era(void **state)
{
    static const char put_era[] =
        "{\"header\":{\"revision\":\"4\"},\"succeeded\":true,\"responses\":[{}]}";
    static const char others_era[] = "{\"header\":{\"revision\":\"6\"},\"responses\":[{}]}";
    struct subject *t = subject_entered(a_and_b);
    (void)state;
    (void)stream(&t->server, compacted);
    say_entered(&t->server, only_a, 3);
    struct server_step *first = say(&t->server, KV_ETCD_TXN, put_era);
    (void)say_entered_in_era(&t->server, only_a, 5, "1");
    (void)stream(&t->server, "{\"result\":{\"header\":{\"revision\":\"4\"},\"created\":true}}\n");
    struct server_step *second = say(&t->server, KV_ETCD_TXN, others_era);
    (void)say_entered_in_era(&t->server, a_and_b, 7, "2");
    (void)stream_event(&t->server, ERA, "3", 0, 9);
    say_entered(&t->server, only_a, 1); /* in a run of its own: who comes back looks first */
    play(t, (const int[]){-ESTALE, -ESTALE, -ESTALE, -EPROTO, -ESTALE, 0},
         "7:a,b 1099511627781:a 2199023255559:a,b 3298534883337:a,b ");
    assert_non_null(strstr(first->asked, "\"value\":\"MQ==\""));
    assert_non_null(strstr(first->asked, "\"mod_revision\":\"0\""));
    assert_non_null(strstr(second->asked, "\"value\":\"Mg==\""));
    assert_non_null(strstr(second->asked, "\"mod_revision\":\"4\""));
    assert_int_equal(t->registry.raise_to, 4);
    subject_destroy(t);
}

/* Older data with revisions that have caught up: a member is missing that no event took away. */
static void what_went_unseen_is_read_again_by_putting(void **state)
{
    struct subject *t = subject_entered(a_and_b);
    (void)state;
    (void)stream(&t->server, created);
    say_entered(&t->server, only_a, 8);
    (void)say_entered_and_cut(&t->server, only_a, 9);
    play(t, (const int[]){-EPROTO, -ESTALE, -EPROTO, 0}, "7:a,b 9:a ");
    subject_destroy(t);
}

static void who_has_a_password_logs_in(void **state)
{
    struct subject *t = subject_create();
    (void)state;
    t->server.access.user = "kv";
    t->server.access.password = "a \"word\"";
    struct server_step *login = say(&t->server, KV_ETCD_LOGIN, "{\"token\":\"first.9\"}");
    struct server_step *lapsed = add(&t->server, KV_ETCD_GRANT,
                                     "HTTP/1.1 401 Unauthorized\r\n\r\n"
                                     "{\"error\":\"etcdserver: invalid auth token\"}");
    (void)say(&t->server, KV_ETCD_LOGIN, "{\"token\":\"second.10\"}");
    struct server_step *grant = say(&t->server, KV_ETCD_GRANT, granted);
    (void)say(&t->server, KV_ETCD_TXN, "{}");
    (void)say(&t->server, KV_ETCD_LOGIN, "{\"token\":\"two\\nlines\"}");
    server_start(&t->server);
    assert_int_equal(run(t), -EREMOTEIO);
    assert_non_null(strstr(t->registry.why, "401: etcdserver: invalid auth token"));
    assert_int_equal(run(t), -EBADMSG);
    t->registry.token[0] = '\0';
    assert_int_equal(run(t), -EBADMSG);
    assert_string_equal(login->asked, "{\"name\":\"kv\",\"password\":\"a \\\"word\\\"\"}");
    assert_string_equal(login->token, "");
    assert_string_equal(lapsed->token, "first.9");
    assert_string_equal(grant->token, "second.10");
    subject_destroy(t);
}

/* Each allocation of an exchange in turn: it fails, nothing is lost, the next run goes on. */
static void memory_that_runs_out_is_an_error(void **state)
{
    struct subject *t = subject_create();
    struct kv_members_options options = options_of(t);
    struct kv_members *members;
    char why[RPC_WHY_CHARS];
    (void)state;
    (void)say(&t->server, KV_ETCD_GRANT, granted);
    (void)say(&t->server, KV_ETCD_GRANT, "{}");
    server_start(&t->server);
    for (long granted_so_many = 0; granted_so_many < 3; granted_so_many++) {
        counting = true;
        allocations_left = granted_so_many;
        int rc = run(t);
        counting = false;
        assert_int_equal(rc, granted_so_many < 2 ? -ENOMEM : -EBADMSG);
    }
    counting = true;
    allocations_left = 0;
    int rc = kv_members_start(&options, &members, why);
    counting = false;
    assert_int_equal(rc, -ENOMEM);
    subject_destroy(t);
}

/* More in one line than may be kept: the keys are read again instead. */
static void a_line_without_end_is_given_up(void **state)
{
    struct subject *t = subject_entered(only_a);
    size_t size = KV_POST_BODY_MAX + 4096;
    char *answer = malloc(size);
    (void)state;
    assert_non_null(answer);
    int head = snprintf(answer, size, "HTTP/1.1 200 OK\r\n\r\n");
    memset(answer + head, ' ', size - (size_t)head);
    answer[size - 1] = '\0';
    (void)add(&t->server, KV_ETCD_WATCH, answer);
    free(answer);
    (void)say_entered_and_cut(&t->server, only_a, 9);
    t->server.steps[2].hold = true;
    play(t, (const int[]){-ESTALE, -EPROTO, 0}, "7:a 9:a ");
    subject_destroy(t);
}

static void a_ring_ends_every_wait(void **state)
{
    struct subject *t = subject_create();
    uint64_t one = 1;
    (void)state;
    assert_int_equal(write(t->wake_fd, &one, sizeof(one)), sizeof(one));
    assert_int_equal(run(t), -ECANCELED); /* nobody answers, and nobody is waited for */
    assert_int_equal(kv_post_pause(t->wake_fd, HW_NEVER), -ECANCELED);
    server_start(&t->server);
    subject_destroy(t);
}

/* ---- the thread ---- */

static void it_tries_on_until_it_is_stopped(void **state)
{
    struct subject *t = subject_create();
    struct kv_members_options options = options_of(t);
    struct kv_members *members;
    char why[RPC_WHY_CHARS];
    (void)state;
    (void)add(&t->server, KV_ETCD_GRANT, "HTTP/1.1 503 Busy\r\n\r\n");
    (void)say(&t->server, KV_ETCD_GRANT, granted);
    say_entered(&t->server, only_a, 7);
    stream_event(&t->server, "b", "10.0.0.2:1", 1, 8)->hold = true;
    (void)say(&t->server, KV_ETCD_REVOKE, "{}");
    server_start(&t->server);
    assert_int_equal(kv_members_start(&options, &members, why), 0);
    assert_int_equal(kv_members_wait(members, PATIENCE_MS * HW_MS, why), 0);
    assert_int_equal(kv_members_wait(members, 0, why), 0);
    wait_for_a_view(t);
    wait_for_a_view(t);
    kv_members_destroy(members);
    assert_string_equal(t->views, "7:a 8:a,b ");
    subject_destroy(t);
}

/* It takes the connection and says nothing. */
static void who_is_silent_is_reported_and_left(void **state)
{
    struct subject *t = subject_create();
    struct kv_members_options options = options_of(t);
    struct kv_members *members;
    char why[RPC_WHY_CHARS] = "";
    (void)state;
    assert_int_equal(kv_members_start(&options, &members, why), 0);
    assert_int_equal(kv_members_wait(members, HW_MS, why), -ETIMEDOUT);
    assert_true(why[0] != '\0');
    kv_members_stop(members);
    assert_int_equal(kv_members_wait(members, PATIENCE_MS * HW_MS, why), -ECANCELED);
    kv_members_destroy(members);
    kv_members_destroy(NULL);
    server_start(&t->server);
    subject_destroy(t);
}

/* ---- texts of the user ---- */

static void endpoints_are_urls(void **state)
{
    static const char *const good[][2] = {{"http://127.0.0.1:23790", "http://127.0.0.1:23790"},
                                          {"HTTP://etcd.example/", "http://etcd.example:2379"},
                                          {"https://etcd.example", "https://etcd.example:2379"},
                                          {"http://[::1]:5", "http://[::1]:5"},
                                          {"https://[::1]", "https://[::1]:2379"}};
    static const char *const bad[] = {"",
                                      "http://",
                                      "https://",
                                      "127.0.0.1:2379",
                                      "http://a/b",
                                      "http://a:x",
                                      "http://unix:/run/a",
                                      "http://*:1",
                                      "https://name:word@a",
                                      "ftp://a"};
    struct kv_etcd_access etcd = {.url_count = 0};
    char why[RPC_WHY_CHARS];
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(kv_members_endpoint(&etcd, good[i][0], why), 0);
        assert_int_equal(etcd.url_count, i + 1);
        assert_string_equal(etcd.urls[i], good[i][1]);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (kv_members_endpoint(&etcd, bad[i], why) != -EINVAL)
            fail_msg("taken: %s", bad[i]);
    etcd.url_count = KV_ENDPOINTS_MAX;
    assert_int_equal(kv_members_endpoint(&etcd, good[0][0], why), -E2BIG);
}

static int list_of_two(const char *first, const char *second, struct kv_view *view,
                       char why[RPC_WHY_CHARS])
{
    char texts[2][64];
    char *items[2] = {texts[0], texts[1]};
    snprintf(texts[0], sizeof(texts[0]), "%s", first);
    snprintf(texts[1], sizeof(texts[1]), "%s", second);
    return kv_members_list(items, 2, view, why);
}

static void lists_name_members(void **state)
{
    static const char *const bad[] = {"a=10.0.0.2:1", "b", "=10.0.0.1:1", "b=", "b/c=10.0.0.1:1"};
    struct kv_view view;
    char why[RPC_WHY_CHARS];
    (void)state;
    assert_int_equal(list_of_two("b=10.0.0.2:1", "a=unix:/run/a=b", &view, why), 0);
    assert_true(view.epoch == 1 && view.count == 2);
    assert_string_equal(view.members[0].address, "unix:/run/a=b");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        why[0] = '\0';
        assert_true(list_of_two("a=10.0.0.1:1", bad[i], &view, why) < 0);
        assert_true(why[0] != '\0');
    }
}

static void wrong_options_are_refused(void **state)
{
    static const struct kv_etcd_access no_urls;
    struct subject *t = subject_create();
    struct kv_members *members;
    (void)state;
    for (int i = 0; i < 7; i++) {
        struct kv_members_options o = options_of(t);
        char why[RPC_WHY_CHARS] = "";
        if (i == 0)
            o.name = "a/b";
        else if (i == 1)
            o.cluster = "";
        else if (i == 2)
            o.address = "*:28200";
        else if (i == 3)
            o.address = "10.0.0.1:0";
        else if (i == 4)
            o.ttl_ns = HW_SEC;
        else if (i == 5)
            o.etcd = &no_urls;
        else
            o.address = "unix:relative";
        assert_int_equal(kv_members_start(&o, &members, why), -EINVAL);
        assert_true(why[0] != '\0');
    }
    server_start(&t->server);
    subject_destroy(t);
}

static void swallow(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_registers_reads_and_follows),
        cmocka_unit_test(events_of_one_revision_all_count),
        cmocka_unit_test(what_was_half_heard_is_read_again),
        cmocka_unit_test(a_lapsed_lease_is_replaced),
        cmocka_unit_test(a_key_that_is_removed_is_put_again),
        cmocka_unit_test(what_was_forgotten_is_read_again_by_putting),
        cmocka_unit_test(a_name_that_another_has_is_refused),
        cmocka_unit_test(what_an_earlier_life_left_is_taken_over_once),
        cmocka_unit_test(a_full_cluster_is_left_again),
        cmocka_unit_test(what_cannot_be_a_member_is_left_out),
        cmocka_unit_test(answers_that_are_none_are_errors),
        cmocka_unit_test(a_watch_that_fails_keeps_what_is_known),
        cmocka_unit_test(a_lease_that_etcd_does_not_know_is_asked_for_anew),
        cmocka_unit_test(a_refused_entry_keeps_the_lease),
        cmocka_unit_test(an_etcd_that_went_back_begins_an_era),
        cmocka_unit_test(what_went_unseen_is_read_again_by_putting),
        cmocka_unit_test(who_has_a_password_logs_in),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
        cmocka_unit_test(a_line_without_end_is_given_up),
        cmocka_unit_test(a_ring_ends_every_wait),
        cmocka_unit_test(it_tries_on_until_it_is_stopped),
        cmocka_unit_test(who_is_silent_is_reported_and_left),
        cmocka_unit_test(endpoints_are_urls),
        cmocka_unit_test(lists_name_members),
        cmocka_unit_test(wrong_options_are_refused),
    };
    hw_log_set_sink(swallow, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
