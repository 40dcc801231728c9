/* unit.h - what every unit test of src/llm includes, in the order cmocka asks for. */
#ifndef HAWSER_TESTS_UNIT_LLM_H
#define HAWSER_TESTS_UNIT_LLM_H

#include "../../sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
