#include "engine/engine.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "engine/copies.h"
#include "engine/data.h"
#include "engine/device.h"
#include "engine/layers.h"
#include "engine/sums.h"
#include "engine/value_store.h"
#include "engine/weights.h"
#include "ir/effect.h"
#include "ir/text.h"
#include "runtime/ahead.h"
#include "runtime/stages.h"
#include "runtime/step_account.h"
#include "world/cluster.h"

namespace tenuto {
namespace {

// What a split backward leaves to be added to the sums.
struct LateWork {
  WeightWork products;               // gradients of linear layers, not computed yet
  std::vector<WeightGradient> made;  // gradients of the other weights
};

// What a forward keeps for its backward.
struct Stash {
  at::Tensor input;                // leaf; undefined at the first stage
  at::Tensor output;               // at the last stage the loss
  std::unique_ptr<LateWork> late;  // the graph points to it; none: the backward is not split
};

Error failed(const std::string& what) { return {Code::Invalid, Reach::Worker, what}; }

class Engine : public Device {
 public:
  Engine(const Job& job, const Plan& plan, StageId stage, TorchDevice device, DataExtent extent,
         std::shared_ptr<Data> data, std::shared_ptr<ValueStore> store,
         std::shared_ptr<Copies> copies, Mailbox& mailbox);
  ~Engine() override;

  Result<Duration> begin(int64_t step) override;
  bool resumes() const override { return true; }
  void keep(const Value& value) override;
  void drop(const Value& value) override;
  Result<Duration> resume(int64_t step, const RestPart& rest) override;
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override;
  Result<std::span<const std::byte>> bytes(const Value& value) override;
  void set_speed(double speed) override { speed_ = speed; }
  Copies* copies() override { return copies_.get(); }
  Result<std::span<std::byte>> allocate(const Value& value) override;
  Element sum_elements() const override {
    return weights_.fixed() ? Element::Int64 : Element::Float32;
  }
  Status reduced(const Value& total) override;
  void discard(const Value& value) override;
  StepOutcome outcome() override;
  int64_t version() const override { return version_; }
  Finality finality() override;
  void start_over() override;
  Status undo() override;
  Status save(StageId stage, const std::string& path) override;
  Status load(const std::vector<std::string>& paths, int64_t version) override;
  int64_t state_bytes(StageId) const override { return weights_.state_bytes(); }
  int64_t state_unit(StageId) const override { return weights_.state_unit(); }
  Status read_state(StageId stage, int64_t first, std::span<std::byte> to) override;
  Status write_state(StageId stage, int64_t first, std::span<const std::byte> from) override;
  Status adopt(int64_t version) override;

 private:
  // A call for the compute thread.
  struct Call {
    Op op;
    Ticket ticket;
  };
  // How the last Step can be taken back.
  enum class Undo { None, Skipped, Kept };

  void serve();
  Status run(const Op& op);
  Status forward(const Op& op, bool keep);
  Status backward_input(const Op& op);
  Status backward_weight(const Op& op);
  void divide();
  Status measure(OpKind kind);
  Status step();
  Status step_ahead();
  Status validate();
  Status run_void(const Op& op);
  void take(double clip, bool kept);
  void note(const WholeNorm& norm, int64_t step);
  at::Tensor blank() const;

  bool first_stage() const { return stage_.value == 0; }
  bool last_stage() const { return stage_.value == stage_count_ - 1; }
  Pass pass_of(const Op& op, bool keep, LateWork* late) const;
  Draw draw_of(const Op& op) const;
  at::Tensor inputs_of(const Op& op) const;
  at::Tensor targets_of(const Op& op) const;
  void clear_once();
  Status await_idle();
  Status check_stored(const std::vector<Value>& stored) const;

  void put(const Value& value, const at::Tensor& source);
  Result<at::Tensor> take(const Value& value);
  template <class Form>
  void put_form(const Value& value, const Form& form);
  template <class Form>
  Result<Form> take_form(const Value& value);

