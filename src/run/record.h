// Writes the files that a run leaves to its user: metrics.jsonl, events.jsonl and traces
// (docs/formats-run.md).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
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
#include "remedy/choose_remedy.h"
#include "run/progress.h"
#include "run/served_steps.h"
#include "sim/trace.h"
#include "world/job.h"

namespace tenuto {

// Targets (bytes of text, or samples) that one step learns from.
int64_t tokens_of_step(const Job& job);

// A line of the metrics as it is read back. None: the line does not say.
struct MetricsLine {
  int64_t step = 0;
  std::optional<double> loss, validation_loss;
  std::optional<double> validation_accuracy;  // 0 to 1
  // Milliseconds: of the slowest worker, and on the devices' clock; see docs/formats-run.md.
  std::optional<double> step_ms, iteration_ms, period_ms;
  int64_t tokens = 0;
  bool lag_valid = true;
};

// Is told each line, in order.
using MetricsReader = std::function<void(const MetricsLine&)>;

// The figures of a run so far, read from the metrics in `directory`, from `first_step` on.
// `reader`, if there is one, is told the same lines.
//
// Errors: Invalid/Call  the metrics cannot be read
Result<Figures> read_figures(const std::string& directory, int64_t first_step,
                             const MetricsReader& reader = {});

// What some events have beside their sentence.
struct EventDetails {
  // What a mode was chosen from, best first.
  std::vector<servers::ModeAlternative> alternatives = {};
  // Of a straggler: why it is late (to_text of a StragglerCause), and on which host. Empty = none.
  std::string cause = {}, host = {};
  // Of a decision about the plan: what was compared, and for how many steps the cluster is expected
  // to stay as it is.
  std::vector<Alternative> remedies = {};
  double expected_steps = 0;
  // Serial of the plan that the event proposes, or with which the workers continue; 0 = none.
  int64_t plan = 0;
};

// An event as a line of events.jsonl, at the present time: `kind`, a sentence, and those details
// that there are.
std::string event_line(const std::string& kind, int64_t epoch, int64_t step,
                       const std::string& sentence, const EventDetails& details);

// The spans of a step as they were expected; may be empty.
using StepPromise = std::function<std::vector<Span>(const StepRecord&)>;

// The open files of one run.
class Record {
 public:
  // Opens both files in `directory`, for appending.
  static Result<Record> open(const std::string& directory, const Job& job);
  // One line of metrics. If the workers have reported the step's events, write_traces() writes its
  // trace.
  Status step(const StepRecord& step);
  // The same of a run with server shards, which has no traces.
  Status step(const ServedStep& step);
  // Writes the traces of the steps since the last call, with what was promised of each and the
  // events since the trace before. Removes the oldest traces of the run's folder when all together
  // are larger than job.trace_megabytes; the newest one stays. Workers do not wait for it if it is
  // called once they have been told of the commit.
  //
  // Errors: Invalid/Call for events that are no events; those of write_file
  Status write_traces(const StepPromise& promise);
  // One line of events, see event_line().
  Status event(const std::string& kind, int64_t epoch, int64_t step, const std::string& sentence,
               const EventDetails& details = {});

 private:
  // A step whose trace is to be written.
  struct Traced {
    StepRecord step;
    // On this host's clock: the commit of the traced step before it, and its own.
    Duration since{}, committed{};
  };
  Record() = default;
  Status write_trace_of(const Traced& traced, const StepPromise& promise);
  void remove_old_traces();
  std::string directory_;
  const Job* job_ = nullptr;
  LineFile metrics_, events_;
  // The step before, and when its last weight gradient ended on the devices' clock.
  std::optional<std::pair<int64_t, Duration>> before_;
  std::vector<Traced> traced_;        // their traces are not written yet
  Duration traced_at_{};              // when the newest step with a trace was committed
  std::deque<TraceMark> marks_;       // the newest events; `at` is on this host's clock
  std::map<int64_t, int64_t> sizes_;  // in bytes, of the traces in the folder, by step
};

}  // namespace tenuto
