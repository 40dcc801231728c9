/* etcd's messages: what we ask, as it wants it; what it answers, as an etcd 3.4 wrote it, and what
 * it might. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/attr.h"
#include "base/text/base64.h"
#include "kv/cluster/etcd.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- base64 ---- */

static void base64_of_known_texts(void **state)
{
    static const char *const known[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xff\xfe\xfd", "//79"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        char text[16], bytes[16];
        size_t len;
        hw_base64_encode(known[i][0], strlen(known[i][0]), text);
        assert_string_equal(text, known[i][1]);
        assert_int_equal(hw_base64_decode(text, strlen(text), bytes, 6, &len), 0);
        assert_int_equal(len, strlen(known[i][0]));
        assert_memory_equal(bytes, known[i][0], len);
    }
}

static void base64_has_one_form(void **state)
{
    static const char *const bad[] = {"Zg",    "Zg=",      "Z===", "====", "Zh==", "Zm9=",
                                      "Zm9v=", "Zg==Zg==", "Zm 9", "Zm9-", "=m9v", "Z=9v"};
    char bytes[16];
    size_t len;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (hw_base64_decode(bad[i], strlen(bad[i]), bytes, sizeof(bytes), &len) != -EBADMSG)
            fail_msg("taken: %s", bad[i]);
    assert_int_equal(hw_base64_decode("Zm9v", 4, bytes, 2, &len), -EMSGSIZE);
}

/* ---- requests ---- */

/* The member at a path such as "success/0/request_put", decoded when it is base64. */
static const char *at(json_t *root, const char *path)
{
    char copy[128], *rest = copy;
    json_t *value = root;
    snprintf(copy, sizeof(copy), "%s", path);
    for (char *name; (name = strsep(&rest, "/"));)
        value = json_is_array(value) ? json_array_get(value, (size_t)atoi(name))
                                     : json_object_get(value, name);
    return json_string_value(value);
}

static const char *decoded_at(json_t *root, const char *path)
{
    static char text[KV_ETCD_KEY_MAX + 1];
    const char *base64 = at(root, path);
    size_t len;
    assert_non_null(base64);
    assert_int_equal(hw_base64_decode(base64, strlen(base64), text, sizeof(text) - 1, &len), 0);
    text[len] = '\0';
    return text;
}

static void requests_say_what_was_asked(void **state)
{
    char json[KV_ETCD_REQUEST_MAX];
    struct kv_etcd_enter enter = {
        .read = {.prefix = "/hawser/c/members/", .era = "/hawser/c/era", .limit = 64},
        .key = "/hawser/c/members/a",
        .value = "10.0.0.1:28200",
        .lease = UINT64_C(7587898926143098120),
        .guard = 17};
    (void)state;
    kv_etcd_enter_request(&enter, json);
    json_t *root = json_loads(json, 0, NULL);
    assert_non_null(root);
    assert_string_equal(at(root, "compare/0/target"), "MOD");
    assert_string_equal(at(root, "compare/0/mod_revision"), "17");
    assert_string_equal(decoded_at(root, "compare/0/key"), enter.key);
    assert_string_equal(decoded_at(root, "success/0/request_put/key"), enter.key);
    assert_string_equal(decoded_at(root, "success/0/request_put/value"), enter.value);
    assert_string_equal(at(root, "success/0/request_put/lease"), "7587898926143098120");
    assert_string_equal(decoded_at(root, "success/1/request_range/key"), enter.read.prefix);
    assert_string_equal(decoded_at(root, "success/1/request_range/range_end"),
                        "/hawser/c/members0");
    assert_string_equal(at(root, "success/1/request_range/limit"), "64");
    assert_string_equal(decoded_at(root, "success/2/request_range/key"), enter.read.era);
    assert_string_equal(decoded_at(root, "failure/0/request_range/key"), enter.key);
    assert_string_equal(decoded_at(root, "failure/1/request_range/key"), enter.read.era);
    json_decref(root);
    kv_etcd_read_request(&enter.read, json);
    root = json_loads(json, 0, NULL);
    assert_null(json_object_get(root, "compare"));
    assert_string_equal(decoded_at(root, "success/0/request_range/key"), enter.read.prefix);
    assert_string_equal(decoded_at(root, "success/1/request_range/key"), enter.read.era);
    json_decref(root);
    kv_etcd_put_request("/hawser/c/era", "3", 9, json);
    root = json_loads(json, 0, NULL);
    assert_string_equal(at(root, "compare/0/mod_revision"), "9");
    assert_string_equal(decoded_at(root, "success/0/request_put/value"), "3");
    assert_null(at(root, "success/0/request_put/lease"));
    json_decref(root);
    assert_int_equal(kv_etcd_login_request("a", "\xff", json), -EINVAL);
    kv_etcd_watch_request("/p/", 5, json);
    root = json_loads(json, 0, NULL);
    assert_string_equal(decoded_at(root, "create_request/key"), "/p/");
    assert_string_equal(decoded_at(root, "create_request/range_end"), "/p0");
    assert_string_equal(at(root, "create_request/start_revision"), "5");
    json_decref(root);
    kv_etcd_grant_request(10, json);
    assert_string_equal(json, "{\"TTL\":\"10\"}");
    kv_etcd_lease_request(5, json);
    assert_string_equal(json, "{\"ID\":\"5\"}");
}

