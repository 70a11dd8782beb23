#include "worker/part_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "worker/pace.h"
#include "worker/worker_parts.h"

namespace tenuto {
namespace {

using servers::Payload;

std::vector<float> joined(const std::vector<Payload>& parameters) {
  std::vector<float> all;
  for (const Payload& one : parameters) {
    const size_t before = all.size();
    all.resize(before + one->size() / sizeof(float));
    std::memcpy(all.data() + before, one->data(), (all.size() - before) * sizeof(float));
  }
  return all;
}

// The sum, cut as the parameters are.
std::vector<Payload> cut_like(const std::vector<Payload>& parameters, std::span<const float> sum) {
  std::vector<Payload> gradients;
  for (const Payload& one : parameters) {
    const size_t count = std::min(one->size() / sizeof(float), sum.size());
    const auto bytes = std::as_bytes(sum.first(count));
    gradients.push_back(std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()));
    sum = sum.subspan(count);
  }
  return gradients;
}

// A keeper has one range, and does not know whether the gradient of the others is finite: it cannot
// leave out the update, as a synchronous step does. A gradient that is not finite counts as zero,
// and so does a change of local steps that overflows. `what`: which of both it is.
void clear_unless_finite(std::vector<float>& sum, const char* what) {
  const bool is_finite =
      std::all_of(sum.begin(), sum.end(), [](float one) { return std::isfinite(one); });
  if (is_finite) return;
  std::fill(sum.begin(), sum.end(), 0.0F);
  say(cat(what, " is not finite, and counts as zero: see the losses in metrics.jsonl"));
}

}  // namespace

BackgroundTrainer::BackgroundTrainer(BackgroundTrainerSettings settings)
    : settings_(std::move(settings)) {
  CHECK(settings_.compute && settings_.wake_compute && settings_.wake_host && settings_.fail,
        "a trainer needs all its functions");
  CHECK(!settings_.validate || settings_.last_validation, "validations are at certain steps");
  CHECK(settings_.iteration > Mass{}, "an iteration with micro-batches");
  if (settings_.look) watch_.emplace(settings_.look);
  thread_ = std::thread([this] { serve(); });
}

BackgroundTrainer::~BackgroundTrainer() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    is_ending_ = true;
    stop_task();
  }
  settings_.wake_compute();
  changed_.notify_all();
  thread_.join();
}

// The result of the newest work is not wanted any more.
void BackgroundTrainer::stop_task() {
  if (task_ != nullptr) task_->stop = true;
  task_.reset();
  computed_.reset();
}

Status BackgroundTrainer::begin(const servers::Work& work,
                                const std::vector<servers::Payload>& parameters, Duration) {
  if (work.local_steps > 1 && settings_.local_steps == nullptr) {
    return invalid(cat("work ", work.serial, " has ", work.local_steps,
                       " local steps, and this trainer takes none: expected one"));
  }
  auto task = std::make_shared<Task>();
  task->work = work;
  task->parameters = parameters;
  {
    const std::lock_guard lock(mutex_);
    stop_task();
    task_ = std::move(task);
    is_begun_ = false;
  }
  settings_.wake_compute();
  changed_.notify_all();
  return ok();
}

std::optional<servers::ComputedIteration> BackgroundTrainer::advance(Duration) {
  Error why;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) return take_computed();
    why = std::move(*failure_);
    failure_.reset();
  }
  settings_.fail(why);
  return {};
}

std::optional<servers::ComputedIteration> BackgroundTrainer::take_computed() {
  if (!computed_) return {};
  servers::ComputedIteration made = std::move(*computed_);
  computed_.reset();
  return made;
}

// The thread. After a failure it ends, because the device may not be usable any more.
void BackgroundTrainer::serve() {
  while (const std::shared_ptr<Task> task = next_task()) {
    const Duration paused = pause(*task);
    const bool goes_on = validate(*task) && put_down(task, compute(*task, paused));
    settings_.wake_host();
    if (!goes_on) return;
  }
}

void BackgroundTrainer::limit_cores(double cores) {
  {
    const std::lock_guard lock(mutex_);
    cores_ = cores;
  }
  changed_.notify_all();
}

