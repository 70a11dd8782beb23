#include "engine/sums.h"

#include <utility>

namespace tenuto {

void Sums::begin(int64_t step) {
  if (step != step_) {
    const bool stay = step == step_ + 1 && !here_.empty();
    if (stay) change();
    before_ = stay ? std::move(here_) : std::set<Value>();
    step_ = step;
  }
  here_.clear();
  own_ = at::Tensor();
}

void Sums::resume(int64_t step) {
  if (step != step_) {
    const bool behind = step == step_ - 1 && !before_.empty();
    if (behind) change();
    here_ = behind ? std::move(before_) : std::set<Value>();
    step_ = step;
  }
  before_.clear();
  own_ = at::Tensor();
}

// Swaps the buffers of the two steps.
void Sums::change() {
  weights_.change_totals();
  std::swap(total_, total_before_);
}

std::span<const std::byte> Sums::own(int part) {
  if (weights_.fixed()) return std::as_bytes(fixed_part(weights_.fixed_sums(), part));
  const at::Tensor& sums = weights_.gradients();
  if (device_.accelerator() && !own_.defined()) {
    own_ = device_.allocate_host(sums.sizes(), at::kFloat);
    own_.copy_(sums);
  }
  const auto [first, end] = weights_.bucket(part);
  const at::Tensor bucket = (own_.defined() ? own_ : sums).narrow(0, first, end - first);
  return {static_cast<const std::byte*>(bucket.const_data_ptr()), bucket.nbytes()};
}

std::span<std::byte> Sums::allocate(const Value& total) {
  here_.insert(total);
  return part_of(total.part);
}

std::span<std::byte> Sums::part_of(int part) {
  if (weights_.fixed()) return std::as_writable_bytes(fixed_part(weights_.fixed_totals(), part));
  if (device_.accelerator() && !total_.defined()) {
    total_ = device_.allocate_host(weights_.totals().sizes(), at::kFloat);
  }
  const auto [first, end] = weights_.bucket(part);
  const at::Tensor& totals = total_.defined() ? total_ : weights_.totals();
  const at::Tensor bucket = totals.narrow(0, first, end - first);
  return {static_cast<std::byte*>(bucket.mutable_data_ptr()), bucket.nbytes()};
}

void Sums::upload() {
  if (device_.accelerator()) weights_.totals().copy_(total_, /*non_blocking=*/true);
}

// A bucket of fixed sums or totals.
std::span<FixedSum> Sums::fixed_part(std::span<FixedSum> all, int part) const {
  const auto [first, end] = weights_.fixed_bucket(part);
  return all.subspan(first, end - first);
}

}  // namespace tenuto
