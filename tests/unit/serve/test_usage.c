/* What a server says of its tenants' GPU time, and what a peer may say in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/tenants.h"
#include "wire/enc.h"

static void every_tenant_fits(void **state)
{
    static struct server_usage said = {.measured = true, .count = 1 + RPC_TENANTS_MAX}, heard;
    struct wire_enc e;
    (void)state;
    for (uint32_t i = 0; i < said.count; i++) {
        memset(said.tenants[i].name, 'n', RPC_TENANT_NAME_CHARS - 1);
        said.tenants[i].sessions = i;
        said.tenants[i].gpu_ns = UINT64_MAX - i;
    }
    wire_enc_init(&e, SERVER_USAGE_BYTES_MAX);
    server_usage_encode(&said, &e);
    assert_int_equal(wire_enc_error(&e), 0);
    assert_int_equal(server_usage_decode(wire_enc_data(&e), wire_enc_len(&e), &heard), 0);
    assert_memory_equal(&heard, &said, sizeof(said));
    heard.count = 7;
    for (size_t cut = 0; cut < wire_enc_len(&e); cut++)
        assert_true(server_usage_decode(wire_enc_data(&e), cut, &heard) < 0);
    assert_int_equal(heard.count, 7); /* as it was */
    wire_enc_fini(&e);
}

static void names_may_be_short_and_are_cleaned(void **state)
{
    static struct server_usage said = {
        .count = 3, .tenants = {{.name = "own"}, {.name = "a"}, {.name = "\033[2J\xc2\x9b"}}};
    static struct server_usage heard;
    struct wire_enc e;
    (void)state;
    wire_enc_init(&e, SERVER_USAGE_BYTES_MAX);
    server_usage_encode(&said, &e);
    assert_int_equal(server_usage_decode(wire_enc_data(&e), wire_enc_len(&e), &heard), 0);
    assert_string_equal(heard.tenants[1].name, "a");
    assert_string_equal(heard.tenants[2].name, "?[2J??");
    wire_enc_fini(&e);
}

static void more_than_there_can_be_is_refused(void **state)
{
    static struct server_usage heard;
    struct wire_enc e;
    (void)state;
    wire_enc_init(&e, SERVER_USAGE_BYTES_MAX);
    wire_put_u8(&e, 1);
    wire_put_u32(&e, 2 + RPC_TENANTS_MAX);
    for (int i = 0; i < 2 + RPC_TENANTS_MAX; i++) {
        wire_put_str(&e, "name");
        wire_put_u32(&e, 1);
        wire_put_u64(&e, 1);
    }
    assert_true(server_usage_decode(wire_enc_data(&e), wire_enc_len(&e), &heard) < 0);
    wire_enc_fini(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tenant_fits),
        cmocka_unit_test(names_may_be_short_and_are_cleaned),
        cmocka_unit_test(more_than_there_can_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
