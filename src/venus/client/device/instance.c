/* The program's instance; see instance.h. */
#include "venus/client/device/instance.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/units.h"
#include "rpc/security/security.h"
#include "rpc/servers.h"
#include "venus/client/device/debug.h"
#include "venus/client/device/kept.h"
#include "venus/client/device/physical_device.h"
#include "venus/client/device/servers.h"
#include "venus/client/link/pushes.h"
#include "venus/client/memory/progress.h"
#include "venus/client/perf.h"
#include "venus/common/protocol.h"
#include "venus/common/transfer/stripe.h"
#include "vn_client.gen.h"

/* ---- before there is an instance ---- */

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_version(uint32_t *version)
{
    *version = vnc_icd_version();
    return VK_SUCCESS;
}

static bool offers(const struct vn_extension_info *extension)
{
    return !extension->device && vnc_icd_has_extension(extension);
}

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_extensions(const char *layer, uint32_t *count,
                                                           VkExtensionProperties *out)
{
    uint32_t have = 0;
    if (layer)
        return VK_ERROR_LAYER_NOT_PRESENT;
    for (size_t i = 0; i < vn_extension_count; i++) {
        const struct vn_extension_info *extension = &vn_extension_table[i];
        if (!offers(extension))
            continue;
        if (out && have == *count)
            return VK_INCOMPLETE;
        if (out) {
            snprintf(out[have].extensionName, sizeof(out[have].extensionName), "%s",
                     extension->name);
            out[have].specVersion = extension->version;
        }
        have++;
    }
    *count = have;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_layers(uint32_t *count, VkLayerProperties *out)
{
    (void)out;
    *count = 0;
    return VK_SUCCESS;
}

/* ---- opening a server ---- */

static int put_open(struct wire_enc *e, const uint8_t key[VN_STRIPE_KEY_BYTES],
                    const struct vnc_server *server)
{
    wire_put_u32(e, VN_PROTOCOL);
    wire_put_bytes(e, key, VN_STRIPE_KEY_BYTES);
    wire_put_u64(e, server->instance_id);
    wire_put_u64(e, server->first_device);
    wire_put_bytes(e, wire_enc_data(&server->asked), wire_enc_len(&server->asked));
    return wire_enc_error(e);
}

static const char *open_failure(int rc)
{
    switch (rc) {
    case -EPROTONOSUPPORT:
        return "it speaks another version of the Vulkan protocol; use the same release of hawser "
               "at both ends";
    case -ENOSYS:
        return "it does not serve Vulkan; start it with `hawser serve` of this release";
    case -ENODEV:
        return "it has no Vulkan driver; see `hawser serve --software`";
    case -EUSERS:
    case -EAGAIN:
        return "it serves as many clients as it may; see `hawser serve --max-clients`";
    case -EPROTO:
        return "its description of the devices cannot be read; use the same release of hawser at "
               "both ends";
    default:
        return strerror(-rc);
    }
}

static int add_device(struct vnc_instance *instance, struct vnc_link *link, uint64_t id,
                      uint32_t index, struct vnc_snapshot *snapshot)
{
    char why[RPC_WHY_CHARS];
    struct vnc_physical_device *device;
    int rc = vnc_physical_device_create(instance, link, id, index, snapshot, &device, why);
    if (rc)
        vnc_snapshot_destroy(snapshot);
    if (rc == -ENOTSUP) {
        hw_warn(HW_CAT_VULKAN, "%s: a device is left out: %s", vnc_link_address(link), why);
        return 0;
    }
    if (rc == 0)
        instance->devices[instance->device_count++] = device;
    return rc;
}

static int add_devices(struct vnc_instance *instance, struct vnc_server *server)
{
    struct wire_dec in;
    wire_dec_init(&in, server->opened.data, server->opened.len);
    (void)wire_get_u32(&in); /* the instance's version at the server: ours is what counts */
    uint32_t count = wire_dec_count(&in, 1, VN_DEVICES_MAX);
    struct vnc_physical_device **devices =
        realloc(instance->devices, (instance->device_count + count + 1) * sizeof(*devices));
    if (!devices)
        return -ENOMEM;
    instance->devices = devices;
    uint32_t before = instance->device_count;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        struct vnc_snapshot *snapshot = vnc_snapshot_parse(&in);
        if (!snapshot)
            return wire_dec_error(&in) ? wire_dec_error(&in) : -ENOMEM;
        rc = add_device(instance, server->link, server->first_device + i, i, snapshot);
    }
    uint64_t upload_key = wire_get_u64(&in);
    if (!server->taken_over)
        vnc_link_open_stripes(server->link, wire_get_u32(&in));
    else
        (void)wire_get_u32(&in);
    for (uint32_t i = before; i < instance->device_count; i++) {
        devices[i]->upload_key = server->upload_cache ? upload_key : 0;
        devices[i]->near = server->near;
    }
    return rc ? rc : wire_dec_end(&in);
}

