/* offers.c - a program that says which extensions the first device offers, a line each. */
#include <stdlib.h>

#include "kit.h"

static void extensions(void)
{
    VkPhysicalDevice devices[KIT_DEVICES_MAX];
    VkInstance instance = kit_instance();
    uint32_t count = 0;
    VKT_EXPECT(kit_devices(instance, devices) > 0);
    VKT(vkEnumerateDeviceExtensionProperties(devices[0], NULL, &count, NULL));
    VkExtensionProperties *list = calloc(count, sizeof(*list));
    VKT_EXPECT(list);
    VKT(vkEnumerateDeviceExtensionProperties(devices[0], NULL, &count, list));
    for (uint32_t i = 0; i < count; i++)
        kit_say("%s", list[i].extensionName);
    free(list);
    vkDestroyInstance(instance, NULL);
}

static const struct kit_case cases[] = {
    {"extensions", extensions},
};

KIT_MAIN(cases)
