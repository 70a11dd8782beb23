// Real runs of the program itself, for benchmarks: a job file in, a run's folder out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ir/plan.h"

namespace tenuto {

// Ends the program with a sentence behind its name.
[[noreturn]] void give_up(const std::string& sentence);

// The whole file, or the end of the program.
std::string read_all(const std::filesystem::path& path);

// A folder in /tmp that nobody else has, gone with its owner.
class WorkFolder {
 public:
  WorkFolder();
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  // Where it is.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Trains by a job file whose text is `job` but for its [job] table, which is `steps` steps with
// these steps traced, without checkpoints or held-out passes. Returns the run's folder below
// `folder`, which the next call removes.
std::filesystem::path train(const std::string& tenuto, const std::filesystem::path& folder,
                            int64_t steps, const std::vector<int64_t>& trace_steps,
                            const std::string& job);

// The plan of the run with this serial; 0 = the newest.
Plan plan_of(const std::filesystem::path& run, int64_t serial = 0);

// What the metrics say of one step.
struct StepFigures {
  double iteration_ms = 0;  // first op to last weight gradient, on the devices' clock
  double period_ms = 0;     // from the last weight gradient of the step before; 0 in the first
  double step_ms = 0;       // of the slowest worker, on the machine's
  bool lag_valid = true;
};
// Of all steps of the run, by step.
std::vector<StepFigures> figures_of(const std::filesystem::path& run);

// A plan and the first step that it was in force in.
struct PlanChange {
  int64_t serial = 1, from = 0;
};
// All plans that came into force, the first one first.
std::vector<PlanChange> changes_of(const std::filesystem::path& run);

}  // namespace tenuto
