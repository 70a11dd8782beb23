// Is a worker slower than it should be, since when, and which speed should be planned with?
//
// A worker's factor in one step: the time that its ops took, by their medians, over the time that
// they should take. Factors within the dead band count as nominal, and speeds are rounded, since a
// plan made for noise is worse than one made without it. A change counts when it lasts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "monitor/verdict.h"

namespace tenuto {

// How workers are judged.
struct SpeedOptions {
  double band = 0.25;         // a worker is slow when its ops last longer by more than this share
  double healed = 0.15;       // and healed when by less than this one
  double step = 0.05;         // speeds are multiples of it, itself the least
  int32_t lasting = 3;        // steps in a row that make a change, at least
  double spread = 0.05;       // of factors from step to step, at least
  double hazard = 1.0 / 250;  // probability of a change at any step
  double certain = 0.9;       // probability at which one is told
};

// One worker. A value; memory is bounded.
class SpeedWatch {
 public:
  explicit SpeedWatch(SpeedOptions options = {});

  // Takes the factor of `step`; steps that are not newer than the newest say nothing.
  std::optional<Verdict> add(double factor, int64_t step);

  // The speed to plan with, as a share of the nominal one: 1 unless slow.
  double speed() const;
  // True from the verdict that it is slow until the one that it is healed.
  bool slow() const { return slow_; }

 private:
  enum class Where : uint8_t { AsBelieved, Well, Slower, Faster };
  Where where(double factor) const;
  double sure() const;

  SpeedOptions options_;
  double believed_ = 1;  // factor
  bool slow_ = false;
  int64_t newest_ = -1;
  double last_ = 0;  // logarithm of the last factor
  double spread_;    // of the logarithms from one step to the next
  Where streak_ = Where::AsBelieved;
  int64_t since_ = 0;
  int32_t lasted_ = 0;
  double mean_ = 0;             // of the streak's logarithms
  std::vector<double> latest_;  // the streak's last factors, `lasting` at most
};

}  // namespace tenuto
