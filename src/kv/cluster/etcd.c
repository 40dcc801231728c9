#include "kv/cluster/etcd.h"

#include "base/text/base64.h"
#include "base/units.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- requests ---- */

typedef char key64[HW_BASE64_CHARS(KV_ETCD_KEY_MAX)];

static void encode_key(const char *key, key64 out)
{
    size_t len = strlen(key);
    assert(len <= KV_ETCD_KEY_MAX);
    hw_base64_encode(key, len, out);
}

/* A prefix as a range: up to the first key that does not begin with it. */
static void encode_range(const char *prefix, key64 from, key64 to)
{
    char end[KV_ETCD_KEY_MAX + 1];
    size_t len = strlen(prefix);
    assert(len > 0 && len < sizeof(end) && prefix[len - 1] == '/');
    memcpy(end, prefix, len + 1);
    end[len - 1]++;
    encode_key(prefix, from);
    encode_key(end, to);
}

void kv_etcd_grant_request(uint64_t ttl_s, char out[KV_ETCD_REQUEST_MAX])
{
    snprintf(out, KV_ETCD_REQUEST_MAX, "{\"TTL\":\"%" PRIu64 "\"}", ttl_s);
}

void kv_etcd_lease_request(uint64_t lease, char out[KV_ETCD_REQUEST_MAX])
{
    snprintf(out, KV_ETCD_REQUEST_MAX, "{\"ID\":\"%" PRIu64 "\"}", lease);
}

/* What a transaction reads, as operations of it. */
typedef char reading[2 * sizeof(key64) + sizeof(key64) + 256];

static void encode_read(const struct kv_etcd_read *r, reading out)
{
    key64 from, to, era;
    encode_range(r->prefix, from, to);
    encode_key(r->era, era);
    int len = snprintf(out, sizeof(reading),
                       "{\"request_range\":{\"key\":\"%s\",\"range_end\":\"%s\",\"limit\":\"%u\","
                       "\"sort_target\":\"CREATE\",\"sort_order\":\"ASCEND\"}},"
                       "{\"request_range\":{\"key\":\"%s\"}}",
                       from, to, r->limit, era);
    assert(len > 0 && (size_t)len < sizeof(reading));
    (void)len;
}

/* A transaction; an error of ours if it does not fit. */
static void PRINTF_LIKE(2, 3) put_request(char out[KV_ETCD_REQUEST_MAX], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(out, KV_ETCD_REQUEST_MAX, fmt, args);
    va_end(args);
    assert(len > 0 && len < KV_ETCD_REQUEST_MAX);
    (void)len;
}

void kv_etcd_enter_request(const struct kv_etcd_enter *e, char out[KV_ETCD_REQUEST_MAX])
{
    key64 key, era;
    reading read;
    char value[HW_BASE64_CHARS(KV_ETCD_VALUE_MAX)];
    encode_key(e->key, key);
    encode_key(e->read.era, era);
    encode_read(&e->read, read);
    assert(strlen(e->value) <= KV_ETCD_VALUE_MAX);
    hw_base64_encode(e->value, strlen(e->value), value);
    put_request(
        out,
        "{\"compare\":[{\"target\":\"MOD\",\"key\":\"%s\",\"mod_revision\":\"%" PRIu64 "\"}],"
        "\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\",\"lease\":\"%" PRIu64
        "\"}},%s],\"failure\":[{\"request_range\":{\"key\":\"%s\"}},"
        "{\"request_range\":{\"key\":\"%s\"}}]}",
        key, e->guard, key, value, e->lease, read, key, era);
}

void kv_etcd_read_request(const struct kv_etcd_read *r, char out[KV_ETCD_REQUEST_MAX])
{
    reading read;
    encode_read(r, read);
    put_request(out, "{\"success\":[%s]}", read);
}

void kv_etcd_put_request(const char *key, const char *value, uint64_t guard,
                         char out[KV_ETCD_REQUEST_MAX])
{
    key64 key_64, value_64;
    encode_key(key, key_64);
    encode_key(value, value_64);
    put_request(out,
                "{\"compare\":[{\"target\":\"MOD\",\"key\":\"%s\",\"mod_revision\":\"%" PRIu64
                "\"}],"
                "\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\"}}]}",
                key_64, guard, key_64, value_64);
}

