/* Security settings: which files are taken, which are refused and in what words; the token's
 * proof; keygen. */
#include "rpc/security/security.h"
#include "rpc/security/tlsctx.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATH_CHARS = 128 };

static char dir[PATH_CHARS]; /* fresh for each test */

static const char *in_dir(const char *name, char path[2 * PATH_CHARS])
{
    snprintf(path, 2 * PATH_CHARS, "%s/%s", dir, name);
    return path;
}

static void put_file(const char *name, const void *data, size_t len, mode_t mode)
{
    char path[2 * PATH_CHARS];
    int fd = open(in_dir(name, path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static size_t get_file(const char *name, char *buf, size_t size)
{
    char path[2 * PATH_CHARS];
    FILE *f = fopen(in_dir(name, path), "r");
    assert_non_null(f);
    size_t len = fread(buf, 1, size, f);
    fclose(f);
    return len;
}

static mode_t mode_of(const char *name)
{
    char path[2 * PATH_CHARS];
    struct stat st;
    assert_int_equal(stat(in_dir(name, path), &st), 0);
    return st.st_mode & 07777;
}

static int files_in(const char *path)
{
    DIR *d = opendir(path);
    int count = 0;
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));)
        count += entry->d_name[0] != '.';
    closedir(d);
    return count;
}

static void keygen_here(char fingerprint[RPC_FINGERPRINT_CHARS])
{
    char why[RPC_WHY_CHARS];
    assert_int_equal(rpc_keygen(dir, NULL, 0, 30, fingerprint, why), 0);
}

static void expect_load(const struct rpc_security_files *files, bool server, int rc,
                        const char *words)
{
    struct rpc_security sec, untouched;
    char why[RPC_WHY_CHARS] = "";
    memset(&sec, 0x5a, sizeof sec);
    untouched = sec;
    assert_int_equal(rpc_security_load(&sec, files, server, why), rc);
    assert_non_null(strstr(why, words));
    assert_memory_equal(&sec, &untouched, sizeof sec);
}

/* ---- tokens ---- */

static void expect_token(const char *content, size_t len, const char *token, size_t token_len)
{
    struct rpc_security sec;
    char path[2 * PATH_CHARS], why[RPC_WHY_CHARS];
    struct rpc_security_files files = {.token_file = in_dir("t", path)};
    put_file("t", content, len, 0600);
    assert_int_equal(rpc_security_load(&sec, &files, true, why), 0);
    assert_int_equal(sec.token_len, token_len);
    assert_memory_equal(sec.token, token, token_len);
    assert_null(sec.tls);
    rpc_security_fini(&sec);
    assert_int_equal(sec.token_len, 0);
    assert_int_equal(sec.token[0], 0);
}

static void one_line_end_is_not_part_of_the_token(void **state)
{
    (void)state;
    expect_token("0123456789abcdef", 16, "0123456789abcdef", 16);
    expect_token("0123456789abcdef\n", 17, "0123456789abcdef", 16);
    expect_token("0123456789abcdef\r\n", 18, "0123456789abcdef", 16);
    expect_token("0123456789abcdef\n\n", 18, "0123456789abcdef\n", 17);
}

static void token_length_is_bounded(void **state)
{
    (void)state;
    char path[2 * PATH_CHARS], text[RPC_TOKEN_BYTES_MAX + 8];
    struct rpc_security_files files = {.token_file = in_dir("t", path)};
    memset(text, 'x', sizeof text);
    expect_token(text, RPC_TOKEN_BYTES_MAX, text, RPC_TOKEN_BYTES_MAX);
    put_file("t", text, RPC_TOKEN_BYTES_MIN - 1, 0600);
    expect_load(&files, true, -EINVAL, "16 to 256 bytes, this one 15");
    put_file("t", text, RPC_TOKEN_BYTES_MAX + 1, 0600);
    expect_load(&files, true, -EINVAL, "this one 257");
    put_file("t", text, sizeof text, 0600);
    expect_load(&files, true, -EFBIG, path);
    put_file("t", "\n", 1, 0600);
    expect_load(&files, true, -EINVAL, "this one 0");
}

