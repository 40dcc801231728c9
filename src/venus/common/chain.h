/* venus/common/chain.h - pNext chains.
 *
 * On the wire a chain is entries of {u32 sType, u32 bytes, payload}, ended by VN_CHAIN_END.  A
 * structure that this build does not know is left out by the encoder, and stepped over and
 * counted by the decoder, so that builds from different registries understand each other.
 *
 * Three kinds travel: inputs; skeletons (which structures the driver shall fill, with the room
 * there is for arrays); and outputs, which are written into the chain that the program made.
 *
 * Trust and limits: as decoder.h.  Threads: one at a time per encoder or decoder. */
#ifndef HAWSER_VENUS_COMMON_CHAIN_H
#define HAWSER_VENUS_COMMON_CHAIN_H

#include "venus/common/decoder.h"
#include "venus/common/put.h"

#define VN_CHAIN_END UINT32_MAX /* past VK_STRUCTURE_TYPE_MAX_ENUM: never a structure */

/* The structure of that type in a chain, or NULL. */
static inline const void *vn_chain_find(const void *chain, VkStructureType type)
{
    const VkBaseInStructure *s = chain;
    while (s && s->sType != type)
        s = s->pNext;
    return s;
}

/* Whether a chain has structures of other types. */
static inline bool vn_chain_has_others(const void *chain, VkStructureType type)
{
    const VkBaseInStructure *s = chain;
    while (s && s->sType == type)
        s = s->pNext;
    return s;
}

void vn_enc_chain(struct wire_enc *e, const void *chain);
void *vn_dec_chain(struct vn_decoder *d);

void vn_enc_skel_chain(struct wire_enc *e, const void *chain);
void *vn_dec_skel_chain(struct vn_decoder *d);

void vn_enc_out_chain(struct wire_enc *e, const void *chain);
/* Fills the structures of the program's chain; its links stay.  One that the chain does not have
 * is stepped over. */
void vn_dec_out_chain(struct vn_decoder *d, void *chain);

/* Generated.  One structure without its chain; false when its type is not known. */
bool vn_enc_node(struct wire_enc *e, const VkBaseInStructure *node);
bool vn_enc_skel_node(struct wire_enc *e, const VkBaseInStructure *node);
bool vn_enc_out_node(struct wire_enc *e, const VkBaseInStructure *node);
/* NULL when the type is not known or the decoder failed. */
VkBaseOutStructure *vn_dec_node(struct vn_decoder *d, uint32_t stype);
VkBaseOutStructure *vn_dec_skel_node(struct vn_decoder *d, uint32_t stype);
bool vn_dec_out_node(struct vn_decoder *d, VkBaseOutStructure *node);

#endif
