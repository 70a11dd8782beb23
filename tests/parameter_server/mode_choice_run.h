// What tests of the choice of a mode share: a run of four replicas.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "parameter_server/mode_choice.h"

namespace tenuto::servers {

inline Duration at(double seconds) { return from_milliseconds(1000 * seconds); }

// Requires: the text of a mode
inline SyncMode mode_of(const std::string& text) { return sync_mode_from_text(text).value(); }

inline ModeChoiceSettings four_replicas() {
  ModeChoiceSettings settings;
  settings.replicas = 4;
  settings.apply = std::chrono::milliseconds(3);
  settings.compute = std::chrono::milliseconds(100);
  settings.micros = 8;
  settings.kappa = 0.5;
  settings.seed = 11;
  return settings;
}

// The mode to change to, as text; empty = none.
inline std::string next_of(ModeChoice& choice, const SyncMode& current, Duration now) {
  const auto next = choice.next(current, now);
  EXPECT_TRUE(next.ok()) << (next.ok() ? "" : next.error().message);
  if (!next.ok() || !next.value()) return "";
  EXPECT_FALSE(next.value()->reason.empty());
  return to_text(next.value()->mode);
}

inline MeasuredIteration iteration_of(int32_t replica, double milliseconds, double share = 1) {
  return {{replica}, {from_milliseconds(milliseconds), std::chrono::milliseconds(1)}, share};
}

}  // namespace tenuto::servers
