/* pNext chains; see chain.h. */
#include "venus/common/chain.h"

#include <errno.h>

typedef bool enc_node_fn(struct wire_enc *e, const VkBaseInStructure *node);
typedef VkBaseOutStructure *dec_node_fn(struct vn_decoder *d, uint32_t stype);

static void enc_nodes(struct wire_enc *e, const void *chain, enc_node_fn *enc)
{
    for (const VkBaseInStructure *node = chain; node; node = node->pNext) {
        size_t start = wire_enc_len(e);
        wire_put_u32(e, (uint32_t)node->sType);
        size_t hole = wire_put_hole_u32(e);
        if (enc(e, node))
            wire_fill_len(e, hole);
        else
            wire_enc_trim(e, start);
    }
    wire_put_u32(e, VN_CHAIN_END);
}

void vn_enc_chain(struct wire_enc *e, const void *chain)
{
    enc_nodes(e, chain, vn_enc_node);
}

void vn_enc_skel_chain(struct wire_enc *e, const void *chain)
{
    enc_nodes(e, chain, vn_enc_skel_node);
}

void vn_enc_out_chain(struct wire_enc *e, const void *chain)
{
    enc_nodes(e, chain, vn_enc_out_node);
}

/* The type of the next entry, whose payload is d->in until leave.  False at the end. */
static bool enter(struct vn_decoder *d, uint32_t *stype, struct wire_dec *outer)
{
    *stype = wire_get_u32(&d->in);
    if (*stype == VN_CHAIN_END || wire_dec_error(&d->in))
        return false;
    struct wire_dec part = wire_dec_sub(&d->in, wire_get_u32(&d->in));
    *outer = d->in;
    d->in = part;
    return true;
}

static void leave(struct vn_decoder *d, struct wire_dec outer, bool known)
{
    int err = known ? wire_dec_end(&d->in) : wire_dec_error(&d->in);
    d->in = outer;
    if (err)
        vn_decoder_fail(d, err);
    d->unknown_stypes += !known && !err;
}

static bool deeper(struct vn_decoder *d)
{
    if (d->depth == VN_DEPTH_MAX) {
        vn_decoder_fail(d, -EMSGSIZE);
        return false;
    }
    d->depth++;
    return true;
}

static void *dec_nodes(struct vn_decoder *d, dec_node_fn *dec)
{
    VkBaseOutStructure *first = NULL, **link = &first;
    struct wire_dec outer;
    uint32_t stype;
    if (!deeper(d))
        return NULL;
    for (int n = 0; enter(d, &stype, &outer); n++) {
        VkBaseOutStructure *node = n < VN_CHAIN_MAX ? dec(d, stype) : NULL;
        leave(d, outer, node != NULL);
        if (n >= VN_CHAIN_MAX)
            vn_decoder_fail(d, -EMSGSIZE);
        if (node) {
            *link = node;
            link = &node->pNext;
        }
    }
    d->depth--;
    return first;
}

void *vn_dec_chain(struct vn_decoder *d)
{
    return dec_nodes(d, vn_dec_node);
}

void *vn_dec_skel_chain(struct vn_decoder *d)
{
    return dec_nodes(d, vn_dec_skel_node);
}

static VkBaseOutStructure *find(VkBaseOutStructure *node, uint32_t stype)
{
    while (node && (uint32_t)node->sType != stype)
        node = node->pNext;
    return node;
}

void vn_dec_out_chain(struct vn_decoder *d, void *chain)
{
    struct wire_dec outer;
    uint32_t stype;
    if (!deeper(d))
        return;
    for (int n = 0; enter(d, &stype, &outer); n++) {
        VkBaseOutStructure *node = find(chain, stype);
        leave(d, outer, node && vn_dec_out_node(d, node));
        if (n >= VN_CHAIN_MAX)
            vn_decoder_fail(d, -EMSGSIZE);
    }
    d->depth--;
}
