/* Shared memory that a hostile peer writes into.  An even first byte: the rest is an offer, which
 * is refused or encodes to the same bytes again.  An odd one: the rest is a program that scribbles
 * over control lines and data of a real region while the other side sends and receives; that side
 * must stay in bounds, report counts that can be true, and never wait. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/transport/net.h"
#include "rpc/transport/shm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RING = RPC_SHM_RING_MIN, OP_BYTES = 10, TRANSFER_MAX = 3 * RING / 2 };

static void require(int holds)
{
    if (!holds)
        abort();
}

static void try_offer(const uint8_t *data, size_t size)
{
    struct rpc_shm_offer offer;
    uint8_t again[RPC_SHM_OFFER_BYTES];
    if (rpc_shm_offer_decode(data, size, &offer))
        return;
    require(offer.ring_bytes >= RPC_SHM_RING_MIN && offer.ring_bytes <= RPC_SHM_RING_MAX);
    rpc_shm_offer_encode(&offer, again);
    require(size == sizeof again && memcmp(data, again, size) == 0);
}

/* The pair maps the region twice; one of the mappings is as good as the other. */
static uint8_t *find_region(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    uint8_t *region = NULL;
    while (maps && !region && fgets(line, sizeof line, maps)) {
        uintptr_t start;
        if (strstr(line, "memfd:hawser-shm") && sscanf(line, "%" SCNxPTR, &start) == 1)
            region = (uint8_t *)start;
    }
    if (maps)
        fclose(maps);
    return region;
}

static uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static size_t amount(const uint8_t *op)
{
    return 1 + (size_t)(load64(op + 2) % TRANSFER_MAX);
}

static void transfer(struct rpc_transport *t, const uint8_t *op, int receive)
{
    size_t n = amount(op), first = op[1] * n / 256;
    uint8_t *buffer = malloc(n);
    if (!buffer)
        return;
    memset(buffer, op[1], n);
    struct iovec iov[2] = {{buffer, first}, {buffer + first, n - first}};
    ssize_t moved = receive ? t->ops->recv(t, iov, 2, 0) : t->ops->send(t, iov, 2);
    require(moved != 0 && moved <= (ssize_t)n && moved <= RING);
    require(moved > 0 || moved == -EAGAIN || moved == -EPROTO || moved == -ESHUTDOWN ||
            moved == -ECONNRESET);
    free(buffer);
}

static void step(struct rpc_transport *t, uint8_t *region, const uint8_t *op)
{
    size_t bytes = rpc_shm_region_bytes(RING);
    switch (op[0] % 6) {
    case 0: /* an index or a flag */
        memcpy(region + (size_t)(op[1] % 8) * HW_CACHE_LINE, op + 2, 8);
        break;
    case 1: /* an index moved by a little, as a careful attacker would */
    {
        uint8_t *at = region + (size_t)(op[1] % 8) * HW_CACHE_LINE;
        uint64_t v = load64(at) + (uint64_t)(int64_t)(int16_t)load64(op + 2);
        memcpy(at, &v, sizeof v);
        break;
    }
    case 2: /* anything anywhere */
        memset(region + load64(op + 2) % bytes, op[1], bytes - load64(op + 2) % bytes);
        break;
    case 3:
        transfer(t, op, 0);
        break;
    case 4:
        transfer(t, op, 1);
        break;
    default:
        (void)t->ops->arm(t, 1 + op[1] % 3);
        (void)t->ops->wait(t, 1 + op[1] % 3, 0);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (data[0] % 2 == 0) {
        try_offer(data + 1, size - 1);
        return 0;
    }
    struct rpc_transport *pair[2];
    require(rpc_shm_pair(RING, pair) == 0);
    uint8_t *region = find_region();
    require(region != NULL);
    for (size_t at = 1; at + OP_BYTES <= size && at < 64 * OP_BYTES; at += OP_BYTES)
        step(pair[data[0] / 2 % 2], region, data + at);
    rpc_transport_destroy(pair[0]);
    rpc_transport_destroy(pair[1]);
    return 0;
}
