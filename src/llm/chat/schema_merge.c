/* Schemas that limit the same value, as one schema: parts of allOf, and what stands beside them. */
#include "llm/chat/schema_impl.h"

#include <errno.h>
#include <string.h>

static size_t count_values(const json_t *value)
{
    size_t count = 1;
    for (size_t i = 0; i < json_array_size(value); i++)
        count += count_values(json_array_get(value, i));
    for (void *at = json_object_iter((json_t *)value); at;
         at = json_object_iter_next((json_t *)value, at))
        count += count_values(json_object_iter_value(at));
    return count;
}

/* Definitions may be read once for each of many references to them. */
static void count_merged(struct schema_builder *b, size_t values)
{
    b->merged += values;
    if (b->merged > LLM_SCHEMA_MERGED_MAX)
        llm_schema_fail(b, -E2BIG, b->merging, "too much is to be merged");
}

bool llm_schema_same(struct schema_builder *b, const json_t *x, const json_t *y)
{
    if (x == y || !x || !y)
        return x == y;
    count_merged(b, count_values(x) + count_values(y));
    return !b->err && json_equal(x, y);
}

bool llm_schema_names_type(const json_t *types, const char *name)
{
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *one = json_string_value(json_array_get(types, i));
        if (one && strcmp(one, name) == 0)
            return true;
    }
    return json_is_string(types) && strcmp(json_string_value(types), name) == 0;
}

/* Of a type, and an array of types that has it, the type; other keywords must say the same. */
static json_t *narrower(struct schema_builder *b, const char *key, json_t *x, json_t *y)
{
    bool is_type = strcmp(key, "type") == 0;
    if (is_type && json_is_array(x) && json_is_string(y) &&
        llm_schema_names_type(x, json_string_value(y)))
        return y;
    if (is_type && json_is_array(y) && json_is_string(x) &&
        llm_schema_names_type(y, json_string_value(x)))
        return x;
    return llm_schema_same(b, x, y) ? x : NULL;
}

/* A schema of what both say. */
static json_t *both(json_t *x, json_t *y)
{
    if (json_is_false(x) || json_is_true(y))
        return json_incref(x);
    return json_is_false(y) || json_is_true(x) ? json_incref(y)
                                               : json_pack("{s:[OO]}", "allOf", x, y);
}

/* Adds the properties of one part.  One that is there must fit both schemas. */
static int merge_properties(struct schema_builder *b, json_t *all, json_t *more)
{
    int err = 0;
    count_merged(b, json_object_size(more));
    for (void *at = json_object_iter(more); at && !err && !b->err;
         at = json_object_iter_next(more, at)) {
        const char *name = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at), *old = json_object_get(all, name);
        if (!old)
            err = json_object_set(all, name, value);
        else if (!llm_schema_same(b, old, value))
            err = json_object_set_new(all, name, both(old, value));
    }
    return err;
}

static int merge_keyword(struct schema_builder *b, json_t *all, const char *key, json_t *value)
{
    json_t *old = json_object_get(all, key), *narrow;
    bool properties = strcmp(key, "properties") == 0 && json_is_object(value);
    bool required = strcmp(key, "required") == 0 && json_is_array(value);
    count_merged(b, 1);
    if (!old && (properties || required)) {
        count_merged(b, json_object_size(value) + json_array_size(value));
        return json_object_set_new(all, key, json_copy(value));
    }
    if (!old)
        return json_object_set(all, key, value);
    if (properties && json_is_object(old))
        return merge_properties(b, old, value);
    if (required && json_is_array(old)) {
        count_merged(b, json_array_size(value));
        return json_array_extend(old, value);
    }
    if (strcmp(key, "additionalProperties") == 0 && !llm_schema_same(b, old, value))
        return json_object_set_new(all, key, both(old, value));
    narrow = narrower(b, key, old, value);
    if (!narrow)
        llm_schema_fail(b, -EOPNOTSUPP, b->merging, "its parts say different things");
    return narrow && narrow != old ? json_object_set(all, key, narrow) : 0;
}

static bool is_annotation(const char *key)
{
    static const char *const keywords[] = {"title",    "description", "default",     "examples",
                                           "$schema",  "$defs",       "definitions", "$id",
                                           "$comment", "deprecated",  "readOnly",    "writeOnly"};
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++) {
        if (strcmp(key, keywords[i]) == 0)
            return true;
    }
    return false;
}

/* Members that the other part does not name must fit what it says of such members.  Not where that
 * is false: programs write it in each of several parts and mean that no others come. */
static int limit_others(struct schema_builder *b, json_t *properties, const json_t *named,
                        json_t *additional)
{
    int err = 0;
    if (!json_is_object(additional))
        return 0;
    count_merged(b, json_object_size(properties));
    for (void *at = json_object_iter(properties); at && !err;
         at = json_object_iter_next(properties, at)) {
        if (!json_object_get(named, json_object_iter_key(at)))
            err = json_object_iter_set_new(properties, at,
                                           both(json_object_iter_value(at), additional));
    }
    return err;
}

/* Adds the keywords of one part. */
static int merge_keywords(struct schema_builder *b, json_t *all, json_t *part)
{
    json_t *old = json_object_get(all, "properties"), *own = json_object_get(part, "properties");
    json_t *properties = json_is_object(own) ? json_copy(own) : NULL;
    int err = own && json_is_object(own) && !properties;
    if (!err)
        err = limit_others(b, properties, old, json_object_get(all, "additionalProperties"));
    if (!err)
        err = limit_others(b, old, own, json_object_get(part, "additionalProperties"));
    for (void *at = json_object_iter(part); at && !err && !b->err;
         at = json_object_iter_next(part, at)) {
        const char *key = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at);
        if (strcmp(key, "$ref") != 0 && !is_annotation(key))
            err = merge_keyword(b, all, key, value == own && properties ? properties : value);
    }
    json_decref(properties);
    return err;
}

void llm_schema_merge(struct schema_builder *b, json_t *all, const json_t *part)
{
    const json_t *ref = json_object_get(part, "$ref");
    if (++b->depth > LLM_SCHEMA_DEPTH_MAX)
        llm_schema_fail(b, -E2BIG, b->merging, "schemas nested deeper than 64");
    if (!json_is_object(part) && !json_is_true(part))
        llm_schema_fail(b, -EINVAL, b->merging, "a schema is an object or true");
    if (ref && !b->err)
        llm_schema_merge(b, all,
                         llm_schema_resolve(b, json_is_string(ref) ? json_string_value(ref) : ""));
    b->depth--;
    if (!b->err && merge_keywords(b, all, (json_t *)part))
        llm_schema_fail(b, -ENOMEM, b->merging, "out of memory");
}
