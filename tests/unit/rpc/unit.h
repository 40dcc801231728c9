/* tests/unit/rpc/unit.h - what every unit test includes, in the order cmocka asks for, and a count
 * of open descriptors. */
#ifndef HAWSER_TESTS_UNIT_RPC_H
#define HAWSER_TESTS_UNIT_RPC_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Of this process: to compare with a later count. */
static inline int open_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

#endif
