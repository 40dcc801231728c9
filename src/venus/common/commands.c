/* Finding commands and extensions; see commands.h. */
#include "venus/common/commands.h"

#include <stdlib.h>
#include <string.h>

/* Both tables begin with the name. */
static int by_name(const void *name, const void *info)
{
    return strcmp(name, *(const char *const *)info);
}

const struct vn_command_info *vn_command_find(const char *name)
{
    return bsearch(name, vn_command_table, vn_command_count, sizeof(*vn_command_table), by_name);
}

const struct vn_command_info *vn_command_by_id(uint32_t id)
{
    for (size_t i = 0; id && i < vn_command_count; i++) {
        if (vn_command_table[i].id == id)
            return &vn_command_table[i];
    }
    return NULL;
}

const char *vn_command_name(uint32_t id)
{
    const struct vn_command_info *info = vn_command_by_id(id);
    return info ? info->canonical : NULL;
}

const struct vn_extension_info *vn_extension_find(const char *name)
{
    return bsearch(name, vn_extension_table, vn_extension_count, sizeof(*vn_extension_table),
                   by_name);
}
