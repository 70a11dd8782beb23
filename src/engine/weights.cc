#include "engine/weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace tenuto {
namespace {

// Torch takes square roots on the CPU with oneMKL, which before 2025.0 picks a function's kernel in
// the first call. Threads that make this call at the same time may get a kernel with only a few
// correct digits, and replicas then differ. So one thread makes the first call alone.
// Source: https://github.com/pytorch/pytorch/issues/188792.
void take_square_roots(at::Tensor& roots, const at::Tensor& of) {
  [[maybe_unused]] static const bool kernel_is_picked = at::ones({1}).sqrt_().defined();
  at::sqrt_out(roots, of);
}

// The names that an optimizer's tensors have in a shard.
std::vector<std::string> moment_names(const std::string& optimizer, const ModuleOptimizer* rule) {
  if (rule != nullptr) return rule->tensors();
  if (optimizer == "adamw") return {"exp_avg", "exp_avg_sq"};
  return {"momentum"};
}

}  // namespace

Weights::Weights(const Job& job, const std::vector<ParameterCard>& cards, at::Device place,
                 const std::vector<at::Tensor>& own, std::unique_ptr<ModuleOptimizer> rule)
    : optimizer_(rule != nullptr ? job.optimizer.rule : job.optimizer.kind),
      momentum_(job.optimizer.momentum),
      rule_(std::move(rule)),
      // A module's own tensors are cast by autocast, which must see them as they are.
      bf16_(job.device.precision == "bf16" && own.empty()),
      seed_(job.seed) {
  const ParameterLayout layout = layout_of(cards);
  for (size_t i = 0; i < cards.size(); ++i) {
    all_.push_back({cards[i], layout.first[i], {}, {}, {}});
  }
  decayed_end_ = layout.decayed_end;
  shared_first_ = layout.shared_first;
  count_ = layout.count;

  const at::NoGradGuard guard;
  at::Tensor start = at::empty({count_}, at::kFloat);
  fill_initial({start.mutable_data_ptr<float>(), static_cast<size_t>(count_)});
  CHECK(own.empty() || own.size() == all_.size(), "a tensor for each card");
  for (size_t i = 0; i < own.size(); ++i) {
    start.narrow(0, all_[i].first, all_[i].card.count()).copy_(own[i].detach().reshape({-1}));
  }
  // Where others keep the parameters, they begin with the values of the modules.
  if (!own.empty() && job.is_served()) initial_ = start.clone();
  values_ = start.to(place);
  gradients_ = at::zeros({count_}, values_.options());
  mean_ = at::zeros({count_}, values_.options());
  moment_names_ = moment_names(optimizer_, rule_.get());
  for (size_t i = 0; i < moment_names_.size(); ++i) {
    moments_.push_back(at::zeros({count_}, values_.options()));
  }
  if (bf16_) low_ = at::empty({count_}, values_.options().dtype(at::kBFloat16));
  if (job.resilience.numerics == "reproducible") {
    fixed_sums_.resize(static_cast<size_t>(count_) + buckets());
    fixed_totals_.resize(fixed_sums_.size());
  } else {
    totals_ = at::zeros({count_}, values_.options());
  }
  for (Weight& weight : all_) {
    const auto view = [&weight](const at::Tensor& flat) {
      return flat.narrow(0, weight.first, weight.card.count()).view(weight.card.shape).detach();
    };
    weight.value = view(values_);
    if (!own.empty()) {
      // The module's tensor stays the same variable, whoever refers to it, with other memory.
      at::Tensor adopted = own[static_cast<size_t>(&weight - all_.data())];
      adopted.set_data(weight.value);
      weight.value = adopted;
    }
    weight.value.requires_grad_(weight.card.trained);
    weight.gradient = view(gradients_);
    if (bf16_) weight.low = view(low_);
    weight.value.mutable_grad() = weight.gradient;
  }
  refresh_low();
  if (rule_ != nullptr) bind_rule();
}

// Gives the rule views of the flat tensors, one of each for each trained parameter.
void Weights::bind_rule() {
  std::vector<OptimizedParameter> parameters;
  for (const Weight& weight : all_) {
    if (!weight.card.trained) continue;
    const auto view = [&weight](const at::Tensor& flat) {
      return flat.narrow(0, weight.first, weight.card.count()).view(weight.card.shape).detach();
    };
    OptimizedParameter one{view(values_), {}};
    for (const at::Tensor& moment : moments_) one.state.push_back(view(moment));
    parameters.push_back(std::move(one));
  }
  rule_->bind(parameters);
}

