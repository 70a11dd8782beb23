// The engine through its interface: partitions, optimizers, undo, shards, skipped steps, refusals.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/safetensors.h"
#include "base/text.h"
#include "engine/driver.h"
#include "engine/flat_state.h"
#include "engine/toy_job.h"

namespace tenuto {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;

Tensors read(const std::vector<std::string>& shards) {
  Tensors tensors;
  for (const std::string& path : shards) {
    auto file = SafetensorsFile::open(path);
    EXPECT_TRUE(file.ok());
    for (const auto& [name, place] : file.value().tensors()) {
      EXPECT_FALSE(tensors.contains(name)) << name << " is in two shards";
      tensors[name].resize(static_cast<size_t>(place.end - place.first) / sizeof(float));
      EXPECT_TRUE(file.value().read(name, std::as_writable_bytes(std::span(tensors[name]))).ok());
    }
  }
  return tensors;
}

void expect_same_bits(const Tensors& left, const Tensors& right) {
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, values] : left) {
    ASSERT_TRUE(right.contains(name)) << name;
    const std::vector<float>& others = right.at(name);
    ASSERT_EQ(values.size(), others.size()) << name;
    EXPECT_EQ(std::memcmp(values.data(), others.data(), values.size() * sizeof(float)), 0) << name;
  }
}

class EngineTest : public ToyTest {
 protected:
  EngineTest() {
    write_lines("a.txt", 2000, [](std::ostream& out, int i) {
      out << i << " plus " << i * 7 % 31 << " is " << i + i * 7 % 31 << ".\n";
    });
    write_lines("b.txt", 2000, [](std::ostream& out, int i) {
      out << "Z" << i * i % 1009 << "#" << std::hex << i << "\n";
    });
  }

  Job job(int32_t stages, bool split = true) const {
    Job job = toy_job(stages, 4);
    job.steps = 10;
    job.model.dropout = 0.1;
    job.optimizer.warm_up_steps = 2;
    job.parallel.split_backward = split;
    job.validate_micros = 2;
    return job;
  }

  // The results of four steps; their norms and losses must not depend on the partition either.
  struct Trained {
    std::vector<double> numbers;
    Tensors tensors;
    std::map<int32_t, double> held_out;
  };
  Trained train(const Job& job) {
    Driver driver(job);
    Trained trained;
    for (int64_t step = 0; step < 4; ++step) {
      const DrivenStep driven = driver.run(step);
      EXPECT_EQ(driven.losses.size(), 4U);
      for (const auto& [micro, loss] : driven.losses) trained.numbers.push_back(loss);
      for (const StepOutcome& outcome : driven.outcomes) {
        EXPECT_EQ(outcome.gradient_norm, driven.outcomes[0].gradient_norm);
        EXPECT_TRUE(outcome.finite);
      }
      trained.numbers.push_back(driven.outcomes[0].gradient_norm);
      trained.numbers.push_back(driven.outcomes[0].learning_rate);
    }
    trained.held_out = driver.run(4, true).losses;
    trained.tensors = read(driver.save(folder()));
    return trained;
  }
  void expect_same(const Trained& left, const Trained& right) {
    EXPECT_EQ(left.numbers, right.numbers);
    EXPECT_EQ(left.held_out, right.held_out);
    expect_same_bits(left.tensors, right.tensors);
  }
};

TEST_F(EngineTest, SplitAndPartitionChangeNoBit) {
  const Trained alone = train(job(1, false));
  EXPECT_EQ(alone.held_out.size(), 2U);
  EXPECT_NEAR(alone.numbers[0], std::log(256.0), 0.1);
  expect_same(alone, train(job(1, true)));
  for (const int32_t stages : {2, 3, 4}) {
    SCOPED_TRACE(stages);
    expect_same(alone, train(job(stages, stages != 2)));
  }
}

TEST_F(EngineTest, LowPrecisionDoesNotDependOnThePartition) {
  Job low = job(1), cut = job(4);
  low.device.precision = cut.device.precision = "bf16";
  const Trained alone = train(low);
  expect_same(alone, train(cut));
  EXPECT_NE(alone.numbers, train(job(1)).numbers);
}

TEST_F(EngineTest, MomentumDoesNotDependOnThePartition) {
  Job alone = job(1), cut = job(3);
  alone.optimizer.kind = cut.optimizer.kind = "sgd";
  alone.model.width = cut.model.width = 20;  // sizes that fill no vector register
  const Trained trained = train(alone);
  expect_same(trained, train(cut));
  EXPECT_TRUE(trained.tensors.contains("optimizer.head.weight.momentum"));
}

