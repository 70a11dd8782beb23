// Lines as plans: what the tests of orders hand to price(), check() and adapt().
#pragma once

#include <string>
#include <vector>

#include "adapt/line.h"
#include "ir/plan.h"
#include "sim/price.h"

namespace tenuto {

// A plan with the model and the cluster on which it has the times of a line.
struct Case {
  Plan plan;
  Model model;
  Cluster cluster;
  PriceOptions options;  // without the update, so that the makespan is that of the line
};

// Pipelines that are all like the line, under a named order in list order; the line's rooms are the
// workers' limits. Messages that occupy their link have bytes, and the link a rate.
Case case_of(const Line& line, const std::string& order = "1f1b", int32_t pipelines = 1);

// The line that pipeline `route` of a case is, to the nanosecond.
Line line_of(const Case& it, size_t route = 0);

// The case's plan, of one pipeline, with these lists.
Plan listed_plan(const Case& it, const std::vector<Sequence>& sequences);

// The same under ready dispatch, obeying a policy that could begin with these sequences.
Plan ready_plan(const Case& it, const Policy& policy, const std::vector<Sequence>& sequences);

}  // namespace tenuto
