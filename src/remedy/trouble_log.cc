#include "remedy/trouble_log.h"

#include <algorithm>

namespace tenuto {
namespace {

void add_duration(SeenDurations& seen, int64_t steps) {
  seen.push_back(steps);
  if (seen.size() > kMostSeen) seen.erase(seen.begin());
}

}  // namespace

void TroubleLog::note(const Cluster& healthy, const Cluster& now, int64_t step) {
  std::map<std::pair<WorkerId, WorkerId>, int64_t> troubles;
  const auto add = [&](WorkerId from, WorkerId to) {
    const auto known = since_.find({from, to});
    troubles[{from, to}] = known == since_.end() ? step : known->second;
  };
  for (size_t w = 0; w < now.workers.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    if (now.workers[w].alive && now.workers[w].speed < healthy.workers[w].speed) {
      add(worker, worker);
    }
  }
  for (const auto& [ends, link] : now.exceptions) {
    const auto [low, high] = std::minmax(ends.first, ends.second);
    if (link != healthy.link(ends.first, ends.second)) add(low, high);
  }
  for (const auto& [what, begun] : since_) {
    if (!troubles.contains(what)) add_duration(ended_, step - begun);
  }
  if (since_.empty() && !troubles.empty()) add_duration(well_, step - well_since_);
  if (!since_.empty() && troubles.empty()) well_since_ = step;
  since_ = std::move(troubles);
  changed_ = step;
}

KnownTroubles TroubleLog::known(int64_t step) const {
  KnownTroubles known;
  for (const auto& [ends, begun] : since_) {
    known.present.push_back({ends.first, ends.second, step - begun});
  }
  known.ended = ended_;
  known.well = well_;
  known.lasted = step - changed_;
  return known;
}

}  // namespace tenuto
