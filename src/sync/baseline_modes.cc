#include "sync/baseline_modes.h"

#include <cmath>

#include "base/check.h"
#include "sync/formed.h"
#include "sync/heuristic.h"

namespace tenuto {

IterationTime moving_average(std::span<const IterationTime> samples) {
  CHECK(!samples.empty(), "a sample to predict from");
  auto compute = static_cast<double>(samples.front().compute.count());
  auto transfer = static_cast<double>(samples.front().transfer.count());
  for (const IterationTime& one : samples.subspan(1)) {
    compute += kNewestPart * (static_cast<double>(one.compute.count()) - compute);
    transfer += kNewestPart * (static_cast<double>(one.transfer.count()) - transfer);
  }
  return {Duration(std::llround(compute)), Duration(std::llround(transfer))};
}

Result<SyncMode> mode_by_speed(std::span<const std::vector<IterationTime>> samples,
                               int64_t micros) {
  std::vector<IterationTime> predicted;
  for (const auto& of : samples) predicted.push_back(moving_average(of));
  SyncMode mode;
  mode.kind = SyncKind::Rebalanced;
  return form(mode, predicted, micros);
}

SyncMode mode_by_switch(const SwitchInput& input) {
  SyncMode mode;
  if (input.done >= input.wanted || !stragglers(input.times).empty()) {
    mode.kind = SyncKind::Asynchronous;
  }
  return mode;
}

}  // namespace tenuto
