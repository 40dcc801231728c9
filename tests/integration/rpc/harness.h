/* harness.h - a server in a process of its own, clients good and bad, and what the server logged.
 *
 * Every wait has a limit that ends the test; none is a pause.  Calls fail the running cmocka test
 * when what they need does not happen.
 *
 * Lifetime: a server that a failing test leaves behind dies with the test program. */
#ifndef HAWSER_TESTS_INTEGRATION_RPC_HARNESS_H
#define HAWSER_TESTS_INTEGRATION_RPC_HARNESS_H

#include "rpc/client.h"
#include "rpc/endpoint/frame.h"
#include "rpc/endpoint/handshake.h"
#include "rpc/server.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    HANG_MS = 240000, /* a wait this long has failed, on a loaded machine too */
    LOG_BYTES_MAX = 1 << 20
};

/* What the server does with a method. */
enum {
    METHOD_ECHO = 1,
    METHOD_BLOB = 2, /* answers as many bytes as the u32 in the payload says */
    METHOD_HOLD = 3, /* never answers; tells server_wait_held */
};

struct server_spec {
    const char *listen; /* NULL: a TCP port of the kernel's choice on loopback */
    struct rpc_config config;
    const struct rpc_security *security; /* TLS; the token is config.security */
    uint64_t stalled_ns;
    uint32_t max_clients;
    unsigned descriptors_max; /* 0: as this process */
    bool own_network;         /* in a network namespace of its own */
};

struct server {
    pid_t pid;
    int log_fd, held_fd, closed_fd;
    struct rpc_addr addr;
    char text[RPC_PEER_NAME_CHARS]; /* the address */
    char *log;
    size_t log_len;
};

void server_start(struct server *s, const struct server_spec *spec);
/* Ends it in order and fails unless it was alive and exits with 0; then exactly `warnings` lines
 * are in its log, as server_expect_warned counts.  All other lines fail too. */
void server_stop(struct server *s, unsigned warnings);
/* kill -9, and waits for it to be gone. */
void server_kill(struct server *s);
/* Waits until the log has `text` in `times` lines. */
void server_expect_log(struct server *s, const char *text, unsigned times);
/* Waits until the log warns so often; a line about the number of callers counts as so many. */
void server_expect_warned(struct server *s, unsigned times);
unsigned server_log_lines(const struct server *s);
/* Waits until the server holds one more call. */
void server_wait_held(struct server *s);
/* Waits for one more open connection to end; the status that it ended with. */
int server_wait_closed(struct server *s);
/* Resident bytes: now, and at the most. */
uint64_t server_rss(const struct server *s);
uint64_t server_rss_peak(const struct server *s);
uint64_t server_cpu_ns(const struct server *s);
unsigned server_descriptors(const struct server *s);
/* Whether sizes of memory mean something in this build. */
bool memory_is_measurable(void);

/* A client of the library. */
struct client_spec {
    struct rpc_config config;
    const struct rpc_security *security; /* TLS */
};
struct rpc_client *client_open(const struct server *s, const struct client_spec *spec);
/* What connecting gives, when it must fail. */
int client_refused(const struct server *s, const struct client_spec *spec, char why[RPC_WHY_CHARS]);
int client_echo(struct rpc_client *c, uint64_t timeout_ns);
/* A few calls that must succeed. */
void client_works(struct rpc_client *c);
/* One call of `method` with a u32; what it ended with. */
int client_call_u32(struct rpc_client *c, uint32_t method, uint32_t value, uint64_t timeout_ns);

/* A socket without the library on it. */
int raw_connect(const struct server *s);
void raw_send(int fd, const void *data, size_t len);
/* True when all was sent, false when the peer took no more for the moment or is gone. */
bool raw_try_send(int fd, const void *data, size_t len);
void raw_send_frame(int fd, const struct rpc_frame *frame, const void *payload);
/* Shakes hands as the library would. */
int raw_open(const struct server *s, const struct rpc_config *config);
/* The bytes of a hello. */
size_t raw_hello(const struct rpc_config *config, uint8_t out[RPC_HS_MESSAGE_MAX]);
/* Reads and drops until the server closes, while `healthy` (may be NULL) makes calls. */
void raw_wait_closed(int fd, struct rpc_client *healthy);

/* True when fd shows one of `events` within ms. */
bool poll_fd(int fd, short events, int ms);
uint64_t now_ms(void);

/* A folder of this test's own, removed with all in it by rm_folder. */
void make_folder(char path[64]);
void rm_folder(const char *path);

#endif
