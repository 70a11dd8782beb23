// The engine runs a user's own model. Two floating-point tensors of different types and one of
// integers cross its stage boundaries, and it has a buffer.
#include "engine/stage_module.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/data.h"
#include "engine/driver.h"
#include "engine/toy_job.h"
#include "world/fit.h"
// After torch's headers, which have a CHECK of their own.
#include "base/safetensors.h"
#include "base/text.h"

namespace tenuto {
namespace {

// Layer i adds an embedding of the tokens and a product to the hidden state. The last layer makes
// logits of the hidden state and of a skip connection from the first layer, which no layer in
// between reads.
class SkipModel : public StageModule {
 public:
  SkipModel(const Job& job, const Stage& stage, int64_t width_error = 0,
            Shapes shapes = Shapes::Fixed)
      : shapes_(shapes),
        rows_(job.parallel.micro_rows),
        length_(job.model.sequence),
        width_(job.model.width),
        width_error_(width_error),
        last_(cut_layers(job.model) - 1),
        stage_(stage) {}

  std::vector<ParameterCard> parameters() const override {
    std::vector<ParameterCard> cards;
    for (int32_t i = stage_.layer_first; i < stage_.layer_end; ++i) {
      cards.push_back({cat("layer.", i, ".table"), {kVocabulary, width_}, 0.1});
      cards.push_back(
          {cat("layer.", i, ".weight"), {i < last_ ? width_ : kVocabulary, width_}, 0.1});
      ParameterCard scale{cat("layer.", i, ".scale"), {2, width_}, 0, 0.5 + i};
      scale.trained = false;
      cards.push_back(scale);
    }
    return cards;
  }
  void bind(const Weights& weights) override { weights_ = &weights.all(); }
  Boundary inputs() const override {
    return Boundary({{at::kLong, {rows_, length_}},
                     {at::kFloat, {rows_, length_, width_}},
                     {at::kDouble, {rows_, 1, width_ + 1}}},
                    shapes_);
  }
  Boundary outputs() const override {
    return width_error_ == 0 ? inputs() : Boundary({{at::kLong, {width_error_}}});
  }
  Tensors forward(const Tensors& inputs, const Pass& pass) const override {
    const at::Tensor tokens = inputs[0];
    at::Tensor hidden = inputs.size() > 1 ? inputs[1] : at::Tensor();
    at::Tensor skip = inputs.size() > 1 ? inputs[2] : at::Tensor();
    for (int32_t i = stage_.layer_first; i < stage_.layer_end; ++i) {
      const Weight* own = weights_->data() + 3 * (i - stage_.layer_first);
      const at::Tensor embedded = at::embedding(own[0].value, tokens);
      if (i == 0) {
        hidden = embedded;
        const at::Tensor mean = embedded.mean(1, true).to(at::kDouble);
        skip = at::cat({mean, mean.narrow(2, 0, 1)}, 2);
      }
      const at::Tensor whole =
          i < last_ ? hidden : hidden + skip.narrow(2, 1, width_).to(at::kFloat);
      const at::Tensor made = linear(whole, own[1], nullptr, pass.deferred);
      if (i == last_) return {made};
      hidden = hidden + at::tanh(made * own[2].value[0]) + embedded;
    }
    return {tokens, hidden, skip};
  }
  at::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    return at::cross_entropy_loss(outputs[0].reshape({-1, kVocabulary}), targets[0]);
  }

 private:
  const Shapes shapes_;
  const int64_t rows_, length_, width_, width_error_;
  const int32_t last_;
  const Stage stage_;
  const std::vector<Weight>* weights_ = nullptr;
};

// The same with tensors of its own, which hold the initial values: its cards have others.
class OwnTensors : public SkipModel {
 public:
  OwnTensors(const Job& job, const Stage& stage) : SkipModel(job, stage) {
    for (const ParameterCard& card : SkipModel::parameters()) {
      tensors_.push_back(at::full(card.shape, 0.0F));
      float* first = tensors_.back().mutable_data_ptr<float>();
      initial_values(card, job.seed, {first, static_cast<size_t>(card.count())});
    }
  }
  std::vector<ParameterCard> parameters() const override {
    std::vector<ParameterCard> cards = SkipModel::parameters();
    for (ParameterCard& card : cards) card.deviation = 0, card.constant = 99;
    return cards;
  }
  Tensors own_tensors() const override { return tensors_; }
  void bind(const Weights& weights) override {
    SkipModel::bind(weights);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      EXPECT_TRUE(weights.all()[i].value.is_same(tensors_[i]));
    }
  }

