#include "ir/effect.h"

namespace tenuto {

bool means_every(const Value& value) {
  return (value.kind == ValueKind::Partial && value.micro.value < 0) ||
         (value.kind == ValueKind::Total && value.part < 0);
}

bool is_update(const Op& op) {
  switch (op.kind) {
    case OpKind::Reduce:
    case OpKind::Measure:
    case OpKind::Step:
    case OpKind::MeasureAhead:
    case OpKind::StepAhead:
    case OpKind::Validate:
      return true;
    case OpKind::Send:
    case OpKind::Recv:
      return !has_micro(op);
    default:
      return false;
  }
}

bool has_micro(const Op& op) {
  switch (op.kind) {
    case OpKind::Forward:
    case OpKind::BackwardInput:
    case OpKind::BackwardWeight:
    case OpKind::Evaluate:
      return true;
    case OpKind::Send:
    case OpKind::Recv:
      return op.moved == ValueKind::Activation || op.moved == ValueKind::Gradient;
    default:
      return false;
  }
}

bool lives_to_end(ValueKind kind) {
  return kind == ValueKind::Norm || kind == ValueKind::ClipDecision;
}

bool is_validation(const Op& op) {
  return op.kind == OpKind::Validate || (is_message(op) && op.moved == ValueKind::ClipDecision);
}

namespace {

void pass_through(const Op& op, bool first, bool last, Effect& effect) {
  if (!first) {
    const Value input{ValueKind::Activation, -1, {op.stage.value - 1}, op.micro};
    effect.read.push(input);
    effect.free.push(input);
  }
  if (!last) effect.write.push({ValueKind::Activation, -1, op.stage, op.micro});
}

void backward_input(const Op& op, bool first, bool last, Effect& effect) {
  const Value stash{ValueKind::Stash, -1, op.stage, op.micro};
  effect.read.push(stash);
  effect.free.push(stash);
  if (!last) {
    const Value gradient{ValueKind::Gradient, -1, {op.stage.value + 1}, op.micro};
    effect.read.push(gradient);
    effect.free.push(gradient);
  }
  if (!first) effect.write.push({ValueKind::Gradient, -1, op.stage, op.micro});
  effect.write.push({ValueKind::WeightWork, -1, op.stage, op.micro});
}

void measure(const Op& op, bool first, bool last, Effect& effect) {
  effect.read.push({ValueKind::Total, -1, op.stage, {}});
  if (!last) effect.read.push({ValueKind::Norm, -1, {op.stage.value + 1}, {}});
  effect.write.push({first ? ValueKind::ClipDecision : ValueKind::Norm, -1, op.stage, {}});
}

void measure_ahead(const Op& op, bool first, Effect& effect) {
  effect.read.push({ValueKind::Total, -1, op.stage, {}});
  if (!first) effect.read.push({ValueKind::Norm, -1, {op.stage.value - 1}, {}});
  effect.write.push({ValueKind::Norm, -1, op.stage, {}});
}

void update(const Op& op, StageId judge, Effect& effect) {
  const Value totals{ValueKind::Total, -1, op.stage, {}};
  const Value partials{ValueKind::Partial, -1, op.stage, {}};
  effect.read.push(totals);
  if (op.kind == OpKind::StepAhead) effect.read.push({ValueKind::Norm, -1, op.stage, {}});
  effect.read.push({ValueKind::ClipDecision, -1, judge, {}});
  effect.free.push(totals);
  effect.free.push(partials);
}

}  // namespace

Effect effect_of(const Op& op, int32_t stage_count) {
  const bool first = op.stage.value == 0;
  const bool last = op.stage.value == stage_count - 1;
  Effect effect;
  switch (op.kind) {
    case OpKind::Forward:
      pass_through(op, first, last, effect);
      effect.write.push({ValueKind::Stash, -1, op.stage, op.micro});
      break;
    case OpKind::Evaluate:
      pass_through(op, first, last, effect);
      break;
    case OpKind::BackwardInput:
      backward_input(op, first, last, effect);
      break;
    case OpKind::BackwardWeight: {
      const Value work{ValueKind::WeightWork, -1, op.stage, op.micro};
      effect.read.push(work);
      effect.free.push(work);
      effect.write.push({ValueKind::Partial, -1, op.stage, op.micro});
      break;
    }
    case OpKind::Send:
      effect.read.push(moved_value(op));
      if (has_micro(op)) effect.free.push(moved_value(op));
      break;
    case OpKind::Recv:
      effect.write.push(moved_value(op));
      break;
    case OpKind::Reduce:
      effect.read.push({ValueKind::Partial, -1, op.stage, {}});
      effect.write.push({ValueKind::Total, op.part, op.stage, {}});
      break;
    case OpKind::Measure:
      measure(op, first, last, effect);
      break;
    case OpKind::Step:
      update(op, {0}, effect);
      break;
    case OpKind::MeasureAhead:
      measure_ahead(op, first, effect);
      break;
    case OpKind::StepAhead:
      update(op, {stage_count - 1}, effect);
      break;
    case OpKind::Validate: {
      const Value clip_decision{ValueKind::ClipDecision, -1, {stage_count - 1}, {}};
      last ? effect.write.push(clip_decision) : effect.read.push(clip_decision);
      break;
    }
  }
  return effect;
}

}  // namespace tenuto
