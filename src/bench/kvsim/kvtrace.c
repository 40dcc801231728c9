#include "bench/kvsim/kvtrace.h"

#include <errno.h>
#include <string.h>

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
    if (rc == -ENODATA)
        return cmd_fail(CMD_FAILED, "%s: %s: no request has a block", command, path);
    if (rc)
        return cmd_fail(CMD_FAILED, "%s: %s: line %zu: %s", command, path, line, strerror(-rc));
    return CMD_DONE;
}
