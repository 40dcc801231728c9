/* Variables that are set: those that Hawser reads, and those that look as if it did. */
#include "cli/doctor/doctor.h"

#include "base/units.h"
#include "llm/stage/link.h"
#include "venus/common/transfer/stripe.h"
#include "venus/memory/track/track.h"

#include <string.h>
#include <unistd.h>

/* By the parser that reads the value; ANY: its readers say what they refuse. */
enum kind { ANY, FLAG, WHOLE, SIZE, TRACK };

struct knob {
    const char *name;
    enum kind kind;
    uint64_t min, max;
};

/* All that the programs and scripts read; a test holds it to docs/reference/knobs.md. */
static const struct knob known[] = {
    {"HAWSER_APT_URI"},
    {"HAWSER_BUILD"},
    {"HAWSER_FIND_VULKAN"},
    {"HAWSER_ICD"},
    {"HAWSER_ICD_PATH"},
    {"HAWSER_LLM_DOT", FLAG},
    {"HAWSER_LLM_LEND", FLAG},
    {"HAWSER_LLM_REPLAY", FLAG},
    {"HAWSER_NO_INSTALL"},
    {"HAWSER_PAGE_TRACE"},
    {"HAWSER_RUNTIME_DIR"},
    {"HAWSER_SANDBOX"},
    {"HAWSER_SOFTGPU_DIR"},
    {"HAWSER_SOFTGPU_OFFLINE"},
    {"HAWSER_TEST_DATA"},
    {"HAWSER_STAGE_TIMEOUT_S", WHOLE, 1, LLM_LINK_TIMEOUT_MAX_S},
    {"HAWSER_TP_TIMEOUT_S"},
    {"HAWSER_TRACE"},
    {"HAWSER_VISIBLE_DEVICES"},
    {"HAWSER_VKPROBE_DIR"},
    {"HAWSER_VULKAN"},
    {"HAWSER_VULKAN_DEVICE"},
    {"HAWSER_VULKAN_INCLUDE"},
    {"VENUS_BUS_COPY", FLAG},
    {"VENUS_COMPRESS", FLAG},
    {"VENUS_DESCRIPTOR_BUFFER"},
    {"VENUS_EARLY_FENCE", FLAG},
    {"VENUS_FETCH"},
    {"VENUS_HOST_VISIBLE_DEVICE_MEMORY", FLAG},
    {"VENUS_INVALIDATE_HANDLES"},
    {"VENUS_INVALIDATE_MAX_BYTES", SIZE, 0, UINT64_MAX},
    {"VENUS_INVALIDATE_ON_WAIT", FLAG},
    {"VENUS_LOG_CATEGORIES"},
    {"VENUS_LOG_LEVEL"},
    {"VENUS_PERF"},
    {"VENUS_PRESENT_SHM", FLAG},
    {"VENUS_PRESENT_TILES", FLAG},
    {"VENUS_PROGRESS", FLAG},
    {"VENUS_RESUME", FLAG},
    {"VENUS_SERVERS"},
    {"VENUS_SERVER_HOST"},
    {"VENUS_SERVER_PORT", WHOLE, 1, UINT16_MAX},
    {"VENUS_SHORT_WAITS", FLAG},
    {"VENUS_SOCKET_BUFFER_BYTES", SIZE, 4 << 10, 1 << 30},
    {"VENUS_SYNC", FLAG},
    {"VENUS_TLS_CA"},
    {"VENUS_TLS_FINGERPRINT"},
    {"VENUS_TOKEN_FILE"},
    {"VENUS_TRACE_MEM", FLAG},
    {"VENUS_TRACE_NET", FLAG},
    {"VENUS_TRACK", TRACK},
    {"VENUS_UPLOAD_CACHE", FLAG},
    {"VENUS_UPLOAD_STRIPES", WHOLE, 0, VN_STRIPES_MAX},
    {NULL},
};

static const struct knob *find(const char *name)
{
    for (size_t i = 0; known[i].name; i++) {
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    }
    return NULL;
}

static bool can_be_read(const struct knob *k, const char *value)
{
    uint64_t number;
    bool flag;
    switch (k->kind) {
    case FLAG:
        return hw_env_bool(k->name, false, &flag) == 0;
    case WHOLE:
        return hw_env_u64(k->name, k->min, k->min, k->max, &number) == 0;
    case SIZE:
        return hw_env_size(k->name, k->min, k->min, k->max, &number) == 0;
    case TRACK:
        return !*value || vn_track_wanted() != VN_TRACK_AUTO;
    default:
        return true;
    }
}

static void check_variable(struct doctor *d, const char *name, const char *value)
{
    char remedy[128];
    const struct knob *k = find(name);
    if (k && can_be_read(k, value)) {
        doctor_say(d, DOCTOR_OK, "variable", NULL, "%s=%s", name, value);
        return;
    }
    if (k) {
        doctor_say(d, DOCTOR_WARNING, "variable", "docs/reference/knobs.md says what it takes",
                   "%s=%s cannot be read, so it counts as not set", name, value);
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
