/* tests/unit/kv/unit.h - what every unit test includes, in the order cmocka asks for. */
#ifndef HAWSER_TESTS_UNIT_KV_H
#define HAWSER_TESTS_UNIT_KV_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
