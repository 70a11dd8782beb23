// What has happened in a run so far, as far as the page shows it. Memory is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace tenuto::page {

// An event of the run, as in events.jsonl.
struct ShownEvent {
  int64_t serial = 0;  // counts up from 1
  std::string kind;
  int64_t epoch = 0, step = 0;
  std::string reason;
};

// A step that is done.
struct ShownStep {
  int64_t step = 0;
  std::optional<double> loss;  // none: it is not known
  double seconds = 0;          // 0 = not known
};

// The events, steps and counts of one run.
class History {
 public:
  // So many events and steps are kept. When there are more steps, every second one is left out: the
  // curve keeps its shape from the first step on.
  static constexpr size_t kMostEvents = 256;
  static constexpr size_t kMostSteps = 512;

  // An event. Faults are those of kind "fault" and "death".
  void add_event(const std::string& kind, int64_t epoch, int64_t step, const std::string& reason);
  // A step, each once and in their order.
  void add_step(const ShownStep& step);
  // The plan or the mode is another one.
  void add_change() { ++changes_; }

  // The newest events, the newest last.
  const std::deque<ShownEvent>& events() const { return events_; }
  // Steps from the first to the newest one, ascending; the newest one is always there.
  std::vector<ShownStep> steps() const;
  // The newest step; none before the first.
  const std::optional<ShownStep>& newest() const { return newest_; }
  // The serial of the newest event; 0 = there are none.
  int64_t serial() const { return serial_; }
  // Changes of plan or mode, and faults.
  int64_t changes() const { return changes_; }
  int64_t faults() const { return faults_; }
  // The time of all steps, in seconds.
  double seconds() const { return seconds_; }

 private:
  std::deque<ShownEvent> events_;
  std::vector<ShownStep> steps_;  // those whose number divided by stride_ leaves nothing
  std::optional<ShownStep> newest_;
  int64_t stride_ = 1;
  int64_t serial_ = 0, changes_ = 0, faults_ = 0;
  double seconds_ = 0;
};

}  // namespace tenuto::page