static void files_that_others_may_use_are_refused(void **state)
{
    (void)state;
    char path[2 * PATH_CHARS], remedy[3 * PATH_CHARS];
    struct rpc_security_files files = {.token_file = in_dir("t", path)};
    static const mode_t bad[] = {0640, 0604, 0660, 0601};
    snprintf(remedy, sizeof remedy, "chmod 600 %s", path);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        put_file("t", "0123456789abcdef", 16, bad[i]);
        expect_load(&files, true, -EACCES, remedy);
        expect_load(&files, false, -EACCES, remedy);
    }
    put_file("t", "0123456789abcdef", 16, 0400);
    struct rpc_security sec;
    char why[RPC_WHY_CHARS];
    assert_int_equal(rpc_security_load(&sec, &files, false, why), 0);
    rpc_security_fini(&sec);
}

static void what_is_no_file_is_refused_without_waiting(void **state)
{
    (void)state;
    char path[2 * PATH_CHARS];
    struct rpc_security_files files = {.token_file = in_dir("fifo", path)};
    expect_load(&files, true, -ENOENT, path);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_load(&files, true, -EINVAL, "not a regular file");
    files.token_file = dir;
    expect_load(&files, true, -EINVAL, "not a regular file");
}

static void proof_is_as_computed_elsewhere(void **state)
{
    (void)state;
    /* Python: hmac.new(token, b"".join(struct.pack("<Q", len(p)) + p for p in
     * (b"hawser test", b"abc", b"", bytes(range(32)))), "sha256") */
    static const uint8_t expected[32] = {0x10, 0xe2, 0x54, 0xc5, 0x1e, 0xf3, 0x8a, 0x41,
                                         0x23, 0xb2, 0xdb, 0x3b, 0x47, 0x47, 0x52, 0xae,
                                         0xe7, 0xe4, 0x05, 0xb1, 0x5a, 0x13, 0xdd, 0x47,
                                         0x5f, 0x4b, 0x07, 0x09, 0x64, 0xfd, 0x3b, 0x8b};
    struct rpc_security sec = {.token = "0123456789abcdef0123456789abcdef", .token_len = 32};
    uint8_t ramp[32], mac[32];
    for (int i = 0; i < 32; i++)
        ramp[i] = (uint8_t)i;
    struct rpc_bytes parts[] = {{"abc", 3}, {NULL, 0}, {ramp, sizeof ramp}};
    assert_int_equal(rpc_token_mac((struct rpc_bytes){sec.token, sec.token_len}, "hawser test",
                                   parts, ARRAY_LEN(parts), mac),
                     0);
    assert_memory_equal(mac, expected, sizeof mac);
    assert_true(rpc_token_mac_equal(mac, expected));
    mac[31] ^= 0x80;
    assert_false(rpc_token_mac_equal(mac, expected));
    sec.token_len = 0;
    assert_int_equal(rpc_token_mac((struct rpc_bytes){sec.token, sec.token_len}, "hawser test",
                                   parts, ARRAY_LEN(parts), mac),
                     -ENOKEY);
}

static void bytes_cannot_move_between_the_parts_of_a_proof(void **state)
{
    (void)state;
    struct rpc_security sec = {.token = "0123456789abcdef", .token_len = 16};
    struct rpc_bytes one[] = {{"ab", 2}, {"c", 1}}, two[] = {{"a", 1}, {"bc", 2}};
    uint8_t mac_one[32], mac_two[32];
    assert_int_equal(
        rpc_token_mac((struct rpc_bytes){sec.token, sec.token_len}, "l", one, 2, mac_one), 0);
    assert_int_equal(
        rpc_token_mac((struct rpc_bytes){sec.token, sec.token_len}, "l", two, 2, mac_two), 0);
    assert_false(rpc_token_mac_equal(mac_one, mac_two));
}

