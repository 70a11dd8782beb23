// One stage of a paced device. Private to the paced device: paced.cc has its interface to the
// worker, paced_ops.cc its ops.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rehearsal/paced_parts.h"
#include "runtime/stage_device.h"

namespace tenuto {

// What Forward leaves for the backward of one micro-batch.
struct PacedStash {
  Floats x, y, dy;
};

// One op with all that its mathematics touches.
struct PacedWork {
  Op op;
  Ticket ticket{};
  Duration start{}, length{};
  const Floats* input = nullptr;     // activation before
  const Floats* gradient = nullptr;  // gradient after
  Floats* output = nullptr;          // activation or gradient of this stage
  PacedStash* stash = nullptr;
  // For a measure, the norm over the stages measured before; for a StepAhead, the norm up to its
  // own stage; for a Step or a Validate, the clip decision.
  const Floats* norm = nullptr;
  Floats* measured = nullptr;         // what a measure or a Validate makes
  std::vector<const Floats*> totals;  // measures and steps: one per bucket
};

// One stage. The values between its ops are in `common`.
class PacedStage : public StageDevice<PacedDevice, PacedStash, PacedStash> {
 public:
  PacedStage(const Job& job, const Plan& plan, StageId stage, std::shared_ptr<PacedCommon> common);

  Result<Duration> begin(int64_t step) override;
  void keep(const Value& value) override { common_->keep(value); }
  void drop(const Value& value) override;
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override;
  Result<std::span<const std::byte>> bytes(const Value& value) override;
  Result<std::span<std::byte>> allocate(const Value& value) override;
  Status reduced(const Value& total) override;
  void discard(const Value& value) override;
  Status save(StageId stage, const std::string& path) override;
  Result<StateCopy> copy_state(StageId stage) override;
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
    forget_update();
    return ok();
  }
  Lag lag() const override;
  void count_lag(bool counts) override;
  void set_clock(Duration moment) override { common_->now = moment; }
  void set_speed(double speed) override { common_->speed = speed; }
  std::vector<float> weights() const override { return weights_; }

 private:
  void restore(int64_t step, const std::vector<Value>& stored) override {
    common_->kept.resume(step, stored, common_->store);
  }
  bool is_here(const Value& value) const override;
  Duration begin_rest() override;
  Status take_back() override;
  void forget_update() override { before_.reset(); }

  Duration length_of(OpKind kind) const;
  Duration set_clock_on(bool leads);
  size_t size_of(const Value& value) const;
  const Bucket* bucket(int16_t part) const;
  Result<const Floats*> find(const Value& value) const;
  void report(const PacedWork& work, Status status);

  // Find what the op reads and allocate what it writes.
  Status prepare(PacedWork& work);
  Status prepare_forward(PacedWork& work);
  Status prepare_backward(PacedWork& work);
  Status prepare_update(PacedWork& work);
  void prepare_void(PacedWork& work);
  Status read(const Value& value, const Floats*& place) const;
  Floats* make(const Value& value) { return common_->make(value, size_of(value)); }

  Status compute(PacedWork& work);
  Status compute_forward(PacedWork& work);
  Status compute_backward(PacedWork& work);
  void sum_up(const PacedWork& work);
  void compute_measure(PacedWork& work);
  void compute_step(PacedWork& work);
  void compute_step_ahead(PacedWork& work);
  void compute_validate(PacedWork& work);
  void compute_void(PacedWork& work);
  void update(const std::vector<const Floats*>& totals, double factor);

  const std::shared_ptr<PacedCommon> common_;
  const StageCost cost_;

  Floats weights_, sums_;
  std::optional<Floats> before_;     // the weights before the last update
  std::vector<Floats> kept_totals_;  // of the last StepAhead, one per bucket
  std::vector<Bucket> buckets_;
  std::vector<PacedStash> spare_stashes_;
};

}  // namespace tenuto
