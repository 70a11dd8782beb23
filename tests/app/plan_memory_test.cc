// tenuto plan: the bytes that a device keeps between steps, as the model file says.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "app/plan_calls.h"
#include "app/simulate.h"
#include "base/random.h"
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

// tenuto simulate, with the files that the plan was made from.
Answer simulated(const Scratch& chain, const Scratch& cluster, const Scratch& plan, bool json) {
  SimulateOptions options;
  options.file = plan.path();
  options.chain = chain.path();
  options.cluster = cluster.path();
  options.json = json;
  std::ostringstream out, errors;
  const int code = run_simulate(options, out, errors);
  return {code, out.str(), errors.str()};
}

std::string cluster_with(int64_t devices, int64_t bytes) {
  return cat("{\"devices\": ", devices,
             ", \"bandwidth_gbps\": {\"inside\": 8, \"between\": 2, \"per_node\": 2}, ",
             "\"memory_bytes\": ", bytes, "}");
}

// The text of a chain file with four to eight random layers. Each has four numbers; `reversed`
// draws the last of them first, which gives other layers for the same seed.
std::string random_layers(Random& random, bool reversed) {
  constexpr std::array<int64_t, 4> kNumbers{5, 9, 20, 9'000'000};
  std::string layers;
  for (int64_t l = 4 + random.below(5); l > 0; --l) {
    std::array<int64_t, 4> drawn{};
    for (size_t i = 0; i < drawn.size(); ++i) {
      const size_t number = reversed ? drawn.size() - 1 - i : i;
      drawn[number] = random.below(kNumbers[number]);
    }
    layers += cat(1 + drawn[0], " ", 2 + drawn[1], " ", 1'000'000 * (1 + drawn[2]), " ", drawn[3],
                  " layer\n");
  }
  return layers;
}

// Whatever the planner writes fits, as tenuto simulate says; and with less memory than it says is
// needed, the plan is priced all the same, and one line says what is missing.
TEST(SimulateMemory, AgreesWithThePlanner) {
  int32_t planned = 0;
  for (uint64_t number = 0; number < 32; ++number) {
    const bool reversed = number % 2 == 1;
    const uint64_t seed = number / 2;
    SCOPED_TRACE(cat("seed ", seed, reversed ? ", reversed" : ""));
    Random random(mix(8, seed));
    const std::string layers = random_layers(random, reversed);
    const Scratch chain("layers.chain", layers), plan("plan.json", "");
    const int64_t devices = 2 + random.below(4);
    const Scratch cluster("cluster.json",
                          cluster_with(devices, 30'000'000 * (1 + random.below(12))));
    PlanOptions options;
    options.chain = chain.path();
    options.cluster = cluster.path();
    options.plan = plan.path();
    if (answer(options).code != 0) continue;
    ++planned;
    const Json priced = Json::parse(simulated(chain, cluster, plan, true).out);
    EXPECT_TRUE(priced["fits"].get<bool>()) << priced["memory"];
    EXPECT_EQ(simulated(chain, cluster, plan, false).out.find("lacks"), std::string::npos);
    int64_t most = 0;
    for (const Json& worker : priced["memory"]) {
      EXPECT_LE(worker["needed_bytes"].get<int64_t>(), worker["memory_bytes"].get<int64_t>());
      most = std::max(most, worker["needed_bytes"].get<int64_t>());
    }
    const Scratch exact("exact.json", cluster_with(devices, most));
    EXPECT_TRUE(Json::parse(simulated(chain, exact, plan, true).out)["fits"].get<bool>());
    const Scratch small("small.json", cluster_with(devices, most - 1));
    const Json lacking = Json::parse(simulated(chain, small, plan, true).out);
    EXPECT_FALSE(lacking["fits"].get<bool>());
    EXPECT_EQ(lacking["makespan_ms"], priced["makespan_ms"]);
    const Answer text = simulated(chain, small, plan, false);
    EXPECT_EQ(text.code, 0);
    EXPECT_NE(text.out.find("lacks       the plan does not fit into memory: worker "),
              std::string::npos);
    EXPECT_NE(text.out.find(cat(" needs ", most, " bytes (")), std::string::npos) << text.out;
    EXPECT_NE(text.out.find(cat(" of memory and has ", most - 1, " bytes (")), std::string::npos);
  }
  EXPECT_GE(planned, 16);
}

}  // namespace
}  // namespace tenuto
