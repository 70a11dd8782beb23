// Which workers and links are in trouble, since when, and how long earlier troubles lasted.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/id.h"
#include "remedy/forecast.h"
#include "world/cluster.h"

namespace tenuto {

// The troubles of a run: slow workers and slow links. How slow one is makes no difference.
class TroubleLog {
 public:
  // A run whose first step is `begun`.
  TroubleLog() = default;
  explicit TroubleLog(int64_t begun) : well_since_(begun), changed_(begun) {}
  // From `step` on the cluster is as `now` says.
  void note(const Cluster& healthy, const Cluster& now, int64_t step);
  // What is known at `step`.
  KnownTroubles known(int64_t step) const;

 private:
  // By the ends of a link, the lower one first; a slow worker is a link to itself.
  std::map<std::pair<WorkerId, WorkerId>, int64_t> since_;
  SeenDurations ended_, well_;
  int64_t well_since_ = 0, changed_ = 0;
};

}  // namespace tenuto
