// Reads a job from TOML and flags, by the table of keys.h. Every error is one sentence with file,
// line, column and the nearest valid name.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "world/job.h"

namespace tenuto {

// A job and where each of its values came from.
struct LoadedJob {
  Job job;
  std::map<std::string, std::string>
      origin;  // "optimizer.clip" -> "default" | "job.toml:12" | "flag"
};

// The one setting that is a secret: it is shown nowhere.
inline constexpr std::string_view kSecretKey = "coordinator.token";

// Reads `path` (empty = defaults only) and then `overrides`, each "section.key=value", and the plan
// file that they name (plan_settings.h).
//
// Errors: Invalid/Call for an unreadable file, bad TOML, an unknown section or key, a wrong type, a
//         value out of range, values that do not fit together (more stages than layers), or an
//         override of coordinator.token, because a command line is no secret.
Result<LoadedJob> load_job(const std::string& path, const std::vector<std::string>& overrides);

// The job as TOML from which load_job reads an equal job, but for coordinator.token: this text is
// written to files that others may read. With `origin`, a comment after each value says where it
// came from.
std::string to_toml(const Job& job, const std::map<std::string, std::string>* origin = nullptr);

// Reads the text of to_toml back.
Result<Job> job_from_toml(const std::string& text, const std::string& source);

}  // namespace tenuto
