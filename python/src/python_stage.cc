// Torch's header comes first: it brings the conversions of tensors.
#include "python_stage.h"

#include <ATen/Context.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"

namespace tenuto {
namespace {

namespace py = pybind11;

py::tuple tuple_of(const Tensors& tensors) {
  py::tuple all(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) all[i] = py::cast(tensors[i]);
  return all;
}

Tensors tensors_of(const py::handle& sequence) {
  Tensors all;
  for (const py::handle each : sequence) all.push_back(py::cast<at::Tensor>(each));
  return all;
}

// The types and shapes of example tensors, which have no memory.
Boundary boundary_of(const py::handle& examples, Shapes shapes) {
  std::vector<TensorSpec> specs;
  for (const at::Tensor& each : tensors_of(examples)) {
    specs.push_back({each.scalar_type(), each.sizes().vec()});
  }
  return Boundary(std::move(specs), shapes);
}

// Makes what a layer draws a function of (seed, iteration, micro-batch, layer): a micro-batch that
// runs again, or on another worker, draws the same. The stages of a process run in turn, so they
// can share torch's generators: that of the CPU, and that of the device.
void seed_layer(uint64_t key, int64_t layer, at::Device place) {
  for (const at::Device each : {at::Device(at::kCPU), place}) {
    at::Generator generator = at::globalContext().defaultGenerator(each);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(mix(key, static_cast<uint64_t>(layer)));
    if (place.is_cpu()) break;
  }
}

// The rule of tenuto/_optimizer.py.
class PythonRule : public ModuleOptimizer {
 public:
  explicit PythonRule(py::object rule) : rule_(std::move(rule)) {
    names_ = py::cast<std::vector<std::string>>(rule_.get().attr("tensors"));
  }

  const std::vector<std::string>& tensors() const override { return names_; }

  void bind(const std::vector<OptimizedParameter>& parameters) override {
    with_python([&] {
      py::list values, states;
      for (const OptimizedParameter& each : parameters) {
        values.append(py::cast(each.value));
        states.append(tuple_of(each.state));
      }
      rule_.get().attr("bind")(values, states);
    });
  }

  double rate(int64_t step) override {
    return with_python([&] { return py::cast<double>(rule_.get().attr("rate")(step)); });
  }

  void update(int64_t step, int64_t updates, const std::vector<at::Tensor>& gradients) override {
    with_python([&] { rule_.get().attr("update")(step, updates, tuple_of(gradients)); });
  }

 private:
  HeldObject rule_;
  std::vector<std::string> names_;
};

class PythonStage : public StageModule {
 public:
  explicit PythonStage(py::object stage) : stage_(std::move(stage)) {
    const py::object& of = stage_.get();
    first_layer_ = py::cast<int64_t>(of.attr("first"));
    layer_count_ = py::cast<int64_t>(of.attr("count"));
    for (const py::handle each : of.attr("cards")) {
      const auto card = py::cast<py::tuple>(each);  // Card of tenuto/_model.py
      const auto tensor = py::cast<at::Tensor>(card[1]);
      cards_.push_back({.name = py::cast<std::string>(card[0]),
                        .shape = tensor.sizes().vec(),
                        .counted = py::cast<bool>(card[4]),
                        .shared = py::cast<bool>(card[3]),
                        .trained = py::cast<bool>(card[2])});
      tensors_.push_back(tensor);
    }
    const Shapes shapes = py::cast<bool>(of.attr("varies")) ? Shapes::UpTo : Shapes::Fixed;
    inputs_ = boundary_of(of.attr("inputs"), shapes);
    outputs_ = boundary_of(of.attr("outputs"), shapes);
  }

  std::vector<ParameterCard> parameters() const override { return cards_; }
  Tensors own_tensors() const override { return tensors_; }

  std::unique_ptr<ModuleOptimizer> make_optimizer() override {
    return with_python([&]() -> std::unique_ptr<ModuleOptimizer> {
      py::object rule = stage_.get().attr("rule");
      if (rule.is_none()) return nullptr;
      return std::make_unique<PythonRule>(std::move(rule));
    });
  }

  void bind(const Weights&) override {}           // own_tensors() have become views of them
  bool diverts() const override { return true; }  // modules call torch's own ops
  Boundary inputs() const override { return inputs_; }
  Boundary outputs() const override { return outputs_; }

  Tensors forward(const Tensors& inputs, const Pass& pass) const override {
    return with_python([&] {
      const py::object run = stage_.get().attr("run");
      py::object tensors = tuple_of(inputs);
      const at::Device place = inputs.empty() ? at::Device(at::kCPU) : inputs.front().device();
      for (int64_t i = 0; i < layer_count_; ++i) {
        if (pass.training) seed_layer(pass.dropout_key, first_layer_ + i, place);
        tensors = run(i, tensors, pass.training);
      }
      return tensors_of(tensors);
    });
  }

  at::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    return with_python([&] {
      return py::cast<at::Tensor>(stage_.get().attr("loss")(tuple_of(outputs), tuple_of(targets)));
    });
  }

 private:
  HeldObject stage_;
  int64_t first_layer_ = 0, layer_count_ = 0;
  std::vector<ParameterCard> cards_;
  Tensors tensors_;
  Boundary inputs_ = Boundary(std::vector<TensorSpec>());
  Boundary outputs_ = Boundary(std::vector<TensorSpec>());
};

class PythonData : public Data {
 public:
  explicit PythonData(py::object function) : function_(std::move(function)) {}

  DataExtent extent() const override { return {}; }
  Tensors inputs(const Draw& draw) const override { return batch(draw, 0); }
  Tensors targets(const Draw& draw) const override { return batch(draw, 1); }

 private:
  Tensors batch(const Draw& draw, size_t which) const {
    return with_python([&] {
      const py::object both = function_.get()(draw.held_out, draw.iteration.value, draw.micro);
      return tensors_of(py::cast<py::tuple>(both)[which]);
    });
  }

  HeldObject function_;
};

}  // namespace

HeldObject::~HeldObject() {
  if (!Py_IsInitialized()) {
    object_.release();  // the interpreter has taken it along
    return;
  }
  const py::gil_scoped_acquire lock;
  object_ = py::object();
}

std::string sentence_of(const py::error_already_set& raised) {
  try {
    const py::object trace = raised.trace() ? raised.trace() : py::none();
    return py::cast<std::string>(
        py::module_::import("tenuto._stage").attr("tell_exception")(raised.value(), trace));
  } catch (const std::exception&) {
    return raised.what();
  }
}

std::unique_ptr<StageModule> make_python_stage(py::object stage) {
  return std::make_unique<PythonStage>(std::move(stage));
}

std::unique_ptr<Data> make_python_data(py::object function) {
  return std::make_unique<PythonData>(std::move(function));
}

}  // namespace tenuto
