/* The upload cache: what it gives to whom, what it survives, and that it stays within its limit. */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "rpc/transport/sock.h"
#include "venus/server/upload/uploads.h"

enum { LEN = 100000, ITEM = 4 + VN_NAME_BYTES + VN_PROOF_BYTES };

static char dir[] = "/tmp/hawser-uploads-test-XXXXXX";
static struct vns_upload_store *store;
static struct vns_upload_share *share; /* of sessions, where a test has some */
static struct vns_upload_user *users[2];
static char why[VNS_UPLOAD_STORE_WHY];

static int start(void **state)
{
    (void)state;
    strcpy(strrchr(dir, '-'), "-XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(vns_upload_store_create(dir, 8 * LEN, &store, why), 0);
    return 0;
}

static void remove_dir(void)
{
    char path[512];
    const struct dirent *entry;
    DIR *d = opendir(dir);
    while ((entry = readdir(d)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        (void)unlink(path);
    }
    closedir(d);
    (void)rmdir(dir);
}

static int end(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        vns_upload_user_destroy(users[i]);
        users[i] = NULL;
    }
    vns_upload_share_destroy(share);
    share = NULL;
    vns_upload_store_destroy(store);
    store = NULL;
    remove_dir();
    return 0;
}

/* ---- the store ---- */

static uint8_t *content(unsigned seed)
{
    uint8_t *bytes = malloc(LEN);
    assert_non_null(bytes);
    for (size_t i = 0; i < LEN; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 256 + seed);
    return bytes;
}

static void name_of(unsigned seed, uint8_t name[VN_NAME_BYTES])
{
    uint8_t *bytes = content(seed);
    vn_piece_name(bytes, LEN, name);
    free(bytes);
}

static int put(unsigned seed)
{
    uint8_t name[VN_NAME_BYTES], *bytes = content(seed);
    name_of(seed, name);
    int rc = vns_upload_store_put(store, name, bytes, LEN);
    free(bytes);
    return rc;
}

static bool has(unsigned seed)
{
    uint8_t name[VN_NAME_BYTES], *got = malloc(LEN), *bytes = content(seed);
    assert_non_null(got);
    name_of(seed, name);
    int fd = vns_upload_store_open(store, name, LEN);
    assert_true(fd >= 0 || fd == -ENOENT);
    if (fd >= 0) {
        assert_int_equal(read(fd, got, LEN), LEN);
        assert_memory_equal(got, bytes, LEN);
        assert_int_equal(close(fd), 0);
    }
    free(bytes);
    free(got);
    return fd >= 0;
}

static void path_of(unsigned seed, char path[512])
{
    uint8_t name[VN_NAME_BYTES];
    name_of(seed, name);
    int n = snprintf(path, 512, "%s/", dir);
    for (size_t i = 0; i < VN_NAME_BYTES; i++)
        n += snprintf(path + n, 512 - (size_t)n, "%02x", name[i]);
}

/* Times of use are what decides who goes; those of one test lie too close together. */
static void age(unsigned seed, time_t seconds)
{
    char path[512];
    struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    path_of(seed, path);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void what_is_put_is_got(void **state)
{
    (void)state;
    assert_false(has(1));
    assert_int_equal(put(1), 0);
    assert_int_equal(put(1), 0);
    assert_true(has(1));
    assert_int_equal(vns_upload_store_bytes(store), LEN);
}

static void the_limit_holds_and_the_least_used_go(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(put(i), 0);
        age(i, 1000 + (time_t)i);
    }
    assert_true(has(0)); /* a use: now it is the newest */
    assert_int_equal(put(100), 0);
    assert_true(vns_upload_store_bytes(store) <= 8 * LEN);
    assert_true(has(0));
    assert_true(has(100));
    assert_false(has(1));
    assert_true(has(7));
}

static void what_is_larger_than_all_is_refused(void **state)
{
    (void)state;
    uint8_t name[VN_NAME_BYTES] = {1}, *bytes = calloc(9, LEN);
    assert_int_equal(vns_upload_store_put(store, name, bytes, 9 * LEN), -EFBIG);
    free(bytes);
}

static void half_of_the_room_is_left_to_others(void **state)
{
    (void)state;
    struct statvfs fs;
    vns_upload_store_destroy(store);
    assert_int_equal(vns_upload_store_create(dir, INT64_MAX, &store, why), 0);
    assert_int_equal(statvfs(dir, &fs), 0);
    assert_in_range(vns_upload_store_limit(store), 1, (uint64_t)fs.f_blocks * fs.f_frsize / 2);
}

static void a_folder_outlives_its_server(void **state)
{
    (void)state;
    assert_int_equal(put(1), 0);
    vns_upload_store_destroy(store);
    assert_int_equal(vns_upload_store_create(dir, 8 * LEN, &store, why), 0);
    assert_true(has(1));
    assert_int_equal(vns_upload_store_bytes(store), LEN);
    vns_upload_store_destroy(store);
    assert_int_equal(vns_upload_store_create(dir, LEN / 2, &store, why), 0);
    assert_false(has(1));
}

static void a_folder_has_one_server(void **state)
{
    (void)state;
    struct vns_upload_store *second = NULL;
    assert_int_equal(vns_upload_store_create(dir, LEN, &second, why), -EBUSY);
    assert_non_null(strstr(why, "another server"));
    assert_null(second);
}

static void a_folder_open_to_others_is_refused(void **state)
{
    (void)state;
    struct vns_upload_store *open_store = NULL;
    char other[] = "/tmp/hawser-uploads-open-XXXXXX";
    assert_non_null(mkdtemp(other));
    assert_int_equal(chmod(other, 0755), 0);
    assert_int_equal(vns_upload_store_create(other, LEN, &open_store, why), -EACCES);
    assert_int_equal(rmdir(other), 0);
}

/* A machine that goes down may leave a file shorter than it was. */
static void a_file_cut_short_is_written_again(void **state)
{
    (void)state;
    char path[512];
    assert_int_equal(put(1), 0);
    path_of(1, path);
    assert_int_equal(truncate(path, LEN / 2), 0);
    assert_false(has(1));
    assert_int_equal(put(1), 0);
    assert_true(has(1));
}

static void a_folder_in_memory_goes_with_its_server(void **state)
{
    (void)state;
    struct vns_upload_store *memory;
    if (access("/dev/shm", W_OK))
        skip();
    assert_int_equal(vns_upload_store_create(NULL, LEN, &memory, why), 0);
    uint8_t name[VN_NAME_BYTES] = {9}, byte = 3, got = 0;
    assert_int_equal(vns_upload_store_put(memory, name, &byte, 1), 0);
    int fd = vns_upload_store_open(memory, name, 1);
    assert_int_equal(read(fd, &got, 1), 1);
    assert_int_equal(got, 3);
    close(fd);
    vns_upload_store_destroy(memory);
}

/* ---- sessions ---- */

static int invite(void)
{
    if (!share)
        assert_int_equal(vns_upload_share_create(store, &share), 0);
    int socket = vns_upload_share_invite(share);
    assert_true(socket >= 0);
    return socket;
}

static struct vns_upload_user *user(size_t i)
{
    int socket = invite();
    assert_int_equal(vns_upload_user_create(socket, vns_upload_share_limit(share), &users[i]), 0);
    return users[i];
}

struct item {
    uint8_t name[VN_NAME_BYTES], proof[VN_PROOF_BYTES];
    uint32_t len;
};

static struct item item_of(const struct vns_uploads *u, unsigned seed)
{
    struct item item = {.len = LEN};
    uint8_t *bytes = content(seed);
    name_of(seed, item.name);
    assert_int_equal(vn_piece_proof(vns_uploads_key(u), bytes, LEN, item.proof), 0);
    free(bytes);
    return item;
}

/* Asks for items; the answer's bytes go to held. */
static int hold(struct vns_uploads *u, const struct item *items, uint32_t count, uint8_t *held)
{
    struct wire_enc e, reply;
    struct wire_dec d;
    wire_enc_init(&e, 1 << 20);
    wire_enc_init(&reply, 1 << 20);
    wire_put_u32(&e, count);
    for (uint32_t i = 0; i < count; i++) {
        wire_put_u32(&e, items[i].len);
        wire_put_bytes(&e, items[i].name, VN_NAME_BYTES);
        wire_put_bytes(&e, items[i].proof, VN_PROOF_BYTES);
    }
    wire_dec_init(&d, wire_enc_data(&e), wire_enc_len(&e));
    int rc = vns_uploads_hold(u, &d, &reply);
    if (rc == 0) {
        assert_int_equal(wire_enc_len(&reply), count);
        memcpy(held, wire_enc_data(&reply), count);
    }
    wire_enc_fini(&e);
    wire_enc_fini(&reply);
    return rc;
}

static void one_session_keeps_and_another_holds(void **state)
{
    (void)state;
    struct vns_uploads *first, *second;
    uint8_t held[2];
    size_t len;
    assert_int_equal(vns_uploads_create(user(0), &first), 0);
    for (unsigned i = 0; i < 3; i++)
        vns_uploads_keep(first, content(i), LEN);
    vns_uploads_destroy(first);
    assert_int_equal(vns_uploads_create(user(1), &second), 0);
    struct item items[] = {item_of(second, 2), item_of(second, 7)};
    assert_int_equal(hold(second, items, 2, held), 0);
    assert_int_equal(held[0], 1);
    assert_int_equal(held[1], 0);
    const uint8_t *bytes = vns_uploads_held(second, 0, &len);
    uint8_t *expected = content(2);
    assert_int_equal(len, LEN);
    assert_memory_equal(bytes, expected, LEN);
    assert_null(vns_uploads_held(second, 1, &len));
    assert_null(vns_uploads_held(second, 2, &len));
    /* What becomes of the store does not matter to what is held. */
    vns_upload_store_drop(store, items[0].name);
    assert_memory_equal(vns_uploads_held(second, 0, &len), expected, LEN);
    assert_int_equal(hold(second, items, 1, held), 0);
    assert_int_equal(held[0], 0);
    free(expected);
    vns_uploads_destroy(second);
}

/* Who knows a name, from a log or a leak, and not the bytes. */
static void a_name_alone_gives_nothing(void **state)
{
    (void)state;
    struct vns_uploads *one, *other;
    uint8_t held = 1;
    assert_int_equal(put(4), 0);
    assert_int_equal(vns_uploads_create(user(0), &one), 0);
    assert_int_equal(vns_uploads_create(user(1), &other), 0);
    struct item item = item_of(one, 4);
    assert_int_equal(hold(one, &item, 1, &held), 0);
    assert_int_equal(held, 1);
    /* A proof of one session is none in another. */
    assert_int_equal(hold(other, &item, 1, &held), 0);
    assert_int_equal(held, 0);
    assert_true(has(4));
    vns_uploads_destroy(one);
    vns_uploads_destroy(other);
}

static void a_file_that_was_changed_is_found_and_removed(void **state)
{
    (void)state;
    struct vns_uploads *u;
    char path[512];
    uint8_t held = 1;
    assert_int_equal(put(4), 0);
    path_of(4, path);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 77), 1);
    close(fd);
    assert_int_equal(vns_uploads_create(user(0), &u), 0);
    struct item item = item_of(u, 4);
    assert_int_equal(hold(u, &item, 1, &held), 0);
    assert_int_equal(held, 0);
    assert_int_equal(access(path, F_OK), -1);
    vns_uploads_destroy(u);
}

