#include "rehearsal/paced.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "ir/effect.h"
#include "ir/text.h"
#include "rehearsal/paced_file.h"
#include "rehearsal/paced_math.h"
#include "rehearsal/paced_parts.h"
#include "runtime/ahead.h"
#include "runtime/stages.h"
#include "runtime/step_account.h"
#include "world/cluster.h"

namespace tenuto {

namespace {

constexpr size_t kLeastElements = 16;

// What Forward leaves for the backward of one micro-batch.
struct Kept {
  Floats x, y, dy;
};

// One op with all that its thread touches; the store itself belongs to the worker's thread.
struct Work {
  Op op;
  Ticket ticket{};
  Duration start{}, length{};
  const Floats* input = nullptr;     // activation before
  const Floats* gradient = nullptr;  // gradient after
  Floats* output = nullptr;          // activation or gradient of this stage
  Kept* kept = nullptr;
  const Floats* norm =
      nullptr;  // measures: so far; StepAhead: up to here; Step, Validate: clip decision
  Floats* measured = nullptr;                    // what a measure or a Validate makes
  std::vector<const Floats*> totals;             // measures and steps: one per bucket
  std::vector<std::pair<MicroId, double>> loss;  // made by the op
};

class Paced : public PacedDevice {
 public:
  Paced(const Job& job, const Plan& plan, StageId stage, const Clock& clock, Mailbox& mailbox,
        const PacedOptions& options, std::shared_ptr<PacedCommon> common);
  ~Paced() override;
  Paced(const Paced&) = delete;
  Paced& operator=(const Paced&) = delete;

  Result<Duration> begin(int64_t step) override;
  bool resumes() const override { return true; }
  void keep(const Value& value) override;
  void drop(const Value& value) override;
  Result<Duration> resume(int64_t step, const RestPart& rest) override;
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override;
  Result<std::span<const std::byte>> bytes(const Value& value) override;
  Result<std::span<std::byte>> allocate(const Value& value) override;
  Status reduced(const Value& total) override;
  void discard(const Value& value) override;
  StepOutcome outcome() override { return account_.sorted_outcome(); }
  int64_t version() const override { return version_; }
  Finality finality() override { return ahead_.finality(); }
  void start_over() override { ahead_.start_over(); }
  Status undo() override;
  Status save(StageId stage, const std::string& path) override;
  Status load(const std::vector<std::string>& paths, int64_t version) override;
  int64_t state_bytes(StageId) const override {
    return static_cast<int64_t>(std::as_bytes(std::span(weights_)).size());
  }
  int64_t state_unit(StageId) const override { return sizeof(float); }
  Status read_state(StageId, int64_t first, std::span<std::byte> to) override {
    std::memcpy(to.data(), std::as_bytes(std::span(weights_)).data() + first, to.size());
    return ok();
  }
  Status write_state(StageId, int64_t first, std::span<const std::byte> from) override {
    std::memcpy(std::as_writable_bytes(std::span(weights_)).data() + first, from.data(),
                from.size());
    before_.reset();
    return ok();
  }
  Status adopt(int64_t version) override;
  Lag lag() const override;
  void count_lag(bool counts) override;
  void set_clock(Duration moment) override { common_->now = moment; }
  void set_speed(double speed) override { common_->speed = speed; }
  std::vector<float> weights() const override { return weights_; }

 private:
  Duration set_clock_on(bool leads);
  Status prepare(Work& work);
  Status prepare_backward(Work& work);
  Status prepare_update(Work& work);
  Status read(const Value& value, const Floats*& place) const;
  bool is_last() const { return stage_.value == stage_count_ - 1; }
  void prepare_void(Work& work);
  Result<const Floats*> find(const Value& value) const;
  Floats* make(const Value& value);
  size_t size_of(const Value& value) const;
  const Bucket* bucket(int16_t part) const;
  std::span<float> live(Floats& message) const;
  std::span<const float> live(const Floats& message) const;

