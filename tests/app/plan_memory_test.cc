// tenuto plan: the bytes that a device keeps between steps, as the model file says.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "app/plan_calls.h"
#include "base/text.h"

namespace tenuto {
namespace {

// Equal layers of 3 ms, with these bytes of optimizer state; a layer without a number does not have
// the key.
std::string model_with(double parameters, const std::vector<std::optional<double>>& optimizer) {
  std::string layers;
  for (size_t i = 0; i < optimizer.size(); ++i) {
    layers += cat(i == 0 ? "" : ", ", "{\"name\": \"layer ", i,
                  "\", \"forward_ms\": [1], \"backward_input_ms\": [1], "
                  "\"backward_weight_ms\": [1], \"activation_bytes\": 1000, "
                  "\"stash_bytes\": 1000, \"parameter_bytes\": ",
                  parameters);
    if (optimizer[i]) layers += cat(", \"optimizer_bytes\": ", *optimizer[i]);
    layers += "}";
  }
  return cat("{\"rows\": [1], \"layers\": [", layers, "]}");
}

// Two devices with 170 MB each.
class PlanMemory : public testing::Test {
 protected:
  PlanOptions options(const Scratch& model) const {
    PlanOptions options;
    options.model = model.path();
    options.cluster = cluster_.path();
    options.cut.micros = 64;  // so many that several stages on one device gain too little
    options.plan = plan_.path();
    return options;
  }
  // The stages with split rows; then those with whole micro-batches in turn. "0-2 2-4": two stages
  // of two layers; "0-4x2": one stage on two devices.
  std::string stages(double parameters, const std::vector<std::optional<double>>& optimizer) const {
    const Scratch model("memory.json", model_with(parameters, optimizer));
    const Json tree = planned(options(model));
    return cat(text_of(tree["stages"]), "; ", text_of(tree["plan"]["stages"]));
  }

 private:
  static std::string text_of(const Json& stages) {
    std::string text;
    for (const Json& stage : stages) {
      const size_t devices = stage["devices"].size();
      text += cat(text.empty() ? "" : " ", stage["first_layer"].get<int>(), "-",
                  stage["end_layer"].get<int>(), devices > 1 ? cat("x", devices) : std::string());
    }
    return text;
  }

  const Scratch plan_{"memory-plan.json", ""};
  const Scratch cluster_{"memory-cluster.json",
                         "{\"devices\": 2, \"bandwidth_gbps\": [[0, 1], [1, 0]], "
                         "\"memory_bytes\": 170e6}"};
};

// Summing 80 MB takes longer than filling and draining a pipeline, so there are two stages. If only
// the first layer has a large state, the second one does not fit beside it.
TEST_F(PlanMemory, MovesTheCut) {
  EXPECT_EQ(stages(20e6, {20e6, 20e6, 20e6, 20e6}), "0-2 2-4; 0-2 2-4");
  EXPECT_EQ(stages(20e6, {120e6, 20e6, 20e6, 20e6}), "0-1 1-4; 0-1 1-4");
  EXPECT_EQ(stages(20e6, {0.0, 120e6, 20e6, 20e6}), "0-2 2-4; 0-2 2-4");
}

// Each replica keeps the whole state of its stage.
TEST_F(PlanMemory, IsWholeOnEveryReplica) {
  EXPECT_EQ(stages(1e5, {20e6, 20e6, 20e6, 20e6}), "0-4x2; 0-4x2");
  EXPECT_EQ(stages(1e5, {60e6, 60e6, 60e6, 60e6}), "0-2 2-4; 0-2 2-4");
}

// Without the key, a layer keeps four bytes for each byte of its parameters: 160 MB here.
TEST_F(PlanMemory, IsAssumedWithoutTheKey) {
  EXPECT_EQ(stages(40e6, {std::nullopt, 10e6, 10e6, 10e6}), "0-1 1-4; 0-1 1-4");
  EXPECT_EQ(stages(40e6, {10e6, 10e6, 10e6, 10e6}), "0-2 2-4; 0-2 2-4");
}

TEST_F(PlanMemory, MayBeTooMuch) {
  const Scratch model("memory.json", model_with(20e6, {160e6, 20e6, 20e6, 20e6}));
  EXPECT_NE(refused(options(model), 3).find("stage 0 of 2"), std::string::npos);
}

}  // namespace
}  // namespace tenuto