 private:
  Tensors tensors_;
};

// Sequences of other lengths in each micro-batch, at most those of the job.
class Shortened : public Data {
 public:
  explicit Shortened(const Job& job) : rows_(job.parallel.micro_rows) {
    auto whole = open_data(job);
    EXPECT_TRUE(whole.ok());
    whole_ = std::move(whole).value();
  }
  DataExtent extent() const override { return whole_->extent(); }
  Tensors inputs(const Draw& draw) const override {
    return {shortened(whole_->inputs(draw)[0], draw)};
  }
  Tensors targets(const Draw& draw) const override {
    return {shortened(whole_->targets(draw)[0].view({rows_, -1}), draw).reshape({-1})};
  }

 private:
  static at::Tensor shortened(const at::Tensor& rows, const Draw& draw) {
    return rows.narrow(1, 0, rows.size(1) - (draw.iteration.value + draw.micro) % 4);
  }

  const int64_t rows_;
  std::unique_ptr<Data> whole_;
};

EngineOptions options() {
  EngineOptions options;
  options.module = [](const Job& job, const DataExtent&, const Stage& stage) {
    return std::make_unique<SkipModel>(job, stage);
  };
  return options;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> tensors;
  bool operator==(const Trained&) const = default;
};

class StageModuleTest : public ToyTest {
 protected:
  StageModuleTest() : job_(toy_job(1, 4)) {
    write_lines("a.txt", 2000,
                [](std::ostream& out, int i) { out << i << " plus " << i * 7 % 31 << ".\n"; });
    job_.steps = 10;
    job_.model.layers = 3;
    job_.model.width = 24;
    job_.model.sequence = 11;
    job_.parallel.micro_rows = 3;
    job_.optimizer.learning_rate = 0.02;
    job_.validate_micros = 1;
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
  Trained train(const Job& job, const EngineOptions& with = options()) const {
    Driver driver(job, with);
    Trained trained;
    for (int64_t step = 0; step < 3; ++step) {
      for (const auto& [micro, loss] : driver.run(step).losses) trained.losses.push_back(loss);
    }
    for (const auto& [micro, loss] : driver.run(3, true).losses) trained.losses.push_back(loss);
    return read(trained, driver.save(folder()));
  }
  // The same by one loop over the whole module.
  Trained train_whole() const {
    const auto data = open_data(job_);
    EXPECT_TRUE(data.ok());
    return train_whole(*data.value());
  }
  Trained train_whole(const Data& data) const {
    at::set_num_threads(job_.device.threads);
    SkipModel module(job_, {0, cut_layers(job_.model), {}});
    Weights weights(job_, module.parameters(), at::kCPU);
    module.bind(weights);
    Trained trained;
    const auto loss_of = [&](const Draw& draw) {
      const at::Tensor loss =
          module.loss(module.forward(data.inputs(draw), {}), data.targets(draw));
      trained.losses.push_back(loss.item<double>());
      return loss;
    };
    for (int64_t step = 0; step < 3; ++step) {
      weights.clear_gradients();
      for (int32_t micro = 0; micro < 4; ++micro) {
        torch::autograd::backward({loss_of({false, {step}, micro})}, {});
      }
      at::Tensor totals = weights.totals();
      totals.copy_(weights.gradients());
      weights.divide(4);
      const WholeNorm norm = whole_of(weights.measure({}));
      EXPECT_EQ(norm.skip, 0);
      weights.update(job_, step, clip_factor(norm.norm, job_.optimizer.clip));
    }
    loss_of({true, {3}, 0});
    const std::string path = place("whole");
    EXPECT_TRUE(weights.save(path, 3).ok());
    return read(trained, {path});
  }

  Job job_;
};

TEST_F(StageModuleTest, EveryPartitionHasTheBitsOfTheWholeModule) {
  const Trained whole = train_whole();
  EXPECT_EQ(whole.losses.size(), 13U);
  EXPECT_LT(whole.losses[12], whole.losses[0]);  // it learns
  EXPECT_EQ(whole.tensors.size(), 5U * 3 * 3);
  const std::vector<float> buffer(48, 2.5F);  // no update has changed it
  EXPECT_EQ(whole.tensors.at("layer.2.scale"), buffer);
  for (const int32_t stages : {1, 2, 3, 5}) {
    for (const bool split : {false, true}) {
      SCOPED_TRACE(cat(stages, " stages, split ", split));
      Job job = job_;
      job.parallel.stages = stages;
      job.parallel.split_backward = split;
      EXPECT_TRUE(train(job) == whole);
      job.parallel.recompute = "all";
      EXPECT_TRUE(train(job) == whole);
    }
  }
  // A worker with two stages that are not neighbours receives tensors that only one of them reads.
  Job chunks = job_;
  chunks.parallel.stages = chunks.parallel.chunks = 2;
  chunks.parallel.order = "interleaved";
  EXPECT_TRUE(train(chunks) == whole);
}

TEST_F(StageModuleTest, MicroBatchesMayHaveOtherShapes) {
  const Trained whole = train_whole(Shortened(job_));
  EXPECT_EQ(whole.losses.size(), 13U);
  EXPECT_FALSE(whole == train_whole());
  EngineOptions varying;
  varying.module = [](const Job& job, const DataExtent&, const Stage& stage) {
    return std::make_unique<SkipModel>(job, stage, 0, Shapes::UpTo);
  };
  varying.data = [](const Job& job) -> Result<std::unique_ptr<Data>> {
    return std::unique_ptr<Data>(std::make_unique<Shortened>(job));
  };
  for (const int32_t stages : {1, 2, 5}) {
    for (const bool split : {false, true}) {
      SCOPED_TRACE(cat(stages, " stages, split ", split));
      Job job = job_;
      job.parallel.stages = stages;
      job.parallel.split_backward = split;
      EXPECT_TRUE(train(job, varying) == whole);
      job.parallel.recompute = "all";
      EXPECT_TRUE(train(job, varying) == whole);
    }
  }
}

TEST_F(StageModuleTest, TensorsOfAModulesOwnAreItsParameters) {
  EngineOptions own;
  own.module = [](const Job& job, const DataExtent&, const Stage& stage) {
    return std::make_unique<OwnTensors>(job, stage);
  };
  const Trained whole = train_whole();
  for (const bool split : {false, true}) {
    Job job = job_;
    job.parallel.stages = 2;
    job.parallel.split_backward = split;
    EXPECT_TRUE(train(job, own) == whole);
  }
}

TEST_F(StageModuleTest, SaysWhatFailsInAModule) {
  EngineOptions failing;
  failing.module = [](const Job&, const DataExtent&, const Stage&) -> std::unique_ptr<StageModule> {
    throw ModuleError("the module cannot be made");
  };
  const Plan plan = Driver(job_, options()).plan();
  QueueMailbox mailbox;
  const auto engine = make_engine(job_, plan, std::vector<StageId>{{0}}, mailbox, failing);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().message, "stage 0: the module cannot be made");
}

