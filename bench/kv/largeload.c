/* largeload - long values through a Unix socket, by a client that does not copy them.
 *
 *   largeload get|set SOCKET SIZE CONNECTIONS SECONDS   prints requests a second
 *   largeload serve SOCKET SIZE                         a bare server, until it is ended
 *
 * redis-benchmark copies each value and takes longer for it than a server does.  This client sends
 * from a file in memory and throws replies away, both without a copy (splice), one request at a
 * time on each connection.  The bare server has a thread for each connection, which does nothing
 * but read a value into memory or write one from there: no server over sockets does less. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 64, PIPE_BYTES = 1 << 20, HEAD_CHARS = 64 };

static const char get_request[] = "*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n", ok[] = "+OK\r\n";

/* A request or a reply: a head, the value, an end of line. */
struct message {
    int file; /* holds all of it */
    char *data;
    size_t len, head;
};

static void fail(const char *what)
{
    fprintf(stderr, "largeload: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static struct message make(const char *before, size_t size)
{
    char head[HEAD_CHARS];
    struct message m = {.head = (size_t)snprintf(head, sizeof(head), "%s$%zu\r\n", before, size)};
    m.len = m.head + size + 2;
    m.file = memfd_create("value", MFD_CLOEXEC);
    if (m.file < 0 || ftruncate(m.file, (off_t)m.len))
        fail("memfd");
    m.data = mmap(NULL, m.len, PROT_READ | PROT_WRITE, MAP_SHARED, m.file, 0);
    if (m.data == MAP_FAILED)
        fail("mmap");
    memcpy(m.data, head, m.head);
    memset(m.data + m.head, 'v', size);
    memcpy(m.data + m.len - 2, "\r\n", 2);
    return m;
}

static int open_socket(const char *path, struct sockaddr_un *addr)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    *addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(addr->sun_path, sizeof(addr->sun_path), "%s", path);
    if (fd < 0)
        fail(path);
    return fd;
}

static int dial(const char *path)
{
    struct sockaddr_un addr;
    int fd = open_socket(path, &addr);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
        fail(path);
    return fd;
}

/* False: the peer is gone. */
static int send_all(int fd, const char *data, size_t len)
{
    for (ssize_t n; len > 0; data += n, len -= (size_t)n)
        if ((n = write(fd, data, len)) <= 0)
            return 0;
    return 1;
}

/* ---- the bare server ---- */

static size_t value_bytes;

static void *serve_one(void *user)
{
    int fd = (int)(intptr_t)user;
    struct message value = make("", value_bytes),
                   set = make("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n", value_bytes);
    ssize_t n;
    size_t got = 0;
    int lives = 1;
    while (lives && (n = read(fd, set.data + got, set.len - got)) > 0) {
        got += (size_t)n;
        int is_set = got == set.len,
            is_get = got == strlen(get_request) && memcmp(set.data, get_request, got) == 0;
        if (is_set)
            lives = send_all(fd, ok, strlen(ok));
        else if (is_get)
            lives = send_all(fd, value.data, value.len);
        got = is_set || is_get ? 0 : got;
    }
    close(fd);
    return NULL;
}

static int serve(const char *path)
{
    struct sockaddr_un addr;
    int listener = open_socket(path, &addr), fd;
    if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) || listen(listener, CONNECTIONS_MAX))
        fail(path);
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)fd))
            fail("thread");
        pthread_detach(thread);
    }
    return 1;
}

/* ---- the client ---- */

/* What a connection has sent and received of the request under way. */
struct progress {
    size_t sent, received;
};

static int pipe_ends[2], nowhere;

/* As read, without the bytes. */
static ssize_t discard(int fd, size_t len)
{
    ssize_t n = splice(fd, NULL, pipe_ends[1], NULL, len, SPLICE_F_MOVE | SPLICE_F_NONBLOCK), m;
    for (ssize_t left = n; left > 0; left -= m)
        if ((m = splice(pipe_ends[0], NULL, nowhere, NULL, (size_t)left, SPLICE_F_MOVE)) <= 0)
            fail("splice");
    return n;
}

/* One step of a request.  True: it is done. */
static int step(int fd, const struct message *request, size_t reply, struct progress *p)
{
    int sends = p->sent < request->len;
    off_t at = (off_t)p->sent;
    ssize_t n = sends ? sendfile(fd, request->file, &at, request->len - p->sent)
                      : discard(fd, reply - p->received);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        fail("connection");
    *(sends ? &p->sent : &p->received) += (size_t)n;
    if (p->received < reply)
        return 0;
    *p = (struct progress){0};
    return 1;
}

static void put_one(const char *path, const struct message *set)
{
    char reply[sizeof(ok)];
    int fd = dial(path);
    if (!send_all(fd, set->data, set->len) || read(fd, reply, strlen(ok)) != (ssize_t)strlen(ok))
        fail("SET");
    close(fd);
}

static void load(int sets, const char *path, size_t size, int count, double seconds)
{
    struct message set = make("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n", size), request = set;
    struct pollfd looks[CONNECTIONS_MAX];
    struct progress progress[CONNECTIONS_MAX] = {{0}};
    char head[HEAD_CHARS];
    size_t reply = strlen(ok);
    unsigned long done = 0;
    put_one(path, &set);
    if (!sets) {
        request.file = memfd_create("get", MFD_CLOEXEC);
        request.len = strlen(get_request);
        if (!send_all(request.file, get_request, request.len))
            fail("memfd");
        reply = (size_t)snprintf(head, sizeof(head), "$%zu\r\n", size) + size + 2;
    }
    for (int i = 0; i < count; i++) {
        looks[i].fd = dial(path);
        fcntl(looks[i].fd, F_SETFL, O_NONBLOCK);
    }
    double start = now();
    while (now() - start < seconds) {
        for (int i = 0; i < count; i++)
            looks[i].events = progress[i].sent < request.len ? POLLOUT : POLLIN;
        if (poll(looks, (nfds_t)count, 10000) <= 0)
            fail("no answer");
        for (int i = 0; i < count; i++)
            if (looks[i].revents)
                done += (unsigned long)step(looks[i].fd, &request, reply, &progress[i]);
    }
    printf("%.1f\n", (double)done / (now() - start));
}

int main(int argc, char **argv)
{
    int serves = argc == 4 && strcmp(argv[1], "serve") == 0;
    if (!serves && (argc != 6 || (strcmp(argv[1], "get") != 0 && strcmp(argv[1], "set") != 0))) {
        fprintf(stderr, "usage: largeload get|set SOCKET SIZE CONNECTIONS SECONDS\n"
                        "       largeload serve SOCKET SIZE\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    value_bytes = (size_t)atol(argv[3]);
    if (serves)
        return serve(argv[2]);
    int count = atoi(argv[4]);
    if (value_bytes < 1 || count < 1 || count > CONNECTIONS_MAX)
        return 2;
    if (pipe(pipe_ends) || fcntl(pipe_ends[1], F_SETPIPE_SZ, PIPE_BYTES) < 0 ||
        (nowhere = open("/dev/null", O_WRONLY)) < 0)
        fail("pipe");
    load(strcmp(argv[1], "set") == 0, argv[2], value_bytes, count, atof(argv[5]));
    return 0;
}