  const Job job_;
  const StageId stage_;
  const int32_t stage_count_, micro_count_;
  const bool split_, keeps_back_up_;
  const TorchDevice device_;
  const std::shared_ptr<Data> data_;         // of the worker's stages, one of which runs at a time
  const std::shared_ptr<ValueStore> store_;  // of the worker's stages
  const std::shared_ptr<Copies> copies_;     // of the store; none where it is the host's memory
  const DataExtent extent_;
  Mailbox& mailbox_;
  Weights weights_;
  Layers layers_;
  Sums sums_;

  std::atomic<int64_t> version_ = 0;  // may be read, to be reported, while an op runs
  std::atomic<double> speed_ = 1;     // read by the compute thread
  Undo undo_ = Undo::None;
  AheadUpdate ahead_;
  StepAccount account_;
  std::map<MicroId, Stash> stashes_;
  std::map<MicroId, std::unique_ptr<LateWork>> work_;
  at::Tensor scratch_;
  bool sums_clear_ = false;
  bool divided_ = false;  // the mean is that of the totals and is still valid

  std::mutex mutex_;  // guards what follows; nothing is locked under it
  std::condition_variable changed_;
  std::optional<Call> call_;
  bool busy_ = false, quit_ = false;

  std::thread thread_;  // last: it uses all of the above
};

Engine::Engine(const Job& job, const Plan& plan, StageId stage, TorchDevice device,
               DataExtent extent, std::shared_ptr<Data> data, std::shared_ptr<ValueStore> store,
               std::shared_ptr<Copies> copies, Mailbox& mailbox)
    : job_(job),
      stage_(stage),
      stage_count_(static_cast<int32_t>(plan.stages.size())),
      micro_count_(plan.schedule.micro_count),
      split_(plan.split_backward),
      keeps_back_up_(plan.stages.size() > 1 || plan.stages[0].holders.size() > 1),
      device_(std::move(device)),
      data_(std::move(data)),
      store_(std::move(store)),
      copies_(std::move(copies)),
      extent_(extent),
      mailbox_(mailbox),
      weights_(job,
               parameters_of(job.model, extent,
                             plan.stages[static_cast<size_t>(stage.value)].layer_first,
                             plan.stages[static_cast<size_t>(stage.value)].layer_end),
               device_.place()),
      layers_(job.model, weights_, plan.stages[static_cast<size_t>(stage.value)].layer_first,
              plan.stages[static_cast<size_t>(stage.value)].layer_end),
      sums_(weights_, device_),
      ahead_(job.optimizer.clip),
      account_(stage),
      thread_([this] { serve(); }) {}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// --- The worker's side -------------------------------------------------------------------------

// Waits for the op under way. An op waits for nothing but the device, so it always ends; the limit
// is for a device that has stopped.
Status Engine::await_idle() {
  constexpr std::chrono::minutes kLimit(10);
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, kLimit, [this] { return !busy_; })) return ok();
  return Error{Code::Timeout, Reach::Worker,
               cat("stage ", stage_, " has been in one op for ", kLimit.count(),
                   " minutes: the device does not respond")};
}

Result<Duration> Engine::begin(int64_t step) {
  if (Status idle = await_idle(); !idle.ok()) return idle.error();
  store_->begin(step);
  sums_.begin(step);
  stashes_.clear();
  work_.clear();
  account_.begin(step);
  ahead_.begin();
  sums_clear_ = divided_ = false;
  return Duration(0);
}

// A total needs nothing here: it stays in its memory.
void Engine::keep(const Value& value) {
  if (value.kind != ValueKind::Total) store_->keep(value);
}

void Engine::drop(const Value& value) {
  value.kind == ValueKind::Total ? discard(value) : store_->drop(value);
}

