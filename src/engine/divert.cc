// How ops are diverted. Kernels of this file come before autograd's for tensors of CPU and CUDA.
// Without a scope they only call autograd's.
#include "engine/divert.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_ops.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace tenuto {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using torch::autograd::variable_list;

// The scopes that live, of all stages in this process.
struct Scopes {
  std::atomic<int> count = 0;  // read first, without the mutex
  std::mutex mutex;
  std::vector<DivertScope*> all;
  int64_t casts = 0;  // made so far
};

Scopes& scopes() {
  static Scopes alive;
  return alive;
}

// The tensor of which `argument` is a view that autograd follows, or `argument`.
const at::Tensor& origin_of(const at::Tensor& argument) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(argument);
  const bool view = meta != nullptr && meta->has_bw_view();
  return view ? meta->get_backward_view().base_ : argument;
}

enum class Shown { No, AsItIs, Transposed };

// How a view shows the whole of `whole`.
Shown shown(const at::Tensor& view, const at::Tensor& whole) {
  if (view.is_same(whole)) return Shown::AsItIs;
  const bool like = view.storage_offset() == whole.storage_offset() &&
                    view.scalar_type() == whole.scalar_type() && !view.is_neg();
  if (!like) return Shown::No;
  if (view.sizes() == whole.sizes() && view.strides() == whole.strides()) return Shown::AsItIs;
  const bool transposed = view.dim() == 2 && whole.dim() == 2 && view.size(0) == whole.size(1) &&
                          view.size(1) == whole.size(0) && view.stride(0) == whole.stride(1) &&
                          view.stride(1) == whole.stride(0);
  return transposed ? Shown::Transposed : Shown::No;
}

}  // namespace

DivertScope::DivertScope(const Weights& weights, DeferredWork& work)
    : weights_(weights), work_(work) {
  const std::lock_guard lock(scopes().mutex);
  for (const DivertScope* other : scopes().all) {
    CHECK(&other->weights_ != &weights, "one scope at a time for the weights of a stage");
  }
  scopes().all.push_back(this);
  ++scopes().count;
}

DivertScope::~DivertScope() {
  const std::lock_guard lock(scopes().mutex);
  std::erase(scopes().all, this);
  --scopes().count;
}

DivertScope::Found DivertScope::find(const at::Tensor& argument) {
  if (scopes().count.load(std::memory_order_relaxed) == 0) return {};
  if (!at::GradMode::is_enabled() || !argument.defined() || !argument.requires_grad()) return {};
  const std::lock_guard lock(scopes().mutex);
  for (const DivertScope* scope : scopes().all) {
    const Found found = scope->find_here(argument);
    if (found.work != nullptr) return found;
  }
  return {};
}

DivertScope::Found DivertScope::find_here(const at::Tensor& argument) const {
  const at::Tensor& origin = origin_of(argument);
  const auto as = [&](const at::Tensor& whole, const WeightUse& use) {
    const Shown how = shown(argument, whole);
    return how == Shown::No ? Found{} : Found{use, &work_, how == Shown::Transposed};
  };
  for (const Weight& weight : weights_.all()) {
    if (origin.is_same(weight.value)) return as(weight.value, {&weight, 0});
  }
  for (const Cast& cast : casts_) {
    if (origin.is_same(cast.tensor)) return as(cast.tensor, {cast.weight, cast.number});
  }
  return {};
}

void DivertScope::note_cast(const at::Tensor& value, const at::Tensor& cast) {
  if (scopes().count.load(std::memory_order_relaxed) == 0) return;
  if (!cast.requires_grad() || cast.sizes() != value.sizes()) return;
  const std::lock_guard lock(scopes().mutex);
  for (DivertScope* scope : scopes().all) {
    for (const Weight& weight : scope->weights_.all()) {
      if (!value.is_same(weight.value)) continue;
      scope->casts_.push_back({&weight, cast, ++scopes().casts});
    }
  }
}

