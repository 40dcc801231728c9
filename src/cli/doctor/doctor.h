/* cli/doctor/doctor.h - the checks of `hawser doctor`, a file each.
 *
 * Trust, threads, lifetime: see cli/doctor/finding.h. */
#ifndef HAWSER_CLI_DOCTOR_DOCTOR_H
#define HAWSER_CLI_DOCTOR_DOCTOR_H

#include "cli/doctor/finding.h"

void doctor_check_host(struct doctor *doctor);        /* program, kernel, limits, clock */
void doctor_check_vulkan(struct doctor *doctor);      /* driver, loader, GPUs of this machine */
void doctor_check_environment(struct doctor *doctor); /* variables that are set */
/* From now on the log leaves out what doctor_check_environment says, too. */
void doctor_hush_variables(void);
/* NULL: the servers of the environment, or the default one. */
void doctor_check_servers(struct doctor *doctor, const char *address);

#endif
