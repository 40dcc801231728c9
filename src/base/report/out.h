/* base/report/out.h - all ways to write figures: text tables, CSV, JSON, HTML. */
#ifndef HAWSER_BASE_REPORT_OUT_H
#define HAWSER_BASE_REPORT_OUT_H

#include "base/report/csv.h"
#include "base/report/html.h"
#include "base/report/json.h"
#include "base/report/table.h"

#endif
