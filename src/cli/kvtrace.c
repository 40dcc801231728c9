#include "cli/kvtrace.h"

#include <errno.h>
#include <string.h>

enum cli_exit cli_trace_read(const char *command, const char *path, struct kv_trace_file *out)
{
    size_t line;
    FILE *file = fopen(path, "re");
    if (!file)
        return cli_fail(CLI_FAILED, "%s: %s: %s", command, path, strerror(errno));
    int rc = kv_trace_read(file, out, &line);
    fclose(file);
    if (rc == -EPROTO)
        return cli_fail(CLI_FAILED,
                        "%s: %s: line %zu is not a JSON object with \"hash_ids\", a list of "
                        "numbers from 0 to %d, and, if any, a \"timestamp\" in milliseconds",
                        command, path, line, KV_TRACE_IDS_MAX - 1);
    if (rc == -ENODATA)
        return cli_fail(CLI_FAILED, "%s: %s: no request has a block", command, path);
    if (rc)
        return cli_fail(CLI_FAILED, "%s: %s: line %zu: %s", command, path, line, strerror(-rc));
    return CLI_DONE;
}
