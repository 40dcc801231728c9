/* What a hostile session asks of the upload cache: each question is answered, or the socket is
 * closed; and another session finds the piece that it has put, whole.
 *
 * A question is a byte and up to 24 more.  The byte's low bits say what comes with it: nothing, a
 * memfd, a pipe, or two memfds; the bit above them, that the question is cut short. */
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "fuzz.h"
#include "rpc/transport/sock.h"
#include "venus/server/upload/share.h"

enum { QUESTION = 8 + VN_NAME_BYTES, PIECE = 100, STORE_BYTES = 64 << 10, QUESTIONS_MAX = 64 };

static struct vns_upload_store *store;
static struct vns_upload_share *share;
static struct vns_upload_user *witness;
static int memory, ends[2];
static uint8_t piece[PIECE];

static void swallow(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

static void end(void)
{
    vns_upload_user_destroy(witness);
    vns_upload_share_destroy(share);
    vns_upload_store_destroy(store);
}

static void begin(void)
{
    char why[VNS_UPLOAD_STORE_WHY];
    hw_log_set_sink(swallow, NULL);
    memset(piece, 7, sizeof(piece));
    memory = memfd_create("piece", MFD_CLOEXEC);
    require(memory >= 0 && ftruncate(memory, 2 * PIECE) == 0 && pipe(ends) == 0);
    require(vns_upload_store_create(NULL, STORE_BYTES, &store, why) == 0);
    require(vns_upload_share_create(store, &share) == 0);
    require(vns_upload_user_create(vns_upload_share_invite(share), STORE_BYTES, &witness) == 0);
    require(atexit(end) == 0);
}

/* False: the server has closed the socket. */
static bool ask(int socket, uint8_t how, const uint8_t *question, size_t len)
{
    static const int counts[] = {0, 1, 1, 2};
    int fds[2] = {(how & 3) == 2 ? ends[0] : memory, memory}, count = counts[how & 3];
    struct iovec iov = {(void *)(uintptr_t)question, len};
    uint8_t answer[8];
    ssize_t sent = count ? rpc_sock_send_fds(socket, &iov, 1, fds, count)
                         : send(socket, question, len, MSG_NOSIGNAL);
    if (sent != (ssize_t)len)
        return false;
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec in = {answer, sizeof(answer)};
    struct msghdr msg = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    int fd = -1;
    ssize_t n = recvmsg(socket, &msg, 0);
    if (n > 0 && rpc_sock_take_fds(&msg, &fd, 0, 1) == 1) {
        require(write(fd, "x", 1) < 0);
        close(fd);
    }
    return n == 4;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t name[VN_NAME_BYTES], got[PIECE];
    if (!store)
        begin();
    int socket = vns_upload_share_invite(share);
    require(socket >= 0);
    bool open = true;
    for (int i = 0; open && size > 1 && i < QUESTIONS_MAX; i++) {
        uint8_t how = *data++;
        size_t len = --size < QUESTION ? size : QUESTION;
        open = ask(socket, how, data, how & 4 && len > 1 ? len / 2 : len);
        data += len;
        size -= len;
    }
    close(socket);
    require(vns_upload_user_put(witness, piece, sizeof(piece)) == 0);
    vn_piece_name(piece, sizeof(piece), name);
    require(vns_upload_user_get(witness, name, got, sizeof(got)) == 0);
    require(memcmp(got, piece, sizeof(piece)) == 0);
    return 0;
}