  void serve();
  Status compute(Work& work);
  Status compute_forward(Work& work);
  Status compute_backward(Work& work);
  void sum_up(const Work& work);
  void compute_measure(Work& work);
  void compute_step(Work& work);
  void compute_step_ahead(Work& work);
  void compute_validate(Work& work);
  void compute_void(Work& work);
  void note(const WholeNorm& norm);
  void update(const std::vector<const Floats*>& totals, double factor);

  const DeviceSettings device_;
  const PacedOptions options_;
  const bool split_, virtual_clock_;
  const bool sleeps_;  // no clock but the monotonic one can be slept by
  const StageId stage_;
  const TimeShare share_;
  const int32_t stage_count_, micro_count_;
  const Clock& clock_;
  Mailbox& mailbox_;
  const std::shared_ptr<PacedCommon> common_;
  const size_t elements_, live_;

  Floats weights_, sums_;
  StepAccount account_;           // of what is in sums_
  std::optional<Floats> before_;  // the weights before the last update
  AheadUpdate ahead_;
  std::vector<Floats> kept_totals_;  // of the update ahead, one per bucket
  std::vector<Bucket> buckets_;
  int64_t version_ = 0;
  std::map<MicroId, Kept> kept_, late_;  // stashes; weight work
  std::vector<Kept> spare_kept_;