TEST_F(EngineTest, ClassifierLearnsWhateverThePartition) {
  Job alone = job(1);
  alone.model.kind = "mlp";
  alone.model.dropout = 0;
  alone.data.kind = "classes";
  alone.data.paths = {place("a.txt"), place("b.txt")};
  alone.optimizer.learning_rate = 0.01;
  Job cut = alone;
  cut.parallel.stages = 3;
  const Trained trained = train(alone);
  expect_same(trained, train(cut));
  cut.parallel.recompute = "all";
  for (const double dropout : {0.0, 0.1}) {
    Job plain = alone, again = cut;
    plain.model.dropout = again.model.dropout = dropout;
    expect_same(train(plain), train(again));
  }
  Driver driver(cut);
  for (int64_t step = 0; step < 10; ++step) driver.run(step);
  for (const auto& [micro, loss] : driver.run(10, true).losses) EXPECT_LT(loss, 0.3);
}

TEST_F(EngineTest, TiedHeadIsOneWeightOnTwoStages) {
  Job alone = job(1, false), cut = job(3), wide = job(2);
  alone.model.tied = cut.model.tied = wide.model.tied = true;
  wide.parallel.pipelines = 2;
  wide.parallel.micros = 2;
  const Trained one = train(alone);
  EXPECT_FALSE(one.tensors.contains("head.weight"));
  for (const Job& other : {cut, wide}) {
    const Trained many = train(other);
    ASSERT_EQ(one.numbers.size(), many.numbers.size());
    // Orders of addition differ by a few units of fp32, which four steps amplify.
    for (size_t i = 0; i < one.numbers.size(); ++i) {
      EXPECT_NEAR(one.numbers[i], many.numbers[i], 1e-5 * one.numbers[i]);
    }
  }
  // The last stage's copy of the weight has the same bits as the first stage's weight: only the
  // latter is saved, and after both stages have loaded it, the losses are the same.
  Driver driver(cut);
  driver.run(0);
  const auto shards = driver.save(folder());
  const auto before = driver.run(1, true).losses;
  for (int32_t worker = 0; worker < 3; ++worker) {
    ASSERT_TRUE(driver.engine(worker).load(shards, 1).ok());
  }
  EXPECT_EQ(driver.run(1, true).losses, before);
}

TEST_F(EngineTest, UndoIsExact) {
  for (const char* optimizer : {"adamw", "sgd"}) {
    Job two = job(2);
    two.optimizer.kind = optimizer;
    Driver driver(two);
    EXPECT_FALSE(driver.engine(0).undo().ok());
    driver.run(0);
    const Tensors before = read(driver.save(folder()));
    driver.run(1);
    const Tensors after = read(driver.save(folder()));
    EXPECT_NE(before.at("block.0.feed.up.weight"), after.at("block.0.feed.up.weight"));
    for (int32_t worker = 0; worker < 2; ++worker) {
      ASSERT_TRUE(driver.engine(worker).undo().ok());
      EXPECT_EQ(driver.engine(worker).version(), 1);
      const Status twice = driver.engine(worker).undo();
      ASSERT_FALSE(twice.ok());
      EXPECT_EQ(twice.error().code, Code::Invalid);
    }
    expect_same_bits(before, read(driver.save(folder())));
    driver.run(1);
    expect_same_bits(after, read(driver.save(folder())));
  }
}

// A donor's state is copied in parts of some units each. The copy then trains like the original,
// bit for bit.
TEST_F(EngineTest, TheStateIsTransferredInParts) {
  for (const char* optimizer : {"adamw", "sgd"}) {
    for (const bool low : {false, true}) {
      Job two = job(2);
      two.optimizer.kind = optimizer;
      if (low) two.device.precision = "bf16";
      Driver donor(two), joiner(two);
      for (int64_t step = 0; step < 3; ++step) donor.run(step);
      joiner.run(0);  // so that it holds another state
      for (int32_t worker = 0; worker < 2; ++worker) {
        Device& from = donor.engine(worker);
        Device& to = joiner.engine(worker);
        const StageId stage{worker};
        const int64_t bytes = from.state_bytes(stage);
        ASSERT_EQ(bytes, to.state_bytes(stage));
        ASSERT_TRUE(to.adopt(3).ok());
        EXPECT_EQ(to.version(), 3);
        EXPECT_EQ(to.finality().version, 3);
        EXPECT_FALSE(to.undo().ok());
        int64_t first = 0;
        for (int64_t units = 1; first < bytes; units = units * 3 + 1) {
          const int64_t size = units * from.state_unit(stage);
          std::vector<std::byte> part(static_cast<size_t>(std::min(size, bytes - first)));
          ASSERT_TRUE(from.read_state(stage, first, part).ok());
          ASSERT_TRUE(to.write_state(stage, first, part).ok());
          first += std::ssize(part);
        }
      }
      for (int64_t step = 3; step < 5; ++step) {
        EXPECT_EQ(joiner.run(step).losses, donor.run(step).losses) << optimizer;
      }
      const Tensors taught = read(joiner.save(folder()));
      expect_same_bits(read(donor.save(folder())), taught);
    }
  }
}

