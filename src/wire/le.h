/* wire/le.h - little-endian loads and stores at any alignment.
 *
 * Threads: any; no state. */
#ifndef HAWSER_WIRE_LE_H
#define HAWSER_WIRE_LE_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error                                                                                             \
    "tensors, unions and the KV store's lines travel as they lie in memory: little-endian hosts only"
#endif

static inline void wire_store16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof(v));
}

static inline void wire_store32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof(v));
}

static inline void wire_store64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof(v));
}

static inline uint16_t wire_load16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint32_t wire_load32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint64_t wire_load64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

#endif
