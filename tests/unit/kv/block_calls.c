#include "block_calls.h"

#include "unit.h"

#include "kv/daemon/host.h"

#include <stdio.h>
#include <stdlib.h>

void *run_host(void *host)
{
    kv_host_run(host);
    return NULL;
}

struct kv_client *open_client(const char *socket, uint32_t staging_bytes)
{
    struct kv_client_options options = {
        .socket = socket, .staging_bytes = staging_bytes, .timeout_ns = 240 * HW_SEC};
    struct kv_client *client = NULL;
    char why[RPC_WHY_CHARS] = "";
    if (kv_client_open(&options, &client, why))
        fail_msg("%s", why);
    return client;
}

struct kv_block_key key_of(uint32_t n)
{
    struct kv_block_key key;
    char name[24];
    assert_int_equal(
        kv_block_key_set(&key, name, (size_t)snprintf(name, sizeof(name), "block %u", n)), 0);
    return key;
}

uint8_t *bytes_of(uint32_t n, size_t len)
{
    uint8_t *data = malloc(len);
    assert_non_null(data);
    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)(i * 7 + i / 4096 + n);
    return data;
}

enum kv_result put(struct kv_client *c, uint32_t n, uint32_t len)
{
    struct kv_block_key key = key_of(n);
    uint8_t *data = bytes_of(n, len);
    enum kv_result result = kv_block_put(c, &key, 1, data, len);
    free(data);
    return result;
}

void expect(struct kv_client *c, uint32_t n, uint32_t len)
{
    struct kv_block_key key = key_of(n);
    uint8_t *want = bytes_of(n, len), *got = calloc(1, len);
    uint32_t got_len = 0;
    assert_non_null(got);
    assert_int_equal(kv_block_get(c, &key, got, len, &got_len), KV_OK);
    assert_int_equal(got_len, len);
    assert_memory_equal(got, want, len);
    free(got);
    free(want);
}

struct kv_blocks_stat stat_of(struct kv_client *c)
{
    struct kv_blocks_stat s = {0};
    assert_int_equal(kv_block_stat(c, &s), KV_OK);
    return s;
}
