#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/http/keys.h"

static char path[] = "/tmp/hawser-keys.XXXXXX";

static void write_keys(const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void keys_are_found_and_no_others(void **state)
{
    (void)state;
    struct http_keys keys;
    char why[RPC_WHY_CHARS];
    write_keys("# ours\n0123456789abcdef\n\r\nsecond-key-of-the-file\r\n", 0600);
    assert_int_equal(http_keys_load(&keys, path, why), 0);
    assert_int_equal(keys.count, 2);
    assert_ptr_equal(http_keys_find(&keys, "Bearer 0123456789abcdef", NULL), &keys.items[0]);
    assert_ptr_equal(http_keys_find(&keys, "bearer second-key-of-the-file", NULL), &keys.items[1]);
    assert_null(http_keys_find(&keys, NULL, NULL));
    assert_null(http_keys_find(&keys, "", NULL));
    assert_null(http_keys_find(&keys, "Bearer ", NULL));
    assert_null(http_keys_find(&keys, "Bearer 0123456789abcde", NULL));
    assert_null(http_keys_find(&keys, "Bearer 0123456789abcdef0", NULL));
    assert_null(http_keys_find(&keys, "Bearer # ours", NULL));
    assert_null(http_keys_find(&keys, "0123456789abcdef", NULL));
    assert_ptr_equal(http_keys_find(&keys, NULL, "0123456789abcdef"), &keys.items[0]);
    assert_ptr_equal(http_keys_find(&keys, "Bearer x", "0123456789abcdef"), &keys.items[0]);
    assert_null(http_keys_find(&keys, NULL, "Bearer 0123456789abcdef"));
    http_keys_fini(&keys);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    struct http_keys keys;
    char why[RPC_WHY_CHARS];
    write_keys("0123456789abcdef\n", 0644);
    assert_true(http_keys_load(&keys, path, why) < 0);
    assert_non_null(strstr(why, "chmod 600"));
    write_keys("0123456789abcdef\nshort\n", 0600);
    assert_true(http_keys_load(&keys, path, why) < 0);
    assert_non_null(strstr(why, "line 2"));
    write_keys("# none\n", 0600);
    assert_true(http_keys_load(&keys, path, why) < 0);
    assert_non_null(strstr(why, "no key"));
    assert_true(http_keys_load(&keys, "/nonexistent", why) < 0);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    close(fd);
    return fd < 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_found_and_no_others),
        cmocka_unit_test(bad_files_are_refused),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
