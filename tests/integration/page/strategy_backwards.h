/* strategy_backwards.h - what a new strategy adds to the list in page/broadcast/broadcast.h. */
#ifndef HAWSER_TESTS_INTEGRATION_PAGE_STRATEGY_BACKWARDS_H
#define HAWSER_TESTS_INTEGRATION_PAGE_STRATEGY_BACKWARDS_H

#include "page/broadcast/broadcast.h"

extern const struct page_strategy page_strategy_backwards;

#endif
