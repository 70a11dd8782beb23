// GivenParameters is what a part of a replica asks of its device when server shards keep the
// parameters (sync/servers): the device computes gradients of parameters that it is given, and
// takes no update of its own.
#pragma once

#include <cstdint>
#include <span>

#include "base/id.h"
#include "base/result.h"

namespace tenuto {

// The parameters of the stages that a device holds, and their gradients, as flat vectors of fp32
// numbers. Both have the layout of layout_of() (world/parameters.h), with the unused elements
// between the parameters: in initial parameters and in gradients these are 0. Calls come from the
// worker's thread, between two steps.
//
// Requires: `stage` is one that the device holds
class GivenParameters {
 public:
  virtual ~GivenParameters() = default;
  // How many elements the stage has, unused ones included.
  virtual int64_t parameter_count(StageId stage) const = 0;
  // How many of them weight decay applies to: the first ones, which are those of matrices. A tied
  // weight that two stages share is not among them.
  virtual int64_t decayed_count(StageId stage) const = 0;
  // Fills in the parameters with which a run begins. Those that the device has stay as they are.
  //
  // Shapes: `into` has parameter_count() elements
  // Errors: Invalid/Call  it has another number of elements
  virtual Status initial_parameters(StageId stage, std::span<float> into) = 0;
  // Sets the parameters. The optimizer's state and the version stay as they are; the last Step
  // cannot be taken back any more.
  //
  // Requires: the version is final
  // Shapes: `from` has parameter_count() elements
  // Errors: Invalid/Call  it has another number of elements
  virtual Status set_parameters(StageId stage, std::span<const float> from) = 0;
  // Reads the sum of the weight gradients that the ops of the newest step have added at this
  // device: of its own micro-batches, and not divided by their number. With reproducible numerics
  // the sum is rounded to fp32 once; it is NaN if one of the gradients does not fit into fixed
  // point.
  //
  // Shapes: `into` has parameter_count() elements
  // Errors: Invalid/Call  it has another number of elements
  virtual Status read_gradients(StageId stage, std::span<float> into) = 0;
};

}  // namespace tenuto
