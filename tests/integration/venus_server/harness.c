#include "harness.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the server ---- */

enum { ARGS_MAX = 24 };

static uint64_t now_ms(void)
{
    return hw_now_ns() / HW_MS;
}

static bool poll_fd(int fd, uint64_t end_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t now = now_ms();
    return now < end_ms && poll(&p, 1, (int)(end_ms - now)) > 0;
}

static void run_server(const char *listen, const char *const *args, int out, int log)
{
    const char *argv[ARGS_MAX] = {getenv("HAWSER"), "serve", "--no-devices", "--listen", listen};
    size_t n = 5;
    for (; *args && n + 1 < ARGS_MAX; args++)
        argv[n++] = *args;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("VENUS_LOG_LEVEL", "INFO", 1);
    dup2(out, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* "listening on ADDRESS[, ...]" */
static void read_address(struct server *s, int fd)
{
    char text[1024];
    size_t len = 0;
    uint64_t end = now_ms() + PATIENCE_MS;
    const char *line = NULL;
    while (!line || !strchr(line, '\n')) {
        ssize_t n = poll_fd(fd, end) ? read(fd, text + len, sizeof(text) - 1 - len) : 0;
        if (n <= 0)
            fail_msg("the server did not start");
        len += (size_t)n;
        text[len] = '\0';
        line = strstr(text, "listening on ");
    }
    const char *metrics = strstr(text, "metrics on http://127.0.0.1:");
    s->metrics_port = metrics ? atoi(metrics + strlen("metrics on http://127.0.0.1:")) : 0;
    line += strlen("listening on ");
    snprintf(s->address, sizeof(s->address), "%.*s", (int)strcspn(line, ",\n"), line);
}

void server_start(struct server *s, const char *listen, const char *const *args)
{
    int out[2], log[2];
    char where[160];
    s->log_len = 0;
    s->log[0] = '\0';
    snprintf(s->folder, sizeof(s->folder), "/tmp/hawser-venus-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    const char *mark = strstr(listen, "%s");
    if (mark)
        snprintf(where, sizeof(where), "%.*s%s%s", (int)(mark - listen), listen, s->folder,
                 mark + 2);
    else
        snprintf(where, sizeof(where), "%s", listen);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(log, O_CLOEXEC | O_NONBLOCK), 0);
    fflush(NULL);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0)
        run_server(where, args, out[1], log[1]);
    close(out[1]);
    close(log[1]);
    s->log_fd = log[0];
    read_address(s, out[0]);
    close(out[0]);
}

static bool read_log(struct server *s)
{
    assert_true(s->log_len < LOG_BYTES_MAX - 1);
    ssize_t n = read(s->log_fd, s->log + s->log_len, LOG_BYTES_MAX - 1 - s->log_len);
    if (n > 0)
        s->log_len += (size_t)n;
    s->log[s->log_len] = '\0';
    return n > 0;
}

unsigned server_log_lines(const struct server *s, const char *text)
{
    unsigned count = 0;
    for (const char *line = s->log, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        count += memmem(line, (size_t)(end - line), text, strlen(text)) != NULL;
    return count;
}

void server_expect_log(struct server *s, const char *text, unsigned times)
{
    uint64_t end = now_ms() + PATIENCE_MS;
    while (server_log_lines(s, text) < times) {
        if (!poll_fd(s->log_fd, end) || !read_log(s))
            fail_msg("no \"%s\" in the server's log:\n%s", text, s->log);
    }
}

void server_stop(struct server *s)
{
    int status;
    uint64_t end = now_ms() + PATIENCE_MS;
    assert_int_equal(kill(s->pid, SIGTERM), 0);
    while (poll_fd(s->log_fd, end) && read_log(s)) /* sessions hold the pipe too */
        ;
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the server ended with status %#x:\n%s", (unsigned)status, s->log);
    close(s->log_fd);
    rmdir(s->folder);
}

static void get_metrics(const struct server *s, char *text, size_t size)
{
    static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)s->metrics_port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t len = 0;
    ssize_t n;
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    while (len + 1 < size && (n = read(fd, text + len, size - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    close(fd);
}

uint64_t server_counter(const struct server *s, const char *name)
{
    static char text[1 << 17];
    uint64_t total = 0;
    get_metrics(s, text, sizeof(text));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *value = strrchr(line, ' ');
        if (strncmp(line, name, strlen(name)) == 0 && value)
            total += strtoull(value, NULL, 10);
    }
    return total;
}

/* Of its first thread, which names the process. */
static bool is_named(int pid, const char *name)
{
    char path[64], comm[32] = "";
    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    bool same = fgets(comm, sizeof(comm), f) && strncmp(comm, name, strlen(name)) == 0;
    fclose(f);
    return same;
}

int server_sessions(const struct server *s, pid_t *pids, int max)
{
    char path[64];
    int count = 0, pid;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)s->pid, (int)s->pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (count < max && fscanf(f, "%d", &pid) == 1) {
        if (is_named(pid, "hawser-session"))
            pids[count++] = pid;
    }
    fclose(f);
    return count;
}

/* The server logs each end once it has noticed it. */
void server_expect_sessions(struct server *s, int count)
{
    pid_t pids[16];
    uint64_t end = now_ms() + PATIENCE_MS;
    while (server_sessions(s, pids, 16) != count) {
        if (!poll_fd(s->log_fd, end) || !read_log(s))
            fail_msg("%d sessions, expected %d", server_sessions(s, pids, 16), count);
    }
}

void server_outlives_client(struct server *s, void (*client)(int ready))
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        client(ready[1]);
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    server_expect_sessions(s, 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    server_expect_sessions(s, 0);
    close(ready[0]);
}

/* ---- pushes ---- */

static struct share *find_share(struct client *c, uint64_t id)
{
    for (size_t i = 0; i < c->share_count; i++) {
        if (c->shares[i].id == id)
            return &c->shares[i];
    }
    return NULL;
}

static void apply_delta(struct client *c, const struct rpc_msg *msg)
{
    struct vn_delta_in in;
    struct vn_change change;
    struct wire_dec d;
    wire_dec_init(&d, msg->data, msg->len);
    struct share *share = find_share(c, wire_get_u64(&d));
    assert_non_null(share);
    assert_int_equal(vn_delta_open(c->codec, d.at, wire_dec_left(&d), share->twin.size, &in), 0);
    while (vn_delta_next(&in, &change))
        vn_shadow_merge(&share->twin, share->bytes, &change);
    c->deltas++;
}

static void on_push(void *user, const struct rpc_msg *msg)
{
    struct client *c = user;
    if (msg->method == VN_PUSH_DELTA) {
        apply_delta(c, msg);
        return;
    }
    assert_true(c->push_count < PUSHES_MAX);
    struct push *push = &c->pushes[c->push_count++];
    *push = (struct push){msg->method, malloc(msg->len + 1), msg->len};
    assert_non_null(push->data);
    memcpy(push->data, msg->data, msg->len);
}

struct wanted {
    struct client *c;
    uint32_t method;
    uint64_t queue, number;
    const struct push *found;
    VkResult result;
};

static bool push_came(void *user)
{
    struct wanted *w = user;
    for (size_t i = 0; i < w->c->push_count && !w->found; i++) {
        if (w->c->pushes[i].method == w->method)
            w->found = &w->c->pushes[i];
    }
    return w->found != NULL;
}

static bool batch_is_done(void *user)
{
    struct wanted *w = user;
    for (size_t i = 0; i < w->c->push_count && !w->found; i++) {
        const struct push *push = &w->c->pushes[i];
        struct wire_dec d;
        wire_dec_init(&d, push->data, push->len);
        if (push->method != VN_PUSH_DONE || wire_get_u64(&d) != w->queue ||
            wire_get_u64(&d) < w->number)
            continue;
        w->result = wire_get_i32(&d);
        assert_int_equal(wire_dec_end(&d), 0);
        w->found = push;
    }
    return w->found != NULL;
}

static bool never(void *user)
{
    (void)user;
    return false;
}

VkResult client_wait_done(struct client *c, VkQueue queue, uint64_t number)
{
    struct wanted w = {.c = c, .queue = vn_id(queue), .number = number};
    assert_int_equal(rpc_client_wait(c->rpc, batch_is_done, &w, PATIENCE_MS * HW_MS), 0);
    return w.result;
}

const struct push *client_wait_push(struct client *c, uint32_t method)
{
    struct wanted w = {.c = c, .method = method};
    assert_int_equal(rpc_client_wait(c->rpc, push_came, &w, PATIENCE_MS * HW_MS), 0);
    return w.found;
}

int client_wait_end(struct client *c)
{
    return rpc_client_wait(c->rpc, never, NULL, PATIENCE_MS * HW_MS);
}

/* ---- a client ---- */

const struct rpc_security *own_security(void)
{
    static struct rpc_security own;
    char why[RPC_WHY_CHARS];
    if (own.token_len == 0)
        assert_int_equal(rpc_security_from_env(&own, NULL, why), 0);
    return &own;
}

void client_connect(struct client *c, const char *address, const struct rpc_security *security)
{
    char why[RPC_WHY_CHARS] = "";
    struct rpc_addr addr;
    if (!security)
        security = own_security();
    struct rpc_net_options net = {.security = security};
    *c = (struct client){0};
    struct rpc_client_options options = {
        .config = {.security = security}, .on_push = on_push, .push_user = c};
    wire_enc_init(&c->out, 16 << 20);
    hw_arena_init(&c->arena, 1 << 20);
    assert_int_equal(vn_delta_codec_create(VN_DELTA_ZSTD_MIN, &c->codec), 0);
    assert_int_equal(rpc_addr_parse(address, &addr, why), 0);
    if (rpc_client_connect(&addr, &net, &options, &c->rpc, why))
        fail_msg("%s", why);
}

static int send_call(struct client *c, uint32_t method, struct rpc_answer *answer)
{
    struct iovec iov = {(void *)(uintptr_t)wire_enc_data(&c->out), wire_enc_len(&c->out)};
    struct rpc_send send = {
        .method = method, .iov = &iov, .iov_count = 1, .timeout_ns = PATIENCE_MS * HW_MS};
    assert_int_equal(wire_enc_error(&c->out), 0);
    int rc = rpc_client_call(c->rpc, &send, answer);
    wire_enc_reset(&c->out);
    return rc;
}

int client_open(struct client *c)
{
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &app};
    struct rpc_answer answer;
    struct wire_dec d;
    c->instance = client_object(c, VK_OBJECT_TYPE_INSTANCE);
    c->physical = client_object(c, VK_OBJECT_TYPE_PHYSICAL_DEVICE);
    wire_put_u32(&c->out, VN_PROTOCOL);
    wire_put_bytes(&c->out, c->stripe_key, sizeof(c->stripe_key));
    wire_put_u64(&c->out, vn_id(c->instance));
    wire_put_u64(&c->out, vn_id(c->physical));
    vn_enc_VkInstanceCreateInfo(&c->out, &info);
    int rc = send_call(c, VN_METHOD_OPEN, &answer);
    if (rc)
        return rc;
    wire_dec_init(&d, answer.data, answer.len);
    c->version = wire_get_u32(&d);
    c->devices = wire_get_u32(&d);
    c->snapshot_bytes = answer.len;
    assert_true(answer.len >= sizeof(uint32_t));
    c->stripes = wire_load32(answer.data + answer.len - sizeof(uint32_t));
    rpc_answer_fini(&answer);
    return 0;
}

void keys_make(struct keys *k)
{
    char fingerprint[2 * RPC_FINGERPRINT_BYTES + 1], why[RPC_WHY_CHARS];
    snprintf(k->folder, sizeof(k->folder), "/tmp/hawser-keys-XXXXXX");
    assert_non_null(mkdtemp(k->folder));
    assert_int_equal(rpc_keygen(k->folder, NULL, 0, 1, fingerprint, why), 0);
    snprintf(k->crt, sizeof(k->crt), "%s/server.crt", k->folder);
    snprintf(k->key, sizeof(k->key), "%s/server.key", k->folder);
    snprintf(k->token, sizeof(k->token), "%s/token", k->folder);
    const char *args[] = {"--cert", k->crt, "--key", k->key, "--token-file", k->token, NULL};
    memcpy(k->args, args, sizeof(args));
    struct rpc_security_files files = {.fingerprint = fingerprint, .token_file = k->token};
    assert_int_equal(rpc_security_load(&k->security, &files, false, why), 0);
}

void keys_remove(struct keys *k)
{
    rpc_security_fini(&k->security);
    unlink(k->crt);
    unlink(k->key);
    unlink(k->token);
    rmdir(k->folder);
}

void client_start(struct client *c, const struct server *s)
{
    client_connect(c, s->address, NULL);
    assert_int_equal(client_open(c), 0);
}

void client_end(struct client *c)
{
    rpc_client_destroy(c->rpc);
    for (size_t i = 0; i < c->push_count; i++)
        free(c->pushes[i].data);
    for (size_t i = 0; i < c->share_count; i++) {
        vn_shadow_fini(&c->shares[i].twin);
        free(c->shares[i].bytes);
    }
    vn_delta_codec_destroy(c->codec);
    wire_enc_fini(&c->out);
    hw_arena_fini(&c->arena);
}

void *client_object(struct client *c, uint32_t type)
{
    assert_true(c->object_count < OBJECTS_MAX);
    struct vn_object *object = &c->objects[c->object_count++];
    *object = (struct vn_object){.id = 1000 + c->object_count, .type = type};
    return object;
}

void client_post(struct client *c)
{
    struct iovec iov = {(void *)(uintptr_t)wire_enc_data(&c->out), wire_enc_len(&c->out)};
    struct rpc_send send = {.method = VN_METHOD_STREAM, .iov = &iov, .iov_count = 1};
    assert_int_equal(wire_enc_error(&c->out), 0);
    assert_int_equal(rpc_client_post(c->rpc, &send), 0);
    (void)rpc_client_flush(c->rpc);
    wire_enc_reset(&c->out);
}

int client_call(struct client *c, struct rpc_answer *answer)
{
    return send_call(c, VN_METHOD_CALL, answer);
}

VkResult client_call_result(struct client *c)
{
    struct rpc_answer answer;
    struct wire_dec d;
    assert_int_equal(client_call(c, &answer), 0);
    wire_dec_init(&d, answer.data, answer.len);
    VkResult result = wire_get_i32(&d);
    assert_int_equal(wire_dec_error(&d), 0);
    rpc_answer_fini(&answer);
    return result;
}

size_t client_begin(struct client *c, uint32_t op)
{
    return vn_put_command(&c->out, op);
}

void client_finish(struct client *c, size_t hole)
{
    wire_fill_len(&c->out, hole);
}

/* An empty READ does nothing, after everything before it. */
void client_sync(struct client *c)
{
    struct rpc_answer answer;
    size_t hole = client_begin(c, VN_OP_READ);
    wire_put_u32(&c->out, 0);
    client_finish(c, hole);
    assert_int_equal(client_call(c, &answer), 0);
    rpc_answer_fini(&answer);
}

void client_begin_submit(struct client *c, VkQueue queue, uint64_t first, VkDeviceMemory memory,
                         uint64_t bytes)
{
    c->submit = client_begin(c, VN_OP_SUBMIT);
    wire_put_u64(&c->out, vn_id(queue));
    wire_put_u64(&c->out, first);
    wire_put_u32(&c->out, 1);
    wire_put_u32(&c->out, memory ? 1 : 0);
    if (memory) {
        wire_put_u64(&c->out, vn_id(memory));
        wire_put_u64(&c->out, 0);
        wire_put_u64(&c->out, bytes);
    }
}

void client_end_submit(struct client *c)
{
    client_finish(c, c->submit);
}

void client_put_update(struct client *c, uint64_t buffer, uint64_t offset, const void *bytes,
                       uint32_t size)
{
    size_t hole = client_begin(c, VN_OP_UPDATE);
    wire_put_u32(&c->out, 1);
    wire_put_u64(&c->out, buffer);
    wire_put_u64(&c->out, offset);
    wire_put_u32(&c->out, size);
    wire_put_bytes(&c->out, bytes, size);
    client_finish(c, hole);
}

void client_put_delta(struct client *c, const struct share *share)
{
    size_t hole = client_begin(c, VN_OP_DELTA), page = 0;
    struct vn_shadow twin = share->twin;
    wire_put_u64(&c->out, share->id);
    assert_true(vn_shadow_encode(&twin, share->bytes, (struct vn_pages){0}, &page,
                                 vn_shadow_pages(&twin), c->codec, &c->out, 1 << 20) > 0);
    client_finish(c, hole);
}

void client_put_demand_paged(struct client *c, VkDeviceMemory memory)
{
    size_t hole = client_begin(c, VN_OP_DEMAND_PAGED);
    wire_put_u64(&c->out, vn_id(memory));
    client_finish(c, hole);
}

void client_put_fetch(struct client *c, VkDeviceMemory memory, uint64_t off, uint32_t bytes)
{
    size_t hole = client_begin(c, VN_OP_FETCH);
    wire_put_u64(&c->out, vn_id(memory));
    wire_put_u64(&c->out, off);
    wire_put_u32(&c->out, bytes);
    client_finish(c, hole);
}

size_t client_pushes(const struct client *c, uint32_t method)
{
    size_t count = 0;
    for (size_t i = 0; i < c->push_count; i++)
        count += c->pushes[i].method == method;
    return count;
}

struct share *client_map(struct client *c, VkDeviceMemory memory, size_t bytes)
{
    assert_true(c->share_count < SHARES_MAX);
    struct share *share = &c->shares[c->share_count++];
    *share = (struct share){.id = vn_id(memory), .bytes = calloc(1, bytes)};
    assert_non_null(share->bytes);
    assert_int_equal(vn_shadow_init(&share->twin, bytes), 0);
    size_t hole = client_begin(c, VN_OP_MAP);
    wire_put_u64(&c->out, vn_id(memory));
    client_finish(c, hole);
    assert_int_equal(client_call_result(c), VK_SUCCESS);
    return share;
}

/* ---- a client with a device ---- */

static uint32_t host_visible_type(struct bench *b)
{
    struct client *c = &b->c;
    VkPhysicalDeviceMemoryProperties memory = {0};
    VkMemoryPropertyFlags wanted =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    struct rpc_answer answer;
    struct vn_decoder d;
    vn_enc_cmd_vkGetPhysicalDeviceMemoryProperties(&c->out, c->physical, &memory);
    assert_int_equal(client_call(c, &answer), 0);
    vn_decoder_init(&d, &c->arena, NULL, NULL);
    vn_decoder_feed(&d, answer.data, answer.len);
    vn_dec_reply_vkGetPhysicalDeviceMemoryProperties(&d, c->physical, &memory);
    assert_int_equal(vn_decoder_end(&d), 0);
    rpc_answer_fini(&answer);
    for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
        if ((memory.memoryTypes[i].propertyFlags & wanted) == wanted)
            return i;
    }
    fail_msg("no host-visible memory");
    return 0;
}

