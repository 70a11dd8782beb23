// The ops of a paced stage: what they read and write, and their mathematics.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "ir/effect.h"
#include "ir/text.h"
#include "rehearsal/paced_stage.h"

namespace tenuto {

Status PacedStage::prepare(PacedWork& work) {
  switch (work.op.kind) {
    case OpKind::Forward:
    case OpKind::Evaluate:
      return prepare_forward(work);
    case OpKind::BackwardInput:
    case OpKind::BackwardWeight:
      return prepare_backward(work);
    default:
      return prepare_update(work);
  }
}

Status PacedStage::prepare_forward(PacedWork& work) {
  const MicroId micro = work.op.micro;
  if (!first_stage()) {
    const Value before{ValueKind::Activation, -1, {stage_.value - 1}, micro};
    if (Status status = read(before, work.input); !status.ok()) return status;
  }
  if (!last_stage()) work.output = make({ValueKind::Activation, -1, stage_, micro});
  work.stash = &stashes_[micro];
  if (!spare_stashes_.empty()) {
    *work.stash = std::move(spare_stashes_.back());
    spare_stashes_.pop_back();
  }
  return ok();
}

Status PacedStage::read(const Value& value, const Floats*& place) const {
  const Result<const Floats*> found = find(value);
  if (!found.ok()) return found.error();
  place = found.value();
  return ok();
}

Status PacedStage::prepare_update(PacedWork& work) {
  const OpKind kind = work.op.kind;
  for (const Bucket& each : kind == OpKind::Validate ? std::vector<Bucket>{} : buckets_) {
    work.totals.push_back(nullptr);
    const Value total{ValueKind::Total, each.part, stage_, {}};
    if (Status status = read(total, work.totals.back()); !status.ok()) return status;
  }
  const Effect effect = effect_of(work.op, stage_count_);
  for (const Value& value : effect.read) {
    if (value.kind != ValueKind::Norm && value.kind != ValueKind::ClipDecision) continue;
    // A StepAhead waits for the clip decision on the step before, but does not use it.
    if (kind == OpKind::StepAhead && value.kind == ValueKind::ClipDecision) continue;
    if (Status status = read(value, work.norm); !status.ok()) return status;
  }
  for (const Value& value : effect.write) work.measured = make(value);
  return ok();
}

// Allocates the values of a void op, which only need the right size.
void PacedStage::prepare_void(PacedWork& work) {
  for (const Value& value : effect_of(work.op, stage_count_).write) {
    if (feeds_compute(value.kind)) work.output = make(value);
    if (value.kind == ValueKind::Norm) work.measured = make(value);
  }
}

Status PacedStage::prepare_backward(PacedWork& work) {
  const Op& op = work.op;
  // A forward may run again while the weight work of its micro-batch is kept: keep both apart.
  if (op.kind == OpKind::BackwardInput) {
    late_.erase(op.micro);
    late_.insert(stashes_.extract(op.micro));
  }
  const auto kept = late_.find(op.micro);
  if (kept == late_.end()) {
    return invalid(cat("stage ", stage_, " has no stash of micro-batch ", op.micro));
  }
  work.stash = &kept->second;
  if (op.kind == OpKind::BackwardWeight) return ok();
  if (!last_stage()) {
    const Value after{ValueKind::Gradient, -1, {stage_.value + 1}, op.micro};
    if (Status status = read(after, work.gradient); !status.ok()) return status;
  }
  if (!first_stage()) work.output = make({ValueKind::Gradient, -1, stage_, op.micro});
  return ok();
}

Status PacedStage::compute(PacedWork& work) {
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

Status PacedStage::compute_forward(PacedWork& work) {
  const MicroId micro = work.op.micro;
  PacedStash& stash = *work.stash;
  if (work.input == nullptr) {
    const auto count =
        std::min<int64_t>(static_cast<int64_t>(common_->elements - kLabel), kPacedLive);
    stash.x = paced_input(iteration(), micro, count);
  } else {
    const StageId before{stage_.value - 1};
    const Value whose{ValueKind::Activation, -1, before, micro};
    if (Status status = check_label(*work.input, whose); !status.ok()) return status;
    const std::span<const float> x = numbers_of(*work.input);
    stash.x.assign(x.begin(), x.end());
  }
  stash.y.resize(stash.x.size());
  paced_forward(weights_, stash.x, stash.y);
  if (work.output == nullptr) {
    account_.note_loss({micro, paced_loss(stash.y)}, work.op.kind == OpKind::Evaluate);
    return ok();
  }
  std::copy(stash.y.begin(), stash.y.end(), numbers_of(*work.output).begin());
  write_label(*work.output, {ValueKind::Activation, -1, stage_, micro});
  return ok();
}

Status PacedStage::compute_backward(PacedWork& work) {
  const MicroId micro = work.op.micro;
  PacedStash& stash = *work.stash;
  if (work.gradient == nullptr) {
    stash.dy = stash.y;  // the derivative of y^2 / 2
  } else {
    const StageId after{stage_.value + 1};
    const Value whose{ValueKind::Gradient, -1, after, micro};
    if (Status status = check_label(*work.gradient, whose); !status.ok()) return status;
    const std::span<const float> dy = numbers_of(*work.gradient);
    stash.dy.assign(dy.begin(), dy.end());
  }
  if (work.output != nullptr) {
    paced_backward_input(stash.dy, numbers_of(*work.output));
    write_label(*work.output, {ValueKind::Gradient, -1, stage_, micro});
  }
  if (!split_ && account_.adds(micro)) sum_up(work);
  return ok();
}

void PacedStage::sum_up(const PacedWork& work) {
  account_.add(work.op.micro);
  paced_backward_weight(work.stash->x, work.stash->dy, sums_);
}

void PacedStage::compute_measure(PacedWork& work) {
  RunningNorm running = work.norm == nullptr ? RunningNorm{} : read_form<RunningNorm>(*work.norm);
  for (const Floats* total : work.totals) {
    const double square = paced_square(0, *total);
    if (std::isfinite(square)) {
      running.squares.add(square);
    } else {
      ++running.bad;
    }
  }
  running.bad += common_->options.bad && common_->options.bad(account_.step(), stage_) ? 1 : 0;
  if (work.op.kind == OpKind::Measure && first_stage()) {
    write_form(*work.measured, whole_of(running));
  } else {
    write_form(*work.measured, running);
  }
}

void PacedStage::update(const std::vector<const Floats*>& totals, double factor) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& each = buckets_[b];
    paced_update(std::span(weights_).subspan(each.first, each.end - each.first), *totals[b],
                 factor);
  }
}

