#include "truth/plain_reference.h"

#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <utility>

#include "engine/data.h"
#include "engine/dropout.h"
#include "world/parameters.h"
// After torch's headers, which have a CHECK of their own.
#include "base/check.h"
#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

namespace functional = torch::nn::functional;

// The model as one would write it with torch::nn: parameters by name, one forward.
class PlainModel : public torch::nn::Module {
 public:
  PlainModel(const Job& job, const DataExtent& extent, torch::Device place);
  // Mean loss of one micro-batch.
  torch::Tensor forward(const torch::Tensor& inputs, const torch::Tensor& targets, uint64_t key);

  std::vector<std::pair<std::string, torch::Tensor>> named;  // in the order of the whole model
  // Perturbed runs of a tied model: a separate leaf for the head, to tell its gradient terms apart.
  torch::Tensor head_copy;

 private:
  torch::Tensor weight(const std::string& name) const;
  torch::Tensor gpt(const torch::Tensor& bytes, uint64_t key);
  torch::Tensor block(const torch::Tensor& x, int32_t index, uint64_t key);
  torch::Tensor mlp(torch::Tensor x, uint64_t key);
  torch::Tensor dropout(const torch::Tensor& x, int32_t layer, uint64_t place, uint64_t key) const;
  torch::Tensor norm(const torch::Tensor& x, const std::string& name) const;
  torch::Tensor product(const torch::Tensor& x, const std::string& name) const;

  const ModelSettings model_;
};

PlainModel::PlainModel(const Job& job, const DataExtent& extent, torch::Device place)
    : model_(job.model) {
  const int32_t layers = model_.layers + (model_.kind == "gpt" ? 2 : 1);
  for (const ParameterCard& card : parameters_of(model_, extent, 0, layers)) {
    torch::Tensor start = torch::zeros(card.shape);
    initial_values(card, job.seed, {start.data_ptr<float>(), static_cast<size_t>(start.numel())});
    std::string key = card.name;
    for (char& letter : key) letter = letter == '.' ? '_' : letter;
    named.emplace_back(card.name, register_parameter(key, start.to(place)));
  }
}

torch::Tensor PlainModel::weight(const std::string& name) const {
  for (const auto& [known, tensor] : named) {
    if (known == name) return tensor;
  }
  CHECK(false, cat("the model has no ", name));
  return {};
}

torch::Tensor PlainModel::forward(const torch::Tensor& inputs, const torch::Tensor& targets,
                                  uint64_t key) {
  const torch::Tensor logits = model_.kind == "gpt" ? gpt(inputs, key) : mlp(inputs, key);
  return functional::cross_entropy(logits.reshape({-1, logits.size(-1)}), targets);
}

torch::Tensor PlainModel::gpt(const torch::Tensor& bytes, uint64_t key) {
  torch::Tensor x = torch::embedding(weight("embedding.weight"), bytes) +
                    weight("position.weight").narrow(0, 0, bytes.size(1));
  x = dropout(x, 0, 0, key);
  for (int32_t index = 1; index <= model_.layers; ++index) x = block(x, index, key);
  const std::string last = "final_norm";
  const torch::Tensor head =
      head_copy.defined() ? head_copy : weight(model_.tied ? "embedding.weight" : "head.weight");
  return torch::linear(norm(x, last), head);
}

torch::Tensor PlainModel::block(const torch::Tensor& x, int32_t index, uint64_t key) {
  const std::string own = cat("block.", index - 1, ".");
  const int64_t rows = x.size(0), length = x.size(1), width = x.size(2);
  const torch::Tensor qkv = product(norm(x, own + "attention_norm"), own + "attention.qkv");
  const auto parts =
      qkv.view({rows, length, 3, model_.heads, -1}).permute({2, 0, 3, 1, 4}).unbind(0);
  const torch::Tensor mixed =
      at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
  const torch::Tensor attended =
      product(mixed.transpose(1, 2).reshape({rows, length, width}), own + "attention.projection");
  const torch::Tensor middle = x + dropout(attended, index, 0, key);
  const torch::Tensor up = product(norm(middle, own + "feed_norm"), own + "feed.up");
  return middle + dropout(product(functional::gelu(up), own + "feed.down"), index, 1, key);
}

torch::Tensor PlainModel::mlp(torch::Tensor x, uint64_t key) {
  for (int32_t index = 0; index < model_.layers; ++index) {
    x = dropout(torch::relu(product(x, cat("hidden.", index))), index, 0, key);
  }
  return product(x, "output");
}

torch::Tensor PlainModel::dropout(const torch::Tensor& x, int32_t layer, uint64_t place,
                                  uint64_t key) const {
  if (model_.dropout == 0) return x;
  const uint64_t own = mix(key, static_cast<uint64_t>(layer), place);
  return x * dropout_mask(x.sizes(), model_.dropout, own, x.device());
}

