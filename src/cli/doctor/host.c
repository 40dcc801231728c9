/* What of this machine is not about Vulkan: program, kernel, limits, clock. */
#include "cli/doctor/doctor.h"

#include "base/report/bench.h"
#include "base/units.h"
#include "command/drivers.h"
#include "rpc/rpc.h"
#include "venus/memory/track/kernel.h"
#include "venus/memory/track/track.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

enum {
    FILES_MIN = 1024,      /* a session takes a dozen, a model's worker a few a client */
    LOCKED_MIN = 64 << 20, /* an RDMA transport pins its buffers */
    CLOCK_SLACK_S = 86400  /* a time zone set wrong is no reason */
};

static void check_program(struct doctor *d)
{
    struct utsname name = {0};
    (void)uname(&name);
    doctor_say(d, DOCTOR_OK, "program", NULL,
               "hawser %s (commit %s, protocol %d to %d, Vulkan %s), Linux %s on %s",
               HAWSER_VERSION, hw_bench_commit(), RPC_VERSION_MIN, RPC_VERSION_MAX,
               HAWSER_VULKAN_VERSION, name.release, name.machine);
}

/* Certificates have dates.  No clock is right before the program was written. */
static void check_clock(struct doctor *d)
{
    struct stat st;
    char date[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &tm));
    if (stat("/proc/self/exe", &st) == 0 && now + CLOCK_SLACK_S < st.st_mtime)
        doctor_say(d, DOCTOR_WARNING, "clock",
                   "set the clock: TLS refuses certificates that are not valid yet",
                   "%s is before this program was built", date);
    else
        doctor_say(d, DOCTOR_OK, "clock", NULL, "%s", date);
}

static void check_tracking(struct doctor *d)
{
    struct vn_kernel *kernel;
    enum vn_track_method method = vn_track_wanted();
    if (vn_kernel_ref(&kernel)) {
        doctor_say(d, DOCTOR_FAILED, "memory", NULL, "out of memory");
        return;
    }
    if (method != VN_TRACK_AUTO && !vn_track_works(kernel, method))
        doctor_say(d, DOCTOR_FAILED, "mapped pages", "unset VENUS_TRACK: the driver finds a way",
                   "VENUS_TRACK=%s does not work on this kernel", vn_track_name(method));
    else if (method != VN_TRACK_AUTO)
        doctor_say(d, DOCTOR_OK, "mapped pages", NULL, "writes are found by %s (VENUS_TRACK)",
                   vn_track_name(method));
    else if (vn_track_works(kernel, VN_TRACK_USERFAULTFD))
        doctor_say(d, DOCTOR_OK, "mapped pages", NULL, "writes are found by userfaultfd");
    else
        doctor_say(d, DOCTOR_WARNING, "mapped pages",
                   "programs work, and write to mapped memory more slowly; Linux 6.7 or later has "
                   "what is missing, unless a container forbids userfaultfd",
                   "writes are found by %s",
                   vn_track_works(kernel, VN_TRACK_MPROTECT) ? "mprotect" : "comparison");
    vn_kernel_unref(kernel);
}

static const char *limit_text(char buf[HW_FORMAT_CHARS], rlim_t limit)
{
    return limit == RLIM_INFINITY ? "unlimited" : hw_format_size(buf, limit);
}

static void check_limits(struct doctor *d)
{
    struct rlimit files = {0}, locked = {0};
    char text[HW_FORMAT_CHARS];
    (void)getrlimit(RLIMIT_NOFILE, &files);
    (void)getrlimit(RLIMIT_MEMLOCK, &locked);
    bool few = files.rlim_max < FILES_MIN; /* servers raise theirs to it */
    doctor_say(d, few ? DOCTOR_WARNING : DOCTOR_OK, "open files",
               few ? "for a server: ulimit -n 65536, or LimitNOFILE=65536 in its unit" : NULL,
               "at most %llu", (unsigned long long)files.rlim_max);
#ifdef HAWSER_UCX
    bool small = locked.rlim_cur < LOCKED_MIN;
    doctor_say(d, DOCTOR_OK, "locked memory", NULL, "at most %s%s",
               limit_text(text, locked.rlim_cur),
               small ? "; RDMA (ucx:) needs more: ulimit -l unlimited, LimitMEMLOCK=infinity" : "");
#else
    doctor_say(d, DOCTOR_OK, "locked memory", NULL,
               "at most %s; nothing needs it: this build has no UCX",
               limit_text(text, locked.rlim_cur));
#endif
}

/* The chosen word of a line such as "always [madvise] never". */
static void check_huge_pages(struct doctor *d)
{
    char line[128] = "", word[32] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (file) {
        if (!fgets(line, sizeof(line), file))
            line[0] = '\0';
        fclose(file);
    }
    const char *open = strchr(line, '[');
    if (open)
        snprintf(word, sizeof(word), "%.*s", (int)strcspn(open + 1, "]"), open + 1);
    bool missing = !*word || strcmp(word, "never") == 0;
    doctor_say(d, missing ? DOCTOR_WARNING : DOCTOR_OK, "huge pages",
               missing ? "the KV store and host pages are slower without; as root: echo madvise "
                         ">/sys/kernel/mm/transparent_hugepage/enabled"
                       : NULL,
               "%s", *word ? word : "the kernel has none");
}

static void check_software(struct doctor *d)
{
    char script[PATH_MAX];
    if (cmd_find_software(script))
        doctor_say(d, DOCTOR_OK, "software GPU", NULL,
                   "serve --software finds or fetches a CPU driver, by %s", script);
    else
        doctor_say(d, DOCTOR_WARNING, "software GPU",
                   "install all of hawser, or set HAWSER_FIND_VULKAN to find-vulkan's path",
                   "serve --software does not work: find-vulkan is not beside this program");
}

void doctor_check_host(struct doctor *d)
{
    check_program(d);
    check_clock(d);
    check_tracking(d);
    check_limits(d);
    check_huge_pages(d);
    check_software(d);
}