Result<Duration> Engine::resume(int64_t step, const RestPart& rest) {
  if (Status idle = await_idle(); !idle.ok()) return idle.error();
  if (Status level = take_back_for(*this, stage_, step, rest); !level.ok()) return level.error();
  if (step != account_.step()) {
    stashes_.clear();
    work_.clear();
  }
  store_->resume(step, rest.stored);
  sums_.resume(step);
  ahead_.begin();
  if (Status summed = account_.resume(step, rest); !summed.ok()) return summed.error();
  sums_clear_ = account_.has_sum();
  divided_ = false;
  Status there = keep_wanted(ValueKind::Stash, stage_, rest.stored, stashes_);
  if (there.ok()) there = keep_wanted(ValueKind::WeightWork, stage_, rest.stored, work_);
  if (there.ok()) there = check_stored(rest.stored);
  if (!there.ok()) return there.error();
  return Duration(0);
}

// Checks that the stored values are here. Of the totals each stage checks only its own.
Status Engine::check_stored(const std::vector<Value>& stored) const {
  for (const Value& value : stored) {
    bool here = true;
    if (value.kind == ValueKind::Total) {
      here = value.stage != stage_ || sums_.has(value);
    } else if (value.kind == ValueKind::Activation || value.kind == ValueKind::Gradient ||
               value.kind == ValueKind::ClipDecision) {
      here = store_->get(value).tensor.defined();
    }
    if (!here)
      return invalid(
          cat(to_text(value), " is not at this worker, and the rest of the step needs it"));
  }
  return ok();
}

Status Engine::start(const Op& op, Duration, Ticket ticket) {
  CHECK(op.stage == stage_, cat("an op of stage ", stage_, ", got one of ", op.stage));
  {
    const std::lock_guard lock(mutex_);
    CHECK(!busy_, "one op at a time");
    call_ = Call{op, ticket};
    busy_ = true;
  }
  changed_.notify_all();
  return ok();
}

Result<std::span<const std::byte>> Engine::bytes(const Value& value) {
  if (value.kind == ValueKind::Partial) {
    clear_once();
    return sums_.own(value.part);
  }
  if (value.kind == ValueKind::Total && sums_.has(value)) return sums_.bytes(value);
  const HeldValue held = store_->get(value);
  if (!held.tensor.defined()) {
    return failed(cat("stage ", stage_, " has no value of kind ", static_cast<int>(value.kind),
                      " of stage ", value.stage, ", micro ", value.micro, " to send"));
  }
  return std::span(static_cast<const std::byte*>(held.tensor.const_data_ptr()),
                   held.tensor.nbytes());
}

Result<std::span<std::byte>> Engine::allocate(const Value& value) {
  if (value.kind == ValueKind::Total) {
    divided_ = false;
    return sums_.allocate(value);
  }
  at::Tensor memory;
  if (value.kind == ValueKind::Norm) {
    memory = at::empty({static_cast<int64_t>(sizeof(RunningNorm))}, at::kByte);
  } else if (value.kind == ValueKind::ClipDecision) {
    memory = at::empty({static_cast<int64_t>(sizeof(WholeNorm))}, at::kByte);
  } else {
    memory = blank();
  }
  store_->put(value, {memory, nullptr});
  return std::span(static_cast<std::byte*>(memory.mutable_data_ptr()), memory.nbytes());
}

// Memory of an activation or a gradient.
at::Tensor Engine::blank() const {
  if (job_.model.kind == "gpt") {
    return device_.allocate({job_.parallel.micro_rows, job_.model.sequence, job_.model.width});
  }
  return device_.allocate({job_.parallel.micro_rows, job_.model.width});
}

// The compute thread divides by the micro-batch count later: the memory keeps the sum, which may be
// sent to others as a total.
Status Engine::reduced(const Value&) { return ok(); }

void Engine::discard(const Value& value) {
  value.kind == ValueKind::Total ? sums_.discard(value) : store_->remove(value);
}

StepOutcome Engine::outcome() {
  if (!await_idle().ok()) return {};
  return account_.sorted_outcome();
}

Status Engine::undo() {
  if (Status idle = await_idle(); !idle.ok()) return idle;
  if (undo_ == Undo::None) {
    return failed(cat("stage ", stage_, " has no update to undo at version ", version()));
  }
  if (undo_ == Undo::Kept) weights_.take_back();
  undo_ = Undo::None;
  --version_;
  ahead_.set_final({.version = version_});
  return ok();
}

