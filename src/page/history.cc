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
  steps_.add(step.step, step);
}

void History::add_validation(const ShownValidation& validation) {
  validations_.add(validated_++, validation);
}

}  // namespace tenuto::page
