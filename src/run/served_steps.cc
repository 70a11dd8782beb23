#include "run/served_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tenuto {

ServedSteps::ServedSteps(const Job& job, Mass first_mass)
    : job_(job), mode_(job.sync.mode), applied_(first_mass), measured_(first_mass) {
  taken_ = done();
}

int64_t ServedSteps::done() const {
  return std::min(job_.steps, applied_.micros / job_.full_mass());
}

void ServedSteps::add(const servers::MeasuredIteration& iteration) {
  const double mass = iteration.share * job_.parallel.micros;
  measured_ += Mass{std::llround(mass)};
  if (!iteration.loss) return;
  losses_ += *iteration.loss * mass;
  loss_mass_ += mass;
}

void ServedSteps::add(const servers::CommittedReport& report, Duration now) {
  applied_ = report.applied;
  dropped_ = report.dropped;
  committed_at_ = now;
  ages_ += report.age * static_cast<double>(report.works);
  works_ += report.works;
  if (report.works > 0) age_ = report.age;
  if (done() > taken_ && !complete_) complete_ = now;
}

std::vector<ServedStep> ServedSteps::take(Duration now) {
  std::vector<ServedStep> steps;
  if (!complete_) return steps;
  if (measured_ < applied_) {
    if (now - *complete_ < kWait) return steps;
    // Whoever measured them is lost. No later step waits for them again.
    measured_ = applied_;
  }
  const int64_t count = done() - taken_;
  const Duration each = (committed_at_ - taken_at_) / count;
  for (int64_t i = 0; i < count; ++i) {
    ServedStep step{.step = taken_ + i, .epoch = epoch_, .duration = each, .mode = mode_};
    step.age = works_ > 0 ? ages_ / static_cast<double>(works_) : age_;
    step.applied = applied_;
    step.dropped = dropped_;
    steps.push_back(std::move(step));
  }
  if (loss_mass_ > 0) steps.front().loss = losses_ / loss_mass_;
  losses_ = loss_mass_ = ages_ = 0;
  works_ = 0;
  taken_ += count;
  taken_at_ = committed_at_;
  complete_.reset();
  return steps;
}

}  // namespace tenuto
