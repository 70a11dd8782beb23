// Functions that need torch: real devices, and text from a trained model.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "worker/machine.h"

namespace tenuto {

// The devices that compute with torch. In a build without torch, making one is an error that says
// so.
RealDevice real_device();

// The options of `tenuto sample`.
struct SampleRequest {
  std::string run;    // its folder
  int64_t step = -1;  // of the checkpoint; -1 = the newest
  Sampling sampling;
};

// Prints text from the model of a run on stdout.
//
// Errors: as find_checkpoint, read_parameters and the engine say; Invalid/Call without torch
Status print_sample(const SampleRequest& request);

// Version of torch and the devices it can use; a sentence when this build has none.
std::string device_description();

}  // namespace tenuto