static void the_longest_request_fits(void **state)
{
    char json[KV_ETCD_REQUEST_MAX], key[KV_ETCD_KEY_MAX + 1], value[KV_ETCD_VALUE_MAX + 1];
    struct kv_etcd_enter enter = {.read = {.prefix = key, .era = key, .limit = UINT32_MAX},
                                  .key = key,
                                  .value = value,
                                  .lease = INT64_MAX,
                                  .guard = INT64_MAX};
    (void)state;
    memset(key, '/', KV_ETCD_KEY_MAX);
    memset(value, 'v', KV_ETCD_VALUE_MAX);
    key[KV_ETCD_KEY_MAX] = value[KV_ETCD_VALUE_MAX] = '\0';
    kv_etcd_enter_request(&enter, json);
    json_t *root = json_loads(json, 0, NULL);
    assert_non_null(root);
    json_decref(root);
}

/* ---- answers ---- */

#define HEADER "\"header\":{\"cluster_id\":\"14841639068965178418\",\"revision\":\"7\"}"
#define PAIR                                                                                       \
    "{\"key\":\"L2gvYQ==\",\"create_revision\":\"2\",\"mod_revision\":\"6\",\"version\":\"1\","    \
    "\"value\":\"YWRkcg==\",\"lease\":\"7587898926143098120\"}"

struct told {
    uint32_t count;
    char text[256];
};

static void tell(void *user, const struct kv_etcd_pair *p)
{
    struct told *t = user;
    size_t len = strlen(t->text);
    t->count++;
    snprintf(t->text + len, sizeof(t->text) - len, "%s%s=%s@%llu;", p->deleted ? "-" : "", p->key,
             p->value, (unsigned long long)p->revision);
}

static void leases_are_granted_and_kept(void **state)
{
    static const char granted[] = "{" HEADER ",\"ID\":\"7587898926143098118\",\"TTL\":\"2\"}";
    static const char kept[] = "{\"result\":{" HEADER ",\"ID\":\"5\",\"TTL\":\"2\"}}\n";
    static const char gone[] = "{\"result\":{" HEADER ",\"ID\":\"12345\"}}\n";
    uint64_t lease = 0, ttl = 0;
    (void)state;
    assert_int_equal(kv_etcd_grant_answer(granted, strlen(granted), &lease, &ttl), 0);
    assert_true(lease == UINT64_C(7587898926143098118) && ttl == 2);
    assert_int_equal(kv_etcd_renew_answer(kept, strlen(kept), &ttl), 0);
    assert_int_equal(ttl, 2);
    assert_int_equal(kv_etcd_renew_answer(gone, strlen(gone), &ttl), 0);
    assert_int_equal(ttl, 0);
    /* Numbers as JSON has them are fine too. */
    assert_int_equal(kv_etcd_grant_answer("{\"ID\":3,\"TTL\":9}", 16, &lease, &ttl), 0);
    assert_true(lease == 3 && ttl == 9);
}