/* ---- certificates and keys ---- */

static void server_needs_both_and_both_must_match(void **state)
{
    (void)state;
    char fingerprint[RPC_FINGERPRINT_CHARS], why[RPC_WHY_CHARS];
    char cert[2 * PATH_CHARS], key[2 * PATH_CHARS], stranger[2 * PATH_CHARS];
    keygen_here(fingerprint);
    struct rpc_security_files files = {.certificate = in_dir("server.crt", cert)};
    expect_load(&files, true, -EINVAL, "needs its key too");
    files = (struct rpc_security_files){.key = in_dir("server.key", key)};
    expect_load(&files, true, -EINVAL, "needs its certificate too");

    files.certificate = cert;
    struct rpc_security sec;
    assert_int_equal(rpc_security_load(&sec, &files, true, why), 0);
    assert_non_null(sec.tls);
    rpc_security_fini(&sec);

    EVP_PKEY *other = EVP_EC_gen("P-256");
    FILE *f = fopen(in_dir("stranger", stranger), "w");
    PEM_write_PrivateKey(f, other, NULL, NULL, 0, NULL, NULL);
    fclose(f);
    chmod(stranger, 0600);
    files.key = stranger;
    expect_load(&files, true, -EINVAL, "does not belong to the certificate");

    unsigned char phrase[] = "phrase";
    f = fopen(stranger, "w");
    PEM_write_PrivateKey(f, other, EVP_aes_128_cbc(), phrase, 6, NULL, NULL);
    fclose(f);
    expect_load(&files, true, -EINVAL, "has a passphrase");
    EVP_PKEY_free(other);

    put_file("stranger", "nonsense", 8, 0600);
    expect_load(&files, true, -EINVAL, "no PEM private key");
    files.key = key;
    files.certificate = stranger;
    expect_load(&files, true, -EINVAL, "no usable PEM certificate");
    files.certificate = cert;
    chmod(key, 0644);
    expect_load(&files, true, -EACCES, "chmod 600");
}

static void client_knows_its_server_by_ca_or_fingerprint(void **state)
{
    (void)state;
    char fingerprint[RPC_FINGERPRINT_CHARS], colons[3 * RPC_FINGERPRINT_BYTES], *at = colons;
    char cert[2 * PATH_CHARS], why[RPC_WHY_CHARS];
    struct rpc_security sec;
    keygen_here(fingerprint);
    in_dir("server.crt", cert);
    for (int i = 0; i < RPC_FINGERPRINT_BYTES; i++)
        at += sprintf(at, "%s%c%c", i ? ":" : "", fingerprint[2 * i], fingerprint[2 * i + 1]);

    const struct rpc_security_files good[] = {
        {.ca = cert}, {.fingerprint = fingerprint}, {.fingerprint = colons}};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(rpc_security_load(&sec, &good[i], false, why), 0);
        assert_non_null(sec.tls);
        rpc_security_fini(&sec);
    }
    struct rpc_security_files none = {.ca = "", .fingerprint = ""};
    assert_int_equal(rpc_security_load(&sec, &none, false, why), 0);
    assert_null(sec.tls);
    rpc_security_fini(&sec);
}

static void settings_of_the_other_side_are_refused(void **state)
{
    (void)state;
    struct rpc_security_files client = {.certificate = "x"}, server = {.fingerprint = "x"};
    expect_load(&client, false, -EINVAL, "give the server's CA or fingerprint");
    expect_load(&server, true, -EINVAL, "a server takes no fingerprint");
    put_file("empty", "", 0, 0600);
    char path[2 * PATH_CHARS];
    struct rpc_security_files ca = {.ca = in_dir("empty", path)};
    expect_load(&ca, false, -EINVAL, "no usable PEM certificate");
}

