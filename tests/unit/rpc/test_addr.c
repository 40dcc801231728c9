/* Addresses: every form that is taken, every one that is not, and the text that comes back. */
#include "unit.h"

#include "base/attr.h"
#include "rpc/servers.h"
#include "rpc/transport/addr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void forms_are_taken(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *path, *canonical;
        enum rpc_scheme scheme;
        uint16_t port;
        bool local;
    } forms[] = {
        {"gpu7:4711", "gpu7", "", "gpu7:4711", RPC_SCHEME_TCP, 4711, false},
        {"tcp:gpu7:4711", "gpu7", "", "gpu7:4711", RPC_SCHEME_TCP, 4711, false},
        {"TCP:gpu7:4711", "gpu7", "", "gpu7:4711", RPC_SCHEME_TCP, 4711, false},
        {"gpu7", "gpu7", "", "gpu7:28100", RPC_SCHEME_TCP, RPC_DEFAULT_PORT, false},
        {"10.0.0.7:1", "10.0.0.7", "", "10.0.0.7:1", RPC_SCHEME_TCP, 1, false},
        {"127.0.0.1:0", "127.0.0.1", "", "127.0.0.1:0", RPC_SCHEME_TCP, 0, true},
        {"127.9.9.9:65535", "127.9.9.9", "", "127.9.9.9:65535", RPC_SCHEME_TCP, 65535, true},
        {"localhost:80", "localhost", "", "localhost:80", RPC_SCHEME_TCP, 80, true},
        {"LOCALHOST", "LOCALHOST", "", "LOCALHOST:28100", RPC_SCHEME_TCP, 28100, true},
        {"[::1]:80", "::1", "", "[::1]:80", RPC_SCHEME_TCP, 80, true},
        {"[::1]", "::1", "", "[::1]:28100", RPC_SCHEME_TCP, 28100, true},
        {"[fe80::1%eth0]:9", "fe80::1%eth0", "", "[fe80::1%eth0]:9", RPC_SCHEME_TCP, 9, false},
        {"[2001:db8::7]:80", "2001:db8::7", "", "[2001:db8::7]:80", RPC_SCHEME_TCP, 80, false},
        {"*:80", "", "", "*:80", RPC_SCHEME_TCP, 80, false},
        {":80", "", "", "*:80", RPC_SCHEME_TCP, 80, false},
        {"0.0.0.0:80", "0.0.0.0", "", "0.0.0.0:80", RPC_SCHEME_TCP, 80, false},
        {"ucx:10.0.0.7:80", "10.0.0.7", "", "ucx:10.0.0.7:80", RPC_SCHEME_UCX, 80, false},
        {"ucx:localhost", "localhost", "", "ucx:localhost:28100", RPC_SCHEME_UCX, 28100, true},
        {"unix:/run/h.sock", "", "/run/h.sock", "unix:/run/h.sock", RPC_SCHEME_UNIX, 0, true},
        {"Unix:/a:b", "", "/a:b", "unix:/a:b", RPC_SCHEME_UNIX, 0, true},
        {"shm:/run/h.sock", "", "/run/h.sock", "shm:/run/h.sock", RPC_SCHEME_SHM, 0, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        struct rpc_addr addr, again;
        char why[RPC_WHY_CHARS] = "", text[300];
        if (rpc_addr_parse(forms[i].text, &addr, why))
            fail_msg("%s: %s", forms[i].text, why);
        assert_int_equal(addr.scheme, forms[i].scheme);
        assert_string_equal(addr.host, forms[i].host);
        assert_string_equal(addr.path, forms[i].path);
        assert_int_equal(addr.port, forms[i].port);
        assert_int_equal(rpc_addr_is_local(&addr), forms[i].local);
        rpc_addr_format(&addr, text, sizeof text);
        assert_string_equal(text, forms[i].canonical);
        assert_int_equal(rpc_addr_parse(text, &again, why), 0);
        assert_memory_equal(&again, &addr, sizeof addr);
    }
}