// Waits until this process has used no more than it may since the pause before. A task that is
// stopped, and a limit that changes, end the pause. Returns how long it was.
Duration BackgroundTrainer::pause(const Task& task) {
  const Duration begun = settings_.clock->now();
  const Duration cpu = settings_.processor_time() - used_;
  {
    std::unique_lock lock(mutex_);
    const double cores = cores_;
    const Duration wanted = pause_for(cpu, begun - used_since_, cores);
    if (wanted <= Duration{}) {
      used_ += cpu;
      used_since_ = begun;
      return {};
    }
    changed_.wait_for(lock, wanted, [&] { return is_closed_ || task.stop || cores_ != cores; });
  }
  used_ = settings_.processor_time();
  used_since_ = settings_.clock->now();
  return used_since_ - begun;
}

// Waits for a work that the thread has not had; null = there will be none.
std::shared_ptr<BackgroundTrainer::Task> BackgroundTrainer::next_task() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_closed_ || (task_ != nullptr && !is_begun_); });
  if (is_closed_) return nullptr;
  is_begun_ = true;
  return task_;
}

// What came of the task. False = a failure of its own: not the end of a task that was stopped. One
// that reaches further has left the device in use.
bool BackgroundTrainer::put_down(const std::shared_ptr<Task>& task,
                                 Result<servers::ComputedIteration> computed) {
  const std::lock_guard lock(mutex_);
  if (computed.ok()) {
    if (task_ == task) computed_ = std::move(computed).value();
    return true;
  }
  const Error& error = computed.error();
  const bool was_stopped = task->stop && error.code == Code::Cancelled;
  if (was_stopped && error.reach == Reach::Call) return true;
  failure_ = error;
  return false;
}

// Makes the validation that the parameters of the task are due for, if there is one. False = it has
// failed, or was stopped at the end.
bool BackgroundTrainer::validate(const Task& task) {
  if (!settings_.validate) return true;
  const int64_t step = settings_.last_validation(task.work.applied);
  if (step <= validated_step_) return true;
  validated_step_ = step;
  const Result<HeldOutLoss> loss = settings_.validate(joined(task.parameters), is_ending_);
  {
    const std::lock_guard lock(mutex_);
    if (!loss.ok()) {
      failure_ = loss.error();
      return false;
    }
    servers::ValidatedReport report;
    report.step = step;
    report.loss_sum = loss.value().sum;
    report.micros = loss.value().micros;
    report.accuracy_sum = loss.value().accuracy_sum;
    validated_.push_back(report);
  }
  settings_.wake_host();
  return true;
}

std::optional<servers::ValidatedReport> BackgroundTrainer::take_validated() {
  const std::lock_guard lock(mutex_);
  if (validated_.empty()) return {};
  const servers::ValidatedReport first = validated_.front();
  validated_.pop_front();
  return first;
}

// What the part offers: the sum of the gradients, or the change of several local steps.
Result<PartGradient> BackgroundTrainer::gradient_of(const Task& task) const {
  const auto finite_gradient = [&](std::span<const servers::MicroRange> micros,
                                   std::span<const float> parameters) {
    auto gradient = settings_.compute(micros, parameters, task.stop);
    if (gradient.ok()) clear_unless_finite(gradient.value().sum, "a gradient");
    return gradient;
  };
  const std::vector<float> parameters = joined(task.parameters);
  if (task.work.local_steps <= 1) return finite_gradient(task.work.micros, parameters);
  auto change = settings_.local_steps->run(task.work, parameters, finite_gradient);
  if (change.ok()) clear_unless_finite(change.value().sum, "a change of local steps");
  return change;
}

Result<servers::ComputedIteration> BackgroundTrainer::compute(const Task& task, Duration paused) {
  const Duration begun = settings_.clock->now();
  if (watch_) watch_->begin(begun);
  const auto gradient = gradient_of(task);
  if (!gradient.ok()) return gradient.error();
  servers::ComputedIteration made;
  made.gradients = cut_like(task.parameters, gradient.value().sum);
  const Duration ended = settings_.clock->now();
  made.time.compute = paused + ended - begun;
  if (watch_) {
    const std::optional<ProcessorSample> sample = watch_->end(ended);
    if (sample) processor_ = {sample->run_delay, sample->cpu, sample->pressure};
  }
  made.processor = processor_;
  made.share = share_of(task.work.offer.mass, settings_.iteration);
  made.loss = gradient.value().loss;
  made.transfer_is_given = false;
  return made;
}

}  // namespace tenuto