static void malformed_fingerprints_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "00",
        "zz00000000000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000000000000000000000000000000000000000000",
        "00000000000000000000000000000000000000000000000000000000000000000",
        ":0000000000000000000000000000000000000000000000000000000000000000",
        "0:000000000000000000000000000000000000000000000000000000000000000"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct rpc_security_files files = {.fingerprint = bad[i]};
        expect_load(&files, false, -EDOM, "64 hex digits");
    }
}

static void environment_is_read_and_named_when_bad(void **state)
{
    (void)state;
    char fingerprint[RPC_FINGERPRINT_CHARS], why[RPC_WHY_CHARS], path[2 * PATH_CHARS];
    struct rpc_security sec;
    keygen_here(fingerprint);
    setenv("VENUS_TLS_FINGERPRINT", fingerprint, 1);
    setenv("VENUS_TLS_CA", in_dir("server.crt", path), 1);
    setenv("VENUS_TOKEN_FILE", in_dir("token", path), 1);
    assert_int_equal(rpc_security_from_env(&sec, NULL, why), 0);
    assert_int_equal(sec.token_len, 64);
    assert_non_null(sec.tls);
    rpc_security_fini(&sec);

    setenv("VENUS_TLS_FINGERPRINT", "12", 1);
    assert_int_equal(rpc_security_from_env(&sec, NULL, why), -EDOM);
    assert_non_null(strstr(why, "VENUS_TLS_FINGERPRINT \"12\""));
    setenv("VENUS_TLS_FINGERPRINT", "", 1);
    setenv("VENUS_TLS_CA", in_dir("missing", path), 1);
    assert_int_equal(rpc_security_from_env(&sec, NULL, why), -ENOENT);
    assert_non_null(strstr(why, "VENUS_TLS_CA"));
    unsetenv("VENUS_TLS_CA");
    setenv("VENUS_TOKEN_FILE", path, 1);
    assert_int_equal(rpc_security_from_env(&sec, NULL, why), -ENOENT);
    assert_non_null(strstr(why, "VENUS_TOKEN_FILE"));
    unsetenv("VENUS_TOKEN_FILE");
    unsetenv("VENUS_TLS_FINGERPRINT");
    setenv("XDG_STATE_HOME", in_dir("empty-state", path), 1);
    assert_int_equal(rpc_security_from_env(&sec, NULL, why), 0);
    assert_true(sec.tls == NULL && sec.token_len == 0);
}

