// The interface that a model implements: the engine trains any StageModule. Private to engine/.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "engine/boundary.h"
#include "engine/linear.h"
#include "engine/weights.h"
#include "ir/plan.h"
#include "world/job.h"
#include "world/parameters.h"

namespace tenuto {

// The settings of one pass of one micro-batch.
struct Pass {
  bool training = false;
  uint64_t dropout_key = 0;  // of (seed, iteration, micro); see dropout_key
  // Where linear layers leave their weight gradients to be computed later; null: the backward
  // computes them at once.
  DeferredWork* deferred = nullptr;
};

// Thrown by a module whose own code has failed: the text is a whole sentence for the user, and the
// run ends with it.
class ModuleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The part of a model that one stage computes. The engine owns its parameters, runs its passes and
// moves the tensors at its boundaries. Calls come from one thread at a time.
class StageModule {
 public:
  virtual ~StageModule() = default;
  // The parameters, and the buffers as cards that are not trained, in the order of the whole model.
  virtual std::vector<ParameterCard> parameters() const = 0;
  // Tensors that the module's own code reads, one for each of parameters(); empty: the weights get
  // tensors of their own. The parameters begin with the values of these, whatever their cards say,
  // and these become views of the flat tensors.
  virtual Tensors own_tensors() const { return {}; }
  // The optimizer of the module's own, for optimizer.kind = "torch"; none: it has none. Called
  // once, before bind().
  virtual std::unique_ptr<ModuleOptimizer> make_optimizer() { return nullptr; }
  // Called once, before forward. `weights` hold parameters() and outlive this; the forward reads
  // their values, which the engine changes between steps.
  virtual void bind(const Weights& weights) = 0;
  // What forward takes from the stage before. Not asked at the first stage, whose inputs are those
  // of the Data.
  virtual Boundary inputs() const = 0;
  // What forward gives to the next stage. Not asked at the last stage.
  virtual Boundary outputs() const = 0;
  // Computes a micro-batch. The result must depend on the arguments and the weights alone, because
  // an interrupted step runs some micro-batches again. Changes no input and no weight. Its backward
  // adds to each weight's gradient once, as autograd does unless a function runs a backward itself:
  // the sum of the gradients is sent while other weights still get theirs.
  virtual Tensors forward(const Tensors& inputs, const Pass& pass) const = 0;
  // The loss of a micro-batch, a single number, from what the last stage's forward returned.
  virtual at::Tensor loss(const Tensors& outputs, const Tensors& targets) const = 0;
  // The share of the targets of a held-out micro-batch that the model finds likeliest, a single
  // number, from the same; undefined: the targets are no classes.
  virtual at::Tensor accuracy(const Tensors&, const Tensors&) const { return {}; }
  // True if a split backward has to divert torch's own ops (divert.h), for modules that do not call
  // linear() themselves. Gradients that are not deferred are computed in the input pass.
  virtual bool diverts() const { return false; }
};

// What the engine knows of a model.kind.
struct ModelKind {
  bool text = false;      // learns from text, and can write it
  bool any_data = false;  // learns from data of every kind
  std::unique_ptr<StageModule> (*make)(const Job&, const DataExtent&, const Stage&) = nullptr;
};

// The kind of a job's model. Nothing else in engine/ asks model.kind.
const ModelKind& model_kind(const ModelSettings& model);

}  // namespace tenuto
