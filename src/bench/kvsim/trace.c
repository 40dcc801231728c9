#include "bench/kvsim/trace.h"

#include "base/grow.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const json_int_t timestamp_max = (json_int_t)1 << 42; /* ms: a century */

struct reading {
    uint32_t *ids, *ends;
    uint64_t *at_ms;
    uint32_t id_count, request_count;
    size_t id_room, end_room, at_room;
};

static int add_id(struct reading *r, json_int_t id)
{
    if (id < 0 || id >= KV_TRACE_IDS_MAX)
        return -EPROTO;
    if (r->id_count == KV_TRACE_BLOCKS_MAX)
        return -E2BIG;
    if (!hw_grow(&r->ids, &r->id_room, (size_t)r->id_count + 1, sizeof(*r->ids)))
        return -ENOMEM;
    r->ids[r->id_count++] = (uint32_t)id;
    return 0;
}

static int add_request(struct reading *r, json_int_t at_ms)
{
    if (r->request_count == KV_TRACE_BLOCKS_MAX)
        return -E2BIG;
    size_t need = (size_t)r->request_count + 1;
    if (!hw_grow(&r->ends, &r->end_room, need, sizeof(*r->ends)) ||
        !hw_grow(&r->at_ms, &r->at_room, need, sizeof(*r->at_ms)))
        return -ENOMEM;
    r->at_ms[r->request_count] = (uint64_t)at_ms;
    r->ends[r->request_count++] = r->id_count;
    return 0;
}

/* -EPROTO when the line is no request. */
static int read_request(struct reading *r, const char *line, size_t len)
{
    json_t *root = json_loadb(line, len, 0, NULL);
    json_t *list = json_object_get(root, "hash_ids"), *item;
    json_t *stamp = json_object_get(root, "timestamp");
    json_int_t at_ms = json_integer_value(stamp);
    bool timed = !stamp || (json_is_integer(stamp) && at_ms >= 0 && at_ms <= timestamp_max);
    int rc = json_is_array(list) && timed ? 0 : -EPROTO;
    size_t i;
    json_array_foreach(list, i, item)
    {
        if (rc == 0)
            rc = add_id(r, json_is_integer(item) ? json_integer_value(item) : -1);
    }
    if (rc == 0)
        rc = add_request(r, at_ms);
    json_decref(root);
    return rc;
}

static int read_requests(struct reading *r, FILE *file, size_t *line_number)
{
    char *line = malloc(KV_TRACE_LINE_MAX + 1);
    int rc = line ? 0 : -ENOMEM;
    for (*line_number = 0; rc == 0 && fgets(line, KV_TRACE_LINE_MAX + 1, file);) {
        size_t len = strlen(line);
        ++*line_number;
        if (len == KV_TRACE_LINE_MAX && line[len - 1] != '\n')
            rc = -E2BIG;
        else if (len != 1 || line[0] != '\n')
            rc = read_request(r, line, len);
    }
    if (rc == 0 && ferror(file))
        rc = errno ? -errno : -EIO;
    free(line);
    return rc;
}

int kv_trace_read(FILE *file, struct kv_trace_file *out, size_t *line)
{
    struct reading r = {.at_ms = NULL};
    int rc = read_requests(&r, file, line);
    struct kv_trace_file read = {.trace = {.ids = r.ids,
                                           .ends = r.ends,
                                           .id_count = r.id_count,
                                           .request_count = r.request_count},
                                 .at_ms = r.at_ms};
    if (rc == 0 && r.id_count == 0)
        rc = -ENODATA;
    if (rc == 0)
        *out = read;
    else
        kv_trace_free(&read);
    return rc;
}

void kv_trace_free(struct kv_trace_file *t)
{
    free((void *)(uintptr_t)t->trace.ids);
    free((void *)(uintptr_t)t->trace.ends);
    free(t->at_ms);
}

enum cmd_exit bench_trace_read(const char *command, const char *path, struct kv_trace_file *out)
{
    size_t line;
    FILE *file = fopen(path, "re");
    if (!file)
        return cmd_fail(CMD_FAILED, "%s: %s: %s", command, path, strerror(errno));
    int rc = kv_trace_read(file, out, &line);
    fclose(file);
    if (rc == -EPROTO)
        return cmd_fail(CMD_FAILED,
                        "%s: %s: line %zu is not a JSON object with \"hash_ids\", a list of "
                        "numbers from 0 to %d, and, if any, a \"timestamp\" in milliseconds",
                        command, path, line, KV_TRACE_IDS_MAX - 1);
    if (rc == -E2BIG)
        return cmd_fail(CMD_FAILED,
                        "%s: %s: line %zu is longer than %d MiB, or the requests so far are more "
                        "than %d or have more than %d blocks",
                        command, path, line, KV_TRACE_LINE_MAX >> 20, KV_TRACE_BLOCKS_MAX,
                        KV_TRACE_BLOCKS_MAX);
    if (rc == -ENODATA)
        return cmd_fail(CMD_FAILED, "%s: %s: no request has a block", command, path);
    if (rc && line == 0)
        return cmd_fail(CMD_FAILED, "%s: %s: %s", command, path, strerror(-rc));
    if (rc)
        return cmd_fail(CMD_FAILED, "%s: %s: after line %zu: %s", command, path, line,
                        strerror(-rc));
    return CMD_DONE;
}