static void a_server_makes_the_host_token_and_clients_find_it(void **state)
{
    (void)state;
    char path[2 * PATH_CHARS], why[RPC_WHY_CHARS];
    struct rpc_security server = {0}, again = {0}, client;
    setenv("XDG_STATE_HOME", in_dir("state", path), 1);
    assert_int_equal(rpc_security_make_host_token(&server, why), 0);
    assert_int_equal(rpc_security_make_host_token(&again, why), 0);
    assert_int_equal(rpc_security_from_env(&client, NULL, why), 0);
    assert_true(server.host_token && again.host_token && client.host_token);
    assert_int_equal(server.token_len, 2 * RPC_KEYGEN_TOKEN_BYTES);
    assert_int_equal(client.token_len, server.token_len);
    assert_memory_equal(server.token, again.token, server.token_len);
    assert_memory_equal(server.token, client.token, server.token_len);
    struct stat st;
    assert_int_equal(stat(in_dir("state/hawser/token", path), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    struct rpc_security_files files = {.token_file = "none"};
    assert_int_equal(rpc_security_from_env(&client, &files, why), 0);
    assert_int_equal(client.token_len, 0);
    files.token_file = in_dir("none-such", path);
    assert_int_equal(rpc_security_from_env(&client, &files, why), -ENOENT);
    unsetenv("XDG_STATE_HOME");
}

/* ---- listening ---- */

static int check(const struct rpc_security *sec, const char *address, bool insecure,
                 char why[RPC_WHY_CHARS])
{
    struct rpc_addr addr;
    assert_int_equal(rpc_addr_parse(address, &addr, why), 0);
    return rpc_security_check_listen(sec, &addr, insecure, why);
}

static void open_addresses_need_tls_and_a_token(void **state)
{
    (void)state;
    char fingerprint[RPC_FINGERPRINT_CHARS], why[RPC_WHY_CHARS];
    char cert[2 * PATH_CHARS], key[2 * PATH_CHARS], token[2 * PATH_CHARS];
    keygen_here(fingerprint);
    struct rpc_security_files files = {.certificate = in_dir("server.crt", cert),
                                       .key = in_dir("server.key", key),
                                       .token_file = in_dir("token", token)};
    struct rpc_security full;
    assert_int_equal(rpc_security_load(&full, &files, true, why), 0);
    struct rpc_security only_tls = {.tls = full.tls}, only_token = full;
    only_token.tls = NULL;

    assert_int_equal(check(NULL, "127.0.0.1:1", false, why), 0);
    assert_int_equal(check(NULL, "unix:/x", false, why), 0);
    assert_int_equal(check(&full, "0.0.0.0:1", false, why), 0);
    assert_int_equal(check(NULL, "0.0.0.0:1", false, why), -EPERM);
    assert_non_null(strstr(why, "no TLS and no token"));
    assert_int_equal(check(&only_tls, "0.0.0.0:1", false, why), -EPERM);
    assert_non_null(strstr(why, "no token"));
    assert_int_equal(check(&only_token, "[::]:1", false, why), -EPERM);
    assert_non_null(strstr(why, "no TLS"));
    assert_int_equal(check(&full, "ucx:10.0.0.1:1", false, why), -EPERM);
    assert_non_null(strstr(why, "trusted networks only"));
    assert_int_equal(check(NULL, "0.0.0.0:1", true, why), 0);
    assert_int_equal(check(&full, "ucx:10.0.0.1:1", true, why), 0);
    rpc_security_fini(&full);
}

/* ---- keygen ---- */

static void keygen_makes_private_files(void **state)
{
    (void)state;
    char fingerprint[RPC_FINGERPRINT_CHARS], why[RPC_WHY_CHARS], text[128];
    char fresh[2 * PATH_CHARS];
    in_dir("fresh", fresh);
    mode_t before = umask(0);
    int rc = rpc_keygen(fresh, NULL, 0, 30, fingerprint, why);
    umask(before);
    assert_int_equal(rc, 0);
    assert_int_equal(mode_of("fresh"), 0700);
    assert_int_equal(mode_of("fresh/server.key"), 0600);
    assert_int_equal(mode_of("fresh/token"), 0600);
    assert_int_equal(mode_of("fresh/server.crt"), 0644);
    assert_int_equal(files_in(fresh), 3);
    assert_int_equal(get_file("fresh/token", text, sizeof text), 65);
    assert_int_equal(text[64], '\n');
    assert_int_equal(strspn(text, "0123456789abcdef"), 64);
}

static void keygen_certificate_is_for_the_names_given(void **state)
{
    (void)state;
    static const char *const names[] = {"gpu.example", "10.1.2.3", "fd00::7"};
    char fingerprint[RPC_FINGERPRINT_CHARS], seen[RPC_FINGERPRINT_CHARS], why[RPC_WHY_CHARS];
    char path[2 * PATH_CHARS];
    uint8_t digest[RPC_FINGERPRINT_BYTES];
    assert_int_equal(rpc_keygen(dir, names, ARRAY_LEN(names), 30, fingerprint, why), 0);
    FILE *f = fopen(in_dir("server.crt", path), "r");
    X509 *cert = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    assert_non_null(cert);
    assert_int_equal(rpc_fingerprint_of(cert, digest), 0);
    rpc_fingerprint_format(digest, seen);
    assert_string_equal(seen, fingerprint);
    assert_int_equal(X509_check_host(cert, "gpu.example", 0, 0, NULL), 1);
    assert_int_equal(X509_check_host(cert, "other.example", 0, 0, NULL), 0);
    assert_int_equal(X509_check_ip_asc(cert, "10.1.2.3", 0), 1);
    assert_int_equal(X509_check_ip_asc(cert, "fd00::7", 0), 1);
    assert_int_equal(X509_check_purpose(cert, X509_PURPOSE_SSL_SERVER, 0), 1);
    assert_int_equal(X509_check_purpose(cert, X509_PURPOSE_SSL_CLIENT, 0), 0);
    assert_int_equal(X509_check_ca(cert), 0);
    X509_free(cert);
}

static void keygen_overwrites_nothing_and_leaves_nothing_behind(void **state)
{
    (void)state;
    static const char *const files[] = {"server.crt", "server.key", "token"};
    char fingerprint[RPC_FINGERPRINT_CHARS] = "-", why[RPC_WHY_CHARS], text[8];
    char path[2 * PATH_CHARS];
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        put_file(files[i], "mine", 4, 0600);
        assert_int_equal(rpc_keygen(dir, NULL, 0, 30, fingerprint, why), -EEXIST);
        assert_non_null(strstr(why, files[i]));
        assert_string_equal(fingerprint, "-");
        assert_int_equal(files_in(dir), 1);
        assert_int_equal(get_file(files[i], text, sizeof text), 4);
        assert_memory_equal(text, "mine", 4);
        unlink(in_dir(files[i], path));
    }
    in_dir("no/such", path);
    assert_int_equal(rpc_keygen(path, NULL, 0, 30, fingerprint, why), -ENOENT);
    put_file("file", "", 0, 0600);
    in_dir("file", path);
    assert_int_equal(rpc_keygen(path, NULL, 0, 30, fingerprint, why), -ENOTDIR);
    assert_int_equal(files_in(dir), 1);
}

static void keygen_refuses_bad_names_and_days(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "a b", "x,IP:1.2.3.4", "caf\xc3\xa9.example"};
    const char *many[RPC_KEYGEN_NAMES_MAX + 1];
    char fingerprint[RPC_FINGERPRINT_CHARS], why[RPC_WHY_CHARS];
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(rpc_keygen(dir, &bad[i], 1, 30, fingerprint, why), -EINVAL);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = "localhost";
    assert_int_equal(rpc_keygen(dir, many, ARRAY_LEN(many), 30, fingerprint, why), -EINVAL);
    assert_int_equal(rpc_keygen(dir, NULL, 0, 0, fingerprint, why), -EINVAL);
    assert_int_equal(rpc_keygen(dir, NULL, 0, RPC_KEYGEN_DAYS_MAX + 1, fingerprint, why), -EINVAL);
    assert_int_equal(files_in(dir), 0);
}

