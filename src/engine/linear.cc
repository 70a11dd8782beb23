#include "engine/linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace tenuto {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_rows(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

const at::Tensor& compute_form(const Weight& weight) {
  return weight.low.defined() ? weight.low : weight.value;
}

using Gradients = std::pair<at::Tensor, at::Tensor>;

// Compute functions of deferred work. With R rows, I inputs and O outputs: x [R, I], dy [R, O].
Gradients weight_alone(const at::Tensor& x, const at::Tensor& dy, at::Tensor& scratch) {
  return {product_in(scratch, dy.t(), x), at::Tensor()};
}

Gradients both(const at::Tensor& x, const at::Tensor& dy, at::Tensor& scratch) {
  return {product_in(scratch, dy.t(), x), dy.sum(0)};
}

// What the backward needs besides tensors. All of it outlives the pass (see linear.h).
struct ProductOf {
  const Weight* weight;
  const Weight* bias;
  DeferredWork* deferred;
};

// A linear layer as a function of autograd. Its backward leaves the weight's gradient as deferred
// work, if there is a list for that.
class Product : public torch::autograd::Function<Product> {
 public:
  // The leaves `value` and `bias_value` are arguments so that autograd sees them; the product is
  // made from the weights' compute forms.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& value,
                            const at::Tensor& bias_value, const ProductOf& of) {
    (void)value, (void)bias_value;
    const at::Tensor& form = compute_form(*of.weight);
    const at::Tensor input = x.to(form.scalar_type());
    context->save_for_backward({input});
    context->saved_data["weight"] = reinterpret_cast<int64_t>(of.weight);
    context->saved_data["bias"] = reinterpret_cast<int64_t>(of.bias);
    context->saved_data["deferred"] = reinterpret_cast<int64_t>(of.deferred);
    context->saved_data["type"] = static_cast<int64_t>(x.scalar_type());
    return at::linear(input, form,
                      of.bias != nullptr ? std::optional(compute_form(*of.bias)) : std::nullopt);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* weight = reinterpret_cast<const Weight*>(context->saved_data["weight"].toInt());
    const auto* bias = reinterpret_cast<const Weight*>(context->saved_data["bias"].toInt());
    auto* deferred = reinterpret_cast<DeferredWork*>(context->saved_data["deferred"].toInt());
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor x_rows = as_rows(x);
    const at::Tensor dy_rows = as_rows(gradients[0]);
    variable_list results(4);
    if (context->needs_input_grad(0)) {
      results[0] = dy_rows.mm(compute_form(*weight)).view(x.sizes()).to(type);
    }
    if (deferred != nullptr) {
      deferred->push_back({x_rows, dy_rows, {weight, 0}, {bias, 0}, bias ? both : weight_alone});
      return results;
    }
    results[1] = dy_rows.t().mm(x_rows).to(at::kFloat);
    if (bias != nullptr) results[2] = dy_rows.sum(0).to(at::kFloat);
    return results;
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const Weight& weight, const Weight* bias,
                  DeferredWork* deferred) {
  const bool low = weight.low.defined();
  if ((deferred == nullptr && !low) || !at::GradMode::is_enabled()) {
    const auto bias_form = bias != nullptr ? std::optional(compute_form(*bias)) : std::nullopt;
    const at::Tensor& form = compute_form(weight);
    return at::linear(low ? x.to(form.scalar_type()) : x, form, bias_form);
  }
  const at::Tensor& bias_value = bias != nullptr ? bias->value : weight.value;
  return Product::apply(x, weight.value, bias_value, ProductOf{&weight, bias, deferred});
}

}  // namespace tenuto
