// The interface of an optimizer from outside the engine. Private to engine/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tenuto {

// A trained parameter as a ModuleOptimizer sees it: views of the engine's flat tensors.
struct OptimizedParameter {
  at::Tensor value;
  std::vector<at::Tensor> state;  // of the value's shape, one for each of tensors()
};

// Computes the updates of one stage's parameters in place of the engine's own optimizers. The
// engine keeps the rule's tensors: it undoes updates, sends the state to other workers while
// updates go on, and saves it. Hence what the rule requires of an update:
//
// - An element's new value and state depend on its own value, state and mean gradient, and else on
//   the numbers of the call alone (see Weights::state_bytes()).
// - Whatever the rule knows beside the tensors can be computed from the number of updates.
//
// Calls come from one thread at a time. They throw ModuleError for a failure of the rule's own
// code.
class ModuleOptimizer {
 public:
  virtual ~ModuleOptimizer() = default;
  // The names of the tensors that the state has beside the values, each fp32.
  virtual const std::vector<std::string>& tensors() const = 0;
  // Called once, before update(). The tensors of `parameters` keep their memory and begin at 0.
  virtual void bind(const std::vector<OptimizedParameter>& parameters) = 0;
  // The learning rate of a step, counted from 0.
  virtual double rate(int64_t step) = 0;
  // Takes the update of a step. Before it, the tensors have the state after `updates` - 1 updates;
  // the steps that were skipped do not count.
  //
  // Shapes: `gradients` are of the shapes of the parameters; the update may change them
  virtual void update(int64_t step, int64_t updates, const std::vector<at::Tensor>& gradients) = 0;
};

}  // namespace tenuto
