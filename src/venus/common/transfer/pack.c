/* Messages packed by their past; see pack.h. */
#include "venus/common/transfer/pack.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <zstd.h>

#include "wire/le.h"

enum {
    HEAD_BYTES = 4,
    LEVEL = 1, /* matches are long and recent: higher levels find hardly more */
};

/* ---- packing ---- */

struct vn_packer {
    ZSTD_CCtx *zstd;
    size_t cap;
    uint8_t bytes[];
};

int vn_packer_create(struct vn_packer **out)
{
    /* A flush ends the block that is under way and adds an empty one. */
    size_t cap = HEAD_BYTES + ZSTD_compressBound(VN_PACK_MAX) + 64;
    struct vn_packer *p = malloc(sizeof(*p) + cap);
    if (!p)
        return -ENOMEM;
    p->cap = cap;
    p->zstd = ZSTD_createCCtx();
    if (!p->zstd || ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_compressionLevel, LEVEL)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_windowLog, VN_PACK_WINDOW_LOG))) {
        vn_packer_destroy(p);
        return -ENOMEM;
    }
    *out = p;
    return 0;
}

void vn_packer_destroy(struct vn_packer *p)
{
    if (!p)
        return;
    ZSTD_freeCCtx(p->zstd);
    free(p);
}

int vn_pack(struct vn_packer *p, const struct vn_bytes *in, struct vn_bytes *out)
{
    assert(in->len <= VN_PACK_MAX);
    ZSTD_inBuffer from = {in->data, in->len, 0};
    ZSTD_outBuffer to = {p->bytes + HEAD_BYTES, p->cap - HEAD_BYTES, 0};
    if (ZSTD_compressStream2(p->zstd, &to, &from, ZSTD_e_flush) != 0)
        return -ENOMEM; /* the room is enough by construction */
    wire_store32(p->bytes, (uint32_t)in->len);
    *out = (struct vn_bytes){p->bytes, HEAD_BYTES + to.pos};
    return 0;
}

/* ---- unpacking ---- */

struct vn_unpacker {
    ZSTD_DCtx *zstd;
    uint8_t bytes[VN_PACK_MAX + 1]; /* one more, to see that there is no more */
};

int vn_unpacker_create(struct vn_unpacker **out)
{
    struct vn_unpacker *u = malloc(sizeof(*u));
    if (!u)
        return -ENOMEM;
    u->zstd = ZSTD_createDCtx();
    if (!u->zstd ||
        ZSTD_isError(ZSTD_DCtx_setParameter(u->zstd, ZSTD_d_windowLogMax, VN_PACK_WINDOW_LOG))) {
        vn_unpacker_destroy(u);
        return -ENOMEM;
    }
    *out = u;
    return 0;
}

void vn_unpacker_destroy(struct vn_unpacker *u)
{
    if (!u)
        return;
    ZSTD_freeDCtx(u->zstd);
    free(u);
}

int vn_unpack(struct vn_unpacker *u, const struct vn_bytes *in, struct vn_bytes *out)
{
    uint32_t len = in->len >= HEAD_BYTES ? wire_load32(in->data) : UINT32_MAX;
    if (len > VN_PACK_MAX)
        return -EPROTO;
    ZSTD_inBuffer from = {(const uint8_t *)in->data + HEAD_BYTES, in->len - HEAD_BYTES, 0};
    ZSTD_outBuffer to = {u->bytes, len + 1, 0};
    while (from.pos < from.size) {
        size_t read = from.pos, written = to.pos;
        size_t rc = ZSTD_decompressStream(u->zstd, &to, &from);
        bool stuck = from.pos == read && to.pos == written;
        /* 0: the end of the stream, which a peer that is well never writes. */
        if (ZSTD_isError(rc) || rc == 0 || stuck)
            return -EPROTO;
    }
    if (to.pos != len)
        return -EPROTO;
    *out = (struct vn_bytes){u->bytes, len};
    return 0;
}
