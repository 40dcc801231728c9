/* What the user gave for a front: its options, files that they name, and whether it may start. */
#include "serve/http/impl.h"

#include "command/connect.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    PEM_BYTES_MAX = 1 << 20,
    SPARE_FILES = 64 /* beside connections: workers, threads' own, the model's */
};

#define AT(field) offsetof(struct http_options, field)
const struct cmd_option http_table[] = {
    {"http", 0, CMD_STRING, AT(http),
     "answer OpenAI's and Anthropic's clients over HTTP at host:port; beyond this host it needs "
     "--cert, --key and "
     "--api-key-file, or --insecure",
     "ADDR"},
    {"api-key-file", 0, CMD_STRING, AT(api_key_file),
     "HTTP clients must send one of these keys, a line each (mode 0600)", "FILE"},
    {"max-requests", 0, CMD_U64, AT(max_requests),
     "HTTP requests for a text at a time; the next is answered 429", "N", "256", 1, 65536},
    {"max-requests-per-key", 0, CMD_U64, AT(max_requests_per_key), "the same for each API key", "N",
     "64", 1, 65536},
    {"max-tokens-per-key", 0, CMD_U64, AT(max_tokens_per_key),
     "tokens of the prompts that an API key has under way; over it, 429, and 400 where one request "
     "is over it alone [default: no limit]",
     "N", NULL, 0, UINT32_MAX},
    {"share-per-key", 0, CMD_U64, AT(share_per_key),
     "of the workers' places and KV that texts of one API key may take; its others wait [default: "
     "75 where there are several keys, else 100]",
     "PERCENT", NULL, 1, 100},
    {"worker-wait", 0, CMD_DURATION, AT(wait_ns),
     "how long a text waits for a worker that can compute it, then fails", "TIME", "30s", HW_MS,
     3600 * HW_SEC},
    {"client-timeout", 0, CMD_DURATION, AT(client_ns),
     "close connections of HTTP clients that take longer to send a request, or to read an answer "
     "that is complete; a second more for each 16 KiB",
     "TIME", "120s", HW_SEC, 3600 * HW_SEC},
    {"stop-timeout", 0, CMD_DURATION, AT(stop_ns),
     "after SIGINT, SIGTERM or SIGHUP, let HTTP requests under way go on for so long, and refuse "
     "new ones; a second signal ends at once",
     "TIME", "10s", 0, 3600 * HW_SEC},
    {"cors", 0, CMD_LIST, AT(cors),
     "let pages of this origin ask over HTTP and read the answers, scheme://host[:port], or '*' "
     "for "
     "all pages [default: none but the server's own]",
     "ORIGIN"},
    {NULL},
};

/* A name that is not known is told before anybody is asked for a certificate. */
static enum cmd_exit read_address(struct http_config *c)
{
    const struct http_front_options *o = &c->options;
    const char *host_end = strrchr(o->at, ']');
    enum cmd_exit code = cmd_listen_read(o->command, "--http", o->at, &c->addr);
    if (code != CMD_DONE)
        return code;
    if (c->addr.scheme != RPC_SCHEME_TCP)
        return cmd_fail(CMD_USAGE, "%s: --http: '%s' is not host:port", o->command, o->at);
    if (!strchr(host_end ? host_end : o->at, ':'))
        c->addr.port = HTTP_DEFAULT_PORT;
    return CMD_DONE;
}

static enum cmd_exit check(struct http_config *c)
{
    const struct http_front_options *o = &c->options;
    char text[RPC_ADDR_HOST_CHARS + 16];
    rpc_addr_format(&c->addr, text, sizeof(text));
    if (rpc_addr_is_local(&c->addr) || (o->cert && c->keys.count > 0))
        return CMD_DONE;
    if (!o->insecure)
        return cmd_fail(CMD_REFUSED,
                        "%s: --http: %s is not on this host: give --cert, --key and "
                        "--api-key-file, or --insecure to answer everybody without TLS or key",
                        o->command, text);
    return CMD_DONE;
}

static enum cmd_exit load(struct http_config *c)
{
    const struct http_front_options *o = &c->options;
    char why[RPC_WHY_CHARS] = "out of memory";
    size_t len;
    if (c->limits.api_key_file && http_keys_load(&c->keys, c->limits.api_key_file, why))
        return cmd_fail(CMD_FAILED, "%s: %s", o->command, why);
    if (!o->cert)
        return CMD_DONE;
    if (rpc_security_read("--cert", o->cert, false, PEM_BYTES_MAX, &c->cert, &len, why) ||
        rpc_security_read("--key", o->key, true, PEM_BYTES_MAX, &c->key, &len, why))
        return cmd_fail(CMD_FAILED, "%s: %s", o->command, why);
    return CMD_DONE;
}

enum cmd_exit http_config_read(struct http_config *c, const struct http_front_options *options)
{
    c->options = *options;
    c->limits = *options->limits;
    enum cmd_exit code = read_address(c);
    if (code == CMD_DONE)
        code = http_cors_check(options->command, &c->limits);
    if (code == CMD_DONE)
        code = load(c);
    return code == CMD_DONE ? check(c) : code;
}

void http_config_fini(struct http_config *c)
{
    http_keys_fini(&c->keys);
    free(c->cert);
    free(c->key);
}

enum cmd_exit http_front_check(const struct http_front_options *options)
{
    struct http_config c = {0};
    enum cmd_exit code = http_config_read(&c, options);
    http_config_fini(&c);
    return code;
}

unsigned http_config_connections(const struct http_config *c)
{
    return (unsigned)c->limits.max_requests + HTTP_SPARE_CONNECTIONS;
}

static void warn_if_open(const struct http_config *c)
{
    char text[RPC_ADDR_HOST_CHARS + 16];
    rpc_addr_format(&c->addr, text, sizeof(text));
    if (!rpc_addr_is_local(&c->addr) && !(c->cert && c->keys.count > 0))
        cmd_warn("--insecure: http://%s is open to whoever reaches it", text);
    if (http_cors_is_open(&c->limits) && !c->keys.count)
        cmd_warn("--cors '*' without --api-key-file: every page that a browser here shows can use "
                 "the models");
}

/* libmicrohttpd stops accepting without a word when there are none left. */
static void warn_if_few_files(const struct http_config *c)
{
    struct rlimit files;
    unsigned needed = http_config_connections(c) + SPARE_FILES;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < needed)
        cmd_warn("%s: at most %llu files may be open, too few for --max-requests %llu: raise the "
                 "limit to "
                 "%u with ulimit -n, or LimitNOFILE= in its unit",
                 c->options.command, (unsigned long long)files.rlim_cur,
                 (unsigned long long)c->limits.max_requests, needed);
}

void http_config_warn(const struct http_config *c)
{
    warn_if_open(c);
    warn_if_few_files(c);
}