static void entering_tells_all_keys_or_who_is_in_the_way(void **state)
{
    static const char done[] =
        "{" HEADER ",\"succeeded\":true,\"responses\":["
        "{\"response_put\":{\"header\":{\"revision\":\"7\"}}},"
        "{\"response_range\":{\"kvs\":[" PAIR "," PAIR "],\"count\":\"2\"}}]}";
    static const char held[] =
        "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[" PAIR "],\"count\":\"1\"}}]}";
    static const char vanished[] = "{" HEADER ",\"responses\":[{\"response_range\":{}}]}";
    struct kv_etcd_entered e = {0};
    struct told t = {0};
    (void)state;
    assert_int_equal(kv_etcd_enter_answer(done, strlen(done), tell, &t, &e), 0);
    assert_true(e.done && e.revision == 7);
    assert_string_equal(t.text, "/h/a=addr@6;/h/a=addr@6;");
    t = (struct told){0};
    assert_int_equal(kv_etcd_enter_answer(held, strlen(held), tell, &t, &e), 0);
    assert_false(e.done);
    assert_string_equal(t.text, "/h/a=addr@6;");
    t = (struct told){0};
    assert_int_equal(kv_etcd_enter_answer(vanished, strlen(vanished), tell, &t, &e), 0);
    assert_true(!e.done && t.count == 0);
}

static void a_watch_tells_changes_and_its_end(void **state)
{
    static const char created[] = "{\"result\":{" HEADER ",\"created\":true}}";
    static const char events[] =
        "{\"result\":{" HEADER ",\"events\":[{\"kv\":" PAIR "},"
        "{\"type\":\"DELETE\",\"kv\":{\"key\":\"L2gvYQ==\",\"mod_revision\":\"7\"}}]}}";
    static const char forgotten[] =
        "{\"result\":{" HEADER ",\"canceled\":true,\"compact_revision\":\"3\"}}";
    struct kv_etcd_news news;
    struct told t = {0};
    (void)state;
    assert_int_equal(kv_etcd_watch_answer(created, strlen(created), tell, &t, &news), 0);
    assert_true(!news.ended && !news.compacted && news.revision == 7 && t.count == 0);
    assert_int_equal(kv_etcd_watch_answer(events, strlen(events), tell, &t, &news), 0);
    assert_string_equal(t.text, "/h/a=addr@6;-/h/a=@7;");
    assert_int_equal(kv_etcd_watch_answer(forgotten, strlen(forgotten), tell, &t, &news), 0);
    assert_true(news.ended && news.compacted);
}

static void what_does_not_fit_or_is_no_text_is_empty(void **state)
{
    char line[4096], bytes[KV_ETCD_VALUE_MAX + 1];
    char base64[HW_BASE64_CHARS(sizeof(bytes))];
    struct kv_etcd_news news;
    struct told t = {0};
    (void)state;
    memset(bytes, 'v', sizeof(bytes));
    hw_base64_encode(bytes, sizeof(bytes), base64);
    snprintf(line, sizeof(line),
             "{\"result\":{\"events\":[{\"kv\":{\"key\":\"L2gvYQ==\",\"value\":\"%s\"}},"
             "{\"kv\":{\"key\":\"AGE=\"}}]}}",
             base64);
    assert_int_equal(kv_etcd_watch_answer(line, strlen(line), tell, &t, &news), 0);
    assert_string_equal(t.text, "/h/a=@0;=@0;");
}

static void errors_are_told_in_etcds_words(void **state)
{
    static const char once[] = "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}";
    static const char streamed[] = "{\"error\":{\"grpc_code\":14,\"message\":\"no leader\"}}";
    char why[RPC_WHY_CHARS];
    (void)state;
    kv_etcd_error_answer(once, strlen(once), why);
    assert_string_equal(why, "etcdserver: requested lease not found");
    kv_etcd_error_answer(streamed, strlen(streamed), why);
    assert_string_equal(why, "no leader");
    kv_etcd_error_answer("<html>", 6, why);
    assert_string_equal(why, "");
}

static long allocations_left, live;

static void *take_memory(size_t size)
{
    if (allocations_left-- <= 0)
        return NULL;
    live++;
    return malloc(size);
}

static void give_memory(void *memory)
{
    live -= memory != NULL;
    free(memory);
}

