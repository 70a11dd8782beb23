// One stage of a worker: runs the ops of its StageModule on a compute thread of its own. Private to
// engine/.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/boundary.h"
#include "engine/call_slot.h"
#include "engine/data.h"
#include "engine/device.h"
#include "engine/divert.h"
#include "engine/growing.h"
#include "engine/stage_module.h"
#include "engine/sums.h"
#include "engine/value_store.h"
#include "engine/weights.h"
#include "ir/plan.h"
#include "runtime/copies.h"
#include "runtime/given_parameters.h"
#include "runtime/stage_device.h"

namespace tenuto {

// What a split backward leaves to be added to the sums.
struct LateWork {
  DeferredWork products;             // gradients that are not computed yet
  std::vector<WeightGradient> made;  // gradients of the other weights
};

// What a forward keeps for its backward. A stage that recomputes keeps only its inputs, the first
// stage nothing; its backward runs the forward again and fills in the rest.
struct Stash {
  Tensors inputs;                  // leaves, floating-point; none at the first stage
  Tensors outputs;                 // floating-point; at the last stage the loss
  std::unique_ptr<LateWork> late;  // the graph points to it; none: the backward is not split
};

// What the stages of a worker share.
struct StageSurroundings {
  TorchDevice device;
  std::unique_ptr<Data> data;  // none: neither the first nor the last stage is here
  std::shared_ptr<ValueStore> store;
  std::shared_ptr<Copies> copies;        // of the store; none: its values are in the host's memory
  std::map<Value, Boundary> boundaries;  // of activations and gradients, by kind and stage
};

// What computes a stage, and what updates its parameters.
struct StageCode {
  std::unique_ptr<StageModule> module;
  std::unique_ptr<ModuleOptimizer> rule;  // if and only if optimizer.kind is "torch"
};

// An error that ends the worker's part in a step.
inline Error failed(const std::string& what) { return {Code::Invalid, Reach::Worker, what}; }

// The device of one stage.
class StageEngine : public StageDevice<Device, Stash, std::unique_ptr<LateWork>>,
                    private GradientGrowth,
                    private GivenParameters {
 public:
  StageEngine(const Job& job, const Plan& plan, StageId stage, StageCode code,
              std::shared_ptr<const StageSurroundings> shared, Mailbox& mailbox);
  ~StageEngine() override;

  Result<Duration> begin(int64_t step) override;
  void keep(const Value& value) override;
  void drop(const Value& value) override;
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override;
  Result<std::span<const std::byte>> bytes(const Value& value) override;
  void set_speed(double speed) override { speed_ = speed; }
  Copies* copies() override { return shared_->copies.get(); }
  GradientGrowth* growth() override { return growth_.parts.empty() ? nullptr : this; }
  GivenParameters* given_parameters() override { return this; }
  Result<std::span<std::byte>> allocate(const Value& value) override;
  Element sum_elements() const override {
    return weights_.fixed() ? Element::Int64 : Element::Float32;
  }
  Status reduced(const Value& total) override;
  void discard(const Value& value) override;
  Status save(StageId stage, const std::string& path) override;
  Result<StateCopy> copy_state(StageId stage) override;
  Status load(const std::vector<std::string>& paths, int64_t version) override;
  int64_t state_bytes(StageId) const override { return weights_.state_bytes(); }
  int64_t state_unit(StageId) const override { return weights_.state_unit(); }
  Status read_state(StageId stage, int64_t first, std::span<std::byte> to) override;
  Status write_state(StageId stage, int64_t first, std::span<const std::byte> from) override;

 private:
  // A call for the compute thread.
  struct Call {
    Op op;
    Ticket ticket;
    bool reports = false;  // which parts of the sum are complete meanwhile
  };
  // How the last Step can be taken back.
  enum class Undo { None, Skipped, Kept };

  SumGrowth growth_of(StageId) const override { return growth_; }
  void report_growth(StageId) override { reports_next_ = true; }
  int64_t parameter_count(StageId) const override { return weights_.count(); }
  int64_t decayed_count(StageId) const override { return weights_.decayed_count(); }
  Status initial_parameters(StageId stage, std::span<float> into) override;
  Status set_parameters(StageId stage, std::span<const float> from) override;
  Status read_gradients(StageId stage, std::span<float> into) override;
  Status check_elements(StageId stage, size_t elements) const;
  void watch_weights();
  void note_added(const Weight& weight);
  void note_made(const LateWork& late);

  void serve();
  Status run(const Op& op);
  Status forward(const Op& op, bool keep);
  Result<Tensors> inputs_of(const Op& op);
  // What a pass of the module gives.
  struct Passed {
    Tensors outputs;      // at the last stage the loss
    at::Tensor accuracy;  // of Evaluate at the last stage, where the module knows it
  };
  Passed pass(const Op& op, Tensors inputs, bool keep, Stash& stash);
  void recompute(const Op& op, Stash& stash);
  Status backward_input(const Op& op);
  Status backward_weight(const Op& op);
  void divide();
  Status measure(OpKind kind);
  Status step();
  Status step_ahead();
  Status validate();
  Status run_void(const Op& op);
  void take(double clip, bool kept);
  double rate_of(int64_t step) const;

  Pass pass_of(const Op& op, bool keep, LateWork* late) const;
  std::unique_ptr<DivertScope> diverted_to(LateWork* late) const;
  Draw draw_of(const Op& op) const;
  const Boundary& boundary_of(const Value& value) const;
  Tensors on_device(Tensors tensors) const;
  void clear_once();
  Status await_idle() override;
  void restore(int64_t step, const std::vector<Value>& stored) override;
  bool is_here(const Value& value) const override;
  Duration begin_rest() override;
  Status take_back() override;
  void forget_update() override { undo_ = Undo::None; }

  Status put(const Value& value, const Tensors& tensors);
  Result<Tensors> take(const Value& value);
  template <class Form>
  void put_form(const Value& value, const Form& form);
  template <class Form>
  Result<Form> take_form(const Value& value);

  const Job job_;
  const bool keeps_back_up_;
  const std::shared_ptr<const StageSurroundings> shared_;
  const TorchDevice& device_;
  ValueStore& store_;
  Mailbox& mailbox_;
  const std::unique_ptr<StageModule> module_;
  Weights weights_;
  Sums sums_;

  std::atomic<double> speed_ = 1;  // read by the compute thread
  Undo undo_ = Undo::None;
  at::Tensor scratch_;
  const SumGrowth growth_;
  std::vector<size_t> parts_;  // by weight: its part of the growth
  GrowingParts growing_;
  bool reports_next_ = false;     // the next op that is started
  Ticket reporting_ = kNoTicket;  // of the op under way, if it reports; the compute thread's
  bool sums_clear_ = false;
  bool divided_ = false;  // the mean has been computed from the present totals

  CallSlot<Call> slot_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tenuto
