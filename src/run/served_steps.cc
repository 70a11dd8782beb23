#include "run/served_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sync/kappa_estimate.h"
#include "world/parameters.h"

namespace tenuto {

ServedSteps::ServedSteps(const Job& job, Mass first_mass)
    : job_(job),
      mode_(job.sync.mode),
      applied_(first_mass),
      measured_(first_mass.micros),
      used_(first_mass.micros),
      watch_(job.parallel.pipelines),
      kappa_(job.sync.kappa) {}

Duration ServedSteps::validation_limit(const Job& job) {
  return std::max<Duration>(kWait, from_milliseconds(job.network.silence_seconds * 1000));
}

void ServedSteps::add(const servers::ValidatedReport& report) {
  int64_t& newest = validated_[report.replica];
  if (report.step <= newest) return;
  newest = report.step;
  const int64_t first = waiting_.empty() ? committed() : waiting_.front().step.step;
  if (report.step <= first) return;
  Validation& validation = validations_[report.step];
  validation.loss_sum += report.loss_sum;
  validation.micros += report.micros;
  validation.accuracy_sum += report.accuracy_sum.value_or(0);
  validation.has_accuracy &= report.accuracy_sum || report.micros == 0;
}

void ServedSteps::add(const servers::MeasuredIteration& iteration) {
  const int64_t mass = std::llround(iteration.share * job_.parallel.micros);
  measured_ += mass;
  replicas_[iteration.replica].iterations.push_back({mass, iteration.loss});
  if (!iteration.loss) return;
  const auto rise = watch_.add(iteration.share, *iteration.loss);
  if (!rise) return;
  const double rate =
      learning_rate(job_.optimizer, share_of(applied_, {job_.full_mass()}), job_.steps);
  rises_.push_back(to_text(*rise, {age_, rate, mode_, job_.sync.mode == "auto"}));
}

void ServedSteps::add(const servers::CommittedReport& report, Duration now) {
  const int64_t before = committed();
  applied_ = report.applied;
  dropped_ = report.dropped;
  if (!first_dropped_) first_dropped_ = dropped_;
  ages_ += report.age * static_cast<double>(report.works);
  works_ += report.works;
  if (report.works > 0) age_ = report.age;
  if (report.kappa && has_kappa_changed(kappa_, *report.kappa)) {
    kappas_.push_back(kappa_sentence(kappa_, *report.kappa));
    kappa_ = *report.kappa;
  }
  const int64_t count = committed() - before;
  if (count <= 0) return;
  for (int64_t i = 0; i < count; ++i) {
    Waiting waiting;
    waiting.step.step = before + i;
    waiting.step.epoch = epoch_;
    waiting.step.duration = (now - committed_at_) / count;
    waiting.step.mode = mode_;
    waiting.step.age = works_ > 0 ? ages_ / static_cast<double>(works_) : age_;
    waiting.step.applied = applied_;
    waiting.step.dropped = dropped_;
    waiting.since = now;
    // Iterations whose offers were dropped were measured as well.
    waiting.mass = (before + i + 1) * job_.full_mass() + (dropped_ - *first_dropped_).micros;
    waiting_.push_back(std::move(waiting));
  }
  committed_at_ = now;
  ages_ = 0;
  works_ = 0;
}

// The replica whose iteration ended next, as far as is known: the one with the least mass in the
// steps so far. Null: no iteration is left.
ServedSteps::Replica* ServedSteps::next_replica() {
  Replica* next = nullptr;
  for (auto& entry : replicas_) {
    Replica& one = entry.second;
    if (!one.iterations.empty() && (next == nullptr || one.used < next->used)) next = &one;
  }
  return next;
}

void ServedSteps::use_iterations(Waiting& waiting) {
  double losses = 0, mass = 0;
  while (used_ < waiting.mass) {
    Replica* replica = next_replica();
    if (replica == nullptr) break;
    const Measured one = replica->iterations.front();
    replica->iterations.pop_front();
    replica->used += one.mass;
    used_ += one.mass;
    if (!one.loss) continue;
    losses += *one.loss * static_cast<double>(one.mass);
    mass += static_cast<double>(one.mass);
  }
  if (mass > 0) waiting.step.loss = losses / mass;
  // Whoever measured what is missing is lost. No later step waits for it.
  const int64_t missing = std::max<int64_t>(waiting.mass - used_, 0);
  used_ += missing;
  measured_ += missing;
}

// A replica with none of the micro-batches says so too.
bool ServedSteps::waits_for_validation(const Waiting& waiting, Duration now) const {
  const int64_t steps_done = waiting.step.step + 1;
  if (!job_.validates_after(steps_done) || now - waiting.since >= validation_limit(job_)) {
    return false;
  }
  return std::any_of(present_.begin(), present_.end(), [&](ReplicaId replica) {
    const auto found = validated_.find(replica);
    return found == validated_.end() || found->second < steps_done;
  });
}

bool ServedSteps::waits_for_validation(Duration now) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& waiting) { return waits_for_validation(waiting, now); });
}

// Micro-batches of replicas that are lost are not in the mean.
void ServedSteps::use_validations(Waiting& waiting) {
  const int64_t steps_done = waiting.step.step + 1;
  const auto found = validations_.find(steps_done);
  if (found != validations_.end() && found->second.micros > 0) {
    const Validation& validation = found->second;
    const auto micros = static_cast<double>(validation.micros);
    waiting.step.validation_loss = validation.loss_sum / micros;
    if (validation.has_accuracy) {
      waiting.step.validation_accuracy = validation.accuracy_sum / micros;
    }
  }
  validations_.erase(validations_.begin(), validations_.upper_bound(steps_done));
}

std::vector<ServedStep> ServedSteps::take(Duration now, int64_t limit) {
  std::vector<ServedStep> steps;
  while (!waiting_.empty() && waiting_.front().step.step < limit) {
    Waiting& first = waiting_.front();
    const Duration waited = now - first.since;
    if (waited < (measured_ < first.mass ? kWait : kPause)) break;
    if (waits_for_validation(first, now)) break;
    use_iterations(first);
    use_validations(first);
    steps.push_back(std::move(first.step));
    waiting_.pop_front();
  }
  return steps;
}

}  // namespace tenuto
