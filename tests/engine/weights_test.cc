// A donor gives the units of its state one after the other to a joiner, which takes every update
// from the start. With every optimizer a unit that was given stays equal to the donor's, whichever
// other units are still missing.
#include "engine/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "world/job.h"
#include "world/parameters.h"

namespace tenuto {
namespace {

struct Settings {
  const char* name;
  const char* optimizer;
  double momentum, weight_decay;
  const char* numerics;
  const char* precision;
};

constexpr Settings kSettings[] = {
    {"adamw", "adamw", 0.9, 0.1, "fast", "fp32"},
    {"adamw in fixed point", "adamw", 0.9, 0.1, "reproducible", "fp32"},
    {"adamw in bf16", "adamw", 0.9, 0, "fast", "bf16"},
    {"sgd, whose momentum reads the values", "sgd", 0.9, 0.1, "fast", "fp32"},
    {"sgd in fixed point", "sgd", 0.9, 0.1, "reproducible", "fp32"},
    {"sgd without momentum", "sgd", 0, 0.1, "fast", "fp32"},
    {"a rule with a tensor of its own", "torch", 0.9, 0, "fast", "fp32"},
    {"a rule without tensors", "torch", 0, 0, "reproducible", "fp32"},
};

// Steps in the direction of the gradient's signs, of their running mean if there is a `momentum`.
class SignRule : public ModuleOptimizer {
 public:
  explicit SignRule(double momentum) : momentum_(momentum) {
    if (momentum > 0) names_.push_back("mean");
  }

  const std::vector<std::string>& tensors() const override { return names_; }
  void bind(const std::vector<OptimizedParameter>& parameters) override {
    parameters_ = parameters;
  }
  double rate(int64_t step) override { return 0.01 / static_cast<double>(1 + step); }
  void update(int64_t step, int64_t updates, const std::vector<at::Tensor>& gradients) override {
    ASSERT_EQ(gradients.size(), parameters_.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      at::Tensor direction = gradients[i];
      if (!names_.empty()) {
        direction = parameters_[i].state[0].mul_(updates == 1 ? 0 : momentum_).add_(direction);
      }
      parameters_[i].value.sub_(direction.sign(), rate(step));
    }
  }

 private:
  const double momentum_;
  std::vector<std::string> names_;
  std::vector<OptimizedParameter> parameters_;
};

std::unique_ptr<ModuleOptimizer> rule_of(const Settings& settings) {
  if (settings.optimizer != std::string("torch")) return nullptr;
  return std::make_unique<SignRule>(settings.momentum);
}

Job job_of(const Settings& settings, int64_t seed) {
  Job job;
  job.seed = seed;
  job.model.kind = "gpt";
  job.model.layers = 1;
  job.model.width = 16;
  job.model.heads = 2;
  job.model.sequence = 8;
  job.model.tied = true;  // a bucket of its own in the last stage
  job.optimizer.kind = settings.optimizer;
  job.optimizer.momentum = settings.momentum;
  job.optimizer.weight_decay = settings.weight_decay;
  job.optimizer.learning_rate = 0.03;  // and smaller in all steps of the test but the last ones
  job.resilience.numerics = settings.numerics;
  job.device.precision = settings.precision;
  return job;
}

std::vector<std::byte> whole_state(const Weights& weights) {
  std::vector<std::byte> bytes(static_cast<size_t>(weights.state_bytes()));
  weights.read_state(0, bytes);
  return bytes;
}

// Updates both with the same totals, like members of a group. The step may be clipped or skipped.
void update_both(const Job& job, Random& random, int64_t step, Weights& donor, Weights& joiner) {
  std::vector<float> totals(static_cast<size_t>(
      donor.totals().defined() ? donor.totals().numel() : std::ssize(donor.fixed_totals())));
  for (float& total : totals) total = static_cast<float>(2 * random.uniform() - 1);
  if (random.below(5) == 0) return;  // the step is skipped: the clip decision is the same for both
  const double clip = random.below(3) == 0 ? 0.25 : 1;
  for (Weights* one : {&donor, &joiner}) {
    if (one->fixed()) {
      FixedSum refused{};
      for (size_t i = 0; i < totals.size(); ++i) {
        one->fixed_totals()[i] = {};
        add_to(one->fixed_totals().subspan(i, 1), std::span(&totals[i], 1), refused.high);
      }
      for (const int part : {0, 1}) one->fixed_totals()[one->fixed_bucket(part).second - 1] = {};
    } else {
      std::copy(totals.begin(), totals.end(), one->totals().mutable_data_ptr<float>());
    }
    one->divide(4);
    one->back_up();
    one->update(job, step, clip);
  }
}

TEST(Weights, ATransferredUnitStaysEqualOverEveryUpdate) {
  for (const Settings& settings : kSettings) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const Job job = job_of(settings, 1);
      const auto cards = parameters_of(job.model, {}, 1, 3);
      Weights donor(job, cards, at::kCPU, {}, rule_of(settings));
      Weights joiner(job_of(settings, 2), cards, at::kCPU, {}, rule_of(settings));
      ASSERT_EQ(donor.state_bytes(), joiner.state_bytes());
      Random random(seed);
      int64_t step = 0, first = 0;
      // The donor has trained before.
      Weights aside(job_of(settings, 3), cards, at::kCPU, {}, rule_of(settings));
      for (; step < 3; ++step) update_both(job, random, step, donor, aside);
      for (; first < donor.state_bytes(); ++step) {
        const int64_t units = 1 + static_cast<int64_t>(random.below(1000));
        const int64_t size = std::min(units * donor.state_unit(), donor.state_bytes() - first);
        std::vector<std::byte> part(static_cast<size_t>(size));
        donor.read_state(first, part);
        joiner.write_state(first, part);
        first += size;
        update_both(job, random, step, donor, joiner);
        // Compare all that was given, not only the newest part.
        std::vector<std::byte> there(static_cast<size_t>(first)), here(there.size());
        donor.read_state(0, there);
        joiner.read_state(0, here);
        ASSERT_TRUE(there == here) << settings.name << ", seed " << seed << ", step " << step;
      }
      EXPECT_GT(step, 8) << "it goes over in several parts";
      EXPECT_TRUE(whole_state(donor) == whole_state(joiner)) << settings.name;
    }
  }
}

}  // namespace
}  // namespace tenuto