void Engine::start_over() {
  if (await_idle().ok()) ahead_.start_over();
}

Finality Engine::finality() {
  if (!await_idle().ok()) return {};
  return ahead_.finality();
}

Status Engine::save(StageId stage, const std::string& path) {
  CHECK(stage == stage_, cat("a shard of stage ", stage_, ", not of ", stage));
  if (Status idle = await_idle(); !idle.ok()) return idle;
  return weights_.save(path, version_);
}

Status Engine::load(const std::vector<std::string>& paths, int64_t version) {
  if (Status idle = await_idle(); !idle.ok()) return idle;
  const Status loaded = weights_.load(paths, version);
  if (!loaded.ok()) return loaded;
  return adopt(version);
}

Status Engine::read_state(StageId stage, int64_t first, std::span<std::byte> to) {
  CHECK(stage == stage_, cat("the state of stage ", stage_, ", not of ", stage));
  if (Status idle = await_idle(); !idle.ok()) return idle;
  weights_.read_state(first, to);
  return ok();
}

Status Engine::write_state(StageId stage, int64_t first, std::span<const std::byte> from) {
  CHECK(stage == stage_, cat("the state of stage ", stage_, ", not of ", stage));
  if (Status idle = await_idle(); !idle.ok()) return idle;
  weights_.write_state(first, from);
  undo_ = Undo::None;  // the back-up from before the last update does not have this part
  return ok();
}

Status Engine::adopt(int64_t version) {
  if (Status idle = await_idle(); !idle.ok()) return idle;
  version_ = version;
  undo_ = Undo::None;
  ahead_.set_final({.version = version_});
  return ok();
}

// --- The store ---------------------------------------------------------------------------------

void Engine::put(const Value& value, const at::Tensor& source) {
  store_->put(value, {source, device_.mark()});
}

Result<at::Tensor> Engine::take(const Value& value) {
  const HeldValue held = store_->get(value);
  if (!held.tensor.defined()) {
    return failed(cat("stage ", stage_, " was asked to run without its input from stage ",
                      value.stage, ", micro ", value.micro));
  }
  device_.await(held);
  return held.tensor;
}

template <class Form>
void Engine::put_form(const Value& value, const Form& form) {
  const at::Tensor held = at::empty({static_cast<int64_t>(sizeof(form))}, at::kByte);
  std::memcpy(held.mutable_data_ptr(), &form, sizeof(form));
  store_->put(value, {held, nullptr});
}

template <class Form>
Result<Form> Engine::take_form(const Value& value) {
  const HeldValue held = store_->get(value);
  if (!held.tensor.defined()) {
    return failed(cat("stage ", stage_, " was asked to measure or step without the norm"));
  }
  Form form;
  std::memcpy(&form, held.tensor.const_data_ptr(), sizeof(form));
  return form;
}

// --- The compute thread ------------------------------------------------------------------------

void Engine::serve() {
  at::set_num_threads(job_.device.threads);
  while (true) {
    std::optional<Call> call;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return quit_ || call_.has_value(); });
      if (quit_) return;
      call.swap(call_);
    }
    Done done;
    done.ticket = call->ticket;
    done.start = monotonic_clock().now();
    done.status = run(call->op);
    const Duration took = monotonic_clock().now() - done.start;
    std::this_thread::sleep_for(at_speed(took, speed_) - took);
    done.finish = monotonic_clock().now();
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
    }
    changed_.notify_all();
    mailbox_.post(std::move(done));
  }
}