/* Frees the devices from `first` on. */
static void drop_devices(struct vnc_instance *instance, uint32_t first)
{
    while (instance->device_count > first)
        vnc_physical_device_destroy(instance->devices[--instance->device_count]);
}

static int open_session(struct vnc_server *server, const uint8_t key[VN_STRIPE_KEY_BYTES])
{
    struct wire_enc request;
    server->instance_id = vnc_link_ids(server->link, 1);
    server->first_device = vnc_link_ids(server->link, VN_DEVICES_MAX);
    server->ids_end = vnc_link_ids(server->link, 0);
    wire_enc_init(&request, WIRE_MESSAGE_MAX);
    int rc = put_open(&request, key, server);
    if (rc == 0)
        rc = vnc_link_exchange(server->link, VN_METHOD_OPEN, &request, &server->opened);
    wire_enc_fini(&request);
    return rc;
}

static int connect_server(struct vnc_server *server, const struct rpc_addr *addr,
                          const struct rpc_security *security, struct vnc_debug *debug,
                          char why[RPC_WHY_CHARS])
{
    server->pushes = vnc_pushes_create(debug);
    if (!server->pushes) {
        snprintf(why, RPC_WHY_CHARS, "out of memory");
        return -ENOMEM;
    }
    int rc = vnc_link_create(addr, security, server->pushes, &server->link, why);
    if (rc)
        return rc;
    rc = open_session(server, vnc_link_dial_stripes(server->link, addr, security));
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "%s", open_failure(rc));
    return rc;
}

/* The session of the last instance, when it asked for the same, or a new one; and its devices. */
static int open_server(struct vnc_instance *instance, struct vnc_server *server,
                       const struct rpc_addr *addr, const struct rpc_security *security,
                       char why[RPC_WHY_CHARS])
{
    uint32_t before = instance->device_count;
    server->taken_over = vnc_kept_take(server);
    if (server->taken_over)
        vnc_pushes_set_debug(server->pushes, instance->debug);
    int rc = server->taken_over ? 0 : connect_server(server, addr, security, instance->debug, why);
    if (rc)
        return rc;
    hw_env_bool("VENUS_SYNC", !vnc_perf(VNC_PERF_PIPELINING), &vnc_link_client(server->link)->sync);
    instance->object.id = server->instance_id;
    rc = add_devices(instance, server);
    if (rc) {
        drop_devices(instance, before);
        snprintf(why, RPC_WHY_CHARS, "%s", open_failure(rc));
    }
    return rc;
}

void vnc_server_close(struct vnc_server *server)
{
    vnc_link_destroy(server->link);
    vnc_pushes_destroy(server->pushes);
    rpc_answer_fini(&server->opened);
    wire_enc_fini(&server->asked);
    *server = (struct vnc_server){0};
}

/* Of the token and of every variable of ours: a program may have changed them since its last
 * instance, to be another user or to try a knob. */
