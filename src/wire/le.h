/* wire/le.h - little-endian loads and stores at any alignment.
 *
 * On little-endian hosts each is one move; elsewhere the bytes are swapped.
 * Threads: any; no state. */
#ifndef HAWSER_WIRE_LE_H
#define HAWSER_WIRE_LE_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define WIRE_LE16(v) (v)
#define WIRE_LE32(v) (v)
#define WIRE_LE64(v) (v)
#else
#define WIRE_LE16(v) __builtin_bswap16(v)
#define WIRE_LE32(v) __builtin_bswap32(v)
#define WIRE_LE64(v) __builtin_bswap64(v)
#endif

static inline void wire_store16(void *p, uint16_t v)
{
    v = WIRE_LE16(v);
    memcpy(p, &v, sizeof(v));
}

static inline void wire_store32(void *p, uint32_t v)
{
    v = WIRE_LE32(v);
    memcpy(p, &v, sizeof(v));
}

static inline void wire_store64(void *p, uint64_t v)
{
    v = WIRE_LE64(v);
    memcpy(p, &v, sizeof(v));
}

static inline uint16_t wire_load16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return WIRE_LE16(v);
}

static inline uint32_t wire_load32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return WIRE_LE32(v);
}

static inline uint64_t wire_load64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return WIRE_LE64(v);
}

#endif
