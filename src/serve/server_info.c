#include "serve/server_info.h"

#include "base/text/controls.h"
#include "rpc/rpc.h"
#include "wire/dec.h"
#include "wire/enc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void server_info_self(struct server_info *info)
{
    memset(info, 0, sizeof(*info));
    snprintf(info->version, sizeof(info->version), "%s", HAWSER_VERSION);
    snprintf(info->commit, sizeof(info->commit), "%s", hw_bench_commit());
    hw_bench_host(info->host);
    if (gethostname(info->node, sizeof(info->node) - 1))
        snprintf(info->node, sizeof(info->node), "unknown");
    info->protocol_min = RPC_VERSION_MIN;
    info->protocol_max = RPC_VERSION_MAX;
}

static void encode_device(const struct serve_device *d, struct wire_enc *enc)
{
    wire_put_str(enc, d->name);
    wire_put_str(enc, d->driver);
    wire_put_u32(enc, d->type);
    wire_put_u32(enc, d->api_version);
    wire_put_u32(enc, d->vendor_id);
    wire_put_u32(enc, d->device_id);
    wire_put_u32(enc, d->heap_count);
    for (uint32_t i = 0; i < d->heap_count; i++) {
        wire_put_u64(enc, d->heaps[i].bytes);
        wire_put_u8(enc, d->heaps[i].device_local);
    }
}

void server_info_encode(const struct server_info *info, struct wire_enc *enc)
{
    wire_put_str(enc, info->version);
    wire_put_str(enc, info->commit);
    wire_put_str(enc, info->node);
    wire_put_str(enc, info->host);
    wire_put_u32(enc, info->protocol_min);
    wire_put_u32(enc, info->protocol_max);
    wire_put_str(enc, info->devices.note);
    wire_put_u32(enc, info->devices.count);
    for (uint32_t i = 0; i < info->devices.count; i++)
        encode_device(&info->devices.items[i], enc);
}

void server_text_get(struct wire_dec *dec, char *out, size_t size)
{
    wire_get_str_copy(dec, out, size);
    hw_blank_controls_of(out);
}

static void decode_device(struct wire_dec *dec, struct serve_device *d)
{
    server_text_get(dec, d->name, sizeof(d->name));
    server_text_get(dec, d->driver, sizeof(d->driver));
    d->type = wire_get_u32(dec);
    d->api_version = wire_get_u32(dec);
    d->vendor_id = wire_get_u32(dec);
    d->device_id = wire_get_u32(dec);
    d->heap_count = wire_dec_count(dec, 9, SERVE_HEAPS_MAX);
    for (uint32_t i = 0; i < d->heap_count; i++) {
        d->heaps[i].bytes = wire_get_u64(dec);
        d->heaps[i].device_local = wire_get_u8(dec) != 0;
    }
}

static int decode(struct wire_dec *dec, struct server_info *info)
{
    server_text_get(dec, info->version, sizeof(info->version));
    server_text_get(dec, info->commit, sizeof(info->commit));
    server_text_get(dec, info->node, sizeof(info->node));
    server_text_get(dec, info->host, sizeof(info->host));
    info->protocol_min = wire_get_u32(dec);
    info->protocol_max = wire_get_u32(dec);
    server_text_get(dec, info->devices.note, sizeof(info->devices.note));
    info->devices.count = wire_dec_count(dec, 22, SERVE_DEVICES_MAX);
    for (uint32_t i = 0; i < info->devices.count; i++)
        decode_device(dec, &info->devices.items[i]);
    return wire_dec_end(dec);
}

int server_info_decode(const void *data, size_t len, struct server_info *out)
{
    struct wire_dec dec;
    struct server_info *info = calloc(1, sizeof(*info));
    if (!info)
        return -ENOMEM;
    wire_dec_init(&dec, data, len);
    int rc = decode(&dec, info);
    if (rc == 0)
        *out = *info;
    free(info);
    return rc;
}
