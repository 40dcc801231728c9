#include "kv/cluster/http_post.h"

#include "base/clock.h"
#include "kv/cluster/curl.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    BUFFER_FIRST = 4 << 10, /* enough for every answer of a small cluster */
    PATH_CHARS = 64,
    HEADER_CHARS = 1024,  /* with a token: a signed one of etcd has some 300 */
    CONNECTIONS_KEPT = 2, /* a watch, and exchanges one after the other */
    POLL_MOST_MS = 60 * 1000
};

struct kv_poster {
    const struct kv_curl *curl;
    CURLM *multi;
    struct kv_post_tls tls;
};

struct kv_post {
    struct kv_poster *poster;
    CURL *easy;
    struct curl_slist *headers;
    char url[KV_POST_URL_CHARS], path[PATH_CHARS];
    char words[CURL_ERROR_SIZE]; /* libcurl's about a failure */
    bool fresh;                  /* some of the body came since the last read */
    bool ended;
    CURLcode outcome; /* once it has ended */
    int error;        /* our own reason to end it */
    char *body;       /* [taken, len) is not taken yet */
    size_t taken, len, room;
    size_t scanned; /* no line ends before this */
};

int kv_poster_create(const struct kv_post_tls *tls, struct kv_poster **out, char why[RPC_WHY_CHARS])
{
    const struct kv_curl *curl = kv_curl_load(why);
    if (!curl)
        return -ENOENT;
    struct kv_poster *h = calloc(1, sizeof(*h));
    CURLM *multi = h ? curl->multi_init() : NULL;
    if (!multi) {
        free(h);
        snprintf(why, RPC_WHY_CHARS, "out of memory");
        return -ENOMEM;
    }
    (void)curl->multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_KEPT);
    *h = (struct kv_poster){.curl = curl, .multi = multi};
    if (tls)
        h->tls = *tls;
    *out = h;
    return 0;
}

void kv_poster_destroy(struct kv_poster *h)
{
    if (!h)
        return;
    (void)h->curl->multi_cleanup(h->multi);
    free(h);
}

/* ---- the body ---- */

/* Drops what was taken; if that is not enough, doubles the buffer. */
static int make_room(struct kv_post *p, size_t more)
{
    if (p->taken > 0) {
        memmove(p->body, p->body + p->taken, p->len - p->taken);
        p->len -= p->taken;
        p->scanned -= p->taken;
        p->taken = 0;
    }
    if (p->len + more > KV_POST_BODY_MAX)
        return -E2BIG;
    if (p->len + more <= p->room)
        return 0;
    size_t room = p->room ? p->room : BUFFER_FIRST;
    while (room < p->len + more)
        room *= 2;
    char *body = realloc(p->body, room);
    if (!body)
        return -ENOMEM;
    p->body = body;
    p->room = room;
    return 0;
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    struct kv_post *p = user;
    size_t len = size * count;
    p->error = make_room(p, len);
    if (p->error)
        return 0; /* libcurl ends the transfer */
    memcpy(p->body + p->len, data, len);
    p->len += len;
    p->fresh = true;
    return len;
}

/* ---- opening ---- */

/* Keepalive: notices within 10 s that a silent server is gone, also during a watch. */
static int on_socket(void *user, curl_socket_t fd, curlsocktype purpose)
{
    const int on = 1, idle_s = 4, every_s = 2, probes = 3;
    (void)user;
    (void)purpose;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    return CURL_SOCKOPT_OK;
}

static bool add_header(struct kv_post *p, const char *header)
{
    struct curl_slist *longer = p->poster->curl->slist_append(p->headers, header);
    if (longer)
        p->headers = longer;
    return longer != NULL;
}

