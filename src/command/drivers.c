#include "command/drivers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of this executable; false when /proc does not tell. */
static bool own_folder(char exe[PATH_MAX], char folder[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", exe, PATH_MAX - 1);
    if (n <= 0)
        return false;
    exe[n] = '\0';
    snprintf(folder, PATH_MAX, "%s", exe);
    char *slash = strrchr(folder, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

/* ---- ours ---- */

bool cmd_find_manifest(char out[PATH_MAX])
{
    static const char *const places[] = {"../venus/client/hawser_icd.json",
                                         "../share/vulkan/icd.d/hawser_icd.json"};
    char exe[PATH_MAX], folder[PATH_MAX], path[PATH_MAX];
    const char *given = getenv("HAWSER_ICD");
    if (given && *given)
        return realpath(given, out) != NULL;
    if (!own_folder(exe, folder))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        int len = snprintf(path, sizeof(path), "%s/%s", folder, places[i]);
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

/* ---- a software driver ---- */

/* An installed program has it in libexec, one in a build folder (BUILD/src/cli) in the tree. */
static bool find_script(const char *folder, char script[PATH_MAX])
{
    static const char *const places[] = {"../libexec/hawser", "../../../tools",
                                         "../../../../tools"};
    const char *given = getenv("HAWSER_FIND_VULKAN");
    if (given && *given) {
        snprintf(script, PATH_MAX, "%s", given);
        return access(script, X_OK) == 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        int n = snprintf(script, PATH_MAX, "%s/%s/find-vulkan", folder, places[i]);
        if (n < PATH_MAX && access(script, X_OK) == 0)
            return true;
    }
    return false;
}

/* In a build folder the probe that find-vulkan needs is beside us. */
static void point_at_probe(const char *folder)
{
    char shim[PATH_MAX], probe[PATH_MAX + 32];
    if (snprintf(shim, sizeof(shim), "%s/../shim", folder) >= (int)sizeof(shim))
        return;
    snprintf(probe, sizeof(probe), "%s/hawser-vkprobe", shim);
    if (access(probe, X_OK) == 0)
        setenv("HAWSER_VKPROBE_DIR", shim, 0);
}

static enum cmd_exit start_again(const char *script, const char *exe)
{
    char **argv = cmd_argv();
    size_t count = 0;
    while (argv[count])
        count++;
    const char **args = calloc(count + 4, sizeof(*args));
    if (!args)
        return cmd_fail(CMD_FAILED, "out of memory");
    size_t at = 0;
    args[at++] = script;
    args[at++] = "--software";
    args[at++] = "--";
    args[at++] = exe;
    for (size_t i = 1; i < count; i++)
        args[at++] = argv[i];
    execv(script, (char **)(uintptr_t)args);
    free(args);
    return cmd_fail(CMD_FAILED, "--software: cannot run %s: %s", script, strerror(errno));
}

bool cmd_find_software(char script[PATH_MAX])
{
    char exe[PATH_MAX], folder[PATH_MAX], found[PATH_MAX];
    return own_folder(exe, folder) && find_script(folder, found) && realpath(found, script);
}

enum cmd_exit cmd_software(void)
{
    char exe[PATH_MAX], folder[PATH_MAX], script[PATH_MAX];
    const char *found = getenv("HAWSER_VULKAN"); /* set by find-vulkan: what it chose */
    if (found && (strcmp(found, "system") == 0 || strcmp(found, "private") == 0))
        return CMD_DONE;
    if (!own_folder(exe, folder) || !find_script(folder, script))
        return cmd_fail(CMD_FAILED, "--software: find-vulkan is not where this program was "
                                    "built or installed; set HAWSER_FIND_VULKAN to its path");
    point_at_probe(folder);
    return start_again(script, exe);
}
