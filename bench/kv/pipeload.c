/* pipeload - gets from memcached or Redis over a socket, so many in flight; one connection.
 *
 *   pipeload memcached|redis SOCKET|:PORT DEPTH VALUE_SIZE KEYS SECONDS
 *
 * SOCKET is the path of a Unix socket, :PORT a TCP port of this host.
 *
 * Prints requests a second and the median time of a batch of DEPTH.  Both servers get the same
 * client: requests are written ahead in one buffer, one write and as few reads as it takes a batch,
 * so that what is measured is the server and the kernel, not a client library. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH_MAX = 256, VALUE_MAX = 4 << 20, SAMPLES_MAX = 1 << 20 };

static char out[DEPTH_MAX * 64], in[1 << 20];
static double samples[SAMPLES_MAX];

static void fail(const char *what)
{
    fprintf(stderr, "pipeload: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int dial_tcp(int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
        connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
        fail("TCP");
    return fd;
}

static int dial(const char *path)
{
    if (path[0] == ':')
        return dial_tcp(atoi(path + 1));
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
        fail(path);
    return fd;
}

static void send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n <= 0)
            fail("write");
        data += n;
        len -= (size_t)n;
    }
}

static void receive(int fd, size_t len)
{
    while (len > 0) {
        ssize_t n = read(fd, in, len < sizeof(in) ? len : sizeof(in));
        if (n <= 0)
            fail("read");
        len -= (size_t)n;
    }
}

/* Keys have a fixed width, so every answer has the same length. */
static void fill(int fd, int redis, int keys, int size)
{
    static char line[VALUE_MAX + 128];
    for (int i = 0; i < keys; i++) {
        int n = redis ? snprintf(line, sizeof(line), "*3\r\n$3\r\nSET\r\n$8\r\nk%07d\r\n$%d\r\n", i,
                                 size)
                      : snprintf(line, sizeof(line), "set k%07d 0 0 %d\r\n", i, size);
        memset(line + n, 'v', (size_t)size);
        memcpy(line + n + size, "\r\n", 2);
        send_all(fd, line, (size_t)(n + size + 2));
        receive(fd, redis ? 5 : 8); /* +OK, STORED */
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr,
                "usage: pipeload memcached|redis SOCKET|:PORT DEPTH VALUE_SIZE KEYS SECONDS\n");
        return 2;
    }
    int redis = strcmp(argv[1], "redis") == 0, depth = atoi(argv[3]), size = atoi(argv[4]);
    int keys = atoi(argv[5]);
    double seconds = atof(argv[6]);
    if (depth < 1 || depth > DEPTH_MAX || size < 1 || size > VALUE_MAX || keys < 1)
        return 2;
    int fd = dial(argv[2]);
    fill(fd, redis, keys, size);
    char digits[16];
    size_t answer = redis ? (size_t)snprintf(digits, sizeof(digits), "%d", size) + (size_t)size + 5
                          : strlen("VALUE k0000000 0 ") +
                                (size_t)snprintf(digits, sizeof(digits), "%d", size) +
                                (size_t)size + 9;
    unsigned long total = 0;
    size_t count = 0;
    unsigned random = 1;
    double start = now(), last = start;
    while (last - start < seconds) {
        size_t len = 0;
        for (int i = 0; i < depth; i++) {
            random = random * 1103515245u + 12345u;
            unsigned key = (random >> 8) % (unsigned)keys;
            len += (size_t)snprintf(out + len, sizeof(out) - len,
                                    redis ? "*2\r\n$3\r\nGET\r\n$8\r\nk%07u\r\n" : "get k%07u\r\n",
                                    key);
        }
        send_all(fd, out, len);
        receive(fd, answer * (size_t)depth);
        double end = now();
        if (count < SAMPLES_MAX)
            samples[count++] = end - last;
        last = end;
        total += (unsigned long)depth;
    }
    qsort(samples, count, sizeof(samples[0]), compare);
    printf("%.0f %.3f\n", (double)total / (last - start), samples[count / 2] * 1e6);
    close(fd);
    return 0;
}
