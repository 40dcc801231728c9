/* Hawser's driver as a loader would find it, the loader, and the GPUs of this machine. */
#include "cli/doctor/doctor.h"

#include "command/drivers.h"
#include "serve/devices.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const reinstall = "install hawser again; in a source tree: make build";

/* ---- the driver ---- */

/* 0, or -ENOEXEC with what the file is in why; a machine of our own kind has our own number. */
static int check_elf(const char *path, char *why, size_t size)
{
    Elf64_Ehdr own = {0}, file = {0};
    const char *paths[] = {"/proc/self/exe", path};
    Elf64_Ehdr *headers[] = {&own, &file};
    for (int i = 0; i < 2; i++) {
        FILE *in = fopen(paths[i], "rbe");
        size_t n = in ? fread(headers[i], sizeof(own), 1, in) : 0;
        if (in)
            fclose(in);
        if (n != 1 || memcmp(headers[i]->e_ident, ELFMAG, SELFMAG) != 0) {
            snprintf(why, size, "%.300s is not a library", paths[i]);
            return -ENOEXEC;
        }
    }
    if (own.e_machine == file.e_machine)
        return 0;
    snprintf(why, size, "%.300s is for another machine (ELF machine %u, this program has %u)", path,
             file.e_machine, own.e_machine);
    return -ENOEXEC;
}

/* In a child: loads the library as a loader does.  Says nothing where that works. */
static void load_driver(int fd, void *user)
{
    void *library = dlopen(user, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        dprintf(fd, "%s", dlerror());
    else if (!dlsym(library, "vk_icdGetInstanceProcAddr"))
        dprintf(fd, "it has no vk_icdGetInstanceProcAddr");
}

static void check_library(struct doctor *d, char *library)
{
    char said[512];
    if (strchr(library, '/')) {
        if (access(library, R_OK)) {
            doctor_say(d, DOCTOR_FAILED, "driver", reinstall, "%s: %s", library, strerror(errno));
            return;
        }
        if (check_elf(library, said, sizeof(said))) {
            doctor_say(d, DOCTOR_FAILED, "driver", "install hawser for this architecture", "%s",
                       said);
            return;
        }
    }
    int rc = doctor_try(load_driver, library, said, sizeof(said));
    if (rc == 0 && !*said)
        doctor_say(d, DOCTOR_OK, "driver", NULL, "%s can be loaded", library);
    else
        doctor_say(d, DOCTOR_FAILED, "driver", reinstall, "%s cannot be loaded: %s", library,
                   rc ? strerror(-rc) : said);
}

/* The manifest's library_path as a loader understands it: relative to the manifest, or a name for
 * the system's search. */
static bool read_manifest(struct doctor *d, const char *manifest, char library[PATH_MAX])
{
    json_error_t error;
    json_t *root = json_load_file(manifest, 0, &error);
    const char *path =
        json_string_value(json_object_get(json_object_get(root, "ICD"), "library_path"));
    int n = 0;
    if (!root)
        doctor_say(d, DOCTOR_FAILED, "manifest", reinstall, "%s:%d: %s", manifest, error.line,
                   error.text);
    else if (!path)
        doctor_say(d, DOCTOR_FAILED, "manifest", reinstall, "%s has no ICD.library_path", manifest);
    else if (path[0] == '/' || !strchr(path, '/'))
        n = snprintf(library, PATH_MAX, "%s", path);
    else
        n = snprintf(library, PATH_MAX, "%.*s/%s", (int)(strrchr(manifest, '/') - manifest),
                     manifest, path);
    json_decref(root);
    return n > 0 && n < PATH_MAX;
}

static void check_driver(struct doctor *d)
{
    char manifest[PATH_MAX], library[PATH_MAX];
    const char *given = getenv("HAWSER_ICD");
    if (!cmd_find_manifest(manifest)) {
        doctor_say(d, DOCTOR_FAILED, "manifest",
                   given && *given ? "unset HAWSER_ICD, or set it to hawser_icd.json's path"
                                   : "install all of hawser, or set HAWSER_ICD to its path",
                   "%s: not found; programs cannot use remote GPUs",
                   given && *given ? given : "hawser_icd.json");
        return;
    }
    if (!read_manifest(d, manifest, library))
        return;
    doctor_say(d, DOCTOR_OK, "manifest", NULL, "%s", manifest);
    check_library(d, library);
}

/* ---- the loader ---- */

/* In a child, since a preloaded or broken loader may do anything. */
static void ask_loader(int fd, void *user)
{
    (void)user;
    uint32_t version = 1 << 22; /* a 1.0 loader cannot be asked */
    int (*enumerate)(uint32_t *) = NULL;
    Dl_info where = {0};
    void *loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    void *entry = loader ? dlsym(loader, "vkGetInstanceProcAddr") : NULL;
    if (!entry)
        return;
    *(void **)&enumerate = dlsym(loader, "vkEnumerateInstanceVersion");
    if (enumerate)
        (void)enumerate(&version);
    (void)dladdr(entry, &where);
    dprintf(fd, "%s, Vulkan %u.%u.%u", where.dli_fname ? where.dli_fname : "libvulkan.so.1",
            version >> 22 & 0x7f, version >> 12 & 0x3ff, version & 0xfff);
}

static void check_loader(struct doctor *d)
{
    char said[512];
    int rc = doctor_try(ask_loader, NULL, said, sizeof(said));
    if (rc == 0 && *said)
        doctor_say(d, DOCTOR_OK, "Vulkan loader", NULL, "%s", said);
    else
        doctor_say(d, DOCTOR_WARNING, "Vulkan loader",
                   "install libvulkan1: programs with remote GPUs and a server's GPUs need it",
                   "libvulkan.so.1: %s", rc ? strerror(-rc) : "not installed");
}

/* hawser run sets these itself; a program that is started without it finds what they say. */
static void check_filters(struct doctor *d)
{
    static const char *const names[] = {"VK_DRIVER_FILES", "VK_ICD_FILENAMES",
                                        "VK_ADD_DRIVER_FILES", "VK_LOADER_DRIVERS_SELECT",
                                        "VK_LOADER_DRIVERS_DISABLE"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *value = getenv(names[i]);
        bool hides = value && strstr(names[i], "DISABLE") && strstr(value, "hawser");
        if (value && *value)
            doctor_say(d, hides ? DOCTOR_WARNING : DOCTOR_OK, "variable",
                       hides ? "unset it, or start programs with hawser run" : NULL, "%s=%s%s",
                       names[i], value, hides ? ": the loader leaves Hawser's driver out" : "");
    }
}

/* ---- GPUs ---- */

static void check_files(struct doctor *d)
{
    static const char *const patterns[] = {"/dev/dri/renderD*", "/dev/nvidia[0-9]*", "/dev/kfd"};
    glob_t found = {0};
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++)
        (void)glob(patterns[i], i ? GLOB_APPEND : 0, NULL, &found);
    if (found.gl_pathc == 0)
        doctor_say(d, DOCTOR_OK, "device files", NULL,
                   "none in /dev/dri or /dev/nvidia*: no GPU, or a container without it");
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i];
        bool may = access(path, R_OK | W_OK) == 0;
        doctor_say(d, may ? DOCTOR_OK : DOCTOR_WARNING, "device files",
                   may ? NULL : "join its group: sudo usermod -aG video,render $USER; log in again",
                   "%s%s%s", path, may ? "" : ": ", may ? "" : strerror(errno));
    }
    globfree(&found);
}

