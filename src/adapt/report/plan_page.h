// tenuto plan --html: one self-contained page that shows the result of a planner.
#pragma once

#include <iosfwd>

#include "adapt/report/plan_report.h"

namespace tenuto {

// Writes the page: a drawing of the stages over the places of the cluster, and what plan_text says,
// first for split rows, then, in sections of their own, for the plan that trains and for the plan
// for PyTorch if the report has them. The page has no script and loads nothing from the network.
// Everything in a drawing is also in a table; a table has 512 stages or links at most.
//
// Requires: report.cluster
// Cost:     some 10 kB, 4 MB at most
void write_plan_page(std::ostream& out, const PlanReport& report);

}  // namespace tenuto
