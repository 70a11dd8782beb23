#include "app/real_device.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "base/text.h"
#include "run/checkpoint.h"
#include "worker/range_files.h"
#include "world/load.h"

namespace tenuto {
namespace {

#if !TENUTO_TORCH
Error no_torch(const std::string& what) {
  return {
      Code::Invalid, Reach::Job,
      cat(what,
          " needs torch, and this worker has none: `tenuto doctor` tells whether tenuto was built "
          "without it or cannot find it; or use device.kind = \"paced\"")};
}
#endif

Result<std::unique_ptr<Device>> make_device(const Job& job, const Plan& plan,
                                            const std::vector<StageId>& stages, Mailbox& mailbox) {
#if TENUTO_TORCH
  return make_engine(job, plan, stages, mailbox);
#else
  (void)plan, (void)stages, (void)mailbox;
  return no_torch(cat("device.kind = \"", job.device.kind, "\""));
#endif
}

}  // namespace

RealDevice real_device() {
#if TENUTO_TORCH
  return {make_device, bind_device,
          [](const DeviceSettings& device) { return &memory_count(device); }};
#else
  return {make_device, nullptr, nullptr};
#endif
}

Status print_sample(const SampleRequest& request) {
  const Result<Manifest> manifest = find_checkpoint(request.run, request.step, "--step");
  if (!manifest.ok()) return manifest.error();
  const std::string path = checkpoint_path(request.run, manifest.value().step);
  const Result<Job> job = job_from_toml(manifest.value().job, path + "/manifest.json");
  if (!job.ok()) return job.error();
  if (job.value().device.kind == "paced" || job.value().model.kind != "gpt") {
    return invalid(cat(request.run, " has trained no text model (model.kind = \"",
                       job.value().model.kind, "\", device.kind = \"", job.value().device.kind,
                       "\"): there is nothing to sample"));
  }
  std::vector<std::string> shards;
  for (const SavedShard& file : manifest.value().files) {
    shards.push_back(cat(path, "/", file.file));
  }
#if TENUTO_TORCH
  std::vector<float> parameters;
  if (manifest.value().servers) {
    // The files of ranges are those of stages, and only one stage has all parameters in the order
    // of the whole model.
    const size_t stages = manifest.value().partition.size();
    if (stages > 1) {
      return invalid(cat(path, " has the parameters of ", stages,
                         " stages, cut into ranges: text is printed only from such a run if it has "
                         "one stage (parallel.stages = 1)"));
    }
    auto read = read_parameters(shards, {0});
    if (!read.ok()) return read.error();
    parameters = std::move(read).value();
  }
  const std::string& prompt = request.sampling.prompt;
  if (prompt != "\n") std::fwrite(prompt.data(), 1, prompt.size(), stdout);
  const auto write = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  return parameters.empty()
             ? sample(job.value(), shards, request.sampling, write)
             : sample_from_parameters(job.value(), parameters, request.sampling, write);
#else
  return no_torch("tenuto sample");
#endif
}

std::string device_description() {
#if TENUTO_TORCH
  return engine_description();
#else
  return "no torch in this build: paced devices only";
#endif
}

}  // namespace tenuto