TEST_F(StageModuleTest, SaysWhichModulesDoNotFitTogether) {
  Job job = job_;
  job.parallel.stages = 2;
  const Plan plan = Driver(job, options()).plan();
  QueueMailbox mailbox;
  for (const std::vector<StageId>& stages : {std::vector<StageId>{{0}}, {{0}, {1}}}) {
    EngineOptions wrong;
    wrong.module = [](const Job& of, const DataExtent&, const Stage& stage) {
      return std::make_unique<SkipModel>(of, stage, 7);
    };
    const auto engine = make_engine(job, plan, stages, mailbox, wrong);
    ASSERT_FALSE(engine.ok());
    EXPECT_NE(engine.error().message.find("stages 0 and 1"), std::string::npos);
  }
}

TEST(Boundary, LaysTensorsOutFromMultiplesOf64Bytes) {
  const Boundary boundary({{at::kLong, {3}}, {at::kFloat, {2, 17}}, {at::kBFloat16, {1}}});
  const Tensors tensors = {at::arange(3), at::rand({17, 2}).t(), at::full({1}, 2, at::kBFloat16)};
  const auto block = boundary.pack(tensors);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(block.value().nbytes(), 64U + 192 + 64);
  const Tensors back = boundary.unpack(block.value());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(tensors[i], back[i]));
    EXPECT_EQ(tensors[i].scalar_type(), back[i].scalar_type());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(back[i].data_ptr()) % 64, 0U);
  }
  EXPECT_TRUE(boundary.gradients() == Boundary({{at::kFloat, {2, 17}}, {at::kBFloat16, {1}}}));
  const auto wrong = boundary.pack({tensors[0], tensors[1].t(), tensors[2]});
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("Float[17, 2]"), std::string::npos);
  EXPECT_NE(wrong.error().message.find("Float[2, 17]"), std::string::npos);
}