void Weights::fill_initial(std::span<float> into) const {
  if (initial_.defined()) {
    const std::span own(initial_.const_data_ptr<float>(), static_cast<size_t>(count_));
    std::copy(own.begin(), own.end(), into.begin());
    return;
  }
  std::fill(into.begin(), into.end(), 0.0F);
  for (const Weight& weight : all_) {
    initial_values(
        weight.card, seed_,
        into.subspan(static_cast<size_t>(weight.first), static_cast<size_t>(weight.card.count())));
  }
}

void Weights::set_values(std::span<const float> from) {
  const at::NoGradGuard guard;
  values_.copy_(at::from_blob(const_cast<float*>(from.data()), {count_}, at::kFloat));
  refresh_low();
}

std::pair<int64_t, int64_t> Weights::bucket(int part) const {
  if (part < 0) return {0, count_};
  return part == 0 ? std::pair{int64_t{0}, shared_first_} : std::pair{shared_first_, count_};
}

std::pair<size_t, size_t> Weights::fixed_bucket(int part) const {
  const auto [first, end] = bucket(part);
  const auto before = static_cast<size_t>(part > 0 ? 1 : 0);
  return {static_cast<size_t>(first) + before, static_cast<size_t>(end) + before + 1};
}

void Weights::clear_gradients() {
  const at::NoGradGuard guard;
  gradients_.zero_();
  std::fill(fixed_sums_.begin(), fixed_sums_.end(), FixedSum{});
}

void Weights::fold() {
  const at::NoGradGuard guard;
  const std::span all(gradients_.const_data_ptr<float>(), static_cast<size_t>(count_));
  for (size_t b = 0; b < buckets(); ++b) {
    const int part = buckets() == 1 ? -1 : static_cast<int>(b);
    const auto [first, end] = bucket(part);
    const auto [sums, place] = fixed_bucket(part);
    const auto count = static_cast<size_t>(end - first);
    add_to(fixed_sums().subspan(sums, count), all.subspan(static_cast<size_t>(first), count),
           fixed_sums_[place - 1].high);
  }
  gradients_.zero_();
}

// Sets `into`, which is flat, to fixed sums or totals in fp32. A bucket becomes NaN if one of its
// gradients did not fit.
void Weights::round(std::span<const FixedSum> sums, std::span<float> into) const {
  for (size_t b = 0; b < buckets(); ++b) {
    const int part = buckets() == 1 ? -1 : static_cast<int>(b);
    const auto [first, end] = bucket(part);
    const auto [place, fixed_end] = fixed_bucket(part);
    const auto rounded = into.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
    read(sums.subspan(place, rounded.size()), rounded);
    const bool refused = sums[fixed_end - 1].high != 0;
    if (refused) {
      std::fill(rounded.begin(), rounded.end(), std::numeric_limits<float>::quiet_NaN());
    }
  }
}

void Weights::read_sums(std::span<float> into) const {
  const at::NoGradGuard guard;
  if (fixed()) return round(fixed_sums_, into);
  at::from_blob(into.data(), {count_}, at::kFloat).copy_(gradients_);
}

void Weights::change_totals() {
  if (fixed()) {
    fixed_before_.resize(fixed_totals_.size());
    std::swap(fixed_totals_, fixed_before_);
    return;
  }
  if (!totals_before_.defined()) totals_before_ = at::zeros_like(totals_);
  std::swap(totals_, totals_before_);
}

void Weights::leave_apart(bool apart) {
  for (Weight& weight : all_) weight.value.mutable_grad() = apart ? at::Tensor() : weight.gradient;
}

std::vector<WeightGradient> Weights::take_apart() {
  std::vector<WeightGradient> made;
  for (Weight& weight : all_) {
    at::Tensor& left = weight.value.mutable_grad();
    if (left.defined()) made.push_back({&weight, std::move(left)});
    left = at::Tensor();
  }
  return made;
}

void Weights::add(const std::vector<WeightGradient>& made) {
  const at::NoGradGuard guard;
  for (const WeightGradient& one : made) one.weight->gradient.add_(one.value);
}

void Weights::divide(int64_t micro_count) {
  const at::NoGradGuard guard;
  if (fixed()) {
    round(fixed_totals_, {mean_.mutable_data_ptr<float>(), static_cast<size_t>(count_)});
    mean_.div_(micro_count);
  } else {
    at::div_out(mean_, totals_, at::scalar_tensor(micro_count));
  }
}

RunningNorm Weights::measure(RunningNorm before) const {
  const at::NoGradGuard guard;
  for (const Weight& weight : all_) {
    if (!weight.card.counted) continue;
    const at::Tensor mean = mean_.narrow(0, weight.first, weight.card.count());
    const double norm =
        at::linalg_vector_norm(mean, 2, at::OptionalIntArrayRef(), false, at::kDouble)
            .item<double>();
    if (std::isfinite(norm)) {
      before.squares.add(norm * norm);
    } else {
      ++before.bad;
    }
  }
  return before;
}

