// Model files: read, written, and evaluated at numbers of rows.
#include "world/model_profile.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "world/job_file.h"

namespace tenuto {
namespace {

constexpr char kTimes[] =
    "\"forward_ms\": [1, 3], \"backward_input_ms\": [2, 4], \"backward_weight_ms\": [0.5, 0.5]";
constexpr char kBytes[] = "\"activation_bytes\": 10, \"stash_bytes\": 30, \"parameter_bytes\": 400";

// A model file of one layer; the last part of it may be replaced.
std::string file(const std::string& layer) {
  return cat("{\"rows\": [1, 3], \"layers\": [", layer, "]}");
}

std::string good_layer() { return cat("{\"name\": \"a\", ", kTimes, ", ", kBytes, "}"); }

std::string refusal(const std::string& text) {
  const auto profile = model_profile_from_json(text, "FILE");
  if (profile.ok()) return "accepted";
  EXPECT_EQ(profile.error().code, Code::Invalid);
  EXPECT_EQ(profile.error().message.substr(0, 5), "FILE:");
  return profile.error().message.substr(5);
}

ModelProfile sample() {
  ModelProfile profile;
  profile.name = "two \"layers\"";
  profile.rows = {1, 2, 4};
  profile.op = Duration(1500);
  profile.tied = {16};
  for (const int64_t factor : {1, 3}) {
    LayerProfile& layer = profile.layers.emplace_back();
    layer.name = cat("layer ", factor);
    for (const int64_t time : {1'000'003, 1'500'000, 2'500'001}) {
      layer.forward.emplace_back(time * factor);
      layer.backward_input.emplace_back(time * factor + 1);
      layer.backward_weight.emplace_back(time * factor + 2);
    }
    layer.update = Duration(777 * factor);
    layer.activation = {100 * factor};
    layer.stash = {300 * factor};
    layer.parameters = {4000 * factor};
    layer.optimizer = Bytes{8000 * factor};
    layer.spread = 0.0625;
  }
  return profile;
}

TEST(ModelProfile, WhatIsWrittenIsReadBack) {
  const ModelProfile before = sample();
  const auto read = model_profile_from_json(to_json(before), "written");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const ModelProfile& after = read.value();
  EXPECT_EQ(after.name, before.name);
  EXPECT_EQ(after.rows, before.rows);
  EXPECT_EQ(after.op, before.op);
  EXPECT_EQ(after.tied, before.tied);
  ASSERT_EQ(after.layers.size(), before.layers.size());
  for (size_t i = 0; i < after.layers.size(); ++i) {
    const LayerProfile &found = after.layers[i], &wanted = before.layers[i];
    EXPECT_EQ(found.name, wanted.name);
    EXPECT_EQ(found.forward, wanted.forward);
    EXPECT_EQ(found.backward_input, wanted.backward_input);
    EXPECT_EQ(found.backward_weight, wanted.backward_weight);
    EXPECT_EQ(found.update, wanted.update);
    EXPECT_EQ(found.activation, wanted.activation);
    EXPECT_EQ(found.stash, wanted.stash);
    EXPECT_EQ(found.parameters, wanted.parameters);
    EXPECT_EQ(found.optimizer, wanted.optimizer);
    EXPECT_EQ(found.spread, wanted.spread);
  }
  EXPECT_EQ(to_json(after), to_json(before));
}

TEST(ModelProfile, TimesLieOnLinesThroughWhatWasMeasured) {
  ModelProfile profile = sample();
  profile.layers.resize(1);
  profile.layers[0].forward = {Duration(1000), Duration(1600), Duration(3000)};
  const auto forward = [&](int32_t rows) {
    return model_at(profile, rows).layers[0].forward.count();
  };
  EXPECT_EQ(forward(1), 1000);
  EXPECT_EQ(forward(2), 1600);
  EXPECT_EQ(forward(3), 2300);
  EXPECT_EQ(forward(4), 3000);
  EXPECT_EQ(forward(6), 4400);
  profile.rows = {4, 6, 8};
  EXPECT_EQ(forward(1), 100);
  profile.layers[0].forward = {Duration(1000), Duration(3000), Duration(2000)};
  EXPECT_EQ(forward(1), 0);
  EXPECT_EQ(forward(20), 0);
  profile.rows = {2};
  for (auto* times : {&profile.layers[0].forward, &profile.layers[0].backward_input,
                      &profile.layers[0].backward_weight}) {
    *times = {Duration(1000)};
  }
  EXPECT_EQ(forward(3), 1500);
}

TEST(ModelProfile, BytesGrowWithTheRowsAndParametersDoNot) {
  const Model model = model_at(sample(), 3);
  EXPECT_EQ(model.layers[1].activation, Bytes{900});
  EXPECT_EQ(model.layers[1].stash, Bytes{2700});
  EXPECT_EQ(model.layers[1].parameters, Bytes{12000});
  EXPECT_EQ(model.layers[1].update, Duration(2331));
  EXPECT_EQ(model.op, Duration(1500));
  EXPECT_EQ(model.tied, Bytes{16});
  const StageCost cost = stage_cost(model, {0, 2, {{0}}});
  EXPECT_EQ(cost.update, Duration(777 * 4));
  EXPECT_EQ(cost.forward, model.layers[0].forward + model.layers[1].forward + Duration(1500));
  EXPECT_EQ(cost.backward_weight,
            model.layers[0].backward_weight + model.layers[1].backward_weight);
}

TEST(ModelProfile, AModelFileIsAChain) {
  const File file(to_json(sample()));
  const auto largest = load_chain(file.path()), three = load_chain(file.path(), 3);
  ASSERT_TRUE(largest.ok() && three.ok());
  EXPECT_EQ(largest.value().names, (std::vector<std::string>{"layer 1", "layer 3"}));
  EXPECT_EQ(largest.value().model.layers[0].activation, Bytes{400});
  EXPECT_EQ(three.value().model.layers[0].activation, Bytes{300});
  EXPECT_EQ(three.value().model.layers[0].backward_weight, Duration(2'000'002 + 1));
}

TEST(ModelProfile, RefusesWithThePlaceOfTheValue) {
  const auto layer = [](const std::string& replaced, const std::string& by) {
    std::string text = good_layer();
    const size_t at = text.find(replaced);
    EXPECT_NE(at, std::string::npos);
    return file(text.replace(at, replaced.size(), by));
  };
  ASSERT_EQ(refusal(file(good_layer())), "accepted");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", " expected a model as JSON, found an empty file"},
      {"{\"rows\": [1],\n\"layers\": [}",
       "2:12: expected a model as JSON, found text that is not JSON (is the file cut off, or is a "
       "number written in another form?)"},
      {"{\"rows\": [1]}",
       " the key layers is missing; expected rows, layers, name, op_ms, "
       "tied_bytes"},
      {"{\"rows\": [1], \"rows\": [2], \"layers\": []}",
       " the key rows stands twice: leave one out"},
      {"{\"rows\": [1, 1], \"layers\": []}",
       " rows[1]: expected more than 1, the one before it, found 1"},
      {"{\"rows\": [0], \"layers\": []}",
       " rows[0]: expected a whole number from 1 to 1000000, found 0"},
      {"{\"rows\": [], \"layers\": []}",
       " rows: expected a list of 1 to 1000 numbers of rows, found a list of 0"},
      {"{\"rows\": [1], \"layers\": []}",
       " layers: expected a list of layers, the input side first, found a list of 0"},
      {layer("[1, 3]", "[1]"),
       " layers[0].forward_ms: expected a list of 2 numbers, one for each of rows, found a list of "
       "1"},
      {layer("[2, 4]", "[2, -4]"),
       " layers[0].backward_input_ms[1]: expected a number from 0 to 2305843009213.694 "
       "(milliseconds), found -4"},
      {layer("\"stash_bytes\": 30", "\"stash_byte\": 30"),
       " layers[0]: unknown key \"stash_byte\", did you mean stash_bytes?"},
      {layer("\"name\": \"a\"", "\"name\": 7"), " layers[0].name: expected a text, found 7"},
      {cat("{\"rows\": [1, 3], \"tied_bytes\": 401, \"layers\": [", good_layer(), "]}"),
       " tied_bytes: expected at most 400, the parameter_bytes of the first layer and of the last, "
       "which share this weight, found 401"},
      {layer(cat(kTimes),
             "\"forward_ms\": [0, 0], \"backward_input_ms\": [0, 0], "
             "\"backward_weight_ms\": [0, 0]"),
       " expected a layer that takes time, found forward and backward times of 0 ms in every "
       "layer"},
      {layer("10", "9e15"),
       " the layers together have more than 9007199254740992 bytes of "
       "activations and parameters; are the sizes in bytes?"},
  };
  for (const auto& [text, sentence] : cases) EXPECT_EQ(refusal(text), sentence) << text;
}

}  // namespace
}  // namespace tenuto