torch::Tensor PlainModel::norm(const torch::Tensor& x, const std::string& name) const {
  return torch::layer_norm(x, {x.size(-1)}, weight(name + ".weight"), weight(name + ".bias"));
}

torch::Tensor PlainModel::product(const torch::Tensor& x, const std::string& name) const {
  return torch::linear(x, weight(name + ".weight"), weight(name + ".bias"));
}

// Weight decay applies to matrices, not to gains and biases.
std::vector<torch::optim::OptimizerParamGroup> groups_of(const PlainModel& model) {
  std::vector<torch::Tensor> matrices, vectors;
  for (const auto& [name, tensor] : model.named) {
    (tensor.dim() > 1 ? matrices : vectors).push_back(tensor);
  }
  return {torch::optim::OptimizerParamGroup(matrices), torch::optim::OptimizerParamGroup(vectors)};
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerSettings& settings,
                                                        const PlainModel& model) {
  std::vector<torch::optim::OptimizerParamGroup> groups = groups_of(model);
  const double decays[] = {settings.weight_decay, 0.0};
  for (size_t i = 0; i < groups.size(); ++i) {
    if (settings.kind == "adamw") {
      auto options = std::make_unique<torch::optim::AdamWOptions>(settings.learning_rate);
      options->betas({settings.beta1, settings.beta2}).eps(settings.epsilon);
      options->weight_decay(decays[i]);
      groups[i].set_options(std::move(options));
    } else {
      auto options = std::make_unique<torch::optim::SGDOptions>(settings.learning_rate);
      options->momentum(settings.momentum).weight_decay(decays[i]);
      groups[i].set_options(std::move(options));
    }
  }
  if (settings.kind == "adamw") {
    return std::make_unique<torch::optim::AdamW>(
        groups, torch::optim::AdamWOptions(settings.learning_rate));
  }
  return std::make_unique<torch::optim::SGD>(groups,
                                             torch::optim::SGDOptions(settings.learning_rate));
}

struct Batch {
  torch::Tensor inputs, targets;
};

Batch batch_of(const Data& data, int64_t step, int32_t micro, torch::Device place) {
  const Draw draw{false, {step}, micro};
  return {data.inputs(draw)[0].to(place), data.targets(draw)[0].to(place)};
}

// Moves each gradient element by the bound, up or down.
void perturb(PlainModel& model, const std::vector<torch::Tensor>& magnitudes, int64_t terms,
             uint64_t key) {
  const double unit = 0x1.0p-24;
  const double share = static_cast<double>(terms - 1) * unit;
  const double bound = 2 * share / (1 - share);
  for (size_t i = 0; i < model.named.size(); ++i) {
    torch::Tensor gradient = model.named[i].second.grad();
    torch::Tensor sign =
        dropout_mask(gradient.sizes(), 0.5, mix(key, i), gradient.device()).sub_(1);  // +1 or -1
    gradient.add_(magnitudes[i] * sign * bound);
  }
}

// The exact sum, rounded once. The parts never overlap; each is the rounding error of the larger
// ones.
double exact_sum(const std::vector<double>& terms) {
  std::vector<double> parts;
  for (double term : terms) {
    size_t kept = 0;
    for (double part : parts) {
      if (std::abs(term) < std::abs(part)) std::swap(term, part);
      const double high = term + part;
      const double low = part - (high - term);
      if (low != 0) parts[kept++] = low;
      term = high;
    }
    parts.resize(kept);
    parts.push_back(term);
  }
  // Add from the largest part down until one is rounded off; in a tie the next part decides.
  double sum = 0, low = 0;
  while (!parts.empty() && low == 0) {
    const double high = sum, part = parts.back();
    parts.pop_back();
    sum = high + part;
    low = part - (sum - high);
  }
  if (!parts.empty() && ((low < 0) == (parts.back() < 0)) && low != 0) {
    const double twice = 2 * low, next = sum + twice;
    if (twice == next - sum) sum = next;
  }
  return sum;
}

// Clips the gradients; returns the norm before clipping.
double clip(PlainModel& model, double limit) {
  std::vector<double> squares;
  for (const auto& [name, tensor] : model.named) {
    const double norm =
        at::linalg_vector_norm(tensor.grad(), 2, at::OptionalIntArrayRef(), false, torch::kDouble)
            .item<double>();
    squares.push_back(norm * norm);
  }
  const double whole = std::sqrt(exact_sum(squares));
  const double share = limit / (whole + 1e-6);
  if (limit <= 0 || share >= 1) return whole;
  for (const auto& [name, tensor] : model.named) tensor.grad().mul_(share);
  return whole;
}