static void what_a_client_may_ask_is_bounded(void **state)
{
    (void)state;
    struct vns_uploads *u;
    static struct item items[VN_HOLD_PIECES_MAX + 1];
    static uint8_t held[VN_HOLD_PIECES_MAX + 1];
    assert_int_equal(vns_uploads_create(user(0), &u), 0);
    for (size_t i = 0; i < VN_HOLD_PIECES_MAX + 1; i++)
        items[i].len = 1;
    assert_int_equal(hold(u, items, VN_HOLD_PIECES_MAX, held), 0);
    assert_true(hold(u, items, VN_HOLD_PIECES_MAX + 1, held) < 0);
    items[0].len = 0;
    assert_int_equal(hold(u, items, 1, held), -EPROTO);
    items[0].len = VN_PIECE_MAX + 1;
    assert_int_equal(hold(u, items, 1, held), -EPROTO);
    for (size_t i = 0; i < VN_HOLD_PIECES_MAX; i++)
        items[i].len = VN_PIECE_MAX;
    assert_int_equal(hold(u, items, VN_HOLD_PIECES_MAX, held), -EPROTO);
    vns_uploads_destroy(u);
}

static void without_a_store_nothing_is_held(void **state)
{
    (void)state;
    struct vns_uploads *u;
    uint8_t held = 1;
    assert_int_equal(vns_uploads_create(NULL, &u), 0);
    assert_int_equal(vns_uploads_key(u), 0);
    vns_uploads_keep(u, content(1), LEN);
    struct item item = item_of(u, 1);
    assert_int_equal(hold(u, &item, 1, &held), 0);
    assert_int_equal(held, 0);
    vns_uploads_destroy(u);
}

