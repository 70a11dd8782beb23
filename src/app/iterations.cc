#include "app/iterations.h"

namespace tenuto {

Result<std::vector<Stretch>> price_steps(const Plan& plan, const Model& model, const Cluster& base,
                                         const FaultySteps& steps, const PriceOptions& options) {
  const auto& [faults, seats, iterations] = steps;
  std::vector<int64_t> ends;
  for (const int64_t step : change_steps(faults)) {
    if (step < iterations) ends.push_back(step);
  }
  ends.push_back(iterations);
  if (options.staggered && ends.size() > 1) {
    return invalid(
        "--optimizer staggered lets steps overlap, which cannot be priced while injected faults "
        "change links from one step to another: use barrier or in-turn, or fewer --iterations");
  }
  PriceOptions bare = options;
  bare.spans = bare.bytes = bare.lower_bound = false;
  std::vector<Stretch> stretches;
  int64_t first = 0;
  for (const int64_t end : ends) {
    const Cluster cluster = with_faults(base, faults, first, seats);
    const auto timeline = price(plan, model, cluster, bare);
    if (!timeline.ok()) return timeline.error();
    Stretch stretch{first, end, timeline.value().period, {}};
    for (const Fault& fault : faults) {
      if (is_hog(fault)) continue;  // it changes no price
      if (lasts(fault) && in_force(fault, first)) stretch.faults.push_back(describe(fault));
    }
    stretches.push_back(std::move(stretch));
    first = end;
  }
  return stretches;
}

}  // namespace tenuto
