// Stages and data that Python computes. The calls come from the engine's threads, which do not hold
// Python's lock (GIL): each takes it for as long as Python runs, and no longer.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>

#include "engine/data.h"
#include "engine/stage_module.h"

namespace tenuto {

// A Python object that may be let go by a thread that does not hold the GIL.
class HeldObject {
 public:
  // Takes the object over. Requires: the caller holds the GIL
  explicit HeldObject(pybind11::object object) : object_(std::move(object)) {}
  HeldObject(const HeldObject&) = delete;
  HeldObject& operator=(const HeldObject&) = delete;
  ~HeldObject();
  // Requires: the caller holds the GIL
  const pybind11::object& get() const { return object_; }

 private:
  pybind11::object object_;
};

// The exception that Python has raised, as one sentence with the place where it was raised. Its
// traceback goes to stderr, which is the log of the worker.
//
// Requires: the caller holds the GIL
std::string sentence_of(const pybind11::error_already_set& raised);

// Runs `call` with the GIL. What Python raises becomes a ModuleError.
template <class Call>
auto with_python(const Call& call) {
  const pybind11::gil_scoped_acquire lock;
  try {
    return call();
  } catch (const pybind11::error_already_set& raised) {
    throw ModuleError(sentence_of(raised));
  } catch (const pybind11::cast_error& error) {
    throw ModuleError(std::string("a value of Python has another type than expected: ") +
                      error.what());
  }
}

// Makes the stage that tenuto/_stage.py describes. `stage` is a tenuto._stage.Stage.
//
// Requires: the caller holds the GIL
std::unique_ptr<StageModule> make_python_stage(pybind11::object stage);

// Data that come from a Python function of (held_out, iteration, micro), which returns two tuples
// of tensors: inputs and targets.
//
// Requires: the caller holds the GIL
std::unique_ptr<Data> make_python_data(pybind11::object function);

}  // namespace tenuto
