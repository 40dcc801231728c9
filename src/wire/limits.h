/* wire/limits.h - the limits that every message on the wire obeys, each with its reason.
 *
 * Trust: a peer may declare anything; these bound what a declaration can cost before the bytes
 * behind it have arrived.  A layer may ask for less, never for more. */
#ifndef HAWSER_WIRE_LIMITS_H
#define HAWSER_WIRE_LIMITS_H

enum {
    /* One encoded message.  Larger transfers are cut into several, so this is also the most
     * memory that one message of a peer can make us hold. */
    WIRE_MESSAGE_MAX = 64 << 20,

    /* Names, addresses and error texts; the longest legitimate one is a path (PATH_MAX). */
    WIRE_STR_MAX = 4096,

    /* Elements of one array.  The largest honest arrays (copy regions, descriptor writes) stay
     * in the thousands; a million of the smallest still fits a message. */
    WIRE_COUNT_MAX = 1 << 20,

    /* Tokens of one stream: the longest contexts that models announce are about a million. */
    WIRE_TOKENS_MAX = 1 << 20,

    /* Uncompressed bytes of one tensor block: stored raw, it must still fit one message with
     * its header and what the message says around it. */
    WIRE_TENSOR_MAX = WIRE_MESSAGE_MAX - (64 << 10),

    /* 64 bits in groups of 7. */
    WIRE_VARINT_MAX = 10,
};

#endif
