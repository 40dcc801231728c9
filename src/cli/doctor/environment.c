/* Variables that are set: those that Hawser reads, and those that look as if it did. */
#include "cli/doctor/doctor.h"

#include "base/log.h"
#include "base/text/ascii.h"
#include "base/units.h"
#include "base/visible.h"
#include "llm/stage/link.h"
#include "venus/common/transfer/stripe.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a value is; ANY: its readers say what they refuse.  Of the lists, with commas between, each
 * part is read by itself. */
enum kind { ANY, FLAG, WHOLE, SIZE, WORD, SWITCHES, LEVELS, HANDLES, UUIDS };

enum { UUID_DIGITS = 2 * HW_UUID_BYTES };

struct knob {
    const char *name;
    enum kind kind;
    uint64_t min, max;
    const char *words; /* of WORD and SWITCHES, blanks between */
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
    {"HAWSER_SANDBOX", WORD, .words = "deny watch log off"},
    {"HAWSER_SOFTGPU_DIR"},
    {"HAWSER_SOFTGPU_OFFLINE"},
    {"HAWSER_TEST_DATA"},
    {"HAWSER_STAGE_TIMEOUT_S", WHOLE, 1, LLM_LINK_TIMEOUT_MAX_S},
    {"HAWSER_TP_TIMEOUT_S", WHOLE, 1, LLM_LINK_TIMEOUT_MAX_S},
    {"HAWSER_TRACE"},
    {"HAWSER_VISIBLE_DEVICES", UUIDS},
    {"HAWSER_VKPROBE_DIR"},
    {"HAWSER_VULKAN"},
    {"HAWSER_VULKAN_DEVICE"},
    {"HAWSER_VULKAN_INCLUDE"},
    {"VENUS_BUS_COPY", FLAG},
    {"VENUS_COMPRESS", FLAG},
    {"VENUS_DESCRIPTOR_BUFFER", FLAG},
    {"VENUS_EARLY_FENCE", FLAG},
    {"VENUS_FETCH", WORD, .words = "auto all none"},
    {"VENUS_HOST_VISIBLE_DEVICE_MEMORY", FLAG},
    {"VENUS_INVALIDATE_HANDLES", HANDLES},
    {"VENUS_INVALIDATE_MAX_BYTES", SIZE, 0, UINT64_MAX},
    {"VENUS_INVALIDATE_ON_WAIT", FLAG},
    {"VENUS_LOG_CATEGORIES", LEVELS},
    {"VENUS_LOG_LEVEL", WORD, .words = "none error warn info debug trace"},
    {"VENUS_PERF", SWITCHES,
     .words = "no_coalescing no_pipelining no_transport_tuning no_early_fences no_early_recordings "
              "no_references no_quiet_batches no_packing no_whole_pages no_small_uploads "
              "no_stripes no_upload_cache no_kept_budgets no_kept_sessions no_query_results "
              "no_recycled_memory"},
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
    {"VENUS_TRACK", WORD, .words = "userfaultfd mprotect compare"},
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

/* ---- what a value says ---- */

static bool is_word(const char *words, const char *text, size_t len, bool any_case)
{
    for (; *words; words += strcspn(words, " "), words += *words == ' ') {
        if (strcspn(words, " ") == len &&
            (any_case ? hw_ascii_same_start(text, words, len) : memcmp(text, words, len) == 0))
            return true;
    }
    return false;
}

static bool is_part(const struct knob *k, const char *text, size_t len)
{
    char *end;
    switch (k->kind) {
    case SWITCHES:
        return len == 0 || is_word(k->words, text, len, false);
    case LEVELS:
        return hw_log_is_category(text, len);
    case HANDLES:
        (void)strtoull(text, &end, 0);
        return len > 0 && end == text + len;
    default: /* UUIDS */
        return len == UUID_DIGITS && strspn(text, "0123456789abcdefABCDEF") >= len;
    }
}

/* What of the value cannot be read, or NULL. */
static const char *bad_part(const struct knob *k, const char *value, size_t *len)
{
    for (const char *at = value; *value; at += *len + 1) {
        *len = strcspn(at, ",");
        if (!is_part(k, at, *len))
            return at;
        if (!at[*len])
            break;
    }
    return NULL;
}

static bool is_list(enum kind kind)
{
    return kind >= SWITCHES;
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
    case WORD:
        return !*value || is_word(k->words, value, strlen(value), true);
    default:
        return true;
    }
}

