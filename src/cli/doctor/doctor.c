/* hawser doctor - what works here, what does not, and what to do about it. */
#include "cli/doctor/doctor.h"

#include "base/clock.h"
#include "cli/commands.h"

#include <stdio.h>

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
