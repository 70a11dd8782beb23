#include "engine/weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace tenuto {
namespace {

constexpr int64_t kAlignment = 16;  // floats: 64 bytes

int64_t aligned(int64_t count) { return (count + kAlignment - 1) / kAlignment * kAlignment; }

// Gives each weight of one kind its place, from `next` on; returns the end.
template <class Wanted>
int64_t place_weights(std::vector<Weight>& all, int64_t next, const Wanted& wanted) {
  for (Weight& weight : all) {
    if (!wanted(weight.card)) continue;
    weight.first = next;
    next += aligned(weight.card.count());
  }
  return next;
}

}  // namespace

Weights::Weights(const Job& job, const std::vector<ParameterCard>& cards, at::Device place)
    : optimizer_(job.optimizer.kind),
      momentum_(job.optimizer.momentum),
      bf16_(job.device.precision == "bf16") {
  for (const ParameterCard& card : cards) all_.push_back({card, 0, {}, {}, {}});
  decayed_end_ = place_weights(
      all_, 0, [](const ParameterCard& card) { return card.decays() && !card.shared; });
  shared_first_ = place_weights(
      all_, decayed_end_, [](const ParameterCard& card) { return !card.decays() && !card.shared; });
  count_ =
      place_weights(all_, shared_first_, [](const ParameterCard& card) { return card.shared; });

  const at::NoGradGuard guard;
  at::Tensor start = at::zeros({count_}, at::kFloat);
  for (const Weight& weight : all_) {
    initial_values(
        weight.card, job.seed,
        {start.mutable_data_ptr<float>() + weight.first, static_cast<size_t>(weight.card.count())});
  }
  values_ = start.to(place);
  gradients_ = at::zeros({count_}, values_.options());
  totals_ = at::zeros({count_}, values_.options());
  first_moment_ = at::zeros({count_}, values_.options());
  if (optimizer_ == "adamw") {
    second_moment_ = at::zeros({count_}, values_.options());
    scratch_ = at::empty({count_}, values_.options());
  }
  if (bf16_) low_ = at::empty({count_}, values_.options().dtype(at::kBFloat16));
  if (job.resilience.numerics == "reproducible") {
    fixed_sums_.resize(static_cast<size_t>(count_) + buckets());
    fixed_totals_.resize(fixed_sums_.size());
  }
  for (Weight& weight : all_) {
    const auto view = [&weight](const at::Tensor& flat) {
      return flat.narrow(0, weight.first, weight.card.count()).view(weight.card.shape).detach();
    };
    weight.value = view(values_).requires_grad_(true);
    weight.gradient = view(gradients_);
    if (bf16_) weight.low = view(low_);
    weight.value.mutable_grad() = weight.gradient;
  }
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

// The totals in fp32; not a number where some gradient was none, or too large.
void Weights::round_totals() {
  const std::span all(totals_.mutable_data_ptr<float>(), static_cast<size_t>(count_));
  for (size_t b = 0; b < buckets(); ++b) {
    const int part = buckets() == 1 ? -1 : static_cast<int>(b);
    const auto [first, end] = bucket(part);
    const auto [sums, place] = fixed_bucket(part);
    const auto into = all.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
    read(fixed_totals().subspan(sums, into.size()), into);
    const bool refused = fixed_totals_[place - 1].high != 0;
    if (refused) std::fill(into.begin(), into.end(), std::numeric_limits<float>::quiet_NaN());
  }
}

RunningNorm Weights::measure(int64_t micro_count, RunningNorm before) {
  const at::NoGradGuard guard;
  if (fixed()) round_totals();
  totals_.div_(micro_count);
  for (const Weight& weight : all_) {
    if (!weight.card.counted) continue;
    const at::Tensor total = totals_.narrow(0, weight.first, weight.card.count());
    const double norm =
        at::linalg_vector_norm(total, 2, at::OptionalIntArrayRef(), false, at::kDouble)
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
    kept_first_ = at::empty_like(first_moment_);
    if (second_moment_.defined()) kept_second_ = at::empty_like(second_moment_);
  }
  kept_values_.copy_(values_);
  kept_first_.copy_(first_moment_);
  if (second_moment_.defined()) kept_second_.copy_(second_moment_);
  kept_updates_ = updates_;
}

void Weights::take_back() {
  CHECK(kept_values_.defined(), "a back-up to go back to");
  const at::NoGradGuard guard;
  values_.copy_(kept_values_);
  first_moment_.copy_(kept_first_);
  if (second_moment_.defined()) second_moment_.copy_(kept_second_);
  updates_ = kept_updates_;
  refresh_low();
}

// The arithmetic of torch::optim's AdamW and SGD, number by number, on all tensors at once.
void Weights::keep_totals() {
  const at::NoGradGuard guard;
  if (!kept_totals_.defined()) kept_totals_ = at::empty_like(totals_);
  kept_totals_.copy_(totals_);
}

void Weights::update(const OptimizerSettings& optimizer, double rate, double clip, bool kept) {
  const at::NoGradGuard guard;
  at::Tensor& totals = kept ? kept_totals_ : totals_;
  if (clip < 1) totals.mul_(clip);
  ++updates_;
  const std::pair<int64_t, int64_t> decayed[] = {{0, decayed_end_}, {shared_first_, count_}};
  if (optimizer_ == "adamw") {
    for (const auto& [first, end] : decayed) {
      if (optimizer.weight_decay == 0) break;
      values_.narrow(0, first, end - first).mul_(1 - rate * optimizer.weight_decay);
    }
    const double steps = static_cast<double>(updates_);
    const double first_correction = 1 - std::pow(optimizer.beta1, steps);
    const double second_correction = 1 - std::pow(optimizer.beta2, steps);
    first_moment_.mul_(optimizer.beta1).add_(totals, 1 - optimizer.beta1);
    second_moment_.mul_(optimizer.beta2).addcmul_(totals, totals, 1 - optimizer.beta2);
    at::sqrt_out(scratch_, second_moment_);
    scratch_.div_(std::sqrt(second_correction)).add_(optimizer.epsilon);
    values_.addcdiv_(first_moment_, scratch_, -rate / first_correction);
  } else {
    for (const auto& [first, end] : decayed) {
      if (optimizer.weight_decay == 0) break;
      totals.narrow(0, first, end - first)
          .add_(values_.narrow(0, first, end - first), optimizer.weight_decay);
    }
    if (momentum_ == 0 || updates_ == 1) {
      first_moment_.copy_(totals);
    } else {
      first_moment_.mul_(momentum_).add_(totals);
    }
    values_.add_(first_moment_, -rate);
  }
  refresh_low();
}

void Weights::refresh_low() {
  if (!bf16_) return;
  const at::NoGradGuard guard;
  low_.copy_(values_);
}

}  // namespace tenuto
