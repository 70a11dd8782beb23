// The ops of a stage, run on its compute thread.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "engine/dropout.h"
#include "engine/stage_engine.h"
#include "ir/effect.h"
#include "ir/text.h"
#include "ir/version.h"
#include "world/cluster.h"

namespace tenuto {
namespace {

// Runs the backward from those of `outputs` that require a gradient.
void run_backward(const Tensors& outputs, Tensors gradients) {
  Tensors roots;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad()) continue;
    gradients[roots.size()] = std::move(gradients[i]);
    roots.push_back(outputs[i]);
  }
  gradients.resize(roots.size());
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
}

}  // namespace

// --- The growth of the sum -----------------------------------------------------------------------

// Has note_added() called whenever a backward has added a gradient to a weight's sum. A backward
// does this once for each weight, with the gradients of all its uses.
void StageEngine::watch_weights() {
  class Added : public torch::autograd::PostAccumulateGradHook {
   public:
    Added(StageEngine& engine, const Weight& weight) : engine_(engine), weight_(weight) {}
    void operator()(const at::Tensor&) override { engine_.note_added(weight_); }

   private:
    StageEngine& engine_;
    const Weight& weight_;
  };
  parts_.resize(weights_.all().size());
  size_t part = growth_.parts.size();
  for (size_t i = 0; part > 0; ++i) {
    const Weight& weight = weights_.all()[i];
    if (!weight.card.trained) continue;
    parts_[i] = --part;
    torch::autograd::impl::set_post_acc_grad_hooks(weight.value,
                                                   std::make_unique<Added>(*this, weight));
  }
}

// The sum of this weight's gradients is complete, if the op is the last one that adds to the sum.
void StageEngine::note_added(const Weight& weight) {
  if (reporting_ == kNoTicket) return;
  const auto index = static_cast<size_t>(&weight - weights_.all().data());
  Done done;
  done.ticket = reporting_;
  done.grown = growing_.complete(parts_[index]);
  if (done.grown > 0) mailbox_.post(std::move(done));
}

// The gradients that were made apart have been added.
void StageEngine::note_made(const LateWork& late) {
  if (reporting_ == kNoTicket) return;
  std::set<const Weight*> later;
  for (const DeferredGradients& one : late.products) {
    later.insert({one.weight.weight, one.bias.weight});
  }
  for (const WeightGradient& one : late.made) {
    if (!later.contains(one.weight)) note_added(*one.weight);
  }
}

// --- The store ---------------------------------------------------------------------------------

const Boundary& StageEngine::boundary_of(const Value& value) const {
  const auto found = shared_->boundaries.find({value.kind, -1, value.stage, {}});
  CHECK(found != shared_->boundaries.end(), "a value at a boundary of the worker's stages");
  return found->second;
}

Status StageEngine::put(const Value& value, const Tensors& tensors) {
  Result<at::Tensor> block = boundary_of(value).pack(tensors);
  if (!block.ok()) return failed(cat("stage ", stage_, ": ", block.error().message));
  store_.put(value, {std::move(block).value(), device_.mark()});
  return ok();
}

Result<Tensors> StageEngine::take(const Value& value) {
  const HeldValue held = store_.get(value);
  if (!held.tensor.defined()) {
    return failed(cat("stage ", stage_, " was asked to run without its input from stage ",
                      value.stage, ", micro ", value.micro));
  }
  device_.await(held);
  return boundary_of(value).unpack(held.tensor);
}

template <class Form>
void StageEngine::put_form(const Value& value, const Form& form) {
  const at::Tensor held = at::empty({static_cast<int64_t>(sizeof(form))}, at::kByte);
  std::memcpy(held.mutable_data_ptr(), &form, sizeof(form));
  store_.put(value, {held, nullptr});
}

template <class Form>
Result<Form> StageEngine::take_form(const Value& value) {
  const HeldValue held = store_.get(value);
  if (!held.tensor.defined()) {
    return failed(cat("stage ", stage_, " was asked to measure or step without the norm"));
  }
  Form form;
  std::memcpy(&form, held.tensor.const_data_ptr(), sizeof(form));
  return form;
}

// --- The compute thread ------------------------------------------------------------------------

void StageEngine::serve() {
  at::set_num_threads(job_.device.threads);
  while (const std::optional<Call> call = slot_.next()) {
    Done done;
    done.ticket = call->ticket;
    done.start = monotonic_clock().now();
    if (call->reports) growing_.begin();
    reporting_ = call->reports ? call->ticket : kNoTicket;
    done.status = run(call->op);
    reporting_ = kNoTicket;
    if (call->reports && growing_.was_late() && done.status.ok()) {
      done.status = failed(
          cat("stage ", stage_, ": a backward has added to a gradient twice, and ",
              "its sum was under way: each module must add each weight's gradient ", "once"));
    }
    const Duration took = monotonic_clock().now() - done.start;
    std::this_thread::sleep_for(at_speed(took, speed_) - took);
    done.finish = monotonic_clock().now();
    slot_.finish();
    mailbox_.post(std::move(done));
  }
}

