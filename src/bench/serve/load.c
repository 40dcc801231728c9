#include "bench/serve/load.h"

#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    ANSWER_BYTES_MAX = 16 << 20, /* more is no answer to such a request */
    TIMEOUT_SECONDS = 300
};

static void post(sem_t *begun)
{
    if (begun)
        sem_post(begun);
}

static int fail(char *why, int rc, const char *what)
{
    snprintf(why, BENCH_LOAD_WHY, "%s: %s", what, strerror(-rc));
    return rc;
}

/* ---- HTTP ---- */

int bench_load_parse(const char *url, struct bench_load_peer *out)
{
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return -EINVAL;
    const char *host = url + sizeof scheme - 1, *colon = strchr(host, ':');
    size_t host_len = colon ? (size_t)(colon - host) : strcspn(host, "/");
    size_t port_len = colon ? strspn(colon + 1, "0123456789") : 0;
    if (host_len == 0 || host_len >= sizeof(out->host) || port_len >= sizeof(out->port) ||
        (colon && port_len == 0))
        return -EINVAL;
    snprintf(out->host, sizeof(out->host), "%.*s", (int)host_len, host);
    snprintf(out->port, sizeof(out->port), "%.*s", colon ? (int)port_len : 2,
             colon ? colon + 1 : "80");
    return 0;
}

int bench_load_connect(const struct bench_load_peer *peer, char why[BENCH_LOAD_WHY])
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    struct timeval limit = {.tv_sec = TIMEOUT_SECONDS};
    int one = 1;
    if (getaddrinfo(peer->host, peer->port, &hints, &found))
        return fail(why, -EADDRNOTAVAIL, peer->host);
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) ? -errno : 0;
    freeaddrinfo(found);
    if (rc) {
        if (fd >= 0)
            close(fd);
        return fail(why, rc, peer->host);
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
}

static int send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return -errno;
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

struct answer {
    char *text;
    size_t len, room;
};

/* The number after the last key of that name; 0: none. */
static uint32_t last_number(const char *text, const char *key)
{
    const char *found = NULL;
    for (const char *at = strstr(text, key); at; at = strstr(at + 1, key))
        found = at;
    return found ? (uint32_t)strtoul(found + strlen(key), NULL, 10) : 0;
}

/* The first token has come: an event whose text is not empty. */
static bool has_text(const char *text)
{
    static const char key[] = "\"text\":";
    for (const char *at = strstr(text, key); at; at = strstr(at + 1, key)) {
        const char *value = at + sizeof key - 1;
        value += strspn(value, " ");
        if (value[0] == '"' && value[1] && value[1] != '"')
            return true;
    }
    return false;
}

/* Reads until the last event and the end of the chunked body. */
static int read_answer(int fd, struct answer *a, uint64_t begin, sem_t *begun,
                       struct bench_load_figures *out)
{
    bool first = false;
    while (a->len < ANSWER_BYTES_MAX) {
        if (a->room - a->len < 65536) {
            char *grown = realloc(a->text, 2 * a->room + 65537);
            if (!grown)
                return -ENOMEM;
            a->text = grown;
            a->room = 2 * a->room + 65536;
        }
        ssize_t n = recv(fd, a->text + a->len, a->room - a->len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ECONNRESET;
        a->len += (size_t)n;
        a->text[a->len] = '\0';
        if (!first && has_text(a->text)) {
            first = true;
            out->first_ns = hw_now_ns() - begin;
            post(begun);
        }
        const char *tail = a->text + (a->len > 64 ? a->len - 64 : 0);
        const char *done = strstr(tail, "[DONE]");
        if (done && strstr(done, "\r\n0\r\n\r\n"))
            return first ? 0 : -ENODATA;
        if (strncmp(a->text, "HTTP/1.1 200", a->len < 12 ? a->len : 12) != 0)
            return -EPROTO;
    }
    return -EMSGSIZE;
}

int bench_load_http(int fd, const char *body, sem_t *begun, struct bench_load_figures *out,
                    char why[BENCH_LOAD_WHY])
{
    struct answer a = {0};
    char *request = NULL;
    if (asprintf(
            &request,
            "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            "Content-Length: %zu\r\n\r\n%s",
            strlen(body), body) < 0) {
        post(begun);
        return fail(why, -ENOMEM, "request");
    }
    uint64_t begin = hw_now_ns();
    int rc = send_all(fd, request, strlen(request));
    free(request);
    *out = (struct bench_load_figures){0};
    if (rc == 0)
        rc = read_answer(fd, &a, begin, begun, out);
    if (out->first_ns == 0)
        post(begun);
    out->total_ns = hw_now_ns() - begin;
    if (rc == 0)
        out->tokens = last_number(a.text, "\"completion_tokens\":");
    if (rc == 0 && out->tokens == 0)
        rc = -ENODATA;
    if (rc == -EPROTO && a.text)
        snprintf(why, BENCH_LOAD_WHY, "refused: %.200s", a.text);
    else if (rc)
        fail(why, rc, "answer");
    free(a.text);
    return rc;
}

/* ---- a worker ---- */

struct engine_text {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    sem_t *begun;
    bool over;
    int status;
    uint64_t begin, first, end;
    uint32_t tokens;
    char why[BENCH_LOAD_WHY];
};

static void on_tokens(void *user, const struct llm_generated *tokens, uint32_t count)
{
    struct engine_text *t = user;
    (void)tokens;
    if (!t->first) {
        t->first = hw_now_ns();
        post(t->begun);
    }
    t->tokens += count;
}

static void on_end(void *user, int status, const struct llm_generate_end *end, const char *why)
{
    struct engine_text *t = user;
    (void)end;
    t->end = hw_now_ns();
    pthread_mutex_lock(&t->lock);
    t->status = status;
    if (status)
        snprintf(t->why, sizeof(t->why), "%s", why);
    t->over = true;
    pthread_cond_signal(&t->ended);
    pthread_mutex_unlock(&t->lock);
}

int bench_load_engine(struct llm_connection *conn, const struct llm_generate *request, sem_t *begun,
                      struct bench_load_figures *out, char why[BENCH_LOAD_WHY])
{
    static const struct llm_connection_ops ops = {.on_tokens = on_tokens, .on_end = on_end};
    struct engine_text t = {.begun = begun, .begin = hw_now_ns()};
    char problem[LLM_WHY_CHARS] = "";
    pthread_mutex_init(&t.lock, NULL);
    pthread_cond_init(&t.ended, NULL);
    int rc = llm_connection_start(conn, request, &ops, &t, NULL, problem);
    pthread_mutex_lock(&t.lock);
    while (rc == 0 && !t.over)
        pthread_cond_wait(&t.ended, &t.lock);
    pthread_mutex_unlock(&t.lock);
    if (!t.first)
        post(begun);
    if (rc == 0)
        rc = t.status ? t.status : t.tokens ? 0 : -ENODATA;
    if (rc)
        snprintf(why, BENCH_LOAD_WHY, "%.200s", problem[0] ? problem : t.why);
    *out = (struct bench_load_figures){
        .first_ns = t.first - t.begin, .total_ns = t.end - t.begin, .tokens = t.tokens};
    pthread_cond_destroy(&t.ended);
    pthread_mutex_destroy(&t.lock);
    return rc;
}
