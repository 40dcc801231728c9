/* kv/common/keylist.h - the keys of a message about blocks: length u8 and bytes each, in a row.
 *
 * The message's head has their number, which its decoder has checked.
 *
 * Trust: the decoder takes anything.  Threads: any.  Lifetime: decoded keys are copied. */
#ifndef HAWSER_KV_COMMON_KEYLIST_H
#define HAWSER_KV_COMMON_KEYLIST_H

#include "kv/common/blockkey.h"
#include "wire/dec.h"
#include "wire/enc.h"

/* Errors are the encoder's. */
void kv_keylist_put(struct wire_enc *e, const struct kv_block_key *keys, uint32_t count);
/* Errors are the decoder's: -EPROTO for a key that is empty or longer than KV_BLOCK_KEY_MAX. */
void kv_keylist_get(struct wire_dec *d, struct kv_block_key *keys, uint32_t count);

#endif