static CURLcode set_tls(struct kv_post *p)
{
    const struct kv_curl *curl = p->poster->curl;
    const struct kv_post_tls *tls = &p->poster->tls;
    CURLcode rc = curl->easy_setopt(p->easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (rc == CURLE_OK && tls->ca) /* that one, and not the system's beside it */
        rc = curl->easy_setopt(p->easy, CURLOPT_CAINFO, tls->ca);
    if (rc == CURLE_OK && tls->ca)
        rc = curl->easy_setopt(p->easy, CURLOPT_CAPATH, NULL);
    if (rc == CURLE_OK && tls->cert)
        rc = curl->easy_setopt(p->easy, CURLOPT_SSLCERT, tls->cert);
    if (rc == CURLE_OK && tls->key)
        rc = curl->easy_setopt(p->easy, CURLOPT_SSLKEY, tls->key);
    return rc;
}

/* HTTP/1.1: over HTTP/2 etcd takes posts for gRPC.  No proxy: members of a cluster see etcd. */
static CURLcode set_options(struct kv_post *p, const char *url, const char *json)
{
    const struct kv_curl *curl = p->poster->curl;
    const struct {
        CURLoption option;
        long value;
    } numbers[] = {
        {CURLOPT_NOSIGNAL, 1},
        {CURLOPT_POST, 1},
        {CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1},
    };
    const struct {
        CURLoption option;
        const void *value;
    } pointers[] = {
        {CURLOPT_URL, url},
        {CURLOPT_PROTOCOLS_STR, "http,https"},
        {CURLOPT_NOPROXY, "*"},
        {CURLOPT_HTTPHEADER, p->headers},
        {CURLOPT_COPYPOSTFIELDS, json},
        {CURLOPT_WRITEDATA, p},
        {CURLOPT_PRIVATE, p},
        {CURLOPT_ERRORBUFFER, p->words},
    };
    CURLcode rc = set_tls(p);
    for (size_t i = 0; rc == CURLE_OK && i < ARRAY_LEN(numbers); i++)
        rc = curl->easy_setopt(p->easy, numbers[i].option, numbers[i].value);
    for (size_t i = 0; rc == CURLE_OK && i < ARRAY_LEN(pointers); i++)
        rc = curl->easy_setopt(p->easy, pointers[i].option, pointers[i].value);
    if (rc == CURLE_OK)
        rc = curl->easy_setopt(p->easy, CURLOPT_WRITEFUNCTION, on_body);
    if (rc == CURLE_OK)
        rc = curl->easy_setopt(p->easy, CURLOPT_SOCKOPTFUNCTION, on_socket);
    return rc;
}

static bool begin(struct kv_post *p, const struct kv_post_request *r)
{
    const struct kv_curl *curl = p->poster->curl;
    char url[KV_POST_URL_CHARS + PATH_CHARS], token[HEADER_CHARS];
    snprintf(p->url, sizeof(p->url), "%s", r->url);
    snprintf(p->path, sizeof(p->path), "%s", r->path);
    snprintf(url, sizeof(url), "%s%s", p->url, p->path);
    bool ok = add_header(p, "Content-Type: application/json") &&
              add_header(p, "Expect:"); /* no wait before the body */
    if (ok && r->token && r->token[0]) {
        snprintf(token, sizeof(token), "Authorization: %s", r->token);
        ok = add_header(p, token);
    }
    if (!ok || set_options(p, url, r->json) != CURLE_OK)
        return false;
    return curl->multi_add_handle(p->poster->multi, p->easy) == CURLM_OK;
}

int kv_post_open(struct kv_poster *h, const struct kv_post_request *request, struct kv_post **out,
                 char why[RPC_WHY_CHARS])
{
    struct kv_post *p = calloc(1, sizeof(*p));
    if (p) {
        p->poster = h;
        p->easy = h->curl->easy_init();
    }
    if (!p || !p->easy || !begin(p, request)) {
        kv_post_destroy(p);
        snprintf(why, RPC_WHY_CHARS, "out of memory");
        return -ENOMEM;
    }
    *out = p;
    return 0;
}

void kv_post_destroy(struct kv_post *p)
{
    if (!p)
        return;
    const struct kv_curl *curl = p->poster->curl;
    if (p->easy) {
        (void)curl->multi_remove_handle(p->poster->multi, p->easy);
        curl->easy_cleanup(p->easy);
    }
    curl->slist_free_all(p->headers);
    free(p->body);
    free(p);
}

/* ---- reading ---- */

static int time_left_ms(uint64_t deadline_ns)
{
    uint64_t now = hw_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    uint64_t ms = left / HW_MS + (left % HW_MS != 0);
    return ms < POLL_MOST_MS ? (int)ms : POLL_MOST_MS;
}

int kv_post_pause(int wake_fd, uint64_t deadline_ns)
{
    struct pollfd fd = {.fd = wake_fd, .events = POLLIN};
    for (;;) {
        int n = poll(&fd, 1, time_left_ms(deadline_ns));
        if (n > 0)
            return -ECANCELED;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (hw_now_ns() >= deadline_ns)
            return -ETIMEDOUT;
    }
}

/* Moves all posts on. */
static void perform(struct kv_poster *h)
{
    int running, left;
    (void)h->curl->multi_perform(h->multi, &running);
    for (CURLMsg *m; (m = h->curl->multi_info_read(h->multi, &left));) {
        char *post = NULL;
        CURLcode outcome = m->data.result;
        (void)h->curl->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &post);
        struct kv_post *p = (struct kv_post *)(void *)post;
        p->ended = true;
        p->outcome = outcome;
    }
}

