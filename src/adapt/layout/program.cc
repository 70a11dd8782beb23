#include "adapt/layout/program.h"

#include <algorithm>

#include "adapt/layout/bottleneck_rule.h"
#include "adapt/layout/stage_table.h"

namespace tenuto {

std::vector<std::optional<BottleneckLayout>> least_bottlenecks(const LayoutProblem& problem,
                                                               const UnitOrder& units, bool idle) {
  // The number of micro-batches in flight on a stage depends on the stages behind it.
  const bool limited = problem.memory_is_limited();
  const StageWalk walk(problem, units, limited);
  const double micros = problem.settings().micros;
  const int32_t most = std::min(problem.layer_count(), units.unit_count());
  StageTable<BottleneckRule> table(walk, BottleneckRule(walk, {micros, 1, 2 * micros}),
                                   {most, false, idle, limited});
  std::vector<std::optional<BottleneckLayout>> found(static_cast<size_t>(most));
  for (int32_t stages = 1; stages <= most; ++stages) {
    const TableEnd end = table.least(stages);
    if (end.value == kUnreachable) continue;
    found[static_cast<size_t>(stages - 1)] = BottleneckLayout{table.layout(end), end.value};
  }
  return found;
}

}  // namespace tenuto