static uint64_t digest_settings(const struct rpc_security *security)
{
    uint64_t digest = XXH3_64bits(security->token, security->token_len);
    for (char **entry = environ; entry && *entry; entry++) {
        if (strncmp(*entry, "VENUS_", strlen("VENUS_")) == 0)
            digest += XXH3_64bits(*entry, strlen(*entry)); /* in any order */
    }
    return digest;
}

/* One warning when it cannot be used; the instance then does without. */
static void add_server(struct vnc_instance *instance, const struct rpc_addr *addr,
                       const struct rpc_security *security, const VkInstanceCreateInfo *info)
{
    struct vnc_server *server = &instance->servers[instance->server_count];
    char why[RPC_WHY_CHARS];
    rpc_addr_format(addr, server->address, sizeof(server->address));
    server->near = rpc_addr_is_local(addr);
    server->settings = digest_settings(security);
    hw_env_bool("VENUS_UPLOAD_CACHE", !server->near, &server->upload_cache);
    wire_enc_init(&server->asked, WIRE_MESSAGE_MAX);
    vn_enc_VkInstanceCreateInfo(&server->asked, info);
    int rc = wire_enc_error(&server->asked);
    if (rc)
        snprintf(why, sizeof(why), "%s", strerror(-rc));
    else
        rc = open_server(instance, server, addr, security, why);
    if (rc) {
        /* An installed driver is in every Vulkan program, also where no server was ever named. */
        bool unasked = rc == -ECONNREFUSED && !rpc_servers_named();
        HW_LOG_IF_ON(HW_CAT_VULKAN, unasked ? HW_LOG_INFO : HW_LOG_WARN, "no GPU of %s: %s",
                     server->address, why);
        vnc_server_close(server);
        return;
    }
    instance->server_count++;
}

/* ---- creation ---- */

static void instance_free(struct vnc_instance *instance)
{
    drop_devices(instance, 0);
    for (uint32_t i = 0; i < instance->server_count; i++)
        vnc_kept_put(&instance->servers[i]);
    for (uint32_t i = 0; i < instance->extension_count; i++)
        free(instance->extensions[i]);
    free(instance->extensions);
    free(instance->devices);
    vnc_debug_destroy(instance->debug);
    free(instance);
}

/* Remembers what is enabled; `driver` gets what the server is asked for, too. */
static VkResult keep_extensions(struct vnc_instance *instance, const VkInstanceCreateInfo *info,
                                const char **driver, uint32_t *driver_count)
{
    *driver_count = 0;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        const char *name = info->ppEnabledExtensionNames[i];
        const struct vn_extension_info *extension = vn_extension_find(name);
        if (!extension || !offers(extension))
            return VK_ERROR_EXTENSION_NOT_PRESENT;
        char *copy = strdup(name);
        if (!copy)
            return VK_ERROR_OUT_OF_HOST_MEMORY;
        instance->extensions[instance->extension_count++] = copy;
        if (!extension->client_only)
            driver[(*driver_count)++] = copy;
    }
    return VK_SUCCESS;
}

