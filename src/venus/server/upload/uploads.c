/* Holding and keeping pieces; see uploads.h. */
#include "venus/server/upload/uploads.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/units.h"

enum { ITEM_WIRE = 4 + VN_NAME_BYTES + VN_PROOF_BYTES };

struct piece {
    uint8_t *bytes; /* NULL: not held */
    size_t len;
};

struct vns_uploads {
    struct vns_upload_user *cache;
    uint64_t key;
    struct piece held[VN_HOLD_PIECES_MAX];
    uint32_t held_count;

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    struct piece queue[VNS_UPLOADS_QUEUED_MAX]; /* a ring */
    size_t first, count;
    bool stop, started;
    bool told;     /* that the cache cannot be written */
    uint64_t kept; /* by this session; the executor's */
    pthread_t thread;
};

int vns_uploads_create(struct vns_upload_user *cache, struct vns_uploads **out)
{
    struct vns_uploads *u = calloc(1, sizeof(*u));
    if (!u)
        return -ENOMEM;
    u->cache = cache;
    if (cache && getrandom(&u->key, sizeof(u->key), 0) != sizeof(u->key)) {
        free(u);
        return -EIO;
    }
    if (cache && !u->key)
        u->key = 1; /* 0 says that there is none */
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->changed, NULL);
    *out = u;
    return 0;
}

uint64_t vns_uploads_key(const struct vns_uploads *u)
{
    return u->key;
}

/* ---- holding ---- */

static void let_go(struct vns_uploads *u)
{
    for (uint32_t i = 0; i < u->held_count; i++)
        free(u->held[i].bytes);
    u->held_count = 0;
}

/* The bytes of a piece, malloc'd; NULL when the cache does not have it or the proof fails. */
static uint8_t *fetch(struct vns_uploads *u, const uint8_t *name, const uint8_t *proof, size_t len)
{
    uint8_t real[VN_PROOF_BYTES];
    uint8_t *bytes = u->cache ? malloc(len) : NULL;
    if (!bytes || vns_upload_user_get(u->cache, name, bytes, len)) {
        free(bytes);
        return NULL;
    }
    int rc = vn_piece_proof(u->key, bytes, len, real);
    if (rc == 0 && memcmp(real, proof, VN_PROOF_BYTES) == 0)
        return bytes;
    if (rc == 0) /* the client does not have what the name says, or the cache does not */
        vns_upload_user_doubt(u->cache, name, len);
    free(bytes);
    return NULL;
}

struct question {
    struct vns_uploads *uploads;
    const uint8_t *names[VN_HOLD_PIECES_MAX], *proofs[VN_HOLD_PIECES_MAX];
};

static void fetch_one(void *user, uint32_t i)
{
    const struct question *q = user;
    struct piece *piece = &q->uploads->held[i];
    piece->bytes = fetch(q->uploads, q->names[i], q->proofs[i], piece->len);
}

int vns_uploads_hold(struct vns_uploads *u, struct wire_dec *in, struct wire_enc *reply)
{
    struct question question = {.uploads = u};
    uint64_t total = 0;
    let_go(u);
    uint32_t count = wire_dec_count(in, ITEM_WIRE, VN_HOLD_PIECES_MAX);
    for (uint32_t i = 0; i < count && !wire_dec_error(in); i++) {
        uint32_t len = wire_get_u32(in);
        const uint8_t *name = wire_get_bytes(in, VN_NAME_BYTES);
        const uint8_t *proof = wire_get_bytes(in, VN_PROOF_BYTES);
        total += len;
        if (!name || !proof || len == 0 || len > VN_PIECE_MAX || total > VN_HOLD_BYTES_MAX)
            return -EPROTO;
        question.names[i] = name;
        question.proofs[i] = proof;
        u->held[u->held_count++] = (struct piece){NULL, len};
    }
    if (wire_dec_end(in))
        return wire_dec_end(in);
    vn_pieces_each(count, vn_pieces_threads(count), fetch_one, &question);
    for (uint32_t i = 0; reply && i < count; i++)
        wire_put_u8(reply, u->held[i].bytes != NULL);
    return 0;
}

const uint8_t *vns_uploads_held(const struct vns_uploads *u, uint32_t index, size_t *len)
{
    if (index >= u->held_count || !u->held[index].bytes)
        return NULL;
    *len = u->held[index].len;
    return u->held[index].bytes;
}

/* ---- keeping ---- */

static void store(struct vns_uploads *u, const struct piece *piece)
{
    int rc = vns_upload_user_put(u->cache, piece->bytes, piece->len);
    if (rc && rc != -EFBIG && !u->told) {
        hw_warn(HW_CAT_MEMORY, "the upload cache cannot be written: %s", strerror(-rc));
        u->told = true;
    }
}

static void *keep_main(void *arg)
{
    struct vns_uploads *u = arg;
    pthread_mutex_lock(&u->lock);
    for (;;) {
        while (!u->count && !u->stop)
            pthread_cond_wait(&u->changed, &u->lock);
        if (!u->count)
            break;
        struct piece piece = u->queue[u->first];
        pthread_mutex_unlock(&u->lock);
        store(u, &piece);
        free(piece.bytes);
        pthread_mutex_lock(&u->lock);
        u->first = (u->first + 1) % VNS_UPLOADS_QUEUED_MAX;
        u->count--;
        pthread_cond_broadcast(&u->changed);
    }
    pthread_mutex_unlock(&u->lock);
    return NULL;
}

/* The oldest goes first, so a model that does not fit is gone when it is loaded again. */
static void count_kept(struct vns_uploads *u, size_t len)
{
    uint64_t limit = vns_upload_user_limit(u->cache);
    char text[HW_FORMAT_CHARS];
    if (u->kept <= limit && u->kept + len > limit)
        hw_warn(HW_CAT_MEMORY,
                "a client uploads more than the upload cache holds (%s), so the same upload will "
                "be sent again; --upload-cache and --upload-cache-dir give it more room",
                hw_format_size(text, limit));
    u->kept += len;
}

void vns_uploads_keep(struct vns_uploads *u, uint8_t *bytes, size_t len)
{
    if (!u->cache || (!u->started && pthread_create(&u->thread, NULL, keep_main, u))) {
        free(bytes);
        return;
    }
    u->started = true;
    count_kept(u, len);
    pthread_mutex_lock(&u->lock);
    while (u->count == VNS_UPLOADS_QUEUED_MAX)
        pthread_cond_wait(&u->changed, &u->lock);
    u->queue[(u->first + u->count++) % VNS_UPLOADS_QUEUED_MAX] = (struct piece){bytes, len};
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
}

void vns_uploads_destroy(struct vns_uploads *u)
{
    if (!u)
        return;
    pthread_mutex_lock(&u->lock);
    u->stop = true;
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
    if (u->started)
        pthread_join(u->thread, NULL);
    let_go(u);
    pthread_cond_destroy(&u->changed);
    pthread_mutex_destroy(&u->lock);
    free(u);
}
