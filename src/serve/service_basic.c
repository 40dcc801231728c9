#include "serve/service_basic.h"

#include "rpc/methods.h"
#include "serve/server_info.h"
#include "wire/dec.h"
#include "wire/enc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint8_t zeros[RPC_SOURCE_MAX];

int service_basic_init(struct service_basic *s, const struct server_info *info)
{
    struct wire_enc enc;
    wire_enc_init(&enc, SERVER_INFO_BYTES_MAX);
    server_info_encode(info, &enc);
    int rc = wire_enc_error(&enc);
    uint8_t *copy = rc ? NULL : malloc(wire_enc_len(&enc));
    if (copy) {
        memcpy(copy, wire_enc_data(&enc), wire_enc_len(&enc));
        *s = (struct service_basic){.info = copy, .info_len = wire_enc_len(&enc)};
    } else if (!rc) {
        rc = -ENOMEM;
    }
    wire_enc_fini(&enc);
    return rc;
}

void service_basic_fini(struct service_basic *s)
{
    free(s->info);
    *s = (struct service_basic){0};
}

static int answer(struct rpc_ep *ep, struct rpc_msg *msg, const void *data, size_t len)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct rpc_send send = {.stream = msg->stream, .iov = &iov, .iov_count = len ? 1 : 0};
    return rpc_reply(ep, msg, 0, &send);
}

static int answer_error(struct rpc_ep *ep, struct rpc_msg *msg, int status, const char *text)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    struct rpc_send send = {.stream = msg->stream, .iov = &iov, .iov_count = 1};
    return rpc_reply(ep, msg, status, &send);
}

/* The zeros never change, so there is nothing to do when they have gone out. */
static void zeros_sent(void *user)
{
    (void)user;
}

static int answer_source(struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct wire_dec dec;
    wire_dec_init(&dec, msg->data, msg->len);
    uint32_t bytes = wire_get_u32(&dec);
    if (wire_dec_end(&dec) || bytes > RPC_SOURCE_MAX)
        return answer_error(ep, msg, -EINVAL, "source: send one u32, at most 1 MiB");
    struct iovec iov = {.iov_base = zeros, .iov_len = bytes};
    struct rpc_send send = {
        .stream = msg->stream, .iov = &iov, .iov_count = bytes ? 1 : 0, .sent = zeros_sent};
    return rpc_reply(ep, msg, 0, &send);
}

int service_basic_handle(const struct service_basic *s, struct rpc_ep *ep, struct rpc_msg *msg)
{
    if (msg->kind != RPC_CALL)
        return 0; /* SINK, and posts that nobody here knows: dropped */
    switch (msg->method) {
    case RPC_METHOD_PING:
        return answer(ep, msg, NULL, 0);
    case RPC_METHOD_ECHO:
        return answer(ep, msg, msg->data, msg->len);
    case RPC_METHOD_SOURCE:
        return answer_source(ep, msg);
    case RPC_METHOD_INFO:
        return answer(ep, msg, s->info, s->info_len);
    default:
        return answer_error(ep, msg, -ENOSYS, "this server does not offer that method");
    }
}
