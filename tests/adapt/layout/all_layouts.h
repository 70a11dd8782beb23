// All layouts on an order of workers, by plain recursion: what the dynamic programs are compared
// with.
#pragma once

#include <cstdint>
#include <vector>

#include "adapt/layout/problem.h"

namespace tenuto {

// Which layouts there are.
struct LayoutSpace {
  int32_t layers = 0;
  std::vector<WorkerId> order;
  int32_t unit = 1;             // workers of a unit; a stage has whole, consecutive units
  std::vector<int32_t> counts;  // numbers of units that a stage may have
  bool idle = false;            // units at the end of the order may stay idle
};

// Each layout once. Cost: exponential; some hundred layouts for six layers and five workers.
std::vector<Layout> all_layouts(const LayoutSpace& space);

}  // namespace tenuto