// Torch throws exceptions; here they become errors.
Status StageEngine::run(const Op& op) {
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
  } catch (const ModuleError& error) {
    return Error{Code::Invalid, Reach::Job, cat("stage ", stage_, ": ", error.what())};
  } catch (const std::exception& exception) {
    const std::string text = exception.what();
    return failed(cat("stage ", stage_, ": torch: ", text.substr(0, text.find('\n'))));
  }
}

Pass StageEngine::pass_of(const Op& op, bool keep, LateWork* late) const {
  return {keep, dropout_key(job_.seed, iteration(), op.micro.value),
          late != nullptr ? &late->products : nullptr};
}

// Has torch's ops leave the module's weight gradients in `late`, if the module asks for it.
std::unique_ptr<DivertScope> StageEngine::diverted_to(LateWork* late) const {
  if (late == nullptr || !module_->diverts()) return nullptr;
  return std::make_unique<DivertScope>(weights_, late->products);
}

Draw StageEngine::draw_of(const Op& op) const {
  const bool held_out = op.kind == OpKind::Evaluate;
  return {held_out, iteration(), held_out ? op.micro.value - micro_count_ : op.micro.value};
}

Tensors StageEngine::on_device(Tensors tensors) const {
  for (at::Tensor& tensor : tensors) tensor = tensor.to(device_.place());
  return tensors;
}

// The inputs of a stage: training data at the first stage, else the outputs of the stage before.
Result<Tensors> StageEngine::inputs_of(const Op& op) {
  if (first_stage()) return on_device(shared_->data->inputs(draw_of(op)));
  return take({ValueKind::Activation, -1, {stage_.value - 1}, op.micro});
}

// Computes the forward of a micro-batch, with its loss at the last stage. If `keep`, builds the
// autograd graph, and puts what the backward needs into the stash.
StageEngine::Passed StageEngine::pass(const Op& op, Tensors inputs, bool keep, Stash& stash) {
  const at::AutoGradMode mode(keep);
  if (keep && split_) stash.late = std::make_unique<LateWork>();
  for (at::Tensor& input : inputs) {
    if (first_stage() || !keep || !input.is_floating_point()) continue;
    input = input.detach().requires_grad_(true);
    stash.inputs.push_back(input);
  }
  const std::unique_ptr<DivertScope> scope = diverted_to(stash.late.get());
  Passed passed;
  passed.outputs = module_->forward(inputs, pass_of(op, keep, stash.late.get()));
  if (last_stage()) {
    const Tensors targets = on_device(shared_->data->targets(draw_of(op)));
    if (!keep) passed.accuracy = module_->accuracy(passed.outputs, targets);
    passed.outputs = {module_->loss(passed.outputs, targets)};
  }
  for (const at::Tensor& output : passed.outputs) {
    if (keep && output.is_floating_point()) stash.outputs.push_back(output);
  }
  return passed;
}

// Runs Forward (keep) or Evaluate. A stage that recomputes also builds the autograd graph in its
// forward, and then drops it. So both runs of the forward give the same bits; at its peak, the
// first one needs no more memory than the backward.
Status StageEngine::forward(const Op& op, bool keep) {
  const Result<Tensors> inputs = inputs_of(op);
  if (!inputs.ok()) return inputs.error();
  Stash stash;
  const Passed passed = pass(op, inputs.value(), keep, stash);
  if (last_stage()) {
    MicroLoss loss{op.micro, passed.outputs[0].item<double>()};
    if (passed.accuracy.defined()) loss.accuracy = passed.accuracy.item<double>();
    account_.note_loss(loss, op.kind == OpKind::Evaluate);
  } else if (Status made = put({ValueKind::Activation, -1, stage_, op.micro}, passed.outputs);
             !made.ok()) {
    return made;
  }
  if (!keep) return ok();
  if (recompute_) stash = {first_stage() ? Tensors{} : inputs.value(), {}, nullptr};
  stashes_[op.micro] = std::move(stash);
  return ok();
}

// Runs the forward again from the kept inputs; the first stage reads its data again instead.
void StageEngine::recompute(const Op& op, Stash& stash) {
  Tensors inputs = first_stage() ? on_device(shared_->data->inputs(draw_of(op)))
                                 : std::exchange(stash.inputs, {});
  pass(op, std::move(inputs), true, stash);
}

void StageEngine::clear_once() {
  if (sums_clear_) return;
  weights_.clear_gradients();
  sums_clear_ = true;
}

