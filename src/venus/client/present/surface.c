/* What surfaces can do, and surfaces without a window; see surface.h.
 *
 * The figures are those that Mesa gives on X11, so that programs choose remotely what they choose
 * natively. */
#include "venus/client/present/surface.h"

#include "venus/client/device/physical_device.h"
#include "venus/client/present/wsi.h"

#include <stdlib.h>

enum { IMAGES_MIN = 3 }; /* one that is shown, one on the way, one for the program */

/* ---- headless ---- */

static VkResult headless_look(const struct vnc_surface *surface, struct vnc_surface_look *out)
{
    (void)surface;
    *out = (struct vnc_surface_look){
        .presentable = true, .extent = {UINT32_MAX, UINT32_MAX}, .any_order = true};
    return VK_SUCCESS;
}

static const struct vnc_surface_ops headless_ops = {.look = headless_look};

static VKAPI_ATTR VkResult VKAPI_CALL create_headless(VkInstance instance,
                                                      const VkHeadlessSurfaceCreateInfoEXT *info,
                                                      const VkAllocationCallbacks *allocator,
                                                      VkSurfaceKHR *out)
{
    (void)instance, (void)info, (void)allocator;
    struct vnc_surface *surface = calloc(1, sizeof(*surface));
    if (!surface)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    surface->object.type = VK_OBJECT_TYPE_SURFACE_KHR;
    surface->ops = &headless_ops;
    *out = VNC_HANDLE(VkSurfaceKHR, surface);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_surface(VkInstance instance, VkSurfaceKHR surface,
                                                  const VkAllocationCallbacks *allocator)
{
    (void)instance, (void)allocator;
    free(VNC_OBJECT(vnc_surface, surface));
}

/* ---- support ---- */

bool vnc_surface_family_presents(VkPhysicalDevice handle, uint32_t family)
{
    const struct vnc_physical_device *device = VNC_OBJECT(vnc_physical_device, handle);
    VkQueueFamilyProperties2 properties = {.sType = VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2};
    if (family >= device->queue_family_count ||
        vnc_snapshot_family(device->snapshot, family, &properties))
        return false;
    /* Presenting is a copy: of the others only these three are sure to have it. */
    return properties.queueFamilyProperties.queueFlags &
           (VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT | VK_QUEUE_TRANSFER_BIT);
}

static VKAPI_ATTR VkResult VKAPI_CALL get_support(VkPhysicalDevice device, uint32_t family,
                                                  VkSurfaceKHR handle, VkBool32 *out)
{
    const struct vnc_surface *surface = VNC_OBJECT(vnc_surface, handle);
    struct vnc_surface_look look;
    /* A window that is gone is not presentable, and that is no failure. */
    *out = surface->ops->look(surface, &look) == VK_SUCCESS && look.presentable &&
           vnc_surface_family_presents(device, family);
    return VK_SUCCESS;
}

/* ---- capabilities ---- */

static bool has_feedback_loops(const struct vnc_physical_device *device)
{
    VkPhysicalDeviceAttachmentFeedbackLoopLayoutFeaturesEXT loops = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ATTACHMENT_FEEDBACK_LOOP_LAYOUT_FEATURES_EXT};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &loops};
    return vnc_physical_device_has(device, VK_EXT_ATTACHMENT_FEEDBACK_LOOP_LAYOUT_EXTENSION_NAME) &&
           vnc_snapshot_features(device->snapshot, &features) == 0 &&
           loops.attachmentFeedbackLoopLayout;
}

static VkImageUsageFlags usage_of(const struct vnc_physical_device *device, VkFormat format)
{
    VkFormatProperties2 properties = {.sType = VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_2};
    VkImageUsageFlags usage = VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT |
                              VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT |
                              VK_IMAGE_USAGE_INPUT_ATTACHMENT_BIT;
    if (vnc_snapshot_format(device->snapshot, format, &properties) == 0 &&
        properties.formatProperties.optimalTilingFeatures & VK_FORMAT_FEATURE_STORAGE_IMAGE_BIT)
        usage |= VK_IMAGE_USAGE_STORAGE_BIT;
    if (has_feedback_loops(device))
        usage |= VK_IMAGE_USAGE_ATTACHMENT_FEEDBACK_LOOP_BIT_EXT;
    return usage;
}