int kv_etcd_login_request(const char *name, const char *password, char out[KV_ETCD_REQUEST_MAX])
{
    if (strlen(name) > KV_ETCD_LOGIN_MAX || strlen(password) > KV_ETCD_LOGIN_MAX)
        return -EINVAL;
    json_t *root = json_pack("{s:s, s:s}", "name", name, "password", password);
    size_t len = root ? json_dumpb(root, out, KV_ETCD_REQUEST_MAX - 1, JSON_COMPACT) : 0;
    json_decref(root);
    if (len == 0 || len >= KV_ETCD_REQUEST_MAX)
        return -EINVAL;
    out[len] = '\0';
    return 0;
}

void kv_etcd_watch_request(const char *prefix, uint64_t revision, char out[KV_ETCD_REQUEST_MAX])
{
    key64 from, to;
    encode_range(prefix, from, to);
    snprintf(
        out, KV_ETCD_REQUEST_MAX,
        "{\"create_request\":{\"key\":\"%s\",\"range_end\":\"%s\",\"start_revision\":\"%" PRIu64
        "\"}}",
        from, to, revision);
}

/* ---- answers ---- */

static int parse(const char *text, size_t len, json_t **out)
{
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    if (!root)
        return -EBADMSG;
    if (!json_is_object(root)) {
        json_decref(root);
        return -EBADMSG;
    }
    *out = root;
    return 0;
}

/* A number, as the gateway writes it or as JSON has it; 0 when it is left out. */
static int number_of(const json_t *object, const char *name, uint64_t *out)
{
    const json_t *value = json_object_get(object, name);
    if (!value) {
        *out = 0;
        return 0;
    }
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
        return 0;
    }
    const char *text = json_string_value(value);
    return text && hw_parse_u64(text, 0, INT64_MAX, out) == 0 ? 0 : -EBADMSG;
}

/* Base64 of a text of less than `size`; "" when it is left out, longer, or not a text. */
static int text_of(const json_t *object, const char *name, char *out, size_t size)
{
    const json_t *value = json_object_get(object, name);
    size_t len = 0;
    *out = '\0';
    if (!value)
        return 0;
    if (!json_is_string(value))
        return -EBADMSG;
    int rc =
        hw_base64_decode(json_string_value(value), json_string_length(value), out, size - 1, &len);
    out[len] = '\0';
    if (rc || strlen(out) != len)
        *out = '\0';
    return rc == -EMSGSIZE ? 0 : rc;
}

static int tell_pair(const json_t *kv, bool deleted, kv_etcd_pair_fn *tell, void *user)
{
    char key[KV_ETCD_KEY_MAX + 1], value[KV_ETCD_VALUE_MAX + 1];
    struct kv_etcd_pair pair = {.key = key, .value = value, .deleted = deleted};
    int rc = json_is_object(kv) ? 0 : -EBADMSG;
    if (rc == 0)
        rc = text_of(kv, "key", key, sizeof(key));
    if (rc == 0)
        rc = text_of(kv, "value", value, sizeof(value));
    if (rc == 0)
        rc = number_of(kv, "lease", &pair.lease);
    if (rc == 0)
        rc = number_of(kv, "mod_revision", &pair.revision);
    if (rc == 0)
        tell(user, &pair);
    return rc;
}

int kv_etcd_grant_answer(const char *text, size_t len, uint64_t *lease_out, uint64_t *ttl_s_out)
{
    json_t *root;
    uint64_t lease = 0, ttl = 0;
    int rc = parse(text, len, &root);
    if (rc)
        return rc;
    rc = number_of(root, "ID", &lease);
    if (rc == 0)
        rc = number_of(root, "TTL", &ttl);
    json_decref(root);
    if (rc || lease == 0 || ttl == 0)
        return -EBADMSG;
    *lease_out = lease;
    *ttl_s_out = ttl;
    return 0;
}

int kv_etcd_renew_answer(const char *text, size_t len, uint64_t *ttl_s_out)
{
    json_t *root;
    int rc = parse(text, len, &root);
    if (rc)
        return rc;
    const json_t *result = json_object_get(root, "result");
    rc = json_is_object(result) ? number_of(result, "TTL", ttl_s_out) : -EBADMSG;
    json_decref(root);
    return rc;
}

