/* The way to a server, step by step: name, connection, TLS, token, protocol, speed. */
#include "cli/doctor/doctor.h"

#include "base/units.h"
#include "cli/survey.h"
#include "rpc/servers.h"
#include "rpc/transport/addr.h"
#include "venus/common/protocol.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *or_variable(const char *given, const char *name)
{
    return given ? given : getenv(name);
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

/* ---- keys ---- */

static void say_file(struct doctor *d, const char *what, const char *path)
{
    struct stat st;
    if (path && *path && stat(path, &st) == 0)
        doctor_say(d, DOCTOR_OK, what, NULL, "%s, mode %04o", path, (unsigned)st.st_mode & 07777);
}

static bool load_keys(struct doctor *d, struct rpc_security *out)
{
    char why[RPC_WHY_CHARS];
    if (cmd_read_security(d->connect, out, why)) {
        doctor_fail(d, CMD_FAILED, "keys", NULL, "%s", why);
        return false;
    }
    say_file(d, "token", or_variable(d->connect->token_file, "VENUS_TOKEN_FILE"));
    say_file(d, "TLS", or_variable(d->connect->ca, "VENUS_TLS_CA"));
    if (out->tls || (out->token_len && !out->host_token))
        return true;
    doctor_say(d, DOCTOR_OK, "keys", NULL,
               "neither TLS nor a token is set: enough for servers of this user on this machine");
    return true;
}

/* ---- the name ---- */

static void addresses_text(const struct addrinfo *list, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (; list && at < size; list = list->ai_next) {
        char text[64];
        if (getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof(text), NULL, 0,
                        NI_NUMERICHOST))
            continue;
        at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", text);
    }
}

static bool check_name(struct doctor *d, const struct rpc_addr *addr)
{
    char text[256];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    if (addr->scheme != RPC_SCHEME_TCP && addr->scheme != RPC_SCHEME_UCX)
        return true;
    int rc = getaddrinfo(addr->host, NULL, &hints, &list);
    if (rc) {
        doctor_fail(d, CMD_UNREACHABLE, "name",
                    "check the name; a number such as 10.0.0.7:28100 does without DNS", "%s: %s",
                    addr->host, gai_strerror(rc));
        return false;
    }
    addresses_text(list, text, sizeof(text));
    freeaddrinfo(list);
    if (strcmp(text, addr->host) != 0)
        doctor_say(d, DOCTOR_OK, "name", NULL, "%s is %s", addr->host, text);
    return true;
}

/* ---- what it says ---- */

static const char *remedy_of(const struct cmd_link *link, enum cmd_exit code)
{
    if (code == CMD_UNREACHABLE && link->addr.scheme == RPC_SCHEME_TCP)
        return "is the server up, at that address, and does a firewall let the port through?";
    if (code == CMD_UNREACHABLE)
        return "is the server up, with that path in --listen, and on this machine?";
    return "the guide's troubleshooting.md explains the message";
}

static void check_protocol(struct doctor *d, const struct survey *s)
{
    uint32_t spoken = rpc_ep_peer_capabilities(s->link.ep) & VN_CAPABILITY_PROTOCOL;
    const struct server_info *info = &s->server;
    if (spoken != VN_PROTOCOL)
        doctor_fail(d, CMD_REFUSED, "protocol", "use the same release of hawser at both ends",
                    "it speaks version %u of the Vulkan protocol (0: none), this side version %u",
                    spoken, VN_PROTOCOL);
    else if (strcmp(info->version, HAWSER_VERSION) != 0)
        doctor_say(d, DOCTOR_WARNING, "protocol",
                   "they understand each other; use the same release where you can",
                   "the server is hawser %s, this is hawser %s", info->version, HAWSER_VERSION);
    else
        doctor_say(d, DOCTOR_OK, "protocol", NULL,
                   "hawser %s (commit %s) on %s, Vulkan protocol %u", info->version, info->commit,
                   info->node, spoken);
}

static void check_offer(struct doctor *d, const struct survey *s)
{
    const struct serve_devices *devices = &s->server.devices;
    for (uint32_t i = 0; i < devices->count; i++)
        doctor_say(d, DOCTOR_OK, "remote GPU", NULL, "%s (%s)", devices->items[i].name,
                   serve_device_type_name(devices->items[i].type));
    for (uint32_t i = 0; i < s->served.model_count; i++)
        doctor_say(
            d, s->served.draining || s->served.incomplete ? DOCTOR_WARNING : DOCTOR_OK, "model",
            s->served.draining     ? "hawser drain --undo ADDR"
            : s->served.incomplete ? "start the lost stage or peer again: the server's log names it"
                                   : NULL,
            "%s (%s), %s", s->served.models[i].name, s->served.models[i].arch,
            llm_served_state(&s->served));
    if (devices->count == 0 && s->served.model_count == 0)
        doctor_say(d, DOCTOR_WARNING, "remote GPU",
                   "on the server: install the GPU's Vulkan driver, or start it with --software",
                   "none: %s", devices->note);
}