namespace {

// The keys under which an op's own autograd kernel is found: it is registered for every backend,
// and the kernels of this file hide it for CPU and CUDA alone.
DispatchKeySet own_autograd(DispatchKeySet keys) {
  return (keys & c10::after_autograd_keyset) | DispatchKeySet(DispatchKey::AutogradOther);
}

// Runs `forward` as autograd's kernels do, with the keys that come after autograd.
template <class Forward>
at::Tensor below_autograd(DispatchKeySet keys, const Forward& forward) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return forward(keys & c10::after_autograd_keyset);
}

// The backward of a diverted op.
class Diverted : public torch::autograd::Node {
 public:
  struct Settings {
    DeferredWork* work;
    WeightUse weight, bias;
    std::function<at::Tensor(const at::Tensor& x, const at::Tensor& dy)> input_gradient;
    DeferredGradients::Compute compute;
  };

  // Makes `y` the output of a diverted op. Only x is saved by autograd: an activation checkpoint
  // replaces what autograd saves, and a weight would lose its identity.
  static at::Tensor record(at::Tensor y, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& bias, Settings settings) {
    auto node = c10::make_intrusive<Diverted>();
    node->set_next_edges(torch::autograd::collect_next_edges(x, weight, bias));
    node->x_ = torch::autograd::SavedVariable(x, /*is_output=*/false);
    node->settings_ = std::move(settings);
    torch::autograd::set_history(y, node);
    return y;
  }

  void release_variables() override { x_.reset_data(); }

 protected:
  variable_list apply(variable_list&& gradients) override {
    variable_list results(3);
    if (!gradients[0].defined()) return results;
    // Detached: deferred work that holds a tensor with a graph would keep the graph alive.
    const at::Tensor x = x_.unpack().detach();
    const at::Tensor dy = gradients[0].detach();
    if (task_should_compute_output(0)) results[0] = settings_.input_gradient(x, dy);
    // Autograd reduces it to the bias's shape.
    if (settings_.bias.weight == nullptr && task_should_compute_output(2)) results[2] = dy;
    settings_.work->push_back({x, dy, settings_.weight, settings_.bias, settings_.compute});
    return results;
  }

 private:
  torch::autograd::SavedVariable x_;
  Settings settings_;
};

// --- Matrix products -----------------------------------------------------------------------------

// Autograd makes the gradient of a matrix that lies column by column in the same way.
bool by_columns(const at::Tensor& matrix) {
  return matrix.stride(0) == 1 && matrix.stride(1) == matrix.size(0);
}

// y = bias + x right. x [R, I], right [I, O]; `bias` is what the op adds, or undefined.
at::Tensor record_product(at::Tensor y, const at::Tensor& x, const at::Tensor& right,
                          const at::Tensor& bias, const DivertScope::Found& found) {
  const WeightUse bias_use = bias.defined() ? DivertScope::find(bias).use : WeightUse{};
  Diverted::Settings settings{found.work, found.use, bias_use, {}, {}};
  settings.input_gradient = [matrix = right.detach()](const at::Tensor& x_saved,
                                                      const at::Tensor& dy) {
    return by_columns(x_saved) ? matrix.mm(dy.t()).t() : dy.mm(matrix.t());
  };
  std::vector<int64_t> bias_shape;
  if (bias_use.weight != nullptr) bias_shape = bias.sizes().vec();
  settings.compute = [columns = by_columns(right), transposed = found.transposed,
                      has_bias = bias_use.weight != nullptr, bias_shape](
                         const at::Tensor& x_saved, const at::Tensor& dy, at::Tensor& scratch) {
    const at::Tensor made =
        columns ? product_in(scratch, dy.t(), x_saved).t() : product_in(scratch, x_saved.t(), dy);
    return std::pair(transposed ? made.t() : made,
                     has_bias ? at::sum_to(dy, bias_shape) : at::Tensor());
  };
  return Diverted::record(std::move(y), x, right, bias, std::move(settings));
}

bool is_dense(const at::Tensor& x) { return x.layout() == at::kStrided; }

at::Tensor mm(DispatchKeySet keys, const at::Tensor& x, const at::Tensor& right) {
  const DivertScope::Found found = DivertScope::find(right);
  if (found.work == nullptr || !is_dense(x)) {
    return at::_ops::mm::redispatch(own_autograd(keys), x, right);
  }
  at::Tensor y = below_autograd(
      keys, [&](DispatchKeySet below) { return at::_ops::mm::redispatch(below, x, right); });
  return record_product(std::move(y), x, right, {}, found);
}