static const char *form_of(const struct knob *k, char *out, size_t size)
{
    char low[HW_FORMAT_CHARS], high[HW_FORMAT_CHARS];
    switch (k->kind) {
    case FLAG:
        return "it takes 1, 0, true, false, yes, no, on or off";
    case WHOLE:
        snprintf(out, size, "it takes a whole number from %llu to %llu", (unsigned long long)k->min,
                 (unsigned long long)k->max);
        return out;
    case SIZE:
        snprintf(out, size, "it takes a size like 4096, 256KiB or 4MiB, from %s to %s",
                 hw_format_size(low, k->min), hw_format_size(high, k->max));
        return out;
    case WORD:
        snprintf(out, size, "it takes one of these words: %s", k->words);
        return out;
    case LEVELS:
        return "it takes levels by category, such as MEMORY=INFO,NET=DEBUG";
    case HANDLES:
        return "it takes handles with commas between, such as 0x9,0x11";
    case UUIDS:
        return "it takes UUIDs of 32 hexadecimal digits with commas between";
    default:
        return "docs/reference/knobs.md lists what it takes";
    }
}

/* ---- what is said ---- */

static void check_known(struct doctor *d, const struct knob *k, const char *value)
{
    char form[128];
    size_t len = 0;
    const char *bad = is_list(k->kind) ? bad_part(k, value, &len) : NULL;
    if (bad)
        doctor_say(d, DOCTOR_WARNING, "variable", form_of(k, form, sizeof(form)),
                   "%s=%s: '%.*s' cannot be read", k->name, value, (int)len, bad);
    else if (!can_be_read(k, value))
        doctor_say(d, DOCTOR_WARNING, "variable", form_of(k, form, sizeof(form)),
                   "%s=%s cannot be read, so it counts as not set", k->name, value);
    else
        doctor_say(d, DOCTOR_OK, "variable", NULL, "%s=%s", k->name, value);
}

static void check_variable(struct doctor *d, const char *name, const char *value)
{
    char remedy[128];
    const struct knob *k = find(name);
    if (k) {
        check_known(d, k, value);
        return;
    }
    const char *near = cmd_nearest(name, known, sizeof(known[0]));
    if (near)
        snprintf(remedy, sizeof(remedy), "did you mean %s?", near);
    doctor_say(d, DOCTOR_WARNING, "variable",
               near ? remedy : "unset it; docs/reference/knobs.md lists what is read",
               "Hawser does not read %s", name);
}

/* Whether the line, "hawser: warn: net: NAME=...", is about a variable of the list. */
static bool is_told(const char *line, size_t len)
{
    char text[HW_LOG_LINE_MAX + 1];
    snprintf(text, sizeof(text), "%.*s", (int)len, line);
    char *name = text;
    for (int prefix = 0; name && prefix < 3; prefix++) {
        name = strstr(name, ": ");
        name += name ? strlen(": ") : 0;
    }
    size_t chars = name ? strcspn(name, "=") : 0;
    if (!chars || name[chars] != '=')
        return false;
    name[chars] = '\0';
    return find(name);
}

static void log_others(void *user, const char *line, size_t len)
{
    (void)user;
    if (!is_told(line, len))
        (void)!write(STDERR_FILENO, line, len);
}

void doctor_hush_variables(void)
{
    hw_log_set_sink(log_others, NULL);
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
