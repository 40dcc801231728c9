/* Holding and keeping pieces; see uploads.h. */
#include "venus/server/upload/uploads.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"

enum { ITEM_WIRE = 4 + VN_NAME_BYTES + VN_PROOF_BYTES };

struct piece {
    uint8_t *bytes; /* NULL: not held */
    size_t len;
};

struct vns_uploads {
    const struct vns_upload_store *store;
    uint64_t key;
    struct piece held[VN_HOLD_PIECES_MAX];
    uint32_t held_count;

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    struct piece queue[VNS_UPLOADS_QUEUED_MAX]; /* a ring */
    size_t first, count;
    bool stop, started;
    bool told; /* that the store cannot be written */
    pthread_t thread;
};

int vns_uploads_create(const struct vns_upload_store *store, struct vns_uploads **out)
{
    struct vns_uploads *u = calloc(1, sizeof(*u));
    if (!u)
        return -ENOMEM;
    u->store = store;
    if (store && getrandom(&u->key, sizeof(u->key), 0) != sizeof(u->key)) {
        free(u);
        return -EIO;
    }
    if (store && !u->key)
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

/* What the store has is not the client's: because the client does not have what the name says, or
 * because the file does not. */
static void check_stored(struct vns_uploads *u, const uint8_t *name, const uint8_t *bytes,
                         size_t len)
{
    uint8_t real[VN_NAME_BYTES];
    if (vn_piece_name(bytes, len, real) || memcmp(real, name, VN_NAME_BYTES) == 0)
        return;
    hw_warn(HW_CAT_MEMORY,
            "the upload cache holds a piece that is not what its name says; removed");
    vns_upload_store_drop(u->store, name);
}

/* The bytes of a piece, malloc'd; NULL when the store does not have it or the proof fails. */
static uint8_t *fetch(struct vns_uploads *u, const uint8_t *name, const uint8_t *proof, size_t len)
{
    uint8_t real[VN_PROOF_BYTES];
    uint8_t *bytes = u->store ? malloc(len) : NULL;
    if (!bytes || vns_upload_store_get(u->store, name, bytes, len)) {
        free(bytes);
        return NULL;
    }
    vn_piece_proof(u->key, bytes, len, real);
    if (memcmp(real, proof, VN_PROOF_BYTES) == 0)
        return bytes;
    check_stored(u, name, bytes, len);
    free(bytes);
    return NULL;
}

int vns_uploads_hold(struct vns_uploads *u, struct wire_dec *in, struct wire_enc *reply)
{
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
        u->held[u->held_count++] = (struct piece){fetch(u, name, proof, len), len};
        if (reply)
            wire_put_u8(reply, u->held[i].bytes != NULL);
    }
    return wire_dec_end(in);
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
    uint8_t name[VN_NAME_BYTES];
    int rc = vn_piece_name(piece->bytes, piece->len, name);
    if (rc == 0)
        rc = vns_upload_store_put(u->store, name, piece->bytes, piece->len);
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

void vns_uploads_keep(struct vns_uploads *u, uint8_t *bytes, size_t len)
{
    if (!u->store || (!u->started && pthread_create(&u->thread, NULL, keep_main, u))) {
        free(bytes);
        return;
    }
    u->started = true;
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
