/* venus/client/object/local.h - objects that never leave the client: private data and deferred
 * operations; and what the client must remember of render passes, and of answers.
 *
 * Trust: the program's own.  Threads: as Vulkan.  Lifetime: of the handles. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_LOCAL_H
#define HAWSER_VENUS_CLIENT_OBJECT_LOCAL_H

#include "venus/client/icd.h"
#include "wire/enc.h"

/* The layout of a part of an image that was created that way (an encoded VkImageCreateInfo), as the
 * server gave it before.  False, and *out as it was, where it did not. */
bool vnc_layout_find(VkDevice device, const struct wire_enc *created,
                     const VkImageSubresource *part, VkSubresourceLayout *out);
/* What cannot be kept is asked for again. */
void vnc_layout_keep(VkDevice device, const struct wire_enc *created,
                     const VkImageSubresource *part, const VkSubresourceLayout *layout);

extern const struct vnc_entry vnc_entries_private_data[];
struct vn_object;
/* The object ends, and with it what the program stored for it.  Cheap while there is no slot. */
void vnc_private_data_forget(const struct vn_object *object);
/* Objects for which the slot holds something. */
size_t vnc_private_data_words(VkPrivateDataSlot slot);

extern const struct vnc_entry vnc_entries_deferred[];
extern const struct vnc_entry vnc_entries_answers[];
extern const struct vnc_entry vnc_entries_render_pass[];

#endif
