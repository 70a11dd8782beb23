#include "remedy/forecast.h"

#include <algorithm>
#include <utility>

namespace tenuto {
namespace {

void end_trouble(Cluster& cluster, const Cluster& healthy, const PresentTrouble& trouble) {
  if (trouble.from == trouble.to) {
    const auto at = static_cast<size_t>(trouble.from.value);
    cluster.workers[at].speed = healthy.workers[at].speed;
    return;
  }
  for (const auto& ends :
       {std::pair(trouble.from, trouble.to), std::pair(trouble.to, trouble.from)}) {
    const auto known = healthy.exceptions.find(ends);
    if (known == healthy.exceptions.end()) {
      cluster.exceptions.erase(ends);
    } else {
      cluster.exceptions[ends] = known->second;
    }
  }
}

}  // namespace

bool same_situation(const Cluster& a, const Cluster& b) {
  const auto same = [](const Worker& x, const Worker& y) {
    return x.alive == y.alive && (!x.alive || x.speed == y.speed);
  };
  return std::equal(a.workers.begin(), a.workers.end(), b.workers.begin(), b.workers.end(), same) &&
         a.place == b.place && a.between == b.between && a.exceptions == b.exceptions &&
         a.ports == b.ports && a.half_duplex == b.half_duplex;
}

std::vector<ClusterPhase> forecast(const Cluster& now, const Cluster& healthy,
                                   const KnownTroubles& troubles, int64_t left, int64_t ahead) {
  const auto all = static_cast<double>(std::max<int64_t>(1, left - ahead));
  if (troubles.present.empty()) {
    const double rest = expected_rest(troubles.well, troubles.lasted + ahead);
    return {{now, std::clamp(rest, 1.0, all)}};
  }
  std::vector<std::pair<double, PresentTrouble>> ends;
  for (const PresentTrouble& trouble : troubles.present) {
    const double rest = expected_rest(troubles.ended, trouble.lasted + ahead);
    ends.emplace_back(std::clamp(rest, 1.0, all), trouble);
  }
  // By the time for which they have lasted, so that a later decision sees the same phases.
  std::stable_sort(ends.begin(), ends.end(),
                   [](const auto& a, const auto& b) { return a.second.lasted < b.second.lasted; });
  std::vector<ClusterPhase> phases;
  Cluster cluster = now;
  double begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    // Many troubles: the first ones are told apart, the others end together.
    const bool last = phases.size() + 2 >= kMostPhases && i + 1 < ends.size();
    const double end = std::max(begin, last ? ends.back().first : ends[i].first);
    phases.push_back({cluster, end - begin});
    begin = end;
    for (size_t j = i; j < (last ? ends.size() : i + 1); ++j) {
      end_trouble(cluster, healthy, ends[j].second);
    }
    if (last) break;
  }
  phases.push_back({cluster, all - begin});
  return phases;
}

}  // namespace tenuto