TEST_F(EngineTest, AnAbandonedStepLeavesNothingBehind) {
  const Job one = job(1);
  Driver driver(one), calm(one);
  Device& engine = driver.engine(0);
  ASSERT_TRUE(engine.begin(0).ok());
  for (const OpKind kind : {OpKind::Forward, OpKind::BackwardInput}) {
    driver.run_op(0, {kind, ValueKind::None, -1, {0}, {1}, {}, {}});
  }
  driver.run(0);
  calm.run(0);
  const Tensors shaken = read(driver.save(folder()));
  expect_same_bits(shaken, read(calm.save(folder())));
}

TEST_F(EngineTest, ResumesOnAnotherPartition) {
  Driver straight(job(1));
  for (int64_t step = 0; step < 2; ++step) straight.run(step);
  const auto whole = straight.save(folder());
  Driver middle(job(4));
  for (int32_t worker = 0; worker < 4; ++worker) {
    const Status loaded = middle.engine(worker).load(whole, 2);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(middle.engine(worker).version(), 2);
  }
  middle.run(2);
  const auto quarters = middle.save(folder());
  Driver last(job(2));
  for (int32_t worker = 0; worker < 2; ++worker) {
    ASSERT_TRUE(last.engine(worker).load(quarters, 3).ok());
  }
  last.run(3);
  for (int64_t step = 2; step < 4; ++step) straight.run(step);
  const Tensors end = read(straight.save(folder()));
  expect_same_bits(end, read(last.save(folder())));
}

TEST_F(EngineTest, SaysWhyShardsDoNotFit) {
  Driver driver(job(2));
  driver.run(0);
  auto shards = driver.save(folder());
  const Tensors before = read(shards);
  const auto refusal = [&](const Job& own, const std::vector<std::string>& paths,
                           int64_t version) -> std::string {
    Driver other(own);
    const Status loaded = other.engine(0).load(paths, version);
    return loaded.ok() ? "" : loaded.error().message;
  };
  EXPECT_EQ(refusal(job(1), shards, 1), "");
  EXPECT_NE(refusal(job(1), shards, 2).find("is of step 1, expected 2"), std::string::npos);
  EXPECT_NE(refusal(job(1), {shards[0]}, 1).find("no shard has the tensor"), std::string::npos);
  EXPECT_NE(refusal(job(1), {}, 1).find("no shard has the tensor"), std::string::npos);
  EXPECT_NE(refusal(job(1), {place("a.txt")}, 1).find("a.txt"), std::string::npos);
  Job wider = job(1), momentum = job(1);
  wider.model.width = 64;
  EXPECT_NE(refusal(wider, shards, 1).find("this job's model needs F32 [256, 64]"),
            std::string::npos);
  momentum.optimizer.kind = "sgd";
  EXPECT_NE(refusal(momentum, shards, 1).find("optimizer.kind"), std::string::npos);
  // A failed load changes nothing.
  EXPECT_FALSE(driver.engine(0).load({shards[1]}, 1).ok());
  expect_same_bits(before, read(driver.save(folder())));
}

