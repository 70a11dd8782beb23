// What goes wrong in a cluster, where, and for how long.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

#include "base/unit.h"

namespace tenuto::outlook {

// Stages times pipelines: each worker holds one stage of one pipeline.
struct ClusterShape {
  int32_t stages = 1, pipelines = 1;
  // Workers in all.
  int64_t workers() const { return int64_t{stages} * pipelines; }
};

// The kinds of trouble.
enum class TroubleKind : uint8_t { DeadWorker, SlowWorker, SlowLink };

// The name of a kind in files: dead-worker, slow-worker or slow-link.
constexpr std::string_view name_of(TroubleKind kind) {
  if (kind == TroubleKind::DeadWorker) return "dead-worker";
  return kind == TroubleKind::SlowWorker ? "slow-worker" : "slow-link";
}

// The largest factor of a trouble.
inline constexpr int32_t kMostFactor = 1000;

// One trouble. A slow link is the one from the worker to the next stage of its pipeline.
struct Trouble {
  Duration begin{};
  Duration end{};  // kLongestTime or later: never
  TroubleKind kind = TroubleKind::DeadWorker;
  int32_t pipeline = 0, stage = 0;
  double factor = 0;  // how many times longer ops or messages take; 0 for a dead worker
  bool operator==(const Trouble&) const = default;
};

}  // namespace tenuto::outlook