  std::mutex mutex_;  // guards the fields below; nothing else is locked while it is held
  std::condition_variable changed_;
  std::optional<Work> work_;
  bool closing_ = false;
  std::thread thread_;
};

Paced::Paced(const Job& job, const Plan& plan, StageId stage, const Clock& clock, Mailbox& mailbox,
             const PacedOptions& options, std::shared_ptr<PacedCommon> common)
    : device_(job.device),
      options_(options),
      split_(plan.split_backward),
      virtual_clock_(job.device.clock == "virtual"),
      sleeps_(dynamic_cast<const MonotonicClock*>(&clock) != nullptr),
      stage_(stage),
      share_(time_share_of(plan.stages, job.parallel.stages, stage)),
      stage_count_(static_cast<int32_t>(plan.stages.size())),
      micro_count_(plan.schedule.micro_count),
      clock_(clock),
      mailbox_(mailbox),
      common_(std::move(common)),
      elements_(
          std::max(kLeastElements, static_cast<size_t>(job.device.message_bytes) / sizeof(float))),
      live_(std::min(elements_ - kLabel, static_cast<size_t>(kPacedLive))),
      account_(stage),
      ahead_(options.clip) {
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
  thread_ = std::thread([this] { serve(); });
}

Paced::~Paced() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Lag Paced::lag() const {
  const std::lock_guard lock(common_->mutex);
  return common_->lags.summary();
}

void Paced::count_lag(bool counts) {
  const std::lock_guard lock(common_->mutex);
  common_->counts_lag = counts;
}

Result<Duration> Paced::begin(int64_t step) {
  if (step != version_) {
    return invalid(cat("step ", step, " begins on version ", version_, " of the parameters"));
  }
  account_.begin(step);
  ahead_.begin();
  common_->begin(step);
  kept_.clear();
  late_.clear();
  std::fill(sums_.begin(), sums_.end(), 0.0F);
  // The stages after the first have nothing to do before its messages come; the virtual arrival of
  // these moves their clocks on. The moment at which the host lets them begin must not count.
  return set_clock_on(stage_.value == 0);
}

// After a pause sets the virtual clock of a device that `leads` to the present moment. Returns what
// the virtual clock shows then; zero without one.
Duration Paced::set_clock_on(bool leads) {
  const Duration now = clock_.now();
  const Duration pause =
      paced_length(device_, split_, OpKind::Forward, share_.place, share_.chunks);
  if (common_->now.count() < 0 || (leads && now - common_->now > pause)) {
    common_->now = now;
  }
  return virtual_clock_ ? std::max(common_->now, Duration(0)) : Duration(0);
}

void Paced::keep(const Value& value) {
  const auto found = common_->store.find(value);
  if (found == common_->store.end()) return;
  common_->kept.keep(value, std::move(found->second));
  common_->store.erase(found);
}

void Paced::drop(const Value& value) {
  auto held = common_->kept.drop(value);
  if (held && held->size() == elements_) common_->spare.push_back(std::move(*held));
}

Result<Duration> Paced::resume(int64_t step, const RestPart& rest) {
  if (Status level = take_back_for(*this, stage_, step, rest); !level.ok()) return level.error();
  if (account_.step() != step) {
    kept_.clear();
    late_.clear();
  }
  ahead_.begin();
  common_->kept.resume(step, rest.stored, common_->store);
  if (Status summed = account_.resume(step, rest); !summed.ok()) return summed.error();
  if (!account_.has_sum()) std::fill(sums_.begin(), sums_.end(), 0.0F);
  for (const auto& [kind, held] :
       {std::pair(ValueKind::Stash, &kept_), std::pair(ValueKind::WeightWork, &late_)}) {
    const Status there = keep_wanted(kind, stage_, rest.stored, *held);
    if (!there.ok()) return there.error();
  }
  for (const Value& value : rest.stored) {
    const bool here = common_->store.contains(value) || value.kind == ValueKind::Partial ||
                      value.kind == ValueKind::Stash || value.kind == ValueKind::WeightWork;
    if (!here)
      return invalid(
          cat(to_text(value), " is not at this worker, and the rest of the step needs it"));
  }
  return set_clock_on(true);
}

size_t Paced::size_of(const Value& value) const {
  switch (value.kind) {
    case ValueKind::Activation:
    case ValueKind::Gradient:
      return elements_;
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

const Bucket* Paced::bucket(int16_t part) const {
  for (const Bucket& each : buckets_) {
    if (each.part == part) return &each;
  }
  return nullptr;
}

std::span<float> Paced::live(Floats& message) const {
  return std::span(message).subspan(kLabel, live_);
}

std::span<const float> Paced::live(const Floats& message) const {
  return std::span(message).subspan(kLabel, live_);
}

Result<const Floats*> Paced::find(const Value& value) const {
  const auto found = common_->store.find(value);
  if (found != common_->store.end()) return &found->second;
  return invalid(cat(to_text(value), " is not in the store of stage ", stage_));
}

Floats* Paced::make(const Value& value) {
  Floats& buffer = common_->store[value];
  const size_t size = size_of(value);
  if (size == elements_ && !common_->spare.empty()) {
    buffer = std::move(common_->spare.back());
    common_->spare.pop_back();
  }
  buffer.resize(size);
  return &buffer;
}

Result<std::span<const std::byte>> Paced::bytes(const Value& value) {
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

Result<std::span<std::byte>> Paced::allocate(const Value& value) {
  if (size_of(value) == 0 && (value.kind != ValueKind::Total || bucket(value.part) == nullptr)) {
    return invalid(cat(to_text(value), " has no size at stage ", stage_));
  }
  return std::as_writable_bytes(std::span(*make(value)));
}

Status Paced::reduced(const Value& total) {
  const auto found = common_->store.find(total);
  if (found == common_->store.end()) return invalid(cat(to_text(total), " was never allocated"));
  for (float& element : found->second) element /= static_cast<float>(micro_count_);
  return ok();
}

void Paced::discard(const Value& value) {
  if (value.kind == ValueKind::WeightWork) {
    const auto found = late_.find(value.micro);
    if (found == late_.end()) return;
    spare_kept_.push_back(std::move(found->second));
    late_.erase(found);
    return;
  }
  const auto found = common_->store.find(value);
  if (found == common_->store.end()) return;
  if (found->second.size() == elements_) common_->spare.push_back(std::move(found->second));
  common_->store.erase(found);
}

Status Paced::undo() {
  if (!before_) return invalid(cat("stage ", stage_, " has no update to undo"));
  weights_ = std::move(*before_);
  before_.reset();
  --version_;
  ahead_.set_final({.version = version_});
  return ok();
}

Status Paced::save(StageId stage, const std::string& path) {
  CHECK(stage == stage_, "a shard of the stage that is held");
  return save_paced(path, stage_, stage_count_, version_, weights_);
}

Status Paced::load(const std::vector<std::string>& paths, int64_t version) {
  Result<Floats> loaded = load_paced(paths, stage_, stage_count_, version, weights_.size());
  if (!loaded.ok()) return loaded.error();
  weights_ = std::move(loaded).value();
  return adopt(version);
}

Status Paced::adopt(int64_t version) {
  version_ = version;
  before_.reset();
  ahead_.set_final({.version = version_});
  return ok();
}

// Finds what the op reads and allocates what it writes.
Status Paced::prepare(Work& work) {
  const Op& op = work.op;
  switch (op.kind) {
    case OpKind::Forward:
    case OpKind::Evaluate:
      if (stage_.value > 0) {
        const Value before{ValueKind::Activation, -1, {stage_.value - 1}, op.micro};
        if (Status status = read(before, work.input); !status.ok()) return status;
      }
      if (!is_last()) work.output = make({ValueKind::Activation, -1, stage_, op.micro});
      work.kept = &kept_[op.micro];
      if (!spare_kept_.empty()) {
        *work.kept = std::move(spare_kept_.back());
        spare_kept_.pop_back();
      }
      return ok();
    case OpKind::BackwardInput:
    case OpKind::BackwardWeight:
      return prepare_backward(work);
    default:
      return prepare_update(work);
  }
}

Status Paced::read(const Value& value, const Floats*& place) const {
  const Result<const Floats*> found = find(value);
  if (!found.ok()) return found.error();
  place = found.value();
  return ok();
}

Status Paced::prepare_update(Work& work) {
  const OpKind kind = work.op.kind;
  for (const Bucket& each : kind == OpKind::Validate ? std::vector<Bucket>{} : buckets_) {
    work.totals.push_back(nullptr);
    const Value total{ValueKind::Total, each.part, stage_, {}};
    if (Status status = read(total, work.totals.back()); !status.ok()) return status;
  }
  const Effect effect = effect_of(work.op, stage_count_);
  for (const Value& value : effect.read) {
    if (value.kind != ValueKind::Norm && value.kind != ValueKind::ClipDecision) continue;
    if (kind == OpKind::StepAhead && value.kind == ValueKind::ClipDecision)
      continue;  // judged before
    if (Status status = read(value, work.norm); !status.ok()) return status;
  }
  for (const Value& value : effect.write) work.measured = make(value);
  return ok();
}

// Allocates the values of a void op, which only need the right size.
void Paced::prepare_void(Work& work) {
  for (const Value& value : effect_of(work.op, stage_count_).write) {
    const bool travels = value.kind == ValueKind::Activation || value.kind == ValueKind::Gradient;
    if (travels) work.output = make(value);
    if (value.kind == ValueKind::Norm) work.measured = make(value);
  }
}

Status Paced::prepare_backward(Work& work) {
  const Op& op = work.op;
  // A forward may run again while the weight work of its micro-batch is kept: keep both apart.
  if (op.kind == OpKind::BackwardInput) {
    late_.erase(op.micro);
    late_.insert(kept_.extract(op.micro));
  }
  const auto kept = late_.find(op.micro);
  if (kept == late_.end()) {
    return invalid(cat("stage ", stage_, " has no stash of micro-batch ", op.micro));
  }
  work.kept = &kept->second;
  if (op.kind == OpKind::BackwardWeight) return ok();
  if (stage_.value < stage_count_ - 1) {
    const auto found = find({ValueKind::Gradient, -1, {stage_.value + 1}, op.micro});
    if (!found.ok()) return found.error();
    work.gradient = found.value();
  }
  if (stage_.value > 0) work.output = make({ValueKind::Gradient, -1, stage_, op.micro});
  return ok();
}

Status Paced::start(const Op& op, Duration inputs_at, Ticket ticket) {
  if (op.stage != stage_) {
    return invalid(cat(to_text(op), " is not an op of stage ", stage_));
  }
  Work work;
  work.op = op;
  work.ticket = ticket;
  if (ahead_.counts(op.kind)) {
    if (Status status = prepare(work); !status.ok()) return status;
    work.length = at_speed(paced_length(device_, split_, op.kind, share_.place, share_.chunks),
                           common_->speed);
  } else {
    prepare_void(work);
  }
  work.start = clock_.now();
  if (virtual_clock_) {
    work.start = std::max(common_->now, inputs_at);
    // A clip decision that is really here before its virtual arrival must not delay other ops.
    if (op.kind != OpKind::Validate) common_->now = work.start + work.length;
  }
  if (work.length.count() == 0) {  // an instant: not worth two changes of thread
    Done done;
    done.ticket = ticket;
    done.start = work.start;
    done.status = compute(work);
    done.finish = virtual_clock_ ? work.start : clock_.now();
    mailbox_.post(std::move(done));
    return ok();
  }
  {
    const std::lock_guard lock(mutex_);
    CHECK(!work_, "a paced device runs one op at a time");
    work_ = std::move(work);
  }
  changed_.notify_one();
  return ok();
}

// The device's own thread: the mathematics at once, then sleep until the op's end.
void Paced::serve() {
  sharpen_timer();
  while (true) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || work_; });
      if (closing_) return;
      work = std::move(*work_);
    }
    Done done;
    done.ticket = work.ticket;
    done.start = work.start;
    done.status = compute(work);
    const Duration end = work.start + work.length;
    if (sleeps_) sleep_until(end);
    const Duration now = clock_.now();
    done.finish = virtual_clock_ ? end : now;
    {
      const std::lock_guard lock(mutex_);
      work_.reset();
    }
    {
      const std::lock_guard lock(common_->mutex);
      if (common_->counts_lag) common_->lags.note(now - end, work.length);
    }
    mailbox_.post(std::move(done));
  }
}

Status Paced::compute(Work& work) {
  if (!ahead_.counts(work.op.kind)) {
    compute_void(work);
    return ok();
  }
  switch (work.op.kind) {
    case OpKind::Forward:
    case OpKind::Evaluate:
      return compute_forward(work);
    case OpKind::BackwardInput:
      return compute_backward(work);
    case OpKind::BackwardWeight:
      if (split_) sum_up(work);
      return ok();
    case OpKind::Measure:
    case OpKind::MeasureAhead:
      compute_measure(work);
      return ok();
    case OpKind::Step:
      compute_step(work);
      return ok();
    case OpKind::StepAhead:
      compute_step_ahead(work);
      return ok();
    case OpKind::Validate:
      compute_validate(work);
      return ok();
    default:
      return invalid(cat(to_text(work.op), " is not for a device"));
  }
}

Status Paced::compute_forward(Work& work) {
  const MicroId micro = work.op.micro;
  Kept& kept = *work.kept;
  if (work.input == nullptr) {
    kept.x = paced_input(account_.step(), micro, static_cast<int64_t>(live_));
  } else {
    const StageId before{stage_.value - 1};
    const Value whose{ValueKind::Activation, -1, before, micro};
    Status status = check_label(*work.input, live(*work.input), whose);
    if (!status.ok()) return status;
    const std::span<const float> x = live(*work.input);
    kept.x.assign(x.begin(), x.end());
  }
  kept.y.resize(live_);
  paced_forward(weights_, kept.x, kept.y);
  if (work.output == nullptr) {
    account_.note_loss({micro, paced_loss(kept.y)}, work.op.kind == OpKind::Evaluate);
    return ok();
  }
  std::copy(kept.y.begin(), kept.y.end(), live(*work.output).begin());
  write_label(*work.output, live(*work.output), {ValueKind::Activation, -1, stage_, micro});
  return ok();
}

Status Paced::compute_backward(Work& work) {
  const MicroId micro = work.op.micro;
  Kept& kept = *work.kept;
  if (work.gradient == nullptr) {
    kept.dy = kept.y;  // the derivative of y^2 / 2
  } else {
    const StageId after{stage_.value + 1};
    const Value whose{ValueKind::Gradient, -1, after, micro};
    Status status = check_label(*work.gradient, live(*work.gradient), whose);
    if (!status.ok()) return status;
    const std::span<const float> dy = live(*work.gradient);
    kept.dy.assign(dy.begin(), dy.end());
  }
  if (work.output != nullptr) {
    paced_backward_input(kept.dy, live(*work.output));
    write_label(*work.output, live(*work.output), {ValueKind::Gradient, -1, stage_, micro});
  }
  if (!split_ && account_.adds(micro)) sum_up(work);
  return ok();
}

void Paced::sum_up(const Work& work) {
  account_.add(work.op.micro);
  paced_backward_weight(work.kept->x, work.kept->dy, sums_);
}

void Paced::compute_measure(Work& work) {
  RunningNorm running = work.norm == nullptr ? RunningNorm{} : read_form<RunningNorm>(*work.norm);
  for (const Floats* total : work.totals) {
    const double square = paced_square(0, *total);
    if (std::isfinite(square)) {
      running.squares.add(square);
    } else {
      ++running.bad;
    }
  }
  running.bad += options_.bad && options_.bad(account_.step(), stage_) ? 1 : 0;
  if (work.op.kind == OpKind::Measure && stage_.value == 0) {
    write_form(*work.measured, whole_of(running));
  } else {
    write_form(*work.measured, running);
  }
}

void Paced::note(const WholeNorm& norm) {
  StepOutcome& outcome = account_.outcome();
  outcome.gradient_norm = norm.norm;
  outcome.learning_rate = 1;
  outcome.finite = norm.skip == 0;
}

void Paced::update(const std::vector<const Floats*>& totals, double factor) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& each = buckets_[b];
    paced_update(std::span(weights_).subspan(each.first, each.end - each.first), *totals[b],
                 factor);
  }
}

