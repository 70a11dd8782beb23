// How to reach a live run's coordinator; kept in RUN/coordinator.json, readable by its owner alone,
// while the run lasts.
#pragma once

#include <string>

#include "base/result.h"

namespace tenuto {

// What the file holds.
struct CoordinatorAddress {
  std::string address, job, token;
  std::string tls;  // folder with certificates; empty = none
};

// Reads it.
//
// Errors: Invalid/Call       the run is not live, says how it has ended; or the file is another
//                            user's
//         Disconnected/Call  a process works in the folder, but the file is missing or damaged
Result<CoordinatorAddress> read_coordinator_address(const std::string& run);

// Writes it into the folder of a run.
Status write_coordinator_address(const std::string& run, const CoordinatorAddress& where);
// Removes it again.
void remove_coordinator_address(const std::string& run);

// Why the run in that folder cannot be queried: it is not live, or, while a process still holds the
// folder, the sentence `otherwise`.
Error not_live(const std::string& run, const std::string& otherwise);

}  // namespace tenuto