// Torch throws exceptions; here they become errors.
Status Engine::run(const Op& op) {
  try {
    Status status = ok();
    const bool counts = ahead_.counts(op.kind);
    if (!counts) status = run_void(op);
    switch (counts ? op.kind : OpKind::Send) {
      case OpKind::Forward:
        status = forward(op, true);
        break;
      case OpKind::Evaluate:
        status = forward(op, false);
        break;
      case OpKind::BackwardInput:
        status = backward_input(op);
        break;
      case OpKind::BackwardWeight:
        status = backward_weight(op);
        break;
      case OpKind::Measure:
      case OpKind::MeasureAhead:
        status = measure(op.kind);
        break;
      case OpKind::Step:
        status = step();
        break;
      case OpKind::StepAhead:
        status = step_ahead();
        break;
      case OpKind::Validate:
        status = validate();
        break;
      default:
        CHECK(!counts, "Send, Recv and Reduce are not for compute");
    }
    device_.finish();
    return status;
  } catch (const std::bad_alloc&) {
    return Error{Code::Exhausted, Reach::Worker,
                 cat("stage ", stage_,
                     " is out of memory: lower parallel.micro_rows or use a smaller model")};
  } catch (const std::exception& exception) {
    const std::string text = exception.what();
    return failed(cat("stage ", stage_, ": torch: ", text.substr(0, text.find('\n'))));
  }
}

Pass Engine::pass_of(const Op& op, bool keep, LateWork* late) const {
  return {keep, dropout_key(job_.seed, account_.step(), op.micro.value),
          late != nullptr ? &late->products : nullptr};
}

Draw Engine::draw_of(const Op& op) const {
  const bool held_out = op.kind == OpKind::Evaluate;
  return {held_out, account_.step(), held_out ? op.micro.value - micro_count_ : op.micro.value};
}

at::Tensor Engine::inputs_of(const Op& op) const {
  const int64_t rows = job_.parallel.micro_rows;
  if (job_.model.kind == "gpt") {
    const at::Tensor inputs = at::empty({rows, job_.model.sequence}, at::kLong);
    data_->fill_text(draw_of(op),
                     {inputs.mutable_data_ptr<int64_t>(), static_cast<size_t>(inputs.numel())}, {});
    return inputs.to(device_.place());
  }
  const at::Tensor inputs = at::empty({rows, extent_.features}, at::kFloat);
  data_->fill_features(draw_of(op),
                       {inputs.mutable_data_ptr<float>(), static_cast<size_t>(inputs.numel())}, {});
  return inputs.to(device_.place());
}

at::Tensor Engine::targets_of(const Op& op) const {
  const bool gpt = job_.model.kind == "gpt";
  const int64_t count = int64_t{job_.parallel.micro_rows} * (gpt ? job_.model.sequence : 1);
  const at::Tensor targets = at::empty({count}, at::kLong);
  const std::span<int64_t> into{targets.mutable_data_ptr<int64_t>(), static_cast<size_t>(count)};
  if (gpt) {
    data_->fill_text(draw_of(op), {}, into);
  } else {
    data_->fill_features(draw_of(op), {}, into);
  }
  return targets.to(device_.place());
}

// Forward (keep) or Evaluate.
Status Engine::forward(const Op& op, bool keep) {
  const at::AutoGradMode mode(keep);
  at::Tensor input;
  if (first_stage()) {
    input = inputs_of(op);
  } else {
    Result<at::Tensor> taken = take({ValueKind::Activation, -1, {stage_.value - 1}, op.micro});
    if (!taken.ok()) return taken.error();
    input = std::move(taken).value();
    if (keep) input = input.detach().requires_grad_(true);
  }
  auto late = keep && split_ ? std::make_unique<LateWork>() : nullptr;
  at::Tensor output = layers_.run(input, pass_of(op, keep, late.get()));
  if (last_stage()) {
    output = loss_of(output, targets_of(op));
    account_.note_loss({op.micro, output.item<double>()}, op.kind == OpKind::Evaluate);
  } else {
    output = output.contiguous();
    put({ValueKind::Activation, -1, stage_, op.micro}, output.detach());
  }
  if (keep) {
    stashes_[op.micro] = {first_stage() ? at::Tensor() : input, output, std::move(late)};
  }
  return ok();
}

void Engine::clear_once() {
  if (sums_clear_) return;
  weights_.clear_gradients();
  sums_clear_ = true;
}

