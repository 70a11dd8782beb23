// What a person sees while a run goes on: on a terminal one line that is rewritten in place,
// elsewhere plain lines.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "base/unit.h"
#include "control/decide.h"
#include "run/served_steps.h"
#include "world/job.h"

namespace tenuto {

// The figures of a run so far.
struct Figures {
  int64_t steps_done = 0;  // since the run was started or resumed
  std::optional<double> first_loss, last_loss, validation_loss;
  std::optional<double> validation_accuracy;  // of the same validation
  int64_t validation_step = -1;  // the number of steps after which validation_loss was measured
  int64_t tokens = 0;            // of the timed steps
  Duration duration{};           // of the timed steps
  bool lag_valid = true;         // paced device; false: Lag::valid() was false in some step
  // Tokens per second over all timed steps; 0 before the first.
  double tokens_per_second() const;
};

// Writes to one stream. On a terminal it writes the living line, which is rewritten in place.
class Progress {
 public:
  // `stream` is not closed. A plain line comes at every tenth of the run and at least every 5 s.
  // Plain lines show each validation once, the living line shows the newest one, with its step.
  Progress(std::FILE* stream, const Job& job);
  // What a person should know of the run as a whole: a line before that of its first step, or at
  // once if that was shown already.
  void open_with(const std::string& sentence);
  // A step is final; `now` on the monotonic clock.
  void step(const StepRecord& step, Duration now);
  // The same of a run with server shards.
  void step(const ServedStep& step, Duration now);
  // Something that a person should know; stays visible.
  void event(const std::string& sentence);
  // Goes on from the figures of a coordinator before this one.
  void take_up(const Figures& figures) { figures_ = figures; }
  // Ends the living line.
  void finish();
  // The figures so far.
  const Figures& figures() const { return figures_; }

 private:
  // What is shown of a step of any run.
  struct Shown {
    int64_t step = 0;
    std::optional<double> loss, validation_loss, validation_accuracy;
    Duration duration{};
    bool lag_valid = true;
    bool counts = true;  // it is a step of this run, and not only evaluated by it
    std::string how;     // the end of its line
  };
  void show(const Shown& step, Duration now);
  std::string line(const Shown& step) const;
  std::FILE* stream_;
  const Job& job_;
  bool terminal_ = false;
  bool living_ = false;  // the cursor stands behind a living line
  Duration written_at_{};
  std::string opening_, last_event_;
  double recent_rate_ = 0;
  Figures figures_;
};

}  // namespace tenuto
