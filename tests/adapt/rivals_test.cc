// The formulas for other systems against figures that were computed independently.
#include "adapt/rivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

namespace tenuto {
namespace {

// One death in each of `count` pipelines, all at one stage or each at the next stage.
Dead deaths(const Fleet& fleet, int32_t count, bool same_stage) {
  Dead dead = all_alive(fleet);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t stage = (fleet.size.stages / 2 + (same_stage ? 0 : i)) % fleet.size.stages;
    dead[static_cast<size_t>(i)][static_cast<size_t>(stage)] = true;
  }
  return dead;
}

// Speeds relative to plain 1F1B without deaths, to three decimals.
std::map<std::string, double> speeds(const Fleet& fleet, const Dead& dead) {
  std::map<std::string, double> all;
  for (const Rival& rival : rivals()) {
    all[rival.name] = std::round(1000 * fault_free(fleet) / rival.step(fleet, dead)) / 1000;
  }
  return all;
}

TEST(Rivals, OneDeath) {
  const Fleet small{{4, 3, 6}, 64};
  auto found = speeds(small, deaths(small, 1, true));
  EXPECT_EQ(found, (std::map<std::string, double>{{"scaled", 0.917},
                                                  {"routed", 1},
                                                  {"spread", 1},
                                                  {"layers", 1.333},
                                                  {"templates", 0.9},
                                                  {"redundant", 0.587},
                                                  {"dropped", 0.643},
                                                  {"replicas", 0.75},
                                                  {"restart", 0.857}}));
  EXPECT_EQ(speeds({{4, 3, 6}, 16}, deaths(small, 1, true))["layers"], 1.2);
  const Fleet middle{{8, 4, 32}, 128};
  found = speeds(middle, deaths(middle, 1, true));
  EXPECT_EQ(found, (std::map<std::string, double>{{"scaled", 0.969},
                                                  {"routed", 0.907},
                                                  {"spread", 0.907},
                                                  {"layers", 1.147},
                                                  {"templates", 0.951},
                                                  {"redundant", 0.511},
                                                  {"dropped", 0.669},
                                                  {"replicas", 0.78},
                                                  {"restart", 0.923}}));
}

TEST(Rivals, SeveralDeaths) {
  const Fleet large{{16, 8, 64}, 256};
  const auto same = speeds(large, deaths(large, 4, true));
  EXPECT_EQ(same.at("scaled"), 0.969);
  EXPECT_EQ(same.at("routed"), 0.617);
  EXPECT_EQ(same.at("spread"), 1.068);
  EXPECT_EQ(same.at("layers"), 1.162);
  EXPECT_EQ(same.at("templates"), 0.949);
  EXPECT_EQ(same.at("redundant"), 0.51);
  EXPECT_EQ(same.at("dropped"), 0.474);
  EXPECT_EQ(same.at("replicas"), 0.552);
  EXPECT_EQ(same.at("restart"), 0.926);
  const auto many = speeds(large, deaths(large, 7, false));
  EXPECT_EQ(many.at("routed"), 1.068);
  EXPECT_EQ(many.at("layers"), 1.139);
  EXPECT_EQ(many.at("templates"), 0.912);
  EXPECT_EQ(many.at("replicas"), 0.15);
}

TEST(Rivals, AStageWithoutLiveWorkersStopsReRouting) {
  const Fleet fleet{{4, 3, 6}, 16};
  const Dead dead = deaths(fleet, 3, true);
  for (const Rival& rival : rivals()) {
    const bool ends = rival.name == "routed" || rival.name == "dropped" || rival.name == "replicas";
    EXPECT_EQ(std::isinf(rival.step(fleet, dead)), ends) << rival.name;
  }
}

TEST(Rivals, ThroughputOverTwelveHours) {
  const Fleet fleet{{8, 4, 32}, 128};
  const auto mean = [&](double hours_between, const char* name, double cap) {
    double sum = 0;
    constexpr int kRuns = 40;
    for (int run = 0; run < kRuns; ++run) {
      const auto events =
          draw_failures(fleet, {12, hours_between * 3600, 0}, static_cast<uint64_t>(run));
      for (const Rival& rival : rivals()) {
        if (rival.name == name) sum += throughput(fleet, events, 12, rival, cap);
      }
    }
    return sum / kRuns;
  };
  EXPECT_NEAR(mean(6, "scaled", 0), 0.984, 0.0006);
  EXPECT_NEAR(mean(2, "scaled", 0), 0.922, 0.0006);
  EXPECT_NEAR(mean(0.5, "scaled", 0), 0.641, 0.0006);
  EXPECT_NEAR(mean(6, "spread", 1), 0.953, 0.0006);
  EXPECT_NEAR(mean(6, "spread", 0), 1.062, 0.0011);
  EXPECT_NEAR(mean(2, "spread", 0), 0.956, 0.0011);
}

TEST(Rivals, ARepairedWorkerIsAliveAgain) {
  const Fleet fleet{{4, 3, 6}, 16};
  const auto events = draw_failures(fleet, {4, 3600, 1800}, 1);
  ASSERT_EQ(events.size(), 6u);  // three deaths, each with its return half an hour later
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].returns, i % 2 == 1);
    EXPECT_EQ(events[i].at_seconds, 3600.0 * static_cast<double>(i / 2 + 1) + 1800 * (i % 2));
  }
  EXPECT_NEAR(throughput(fleet, events, 4, rivals().front()), (2.5 + 1.5 * 11 / 12) / 4, 1e-9);
}

}  // namespace
}  // namespace tenuto