at::Tensor addmm(DispatchKeySet keys, const at::Tensor& bias, const at::Tensor& x,
                 const at::Tensor& right, const at::Scalar& beta, const at::Scalar& alpha) {
  const DivertScope::Found found = DivertScope::find(right);
  const bool plain = beta.equal(1) && alpha.equal(1);
  // A bias that is a view of a weight would get a gradient of another shape.
  const DivertScope::Found bias_found = DivertScope::find(bias);
  if (found.work == nullptr || !plain || !is_dense(x) || bias_found.transposed) {
    return at::_ops::addmm::redispatch(own_autograd(keys), bias, x, right, beta, alpha);
  }
  at::Tensor y = below_autograd(keys, [&](DispatchKeySet below) {
    return at::_ops::addmm::redispatch(below, bias, x, right, beta, alpha);
  });
  return record_product(std::move(y), x, right, bias, found);
}

// The backward of adding a bias in place.
class AddedBias : public torch::autograd::Node {
 public:
  // Must be called before the addition: `sum` has its own history only until then.
  AddedBias(const at::Tensor& sum, const at::Tensor& bias, const DivertScope::Found& found)
      : Node(torch::autograd::collect_next_edges(sum, bias)),
        found_(found),
        shape_(bias.sizes().vec()) {}

 protected:
  variable_list apply(variable_list&& gradients) override {
    if (gradients[0].defined()) {
      append_made(*found_.work, found_.use, at::sum_to(gradients[0].detach(), shape_));
    }
    return {gradients[0], at::Tensor()};
  }

 private:
  const DivertScope::Found found_;
  const std::vector<int64_t> shape_;
};

// Torch's linear layer adds its bias so where addmm does not take the input as it lies. The bias's
// gradient is computed at once, but waits for its turn among those of the bias's other uses.
at::Tensor& add_in_place(DispatchKeySet keys, at::Tensor& sum, const at::Tensor& term,
                         const at::Scalar& alpha) {
  const DivertScope::Found found = DivertScope::find(term);
  const bool plain = found.work != nullptr && !found.transposed && alpha.equal(1) &&
                     !sum.is_leaf() && !sum.is_view() && sum.scalar_type() == term.scalar_type();
  if (!plain) return at::_ops::add__Tensor::redispatch(own_autograd(keys), sum, term, alpha);
  const auto node = c10::make_intrusive<AddedBias>(sum, term, found);
  {
    const at::AutoDispatchBelowAutograd below;
    at::_ops::add__Tensor::redispatch(keys & c10::after_autograd_keyset, sum, term, alpha);
  }
  node->add_input_metadata(sum);
  torch::autograd::impl::rebase_history(sum, {node, 0});
  return sum;
}

// --- Convolutions and embeddings -----------------------------------------------------------------

// Copies of a convolution's settings that outlive the call.
std::vector<c10::SymInt> kept(c10::SymIntArrayRef setting) { return setting.vec(); }
template <class Setting>
Setting kept(const Setting& setting) {
  return setting;
}

