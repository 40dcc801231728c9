/* venus/client/present/wsi.h - surfaces and swapchains: the entry points of presentation.
 *
 * The window is where the program is, the pictures are made elsewhere: see
 * docs/design/presentation.md.
 *
 * Trust: the program's own.  Threads: as Vulkan.  Lifetime: of the handles. */
#ifndef HAWSER_VENUS_CLIENT_PRESENT_WSI_H
#define HAWSER_VENUS_CLIENT_PRESENT_WSI_H

#include "venus/client/icd.h"

extern const struct vnc_entry vnc_entries_wsi_surface[];
extern const struct vnc_entry vnc_entries_wsi_x11[];
extern const struct vnc_entry vnc_entries_wsi_wayland[];
extern const struct vnc_entry vnc_entries_wsi_swapchain[];
/* Images that share the memory of a swapchain's: behind vnc_entries_resource, some of which it
 * replaces. */
extern const struct vnc_entry vnc_entries_wsi_alias[];

#endif
