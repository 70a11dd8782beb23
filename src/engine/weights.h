// One stage's parameters, their gradients and the optimizer's state, each in one flat fp32 tensor:
// one tensor to reduce, one to clip, one to back up. Private to engine/.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fixed_sum.h"
#include "base/result.h"
#include "engine/module_optimizer.h"
#include "runtime/norm.h"
#include "runtime/state_copy.h"
#include "world/job.h"
#include "world/parameters.h"

namespace tenuto {

// One parameter: views into the flat tensors.
struct Weight {
  ParameterCard card;
  int64_t first = 0;    // element in the flat tensors
  at::Tensor value;     // leaf; requires grad if it is trained
  at::Tensor gradient;  // the worker's own sum of the step
  at::Tensor low;       // the value in bf16; undefined in fp32
};

// A gradient of one micro-batch that has not been added to a sum yet.
struct WeightGradient {
  const Weight* weight = nullptr;
  at::Tensor value;
};

// All parameters and buffers of one stage. ParameterLayout says where each lies in the flat
// tensors.
class Weights {
 public:
  // Initialised from the job's seed, or with the values of `own`, see StageModule::own_tensors.
  //
  // Shapes: `own` is empty or has a tensor of the card's shape for each card
  // Requires: a `rule`, the optimizer of the module, if and only if optimizer.kind is "torch"
  Weights(const Job& job, const std::vector<ParameterCard>& cards, at::Device place,
          const std::vector<at::Tensor>& own = {}, std::unique_ptr<ModuleOptimizer> rule = nullptr);
  // Elements of the flat tensors, unused ones included.
  int64_t count() const { return count_; }
  // Those that weight decay applies to, which come first; without a shared weight.
  int64_t decayed_count() const { return decayed_end_; }
  // Fills in the values that the job's seed or the modules give, and 0 for unused elements.
  //
  // Shapes: `into` has count() elements
  void fill_initial(std::span<float> into) const;
  // Sets the values; the optimizer's state stays as it is.
  //
  // Shapes: `from` has count() elements
  void set_values(std::span<const float> from);
  // All weights, in the order of the whole model.
  const std::vector<Weight>& all() const { return all_; }
  // The elements [first, end) of a gradient bucket: -1 the whole, 0 all but the shared weight, 1
  // the shared weight.
  std::pair<int64_t, int64_t> bucket(int part) const;
  // The same for fixed sums. The last element of each bucket counts the gradients that were too
  // large for fixed point or not finite.
  std::pair<size_t, size_t> fixed_bucket(int part) const;
  // True when sums are made in fixed point (base/fixed_sum.h): gradients() then hold what has been
  // added since the last fold().
  bool fixed() const { return !fixed_sums_.empty(); }
  // Adds the gradients to the fixed sums and sets them to zero.
  void fold();
  // The worker's own fixed sums and their totals over the group.
  std::span<FixedSum> fixed_sums() { return fixed_sums_; }
  std::span<FixedSum> fixed_totals() { return fixed_totals_; }
  // The worker's own gradient sums and their totals over the group, flat; totals() is undefined for
  // fixed sums.
  const at::Tensor& gradients() const { return gradients_; }
  const at::Tensor& totals() const { return totals_; }
  // Copies the worker's own sums, fixed ones after rounding them.
  //
  // Shapes: `into` has count() elements
  void read_sums(std::span<float> into) const;
  // Swaps the totals, fixed ones too, with those of the step before: a step may be resumed after
  // the next one has begun. The first call allocates the second set.
  void change_totals();
  // Sets the gradient sums to zero.
  void clear_gradients();
  // With true, the next backward puts its gradients into fresh tensors apart from the sums; with
  // false, backwards add their gradients to the sums.
  void leave_apart(bool apart);
  // Takes out the gradients that a backward has put apart from the sums.
  std::vector<WeightGradient> take_apart();
  // Adds such gradients to the sums.
  void add(const std::vector<WeightGradient>& made);
  // The mean gradient: the totals divided by `micro_count`, fixed ones after rounding them. The
  // totals stay as they are.
  void divide(int64_t micro_count);
  // Adds the squares of the mean, tensor by tensor.
  RunningNorm measure(RunningNorm before) const;
  // Keeps a copy of parameters and optimizer state for take_back.
  void back_up();
  // Keeps a copy of the mean: an update destroys the mean and the next step overwrites it.
  void keep_mean();
  // The learning rate of a step.
  double rate(const Job& job, int64_t step) const;
  // The optimizer's update of a step from the mean, or from the kept copy of it. That mean is first
  // scaled by `clip` (at most 1) and is not valid afterwards.
  void update(const Job& job, int64_t step, double clip, bool kept = false);
  // Restores what back_up kept. A backward whose forward used the restored values may run after it.
  void take_back();
  // Writes one shard; its metadata holds `version`.
  Status save(const std::string& path, int64_t version) const;
  // Copies what such a shard holds.
  StateCopy copy(int64_t version) const;
  // Reads all that this stage needs; Corrupt/Job when a shard is not of `version`, Invalid/Job for
  // a missing or misshapen tensor. Nothing is changed unless all could be read.
  Status load(const std::vector<std::string>& paths, int64_t version);
  // Bytes of the parameters and optimizer state, which are units of equal size. A part is some
  // neighbouring units. The first unit is the number of updates; every other unit is one element:
  // its value and its entry in each of the optimizer's tensors.
  //
  // A worker that has received a unit and then takes every update that the donor takes keeps that
  // unit right, whatever else it has not received yet. The reason: update() computes an element
  // from its mean gradient, the rate and the clip factor, which all members have alike; from the
  // number of updates, which is sent first; and from the element's own unit. To send all values
  // first and the optimizer's tensors later, or the other way round, would be wrong: the update of
  // a value reads its moments, and the update of SGD's momentum reads the value, because of weight
  // decay. An optimizer whose update of an element reads the state of other elements would need
  // other units.
  int64_t state_bytes() const;
  // Bytes of one unit.
  int64_t state_unit() const;
  // Copies the units from byte `first` on: each tensor's elements, one tensor after the other.
  // Requires: first and the size are multiples of state_unit(), first + size <= state_bytes()
  void read_state(int64_t first, std::span<std::byte> to) const;
  // Writes a part that read_state made with the same `first` and size.
  void write_state(int64_t first, std::span<const std::byte> from);
  // Reads only the values, of any version: for sampling.
  Status load_values(const std::vector<std::string>& paths);

