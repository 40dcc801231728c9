/* cli/doctor/finding.h - one line of `hawser doctor` a check: what was found, and what to do about
 * it.
 *
 * Trust: files and variables are the user's, answers a server's; what is printed is bounded.
 * Threads: one; some checks fork.  Lifetime: the struct is the command's. */
#ifndef HAWSER_CLI_DOCTOR_FINDING_H
#define HAWSER_CLI_DOCTOR_FINDING_H

#include "base/report/json.h"
#include "command/connect.h"

enum doctor_status { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_FAILED };

struct doctor {
    const struct cmd_connect_options *connect;
    uint64_t duration_ns; /* of each measurement; 0: none */
    struct hw_json *json; /* NULL: text */
    unsigned warnings, failed;
    enum cmd_exit code; /* of the worst check that failed */
};

/* Prints one line.  remedy: what to do, NULL where there is nothing. */
void doctor_say(struct doctor *doctor, enum doctor_status status, const char *check,
                const char *remedy, const char *fmt, ...) PRINTF_LIKE(5, 6);
/* The same for a failure that has an exit status of its own. */
void doctor_fail(struct doctor *doctor, enum cmd_exit code, const char *check, const char *remedy,
                 const char *fmt, ...) PRINTF_LIKE(5, 6);

/* Runs `work` in a child and copies what it wrote (up to size - 1 bytes, ended by 0) into out: a
 * library that crashes or hangs costs a line, not the doctor.  0, or -ETIMEDOUT, -EFAULT (it
 * crashed) or another negative errno. */
int doctor_try(void (*work)(int fd, void *user), void *user, char *out, size_t size) MUST_CHECK;

#endif
