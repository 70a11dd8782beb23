// The part of a stage's device that is the same for every kind of device: it resumes steps, and it
// counts versions of the parameters.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "base/text.h"
#include "ir/plan.h"
#include "ir/text.h"
#include "ir/version.h"
#include "runtime/ahead.h"
#include "runtime/device.h"
#include "runtime/step_account.h"

namespace tenuto {

// The device of one stage. `Face` is Device, or an interface that extends it; `Stash` is what a
// Forward keeps for its BackwardInput, `Late` what a BackwardInput keeps for its BackwardWeight.
template <class Face, class Stash, class Late>
class StageDevice : public Face {
 public:
  bool resumes() const override { return true; }
  Result<Duration> resume(int64_t step, const RestPart& rest) override {
    if (Status idle = await_idle(); !idle.ok()) return idle.error();
    if (Status level = take_back_for(*this, stage_, step, rest); !level.ok()) return level.error();
    if (step != account_.step()) {
      stashes_.clear();
      late_.clear();
    }
    restore(step, rest.stored);
    ahead_.begin();
    if (Status summed = account_.resume(step, rest); !summed.ok()) return summed.error();
    Status there = keep_wanted(ValueKind::Stash, stage_, rest.stored, stashes_);
    if (there.ok()) there = keep_wanted(ValueKind::WeightWork, stage_, rest.stored, late_);
    if (!there.ok()) return there.error();
    for (const Value& value : rest.stored) {
      if (is_here(value)) continue;
      return invalid(
          cat(to_text(value), " is not at this worker, and the rest of the step needs it"));
    }
    return begin_rest();
  }
  StepOutcome outcome() override {
    return await_idle().ok() ? account_.sorted_outcome() : StepOutcome{};
  }
  int64_t version() const override { return version_; }
  Finality finality() override { return await_idle().ok() ? ahead_.finality() : Finality{}; }
  void start_over() override {
    if (await_idle().ok()) ahead_.start_over();
  }
  Status undo() override {
    if (Status idle = await_idle(); !idle.ok()) return idle;
    if (Status undone = take_back(); !undone.ok()) return undone;
    --version_;
    ahead_.set_final({.version = version_});
    return ok();
  }
  Status adopt(int64_t version) override {
    if (Status idle = await_idle(); !idle.ok()) return idle;
    version_ = version;
    forget_update();
    ahead_.set_final({.version = version_});
    return ok();
  }

 protected:
  // `clip` is the norm that gradients are clipped to; 0 = never.
  StageDevice(const Plan& plan, StageId stage, double clip)
      : stage_(stage),
        stage_count_(static_cast<int32_t>(plan.stages.size())),
        micro_count_(plan.schedule.micro_count),
        split_(plan.split_backward),
        recompute_(plan.stages[static_cast<size_t>(stage.value)].recompute),
        ahead_(clip),
        account_(stage) {}

  // Waits until no op is under way. Every call that must not overlap with an op begins with this.
  virtual Status await_idle() { return ok(); }
  // Puts the stored values, and no others, back into the store.
  virtual void restore(int64_t step, const std::vector<Value>& stored) = 0;
  // True when `value` is here or belongs to another stage. The rest of the step begins with it.
  virtual bool is_here(const Value& value) const = 0;
  // Begins the rest of a step, all of whose values are here. Returns what resume() returns.
  virtual Duration begin_rest() = 0;
  // Restores the parameters from before the last update; Invalid if there is no update to undo.
  virtual Status take_back() = 0;
  // The last update cannot be undone any more.
  virtual void forget_update() = 0;

  // Begins a step: no sums, no stashes.
  void begin_step(int64_t step) {
    stashes_.clear();
    late_.clear();
    account_.begin(step);
    ahead_.begin();
  }
  void note(const WholeNorm& norm, double rate) {
    StepOutcome& outcome = account_.outcome();
    outcome.gradient_norm = norm.norm;
    outcome.learning_rate = rate;
    outcome.finite = norm.skip == 0;
  }
  // The replica's iteration that runs, which data and dropout follow: in synchronous training the
  // step.
  Iteration iteration() const { return {account_.step()}; }
  bool first_stage() const { return stage_.value == 0; }
  bool last_stage() const { return stage_.value == stage_count_ - 1; }

  const StageId stage_;
  const int32_t stage_count_, micro_count_;
  const bool split_;
  const bool recompute_;              // see Stage
  std::atomic<int64_t> version_ = 0;  // may be read, to be reported, while an op runs
  AheadUpdate ahead_;
  StepAccount account_;
  std::map<MicroId, Stash> stashes_;
  std::map<MicroId, Late> late_;
};

}  // namespace tenuto