/* The pairs of all that a transaction read; it read something. */
static int tell_ranges(const json_t *root, kv_etcd_pair_fn *tell, void *user)
{
    const json_t *responses = json_object_get(root, "responses");
    bool any = false;
    int rc = 0;
    for (size_t i = 0; i < json_array_size(responses); i++) {
        const json_t *range = json_object_get(json_array_get(responses, i), "response_range");
        const json_t *kvs = json_object_get(range, "kvs");
        any = any || json_is_object(range);
        for (size_t k = 0; k < json_array_size(kvs) && rc == 0; k++)
            rc = tell_pair(json_array_get(kvs, k), false, tell, user);
    }
    return any ? rc : -EBADMSG;
}

int kv_etcd_put_answer(const char *text, size_t len, bool *done_out)
{
    json_t *root;
    uint64_t revision;
    int rc = parse(text, len, &root);
    if (rc)
        return rc;
    rc = number_of(json_object_get(root, "header"), "revision", &revision);
    if (rc == 0 && revision == 0)
        rc = -EBADMSG;
    if (rc == 0)
        *done_out = json_is_true(json_object_get(root, "succeeded"));
    json_decref(root);
    return rc;
}

int kv_etcd_enter_answer(const char *text, size_t len, kv_etcd_pair_fn *tell, void *user,
                         struct kv_etcd_entered *out)
{
    json_t *root;
    int rc = parse(text, len, &root);
    if (rc)
        return rc;
    struct kv_etcd_entered entered = {.done = json_is_true(json_object_get(root, "succeeded"))};
    rc = number_of(json_object_get(root, "header"), "revision", &entered.revision);
    if (rc == 0 && entered.revision == 0)
        rc = -EBADMSG;
    if (rc == 0)
        rc = tell_ranges(root, tell, user);
    json_decref(root);
    if (rc == 0)
        *out = entered;
    return rc;
}

static int tell_event(const json_t *event, kv_etcd_pair_fn *tell, void *user)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    return tell_pair(json_object_get(event, "kv"), type && strcmp(type, "DELETE") == 0, tell, user);
}

int kv_etcd_watch_answer(const char *text, size_t len, kv_etcd_pair_fn *tell, void *user,
                         struct kv_etcd_news *out)
{
    json_t *root;
    int rc = parse(text, len, &root);
    if (rc)
        return rc;
    const json_t *result = json_object_get(root, "result");
    const json_t *events = json_object_get(result, "events");
    uint64_t compact = 0, revision = 0;
    rc = json_is_object(result) ? number_of(result, "compact_revision", &compact) : -EBADMSG;
    if (rc == 0)
        rc = number_of(json_object_get(result, "header"), "revision", &revision);
    for (size_t i = 0; i < json_array_size(events) && rc == 0; i++)
        rc = tell_event(json_array_get(events, i), tell, user);
    if (rc == 0)
        *out = (struct kv_etcd_news){.revision = revision,
                                     .ended = json_is_true(json_object_get(result, "canceled")),
                                     .compacted = compact > 0};
    json_decref(root);
    return rc;
}

int kv_etcd_login_answer(const char *text, size_t len, char token_out[KV_ETCD_TOKEN_CHARS])
{
    json_t *root;
    int rc = parse(text, len, &root);
    if (rc)
        return rc;
    const char *token = json_string_value(json_object_get(root, "token"));
    size_t chars = token ? strlen(token) : 0;
    bool fits = chars > 0 && chars < KV_ETCD_TOKEN_CHARS;
    for (size_t i = 0; i < chars; i++)
        fits = fits && token[i] > ' ' && token[i] <= '~'; /* it becomes a line of a header */
    if (fits)
        memcpy(token_out, token, chars + 1);
    json_decref(root);
    return fits ? 0 : -EBADMSG;
}

/* {"error":"...", ...} of an exchange; {"error":{"message":"...", ...}} in a stream. */
void kv_etcd_error_answer(const char *text, size_t len, char out[RPC_WHY_CHARS])
{
    json_t *root;
    *out = '\0';
    if (parse(text, len, &root))
        return;
    const json_t *error = json_object_get(root, "error");
    const char *words =
        json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);
    if (words)
        snprintf(out, RPC_WHY_CHARS, "%.*s", RPC_WHY_CHARS / 2, words);
    json_decref(root);
}