void PacedStage::compute_step(PacedWork& work) {
  const auto clip_decision = read_form<WholeNorm>(*work.norm);
  note(clip_decision, 1);
  before_ = weights_;
  ++version_;
  if (clip_decision.skip == 0)
    update(work.totals, clip_factor(clip_decision.norm, common_->options.clip));
  ahead_.set_stepped(clip_decision, version_);
}

void PacedStage::compute_step_ahead(PacedWork& work) {
  const auto so_far = read_form<RunningNorm>(*work.norm);
  note(whole_of(so_far), 1);
  kept_totals_.clear();
  for (const Floats* total : work.totals) kept_totals_.push_back(*total);
  before_ = weights_;
  ++version_;
  if (ahead_.decide(so_far)) update(work.totals, 1);
}

void PacedStage::compute_validate(PacedWork& work) {
  const WholeNorm clip_decision =
      last_stage() ? ahead_.clip_decision() : read_form<WholeNorm>(*work.norm);
  if (last_stage()) write_form(*work.measured, clip_decision);
  const AheadUpdate::Ruling ruling = ahead_.judge(clip_decision, version_);
  if (ruling == AheadUpdate::Ruling::Stands) return;
  weights_ = *before_;
  if (ruling == AheadUpdate::Ruling::Redo) {
    std::vector<const Floats*> totals;
    for (const Floats& total : kept_totals_) totals.push_back(&total);
    update(totals, clip_factor(clip_decision.norm, common_->options.clip));
  }
  ahead_.close();
}

void PacedStage::compute_void(PacedWork& work) {
  if (work.output != nullptr) {
    const std::span<float> numbers = numbers_of(*work.output);
    std::fill(numbers.begin(), numbers.end(), 0.0F);
    const bool forward = work.op.kind == OpKind::Forward;
    const ValueKind kind = forward ? ValueKind::Activation : ValueKind::Gradient;
    write_label(*work.output, {kind, -1, stage_, work.op.micro});
  }
  if (work.measured != nullptr) write_form(*work.measured, RunningNorm{});
  if (work.op.kind == OpKind::StepAhead) ahead_.pass();
}

}  // namespace tenuto