// A split backward adds nothing to the sums, nor does one that runs only for its input gradient. So
// the work that a split backward leaves can be dropped without a trace.
Status Engine::backward_input(const Op& op) {
  const auto found = stashes_.find(op.micro);
  if (found == stashes_.end()) {
    return failed(cat("stage ", stage_, " was asked for the backward of micro ", op.micro,
                      " without its forward"));
  }
  Stash stash = std::move(found->second);
  stashes_.erase(found);
  at::Tensor gradient;
  if (!last_stage()) {
    Result<at::Tensor> taken = take({ValueKind::Gradient, -1, {stage_.value + 1}, op.micro});
    if (!taken.ok()) return taken.error();
    gradient = std::move(taken).value();
  }
  const bool adds = !split_ && account_.adds(op.micro);
  if (adds) {
    clear_once();
    account_.add(op.micro);
  }
  weights_.leave_apart(!adds);
  torch::autograd::backward({stash.output}, {gradient});
  if (adds && weights_.fixed()) weights_.fold();
  if (split_) {
    stash.late->made = weights_.take_apart();
    work_[op.micro] = std::move(stash.late);
  }
  if (!first_stage()) {
    put({ValueKind::Gradient, -1, stage_, op.micro}, stash.input.grad().contiguous());
  }
  return ok();
}

Status Engine::backward_weight(const Op& op) {
  if (!split_) return ok();
  const auto found = work_.find(op.micro);
  if (found == work_.end()) {
    return failed(cat("stage ", stage_, " was asked for the weight gradient of micro ", op.micro,
                      " without its backward"));
  }
  clear_once();
  account_.add(op.micro);
  weights_.add(found->second->made);
  drain(found->second->products, scratch_);
  if (weights_.fixed()) weights_.fold();
  work_.erase(found);
  return ok();
}

// Computes the mean gradient, unless it has been computed already.
void Engine::divide() {
  if (divided_) return;
  sums_.upload();
  weights_.divide(micro_count_);
  divided_ = true;
}

Status Engine::measure(OpKind kind) {
  const bool ahead = kind == OpKind::MeasureAhead;
  RunningNorm so_far;
  if (ahead ? !first_stage() : !last_stage()) {
    const StageId before{stage_.value + (ahead ? -1 : 1)};
    const Result<RunningNorm> norm = take_form<RunningNorm>({ValueKind::Norm, -1, before, {}});
    if (!norm.ok()) return norm.error();
    so_far = norm.value();
  }
  divide();
  so_far = weights_.measure(so_far);
  if (!ahead && first_stage()) {
    put_form({ValueKind::ClipDecision, -1, stage_, {}}, whole_of(so_far));
  } else {
    put_form({ValueKind::Norm, -1, stage_, {}}, so_far);
  }
  return ok();
}

void Engine::note(const WholeNorm& norm, int64_t step) {
  StepOutcome& outcome = account_.outcome();
  outcome.gradient_norm = norm.norm;
  outcome.learning_rate = learning_rate(job_.optimizer, step, job_.steps);
  outcome.finite = norm.skip == 0;
}

// Takes the update that leads to version_, so that it can be taken back.
void Engine::take(double clip, bool kept) {
  if (keeps_back_up_) {
    weights_.back_up();
    undo_ = Undo::Kept;
  }
  const double rate = learning_rate(job_.optimizer, version_ - 1, job_.steps);
  divided_ = false;
  weights_.update(job_.optimizer, rate, clip, kept);
}

Status Engine::step() {
  const Result<WholeNorm> clip_decision =
      take_form<WholeNorm>({ValueKind::ClipDecision, -1, {0}, {}});
  if (!clip_decision.ok()) return clip_decision.error();
  const double norm = clip_decision.value().norm;
  note(clip_decision.value(), account_.step());
  undo_ = keeps_back_up_ ? Undo::Skipped : Undo::None;
  ++version_;
  if (clip_decision.value().skip == 0) {
    divide();  // a resumed step may begin with the clip decision and run no Measure
    take(clip_factor(norm, job_.optimizer.clip), false);
  }
  ahead_.set_stepped(clip_decision.value(), version_);
  return ok();
}