static void set_extents(const struct vnc_physical_device *device, VkExtent2D extent,
                        VkSurfaceCapabilitiesKHR *out)
{
    out->currentExtent = out->minImageExtent = out->maxImageExtent = extent;
    if (extent.width == UINT32_MAX) {
        uint32_t most = device->limits.maxImageDimension2D;
        out->minImageExtent = (VkExtent2D){1, 1};
        out->maxImageExtent = (VkExtent2D){most, most};
    }
}

/* INHERIT is for windows whose pixels say how they mix: of X11. */
static VkCompositeAlphaFlagsKHR alphas_of(const struct vnc_surface_look *look)
{
    if (look->opaque)
        return VK_COMPOSITE_ALPHA_OPAQUE_BIT_KHR | VK_COMPOSITE_ALPHA_PRE_MULTIPLIED_BIT_KHR;
    return VK_COMPOSITE_ALPHA_INHERIT_BIT_KHR |
           (look->alpha ? VK_COMPOSITE_ALPHA_PRE_MULTIPLIED_BIT_KHR
                        : VK_COMPOSITE_ALPHA_OPAQUE_BIT_KHR);
}

static VKAPI_ATTR VkResult VKAPI_CALL get_capabilities(VkPhysicalDevice handle,
                                                       VkSurfaceKHR surface_handle,
                                                       VkSurfaceCapabilitiesKHR *out)
{
    const struct vnc_physical_device *device = VNC_OBJECT(vnc_physical_device, handle);
    const struct vnc_surface *surface = VNC_OBJECT(vnc_surface, surface_handle);
    struct vnc_surface_look look;
    VkResult result = surface->ops->look(surface, &look);
    if (result != VK_SUCCESS)
        return result;
    *out = (VkSurfaceCapabilitiesKHR){
        .minImageCount = IMAGES_MIN,
        .maxImageArrayLayers = 1,
        .supportedTransforms = VK_SURFACE_TRANSFORM_IDENTITY_BIT_KHR,
        .currentTransform = VK_SURFACE_TRANSFORM_IDENTITY_BIT_KHR,
        .supportedCompositeAlpha = alphas_of(&look),
        .supportedUsageFlags = usage_of(device, VK_FORMAT_B8G8R8A8_UNORM),
    };
    set_extents(device, look.extent, out);
    return VK_SUCCESS;
}

/* ---- modes ---- */

enum { MODES_MAX = 4 };