TEST(Boundary, ShapesUpToALimitTravelWithTheTensors) {
  const Boundary boundary({{at::kLong, {3}}, {at::kFloat, {2, 17}}}, Shapes::UpTo);
  for (const Tensors& tensors :
       {Tensors{at::arange(3), at::rand({2, 17})}, Tensors{at::arange(0), at::rand({1, 5})}}) {
    const auto block = boundary.pack(tensors);
    ASSERT_TRUE(block.ok());
    EXPECT_EQ(block.value().nbytes(), 64U + 64 + 192);
    const Tensors back = boundary.unpack(block.value());
    ASSERT_EQ(back.size(), 2U);
    EXPECT_TRUE(at::equal(tensors[0], back[0]));
    EXPECT_TRUE(at::equal(tensors[1], back[1]));
  }
  EXPECT_TRUE(boundary.gradients() == Boundary({{at::kFloat, {2, 17}}}, Shapes::UpTo));
  const Boundary one({{at::kFloat, {4, 3}}}, Shapes::UpTo);
  const auto block = one.pack({at::full({2, 3}, 5.0F)});
  ASSERT_TRUE(block.ok());
  EXPECT_TRUE(at::equal(one.unpack(block.value())[0], at::full({2, 3}, 5.0F)));
  for (const at::Tensor& wrong :
       {at::rand({5, 3}), at::rand({4}), at::rand({1, 3}).to(at::kHalf)}) {
    const auto refused = one.pack({wrong});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("at most Float[4, 3]"), std::string::npos);
  }
}

TEST(Boundary, OneTensorIsItsOwnBlock) {
  const Boundary boundary({{at::kFloat, {2, 3}}});
  const at::Tensor tensor = at::rand({2, 3});
  const auto block = boundary.pack({tensor});
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(block.value().data_ptr(), tensor.data_ptr());
  EXPECT_EQ(boundary.unpack(block.value())[0].data_ptr(), tensor.data_ptr());
}

// Of a model of our own: three of four targets have the largest logit.
TEST_F(StageModuleTest, TheAccuracyIsTheShareOfLikeliestTargets) {
  const Job job = toy_job(1, 1);
  const Stage whole{0, cut_layers(job.model), {}, false};
  const std::unique_ptr<StageModule> module =
      model_kind(job.model).make(job, DataExtent{256, 0}, whole);
  const at::Tensor logits = at::arange(8, at::kFloat).reshape({2, 2, 2});
  const at::Tensor largest = at::full({2, 2}, 1, at::kLong);
  const at::Tensor targets = largest.clone();
  targets[0][0].fill_(0);
  EXPECT_EQ(module->accuracy({logits}, {targets}).item<double>(), 0.75);
  EXPECT_EQ(module->accuracy({logits}, {largest}).item<double>(), 1);
  // A user's model need not know any.
  EXPECT_FALSE(SkipModel(job, whole).accuracy({logits}, {targets}).defined());
}

}  // namespace
}  // namespace tenuto
