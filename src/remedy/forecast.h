// How the state of a cluster is expected to go on: which troubles end when.
#pragma once

#include <cstdint>
#include <vector>

#include "base/id.h"
#include "remedy/expected_duration.h"
#include "world/cluster.h"

namespace tenuto {

// A slow worker (both ends are it) or a slow link, in both directions, and for how long.
struct PresentTrouble {
  WorkerId from, to;
  int64_t lasted = 0;  // steps
  bool operator==(const PresentTrouble&) const = default;
};

// What is known of the troubles of a cluster.
struct KnownTroubles {
  std::vector<PresentTrouble> present;
  SeenDurations ended;  // of troubles
  SeenDurations well;   // of the times without any
  int64_t lasted = 0;   // steps since the cluster last changed
};

// A state in which the cluster is expected to be for some steps.
struct ClusterPhase {
  Cluster cluster;
  double steps = 0;
};

// At most so many phases are told apart, so that a decision has few prices to compare.
inline constexpr size_t kMostPhases = 4;

// True when the same workers live, with the same speeds and the same links.
bool same_situation(const Cluster& a, const Cluster& b);

// The phases of the next `left` steps. The first one is `now`. After the expected rest of a trouble
// (expected_duration.h) its worker or link is as in `healthy`; with all of them over, all are well
// until the end. A cluster without troubles stays as it is for the expected rest of a time without,
// and nothing is said of the time after it. `ahead`: for a decision that is taken so many steps
// later, if nothing changes until then. Dead workers stay dead.
std::vector<ClusterPhase> forecast(const Cluster& now, const Cluster& healthy,
                                   const KnownTroubles& troubles, int64_t left, int64_t ahead = 0);

}  // namespace tenuto