 private:
  // The optimizer's flat tensors and their names in a shard.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  // The optimizer's tensors and the values in the memory of the host.
  std::vector<std::pair<std::string, at::Tensor>> flats_on_host() const;
  StateTensors tensors_of(const std::vector<std::pair<std::string, at::Tensor>>& flats,
                          int64_t version) const;
  Status read_into(const std::vector<std::string>& paths, int64_t version, bool with_state);
  void refresh_low();
  void bind_rule();
  void update_by_rule(int64_t step, at::Tensor& mean);
  void update_adamw(const OptimizerSettings& optimizer, double rate, const at::Tensor& mean);
  void update_sgd(const OptimizerSettings& optimizer, double rate, const at::Tensor& mean);
  // The elements that weight decay applies to, as ranges [first, end).
  std::array<std::pair<int64_t, int64_t>, 2> decayed() const {
    return {{{0, decayed_end_}, {shared_first_, count_}}};
  }
  void round(std::span<const FixedSum> sums, std::span<float> into) const;
  // The number of buckets: a shared weight has the second one.
  size_t buckets() const { return shared_first_ < count_ ? 2 : 1; }
  // The flat tensors that hold the state: the values, then the optimizer's.
  std::vector<at::Tensor> state_rows() const;
  int64_t row_count() const;
  struct Part;
  Part part_of(int64_t first, int64_t size) const;

  std::string optimizer_;  // as a shard's metadata have it
  double momentum_;
  const std::unique_ptr<ModuleOptimizer> rule_;  // none: adamw or sgd
  bool bf16_;
  int64_t seed_;
  std::vector<Weight> all_;
  int64_t decayed_end_ = 0;  // weight decay: for [0, decayed_end_) and the shared weight
  int64_t shared_first_ = 0, count_ = 0;
  at::Tensor values_, gradients_, low_;
  at::Tensor totals_, totals_before_;                               // for fast numerics
  std::vector<FixedSum> fixed_sums_, fixed_totals_, fixed_before_;  // for reproducible numerics
  std::vector<std::string> moment_names_;  // of the optimizer's tensors, in a shard
  std::vector<at::Tensor> moments_;
  at::Tensor initial_;  // of a module's own values, if others keep the parameters
  at::Tensor mean_;     // adamw's update overwrites it with the denominator
  at::Tensor kept_values_, kept_mean_;
  std::vector<at::Tensor> kept_moments_;
  uint32_t kept_counter_ = 0;               // autograd's count of changes to the values
  int64_t updates_ = 0, kept_updates_ = 0;  // skipped steps do not count
};

}  // namespace tenuto
