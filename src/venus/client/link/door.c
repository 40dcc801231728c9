#include "venus/client/link/door.h"

#include "rpc/client.h"
#include "rpc/resume/resume.h"
#include "venus/common/protocol.h"
#include "wire/le.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- UCX's library, which is opened once ---- */

#define LIBRARY "libhawser_ucx.so"

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static bool has_ucx;
static pid_t opener;
static char why_not[RPC_WHY_CHARS];

/* Beside this library, wherever that is. */
static void *open_beside(void)
{
    Dl_info self;
    char path[PATH_MAX];
    const char *slash =
        dladdr((void *)(uintptr_t)vnc_door_find, &self) ? strrchr(self.dli_fname, '/') : NULL;
    int folder = slash ? (int)(slash + 1 - self.dli_fname) : 0;
    snprintf(path, sizeof(path), "%.*s" LIBRARY, folder, folder ? self.dli_fname : "");
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void open_library(void)
{
    void *library = open_beside();
    const char *version = library ? dlsym(library, "hawser_ucx_version") : NULL;
    if (!version) {
        const char *error = dlerror();
        snprintf(why_not, sizeof(why_not),
                 "the driver cannot open UCX: %.150s; install hawser's " LIBRARY " and libucx0, or "
                 "use host:port",
                 error ? error : LIBRARY);
        return;
    }
    if (strcmp(version, HAWSER_VERSION) != 0) {
        snprintf(why_not, sizeof(why_not),
                 LIBRARY " is of release %.20s, the driver of " HAWSER_VERSION
                         "; install both from one release",
                 version);
        return;
    }
    rpc_dial_fn *dial;
    *(void **)&dial = dlsym(library, "hawser_ucx_dial");
    has_ucx = dial != NULL;
    opener = getpid();
    rpc_net_register(RPC_SCHEME_UCX, dial, NULL);
}

/* ---- the question ---- */

static void explain(int rc, char why[RPC_WHY_CHARS])
{
    const char *cause = strerror(-rc);
    if (rc == -ENOSYS || rc == -EOPNOTSUPP)
        cause = "it serves no Vulkan over UCX; use the same release of hawser at both ends, or "
                "host:port";
    else if (rc == -EUSERS)
        cause = "it serves as many clients as it may; see `hawser serve --max-clients`";
    else if (rc == -EIO)
        cause = "its session cannot listen over UCX; the server's log says why";
    snprintf(why, RPC_WHY_CHARS, "%s", cause);
}

static int ask(struct rpc_client *client, struct rpc_addr *door, struct rpc_security *admits,
               char why[RPC_WHY_CHARS])
{
    struct rpc_send send = {.method = VN_METHOD_DOOR};
    struct rpc_answer answer;
    int rc = rpc_client_call(client, &send, &answer);
    if (rc == 0) {
        if (answer.len == 2 + RPC_RESUME_SECRET_BYTES) {
            door->port = wire_load16(answer.data);
            *admits = (struct rpc_security){.token_len = RPC_RESUME_SECRET_BYTES};
            memcpy(admits->token, answer.data + 2, RPC_RESUME_SECRET_BYTES);
        } else {
            rc = -EPROTO;
        }
        rpc_answer_fini(&answer);
    }
    if (rc)
        explain(rc, why);
    return rc;
}

int vnc_door_find(const struct rpc_addr *addr, const struct rpc_net_options *net,
                  struct rpc_addr *door, struct rpc_security *admits, char why[RPC_WHY_CHARS])
{
    struct rpc_client_options options = {.config = {.security = net->security, .name = "vulkan"}};
    struct rpc_client *client;
    struct rpc_addr found = *addr;
    pthread_once(&opened, open_library);
    if (!has_ucx) {
        snprintf(why, RPC_WHY_CHARS, "%s", why_not);
        return -EPROTONOSUPPORT;
    }
    if (getpid() != opener) { /* whose threads are not here */
        snprintf(why, RPC_WHY_CHARS,
                 "UCX does not work in a process that was forked after its parent used it; use "
                 "host:port");
        return -EPROTONOSUPPORT;
    }
    int rc = rpc_client_connect(addr, net, &options, &client, why);
    if (rc)
        return rc;
    rc = ask(client, &found, admits, why);
    rpc_client_destroy(client);
    if (rc == 0)
        *door = found;
    return rc;
}
