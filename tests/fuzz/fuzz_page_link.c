/* What a worker answers its scheduler, through the scheduler's own link.  The input is a row of
 * records {u8 kind, u16 bytes, bytes}: a call of the kind is answered with the bytes, or by an
 * error, or not at all.  Whatever comes, each call ends, and a command's answer has a code for
 * each of its ids. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "fuzz.h"
#include "page/broadcast/link.h"
#include "rpc/transport/net.h"
#include "server.h"
#include "wire/le.h"

enum { COMMAND, INFO, TRIM, CALLS, FAILS = 0x40, SILENT = 0x80, HEAD = 3, IDS = 3 };

int __wrap_rpc_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                    struct rpc_transport **out, char why[RPC_WHY_CHARS]);

int __wrap_rpc_dial(const struct rpc_addr *addr, const struct rpc_net_options *options,
                    struct rpc_transport **out, char why[RPC_WHY_CHARS])
{
    (void)addr, (void)options, (void)why;
    *out = server_start();
    return 0;
}

static void send_command(struct page_link *link)
{
    static struct page_command command = {
        .epoch = 1, .seq = 1, .op = PAGE_OP_MAP, .count = IDS, .ids = {0, 1, 2}};
    static struct page_answer answer;
    memset(&answer, 0xff, sizeof(answer));
    if (page_link_send(link, &command, &answer) == 0)
        page_link_wait(link, HW_NEVER);
    require(answer.outcome.why.rc <= 0);
    for (int i = 0; i < IDS; i++)
        require(answer.outcome.codes[i] != 0xff);
}

static void ask_info(struct page_link *link)
{
    struct page_error why;
    struct page_info info;
    if (page_link_info(link, HW_NEVER, &info, &why))
        return;
    require(memchr(info.backend, 0, sizeof(info.backend)) != NULL);
    require(memchr(info.device, 0, sizeof(info.device)) != NULL);
}

static void trim(struct page_link *link)
{
    struct page_error why;
    uint64_t bytes;
    (void)!page_link_trim(link, HW_NEVER, &bytes, &why);
}

static void call(struct page_link *link, uint8_t kind, const uint8_t *data, size_t len)
{
    static void (*const calls[CALLS])(struct page_link * link) = {send_command, ask_info, trim};
    if (kind & SILENT)
        server_answer_nothing();
    else
        server_answer(kind & FAILS ? -EIO : 0, data, len);
    calls[(kind & (FAILS - 1)) % CALLS](link);
}

static void say_nothing(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct page_error why;
    struct page_link *link;
    hw_log_set_sink(say_nothing, NULL);
    require(page_link_open("worker", HW_SEC, &link, &why) == 0);
    while (size >= HEAD) {
        size_t len = wire_load16(data + 1), left = size - HEAD;
        len = len < left ? len : left;
        call(link, data[0], data + HEAD, len);
        data += HEAD + len;
        size = left - len;
    }
    page_link_close(link);
    server_end();
    return 0;
}