/* ---- */

static int fresh_dir(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%.80s/hawser-test-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static void remove_tree(const char *path)
{
    char child[4 * PATH_CHARS];
    DIR *d = opendir(path);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        if (unlink(child) != 0)
            remove_tree(child);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static int drop_dir(void **state)
{
    (void)state;
    remove_tree(dir);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_line_end_is_not_part_of_the_token),
        TEST(token_length_is_bounded),
        TEST(files_that_others_may_use_are_refused),
        TEST(what_is_no_file_is_refused_without_waiting),
        TEST(proof_is_as_computed_elsewhere),
        TEST(bytes_cannot_move_between_the_parts_of_a_proof),
        TEST(server_needs_both_and_both_must_match),
        TEST(client_knows_its_server_by_ca_or_fingerprint),
        TEST(settings_of_the_other_side_are_refused),
        TEST(malformed_fingerprints_are_refused),
        TEST(environment_is_read_and_named_when_bad),
        TEST(a_server_makes_the_host_token_and_clients_find_it),
        TEST(open_addresses_need_tls_and_a_token),
        TEST(keygen_makes_private_files),
        TEST(keygen_certificate_is_for_the_names_given),
        TEST(keygen_overwrites_nothing_and_leaves_nothing_behind),
        TEST(keygen_refuses_bad_names_and_days),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
