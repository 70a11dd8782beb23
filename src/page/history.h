// What has happened in a run so far, as far as the page shows it. Memory is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
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

// A held-out pass, in which the run validates.
struct ShownValidation {
  int64_t step = 0;  // after which it was made
  double loss = 0;
  std::optional<double> accuracy;  // 0 to 1; none: the targets are no classes
};

// A long row of numbered things, of which at most `most` are kept. When there are more, every
// second one is left out: a curve keeps its shape from the first one on.
template <class Shown>
class Thinned {
 public:
  explicit Thinned(size_t most) : most_(most) {}

  // The next one. Numbers ascend, from 0 or any later one.
  void add(int64_t number, const Shown& shown) {
    newest_.emplace(number, shown);
    if (number % stride_ != 0) return;
    kept_.emplace_back(number, shown);
    while (kept_.size() >= most_) {
      stride_ *= 2;
      std::erase_if(kept_, [this](const auto& of) { return of.first % stride_ != 0; });
    }
  }
  // From the first to the newest one; the newest one is always there.
  std::vector<Shown> all() const {
    std::vector<Shown> shown;
    for (const auto& of : kept_) shown.push_back(of.second);
    const bool is_new = newest_ && (kept_.empty() || kept_.back().first != newest_->first);
    if (is_new) shown.push_back(newest_->second);
    return shown;
  }

 private:
  size_t most_;
  std::vector<std::pair<int64_t, Shown>> kept_;  // those whose number stride_ divides
  std::optional<std::pair<int64_t, Shown>> newest_;
  int64_t stride_ = 1;
};

// The events, steps and counts of one run.
class History {
 public:
  // So many events, steps and held-out passes are kept.
  static constexpr size_t kMostEvents = 256;
  static constexpr size_t kMostSteps = 512;
  static constexpr size_t kMostValidations = 256;

  // An event. Faults are those of kind "fault" and "death".
  void add_event(const std::string& kind, int64_t epoch, int64_t step, const std::string& reason);
  // A step, each once and in their order.
  void add_step(const ShownStep& step);
  // A held-out pass, in their order.
  void add_validation(const ShownValidation& validation);
  // The plan or the mode is another one.
  void add_change() { ++changes_; }

  // The newest events, the newest last.
  const std::deque<ShownEvent>& events() const { return events_; }
  // Steps from the first to the newest one, ascending; the newest one is always there.
  std::vector<ShownStep> steps() const { return steps_.all(); }
  // The same of the held-out passes.
  std::vector<ShownValidation> validations() const { return validations_.all(); }
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
  Thinned<ShownStep> steps_{kMostSteps};  // by step, so that the curve has equal distances
  Thinned<ShownValidation> validations_{kMostValidations};  // in the order in which they come
  std::optional<ShownStep> newest_;
  int64_t serial_ = 0, changes_ = 0, faults_ = 0, validated_ = 0;
  double seconds_ = 0;
};

}  // namespace tenuto::page
