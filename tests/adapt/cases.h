// Turns lines into plans, so that the tests of orders can call price(), check() and adapt().
#pragma once

#include <string>
#include <vector>

#include "adapt/line.h"
#include "ir/plan.h"
#include "sim/price.h"

namespace tenuto {

// A plan, with a model and a cluster on which its ops and messages take the times of a line.
struct Case {
  Plan plan;
  Model model;
  Cluster cluster;
  PriceOptions options;  // without the update, so that the makespan is that of the line
};

// `pipelines` pipelines that are all like the line, under a named order. The line's memory limits
// become the workers' limits. All messages have the same size; only links that the line's messages
// occupy have a rate.
Case case_of(const Line& line, const std::string& order = "1f1b", int32_t pipelines = 1);

// Pipeline `route` of a case as a line, exact to the nanosecond.
Line line_of(const Case& it, size_t route = 0);

// The case's plan, of one pipeline, with these lists.
Plan listed_plan(const Case& it, const std::vector<Sequence>& sequences);

// The same under ready dispatch, with the limits of a policy that played these sequences.
Plan ready_plan(const Case& it, const Policy& policy, const std::vector<Sequence>& sequences);

}  // namespace tenuto