static void bad_ones_are_refused_with_a_sentence(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",          "tcp:",          "unix:",     "shm:",    "ucx:",      "host:",
        "host:x",    "host:65536",    "host:-1",   "host:1x", "host: 1",   "::1",
        "::1:80",    "[::1",          "[::1]80",   "[::1]:",  "[]:80",     "[]",
        "a:b:c",     "unix:relative", "unix:/",    "shm:rel", "host:1:2",  "host:+1",
        "[gpu7]:80", "gpu 7:80",      "gpu7/x:80", "28100",   "tcp:28100", "70000",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct rpc_addr addr;
        memset(&addr, 0x5a, sizeof addr);
        char why[RPC_WHY_CHARS] = "";
        int rc = rpc_addr_parse(bad[i], &addr, why);
        if (rc != -EINVAL)
            fail_msg("\"%s\" gives %d", bad[i], rc);
        if (!strstr(why, bad[i]) || strlen(why) < strlen(bad[i]) + 10)
            fail_msg("\"%s\" is answered with \"%s\"", bad[i], why);
        assert_int_equal(((uint8_t *)&addr)[sizeof addr - 1], 0x5a); /* written only on 0 */
    }
}

static void long_path_is_refused_with_both_lengths(void **state)
{
    (void)state;
    char text[300] = "unix:/", why[RPC_WHY_CHARS] = "";
    struct rpc_addr addr;
    memset(text + 6, 'p', RPC_ADDR_PATH_CHARS - 2);
    assert_int_equal(strlen(text) - 5, RPC_ADDR_PATH_CHARS - 1);
    assert_int_equal(rpc_addr_parse(text, &addr, why), 0);
    strcat(text, "p");
    assert_int_equal(rpc_addr_parse(text, &addr, why), -ENAMETOOLONG);
    assert_non_null(strstr(why, "108"));
    assert_non_null(strstr(why, "107"));
}

static void long_host_is_refused(void **state)
{
    (void)state;
    char text[600], why[RPC_WHY_CHARS] = "";
    struct rpc_addr addr;
    memset(text, 'h', RPC_ADDR_HOST_CHARS);
    strcpy(text + RPC_ADDR_HOST_CHARS, ":80");
    assert_int_equal(rpc_addr_parse(text, &addr, why), -EINVAL);
    assert_int_equal(rpc_addr_parse(text + 1, &addr, why), 0);
    char back[600];
    rpc_addr_format(&addr, back, sizeof back);
    assert_string_equal(back, text + 1);
}

static void expect_list(const char *const *wanted)
{
    char buf[RPC_SERVER_CHARS], text[RPC_SERVER_CHARS];
    const char *list = rpc_servers_from_env(buf);
    for (; *wanted; wanted++) {
        assert_true(rpc_servers_next(&list, text));
        assert_string_equal(text, *wanted);
    }
    assert_false(rpc_servers_next(&list, text));
}

static void servers_come_from_the_environment(void **state)
{
    (void)state;
    setenv("VENUS_SERVERS", " one:1, unix:/two ,,three:3,", 1);
    expect_list((const char *const[]){"one:1", "unix:/two", "three:3", NULL});
    setenv("VENUS_SERVERS", ", ", 1);
    expect_list((const char *const[]){NULL});
    unsetenv("VENUS_SERVERS");
    setenv("VENUS_SERVER_HOST", "::1", 1);
    setenv("VENUS_SERVER_PORT", "77", 1);
    expect_list((const char *const[]){"[::1]:77", NULL});
    setenv("VENUS_SERVER_HOST", "gpu", 1);
    unsetenv("VENUS_SERVER_PORT");
    expect_list((const char *const[]){"gpu:28100", NULL});
    unsetenv("VENUS_SERVER_HOST");
    expect_list((const char *const[]){"127.0.0.1:28100", NULL});
}

static void a_server_too_long_is_cut_to_what_no_address_is(void **state)
{
    (void)state;
    static char text[RPC_SERVER_CHARS + 100];
    char out[RPC_SERVER_CHARS], why[RPC_WHY_CHARS];
    const char *list = text;
    struct rpc_addr addr;
    memset(text, 'h', sizeof(text) - 1);
    assert_true(rpc_servers_next(&list, out));
    assert_int_equal(rpc_addr_parse(out, &addr, why), -EINVAL);
    assert_string_equal(list, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_are_taken),
        cmocka_unit_test(bad_ones_are_refused_with_a_sentence),
        cmocka_unit_test(long_path_is_refused_with_both_lengths),
        cmocka_unit_test(long_host_is_refused),
        cmocka_unit_test(servers_come_from_the_environment),
        cmocka_unit_test(a_server_too_long_is_cut_to_what_no_address_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