// If the gradient of one stage is not finite, every stage skips the step.
TEST_F(EngineTest, ANonFiniteGradientSkipsTheStep) {
  Driver driver(job(3));
  driver.run(0);
  auto shards = driver.save(folder());
  auto file = SafetensorsFile::open(shards[0]);
  ASSERT_TRUE(file.ok());
  Tensors tensors = read({shards[0]});
  tensors.at("position.weight")[5] = std::numeric_limits<float>::quiet_NaN();
  std::vector<NamedTensor> list;
  for (const auto& [name, shape] : file.value().tensors()) {
    list.push_back({name, "F32", shape.shape, std::as_bytes(std::span(tensors.at(name)))});
  }
  ASSERT_TRUE(write_safetensors(shards[0], list, file.value().metadata()).ok());
  for (int32_t worker = 0; worker < 3; ++worker) {
    ASSERT_TRUE(driver.engine(worker).load(shards, 1).ok());
  }
  const Tensors before = read(shards);
  const DrivenStep driven = driver.run(1);
  for (const StepOutcome& outcome : driven.outcomes) EXPECT_FALSE(outcome.finite);
  for (const auto& [micro, loss] : driven.losses) EXPECT_TRUE(std::isnan(loss));
  expect_same_bits(before, read(driver.save(folder())));
  for (int32_t worker = 0; worker < 3; ++worker) {
    EXPECT_EQ(driver.engine(worker).version(), 2);
    ASSERT_TRUE(driver.engine(worker).undo().ok());
    EXPECT_EQ(driver.engine(worker).version(), 1);
  }
  expect_same_bits(before, read(driver.save(folder())));
}

TEST_F(EngineTest, AnOpWithoutItsInputReportsAnError) {
  const Job two = job(2);
  Driver driver(two);
  QueueMailbox mailbox;
  for (const int32_t stage : {0, 1}) {
    auto engine = make_engine(two, driver.plan(), {{stage}}, mailbox);
    ASSERT_TRUE(engine.ok());
    ASSERT_TRUE(engine.value()->begin(0).ok());
    for (const OpKind kind : {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight,
                              OpKind::Measure, OpKind::Step}) {
      // Only these need nothing of another stage.
      if (kind == (stage == 0 ? OpKind::Forward : OpKind::Measure)) continue;
      const Op op{kind, ValueKind::None, -1, {stage}, {0}, {}, {}};
      ASSERT_TRUE(engine.value()->start(op, {}, Ticket{9}).ok());
      const auto done = mailbox.wait(std::chrono::seconds(30));
      ASSERT_TRUE(done.ok());
      EXPECT_FALSE(done.value().status.ok());
    }
    EXPECT_FALSE(engine.value()->bytes({ValueKind::Activation, -1, {stage}, {0}}).ok());
  }
}

TEST_F(EngineTest, SaysWhichDevicesThereAre) {
  Job absent = job(1);
  const Plan plan = Driver(absent).plan();
  absent.device.kind = "abacus";
  QueueMailbox mailbox;
  const auto engine = make_engine(absent, plan, {{0}}, mailbox);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.error().message.find("abacus"), std::string::npos);
  EXPECT_NE(engine.error().message.find("cpu"), std::string::npos);
  EXPECT_NE(engine_description().find("libtorch"), std::string::npos);
}

TEST_F(EngineTest, SamplesTheSameFromAnyPartition) {
  const auto sampled = [&](int32_t stages, double temperature, int64_t seed) {
    Driver driver(job(stages));
    for (int64_t step = 0; step < 3; ++step) driver.run(step);
    std::string text;
    const Status done =
        sample(job(stages), driver.save(folder()), {"1 plus", 40, temperature, seed},
               [&](const std::string& more) { text += more; });
    EXPECT_TRUE(done.ok()) << done.error().message;
    return text;
  };
  const std::string likely = sampled(1, 0, 1), hot = sampled(1, 1, 1);
  EXPECT_EQ(likely.size(), 40U);
  EXPECT_EQ(likely, sampled(3, 0, 2));
  EXPECT_EQ(hot, sampled(3, 1, 1));
  EXPECT_NE(hot, sampled(1, 1, 2));
  Driver driver(job(1));
  for (int64_t step = 0; step < 3; ++step) driver.run(step);
  std::vector<float> values = values_of(driver.engine(0), {0});
  std::string given;
  const auto add = [&given](const std::string& more) { given += more; };
  const Status done = sample_from_parameters(job(1), values, {"1 plus", 40, 0, 1}, add);
  EXPECT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(given, likely);
  values.pop_back();
  EXPECT_FALSE(sample_from_parameters(job(1), values, {"", 1, 1, 1}, add).ok());
  Job classifier = job(1);
  classifier.model.kind = "mlp";
  EXPECT_FALSE(sample(classifier, {}, {"", 1, 1, 1}, [](const std::string&) {}).ok());
  EXPECT_FALSE(sample(job(1), {place("absent")}, {"", 1, 1, 1}, [](const std::string&) {}).ok());
}

}  // namespace
}  // namespace tenuto
