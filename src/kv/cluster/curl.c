#include "kv/cluster/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static const char library[] = "libcurl.so.4";

static struct kv_curl curl;
static char problem[RPC_WHY_CHARS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
    const char *name;
    void **place;
} calls[] = {
#define X(member) {"curl_" #member, (void **)&curl.member},
    KV_CURL_CALLS(X)
#undef X
};

static void load(void)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(problem, sizeof problem, "libcurl cannot be opened: %.100s; install libcurl4",
                 dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        *calls[i].place = dlsym(handle, calls[i].name);
        if (!*calls[i].place)
            snprintf(problem, sizeof problem, "%s has no %s: it must be 7.85 or later", library,
                     calls[i].name);
    }
    if (!problem[0] && curl.global_init(CURL_GLOBAL_DEFAULT))
        snprintf(problem, sizeof problem, "libcurl cannot be initialised");
}

const struct kv_curl *kv_curl_load(char why[RPC_WHY_CHARS])
{
    pthread_once(&once, load);
    if (!problem[0])
        return &curl;
    snprintf(why, RPC_WHY_CHARS, "%s", problem);
    return NULL;
}
