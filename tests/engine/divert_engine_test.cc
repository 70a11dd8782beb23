// A split backward through the engine, of a module that leaves it to torch's own ops.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/data.h"
#include "engine/driver.h"
#include "engine/stage_module.h"
#include "engine/toy_job.h"
#include "world/fit.h"
// After torch's headers, which have a CHECK of their own.
#include "base/safetensors.h"
#include "base/text.h"

namespace tenuto {
namespace {

// Each layer makes a value of the tokens and the layers before by convolutions along the text. The
// first embeds the tokens, the last makes logits with the table of its own layer, tied.
class ConvModel : public StageModule {
 public:
  // Adds to `deferred` how much work was deferred after each layer's backward but for its
  // embedding.
  ConvModel(const Job& job, const Stage& stage, std::shared_ptr<std::atomic<size_t>> deferred)
      : rows_(job.parallel.micro_rows),
        length_(job.model.sequence),
        width_(job.model.width),
        last_(cut_layers(job.model) - 1),
        stage_(stage),
        deferred_(std::move(deferred)) {}

  std::vector<ParameterCard> parameters() const override {
    std::vector<ParameterCard> cards;
    for (int32_t i = stage_.layer_first; i < stage_.layer_end; ++i) {
      const auto add = [&](const char* name, std::vector<int64_t> shape) {
        cards.push_back({cat("layer.", i, ".", name), std::move(shape), 0.1});
      };
      add("table", {kVocabulary, width_});
      add("kernel", {width_, width_, 3});
      add("bias", {width_});
      add("gain", {width_});
      add("weight", {width_, width_});
    }
    return cards;
  }
  void bind(const Weights& weights) override { weights_ = &weights.all(); }
  Boundary inputs() const override {
    return Boundary({{at::kLong, {rows_, length_}}, {at::kFloat, {rows_, length_, width_}}});
  }
  Boundary outputs() const override { return inputs(); }
  Tensors forward(const Tensors& inputs, const Pass& pass) const override {
    at::Tensor hidden = inputs.size() > 1 ? inputs[1] : at::Tensor();
    for (int32_t i = stage_.layer_first; i < stage_.layer_end; ++i) {
      const Weight* own = weights_->data() + 5 * (i - stage_.layer_first);
      const at::Tensor embedded = at::embedding(own[0].value, inputs[0]);
      if (pass.deferred != nullptr) {  // called after the backward of the layer's other ops
        embedded.register_hook([work = pass.deferred, deferred = deferred_](const at::Tensor&) {
          deferred->fetch_add(std::min(work->size(), size_t{3}));
        });
      }
      hidden = hidden.defined() ? hidden + embedded : embedded;
      const at::Tensor mixed = at::conv1d(at::constant_pad_nd(hidden.transpose(1, 2), {2, 0}),
                                          own[1].value, own[2].value)
                                   .transpose(1, 2);
      // A module may also call linear() itself.
      const at::Tensor inner =
          linear(at::gelu(mixed) * own[3].value, own[4], nullptr, pass.deferred);
      hidden = hidden + at::linear(at::tanh(inner), own[4].value);
      if (i == last_) return {at::linear(hidden, own[0].value)};
    }
    return {inputs[0], hidden};
  }
  at::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    return at::cross_entropy_loss(outputs[0].reshape({-1, kVocabulary}), targets[0]);
  }
  bool diverts() const override { return true; }

 private:
  const int64_t rows_, length_, width_;
  const int32_t last_;
  const Stage stage_;
  const std::shared_ptr<std::atomic<size_t>> deferred_;
  const std::vector<Weight>* weights_ = nullptr;
};

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> tensors;
  bool operator==(const Trained&) const = default;
};

class DivertEngine : public ToyTest {
 protected:
  DivertEngine() : job_(toy_job(1, 4)) {
    write_lines("a.txt", 2000,
                [](std::ostream& out, int i) { out << i << " plus " << i * 7 % 31 << ".\n"; });
    job_.steps = 10;
    job_.model.layers = 3;
    job_.model.width = 24;
    job_.model.sequence = 11;
    job_.parallel.micro_rows = 3;
    job_.optimizer.learning_rate = 0.02;
  }

  Trained read(Trained trained, const std::vector<std::string>& shards) const {
    for (const std::string& path : shards) {
      auto file = SafetensorsFile::open(path);
      EXPECT_TRUE(file.ok());
      for (const auto& [name, place] : file.value().tensors()) {
        auto& values = trained.tensors[name];
        values.resize(static_cast<size_t>(place.end - place.first) / sizeof(float));
        EXPECT_TRUE(file.value().read(name, std::as_writable_bytes(std::span(values))).ok());
      }
    }
    return trained;
  }
  // Three steps through the engine.
  Trained train(const Job& job) const {
    EngineOptions options;
    options.module = [this](const Job& of, const DataExtent&, const Stage& stage) {
      return std::make_unique<ConvModel>(of, stage, deferred_);
    };
    Driver driver(job, options);
    Trained trained;
    for (int64_t step = 0; step < 3; ++step) {
      for (const auto& [micro, loss] : driver.run(step).losses) trained.losses.push_back(loss);
    }
    return read(trained, driver.save(folder()));
  }
  // The same by one loop over the whole module.
  Trained train_whole() const {
    at::set_num_threads(job_.device.threads);
    ConvModel module(job_, {0, cut_layers(job_.model), {}}, deferred_);
    Weights weights(job_, module.parameters(), at::kCPU);
    module.bind(weights);
    auto data = open_data(job_);
    EXPECT_TRUE(data.ok());
    Trained trained;
    for (int64_t step = 0; step < 3; ++step) {
      weights.clear_gradients();
      for (int32_t micro = 0; micro < 4; ++micro) {
        const Draw draw{false, {step}, micro};
        const at::Tensor loss = module.loss(module.forward(data.value()->inputs(draw), {}),
                                            data.value()->targets(draw));
        trained.losses.push_back(loss.item<double>());
        torch::autograd::backward({loss}, {});
      }
      at::Tensor totals = weights.totals();
      totals.copy_(weights.gradients());
      weights.divide(4);
      const WholeNorm norm = whole_of(weights.measure({}));
      weights.update(job_, step, clip_factor(norm.norm, job_.optimizer.clip));
    }
    const std::string path = place("whole");
    EXPECT_TRUE(weights.save(path, 3).ok());
    return read(trained, {path});
  }

  Job job_;
  const std::shared_ptr<std::atomic<size_t>> deferred_ = std::make_shared<std::atomic<size_t>>(0);
};

TEST_F(DivertEngine, EveryPartitionHasTheBitsOfOneLoop) {
  const Trained whole = train_whole();
  ASSERT_EQ(whole.losses.size(), 12U);
  EXPECT_LT(whole.losses.back(), whole.losses.front());  // it learns
  EXPECT_EQ(whole.tensors.size(), 5U * 5 * 3);
  for (const int32_t stages : {1, 2, 5}) {
    for (const bool split : {false, true}) {
      for (const char* recompute : {"none", "all"}) {
        SCOPED_TRACE(cat(stages, " stages, split ", split, ", recompute ", recompute));
        Job job = job_;
        job.parallel.stages = stages;
        job.parallel.split_backward = split;
        job.parallel.recompute = recompute;
        deferred_->store(0);
        EXPECT_TRUE(train(job) == whole);
        EXPECT_EQ(deferred_->load(), split ? 3U * 3 * 4 * 5 : 0U);
      }
    }
  }
}

}  // namespace
}  // namespace tenuto