void Weights::back_up() {
  const at::NoGradGuard guard;
  if (!kept_values_.defined()) {
    kept_values_ = at::empty_like(values_);
    for (const at::Tensor& moment : moments_) kept_moments_.push_back(at::empty_like(moment));
  }
  kept_values_.copy_(values_);
  for (size_t i = 0; i < moments_.size(); ++i) kept_moments_[i].copy_(moments_[i]);
  kept_updates_ = updates_;
  kept_counter_ = values_.unsafeGetTensorImpl()->version_counter().current_version();
}

void Weights::take_back() {
  CHECK(kept_values_.defined(), "a back-up to go back to");
  const at::NoGradGuard guard;
  values_.copy_(kept_values_);
  for (size_t i = 0; i < moments_.size(); ++i) moments_[i].copy_(kept_moments_[i]);
  updates_ = kept_updates_;
  // The values are again those that a forward may have saved. Autograd counts the changes of a
  // tensor to detect that saved values are stale, so its count is set back, too.
  c10::VariableVersion counter = values_.unsafeGetTensorImpl()->version_counter();
  counter.set_version(kept_counter_);
  refresh_low();
}

void Weights::keep_mean() {
  const at::NoGradGuard guard;
  if (!kept_mean_.defined()) kept_mean_ = at::empty_like(mean_);
  kept_mean_.copy_(mean_);
}

double Weights::rate(const Job& job, int64_t step) const {
  if (rule_ != nullptr) return rule_->rate(step);
  return learning_rate(job.optimizer, static_cast<double>(step), job.steps);
}

void Weights::update(const Job& job, int64_t step, double clip, bool kept) {
  const at::NoGradGuard guard;
  at::Tensor& mean = kept ? kept_mean_ : mean_;
  if (clip < 1) mean.mul_(clip);
  ++updates_;
  if (rule_ != nullptr) {
    update_by_rule(step, mean);
  } else if (optimizer_ == "adamw") {
    update_adamw(job.optimizer, rate(job, step), mean);
  } else {
    update_sgd(job.optimizer, rate(job, step), mean);
  }
  refresh_low();
}

void Weights::update_by_rule(int64_t step, at::Tensor& mean) {
  std::vector<at::Tensor> gradients;
  for (const Weight& weight : all_) {
    if (!weight.card.trained) continue;
    gradients.push_back(mean.narrow(0, weight.first, weight.card.count()).view(weight.card.shape));
  }
  rule_->update(step, updates_, gradients);
}

// Computes what torch::optim's AdamW computes, on all tensors at once.
void Weights::update_adamw(const OptimizerSettings& optimizer, double rate,
                           const at::Tensor& mean) {
  for (const auto& [first, end] : decayed()) {
    if (optimizer.weight_decay == 0) break;
    values_.narrow(0, first, end - first).mul_(1 - rate * optimizer.weight_decay);
  }
  const double steps = static_cast<double>(updates_);
  const double first_correction = 1 - std::pow(optimizer.beta1, steps);
  const double second_correction = 1 - std::pow(optimizer.beta2, steps);
  moments_[0].mul_(optimizer.beta1).add_(mean, 1 - optimizer.beta1);
  moments_[1].mul_(optimizer.beta2).addcmul_(mean, mean, 1 - optimizer.beta2);
  at::Tensor& denominator = mean_;  // the mean is not needed any more
  take_square_roots(denominator, moments_[1]);
  denominator.div_(std::sqrt(second_correction)).add_(optimizer.epsilon);
  values_.addcdiv_(moments_[0], denominator, -rate / first_correction);
}

// Computes what torch::optim's SGD computes, on all tensors at once.
void Weights::update_sgd(const OptimizerSettings& optimizer, double rate, const at::Tensor& mean) {
  for (const auto& [first, end] : decayed()) {
    if (optimizer.weight_decay == 0) break;
    mean.narrow(0, first, end - first)
        .add_(values_.narrow(0, first, end - first), optimizer.weight_decay);
  }
  if (momentum_ == 0 || updates_ == 1) {
    moments_[0].copy_(mean);
  } else {
    moments_[0].mul_(momentum_).add_(mean);
  }
  values_.add_(moments_[0], -rate);
}

void Weights::refresh_low() {
  if (!bf16_) return;
  const at::NoGradGuard guard;
  low_.copy_(values_);
}

}  // namespace tenuto
