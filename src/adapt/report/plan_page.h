// tenuto plan --html: one self-contained page that shows the result of a planner.
#pragma once

#include <iosfwd>

#include "adapt/report/plan_report.h"

namespace tenuto {

// Writes the page: a picture that shows which devices have which stages, and what plan_text says.
// The first sections are about split rows. The plan for training and the plan for PyTorch have
// sections of their own, if the report has these plans. The page has no script and loads nothing
// from the network. Everything in a picture is also in a table or a sentence; a table has at most
// 512 stages or links.
//
// Requires: report.cluster
// Cost:     some 10 kB, 4 MB at most
void write_plan_page(std::ostream& out, const PlanReport& report);

}  // namespace tenuto
