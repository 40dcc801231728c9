/* tests/unit/llm/device.h - whether a backend has the device that it needs.
 *
 * Included by one file of a program. */
#ifndef HAWSER_TESTS_LLM_DEVICE_H
#define HAWSER_TESTS_LLM_DEVICE_H

#include "llm/engine/backend.h"

#include <errno.h>
#include <stdio.h>

/* The status to end with, or 0 to go on; 77, which test runners take for skipped, when there is no
 * device. */
static int try_device(const char *backend)
{
    const struct llm_backend_ops *ops = llm_backend_find(backend);
    struct llm_backend_config config = {0};
    struct llm_backend *b;
    char why[LLM_WHY_CHARS] = "";
    int rc = ops ? ops->open(&config, &b, why) : -EINVAL;
    if (rc) {
        printf("%s: %s\n", backend, ops ? why : "there is no such backend");
        return rc == -ENODEV ? 77 : 1;
    }
    printf("%s: %s\n", backend, b->device);
    ops->close(b);
    return 0;
}

#endif
