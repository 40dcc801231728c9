/* tests/unit/kv/block_calls.h - blocks that are known by a number: it gives each its key and its
 * bytes, so that what one client puts another can check.
 *
 * What a daemon does otherwise than expected ends the test.  Threads: any, a client each. */
#ifndef HAWSER_TESTS_UNIT_KV_BLOCK_CALLS_H
#define HAWSER_TESTS_UNIT_KV_BLOCK_CALLS_H

#include "kv/client/client.h"

/* For pthread_create: runs a struct kv_host until it is stopped. */
void *run_host(void *host);

/* Ends the test if there is nobody to open. */
struct kv_client *open_client(const char *socket, uint32_t staging_bytes);

struct kv_block_key key_of(uint32_t n);
/* To be freed. */
uint8_t *bytes_of(uint32_t n, size_t len);
enum kv_result put(struct kv_client *c, uint32_t n, uint32_t len);
/* It is there, with this length and its bytes. */
void expect(struct kv_client *c, uint32_t n, uint32_t len);
struct kv_blocks_stat stat_of(struct kv_client *c);

#endif
