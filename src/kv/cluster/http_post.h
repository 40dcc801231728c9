/* kv/cluster/http_post.h - HTTP POSTs to etcd, and their answers, as they come.
 *
 * A poster keeps connections open for the next post.  A wait for one post moves the others on, too:
 * an exchange does not stop a watch.  Every wait ends at its deadline, and with -ECANCELED when
 * wake_fd becomes readable.
 *
 * Trust: libcurl parses the answer; what is kept of a body is bounded here.  Threads: one at a time
 * for a poster and its posts.  Lifetime: create/destroy and open/destroy, posts before their
 * poster; destroy(NULL) is fine. */
#ifndef HAWSER_KV_CLUSTER_HTTP_POST_H
#define HAWSER_KV_CLUSTER_HTTP_POST_H

#include "base/attr.h"
#include "rpc/transport/addr.h"

enum {
    /* A body, or what of one has not been taken as lines: all members at once, some 500 bytes each,
     * or the thousand changes that etcd batches in an event. */
    KV_POST_BODY_MAX = 4 << 20,
    KV_POST_URL_CHARS = RPC_ADDR_HOST_CHARS + 24 /* with scheme, port, brackets and NUL */
};

struct kv_poster;
struct kv_post;

/* Files of https; NULL: the system's authorities, no certificate of our own. */
struct kv_post_tls {
    const char *ca, *cert, *key;
};

struct kv_post_request {
    const char *url;   /* "https://host:2379" */
    const char *path;  /* "/v3/watch" */
    const char *json;  /* the body; copied */
    const char *token; /* for Authorization; NULL or "": none */
};

/* The texts of `tls` (may be NULL) must outlive it.  0, -ENOENT without libcurl, -ENOMEM; a
 * sentence in why. */
int kv_poster_create(const struct kv_post_tls *tls, struct kv_poster **out,
                     char why[RPC_WHY_CHARS]) MUST_CHECK;
void kv_poster_destroy(struct kv_poster *poster);

/* Begins.  0 or -ENOMEM; a sentence in why. */
int kv_post_open(struct kv_poster *poster, const struct kv_post_request *request,
                 struct kv_post **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
void kv_post_destroy(struct kv_post *post);

/* Waits for more of the answer.  0 when some came; -ESHUTDOWN when the answer is whole and nothing
 * more comes; -ETIMEDOUT; -ECANCELED; -EADDRNOTAVAIL for a name that nobody has; -EACCES where TLS
 * fails; -EPROTO; -E2BIG past KV_POST_BODY_MAX; -ENOMEM; or what the kernel says of a connection.
 * A sentence in why, but for -ESHUTDOWN and -ECANCELED. */
int kv_post_read(struct kv_post *post, int wake_fd, uint64_t deadline_ns,
                 char why[RPC_WHY_CHARS]) MUST_CHECK;
/* Until the answer is whole: 0, or an error of kv_post_read. */
int kv_post_read_all(struct kv_post *post, int wake_fd, uint64_t deadline_ns,
                     char why[RPC_WHY_CHARS]) MUST_CHECK;

/* 0 while the status line has not come. */
unsigned kv_post_status(const struct kv_post *post);
/* What has come of the body and was not taken; not ended by NUL; valid until the next call. */
const char *kv_post_body(const struct kv_post *post, size_t *len_out);
/* Takes the next line, when it is complete; NULL: there is none.  Valid until the next read. */
const char *kv_post_line(struct kv_post *post, size_t *len_out);

/* Only waits: -ETIMEDOUT at the deadline, or -ECANCELED. */
int kv_post_pause(int wake_fd, uint64_t deadline_ns);

#endif
