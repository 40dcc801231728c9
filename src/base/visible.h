/* base/visible.h - which GPUs of this machine this process and its children may use.
 *
 * HAWSER_VISIBLE_DEVICES holds the Vulkan device UUIDs, as 32 hexadecimal digits each, separated by
 * commas; `hawser serve --device` sets it.  Not set: all of them, in the drivers' order.
 *
 * Threads: any, as getenv. */
#ifndef HAWSER_BASE_VISIBLE_H
#define HAWSER_BASE_VISIBLE_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HW_UUID_BYTES = 16 }; /* VK_UUID_SIZE */

/* Whether only some devices may be used. */
bool hw_visible_are_chosen(void);
/* The place of a device among those that may be used, 0 where none is chosen; -1: it may not. */
int hw_visible_place(const uint8_t uuid[HW_UUID_BYTES]);
/* Allows these only, in this order.  0 or -ENOMEM. */
int hw_visible_choose(const uint8_t (*uuids)[HW_UUID_BYTES], size_t count) MUST_CHECK;

#endif
