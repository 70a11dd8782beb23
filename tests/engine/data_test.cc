// The user's data: which rows a micro-batch gets, and the errors for data that does not fit.
#include "engine/data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "world/parameters.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

class DataTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / cat("tenuto-data-", getpid());
    fs::create_directories(folder_ / "texts" / "deep");
    job_.data.paths = {(folder_ / "texts").string()};
    job_.model.sequence = 8;
    job_.parallel.micro_rows = 3;
    job_.validate_micros = 2;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::string path = (folder_ / "texts" / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string refusal() const {
    const auto data = open_data(job_);
    return data.ok() ? std::string() : data.error().message;
  }
  static std::vector<int64_t> inputs(const Data& data, const Draw& draw) {
    return values<int64_t>(data.inputs(draw));
  }
  static std::vector<int64_t> targets(const Data& data, const Draw& draw) {
    return values<int64_t>(data.targets(draw));
  }
  template <class Number>
  static std::vector<Number> values(const Tensors& tensors) {
    EXPECT_EQ(tensors.size(), 1U);
    const Number* first = tensors[0].const_data_ptr<Number>();
    return {first, first + tensors[0].numel()};
  }

  fs::path folder_;
  Job job_;
};

TEST_F(DataTest, RowsAreAFunctionOfIterationAndMicro) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += cat(i, " ");
  write("numbers.txt", text);
  const auto data = open_data(job_), again = open_data(job_);
  ASSERT_TRUE(data.ok() && again.ok());
  std::set<std::vector<int64_t>> seen;
  for (int64_t iteration = 0; iteration < 5; ++iteration) {
    for (int32_t micro = 4; micro-- > 0;) {
      const auto rows = inputs(*data.value(), {false, {iteration}, micro});
      EXPECT_EQ(rows, inputs(*again.value(), {false, {iteration}, micro}));
      seen.insert(rows);
    }
  }
  EXPECT_EQ(seen.size(), 20U);
  EXPECT_EQ(inputs(*data.value(), {true, {0}, 1}), inputs(*data.value(), {true, {9}, 1}));
  EXPECT_NE(inputs(*data.value(), {true, {0}, 1}), inputs(*data.value(), {true, {0}, 0}));
  job_.seed = 2;
  EXPECT_NE(inputs(*open_data(job_).value(), {false, {0}, 0}),
            inputs(*data.value(), {false, {0}, 0}));
}

TEST_F(DataTest, TargetsAreTheNextBytesAndTheHeldOutPartIsApart) {
  std::string text(900, 'a');
  for (int i = 0; i < 100; ++i) text += static_cast<char>('b' + i % 20);
  write("text", text);
  const auto data = open_data(job_);
  ASSERT_TRUE(data.ok());
  for (int64_t step = 0; step < 50; ++step) {
    EXPECT_EQ(inputs(*data.value(), {false, {step}, 0}), std::vector<int64_t>(24, 'a'));
    EXPECT_EQ(targets(*data.value(), {false, {step}, 0}), std::vector<int64_t>(24, 'a'));
  }
  const auto in = inputs(*data.value(), {true, {0}, 1});
  const auto out = targets(*data.value(), {true, {0}, 1});
  ASSERT_EQ(in.size(), 24U);
  ASSERT_EQ(out.size(), 24U);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_NE(in[i], 'a');
    if (i % 8 != 7) {
      EXPECT_EQ(out[i], in[i + 1]);
    }
  }
}

TEST_F(DataTest, FoldersGiveTextFilesByPathWithoutLinks) {
  write("b", std::string(200, 'b'));
  write("deep/a", std::string(200, 'a'));
  write("binary", std::string(500, '\0'));
  fs::create_symlink(folder_ / "texts", folder_ / "texts" / "loop");
  const auto data = open_data(job_);
  ASSERT_TRUE(data.ok()) << data.error().message;
  for (int64_t step = 0; step < 20; ++step) {
    for (const int64_t byte : inputs(*data.value(), {false, {step}, 0})) {
      EXPECT_TRUE(byte == 'a' || byte == 'b');
    }
  }
}

TEST_F(DataTest, SaysWhatIsMissing) {
  EXPECT_NE(refusal().find("no file without NUL"), std::string::npos);
  const std::string small = write("small", "only a few bytes");
  EXPECT_NE(refusal().find("held-out part of 1 files has 1 bytes"), std::string::npos) << refusal();
  EXPECT_NE(refusal().find("needs 9: give at least 91 bytes"), std::string::npos) << refusal();
  job_.data.paths = {small + ".absent"};
  EXPECT_NE(refusal().find(small + ".absent"), std::string::npos);
  job_.data.paths = {write("nul", std::string("a\0b", 3))};
  EXPECT_NE(refusal().find("NUL"), std::string::npos);
  job_.data.paths = {};
  EXPECT_NE(refusal().find("data.paths is empty"), std::string::npos);
  job_.data.kind = "csv";
  EXPECT_NE(refusal().find("gpt takes text"), std::string::npos);
}

