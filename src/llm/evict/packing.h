/* llm/evict/packing.h - whether compressing a block pays on a link.
 *
 * Decided by measurement: encoding is timed, decoding is taken to cost as much.  A block is packed
 * when both and the smaller transfer take less time than the plain transfer.  On a link that nobody
 * measured blocks stay plain.
 *
 * Threads: any; no state. */
#ifndef HAWSER_LLM_EVICT_PACKING_H
#define HAWSER_LLM_EVICT_PACKING_H

#include <stdbool.h>
#include <stdint.h>

enum { LLM_PACK_AGAIN = 64 }; /* blocks between trials: under 2%, also where packing costs twice */

/* ratio: packed bytes / plain bytes.  ns_per_byte: of encoding.  link_rate: bytes a second; 0: not
 * known. */
static inline bool llm_packing_pays(double ratio, double ns_per_byte, uint64_t link_rate)
{
    if (link_rate == 0)
        return false;
    double link_ns_per_byte = 1e9 / (double)link_rate;
    return ratio * link_ns_per_byte + 2 * ns_per_byte < link_ns_per_byte;
}

#endif