void Paced::compute_step(Work& work) {
  const auto clip_decision = read_form<WholeNorm>(*work.norm);
  note(clip_decision);
  before_ = weights_;
  ++version_;
  if (clip_decision.skip == 0) update(work.totals, clip_factor(clip_decision.norm, options_.clip));
  ahead_.set_stepped(clip_decision, version_);
}

void Paced::compute_step_ahead(Work& work) {
  const auto so_far = read_form<RunningNorm>(*work.norm);
  note(whole_of(so_far));
  kept_totals_.clear();
  for (const Floats* total : work.totals) kept_totals_.push_back(*total);
  before_ = weights_;
  ++version_;
  if (ahead_.decide(so_far)) update(work.totals, 1);
}

void Paced::compute_validate(Work& work) {
  const WholeNorm clip_decision =
      is_last() ? ahead_.clip_decision() : read_form<WholeNorm>(*work.norm);
  if (is_last()) write_form(*work.measured, clip_decision);
  const AheadUpdate::Ruling ruling = ahead_.judge(clip_decision, version_);
  if (ruling == AheadUpdate::Ruling::Stands) return;
  weights_ = *before_;
  if (ruling == AheadUpdate::Ruling::Redo) {
    std::vector<const Floats*> totals;
    for (const Floats& total : kept_totals_) totals.push_back(&total);
    update(totals, clip_factor(clip_decision.norm, options_.clip));
  }
  ahead_.close();
}

void Paced::compute_void(Work& work) {
  if (work.output != nullptr) {
    const std::span<float> numbers = live(*work.output);
    std::fill(numbers.begin(), numbers.end(), 0.0F);
    const bool forward = work.op.kind == OpKind::Forward;
    const ValueKind kind = forward ? ValueKind::Activation : ValueKind::Gradient;
    write_label(*work.output, live(*work.output), {kind, -1, stage_, work.op.micro});
  }
  if (work.measured != nullptr) write_form(*work.measured, RunningNorm{});
  if (work.op.kind == OpKind::StepAhead) ahead_.pass();
}

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
  const auto common = std::make_shared<PacedCommon>();
  std::vector<StagePart<PacedDevice>> parts;
  for (const StageId stage : stages) {
    parts.push_back(
        {stage, std::make_unique<Paced>(job, plan, stage, clock, mailbox, options, common)});
  }
  if (parts.size() == 1) return std::move(parts.front().device);
  return std::make_unique<PacedStages>(std::move(parts));
}

}  // namespace tenuto