static void check_speed(struct doctor *d, struct survey *s)
{
    int rc = survey_rtt(s, d->duration_ns);
    if (rc == 0)
        rc = survey_up(s, d->duration_ns);
    if (rc == 0)
        rc = survey_down(s, d->duration_ns);
    if (rc)
        doctor_fail(d, CMD_UNREACHABLE, "speed", "look at the server's log",
                    "the connection broke while it was measured: %s; %s", strerror(-rc),
                    rpc_ep_reason(s->link.ep));
    else
        doctor_say(d, DOCTOR_OK, "speed", NULL,
                   "round trip %.1f us (p99 %.1f us), up %.3f GB/s, down %.3f GB/s",
                   (double)hw_hist_percentile(&s->rtt, 50) / 1000,
                   (double)hw_hist_percentile(&s->rtt, 99) / 1000, s->up_bytes_s / 1e9,
                   s->down_bytes_s / 1e9);
}

static void check_answers(struct doctor *d, struct survey *s)
{
    int rc = survey_ask(s);
    if (rc) {
        doctor_fail(d, CMD_UNREACHABLE, "protocol", "is it hawser serve, and not another daemon?",
                    "it does not describe itself: %s; %s", strerror(-rc),
                    rpc_ep_reason(s->link.ep));
        return;
    }
    check_protocol(d, s);
    check_offer(d, s);
    if (d->duration_ns)
        check_speed(d, s);
}

/* ---- one server ---- */

/* presumed: the user named no server, so its absence is no fault. */
static void check_link(struct doctor *d, struct survey *s, const struct rpc_security *security,
                       bool presumed)
{
    char why[CMD_WHY_CHARS], time[HW_FORMAT_CHARS];
    enum cmd_exit code = cmd_link_dial(&s->link, security, why);
    if (code == CMD_UNREACHABLE && presumed) {
        doctor_say(d, DOCTOR_WARNING, "server",
                   "name one: hawser doctor ADDR, or set VENUS_SERVERS; or start hawser serve here",
                   "none is named, and none is here: %s", why);
    } else if (code != CMD_DONE) {
        doctor_fail(d, code, "connection", remedy_of(&s->link, code), "%s", why);
    } else {
        doctor_say(d, DOCTOR_OK, "connection", NULL, "%s, %s, %s, made in %s", s->link.address,
                   s->link.tls ? "TLS 1.3" : "not encrypted",
                   s->link.token ? "token accepted" : "no token",
                   hw_format_duration(time, s->link.connect_ns));
        check_answers(d, s);
    }
}

static void check_server(struct doctor *d, const struct rpc_security *security, const char *text,
                         bool presumed)
{
    char why[RPC_WHY_CHARS];
    struct survey *s = survey_create();
    if (!s) {
        doctor_say(d, DOCTOR_FAILED, "server", NULL, "out of memory");
        return;
    }
    s->link.timeout_ns = d->connect->timeout_ns;
    if (rpc_addr_parse(text, &s->link.addr, why)) {
        doctor_fail(d, CMD_USAGE, "address", "write host:port, unix:/path or shm:/path", "%s", why);
    } else {
        rpc_addr_format(&s->link.addr, s->link.address, sizeof(s->link.address));
        if (check_name(d, &s->link.addr))
            check_link(d, s, security, presumed);
    }
    survey_destroy(s);
}

void doctor_check_servers(struct doctor *d, const char *address)
{
    char buf[RPC_SERVER_CHARS], text[RPC_SERVER_CHARS];
    const char *list = address ? address : rpc_servers_from_env(buf);
    bool presumed = !address && !is_set("VENUS_SERVERS") && !is_set("VENUS_SERVER_HOST");
    struct rpc_security security;
    if (!load_keys(d, &security))
        return;
    bool any = false;
    for (; rpc_servers_next(&list, text); any = true)
        check_server(d, &security, text, presumed);
    if (!any)
        doctor_say(d, DOCTOR_WARNING, "server", "write host:port, or unset it",
                   "%s names no server", address ? "ADDR" : "VENUS_SERVERS");
    rpc_security_fini(&security);
}
