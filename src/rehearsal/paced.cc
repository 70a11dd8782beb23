#include "rehearsal/paced.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "ir/text.h"
#include "ir/version.h"
#include "rehearsal/paced_file.h"
#include "rehearsal/paced_stage.h"
#include "runtime/stages.h"
#include "world/cluster.h"
#include "world/fit.h"
#include "world/job_model.h"

namespace tenuto {

PacedStage::PacedStage(const Job& job, const Plan& plan, StageId stage,
                       std::shared_ptr<PacedCommon> common)
    : StageDevice(plan, stage, common->options.clip),
      common_(std::move(common)),
      cost_(stage_cost(job_model(job, plan), plan.stages[static_cast<size_t>(stage.value)])) {
  CHECK(stage.value >= 0 && stage.value < stage_count_, "a paced device holds a stage of its plan");
  const auto count =
      std::max<size_t>(1, static_cast<size_t>(job.device.parameter_bytes) / sizeof(float));
  buckets_ = buckets_of(plan, stage, count);
  for (const Bucket& each : buckets_) {
    const Floats first =
        paced_weights(job.seed, each.owner, static_cast<int64_t>(each.end - each.first));
    weights_.insert(weights_.end(), first.begin(), first.end());
  }
  sums_.resize(count);
}

Lag PacedStage::lag() const { return common_->lags.summary(); }

void PacedStage::count_lag(bool counts) { common_->counts_lag = counts; }

Result<Duration> PacedStage::begin(int64_t step) {
  if (Iteration{step} != iteration_on(Version{version()})) {
    return invalid(cat("step ", step, " begins on version ", version(), " of the parameters"));
  }
  begin_step(step);
  common_->begin(step);
  std::fill(sums_.begin(), sums_.end(), 0.0F);
  // After a pause only the first stage's clock is set to the host's. The clocks of later stages
  // follow the virtual arrivals of its messages, so the moment at which the host begins their step
  // does not count.
  return set_clock_on(first_stage());
}

// After a pause sets the virtual clock of a device that `leads` to the present moment. Returns what
// the virtual clock shows then; zero without one.
Duration PacedStage::set_clock_on(bool leads) {
  const Duration now = common_->clock.now();
  const Duration pause = length_of(OpKind::Forward);
  if (common_->now.count() < 0 || (leads && now - common_->now > pause)) {
    common_->now = now;
  }
  return common_->virtual_clock ? std::max(common_->now, Duration(0)) : Duration(0);
}

void PacedStage::drop(const Value& value) {
  if (auto held = common_->kept.drop(value)) common_->recycle(*held);
}

bool PacedStage::is_here(const Value& value) const {
  return common_->store.contains(value) || value.kind == ValueKind::Partial ||
         value.kind == ValueKind::Stash || value.kind == ValueKind::WeightWork;
}

Duration PacedStage::begin_rest() {
  if (!account_.has_sum()) std::fill(sums_.begin(), sums_.end(), 0.0F);
  return set_clock_on(true);
}

Duration PacedStage::length_of(OpKind kind) const { return paced_length(cost_, split_, kind); }

size_t PacedStage::size_of(const Value& value) const {
  switch (value.kind) {
    case ValueKind::Activation:
    case ValueKind::Gradient:
      return common_->elements;
    case ValueKind::Norm:
      return sizeof(RunningNorm) / sizeof(float);
    case ValueKind::ClipDecision:
      return sizeof(WholeNorm) / sizeof(float);
    case ValueKind::Total:
      if (const Bucket* found = bucket(value.part); found != nullptr) {
        return found->end - found->first;
      }
      return 0;
    default:
      return 0;
  }
}

const Bucket* PacedStage::bucket(int16_t part) const {
  for (const Bucket& each : buckets_) {
    if (each.part == part) return &each;
  }
  return nullptr;
}

Result<const Floats*> PacedStage::find(const Value& value) const {
  const auto found = common_->store.find(value);
  if (found != common_->store.end()) return &found->second;
  return invalid(cat(to_text(value), " is not in the store of stage ", stage_));
}

Result<std::span<const std::byte>> PacedStage::bytes(const Value& value) {
  if (value.kind == ValueKind::Partial) {
    const Bucket* found = bucket(value.part);
    if (found == nullptr) return invalid(cat("stage ", stage_, " has no bucket ", value.part));
    const std::span<const float> all(sums_);
    return std::as_bytes(all.subspan(found->first, found->end - found->first));
  }
  const Result<const Floats*> found = find(value);
  if (!found.ok()) return found.error();
  return std::as_bytes(std::span<const float>(*found.value()));
}

Result<std::span<std::byte>> PacedStage::allocate(const Value& value) {
  if (size_of(value) == 0 && (value.kind != ValueKind::Total || bucket(value.part) == nullptr)) {
    return invalid(cat(to_text(value), " has no size at stage ", stage_));
  }
  return std::as_writable_bytes(std::span(*make(value)));
}

Status PacedStage::reduced(const Value& total) {
  const auto found = common_->store.find(total);
  if (found == common_->store.end()) return invalid(cat(to_text(total), " was never allocated"));
  for (float& element : found->second) element /= static_cast<float>(micro_count_);
  return ok();
}

void PacedStage::discard(const Value& value) {
  if (value.kind != ValueKind::WeightWork) return common_->discard(value);
  const auto found = late_.find(value.micro);
  if (found == late_.end()) return;
  spare_stashes_.push_back(std::move(found->second));
  late_.erase(found);
}

Status PacedStage::take_back() {
  if (!before_) return invalid(cat("stage ", stage_, " has no update to undo"));
  weights_ = std::move(*before_);
  before_.reset();
  return ok();
}

Status PacedStage::save(StageId stage, const std::string& path) {
  CHECK(stage == stage_, "a shard of the stage that is held");
  return write_state_file(path, paced_tensors(stage_, stage_count_, version_, weights_));
}

Result<StateCopy> PacedStage::copy_state(StageId stage) {
  CHECK(stage == stage_, "a copy of the stage that is held");
  return StateCopy(paced_tensors(stage_, stage_count_, version_, weights_));
}

Status PacedStage::load(const std::vector<std::string>& paths, int64_t version) {
  Result<Floats> loaded = load_paced(paths, stage_, stage_count_, version, weights_.size());
  if (!loaded.ok()) return loaded.error();
  weights_ = std::move(loaded).value();
  return adopt(version);
}

Status PacedStage::start(const Op& op, Duration inputs_at, Ticket ticket) {
  if (op.stage != stage_) {
    return invalid(cat(to_text(op), " is not an op of stage ", stage_));
  }
  PacedWork work;
  work.op = op;
  work.ticket = ticket;
  if (ahead_.counts(op.kind)) {
    if (Status status = prepare(work); !status.ok()) return status;
    work.length = at_speed(length_of(op.kind), common_->speed);
  } else {
    prepare_void(work);
  }
  work.start = common_->clock.now();
  if (common_->virtual_clock) {
    work.start = std::max(common_->now, inputs_at);
    // The loop may start a Validate long before the virtual arrival of its clip decision: it must
    // not delay other ops.
    if (op.kind != OpKind::Validate) common_->now = work.start + work.length;
  }
  report(work, compute(work));
  return ok();
}

namespace {

// For how long before its end an op of this length keeps its core on the real clock: at most as
// long as waking up takes, and at most a hundredth of the op, so that many devices fit on a core.
Duration awake_part(Duration length) {
  return std::min<Duration>(length / 100, std::chrono::microseconds(100));
}

}  // namespace

// Reports the op, whose mathematics is done, at the moment when the op ends.
void PacedStage::report(const PacedWork& work, Status status) {
  Done done;
  done.ticket = work.ticket;
  done.status = std::move(status);
  done.start = work.start;
  const Duration end = work.start + work.length;
  auto finished = [common = common_, done, end, length = work.length](Duration now) {
    Done report = done;
    report.finish = common->virtual_clock ? end : now;
    if (length.count() > 0 && common->counts_lag) common->lags.note(now - end, length);
    return report;
  };
  if (work.length.count() == 0 || !common_->sleeps) {
    common_->mailbox.post(finished(common_->clock.now()));
  } else {
    const Duration awake = common_->virtual_clock ? Duration{} : awake_part(work.length);
    common_->mailbox.post_at(end, awake, std::move(finished));
  }
}

namespace {

// Several stages on one paced device.
class PacedStages : public Stages<PacedDevice> {
 public:
  using Stages::Stages;
  Lag lag() const override { return first().lag(); }
  void count_lag(bool counts) override { first().count_lag(counts); }
  void set_clock(Duration moment) override { first().set_clock(moment); }
  std::vector<float> weights() const override {
    std::vector<float> all;
    for (const auto& part : parts()) {
      const std::vector<float> own = part.device->weights();
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
};

}  // namespace

std::unique_ptr<PacedDevice> make_paced(const Job& job, const Plan& plan,
                                        const std::vector<StageId>& stages, const Clock& clock,
                                        Mailbox& mailbox, const PacedOptions& options) {
  CHECK(!stages.empty(), "a paced device holds a stage");
  const auto common = std::make_shared<PacedCommon>(job, clock, mailbox, options);
  std::vector<StagePart<PacedDevice>> parts;
  for (const StageId stage : stages) {
    parts.push_back({stage, std::make_unique<PacedStage>(job, plan, stage, common)});
  }
  if (parts.size() == 1 && !has_fine_stages(job)) return std::move(parts.front().device);
  const auto make = [job, common](const Plan& of, StageId stage) {
    return Result<std::unique_ptr<PacedDevice>>(
        std::make_unique<PacedStage>(job, of, stage, common));
  };
  return std::make_unique<PacedStages>(std::move(parts), make);
}

}  // namespace tenuto
