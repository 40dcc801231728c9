/* kv/cluster/curl.h - libcurl, opened at run time by the first who asks for it.
 *
 * Only a process with --etcd, or `top` of a gateway, is an HTTP client.  Linked, libcurl and its
 * thirty libraries would be loaded by every command and by every session.
 *
 * Trust: the system's library.  Threads: any.  Lifetime: stays loaded. */
#ifndef HAWSER_KV_CLUSTER_CURL_H
#define HAWSER_KV_CLUSTER_CURL_H

#include "rpc/transport/addr.h"

#include <curl/curl.h>

/* X(member): of curl_member() */
#define KV_CURL_CALLS(X)                                                                           \
    X(global_init)                                                                                 \
    X(easy_init)                                                                                   \
    X(easy_cleanup)                                                                                \
    X(easy_perform)                                                                                \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_strerror)                                                                               \
    X(multi_init)                                                                                  \
    X(multi_cleanup)                                                                               \
    X(multi_setopt)                                                                                \
    X(multi_add_handle)                                                                            \
    X(multi_remove_handle)                                                                         \
    X(multi_perform)                                                                               \
    X(multi_poll)                                                                                  \
    X(multi_info_read)                                                                             \
    X(slist_append)                                                                                \
    X(slist_free_all)

struct kv_curl {
#define X(member) __typeof__(curl_##member) *member;
    KV_CURL_CALLS(X)
#undef X
};

/* NULL, with cause and remedy in why. */
const struct kv_curl *kv_curl_load(char why[RPC_WHY_CHARS]);

#endif
