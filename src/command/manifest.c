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
}
