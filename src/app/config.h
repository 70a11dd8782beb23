// What a job will be run with: every effective value and where it came from.
#pragma once

#include <string>

#include "world/load.h"

namespace tenuto {

// The text of `tenuto train --print-config`: a job file that reads back equal, each line with the
// origin of its value: default, FILE:LINE or flag.
std::string config_text(const LoadedJob& loaded);

// The same for programs: one JSON object, {"section.key": {"value": ..., "origin": "..."}, ...}.
std::string config_json(const LoadedJob& loaded);

// The keys of a job file with their defaults and meanings, for `tenuto train --help`.
std::string key_help();

}  // namespace tenuto