static void memory_that_runs_out_is_not_lost(void **state)
{
    static const char line[] = "{\"result\":{" HEADER ",\"events\":[{\"kv\":" PAIR "}]}}";
    struct kv_etcd_news news;
    struct told t = {0};
    int rc = -EBADMSG;
    (void)state;
    json_set_alloc_funcs(take_memory, give_memory);
    for (long granted = 0; rc && granted < 1000; granted++) {
        allocations_left = granted;
        rc = kv_etcd_watch_answer(line, strlen(line), tell, &t, &news);
        assert_true(rc == 0 || rc == -EBADMSG);
        assert_int_equal(live, 0);
        assert_int_equal(t.count, rc == 0);
    }
    json_set_alloc_funcs(malloc, free);
    assert_int_equal(rc, 0);
}

static void what_is_no_answer_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{",
        "null",
        "{} {}",
        "{\"result\":[]}",
        "{\"result\":{\"TTL\":\"-1\",\"compact_revision\":\"-1\"},\"ID\":\"-1\"}",
        "{\"result\":{\"TTL\":1.5,\"compact_revision\":1.5},\"ID\":1.5}",
        "{\"result\":{\"TTL\":[],\"compact_revision\":{}},\"ID\":true}",
        "{\"result\":{\"TTL\":\"1\",\"TTL\":\"1\"}}",
        "{\"result\":{\"TTL\":\"9223372036854775808\",\"compact_revision\":\"9223372036854775808\"}"
        ","
        "\"ID\":\"9223372036854775808\",\"TTL\":\"1\"}",
    };
    static const char *const bad_entries[] = {
        "{\"header\":{\"revision\":\"0\"},\"succeeded\":true}",
        "{" HEADER ",\"succeeded\":true,\"responses\":[{},{}]}",
    };
    static const char *const bad_pairs[] = {"5",
                                            "{\"key\":5}",
                                            "{\"key\":\"a\"}",
                                            "{\"key\":\"L2gvYQ==\",\"value\":\"!!!!\"}",
                                            "{\"key\":\"L2gvYQ==\",\"mod_revision\":\"x\"}",
                                            "{\"lease\":\"-1\"}"};
    uint64_t lease = 77, ttl = 77;
    struct kv_etcd_entered e = {.revision = 77};
    struct kv_etcd_news news = {.ended = true};
    struct told t = {0};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        size_t len = strlen(bad[i]);
        assert_int_equal(kv_etcd_grant_answer(bad[i], len, &lease, &ttl), -EBADMSG);
        assert_int_equal(kv_etcd_enter_answer(bad[i], len, tell, &t, &e), -EBADMSG);
        assert_int_equal(kv_etcd_renew_answer(bad[i], len, &ttl), -EBADMSG);
        assert_int_equal(kv_etcd_watch_answer(bad[i], len, tell, &t, &news), -EBADMSG);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad_entries); i++)
        assert_int_equal(kv_etcd_enter_answer(bad_entries[i], strlen(bad_entries[i]), tell, &t, &e),
                         -EBADMSG);
    for (size_t i = 0; i < ARRAY_LEN(bad_pairs); i++) {
        char line[256];
        snprintf(line, sizeof(line), "{\"result\":{\"events\":[{\"kv\":%s}]}}", bad_pairs[i]);
        assert_int_equal(kv_etcd_watch_answer(line, strlen(line), tell, &t, &news), -EBADMSG);
    }
    assert_true(lease == 77 && ttl == 77 && e.revision == 77 && news.ended && t.count == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_of_known_texts),
        cmocka_unit_test(base64_has_one_form),
        cmocka_unit_test(requests_say_what_was_asked),
        cmocka_unit_test(the_longest_request_fits),
        cmocka_unit_test(leases_are_granted_and_kept),
        cmocka_unit_test(entering_tells_all_keys_or_who_is_in_the_way),
        cmocka_unit_test(a_watch_tells_changes_and_its_end),
        cmocka_unit_test(what_does_not_fit_or_is_no_text_is_empty),
        cmocka_unit_test(errors_are_told_in_etcds_words),
        cmocka_unit_test(memory_that_runs_out_is_not_lost),
        cmocka_unit_test(what_is_no_answer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
