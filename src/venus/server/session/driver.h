/* venus/server/session/driver.h - the Vulkan loader and one instance of it.
 *
 * The loader is opened at run time, in the session's own process, so that a machine without Vulkan
 * still serves the rest and a driver that crashes takes one client with it.
 *
 * Trust: what the client asks for is held against what the loader has.  The driver is trusted.
 * Threads: the executor's; messages of the validation layer come on any.
 * Lifetime: open/close; the loader stays loaded. */
#ifndef HAWSER_VENUS_SERVER_SESSION_DRIVER_H
#define HAWSER_VENUS_SERVER_SESSION_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "vn_commands.gen.h"

enum { VNS_WHY_CHARS = 200 };

/* One message of the validation layer or of the driver. */
typedef void vns_message_fn(void *user, uint32_t severity, uint32_t types, int32_t number,
                            const char *name, const char *text);

struct vns_instance {
    struct vn_driver driver;
    VkInstance handle;
    uint32_t version; /* that the instance was made with */
    PFN_vkGetInstanceProcAddr get_instance;
    PFN_vkGetDeviceProcAddr get_device;
    VkDebugUtilsMessengerEXT messenger;
    VkPhysicalDevice *devices;
    uint32_t device_count;
};

struct vns_instance_params {
    bool validate;           /* with Khronos' validation layer */
    vns_message_fn *message; /* NULL: nobody listens */
    void *user;
};

/* Makes the instance that a client described and lists its devices.  Extensions that the loader
 * does not have are left out; the version is at least 1.1 where the loader has it.  0, or a
 * negative errno with the cause in why: -ENOENT no loader, -ENODEV no driver, -EIO. */
int vns_instance_open(struct vns_instance *instance, const VkInstanceCreateInfo *info,
                      const struct vns_instance_params *params, char why[VNS_WHY_CHARS]) MUST_CHECK;
/* No device may be left. */
void vns_instance_close(struct vns_instance *instance);

/* The functions of a device, as it has them enabled. */
void vns_instance_load_device(const struct vns_instance *instance, VkDevice device,
                              struct vn_driver *driver);

#endif