// A split backward adds nothing to the sums, nor does one that runs only for its input gradient. So
// the work that a split backward leaves can be dropped without a trace.
Status StageEngine::backward_input(const Op& op) {
  const auto found = stashes_.find(op.micro);
  if (found == stashes_.end()) {
    return failed(cat("stage ", stage_, " was asked for the backward of micro ", op.micro,
                      " without its forward"));
  }
  Stash stash = std::move(found->second);
  stashes_.erase(found);
  Tensors gradients(1);  // of the loss: none
  if (!last_stage()) {
    Result<Tensors> taken = take({ValueKind::Gradient, -1, {stage_.value + 1}, op.micro});
    if (!taken.ok()) return taken.error();
    gradients = std::move(taken).value();
  }
  if (recompute_) recompute(op, stash);
  const bool adds = !split_ && account_.adds(op.micro);
  if (adds) {
    clear_once();
    account_.add(op.micro);
  }
  weights_.leave_apart(!adds);
  {
    const std::unique_ptr<DivertScope> scope = diverted_to(stash.late.get());
    run_backward(stash.outputs, std::move(gradients));
  }
  if (adds && weights_.fixed()) weights_.fold();
  if (split_) {
    stash.late->made = weights_.take_apart();
    if (module_->diverts()) append_to(stash.late->products, stash.late->made);
    late_[op.micro] = std::move(stash.late);
  }
  if (first_stage()) return ok();
  gradients.clear();
  for (const at::Tensor& input : stash.inputs) {
    gradients.push_back(input.grad().defined() ? input.grad() : at::zeros_like(input));
  }
  return put({ValueKind::Gradient, -1, stage_, op.micro}, gradients);
}

Status StageEngine::backward_weight(const Op& op) {
  if (!split_) return ok();
  const auto found = late_.find(op.micro);
  if (found == late_.end()) {
    return failed(cat("stage ", stage_, " was asked for the weight gradient of micro ", op.micro,
                      " without its backward"));
  }
  clear_once();
  account_.add(op.micro);
  weights_.add(found->second->made);
  note_made(*found->second);
  drain(found->second->products, scratch_, [this](const Weight& weight) { note_added(weight); });
  if (weights_.fixed()) weights_.fold();
  late_.erase(found);
  return ok();
}

// Computes the mean gradient, unless it has been computed already.
void StageEngine::divide() {
  if (divided_) return;
  sums_.upload();
  weights_.divide(micro_count_);
  divided_ = true;
}

Status StageEngine::measure(OpKind kind) {
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

double StageEngine::rate_of(int64_t step) const { return weights_.rate(job_, step); }

// Takes the update that leads to version_. Before it, copies what undo() needs, if a step may have
// to be undone.
void StageEngine::take(double clip, bool kept) {
  if (keeps_back_up_) {
    weights_.back_up();
    undo_ = Undo::Kept;
  }
  divided_ = false;
  const Iteration made_by = iteration_that_made(Version{version_});
  weights_.update(job_, made_by.value, clip, kept);
}

Status StageEngine::step() {
  const Result<WholeNorm> clip_decision =
      take_form<WholeNorm>({ValueKind::ClipDecision, -1, {0}, {}});
  if (!clip_decision.ok()) return clip_decision.error();
  const double norm = clip_decision.value().norm;
  note(clip_decision.value(), rate_of(account_.step()));
  undo_ = keeps_back_up_ ? Undo::Skipped : Undo::None;
  ++version_;
  if (clip_decision.value().skip == 0) {
    divide();  // a resumed step may begin with the clip decision and run no Measure
    take(clip_factor(norm, job_.optimizer.clip), false);
  }
  ahead_.set_stepped(clip_decision.value(), version_);
  return ok();
}

Status StageEngine::step_ahead() {
  const Result<RunningNorm> so_far = take_form<RunningNorm>({ValueKind::Norm, -1, stage_, {}});
  if (!so_far.ok()) return so_far.error();
  note(whole_of(so_far.value()), rate_of(account_.step()));
  weights_.keep_mean();
  undo_ = Undo::Skipped;
  ++version_;
  if (ahead_.decide(so_far.value())) take(1, false);
  return ok();
}

Status StageEngine::validate() {
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
Status StageEngine::run_void(const Op& op) {
  for (const Value& value : effect_of(op, stage_count_).write) {
    if (feeds_compute(value.kind)) {
      store_.put(value, {boundary_of(value).allocate(device_).zero_(), device_.mark()});
    }
    if (value.kind == ValueKind::Norm) put_form(value, RunningNorm{});
  }
  if (op.kind == OpKind::StepAhead) ahead_.pass();
  return ok();
}

}  // namespace tenuto
