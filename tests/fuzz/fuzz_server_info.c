/* What a server says of itself (an even first byte) and of its tenants (an odd one), which commands
 * print.  What is taken holds no control characters, and what is said again is taken again, with
 * shorter names, too. */
#include <string.h>

#include "fuzz.h"
#include "serve/server_info.h"
#include "serve/tenants.h"
#include "wire/enc.h"

static struct server_info info;
static struct server_usage usage;

static void check_text(const char *text, size_t size)
{
    size_t len = strnlen(text, size);
    require(len < size);
    for (size_t i = 0; i < len; i++)
        require((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
}

static void check_info(void)
{
    const char *const texts[] = {info.version, info.commit, info.node, info.host};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        check_text(texts[i], SERVER_INFO_TEXT);
    check_text(info.devices.note, sizeof(info.devices.note));
    require(info.devices.count <= SERVE_DEVICES_MAX);
    for (uint32_t i = 0; i < info.devices.count; i++) {
        struct serve_device *device = &info.devices.items[i];
        check_text(device->name, sizeof(device->name));
        check_text(device->driver, sizeof(device->driver));
        require(device->heap_count <= SERVE_HEAPS_MAX);
        device->name[0] = 0;
    }
}

static void check_usage(void)
{
    require(usage.count <= 1 + RPC_TENANTS_MAX);
    for (uint32_t i = 0; i < usage.count; i++) {
        check_text(usage.tenants[i].name, sizeof(usage.tenants[i].name));
        usage.tenants[i].name[0] = 0;
    }
}

static void try_info(const uint8_t *data, size_t size)
{
    struct wire_enc e;
    if (server_info_decode(data, size, &info))
        return;
    check_info();
    wire_enc_init(&e, SERVER_INFO_BYTES_MAX);
    server_info_encode(&info, &e);
    require(server_info_decode(wire_enc_data(&e), wire_enc_len(&e), &info) == 0);
    wire_enc_fini(&e);
}

static void try_usage(const uint8_t *data, size_t size)
{
    struct wire_enc e;
    if (server_usage_decode(data, size, &usage))
        return;
    check_usage();
    wire_enc_init(&e, SERVER_USAGE_BYTES_MAX);
    server_usage_encode(&usage, &e);
    require(server_usage_decode(wire_enc_data(&e), wire_enc_len(&e), &usage) == 0);
    wire_enc_fini(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    (data[0] % 2 ? try_usage : try_info)(data + 1, size - 1);
    return 0;
}
