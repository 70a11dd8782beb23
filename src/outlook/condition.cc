#include "outlook/condition.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tenuto::outlook {

Condition condition_of(const std::vector<Trouble>& troubles) {
  using Place = std::pair<int32_t, TroubleKind>;  // stage, kind
  std::map<int32_t, std::map<Place, double>> by_pipeline;
  for (const Trouble& trouble : troubles) {
    double& factor = by_pipeline[trouble.pipeline][{trouble.stage, trouble.kind}];
    factor = std::max(factor, trouble.factor);
  }
  Condition condition;
  for (const auto& of : by_pipeline) {
    const auto& places = of.second;
    Pattern& pattern = condition.emplace_back();
    for (const auto& [place, factor] : places) {
      const bool dead = places.count({place.first, TroubleKind::DeadWorker}) > 0;
      if (dead && place.second == TroubleKind::SlowWorker) continue;
      pattern.push_back({place.first, place.second, factor});
    }
  }
  std::sort(condition.begin(), condition.end());
  return condition;
}

}  // namespace tenuto::outlook
