// The effective settings of a job: every value and where it came from.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "world/load.h"

namespace tenuto {

// load_job, then fills in the values that follow from others: parallel.split_backward, unless it is
// given, is the order's default (origin: "order 1f1b"). With parallel.schedule, stages and micros
// are the file's, and so are split_backward and dispatch, unless they are given (origin: "schedule
// FILE"). With parallel.plan the plan gives all of them (world/plan_settings.h).
//
// Errors: load_job's; Invalid/Call for an unknown order, with the nearest name, for stages or
//         micros that are given and differ from the file's; plan_from_file's for the file
Result<LoadedJob> load_effective_job(const std::string& path,
                                     const std::vector<std::string>& overrides);

// The text of `tenuto train --print-config`: a job file that reads back equal, each line with the
// origin of its value: default, FILE:LINE, flag, the order or the schedule.
std::string config_text(const LoadedJob& loaded);

// The same for programs: one JSON object, {"section.key": {"value": ..., "origin": "..."}, ...}.
std::string config_json(const LoadedJob& loaded);

// The keys of a job file with their defaults and meanings, for `tenuto train --help`.
std::string key_help();

}  // namespace tenuto
