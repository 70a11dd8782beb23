// Which replicas straggle, iteration by iteration, and why: a slow link, a host whose CPU others
// take, or a slow device.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sync/predict_record.h"
#include "world/straggler_cause.h"

namespace tenuto {

// A replica whose iteration took more than kStraggler times the fastest one's.
struct StragglerVerdict {
  ReplicaId replica;
  double slowdown = 1;  // times the fastest
  StragglerCause cause = StragglerCause::Device;
  std::string sentence;
};

// The verdicts on one iteration, in order of replica. `samples` has one sample of each replica. The
// causes are those of cause_of(), compared with the fastest replica; a run delay of 0 counts as not
// known.
std::vector<StragglerVerdict> find_stragglers(std::span<const IterationSample> samples);

// How often a replica straggled, and why.
struct StraggleCount {
  std::array<int64_t, kStragglerCauses> by_cause{};  // iterations; indexed by StragglerCause
  double worst = 1;                                  // its largest slowdown
};
// The same of all replicas of a recording.
struct StraggleCounts {
  std::vector<StraggleCount> replicas;
  int64_t iterations = 0;      // of each replica
  int64_t with_straggler = 0;  // iterations in which somebody straggled
};
// Counts the verdicts on all iterations.
StraggleCounts count_stragglers(const Recording& recording);

// The counts as a table for people, and how many iterations had a straggler.
std::string straggle_report(const Recording& recording);

}  // namespace tenuto
