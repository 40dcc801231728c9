/* kv/cluster/http_post.h - one HTTP POST over a TCP connection of its own, and its answer.
 *
 * Every wait ends at its deadline, and with -ECANCELED when wake_fd becomes readable.  Only a
 * look-up of a host name cannot be interrupted; a numeric address needs none.
 *
 * Trust: the answer may hold anything; see kv/cluster/http.h.  Threads: one at a time.  Lifetime:
 * open/destroy; destroy(NULL) is fine. */
#ifndef HAWSER_KV_CLUSTER_HTTP_POST_H
#define HAWSER_KV_CLUSTER_HTTP_POST_H

#include "rpc/transport/addr.h"

/* A body, or what of one has not been taken as lines.  etcd batches a thousand changes in an event,
 * of 200 to 300 bytes each. */
enum { KV_POST_BODY_MAX = 1 << 20 };

struct kv_post;

struct kv_post_request {
    const struct rpc_addr *to; /* tcp */
    const char *path;          /* "/v3/watch" */
    const char *json;          /* the body */
    int wake_fd;
    uint64_t deadline_ns; /* for connecting and sending; of hw_now_ns */
};

/* Connects and sends.  0, -ETIMEDOUT, -ECANCELED, -EADDRNOTAVAIL, -ENOMEM or what the kernel says;
 * a sentence in why, but for -ECANCELED. */
int kv_post_open(const struct kv_post_request *request, struct kv_post **out,
                 char why[RPC_WHY_CHARS]) MUST_CHECK;
void kv_post_destroy(struct kv_post *post);

/* Waits for more of the answer and reads it.  0 when some came; -ESHUTDOWN when the answer is whole
 * and nothing more comes; -ETIMEDOUT; -ECANCELED; -EPROTO; -E2BIG past KV_POST_BODY_MAX; -ENOMEM;
 * or what the kernel says of a connection that broke. */
int kv_post_read(struct kv_post *post, uint64_t deadline_ns) MUST_CHECK;
/* Until the answer is whole: 0, or an error of kv_post_read. */
int kv_post_read_all(struct kv_post *post, uint64_t deadline_ns) MUST_CHECK;

/* 0 while the status line has not come. */
unsigned kv_post_status(const struct kv_post *post);
/* What has come of the body and was not taken; not ended by NUL; valid until the next call. */
const char *kv_post_body(const struct kv_post *post, size_t *len_out);
/* Takes the next line, when it is complete; NULL: there is none.  Valid until the next read. */
const char *kv_post_line(struct kv_post *post, size_t *len_out);

/* Only waits: -ETIMEDOUT at the deadline, or -ECANCELED. */
int kv_post_pause(int wake_fd, uint64_t deadline_ns);

#endif