/* ---- hostile sessions ---- */

/* As share.c has it. */
struct question {
    uint32_t op, len;
    uint8_t name[VN_NAME_BYTES];
};
enum { OP_GET, OP_PUT, OP_DOUBT };

static int send_question(int socket, const void *data, size_t len, const int *fds, int count)
{
    struct iovec iov = {(void *)(uintptr_t)data, len};
    if (count)
        return (int)rpc_sock_send_fds(socket, &iov, 1, fds, count);
    return (int)send(socket, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The status, or 1: the server has closed the socket. */
static int asked(int socket, uint32_t op, uint32_t len, const int *fds, int count)
{
    struct question q = {.op = op, .len = len};
    int32_t status;
    assert_int_equal(send_question(socket, &q, sizeof(q), fds, count), sizeof(q));
    ssize_t n = recv(socket, &status, sizeof(status), 0);
    return n == sizeof(status) ? status : 1;
}

static void a_session_may_ask_anything(void **state)
{
    (void)state;
    int pipe_ends[2], memory = memfd_create("short", MFD_CLOEXEC);
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(ftruncate(memory, LEN - 1), 0);
    int socket = invite();
    assert_int_equal(asked(socket, OP_GET, LEN, NULL, 0), -ENOENT);
    assert_int_equal(asked(socket, OP_GET, 0, NULL, 0), -EINVAL);
    assert_int_equal(asked(socket, OP_GET, VN_PIECE_MAX + 1, NULL, 0), -EINVAL);
    assert_int_equal(asked(socket, 99, LEN, NULL, 0), -EINVAL);
    assert_int_equal(asked(socket, OP_DOUBT, LEN, NULL, 0), -ENOENT);
    assert_int_equal(asked(socket, OP_PUT, LEN, NULL, 0), -EINVAL);
    assert_int_equal(asked(socket, OP_PUT, LEN, &pipe_ends[0], 1), -EINVAL); /* and is not read */
    assert_int_equal(asked(socket, OP_PUT, LEN, &memory, 1), -EIO);
    assert_int_equal(asked(socket, OP_PUT, LEN - 1, &memory, 1), 0);
    assert_int_equal(asked(socket, OP_GET, LEN, pipe_ends, 2), 1);
    close(socket);
    socket = invite();
    assert_int_equal(send_question(socket, "short", 5, NULL, 0), 5);
    assert_int_equal(recv(socket, pipe_ends, 1, 0), 0);
    close(socket);
    close(memory);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void who_takes_no_answers_is_left(void **state)
{
    (void)state;
    struct question q = {.op = OP_GET, .len = 1};
    int rc, socket = invite();
    do
        rc = send_question(socket, &q, sizeof(q), NULL, 0);
    while (rc > 0 || errno == EAGAIN);
    assert_true(errno == EPIPE || errno == ECONNRESET);
    close(socket);
    struct vns_uploads *u;
    assert_int_equal(vns_uploads_create(user(0), &u), 0);
    vns_uploads_keep(u, content(1), LEN);
    vns_uploads_destroy(u);
    assert_true(has(1));
}

static void what_a_session_gets_it_cannot_write(void **state)
{
    (void)state;
    struct question q = {.op = OP_GET, .len = LEN};
    int fd = -1;
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    int32_t status = -1;
    struct iovec iov = {&status, sizeof(status)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.buf,
                         .msg_controllen = sizeof(control.buf)};
    assert_int_equal(put(1), 0);
    name_of(1, q.name);
    int socket = invite();
    assert_int_equal(send_question(socket, &q, sizeof(q), NULL, 0), sizeof(q));
    assert_int_equal(recvmsg(socket, &msg, 0), sizeof(status));
    assert_int_equal(status, 0);
    assert_int_equal(rpc_sock_take_fds(&msg, &fd, 0, 1), 1);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_ptr_equal(mmap(NULL, LEN, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    close(fd);
    close(socket);
    assert_true(has(1));
}

/* ---- pieces ---- */

static void pieces_cover_a_run_and_have_their_sizes(void **state)
{
    (void)state;
    const size_t starts[] = {0, 4096, VN_PIECE_BYTES - 4096, VN_PIECE_BYTES, 5 << 20};
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
        for (size_t len = VN_PIECE_MIN; len < 4 * (size_t)VN_PIECE_BYTES; len += 60 << 10) {
            size_t off = starts[i], end_of_run = off + len;
            while (off < end_of_run) {
                size_t next = vn_piece_end(off, end_of_run);
                assert_in_range(next - off, VN_PIECE_MIN, VN_PIECE_MAX);
                assert_true(next == end_of_run || next % VN_PIECE_BYTES == 0);
                off = next;
            }
            assert_int_equal(off, end_of_run);
        }
    }
}

static void visit(void *user, uint32_t i)
{
    _Atomic unsigned *visits = user;
    visits[i]++;
}

static void threads_share_pieces(void **state)
{
    (void)state;
    for (unsigned threads = 0; threads <= VN_PIECE_THREADS_MAX; threads++) {
        _Atomic unsigned visits[VN_HOLD_PIECES_MAX] = {0};
        vn_pieces_each(VN_HOLD_PIECES_MAX, threads, visit, visits);
        for (size_t i = 0; i < VN_HOLD_PIECES_MAX; i++)
            assert_int_equal(visits[i], 1);
    }
    assert_int_equal(vn_pieces_threads(1), 0);
    assert_in_range(vn_pieces_threads(VN_HOLD_PIECES_MAX), 0, VN_PIECE_THREADS_MAX);
}

int main(void)
{
#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
    const struct CMUnitTest tests[] = {
        STORE_TEST(what_is_put_is_got),
        STORE_TEST(the_limit_holds_and_the_least_used_go),
        STORE_TEST(what_is_larger_than_all_is_refused),
        STORE_TEST(half_of_the_room_is_left_to_others),
        STORE_TEST(a_folder_outlives_its_server),
        STORE_TEST(a_folder_has_one_server),
        STORE_TEST(a_folder_open_to_others_is_refused),
        STORE_TEST(a_file_cut_short_is_written_again),
        STORE_TEST(a_folder_in_memory_goes_with_its_server),
        STORE_TEST(one_session_keeps_and_another_holds),
        STORE_TEST(a_name_alone_gives_nothing),
        STORE_TEST(a_file_that_was_changed_is_found_and_removed),
        STORE_TEST(what_a_client_may_ask_is_bounded),
        STORE_TEST(a_session_may_ask_anything),
        STORE_TEST(who_takes_no_answers_is_left),
        STORE_TEST(what_a_session_gets_it_cannot_write),
        cmocka_unit_test(without_a_store_nothing_is_held),
        cmocka_unit_test(pieces_cover_a_run_and_have_their_sizes),
        cmocka_unit_test(threads_share_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
