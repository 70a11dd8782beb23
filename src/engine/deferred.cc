#include "engine/deferred.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <cstddef>
#include <map>
#include <set>

namespace tenuto {
namespace {

// A sum of gradients, some of which have not been computed yet.
struct PartialSum {
  at::Tensor total;
  size_t missing = 0;

  // Adds one. Returns whether it was the last one. A term may lie in the scratch, so the first of
  // several is copied, in `type`.
  bool add(const at::Tensor& term, at::ScalarType type) {
    --missing;
    if (total.defined()) {
      total = at::add(total, term);
    } else {
      total = missing > 0 ? term.to(type, /*non_blocking=*/false, /*copy=*/true) : term;
    }
    return missing == 0;
  }
};

// The sums of one micro-batch: of each cast, and of each weight.
class MicroSums {
 public:
  explicit MicroSums(const DeferredWork& work) {
    for (const DeferredGradients& one : work) {
      for (const WeightUse& use : {one.weight, one.bias}) {
        if (use.weight == nullptr) continue;
        if (casts_[{use.weight, use.cast}].missing++ == 0) ++weights_[use.weight].missing;
      }
    }
  }
  // Adds one gradient. Returns whether nothing more will be added to the weight.
  bool add(const WeightUse& use, const at::Tensor& gradient) {
    PartialSum& cast = casts_[{use.weight, use.cast}];
    PartialSum& weight = weights_[use.weight];
    // Uses without a cast meet at the weight itself, each in the weight's type.
    const at::ScalarType type = use.cast == 0 ? at::kFloat : gradient.scalar_type();
    if (!cast.add(gradient, type)) return false;
    const bool whole = weight.add(cast.total, at::kFloat);
    cast.total = at::Tensor();
    if (!whole) return false;
    use.weight->gradient.add_(weight.total);
    weight.total = at::Tensor();
    return true;
  }

 private:
  std::map<std::pair<const Weight*, int64_t>, PartialSum> casts_;
  std::map<const Weight*, PartialSum> weights_;
};

}  // namespace

at::Tensor product_in(at::Tensor& scratch, const at::Tensor& left, const at::Tensor& right) {
  const int64_t count = left.size(0) * right.size(1);
  if (!scratch.defined() || scratch.numel() < count || scratch.dtype() != left.dtype()) {
    scratch = at::empty({count}, left.options());
  }
  at::Tensor product = scratch.narrow(0, 0, count).view({left.size(0), right.size(1)});
  at::mm_out(product, left, right);
  return product;
}

void append_made(DeferredWork& work, const WeightUse& use, at::Tensor gradient) {
  const auto as_it_is = [](const at::Tensor&, const at::Tensor& dy, at::Tensor&) {
    return std::pair(dy, at::Tensor());
  };
  work.push_back({{}, std::move(gradient), use, {}, as_it_is});
}

void append_to(DeferredWork& work, std::vector<WeightGradient>& made) {
  std::set<const Weight*> deferred;
  for (const DeferredGradients& one : work) {
    deferred.insert({one.weight.weight, one.bias.weight});
  }
  std::vector<WeightGradient> others;
  for (WeightGradient& one : made) {
    if (!deferred.contains(one.weight)) {
      others.push_back(std::move(one));
      continue;
    }
    append_made(work, {one.weight, 0}, std::move(one.value));
  }
  made = std::move(others);
}

void drain(DeferredWork& work, at::Tensor& scratch,
           const std::function<void(const Weight&)>& added) {
  const at::NoGradGuard guard;
  MicroSums sums(work);
  for (DeferredGradients& one : work) {
    const auto [weight, bias] = one.compute(one.x, one.dy, scratch);
    const bool weight_done = one.weight.weight != nullptr && sums.add(one.weight, weight);
    const bool bias_done = one.bias.weight != nullptr && sums.add(one.bias, bias);
    if (added && weight_done) added(*one.weight.weight);
    if (added && bias_done) added(*one.bias.weight);
    one = DeferredGradients{};
  }
  work.clear();
}

}  // namespace tenuto