static void make_device(struct bench *b)
{
    struct client *c = &b->c;
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkPhysicalDeviceVulkan13Features features13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
        .synchronization2 = VK_TRUE};
    VkPhysicalDeviceVulkan12Features features12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &features13};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = b->with_features ? &features12 : NULL,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue};
    b->device = client_object(c, VK_OBJECT_TYPE_DEVICE);
    b->queue = client_object(c, VK_OBJECT_TYPE_QUEUE);
    vn_enc_cmd_vkCreateDevice(&c->out, c->physical, &info, NULL, &b->device);
    assert_int_equal(client_call_result(c), VK_SUCCESS);
    vn_enc_cmd_vkGetDeviceQueue(&c->out, b->device, 0, 0, &b->queue);
    client_post(c);
}

VkResult bench_allocate(struct bench *b, VkDeviceMemory *memory, uint64_t bytes)
{
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = bytes,
                                 .memoryTypeIndex = b->memory_type};
    *memory = client_object(&b->c, VK_OBJECT_TYPE_DEVICE_MEMORY);
    vn_enc_cmd_vkAllocateMemory(&b->c.out, b->device, &info, NULL, memory);
    return client_call_result(&b->c);
}

void bench_create_buffer(struct bench *b, VkBuffer *buffer, VkDeviceMemory memory, uint64_t bytes)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = bytes,
                               .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    *buffer = client_object(&b->c, VK_OBJECT_TYPE_BUFFER);
    vn_enc_cmd_vkCreateBuffer(&b->c.out, b->device, &info, NULL, buffer);
    vn_enc_cmd_vkBindBufferMemory(&b->c.out, b->device, *buffer, memory, 0);
}

