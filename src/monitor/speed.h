// Decides whether a worker is slower than it should be, since when, and which speed plans should
// use.
//
// A worker's factor in one step is the time that its ops took, by their medians, divided by the
// time that they should take. Factors within a dead band count as healthy, and speeds are rounded,
// because a plan that follows noise is worse than one that ignores it. Only a change that lasts for
// several steps counts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "monitor/verdict.h"

namespace tenuto {

// How workers are judged.
struct SpeedOptions {
  double band = 0.25;         // a worker is slow when its ops last longer by more than this share
  double healed = 0.15;       // and healed when they last longer by less than this share
  double step = 0.05;         // speeds are multiples of this; it is also the least speed
  int32_t lasting = 3;        // the fewest steps in a row that make a change
  double spread = 0.05;       // the least spread of factors from step to step
  double hazard = 1.0 / 250;  // probability of a change at any step
  double certain = 0.9;       // probability at which a change is reported
};

// One worker. A value; memory is bounded.
class SpeedWatch {
 public:
  explicit SpeedWatch(SpeedOptions options = {});

  // Takes the factor of `step`; steps that are not newer than the newest are ignored.
  std::optional<Verdict> add(double factor, int64_t step);

  // The speed to plan with, as a share of the healthy one: 1 unless slow.
  double speed() const;
  // True from the verdict that the worker is slow until the verdict that it is healed.
  bool slow() const { return slow_; }

 private:
  enum class Where : uint8_t { Unchanged, Healthy, Slower, Faster };
  Where where(double factor) const;
  double sure() const;

  SpeedOptions options_;
  double last_factor_ = 1;  // the factor of the last verdict; 1 while healthy
  bool slow_ = false;
  int64_t newest_ = -1;
  double last_ = 0;  // logarithm of the last factor
  double spread_;    // of the logarithms from one step to the next
  Where streak_ = Where::Unchanged;
  int64_t since_ = 0;
  int32_t lasted_ = 0;
  double mean_ = 0;             // of the streak's logarithms
  std::vector<double> latest_;  // the streak's last factors, `lasting` at most
};

}  // namespace tenuto
