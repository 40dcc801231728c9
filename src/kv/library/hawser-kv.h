/* kv/library/hawser-kv.h - the KV store of `hawser kvd`, for programs: values by name, of up to 64
 * MiB.
 *
 * A handle is attached to the daemons of this host through shared memory.  A value is read where it
 * lies, under a lease, and may be written where the daemon takes it from.  The daemons find the
 * member that owns a name; `kvd --resp` shows the same values to Redis clients.
 *
 * Threads: one at a time for a handle; several handles are fine.  After fork a handle is the
 * parent's.  Stability: functions and fields are only added while the soname stays. */
#ifndef HAWSER_KV_LIBRARY_HAWSER_KV_H
#define HAWSER_KV_LIBRARY_HAWSER_KV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAWSER_KV_NAME_MAX UINT32_C(4096)
#define HAWSER_KV_VALUE_MAX ((UINT32_C(64) << 20) - 12 - HAWSER_KV_NAME_MAX)
#define HAWSER_KV_WHY_CHARS 256

enum hawser_kv_result {
    HAWSER_KV_OK = 0,
    HAWSER_KV_MISS = 1,      /* the owner lives and has no such value */
    HAWSER_KV_FULL = 2,      /* no room */
    HAWSER_KV_TOO_LARGE = 3, /* than HAWSER_KV_VALUE_MAX, HAWSER_KV_NAME_MAX, the store */
    HAWSER_KV_LOST = 4,      /* a daemon is gone: a change may have happened; if it is the one of
                                this host, open another handle */
    HAWSER_KV_TIMEOUT = 5,   /* the same */
    HAWSER_KV_REFUSED = 6,   /* the daemon keeps no blocks, or a call is out of order */
    HAWSER_KV_EXPIRED = 7,   /* the lease ended: what was read may be anything */
    HAWSER_KV_EXISTS = 8,    /* HAWSER_KV_ONLY_NEW, and the name has a value */
    HAWSER_KV_TOO_FEW = 9    /* fewer copies than kvd --min-copies */
};
/* A word for messages. */
const char *hawser_kv_result_name(int result);

struct hawser_kv;

/* `socket` is kvd's --socket; NULL: its default.  timeout_ms is of this call and of each request to
 * a daemon, an hour at most; 0: 2 s.  Other calls may make several requests.  NULL, with cause and
 * remedy in `why`, which may be NULL. */
struct hawser_kv *hawser_kv_open(const char *socket, uint32_t timeout_ms,
                                 char why[HAWSER_KV_WHY_CHARS]);
void hawser_kv_close(struct hawser_kv *kv); /* NULL is fine */

#define HAWSER_KV_ONLY_NEW 1u /* do not replace a value */

/* Stores a copy.  It is gone after ttl_ms; 0: never.  *copies, which may be NULL, is how many
 * members have it. */
int hawser_kv_put(struct hawser_kv *kv, const void *name, size_t name_len, const void *data,
                  size_t len, uint64_t ttl_ms, unsigned flags, uint32_t *copies);

/* A put without a copy: fill `data`, then commit or abort.  One at a time for a handle. */
struct hawser_kv_write {
    void *data;
    size_t len;
};
int hawser_kv_write_start(struct hawser_kv *kv, const void *name, size_t name_len, size_t len,
                          uint64_t ttl_ms, unsigned flags, struct hawser_kv_write *out);
int hawser_kv_write_commit(struct hawser_kv *kv, uint32_t *copies);
int hawser_kv_write_abort(struct hawser_kv *kv);

/* A value where it lies, read-only, verified.  Release it; its lease ends after kvd's --lease, 10 s
 * by default, unless it is renewed.  `data` is not mapped any more once the handle is closed. */
struct hawser_kv_value {
    const void *data;
    size_t len;
    void *lease; /* private */
};
int hawser_kv_get(struct hawser_kv *kv, const void *name, size_t name_len,
                  struct hawser_kv_value *out);
/* HAWSER_KV_OK: the lease held while the bytes were read.  Else what was read must not be used. */
int hawser_kv_check(struct hawser_kv *kv, const struct hawser_kv_value *value);
int hawser_kv_renew(struct hawser_kv *kv, const struct hawser_kv_value *value);
void hawser_kv_release(struct hawser_kv *kv, struct hawser_kv_value *value);

/* HAWSER_KV_OK or HAWSER_KV_MISS, or an error. */
int hawser_kv_exists(struct hawser_kv *kv, const void *name, size_t name_len);
int hawser_kv_delete(struct hawser_kv *kv, const void *name, size_t name_len);

/* Names of the values that this host's daemons own, some of them; the other members list theirs.
 * *cursor: 0 at first, and 0 again after the last.  `each` gets one after the other, valid until it
 * returns, and must not use the handle.  A value that is there all the time is named once; others
 * may be. */
typedef void hawser_kv_each(void *user, const char *name, size_t name_len);
int hawser_kv_list(struct hawser_kv *kv, uint64_t *cursor, hawser_kv_each *each, void *user);

#ifdef __cplusplus
}
#endif

#endif
