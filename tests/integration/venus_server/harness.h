/* harness.h - "hawser serve" in a process of its own, and Vulkan clients that speak to it by hand.
 *
 * Clients are objects of ids without an ICD: what they send is what a test wrote down.  Every wait
 * has a limit that ends the test; none is a pause.  Calls fail the running cmocka test when what
 * they need does not happen.
 *
 * Lifetime: a server that a failing test leaves behind dies with the test program. */
#ifndef HAWSER_TESTS_INTEGRATION_VENUS_SERVER_HARNESS_H
#define HAWSER_TESTS_INTEGRATION_VENUS_SERVER_HARNESS_H

#include "rpc/client.h"
#include "venus/common/protocol.h"
#include "venus/common/transfer/stripe.h"
#include "venus/memory/shadow.h"
#include "vn_commands.gen.h"

#include <sys/types.h>

enum {
    PATIENCE_MS = 240000, /* a wait this long has failed, on a loaded machine too */
    LOG_BYTES_MAX = 1 << 20,
    OBJECTS_MAX = 64,
    PUSHES_MAX = 512,
    SHARES_MAX = 4,
    BUFFER_BYTES = 64 << 10, /* of a bench's buffer */
};

/* ---- the server ---- */

struct server {
    pid_t pid;
    int log_fd;
    char folder[64];   /* of its sockets */
    int metrics_port;  /* with --metrics */
    char address[128]; /* the first it listens on, as text */
    char log[LOG_BYTES_MAX];
    size_t log_len;
};

/* Starts the program that argv[1] named, with "--no-devices --listen listen" and args, which ends
 * with NULL.  %s in listen is a fresh folder. */
void server_start(struct server *s, const char *listen, const char *const *args);
/* Ends it in order; fails unless it was alive and exits with 0. */
void server_stop(struct server *s);
/* Waits until the log has `text` in `times` lines. */
void server_expect_log(struct server *s, const char *text, unsigned times);
/* How many lines have it. */
unsigned server_log_lines(const struct server *s, const char *text);
/* The value of a counter of the metrics page, all series together. */
uint64_t server_counter(const struct server *s, const char *name);
/* The processes of its sessions: their number, at most max, newest first. */
int server_sessions(const struct server *s, pid_t *pids, int max);
/* Waits until it has this many. */
void server_expect_sessions(struct server *s, int count);
/* A client in a process of its own, which opens a session, writes a byte when it is where it is to
 * be killed, and waits: its session ends with it. */
void server_outlives_client(struct server *s, void (*client)(int ready));

/* ---- a client ---- */

struct push {
    uint32_t method;
    uint8_t *data;
    size_t len;
};

/* Mapped memory at this end. */
struct share {
    uint64_t id;
    uint8_t *bytes;
    struct vn_shadow twin;
};

struct client {
    struct rpc_client *rpc;
    struct wire_enc out; /* the stream under way */
    size_t submit;       /* where the length of its SUBMIT belongs */
    struct hw_arena arena;
    struct vn_delta_codec *codec;
    struct vn_object objects[OBJECTS_MAX];
    size_t object_count;
    struct share shares[SHARES_MAX];
    size_t share_count;
    struct push pushes[PUSHES_MAX]; /* but for deltas, which are applied */
    size_t push_count, deltas;
    uint8_t stripe_key[VN_STRIPE_KEY_BYTES]; /* for OPEN; zeros: none */
    uint32_t version, devices, stripes;      /* of the snapshot */
    size_t snapshot_bytes;
    VkInstance instance;
    VkPhysicalDevice physical;
};

/* What clients of this user find without being told; a server must have been started. */
const struct rpc_security *own_security(void);

/* Connects, and fails the test where that fails. */
void client_connect(struct client *c, const char *address, const struct rpc_security *security);
/* Sends OPEN: 0 or what the server answered. */
int client_open(struct client *c);
/* Both, with success. */
void client_start(struct client *c, const struct server *s);
void client_end(struct client *c);

/* A handle with a fresh id. */
void *client_object(struct client *c, uint32_t type);

/* Sends what was put into out, as a post or as a call with its answer. */
void client_post(struct client *c);
int client_call(struct client *c, struct rpc_answer *answer);
/* A call whose answer begins with a VkResult. */
VkResult client_call_result(struct client *c);
/* Waits until everything sent so far was executed. */
void client_sync(struct client *c);
/* Waits until the connection has ended; the status. */
int client_wait_end(struct client *c);

/* Operations; put into out. */
size_t client_begin(struct client *c, uint32_t op);
void client_finish(struct client *c, size_t hole);
void client_begin_submit(struct client *c, VkQueue queue, uint64_t first, VkDeviceMemory memory,
                         uint64_t bytes);
void client_end_submit(struct client *c);
void client_put_delta(struct client *c, const struct share *share);

void client_put_demand_paged(struct client *c, VkDeviceMemory memory);
void client_put_fetch(struct client *c, VkDeviceMemory memory, uint64_t off, uint32_t bytes);
/* Pushes of this method so far. */
size_t client_pushes(const struct client *c, uint32_t method);

/* MAP, called; the share. */
struct share *client_map(struct client *c, VkDeviceMemory memory, size_t bytes);

/* Waits for the batch; its result. */
VkResult client_wait_done(struct client *c, VkQueue queue, uint64_t number);
/* Waits until a push of this method has come; its payload. */
const struct push *client_wait_push(struct client *c, uint32_t method);

/* ---- TLS and a token ---- */

struct keys {
    char folder[32], crt[64], key[64], token[64];
    const char *args[7]; /* of the server */
    struct rpc_security security;
};

void keys_make(struct keys *k);
void keys_remove(struct keys *k);

/* ---- a client with a device, a mapped buffer and a command buffer ---- */

struct bench {
    struct client c;
    VkDevice device;
    VkQueue queue;
    VkDeviceMemory memory;
    VkBuffer buffer;
    VkCommandPool pool;
    VkCommandBuffer commands;
    struct share *share;
    uint32_t memory_type;
    bool with_features; /* the device is made with a chain that has synchronization2 */
    uint64_t submitted;
};

void bench_start(struct bench *b, const struct server *s);
/* The same on a client that is open. */
void bench_make(struct bench *b);
void bench_end(struct bench *b);
/* A memory of host-visible, coherent type; called. */
VkResult bench_allocate(struct bench *b, VkDeviceMemory *memory, uint64_t bytes);
void bench_create_buffer(struct bench *b, VkBuffer *buffer, VkDeviceMemory memory, uint64_t bytes);
/* Begins RECORD with vkBeginCommandBuffer; ends both. */
size_t bench_record(struct bench *b, VkCommandBuffer commands);
void bench_record_end(struct bench *b, VkCommandBuffer commands, size_t hole);
/* SUBMIT of one batch by vkQueueSubmit; its number. */
uint64_t bench_put_submit(struct bench *b, VkCommandBuffer commands);
/* UPDATE of one piece. */
void client_put_update(struct client *c, uint64_t buffer, uint64_t offset, const void *bytes,
                       uint32_t size);
/* Records a fill of the whole buffer, submits, waits: VkResult of the batch. */
VkResult bench_fill(struct bench *b, uint32_t word);

#endif
