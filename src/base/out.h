/* base/out.h - all ways to write figures: text tables, CSV, JSON, HTML. */
#ifndef HAWSER_BASE_OUT_H
#define HAWSER_BASE_OUT_H

#include "base/csv.h"
#include "base/html.h"
#include "base/json.h"
#include "base/table.h"

#endif
