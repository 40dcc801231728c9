#include "command/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cmd_find_manifest(char out[PATH_MAX])
{
    static const char *const places[] = {"../venus/client/hawser_icd.json",
                                         "../share/vulkan/icd.d/hawser_icd.json"};
    char exe[PATH_MAX], path[PATH_MAX];
    const char *given = getenv("HAWSER_ICD");
    if (given && *given)
        return realpath(given, out) != NULL;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n <= 0)
        return false;
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    if (!slash)
        return false;
    *slash = '\0';
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        int len = snprintf(path, sizeof(path), "%s/%s", exe, places[i]);
        if (len < (int)sizeof(path) && realpath(path, out))
            return true;
    }
    return false;
}

void cmd_use_manifest(const char *path)
{
    /* Loaders before 1.3.207 know the second name only. */
    setenv("VK_DRIVER_FILES", path, 1);
    setenv("VK_ICD_FILENAMES", path, 1);
    unsetenv("VK_ADD_DRIVER_FILES");
    /* A machine that is a server, too, may leave our driver out for everybody. */
    unsetenv("VK_LOADER_DRIVERS_SELECT");
    unsetenv("VK_LOADER_DRIVERS_DISABLE");
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

bool cmd_leave_out_manifest(void)
{
    static const char variable[] = "VK_LOADER_DRIVERS_DISABLE", ours[] = "hawser_icd*";
    char list[4096];
    /* Named drivers are the user's choice, ours among them: a server may pass GPUs on. */
    if (is_set("VK_DRIVER_FILES") || is_set("VK_ICD_FILENAMES"))
        return true;
    const char *old = getenv(variable);
    int n = snprintf(list, sizeof(list), "%s%s%s", ours, is_set(variable) ? "," : "",
                     is_set(variable) ? old : "");
    return n < (int)sizeof(list) && setenv(variable, list, 1) == 0;
}