static int errno_of(const struct kv_post *p)
{
    long os = 0;
    switch (p->outcome) {
    case CURLE_COULDNT_RESOLVE_HOST:
        return -EADDRNOTAVAIL;
    case CURLE_COULDNT_CONNECT:
        (void)p->poster->curl->easy_getinfo(p->easy, CURLINFO_OS_ERRNO, &os);
        return os ? -(int)os : -ECONNREFUSED;
    case CURLE_OUT_OF_MEMORY:
        return -ENOMEM;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CLIENTCERT:
        return -EACCES;
    default: /* with TLS 1.3 a server refuses a client's certificate after the handshake */
        return strstr(p->words, " alert ") ? -EACCES : -EPROTO;
    }
}

/* It has ended in another way than well. */
static int say_why(const struct kv_post *p, char why[RPC_WHY_CHARS])
{
    int rc = p->error ? p->error : errno_of(p);
    const char *words = p->words[0] ? p->words : p->poster->curl->easy_strerror(p->outcome);
    if (p->outcome == CURLE_COULDNT_CONNECT)
        snprintf(why, RPC_WHY_CHARS, "cannot reach %.100s: %s", p->url, strerror(-rc));
    else if (rc == -EADDRNOTAVAIL)
        snprintf(why, RPC_WHY_CHARS, "cannot reach %.100s: no host has that name", p->url);
    else if (rc == -EACCES)
        snprintf(why, RPC_WHY_CHARS,
                 "%.80s: TLS: %.120s; see --etcd-ca, --etcd-cert and --etcd-key", p->url, words);
    else
        snprintf(why, RPC_WHY_CHARS, "etcd at %.80s does not answer %s: %.80s", p->url, p->path,
                 p->error ? strerror(-rc) : words);
    return rc;
}

int kv_post_read(struct kv_post *p, int wake_fd, uint64_t deadline_ns, char why[RPC_WHY_CHARS])
{
    struct kv_poster *h = p->poster;
    struct curl_waitfd wake = {.fd = wake_fd, .events = CURL_WAIT_POLLIN};
    while (!p->fresh) {
        perform(h);
        if (p->fresh)
            break;
        if (p->ended)
            return p->outcome == CURLE_OK ? -ESHUTDOWN : say_why(p, why);
        if (hw_now_ns() >= deadline_ns) {
            snprintf(why, RPC_WHY_CHARS, "etcd at %.80s does not answer %s: %s", p->url, p->path,
                     strerror(ETIMEDOUT));
            return -ETIMEDOUT;
        }
        (void)h->curl->multi_poll(h->multi, &wake, wake_fd >= 0, time_left_ms(deadline_ns), NULL);
        if (wake.revents)
            return -ECANCELED;
    }
    p->fresh = false;
    return 0;
}

int kv_post_read_all(struct kv_post *p, int wake_fd, uint64_t deadline_ns, char why[RPC_WHY_CHARS])
{
    int rc;
    do
        rc = kv_post_read(p, wake_fd, deadline_ns, why);
    while (rc == 0);
    return rc == -ESHUTDOWN ? 0 : rc;
}

unsigned kv_post_status(const struct kv_post *p)
{
    long status = 0;
    (void)p->poster->curl->easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
    return (unsigned)status;
}

const char *kv_post_body(const struct kv_post *p, size_t *len_out)
{
    *len_out = p->len - p->taken;
    return *len_out ? p->body + p->taken : "";
}

const char *kv_post_line(struct kv_post *p, size_t *len_out)
{
    if (p->scanned == p->len)
        return NULL;
    char *end = memchr(p->body + p->scanned, '\n', p->len - p->scanned);
    if (!end) {
        p->scanned = p->len;
        return NULL;
    }
    const char *line = p->body + p->taken;
    *len_out = (size_t)(end - line);
    p->taken = p->scanned = (size_t)(end - p->body) + 1;
    return line;
}