TEST_F(DataTest, ClassesAreFilesAndFeaturesTheirBytes) {
  job_.model.kind = "mlp";
  job_.data.kind = "classes";
  write("0", std::string(200, 'x'));
  EXPECT_NE(refusal().find("at least 2"), std::string::npos);
  write("1", std::string(200, 'y'));
  const auto data = open_data(job_);
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ(data.value()->extent().classes, 2);
  std::set<int64_t> seen;
  for (int64_t step = 0; step < 10; ++step) {
    const Draw draw{step % 2 == 1, {step}, 0};
    const auto features = values<float>(data.value()->inputs(draw));
    const auto classes = targets(*data.value(), draw);
    ASSERT_EQ(features.size(), 3U * 256);
    ASSERT_EQ(classes.size(), 3U);
    for (size_t row = 0; row < 3; ++row) {
      seen.insert(classes[row]);
      EXPECT_EQ(features[row * 256 + (classes[row] == 0 ? 'x' : 'y')], 256.0F);
    }
  }
  EXPECT_EQ(seen.size(), 2U);
  write("2", "tiny");
  EXPECT_NE(refusal().find("texts/2"), std::string::npos);
}

TEST_F(DataTest, TablesAreScaledAndCheckedLineByLine) {
  job_.model.kind = "mlp";
  job_.data.kind = "csv";
  job_.data.held_out = 0.5;
  const std::string path = write("table.csv",
                                 "height, weight, kind\n1, 10, 0\r\n3, 10, 2\n\n"
                                 "5,10,1\n7,10,1");
  const auto data = open_data(job_);
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ(data.value()->extent().features, 2);
  EXPECT_EQ(data.value()->extent().classes, 3);
  const auto features = values<float>(data.value()->inputs({false, {0}, 0}));
  const auto classes = targets(*data.value(), {false, {0}, 0});
  ASSERT_EQ(features.size(), 3U * 2);
  ASSERT_EQ(classes.size(), 3U);
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(features[2 * row], classes[row] == 0 ? -1.0F : 1.0F);  // mean 2, deviation 1
    EXPECT_EQ(features[2 * row + 1], 0.0F);
  }
  for (const auto& [lines, says] : {std::pair{"1,2,0\n1,two,0", ":2: not a line of finite numbers"},
                                    {"1,2,0\n1,0", ":2: has 2 columns"},
                                    {"1,2,0\n1,2,0.5", "the class, a whole number"},
                                    {"1,2,0\n1,nan,1", "finite"},
                                    {"1", "at least a number and a class"},
                                    {"1,2,0", "no held-out line"}}) {
    write("table.csv", lines);
    EXPECT_NE(refusal().find(says), std::string::npos) << refusal();
  }
}

TEST(Parameters, AreTheSameWhateverTheCut) {
  ModelSettings model;
  model.layers = 3;
  const auto names = [&](const std::vector<int32_t>& cuts) {
    std::vector<std::string> all;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      for (const ParameterCard& card : parameters_of(model, {}, cuts[i], cuts[i + 1])) {
        if (card.counted) all.push_back(card.name);
      }
    }
    return all;
  };
  for (const bool tied : {false, true}) {
    model.tied = tied;
    EXPECT_EQ(names({0, 5}), names({0, 2, 4, 5}));
    EXPECT_EQ(names({0, 5}), names({0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(names({0, 5}).size(), tied ? 40U : 41U);
  }
}

TEST(Parameters, StartFromSeedAndName) {
  const ParameterCard card{"block.0.feed.up.weight", {100, 101}, 0.02};
  ParameterCard other = card;
  other.name = "block.1.feed.up.weight";
  std::vector<float> one(10100), same(10100), another(10100);
  initial_values(card, 1, one);
  initial_values(card, 1, same);
  initial_values(other, 1, another);
  EXPECT_EQ(one, same);
  EXPECT_NE(one, another);
  initial_values(card, 2, same);
  EXPECT_NE(one, same);
  double sum = 0, squares = 0;
  for (const float value : one) {
    sum += value;
    squares += double{value} * value;
  }
  // Five standard deviations of the sample mean and of the sample variance.
  EXPECT_NEAR(sum / 10100, 0, 5 * 0.02 / std::sqrt(10100.0));
  EXPECT_NEAR(squares / 10100, 0.0004, 5 * 0.0004 * std::sqrt(2.0 / 10100));
}

TEST(LearningRate, WarmsUpThenFalls) {
  OptimizerSettings optimizer;
  optimizer.learning_rate = 1;
  optimizer.warm_up_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 0, 104), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 3, 104), 1);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 4, 104), 1);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 54, 104), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 104, 104), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 500, 104), 0.1);
  optimizer.schedule = "constant";
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 54, 104), 1);
}

}  // namespace
}  // namespace tenuto
