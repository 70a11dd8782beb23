// Writes text with a trained model, and describes the build of torch.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <exception>

#include "base/random.h"
#include "base/text.h"
#include "engine/device.h"
#include "engine/engine.h"
#include "engine/stage_module.h"
#include "world/fit.h"

namespace tenuto {
namespace {

// The byte that `draw`, uniform in [0, 1), falls on.
int64_t choose(const at::Tensor& logits, double temperature, double draw) {
  if (temperature <= 0) return logits.argmax().item<int64_t>();
  const at::Tensor shares = at::softmax(logits.to(at::kDouble) / temperature, 0).cpu();
  const double* share = shares.const_data_ptr<double>();
  double sum = 0;
  for (int64_t byte = 0; byte < kVocabulary; ++byte) {
    sum += share[byte];
    if (draw < sum) return byte;
  }
  return kVocabulary - 1;
}

void generate(const StageModule& module, size_t window, at::Device place, const Sampling& sampling,
              const std::function<void(const std::string&)>& write) {
  std::string text = sampling.prompt.empty() ? "\n" : sampling.prompt;
  Random random(static_cast<uint64_t>(sampling.seed));
  for (int64_t i = 0; i < sampling.bytes; ++i) {
    if (text.size() > window) text.erase(0, text.size() - window);
    const at::Tensor bytes = at::empty({1, static_cast<int64_t>(text.size())}, at::kLong);
    std::transform(text.begin(), text.end(), bytes.mutable_data_ptr<int64_t>(),
                   [](char letter) { return static_cast<unsigned char>(letter); });
    const at::Tensor logits = module.forward({bytes.to(place)}, {})[0];
    const at::Tensor last = logits.select(1, logits.size(1) - 1).select(0, 0);
    const auto next = static_cast<char>(choose(last, sampling.temperature, random.uniform()));
    text += next;
    write(std::string(1, next));
  }
}

// `fill`: sets the values of the whole model's weights.
Status sample_with(const Job& job, const std::function<Status(Weights&)>& fill,
                   const Sampling& sampling, const std::function<void(const std::string&)>& write) {
  const ModelKind& kind = model_kind(job.model);
  if (!kind.text) {
    return invalid(cat("model.kind = \"", job.model.kind, "\" writes no text: only gpt does"));
  }
  const Result<TorchDevice> device = TorchDevice::open(job.device);
  if (!device.ok()) return device.error();
  try {
    const at::NoGradGuard guard;
    at::set_num_threads(job.device.threads);
    const at::Device place = device.value().place();
    const auto module = kind.make(job, {}, {0, cut_layers(job.model), {}});
    Weights weights(job, module->parameters(), place);
    if (Status filled = fill(weights); !filled.ok()) return filled;
    module->bind(weights);
    generate(*module, static_cast<size_t>(job.model.sequence), place, sampling, write);
    return ok();
  } catch (const std::exception& exception) {
    const std::string text = exception.what();
    return Error{Code::Invalid, Reach::Job, cat("torch: ", text.substr(0, text.find('\n')))};
  }
}

}  // namespace

Status sample(const Job& job, const std::vector<std::string>& shards, const Sampling& sampling,
              const std::function<void(const std::string&)>& write) {
  const auto fill = [&](Weights& weights) { return weights.load_values(shards); };
  return sample_with(job, fill, sampling, write);
}

Status sample_from_parameters(const Job& job, std::span<const float> parameters,
                              const Sampling& sampling,
                              const std::function<void(const std::string&)>& write) {
  const auto fill = [&](Weights& weights) -> Status {
    if (std::ssize(parameters) != weights.count()) {
      return Error{Code::Invalid, Reach::Job,
                   cat("the model has ", weights.count(), " elements, unused ones included, and ",
                       "was given ", parameters.size(), ": they are of another model")};
    }
    weights.set_values(parameters);
    return ok();
  };
  return sample_with(job, fill, sampling, write);
}

std::string engine_description() {
  return cat("libtorch ", TORCH_VERSION, ", devices: ", usable_devices());
}

}  // namespace tenuto
