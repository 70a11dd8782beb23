// Real runs of `tenuto train`, for benchmarks: from a job's text to the run's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ir/plan.h"

namespace tenuto {

// Prints the program's name and the sentence, and ends the program.
[[noreturn]] void give_up(const std::string& sentence);

// The whole file; ends the program if it cannot be read.
std::string read_all(const std::filesystem::path& path);

// A new folder in /tmp, removed together with this object.
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

// Writes the file of the job that train() describes below; its path.
std::filesystem::path write_job(const std::filesystem::path& folder, int64_t steps,
                                const std::vector<int64_t>& trace_steps, const std::string& job);

// Trains the job with the text `job`, which has no [job] table: this call adds one with `steps`
// steps, traces of `trace_steps`, and no checkpoints or held-out passes. Returns the run's folder
// below `folder`; the next call removes it.
std::filesystem::path train(const std::string& tenuto, const std::filesystem::path& folder,
                            int64_t steps, const std::vector<int64_t>& trace_steps,
                            const std::string& job);

// The run's plan with this serial number; 0 = the newest.
Plan plan_of(const std::filesystem::path& run, int64_t serial = 0);

// The metrics of one step.
struct StepFigures {
  double iteration_ms = 0;  // first op to last weight gradient, on the devices' clock
  double period_ms = 0;     // from the last weight gradient of the step before; 0 in the first
  double step_ms = 0;       // of the slowest worker, on the machine's clock
  double loss = 0;
  bool lag_valid = true;
};
// The metrics of all steps of the run, by step.
std::vector<StepFigures> figures_of(const std::filesystem::path& run);

// A plan and the first step that it was in force for.
struct PlanChange {
  int64_t serial = 1, from = 0;
};
// All plans that came into force, the first one first.
std::vector<PlanChange> changes_of(const std::filesystem::path& run);

}  // namespace tenuto