// The backward of one micro-batch for perturbed runs: also adds up the magnitudes of its gradient
// terms.
void backward_with_magnitudes(PlainModel& model, const torch::Tensor& loss,
                              std::vector<torch::Tensor>& magnitudes) {
  std::vector<torch::Tensor> leaves;
  for (const auto& [name, tensor] : model.named) leaves.push_back(tensor);
  if (model.head_copy.defined()) leaves.push_back(model.head_copy);
  const auto gradients = torch::autograd::grad({loss}, leaves);
  const torch::NoGradGuard guard;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const size_t home = i < model.named.size() ? i : 0;  // the head's copy belongs to the embedding
    model.named[home].second.mutable_grad().add_(gradients[i]);
    magnitudes[home].add_(gradients[i].abs());
  }
}

torch::Device place_of(const Job& job) {
  return torch::Device(job.device.kind == "cuda" ? torch::kCUDA : torch::kCPU);
}

std::unique_ptr<Data> data_of(const Job& job) {
  auto opened = open_data(job);
  CHECK(opened.ok(), opened.error().message);
  return std::move(opened).value();
}

}  // namespace

struct PlainRun::State {
  State(const Job& the_job, const Perturbation& the_perturbation)
      : job(the_job),
        perturbation(the_perturbation),
        place(place_of(job)),
        data(data_of(job)),
        model(job, data->extent(), place),
        optimizer(make_optimizer(job.optimizer, model)) {}
  void clear();
  double backward(int32_t micro);

  const Job job;
  const Perturbation perturbation;
  const torch::Device place;
  const std::unique_ptr<Data> data;
  PlainModel model;
  const std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::vector<torch::Tensor> magnitudes;  // perturbed runs: sums of the terms' magnitudes
  double norm = 0;                        // of the newest step, before clipping
  int64_t next = 0;
};

void PlainRun::State::clear() {
  optimizer->zero_grad(/*set_to_none=*/false);
  magnitudes.clear();
  for (const auto& [name, tensor] : model.named) {
    if (!tensor.grad().defined()) tensor.mutable_grad() = torch::zeros_like(tensor);
    if (perturbation.seed != 0) magnitudes.push_back(torch::zeros_like(tensor));
  }
}

// Runs forward and backward of one micro-batch; returns its loss.
double PlainRun::State::backward(int32_t micro) {
  const Batch batch = batch_of(*data, next, micro, place);
  const torch::Tensor loss =
      model.forward(batch.inputs, batch.targets, dropout_key(job.seed, {next}, micro));
  const auto value = loss.item<double>();
  if (perturbation.seed != 0) {
    backward_with_magnitudes(model, loss, magnitudes);
  } else {
    loss.backward();
  }
  return value;
}

PlainRun::PlainRun(const Job& job, const Perturbation& perturbation) {
  torch::set_num_threads(job.device.threads);
  state_ = std::make_unique<State>(job, perturbation);
  if (perturbation.seed != 0 && job.model.tied) {
    state_->model.head_copy = state_->model.named[0].second.detach().clone().requires_grad_(true);
  }
}

PlainRun::~PlainRun() = default;

double PlainRun::step() {
  State& own = *state_;
  own.clear();
  double sum = 0;
  for (int32_t micro = 0; micro < own.job.micro_count(); ++micro) sum += own.backward(micro);
  const torch::NoGradGuard guard;
  if (own.perturbation.seed != 0) {
    perturb(own.model, own.magnitudes,
            int64_t{own.job.micro_count()} * own.perturbation.terms_per_micro,
            mix(own.perturbation.seed, static_cast<uint64_t>(own.next)));
  }
  for (const auto& [name, tensor] : own.model.named) tensor.grad().div_(own.job.micro_count());
  own.norm = clip(own.model, own.job.optimizer.clip);
  for (auto& group : own.optimizer->param_groups()) {
    group.options().set_lr(learning_rate(own.job.optimizer, own.next, own.job.steps));
  }
  own.optimizer->step();
  if (own.model.head_copy.defined()) own.model.head_copy.copy_(own.model.named[0].second);
  ++own.next;
  return sum / own.job.micro_count();
}

double PlainRun::norm() const { return state_->norm; }

std::map<std::string, std::vector<float>> PlainRun::parameters() const {
  std::map<std::string, std::vector<float>> parameters;
  for (const auto& [name, tensor] : state_->model.named) {
    const torch::Tensor flat = tensor.detach().cpu().contiguous().view(-1);
    parameters[name].assign(flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  }
  return parameters;
}

PlainResult run_plain(const Job& job, const Perturbation& perturbation) {
  PlainRun run(job, perturbation);
  PlainResult result;
  for (int64_t step = 0; step < job.steps; ++step) {
    result.losses.push_back(run.step());
    result.norms.push_back(run.norm());
  }
  result.parameters = run.parameters();
  return result;
}

}  // namespace tenuto
