// Writes the files that a run leaves to its user: metrics.jsonl, events.jsonl and traces
// (docs/formats-run.md).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/unit.h"
#include "control/decide.h"
#include "ir/plan.h"
#include "parameter_server/host_message.h"
#include "run/progress.h"
#include "run/served_steps.h"
#include "world/job.h"

namespace tenuto {

// Targets (bytes of text, or samples) that one step learns from.
int64_t tokens_of_step(const Job& job);

// The figures of a run so far, read from the metrics in `directory`, from `first_step` on.
//
// Errors: Invalid/Call  the metrics cannot be read
Result<Figures> read_figures(const std::string& directory, int64_t first_step);

// What some events have beside their sentence.
struct EventDetails {
  // What a mode was chosen from, best first.
  std::vector<servers::ModeAlternative> alternatives = {};
  // Of a straggler: why it is late (to_text of a StragglerCause), and on which host. Empty = none.
  std::string cause = {}, host = {};
};

// The open files of one run.
class Record {
 public:
  // Opens both files in `directory`, for appending.
  static Result<Record> open(const std::string& directory, const Job& job);
  // One line of metrics; and the trace, when the step is one of job.trace_steps.
  Status step(const StepRecord& step);
  // The same of a run with server shards, which has no traces.
  Status step(const ServedStep& step);
  // One line of events: `kind`, a sentence, and those details that there are.
  Status event(const std::string& kind, int64_t epoch, int64_t step, const std::string& sentence,
               const EventDetails& details = {});

 private:
  Record() = default;
  Status trace(const StepRecord& step) const;
  std::string directory_;
  const Job* job_ = nullptr;
  LineFile metrics_, events_;
  // The step before, and when its last weight gradient ended on the devices' clock.
  std::optional<std::pair<int64_t, Duration>> before_;
};

}  // namespace tenuto
