// Scenarios of sync modes as TOML files that people write; docs/formats.md has the keys.
//
//   name = "slow-at-times"
//   replicas = 8
//   compute_ms = 80
//   transfer_ms = 20
//   apply_ms = 1
//
//   [[phase]]
//   seconds = 6
//
//   [[phase]]
//   seconds = 6
//   slow = [{replica = 0, transfer = 16}]
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "sync/scenario.h"

namespace tenuto {

// Reads a scenario. Its optimizer is the default one, because files do not name it.
//
// Units:  times of iterations and updates are in milliseconds, those of phases in seconds; each is
//         rounded to the nearest nanosecond
// Errors: Invalid/Call with `source`, the line and the column of the first fault  no TOML; an
//         unknown or missing key, a wrong type, a value out of range; a replica that is not there
//         or stands twice in a phase; phases that has_right_phases refuses
Result<SyncScenario> sync_scenario_from_toml(std::string_view text, std::string_view source);

// The text from which sync_scenario_from_toml reads an equal scenario, but for the optimizer.
//
// Requires: a scenario with values that the file may have
std::string to_toml(const SyncScenario& scenario);

}  // namespace tenuto
