/* venus/client/device/instance.h - the program's instance: the servers behind it and their devices.
 *
 * Servers: VENUS_SERVERS, else VENUS_SERVER_HOST and VENUS_SERVER_PORT, else 127.0.0.1:28100.  One
 * that cannot be used costs a warning and its devices, nothing else: other drivers of the program's
 * machine must keep working.
 *
 * Trust: the program's own; snapshots were checked when they came.
 * Threads: as Vulkan: any thread may query; create and destroy are the program's to order.
 * Lifetime: from vkCreateInstance to vkDestroyInstance. */
#ifndef HAWSER_VENUS_CLIENT_DEVICE_INSTANCE_H
#define HAWSER_VENUS_CLIENT_DEVICE_INSTANCE_H

#include "venus/client/device/budget.h"
#include "venus/client/device/memory_types.h"
#include "venus/client/device/snapshot.h"
#include "venus/client/icd.h"
#include "venus/client/object/memo.h"
#include "venus/client/object/objects.h"

enum { VNC_SERVERS_MAX = 16 }; /* as many as VENUS_SERVERS may name */

struct vnc_instance;
struct vnc_debug;
struct vnc_pushes;

struct vnc_physical_device {
    struct vn_object object;
    struct vnc_instance *instance;
    struct vnc_link *link;
    struct vnc_snapshot *snapshot;
    struct vnc_memory_types types;
    VkPhysicalDeviceLimits limits;
    uint32_t api_version; /* what we offer: the least of driver and registry */
    uint32_t queue_family_count;
    uint32_t index;                    /* at its server */
    uint64_t upload_key;               /* of its server's upload cache; 0: not to be used */
    bool near;                         /* on this machine */
    VkExtensionProperties *extensions; /* that we offer */
    uint32_t extension_count;
    struct vnc_memo queries; /* answers about image formats */
    struct vnc_budget budget;
    _Atomic uint64_t recycled[VK_MAX_MEMORY_HEAPS]; /* bytes: see client/memory/recycled.h */
};

/* One server: its connection and what it told at the start. */
struct vnc_server {
    struct vnc_link *link;
    struct vnc_pushes *pushes;
    struct rpc_answer opened; /* snapshots point into it */
    struct wire_enc asked;    /* the request that it answers, without what differs each time */
    uint64_t settings;        /* a digest of what else decided how it was opened */
    uint64_t instance_id, first_device;
    uint64_t ids_end; /* of those that opening used: the next object's */
    char address[RPC_ADDR_HOST_CHARS + 16];
    bool near;         /* on this machine, where bytes are as quick as names or compression */
    bool upload_cache; /* to be used */
    bool taken_over;   /* from an earlier instance */
};

struct vnc_instance {
    struct vn_object object; /* client is that of no link: an instance spans several */
    uint32_t api_version;    /* that the program asked for */
    bool maps_device_memory; /* the program, if it can */
    char **extensions;       /* enabled */
    uint32_t extension_count;
    struct vnc_server servers[VNC_SERVERS_MAX];
    uint32_t server_count;
    struct vnc_physical_device **devices;
    uint32_t device_count;
    struct vnc_debug *debug; /* messengers and report callbacks */
};

/* Closes the connection and frees what the server holds. */
void vnc_server_close(struct vnc_server *server);

extern const struct vnc_entry vnc_entries_instance[];

#endif