// `settings`: stride, padding and so on, which torch's op and its backward take in the same order.
template <class... Settings>
at::Tensor convolution(DispatchKeySet keys, const at::Tensor& x, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, Settings... settings) {
  const DivertScope::Found found = DivertScope::find(weight);
  const at::Tensor bias_tensor = bias.value_or(at::Tensor());
  const WeightUse bias_use = DivertScope::find(bias_tensor).use;
  const bool foreign_bias =
      bias_tensor.defined() && bias_tensor.requires_grad() && bias_use.weight == nullptr;
  if (found.work == nullptr || found.transposed || foreign_bias || !is_dense(x)) {
    return at::_ops::convolution::redispatch(own_autograd(keys), x, weight, bias, settings...);
  }
  at::Tensor y = below_autograd(keys, [&](DispatchKeySet below) {
    return at::_ops::convolution::redispatch(below, x, weight, bias, settings...);
  });
  std::optional<std::vector<c10::SymInt>> bias_shape;
  if (bias_tensor.defined()) bias_shape = bias_tensor.sym_sizes().vec();
  // The gradients of input, weight and bias, those that are wanted.
  const auto gradients = [form = weight.detach(), bias_shape, all = std::tuple(kept(settings)...)](
                             const at::Tensor& x_saved, const at::Tensor& dy,
                             const std::array<bool, 3>& wanted) {
    at::OptionalSymIntArrayRef shape;
    if (bias_shape) shape = c10::SymIntArrayRef(*bias_shape);
    const auto backward = [&](const auto&... each) {
      return at::convolution_backward_symint(dy, x_saved, form, shape, each..., wanted);
    };
    return std::apply(backward, all);
  };
  Diverted::Settings diverted{found.work, found.use, bias_use, {}, {}};
  diverted.input_gradient = [gradients](const at::Tensor& x_saved, const at::Tensor& dy) {
    return std::get<0>(gradients(x_saved, dy, {true, false, false}));
  };
  diverted.compute = [gradients, has_bias = bias_use.weight != nullptr](
                         const at::Tensor& x_saved, const at::Tensor& dy, at::Tensor&) {
    const auto made = gradients(x_saved, dy, {false, true, has_bias});
    return std::pair(std::get<1>(made), std::get<2>(made));
  };
  return Diverted::record(std::move(y), x, weight, bias_tensor, std::move(diverted));
}

at::Tensor embedding(DispatchKeySet keys, const at::Tensor& weight, const at::Tensor& indices,
                     c10::SymInt padding_index, bool scale_by_frequency, bool sparse) {
  const DivertScope::Found found = DivertScope::find(weight);
  if (found.work == nullptr || found.transposed || sparse) {
    return at::_ops::embedding::redispatch(own_autograd(keys), weight, indices, padding_index,
                                           scale_by_frequency, sparse);
  }
  at::Tensor y = below_autograd(keys, [&](DispatchKeySet below) {
    return at::_ops::embedding::redispatch(below, weight, indices, padding_index,
                                           scale_by_frequency, sparse);
  });
  Diverted::Settings settings{found.work, found.use, {}, {}, {}};
  settings.compute = [rows = weight.sym_size(0), padding_index, scale_by_frequency](
                         const at::Tensor& indices_saved, const at::Tensor& dy, at::Tensor&) {
    return std::pair(at::embedding_dense_backward_symint(dy, indices_saved, rows, padding_index,
                                                         scale_by_frequency),
                     at::Tensor());
  };
  return Diverted::record(std::move(y), indices, weight, {}, std::move(settings));
}

// --- Casts ---------------------------------------------------------------------------------------

// A cast is not diverted. It is noted, so that the products with it are: autocast makes it.
template <class... Options>
at::Tensor to_copy(DispatchKeySet keys, const at::Tensor& value, Options... options) {
  at::Tensor cast = at::_ops::_to_copy::redispatch(own_autograd(keys), value, options...);
  DivertScope::note_cast(value, cast);
  return cast;
}

// --- The dispatcher ------------------------------------------------------------------------------

using Numbers = c10::SymIntArrayRef;
constexpr auto kConvolution = &convolution<Numbers, Numbers, Numbers, bool, Numbers, c10::SymInt>;
constexpr auto kToCopy =
    &to_copy<std::optional<at::ScalarType>, std::optional<at::Layout>, std::optional<at::Device>,
             std::optional<bool>, bool, std::optional<at::MemoryFormat>>;

void divert(torch::Library& library) {
  library.impl("mm", TORCH_FN(mm));
  library.impl("addmm", TORCH_FN(addmm));
  library.impl("add_.Tensor", TORCH_FN(add_in_place));
  library.impl("convolution", TORCH_FN(kConvolution));
  library.impl("embedding", TORCH_FN(embedding));
  library.impl("_to_copy", TORCH_FN(kToCopy));
}

TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) { divert(library); }
TORCH_LIBRARY_IMPL(aten, AutogradCUDA, library) { divert(library); }

}  // namespace
}  // namespace tenuto
