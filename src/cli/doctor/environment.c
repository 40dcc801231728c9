/* Variables that are set: those that Hawser reads, and those that look as if it did. */
#include "cli/doctor/doctor.h"

#include <string.h>
#include <unistd.h>

/* All that the programs and scripts read; a test holds it to docs/reference/knobs.md. */
static const char *const known[] = {
    "HAWSER_APT_URI",
    "HAWSER_BUILD",
    "HAWSER_FIND_VULKAN",
    "HAWSER_ICD",
    "HAWSER_ICD_PATH",
    "HAWSER_LLM_DOT",
    "HAWSER_LLM_LEND",
    "HAWSER_LLM_REPLAY",
    "HAWSER_NO_INSTALL",
    "HAWSER_PAGE_TRACE",
    "HAWSER_RUNTIME_DIR",
    "HAWSER_SANDBOX",
    "HAWSER_SOFTGPU_DIR",
    "HAWSER_SOFTGPU_OFFLINE",
    "HAWSER_TEST_DATA",
    "HAWSER_STAGE_TIMEOUT_S",
    "HAWSER_TP_TIMEOUT_S",
    "HAWSER_TRACE",
    "HAWSER_VISIBLE_DEVICES",
    "HAWSER_VKPROBE_DIR",
    "HAWSER_VULKAN",
    "HAWSER_VULKAN_DEVICE",
    "HAWSER_VULKAN_INCLUDE",
    "VENUS_BUS_COPY",
    "VENUS_COMPRESS",
    "VENUS_DESCRIPTOR_BUFFER",
    "VENUS_EARLY_FENCE",
    "VENUS_FETCH",
    "VENUS_HOST_VISIBLE_DEVICE_MEMORY",
    "VENUS_INVALIDATE_HANDLES",
    "VENUS_INVALIDATE_MAX_BYTES",
    "VENUS_INVALIDATE_ON_WAIT",
    "VENUS_LOG_CATEGORIES",
    "VENUS_LOG_LEVEL",
    "VENUS_PERF",
    "VENUS_PRESENT_SHM",
    "VENUS_PRESENT_TILES",
    "VENUS_PROGRESS",
    "VENUS_RESUME",
    "VENUS_SERVERS",
    "VENUS_SERVER_HOST",
    "VENUS_SERVER_PORT",
    "VENUS_SHORT_WAITS",
    "VENUS_SOCKET_BUFFER_BYTES",
    "VENUS_SYNC",
    "VENUS_TLS_CA",
    "VENUS_TLS_FINGERPRINT",
    "VENUS_TOKEN_FILE",
    "VENUS_TRACE_MEM",
    "VENUS_TRACE_NET",
    "VENUS_TRACK",
    "VENUS_UPLOAD_CACHE",
    "VENUS_UPLOAD_STRIPES",
    NULL,
};

static bool is_known(const char *name)
{
    for (size_t i = 0; known[i]; i++) {
        if (strcmp(known[i], name) == 0)
            return true;
    }
    return false;
}

static void check_variable(struct doctor *d, const char *name, const char *value)
{
    char remedy[128];
    if (is_known(name)) {
        doctor_say(d, DOCTOR_OK, "variable", NULL, "%s=%s", name, value);
        return;
    }
    const char *near = cmd_nearest(name, known, sizeof(known[0]));
    if (near)
        snprintf(remedy, sizeof(remedy), "did you mean %s?", near);
    doctor_say(d, DOCTOR_WARNING, "variable",
               near ? remedy : "unset it; docs/reference/knobs.md lists what is read",
               "Hawser does not read %s", name);
}

void doctor_check_environment(struct doctor *d)
{
    char name[64];
    for (char **e = environ; *e; e++) {
        size_t len = strcspn(*e, "=");
        bool ours = strncmp(*e, "VENUS_", 6) == 0 || strncmp(*e, "HAWSER_", 7) == 0;
        if (!ours || len >= sizeof(name) || !(*e)[len])
            continue;
        memcpy(name, *e, len);
        name[len] = '\0';
        check_variable(d, name, *e + len + 1);
    }
}