static void add_servers(struct vnc_instance *instance, const VkInstanceCreateInfo *info)
{
    struct rpc_addr addresses[VNC_SERVERS_MAX];
    struct rpc_security security;
    char why[RPC_WHY_CHARS];
    uint32_t count = vnc_servers_from_env(addresses, VNC_SERVERS_MAX);
    if (rpc_security_from_env(&security, NULL, why)) {
        hw_warn(HW_CAT_VULKAN, "no remote GPU: %s", why);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        add_server(instance, &addresses[i], &security, info);
    rpc_security_fini(&security);
}

/* libavutil, in ffmpeg and others, fails where no GPU memory can be mapped. */
static bool maps_device_memory(const VkApplicationInfo *app)
{
    return app && app->pEngineName && strcmp(app->pEngineName, "libavutil") == 0;
}

static struct vnc_instance *instance_new(const VkInstanceCreateInfo *info)
{
    struct vnc_instance *instance = calloc(1, sizeof(*instance));
    if (!instance)
        return NULL;
    instance->object.loader = VNC_LOADER_MAGIC;
    instance->object.type = VK_OBJECT_TYPE_INSTANCE;
    instance->api_version = info->pApplicationInfo && info->pApplicationInfo->apiVersion
                                ? info->pApplicationInfo->apiVersion
                                : VK_API_VERSION_1_0;
    instance->maps_device_memory = maps_device_memory(info->pApplicationInfo);
    instance->debug = vnc_debug_create(info->pNext);
    instance->extensions = calloc(info->enabledExtensionCount + 1, sizeof(char *));
    if (!instance->debug || !instance->extensions) {
        instance_free(instance);
        return NULL;
    }
    return instance;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *allocator,
                                                      VkInstance *out)
{
    (void)allocator;
    VkInstanceCreateInfo driver = *info;
    struct vnc_instance *instance = instance_new(info);
    const char **names = calloc(info->enabledExtensionCount + 1, sizeof(*names));
    VkResult result = VK_ERROR_OUT_OF_HOST_MEMORY;
    if (instance && names)
        result = keep_extensions(instance, info, names, &driver.enabledExtensionCount);
    if (result != VK_SUCCESS) {
        if (instance)
            instance_free(instance);
        free(names);
        return result;
    }
    driver.ppEnabledExtensionNames = names;
    driver.enabledLayerCount = 0;
    add_servers(instance, &driver);
    free(names);
    vnc_debug_set_changing(instance->debug, false);
    *out = VNC_HANDLE(VkInstance, instance);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance handle,
                                                   const VkAllocationCallbacks *allocator)
{
    struct vnc_instance *instance = VNC_OBJECT(vnc_instance, handle);
    (void)allocator;
    if (!instance)
        return;
    vnc_progress_end();
    vnc_debug_set_changing(instance->debug, true);
    instance_free(instance);
}

/* ---- devices ---- */

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_devices(VkInstance handle, uint32_t *count,
                                                        VkPhysicalDevice *out)
{
    const struct vnc_instance *instance = VNC_OBJECT(vnc_instance, handle);
    uint32_t room = out ? *count : 0;
    for (uint32_t i = 0; i < instance->device_count && i < room; i++)
        out[i] = VNC_HANDLE(VkPhysicalDevice, instance->devices[i]);
    *count = out && room < instance->device_count ? room : instance->device_count;
    return out && room < instance->device_count ? VK_INCOMPLETE : VK_SUCCESS;
}

/* Each device is a group of its own. */
static VKAPI_ATTR VkResult VKAPI_CALL enumerate_groups(VkInstance handle, uint32_t *count,
                                                       VkPhysicalDeviceGroupProperties *out)
{
    const struct vnc_instance *instance = VNC_OBJECT(vnc_instance, handle);
    uint32_t room = out ? *count : 0;
    for (uint32_t i = 0; i < instance->device_count && i < room; i++) {
        out[i].physicalDeviceCount = 1;
        memset(out[i].physicalDevices, 0, sizeof(out[i].physicalDevices));
        out[i].physicalDevices[0] = VNC_HANDLE(VkPhysicalDevice, instance->devices[i]);
        out[i].subsetAllocation = VK_FALSE;
    }
    *count = out && room < instance->device_count ? room : instance->device_count;
    return out && room < instance->device_count ? VK_INCOMPLETE : VK_SUCCESS;
}

const struct vnc_entry vnc_entries_instance[] = {
    VNC_ENTRY(vkEnumerateInstanceVersion, enumerate_version),
    VNC_ENTRY(vkEnumerateInstanceExtensionProperties, enumerate_extensions),
    VNC_ENTRY(vkEnumerateInstanceLayerProperties, enumerate_layers),
    VNC_ENTRY(vkCreateInstance, create_instance),
    VNC_ENTRY(vkDestroyInstance, destroy_instance),
    VNC_ENTRY(vkEnumeratePhysicalDevices, enumerate_devices),
    VNC_ENTRY(vkEnumeratePhysicalDeviceGroups, enumerate_groups),
    {NULL, NULL},
};