Status Engine::step_ahead() {
  const Result<RunningNorm> so_far = take_form<RunningNorm>({ValueKind::Norm, -1, stage_, {}});
  if (!so_far.ok()) return so_far.error();
  note(whole_of(so_far.value()), account_.step());
  weights_.keep_mean();
  undo_ = Undo::Skipped;
  ++version_;
  if (ahead_.decide(so_far.value())) take(1, false);
  return ok();
}

Status Engine::validate() {
  const Value name{ValueKind::ClipDecision, -1, {stage_count_ - 1}, {}};
  if (last_stage()) put_form(name, ahead_.clip_decision());
  const Result<WholeNorm> clip_decision = take_form<WholeNorm>(name);
  if (!clip_decision.ok()) return clip_decision.error();
  const AheadUpdate::Ruling ruling = ahead_.judge(clip_decision.value(), version_);
  if (ruling == AheadUpdate::Ruling::Stands) return ok();
  if (undo_ == Undo::Kept) weights_.take_back();
  undo_ = Undo::Skipped;
  if (ruling == AheadUpdate::Ruling::Redo) {
    take(clip_factor(clip_decision.value().norm, job_.optimizer.clip), true);
  }
  ahead_.close();
  return ok();
}

// Runs an op of a void step: its values have the right size and any content.
Status Engine::run_void(const Op& op) {
  for (const Value& value : effect_of(op, stage_count_).write) {
    const bool travels = value.kind == ValueKind::Activation || value.kind == ValueKind::Gradient;
    if (travels) put(value, blank().zero_());
    if (value.kind == ValueKind::Norm) put_form(value, RunningNorm{});
  }
  if (op.kind == OpKind::StepAhead) ahead_.pass();
  return ok();
}

}  // namespace

int32_t layer_count(const ModelSettings& model) {
  return model.layers + (model.kind == "gpt" ? 2 : 1);
}

Result<std::unique_ptr<Device>> make_engine(const Job& job, const Plan& plan,
                                            const std::vector<StageId>& stages, Mailbox& mailbox,
                                            EngineOptions options) {
  const auto count = static_cast<int32_t>(plan.stages.size());
  CHECK(!stages.empty(), "an engine holds a stage");
  CHECK(plan.stages.back().layer_end == layer_count(job.model), "a plan of this model's layers");
  if (job.model.kind == "gpt" && job.model.width % job.model.heads != 0) {
    return Error{Code::Invalid, Reach::Job,
                 cat("model.width = ", job.model.width,
                     " is no multiple of model.heads = ", job.model.heads)};
  }
  std::shared_ptr<Data> data;
  const auto store = std::make_shared<ValueStore>();
  const Result<TorchDevice> device = TorchDevice::open(job.device);
  if (!device.ok()) return device.error();
  std::shared_ptr<Copies> copies;
  if (device.value().accelerator() || options.separate_memory) {
    copies = make_copies(device.value(), store);
  }
  std::vector<StagePart<Device>> parts;
  for (const StageId stage : stages) {
    CHECK(stage.value >= 0 && stage.value < count, cat("a stage of ", count, ", not ", stage));
    const bool reads = stage.value == 0 || stage.value == count - 1;
    if (reads && data == nullptr) {
      Result<std::unique_ptr<Data>> opened = open_data(job);
      if (!opened.ok()) return opened.error();
      data = std::move(opened).value();
    }
    parts.push_back(
        {stage, std::make_unique<Engine>(job, plan, stage, device.value(),
                                         reads ? data->extent() : DataExtent{},
                                         reads ? data : nullptr, store, copies, mailbox)});
  }
  if (parts.size() == 1) return std::move(parts.front().device);
  return std::unique_ptr<Device>(std::make_unique<Stages<Device>>(std::move(parts)));
}

}  // namespace tenuto
