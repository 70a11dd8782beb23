// The only interface to the code that uses torch: models, split backward, optimizers, data,
// checkpoints, on the CPU and on accelerators alike. This header includes no torch header, so files
// that include it compile fast.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "ir/plan.h"
#include "runtime/device.h"
#include "runtime/memory_count.h"
#include "world/job.h"
#include "world/parameters.h"

namespace tenuto {

class Data;
class StageModule;

// Makes the module of a stage, which computes the layers of that stage.
using ModuleMaker =
    std::function<std::unique_ptr<StageModule>(const Job&, const DataExtent&, const Stage&)>;

// Opens the data of a job (engine/data.h).
using DataOpener = std::function<Result<std::unique_ptr<Data>>(const Job&)>;

// What the Python package and tests set.
struct EngineOptions {
  // The modules of the stages (engine/stage_module.h); none: those of the job's model.kind.
  ModuleMaker module;
  // The data; none: what job.data names.
  DataOpener data;
  // Treats the CPU's memory as a device's own: the engine has Copies, so the staged path can be run
  // without an accelerator.
  bool separate_memory = false;
};

// A Device that holds `stages` of the job's model, one or several, on the job's device. Reads the
// data that they need; parameters are initialised from (seed, parameter name), whatever the
// partition.
//
// Requires: at least one stage, all of them the plan's and of one worker
// Errors: Invalid/Job for a missing file, too little text, no such device, model.kind = "module"
//         without options.module.
Result<std::unique_ptr<Device>> make_engine(const Job& job, const Plan& plan,
                                            const std::vector<StageId>& stages, Mailbox& mailbox,
                                            EngineOptions options = {});

// Makes the job's device the current one of the calling thread, for libraries that ask for it. Does
// nothing on the CPU, nor when there is no such device.
void bind_device(const DeviceSettings& settings);

// Counts the memory of tensors on the job's device. On the CPU, the first call replaces torch's
// allocator by one that counts; earlier tensors are not counted, so call it before making engines.
//
// Requires: for an accelerator, an engine has been made on it
MemoryCount& memory_count(const DeviceSettings& settings);

// The number of accelerators that this build of torch can use.
int accelerator_count();

// Version of torch and the devices it can use, for `doctor` and `--version`.
std::string engine_description();

// What a trained model is to write.
struct Sampling {
  std::string prompt;        // the text to continue
  int64_t bytes = 500;       // how many to write
  double temperature = 0.8;  // 0 = always the likeliest byte
  int64_t seed = 1;
};

// Continues a prompt with the model whose shards are in `shards`; `write` is called with each byte.
Status sample(const Job& job, const std::vector<std::string>& shards, const Sampling& sampling,
              const std::function<void(const std::string&)>& write);

// The same for a model that servers have kept.
//
// Shapes: `parameters` are those of the whole model as one stage, in the layout of GivenParameters
// Errors: as above; Invalid/Job  another number of elements
Status sample_from_parameters(const Job& job, std::span<const float> parameters,
                              const Sampling& sampling,
                              const std::function<void(const std::string&)>& write);

}  // namespace tenuto