static void make_commands(struct bench *b)
{
    struct client *c = &b->c;
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT};
    b->pool = client_object(c, VK_OBJECT_TYPE_COMMAND_POOL);
    b->commands = client_object(c, VK_OBJECT_TYPE_COMMAND_BUFFER);
    vn_enc_cmd_vkCreateCommandPool(&c->out, b->device, &pool, NULL, &b->pool);
    VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = b->pool,
                                            .commandBufferCount = 1};
    vn_enc_cmd_vkAllocateCommandBuffers(&c->out, b->device, &commands, &b->commands);
    client_post(c);
}

void bench_make(struct bench *b)
{
    b->memory_type = host_visible_type(b);
    b->submitted = 0;
    make_device(b);
    assert_int_equal(bench_allocate(b, &b->memory, BUFFER_BYTES), VK_SUCCESS);
    bench_create_buffer(b, &b->buffer, b->memory, BUFFER_BYTES);
    make_commands(b);
    b->share = client_map(&b->c, b->memory, BUFFER_BYTES);
}

void bench_start(struct bench *b, const struct server *s)
{
    b->with_features = false;
    client_start(&b->c, s);
    bench_make(b);
}

void bench_end(struct bench *b)
{
    client_end(&b->c);
}

size_t bench_record(struct bench *b, VkCommandBuffer commands)
{
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    size_t hole = client_begin(&b->c, VN_OP_RECORD);
    wire_put_u64(&b->c.out, vn_id(commands));
    vn_enc_cmd_vkBeginCommandBuffer(&b->c.out, commands, &begin);
    return hole;
}

void bench_record_end(struct bench *b, VkCommandBuffer commands, size_t hole)
{
    vn_enc_cmd_vkEndCommandBuffer(&b->c.out, commands);
    client_finish(&b->c, hole);
}

uint64_t bench_put_submit(struct bench *b, VkCommandBuffer commands)
{
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .commandBufferCount = commands ? 1 : 0,
                           .pCommandBuffers = &commands};
    client_begin_submit(&b->c, b->queue, ++b->submitted, b->memory, BUFFER_BYTES);
    vn_enc_cmd_vkQueueSubmit(&b->c.out, b->queue, 1, &submit, VK_NULL_HANDLE);
    client_end_submit(&b->c);
    return b->submitted;
}

VkResult bench_fill(struct bench *b, uint32_t word)
{
    size_t hole = bench_record(b, b->commands);
    vn_enc_cmd_vkCmdFillBuffer(&b->c.out, b->commands, b->buffer, 0, BUFFER_BYTES, word);
    bench_record_end(b, b->commands, hole);
    uint64_t number = bench_put_submit(b, b->commands);
    client_post(&b->c);
    return client_wait_done(&b->c, b->queue, number);
}
