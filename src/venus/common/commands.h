/* venus/common/commands.h - what every command and extension of the registry is to us.
 *
 * The tables are generated from the registry and spec/policy.json: one row a name, aliases
 * included, sorted by name.
 * Threads: any; constant. */
#ifndef HAWSER_VENUS_COMMON_COMMANDS_H
#define HAWSER_VENUS_COMMON_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vn_class {
    VN_CLASS_RECORD,      /* into the stream of its command buffer, which is not in the payload */
    VN_CLASS_CREATE,      /* posted; the client chose the id */
    VN_CLASS_CREATE_SYNC, /* called: programs act on its failure */
    VN_CLASS_DESTROY,     /* posted */
    VN_CLASS_POST,        /* posted */
    VN_CLASS_CALL,        /* called */
    VN_CLASS_SNAPSHOT,    /* answered at the client from what it asked once */
    VN_CLASS_CUSTOM,      /* travels, but the client's entrypoint is hand-written */
    VN_CLASS_LOCAL,       /* never travels: hand-written at the client */
    VN_CLASS_REFUSE,      /* never travels: of a feature that is not offered */
};

/* What a command is called on. */
enum vn_level {
    VN_LEVEL_GLOBAL,
    VN_LEVEL_INSTANCE,
    VN_LEVEL_PHYSICAL_DEVICE,
    VN_LEVEL_DEVICE, /* and queues and command buffers */
};

struct vn_command_info {
    const char *name;
    const char *canonical; /* what this name is an alias of, or name itself */
    /* The version and extensions one of which an instance or device must have for it; ends with
     * NULL.  Versions read VK_VERSION_1_2. */
    const char *const *origins;
    uint32_t id; /* on the wire; 0 when it never travels */
    enum vn_class class;
    enum vn_level level;
};

extern const struct vn_command_info vn_command_table[];
extern const size_t vn_command_count;

/* NULL when no such command is known. */
const struct vn_command_info *vn_command_find(const char *name);
const struct vn_command_info *vn_command_by_id(uint32_t id);
/* The name behind an id, for messages; NULL when unknown. */
const char *vn_command_name(uint32_t id);

struct vn_extension_info {
    const char *name;
    uint32_t version; /* of the extension, in this registry */
    bool device;      /* of devices; else of instances */
    bool offered;     /* when the driver has it */
    bool client_only; /* the client has it; the driver is not asked */
    const char *knob; /* the variable that must be 1 for it to be offered, or NULL */
};

extern const struct vn_extension_info vn_extension_table[];
extern const size_t vn_extension_count;

/* NULL when the registry has no such extension. */
const struct vn_extension_info *vn_extension_find(const char *name);

#endif