/* In Mesa's order.  What is composited is never shown while it is drawn. */
static VkResult modes_of(const struct vnc_surface *surface, VkPresentModeKHR modes[MODES_MAX],
                         uint32_t *count)
{
    struct vnc_surface_look look;
    VkResult result = surface->ops->look(surface, &look);
    if (result != VK_SUCCESS)
        return result;
    *count = 0;
    if (!look.composited)
        modes[(*count)++] = VK_PRESENT_MODE_IMMEDIATE_KHR;
    modes[(*count)++] = VK_PRESENT_MODE_MAILBOX_KHR;
    modes[(*count)++] = VK_PRESENT_MODE_FIFO_KHR;
    if (!look.composited)
        modes[(*count)++] = VK_PRESENT_MODE_FIFO_RELAXED_KHR;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_modes(VkPhysicalDevice device, VkSurfaceKHR surface,
                                                uint32_t *count, VkPresentModeKHR *out)
{
    (void)device;
    VkPresentModeKHR modes[MODES_MAX];
    uint32_t have, copied;
    VkResult result = modes_of(VNC_OBJECT(vnc_surface, surface), modes, &have);
    if (result != VK_SUCCESS)
        return result;
    result = vnc_fit(have, count, out, &copied);
    for (uint32_t i = 0; i < copied; i++)
        out[i] = modes[i];
    return result;
}

/* ---- more capabilities ---- */

static void fill_flags(const struct vnc_physical_device *device, VkSurfaceCapabilities2KHR *out)
{
#ifdef VK_KHR_present_wait2
    VkSurfaceCapabilitiesPresentId2KHR *id =
        (void *)vn_chain_find(out->pNext, VK_STRUCTURE_TYPE_SURFACE_CAPABILITIES_PRESENT_ID_2_KHR);
    VkSurfaceCapabilitiesPresentWait2KHR *wait = (void *)vn_chain_find(
        out->pNext, VK_STRUCTURE_TYPE_SURFACE_CAPABILITIES_PRESENT_WAIT_2_KHR);
    if (id)
        id->presentId2Supported = VK_TRUE;
    if (wait)
        wait->presentWait2Supported = VK_TRUE;
#endif
#ifdef VK_EXT_multisampled_render_to_swapchain
    VkSwapchainFlagsSurfaceCapabilitiesEXT *flags = (void *)vn_chain_find(
        out->pNext, VK_STRUCTURE_TYPE_SWAPCHAIN_FLAGS_SURFACE_CAPABILITIES_EXT);
    if (flags)
        flags->swapchainSupportedFlags =
            VK_SWAPCHAIN_CREATE_MUTABLE_FORMAT_BIT_KHR |
            VK_SWAPCHAIN_CREATE_DEFERRED_MEMORY_ALLOCATION_BIT_KHR |
            VK_SWAPCHAIN_CREATE_PRESENT_ID_2_BIT_KHR | VK_SWAPCHAIN_CREATE_PRESENT_WAIT_2_BIT_KHR |
            (vnc_physical_device_renders_samples(device)
                 ? VK_SWAPCHAIN_CREATE_MULTISAMPLED_RENDER_TO_SINGLE_SAMPLED_BIT_EXT
                 : 0);
#endif
    (void)device, (void)out;
}

/* A swapchain can change from each mode to each; the one that is asked about comes first. */
static VkResult fill_compatible(const struct vnc_surface *surface, VkPresentModeKHR first,
                                VkSurfacePresentModeCompatibilityEXT *out)
{
    VkPresentModeKHR modes[MODES_MAX];
    uint32_t have, copied;
    VkResult result = modes_of(surface, modes, &have);
    if (result != VK_SUCCESS)
        return result;
    (void)vnc_fit(have, &out->presentModeCount, out->pPresentModes, &copied);
    if (copied)
        out->pPresentModes[0] = first;
    for (uint32_t i = 0, at = 1; i < have && at < copied; i++) {
        if (modes[i] != first)
            out->pPresentModes[at++] = modes[i];
    }
    return VK_SUCCESS;
}

static void fill_scaling(const VkSurfaceCapabilitiesKHR *capabilities,
                         VkSurfacePresentScalingCapabilitiesEXT *out)
{
    out->supportedPresentScaling = 0;
    out->supportedPresentGravityX = 0;
    out->supportedPresentGravityY = 0;
    out->minScaledImageExtent = capabilities->minImageExtent;
    out->maxScaledImageExtent = capabilities->maxImageExtent;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_capabilities2(VkPhysicalDevice device,
                                                        const VkPhysicalDeviceSurfaceInfo2KHR *info,
                                                        VkSurfaceCapabilities2KHR *out)
{
    const VkSurfacePresentModeEXT *mode =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_SURFACE_PRESENT_MODE_EXT);
    VkSurfacePresentModeCompatibilityEXT *compatible =
        (void *)vn_chain_find(out->pNext, VK_STRUCTURE_TYPE_SURFACE_PRESENT_MODE_COMPATIBILITY_EXT);
    VkSurfacePresentScalingCapabilitiesEXT *scaling = (void *)vn_chain_find(
        out->pNext, VK_STRUCTURE_TYPE_SURFACE_PRESENT_SCALING_CAPABILITIES_EXT);
    VkSurfaceProtectedCapabilitiesKHR *protection =
        (void *)vn_chain_find(out->pNext, VK_STRUCTURE_TYPE_SURFACE_PROTECTED_CAPABILITIES_KHR);
    VkResult result = get_capabilities(device, info->surface, &out->surfaceCapabilities);
    if (result != VK_SUCCESS)
        return result;
    if (mode && mode->presentMode == VK_PRESENT_MODE_MAILBOX_KHR)
        out->surfaceCapabilities.minImageCount = VNC_MAILBOX_IMAGES_MIN;
    if (scaling)
        fill_scaling(&out->surfaceCapabilities, scaling);
    if (protection)
        protection->supportsProtected = VK_FALSE;
    fill_flags(VNC_OBJECT(vnc_physical_device, device), out);
    if (compatible)
        result = fill_compatible(VNC_OBJECT(vnc_surface, info->surface),
                                 mode ? mode->presentMode : VK_PRESENT_MODE_FIFO_KHR, compatible);
    return result;
}

/* ---- formats ---- */

enum { FORMATS_MAX = 4 };

static VkResult formats_of(const struct vnc_surface *surface, VkFormat formats[FORMATS_MAX],
                           uint32_t *count)
{
    struct vnc_surface_look look;
    VkResult result = surface->ops->look(surface, &look);
    if (result != VK_SUCCESS)
        return result;
    *count = 0;
    if (look.presentable && (look.any_order || !look.red_first)) {
        formats[(*count)++] = VK_FORMAT_B8G8R8A8_SRGB;
        formats[(*count)++] = VK_FORMAT_B8G8R8A8_UNORM;
    }
    if (look.presentable && (look.any_order || look.red_first)) {
        formats[(*count)++] = VK_FORMAT_R8G8B8A8_SRGB;
        formats[(*count)++] = VK_FORMAT_R8G8B8A8_UNORM;
    }
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_formats(VkPhysicalDevice device, VkSurfaceKHR surface,
                                                  uint32_t *count, VkSurfaceFormatKHR *out)
{
    (void)device;
    VkFormat formats[FORMATS_MAX];
    uint32_t have, copied;
    VkResult result = formats_of(VNC_OBJECT(vnc_surface, surface), formats, &have);
    if (result != VK_SUCCESS)
        return result;
    result = vnc_fit(have, count, out, &copied);
    for (uint32_t i = 0; i < copied; i++)
        out[i] = (VkSurfaceFormatKHR){formats[i], VK_COLOR_SPACE_SRGB_NONLINEAR_KHR};
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_formats2(VkPhysicalDevice device,
                                                   const VkPhysicalDeviceSurfaceInfo2KHR *info,
                                                   uint32_t *count, VkSurfaceFormat2KHR *out)
{
    VkSurfaceFormatKHR formats[FORMATS_MAX];
    uint32_t have = FORMATS_MAX, copied;
    VkResult result = get_formats(device, info->surface, &have, formats);
    if (result != VK_SUCCESS)
        return result;
    result = vnc_fit(have, count, out, &copied);
    for (uint32_t i = 0; i < copied; i++)
        out[i].surfaceFormat = formats[i];
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_rectangles(VkPhysicalDevice device, VkSurfaceKHR handle,
                                                     uint32_t *count, VkRect2D *out)
{
    (void)device;
    const struct vnc_surface *surface = VNC_OBJECT(vnc_surface, handle);
    struct vnc_surface_look look;
    VkResult result = surface->ops->look(surface, &look);
    if (result != VK_SUCCESS)
        return result;
    uint32_t copied;
    result = vnc_fit(1, count, out, &copied);
    if (copied)
        *out = (VkRect2D){{0, 0}, look.extent};
    return result;
}

const struct vnc_entry vnc_entries_wsi_surface[] = {
    VNC_ENTRY(vkCreateHeadlessSurfaceEXT, create_headless),
    VNC_ENTRY(vkDestroySurfaceKHR, destroy_surface),
    VNC_ENTRY(vkGetPhysicalDeviceSurfaceSupportKHR, get_support),
    VNC_ENTRY(vkGetPhysicalDeviceSurfaceCapabilitiesKHR, get_capabilities),
    VNC_ENTRY(vkGetPhysicalDeviceSurfaceCapabilities2KHR, get_capabilities2),
    VNC_ENTRY(vkGetPhysicalDeviceSurfaceFormatsKHR, get_formats),
    VNC_ENTRY(vkGetPhysicalDeviceSurfaceFormats2KHR, get_formats2),
    VNC_ENTRY(vkGetPhysicalDeviceSurfacePresentModesKHR, get_modes),
    VNC_ENTRY(vkGetPhysicalDevicePresentRectanglesKHR, get_rectangles),
    {NULL, NULL},
};
