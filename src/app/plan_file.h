// Reads schedules and plans from files. The content of a file shows its form: our text, plan JSON
// or PyTorch's schedule CSV.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "ir/torch_run.h"
#include "plan/given_plan.h"

namespace tenuto {

// A plan from a file of any form. In the plan of a text or a CSV, each stage has one layer and is
// held by the workers that list its ops, and dispatch is listed. The backward is split in the plan
// of a text, and in that of a CSV if the file splits any backward. The lists of a CSV also get the
// messages that the file does not place, and the ops that end the step.
//
// Errors: Invalid/Call    unreadable, with file, line and column
//         Infeasible/Job  well formed, but Tenuto cannot run it (ir/torch_csv.h, plan/given_plan.h)
Result<Plan> plan_from_file(const std::string& path);

// A plan from a file, with notes about the file for the user.
struct PlanFile {
  Plan plan;
  std::vector<std::string> notes;  // what the file says and the plan does not, a sentence each
  std::optional<TorchRun> torch;   // what PyTorch would do with a CSV that places its messages
};

// plan_from_file, with the notes.
Result<PlanFile> read_plan_file(const std::string& path);

// The same for a text that has been read already; `source` is the file's name.
Result<PlanFile> plan_from(std::string_view text, const std::string& source);

// One pipeline's lists from a file, as training takes them (parallel.schedule).
struct FileLists {
  GivenLists lists;
  bool splits = false;  // input gradient and weight gradient are separate ops
  Dispatch dispatch = Dispatch::Listed;
  std::string order;  // the file's name without its folder
};

// The lists of a file, checked.
//
// Errors: as plan_from_file and check; Infeasible/Job when the file holds several pipelines
Result<FileLists> lists_from_file(const std::string& path);

}  // namespace tenuto