static void check_devices(struct doctor *d)
{
    struct serve_devices *devices = calloc(1, sizeof(*devices));
    if (!devices || !cmd_leave_out_manifest()) {
        doctor_say(d, DOCTOR_FAILED, "GPU", NULL, "out of memory");
        free(devices);
        return;
    }
    serve_devices_find(devices);
    if (devices->count == 0)
        doctor_say(d, DOCTOR_WARNING, "GPU",
                   "a client needs none; for a server install the GPU's Vulkan driver, or start it "
                   "with --software",
                   "none on this machine: %s", devices->note);
    for (uint32_t i = 0; i < devices->count; i++)
        doctor_say(d, DOCTOR_OK, "GPU", NULL, "%s (%s), driver %s", devices->items[i].name,
                   serve_device_type_name(devices->items[i].type), devices->items[i].driver);
    free(devices);
}

static void load_cuda(int fd, void *user)
{
    (void)user;
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
        dprintf(fd, "libcuda.so.1 can be loaded");
}

static void check_cuda(struct doctor *d)
{
    char said[64];
    int rc = doctor_try(load_cuda, NULL, said, sizeof(said));
    doctor_say(d, DOCTOR_OK, "CUDA", NULL, "%s",
               rc == 0 && *said ? said : "not installed; only KV pages in CUDA's memory need it");
}

void doctor_check_vulkan(struct doctor *d)
{
    check_driver(d);
    check_loader(d);
    check_filters(d);
    check_files(d);
    check_devices(d);
    check_cuda(d);
}
