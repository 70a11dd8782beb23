#include "page/history.h"

namespace tenuto::page {

void History::add_event(const std::string& kind, int64_t epoch, int64_t step,
                        const std::string& reason) {
  if (kind == "fault" || kind == "death") ++faults_;
  events_.push_back({++serial_, kind, epoch, step, reason});
  if (events_.size() > kMostEvents) events_.pop_front();
}

void History::add_step(const ShownStep& step) {
  newest_ = step;
  seconds_ += step.seconds;
  if (step.step % stride_ != 0) return;
  steps_.push_back(step);
  while (steps_.size() >= kMostSteps) {
    stride_ *= 2;
    std::erase_if(steps_, [this](const ShownStep& of) { return of.step % stride_ != 0; });
  }
}

std::vector<ShownStep> History::steps() const {
  std::vector<ShownStep> all = steps_;
  if (newest_ && (all.empty() || all.back().step != newest_->step)) all.push_back(*newest_);
  return all;
}

}  // namespace tenuto::page
