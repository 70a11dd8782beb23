// tenuto doctor: what is installed, what works, and what to do about the rest.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// The result of one check.
struct Finding {
  // Good: it works. Poor: it works, but not as well as it could. Missing: it is not there or fails,
  // and training does not work without it.
  enum class State : uint8_t { Good, Poor, Missing };
  std::string name;  // "transport"
  State state = State::Good;
  std::string found;   // one line
  std::string advice;  // what to do; empty when there is nothing to do
};

// Makes all checks. `runs` is the folder that runs would be written to; it need not exist. Cost:
// about 2 s, most of it the start of tenuto-worker
std::vector<Finding> examine(const std::string& runs);

// For people: one line a finding, and what to do below.
std::string findings_table(const std::vector<Finding>& findings);

// For programs: {"ok": bool, "checks": [{"name", "state", "found", "advice"}, ...]}.
std::string findings_json(const std::vector<Finding>& findings);

// True when nothing is missing.
bool all_there(const std::vector<Finding>& findings);

// What a program prints on stdout; it is killed when it takes longer than `limit`.
//
// Errors: Invalid/Call when it cannot be started, Timeout/Call, Disconnected/Call when it fails
Result<std::string> output_of(const std::vector<std::string>& command, Duration limit);

}  // namespace tenuto
