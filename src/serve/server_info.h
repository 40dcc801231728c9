/* serve/server_info.h - what a server says about itself, and its form on the wire.
 *
 * Trust: decoding takes a peer's bytes; every text is bounded and cleaned of control characters,
 * because it ends up on a terminal.
 * Threads: any.  Lifetime: values. */
#ifndef HAWSER_SERVE_SERVER_INFO_H
#define HAWSER_SERVE_SERVER_INFO_H

#include "base/attr.h"
#include "base/report/bench.h"
#include "serve/devices.h"

#include <stddef.h>
#include <stdint.h>

struct wire_dec;
struct wire_enc;

enum {
    SERVER_INFO_TEXT = HW_BENCH_HOST_CHARS, /* the longest of its texts but the devices' */
    SERVER_INFO_BYTES_MAX = 32 << 10        /* encoded: every device with every heap fits */
};

struct server_info {
    char version[SERVER_INFO_TEXT];
    char commit[SERVER_INFO_TEXT];
    char node[SERVER_INFO_TEXT]; /* the host's name */
    char host[SERVER_INFO_TEXT]; /* what it is: architecture, CPUs */
    uint32_t protocol_min, protocol_max;
    struct serve_devices devices;
};

/* Of this process; devices are left to the caller. */
void server_info_self(struct server_info *info);

/* Any text of a server's: as wire_get_str_copy, cleaned. */
void server_text_get(struct wire_dec *dec, char *out, size_t size);

/* The encoder holds the error. */
void server_info_encode(const struct server_info *info, struct wire_enc *enc);
/* 0, -EPROTO, -EMSGSIZE or -ENOMEM; *out is written only on 0. */
int server_info_decode(const void *data, size_t len, struct server_info *out) MUST_CHECK;

#endif
