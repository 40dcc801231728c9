/* hawser doctor - what works here, what does not, and what to do about it. */
#include "cli/doctor/doctor.h"

#include "base/clock.h"
#include "base/process/child.h"
#include "base/text/controls.h"
#include "cli/commands.h"
#include "cli/screen.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    STATUS_WIDTH = 9,
    CHECK_WIDTH = 15,
    DETAIL_COLUMN = STATUS_WIDTH + CHECK_WIDTH,
    DETAIL_WIDTH_MIN = 20, /* on a narrower terminal lines are better broken anywhere */
    DETAIL_CHARS = 1024
};
#define CHILD_NS (20 * HW_SEC) /* a GPU wakes up in seconds; a hung driver never answers */

static const char *const statuses[] = {"ok", "warning", "failed"};

struct doctor_options {
    struct cmd_connect_options connect;
    uint64_t duration_ns;
    bool no_bench;
    bool json;
};

#define AT(field) offsetof(struct doctor_options, field)
static const struct cmd_option options[] = {
    CMD_GROUP_AT(struct doctor_options, connect, cmd_connect_table),
    {"duration", 'd', CMD_DURATION, AT(duration_ns),
     "how long to measure each of round trip, upload and download", "TIME", "200ms", HW_MS,
     60 * HW_SEC},
    {"no-bench", 0, CMD_FLAG, AT(no_bench), "measure nothing"},
    {"json", 'j', CMD_FLAG, AT(json),
     "print one JSON object: \"checks\", each with check, status, detail and remedy, and the "
     "numbers of \"warnings\" and \"failed\""},
    {NULL},
};

static const struct cmd_env environment[] = {
    CMD_ENV_OF(cmd_connect_env),
    {"HAWSER_ICD", "the driver's manifest, where it is not beside this program"},
    {"HAWSER_FIND_VULKAN", "where find-vulkan is, for the software GPU"},
    {"VENUS_TRACK", "which way of finding written pages is looked at first"},
    {NULL},
};

/* ---- output ---- */

/* From DETAIL_COLUMN on; where a terminal ends, the next word begins a line there. */
static void put_text(const char *text)
{
    int columns = screen_columns(0), at = DETAIL_COLUMN;
    bool folds = columns >= DETAIL_COLUMN + DETAIL_WIDTH_MIN;
    for (const char *word = text; *word;) {
        int len = (int)strcspn(word, " ");
        if (at > DETAIL_COLUMN && folds && at + 1 + len > columns) {
            printf("\n%*s", DETAIL_COLUMN, "");
            at = DETAIL_COLUMN;
        } else if (at > DETAIL_COLUMN) {
            putchar(' ');
            at++;
        }
        printf("%.*s", len, word);
        at += len;
        word += len + (word[len] == ' ');
    }
    putchar('\n');
}

static void say(struct doctor *d, enum doctor_status status, const char *check, const char *remedy,
                const char *fmt, va_list args)
{
    char detail[DETAIL_CHARS];
    vsnprintf(detail, sizeof(detail), fmt, args);
    hw_blank_controls_of(detail); /* it may quote a file or a driver */
    d->warnings += status == DOCTOR_WARNING;
    d->failed += status == DOCTOR_FAILED;
    if (!d->json) {
        printf("%-*s%-*s", STATUS_WIDTH, statuses[status], CHECK_WIDTH, check);
        put_text(detail);
        if (remedy) {
            printf("%*s", DETAIL_COLUMN, "");
            put_text(remedy);
        }
        fflush(stdout); /* the next check may take a while */
        return;
    }
    hw_json_object_begin(d->json);
    hw_json_put_string(d->json, "check", check);
    hw_json_put_string(d->json, "status", statuses[status]);
    hw_json_put_string(d->json, "detail", detail);
    hw_json_put_string(d->json, "remedy", remedy);
    hw_json_object_end(d->json);
}

void doctor_say(struct doctor *d, enum doctor_status status, const char *check, const char *remedy,
                const char *fmt, ...)
{
    va_list args;
    if (status == DOCTOR_FAILED && d->code == CMD_DONE)
        d->code = CMD_FAILED;
    va_start(args, fmt);
    say(d, status, check, remedy, fmt, args);
    va_end(args);
}

void doctor_fail(struct doctor *d, enum cmd_exit code, const char *check, const char *remedy,
                 const char *fmt, ...)
{
    va_list args;
    if (d->code == CMD_DONE || d->code == CMD_FAILED)
        d->code = code;
    va_start(args, fmt);
    say(d, DOCTOR_FAILED, check, remedy, fmt, args);
    va_end(args);
}

/* ---- work in a child ---- */

int doctor_try(void (*work)(int fd, void *user), void *user, char *out, size_t size)
{
    fflush(stdout);
    ssize_t n = hw_child_try(work, user, CHILD_NS, out, size - 1);
    out[n < 0 ? 0 : n] = '\0';
    return n < 0 ? (int)n : 0;
}

/* ---- the command ---- */

static void examine(struct doctor *d, const char *address)
{
    doctor_check_host(d);
    doctor_check_vulkan(d);
    doctor_check_environment(d);
    doctor_check_servers(d, address);
}

static enum cmd_exit examine_as_json(struct doctor *d, const char *address)
{
    struct hw_json j;
    d->json = &j;
    hw_json_begin(&j, stdout);
    hw_json_object_begin(&j);
    hw_json_array_at(&j, "checks");
    examine(d, address);
    hw_json_array_end(&j);
    hw_json_put_u64(&j, "warnings", d->warnings);
    hw_json_put_u64(&j, "failed", d->failed);
    hw_json_object_end(&j);
    int rc = hw_json_finish(&j);
    return rc ? cmd_output_lost(rc) : d->code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct doctor_options *o = values;
    const char *address = operands->count ? operands->items[0] : NULL;
    struct doctor d = {.connect = &o->connect, .duration_ns = o->no_bench ? 0 : o->duration_ns};
    doctor_hush_variables();
    if (o->json)
        return examine_as_json(&d, address);
    examine(&d, address);
    printf("%u warning%s, %u failed\n", d.warnings, d.warnings == 1 ? "" : "s", d.failed);
    return d.code;
}

const struct cmd_command cmd_doctor = {
    .name = "doctor",
    .summary = "find out what does not work here, and what to do",
    .operands = "[ADDR]",
    .operands_max = 1,
    .description =
        "Checks this machine and the way to the server at ADDR, else to those of VENUS_SERVERS: "
        "the driver and its manifest, the Vulkan loader, GPUs and their device files, limits, "
        "variables, keys; then name, connection, TLS, token, protocol, round trip and bandwidth. "
        "Each line is ok, warning or failed; what is to be done stands below.  Warnings do not "
        "change the exit status.  A server that fails gives 69 or 77, everything else 1.",
    .options = options,
    .environment = environment,
    .examples = "hawser doctor\n"
                "hawser doctor gpu1.example:28100 --ca server.crt --token-file token\n"
                "hawser doctor --json | jq '.checks[] | select(.status != \"ok\")'",
    .values_size = sizeof(struct doctor_options),
    .run = run,
};
