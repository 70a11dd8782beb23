// Which program runs a worker, and where it finds torch.
//
// tenuto-worker holds the engine and is linked to the libtorch of a Python environment, which may
// have moved since; tenuto-worker-paced is the same without torch. A build without torch only has
// tenuto-worker, without torch.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tenuto {

// The path of a program that is installed with this one: beside it, or in libexec/tenuto.
//
// Errors: Invalid/Job with the places that were searched
Result<std::string> find_program(const std::string& name);

// The torch that workers were built with.
struct BuiltTorch {
  std::string version;    // "2.13.0"
  std::string libraries;  // folder of libtorch.so at that time; empty = built without torch
};

// The one of this build.
BuiltTorch built_torch();

// The folder whose libtorch.so workers are to load. The order of the search: if TENUTO_PYTHON is
// set, only the environment of that Python; else where torch was when workers were built; the
// active environment (VIRTUAL_ENV, CONDA_PREFIX); python3. Torch's C++ interface changes with each
// minor version, so one with other major or minor numbers is ignored.
//
// Errors: Invalid/Job  there is none; the sentence says where it was searched and what to do
// Cost:   none while torch is where it was, else the start of a Python or two
Result<std::string> find_torch(const BuiltTorch& built);

// The program of workers with real devices. Sets LD_LIBRARY_PATH so that programs started from here
// find torch; so call it before there are threads.
//
// Errors: Invalid/Job  no such program, or no torch for it
Result<std::string> find_torch_worker();

// The program of workers with paced devices: the one without torch, if there is one.
//
// Errors: Invalid/Job  no such program
Result<std::string> find_paced_worker();

}  // namespace tenuto
